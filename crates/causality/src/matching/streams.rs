//! All streams, those that others are fed from first.

use std::collections::{HashMap, HashSet};

use super::link;
use super::order::Orders;
use super::ready::{self, Origins};
use super::stream::{self, Overlap};
use crate::link::{Kind, Link};
use crate::world::World;
use crate::world::objects::{Chan, Flow, Op};

/// Where the bytes of a receive came from: the send, from where in the
/// receive, and how many.
type Pieces = Vec<(Op, u64, u64)>;

/// Links all streams, those that others are fed from first.
pub(super) fn link_all(
    world: &mut World<'_>,
    orders: &[Orders],
    links: &mut Vec<Link>,
    origins: &mut Origins,
    rests: &mut HashMap<u32, Op>,
) {
    let mut feeds: HashMap<u32, Vec<usize>> = HashMap::new();
    for (i, forward) in world.forwards.iter().enumerate() {
        feeds.entry(forward.to.0).or_default().push(i);
    }
    let mut pieces: HashMap<(u32, usize, bool), Pieces> = HashMap::new();
    for forward in &world.forwards {
        pieces.insert((forward.from.0, forward.from.1, forward.peek), Vec::new());
    }
    let mut done = HashSet::new();
    for number in 0..world.channels.len() as u32 {
        // A channel waits for those that feed it; a circle is cut anywhere.
        let mut stack = vec![(number, false)];
        while let Some((number, ready)) = stack.pop() {
            if ready {
                let rest = link_stream(world, number, orders, &feeds, &mut pieces, links, origins);
                rests.extend(rest.map(|rest| (number, rest)));
                continue;
            }
            if !done.insert(number) {
                continue;
            }
            stack.push((number, true));
            let own = feeds.get(&number).map_or(&[][..], Vec::as_slice);
            for forward in own.iter().filter_map(|i| world.forwards.get(*i)) {
                if !done.contains(&forward.from.0) {
                    stack.push((forward.from.0, false));
                }
            }
        }
    }
}

/// Returns the send of which something was left when all was over, where
/// somebody may want to know.
fn link_stream(
    world: &World<'_>,
    number: u32,
    orders: &[Orders],
    feeds: &HashMap<u32, Vec<usize>>,
    pieces: &mut HashMap<(u32, usize, bool), Pieces>,
    links: &mut Vec<Link>,
    origins: &mut Origins,
) -> Option<Op> {
    let channel = world.channels.get(number as usize)?;
    let order = orders.get(number as usize)?;
    let waited = !channel.ready.is_empty();
    let used = !channel.recvs.is_empty() || !channel.peeks.is_empty() || waited;
    if channel.flow != Flow::Stream || !used {
        return None;
    }
    let mut sends = std::borrow::Cow::Borrowed(&channel.sends);
    let mut send_order = std::borrow::Cow::Borrowed(&order.sends);
    if !channel.unsure.is_empty() {
        send_order
            .to_mut()
            .extend(sends.len()..sends.len() + channel.unsure.len());
        sends.to_mut().extend_from_slice(&channel.unsure);
    }
    // What bytes of a send came from where, if it was fed from elsewhere.
    let mut fed: HashMap<usize, Pieces> = HashMap::new();
    for forward in feeds.get(&number).into_iter().flatten() {
        if let Some(forward) = world.forwards.get(*forward) {
            let from = (forward.from.0, forward.from.1, forward.peek);
            let origin = pieces.get(&from).cloned().unwrap_or_default();
            fed.insert(forward.to.1, origin);
        }
    }
    let mut took: Vec<(bool, Overlap)> = Vec::new();
    let notes = !fed.is_empty() || pieces.keys().any(|key| key.0 == number);
    stream::pair(
        &sends,
        &send_order,
        &channel.recvs,
        &order.recvs,
        |overlap| {
            if let (Some(send), Some(recv)) =
                (sends.get(overlap.send), channel.recvs.get(overlap.recv))
            {
                links.push(link(Kind::Message, send, recv, Some(number), overlap.len));
                if waited && overlap.in_recv == 0 {
                    origins.insert((recv.process, recv.last), *send);
                }
            }
            if notes {
                took.push((false, overlap));
            }
        },
    );
    if !channel.peeks.is_empty() {
        peeks(channel, &sends, &send_order, &order.recvs, |overlap| {
            if let (Some(send), Some(peek)) =
                (sends.get(overlap.send), channel.peeks.get(overlap.recv))
            {
                links.push(link(Kind::Message, send, peek, Some(number), overlap.len));
            }
            if notes {
                took.push((true, overlap));
            }
        });
    }
    for (peek, overlap) in took {
        let list = if peek { &channel.peeks } else { &channel.recvs };
        let (Some(send), Some(recv)) = (sends.get(overlap.send), list.get(overlap.recv)) else {
            continue;
        };
        let mut sources = vec![(*send, overlap.in_recv, overlap.len)];
        if let Some(origin) = fed.get(&overlap.send) {
            let end = overlap.in_send + overlap.len;
            for (op, from, len) in origin {
                let (lo, hi) = ((*from).max(overlap.in_send), (from + len).min(end));
                if lo < hi {
                    let at = overlap.in_recv + (lo - overlap.in_send);
                    links.push(link(Kind::Message, op, recv, Some(number), hi - lo));
                    sources.push((*op, at, hi - lo));
                }
            }
        }
        if let Some(list) = pieces.get_mut(&(number, overlap.recv, peek)) {
            list.extend(sources);
        }
    }
    if !waited {
        return None;
    }
    let mut at: u64 = channel.recvs.iter().map(|recv| recv.amount).sum();
    let rest = send_order.iter().find(|s| {
        let amount = sends.get(**s).map_or(0, |send| send.amount);
        let found = at < amount;
        at = at.saturating_sub(amount);
        found
    });
    rest.and_then(|s| sends.get(*s).copied())
}

/// What looks that took nothing saw.
fn peeks(
    channel: &Chan,
    sends: &[Op],
    send_order: &[usize],
    recv_order: &[usize],
    mut emit: impl FnMut(Overlap),
) {
    // Where in the stream each receive began, and each send.
    let mut offsets: HashMap<(u32, u32), u64> = HashMap::new();
    let mut end = 0;
    for recv in recv_order.iter().filter_map(|i| channel.recvs.get(*i)) {
        offsets.insert((recv.process, recv.last), end);
        end += recv.amount;
    }
    let mut begun = Vec::with_capacity(send_order.len());
    let mut sent = 0;
    for s in send_order {
        begun.push(sent);
        sent += sends.get(*s).map_or(0, |send| send.amount);
    }
    let takes = ready::Takes::new(&channel.recvs);
    for (i, peek) in channel.peeks.iter().enumerate() {
        // The first receive that came later tells where the stream was.
        let next = takes.after(peek);
        let next = next.and_then(|recv| offsets.get(&(recv.process, recv.last)));
        let from = next.copied().unwrap_or(end);
        let to = from + peek.amount;
        let first = begun.partition_point(|at| *at <= from).saturating_sub(1);
        let rest = send_order.iter().zip(&begun).skip(first);
        for (s, sent) in rest.take_while(|(_, sent)| **sent < to) {
            let Some(send) = sends.get(*s) else { continue };
            let (lo, hi) = (from.max(*sent), (sent + send.amount).min(to));
            if lo < hi {
                emit(Overlap {
                    send: *s,
                    recv: i,
                    in_send: lo - sent,
                    in_recv: lo - from,
                    len: hi - lo,
                });
            }
        }
    }
}
