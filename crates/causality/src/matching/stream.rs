//! Streams: the bytes that a receive took follow from the sends that put them
//! there, because a stream is reliable and in order.
//!
//! Which order that is is plain where one thread sends and one receives. Where
//! several share an end, their calls may overlap in time; then it is the order
//! in which what was received makes sense: the monitor keeps the beginning of
//! all that is sent and all of what is received.

use std::collections::HashMap;

use crate::world::objects::{KEPT, Op};

/// Part of a send that was taken by a receive: places of both in their lists,
/// where in each, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub send: usize,
    pub recv: usize,
    pub in_send: u64,
    pub in_recv: u64,
    pub len: u64,
}

/// The places of operations in order of time, and whether that order is
/// certain.
pub(crate) fn in_order(ops: &[Op]) -> (Vec<usize>, bool) {
    let mut order: Vec<usize> = (0..ops.len()).collect();
    let single = ops.windows(2).all(|pair| match pair {
        [a, b] => (a.process, a.thread) == (b.process, b.thread),
        _ => true,
    });
    if single {
        return (order, true);
    }
    order.sort_by_key(|i| ops.get(*i).map(|op| (op.lo, op.hi)));
    // The latest end so far, and the latest by another thread than that one.
    let mut latest: Option<&Op> = None;
    let mut other: Option<&Op> = None;
    let mut certain = true;
    for op in order.iter().filter_map(|i| ops.get(*i)) {
        if latest.is_some_and(|l| l.races(op)) || other.is_some_and(|o| o.races(op)) {
            certain = false;
        }
        match latest {
            Some(l) if (l.process, l.thread) == (op.process, op.thread) => {
                if op.hi > l.hi {
                    latest = Some(op);
                }
            }
            Some(l) if op.hi >= l.hi => {
                other = latest;
                latest = Some(op);
            }
            Some(_) => {
                if other.is_none_or(|o| op.hi > o.hi) {
                    other = Some(op);
                }
            }
            None => latest = Some(op),
        }
    }
    (order, certain)
}

/// Pairs sends and receives of one stream that are in order.
pub(crate) fn pair(
    sends: &[Op],
    send_order: &[usize],
    recvs: &[Op],
    recv_order: &[usize],
    mut emit: impl FnMut(Overlap),
) {
    let mut senders = send_order.iter();
    let mut current: Option<(usize, u64, u64)> = None;
    for recv in recv_order {
        let wanted = recvs.get(*recv).map_or(0, |op| op.amount);
        let mut at = 0;
        while at < wanted {
            let (send, used, len) = match current {
                Some(current) if current.1 < current.2 => current,
                _ => match senders.next() {
                    Some(next) => (*next, 0, sends.get(*next).map_or(0, |op| op.amount)),
                    // The rest came from outside.
                    None => return,
                },
            };
            let step = (wanted - at).min(len - used);
            if step > 0 {
                emit(Overlap {
                    send,
                    recv: *recv,
                    in_send: used,
                    in_recv: at,
                    len: step,
                });
            }
            at += step;
            current = Some((send, used + step, len));
        }
    }
}

/// What was sent and received, by process and event.
pub(crate) type Contents = HashMap<(u32, u32), Vec<u8>>;

/// Operations of which some may have been done at the same time: which could
/// be the next.
struct Racing<'a> {
    ops: &'a [Op],
    /// Not placed yet, in order of their beginnings.
    left: Vec<usize>,
}

