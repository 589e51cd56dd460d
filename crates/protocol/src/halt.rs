//! Halting a program, and the time that it does not see: what of it lies in the
//! arena.
//!
//! [`Halt::word`] says whether the program is halted. Every thread has a
//! [`ThreadEntry`], which says in which state it is. A thread that computes is told by
//! a signal and stops in its handler; one that is in the monitor looks at the
//! word before it goes on into the program; one that waits in the kernel stays
//! there, and looks when it comes back. So nothing is broken off, and a halt is
//! no event.
//!
//! The program's clocks show real time less [`Halt::shift`], to which the length
//! of each halt is added when it ends.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

mod thread;

pub use thread::{
    Called, LEFT_IN_MEMORY, REGISTERS, THREADS_MAX, ThreadEntry, flag, limit, on_limit, state,
    stopped_in,
};

#[repr(C, align(64))]
#[derive(Default)]
pub struct Halt {
    /// A futex. 0: the program runs; else the number of the halt that is on.
    pub word: AtomicU32,
    /// How many halts there have been.
    pub count: AtomicU32,
    /// The last halt that was ended.
    pub ended: AtomicU32,
    /// Not 0: halts are not taken out of the program's time.
    pub real_time: AtomicU32,
    /// By how much the program's clocks are behind (ns), and its time-stamp
    /// counter (ticks).
    pub shift: AtomicU64,
    pub shift_ticks: AtomicU64,
    /// How many nanoseconds 2^32 ticks are.
    pub rate: AtomicU64,
    /// The rest is not looked at while the program runs.
    pub asked_at: Moment,
    /// When all who ran had been sent the signal: from then on nobody runs another
    /// instruction of the program, though who is not on a processor stops later.
    pub told_at: Moment,
    /// When a timer of the program's was found to have come to its end since the halt was asked
    /// for: its time has run until then, or what the timer leads to would be early.
    pub fired_at: Moment,
    /// The last halt that is complete: everybody who was to stop had. Who stops in it
    /// later (a thread that has just begun, one that is taken out of the call it waits in)
    /// has run nothing of the program since, and does not count.
    pub complete: AtomicU32,
    /// From when on the program stood still in that halt.
    pub stood_at: Moment,
    /// A futex: bumped whenever a thread stops.
    pub arrivals: AtomicU32,
    /// Who moves the program now: one at a time (the thread's id, a lock).
    pub mover: AtomicU32,
    /// Not 0: the monitor is about to leave the program. Who is halted stops at the
    /// edge of a call, and not in the middle of one.
    pub leaving: AtomicU32,
    /// Who stops timers of descriptors now, or sets them again: one at a time (a lock).
    pub timers: AtomicU32,
    pub log: Log,
}

/// The last halts that are over, each at its number. Written by who ends one.
#[repr(C)]
pub struct Log([Past; LOGGED]);

/// So many halts are remembered one by one.
pub const LOGGED: usize = 1024;

#[repr(C)]
#[derive(Default)]
struct Past {
    /// 0: nothing is here, or it is being written.
    number: AtomicU32,
    is_seen: AtomicU32,
    from: AtomicU64,
    to: AtomicU64,
}

/// A halt that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub number: u32,
    /// From when the program stood still, and until when (CLOCK_MONOTONIC, ns).
    pub from: u64,
    pub to: u64,
    /// It was not taken out of the program's time.
    pub is_seen: bool,
}

impl Default for Log {
    fn default() -> Log {
        Log(core::array::from_fn(|_| Past::default()))
    }
}

impl Log {
    fn at(&self, number: u32) -> Option<&Past> {
        self.0.get(number as usize % LOGGED)
    }

    fn add(&self, span: Span) {
        let Some(past) = self.at(span.number) else {
            return;
        };
        past.number.swap(0, AcqRel);
        past.from.store(span.from, Relaxed);
        past.to.store(span.to, Relaxed);
        past.is_seen.store(span.is_seen.into(), Relaxed);
        past.number.store(span.number, Release);
    }

    /// A halt by its number. None: it is not over, or was too long ago.
    pub fn get(&self, number: u32) -> Option<Span> {
        let past = self.at(number)?;
        let is_it = || number != 0 && past.number.load(Acquire) == number;
        if !is_it() {
            return None;
        }
        let span = Span {
            number,
            from: past.from.load(Acquire),
            to: past.to.load(Acquire),
            is_seen: past.is_seen.load(Acquire) != 0,
        };
        is_it().then_some(span)
    }
}

/// A moment, by both clocks.
#[repr(C)]
#[derive(Default)]
pub struct Moment {
    /// CLOCK_MONOTONIC.
    pub ns: AtomicU64,
    /// The time-stamp counter.
    pub ticks: AtomicU64,
}

/// How often both clocks are looked at to have them at one moment: who looks may be made
/// to wait between the two, and what is between them would be time that the program sees
/// by the one clock and not by the other.
pub const LOOKS: u32 = 4;

