//! Signals. The kernel knows one handler, ours; what the program asked for is
//! kept here and done here.
//!
//! A signal that arrives is put into its thread's one *pending* place, and the
//! kernel is told to hold back all others until it has reached the program:
//! order and queueing stay the kernel's. It reaches the program at the edge of
//! a call, where replay can find the same place without effort, or, if the
//! thread makes no call for a while, where it stands: then registers and a
//! digest of memory are recorded with it. Frames on the program's stack are
//! built by us, in the kernel's own form, so that replay builds the same.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::instruction::{Form, Instruction};
use protocol::layout::{IMAGE_BASE, PREEMPT_SIGNAL, SIGSYS};
use protocol::record::{at, kind, tag};
use protocol::replay::difference;

use crate::arch::{self, Regs};
use crate::patcher::What;
use crate::place::{self, FLAGS, Place, RAX, RCX, RIP, RSP};
use crate::recorder::{self, topic};
use crate::state::{Action, AltStack, Thread, domain, space, thread};
use crate::{
    call, counter, log, mem, patcher, process, replay, rounds, sharing, stack, stretch, sys, turn,
};

pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;
const SA_SIGINFO: u64 = 4;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_NOCLDSTOP: u64 = 1;
const SA_NOCLDWAIT: u64 = 2;
const SS_ONSTACK: u64 = 1;
const SS_DISABLE: u64 = 2;
const SS_AUTODISARM: u64 = 1 << 31;

const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGSEGV: i32 = 11;
const SI_KERNEL: u64 = 0x80;
const GENERAL_PROTECTION: u64 = 13;
const TRAP_PERF: i32 = 6;

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals that mean a fault when the kernel itself sends them.
const FAULTS: u64 = bit(4) | bit(5) | bit(7) | bit(8) | bit(11);
/// Never blocked in the kernel: our own, and faults (ours and the program's).
const NEVER_BLOCKED: u64 = bit(SIGSYS) | bit(PREEMPT_SIGNAL) | FAULTS;
/// Signals whose default is not to end the process.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);
const UNCATCHABLE: u64 = bit(9) | bit(19);

pub fn kernel_mask(mask: u64) -> u64 {
    mask & !NEVER_BLOCKED
}

#[repr(C)]
struct UContext {
    flags: u64,
    link: u64,
    stack: AltStack,
    /// r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip flags
    gregs: [u64; 18],
    segments: [u16; 4],
    err: u64,
    trapno: u64,
    oldmask: u64,
    cr2: u64,
    fpstate: u64,
    reserved: [u64; 8],
    sigmask: u64,
}
const _: () = assert!(core::mem::size_of::<UContext>() == 304);
// SAFETY: made of integers.
unsafe impl mem::Plain for UContext {}
impl Clone for UContext {
    fn clone(&self) -> Self {
        *self
    }
}
impl Copy for UContext {}

fn in_monitor(rip: u64) -> bool {
    (IMAGE_BASE..space().image_end.get()).contains(&rip)
}

/// Sets up signal handling in a fresh image.
pub fn init(ignored: u64) {
    let process = thread().process();
    for signal in 1..=64 {
        let action = if ignored & bit(signal) != 0 {
            SIG_IGN
        } else {
            SIG_DFL
        };
        process.actions[signal as usize].set(Action {
            handler: action,
            flags: 0,
            restorer: 0,
            mask: 0,
        });
        tell_kernel(signal, &process.actions[signal as usize].get());
    }
    install(SIGSYS, 0, 0);
    // The signal that asks for the turn must not break calls off.
    install(PREEMPT_SIGNAL, SA_RESTART, kernel_mask(u64::MAX));
}

fn install(signal: i32, flags: u64, mask: u64) {
    let action = Action {
        handler: arch::signal_entry as *const () as u64,
        // A fault in a guarded copy must reach us inside the handler too.
        flags: flags
            | SA_SIGINFO
            | SA_ONSTACK
            | SA_RESTORER
            | if bit(signal) & FAULTS != 0 {
                SA_NODEFER
            } else {
                0
            },
        restorer: arch::signal_restorer as *const () as u64,
        mask,
    };
    set_action(signal, &action);
}

fn set_action(signal: i32, action: &Action) {
    sys::call(
        sys::nr::RT_SIGACTION,
        signal as u64,
        (&raw const *action) as u64,
        0,
        8,
        0,
        0,
    );
}

/// Makes the kernel do its part of what the program asked for.
fn tell_kernel(signal: i32, action: &Action) {
    if bit(signal) & (bit(SIGSYS) | bit(PREEMPT_SIGNAL) | UNCATCHABLE) != 0 {
        return;
    }
    let keep = action.flags & (SA_NOCLDSTOP | SA_NOCLDWAIT);
    let is_fault = bit(signal) & FAULTS != 0;
    match action.handler {
        SIG_IGN if !is_fault => {
            set_action(
                signal,
                &Action {
                    handler: SIG_IGN,
                    flags: keep,
                    restorer: 0,
                    mask: 0,
                },
            );
        }
        SIG_DFL if bit(signal) & HARMLESS != 0 => {
            set_action(
                signal,
                &Action {
                    handler: SIG_DFL,
                    flags: keep,
                    restorer: 0,
                    mask: 0,
                },
            );
        }
        // Also where the default is death: so that the log says what ended
        // the process, and where. In the handler nothing else may come: the
        // trap excepted, which cannot be blocked.
        _ => install(signal, keep, kernel_mask(u64::MAX)),
    }
}

