//! The events themselves, as their logs have them, and what the index knows of
//! them and of the threads that they are of.

use protocol::id::{ProcessIx, ThreadNo};
use protocol::syscall::Type;
use recording::descriptors::decides_type;
use recording::{Event, Phase};

use super::{History, clamp, number};
use crate::index::build::NO;
use crate::index::layout::*;
use crate::link::EventId;

impl History {
    fn threads(&self) -> &[ThreadRec] {
        let count = self.index.len(Section::Threads);
        let all = self.index.records(Section::Threads, 0, count);
        all.all()
    }

    /// The names of threads that have one of their own.
    pub fn thread_names(&self) -> Vec<(ProcessIx, ThreadNo, String)> {
        self.threads()
            .iter()
            .filter(|thread| thread.name.count.get() > 0)
            .map(|thread| {
                let name = self.text(thread.name);
                let process = ProcessIx(thread.process.get());
                (process, ThreadNo(thread.thread.get()), name)
            })
            .collect()
    }

    /// The threads that have no name of their own, but for first ones, and the
    /// first event at which each does what it is there for.
    pub fn unnamed_threads(&self) -> Vec<(ThreadNo, EventId)> {
        self.threads()
            .iter()
            .filter(|thread| thread.name.count.get() == 0 && thread.thread.get() != 0)
            .filter(|thread| thread.used.get() != NO)
            .map(|thread| {
                let process = ProcessIx(thread.process.get());
                let used = EventId::new(process, number(thread.used.get()));
                (ThreadNo(thread.thread.get()), used)
            })
            .collect()
    }

    /// The type of an event, which was found by reading its log: reading a file
    /// is not receiving, so that it depends on what its descriptor led to then.
    pub fn type_of(&self, event: EventId, found: &Event<'_>) -> Type {
        match decides_type(found) {
            Some(fd) if self.leads_to_file(event, fd) => Type::File,
            _ => found.type_(),
        }
    }

    /// Whether a descriptor led to a file, as an event sees it.
    fn leads_to_file(&self, event: EventId, fd: i32) -> bool {
        let fd = fd.cast_unsigned();
        let range = self.record(event.process).files;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        let all = self.index.records::<FileRec>(Section::Files, from, count);
        let at = clamp(event.number);
        // Those of a descriptor do not overlap: the last that has begun.
        let end = all.partition_point(|span| (span.fd.get(), span.from.get()) <= (fd, at));
        let last = end.checked_sub(1).and_then(|i| all.get(i));
        last.is_some_and(|span| span.fd.get() == fd && at < span.to.get())
    }

    /// Events themselves, each given to `look`, those of one process in order.
    /// Reading one is reading part of a log up to it: those that lie near each
    /// other are read together.
    pub fn look_all(&self, events: &[EventId], mut look: impl FnMut(EventId, &Event<'_>)) {
        const NEAR: u64 = 20_000;
        let mut events = events.to_vec();
        events.sort_unstable();
        events.dedup();
        for group in
            events.chunk_by(|a, b| a.process == b.process && b.number.since(a.number) <= NEAR)
        {
            let Some(first) = group.first() else { continue };
            let Some(mut log) = self.set.log_near(first.process, first.number) else {
                continue;
            };
            for event in group {
                if !log.advance_to(event.number) {
                    break;
                }
                match log.event() {
                    // It began before what was read here.
                    Some(found) if found.phase == Phase::End && found.started.is_none() => {
                        self.look(*event, |found| look(*event, found));
                    }
                    Some(found) => look(*event, &found),
                    None => {}
                }
            }
        }
    }

    /// The event itself, given to `look`.
    pub fn look<T>(&self, event: EventId, look: impl FnOnce(&Event<'_>) -> T) -> Option<T> {
        let log = self.set.log_at(event.process, event.number)?;
        log.event().map(|event| look(&event))
    }
}
