//! Where members of a set met: the halves of connections that one host saw
//! each, and the clocks that follow from them.
//!
//! A connection across hosts has its connect in one member and its accept in
//! another. Both know both addresses. A port may be used again, so halves with
//! the same addresses pair up in the order of their own hosts; no clock is
//! asked. Only when all pairs are known are clocks fitted to them, such that
//! nothing is received before it was sent; with these, the operations on what
//! two members share get times that can be compared.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use protocol::id::{ProcessIx, Ticks};
use recording::sockaddr::Address;
use recording::{Clock, Set};

use super::World;
use super::clocks::{self, Sights};
use super::objects::*;
use super::pairs::Tuple;
use super::waits::{SENDS, WaitFor};
use crate::link::Kind;
use crate::matching::stream;

/// A half of a connection that has no other in its own member.
#[derive(Clone, Debug)]
pub(crate) struct Apart {
    pub(super) member: u16,
    tuple: Tuple,
    pub(super) connects: bool,
    pub(super) half: Half,
}

/// The network namespace of each member: the same number for the same one.
pub(super) fn nets(set: &Set) -> Vec<u16> {
    let networks: Vec<_> = set.members().map(|m| &m.manifest().network).collect();
    let own = |at: usize| {
        let same = |other: &&recording::Network| networks.get(at).is_some_and(|n| n.is_same(other));
        networks.iter().position(same).unwrap_or(at) as u16
    };
    (0..networks.len()).map(own).collect()
}

