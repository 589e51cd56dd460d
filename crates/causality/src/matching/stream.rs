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

/// What an operation carried, as far as it was kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub bytes: Vec<u8>,
    /// Of a send: digest of all of it, where only the beginning was kept.
    pub digest: Option<u64>,
}

/// What was sent and received, by process and event.
pub(crate) type Contents = HashMap<(u32, u32), Content>;

/// Wrong turns that are gone back on before an order is guessed.
const PATIENCE: u32 = 20_000;

/// Operations of which some may have been done at the same time: which could
/// be the next.
struct Racing<'a> {
    ops: &'a [Op],
    /// Not placed yet, the earliest last.
    left: Vec<usize>,
    /// Place of each in order of time.
    rank: Vec<usize>,
}

impl<'a> Racing<'a> {
    fn new(ops: &'a [Op], order: &[usize]) -> Racing<'a> {
        let mut rank = vec![0; ops.len()];
        for (place, index) in order.iter().enumerate() {
            if let Some(own) = rank.get_mut(*index) {
                *own = place;
            }
        }
        let mut left = order.to_vec();
        left.reverse();
        Racing { ops, left, rank }
    }

    /// Those of which none that is left was over before they began, the
    /// earliest first. `gone` are not there any more.
    fn candidates(&self, gone: &[usize]) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        let mut earliest_end = u64::MAX;
        for index in self.left.iter().rev() {
            let Some(op) = self.ops.get(*index) else {
                break;
            };
            if op.lo > earliest_end {
                break;
            }
            if gone.contains(index) {
                continue;
            }
            // The events of one thread are in order.
            let follows = found.iter().any(|other| {
                self.ops
                    .get(*other)
                    .is_some_and(|o| (o.process, o.thread) == (op.process, op.thread))
            });
            earliest_end = earliest_end.min(op.hi);
            if !follows {
                found.push(*index);
            }
        }
        found
    }

    fn remove(&mut self, index: usize) {
        if let Some(place) = self.left.iter().rposition(|other| *other == index) {
            self.left.remove(place);
        }
    }

    fn restore(&mut self, index: usize) {
        let rank = |index: &usize| self.rank.get(*index).copied().unwrap_or(0);
        let own = rank(&index);
        let from_end = self
            .left
            .iter()
            .rev()
            .take_while(|other| rank(other) < own)
            .count();
        self.left.insert(self.left.len() - from_end, index);
    }
}

/// Where in the sends a stream is.
#[derive(Clone, Debug, Default)]
struct At {
    /// The send that is being received, and how much of it was.
    current: Option<(usize, u64)>,
    /// What was received of it, as long as that is known.
    bytes: Option<Vec<u8>>,
}

/// A way in which the next receive makes sense: which it is, the sends that
/// would have to follow, and where the stream would be then.
#[derive(Clone, Debug)]
struct Way {
    recv: usize,
    taken: Vec<usize>,
    after: At,
}

