//! The program's calls about signals: actions, masks, the signal stack, waiting
//! for one. What was asked for is kept here and done by us.

use core::sync::atomic::Ordering::Acquire;

use crate::arch;
use crate::state::{Action, AltStack, Thread};
use crate::{adopt, call, halt, mem, sys};

use super::{
    SA_RESTART, SIG_IGN, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK, UNCATCHABLE, bit, kernel_mask,
    tell_kernel,
};

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

pub(super) fn set_alt(thread: &Thread, stack: &AltStack, rsp: u64) -> i64 {
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
        halt::enter(thread, sys::nr::RT_SIGSUSPEND, arch::counter(), u64::MAX);
        // SAFETY: the mask is ours.
        let result = unsafe {
            arch::syscall_interruptible(
                sys::nr::RT_SIGSUSPEND,
                &raw const args,
                thread.pending.as_ptr(),
            )
        };
        halt::back(thread, result);
        if adopt::is_leaving(thread) {
            if mask.is_some() {
                thread.mask.set(thread.saved_mask.get());
                thread.has_saved_mask.set(0);
            }
            return -sys::ERESTARTSYS;
        }
    }
    -sys::EINTR
}
