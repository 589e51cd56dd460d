//! From one frame to its caller.
//!
//! The rules of the compiler ([`cfi`]) are used where there are any; without
//! them, gdb's reading of prologues ([`heuristic`]) and of the kernel's signal
//! frames ([`signal`]). [`step`] does one step; [`crate::frames`] makes a
//! stack of them and adds what is inlined.

pub mod cfi;
mod heuristic;
mod signal;
mod step;

pub use heuristic::after_prologue;
pub use step::{Code, FrameRegisters, Step, Stop, frame_address, step};
