//! Code that recording changed: the sites it patched, the stubs it made for
//! them, the instructions it replaced. Replay changes the same at the same
//! events.

use protocol::record::{kind, tag};
use protocol::replay::difference;

use crate::motion;
use crate::state::Thread;
use crate::sys::{self, nr};

use super::compare::diverge;
use super::stream::{consume_silent, next_unseen_for, peek};

/// The instructions that were replaced in code that was mapped just now: its
/// protection, and their words.
pub fn sites_here(thread: &Thread) -> Option<(u64, &'static [u8])> {
    let process = thread.process();
    let record = peek(process)?;
    if record.kind != kind::SITES || process.log.thread.get() != thread.number.get() {
        return None;
    }
    consume_silent(process);
    Some((record.values[0], record.blob(tag::CODE)?.bytes))
}

/// The stubs that recording took memory for, if it did now.
pub fn stub_pool(thread: &Thread) -> Option<u64> {
    let record = next_unseen_for(thread);
    if record.kind != kind::STUBS {
        return None;
    }
    let address = record.values[0];
    consume_silent(thread.process());
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
    let got = sys::call(nr::MMAP, address, record.values[1], 7, flags, u64::MAX, 0);
    (got == address as i64).then_some(address)
}

/// Whether recording patched this site now.
pub fn patches(thread: &Thread, site: u64) -> bool {
    let process = thread.process();
    let Some(record) = peek(process) else {
        return false;
    };
    if process.log.thread.get() != thread.number.get() {
        return false;
    }
    match record.kind {
        kind::STUBS => true,
        kind::PATCH => record.values[0] == site,
        _ => false,
    }
}

/// It did: the record is used up.
pub fn patched(thread: &Thread, stub: u64) {
    let record = next_unseen_for(thread);
    if record.kind != kind::PATCH || record.values[1] != stub {
        diverge(thread, difference::MEMORY, 1, record.values[1], stub);
    }
    consume_silent(thread.process());
    motion::code_changed();
}
