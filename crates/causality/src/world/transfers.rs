//! Calls that move bytes: into which channel, out of which, how many.

use protocol::record::tag;
use recording::Event;
use recording::sockaddr::Address;

use super::calls::{half, nr};
use super::objects::*;
use super::{Forward, Pending, World, plain, reached};
use crate::channel::ChannelKind;

const MSG_OOB: u64 = 1;
const MSG_PEEK: u64 = 2;
const EPIPE: i64 = -32;
const ECONNRESET: i64 = -104;
const EIO: i64 = -5;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
    /// From one descriptor to another.
    Through,
}

fn way(number: u64) -> Way {
    match number {
        nr::READ | nr::READV | nr::RECVFROM | nr::RECVMSG | nr::RECVMMSG | nr::PREADV2 => Way::In,
        nr::SPLICE | nr::TEE | nr::SENDFILE => Way::Through,
        _ => Way::Out,
    }
}

fn flags(event: &Event<'_>) -> u64 {
    match event.nr {
        nr::SENDTO | nr::RECVFROM | nr::SENDMMSG | nr::RECVMMSG => event.args[3],
        nr::SENDMSG | nr::RECVMSG => event.args[2],
        _ => 0,
    }
}

/// Whether a read was asked for nothing, so that nothing is no end.
fn asks_for_nothing(event: &Event<'_>) -> bool {
    matches!(event.nr, nr::READ | nr::RECVFROM) && event.args[2] == 0
}

