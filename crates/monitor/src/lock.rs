//! `mlockall`: the program's memory is locked, the monitor's is not.
//!
//! The kernel would lock and count whatever is mapped, and a limit on locked
//! memory would then end the recording at the next chunk. So each of the
//! program's mappings is locked by itself, and what it maps later when it is
//! mapped.

use protocol::layout::{MONITOR_BASE, MONITOR_END};

use crate::maps::{self, Mapping};
use crate::state::space;
use crate::sys::{self, nr};

const MCL_CURRENT: u64 = 1;
const MCL_FUTURE: u64 = 2;
const MCL_ONFAULT: u64 = 4;
const MLOCK_ONFAULT: u64 = 1;

/// In `Space::locks`: what is mapped from now on is locked (at once, or page by
/// page as it is touched).
const AT_ONCE: u32 = 1;
const ON_FAULT: u32 = 2;

/// The end of what a program can map.
const USER_END: u64 = 1 << 47;

pub fn all(flags: u64) -> i64 {
    let known = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
    if flags & !known != 0 || flags & (MCL_CURRENT | MCL_FUTURE) == 0 {
        return -sys::EINVAL;
    }
    let on_fault = flags & MCL_ONFAULT != 0;
    if flags & MCL_CURRENT != 0 {
        let result = current(on_fault);
        if result != 0 {
            return result;
        }
    }
    space().locks.set(match (flags & MCL_FUTURE, on_fault) {
        (0, _) => 0,
        (_, false) => AT_ONCE,
        (_, true) => ON_FAULT,
    });
    0
}

pub fn none() -> i64 {
    space().locks.set(0);
    sys::call(nr::MUNLOCKALL, 0, 0, 0, 0, 0, 0)
}

/// Locks what was mapped just now, if it is to be. False: the limit is
/// reached.
pub fn fresh(start: u64, len: u64) -> bool {
    match space().locks.get() {
        0 => true,
        how => len == 0 || range(start, len, how == ON_FAULT) == 0,
    }
}

pub fn is_on() -> bool {
    space().locks.get() != 0
}

fn range(start: u64, len: u64, on_fault: bool) -> i64 {
    let lock = |flags: u64| sys::call(nr::MLOCK2, start, len, flags, 0, 0, 0);
    if on_fault {
        return lock(MLOCK_ONFAULT);
    }
    match lock(0) {
        0 => 0,
        // Pages that cannot be touched are no failure of `mlockall`; the limit
        // is.
        _ => lock(MLOCK_ONFAULT),
    }
}

/// Locks each mapping that is the program's.
fn current(on_fault: bool) -> i64 {
    let mut result = 0;
    let is_read = maps::each(|Mapping { start, end, .. }| {
        let ours = start < MONITOR_END && end > MONITOR_BASE;
        if !ours && end <= USER_END {
            result = range(start, end - start, on_fault);
        }
        result == 0
    });
    if is_read { result } else { -sys::ENOMEM }
}
