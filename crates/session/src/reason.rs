//! Why a process stands where it stands.

use inspect::value::Value;
use protocol::id::{ProcessId, ThreadNo};
use target::{Difference, Happening, Position};

/// A value at some time, and how it is shown by default. Its text was made then:
/// what a value points to may be gone since.
#[derive(Clone, Debug)]
pub struct Seen {
    pub value: Value,
    pub text: String,
}

/// Why a process stands where it stands.
#[derive(Clone, Debug)]
pub enum Reason {
    /// Before the instruction at a breakpoint.
    Breakpoint {
        number: u32,
    },
    /// Watched memory changed. Going back, it stands before the change.
    Watch {
        number: u32,
        /// What the values are of, as the user wrote it, and the values before
        /// the change and after it: of a variable.
        values: Option<Box<Change>>,
        back: bool,
    },
    /// The frame of a watched variable has returned; going back, it begins here.
    OutOfScope {
        number: u32,
        text: String,
        back: bool,
    },
    /// Before an event that is caught.
    Caught {
        number: u32,
    },
    /// It has begun another program; going back, it is about to.
    Exec,
    /// What was to be stepped over has been executed.
    Step,
    /// At the position that it was to go to.
    Arrived,
    Start,
    End,
    Interrupted,
    /// It came to something else than the recording.
    Diverged(Difference),
    /// What happened to a process that is alive, and the point that catches that.
    Happened {
        what: Happening,
        number: Option<u32>,
    },
}

/// The values of a watched variable before a change and after it.
#[derive(Clone, Debug)]
pub struct Change {
    pub text: String,
    pub old: Seen,
    pub new: Seen,
}

/// A point that was passed and says so.
#[derive(Clone, Debug)]
pub struct Traced {
    pub number: u32,
    pub process: ProcessId,
    pub at: Position,
    /// The innermost frame there, with its arguments.
    pub frame: String,
}

/// Where a motion led.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// The process that something stopped, and its thread.
    pub process: ProcessId,
    pub thread: ThreadNo,
    pub at: Position,
    pub reason: Reason,
    /// What was passed on the way.
    pub traced: Vec<Traced>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a group answers goes to other threads.
    #[test]
    fn answers_can_be_sent() {
        fn is_sent<T: Send + 'static>() {}
        is_sent::<Stopped>();
        is_sent::<crate::FrameInfo>();
        is_sent::<crate::Variable>();
        is_sent::<crate::Error>();
    }
}
