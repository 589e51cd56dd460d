//! The arena: memory that the recorder and every monitor share.
//!
//! It is one file, `arena` in the recording. Because it is a file in the page
//! cache, nothing in it is lost when a process, or the recorder, is killed. It
//! begins with a [`Control`] block, which all map; the monitor's image follows
//! (each process maps it privately from here at exec), then the *chunks*, the
//! pieces that logs are written in. A process maps the one chunk that it
//! writes. The file grows as chunks are added.
//!
//! Everything here is `#[repr(C)]`, made of atomics and plain integers, and
//! valid when all bytes are zero.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::halt::{Halt, THREADS_MAX, ThreadEntry};

pub const ARENA_MAGIC: u64 = 0x3141_4e45_5241_574d; // "MWARENA1"

pub const CHUNK_SIZE: usize = 256 * 1024;
pub const CHUNKS_MAX: usize = 65536;

/// Offsets in the arena file.
pub const CONTROL_OFFSET: u64 = 0;
pub const IMAGE_OFFSET: u64 = 0x80_0000;
pub const CHUNKS_OFFSET: u64 = 0x200_0000;
/// The longest the file can become.
pub const ARENA_SIZE: u64 = CHUNKS_OFFSET + (CHUNK_SIZE * CHUNKS_MAX) as u64;
/// How much of it everybody maps.
pub const CONTROL_SIZE: u64 = (core::mem::size_of::<Control>() as u64).next_multiple_of(4096);

/// States of a chunk in [`Control::chunk_state`].
pub mod chunk_state {
    /// Not backed by disk space yet, or handed back.
    pub const ABSENT: u32 = 0;
    /// Backed by disk space and free to be taken.
    pub const FREE: u32 = 1;
    /// Being written by a monitor.
    pub const TAKEN: u32 = 2;
    /// Finished by its monitor: to be compressed.
    pub const FULL: u32 = 3;
}

/// What a request to the recorder asks for.
pub mod request_kind {
    pub const NONE: u32 = 0;
    /// `arg0` = descriptor in the requesting process; answer = file id.
    pub const CAPTURE: u32 = 1;
    /// The requesting thread is about to exec: attach to it. Answer 0 = go.
    pub const EXEC: u32 = 2;
    /// The text in `text` goes into the recording; `arg1` = 1: to the user too.
    pub const NOTE: u32 = 3;
}

/// Value that comes with a queued [`PREEMPT_SIGNAL`](crate::layout::PREEMPT_SIGNAL)
/// when an exec has failed: the recorder, attached, sees it and lets go.
pub const EXEC_FAILED: u64 = 0x4d57_4641_494c;

/// States of a request slot.
pub mod request_state {
    pub const EMPTY: u32 = 0;
    /// Claimed by a monitor that is filling it in.
    pub const CLAIMED: u32 = 1;
    pub const POSTED: u32 = 2;
    /// Taken up by the recorder.
    pub const ACTIVE: u32 = 3;
    pub const DONE: u32 = 4;
}

/// One request from a monitor to the recorder, answered in place.
#[repr(C)]
pub struct Request {
    pub state: AtomicU32,
    pub kind: AtomicU32,
    /// The requesting process's number in the recording, and its ids in its own
    /// pid namespace. Whose they are in the recorder's the kernel says: see
    /// [`request_lock`].
    pub process: AtomicU32,
    pub pid: AtomicU32,
    pub tid: AtomicU32,
    pub reserved: AtomicU32,
    pub args: [AtomicU64; 6],
    pub answer: AtomicU64,
    pub text: [AtomicU64; 32],
}

pub const REQUESTS: usize = 256;

/// Where in the arena file (behind all that is in it) a process holds a lock
/// while it waits for the answer to request `index`. The kernel tells who holds
/// a lock in the asker's own pid namespace.
pub const fn request_lock(index: usize) -> u64 {
    ARENA_SIZE + index as u64
}
pub const TEXT_MAX: usize = 256;

