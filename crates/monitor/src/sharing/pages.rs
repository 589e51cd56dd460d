//! What may be done with a page, and at which address it is: protection as the
//! states say, and the faults that tell what the program touches.

use crate::sys::{self, nr};
use crate::{mem, mode};

use super::guard;
use super::journal::is_written;
use super::kept::keep;
use super::table::{
    AWAY, CLEAN, DIRTY, OWN, PAGE, Region, add, cells, cut, holder_of, regions, set_state, state,
};
use super::{HIDDEN, PRIVATE, sharing};

const WRITE: u64 = 2;

pub(super) fn protect(page: u64, prot: u64) {
    sys::call(nr::MPROTECT, page, PAGE, prot, 0, 0, 0);
}

/// A page that the program changed for itself is the object's again.
pub(super) fn disown(region: &Region, page: u64) {
    let offset = region.offset + (page - region.start);
    let is_held = holder_of(region.key, offset).is_some();
    set_state(region.state(page), if is_held { AWAY } else { CLEAN });
}

/// What may be done with a page as things are.
pub(super) fn wanted(region: &Region, page: u64) -> u64 {
    match state(region.state(page)) {
        // The program does not see it, so it need not be kept from it.
        _ if region.kind == HIDDEN => 3,
        AWAY => 0,
        OWN => region.prot,
        _ if region.kind == PRIVATE => region.prot & !WRITE,
        CLEAN if is_written() => region.prot & !WRITE,
        _ => region.prot,
    }
}

/// What the mapping of a page has to allow if its guard is apart from it.
fn allowed(region: &Region, page: u64) -> u64 {
    match state(region.state(page)) {
        AWAY => 0,
        _ => region.prot,
    }
}

/// Sets what may be done with a page.
pub(super) fn settle(region: &Region, page: u64) {
    if region.kind == HIDDEN {
        return;
    }
    if guard::is_watched(region) && guard::set_page(page, wanted(region, page) & WRITE == 0) {
        protect(page, allowed(region, page));
    } else {
        protect(page, wanted(region, page));
    }
}

/// Lets a page that is accessible be written.
pub(super) fn open(region: &Region, page: u64) {
    if !(guard::is_watched(region) && guard::set_page(page, false)) {
        protect(page, 3);
    }
}

/// [`settle`] for a page that was accessible before and is so now: behind
/// [`open`], or written.
pub(super) fn close(region: &Region, page: u64) {
    let is_guarded = wanted(region, page) & WRITE == 0;
    if !(guard::is_watched(region) && guard::set_page(page, is_guarded)) {
        settle(region, page);
    }
}

/// Sets the protection of all pages of a region as their states say.
pub(super) fn renew(region: &Region) {
    if guard::watch(region) {
        for_runs(region, allowed, |start, len, prot| {
            sys::call(nr::MPROTECT, start, len, prot, 0, 0, 0);
        });
        for_runs(region, wanted, |start, len, prot| {
            guard::set(start, len, prot & WRITE == 0);
        });
    } else {
        for_runs(region, wanted, |start, len, prot| {
            sys::call(nr::MPROTECT, start, len, prot, 0, 0, 0);
        });
    }
}

/// Pages beside each other that are alike: their beginning and length.
fn for_runs(region: &Region, what: fn(&Region, u64) -> u64, mut set: impl FnMut(u64, u64, u64)) {
    let (mut from, mut page) = (region.start, region.start);
    while page < region.end {
        page += PAGE;
        if page == region.end || what(region, page) != what(region, from) {
            set(from, page - from, what(region, from));
            from = page;
        }
    }
}

/// Somebody looks at this memory from outside: every address shows what the
/// program would see there.
pub fn show() {
    for region in regions().filter(|r| r.kind != HIDDEN) {
        // Most objects are mapped once.
        if !regions().any(|r| r.key == region.key && r.start != region.start) {
            continue;
        }
        let mut page = region.start;
        while page < region.end {
            let offset = region.offset + (page - region.start);
            if state(region.state(page)) == AWAY
                && let Some((from, there)) = holder_of(region.key, offset)
            {
                fetch(&region, page, &from, there);
                settle(&region, page);
            }
            page += PAGE;
        }
    }
}

