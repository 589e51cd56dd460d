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

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::shared::{CHUNKS_OFFSET, DOMAINS};

pub const REPLAY_OFFSET: u64 = CHUNKS_OFFSET;

/// In the first argument of the monitor's entry: replay, do not record.
pub const REPLAY_BIT: u64 = 1 << 63;

pub const STREAMS_MAX: usize = 8192;
pub const MAPS_MAX: usize = 512;
/// The descriptor of the directory that holds the captured files: the only
/// place where a replaying process opens anything.
pub const FILES_FD: i32 = crate::layout::ARENA_FD - 1;
/// Of how many forks one may be the result.
pub const PATH_STREAMS: usize = 1024;

/// How replaying a stream went.
pub mod outcome {
    /// Not begun, or still under way.
    pub const NONE: u32 = 0;
    /// Everything came as recorded, to the end of the log.
    pub const EQUAL: u32 = 1;
    /// Something did not.
    pub const DIVERGED: u32 = 2;
    /// It waited for another process, which did not get there.
    pub const HELD_UP: u32 = 3;
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
    /// The place where the thread was interrupted was not found.
    pub const PLACE: u32 = 11;
}

/// How far a thread looked as at the place where it was interrupted: what is
/// named, and all before it, was the same.
pub mod match_depth {
    /// It did not come by, or with other registers.
    pub const NONE: u32 = 0;
    pub const REGISTERS: u32 = 1;
    pub const STACK: u32 = 2;
    pub const VECTORS: u32 = 3;
    pub const OPERANDS: u32 = 4;
    pub const FRAMES: u32 = 5;
    pub const POINTED: u32 = 6;
    pub const BEHIND: u32 = 7;
    /// All was the same.
    pub const HERE: u32 = 8;
}

/// What a [`Player`] is told to do.
pub mod command {
    pub const NONE: u32 = 0;
    /// Go on, to [`Player::until`](super::Player::until).
    pub const RUN: u32 = 1;
    /// Fork: the child has the place [`Player::fork_to`](super::Player::fork_to)
    /// and stands where its parent stands.
    pub const FORK: u32 = 2;
    pub const QUIT: u32 = 3;
}

/// What a [`Player`] does.
pub mod state {
    pub const FREE: u32 = 0;
    pub const RUNNING: u32 = 1;
    /// Stands still and takes commands.
    pub const STOPPED: u32 = 2;
}

/// Why a [`Player`] stands still.
pub mod reason {
    /// It is about to do the event it was to run to, or it was told to stop.
    pub const EVENT: u32 = 1;
    /// Its log has ended.
    pub const END: u32 = 2;
    /// What happened is not what happened then: see its [`Stream`].
    pub const DIVERGED: u32 = 3;
    /// Before the instruction at one of its breakpoints.
    pub const BREAKPOINT: u32 = 4;
    /// At the place between two events that it was to run to.
    pub const GOAL: u32 = 5;
    /// The instruction, or the range of them, has been executed.
    pub const STEPPED: u32 = 6;
    /// Memory that is watched has changed: which piece is in
    /// [`Player::watch_hit`](super::Player::watch_hit).
    pub const WATCH: u32 = 7;
    /// Other code may be mapped than before.
    pub const MAPPED: u32 = 8;
    /// It was told to stop, between two events.
    pub const HALTED: u32 = 9;
}

