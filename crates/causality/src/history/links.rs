//! What led to an event, and what it led to.

use std::collections::HashMap;

use protocol::id::{EventNo, ProcessIx, ThreadNo};

use super::{History, clamp, number};
use crate::index::build::NO;
use crate::index::file::Records;
use crate::index::layout::*;
use crate::link::{EventId, Kind, Link};

impl History {
    fn incoming(&self, place: ProcessIx) -> Records<'_, InRec> {
        let range = self.record(place).links_in;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        self.index.records(Section::In, from, count)
    }

    /// The links into a process with effects in a range.
    pub(super) fn links_within(&self, place: ProcessIx, from: u32, to: u32) -> &[InRec] {
        let links = self.incoming(place);
        let before = |number: u32| links.partition_point(|link| link.effect.get() < number);
        links.range(before(from), before(to))
    }

    pub(super) fn outgoing(&self, place: ProcessIx) -> Records<'_, OutRec> {
        let range = self.record(place).links_out;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        self.index.records(Section::Out, from, count)
    }

    fn link(&self, place: ProcessIx, record: &InRec) -> Link {
        Link {
            cause: EventId::new(
                ProcessIx(record.cause_process.get()),
                number(record.cause.get()),
            ),
            effect: EventId::new(place, number(record.effect.get())),
            thread: ThreadNo(record.thread.get()),
            cause_thread: Some(record.cause_thread.get())
                .filter(|thread| *thread != NO)
                .map(ThreadNo),
            kind: Kind::from_number(record.kind).unwrap_or(Kind::Message),
            channel: Some(record.channel.get()).filter(|channel| *channel != NO),
            amount: record.amount.get().into(),
        }
    }

    /// The links that lead to an event.
    pub fn causes(&self, event: EventId) -> Vec<Link> {
        let number = clamp(event.number);
        let links = self.links_within(event.process, number, number.saturating_add(1));
        links
            .iter()
            .map(|record| self.link(event.process, record))
            .collect()
    }

    /// The links that lead to events of a process in this range, the latest
    /// first.
    pub fn causes_before(&self, place: ProcessIx, to: EventNo) -> impl Iterator<Item = Link> + '_ {
        let to = clamp(to);
        let links = self.incoming(place);
        let end = links.partition_point(|link| link.effect.get() < to);
        links
            .backward(0, end)
            .map(move |record| self.link(place, record))
    }

    /// The links that lead to events of a process in this range, in order.
    pub fn causes_between(
        &self,
        place: ProcessIx,
        from: EventNo,
        to: EventNo,
    ) -> impl Iterator<Item = Link> + '_ {
        let links = self.links_within(place, clamp(from), clamp(to));
        links.iter().map(move |record| self.link(place, record))
    }

    /// The links that an event leads to others by.
    pub fn effects(&self, event: EventId) -> Vec<Link> {
        let number = clamp(event.number);
        let all = self.outgoing(event.process);
        let from = all.partition_point(|record| record.cause.get() < number);
        all.forward(from)
            .take_while(|record| record.cause.get() == number)
            .filter_map(|record| self.outgoing_link(record))
            .collect()
    }

    /// The links from events of a process in this range, in order of cause.
    pub fn effects_between(
        &self,
        place: ProcessIx,
        from: EventNo,
        to: EventNo,
    ) -> impl Iterator<Item = Link> + '_ {
        let all = self.outgoing(place);
        let begin = all.partition_point(|record| number(record.cause.get()) < from);
        all.forward(begin)
            .take_while(move |record| number(record.cause.get()) < to)
            .filter_map(|record| self.outgoing_link(record))
    }

    fn outgoing_link(&self, record: &OutRec) -> Option<Link> {
        let link = self
            .index
            .records::<InRec>(Section::In, record.link.get() as usize, 1);
        link.all()
            .first()
            .map(|link| self.link(ProcessIx(record.effect_process.get()), link))
    }

    /// All links, in order of their effects.
    pub fn links(&self) -> impl Iterator<Item = Link> + '_ {
        self.places().flat_map(move |place| {
            let links = self.incoming(place).forward(0);
            links.map(move |record| self.link(place, record))
        })
    }

    /// The links, fewest first, by which `from` led to `to`. `None` if it did
    /// not; empty if both are of one process.
    pub fn path_between(&self, from: EventId, to: EventId) -> Option<Vec<Link>> {
        if !self.past(to).has(from) {
            return None;
        }
        if from.process == to.process {
            return Some(Vec::new());
        }
        // Backwards from the effect, a link at a time. What a process was told
        // long ago hardly ever makes a shorter way than what it was told last,
        // so that is looked at only if there is no way without it.
        const PATIENCE: usize = 4096;
        self.search_back(from, to, PATIENCE)
            .or_else(|| self.search_back(from, to, usize::MAX))
    }

    /// See [`History::path_between`]. `patience`: after so many links into a
    /// process that lead to nothing new, earlier ones are not looked at.
    fn search_back(&self, from: EventId, to: EventId, patience: usize) -> Option<Vec<Link>> {
        struct Node {
            event: EventId,
            link: Option<Link>,
            parent: usize,
        }
        let mut nodes = vec![Node {
            event: to,
            link: None,
            parent: 0,
        }];
        // Links into each process up to here have been followed, or are about
        // to be.
        let mut seen: Vec<EventNo> = vec![EventNo(0); self.set.len()];
        let mut at = 0;
        while let Some(event) = nodes.get(at).map(|node| node.event) {
            let begin = match seen.get_mut(event.process.index()) {
                Some(place) => std::mem::replace(place, (*place).max(event.number.next())),
                None => EventNo(0),
            };
            let links = self.incoming(event.process);
            let end = clamp(event.number.next());
            let end = links.partition_point(|link| link.effect.get() < end);
            let begin = clamp(begin.min(event.number));
            let begin = links.partition_point(|link| link.effect.get() < begin);
            let mut idle = 0;
            let mut best: HashMap<ProcessIx, EventNo> = HashMap::new();
            // The latest first: the shorter story.
            for record in links.backward(begin, end) {
                let process = ProcessIx(record.cause_process.get());
                let cause = number(record.cause.get());
                idle += 1;
                if idle > patience {
                    break;
                }
                if process == event.process {
                    continue;
                }
                let known = seen.get(process.index()).copied().unwrap_or(EventNo::MAX);
                let new = cause >= known && best.get(&process).is_none_or(|best| cause > *best);
                if !new {
                    continue;
                }
                idle = 0;
                best.insert(process, cause);
                nodes.push(Node {
                    event: EventId::new(process, cause),
                    link: Some(self.link(event.process, record)),
                    parent: at,
                });
                if process == from.process && cause >= from.number {
                    let mut path = Vec::new();
                    let mut node = nodes.len() - 1;
                    while let Some(Node {
                        link: Some(link),
                        parent,
                        ..
                    }) = nodes.get(node)
                    {
                        path.push(*link);
                        node = *parent;
                    }
                    return Some(path);
                }
            }
            at += 1;
        }
        None
    }
}
