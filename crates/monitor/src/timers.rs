//! Timers of the kernel's that the program has set: they do not run while it is
//! halted.
//!
//! Of each process the first thread that stops takes note of how much is left of
//! each, and stops it; the first that goes on sets it again. Between the two the
//! program's time has gone on by as much as the halt took to reach everybody, and
//! by as much as it took to go on: that is taken off.

use core::cell::Cell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::halt::{THREADS_MAX, flag};

use crate::state::{Process, Thread, control};
use crate::sys::{self, nr};
use crate::time::{self, SECOND, Span};
use crate::{arch, halt, mem};

/// What kind a timer is of; with its id: `timer_create`'s, a descriptor, or
/// `setitimer`'s.
mod kind {
    pub const NONE: u32 = 0;
    pub use protocol::adoption::timer::{DESCRIPTOR, INTERVAL, POSIX};
}

pub const TIMERS_MAX: usize = 64;

/// A timer that the program has set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Timer {
    kind: u32,
    id: u32,
    /// It was set, and has not been found over since.
    is_set: bool,
    /// While the program is halted: the interval, and what is left (ns, or
    /// microseconds, as the kernel has it). All zero: it was not running.
    left: [u64; 4],
}

const FREE: Timer = Timer {
    kind: kind::NONE,
    id: 0,
    is_set: false,
    left: [0; 4],
};

impl Timer {
    fn is(&self, kind: u32, id: u32) -> bool {
        self.kind == kind && self.id == id
    }

    /// Moves what is left of one that was running; it does not come to nothing.
    fn add(&mut self, span: i64) {
        let unit = if self.kind == kind::INTERVAL { 1000 } else { 1 };
        let left = self.left[2] * SECOND + self.left[3] * unit;
        if left != 0 {
            let left = left.saturating_add_signed(span).max(unit);
            (self.left[2], self.left[3]) = (left / SECOND, left % SECOND / unit);
        }
    }
}

/// What a call does with a timer.
struct Call {
    kind: u32,
    id: u32,
    /// What it is set to.
    set: Option<[u64; 4]>,
    /// Where it is told what was left. None: as the answer (`alarm`).
    told_at: Option<u64>,
}

impl Call {
    /// None: what it is set to cannot be read.
    fn of(number: u64, args: &[u64; 6]) -> Option<Call> {
        let (kind, id, set, told_at) = match number {
            nr::TIMER_SETTIME => (kind::POSIX, args[0], Some(mem::read(args[2])?), args[3]),
            nr::TIMERFD_SETTIME => (
                kind::DESCRIPTOR,
                args[0],
                Some(mem::read(args[2])?),
                args[3],
            ),
            nr::SETITIMER => (kind::INTERVAL, args[0], Some(mem::read(args[1])?), args[2]),
            nr::TIMER_GETTIME => (kind::POSIX, args[0], None, args[1]),
            nr::TIMERFD_GETTIME => (kind::DESCRIPTOR, args[0], None, args[1]),
            nr::GETITIMER => (kind::INTERVAL, args[0], None, args[1]),
            _ => (kind::INTERVAL, 0, Some([0, 0, args[0] & 0xffff_ffff, 0]), 0),
        };
        Some(Call {
            kind,
            id: id as u32,
            set,
            told_at: (number != nr::ALARM).then_some(told_at),
        })
    }

    /// Makes it, if the timers are not stopped.
    fn make(&self, number: u64, args: &[u64; 6]) -> i64 {
        const ABSOLUTE: u64 = 1;
        let mut made = *args;
        let mut real = self.set.unwrap_or([0; 4]);
        let has_flags = matches!(number, nr::TIMER_SETTIME | nr::TIMERFD_SETTIME);
        if has_flags && args[1] & ABSOLUTE != 0 && real[2..] != [0; 2] && time::shift() != 0 {
            let when = (real[2].saturating_mul(SECOND))
                .saturating_add(real[3])
                .saturating_add(time::shift());
            (real[2], real[3]) = (when / SECOND, when % SECOND);
            made[2] = real.as_ptr() as u64;
        }
        // SAFETY: the program's own call; what it reads is its own or on this stack.
        unsafe { arch::syscall(number, &made) }
    }

