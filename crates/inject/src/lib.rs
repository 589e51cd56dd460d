//! Putting the monitor into a process.
//!
//! A process that is about to exec is attached to; the kernel stops it with
//! the new image in place and not one instruction run; the monitor is mapped,
//! the auxiliary vector made to show our vdso, and the process let go at the
//! monitor's entry. From then on it is not traced.
//!
//! Into a process that runs already it comes while all of its threads are stopped
//! ([`Prepared`]), and it leaves it the same way ([`depart`]).
//!
//! ptrace belongs to a thread: everything here about one process is done by
//! one thread. A process that is [`Attached`] runs; one that is at its
//! [`ExecStop`] does not; each becomes the other by being consumed.

mod adopt;
mod depart;
mod detours;
mod image;
mod landing;
mod maps;
mod refusal;
mod regs;
mod residue;
mod running;
mod slept;
mod stop;
mod trace;

pub use adopt::{Lead, Monitor, Prepared};
pub use depart::{Departing, depart};
pub use detours::{CODE_AT, Detours, Patch};
pub use image::{Entries, Image, kernel_clock_offset, vdso_functions};
pub use maps::{Map, kernel_pages, read_maps, read_proc};
pub use refusal::Refusal;
pub use running::{state_of, threads_of, tracer_of};
pub use stop::{Attached, ExecStop, Injection, Outcome, start_stopped, vdso_at};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A ptrace request or a wait failed.
    #[error("cannot {what} process {pid}")]
    Trace {
        what: &'static str,
        pid: i32,
        #[source]
        source: nix::Error,
    },
    /// Something about the process could not be read from /proc.
    #[error("cannot read {path}")]
    Proc {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// A call made in the process's name failed.
    #[error("process {pid} cannot map the monitor (error {errno})")]
    Remote { pid: i32, errno: i64 },
}
