//! Types for the numbers that name things, so that one cannot be taken for
//! another.
//!
//! A process has two: its [`ProcessId`] says which process it is, in which
//! member of a set of recordings, and stays the same whatever is opened beside
//! it; its [`ProcessIx`] is where it stands in the list of one opened set, and
//! indexes tables made for that list. Only who holds the list can turn one into
//! the other.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(transparent))]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

/// Names a process of a program for good: the member of the set of recordings
/// it was recorded in, and its number there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessId {
    pub member: u16,
    pub number: u32,
}

impl ProcessId {
    /// A process of the first member, which is the only one of a recording
    /// that was made on one host.
    pub const fn of_first(number: u32) -> ProcessId {
        ProcessId { member: 0, number }
    }
}

number! {
    /// Where a process stands in the list of processes of an opened set.
    ProcessIx(u32)
}

impl ProcessIx {
    /// As an index into a table made for the same list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

number! {
    /// A thread of a process, by the order in which threads began.
    ThreadNo(u32)
}

number! {
    /// An event of a process: they are numbered in the order in which the
    /// process did them.
    EventNo(u64)
}

impl EventNo {
    pub const MAX: EventNo = EventNo(u64::MAX);

    /// The one that follows.
    pub const fn next(self) -> EventNo {
        EventNo(self.0.saturating_add(1))
    }

    /// The one before, of the first one the first.
    pub const fn previous(self) -> EventNo {
        EventNo(self.0.saturating_sub(1))
    }
}

number! {
    /// One of the programs that a process executes one after the other.
    ImageNo(u32)
}

number! {
    /// Time as a recording counts it.
    Ticks(u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_numbers_stay_in_them() {
        assert_eq!(EventNo::MAX.next(), EventNo::MAX);
        assert_eq!(EventNo(0).previous(), EventNo(0));
        assert_eq!(EventNo(4).next().previous(), EventNo(4));
    }

    #[test]
    fn processes_are_in_the_order_of_their_members() {
        let of = |member, number| ProcessId { member, number };
        assert!(of(0, 9) < of(1, 1));
        assert_eq!(ProcessId::of_first(3), of(0, 3));
    }
}
