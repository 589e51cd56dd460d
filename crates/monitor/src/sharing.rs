//! Memory that a process maps shared, in replay.
//!
//! Nothing is really shared in replay, so that a fork is a complete copy of a
//! process (a checkpoint). Instead, each process has its own copy of such
//! memory, and what others write reaches it where it took the turn. Where that
//! is, the log says (`kind::TURN`); what they wrote comes from a *journal*: the
//! first replay of a recording runs all who share memory side by side, each
//! waiting for the turn, and each appends, when its turn is over, the bytes
//! that it changed. Later replays read the finished journal and need nobody
//! else.
//!
//! Which bytes a process changed is found by protecting the pages: the first
//! write to a page in a turn faults, and the page is kept as it was.
//!
//! A process may also map one object at several addresses. Then each of its
//! pages is accessible at one of them at a time, and moves when it is touched
//! at another.

use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::replay::{Journal, difference, entry};

use crate::state::{Thread, space};
use crate::sys::{self, nr};
use crate::{mem, replay};

const PAGE: u64 = 4096;
const WRITE: u64 = 2;

/// States of a page.
const CLEAN: u8 = 0;
/// Written in this turn; what it was is kept.
const DIRTY: u8 = 1;
/// The object's page is accessible at another address.
const AWAY: u8 = 2;

/// A stretch of an object that is mapped.
#[derive(Clone, Copy)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// What is mapped; 0 = this place is free.
    pub key: u64,
    /// Where in the object it begins.
    pub offset: u64,
    /// What the program may do with it.
    pub prot: u64,
    /// Where the states of its pages begin.
    pub states: u64,
}

impl Region {
    fn state(&self, page: u64) -> u64 {
        self.states + (page - self.start) / PAGE
    }
    /// Where this region has the page at `offset` of its object.
    fn page_of(&self, key: u64, offset: u64) -> Option<u64> {
        let inside = self.key == key
            && (self.offset..self.offset + (self.end - self.start)).contains(&offset);
        inside.then(|| self.start + (offset - self.offset))
    }
}

pub const REGIONS_MAX: usize = 1024;

/// What a space knows of it.
#[repr(C)]
pub struct Sharing {
    pub regions: [Cell<Region>; REGIONS_MAX],
    pub count: Cell<u32>,
    /// The turn that this space has: domain + 1 and sequence number.
    pub domain: Cell<u64>,
    pub sequence: Cell<u64>,
    /// How far the journal has been followed.
    pub seen: Cell<u64>,
    /// How many pages are kept.
    pub kept: Cell<u64>,
    /// How much room the states of pages take.
    pub states: Cell<u64>,
}

/// Where the states of pages are, and pages as they were before this turn,
/// each behind a word with its key and one with its offset.
const STATES_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_4000_0000;
const STATES_MAX: u64 = 0x1000_0000;
const KEPT_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_5000_0000;
const KEPT_MAX: u64 = 0x8000_0000 / KEPT_SIZE;
const KEPT_SIZE: u64 = 2 * PAGE;

fn sharing() -> &'static Sharing {
    &space().sharing
}

fn journal() -> &'static Journal {
    &replay::header().journal
}

/// Whether this replay makes the journal: pages are watched.
fn is_written() -> bool {
    journal().is_complete.load(Acquire) == 0 && sharing().domain.get() != 0
}

fn protect(page: u64, prot: u64) {
    sys::call(nr::MPROTECT, page, PAGE, prot, 0, 0, 0);
}

fn state(address: u64) -> u8 {
    // SAFETY: within the states of a region, which were mapped with it.
    unsafe { *(address as *const u8) }
}

fn set_state(address: u64, to: u8) {
    // SAFETY: as above.
    unsafe { *(address as *mut u8) = to };
}

fn regions() -> impl Iterator<Item = Region> {
    let count = sharing().count.get() as usize;
    sharing()
        .regions
        .iter()
        .take(count)
        .map(Cell::get)
        .filter(|region| region.key != 0)
}

