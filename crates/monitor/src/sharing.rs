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
//!
//! A private mapping of a file follows the file, too, page by page, until the
//! program writes to the page. Such a mapping is one of these addresses; its
//! pages are protected against writing until then. What the file has where no
//! mapping of the program's shows it is kept at an address of our own
//! (*hidden*). So is what was unmapped: if the object is mapped again and the
//! recorder saw no reason to copy it again, that is what it has.
//!
//! Files grow and shrink under their mappings. How long each is, the log says
//! where that changes; what lies behind the end is mapped such that touching it
//! is SIGBUS, as it was then (`lay`).

use core::cell::Cell;
use core::sync::atomic::AtomicU32;
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
/// Of a private mapping: the program wrote to it, it is not the object's any
/// more.
const OWN: u8 = 3;

/// There is no captured file behind a mapping.
pub const NO_FILE: u64 = u64::MAX;

/// Kinds of regions.
pub const SHARED: u64 = 0;
/// Its pages are the object's until they are written.
pub const PRIVATE: u64 = 1;
/// Not the program's: see above.
const HIDDEN: u64 = 2;
/// Shared with children only: unmapped, it is gone.
pub const UNNAMED: u64 = 3;

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
    /// The captured file it was mapped from, and how much of that is still the
    /// object's.
    pub file: u64,
    pub captured: u64,
    pub kind: u64,
}

impl Region {
    fn len(&self) -> u64 {
        self.end - self.start
    }
    /// A part of it: addresses.
    fn part(&self, start: u64, end: u64) -> Region {
        let skipped = start - self.start;
        Region {
            start,
            end,
            offset: self.offset + skipped,
            states: self.states + skipped / PAGE,
            ..*self
        }
    }
    fn state(&self, page: u64) -> u64 {
        self.states + (page - self.start) / PAGE
    }
    /// Where this region has the page at `offset` of its object.
    fn page_of(&self, key: u64, offset: u64) -> Option<u64> {
        let inside = self.key == key && (self.offset..self.offset + self.len()).contains(&offset);
        inside.then(|| self.start + (offset - self.offset))
    }
}

const REGIONS_MAX: usize = 65536;
const OBJECTS_MAX: usize = 16384;

/// How long an object is.
#[derive(Clone, Copy)]
pub struct Size {
    key: u64,
    size: u64,
}

/// What a space knows of it.
#[repr(C)]
pub struct Sharing {
    /// Whether the table of regions is mapped.
    pub is_there: Cell<u32>,
    /// How many places of the table are in use, regions' and sizes'; 0 regions:
    /// it may not be there yet.
    pub count: Cell<u32>,
    pub sizes_count: Cell<u32>,
    /// Where room for states, and for hidden regions, was found last.
    pub states_next: Cell<u64>,
    pub hidden_next: Cell<u64>,
    /// The turn that this space has: domain + 1 and sequence number.
    pub domain: Cell<u64>,
    pub sequence: Cell<u64>,
    /// How far the journal has been followed.
    pub seen: Cell<u64>,
    /// How many pages are kept.
    pub kept: Cell<u64>,
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
fn cells() -> &'static [Cell<Region>] {
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

/// Where the states of pages are, and pages as they were before this turn,
/// each behind a word with its key and one with its offset.
const STATES_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_4000_0000;
const STATES_MAX: u64 = 0x1000_0000;
const KEPT_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_5000_0000;
const KEPT_MAX: u64 = 0x8000_0000 / KEPT_SIZE;
const KEPT_SIZE: u64 = 2 * PAGE;
const HIDDEN_BASE: u64 = protocol::layout::MONITOR_BASE + 0x20_0000_0000;
const HIDDEN_MAX: u64 = 0x20_0000_0000;
/// How many that the program does not map are kept.
const HIDDEN_KEPT: usize = 64;
/// Behind the end of every captured file.
const BEYOND: u64 = 1 << 40;

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
    cells()
        .iter()
        .map(Cell::get)
        .filter(|region| region.key != 0)
}

