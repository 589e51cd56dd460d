//! The memory that translated code lives in.
//!
//! It is one piece, so that everything in it is reached by a displacement from
//! `rip`: slots for registers that are put aside, the table in which jumps look
//! up where they go, a list of the blocks, the code. All state is in that
//! memory; [`Cache`] is only a view of it.

use core::ops::Range;

use crate::writer::{RAX, RCX, RDX, Writer};

// Slots, at the beginning.
/// Where exits go.
const COMMON: usize = 0x00;
/// Which exit was taken: where its data is, or one of the values below.
pub const EXIT: usize = 0x08;
/// The program's rcx, rdx and rax, while they are used for something else.
pub const SAVED_RCX: usize = 0x10;
const SAVED_RDX: usize = 0x18;
pub const SAVED_RAX: usize = 0x20;
/// Where a jump through a register or memory goes.
pub const TARGET: usize = 0x28;
const GO: usize = 0x30;
/// A register that stands in for `rip`.
pub const SPILL: usize = 0x38;
/// Control transfers still to be taken.
pub const COUNT: usize = 0x40;
/// How much of the memory is in use.
const USED: usize = 0x48;
const BLOCKS: usize = 0x50;
/// How often the cache was cleared.
const GENERATION: usize = 0x58;
/// Where the code is that looks at watched memory.
const CHECK: usize = 0x60;
/// The data of the place that has it looked at: the program's address that
/// comes next, or 0 if that is in `TARGET`. Behind it the code goes on.
pub const CHECKED: usize = 0x68;
/// How many pieces are watched.
const WATCHES: usize = 0x70;
/// What stands in for watched memory that cannot be read: always zero.
const NOTHING: usize = 0x78;

/// A vector register that is looked at.
pub const VECTOR: usize = 0x80;

/// Watched memory, piece by piece: the address that is looked at, the negative of
/// what it held, its length (and whether it is alone), and where it is, whether it
/// can be read or not.
const PIECES: usize = 0x100;
const PIECE: usize = 32;
const ALONE: u64 = 1 << 8;
const _: () = assert!(PIECES + WATCHES_MAX * PIECE <= KEYS);

/// How many pieces of memory can be watched.
pub const WATCHES_MAX: usize = 64;

/// A jump's target is not in the table.
const MISSED: u32 = 1;
/// The last control transfer to be taken was such a jump.
pub const COUNTED_THROUGH: u32 = 2;
/// Watched memory has changed.
const CHANGED: u32 = 3;

/// Kinds of exits that have data: target, site, kind.
pub mod kind {
    /// The target is not translated yet; the site is where to put it.
    pub const OPEN: u32 = 0;
    /// The goal's conditions hold; the target is where to go on in the cache.
    pub const GOAL: u32 = 1;
    /// The last control transfer was taken.
    pub const COUNTED: u32 = 2;
    /// One instruction was executed.
    pub const STEPPED: u32 = 3;
    /// The block is not of the code that is there now.
    pub const STALE: u32 = 4;
}
pub const EXIT_DATA: usize = 16;

// The table: program address -> offset of its translation. An address is
// looked for from the place of its low bits on; the keys are stored negated,
// so that equality is a sum of zero.
const ENTRIES: usize = 1 << 16;
const WINDOW: usize = 16;
const KEYS: usize = 0x1000;
const VALUES: usize = KEYS + (ENTRIES + WINDOW) * 8;

// The list of blocks, in the order of their offsets: program address, offset.
const LIST: usize = VALUES + (ENTRIES + WINDOW) * 8;
const BLOCKS_MAX: usize = 1 << 16;

const CODE: usize = LIST + BLOCKS_MAX * 16;

/// Room that one block takes at most.
pub const BLOCK_ROOM: usize = 0x8000;

/// The least memory that makes a cache.
pub const CACHE_MIN: usize = CODE + 4 * BLOCK_ROOM;