/// Sets this thread's signal stack, its own in the monitor.
pub fn set_kernel_stack(thread: &Thread) {
    let stack = AltStack {
        sp: thread.alt_stack_base(),
        flags: 0,
        size: crate::state::ALT_STACK_SIZE,
    };
    sys::call(
        sys::nr::SIGALTSTACK,
        (&raw const stack) as u64,
        0,
        0,
        0,
        0,
        0,
    );
}

/// The one handler.
pub extern "C" fn on_signal(signal: i32, info: *const [u64; 16], context: *mut UContextOpaque) {
    // SAFETY: the kernel passes both, on this thread's signal stack, for as
    // long as the handler runs.
    let (info, context) = unsafe { (&*info, &mut *context.cast::<UContext>()) };
    let thread = thread();
    let rip = context.gregs[RIP];
    let code = (info[1] & 0xffff_ffff) as u32 as i32;

    if signal == SIGSYS && code == 2 {
        trap(thread, context);
        return;
    }
    if signal == SIGSYS && code == crate::confine::SYS_SECCOMP && replay::is_on() {
        // Old programs call the kernel at fixed addresses, where nobody sees it.
        const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
        if info[2] & !0xfff == VSYSCALL {
            let text = b"a call through the vsyscall page is not in the recording: call at";
            sys::refuse(text, info[2]);
        }
        sys::die_number(
            b"replay made a call that it must not make:",
            info[3] << 32 >> 32,
        );
    }
    if signal == PREEMPT_SIGNAL {
        preempt(thread, context);
        return;
    }
    if signal == SIGTRAP && code == TRAP_PERF && replay::is_on() {
        context.gregs[RIP] = stretch::at_breakpoint(thread, &context.gregs, context.fpstate);
        return;
    }
    if signal == SIGSEGV && code > 0 && sharing::on_fault(context.cr2, context.err & 2 != 0) {
        return;
    }
    if bit(signal) & FAULTS != 0 && code > 0 {
        if let Some(fixed) = arch::copy_fault(rip) {
            context.gregs[RIP] = fixed;
            return;
        }
        if in_monitor(rip) {
            sys::die_number(b"fault at", rip);
        }
        if signal == SIGILL
            && let Some(form) = counter::replaced_at(rip)
        {
            answer(thread, form, info, context);
            return;
        }
        fault(thread, signal, info, context);
        return;
    }
    if is_init(thread) && thread.process().actions[signal as usize].get().handler == SIG_DFL {
        // The first process of a pid namespace is not killed by what is sent to
        // it: the kernel would have ignored it, but for our handler.
        return;
    }
    if thread.pending.load(Acquire) != 0 {
        // Only a fault's signal sent by somebody can come here; the kernel
        // would merge it with one that is already waiting.
        return;
    }
    if thread.mask.get() & bit(signal) & NEVER_BLOCKED != 0 {
        // Blocked by the program, but not in the kernel: it waits with us.
        if let Some(place) = held_place(signal)
            && thread.held.get() & bit(signal) == 0
        {
            thread.held.set(thread.held.get() | bit(signal));
            for (to, word) in thread.held_info[place].iter().zip(info) {
                to.set(*word);
            }
        }
        return;
    }
    for (place, word) in thread.info.iter().zip(info) {
        place.set(*word);
    }
    thread.pending.store(signal as u32, Release);
    context.sigmask = kernel_mask(u64::MAX);
    if thread.busy.load(Acquire) != 0 {
        if let Some(elsewhere) = arch::abort_blocking(rip) {
            context.gregs[RIP] = elsewhere;
        }
    } else {
        arm(thread, 10_000_000);
    }
}

/// Whether this is the first process of a pid namespace.
fn is_init(thread: &Thread) -> bool {
    thread.process().pid.get() == 1
}

/// The signals of `NEVER_BLOCKED` that programs may use, in order.
const HELD: [i32; 6] = [4, 5, 7, 8, 11, SIGSYS];

fn held_place(signal: i32) -> Option<usize> {
    HELD.iter().position(|held| *held == signal)
}

/// A signal that waited with us and that the program has unblocked takes the
/// pending place.
fn promote_held(thread: &Thread) {
    let ready = thread.held.get() & !thread.mask.get();
    if ready == 0 || thread.pending.load(Acquire) != 0 {
        return;
    }
    sys::signal_mask(kernel_mask(u64::MAX));
    let signal = ready.trailing_zeros() as i32 + 1;
    let Some(place) = held_place(signal).filter(|_| thread.pending.load(Acquire) == 0) else {
        return;
    };
    thread.held.set(thread.held.get() & !bit(signal));
    for (i, to) in thread.info.iter().enumerate() {
        to.set(
            thread.held_info[place]
                .get(i)
                .map_or(0, core::cell::Cell::get),
        );
    }
    thread.pending.store(signal as u32, Release);
}

