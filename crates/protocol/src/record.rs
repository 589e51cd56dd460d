//! The encoding of the log.
//!
//! A process's log is a stream of records, cut into chunks. A record is a
//! kind byte, a time, a few integers and any number of *blobs* (bytes the
//! kernel wrote, names the program passed). Integers are variable-length;
//! times count from the record before; the arguments of a call count from the
//! arguments of the last call with the same number, because loops repeat
//! themselves. All of that memory is forgotten at each chunk, so that reading
//! can start at any chunk.
//!
//! Records delimit themselves. The reader tells a record that is not all
//! there yet ([`Error::Incomplete`]) from one that cannot be
//! ([`Error::Corrupt`]), and never panics on any input.

use crate::shared::TICK_SHIFT;
use crate::syscall::SYSCALLS_END;

/// What a log time leaves out of the counter.
const COUNTER_LOW: u64 = (1 << TICK_SHIFT) - 1;
const _: () = assert!(COUNTER_LOW == 15, "it goes into half a byte");

/// Kinds of records. The low four bits of the first byte.
pub mod kind {
    /// A call that cannot block: arguments, result, blobs.
    pub const CALL: u8 = 1;
    /// A call that may block begins: arguments, blobs.
    pub const START: u8 = 2;
    /// It returned: result, blobs.
    pub const END: u8 = 3;
    /// Another thread of the process runs from here. Not an event.
    /// Values: thread number.
    pub const THREAD: u8 = 4;
    /// A signal reached the program. Values: signal number, [`super::at`].
    /// Blobs: siginfo, and for [`super::at::PREEMPTED`] registers and digest.
    pub const SIGNAL: u8 = 5;
    /// A thread lost its turn in the middle of its code. Blobs: registers,
    /// digest.
    pub const PREEMPT: u8 = 6;
    /// A thread begins. Values: thread number, kernel's id, start address,
    /// number of the thread that made it.
    pub const THREAD_START: u8 = 7;
    /// A syscall site was patched. Not an event. Values: site, stub, patch
    /// start. Blobs: the original bytes.
    pub const PATCH: u8 = 8;
    /// The turn came from another process's log. Not an event. Values: domain,
    /// sequence number, number of the process that had it before (`u32::MAX` =
    /// nobody, one less: one that has exec'd since).
    pub const TURN: u8 = 9;
    /// A process, or a new image of it, begins. Values: [`super::begin`],
    /// parent's number, the parent's event, kernel's id (in the upper half the
    /// pid namespace it is of, 0 for the recorder's), image number, thread.
    pub const BEGIN: u8 = 10;
    /// The program read the time-stamp counter. What is otherwise the number of
    /// blobs is the low bits of the value, whose others are the time. Values:
    /// value, auxiliary, length of the instruction.
    pub const TSC: u8 = 11;
    /// The monitor took memory for stubs. Not an event. Values: address,
    /// length.
    pub const STUBS: u8 = 12;
    /// The program ran an instruction that is answered by the processor
    /// ([`crate::instruction`]). Values: which; what it was asked with; what it
    /// answered ([`super::answer`]).
    pub const ANSWER: u8 = 13;

    /// A clock was read. What is otherwise the number of blobs says by which
    /// call ([`super::clock`]); the value counts from the last one read.
    pub const CLOCK: u8 = 14;

    /// Instructions whose answers are recorded were replaced in code that was
    /// just mapped. Not an event. Values: the code's `PROT_` bits. Blobs: a word
    /// for each ([`crate::instruction::Form::at`]).
    pub const SITES: u8 = 15;

    /// Whether a record of this kind is an event with a number.
    pub const fn is_event(kind: u8) -> bool {
        !matches!(kind, THREAD | PATCH | TURN | STUBS | SITES)
    }
}

