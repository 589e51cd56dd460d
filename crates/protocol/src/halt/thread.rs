//! What is known of a thread in the arena: what it does, where it has stopped, and what
//! is to become of it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use super::{Instant, Moment};

/// What a thread is doing.
pub mod state {
    /// It runs: program code, or the monitor's on its way.
    pub const RUNS: u32 = 0;
    /// It is in the kernel, in a call that may wait.
    pub const CALL: u32 = 1;
    /// It is in the kernel, in a call that may wait and that others see.
    pub const SENDS: u32 = 2;
    /// In a recording: it waits for its turn.
    pub const TURN: u32 = 3;
    /// It has stopped.
    pub const STOPPED: u32 = 4;
    /// It waits for a child that has its memory, or becomes another program.
    pub const AWAY: u32 = 5;
}

/// What is special about a thread.
pub mod flag {
    /// It runs on when the others are halted. Threads and processes that it
    /// makes do so, too.
    pub const EXEMPT: u32 = 1;
    /// It is taken out of its call at a halt, because something has to be done
    /// in its process then.
    pub const PULL: u32 = 2;
    /// It is taken out of the call that it is in, once: something about its time
    /// limit is to be changed.
    pub const LEAVE: u32 = 4;
    /// A debugger leads it by single instructions while the others stand: it leaves
    /// the halt, and the program's time stands all the same.
    pub const LED: u32 = 8;
    /// It is to leave the call that it is in and stand before it: a debugger has
    /// something else for it to do first.
    pub const OUT: u32 = 16;
}

/// What a thread is stopped in.
pub mod stopped_in {
    /// It computed: `registers` are what they were.
    pub const PROGRAM: u32 = 0;
    /// Before a call, which it has not made.
    pub const ENTRY: u32 = 1;
    /// In a call that waited, which has not come back to the program.
    pub const CALL: u32 = 2;
    /// Behind a call, or where it begins.
    pub const EXIT: u32 = 3;
}

/// The registers of a thread, in the order of a signal frame: r8 to r15, rdi,
/// rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags.
pub const REGISTERS: usize = 18;

/// A thread of the program.
#[repr(C, align(64))]
#[derive(Default)]
pub struct ThreadEntry {
    /// Its id in its own pid namespace; 0 = the entry is free.
    pub tid: AtomicU32,
    pub state: AtomicU32,
    pub flags: AtomicU32,
    pub pid: AtomicU32,
    /// 0: the pid namespace of the recorder.
    pub namespace: AtomicU32,
    /// Numbers as in a recording.
    pub process: AtomicU32,
    pub thread: AtomicU32,
    pub image: AtomicU32,
    /// Number + 1 of the call that it is in, or was in last, and since when (the
    /// time-stamp counter, as the program would see it).
    pub call: AtomicU64,
    pub since: AtomicU64,
    /// How long that may last (ns, from `since` in the program's time); or see
    /// [`limit`].
    pub limit: AtomicU64,
    /// If that is `limit::UNTIL`: until when, by which of the program's clocks.
    pub until: AtomicU64,
    pub until_clock: AtomicU32,
    /// Not 0: it was in the monitor when it was told to stop, where it may have been about to
    /// read a clock, and has stopped in the program since.
    pub ran_on: AtomicU32,
    /// Where in its process's memory the registers are that it made the call
    /// with: see [`Called`].
    pub called_at: AtomicU64,
    /// The rest is written when it stops: in which halt, when, in what.
    pub halt: AtomicU32,
    pub stopped_in: AtomicU32,
    pub stopped_at: Moment,
    /// What came of the call, if it has come back since.
    pub result: AtomicI64,
    /// Where the processor's state is in its process's memory (an XSAVE image),
    /// 0 if only what [`Called`] has is known.
    pub xstate_at: AtomicU64,
    pub registers: [AtomicU64; REGISTERS],
    /// Not 0: the thread is to go on with `registers` as they are now.
    pub set_registers: AtomicU32,
    /// What is to become of the time limit of the call it is in (`on_limit`),
    /// and by how much it is made longer.
    pub on_limit: AtomicU32,
    pub extended: AtomicI64,
    /// The monitor is leaving, and the thread is to make the call again that it was
    /// taken out of: with another argument for its time limit (one more than which it
    /// is, 0 = none), which is the first of `left`, or leads to both
    /// ([`LEFT_IN_MEMORY`]); and how much of it is done already.
    pub left_arg: AtomicU32,
    pub left: [AtomicU64; 2],
    pub done: AtomicU64,
    /// How long that call has taken (ns), if it has a time limit.
    pub elapsed: AtomicU64,
    /// The place of its record in its process's memory.
    pub slot: AtomicU32,
}

