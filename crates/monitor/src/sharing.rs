//! Memory that a process maps shared, in replay.
//!
//! Nothing is really shared in replay, so that a fork is a complete copy of a
//! process (a checkpoint). Instead, each process has its own copy of such
//! memory, and what others write reaches it where it took the turn. Where that
//! is, the log says (`kind::TURN`); what they wrote comes from a *journal*: the
//! first replay of a recording runs all who share memory side by side, each
//! waiting for the turn, and each appends, when its turn is over, the bytes
//! that it changed. Later replays read the finished journal and need nobody
//! else.
//!
//! Which bytes a process changed is found by protecting the pages: the first
//! write to a page in a turn faults, and the page is kept as it was.
//!
//! A process may also map one object at several addresses. Then each of its
//! pages is accessible at one of them at a time, and moves when it is touched
//! at another.
//!
//! A private mapping of a file follows the file, too, page by page, until the
//! program writes to the page. Such a mapping is one of these addresses; its
//! pages are protected against writing until then. What the file has where no
//! mapping of the program's shows it is kept at an address of our own
//! (*hidden*). So is what was unmapped: if the object is mapped again and the
//! recorder saw no reason to copy it again, that is what it has.
//!
//! Files grow and shrink under their mappings. How long each is, the log says
//! where that changes; what lies behind the end is mapped such that touching it
//! is SIGBUS, as it was then (`mapping::lay`).

mod guard;
mod journal;
mod kept;
mod mapping;
mod moves;
mod pages;
mod table;
mod writes;

use core::cell::Cell;

use crate::state::space;

pub use journal::{forked, give_up, publish, turn};
pub use mapping::{Object, forget, map, resized};
pub use moves::remap;
pub use pages::{on_fault, protected, show};
pub use table::{is_object, length_at};
pub use writes::{cleared, discard, written};

/// There is no captured file behind a mapping.
pub const NO_FILE: u64 = u64::MAX;

/// Kinds of regions.
pub const SHARED: u64 = 0;
/// Its pages are the object's until they are written.
pub const PRIVATE: u64 = 1;
/// Not the program's: see above.
const HIDDEN: u64 = 2;
/// Shared with children only: unmapped, it is gone.
pub const UNNAMED: u64 = 3;

/// What a space knows of it.
#[repr(C)]
pub struct Sharing {
    /// Whether the table of regions is mapped.
    pub is_there: Cell<u32>,
    /// How many places of the table are in use, regions' and sizes'; 0 regions:
    /// it may not be there yet.
    pub count: Cell<u32>,
    pub sizes_count: Cell<u32>,
    /// Where room for states, and for hidden regions, was found last.
    pub states_next: Cell<u64>,
    pub hidden_next: Cell<u64>,
    /// The turn that this space has: domain + 1 and sequence number.
    pub domain: Cell<u64>,
    pub sequence: Cell<u64>,
    /// How far the journal has been followed.
    pub seen: Cell<u64>,
    /// How many pages are kept.
    pub kept: Cell<u64>,
    /// The descriptor by which pages are guarded (`guard`).
    pub faults: Cell<u32>,
}

fn sharing() -> &'static Sharing {
    &space().sharing
}
