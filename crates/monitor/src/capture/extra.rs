//! What a few calls need besides their table rows: who is at the other end of a
//! socket, how many semaphores a set has.

use protocol::record::tag;

use crate::state::Thread;
use crate::sys::{self, nr};
use crate::{mem, served};

use super::blobs::{Blobs, Message};

/// What no argument says: a socket's addresses, who is at the other end of an
/// unnamed one, and which pipe or terminal a name led to, which people and
/// causality need; and what is as long as only the kernel knows. (Which calls
/// those are, `needs` must know.)
#[inline]
pub fn extra(thread: &Thread, number: u64, args: &[u64; 6], result: i64, blobs: &mut Blobs) {
    if result < 0 && !(number == nr::CONNECT && result == -115) {
        // 115: EINPROGRESS
        return;
    }
    let [local, peer] = &thread.addresses;
    let (local, peer) = (local.as_ptr() as u64, peer.as_ptr() as u64);
    match number {
        nr::SEMCTL if args[2] as u32 & !IPC_64 == GETALL => {
            blobs.memory(3, args[3], 2 * semaphores(args[0]));
        }
        nr::GETXATTRAT => {
            if let Some(value) = attribute_value(args).filter(|_| result > 0) {
                blobs.memory(tag::PIECE, value, result as u64);
            }
        }
        nr::SETSOCKOPT => {
            if let Some((counters, len)) = old_counters(args) {
                blobs.memory(tag::PIECE, counters, len);
            }
        }
        nr::ACCEPT | nr::ACCEPT4 => {
            let fd = result as u64;
            let family = socket_address(nr::GETSOCKNAME, fd, tag::LOCAL, local, blobs);
            socket_address(nr::GETPEERNAME, fd, tag::PEER, peer, blobs);
            if family == AF_UNIX {
                peer_credentials(fd, blobs);
            }
        }
        // A port that the kernel chose is known from here on.
        nr::CONNECT | nr::BIND | nr::LISTEN => {
            socket_address(nr::GETSOCKNAME, args[0], tag::LOCAL, local, blobs);
        }
        // A datagram socket that was not bound is bound by its first message.
        nr::SENDTO if is_inet(args[4]) => {
            socket_address(nr::GETSOCKNAME, args[0], tag::LOCAL, local, blobs);
        }
        nr::SENDMSG if mem::read::<u64>(args[1]).is_some_and(is_inet) => {
            socket_address(nr::GETSOCKNAME, args[0], tag::LOCAL, local, blobs);
        }
        nr::RECVMSG => served::received(args[1]),
        nr::OPEN | nr::OPENAT | nr::OPENAT2 | nr::CREAT => identity(result as u64, blobs),
        _ => {}
    }
}

const GETALL: u32 = 13;
/// Old C libraries ask for the newer structures by this.
const IPC_64: u32 = 0x100;

/// How many semaphores a set has.
fn semaphores(set: u64) -> u64 {
    const IPC_STAT: u64 = 2;
    const COUNT: usize = 10;
    let mut words = [0u64; 13];
    let to = words.as_mut_ptr() as u64;
    sys::call(nr::SEMCTL, set, 0, IPC_STAT, to, 0, 0);
    words[COUNT]
}

/// Where `getxattrat` puts an attribute's value; none if it only tells its length.
pub fn attribute_value(args: &[u64; 6]) -> Option<u64> {
    let [value, size_and_flags] = mem::read::<[u64; 2]>(args[4])?;
    (size_and_flags as u32 != 0).then_some(value)
}

/// Where the options that replace a table of netfilter's write the counters of
/// the old one, and how much that is.
pub fn old_counters(args: &[u64; 6]) -> Option<(u64, u64)> {
    const COUNTER: u64 = 16;
    let [_, level, option, value, ..] = *args;
    // Where in the value the number of counters is, and the pointer to them.
    let (count, pointer) = match (level as u32, option as u32) {
        (0 | 41, 64) => (84, 88), // IPT_SO_SET_REPLACE, IP6T_SO_SET_REPLACE
        (0, 96) => (68, 72),      // ARPT_SO_SET_REPLACE
        (0, 128) => (96, 104),    // EBT_SO_SET_ENTRIES
        _ => return None,
    };
    let count = u64::from(mem::read::<u32>(value + count)?);
    let counters = mem::read::<u64>(value + pointer)?;
    (counters != 0).then_some((counters, count * COUNTER))
}

const AF_UNIX: u16 = 1;

fn is_inet(address: u64) -> bool {
    address != 0 && matches!(mem::read::<u16>(address), Some(2 | 10))
}

/// Of what is neither a file nor a directory, which one it is. Files and
/// directories have a place where one reads, which pipes and terminals have
/// not: to ask for it is the quickest way to tell them.
fn identity(fd: u64, blobs: &mut Blobs) {
    if sys::offset(fd) < 0
        && let Some(stat) = sys::fstat(fd)
        && matches!(stat.mode & 0xf000, 0x1000 | 0x2000)
    {
        let words = [stat.device, stat.inode, u64::from(stat.mode)];
        blobs.words(tag::IDENTITY, &words);
        served::look_at_device(&stat);
    }
}

/// Goes through the descriptors that a message carries, until one is the one that is
/// looked for. True: it was there.
pub fn each_right(message: u64, mut is_it: impl FnMut(u32) -> bool) -> bool {
    const RIGHTS: u64 = 1 << 32 | 1; // SCM_RIGHTS, SOL_SOCKET
    let Some(m) = Message::read(message).filter(|m| m.control != 0) else {
        return false;
    };
    let end = m.control.saturating_add(m.control_len.min(0x1_0000));
    let mut at = m.control;
    while at + 16 <= end {
        let Some([len, kind]) = mem::read::<[u64; 2]>(at).filter(|head| head[0] >= 16) else {
            return false;
        };
        let data_end = at.saturating_add(len).min(end);
        let mut word = at + 16;
        while kind == RIGHTS && word + 4 <= data_end {
            if mem::read::<u32>(word).is_some_and(&mut is_it) {
                return true;
            }
            word += 4;
        }
        at = at.saturating_add(len.saturating_add(7) & !7);
    }
    false
}

/// Which process connected.
fn peer_credentials(fd: u64, blobs: &mut Blobs) {
    const SOL_SOCKET: u64 = 1;
    const SO_PEERCRED: u64 = 17;
    let mut credentials = [0u32; 3];
    let mut len = 12u32;
    let place = credentials.as_mut_ptr() as u64;
    let len_at = (&raw mut len) as u64;
    if sys::call(
        nr::GETSOCKOPT,
        fd,
        SOL_SOCKET,
        SO_PEERCRED,
        place,
        len_at,
        0,
    ) == 0
    {
        blobs.words(tag::CREDENTIALS, &[u64::from(credentials[0])]);
    }
}

/// The family of the address, 0 if there is none.
fn socket_address(number: u64, fd: u64, tag: u8, place: u64, blobs: &mut Blobs) -> u16 {
    let mut len = 110u32;
    if sys::call(number, fd, place, (&raw mut len) as u64, 0, 0, 0) != 0 {
        return 0;
    }
    blobs.memory(tag, place, u64::from(len.min(110)));
    // SAFETY: the thread's own room for an address, which the kernel filled.
    unsafe { core::ptr::read_volatile(place as *const u16) }
}
