//! What the descriptors of processes lead to that run already: found in `/proc`, and by
//! asking the sockets themselves.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use protocol::id::ProcessNo;
use recording::model::{Held, HeldSocket, Inherited, Joined};
use rustix::net::{SocketAddrAny, sockopt};

use super::peers;
use crate::channels::{self, Channel};

/// The descriptors of these processes.
pub fn all(processes: &BTreeMap<ProcessNo, u32>) -> Vec<Joined> {
    let contents = channels::contents(processes.values().copied());
    let contents: HashMap<u64, Channel> = contents.into_iter().map(|c| (c.inode, c)).collect();
    let others = peers::of_unix_sockets();
    let joined = processes.iter().map(|(process, pid)| Joined {
        process: *process,
        descriptors: of_process(*pid, &contents, &others),
    });
    joined.collect()
}

fn of_process(pid: u32, contents: &HashMap<u64, Channel>, others: &HashMap<u64, u64>) -> Vec<Held> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
    for entry in entries.into_iter().flatten().flatten() {
        let fd = entry.file_name();
        let fd = fd.to_str().and_then(|name| name.parse::<i32>().ok());
        let (Some(fd), Ok(target)) = (fd, std::fs::read_link(entry.path())) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        // Ours.
        if target.ends_with("/arena") || target.ends_with("/arena (deleted)") {
            continue;
        }
        found.push(held(pid, fd, target, contents, others));
    }
    found.sort_by_key(|held| held.descriptor.fd);
    found
}

fn held(
    pid: u32,
    fd: i32,
    target: String,
    contents: &HashMap<u64, Channel>,
    others: &HashMap<u64, u64>,
) -> Held {
    const O_ACCMODE: u32 = 3;
    const O_CLOEXEC: u32 = 0o2000000;
    let meta = std::fs::metadata(format!("/proc/{pid}/fd/{fd}"));
    let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let line = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_string()))
    };
    let flags = line("flags:").and_then(|text| u32::from_str_radix(&text, 8).ok());
    let flags = flags.unwrap_or(0);
    let mut inode = number_in(&target);
    let channel = contents.get(&inode);
    let mut unread = channel.map_or(0, |channel| channel.unread);
    if let Some(count) = line("eventfd-count:") {
        unread = u64::from_str_radix(&count, 16).unwrap_or(0);
        let id = line("eventfd-id:").and_then(|text| text.parse().ok());
        inode = id.unwrap_or(0);
    }
    let is_socket = target.starts_with("socket:[");
    let socket = match is_socket {
        true => channels::borrow(pid, fd as u32).map(|ours| socket(&ours, others.get(&inode))),
        false => None,
    };
    Held {
        descriptor: Inherited {
            fd,
            target,
            mode: meta.map_or(0, |meta| meta.mode()),
        },
        cloexec: flags & O_CLOEXEC != 0,
        reads: flags & O_ACCMODE != 1,
        writes: flags & O_ACCMODE != 0,
        inode,
        unread,
        unsent: channel.map_or(0, |channel| channel.unsent),
        socket,
    }
}

/// `pipe:[N]`, `socket:[N]`; 0 for others.
fn number_in(target: &str) -> u64 {
    let number = target.split_once(":[").and_then(|(kind, rest)| {
        let number = rest.strip_suffix(']')?.parse().ok()?;
        matches!(kind, "pipe" | "socket").then_some(number)
    });
    number.unwrap_or(0)
}

fn socket(ours: &OwnedFd, other: Option<&u64>) -> HeldSocket {
    let domain = sockopt::socket_domain(ours).map_or(0, |domain| domain.as_raw());
    let kind = sockopt::socket_type(ours).map_or(0, |kind| kind.as_raw());
    let local = rustix::net::getsockname(ours).ok().map(bytes);
    let peer = rustix::net::getpeername(ours).ok().flatten().map(bytes);
    HeldSocket {
        domain,
        kind: u8::try_from(kind).unwrap_or(0),
        local: local.unwrap_or_default(),
        peer: peer.unwrap_or_default(),
        listens: sockopt::socket_acceptconn(ours).unwrap_or(false),
        other: other.copied().unwrap_or(0),
    }
}

/// An address as the kernel has it.
fn bytes(address: SocketAddrAny) -> Vec<u8> {
    const UNIX: u16 = 1;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    if let Ok(address) = std::net::SocketAddr::try_from(address.clone()) {
        let port = address.port().to_be_bytes();
        return match address {
            std::net::SocketAddr::V4(own) => {
                let parts = [&INET.to_le_bytes()[..], &port, &own.ip().octets(), &[0; 8]];
                parts.concat()
            }
            std::net::SocketAddr::V6(own) => [
                &INET6.to_le_bytes()[..],
                &port,
                &[0; 4],
                &own.ip().octets(),
                &own.scope_id().to_le_bytes(),
            ]
            .concat(),
        };
    }
    let Ok(unix) = rustix::net::SocketAddrUnix::try_from(address) else {
        return Vec::new();
    };
    let mut found = UNIX.to_le_bytes().to_vec();
    if let Some(path) = unix.path() {
        found.extend_from_slice(path.to_bytes());
    } else if let Some(name) = unix.abstract_name() {
        found.push(0);
        found.extend_from_slice(name);
    }
    found
}