/// The values of [`kind::ANSWER`], after which instruction it was.
pub mod answer {
    /// Two words it was asked with: `eax` and `ecx` of `cpuid`, the selector of
    /// `lsl`.
    pub const ASKED: usize = 1;
    /// Four words it answered: the registers of `cpuid` (a, b, c, d); else the
    /// value, and the flag that says whether there is one.
    pub const ANSWERED: usize = 3;
    pub const VALUES: usize = 7;
}

/// Where a signal reached the program.
pub mod at {
    /// Before a call was made: the call follows when the handler returns.
    pub const CALL_ENTRY: u64 = 0;
    /// At the end of a call.
    pub const CALL_EXIT: u64 = 1;
    /// Caused by the instruction itself (a fault).
    pub const FAULT: u64 = 2;
    /// In the middle of computation: registers say where.
    pub const PREEMPTED: u64 = 3;
}

/// How a clock was read: programs do it so often that it has a record of its
/// own.
pub mod clock {
    pub const MONOTONIC: u8 = 0;
    pub const REALTIME: u8 = 1;
    /// `clock_gettime` of the clock whose number follows.
    pub const OTHER: u8 = 2;
    pub const GETTIMEOFDAY: u8 = 3;
    pub const TIME: u8 = 4;
    pub(super) const COUNT: usize = 5;

    /// System call number and clock of each.
    pub const fn call(how: u8, other: u64) -> (u64, u64) {
        match how {
            MONOTONIC => (228, 1),
            REALTIME => (228, 0),
            OTHER => (228, other),
            GETTIMEOFDAY => (96, 0),
            _ => (201, 0),
        }
    }
}

/// How a process began (value 0 of [`kind::BEGIN`]).
pub mod begin {
    pub const FIRST: u64 = 0;
    pub const EXEC: u64 = 1;
    pub const FORK: u64 = 2;
    /// Shares its parent's memory until it execs or exits.
    pub const VFORK: u64 = 3;
}

/// What [`tag::OBJECT`] says of a call.
pub mod object {
    /// In place of the offset: nothing was written.
    pub const NOWHERE: u64 = u64::MAX;
    /// In place of the key, which is odd: the process's own memory, and the
    /// offset is an address.
    pub const MEMORY: u64 = 0;
}

/// Tags of blobs. Below 6: what the argument of that number points to.
pub mod tag {
    /// The blob is the beginning of longer data, followed by the data's
    /// length and a digest of it (8 bytes each).
    pub const PARTIAL: u8 = 0x40;
    /// The blob is what was there before the call (of an argument the kernel
    /// both reads and writes).
    pub const BEFORE: u8 = 0x20;
    /// A word (its address, u64) that the kernel had cleared by then, because a child
    /// that shares the memory was killed.
    pub const CLEARED: u8 = 0x08;
    pub const SIGINFO: u8 = 0x10;
    pub const REGISTERS: u8 = 0x11;
    pub const DIGEST: u8 = 0x12;
    /// Own and other address of the socket a call made or connected.
    pub const LOCAL: u8 = 0x13;
    pub const PEER: u8 = 0x14;
    /// Captured file: its id (u64).
    pub const FILE: u8 = 0x15;
    /// Sender of received ancillary data, control bytes.
    pub const CONTROL: u8 = 0x16;
    pub const NAME: u8 = 0x17;
    /// `msg_flags`, and lengths written back to a message header.
    pub const HEADER: u8 = 0x18;
    /// Number of a process (u64) a call made.
    pub const CHILD: u8 = 0x19;
    /// Identity of a descriptor: device, inode, mode (u64 each).
    pub const IDENTITY: u8 = 0x1a;
    /// Original bytes of a patched site; the sites of [`super::kind::SITES`].
    pub const CODE: u8 = 0x1b;
    /// The path a descriptor-made name resolves to.
    pub const PATH: u8 = 0x1c;
    /// Second piece of an argument (messages of a vector).
    pub const PIECE: u8 = 0x1d;
    /// What memory is backed by that shows changes: a key of its own (u64). Of a
    /// file that is mapped, its size follows. Of a call that wrote to one or
    /// changed its size, the offset ([`super::object`]) and the size it has then.
    pub const OBJECT: u8 = 0x1e;
    /// Process that is at the other end of an accepted unix socket: the
    /// kernel's id of it (u64).
    pub const CREDENTIALS: u8 = 0x1f;
    /// The call was not made: what a filter of the program's own said (u64).
    pub const FILTERED: u8 = 0x2f;
}

