//! The program's memory. Every access goes through the guarded copy: the
//! program may pass any address, and what was mapped a moment ago need not be
//! now.

use crate::arch;
use protocol::layout::{MONITOR_BASE, MONITOR_END};

/// Whether a range touches what is the monitor's own.
#[inline(always)]
pub fn is_ours(address: u64, len: u64) -> bool {
    address < MONITOR_END && address.saturating_add(len) > MONITOR_BASE
}

/// Whether a range is not the program's: the monitor's own, or the first page,
/// which is never mapped. (Null pointers are common, and a fault is dear.)
#[inline(always)]
fn is_out_of_reach(address: u64, len: u64) -> bool {
    address < 4096 || is_ours(address, len)
}

/// Reads a word the program has in memory.
#[inline(always)]
pub fn read_word(address: u64) -> Option<u64> {
    if is_out_of_reach(address, 8) {
        return None;
    }
    // SAFETY: not the monitor's memory; unmapped is reported, not followed.
    let loaded = unsafe { arch::load_guarded(address) };
    (loaded.failed == 0).then_some(loaded.word)
}

/// Reads a value the program has in memory.
pub fn read<T: Copy + Plain>(address: u64) -> Option<T> {
    if is_out_of_reach(address, core::mem::size_of::<T>() as u64) {
        return None;
    }
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    let len = core::mem::size_of::<T>() as u64;
    // SAFETY: the destination is ours and large enough; a source that is not
    // mapped is reported, not followed.
    if unsafe { arch::copy_guarded(value.as_mut_ptr() as u64, address, len) } != 0 {
        return None;
    }
    // SAFETY: fully written, and any bytes are a valid `Plain` value.
    Some(unsafe { value.assume_init() })
}

/// Reads a value from bytes of the monitor's own.
pub fn read_own<T: Copy + Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < core::mem::size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, and any of them are a valid `Plain`
    // value; alignment does not matter to an unaligned read.
    Some(unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast::<T>()) })
}

/// Reads a word of the monitor's own, at an address and offset.
pub fn read_at(address: u64, offset: u64) -> u64 {
    let mut word = 0u64;
    copy((&raw mut word) as u64, address + offset, 8);
    word
}

/// Writes a value into the program's memory.
pub fn write<T: Copy + Plain>(address: u64, value: &T) -> bool {
    let len = core::mem::size_of::<T>() as u64;
    // SAFETY: checked not to be the monitor's memory; unmapped is reported.
    !is_out_of_reach(address, len)
        && unsafe { arch::copy_guarded(address, (&raw const *value) as u64, len) } == 0
}

/// Writes two words into the program's memory.
#[inline(always)]
pub fn write_pair(address: u64, first: u64, second: u64) -> bool {
    // SAFETY: as in `write`.
    !is_out_of_reach(address, 16) && unsafe { arch::store_guarded(address, first, second) } == 0
}

/// Copies within the program's memory or between it and the monitor's.
/// Returns whether all of it went.
pub fn copy(to: u64, from: u64, len: u64) -> bool {
    // SAFETY: callers pass program memory checked by the kernel, or buffers
    // of the monitor's own of that length.
    len == 0 || unsafe { arch::copy_guarded(to, from, len) } == 0
}

/// Copies a string of the program's, as much of it as there is room for.
pub fn copy_string(to: &mut [u8], from: u64) {
    for (i, place) in to.iter_mut().enumerate() {
        match read::<u8>(from.wrapping_add(i as u64)) {
            Some(byte) if byte != 0 => *place = byte,
            _ => break,
        }
    }
}

/// Copies page by page, leaving zeroes where the source is not mapped.
pub fn copy_what_is_there(to: u64, from: u64, len: u64) {
    let mut done = 0;
    while done < len {
        let step = (4096 - ((from + done) & 4095)).min(len - done);
        copy(to + done, from + done, step);
        done += step;
    }
}

/// Types for which any bytes are a valid value.
///
/// # Safety
/// Implementors have no invalid bit patterns and no padding that matters.
pub unsafe trait Plain {}
// SAFETY: integers.
unsafe impl Plain for u8 {}
// SAFETY: integers.
unsafe impl Plain for u16 {}
// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for i32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}
// SAFETY: arrays of the above.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: made of u64s.
unsafe impl Plain for crate::state::Action {}
// SAFETY: made of u64s.
unsafe impl Plain for crate::state::AltStack {}

/// Whether a range of the program's memory can be read.
pub fn is_readable(address: u64, len: u64) -> bool {
    let mut byte = 0u8;
    let to = (&raw mut byte) as u64;
    if is_out_of_reach(address, len) {
        return false;
    }
    let mut at = address;
    while at < address + len {
        if !copy(to, at, 1) {
            return false;
        }
        at = (at & !4095) + 4096;
    }
    copy(to, address + len - 1, 1)
}

/// Whether a range of the program's memory can be written. The caller has the
/// turn: each byte that is tried is written back as it was.
pub fn is_writable(address: u64, len: u64) -> bool {
    let try_byte = |at: u64| read::<u8>(at).is_some_and(|byte| write(at, &byte));
    let mut at = address;
    while at < address.saturating_add(len) {
        if !try_byte(at) {
            return false;
        }
        at = (at & !4095) + 4096;
    }
    len == 0 || try_byte(address + len - 1)
}

/// Writes zeroes; false if some of it cannot be written.
pub fn fill_zero(address: u64, len: u64) -> bool {
    let zeroes = [0u64; 64];
    let mut done = 0;
    while done < len {
        let step = (len - done).min(512);
        if is_out_of_reach(address + done, step)
            || !copy(address + done, zeroes.as_ptr() as u64, step)
        {
            return false;
        }
        done += step;
    }
    true
}
