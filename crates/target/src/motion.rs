//! What a motion stops at, and where it led.

use std::sync::Arc;

use protocol::id::{Addr, ProcessId};

use crate::verdict::Difference;

/// Memory whose changes are to be seen: `length` bytes from `address` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    pub address: Addr,
    pub length: u8,
}

impl Watch {
    /// The longest stretch that one of them can have.
    pub const LONGEST: u64 = 248;

    /// So many bytes can be watched together.
    pub const MOST: u64 = protocol::replay::WATCHES as u64 * 8;

    /// A stretch of memory, in as many as it takes.
    pub fn split(address: Addr, length: u64) -> impl Iterator<Item = Watch> {
        let parts = (0..length).step_by(Watch::LONGEST as usize);
        parts.map(move |from| Watch {
            address: address.plus(from),
            length: (length - from).min(Watch::LONGEST) as u8,
        })
    }

    /// As pieces that can be looked at in one go: one, two, four or eight bytes.
    pub fn pieces(self) -> impl Iterator<Item = Watch> {
        let (mut at, mut left) = (self.address, self.length);
        std::iter::from_fn(move || {
            let length = [8, 4, 2, 1].into_iter().find(|size| *size <= left)?;
            let piece = Watch {
                address: at,
                length,
            };
            at = at.plus(u64::from(length));
            left -= length;
            Some(piece)
        })
    }
}

/// What a breakpoint depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Of the breakpoint.
    pub address: Addr,
    /// In the language of [`protocol::condition`].
    pub code: Arc<[u8]>,
}

/// What a motion stops at, besides its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stops<'a> {
    /// Before the instructions at these addresses.
    pub breakpoints: &'a [Addr],
    /// Behind what changes this memory.
    pub watches: &'a [Watch],
    /// Behind each call that maps code.
    pub mapped: bool,
    /// Breakpoints that have conditions are passed while it is certain that
    /// none of those holds. What is stopped at has still to be asked.
    pub conditions: &'a [Condition],
    /// What a process that is alive stops at besides. (Of one that was recorded
    /// it is known where these are.)
    pub catches: Option<&'a Catches>,
}

/// What happens to a process that is alive, and is to be stopped at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catches {
    /// Before system calls: all of them, or those of these numbers.
    pub calls: Calls,
    pub forks: bool,
    pub execs: bool,
    /// Before signals come: bit 0 is signal 1.
    pub signals: u64,
    /// When it has ended, though another one leads.
    pub ends: bool,
}

/// Which system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    #[default]
    None,
    All,
    These(Vec<u64>),
}

impl Calls {
    /// Whether a call is one of them.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Calls::None => false,
            Calls::All => true,
            Calls::These(numbers) => numbers.contains(&number),
        }
    }
}

/// What happened to a process that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It is about to make a system call.
    Call(u64),
    /// It has made another process.
    Forked(u32),
    /// It has begun another program.
    Exec,
    /// A signal is about to come to it.
    Signal(u32),
    /// It has ended, with this status.
    Exited(i32),
    /// A signal has ended it.
    Killed(u32),
}

/// Where a process came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At the place it was to go to.
    There,
    /// Before the instruction at a breakpoint.
    Breakpoint,
    /// What was to be stepped over has been executed.
    Stepped,
    /// Behind the instruction, or the event, that changed watched memory: the
    /// index of the [`Watch`] in the list that was given.
    Watch(usize),
    /// Its run ends before.
    End,
    /// The request was cancelled.
    Interrupted,
    /// Behind a call that mapped code ([`Stops::mapped`]).
    Mapped,
    /// It came to something else than the recording.
    Diverged(Difference),
    /// Something happened to it that stops it.
    Happened(Happening),
    /// Another process that ran along came to this: everybody stands still.
    Elsewhere(ProcessId, Box<Arrival>),
}

/// Where going back led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// Before the instruction at a breakpoint.
    Breakpoint,
    /// Before what changed watched memory: the index of the [`Watch`] in the
    /// list that was given.
    Watch(usize),
    /// Nowhere: there is nothing of the kind before, and it stands where it
    /// stood.
    Beginning,
    /// Nowhere: the request was cancelled.
    Interrupted,
}

/// What was come to on a search back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    Breakpoint,
    /// The index of the [`Watch`] in the list that was given.
    Watch(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_length_is_split() {
        for length in [0, 1, 8, 13, 248, 249, 512, 1000] {
            let parts: Vec<Watch> = Watch::split(Addr(0x1000), length).collect();
            let mut at = Addr(0x1000);
            for part in &parts {
                assert_eq!(part.address, at);
                let pieces: Vec<Watch> = part.pieces().collect();
                assert!(pieces.iter().all(|p| [1, 2, 4, 8].contains(&p.length)));
                let sum: u64 = pieces.iter().map(|p| u64::from(p.length)).sum();
                assert_eq!(sum, u64::from(part.length));
                at = at.plus(sum);
            }
            assert_eq!(at, Addr(0x1000).plus(length));
        }
    }
}
