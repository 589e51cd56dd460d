//! The pads of a live program's breakpoints: code beside the program's, to which a jump leads
//! from a breakpoint's place, and where the monitor judges the breakpoint's conditions.
//!
//! A debugger puts them into a process that has the monitor, from outside and while nobody in
//! that memory runs (`patch::PadPlan` says what is in one). Behind each is its head: what the
//! monitor is to judge, in words.

use core::sync::atomic::AtomicU64;

/// How many pads a process can have.
pub const PADS_MAX: usize = 256;

/// How much memory each has: its code, its head and the conditions.
pub const PAD_ROOM: u64 = 4096;

/// Where a pad is. All zero: there is none, nor behind it.
#[repr(C)]
pub struct Placed {
    pub entry: AtomicU64,
    /// Where its head is: its code ends there.
    pub head: AtomicU64,
}

/// What the monitor tells of itself for those who make pads, in its memory of an address space
/// ([`crate::layout::SPACE_PADS_AT`]).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Desk {
    /// Where the table of [`Placed`] is.
    pub table: u64,
    /// Where a pad leads to.
    pub entry: u64,
    /// Where it keeps rcx, counted from gs.
    pub rcx_at: u64,
    /// A `syscall` instruction that the kernel does not divert.
    pub gate: u64,
}

/// The words of a head: where the breakpoint is, where in the pad who is to stop and who is not
/// go on, and how many conditions follow. Of each of those: how long it is, then its bytes, up
/// to a whole word.
pub const HEAD_WORDS: usize = 4;

/// How far behind its length the next condition is.
#[must_use]
pub const fn condition_room(len: u64) -> u64 {
    8 + len.next_multiple_of(8)
}
