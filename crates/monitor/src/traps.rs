//! Breakpoints that a debugger has put into the code of a program that runs: a byte in
//! the place of each. What is recorded of memory is recorded without them, because
//! replay has none.
//!
//! The debugger writes to the table, from outside and while it traces the process: before
//! it puts a breakpoint in, and after it has taken it out.

use core::ops::Range;
use core::sync::atomic::Ordering::Acquire;

use crate::state::space;

/// Where there are some, and what was there.
fn all() -> impl Iterator<Item = (u64, u8)> {
    let words = space().traps.iter().map(|word| word.load(Acquire));
    let used = words.filter(|word| *word != 0);
    used.map(|word| (word >> 8, word as u8))
}

/// Puts the program's own bytes over breakpoints: `bytes` are those at `address`.
pub fn hide(address: u64, bytes: &mut [u8]) {
    for (at, was) in all() {
        if let Some(place) = bytes.get_mut(at.wrapping_sub(address) as usize) {
            *place = was;
        }
    }
}

/// Puts the program's own bytes over breakpoints among the words at `address`.
pub fn hide_in_words(address: u64, words: &mut [u64]) {
    for (at, was) in all() {
        let offset = at.wrapping_sub(address);
        if let Some(word) = words.get_mut((offset / 8) as usize) {
            let shift = 8 * (offset % 8);
            *word = *word & !(0xff << shift) | u64::from(was) << shift;
        }
    }
}

/// Whether there is one in this stretch of code.
pub fn are_in(code: &Range<u64>) -> bool {
    all().any(|(at, _)| code.contains(&at))
}
