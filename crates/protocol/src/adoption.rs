//! A process that runs already, and is to have the monitor: what the injector
//! tells the monitor of it.
//!
//! While all threads of the process are stopped, an [`Adoption`] is put at
//! [`ADOPTION_BASE`] in its memory, with an [`Adopted`] behind it for each of them;
//! then one of the threads runs the monitor's `mw_adopt`, and each of them, when it
//! is let go, `mw_adopted`.

use crate::halt::Called;
use crate::layout::MONITOR_BASE;

/// Where it lies.
pub const ADOPTION_BASE: u64 = MONITOR_BASE + 0x800_0000;

/// How many timers are told.
pub const TIMERS: usize = 64;

/// What a timer is of: `timer_create`'s, a descriptor, or `setitimer`'s.
pub mod timer {
    pub const POSIX: u32 = 1;
    pub const DESCRIPTOR: u32 = 2;
    pub const INTERVAL: u32 = 3;
}

/// What the monitor says of an adoption.
pub mod result {
    /// It has not come to its end.
    pub const NONE: u64 = 0;
    pub const DONE: u64 = 1;
    /// There is no room in the address space.
    pub const NO_ROOM: u64 = 2;
    /// The kernel does not say which word it clears when a thread ends.
    pub const NO_TID_ADDRESS: u64 = 3;
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Adoption {
    /// The descriptor that leads to the arena.
    pub arena_fd: u64,
    /// Length of the monitor's image.
    pub image_len: u64,
    /// Address of the kernel's own `clock_gettime`, as it can still be called; 0 if
    /// there is none.
    pub clock: u64,
    /// Where the kernel's own pages are, and where they end.
    pub kernel_start: u64,
    pub kernel_end: u64,
    /// How many threads there are.
    pub threads: u64,
    /// Written by the monitor: what came of it.
    pub result: u64,
    /// The page beside the kernel's vdso that its functions lead to.
    pub detours: u64,
    /// Timers that the process has, by kind and id. (Its interval timer the monitor
    /// finds itself.)
    pub timer_count: u64,
    pub timers: [[u32; 2]; TIMERS],
}

/// A thread. The first is in the process's first place.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Adopted {
    pub tid: u64,
    /// Its signal mask.
    pub mask: u64,
    /// If it goes on with a call that it was taken out of: how long that had waited
    /// already (ns).
    pub waited: u64,
    /// When that was (the time-stamp counter).
    pub stopped_at: u64,
    /// Not 0: it was in a call that a signal can end.
    pub is_in_call: u64,
    /// How much of that is done.
    pub done: u64,
    /// Where it goes on.
    pub called: Called,
}

/// How much memory it takes.
pub const fn size(threads: u64) -> u64 {
    core::mem::size_of::<Adoption>() as u64 + threads * core::mem::size_of::<Adopted>() as u64
}
