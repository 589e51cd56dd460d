//! Reading clocks. Programs do it so often that it has a way of its own: the
//! kernel's vdso is asked, or what it said a moment ago is carried on
//! ([`Running`]), and a few bytes go into the log.

use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::record::clock;
use protocol::shared::TICK_SHIFT;

use crate::state::{Thread, domain, space, thread};
use crate::sys::nr;
use crate::{arch, log, mem, motion, replay, signal, stretch, turn};

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
    /// The last look: the counter, seconds and nanoseconds.
    counter: Cell<u64>,
    now: Cell<[u64; 2]>,
    /// How many nanoseconds 2^32 ticks are; 0 = not known.
    rate: Cell<u64>,
    /// The look that `rate` is measured from: the counter, and nanoseconds.
    base: Cell<[u64; 2]>,
    /// The last that the program was told, in nanoseconds.
    told: Cell<u64>,
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

    /// Seconds and nanoseconds, if that can be said without a look.
    #[inline(always)]
    fn carried_on(&self, counter: u64) -> Option<[u64; 2]> {
        let since = counter.wrapping_sub(self.counter.get());
        if since >= Running::GOOD_FOR || self.rate.get() == 0 {
            return None;
        }
        let [mut seconds, mut nanoseconds] = self.now.get();
        nanoseconds += (since * self.rate.get()) >> 32;
        if nanoseconds >= SECOND {
            nanoseconds -= SECOND;
            seconds += 1;
        }
        // The counters of two cores may differ by a hair.
        let value = nanoseconds_of([seconds, nanoseconds]);
        if value < self.told.get() {
            return None;
        }
        self.told.set(value);
        Some([seconds, nanoseconds])
    }

    /// Asks the kernel. None: it takes a system call.
    #[cold]
    #[inline(never)]
    fn look(&self, id: u64) -> Option<[u64; 2]> {
        let before = arch::counter();
        let now = ask(id)?;
        let after = arch::counter();
        let value = nanoseconds_of(now);
        if after.wrapping_sub(before) <= Running::LOOK {
            self.learn(before.midpoint(after), now);
        } else {
            self.rate.set(0);
        }
        // What was told already was carried on, a few nanoseconds too far.
        let told = self.told.get();
        if told.wrapping_sub(value) < Running::OFF {
            return Some([told / SECOND, told % SECOND]);
        }
        self.told.set(value);
        Some(now)
    }

    fn learn(&self, counter: u64, now: [u64; 2]) {
        let value = nanoseconds_of(now);
        let [base_counter, base_value] = self.base.get();
        let stretch = counter.wrapping_sub(base_counter);
        let way = value.wrapping_sub(base_value);
        let since = counter.wrapping_sub(self.counter.get());
        let is_even = since < Running::STRETCH.end && way <= stretch << 1 && {
            let carried = nanoseconds_of(self.now.get()) + ((since * self.rate.get()) >> 32);
            self.rate.get() == 0 || carried.abs_diff(value) < Running::OFF
        };
        self.counter.set(counter);
        self.now.set(now);
        if !is_even {
            self.base.set([counter, value]);
            self.rate.set(0);
        } else if stretch >= Running::STRETCH.end {
            // The rate stays until it can be measured anew.
            self.base.set([counter, value]);
        } else if stretch >= Running::STRETCH.start {
            self.rate.set((way << 32) / stretch);
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

const SECOND: u64 = 1_000_000_000;

#[inline(always)]
fn nanoseconds_of([seconds, nanoseconds]: [u64; 2]) -> u64 {
    seconds.wrapping_mul(SECOND).wrapping_add(nanoseconds)
}

/// Asks the kernel for a clock. None: it takes a system call.
fn ask(id: u64) -> Option<[u64; 2]> {
    let function = space().vdso_clock.get();
    if function == 0 {
        return None;
    }
    // SAFETY: the address of __vdso_clock_gettime, found by the recorder in
    // this very vdso; it has this signature.
    let read: extern "C" fn(u64, *mut [u64; 2]) -> i32 =
        unsafe { core::mem::transmute::<u64, extern "C" fn(u64, *mut [u64; 2]) -> i32>(function) };
    let mut now = [0u64; 2];
    (read(id, &mut now) == 0).then_some(now)
}

/// Called from the vdso as a function: it may change what functions may
/// change. (The assembly around it is `arch::mw_fast`.)
pub extern "C" fn fast(first: u64, second: u64, number: u64) -> i64 {
    let thread = thread();
    thread.busy.store(1, Relaxed);
    let turns = space().turns.get() != 0;
    let is_long = thread.pending.load(Acquire) != 0
        || (turns && turn::is_wanted(domain()))
        || (replay::is_on() && motion::is_wanted(thread));
    let result = if is_long {
        None
    } else {
        read(thread, number, first, second)
            .filter(|result| !replay::is_on() || !replay::signal_follows(thread, *result))
    };
    if replay::is_on() && result.is_some() {
        let resume = thread.saved_rip.get();
        thread.saved_rip.set(stretch::begin(thread, resume));
    }
    thread.busy.store(0, Release);
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    if result.is_some() && thread.pending.load(Acquire) != 0 {
        signal::soon(thread);
    }
    result.unwrap_or(NOT_HERE)
}

/// Reads a clock for the program and logs it. None: it takes a system call.
pub fn read(thread: &Thread, number: u64, first: u64, second: u64) -> Option<i64> {
    if replay::is_on() {
        return replay::read_clock(thread, number, first, second);
    }
    let (how, id) = match (number, first as u32) {
        (nr::CLOCK_GETTIME, 1) => (clock::MONOTONIC, 1),
        (nr::CLOCK_GETTIME, 0) => (clock::REALTIME, 0),
        (nr::CLOCK_GETTIME, id @ (4 | 5 | 6 | 7 | 11)) => (clock::OTHER, u64::from(id)),
        (nr::GETTIMEOFDAY, _) if first != 0 && second == 0 => (clock::GETTIMEOFDAY, 0),
        // CLOCK_REALTIME_COARSE
        (nr::TIME, _) => (clock::TIME, 5),
        _ => return None,
    };
    let counter = arch::counter();
    let mut now = match thread.clocks.get(id as usize) {
        Some(running) => match running.carried_on(counter) {
            Some(now) => now,
            None => running.look(id)?,
        },
        None => ask(id)?,
    };
    let mut result = 0;
    let written = match how {
        clock::GETTIMEOFDAY => {
            now[1] = now[1] / 1000 * 1000;
            mem::write(first, &[now[0], now[1] / 1000])
        }
        clock::TIME => {
            now[1] = 0;
            result = now[0] as i64;
            first == 0 || mem::write(first, &now[0])
        }
        _ => mem::write(second, &now),
    };
    if !written {
        // The kernel says what is wrong with the address.
        return None;
    }
    let value = nanoseconds_of(now);
    log::clock(thread, how, id, value, counter >> TICK_SHIFT);
    Some(result)
}