pub const VALUES_MAX: usize = 8;
/// Longest possible record head: kind, number, time, mask, six arguments,
/// result, or the values.
pub const HEAD_MAX: usize = 1 + 10 * (2 + 1 + VALUES_MAX + 1) + 2;

/// A record's head, written straight to where it belongs.
pub struct Head<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Head<'a> {
    /// `bytes` has room for [`HEAD_MAX`]; what does not fit is not written.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Head<'a> {
        Head { bytes, len: 0 }
    }
    /// How many bytes were written.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    #[inline]
    pub fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }
    /// Seven bits a byte, the lowest first. Nearly all values are short, and
    /// how short changes from record to record, which no processor foresees: so
    /// it is found out without a branch.
    #[inline(always)]
    pub fn varint(&mut self, value: u64) {
        const SHORT: u64 = 1 << 28;
        if value < SHORT
            && let Some(place) = self.bytes.get_mut(self.len..self.len + 4)
        {
            let value = value as u32;
            let spread = value & 0x7f
                | (value & 0x3f80) << 1
                | (value & 0x1f_c000) << 2
                | (value & 0xfe0_0000) << 3;
            let more =
                u32::from(value > 0x7f) + u32::from(value > 0x3fff) + u32::from(value > 0x1f_ffff);
            let marks = 0x80_8080 & ((1 << (8 * more)) - 1);
            place.copy_from_slice(&(spread | marks).to_le_bytes());
            self.len += 1 + more as usize;
        } else {
            self.long_varint(value);
        }
    }

    #[cold]
    fn long_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }
    #[inline]
    pub fn signed(&mut self, value: i64) {
        self.varint(zigzag(value));
    }
    /// The head of a blob: tag and length.
    #[inline]
    pub fn blob(&mut self, tag: u8, len: usize) {
        self.byte(tag);
        self.varint(len as u64);
    }
}

#[inline]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}
#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// What writer and reader remember of earlier records.
#[repr(C)]
pub struct Memory {
    last: [[u64; 6]; SYSCALLS_END],
    stamp: [u32; SYSCALLS_END],
    epoch: u32,
    clocks: [u64; clock::COUNT],
    pub time: u64,
}

impl Memory {
    pub const fn new() -> Memory {
        Memory {
            last: [[0; 6]; SYSCALLS_END],
            stamp: [0; SYSCALLS_END],
            epoch: 1,
            clocks: [0; clock::COUNT],
            time: 0,
        }
    }

