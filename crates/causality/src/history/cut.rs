//! Cuts: states of the whole program, and what they say of the order of events.

use protocol::id::{EventNo, ProcessIx};
use recording::Event;

use super::{History, clamp, number};
use crate::clock::{self, Graph};
use crate::index::layout::*;
use crate::interruption::{TOGETHER_NS, is_broken_off};
use crate::link::EventId;
use crate::world::End;

/// One position per process: how many of its first events are inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut(pub(crate) Vec<u32>);

impl Cut {
    /// With these numbers of events inside, of each process.
    pub fn new(bounds: Vec<u32>) -> Cut {
        Cut(bounds)
    }

    /// The first event of a process that is not inside.
    pub fn bound(&self, process: ProcessIx) -> EventNo {
        let inside = self.0.get(process.index()).copied();
        EventNo(inside.map_or(0, u64::from))
    }

    /// The last event of a process that is inside.
    pub fn last(&self, process: ProcessIx) -> Option<EventNo> {
        self.bound(process).0.checked_sub(1).map(EventNo)
    }

    /// Whether an event is inside.
    pub fn has(&self, event: EventId) -> bool {
        event.number < self.bound(event.process)
    }

    /// The processes that it is about.
    pub fn processes(&self) -> impl Iterator<Item = ProcessIx> + use<> {
        (0..self.0.len() as u32).map(ProcessIx)
    }
}

/// How two events are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// They are one.
    Same,
    /// The first happened before the second.
    Before,
    /// The second happened before the first.
    After,
    /// Neither knew of the other.
    Concurrent,
}

impl History {
    /// The causal past of an event, itself included: the earliest state that
    /// explains it.
    pub fn past(&self, event: EventId) -> Cut {
        Cut(clock::past(self, &[(event.process.0, clamp(event.number))]))
    }

    /// The causal past of several events.
    pub fn past_of(&self, events: &[EventId]) -> Cut {
        let events: Vec<(u32, u32)> = events
            .iter()
            .map(|event| (event.process.0, clamp(event.number)))
            .collect();
        Cut(clock::past(self, &events))
    }

    /// Of each process, the first event that happened after this one (of its
    /// own process, itself); `None` where there is none.
    pub fn future(&self, event: EventId) -> Vec<Option<EventNo>> {
        self.future_of(&[event])
    }

    /// Of each process, the first event that happened after any of these, or is one of
    /// them; `None` where there is none.
    pub fn future_of(&self, events: &[EventId]) -> Vec<Option<EventNo>> {
        let mut first = vec![u32::MAX; self.set.len()];
        let mut work = Vec::new();
        for event in events {
            let own = clamp(event.number);
            if let Some(place) = first.get_mut(event.process.index())
                && own < *place
            {
                work.push((event.process, own, *place));
                *place = own;
            }
        }
        while let Some((process, from, to)) = work.pop() {
            let all = self.outgoing(process);
            let begin = all.partition_point(|record| record.cause.get() < from);
            for record in all.forward(begin) {
                if record.cause.get() >= to {
                    break;
                }
                let other = ProcessIx(record.effect_process.get());
                let effect = record.effect.get();
                if let Some(place) = first.get_mut(other.index())
                    && effect < *place
                {
                    work.push((other, effect, *place));
                    *place = effect;
                }
            }
        }
        first
            .into_iter()
            .map(|first| (first != u32::MAX).then_some(number(first)))
            .collect()
    }

    /// The furthest that every other process can have come without seeing past
    /// an event.
    pub fn latest(&self, event: EventId) -> Cut {
        let (_, last) = self.span(event.process);
        let next = EventId::new(event.process, event.number.next());
        let mut bounds: Vec<u32> = if event.number < last {
            let seen = self.future(next);
            seen.into_iter()
                .zip(self.places())
                .map(|(first, place)| first.map_or_else(|| self.end(place), clamp))
                .collect()
        } else {
            self.places().map(|place| self.end(place)).collect()
        };
        if let Some(own) = bounds.get_mut(event.process.index()) {
            *own = clamp(event.number.next());
        }
        Cut(bounds)
    }

    /// The cut behind the last event of every process.
    pub fn end_of_recording(&self) -> Cut {
        Cut(self.places().map(|place| self.end(place)).collect())
    }