/// `rt_sigpending`: the kernel's answer and ours.
pub fn sigpending(thread: &Thread, args: &[u64; 6]) -> i64 {
    // SAFETY: the program's own call.
    let result = unsafe { arch::syscall(sys::nr::RT_SIGPENDING, args) };
    if result == 0
        && thread.held.get() != 0
        && let Some(set) = mem::read::<u64>(args[0])
    {
        mem::write(args[0], &(set | thread.held.get()));
    }
    result
}

/// What `on_signal`'s third argument looks like from outside this file.
#[repr(C)]
pub struct UContextOpaque {
    private: [u8; 0],
}

/// Asks for the preemption signal after a while.
fn arm(thread: &Thread, delay: u64) {
    if thread.has_timer.get() == 0 {
        let mut event = [0u32; 16];
        event[2] = PREEMPT_SIGNAL as u32;
        event[3] = 4; // SIGEV_THREAD_ID
        event[4] = thread.tid.get();
        let mut id = 0u32;
        let made = sys::call(
            sys::nr::TIMER_CREATE,
            1,
            event.as_ptr() as u64,
            (&raw mut id) as u64,
            0,
            0,
            0,
        );
        if made != 0 {
            return;
        }
        thread.timer.set(id);
        thread.has_timer.set(1);
    }
    let when = [0u64, 0, 0, delay];
    let id = u64::from(thread.timer.get());
    sys::call(sys::nr::TIMER_SETTIME, id, 0, when.as_ptr() as u64, 0, 0, 0);
}

/// A signal waits and the thread is on its way into the program: not for long.
pub fn soon(thread: &Thread) {
    arm(thread, 1_000_000);
}

/// A call was made at a site that is not patched.
fn trap(thread: &Thread, context: &mut UContext) {
    let after = context.gregs[RIP];
    if thread.busy.load(Acquire) != 0 {
        // The kernel's own vdso falls back to a call: it is ours, make it.
        let g = &context.gregs;
        let args = [g[8], g[9], g[12], g[2], g[0], g[1]];
        // SAFETY: the vdso passes what the monitor passed to it.
        context.gregs[RAX] = unsafe { arch::syscall(g[RAX], &args) } as u64;
        return;
    }
    match patcher::on_trap(thread, after - 2, What::Call) {
        Some(stub) => context.gregs[RIP] = stub,
        None => {
            thread.slow_return.set(after);
            context.gregs[RIP] = arch::mw_entry_slow as *const () as u64;
        }
    }
}

/// The thread is at what was an instruction that the processor answers.
fn answer(thread: &Thread, form: Form, info: &[u64; 16], context: &mut UContext) {
    if form.what == Instruction::Wrgsbase {
        if !replay::is_on() {
            let text = b"the program sets the gs base (wrgsbase), which recording needs: it gets \
                         SIGILL, as from a processor without that";
            recorder::note(thread, topic::GS_BASE, 1, text);
        }
        fault(thread, SIGILL, info, context);
        return;
    }
    if thread.counter_faults.get() != 0 && form.what == Instruction::Counter {
        // As the processor would have it: a general protection fault.
        let mut info = [0; 16];
        info[0] = SIGSEGV as u64;
        info[1] = SI_KERNEL;
        (context.trapno, context.err, context.cr2) = (GENERAL_PROTECTION, 0, 0);
        fault(thread, SIGSEGV, &info, context);
        return;
    }
    // Those without operands: the program's own bytes are gone then.
    if matches!(form.what, Instruction::Counter | Instruction::Cpuid)
        && space().counters_trap.get() == 0
        && let Some(stub) = patcher::on_trap(thread, context.gregs[RIP], What::Replaced(form))
    {
        context.gregs[RIP] = stub;
        return;
    }
    thread.reads_counter.set(1);
    thread.slow_return.set(context.gregs[RIP]);
    thread.saved_rcx.set(context.gregs[RCX]);
    context.gregs[RIP] = arch::mw_entry_interrupted as *const () as u64;
}

/// Asked to give up the turn, or to take a signal that waits.
fn preempt(thread: &Thread, context: &mut UContext) {
    let rip = context.gregs[RIP];
    let in_program = thread.busy.load(Acquire) == 0 && !in_monitor(rip) && !patcher::in_stub(rip);
    let pending = thread.pending.load(Acquire);
    if !in_program {
        thread.wants_preempt.store(1, Release);
        if pending != 0 && thread.busy.load(Acquire) == 0 {
            arm(thread, 200_000);
        }
        return;
    }
    thread.busy.store(1, Release);
    if !rounds::finish(&mut context.gregs) {
        // It faults at once, which is an event; then it is asked again.
        thread.wants_preempt.store(1, Release);
        thread.busy.store(0, Release);
        if pending != 0 {
            arm(thread, 200_000);
        }
        return;
    }
    let rip = context.gregs[RIP];
    if pending != 0 {
        let mut info = [0; 16];
        for (word, place) in info.iter_mut().zip(&thread.info) {
            *word = place.get();
        }
        thread.pending.store(0, Release);
        write_signal(thread, pending as i32, at::PREEMPTED, &info, Some(context));
        enter(thread, pending as i32, &info, context, at::PREEMPTED);
    } else if space().turns.get() != 0 && domain().word.load(Relaxed) == 2 {
        if let Some(entry) = log::other(thread, kind::PREEMPT, &[], 2) {
            place::write(entry, &context.gregs, context.fpstate).commit();
        }
        thread.interrupted_at.store(rip, Release);
        turn::pass(thread);
        thread.interrupted_at.store(0, Release);
        // A site may have been patched meanwhile where we stand.
        context.gregs[RIP] = patcher::to_stub(rip);
    }
    thread.busy.store(0, Release);
}

