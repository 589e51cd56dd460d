//! Which operation caused which, now that all operations on every object are
//! known.

mod counter;
mod futexes;
mod locks;
mod mailbox;
pub(crate) mod ready;
mod signals;
pub(crate) mod stream;
mod terminal;

use std::collections::{HashMap, HashSet};

use protocol::id::{EventNo, ProcessIx, ThreadNo};
use recording::Set;
use recording::sockaddr::Address;

use crate::channel::ChannelKind;
use crate::link::{EventId, Kind, Link};
use crate::world::objects::{Destination, Flow, Key, Op, Socket};
use crate::world::{World, calls};
use ready::Origins;
use stream::{Contents, Overlap};

/// Of a receive whose bytes are needed to tell its sends apart, so many are
/// kept.
const CONTENT_MAX: usize = 64 * 1024;

fn link(kind: Kind, cause: &Op, effect: &Op, channel: Option<u32>, amount: u64) -> Link {
    Link {
        cause: EventId::new(ProcessIx(cause.process), EventNo(cause.first.into())),
        effect: EventId::new(ProcessIx(effect.process), EventNo(effect.last.into())),
        thread: ThreadNo(effect.thread),
        cause_thread: Some(ThreadNo(cause.thread)),
        kind,
        channel,
        amount,
    }
}

/// Where the bytes of a receive came from: the send, from where in the
/// receive, and how many.
type Pieces = Vec<(Op, u64, u64)>;

/// The order in which a channel's operations were done.
struct Orders {
    sends: Vec<usize>,
    recvs: Vec<usize>,
}

