//! What happens at a system call: it is made, and its result and all that the
//! kernel wrote go into the log. What belongs to each call is said by the
//! table in `protocol`; calls that create processes, change memory or concern
//! signals have code of their own elsewhere.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::record::{at, tag};
use protocol::syscall::{How, Syscall};
use protocol::table;

use crate::arch::{self, Regs};
use crate::capture::{self, Blobs};
use crate::recorder::{self, topic};
use crate::scratch::Redirected;
use crate::state::{Thread, space, thread};
use crate::sys::{self, nr};
use crate::{
    clock, counter, descriptors, filter, int80, ioctl, lock, log, mem, memory, motion, needs,
    patcher, pi, poke, process, replay, signal, stretch, turn, words,
};

/// The instruction of a 32-bit call.
const INT80: [u8; 2] = [0xcd, 0x80];

/// In `Regs::slow`: the thread made no call, it was interrupted (in replay) or
/// is to read the time-stamp counter.
pub const INTERRUPTED: u64 = 2;
/// In `Regs::slow`: the thread came from translated code.
pub const TRANSLATED: u64 = 3;
/// It came from the stub of an instruction that was replaced.
pub const ANSWERED: u64 = 4;

/// The program made a call: everything starts here.
pub extern "C" fn dispatch(regs: &mut Regs) {
    let thread = thread();
    thread.busy.store(1, Relaxed);
    if (regs.slow >= INTERRUPTED || replay::is_on()) && is_no_call(thread, regs) {
        return;
    }
    let site = if regs.slow != 0 {
        regs.rip - 2
    } else {
        // SAFETY: stubs and the vdso keep the site in the word before the
        // place to go on.
        unsafe { *((regs.rip - 8) as *const u64) }
    };
    thread.call_site.set(site);
    let waits = thread.pending.load(Acquire) != 0 || replay::is_on();
    if waits && site != 0 && deliver_before(thread, regs, site) {
        return leave(thread, regs);
    }
    if replay::is_on() {
        replay::offer(thread);
    } else if space().turns.get() != 0 {
        if regs.rax == nr::SCHED_YIELD {
            turn::yield_now(thread);
        } else {
            turn::offer(thread);
        }
    }
    if regs.slow != 0 && mem::read::<[u8; 2]>(site) == Some(INT80) {
        int80::perform(thread, regs, site);
    } else {
        let (number, args) = (regs.rax, regs.args());
        if (thread.filter.get() != 0 || replay::is_on())
            && let Some(answer) = filtered(thread, number, &args, site)
        {
            let count = table::syscall(number).map_or(6, |row| row.args.len());
            do_not_make(thread, regs, (number, &args, count), answer, site);
        } else {
            perform(thread, regs, site, number, args);
        }
    }
    signal::deliver(thread, regs, at::CALL_EXIT);
    if regs.rip == site || regs.slow != 0 {
        // While this thread waited, another may have had the site patched.
        regs.rip = patcher::to_stub(regs.rip);
    }
    leave(thread, regs);
}

/// The thread comes from translated code, was interrupted, or this is replay.
/// True: it makes no call, and goes on as `regs` say.
#[cold]
#[inline(never)]
fn is_no_call(thread: &Thread, regs: &mut Regs) -> bool {
    if regs.slow == TRANSLATED {
        let arrived = if motion::is_on() {
            motion::came_back(thread, regs)
        } else {
            stretch::has_arrived(thread, regs)
        };
        if !arrived {
            thread.busy.store(0, Release);
            return true;
        }
        thread.saved_rcx.set(regs.rcx);
        regs.slow = INTERRUPTED;
    }
    let is_answered = regs.slow == ANSWERED;
    if is_answered {
        // SAFETY: stubs keep the site in the word before the place to go on.
        regs.rip = unsafe { *((regs.rip - 8) as *const u64) };
        regs.slow = INTERRUPTED;
    }
    if replay::is_on() {
        replay::arrived(thread, regs);
    }
    if regs.slow != INTERRUPTED {
        return false;
    }
    regs.rcx = thread.saved_rcx.get();
    if is_answered || thread.reads_counter.replace(0) != 0 {
        counter::read(thread, regs);
        // Where the site has a stub, it goes on there.
        regs.rip = patcher::to_stub(regs.rip);
    } else {
        replay::interrupted(thread, regs);
    }
    leave(thread, regs);
    true
}

