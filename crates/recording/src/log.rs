//! The log of one process, read record by record.
//!
//! Chunks are loaded one at a time; a record that crosses from one into the
//! next is put together. Times and arguments count from earlier records of
//! the same chunk only (see [`protocol::record`]): where the first record of
//! a chunk begins, the memory of earlier ones is forgotten, exactly as its
//! writer did.

mod parked;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use protocol::id::{EventNo, ProcessNo, ThreadNo, Ticks};
use protocol::record::{self, Memory, VALUES_MAX, begin, kind, tag};
use protocol::shared::CHUNK_HEAD;

use crate::chunk::ChunkHead;
use crate::event::{BlobAt, Blobs, Event, Phase};
use crate::frame;
use crate::recording::{ChunkRef, Recording};

/// Calls of one thread that have begun and not returned. More than one only
/// when signal handlers interrupt calls; an unreasonable number is a log that
/// is not one.
const DEPTH_MAX: usize = 64;

/// How a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// Behind a whole record.
    Whole,
    /// In the middle of a record: the process or the recording was cut short.
    Torn,
    /// A chunk is missing.
    Gap {
        /// Its place among the process's chunks.
        missing: u32,
    },
    /// A chunk cannot be read.
    Unreadable {
        /// Its place among the process's chunks.
        seq: u32,
        /// Why.
        why: String,
    },
    /// What a chunk holds are not records.
    Corrupt {
        /// Its place among the process's chunks.
        seq: u32,
        /// The event that was expected there.
        event: EventNo,
    },
}

impl LogEnd {
    /// Whether events may have been lost behind the end, other than by a
    /// plain cut.
    pub fn is_damage(&self) -> bool {
        !matches!(self, LogEnd::Whole | LogEnd::Torn)
    }
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogEnd::Whole => f.write_str("the log is whole"),
            LogEnd::Torn => f.write_str("the log ends in the middle of a record"),
            LogEnd::Gap { missing } => write!(f, "chunk {missing} of the log is missing"),
            LogEnd::Unreadable { seq, why } => {
                write!(f, "chunk {seq} of the log cannot be read: {why}")
            }
            LogEnd::Corrupt { seq, event } => write!(
                f,
                "chunk {seq} of the log does not hold records where event {event} was expected"
            ),
        }
    }
}

/// A call that has begun and not returned.
#[derive(Clone, Debug, Default)]
struct Outstanding {
    number: u64,
    nr: u64,
    args: [u64; 6],
    bytes: Vec<u8>,
    places: Vec<BlobAt>,
}

impl Outstanding {
    fn keep_blobs(&mut self, blobs: Blobs<'_>) {
        self.bytes.clear();
        self.places.clear();
        for place in blobs.places {
            let bytes = blobs.bytes.get(place.start..place.end).unwrap_or(&[]);
            let start = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            self.places.push(BlobAt {
                tag: place.tag,
                start,
                end: self.bytes.len(),
            });
        }
    }

    fn blobs(&self) -> Blobs<'_> {
        Blobs {
            bytes: &self.bytes,
            places: &self.places,
        }
    }
}

/// The record that was read last, but for its blobs.
struct Current {
    number: u64,
    thread: u32,
    time: u64,
    kind: u8,
    nr: u64,
    args: [u64; 6],
    result: i64,
    values: [u64; VALUES_MAX],
    value_count: usize,
    len: usize,
}

pub use parked::Parked;

/// Reads the log of one process. Made by [`Recording::log`].
pub struct Log<'r> {
    recording: &'r Recording,
    process: ProcessNo,
    chunks: &'r [ChunkRef],
    /// Index of the next chunk to load.
    next: usize,
    expected_seq: u32,
    memory: Box<Memory>,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    /// Where the next record begins in `buffer`.
    at: usize,
    /// Where the bytes of the chunk loaded last begin in `buffer`, and how long that chunk
    /// was.
    chunk_at: usize,
    loaded: usize,
    /// That chunk's head, and where its first record begins in `buffer`,
    /// until that is reached.
    mark: Option<(usize, ChunkHead)>,
    /// Whether that was reached.
    passed_mark: bool,
    thread: u32,
    number: u64,
    current: Option<Current>,
    blobs: Vec<BlobAt>,
    outstanding: HashMap<u32, Vec<Outstanding>, ByNumber>,
    resumed: Option<Outstanding>,
    /// Room of calls that have returned, to be used again.
    spare: Vec<Outstanding>,
    end: Option<LogEnd>,
}

