//! Linked predicates: events that are causally ordered, `a -> b -> c`.
//!
//! One pass over the sequence of moments. For each step of the chain the events
//! are kept at which the chain up to there is complete; an event completes the
//! next step if one of those happened before it, which its clock tells. Where
//! nothing more is asked, only the earliest of each process is worth keeping;
//! where a step is counted, or nothing may have happened between, all are, and
//! of each process the last one before an event is the one to try.
//!
//! Everything is partitioned by the values of the names that later steps use.
#![allow(clippy::indexing_slicing)] // Tables with a row for each step.

use std::rc::Rc;

use super::{Atom, Happening, Match, Sym, Table, Trail, merge, project};
use crate::history::At;
use crate::stream::{Clock, Moment};

/// One step of a chain.
#[derive(Clone, Debug)]
pub struct Step {
    /// Any of these. All bind the same names.
    pub atoms: Vec<Atom>,
    /// So many of them, each before the next.
    pub least: u32,
    /// No more than so many that could be put there before the next step.
    pub most: Option<u32>,
    /// None of these happened between the step before and this one.
    pub without: Vec<Atom>,
}

impl Step {
    /// One event of these kinds.
    pub fn one(atoms: Vec<Atom>) -> Step {
        Step {
            atoms,
            least: 1,
            most: None,
            without: Vec::new(),
        }
    }

