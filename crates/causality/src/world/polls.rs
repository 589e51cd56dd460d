//! Waiting for several descriptors at once: `poll`, `select`, `epoll`.
//!
//! That one of them was ready is an effect of what made it so. Here it is only
//! noted with the object that was ready; what would have been taken next from
//! that object made it so, and what that was is found out when all is known
//! (see [`crate::matching::ready`]).

use std::collections::{BTreeMap, HashMap};

use recording::Event;

use super::World;
use super::calls::{half, nr, word};
use super::descriptors::CLOEXEC;
use super::objects::*;
use crate::link::Kind;

/// Something can be had: data, a connection, the end.
const IN: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x2000;
const OUT: u32 = 0x4 | 0x100 | 0x200;
const ERROR: u32 = 0x8;

/// One descriptor that an epoll instance watches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub file: u32,
    pub bits: u32,
    /// What the program calls it.
    data: u64,
}

/// An epoll instance.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    /// By descriptor.
    watched: BTreeMap<i32, Watch>,
    /// The descriptor that each name stands for. The kernel tells only names.
    named: HashMap<u64, i32>,
}

impl Epoll {
    pub fn watched(&self) -> impl Iterator<Item = Watch> + '_ {
        self.watched.values().copied()
    }

    fn put(&mut self, fd: i32, watch: Watch) {
        self.remove(fd);
        self.watched.insert(fd, watch);
        self.named.insert(watch.data, fd);
    }

    fn remove(&mut self, fd: i32) {
        if let Some(old) = self.watched.remove(&fd)
            && self.named.get(&old.data) == Some(&fd)
        {
            self.named.remove(&old.data);
        }
    }

    fn called(&self, data: u64) -> Option<Watch> {
        self.watched.get(self.named.get(&data)?).copied()
    }
}

/// Whether a call waits for several descriptors that its arguments name.
pub(super) fn names_descriptors(number: u64) -> bool {
    matches!(number, nr::POLL | nr::PPOLL | nr::SELECT | nr::PSELECT6)
}