fn write_signal(
    thread: &Thread,
    signal: i32,
    at: u64,
    info: &[u64; 16],
    context: Option<&UContext>,
) {
    let blobs = if context.is_some() { 3 } else { 1 };
    let Some(entry) = log::other(thread, kind::SIGNAL, &[signal as u64, at], blobs) else {
        return;
    };
    // The tail of a siginfo is not used by any signal.
    let entry = entry.blob(tag::SIGINFO, info.as_ptr() as u64, 48);
    match context {
        Some(context) => place::write(entry, &context.gregs, context.fpstate).commit(),
        None => entry.commit(),
    }
}

/// The program's own instruction faulted.
fn fault(thread: &Thread, signal: i32, info: &[u64; 16], context: &mut UContext) {
    let was_busy = thread.busy.swap(1, Acquire);
    context.gregs[RIP] = patcher::to_program(context.gregs[RIP]);
    if replay::is_on() {
        fault_again(thread, signal, context);
        thread.busy.store(was_busy, Release);
        return;
    }
    write_signal(thread, signal, at::FAULT, info, Some(context));
    if is_deadly(thread, signal) {
        // These two would not happen again by themselves.
        if signal == SIGTRAP || counter::replaced_at(context.gregs[RIP]).is_some() {
            die_of(thread, signal);
        }
        // Let it happen again, for real: core dump and status are then as
        // without us.
        set_action(
            signal,
            &Action {
                handler: SIG_DFL,
                flags: 0,
                restorer: 0,
                mask: 0,
            },
        );
        leave_for_good(thread);
        context.gregs[RIP] = patcher::to_stub(context.gregs[RIP]);
        return;
    }
    enter(thread, signal, info, context, at::FAULT);
    thread.busy.store(was_busy, Release);
}

/// Whether there is nobody to take a fault: it ends the process.
fn is_deadly(thread: &Thread, signal: i32) -> bool {
    let handler = thread.process().actions[signal as usize].get().handler;
    thread.mask.get() & bit(signal) != 0 || handler == SIG_DFL || handler == SIG_IGN
}

/// [`fault`] in replay, where somebody may look at the thread here, and stop it
/// in its handler.
fn fault_again(thread: &Thread, signal: i32, context: &mut UContext) {
    // Where the low halves of the vector registers are in an XSAVE image.
    const XMM: u64 = 160;
    let mut at = Regs {
        xmm: mem::read(context.fpstate + XMM).unwrap_or([[0; 2]; 16]),
        slow: call::INTERRUPTED,
        rip: context.gregs[RIP],
        flags: context.gregs[FLAGS],
        ..Regs::ZERO
    };
    put_general(&mut at, &context.gregs);
    let is_it = |place: Place| place.registers[..FLAGS] == context.gregs[..FLAGS];
    let is_here = replay::fault_to_come(thread).is_some_and(is_it);
    if !is_here && stack::grow_further() {
        // Once more, where the instruction is now.
        context.gregs[RIP] = patcher::moved_to(context.gregs[RIP]);
        return;
    }
    replay::arrived(thread, &at);
    let here = is_here.then(|| replay::signal_here(thread, at::FAULT));
    let Some((_, info)) = here.flatten() else {
        replay::diverge(
            thread,
            difference::SIGNAL,
            signal as u32,
            context.gregs[RIP],
            context.cr2,
        );
    };
    if is_deadly(thread, signal) {
        process::release_all_robust(thread);
        process::clear_word_for_others(thread);
        replay::end_of_log(thread);
    }
    enter(thread, signal, &info, context, at::FAULT);
    put_general(&mut at, &context.gregs);
    at.xmm = [[0; 2]; 16];
    at.rip = context.gregs[RIP];
    at.flags = context.gregs[FLAGS];
    replay::set_out(thread, &mut at);
    context.gregs = general_of(&at, at.rip);
}

/// Before a process is killed by its own doing: what it shares must not stay
/// locked.
fn leave_for_good(thread: &Thread) {
    let process = thread.process();
    process::release_all_robust(thread);
    process::clear_word_for_others(thread);
    process.frozen.store(thread.tid.get(), Release);
    turn::give(thread);
}

/// Ends the process by the default action of a signal.
fn die_of(thread: &Thread, signal: i32) -> ! {
    if replay::is_on() {
        process::release_all_robust(thread);
        process::clear_word_for_others(thread);
        replay::end_of_log(thread);
    }
    leave_for_good(thread);
    loop {
        set_action(
            signal,
            &Action {
                handler: SIG_DFL,
                flags: 0,
                restorer: 0,
                mask: 0,
            },
        );
        let pid = u64::from(thread.process().pid.get());
        let tid = u64::from(thread.tid.get());
        sys::call(sys::nr::TGKILL, pid, tid, signal as u64, 0, 0, 0);
        sys::signal_mask(!bit(signal));
        if is_init(thread) {
            // No signal of its own ends it.
            let status = 128 + signal as u64;
            sys::call(sys::nr::EXIT_GROUP, status, 0, 0, 0, 0, 0);
        }
    }
}

