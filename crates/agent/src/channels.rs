//! What is under way in a program that is halted: the bytes in its pipes and
//! sockets. Nobody sends or receives then, so what a channel holds is what has
//! been sent and not received.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use serde::{Deserialize, Serialize};

/// A pipe or socket that the program has open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    pub kind: Kind,
    /// The kernel's number for it: both ends of a pipe have one, each end of a
    /// connection has its own.
    pub inode: u64,
    /// Who has it open, by which descriptors.
    pub holders: Vec<(u32, u32)>,
    /// Bytes that have come and were not read. Of datagrams, those of the first.
    pub unread: u64,
    /// Bytes that were sent and have not left this host's end of the connection
    /// (TCP): the other end has no room.
    pub unsent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Pipe,
    Socket,
}

/// How much a socket has not sent yet.
const SIOCOUTQNSD: libc::Ioctl = 0x894b;
/// How much of what was written to a socket has not been acknowledged, sent or not.
const SIOCOUTQ: libc::Ioctl = libc::TIOCOUTQ;

/// How long bytes may be between two hosts' ends, at most, before they are taken
/// for lost on the way.
const SETTLING: Duration = Duration::from_secs(1);

/// What the pipes and sockets of these processes hold. What cannot be looked at
/// (no permission, just closed) is left out.
///
/// The kernel goes on while the program stands: what has left one end of a
/// connection and is not at the other yet would be in neither, and so would what
/// moves between a look at one end and a look at the other. So it is waited for, a
/// little, until two looks at everything show the same. As nobody reads or writes,
/// bytes move in one direction only, and then nothing has moved between the looks.
pub fn contents(pids: impl IntoIterator<Item = u32>) -> Vec<Channel> {
    let mut found: BTreeMap<u64, (Channel, OwnedFd)> = BTreeMap::new();
    for pid in pids {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(fd) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let Some((kind, inode)) = channel_of(&entry.path()) else {
                continue;
            };
            if let Some((known, _)) = found.get_mut(&inode) {
                known.holders.push((pid, fd));
            } else if let Some(ours) = borrow(pid, fd) {
                let channel = Channel {
                    kind,
                    inode,
                    holders: vec![(pid, fd)],
                    unread: 0,
                    unsent: 0,
                };
                found.insert(inode, (channel, ours));
            }
        }
    }
    let deadline = Instant::now() + SETTLING;
    let mut before = found.values_mut().map(look).collect::<Vec<Held>>();
    loop {
        let now = found.values_mut().map(look).collect::<Vec<Held>>();
        let is_still = now == before && now.iter().all(|held| held.on_its_way == 0);
        if is_still || Instant::now() >= deadline {
            break;
        }
        before = now;
        std::thread::sleep(Duration::from_millis(1));
    }
    found.into_values().map(|(channel, _)| channel).collect()
}

/// What one end of a channel holds.
#[derive(PartialEq, Eq)]
struct Held {
    unread: u64,
    unsent: u64,
    /// What was sent over a TCP connection and of which the other end has not said
    /// that it has come.
    on_its_way: u64,
}

/// Looks at one end of a channel, and notes what it holds.
fn look((channel, ours): &mut (Channel, OwnedFd)) -> Held {
    let is_socket = channel.kind == Kind::Socket;
    // Asked first: what is sent in between is then on its way.
    let unacknowledged = match is_socket && is_tcp(ours) {
        true => ask(ours, SIOCOUTQ),
        false => 0,
    };
    let unsent = match is_socket {
        true => ask(ours, SIOCOUTQNSD),
        false => 0,
    };
    let unread = ask(ours, libc::FIONREAD);
    (channel.unread, channel.unsent) = (unread, unsent);
    Held {
        unread,
        unsent,
        on_its_way: unacknowledged.saturating_sub(unsent),
    }
}

/// Which of these processes have a socket at this port of theirs: that listens there,
/// or is a connection to it.
pub fn serving(pids: impl IntoIterator<Item = u32>, port: u16) -> Vec<u32> {
    let is_at_port = |pid: u32, entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let fd = name.to_str().and_then(|name| name.parse::<u32>().ok());
        let is_socket = matches!(channel_of(&entry.path()), Some((Kind::Socket, _)));
        let ours = fd.filter(|_| is_socket).and_then(|fd| borrow(pid, fd));
        let address = ours.and_then(|fd| rustix::net::getsockname(&fd).ok());
        let address = address.and_then(|any| std::net::SocketAddr::try_from(any).ok());
        address.is_some_and(|address| address.port() == port)
    };
    let has_port = |pid: &u32| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let mut entries = entries.into_iter().flatten().flatten();
        entries.any(|entry| is_at_port(*pid, &entry))
    };
    pids.into_iter().filter(has_port).collect()
}

fn is_tcp(fd: &OwnedFd) -> bool {
    use rustix::net::{ipproto, sockopt};
    matches!(sockopt::socket_protocol(fd), Ok(Some(protocol)) if protocol == ipproto::TCP)
}

/// `pipe:[N]` or `socket:[N]`.
fn channel_of(link: &Path) -> Option<(Kind, u64)> {
    let target = std::fs::read_link(link).ok()?;
    let (kind, rest) = match target.to_str()?.split_once(":[")? {
        ("pipe", rest) => (Kind::Pipe, rest),
        ("socket", rest) => (Kind::Socket, rest),
        _ => return None,
    };
    Some((kind, rest.strip_suffix(']')?.parse().ok()?))
}

/// A descriptor of another process, as one of ours.
pub(crate) fn borrow(pid: u32, fd: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(pid as i32)?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    rustix::process::pidfd_getfd(process.as_fd(), fd as i32, PidfdGetfdFlags::empty()).ok()
}

/// A number of bytes; 0 if there is no such number (a socket that listens).
fn ask(fd: &OwnedFd, request: libc::Ioctl) -> u64 {
    let mut count: libc::c_int = 0;
    // SAFETY: all these requests write an int.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut count) };
    match answer {
        0 => u64::try_from(count).unwrap_or(0),
        _ => 0,
    }
}