/// A replaying process that is led by somebody: it runs until it shall stop,
/// then shows its threads and waits. Each of its forks has a place of its own.
#[repr(C, align(64))]
pub struct Player {
    /// A futex: see [`state`].
    pub state: AtomicU32,
    /// A futex: see [`command`].
    pub command: AtomicU32,
    pub reason: AtomicU32,
    pub fork_to: AtomicU32,
    pub pid: AtomicU32,
    /// The thread (its number) that stopped.
    pub thread: AtomicU32,
    /// How many [`ThreadView`]s there are at [`VIEWS_BASE`] in its memory.
    pub views: AtomicU32,
    pub reserved: AtomicU32,
    /// It stops before the first event with this or a higher number. Anybody
    /// may lower it while it runs.
    pub until: AtomicU64,
    /// The event it is about to do.
    pub event: AtomicU64,
    /// Since the event before: how many control transfers were taken. (Known
    /// if it was run with `motion`.)
    pub transfers: AtomicU64,
    /// Where it is: an address of the program.
    pub rip: AtomicU64,
    /// 1 = it may be stopped between events, too, by what follows.
    pub motion: AtomicU32,
    /// 1 = after one instruction, or as many as begin in `range`.
    pub step: AtomicU32,
    pub range: [AtomicU64; 2],
    /// Before event `goal_event`, when `goal_transfers` were taken since the
    /// one before, at `goal_rip`.
    pub goal_event: AtomicU64,
    pub goal_transfers: AtomicU64,
    pub goal_rip: AtomicU64,
    /// Counts changes of the breakpoints.
    pub version: AtomicU32,
    pub breakpoint_count: AtomicU32,
    pub breakpoints: [AtomicU64; BREAKPOINTS],
    /// What some of them depend on: a breakpoint that has conditions, none of
    /// which holds, is passed.
    pub condition_count: AtomicU32,
    pub condition_pad: AtomicU32,
    pub conditions: [Condition; CONDITIONS],
    pub condition_code: [AtomicU8; CONDITION_BYTES],
    /// So many stops at breakpoints and at watched memory are passed before
    /// one is made; and how many were come to since that was set.
    pub skip: AtomicU64,
    pub hits: AtomicU64,
    /// Memory that is watched: how many pieces, and which of them changed.
    /// 1 = it stops as soon as it can, between events if `motion` is set.
    /// Anybody may set it while it runs.
    pub halt: AtomicU32,
    /// 1 = it stops when `maps` has changed.
    pub stop_mapped: AtomicU32,
    /// How often what is mapped was changed, since its image began.
    pub maps: AtomicU64,
    /// What the program does with each signal: 0 = what the system does, 1 =
    /// nothing, else the address of its handler.
    pub handlers: [AtomicU64; 64],
    pub watch_count: AtomicU32,
    pub watch_hit: AtomicU32,
    pub watches: [WatchedPiece; WATCHES],
}

/// What a breakpoint depends on, in the language of [`crate::condition`].
#[repr(C)]
pub struct Condition {
    /// Of the breakpoint.
    pub address: AtomicU64,
    /// Where in [`Player::condition_code`], and how long.
    pub from: AtomicU32,
    pub len: AtomicU32,
}

/// A piece of memory that is watched, and what it held when it was last looked
/// at.
#[repr(C)]
pub struct WatchedPiece {
    pub address: AtomicU64,
    pub value: AtomicU64,
    /// 1, 2, 4 or 8.
    pub length: AtomicU32,
    /// 1 = it could be read then.
    pub is_known: AtomicU32,
}

impl Player {
    /// The pieces of memory it watches.
    pub fn all_watches(&self) -> impl Iterator<Item = &WatchedPiece> {
        use core::sync::atomic::Ordering::Relaxed;
        let count = self.watch_count.load(Relaxed) as usize;
        self.watches.iter().take(count)
    }

    /// The addresses it has breakpoints at.
    pub fn all_breakpoints(&self) -> impl Iterator<Item = u64> {
        use core::sync::atomic::Ordering::Relaxed;
        let count = self.breakpoint_count.load(Relaxed) as usize;
        self.breakpoints
            .iter()
            .take(count)
            .map(|address| address.load(Relaxed))
    }

    /// The conditions of the breakpoint at an address.
    pub fn conditions_of(&self, address: u64) -> impl Iterator<Item = &Condition> {
        use core::sync::atomic::Ordering::Relaxed;
        let count = self.condition_count.load(Relaxed) as usize;
        let all = self.conditions.iter().take(count);
        all.filter(move |condition| condition.address.load(Relaxed) == address)
    }

