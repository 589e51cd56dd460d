//! The last consistent state before a place in which a condition holds.
//!
//! Conjunctions of statements about one process each are closed under taking the
//! later of two states, too: there is one last. It is found as the first is, with
//! everything the other way round: whoever is in none of its stretches goes back to
//! the last before, and whoever has seen what is undone goes back to before that.

use super::formula::{Formula, disjuncts};
use super::{Conjunction, Solver};
use crate::engine::enumerate::{self, Looked};
use crate::engine::poset::Poset;
use crate::engine::trace::{Edge, Span, Trace, Val};
use crate::history::{At, History};

/// What going back leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// This state: where every process is.
    Yes(Vec<Edge>),
    /// There is none.
    No,
    /// That cannot be told, and why.
    Unknown(String),
}

/// Leads a process back, and all others that have seen what is undone.
pub fn lead_back<H: History + ?Sized>(
    history: &H,
    edges: &mut [Edge],
    process: usize,
    to: Edge,
    led: &mut Vec<usize>,
) {
    let mut work = vec![(process, to)];
    let mut arrows = Vec::new();
    while let Some((process, to)) = work.pop() {
        let own = &mut edges[process];
        if *own <= to {
            continue;
        }
        let (before, now) = (own.bound(), to.bound());
        *own = to;
        led.push(process);
        arrows.clear();
        if now < before {
            history.effects(process, now, before, &mut arrows);
        }
        for arrow in &arrows {
            let other = arrow.other as usize;
            if other != process && other < edges.len() {
                work.push((other, Edge::before(At::after(arrow.number))));
            }
        }
    }
}

impl<H: History + ?Sized> Solver<'_, H> {
    /// The last state, not behind this one, in which a condition holds. Of several
    /// that are the last in some way, the one with the most behind it.
    pub fn last(&self, formula: &Formula, ceiling: &[Edge]) -> Before {
        let mut conjunctions = Vec::new();
        if !disjuncts(formula, &mut conjunctions) {
            return self.last_of_all(formula, ceiling);
        }
        let mut best: Option<Vec<Edge>> = None;
        let mut open = None;
        for conjunction in &conjunctions {
            let Some(sorted) = self.sort_out(conjunction, false) else {
                continue;
            };
            let found = match sorted.compared.is_empty() {
                true => match self.last_local(&sorted, ceiling) {
                    Some(edges) => Before::Yes(edges),
                    None => Before::No,
                },
                false => {
                    let parts = conjunction.iter().map(|part| (*part).clone());
                    self.last_of_all(&Formula::All(parts.collect()), ceiling)
                }
            };
            match found {
                Before::Yes(edges) => {
                    let size = |edges: &[Edge]| -> (u64, Vec<Edge>) {
                        let bounds = edges.iter().map(|edge| u64::from(edge.bound()));
                        (bounds.sum(), edges.to_vec())
                    };
                    if best.as_ref().is_none_or(|best| size(best) < size(&edges)) {
                        best = Some(edges);
                    }
                }
                Before::No => {}
                Before::Unknown(why) => open = Some(why),
            }
        }
        match (best, open) {
            (Some(edges), _) => Before::Yes(edges),
            (None, Some(why)) => Before::Unknown(why),
            (None, None) => Before::No,
        }
    }

    fn last_local(&self, sorted: &Conjunction<'_>, ceiling: &[Edge]) -> Option<Vec<Edge>> {
        let mut edges = ceiling.to_vec();
        let mut work: Vec<usize> = sorted.local.iter().map(|(process, _)| *process).collect();
        while let Some(process) = work.pop() {
            let Some((_, list)) = sorted.local.iter().find(|(own, _)| *own == process) else {
                continue;
            };
            let edge = edges[process];
            let begun = list.partition_point(|span: &Span| edge.has(span.from));
            let span = begun.checked_sub(1).and_then(|last| list.get(last))?;
            let end = Edge::before(span.to);
            if end < edge {
                lead_back(self.history, &mut edges, process, end, &mut work);
            }
        }
        Some(edges)
    }

    /// By looking at states one after the other, the last first.
    fn last_of_all(&self, formula: &Formula, ceiling: &[Edge]) -> Before {
        let mut used = Vec::new();
        formula.traces(&mut used);
        used.sort_unstable();
        used.dedup();
        let traces: Vec<&Trace> = used.iter().map(|trace| &self.traces[*trace]).collect();
        let Ok(poset) = Poset::between(self.history, &traces, None, Some(ceiling)) else {
            return Before::Unknown(
                "there are too many changes for all consistent states to be looked at".to_string(),
            );
        };
        let values: Vec<Vec<Val>> = traces.iter().map(|trace| poset.values(trace)).collect();
        let lane = |trace: &&Trace| poset.lane(trace.process).unwrap_or(0);
        let lanes: Vec<usize> = traces.iter().map(lane).collect();
        let fits = |state: &[u32]| {
            let value = |trace: usize| match used.binary_search(&trace) {
                Ok(at) => values[at][state[lanes[at]] as usize],
                Err(_) => Val::Absent,
            };
            formula.holds(&value, false)
        };
        match enumerate::last(&poset, fits) {
            Looked::Found(state) => {
                let mut edges = ceiling.to_vec();
                for (lane, process) in poset.lanes.iter().enumerate() {
                    if let Some(node) = poset.nodes[lane].get(state[lane] as usize) {
                        let before = Edge::before(node.at);
                        lead_back(self.history, &mut edges, *process, before, &mut Vec::new());
                    }
                }
                Before::Yes(edges)
            }
            Looked::Nowhere => Before::No,
            Looked::TooMany => Before::Unknown(format!(
                "it takes looking at more than {} consistent states",
                enumerate::STATES_MAX
            )),
        }
    }
}
