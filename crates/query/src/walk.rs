//! The events of all members, each after what led to it.
//!
//! Where causes leave the order open, the earlier event is first, by the clocks
//! that were fitted. The time of an event alone does not tell what came first: a
//! call that cannot block is noted when it is over, and who was woken by it may
//! have gone on by then. So an event that is the next by its time waits until
//! all that it follows from has been shown.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use causality::{EventId, History};
use protocol::id::{EventNo, ProcessIx, Ticks};
use recording::render::{Limits, Renderer};
use recording::{Event, Log, Set};

use crate::Names;

/// Goes through the events of a set. Without a history nothing is known of
/// causes, nor of how clocks stand to each other: then it is one member's, in
/// order of time.
pub struct Walk<'w> {
    set: &'w Set,
    history: Option<&'w History>,
    /// One for each member.
    renderers: Vec<Renderer<'w>>,
    /// Processes whose logs are not open yet, the earliest last.
    unborn: Vec<(i64, ProcessIx)>,
    /// When the next event of each of the others is; but for those that wait.
    next: BinaryHeap<Reverse<(i64, ProcessIx)>>,
    /// By event: the processes whose next event waits for it.
    waiting: HashMap<EventId, Vec<ProcessIx>>,
    /// By place: how far each has come.
    logs: Vec<Reading<'w>>,
    /// Events wait for their causes.
    waits: bool,
}

/// How far the walk has come in one process.
#[derive(Default)]
struct Reading<'w> {
    /// It is one of those that are walked through.
    is_walked: bool,
    /// At its next event; closed before the first and after the last.
    log: Option<Log<'w>>,
    /// The first event that has not been shown.
    bound: EventNo,
}

/// An event that a walk has come to.
pub struct Step<'s> {
    /// Which member it is of.
    pub member: u16,
    /// The event.
    pub event: &'s Event<'s>,
    /// What shows it, having seen the events before.
    pub renderer: &'s Renderer<'s>,
    /// No event that follows is earlier by its time.
    pub is_in_time: bool,
}

