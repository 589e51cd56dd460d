//! Datagrams: which arrived where, and the channels that they make.

use std::collections::HashMap;

use recording::sockaddr::Address;

use super::link;
use super::mailbox;
use super::ready::{self, Origins};
use crate::channel::ChannelKind;
use crate::link::{Kind, Link};
use crate::world::World;
use crate::world::objects::{Destination, Flow, Key, Op, Socket};

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
pub(super) fn pair(world: &mut World<'_>, links: &mut Vec<Link>) {
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
