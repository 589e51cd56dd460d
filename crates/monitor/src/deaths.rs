//! Robust locks whose owner was killed.
//!
//! When a thread ends that holds such locks the kernel marks them for whoever comes
//! next. A thread that ends in its own turn marks them itself (`process::exit`), but
//! nobody has a turn who is killed by SIGKILL, and nothing says when the marks were
//! made, nor where. Who waited for the process knows that it is gone, though, and a
//! mark is a word that says no more than that. So shared memory is searched for such
//! words then, and where they are goes into the log. What looks like a mark and is
//! none does no harm: replay has that word there as well.

use core::cell::Cell;

use protocol::layout::{MONITOR_BASE, MONITOR_END};
use protocol::record::{Record, tag};

use crate::capture::Blobs;
use crate::maps::{self, Mapping};
use crate::mem;
use crate::state::space;
use crate::sys::{self, nr};

const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;
/// In the address of a mark, which is a multiple of four.
const IS_WAITED_FOR: u64 = 1;

const PAGE: u64 = 4096;

/// The program does not want to know how its child ended: we do, and so will who
/// looks at the recording.
pub fn before_wait(number: u64, made: &mut [u64; 6], status: &Cell<u32>) {
    if number == nr::WAIT4 && made[1] == 0 {
        made[1] = status.as_ptr() as u64;
    }
}

/// A thread has waited for a child, and has the turn.
pub fn after_wait(
    number: u64,
    args: &[u64; 6],
    result: i64,
    status: &Cell<u32>,
    blobs: &mut Blobs,
) {
    let is_wait = matches!(number, nr::WAIT4 | nr::WAITID);
    if number == nr::WAIT4 && result > 0 && args[1] == 0 {
        blobs.memory(tag::ENDED, status.as_ptr() as u64, 4);
    }
    if is_wait && result >= 0 && space().shared.get() != 0 && was_killed(number, args, status) {
        search(blobs);
    }
}

fn was_killed(number: u64, args: &[u64; 6], status: &Cell<u32>) -> bool {
    const SIGKILL: u32 = 9;
    const CLD_KILLED: u32 = 2;
    match number {
        nr::WAIT4 if args[1] == 0 => status.get() & 0x7f == SIGKILL,
        nr::WAIT4 => mem::read::<u32>(args[1]).is_some_and(|status| status & 0x7f == SIGKILL),
        _ => {
            let code = mem::read::<u32>(args[2].wrapping_add(8));
            let status = mem::read::<u32>(args[2].wrapping_add(24));
            code == Some(CLD_KILLED) && status == Some(SIGKILL)
        }
    }
}

/// Looks for marks in all memory that is shared and there.
#[cold]
#[inline(never)]
fn search(blobs: &mut Blobs) {
    let mut count = 0;
    maps::each(|mapping| {
        let Mapping { start, end, .. } = mapping;
        let is_ours = start < MONITOR_END && end > MONITOR_BASE;
        if mapping.is_shared && mapping.is_readable && !is_ours {
            count = search_mapping(start, end, count);
        }
        count < space().marked.len()
    });
    if count != 0 {
        let from = space().marked.as_ptr() as u64;
        blobs.memory(tag::MARKED, from, 8 * count as u64);
    }
}

/// Pages that are asked about, and words that are looked at, in one go.
const PAGES: u64 = 256;
const WORDS: u64 = 256;

/// Looks for marks in a mapping. To look at a page that is not there would make
/// one.
fn search_mapping(start: u64, end: u64, mut count: usize) -> usize {
    let mut there = [0u8; PAGES as usize];
    let mut at = start;
    while at < end {
        let len = (end - at).min(PAGES * PAGE);
        let to = there.as_mut_ptr() as u64;
        if sys::call(nr::MINCORE, at, len, to, 0, 0, 0) == 0 {
            let pages = (at..at + len).step_by(PAGE as usize).zip(&there);
            for (page, _) in pages.filter(|(_, there)| **there & 1 != 0) {
                count = search_page(page, count);
            }
        }
        at += len;
    }
    count
}

fn search_page(page: u64, mut count: usize) -> usize {
    let mut words = [0u32; WORDS as usize];
    for from in (page..page + PAGE).step_by(4 * WORDS as usize) {
        if !mem::copy(words.as_mut_ptr() as u64, from, 4 * WORDS) {
            break;
        }
        let marks = words.iter().enumerate();
        for (i, word) in marks.filter(|(_, word)| **word & !WAITERS == OWNER_DIED) {
            let is_waited_for = u64::from(*word & WAITERS != 0) * IS_WAITED_FOR;
            if let Some(place) = space().marked.get(count) {
                place.set((from + 4 * i as u64) | is_waited_for);
                count += 1;
            }
        }
    }
    count
}

/// In replay: they are marked now.
pub fn marked(record: &Record<'_>) {
    for blob in record.blobs().filter(|blob| blob.tag == tag::MARKED) {
        for word in blob.bytes.chunks_exact(8) {
            let place = mem::read_own::<u64>(word).unwrap_or(0);
            let waiters = if place & IS_WAITED_FOR != 0 {
                WAITERS
            } else {
                0
            };
            mem::write(place & !IS_WAITED_FOR, &(OWNER_DIED | waiters));
        }
    }
}
