//! The gdb remote serial protocol, served: several processes on one
//! connection (`multiprocess`, `extended-remote`), forwards and back.
//!
//! Constraints that shape it:
//!
//! - **One connection for the whole program.** gdb moves several processes
//!   together only if they are of one target, so all are served as inferiors
//!   of one. (The `gdbstub` crate knows one process; this is why there is a
//!   crate of our own.)
//! - **What was recorded is read-only.** Writes to its memory and registers are
//!   answered with an error; what is alive can be changed. Breakpoints are never written into memory: gdb is to ask for
//!   them (`Z0`), and does.
//! - **All-stop.** A target stands still or is moved; nothing
//!   happens behind gdb's back.
//! - No bytes from a client make it panic, and no length is believed
//!   unchecked.
//!
//! [`packet`] frames, [`command`] understands, [`registers`] describes,
//! [`stop`] tells why something stands still, [`server`] answers. What is
//! debugged is behind the trait [`Target`].

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

pub mod command;
pub mod files;
pub mod hex;
pub mod packet;
pub mod registers;
#[cfg(test)]
#[path = "../../../tests/seed.rs"]
mod seed;
pub mod server;
pub mod signals;
pub mod stop;
pub mod target;

pub use registers::Registers;
pub use server::{Interrupt, serve};
pub use stop::{Stop, StopReason};
pub use target::{
    Direction, Failure, File, Motion, Refused, StopKind, StopPoint, Target, ThreadId, ThreadInfo,
};
