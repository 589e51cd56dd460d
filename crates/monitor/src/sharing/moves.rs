//! `mremap`: what is one mapping to the kernel may be several here, each of which
//! moves by itself.

use protocol::replay::difference;

use crate::state::Thread;
use crate::sys::{self, nr};
use crate::{mem, replay};

use super::PRIVATE;
use super::journal::is_written;
use super::kept::collect;
use super::mapping::{Object, forget, hide, lay, map};
use super::pages::renew;
use super::table::{
    AWAY, PAGE, Region, add, cells, cut, fresh_states, holder_of, regions, set_state, size_of, up,
};

/// `mremap`. What is one mapping to the kernel may be several here: each part
/// is moved by itself, and only the last one changes its length. `stays`: the
/// old mapping stays, without its contents if it is private.
pub fn remap(thread: &Thread, old: u64, old_len: u64, new: u64, new_len: u64, stays: bool) -> bool {
    let (mut old_len, new_len) = (up(old_len), up(new_len));
    if new_len < old_len {
        let (from, len) = (old + new_len, old_len - new_len);
        forget(thread, from, len);
        sys::call(nr::MUNMAP, from, len, 0, 0, 0, 0);
        old_len = new_len;
    }
    if old_len == 0 || stays {
        return twin(thread, old, old_len, new, new_len);
    }
    if new != old {
        forget(thread, new, new_len);
    }
    let mut done = 0;
    while done < old_len {
        let at = old + done;
        let here = regions().find(|r| (r.start..r.end).contains(&at));
        let starts = || regions().map(|r| r.start).filter(|start| *start > at);
        let end = here.map(|r| r.end).or_else(|| starts().min());
        let len = end.unwrap_or(u64::MAX).min(old + old_len) - at;
        let is_last = done + len == old_len;
        let wanted = if is_last { new_len - done } else { len };
        let fits = match here {
            Some(_) if new == old && wanted == len => true,
            Some(_) => moved(thread, at, len, new + done, wanted),
            None => move_plain(at, len, new + done, wanted),
        };
        if !fits {
            return false;
        }
        done += len;
    }
    true
}

/// Memory that is no object's moves, and may grow.
fn move_plain(old: u64, len: u64, new: u64, wanted: u64) -> bool {
    if new != old {
        move_memory(old, new, len);
    }
    // Only what is mapped last can grow, whatever is before.
    let (last, grown) = (new + len - PAGE, wanted - len + PAGE);
    grown == PAGE || sys::call(nr::MREMAP, last, PAGE, grown, 0, 0, 0) == last as i64
}

/// A second mapping of what is mapped, or one that takes its contents.
fn twin(thread: &Thread, old: u64, old_len: u64, new: u64, new_len: u64) -> bool {
    const MAYMOVE_FIXED_DONTUNMAP: u64 = 7;
    forget(thread, new, new_len);
    let region = regions().find(|r| (r.start..r.end).contains(&old));
    if region.is_some_and(|region| region.kind != PRIVATE) {
        return moved(thread, old, 0, new, new_len);
    }
    let flags = MAYMOVE_FIXED_DONTUNMAP;
    sys::call(nr::MREMAP, old, old_len, new_len, flags, new, 0) == new as i64
}

/// A mapping of an object is moved, and may grow: true if this is one, and it is
/// done.
pub(super) fn moved(thread: &Thread, old: u64, old_len: u64, new: u64, new_len: u64) -> bool {
    let (old_len, new_len) = (up(old_len), up(new_len));
    let found = cells().iter().find(|cell| {
        let region = cell.get();
        let is_here = (region.start..region.end).contains(&old);
        region.key != 0 && is_here && old + old_len <= region.end
    });
    let Some(cell) = found else {
        return false;
    };
    if is_written() {
        collect();
    }
    let region = cell.get();
    let part = region.part(old, old + old_len);
    if old_len == 0 {
        // A second mapping of the same.
        let object = Object {
            key: region.key,
            file: region.file,
            size: size_of(region.key),
            kind: region.kind,
        };
        let whole = Region {
            start: new,
            end: new + new_len,
            ..part
        };
        lay(&whole, whole.start, whole.end);
        map(thread, &object, new, new_len, region.prot, part.offset);
        return true;
    }
    let kept = old_len;
    cut(cell, part.start, part.end);
    if new != old {
        forget(thread, new, new_len);
        sys::call(nr::MPROTECT, old, kept, 3, 0, 0, 0);
        move_memory(old, new, kept);
    }
    let states = fresh_states(thread, new_len);
    let region = Region {
        start: new,
        end: new + new_len,
        states,
        ..part
    };
    mem::copy(states, part.states, kept / PAGE);
    if new_len > kept {
        lay(&region, new + kept, region.end);
        let mut page = new + kept;
        while page < region.end {
            if holder_of(region.key, region.offset + (page - new)).is_some() {
                set_state(region.state(page), AWAY);
            }
            page += PAGE;
        }
    }
    if !add(region) {
        replay::diverge(thread, difference::MEMORY, 3, new, new_len);
    }
    if region.kind == PRIVATE {
        hide(thread, &region);
    }
    renew(&region);
    true
}

/// Moves memory that may be of several mappings, each of which the kernel moves
/// by itself.
pub(super) fn move_memory(from: u64, to: u64, len: u64) {
    const MAYMOVE_FIXED: u64 = 3;
    if sys::call(nr::MREMAP, from, len, len, MAYMOVE_FIXED, to, 0) != to as i64 {
        if len <= PAGE {
            let thread = crate::state::thread();
            replay::diverge(thread, difference::MEMORY, 0, from, to);
        }
        let half = up(len / 2);
        move_memory(from, to, half);
        move_memory(from + half, to + half, len - half);
    }
}