struct Frame {
    sp: u64,
    context: u64,
    info: u64,
}

/// Builds the frame a handler expects, in the kernel's own form. `save` writes
/// the floating-point state to the address it is given.
fn build(
    thread: &Thread,
    action: &Action,
    info: &[u64; 16],
    context: &UContext,
    save: impl FnOnce(u64) -> bool,
) -> Option<Frame> {
    let alt = thread.alt.get();
    let rsp = context.gregs[RSP];
    let on_alt = rsp > alt.sp && rsp - alt.sp <= alt.size;
    let mut sp = rsp - 128;
    if action.flags & SA_ONSTACK != 0 && alt.size != 0 && !on_alt {
        sp = alt.sp + alt.size;
    }
    let xsize = u64::from(space().xstate_size.get());
    let fp = (sp - xsize - 4) & !63;
    let frame = ((fp - 440) & !15) - 8;
    if mem::is_ours(frame, sp - frame) || !save(fp) {
        return None;
    }
    let mut uc = *context;
    uc.flags = 7;
    uc.link = 0;
    uc.stack = AltStack {
        sp: alt.sp,
        flags: if alt.size == 0 {
            SS_DISABLE
        } else {
            alt.flags & SS_AUTODISARM
        },
        size: alt.size,
    };
    uc.segments = [0x33, 0, 0, 0x2b];
    uc.fpstate = fp;
    uc.reserved = [0; 8];
    if !mem::write(frame, &action.restorer)
        || !mem::write(frame + 8, &uc)
        || !mem::write(frame + 8 + 304, info)
    {
        return None;
    }
    if alt.flags & SS_AUTODISARM != 0 {
        thread.alt.set(AltStack {
            sp: 0,
            flags: 0,
            size: 0,
        });
    }
    Some(Frame {
        sp: frame,
        context: frame + 8,
        info: frame + 312,
    })
}

/// Puts an XSAVE image into a frame. The processor stores what it likes about
/// registers that nobody uses, and nothing between the parts; here equal
/// registers make equal bytes, in recording and replay.
fn place_xstate(fp: u64, image: u64) -> bool {
    let size = u64::from(space().xstate_size.get());
    // Touch it all first: a stack that has no room is reported, not followed.
    if !mem::fill_zero(fp, size + 4) {
        return false;
    }
    let mut stored = 0u64;
    mem::copy((&raw mut stored) as u64, image + 512, 8);
    let mut in_use = 0u64;
    for (number, part) in space().xstate_parts.iter().enumerate() {
        let (start, len) = part.get();
        // Of the first, the registers: what it says about the last instruction
        // is of no use.
        let (start, len) = match number {
            0 => (32, 128),
            1 => (160, 256),
            _ => (u64::from(start), u64::from(len)),
        };
        if part.get().1 != 0 && stored & 1 << number != 0 && !is_zero(image + start, len) {
            in_use |= 1 << number;
            mem::copy(fp + start, image + start, len);
        }
    }
    // Control, status and tags of the x87.
    const FRESH: u64 = 0x37f;
    let mut words = [FRESH, 0, 0, 0];
    if stored & 1 != 0 {
        mem::copy(words.as_mut_ptr() as u64, image, 5);
        in_use |= u64::from(words[0] != FRESH);
    }
    // MXCSR and which bits of it there are.
    mem::copy((&raw mut words[3]) as u64, image + 24, 8);
    mem::write(fp, &words) && mem::write(fp + 512, &in_use) && mark_xstate(fp)
}

/// Whether memory of the monitor's own is all zero.
fn is_zero(from: u64, len: u64) -> bool {
    let mut word = 0u64;
    (0..len / 8).all(|i| mem::copy((&raw mut word) as u64, from + 8 * i, 8) && word == 0)
}

/// The bytes after an XSAVE image that tell its extent.
fn mark_xstate(fp: u64) -> bool {
    let size = space().xstate_size.get();
    let mask = space().xstate_mask.get();
    let marks = [
        0x4650_5853 | u64::from(size + 4) << 32,
        mask,
        u64::from(size),
        0,
        0,
        0,
    ];
    mem::write(fp + 464, &marks) && mem::write(fp + u64::from(size), &0x4650_5845u32)
}

fn new_mask(thread: &Thread, signal: i32, action: &Action) -> u64 {
    let own = if action.flags & SA_NODEFER != 0 {
        0
    } else {
        bit(signal)
    };
    (thread.mask.get() | action.mask | own) & !UNCATCHABLE
}

/// The mask that comes back when the handler returns.
fn mask_to_save(thread: &Thread) -> u64 {
    if thread.has_saved_mask.get() != 0 {
        thread.saved_mask.get()
    } else {
        thread.mask.get()
    }
}

fn after_delivery(thread: &Thread, signal: i32, action: &Action) {
    thread.has_saved_mask.set(0);
    thread.mask.set(new_mask(thread, signal, action));
    if action.flags & SA_RESETHAND != 0 {
        let mut reset = *action;
        reset.handler = SIG_DFL;
        thread.process().actions[signal as usize].set(reset);
    }
}

