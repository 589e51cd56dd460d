//! What can be wrong with a question.

use events::{PatternError, nearest};
use protocol::id::EventNo;

/// A question that cannot be answered. What it says is about what was asked;
/// [`Error::hint`] says what to ask instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no host of that name.
    #[error("there is no host `{name}` in the recording")]
    NoHost {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// No process is called that.
    #[error("the recording has no process `{name}`")]
    NoProcess {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Processes on several hosts are called that.
    #[error("`{name}` can be a process of any of {} hosts", .hosts.len())]
    SeveralHosts {
        /// What was asked for.
        name: String,
        /// The hosts.
        hosts: Vec<String>,
    },
    /// No process has a thread that is called that.
    #[error("no process has a thread `{name}`")]
    NoThread {
        /// What was asked for.
        name: String,
        /// One that is called nearly so.
        near: Option<String>,
    },
    /// A word that is no thread's name.
    #[error("`{name}` is not a thread")]
    NotAThread {
        /// What was asked for.
        name: String,
        /// One that is called nearly so.
        near: Option<String>,
    },
    /// There are not so many channels.
    #[error("the recording has no channel `{name}`")]
    NoChannel {
        /// What was asked for.
        name: String,
        /// How many there are.
        count: u32,
    },
    /// There is no such type of event.
    #[error("there is no type of event `{name}`")]
    NoType {
        /// What was asked for.
        name: String,
    },
    /// There is no such call.
    #[error("there is no system call `{name}` in the table")]
    NoCall {
        /// What was asked for.
        name: String,
    },
    /// NAME:NUMBER without a number.
    #[error("`{text}` is not an event: `{number}` is not a number")]
    NotANumber {
        /// All of it.
        text: String,
        /// What stands where the number should.
        number: String,
    },
    /// A process has no event of this number.
    #[error("{process} has no event {number}")]
    NoEvent {
        /// Which process.
        process: String,
        /// The number.
        number: EventNo,
        /// First and last event that it has.
        span: Option<(EventNo, EventNo)>,
    },
    /// A process where an event was asked for.
    #[error("`{name}` is a process, not an event")]
    Process {
        /// Its name.
        name: String,
    },
    /// Neither, but much like the name of a process.
    #[error("`{text}` is neither an event nor a pattern")]
    Neither {
        /// What was asked for.
        text: String,
        /// The process whose name is like it.
        near: String,
    },
    /// A pattern that no event fits.
    #[error("no event fits `{text}`")]
    NothingFits {
        /// The pattern.
        text: String,
    },
    /// A pattern that is none.
    #[error("{error}")]
    Pattern {
        /// All of it.
        text: String,
        /// What is wrong.
        error: PatternError,
    },
    /// A list is to begin or end at something that is no moment.
    #[error("`{option} {text}` is neither an event nor a time")]
    NotAMoment {
        /// What it was given for.
        option: &'static str,
        /// What was given.
        text: String,
    },
    /// A list of several processes is to begin or end at a number.
    #[error("`{option} {text}` does not say which process it counts the events of")]
    WhoseEvent {
        /// What it was given for.
        option: &'static str,
        /// What was given.
        text: String,
    },
}

impl Error {
    /// There is no one process of that name in a set.
    pub fn no_process(set: &recording::Set, name: &str) -> Error {
        let hosts = set.hosts_with(name);
        if hosts.len() > 1 {
            return Error::SeveralHosts {
                name: name.to_string(),
                hosts: hosts.into_iter().map(str::to_string).collect(),
            };
        }
        Error::NoProcess {
            name: name.to_string(),
            known: set.places().map(|place| set.process_name(place)).collect(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let meant = |near: &str| format!("did you mean `{near}`?");
        Some(match self {
            Error::NoHost { known, .. } => format!("it is of {}", known.join(", ")),
            Error::SeveralHosts { name, hosts } => {
                let all: Vec<String> = hosts.iter().map(|h| format!("`{name}@{h}`")).collect();
                format!("write {}", all.join(" or "))
            }
            Error::NoProcess { name, known } => {
                const LISTED: usize = 8;
                match nearest(name, known.iter().map(String::as_str)) {
                    Some(near) => meant(near),
                    None if known.len() <= LISTED => {
                        format!("its processes are {}", known.join(", "))
                    }
                    None => "`mw ps` lists them".to_string(),
                }
            }
            Error::NoThread { near, .. } => match near {
                Some(near) => meant(near),
                None => "`mw events` shows their names".to_string(),
            },
            Error::NotAThread { near, .. } => match near {
                Some(near) => meant(near),
                None => "threads are called main-0, thread-1, thread-2, ...".to_string(),
            },
            Error::NoChannel { count, .. } => match count.checked_sub(1) {
                Some(last) => format!("its channels are c0 to c{last}"),
                None => "it has no channels at all".to_string(),
            },
            Error::NoType { name } => {
                let known = || protocol::syscall::Type::ALL.iter().map(|kind| kind.name());
                match nearest(name, known()) {
                    Some(near) => meant(near),
                    None => {
                        let known: Vec<_> = known().collect();
                        format!("types are {}", known.join(", "))
                    }
                }
            }
            Error::NoCall { name } => {
                let known = protocol::table::TABLE.iter().map(|row| row.name);
                match nearest(name, known) {
                    Some(near) => meant(near),
                    None => "the names are the kernel's; `mw syscalls` lists them".to_string(),
                }
            }
            Error::NotANumber { .. } => {
                "write an event as NAME:NUMBER (redis-server-0:1042)".to_string()
            }
            Error::NoEvent { span, .. } => match span {
                Some((first, last)) => format!("its events are {first} to {last}"),
                None => "it has no events at all".to_string(),
            },
            Error::Process { name } => {
                format!("write NAME:NUMBER, like {name}:0; `mw events` lists them")
            }
            Error::Neither { near, .. } => {
                format!("did you mean an event of `{near}`, like {near}:0?")
            }
            Error::NothingFits { .. } => {
                "`mw events --where PATTERN` tries patterns out".to_string()
            }
            Error::Pattern { text, error } => match &error.near {
                Some(near) => meant(near),
                None => format!("the pattern was: {text}"),
            },
            Error::NotAMoment { .. } => {
                "write an event as NAME:NUMBER (redis-server-0:1042), a time as 1.5s, 20ms or 30us"
                    .to_string()
            }
            Error::WhoseEvent { .. } => {
                "write NAME:NUMBER, or choose one process with --process".to_string()
            }
        })
    }
}
