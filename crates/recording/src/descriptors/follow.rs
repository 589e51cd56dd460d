//! What calls do to descriptors: which calls matter, and what each makes, copies, renames
//! and closes.

use std::sync::Arc;

use protocol::record::{begin, kind, tag};
use protocol::syscall::{Arg, Ret, Type};

use super::Descriptors;
use super::target::{Descriptor, Target};
use crate::calls::{self, nr};
use crate::event::Event;
use crate::frame::field;
use crate::log::Log;
use crate::sockaddr::Address;

/// The number of a pseudo-terminal, and its other side as a descriptor.
const TIOCGPTN: u32 = 0x8004_5430;

const TIOCGPTPEER: u32 = 0x5441;

const O_CLOEXEC: u64 = 0x80000;

const EINPROGRESS: i64 = -115;

const EBADF: i64 = -9;

/// Whether what a call does to descriptors is followed by its number. (Any
/// call may identify one, or get some with a message.)
fn is_followed(call: u64) -> bool {
    matches!(
        call,
        nr::OPEN
            | nr::CREAT
            | nr::OPENAT
            | nr::OPENAT2
            | nr::SOCKET
            | nr::SOCKETPAIR
            | nr::PIPE
            | nr::PIPE2
            | nr::ACCEPT
            | nr::ACCEPT4
            | nr::CONNECT
            | nr::BIND
            | nr::GETSOCKNAME
            | nr::LISTEN
            | nr::GETPEERNAME
            | nr::DUP
            | nr::DUP2
            | nr::DUP3
            | nr::FCNTL
            | nr::IOCTL
            | nr::EPOLL_CREATE
            | nr::EPOLL_CREATE1
            | nr::EVENTFD
            | nr::EVENTFD2
            | nr::TIMERFD_CREATE
            | nr::SIGNALFD
            | nr::SIGNALFD4
            | nr::INOTIFY_INIT
            | nr::INOTIFY_INIT1
            | nr::PIDFD_OPEN
            | nr::MQ_OPEN
            | nr::MEMFD_CREATE
            | nr::CHDIR
            | nr::FCHDIR
            | nr::CLOSE
            | nr::CLOSE_RANGE
    )
}

/// Whether the record that a log stands at may change descriptors: others need
/// not be passed through [`Descriptors::before`] and [`Descriptors::after`].
pub fn may_change(log: &Log<'_>) -> bool {
    let Some((kind, call, ..)) = log.glance() else {
        return false;
    };
    match kind {
        kind::CALL | kind::END => is_followed(call) || log.has_blob([tag::IDENTITY, tag::CONTROL]),
        kind::BEGIN => log.is_exec(),
        _ => false,
    }
}

/// The descriptor that the type of an event depends on: reading a file is not
/// receiving.
pub fn decides_type(event: &Event<'_>) -> Option<i32> {
    let moves = matches!(event.type_(), Type::Recv | Type::Send);
    let row = calls::row(event.nr).filter(|_| moves && event.args_known)?;
    match row.args.first() {
        Some((_, Arg::Fd)) => Some(event.args[0] as i32),
        _ => None,
    }
}

impl Descriptors {
    /// Takes in what an event makes: to be called before the event is shown.
    pub fn before(&mut self, event: &Event<'_>) {
        if !event.is_call() || event.result.is_none() || !event.args_known {
            return;
        }
        let result = event.result.unwrap_or(-1);
        if result < 0 && !(event.nr == nr::CONNECT && result == EINPROGRESS) {
            return;
        }
        if is_followed(event.nr) {
            self.made(event, result);
        }
        self.passed(event);
        self.identified(event, result);
    }