fn add(region: Region) -> bool {
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
fn find_room(
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

fn up(address: u64) -> u64 {
    address.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Memory for the states of a region's pages, all CLEAN.
fn fresh_states(thread: &Thread, len: u64) -> u64 {
    let room = up(len / PAGE);
    let taken = |r: &Region| Some((r.states & !(PAGE - 1), up(r.states + r.len() / PAGE)));
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED | sys::MAP_NORESERVE;
    let next = &sharing().states_next;
    match find_room(STATES_BASE, STATES_MAX, room, next, taken) {
        Some(at) if sys::call(nr::MMAP, at, room, 3, flags, u64::MAX, 0) == at as i64 => at,
        _ => replay::diverge(thread, difference::MEMORY, 2, 0, len),
    }
}

fn size_of(key: u64) -> Option<u64> {
    let found = sizes().iter().map(Cell::get).find(|s| s.key == key)?;
    Some(found.size)
}

/// False: there are too many objects.
fn set_size(key: u64, size: u64) -> bool {
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

fn is_mapped(key: u64) -> bool {
    regions().any(|region| region.key == key)
}

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
fn hide(thread: &Thread, shown: &Region) {
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
fn lay(region: &Region, start: u64, end: u64) {
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
    if size_of(key).is_some_and(|before| before != size) {
        resize(key, size);
        if is_written() {
            append(entry::SIZE, key, size, 0, 0);
        }
    }
}

fn resize(key: u64, size: u64) {
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
        protect(page, 3);
        mem::copy(page + tail, (&raw const ZEROES) as u64, PAGE - tail);
        settle(&region, page);
    }
}

static ZEROES: [u64; PAGE as usize / 8] = [0; PAGE as usize / 8];

/// A page that the program changed for itself is the object's again.
fn disown(region: &Region, page: u64) {
    let offset = region.offset + (page - region.start);
    let is_held = holder_of(region.key, offset).is_some();
    set_state(region.state(page), if is_held { AWAY } else { CLEAN });
}

/// What may be done with a page as things are.
fn wanted(region: &Region, page: u64) -> u64 {
    match state(region.state(page)) {
        AWAY => 0,
        OWN => region.prot,
        _ if region.kind == PRIVATE => region.prot & !WRITE,
        CLEAN if is_written() => region.prot & !WRITE,
        _ => region.prot,
    }
}

fn settle(region: &Region, page: u64) {
    protect(page, wanted(region, page));
}

/// Sets the protection of all pages of a region as their states say.
fn renew(region: &Region) {
    let (mut from, mut page) = (region.start, region.start);
    while page < region.end {
        page += PAGE;
        if page == region.end || wanted(region, page) != wanted(region, from) {
            let prot = wanted(region, from);
            sys::call(nr::MPROTECT, from, page - from, prot, 0, 0, 0);
            from = page;
        }
    }
}

/// The region and address where a page of an object is accessible.
fn holder_of(key: u64, offset: u64) -> Option<(Region, u64)> {
    regions().find_map(|region| {
        let page = region.page_of(key, offset)?;
        matches!(state(region.state(page)), CLEAN | DIRTY).then_some((region, page))
    })
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
                fetch(page, &from, there);
                settle(&region, page);
            }
            page += PAGE;
        }
    }
}

/// Copies a page from where it is accessible.
fn fetch(to: u64, from: &Region, there: u64) {
    protect(to, 3);
    protect(there, 1);
    mem::copy(to, there, PAGE);
    settle(from, there);
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
    if region.kind == PRIVATE && is_write && state(place) != OWN {
        // From now on it is the program's own.
        if state(place) == AWAY {
            let Some((from, there)) = holder_of(region.key, offset) else {
                return false;
            };
            fetch(page, &from, there);
        } else {
            pass_on(&region, page);
        }
        set_state(place, OWN);
        changed = true;
    } else if state(place) == AWAY {
        let Some((from, there)) = holder_of(region.key, offset) else {
            return false;
        };
        fetch(page, &from, there);
        set_state(place, state(from.state(there)));
        set_state(from.state(there), AWAY);
        settle(&from, there);
        changed = true;
    }
    if is_write && state(place) == CLEAN && is_written() {
        keep(region.key, offset, page);
        set_state(place, DIRTY);
        changed = true;
    }
    settle(&region, page);
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
    Kept { place }.set_idle(0);
    mem::copy(place + PAGE, page, PAGE);
    sharing().kept.set(kept + 1);
}

/// A kept page: which it is, in how many turns it was not changed, and where it
/// is as it was.
struct Kept {
    place: u64,
}

impl Kept {
    fn at(index: u64) -> Kept {
        Kept {
            place: KEPT_BASE + index * KEPT_SIZE,
        }
    }
    fn word(&self, index: u64) -> u64 {
        mem::read_at(self.place, 8 * index)
    }
    fn key(&self) -> u64 {
        self.word(0)
    }
    fn offset(&self) -> u64 {
        self.word(1)
    }
    fn idle(&self) -> u64 {
        self.word(2)
    }
    fn set_idle(&self, turns: u64) {
        mem::copy(self.place + 16, (&raw const turns) as u64, 8);
    }
    fn before(&self) -> u64 {
        self.place + PAGE
    }
}

/// Appends what was changed since the turn began; the pages are clean again.
fn collect() {
    for i in 0..sharing().kept.replace(0) {
        let kept = Kept::at(i);
        if let Some((region, page)) = holder_of(kept.key(), kept.offset()) {
            append_changes(&kept, &region, page);
            set_state(region.state(page), CLEAN);
            settle(&region, page);
        }
    }
}

/// How many pages stay open from one turn to the next.
const OPEN_MAX: u64 = 64;

/// Appends what was changed when a turn ends. Most pages that were written will be
/// written again in the next: those stay open, and are compared again then.
/// That is much less than to protect a page, to fault and to open it.
fn harvest() {
    const IDLE_MAX: u64 = 16;
    const MANY: u64 = 4096;
    let count = sharing().kept.get();
    let mut open = 0;
    for i in 0..count {
        let kept = Kept::at(i);
        let Some((region, page)) = holder_of(kept.key(), kept.offset()) else {
            continue;
        };
        let idle = match append_changes(&kept, &region, page) {
            true => 0,
            false => kept.idle() + 1,
        };
        if open < OPEN_MAX && idle < IDLE_MAX && region.prot & 3 == 3 {
            kept.set_idle(idle);
            if open != i {
                mem::copy(Kept::at(open).place, kept.place, 24);
                mem::copy(Kept::at(open).before(), kept.before(), PAGE);
            }
            open += 1;
        } else {
            set_state(region.state(page), CLEAN);
            settle(&region, page);
        }
    }
    sharing().kept.set(open);
    if count > MANY {
        const MADV_DONTNEED: u64 = 4;
        let (from, len) = (Kept::at(open).place, (count - open) * KEPT_SIZE);
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

/// Writes an entry of the journal.
fn append(kind: u64, first: u64, second: u64, from: u64, len: u64) {
    let journal = journal();
    if journal
        .lock
        .compare_exchange(0, 1, Acquire, Relaxed)
        .is_err()
    {
        while journal.lock.swap(2, Acquire) != 0 {
            sys::futex_wait(&journal.lock, 2, 1_000_000);
        }
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
    if journal.lock.swap(0, Release) == 2 {
        sys::futex_wake(&journal.lock, 1);
    }
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
    let mut open = OpenPage(None, None);
    while at < end {
        let (head, next) = entry_at(at);
        is_known |= head[..3] == [entry::MAP, key, id];
        if is_known && head[0] == entry::BYTES && head[1] == key {
            open.apply(&head, at);
        }
        at = next;
    }
    open.close();
}

/// A page that what others wrote is put into. There may be hundreds of entries
/// for one page in a row: its protection is changed once for all of them. If this
/// process has it open, with it goes what is kept of it.
struct OpenPage(Option<(Region, u64)>, Option<Kept>);

impl OpenPage {
    /// Writes what another wrote.
    fn apply(&mut self, head: &[u64; 4], at: u64) {
        let [_, key, offset, len] = *head;
        let offset_of_page = offset & !(PAGE - 1);
        let is_open = self
            .0
            .is_some_and(|(region, page)| region.page_of(key, offset_of_page) == Some(page));
        if !is_open {
            self.close();
            self.0 = holder_of(key, offset_of_page);
            self.1 = None;
            let Some((region, page)) = self.0 else {
                return;
            };
            if state(region.state(page)) == DIRTY {
                let mut kept = (0..sharing().kept.get()).map(Kept::at);
                self.1 = kept.find(|kept| kept.key() == key && kept.offset() == offset_of_page);
            }
            if wanted(&region, page) & 3 != 3 {
                protect(page, 3);
                // What others write they will write again, and this process may
                // as well: it stays open, too.
                let count = sharing().kept.get();
                let is_shared = region.kind == SHARED || region.kind == UNNAMED;
                if is_written() && is_shared && region.prot & 3 == 3 && count < OPEN_MAX {
                    keep(key, offset_of_page, page);
                    set_state(region.state(page), DIRTY);
                    self.1 = Some(Kept::at(count));
                }
            }
        }
        let (within, from) = (offset & (PAGE - 1), journal_at(at) + 32);
        if let Some((_, page)) = self.0 {
            mem::copy(page + within, from, len);
        }
        // It is not this process that wrote it.
        if let Some(kept) = &self.1 {
            mem::copy(kept.before() + within, from, len);
        }
    }

    fn close(&mut self) {
        if let Some((region, page)) = self.0.take()
            && wanted(&region, page) & 3 != 3
        {
            settle(&region, page);
        }
    }
}

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

/// The process had a call clear a part of an object: zeroes were written there, as
/// far as the object reaches.
pub fn cleared(key: u64, offset: u64, len: u64) {
    let end = offset
        .saturating_add(len)
        .min(size_of(key).unwrap_or(u64::MAX));
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

/// Writes to one page of an object, if it is anywhere.
fn write_page(key: u64, at: u64, from: u64, len: u64) {
    let Some((region, page)) = holder_of(key, at & !(PAGE - 1)) else {
        return;
    };
    if state(region.state(page)) == CLEAN && is_written() {
        keep(key, at & !(PAGE - 1), page);
        set_state(region.state(page), DIRTY);
    }
    protect(page, 3);
    mem::copy(page + (at & (PAGE - 1)), from, len);
    settle(&region, page);
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
            cleared(part.key, part.offset, part.len());
        }
        at = part.end;
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
    let mut open = OpenPage(None, None);
    loop {
        let word = journal.turn_word(domain, sequence);
        let ended = word.load(Acquire);
        let mut at = sharing().seen.get();
        let end = journal.len.load(Acquire);
        // One who has something to do does not wait, however long that takes.
        if waits && at < end {
            waits = false;
            journal.waiting.fetch_sub(1, Release);
        }
        while at < end {
            let (head, next) = entry_at(at);
            match head[0] {
                entry::BYTES => open.apply(&head, at),
                entry::SIZE => {
                    open.close();
                    resize(head[1], head[2]);
                }
                _ => {}
            }
            at = next;
            sharing().seen.set(at);
            if head[..3] == [entry::TURN, domain, sequence] {
                open.close();
                return;
            }
        }
        open.close();
        let complete = journal.is_complete.load(Acquire) != 0;
        if complete || journal.is_hopeless.load(Acquire) != 0 || journal.is_full.load(Acquire) != 0
        {
            replay::diverge(thread, difference::SHARED_MEMORY, 0, domain, sequence);
        }
        if !waits {
            waits = true;
            journal.waiting.fetch_add(1, Release);
        }
        sys::futex_wait(word, ended, 100_000_000);
    }
}

/// The turn is over: others may see what was written in it.
pub fn publish() {
    let sharing = sharing();
    let domain = sharing.domain.get();
    if domain == 0 || journal().is_complete.load(Acquire) != 0 || sharing.sequence.get() == 0 {
        return;
    }
    harvest();
    let sequence = sharing.sequence.replace(0);
    append(entry::TURN, domain - 1, sequence, 0, 0);
    wake(journal().turn_word(domain - 1, sequence));
}

fn wake(word: &AtomicU32) {
    word.fetch_add(1, Release);
    sys::futex_wake(word, u32::MAX >> 1);
}

/// This process does not get to the end of its turns: nobody shall wait.
pub fn give_up() {
    if sharing().domain.get() != 0 && journal().is_complete.load(Acquire) == 0 {
        journal().is_hopeless.store(1, Release);
        journal().turns.iter().for_each(wake);
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
        let kept = Kept::at(i);
        if let Some((region, page)) = holder_of(kept.key(), kept.offset()) {
            set_state(region.state(page), CLEAN);
            settle(&region, page);
        }
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

/// Takes a range out of a region.
fn cut(cell: &Cell<Region>, from: u64, to: u64) {
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

/// Pages that go away here are from now on at another address, if there is
/// one. (The memory is still there.)
fn hand_over(region: &Region) {
    let is_alone =
        !regions().any(|r| r.key == region.key && (r.end <= region.start || region.end <= r.start));
    if is_alone {
        return;
    }
    let mut page = region.start;
    while page < region.end {
        if matches!(state(region.state(page)), CLEAN | DIRTY) {
            pass_on(region, page);
        }
        page += PAGE;
    }
}

/// A page is from now on at another address of the object, if there is one.
fn pass_on(region: &Region, page: u64) {
    let offset = region.offset + (page - region.start);
    let heir = regions().find_map(|other| {
        let there = other.page_of(region.key, offset)?;
        (there != page && state(other.state(there)) == AWAY).then_some((other, there))
    });
    if let Some((other, there)) = heir {
        fetch(there, region, page);
        set_state(other.state(there), state(region.state(page)));
        set_state(region.state(page), AWAY);
        settle(&other, there);
        settle(region, page);
    }
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

/// How long the region is that begins at an address (`shmdt` does not say).
pub fn length_at(start: u64) -> Option<u64> {
    regions()
        .find(|r| r.start == start)
        .map(|r| r.end - r.start)
}

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
fn moved(thread: &Thread, old: u64, old_len: u64, new: u64, new_len: u64) -> bool {
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
fn move_memory(from: u64, to: u64, len: u64) {
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
