//! What the monitor knows: of an address space, of each process in it (a vfork
//! child shares its parent's), and of each thread.
//!
//! All of it lies in memory of the monitor's own at fixed addresses and is
//! reached through shared references to structures of `Cell`s and atomics.
//! Only the thread that has the turn touches what is not atomic, which is
//! what makes the `Cell`s sound; a thread's own record is touched by it alone,
//! its signal handler included.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64};

use protocol::layout::{
    ARENA_BASE, SLOT_SIZE, SLOTS_BASE, SLOTS_MAX, SPACE_BASE, SPACE_MAX, TRAPS_MAX,
};
use protocol::pad::{Desk, PADS_MAX, Placed};
use protocol::record::{HEAD_MAX, Memory, Record};
use protocol::shared::{Control, Domain};

use crate::arch;
use crate::mode::Mode;
use crate::time::Span;
use crate::timers::{TIMERS_MAX, Timer};

pub const SIGNALS: usize = 65;

/// What the program asked to happen on a signal (the kernel's own layout).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// One process of the program.
#[repr(C)]
pub struct Process {
    /// 0 = this place is free.
    pub taken: Cell<u32>,
    /// Its number in the recording.
    pub number: Cell<u32>,
    pub pid: Cell<u32>,
    /// The pid namespace that it is in, and that its next children will be in
    /// (0: the recorder's).
    pub namespace: Cell<u32>,
    pub next_namespace: Cell<u32>,
    pub image: Cell<u32>,
    pub actions: [Cell<Action>; SIGNALS],
    pub next_thread: Cell<u32>,
    /// Threads of this process.
    pub threads: Cell<u32>,
    /// The process is about to end or to exec: its other threads stay where
    /// they are.
    pub frozen: AtomicU32,
    /// Timers that the program has set; in which halt they were stopped (0 = none),
    /// and how long they have been.
    pub timers: [Cell<Timer>; TIMERS_MAX],
    pub timers_stopped: AtomicU32,
    pub timers_span: Cell<Span>,
    /// What is known of descriptors (see `descriptors`).
    pub descriptors: [Cell<u8>; DESCRIPTORS],
    /// Of which state of all descriptors that is (`Control::modes_changed`).
    pub descriptors_of: Cell<u64>,
    pub log: Log,
}

pub const DESCRIPTORS: usize = 4096;

/// Where a process's log is being written.
#[repr(C)]
pub struct Log {
    /// Address of the current chunk, 0 if none.
    pub chunk: Cell<u64>,
    pub index: Cell<u32>,
    pub seq: Cell<u32>,
    pub position: Cell<u32>,
    /// Below this position there is room for any head in a chunk whose first
    /// record has begun; 0 if there is no such chunk.
    pub clear_until: Cell<u32>,
    /// Thread of the last record.
    pub thread: Cell<u32>,
    /// Nothing is written any more.
    pub off: Cell<u32>,
    /// Live: the observation that it is of.
    pub observation: Cell<u32>,
    pub next_event: Cell<u64>,
    pub memory: UnsafeCell<Memory>,
    /// Where a head is made that does not fit into the rest of a chunk.
    pub aside: UnsafeCell<[u8; HEAD_MAX]>,
    /// In replay: which log is read, how far, past how many marks, and the
    /// record that comes next, if it has been read already.
    pub stream: Cell<u32>,
    pub at: Cell<u64>,
    pub mark: Cell<u64>,
    pub has_next: Cell<u32>,
    /// In replay: this process runs, and has not come to its end.
    pub lives: Cell<u32>,
    /// In replay: the turn that the next record is in, if it has not begun yet:
    /// domain, sequence number, who had the one before.
    pub has_turn: Cell<u32>,
    pub turn: Cell<[u64; 3]>,
    pub next: UnsafeCell<MaybeUninit<Record<'static>>>,
}

pub const PATCHES_MAX: usize = 8192;

/// A syscall site that was looked at, or one of an instruction that was
/// replaced.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Patched {
    /// Address of the syscall instruction; 0 = empty.
    pub site: u64,
    /// Where in the stub the call is made; 0 = the site cannot be patched.
    pub call: u64,
    /// Where in the stub the program goes on.
    pub resume: u64,
    pub start: u64,
    pub length: u32,
    pub traps: u16,
    /// How long what is there is.
    pub site_len: u8,
    /// What was replaced there ([`protocol::instruction::Form::to_byte`]); 0 = a
    /// system call.
    pub form: u8,
    /// What the program had at `start`.
    pub original: [u8; patch::ORIGINAL_MAX],
}

pub const POOLS_MAX: usize = 256;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pool {
    pub start: u64,
    pub used: u32,
    pub size: u32,
}

pub const PROCESSES_MAX: usize = 64;