/// How translated code came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It goes on at this address of the program, which is not translated.
    /// (The site is for [`Cache::resume`].)
    Open {
        /// The program's address.
        target: u64,
        /// The jump that led here, and may lead there from now on.
        site: Option<Site>,
    },
    /// It is before the goal's instruction, and the conditions hold.
    Goal {
        /// Where it goes on, if this is not the time.
        resume: u64,
    },
    /// The last of the control transfers to be counted led to this address.
    Counted {
        /// The program's address.
        target: u64,
    },
    /// One instruction was executed ([`Cache::step`]); this is the next.
    Stepped {
        /// The program's address.
        target: u64,
    },
    /// The code at this address has changed since it was translated.
    Stale {
        /// The program's address.
        target: u64,
    },
    /// An instruction changed memory that is watched; this is the next.
    Changed {
        /// The program's address.
        target: u64,
    },
}

/// A piece of memory that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it is.
    pub address: u64,
    /// 1, 2, 4 or 8.
    pub length: u8,
    /// What it holds; nothing, if it cannot be read now: it is not looked at.
    pub value: Option<u64>,
    /// Nothing that is written to another address is written to it. (Memory may be
    /// mapped twice.)
    pub is_alone: bool,
}

/// A jump in the cache whose target can be filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub(crate) offset: usize,
    pub(crate) generation: u64,
}

/// A view of the memory that translated code lives in.
pub struct Cache<'a> {
    pub(crate) memory: &'a mut [u8],
    pub(crate) base: u64,
}

impl<'a> Cache<'a> {
    /// Uses `memory`, which is at address `base` for the code that will run
    /// in it. It was zero when it was first used. `None` if it is too small,
    /// or too large for displacements.
    #[must_use]
    pub fn new(memory: &'a mut [u8], base: u64) -> Option<Self> {
        let fits = (CACHE_MIN..1 << 30).contains(&memory.len()) && base.is_multiple_of(64);
        fits.then_some(Cache { memory, base })
    }

    /// Forgets all translations. Exits go to `common` from now on, with all
    /// registers as the program has them.
    pub fn clear(&mut self, common: u64) {
        self.put(COMMON, common);
        self.forget();
    }

    pub(crate) fn forget(&mut self) {
        for block in 0..self.get(BLOCKS) as usize {
            let address = self.get(LIST + block * 16);
            for place in places(address) {
                self.put(KEYS + place * 8, 0);
                self.put(VALUES + place * 8, 0);
            }
        }
        self.put(BLOCKS, 0);
        self.put(GENERATION, self.get(GENERATION).wrapping_add(1));
        self.put(USED, CODE as u64);
        self.write_lookup();
    }

    /// Says what is watched by code that is translated for it
    /// ([`Options::watch`](crate::Options::watch)). It comes before
    /// [`Cache::clear`].
    pub fn set_watches(&mut self, pieces: impl Iterator<Item = Piece>) {
        let mut count = 0;
        for (piece, number) in pieces.zip(0..WATCHES_MAX) {
            let at = PIECES.wrapping_add(number.wrapping_mul(PIECE));
            let alone = if piece.is_alone { ALONE } else { 0 };
            self.put(at.wrapping_add(16), u64::from(piece.length) | alone);
            self.put(at.wrapping_add(24), piece.address);
            self.set_held(number, piece.value);
            count = number.wrapping_add(1);
        }
        self.put(WATCHES, count as u64);
    }

    /// Says what a piece that is watched holds now, if it can be read.
    pub fn set_held(&mut self, number: usize, value: Option<u64>) {
        if number >= WATCHES_MAX {
            return;
        }
        let at = PIECES.wrapping_add(number.wrapping_mul(PIECE));
        let address = match value {
            Some(_) => self.get(at.wrapping_add(24)),
            None => self.base.wrapping_add(NOTHING as u64),
        };
        self.put(at, address);
        self.put(at.wrapping_add(8), value.unwrap_or(0).wrapping_neg());
    }