impl<'a> Racing<'a> {
    fn new(ops: &'a [Op], order: &[usize]) -> Racing<'a> {
        let mut left = order.to_vec();
        left.reverse();
        Racing { ops, left }
    }

    /// Those of which none that is left was over before they began, with their
    /// places in `left`; the earliest first. `gone` are not there any more.
    fn candidates(&self, gone: &[usize]) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        let mut earliest_end = u64::MAX;
        for (place, index) in self.left.iter().enumerate().rev() {
            let Some(op) = self.ops.get(*index) else { break };
            if op.lo > earliest_end {
                break;
            }
            if gone.contains(index) {
                continue;
            }
            // The events of one thread are in order.
            let follows = found.iter().any(|(_, other)| {
                self.ops
                    .get(*other)
                    .is_some_and(|o| (o.process, o.thread) == (op.process, op.thread))
            });
            earliest_end = earliest_end.min(op.hi);
            if !follows {
                found.push((place, *index));
            }
        }
        found
    }

    fn remove(&mut self, index: usize) {
        if let Some(place) = self.left.iter().rposition(|other| *other == index) {
            self.left.remove(place);
        }
    }
}

/// Orders racing sends and receives so that what was received is what was
/// sent. Returns both orders, and how often it had to guess.
pub(crate) fn by_content(
    sends: &[Op],
    send_order: &[usize],
    recvs: &[Op],
    recv_order: &[usize],
    contents: &Contents,
) -> (Vec<usize>, Vec<usize>, u64) {
    let empty = Vec::new();
    let sent = |i: usize| {
        sends
            .get(i)
            .and_then(|op| contents.get(&(op.process, op.first)))
            .unwrap_or(&empty)
    };
    let received = |i: usize| {
        recvs
            .get(i)
            .and_then(|op| contents.get(&(op.process, op.last)))
            .unwrap_or(&empty)
    };
    let mut senders = Racing::new(sends, send_order);
    let mut receivers = Racing::new(recvs, recv_order);
    let mut send_done = Vec::new();
    let mut recv_done = Vec::new();
    let mut guesses = 0;
    // The send that is being received, and how much of it was.
    let mut current: Option<(usize, u64)> = None;
    while !receivers.left.is_empty() {
        let candidates = receivers.candidates(&[]);
        let Some((_, earliest)) = candidates.first().copied() else {
            break;
        };
        let fitting = candidates.iter().find_map(|(_, recv)| {
            let op = recvs.get(*recv)?;
            let taken = try_receive(op, received(*recv), current, &senders, &sent)?;
            Some((*recv, taken))
        });
        let (recv, taken) = fitting.unwrap_or_else(|| {
            guesses += 1;
            let taken = plain_receive(recvs.get(earliest), current, &senders);
            (earliest, taken)
        });
        receivers.remove(recv);
        recv_done.push(recv);
        current = advance(current, &taken, sends, recvs.get(recv));
        for send in &taken {
            senders.remove(*send);
        }
        send_done.extend(taken);
    }
    senders.left.reverse();
    send_done.extend(senders.left);
    (send_done, recv_done, guesses)
}

/// Where in the sends the stream is after one more receive.
fn advance(
    current: Option<(usize, u64)>,
    taken: &[usize],
    sends: &[Op],
    recv: Option<&Op>,
) -> Option<(usize, u64)> {
    let mut left = recv.map_or(0, |op| op.amount);
    let mut at = current;
    for place in current.into_iter().chain(taken.iter().map(|send| (*send, 0))) {
        let (send, used) = place;
        let len = sends.get(send).map_or(0, |op| op.amount);
        let step = left.min(len - used.min(len));
        left -= step;
        at = Some((send, used + step));
    }
    at
}

