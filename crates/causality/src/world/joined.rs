//! Processes that ran already when they began to be observed: what their descriptors led
//! to then, as the agent has found it.
//!
//! Open files that several have, the two ends of pipes and of connections belong together
//! by the kernel's numbers and addresses. What had been sent and not received stands at
//! the head of its channel; nobody is known to have sent it, so it comes from the
//! beginning of who is to receive it.

use std::collections::HashMap;

use recording::Recording;
use recording::model::{Held, HeldSocket};
use recording::sockaddr::{self, Address};

use super::World;
use super::objects::*;
use super::polls::Epoll;
use crate::channel::ChannelKind;

const STREAM: u8 = 1;
const SEQPACKET: u8 = 5;
/// The first port that the kernel hands out, unless it is told otherwise.
const HANDED_OUT: u16 = 32768;
/// Types of files in `st_mode`.
const TYPE: u32 = 0o170000;
const FIFO: u32 = 0o010000;
const CHARACTER: u32 = 0o020000;

/// What was found so far.
#[derive(Default)]
struct Known {
    /// Channels of pipes, and the open files of their ends, by number.
    pipes: HashMap<u64, u32>,
    ends: HashMap<(u64, bool, bool), u32>,
    /// Sockets by number: number here, open file.
    sockets: HashMap<u64, (u32, u32)>,
    counters: HashMap<u64, u32>,
    /// Connected sockets, with who has them.
    connected: Vec<Connected>,
}

struct Connected {
    inode: u64,
    socket: u32,
    place: u32,
    held: HeldSocket,
    unread: u64,
    unsent: u64,
}

