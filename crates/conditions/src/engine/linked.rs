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

use std::cell::OnceCell;
use std::rc::Rc;

use super::between::{Between, known};
pub use super::concurrent::Concurrent;
use super::{Atom, ByValues, Happening, Match, Sym, Table, Trail, merge, project};
use crate::history::At;
use crate::stream::Moment;

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
pub(super) struct End {
    pub(super) at: At,
    time: u64,
    order: usize,
    /// How many events of the step are in it.
    len: u32,
    pub(super) binding: Rc<[Sym]>,
    /// The events before it.
    before: Option<Rc<Trail>>,
    /// With it, once somebody goes on from here: most are never gone on from.
    trail: OnceCell<Rc<Trail>>,
}

impl End {
    pub(super) fn new(
        moment: &Moment,
        len: u32,
        binding: Rc<[Sym]>,
        before: Option<Rc<Trail>>,
        trail: Option<Rc<Trail>>,
    ) -> End {
        End {
            at: moment.at,
            time: moment.time,
            order: moment.order,
            len,
            binding,
            before,
            trail: trail.map_or_else(OnceCell::new, OnceCell::from),
        }
    }

    /// The events up to it, which is one of this process.
    pub(super) fn trail(&self, process: usize) -> Rc<Trail> {
        let trail = self.trail.get_or_init(|| {
            Rc::new(Trail {
                process,
                at: self.at,
                time: self.time,
                order: self.order,
                before: self.before.clone(),
            })
        });
        trail.clone()
    }
}

/// Those with the same values, by process.
#[derive(Default)]
struct Group {
    ends: Vec<(usize, Vec<End>)>,
    /// Of each process, where in the list it is; one more than that.
    index: Vec<u32>,
}

impl Group {
    /// Those of a process.
    fn get(&self, process: usize) -> Option<&(usize, Vec<End>)> {
        let at = self.index.get(process)?.checked_sub(1)?;
        self.ends.get(at as usize)
    }

    fn of(&mut self, process: usize) -> &mut Vec<End> {
        if self.index.len() <= process {
            self.index.resize(process + 1, 0);
        }
        let at = match self.index[process] {
            0 => {
                self.ends.push((process, Vec::new()));
                self.index[process] = self.ends.len() as u32;
                self.ends.len() - 1
            }
            at => at as usize - 1,
        };
        &mut self.ends[at].1
    }
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
    /// Nothing comes after it.
    is_last: bool,
    /// It is only counted how often the chain is complete with it, from some time on.
    counted: Option<u64>,
    /// Of each of its atoms: it binds all that tells groups apart.
    settles: Vec<bool>,
    /// The binding of no names.
    nothing: Rc<[Sym]>,
}

