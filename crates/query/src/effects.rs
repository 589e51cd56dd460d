//! What an event led to, across processes.

use std::collections::HashSet;

use causality::{EventId, History, Kind};
use protocol::id::ProcessIx;
use serde::Serialize;

use crate::Names;
use crate::link::Link;
use crate::shown::{Shown, Shows};
use crate::source::{Lines, Site};
use crate::why::{self, Part, Row};

/// How much is told.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Links from the event on.
    pub depth: usize,
    /// Effects of one event.
    pub width: usize,
    /// Bytes of data that are shown.
    pub data: usize,
}

/// What an event led to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The event itself.
    pub head: Shown,
    /// How many more effects it has than are shown.
    pub left_out: usize,
    /// The effects, in the order of a tree: those of one behind it.
    pub rows: Vec<Row>,
}

/// What an event led to.
pub fn report(history: &History, names: &Names, event: EventId, options: &Options) -> Report {
    let mut walk = Walk {
        history,
        options,
        seen: HashSet::from([event]),
        shows: Shows::new(history, names, options.data),
        rows: Vec::new(),
    };
    let left_out = walk.forward(event, 0);
    Report {
        head: walk.shows.get(event),
        left_out,
        rows: walk.rows,
    }
}

impl Report {
    /// The calls that are shown, to ask for their source lines.
    pub fn sites(&self) -> Vec<(EventId, Site)> {
        why::sites(&self.head, self.rows.iter())
    }

    /// Takes in where the calls are in the source.
    pub fn learn(&mut self, lines: &Lines) {
        why::learn(&mut self.head, lines);
        for row in &mut self.rows {
            why::learn(&mut row.shown, lines);
        }
    }
}

struct Walk<'h> {
    history: &'h History,
    options: &'h Options,
    seen: HashSet<EventId>,
    shows: Shows<'h>,
    rows: Vec<Row>,
}

impl Walk<'_> {
    /// What an event led to: its own effects, or else the next of its thread.
    /// Returns how many were left out.
    fn forward(&mut self, event: EventId, depth: usize) -> usize {
        if depth >= self.options.depth {
            return 0;
        }
        let mut links = self.history.effects(event);
        without_echoes(&mut links);
        if links.is_empty() {
            links = self.history.next_effects(event);
        }
        let left_out = links.len().saturating_sub(self.options.width);
        links.truncate(self.options.width);
        for link in links {
            let new = self.seen.insert(link.effect);
            let at = self.rows.len();
            self.rows.push(Row {
                shown: self.shows.get(link.effect),
                link: Link::new(self.history, &link),
                depth: depth + 1,
                role: Part::Effect,
                told_above: !new,
                left_out: 0,
                is_cut: false,
                kind: link.kind,
            });
            if new {
                let left_out = self.forward(link.effect, depth + 1);
                if let Some(row) = self.rows.get_mut(at) {
                    row.left_out = left_out;
                }
            }
        }
        left_out
    }
}

/// That a wait found something ready is not told where the same process then
/// took it.
fn without_echoes(links: &mut Vec<causality::Link>) {
    let took: HashSet<ProcessIx> = links
        .iter()
        .filter(|link| link.kind != Kind::Ready)
        .map(|link| link.effect.process)
        .collect();
    links.retain(|link| link.kind != Kind::Ready || !took.contains(&link.effect.process));
}