/// Finds all links. Returns them with the number of times that the order of
/// racing operations had to be guessed.
pub(crate) fn run(set: &Set, world: &mut World<'_>) -> (Vec<Link>, u64) {
    let mut links = std::mem::take(&mut world.links);
    datagrams(world, &mut links);
    let (orders, guesses) = orders(set, world);
    let guesses = guesses + world.guessed_pairs;
    let mut origins = Origins::new();
    let mut rests: HashMap<u32, Op> = HashMap::new();
    streams(world, &orders, &mut links, &mut origins, &mut rests);
    for (number, channel) in world.channels.iter().enumerate() {
        let waited = !channel.ready.is_empty();
        let number = number as u32;
        match channel.flow {
            Flow::Count(single) => {
                let mut left = 0u64;
                counter::pair(
                    &channel.sends,
                    &channel.recvs,
                    &channel.resets,
                    single,
                    |w, r, units| {
                        if let (Some(w), Some(r)) = (channel.sends.get(w), channel.recvs.get(r)) {
                            links.push(link(Kind::Count, w, r, Some(number), units));
                            if waited {
                                ready::note(&mut origins, r, w);
                                left = left.max(w.lo);
                            }
                        }
                    },
                );
                let rest = channel.sends.iter().filter(|send| send.lo > left);
                if let Some(rest) = rest.min_by_key(|send| send.lo).filter(|_| waited) {
                    rests.insert(number, *rest);
                }
            }
            Flow::Packets => {
                let list = |ops: &[Op], keys: &[Key]| -> Vec<(Op, Key)> {
                    ops.iter().copied().zip(keys.iter().copied()).collect()
                };
                let sends = list(&channel.sends, &channel.sent_keys);
                let recvs = list(&channel.recvs, &channel.received_keys);
                let mut taken = HashSet::new();
                let mut got = HashSet::new();
                mailbox::pair(
                    &sends,
                    &recvs,
                    |_, _| true,
                    |s, r| {
                        taken.insert(s);
                        got.insert(r);
                        if let (Some((s, _)), Some((r, _))) = (sends.get(s), recvs.get(r)) {
                            links.push(link(Kind::Message, s, r, Some(number), r.amount));
                            if waited {
                                ready::note(&mut origins, r, s);
                            }
                        }
                    },
                );
                // Nothing at all is the end, unless somebody sent nothing.
                let ends = recvs.iter().enumerate();
                let ends = ends.filter(|(r, (op, _))| op.amount == 0 && !got.contains(r));
                let ends: Vec<Op> = ends.map(|(_, (op, _))| *op).collect();
                last_before(&channel.ended, &ends, |cause, effect| {
                    links.push(link(Kind::Close, cause, effect, Some(number), 0));
                    if waited {
                        ready::note(&mut origins, effect, cause);
                    }
                });
                if waited {
                    let left = (0..sends.len()).filter(|s| !taken.contains(s));
                    let left = left.filter_map(|s| sends.get(s).map(|(op, _)| *op));
                    rests.extend(left.min_by_key(|op| op.lo).map(|op| (number, op)));
                }
            }
            _ => {}
        }
        let news = [
            (&channel.eofs, &channel.ended, Kind::Close),
            (&channel.refused, &channel.abandoned, Kind::Close),
            (&channel.broken, &channel.abandoned, Kind::Ready),
        ];
        for (effects, causes, kind) in news {
            last_before(causes, effects, |cause, effect| {
                links.push(link(kind, cause, effect, Some(number), 0));
                if waited {
                    ready::note(&mut origins, effect, cause);
                }
            });
        }
    }
    for pty in &world.terminals {
        terminals(world, pty, &mut links, &mut origins);
    }
    for (number, channel) in world.channels.iter().enumerate() {
        let mut rest: Vec<&Op> = rests.get(&(number as u32)).into_iter().collect();
        rest.extend(channel.ended.last());
        let takes = channel.recvs.iter().chain(&channel.eofs);
        ready::pair(&channel.ready, takes, &origins, &rest, |cause, wait| {
            links.push(link(Kind::Ready, cause, wait, Some(number as u32), 0));
        });
    }
    for listener in &world.listeners {
        let accepts = &listener.accepts;
        let left: Vec<&Op> = listener.waiting.iter().map(|half| &half.op).collect();
        ready::pair(
            &listener.ready,
            accepts,
            &world.connects,
            &left,
            |cause, wait| {
                links.push(link(Kind::Ready, cause, wait, None, 0));
            },
        );
    }
    for timer in &world.timers {
        for (effects, kind) in [(&timer.reads, Kind::Timer), (&timer.ready, Kind::Ready)] {
            last_before(&timer.sets, effects, |set, effect| {
                links.push(link(kind, set, effect, None, 0));
            });
        }
    }
    for (wait, process) in &world.ends_seen {
        if let Some(last) = world.last_op(*process).filter(|last| last.lo <= wait.hi) {
            links.push(link(Kind::Ready, &last, wait, None, 0));
        }
    }
    futexes::pair(std::mem::take(&mut world.futexes), |wake, wait| {
        links.push(link(Kind::Wake, wake, wait, None, 0));
    });
    locks::pair(std::mem::take(&mut world.locks), |release, lock| {
        links.push(link(Kind::Lock, release, lock, None, 0));
    });
    let mut told = Origins::new();
    signals::pair(world, |kind, cause, effect| {
        let mut made = link(kind, cause, effect, None, 0);
        made.cause_thread = None;
        links.push(made);
        if !world.signals_ready.is_empty() {
            ready::note(&mut told, effect, cause);
        }
    });
    let read = world.arrivals.iter().filter(|arrival| !arrival.handled);
    let read: Vec<Op> = read.map(|arrival| arrival.op).collect();
    let mut waits: HashMap<u32, Vec<Op>> = HashMap::new();
    for wait in &world.signals_ready {
        waits.entry(wait.process).or_default().push(*wait);
    }
    for (process, waits) in waits {
        let own = read.iter().filter(|op| op.process == process);
        ready::pair(&waits, own, &told, &[], |cause, wait| {
            let mut made = link(Kind::Ready, cause, wait, None, 0);
            made.cause_thread = None;
            links.push(made);
        });
    }
    merge(&mut links);
    (links, guesses)
}

/// Pairs each effect with the last cause that had begun by then.
fn last_before(causes: &[Op], effects: &[Op], mut emit: impl FnMut(&Op, &Op)) {
    if causes.is_empty() || effects.is_empty() {
        return;
    }
    let mut order: Vec<&Op> = causes.iter().collect();
    order.sort_by_key(|cause| cause.lo);
    for effect in effects {
        let after = order.partition_point(|cause| cause.lo <= effect.hi);
        if let Some(cause) = after.checked_sub(1).and_then(|at| order.get(at)) {
            emit(cause, effect);
        }
    }
}

/// One link for each cause, effect and channel; no event causes itself.
fn merge(links: &mut Vec<Link>) {
    links.retain(|link| link.cause != link.effect);
    links.sort_unstable_by_key(|link| (link.effect, link.cause, link.kind, link.channel));
    links.dedup_by(|next, kept| {
        let same = (next.effect, next.cause, next.kind, next.channel)
            == (kept.effect, kept.cause, kept.kind, kept.channel);
        if same {
            kept.amount += next.amount;
        }
        same
    });
}

