//! Types for the numbers that name things, so that one cannot be taken for
//! another.
//!
//! A process has three: its [`ProcessNo`] is the number that it got when it was
//! recorded, of which each recording has its own; its [`ProcessId`] says in which
//! member of a set of recordings that is, and stays the same whatever is opened
//! beside it; its [`ProcessIx`] is where it stands in the list of one opened set,
//! and indexes tables made for that list. Only who holds the list can turn one
//! into the other.

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
    pub number: ProcessNo,
}

impl ProcessId {
    /// A process of the first member, which is the only one of a recording
    /// that was made on one host.
    pub const fn of_first(number: u32) -> ProcessId {
        ProcessNo(number).of_member(0)
    }
}

number! {
    /// A process of one recording, by the number that it got when it began.
    ProcessNo(u32)
}

impl ProcessNo {
    /// The process with this number in a member of a set.
    pub const fn of_member(self, member: u16) -> ProcessId {
        ProcessId {
            member,
            number: self,
        }
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

impl ThreadNo {
    /// The thread that a process begins with.
    pub const FIRST: ThreadNo = ThreadNo(0);
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

    /// How many events there are from another one on up to this one, which does
    /// not count; none if the other comes later.
    pub const fn since(self, other: EventNo) -> u64 {
        self.0.saturating_sub(other.0)
    }

    /// The one that comes so many later.
    pub const fn plus(self, count: u64) -> EventNo {
        EventNo(self.0.saturating_add(count))
    }
}

number! {
    /// One of the programs that a process executes one after the other.
    ImageNo(u32)
}

number! {
    /// An instant, as a recording counts time.
    Ticks(u64)
}

impl Ticks {
    pub const MAX: Ticks = Ticks(u64::MAX);

    /// How many ticks have passed since another instant; none if it is later.
    pub const fn since(self, other: Ticks) -> u64 {
        self.0.saturating_sub(other.0)
    }
}

/// An address in the memory of a process.
///
/// What a file says about its code and data is relative to where the file was
/// linked to be; those addresses are plain numbers, and become these by the bias
/// that the file was loaded with ([`Addr::of_linked`], [`Addr::linked`]).
///
/// Addresses are computed with as the machine does: what goes past an end comes in
/// at the other, unless a method says otherwise.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
#[repr(transparent)]
pub struct Addr(pub u64);

impl Addr {
    /// Where no program has anything.
    pub const NULL: Addr = Addr(0);

    pub const MAX: Addr = Addr(u64::MAX);

    /// Whether it is the one that stands for nothing.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The one that lies so many bytes further on.
    pub const fn plus(self, bytes: u64) -> Addr {
        Addr(self.0.wrapping_add(bytes))
    }

    /// The one that lies so many bytes before.
    pub const fn minus(self, bytes: u64) -> Addr {
        Addr(self.0.wrapping_sub(bytes))
    }

    /// The one that lies so many bytes further on, or before.
    pub const fn offset(self, bytes: i64) -> Addr {
        Addr(self.0.wrapping_add_signed(bytes))
    }

    /// The one that lies so many bytes further on, if there is one.
    pub const fn checked_plus(self, bytes: u64) -> Option<Addr> {
        match self.0.checked_add(bytes) {
            Some(address) => Some(Addr(address)),
            None => None,
        }
    }

    /// The one that lies so many bytes further on, or the last one.
    pub const fn saturating_plus(self, bytes: u64) -> Addr {
        Addr(self.0.saturating_add(bytes))
    }

    /// How many bytes it lies behind another; none if the other lies behind it.
    pub const fn since(self, other: Addr) -> u64 {
        self.0.saturating_sub(other.0)
    }

    /// How many bytes it lies behind another, if it does not lie before it.
    pub const fn checked_since(self, other: Addr) -> Option<u64> {
        self.0.checked_sub(other.0)
    }

    /// How many bytes lie between it and the multiple of `size` before it, which has to
    /// be a power of two.
    pub const fn within(self, size: u64) -> u64 {
        self.0 & (size - 1)
    }

    /// Where a process has what a file has at an address as linked: `bias` says by how
    /// much the file was moved when it was loaded.
    pub const fn of_linked(linked: u64, bias: u64) -> Addr {
        Addr(linked.wrapping_add(bias))
    }

    /// The address as linked, in a file that was moved by `bias` when it was loaded.
    pub const fn linked(self, bias: u64) -> u64 {
        self.0.wrapping_sub(bias)
    }

    /// By how much a file was moved that has this at `linked`.
    pub const fn bias(self, linked: u64) -> u64 {
        self.0.wrapping_sub(linked)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Addr({:#x})", self.0)
    }
}

impl fmt::LowerHex for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
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
        let of = |member, number| ProcessNo(number).of_member(member);
        assert!(of(0, 9) < of(1, 1));
        assert_eq!(ProcessId::of_first(3), of(0, 3));
    }

    #[test]
    fn addresses_are_moved_as_the_machine_does() {
        let at = Addr(0x1000);
        assert_eq!(at.plus(8).minus(8), at);
        assert_eq!(at.offset(-0x1001), Addr::MAX);
        assert_eq!(Addr::MAX.checked_plus(1), None);
        assert_eq!(Addr::MAX.saturating_plus(9), Addr::MAX);
        assert_eq!((at.since(Addr(0x1001)), Addr(0x1001).since(at)), (0, 1));
        assert_eq!(at.checked_since(Addr(0x1001)), None);
        assert_eq!(Addr(0x12345).within(0x1000), 0x345);
    }

    #[test]
    fn a_bias_leads_to_the_file_and_back() {
        let (linked, bias) = (0x40, 0x7f00_0000_0000);
        let at = Addr::of_linked(linked, bias);
        assert_eq!(at.linked(bias), linked);
        assert_eq!(at.bias(linked), bias);
        assert_eq!(at.to_string(), "0x7f0000000040");
        // Linked high and loaded low: the bias goes around.
        let low = Addr(0x1000);
        assert_eq!(low.linked(low.bias(0x9000)), 0x9000);
    }
}
