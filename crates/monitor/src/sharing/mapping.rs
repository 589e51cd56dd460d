//! Objects are mapped, unmapped, and grow and shrink under their mappings. What
//! no mapping of the program's shows is hidden at addresses of our own.

use protocol::replay::{difference, entry};

use crate::state::Thread;
use crate::sys::{self, nr};
use crate::{mem, replay};

use super::journal::{append, catch_up, is_written};
use super::kept::collect;
use super::moves::move_memory;
use super::pages::{close, disown, hand_over, open, renew};
use super::table::{
    AWAY, CLEAN, DIRTY, OWN, PAGE, Region, add, cells, cut, find_room, fresh_states, holder_of,
    is_mapped, regions, set_size, set_state, size_of, state, up,
};
use super::writes::{ZEROES, tells};
use super::{HIDDEN, NO_FILE, PRIVATE, SHARED, sharing};

const HIDDEN_BASE: u64 = protocol::layout::MONITOR_BASE + 0x20_0000_0000;
const HIDDEN_MAX: u64 = 0x20_0000_0000;
/// How many that the program does not map are kept.
const HIDDEN_KEPT: usize = 64;
/// Behind the end of every captured file.
const BEYOND: u64 = 1 << 40;

/// What is mapped.
pub struct Object {
    pub key: u64,
    /// The captured file with what was in it then.
    pub file: u64,
    /// How long it was then, if it can change.
    pub size: Option<u64>,
    pub kind: u64,
}

/// An object is mapped, as private memory, at `start`.
pub fn map(thread: &Thread, object: &Object, start: u64, len: u64, prot: u64, offset: u64) {
    let Object { key, file, .. } = *object;
    let len = up(len);
    forget(thread, start, len);
    // The recorder copied it again: somebody else changed it.
    drop_hidden(|r| r.key == key && r.file != file);
    if let Some(size) = object.size {
        if is_mapped(key) {
            resize(key, size);
        }
        if !set_size(key, size) {
            replay::diverge(thread, difference::MEMORY, 3, start, len);
        }
    }
    let region = Region {
        start,
        end: start + len,
        key,
        offset,
        prot,
        states: fresh_states(thread, len),
        file,
        captured: object.size.unwrap_or(u64::MAX),
        kind: object.kind,
    };
    let mut moved = false;
    if is_mapped(key) {
        let mut page = start;
        while page < region.end {
            if holder_of(key, offset + (page - start)).is_some() {
                set_state(region.state(page), AWAY);
                moved = true;
            }
            page += PAGE;
        }
    }
    if !add(region) {
        replay::diverge(thread, difference::MEMORY, 3, start, len);
    }
    if region.kind == PRIVATE {
        hide(thread, &region);
    }
    if !moved {
        catch_up(key, file, sharing().seen.get());
    }
    renew(&region);
    if is_written() && !moved {
        append(entry::MAP, key, file, 0, 0);
    }
}

/// A place for the pages of an object that a private mapping shows and the
/// program changes for itself.
pub(super) fn hide(thread: &Thread, shown: &Region) {
    let last = shown.offset + shown.len() - PAGE;
    let is_there = regions().any(|r| {
        r.kind == HIDDEN
            && r.page_of(shown.key, shown.offset).is_some()
            && r.page_of(shown.key, last).is_some()
    });
    if is_there {
        return;
    }
    let taken = |r: &Region| (r.kind == HIDDEN).then_some((r.start, r.end));
    let next = &sharing().hidden_next;
    let Some(start) = find_room(HIDDEN_BASE, HIDDEN_MAX, shown.len(), next, taken) else {
        replay::diverge(thread, difference::MEMORY, 3, shown.start, shown.len());
    };
    let hidden = Region {
        start,
        end: start + shown.len(),
        prot: 3,
        states: fresh_states(thread, shown.len()),
        kind: HIDDEN,
        ..*shown
    };
    lay(&hidden, hidden.start, hidden.end);
    let mut page = hidden.start;
    while page < hidden.end {
        set_state(hidden.state(page), AWAY);
        page += PAGE;
    }
    if !add(hidden) {
        replay::diverge(thread, difference::MEMORY, 3, shown.start, shown.len());
    }
    renew(&hidden);
}

/// Maps a part of a region afresh: what the captured file has, zeroes as far as
/// the object has grown since, and behind its end what cannot be touched.
pub(super) fn lay(region: &Region, start: u64, end: u64) {
    let size = up(size_of(region.key).unwrap_or(u64::MAX));
    let place = |offset: u64| {
        let at = offset.max(region.offset) - region.offset;
        (region.start.saturating_add(at)).clamp(start, end)
    };
    let captured = match region.file {
        NO_FILE => start,
        _ => place(up(region.captured).min(size)),
    };
    let grown = match region.file {
        // Nothing would be behind its end either.
        NO_FILE => end,
        _ => place(size).max(captured),
    };
    let offset = region.offset + (start - region.start);
    let all =
        captured <= start || replay::map_file(region.file, start, captured - start, 0, offset);
    let all =
        (grown <= captured || replay::map_anonymous(captured, grown - captured, 0, false)) && all;
    let behind = BEYOND + region.offset + (grown - region.start);
    let all = (end <= grown || replay::map_file(region.file, grown, end - grown, 0, behind)) && all;
    if !all {
        let thread = crate::state::thread();
        replay::diverge(thread, difference::MEMORY, 0, start, end - start);
    }
}

