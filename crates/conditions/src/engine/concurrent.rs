//! Events of two kinds neither of which happened before the other: `a || b`.
//!
//! Of each process the last is kept: what is not before an event is, if any is, that.
#![allow(clippy::indexing_slicing)] // There are two sides.

use super::linked::End;
use super::{Atom, ByValues, Happening, Match, Sym, Table, Trail, merge, project};
use crate::stream::Moment;

/// Finds events of two kinds neither of which happened before the other.
pub struct Concurrent {
    sides: [Vec<Atom>; 2],
    shared: Vec<usize>,
    names: usize,
    /// Of each side, by shared values, the last of each process.
    last: [ByValues<Vec<(usize, End)>>; 2],
}

impl Concurrent {
    /// For two sides that share these names, of so many.
    pub fn new(left: Vec<Atom>, right: Vec<Atom>, names: usize) -> Concurrent {
        let bound = |atoms: &[Atom]| -> Vec<usize> { atoms.iter().flat_map(Atom::bound).collect() };
        let other = bound(&right);
        let mut shared: Vec<usize> = bound(&left)
            .into_iter()
            .filter(|n| other.contains(n))
            .collect();
        shared.sort_unstable();
        shared.dedup();
        Concurrent {
            sides: [left, right],
            shared,
            names,
            last: [Table::default(), Table::default()],
        }
    }

    /// The kinds of events it looks at.
    pub fn letters(&self) -> Vec<u32> {
        self.sides
            .iter()
            .flatten()
            .map(|atom| atom.letter)
            .collect()
    }

    /// The next event. Calls `found` if one that came before is concurrent.
    pub fn take(&mut self, moment: &Moment, set: &[Happening], found: &mut dyn FnMut(Match)) {
        let mut reported = false;
        let mut own: Vec<(usize, Vec<Sym>)> = Vec::new();
        for (side, atoms) in self.sides.iter().enumerate() {
            for atom in atoms {
                let bindings = set
                    .iter()
                    .filter_map(|happening| atom.bind(happening, self.names));
                own.extend(bindings.map(|binding| (side, binding)));
            }
        }
        for (side, binding) in &own {
            let key = project(binding, &self.shared);
            let others = self.last[1 - side].get(&key);
            let other = others.into_iter().flatten().find(|(process, end)| {
                *process != moment.process && !moment.is_after(*process, end.at)
            });
            if let Some((process, end)) = other
                && !reported
                && let Some(merged) = merge(binding, &end.binding)
            {
                reported = true;
                found(Match {
                    trail: Trail::new(moment, Some(end.trail(*process))),
                    binding: merged.into(),
                });
            }
        }
        for (side, binding) in own {
            let key = project(&binding, &self.shared);
            let list = self.last[side].entry(key).or_default();
            let end = End::new(moment, 1, binding.into(), None, None);
            match list
                .iter_mut()
                .find(|(process, _)| *process == moment.process)
            {
                Some(place) => place.1 = end,
                None => list.push((moment.process, end)),
            }
        }
    }
}
