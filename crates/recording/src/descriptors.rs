//! What the descriptors of a process lead to.
//!
//! Followed from the events alone: calls that make, copy, rename and close
//! descriptors. A forked process starts with its parent's, so that following
//! a process begins with following its ancestors up to where they forked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use protocol::record::{begin, kind, tag};
use protocol::syscall::{Arg, Ret, Type};

use crate::calls::{self, nr};
use crate::event::Event;
use crate::frame::field;
use crate::log::Log;
use crate::model::Inherited;
use crate::recording::Recording;
use crate::sockaddr::{self, Address};

/// The number of a pseudo-terminal, and its other side as a descriptor.
const TIOCGPTN: u32 = 0x8004_5430;
const TIOCGPTPEER: u32 = 0x5441;
const O_CLOEXEC: u64 = 0x80000;
const EINPROGRESS: i64 = -115;
const EBADF: i64 = -9;

/// File types in `st_mode`.
mod mode {
    pub const MASK: u32 = 0o170000;
    pub const FIFO: u32 = 0o010000;
    pub const CHAR: u32 = 0o020000;
    pub const SOCKET: u32 = 0o140000;
}

/// What a descriptor leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Something with a path.
    Path(Vec<u8>),
    /// A socket.
    Socket {
        /// Its domain.
        domain: u16,
        /// Its type (stream, datagram, ...).
        kind: u8,
        /// Own address.
        local: Option<Address>,
        /// The other end's address.
        peer: Option<Address>,
    },
    /// One end of a pipe.
    Pipe,
    /// One that has no name but what it is: an eventfd, say.
    Anonymous(&'static str),
    /// Came from another process, or from before the recording.
    Unknown,
}

/// The descriptors that a program is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// Descriptor 0.
    Input,
    /// Descriptor 1.
    Output,
    /// Descriptor 2.
    Error,
}

impl Standard {
    const ALL: [Standard; 3] = [Standard::Input, Standard::Output, Standard::Error];
}

/// One descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What it leads to.
    pub target: Target,
    /// Exec closes it.
    pub cloexec: bool,
    /// `st_mode`, 0 if unknown.
    pub mode: u32,
    /// Inode, 0 if unknown.
    pub inode: u64,
    /// It is one of those that the program was started with, or a copy.
    pub standard: Option<Standard>,
}

impl Descriptor {
    fn new(target: Target, cloexec: bool) -> Descriptor {
        Descriptor {
            target,
            cloexec,
            mode: 0,
            inode: 0,
            standard: None,
        }
    }

    /// In words: a path, or both addresses of a socket.
    pub fn describe(&self) -> Option<String> {
        Some(match &self.target {
            Target::Path(path) => crate::render::escape_path(path),
            Target::Pipe if self.inode != 0 => format!("pipe:{}", self.inode),
            Target::Pipe => "pipe".to_string(),
            Target::Anonymous(name) => name.to_string(),
            Target::Socket {
                domain,
                kind,
                local,
                peer,
            } => match (local, peer) {
                (Some(local), Some(peer)) => match (local, peer) {
                    // Unnamed ends say nothing.
                    (Address::UnixUnnamed, Address::UnixUnnamed) => local.to_string(),
                    (named, Address::UnixUnnamed) | (Address::UnixUnnamed, named) => {
                        named.to_string()
                    }
                    _ => format!("{local}->{peer}"),
                },
                (None, Some(peer)) => format!("->{peer}"),
                (Some(local), None) => local.to_string(),
                (None, None) => socket_name(*domain, *kind).to_string(),
            },
            Target::Unknown => match self.mode & mode::MASK {
                mode::FIFO => "pipe".to_string(),
                mode::SOCKET => "socket".to_string(),
                _ => return None,
            },
        })
    }

    /// Whether bytes read from it are a file's rather than somebody's.
    pub fn is_file(&self) -> bool {
        match self.mode & mode::MASK {
            0 => {}
            mode::FIFO | mode::SOCKET => return false,
            mode::CHAR => return !self.is_terminal(),
            _ => return !matches!(self.target, Target::Anonymous(_)),
        }
        matches!(self.target, Target::Path(_)) && !self.is_terminal()
    }