impl World<'_> {
    pub(super) fn make_epoll(&mut self, op: Op, fd: i64, flags: u64) {
        self.epolls.push(Epoll::default());
        let what = What::Epoll((self.epolls.len() - 1) as u32);
        self.make(op, fd, what, flags & CLOEXEC != 0);
    }

    pub(super) fn epoll_ctl(&mut self, op: Op, event: &Event<'_>, file: u32) {
        const ADD: u64 = 1;
        const DELETE: u64 = 2;
        let What::Epoll(epoll) = self.files.what(file) else {
            return;
        };
        let fd = event.args[2] as u32 as i32;
        let watched = self.file_of(op.process, event.args[2]);
        let given = event.argument(3).map(|data| data.bytes).unwrap_or(&[]);
        let (bits, data) = (half(given, 0), word(given, 4));
        let Some(epoll) = self.epolls.get_mut(epoll as usize) else {
            return;
        };
        match event.args[1] {
            DELETE => epoll.remove(fd),
            how => {
                let known = epoll.watched.get(&fd).map(|watch| watch.file);
                let watch = Watch {
                    file: known.filter(|_| how != ADD).unwrap_or(watched),
                    bits: bits.unwrap_or(IN),
                    data: data.unwrap_or(fd as u64),
                };
                epoll.put(fd, watch);
            }
        }
    }

    /// What a thread that begins to wait waits for.
    pub(super) fn begins_to_watch(&mut self, op: Op, event: &Event<'_>) {
        let wanted = match event.nr {
            nr::POLL | nr::PPOLL => event
                .before(0)
                .map(|data| polled(data.bytes, 4))
                .unwrap_or_default(),
            _ => {
                let set = |argument: usize| event.before(argument).map(|data| data.bytes);
                selected(set(1), set(2))
            }
        };
        let list: Vec<(u32, u32)> = wanted
            .into_iter()
            .map(|(fd, bits)| (self.file_of(op.process, fd as u64), bits))
            .collect();
        if let Some(thread) = self.thread_mut(op.process, op.thread) {
            thread.watching = list;
        }
    }

    /// A wait for several descriptors is over: some were ready.
    pub(super) fn watched(&mut self, op: Op, event: &Event<'_>, file: u32) {
        match event.nr {
            nr::POLL | nr::PPOLL => {
                let Some(data) = event.argument(0) else {
                    return;
                };
                for (fd, bits) in polled(data.bytes, 6) {
                    let file = self.file_of(op.process, fd as u64);
                    self.is_ready(op, file, bits);
                }
            }
            nr::SELECT | nr::PSELECT6 => {
                let set = |argument: usize| event.argument(argument).map(|data| data.bytes);
                for (fd, bits) in selected(set(1), set(2)) {
                    let file = self.file_of(op.process, fd as u64);
                    self.is_ready(op, file, bits);
                }
            }
            _ => {
                const SIZE: usize = 12;
                let What::Epoll(epoll) = self.files.what(file) else {
                    return;
                };
                let data = event.argument(1).map(|data| data.bytes).unwrap_or(&[]);
                for entry in data.chunks_exact(SIZE) {
                    let (Some(bits), Some(name)) = (half(entry, 0), word(entry, 4)) else {
                        break;
                    };
                    let watch = self
                        .epolls
                        .get(epoll as usize)
                        .and_then(|epoll| epoll.called(name));
                    if let Some(watch) = watch {
                        self.is_ready(op, watch.file, bits);
                    }
                }
            }
        }
    }

    fn is_ready(&mut self, op: Op, file: u32, bits: u32) {
        let what = self.files.what(file);
        if bits & (OUT | ERROR) != 0
            && let What::Socket(socket) = what
            && let Some(socket) = self.sockets.get_mut(socket as usize)
            && let Some(listens) = socket.asked_for.take()
            && bits & ERROR == 0
        {
            self.link(Kind::Listen, (listens.process, listens.first), &op);
        }
        let (input, output) = self.channels_of(file);
        if bits & ERROR != 0
            && let (None, Some(channel)) = (input, output)
            && let Some(channel) = self.channel(channel)
        {
            channel.broken.push(op);
        }
        if bits & IN == 0 {
            return;
        }
        if let Some(channel) = input.and_then(|channel| self.channel(channel)) {
            channel.ready.push(op);
            return;
        }
        match what {
            What::Socket(number) => {
                let listener = self.sockets.get(number as usize).and_then(|s| s.listener);
                if let Some(listener) = listener.and_then(|l| self.listeners.get_mut(l as usize)) {
                    listener.ready.push(op);
                } else if let Some(socket) = self.sockets.get_mut(number as usize) {
                    socket.ready.push(op);
                }
            }
            What::Timer(timer) => {
                if let Some(timer) = self.timers.get_mut(timer as usize) {
                    timer.ready.push(op);
                }
            }
            What::Signals => self.signals_ready.push(op),
            What::Process(process) => self.ends_seen.push((op, process)),
            _ => {}
        }
    }
}

/// Descriptors in an array for `poll` with the bits at `at` that are set.
fn polled(bytes: &[u8], at: usize) -> Vec<(i32, u32)> {
    bytes
        .chunks_exact(8)
        .filter_map(|entry| {
            let fd = half(entry, 0)? as i32;
            let bits = super::calls::field(entry, at).map(u16::from_le_bytes)?;
            (fd >= 0 && bits != 0).then_some((fd, bits.into()))
        })
        .collect()
}

/// Descriptors in the sets of `select`.
fn selected(read: Option<&[u8]>, write: Option<&[u8]>) -> Vec<(i32, u32)> {
    let mut found = Vec::new();
    for (set, bits) in [(read, 0x1), (write, 0x4)] {
        for (byte, at) in set.unwrap_or(&[]).iter().zip(0i32..) {
            let set = (0..8).filter(|bit| byte & (1u8 << bit) != 0);
            found.extend(set.map(|bit| (at * 8 + bit, bits)));
        }
    }
    found
}