/// A moment, by both clocks: CLOCK_MONOTONIC in ns, and the time-stamp counter.
pub type Instant = (u64, u64);

impl Moment {
    pub fn set(&self, (ns, ticks): Instant) {
        self.ns.store(ns, Relaxed);
        self.ticks.store(ticks, Release);
    }
    pub fn get(&self) -> Instant {
        (self.ns.load(Acquire), self.ticks.load(Relaxed))
    }
}

impl Halt {
    /// Whether a halt is on.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.word.load(Relaxed) != 0
    }

    /// Asks for a halt; its number.
    pub fn begin(&self, now: Instant) -> u32 {
        self.asked_at.set(now);
        self.told_at.set((0, 0));
        self.fired_at.set((0, 0));
        let number = self.count.fetch_add(1, AcqRel).wrapping_add(1).max(1);
        self.word.store(number, SeqCst);
        number
    }

    /// A timer has come to its end since the halt was asked for, by now. (Before whoever found it
    /// has stopped.)
    pub fn note_fired(&self, now: Instant) {
        self.fired_at.ns.fetch_max(now.0, AcqRel);
        self.fired_at.ticks.fetch_max(now.1, AcqRel);
    }

    /// Everybody who is to stop in halt `number` has: from when on the program stands still
    /// is known, and no later stop changes it.
    pub fn mark_complete(&self, number: u32, entries: &[ThreadEntry]) {
        if number == 0 || self.word.load(Acquire) != number || self.complete.load(Acquire) == number
        {
            return;
        }
        self.stood_at.set(self.stood_still(number, entries));
        self.complete.store(number, Release);
    }

    /// Ends halt `number`: its length is taken out of the program's time, and
    /// the word is 0 (whose futex is the caller's to wake). None: somebody else
    /// has ended it; else the length in ns.
    pub fn end(&self, number: u32, entries: &[ThreadEntry], now: Instant) -> Option<u64> {
        let before = self.ended.load(Acquire);
        if number == 0
            || before == number
            || self
                .ended
                .compare_exchange(before, number, AcqRel, Relaxed)
                .is_err()
        {
            return None;
        }
        let last = self.stood_still(number, entries);
        let length = now.0.saturating_sub(last.0);
        let is_seen = self.real_time.load(Relaxed) != 0;
        if !is_seen {
            self.shift.fetch_add(length, AcqRel);
            let ticks = now.1.saturating_sub(last.1);
            self.shift_ticks.fetch_add(ticks, AcqRel);
        }
        self.log.add(Span {
            number,
            from: last.0,
            to: last.0.saturating_add(length),
            is_seen,
        });
        self.word.store(0, SeqCst);
        Some(length)
    }

    /// From when on the program stands still in a halt, as far as threads have
    /// stopped.
    pub fn stood_still(&self, number: u32, entries: &[ThreadEntry]) -> Instant {
        if number != 0 && self.complete.load(Acquire) == number {
            return self.stood_at.get();
        }
        // Time stands still from when the last one stopped, or could have: nobody
        // has seen a later one. (Who came back from the kernel since has seen none at all.)
        let stopped = entries
            .iter()
            .filter(|entry| {
                entry.is_taken()
                    && entry.halt.load(Acquire) == number
                    && entry.stopped_in.load(Relaxed) != stopped_in::CALL
            })
            .map(|entry| {
                let stop = entry.stopped_at.get();
                // (Who had its clock read when it was told has seen a later time.)
                let computed = entry.stopped_in.load(Relaxed) == stopped_in::PROGRAM
                    && entry.ran_on.load(Relaxed) == 0;
                let told = self.told_at.get();
                match computed && told.0 != 0 {
                    true => (stop.0.min(told.0), stop.1.min(told.1)),
                    false => stop,
                }
            });
        let fired = self.fired_at.get();
        let timers = [self.asked_at.get(), fired].into_iter();
        timers.chain(stopped).fold((0, 0), |last, stop| {
            (last.0.max(stop.0), last.1.max(stop.1))
        })
    }

    /// Nanoseconds in ticks of the counter.
    pub fn ticks_of(&self, ns: u64) -> u64 {
        let rate = u128::from(self.rate.load(Relaxed)).max(1);
        u64::try_from((u128::from(ns) << 32) / rate).unwrap_or(u64::MAX)
    }

    /// Ticks of the counter in nanoseconds.
    pub fn ns_of(&self, ticks: u64) -> u64 {
        let rate = u128::from(self.rate.load(Relaxed));
        u64::try_from((u128::from(ticks) * rate) >> 32).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (Halt, [ThreadEntry; 3]) {
        Default::default()
    }

    #[test]
    fn time_stands_still_from_the_last_stop_to_the_end() {
        let (halt, entries) = fresh();
        let number = halt.begin((1000, 10));
        for (entry, at) in entries.iter().zip([(1200, 12), (1700, 17)]) {
            assert!(entry.take(7));
            assert!(!entry.is_still());
            entry.stopped_at.set(at);
            entry.halt.store(number, Release);
            entry.state.store(state::STOPPED, SeqCst);
            assert!(entry.is_still());
        }
        // One that comes back from the kernel meanwhile.
        let back = &entries[2];
        assert!(back.take(7));
        back.stopped_at.set((3000, 30));
        back.stopped_in.store(stopped_in::CALL, Relaxed);
        back.halt.store(number, Release);
        assert_eq!(halt.end(number, &entries, (5700, 57)), Some(4000));
        assert_eq!(halt.end(number, &entries, (5800, 58)), None);
        assert!(!halt.is_on());
        assert_eq!(halt.shift.load(Relaxed), 4000);
        assert_eq!(halt.shift_ticks.load(Relaxed), 40);
        let span = Span {
            number,
            from: 1700,
            to: 5700,
            is_seen: false,
        };
        assert_eq!(halt.log.get(number), Some(span));
        for other in [0, number + 1, number + LOGGED as u32] {
            assert_eq!(halt.log.get(other), None);
        }
    }

    #[test]
    fn who_stands_again_has_stood_all_the_time() {
        let (halt, entries) = fresh();
        let asked = (1000, 10);
        let number = halt.begin(asked);
        for (entry, place) in entries.iter().zip([stopped_in::PROGRAM, stopped_in::CALL]) {
            assert!(entry.take(7));
            entry.stop(number, asked, place, (1200, 12));
        }
        for entry in &entries[..2] {
            entry.state.store(state::RUNS, SeqCst);
            entry.stop(number, asked, stopped_in::EXIT, (5000, 50));
            assert!(entry.is_still());
        }
        assert_eq!(halt.end(number, &entries, (5700, 57)), Some(4500));
        // In another halt it stops anew.
        let number = halt.begin((6000, 60));
        entries[0].stop(number, (6000, 60), stopped_in::EXIT, (6500, 65));
        assert_eq!(halt.end(number, &entries, (7500, 75)), Some(1000));
    }

    #[test]
    fn time_runs_until_the_last_timer_that_came_to_its_end() {
        let (halt, entries) = fresh();
        let asked = (1000, 10);
        let number = halt.begin(asked);
        // One that waited for the timer, and one that has stopped earlier.
        assert!(entries[0].take(7) && entries[1].take(8));
        entries[1].stop(number, asked, stopped_in::PROGRAM, (1200, 12));
        halt.note_fired((2000, 20));
        halt.note_fired((1900, 19));
        entries[0].stop(number, asked, stopped_in::CALL, (2100, 21));
        assert_eq!(halt.end(number, &entries, (5000, 50)), Some(3000));
        // Another halt knows nothing of it.
        let number = halt.begin((6000, 60));
        assert_eq!(halt.end(number, &entries, (7000, 70)), Some(1000));
    }

    #[test]
    fn who_stops_in_a_complete_halt_does_not_count() {
        let (halt, entries) = fresh();
        let asked = (1000, 10);
        let number = halt.begin(asked);
        assert!(entries[0].take(7) && entries[1].take(8));
        entries[0].stop(number, asked, stopped_in::PROGRAM, (1200, 12));
        entries[1].state.store(state::CALL, SeqCst);
        halt.mark_complete(number, &entries);
        // Out of the call that it waited in, and one that has just begun.
        entries[1].stop(number, asked, stopped_in::EXIT, (4000, 40));
        assert!(entries[2].take(9));
        entries[2].stop(number, asked, stopped_in::EXIT, (5000, 50));
        assert_eq!(halt.stood_still(number, &entries), (1200, 12));
        // Once is for good; another halt's number says nothing of this one.
        halt.mark_complete(number, &entries);
        halt.mark_complete(number + 1, &entries);
        assert_eq!(halt.end(number, &entries, (5700, 57)), Some(4500));
        // The next one is its own.
        let number = halt.begin((6000, 60));
        entries[0].stop(number, (6000, 60), stopped_in::EXIT, (6500, 65));
        assert_eq!(halt.end(number, &entries, (7500, 75)), Some(1000));
        halt.mark_complete(number, &entries);
        assert_ne!(halt.complete.load(Relaxed), number);
    }

    #[test]
    fn a_call_is_still_unless_it_is_seen_by_others_or_must_be_left() {
        let (_, entries) = fresh();
        let entry = &entries[0];
        assert!(entry.take(7) && !entry.take(8));
        entry.state.store(state::CALL, SeqCst);
        assert!(entry.is_still());
        entry.flags.store(flag::PULL, Relaxed);
        assert!(!entry.is_still());
        entry.state.store(state::SENDS, SeqCst);
        assert!(!entry.is_still());
    }

    #[test]
    fn real_time_shows_the_halt() {
        let (halt, entries) = fresh();
        halt.real_time.store(1, Relaxed);
        let number = halt.begin((1000, 10));
        assert_eq!(halt.end(number, &entries, (2000, 20)), Some(1000));
        assert_eq!(halt.shift.load(Relaxed), 0);
        assert!(halt.log.get(number).is_some_and(|span| span.is_seen));
    }
}
