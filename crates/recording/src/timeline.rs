//! The events of several processes in order of time.
//!
//! Logs are opened when their process begins and closed when they end, so
//! that memory grows with the processes that live at one time, not with all
//! there were.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use protocol::id::{ProcessNo, Ticks};

use crate::event::Event;
use crate::log::Log;
use crate::recording::Recording;

/// Merges the logs of processes by time. Events at one instant keep the order
/// of their processes' numbers.
pub struct Timeline<'r> {
    recording: &'r Recording,
    /// Processes whose logs are not open yet, the earliest last.
    waiting: Vec<(Ticks, ProcessNo)>,
    heap: BinaryHeap<Reverse<(Ticks, ProcessNo, usize)>>,
    open: Vec<Option<Log<'r>>>,
    free: Vec<usize>,
    current: Option<usize>,
}

impl<'r> Timeline<'r> {
    /// The events of these processes.
    pub fn new(
        recording: &'r Recording,
        processes: impl IntoIterator<Item = ProcessNo>,
    ) -> Timeline<'r> {
        let mut waiting: Vec<(Ticks, ProcessNo)> = processes
            .into_iter()
            .filter_map(|number| Some((recording.process(number)?.birth, number)))
            .collect();
        waiting.sort_by_key(|entry| Reverse(*entry));
        waiting.dedup();
        Timeline {
            recording,
            waiting,
            heap: BinaryHeap::new(),
            open: Vec::new(),
            free: Vec::new(),
            current: None,
        }
    }

    /// Goes to the next event. False at the end.
    pub fn advance(&mut self) -> bool {
        if let Some(slot) = self.current.take() {
            self.push(slot);
        }
        while let Some((birth, number)) = self.waiting.last().copied() {
            if self
                .heap
                .peek()
                .is_some_and(|Reverse((time, ..))| *time < birth)
            {
                break;
            }
            self.waiting.pop();
            let log = self.recording.log(number);
            let slot = match self.free.pop() {
                Some(slot) => slot,
                None => {
                    self.open.push(None);
                    self.open.len() - 1
                }
            };
            if let Some(place) = self.open.get_mut(slot) {
                *place = Some(log);
            }
            self.push(slot);
        }
        match self.heap.pop() {
            Some(Reverse((_, _, slot))) => {
                self.current = Some(slot);
                true
            }
            None => false,
        }
    }

    /// Advances the log in `slot` and puts it in the heap, or closes it.
    fn push(&mut self, slot: usize) {
        let Some(place) = self.open.get_mut(slot) else {
            return;
        };
        if let Some(log) = place
            && log.advance()
            && let Some(event) = log.event()
        {
            self.heap.push(Reverse((event.time, event.process, slot)));
        } else {
            *place = None;
            self.free.push(slot);
        }
    }

    /// The current event.
    pub fn event(&self) -> Option<Event<'_>> {
        self.open.get(self.current?)?.as_ref()?.event()
    }
}
