//! Eventfds and semaphores: a read takes the whole sum, or single units.

use crate::world::objects::Op;

/// Pairs writes and reads. A read of the whole must be the sum of writes: one
/// that was made at the same time and does not fit came later. `resets`: the
/// writes that set the sum, whatever it was.
pub(crate) fn pair(
    writes: &[Op],
    reads: &[Op],
    resets: &[usize],
    single: bool,
    mut emit: impl FnMut(usize, usize, u64),
) {
    let mut order: Vec<usize> = (0..writes.len()).collect();
    order.sort_by_key(|i| writes.get(*i).map(|op| (op.lo, op.hi)));
    let mut left: Vec<(usize, u64)> = order
        .iter()
        .filter_map(|i| Some((*i, writes.get(*i)?.amount)))
        .collect();
    left.reverse();
    let mut sets: Vec<(usize, u64)> = resets
        .iter()
        .filter_map(|i| Some((*i, writes.get(*i)?.lo)))
        .collect();
    sets.sort_by_key(|(_, lo)| std::cmp::Reverse(*lo));
    let mut readers: Vec<usize> = (0..reads.len()).collect();
    readers.sort_by_key(|i| reads.get(*i).map(|op| (op.hi, op.lo)));
    for r in readers {
        let Some(read) = reads.get(r) else { continue };
        let mut wanted = read.amount;
        while let Some((at, lo)) = sets.last().copied()
            && lo <= read.hi
        {
            sets.pop();
            // What was there before is not there any more.
            if let Some(place) = left.iter().rposition(|(w, _)| *w == at) {
                left.truncate(place + 1);
            }
        }
        if !single && let Some(places) = whole(&left, writes, read) {
            for place in places {
                let (w, units) = left.remove(place);
                emit(w, r, units);
            }
            continue;
        }
        let mut place = left.len();
        while wanted > 0 && place > 0 {
            place -= 1;
            let Some((w, units)) = left.get(place).copied() else {
                break;
            };
            let Some(write) = writes.get(w) else { break };
            if write.lo > read.hi {
                break;
            }
            if single {
                let taken = units.min(wanted);
                if taken > 0 {
                    emit(w, r, taken);
                }
                wanted -= taken;
                match left.get_mut(place) {
                    Some(entry) if units > taken => entry.1 -= taken,
                    _ => drop(left.remove(place)),
                }
            } else if units <= wanted {
                emit(w, r, units);
                wanted -= units;
                left.remove(place);
            }
        }
    }
}

/// Which of the writes that are left a read of the whole took: all that were over
/// before it began, and of those that were made at the same time some that make up
/// the rest, the earliest first. Their places, from the end. None: nothing fits (others
/// write, too), or there are too many.
fn whole(left: &[(usize, u64)], writes: &[Op], read: &Op) -> Option<Vec<usize>> {
    const OPEN_MAX: usize = 64;
    const STEPS: usize = 100_000;
    let mut taken = Vec::new();
    let mut open = Vec::new();
    let mut wanted = read.amount;
    for (place, (w, units)) in left.iter().enumerate().rev() {
        let write = writes.get(*w)?;
        if write.lo > read.hi {
            break;
        }
        if write.hi < read.lo {
            wanted = wanted.checked_sub(*units)?;
            taken.push(place);
        } else {
            open.push((place, *units));
        }
    }
    let mut steps = STEPS;
    if open.len() > OPEN_MAX || !makes_up(&open, wanted, &mut taken, &mut steps) {
        return None;
    }
    taken.sort_unstable_by_key(|place| std::cmp::Reverse(*place));
    Some(taken)
}

/// Adds places to `taken` whose units make up what is wanted, if there are any.
fn makes_up(open: &[(usize, u64)], wanted: u64, taken: &mut Vec<usize>, steps: &mut usize) -> bool {
    let Some(rest) = steps.checked_sub(1) else {
        return false;
    };
    *steps = rest;
    if wanted == 0 {
        return true;
    }
    let Some(((place, units), others)) = open.split_first() else {
        return false;
    };
    if let Some(less) = wanted.checked_sub(*units) {
        taken.push(*place);
        if makes_up(others, less, taken, steps) {
            return true;
        }
        taken.pop();
    }
    makes_up(others, wanted, taken, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(lo: u64, hi: u64, amount: u64) -> Op {
        Op {
            lo,
            hi,
            amount,
            ..Op::default()
        }
    }

    fn pairs(writes: &[Op], reads: &[Op], single: bool) -> Vec<(usize, usize, u64)> {
        let mut found = Vec::new();
        pair(writes, reads, &[], single, |w, r, n| found.push((w, r, n)));
        found
    }

    #[test]
    fn a_read_takes_the_sum_or_single_units() {
        let writes = [op(1, 1, 2), op(2, 2, 3), op(9, 9, 1)];
        let reads = [op(5, 5, 5), op(10, 10, 1)];
        assert_eq!(
            pairs(&writes, &reads, false),
            [(0, 0, 2), (1, 0, 3), (2, 1, 1)]
        );
        let reads = [op(5, 5, 1), op(6, 6, 1), op(7, 7, 1)];
        assert_eq!(
            pairs(&writes, &reads, true),
            [(0, 0, 1), (0, 1, 1), (1, 2, 1)]
        );
    }

    #[test]
    fn a_value_that_is_set_is_all_there_is() {
        let writes = [op(1, 1, 4), op(3, 3, 1), op(6, 6, 2)];
        let reads = [op(2, 2, 1), op(4, 4, 1), op(7, 7, 2)];
        let mut found = Vec::new();
        pair(&writes, &reads, &[1], true, |w, r, n| found.push((w, r, n)));
        assert_eq!(found, [(0, 0, 1), (1, 1, 1), (2, 2, 2)]);
    }

    /// A small one that fits by itself is not taken where only others make up the sum.
    #[test]
    fn a_sum_is_made_up_exactly() {
        let writes = [op(1, 9, 1), op(2, 9, 4), op(3, 9, 2)];
        let reads = [op(4, 5, 6), op(6, 10, 1)];
        assert_eq!(
            pairs(&writes, &reads, false),
            [(1, 0, 4), (2, 0, 2), (0, 1, 1)]
        );
        // What was over before is in it, whatever else would fit.
        let writes = [op(1, 2, 2), op(3, 9, 4), op(3, 9, 2)];
        let reads = [op(4, 5, 4), op(6, 10, 4)];
        assert_eq!(
            pairs(&writes, &reads, false),
            [(0, 0, 2), (2, 0, 2), (1, 1, 4)]
        );
    }

    #[test]
    fn a_write_at_the_same_time_that_does_not_fit_came_later() {
        let writes = [op(1, 6, 4), op(2, 6, 3)];
        let reads = [op(1, 5, 3), op(7, 8, 4)];
        assert_eq!(pairs(&writes, &reads, false), [(1, 0, 3), (0, 1, 4)]);
    }
}
