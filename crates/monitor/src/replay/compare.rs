//! Whether the program asks for what it asked for then, and what happens if not.
//! Replay is worth something only because the first difference ends it.

use core::sync::atomic::Ordering::{Relaxed, Release};

use protocol::record::{Record, tag};
use protocol::replay::{difference, outcome, reason};
use protocol::syscall::{Arg, Syscall};

use crate::capture::{self, Message};
use crate::state::Thread;
use crate::sys::{self, nr};
use crate::{mem, player, sharing};

use super::interruption::is_interruption;
use super::stream::stream_of;

/// What happens is not what happened: says so and ends the process.
pub fn diverge(thread: &Thread, what: u32, index: u32, expected: u64, found: u64) -> ! {
    let process = thread.process();
    let stream = stream_of(process);
    stream.difference.store(what, Relaxed);
    stream.thread.store(thread.number.get(), Relaxed);
    stream.index.store(index, Relaxed);
    stream.event.store(process.log.next_event.get(), Relaxed);
    stream.expected.store(expected, Relaxed);
    stream.found.store(found, Relaxed);
    stream.rip.store(thread.call_site.get(), Relaxed);
    let state = if what == difference::SHARED_MEMORY {
        outcome::HELD_UP
    } else {
        outcome::DIVERGED
    };
    stream.outcome.store(state, Release);
    sharing::give_up();
    player::stop(thread, reason::DIVERGED);
    loop {
        sys::call(nr::EXIT_GROUP, 1, 0, 0, 0, 0, 0);
    }
}

pub(super) fn diverge_call(thread: &Thread, record: &Record<'_>, number: u64) -> ! {
    let stream = stream_of(thread.process());
    stream.expected_nr.store(record.nr, Relaxed);
    stream.found_nr.store(number, Relaxed);
    let expected = u64::from(record.kind);
    if is_interruption(record) {
        diverge(thread, difference::PLACE, 0, expected, number);
    }
    diverge(thread, difference::CALL, 0, expected, number)
}

/// Compares a call with the record of it.
pub(super) fn compare(
    thread: &Thread,
    record: &Record<'_>,
    wanted: u8,
    row: &Syscall,
    args: &[u64; 6],
) {
    let number = u64::from(row.nr);
    if record.kind != wanted || record.nr != number {
        diverge_call(thread, record, number);
    }
    for (i, (expected, found)) in record
        .args
        .iter()
        .zip(args)
        .enumerate()
        .take(row.args.len())
    {
        if expected != found {
            diverge(thread, difference::ARGUMENT, i as u32, *expected, *found);
        }
    }
    for blob in record.blobs() {
        let index = usize::from(blob.tag & !tag::PARTIAL);
        let Some((_, arg)) = row.args.get(index) else {
            continue;
        };
        let address = args[index % 6];
        let equal = match *arg {
            Arg::Path | Arg::Str => same(address, blob.bytes),
            Arg::In(..) => same_data(
                blob.tag,
                blob.bytes,
                |len| capture::digest_of(address, len),
                |piece| same(address, piece),
            ),
            Arg::IovIn(count) => {
                same_vector(blob.tag, blob.bytes, address, args[usize::from(count) % 6])
            }
            Arg::MsgIn => Message::read(address)
                .is_some_and(|m| same_vector(blob.tag, blob.bytes, m.iov, m.iov_count)),
            _ => true,
        };
        if !equal {
            diverge(thread, difference::DATA, index as u32, 0, 0);
        }
    }
}

fn same(address: u64, bytes: &[u8]) -> bool {
    let mut place = [0u8; 64];
    let mut done = 0;
    while done < bytes.len() {
        let step = (bytes.len() - done).min(place.len());
        let to = place.as_mut_ptr() as u64;
        if !mem::copy(to, address + done as u64, step as u64) {
            // What cannot be read was recorded as zeroes.
            place = [0; 64];
            mem::copy_what_is_there(to, address + done as u64, step as u64);
        }
        if place[..step] != bytes[done..done + step] {
            return false;
        }
        done += step;
    }
    true
}

fn same_data(
    tag: u8,
    bytes: &[u8],
    digest: impl FnOnce(u64) -> u64,
    same_at: impl Fn(&[u8]) -> bool,
) -> bool {
    if tag & tag::PARTIAL == 0 {
        return same_at(bytes);
    }
    let Some(split) = bytes.len().checked_sub(16) else {
        return false;
    };
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    same_at(&bytes[..split]) && digest(word(split)) == word(split + 8)
}

fn same_vector(tag: u8, bytes: &[u8], iov: u64, count: u64) -> bool {
    same_data(
        tag,
        bytes,
        |_| capture::digest_of_vector(iov, count),
        |expected| {
            let (mut done, mut equal) = (0, true);
            capture::each_piece(iov, count, expected.len() as u64, |address, len| {
                equal &= same(address, &expected[done..done + len as usize]);
                done += len as usize;
            });
            equal
        },
    )
}