/// What the recorder tells a freshly injected monitor, and what an exec
/// carries over from the old image to the new one. One per exec under way.
#[repr(C)]
pub struct ExecSlot {
    /// 0 = free; else the process number + 1.
    pub taken: AtomicU32,
    /// Number of the process whose image this is.
    pub process: AtomicU32,
    /// How many images the process has had before this one.
    pub image: AtomicU32,
    /// Next chunk's sequence number in the process's log.
    pub chunk_seq: AtomicU32,
    /// Number of the process's next event.
    pub next_event: AtomicU64,
    /// The program's entry point and stack pointer.
    pub entry: AtomicU64,
    pub stack: AtomicU64,
    /// Address of the kernel's own `clock_gettime`, 0 if there is none.
    pub vdso: AtomicU64,
    /// Length of the monitor's image.
    pub image_len: AtomicU64,
    /// Descriptor that leads to the arena.
    pub arena_fd: AtomicU32,
    /// The filter on its calls, by its place in [`Control::filters`]; 0 = none.
    pub filter: AtomicU32,
    /// The thread's signal mask, and ignored signals, as inherited.
    pub sigmask: AtomicU64,
    pub ignored: AtomicU64,
    /// The pid namespace of the process, and of children it will have (0: the
    /// recorder's).
    pub namespace: AtomicU32,
    pub next_namespace: AtomicU32,
    /// Where the kernel's own pages (vdso and its data) are, and where they end.
    pub kernel_start: AtomicU64,
    pub kernel_end: AtomicU64,
    /// Not 0: the program reads the machine code of others and runs it in its own
    /// way. Nothing is replaced in what it maps.
    pub interprets: AtomicU64,
    /// Code with instructions to be replaced before the first one runs.
    pub code: [ExecCode; EXEC_CODE],
}

/// Code that a fresh image has mapped privately from a file with
/// [`Control::counter_sites`]. All zero = none.
#[repr(C)]
pub struct ExecCode {
    pub start: AtomicU64,
    pub len: AtomicU64,
    /// Where in the file it begins.
    pub offset: AtomicU64,
    /// `PROT_` bits.
    pub prot: AtomicU64,
    /// The file's place in [`Control::captured`].
    pub place: AtomicU64,
}

/// The executable and its interpreter have few pieces of code.
pub const EXEC_CODE: usize = 8;

pub const EXEC_SLOTS: usize = 256;

/// One order of turns. Threads of one address space share one; so do
/// processes that share writable memory.
#[repr(C, align(64))]
pub struct Domain {
    /// 0 free, 1 held, 2 held and somebody waits (a futex).
    pub word: AtomicU32,
    /// This domain was merged into domain `forward - 1`.
    pub forward: AtomicU32,
    /// Kernel ids of the holder, for those who want it to hurry: of its process (tgid) above that
    /// of the thread, in one word, for ids of two holders together are nobody's. 0: none, yet.
    pub holder: AtomicU64,
    /// How often the turn passed from one log to another.
    pub sequence: AtomicU64,
    /// The process (number) that held the turn last.
    pub last_process: AtomicU32,
    /// Bumped whenever the turn is taken: lets a thread that yields see that
    /// somebody else had a turn.
    pub takes: AtomicU32,
    /// Time stamp counter when the turn was taken.
    pub since: AtomicU64,
    /// Number of address spaces in this domain.
    pub members: AtomicU32,
    /// The pid namespace in which the holder has its ids.
    pub holder_namespace: AtomicU32,
    /// How many wait for the turn, and how many of them look after the holder. (At least: who
    /// is killed meanwhile stays counted.)
    pub waiting: AtomicU32,
    pub watching: AtomicU32,
}

const _: () = assert!(core::mem::size_of::<Domain>() == 64);

pub const DOMAINS: usize = 4096;

/// A mapped file that has been captured: key and id.
#[repr(C)]
pub struct CapturedFile {
    /// Hash of (device, inode, size, mtime, ctime); 0 = empty.
    pub key: AtomicU64,
    pub id: AtomicU64,
    /// Not 0: somebody needed it. (Some are captured because the program
    /// needed them the last times.)
    pub needed: AtomicU64,
}

pub const CAPTURED_MAX: usize = 16384;

