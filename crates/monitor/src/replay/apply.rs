//! What the kernel wrote for the program then, from the log into memory.

use protocol::record::{Record, object, tag};
use protocol::syscall::{Arg, Syscall};

use crate::capture::{self, Message};
use crate::sys::nr;
use crate::{ioctl, mem, moved, poke, sharing};

/// Writes again what the kernel wrote.
pub(super) fn apply(row: &Syscall, args: &[u64; 6], record: &Record<'_>) {
    let copy = |to: u64, bytes: &[u8]| mem::copy(to, bytes.as_ptr() as u64, bytes.len() as u64);
    let message = row
        .args
        .iter()
        .position(|(_, arg)| matches!(arg, Arg::MsgOut));
    for blob in record.blobs() {
        let index = usize::from(blob.tag);
        let header = message.map_or(0, |i| args[i % 6]);
        match (row.args.get(index).map(|(_, arg)| *arg), blob.tag) {
            (Some(Arg::Out(..) | Arg::InOut(..)), _) => {
                copy(args[index % 6], blob.bytes);
            }
            (Some(Arg::IovOut(count)), _) => {
                scatter(args[index % 6], args[usize::from(count) % 6], blob.bytes);
            }
            (Some(Arg::MsgOut), _) => {
                if let Some(m) = Message::read(header) {
                    scatter(m.iov, m.iov_count, blob.bytes);
                }
            }
            (Some(Arg::MmsgOut(_)), _) => messages(args[index % 6], blob.bytes),
            // Words that it changed.
            (Some(Arg::Addr), 0 | 4) if u64::from(row.nr) == nr::FUTEX => {
                copy(args[index % 6], blob.bytes);
            }
            // The new thread's number, or a descriptor of it.
            (Some(Arg::Addr), 2) if u64::from(row.nr) == nr::CLONE => {
                copy(args[2], blob.bytes);
            }
            (Some(Arg::MmsgIn(_)), _) => {
                // Only each message's length was the kernel's.
                for (i, entry) in blob.bytes.chunks_exact(64).enumerate() {
                    copy(args[index % 6] + 64 * i as u64 + 56, &entry[56..60]);
                }
            }
            (_, tag::NAME) if header != 0 => {
                if let Some(m) = Message::read(header) {
                    copy(m.name, blob.bytes);
                }
            }
            (_, tag::CONTROL) if header != 0 => {
                if let Some(m) = Message::read(header) {
                    copy(m.control, blob.bytes);
                }
            }
            _ => {}
        }
    }
    // The lengths last: they say where names and control bytes went.
    if let (Some(i), Some(head)) = (message, record.blob(tag::HEADER)) {
        let header = args[i % 6];
        copy(header + 8, &head.bytes[..4.min(head.bytes.len())]);
        copy(header + 40, head.bytes.get(8..16).unwrap_or(&[]));
        copy(header + 48, head.bytes.get(16..20).unwrap_or(&[]));
    }
}

fn scatter(iov: u64, count: u64, bytes: &[u8]) {
    let mut done = 0;
    capture::each_piece(iov, count, bytes.len() as u64, |address, len| {
        mem::copy(address, bytes.as_ptr() as u64 + done, len);
        done += len;
    });
}

/// What recvmmsg filled in (see `capture::write_messages`).
fn messages(vector: u64, mut bytes: &[u8]) {
    let mut at = vector;
    while bytes.len() >= 16 {
        let word = |i: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[4 * i..4 * i + 4]);
            u32::from_le_bytes(word)
        };
        let (data, name, control, flags) = (word(0), word(1), word(2), word(3));
        let mut rest = &bytes[16..];
        let mut take = |len: u32| {
            let (piece, after) = rest.split_at((len as usize).min(rest.len()));
            rest = after;
            piece
        };
        let (name, control, data) = (take(name), take(control), take(data));
        if let Some(m) = Message::read(at) {
            mem::copy(m.name, name.as_ptr() as u64, name.len() as u64);
            mem::copy(m.control, control.as_ptr() as u64, control.len() as u64);
            scatter(m.iov, m.iov_count, data);
            if m.name != 0 {
                mem::write(at + 8, &(name.len() as u32));
            }
            mem::write(at + 40, &(control.len() as u64));
            mem::write(at + 48, &flags);
            mem::write(at + 56, &(data.len() as u32));
        }
        bytes = rest;
        at += 64;
    }
}

/// What `ioctl` and `getxattrat` wrote, which their rows do not say.
pub(super) fn answer_request(row: &Syscall, args: &[u64; 6], record: &Record<'_>) {
    if u64::from(row.nr) == nr::GETXATTRAT
        && let (Some(blob), Some(to)) = (record.blob(tag::PIECE), capture::attribute_value(args))
    {
        mem::copy(to, blob.bytes.as_ptr() as u64, blob.bytes.len() as u64);
    }
    if u64::from(row.nr) != nr::IOCTL || record.result < 0 {
        return;
    }
    if let Some(blob) = record.blob(2) {
        mem::copy(args[2], blob.bytes.as_ptr() as u64, blob.bytes.len() as u64);
    }
    if let (Some(blob), Some(buffer)) = (record.blob(tag::PIECE), ioctl::further_memory(args)) {
        mem::copy(buffer, blob.bytes.as_ptr() as u64, blob.bytes.len() as u64);
    }
}

/// What was done to a file shows where the file is mapped.
pub(super) fn write_through(row: &Syscall, args: &[u64; 6], record: &Record<'_>) {
    let Some(blob) = record.blob(tag::OBJECT) else {
        return;
    };
    if record.result < 0 {
        return;
    }
    let Some([key, offset]) = mem::read_own::<[u64; 2]>(blob.bytes) else {
        return;
    };
    if key == object::MEMORY {
        let mut at = offset;
        let mut poke = |from: u64, len: u64| {
            poke::write_again(at, from, len);
            at += len;
        };
        let len = record.result as u64;
        match u64::from(row.nr) {
            nr::WRITEV | nr::PWRITEV | nr::PWRITEV2 => {
                capture::each_piece(args[1], args[2], len, poke);
            }
            _ => poke(args[1], len.min(args[2])),
        }
        return;
    }
    // How long it is now; older recordings do not say.
    let size = mem::read_own::<[u64; 3]>(blob.bytes).map(|[_, _, size]| size);
    if let Some(size) = size {
        sharing::resized(key, size);
    }
    let len = record.result as u64;
    match u64::from(row.nr) {
        number if moved::is_read_back(number, args) => {
            if let Some(blob) = record.blob(tag::PIECE) {
                let (from, len) = (blob.bytes.as_ptr() as u64, blob.bytes.len() as u64);
                sharing::written(key, offset, from, len);
            }
        }
        nr::FALLOCATE => {
            const PUNCH_HOLE: u64 = 2;
            const ZERO_RANGE: u64 = 16;
            if args[1] & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                sharing::cleared(key, args[2], args[3], size);
            }
        }
        _ if offset == object::NOWHERE => {}
        nr::WRITEV | nr::PWRITEV | nr::PWRITEV2 => {
            let mut at = offset;
            capture::each_piece(args[1], args[2], len, |address, len| {
                sharing::written(key, at, address, len);
                at += len;
            });
        }
        _ => sharing::written(key, offset, args[1], len.min(args[2])),
    }
}