/// For tables by the numbers of processes and threads.
pub(crate) type ByNumber = BuildHasherDefault<ByItself>;

/// Numbers of processes and threads are small and few: each is its own hash.
#[derive(Default)]
pub(crate) struct ByItself(u64);

impl Hasher for ByItself {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u32(&mut self, number: u32) {
        // The table takes its tags from the upper bits.
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl<'r> Log<'r> {
    pub(crate) fn new(
        recording: &'r Recording,
        process: ProcessNo,
        chunks: &'r [ChunkRef],
    ) -> Log<'r> {
        Log {
            recording,
            process,
            chunks,
            next: 0,
            // A log that begins late is read from where it begins.
            expected_seq: chunks.first().map_or(0, |chunk| chunk.seq),
            memory: Box::default(),
            buffer: Vec::new(),
            scratch: Vec::new(),
            at: 0,
            chunk_at: 0,
            loaded: 0,
            mark: None,
            passed_mark: false,
            thread: 0,
            number: 0,
            current: None,
            blobs: Vec::new(),
            outstanding: HashMap::default(),
            resumed: None,
            spare: Vec::new(),
            end: None,
        }
    }

    /// A log that begins `back` chunks before the last in which event `number`,
    /// or one before it, begins, with the first record there. And whether there
    /// are chunks before that.
    pub(crate) fn near(
        recording: &'r Recording,
        process: ProcessNo,
        chunks: &'r [ChunkRef],
        number: EventNo,
        back: usize,
    ) -> (Log<'r>, bool) {
        let begins = |chunk: &ChunkRef| chunk.first_event != frame::NO_EVENT;
        let usable = contiguous(chunks);
        let nearest = usable
            .iter()
            .rposition(|chunk| begins(chunk) && chunk.first_event <= number.0)
            .unwrap_or(0);
        let index = usable
            .get(..=nearest.saturating_sub(back))
            .and_then(|before| before.iter().rposition(begins))
            .unwrap_or(0);
        let from = chunks.get(index..).unwrap_or(&[]);
        let mut log = Log::new(recording, process, from);
        log.load(index > 0);
        (log, index > 0)
    }

    /// Whether the current record is the end of a call whose start has not been
    /// read.
    pub(crate) fn lacks_start(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.kind == kind::END) && self.resumed.is_none()
    }

    /// The process whose log it is.
    pub fn process(&self) -> ProcessNo {
        self.process
    }

    /// Goes to the next event. False at the end of the log.
    pub fn advance(&mut self) -> bool {
        while self.advance_record() {
            if let Some(current) = &self.current
                && kind::is_event(current.kind)
            {
                return true;
            }
        }
        false
    }

    /// Goes on until event `number` is the current one. False if the log
    /// ends before it, or begins behind it.
    pub fn advance_to(&mut self, number: EventNo) -> bool {
        while self.advance() {
            match self.current.as_ref().map(|current| current.number) {
                Some(reached) if reached == number.0 => return true,
                Some(reached) if reached > number.0 => return false,
                _ => {}
            }
        }
        false
    }

    /// Goes to the next record, be it an event or not. False at the end.
    pub fn advance_record(&mut self) -> bool {
        if let Some(current) = self.current.take() {
            self.at += current.len;
        }
        while self.end.is_none() {
            if self.step() {
                return true;
            }
        }
        false
    }

