//! Waits that found a descriptor ready: what made it so.
//!
//! A descriptor is ready as long as there is something to take from it. So
//! what made it ready is what would have been taken next: the cause of the
//! first call after the wait that took something from the same object; or, if
//! nobody took anything any more, what was left when all was over.

use std::collections::HashMap;

use crate::world::objects::Op;

/// The first causes of what was taken, by the event that took it.
pub(crate) type Origins = HashMap<(u32, u32), Op>;

/// Remembers a cause, if it is the first of its effect.
pub(crate) fn note(origins: &mut Origins, effect: &Op, cause: &Op) {
    let entry = origins
        .entry((effect.process, effect.last))
        .or_insert(*cause);
    if (cause.lo, cause.hi) < (entry.lo, entry.hi) {
        *entry = *cause;
    }
}

/// Calls that took something from an object, to be found by time.
pub(crate) struct Takes(HashMap<u32, Vec<Op>>);

impl Takes {
    pub fn new<'a>(takes: impl IntoIterator<Item = &'a Op>) -> Takes {
        let mut by_process: HashMap<u32, Vec<Op>> = HashMap::new();
        for take in takes {
            by_process.entry(take.process).or_default().push(*take);
        }
        for list in by_process.values_mut() {
            list.sort_by_key(|take| (take.last, take.hi));
        }
        Takes(by_process)
    }

    /// The first that came after a wait: in the same process by number, in
    /// another by time.
    pub fn after(&self, wait: &Op) -> Option<&Op> {
        let firsts = self.0.iter().filter_map(|(process, list)| {
            let at = if *process == wait.process {
                list.partition_point(|take| take.last <= wait.last)
            } else {
                list.partition_point(|take| take.hi < wait.hi)
            };
            list.get(at)
        });
        firsts.min_by_key(|take| (take.hi, take.lo))
    }
}

/// Pairs waits with what made the object ready. `rest`: what is left in the
/// order in which it would be taken.
pub(crate) fn pair<'a>(
    ready: &[Op],
    takes: impl IntoIterator<Item = &'a Op>,
    origins: &Origins,
    rest: &[&Op],
    mut emit: impl FnMut(&Op, &Op),
) {
    if ready.is_empty() {
        return;
    }
    let takes = Takes::new(takes);
    for wait in ready {
        // One that came later did not make it ready: somebody else took that.
        let before = |cause: &&Op| cause.lo <= wait.hi;
        let cause = match takes.after(wait) {
            Some(take) => origins.get(&(take.process, take.last)).filter(before),
            None => rest.iter().copied().find(before),
        };
        if let Some(cause) = cause {
            emit(cause, wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(process: u32, number: u32) -> Op {
        Op {
            process,
            first: number,
            last: number,
            lo: number.into(),
            hi: number.into(),
            ..Op::default()
        }
    }

    #[test]
    fn what_is_taken_next_made_it_ready() {
        let (first, second, third) = (op(1, 10), op(1, 20), op(1, 30));
        let takes = [op(0, 15), op(0, 25)];
        let mut origins = Origins::new();
        note(&mut origins, &takes[0], &first);
        note(&mut origins, &takes[1], &second);
        // Before anything was there; after the first; twice before the
        // second was taken; and when nobody took the third.
        let ready = [op(0, 5), op(0, 12), op(0, 21), op(0, 22), op(0, 40)];
        let mut found = Vec::new();
        pair(&ready, &takes, &origins, &[&third], |cause, wait| {
            found.push((cause.last, wait.last));
        });
        assert_eq!(found, [(10, 12), (20, 21), (20, 22), (30, 40)]);
    }
}