impl World<'_> {
    /// A call that moves bytes is over.
    pub(super) fn transfer(&mut self, op: Op, event: &Event<'_>, file: u32, second: u32) {
        let result = event.result.unwrap_or(-1);
        let mut way = way(event.nr);
        let what = self.files.what(file);
        if event.nr == nr::VMSPLICE && matches!(what, What::Pipe { read: true, .. }) {
            way = Way::In;
        }
        // Reading and writing at a given place is for files.
        if matches!(event.nr, nr::PREADV2 | nr::PWRITEV2) && event.args[3] as i64 != -1 {
            return;
        }
        if flags(event) & MSG_OOB != 0 {
            return;
        }
        match what {
            What::Timer(timer) if way == Way::In => {
                if result > 0
                    && let Some(timer) = self.timers.get_mut(timer as usize)
                {
                    timer.reads.push(op);
                }
                return;
            }
            What::Signals if way == Way::In => {
                if result > 0 {
                    self.signals_read(op, event);
                }
                return;
            }
            What::File(_) | What::Other | What::Epoll(_) | What::Process(_)
                if way != Way::Through =>
            {
                return;
            }
            _ => {}
        }
        if way == Way::Out && event.nr == nr::SENDMSG {
            if op.first == op.last && result >= 0 {
                self.pass_rights(op, event, file);
            } else if result < 0 && event.blob(tag::CONTROL).is_some() {
                self.keep_rights(op);
            }
        }
        if way == Way::Out && result >= 0 {
            self.learn_local(op, event, file);
        }
        if let What::Socket(socket) = what
            && self.carries_datagrams(socket)
        {
            if result >= 0 {
                self.datagrams(op, event, file, socket, way);
            }
            return;
        }
        match way {
            Way::Out => self.sends(op, event, file),
            Way::In => self.receives(op, event, file),
            Way::Through => self.moves(op, event, file, second),
        }
    }

    fn carries_datagrams(&self, socket: u32) -> bool {
        self.sockets
            .get(socket as usize)
            .is_some_and(|socket| socket.connection.is_none() && socket.kind != 1)
    }

    /// The channel of something from outside, which is made when it is used.
    fn outside(&mut self, file: u32, op: Op, output: bool) -> Option<u32> {
        let What::Outside {
            input: known_in,
            output: known_out,
        } = self.files.what(file)
        else {
            return None;
        };
        let known = if output { known_out } else { known_in };
        if known != NONE {
            return Some(known);
        }
        let fd = self
            .table(op.process)
            .and_then(|table| table.used().find(|(_, slot)| slot.file == file))
            .map(|(fd, _)| fd);
        let name = match fd {
            Some(0) => "standard input".to_string(),
            Some(1) => "standard output".to_string(),
            Some(2) => "standard error".to_string(),
            Some(fd) => format!("descriptor {fd}"),
            None => "descriptor".to_string(),
        };
        let made = self.make_channel(ChannelKind::Outside, Flow::Stream, name);
        self.files.set(
            file,
            if output {
                What::Outside {
                    input: known_in,
                    output: made,
                }
            } else {
                What::Outside {
                    input: made,
                    output: known_out,
                }
            },
        );
        Some(made)
    }

    fn output(&mut self, file: u32, op: Op) -> Option<u32> {
        self.channels_of(file)
            .1
            .or_else(|| self.outside(file, op, true))
    }

    fn input(&mut self, file: u32, op: Op) -> Option<u32> {
        self.channels_of(file)
            .0
            .or_else(|| self.outside(file, op, false))
    }

    fn sends(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let result = event.result.unwrap_or(-1);
        let Some(number) = self.output(file, op) else {
            return;
        };
        let Some(channel) = self.channel(number) else {
            return;
        };
        if matches!(result, EPIPE | ECONNRESET | EIO) {
            channel.refused.push(op);
        }
        if result < 0 {
            return;
        }
        let mut op = Op {
            amount: result as u64,
            ..op
        };
        match channel.flow {
            Flow::Count(_) => {
                let value = event
                    .argument(1)
                    .and_then(|d| super::calls::word(d.bytes, 0));
                op.amount = value.unwrap_or(0);
                if op.amount != 0 {
                    channel.sends.push(op);
                }
            }
            Flow::Packets => {
                for (len, bytes) in messages_out(event) {
                    channel.sends.push(Op { amount: len, ..op });
                    channel.sent_keys.push(Key::new(len, bytes));
                }
            }
            Flow::Terminal(pty, down) => {
                let data = event.argument(1).map(|data| data.bytes).unwrap_or(&[]);
                let data = data.get(..result as usize).unwrap_or(data).to_vec();
                channel.sends.push(op);
                if let Some(pty) = self.terminals.get_mut(pty as usize)
                    && let Some(list) = pty.data.get_mut(if down { 0 } else { 2 })
                {
                    list.push(data);
                }
            }
            Flow::Stream => {
                if event.nr == nr::SENDMMSG {
                    op.amount = messages_out(event).iter().map(|(len, _)| len).sum();
                }
                if op.amount != 0 {
                    channel.sends.push(op);
                }
            }
        }
    }

    fn receives(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let result = event.result.unwrap_or(-1);
        let Some(number) = self.input(file, op) else {
            return;
        };
        let flags = flags(event);
        let peek = flags & MSG_PEEK != 0;
        if result >= 0 {
            for control in event.blobs().filter(|blob| blob.tag == tag::CONTROL) {
                self.take_rights(op, control.bytes, file, peek, flags);
            }
        }
        let Some(channel) = self.channel(number) else {
            return;
        };
        if matches!(result, ECONNRESET | EIO) {
            channel.eofs.push(op);
        }
        if result < 0 {
            return;
        }
        let mut op = Op {
            amount: result as u64,
            ..op
        };
        match channel.flow {
            Flow::Count(_) => {
                let value = event
                    .argument(1)
                    .and_then(|d| super::calls::word(d.bytes, 0));
                op.amount = value.unwrap_or(0);
                channel.recvs.push(op);
            }
            Flow::Packets => {
                for message in messages_in(event) {
                    let own = Op {
                        amount: message.len,
                        ..op
                    };
                    if peek {
                        channel.peeks.push(own);
                    } else {
                        channel.recvs.push(own);
                        channel.received_keys.push(message.key());
                    }
                }
            }
            Flow::Terminal(pty, down) => {
                if result == 0 {
                    channel.eofs.push(op);
                    return;
                }
                let data = event
                    .argument(1)
                    .map(|data| data.bytes)
                    .unwrap_or(&[])
                    .to_vec();
                channel.recvs.push(op);
                if let Some(pty) = self.terminals.get_mut(pty as usize)
                    && let Some(list) = pty.data.get_mut(if down { 1 } else { 3 })
                {
                    list.push(data);
                }
            }
            Flow::Stream => {
                if event.nr == nr::RECVMMSG {
                    op.amount = messages_in(event).iter().map(|m| m.len).sum();
                }
                if op.amount == 0 {
                    if !asks_for_nothing(event) {
                        channel.eofs.push(op);
                    }
                } else if peek {
                    channel.peeks.push(op);
                } else {
                    channel.recvs.push(op);
                }
            }
        }
    }

    /// `splice`, `tee` and `sendfile`.
    fn moves(&mut self, op: Op, event: &Event<'_>, file: u32, second: u32) {
        let result = event.result.unwrap_or(-1);
        let input = self.channels_of(file).0;
        let output = match self.channels_of(second).1 {
            Some(output) => Some(output),
            None => self.outside(second, op, true),
        };
        if matches!(result, EPIPE | ECONNRESET)
            && let Some(channel) = output.and_then(|channel| self.channel(channel))
        {
            channel.refused.push(op);
        }
        if result < 0 {
            return;
        }
        let op = Op {
            amount: result as u64,
            ..op
        };
        let peek = event.nr == nr::TEE;
        let mut from = None;
        if let Some(number) = input
            && let Some(channel) = self.channel(number)
        {
            if result == 0 {
                channel.eofs.push(op);
            } else if peek {
                channel.peeks.push(op);
                from = Some((number, channel.peeks.len() - 1));
            } else {
                channel.recvs.push(op);
                from = Some((number, channel.recvs.len() - 1));
            }
        }
        if result > 0
            && let Some(number) = output
            && let Some(channel) = self.channel(number)
        {
            channel.sends.push(op);
            let to = (number, channel.sends.len() - 1);
            if let Some(from) = from {
                self.forwards.push(Forward { from, peek, to });
            }
        }
    }

    fn datagrams(&mut self, op: Op, event: &Event<'_>, file: u32, socket: u32, way: Way) {
        let flags = flags(event);
        let peek = flags & MSG_PEEK != 0;
        match way {
            Way::Out => {
                let to = self.destination(op, event, socket);
                let Some(to) = to else { return };
                for (len, bytes) in messages_out(event) {
                    self.sent.push(Sent {
                        op: Op { amount: len, ..op },
                        key: Key::new(len, bytes),
                        from: socket,
                        to: to.clone(),
                    });
                }
            }
            Way::In => {
                for control in event.blobs().filter(|blob| blob.tag == tag::CONTROL) {
                    self.take_rights(op, control.bytes, file, peek, flags);
                }
                for message in messages_in(event) {
                    let source = message.source.and_then(Address::parse).map(plain);
                    let key = message.key();
                    if let Some(socket) = self.sockets.get_mut(socket as usize) {
                        socket.received.push(Received {
                            op: Op {
                                amount: message.len,
                                ..op
                            },
                            key,
                            source,
                            peek,
                        });
                    }
                }
            }
            Way::Through => {}
        }
    }

    fn destination(&mut self, op: Op, event: &Event<'_>, socket: u32) -> Option<Destination> {
        if let Some(pair) = self.sockets.get(socket as usize)?.pair {
            return Some(Destination::Socket(pair));
        }
        let named = match event.nr {
            nr::SENDTO => self.address_argument(op, event, 4),
            nr::SENDMSG => {
                let name = event.blob(tag::NAME).and_then(|n| Address::parse(n.bytes));
                match name.map(plain) {
                    Some(Address::UnixPath(path)) => {
                        Some(Address::UnixPath(self.absolute(op.process, None, &path)))
                    }
                    name => name,
                }
            }
            _ => None,
        };
        let address = match named {
            Some(address) => reached(address),
            None => self.sockets.get(socket as usize)?.peer.clone()?,
        };
        Some(Destination::Address(address))
    }

    /// A call that had begun when its process ended: it may have sent.
    pub(super) fn never_returned(&mut self, op: Op, pending: &Pending) {
        // Of a vector the length is not known.
        let asked = match pending.nr {
            nr::WRITE | nr::SENDTO => pending.args[2],
            nr::WRITEV | nr::SENDMSG | nr::PWRITEV2 => u64::from(u32::MAX),
            _ => return,
        };
        if asked == 0 || pending.file == NONE {
            return;
        }
        let Some(channel) = self
            .channels_of(pending.file)
            .1
            .and_then(|channel| self.channel(channel))
        else {
            return;
        };
        if channel.flow == Flow::Stream {
            channel.unsure.push(Op {
                amount: asked,
                ..op
            });
        }
    }
}

