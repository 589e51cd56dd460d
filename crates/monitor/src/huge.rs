//! Memory in huge pages that a program asked for as such. The kernel counts it in these: it
//! maps whole ones, and discards only whole ones. Replay has small pages, so where that makes a
//! difference the log says what was mapped and discarded.

use crate::memory::discards;
use crate::state::space;
use crate::sys::{self, nr};

const PAGE: u64 = 4096;
const MEDIUM: u64 = 1 << 21;
const LARGE: u64 = 1 << 30;

const MAP_HUGETLB: u64 = 0x40000;
const MADV_REMOVE: u64 = 9;

/// How large the pages are of which the memory at an address is, if they are huge.
///
/// Asked by a call that changes nothing: to let a page stay as large as it is, where it is. In the middle of a huge
/// page that is refused.
fn page_at(address: u64) -> Option<u64> {
    let is_within_one = |at: u64| sys::call(nr::MREMAP, at, PAGE, PAGE, 0, 0, 0) == -sys::EINVAL;
    let start = address & !(MEDIUM - 1);
    if !is_within_one(start + PAGE) {
        return None;
    }
    let other = if start.is_multiple_of(LARGE) {
        start + MEDIUM
    } else {
        start
    };
    Some(if is_within_one(other) { LARGE } else { MEDIUM })
}

/// How much was mapped, if that is more than was asked for. `block`: what the file that
/// was mapped is best written in.
pub fn mapped(start: u64, len: u64, flags: u64, block: u64) -> Option<u64> {
    if flags & MAP_HUGETLB == 0 && block < MEDIUM {
        return None;
    }
    attached(start, len)
}

/// [`mapped`] of a segment.
pub fn attached(start: u64, len: u64) -> Option<u64> {
    let page = page_at(start)?;
    space().has_huge.set(1);
    let whole = len.checked_next_multiple_of(page)?;
    (whole != len).then_some(whole)
}

/// How much advice is about that was taken, if that is less than was asked for.
pub fn advised(start: u64, len: u64, advice: u64) -> Option<u64> {
    if space().has_huge.get() == 0 || !discards(advice) || advice == MADV_REMOVE {
        return None;
    }
    let end = start.checked_add(len)?.checked_next_multiple_of(PAGE)?;
    if len == 0 || end.is_multiple_of(MEDIUM) {
        return None;
    }
    let page = page_at(end - PAGE)?;
    let whole = (end & !(page - 1)).saturating_sub(start);
    (whole != len).then_some(whole)
}
