//! One descriptor: what it leads to, and how that is said.

use std::collections::BTreeMap;

use crate::model::{Held, Inherited};
use crate::sockaddr::{self, Address};

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
    pub(super) fn new(target: Target, cloexec: bool) -> Descriptor {
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
pub(super) fn inherited(list: &[Inherited]) -> BTreeMap<i32, Descriptor> {
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

/// The descriptors of a process that ran already.
pub(super) fn held(list: &[Held]) -> BTreeMap<i32, Descriptor> {
    let bare: Vec<Inherited> = list.iter().map(|held| held.descriptor.clone()).collect();
    let mut table = inherited(&bare);
    for held in list {
        let Some(descriptor) = table.get_mut(&held.descriptor.fd) else {
            continue;
        };
        descriptor.cloexec = held.cloexec;
        if let Some(socket) = &held.socket {
            descriptor.target = Target::Socket {
                domain: socket.domain,
                kind: socket.kind,
                local: Address::parse(&socket.local),
                peer: Address::parse(&socket.peer),
            };
        }
    }
    table
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

/// File types in `st_mode`.
mod mode {
    pub const MASK: u32 = 0o170000;
    pub const FIFO: u32 = 0o010000;
    pub const CHAR: u32 = 0o020000;
    pub const SOCKET: u32 = 0o140000;
}
