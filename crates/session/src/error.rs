//! Why the debugger could not do what it was asked to.

use protocol::id::{Addr, ProcessId};

/// Of everything that is asked of the debugger.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the debugger could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the recording has no processes")]
    NoProcesses,
    #[error("there is no process {} here", .0.number)]
    NoProcess(ProcessId),
    #[error("this is no consistent cut: another has seen {name}:{event}, which is behind it")]
    NoCut {
        name: String,
        event: protocol::id::EventNo,
    },
    #[error("there is no frame here")]
    NoFrame,
    #[error("there is no breakpoint {0}")]
    NoPoint(u32),
    #[error("the outermost frame returns to nobody")]
    Outermost,
    #[error("where this frame's function begins is not known")]
    NoBeginning,
    #[error("this frame was not called: it is the first")]
    NotCalled,
    #[error("the condition of {number} cannot be tested: {source}")]
    Condition {
        number: u32,
        condition: String,
        source: inspect::Error,
    },
    #[error("there are {0} places to stop at, more than {most} are not possible", most = protocol::replay::BREAKPOINTS)]
    TooManyPlaces(usize),
    #[error("`{0}` is not in memory here")]
    NotInMemory(String),
    #[error("`{text}` is {size} bytes long: at most {most} can be watched", most = target::Watch::MOST)]
    TooLong { text: String, size: u64 },
    #[error("there is no system call `{name}`")]
    NoSyscall { name: String, near: Option<String> },
    #[error("`{0}` cannot be caught")]
    NotCaught(String),
    #[error("memory at {0:#x} cannot be written")]
    NotWritten(Addr),
    #[error("there is no register `{0}` that can be set here")]
    NoRegister(String),
    #[error("`{0}` cannot be called")]
    NoCall(String),
    #[error("the function did not return: {0}")]
    CallFailed(String),
    #[error("`{0}` cannot be caught in a program that is alive")]
    NotCaughtAlive(String),
    #[error("{error}")]
    Pattern {
        error: events::PatternError,
        text: String,
    },
    #[error("{0}")]
    Location(String),
    #[error("{0}")]
    Inspect(#[from] inspect::Error),
    #[error("{0}")]
    Target(#[from] target::Error),
    #[error("the thread that has the processes has ended")]
    Gone,
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let words = |text: &str| Some(text.to_string());
        match self {
            Error::NoCut { .. } => words("leave that process out: it comes to where it must be"),
            Error::NoPoint(_) => words("`info breakpoints` lists them"),
            Error::Condition {
                number, condition, ..
            } => Some(format!(
                "`condition {number}` removes it; it is: {condition}"
            )),
            Error::TooManyPlaces(_) => {
                words("`delete` some; a function that is inlined often has many")
            }
            Error::NotInMemory(_) => words(
                "a variable, member, element or `*pointer` can be watched; what is computed, or \
                 kept in a register, cannot",
            ),
            Error::TooLong { .. } => words("watch a member or an element of it"),
            Error::NoSyscall { near, .. } => Some(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`mw syscalls` lists them".to_string(),
            }),
            Error::NotCaught(_) => {
                words("`break __cxa_throw` stops where C++ throws; `catch send` at events")
            }
            Error::NoRegister(_) => words("the general ones, rip and eflags can, in frame 0"),
            Error::NoCall(_) => words(
                "a function by its name with up to six numbers or pointers: `call f(1, p)`; it \
                 needs debug information",
            ),
            Error::CallFailed(_) => words("the thread stands where it stood before the call"),
            Error::NotCaughtAlive(_) => words(
                "what the kernel tells can: `catch syscall NAME`, fork, exec, signal NAME, crash",
            ),
            Error::Pattern { error, text } => Some(match &error.near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the pattern was: {text}"),
            }),
            Error::Target(error) => error.hint(),
            _ => None,
        }
    }
}
