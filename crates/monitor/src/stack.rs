//! How far the main stack grows, in replay. The kernel makes it grow, as it did
//! in the recording, and ends that where the limit of the process says: there a
//! program that recurses without end faults. The limit is what the program was
//! told, or set; the C library asks for it before `main`.

use crate::sys::{self, nr};

/// What it is where nobody says otherwise.
const USUAL: u64 = 8 << 20;
const RLIMIT_STACK: u64 = 3;
const SETRLIMIT: u64 = 160;
const GETRLIMIT: u64 = 97;

pub fn begin() {
    set(USUAL);
}

/// Sets the limit, or the most that may be set here. Returns whether it was
/// another.
fn set(limit: u64) -> bool {
    let mut now = [0u64; 2];
    let place = (&raw mut now) as u64;
    sys::call(nr::PRLIMIT64, 0, RLIMIT_STACK, 0, place, 0, 0);
    let new = [limit.min(now[1]), now[1]];
    let place = (&raw const new) as u64;
    new[0] != now[0] && sys::call(nr::PRLIMIT64, 0, RLIMIT_STACK, place, 0, 0, 0) == 0
}

/// The program made this call, and it succeeded: if it was about the limit, it
/// holds here too.
pub fn learn(number: u64, args: &[u64; 6], own_pid: u64) {
    let (resource, limit) = match number {
        GETRLIMIT | SETRLIMIT => (args[0], args[1]),
        nr::PRLIMIT64 if args[0] == 0 || args[0] == own_pid => {
            let [_, resource, new, old, ..] = *args;
            (resource, if new != 0 { new } else { old })
        }
        _ => return,
    };
    if resource == RLIMIT_STACK
        && let Some(limit) = crate::mem::read::<u64>(limit)
    {
        set(limit);
    }
}

/// The program faults where it did not in the recording: it may be that its
/// stack could grow further than is known. Returns whether it can now.
pub fn grow_further() -> bool {
    set(u64::MAX)
}
