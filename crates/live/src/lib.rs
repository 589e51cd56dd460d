//! Processes that are alive, as targets of the debugger.
//!
//! Whoever traces a process may not die with a breakpoint in its code: the next
//! thread that comes there would end the whole of it. So the tracing is done by a
//! process of its own, the *warden* ([`warden`]), which is small, reads no symbols,
//! and holds on to nothing. The debugger asks it over a socket (`client`). When
//! the debugger goes away, by whatever means, the warden takes the breakpoints out
//! and lets everybody go.
//!
//! Between two motions all processes stand still and their memory is their own:
//! breakpoints are in it only while somebody runs.
//!
//! | concept | file |
//! |---|---|
//! | what is said between the two | `talk` |
//! | what /proc tells | `proc` |
//! | ptrace, and everything unsafe | `warden/raw` |
//! | threads that run and threads that stand, as two types | `warden/task` |
//! | processes and their breakpoints | `warden/process` |
//! | joining and leaving | `warden/attach` |
//! | programs that run under an agent, whose time stands when they do | `warden/governed`, `warden/parking` |
//! | running until something stops somebody | `warden/run` |
//! | what the kernel tells of threads | `warden/events` |
//! | single instructions | `warden/step` |
//! | conditions that a program judges itself | `warden/pads` |
//! | who waits for whom now | `waits`, `goroutines` |
//! | the debugger's end, and a process as a target | `client`, `process` |
//! | a program, on one host or on several | `program`, `far` |
//! | motion of all of it | `motion` |
//! | what is mapped | `mapped` |
//! | what a debugger on another host is told unasked | `warden/sight` |
//! | a halt that other hosts are told of directly | `word`, `warden/neighbours` |

#![deny(clippy::indexing_slicing)]

mod client;
mod error;
mod far;
mod goroutines;
mod mapped;
mod motion;
mod proc;
mod process;
mod program;
mod start;
mod talk;
mod waits;
pub mod warden;
mod word;

pub use error::{Error, HostError};
pub use far::{Followed, Host, Site};
pub use proc::{Candidate, are_all, candidates, descendants};
pub use program::{Agent, How, Program};
pub use start::{leave_nothing_behind, refuse, start};
pub use waits::{Kind, On, Waiting, look_ahead, rings, waiting};