/// A receive that was placed, and what it takes to go back on it.
struct Placed {
    /// What else it could have been, the likeliest last.
    others: Vec<Way>,
    before: At,
    recv: usize,
    taken: Vec<usize>,
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
    let empty = Content::default();
    let sent = |i: usize| {
        let op = sends.get(i);
        op.and_then(|op| contents.get(&(op.process, op.first)))
            .unwrap_or(&empty)
    };
    let received = |i: usize| {
        let op = recvs.get(i);
        op.and_then(|op| contents.get(&(op.process, op.last)))
            .unwrap_or(&empty)
    };
    let mut senders = Racing::new(sends, send_order);
    let mut receivers = Racing::new(recvs, recv_order);
    let mut placed: Vec<Placed> = Vec::new();
    let mut send_done = Vec::new();
    let mut recv_done = Vec::new();
    let mut guesses = 0;
    let mut patience = PATIENCE;
    let mut at = At::default();
    let mut again: Option<Placed> = None;
    while !receivers.left.is_empty() || again.is_some() {
        let mut level = again.take().unwrap_or_else(|| {
            let mut others = Vec::new();
            for recv in receivers.candidates(&[]) {
                let Some(op) = recvs.get(recv) else { continue };
                let data = &received(recv).bytes;
                let ways = receive(op, data, &at, &senders, &sent);
                others.extend(
                    ways.into_iter()
                        .map(|(taken, after)| Way { recv, taken, after }),
                );
            }
            others.reverse();
            Placed {
                others,
                before: at.clone(),
                recv: 0,
                taken: Vec::new(),
            }
        });
        if let Some(way) = level.others.pop() {
            receivers.remove(way.recv);
            for send in &way.taken {
                senders.remove(*send);
            }
            at = way.after;
            level.recv = way.recv;
            level.taken = way.taken;
            placed.push(level);
            continue;
        }
        // A wrong turn: the one before took what belongs to another.
        if patience > 0
            && let Some(last) = placed.pop()
        {
            patience -= 1;
            receivers.restore(last.recv);
            for send in &last.taken {
                senders.restore(*send);
            }
            again = Some(last);
            continue;
        }
        // Nothing makes sense: by time alone, and no way back from here.
        guesses += 1;
        patience = PATIENCE;
        for level in placed.drain(..) {
            recv_done.push(level.recv);
            send_done.extend(level.taken);
        }
        let Some(recv) = receivers.candidates(&[]).first().copied() else {
            break;
        };
        let taken = plain_receive(recvs.get(recv), level.before.current, &senders);
        receivers.remove(recv);
        for send in &taken {
            senders.remove(*send);
        }
        at = At {
            current: advance(level.before.current, &taken, sends, recvs.get(recv)),
            bytes: None,
        };
        recv_done.push(recv);
        send_done.extend(taken);
    }
    for level in placed {
        recv_done.push(level.recv);
        send_done.extend(level.taken);
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
    for place in current
        .into_iter()
        .chain(taken.iter().map(|send| (*send, 0)))
    {
        let (send, used) = place;
        let len = sends.get(send).map_or(0, |op| op.amount);
        let step = left.min(len - used.min(len));
        left -= step;
        at = Some((send, used + step));
    }
    at
}

/// How many ways are tried in which one receive makes sense.
const WAYS: usize = 32;

/// The sends that would have to follow for this receive to make sense, and
/// where the stream would be then, in every way that is possible. (If only the
/// first bytes of a send are in the receive, they may be those of several.)
fn receive<'c>(
    recv: &Op,
    data: &[u8],
    from: &At,
    senders: &Racing<'_>,
    sent: &impl Fn(usize) -> &'c Content,
) -> Vec<(Vec<usize>, At)> {
    let amount = |send: usize| senders.ops.get(send).map_or(0, |op| op.amount);
    let mut ways = Vec::new();
    let mut work = vec![(0u64, Vec::new(), from.clone())];
    while let Some((mut got, taken, mut at)) = work.pop() {
        // The rest of the send that the stream is in.
        if let Some((send, used)) = at.current.filter(|(send, used)| *used < amount(*send)) {
            let step = (amount(send) - used).min(recv.amount - got);
            if !fits(sent(send), used, data, got, step) {
                continue;
            }
            let piece = data.get(got as usize..(got + step) as usize);
            at.bytes = match (at.bytes.take(), piece) {
                (Some(mut bytes), Some(piece)) => {
                    bytes.extend_from_slice(piece);
                    Some(bytes)
                }
                _ => None,
            };
            got += step;
            at.current = Some((send, used + step));
            if used + step == amount(send)
                && let (Some(digest), Some(bytes)) = (sent(send).digest, &at.bytes)
                && bytes.len() as u64 == amount(send)
                && protocol::record::digest(bytes) != digest
            {
                continue;
            }
        }
        if got >= recv.amount {
            ways.push((taken, at));
            if ways.len() >= WAYS {
                break;
            }
            continue;
        }
        let next = senders.candidates(&taken);
        if next.is_empty() {
            // Nobody is left to send the rest of it: it came from outside.
            ways.push((taken, at));
            continue;
        }
        // The earliest is tried first: it is put on the pile last.
        for send in next.into_iter().rev() {
            if senders.ops.get(send).is_none_or(|op| op.lo > recv.hi) {
                continue;
            }
            let mut taken = taken.clone();
            taken.push(send);
            let at = At {
                current: Some((send, 0)),
                bytes: Some(Vec::new()),
            };
            work.push((got, taken, at));
        }
    }
    ways
}

