//! Which bytes go with an event: what the kernel read through a call's
//! pointers, for people and for comparison in replay, and what it wrote, which
//! replay will write again.

use core::mem::MaybeUninit;

use protocol::record::{BLOBS_MAX, digest, tag};
use protocol::syscall::{Arg, Len, Shape, Syscall, Type};

use crate::state::Thread;
use crate::sys::{self, nr};
use crate::{log, mem};

/// Of data that leaves the program, this much is kept (replay makes the rest
/// again; a digest tells if it is the same).
const SENT_MAX: u64 = 64;
/// Longest structure kept of what the kernel only reads.
const INPUT_MAX: u64 = 256;
const PATH_MAX: u64 = 4096;
const IOV_MAX: u64 = 1024;

#[derive(Clone, Copy)]
enum Piece {
    /// Program memory.
    Memory {
        address: u64,
        len: u64,
    },
    /// The first bytes of program memory, its length and digest.
    Partial {
        address: u64,
        len: u64,
    },
    /// What an iovec array describes, at most `len` bytes.
    Vector {
        iov: u64,
        count: u64,
        len: u64,
    },
    PartialVector {
        iov: u64,
        count: u64,
        len: u64,
    },
    /// Words of our own.
    Words {
        words: [u64; 3],
        len: u64,
    },
    /// Messages received by recvmmsg.
    Messages {
        vector: u64,
        count: u64,
        len: u64,
    },
}

/// The blobs of one record, collected before it is begun. Made for every call:
/// nothing is initialized that is not used.
pub struct Blobs {
    pieces: [MaybeUninit<(u8, Piece)>; PIECES],
    count: usize,
}

const PIECES: usize = 12;

impl Blobs {
    #[inline]
    pub fn new() -> Blobs {
        Blobs {
            pieces: [const { MaybeUninit::uninit() }; PIECES],
            count: 0,
        }
    }
    pub fn count(&self) -> u8 {
        self.count as u8
    }
    fn push(&mut self, tag: u8, piece: Piece) {
        const { assert!(PIECES <= BLOBS_MAX as usize) };
        if let Some(place) = self.pieces.get_mut(self.count) {
            place.write((tag, piece));
            self.count += 1;
        }
    }
    pub fn memory(&mut self, tag: u8, address: u64, len: u64) {
        self.push(tag, Piece::Memory { address, len });
    }
    pub fn words(&mut self, tag: u8, words: &[u64]) {
        let mut own = [0; 3];
        for (to, from) in own.iter_mut().zip(words) {
            *to = *from;
        }
        self.push(
            tag,
            Piece::Words {
                words: own,
                len: 8 * words.len().min(3) as u64,
            },
        );
    }
    fn sent(&mut self, tag: u8, address: u64, len: u64) {
        if len <= SENT_MAX {
            self.memory(tag, address, len);
        } else {
            self.push(tag | tag::PARTIAL, Piece::Partial { address, len });
        }
    }

    /// Writes all of them to a record that was begun with their count.
    pub fn write<'a>(&self, mut entry: log::Entry<'a>) -> log::Entry<'a> {
        for place in self.pieces.iter().take(self.count) {
            // SAFETY: the first `count` have been written.
            let (tag, piece) = unsafe { place.assume_init_ref() };
            entry = match *piece {
                Piece::Memory { address, len } => entry.blob(*tag, address, len),
                Piece::Words { ref words, len } => entry.blob(*tag, words.as_ptr() as u64, len),
                Piece::Partial { address, len } => {
                    let marks = [len, digest_of(address, len)];
                    entry
                        .blob_begin(*tag, SENT_MAX + 16)
                        .piece(address, SENT_MAX)
                        .piece(marks.as_ptr() as u64, 16)
                }
                Piece::Vector { iov, count, len } => {
                    write_vector(entry.blob_begin(*tag, len), iov, count, len)
                }
                Piece::PartialVector { iov, count, len } => {
                    let marks = [len, digest_of_vector(iov, count)];
                    write_vector(entry.blob_begin(*tag, SENT_MAX + 16), iov, count, SENT_MAX)
                        .piece(marks.as_ptr() as u64, 16)
                }
                Piece::Messages { vector, count, len } => {
                    write_messages(entry.blob_begin(*tag, len), vector, count)
                }
            };
        }
        entry
    }
}

pub fn digest_of(address: u64, len: u64) -> u64 {
    if !mem::is_readable(address, len) {
        return 0;
    }
    // SAFETY: just seen to be readable; the caller has the turn.
    digest(unsafe { core::slice::from_raw_parts(address as *const u8, len as usize) })
}

