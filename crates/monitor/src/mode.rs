//! Which of its lives the monitor leads here: chosen once, when an image
//! begins, and the same for all processes that come of it.
//!
//! Everything that differs between them takes one of a few shapes. The answer
//! to a call is made or taken ([`answer`]); a thread waits for its turn or the
//! stack is switched (`turn::at_call`); a record is written, looked for, or
//! left out (`log`). What is written once for all of them asks here.

use crate::state::space;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Calls are made and written down; threads take turns.
    Record = 0,
    /// Calls are answered from the log, which also says who runs.
    Replay = 1,
    /// Calls are made, nothing is written, threads run side by side.
    Live = 2,
}

/// For an image that begins.
pub fn choose(mode: Mode) {
    space().mode.set(mode);
}

/// Whether this process replays a recording.
#[inline(always)]
pub fn is_replay() -> bool {
    space().mode.get() == Mode::Replay
}

/// Whether this process runs unrecorded, under a debugger.
#[inline(always)]
pub fn is_live() -> bool {
    space().mode.get() == Mode::Live
}

/// An answer from the world, or from the log.
#[inline(always)]
pub fn answer<T>(make: impl FnOnce() -> T, take: impl FnOnce() -> T) -> T {
    if is_replay() { take() } else { make() }
}
