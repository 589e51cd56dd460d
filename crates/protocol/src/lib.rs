//! What the monitor and everything else agree on.
//!
//! The monitor runs inside the debugged program without libc or allocator;
//! the recorder, the reader and the replayer run outside it. What both sides
//! must read alike is here and only here: the addresses the monitor lives at
//! ([`layout`]), the memory they share ([`shared`]), the encoding of the log
//! ([`record`]), the system calls ([`syscall`], [`table`]), the instructions
//! that are replaced ([`instruction`]), the names of captured files
//! ([`captured`]), what is told of a process that the monitor comes into while it
//! runs ([`adoption`]), the language of conditions ([`condition`]) and where a live
//! program's are judged ([`pad`]), and the numbers that name processes, threads and events ([`id`]).
//!
//! [`FORMAT_VERSION`] is raised whenever an old reader would misread a new
//! recording: a change of the record encoding, of a `#[repr(C)]` layout in
//! `shared`, or of the meaning of a table row that decides what is captured.
#![cfg_attr(not(test), no_std)]

pub mod adoption;
pub mod captured;
pub mod condition;
pub mod halt;
pub mod id;
pub mod instruction;
pub mod layout;
pub mod names;
pub mod pad;
pub mod record;
pub mod replay;
#[cfg(test)]
#[path = "../../../tests/seed.rs"]
mod seed;
pub mod shared;
pub mod syscall;
pub mod table;

pub const FORMAT_VERSION: u32 = 3;