/// In which order the operations on each stream were done: by time, and where
/// that does not tell, by what they carried.
fn orders(set: &Set, world: &World<'_>) -> (Vec<Orders>, u64) {
    let mut orders = Vec::with_capacity(world.channels.len());
    let mut unsure = Vec::new();
    for (number, channel) in world.channels.iter().enumerate() {
        if channel.flow != Flow::Stream {
            orders.push(Orders {
                sends: Vec::new(),
                recvs: Vec::new(),
            });
            continue;
        }
        let (sends, sure_sends) = stream::in_order(&channel.sends);
        let (recvs, sure_recvs) = stream::in_order(&channel.recvs);
        let both = !sends.is_empty() && !recvs.is_empty();
        if both && !(sure_sends && sure_recvs) {
            unsure.push(number);
        }
        orders.push(Orders { sends, recvs });
    }
    if unsure.is_empty() {
        return (orders, 0);
    }
    let contents = contents(set, world, &unsure);
    let mut guesses = 0;
    for number in unsure {
        let (Some(channel), Some(order)) = (world.channels.get(number), orders.get_mut(number))
        else {
            continue;
        };
        let (sends, recvs, guessed) = stream::by_content(
            &channel.sends,
            &order.sends,
            &channel.recvs,
            &order.recvs,
            &contents,
        );
        guesses += guessed;
        *order = Orders { sends, recvs };
    }
    (orders, guesses)
}

/// Reads again what the operations on these channels carried.
fn contents(set: &Set, world: &World<'_>, channels: &[usize]) -> Contents {
    let mut wanted: HashMap<u32, HashMap<u32, bool>> = HashMap::new();
    for channel in channels.iter().filter_map(|c| world.channels.get(*c)) {
        for op in &channel.sends {
            wanted.entry(op.process).or_default().insert(op.first, true);
        }
        for op in &channel.recvs {
            wanted.entry(op.process).or_default().insert(op.last, false);
        }
    }
    let mut contents = Contents::new();
    for (place, events) in wanted {
        let Some(first) = events.keys().min() else {
            continue;
        };
        let Some(mut log) = set.log_near(ProcessIx(place), u64::from(*first)) else {
            continue;
        };
        let mut left = events.len();
        while left > 0 && log.advance() {
            let Some((_, _, number, _)) = log.glance() else {
                break;
            };
            let Ok(number) = u32::try_from(number) else {
                break;
            };
            if !events.contains_key(&number) {
                continue;
            }
            left -= 1;
            // Both kinds of vectors and messages are argument 1 as well.
            let Some(event) = log.event() else { break };
            if let Some(data) = event.argument(1) {
                let kept = data.bytes.get(..CONTENT_MAX).unwrap_or(data.bytes);
                // The digest of a vector is of its pieces, which nobody knows.
                let whole = matches!(event.nr, calls::nr::WRITE | calls::nr::SENDTO);
                let content = stream::Content {
                    bytes: kept.to_vec(),
                    digest: data.digest.filter(|_| whole),
                };
                contents.insert((place, number), content);
            }
        }
    }
    contents
}

/// Links all streams, those that others are fed from first.
fn streams(
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
    channel: &crate::world::objects::Chan,
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

fn terminals(
    world: &World<'_>,
    pty: &crate::world::objects::Pty,
    links: &mut Vec<Link>,
    origins: &mut Origins,
) {
    let [down_number, up_number] = pty.channels;
    let (Some(down), Some(up)) = (
        world.channels.get(down_number as usize),
        world.channels.get(up_number as usize),
    ) else {
        return;
    };
    let [typed, read, printed, seen] = &pty.data;
    let down_side = terminal::Side {
        sends: &down.sends,
        sent: typed,
        recvs: &down.recvs,
        received: read,
    };
    let up_side = terminal::Side {
        sends: &up.sends,
        sent: printed,
        recvs: &up.recvs,
        received: seen,
    };
    terminal::pair(
        &pty.modes,
        &down_side,
        &up_side,
        |to_down, send, from_down, recv, bytes| {
            let sends = if from_down { &down.sends } else { &up.sends };
            let (recvs, number) = if to_down {
                (&down.recvs, down_number)
            } else {
                (&up.recvs, up_number)
            };
            if let (Some(send), Some(recv)) = (sends.get(send), recvs.get(recv)) {
                links.push(link(Kind::Message, send, recv, Some(number), bytes));
                ready::note(origins, recv, send);
            }
        },
    );
}

/// Where datagrams arrive: sockets that share it may each get what is sent there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Inbox {
    Socket(u32),
    Port(u16),
    Named(Address),
}

