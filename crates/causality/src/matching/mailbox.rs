//! Datagrams and packets: a receive takes one message, the oldest there is,
//! unless it was lost on the way. So a message is known by its bytes, and by
//! its order only among those that are alike.

use std::collections::{HashMap, VecDeque};

use crate::world::objects::{Key, Op};

/// Pairs messages: calls `emit` with the places of a send and a receive.
/// `fits`: whether addresses allow it.
pub(crate) fn pair(
    sends: &[(Op, Key)],
    recvs: &[(Op, Key)],
    fits: impl Fn(usize, usize) -> bool,
    mut emit: impl FnMut(usize, usize),
) {
    let mut order: Vec<usize> = (0..sends.len()).collect();
    order.sort_by_key(|i| sends.get(*i).map(|(op, _)| (op.lo, op.hi)));
    let mut alike: HashMap<(u64, u64), VecDeque<usize>> = HashMap::new();
    let mut vague: VecDeque<usize> = VecDeque::new();
    for i in &order {
        let Some((_, key)) = sends.get(*i) else {
            continue;
        };
        if key.vague {
            vague.push_back(*i);
        } else {
            alike.entry((key.len, key.hash)).or_default().push_back(*i);
        }
    }
    let mut taken = vec![false; sends.len()];
    let mut receives: Vec<usize> = (0..recvs.len()).collect();
    receives.sort_by_key(|i| recvs.get(*i).map(|(op, _)| (op.hi, op.lo)));
    // Where the sends begin that a receive known by order alone may be of.
    let mut first = 0;
    for r in receives {
        let Some((recv, key)) = recvs.get(r) else {
            continue;
        };
        let possible =
            |s: usize| sends.get(s).is_some_and(|(send, _)| send.lo <= recv.hi) && fits(s, r);
        let mut found = None;
        if let Some(list) = alike.get_mut(&(key.len, key.hash)).filter(|_| !key.vague) {
            while list.front().is_some_and(|s| taken.get(*s) == Some(&true)) {
                list.pop_front();
            }
            let at = list
                .iter()
                .position(|s| taken.get(*s) == Some(&false) && possible(*s));
            found = at.and_then(|at| list.remove(at));
        }
        if found.is_none() {
            let same_len = |s: usize| sends.get(s).is_some_and(|(_, k)| k.len == key.len);
            if !key.vague {
                let at = vague.iter().position(|s| same_len(*s) && possible(*s));
                found = at.and_then(|at| vague.remove(at));
            } else {
                while order
                    .get(first)
                    .is_some_and(|s| taken.get(*s) == Some(&true))
                {
                    first += 1;
                }
                let long_enough = |s: usize| sends.get(s).is_some_and(|(_, k)| k.len >= key.len);
                let rest = order.get(first..).unwrap_or(&[]);
                found = rest
                    .iter()
                    .copied()
                    .find(|s| taken.get(*s) == Some(&false) && long_enough(*s) && possible(*s));
            }
        }
        if let Some(s) = found {
            if let Some(place) = taken.get_mut(s) {
                *place = true;
            }
            emit(s, r);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(time: u64, bytes: &[u8]) -> (Op, Key) {
        let op = Op {
            lo: time,
            hi: time,
            ..Op::default()
        };
        (op, Key::new(bytes.len() as u64, bytes))
    }

    #[test]
    fn lost_messages_do_not_shift_the_others() {
        let sends = [
            message(1, b"one"),
            message(2, b"lost"),
            message(3, b"three"),
            message(4, b"one"),
        ];
        let recvs = [message(5, b"one"), message(6, b"three"), message(7, b"one")];
        let mut found = Vec::new();
        pair(&sends, &recvs, |_, _| true, |s, r| found.push((s, r)));
        assert_eq!(found, [(0, 0), (2, 1), (3, 2)]);
    }

    #[test]
    fn nothing_is_received_before_it_is_sent_nor_from_another() {
        let sends = [message(9, b"x"), message(2, b"x")];
        let recvs = [message(5, b"x"), message(10, b"x")];
        let mut found = Vec::new();
        pair(&sends, &recvs, |_, _| true, |s, r| found.push((s, r)));
        assert_eq!(found, [(1, 0), (0, 1)]);
        found.clear();
        pair(&sends, &recvs, |s, _| s == 0, |s, r| found.push((s, r)));
        assert_eq!(found, [(0, 1)]);
    }
}
