//! Calls that return at once: made while the thread has the turn.

use core::sync::atomic::Ordering::Relaxed;

use protocol::syscall::Syscall;

use crate::arch;
use crate::capture::{self, Blobs};
use crate::mode::Mode;
use crate::observe::Course;
use crate::state::{Thread, control, space};
use crate::sys::{self, nr};
use crate::{
    clock, descriptors, ioctl, lock, log, memory, moved, needs, poke, process, replay, served,
    timers, turn,
};

use super::blocking::{SO_LINGER, close_range, finish_call, in_two, lingers, waiting};
use super::guard::{guard_descriptor, is_refused_option};
use super::{own_death, own_stop};

/// A call that cannot block.
#[inline(always)]
pub(super) fn plain(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    match space().mode.get() {
        Mode::Record => make(thread, row, args),
        Mode::Live => make_live(thread, row, args),
        Mode::Replay => plain_again(thread, row, args),
    }
}

/// Nobody wants to know what comes of it, as a rule.
fn make_live(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    let has_care = needs::of(number) & needs::CARE != 0;
    if has_care && let Some(result) = with_care(thread, row, args) {
        return result;
    }
    let course = Course::begin(thread, row, args, false);
    // SAFETY: as in `make`.
    let mut result = unsafe { arch::syscall(number, args) };
    if has_care {
        after(thread, number, args, result);
        result = clock::put_right(thread, number, args, result);
    }
    if let Some(course) = course {
        course.end(thread, row, args, result);
    }
    result
}

fn make(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    let needs = needs::of(number);
    if needs & needs::CARE != 0
        && let Some(result) = with_care(thread, row, args)
    {
        return result;
    }
    if served::makes_wait(number) {
        return in_two(thread, row, args);
    }
    let before = match needs & needs::LENGTHS {
        0 => [0; 6],
        _ => capture::lengths_before(row, args),
    };
    memory::before_write(thread, number, args);
    let mut result = if number == nr::SCHED_YIELD && turn::has_yielded() {
        0
    } else {
        // SAFETY: the program's own call; the kernel checks its pointers, and
        // those that would touch the monitor's memory were refused.
        unsafe { arch::syscall(number, args) }
    };
    let mut blobs = Blobs::new();
    if needs & needs::CARE != 0 {
        result = clock::put_right(thread, number, args, result);
    }
    if needs & needs::EXTRA != 0 {
        result = poke::opened(thread, number, args, result);
    }
    if needs & needs::CARE != 0 {
        after(thread, number, args, result);
    }
    if needs & needs::INPUTS != 0 {
        capture::inputs(row, args, &mut blobs);
    }
    if needs & needs::OUTPUTS != 0 {
        capture::outputs(row, args, result, &before, &mut blobs);
    }
    if needs & needs::EXTRA != 0 {
        capture::extra(thread, number, args, result, &mut blobs);
    }
    memory::written(thread, number, args, result, &mut blobs);
    if let Some(entry) = log::call(thread, number, args, row.args.len(), result, blobs.count()) {
        blobs.write(entry).commit();
    }
    result
}

/// [`plain`] in replay.
#[cold]
fn plain_again(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    if is_clock(number) {
        replay::settle(thread);
        if let Some(result) = clock::read(thread, number, args[0], args[1]) {
            return result;
        }
    }
    // Some wait now and then (`waiting`), some never return (`own_death`), some when others say
    // so (`own_stop`).
    let may_be_two = needs::of(number) & needs::FILES != 0 || own_death::sends_signals(number);
    if may_be_two && replay::is_blocking(thread) {
        replay::start(thread, row, args);
        if own_death::is_last(thread, number, args) {
            process::release_all_robust(thread);
        }
        return replay::finish(thread, row, args);
    }
    replay::plain(thread, row, args)
}

fn is_clock(number: u64) -> bool {
    matches!(number, nr::CLOCK_GETTIME | nr::GETTIMEOFDAY | nr::TIME)
}

/// What the monitor does before calls that concern it (`needs::CARE`), and
/// those that it answers itself.
#[inline(never)]
fn with_care(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> Option<i64> {
    let number = u64::from(row.nr);
    descriptors::note(thread, number, args);
    let answer = match number {
        nr::CLOSE if waits_to_close(args[0]) => {
            return Some(waiting(thread, row, args, None, |_, _| {}));
        }
        nr::CLOSE => return None,
        nr::CLOSE_RANGE if space().turns.get() != 0 && may_wait_to_close() => {
            return Some(close_range(thread, row, args));
        }
        // What it takes the place of is closed.
        nr::DUP2 | nr::DUP3 if args[0] != args[1] && waits_to_close(args[1]) => {
            match guard_descriptor(number, args) {
                Some(answer) => answer,
                None => return Some(waiting(thread, row, args, None, |_, _| {})),
            }
        }
        nr::SETSOCKOPT => {
            if args[1] as u32 == 1 && args[2] as u32 == SO_LINGER {
                control().lingers.store(1, Relaxed);
            }
            return None;
        }
        nr::FALLOCATE | nr::FTRUNCATE => return moved::perform(thread, row, args),
        nr::IOCTL => return Some(ioctl::perform(thread, row, *args)),
        _ if own_death::sends_signals(number) => {
            return own_death::perform(thread, row, args)
                .or_else(|| own_stop::perform(thread, row, args));
        }
        _ if is_clock(number) => return clock::read(thread, number, args[0], args[1]),
        nr::GETSOCKOPT if is_refused_option(thread, args[1], args[2]) => -sys::ENOPROTOOPT,
        nr::MLOCKALL => lock::all(args[0]),
        nr::MUNLOCKALL => lock::none(),
        nr::PROCESS_VM_WRITEV if poke::is_refused(thread, args[0]) => -sys::EPERM,
        nr::TIMER_SETTIME
        | nr::TIMER_GETTIME
        | nr::TIMERFD_SETTIME
        | nr::TIMERFD_GETTIME
        | nr::SETITIMER
        | nr::GETITIMER
        | nr::ALARM => timers::call(thread, number, args),
        _ => guard_descriptor(number, args)?,
    };
    finish_call(thread, row, args, answer, &Blobs::new());
    Some(answer)
}

/// Whether others would wait while a descriptor is closed.
fn waits_to_close(fd: u64) -> bool {
    space().turns.get() != 0
        && (served::is_on() || control().lingers.load(Relaxed) != 0 && lingers(fd))
}

/// Whether closing something may wait.
fn may_wait_to_close() -> bool {
    served::is_on() || control().lingers.load(Relaxed) != 0
}

/// What it does after them.
#[inline(never)]
fn after(thread: &Thread, number: u64, args: &[u64; 6], result: i64) {
    match number {
        nr::UNSHARE | nr::SETNS if result == 0 => {
            process::enter_namespaces(thread.process(), number, args);
        }
        nr::FANOTIFY_INIT | nr::MOUNT | nr::FSOPEN if result >= 0 => served::made(number, args),
        nr::SETTIMEOFDAY | nr::CLOCK_SETTIME | nr::ADJTIMEX | nr::CLOCK_ADJTIME => {
            thread.clocks.iter().for_each(clock::Running::forget);
        }
        _ => {}
    }
}