    /// Forget everything: a new chunk begins, its times counting from `time`.
    pub fn forget(&mut self, time: u64) {
        // Zeroed memory is a valid Memory whose epoch is 0: the first call
        // makes it 1, which no stamp has.
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.stamp = [0; SYSCALLS_END];
            self.epoch = 1;
        }
        self.clocks = [0; clock::COUNT];
        self.time = time;
    }

    #[inline]
    fn row(&mut self, nr: u64) -> &mut [u64; 6] {
        let index = (nr as usize).min(SYSCALLS_END - 1) & (SYSCALLS_END - 1);
        if self.stamp[index] != self.epoch {
            self.stamp[index] = self.epoch;
            self.last[index] = [0; 6];
        }
        &mut self.last[index]
    }

    #[inline]
    fn elapsed(&mut self, time: u64) -> u64 {
        // Counters of two cores may differ by a hair: never go back.
        let delta = time.saturating_sub(self.time);
        self.time += delta;
        delta
    }

    #[inline]
    fn arguments(&mut self, head: &mut Head<'_>, nr: u64, args: &[u64; 6], count: usize) {
        let row = self.row(nr);
        let place = head.len;
        let mut mask = 0u8;
        head.byte(mask);
        for (i, (last, arg)) in row.iter_mut().zip(args).take(count).enumerate() {
            if *last != *arg {
                mask |= 1 << i;
                head.signed(arg.wrapping_sub(*last) as i64);
                *last = *arg;
            }
        }
        if let Some(place) = head.bytes.get_mut(place) {
            *place = mask;
        }
    }

    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the fields of a record")]
    pub fn call(
        &mut self,
        head: &mut Head<'_>,
        nr: u64,
        time: u64,
        args: &[u64; 6],
        count: usize,
        result: i64,
        blobs: u8,
    ) {
        head.byte(kind::CALL | blobs << 4);
        head.varint(nr);
        let delta = self.elapsed(time);
        head.varint(delta);
        self.arguments(head, nr, args, count);
        head.signed(result);
    }

    #[inline]
    pub fn start(
        &mut self,
        head: &mut Head<'_>,
        nr: u64,
        time: u64,
        args: &[u64; 6],
        count: usize,
        blobs: u8,
    ) {
        head.byte(kind::START | blobs << 4);
        head.varint(nr);
        let delta = self.elapsed(time);
        head.varint(delta);
        self.arguments(head, nr, args, count);
    }

    #[inline]
    pub fn end(&mut self, head: &mut Head<'_>, nr: u64, time: u64, result: i64, blobs: u8) {
        head.byte(kind::END | blobs << 4);
        head.varint(nr);
        let delta = self.elapsed(time);
        head.varint(delta);
        head.signed(result);
    }

    /// A clock read: `value` in nanoseconds.
    #[inline(always)]
    pub fn clock(&mut self, head: &mut Head<'_>, how: u8, other: u64, time: u64, value: u64) {
        head.byte(kind::CLOCK | how << 4);
        let delta = self.elapsed(time);
        head.varint(delta);
        if how == clock::OTHER {
            head.varint(other);
        }
        let last = &mut self.clocks[usize::from(how) % clock::COUNT];
        head.signed(value.wrapping_sub(*last) as i64);
        *last = value;
    }

    /// A read of the counter itself, `rdtscp` if there is an auxiliary value.
    /// Returns what the program shall see: the counters of two cores may
    /// differ by a hair, but the log's time does not go back.
    #[inline]
    pub fn counter(&mut self, head: &mut Head<'_>, counter: u64, auxiliary: Option<u32>) -> u64 {
        let low = counter & COUNTER_LOW;
        head.byte(kind::TSC | (low as u8) << 4);
        let delta = self.elapsed(counter >> TICK_SHIFT);
        head.varint(delta << 1 | u64::from(auxiliary.is_some()));
        if let Some(auxiliary) = auxiliary {
            head.varint(auxiliary.into());
        }
        self.time << TICK_SHIFT | low
    }

    pub fn other(&mut self, head: &mut Head<'_>, kind: u8, time: u64, values: &[u64], blobs: u8) {
        head.byte((kind & 15) | blobs << 4);
        let delta = self.elapsed(time);
        head.varint(delta);
        let count = values.len().min(VALUES_MAX);
        head.byte(count as u8);
        for value in values.iter().take(count) {
            head.signed(*value as i64);
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

/// Number of blobs in a record is at most this.
pub const BLOBS_MAX: u8 = 15;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The bytes end before the record does.
    Incomplete,
    /// No record begins like this.
    Corrupt,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Error::Incomplete => "the record is cut short",
            Error::Corrupt => "the bytes are not a record",
        })
    }
}

impl core::error::Error for Error {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blob<'a> {
    pub tag: u8,
    pub bytes: &'a [u8],
}

impl<'a> Blob<'a> {
    pub fn as_u64(&self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes.get(..8)?.try_into().ok()?))
    }
}

/// One record, read.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub kind: u8,
    /// In ticks (see [`crate::shared::TICK_SHIFT`]).
    pub time: u64,
    /// For calls.
    pub nr: u64,
    pub args: [u64; 6],
    pub result: i64,
    /// For other kinds.
    pub values: [u64; VALUES_MAX],
    pub value_count: usize,
    blob_count: u8,
    blobs: &'a [u8],
}

