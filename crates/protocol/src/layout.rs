//! Where the monitor lives in every process of the program.
//!
//! The addresses are fixed so that recording and replay agree on them without
//! relocation, and lie below every range Linux, Go, V8 and the sanitizers'
//! heaps choose by themselves (mmap grows down from 0x7f.., PIEs lie at
//! 0x55.., Go at 0xc0..).

/// Start of everything that is ours. The program may map nothing in
/// `[MONITOR_BASE, MONITOR_END)`.
pub const MONITOR_BASE: u64 = 0x6f00_0000_0000;
pub const MONITOR_END: u64 = MONITOR_BASE + 0x40_0000_0000;

/// The monitor's text and data, mapped privately from the arena file.
pub const IMAGE_BASE: u64 = MONITOR_BASE;
pub const IMAGE_MAX: u64 = 0x100_0000;

/// The monitor's own memory of one address space (not shared).
pub const SPACE_BASE: u64 = MONITOR_BASE + 0x1000_0000;
pub const SPACE_MAX: u64 = 0x400_0000;

/// Where in it two addresses are, for those who look from outside: that of the pools
/// of stubs (where each starts, how much is used, how long it is: 8, 4 and 4 bytes)
/// and that of how many there are (4 bytes).
pub const SPACE_POOLS_AT: u64 = SPACE_BASE + 16;

/// And that of the table of breakpoints that a debugger has in the code: words of
/// [`trap_word`], 0 where there is none.
pub const SPACE_TRAPS_AT: u64 = SPACE_BASE + 32;
pub const TRAPS_MAX: usize = 512;

/// And what is told to those who make pads of breakpoints: a [`crate::pad::Desk`].
pub const SPACE_PADS_AT: u64 = SPACE_BASE + 40;

/// An address, and the byte that was there before a breakpoint.
pub const fn trap_word(address: u64, was: u8) -> u64 {
    address << 8 | was as u64
}

/// Slots of threads: the thread's record, its monitor stack and its signal
/// stack.
pub const SLOTS_BASE: u64 = MONITOR_BASE + 0x2000_0000;
pub const SLOT_SIZE: u64 = 0x2_0000;
pub const SLOTS_MAX: u64 = 8192;

/// Where in a thread's record, which its gs base leads to, the address is of the
/// registers that it came into the monitor with ([`crate::halt::Called`]).
pub const THREAD_REGS_AT: u64 = 40;
/// And where the address is of its process's record; where in that the program's
/// actions for signals are; and how long each is, which begins with the handler.
pub const THREAD_PROCESS_AT: u64 = 48;
pub const PROCESS_ACTIONS: u64 = 24;
pub const ACTION_SIZE: u64 = 32;

/// In replay: translated code, and what is known of the stretch it is for.
pub const TRANSLATION_BASE: u64 = MONITOR_BASE + 0x1_0000_0000;
pub const TRANSLATION_SIZE: u64 = 0x200_0000;

/// In replay: translated code that moves a thread between two events.
pub const MOTION_BASE: u64 = MONITOR_BASE + 0x1_1000_0000;
pub const MOTION_SIZE: u64 = 0x400_0000;

/// Where calls that may block put their results while other threads run.
pub const SCRATCH_BASE: u64 = MONITOR_BASE + 0x4_0000_0000;
pub const SCRATCH_SIZE: u64 = 0x11_0000;

/// Where calls that may block put results that are too long for
/// [`SCRATCH_SIZE`], as long as the call lasts.
pub const LARGE_BASE: u64 = MONITOR_BASE + 0x20_0000_0000;
pub const LARGE_SIZE: u64 = 0x100_0000;
const _: () = assert!(LARGE_BASE + SLOTS_MAX * LARGE_SIZE <= MONITOR_END);

/// The arena: the file that all processes of a recording and the recorder
/// share.
pub const ARENA_BASE: u64 = MONITOR_BASE + 0x10_0000_0000;

/// The descriptor through which a process keeps the arena across exec, if
/// the limit on descriptors allows it; else the highest one allowed.
pub const ARENA_FD: i32 = 1021;

/// The signal that asks a thread to give up its turn.
pub const PREEMPT_SIGNAL: i32 = 16; // SIGSTKFLT: nothing uses it
pub const SIGSYS: i32 = 31;
