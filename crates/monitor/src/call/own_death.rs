//! A process that kills itself by SIGKILL, which no handler sees.
//!
//! Its last call never returns, so one record at its end would be missing, and
//! replay would leave the process where its last recorded call was. What it did
//! between the two matters where others see its memory: the child of a `vfork`
//! leaves it to its parent, down to the symbols that it was the first to use. So
//! this call has a record before it is made, as one that waits.

use protocol::syscall::Syscall;

use crate::capture::Blobs;
use crate::state::Thread;
use crate::sys::{self, nr};
use crate::{arch, process};

use super::blocking::{finish, start};

const SIGKILL: u32 = 9;

/// Makes a call that may kill the thread that makes it; None: it is no such call.
pub(super) fn perform(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> Option<i64> {
    let number = u64::from(row.nr);
    if !may_be_last(number, args) {
        return None;
    }
    start(thread, row, args);
    if is_last(thread, number, args) {
        process::release_all_robust(thread);
    }
    // SAFETY: the program's own call; the kernel checks its pointers.
    let result = unsafe { arch::syscall(number, args) };
    finish(thread, row, args, result, &Blobs::new());
    Some(result)
}

/// Whether a call sends signals. In replay the log tells whether it was made in two halves.
pub(super) fn sends_signals(number: u64) -> bool {
    matches!(
        number,
        nr::KILL
            | nr::TKILL
            | nr::TGKILL
            | nr::RT_SIGQUEUEINFO
            | nr::RT_TGSIGQUEUEINFO
            | nr::PIDFD_SEND_SIGNAL
    )
}

/// Whether a call is the last of its process, whatever happens: then it marks the locks that
/// it holds itself, in its turn. (The kernel would, at a moment that no log has.)
pub(super) fn is_last(thread: &Thread, number: u64, args: &[u64; 6]) -> bool {
    let own = u64::from(thread.process().pid.get());
    // The first process of a namespace outlives it.
    let is_own = own > 1 && args[0] & 0xffff_ffff == own;
    is_own
        && match number {
            nr::KILL => args[1] as u32 == SIGKILL,
            nr::TGKILL => args[1] as u32 == thread.tid.get() && args[2] as u32 == SIGKILL,
            _ => false,
        }
}

fn may_be_last(number: u64, args: &[u64; 6]) -> bool {
    sends_signals(number) && signal_sent(number, args) == SIGKILL && may_be_own(number, args)
}

/// The signal that a call sends.
pub(super) fn signal_sent(number: u64, args: &[u64; 6]) -> u32 {
    match number {
        nr::TGKILL | nr::RT_TGSIGQUEUEINFO => args[2] as u32,
        _ => args[1] as u32,
    }
}

/// Whether a call may send a signal to the process that makes it.
pub(super) fn may_be_own(number: u64, args: &[u64; 6]) -> bool {
    const GETPID: u64 = 39;
    let target = args[0] as u32 as i32;
    match number {
        // Nobody says whose a descriptor is, and any thread may be of this process.
        nr::PIDFD_SEND_SIGNAL | nr::TKILL => true,
        // Groups, and everybody.
        _ => target <= 0 || i64::from(target) == sys::call(GETPID, 0, 0, 0, 0, 0, 0),
    }
}
