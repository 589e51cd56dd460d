//! Variables that are watched.

use inspect::value::Value;
use protocol::id::{Addr, ProcessId, ThreadNo};
use target::Watch;

use crate::reason::Seen;

/// A variable, or whatever else is in memory, that is watched.
#[derive(Clone, Debug)]
pub struct Watched {
    /// As the user wrote it.
    pub text: String,
    /// Only there it means something: the process, and which of its programs.
    pub process: ProcessId,
    pub image: usize,
    pub value: Value,
    pub address: Addr,
    /// In as many parts as it takes.
    pub parts: Vec<Watch>,
    /// The frame that it is a variable of.
    pub frame: Option<FrameKey>,
    /// What it was when the watch was set.
    pub seen: Seen,
}

/// A frame, known by what does not change as long as it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameKey {
    pub thread: ThreadNo,
    /// Its canonical frame address.
    pub cfa: Addr,
    pub function: Option<String>,
    /// Where its function begins.
    pub begins: Option<Addr>,
    /// Where it returns to, and the least stack pointer there.
    pub returns: Option<(Addr, Addr)>,
}
