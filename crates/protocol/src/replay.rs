//! What a replaying process and the replayer share.
//!
//! The replayer makes a file in the form of an arena: the same [`Control`]
//! block (mode [`mode::REPLAY`]), the same monitor image, and behind them, at
//! [`REPLAY_OFFSET`], a [`Replay`] block that says where everything else is:
//! the logs, each as one stretch of bytes, and the memory the first image
//! began with. Offsets count from the beginning of the file.
//!
//! [`Control`]: crate::shared::Control
//! [`mode::REPLAY`]: crate::shared::mode::REPLAY

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::shared::CHUNKS_OFFSET;

pub const REPLAY_OFFSET: u64 = CHUNKS_OFFSET;

/// In the first argument of the monitor's entry: replay, do not record.
pub const REPLAY_BIT: u64 = 1 << 63;

pub const STREAMS_MAX: usize = 8192;
pub const MAPS_MAX: usize = 512;
pub const PATH_MAX: usize = 4096;

/// How replaying a stream went.
pub mod outcome {
    /// Not begun, or still under way.
    pub const NONE: u32 = 0;
    /// Everything came as recorded, to the end of the log.
    pub const EQUAL: u32 = 1;
    /// Something did not.
    pub const DIVERGED: u32 = 2;
    /// It needs something that replay cannot do yet.
    pub const UNSUPPORTED: u32 = 3;
}

/// What differed.
pub mod difference {
    pub const CALL: u32 = 1;
    pub const ARGUMENT: u32 = 2;
    pub const DATA: u32 = 3;
    pub const RESULT: u32 = 4;
    pub const SIGNAL: u32 = 5;
    pub const END_OF_LOG: u32 = 6;
    pub const MEMORY: u32 = 7;
    pub const POSITION: u32 = 8;
    pub const THREAD: u32 = 9;
    pub const SHARED_MEMORY: u32 = 10;
}

/// The log of one image of one process.
#[repr(C)]
pub struct Stream {
    pub process: AtomicU32,
    pub image: AtomicU32,
    /// For one that began by fork or vfork: of whom, and at which event.
    pub parent: AtomicU32,
    pub how: AtomicU32,
    pub parent_event: AtomicU64,
    pub offset: AtomicU64,
    pub len: AtomicU64,
    /// [`Mark`]s: where in it a chunk's first record begins.
    pub marks_offset: AtomicU64,
    pub marks: AtomicU64,
    pub first_event: AtomicU64,
    /// What came of it.
    pub outcome: AtomicU32,
    pub difference: AtomicU32,
    pub thread: AtomicU32,
    pub index: AtomicU32,
    pub event: AtomicU64,
    pub expected: AtomicU64,
    pub found: AtomicU64,
    pub expected_nr: AtomicU64,
    pub found_nr: AtomicU64,
    pub rip: AtomicU64,
}

#[repr(C)]
pub struct Mark {
    pub at: AtomicU64,
    pub time: AtomicU64,
    pub event: AtomicU64,
    pub thread: AtomicU64,
}

/// A mapping that the first image began with.
#[repr(C)]
pub struct StartMap {
    pub start: AtomicU64,
    pub end: AtomicU64,
    pub prot: AtomicU64,
    /// Id of the captured file + 1; 0 = anonymous.
    pub file: AtomicU64,
    pub file_offset: AtomicU64,
    /// Bytes that go to its end (a stack's) or its beginning.
    pub contents: AtomicU64,
    pub contents_len: AtomicU64,
    pub contents_at: AtomicU64,
}

#[repr(C)]
pub struct Replay {
    /// The stream the process begins with.
    pub stream: AtomicU32,
    pub streams: AtomicU32,
    pub maps: AtomicU32,
    pub reserved: AtomicU32,
    pub entry: AtomicU64,
    pub stack: AtomicU64,
    pub image_len: AtomicU64,
    pub sigmask: AtomicU64,
    pub ignored: AtomicU64,
    /// Where the captured files are, NUL-terminated, a slash at the end.
    pub files: [AtomicU64; PATH_MAX / 8],
    pub map: [StartMap; MAPS_MAX],
    pub table: [Stream; STREAMS_MAX],
}

pub const DATA_OFFSET: u64 = REPLAY_OFFSET + 0x20_0000;
const _: () = assert!((core::mem::size_of::<Replay>() as u64) < DATA_OFFSET - REPLAY_OFFSET);
