//! Faults of the program's own instructions, and how a process ends by a signal.

use core::sync::atomic::Ordering::{Acquire, Release};

use protocol::record::at;
use protocol::replay::difference;

use crate::arch::Regs;
use crate::place::{FLAGS, InterruptionSite, RIP};
use crate::state::{Action, Thread};
use crate::{call, counter, mem, mode, patcher, process, replay, stack, sys, turn};

use super::deliver::enter;
use super::frame::{general_of, put_general};
use super::handler::{held_place, is_init, write_signal};
use super::{SIG_DFL, SIG_IGN, SIGSEGV, SIGTRAP, UContext, bit, kernel_mask, set_action};

pub(super) const SI_KERNEL: u64 = 0x80;
pub(super) const GENERAL_PROTECTION: u64 = 13;

/// The program's own instruction faulted.
pub(super) fn fault(thread: &Thread, signal: i32, info: &[u64; 16], context: &mut UContext) {
    let was_busy = thread.busy.swap(1, Acquire);
    context.gregs[RIP] = patcher::to_program(context.gregs[RIP]);
    if mode::is_replay() {
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
    let is_it = |place: InterruptionSite| place.registers[..FLAGS] == context.gregs[..FLAGS];
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
pub(super) fn die_of(thread: &Thread, signal: i32) -> ! {
    if mode::is_replay() {
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

/// A signal comes that nothing can hold off: to its handler, if it has one that
/// can take it now, else it ends the process; `is_fatal`: in any case.
pub(super) fn force(thread: &Thread, signal: i32, is_fatal: bool) {
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
    if let Some(place) = held_place(signal).filter(|_| !mode::is_replay()) {
        sys::signal_mask(kernel_mask(u64::MAX));
        thread.held.set(thread.held.get() | bit(signal));
        for (to, word) in thread.held_info[place].iter().zip(info) {
            to.set(*word);
        }
    }
}

/// A signal had no room for its frame, or a frame was none: what comes with the
/// SIGSEGV that comes in its place.
pub(super) fn segv_info() -> [u64; 16] {
    let mut info = [0; 16];
    info[0] = SIGSEGV as u64;
    info[1] = SI_KERNEL;
    info
}

pub(super) fn force_segv_here(thread: &Thread, signal: i32) {
    force_here(thread, SIGSEGV, signal == SIGSEGV, &segv_info());
}

/// Ends the process at a call, as by a signal, which the log then has.
pub fn end_by(thread: &Thread, signal: i32) -> ! {
    let mut info = [0; 16];
    info[0] = signal as u64;
    info[1] = SI_KERNEL;
    if mode::is_replay() {
        replay::signal_here(thread, at::CALL_EXIT);
    } else {
        write_signal(thread, signal, at::CALL_EXIT, &info, None);
    }
    die_of(thread, signal)
}
