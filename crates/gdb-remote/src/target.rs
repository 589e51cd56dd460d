//! What is debugged, as the server sees it.

use std::path::PathBuf;

use crate::registers::Registers;
use crate::server::Interrupt;
use crate::stop::Stop;

/// A thread of a process, by the ids that gdb knows them by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    pub pid: u32,
    pub tid: u32,
}

impl ThreadId {
    pub fn new(pid: u32, tid: u32) -> ThreadId {
        ThreadId { pid, tid }
    }
}

impl std::fmt::Display for ThreadId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p{:x}.{:x}", self.pid, self.tid)
    }
}

/// What is shown of a thread in lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    pub id: ThreadId,
    pub name: String,
    /// More about it, in a few words.
    pub about: String,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forwards,
    Backwards,
}

/// What is to be moved, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Motion {
    pub direction: Direction,
    /// The process that may move; `None`: all of them.
    pub process: Option<u32>,
    /// The thread that leads.
    pub thread: ThreadId,
    /// The thread is to execute one instruction, or as many as begin in the
    /// range; without it, all run until something stops them.
    pub step: Option<std::ops::Range<u64>>,
    /// The signal that the thread gets, in Linux's numbers.
    pub signal: Option<u32>,
}

/// Kinds of places to stop at, by the numbers of the `Z` packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StopKind {
    Software,
    Hardware,
    Write,
    Read,
    Access,
}

/// A place to stop at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopPoint {
    pub kind: StopKind,
    pub address: u64,
    pub length: u64,
    /// It is one only if one of these holds (bytecode); none: always.
    pub conditions: Vec<Vec<u8>>,
}

/// A request that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The target has nothing of the kind.
    Unsupported,
    /// It has, but not so: an error number, as of the kernel.
    Errno(u8),
    /// In words. (Shown by clients that understand words.)
    Words(String),
}

/// A file that the client may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// It is that one.
    At(PathBuf),
    /// It is made up.
    Bytes(Vec<u8>),
}

/// Why whoever is debugged did not do something, in the debugger's own words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What is debugged. Everything is asked by one thread.
pub trait Target {
    /// The thread that is at hand when a client connects.
    fn current(&mut self) -> ThreadId;

    /// All processes, in a stable order.
    fn processes(&mut self) -> Vec<u32>;

    /// The threads of a process, in a stable order.
    fn threads(&mut self, pid: u32) -> Vec<ThreadInfo>;

    fn registers(&mut self, thread: ThreadId) -> Option<Registers>;

    /// Reads memory: how many bytes from `address` on could be had.
    fn read(&mut self, pid: u32, address: u64, out: &mut [u8]) -> usize;

    /// The auxiliary vector, as it is in memory.
    fn auxv(&mut self, pid: u32) -> Option<Vec<u8>>;

    /// The path of the program that a process runs.
    fn executable(&mut self, pid: u32) -> Option<Vec<u8>>;

    /// A file as process `pid` saw it; `None`: the process at hand.
    fn file(&mut self, pid: Option<u32>, path: &[u8]) -> Option<File>;

    /// What is mapped around an address: its range, and the rights in the
    /// letters of `rwx`. Without rights it is a hole.
    fn region(&mut self, pid: u32, address: u64) -> (std::ops::Range<u64>, String);

    /// Where a thread-local variable is: `offset` in the block of the module
    /// whose link map is at `module`.
    fn thread_local(&mut self, thread: ThreadId, offset: u64, module: u64) -> Option<u64>;

    fn add_stop(&mut self, pid: u32, stop: StopPoint) -> Result<(), Refused>;

    fn remove_stop(
        &mut self,
        pid: u32,
        kind: StopKind,
        address: u64,
        length: u64,
    ) -> Result<(), Refused>;

    /// Moves; says where that led. An error is told to the user, and nothing
    /// has moved then as far as the client is concerned.
    fn resume(&mut self, motion: &Motion, interrupt: &Interrupt) -> Result<Stop, Failure>;

    /// A process is of no interest any more. False: there is none.
    fn let_go(&mut self, pid: u32) -> bool;

    /// Whether it is alive: it can be changed, and gets signals.
    fn is_alive(&self) -> bool {
        false
    }

    /// Ends a process. False: there is none.
    fn kill(&mut self, pid: u32) -> bool {
        self.let_go(pid)
    }

    /// Whether a process was there before it was debugged: then it is let go at the
    /// end, not ended.
    fn was_there(&mut self, _pid: u32) -> bool {
        true
    }

    /// Writes memory: how many bytes from `address` on could be.
    fn write(&mut self, _pid: u32, _address: u64, _bytes: &[u8]) -> usize {
        0
    }

    fn set_registers(&mut self, _thread: ThreadId, _registers: &Registers) -> Result<(), Refused> {
        Err(Refused::Unsupported)
    }

    /// The client need not be told of these signals, in Linux's numbers; of all
    /// others it is.
    fn pass_signals(&mut self, _signals: &[u32]) {}

    /// A process is of interest again.
    fn take_up(&mut self, pid: u32) -> Option<ThreadId>;

    /// Begins anew, with all processes.
    fn restart(&mut self) -> Result<ThreadId, Failure>;

    /// A command of the user's (`monitor`), and what to show.
    fn command(&mut self, line: &str) -> String;
}
