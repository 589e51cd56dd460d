//! The one handler that the kernel knows: what arrived, and whether it is ours, a
//! fault, or a signal that has to wait for the program.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::instruction::{Form, Instruction};
use protocol::layout::{IMAGE_BASE, PREEMPT_SIGNAL, SIGSYS};
use protocol::record::{at, kind, tag};

use crate::arch;
use crate::patcher::What;
use crate::place::{self, RAX, RCX, RIP};
use crate::recorder::{self, topic};
use crate::state::{Thread, control, domain, space, thread};
use crate::{
    counter, halt, interruption_search, live, log, mem, mode, pads, patcher, rounds, sharing, sys,
    timers, traps, turn,
};

use super::deliver::enter;
use super::fault::{GENERAL_PROTECTION, SI_KERNEL, fault};
use super::{
    FAULTS, NEVER_BLOCKED, SIG_DFL, SIGBUS, SIGILL, SIGSEGV, SIGTRAP, UContext, bit, kernel_mask,
};

const TRAP_PERF: i32 = 6;

fn in_monitor(rip: u64) -> bool {
    (IMAGE_BASE..space().image_end.get()).contains(&rip)
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
    if signal == SIGSYS && code == crate::confine::SYS_SECCOMP && mode::is_replay() {
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
    if signal == SIGTRAP && code == TRAP_PERF && mode::is_replay() {
        context.gregs[RIP] =
            interruption_search::at_breakpoint(thread, &context.gregs, context.fpstate);
        return;
    }
    if signal == SIGTRAP
        && code > 0
        && !mode::is_replay()
        && let Some(resume) = pads::behind_hit(rip.wrapping_sub(1))
    {
        context.gregs[RIP] = resume;
        return;
    }
    let is_bus = signal == SIGBUS;
    if (signal == SIGSEGV || is_bus)
        && code > 0
        && sharing::on_fault(context.cr2, context.err & 2 != 0, is_bus)
    {
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
pub(super) fn is_init(thread: &Thread) -> bool {
    thread.process().pid.get() == 1
}

/// The signals of `NEVER_BLOCKED` that programs may use, in order.
const HELD: [i32; 6] = [4, 5, 7, 8, 11, SIGSYS];

pub(super) fn held_place(signal: i32) -> Option<usize> {
    HELD.iter().position(|held| *held == signal)
}

/// A signal that waited with us and that the program has unblocked takes the
/// pending place.
pub(super) fn promote_held(thread: &Thread) {
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

/// The thread's timer is needed no more.
pub fn drop_timer(thread: &Thread) {
    if thread.has_timer.replace(0) != 0 {
        let id = u64::from(thread.timer.get());
        sys::call(sys::nr::TIMER_DELETE, id, 0, 0, 0, 0, 0);
    }
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
    let stub = {
        let _lock = live::lock(thread);
        patcher::on_trap(thread, after - 2, What::Call)
    };
    match stub {
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
        if !mode::is_replay() {
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
        && let Some(stub) = {
            let _lock = live::lock(thread);
            patcher::on_trap(thread, context.gregs[RIP], What::Replaced(form))
        }
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
    if live::is_paused() {
        if in_program {
            thread.busy.store(1, Release);
            thread.interrupted_at.store(rip, Release);
            live::wait(thread);
            thread.interrupted_at.store(0, Release);
            context.gregs[RIP] = patcher::to_stub(rip);
            thread.busy.store(0, Release);
            if !halt::must_stop(thread) && thread.pending.load(Acquire) == 0 {
                return;
            }
        } else if thread.busy.load(Acquire) == 0 {
            arm(thread, 20_000);
            return;
        } else {
            thread.asked.store(1, Release);
            live::will_wait(thread);
        }
    }
    let rip = context.gregs[RIP];
    let in_program = in_program && !patcher::in_stub(rip);
    if !in_program
        && let Some(elsewhere) = arch::abort_blocking(rip)
        && halt::is_to_leave(thread)
    {
        context.gregs[RIP] = elsewhere;
    }
    if !control().halt.is_on() {
        timers::go_on_late(thread);
    }
    if halt::must_stop(thread) {
        if in_program {
            thread.busy.store(1, Release);
            halt::in_program(thread, &mut context.gregs, context.fpstate);
            thread.busy.store(0, Release);
            if patcher::in_stub(context.gregs[RIP]) || thread.pending.load(Acquire) == 0 {
                return;
            }
        } else {
            thread.asked.store(1, Release);
            if thread.busy.load(Acquire) == 0 {
                arm(thread, 20_000);
            } else if halt::is_pulled(thread)
                && let Some(elsewhere) = arch::abort_blocking(rip)
            {
                context.gregs[RIP] = elsewhere;
            }
            return;
        }
    }
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
    if is_call(rip) {
        // It comes as the call does, which is next: replay knows no place right before one.
        thread.wants_preempt.store(1, Release);
        thread.busy.store(0, Release);
        return;
    }
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

/// Whether the program's instruction there makes a call.
fn is_call(rip: u64) -> bool {
    let mut code = mem::read::<u16>(rip).unwrap_or(0).to_le_bytes();
    traps::hide(rip, &mut code);
    code == [0x0f, 0x05]
}

pub(super) fn write_signal(
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