impl<'a> Record<'a> {
    pub fn blobs(&self) -> Blobs<'a> {
        Blobs {
            left: self.blob_count,
            bytes: self.blobs,
        }
    }
    pub fn blob(&self, tag: u8) -> Option<Blob<'a>> {
        self.blobs().find(|b| b.tag == tag)
    }
    pub fn is_event(&self) -> bool {
        kind::is_event(self.kind)
    }
    /// Bytes of the record that are data of the program's, not ours.
    pub fn data_len(&self) -> usize {
        self.blobs().map(|b| b.bytes.len()).sum()
    }
}

#[derive(Clone, Debug)]
pub struct Blobs<'a> {
    left: u8,
    bytes: &'a [u8],
}

impl<'a> Iterator for Blobs<'a> {
    type Item = Blob<'a>;
    fn next(&mut self) -> Option<Blob<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let mut input = Input {
            bytes: self.bytes,
            at: 0,
        };
        let blob = input.blob().ok()?;
        self.bytes = self.bytes.get(input.at..)?;
        Some(blob)
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, Error> {
        let byte = *self.bytes.get(self.at).ok_or(Error::Incomplete)?;
        self.at += 1;
        Ok(byte)
    }
    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Error::Corrupt);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
            if shift > 63 {
                return Err(Error::Corrupt);
            }
        }
    }
    fn signed(&mut self) -> Result<i64, Error> {
        Ok(unzigzag(self.varint()?))
    }
    fn blob(&mut self) -> Result<Blob<'a>, Error> {
        let tag = self.byte()?;
        let len = usize::try_from(self.varint()?).map_err(|_| Error::Corrupt)?;
        let end = self.at.checked_add(len).ok_or(Error::Corrupt)?;
        let bytes = self.bytes.get(self.at..end).ok_or(Error::Incomplete)?;
        self.at = end;
        Ok(Blob { tag, bytes })
    }
}

impl Memory {
    /// Reads the record at the beginning of `bytes`; returns it and its
    /// length. On an error nothing is remembered of it.
    pub fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<(Record<'a>, usize), Error> {
        let mut input = Input { bytes, at: 0 };
        let first = input.byte()?;
        let mut record = Record {
            kind: first & 15,
            time: 0,
            nr: 0,
            args: [0; 6],
            result: 0,
            values: [0; VALUES_MAX],
            value_count: 0,
            blob_count: first >> 4,
            blobs: &[],
        };
        let mut mask = 0;
        match record.kind {
            kind::CALL | kind::START | kind::END => {
                record.nr = input.varint()?;
                record.time = input.varint()?;
                if record.kind != kind::END {
                    mask = input.byte()?;
                    if mask & 0xc0 != 0 {
                        return Err(Error::Corrupt);
                    }
                    for i in 0..6 {
                        if mask & (1 << i) != 0 {
                            record.args[i] = input.signed()? as u64;
                        }
                    }
                }
                if record.kind != kind::START {
                    record.result = input.signed()?;
                }
            }
            kind::CLOCK => {
                let how = first >> 4;
                if usize::from(how) >= clock::COUNT {
                    return Err(Error::Corrupt);
                }
                record.blob_count = 0;
                record.time = input.varint()?;
                let other = if how == clock::OTHER {
                    input.varint()?
                } else {
                    0
                };
                let value = input.signed()? as u64;
                let (nr, id) = clock::call(how, other);
                record.nr = nr;
                record.values[..3].copy_from_slice(&[u64::from(how), id, value]);
                record.value_count = 3;
            }
            kind::TSC => {
                record.blob_count = 0;
                let delta = input.varint()?;
                record.time = delta >> 1;
                record.values[0] = u64::from(first >> 4);
                record.values[2] = 2;
                if delta & 1 != 0 {
                    record.values[1] = input.varint()?;
                    record.values[2] = 3;
                }
                record.value_count = 3;
            }
            kind::THREAD
            | kind::SIGNAL
            | kind::PREEMPT
            | kind::THREAD_START
            | kind::PATCH
            | kind::TURN
            | kind::BEGIN
            | kind::STUBS
            | kind::ANSWER
            | kind::SITES => {
                record.time = input.varint()?;
                let count = usize::from(input.byte()?);
                if count > VALUES_MAX {
                    return Err(Error::Corrupt);
                }
                for value in record.values.iter_mut().take(count) {
                    *value = input.signed()? as u64;
                }
                record.value_count = count;
            }
            _ => return Err(Error::Corrupt),
        }
        let blobs_at = input.at;
        for _ in 0..record.blob_count {
            input.blob()?;
        }
        record.blobs = bytes.get(blobs_at..input.at).unwrap_or(&[]);

        // All there: now it may be remembered.
        self.time = self.time.wrapping_add(record.time);
        record.time = self.time;
        if record.kind == kind::TSC {
            record.values[0] |= self.time << TICK_SHIFT;
        }
        if record.kind == kind::CLOCK {
            let last = &mut self.clocks[record.values[0] as usize % clock::COUNT];
            *last = last.wrapping_add(record.values[2]);
            record.values[2] = *last;
        }
        if matches!(record.kind, kind::CALL | kind::START) {
            let row = self.row(record.nr);
            for (i, last) in row.iter_mut().enumerate() {
                if mask & (1 << i) != 0 {
                    *last = last.wrapping_add(record.args[i]);
                }
                record.args[i] = *last;
            }
        }
        Ok((record, input.at))
    }
}