    /// Tries to read a record; loads a chunk if that takes one.
    fn step(&mut self) -> bool {
        if self.at >= self.buffer.len() {
            self.load(false);
            return false;
        }
        if let Some((mark, head)) = self.mark {
            if self.at == mark {
                self.memory.forget(head.first_time);
                self.thread = head.first_thread;
                self.number = head.first_event;
                self.mark = None;
                self.passed_mark = true;
            } else if self.at > mark {
                self.corrupt();
                return false;
            }
        }
        if self.at >= self.chunk_at && !self.passed_mark {
            // A record begins in the chunk before the chunk says one does.
            self.corrupt();
            return false;
        }
        let bytes = self.buffer.get(self.at..).unwrap_or(&[]);
        let (record, len) = match self.memory.read(bytes) {
            Ok(read) => read,
            Err(record::Error::Incomplete) => {
                self.load(false);
                return false;
            }
            Err(record::Error::Corrupt) => {
                self.corrupt();
                return false;
            }
        };
        self.blobs.clear();
        let base = bytes.as_ptr().addr();
        for blob in record.blobs() {
            let start = blob.bytes.as_ptr().addr().wrapping_sub(base);
            self.blobs.push(BlobAt {
                tag: blob.tag,
                start,
                end: start + blob.bytes.len(),
            });
        }
        let current = Current {
            number: self.number,
            thread: self.thread,
            time: record.time,
            kind: record.kind,
            nr: record.nr,
            args: record.args,
            result: record.result,
            values: record.values,
            value_count: record.value_count,
            len,
        };
        self.current = Some(current);
        self.take_note();
        true
    }

    /// Keeps up with what the current record means for later ones.
    fn take_note(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        if kind::is_event(current.kind) {
            self.number = self.number.wrapping_add(1);
        }
        self.spare.extend(self.resumed.take());
        match current.kind {
            kind::THREAD => self.thread = current.values[0] as u32,
            kind::BEGIN => {
                // Neither exec nor fork leaves other threads.
                self.outstanding.clear();
                if current.value_count > 5 {
                    self.thread = current.values[5] as u32;
                    current.thread = self.thread;
                }
            }
            kind::START => {
                let calls = self.outstanding.entry(current.thread).or_default();
                let mut started = self.spare.pop().unwrap_or_default();
                started.number = current.number;
                started.nr = current.nr;
                started.args = current.args;
                started.keep_blobs(Blobs {
                    bytes: self.buffer.get(self.at..).unwrap_or(&[]),
                    places: &self.blobs,
                });
                if calls.len() >= DEPTH_MAX {
                    calls.remove(0);
                }
                calls.push(started);
            }
            kind::END => {
                if let Some(calls) = self.outstanding.get_mut(&current.thread)
                    && let Some(i) = calls.iter().rposition(|call| call.nr == current.nr)
                {
                    // Calls begun inside it that did not return never will.
                    calls.truncate(i + 1);
                    self.resumed = calls.pop();
                }
            }
            _ => {}
        }
    }

    fn corrupt(&mut self) {
        self.end = Some(LogEnd::Corrupt {
            seq: self.expected_seq.wrapping_sub(1),
            event: EventNo(self.number),
        });
    }

    /// Appends the next chunk to the buffer, from its first record on if
    /// `fresh`, or ends the log.
    fn load(&mut self, fresh: bool) {
        let Some(chunk) = self.chunks.get(self.next) else {
            self.end = Some(if self.at < self.buffer.len() {
                LogEnd::Torn
            } else {
                LogEnd::Whole
            });
            return;
        };
        if chunk.seq != self.expected_seq {
            self.end = Some(LogEnd::Gap {
                missing: self.expected_seq,
            });
            return;
        }
        let head = match self.recording.load(chunk, self.process, &mut self.scratch) {
            Ok(head) => head,
            Err(why) => {
                self.end = Some(LogEnd::Unreadable {
                    seq: chunk.seq,
                    why,
                });
                return;
            }
        };
        self.next += 1;
        self.expected_seq = self.expected_seq.wrapping_add(1);
        let from = match head.first_record {
            Some(first) if fresh => first,
            _ => CHUNK_HEAD,
        };
        let bytes = self.scratch.get(from..).unwrap_or(&[]);
        self.buffer.drain(..self.at.min(self.buffer.len()));
        self.at = 0;
        self.chunk_at = self.buffer.len();
        self.loaded = head.used;
        self.buffer.extend_from_slice(bytes);
        self.mark = head
            .first_record
            .map(|first| (self.chunk_at + (first - from), head));
        self.passed_mark = false;
    }

