//! Conditions over the states of several processes: in which consistent states
//! they hold.
//!
//! A condition is brought into disjunctive form. What then is a conjunction of
//! statements about one process each has a unique first state, found in time
//! linear in events ([`cut`](super::cut)); a comparison of two processes is a
//! matter of pairs of stretches ([`relation`](super::relation)); a sum over many
//! is bounded by flow ([`flow`](super::flow)). Anything else is looked for among
//! all consistent states, up to a number of them ([`enumerate`](super::enumerate)).
#![allow(clippy::indexing_slicing)] // Tables with a row for each trace or process.

mod formula;
mod last;
mod sums;

use super::cut::{self, Search};
use super::enumerate::{self, Looked};
use super::poset::Poset;
use super::trace::{Span, Trace, Val, intersect, spans};
use crate::history::{At, History, within};
use crate::stream::closure_from;

use formula::disjuncts;
pub use formula::{Formula, Linear};
pub use last::{Before, lead_back};

/// A consistent state in which a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The bound of every process.
    pub cut: Vec<u32>,
    /// Where those are that the condition is about.
    pub places: Vec<(usize, At)>,
    /// Whether it is the one first state there is.
    pub unique: bool,
}

/// Whether a condition holds somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// In this state.
    Yes(State),
    /// Nowhere.
    No,
    /// That cannot be told, and why.
    Unknown(String),
}

/// In which states a condition must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modality {
    /// In some consistent state.
    Possibly,
    /// In some state whichever way the run went.
    Definitely,
    /// In some state that was passed in the order of recorded times.
    Observed,
}

/// Conjunctions that a condition may have in disjunctive form.
const CONJUNCTIONS_MAX: usize = 20_000;

/// Answers conditions over some traces.
pub struct Solver<'h, H: ?Sized> {
    /// The history.
    pub history: &'h H,
    /// The traces that formulas name.
    pub traces: &'h [Trace],
    /// Where everybody is, if not at the beginning: a consistent state, and only it
    /// and later ones count.
    pub floor: Option<&'h [At]>,
}

/// Where processes are that have come to these places, and as far as others have seen
/// them come: what was looked for is still so there, or it would be another state.
fn reached(places: impl Iterator<Item = (usize, At)>, cut: &[u32]) -> Vec<(usize, At)> {
    let raised = places.map(|(process, at)| {
        let seen = cut.get(process).copied().unwrap_or(0);
        (process, at.max(At::bound(seen)))
    });
    raised.collect()
}

/// One conjunction, sorted out.
struct Conjunction<'f> {
    local: Vec<(usize, Vec<Span>)>,
    compared: Vec<&'f Linear>,
}

