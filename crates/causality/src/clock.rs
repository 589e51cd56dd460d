//! Clocks: which events are in the past of an event.
//!
//! A vector clock for every event would not fit anywhere: a hundred processes
//! with ten million events are four gigabytes of them. But clocks only change
//! where a process is told something, and what it was told is a link. So the
//! index keeps a full clock only at every [`SPACING`]th link into a process, and
//! the clock of any event is found from the last of those and the few links
//! since, in all processes that they lead to.

use crate::index::layout::{BoundRec, InRec};

/// Links into a process between two of its clocks that are kept.
pub(crate) const SPACING: usize = 128;

/// What clocks are computed from.
pub(crate) trait Graph {
    /// How many processes there are.
    fn processes(&self) -> usize;
    /// Links whose effects in `process` are in this range of event numbers.
    fn links(&self, process: u32, from: u32, to: u32) -> &[InRec];
    /// The last clock that is kept of `process` of an event in this range, and
    /// which event.
    fn clock(&self, process: u32, from: u32, to: u32) -> Option<(u32, &[BoundRec])>;
}

/// The events that happened before these, and these: for each process, how
/// many of its first ones (so that the next is not among them).
pub(crate) fn past(graph: &impl Graph, events: &[(u32, u32)]) -> Vec<u32> {
    let count = graph.processes();
    let mut bounds = vec![0u32; count];
    // Below this, all that led there is in `bounds` already.
    let mut done = vec![0u32; count];
    let mut work: Vec<u32> = Vec::new();
    let raise = |bounds: &mut Vec<u32>, work: &mut Vec<u32>, process: u32, bound: u32| {
        if let Some(place) = bounds.get_mut(process as usize)
            && bound > *place
        {
            *place = bound;
            work.push(process);
        }
    };
    for (process, number) in events {
        raise(&mut bounds, &mut work, *process, number.saturating_add(1));
    }
    while let Some(process) = work.pop() {
        let at = process as usize;
        let (Some(to), Some(from)) = (bounds.get(at).copied(), done.get(at).copied()) else {
            continue;
        };
        if from >= to {
            continue;
        }
        if let Some(place) = done.get_mut(at) {
            *place = to;
        }
        let mut from = from;
        if let Some((event, clock)) = graph.clock(process, from, to) {
            // All that led to it is in it: nothing of that is left to do.
            for bound in clock {
                let other = bound.process.get() as usize;
                let reached = bound.bound.get();
                if let (Some(b), Some(d)) = (bounds.get_mut(other), done.get_mut(other)) {
                    *b = (*b).max(reached);
                    *d = (*d).max(reached);
                }
            }
            from = event.saturating_add(1);
        }
        for link in graph.links(process, from, to) {
            let cause = link.cause.get().saturating_add(1);
            raise(&mut bounds, &mut work, link.cause_process.get(), cause);
        }
    }
    bounds
}
