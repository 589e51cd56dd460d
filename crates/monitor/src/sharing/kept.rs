//! Pages as they were before they were written in this turn. What differs at its
//! end is what this process tells the others.

use protocol::replay::entry;

use crate::mem;
use crate::sys::{self, nr};

use super::journal::append;
use super::pages::{close, protect};
use super::sharing;
use super::table::{CLEAN, PAGE, Region, holder_of, set_state};

/// Where pages are as they were before this turn, each behind a word with its
/// key and one with its offset.
const KEPT_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_5000_0000;
const KEPT_MAX: u64 = 0x8000_0000 / KEPT_SIZE;
const KEPT_SIZE: u64 = 2 * PAGE;

/// Keeps a page as it is before it is written.
pub(super) fn keep(key: u64, offset: u64, page: u64) {
    let kept = sharing().kept.get();
    if kept >= KEPT_MAX {
        collect();
        return keep(key, offset, page);
    }
    let place = KEPT_BASE + kept * KEPT_SIZE;
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    if kept == 0 {
        // Room for all, used as it is needed.
        let all = KEPT_MAX * KEPT_SIZE;
        sys::call(nr::MMAP, KEPT_BASE, all, 3, flags, u64::MAX, 0);
    }
    mem::copy(place, (&raw const key) as u64, 8);
    mem::copy(place + 8, (&raw const offset) as u64, 8);
    Kept { place }.set_idle(0);
    mem::copy(place + PAGE, page, PAGE);
    sharing().kept.set(kept + 1);
}

/// A kept page: which it is, in how many turns it was not changed, and where it
/// is as it was.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    place: u64,
}

impl Kept {
    pub(super) fn at(index: u64) -> Kept {
        Kept {
            place: KEPT_BASE + index * KEPT_SIZE,
        }
    }
    fn word(&self, index: u64) -> u64 {
        mem::read_at(self.place, 8 * index)
    }
    pub(super) fn key(&self) -> u64 {
        self.word(0)
    }
    pub(super) fn offset(&self) -> u64 {
        self.word(1)
    }
    fn idle(&self) -> u64 {
        self.word(2)
    }
    fn set_idle(&self, turns: u64) {
        mem::copy(self.place + 16, (&raw const turns) as u64, 8);
    }
    pub(super) fn before(&self) -> u64 {
        self.place + PAGE
    }
}

/// Appends what was changed since the turn began; the pages are clean again.
pub(super) fn collect() {
    for i in 0..sharing().kept.replace(0) {
        let kept = Kept::at(i);
        if let Some((region, page)) = holder_of(kept.key(), kept.offset()) {
            append_changes(&kept, &region, page);
            set_state(region.state(page), CLEAN);
            close(&region, page);
        }
    }
}

/// How many pages stay open from one turn to the next.
pub(super) const OPEN_MAX: u64 = 64;

/// Appends what was changed when a turn ends. Most pages that were written will be
/// written again in the next: those stay open, and are compared again then.
/// That is much less than to protect a page, to fault and to open it.
pub(super) fn harvest() {
    const IDLE_MAX: u64 = 16;
    const MANY: u64 = 4096;
    let count = sharing().kept.get();
    let mut open = 0;
    for i in 0..count {
        let kept = Kept::at(i);
        let Some((region, page)) = holder_of(kept.key(), kept.offset()) else {
            continue;
        };
        let idle = match append_changes(&kept, &region, page) {
            true => 0,
            false => kept.idle() + 1,
        };
        if open < OPEN_MAX && idle < IDLE_MAX && region.prot & 3 == 3 {
            kept.set_idle(idle);
            if open != i {
                mem::copy(Kept::at(open).place, kept.place, 24);
                mem::copy(Kept::at(open).before(), kept.before(), PAGE);
            }
            open += 1;
        } else {
            set_state(region.state(page), CLEAN);
            close(&region, page);
        }
    }
    sharing().kept.set(open);
    if count > MANY {
        const MADV_DONTNEED: u64 = 4;
        let (from, len) = (Kept::at(open).place, (count - open) * KEPT_SIZE);
        sys::call(nr::MADVISE, from, len, MADV_DONTNEED, 0, 0, 0);
    }
}

/// Appends what of a kept page was changed, and keeps it as it is now. False:
/// nothing was.
fn append_changes(kept: &Kept, region: &Region, page: u64) -> bool {
    const WORDS: usize = PAGE as usize / 8;
    const STEP: usize = 16;
    if region.prot & 1 == 0 {
        protect(page, 1);
    }
    // SAFETY: a kept page and a page of a region, whole, readable and aligned;
    // nobody writes to them now.
    let (before, now) = unsafe {
        let before = &*(kept.before() as *const [u64; WORDS]);
        (before, &*(page as *const [u64; WORDS]))
    };
    let (key, offset) = (kept.key(), kept.offset());
    let mut changed = false;
    let mut at = 0;
    while at < WORDS {
        // Most are equal: many at once.
        if at % STEP == 0 {
            let pairs = before[at..at + STEP].iter().zip(&now[at..at + STEP]);
            if pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0 {
                at += STEP;
                continue;
            }
        }
        if before[at] == now[at] {
            at += 1;
            continue;
        }
        let from = at;
        while at < WORDS && before[at] != now[at] {
            at += 1;
        }
        let (from, len) = (8 * from as u64, 8 * (at - from) as u64);
        append(entry::BYTES, key, offset + from, page + from, len);
        mem::copy(kept.before() + from, page + from, len);
        changed = true;
    }
    changed
}