    fn names(&self) -> Vec<usize> {
        let mut names: Vec<usize> = self.atoms.iter().flat_map(Atom::bound).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// An event at which the chain up to a step is complete.
struct End {
    at: At,
    /// How many events of the step are in it.
    len: u32,
    binding: Rc<[Sym]>,
    trail: Rc<Trail>,
}

/// Those with the same values, by process.
#[derive(Default)]
struct Group {
    ends: Vec<(usize, Vec<End>)>,
}

impl Group {
    fn of(&mut self, process: usize) -> &mut Vec<End> {
        let at = match self.ends.iter().position(|(own, _)| *own == process) {
            Some(at) => at,
            None => {
                self.ends.push((process, Vec::new()));
                self.ends.len() - 1
            }
        };
        &mut self.ends[at].1
    }
}

/// How many places of a list, in order, happened before a moment.
fn known<T>(list: &[T], moment: &Moment, process: usize, at: impl Fn(&T) -> At) -> usize {
    list.partition_point(|entry| moment.is_after(process, at(entry)))
}

/// Something for each list of values that names can have.
type ByValues<T> = Table<Box<[Sym]>, T>;

/// Where an event was, and what its process knew then.
type Sight = (At, Clock);

/// A kind of event that may not be between.
struct Between {
    atom: Atom,
    key: Vec<usize>,
    /// By values, by process.
    seen: ByValues<Vec<(usize, Vec<Sight>)>>,
}

struct Stage {
    step: Step,
    /// The names whose values tell groups apart.
    live: Vec<usize>,
    groups: Vec<Group>,
    by_live: Table<Box<[Sym]>, usize>,
    /// For each atom of the next step, the names it shares with what is live,
    /// and groups by the values of these.
    next: Vec<(Vec<usize>, ByValues<Vec<usize>>)>,
    /// What may not be between the step before and this one.
    without: Vec<Between>,
    /// All ends are needed, not only the first of each process.
    keeps_all: bool,
}

/// Finds all events at which a chain is complete.
pub struct Linked {
    stages: Vec<Stage>,
    names: usize,
}

impl Linked {
    /// For a chain with so many names.
    pub fn new(steps: Vec<Step>, names: usize) -> Linked {
        let steps = one_by_one(steps);
        let count = steps.len();
        let mut stages: Vec<Stage> = Vec::with_capacity(count);
        for (k, step) in steps.iter().enumerate() {
            let mut bound: Vec<usize> = steps[..=k].iter().flat_map(Step::names).collect();
            bound.sort_unstable();
            bound.dedup();
            let counted = step.least > 1 || step.most.is_some();
            let used = |name: &usize| {
                let later = steps[k + 1..].iter();
                later
                    .flat_map(|step| step.atoms.iter().chain(&step.without))
                    .flat_map(Atom::bound)
                    .any(|used| used == *name)
                    || counted && step.names().contains(name)
            };
            let live: Vec<usize> = bound.iter().copied().filter(used).collect();
            let next = match steps.get(k + 1) {
                Some(next) => next
                    .atoms
                    .iter()
                    .map(|atom| {
                        let shared = live.iter().copied();
                        let shared = shared.filter(|name| atom.bound().any(|own| own == *name));
                        (shared.collect(), Table::default())
                    })
                    .collect(),
                None => Vec::new(),
            };
            let without = step.without.iter().map(|atom| Between {
                key: bound
                    .iter()
                    .copied()
                    .filter(|name| atom.bound().any(|own| own == *name))
                    .collect(),
                atom: atom.clone(),
                seen: Table::default(),
            });
            stages.push(Stage {
                without: without.collect(),
                step: step.clone(),
                live,
                groups: Vec::new(),
                by_live: Table::default(),
                next,
                keeps_all: counted
                    || steps
                        .get(k + 1)
                        .is_some_and(|next| !next.without.is_empty()),
            });
        }
        Linked { stages, names }
    }

    /// The kinds of events it looks at.
    pub fn letters(&self) -> Vec<u32> {
        let atoms = self
            .stages
            .iter()
            .flat_map(|stage| stage.step.atoms.iter().chain(&stage.step.without));
        atoms.map(|atom| atom.letter).collect()
    }

    /// The next event. Calls `found` if a chain is complete with it.
    pub fn take(&mut self, moment: &Moment, set: &[Happening], found: &mut dyn FnMut(Match)) {
        // The last step first: an event is not before itself.
        for k in (0..self.stages.len()).rev() {
            for happening in set {
                for a in 0..self.stages[k].step.atoms.len() {
                    let atom = &self.stages[k].step.atoms[a];
                    if let Some(own) = atom.bind(happening, self.names) {
                        self.reach(k, a, moment, &own, found);
                    }
                }
            }
        }
        for stage in &mut self.stages {
            for between in &mut stage.without {
                for happening in set {
                    let Some(binding) = between.atom.bind(happening, self.names) else {
                        continue;
                    };
                    let key = project(&binding, &between.key);
                    let lists = between.seen.entry(key).or_default();
                    let place = (moment.at, moment.clock.clone());
                    match lists.iter_mut().find(|(own, _)| *own == moment.process) {
                        Some((_, list)) => list.push(place),
                        None => lists.push((moment.process, vec![place])),
                    }
                }
            }
        }
    }

    /// An event is one of step `k`.
    fn reach(
        &mut self,
        k: usize,
        atom: usize,
        moment: &Moment,
        own: &[Sym],
        found: &mut dyn FnMut(Match),
    ) {
        // What it goes on from, with the binding that results.
        let mut ways: Vec<(Vec<Sym>, Option<Rc<Trail>>)> = Vec::new();
        if k == 0 {
            ways.push((own.to_vec(), None));
        } else {
            let before = &self.stages[k - 1];
            let (shared, index) = &before.next[atom];
            let groups = index.get(&project(own, shared));
            for group in groups.into_iter().flatten() {
                if let Some(end) = self.before(k, &before.groups[*group], moment, own)
                    && let Some(binding) = merge(&end.binding, own)
                {
                    ways.push((binding, Some(end.trail.clone())));
                }
            }
        }
        let last = k + 1 == self.stages.len();
        let stage = &self.stages[k];
        let counted = stage.step.least > 1 || stage.step.most.is_some();
        // One more of the same step.
        let mut more: Vec<(Vec<Sym>, u32, Rc<Trail>)> = Vec::new();
        if counted {
            let same = stage.step.names();
            // Mostly the values at hand name the one group there can be.
            let one = match same == stage.live {
                true => stage.by_live.get(&project(own, &same)).copied(),
                false => None,
            };
            let all = match (one, same == stage.live) {
                (Some(one), _) => one..one + 1,
                (None, true) => 0..0,
                (None, false) => 0..stage.groups.len(),
            };
            for group in &stage.groups[all] {
                let mut best: Option<&End> = None;
                for (process, ends) in &group.ends {
                    let count = known(ends, moment, *process, |end| end.at);
                    if let Some(end) = count.checked_sub(1).and_then(|last| ends.get(last))
                        && project(&end.binding, &same) == project(own, &same)
                        && best.is_none_or(|best| end.len > best.len)
                    {
                        best = Some(end);
                    }
                }
                if let Some(end) = best
                    && let Some(binding) = merge(&end.binding, own)
                {
                    more.push((binding, end.len + 1, end.trail.clone()));
                }
            }
        }
        for (binding, before) in ways {
            let key = project(&binding, &self.stages[k].live);
            // A longer way to the same values counts for more.
            if !more
                .iter()
                .any(|(other, ..)| project(other, &self.stages[k].live) == key)
            {
                self.arrive(k, moment, binding, 1, before, last, found);
            }
        }
        for (binding, len, before) in more {
            self.arrive(k, moment, binding, len, Some(before), last, found);
        }
    }

    /// The end of the step before that an event of step `k` can follow.
    fn before<'g>(
        &self,
        k: usize,
        group: &'g Group,
        moment: &Moment,
        own: &[Sym],
    ) -> Option<&'g End> {
        let before = &self.stages[k - 1];
        let stage = &self.stages[k];
        if stage.without.is_empty() && before.step.most.is_none() {
            for (process, ends) in &group.ends {
                let first = ends.partition_point(|end| end.len < before.step.least);
                if let Some(end) = ends.get(first)
                    && moment.is_after(*process, end.at)
                {
                    return Some(end);
                }
            }
            return None;
        }
        let last = |(process, ends): &'g (usize, Vec<End>)| {
            let count = known(ends, moment, *process, |end| end.at);
            let end = ends.get(count.checked_sub(1)?)?;
            (end.len >= before.step.least).then_some((*process, end))
        };
        if let Some(most) = before.step.most {
            let longest = group
                .ends
                .iter()
                .filter_map(last)
                .map(|(_, end)| end.len)
                .max()?;
            if longest > most {
                return None;
            }
        }
        let free = |(process, end): &(usize, &End)| {
            let binding = merge(&end.binding, own).unwrap_or_default();
            !stage
                .without
                .iter()
                .any(|between| between.is_between(*process, end.at, moment, &binding))
        };
        // Its own process knows most of what it did itself.
        let (here, others): (Vec<_>, Vec<_>) = group
            .ends
            .iter()
            .partition(|(process, _)| *process == moment.process);
        let all = here.into_iter().chain(others);
        all.filter_map(last).find(free).map(|(_, end)| end)
    }

    #[allow(clippy::too_many_arguments)]
    fn arrive(
        &mut self,
        k: usize,
        moment: &Moment,
        binding: Vec<Sym>,
        len: u32,
        before: Option<Rc<Trail>>,
        last: bool,
        found: &mut dyn FnMut(Match),
    ) {
        let stage = &mut self.stages[k];
        let enough = len >= stage.step.least && stage.step.most.is_none_or(|most| len <= most);
        let counted = stage.step.least > 1 || stage.step.most.is_some();
        if last && !counted {
            found(Match {
                trail: Trail::new(moment, before),
                binding: binding.into(),
            });
            return;
        }
        let key = project(&binding, &stage.live);
        let id = match stage.by_live.get(&key) {
            Some(id) => *id,
            None => {
                let id = stage.groups.len();
                stage.groups.push(Group::default());
                for (shared, index) in &mut stage.next {
                    let values = project(&binding, shared);
                    index.entry(values).or_default().push(id);
                }
                stage.by_live.insert(key, id);
                id
            }
        };
        let ends = stage.groups[id].of(moment.process);
        if !stage.keeps_all && !ends.is_empty() {
            return;
        }
        let binding: Rc<[Sym]> = binding.into();
        let trail = Trail::new(moment, before);
        if last && enough {
            found(Match {
                trail: trail.clone(),
                binding: binding.clone(),
            });
        }
        match ends.last_mut() {
            // The same event by another alternative.
            Some(end) if end.at == moment.at => end.len = end.len.max(len),
            _ => ends.push(End {
                at: moment.at,
                len,
                binding,
                trail,
            }),
        }
    }
}