impl<'w> Walk<'w> {
    /// Through the events of the processes at these places.
    pub fn new(
        set: &'w Set,
        history: Option<&'w History>,
        names: &Names,
        places: &[ProcessIx],
        limits: Limits,
    ) -> Walk<'w> {
        let members = (0u16..).take(set.members().len());
        let renderers = members.filter_map(|at| Renderer::of_member(set, at, names, limits));
        let mut logs: Vec<Reading<'w>> = Vec::new();
        logs.resize_with(set.len(), Reading::default);
        let mut walk = Walk {
            set,
            history,
            renderers: renderers.collect(),
            unborn: Vec::new(),
            next: BinaryHeap::new(),
            waiting: HashMap::new(),
            logs,
            waits: true,
        };
        for place in places {
            if let (Some(process), Some(reading)) =
                (set.process(*place), walk.logs.get_mut(place.index()))
                && !std::mem::replace(&mut reading.is_walked, true)
            {
                let birth = walk.time(*place, process.birth);
                walk.unborn.push((birth, *place));
            }
        }
        walk.unborn.sort_unstable_by_key(|entry| Reverse(*entry));
        walk
    }

    /// When something was, by one clock for all.
    fn time(&self, place: ProcessIx, ticks: Ticks) -> i64 {
        match self.history.filter(|_| self.set.is_joined()) {
            Some(history) => history.time_ns(place, ticks),
            None => i64::try_from(ticks.0).unwrap_or(i64::MAX),
        }
    }

    /// Opens the logs of those that began by now.
    fn open(&mut self) {
        while let Some((birth, place)) = self.unborn.last().copied() {
            let later = |Reverse((time, _)): &Reverse<(i64, ProcessIx)>| *time < birth;
            if self.next.peek().is_some_and(later) {
                return;
            }
            self.unborn.pop();
            if let (Some((recording, process)), Some(reading)) =
                (self.set.at(place), self.logs.get_mut(place.index()))
            {
                reading.log = Some(recording.log(process.number));
                reading.bound = process.first_event;
            }
            self.advance(place);
        }
    }

    /// On to the next event of a process.
    fn advance(&mut self, place: ProcessIx) {
        let Some(reading) = self.logs.get_mut(place.index()) else {
            return;
        };
        let event = reading.log.as_mut().and_then(|log| match log.advance() {
            true => log.event(),
            false => None,
        });
        match event.map(|event| event.time) {
            Some(ticks) => {
                let time = self.time(place, ticks);
                self.next.push(Reverse((time, place)));
            }
            None => {
                // Nobody waits for what does not come.
                reading.log = None;
                reading.bound = EventNo(u64::MAX);
                self.release(place, EventNo(u64::MAX));
            }
        }
    }

    /// Who waited for events of a process that come before `bound` waits no more.
    fn release(&mut self, place: ProcessIx, bound: EventNo) {
        if bound.0 != u64::MAX {
            let shown = EventId::new(place, bound.previous());
            let freed = self.waiting.remove(&shown).unwrap_or_default();
            self.queue(&freed);
            return;
        }
        let own = self.waiting.keys().filter(|event| event.process == place);
        let own: Vec<EventId> = own.copied().collect();
        for event in own {
            let freed = self.waiting.remove(&event).unwrap_or_default();
            self.queue(&freed);
        }
    }

    /// Puts back those whose next event may be shown now.
    fn queue(&mut self, places: &[ProcessIx]) {
        for place in places {
            let reading = self.logs.get(place.index());
            let event = reading.and_then(|reading| reading.log.as_ref()?.event());
            if let Some(ticks) = event.map(|event| event.time) {
                let time = self.time(*place, ticks);
                self.next.push(Reverse((time, *place)));
            }
        }
    }

    /// Something that leads to the next event of a process, and was not shown.
    fn missing(&self, place: ProcessIx) -> Option<EventId> {
        let history = self.history.filter(|_| self.waits)?;
        let log = self.logs.get(place.index())?.log.as_ref()?;
        let number = log.event()?.number;
        let lacks = |event: &EventId| {
            let reading = self.logs.get(event.process.index());
            reading.is_some_and(|reading| reading.is_walked && reading.bound <= event.number)
        };
        let mut is_hidden = false;
        for link in history.causes_between(place, number, number.next()) {
            if link.cause.process == place {
                continue;
            }
            if lacks(&link.cause) {
                return Some(link.cause);
            }
            let reading = self.logs.get(link.cause.process.index());
            is_hidden |= reading.is_none_or(|reading| !reading.is_walked);
        }
        if !is_hidden {
            return None;
        }
        // By way of somebody who is not shown.
        let past = history.past(EventId::new(place, number));
        let others = past.processes().filter(|other| *other != place);
        let last = others.filter_map(|other| Some(EventId::new(other, past.last(other)?)));
        last.into_iter().find(lacks)
    }

    /// Calls `found` with one event after the other until it says no or fails.
    pub fn each<E>(mut self, mut found: impl FnMut(&Step<'_>) -> Result<bool, E>) -> Result<(), E> {
        loop {
            self.open();
            let Some(Reverse((_, place))) = self.next.pop() else {
                if self.waiting.is_empty() {
                    return Ok(());
                }
                // Causes that wait for each other are no causes. Nothing is left out.
                self.waits = false;
                let all = std::mem::take(&mut self.waiting);
                all.into_values().for_each(|places| self.queue(&places));
                continue;
            };
            if let Some(cause) = self.missing(place) {
                self.waiting.entry(cause).or_default().push(place);
                continue;
            }
            let is_in_time = self.waiting.is_empty();
            let member = self.set.member_of(place).unwrap_or(u16::MAX);
            let renderer = self.renderers.get_mut(usize::from(member));
            let reading = self.logs.get_mut(place.index());
            let (Some(renderer), Some(reading)) = (renderer, reading) else {
                continue;
            };
            if let Some(event) = reading.log.as_ref().and_then(|log| log.event()) {
                renderer.before(&event);
                let step = Step {
                    member,
                    event: &event,
                    renderer,
                    is_in_time,
                };
                if !found(&step)? {
                    return Ok(());
                }
                renderer.after(&event);
                reading.bound = event.number.next();
            }
            let bound = reading.bound;
            self.advance(place);
            self.release(place, bound);
        }
    }
}
