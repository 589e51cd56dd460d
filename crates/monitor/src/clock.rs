//! Reading clocks. Programs do it so often that it has a way of its own: the
//! kernel's vdso is asked, or what it said a moment ago is carried on
//! ([`Running`]), and a few bytes go into the log.

use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::record::clock;
use protocol::shared::TICK_SHIFT;

use crate::state::{Thread, domain, space, thread};
use crate::sys::nr;
use crate::time::{self, SECOND};
use crate::{arch, interruption_search, live, log, mem, mode, motion, replay, signal, turn};

/// What `fast` returns when the call has to go the long way.
pub const NOT_HERE: i64 = i64::MIN;

/// A clock of the kernel's, carried on by the time-stamp counter.
///
/// The kernel makes its clocks from the same counter, but takes twice as long
/// for it: it must wait for what was begun before, and for nobody changing the
/// clock meanwhile. Here its clock is looked at every tenth of a millisecond,
/// and how fast it goes is measured over tenths of a second, so that both differ
/// by some tens of nanoseconds. A clock that is set, or that the kernel does not make
/// from the counter, is found out at the next look, and asked for each time
/// until it runs evenly again.
#[repr(C)]
pub struct Running {
    /// The last look: the counter, and what the clock showed.
    counter: Cell<u64>,
    now: Cell<Time>,
    /// How many nanoseconds 2^32 ticks are; 0 = not known.
    rate: Cell<u64>,
    /// The look that `rate` is measured from: the counter, and nanoseconds.
    base: Cell<[u64; 2]>,
    /// The last that the program was told, in nanoseconds.
    told: Cell<u64>,
    /// By how much all of these are behind (see `time`).
    shift: Cell<u64>,
}

impl Running {
    /// How many ticks a look is good for.
    const GOOD_FOR: u64 = 1 << 18;
    /// A look that takes longer was interrupted.
    const LOOK: u64 = 1000;
    /// The shortest and the longest stretch for measuring the rate.
    const STRETCH: core::ops::Range<u64> = 1 << 23..1 << 30;
    /// A clock that is so many nanoseconds off was set.
    const OFF: u64 = 2000;

    /// What it shows, if that can be said without a look.
    #[inline(always)]
    fn carried_on(&self, counter: u64) -> Option<Time> {
        let since = counter.wrapping_sub(self.counter.get());
        if since >= Running::GOOD_FOR || self.rate.get() == 0 || self.shift.get() != time::shift() {
            return None;
        }
        let looked = self.now.get();
        let way = (since * self.rate.get()) >> 32;
        let nanoseconds = looked.nanoseconds + way;
        let is_next = nanoseconds >= SECOND;
        let now = Time {
            seconds: looked.seconds + u64::from(is_next),
            nanoseconds: nanoseconds - if is_next { SECOND } else { 0 },
            value: looked.value + way,
        };
        // The counters of two cores may differ by a hair.
        if now.value < self.told.get() {
            return None;
        }
        self.told.set(now.value);
        Some(now)
    }

    /// Asks the kernel. None: it takes a system call.
    #[cold]
    #[inline(never)]
    fn look(&self, thread: &Thread, id: u64) -> Option<Time> {
        let shift = time::shift_of(thread);
        self.move_to(shift);
        let before = arch::counter();
        let now = ask(id)?.less(shift);
        let after = arch::counter();
        if after.wrapping_sub(before) <= Running::LOOK {
            self.learn(before.midpoint(after), now);
        } else {
            self.rate.set(0);
        }
        // What was told already was carried on, a few nanoseconds too far.
        let told = self.told.get();
        if told.wrapping_sub(now.value) < Running::OFF {
            return Some(Time::from_value(told));
        }
        self.told.set(now.value);
        Some(now)
    }

    fn learn(&self, counter: u64, now: Time) {
        let [base_counter, base_value] = self.base.get();
        let stretch = counter.wrapping_sub(base_counter);
        let way = now.value.wrapping_sub(base_value);
        let since = counter.wrapping_sub(self.counter.get());
        let is_even = since < Running::STRETCH.end && way <= stretch << 1 && {
            let carried = self.now.get().value + ((since * self.rate.get()) >> 32);
            self.rate.get() == 0 || carried.abs_diff(now.value) < Running::OFF
        };
        self.counter.set(counter);
        self.now.set(now);
        if !is_even {
            self.base.set([counter, now.value]);
            self.rate.set(0);
        } else if stretch >= Running::STRETCH.end {
            // The rate stays until it can be measured anew.
            self.base.set([counter, now.value]);
        } else if stretch >= Running::STRETCH.start {
            self.rate.set((way << 32) / stretch);
        }
    }