/// The last thing before the program runs again: nothing may wait any more.
pub fn leave(thread: &Thread, regs: &mut Regs) {
    loop {
        thread.busy.store(0, Release);
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        if thread.pending.load(Acquire) == 0 {
            if replay::is_on() {
                replay::set_out(thread, regs);
            }
            return;
        }
        thread.busy.store(1, Release);
        signal::deliver(thread, regs, at::CALL_EXIT);
    }
}

/// A signal came before the call was begun: the handler first. True if the
/// program goes elsewhere.
#[cold]
#[inline(never)]
fn deliver_before(thread: &Thread, regs: &mut Regs, site: u64) -> bool {
    let resume = regs.rip;
    regs.rip = site;
    signal::deliver(thread, regs, at::CALL_ENTRY);
    if regs.rip == site {
        regs.rip = resume;
        return false;
    }
    true
}

/// What the program's own filters say about a call, if it is not to be made.
#[cold]
#[inline(never)]
fn filtered(thread: &Thread, number: u64, args: &[u64; 6], site: u64) -> Option<u32> {
    if replay::is_on() {
        replay::filtered(thread, number)
    } else if filter::judges(thread, site) {
        filter::verdict(thread, number, args, site, false)
    } else {
        None
    }
}

/// A call that a filter of the program's own forbids: number, arguments and how
/// many count.
#[cold]
#[inline(never)]
pub fn do_not_make(
    thread: &Thread,
    regs: &mut Regs,
    (number, args, count): (u64, &[u64; 6], usize),
    answer: u32,
    site: u64,
) {
    let result = filter::result_of(answer);
    let mut blobs = Blobs::new();
    blobs.words(tag::FILTERED, &[u64::from(answer)]);
    if let Some(entry) = log::call(thread, number, args, count, result, blobs.count()) {
        blobs.write(entry).commit();
    }
    filter::enforce(thread, regs, number, answer, site);
}

pub fn perform(thread: &Thread, regs: &mut Regs, site: u64, number: u64, args: [u64; 6]) {
    let Some(row) = table::syscall(number) else {
        log::done(log::call(thread, number, &args, 6, -sys::ENOSYS, 0));
        let mut text = *b"system call number      has no rule: the program got ENOSYS";
        write_decimal(&mut text[19..23], number);
        recorder::note(thread, number, 1, &text);
        regs.rax = -sys::ENOSYS as u64;
        return;
    };
    let result = match row.how {
        _ if !replay::is_on() && names_arena(thread, number, &args) => {
            let result = -sys::EBADF;
            finish_call(thread, row, &args, result, &Blobs::new());
            result
        }
        How::Plain => plain(thread, row, &args),
        How::Block => blocking(thread, row, &args),
        How::Memory => memory::perform(thread, row, args),
        How::Control => match control(thread, regs, row, args) {
            Some(result) => result,
            None => return,
        },
        How::Refuse(errno) => {
            let result = -i64::from(errno);
            log::done(log::call(thread, number, &args, row.args.len(), result, 0));
            // glibc asks for these two in every process and goes on without.
            if !matches!(row.name, "rseq" | "clone3" | "restart_syscall") {
                recorder::note(thread, number, 0, row.name.as_bytes());
            }
            result
        }
    };
    if result == -sys::ERESTARTSYS {
        regs.rip = site;
    } else {
        regs.rax = result as u64;
    }
}

