//! Plans how a `syscall` instruction in live machine code becomes a jump to a stub, and
//! how an instruction does that the monitor has replaced by one that traps.
//!
//! A `syscall` is two bytes (`0f 05`), a jump to anywhere useful is five. So the jump also
//! takes the room of a neighbouring instruction, which is moved into the stub and runs there.
//! This crate decides which neighbour can be moved without the program noticing, and writes
//! the bytes; it touches no memory but the slices it is given. When in doubt it refuses: a
//! site that is not patched stays on the slow way, which is correct.
//!
//! It is linked into the monitor, inside the program's process, and fed with the program's
//! bytes. So it has no `std`, no allocation, no `unsafe`, and no way to panic.
//!
//! A breakpoint becomes a jump, too, to a pad where its condition is judged (see [`PadPlan`]):
//! then it costs no trap as long as that is false.
//!
//! # The ways to patch a site, best first
//!
//! 1. One instruction of five or more bytes *before* the syscall (`mov eax, imm32`, mostly)
//!    becomes the jump. The `syscall` itself stays in place and no other instruction starts
//!    inside the patched bytes. So whatever still arrives at the site by another way, such as a
//!    thread that the kernel sends back to restart a call, traps as before.
//! 2. The `syscall` and the instructions *after* it.
//! 3. Several instructions before it, with the `syscall` itself if they are short.
//!
//! # What the caller must still see to
//!
//! - A thread may stand inside the patched bytes, or be in the kernel and about to return to
//!   just behind the `syscall`. [`Stub::from_program`] says where such a thread goes on.
//! - A signal or a fault may find a thread inside the stub. [`Stub::to_program`] says where
//!   that would have been in the program's own code.
//! - Jumps through registers and tables, and jumps from outside of the window, are not seen.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

pub mod decode;
mod detour;
mod jumps;
mod pad;
mod plan;
mod stub;

pub use detour::{Detour, detour, jump_to};
pub use pad::{PAD_MAX, PAD_PIECES, Pad, PadPlan};
pub use plan::{Code, ORIGINAL_MAX, Plan, Refusal, TRAP_MAX, plan, plan_chosen, plan_trap};
pub use stub::{JUMP_LEN, Jump, STUB_MAX, Stub, jump_bytes, write_stub, write_trap_stub};