impl World<'_> {
    /// Takes in the processes that ran when an observation began.
    pub(super) fn joined(&mut self, recording: &Recording) {
        let Some(observed) = &recording.manifest().observed else {
            return;
        };
        let mut known = Known::default();
        for joined in &observed.joined {
            let Some(place) = self.places.get(&joined.process).copied() else {
                continue;
            };
            let op = Op {
                process: place,
                ..Op::default()
            };
            for held in &joined.descriptors {
                let file = self.file_held(op, held, &mut known);
                let fd = i64::from(held.descriptor.fd);
                self.put(op, fd, file, held.cloexec);
            }
        }
        self.connect_joined(known);
    }

    fn file_held(&mut self, op: Op, held: &Held, known: &mut Known) -> u32 {
        let target = held.descriptor.target.as_str();
        if let Some(socket) = &held.socket {
            return self.socket_held(op, held, socket, known);
        }
        match target {
            "anon_inode:[eventfd]" => {
                if let Some(file) = known.counters.get(&held.inode) {
                    return *file;
                }
                let file = self.counter_held(op, held);
                known.counters.insert(held.inode, file);
                return file;
            }
            "anon_inode:[eventpoll]" => {
                self.epolls.push(Epoll::default());
                let epoll = (self.epolls.len() - 1) as u32;
                return self.files.make(What::Epoll(epoll));
            }
            "anon_inode:[timerfd]" => {
                self.timers.push(Timer::default());
                let timer = (self.timers.len() - 1) as u32;
                return self.files.make(What::Timer(timer));
            }
            "anon_inode:[signalfd]" => return self.files.make(What::Signals),
            _ => {}
        }
        match held.descriptor.mode & TYPE {
            FIFO => self.pipe_held(op, held, known),
            CHARACTER => self.files.make(What::Outside {
                input: NONE,
                output: NONE,
            }),
            _ if target.starts_with('/') => {
                let path = self.path(target.as_bytes().to_vec());
                self.files.make(What::File(path))
            }
            _ => self.files.make(What::Other),
        }
    }

    fn counter_held(&mut self, op: Op, held: &Held) -> u32 {
        let kind = ChannelKind::Counter;
        let channel = self.make_channel(kind, Flow::Count(false), "eventfd".to_string());
        if let Some(channel) = self.channel(channel) {
            channel.readers = 1;
            channel.writers = 1;
            channel.sends.extend(left(op, held.unread));
        }
        self.files.make(What::Counter(channel))
    }

    fn pipe_held(&mut self, op: Op, held: &Held, known: &mut Known) -> u32 {
        let end = (held.inode, held.reads, held.writes);
        if let Some(file) = known.ends.get(&end) {
            return *file;
        }
        let channel = match known.pipes.get(&held.inode) {
            Some(channel) => *channel,
            None => {
                let made = self.make_pipe("pipe");
                known.pipes.insert(held.inode, made);
                made
            }
        };
        if held.reads
            && let Some(channel) = self.channel(channel)
            && channel.sends.is_empty()
        {
            channel.sends.extend(left(op, held.unread));
        }
        let file = self.open_pipe(channel, held.reads, held.writes);
        known.ends.insert(end, file);
        file
    }

    fn socket_held(&mut self, op: Op, held: &Held, own: &HeldSocket, known: &mut Known) -> u32 {
        if let Some((_, file)) = known.sockets.get(&held.inode) {
            return *file;
        }
        let local = Address::parse(&own.local);
        let peer = Address::parse(&own.peer).filter(|_| !own.peer.is_empty());
        let listener = own.listens.then_some(self.listeners.len() as u32);
        if own.listens {
            self.listeners.push(Listener {
                op,
                address: local.clone(),
                open: true,
                ..Listener::default()
            });
        }
        self.sockets.push(Socket {
            net: self.net(),
            domain: own.domain,
            kind: own.kind,
            local,
            peer,
            listener,
            ..Socket::default()
        });
        let socket = (self.sockets.len() - 1) as u32;
        let file = self.files.make(What::Socket(socket));
        known.sockets.insert(held.inode, (socket, file));
        let is_connected = !own.peer.is_empty() || own.other != 0;
        if is_connected && !own.listens {
            known.connected.push(Connected {
                inode: held.inode,
                socket,
                place: op.process,
                held: own.clone(),
                unread: held.unread,
                unsent: held.unsent,
            });
        }
        file
    }

    /// Joins the ends of connections.
    fn connect_joined(&mut self, known: Known) {
        let all = known.connected;
        let mut done: Vec<u64> = Vec::new();
        for (at, own) in all.iter().enumerate() {
            if done.contains(&own.inode) {
                continue;
            }
            let is_other = |other: &&Connected| match own.held.domain {
                sockaddr::UNIX => own.held.other == other.inode,
                _ => own.held.peer == other.held.local && own.held.local == other.held.peer,
            };
            let mut rest = all.iter().skip(at + 1);
            let other = rest.find(|other| !done.contains(&other.inode) && is_other(other));
            match other {
                Some(other) => {
                    done.push(other.inode);
                    self.join_ends(own, other);
                }
                None => self.join_one_end(own),
            }
        }
    }

    fn join_ends(&mut self, own: &Connected, other: &Connected) {
        if !matches!(own.held.kind, STREAM | SEQPACKET) {
            for (one, to) in [(own, other), (other, own)] {
                if let Some(socket) = self.sockets.get_mut(one.socket as usize)
                    && one.held.domain == sockaddr::UNIX
                {
                    socket.pair = Some(to.socket);
                }
            }
            return;
        }
        // Who accepted has the address of one that listens.
        let listens = |end: &Connected| {
            let address = Address::parse(&end.held.local);
            address.is_some_and(|address| self.listener_at(&address).is_some())
        };
        let (first, second) = match listens(own) {
            true => (other, own),
            false => (own, other),
        };
        let connection = self.make_connection(own.held.domain, own.held.kind, name(first));
        self.attach(first.socket, connection, 0);
        self.attach(second.socket, connection, 1);
        for (from, to) in [(first, second), (second, first)] {
            self.left_for(to, to.unread + from.unsent);
        }
    }

    /// The other end is outside, or waits to be accepted.
    fn join_one_end(&mut self, own: &Connected) {
        if own.held.kind != STREAM {
            return;
        }
        let addresses = (
            Address::parse(&own.held.local),
            Address::parse(&own.held.peer),
        );
        let accepted = match &addresses {
            (Some(local), Some(peer)) => self.has_accepted(local, peer),
            _ => false,
        };
        let connection = self.make_connection(own.held.domain, own.held.kind, name(own));
        self.attach(own.socket, connection, usize::from(accepted));
        self.left_for(own, own.unread);
        if own.held.domain != sockaddr::UNIX
            && let (Some(local), Some(peer)) = addresses
        {
            // What it had not sent yet is under way to whom the other end is of.
            let op = Op {
                process: own.place,
                amount: own.unsent,
                ..Op::default()
            };
            let half = Half {
                op,
                connection,
                pid: None,
                listener: None,
            };
            if accepted {
                self.tcp.accepted_early((peer, local), half);
                return;
            }
            let listener = self.listener_at(&peer);
            self.tcp.connected((local, peer), half, listener);
        }
    }

    /// Whether an end of a connection, the other end of which is on another host, is that
    /// of who accepted. Both hosts have to say the same of it: who connects gets a port
    /// from those that the kernel hands out.
    fn has_accepted(&self, local: &Address, peer: &Address) -> bool {
        let is_handed_out = |address: &Address| match address {
            Address::V4(_, port) | Address::V6(_, port, ..) => *port >= HANDED_OUT,
            _ => false,
        };
        self.set.is_joined()
            && (self.listener_at(local).is_some() || !is_handed_out(local) && is_handed_out(peer))
    }

    /// The two ends of a connection were found on two hosts: what neither had sent yet when
    /// they began to be observed is under way to the other.
    pub(super) fn left_unsent(&mut self, connect: &Half, accept: &Half) {
        let connection = self.connections.get(connect.connection as usize);
        let Some(channels) = connection.map(|connection| connection.channels) else {
            return;
        };
        let [there, back] = channels;
        for (channel, from, to) in [(there, connect, accept), (back, accept, connect)] {
            let op = Op {
                process: to.op.process,
                ..Op::default()
            };
            if from.op.is_of_old()
                && let Some(channel) = self.channel(channel)
                && channel.flow == Flow::Stream
            {
                let old = channel.sends.iter().take_while(|send| send.is_of_old());
                let at = old.count();
                let left = left(op, from.op.amount);
                channel.sends.splice(at..at, left);
            }
        }
    }

    /// Bytes that wait for one end of a connection.
    fn left_for(&mut self, end: &Connected, bytes: u64) {
        let file = self.files.make(What::Socket(end.socket));
        let (input, _) = self.channels_of(file);
        let op = Op {
            process: end.place,
            ..Op::default()
        };
        if let Some(channel) = input.and_then(|input| self.channel(input))
            && channel.flow == Flow::Stream
        {
            channel.sends.extend(left(op, bytes));
        }
    }
}

fn left(op: Op, amount: u64) -> Option<Op> {
    (amount != 0).then_some(Op { amount, ..op })
}

fn name(end: &Connected) -> String {
    let text = |bytes: &[u8]| Address::parse(bytes).map(|address| address.to_string());
    match (text(&end.held.local), text(&end.held.peer)) {
        (Some(local), Some(peer)) => format!("{local}->{peer}"),
        _ => "socket".to_string(),
    }
}