/// Calls that make or end threads and processes, and those about signals.
/// None: the registers are as they shall be.
#[inline(never)]
fn control(thread: &Thread, regs: &mut Regs, row: &'static Syscall, args: [u64; 6]) -> Option<i64> {
    let number = u64::from(row.nr);
    let result = match number {
        nr::RT_SIGRETURN => {
            signal::sigreturn(thread, regs);
            return None;
        }
        nr::CLONE | nr::FORK | nr::VFORK => {
            return process::clone(thread, regs, row, args);
        }
        nr::EXECVE | nr::EXECVEAT if replay::is_on() => {
            return Some(replay::exec(thread, row, &args));
        }
        nr::EXECVE | nr::EXECVEAT => return Some(process::exec(thread, row, args)),
        nr::EXIT => process::exit(thread, row, args),
        nr::EXIT_GROUP => process::exit_group(thread, row, args),
        nr::RT_SIGACTION => signal::sigaction(thread, &args),
        nr::RT_SIGPROCMASK => signal::sigprocmask(thread, &args),
        nr::RT_SIGPENDING if replay::is_on() => return Some(replay::plain(thread, row, &args)),
        nr::RT_SIGPENDING => signal::sigpending(thread, &args),
        nr::SIGALTSTACK => signal::sigaltstack(thread, &args, regs.rsp),
        nr::RT_SIGSUSPEND => {
            let mask = mem::read::<u64>(args[0]);
            start(thread, row, &args);
            let result = match mask {
                Some(mask) if args[1] == 8 && replay::is_on() => {
                    signal::suspend_masks(thread, mask);
                    return Some(replay::finish(thread, row, &args));
                }
                Some(mask) if args[1] == 8 => {
                    turn::give(thread);
                    let result = signal::suspend(thread, Some(mask));
                    turn::take(thread);
                    result
                }
                Some(_) => -sys::EINVAL,
                None => -sys::EFAULT,
            };
            finish(thread, row, &args, result, &Blobs::new());
            return Some(result);
        }
        nr::SET_TID_ADDRESS => {
            thread.child_tid.set(args[0]);
            i64::from(thread.tid.get())
        }
        nr::SET_ROBUST_LIST => {
            let result = if args[1] == 24 { 0 } else { -sys::EINVAL };
            if result == 0 {
                thread.robust_list.set(args[0]);
                sys::call(number, args[0], args[1], 0, 0, 0, 0);
            }
            result
        }
        nr::ARCH_PRCTL => process::arch_prctl(&args),
        nr::PRCTL if args[0] as u32 == PR_GET_TID_ADDRESS => {
            // The kernel knows a word of the monitor's.
            match mem::write(args[1], &thread.child_tid.get()) {
                true => 0,
                false => -sys::EFAULT,
            }
        }
        nr::KEYCTL => match table::keyctl(args[0]) {
            row if matches!(row.how, How::Block) => return Some(blocking(thread, row, &args)),
            _ => -sys::EOPNOTSUPP,
        },
        nr::SECCOMP if !replay::is_on() => filter::seccomp(thread, &args),
        nr::PRCTL if filter::is_prctl(args[0]) && replay::is_on() => {
            return Some(replay::plain(thread, row, &args));
        }
        nr::PRCTL if let Some(result) = filter::prctl(thread, &args) => result,
        nr::PRCTL if is_refused_prctl(thread, &args) => -sys::EINVAL,
        nr::PRCTL if let Some(result) = counter::prctl(thread, &args) => result,
        _ if replay::is_on() => return Some(replay::plain(thread, row, &args)),
        // SAFETY: the program's own call; the kernel checks its pointers.
        _ => unsafe { arch::syscall(number, &args) },
    };
    finish_call(thread, row, &args, result, &Blobs::new());
    Some(result)
}

const PR_GET_TID_ADDRESS: u32 = 40;

/// What would turn the monitor's own ways against it, or could not be
/// replayed: the layout of memory, syscall user dispatch, the auxiliary vector.
const REFUSED_PRCTLS: [(u32, &[u8]); 3] = [
    (35, b"prctl(PR_SET_MM) of the heap"),
    (59, b"prctl(PR_SET_SYSCALL_USER_DISPATCH)"),
    (0x4155_5856, b"prctl(PR_GET_AUXV)"),
];

