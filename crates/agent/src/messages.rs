//! What is asked and told at an agent's socket, besides requests and answers themselves
//! (`control`).

use serde::{Deserialize, Serialize};

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
