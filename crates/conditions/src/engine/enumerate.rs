//! Looking at every consistent state, up to a number of them.
//!
//! For what has no faster way. What would take more than the bound is not
//! decided, and says so.
#![allow(clippy::indexing_slicing)] // Tables with a row for each process.

use std::collections::HashSet;

use super::poset::Poset;

/// What looking at states came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// This state: of each process, how many changes are behind it.
    Found(Vec<u32>),
    /// All were looked at.
    Nowhere,
    /// There are more than may be looked at.
    TooMany,
}

/// How many states are looked at.
pub const STATES_MAX: usize = 300_000;

fn successors(poset: &Poset, state: &[u32]) -> Vec<Vec<u32>> {
    let mut next = Vec::new();
    for lane in 0..state.len() {
        let Some(node) = poset.nodes[lane].get(state[lane] as usize) else {
            continue;
        };
        let ready =
            (0..state.len()).all(|other| other == lane || node.needs[other] <= state[other]);
        if ready {
            let mut successor = state.to_vec();
            successor[lane] += 1;
            next.push(successor);
        }
    }
    next
}

fn predecessors(poset: &Poset, state: &[u32]) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    for lane in (0..state.len()).filter(|lane| state[*lane] > 0) {
        // Nobody else may have seen what is undone.
        let seen = (0..state.len()).any(|other| {
            other != lane
                && state[other]
                    .checked_sub(1)
                    .and_then(|last| poset.nodes[other].get(last as usize))
                    .is_some_and(|node| node.needs[lane] >= state[lane])
        });
        if !seen {
            let mut before = state.to_vec();
            before[lane] -= 1;
            all.push(before);
        }
    }
    all
}

/// The last state, in order of the number of changes, that fits.
pub fn last(poset: &Poset, fits: impl Fn(&[u32]) -> bool) -> Looked {
    let all = poset.nodes.iter().map(|list| list.len() as u32);
    first_of(all.collect(), fits, |state| predecessors(poset, state))
}

/// The first state, in order of the number of changes, that fits.
pub fn possibly(poset: &Poset, fits: impl Fn(&[u32]) -> bool) -> Looked {
    let none = vec![0u32; poset.lanes.len()];
    first_of(none, fits, |state| successors(poset, state))
}

/// The first that fits, from one on, a change at a time.
fn first_of(
    from: Vec<u32>,
    fits: impl Fn(&[u32]) -> bool,
    next_to: impl Fn(&[u32]) -> Vec<Vec<u32>>,
) -> Looked {
    let mut level = vec![from];
    let mut count = 0;
    while !level.is_empty() {
        let mut next: HashSet<Vec<u32>> = HashSet::new();
        for state in level {
            if fits(&state) {
                return Looked::Found(state);
            }
            count += 1;
            if count > STATES_MAX {
                return Looked::TooMany;
            }
            next.extend(next_to(&state));
        }
        level = next.into_iter().collect();
        level.sort_unstable();
    }
    Looked::Nowhere
}

/// Whether every way through the states comes to one that fits: `Nowhere` if
/// one does not, else the first state that is on one of the ways.
pub fn definitely(poset: &Poset, fits: impl Fn(&[u32]) -> bool) -> Looked {
    let mut level = vec![vec![0u32; poset.lanes.len()]];
    let mut count = 0;
    let mut first = None;
    while !level.is_empty() {
        let mut next: HashSet<Vec<u32>> = HashSet::new();
        for state in level {
            if fits(&state) {
                first.get_or_insert(state);
                continue;
            }
            count += 1;
            if count > STATES_MAX {
                return Looked::TooMany;
            }
            let successors = successors(poset, &state);
            if successors.is_empty() {
                // The end, and nothing on this way there.
                return Looked::Nowhere;
            }
            next.extend(successors);
        }
        level = next.into_iter().collect();
        level.sort_unstable();
    }
    match first {
        Some(first) => Looked::Found(first),
        None => Looked::Nowhere,
    }
}