/// One address space.
#[repr(C)]
pub struct Space {
    /// The monitor's entry: the vdso jumps through this word.
    pub entry: Cell<u64>,
    /// The monitor's entry for what can be answered quickly: the vdso jumps through
    /// this word too.
    pub fast_entry: Cell<u64>,
    /// Where the pools are, and how many: for debuggers.
    pub pools_at: Cell<u64>,
    pub pool_count_at: Cell<u64>,
    /// Where the debugger tells of its breakpoints (see `traps`).
    pub traps_at: Cell<u64>,
    /// For those who make pads of breakpoints, and the pads that there are (see `pads`).
    pub desk: Cell<Desk>,
    pub pads: [Placed; PADS_MAX],
    pub traps: [AtomicU64; TRAPS_MAX],
    pub vdso_clock: Cell<u64>,
    /// Where the kernel's own pages are, which the program is not shown and
    /// replay does not have.
    pub kernel_start: Cell<u64>,
    pub kernel_end: Cell<u64>,
    /// Threads in this address space, of whatever process.
    pub threads: Cell<u32>,
    /// Whether turns have to be taken: more than one thread, or memory shared
    /// with other processes.
    pub turns: Cell<u32>,
    /// Memory is shared with other processes.
    pub shared: Cell<u32>,
    /// Locks of a process that was killed, on their way into the log (see
    /// `deaths`).
    pub marked: [Cell<u64>; 256],
    /// What is mapped from now on is locked (see `lock`).
    pub locks: Cell<u32>,
    pub domain: AtomicU32,
    /// How many files are mapped such that what is written to them shows in
    /// memory, and which (see `memory`).
    pub maps_files: Cell<u32>,
    /// Whether there ever was memory in huge pages.
    pub has_huge: Cell<u32>,
    pub mapped_files: [Cell<u64>; 64],
    /// The program may write to its own memory by calls (see `poke`).
    pub pokes: Cell<u32>,
    /// Chunks that are mapped though nobody in this address space writes to
    /// them: one more than their index, 0 = none; and whose turn it is to make
    /// room (see `log`).
    pub kept_chunks: [Cell<u32>; 8],
    pub kept_turn: Cell<u32>,
    /// A table of descriptors may be changed by others than the threads of one
    /// process, or not be that of all of them (see `descriptors`).
    pub odd_tables: Cell<u32>,
    pub mode: Cell<Mode>,
    /// The monitor came into the process when it ran already.
    pub is_adopted: Cell<u32>,
    /// In replay: the heap's end.
    pub brk: Cell<u64>,
    pub breakpoint: Cell<i32>,
    /// In replay: there is memory for translated code.
    pub translates: Cell<u32>,
    /// In replay: motion between events is possible.
    pub moves: Cell<u32>,
    /// And how many control transfers were taken since the last event.
    pub transfers: Cell<u64>,
    /// How often what is mapped was changed; and whether code was mapped since
    /// the one who leads was last told.
    pub maps: Cell<u64>,
    pub code_mapped: Cell<u64>,
    /// How much memory there is for what a player shows of its threads.
    pub views_len: Cell<u64>,
    /// In replay: place + 1 of the player this process is; 0 = nobody leads it.
    pub player: Cell<u32>,
    /// The table of instructions that read the counter is mapped.
    pub has_counters: Cell<u32>,
    /// Some thread has wanted to fault where it reads the counter: such places
    /// stay traps.
    pub counters_trap: Cell<u32>,
    /// How many threads are such children (`Thread::is_child`).
    pub children: Cell<u32>,
    /// This process, or one that it was forked from, has begun to serve files.
    pub serves: Cell<u32>,
    /// The program interprets machine code (`ExecSlot::interprets`).
    pub interprets: Cell<u32>,
    pub arena_fd: Cell<i32>,
    pub image_end: Cell<u64>,
    pub xstate_mask: Cell<u64>,
    pub xstate_size: Cell<u32>,
    /// Where in it each part is, and how large.
    pub xstate_parts: [Cell<(u32, u32)>; 10],
    /// How many of `patches` are in use; and, by a hash of the site, which: one
    /// more than its index, 0 = none.
    pub patch_count: Cell<u32>,
    pub patch_places: [Cell<u16>; 2 * PATCHES_MAX],
    /// Whether the kernel tells if memory can be written: 0 = not known, 1 = it
    /// does, 2 = it does not.
    pub tells_writable: Cell<u32>,
    pub pool_count: Cell<u32>,
    pub pool_current: Cell<u32>,
    pub slots_used: Cell<u32>,
    /// Live: what turns protect in a recording (see `live`); code is about to be
    /// changed (the number of the pause, a futex); who stands still by now; and how
    /// many pauses there were.
    pub lock: AtomicU32,
    /// Live: one thread at a time writes a log (see `observe`).
    pub log_lock: AtomicU32,
    pub pause: AtomicU32,
    pub pause_arrivals: AtomicU32,
    pub pauses: Cell<u32>,
    pub pools: [Cell<Pool>; POOLS_MAX],
    pub patches: [Cell<Patched>; PATCHES_MAX],
    pub initial_xstate: XstateImage,
    /// In replay: memory that is shared.
    pub sharing: crate::sharing::Sharing,
    /// In replay: there was memory that children do not inherit as it is (see
    /// `inherit`).
    pub inherits_oddly: Cell<u32>,
    pub processes: [Process; PROCESSES_MAX],
}