    /// The program was halted: its clocks are behind by this now.
    fn move_to(&self, shift: u64) {
        let by = shift.wrapping_sub(self.shift.replace(shift));
        if by != 0 {
            self.now.set(self.now.get().less(by));
            let [counter, value] = self.base.get();
            self.base.set([counter, value.wrapping_sub(by)]);
        }
    }

    /// The clock was set, perhaps.
    pub fn forget(&self) {
        self.rate.set(0);
        self.base.set([0; 2]);
        self.counter.set(0);
        self.told.set(0);
    }
}

/// What a clock shows.
#[derive(Clone, Copy)]
#[repr(C)]
struct Time {
    seconds: u64,
    nanoseconds: u64,
    /// All of it in nanoseconds.
    value: u64,
}

impl Time {
    fn new(seconds: u64, nanoseconds: u64) -> Time {
        let value = seconds.wrapping_mul(SECOND).wrapping_add(nanoseconds);
        Time {
            seconds,
            nanoseconds,
            value,
        }
    }
    /// So much earlier.
    fn less(self, by: u64) -> Time {
        match by {
            0 => self,
            _ => Time::from_value(self.value.wrapping_sub(by)),
        }
    }
    fn from_value(value: u64) -> Time {
        Time {
            seconds: value / SECOND,
            nanoseconds: value % SECOND,
            value,
        }
    }
}

/// Asks the kernel for a clock. None: it takes a system call.
fn ask(id: u64) -> Option<Time> {
    let function = space().vdso_clock.get();
    if function == 0 {
        return None;
    }
    // SAFETY: the address of __vdso_clock_gettime, found by the recorder in
    // this very vdso; it has this signature.
    let read: extern "C" fn(u64, *mut [u64; 2]) -> i32 =
        unsafe { core::mem::transmute::<u64, extern "C" fn(u64, *mut [u64; 2]) -> i32>(function) };
    let mut now = [0u64; 2];
    (read(id, &mut now) == 0).then(|| Time::new(now[0], now[1]))
}

/// Called from the vdso as a function: it may change what functions may
/// change. (The assembly around it is `arch::mw_fast`.)
pub extern "C" fn fast(first: u64, second: u64, number: u64) -> i64 {
    let thread = thread();
    thread.busy.store(1, Relaxed);
    let is_long = thread.pending.load(Acquire) != 0
        || thread.asked.load(Relaxed) != 0
        || (space().turns.get() != 0 && turn::is_wanted(domain()));
    let result = if mode::is_replay() {
        fast_again(thread, number, first, second, is_long)
    } else if is_long {
        None
    } else {
        tell(thread, number, first, second)
    };
    thread.busy.store(0, Release);
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    let attention = thread.pending.load(Acquire) | thread.asked.load(Relaxed);
    if result.is_some() && attention != 0 {
        if live::is_paused() {
            live::wait(thread);
        }
        signal::soon(thread);
    }
    result.unwrap_or(NOT_HERE)
}

/// [`fast`] in replay.
#[cold]
fn fast_again(thread: &Thread, number: u64, first: u64, second: u64, is_long: bool) -> Option<i64> {
    if is_long || motion::is_wanted(thread) {
        return None;
    }
    let result = replay::read_clock(thread, number, first, second)?;
    if replay::signal_follows(thread, result) {
        return None;
    }
    let resume = thread.saved_rip.get();
    thread
        .saved_rip
        .set(interruption_search::begin(thread, resume));
    Some(result)
}

/// Reads a clock for the program and logs it. None: it takes a system call.
pub fn read(thread: &Thread, number: u64, first: u64, second: u64) -> Option<i64> {
    if mode::is_replay() {
        return replay::read_clock(thread, number, first, second);
    }
    tell(thread, number, first, second)
}

