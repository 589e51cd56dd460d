//! Observing: the events of a live program are written down as long as somebody wants to
//! know of them, while its threads run side by side.
//!
//! They go into the process's log, as those of a recording do, but under a lock, for
//! there are no turns. The order in it is one that the threads can have had: where there
//! are several, every call is two records, one from before it is made and one from after
//! it, so what others learn from it comes behind the first, and what it has learned is
//! before the second. Nothing that only replay needs is written.
//!
//! A process begins its log, with what says that it ran already, when it first has
//! something to write. What its descriptors led to then the agent has told.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::syscall::Syscall;

use crate::capture::{self, Blobs};
use crate::state::{Log, Process, Thread, control, space};
use crate::{call, log, mode, needs, sys};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WANTED: u32 = 2;

/// Of what the kernel has written, this much is kept: patterns look at the beginning.
pub const KEPT: u64 = 4096;

/// The observation that is under way; 0 = none.
#[inline(always)]
pub fn number() -> u32 {
    match mode::is_live() {
        true => control().observed.load(Relaxed),
        false => 0,
    }
}

/// Whether a live program is observed.
#[inline(always)]
pub fn is_on() -> bool {
    control().observed.load(Relaxed) != 0
}

/// Whether a log belongs to the observation that is under way.
pub fn is_of(log: &Log) -> bool {
    let number = number();
    number != 0 && log.observation.get() == number
}

/// Takes the lock of the log, for a record. False: nothing is written.
pub fn begin(thread: &Thread, process: &Process) -> bool {
    let number = number();
    if number == 0 {
        return false;
    }
    take_lock();
    let log = &process.log;
    if log.observation.get() != number {
        log::join(thread, process, number);
    }
    let writes = log.off.get() == 0;
    if !writes {
        end();
    }
    writes
}

fn take_lock() {
    let word = &space().log_lock;
    if word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
        while word.swap(WANTED, Acquire) != FREE {
            sys::futex_wait(word, WANTED, 100_000_000);
        }
    }
}

/// The record is whole.
pub fn end() {
    let word = &space().log_lock;
    if word.swap(FREE, Release) == WANTED {
        sys::futex_wake(word, 1);
    }
}

/// The process's log begins, if it has not yet: what it does next refers to it.
pub fn enter(thread: &Thread) {
    if begin(thread, thread.process()) {
        end();
    }
}

/// A forked child has no other threads: nobody else writes.
pub fn forked() {
    space().log_lock.store(FREE, Relaxed);
}

/// Nothing more is written of a process whose image ends, whatever its other threads
/// do; unless it does not end after all ([`go_on`]).
pub fn stop(process: &Process) {
    if mode::is_live() {
        take_lock();
        log::close(process);
        process.log.off.set(1);
        end();
    }
}

/// See [`stop`].
pub fn go_on(process: &Process) {
    if mode::is_live() {
        take_lock();
        let is_off = !is_of(&process.log);
        process.log.off.set(is_off.into());
        end();
    }
}

/// How a call is written down.
pub struct Course {
    before: [u64; 6],
    is_begun: bool,
}

impl Course {
    /// A call is about to be made. `waits`: it may wait. None: nobody wants to know.
    #[inline(always)]
    pub fn begin(
        thread: &Thread,
        row: &'static Syscall,
        args: &[u64; 6],
        waits: bool,
    ) -> Option<Course> {
        match is_on() {
            true => Some(Course::begin_observed(thread, row, args, waits)),
            false => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_observed(
        thread: &Thread,
        row: &'static Syscall,
        args: &[u64; 6],
        waits: bool,
    ) -> Course {
        let is_begun = waits || space().threads.get() > 1;
        if is_begun {
            call::start(thread, row, args);
        }
        Course {
            before: capture::lengths_before(row, args),
            is_begun,
        }
    }

    /// It has come to this.
    #[cold]
    #[inline(never)]
    pub fn end(self, thread: &Thread, row: &'static Syscall, args: &[u64; 6], result: i64) {
        let number = u64::from(row.nr);
        let mut blobs = Blobs::new();
        if !self.is_begun {
            capture::inputs(row, args, &mut blobs);
        }
        capture::outputs(row, args, result, &self.before, &mut blobs);
        if needs::of(number) & needs::EXTRA != 0 {
            capture::extra(thread, number, args, result, &mut blobs);
        }
        blobs.shorten(KEPT);
        let entry = match self.is_begun {
            true => log::end(thread, number, result, blobs.count()),
            false => log::call(thread, number, args, row.args.len(), result, blobs.count()),
        };
        if let Some(entry) = entry {
            blobs.write(entry).commit();
        }
    }

    /// A call that was begun before anybody observed has come to this now.
    #[cold]
    #[inline(never)]
    pub fn joined(thread: &Thread, row: &'static Syscall, args: &[u64; 6], result: i64) {
        let course = Course::begin_observed(thread, row, args, true);
        course.end(thread, row, args, result);
    }
}