/// A signal comes that nothing can hold off: to its handler, if it has one that
/// can take it now, else it ends the process; `is_fatal`: in any case.
fn force(thread: &Thread, signal: i32, is_fatal: bool) {
    let place = &thread.process().actions[signal as usize];
    let action = place.get();
    let is_blocked = thread.mask.get() & bit(signal) != 0;
    if is_fatal || is_blocked || action.handler == SIG_IGN {
        place.set(Action {
            handler: SIG_DFL,
            ..action
        });
        thread.mask.set(thread.mask.get() & !bit(signal));
    }
}

/// [`force`] at the edge of a call, where the signal is the next one then. (One
/// of those that may be held.)
pub fn force_here(thread: &Thread, signal: i32, is_fatal: bool, info: &[u64; 16]) {
    force(thread, signal, is_fatal);
    if let Some(place) = held_place(signal).filter(|_| !replay::is_on()) {
        sys::signal_mask(kernel_mask(u64::MAX));
        thread.held.set(thread.held.get() | bit(signal));
        for (to, word) in thread.held_info[place].iter().zip(info) {
            to.set(*word);
        }
    }
}

/// A signal had no room for its frame, or a frame was none: what comes with the
/// SIGSEGV that comes in its place.
fn segv_info() -> [u64; 16] {
    let mut info = [0; 16];
    info[0] = SIGSEGV as u64;
    info[1] = SI_KERNEL;
    info
}

fn force_segv_here(thread: &Thread, signal: i32) {
    force_here(thread, SIGSEGV, signal == SIGSEGV, &segv_info());
}

/// Ends the process at a call, as by a signal, which the log then has.
pub fn end_by(thread: &Thread, signal: i32) -> ! {
    let mut info = [0; 16];
    info[0] = signal as u64;
    info[1] = SI_KERNEL;
    if replay::is_on() {
        replay::signal_here(thread, at::CALL_EXIT);
    } else {
        write_signal(thread, signal, at::CALL_EXIT, &info, None);
    }
    die_of(thread, signal)
}

/// Sends an interrupted thread into the program's handler, or into that of
/// SIGSEGV if there is no room for its frame.
fn enter(thread: &Thread, signal: i32, info: &[u64; 16], context: &mut UContext, place: u64) {
    if into_handler(thread, signal, info, context, place == at::FAULT) {
        return;
    }
    force(thread, SIGSEGV, signal == SIGSEGV);
    let info = segv_info();
    if !replay::is_on() {
        write_signal(thread, SIGSEGV, place, &info, Some(context));
    } else if replay::signal_here(thread, place).is_none() {
        die_of(thread, SIGSEGV);
    }
    if !into_handler(thread, SIGSEGV, &info, context, false) {
        die_of(thread, SIGSEGV);
    }
}

/// Changes the context that the kernel will return to. False: there is no room
/// for the frame.
fn into_handler(
    thread: &Thread,
    signal: i32,
    info: &[u64; 16],
    context: &mut UContext,
    is_fault: bool,
) -> bool {
    let action = thread.process().actions[signal as usize].get();
    if action.handler == SIG_DFL {
        die_of(thread, signal);
    }
    if action.handler == SIG_IGN {
        context.sigmask = kernel_mask(thread.mask.get());
        return true;
    }
    let mut shown = *context;
    shown.sigmask = mask_to_save(thread);
    shown.gregs[FLAGS] &= !0x1_0000; // RF
    if !is_fault {
        shown.err = 0;
        shown.trapno = 0;
        shown.cr2 = 0;
    }
    shown.oldmask = shown.sigmask;
    let from = context.fpstate;
    let frame = build(thread, &action, info, &shown, |fp| place_xstate(fp, from));
    let Some(frame) = frame else {
        return false;
    };
    after_delivery(thread, signal, &action);
    context.sigmask = kernel_mask(thread.mask.get());
    context.gregs[8] = signal as u64;
    context.gregs[9] = frame.info;
    context.gregs[12] = frame.context;
    context.gregs[RAX] = 0;
    context.gregs[RSP] = frame.sp;
    context.gregs[RIP] = action.handler;
    context.gregs[FLAGS] &= !0x1_0500; // RF, DF, TF
    // The handler begins with the state a fresh thread has.
    let (unused, mxcsr) = (0u64, 0x1f80u32);
    mem::copy(from + 512, (&raw const unused) as u64, 8);
    mem::copy(from + 24, (&raw const mxcsr) as u64, 4);
    true
}

/// Delivers what waits, if anything, at the edge of a call. `call_not_made`:
/// the call is still to come, so the program's place is before it.
#[inline(always)]
pub fn deliver(thread: &Thread, regs: &mut Regs, place: u64) {
    if thread.pending.load(Acquire) != 0 || thread.held.get() != 0 || replay::is_on() {
        deliver_all(thread, regs, place);
    }
}

