//! Counting everything in a recording, in one pass over all logs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::id::{ProcessNo, Ticks};
use protocol::record::kind;

use crate::log::LogEnd;
use crate::recording::Recording;

/// What there is of one process, or of all.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Bytes of logs, not compressed.
    pub log_bytes: u64,
    /// Bytes of those that are the program's data.
    pub data_bytes: u64,
    /// Bytes of logs in the journal.
    pub stored_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Preemptions, and signals in the middle of computation.
    pub preemptions: u64,
    /// Syscall sites that were patched.
    pub patched_sites: u64,
    /// Time of the last event.
    pub last_time: Ticks,
    /// Calls, by number.
    pub calls: BTreeMap<u64, u64>,
}

/// What there is in a recording.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Of all processes.
    pub total: Counts,
    /// Of each process, by number.
    pub processes: BTreeMap<ProcessNo, Counts>,
    /// Logs that do not end behind a whole record, by process number.
    pub ends: BTreeMap<ProcessNo, LogEnd>,
}

impl Recording {
    /// Reads all logs and counts. Uses all processors.
    pub fn survey(&self) -> Survey {
        let numbers: Vec<ProcessNo> = self.processes().iter().map(|p| p.number).collect();
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Survey::default());
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            while let Some(number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (counts, end) = self.count(*number);
                let mut survey = done.lock().unwrap_or_else(|e| e.into_inner());
                survey.processes.insert(*number, counts);
                if end != LogEnd::Whole {
                    survey.ends.insert(*number, end);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..workers.min(numbers.len()) {
                // Where no thread can be had, there is less help.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let mut survey = done.into_inner().unwrap_or_else(|e| e.into_inner());
        for counts in survey.processes.values() {
            survey.total.add(counts);
        }
        survey
    }

    fn count(&self, number: ProcessNo) -> (Counts, LogEnd) {
        let mut counts = Counts::default();
        if let Some(process) = self.process(number) {
            counts.log_bytes = process.log_bytes;
            counts.stored_bytes = process.stored_bytes;
        }
        let mut threads = BTreeSet::new();
        let mut log = self.log(number);
        while log.advance_record() {
            counts.data_bytes += log.data_len();
            let Some(event) = log.event() else { break };
            if event.kind == kind::PATCH {
                counts.patched_sites += 1;
            }
            if !kind::is_event(event.kind) {
                continue;
            }
            counts.events += 1;
            counts.last_time = event.time;
            threads.insert(event.thread);
            if event.preempted() {
                counts.preemptions += 1;
            }
            if event.is_call() && event.phase != crate::event::Phase::End {
                *counts.calls.entry(event.nr).or_default() += 1;
            }
        }
        counts.threads = threads.len() as u64;
        (counts, log.end().cloned().unwrap_or(LogEnd::Whole))
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.events += other.events;
        self.log_bytes += other.log_bytes;
        self.data_bytes += other.data_bytes;
        self.stored_bytes += other.stored_bytes;
        self.threads += other.threads;
        self.preemptions += other.preemptions;
        self.patched_sites += other.patched_sites;
        self.last_time = self.last_time.max(other.last_time);
        for (nr, count) in &other.calls {
            *self.calls.entry(*nr).or_default() += count;
        }
    }
}