/// What a time limit is.
pub mod limit {
    /// There is none.
    pub const NONE: u64 = u64::MAX;
    /// It is a moment.
    pub const UNTIL: u64 = u64::MAX - 1;
    /// By which clock.
    pub const REALTIME: u32 = 0;
    pub const MONOTONIC: u32 = 1;
}
/// In [`ThreadEntry::left_arg`]: the argument is the address of the words.
pub const LEFT_IN_MEMORY: u32 = 0x100;

/// What is to become of a time limit.
pub mod on_limit {
    pub const KEEP: u32 = 0;
    /// It is over now.
    pub const FIRE: u32 = 1;
    /// There is none any more.
    pub const DROP: u32 = 2;
}

pub const THREADS_MAX: usize = 4096;

/// What the monitor keeps of a thread that has entered it by a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Called {
    pub xmm: [[u64; 2]; 16],
    pub way: u64,
    /// r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi
    pub general: [u64; 15],
    /// The number of the call.
    pub number: u64,
    /// Where it goes on; perhaps in a stub.
    pub rip: u64,
    pub flags: u64,
    pub rsp: u64,
}

impl ThreadEntry {
    pub fn is_taken(&self) -> bool {
        !matches!(self.tid.load(Acquire), 0 | ThreadEntry::LEFT)
    }

    /// In `tid`: its thread is gone, and the entry is about to be free.
    const LEFT: u32 = u32::MAX;

    /// The entry is this thread's no more, if it was. Whose process's it was is forgotten first:
    /// the next thread says that a moment after it has the entry, which must not be
    /// freed until then because that process ends.
    pub fn free(&self, tid: u32) {
        let is_its = !matches!(tid, 0 | ThreadEntry::LEFT)
            && self
                .tid
                .compare_exchange(tid, ThreadEntry::LEFT, AcqRel, Relaxed)
                .is_ok();
        if is_its {
            self.pid.store(0, Relaxed);
            self.tid.store(0, Release);
        }
    }

    /// The entry is free if it is of a thread of this process.
    pub fn free_of(&self, pid: u32, namespace: u32) {
        let tid = self.tid.load(Acquire);
        if self.pid.load(Relaxed) == pid && self.namespace.load(Relaxed) == namespace {
            self.free(tid);
        }
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// The thread stops in halt `number`, which was asked for then, at this `place`. One that
    /// has stood in it already was led out of it while time stood still, and has seen none of
    /// it: that it stands again says nothing of when the program did.
    pub fn stop(&self, number: u32, asked: Instant, place: u32, now: Instant) {
        let has_stood = self.halt.load(Acquire) == number;
        let was_in = self.stopped_in.swap(place, Relaxed);
        match has_stood {
            false => self.stopped_at.set(now),
            // (Where it was it did not count; where it is now it would.)
            true if was_in == stopped_in::CALL && place != stopped_in::CALL => {
                self.stopped_at.set(asked);
            }
            true => {}
        }
        self.halt.store(number, Release);
        self.state.swap(state::STOPPED, SeqCst);
    }

    /// Takes the entry, if it is free.
    pub fn take(&self, tid: u32) -> bool {
        let is_taken = self.tid.load(Relaxed) == 0
            && self.tid.compare_exchange(0, tid, AcqRel, Relaxed).is_ok();
        if is_taken {
            self.state.store(state::RUNS, Relaxed);
            self.flags.store(0, Relaxed);
            self.halt.store(0, Relaxed);
            self.call.store(0, Relaxed);
            self.set_registers.store(0, Relaxed);
            self.on_limit.store(on_limit::KEEP, Relaxed);
            self.extended.store(0, Relaxed);
            self.left_arg.store(0, Relaxed);
            self.done.store(0, Relaxed);
            self.elapsed.store(0, Relaxed);
        }
        is_taken
    }

    /// Whether no program code runs on this thread, now that the program is
    /// halted.
    pub fn is_still(&self) -> bool {
        use state::{AWAY, CALL, STOPPED, TURN};
        matches!(self.state.load(SeqCst), CALL | TURN | STOPPED | AWAY) && !self.must_come()
    }

    /// Whether it must leave its call, and has not.
    fn must_come(&self) -> bool {
        self.has(flag::PULL) && self.state.load(Relaxed) == state::CALL
    }
}
