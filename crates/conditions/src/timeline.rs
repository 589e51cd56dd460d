//! All that rules tell of a run, to be asked from any place in it: what comes next,
//! and what was last.
//!
//! Judging asks whether; who debugs stands somewhere and asks where to. A rule over
//! events is there at known events, in one causal sequence of all. A condition over
//! states is kept as what each state is over its process's run, and solved from where
//! everybody stands.
#![allow(clippy::indexing_slicing)] // Tables with a row for each trace or process.

use std::rc::Rc;

use crate::engine::Trail;
use crate::engine::solve::{Answer, Before, Formula, Modality, Solver, lead_back};
use crate::engine::trace::{Edge, Trace};
use crate::history::{At, History};
use crate::source::Symbols;
use crate::stream::{Mark, Stream};
use crate::syntax::ast::Kind;
use crate::values::Value;
use crate::verdict::{Emitted, Verdict, Witness};

/// A rule was complete, or broken, at an event.
#[derive(Clone, Debug)]
pub struct Fired {
    /// Its place in the causal sequence of all events that rules look at.
    pub order: usize,
    /// The process.
    pub process: usize,
    /// Where it was then.
    pub at: At,
    /// What names were bound to.
    pub captures: Vec<(String, String)>,
    /// The events that make it up.
    pub trail: Rc<Trail>,
}

/// What a rule tells.
#[derive(Clone, Debug)]
pub enum What {
    /// These, in causal order; and what is to be done at each.
    Events(Vec<Fired>, Vec<String>),
    /// A condition that holds in some states and not in others.
    States(StateCondition),
    /// One state.
    State(Witness),
    /// Nothing, and why.
    Nothing(String),
}

impl What {
    /// Of a condition that is asked of all ways the run can have gone.
    pub(crate) fn of_states(verdict: Verdict) -> What {
        match verdict.witnesses.into_iter().next() {
            Some(witness) => What::State(witness),
            None => What::Nothing(verdict.reason.unwrap_or_default()),
        }
    }
}

/// What one rule tells.
#[derive(Clone, Debug)]
pub struct Told {
    /// Its name.
    pub rule: String,
    /// What kind it is.
    pub kind: Kind,
    /// What it tells.
    pub what: What,
}

/// What all rules tell.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// In the order of the rules.
    pub told: Vec<Told>,
    /// Higher events, in causal order.
    pub emitted: Vec<Emitted>,
}

/// A condition over states, with what each state is over the run.
#[derive(Clone, Debug)]
pub struct StateCondition {
    pub(crate) traces: Vec<Trace>,
    /// Of each trace, the name of its state, and what that is.
    pub(crate) names: Vec<String>,
    pub(crate) origins: Vec<Rc<Trace<Value>>>,
    pub(crate) symbols: Rc<Symbols>,
    /// Each way to give values to its names, and what is asked then.
    pub(crate) ways: Vec<(Vec<(String, String)>, Formula)>,
}

/// A state in which a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Where every process is.
    pub places: Vec<Edge>,
    /// Those that it is about.
    pub about: Vec<usize>,
    /// What states were there: whose, which, what.
    pub values: Vec<(usize, String, String)>,
    /// What names were bound to.
    pub captures: Vec<(String, String)>,
}

/// That cannot be told, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

impl StateCondition {
    fn held(&self, places: Vec<Edge>, way: usize) -> Held {
        let mut used = Vec::new();
        let (captures, formula) = &self.ways[way];
        formula.traces(&mut used);
        used.sort_unstable();
        used.dedup();
        let mut about: Vec<usize> = used.iter().map(|own| self.traces[*own].process).collect();
        about.sort_unstable();
        about.dedup();
        let values = used.into_iter().filter_map(|own| {
            let trace = &self.traces[own];
            let value = places[trace.process].value(&self.origins[own]);
            let text = value.words(&self.symbols)?;
            Some((trace.process, self.names[own].clone(), text))
        });
        Held {
            values: values.collect(),
            captures: captures.clone(),
            about,
            places,
        }
    }

    fn is_so(&self, formula: &Formula, places: &[Edge]) -> bool {
        let value = |trace: usize| {
            let trace = &self.traces[trace];
            places[trace.process].value(trace)
        };
        formula.holds(&value, false)
    }

    /// Whether it holds where everybody is.
    pub fn here(&self, places: &[Edge]) -> Option<Held> {
        let ways = 0..self.ways.len();
        let mut so = ways.filter(|way| self.is_so(&self.ways[*way].1, places));
        so.next().map(|way| self.held(places.to_vec(), way))
    }

