//! Why an agent does not do what it is asked, said so that a person on another host knows
//! what to do.

use std::io;
use std::path::PathBuf;

use crate::serve::MOST;

/// An agent could not, or would not, do something.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Its number is another's.
    #[error("this request is under way already")]
    UnderWay,
    /// Enough is done at once.
    #[error("{MOST} requests are under way already")]
    TooMany,
    /// No thread could be had.
    #[error("cannot start a thread: {0}")]
    NoThread(io::Error),
    /// A file could not be read, or nobody listens any more.
    #[error("{}", without_number(.0))]
    System(#[from] io::Error),
    /// What is asked for cannot be a recording.
    #[error("`{0}` is no name of a recording")]
    NoName(String),
    /// There is none, or it cannot be read.
    #[error(transparent)]
    Unreadable(#[from] recording::OpenError),
    /// It has members of its own.
    #[error("{} was joined there, of several hosts; name a member of it by its path", .0.display())]
    Joined(PathBuf),
    /// It is not whole yet.
    #[error("{0} is still being recorded there")]
    GoesOn(String),
    /// What is there of a recording that grows cannot be told.
    #[error("what is there already cannot be told")]
    NotHad,
    /// A recording that grows cannot be read.
    #[error("{} cannot be read: {source}", dir.display())]
    NotRead {
        /// Where it is.
        dir: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is nothing to start.
    #[error("there is no command to run")]
    NoCommand,
    /// The home of recordings cannot be written to.
    #[error("cannot write to {}: {source}", home.display())]
    NotWritten {
        /// The home.
        home: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// `mw` starts itself, and does not know where it is.
    #[error("cannot find itself: {0}")]
    NotFound(io::Error),
    /// Where a program is to begin.
    #[error("there is no directory {0}")]
    NoDirectory(String),
    /// What a program says has nowhere to go.
    #[error("cannot create {}: {source}", path.display())]
    NotCreated {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The recorder could not be started.
    #[error("cannot start the recorder: {0}")]
    NoRecorder(io::Error),
    /// The debugger's process on the host could not be started.
    #[error("the debugger's warden cannot be started: {0}")]
    NoWarden(io::Error),
    /// A number that is no signal's.
    #[error("there is no signal {0}")]
    NoSignal(i32),
    /// Somebody else records the program.
    #[error("{program} is being recorded there by {who}; `--override` takes it over")]
    Taken {
        /// The program.
        program: String,
        /// Who has it.
        who: String,
    },
    /// Somebody else has said that the program is theirs.
    #[error("{program} was taken over by {who}")]
    TakenOver {
        /// The program.
        program: String,
        /// Who has it now.
        who: String,
    },
    /// Who took the program over has gone.
    #[error("{0} is nobody's any more")]
    Nobodys(String),
    /// In the words of `mw` on that host.
    #[error("{0}")]
    Said(String),
}

/// What the kernel said; Rust adds the number of an error to its words.
pub(crate) fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or("").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waits for its end knows it by this.
    #[test]
    fn a_recording_that_goes_on_is_told_in_the_words_that_are_waited_for() {
        let told = Refusal::GoesOn("etcd-0".to_string()).to_string();
        assert_eq!(told, format!("etcd-0 {}", crate::pull::GOES_ON));
    }
}
