//! A signal that waits reaches the program: at the edge of a call, or where the
//! thread stands.

use core::sync::atomic::Ordering::{Acquire, Release};

use protocol::record::at;

use crate::arch::{self, Regs};
use crate::place::{self, FLAGS, RAX, RIP, RSP};
use crate::state::{Action, AltStack, Thread, space};
use crate::{adopt, mem, mode, patcher, replay, sys};

use super::fault::{die_of, force, force_segv_here, segv_info};
use super::frame::{build, general_of, mask_to_save, place_xstate};
use super::handler::{promote_held, write_signal};
use super::{
    SA_NODEFER, SA_RESETHAND, SIG_DFL, SIG_IGN, SIGSEGV, UContext, UNCATCHABLE, bit, kernel_mask,
};

fn new_mask(thread: &Thread, signal: i32, action: &Action) -> u64 {
    let own = if action.flags & SA_NODEFER != 0 {
        0
    } else {
        bit(signal)
    };
    (thread.mask.get() | action.mask | own) & !UNCATCHABLE
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

/// Sends an interrupted thread into the program's handler, or into that of
/// SIGSEGV if there is no room for its frame.
pub(super) fn enter(
    thread: &Thread,
    signal: i32,
    info: &[u64; 16],
    context: &mut UContext,
    place: u64,
) {
    if into_handler(thread, signal, info, context, place == at::FAULT) {
        return;
    }
    force(thread, SIGSEGV, signal == SIGSEGV);
    let info = segv_info();
    if !mode::is_replay() {
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

/// Whether a signal may have to be delivered here: one waits, or the log has
/// to be asked.
#[inline(always)]
pub fn may_come(thread: &Thread) -> bool {
    thread.pending.load(Acquire) != 0 || mode::is_replay()
}

/// Delivers what waits, if anything, at the edge of a call. `call_not_made`:
/// the call is still to come, so the program's place is before it.
#[inline(always)]
pub fn deliver(thread: &Thread, regs: &mut Regs, place: u64) {
    if may_come(thread) || thread.held.get() != 0 {
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
        adopt::return_from_vdso(regs);
        handle(thread, regs, signal, &action, &info);
    }
}

/// The signal that is to reach the program here.
fn arrived(thread: &Thread, place: u64) -> Option<(i32, [u64; 16])> {
    if mode::is_replay() {
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
