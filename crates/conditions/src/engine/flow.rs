//! The largest sum over all consistent states, by a minimal cut of a network.
//!
//! A consistent state is a set of changes that has with each change all those
//! that happened before it: a closed set. The one of largest weight is the
//! source's side of a minimal cut (Picard), found by Dinic's algorithm.
#![allow(clippy::indexing_slicing)] // Tables with a row for each node.

use std::collections::VecDeque;

use super::poset::Poset;

struct Edge {
    to: u32,
    room: i128,
}

struct Network {
    edges: Vec<Edge>,
    out: Vec<Vec<u32>>,
    level: Vec<u32>,
    next: Vec<usize>,
}

impl Network {
    fn new(nodes: usize) -> Network {
        Network {
            edges: Vec::new(),
            out: vec![Vec::new(); nodes],
            level: Vec::new(),
            next: Vec::new(),
        }
    }

    fn edge(&mut self, from: usize, to: usize, room: i128) {
        self.out[from].push(self.edges.len() as u32);
        self.edges.push(Edge {
            to: to as u32,
            room,
        });
        self.out[to].push(self.edges.len() as u32);
        self.edges.push(Edge {
            to: from as u32,
            room: 0,
        });
    }

    fn levels(&mut self, source: usize, sink: usize) -> bool {
        self.level = vec![u32::MAX; self.out.len()];
        self.level[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for edge in &self.out[node] {
                let edge = &self.edges[*edge as usize];
                let to = edge.to as usize;
                if edge.room > 0 && self.level[to] == u32::MAX {
                    self.level[to] = self.level[node] + 1;
                    queue.push_back(to);
                }
            }
        }
        self.level[sink] != u32::MAX
    }

    /// One more way from source to sink, along falling levels.
    fn augment(&mut self, source: usize, sink: usize) -> i128 {
        let mut path: Vec<u32> = Vec::new();
        let mut node = source;
        loop {
            if node == sink {
                let room = path
                    .iter()
                    .map(|edge| self.edges[*edge as usize].room)
                    .min();
                let room = room.unwrap_or(0);
                for edge in path {
                    self.edges[edge as usize].room -= room;
                    self.edges[(edge ^ 1) as usize].room += room;
                }
                return room;
            }
            let mut moved = false;
            while let Some(edge) = self.out[node].get(self.next[node]).copied() {
                let to = self.edges[edge as usize].to as usize;
                if self.edges[edge as usize].room > 0 && self.level[to] == self.level[node] + 1 {
                    path.push(edge);
                    node = to;
                    moved = true;
                    break;
                }
                self.next[node] += 1;
            }
            if !moved {
                let Some(back) = path.pop() else { return 0 };
                node = self.edges[(back ^ 1) as usize].to as usize;
                self.next[node] += 1;
            }
        }
    }

    fn flow(&mut self, source: usize, sink: usize) -> i128 {
        let mut sum = 0i128;
        while self.levels(source, sink) {
            self.next = vec![0; self.out.len()];
            loop {
                match self.augment(source, sink) {
                    0 => break,
                    room => sum = sum.saturating_add(room),
                }
            }
        }
        sum
    }
}

/// The largest sum, and the smallest state that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    /// The sum of the weights of the changes behind it.
    pub sum: i128,
    /// Of each process, how many changes are behind it.
    pub state: Vec<u32>,
}

/// The largest sum of weights over all consistent states among the first
/// `prefix` changes in causal order. Weights by lane and number of the change.
pub fn largest(poset: &Poset, weights: &[Vec<i128>], prefix: usize) -> Largest {
    let lanes = poset.lanes.len();
    let inside = &poset.sequence[..prefix.min(poset.sequence.len())];
    let mut counts = vec![0usize; lanes];
    for (lane, _) in inside {
        counts[*lane] += 1;
    }
    let mut base = vec![0usize; lanes];
    let mut total = 0;
    for lane in 0..lanes {
        base[lane] = total;
        total += counts[lane];
    }
    let (source, sink) = (total, total + 1);
    let mut network = Network::new(total + 2);
    let mut positive = 0i128;
    for lane in 0..lanes {
        for (number, weight) in weights[lane].iter().copied().enumerate().take(counts[lane]) {
            let node = base[lane] + number;
            if weight > 0 {
                positive = positive.saturating_add(weight);
                network.edge(source, node, weight);
            } else if weight < 0 {
                network.edge(node, sink, weight.saturating_neg());
            }
            let needs = &poset.nodes[lane][number].needs;
            let before = number
                .checked_sub(1)
                .map(|last| &poset.nodes[lane][last].needs);
            if number > 0 {
                network.edge(node, node - 1, i128::MAX / 4);
            }
            for other in (0..lanes).filter(|other| *other != lane) {
                let known = before.map_or(0, |before| before[other]);
                if needs[other] > known {
                    let cause = base[other] + needs[other] as usize - 1;
                    network.edge(node, cause, i128::MAX / 4);
                }
            }
        }
    }
    let lost = network.flow(source, sink);
    // The last search for levels found what the source still reaches.
    let mut state = vec![0u32; lanes];
    for lane in 0..lanes {
        let reached = (0..counts[lane]).filter(|n| network.level[base[lane] + n] != u32::MAX);
        state[lane] = reached.count() as u32;
    }
    Largest {
        sum: positive.saturating_sub(lost),
        state,
    }
}