/// A digest of sent data, cheap enough to make of every message: what replay
/// sends is compared with it. Of long data only both ends are looked at.
pub fn digest(data: &[u8]) -> u64 {
    const EDGE: usize = 2048;
    let mut hash = 0x9e37_79b9_7f4a_7c15u64 ^ data.len() as u64;
    if data.len() <= 2 * EDGE {
        mix_all(&mut hash, data);
    } else {
        mix_all(&mut hash, data.get(..EDGE).unwrap_or(&[]));
        mix_all(&mut hash, data.get(data.len() - EDGE..).unwrap_or(&[]));
    }
    hash ^ hash >> 29
}

fn mix_all(hash: &mut u64, data: &[u8]) {
    // Four at a time: each step waits for the one before it, not for those
    // beside it.
    let mut quads = data.chunks_exact(32);
    let mut lanes = [*hash, 1, 2, 3];
    for quad in &mut quads {
        for (lane, word) in lanes.iter_mut().zip(quad.chunks_exact(8)) {
            mix(lane, word_of(word));
        }
    }
    for lane in lanes {
        mix(hash, lane);
    }
    let mut words = quads.remainder().chunks_exact(8);
    for word in &mut words {
        mix(hash, word_of(word));
    }
    let rest = words.remainder();
    mix(
        hash,
        rest.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    );
}

#[inline(always)]
fn mix(hash: &mut u64, word: u64) {
    *hash = (*hash ^ word)
        .wrapping_mul(0xff51_afd7_ed55_8ccd)
        .rotate_left(31);
}

