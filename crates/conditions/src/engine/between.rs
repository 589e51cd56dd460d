//! What may not have happened between two events of a chain, `a -> b without c`.
//!
//! Such an event is kept with what its process knew then: it is between two others if it
//! knows of the first, and the second knows of it.
#![allow(clippy::indexing_slicing)] // Lists that are looked into where they are long enough.

use super::{Atom, ByValues, Happening, Sym, Table, project};
use crate::history::At;
use crate::stream::{Clock, Moment};

/// How many places of a list, in order, happened before a moment. Mostly all or nearly
/// all have, so that it is looked for from the end.
pub(super) fn known<T>(
    list: &[T],
    moment: &Moment,
    process: usize,
    at: impl Fn(&T) -> At,
) -> usize {
    let mut behind = list.len();
    let mut step = 1;
    while let Some(last) = behind.checked_sub(1) {
        if moment.is_after(process, at(&list[last])) {
            break;
        }
        behind = behind.saturating_sub(step);
        step *= 2;
    }
    // Everything before `behind` is known, and what was jumped over last may be.
    let to = (behind + step).min(list.len());
    let jumped = &list[behind..to];
    behind + jumped.partition_point(|entry| moment.is_after(process, at(entry)))
}

/// Where an event was, and what its process knew then.
type Sight = (At, Clock);

/// A kind of event that may not be between.
pub(super) struct Between {
    atom: Atom,
    /// The names that it has in common with the chain.
    key: Vec<usize>,
    seen: ByValues<Sights>,
}

/// Where events with the same values were seen.
#[derive(Default)]
struct Sights {
    by_process: Vec<(usize, Vec<Sight>)>,
    /// Of each process, how many of its events the one of them that knows most of it
    /// knows: whatever is later has none of them behind it.
    most: Vec<u32>,
}

impl Sights {
    fn add(&mut self, moment: &Moment) {
        if self.most.len() < moment.clock.len() {
            self.most.resize(moment.clock.len(), 0);
        }
        for (most, known) in self.most.iter_mut().zip(moment.clock.iter()) {
            *most = (*most).max(*known);
        }
        if let Some(own) = self.most.get_mut(moment.process) {
            *own = (*own).max(moment.at.needs());
        }
        let place = (moment.at, moment.clock.clone());
        let lists = &mut self.by_process;
        match lists.iter_mut().find(|(own, _)| *own == moment.process) {
            Some((_, list)) => list.push(place),
            None => lists.push((moment.process, vec![place])),
        }
    }
}

impl Between {
    /// Such an event, in a chain that has bound these names before it.
    pub fn new(atom: &Atom, bound: &[usize]) -> Between {
        let own = |name: &usize| atom.bound().any(|own| own == *name);
        Between {
            key: bound.iter().copied().filter(own).collect(),
            atom: atom.clone(),
            seen: Table::default(),
        }
    }

    /// An event has happened, which may be one.
    pub fn take(&mut self, moment: &Moment, happening: &Happening, names: usize) {
        if let Some(binding) = self.atom.bind(happening, names) {
            let key = project(&binding, &self.key);
            self.seen.entry(key).or_default().add(moment);
        }
    }

    /// Whether such an event happened after a place and before a moment.
    pub fn is_between(&self, process: usize, from: At, moment: &Moment, binding: &[Sym]) -> bool {
        let Some(sights) = self.seen.get(&project(binding, &self.key)) else {
            return false;
        };
        let most = sights.most.get(process).copied().unwrap_or(0);
        if most < from.needs() {
            return false;
        }
        sights.by_process.iter().any(|(own, list)| {
            let count = known(list, moment, *own, |(at, _)| *at);
            // The last one knows most.
            count
                .checked_sub(1)
                .and_then(|last| list.get(last))
                .is_some_and(|(at, clock)| {
                    if *own == process {
                        from < *at
                    } else {
                        clock
                            .get(process)
                            .is_some_and(|known| *known >= from.needs())
                    }
                })
        })
    }
}
