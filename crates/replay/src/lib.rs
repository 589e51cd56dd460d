//! Replays the processes of a recording and compares them with it.
//!
//! The same monitor that recorded is put into an empty process and fed from
//! the log (see the monitor's `replay` module). What it needs is one file in
//! the form of an arena ([`file`]); what comes of it is read from there.

mod file;
mod group;
mod player;
mod run;
mod session;
mod stream;
mod turns;

pub use player::{Inside, ThreadState};
pub use run::{Difference, Outcome, Verdict, verify};
pub use session::{Arrival, Budget, CheckpointId, CheckpointInfo, Position, Region, Session};

/// Why nothing could be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot make the file for the replay in {path}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the recording has too many processes to replay at once ({0})")]
    TooMany(usize),
    #[error("process {process} has no log that could be replayed")]
    NoLog { process: u32 },
    #[error("the recording does not say what process {process} started from")]
    NoImage { process: u32 },
    #[error("the replaying process {pid} ended of itself")]
    Died { pid: i32 },
    #[error("processes that share memory wrote more than replay has room for")]
    JournalFull,
    #[error("a checkpoint can be taken at an event, not between two")]
    NotAtAnEvent,
    #[error("there is no checkpoint {0}")]
    NoCheckpoint(CheckpointId),
    #[error(transparent)]
    Open(#[from] recording::OpenError),
    #[error(transparent)]
    Inject(#[from] inject::Error),
}
