//! What happens at a system call: it is made, and its result and all that the
//! kernel wrote go into the log. What belongs to each call is said by the
//! table in `protocol`; calls that create processes, change memory or concern
//! signals have code of their own elsewhere.

mod blocking;
mod guard;
mod own_death;
mod own_stop;
mod plain;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::halt::stopped_in;
use protocol::record::{at, tag};
use protocol::syscall::{How, Syscall};
use protocol::table;

use crate::arch::{self, Regs};
use crate::capture::Blobs;
use crate::recorder;
use crate::state::{Thread, space, thread};
use crate::sys::{self, nr};
use crate::{
    counter, filter, halt, int80, interruption_search, live, log, mem, memory, mode, motion, pads,
    patcher, process, replay, signal, turn,
};

use blocking::blocking;
use guard::{is_refused_prctl, names_arena};
use plain::plain;

pub use blocking::{finish, finish_call, is_restartable, start, waiting};

const PR_GET_TID_ADDRESS: u32 = 40;

/// The instruction of a 32-bit call.
const INT80: [u8; 2] = [0xcd, 0x80];

/// In `Regs::slow`: the thread made no call, it was interrupted (in replay) or
/// is to read the time-stamp counter.
pub const INTERRUPTED: u64 = 2;
/// In `Regs::slow`: the thread came from translated code.
pub const TRANSLATED: u64 = 3;
/// It came from the stub of an instruction that was replaced.
pub const ANSWERED: u64 = 4;

/// It came from the pad of a breakpoint.
pub const JUDGED: u64 = 5;

