//! Appending to a process's log.
//!
//! A record is written with `begin`, any number of blobs, and `commit`, by the
//! thread that has the turn. `used` in the chunk's head is stored last: what it
//! covers is whole, whatever happens to the process a moment later.

use core::sync::atomic::Ordering::{Relaxed, Release};

use protocol::instruction::Instruction;
use protocol::layout::ARENA_BASE;
use protocol::record::{HEAD_MAX, Head, Memory, Record, answer, kind};
use protocol::shared::{
    CHUNK_HEAD, CHUNK_MAGIC, CHUNK_SIZE, CHUNKS_MAX, CHUNKS_OFFSET, ChunkHead, TICK_SHIFT,
    chunk_state, mode as state,
};

use crate::state::{Log, Process, Thread, control, space};
use crate::{arch, mem, mode, observe, process, recorder, replay, sys, time};

fn address_of(chunk: u32) -> u64 {
    ARENA_BASE + CHUNKS_OFFSET + u64::from(chunk) * CHUNK_SIZE as u64
}

/// A chunk that is full stays mapped for a while: once it has been stored it
/// can be filled again, and to map it anew takes as long as to fill it.
fn keep_mapped(chunk: u32) {
    let kept = &space().kept_chunks;
    let place = kept.iter().find(|place| place.get() == 0).or_else(|| {
        let turn = space().kept_turn.get();
        space().kept_turn.set(turn.wrapping_add(1));
        kept.get(turn as usize % kept.len())
    });
    let Some(place) = place else { return };
    let before = place.replace(chunk + 1);
    if before != 0 {
        let (address, len) = (address_of(before - 1), CHUNK_SIZE as u64);
        sys::call(sys::nr::MUNMAP, address, len, 0, 0, 0, 0);
    }
}

impl Log {
    fn head(&self) -> Option<&'static ChunkHead> {
        let chunk = self.chunk.get();
        // SAFETY: the chunk is mapped as long as `chunk` names it; it is made
        // of atomics.
        (chunk != 0).then(|| unsafe { &*(chunk as *const ChunkHead) })
    }

    /// The record that replay has read ahead.
    pub fn next_record(&self) -> Record<'static> {
        // SAFETY: asked for only while `has_next` says that it was set.
        unsafe { (*self.next.get()).assume_init() }
    }

    pub fn set_next(&self, record: &Record<'static>) {
        // SAFETY: only the thread that runs touches it.
        unsafe { (*self.next.get()).write(*record) };
        self.has_next.set(1);
    }

    #[allow(clippy::mut_from_ref)]
    pub fn memory(&self) -> &mut Memory {
        // SAFETY: only the thread that has the turn writes the log, and no
        // reference outlives the call that made it.
        unsafe { &mut *self.memory.get() }
    }

    /// Finishes the current chunk, if there is one, and leaves it to the
    /// recorder.
    fn let_go(&self) {
        let Some(head) = self.head() else { return };
        head.used.store(self.position.get(), Release);
        self.put_away();
        control().chunk_state[self.index.get() as usize & (CHUNKS_MAX - 1)]
            .store(chunk_state::FULL, Release);
        recorder::ring();
    }

    /// Forgets the current chunk, which may be another process's.
    fn put_away(&self) {
        self.clear_until.set(0);
        if self.chunk.replace(0) != 0 {
            keep_mapped(self.index.get());
        }
    }

    /// Finishes the current chunk and takes another. False: recording is over.
    fn next_chunk(&self, process: &Process) -> bool {
        self.let_go();
        let kept = space()
            .kept_chunks
            .iter()
            .find(|place| place.get() != 0 && recorder::take_this_chunk(place.get() - 1));
        let index = match kept {
            Some(place) => Some(place.replace(0) - 1),
            None => recorder::take_chunk(),
        };
        let Some(index) = index else {
            self.off.set(1);
            return false;
        };
        let address = address_of(index);
        if kept.is_none() && !self.map(index) {
            // The program has used up its address space: nothing more of this
            // process can be recorded.
            control().chunk_state[index as usize & (CHUNKS_MAX - 1)]
                .store(chunk_state::FULL, Release);
            self.off.set(1);
            return false;
        }
        self.chunk.set(address);
        self.index.set(index);
        self.position.set(CHUNK_HEAD as u32);
        if let Some(head) = self.head() {
            head.used.store(0, Relaxed);
            head.process.store(process.number.get(), Relaxed);
            head.seq.store(self.seq.get(), Relaxed);
            head.version.store(protocol::FORMAT_VERSION, Relaxed);
            head.first_record.store(0, Relaxed);
            head.first_event.store(self.next_event.get(), Relaxed);
            head.first_time.store(0, Relaxed);
            head.first_thread.store(self.thread.get(), Relaxed);
            head.observation.store(self.observation.get(), Relaxed);
            head.magic.store(CHUNK_MAGIC, Relaxed);
            head.used.store(CHUNK_HEAD as u32, Release);
        }
        self.seq.set(self.seq.get() + 1);
        true
    }

    fn map(&self, index: u32) -> bool {
        let (address, len) = (address_of(index), CHUNK_SIZE as u64);
        // It may have been kept, and have become free only now.
        let kept = &space().kept_chunks;
        if let Some(place) = kept.iter().find(|place| place.get() == index + 1) {
            place.set(0);
            return true;
        }
        let fd = space().arena_fd.get() as u64;
        let is_mapped = sys::map_for_writing(address, len, fd, address - ARENA_BASE);
        if is_mapped && self.seq.get() != 0 {
            // It will be filled like the one before: all its pages at once.
            sys::populate(address, len);
        }
        is_mapped
    }

    fn put(&self, process: &Process, mut from: u64, mut len: u64) {
        while len > 0 {
            let room = CHUNK_SIZE as u64 - u64::from(self.position.get());
            if self.chunk.get() == 0 || room == 0 {
                if self.off.get() != 0 || !self.next_chunk(process) {
                    return;
                }
                continue;
            }
            let step = room.min(len);
            let to = self.chunk.get() + u64::from(self.position.get());
            // A page of the program's that has gone meanwhile reads as zero.
            if !mem::copy(to, from, step) {
                mem::copy_what_is_there(to, from, step);
            }
            self.position.set(self.position.get() + step as u32);
            from += step;
            len -= step;
        }
    }

    /// Where a head is made: in the chunk, if any head fits there.
    #[inline(always)]
    fn head_here(&self) -> (Head<'static>, bool) {
        let position = self.position.get() as usize;
        let fits = self.chunk.get() != 0 && position + HEAD_MAX <= CHUNK_SIZE;
        (self.head_at(fits), fits)
    }

    #[inline(always)]
    fn head_at(&self, fits: bool) -> Head<'static> {
        let to = match fits {
            true => (self.chunk.get() + u64::from(self.position.get())) as *mut u8,
            false => self.aside.get().cast(),
        };
        // SAFETY: inside the current chunk, which only we write, or in memory
        // for this alone; there is one head at a time.
        Head::new(unsafe { core::slice::from_raw_parts_mut(to, HEAD_MAX) })
    }

    /// A head is made.
    #[inline(always)]
    fn put_head(&self, process: &Process, head: &Head<'_>, fits: bool) {
        if fits {
            self.position.set(self.position.get() + head.len() as u32);
        } else {
            self.put(process, self.aside.get() as u64, head.len() as u64);
        }
    }
}

