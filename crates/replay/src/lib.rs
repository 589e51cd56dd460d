//! Replays the processes of a recording and compares them with it.
//!
//! The monitor that recorded is put into an empty process and fed from
//! the log (see the monitor's `replay` module). What it needs is one file in
//! the form of an arena ([`file`]); what comes of it is read from there.

mod file;
mod group;
mod interrupt;
mod plan;
mod player;
mod run;
mod session;
mod spacing;
mod stopped;
mod stream;
mod turns;
mod verdict;
mod watch;

pub use group::SharedReplay;
pub use interrupt::Interrupts;
pub use protocol::id::{EventNo, ThreadNo};
use protocol::id::{ProcessId, ProcessNo};
pub use run::{Course, Settings, check, verify};
pub use session::{Budget, Pool, Replayer, Session, Wanted};
pub use stopped::Stopped;
pub use target::{
    Arrival, Back, CheckpointId, CheckpointInfo, Condition, Difference, Ending, Handler, Inside,
    Outcome, Position, Region, Stops, ThreadState, Verdict, Watch,
};

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
    #[error("process {} has no log that could be replayed", process.number)]
    NoLog { process: ProcessId },
    #[error("the recording does not say what process {process} started from")]
    NoImage { process: ProcessNo },
    #[error("this was observed, not recorded: it says what happened, and cannot be replayed")]
    Observed,
    #[error("cannot read the captured files in {}", path.display())]
    Captured {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the captured file {} is missing", path.display())]
    FileMissing { path: std::path::PathBuf },
    #[error("the captured file {} is {found} bytes long, not {expected}", path.display())]
    FileLength {
        path: std::path::PathBuf,
        expected: u64,
        found: u64,
    },
    #[error("what the recording says of the start of process {process} cannot be true")]
    BadImage { process: ProcessNo },
    #[error("cannot make a pipe")]
    Pipe(#[source] std::io::Error),
    #[error("stopped")]
    Interrupted,
    #[error("the replaying process {pid} ended of itself{words}")]
    Died { pid: i32, words: String },
    #[error("processes that share memory wrote more than replay has room for")]
    JournalFull,
    #[error("no copy of the replaying process can be made to come back to")]
    NoCopy(#[source] std::io::Error),
    #[error("a checkpoint can be taken at an event, not between two")]
    NotAtAnEvent,
    #[error(
        "the replaying process {pid} gets nowhere: it came to no further event in {patience} s of \
         processor time"
    )]
    Stuck { pid: i32, patience: u64 },
    #[error("more memory is watched than can be: {0} pieces of up to eight bytes")]
    TooMuchWatched(usize),
    #[error("there is no checkpoint {0}")]
    NoCheckpoint(CheckpointId),
    #[error(transparent)]
    Open(#[from] recording::OpenError),
    #[error(transparent)]
    Inject(#[from] inject::Error),
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::FileMissing { .. } | Error::FileLength { .. } | Error::Captured { .. } => {
                Some("copy the whole recording again".to_string())
            }
            Error::Observed => {
                Some("`mw record` or `mw run --record` make what can be".to_string())
            }
            Error::Open(error) => error.hint().map(|hint| hint.to_string()),
            _ => None,
        }
    }
}

impl From<Error> for target::Error {
    fn from(error: Error) -> target::Error {
        match error {
            Error::NoLog { process } => target::Error::NothingRecorded(process),
            Error::Interrupted => target::Error::Cancelled,
            Error::NotAtAnEvent => target::Error::NotAtAnEvent,
            Error::NoCheckpoint(id) => target::Error::NoCheckpoint(id),
            Error::TooMuchWatched(count) => target::Error::TooMuchWatched(count),
            other => target::Error::Failed {
                hint: other.hint(),
                source: Box::new(other),
            },
        }
    }
}
