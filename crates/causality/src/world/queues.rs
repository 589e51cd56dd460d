//! Message queues, System V's and POSIX's, and System V semaphores: channels
//! that have a name of the kernel's own instead of a descriptor, or a path that
//! is in no directory.

use recording::Event;

use super::World;
use super::calls::{self, nr, text};
use super::objects::*;
use crate::channel::ChannelKind;

const IPC_RMID: u64 = 0;
const IPC_NOWAIT: u64 = 0o4000;
const SETVAL: u64 = 16;
const SETALL: u64 = 17;

/// A System V object: its kind, its id, and which semaphore of a set.
pub(super) type Ipc = (IpcKind, u32, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum IpcKind {
    Queue,
    Semaphore,
}

impl World<'_> {
    /// The channel of a System V object, which anybody may use who knows its
    /// id.
    fn ipc(&mut self, kind: IpcKind, id: u64, number: u16) -> u32 {
        let key = (kind, id as u32, number);
        if let Some(known) = self.ipcs.get(&key) {
            return *known;
        }
        let made = match kind {
            IpcKind::Queue => {
                let name = format!("queue {id}");
                self.make_channel(ChannelKind::Queue, Flow::Packets, name)
            }
            IpcKind::Semaphore => {
                let name = format!("semaphore {number} of set {id}");
                self.make_channel(ChannelKind::Semaphore, Flow::Count(true), name)
            }
        };
        self.ipcs.insert(key, made);
        made
    }

    /// What a call about such an object waits for.
    pub(super) fn ipc_of(&mut self, pending: &super::Pending) -> Option<u32> {
        let id = pending.args[0];
        match pending.nr {
            nr::MSGSND | nr::MSGRCV => Some(self.ipc(IpcKind::Queue, id, 0)),
            nr::SEMOP | nr::SEMTIMEDOP => pending
                .semaphore
                .map(|number| self.ipc(IpcKind::Semaphore, id, number)),
            _ => None,
        }
    }

    pub(super) fn queue_sent(&mut self, op: Op, event: &Event<'_>) {
        let Some(data) = event.argument(1) else {
            return;
        };
        let number = self.ipc(IpcKind::Queue, event.args[0], 0);
        if let Some(channel) = self.channel(number) {
            channel.sends.push(Op {
                amount: event.args[2],
                ..op
            });
            channel.sent_keys.push(Key::new(data.len, data.bytes));
        }
    }

    pub(super) fn queue_received(&mut self, op: Op, event: &Event<'_>) {
        const MSG_NOERROR: u64 = 0o10000;
        const MSG_COPY: u64 = 0o40000;
        let Some(data) = event.argument(1) else {
            return;
        };
        let number = self.ipc(IpcKind::Queue, event.args[0], 0);
        let result = event.result.unwrap_or(0).max(0) as u64;
        let mut key = Key::new(data.len, data.bytes);
        // It may have been longer.
        key.vague |= event.args[4] & MSG_NOERROR != 0 && result == event.args[2];
        let own = Op {
            amount: result,
            ..op
        };
        if let Some(channel) = self.channel(number) {
            if event.args[4] & MSG_COPY != 0 {
                channel.peeks.push(own);
            } else {
                channel.recvs.push(own);
                channel.received_keys.push(key);
            }
        }
    }

    pub(super) fn ipc_removed(&mut self, kind: IpcKind, event: &Event<'_>) {
        let id = event.args[0] as u32;
        self.vague_sets.remove(&id);
        self.ipcs.retain(|key, _| (key.0, key.1) != (kind, id));
    }

    pub(super) fn queue_control(&mut self, event: &Event<'_>) {
        if event.args[1] & 0xff == IPC_RMID {
            self.ipc_removed(IpcKind::Queue, event);
        }
    }

    pub(super) fn semaphore_control(&mut self, op: Op, event: &Event<'_>) {
        match event.args[2] & 0xff {
            IPC_RMID => self.ipc_removed(IpcKind::Semaphore, event),
            SETVAL => self.semaphore_set(op, event.args[0], event.args[1] as u16, event.args[3]),
            SETALL => {
                let values = event.before(3).or(event.argument(3));
                let values = values.map(|data| data.bytes).unwrap_or(&[]);
                if values.is_empty() {
                    // Which value each has from here on is not known.
                    self.vague_sets.insert(event.args[0] as u32);
                }
                for (value, number) in values.chunks_exact(2).zip(0u16..) {
                    let value = calls::field(value, 0).map_or(0, u16::from_le_bytes);
                    self.semaphore_set(op, event.args[0], number, value.into());
                }
            }
            _ => {}
        }
    }

    /// A value that is set is there for those who come after.
    fn semaphore_set(&mut self, op: Op, id: u64, number: u16, value: u64) {
        let channel = self.ipc(IpcKind::Semaphore, id, number);
        if let Some(channel) = self.channel(channel) {
            let amount = u64::from(value as u32);
            channel.resets.push(channel.sends.len());
            channel.sends.push(Op { amount, ..op });
        }
    }

    pub(super) fn semaphore_done(&mut self, op: Op, event: &Event<'_>) {
        if self.vague_sets.contains(&(event.args[0] as u32)) {
            return;
        }
        let data = event.argument(1).map(|data| data.bytes).unwrap_or(&[]);
        for (number, amount, _) in operations(data) {
            let channel = self.ipc(IpcKind::Semaphore, event.args[0], number);
            let Some(channel) = self.channel(channel) else {
                continue;
            };
            let own = Op {
                amount: amount.unsigned_abs().into(),
                ..op
            };
            match amount {
                1.. => channel.sends.push(own),
                0 => {}
                _ => channel.recvs.push(own),
            }
        }
    }

    // POSIX queues: found by name, used by descriptor.

    pub(super) fn posix_queue_opened(&mut self, op: Op, event: &Event<'_>) {
        let Some(name) = event.argument(0).map(|data| text(data.bytes).to_vec()) else {
            return;
        };
        let flags = event.args[1];
        let channel = match self.posix_queues.get(&name) {
            Some(known) => *known,
            None => {
                let shown = format!("/{}", String::from_utf8_lossy(&name));
                let made = self.make_channel(ChannelKind::Queue, Flow::Packets, shown);
                self.posix_queues.insert(name, made);
                made
            }
        };
        let (read, write) = match flags & 3 {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        if let Some(channel) = self.channel(channel) {
            channel.readers += u32::from(read);
            channel.writers += u32::from(write);
        }
        let what = What::Queue {
            channel,
            read,
            write,
        };
        self.make(op, event.result.unwrap_or(-1), what, flags & 0x80000 != 0);
    }

    /// Who has it open keeps it; who opens that name again gets another.
    pub(super) fn posix_queue_unlinked(&mut self, event: &Event<'_>) {
        if let Some(name) = event.argument(0) {
            self.posix_queues.remove(text(name.bytes));
        }
    }

    pub(super) fn posix_queue_used(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let What::Queue { channel, .. } = self.files.what(file) else {
            return;
        };
        let Some(data) = event.argument(1) else {
            return;
        };
        let Some(channel) = self.channel(channel) else {
            return;
        };
        let key = Key::new(data.len, data.bytes);
        if event.nr == nr::MQ_TIMEDSEND {
            channel.sends.push(Op {
                amount: event.args[2],
                ..op
            });
            channel.sent_keys.push(key);
        } else {
            let amount = event.result.unwrap_or(0).max(0) as u64;
            channel.recvs.push(Op { amount, ..op });
            channel.received_keys.push(key);
        }
    }
}

/// The operations of a `semop`: which, how much, flags.
fn operations(bytes: &[u8]) -> impl Iterator<Item = (u16, i16, u16)> + '_ {
    bytes.chunks_exact(6).filter_map(|entry| {
        let number = calls::field(entry, 0).map(u16::from_le_bytes)?;
        let amount = calls::field(entry, 2).map(i16::from_le_bytes)?;
        let flags = calls::field(entry, 4).map(u16::from_le_bytes)?;
        Some((number, amount, flags))
    })
}

/// The semaphore that a `semop` may have to wait for.
pub(super) fn waits_for_semaphore(event: &Event<'_>) -> Option<u16> {
    if !matches!(event.nr, nr::SEMOP | nr::SEMTIMEDOP) {
        return None;
    }
    let data = event.argument(1)?;
    operations(data.bytes)
        .find(|(_, amount, flags)| *amount < 0 && u64::from(*flags) & IPC_NOWAIT == 0)
        .map(|(number, ..)| number)
}