/// A record being written. Dropping it without `commit` is not possible by
/// accident: every writer below ends in `commit`.
#[must_use]
pub struct Entry<'a> {
    process: &'a Process,
}

impl Entry<'_> {
    pub fn blob(self, tag: u8, from: u64, len: u64) -> Self {
        self.blob_begin(tag, len).piece(from, len)
    }
    pub fn words(self, tag: u8, words: &[u64]) -> Self {
        self.blob(
            tag,
            words.as_ptr() as u64,
            core::mem::size_of_val(words) as u64,
        )
    }
    pub fn blob_begin(self, tag: u8, len: u64) -> Self {
        let log = &self.process.log;
        let (mut head, fits) = log.head_here();
        head.blob(tag, len as usize);
        log.put_head(self.process, &head, fits);
        self
    }
    pub fn piece(self, from: u64, len: u64) -> Self {
        self.process.log.put(self.process, from, len);
        self
    }
    #[inline(always)]
    pub fn commit(self) {
        self.show();
        if mode::is_live() {
            observe::end();
        }
    }
    /// It is whole.
    fn show(self) {
        let log = &self.process.log;
        if let Some(head) = log.head() {
            head.used.store(log.position.get(), Release);
        }
    }
}

fn open(process: &Process, time: u64) -> Option<Entry<'_>> {
    let log = &process.log;
    if log.off.get() != 0 {
        return None;
    }
    if control().mode.load(Relaxed) != state::RECORD && !observe::is_of(log) {
        log.off.set(1);
        log.clear_until.set(0);
        return None;
    }
    if (log.chunk.get() == 0 || log.position.get() as usize == CHUNK_SIZE)
        && !log.next_chunk(process)
    {
        return None;
    }
    let head = log.head()?;
    if head.first_record.load(Relaxed) == 0 {
        head.first_event.store(log.next_event.get(), Relaxed);
        head.first_time.store(time, Relaxed);
        head.first_thread.store(log.thread.get(), Relaxed);
        head.first_record.store(log.position.get(), Release);
        log.memory().forget(time);
        log.clear_until.set((CHUNK_SIZE - HEAD_MAX) as u32);
    }
    Some(Entry { process })
}