impl<H: History + ?Sized> Solver<'_, H> {
    /// Whether, and where, a condition holds.
    pub fn ask(&self, formula: &Formula, modality: Modality) -> Answer {
        let sure = self.ask_with(formula, modality, false);
        if matches!(sure, Answer::Yes(_)) || !self.has_unknown(formula) {
            return sure;
        }
        match self.ask_with(formula, modality, true) {
            Answer::Yes(state) => Answer::Unknown(format!(
                "it would hold at {} if what is unknown there made it so",
                self.words(&state)
            )),
            other => match sure {
                Answer::No => other,
                sure => sure,
            },
        }
    }

    fn words(&self, state: &State) -> String {
        let places = state.places.iter().map(|(process, at)| {
            let name = self.history.name(*process);
            match at.bound.checked_sub(1) {
                Some(last) => format!("{name}:{last}"),
                None => name.to_string(),
            }
        });
        places.collect::<Vec<_>>().join(", ")
    }

    fn has_unknown(&self, formula: &Formula) -> bool {
        let mut used = Vec::new();
        formula.traces(&mut used);
        used.iter().any(|trace| {
            let changes = self.traces[*trace].changes.iter();
            changes
                .into_iter()
                .any(|change| change.value == Val::Unknown)
        })
    }

    fn ask_with(&self, formula: &Formula, modality: Modality, unknown: bool) -> Answer {
        if modality == Modality::Observed {
            return self.observed(formula, unknown);
        }
        let mut conjunctions = Vec::new();
        let complete = disjuncts(formula, &mut conjunctions);
        if !complete {
            return self.enumerate(formula, modality, unknown);
        }
        let definitely = modality == Modality::Definitely;
        let mut best: Option<State> = None;
        let mut open: Option<Answer> = None;
        let single = conjunctions.len() == 1;
        for conjunction in &conjunctions {
            let Some(sorted) = self.sort_out(conjunction, unknown) else {
                continue;
            };
            let answer = match definitely {
                false => self.possibly(&sorted, conjunction, unknown),
                true if sorted.compared.is_empty() => self.surely(&sorted),
                true => self.enumerate_all(conjunction, modality, unknown),
            };
            match answer {
                Answer::Yes(state) => {
                    let earlier = match &best {
                        Some(best) => self.is_earlier(&state, best),
                        None => true,
                    };
                    if earlier {
                        best = Some(state);
                    }
                }
                Answer::No => {}
                unknown => open = Some(unknown),
            }
            if definitely && best.is_some() {
                break;
            }
        }
        match (best, open) {
            (Some(mut state), _) => {
                state.unique &= single;
                Answer::Yes(state)
            }
            (None, Some(open)) => open,
            // None of several holds on every way; one of them may on each.
            (None, None) if definitely && conjunctions.len() > 1 => {
                self.enumerate(formula, modality, unknown)
            }
            (None, None) => Answer::No,
        }
    }

    /// Which of two states to name: the one inside the other, else the one
    /// with less behind it.
    fn is_earlier(&self, a: &State, b: &State) -> bool {
        if within(&a.cut, &b.cut) || within(&b.cut, &a.cut) {
            return a.cut != b.cut && within(&a.cut, &b.cut);
        }
        let size = |state: &State| -> u64 { state.cut.iter().map(|bound| u64::from(*bound)).sum() };
        (size(a), &a.cut) < (size(b), &b.cut)
    }

    /// What a conjunction asks of each process by itself; `None` if that is
    /// more than it can ever do.
    fn sort_out<'f>(&self, parts: &[&'f Formula], unknown: bool) -> Option<Conjunction<'f>> {
        let mut local: Vec<(usize, Vec<Span>)> = Vec::new();
        let mut compared = Vec::new();
        let mut add = |process: usize, own: Vec<Span>| match local
            .iter_mut()
            .find(|(known, _)| *known == process)
        {
            Some((_, list)) => *list = intersect(list, &own),
            None => local.push((process, own)),
        };
        for part in parts {
            match part {
                Formula::Const(true) => {}
                Formula::Is(trace, wanted) => {
                    let trace = &self.traces[*trace];
                    let fits = |value| match value {
                        Val::Unknown => unknown,
                        Val::Absent => !wanted,
                        Val::Int(number) => (number != 0) == *wanted,
                    };
                    add(trace.process, spans(trace, fits));
                }
                Formula::Compare(linear) => {
                    let by_process = self.combine(linear);
                    match by_process.as_slice() {
                        [] => {
                            if !linear.holds(&|_| Val::Absent, unknown) {
                                return None;
                            }
                        }
                        [(trace, _)] => {
                            let fits = |value| match value {
                                Val::Unknown => unknown,
                                Val::Absent => linear.absent,
                                Val::Int(number) => {
                                    linear.rel.holds(number.saturating_add(linear.constant), 0)
                                }
                            };
                            add(trace.process, spans(trace, fits));
                        }
                        _ => compared.push(linear),
                    }
                }
                _ => return None,
            }
        }
        let possible = local.iter().all(|(_, list)| !list.is_empty());
        possible.then_some(Conjunction { local, compared })
    }

    fn possibly(&self, sorted: &Conjunction<'_>, parts: &[&Formula], unknown: bool) -> Answer {
        match sorted.compared.as_slice() {
            [] => match self.search(&sorted.local).find_next() {
                Some(found) => {
                    let places = sorted.local.iter().map(|(process, _)| *process);
                    Answer::Yes(State {
                        places: reached(places.zip(found.places), &found.cut),
                        cut: found.cut,
                        unique: true,
                    })
                }
                None => Answer::No,
            },
            [linear] if sorted.local.is_empty() => self.compare(linear, parts, unknown),
            _ => self.enumerate_all(parts, Modality::Possibly, unknown),
        }
    }

    fn search<'s>(&'s self, local: &'s [(usize, Vec<Span>)]) -> Search<'s, H> {
        match self.floor {
            Some(floor) => Search::from(self.history, local, floor),
            None => Search::new(self.history, local),
        }
    }

    fn surely(&self, sorted: &Conjunction<'_>) -> Answer {
        match cut::definitely(self.history, &sorted.local) {
            Some(found) => {
                let places = sorted.local.iter().zip(found);
                let places = places
                    .filter_map(|((process, list), at)| Some((*process, list.get(at)?.from)))
                    .collect();
                Answer::Yes(self.state(places))
            }
            None => Answer::No,
        }
    }

    /// The first consistent state in which processes have come to these places.
    fn state(&self, places: Vec<(usize, At)>) -> State {
        let known: Vec<u32> = match self.floor {
            Some(floor) => floor.iter().map(|at| at.bound).collect(),
            None => (0..self.history.processes())
                .map(|process| self.history.first(process))
                .collect(),
        };
        let mut bounds = known.clone();
        for (process, at) in &places {
            bounds[*process] = bounds[*process].max(at.bound);
        }
        let cut = closure_from(self.history, &known, bounds);
        State {
            places: reached(places.into_iter(), &cut),
            cut,
            unique: false,
        }
    }

    fn state_at(&self, poset: &Poset, counts: &[u32]) -> State {
        let lanes = poset.lanes.iter().zip(counts).enumerate();
        let places = lanes.map(|(lane, (process, count))| (*process, poset.place(lane, *count)));
        self.state(places.collect())
    }

    fn enumerate_all(&self, parts: &[&Formula], modality: Modality, unknown: bool) -> Answer {
        let all = Formula::All(parts.iter().map(|part| (*part).clone()).collect());
        self.enumerate(&all, modality, unknown)
    }

    /// By looking at states one after the other.
    fn enumerate(&self, formula: &Formula, modality: Modality, unknown: bool) -> Answer {
        let mut used = Vec::new();
        formula.traces(&mut used);
        used.sort_unstable();
        used.dedup();
        let traces: Vec<&Trace> = used.iter().map(|trace| &self.traces[*trace]).collect();
        let Ok(poset) = Poset::between(self.history, &traces, self.floor, None) else {
            return Answer::Unknown(
                "there are too many changes for all consistent states to be looked at".to_string(),
            );
        };
        let values: Vec<Vec<Val>> = traces.iter().map(|trace| poset.values(trace)).collect();
        let lanes: Vec<usize> = traces
            .iter()
            .map(|trace| {
                let own = poset
                    .lanes
                    .iter()
                    .position(|process| *process == trace.process);
                own.unwrap_or(0)
            })
            .collect();
        let fits = |state: &[u32]| {
            let value = |trace: usize| match used.binary_search(&trace) {
                Ok(at) => values[at][state[lanes[at]] as usize],
                Err(_) => Val::Absent,
            };
            formula.holds(&value, unknown)
        };
        let looked = match modality {
            Modality::Definitely => enumerate::definitely(&poset, fits),
            _ => enumerate::possibly(&poset, fits),
        };
        match looked {
            Looked::Found(state) => Answer::Yes(self.state_at(&poset, &state)),
            Looked::Nowhere => Answer::No,
            Looked::TooMany => Answer::Unknown(format!(
                "it takes looking at more than {} consistent states",
                enumerate::STATES_MAX
            )),
        }
    }

    /// The first state in the order of recorded times.
    fn observed(&self, formula: &Formula, unknown: bool) -> Answer {
        let mut used = Vec::new();
        formula.traces(&mut used);
        used.sort_unstable();
        used.dedup();
        let mut marks: Vec<Vec<crate::stream::Mark>> = vec![Vec::new(); self.history.processes()];
        for trace in &used {
            let trace = &self.traces[*trace];
            marks[trace.process].extend(trace.changes.iter().map(|change| crate::stream::Mark {
                at: change.at,
                time: change.time,
            }));
        }
        for list in &mut marks {
            list.sort_by_key(|mark| mark.at);
            list.dedup_by_key(|mark| mark.at);
        }
        let mut now: Vec<(usize, Val)> = used.iter().map(|_| (0, Val::Absent)).collect();
        let mut places: Vec<(usize, At)> = Vec::new();
        if let Some(floor) = self.floor {
            for (list, floor) in marks.iter_mut().zip(floor) {
                list.retain(|mark| mark.at > *floor);
            }
            for (now, trace) in now.iter_mut().zip(&used) {
                let trace = &self.traces[*trace];
                let floor = floor[trace.process];
                let behind = trace.changes.partition_point(|change| change.at <= floor);
                *now = (behind, trace.at(floor));
                if !places.iter().any(|(process, _)| *process == trace.process) {
                    places.push((trace.process, floor));
                }
            }
        }
        let value = |now: &[(usize, Val)], trace: usize| match used.binary_search(&trace) {
            Ok(at) => now[at].1,
            Err(_) => Val::Absent,
        };
        if formula.holds(&|trace| value(&now, trace), unknown) {
            return Answer::Yes(self.state(places));
        }
        for moment in crate::stream::Stream::new(self.history, &marks) {
            for (at, trace) in used.iter().enumerate() {
                let trace = &self.traces[*trace];
                if trace.process != moment.process {
                    continue;
                }
                while let Some(change) = trace.changes.get(now[at].0) {
                    if change.at > moment.at {
                        break;
                    }
                    now[at] = (now[at].0 + 1, change.value);
                }
            }
            match places
                .iter_mut()
                .find(|(process, _)| *process == moment.process)
            {
                Some(place) => place.1 = moment.at,
                None => places.push((moment.process, moment.at)),
            }
            if formula.holds(&|trace| value(&now, trace), unknown) {
                places.sort_unstable();
                return Answer::Yes(self.state(places));
            }
        }
        Answer::No
    }

    /// How often a condition holds that is a conjunction of statements about
    /// one process each, with each time: one ends where the first of its parts
    /// does. `None` if it is not such a condition; then only the first is known.
    pub fn occurrences(&self, formula: &Formula, most: usize) -> Option<Vec<State>> {
        let mut conjunctions = Vec::new();
        if !disjuncts(formula, &mut conjunctions) || conjunctions.len() != 1 {
            return None;
        }
        let parts = conjunctions.first()?;
        let Some(sorted) = self.sort_out(parts, false) else {
            return Some(Vec::new());
        };
        if !sorted.compared.is_empty() || sorted.local.is_empty() {
            return None;
        }
        let mut search = self.search(&sorted.local);
        let mut all = Vec::new();
        while all.len() < most {
            let Some(found) = search.find_next() else {
                break;
            };
            let places = sorted.local.iter().map(|(process, _)| *process);
            all.push(State {
                unique: all.is_empty(),
                places: reached(places.zip(found.places), &found.cut),
                cut: found.cut,
            });
        }
        Some(all)
    }
}
