//! Which stretches of which objects are mapped where, how long the objects are,
//! and in which state each page is: what all the rest of shared memory in
//! replay looks up.

use core::cell::Cell;

use protocol::replay::difference;

use crate::replay;
use crate::state::Thread;
use crate::sys::{self, nr};

use super::{NO_FILE, sharing};

pub(super) const PAGE: u64 = 4096;

/// States of a page.
pub(super) const CLEAN: u8 = 0;
/// Written in this turn; what it was is kept.
pub(super) const DIRTY: u8 = 1;
/// The object's page is accessible at another address.
pub(super) const AWAY: u8 = 2;
/// Of a private mapping: the program wrote to it, it is not the object's any
/// more.
pub(super) const OWN: u8 = 3;

/// A stretch of an object that is mapped.
#[derive(Clone, Copy)]
pub(super) struct Region {
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
    /// The captured file it was mapped from, and how much of that is still the
    /// object's.
    pub file: u64,
    pub captured: u64,
    pub kind: u64,
}

impl Region {
    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }
    /// A part of it: addresses.
    pub(super) fn part(&self, start: u64, end: u64) -> Region {
        let skipped = start - self.start;
        Region {
            start,
            end,
            offset: self.offset + skipped,
            states: self.states + skipped / PAGE,
            ..*self
        }
    }
    pub(super) fn state(&self, page: u64) -> u64 {
        self.states + (page - self.start) / PAGE
    }
    /// Where this region has the page at `offset` of its object.
    pub(super) fn page_of(&self, key: u64, offset: u64) -> Option<u64> {
        let inside = self.key == key && (self.offset..self.offset + self.len()).contains(&offset);
        inside.then(|| self.start + (offset - self.offset))
    }
    /// Whether its object does not reach as far as a page: to touch it is SIGBUS.
    pub(super) fn is_behind_end(&self, page: u64) -> bool {
        let offset = self.offset + (page - self.start);
        self.file != NO_FILE && size_of(self.key).is_some_and(|size| offset >= up(size))
    }
}

const REGIONS_MAX: usize = 65536;
const OBJECTS_MAX: usize = 16384;

/// How long an object is.
#[derive(Clone, Copy)]
struct Size {
    key: u64,
    size: u64,
}

/// All regions, and the objects that have any, as far as their size is known.
/// In memory of its own: few processes need it.
struct Table {
    regions: [Cell<Region>; REGIONS_MAX],
    sizes: [Cell<Size>; OBJECTS_MAX],
}

const TABLE_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_3000_0000;
const _: () = assert!(core::mem::size_of::<Table>() as u64 <= STATES_BASE - TABLE_BASE);

fn table() -> &'static Table {
    if sharing().is_there.replace(1) == 0 {
        let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
        let len = core::mem::size_of::<Table>() as u64;
        if sys::call(nr::MMAP, TABLE_BASE, len, 3, flags, u64::MAX, 0) != TABLE_BASE as i64 {
            sys::die(b"no room for shared memory");
        }
    }
    // SAFETY: mapped just now or before, never unmapped; all-zero is a valid
    // Table.
    unsafe { &*(TABLE_BASE as *const Table) }
}

/// The places of regions that are, or were, in use.
pub(super) fn cells() -> &'static [Cell<Region>] {
    match sharing().count.get() as usize {
        0 => &[],
        count => table().regions.get(..count).unwrap_or(&[]),
    }
}

/// The sizes of objects that are, or were, in use.
fn sizes() -> &'static [Cell<Size>] {
    match sharing().sizes_count.get() as usize {
        0 => &[],
        count => table().sizes.get(..count).unwrap_or(&[]),
    }
}

/// Where the states of pages are.
const STATES_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_4000_0000;
const STATES_MAX: u64 = 0x1000_0000;

pub(super) fn state(address: u64) -> u8 {
    // SAFETY: within the states of a region, which were mapped with it.
    unsafe { *(address as *const u8) }
}

pub(super) fn set_state(address: u64, to: u8) {
    // SAFETY: as above.
    unsafe { *(address as *mut u8) = to };
}