/// The messages that a call sent: length, and the bytes that were kept.
fn messages_out<'a>(event: &Event<'a>) -> Vec<(u64, &'a [u8])> {
    const HEADER: usize = 64;
    const LENGTH: usize = 56;
    let data = event.argument(1);
    if event.nr == nr::SENDMMSG {
        let headers = data.map(|data| data.bytes).unwrap_or(&[]);
        return headers
            .chunks_exact(HEADER)
            .filter_map(|header| Some((u64::from(half(header, LENGTH)?), &[][..])))
            .collect();
    }
    let len = event.result.unwrap_or(0).max(0) as u64;
    vec![(len, data.map(|data| data.bytes).unwrap_or(&[]))]
}

/// A message that was received.
struct MessageIn<'a> {
    len: u64,
    bytes: &'a [u8],
    source: Option<&'a [u8]>,
    /// The room was not enough for all of it, or just enough.
    cut: bool,
}

impl MessageIn<'_> {
    fn key(&self) -> Key {
        let mut key = Key::new(self.len, self.bytes);
        key.vague |= self.cut;
        key
    }
}

fn messages_in<'a>(event: &Event<'a>) -> Vec<MessageIn<'a>> {
    const MSG_TRUNC: u64 = 0x20;
    let result = event.result.unwrap_or(0).max(0) as u64;
    let data = event.argument(1).map(|data| data.bytes).unwrap_or(&[]);
    match event.nr {
        nr::RECVMMSG => {
            let mut rest = data;
            let mut found = Vec::new();
            while let (Some(len), Some(name), Some(control), Some(flags)) =
                (half(rest, 0), half(rest, 4), half(rest, 8), half(rest, 12))
            {
                let name_end = 16 + name as usize;
                let data_at = name_end + control as usize;
                let end = data_at + len as usize;
                let (Some(source), Some(bytes)) = (rest.get(16..name_end), rest.get(data_at..end))
                else {
                    break;
                };
                found.push(MessageIn {
                    len: len.into(),
                    bytes,
                    source: (!source.is_empty()).then_some(source),
                    cut: u64::from(flags) & MSG_TRUNC != 0,
                });
                rest = rest.get(end..).unwrap_or(&[]);
            }
            found
        }
        nr::RECVMSG => {
            let header = event
                .blob(tag::HEADER)
                .map(|blob| blob.bytes)
                .unwrap_or(&[]);
            let cut = super::calls::word(header, 16).unwrap_or(0) & MSG_TRUNC != 0;
            vec![MessageIn {
                len: result,
                bytes: data,
                source: event.blob(tag::NAME).map(|blob| blob.bytes),
                cut: cut && (data.len() as u64) == result,
            }]
        }
        _ => {
            let room = event.args[2];
            let source = (event.nr == nr::RECVFROM)
                .then(|| event.argument(4).map(|data| data.bytes))
                .flatten();
            vec![MessageIn {
                len: result,
                bytes: data,
                source,
                cut: matches!(event.nr, nr::READ | nr::RECVFROM)
                    && result == room
                    && flags(event) & MSG_TRUNC == 0,
            }]
        }
    }
}