#[inline(always)]
fn tell(thread: &Thread, number: u64, first: u64, second: u64) -> Option<i64> {
    match (number, first) {
        (nr::GETTIMEOFDAY, 1..) if second == 0 => {
            let (now, counter) = now(thread, REALTIME)?;
            let microseconds = now.nanoseconds / 1000;
            let rest = now.nanoseconds - microseconds * 1000;
            // If it cannot be written, the kernel says what is wrong.
            if !mem::write_pair(first, now.seconds, microseconds) {
                return None;
            }
            log::clock(thread, clock::GETTIMEOFDAY, 0, now.value - rest, counter);
            Some(0)
        }
        (nr::CLOCK_GETTIME, id @ (REALTIME | MONOTONIC)) => {
            let (now, counter) = now(thread, id)?;
            if !mem::write_pair(second, now.seconds, now.nanoseconds) {
                return None;
            }
            let how = match id {
                REALTIME => clock::REALTIME,
                _ => clock::MONOTONIC,
            };
            log::clock(thread, how, id, now.value, counter);
            Some(0)
        }
        _ => tell_other(thread, number, first, second),
    }
}

/// The kernel has answered a call about the time: if the program was halted, the
/// answer is put right. It is what the call returns.
pub fn put_right(thread: &Thread, number: u64, args: &[u64; 6], result: i64) -> i64 {
    let shift = time::shift_of(thread);
    if shift == 0 || result < 0 {
        return result;
    }
    let (seconds, ticks) = (shift / SECOND, shift / (SECOND / 100));
    match number {
        nr::CLOCK_GETTIME if time::is_shifted(args[0]) => {
            less_in_memory(args[1], 1, shift);
        }
        nr::GETTIMEOFDAY => less_in_memory(args[0], 1000, shift),
        nr::TIME => {
            let now = (result as u64).wrapping_sub(seconds);
            if args[0] != 0 {
                mem::write(args[0], &now);
            }
            return now as i64;
        }
        nr::TIMES => return result.wrapping_sub(ticks as i64),
        nr::SYSINFO => {
            if let Some(uptime) = mem::read::<u64>(args[0]) {
                mem::write(args[0], &uptime.saturating_sub(seconds));
            }
        }
        _ => {}
    }
    result
}

/// A time in the program's memory becomes an earlier one; `unit`: how many
/// nanoseconds its second word counts.
fn less_in_memory(at: u64, unit: u64, by: u64) {
    if let Some([seconds, rest]) = mem::read::<[u64; 2]>(at) {
        let time = Time::new(seconds, rest * unit).less(by);
        mem::write(at, &[time.seconds, time.nanoseconds / unit]);
    }
}

const REALTIME: u64 = 0;
const MONOTONIC: u64 = 1;
const REALTIME_COARSE: u64 = 5;

/// One of the clocks that are carried on, and the log's time.
#[inline(always)]
fn now(thread: &Thread, id: u64) -> Option<(Time, u64)> {
    let running = &thread.clocks[id as usize & 1];
    let counter = arch::counter();
    let now = match running.carried_on(counter) {
        Some(now) => now,
        None => running.look(thread, id)?,
    };
    Some((now, counter >> TICK_SHIFT))
}

/// Clocks that are rarely read.
#[inline(never)]
fn tell_other(thread: &Thread, number: u64, first: u64, second: u64) -> Option<i64> {
    match (number, first as u32) {
        // What is above the lower half of the register does not count.
        (nr::CLOCK_GETTIME, id @ (0 | 1)) if first != u64::from(id) => {
            tell(thread, number, u64::from(id), second)
        }
        (nr::CLOCK_GETTIME, id @ (4 | 5 | 6 | 7 | 11)) => {
            let now = ask(u64::from(id))?.less(time::shift_of(thread));
            if !mem::write_pair(second, now.seconds, now.nanoseconds) {
                return None;
            }
            let time = arch::ticks();
            log::clock(thread, clock::OTHER, u64::from(id), now.value, time);
            Some(0)
        }
        (nr::TIME, _) => {
            let seconds = ask(REALTIME_COARSE)?.less(time::shift_of(thread)).seconds;
            if first != 0 && !mem::write(first, &seconds) {
                return None;
            }
            let value = seconds.wrapping_mul(SECOND);
            log::clock(thread, clock::TIME, REALTIME_COARSE, value, arch::ticks());
            Some(seconds as i64)
        }
        _ => None,
    }
}