    /// Where watched memory is: the stretch of each piece, and whether it is alone.
    pub(crate) fn watched(&self) -> impl Iterator<Item = (Range<u64>, bool)> {
        let count = (self.get(WATCHES) as usize).min(WATCHES_MAX);
        (0..count).map(|number| {
            let at = PIECES.wrapping_add(number.wrapping_mul(PIECE));
            let (word, from) = (self.get(at.wrapping_add(16)), self.get(at.wrapping_add(24)));
            let to = from.saturating_add(word & 0xff);
            (from..to, word & ALONE != 0)
        })
    }

    /// How many bytes of code there are.
    #[must_use]
    pub fn used(&self) -> usize {
        (self.get(USED) as usize).saturating_sub(CODE)
    }

    /// Sets how many control transfers may be taken, in code that was
    /// translated to count them, until [`Exit::Counted`]. At least one.
    pub fn set_count(&mut self, count: u64) {
        self.put(COUNT, count);
    }

    /// How many are left.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.get(COUNT)
    }

    /// Which exit was taken.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let exit = self.get(EXIT) as u32;
        if exit == MISSED || (exit as usize) < CODE {
            let target = self.get(TARGET);
            return match exit {
                COUNTED_THROUGH => Exit::Counted { target },
                CHANGED => {
                    let data = self.get(CHECKED).wrapping_sub(self.base);
                    match self.get(data as usize) {
                        0 => Exit::Changed { target },
                        target => Exit::Changed { target },
                    }
                }
                _ => Exit::Open { target, site: None },
            };
        }
        let data = exit as usize;
        let target = self.get(data);
        let word = self.get(data.wrapping_add(8));
        match (word >> 32) as u32 {
            kind::GOAL => Exit::Goal { resume: target },
            kind::COUNTED => Exit::Counted { target },
            kind::STEPPED => Exit::Stepped { target },
            kind::STALE => Exit::Stale { target },
            _ => Exit::Open {
                target,
                site: Some(self.site(word as u32 as usize, 0)),
            },
        }
    }

    /// Where in the program the code at an address of the cache comes from:
    /// the beginning of its block.
    #[must_use]
    pub fn origin(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        if offset >= self.get(USED) {
            return None;
        }
        let (mut low, mut high) = (0, self.get(BLOCKS) as usize);
        while low < high {
            let middle = low.midpoint(high);
            if self.get(LIST + middle * 16 + 8) <= offset {
                low = middle.wrapping_add(1);
            } else {
                high = middle;
            }
        }
        Some(self.get(LIST + low.checked_sub(1)? * 16))
    }

    /// The jump whose target is so many bytes behind an offset.
    pub(crate) fn site(&self, offset: usize, behind: usize) -> Site {
        Site {
            offset: offset.wrapping_add(behind),
            generation: self.get(GENERATION),
        }
    }

    /// Lets a jump lead to a translation, if both are still there.
    pub(crate) fn link(&mut self, site: Site, offset: usize) {
        if site.generation == self.get(GENERATION) {
            self.writer(0).settle(site.offset, offset);
        }
    }

    /// The offset of the translation of the code at `address`, if there is one.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        for place in places(address) {
            match self.get(KEYS + place * 8) {
                0 => return None,
                key if key == address.wrapping_neg() => {
                    let value = self.get(VALUES + place * 8);
                    return Some(value.wrapping_sub(self.base) as usize);
                }
                _ => {}
            }
        }
        None
    }

    /// Begins a block for the code at `address`: its offset. Everything may be
    /// forgotten for it.
    pub(crate) fn begin_block(&mut self, address: u64) -> usize {
        // The one that it has, if it was translated before.
        let free = |cache: &Self| {
            places(address).find(|p| {
                let key = cache.get(KEYS + p * 8);
                key == 0 || key == address.wrapping_neg()
            })
        };
        let room = self.memory.len().saturating_sub(self.get(USED) as usize);
        if room < 2 * BLOCK_ROOM || self.get(BLOCKS) as usize == BLOCKS_MAX || free(self).is_none()
        {
            self.forget();
        }
        let offset = self.get(USED) as usize;
        if let Some(place) = free(self) {
            self.put(KEYS + place * 8, address.wrapping_neg());
            self.put(VALUES + place * 8, self.base.wrapping_add(offset as u64));
        }
        let block = self.get(BLOCKS) as usize;
        self.put(LIST + block * 16, address);
        self.put(LIST + block * 16 + 8, offset as u64);
        self.put(BLOCKS, block as u64 + 1);
        offset
    }

    pub(crate) fn end_block(&mut self, end: usize) {
        self.put(USED, end as u64);
    }

    /// The jump found nothing at the first two places: puts the entry there,
    /// if it was further on.
    pub(crate) fn promote(&mut self, address: u64) {
        let home = address as u16 as usize;
        let key = |cache: &Self, place: usize| cache.get(KEYS + place * 8);
        let Some(place) = places(address)
            .skip(2)
            .find(|p| key(self, *p) == address.wrapping_neg())
        else {
            return;
        };
        let other = key(self, home);
        let other_home = other.wrapping_neg() as u16 as usize;
        // It must still be found from its own place.
        if place.wrapping_sub(other_home) < WINDOW {
            let (mine, theirs) = (self.get(VALUES + place * 8), self.get(VALUES + home * 8));
            self.put(KEYS + home * 8, address.wrapping_neg());
            self.put(VALUES + home * 8, mine);
            self.put(KEYS + place * 8, other);
            self.put(VALUES + place * 8, theirs);
        }
    }

    pub(crate) fn writer(&mut self, at: usize) -> Writer<'_> {
        Writer::new(self.memory, self.base, at)
    }

    /// Where jumps through registers and memory look up their targets: rcx is
    /// the target, the program's rcx is in its slot.
    pub(crate) const LOOKUP: usize = CODE;

    fn write_lookup(&mut self) {
        let mut w = self.writer(CODE);
        w.store(TARGET, RCX);
        w.store(SAVED_RDX, RDX);
        w.store(SAVED_RAX, RAX);
        w.address_of(RAX, KEYS);
        w.bytes(&[0x0f, 0xb7, 0xd1]); // movzx edx, cx
        w.bytes(&[0x48, 0x8d, 0x04, 0xd0]); // lea rax, [rax + rdx*8]
        w.bytes(&[0x48, 0x8b, 0x10]); // mov rdx, [rax]
        w.bytes(&[0x48, 0x8d, 0x0c, 0x11]); // lea rcx, [rcx + rdx]
        let first = w.jump_if_rcx_is_zero();
        w.load(RCX, TARGET);
        w.bytes(&[0x48, 0x8b, 0x50, 0x08]); // mov rdx, [rax + 8]
        w.bytes(&[0x48, 0x8d, 0x0c, 0x11]); // lea rcx, [rcx + rdx]
        let second = w.jump_if_rcx_is_zero();
        w.store_value(EXIT, MISSED);
        restore(&mut w);
        w.jump_through(COMMON);
        w.settle_short(second);
        w.bytes(&[0x48, 0x8d, 0x40, 0x08]); // lea rax, [rax + 8]
        w.settle_short(first);
        w.bytes(&[0x48, 0x8b, 0x80]); // mov rax, [rax + VALUES - KEYS]
        w.u32((VALUES - KEYS) as u32);
        w.store(GO, RAX);
        restore(&mut w);
        w.jump_through(GO);
        w.align();
        let end = w.at;
        self.put(CHECK, end as u64);
        self.write_check(end);
    }

    /// Where the code is that looks at watched memory.
    pub(crate) fn check(&self) -> usize {
        self.get(CHECK) as usize
    }

    /// Comes back to behind the data that `CHECKED` leads to, or leaves if
    /// something has changed. rcx is in its slot.
    fn write_check(&mut self, at: usize) {
        let count = (self.get(WATCHES) as usize).min(WATCHES_MAX);
        let mut end = at;
        if count != 0 {
            let mut w = self.writer(end);
            w.store(SAVED_RAX, RAX);
            end = w.at;
        }
        let mut changed = [0; WATCHES_MAX];
        for (number, changed) in (0..count).zip(&mut changed) {
            let place = PIECES.wrapping_add(number.wrapping_mul(PIECE));
            let length = self.get(place.wrapping_add(16)) & 0xff;
            let mut w = self.writer(end);
            w.load(RCX, place);
            match length {
                1 => w.bytes(&[0x0f, 0xb6, 0x09]), // movzx ecx, byte ptr [rcx]
                2 => w.bytes(&[0x0f, 0xb7, 0x09]), // movzx ecx, word ptr [rcx]
                4 => w.bytes(&[0x8b, 0x09]),       // mov ecx, [rcx]
                _ => w.bytes(&[0x48, 0x8b, 0x09]), // mov rcx, [rcx]
            }
            w.load(RAX, place.wrapping_add(8));
            w.bytes(&[0x48, 0x8d, 0x0c, 0x01]); // lea rcx, [rcx + rax]
            w.bytes(&[0xe3, 0x05]); // jrcxz, past the jump
            *changed = w.jump_later(&[0xe9]);
            end = w.at;
        }
        let mut w = self.writer(end);
        w.load(RCX, CHECKED);
        w.bytes(&[0x48, 0x8d, 0x49, 0x08]); // lea rcx, [rcx + 8]
        w.store(GO, RCX);
        if count != 0 {
            w.load(RAX, SAVED_RAX);
        }
        w.load(RCX, SAVED_RCX);
        w.jump_through(GO);
        for site in changed.iter().take(count) {
            w.settle(*site, w.at);
        }
        w.load(RAX, SAVED_RAX);
        w.load(RCX, SAVED_RCX);
        write_exit_through(&mut w, CHANGED);
        w.align();
        let end = w.at;
        self.put(USED, end as u64);
    }

    pub(crate) fn get(&self, offset: usize) -> u64 {
        self.memory
            .get(offset..offset.wrapping_add(8))
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    }

    fn put(&mut self, offset: usize, value: u64) {
        if let Some(place) = self.memory.get_mut(offset..offset.wrapping_add(8)) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Leaves the cache by an exit of this kind: the program's registers are all
/// in place.
pub fn write_exit(w: &mut Writer<'_>, target: u64, site: usize, kind: u32) {
    let data = w.at.wrapping_add(16);
    w.store_value(EXIT, data as u32);
    w.jump_through(COMMON);
    w.u64(target);
    w.u32(site as u32);
    w.u32(kind);
}

/// Leaves the cache by a jump through a register or memory, whose `value` says
/// what kind of exit it is.
pub fn write_exit_through(w: &mut Writer<'_>, value: u32) {
    w.store_value(EXIT, value);
    w.jump_through(COMMON);
}

/// Puts rax, rcx and rdx aside.
pub fn save(w: &mut Writer<'_>) {
    w.store(SAVED_RCX, RCX);
    w.store(SAVED_RDX, RDX);
    w.store(SAVED_RAX, RAX);
}

pub fn restore(w: &mut Writer<'_>) {
    w.load(RAX, SAVED_RAX);
    w.load(RDX, SAVED_RDX);
    w.load(RCX, SAVED_RCX);
}

/// Places in the table where an address may be, first the best.
fn places(address: u64) -> impl Iterator<Item = usize> {
    let home = usize::from(address as u16);
    home..home.wrapping_add(WINDOW)
}
