//! Pages as they were before they were written in this turn. What differs at its
//! end is what this process tells the others.

use protocol::replay::entry;

use crate::mem;
use crate::sys::{self, nr};

use super::journal::append;
use super::pages::{close, protect};
use super::sharing;
use super::table::{CLEAN, PAGE, Region, holder_of, set_state};

/// Where pages are as they were before this turn.
const KEPT_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_5000_0000;
const KEPT_MAX: u64 = 0x4_0000;
/// Behind them, which pages they are. Side by side: they are searched.
const HEADS_BASE: u64 = KEPT_BASE + KEPT_MAX * PAGE;
const HEAD_SIZE: u64 = 24;
const ROOM: u64 = KEPT_MAX * (PAGE + HEAD_SIZE);
const _: () = assert!(ROOM <= 0x8000_0000);

/// Keeps a page as it is before it is written.
pub(super) fn keep(key: u64, offset: u64, page: u64) {
    let kept = sharing().kept.get();
    if kept >= KEPT_MAX {
        collect();
        return keep(key, offset, page);
    }
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    if kept == 0 {
        // Room for all, used as it is needed.
        sys::call(nr::MMAP, KEPT_BASE, ROOM, 3, flags, u64::MAX, 0);
    }
    let place = Kept::at(kept);
    let head = [key, offset, 0];
    mem::copy(place.head, head.as_ptr() as u64, HEAD_SIZE);
    mem::copy(place.page, page, PAGE);
    sharing().kept.set(kept + 1);
}

/// A kept page: which it is, in how many turns it was not changed, and where it
/// is as it was.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    head: u64,
    page: u64,
}

impl Kept {
    pub(super) fn at(index: u64) -> Kept {
        Kept {
            head: HEADS_BASE + index * HEAD_SIZE,
            page: KEPT_BASE + index * PAGE,
        }
    }
    fn word(&self, index: u64) -> u64 {
        // SAFETY: a word of a kept page's head, mapped with the first that was kept, aligned,
        // and written by nobody meanwhile. (All of them are looked through.)
        unsafe { *((self.head + 8 * index) as *const u64) }
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
        mem::copy(self.head + 16, (&raw const turns) as u64, 8);
    }
    pub(super) fn before(&self) -> u64 {
        self.page
    }
    fn move_to(&self, to: &Kept) {
        mem::copy(to.head, self.head, HEAD_SIZE);
        mem::copy(to.page, self.page, PAGE);
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

/// How many pages stay open from one turn to the next. To compare one takes a fifth of a
/// microsecond, to open and to close it ten times that.
pub(super) const OPEN_MAX: u64 = 512;

/// Appends what was changed when a turn ends. Most pages that were written will be
/// written again in the next: those stay open, and are compared again then.
/// That is much less than to protect a page, to fault and to open it.
pub(super) fn harvest() {
    const IDLE_MAX: u64 = 16;
    const MANY: u64 = 4096;
    let all = sharing().kept.get();
    let (mut at, mut count) = (0, all);
    while at < count {
        let kept = Kept::at(at);
        let holder = holder_of(kept.key(), kept.offset());
        if let Some((region, page)) = holder {
            let idle = match append_changes(&kept, &region, page) {
                true => 0,
                false => kept.idle() + 1,
            };
            if at < OPEN_MAX && idle < IDLE_MAX && region.prot & 3 == 3 {
                kept.set_idle(idle);
                at += 1;
                continue;
            }
            set_state(region.state(page), CLEAN);
            close(&region, page);
        }
        // The last takes its place.
        count -= 1;
        if at < count {
            Kept::at(count).move_to(&kept);
        }
    }
    sharing().kept.set(count);
    if all > MANY {
        const MADV_DONTNEED: u64 = 4;
        let (from, len) = (Kept::at(count).page, (all - count) * PAGE);
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
