//! Where a log was at its end, to go on from there when it has grown.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use protocol::id::ProcessNo;
use protocol::record::Memory;

use super::{ByItself, Log, LogEnd, Outstanding};
use crate::recording::Recording;

/// The end of a log that grows, and what it takes to read on behind it: nothing that was read
/// is read again.
pub struct Parked {
    /// The chunk that was the last, and how much of it there was.
    seq: u32,
    used: usize,
    memory: Box<Memory>,
    thread: u32,
    number: u64,
    outstanding: HashMap<u32, Vec<Outstanding>, BuildHasherDefault<ByItself>>,
}

impl Log<'_> {
    /// Where it ends, if it was read to its end and that is whole.
    pub fn park(self) -> Option<Parked> {
        let is_whole = self.end == Some(LogEnd::Whole) && self.passed_mark;
        let last = self
            .next
            .checked_sub(1)
            .and_then(|at| self.chunks.get(at))?;
        is_whole.then_some(Parked {
            seq: last.seq,
            used: self.loaded,
            memory: self.memory,
            thread: self.thread,
            number: self.number,
            outstanding: self.outstanding,
        })
    }
}

impl Recording {
    /// The log of a process, behind where one was parked that was read before. `None`: there is
    /// no such place in it.
    pub fn log_behind(&self, process: ProcessNo, parked: Parked) -> Option<Log<'_>> {
        let chunks = self.chunks(process);
        let index = chunks.iter().position(|chunk| chunk.seq == parked.seq)?;
        let mut log = Log::new(self, process, chunks.get(index..)?);
        log.load(false);
        log.mark = None;
        log.passed_mark = true;
        let behind = parked.used.checked_sub(protocol::shared::CHUNK_HEAD)?;
        log.at = Some(behind).filter(|at| *at <= log.buffer.len())?;
        log.memory = parked.memory;
        log.thread = parked.thread;
        log.number = parked.number;
        log.outstanding = parked.outstanding;
        Some(log)
    }
}
