//! What is known of a process that stands still.

use std::ops::Range;
use std::path::PathBuf;

use protocol::id::{Addr, EventNo, ImageNo, ThreadNo};

use crate::Registers;

/// A thread of a process that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Number in its process.
    pub number: ThreadNo,
    /// The kernel's id of it, when it was recorded; 0: it has not asked for it.
    pub tid: u32,
    /// The system call it is in, by number.
    pub call: Option<u64>,
    /// Whether that call has begun and not returned.
    pub waits: bool,
    pub registers: Registers,
    /// The signals that it blocks: bit 0 is signal 1.
    pub blocked: u64,
    /// Why it goes on with nobody, if it does.
    pub stuck: Option<Stuck>,
}

/// Why a thread of a process that is alive does not go on when others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// A signal has stopped it (SIGSTOP, Ctrl-Z), and another one has to continue it.
    Stopped,
    /// It waits for what nobody can cut short, and does not stop.
    Uninterruptible,
}

/// What a program does with a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Nothing of its own.
    System,
    Ignored,
    /// It calls a function: this one, if that is known.
    Function(Option<Addr>),
}

/// A piece of a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub range: Range<Addr>,
    pub writable: bool,
    pub executable: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file that is mapped: where it can be read, and the path that the
    /// process knows it by.
    pub file: Option<(PathBuf, PathBuf)>,
    /// The code that programs are given to read clocks with.
    pub is_vdso: bool,
}

/// Which state of a process's mappings it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MapsVersion {
    /// Which of its programs the process executes: an index in
    /// [`crate::Target::images`].
    pub image: usize,
    /// Changes with the mappings of that.
    pub version: u64,
}

/// One of the programs that a process executes one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSpan {
    /// Its number. (A process that was forked begins with a program of its
    /// parent's, which has none of its own: 0.)
    pub number: ImageNo,
    /// Its first event.
    pub first: EventNo,
}

/// Names a checkpoint of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(pub u32);

impl std::fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What is known of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    pub id: CheckpointId,
    /// The event that it stands before.
    pub event: EventNo,
    /// Taken by [`crate::Recorded::checkpoint`]: it stays until it is dropped.
    pub kept: bool,
}
