//! Replay: the log says what happened, the program does it again.
//!
//! All threads of a process run in one kernel thread. Each has its monitor
//! stack, as in recording; where recording would wait for the turn, replay
//! switches to the stack of the thread that the log names next. No call about
//! anything outside of the process is made: results and what the kernel wrote
//! come from the log. Calls about memory are made again, at the recorded
//! addresses. Whatever the program asks for is compared with what it asked
//! for then; the first difference ends the process with a report.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::instruction::Instruction;
use protocol::layout::{ARENA_BASE, MONITOR_BASE, MONITOR_END};
use protocol::record::{Record, answer, begin, clock, kind, object, tag};
use protocol::replay::{
    EXECUTED, EXITED, FILES_FD, Mark, NO_CALL, REPLAY_OFFSET, Replay, Stream, difference, outcome,
    reason,
};
use protocol::shared::mode;
use protocol::syscall::{Arg, Syscall, Type};

use crate::arch::{self, Regs};
use crate::capture::{self, Message};
use crate::place::{self, Place};
use crate::sharing::Object;
use crate::state::{Process, Thread, control, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{
    confine, counter, inherit, ioctl, log, mem, motion, player, poke, process, sharing, stack,
    stretch,
};

/// Whether this process replays.
#[inline]
pub fn is_on() -> bool {
    space().replays.get() != 0
}

pub fn header() -> &'static Replay {
    // SAFETY: the replayer's file has it at this offset; made of atomics.
    unsafe { &*((ARENA_BASE + REPLAY_OFFSET) as *const Replay) }
}

fn stream_of(process: &Process) -> &'static Stream {
    &header().table[process.log.stream.get() as usize % header().table.len()]
}

