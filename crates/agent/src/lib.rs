//! The recorder: the part of Meanwhile that stays outside of the program.
//!
//! It makes the arena that all monitors share, starts the program, puts the
//! monitor into each image at exec, captures files, hands out pieces of log
//! and compresses them when they are full, and notes how everything ended.
//!
//! Its threads: the first sets everything up, follows the first exec and waits
//! for the program's end; the *service* answers the monitors' requests; the
//! *writer* compresses chunks; one thread per further exec attaches and injects
//! (ptrace belongs to a thread), the next of which stands by. A separate process, the *reaper*,
//! is the program's parent: a tracer that is also the parent would see each
//! event twice.

mod arena;
mod asker;
mod attach;
mod capture;
mod capture_cache;
pub mod channels;
mod companion;
pub mod control;
mod copy;
mod exec;
mod followers;
pub mod halting;
mod messages;
mod observe;
mod parts;
pub mod peers;
mod raw;
mod reaper;
mod record;
mod service;
mod signals;
mod sites;
mod slice;
mod store;
pub mod timeouts;
mod vdso;
mod waits;

pub use arena::Arena;
pub use attach::{Attachment, Detached, attach};
pub use inject::Refusal;
pub use observe::{
    FULL as FULL_OBSERVATION, forget as forget_observation, is_full as observation_is_full,
};
pub use reaper::program_of;
pub use record::{Ended, OnFull, Options, Start, record, run, run_as, start};
pub use signals::listen;

/// Why a recording could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} {path}")]
    File {
        what: &'static str,
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    System(&'static str, #[source] std::io::Error),
    #[error("this kernel has no syscall user dispatch")]
    NoDispatch,
    #[error("the limit on address space is {limit} MiB; the recorder needs {needed}")]
    AddressSpace { limit: u64, needed: u64 },
    #[error(transparent)]
    Inject(#[from] inject::Error),
    /// The monitor cannot come into a process that runs, or not leave it.
    #[error(transparent)]
    Refused(#[from] inject::Refusal),
    #[error("a thread of the program does not come to where the monitor could leave it{0}")]
    Unmoved(String),
    #[error(transparent)]
    Write(#[from] recording::WriteError),
    /// The command could not be executed, in the shell's words.
    #[error("{command}: {reason}")]
    Command {
        command: String,
        reason: String,
        status: u8,
    },
}

impl Error {
    /// What the user can do about it, where that is not plain.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Refused(refusal) => Some(refusal.hint()),
            Error::Unmoved(_) => Some("it stays as it is; try again later".to_string()),
            _ => None,
        }
    }
}

/// The addresses of this host.
pub fn addresses() -> Vec<std::net::IpAddr> {
    recording::Network::here().addresses
}

/// What is said when something cannot be done with a file.
fn failing(
    path: &std::path::Path,
) -> impl Fn(&'static str) -> Box<dyn FnOnce(std::io::Error) -> Error> {
    let path = path.display().to_string();
    move |what| {
        let path = path.clone();
        Box::new(move |source| Error::File { what, path, source })
    }
}