/// Three of a kind are three steps, of each of which the first of each process
/// is enough; only where there may not be more do they have to be counted.
fn one_by_one(steps: Vec<Step>) -> Vec<Step> {
    let mut all = Vec::new();
    for mut step in steps {
        if step.most.is_none() {
            let more = step.least.saturating_sub(1);
            step.least = 1;
            all.push(step.clone());
            step.without.clear();
            all.extend((0..more).map(|_| step.clone()));
        } else {
            all.push(step);
        }
    }
    all
}

impl Between {
    /// Whether such an event happened after a place and before a moment.
    fn is_between(&self, process: usize, from: At, moment: &Moment, binding: &[Sym]) -> bool {
        let Some(lists) = self.seen.get(&project(binding, &self.key)) else {
            return false;
        };
        lists.iter().any(|(own, list)| {
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
            if let Some((_, end)) = other
                && !reported
                && let Some(merged) = merge(binding, &end.binding)
            {
                reported = true;
                found(Match {
                    trail: Trail::new(moment, Some(end.trail.clone())),
                    binding: merged.into(),
                });
            }
        }
        for (side, binding) in own {
            let key = project(&binding, &self.shared);
            let list = self.last[side].entry(key).or_default();
            let end = End {
                at: moment.at,
                len: 1,
                binding: binding.into(),
                trail: Trail::new(moment, None),
            };
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