/// An object has another size now, which others will see.
pub fn resized(key: u64, size: u64) {
    if tells(key) {
        append(entry::SIZE, key, size, 0, 0);
    } else if size_of(key).is_some_and(|before| before != size) {
        resize(key, size);
        if is_written() {
            append(entry::SIZE, key, size, 0, 0);
        }
    }
}

pub(super) fn resize(key: u64, size: u64) {
    let Some(before) = size_of(key).filter(|before| *before != size) else {
        return;
    };
    if is_written() {
        collect();
    }
    set_size(key, size);
    let (low, high) = (up(size.min(before)), up(size.max(before)));
    for cell in cells() {
        let region = cell.get();
        if region.key != key {
            continue;
        }
        // What was cut off is zero when it comes back.
        let region = Region {
            captured: region.captured.min(size),
            ..region
        };
        cell.set(region);
        let from = region.offset.max(low);
        let to = high.min(region.offset + region.len());
        if from < to {
            let start = region.start + (from - region.offset);
            let part = region.part(start, start + (to - from));
            lay(&region, part.start, part.end);
            let mut page = part.start;
            while page < part.end {
                if state(part.state(page)) == OWN {
                    disown(&part, page);
                }
                page += PAGE;
            }
            renew(&part);
        }
    }
    let tail = size & (PAGE - 1);
    if size < before
        && tail != 0
        && let Some((region, page)) = holder_of(key, size - tail)
    {
        open(&region, page);
        mem::copy(page + tail, (&raw const ZEROES) as u64, PAGE - tail);
        close(&region, page);
    }
}

/// A range is unmapped, or something else is mapped over it.
pub fn forget(thread: &Thread, start: u64, len: u64) {
    let end = start.saturating_add((len + PAGE - 1) & !(PAGE - 1));
    if !regions().any(|r| r.start < end && start < r.end) {
        return;
    }
    if is_written() {
        collect();
    }
    for cell in cells() {
        let region = cell.get();
        if region.key == 0 || region.start >= end || start >= region.end {
            continue;
        }
        let (from, to) = (start.max(region.start), end.min(region.end));
        let part = region.part(from, to);
        hand_over(&part);
        let stays = |page: u64| matches!(state(part.state(page)), CLEAN | DIRTY);
        if part.kind == SHARED && (from..to).step_by(PAGE as usize).any(stays) {
            let states = fresh_states(thread, part.len());
            mem::copy(states, part.states, part.len() / PAGE);
            cut(cell, from, to);
            stow(thread, &part, states);
        } else {
            cut(cell, from, to);
        }
    }
}

fn is_visible(key: u64) -> bool {
    regions().any(|region| region.key == key && region.kind != HIDDEN)
}

/// Drops hidden regions that the program does not map: those that `unwanted`
/// says.
fn drop_hidden(mut unwanted: impl FnMut(&Region) -> bool) {
    for cell in cells() {
        let region = cell.get();
        let is_hidden = region.key != 0 && region.kind == HIDDEN;
        if is_hidden && !is_visible(region.key) && unwanted(&region) {
            sys::call(nr::MUNMAP, region.start, region.len(), 0, 0, 0, 0);
            cell.set(Region { key: 0, ..region });
        }
    }
}

/// What was just taken out of the program's sight, if nobody else has it, is
/// kept.
fn stow(thread: &Thread, part: &Region, states: u64) {
    let taken = |r: &Region| (r.kind == HIDDEN).then_some((r.start, r.end));
    let next = &sharing().hidden_next;
    let Some(start) = find_room(HIDDEN_BASE, HIDDEN_MAX, part.len(), next, taken) else {
        return;
    };
    sys::call(nr::MPROTECT, part.start, part.len(), 3, 0, 0, 0);
    move_memory(part.start, start, part.len());
    let hidden = Region {
        start,
        end: start + part.len(),
        prot: 3,
        states,
        kind: HIDDEN,
        ..*part
    };
    let mut others = regions().filter(|r| r.kind == HIDDEN && !is_visible(r.key));
    if others.nth(HIDDEN_KEPT).is_some() {
        let mut dropped = false;
        drop_hidden(|_| !core::mem::replace(&mut dropped, true));
    }
    if !add(hidden) {
        replay::diverge(thread, difference::MEMORY, 3, part.start, part.len());
    }
    renew(&hidden);
}
