//! What the debugger and the warden say to each other: a length, then a message.
//!
//! Each request has one answer, but for [`Request::Halt`], which has none: it cuts
//! short the motion that is under way, whose answer says so. What is asked of an agent aside
//! ([`Request::Aside`]) may be asked and answered in the middle of one.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::mapped::Mappings;
use crate::proc::Candidate;
use crate::word::Secret;

/// Longer messages are nonsense.
const LONGEST: usize = 64 << 20;

/// What is asked of the warden. Processes and threads are named by the kernel's ids.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The debugger is on another host: what it would read of this one by itself it is told.
    Far,
    /// Other hosts of the program are to tell this one directly of a halt: where they can.
    Listen,
    /// Where the other hosts listen, of each member, and what proves that it is they.
    Meet {
        secret: Secret,
        own: u16,
        addresses: Vec<Vec<SocketAddr>>,
    },
    /// Who could be joined.
    Candidates,
    /// What a process has mapped.
    Mapped(i32),
    /// Which signals a process ignores, and which it catches.
    Masks(i32),
    /// What a file under `/proc/PID` says, or where it leads if it is a link.
    Told {
        process: i32,
        name: String,
    },
    /// Joins these processes: all of them, or none. Of a program that runs under an
    /// agent all processes are joined; it stays halted for `keep_ms` when the debugger
    /// is lost.
    Attach {
        pids: Vec<i32>,
        keep_ms: Option<u64>,
        overrides: bool,
        /// By an agent, if they have none: their time stands when they do.
        governed: bool,
    },
    /// Starts a program in a process group and stops it before its first instruction.
    Start {
        arguments: Vec<Vec<u8>>,
        group: i32,
    },
    /// Starts an agent by these words, and joins the program that it starts, which
    /// stands before its first instruction.
    StartGoverned {
        words: Vec<Vec<u8>>,
        group: i32,
        keep_ms: Option<u64>,
    },
    /// A question to the agent of the program, in its own words.
    Agent(String),
    /// A question to the agent that changes nothing, at any time: while processes run, too.
    /// Its answer is [`Answer::Aside`], which may come before that of what is under way.
    Aside(String),
    /// What the program of a process does with signals.
    Actions(i32),
    /// Whether the program goes on at once when the debugger has gone.
    Farewell {
        goes_on: bool,
    },
    /// Who is there.
    Processes,
    Threads(i32),
    Read {
        process: i32,
        address: u64,
        length: u64,
    },
    Write {
        process: i32,
        address: u64,
        bytes: Vec<u8>,
    },
    SetRegisters {
        thread: i32,
        general: Box<[u64; 27]>,
        xmm: Box<[[u64; 2]; 16]>,
    },
    /// A thread that is about to make a call gets this error for its answer instead.
    Refuse {
        thread: i32,
        errno: i32,
    },
    /// What a process stops at.
    Arm(i32, Armed),
    /// The debugger knows all that are there now. Who is made by one that runs from
    /// here on runs along until it is known.
    Known,
    /// Runs processes; this thread of the first is not stopped where it stands. Motions
    /// are numbered from 1 on, on all hosts of a program alike.
    Run {
        motion: u64,
        thread: i32,
        processes: Vec<i32>,
        part: Part,
    },
    /// Has a thread execute one instruction, or as many as begin in the range. The
    /// others run along only if it does not come out by itself.
    Step {
        motion: u64,
        thread: i32,
        processes: Vec<i32>,
        range: (u64, u64),
        part: Part,
    },
    Halt,
    /// The signal that a thread gets when it runs on; 0 for none.
    SetSignal {
        thread: i32,
        signal: u32,
    },
    Kill(i32),
    Detach(i32),
}

/// What part a warden has in a motion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// All processes of the program are its own.
    Whole,
    /// One of its threads is led, and others run along elsewhere: that somebody stops is
    /// said at once, and so is that a step takes the others.
    Leads,
    /// Its processes run along with one elsewhere: nobody of them leads. That somebody
    /// stops is said at once.
    Along,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    Failed(Error),
    /// Where it can be told, the best first; nowhere, if it cannot be.
    Listening(Vec<SocketAddr>),
    Processes(Vec<Process>),
    Threads(Vec<Thread>),
    Bytes(Vec<u8>),
    Count(u64),
    Started(i32),
    /// They were joined. If that is not as it was to be: why.
    Joined(Option<String>),
    /// To a debugger on another host, with what it is about to ask.
    Stopped(Report, Option<Box<Sight>>),
    /// Not the answer yet: somebody has come to something, and all are being stopped.
    Halting,
    /// Not the answer yet: a step takes the others, who are to run.
    Going,
    Candidates(Vec<Candidate>),
    Mapped(Mappings),
    /// Ignored and caught.
    Masks(u64, u64),
    /// In its own words.
    Agent(String),
    /// Not the answer to what is under way: an agent's, in its own words.
    Aside(Result<String, Error>),
    /// Handlers of the signals from 1 on; empty: the kernel knows.
    Actions(Vec<u64>),
}