pub(super) fn regions() -> impl Iterator<Item = Region> {
    cells()
        .iter()
        .map(Cell::get)
        .filter(|region| region.key != 0)
}

pub(super) fn add(region: Region) -> bool {
    let count = cells().len();
    let free = cells().iter().position(|r| r.get().key == 0);
    let Some(place) = table().regions.get(free.unwrap_or(count)) else {
        return false;
    };
    place.set(region);
    if free.is_none() {
        sharing().count.set(count as u32 + 1);
    }
    true
}

/// An address range without a region in it (of states, or of hidden ones):
/// `taken` says where in it regions are. Looked for from where one was found
/// last (`next`), and then from the beginning.
pub(super) fn find_room(
    base: u64,
    room: u64,
    len: u64,
    next: &Cell<u64>,
    taken: impl Fn(&Region) -> Option<(u64, u64)>,
) -> Option<u64> {
    let found = room_from(base.max(next.get()), base + room, len, &taken)
        .or_else(|| room_from(base, base + room, len, &taken));
    if let Some(at) = found {
        next.set(at + len);
    }
    found
}

fn room_from(
    from: u64,
    end: u64,
    len: u64,
    taken: impl Fn(&Region) -> Option<(u64, u64)>,
) -> Option<u64> {
    let mut at = from;
    while at + len <= end {
        let next = regions()
            .filter_map(|region| taken(&region))
            .filter(|(start, end)| *start < at + len && at < *end)
            .map(|(_, end)| up(end))
            .max();
        match next {
            Some(next) => at = next,
            None => return Some(at),
        }
    }
    None
}

pub(super) fn up(address: u64) -> u64 {
    address.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Memory for the states of a region's pages, all CLEAN.
pub(super) fn fresh_states(thread: &Thread, len: u64) -> u64 {
    let room = up(len / PAGE);
    let taken = |r: &Region| Some((r.states & !(PAGE - 1), up(r.states + r.len() / PAGE)));
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    let next = &sharing().states_next;
    match find_room(STATES_BASE, STATES_MAX, room, next, taken) {
        Some(at) if sys::call(nr::MMAP, at, room, 3, flags, u64::MAX, 0) == at as i64 => at,
        _ => replay::diverge(thread, difference::MEMORY, 2, 0, len),
    }
}

pub(super) fn size_of(key: u64) -> Option<u64> {
    let found = sizes().iter().map(Cell::get).find(|s| s.key == key)?;
    Some(found.size)
}

/// False: there are too many objects.
pub(super) fn set_size(key: u64, size: u64) -> bool {
    let known = sizes().iter().find(|s| s.get().key == key);
    let place = known.or_else(|| {
        let count = sizes().len();
        let fresh = table().sizes.get(count);
        if fresh.is_some() {
            sharing().sizes_count.set(count as u32 + 1);
        }
        fresh.or_else(|| sizes().iter().find(|s| !is_mapped(s.get().key)))
    });
    place.is_some_and(|place| {
        place.set(Size { key, size });
        true
    })
}

pub(super) fn is_mapped(key: u64) -> bool {
    regions().any(|region| region.key == key)
}

/// The region and address where a page of an object is accessible.
pub(super) fn holder_of(key: u64, offset: u64) -> Option<(Region, u64)> {
    regions().find_map(|region| {
        let page = region.page_of(key, offset)?;
        matches!(state(region.state(page)), CLEAN | DIRTY).then_some((region, page))
    })
}

/// Takes a range out of a region.
pub(super) fn cut(cell: &Cell<Region>, from: u64, to: u64) {
    let region = cell.get();
    cell.set(if region.start < from {
        region.part(region.start, from)
    } else {
        Region { key: 0, ..region }
    });
    if to < region.end {
        add(region.part(to, region.end));
    }
}

/// Whether any of this memory is an object's: that may be at other addresses, too.
pub fn is_object(start: u64, len: u64) -> bool {
    let end = start.saturating_add(len);
    regions().any(|region| region.start < end && start < region.end)
}

/// How long the region is that begins at an address (`shmdt` does not say).
pub fn length_at(start: u64) -> Option<u64> {
    regions()
        .find(|r| r.start == start)
        .map(|r| r.end - r.start)
}