    /// Takes in what a call that is followed makes.
    fn made(&mut self, event: &Event<'_>, result: i64) {
        let args = &event.args;
        match event.nr {
            nr::OPEN => self.opened(event, None, 0, args[1] & O_CLOEXEC != 0),
            nr::CREAT => self.opened(event, None, 0, false),
            nr::OPENAT => self.opened(event, Some(args[0]), 1, args[2] & O_CLOEXEC != 0),
            nr::OPENAT2 => {
                let flags = event
                    .argument(2)
                    .and_then(|how| field(how.bytes, 0))
                    .map_or(0, u64::from_le_bytes);
                self.opened(event, Some(args[0]), 1, flags & O_CLOEXEC != 0);
            }
            nr::SOCKET => {
                let target = socket(args[0], args[1], None, None);
                self.set(result, Descriptor::new(target, args[1] & O_CLOEXEC != 0));
            }
            nr::SOCKETPAIR => {
                for fd in pair(event, 3) {
                    let unnamed = Some(Address::UnixUnnamed);
                    let target = socket(args[0], args[1], unnamed.clone(), unnamed);
                    self.set(fd, Descriptor::new(target, args[1] & O_CLOEXEC != 0));
                }
            }
            nr::PIPE | nr::PIPE2 => {
                let cloexec = event.nr == nr::PIPE2 && args[1] & O_CLOEXEC != 0;
                for fd in pair(event, 0) {
                    self.set(fd, Descriptor::new(Target::Pipe, cloexec));
                }
            }
            nr::ACCEPT | nr::ACCEPT4 => self.accepted(event, result),
            nr::CONNECT => {
                let peer = address(event, tag::PEER).or_else(|| argument_address(event, 1));
                let own = address(event, tag::LOCAL);
                self.change(args[0], |descriptor| {
                    if let Target::Socket {
                        local, peer: to, ..
                    } = &mut descriptor.target
                    {
                        *local = own.or(local.take());
                        *to = peer.or(to.take());
                    }
                });
            }
            nr::BIND | nr::GETSOCKNAME => {
                let own = address(event, tag::LOCAL).or_else(|| argument_address(event, 1));
                self.change(args[0], |descriptor| {
                    if let Target::Socket { local, .. } = &mut descriptor.target {
                        *local = own.or(local.take());
                    }
                });
            }
            nr::LISTEN => {
                let own = address(event, tag::LOCAL);
                self.change(args[0], |descriptor| {
                    if let Target::Socket { local, .. } = &mut descriptor.target {
                        *local = own.or(local.take());
                    }
                });
            }
            nr::GETPEERNAME => {
                let other = argument_address(event, 1);
                self.change(args[0], |descriptor| {
                    if let Target::Socket { peer, .. } = &mut descriptor.target {
                        *peer = other.or(peer.take());
                    }
                });
            }
            nr::DUP => self.copy(args[0], result, false),
            nr::DUP2 if args[0] as i32 != args[1] as i32 => self.copy(args[0], result, false),
            nr::DUP3 => self.copy(args[0], result, args[2] & O_CLOEXEC != 0),
            nr::FCNTL => match args[1] as u32 {
                0 => self.copy(args[0], result, false),
                1030 => self.copy(args[0], result, true),
                2 => self.change(args[0], |descriptor| descriptor.cloexec = args[2] & 1 != 0),
                _ => {}
            },
            nr::IOCTL => match args[1] as u32 {
                0x5451 => self.change(args[0], |descriptor| descriptor.cloexec = true),
                0x5450 => self.change(args[0], |descriptor| descriptor.cloexec = false),
                TIOCGPTN => {
                    let number = event.argument(2).and_then(|data| data.bytes.first_chunk());
                    if let Some(number) = number {
                        let number = u32::from_le_bytes(*number);
                        self.terminals.insert(args[0] as i32, number);
                    }
                }
                TIOCGPTPEER => {
                    let number = self.terminals.get(&(args[0] as i32));
                    let number = number.map_or("?".to_string(), u32::to_string);
                    let path = format!("/dev/pts/{number}").into_bytes();
                    let cloexec = args[2] & O_CLOEXEC != 0;
                    self.set(result, Descriptor::new(Target::Path(path), cloexec));
                }
                _ => {}
            },
            nr::EPOLL_CREATE => self.anonymous(event, "epoll", 0),
            nr::EPOLL_CREATE1 => self.anonymous(event, "epoll", args[0]),
            nr::EVENTFD => self.anonymous(event, "eventfd", 0),
            nr::EVENTFD2 => self.anonymous(event, "eventfd", args[1]),
            nr::TIMERFD_CREATE => self.anonymous(event, "timerfd", args[1]),
            nr::SIGNALFD if args[0] as i32 == -1 => self.anonymous(event, "signalfd", 0),
            nr::SIGNALFD4 if args[0] as i32 == -1 => self.anonymous(event, "signalfd", args[3]),
            nr::INOTIFY_INIT => self.anonymous(event, "inotify", 0),
            nr::INOTIFY_INIT1 => self.anonymous(event, "inotify", args[0]),
            nr::PIDFD_OPEN => self.anonymous(event, "pidfd", O_CLOEXEC),
            nr::MQ_OPEN => self.anonymous(event, "mqueue", args[1] & O_CLOEXEC),
            nr::MEMFD_CREATE => {
                let mut path = b"/memfd:".to_vec();
                path.extend(event.argument(0).map_or(&b""[..], |name| text(name.bytes)));
                self.set(
                    result,
                    Descriptor::new(Target::Path(path), args[1] & 1 != 0),
                );
            }
            nr::CHDIR => {
                if let Some(path) = event.argument(0) {
                    let path = self.absolute(None, text(path.bytes));
                    self.cwd = Arc::new(path);
                }
            }
            nr::FCHDIR => {
                if let Some(Target::Path(path)) = self.get(args[0] as i32).map(|d| &d.target) {
                    self.cwd = Arc::new(path.clone());
                }
            }
            _ => {}
        }
    }