/// The key of a file as it is now: (device, inode, size, mtime, ctime) mixed.
pub fn file_key(device: u64, inode: u64, size: u64, times: [u64; 4]) -> u64 {
    let mut key = 0xcbf2_9ce4_8422_2325u64;
    for word in [device, inode, size, times[0], times[1], times[2], times[3]] {
        key = (key ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
    key.max(1)
}

/// The place of a captured file in the table, if it is there.
pub fn find_captured(table: &[CapturedFile; CAPTURED_MAX], key: u64) -> Option<usize> {
    use core::sync::atomic::Ordering::Acquire;
    for step in 0..CAPTURED_PROBES {
        let place = (key as usize).wrapping_add(step) & (CAPTURED_MAX - 1);
        match table[place].key.load(Acquire) {
            0 => return None,
            found if found == key => return Some(place),
            _ => {}
        }
    }
    None
}

/// How far from its place an entry of the table may be.
pub const CAPTURED_PROBES: usize = 64;

/// Writable memory that processes may share, by what backs it.
#[repr(C)]
pub struct SharedObject {
    /// Hash of (device, inode); 0 = empty.
    pub key: AtomicU64,
    /// Domain + 1 whose members map it.
    pub domain: AtomicU64,
}

pub const SHARED_MAX: usize = 4096;

/// What the monitors do: record, or something else.
pub mod mode {
    pub const RECORD: u32 = 0;
    /// The recording has ended (disk full, recorder gone): monitors pass
    /// calls through without writing.
    pub const PASS: u32 = 1;
    /// The recording has ended and the program is to end with it.
    pub const STOP: u32 = 2;
    /// Not a recording: the program is replayed from a log.
    pub const REPLAY: u32 = 3;
    /// Not a recording: the program runs, and a debugger may halt it.
    pub const LIVE: u32 = 4;
}

#[repr(C)]
pub struct Control {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub mode: AtomicU32,
    /// Set by the kernel when the recorder dies (robust futex: bit 30).
    pub recorder_alive: AtomicU32,
    /// Rung by monitors (futex) when a request is posted or a chunk is full.
    pub doorbell: AtomicU32,
    /// Futex: bumped by the recorder when chunks were added or the mode changed.
    pub supply: AtomicU32,
    pub next_process: AtomicU32,
    pub next_domain: AtomicU32,
    /// Guards `forward` links (0/1/2 futex lock).
    pub merge_lock: AtomicU32,
    /// Chunks `[0, chunks_made)` have had disk space at some time.
    pub chunks_made: AtomicU32,
    /// Free chunks that are backed by disk space now.
    pub chunks_free: AtomicU32,
    /// Not 0: somebody waits for a chunk.
    pub chunk_wanted: AtomicU32,
    /// Where the search for a free chunk starts.
    pub chunk_hint: AtomicU32,
    /// Not 0: files are mapped such that others see what is written to them.
    pub has_shared_files: AtomicU32,
    /// Not 0: some process of the program may serve files to others of it, or be asked
    /// who may use some. Calls on files wait for it then.
    pub serves_files: AtomicU32,
    /// Bit per syscall number: already warned about.
    pub warned: [AtomicU64; 8],
    pub requests: [Request; REQUESTS],
    pub execs: [ExecSlot; EXEC_SLOTS],
    pub domains: [Domain; DOMAINS],
    pub captured: [CapturedFile; CAPTURED_MAX],
    pub shared: [SharedObject; SHARED_MAX],
    pub chunk_state: [AtomicU32; CHUNKS_MAX],
    /// Of each captured file: which of `counter_sites` are in it. First and
    /// number, see [`Control::counter_sites_of`].
    pub file_sites: [AtomicU64; CAPTURED_MAX],
    /// Instructions that are to be replaced, by offset in their file
    /// ([`crate::instruction::Site`]).
    pub counter_sites: [AtomicU64; COUNTER_SITES_MAX],
    /// Filters on system calls that the program has installed, one behind the
    /// other from 1 on, and how many words they take.
    pub filters_used: AtomicU32,
    /// Not 0: some socket was told to wait when it is closed. (Others may have it by
    /// now, in images of their own.)
    pub lingers: AtomicU32,
    pub filters: [AtomicU64; FILTERS_MAX],
    /// How often a descriptor was made one on which calls wait: those who have
    /// it from elsewhere must not believe that it never does.
    pub modes_changed: AtomicU64,
    /// Halting: see there.
    pub halt: Halt,
    /// For each of `execs`: what is special about the thread.
    pub exec_flags: [AtomicU32; EXEC_SLOTS],
    /// Threads of the program; none has a place beyond this many.
    pub entries_used: AtomicU32,
    /// Of a live program: the number of the observation that is under way, 0 if nobody
    /// wants to know what the program does. Monitors write events as long as it is not 0.
    pub observed: AtomicU32,
    pub entries: [ThreadEntry; THREADS_MAX],
    /// What processors answered to `cpuid`: see [`CpuidAnswer`].
    pub cpuid: [[CpuidAnswer; CPUID_ANSWERS]; CPUID_GROUPS],
    /// Of each exec under way: the error for which its new image could not map the monitor,
    /// as the kernel returns it, written by that process; 0 = none.
    pub exec_failures: [AtomicU64; EXEC_SLOTS],
    /// Rung instead of `doorbell` (futex) when a thread is about to exec and somebody stands
    /// by for that.
    pub exec_bell: AtomicU32,
    /// Not 0: a thread of the recorder's stands by.
    pub exec_spare: AtomicU32,
}

/// What one processor answers to one question of `cpuid`, which is always the same: in a
/// virtual machine it takes microseconds to ask, and every program asks some forty at its start.
#[repr(C)]
pub struct CpuidAnswer {
    /// 0 = free, [`CpuidAnswer::TAKEN`] = being written, else the question.
    pub key: AtomicU64,
    pub values: [AtomicU32; 4],
}

/// Processors whose numbers are the same modulo [`CPUID_GROUPS`] share a group.
pub const CPUID_GROUPS: usize = 8;
pub const CPUID_ANSWERS: usize = 128;

impl CpuidAnswer {
    pub const TAKEN: u64 = 1;
    const QUESTION: u64 = 1 << 63;

    /// A question to a processor as one word. None: it is not one that is kept.
    pub const fn key(processor: u64, leaf: u64, subleaf: u64) -> Option<u64> {
        // Leaves begin anew at each gigabyte, and are few from there on.
        let (group, number) = (leaf >> 30, leaf & 0x3fff_ffff);
        if processor > 0xffff || group > 3 || number > 0xfff || subleaf > 0xff {
            return None;
        }
        Some(Self::QUESTION | processor << 32 | group << 24 | number << 8 | subleaf)
    }
}

pub const FILTERS_MAX: usize = 131_072;
pub const COUNTER_SITES_MAX: usize = 65536;

impl Control {
    /// The instructions of the captured file at `place` that are to be replaced.
    pub fn counter_sites_of(&self, place: usize) -> &[AtomicU64] {
        let range =
            self.file_sites[place & (CAPTURED_MAX - 1)].load(core::sync::atomic::Ordering::Acquire);
        let (first, count) = ((range >> 32) as usize, range as u32 as usize);
        first
            .checked_add(count)
            .and_then(|end| self.counter_sites.get(first..end))
            .unwrap_or(&[])
    }

    /// The other way: says which they are.
    pub fn set_counter_sites_of(&self, place: usize, first: usize, count: usize) {
        self.file_sites[place & (CAPTURED_MAX - 1)].store(
            (first as u64) << 32 | count as u64,
            core::sync::atomic::Ordering::Release,
        );
    }
}

const _: () = assert!(core::mem::size_of::<Control>() as u64 <= IMAGE_OFFSET);

/// The head of each chunk. `used` says how far the log is whole: it is stored
/// after the record it covers.
#[repr(C)]
pub struct ChunkHead {
    pub magic: AtomicU32,
    /// Process number the chunk belongs to.
    pub process: AtomicU32,
    /// Position among the process's chunks.
    pub seq: AtomicU32,
    /// Bytes of the chunk that are whole, this head included.
    pub used: AtomicU32,
    /// Offset of the first record that begins in this chunk (0 = none yet).
    pub first_record: AtomicU32,
    pub version: AtomicU32,
    /// Number of that record's event.
    pub first_event: AtomicU64,
    /// Time (in ticks) from which that record counts.
    pub first_time: AtomicU64,
    /// Thread that runs at that record.
    pub first_thread: AtomicU32,
    /// The observation that it belongs to ([`Control::observed`]); 0 in a recording.
    pub observation: AtomicU32,
}

pub const CHUNK_MAGIC: u32 = 0x4b4e_4843; // "CHNK"
pub const CHUNK_HEAD: usize = core::mem::size_of::<ChunkHead>();
const _: () = assert!(CHUNK_HEAD == 48);

/// Log times are time-stamp-counter cycles divided by this: fine enough to
/// order what threads do, coarse enough to save a byte an event.
pub const TICK_SHIFT: u32 = 4;