/// A process that is traced.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// What it is called.
    pub name: String,
    /// Goes up with each program that it begins.
    pub image: u32,
    pub ending: Option<What>,
}

/// A thread that is traced.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Thread {
    pub tid: i32,
    /// In its process, in order of their beginnings.
    pub number: u32,
    /// None: it does not stop.
    pub registers: Option<Registers>,
    /// The signal that it gets when it runs on; 0 for none.
    pub signal: u32,
    /// It stands before a system call.
    pub at_call: bool,
    /// A signal has stopped it, and it is not ours to have it run.
    pub by_job_control: bool,
    /// For a debugger on another host, what that cannot see.
    pub seen: Option<Seen>,
}

/// What /proc tells of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub name: String,
    /// Signals.
    pub blocked: u64,
    /// The call that it is in, if it does not stop.
    pub call: Option<u64>,
}

/// What a debugger on another host is about to ask when somebody has stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sight {
    pub processes: Vec<Process>,
    /// Of who has stopped, and of others as long as that is not too much.
    pub glimpses: Vec<Glimpse>,
}

/// What is asked first of a process that stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Glimpse {
    pub process: i32,
    pub threads: Vec<Thread>,
    /// If it is not as it was told before.
    pub mappings: Option<Mappings>,
    /// A piece of its memory: address and bytes.
    pub memory: Option<(u64, Vec<u8>)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Registers {
    /// In the kernel's order.
    pub general: [u64; 27],
    /// The FXSAVE image.
    pub fxsave: Vec<u8>,
    /// The upper halves of the vector registers, empty if there are none.
    pub ymm_high: Vec<u8>,
}

/// What a process stops at.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Armed {
    pub breakpoints: Vec<u64>,
    /// Addresses, and conditions of which one must not be false.
    pub conditions: Vec<(u64, Vec<u8>)>,
    /// Addresses and lengths.
    pub watches: Vec<(u64, u8)>,
    /// Before which system calls; None for none, an empty list for all.
    pub calls: Option<Vec<u64>>,
    pub forks: bool,
    pub signals: u64,
    /// Its end, though another one leads.
    pub ends: bool,
}

/// Why everybody stands still.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub process: i32,
    pub thread: i32,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    Breakpoint,
    /// Which of those that were given.
    Watch(u32),
    Stepped,
    Halted,
    Call(u64),
    Forked(i32),
    Exec,
    Signal(u32),
    Exited(i32),
    Killed(u32),
    /// There is nobody who could run.
    Nobody,
}

/// Sends a message.
pub fn send<T: Serialize>(to: &mut UnixStream, message: &T) -> std::io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(std::io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(std::io::Error::other)?;
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    to.write_all(&frame)
}

/// Waits for a message. None: the other end is closed.
pub fn receive<T: for<'d> Deserialize<'d>>(from: &mut UnixStream) -> std::io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(std::io::Error::other("a message is too long"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    postcard::from_bytes(&body)
        .map(Some)
        .map_err(std::io::Error::other)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let said = Request::Write {
            process: 7,
            address: 1 << 40,
            bytes: vec![1, 2, 3],
        };
        send(&mut here, &said).unwrap();
        let heard: Request = receive(&mut there).unwrap().unwrap();
        assert_eq!(format!("{said:?}"), format!("{heard:?}"));
        drop(here);
        assert!(receive::<Request>(&mut there).unwrap().is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        here.write_all(&[255; 64]).unwrap();
        assert!(receive::<Request>(&mut there).is_err());
        let (mut here, mut there) = UnixStream::pair().unwrap();
        here.write_all(&[3, 0, 0, 0, 200, 200, 200]).unwrap();
        assert!(receive::<Request>(&mut there).is_err());
    }
}