/// Copies a page from where it is accessible. Where it goes to is left open for
/// writing. (Each change of protection costs more than the copy.)
fn fetch(to: &Region, page: u64, from: &Region, there: u64) {
    if to.kind != HIDDEN {
        protect(page, 3);
        if guard::is_watched(to) {
            guard::set_page(page, false);
        }
    }
    let is_closed = wanted(from, there) & 1 == 0;
    if is_closed {
        protect(there, 1);
    }
    mem::copy(page, there, PAGE);
    if is_closed {
        settle(from, there);
    }
}

/// The program, or the monitor on its behalf, touched a page that is protected,
/// or guarded (`is_bus`): true if that was for us, and the access can be made
/// again.
pub fn on_fault(address: u64, is_write: bool, is_bus: bool) -> bool {
    if !mode::is_replay() || sharing().count.get() == 0 {
        return false;
    }
    let Some(region) = regions().find(|r| (r.start..r.end).contains(&address)) else {
        return false;
    };
    if region.prot == 0 || is_write && region.prot & WRITE == 0 {
        return false;
    }
    if is_bus && !guard::is_watched(&region) {
        return false;
    }
    let page = address & !(PAGE - 1);
    let offset = region.offset + (page - region.start);
    let place = region.state(page);
    let was_away = state(place) == AWAY;
    let mut changed = false;
    if region.kind == PRIVATE && is_write && state(place) != OWN {
        // From now on it is the program's own.
        if state(place) == AWAY {
            let Some((from, there)) = holder_of(region.key, offset) else {
                return false;
            };
            fetch(&region, page, &from, there);
        } else {
            pass_on(&region, page);
        }
        set_state(place, OWN);
        changed = true;
    } else if state(place) == AWAY {
        let Some((from, there)) = holder_of(region.key, offset) else {
            return false;
        };
        fetch(&region, page, &from, there);
        set_state(place, state(from.state(there)));
        set_state(from.state(there), AWAY);
        settle(&from, there);
        changed = true;
    }
    if is_write && state(place) == CLEAN && region.is_behind_end(page) {
        // There is nothing to keep: the access is made again, and is SIGBUS.
        protect(page, region.prot);
        return !is_bus;
    }
    if is_write && state(place) == CLEAN && is_written() {
        keep(region.key, offset, page);
        set_state(place, DIRTY);
        changed = true;
    }
    if was_away {
        settle(&region, page);
    } else {
        close(&region, page);
    }
    changed
}

/// Pages that go away here are from now on at another address, if there is
/// one. (The memory is still there.)
pub(super) fn hand_over(region: &Region) {
    let is_alone =
        !regions().any(|r| r.key == region.key && (r.end <= region.start || region.end <= r.start));
    if is_alone {
        return;
    }
    let mut page = region.start;
    while page < region.end {
        if matches!(state(region.state(page)), CLEAN | DIRTY) && pass_on(region, page) {
            settle(region, page);
        }
        page += PAGE;
    }
}

/// A page is from now on at another address of the object, if there is one: true.
/// What may be done with it here is for the caller to set.
fn pass_on(region: &Region, page: u64) -> bool {
    let offset = region.offset + (page - region.start);
    let heir = regions().find_map(|other| {
        let there = other.page_of(region.key, offset)?;
        (there != page && state(other.state(there)) == AWAY).then_some((other, there))
    });
    let Some((other, there)) = heir else {
        return false;
    };
    fetch(&other, there, region, page);
    set_state(other.state(there), state(region.state(page)));
    set_state(region.state(page), AWAY);
    settle(&other, there);
    true
}

/// The program changed what may be done with a range.
pub fn protected(start: u64, len: u64, prot: u64) {
    let end = start.saturating_add((len + PAGE - 1) & !(PAGE - 1));
    for cell in cells() {
        let region = cell.get();
        if region.key == 0 || region.start >= end || start >= region.end {
            continue;
        }
        // The pieces on both sides keep what they have.
        let (from, to) = (start.max(region.start), end.min(region.end));
        cut(cell, from, to);
        let middle = Region {
            prot,
            ..region.part(from, to)
        };
        if cell.get().key == 0 {
            cell.set(middle);
        } else {
            add(middle);
        }
        renew(&middle);
    }
}
