//! Eventfds: a read takes the whole sum, or one unit of it.

use crate::world::objects::Op;

/// Pairs writes and reads. A read of the whole must be the sum of writes: one
/// that was made at the same time and does not fit came later.
pub(crate) fn pair(
    writes: &[Op],
    reads: &[Op],
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
    let mut readers: Vec<usize> = (0..reads.len()).collect();
    readers.sort_by_key(|i| reads.get(*i).map(|op| (op.hi, op.lo)));
    for r in readers {
        let Some(read) = reads.get(r) else { continue };
        let mut wanted = if single { 1 } else { read.amount };
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
                emit(w, r, 1);
                if units > 1 {
                    if let Some(entry) = left.get_mut(place) {
                        entry.1 -= 1;
                    }
                } else {
                    left.remove(place);
                }
                wanted = 0;
            } else if units <= wanted {
                emit(w, r, units);
                wanted -= units;
                left.remove(place);
            }
        }
    }
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
        pair(writes, reads, single, |w, r, n| found.push((w, r, n)));
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
    fn a_write_at_the_same_time_that_does_not_fit_came_later() {
        let writes = [op(1, 6, 4), op(2, 6, 3)];
        let reads = [op(1, 5, 3), op(7, 8, 4)];
        assert_eq!(pairs(&writes, &reads, false), [(1, 0, 3), (0, 1, 4)]);
    }
}