/// A record's head being made.
struct Making<'a> {
    process: &'a Process,
    head: Head<'static>,
    fits: bool,
    time: u64,
}

/// Who wants a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    ByAll,
    /// Not by those who only observe.
    ByReplay,
}

/// Begins a record of `thread`'s; None when nothing is recorded any more.
#[inline(always)]
fn begin<'a>(thread: &Thread, process: &'a Process, time: u64) -> Option<Making<'a>> {
    begin_for(Wanted::ByAll, thread, process, time)
}

#[inline(always)]
fn begin_for<'a>(
    wanted: Wanted,
    thread: &Thread,
    process: &'a Process,
    time: u64,
) -> Option<Making<'a>> {
    let log = &process.log;
    let is_clear = log.position.get() < log.clear_until.get()
        && log.thread.get() == thread.number.get()
        && control().mode.load(Relaxed) == state::RECORD;
    let (fits, time) = match is_clear {
        true => (true, time),
        false => prepare(wanted, thread, process, time)?,
    };
    Some(Making {
        process,
        head: log.head_at(fits),
        fits,
        time,
    })
}

impl<'a> Making<'a> {
    /// The head is whole; what belongs to it may follow.
    #[inline(always)]
    fn made(self) -> Entry<'a> {
        let Making {
            process,
            head,
            fits,
            ..
        } = self;
        process.log.put_head(process, &head, fits);
        Entry { process }
    }

    /// The head of an event is whole: it has the next number.
    #[inline(always)]
    fn event(self) -> Entry<'a> {
        let next = &self.process.log.next_event;
        let entry = self.made();
        next.set(next.get() + 1);
        entry
    }
}

/// The chunk is full, another thread was the last to write, or recording is
/// over. Returns whether the next head fits into the chunk, and when it is made.
#[cold]
#[inline(never)]
fn prepare(wanted: Wanted, thread: &Thread, process: &Process, time: u64) -> Option<(bool, u64)> {
    if !mode::is_live() {
        return Some((make_room(thread, process, time)?, time));
    }
    if wanted == Wanted::ByReplay || !observe::begin(thread, process) {
        return None;
    }
    // Others may have written while this thread waited for them.
    let time = arch::ticks();
    let fits = make_room(thread, process, time);
    if fits.is_none() {
        observe::end();
    }
    Some((fits?, time))
}

/// Writes down that another thread goes on, if that is so, in a chunk with room for more.
fn make_room(thread: &Thread, process: &Process, time: u64) -> Option<bool> {
    let log = &process.log;
    if log.thread.get() != thread.number.get() {
        let entry = open(process, time)?;
        let number = [u64::from(thread.number.get())];
        let (mut head, fits) = log.head_here();
        log.memory()
            .other(&mut head, kind::THREAD, time, &number, 0);
        log.put_head(process, &head, fits);
        entry.show();
        log.thread.set(thread.number.get());
    }
    let _ = open(process, time)?;
    Some(log.head_here().1)
}

pub fn call(
    thread: &Thread,
    nr: u64,
    args: &[u64; 6],
    count: usize,
    result: i64,
    blobs: u8,
) -> Option<Entry<'static>> {
    if mode::is_replay() {
        replay::expect(thread, kind::CALL, nr, Some(args), Some(result));
        return None;
    }
    let (process, time) = (thread.process(), arch::ticks());
    let mut making = begin(thread, process, time)?;
    let (memory, head) = (process.log.memory(), &mut making.head);
    memory.call(head, nr, making.time, args, count, result, blobs);
    Some(making.event())
}

pub fn start(
    thread: &Thread,
    nr: u64,
    args: &[u64; 6],
    count: usize,
    blobs: u8,
) -> Option<Entry<'static>> {
    if mode::is_replay() {
        replay::expect(thread, kind::START, nr, Some(args), None);
        return None;
    }
    let (process, time) = (thread.process(), arch::ticks());
    let mut making = begin(thread, process, time)?;
    let (memory, head) = (process.log.memory(), &mut making.head);
    memory.start(head, nr, making.time, args, count, blobs);
    Some(making.event())
}