pub fn digest_of_vector(iov: u64, count: u64) -> u64 {
    let mut sum = 0u64;
    each_piece(iov, count, u64::MAX, |address, len| {
        sum = sum.rotate_left(7) ^ digest_of(address, len);
    });
    sum
}

/// Calls `f` for each piece of an iovec array, up to `limit` bytes in all;
/// returns how many there were.
pub fn each_piece(iov: u64, count: u64, limit: u64, mut f: impl FnMut(u64, u64)) -> u64 {
    let mut total = 0;
    for i in 0..count.min(IOV_MAX) {
        let at = iov + 16 * i;
        let (Some(address), Some(len)) = (mem::read_word(at), mem::read_word(at + 8)) else {
            break;
        };
        let len = len.min(limit - total);
        if len > 0 {
            f(address, len);
        }
        total += len;
        if total == limit {
            break;
        }
    }
    total
}

/// Writes exactly `len` bytes, zeroes if the vector has fewer.
fn write_vector(entry: log::Entry<'_>, iov: u64, count: u64, len: u64) -> log::Entry<'_> {
    let mut slot = Some(entry);
    let mut total = each_piece(iov, count, len, |address, len| {
        slot = slot.take().map(|entry| entry.piece(address, len));
    });
    let zeroes = [0u8; 64];
    while total < len {
        let step = (len - total).min(64);
        slot = slot
            .take()
            .map(|entry| entry.piece(zeroes.as_ptr() as u64, step));
        total += step;
    }
    match slot {
        Some(entry) => entry,
        None => sys::die(b"a record was lost"),
    }
}

/// A message header: name, name length, iovec, count, control, its length,
/// flags.
pub struct Message {
    pub name: u64,
    pub name_len: u64,
    pub iov: u64,
    pub iov_count: u64,
    pub control: u64,
    pub control_len: u64,
    pub flags: u32,
}

impl Message {
    pub fn read(address: u64) -> Option<Message> {
        let words = mem::read::<[u64; 7]>(address)?;
        Some(Message {
            name: words[0],
            name_len: words[1] & 0xffff_ffff,
            iov: words[2],
            iov_count: words[3],
            control: words[4],
            control_len: words[5],
            flags: words[6] as u32,
        })
    }
    fn received_len(&self, len: u64) -> u64 {
        16 + self.name_stored() + self.control_stored() + len
    }
    fn name_stored(&self) -> u64 {
        if self.name == 0 {
            0
        } else {
            self.name_len.min(128)
        }
    }
    fn control_stored(&self) -> u64 {
        if self.control == 0 {
            0
        } else {
            self.control_len.min(65536)
        }
    }
}

const MESSAGE: u64 = 64;

fn messages_len(vector: u64, count: u64) -> u64 {
    let mut total = 0;
    for i in 0..count.min(IOV_MAX) {
        let at = vector + MESSAGE * i;
        if let (Some(m), Some(len)) = (Message::read(at), mem::read::<u32>(at + 56)) {
            let data = each_piece(m.iov, m.iov_count, u64::from(len), |_, _| {});
            total += m.received_len(data);
        }
    }
    total
}

/// Each message: data length, name length, control length, flags (u32 each),
/// then name, control, data.
fn write_messages(mut entry: log::Entry<'_>, vector: u64, count: u64) -> log::Entry<'_> {
    for i in 0..count.min(IOV_MAX) {
        let at = vector + MESSAGE * i;
        let (Some(m), Some(len)) = (Message::read(at), mem::read::<u32>(at + 56)) else {
            continue;
        };
        let data = each_piece(m.iov, m.iov_count, u64::from(len), |_, _| {});
        let head = [
            data as u32,
            m.name_stored() as u32,
            m.control_stored() as u32,
            m.flags,
        ];
        entry = entry
            .piece(head.as_ptr() as u64, 16)
            .piece(m.name, m.name_stored())
            .piece(m.control, m.control_stored());
        entry = write_vector(entry, m.iov, m.iov_count, data);
    }
    entry
}

/// The lengths that calls read from memory and write back, before the call.
#[inline]
pub fn lengths_before(row: &Syscall, args: &[u64; 6]) -> [u64; 6] {
    let mut before = [0; 6];
    for (_, arg) in row.args {
        if let Arg::Out(_, len) | Arg::InOut(_, len) = arg {
            match *len {
                Len::Pointee(i) => {
                    let i = usize::from(i) % 6;
                    before[i] = u64::from(mem::read::<u32>(args[i]).unwrap_or(0));
                }
                Len::Pointee64(i) => {
                    let i = usize::from(i) % 6;
                    before[i] = mem::read::<u64>(args[i]).unwrap_or(0);
                }
                _ => {}
            }
        }
    }
    before
}

/// Largest number of bytes a length can come to.
const LEN_MAX: u64 = 1 << 40;

fn by_command(command: u64, list: &[(u32, u32)]) -> u64 {
    list.iter()
        .find(|(value, _)| *value == command as u32)
        .map_or(0, |(_, len)| u64::from(*len))
}

/// How many bytes an argument's pointer stands for, given the call's result.
fn length(len: Len, args: &[u64; 6], result: i64, before: &[u64; 6]) -> u64 {
    let result = result.max(0) as u64;
    let arg = |i: u8| args[usize::from(i) % 6];
    let known = |i: u8| before[usize::from(i) % 6];
    let value = match len {
        Len::Fixed(n) => u64::from(n),
        Len::Arg(i) => arg(i),
        Len::ArgTimes(i, n) => (arg(i) & 0xffff_ffff).saturating_mul(u64::from(n)),
        Len::Ret => result,
        Len::RetTimes(n) => result.saturating_mul(u64::from(n)),
        Len::Bits(i) => ((arg(i) as u32 as i32).max(0) as u64).div_ceil(64) * 8,
        Len::Pointee(i) => u64::from(mem::read::<u32>(arg(i)).unwrap_or(0)).min(known(i)),
        Len::Pointee64(i) => mem::read::<u64>(arg(i)).unwrap_or(0).min(known(i)),
        Len::RetMax(i) => result.min(arg(i)),
        Len::RetTimesMax(n, i) => result.min(arg(i)).saturating_mul(u64::from(n)),
        Len::RetPlus(n) => result.saturating_add(u64::from(n)),
        Len::ArgPlus(i, n) => arg(i).saturating_add(u64::from(n)),
        Len::ArgPages(i) => arg(i).div_ceil(4096),
        Len::NodeBits(i) => (arg(i).saturating_sub(1)).div_ceil(64) * 8,
        Len::HeadPlus(i, n) => {
            /// Longer ones do not exist.
            const MOST: u32 = 4096;
            let more = mem::read::<u32>(arg(i)).unwrap_or(0).min(MOST);
            u64::from(n) + u64::from(more)
        }
        Len::By(i, list) => by_command(arg(i), list),
    };
    value.min(LEN_MAX)
}

/// The most bytes the kernel may write behind argument `index`, before the
/// call: how much room a redirected call needs.
pub fn capacity(index: usize, len: Len, args: &[u64; 6]) -> u64 {
    let arg = |i: u8| args[usize::from(i) % 6];
    let value = match len {
        // The size follows the buffer in every call with such a row.
        Len::Ret => args[(index + 1) % 6],
        Len::RetTimes(n) => (args[(index + 1) % 6] & 0x7fff_ffff).saturating_mul(u64::from(n)),
        Len::RetMax(i) => arg(i),
        Len::RetTimesMax(n, i) => arg(i).saturating_mul(u64::from(n)),
        Len::RetPlus(n) => args[(index + 1) % 6].saturating_add(u64::from(n)),
        Len::Pointee(i) => u64::from(mem::read::<u32>(arg(i)).unwrap_or(0)),
        Len::Pointee64(i) => mem::read::<u64>(arg(i)).unwrap_or(0),
        other => length(other, args, 0, &[0; 6]),
    };
    value.min(LEN_MAX)
}

pub fn string_len(address: u64) -> Option<u64> {
    let mut len = 0;
    while len < PATH_MAX {
        // Word by word; a word never reaches into another page.
        let at = address + len;
        let before = 8 * (at & 7);
        let word = mem::read_word(at & !7)? >> before;
        // The lowest byte that is zero sets its highest bit here; what lies
        // before the string was shifted out.
        let zeroes = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        let bytes = u64::from(zeroes.trailing_zeros() / 8);
        let there = 8 - (at & 7);
        if bytes < there {
            return Some(len + bytes);
        }
        len += there;
    }
    Some(len)
}

/// What the kernel reads.
#[inline]
pub fn inputs(row: &Syscall, args: &[u64; 6], blobs: &mut Blobs) {
    for (i, (_, arg)) in row.args.iter().enumerate() {
        let value = args[i % 6];
        let tag = i as u8;
        match *arg {
            Arg::Path | Arg::Str if value != 0 => {
                if let Some(len) = string_len(value) {
                    blobs.memory(tag, value, len);
                }
            }
            Arg::In(shape, len) if value != 0 => {
                let len = length(len, args, 0, &[0; 6]);
                if len == 0 {
                } else if matches!(shape, Shape::Text | Shape::Bytes) {
                    blobs.sent(tag, value, len);
                } else {
                    blobs.memory(tag, value, len.min(INPUT_MAX));
                }
            }
            Arg::IovIn(count) => {
                sent_vector(blobs, tag, value, args[usize::from(count) % 6]);
            }
            Arg::MsgIn => {
                if let Some(message) = Message::read(value) {
                    sent_vector(blobs, tag, message.iov, message.iov_count);
                    if message.name != 0 && message.name_len != 0 {
                        blobs.memory(tag::NAME, message.name, message.name_len.min(128));
                    }
                    if message.control != 0 && message.control_len != 0 {
                        blobs.memory(tag::CONTROL, message.control, message.control_len.min(4096));
                    }
                }
            }
            _ => {}
        }
    }
}

/// What a wait for several descriptors waits for, which the kernel overwrites
/// with what came of it. Told at the start: while it waits, nothing else tells.
pub fn awaited(row: &Syscall, args: &[u64; 6], blobs: &mut Blobs) {
    /// Longer ones are rare, and only their end is kept.
    const MOST: u64 = 1024;
    if row.kind != Type::Poll {
        return;
    }
    for (i, (_, arg)) in row.args.iter().enumerate() {
        let value = args[i % 6];
        if let Arg::InOut(_, len) = *arg {
            let len = length(len, args, 0, &[0; 6]);
            if len != 0 && len <= MOST && mem::is_readable(value, len) {
                blobs.memory(tag::BEFORE | i as u8, value, len);
            }
        }
    }
}

fn sent_vector(blobs: &mut Blobs, tag: u8, iov: u64, count: u64) {
    let len = each_piece(iov, count, u64::MAX, |_, _| {});
    if len <= SENT_MAX {
        blobs.push(tag, Piece::Vector { iov, count, len });
    } else {
        blobs.push(tag | tag::PARTIAL, Piece::PartialVector { iov, count, len });
    }
}

/// What the kernel wrote.
#[inline]
pub fn outputs(row: &Syscall, args: &[u64; 6], result: i64, before: &[u64; 6], blobs: &mut Blobs) {
    let failed = result < 0;
    for (i, (_, arg)) in row.args.iter().enumerate() {
        let value = args[i % 6];
        let tag = i as u8;
        if value == 0 {
            continue;
        }
        match *arg {
            Arg::Out(_, len) if !failed => {
                let len = length(len, args, result, before);
                if len != 0 {
                    blobs.memory(tag, value, len);
                }
            }
            Arg::InOut(_, len) => {
                let unsure = matches!(result, -14 | -22);
                let sized = matches!(len, Len::Fixed(_) | Len::By(..));
                let len = length(len, args, result, before);
                if len != 0 && (!unsure || sized) && mem::is_readable(value, len) {
                    blobs.memory(tag, value, len);
                }
            }
            Arg::IovOut(count) if result > 0 => {
                let count = args[usize::from(count) % 6];
                blobs.push(
                    tag,
                    Piece::Vector {
                        iov: value,
                        count,
                        len: result as u64,
                    },
                );
            }
            Arg::MsgOut if !failed => {
                let Some(message) = Message::read(value) else {
                    continue;
                };
                // With MSG_TRUNC the result may exceed what was written.
                let room = each_piece(message.iov, message.iov_count, u64::MAX, |_, _| {});
                let len = (result as u64).min(room);
                let (iov, count) = (message.iov, message.iov_count);
                blobs.push(tag, Piece::Vector { iov, count, len });
                let head = [
                    message.name_len,
                    message.control_len,
                    u64::from(message.flags),
                ];
                blobs.words(tag::HEADER, &head);
                if message.name_stored() != 0 {
                    blobs.memory(tag::NAME, message.name, message.name_stored());
                }
                if message.control_stored() != 0 {
                    blobs.memory(tag::CONTROL, message.control, message.control_stored());
                }
            }
            Arg::MmsgOut(_) if result > 0 => {
                let (vector, count) = (value, result as u64);
                let len = messages_len(vector, count);
                blobs.push(tag, Piece::Messages { vector, count, len });
            }
            Arg::MmsgIn(_) if result > 0 => {
                // The kernel wrote each message's length: the headers.
                blobs.memory(tag, value, MESSAGE * (result as u64).min(IOV_MAX));
            }
            _ => {}
        }
    }
}

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
    }
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

/// The signal mask a waiting call sets for the time it waits.
pub fn wait_mask(number: u64, args: &[u64; 6]) -> Option<u64> {
    let address = match number {
        nr::PPOLL => args[3],
        nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => args[4],
        nr::PSELECT6 if args[5] != 0 => mem::read::<u64>(args[5])?,
        _ => return None,
    };
    if address == 0 {
        None
    } else {
        mem::read::<u64>(address)
    }
}
