//! The log as replay follows it: the next record, whose it is, and switching to
//! that thread. Everything else of replay stands on this: whoever wants a
//! record gets it here, after all who came before it have run.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::layout::ARENA_BASE;
use protocol::record::{Record, kind};
use protocol::replay::{Mark, Stream, difference, outcome, reason};

use crate::arch;
use crate::state::{Process, Thread, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{log, player, sharing};

use super::compare::diverge;
use super::header;
use super::processes::is_watched;

pub fn stream_of(process: &Process) -> &'static Stream {
    &header().table[process.log.stream.get() as usize % header().table.len()]
}

/// The stream of a process that `parent` began at `event`.
pub(super) fn find_child(parent: u32, event: u64, how: u64) -> Option<u32> {
    let count = header().streams.load(Relaxed) as usize;
    header()
        .table
        .iter()
        .take(count)
        .position(|s| {
            s.image.load(Relaxed) == 0
                && s.parent.load(Relaxed) == parent
                && s.parent_event.load(Relaxed) == event
                && u64::from(s.how.load(Relaxed)) == how
        })
        .map(|i| i as u32)
}

/// Attaches a process to its log.
pub(super) fn attach(process: &Process, index: u32) {
    let stream = &header().table[index as usize % header().table.len()];
    let log = &process.log;
    log::reset(process, 0, stream.first_event.load(Relaxed));
    log.stream.set(index);
    log.at.set(0);
    log.mark.set(0);
    log.has_next.set(0);
    log.has_turn.set(0);
    log.lives.set(1);
    process.number.set(stream.process.load(Relaxed));
    process.image.set(stream.image.load(Relaxed));
    stream
        .event
        .store(stream.first_event.load(Relaxed), Relaxed);
    stream.pid.store(sys::getpid(), Release);
}

/// Reads on to the next record that says something to the program. None: the
/// log ends here.
pub(super) fn peek(process: &Process) -> Option<Record<'static>> {
    let log = &process.log;
    if log.has_next.get() != 0 {
        return Some(log.next_record());
    }
    let stream = stream_of(process);
    loop {
        let at = log.at.get();
        let len = stream.len.load(Relaxed);
        if at >= len {
            return None;
        }
        if log.mark.get() < stream.marks.load(Relaxed) {
            let marks = ARENA_BASE + stream.marks_offset.load(Relaxed);
            let place = marks + log.mark.get() * core::mem::size_of::<Mark>() as u64;
            // SAFETY: the replayer wrote that many marks there.
            let mark = unsafe { &*(place as *const Mark) };
            if mark.at.load(Relaxed) == at {
                log.memory().forget(mark.time.load(Relaxed));
                log.mark.set(log.mark.get() + 1);
            }
        }
        let from = ARENA_BASE + stream.offset.load(Relaxed) + at;
        // SAFETY: the replayer wrote `len` bytes of log there.
        let bytes = unsafe { core::slice::from_raw_parts(from as *const u8, (len - at) as usize) };
        let Ok((record, used)) = log.memory().read(bytes) else {
            // Cut short in the middle of a record.
            log.at.set(len);
            return None;
        };
        log.at.set(at + used as u64);
        match record.kind {
            kind::THREAD => log.thread.set(record.values[0] as u32),
            kind::TURN => {
                let [domain, sequence, before, ..] = record.values;
                log.turn.set([domain, sequence, before]);
                log.has_turn.set(1);
                if !is_beside_others(process) {
                    begin_turn(process);
                }
            }
            _ => {
                log.set_next(&record);
                return Some(record);
            }
        }
    }
}

/// Other processes in this memory: vfork children, or the parent of one.
fn others(process: &Process) -> impl Iterator<Item = &'static Process> {
    let own = core::ptr::from_ref(process);
    let all = space().processes.iter();
    all.filter(move |other| other.log.lives.get() != 0 && !core::ptr::eq(*other, own))
}

fn is_beside_others(process: &Process) -> bool {
    others(process).next().is_some()
}

/// The turn that was read ahead begins now.
fn begin_turn(process: &Process) {
    if process.log.has_turn.replace(0) != 0 {
        let [domain, sequence, before] = process.log.turn.get();
        sharing::turn(crate::state::thread(), domain, sequence, before);
    }
}

/// The thread of another process in this memory that has the turn before the
/// given one gets it.
fn before(process: &Process) -> Option<&'static Thread> {
    if process.log.has_turn.get() == 0 {
        // It has the turn.
        return None;
    }
    let [_, own, _] = process.log.turn.get();
    let first = others(process)
        .filter(|other| peek(other).is_some())
        .map(|other| {
            let log = &other.log;
            // One that does not wait for a turn has it.
            let sequence = match log.has_turn.get() {
                0 => 0,
                _ => log.turn.get()[1],
            };
            (sequence, other)
        })
        .filter(|(sequence, _)| *sequence < own)
        .min_by_key(|(sequence, _)| *sequence);
    let (_, other) = first?;
    find_thread(other, other.log.thread.get())
}