/// Finds all events at which a chain is complete.
pub struct Linked {
    stages: Vec<Stage>,
    names: usize,
    /// Of each kind of event, the steps that it is one of and as which of their atoms, the
    /// last first.
    places: Vec<(u32, Vec<(usize, usize)>)>,
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
            let without = step.without.iter();
            let without = without.map(|atom| Between::new(atom, &bound));
            let settles =
                |atom: &Atom| live.iter().all(|name| atom.bound().any(|own| own == *name));
            stages.push(Stage {
                without: without.collect(),
                settles: step.atoms.iter().map(settles).collect(),
                is_last: k + 1 == count,
                counted: None,
                nothing: [].into(),
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
        let mut places: Vec<(u32, Vec<(usize, usize)>)> = Vec::new();
        for (k, step) in steps.iter().enumerate().rev() {
            for (a, atom) in step.atoms.iter().enumerate() {
                match places.iter_mut().find(|(letter, _)| *letter == atom.letter) {
                    Some((_, list)) => list.push((k, a)),
                    None => places.push((atom.letter, vec![(k, a)])),
                }
            }
        }
        Linked {
            stages,
            names,
            places,
        }
    }

    /// From here on nobody asks where chains are, only how many there are.
    pub fn only_count(&mut self) {
        if let Some(last) = self.stages.last_mut() {
            last.counted.get_or_insert(0);
        }
    }

    /// How many were only counted since this was asked last.
    pub fn counted(&mut self) -> u64 {
        let counted = self
            .stages
            .last_mut()
            .and_then(|last| last.counted.as_mut());
        counted.map_or(0, std::mem::take)
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
        match set {
            [happening] => self.take_one(moment, happening, found),
            _ => {
                for k in (0..self.stages.len()).rev() {
                    for happening in set {
                        for a in 0..self.stages[k].step.atoms.len() {
                            self.take_as(k, a, moment, happening, found);
                        }
                    }
                }
            }
        }
        for stage in &mut self.stages {
            for between in &mut stage.without {
                for happening in set {
                    between.take(moment, happening, self.names);
                }
            }
        }
    }

    /// Mostly an event is of one kind.
    fn take_one(&mut self, moment: &Moment, own: &Happening, found: &mut dyn FnMut(Match)) {
        let all = &mut self.places.iter_mut();
        let Some((_, places)) = all.find(|(letter, _)| *letter == own.letter) else {
            return;
        };
        let places = std::mem::take(places);
        for (k, a) in &places {
            self.take_as(*k, *a, moment, own, found);
        }
        let all = &mut self.places.iter_mut();
        if let Some((_, place)) = all.find(|(letter, _)| *letter == own.letter) {
            *place = places;
        }
    }

    /// An event may be one of step `k`, as one of its atoms.
    fn take_as(
        &mut self,
        k: usize,
        a: usize,
        moment: &Moment,
        happening: &Happening,
        found: &mut dyn FnMut(Match),
    ) {
        let atom = &self.stages[k].step.atoms[a];
        if let Some(own) = atom.bind(happening, self.names) {
            self.reach(k, a, moment, own, found);
        }
    }

    /// An event is one of step `k`.
    fn reach(
        &mut self,
        k: usize,
        atom: usize,
        moment: &Moment,
        own: Vec<Sym>,
        found: &mut dyn FnMut(Match),
    ) {
        let (done, rest) = self.stages.split_at_mut(k);
        let Some(stage) = rest.first_mut() else {
            return;
        };
        if stage.has_enough(atom, moment, &own) {
            return;
        }
        if stage.is_counted() {
            reach_counted(done.last(), stage, atom, moment, &own, found);
            return;
        }
        let Some(before) = done.last() else {
            match &mut stage.counted {
                Some(counted) => *counted += 1,
                None => stage.arrive(moment, own, 1, None, found),
            }
            return;
        };
        let (shared, index) = &before.next[atom];
        // What has no names in common has all groups.
        let (some, all) = match shared.is_empty() {
            true => (None, 0..before.groups.len()),
            false => (index.get(&project(&own, shared)), 0..0),
        };
        for group in some.into_iter().flatten().copied().chain(all) {
            if let Some((process, end)) = stage.follows(before, &before.groups[group], moment, &own)
                && let Some(binding) = merge(&end.binding, &own)
            {
                if let Some(counted) = &mut stage.counted {
                    *counted += 1;
                    continue;
                }
                stage.arrive(moment, binding, 1, Some(end.trail(process)), found);
            }
        }
    }
}

/// An event is one of a step that is counted: it may be the first, or one more.
fn reach_counted(
    before: Option<&Stage>,
    stage: &mut Stage,
    atom: usize,
    moment: &Moment,
    own: &[Sym],
    found: &mut dyn FnMut(Match),
) {
    // What it goes on from, with the binding that results.
    let mut ways: Vec<(Vec<Sym>, Option<Rc<Trail>>)> = Vec::new();
    match before {
        None => ways.push((own.to_vec(), None)),
        Some(before) => {
            let (shared, index) = &before.next[atom];
            let groups = index.get(&project(own, shared));
            for group in groups.into_iter().flatten() {
                if let Some((process, end)) =
                    stage.follows(before, &before.groups[*group], moment, own)
                    && let Some(binding) = merge(&end.binding, own)
                {
                    ways.push((binding, Some(end.trail(process))));
                }
            }
        }
    }
    // One more of the same step.
    let mut more: Vec<(Vec<Sym>, u32, Rc<Trail>)> = Vec::new();
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
        let mut best: Option<(usize, &End)> = None;
        for (process, ends) in &group.ends {
            let count = known(ends, moment, *process, |end| end.at);
            if let Some(end) = count.checked_sub(1).and_then(|last| ends.get(last))
                && project(&end.binding, &same) == project(own, &same)
                && best.is_none_or(|(_, best)| end.len > best.len)
            {
                best = Some((*process, end));
            }
        }
        if let Some((process, end)) = best
            && let Some(binding) = merge(&end.binding, own)
        {
            more.push((binding, end.len + 1, end.trail(process)));
        }
    }
    for (binding, before) in ways {
        let key = project(&binding, &stage.live);
        // A longer way to the same values counts for more.
        if !more
            .iter()
            .any(|(other, ..)| project(other, &stage.live) == key)
        {
            stage.arrive(moment, binding, 1, before, found);
        }
    }
    for (binding, len, before) in more {
        stage.arrive(moment, binding, len, Some(before), found);
    }
}