    /// Makes it of a timer that is stopped, of which `timer` says how much is left.
    fn make_of_stopped(
        &self,
        number: u64,
        args: &[u64; 6],
        timer: &mut Timer,
        since: &Span,
    ) -> i64 {
        let mut answer = self.make(number, args);
        if answer < 0 {
            return answer;
        }
        let mut was = *timer;
        was.add(-since.signed());
        let was_running = was.left[2..] != [0; 2];
        match self.told_at {
            Some(0) => {}
            Some(at) if was_running => {
                // The kernel has just written there.
                mem::write(at, &was.left);
            }
            None if was_running => {
                // As the kernel rounds it.
                let rounds_up = was.left[3] >= 500_000 || was.left[2] == 0;
                answer = (was.left[2] + u64::from(rounds_up)) as i64;
            }
            _ => {}
        }
        if self.set.is_some() {
            stop_one(timer, since);
        }
        answer
    }
}

/// Makes a call that sets a timer, or asks how much is left of one. A thread may come
/// here when another has stopped the timers of its process already: it finds them as if
/// they were not.
pub fn call(thread: &Thread, number: u64, args: &[u64; 6]) -> i64 {
    let process = thread.process();
    let Some(call) = Call::of(number, args) else {
        // SAFETY: the program's own call; the kernel says what is wrong with it.
        return unsafe { arch::syscall(number, args) };
    };
    // The others count what the process computes, which it does not while it is
    // halted.
    if call.kind == kind::INTERVAL && call.id != 0 {
        return call.make(number, args);
    }
    if call.set.is_some_and(|set| set[2..] != [0; 2]) {
        remember(thread, call.kind, call.id);
    }
    let state = take_any(process);
    let of_it = |timer: &&Cell<Timer>| timer.get().is(call.kind, call.id);
    let known = process.timers.iter().find(of_it);
    if let (Some(place), Some(set)) = (known, call.set) {
        let is_set = set[2..] != [0; 2];
        place.set(Timer {
            is_set,
            ..place.get()
        });
    }
    let answer = match known.filter(|_| state != 0) {
        Some(place) => {
            let mut timer = place.get();
            let since = process.timers_span.get();
            let answer = call.make_of_stopped(number, args, &mut timer, &since);
            place.set(timer);
            answer
        }
        None => call.make(number, args),
    };
    process.timers_stopped.store(state, Release);
    answer
}

/// A process that runs already has these, by kind and id, and perhaps an interval
/// timer. Whether it has any.
pub fn adopt(thread: &Thread, timers: &[[u32; 2]]) -> bool {
    for [kind, id] in timers {
        remember(thread, *kind, *id);
    }
    let mut left = [0u64; 4];
    let to = left.as_mut_ptr() as u64;
    if sys::call(nr::GETITIMER, 0, to, 0, 0, 0, 0) == 0 && left != [0; 4] {
        remember(thread, kind::INTERVAL, 0);
    }
    has_any(thread.process())
}

/// A process has this timer.
fn remember(thread: &Thread, kind: u32, id: u32) {
    let timers = &thread.process().timers;
    if timers.iter().any(|timer| timer.get().is(kind, id)) {
        return;
    }
    if let Some(place) = timers.iter().find(|timer| timer.get().kind == kind::NONE) {
        let is_set = true;
        place.set(Timer {
            kind,
            id,
            is_set,
            ..FREE
        });
    }
    // Somebody has to see to it when the program is halted, whatever they wait
    // for.
    let (pid, control) = (thread.process().pid.get(), control());
    for entry in &control.entries[..(control.entries_used.load(Acquire) as usize).min(THREADS_MAX)]
    {
        if entry.is_taken() && entry.pid.load(Relaxed) == pid {
            entry.flags.fetch_or(flag::PULL, AcqRel);
        }
    }
}

/// A process begins.
pub fn begin(process: &Process) {
    process.timers.iter().for_each(|timer| timer.set(FREE));
    process.timers_stopped.store(0, Relaxed);
}

/// The process is a fork's child: what it has is its descriptors'.
pub fn forked(process: &Process) {
    for timer in &process.timers {
        if timer.get().kind != kind::DESCRIPTOR {
            timer.set(FREE);
        }
    }
    process.timers_stopped.store(0, Relaxed);
}

/// The program is halted: the first of its threads to come here stops a process's
/// timers.
pub fn stop(thread: &Thread, halt: u32) {
    let process = thread.process();
    if !has_any(process) || !take(process, 0) {
        return;
    }
    process.timers_span.set(Span::begin());
    let alone = Alone::be();
    for timer in &process.timers {
        let mut it = timer.get();
        if it.kind != kind::NONE {
            stop_one(&mut it, &process.timers_span.get());
            timer.set(it);
        }
    }
    drop(alone);
    process.timers_stopped.store(halt, Release);
}