fn add(region: Region) -> bool {
    let sharing = sharing();
    let count = sharing.count.get() as usize;
    let free = sharing
        .regions
        .iter()
        .take(count)
        .position(|r| r.get().key == 0);
    let Some(place) = sharing.regions.get(free.unwrap_or(count)) else {
        return false;
    };
    place.set(region);
    if free.is_none() {
        sharing.count.set(count as u32 + 1);
    }
    true
}

/// An object is mapped, as private memory, at `start`: `id` is the captured
/// file with what was in it then.
pub fn map(thread: &Thread, key: u64, id: u64, start: u64, len: u64, prot: u64, offset: u64) {
    let sharing = sharing();
    let len = (len + PAGE - 1) & !(PAGE - 1);
    let states = sharing.states.get();
    let room = (len / PAGE + PAGE - 1) & !(PAGE - 1);
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    let at = STATES_BASE + states;
    if states + room > STATES_MAX
        || sys::call(nr::MMAP, at, room, 3, flags, u64::MAX, 0) != at as i64
    {
        replay::diverge(thread, difference::MEMORY, 2, start, len);
    }
    sharing.states.set(states + room);
    let region = Region {
        start,
        end: start + len,
        key,
        offset,
        prot,
        states: at,
    };
    forget(start, len);
    let mut page = start;
    let mut moved = false;
    while page < region.end {
        if holder_of(key, offset + (page - start)).is_some() {
            set_state(region.state(page), AWAY);
            moved = true;
        }
        page += PAGE;
    }
    if !add(region) {
        replay::diverge(thread, difference::MEMORY, 3, start, len);
    }
    if !moved {
        catch_up(key, id, sharing.seen.get());
    }
    renew(&region);
    if is_written() && !moved {
        append(entry::MAP, key, id, 0, 0);
    }
}

/// Sets the protection of all pages of a region as their states say.
fn renew(region: &Region) {
    let watched = is_written();
    let (mut from, mut page) = (region.start, region.start);
    let wanted = |page: u64| match state(region.state(page)) {
        AWAY => 0,
        CLEAN if watched => region.prot & !WRITE,
        _ => region.prot,
    };
    while page < region.end {
        page += PAGE;
        if page == region.end || wanted(page) != wanted(from) {
            let prot = wanted(from);
            sys::call(nr::MPROTECT, from, page - from, prot, 0, 0, 0);
            from = page;
        }
    }
}

/// The region and address where a page of an object is accessible.
fn holder_of(key: u64, offset: u64) -> Option<(Region, u64)> {
    regions().find_map(|region| {
        let page = region.page_of(key, offset)?;
        (state(region.state(page)) != AWAY).then_some((region, page))
    })
}

/// The program, or the monitor on its behalf, touched a page that is
/// protected: true if that was for us, and the access can be made again.
pub fn on_fault(address: u64, is_write: bool) -> bool {
    if !replay::is_on() || sharing().count.get() == 0 {
        return false;
    }
    let Some(region) = regions().find(|r| (r.start..r.end).contains(&address)) else {
        return false;
    };
    if region.prot == 0 || is_write && region.prot & WRITE == 0 {
        return false;
    }
    let page = address & !(PAGE - 1);
    let offset = region.offset + (page - region.start);
    let place = region.state(page);
    let mut changed = false;
    if state(place) == AWAY {
        let Some((from, there)) = holder_of(region.key, offset) else {
            return false;
        };
        protect(page, 3);
        protect(there, 1);
        mem::copy(page, there, PAGE);
        set_state(place, state(from.state(there)));
        set_state(from.state(there), AWAY);
        protect(there, 0);
        changed = true;
    }
    if is_write && state(place) == CLEAN && is_written() {
        keep(region.key, offset, page);
        set_state(place, DIRTY);
        changed = true;
    }
    let prot = if state(place) == CLEAN && is_written() {
        region.prot & !WRITE
    } else {
        region.prot
    };
    protect(page, prot);
    changed
}

