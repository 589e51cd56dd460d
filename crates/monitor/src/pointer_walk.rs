//! A look at the memory that pointers lead to, from a few of them on: breadth
//! first, a bounded way.
//!
//! Two passes through a loop may look the same in all registers, on the stack
//! and behind the next pointers: an interpreter's are in objects some steps
//! away. What is found here depends on memory alone, so it is the same in
//! recording and in replay; that numbers are taken for pointers does no harm.

/// How many pointers are followed, and how many may wait for it.
const VISITS_MAX: usize = 256;
const QUEUE: usize = 768;
/// Room for what has been seen: more than is ever used.
const SEEN: usize = 1024;
/// Stretches of memory that are known to be there, by their numbers.
const REGIONS: usize = 32;
const REGION_BITS: u32 = 20;
const _: () = assert!(SEEN > QUEUE && SEEN.is_power_of_two());

/// What is looked at around a pointer, in words: some before it, too, because
/// many point into the middle of what they belong to.
pub const BEFORE: u64 = 64;
pub const AROUND: usize = 24;

pub struct PointerWalk {
    queue: [u64; QUEUE],
    taken: usize,
    known: usize,
    /// A table of the lines of memory that have been in the queue.
    seen: [u32; SEEN],
    regions: [u32; REGIONS],
    regions_used: usize,
}

impl PointerWalk {
    pub fn new() -> PointerWalk {
        PointerWalk {
            queue: [0; QUEUE],
            taken: 0,
            known: 0,
            seen: [0; SEEN],
            regions: [0; REGIONS],
            regions_used: 0,
        }
    }

    /// What may be a pointer.
    pub fn add(&mut self, pointer: u64) {
        const PLAUSIBLE: core::ops::Range<u64> = 0x1_0000..0x7fff_ffff_0000;
        if self.known == QUEUE || !PLAUSIBLE.contains(&pointer) {
            return;
        }
        let line = ((pointer >> 6) as u32).max(1);
        let mut at = line.wrapping_mul(0x9e37_79b1) as usize >> 8;
        loop {
            let place = &mut self.seen[at % SEEN];
            if *place == line {
                return;
            }
            if *place == 0 {
                *place = line;
                break;
            }
            at += 1;
        }
        self.queue[self.known] = pointer & !7;
        self.known += 1;
    }

    /// The next one to look at. `may_fail`: whether it may turn out that there
    /// is no memory; else only those are given of which that is not likely.
    pub fn next(&mut self, may_fail: bool) -> Option<u64> {
        while self.taken < self.known.min(VISITS_MAX) {
            let pointer = self.queue[self.taken];
            self.taken += 1;
            if may_fail || self.is_known(pointer) {
                return Some(pointer);
            }
        }
        None
    }

    fn is_known(&self, pointer: u64) -> bool {
        self.regions[..self.regions_used].contains(&region(pointer))
    }

    /// There was memory, with these words.
    pub fn found(&mut self, pointer: u64, words: &[u64]) {
        for word in words {
            self.add(*word);
        }
        if self.regions_used < REGIONS && !self.is_known(pointer) {
            self.regions[self.regions_used] = region(pointer);
            self.regions_used += 1;
        }
    }
}

fn region(pointer: u64) -> u32 {
    (pointer >> REGION_BITS) as u32
}