fn deliver_all(thread: &Thread, regs: &mut Regs, place: u64) {
    loop {
        let Some((signal, info)) = arrived(thread, place) else {
            return;
        };
        let action = thread.process().actions[signal as usize].get();
        if action.handler == SIG_IGN {
            sys::signal_mask(kernel_mask(thread.mask.get()));
            continue;
        }
        write_signal(thread, signal, place, &info, None);
        if action.handler == SIG_DFL {
            die_of(thread, signal);
        }
        handle(thread, regs, signal, &action, &info);
    }
}

/// The signal that is to reach the program here.
fn arrived(thread: &Thread, place: u64) -> Option<(i32, [u64; 16])> {
    if replay::is_on() {
        return replay::signal_here(thread, place);
    }
    if thread.held.get() != 0 {
        promote_held(thread);
    }
    let signal = thread.pending.load(Acquire) as i32;
    if signal == 0 {
        return None;
    }
    let mut info = [0; 16];
    for (word, stored) in info.iter_mut().zip(&thread.info) {
        *word = stored.get();
    }
    thread.pending.store(0, Release);
    Some((signal, info))
}

/// In the order of `UContext`.
fn general_of(regs: &Regs, rip: u64) -> [u64; 18] {
    [
        regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rdi,
        regs.rsi, regs.rbp, regs.rbx, regs.rdx, regs.rax, regs.rcx, regs.rsp, rip, regs.flags,
    ]
}

/// The other way; not where the program goes on, nor its flags.
fn put_general(regs: &mut Regs, g: &[u64; 18]) {
    [regs.r8, regs.r9, regs.r10, regs.r11] = [g[0], g[1], g[2], g[3]];
    [regs.r12, regs.r13, regs.r14, regs.r15] = [g[4], g[5], g[6], g[7]];
    [regs.rdi, regs.rsi, regs.rbp, regs.rbx] = [g[8], g[9], g[10], g[11]];
    [regs.rdx, regs.rax, regs.rcx, regs.rsp] = [g[12], g[13], g[14], g[15]];
}

fn handle(thread: &Thread, regs: &mut Regs, signal: i32, action: &Action, info: &[u64; 16]) {
    let mask = mask_to_save(thread);
    let context = UContext {
        flags: 0,
        link: 0,
        stack: AltStack {
            sp: 0,
            flags: 0,
            size: 0,
        },
        gregs: general_of(regs, patcher::to_program(regs.rip)),
        segments: [0; 4],
        err: 0,
        trapno: 0,
        oldmask: mask,
        cr2: 0,
        fpstate: 0,
        reserved: [0; 8],
        sigmask: mask,
    };
    let image = place::store_vectors(thread, &regs.xmm);
    let frame = build(thread, action, info, &context, |fp| place_xstate(fp, image));
    let Some(frame) = frame else {
        force_segv_here(thread, signal);
        return;
    };
    after_delivery(thread, signal, action);
    regs.rdi = signal as u64;
    regs.rsi = frame.info;
    regs.rdx = frame.context;
    regs.rax = 0;
    regs.rsp = frame.sp;
    regs.rip = action.handler;
    regs.flags &= !0x1_0500;
    // SAFETY: an XSAVE image of the initial state, set up in `process::init`.
    unsafe {
        arch::xrstor(
            (&raw const space().initial_xstate) as u64,
            &raw mut regs.xmm,
            space().xstate_mask.get(),
        );
    }
    sys::signal_mask(kernel_mask(thread.mask.get()));
}

/// `rt_sigreturn`: back to where a handler's frame says.
pub fn sigreturn(thread: &Thread, regs: &mut Regs) {
    log::done(log::call(
        thread,
        sys::nr::RT_SIGRETURN,
        &regs.args(),
        0,
        0,
        0,
    ));
    let Some(context) = mem::read::<UContext>(regs.rsp) else {
        regs.rax = 0;
        force_segv_here(thread, 0);
        return;
    };
    let g = &context.gregs;
    put_general(regs, g);
    regs.rip = patcher::to_stub(g[RIP]);
    regs.flags = (regs.flags & !0x0005_0dd5) | (g[FLAGS] & 0x0005_0dd5) | 0x202;
    thread.mask.set(context.sigmask & !UNCATCHABLE);
    let mask = space().xstate_mask.get();
    if context.fpstate == 0 {
        // SAFETY: as in `handle`.
        unsafe {
            arch::xrstor(
                (&raw const space().initial_xstate) as u64,
                &raw mut regs.xmm,
                mask,
            );
        }
    } else if !restore_xstate(regs, context.fpstate, mask) {
        regs.rax = 0;
        force_segv_here(thread, 0);
    }
    let alt = context.stack;
    set_alt(thread, &alt, regs.rsp);
    sys::signal_mask(kernel_mask(thread.mask.get()));
}

/// False: it is none.
fn restore_xstate(regs: &mut Regs, fp: u64, mask: u64) -> bool {
    let marks = mem::read::<[u64; 2]>(fp + 464);
    let readable = mem::is_readable(fp, 576);
    let Some(marks) = marks.filter(|_| readable && fp & 63 == 0) else {
        return false;
    };
    let extended = marks[0] as u32 == 0x4650_5853;
    let parts = if extended { marks[1] & mask } else { 3 };
    if extended && !mem::is_readable(fp, u64::from(space().xstate_size.get())) {
        return false;
    }
    if !extended {
        // A frame made by hand: the old form, without the header.
        mem::write(fp + 512, &[3u64, 0, 0, 0, 0, 0, 0, 0]);
    }
    // The program may have written nonsense into the header: the processor
    // would fault on reserved bits.
    let header = mem::read::<[u64; 8]>(fp + 512).unwrap_or([0; 8]);
    if header[0] & !mask != 0 || header[1..].iter().any(|w| *w != 0) {
        return false;
    }
    // SAFETY: aligned, readable, and with a valid header.
    unsafe { arch::xrstor(fp, &raw mut regs.xmm, parts) };
    true
}