    /// The cut at which the program stood when it was over: the last events of
    /// all processes, without what somebody outside did to end it.
    pub fn stopped(&self) -> Cut {
        let mut cut = self.end_of_recording();
        for place in cut.processes() {
            let record = self.record(place);
            let last = EventId::new(place, number(record.last.get()));
            let Some(before) = last.number.0.checked_sub(1).map(EventNo) else {
                continue;
            };
            if record.ended.get() == End::Exited as u32 || !self.causes(last).is_empty() {
                continue;
            }
            let signal = |event: &Event<'_>| event.kind == protocol::record::kind::SIGNAL;
            if self.look(last, signal) != Some(true) {
                continue;
            }
            // The call that it interrupted is what the process stood in.
            let stood = match self.look(EventId::new(place, before), is_broken_off) {
                Some(true) => before,
                _ => last.number,
            };
            if let Some(bound) = cut.0.get_mut(place.index()) {
                *bound = clamp(stood);
            }
        }
        cut
    }

    /// Whether where the program stood when it was over there are some whom a signal from
    /// outside ended, and others have seen that before one came to them, or came to an end of
    /// their own about then, or later: they may have been told as well.
    pub fn has_ended_apart(&self, cut: &Cut) -> bool {
        let over = self
            .places()
            .filter(|place| cut.bound(*place) <= self.span(*place).1)
            .map(|place| EventId::new(place, cut.bound(place)));
        let over: Vec<EventId> = over.collect();
        let seen = self.places().zip(self.future_of(&over));
        let mut seen = seen.filter_map(|(place, first)| Some((place, first?)));
        if seen.any(|(place, first)| first < cut.bound(place)) {
            return true;
        }
        let time = |place, number| {
            let event = EventId::new(place, number);
            let ticks = self.look(event, |event| event.time)?;
            Some(self.time_ns(place, ticks))
        };
        let ended = self
            .places()
            .filter(|place| cut.bound(*place) <= self.span(*place).1)
            .filter_map(|place| time(place, self.span(place).1));
        let Some(first) = ended.min() else {
            return false;
        };
        self.places()
            .filter(|place| self.record(*place).ended.get() == End::Exited as u32)
            .filter_map(|place| time(place, self.span(place).1))
            .any(|last| last >= first.saturating_sub(TOGETHER_NS))
    }

    /// The first number that no event of the process has.
    fn end(&self, place: ProcessIx) -> u32 {
        match self.process(place) {
            Some(_) => self.record(place).last.get().saturating_add(1),
            None => 0,
        }
    }

    /// Whether no effect is inside a cut without its cause.
    pub fn is_consistent(&self, cut: &Cut) -> bool {
        cut.processes().all(|place| {
            self.links_within(place, 0, clamp(cut.bound(place)))
                .iter()
                .all(|link| {
                    let cause = ProcessIx(link.cause_process.get());
                    cut.bound(cause) > number(link.cause.get())
                })
        })
    }

    /// How two events are ordered.
    pub fn order(&self, a: EventId, b: EventId) -> Order {
        if a == b {
            Order::Same
        } else if self.past(b).has(a) {
            Order::Before
        } else if self.past(a).has(b) {
            Order::After
        } else {
            Order::Concurrent
        }
    }
}

impl Graph for History {
    fn processes(&self) -> usize {
        self.set.len()
    }

    fn links(&self, process: u32, from: u32, to: u32) -> &[InRec] {
        self.links_within(ProcessIx(process), from, to)
    }

    fn clock(&self, process: u32, from: u32, to: u32) -> Option<(u32, &[BoundRec])> {
        let range = self.record(ProcessIx(process)).snaps;
        let (at, count) = (range.from.get() as usize, range.count.get() as usize);
        let all = self.index.records::<SnapRec>(Section::Snaps, at, count);
        let at = all
            .partition_point(|snap| snap.event.get() < to)
            .checked_sub(1)?;
        let snap = all.get(at)?;
        if snap.event.get() < from {
            return None;
        }
        let (begin, count) = (snap.bounds.get() as usize, snap.count.get() as usize);
        let bounds = self
            .index
            .records::<BoundRec>(Section::Bounds, begin, count);
        Some((snap.event.get(), bounds.all()))
    }
}
