//! Replays the processes of a recording and compares them with it.
//!
//! The same monitor that recorded is put into an empty process and fed from
//! the log (see the monitor's `replay` module). What it needs is one file in
//! the form of an arena ([`file`]); what comes of it is read from there.

mod file;
mod run;

pub use run::{Difference, Outcome, Verdict, verify};

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
    #[error(transparent)]
    Open(#[from] recording::OpenError),
    #[error(transparent)]
    Inject(#[from] inject::Error),
}