/// Keeps a page as it is before it is written.
fn keep(key: u64, offset: u64, page: u64) {
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
    mem::copy(place + PAGE, page, PAGE);
    sharing().kept.set(kept + 1);
}

/// Appends what was changed since the turn began; the pages are clean again.
fn collect() {
    let word = |address: u64| {
        // SAFETY: kept pages and pages of regions, whole and readable; aligned.
        unsafe { *(address as *const u64) }
    };
    for i in 0..sharing().kept.replace(0) {
        let place = KEPT_BASE + i * KEPT_SIZE;
        let (key, offset, before) = (word(place), word(place + 8), place + PAGE);
        let Some((region, page)) = holder_of(key, offset) else {
            continue;
        };
        protect(page, 1);
        let mut at = 0;
        while at < PAGE {
            if word(before + at) == word(page + at) {
                at += 8;
                continue;
            }
            let from = at;
            while at < PAGE && word(before + at) != word(page + at) {
                at += 8;
            }
            append(entry::BYTES, key, offset + from, page + from, at - from);
        }
        set_state(region.state(page), CLEAN);
        protect(page, region.prot & !WRITE);
    }
}

/// Writes an entry of the journal.
fn append(kind: u64, first: u64, second: u64, from: u64, len: u64) {
    let journal = journal();
    while journal.lock.swap(1, Acquire) != 0 {
        sys::futex_wait(&journal.lock, 1, 1_000_000);
    }
    let at = journal.len.load(Relaxed);
    let size = 32 + ((len + 7) & !7);
    if at + size <= journal.capacity.load(Relaxed) {
        let place = journal_at(at);
        let head = [kind, first, second, len];
        mem::copy(place, head.as_ptr() as u64, 32);
        mem::copy(place + 32, from, len);
        journal.len.store(at + size, Release);
    } else {
        journal.is_full.store(1, Release);
    }
    journal.lock.store(0, Release);
    sys::futex_wake(&journal.lock, 1);
}

fn journal_at(at: u64) -> u64 {
    protocol::layout::ARENA_BASE + journal().offset.load(Relaxed) + at
}

/// The entry at a place, and the place after it.
fn entry_at(at: u64) -> ([u64; 4], u64) {
    let mut head = [0u64; 4];
    mem::copy(head.as_mut_ptr() as u64, journal_at(at), 32);
    (head, at + 32 + ((head[3] + 7) & !7))
}

/// A fresh mapping of an object: if it was mapped before with the same
/// contents, what has been written since belongs to them.
fn catch_up(key: u64, id: u64, end: u64) {
    let (mut at, mut is_known) = (0, false);
    while at < end {
        let (head, next) = entry_at(at);
        is_known |= head[..3] == [entry::MAP, key, id];
        if is_known && head[0] == entry::BYTES && head[1] == key {
            apply(&head, at);
        }
        at = next;
    }
}

/// Writes what another wrote.
fn apply(head: &[u64; 4], at: u64) {
    let [_, key, offset, len] = *head;
    let Some((region, page)) = holder_of(key, offset & !(PAGE - 1)) else {
        return;
    };
    protect(page, 3);
    mem::copy(page + (offset & (PAGE - 1)), journal_at(at) + 32, len);
    let watched = is_written() && state(region.state(page)) == CLEAN;
    protect(
        page,
        if watched {
            region.prot & !WRITE
        } else {
            region.prot
        },
    );
}