#[repr(C, align(64))]
pub struct XstateImage(pub [Cell<u64>; 104]);

const _: () = assert!(core::mem::size_of::<Space>() as u64 <= SPACE_MAX);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AltStack {
    pub sp: u64,
    pub flags: u64,
    pub size: u64,
}

/// One thread. `gs` points here.
#[repr(C)]
pub struct Thread {
    pub this: Cell<u64>,
    pub saved_rsp: Cell<u64>,
    pub stack: Cell<u64>,
    pub saved_rip: Cell<u64>,
    pub slow_return: Cell<u64>,
    /// Where the registers are that the thread came into the monitor with.
    pub regs_at: Cell<u64>,
    pub process: Cell<u64>,
    /// Kernel's id; cleared by the kernel when the thread is gone.
    pub tid_word: AtomicU32,
    pub tid: Cell<u32>,
    /// Number within its process.
    pub number: Cell<u32>,
    /// The thread is inside the monitor's body.
    pub busy: AtomicU32,
    /// Signal that waits to reach the program; all others are blocked in the
    /// kernel meanwhile. `info` belongs to it.
    pub pending: AtomicU32,
    /// It was told that the program is halted, where it could not stop.
    pub asked: AtomicU32,
    pub slot: Cell<u32>,
    /// Its entry in the arena, one more than the place; 0 = none; and what is
    /// special about it when it takes one.
    pub entry: Cell<u32>,
    pub entry_flags: Cell<u32>,
    /// Live: the last pause that it stands still in; it waits for the lock.
    pub paused: AtomicU32,
    pub in_lock: AtomicU32,
    /// Live: where it writes its id when it begins.
    pub set_tid: Cell<u64>,
    /// Live: the site of a call that it was taken out of when the monitor came, when
    /// that had begun (the time-stamp counter, in the program's time), and how much of
    /// it was done.
    pub again_at: Cell<u64>,
    pub began: Cell<u64>,
    pub done: Cell<u64>,
    pub info: [Cell<u64>; 16],
    /// Signals that the kernel cannot hold back for us (it must never block
    /// them), sent while the program has them blocked; and the first words
    /// of what came with each.
    pub held: Cell<u64>,
    pub held_info: [[Cell<u64>; 6]; 6],
    /// Room for the addresses of a socket (a sockaddr is 110 bytes at most).
    pub addresses: [[Cell<u64>; 14]; 2],
    /// The program's signal mask.
    pub mask: Cell<u64>,
    /// Mask to come back to after a handler that ran in sigsuspend and the
    /// like.
    pub saved_mask: Cell<u64>,
    pub has_saved_mask: Cell<u32>,
    /// Whether `timer` exists.
    pub has_timer: Cell<u32>,
    pub timer: Cell<u32>,
    /// Number of the call that the thread is in.
    pub scratch_mapped: Cell<u32>,
    pub alt: Cell<AltStack>,
    /// The program's filter on this thread's calls (see `filter`); 0 = none.
    pub filter: Cell<u32>,
    /// The program's clear_child_tid.
    pub child_tid: Cell<u64>,
    /// It belongs to a child that shares its parent's memory, and has such a word.
    pub is_child: Cell<u32>,
    /// The program's list of robust locks.
    pub robust_list: Cell<u64>,
    pub start: Cell<u64>,
    pub maker: Cell<u32>,
    /// 1 = a vfork child that must begin its log.
    pub begins: Cell<u32>,
    pub parent_event: Cell<u64>,
    pub parent_process: Cell<u32>,
    pub wants_preempt: AtomicU32,
    pub holds_turn: Cell<u32>,
    pub interrupted_at: AtomicU64,
    /// The kernel's CLOCK_REALTIME and CLOCK_MONOTONIC, as this thread knows
    /// them.
    pub clocks: [crate::clock::Running; 2],
    /// By how much they are behind for this thread (see `time::shift_of`).
    pub shift: Cell<u64>,
    /// The thread trapped because it is to read the time-stamp counter.
    pub reads_counter: Cell<u32>,
    /// The program asked that reading it be a fault.
    pub counter_faults: Cell<u32>,
    /// In replay: one more than the result of a clock read that was done but
    /// has to be seen again, the long way. 0 = none.
    pub clock_taken: Cell<u64>,
    /// Where the call came from that the thread is in.
    pub call_site: Cell<u64>,
    /// In replay: where the thread's stack was left, its fs base, and who made
    /// it (a vfork child).
    pub switch_sp: Cell<u64>,
    pub fs_base: Cell<u64>,
    pub maker_slot: Cell<u32>,
    /// What rax shall be, while the flags are put back.
    pub leaving_rax: Cell<u64>,
    /// What rcx held where the thread trapped, or was interrupted in replay.
    pub saved_rcx: Cell<u64>,
    /// In replay, the call it is in: number + 1, and whether that has begun and
    /// not returned.
    pub call: Cell<u64>,
    pub waits: Cell<u64>,
}

