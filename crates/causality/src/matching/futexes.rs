//! Futexes: who was woken by whom. The kernel says how many each wake woke,
//! and wakes the one that waits longest first.

use std::collections::HashMap;

use crate::world::objects::{Futex, FutexOp, FutexOps, Op};

struct Waiting {
    wait: FutexOp,
    woken: bool,
}

/// Pairs wakes and waits of all futexes.
pub(crate) fn pair(futexes: HashMap<Futex, FutexOps>, mut emit: impl FnMut(&Op, &Op)) {
    let mut wakes: Vec<(Futex, FutexOp)> = Vec::new();
    let mut waits: HashMap<Futex, (usize, Vec<Waiting>)> = HashMap::new();
    for (futex, ops) in futexes {
        wakes.extend(ops.wakes.iter().map(|wake| (futex, *wake)));
        let mut list: Vec<Waiting> = ops
            .waits
            .into_iter()
            .map(|wait| Waiting { wait, woken: false })
            .collect();
        list.sort_by_key(|waiting| (waiting.wait.op.lo, waiting.wait.op.first));
        waits.insert(futex, (0, list));
    }
    wakes.sort_by_key(|(_, wake)| (wake.op.lo, wake.op.hi, wake.op.first));
    // When the next wake of the same futex was, at the earliest.
    let mut next: HashMap<Futex, u64> = HashMap::new();
    let mut next_at = vec![u64::MAX; wakes.len()];
    for ((futex, wake), place) in wakes.iter().zip(next_at.iter_mut()).rev() {
        *place = next.insert(*futex, wake.op.lo).unwrap_or(u64::MAX);
    }
    for ((futex, wake), next) in wakes.iter().zip(next_at) {
        let mut left = wake.op.amount;
        let first = wake.moves.unwrap_or(left).min(left);
        let woken = wake_some(&mut waits, futex, wake, first, next, &mut emit);
        left -= woken.min(left);
        let Some(second) = wake.second.filter(|_| left > 0) else {
            continue;
        };
        if wake.moves.is_some() {
            move_some(&mut waits, futex, second, wake, left);
        } else {
            wake_some(&mut waits, &second, wake, left, u64::MAX, &mut emit);
        }
    }
}

/// Places in the list of those that a wake may have woken.
fn possible(waits: &mut (usize, Vec<Waiting>), wake: &FutexOp) -> Vec<usize> {
    let (first, list) = waits;
    while list
        .get(*first)
        .is_some_and(|w| w.woken || w.wait.op.hi < wake.op.lo)
    {
        *first += 1;
    }
    let rest = list.iter().enumerate().skip(*first);
    rest.take_while(|(_, w)| w.wait.op.lo <= wake.op.hi)
        .filter(|(_, w)| !w.woken && w.wait.op.hi >= wake.op.lo && w.wait.bits & wake.bits != 0)
        .filter(|(_, w)| (w.wait.op.process, w.wait.op.thread) != (wake.op.process, wake.op.thread))
        .map(|(i, _)| i)
        .collect()
}

fn wake_some(
    waits: &mut HashMap<Futex, (usize, Vec<Waiting>)>,
    futex: &Futex,
    wake: &FutexOp,
    count: u64,
    next: u64,
    emit: &mut impl FnMut(&Op, &Op),
) -> u64 {
    let Some(entry) = waits.get_mut(futex) else {
        return 0;
    };
    let mut places = possible(entry, wake);
    // Who went on before anybody else could have woken it was woken by this
    // one; for the rest, who waits longest.
    places.sort_by_key(|i| {
        let hi = entry.1.get(*i).map_or(0, |w| w.wait.op.hi);
        (hi >= next, *i)
    });
    let mut woken = 0;
    for i in places.into_iter().take(count as usize) {
        if let Some(waiting) = entry.1.get_mut(i) {
            waiting.woken = true;
            woken += 1;
            emit(&wake.op, &waiting.wait.op);
        }
    }
    woken
}

fn move_some(
    waits: &mut HashMap<Futex, (usize, Vec<Waiting>)>,
    from: &Futex,
    to: Futex,
    wake: &FutexOp,
    count: u64,
) {
    let Some(entry) = waits.get_mut(from) else {
        return;
    };
    let mut moved = Vec::new();
    for i in possible(entry, wake).into_iter().take(count as usize) {
        if let Some(waiting) = entry.1.get_mut(i) {
            waiting.woken = true;
            let mut wait = waiting.wait;
            // It stands in the other line from now on.
            wait.op.lo = wake.op.lo;
            moved.push(Waiting { wait, woken: false });
        }
    }
    let (first, list) = waits.entry(to).or_default();
    list.extend(moved);
    list.sort_by_key(|w| w.wait.op.lo);
    *first = 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(thread: u32, lo: u64, hi: u64, amount: u64) -> FutexOp {
        FutexOp {
            op: Op {
                thread,
                first: lo as u32,
                last: hi as u32,
                lo,
                hi,
                amount,
                ..Op::default()
            },
            bits: u32::MAX,
            second: None,
            moves: None,
        }
    }

    fn run(waits: Vec<FutexOp>, wakes: Vec<FutexOp>) -> Vec<(u64, u64)> {
        let futex = Futex::Private {
            process: 0,
            address: 1,
        };
        let mut found = Vec::new();
        pair([(futex, FutexOps { waits, wakes })].into(), |wake, wait| {
            found.push((wake.lo, wait.lo))
        });
        found
    }

    #[test]
    fn the_one_that_waits_longest_is_woken_first() {
        let waits = vec![op(1, 1, 9, 0), op(2, 2, 8, 0), op(3, 3, 20, 0)];
        let wakes = vec![op(0, 4, 4, 1), op(0, 5, 5, 2)];
        assert_eq!(run(waits, wakes), [(4, 1), (5, 2), (5, 3)]);
    }

    #[test]
    fn who_went_on_before_the_next_wake_was_woken_by_this_one() {
        let waits = vec![op(1, 1, 9, 0), op(2, 2, 5, 0)];
        let wakes = vec![op(0, 4, 4, 1), op(0, 7, 7, 1)];
        assert_eq!(run(waits, wakes), [(4, 2), (7, 1)]);
    }
}
