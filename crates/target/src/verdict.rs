//! What came of replaying a process and comparing it with its recording.

use protocol::id::{Addr, EventNo, ImageNo, ProcessId, ThreadNo};

/// What came of one image of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub process: ProcessId,
    pub image: ImageNo,
    /// Events of this image that were replayed.
    pub events: u64,
    /// Bytes that it wrote and sent; each was compared.
    pub output: u64,
    /// How it ended, if this image was its last.
    pub ending: Option<Ending>,
    pub outcome: Outcome,
}

impl Verdict {
    /// Of an image that was not reached.
    pub fn none(process: ProcessId, image: ImageNo) -> Verdict {
        Verdict {
            process,
            image,
            events: 0,
            output: 0,
            ending: None,
            outcome: Outcome::NotReached,
        }
    }
}

/// How a process ended itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Signal(i32),
    /// It executed another program; if that is not in the recording, nobody
    /// knows more.
    Executed,
}

/// What came of replaying something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As recorded, to the end.
    Equal,
    /// It came to something else.
    Diverged(Difference),
    /// The replay itself came to an end: it died, or was ended because it got
    /// nowhere.
    Failed(String),
    /// It needs what replay cannot do yet.
    Unsupported(String),
    /// Another process that it had to wait for did not get there.
    HeldUp(String),
    /// It was not reached: what it begins from did not get there.
    NotReached,
}

/// Where and how a run differs from the recording of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub event: EventNo,
    pub thread: ThreadNo,
    pub expected: String,
    pub found: String,
    /// Where the program was.
    pub address: Addr,
}
