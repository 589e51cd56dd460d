//! What is asked and told at an agent's socket (`control`).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::channels::Channel;
use crate::halting::{Halted, Stop};
use crate::peers::{Past, Peer};
use crate::timeouts::{Change, Timeout};

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    Status,
    /// Halts the program. If the connection ends it stays so for `keep_ms`.
    Halt {
        #[serde(default)]
        limit_ms: Option<u64>,
        #[serde(default)]
        keep_ms: Option<u64>,
        /// Also if another debugger holds it.
        #[serde(default, rename = "override")]
        overrides: bool,
    },
    Resume,
    /// What the pipes and sockets of the program hold.
    Channels,
    /// Somebody runs on when the others are halted.
    Exempt {
        #[serde(flatten)]
        who: Who,
        on: bool,
    },
    /// The agent leaves the program alone, if that ran before the agent came.
    Detach,
    /// The program sees the time that it is halted from now on, or not.
    RealTime {
        on: bool,
    },
    /// Whether a process is one of the program's, and if so, how that is.
    Peer {
        pid: u32,
    },
    /// The halts that are over, after a number.
    Halts {
        #[serde(default)]
        after: u32,
    },
    /// The program's time is the real one again, from when it goes on: its clocks go
    /// forward by all that was taken out of them.
    CatchUp,
    /// This connection is a debugger's: nobody else halts or resumes the program, and
    /// nobody else traces it. `tracer` is the process that does.
    Hold {
        #[serde(default)]
        keep_ms: Option<u64>,
        #[serde(default, rename = "override")]
        overrides: bool,
        tracer: u32,
    },
    /// It is no longer. What is halted goes on.
    Release,
    /// A process that the debugger traces has executed a program and stands before
    /// its first instruction. `thread` is the one that did.
    Execed {
        process: u32,
        thread: u32,
        registers: Vec<u64>,
    },
    /// The program's time and the real one, and what each halt has taken.
    Time,
    /// What is waited for with a time limit.
    Timeouts,
    /// What the program does from now on is written down, for conditions; or no more. It is
    /// halted.
    Observe {
        on: bool,
    },
    /// Changes the limit of a wait, or of all.
    Timeout {
        #[serde(default)]
        tid: Option<u32>,
        change: Change,
    },
}

impl Request {
    /// It changes nothing: another debugger may ask it, too, and it can be asked while the
    /// program runs.
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            Request::Status
                | Request::Channels
                | Request::Time
                | Request::Timeouts
                | Request::Peer { .. }
                | Request::Halts { .. }
        )
    }

    /// It only asks: root may, too.
    pub(crate) fn only_asks(&self) -> bool {
        matches!(
            self,
            Request::Status | Request::Peer { .. } | Request::Halts { .. }
        )
    }
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    Status(Status),
    Halted(Halted),
    Resumed {
        length_ns: u64,
    },
    Channels {
        channels: Vec<Channel>,
    },
    Time(Time),
    Timeouts {
        timeouts: Vec<Timeout>,
    },
    /// What the monitor is to be put into a new image with.
    Inject(Inject),
    /// How many threads it was for.
    Changed {
        count: u32,
    },
    Peer(Peer),
    /// Where what the program does is written down.
    Observed {
        dir: PathBuf,
    },
    Halts {
        halts: Vec<Past>,
    },
    Done,
    Refused {
        why: String,
    },
}

/// How the program is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The command as it was typed.
    pub command: Vec<String>,
    /// The agent, and where the memory is that it shares with the program.
    pub pid: u32,
    pub arena: PathBuf,
    pub is_recording: bool,
    pub is_halted: bool,
    /// How many halts there have been, and by how much the program's clocks are
    /// behind.
    pub halts: u32,
    pub shift_ns: u64,
    /// Who debugs it, if somebody does.
    #[serde(default)]
    pub debugger: Option<u32>,
    pub threads: Vec<Stop>,
}

/// Who runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// A process, by its number.
    Process(u32),
    /// One thread, by the kernel's id.
    Thread(u32),
    /// Who serves connections to this port.
    Port(u16),
}

/// See [`inject::Injection`]; and where the word is that says where the vdso is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inject {
    pub slot: u64,
    pub arena_fd: i32,
    pub image_len: u64,
    pub entry: u64,
    pub vdso: u64,
    pub vdso_at: Option<u64>,
}

/// The program's time and the real one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// CLOCK_REALTIME, and what it shows the program.
    pub real_ns: u64,
    pub logical_ns: u64,
    /// Halts are not taken out of the program's time.
    pub is_real: bool,
    /// The halts that are over, oldest first: at most the last thousand.
    pub halts: Vec<Pause>,
    /// How long the one that is on has lasted.
    pub current_ns: Option<u64>,
}

/// A halt that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub number: u32,
    /// When it ended (CLOCK_REALTIME), and how long it was.
    pub ended_ns: u64,
    pub length_ns: u64,
    /// It was taken out of the program's time.
    pub is_hidden: bool,
}
