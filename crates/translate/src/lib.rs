//! Runs machine code from a cache of translated blocks, so that it can be
//! stopped at an exact place without a trap each time it passes there.
//!
//! Replay has to bring a thread to where it was interrupted: an instruction,
//! and a state of registers and memory in which it was about to be executed.
//! In a loop that instruction is passed millions of times. A hardware
//! breakpoint costs microseconds a pass; here a pass costs a few instructions.
//!
//! # How it works
//!
//! Code is copied, block by block, into a [`Cache`], a piece of memory that
//! can be written and executed. Instructions are copied as they are, with
//! four exceptions:
//!
//! - Operands relative to `rip` go through a register that the instruction
//!   does not use, which is put aside for that.
//! - Jumps and calls lead to the translations of their targets. A call pushes
//!   the *program's* return address; returns and jumps through registers and
//!   memory look up where they go in a table.
//! - Before the instruction at the [`Goal`]'s address come its conditions.
//! - If memory is watched, each instruction that may write is followed by a
//!   look at it, unless what it wrote is seen by its address to be elsewhere.
//!   So a change is seen at once, whatever made it: no debug register is
//!   needed, and no trap.
//!
//! What is not translated yet leads out of the cache ([`Exit`]), and the one
//! who runs it translates on and goes back. Exits are overwritten with direct
//! jumps once their target is there.
//!
//! Everything the program can see stays as it is: flags (all added code is
//! made of `mov`, `lea`, `movzx`, `bswap`, `jrcxz` and jumps), registers, vector
//! registers (never touched), the stack (nothing is pushed that the program
//! does not push) and what lies below it.
//!
//! # What the one who runs it must see to
//!
//! - One thread at a time runs code from a cache.
//! - The translation is of the code as it was. Who cannot tell that code has
//!   stayed the same calls [`Cache::clear`], or says so
//!   ([`Source::changing`]): then blocks look for themselves.
//! - System calls, faults, far transfers and whatever else is not here end a
//!   block: [`Cache::enter`] refuses them, and they are run where they are.
//!
//! It is linked into the monitor, inside the program's process, and fed with
//! the program's bytes. So it has no `std`, no allocation, no `unsafe` and no
//! way to panic; the tests run what it writes.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod block;
mod cache;
mod inst;
mod writer;

pub use block::{Condition, Goal, Options, Source};
pub use cache::{CACHE_MIN, Cache, Exit, Piece, WATCHES_MAX};
pub use inst::{Effect, Flow, Inst, Repeat, inst};