/// Stops a timer, and takes note of what was left of it when this span began: rather a
/// little more than less, because no timer may be early. One may forget what it
/// has to tell when it is stopped: if that is once, it is over and is left alone; else,
/// and if it comes to its end just now, it tells again as soon as it is set.
fn stop_one(timer: &mut Timer, since: &Span) {
    timer.left = [0; 4];
    let Some(before) = value_of(timer).filter(|value| value[2..] != [0; 2]) else {
        if core::mem::take(&mut timer.is_set) {
            note_fired();
        }
        return;
    };
    let has_to_tell = take_ticks(timer).unwrap_or_else(|| is_over(timer));
    let mut left = [0; 4];
    exchange(timer, &[0; 4], Some(&mut left));
    let forgets = match timer.kind {
        kind::DESCRIPTOR => true,
        kind::POSIX => drops_signals(),
        _ => false,
    };
    // It is less each time, unless it has begun anew, or is over.
    let has_come = left[2..] == [0; 2] || left[2..] > before[2..];
    if has_to_tell || has_come || may_have_ticked(timer, &left) {
        note_fired();
    }
    timer.left = match forgets && (has_to_tell || has_come) {
        true => [before[0], before[1], 0, 1],
        false => left,
    };
    timer.add(since.signed());
}

/// A timer came to its end before it was stopped, and that may have been after the halt was asked
/// for: what was told, or read, or sent by it then must not be early.
fn note_fired() {
    control().halt.note_fired(halt::now());
}

/// Whether a timer that repeats has come to its end since the halt was asked for, as far as
/// is known from what was left of it when it was stopped.
fn may_have_ticked(timer: &Timer, left: &[u64; 4]) -> bool {
    let unit = if timer.kind == kind::INTERVAL {
        1000
    } else {
        1
    };
    let ns = |[seconds, rest]: [u64; 2]| seconds * SECOND + rest * unit;
    // (It comes to its end for the first time when that was asked for.)
    let Some(since_last) = ns([left[0], left[1]]).checked_sub(ns([left[2], left[3]])) else {
        return false;
    };
    let (asked, now) = (control().halt.asked_at.get(), halt::now());
    left[..2] != [0; 2] && since_last <= now.0.saturating_sub(asked.0)
}

/// Whether the kernel takes the signal of a timer back that is set anew before the signal
/// has come to anybody: since Linux 6.13.
fn drops_signals() -> bool {
    const UNAME: u64 = 63;
    const FIELD: usize = 65;
    const SINCE: [u32; 2] = [6, 13];
    let mut names = [0u8; 6 * FIELD];
    sys::call(UNAME, names.as_mut_ptr() as u64, 0, 0, 0, 0, 0);
    let mut version = [0u32; 2];
    let release = names[2 * FIELD..].split(|byte| *byte == 0).next();
    let numbers = release.unwrap_or(&[]).split(|byte| !byte.is_ascii_digit());
    for (to, digits) in version.iter_mut().zip(numbers) {
        let sum = |sum: u32, digit: &u8| sum * 10 + u32::from(*digit - b'0');
        *to = digits.iter().take(4).fold(0, sum);
    }
    version >= SINCE
}

/// The interval of a timer, and what is left of it.
fn value_of(timer: &Timer) -> Option<[u64; 4]> {
    let mut value = [0u64; 4];
    let (id, to) = (u64::from(timer.id), value.as_mut_ptr() as u64);
    let answer = match timer.kind {
        kind::POSIX => sys::call(nr::TIMER_GETTIME, id, to, 0, 0, 0, 0),
        kind::DESCRIPTOR => sys::call(nr::TIMERFD_GETTIME, id, to, 0, 0, 0, 0),
        _ => sys::call(nr::GETITIMER, id, to, 0, 0, 0, 0),
    };
    (answer == 0).then_some(value)
}

/// Takes what a descriptor's timer has to tell: whether there was anything. Somebody who
/// has not stopped yet may read it in the same moment, and one of the two gets it. None: the
/// kernel cannot do that without waiting.
fn take_ticks(timer: &Timer) -> Option<bool> {
    const PREADV2: u64 = 327;
    const NOWAIT: u64 = 8;
    const HERE: u64 = u64::MAX;
    if timer.kind != kind::DESCRIPTOR {
        return Some(false);
    }
    let mut count = 0u64;
    let vector = [(&raw mut count) as u64, 8];
    let at = vector.as_ptr() as u64;
    match sys::call(PREADV2, timer.id.into(), at, 1, HERE, 0, NOWAIT) {
        8 => Some(true),
        error if error == -sys::EAGAIN => Some(false),
        _ => None,
    }
}

