//! What a search came to, and what it leaves known.

use std::sync::Arc;

use inspect::lookup::Location;
use target::{Difference, Happening, Position};

use crate::conditions::Trouble;
use crate::member::Context;
use crate::reason::Change;
use crate::stops::Key;

/// What a process came to.
#[derive(Clone, Debug)]
pub(crate) enum Came {
    /// Points at this instruction; see [`Found::points`].
    Points,
    Watch {
        number: u32,
        values: Option<Box<Change>>,
        back: bool,
    },
    OutOfScope {
        number: u32,
        back: bool,
    },
    Caught(Vec<u32>),
    Exec,
    /// Where a step ends.
    Step,
    /// Where a step out of an inlined function ends: in the frame of this one.
    Left(Location),
    /// Where it was to go.
    Arrived,
    /// Where its run begins, and where it ends.
    Start,
    End,
    Diverged(Difference),
    /// What happened to a process that is alive, and the points that catch that.
    Happened(Happening, Vec<u32>),
    /// A condition that cannot be tested.
    Trouble(Arc<Trouble>),
}

/// Something that stops a process on its way.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub at: Position,
    pub came: Came,
    /// The breakpoints here that count.
    pub points: Vec<u32>,
}

/// What was found out about a way: from a position on, nothing stops the process
/// before another one, where perhaps something does.
pub(crate) struct Known {
    /// What it was to stop at.
    pub key: Key,
    pub from: Position,
    pub to: Position,
    pub found: Option<Found>,
}

/// Where a search for something that stops ended.
pub(crate) enum Search {
    Found(Found),
    /// It may go no further, or there is no further.
    Nothing,
    /// The request was cancelled: how far it came.
    Interrupted(Position),
}

/// How a way ended.
pub(crate) enum Leg {
    /// At one of the addresses that were asked for.
    At,
    /// At its limit.
    There,
    /// At the end of the run.
    End,
    Found(Found),
    Interrupted(Position),
}

/// Points that were come to during a step and do not end it, in order: they are
/// passed over, or only say that they were passed.
#[derive(Default)]
pub(crate) struct Passed {
    pub found: Vec<Found>,
}

impl Passed {
    /// Whether none of the points ends the step, given what was passed before.
    pub fn takes(&self, context: Context<'_>, found: &Found) -> bool {
        matches!(
            found.came,
            Came::Points | Came::Caught(_) | Came::Watch { .. } | Came::Happened(..)
        ) && !found.numbers().is_empty()
            && found.numbers().iter().all(|number| {
                let before = self.found.iter().flat_map(Found::numbers);
                let before = before.filter(|n| n == number).count() as u64;
                let point = context.stops.get(*number);
                point.is_some_and(|p| p.ignore > before || p.traces)
            })
    }
}

impl Found {
    /// All points that are come to here.
    pub fn numbers(&self) -> Vec<u32> {
        let mut all = match &self.came {
            Came::Watch { number, .. } => vec![*number],
            Came::Caught(numbers) | Came::Happened(_, numbers) => numbers.clone(),
            _ => Vec::new(),
        };
        all.extend(&self.points);
        all
    }
}

/// What a search from one position to another leaves known, if it came to an end.
pub(crate) fn learnt(search: &Search, key: Key, from: Position, to: Position) -> Option<Known> {
    let (to, found) = match search {
        Search::Found(found) => (found.at, Some(found.clone())),
        Search::Nothing => (to, None),
        Search::Interrupted(_) => return None,
    };
    Some(Known {
        key,
        from,
        to,
        found,
    })
}
