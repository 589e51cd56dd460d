//! The order of changes, and of nothing else.
//!
//! Of a run only those moments matter at which something changes that a
//! condition looks at. A consistent state, as far as the condition can tell, is
//! how many changes of each process are behind it; and it can be one if no
//! change is behind it without those that happened before.
#![allow(clippy::indexing_slicing)] // Tables with a row for each process.

use super::trace::{Edge, Trace, Val};
use crate::history::{At, History};
use crate::stream::{Mark, Stream};

/// A moment at which something changes.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where.
    pub at: At,
    /// When it was recorded.
    pub time: u64,
    /// Its place in causal order, over all processes.
    pub order: usize,
    /// Of each process, how many changes happened before it; of its own, all
    /// before it and itself.
    pub needs: Vec<u32>,
}

/// The changes of some processes and their order.
#[derive(Debug)]
pub struct Poset {
    /// The processes.
    pub lanes: Vec<usize>,
    /// Their changes.
    pub nodes: Vec<Vec<Node>>,
    /// All changes in causal order: lane, number.
    pub sequence: Vec<(usize, usize)>,
    /// Where each is before its first change.
    bases: Vec<Option<At>>,
}

/// There are more changes than can be held side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// How many.
    pub changes: usize,
}

/// Changes times processes that are held at once.
const CELLS_MAX: usize = 40_000_000;

impl Poset {
    /// Of all changes of these.
    pub fn new<H: History + ?Sized>(history: &H, traces: &[&Trace]) -> Result<Poset, TooMany> {
        Poset::between(history, traces, None, None)
    }

    /// Of the changes behind a place in each process, up to another.
    pub fn between<H: History + ?Sized>(
        history: &H,
        traces: &[&Trace],
        floor: Option<&[At]>,
        ceiling: Option<&[Edge]>,
    ) -> Result<Poset, TooMany> {
        let mut lanes: Vec<usize> = traces.iter().map(|trace| trace.process).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let mut marks: Vec<Vec<Mark>> = vec![Vec::new(); history.processes()];
        for trace in traces {
            marks[trace.process].extend(trace.changes.iter().map(|change| Mark {
                at: change.at,
                time: change.time,
            }));
        }
        for list in &mut marks {
            list.sort_by_key(|mark| mark.at);
            list.dedup_by_key(|mark| mark.at);
        }
        // What the first state has is no change.
        if let Some(floor) = floor {
            for (list, floor) in marks.iter_mut().zip(floor) {
                list.retain(|mark| mark.at > *floor);
            }
        }
        if let Some(ceiling) = ceiling {
            for (list, ceiling) in marks.iter_mut().zip(ceiling) {
                list.retain(|mark| ceiling.has(mark.at));
            }
        }
        let changes: usize = marks.iter().map(Vec::len).sum();
        if changes.saturating_mul(lanes.len()) > CELLS_MAX {
            return Err(TooMany { changes });
        }
        let mut lane_of = vec![usize::MAX; history.processes()];
        for (lane, process) in lanes.iter().enumerate() {
            lane_of[*process] = lane;
        }
        let mut nodes: Vec<Vec<Node>> = vec![Vec::new(); lanes.len()];
        let mut sequence = Vec::with_capacity(changes);
        for moment in Stream::new(history, &marks) {
            let own = lane_of[moment.process];
            let needs = lanes.iter().enumerate().map(|(lane, process)| {
                if lane == own {
                    return moment.index as u32 + 1;
                }
                let known = moment.clock[*process];
                let list = &marks[*process];
                list.partition_point(|mark| mark.at.needs() <= known) as u32
            });
            let node = Node {
                at: moment.at,
                time: moment.time,
                order: sequence.len(),
                needs: needs.collect(),
            };
            sequence.push((own, moment.index));
            nodes[own].push(node);
        }
        let bases = lanes.iter().map(|process| Some(floor?[*process]));
        Ok(Poset {
            bases: bases.collect(),
            lanes,
            nodes,
            sequence,
        })
    }

    /// Which lane is that of a process.
    pub fn lane(&self, process: usize) -> Option<usize> {
        self.lanes.iter().position(|own| *own == process)
    }

    /// Where a process is that has so many changes behind it.
    pub fn place(&self, lane: usize, count: u32) -> At {
        match count.checked_sub(1) {
            Some(last) => self.nodes[lane][last as usize].at,
            None => self.bases[lane].unwrap_or_default(),
        }
    }

    /// Of each trace, the values by number of changes of its process.
    pub fn values(&self, trace: &Trace) -> Vec<Val> {
        let lane = self
            .lanes
            .iter()
            .position(|process| *process == trace.process);
        let nodes = lane.map_or(&[][..], |lane| &self.nodes[lane][..]);
        let base = lane.and_then(|lane| self.bases[lane]);
        let mut now = base.map_or(Val::Absent, |base| trace.at(base));
        let mut values = vec![now];
        let mut changes = trace.changes.iter().peekable();
        for node in nodes {
            while let Some(change) = changes.peek() {
                if change.at > node.at {
                    break;
                }
                now = change.value;
                changes.next();
            }
            values.push(now);
        }
        values
    }
}