fn inbox(address: &Address) -> Inbox {
    match address {
        Address::V4(_, port) | Address::V6(_, port, _) => Inbox::Port(*port),
        other => Inbox::Named(other.clone()),
    }
}

/// Whether a datagram to this address arrives at a socket with that one.
fn arrives(to: &Address, own: &Address) -> bool {
    match (to, own) {
        (Address::V4(to, a), Address::V4(own, b)) => a == b && (to == own || own.is_unspecified()),
        (Address::V6(to, a, _), Address::V6(own, b, _)) => {
            a == b && (to == own || own.is_unspecified())
        }
        (Address::V4(_, a), Address::V6(own, b, _)) => a == b && own.is_unspecified(),
        _ => to == own,
    }
}

/// Pairs datagrams, and makes a channel for each pair of sockets that
/// exchanged some.
fn datagrams(world: &mut World<'_>, links: &mut Vec<Link>) {
    #[derive(Default)]
    struct Box {
        sent: Vec<usize>,
        received: Vec<(u32, usize)>,
    }
    let mut boxes: HashMap<Inbox, Box> = HashMap::new();
    for (i, sent) in world.sent.iter().enumerate() {
        let key = match &sent.to {
            Destination::Socket(socket) => Inbox::Socket(*socket),
            Destination::Address(address) => inbox(address),
        };
        boxes.entry(key).or_default().sent.push(i);
    }
    for (number, socket) in world.sockets.iter().enumerate() {
        if socket.received.is_empty() {
            continue;
        }
        let number = number as u32;
        let key = match (&socket.local, socket.pair) {
            (_, Some(_)) => Inbox::Socket(number),
            (Some(local), None) => inbox(local),
            (None, None) => continue,
        };
        let list = &mut boxes.entry(key).or_default().received;
        list.extend((0..socket.received.len()).map(|i| (number, i)));
    }
    let mut flows: HashMap<(u32, Option<u32>), u32> = HashMap::new();
    let mut order: Vec<(Inbox, Box)> = boxes.into_iter().collect();
    order.sort_by_key(|(_, entry)| entry.sent.first().copied());
    // Which socket each message went to.
    let mut target: Vec<Option<u32>> = vec![None; world.sent.len()];
    let mut found: Vec<(usize, u32, usize)> = Vec::new();
    for (_, entry) in &order {
        let sends: Vec<(Op, Key)> = entry
            .sent
            .iter()
            .filter_map(|i| world.sent.get(*i).map(|sent| (sent.op, sent.key)))
            .collect();
        let received = |r: usize| {
            let (socket, i) = entry.received.get(r)?;
            let socket: &Socket = world.sockets.get(*socket as usize)?;
            Some((socket, socket.received.get(*i)?))
        };
        for peeks in [false, true] {
            let places: Vec<usize> = (0..entry.received.len())
                .filter(|r| received(*r).is_some_and(|(_, m)| m.peek == peeks))
                .collect();
            let recvs: Vec<(Op, Key)> = places
                .iter()
                .filter_map(|r| received(*r).map(|(_, message)| (message.op, message.key)))
                .collect();
            let fits = |s: usize, r: usize| {
                let sent = entry.sent.get(s).and_then(|i| world.sent.get(*i));
                let (Some(sent), Some((socket, message))) =
                    (sent, places.get(r).and_then(|r| received(*r)))
                else {
                    return false;
                };
                let from = world.sockets.get(sent.from as usize);
                let net = from.map_or(socket.net, |from| from.net);
                let there = match (&sent.to, &socket.local) {
                    (Destination::Address(to), Some(own)) => {
                        arrives(to, own) && world.reaches(net, to, socket.net)
                    }
                    (Destination::Socket(_), _) => true,
                    (Destination::Address(_), None) => false,
                };
                let source = match (&message.source, from.and_then(|s| s.local.as_ref())) {
                    (Some(Address::UnixUnnamed), _) | (None, _) | (_, None) => true,
                    (Some(source), Some(local)) => match (source, local) {
                        (Address::UnixPath(_), _) => true,
                        _ => arrives(source, local),
                    },
                };
                there && source
            };
            mailbox::pair(&sends, &recvs, fits, |s, r| {
                if let (Some(sent), Some((socket, i))) = (
                    entry.sent.get(s),
                    places.get(r).and_then(|r| entry.received.get(*r)),
                ) {
                    found.push((*sent, *socket, *i));
                    if let Some(place) = target.get_mut(*sent) {
                        place.get_or_insert(*socket);
                    }
                }
            });
        }
    }
    // Channels, and what went by them.
    for (i, to) in target.iter().enumerate() {
        let Some(sent) = world.sent.get(i).cloned() else {
            continue;
        };
        let to = to.or(match sent.to {
            Destination::Socket(socket) => Some(socket),
            Destination::Address(_) => None,
        });
        let channel = flow(world, &mut flows, sent.from, to, &sent.to);
        if let Some(channel) = world.channel(channel) {
            channel.sends.push(sent.op);
        }
    }
    let mut origins = Origins::new();
    for (sent, socket, i) in found {
        let Some(message) = world
            .sockets
            .get(socket as usize)
            .and_then(|s| s.received.get(i))
            .cloned()
        else {
            continue;
        };
        let Some(sent) = world.sent.get(sent).cloned() else {
            continue;
        };
        let number = flow(world, &mut flows, sent.from, Some(socket), &sent.to);
        links.push(link(
            Kind::Message,
            &sent.op,
            &message.op,
            Some(number),
            message.op.amount,
        ));
        if let Some(channel) = world.channel(number)
            && !message.peek
        {
            channel.recvs.push(message.op);
            ready::note(&mut origins, &message.op, &sent.op);
        }
    }
    for (number, socket) in world.sockets.iter().enumerate() {
        if socket.ready.is_empty() {
            continue;
        }
        let number = number as u32;
        let takes = socket.received.iter().filter(|message| !message.peek);
        let takes = takes.map(|message| &message.op);
        let left = world.sent.iter().zip(&target).filter(|(sent, to)| {
            let there = match (&sent.to, &socket.local) {
                (Destination::Socket(to), _) => *to == number,
                (Destination::Address(to), Some(own)) => {
                    let from = world.sockets.get(sent.from as usize);
                    let net = from.map_or(socket.net, |from| from.net);
                    arrives(to, own) && world.reaches(net, to, socket.net)
                }
                (Destination::Address(_), None) => false,
            };
            to.is_none() && there
        });
        let mut left: Vec<&Op> = left.map(|(sent, _)| &sent.op).collect();
        left.sort_by_key(|op| op.lo);
        ready::pair(&socket.ready, takes, &origins, &left, |cause, wait| {
            links.push(link(Kind::Ready, cause, wait, None, 0));
        });
    }
    world.flows = flows
        .into_iter()
        .map(|((from, to), c)| (c, from, to))
        .collect();
}