/// The stream of a process that `parent` began at `event`.
fn find_child(parent: u32, event: u64, how: u64) -> Option<u32> {
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
fn attach(process: &Process, index: u32) {
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
fn peek(process: &Process) -> Option<Record<'static>> {
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
fn next_for(thread: &Thread) -> Record<'static> {
    let record = next_unseen_for(thread);
    player::stop_if_due(thread);
    record
}

/// The next record of a thread that is not at the event yet: it waits for its turn
/// to go on to it, or the record is none of an event. It does not stop here.
fn next_unseen_for(thread: &Thread) -> Record<'static> {
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
fn consume(process: &Process) {
    let next = process.log.next_event.get() + 1;
    process.log.has_next.set(0);
    process.log.next_event.set(next);
    stream_of(process).event.store(next, Relaxed);
}

fn consume_silent(process: &Process) {
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
fn switch(from: &Thread, to: &Thread) {
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

/// What happens is not what happened: says so and ends the process.
pub fn diverge(thread: &Thread, what: u32, index: u32, expected: u64, found: u64) -> ! {
    let process = thread.process();
    let stream = stream_of(process);
    stream.difference.store(what, Relaxed);
    stream.thread.store(thread.number.get(), Relaxed);
    stream.index.store(index, Relaxed);
    stream.event.store(process.log.next_event.get(), Relaxed);
    stream.expected.store(expected, Relaxed);
    stream.found.store(found, Relaxed);
    stream.rip.store(thread.call_site.get(), Relaxed);
    let state = if what == difference::SHARED_MEMORY {
        outcome::HELD_UP
    } else {
        outcome::DIVERGED
    };
    stream.outcome.store(state, Release);
    sharing::give_up();
    player::stop(thread, reason::DIVERGED);
    loop {
        sys::call(nr::EXIT_GROUP, 1, 0, 0, 0, 0, 0);
    }
}

fn diverge_call(thread: &Thread, record: &Record<'_>, number: u64) -> ! {
    let stream = stream_of(thread.process());
    stream.expected_nr.store(record.nr, Relaxed);
    stream.found_nr.store(number, Relaxed);
    let expected = u64::from(record.kind);
    if is_interruption(record) {
        diverge(thread, difference::PLACE, 0, expected, number);
    }
    diverge(thread, difference::CALL, 0, expected, number)
}

/// Begins the replay of an image: the memory it had, then its first record.
pub fn init(image_len: u64) -> ! {
    let header = header();
    space().replays.set(1);
    space()
        .image_end
        .set(protocol::layout::IMAGE_BASE + image_len);
    // Everything that is not ours came with the process that was exec'd for
    // this, and goes.
    sys::call(nr::MUNMAP, 0x1000, MONITOR_BASE - 0x1000, 0, 0, 0, 0);
    sys::call(
        nr::MUNMAP,
        MONITOR_END,
        0x7fff_ffff_f000 - MONITOR_END,
        0,
        0,
        0,
        0,
    );
    for map in header.map.iter().take(header.maps.load(Relaxed) as usize) {
        let (start, end) = (map.start.load(Relaxed), map.end.load(Relaxed));
        let prot = map.prot.load(Relaxed);
        let grows = (start..end).contains(&header.stack.load(Relaxed));
        let mapped = match map.file.load(Relaxed) {
            0 => map_anonymous(start, end - start, 3, grows),
            id => map_file(id - 1, start, end - start, 3, map.file_offset.load(Relaxed)),
        };
        if !mapped {
            sys::refuse(
                b"the recording is damaged: it has no such memory as at",
                start,
            );
        }
        let from = ARENA_BASE + map.contents.load(Relaxed);
        mem::copy(
            map.contents_at.load(Relaxed),
            from,
            map.contents_len.load(Relaxed),
        );
        if prot != 3 {
            sys::call(nr::MPROTECT, start, end - start, prot, 0, 0, 0);
        }
    }
    confine::begin();
    stack::begin();
    space().player.set(header.player.load(Relaxed));
    let (thread, process) = process::first_thread();
    attach(process, header.stream.load(Relaxed));
    thread.mask.set(header.sigmask.load(Relaxed));
    process::settle_replay(thread);
    crate::signal::init(header.ignored.load(Relaxed));
    process.log.thread.set(0);
    header.begun.fetch_add(1, Release);
    let mut regs = Regs::ZERO;
    regs.rip = header.entry.load(Relaxed);
    regs.rsp = header.stack.load(Relaxed);
    thread.regs_at.set((&raw const regs) as u64);
    // A recording may say anything; there is no way to such an address.
    const PROGRAM_END: u64 = 0x7fff_ffff_f000;
    if regs.rip >= PROGRAM_END || regs.rsp >= PROGRAM_END {
        diverge(thread, difference::MEMORY, 4, regs.rip, regs.rsp);
    }
    let record = next_for(thread);
    if record.kind != kind::BEGIN {
        diverge_call(thread, &record, 0);
    }
    thread.tid.set(record.values[3] as u32);
    process.pid.set(record.values[3] as u32);
    consume(process);
    counter::replace_again(thread);
    crate::signal::deliver(thread, &mut regs, protocol::record::at::CALL_EXIT);
    process::go(thread, &regs)
}

pub fn map_anonymous(start: u64, len: u64, prot: u64, grows: bool) -> bool {
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    let flags = flags | if grows { sys::MAP_GROWSDOWN } else { 0 };
    sys::call(nr::MMAP, start, len, prot, flags, u64::MAX, 0) == start as i64
}

/// Maps a captured file; never shared, so that the copy stays as it is.
pub fn map_file(id: u64, start: u64, len: u64, prot: u64, offset: u64) -> bool {
    let mut path = [0u8; 21];
    let mut at = path.len() - 1;
    let mut rest = id;
    loop {
        at -= 1;
        path[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let (dir, path) = (FILES_FD as u64, path[at..].as_ptr() as u64);
    let fd = sys::call(nr::OPENAT, dir, path, confine::OPEN_FLAGS, 0, 0, 0);
    if fd < 0 {
        return false;
    }
    let flags = sys::MAP_PRIVATE | sys::MAP_FIXED | sys::MAP_NORESERVE;
    let got = sys::call(nr::MMAP, start, len, prot, flags, fd as u64, offset);
    sys::call(nr::CLOSE, fd as u64, 0, 0, 0, 0, 0);
    got == start as i64
}

/// Compares a call with the record of it.
fn compare(thread: &Thread, record: &Record<'_>, wanted: u8, row: &Syscall, args: &[u64; 6]) {
    let number = u64::from(row.nr);
    if record.kind != wanted || record.nr != number {
        diverge_call(thread, record, number);
    }
    for (i, (expected, found)) in record
        .args
        .iter()
        .zip(args)
        .enumerate()
        .take(row.args.len())
    {
        if expected != found {
            diverge(thread, difference::ARGUMENT, i as u32, *expected, *found);
        }
    }
    for blob in record.blobs() {
        let index = usize::from(blob.tag & !tag::PARTIAL);
        let Some((_, arg)) = row.args.get(index) else {
            continue;
        };
        let address = args[index % 6];
        let equal = match *arg {
            Arg::Path | Arg::Str => same(address, blob.bytes),
            Arg::In(..) => same_data(
                blob.tag,
                blob.bytes,
                |len| capture::digest_of(address, len),
                |piece| same(address, piece),
            ),
            Arg::IovIn(count) => {
                same_vector(blob.tag, blob.bytes, address, args[usize::from(count) % 6])
            }
            Arg::MsgIn => Message::read(address)
                .is_some_and(|m| same_vector(blob.tag, blob.bytes, m.iov, m.iov_count)),
            _ => true,
        };
        if !equal {
            diverge(thread, difference::DATA, index as u32, 0, 0);
        }
    }
}

fn same(address: u64, bytes: &[u8]) -> bool {
    let mut place = [0u8; 64];
    let mut done = 0;
    while done < bytes.len() {
        let step = (bytes.len() - done).min(place.len());
        let to = place.as_mut_ptr() as u64;
        if !mem::copy(to, address + done as u64, step as u64) {
            // What cannot be read was recorded as zeroes.
            place = [0; 64];
            mem::copy_what_is_there(to, address + done as u64, step as u64);
        }
        if place[..step] != bytes[done..done + step] {
            return false;
        }
        done += step;
    }
    true
}

fn same_data(
    tag: u8,
    bytes: &[u8],
    digest: impl FnOnce(u64) -> u64,
    same_at: impl Fn(&[u8]) -> bool,
) -> bool {
    if tag & tag::PARTIAL == 0 {
        return same_at(bytes);
    }
    let Some(split) = bytes.len().checked_sub(16) else {
        return false;
    };
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    same_at(&bytes[..split]) && digest(word(split)) == word(split + 8)
}

fn same_vector(tag: u8, bytes: &[u8], iov: u64, count: u64) -> bool {
    same_data(
        tag,
        bytes,
        |_| capture::digest_of_vector(iov, count),
        |expected| {
            let (mut done, mut equal) = (0, true);
            capture::each_piece(iov, count, expected.len() as u64, |address, len| {
                equal &= same(address, &expected[done..done + len as usize]);
                done += len as usize;
            });
            equal
        },
    )
}

/// Writes again what the kernel wrote.
fn apply(row: &Syscall, args: &[u64; 6], record: &Record<'_>) {
    let copy = |to: u64, bytes: &[u8]| mem::copy(to, bytes.as_ptr() as u64, bytes.len() as u64);
    let message = row
        .args
        .iter()
        .position(|(_, arg)| matches!(arg, Arg::MsgOut));
    for blob in record.blobs() {
        let index = usize::from(blob.tag);
        let header = message.map_or(0, |i| args[i % 6]);
        match (row.args.get(index).map(|(_, arg)| *arg), blob.tag) {
            (Some(Arg::Out(..) | Arg::InOut(..)), _) => {
                copy(args[index % 6], blob.bytes);
            }
            (Some(Arg::IovOut(count)), _) => {
                scatter(args[index % 6], args[usize::from(count) % 6], blob.bytes);
            }
            (Some(Arg::MsgOut), _) => {
                if let Some(m) = Message::read(header) {
                    scatter(m.iov, m.iov_count, blob.bytes);
                }
            }
            (Some(Arg::MmsgOut(_)), _) => messages(args[index % 6], blob.bytes),
            // Words that it changed.
            (Some(Arg::Addr), 0 | 4) if u64::from(row.nr) == nr::FUTEX => {
                copy(args[index % 6], blob.bytes);
            }
            // The new thread's number, or a descriptor of it.
            (Some(Arg::Addr), 2) if u64::from(row.nr) == nr::CLONE => {
                copy(args[2], blob.bytes);
            }
            (Some(Arg::MmsgIn(_)), _) => {
                // Only each message's length was the kernel's.
                for (i, entry) in blob.bytes.chunks_exact(64).enumerate() {
                    copy(args[index % 6] + 64 * i as u64 + 56, &entry[56..60]);
                }
            }
            (_, tag::NAME) if header != 0 => {
                if let Some(m) = Message::read(header) {
                    copy(m.name, blob.bytes);
                }
            }
            (_, tag::CONTROL) if header != 0 => {
                if let Some(m) = Message::read(header) {
                    copy(m.control, blob.bytes);
                }
            }
            _ => {}
        }
    }
    // The lengths last: they say where names and control bytes went.
    if let (Some(i), Some(head)) = (message, record.blob(tag::HEADER)) {
        let header = args[i % 6];
        copy(header + 8, &head.bytes[..4.min(head.bytes.len())]);
        copy(header + 40, head.bytes.get(8..16).unwrap_or(&[]));
        copy(header + 48, head.bytes.get(16..20).unwrap_or(&[]));
    }
}

fn scatter(iov: u64, count: u64, bytes: &[u8]) {
    let mut done = 0;
    capture::each_piece(iov, count, bytes.len() as u64, |address, len| {
        mem::copy(address, bytes.as_ptr() as u64 + done, len);
        done += len;
    });
}

/// What recvmmsg filled in (see `capture::write_messages`).
fn messages(vector: u64, mut bytes: &[u8]) {
    let mut at = vector;
    while bytes.len() >= 16 {
        let word = |i: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[4 * i..4 * i + 4]);
            u32::from_le_bytes(word)
        };
        let (data, name, control, flags) = (word(0), word(1), word(2), word(3));
        let mut rest = &bytes[16..];
        let mut take = |len: u32| {
            let (piece, after) = rest.split_at((len as usize).min(rest.len()));
            rest = after;
            piece
        };
        let (name, control, data) = (take(name), take(control), take(data));
        if let Some(m) = Message::read(at) {
            mem::copy(m.name, name.as_ptr() as u64, name.len() as u64);
            mem::copy(m.control, control.as_ptr() as u64, control.len() as u64);
            scatter(m.iov, m.iov_count, data);
            if m.name != 0 {
                mem::write(at + 8, &(name.len() as u32));
            }
            mem::write(at + 40, &(control.len() as u64));
            mem::write(at + 48, &flags);
            mem::write(at + 56, &(data.len() as u32));
        }
        bytes = rest;
        at += 64;
    }
}

/// A thread came into the monitor: by a call, or where it was interrupted.
pub fn arrived(thread: &Thread, regs: &Regs) {
    let interrupted = regs.slow == crate::call::INTERRUPTED;
    thread.regs_at.set((&raw const *regs) as u64);
    thread.waits.set(0);
    motion::end();
    thread.call.set(if interrupted {
        0
    } else {
        regs.rax.wrapping_add(1)
    });
}

/// Whether the call that the thread makes was forbidden by a filter of the
/// program's own, and what that said.
pub fn filtered(thread: &Thread, number: u64) -> Option<u32> {
    peek(thread.process())?;
    let record = next_unseen_for(thread);
    if record.kind != kind::CALL || record.nr != number {
        return None;
    }
    let answer = record.blob(tag::FILTERED)?.as_u64()?;
    Some(answer as u32)
}

/// A call that is one event.
pub fn plain(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    let record = next_for(thread);
    compare(thread, &record, kind::CALL, row, args);
    apply(row, args, &record);
    let number = u64::from(row.nr);
    answer_request(row, args, &record);
    if number == nr::SETSOCKOPT
        && let (Some(blob), Some((to, _))) = (record.blob(tag::PIECE), capture::old_counters(args))
    {
        mem::copy(to, blob.bytes.as_ptr() as u64, blob.bytes.len() as u64);
    }
    if number == nr::PROCESS_VM_WRITEV && record.result > 0 {
        poke::copy_again(args, record.result as u64);
    }
    write_through(row, args, &record);
    let result = record.result;
    if result == 0 {
        stack::learn(number, args, u64::from(thread.process().pid.get()));
    }
    count_output(thread, row, result);
    consume(thread.process());
    result
}

/// What `ioctl` wrote, which its row does not say.
fn answer_request(row: &Syscall, args: &[u64; 6], record: &Record<'_>) {
    if u64::from(row.nr) != nr::IOCTL || record.result < 0 {
        return;
    }
    if let Some(blob) = record.blob(2) {
        mem::copy(args[2], blob.bytes.as_ptr() as u64, blob.bytes.len() as u64);
    }
    if let (Some(blob), Some(buffer)) = (record.blob(tag::PIECE), ioctl::further_memory(args)) {
        mem::copy(buffer, blob.bytes.as_ptr() as u64, blob.bytes.len() as u64);
    }
}

/// What was written or sent was compared before: here it is counted.
fn count_output(thread: &Thread, row: &Syscall, result: i64) {
    if matches!(row.kind, Type::Send) && result > 0 {
        let output = &stream_of(thread.process()).output;
        output.store(output.load(Relaxed) + result as u64, Relaxed);
    }
}

/// Lets those run who ran before this thread's next record.
pub fn settle(thread: &Thread) {
    next_for(thread);
}

/// Whether the log has this call in two halves. (Whether a descriptor makes
/// calls wait is known only to the log.)
pub fn is_blocking(thread: &Thread) -> bool {
    next_for(thread).kind == kind::START
}

/// The first half of a call.
pub fn start(thread: &Thread, row: &Syscall, args: &[u64; 6]) {
    let record = next_for(thread);
    compare(thread, &record, kind::START, row, args);
    consume(thread.process());
    thread.waits.set(1);
}

/// The second half: its result.
pub fn finish(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    let record = next_for(thread);
    thread.waits.set(0);
    if record.kind != kind::END || record.nr != u64::from(row.nr) {
        diverge_call(thread, &record, u64::from(row.nr));
    }
    apply(row, args, &record);
    answer_request(row, args, &record);
    crate::words::cleared(&record);
    write_through(row, args, &record);
    let result = record.result;
    count_output(thread, row, result);
    consume(thread.process());
    result
}

/// What was done to a file shows where the file is mapped.
fn write_through(row: &Syscall, args: &[u64; 6], record: &Record<'_>) {
    let Some(blob) = record.blob(tag::OBJECT) else {
        return;
    };
    if record.result < 0 {
        return;
    }
    let Some([key, offset]) = mem::read_own::<[u64; 2]>(blob.bytes) else {
        return;
    };
    if key == object::MEMORY {
        let mut at = offset;
        let mut poke = |from: u64, len: u64| {
            poke::write_again(at, from, len);
            at += len;
        };
        let len = record.result as u64;
        match u64::from(row.nr) {
            nr::WRITEV | nr::PWRITEV | nr::PWRITEV2 => {
                capture::each_piece(args[1], args[2], len, poke);
            }
            _ => poke(args[1], len.min(args[2])),
        }
        return;
    }
    // How long it is now; older recordings do not say.
    if let Some([_, _, size]) = mem::read_own::<[u64; 3]>(blob.bytes) {
        sharing::resized(key, size);
    }
    let len = record.result as u64;
    match u64::from(row.nr) {
        nr::FALLOCATE => {
            const PUNCH_HOLE: u64 = 2;
            const ZERO_RANGE: u64 = 16;
            if args[1] & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                sharing::cleared(key, args[2], args[3]);
            }
        }
        _ if offset == object::NOWHERE => {}
        nr::WRITEV | nr::PWRITEV | nr::PWRITEV2 => {
            let mut at = offset;
            capture::each_piece(args[1], args[2], len, |address, len| {
                sharing::written(key, at, address, len);
                at += len;
            });
        }
        _ => sharing::written(key, offset, args[1], len.min(args[2])),
    }
}

/// A record that the monitor's own code would have written now: it must be
/// there.
pub fn expect(
    thread: &Thread,
    wanted: u8,
    number: u64,
    args: Option<&[u64; 6]>,
    result: Option<i64>,
) {
    let record = next_for(thread);
    if record.kind != wanted || record.nr != number {
        diverge_call(thread, &record, number);
    }
    if let Some(args) = args {
        let count = protocol::table::syscall(number).map_or(0, |row| row.args.len());
        for (i, (expected, found)) in record.args.iter().zip(args).enumerate().take(count) {
            if expected != found {
                diverge(thread, difference::ARGUMENT, i as u32, *expected, *found);
            }
        }
        if number == nr::EXIT_GROUP || number == nr::EXIT && thread.number.get() == 0 {
            let exit = &stream_of(thread.process()).exit;
            exit.store(EXITED | args[0] & 0xff, Relaxed);
        }
    }
    if let Some(result) = result
        && record.result != result
    {
        diverge(
            thread,
            difference::RESULT,
            0,
            record.result as u64,
            result as u64,
        );
    }
    consume(thread.process());
}

/// A clock read. None: the log has something else first, the long way finds
/// out.
pub fn read_clock(thread: &Thread, number: u64, first: u64, second: u64) -> Option<i64> {
    let process = thread.process();
    let taken = thread.clock_taken.replace(0);
    if taken != 0 {
        return Some(taken as i64 - 1);
    }
    let record = peek(process)?;
    if record.kind != kind::CLOCK
        || process.log.thread.get() != thread.number.get()
        || record.nr != number
        || player::is_due(thread)
    {
        return None;
    }
    let value = record.values[2];
    let now = [value / 1_000_000_000, value % 1_000_000_000];
    let result = match record.values[0] as u8 {
        clock::GETTIMEOFDAY => {
            mem::write(first, &[now[0], now[1] / 1000]);
            0
        }
        clock::TIME => {
            if first != 0 {
                mem::write(first, &now[0]);
            }
            now[0] as i64
        }
        _ => {
            mem::write(second, &now);
            0
        }
    };
    consume(process);
    Some(result)
}

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

fn is_interruption(record: &Record<'_>) -> bool {
    record.kind == kind::PREEMPT
        || record.kind == kind::SIGNAL && record.values[1] == protocol::record::at::PREEMPTED
}

/// On the way to where it was interrupted, the thread came to a place that is
/// like it as far as that. None: it is not on such a way any more.
pub fn came_near(thread: &Thread, likeness: Option<u32>) {
    let likest = likeness.map_or(0, |likeness| u64::from(likeness) + 1);
    let stream = stream_of(thread.process());
    stream.likest.store(likest, Relaxed);
}

/// Where the thread was interrupted, if that is what the log has next for it.
/// Does not return if the log has ended: what the program did after its last
/// event until it was killed is not known, and may have no end.
pub fn interruption(thread: &Thread) -> Option<Place> {
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
    let place = Place::of_record(&record);
    if place.is_none() && record.blob(tag::REGISTERS).is_some() {
        // Not one that this monitor can find.
        diverge(thread, difference::POSITION, 0, 0, 0);
    }
    place
}

/// Where the thread faults, if that is what the log has next for it.
pub fn fault_to_come(thread: &Thread) -> Option<Place> {
    let process = thread.process();
    let record = peek(process)?;
    let faults = record.kind == kind::SIGNAL && record.values[1] == protocol::record::at::FAULT;
    if !faults || process.log.thread.get() != thread.number.get() {
        return None;
    }
    Place::of_record(&record)
}

/// The thread leaves for the program.
pub fn set_out(thread: &Thread, regs: &mut Regs) {
    if !motion::begin(thread, regs) {
        regs.rip = stretch::begin(thread, regs.rip);
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
    let passes = peek(process).is_some_and(|record| {
        record.kind == kind::PREEMPT && record.blob(tag::REGISTERS).is_none()
    });
    if passes && process.log.thread.get() == thread.number.get() {
        player::stop_if_due(thread);
        consume(process);
        next_unseen_for(thread);
    }
}

/// Calls that change the address space: done again.
pub fn memory(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    let record = next_for(thread);
    compare(thread, &record, kind::CALL, row, args);
    let result = record.result;
    let number = u64::from(row.nr);
    let file = record.blob(tag::FILE).and_then(|blob| blob.as_u64());
    let size = record.blob(tag::PIECE).and_then(|blob| blob.as_u64());
    let object = record.blob(tag::OBJECT);
    let key = object.and_then(|blob| blob.as_u64());
    let object_size = object.and_then(|blob| mem::read_own::<[u64; 2]>(blob.bytes));
    consume(process_of(thread));
    if number == nr::BRK {
        brk(thread, result as u64);
        return result;
    }
    if result < 0 {
        // What it did before it failed, it did.
        let args = [args[0], size.unwrap_or(0), args[2], args[3], 0, 0];
        match number {
            nr::MPROTECT | nr::PKEY_MPROTECT if args[1] != 0 => {
                mprotect(&args);
            }
            nr::MADVISE => madvise(thread, &args),
            _ => {}
        }
        return result;
    }
    let at = result as u64;
    let done = match number {
        nr::MMAP => {
            let [_, len, prot, flags, _, offset] = *args;
            let shared = flags & 3 != sys::MAP_PRIVATE;
            sharing::forget(thread, at, len);
            inherit::forget(thread, at, len);
            let done = match file {
                Some(id) => map_file(id, at, len, prot, offset),
                None => map_anonymous(at, len, prot, flags & sys::MAP_GROWSDOWN != 0),
            };
            if done && (shared || key.is_some()) {
                let object = Object {
                    // Without one, only children will have it too.
                    key: key.unwrap_or_else(|| own_key(thread)),
                    file: file.unwrap_or(sharing::NO_FILE),
                    size: object_size.map(|[_, size]| size),
                    kind: match (shared, key) {
                        (true, Some(_)) => sharing::SHARED,
                        (true, None) => sharing::UNNAMED,
                        (false, _) => sharing::PRIVATE,
                    },
                };
                let offset = if key.is_some() { offset } else { 0 };
                sharing::map(thread, &object, at, len, prot, offset);
            }
            done
        }
        nr::SHMAT => {
            let len = size.unwrap_or(4096);
            let prot = if args[2] & 0o10000 != 0 { 1 } else { 3 };
            let done = map_anonymous(at, len, prot, false);
            if let Some(key) = key.filter(|_| done) {
                let object = Object {
                    key,
                    file: sharing::NO_FILE,
                    size: None,
                    kind: sharing::SHARED,
                };
                sharing::map(thread, &object, at, len, prot, 0);
            }
            done
        }
        SHMDT => {
            if let Some(len) = sharing::length_at(args[0]) {
                sharing::forget(thread, args[0], len);
                inherit::forget(thread, args[0], len);
                sys::call(nr::MUNMAP, args[0], len, 0, 0, 0, 0);
            }
            true
        }
        nr::MREMAP => {
            const DONTUNMAP: u64 = 4;
            let [old, old_len, len, flags, _, _] = *args;
            let stays = flags & DONTUNMAP != 0;
            inherit::moved(thread, old, old_len, at, len, stays);
            sharing::remap(thread, old, old_len, at, len, stays)
        }
        nr::MUNMAP => {
            sharing::forget(thread, args[0], args[1]);
            inherit::forget(thread, args[0], args[1]);
            sys::call(number, args[0], args[1], 0, 0, 0, 0) == result
        }
        nr::MPROTECT | nr::PKEY_MPROTECT => mprotect(args),
        nr::MADVISE => {
            madvise(thread, args);
            true
        }
        _ => true,
    };
    if !done {
        diverge(thread, difference::MEMORY, 0, at, args[0]);
    }
    crate::memory::forget_code(number, args, result);
    motion::code_changed();
    motion::mapped(number, args[2]);
    counter::replace_again(thread);
    result
}

fn mprotect(args: &[u64; 6]) -> bool {
    let done = sys::call(nr::MPROTECT, args[0], args[1], args[2], 0, 0, 0) == 0;
    sharing::protected(args[0], args[1], args[2]);
    done
}

fn madvise(thread: &Thread, args: &[u64; 6]) {
    const REMOVE: u64 = 9;
    let [start, len, advice, ..] = *args;
    if crate::memory::discards(advice) {
        sharing::discard(start, len, advice == REMOVE);
    } else {
        inherit::advise(thread, start, len, advice);
    }
}

/// The instructions that were replaced in code that was mapped just now: its
/// protection, and their words.
pub fn sites_here(thread: &Thread) -> Option<(u64, &'static [u8])> {
    let process = thread.process();
    let record = peek(process)?;
    if record.kind != kind::SITES || process.log.thread.get() != thread.number.get() {
        return None;
    }
    consume_silent(process);
    Some((record.values[0], record.blob(tag::CODE)?.bytes))
}

/// What the thread read from the time-stamp counter: value and auxiliary.
pub fn read_counter(thread: &Thread) -> (u64, u32) {
    let record = next_for(thread);
    if record.kind != kind::TSC {
        diverge_call(thread, &record, NO_CALL);
    }
    consume(thread.process());
    (record.values[0], record.values[1] as u32)
}

/// What an instruction answered, that was asked so.
pub fn answer(thread: &Thread, what: Instruction, asked: [u64; 2]) -> [u64; 4] {
    let record = next_for(thread);
    let values = &record.values;
    let is_it = record.kind == kind::ANSWER
        && values[0] == what as u64
        && values[answer::ASKED..answer::ANSWERED] == asked;
    if !is_it {
        diverge_call(thread, &record, NO_CALL - what as u64);
    }
    consume(thread.process());
    let mut answered = [0; 4];
    answered.copy_from_slice(&values[answer::ANSWERED..answer::VALUES]);
    answered
}

fn process_of(thread: &Thread) -> &'static Process {
    thread.process()
}

const SHMDT: u64 = 67;

/// A key for shared memory that has no file: the call that made it.
fn own_key(thread: &Thread) -> u64 {
    let process = thread.process();
    (u64::from(process.number.get()) << 40 ^ process.log.next_event.get())
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        | 1
}

/// Whether processes with different memory have turns in a domain.
pub fn is_shared(domain: u64) -> bool {
    let words = &header().shared;
    words[domain as usize / 64 % words.len()].load(Relaxed) & 1 << (domain % 64) != 0
}

/// The heap's end: memory is mapped up to it.
fn brk(thread: &Thread, to: u64) {
    let space = space();
    let now = space.brk.get();
    let up = |address: u64| (address + 4095) & !4095;
    if now != 0 && up(to) > up(now) {
        if !map_anonymous(up(now), up(to) - up(now), 3, false) {
            diverge(thread, difference::MEMORY, 0, now, to);
        }
    } else if now != 0 && up(to) < up(now) {
        inherit::forget(thread, up(to), up(now) - up(to));
        sys::call(nr::MUNMAP, up(to), up(now) - up(to), 0, 0, 0, 0);
    }
    space.brk.set(to);
}

/// The stubs that recording took memory for, if it did now.
pub fn stub_pool(thread: &Thread) -> Option<u64> {
    let record = next_unseen_for(thread);
    if record.kind != kind::STUBS {
        return None;
    }
    let address = record.values[0];
    consume_silent(thread.process());
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
    let got = sys::call(nr::MMAP, address, record.values[1], 7, flags, u64::MAX, 0);
    (got == address as i64).then_some(address)
}

/// Whether recording patched this site now.
pub fn patches(thread: &Thread, site: u64) -> bool {
    let process = thread.process();
    let Some(record) = peek(process) else {
        return false;
    };
    if process.log.thread.get() != thread.number.get() {
        return false;
    }
    match record.kind {
        kind::STUBS => true,
        kind::PATCH => record.values[0] == site,
        _ => false,
    }
}

/// It did: the record is used up.
pub fn patched(thread: &Thread, stub: u64) {
    let record = next_unseen_for(thread);
    if record.kind != kind::PATCH || record.values[1] != stub {
        diverge(thread, difference::MEMORY, 1, record.values[1], stub);
    }
    consume_silent(thread.process());
    motion::code_changed();
}

/// Whether a player stops in this process: it is the last of its path.
pub fn is_watched(process: &Process) -> bool {
    let last = header().path_len.load(Relaxed) as usize;
    let path = header().path.iter().take(last);
    path.last()
        .is_some_and(|index| index.load(Relaxed) == process.log.stream.get())
}

fn is_on_path(index: u32) -> bool {
    let count = header().path_len.load(Relaxed) as usize;
    header()
        .path
        .iter()
        .take(count)
        .any(|stream| stream.load(Relaxed) == index)
}

/// `fork` in replay: the child is another process that follows its own log.
pub fn fork(thread: &Thread, row: &Syscall, args: &[u64; 6], regs: &mut Regs) -> i64 {
    let process = thread.process();
    let number = process.number.get();
    // A parent that was killed right after the fork has nothing of it in its
    // log; its child's log knows.
    let is_recorded = peek(process).is_some();
    let mut result = i64::from(u32::MAX);
    // Written in the parent's memory alone, when the child has its own.
    let mut parent_tid = None;
    let mut event = process.log.next_event.get();
    if is_recorded {
        let record = next_for(thread);
        event = process.log.next_event.get();
        compare(thread, &record, kind::CALL, row, args);
        result = record.result;
        let blob = record.blob(2);
        parent_tid = blob.and_then(|blob| <[u8; 4]>::try_from(blob.bytes).ok());
        consume(process);
    }
    // Without a child's log, it was killed before it wrote any.
    let child = find_child(number, event, begin::FORK).filter(|index| {
        result > 0
            && match player::this() {
                Some(_) => is_on_path(*index),
                None => player::fork() == 0,
            }
    });
    let Some(index) = child else {
        if !is_recorded {
            end_of_log(thread);
        }
        if let Some(tid) = parent_tid {
            mem::write(args[2], &tid);
        }
        return result;
    };
    header().begun.fetch_add(1, Release);
    process::alone(thread);
    sharing::forked();
    inherit::forked(thread);
    attach(process, index);
    process.log.thread.set(thread.number.get());
    let record = next_for(thread);
    if record.kind != kind::BEGIN {
        diverge_call(thread, &record, nr::FORK);
    }
    let pid = record.values[3] as u32;
    consume(process);
    process.pid.set(pid);
    thread.tid.set(pid);
    let [flags, stack, _, child_tid, _, _] = *args;
    if u64::from(row.nr) == nr::CLONE {
        process::forked_child_tid(thread, flags, child_tid);
        if stack != 0 {
            regs.rsp = stack;
        }
    }
    0
}

/// A thread begins in replay: its stack is set up so that switching to it
/// starts it. As from the kernel, it has the floating-point and vector state of
/// the thread that makes it, which calls this: rounding modes, and what is left
/// in registers. The low halves of the vector registers come from its stack.
pub fn begin_thread(child: &Thread, tid: u32, tls: u64, word: u64) {
    child.tid.set(tid);
    child.fs_base.set(tls);
    // What `arch::switch_stacks` pops: six registers and where to go.
    let frame = [0, 0, 0, 0, 0, 0, arch::thread_start as *const () as u64];
    let sp = word - 64;
    mem::copy(sp, frame.as_ptr() as u64, 56);
    child.switch_sp.set(sp);
    place::store_vectors(child, &[[0; 2]; 16]);
}

/// The result of the `clone` that makes a thread.
pub fn clone_result(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    let record = next_for(thread);
    compare(thread, &record, kind::CALL, row, args);
    apply(row, args, &record);
    let result = record.result;
    consume(thread.process());
    result
}

/// The thread's first record: it runs now.
pub fn thread_began(thread: &Thread) {
    let record = next_for(thread);
    if record.kind != kind::THREAD_START {
        diverge_call(thread, &record, 0);
    }
    consume(thread.process());
}

/// A process that has its parent's memory begins there, with a log of its own:
/// it runs when its turns come, which the log says. A parent that waits for it
/// goes on when it execs or ends. False: it was killed before it did anything.
pub fn begin_beside(thread: &Thread, child: &Thread, event: u64) -> bool {
    let home = child.process();
    let Some(index) = find_child(thread.process().number.get(), event, begin::VFORK) else {
        child.tid_word.store(0, Release);
        home.taken.set(0);
        return false;
    };
    attach(home, index);
    home.log.thread.set(0);
    child.maker_slot.set(thread.slot.get());
    true
}

/// Its parent waits for it: nothing that the parent's log has next comes before
/// it has begun.
pub fn run_beside(thread: &Thread, child: &Thread) {
    switch(thread, child);
}

pub fn vfork_child_began(thread: &Thread) {
    let record = next_for(thread);
    if record.kind != kind::BEGIN {
        diverge_call(thread, &record, 0);
    }
    thread.tid.set(record.values[3] as u32);
    thread.process().pid.set(record.values[3] as u32);
    consume(thread.process());
}

/// `execve`: if it succeeded, this image's log ends here.
pub fn exec(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    start(thread, row, args);
    match peek(thread.process()) {
        Some(record) if record.kind == kind::END || record.kind == kind::SIGNAL => {
            finish(thread, row, args)
        }
        _ => {
            let stream = stream_of(thread.process());
            stream.exit.store(EXECUTED, Relaxed);
            end_of_log(thread)
        }
    }
}

/// Whether the replayer, not the recorder, made this process.
pub fn is_wanted() -> bool {
    control().mode.load(Relaxed) == mode::REPLAY
}
