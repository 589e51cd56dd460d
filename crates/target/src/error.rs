//! Why a process could not be moved or looked at.

use protocol::id::ProcessId;

use crate::CheckpointId;

/// Of everything that is asked of a target.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a process could not be moved or looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("process {} has no log that could be replayed", .0.number)]
    NothingRecorded(ProcessId),
    #[error("stopped")]
    Cancelled,
    #[error("the process runs: nobody can look into it meanwhile")]
    Runs,
    #[error("the process has no past that could be gone to")]
    NoPast,
    #[error("the process is not alive: what happened cannot be changed")]
    NotAlive,
    #[error("a checkpoint can be taken at an event, not between two")]
    NotAtAnEvent,
    #[error("there is no checkpoint {0}")]
    NoCheckpoint(CheckpointId),
    #[error("more memory is watched than can be: {0} pieces of up to eight bytes")]
    TooMuchWatched(usize),
    /// What is behind the target could not do it.
    #[error("{}", chain(.source.as_ref()))]
    Failed {
        source: Box<dyn std::error::Error + Send + Sync>,
        /// What the user can do.
        hint: Option<String>,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Failed { hint, .. } => hint.clone(),
            Error::NoCheckpoint(_) => Some("`info checkpoints` lists them".to_string()),
            Error::TooMuchWatched(_) => Some("delete a watchpoint".to_string()),
            Error::Runs => Some("`interrupt` stops it".to_string()),
            Error::NotAlive => {
                Some("to try what would happen, change the program and record again".to_string())
            }
            Error::NoPast => Some(
                "it is alive and not recorded: what `mw run --record` or `mw record` runs has one"
                    .to_string(),
            ),
            _ => None,
        }
    }
}

/// An error and what it came from, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