/// The program made a call: everything starts here.
pub extern "C" fn dispatch(regs: &mut Regs) {
    let thread = thread();
    thread.busy.store(1, Relaxed);
    if (regs.slow >= INTERRUPTED || mode::is_replay()) && is_no_call(thread, regs) {
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
    thread.regs_at.set(core::ptr::from_ref(regs) as u64);
    let attention = signal::may_come(thread) || thread.asked.load(Relaxed) != 0;
    if attention && site != 0 && attend_before(thread, regs, site) {
        return leave(thread, regs);
    }
    turn::at_call(thread, regs.rax == nr::SCHED_YIELD);
    if regs.slow != 0 && mem::read::<[u8; 2]>(site) == Some(INT80) {
        int80::perform(thread, regs, site);
    } else {
        let (number, args) = (regs.rax, regs.args());
        if (thread.filter.get() != 0 || mode::is_replay())
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
    if regs.slow == JUDGED {
        pads::judge(thread, regs);
        return true;
    }
    if regs.slow == TRANSLATED {
        let arrived = if motion::is_on() {
            motion::came_back(thread, regs)
        } else {
            interruption_search::has_arrived(thread, regs)
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
    if mode::is_replay() {
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
        let is_asked = thread.asked.load(Relaxed) != 0;
        if thread.pending.load(Acquire) == 0 && !is_asked {
            if mode::is_replay() {
                replay::set_out(thread, regs);
            }
            return;
        }
        thread.busy.store(1, Release);
        if is_asked {
            halt::at_edge(thread, regs, stopped_in::EXIT);
        }
        signal::deliver(thread, regs, at::CALL_EXIT);
    }
}

/// A signal came before the call was begun: the handler first; or the program was
/// halted. True if the program goes elsewhere.
#[cold]
#[inline(never)]
fn attend_before(thread: &Thread, regs: &mut Regs, site: u64) -> bool {
    let resume = regs.rip;
    regs.rip = site;
    if thread.asked.load(Relaxed) != 0 {
        halt::at_edge(thread, regs, stopped_in::ENTRY);
    }
    if patcher::to_program(regs.rip) == site {
        // The site may have been patched since.
        regs.rip = site;
        signal::deliver(thread, regs, at::CALL_ENTRY);
    }
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
    mode::answer(
        || filter::judged(thread, number, args, site, false),
        || replay::filtered(thread, number),
    )
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
        if let Some(result) = as_before(number, &args) {
            regs.rax = result as u64;
            return;
        }
        log::done(log::call(thread, number, &args, 6, -sys::ENOSYS, 0));
        let mut text = *b"system call number      has no rule: the program got ENOSYS";
        write_decimal(&mut text[19..23], number);
        recorder::note(thread, number, 1, &text);
        regs.rax = -sys::ENOSYS as u64;
        return;
    };
    let result = match row.how {
        _ if !mode::is_replay() && names_arena(thread, number, &args) => {
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
        How::Refuse(_) if let Some(result) = as_before(number, &args) => result,
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

/// A program that ran already may be using what others are refused, and its C library
/// ends it if a new thread cannot do what the others did (`rseq`): it is let. But
/// not what would make threads behind the monitor's back.
#[cold]
fn as_before(number: u64, args: &[u64; 6]) -> Option<i64> {
    const CLONE3: u64 = 435;
    let is_let = mode::is_live()
        && space().is_adopted.get() != 0
        && !matches!(number, CLONE3 | nr::RESTART_SYSCALL);
    // SAFETY: the program's own call; nothing is written down, and the kernel checks
    // its pointers.
    is_let.then(|| unsafe { arch::syscall(number, args) })
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
        nr::EXECVE | nr::EXECVEAT if mode::is_replay() => {
            return Some(replay::exec(thread, row, &args));
        }
        nr::EXECVE | nr::EXECVEAT => return Some(process::exec(thread, row, args)),
        nr::EXIT => process::exit(thread, row, args),
        nr::EXIT_GROUP => process::exit_group(thread, row, args),
        nr::RT_SIGACTION => {
            let _lock = live::lock(thread);
            signal::sigaction(thread, &args)
        }
        nr::RT_SIGPROCMASK => signal::sigprocmask(thread, &args),
        _ if mode::is_replay() && is_logged(number, &args) => {
            return Some(replay::plain(thread, row, &args));
        }
        nr::RT_SIGPENDING => signal::sigpending(thread, &args),
        nr::SIGALTSTACK => signal::sigaltstack(thread, &args, regs.rsp),
        nr::RT_SIGSUSPEND => {
            let mask = mem::read::<u64>(args[0]);
            start(thread, row, &args);
            let result = match mask {
                Some(mask) if args[1] == 8 && mode::is_replay() => {
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
        nr::SECCOMP => filter::seccomp(thread, &args),
        nr::PRCTL if let Some(result) = filter::prctl(thread, &args) => result,
        nr::PRCTL if is_refused_prctl(thread, &args) => -sys::EINVAL,
        nr::PRCTL if let Some(result) = counter::prctl(thread, &args) => result,
        _ if mode::is_replay() => return Some(replay::plain(thread, row, &args)),
        // SAFETY: the program's own call; the kernel checks its pointers.
        _ => unsafe { arch::syscall(number, &args) },
    };
    finish_call(thread, row, &args, result, &Blobs::new());
    Some(result)
}

/// Whether replay takes the answer to one of these from the log; of the others
/// it knows better.
fn is_logged(number: u64, args: &[u64; 6]) -> bool {
    match number {
        nr::RT_SIGPENDING | nr::SECCOMP => true,
        nr::PRCTL => filter::is_prctl(args[0]),
        _ => false,
    }
}

/// The name by which the kernel leads to what a descriptor is of.
pub fn path_of(fd: u64) -> [u8; 25] {
    let mut text = *b"/proc/self/fd/0000000000\0";
    put_number(&mut text, 14, fd & 0xffff_ffff);
    text
}

/// Where the kernel says in which of its functions a thread waits.
pub fn proc_path(tid: u32) -> [u8; 23] {
    let mut text = *b"/proc/0000000000/wchan\0";
    put_number(&mut text, 6, tid.into());
    text
}

/// Puts a number of up to ten digits into a path that has room for them.
fn put_number(text: &mut [u8], at: usize, number: u64) {
    let end = at + 10;
    write_decimal(&mut text[at..end], number);
    // Without the zeroes in front: the kernel takes no such name.
    let zeroes = text[at..end - 1].iter().take_while(|digit| **digit == b'0');
    let first = at + zeroes.count();
    text.copy_within(first.., at);
}

pub fn write_decimal(place: &mut [u8], mut number: u64) {
    for byte in place.iter_mut().rev() {
        *byte = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