/// The channel of datagrams between two sockets.
fn flow(
    world: &mut World<'_>,
    flows: &mut HashMap<(u32, Option<u32>), u32>,
    from: u32,
    to: Option<u32>,
    address: &Destination,
) -> u32 {
    if let Some(known) = flows.get(&(from, to)) {
        return *known;
    }
    let local = |number: Option<u32>| {
        let socket = world.sockets.get(number? as usize)?;
        socket.local.clone().filter(|a| *a != Address::UnixUnnamed)
    };
    let kind = match world.sockets.get(from as usize).map(|socket| socket.domain) {
        Some(recording::sockaddr::UNIX) => ChannelKind::UnixDatagram,
        _ => ChannelKind::Udp,
    };
    let far = match address {
        Destination::Address(address) => Some(address.clone()),
        Destination::Socket(_) => local(to),
    };
    let name = match (local(Some(from)), far) {
        (Some(own), Some(far)) => format!("{own}->{far}"),
        (None, Some(far)) => format!("->{far}"),
        (Some(own), None) => own.to_string(),
        (None, None) => "socketpair".to_string(),
    };
    let number = world.make_channel(kind, Flow::Packets, name);
    if let Some(to) = to
        && let Some(back) = flows.get(&(to, Some(from))).copied()
    {
        if let Some(channel) = world.channel(number) {
            channel.reverse = Some(back);
            channel.forward = false;
        }
        if let Some(channel) = world.channel(back) {
            channel.reverse = Some(number);
        }
    }
    flows.insert((from, to), number);
    number
}