fn is_refused_prctl(thread: &Thread, args: &[u64; 6]) -> bool {
    const PR_SET_MM: u32 = 35;
    // What concerns the heap, and all of it at once; and what writes a size.
    let harms = |option: u32| option != PR_SET_MM || matches!(args[1], 6 | 7 | 14 | 15);
    for (topic, (refused, name)) in (topic::PRCTL..).zip(REFUSED_PRCTLS) {
        if args[0] as u32 == refused && harms(refused) {
            recorder::note(thread, topic, 0, name);
            return true;
        }
    }
    false
}

/// Options of sockets whose answer is not as long as it says.
fn is_refused_option(thread: &Thread, level: u64, option: u64) -> bool {
    const SOL_SOCKET: u32 = 1;
    const SO_GET_FILTER: u32 = 26;
    const IPPROTO_TCP: u32 = 6;
    const TCP_ZEROCOPY_RECEIVE: u32 = 35;
    let (topic, name): (u64, &[u8]) = match (level as u32, option as u32) {
        (SOL_SOCKET, SO_GET_FILTER) => (topic::FILTER, b"getsockopt(SO_GET_FILTER)"),
        (IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE) => {
            (topic::ZEROCOPY, b"getsockopt(TCP_ZEROCOPY_RECEIVE)")
        }
        _ => return false,
    };
    recorder::note(thread, topic, 0, name);
    true
}

/// A call that cannot block.
fn plain(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    if replay::is_on() {
        return plain_again(thread, row, args);
    }
    let needs = needs::of(number);
    if needs & needs::CARE != 0
        && let Some(result) = with_care(thread, row, args)
    {
        return result;
    }
    let before = match needs & needs::LENGTHS {
        0 => [0; 6],
        _ => capture::lengths_before(row, args),
    };
    // SAFETY: the program's own call; the kernel checks its pointers, and
    // those that would touch the monitor's memory were refused.
    let mut result = unsafe { arch::syscall(number, args) };
    let mut blobs = Blobs::new();
    if needs & needs::EXTRA != 0 {
        result = poke::opened(thread, number, args, result);
    }
    if needs & needs::CARE != 0 {
        after(thread, number, args, result);
    }
    if needs & needs::INPUTS != 0 {
        capture::inputs(row, args, &mut blobs);
    }
    if needs & needs::OUTPUTS != 0 {
        capture::outputs(row, args, result, &before, &mut blobs);
    }
    if needs & needs::EXTRA != 0 {
        capture::extra(thread, number, args, result, &mut blobs);
    }
    memory::written(thread, number, args, result, &mut blobs);
    if let Some(entry) = log::call(thread, number, args, row.args.len(), result, blobs.count()) {
        blobs.write(entry).commit();
    }
    result
}

/// [`plain`] in replay.
#[cold]
fn plain_again(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    if is_clock(number) {
        replay::settle(thread);
        if let Some(result) = clock::read(thread, number, args[0], args[1]) {
            return result;
        }
    }
    // Some wait now and then (`waiting`).
    if matches!(number, nr::CLOSE | nr::IOCTL) && replay::is_blocking(thread) {
        replay::start(thread, row, args);
        return replay::finish(thread, row, args);
    }
    replay::plain(thread, row, args)
}

fn is_clock(number: u64) -> bool {
    matches!(number, nr::CLOCK_GETTIME | nr::GETTIMEOFDAY | nr::TIME)
}

