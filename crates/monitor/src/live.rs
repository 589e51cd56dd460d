//! Live: threads of the program run side by side, so what a recording's turns
//! protect needs a lock here, and code is only changed while nobody runs it.
//!
//! What is protected: the table of patched sites, slots of threads, what the
//! program asked for (actions of signals, timers), counts. A call that touches none
//! of it takes no lock.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use protocol::halt::state;
use protocol::layout::PREEMPT_SIGNAL;

use crate::state::{Thread, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{halt, mode, observe};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WANTED: u32 = 2;

/// How long a look at those who are to stand still lasts (ns), and how many of
/// them pass before they are told again.
const LOOK: u64 = 50_000;
const TELL_AGAIN: u32 = 10;

/// The lock, held as long as this lives. In a recording the turn is enough.
#[must_use]
pub struct Lock {
    is_held: bool,
}

pub fn lock(thread: &Thread) -> Lock {
    if !mode::is_live() {
        return Lock { is_held: false };
    }
    let word = &space().lock;
    if word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
        // Who holds it may be about to change code: this thread is not in it.
        thread.in_lock.store(1, Release);
        while word.swap(WANTED, Acquire) != FREE {
            sys::futex_wait(word, WANTED, 100_000_000);
        }
        thread.in_lock.store(0, Release);
    }
    Lock { is_held: true }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let word = &space().lock;
        if self.is_held && word.swap(FREE, Release) == WANTED {
            sys::futex_wake(word, 1);
        }
    }
}

/// A forked child has no other threads: nobody else holds anything.
pub fn forked() {
    space().lock.store(FREE, Relaxed);
    space().pause.store(0, Relaxed);
    observe::forked();
}

/// Nobody else in this memory runs program code as long as this lives.
#[must_use]
pub struct Pause {
    is_on: bool,
}

/// Waits until all other threads are in the kernel, in the monitor, or stand still
/// where `interrupted_at` says. The caller holds the lock.
pub fn pause_others(thread: &Thread) -> Pause {
    let space = space();
    if !mode::is_live() || space.threads.get() <= 1 {
        return Pause { is_on: false };
    }
    let number = space.pauses.get().wrapping_add(1).max(1);
    space.pauses.set(number);
    space.pause.store(number, SeqCst);
    let mut round = 0;
    loop {
        let arrivals = space.pause_arrivals.load(Acquire);
        let mut is_complete = true;
        for slot in 0..space.slots_used.get() {
            let other = thread_in_slot(slot);
            if !core::ptr::eq(other, thread) && !is_still(other, number) {
                is_complete = false;
                if round % TELL_AGAIN == 0 {
                    tell(other);
                }
            }
        }
        if is_complete {
            return Pause { is_on: true };
        }
        sys::futex_wait(&space.pause_arrivals, arrivals, LOOK);
        round += 1;
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if self.is_on {
            space().pause.store(0, SeqCst);
            sys::futex_wake(&space().pause, u32::MAX >> 1);
        }
    }
}

fn is_still(other: &Thread, number: u32) -> bool {
    other.tid_word.load(Acquire) == 0
        || other.paused.load(SeqCst) == number
        || other.in_lock.load(SeqCst) != 0
        || halt::entry(other).is_some_and(|entry| entry.state.load(SeqCst) != state::RUNS)
}

fn tell(other: &Thread) {
    let (pid, tid) = (other.process().pid.get(), other.tid.get());
    let signal = PREEMPT_SIGNAL as u64;
    if pid != 0 && tid != 0 {
        sys::call(nr::TGKILL, pid.into(), tid.into(), signal, 0, 0, 0);
    }
}

/// Whether code is about to be changed.
#[inline]
pub fn is_paused() -> bool {
    mode::is_live() && space().pause.load(SeqCst) != 0
}

/// This thread is in the monitor, and comes to [`wait`] before it runs program
/// code.
pub fn will_wait(thread: &Thread) {
    arrive(thread, space().pause.load(SeqCst));
}

fn arrive(thread: &Thread, number: u32) {
    thread.paused.store(number, SeqCst);
    space().pause_arrivals.fetch_add(1, AcqRel);
    sys::futex_wake(&space().pause_arrivals, 1);
}

/// Waits until code has been changed.
#[cold]
pub fn wait(thread: &Thread) {
    loop {
        let number = space().pause.load(SeqCst);
        if number == 0 {
            return;
        }
        arrive(thread, number);
        while space().pause.load(SeqCst) == number {
            sys::futex_wait(&space().pause, number, 100_000_000);
        }
    }
}
