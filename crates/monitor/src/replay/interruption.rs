//! Signals and preemption in replay: where the log says that a thread was
//! interrupted, and what it found there.

use core::sync::atomic::Ordering::Relaxed;

use protocol::record::{Record, begin, kind, tag};
use protocol::replay::{NO_CALL, difference};

use crate::arch::Regs;
use crate::place::InterruptionSite;
use crate::state::Thread;
use crate::{interruption_search, mem, motion, player};

use super::compare::{diverge, diverge_call};
use super::stream::{consume, end_of_log, find_child, next_unseen_for, peek, stream_of};

/// Whether a signal reached the thread at the end of the clock read that it
/// just did the short way. Then it takes the long way with the same result,
/// which leads into handlers.
pub fn signal_follows(thread: &Thread, result: i64) -> bool {
    let process = thread.process();
    let follows = peek(process).is_some_and(|record| {
        record.kind == kind::SIGNAL && record.values[1] == protocol::record::at::CALL_EXIT
    }) && process.log.thread.get() == thread.number.get();
    if follows {
        thread.clock_taken.set(result as u64 + 1);
    }
    follows
}

/// The signal that reached the thread here, if one did: its number and what
/// came with it.
pub fn signal_here(thread: &Thread, place: u64) -> Option<(i32, [u64; 16])> {
    let process = thread.process();
    let record = peek(process)?;
    if record.kind != kind::SIGNAL
        || process.log.thread.get() != thread.number.get()
        || record.values[1] != place
    {
        return None;
    }
    player::stop_if_due(thread);
    if !(1..=64).contains(&record.values[0]) {
        // There is no such signal.
        diverge_call(thread, &record, NO_CALL);
    }
    let mut info = [0u64; 16];
    if let Some(blob) = record.blob(tag::SIGINFO) {
        let len = blob.bytes.len().min(128) as u64;
        mem::copy(info.as_mut_ptr() as u64, blob.bytes.as_ptr() as u64, len);
    }
    let signal = record.values[0] as i32;
    let stream = stream_of(process);
    stream.signal.store(signal as u32, Relaxed);
    stream
        .signal_event
        .store(process.log.next_event.get(), Relaxed);
    consume(process);
    Some((signal, info))
}

pub(super) fn is_interruption(record: &Record<'_>) -> bool {
    record.kind == kind::PREEMPT
        || record.kind == kind::SIGNAL && record.values[1] == protocol::record::at::PREEMPTED
}

/// On the way to where it was interrupted, the thread came to a place that is
/// like it as far as that. None: it is not on such a way any more.
pub fn came_near(thread: &Thread, depth: Option<u32>) {
    let deepest = depth.map_or(0, |depth| u64::from(depth) + 1);
    let stream = stream_of(thread.process());
    stream.likest.store(deepest, Relaxed);
}

/// Where the thread was interrupted, if that is what the log has next for it.
/// Does not return if the log has ended: what the program did after its last
/// event until it was killed is not known, and may have no end.
pub fn interruption(thread: &Thread) -> Option<InterruptionSite> {
    let process = thread.process();
    let Some(record) = peek(process) else {
        let event = process.log.next_event.get();
        if find_child(process.number.get(), event, begin::FORK).is_some() {
            // It was killed after a fork, before that was in its log.
            return None;
        }
        end_of_log(thread)
    };
    if !is_interruption(&record) || process.log.thread.get() != thread.number.get() {
        return None;
    }
    let place = InterruptionSite::of_record(&record);
    if place.is_none() && record.blob(tag::REGISTERS).is_some() {
        // Not one that this monitor can find.
        diverge(thread, difference::POSITION, 0, 0, 0);
    }
    place
}

/// Where the thread faults, if that is what the log has next for it.
pub fn fault_to_come(thread: &Thread) -> Option<InterruptionSite> {
    let process = thread.process();
    let record = peek(process)?;
    let faults = record.kind == kind::SIGNAL && record.values[1] == protocol::record::at::FAULT;
    if !faults || process.log.thread.get() != thread.number.get() {
        return None;
    }
    InterruptionSite::of_record(&record)
}

/// The thread leaves for the program.
pub fn set_out(thread: &Thread, regs: &mut Regs) {
    if !motion::begin(thread, regs) {
        regs.rip = interruption_search::begin(thread, regs.rip);
    }
}

/// The thread has arrived where it was interrupted: what came then comes now.
pub fn interrupted(thread: &Thread, regs: &mut Regs) {
    let process = thread.process();
    if peek(process).is_some_and(|record| record.kind == kind::PREEMPT) {
        player::stop_if_due(thread);
        consume(process);
        let is_next = peek(process).is_some() && process.log.thread.get() == thread.number.get();
        if is_next && process.log.has_turn.get() == 0 {
            // Nobody else wanted the turn after all.
            return;
        }
        next_unseen_for(thread);
    } else {
        crate::signal::deliver(thread, regs, protocol::record::at::PREEMPTED);
    }
}

/// A call is about to be made: others run first, if they did then.
pub fn offer(thread: &Thread) {
    let process = thread.process();
    let passes = || {
        peek(process).is_some_and(|record| {
            record.kind == kind::PREEMPT && record.blob(tag::REGISTERS).is_none()
        })
    };
    // Twice, where something was done without the turn for the call.
    while passes() && process.log.thread.get() == thread.number.get() {
        player::stop_if_due(thread);
        consume(process);
        next_unseen_for(thread);
    }
}