/// The process wrote to an object by a call: as if to memory.
pub fn written(key: u64, offset: u64, from: u64, len: u64) {
    let mut done = 0;
    while done < len {
        let at = offset + done;
        let step = (PAGE - (at & (PAGE - 1))).min(len - done);
        if let Some((region, page)) = holder_of(key, at & !(PAGE - 1)) {
            if state(region.state(page)) == CLEAN && is_written() {
                keep(key, at & !(PAGE - 1), page);
                set_state(region.state(page), DIRTY);
            }
            protect(page, 3);
            mem::copy(page + (at & (PAGE - 1)), from + done, step);
            protect(page, region.prot);
        }
        done += step;
    }
}

/// The log says that the turn came to this process: from whom, if not from
/// nobody. What others wrote before arrives now.
pub fn turn(thread: &Thread, domain: u64, sequence: u64, before: u64) {
    if !replay::is_shared(domain) {
        return;
    }
    publish();
    let sharing = sharing();
    let is_first = sharing.domain.get() == 0;
    sharing.domain.set(domain + 1);
    sharing.sequence.set(sequence);
    if before != u64::from(u32::MAX) {
        follow_to(thread, domain, sequence.wrapping_sub(1));
    }
    if is_first && is_written() {
        regions().for_each(|region| renew(&region));
    }
}

/// Applies the journal up to the end of a turn; waits until it is there.
fn follow_to(thread: &Thread, domain: u64, sequence: u64) {
    let journal = journal();
    let mut waits = false;
    loop {
        let changes = journal.changes.load(Acquire);
        let mut at = sharing().seen.get();
        let end = journal.len.load(Acquire);
        while at < end {
            let (head, next) = entry_at(at);
            if head[0] == entry::BYTES {
                apply(&head, at);
            }
            at = next;
            sharing().seen.set(at);
            if head[..3] == [entry::TURN, domain, sequence] {
                if waits {
                    journal.waiting.fetch_sub(1, Release);
                }
                return;
            }
        }
        let complete = journal.is_complete.load(Acquire) != 0;
        if complete || journal.is_hopeless.load(Acquire) != 0 || journal.is_full.load(Acquire) != 0
        {
            replay::diverge(thread, difference::SHARED_MEMORY, 0, domain, sequence);
        }
        if !waits {
            waits = true;
            journal.waiting.fetch_add(1, Release);
        }
        sys::futex_wait(&journal.changes, changes, 100_000_000);
    }
}

/// The turn is over: others may see what was written in it.
pub fn publish() {
    let sharing = sharing();
    let domain = sharing.domain.get();
    if domain == 0 || journal().is_complete.load(Acquire) != 0 || sharing.sequence.get() == 0 {
        return;
    }
    collect();
    append(entry::TURN, domain - 1, sharing.sequence.get(), 0, 0);
    // What it wrote itself it need not read.
    sharing.sequence.set(0);
    journal().changes.fetch_add(1, Release);
    sys::futex_wake(&journal().changes, u32::MAX >> 1);
}

/// This process does not get to the end of its turns: nobody shall wait.
pub fn give_up() {
    if sharing().domain.get() != 0 && journal().is_complete.load(Acquire) == 0 {
        journal().is_hopeless.store(1, Release);
        journal().changes.fetch_add(1, Release);
        sys::futex_wake(&journal().changes, u32::MAX >> 1);
    }
}

/// A forked child: the turn, and what was written in it so far, are its
/// parent's.
pub fn forked() {
    let sharing = sharing();
    if sharing.domain.get() == 0 {
        return;
    }
    sharing.sequence.set(0);
    for i in 0..sharing.kept.replace(0) {
        let place = KEPT_BASE + i * KEPT_SIZE;
        let mut head = [0u64; 2];
        mem::copy(head.as_mut_ptr() as u64, place, 16);
        if let Some((region, page)) = holder_of(head[0], head[1]) {
            set_state(region.state(page), CLEAN);
            protect(page, region.prot & !WRITE);
        }
    }
}