fn ip(address: &Address) -> Option<IpAddr> {
    match address {
        Address::V4(ip, _) => Some(IpAddr::V4(*ip)),
        Address::V6(ip, ..) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

fn is_shared(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    ip.is_multicast() || broadcast
}

impl World<'_> {
    /// The namespace of the member that is read.
    pub(super) fn net(&self) -> u16 {
        let net = self.nets.get(usize::from(self.member));
        net.copied().unwrap_or(0)
    }

    /// Whether an address belongs to a namespace, as far as its members say.
    fn has_address(&self, net: u16, address: IpAddr) -> bool {
        let members = self.set.members().zip(&self.nets);
        let mut own = members.filter(|(_, other)| **other == net);
        own.any(|(m, _)| m.manifest().network.addresses.contains(&address))
    }

    /// Whether what is sent from one namespace to an address can arrive in
    /// another.
    pub fn reaches(&self, from: u16, to: &Address, net: u16) -> bool {
        if from == net {
            return true;
        }
        match ip(to) {
            None => false,
            Some(ip) if is_shared(ip) => true,
            Some(ip) => !ip.is_loopback() && self.has_address(net, ip),
        }
    }

    /// The member's logs have been read.
    pub fn leave(&mut self) {
        let rest = self.tcp.take_rest();
        if !self.set.is_joined() {
            return;
        }
        let member = self.member;
        let apart = rest.into_iter().map(|(tuple, connects, half)| Apart {
            member,
            tuple,
            connects,
            half,
        });
        self.apart.extend(apart);
        // Nobody on another host connects there by an address of this one's.
        for listener in &mut self.listeners {
            listener.open = false;
        }
    }

    /// All members have been read: pairs what they saw apart.
    pub fn join(&mut self) {
        if !self.set.is_joined() {
            return;
        }
        let pairs = self.pair_halves();
        for (connect, accept) in &pairs {
            self.merge(connect.half.connection, accept.half.connection);
            self.left_unsent(&connect.half, &accept.half);
        }
        self.fit_clocks(&pairs);
        // What was connected before anybody looked says nothing about the order of what came then.
        let seen = pairs.into_iter();
        let seen = seen.filter(|(_, accept)| !accept.half.op.is_of_old());
        for (connect, accept) in seen {
            let connected = self.shifted(connect.half.op);
            let accepted = self.shifted(accept.half.op);
            self.link_halves(connected, &accepted, accept.half.listener);
        }
        self.shift_shared();
    }

    fn link_halves(&mut self, connect: Op, accept: &Op, listener: Option<u32>) {
        self.link(Kind::Connect, (connect.process, connect.first), accept);
        self.connects.insert((accept.process, accept.last), connect);
        let listens = listener.and_then(|l| self.listeners.get(l as usize));
        if let Some(listens) = listens.map(|listener| listener.op) {
            self.link(Kind::Listen, (listens.process, listens.first), &connect);
        }
    }

    /// Which connect and which accept are one, in the order in which hosts made
    /// them.
    fn pair_halves(&mut self) -> Vec<(Apart, Apart)> {
        #[derive(Default)]
        struct Sides {
            connects: Vec<Apart>,
            accepts: Vec<Apart>,
        }
        let mut tuples: HashMap<Tuple, Sides> = HashMap::new();
        let all = std::mem::take(&mut self.apart);
        for apart in all.iter().cloned() {
            let sides = tuples.entry(apart.tuple.clone()).or_default();
            if apart.connects {
                sides.connects.push(apart);
            } else {
                sides.accepts.push(apart);
            }
        }
        let mut pairs = Vec::new();
        for (tuple, sides) in tuples {
            // The same addresses in two places are two conversations.
            let mut groups: HashMap<(u16, u16), (Vec<Apart>, Vec<Apart>)> = HashMap::new();
            for accept in &sides.accepts {
                for connect in &sides.connects {
                    let key = (connect.member, accept.member);
                    if !groups.contains_key(&key) && self.may_meet(&tuple, key) {
                        let of = |list: &[Apart], member: u16| -> Vec<Apart> {
                            let own = list.iter().filter(|a| a.member == member);
                            own.cloned().collect()
                        };
                        let both = (of(&sides.connects, key.0), of(&sides.accepts, key.1));
                        groups.insert(key, both);
                    }
                }
            }
            if groups.len() > 1 {
                // Several hosts have the address: it is told nowhere which.
                self.guessed_pairs += 1;
            }
            let mut taken: Vec<u32> = Vec::new();
            let mut groups: Vec<_> = groups.into_iter().collect();
            groups.sort_by_key(|(key, _)| *key);
            for (_, (mut connects, mut accepts)) in groups {
                let free = |a: &Apart| !taken.contains(&a.half.connection);
                connects.retain(free);
                accepts.retain(free);
                connects.sort_by_key(|a| a.half.op.lo);
                accepts.sort_by_key(|a| a.half.op.hi);
                for (connect, accept) in self.in_order(connects, accepts) {
                    taken.push(connect.half.connection);
                    taken.push(accept.half.connection);
                    pairs.push((connect, accept));
                }
            }
        }
        let paired: HashSet<u32> = pairs
            .iter()
            .flat_map(|(connect, accept)| [connect.half.connection, accept.half.connection])
            .collect();
        let left = |half: &Apart| !paired.contains(&half.half.connection);
        let left = all.into_iter().filter(left).collect();
        pairs.extend(self.pair_by_contents(left));
        pairs.sort_by_key(|(connect, _)| (connect.half.op.process, connect.half.op.first));
        pairs
    }

    /// Whether a connect in one member can have led to an accept in another.
    fn may_meet(&self, (local, peer): &Tuple, (from, to): (u16, u16)) -> bool {
        let net = |member: u16| self.nets.get(usize::from(member)).copied();
        let (Some(from), Some(to)) = (net(from), net(to)) else {
            return false;
        };
        from == to || (self.reaches(from, peer, to) && self.reaches(to, local, from))
    }

    /// Pairs halves with the same addresses. Where some have no other half
    /// (nobody accepted it, or its beginning was not recorded), those pair that
    /// can: neither received more than the other sent.
    fn in_order(&mut self, connects: Vec<Apart>, accepts: Vec<Apart>) -> Vec<(Apart, Apart)> {
        if connects.len() == accepts.len() {
            return connects.into_iter().zip(accepts).collect();
        }
        self.guessed_pairs += 1;
        let mut pairs = Vec::new();
        let mut connects = connects.into_iter();
        for accept in accepts {
            let fits = |connect: &Apart| self.fits(connect, &accept);
            if let Some(connect) = connects.by_ref().find(fits) {
                pairs.push((connect, accept));
            }
        }
        pairs
    }

    pub(super) fn fits(&self, connect: &Apart, accept: &Apart) -> bool {
        let channels = |apart: &Apart| {
            let connection = self.connections.get(apart.half.connection as usize);
            connection.map(|connection| connection.channels)
        };
        let (Some(own), Some(other)) = (channels(connect), channels(accept)) else {
            return false;
        };
        let sum = |channel: u32, pick: fn(&Chan) -> &Vec<Op>| {
            let channel = self.channels.get(channel as usize);
            channel.map_or(0, |channel| {
                pick(channel).iter().map(|op| op.amount).sum::<u64>()
            })
        };
        let unsure = |channel: u32| {
            let channel = self.channels.get(channel as usize);
            channel.is_some_and(|channel| !channel.unsure.is_empty())
        };
        let flows = |sender: u32, receiver: u32| {
            unsure(sender) || sum(sender, |c| &c.sends) >= sum(receiver, |c| &c.recvs)
        };
        flows(own[0], other[0]) && flows(other[1], own[1])
    }

    /// Two connections were one that was seen from both ends.
    fn merge(&mut self, kept: u32, gone: u32) {
        let (Some(own), Some(other)) = (
            self.connections.get(kept as usize).copied(),
            self.connections.get(gone as usize).copied(),
        ) else {
            return;
        };
        for (to, from) in own.channels.into_iter().zip(other.channels) {
            let Some(channel) = self.channels.get_mut(from as usize) else {
                continue;
            };
            let mut rest = Chan::new(channel.kind, channel.flow, channel.name.clone());
            rest.merged = true;
            rest.reverse = channel.reverse;
            let mut moved = std::mem::replace(channel, rest);
            let Some(channel) = self.channels.get_mut(to as usize) else {
                continue;
            };
            // One end each, so that nothing is at the same place in both.
            channel.sends.append(&mut moved.sends);
            channel.recvs.append(&mut moved.recvs);
            channel.unsure.append(&mut moved.unsure);
            channel.peeks.append(&mut moved.peeks);
            channel.eofs.append(&mut moved.eofs);
            channel.refused.append(&mut moved.refused);
            channel.ended.append(&mut moved.ended);
            channel.abandoned.append(&mut moved.abandoned);
            channel.ready.append(&mut moved.ready);
            channel.broken.append(&mut moved.broken);
            channel.writers += moved.writers;
            channel.readers += moved.readers;
            channel.shut_out |= moved.shut_out;
            channel.shut_in |= moved.shut_in;
            self.rename(from, to);
        }
        if let Some(connection) = self.connections.get_mut(gone as usize) {
            *connection = own;
        }
    }

    /// What was one channel's is another's.
    fn rename(&mut self, from: u32, to: u32) {
        for forward in &mut self.forwards {
            for end in [&mut forward.from.0, &mut forward.to.0] {
                if *end == from {
                    *end = to;
                }
            }
        }
        for wait in &mut self.waits {
            match &mut wait.what {
                WaitFor::Receive(channel) | WaitFor::Send(channel) if *channel == from => {
                    *channel = to;
                }
                _ => {}
            }
        }
        for channel in &mut self.polls {
            if *channel & !SENDS == from {
                *channel = to | *channel & SENDS;
            }
        }
    }

    // Clocks.

    /// What each member's clock said when something was sent and received.
    fn fit_clocks(&mut self, pairs: &[(Apart, Apart)]) {
        let clocks: Vec<Clock> = self.set.members().map(|m| *m.clock()).collect();
        let since = |member: u16, ticks: u64| {
            let clock = clocks.get(usize::from(member));
            clock.map_or(0, |clock| clocks::elapsed_ns(clock, Ticks(ticks)))
        };
        let mut sights = Sights::new(clocks.len());
        for (connect, accept) in pairs {
            let (a, b) = (connect.member, accept.member);
            // The accept cannot have been over before the connect began.
            if !connect.half.op.is_of_old() && !accept.half.op.is_of_old() {
                sights.see(
                    (a, since(a, connect.half.op.lo)),
                    (b, since(b, accept.half.op.hi)),
                );
            }
            let Some(connection) = self.connections.get(connect.half.connection as usize) else {
                continue;
            };
            for (number, from, to) in [
                (connection.channels[0], a, b),
                (connection.channels[1], b, a),
            ] {
                let Some(channel) = self.channels.get(number as usize) else {
                    continue;
                };
                let (sends, sure_sends) = stream::in_order(&channel.sends);
                let (recvs, sure_recvs) = stream::in_order(&channel.recvs);
                if !(sure_sends && sure_recvs && channel.unsure.is_empty()) {
                    continue;
                }
                stream::pair(&channel.sends, &sends, &channel.recvs, &recvs, |overlap| {
                    let send = channel.sends.get(overlap.send);
                    let recv = channel.recvs.get(overlap.recv);
                    if let (Some(send), Some(recv)) = (send, recv)
                        && !send.is_of_old()
                    {
                        sights.see((from, since(from, send.lo)), (to, since(to, recv.hi)));
                    }
                });
            }
        }
        let first = clocks.first().copied().unwrap_or_default();
        let later: Vec<i64> = clocks
            .iter()
            .map(|own| clocks::later_ns(&first, own))
            .collect();
        self.clocks = clocks::fit(&sights, &later);
    }

    /// An operation with times that can be compared with another member's.
    fn shifted(&self, op: Op) -> Op {
        let member = self.set.member_of(ProcessIx(op.process));
        let Some(shift) = member.and_then(|member| self.shift_of(member)) else {
            return op;
        };
        Op {
            lo: shift.time(op.lo),
            hi: shift.time(op.hi),
            ..op
        }
    }

    fn shift_of(&self, member: u16) -> Option<clocks::Shift> {
        let first = *self.set.member(0)?.clock();
        let own = *self.set.member(member)?.clock();
        let fit = self.clocks.get(usize::from(member)).copied();
        Some(clocks::Shift::new(first, own, fit.unwrap_or_default()))
    }

    /// All that is done to what members share.
    fn shift_shared(&mut self) {
        let shifts: Vec<Option<clocks::Shift>> = (0..self.nets.len() as u16)
            .map(|m| self.shift_of(m))
            .collect();
        let set = self.set;
        let shift = |op: &mut Op| {
            if let Some(member) = set.member_of(ProcessIx(op.process))
                && let Some(Some(shift)) = shifts.get(usize::from(member))
            {
                op.lo = shift.time(op.lo);
                op.hi = shift.time(op.hi);
            }
        };
        // Connections all, so that it need not be known which were merged:
        // to compare within one member it does not matter.
        for connection in &self.connections {
            for number in connection.channels {
                let channel = self.channels.get_mut(number as usize);
                let Some(channel) = channel.filter(|channel| !channel.shifted) else {
                    continue;
                };
                channel.shifted = true;
                let lists = [
                    &mut channel.sends,
                    &mut channel.recvs,
                    &mut channel.unsure,
                    &mut channel.peeks,
                    &mut channel.eofs,
                    &mut channel.refused,
                    &mut channel.ended,
                    &mut channel.abandoned,
                    &mut channel.ready,
                    &mut channel.broken,
                ];
                lists.into_iter().flatten().for_each(&shift);
            }
        }
        for sent in &mut self.sent {
            shift(&mut sent.op);
        }
        for socket in &mut self.sockets {
            socket
                .received
                .iter_mut()
                .for_each(|received| shift(&mut received.op));
            socket.ready.iter_mut().for_each(&shift);
        }
        for listener in &mut self.listeners {
            let waiting = listener.waiting.iter_mut().map(|half| &mut half.op);
            waiting
                .chain(&mut listener.accepts)
                .chain(&mut listener.ready)
                .for_each(&shift);
        }
        // Those across members have been already.
        let within = |accept: &(u32, u32), connect: &Op| {
            set.member_of(ProcessIx(accept.0)) == set.member_of(ProcessIx(connect.process))
        };
        for (accept, connect) in &mut self.connects {
            if within(accept, connect) {
                shift(connect);
            }
        }
    }
}