/// What the monitor does before calls that concern it (`needs::CARE`), and
/// those that it answers itself.
#[inline(never)]
fn with_care(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> Option<i64> {
    let number = u64::from(row.nr);
    descriptors::note(thread, number, args);
    let answer = match number {
        nr::CLOSE if space().lingers.get() != 0 && space().turns.get() != 0 && lingers(args[0]) => {
            return Some(waiting(thread, row, args, None, |_, _| {}));
        }
        nr::CLOSE => return None,
        nr::SETSOCKOPT => {
            if args[1] as u32 == 1 && args[2] as u32 == SO_LINGER {
                space().lingers.set(1);
            }
            return None;
        }
        nr::IOCTL => return Some(ioctl::perform(thread, row, *args)),
        _ if is_clock(number) => return clock::read(thread, number, args[0], args[1]),
        nr::GETSOCKOPT if is_refused_option(thread, args[1], args[2]) => -sys::ENOPROTOOPT,
        nr::MLOCKALL => lock::all(args[0]),
        nr::MUNLOCKALL => lock::none(),
        nr::PROCESS_VM_WRITEV if poke::is_refused(thread, args[0]) => -sys::EPERM,
        _ => guard_descriptor(number, args)?,
    };
    finish_call(thread, row, args, answer, &Blobs::new());
    Some(answer)
}

/// What it does after them.
#[inline(never)]
fn after(thread: &Thread, number: u64, args: &[u64; 6], result: i64) {
    match number {
        nr::UNSHARE | nr::SETNS if result == 0 => {
            process::enter_namespaces(thread.process(), number, args);
        }
        nr::SETTIMEOFDAY | nr::CLOCK_SETTIME | nr::ADJTIMEX | nr::CLOCK_ADJTIME => {
            thread.clocks.iter().for_each(clock::Running::forget);
        }
        _ => {}
    }
}

/// A call that may block: two events.
#[inline(never)]
fn blocking(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    if replay::is_on() {
        return blocking_again(thread, row, args);
    }
    if number == nr::FUTEX
        && let Some(result) = futex_at_once(thread, row, args)
    {
        return result;
    }
    if number == nr::FCNTL {
        descriptors::note(thread, number, args);
    }
    let row = if number == nr::VMSPLICE && is_for_reading(args[0]) {
        &table::VMSPLICE_READS
    } else {
        row
    };
    if descriptors::never_waits(thread, row, args) {
        return plain(thread, row, args);
    }
    start(thread, row, args);
    let before = capture::lengths_before(row, args);
    let turns = space().turns.get() != 0;
    if turns && let Some(result) = at_once(number, *args) {
        let mut blobs = Blobs::new();
        capture::outputs(row, args, result, &before, &mut blobs);
        finish(thread, row, args, result, &blobs);
        return result;
    }
    let redirected = if turns {
        Redirected::new(thread, row, args)
    } else {
        Redirected::none(*args)
    };
    let mut made = redirected.args();

    // A mask that the call sets while it waits: ours must stay open.
    let mask = capture::wait_mask(number, args);
    let kernel = mask.map_or(0, signal::kernel_mask);
    let pair = [(&raw const kernel) as u64, 8];
    if mask.is_some() {
        match number {
            nr::PSELECT6 => made[5] = pair.as_ptr() as u64,
            nr::PPOLL => made[3] = pair[0],
            _ => made[4] = pair[0],
        }
    }

    let slices = words::slices(number, args);
    if let Some(slices) = &slices {
        slices.arguments(&mut made);
    }

    if turns && !redirected.is_direct() {
        turn::give(thread);
    }
    let mut result;
    loop {
        // SAFETY: as in `plain`.
        result = unsafe {
            arch::syscall_interruptible(number, &raw const made, thread.pending.as_ptr())
        };
        if let Some(slices) = &slices
            && slices.goes_on(&mut result)
        {
            continue;
        }
        if result != -sys::EINTR || thread.pending.load(Acquire) != 0 {
            break;
        }
    }
    if turns {
        turn::take(thread);
    }
    result = redirected.finish(thread, result);
    if needs::of(number) & needs::EXTRA != 0 {
        result = poke::opened(thread, number, args, result);
    }

    if result == -sys::EINTR && thread.pending.load(Acquire) != 0 {
        if let Some(mask) = mask {
            signal::suspend_masks(thread, mask);
        } else if signal::restarts(thread, number, args) {
            result = -sys::ERESTARTSYS;
        }
    }
    let mut blobs = Blobs::new();
    capture::outputs(row, args, result, &before, &mut blobs);
    capture::extra(thread, number, args, result, &mut blobs);
    memory::written(thread, number, args, result, &mut blobs);
    if number == nr::FUTEX && space().shared.get() != 0 {
        note_death(args[0], &mut blobs);
    }
    words::after_wait(&mut blobs);
    finish(thread, row, args, result, &blobs);
    result
}

/// The owner of a lock that was waited for may have been killed: then the kernel
/// has marked it, in nobody's turn, and this thread is likely to be the first to
/// see it.
fn note_death(word: u64, blobs: &mut Blobs) {
    const OWNER_DIED: u32 = 0x4000_0000;
    if mem::read::<u32>(word).is_some_and(|word| word & OWNER_DIED != 0) {
        blobs.memory(0, word, 4);
    }
}

/// A call that does not wait as a rule, but may now: two events. `both` is an
/// argument that the kernel reads and writes, and how much; `keep` says which bytes
/// go with its end.
#[inline(never)]
pub fn waiting(
    thread: &Thread,
    row: &'static Syscall,
    args: &[u64; 6],
    both: Option<(usize, u64)>,
    keep: impl FnOnce(&mut Blobs, i64),
) -> i64 {
    let number = u64::from(row.nr);
    start(thread, row, args);
    let redirected = Redirected::argument(thread, args, both);
    let made = redirected.args();
    if !redirected.is_direct() {
        turn::give(thread);
    }
    let mut result;
    loop {
        // SAFETY: as in `plain`.
        result = unsafe {
            arch::syscall_interruptible(number, &raw const made, thread.pending.as_ptr())
        };
        if result != -sys::EINTR || thread.pending.load(Acquire) != 0 {
            break;
        }
    }
    turn::take(thread);
    result = redirected.finish(thread, result);
    if result == -sys::EINTR
        && thread.pending.load(Acquire) != 0
        // The descriptor is gone, whatever came of it.
        && number != nr::CLOSE
        && signal::restarts(thread, number, args)
    {
        result = -sys::ERESTARTSYS;
    }
    let mut blobs = Blobs::new();
    keep(&mut blobs, result);
    finish(thread, row, args, result, &blobs);
    result
}

/// Whether closing a socket waits until what was sent has been taken.
fn lingers(fd: u64) -> bool {
    const SOL_SOCKET: u64 = 1;
    let mut linger = [0u32; 2];
    let mut len = 8u32;
    let (to, len_at) = (linger.as_mut_ptr() as u64, (&raw mut len) as u64);
    sys::call(
        nr::GETSOCKOPT,
        fd,
        SOL_SOCKET,
        SO_LINGER.into(),
        to,
        len_at,
        0,
    ) == 0
        && linger[0] != 0
        && linger[1] != 0
}

const SO_LINGER: u32 = 13;

/// Whether a descriptor is open for reading only.
fn is_for_reading(fd: u64) -> bool {
    const F_GETFL: u64 = 3;
    const O_ACCMODE: i64 = 3;
    let flags = sys::call(nr::FCNTL, fd, F_GETFL, 0, 0, 0, 0);
    flags >= 0 && flags & O_ACCMODE == 0
}

/// [`blocking`] in replay: the log says whether it was one event or two.
fn blocking_again(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    if !replay::is_blocking(thread) {
        return replay::plain(thread, row, args);
    }
    // What goes out is there at the start.
    let sends = thread.process().log.next_record().blobs().next().is_some();
    let row = if u64::from(row.nr) == nr::VMSPLICE && !sends {
        &table::VMSPLICE_READS
    } else {
        row
    };
    replay::start(thread, row, args);
    if u64::from(row.nr) == nr::FUTEX && pi::waits(args[1]) {
        pi::begun_again(thread, args);
    }
    let result = replay::finish(thread, row, args);
    if result == -sys::EINTR
        && let Some(mask) = capture::wait_mask(u64::from(row.nr), args)
    {
        signal::suspend_masks(thread, mask);
    }
    result
}

/// A wait for events that are there already: no need to give up the turn for
/// it, nor to redirect its results.
fn at_once(number: u64, args: [u64; 6]) -> Option<i64> {
    let mut now = args;
    match number {
        nr::POLL => now[2] = 0,
        nr::EPOLL_WAIT => now[3] = 0,
        _ => return None,
    }
    // SAFETY: as in `plain`.
    let result = unsafe { arch::syscall(number, &now) };
    (result != 0).then_some(result)
}

/// Futex operations that do not wait are one event; those for which the kernel
/// would write into the word at moments of its own are done by the monitor.
fn futex_at_once(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> Option<i64> {
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    let result = match args[1] & 0x7f {
        WAIT | WAIT_BITSET => return None,
        _ if pi::waits(args[1]) => return Some(pi::lock(thread, row, args)),
        _ if pi::is_at_once(args[1]) => pi::at_once(thread, args),
        // SAFETY: as in `plain`; wakes never block.
        _ => unsafe { arch::syscall(nr::FUTEX, args) },
    };
    let mut blobs = Blobs::new();
    if args[1] & 0x7f == 5 {
        // FUTEX_WAKE_OP changes the second word.
        blobs.memory(4, args[4], 4);
    } else if pi::is_at_once(args[1]) && result == 0 {
        blobs.memory(0, args[0], 4);
    }
    if let Some(entry) = log::call(
        thread,
        nr::FUTEX,
        args,
        row.args.len(),
        result,
        blobs.count(),
    ) {
        blobs.write(entry).commit();
    }
    Some(result)
}

/// Whether a call names the descriptor that leads to the arena, which the program
/// does not have: it must not close, replace, change, hand on or write to it.
#[inline(always)]
fn names_arena(thread: &Thread, number: u64, args: &[u64; 6]) -> bool {
    let fds = needs::descriptors(number);
    let ours = space().arena_fd.get() as u32;
    fds & 1 != 0 && args[0] as u32 == ours
        || fds > 1 && also_names_arena(thread, number, args, fds, ours)
}

#[cold]
#[inline(never)]
fn also_names_arena(_: &Thread, number: u64, args: &[u64; 6], fds: u8, ours: u32) -> bool {
    let is_named = |(i, arg): (usize, &u64)| fds & 1 << i != 0 && *arg as u32 == ours;
    match number {
        nr::MMAP => args[3] & sys::MAP_ANONYMOUS == 0 && args[4] as u32 == ours,
        nr::SENDMSG => hands_on(args[1], ours),
        nr::SENDMMSG => {
            const MESSAGE: u64 = 64;
            (0..(args[2] & 0xffff_ffff).min(1024)).any(|k| hands_on(args[1] + MESSAGE * k, ours))
        }
        nr::OPEN | nr::TRUNCATE => leads_to_arena(AT_FDCWD, args[0], ours),
        nr::OPENAT | nr::OPENAT2 => leads_to_arena(args[0], args[1], ours),
        _ => args.iter().enumerate().any(is_named),
    }
}

/// Whether a message carries the descriptor.
fn hands_on(message: u64, ours: u32) -> bool {
    const RIGHTS: u64 = 1 << 32 | 1; // SCM_RIGHTS, SOL_SOCKET
    let Some(m) = capture::Message::read(message).filter(|m| m.control != 0) else {
        return false;
    };
    let end = m.control.saturating_add(m.control_len.min(0x1_0000));
    let mut at = m.control;
    while at + 16 <= end {
        let Some([len, kind]) = mem::read::<[u64; 2]>(at).filter(|head| head[0] >= 16) else {
            return false;
        };
        let data_end = at.saturating_add(len).min(end);
        let mut word = at + 16;
        while kind == RIGHTS && word + 4 <= data_end {
            if mem::read::<u32>(word) == Some(ours) {
                return true;
            }
            word += 4;
        }
        at = at.saturating_add(len.saturating_add(7) & !7);
    }
    false
}

const AT_FDCWD: u64 = -100i64 as u64;

/// Whether a path is a name of the descriptor's (`/proc/self/fd/N`).
fn leads_to_arena(dir: u64, path: u64, ours: u32) -> bool {
    let mut text = [0u8; 64];
    // At once, unless it ends where memory does.
    if !mem::copy(text.as_mut_ptr() as u64, path, text.len() as u64) {
        mem::copy_string(&mut text, path);
    }
    let len = text.iter().take_while(|byte| **byte != 0).count();
    let mut name = *b"fd/0000000000";
    write_decimal(&mut name[3..], ours.into());
    let digits = 3 + name[3..12]
        .iter()
        .take_while(|digit| **digit == b'0')
        .count();
    let (number, text) = (&name[digits..], &text[..len]);
    if !text.ends_with(number) || !text[..len - number.len()].ends_with(&name[..3]) {
        return false;
    }
    // The arena itself, and not a file that is called so.
    let mut words = [0u64; 18];
    let there = sys::call(
        nr::NEWFSTATAT,
        dir,
        path,
        words.as_mut_ptr() as u64,
        0,
        0,
        0,
    ) == 0;
    let arena = sys::fstat(ours.into());
    there && arena.is_some_and(|arena| (arena.device, arena.inode) == (words[0], words[1]))
}

/// What concerns the descriptor that leads to the arena.
fn guard_descriptor(number: u64, args: &[u64; 6]) -> Option<i64> {
    let ours = space().arena_fd.get() as u64;
    let low = |arg: u64| arg & 0xffff_ffff;
    match number {
        nr::CLOSE_RANGE if low(args[0]) <= ours && ours <= low(args[1]) => {
            let (first, last, flags) = (low(args[0]), low(args[1]), args[2]);
            let mut result = 0;
            if first < ours {
                result = sys::call(nr::CLOSE_RANGE, first, ours - 1, flags, 0, 0, 0);
            }
            if result == 0 && ours < last {
                result = sys::call(nr::CLOSE_RANGE, ours + 1, last, flags, 0, 0, 0);
            }
            Some(result)
        }
        _ => None,
    }
}

/// The first half of a call that may block.
pub fn start(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) {
    let mut blobs = Blobs::new();
    capture::inputs(row, args, &mut blobs);
    capture::awaited(row, args, &mut blobs);
    let number = u64::from(row.nr);
    if let Some(entry) = log::start(thread, number, args, row.args.len(), blobs.count()) {
        blobs.write(entry).commit();
    }
}

/// The second half.
pub fn finish(thread: &Thread, row: &'static Syscall, args: &[u64; 6], result: i64, blobs: &Blobs) {
    let _ = args;
    if let Some(entry) = log::end(thread, u64::from(row.nr), result, blobs.count()) {
        blobs.write(entry).commit();
    }
}

/// One event for a call that was made by the monitor's own code; `more` goes
/// after what the table says.
pub fn finish_call(
    thread: &Thread,
    row: &'static Syscall,
    args: &[u64; 6],
    result: i64,
    more: &Blobs,
) {
    let before = [0; 6];
    let mut blobs = Blobs::new();
    capture::inputs(row, args, &mut blobs);
    capture::outputs(row, args, result, &before, &mut blobs);
    let count = blobs.count() + more.count();
    let number = u64::from(row.nr);
    if let Some(entry) = log::call(thread, number, args, row.args.len(), result, count) {
        more.write(blobs.write(entry)).commit();
    }
}

/// Whether the kernel itself begins a call of this kind again after a handler
/// that asked for it (SA_RESTART).
pub fn is_restartable(number: u64, args: &[u64; 6]) -> bool {
    match number {
        // Waits with a time limit, and waits for signals, never.
        7 | 23 | 34 | 35 | 65 | 69 | 70 | 128 | 130 | 220 | 230 | 232 | 270 | 271 | 281 | 441 => {
            false
        }
        nr::FUTEX => args[3] == 0,
        _ => true,
    }
}

/// The name by which the kernel leads to what a descriptor is of.
pub fn path_of(fd: u64) -> [u8; 25] {
    let mut text = *b"/proc/self/fd/0000000000\0";
    write_decimal(&mut text[14..24], fd & 0xffff_ffff);
    // Without the zeroes in front: the kernel takes no such name.
    let digits = 14
        + text[14..23]
            .iter()
            .take_while(|digit| **digit == b'0')
            .count();
    text.copy_within(digits..25, 14);
    text
}

pub fn write_decimal(place: &mut [u8], mut number: u64) {
    for byte in place.iter_mut().rev() {
        *byte = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