/// A range is unmapped, or something else is mapped over it.
pub fn forget(start: u64, len: u64) {
    let end = start.saturating_add((len + PAGE - 1) & !(PAGE - 1));
    if !regions().any(|r| r.start < end && start < r.end) {
        return;
    }
    if is_written() {
        collect();
    }
    let count = sharing().count.get() as usize;
    for cell in sharing().regions.iter().take(count) {
        let region = cell.get();
        if region.key == 0 || region.start >= end || start >= region.end {
            continue;
        }
        hand_over(&region, start.max(region.start), end.min(region.end));
        let head = Region {
            end: start.max(region.start),
            ..region
        };
        let cut = end.min(region.end) - region.start;
        let tail = Region {
            start: region.start + cut,
            offset: region.offset + cut,
            states: region.states + cut / PAGE,
            ..region
        };
        cell.set(if head.start < head.end {
            head
        } else {
            Region { key: 0, ..region }
        });
        if tail.start < tail.end {
            add(tail);
        }
    }
}

/// Pages that go away here are from now on at another address, if there is
/// one. (The memory is still there.)
fn hand_over(region: &Region, start: u64, end: u64) {
    let mut page = start;
    while page < end {
        let offset = region.offset + (page - region.start);
        if state(region.state(page)) != AWAY {
            let heir = regions().find_map(|other| {
                let there = other.page_of(region.key, offset)?;
                (there != page && state(other.state(there)) == AWAY).then_some((other, there))
            });
            if let Some((other, there)) = heir {
                protect(there, 3);
                protect(page, 1);
                mem::copy(there, page, PAGE);
                set_state(other.state(there), CLEAN);
                set_state(region.state(page), AWAY);
                let watched = is_written();
                protect(
                    there,
                    if watched {
                        other.prot & !WRITE
                    } else {
                        other.prot
                    },
                );
            }
        }
        page += PAGE;
    }
}

/// The program changed what may be done with a range.
pub fn protected(start: u64, len: u64, prot: u64) {
    let end = start.saturating_add((len + PAGE - 1) & !(PAGE - 1));
    let count = sharing().count.get() as usize;
    for cell in sharing().regions.iter().take(count) {
        let region = cell.get();
        if region.key == 0 || region.start >= end || start >= region.end {
            continue;
        }
        // The pieces on both sides keep what they have.
        let from = start.max(region.start) - region.start;
        let to = end.min(region.end) - region.start;
        let piece = |from: u64, to: u64, prot: u64| Region {
            start: region.start + from,
            end: region.start + to,
            offset: region.offset + from,
            states: region.states + from / PAGE,
            prot,
            ..region
        };
        let middle = piece(from, to, prot);
        cell.set(middle);
        if from > 0 {
            add(piece(0, from, region.prot));
        }
        if to < region.end - region.start {
            add(piece(to, region.end - region.start, region.prot));
        }
        renew(&middle);
    }
}

/// How long the region is that begins at an address (`shmdt` does not say).
pub fn length_at(start: u64) -> Option<u64> {
    regions()
        .find(|r| r.start == start)
        .map(|r| r.end - r.start)
}

/// A range is about to be moved: all of it is accessible now.
pub fn before_move(old: u64, old_len: u64) -> Option<Region> {
    let region = regions().find(|r| r.start == old)?;
    if is_written() {
        collect();
    }
    let mut page = region.start;
    while page < region.end {
        if state(region.state(page)) == AWAY {
            on_fault(page, false);
        }
        protect(page, 3);
        page += PAGE;
    }
    let count = sharing().count.get() as usize;
    for cell in sharing().regions.iter().take(count) {
        if cell.get().start == old {
            cell.set(Region {
                key: 0,
                ..cell.get()
            });
        }
    }
    let _ = old_len;
    Some(region)
}

/// It has been moved.
pub fn after_move(thread: &Thread, region: &Region, new: u64, new_len: u64) {
    const NO_FILE: u64 = u64::MAX;
    let Region {
        key, prot, offset, ..
    } = *region;
    map(thread, key, NO_FILE, new, new_len, prot, offset);
}