pub fn end(thread: &Thread, nr: u64, result: i64, blobs: u8) -> Option<Entry<'static>> {
    if mode::is_replay() {
        replay::expect(thread, kind::END, nr, None, Some(result));
        return None;
    }
    let (process, time) = (thread.process(), arch::ticks());
    let mut making = begin(thread, process, time)?;
    let (memory, head) = (process.log.memory(), &mut making.head);
    memory.end(head, nr, making.time, result, blobs);
    Some(making.event())
}

pub fn other(thread: &Thread, kind: u8, values: &[u64], blobs: u8) -> Option<Entry<'static>> {
    if mode::is_replay() {
        // Replay looks for these where they matter.
        return None;
    }
    let (process, time) = (thread.process(), arch::ticks());
    let wanted = match kind {
        kind::BEGIN | kind::THREAD_START | kind::SIGNAL => Wanted::ByAll,
        _ => Wanted::ByReplay,
    };
    let mut making = begin_for(wanted, thread, process, time)?;
    let (memory, head) = (process.log.memory(), &mut making.head);
    memory.other(head, kind, making.time, values, blobs);
    Some(match kind::is_event(kind) {
        true => making.event(),
        false => making.made(),
    })
}

/// A clock read at this time.
#[inline(always)]
pub fn clock(thread: &Thread, how: u8, id: u64, value: u64, time: u64) {
    let process = thread.process();
    if let Some(mut making) = begin_for(Wanted::ByReplay, thread, process, time) {
        let memory = process.log.memory();
        memory.clock(&mut making.head, how, id, time, value);
        making.event().commit();
    }
}

/// The program reads the time-stamp counter: what it shall see of it.
pub fn counter(thread: &Thread, with_auxiliary: bool) -> (u64, u32) {
    let process = thread.process();
    let making = begin_for(Wanted::ByReplay, thread, process, arch::ticks());
    let (counter, auxiliary) = match with_auxiliary {
        true => arch::counter_with_auxiliary(),
        false => (arch::counter(), 0),
    };
    let shift = time::shift_ticks_of(thread, counter);
    let Some(mut making) = making else {
        return (counter.wrapping_sub(shift), auxiliary);
    };
    if shift != 0 {
        // A record's time is what the counter really was: this is not.
        let value = counter.wrapping_sub(shift);
        let values = answer_values(value, auxiliary);
        let (memory, head) = (process.log.memory(), &mut making.head);
        memory.other(head, kind::ANSWER, counter >> TICK_SHIFT, &values, 0);
        making.event().commit();
        return (value, auxiliary);
    }
    let (memory, head) = (process.log.memory(), &mut making.head);
    let value = memory.counter(head, counter, with_auxiliary.then_some(auxiliary));
    making.event().commit();
    (value, auxiliary)
}

/// What a read of the counter answered, as other instructions answer.
fn answer_values(counter: u64, auxiliary: u32) -> [u64; answer::VALUES] {
    let mut values = [0; answer::VALUES];
    values[0] = Instruction::Counter as u64;
    values[answer::ANSWERED] = counter;
    values[answer::ANSWERED + 1] = 1;
    values[answer::ANSWERED + 2] = auxiliary.into();
    values
}

/// Ends a record of which nothing but the head is wanted.
pub fn done(entry: Option<Entry<'_>>) {
    if let Some(entry) = entry {
        entry.commit();
    }
}

/// The log of a process that ran already begins here, for an observation: with what
/// says so. The caller has the lock.
pub fn join(thread: &Thread, process: &Process, observation: u32) {
    let log = &process.log;
    log.let_go();
    reset(process, 0, 0);
    log.observation.set(observation);
    log.off.set(0);
    let time = arch::ticks();
    let Some(fits) = make_room(thread, process, time) else {
        return;
    };
    let values = process::joined(thread);
    let mut head = log.head_at(fits);
    log.memory().other(&mut head, kind::BEGIN, time, &values, 0);
    log.put_head(process, &head, fits);
    log.next_event.set(log.next_event.get() + 1);
    Entry { process }.show();
}

/// Lets go of the current chunk, as the process's image ends.
pub fn close(process: &Process) {
    process.log.let_go();
}

/// The chunk that a process writes is not this one's business any more.
pub fn forget_chunk(process: &Process) {
    process.log.put_away();
}

/// A fresh log for a process that just began.
pub fn reset(process: &Process, seq: u32, next_event: u64) {
    let log = &process.log;
    log.put_away();
    log.position.set(0);
    log.seq.set(seq);
    log.thread.set(u32::MAX);
    log.next_event.set(next_event);
    // Live, nothing is written unless somebody observes.
    let observation = observe::number();
    log.observation.set(observation);
    log.off.set((mode::is_live() && observation == 0).into());
}