    /// Takes in what an event ends: to be called after the event is shown.
    pub fn after(&mut self, event: &Event<'_>) {
        if event.kind == kind::BEGIN && event.value(0) == begin::EXEC {
            if self.table.values().any(|descriptor| descriptor.cloexec) {
                Arc::make_mut(&mut self.table).retain(|_, descriptor| !descriptor.cloexec);
                self.touched_many = true;
            }
            return;
        }
        if !event.args_known {
            return;
        }
        let args = &event.args;
        if event.is_done(nr::CLOSE) && event.result != Some(EBADF) {
            let fd = args[0] as i32;
            if self.table.contains_key(&fd) {
                Arc::make_mut(&mut self.table).remove(&fd);
                self.touch(fd);
            }
        } else if event.is_done(nr::CLOSE_RANGE) && event.result == Some(0) {
            let first = args[0] as u32;
            let last = args[1] as u32;
            let in_range = |fd: i32| (first..=last).contains(&(fd as u32));
            let only_mark = args[2] & 4 != 0;
            self.touched_many = true;
            let table = Arc::make_mut(&mut self.table);
            if only_mark {
                for (fd, descriptor) in table {
                    descriptor.cloexec |= in_range(*fd);
                }
            } else {
                table.retain(|fd, _| !in_range(*fd));
            }
        }
    }

    fn opened(&mut self, event: &Event<'_>, dir: Option<u64>, path_arg: usize, cloexec: bool) {
        let target = match (event.blob(tag::PATH), event.argument(path_arg)) {
            (Some(path), _) => Target::Path(text(path.bytes).to_vec()),
            (None, Some(path)) => Target::Path(self.absolute(dir, text(path.bytes))),
            (None, None) => Target::Unknown,
        };
        let again = event
            .argument(path_arg)
            .and_then(|path| descriptor_of(text(path.bytes)))
            .and_then(|fd| self.get(fd)?.standard);
        let mut descriptor = Descriptor::new(target, cloexec);
        descriptor.standard = again;
        self.set(event.result.unwrap_or(-1), descriptor);
    }

    fn anonymous(&mut self, event: &Event<'_>, name: &'static str, flags: u64) {
        let cloexec = flags & O_CLOEXEC != 0;
        let descriptor = Descriptor::new(Target::Anonymous(name), cloexec);
        self.set(event.result.unwrap_or(-1), descriptor);
    }