#[inline(always)]
fn word_of(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk::<8>()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that `write` makes.
    fn head(write: impl FnOnce(&mut Head<'_>)) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_MAX];
        let mut head = Head::new(&mut bytes);
        write(&mut head);
        let len = head.len();
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Memory::new();
        let mut reader = Memory::new();
        writer.forget(1000);
        reader.forget(1000);
        let mut log = Vec::new();
        let args = [5, 0x7fff_1234_5678, 4096, 0, 0, u64::MAX];
        log.extend(head(|h| writer.call(h, 0, 1010, &args, 3, 17, 1)));
        log.extend(head(|h| h.blob(1, 4)));
        log.extend(b"data");
        log.extend(head(|h| writer.start(h, 1, 1020, &args, 6, 0)));
        log.extend(head(|h| writer.end(h, 1, 1500, -11, 0)));
        log.extend(head(|h| {
            writer.clock(h, clock::GETTIMEOFDAY, 0, 1500, 7_000_000_123)
        }));
        log.extend(head(|h| {
            writer.clock(h, clock::GETTIMEOFDAY, 0, 1500, 7_000_000_500)
        }));
        log.extend(head(|h| {
            writer.other(h, kind::SIGNAL, 1501, &[11, u64::MAX], 0)
        }));

        let counter = 1510 << TICK_SHIFT | 9;
        log.extend(head(|h| {
            assert_eq!(writer.counter(h, counter, None), counter);
        }));
        // Another core is behind: the log's time stays.
        log.extend(head(|h| {
            assert_eq!(writer.counter(h, counter - 32, Some(0x1003)), counter);
        }));

        let mut at = 0;
        let mut next = || {
            let (record, len) = reader.read(&log[at..]).unwrap();
            at += len;
            record
        };
        let r = next();
        assert_eq!((r.kind, r.nr, r.time, r.result), (kind::CALL, 0, 1010, 17));
        assert_eq!(&r.args[..3], &args[..3]);
        assert_eq!(r.blob(1).unwrap().bytes, b"data");
        let r = next();
        assert_eq!((r.kind, r.nr, r.time), (kind::START, 1, 1020));
        assert_eq!(r.args, args);
        let r = next();
        assert_eq!((r.kind, r.result, r.time), (kind::END, -11, 1500));
        for value in [7_000_000_123, 7_000_000_500] {
            let r = next();
            assert_eq!((r.kind, r.nr, r.values[2]), (kind::CLOCK, 96, value));
        }
        let r = next();
        assert_eq!((r.values[0], r.values[1]), (11, u64::MAX));
        for values in [[counter, 0, 2], [counter, 0x1003, 3]] {
            let r = next();
            assert_eq!(
                (r.kind, r.time, &r.values[..3]),
                (kind::TSC, 1510, &values[..])
            );
        }
        assert_eq!(at, log.len());
    }

    #[test]
    fn every_prefix_is_incomplete_and_leaves_no_trace() {
        let mut writer = Memory::new();
        writer.forget(0);
        let args = [3, 0x7f00_0000_0000, 100, 7, 8, 9];
        let mut log = head(|h| writer.call(h, 9, 5, &args, 6, 1 << 40, 1));
        log.extend(head(|h| h.blob(3, 300)));
        log.extend([7; 300]);
        let mut reader = Memory::new();
        reader.forget(0);
        for len in 0..log.len() {
            assert_eq!(
                reader.read(&log[..len]).unwrap_err(),
                Error::Incomplete,
                "{len}"
            );
        }
        let (record, len) = reader.read(&log).unwrap();
        assert_eq!((record.args, len), (args, log.len()));
    }

    #[test]
    fn a_loop_of_reads_costs_few_bytes() {
        let mut writer = Memory::new();
        writer.forget(0);
        let args = [8, 0x7f12_3456_7890, 16384, 0, 0, 0];
        head(|h| writer.call(h, 0, 100, &args, 3, 30, 1));
        assert!(head(|h| writer.call(h, 0, 400, &args, 3, 30, 1)).len() <= 8);
    }

    #[test]
    fn garbage_never_panics() {
        let mut seed = crate::seed::seed("garbage", 1);
        for _ in 0..20_000 {
            let mut bytes = [0u8; 40];
            for byte in &mut bytes {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                *byte = (seed >> 33) as u8;
            }
            let mut memory = Memory::new();
            memory.forget(0);
            if let Ok((record, len)) = memory.read(&bytes) {
                assert!(len <= bytes.len());
                let blobs = if matches!(record.kind, kind::CLOCK | kind::TSC) {
                    0
                } else {
                    bytes[0] >> 4
                };
                assert_eq!(record.blobs().count(), usize::from(blobs));
            }
        }
    }
}