    /// The changes of what a formula is about that pass a test, in causal order.
    fn changes<H: History + ?Sized>(
        &self,
        history: &H,
        formula: &Formula,
        takes: &dyn Fn(usize, At) -> bool,
    ) -> Vec<(usize, At)> {
        let mut used = Vec::new();
        formula.traces(&mut used);
        used.sort_unstable();
        used.dedup();
        let mut marks: Vec<Vec<Mark>> = vec![Vec::new(); history.processes()];
        for trace in used.iter().map(|own| &self.traces[*own]) {
            let own = trace.changes.iter();
            let own = own.filter(|change| takes(trace.process, change.at));
            marks[trace.process].extend(own.map(|change| Mark {
                at: change.at,
                time: change.time,
            }));
        }
        for list in &mut marks {
            list.sort_by_key(|mark| mark.at);
            list.dedup_by_key(|mark| mark.at);
        }
        let stream = Stream::new(history, &marks);
        stream.map(|moment| (moment.process, moment.at)).collect()
    }

    /// Leaves a state in which a formula holds, change by change, as the run did: a
    /// state in which it does not, or nothing if it holds to the end.
    fn leave(
        &self,
        formula: &Formula,
        mut places: Vec<Edge>,
        changes: impl Iterator<Item = (usize, At)>,
        go: impl Fn(&mut [Edge], usize, At),
    ) -> Option<Vec<Edge>> {
        for (process, at) in changes {
            go(&mut places, process, at);
            if !self.is_so(formula, &places) {
                return Some(places);
            }
        }
        None
    }

    /// Of the states that the ways lead to, the one whose size is the best.
    fn best_of_ways(
        &self,
        find: impl Fn(&Formula) -> Result<Option<Vec<Edge>>, String>,
        is_better: impl Fn(u64, u64) -> bool,
    ) -> Result<Option<Held>, Unknown> {
        let mut best: Option<(Held, u64)> = None;
        let mut open = None;
        for (way, (_, formula)) in self.ways.iter().enumerate() {
            match find(formula) {
                Ok(Some(places)) => {
                    let own = size(&places);
                    if best.as_ref().is_none_or(|(_, best)| is_better(own, *best)) {
                        best = Some((self.held(places, way), own));
                    }
                }
                Ok(None) => {}
                Err(why) => open = Some(why),
            }
        }
        match (best, open) {
            (Some((held, _)), _) => Ok(Some(held)),
            (None, Some(why)) => Err(Unknown(why)),
            (None, None) => Ok(None),
        }
    }

    /// The first state, from a consistent one on, in which it holds. If it holds there
    /// already, the first after it has not: it is left as the run left it.
    pub fn next<H: History + ?Sized>(
        &self,
        history: &H,
        from: &[At],
    ) -> Result<Option<Held>, Unknown> {
        let find = |formula: &Formula| {
            let mut edges: Vec<Edge> = from.iter().map(|at| Edge::at(*at)).collect();
            if self.is_so(formula, &edges) {
                let after = self.changes(history, formula, &|process, at| at > from[process]);
                let go = |places: &mut [Edge], process: usize, at: At| {
                    // What happened before it has happened, too.
                    let past = history.past(process, at.bound);
                    for (own, bound) in places.iter_mut().zip(past) {
                        *own = (*own).max(Edge::at(At::bound(bound)));
                    }
                    places[process] = places[process].max(Edge::at(at));
                };
                match self.leave(formula, edges, after.into_iter(), go) {
                    Some(left) => edges = left,
                    None => return Ok(None),
                }
            }
            let mut places: Vec<At> = edges.iter().map(|edge| edge.at).collect();
            let solver = Solver {
                history,
                traces: &self.traces,
                floor: Some(&places),
            };
            let state = match solver.ask(formula, Modality::Possibly) {
                Answer::Yes(state) => state,
                Answer::No => return Ok(None),
                Answer::Unknown(why) => return Err(why),
            };
            for (own, bound) in places.iter_mut().zip(&state.cut) {
                *own = (*own).max(At::bound(*bound));
            }
            for (process, at) in &state.places {
                places[*process] = places[*process].max(*at);
            }
            Ok(Some(places.into_iter().map(Edge::at).collect()))
        };
        self.best_of_ways(find, |own, best| own < best)
    }

    /// The last state, before a consistent one, in which it holds. If it holds there
    /// already, the last before it began to.
    pub fn last<H: History + ?Sized>(
        &self,
        history: &H,
        from: &[Edge],
    ) -> Result<Option<Held>, Unknown> {
        let find = |formula: &Formula| {
            let mut ceiling = from.to_vec();
            if self.is_so(formula, &ceiling) {
                let before = self.changes(history, formula, &|process, at| from[process].has(at));
                let go = |places: &mut [Edge], process: usize, at: At| {
                    lead_back(history, places, process, Edge::before(at), &mut Vec::new());
                };
                match self.leave(formula, ceiling, before.into_iter().rev(), go) {
                    Some(left) => ceiling = left,
                    None => return Ok(None),
                }
            }
            let solver = Solver {
                history,
                traces: &self.traces,
                floor: None,
            };
            match solver.last(formula, &ceiling) {
                Before::Yes(places) => Ok(Some(places)),
                Before::No => Ok(None),
                Before::Unknown(why) => Err(why),
            }
        };
        self.best_of_ways(find, |own, best| own > best)
    }
}

/// How much is behind a state: more, if one state is behind another.
pub fn size(places: &[Edge]) -> u64 {
    places.iter().map(|edge| u64::from(edge.bound())).sum()
}