    /// A byte of one of them.
    pub fn condition_byte(&self, condition: &Condition, at: usize) -> Option<u8> {
        use core::sync::atomic::Ordering::Relaxed;
        if at >= condition.len.load(Relaxed) as usize {
            return None;
        }
        let at = at.checked_add(condition.from.load(Relaxed) as usize)?;
        self.condition_code.get(at).map(|byte| byte.load(Relaxed))
    }

    pub fn has_breakpoint(&self, address: u64) -> bool {
        self.all_breakpoints().any(|found| found == address)
    }
}

pub const BREAKPOINTS: usize = 256;
/// How many conditions may be looked at on the way, and how long they may be
/// together.
pub const CONDITIONS: usize = 64;
pub const CONDITION_BYTES: usize = 3072;
/// Of at most eight bytes each.
pub const WATCHES: usize = 64;
pub const PLAYERS: usize = 2048;

/// Where a player shows its threads, in its own memory.
pub const VIEWS_BASE: u64 = crate::layout::MONITOR_BASE + 0x3_0000_0000;

/// Where a process keeps which of its instructions the monitor has replaced
/// ([`crate::instruction`]): a [`CounterTable`], if it has replaced any.
pub const COUNTERS_BASE: u64 = crate::layout::SPACE_BASE + crate::layout::SPACE_MAX;

pub const COUNTER_SITES: usize = 16384;

#[repr(C)]
pub struct CounterTable {
    /// How many of `sites` have been used.
    pub count: AtomicU64,
    pub sites: [CounterSite; COUNTER_SITES],
}

/// An instruction that is or shall be replaced.
#[repr(C)]
pub struct CounterSite {
    pub address: AtomicU64,
    /// [`crate::instruction::Form::to_byte`]; above it, as long as it waits, which
    /// neighbours move with it ([`crate::instruction::Neighbours::to_bits`]).
    pub form: AtomicU32,
    /// See [`site`].
    pub state: AtomicU32,
}

const _: () = assert!(
    COUNTERS_BASE + core::mem::size_of::<CounterTable>() as u64 + 4096 < crate::layout::SLOTS_BASE
);

/// States of a [`CounterSite`].
pub mod site {
    /// None, or none any more.
    pub const FREE: u32 = 0;
    /// In memory that is not executable.
    pub const WAITING: u32 = 1;
    pub const REPLACED: u32 = 2;
    /// Replaced a moment ago: only the monitor sees this.
    pub const FRESH: u32 = 3;
}

/// A thread of a player that stands still.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadView {
    /// Number in its process, and the kernel's id in the recording.
    pub number: u64,
    pub tid: u64,
    /// Number of the system call it is in; [`NO_CALL`] = none.
    pub call: u64,
    /// 1 = that call has begun and not returned.
    pub waits: u64,
    /// In the order of `user_regs_struct`.
    pub regs: [u64; 27],
    /// The signals that it blocks, bit by bit.
    pub blocked: u64,
    pub xmm: [[u64; 2]; 16],
}

/// Of a difference: less the number of the instruction that was run.
pub const NO_CALL: u64 = u64::MAX;

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
    /// The event that comes next: stored at each one, so that whoever waits
    /// sees that it goes on.
    pub event: AtomicU64,
    /// The kernel's id of the process that replays it; 0 = not begun.
    pub pid: AtomicU32,
    /// The last signal that reached the program, and the event that was.
    pub signal: AtomicU32,
    /// It waits for the end of another's turn, having read the journal up to one
    /// less than this; 0 = it does not.
    pub waits_at: AtomicU64,
    pub signal_event: AtomicU64,
    /// [`EXITED`] and the status it ended itself with, or [`EXECUTED`].
    pub exit: AtomicU64,
    /// Bytes that it sent or wrote.
    pub output: AtomicU64,
    pub expected: AtomicU64,
    pub found: AtomicU64,
    pub expected_nr: AtomicU64,
    pub found_nr: AtomicU64,
    pub rip: AtomicU64,
    /// While a thread is on its way to where it was interrupted: 1 + how like
    /// that place the likest was that it has come to, a [`match_depth`].
    pub likest: AtomicU64,
}

