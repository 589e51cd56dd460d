//! Changes to objects that calls make rather than the program's instructions:
//! what they write, clear and discard.

use protocol::replay::entry;

use crate::mem;
use crate::sys::{self, nr};

use super::PRIVATE;
use super::journal::{append, is_written};
use super::kept::keep;
use super::pages::{close, disown, open, settle};
use super::table::{
    CLEAN, DIRTY, OWN, PAGE, cells, holder_of, is_mapped, regions, set_state, size_of, state, up,
};

pub(super) static ZEROES: [u64; PAGE as usize / 8] = [0; PAGE as usize / 8];

/// The process wrote to an object by a call: as if to memory.
pub fn written(key: u64, offset: u64, from: u64, len: u64) {
    let mut done = 0;
    while done < len {
        let at = offset.wrapping_add(done);
        let step = (PAGE - (at & (PAGE - 1))).min(len - done);
        write_page(key, at, from + done, step);
        done += step;
    }
}

/// The process had a call clear a part of an object that is `size` long: zeroes were
/// written there, as far as the object reaches.
pub fn cleared(key: u64, offset: u64, len: u64, size: Option<u64>) {
    let end = offset
        .saturating_add(len)
        .min(size.or_else(|| size_of(key)).unwrap_or(u64::MAX));
    if tells(key) && size.is_some() {
        let mut at = offset;
        while at < end {
            let step = (PAGE - (at & (PAGE - 1))).min(end - at);
            append(entry::BYTES, key, at, (&raw const ZEROES) as u64, step);
            at += step;
        }
        return;
    }
    // Only what is mapped is looked at.
    for cell in cells() {
        let region = cell.get();
        if region.key != key {
            continue;
        }
        let mut at = offset.max(region.offset);
        let end = end.min(region.offset + region.len());
        while at < end {
            let step = (PAGE - (at & (PAGE - 1))).min(end - at);
            write_page(key, at, (&raw const ZEROES) as u64, step);
            at += step;
        }
    }
}

/// Whether others have an object mapped that this process has not: it has nothing to
/// change, but something to tell.
pub(super) fn tells(key: u64) -> bool {
    is_written() && !is_mapped(key)
}

/// Writes to one page of an object, if it is anywhere.
fn write_page(key: u64, at: u64, from: u64, len: u64) {
    let Some((region, page)) = holder_of(key, at & !(PAGE - 1)) else {
        // It may be where others have it.
        if is_written() {
            append(entry::BYTES, key, at, from, len);
        }
        return;
    };
    if state(region.state(page)) == CLEAN && is_written() {
        keep(key, at & !(PAGE - 1), page);
        set_state(region.state(page), DIRTY);
    }
    open(&region, page);
    mem::copy(page + (at & (PAGE - 1)), from, len);
    close(&region, page);
}

/// `madvise` of a range whose contents are not needed any more; `removes`: nor
/// are those of what is mapped there.
pub fn discard(start: u64, len: u64, removes: bool) {
    const MADV_DONTNEED: u64 = 4;
    let end = start.saturating_add(up(len));
    let mut at = start;
    while at < end {
        let Some(region) = regions().find(|r| (r.start..r.end).contains(&at)) else {
            let next = regions().map(|r| r.start).filter(|s| (at..end).contains(s));
            let to = next.min().unwrap_or(end);
            sys::call(nr::MADVISE, at, to - at, MADV_DONTNEED, 0, 0, 0);
            at = to;
            continue;
        };
        let part = region.part(at, end.min(region.end));
        if part.kind == PRIVATE {
            let mut page = part.start;
            while page < part.end {
                if state(part.state(page)) == OWN {
                    disown(&part, page);
                    settle(&part, page);
                }
                page += PAGE;
            }
        } else if removes {
            cleared(part.key, part.offset, part.len(), None);
        }
        at = part.end;
    }
}
