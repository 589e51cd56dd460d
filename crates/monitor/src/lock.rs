//! `mlockall`: the program's memory is locked, the monitor's is not.
//!
//! The kernel would lock and count whatever is mapped, and a limit on locked
//! memory would then end the recording at the next chunk. So each of the
//! program's mappings is locked by itself, and what it maps later when it is
//! mapped.

use protocol::layout::{MONITOR_BASE, MONITOR_END};

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
    let path = c"/proc/self/maps".as_ptr() as u64;
    let fd = sys::call(nr::OPEN, path, 0o2000000, 0, 0, 0, 0); // O_CLOEXEC
    if fd < 0 {
        return -sys::ENOMEM;
    }
    let mut ranges = Ranges::default();
    let mut bytes = [0u8; 2048];
    let mut result = 0;
    while result == 0 {
        let got = sys::call(
            nr::READ,
            fd as u64,
            bytes.as_mut_ptr() as u64,
            2048,
            0,
            0,
            0,
        );
        if got <= 0 {
            break;
        }
        for byte in bytes.iter().take(got as usize) {
            let Some((start, end)) = ranges.next(*byte) else {
                continue;
            };
            let ours = start < MONITOR_END && end > MONITOR_BASE;
            if !ours && end <= USER_END && result == 0 {
                result = range(start, end - start, on_fault);
            }
        }
    }
    sys::call(nr::CLOSE, fd as u64, 0, 0, 0, 0, 0);
    result
}

/// The address ranges at the beginnings of the lines of `/proc/self/maps`, byte
/// by byte.
#[derive(Default)]
struct Ranges {
    start: u64,
    number: u64,
    /// The rest of the line does not matter.
    done: bool,
}

impl Ranges {
    fn next(&mut self, byte: u8) -> Option<(u64, u64)> {
        match byte {
            b'\n' => *self = Ranges::default(),
            _ if self.done => {}
            b'-' => self.start = core::mem::take(&mut self.number),
            b' ' => {
                self.done = true;
                return Some((self.start, self.number));
            }
            _ => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.number = self.number << 4 | u64::from(digit);
            }
        }
        None
    }
}
