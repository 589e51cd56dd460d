//! Futexes with priority inheritance.
//!
//! The kernel would write into the lock at moments of its own: that somebody
//! waits, who owns it next. So it is not asked: what it would do is done here,
//! by a thread that has the turn, with plain waits and wakes. What is lost is
//! the priority that a waiter lends to the owner; threads take turns anyway.
//!
//! A lock that is given up is free until somebody takes it. The word says that
//! others wait as long as some may, so that nobody takes it without a call.

use core::sync::atomic::Ordering::Acquire;

use protocol::syscall::Syscall;

use crate::capture::Blobs;
use crate::recorder::{self, topic};
use crate::state::Thread;
use crate::sys::{self, nr};
use crate::time::{self, SECOND, Span};
use crate::{arch, call, halt, mem, turn};

const WAITERS: u32 = 0x8000_0000;
const TID_MASK: u32 = 0x3fff_ffff;

const PRIVATE: u64 = 0x80;
const REALTIME: u64 = 0x100;
const WAIT_BITSET: u64 = 9;
const WAKE: u64 = 1;

/// How long a wait lasts before the word is looked at again: an owner that is
/// killed wakes nobody.
const LOOK_AGAIN: u64 = 200_000_000;

/// Operations on such a lock.
const LOCK: u64 = 6;
const UNLOCK: u64 = 7;
const TRYLOCK: u64 = 8;
const LOCK2: u64 = 13;

/// Whether a futex operation is one that may wait for such a lock.
pub fn waits(operation: u64) -> bool {
    matches!(operation & 0x7f, LOCK | LOCK2)
}

/// Whether it is one of the others.
pub fn is_at_once(operation: u64) -> bool {
    matches!(operation & 0x7f, UNLOCK | TRYLOCK | 11 | 12)
}

/// One that does not wait.
pub fn at_once(thread: &Thread, args: &[u64; 6]) -> i64 {
    match args[1] & 0x7f {
        UNLOCK => unlock(thread, args),
        TRYLOCK => match take(thread, args[0]) {
            Taken::Owned(_) => -sys::EAGAIN,
            Taken::Done(result) => result,
        },
        _ => {
            let text = b"futex with priority inheritance that is requeued";
            recorder::note(thread, topic::FUTEX, 0, text);
            -sys::ENOSYS
        }
    }
}

enum Taken {
    /// What became of it.
    Done(i64),
    /// By somebody else: the word.
    Owned(u32),
}

/// Takes the lock if it is free.
fn take(thread: &Thread, at: u64) -> Taken {
    if !at.is_multiple_of(4) {
        return Taken::Done(-sys::EINVAL);
    }
    let Some(word) = mem::read::<u32>(at) else {
        return Taken::Done(-sys::EFAULT);
    };
    let own = thread.tid.get();
    match word & TID_MASK {
        0 if mem::write(at, &(own | word)) => Taken::Done(0),
        0 => Taken::Done(-sys::EFAULT),
        owner if owner == own => Taken::Done(-sys::EDEADLK),
        _ => Taken::Owned(word),
    }
}

fn unlock(thread: &Thread, args: &[u64; 6]) -> i64 {
    let at = args[0];
    let Some(word) = mem::read::<u32>(at) else {
        return -sys::EFAULT;
    };
    if word & TID_MASK != thread.tid.get() {
        return -sys::EPERM;
    }
    // Who takes it asks here again, as long as others may wait.
    mem::write(at, &(word & WAITERS));
    let woken = match word & WAITERS {
        0 => 0,
        _ => sys::call(nr::FUTEX, at, WAKE | args[1] & PRIVATE, 1, 0, 0, 0),
    };
    if woken == 0 {
        mem::write(at, &0u32);
    }
    0
}

/// One that may wait: two events. If it is woken and finds the lock taken, it is
/// made again.
pub fn lock(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    const TKILL: u64 = 200;
    call::start(thread, row, args);
    let result = match take(thread, args[0]) {
        Taken::Done(result) => result,
        Taken::Owned(word) => {
            let owner = u64::from(word & TID_MASK);
            if sys::call(TKILL, owner, 0, 0, 0, 0, 0) == -sys::ESRCH {
                -sys::ESRCH
            } else {
                mem::write(args[0], &(word | WAITERS));
                turn::give(thread);
                let result = wait(thread, args, word | WAITERS);
                turn::take(thread);
                match take(thread, args[0]) {
                    Taken::Done(taken) => taken,
                    Taken::Owned(_) if result == 0 => -sys::ERESTARTSYS,
                    Taken::Owned(_) => result,
                }
            }
        }
    };
    let mut blobs = Blobs::new();
    if mem::is_readable(args[0], 4) {
        blobs.memory(0, args[0], 4);
    }
    call::finish(thread, row, args, result, &blobs);
    result
}

/// In replay, such a call has begun: while it waits, the word says so. (What it
/// is in the end, the log says.)
pub fn begun_again(thread: &Thread, args: &[u64; 6]) {
    if let Some(word) = mem::read::<u32>(args[0])
        && !matches!(word & TID_MASK, owner if owner == 0 || owner == thread.tid.get())
    {
        mem::write(args[0], &(word | WAITERS));
    }
}

/// Waits while the word is this. 0: it is not any more.
fn wait(thread: &Thread, args: &[u64; 6], word: u32) -> i64 {
    let mut wait = *args;
    let clock = match args[1] & 0x7f {
        LOCK => REALTIME,
        _ => args[1] & REALTIME,
    };
    wait[1] = WAIT_BITSET | args[1] & PRIVATE | clock;
    wait[2] = u64::from(word);
    wait[5] = u64::from(u32::MAX);
    let span = Span::begin();
    // When it is over is said in the program's time.
    let over = mem::read::<[u64; 2]>(args[3]).map(|at| at[0] * SECOND + at[1]);
    let mut until;
    let short = [0, LOOK_AGAIN];
    if args[3] == 0 {
        // FUTEX_WAIT, which counts from now.
        wait[1] = args[1] & PRIVATE;
        wait[3] = short.as_ptr() as u64;
    }
    loop {
        let shift = time::shift();
        if let Some(over) = over.filter(|_| shift != 0) {
            until = [(over + shift) / SECOND, (over + shift) % SECOND];
            wait[3] = (&raw const until) as u64;
        }
        halt::enter(thread, nr::FUTEX, span.since(), u64::MAX);
        // SAFETY: the kernel reads the program's word and a time, and checks
        // both.
        let result = unsafe {
            arch::syscall_interruptible(nr::FUTEX, &raw const wait, thread.pending.as_ptr())
        };
        halt::back(thread, result);
        let is_interrupted = thread.pending.load(Acquire) != 0;
        match -result {
            sys::EINTR if is_interrupted => return -sys::ERESTARTSYS,
            sys::EINTR => {}
            sys::ETIMEDOUT if args[3] == 0 || time::shift() != shift => {}
            sys::EAGAIN => return 0,
            _ => return result,
        }
    }
}