impl Stage {
    fn is_counted(&self) -> bool {
        self.step.least > 1 || self.step.most.is_some()
    }

    /// Whether an event of this step tells nothing new, whatever it goes on from: the
    /// first of its process is enough, and there is one.
    fn has_enough(&self, atom: usize, moment: &Moment, own: &[Sym]) -> bool {
        if self.keeps_all || self.is_last || !self.settles[atom] {
            return false;
        }
        let group = self.group_of(own).and_then(|group| self.groups.get(group));
        let ends = group.and_then(|group| group.get(moment.process));
        ends.is_some_and(|(_, ends)| !ends.is_empty())
    }

    /// The end of the step before that an event of this step can follow, and its
    /// process.
    fn follows<'g>(
        &self,
        before: &Stage,
        group: &'g Group,
        moment: &Moment,
        own: &[Sym],
    ) -> Option<(usize, &'g End)> {
        if self.without.is_empty() && before.step.most.is_none() {
            for (process, ends) in &group.ends {
                let first = ends.partition_point(|end| end.len < before.step.least);
                if let Some(end) = ends.get(first)
                    && moment.is_after(*process, end.at)
                {
                    return Some((*process, end));
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
            !self
                .without
                .iter()
                .any(|between| between.is_between(*process, end.at, moment, &binding))
        };
        // Its own process knows most of what it did itself.
        let here = group.get(moment.process);
        let others = group.ends.iter();
        let others = others.filter(|(process, _)| *process != moment.process);
        here.into_iter().chain(others).filter_map(last).find(free)
    }

    /// The group with these values, if there is one.
    fn group_of(&self, binding: &[Sym]) -> Option<usize> {
        match self.live.is_empty() {
            true => (!self.groups.is_empty()).then_some(0),
            false => self.by_live.get(&project(binding, &self.live)).copied(),
        }
    }

    /// A binding, to be kept; that of no names is shared.
    fn kept(&self, binding: Vec<Sym>) -> Rc<[Sym]> {
        match binding.is_empty() {
            true => self.nothing.clone(),
            false => binding.into(),
        }
    }

    /// The chain up to this step is complete.
    fn arrive(
        &mut self,
        moment: &Moment,
        binding: Vec<Sym>,
        len: u32,
        before: Option<Rc<Trail>>,
        found: &mut dyn FnMut(Match),
    ) {
        let enough = len >= self.step.least && self.step.most.is_none_or(|most| len <= most);
        if self.is_last && !self.is_counted() {
            found(Match {
                trail: Trail::new(moment, before),
                binding: self.kept(binding),
            });
            return;
        }
        let id = match self.group_of(&binding) {
            Some(id) => id,
            None => {
                let key = project(&binding, &self.live);
                let id = self.groups.len();
                self.groups.push(Group::default());
                for (shared, index) in &mut self.next {
                    let values = project(&binding, shared);
                    index.entry(values).or_default().push(id);
                }
                self.by_live.insert(key, id);
                id
            }
        };
        let binding = self.kept(binding);
        let ends = self.groups[id].of(moment.process);
        if !self.keeps_all && !ends.is_empty() {
            return;
        }
        let mut trail = None;
        if self.is_last && enough {
            let own = Trail::new(moment, before.clone());
            trail = Some(own.clone());
            found(Match {
                trail: own,
                binding: binding.clone(),
            });
        }
        match ends.last_mut() {
            // The same event by another alternative.
            Some(end) if end.at == moment.at => end.len = end.len.max(len),
            _ => ends.push(End::new(moment, len, binding, before, trail)),
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