/// Whether a descriptor's timer has something to tell.
fn is_over(timer: &Timer) -> bool {
    const POLLIN: u32 = 1;
    let mut poll = [timer.id, POLLIN];
    let wait = |poll: &mut [u32; 2]| {
        let at = poll.as_mut_ptr() as u64;
        sys::call(nr::POLL, at, 1, 0, 0, 0, 0)
    };
    timer.kind == kind::DESCRIPTOR && wait(&mut poll) == 1
}

/// Somebody stops them, or sets them again.
const BUSY: u32 = u32::MAX;

/// Takes a process's timers, if they are in this state. Who comes late must not
/// stop them while somebody still sets them.
fn take(process: &Process, state: u32) -> bool {
    let word = &process.timers_stopped;
    loop {
        match word.compare_exchange(state, BUSY, AcqRel, Acquire) {
            Ok(_) => return true,
            Err(BUSY) => {
                sys::call(nr::SCHED_YIELD, 0, 0, 0, 0, 0, 0);
            }
            Err(_) => return false,
        }
    }
}

/// Takes a process's timers, in whatever state they are, and tells it: 0, or the halt
/// that has stopped them.
fn take_any(process: &Process) -> u32 {
    loop {
        let state = process.timers_stopped.load(Acquire);
        if state != BUSY && take(process, state) {
            return state;
        }
        sys::call(nr::SCHED_YIELD, 0, 0, 0, 0, 0, 0);
    }
}

/// And the first to go on sets them again.
pub fn go_on(thread: &Thread, halt: u32) {
    let process = thread.process();
    if !take(process, halt) {
        return;
    }
    let alone = Alone::be();
    for timer in &process.timers {
        let mut it = timer.get();
        let is_running = it.kind != kind::NONE && it.left[2..] != [0; 2];
        if is_running && !is_set_anew(&it) {
            it.add(-process.timers_span.get().signed());
            exchange(&it, &it.left, None);
        }
    }
    drop(alone);
    process.timers_stopped.store(0, Release);
}

/// Whether another process, which has the same descriptor, has set a timer meanwhile.
fn is_set_anew(timer: &Timer) -> bool {
    timer.kind == kind::DESCRIPTOR && value_of(timer).is_some_and(|now| now[2..] != [0; 2])
}

/// Nobody else of the program stops timers, or sets them again, as long as this lives: a
/// fork's child has the descriptors of its parent, and each would take what the other does
/// to a timer for its end. So the first has it, and to the others it is not running.
struct Alone;

impl Alone {
    /// How long it is waited (ns) for one who may have been killed in the middle of it.
    const LIMIT: u64 = 200_000_000;

    fn be() -> Alone {
        let word = &control().halt.timers;
        let begin = arch::counter();
        let is_over = || {
            let ticks = arch::counter().wrapping_sub(begin);
            control().halt.ns_of(ticks) > Alone::LIMIT
        };
        while word.compare_exchange(0, 1, AcqRel, Acquire).is_err() && !is_over() {
            sys::call(nr::SCHED_YIELD, 0, 0, 0, 0, 0, 0);
        }
        Alone
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        control().halt.timers.store(0, Release);
    }
}

/// A debugger has led the thread out of a halt that is over by now: nobody else may be
/// there to set the timers again.
pub fn go_on_late(thread: &Thread) {
    match thread.process().timers_stopped.load(Acquire) {
        0 | BUSY => {}
        halt => go_on(thread, halt),
    }
}

/// The monitor leaves: timers that a halt has stopped are set again.
pub fn go_on_for_good(thread: &Thread) {
    let halt = thread.process().timers_stopped.load(Acquire);
    if halt != 0 {
        go_on(thread, halt);
    }
}

fn has_any(process: &Process) -> bool {
    process
        .timers
        .iter()
        .any(|timer| timer.get().kind != kind::NONE)
}

/// Sets a timer, and says what was left of it.
fn exchange(timer: &Timer, value: &[u64; 4], left: Option<&mut [u64; 4]>) {
    let id = u64::from(timer.id);
    let new = value.as_ptr() as u64;
    let old = left.map_or(0, |left| left.as_mut_ptr() as u64);
    match timer.kind {
        kind::POSIX => sys::call(nr::TIMER_SETTIME, id, 0, new, old, 0, 0),
        kind::DESCRIPTOR => sys::call(nr::TIMERFD_SETTIME, id, 0, new, old, 0, 0),
        _ => sys::call(nr::SETITIMER, id, new, old, 0, 0, 0),
    };
}
