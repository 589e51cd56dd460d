//! The messages. postcard does not describe itself: adding or moving a field
//! needs a new [`VERSION`](crate::opening::VERSION).

use serde::{Deserialize, Serialize};

/// Which request an answer belongs to: chosen by who asks, never twice.
pub type Id = u32;

/// To the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Do something.
    Request {
        /// Its id.
        id: Id,
        /// What.
        request: Request,
    },
    /// Nobody waits for the answers to this request any more.
    Cancel(Id),
    /// The next bytes for who was started by [`Request::Debug`].
    Data {
        /// The request's id.
        id: Id,
        /// What.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Somebody is still there: no answer. While a program is debugged this comes every
    /// few seconds, and an agent that misses it takes its debugger for lost.
    Alive,
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// A part of what was asked for.
    Answer {
        /// The request's id.
        id: Id,
        /// The part.
        answer: Answer,
    },
    /// There is no more of it: it was done, or could not be.
    End {
        /// The request's id.
        id: Id,
        /// Why it could not be done, in a sentence, if so.
        failure: Option<String>,
    },
}

/// What an agent can be asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// What kind of host this is: one [`Answer::Facts`].
    Facts,
    /// What time it is: one [`Answer::Time`].
    Time,
    /// From now on a program is the asker's, and nobody else records it through
    /// this agent: no answer. Refused if it is somebody's already.
    Claim {
        /// What it is called.
        program: String,
        /// Even then.
        takes_over: bool,
    },
    /// Run a command and record it: one [`Answer::Started`], then
    /// [`Answer::Output`] as it comes, and one [`Answer::Ended`]. If nobody
    /// listens any more, the program and its recording go on.
    Record(Job),
    /// Send a signal to a program that this connection started: no answer.
    Signal {
        /// The request that started it.
        run: Id,
        /// The signal.
        signal: i32,
        /// To whom of it.
        to: Whom,
    },
    /// Which recordings there are: one [`Answer::Recording`] each.
    List,
    /// What files a recording has: one [`Answer::File`] each.
    Files {
        /// Its name, or a path.
        recording: String,
    },
    /// What a file of a recording holds: [`Answer::Data`] and
    /// [`Answer::Zeroes`] in order.
    Fetch {
        /// The recording's name, or a path.
        recording: String,
        /// The file, as [`Answer::File`] named it.
        file: String,
        /// From this byte on.
        from: u64,
    },
    /// Start a warden, who debugs processes of this host for the asker: what it says is
    /// [`Answer::Data`], what it is told [`ToAgent::Data`], and what a program says that
    /// it has started [`Answer::Output`]. If that is to be recorded there is one
    /// [`Answer::Started`] before. It ends when it is cancelled or has ended; the
    /// warden then lets its processes go as it was told to. What the two say to each
    /// other is `live::talk`, which belongs to what the version is of.
    Debug(Desk),
    /// What a file of the host is: one [`Answer::File`].
    Identify {
        /// Its path.
        path: String,
    },
    /// What a file of the host holds: [`Answer::Data`] and [`Answer::Zeroes`] in order.
    Copy {
        /// Its path.
        path: String,
    },
    /// What is new in a recording of this host that grows, waited for until there is
    /// anything, or for so long: [`Answer::Data`], each of which is a piece of
    /// `recording::growth`, as what the asker has is; that belongs to what the version is
    /// of.
    Grown {
        /// Its directory.
        dir: String,
        /// What the asker has of it.
        #[serde(with = "serde_bytes")]
        had: Vec<u8>,
        /// Not waited for longer than this.
        wait_ms: u32,
    },
    /// Remove what was observed of a live program that has ended: no answer.
    Forget {
        /// Its directory.
        dir: String,
    },
    /// Who waits for whom in processes that run, as `mw blocked --live` tells it in
    /// JSON: [`Answer::Data`].
    Blocked {
        /// The processes.
        words: Vec<String>,
    },
}

/// How a program is debugged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desk {
    /// Programs will be started, and what they say is to be told.
    pub starts: bool,
    /// Where to start them, unless at home.
    pub directory: Option<String>,
    /// Variables to set before.
    pub environment: Vec<(String, String)>,
    /// What is started is to be recorded, under a name that is made of this one.
    pub records: Option<String>,
}

/// Who of a program gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    /// Those in the foreground, as if by a key of a terminal.
    Foreground,
    /// All its processes.
    All,
}

/// A command to record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Where to start it, unless at home.
    pub directory: Option<String>,
    /// Variables to set before.
    pub environment: Vec<(String, String)>,
    /// The program runs on, unrecorded, if the disk is full.
    pub outlives_full_disk: bool,
}

/// A part of what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// See [`Request::Facts`].
    Facts(Box<Facts>),
    /// Nanoseconds since the epoch.
    Time(u64),
    /// The command was started.
    Started {
        /// Name of the recording; of a program that is debugged its path.
        recording: String,
        /// The kernel's id of the recorder, or of the warden.
        pid: u32,
    },
    /// The program said something.
    Output {
        /// On its standard error.
        is_error: bool,
        /// What.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The program has ended, in the shell's way of telling.
    Ended {
        /// The exit status, or 128 + signal.
        status: i32,
    },
    /// There is a recording.
    Recording(Stored),
    /// A recording has a file.
    File(File),
    /// Its next bytes.
    Data(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Its next bytes are this many zeroes.
    Zeroes(u64),
}

/// What kind of host this is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// What the host calls itself.
    pub host: String,
    /// Version of the agent.
    pub version: String,
    /// Version of the format in which it records.
    pub format: u32,
    /// Kernel name, release and version.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Who the agent runs as.
    pub user: String,
    /// Why nothing can be recorded there, if so.
    pub obstacle: Option<String>,
    /// Bytes free where recordings go.
    pub disk_free: u64,
    /// Where recordings go.
    pub home: String,
}

/// A recording on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// What was recorded.
    pub command: Vec<String>,
    /// When, in nanoseconds since the epoch.
    pub started_ns: u64,
    /// It is not over yet.
    pub goes_on: bool,
}

/// A file of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name in the recording's directory.
    pub name: String,
    /// Its length.
    pub length: u64,
    /// XXH3 of what it holds, in 128 bits, as two numbers: high, low. None of
    /// what may still change.
    pub digest: Option<(u64, u64)>,
}
