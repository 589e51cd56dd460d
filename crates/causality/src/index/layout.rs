//! The index on disk: a head, sections of records of fixed size, and a
//! checksum for each block of them.
//!
//! Numbers are little-endian and not aligned, so that a mapped file and a
//! vector read the same. What is in memory is trusted only after its block's
//! checksum was seen to fit (see [`super::file`]).

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Raised whenever the layout, or what is found and how, changes: an index of
/// another version is made again.
pub(crate) const VERSION: u32 = 7;
pub(crate) const MAGIC: [u8; 8] = *b"mwcauses";
/// Bytes that have one checksum: a page, as a search touches little of each
/// block that it looks into, and all of the block is summed for it.
pub(crate) const BLOCK: usize = 1 << 12;

/// What the sections hold, in their order in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Section {
    /// [`ProcessRec`] for each process.
    Processes,
    /// [`InRec`], by process and effect.
    In,
    /// [`OutRec`], by process and cause.
    Out,
    /// [`SnapRec`], by process and event.
    Snaps,
    /// [`BoundRec`] of the snapshots.
    Bounds,
    /// [`ChannelRec`].
    Channels,
    /// [`GroupRec`], by channel.
    Groups,
    /// [`SumRec`] of the groups.
    Sums,
    /// [`UseRec`], by process and event.
    Uses,
    /// [`HolderRec`], by channel.
    Holders,
    /// [`WaitRec`], by process and first event.
    Waits,
    /// [`CallRec`], by process and first event.
    Calls,
    /// Numbers of channels that waits are for one of.
    Polls,
    /// [`ThreadRec`], by process and thread.
    Threads,
    /// [`LockRec`], by lock.
    Locks,
    /// [`LockNameRec`], by lock.
    LockNames,
    /// [`FileRec`], by process, descriptor and event.
    Files,
    /// [`MemberRec`] for each member, where there are several.
    Members,
    /// Text that records refer to.
    Text,
}

pub(crate) const SECTIONS: usize = Section::Text as usize + 1;

/// The beginning of the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Head {
    pub magic: [u8; 8],
    pub version: U32,
    pub block: U32,
    /// What the recording was when the index was made.
    pub recording: U64,
    /// Length of the file.
    pub len: U64,
    /// How many checksums are at its end.
    pub blocks: U64,
    /// Events that were read.
    pub events: U64,
    /// How often the order of racing operations had to be guessed.
    pub guesses: U64,
    /// Links that were left out because they made a circle.
    pub dropped: U64,
    /// Offset and count of each section.
    pub sections: [[U64; 2]; SECTIONS],
    /// Checksum of the table of checksums.
    pub table: U64,
    /// Checksum of all of the above.
    pub own: U64,
}

/// A range of records.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Range {
    pub from: U32,
    pub count: U32,
}

impl Range {
    pub fn new(from: usize, count: usize) -> Range {
        Range {
            from: U32::new(from as u32),
            count: U32::new(count as u32),
        }
    }
}

/// In [`ChannelRec::kind`]: this was another channel, seen from its other end.
pub(crate) const MERGED: u8 = u8::MAX;

/// The clock of a member: see [`crate::MemberClock`].
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct MemberRec {
    pub ahead: I64,
    pub drift: I64,
    /// `i64::MIN` if nothing bounds it.
    pub least: I64,
    /// `i64::MAX` if nothing bounds it.
    pub most: I64,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ProcessRec {
    pub first: U32,
    pub last: U32,
    pub threads: U32,
    pub links_in: Range,
    pub links_out: Range,
    pub snaps: Range,
    pub uses: Range,
    pub waits: Range,
    pub calls: Range,
    pub threads_at: Range,
    pub files: Range,
    /// See [`crate::world::End`].
    pub ended: U32,
}

/// A call that was two events.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct CallRec {
    pub first: U32,
    /// How many events later it returned. (A long one is in
    /// [`Section::Waits`], and not here.)
    pub span: u8,
    pub thread: U16,
    pub nr: U16,
}

/// A link, from the side of its effect.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct InRec {
    pub effect: U32,
    pub thread: U32,
    pub cause_process: U32,
    pub cause: U32,
    pub cause_thread: U32,
    pub channel: U32,
    pub amount: U32,
    pub kind: u8,
}

/// A link, from the side of its cause.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OutRec {
    pub cause: U32,
    pub effect_process: U32,
    pub effect: U32,
    /// Its place among [`Section::In`].
    pub link: U32,
}

/// The causal past of an event.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SnapRec {
    pub event: U32,
    pub bounds: U64,
    pub count: U32,
}

/// Of this process, the events below the bound are in it.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BoundRec {
    pub process: U32,
    pub bound: U32,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ChannelRec {
    pub kind: u8,
    pub forward: u8,
    pub reverse: U32,
    pub name: Range,
    pub groups: Range,
    pub holders: Range,
    pub sends: U64,
    pub receives: U64,
    pub sent: U64,
    pub received: U64,
    pub trips: [U64; 4],
}

/// What one process put into or took out of a channel.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct GroupRec {
    pub process: U32,
    pub sends: U32,
    pub sums: Range,
}

/// How much it was, up to and with this event.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SumRec {
    pub event: U32,
    pub sum: U64,
}

/// An event used a channel.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct UseRec {
    pub event: U32,
    /// The highest bit: it received.
    pub channel: U32,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HolderRec {
    pub process: U32,
    pub from: U32,
    pub to: U32,
    pub sends: U32,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct WaitRec {
    pub thread: U32,
    pub first: U32,
    pub last: U32,
    pub nr: U32,
    pub what: u8,
    pub limited: u8,
    pub value: U64,
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ThreadRec {
    pub process: U32,
    pub thread: U32,
    pub born: U32,
    pub died: U32,
    /// Its first call that is not about the thread itself.
    pub used: U32,
    pub name: Range,
}

/// A process had a lock on a file.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LockRec {
    pub lock: U32,
    pub process: U32,
    pub from: U32,
    pub to: U32,
}

/// A descriptor led to a file for these events of a process.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FileRec {
    pub fd: U32,
    pub from: U32,
    pub to: U32,
}

/// What a lock is on.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LockNameRec {
    pub lock: U32,
    pub name: Range,
}