    fn is_terminal(&self) -> bool {
        let Target::Path(path) = &self.target else {
            return self.mode & mode::MASK == mode::CHAR;
        };
        [
            &b"/dev/pts/"[..],
            b"/dev/tty",
            b"/dev/ptmx",
            b"/dev/console",
        ]
        .iter()
        .any(|prefix| path.starts_with(prefix))
    }
}

/// The descriptors that the program found when it began.
fn inherited(list: &[Inherited]) -> BTreeMap<i32, Descriptor> {
    let descriptor = |inherited: &Inherited| {
        let target = inherited.target.as_str();
        // `pipe:[1234]`
        let number = |kind: &str| -> Option<u64> {
            let number = target.strip_prefix(kind)?.strip_prefix(":[")?;
            number.strip_suffix(']')?.parse().ok()
        };
        let (target, inode) = if let Some(inode) = number("pipe") {
            (Target::Pipe, inode)
        } else if target.starts_with('/') {
            (Target::Path(target.as_bytes().to_vec()), 0)
        } else {
            (Target::Unknown, number("socket").unwrap_or(0))
        };
        Descriptor {
            target,
            cloexec: false,
            mode: inherited.mode,
            inode,
            standard: usize::try_from(inherited.fd)
                .ok()
                .and_then(|fd| Standard::ALL.get(fd).copied()),
        }
    };
    list.iter().map(|i| (i.fd, descriptor(i))).collect()
}

fn socket_name(domain: u16, kind: u8) -> &'static str {
    match (domain, kind) {
        (sockaddr::INET, 1) => "tcp",
        (sockaddr::INET, 2) => "udp",
        (sockaddr::INET6, 1) => "tcp6",
        (sockaddr::INET6, 2) => "udp6",
        (sockaddr::UNIX, _) => "unix",
        (sockaddr::NETLINK, _) => "netlink",
        _ => "socket",
    }
}

/// The descriptors of one process at one point of its log. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    table: Arc<BTreeMap<i32, Descriptor>>,
    cwd: Arc<Vec<u8>>,
    /// Numbers of pseudo-terminals, by the descriptor of their master side.
    terminals: BTreeMap<i32, u32>,
    /// Those that may have changed since [`Descriptors::changed`].
    touched: Vec<i32>,
    /// Any may have.
    touched_many: bool,
}

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
    /// The descriptor `fd`.
    pub fn get(&self, fd: i32) -> Option<&Descriptor> {
        self.table.get(&fd)
    }

    /// What descriptor `fd` leads to, in words.
    pub fn describe(&self, fd: i32) -> Option<String> {
        self.get(fd)?.describe()
    }

    /// The working directory (empty if unknown).
    pub fn cwd(&self) -> &[u8] {
        &self.cwd
    }

    /// The type of an event, now that it is known what its descriptor leads
    /// to: reading a file is not receiving.
    pub fn type_of(&self, event: &Event<'_>) -> Type {
        let decides = decides_type(event).and_then(|fd| self.get(fd));
        match decides.is_some_and(Descriptor::is_file) {
            true => Type::File,
            false => event.type_(),
        }
    }

    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = (i32, &Descriptor)> {
        self.table.iter().map(|(fd, descriptor)| (*fd, descriptor))
    }

    /// The descriptors that may have changed since this was asked last; `None`
    /// if any may have gone.
    pub fn changed(&mut self) -> Option<Vec<i32>> {
        let touched = std::mem::take(&mut self.touched);
        match std::mem::take(&mut self.touched_many) {
            true => None,
            false => Some(touched),
        }
    }

    fn touch(&mut self, fd: i32) {
        // Who does not ask does not pay for it.
        const MOST: usize = 64;
        match self.touched.len() < MOST {
            true => self.touched.push(fd),
            false => self.touched_many = true,
        }
    }

    fn set(&mut self, fd: i64, descriptor: Descriptor) {
        if let Ok(fd) = i32::try_from(fd)
            && fd >= 0
        {
            Arc::make_mut(&mut self.table).insert(fd, descriptor);
            self.terminals.remove(&fd);
            self.touch(fd);
        }
    }

    fn change(&mut self, fd: u64, how: impl FnOnce(&mut Descriptor)) {
        let fd = fd as i32;
        if self.table.contains_key(&fd)
            && let Some(descriptor) = Arc::make_mut(&mut self.table).get_mut(&fd)
        {
            how(descriptor);
            self.touch(fd);
        }
    }

    fn copy(&mut self, from: u64, to: i64, cloexec: bool) {
        let copied = match self.get(from as i32) {
            Some(descriptor) => Descriptor {
                cloexec,
                ..descriptor.clone()
            },
            None => Descriptor::new(Target::Unknown, cloexec),
        };
        self.set(to, copied);
    }

    fn absolute(&self, dir: Option<u64>, path: &[u8]) -> Vec<u8> {
        if path.starts_with(b"/") {
            return path.to_vec();
        }
        const AT_FDCWD: i32 = -100;
        let base = match dir.map(|fd| fd as i32) {
            None | Some(AT_FDCWD) => Some(self.cwd.as_slice()),
            Some(fd) => match self.get(fd).map(|descriptor| &descriptor.target) {
                Some(Target::Path(path)) => Some(path.as_slice()),
                _ => None,
            },
        };
        let mut path = path;
        while let Some(rest) = path.strip_prefix(b"./") {
            path = rest;
        }
        match base {
            Some(base) if !base.is_empty() && path.is_empty() => base.to_vec(),
            Some(base) if !base.is_empty() => {
                [base.strip_suffix(b"/").unwrap_or(base), b"/", path].concat()
            }
            _ => path.to_vec(),
        }
    }

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

