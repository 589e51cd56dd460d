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

mod calls;
mod deliver;
mod fault;
mod frame;
mod handler;

use core::sync::atomic::Ordering::AcqRel;

use protocol::layout::{PREEMPT_SIGNAL, SIGSYS};

use crate::arch;
use crate::state::{Action, AltStack, Thread, thread, thread_in_slot};
use crate::{mem, sys};

pub use calls::{
    restarts, sigaction, sigaltstack, sigpending, sigprocmask, suspend, suspend_masks,
};
pub use deliver::{deliver, may_come};
pub use fault::{end_by, force_here};
pub use frame::{general_of, put_general, sigreturn};
pub use handler::{drop_timer, on_signal, soon};

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

const SIGBUS: i32 = 7;
const SIGILL: i32 = 4;
const SIGTRAP: i32 = 5;
const SIGSEGV: i32 = 11;

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

/// Everything, the signal by which threads are told something too.
pub fn with_ours() -> u64 {
    kernel_mask(u64::MAX) | bit(PREEMPT_SIGNAL)
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

/// Signal handling of a process that has some already: what the program has asked
/// for is kept, and the kernel is told what it would have been told.
pub fn adopt() {
    let process = thread_in_slot(0).process();
    for signal in 1..=64 {
        let place = &process.actions[signal as usize];
        place.set(action_of(signal));
        tell_kernel(signal, &place.get());
    }
    install(SIGSYS, 0, 0);
    install(PREEMPT_SIGNAL, SA_RESTART, kernel_mask(u64::MAX));
}

/// What the kernel does on a signal.
fn action_of(signal: i32) -> Action {
    let mut action = Action {
        handler: SIG_DFL,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    let to = (&raw mut action) as u64;
    sys::call(sys::nr::RT_SIGACTION, signal as u64, 0, to, 8, 0, 0);
    action
}

/// The monitor leaves: the kernel does what the program has asked for.
pub fn restore_actions(thread: &Thread) {
    for signal in 1..=64 {
        if bit(signal) & UNCATCHABLE == 0 {
            set_action(signal, &thread.process().actions[signal as usize].get());
        }
    }
}

/// The monitor leaves: what waits to reach this thread is sent to it again, by the
/// kernel this time.
pub fn send_again(thread: &Thread) {
    let mut info = [0u64; 16];
    let pending = thread.pending.swap(0, AcqRel);
    if pending != 0 {
        for (word, stored) in info.iter_mut().zip(&thread.info) {
            *word = stored.get();
        }
        queue(thread, pending, &info);
    }
    let held = thread.held.replace(0);
    for signal in (1..=64).filter(|signal| held & bit(*signal) != 0) {
        let Some(place) = handler::held_place(signal) else {
            continue;
        };
        info = [0; 16];
        for (word, stored) in info.iter_mut().zip(&thread.held_info[place]) {
            *word = stored.get();
        }
        queue(thread, signal as u32, &info);
    }
}

fn queue(thread: &Thread, signal: u32, info: &[u64; 16]) {
    let (pid, tid) = (thread.process().pid.get(), thread.tid.get());
    let (number, info) = (sys::nr::RT_TGSIGQUEUEINFO, info.as_ptr() as u64);
    sys::call(number, pid.into(), tid.into(), signal.into(), info, 0, 0);
}

/// A signal stack as the kernel tells it, in the form that is kept.
pub fn as_kept(stack: &AltStack) -> AltStack {
    match stack.flags & SS_DISABLE {
        0 => AltStack {
            flags: stack.flags & SS_AUTODISARM,
            ..*stack
        },
        _ => AltStack {
            sp: 0,
            flags: 0,
            size: 0,
        },
    }
}

/// The monitor leaves: the signal stack is the one that the program has set.
pub fn set_program_stack(thread: &Thread) {
    let mut stack = thread.alt.get();
    if stack.size == 0 {
        stack.flags = SS_DISABLE;
    }
    let from = (&raw const stack) as u64;
    sys::call(sys::nr::SIGALTSTACK, from, 0, 0, 0, 0, 0);
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
