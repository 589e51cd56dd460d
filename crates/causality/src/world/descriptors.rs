//! Descriptors and the open files that they lead to: made, copied, closed.

use protocol::record::tag;
use recording::Event;

use super::World;
use super::calls;
use super::objects::*;
use super::tables::{Slot, Table};
use crate::channel::ChannelKind;

/// In the flags of calls that make descriptors.
pub(super) const CLOEXEC: u64 = 0x80000;

impl World<'_> {
    /// The channels an open file receives from and sends to.
    pub fn channels_of(&mut self, file: u32) -> (Option<u32>, Option<u32>) {
        let some = |channel: u32| (channel != NONE).then_some(channel);
        match self.files.what(file) {
            What::Outside { input, output } => (some(input), some(output)),
            What::Pipe {
                channel,
                read,
                write,
            }
            | What::Queue {
                channel,
                read,
                write,
            } => (read.then_some(channel), write.then_some(channel)),
            What::Socket(socket) => {
                let connected = self.sockets.get(socket as usize).and_then(|s| s.connection);
                match connected
                    .and_then(|(c, side)| Some((self.connections.get(c as usize)?.channels, side)))
                {
                    Some(([out, back], 0)) => (Some(back), Some(out)),
                    Some(([out, back], _)) => (Some(out), Some(back)),
                    None => (None, None),
                }
            }
            What::Terminal { pty, master } => {
                match self.terminals.get(pty as usize).map(|pty| pty.channels) {
                    Some([down, up]) if master => (Some(up), Some(down)),
                    Some([down, up]) => (Some(down), Some(up)),
                    None => (None, None),
                }
            }
            What::Counter(channel) => (Some(channel), Some(channel)),
            _ => (None, None),
        }
    }

    pub(super) fn table(&mut self, place: u32) -> Option<&mut Table> {
        let at = self.processes.get(place as usize)?.table;
        if at == usize::MAX {
            self.tables.push(Table::default());
            let new = self.tables.len() - 1;
            self.processes.get_mut(place as usize)?.table = new;
            return self.tables.get_mut(new);
        }
        self.tables.get_mut(at)
    }

    /// What a descriptor leads to. One that nobody has seen made came from
    /// outside.
    pub(super) fn file_of(&mut self, place: u32, fd: u64) -> u32 {
        let fd = fd as u32 as i32;
        if let Some(slot) = self.table(place).and_then(|table| table.get(fd)) {
            return slot.file;
        }
        if fd < 0 {
            return NONE;
        }
        let file = self.files.make(What::Outside {
            input: NONE,
            output: NONE,
        });
        let number = self.proc(place).map_or(0, |process| process.last);
        let op = Op {
            process: place,
            last: number,
            ..Op::default()
        };
        self.put(op, i64::from(fd), file, false);
        file
    }

    /// A descriptor of the operation's process leads to `file` from now on.
    pub(super) fn put(&mut self, op: Op, fd: i64, file: u32, cloexec: bool) {
        let Ok(fd) = i32::try_from(fd) else { return };
        if fd < 0 {
            return;
        }
        self.files.hold(file, op.process, op.last);
        let slot = Slot { file, cloexec };
        let old = self.table(op.process).and_then(|table| table.put(fd, slot));
        if let Some(old) = old {
            self.let_go(op, old.file);
        }
    }

    pub(super) fn let_go(&mut self, op: Op, file: u32) {
        if self.files.release(file, op.process, op.last) {
            self.closed(op, file);
        }
        self.posix_unlock(op, file);
    }

    /// The last descriptor of an open file is gone.
    pub(super) fn closed(&mut self, op: Op, file: u32) {
        let what = self.files.what(file);
        let (input, output) = self.channels_of(file);
        if let Some(channel) = output.and_then(|channel| self.channel(channel)) {
            channel.writers = channel.writers.saturating_sub(1);
            if channel.writers == 0 && !channel.shut_out {
                channel.ended.push(op);
            }
        }
        if let Some(channel) = input.and_then(|channel| self.channel(channel)) {
            channel.readers = channel.readers.saturating_sub(1);
            if channel.readers == 0 && !channel.shut_in {
                channel.abandoned.push(op);
            }
        }
        match what {
            What::Pipe { channel, .. } => {
                let unused = self
                    .channel(channel)
                    .is_some_and(|c| c.readers == 0 && c.writers == 0);
                let fifo = self.fifos.values_mut().find(|fifo| fifo.0 == channel);
                if let Some(fifo) = fifo.filter(|_| unused) {
                    fifo.1 = Some(op.hi);
                }
            }
            What::Socket(socket) => self.socket_closed(op, socket),
            What::File(path) => self.unlock_all(op, path, LockOwner::File(file)),
            _ => {}
        }
    }

    pub(super) fn make_pipe(&mut self, name: &str) -> u32 {
        self.make_channel(ChannelKind::Pipe, Flow::Stream, name.to_string())
    }

    /// An open file for a pipe's end or ends.
    pub(super) fn open_pipe(&mut self, channel: u32, read: bool, write: bool) -> u32 {
        if let Some(channel) = self.channel(channel) {
            channel.readers += u32::from(read);
            channel.writers += u32::from(write);
        }
        self.files.make(What::Pipe {
            channel,
            read,
            write,
        })
    }

    pub(super) fn path(&mut self, path: Vec<u8>) -> u32 {
        if let Some(known) = self.paths.get(&path) {
            return *known;
        }
        let number = self.path_names.len() as u32;
        self.path_names.push(path.clone());
        self.paths.insert(path, number);
        number
    }

    pub(super) fn absolute(&mut self, place: u32, dir: Option<u64>, path: &[u8]) -> Vec<u8> {
        const AT_FDCWD: i32 = -100;
        if path.starts_with(b"/") {
            return tidy(path);
        }
        let base = match dir.map(|fd| fd as u32 as i32) {
            None | Some(AT_FDCWD) => self.proc(place).map(|p| p.cwd.clone()),
            Some(fd) => {
                let slot = self.table(place).and_then(|table| table.get(fd));
                match slot.map(|slot| self.files.what(slot.file)) {
                    Some(What::File(path)) => self.path_names.get(path as usize).cloned(),
                    _ => None,
                }
            }
        };
        let mut whole = base.unwrap_or_default();
        whole.push(b'/');
        whole.extend_from_slice(path);
        tidy(&whole)
    }

    pub(super) fn make(&mut self, op: Op, fd: i64, what: What, cloexec: bool) {
        let file = self.files.make(what);
        self.put(op, fd, file, cloexec);
    }

    pub(super) fn make_counter(&mut self, op: Op, fd: i64, count: u64, flags: u64) {
        const SEMAPHORE: u64 = 1;
        let flow = Flow::Count(flags & SEMAPHORE != 0);
        let channel = self.make_channel(ChannelKind::Counter, flow, "eventfd".to_string());
        let count = u64::from(count as u32);
        if let Some(channel) = self.channel(channel) {
            channel.readers = 1;
            channel.writers = 1;
            if count != 0 {
                channel.sends.push(Op {
                    amount: count,
                    ..op
                });
            }
        }
        self.make(op, fd, What::Counter(channel), flags & CLOEXEC != 0);
    }

    /// A pipe, with a descriptor for each of its ends.
    pub(super) fn pipe_made(&mut self, op: Op, event: &Event<'_>, flags: u64) {
        let Some((read, write)) = calls::pair(event, 0) else {
            return;
        };
        let cloexec = flags & CLOEXEC != 0;
        let channel = self.make_pipe("pipe");
        let file = self.open_pipe(channel, true, false);
        self.put(op, read, file, cloexec);
        let file = self.open_pipe(channel, false, true);
        self.put(op, write, file, cloexec);
    }

    pub(super) fn make_timer(&mut self, op: Op, fd: i64, flags: u64) {
        self.timers.push(Timer::default());
        let what = What::Timer((self.timers.len() - 1) as u32);
        self.make(op, fd, what, flags & CLOEXEC != 0);
    }

    pub(super) fn timer_set(&mut self, op: Op, file: u32) {
        if let What::Timer(timer) = self.files.what(file)
            && let Some(timer) = self.timers.get_mut(timer as usize)
        {
            timer.sets.push(op);
        }
    }

    /// A descriptor to read signals from, unless it is one that was there
    /// before and is for others now.
    pub(super) fn make_signals(&mut self, op: Op, fd: i64, old: u64, flags: u64) {
        if old as u32 as i32 == -1 {
            self.make(op, fd, What::Signals, flags & CLOEXEC != 0);
        }
    }

    pub(super) fn make_pidfd(&mut self, op: Op, fd: i64, pid: u64) {
        let process = self.process_with(pid as u32, op.hi);
        let what = process.map_or(What::Other, What::Process);
        self.make(op, fd, what, true);
    }

    /// A file in memory. No two are the same, whatever they are called.
    pub(super) fn make_memfd(&mut self, op: Op, fd: i64, flags: u64) {
        const MFD_CLOEXEC: u64 = 1;
        let name = format!("memfd:{}:{}", op.process, op.last).into_bytes();
        let path = self.path(name);
        self.make(op, fd, What::File(path), flags & MFD_CLOEXEC != 0);
    }

    /// The working directory is one of this name from now on.
    pub(super) fn directory_named(&mut self, op: Op, event: &Event<'_>) {
        if let Some(path) = event.argument(0) {
            let path = self.absolute(op.process, None, calls::text(path.bytes));
            if let Some(process) = self.proc_mut(op.process) {
                process.cwd = path;
            }
        }
    }

    /// The working directory is the one that a descriptor led to.
    pub(super) fn directory_opened(&mut self, op: Op, file: u32) {
        if let What::File(path) = self.files.what(file)
            && let Some(path) = self.path_names.get(path as usize).cloned()
            && let Some(process) = self.proc_mut(op.process)
        {
            process.cwd = path;
        }
    }

    pub(super) fn duplicate(&mut self, op: Op, file: u32, to: i64, cloexec: bool) {
        if file != NONE {
            self.put(op, to, file, cloexec);
        }
    }

    pub(super) fn close(&mut self, op: Op, fd: u64) {
        let fd = fd as u32 as i32;
        let old = self.table(op.process).and_then(|table| table.take(fd));
        if let Some(old) = old {
            self.let_go(op, old.file);
        }
    }

    pub(super) fn close_range(&mut self, op: Op, args: &[u64; 6]) {
        const MARK: u64 = 4;
        let range = args[0] as u32..=args[1] as u32;
        let Some(table) = self.table(op.process) else {
            return;
        };
        let inside: Vec<i32> = table
            .used()
            .map(|(fd, _)| fd)
            .filter(|fd| range.contains(&(*fd as u32)))
            .collect();
        for fd in inside {
            if args[2] & MARK == 0 {
                self.close(op, fd as u64);
            } else if let Some(slot) = self.table(op.process).and_then(|t| t.slot_mut(fd)) {
                slot.cloexec = true;
            }
        }
    }

    pub(super) fn fcntl(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let (args, result) = (&event.args, event.result.unwrap_or(-1));
        match args[1] as u32 {
            0 if result >= 0 => self.duplicate(op, file, result, false),
            1030 if result >= 0 => self.duplicate(op, file, result, true),
            2 if result >= 0 => self.mark(op.process, args[0], args[2] & 1 != 0),
            6 | 7 | 37 | 38 if result >= 0 => self.fcntl_lock(op, event, file),
            _ => {}
        }
    }

    pub(super) fn mark(&mut self, place: u32, fd: u64, cloexec: bool) {
        let slot = self
            .table(place)
            .and_then(|table| table.slot_mut(fd as u32 as i32));
        if let Some(slot) = slot {
            slot.cloexec = cloexec;
        }
    }

    pub(super) fn opened(
        &mut self,
        op: Op,
        event: &Event<'_>,
        dir: Option<u64>,
        arg: usize,
        flags: u64,
    ) {
        const FIFO: u64 = 0o010000;
        const CHAR: u64 = 0o020000;
        let cloexec = flags & CLOEXEC != 0;
        let result = event.result.unwrap_or(-1);
        let path = match (event.blob(tag::PATH), event.argument(arg)) {
            (Some(path), _) => calls::text(path.bytes).to_vec(),
            (None, Some(path)) => self.absolute(op.process, dir, calls::text(path.bytes)),
            (None, None) => Vec::new(),
        };
        let identity = event.blob(tag::IDENTITY).map(|blob| blob.bytes);
        let word = |at| {
            identity
                .and_then(|bytes| calls::word(bytes, at))
                .unwrap_or(0)
        };
        let (read, write) = match flags & 3 {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        if let Some(fd) = own_descriptor(&path) {
            let again = self.file_of(op.process, fd);
            let what = self.files.what(again);
            let file = match what {
                What::Pipe { channel, .. } => self.open_pipe(channel, read, write),
                What::Terminal { pty, master: false } => self.open_terminal(pty),
                _ => return self.put(op, result, again, cloexec),
            };
            return self.put(op, result, file, cloexec);
        }
        let file = match word(16) & 0o170000 {
            FIFO => {
                let key = (word(0), word(8));
                // One that nobody has open begins anew; but whoever is about
                // to open it when the last one closes it finds what is in it.
                let known = self.fifos.get(&key).copied();
                let channel = match known {
                    Some((channel, closed)) if closed.is_none_or(|at| op.lo <= at) => channel,
                    _ => {
                        let name = String::from_utf8_lossy(&path).into_owned();
                        self.make_pipe(&name)
                    }
                };
                self.fifos.insert(key, (channel, None));
                self.open_pipe(channel, read, write)
            }
            CHAR => match self.opened_terminal(op, &path, flags) {
                Some(file) => file,
                None => self.files.make(What::Other),
            },
            _ => {
                let path = self.path(path);
                self.files.make(What::File(path))
            }
        };
        self.put(op, result, file, cloexec);
    }
}

/// The descriptor that a path stands for.
fn own_descriptor(path: &[u8]) -> Option<u64> {
    match path {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    let digits = path
        .strip_prefix(b"/dev/fd/")
        .or_else(|| path.strip_prefix(b"/proc/self/fd/"))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Without `.` and doubled slashes. (`..` stays: it may lead through a link.)
fn tidy(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for part in path.split(|b| *b == b'/') {
        if !part.is_empty() && part != b"." {
            out.push(b'/');
            out.extend_from_slice(part);
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}