/// In [`Stream::exit`]: the process ended itself, with the status below.
pub const EXITED: u64 = 1 << 32;
/// In its place: this image was left by an exec.
pub const EXECUTED: u64 = 1 << 33;

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

/// What processes that share memory wrote, turn by turn (see the monitor's
/// `sharing`). Entries are four words (kind, two values, length of what
/// follows) and bytes, filled up to a multiple of eight.
#[repr(C)]
pub struct Journal {
    /// 0 free, 1 held, 2 held and somebody waits (a futex).
    pub lock: AtomicU32,
    pub lock_pad: AtomicU32,
    /// Futexes: turns that have ended, by [`Journal::turn_word`]. Only who waits
    /// for that very turn has to wake up.
    pub turns: [AtomicU32; TURN_WORDS],
    /// Everything is in it; nobody writes any more.
    pub is_complete: AtomicU32,
    /// There was no room for an entry.
    pub is_full: AtomicU32,
    /// All wait for another's turn to end, and none ever will.
    pub is_hopeless: AtomicU32,
    pub hopeless_pad: AtomicU32,
    pub len: AtomicU64,
    pub capacity: AtomicU64,
    pub offset: AtomicU64,
}

pub const TURN_WORDS: usize = 64;

impl Journal {
    /// Where one waits for the end of a turn.
    #[must_use]
    pub fn turn_word(&self, domain: u64, sequence: u64) -> &AtomicU32 {
        &self.turns[(domain.wrapping_mul(31).wrapping_add(sequence) % TURN_WORDS as u64) as usize]
    }
}

/// Kinds of the journal's entries.
pub mod entry {
    /// A turn has ended. Values: domain, sequence number.
    pub const TURN: u64 = 1;
    /// Bytes were written. Values: object, offset in it.
    pub const BYTES: u64 = 2;
    /// An object was mapped. Values: object, captured file.
    pub const MAP: u64 = 3;
    /// An object has another size. Values: object, size.
    pub const SIZE: u64 = 4;
}

#[repr(C)]
pub struct Replay {
    /// The stream the process begins with.
    pub stream: AtomicU32,
    pub streams: AtomicU32,
    pub maps: AtomicU32,
    /// Place + 1 of the player that the process begins as; 0 = nobody leads
    /// it, it runs to its end and forks what it forked.
    pub player: AtomicU32,
    /// Streams that a player follows: when it comes to a fork of one of them,
    /// it goes on as the child. The last is the one it stops in.
    pub path_len: AtomicU32,
    /// The kernel's id of the replayer: what is forked when it has gone ends
    /// at once.
    pub leader: AtomicU32,
    pub path: [AtomicU32; PATH_STREAMS],
    /// Counts the processes that have read what they begin from.
    pub begun: AtomicU32,
    pub begun_pad: AtomicU32,
    pub journal: Journal,
    /// Bit per domain: processes with different memory have turns in it.
    pub shared: [AtomicU64; DOMAINS / 64],
    pub entry: AtomicU64,
    pub stack: AtomicU64,
    pub image_len: AtomicU64,
    pub sigmask: AtomicU64,
    pub ignored: AtomicU64,
    pub map: [StartMap; MAPS_MAX],
    pub table: [Stream; STREAMS_MAX],
    pub players: [Player; PLAYERS],
}

pub const DATA_OFFSET: u64 = REPLAY_OFFSET + 0x140_0000;
const _: () = assert!((core::mem::size_of::<Replay>() as u64) < DATA_OFFSET - REPLAY_OFFSET);