    fn accepted(&mut self, event: &Event<'_>, result: i64) {
        let (domain, kind, listening) = match self.get(event.args[0] as i32).map(|d| &d.target) {
            Some(Target::Socket {
                domain,
                kind,
                local,
                ..
            }) => (*domain, *kind, local.clone()),
            _ => (0, 1, None),
        };
        let target = Target::Socket {
            domain,
            kind,
            local: address(event, tag::LOCAL).or(listening),
            peer: address(event, tag::PEER).or_else(|| argument_address(event, 1)),
        };
        let cloexec = event.nr == nr::ACCEPT4 && event.args[3] & O_CLOEXEC != 0;
        self.set(result, Descriptor::new(target, cloexec));
    }

    /// Descriptors that came with a message.
    fn passed(&mut self, event: &Event<'_>) {
        if event.type_() != Type::Recv {
            return;
        }
        for control in event.blobs().filter(|blob| blob.tag == tag::CONTROL) {
            for fd in rights(control.bytes) {
                self.set(i64::from(fd), Descriptor::new(Target::Unknown, false));
            }
        }
    }

    /// Device, inode and mode, where the monitor looked.
    fn identified(&mut self, event: &Event<'_>, result: i64) {
        let Some(identity) = event.blob(tag::IDENTITY) else {
            return;
        };
        let Some(row) = calls::row(event.nr) else {
            return;
        };
        let fd = match (row.ret, row.args.first()) {
            (Ret::Fd, _) => result,
            (_, Some((_, Arg::Fd))) => i64::from(event.args[0] as i32),
            _ => return,
        };
        let word = |at| field(identity.bytes, at).map_or(0, u64::from_le_bytes);
        if i32::try_from(fd).is_ok_and(|fd| !self.table.contains_key(&fd)) {
            self.set(fd, Descriptor::new(Target::Unknown, false));
        }
        self.change(fd as u64, |descriptor| {
            descriptor.inode = word(8);
            descriptor.mode = word(16) as u32;
        });
    }
}

/// Up to the first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or(bytes)
}

fn socket(domain: u64, kind: u64, local: Option<Address>, peer: Option<Address>) -> Target {
    Target::Socket {
        domain: domain as u16,
        kind: kind as u8 & 0xf,
        local,
        peer,
    }
}

fn pair(event: &Event<'_>, argument: usize) -> impl Iterator<Item = i64> + use<> {
    let bytes = event.argument(argument).map_or(&[][..], |data| data.bytes);
    let fds: Vec<i64> = bytes
        .chunks_exact(4)
        .take(2)
        .filter_map(|fd| Some(i64::from(i32::from_le_bytes(field(fd, 0)?))))
        .collect();
    fds.into_iter()
}

fn address(event: &Event<'_>, tag: u8) -> Option<Address> {
    Address::parse(event.blob(tag)?.bytes)
}

fn argument_address(event: &Event<'_>, argument: usize) -> Option<Address> {
    Address::parse(event.argument(argument)?.bytes)
}

/// The descriptors in the control bytes of a message.
pub fn rights(mut control: &[u8]) -> Vec<i32> {
    const HEADER: usize = 16;
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    let mut found = Vec::new();
    while let Some(len) = field(control, 0).map(u64::from_le_bytes) {
        let (Some(level), Some(kind)) = (
            field(control, 8).map(i32::from_le_bytes),
            field(control, 12).map(i32::from_le_bytes),
        ) else {
            break;
        };
        let Ok(len) = usize::try_from(len) else { break };
        let Some(data) = control.get(HEADER..len) else {
            break;
        };
        if level == SOL_SOCKET && kind == SCM_RIGHTS {
            found.extend(
                data.chunks_exact(4)
                    .filter_map(|fd| Some(i32::from_le_bytes(field(fd, 0)?))),
            );
        }
        let Some(rest) = control.get(len.next_multiple_of(8).max(HEADER)..) else {
            break;
        };
        control = rest;
    }
    found
}

/// The standard descriptor that a path stands for, by its number.
fn descriptor_of(path: &[u8]) -> Option<i32> {
    match path {
        b"/dev/stdin" => Some(0),
        b"/dev/stdout" => Some(1),
        b"/dev/stderr" => Some(2),
        _ => {
            let digits = path
                .strip_prefix(b"/dev/fd/")
                .or_else(|| path.strip_prefix(b"/proc/self/fd/"))?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        }
    }
}