    /// The current record, as an event. `None` before the first and behind
    /// the last.
    pub fn event(&self) -> Option<Event<'_>> {
        let current = self.current.as_ref()?;
        let resumed = self.resumed.as_ref();
        let phase = match current.kind {
            kind::CALL | kind::CLOCK => Phase::Call,
            kind::START => Phase::Start,
            kind::END => Phase::End,
            _ => Phase::None,
        };
        let result = match current.kind {
            // `time` returns what it read.
            kind::CLOCK if current.nr == crate::calls::nr::TIME => {
                Some((current.values[2] / 1_000_000_000) as i64)
            }
            _ => matches!(phase, Phase::Call | Phase::End).then_some(current.result),
        };
        Some(Event {
            process: self.process,
            number: EventNo(current.number),
            thread: ThreadNo(current.thread),
            time: Ticks(current.time),
            kind: current.kind,
            phase,
            nr: current.nr,
            args: resumed.map_or(current.args, |call| call.args),
            args_known: phase != Phase::End || resumed.is_some(),
            result,
            values: current.values.get(..current.value_count).unwrap_or(&[]),
            started: resumed.map(|call| EventNo(call.number)),
            own: Blobs {
                bytes: self.buffer.get(self.at..).unwrap_or(&[]),
                places: &self.blobs,
            },
            start: resumed.map_or_else(Blobs::default, Outstanding::blobs),
        })
    }

    /// What the current record is, at a glance: its kind, call, number and
    /// time. For readers that look for few among many.
    pub fn glance(&self) -> Option<(u8, u64, EventNo, Ticks)> {
        let current = self.current.as_ref()?;
        let (number, time) = (EventNo(current.number), Ticks(current.time));
        Some((current.kind, current.nr, number, time))
    }

    /// Whether bytes with one of these tags belong to the current record, or to
    /// the start of the call that it ends.
    pub fn has_blob(&self, tags: [u8; 2]) -> bool {
        let is = |blob: &BlobAt| tags.contains(&(blob.tag & !tag::PARTIAL));
        let started = self.resumed.as_ref();
        self.current.is_some()
            && (self.blobs.iter().any(is) || started.is_some_and(|call| call.places.iter().any(is)))
    }

    /// Bytes of the current record that are the program's data.
    pub fn data_len(&self) -> u64 {
        match &self.current {
            Some(_) => self.blobs.iter().map(|b| (b.end - b.start) as u64).sum(),
            None => 0,
        }
    }

    /// How the log ended, once it has.
    pub fn end(&self) -> Option<&LogEnd> {
        self.end.as_ref()
    }

    /// Number of the next event.
    pub fn next_number(&self) -> EventNo {
        EventNo(self.number)
    }

    /// The call that `thread` has begun and not returned from: its number,
    /// its event, its arguments.
    pub fn blocked_in(&self, thread: ThreadNo) -> Option<(u64, EventNo, [u64; 6])> {
        let call = self.outstanding.get(&thread.0)?.last()?;
        Some((call.nr, EventNo(call.number), call.args))
    }

    /// Whether the current record begins another image of the process.
    pub fn is_exec(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|c| c.kind == kind::BEGIN && c.values[0] == begin::EXEC)
    }
}

/// The chunks before the first gap.
fn contiguous(chunks: &[ChunkRef]) -> &[ChunkRef] {
    let first = chunks.first().map_or(0, |chunk| chunk.seq);
    let len = chunks
        .iter()
        .zip(first..)
        .take_while(|(chunk, seq)| chunk.seq == *seq)
        .count();
    chunks.get(..len).unwrap_or(&[])
}
