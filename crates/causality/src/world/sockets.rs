//! Sockets: how they come to be connected.

use protocol::id::ProcessIx;
use protocol::record::tag;
use recording::Event;
use recording::sockaddr::{self, Address};

use super::calls;
use super::descriptors::CLOEXEC;
use super::objects::*;
use super::{World, reached};
use crate::channel::ChannelKind;
use crate::link::Kind;

const STREAM: u8 = 1;
const DATAGRAM: u8 = 2;
const SEQPACKET: u8 = 5;
const EINPROGRESS: i64 = -115;

impl World<'_> {
    pub(super) fn socket(&mut self, file: u32) -> Option<(u32, &mut Socket)> {
        let What::Socket(number) = self.files.what(file) else {
            return None;
        };
        Some((number, self.sockets.get_mut(number as usize)?))
    }

    fn new_socket(&mut self, op: Op, fd: i64, socket: Socket, cloexec: bool) -> u32 {
        self.sockets.push(Socket {
            net: self.net(),
            ..socket
        });
        let number = (self.sockets.len() - 1) as u32;
        self.make(op, fd, What::Socket(number), cloexec);
        number
    }

    pub(super) fn make_socket(&mut self, op: Op, fd: i64, domain: u64, kind: u64) {
        let socket = Socket {
            domain: domain as u16,
            kind: kind as u8 & 0xf,
            ..Socket::default()
        };
        self.new_socket(op, fd, socket, kind & CLOEXEC != 0);
    }

    pub(super) fn make_pair(&mut self, op: Op, event: &Event<'_>) {
        let Some((a, b)) = calls::pair(event, 3) else {
            return;
        };
        let (domain, kind) = (event.args[0] as u16, event.args[1]);
        let cloexec = kind & CLOEXEC != 0;
        let kind = kind as u8 & 0xf;
        let fresh = || Socket {
            domain,
            kind,
            local: Some(Address::UnixUnnamed),
            ..Socket::default()
        };
        let first = self.new_socket(op, a, fresh(), cloexec);
        let second = self.new_socket(op, b, fresh(), cloexec);
        if kind == DATAGRAM {
            for (own, other) in [(first, second), (second, first)] {
                if let Some(socket) = self.sockets.get_mut(own as usize) {
                    socket.pair = Some(other);
                }
            }
            return;
        }
        let connection = self.make_connection(domain, kind, "socketpair".to_string());
        self.attach(first, connection, 0);
        self.attach(second, connection, 1);
    }

    pub(super) fn make_connection(&mut self, domain: u16, kind: u8, name: String) -> u32 {
        let (channel, flow) = match (domain, kind) {
            (sockaddr::UNIX, SEQPACKET) => (ChannelKind::UnixDatagram, Flow::Packets),
            (sockaddr::UNIX, _) => (ChannelKind::UnixStream, Flow::Stream),
            _ => (ChannelKind::Tcp, Flow::Stream),
        };
        let there = self.make_channel(channel, flow, name.clone());
        let back = self.make_channel(channel, flow, name);
        for (own, other) in [(there, back), (back, there)] {
            if let Some(channel) = self.channel(own) {
                channel.reverse = Some(other);
                channel.forward = own == there;
            }
        }
        self.connections.push(Connection {
            channels: [there, back],
        });
        (self.connections.len() - 1) as u32
    }

    pub(super) fn attach(&mut self, socket: u32, connection: u32, side: usize) {
        if let Some(socket) = self.sockets.get_mut(socket as usize) {
            socket.connection = Some((connection, side));
        }
        let Some(Connection {
            channels: [there, back],
        }) = self.connections.get(connection as usize).copied()
        else {
            return;
        };
        let (out, input) = if side == 0 {
            (there, back)
        } else {
            (back, there)
        };
        if let Some(channel) = self.channel(out) {
            channel.writers += 1;
        }
        if let Some(channel) = self.channel(input) {
            channel.readers += 1;
        }
    }

    pub(super) fn bound(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let local = match self.address_in(op, event, tag::LOCAL) {
            Some(local) => Some(local),
            None => self.address_argument(op, event, 1),
        };
        if let Some((_, socket)) = self.socket(file)
            && local.is_some()
        {
            socket.local = local;
        }
    }

    pub(super) fn listens(&mut self, op: Op, event: &Event<'_>, file: u32) {
        self.learn_local(op, event, file);
        let next = self.listeners.len() as u32;
        let Some((_, socket)) = self.socket(file) else {
            return;
        };
        if socket.listener.is_some() {
            return;
        }
        socket.listener = Some(next);
        let address = socket.local.clone();
        self.listeners.push(Listener {
            op,
            address,
            open: true,
            ..Listener::default()
        });
    }

    /// The socket that listens at an address.
    pub(super) fn listener_at(&self, address: &Address) -> Option<u32> {
        let reaches = |own: &Address| match (own, address) {
            (Address::V4(ip, port), Address::V4(to, wanted)) => {
                port == wanted && (ip == to || ip.is_unspecified())
            }
            (Address::V6(ip, port, _), Address::V4(_, wanted)) => {
                port == wanted && ip.is_unspecified()
            }
            (Address::V6(ip, port, _), Address::V6(to, wanted, _)) => {
                port == wanted && (ip == to || ip.is_unspecified())
            }
            _ => own == address,
        };
        let at = self.listeners.iter().rposition(|listener| {
            listener.open && listener.address.as_ref().is_some_and(reaches)
        })?;
        Some(at as u32)
    }

    /// A connect begins. Unix sockets have no addresses that would tell
    /// connections apart: they stand in line at the listener.
    pub(super) fn connecting(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let Some(address) = self.address_argument(op, event, 1) else {
            return;
        };
        let Some((_, socket)) = self.socket(file) else {
            return;
        };
        let (domain, kind) = (socket.domain, socket.kind);
        if domain != sockaddr::UNIX || kind == DATAGRAM {
            return;
        }
        let Some(listener) = self.listener_at(&address) else {
            return;
        };
        let connection = self.make_connection(domain, kind, address.to_string());
        let process = self.set.process(ProcessIx(op.process));
        let pid = process.map(|process| process.pid).filter(|pid| *pid != 0);
        if let Some(listener) = self.listeners.get_mut(listener as usize) {
            listener.waiting.push(Half {
                op,
                connection,
                pid,
                listener: None,
            });
        }
    }

    pub(super) fn connected(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let result = event.result.unwrap_or(-1);
        let over = result == 0 || result == EINPROGRESS;
        let address = self.address_argument(op, event, 1);
        let local = self.address_in(op, event, tag::LOCAL);
        let Some((number, socket)) = self.socket(file) else {
            return;
        };
        let (domain, kind) = (socket.domain, socket.kind);
        if over && local.is_some() {
            socket.local = local;
        }
        if kind == DATAGRAM || !matches!(domain, sockaddr::UNIX | sockaddr::INET | sockaddr::INET6)
        {
            if over {
                socket.peer = match address {
                    Some(Address::Other(0)) | None => None,
                    Some(address) => Some(reached(address)),
                };
            }
            return;
        }
        let Some(address) = address.map(reached) else {
            return;
        };
        if domain == sockaddr::UNIX {
            if op.first == op.last {
                self.connecting(op, event, file);
            }
            self.unix_connected(op, number, &address, result == 0);
        } else if over {
            self.inet_connected(op, number, address, result == 0);
        }
    }

    fn unix_connected(&mut self, op: Op, socket: u32, address: &Address, over: bool) {
        let own = |half: &Half| (half.op.process, half.op.first) == (op.process, op.first);
        let mut found = None;
        for (number, listener) in self.listeners.iter_mut().enumerate() {
            if let Some(at) = listener.waiting.iter().position(own) {
                found = listener
                    .waiting
                    .get(at)
                    .map(|half| (half.connection, number));
                if !over {
                    listener.waiting.remove(at);
                }
            } else if let Some(at) = listener.accepted.iter().position(own) {
                found = Some((listener.accepted.swap_remove(at).connection, number));
            }
        }
        if !over {
            return;
        }
        let connection = match found {
            Some((connection, listener)) => {
                if let Some(listener) = self.listeners.get(listener) {
                    let cause = (listener.op.process, listener.op.first);
                    self.link(Kind::Listen, cause, &op);
                }
                connection
            }
            None => self.make_connection(sockaddr::UNIX, STREAM, address.to_string()),
        };
        self.attach(socket, connection, 0);
    }

    fn inet_connected(&mut self, op: Op, socket: u32, peer: Address, over: bool) {
        let Some(known) = self.sockets.get_mut(socket as usize) else {
            return;
        };
        let (domain, kind) = (known.domain, known.kind);
        known.peer = Some(peer.clone());
        let local = known.local.clone();
        let listener = self.listener_at(&peer);
        if let Some(listens) = listener.and_then(|l| self.listeners.get(l as usize)) {
            let listens = listens.op;
            if over {
                self.link(Kind::Listen, (listens.process, listens.first), &op);
            }
            if let Some(known) = self.sockets.get_mut(socket as usize) {
                known.asked_for = Some(listens).filter(|_| !over);
            }
        }
        if self
            .sockets
            .get(socket as usize)
            .is_some_and(|socket| socket.connection.is_some())
        {
            // Asked for again, to see whether it is there now.
            return;
        }
        let Some(local) = local else {
            let connection = self.make_connection(domain, kind, format!("->{peer}"));
            return self.attach(socket, connection, 0);
        };
        let name = format!("{local}->{peer}");
        let connection = self.connections.len() as u32;
        let half = Half {
            op,
            connection,
            pid: None,
            listener: None,
        };
        match self.tcp.connected((local, peer), half, listener) {
            Some(accepted) => {
                self.link_connect(op, &accepted.op);
                self.attach(socket, accepted.connection, 0);
            }
            None => {
                let made = self.make_connection(domain, kind, name);
                self.attach(socket, made, 0);
            }
        }
    }

    pub(super) fn accepted(&mut self, op: Op, event: &Event<'_>, file: u32, flags: u64) {
        let local = self.address_in(op, event, tag::LOCAL);
        let peer = match self.address_in(op, event, tag::PEER) {
            Some(peer) => Some(peer),
            None => self.address_argument(op, event, 1),
        };
        let (domain, kind, listener, listening) = match self.socket(file) {
            Some((_, s)) => (s.domain, s.kind, s.listener, s.local.clone()),
            None => (0, STREAM, None, None),
        };
        if let Some(listener) = listener.and_then(|l| self.listeners.get_mut(l as usize)) {
            listener.accepts.push(op);
        }
        let domain = match (&peer, domain) {
            (Some(Address::V4(..)), 0) => sockaddr::INET,
            (Some(Address::V6(..)), 0) => sockaddr::INET6,
            (_, domain) => domain,
        };
        let local = local.or(listening);
        let connection = if domain == sockaddr::UNIX {
            self.unix_accepted(op, event, listener, kind, local.as_ref())
        } else {
            self.inet_accepted(op, domain, kind, (peer.clone(), local.clone()), listener)
        };
        let socket = Socket {
            domain,
            kind,
            local,
            peer,
            ..Socket::default()
        };
        let result = event.result.unwrap_or(-1);
        let number = self.new_socket(op, result, socket, flags & CLOEXEC != 0);
        self.attach(number, connection, 1);
    }

    fn inet_accepted(
        &mut self,
        op: Op,
        domain: u16,
        kind: u8,
        addresses: (Option<Address>, Option<Address>),
        listener: Option<u32>,
    ) -> u32 {
        let (Some(peer), Some(local)) = addresses else {
            return self.make_connection(domain, kind, "accepted".to_string());
        };
        let name = format!("{peer}->{local}");
        let tuple = (peer, local);
        if let Some(half) = self.tcp.accepted(&tuple, op.hi) {
            self.link_connect(half.op, &op);
            return half.connection;
        }
        let connection = self.make_connection(domain, kind, name);
        let half = Half {
            op,
            connection,
            pid: None,
            listener,
        };
        self.tcp.accepted_early(tuple, half);
        connection
    }

    fn unix_accepted(
        &mut self,
        op: Op,
        event: &Event<'_>,
        listener: Option<u32>,
        kind: u8,
        local: Option<&Address>,
    ) -> u32 {
        let pid = event.number_in(tag::CREDENTIALS).map(|pid| pid as u32);
        let found = listener.and_then(|l| {
            let listener = self.listeners.get_mut(l as usize)?;
            let fits = |half: &Half| {
                half.op.lo <= op.hi && (pid.is_none() || half.pid.is_none() || half.pid == pid)
            };
            let at = listener.waiting.iter().position(fits)?;
            let half = listener.waiting.remove(at);
            listener.accepted.push(half.clone());
            Some(half)
        });
        match found {
            Some(half) => {
                self.link_connect(half.op, &op);
                half.connection
            }
            None => {
                let name = local.map_or("accepted".to_string(), Address::to_string);
                self.make_connection(sockaddr::UNIX, kind, name)
            }
        }
    }

    fn link_connect(&mut self, connect: Op, accept: &Op) {
        self.link(Kind::Connect, (connect.process, connect.first), accept);
        self.connects.insert((accept.process, accept.last), connect);
    }

    pub(super) fn shut_down(&mut self, op: Op, file: u32, how: u64) {
        let (input, output) = self.channels_of(file);
        if matches!(how, 1 | 2)
            && let Some(channel) = output.and_then(|channel| self.channel(channel))
            && !std::mem::replace(&mut channel.shut_out, true)
        {
            channel.ended.push(op);
        }
        if matches!(how, 0 | 2)
            && let Some(channel) = input.and_then(|channel| self.channel(channel))
            && !std::mem::replace(&mut channel.shut_in, true)
        {
            channel.abandoned.push(op);
        }
    }

    pub(super) fn socket_closed(&mut self, op: Op, socket: u32) {
        let Some(known) = self.sockets.get_mut(socket as usize) else {
            return;
        };
        let rights = std::mem::take(&mut known.rights);
        let listener = known.listener;
        for file in rights.iter().flat_map(|message| message.files.iter()) {
            if self.files.arrive(*file) {
                self.closed(op, *file);
            }
        }
        let Some(number) = listener else { return };
        let Some(listener) = self.listeners.get_mut(number as usize) else {
            return;
        };
        listener.open = false;
        let mut lost = std::mem::take(&mut listener.waiting);
        lost.extend(self.tcp.drop_waiting(number));
        for half in lost {
            let Some(connection) = self.connections.get(half.connection as usize).copied() else {
                continue;
            };
            let [there, back] = connection.channels;
            if let Some(channel) = self.channel(there) {
                channel.abandoned.push(op);
            }
            if let Some(channel) = self.channel(back) {
                channel.ended.push(op);
            }
        }
    }
}
