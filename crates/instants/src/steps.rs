//! Places between two events, as conditions see them.
//!
//! Conditions order what happens between two events by steps: 1 is the first moment of
//! all that were asked about, 2 the next. Replay has positions, whose order is that of
//! the steps. Here is what leads from one to the other.

use std::collections::BTreeMap;

use conditions::engine::trace::Edge;
use conditions::history::At;
use protocol::id::{Addr, EventNo};
use session::truth::Moment;
use target::{Inside, Position};

/// A position as it is ordered: the event that comes next, transfers, address. What an
/// event led to is at the beginning.
pub type Rank = (u64, u64, Addr);

/// The rank of a moment.
pub fn rank(moment: &Moment) -> Rank {
    match moment.at {
        Position::Event(event) => (event.0, 0, Addr::NULL),
        Position::Inside(inside) if moment.by_event => (inside.event.0, 0, Addr::NULL),
        Position::Inside(inside) => (inside.event.0, inside.transfers, inside.address),
        // Of what is alive nothing is asked here.
        Position::Halted(halted) => (halted.halt, 0, halted.address),
    }
}

/// All positions between events that answers have, by process.
#[derive(Clone, Debug, Default)]
pub struct Steps(BTreeMap<usize, Vec<Rank>>);

/// Where a process is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Right after this event.
    After(EventNo),
    /// At this position.
    At(Position),
    /// Before the instruction that leads to this position.
    Before(Position),
}

impl Steps {
    /// Adds places of a process. Steps that were told before mean nothing any more.
    pub(crate) fn add(&mut self, process: usize, places: impl Iterator<Item = Rank>) {
        let known = self.0.entry(process).or_default();
        let new: Vec<Rank> = places
            .filter(|own| (own.1, own.2) != (0, Addr::NULL) && known.binary_search(own).is_err())
            .collect();
        if !new.is_empty() {
            known.extend(new);
            known.sort_unstable();
            known.dedup();
        }
    }

    fn of(&self, process: usize) -> &[Rank] {
        self.0.get(&process).map_or(&[], Vec::as_slice)
    }

    /// A place that was added, as conditions see it.
    pub(crate) fn at(&self, process: usize, own: Rank) -> At {
        let bound = u32::try_from(own.0).unwrap_or(u32::MAX);
        let step = match own {
            (_, 0, Addr::NULL) => 0,
            own => {
                let all = self.of(process);
                let begins = all.partition_point(|other| other.0 < own.0);
                let passed = all.partition_point(|other| *other <= own);
                (passed - begins) as u64
            }
        };
        At { bound, step }
    }

    /// Any position: behind all steps that it is behind.
    pub fn seen_from(&self, process: usize, position: Position) -> At {
        match position {
            // It has done everything that comes before that event.
            Position::Event(_) | Position::Halted(_) => At {
                bound: u32::try_from(position.event().0).unwrap_or(u32::MAX),
                step: u64::MAX,
            },
            Position::Inside(inside) => {
                let own = (inside.event.0, inside.transfers, inside.address);
                self.at(process, own)
            }
        }
    }

    /// The position of a step.
    pub fn position(&self, process: usize, at: At) -> Option<Position> {
        let all = self.of(process);
        let begins = all.partition_point(|other| other.0 < u64::from(at.bound));
        let index = usize::try_from(at.step.checked_sub(1)?).ok()?;
        let (event, transfers, address) = *all.get(begins.checked_add(index)?)?;
        (event == u64::from(at.bound)).then_some(Position::Inside(Inside {
            event: EventNo(event),
            transfers,
            address,
        }))
    }

    /// Where a process is to stand to be at an edge. None: there is nothing of it yet.
    pub fn stand(&self, process: usize, edge: Edge) -> Option<Stand> {
        let at = edge.at;
        let about = |event: u32| Stand::At(Position::Event(EventNo(event.into())));
        Some(match (edge.inclusive, at.step) {
            (true, 0) => Stand::After(EventNo(at.bound.checked_sub(1)?.into())),
            (false, 0) => about(at.bound.checked_sub(1)?),
            (true, u64::MAX) => about(at.bound),
            (inclusive, _) => match (self.position(process, at), inclusive) {
                (Some(position), true) => Stand::At(position),
                (Some(position), false) => Stand::Before(position),
                (None, _) => about(at.bound),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_step_and_its_position_are_the_same_place() {
        let mut steps = Steps::default();
        let all = [(3, 5, 0x10), (3, 0, 0x40), (4, 1, 1), (3, 0, 0)];
        let all = all.map(|(event, transfers, at)| (event, transfers, Addr(at)));
        steps.add(0, all.into_iter());
        for own in all {
            let at = steps.at(0, own);
            assert_eq!(u64::from(at.bound), own.0);
            match steps.position(0, at) {
                Some(Position::Inside(inside)) => {
                    assert_eq!((inside.event.0, inside.transfers, inside.address), own);
                    assert_eq!(steps.seen_from(0, Position::Inside(inside)), at);
                }
                other => assert!(other.is_none() && own.2.is_null(), "{other:?}"),
            }
        }
        assert!(steps.at(0, (3, 0, Addr(0x40))) < steps.at(0, (3, 5, Addr(0x10))));
        // Another process has none of them.
        assert_eq!(steps.position(1, At { bound: 3, step: 1 }), None);
    }
}