/// The next record, which is this thread's: others run first if the log says
/// so, and whoever leads this process stops it here if that is wanted. Does not
/// return if the log has ended.
pub(super) fn next_for(thread: &Thread) -> Record<'static> {
    let record = next_unseen_for(thread);
    player::stop_if_due(thread);
    record
}

/// The next record of a thread that is not at the event yet: it waits for its turn
/// to go on to it, or the record is none of an event. It does not stop here.
pub(super) fn next_unseen_for(thread: &Thread) -> Record<'static> {
    loop {
        let process = thread.process();
        let Some(record) = peek(process) else {
            end_of_log(thread)
        };
        if let Some(other) = before(process) {
            switch(thread, other);
            continue;
        }
        begin_turn(process);
        if process.log.thread.get() == thread.number.get() {
            return record;
        }
        let number = process.log.thread.get();
        let Some(other) = find_thread(process, number) else {
            diverge(thread, difference::THREAD, 0, u64::from(number), 0);
        };
        switch(thread, other);
    }
}

/// The record was used up.
pub(super) fn consume(process: &Process) {
    let next = process.log.next_event.get() + 1;
    process.log.has_next.set(0);
    process.log.next_event.set(next);
    stream_of(process).event.store(next, Relaxed);
}

pub(super) fn consume_silent(process: &Process) {
    process.log.has_next.set(0);
}

fn find_thread(process: &Process, number: u32) -> Option<&'static Thread> {
    (0..space().slots_used.get()).map(thread_in_slot).find(|t| {
        t.tid_word.load(Relaxed) != 0
            && t.number.get() == number
            && core::ptr::eq(t.process(), process)
    })
}

/// Runs another thread until the log comes back to this one.
pub(super) fn switch(from: &Thread, to: &Thread) {
    let mut fs = 0u64;
    sys::call(nr::ARCH_PRCTL, 0x1003, (&raw mut fs) as u64, 0, 0, 0, 0);
    from.fs_base.set(fs);
    sys::call(nr::ARCH_PRCTL, 0x1002, to.fs_base.get(), 0, 0, 0, 0);
    sys::call(nr::ARCH_PRCTL, 0x1001, to.this.get(), 0, 0, 0, 0);
    // SAFETY: `to` has a stack that was left by this very function, or made
    // for it by `begin_thread`; both state areas are 64-byte aligned and large
    // enough.
    unsafe {
        arch::switch_stacks(
            from.switch_sp.as_ptr() as u64,
            to.switch_sp.get(),
            from.xstate_area(),
            to.xstate_area(),
            space().xstate_mask.get(),
        );
    }
}

/// A thread that ends goes to whoever is next, for ever.
pub fn leave_thread(thread: &Thread) -> ! {
    thread.tid_word.store(0, Release);
    let process = thread.process();
    if peek(process).is_none() {
        end_of_log(thread);
    }
    let number = process.log.thread.get();
    match find_thread(process, number) {
        Some(other) => switch(thread, other),
        None => diverge(thread, difference::THREAD, 0, u64::from(number), 0),
    }
    sys::die(b"a thread that ended was run")
}

/// The process has done all that it did.
pub fn end_of_log(thread: &Thread) -> ! {
    let process = thread.process();
    let stream = stream_of(process);
    stream.event.store(process.log.next_event.get(), Relaxed);
    sharing::publish();
    if stream.outcome.load(Acquire) == outcome::NONE {
        stream.outcome.store(outcome::EQUAL, Release);
    }
    while player::this().is_some() && is_watched(process) {
        player::stop(thread, reason::END);
    }
    process.log.lives.set(0);
    if let Some(next) = others(process).next().and_then(|_| after_end(thread)) {
        // A vfork child: its parent goes on in the same memory.
        thread.tid_word.store(0, Release);
        process.taken.set(0);
        switch(thread, next);
    }
    loop {
        sys::call(nr::EXIT_GROUP, 0, 0, 0, 0, 0, 0);
    }
}

/// Who goes on when a process has ended that had its memory from another: the
/// thread that waits for it, or else whoever is next.
fn after_end(thread: &Thread) -> Option<&'static Thread> {
    let process = thread.process();
    let maker = thread_in_slot(thread.maker_slot.get());
    let waits = thread.begins.get() != 0
        && maker.tid_word.load(Relaxed) != 0
        && !core::ptr::eq(maker.process(), process);
    if waits {
        return Some(maker);
    }
    others(process)
        .filter(|other| peek(other).is_some())
        .find_map(|other| find_thread(other, other.log.thread.get()))
}
