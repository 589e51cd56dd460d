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

pub const RANGES_MAX: usize = 512;

#[derive(Clone, Copy)]
pub struct Range {
    start: u64,
    end: u64,
    /// 0 = this place is free.
    what: u8,
}

type Ranges = [Cell<Range>; RANGES_MAX];

fn ranges() -> &'static Ranges {
    &space().inherit
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
    space().inherits_oddly.set(1);
    cut(thread, start, end, what);
    put(thread, Range { start, end, what });
}

fn put(thread: &Thread, range: Range) {
    if range.start >= range.end {
        return;
    }
    match ranges().iter().find(|place| place.get().what == 0) {
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
