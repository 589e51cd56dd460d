//! What must follow, and what must have been before.
#![allow(clippy::indexing_slicing)] // The lists are looked up right before.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::{Atom, Happening, Match, Sym, Table, Trail, project};
use crate::history::At;
use crate::stream::Moment;

fn shared(left: &[Atom], right: &[Atom]) -> Vec<usize> {
    let bound = |atoms: &[Atom]| -> Vec<usize> { atoms.iter().flat_map(Atom::bound).collect() };
    let other = bound(right);
    let mut shared: Vec<usize> = bound(left)
        .into_iter()
        .filter(|n| other.contains(n))
        .collect();
    shared.sort_unstable();
    shared.dedup();
    shared
}

struct Waiting {
    at: At,
    time: u64,
    binding: Rc<[Sym]>,
    trail: Rc<Trail>,
}

#[derive(Default)]
struct Pending {
    by_process: Vec<(usize, VecDeque<Waiting>)>,
    /// What was answered too late: an answer that was recorded earlier may yet
    /// come, where times and causes disagree. By the latest time for it.
    late: BTreeMap<(u64, u64), (usize, Waiting)>,
}

/// What an event that leads to nothing waited for.
#[derive(Clone, Debug)]
pub struct Unanswered {
    /// The event.
    pub found: Match,
    /// The answer came, too late.
    pub late: bool,
}

/// `a leads to b within T`: after each `a` there is a `b` that it led to.
pub struct LeadsTo {
    first: Vec<Atom>,
    then: Vec<Atom>,
    shared: Vec<usize>,
    names: usize,
    within: Option<u64>,
    pending: Table<Box<[Sym]>, Pending>,
    count: u64,
    serial: u64,
}

impl LeadsTo {
    /// With so many names; `within` is in nanoseconds.
    pub fn new(first: Vec<Atom>, then: Vec<Atom>, names: usize, within: Option<u64>) -> LeadsTo {
        LeadsTo {
            shared: shared(&first, &then),
            first,
            then,
            names,
            within,
            pending: Table::default(),
            count: 0,
            serial: 0,
        }
    }

    /// The kinds of events it looks at.
    pub fn letters(&self) -> Vec<u32> {
        self.first
            .iter()
            .chain(&self.then)
            .map(|atom| atom.letter)
            .collect()
    }

    /// How many events had to be answered so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next event.
    pub fn take(&mut self, moment: &Moment, set: &[Happening]) {
        let within = self.within.unwrap_or(u64::MAX);
        for atom in &self.then {
            for binding in set.iter().filter_map(|event| atom.bind(event, self.names)) {
                let Some(pending) = self.pending.get_mut(&project(&binding, &self.shared)) else {
                    continue;
                };
                let Pending { by_process, late } = pending;
                for (process, list) in by_process {
                    while list
                        .front()
                        .is_some_and(|own| moment.is_after(*process, own.at))
                    {
                        let Some(own) = list.pop_front() else { break };
                        let until = own.time.saturating_add(within);
                        if moment.time > until {
                            self.serial += 1;
                            late.insert((until, self.serial), (*process, own));
                        }
                    }
                }
                let mut answered = Vec::new();
                for (key, (process, own)) in late.range((moment.time, 0)..) {
                    if moment.is_after(*process, own.at) {
                        answered.push(*key);
                    }
                }
                for key in answered {
                    late.remove(&key);
                }
            }
        }
        for atom in &self.first {
            for binding in set.iter().filter_map(|event| atom.bind(event, self.names)) {
                self.count += 1;
                let pending = self
                    .pending
                    .entry(project(&binding, &self.shared))
                    .or_default();
                let own = Waiting {
                    at: moment.at,
                    time: moment.time,
                    binding: binding.into(),
                    trail: Trail::new(moment, None),
                };
                let lists = &mut pending.by_process;
                match lists
                    .iter_mut()
                    .find(|(process, _)| *process == moment.process)
                {
                    Some((_, list)) => list.push_back(own),
                    None => lists.push((moment.process, [own].into())),
                }
            }
        }
    }

    /// What was never answered, or too late, in order of time.
    pub fn unanswered(self) -> Vec<Unanswered> {
        let mut all: Vec<(u64, usize, At, Unanswered)> = Vec::new();
        for pending in self.pending.into_values() {
            let never = pending.by_process.into_iter();
            let never =
                never.flat_map(|(p, list)| list.into_iter().map(move |own| (p, own, false)));
            let late = pending.late.into_values().map(|(p, own)| (p, own, true));
            for (process, own, late) in never.chain(late) {
                let found = Match {
                    trail: own.trail,
                    binding: own.binding,
                };
                all.push((own.time, process, own.at, Unanswered { found, late }));
            }
        }
        all.sort_by_key(|(time, process, at, _)| (*time, *process, *at));
        all.into_iter().map(|(.., unanswered)| unanswered).collect()
    }
}

/// `a before b`: each `b` has an `a` in its past.
pub struct Before {
    first: Vec<Atom>,
    then: Vec<Atom>,
    shared: Vec<usize>,
    names: usize,
    /// By shared values, the first of each process.
    seen: Table<Box<[Sym]>, Vec<(usize, At)>>,
    count: u64,
}

impl Before {
    /// With so many names.
    pub fn new(first: Vec<Atom>, then: Vec<Atom>, names: usize) -> Before {
        Before {
            shared: shared(&first, &then),
            first,
            then,
            names,
            seen: Table::default(),
            count: 0,
        }
    }

    /// The kinds of events it looks at.
    pub fn letters(&self) -> Vec<u32> {
        self.first
            .iter()
            .chain(&self.then)
            .map(|atom| atom.letter)
            .collect()
    }

    /// How many events there were that something must be before.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next event. Calls `found` if nothing was before it.
    pub fn take(&mut self, moment: &Moment, set: &[Happening], found: &mut dyn FnMut(Match)) {
        for atom in &self.then {
            for binding in set.iter().filter_map(|event| atom.bind(event, self.names)) {
                self.count += 1;
                let key = project(&binding, &self.shared);
                let firsts = self.seen.get(&key).into_iter().flatten();
                let mut firsts = firsts.filter(|(process, at)| moment.is_after(*process, *at));
                if firsts.next().is_none() {
                    found(Match {
                        trail: Trail::new(moment, None),
                        binding: binding.into(),
                    });
                }
            }
        }
        for atom in &self.first {
            for binding in set.iter().filter_map(|event| atom.bind(event, self.names)) {
                let key = project(&binding, &self.shared);
                let firsts = self.seen.entry(key).or_default();
                if !firsts.iter().any(|(process, _)| *process == moment.process) {
                    firsts.push((moment.process, moment.at));
                }
            }
        }
    }
}
