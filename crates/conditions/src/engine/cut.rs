//! The first consistent state in which every one of several processes is in
//! one of its stretches.
//!
//! Such states are closed under taking the earlier of two, so there is one
//! first (Garg and Waldecker). It is found by elimination: whoever is in none
//! of its stretches goes on to its next; whoever is behind what another has
//! seen of it goes on to that. Nobody ever goes on without having to, every
//! stretch and every link is looked at once, and no clock is needed.
#![allow(clippy::indexing_slicing)] // Tables with a row for each process.

use super::trace::Span;
use crate::history::{At, Cursor, History};

/// A consistent state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The bound of every process.
    pub cut: Vec<u32>,
    /// Of each process that was asked about, where it is.
    pub places: Vec<At>,
    /// Of each process that was asked about, which of its stretches.
    pub spans: Vec<usize>,
}

/// Looks for the first state, and goes on to later ones.
pub struct Search<'h, H: ?Sized> {
    history: &'h H,
    asked: &'h [(usize, Vec<Span>)],
    cursors: Vec<Cursor>,
    bounds: Vec<u32>,
    /// Which of those asked about each process is.
    slot: Vec<Option<usize>>,
    places: Vec<At>,
    spans: Vec<usize>,
    work: Vec<usize>,
}

impl<'h, H: History + ?Sized> Search<'h, H> {
    /// Of each process that is asked about, its stretches in order.
    pub fn new(history: &'h H, asked: &'h [(usize, Vec<Span>)]) -> Search<'h, H> {
        let count = history.processes();
        let first = |process| At::bound(history.first(process));
        let floor: Vec<At> = (0..count).map(first).collect();
        Search::from(history, asked, &floor)
    }

    /// Begins the search at a consistent state: of every process, where it is.
    pub fn from(history: &'h H, asked: &'h [(usize, Vec<Span>)], floor: &[At]) -> Search<'h, H> {
        let count = history.processes();
        let mut slot = vec![None; count];
        for (i, (process, _)) in asked.iter().enumerate() {
            slot[*process] = Some(i);
        }
        let bounds: Vec<u32> = floor.iter().map(|at| at.bound).collect();
        let cursor = |process: usize| Cursor::incoming(history, process).from(bounds[process]);
        Search {
            cursors: (0..count).map(cursor).collect(),
            places: asked.iter().map(|(p, _)| floor[*p]).collect(),
            spans: vec![0; asked.len()],
            work: asked.iter().map(|(process, _)| *process).collect(),
            history,
            asked,
            bounds,
            slot,
        }
    }

    /// The first state, or the first after those that were found: what ended
    /// first of the last one is over in it.
    pub fn find_next(&mut self) -> Option<Found> {
        while let Some(process) = self.work.pop() {
            if let Some(i) = self.slot[process] {
                let list = &self.asked[i].1;
                let here = self.places[i].max(At::bound(self.bounds[process]));
                let mut span = self.spans[i];
                while list.get(span).is_some_and(|own| own.to <= here) {
                    span += 1;
                }
                self.spans[i] = span;
                let own = list.get(span)?;
                self.places[i] = here.max(own.from);
                self.bounds[process] = self.places[i].bound;
            }
            let bound = self.bounds[process];
            while let Some(arrow) = self.cursors[process].peek(self.history, bound) {
                self.cursors[process].pop();
                let other = arrow.other as usize;
                if let Some(place) = self.bounds.get_mut(other)
                    && *place <= arrow.number
                {
                    *place = arrow.number + 1;
                    self.work.push(other);
                }
            }
        }
        let found = Found {
            cut: self.bounds.clone(),
            places: self.places.clone(),
            spans: self.spans.clone(),
        };
        // What ends first is over in the next one.
        let ends = self.asked.iter().enumerate().map(|(i, (process, list))| {
            let span = list.get(self.spans[i]);
            let until = span.map_or(u64::MAX, |span| span.until);
            let last = span.is_none_or(|span| span.to == At::END);
            (last, until, *process, i)
        });
        match ends.min() {
            Some((_, _, process, i)) => {
                self.spans[i] += 1;
                let list = &self.asked[i].1;
                self.places[i] = list.get(self.spans[i]).map_or(At::END, |span| span.from);
                self.work.push(process);
            }
            None => self.asked = &[],
        }
        Some(found)
    }
}

/// Whether every way the run can have gone passes through a state in which all
/// are in one of their stretches: there are stretches each of which began
/// before every other ended.
pub fn definitely<H: History + ?Sized>(
    history: &H,
    asked: &[(usize, Vec<Span>)],
) -> Option<Vec<usize>> {
    let mut at = vec![0; asked.len()];
    let mut exits: Vec<Option<Vec<u32>>> = vec![None; asked.len()];
    let mut fresh: Vec<usize> = (0..asked.len()).collect();
    let begins = |i: usize, span: &Span| {
        let (process, _) = asked[i];
        (span.from > At::bound(history.first(process))).then_some(span.from.needs())
    };
    while let Some(i) = fresh.pop() {
        let (process, list) = &asked[i];
        let span = list.get(at[i])?;
        exits[i] = (span.to != At::END).then(|| history.past(*process, span.to.bound));
        for j in 0..asked.len() {
            if i == j {
                continue;
            }
            let other = asked[j].1.get(at[j])?;
            // Did `a` begin before `b` ended? If not, `b` is of no use.
            let useless =
                |a: usize, own: &Span, exit: &Option<Vec<u32>>| match (begins(a, own), exit) {
                    (Some(needs), Some(past)) => past[asked[a].0] < needs,
                    _ => false,
                };
            if exits[j].is_some() && useless(i, span, &exits[j]) && !fresh.contains(&j) {
                at[j] += 1;
                fresh.push(j);
            }
            if useless(j, other, &exits[i]) {
                at[i] += 1;
                fresh.push(i);
                break;
            }
        }
    }
    Some(at)
}