/// The descriptors that processes are born with.
pub struct Births<'r> {
    recording: &'r Recording,
    known: HashMap<u32, Descriptors>,
    children: HashMap<u32, Vec<(u64, u32)>>,
}

impl<'r> Births<'r> {
    /// Knows nothing yet: ancestors are followed when a descendant is asked
    /// for.
    pub fn new(recording: &'r Recording) -> Births<'r> {
        let mut children: HashMap<u32, Vec<(u64, u32)>> = HashMap::new();
        for process in recording.processes() {
            if let Some(parent) = process.parent {
                let event = process.parent_event.unwrap_or(0);
                children
                    .entry(parent)
                    .or_default()
                    .push((event, process.number));
            }
        }
        for list in children.values_mut() {
            list.sort_unstable();
        }
        Births {
            recording,
            known: HashMap::new(),
            children,
        }
    }

    /// The descriptors that process `number` was born with.
    pub fn of(&mut self, number: u32) -> Descriptors {
        // Up to the first ancestor that is known or has no parent, then down.
        let mut line = vec![number];
        while let Some(last) = line.last().copied()
            && !self.known.contains_key(&last)
            && let Some(parent) = self.recording.process(last).and_then(|p| p.parent)
            && !line.contains(&parent)
        {
            line.push(parent);
        }
        if let Some(eldest) = line.last().copied() {
            let found = self.known.entry(eldest).or_insert_with(|| {
                let image = self
                    .recording
                    .process(eldest)
                    .and_then(|process| self.recording.images_of(process).next());
                Descriptors {
                    table: Arc::new(inherited(&self.recording.manifest().descriptors)),
                    cwd: Arc::new(image.map(|image| image.cwd.clone()).unwrap_or_default()),
                    ..Descriptors::default()
                }
            });
            if line.len() == 1 {
                return found.clone();
            }
        }
        line.pop();
        while let Some(next) = line.pop() {
            let parent = self
                .recording
                .process(next)
                .and_then(|process| process.parent);
            if let Some(parent) = parent
                && !self.known.contains_key(&next)
            {
                self.follow(parent);
            }
        }
        self.known.get(&number).cloned().unwrap_or_default()
    }

    /// Follows a process as far as its last child, noting what each child
    /// gets.
    fn follow(&mut self, parent: u32) {
        let mut now = self.known.get(&parent).cloned().unwrap_or_default();
        let children = self.children.get(&parent).map_or(&[][..], Vec::as_slice);
        let mut next = children.iter().peekable();
        let mut log = self.recording.log(parent);
        while next.peek().is_some() && log.advance() {
            let Some(event) = log.event() else { break };
            while let Some((_, child)) = next.next_if(|(at, _)| *at <= event.number) {
                self.known.insert(*child, now.clone());
            }
            now.before(&event);
            now.after(&event);
        }
        for (_, child) in next {
            self.known.insert(*child, now.clone());
        }
    }
}
