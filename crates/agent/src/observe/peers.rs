//! Which unix sockets are the two ends of one connection: neither has an address that
//! would tell, but the kernel does, to who asks for the state of all of them
//! (`NETLINK_SOCK_DIAG`).

use std::collections::HashMap;

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// In requests and answers: see `linux/netlink.h`, `linux/sock_diag.h` and
/// `linux/unix_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
/// Lengths of heads: of a message, of what an answer says of a socket, of a piece of it.
const HEAD: usize = 16;
const SOCKET: usize = 16;
const PIECE: usize = 4;

/// The number of the other end of each unix socket that has one, as far as the kernel
/// says; it may not be able to.
pub fn of_unix_sockets() -> HashMap<u64, u64> {
    ask().unwrap_or_default()
}

fn ask() -> rustix::io::Result<HashMap<u64, u64>> {
    let protocol = Some(netlink::SOCK_DIAG);
    let flags = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    let mut request = Vec::new();
    request.extend(40u32.to_le_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_le_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_le_bytes());
    request.extend([0; 8]);
    // Family, protocol, padding; all states; all sockets; what to tell; no cookie.
    request.extend([1, 0, 0, 0]);
    request.extend(u32::MAX.to_le_bytes());
    request.extend(0u32.to_le_bytes());
    request.extend(UDIAG_SHOW_PEER.to_le_bytes());
    request.extend([0; 8]);
    net::send(&socket, &request, SendFlags::empty())?;
    let mut found = HashMap::new();
    let mut room = vec![0u8; 64 * 1024];
    loop {
        let (len, _) = net::recv(&socket, room.as_mut_slice(), RecvFlags::empty())?;
        if len == 0 || !take(room.get(..len).unwrap_or(&[]), &mut found) {
            return Ok(found);
        }
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Takes in some messages. False: those were the last.
fn take(mut bytes: &[u8], found: &mut HashMap<u64, u64>) -> bool {
    while let (Some(len), Some(kind)) = (word(bytes, 0), half(bytes, 4)) {
        let len = len as usize;
        let Some(message) = bytes.get(HEAD..len) else {
            return false;
        };
        if matches!(kind, NLMSG_DONE | NLMSG_ERROR) {
            return false;
        }
        if let (Some(inode), Some(other)) = (word(message, 4), other_end(message)) {
            found.insert(inode.into(), other.into());
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    true
}

/// The piece of an answer that says who is at the other end.
fn other_end(message: &[u8]) -> Option<u32> {
    let mut pieces = message.get(SOCKET..)?;
    loop {
        let len = usize::from(half(pieces, 0)?);
        if len < PIECE {
            return None;
        }
        if half(pieces, 2)? == UNIX_DIAG_PEER {
            return word(pieces, PIECE);
        }
        pieces = pieces.get(len.next_multiple_of(4)..)?;
    }
}
