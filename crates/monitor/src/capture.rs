//! Which bytes go with an event: what the kernel read through a call's
//! pointers, for people and for comparison in replay, and what it wrote, which
//! replay will write again.

mod blobs;
mod extra;

use protocol::record::tag;
use protocol::syscall::{Arg, Len, Shape, Syscall, Type};

use crate::mem;
use crate::sys::nr;

use blobs::{IOV_MAX, MESSAGE, Piece, messages_len};

pub use blobs::{Blobs, Message, digest_of, digest_of_vector, each_piece};
pub use extra::{attribute_value, each_right, extra, old_counters};

/// Of data that leaves the program, this much is kept (replay makes the rest
/// again; a digest tells if it is the same).
const SENT_MAX: u64 = 64;
/// Longest structure kept of what the kernel only reads.
const INPUT_MAX: u64 = 256;
const PATH_MAX: u64 = 4096;

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
