//! Why a process that is alive cannot be debugged.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Why a process that is alive cannot be debugged. The warden finds most of these,
/// and they are sent as they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    #[error("there is no process {0}")]
    NoProcess(i32),
    #[error("process {pid} ({name}) may not be traced")]
    NotAllowed { pid: i32, name: String, yama: u32 },
    #[error("process {pid} ({name}) is traced by {by} already")]
    Traced { pid: i32, name: String, by: String },
    #[error("process {pid} ({name}) runs under an agent that does not answer")]
    Unanswered { pid: i32, name: String },
    #[error("the processes are of two programs that run under `mw`")]
    TwoPrograms,
    #[error("another debugger has the program{}", match .by { 0 => String::new(), by => format!(" (warden {by})") })]
    Held { by: u32 },
    #[error("thread {0} is in a system call: its registers cannot be set")]
    InCall(i32),
    #[error("thread {0} is not about to make a call that was caught")]
    NotBeforeCall(i32),
    #[error("the program has no agent: it was joined while it ran, and its time is the real one")]
    NoAgent,
    #[error("another debugger has taken the program over")]
    TakenOver,
    #[error("the program's agent is gone")]
    AgentGone,
    #[error("the program's agent: {0}")]
    Agent(String),
    #[error("its recording cannot be followed: {why}")]
    NotFollowed { why: String, hint: Option<String> },
    #[error("process {pid} ({name}) is a part of this debugger")]
    Ourselves { pid: i32, name: String },
    #[error("process {pid} is a thread of the kernel")]
    Kernel { pid: i32 },
    #[error("process {pid} ({name}) has ended: only its status is left")]
    Zombie { pid: i32, name: String },
    #[error("process {pid} ({name}) is a 32-bit program")]
    NotSixtyFour { pid: i32, name: String },
    #[error("process {pid} ({name}) does not stop: it is in an uninterruptible wait")]
    Uninterruptible { pid: i32, name: String },
    #[error("the program runs: it can only be looked at meanwhile")]
    Moves,
    #[error("process {0} has ended")]
    Ended(i32),
    #[error("there is no thread {0}")]
    NoThread(i32),
    #[error("cannot start {program}: {why}")]
    Start { program: String, why: String },
    /// In the agent's own words.
    #[error("{0}")]
    NotStarted(String),
    #[error("cannot {what} process {pid}: {why}")]
    Failed { what: String, pid: i32, why: String },
    #[error("the warden that traces the program is gone: {0}")]
    Gone(String),
    /// What is wrong on another host.
    #[error("{host}: {error}")]
    On { host: String, error: Box<Error> },
    #[error("the connection to {host} is lost: {said}")]
    Lost { host: String, said: String },
}

/// Why what another host has is not had here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A path goes there as text, and this one is none.
    #[error("{} cannot be asked for: its name is no text", .0.display())]
    NoText(PathBuf),
    /// As whoever leads there says it.
    #[error("{said}")]
    Said {
        /// What is wrong.
        said: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

impl HostError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            HostError::NoText(_) => Some("name a directory in UTF-8 by `-o DIR`".to_string()),
            HostError::Said { hint, .. } => hint.clone(),
        }
    }
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let words = |text: &str| Some(text.to_string());
        match self {
            Error::NotAllowed { yama: 0, .. } => {
                words("it is another user's, or has privileges: run mw as that user, or as root")
            }
            Error::NotAllowed { yama: 1, .. } => words(
                "the kernel lets only ancestors trace (kernel.yama.ptrace_scope is 1): run mw as \
                 root, start the program by `mw run`, or `sysctl kernel.yama.ptrace_scope=0`",
            ),
            Error::NotAllowed { .. } => {
                words("kernel.yama.ptrace_scope forbids it; root may set it to 0")
            }
            Error::Traced { .. } => words("another debugger has it: end that first"),
            Error::Unanswered { .. } => {
                words("it is another user's, or was killed: then the program runs on by itself")
            }
            Error::Moves => words("`interrupt` stops it"),
            Error::TwoPrograms => words("attach to one of them at a time"),
            Error::Held { .. } => words("end that one first, or take it over with --override"),
            Error::InCall(_) => words("choose a thread that is in the program (`threads`)"),
            Error::NotBeforeCall(_) => {
                words("`stop before PATTERN` and `catch syscall` stop it there")
            }
            Error::TakenOver => {
                words("what it was asked is refused; `mw attach --override` takes it back")
            }
            Error::AgentGone => words("the program runs on by itself, its time as it was"),
            Error::NoAgent => words("`mw run CMD` starts a program under an agent"),
            Error::NotFollowed { hint, .. } => hint.clone(),
            Error::Agent(_) => words("the program runs on by itself if its agent is gone"),
            Error::NoProcess(_) => words("`mw attach` lists what there is"),
            Error::NotSixtyFour { .. } => words("only x86-64 programs can be debugged"),
            Error::Uninterruptible { .. } => {
                words("it waits for a device or a file system that does not answer; try again")
            }
            Error::Gone(_) => words("the program runs on; attach again"),
            Error::On { host, error } => match &**error {
                Error::NoProcess(_) => Some(format!("`mw attach {host}:` lists what there is")),
                error => error.hint(),
            },
            Error::Lost { host, .. } => Some(format!(
                "what stood there stays halted for as long as `--keep` says: attach to {host} again"
            )),
            _ => None,
        }
    }
}

impl From<Error> for target::Error {
    fn from(error: Error) -> target::Error {
        let hint = error.hint();
        target::Error::Failed {
            source: Box::new(error),
            hint,
        }
    }
}