const _: () = {
    assert!(core::mem::offset_of!(Thread, saved_rsp) == arch::OFF_RSP);
    assert!(core::mem::offset_of!(Thread, stack) == arch::OFF_STACK);
    assert!(core::mem::offset_of!(Thread, saved_rip) == arch::OFF_RIP);
    assert!(core::mem::offset_of!(Thread, slow_return) == arch::OFF_SLOW);
    assert!(core::mem::size_of::<Thread>() <= THREAD_ROOM as usize);
};

/// A slot: the thread's record, room for its vector registers, its signal
/// stack, its monitor stack.
pub const THREAD_ROOM: u64 = 0x1000;
pub const XSTATE_ROOM: u64 = 0x3000;
pub const ALT_STACK_SIZE: u64 = 0xc000;

impl Thread {
    pub fn process(&self) -> &'static Process {
        // SAFETY: set to the address of one of the Space's processes before
        // the thread first runs; processes are never moved.
        unsafe { &*(self.process.get() as *const Process) }
    }
    pub fn alt_stack_base(&self) -> u64 {
        self.this.get() + THREAD_ROOM + XSTATE_ROOM
    }
    pub fn xstate_area(&self) -> u64 {
        self.this.get() + THREAD_ROOM
    }
}

pub fn thread() -> &'static Thread {
    // SAFETY: gs points to this thread's record, which stays mapped as long
    // as the thread runs.
    unsafe { &*(arch::thread_address() as *const Thread) }
}

pub fn thread_in_slot(slot: u32) -> &'static Thread {
    let slot = u64::from(slot).min(SLOTS_MAX - 1);
    // SAFETY: callers pass slots that have been mapped; all-zero is a valid
    // Thread.
    unsafe { &*((SLOTS_BASE + slot * SLOT_SIZE) as *const Thread) }
}

const _: () = {
    use protocol::layout::{
        ACTION_SIZE, PROCESS_ACTIONS, SPACE_PADS_AT, SPACE_POOLS_AT, SPACE_TRAPS_AT,
        THREAD_PROCESS_AT, THREAD_REGS_AT,
    };
    assert!(core::mem::offset_of!(Thread, process) as u64 == THREAD_PROCESS_AT);
    assert!(core::mem::offset_of!(Process, actions) as u64 == PROCESS_ACTIONS);
    assert!(core::mem::size_of::<Action>() as u64 == ACTION_SIZE);
    assert!(core::mem::offset_of!(Thread, regs_at) as u64 == THREAD_REGS_AT);
    assert!(SPACE_BASE + core::mem::offset_of!(Space, pools_at) as u64 == SPACE_POOLS_AT);
    assert!(SPACE_BASE + core::mem::offset_of!(Space, traps_at) as u64 == SPACE_TRAPS_AT);
    assert!(SPACE_BASE + core::mem::offset_of!(Space, desk) as u64 == SPACE_PADS_AT);
};

pub fn space() -> &'static Space {
    // SAFETY: mapped, zeroed, in `process::init` before anything else; never
    // unmapped. All-zero is a valid Space.
    unsafe { &*(SPACE_BASE as *const Space) }
}

pub fn control() -> &'static Control {
    // SAFETY: mapped in `process::init`; made of atomics, valid for any bytes.
    unsafe { &*(ARENA_BASE as *const Control) }
}

/// The order of turns this address space belongs to.
pub fn domain() -> &'static Domain {
    use core::sync::atomic::Ordering::Acquire;
    let domains = &control().domains;
    let mut index = space().domain.load(Acquire) as usize;
    loop {
        let domain = &domains[index & (protocol::shared::DOMAINS - 1)];
        match domain.forward.load(Acquire) {
            0 => return domain,
            next => {
                index = next as usize - 1;
                space()
                    .domain
                    .store(index as u32, core::sync::atomic::Ordering::Release);
            }
        }
    }
}