/// Whether `len` bytes of a receive, from `at` on, can be those of a send from
/// `from` on.
fn fits(sent: &Content, from: u64, data: &[u8], at: u64, len: u64) -> bool {
    let known = sent.bytes.get(..KEPT).unwrap_or(&sent.bytes);
    let end = from.saturating_add(len).min(known.len() as u64);
    if from >= end {
        return true;
    }
    let here = known.get(from as usize..end as usize);
    let there = data.get(at as usize..(at + (end - from)) as usize);
    // What was dropped on arrival cannot be compared.
    there.is_none() || here == there
}

/// The sends that a receive takes from if they came in order of time, whatever
/// the bytes say.
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

    fn content(text: &str) -> Content {
        let bytes = text.as_bytes();
        Content {
            bytes: bytes.get(..KEPT).unwrap_or(bytes).to_vec(),
            digest: (bytes.len() > KEPT).then(|| protocol::record::digest(bytes)),
        }
    }

    #[test]
    fn what_was_not_kept_is_told_apart_by_its_digest() {
        // Two readers; the second half of each send could be either's.
        let long = |c: char| c.to_string().repeat(100);
        let (a, b) = (long('a'), long('b'));
        let sends = [op(0, 1, 0, 1, 100), op(0, 2, 2, 3, 100)];
        let recvs = [op(1, 1, 0, 9, 80), op(2, 1, 0, 9, 20), op(1, 2, 9, 9, 100)];
        let contents: Contents = [
            ((0, 1), content(&a)),
            ((0, 2), content(&b)),
            (
                (1, 1),
                Content {
                    bytes: a[..80].into(),
                    digest: None,
                },
            ),
            (
                (2, 1),
                Content {
                    bytes: a[80..].into(),
                    digest: None,
                },
            ),
            (
                (1, 2),
                Content {
                    bytes: b.clone().into(),
                    digest: None,
                },
            ),
        ]
        .into();
        let order = |ops: &[Op]| in_order(ops).0;
        let (_, ro, guesses) =
            by_content(&sends, &order(&sends), &recvs, &order(&recvs), &contents);
        assert_eq!((ro, guesses), (vec![0, 1, 2], 0));
        // The other way round only the digest tells.
        let recvs = [
            op(1, 1, 0, 9, 80),
            op(2, 1, 5, 9, 20),
            op(3, 1, 4, 9, 20),
            op(3, 2, 9, 9, 80),
        ];
        let contents: Contents = [
            ((0, 1), content(&a)),
            ((0, 2), content(&b)),
            (
                (1, 1),
                Content {
                    bytes: a[..80].into(),
                    digest: None,
                },
            ),
            (
                (2, 1),
                Content {
                    bytes: a[80..].into(),
                    digest: None,
                },
            ),
            (
                (3, 1),
                Content {
                    bytes: b[80..].into(),
                    digest: None,
                },
            ),
            (
                (3, 2),
                Content {
                    bytes: b[..80].into(),
                    digest: None,
                },
            ),
        ]
        .into();
        let (_, ro, guesses) =
            by_content(&sends, &order(&sends), &recvs, &order(&recvs), &contents);
        assert_eq!((ro.first(), ro.get(1)), (Some(&0), Some(&1)), "{guesses}");
    }

    fn pairs(sends: &[Op], recvs: &[Op]) -> Vec<(usize, usize, u64)> {
        let mut found = Vec::new();
        let (so, _) = in_order(sends);
        let (ro, _) = in_order(recvs);
        pair(sends, &so, recvs, &ro, |o| {
            found.push((o.send, o.recv, o.len))
        });
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
            ((0, 1), "aaa"),
            ((1, 1), "bbb"),
            ((0, 2), "ccc"),
            ((2, 1), "aaaccc"),
            ((3, 1), "bbb"),
        ]
        .map(|(key, text)| (key, content(text)))
        .into();
        let (so, ro, guesses) = by_content(&sends, &order, &recvs, &recv_order, &contents);
        assert_eq!((so, ro, guesses), (vec![1, 0, 2], vec![1, 0], 0));
        assert!(in_order(&[op(0, 1, 0, 4, 1), op(1, 1, 5, 8, 1)]).1);
    }
}