/// The sends that would have to follow for this receive to make sense.
fn try_receive<'c>(
    recv: &Op,
    data: &[u8],
    current: Option<(usize, u64)>,
    senders: &Racing<'_>,
    sent: &impl Fn(usize) -> &'c Vec<u8>,
) -> Option<Vec<usize>> {
    let amount = |send: usize| senders.ops.get(send).map_or(0, |op| op.amount);
    let fits = |send: usize, from: u64, at: u64, len: u64| {
        let known = sent(send);
        let known = known.get(..known.len().min(KEPT)).unwrap_or(known);
        let end = from.saturating_add(len).min(known.len() as u64);
        if from >= end {
            return true;
        }
        let here = known.get(from as usize..end as usize);
        let there = data.get(at as usize..(at + (end - from)) as usize);
        // What was dropped on arrival cannot be compared.
        there.is_none() || here == there
    };
    let mut at = 0;
    if let Some((send, used)) = current {
        let step = (amount(send) - used.min(amount(send))).min(recv.amount);
        if !fits(send, used, 0, step) {
            return None;
        }
        at = step;
    }
    let mut taken = Vec::new();
    while at < recv.amount {
        let next = senders.candidates(&taken).into_iter().find(|(_, send)| {
            let begun = senders.ops.get(*send).is_some_and(|op| op.lo <= recv.hi);
            begun && fits(*send, 0, at, amount(*send).min(recv.amount - at))
        });
        let Some((_, send)) = next else {
            // The rest of it came from outside, if nobody is left to send it.
            return (senders.left.len() == taken.len()).then_some(taken);
        };
        at += amount(send);
        taken.push(send);
    }
    Some(taken)
}

/// The same, by time alone.
fn plain_receive(
    recv: Option<&Op>,
    current: Option<(usize, u64)>,
    senders: &Racing<'_>,
) -> Vec<usize> {
    let amount = |send: usize| senders.ops.get(send).map_or(0, |op| op.amount);
    let wanted = recv.map_or(0, |op| op.amount);
    let mut at = current.map_or(0, |(send, used)| amount(send) - used.min(amount(send)));
    let mut taken = Vec::new();
    for send in senders.left.iter().rev() {
        if at >= wanted {
            break;
        }
        at += amount(*send);
        taken.push(*send);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(process: u32, number: u32, lo: u64, hi: u64, amount: u64) -> Op {
        Op {
            process,
            thread: 0,
            first: number,
            last: number,
            lo,
            hi,
            amount,
        }
    }

    fn pairs(sends: &[Op], recvs: &[Op]) -> Vec<(usize, usize, u64)> {
        let mut found = Vec::new();
        let (so, _) = in_order(sends);
        let (ro, _) = in_order(recvs);
        pair(sends, &so, recvs, &ro, |o| found.push((o.send, o.recv, o.len)));
        found
    }

    #[test]
    fn sends_are_split_and_merged_by_receives() {
        let sends = [op(0, 1, 0, 1, 10), op(0, 2, 2, 3, 5), op(0, 3, 4, 5, 7)];
        let recvs = [op(1, 1, 6, 7, 4), op(1, 2, 7, 8, 14), op(1, 3, 8, 9, 9)];
        assert_eq!(
            pairs(&sends, &recvs),
            [(0, 0, 4), (0, 1, 6), (1, 1, 5), (2, 1, 3), (2, 2, 4)]
        );
    }

    #[test]
    fn racing_ends_are_noticed_and_ordered_by_what_they_carried() {
        let sends = [op(0, 1, 0, 10, 3), op(1, 1, 5, 8, 3), op(0, 2, 11, 12, 3)];
        let (order, certain) = in_order(&sends);
        assert!(!certain);
        let recvs = [op(2, 1, 1, 20, 6), op(3, 1, 1, 20, 3)];
        let (recv_order, certain) = in_order(&recvs);
        assert!(!certain);
        let contents: Contents = [
            ((0, 1), b"aaa".to_vec()),
            ((1, 1), b"bbb".to_vec()),
            ((0, 2), b"ccc".to_vec()),
            ((2, 1), b"aaaccc".to_vec()),
            ((3, 1), b"bbb".to_vec()),
        ]
        .into();
        let (so, ro, guesses) = by_content(&sends, &order, &recvs, &recv_order, &contents);
        assert_eq!((so, ro, guesses), (vec![1, 0, 2], vec![1, 0], 0));
        assert!(in_order(&[op(0, 1, 0, 4, 1), op(1, 1, 5, 8, 1)]).1);
    }
}