pub fn sigaction(thread: &Thread, args: &[u64; 6]) -> i64 {
    let [signal, new, old, size, ..] = *args;
    if size != 8 || !(1..=64).contains(&signal) {
        return -sys::EINVAL;
    }
    let place = &thread.process().actions[signal as usize];
    let before = place.get();
    if new != 0 {
        if bit(signal as i32) & UNCATCHABLE != 0 {
            return -sys::EINVAL;
        }
        let Some(mut action) = mem::read::<Action>(new) else {
            return -sys::EFAULT;
        };
        action.mask &= !UNCATCHABLE;
        place.set(action);
        tell_kernel(signal as i32, &action);
    }
    if old != 0 && !mem::write(old, &before) {
        return -sys::EFAULT;
    }
    0
}

pub fn sigprocmask(thread: &Thread, args: &[u64; 6]) -> i64 {
    let [how, set, old, size, ..] = *args;
    if size != 8 {
        return -sys::EINVAL;
    }
    let before = thread.mask.get();
    if set != 0 {
        let Some(set) = mem::read::<u64>(set) else {
            return -sys::EFAULT;
        };
        let after = match how {
            0 => before | set,
            1 => before & !set,
            2 => set,
            _ => return -sys::EINVAL,
        };
        thread.mask.set(after & !UNCATCHABLE);
        if thread.pending.load(Acquire) == 0 {
            sys::signal_mask(kernel_mask(thread.mask.get()));
        }
    }
    if old != 0 && !mem::write(old, &before) {
        return -sys::EFAULT;
    }
    0
}

fn set_alt(thread: &Thread, stack: &AltStack, rsp: u64) -> i64 {
    let now = thread.alt.get();
    if now.size != 0 && rsp > now.sp && rsp - now.sp <= now.size && now.flags & SS_AUTODISARM == 0 {
        return -sys::EPERM;
    }
    match stack.flags & 0xffff_ffff & !SS_AUTODISARM {
        SS_DISABLE => thread.alt.set(AltStack {
            sp: 0,
            flags: 0,
            size: 0,
        }),
        0 | SS_ONSTACK if stack.size < 2048 => return -sys::ENOMEM,
        0 | SS_ONSTACK => thread.alt.set(AltStack {
            sp: stack.sp,
            flags: stack.flags & SS_AUTODISARM,
            size: stack.size,
        }),
        _ => return -sys::EINVAL,
    }
    0
}

pub fn sigaltstack(thread: &Thread, args: &[u64; 6], rsp: u64) -> i64 {
    let now = thread.alt.get();
    let on_it = now.size != 0 && rsp > now.sp && rsp - now.sp <= now.size;
    let mut result = 0;
    if args[0] != 0 {
        let Some(stack) = mem::read::<AltStack>(args[0]) else {
            return -sys::EFAULT;
        };
        result = set_alt(thread, &stack, rsp);
    }
    if args[1] != 0 && result == 0 {
        let mode = match (now.size, on_it) {
            (0, _) => SS_DISABLE,
            (_, true) => SS_ONSTACK,
            _ => 0,
        };
        let shown = AltStack {
            sp: now.sp,
            flags: mode | now.flags,
            size: now.size,
        };
        if !mem::write(args[1], &shown) {
            return -sys::EFAULT;
        }
    }
    result
}

/// Whether a call that a signal broke off is made again after the handler.
pub fn restarts(thread: &Thread, nr: u64, args: &[u64; 6]) -> bool {
    let signal = thread.pending.load(Acquire) as usize;
    let action = thread.process().actions[signal & 63].get();
    (action.flags & SA_RESTART != 0 || action.handler <= SIG_IGN) && call::is_restartable(nr, args)
}

/// A call waits with a mask of its own: the handler runs with that, and the
/// one before comes back when it returns.
pub fn suspend_masks(thread: &Thread, mask: u64) {
    thread.saved_mask.set(thread.mask.get());
    thread.has_saved_mask.set(1);
    thread.mask.set(mask & !UNCATCHABLE);
}

/// `rt_sigsuspend` and `pause`.
pub fn suspend(thread: &Thread, mask: Option<u64>) -> i64 {
    if let Some(mask) = mask {
        suspend_masks(thread, mask);
    }
    let kernel = kernel_mask(thread.mask.get());
    let args = [(&raw const kernel) as u64, 8, 0, 0, 0, 0];
    while thread.pending.load(Acquire) == 0 {
        // SAFETY: the mask is ours.
        unsafe {
            arch::syscall_interruptible(
                sys::nr::RT_SIGSUSPEND,
                &raw const args,
                thread.pending.as_ptr(),
            )
        };
    }
    -sys::EINTR
}
