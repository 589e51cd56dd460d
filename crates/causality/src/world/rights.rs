//! Descriptors that are sent over sockets.

use protocol::record::tag;
use recording::Event;

use super::World;
use super::calls::{self, nr};
use super::objects::*;

impl World<'_> {
    /// Where descriptors that are sent from here wait to be received.
    fn mailbox(&mut self, op: Op, event: &Event<'_>, file: u32) -> Option<u32> {
        let (number, socket) = self.socket(file)?;
        if let Some(pair) = socket.pair {
            return Some(pair);
        }
        if let Some((connection, side)) = socket.connection {
            let other = |s: &Socket| s.connection == Some((connection, 1 - side));
            // The other side may not have been accepted yet: then they wait
            // here, and are looked for here.
            let at = self.sockets.iter().rposition(other);
            return Some(at.map_or(number, |at| at as u32));
        }
        let to = match event.blob(tag::NAME) {
            Some(name) => self.address(op, name.bytes),
            None => self.socket(file).and_then(|(_, s)| s.peer.clone()),
        }?;
        let own = self.sockets.get(self.first_socket..)?;
        let at = own
            .iter()
            .rposition(|socket| socket.local.as_ref() == Some(&to))?;
        Some((self.first_socket + at) as u32)
    }

    /// Descriptors leave with a message.
    pub(super) fn pass_rights(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let Some(control) = event.blob(tag::CONTROL) else {
            return;
        };
        let fds = calls::rights(control.bytes);
        if fds.is_empty() {
            return;
        }
        let Some(to) = self.mailbox(op, event, file) else {
            return;
        };
        let files: Vec<u32> = fds
            .iter()
            .map(|fd| self.file_of(op.process, *fd as u64))
            .collect();
        for file in &files {
            self.files.carry(*file);
        }
        if let Some(socket) = self.sockets.get_mut(to as usize) {
            socket.rights.push(Rights {
                process: op.process,
                first: op.first,
                files,
            });
        }
    }

    /// The message was not sent after all.
    pub(super) fn keep_rights(&mut self, op: Op) {
        let own = |r: &Rights| (r.process, r.first) == (op.process, op.first);
        let mut back = Vec::new();
        for socket in &mut self.sockets {
            if let Some(at) = socket.rights.iter().position(own) {
                back = socket.rights.remove(at).files;
                break;
            }
        }
        for file in back {
            if self.files.arrive(file) {
                self.closed(op, file);
            }
        }
    }

    /// Whether a receive brought descriptors, which must have been sent.
    pub fn needs_rights(event: &Event<'_>) -> bool {
        event.is_done(nr::RECVMSG)
            && event.result.is_some_and(|result| result >= 0)
            && event
                .blobs()
                .any(|blob| blob.tag == tag::CONTROL && !calls::rights(blob.bytes).is_empty())
    }

    /// Descriptors arrive with a message.
    pub(super) fn take_rights(
        &mut self,
        op: Op,
        control: &[u8],
        file: u32,
        peek: bool,
        flags: u64,
    ) {
        const CMSG_CLOEXEC: u64 = 0x4000_0000;
        let fds = calls::rights(control);
        let Some(first) = fds.len().checked_sub(1).and_then(|_| self.socket(file)) else {
            return;
        };
        let (number, connection) = (first.0, first.1.connection);
        let fits = |rights: &Rights| rights.files.len() == fds.len();
        let mut home = number;
        let own = self.sockets.get(number as usize);
        if own.is_none_or(|socket| !socket.rights.iter().any(fits))
            && let Some((connection, side)) = connection
        {
            // Sent before this side was accepted.
            let other = |s: &Socket| s.connection == Some((connection, 1 - side));
            if let Some(at) = self.sockets.iter().rposition(other) {
                home = at as u32;
            }
        }
        let found = self.sockets.get_mut(home as usize).and_then(|socket| {
            let at = socket.rights.iter().position(fits)?;
            if peek {
                socket.rights.get(at).cloned()
            } else {
                Some(socket.rights.remove(at))
            }
        });
        let cloexec = flags & CMSG_CLOEXEC != 0;
        for (i, fd) in fds.iter().enumerate() {
            let file = match found.as_ref().and_then(|rights| rights.files.get(i)) {
                Some(file) => *file,
                None => self.files.make(What::Outside {
                    input: NONE,
                    output: NONE,
                }),
            };
            self.put(op, i64::from(*fd), file, cloexec);
            if found.is_some() && !peek {
                self.files.arrive(file);
            }
        }
    }
}
