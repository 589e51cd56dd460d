//! What the children of a fork do not get, or get without its contents
//! (`MADV_DONTFORK`, `MADV_WIPEONFORK`), in replay.
//!
//! The kernel is not told of it there: a fork is also how checkpoints are made,
//! and those have all of the memory. So it is remembered here, for ranges that
//! are followed as they are cut and moved, and done in the child.

use core::cell::Cell;

use protocol::replay::difference;

use crate::state::{Thread, space};
use crate::sys::{self, nr};
use crate::{replay, sharing};

const PAGE: u64 = 4096;

const MADV_DONTNEED: u64 = 4;
const MADV_DONTFORK: u64 = 10;
const MADV_DOFORK: u64 = 11;
const MADV_WIPEONFORK: u64 = 18;
const MADV_KEEPONFORK: u64 = 19;

/// What becomes of a range in a child.
const NOT_THERE: u8 = 1;
const WIPED: u8 = 2;

const RANGES_MAX: usize = 65536;

#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    /// 0 = this place is free.
    what: u8,
}

/// In memory of its own: few processes need it.
struct Table {
    /// How many places are, or were, in use.
    count: Cell<usize>,
    ranges: [Cell<Range>; RANGES_MAX],
}

const TABLE_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_3800_0000;

fn table() -> &'static Table {
    if space().inherits_oddly.replace(1) == 0 {
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
        let len = core::mem::size_of::<Table>() as u64;
        if sys::call(nr::MMAP, TABLE_BASE, len, 3, flags, u64::MAX, 0) != TABLE_BASE as i64 {
            sys::die(b"no room for what children do not inherit");
        }
    }
    // SAFETY: mapped just now or before, never unmapped; all-zero is a valid
    // Table.
    unsafe { &*(TABLE_BASE as *const Table) }
}

/// The places that are, or were, in use.
fn ranges() -> &'static [Cell<Range>] {
    if !is_any() {
        return &[];
    }
    let table = table();
    table.ranges.get(..table.count.get()).unwrap_or(&[])
}

fn up(len: u64) -> u64 {
    len.saturating_add(PAGE - 1) & !(PAGE - 1)
}

fn is_any() -> bool {
    space().inherits_oddly.get() != 0
}

/// Whether advice is of this kind.
pub fn is_advice(advice: u64) -> bool {
    matches!(
        advice,
        MADV_DONTFORK | MADV_DOFORK | MADV_WIPEONFORK | MADV_KEEPONFORK
    )
}

/// `madvise` of a range.
pub fn advise(thread: &Thread, start: u64, len: u64, advice: u64) {
    let end = start.saturating_add(up(len));
    match advice {
        MADV_DONTFORK => add(thread, start, end, NOT_THERE),
        MADV_WIPEONFORK => add(thread, start, end, WIPED),
        MADV_DOFORK => cut(thread, start, end, NOT_THERE),
        MADV_KEEPONFORK => cut(thread, start, end, WIPED),
        _ => {}
    }
}

fn add(thread: &Thread, start: u64, end: u64, what: u8) {
    cut(thread, start, end, what);
    put(thread, Range { start, end, what });
}

fn put(thread: &Thread, range: Range) {
    if range.start >= range.end {
        return;
    }
    // With what it continues it is one.
    let neighbour = ranges().iter().find(|place| {
        let other = place.get();
        other.what == range.what && (other.end == range.start || other.start == range.end)
    });
    if let Some(place) = neighbour {
        let other = place.get();
        place.set(Range {
            start: other.start.min(range.start),
            end: other.end.max(range.end),
            ..range
        });
        return;
    }
    let free = ranges().iter().find(|place| place.get().what == 0);
    let place = free.or_else(|| {
        let table = table();
        let fresh = table.ranges.get(table.count.get());
        table
            .count
            .set(table.count.get() + usize::from(fresh.is_some()));
        fresh
    });
    match place {
        Some(place) => place.set(range),
        None => replay::diverge(thread, difference::MEMORY, 3, range.start, range.end),
    }
}

/// The range is not what it was in these respects.
fn cut(thread: &Thread, start: u64, end: u64, what: u8) {
    for place in ranges() {
        let range = place.get();
        if range.what & what == 0 || range.start >= end || start >= range.end {
            continue;
        }
        place.set(Range { what: 0, ..range });
        put(
            thread,
            Range {
                end: start.max(range.start),
                ..range
            },
        );
        put(
            thread,
            Range {
                start: end.min(range.end),
                ..range
            },
        );
    }
}

/// Something else is mapped there now, or nothing.
pub fn forget(thread: &Thread, start: u64, len: u64) {
    if is_any() {
        cut(
            thread,
            start,
            start.saturating_add(up(len)),
            NOT_THERE | WIPED,
        );
    }
}

/// `mremap`: what was said of a mapping goes along with it, also for what it
/// has grown by.
pub fn moved(thread: &Thread, old: u64, old_len: u64, new: u64, new_len: u64, stays: bool) {
    if !is_any() {
        return;
    }
    let (old_end, new_end) = (old + up(old_len), new + up(new_len));
    // What is at the end is of the whole mapping, which is one.
    let last = if old_len == 0 { old } else { old_end - 1 };
    let mut whole = 0;
    for place in ranges() {
        let range = place.get();
        if range.what != 0 && (range.start..range.end).contains(&last) {
            whole |= range.what;
        }
    }
    if old != new {
        forget(thread, new, new_len);
    }
    if !stays {
        forget(thread, old, old_len);
    }
    for what in [NOT_THERE, WIPED] {
        if whole & what != 0 {
            add(thread, new, new_end, what);
        }
    }
}

/// This is the child: what it shall not have goes.
pub fn forked(thread: &Thread) {
    if !is_any() {
        return;
    }
    for place in ranges() {
        let range = place.get();
        let len = range.end.wrapping_sub(range.start);
        match range.what {
            NOT_THERE => {
                sharing::forget(thread, range.start, len);
                sys::call(nr::MUNMAP, range.start, len, 0, 0, 0, 0);
                place.set(Range { what: 0, ..range });
            }
            WIPED => {
                sys::call(nr::MADVISE, range.start, len, MADV_DONTNEED, 0, 0, 0);
            }
            _ => {}
        }
    }
}
