//! The time limits of calls that wait: what is left of each, by the program's time,
//! and how it is changed from outside.
//!
//! A change is left in the thread's entry, and the thread is taken out of its call to
//! find it; it makes the call again with what it is given (the monitor's `time.rs`).

use std::collections::HashMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

use protocol::halt::{ThreadEntry, flag, limit, on_limit, state};
use protocol::shared::Control;
use serde::{Deserialize, Serialize};

use crate::halting::{Halter, now};

/// A wait with a time limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout {
    pub pid: u32,
    pub tid: u32,
    /// Numbers as in a recording.
    pub process: u32,
    pub thread: u32,
    /// The call, by its number.
    pub call: u64,
    /// How much is left of it, by the program's time.
    pub left_ns: u64,
    /// It does not get less.
    pub is_frozen: bool,
}

/// What is to become of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It is so much longer (shorter, if that is less than nothing).
    Extend { ns: i64 },
    /// It gets no less from now on.
    Freeze,
    /// It does again.
    Thaw,
    /// It is over now.
    Fire,
    /// There is none any more.
    Drop,
}

/// A limit that was frozen: of which wait, and what was left.
#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    since: u64,
    left_ns: u64,
}

/// Far longer than anybody waits; and still a length that can be added to others.
const LONG: u64 = 100 * 365 * 24 * 3600 * 1_000_000_000;

/// The program's time-stamp counter: it stands while the program is halted.
fn ticks(control: &Control) -> u64 {
    let halt = &control.halt;
    let now = match halt.is_on() && halt.real_time.load(Relaxed) == 0 {
        true => halt.asked_at.get().1,
        false => now().1,
    };
    now.wrapping_sub(halt.shift_ticks.load(Acquire))
}

/// One of the program's clocks (ns).
fn clock(control: &Control, is_realtime: bool) -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let halt = &control.halt;
    let time = clock_gettime(match is_realtime {
        true => ClockId::Realtime,
        false => ClockId::Monotonic,
    });
    let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let halted = match halt.is_on() && halt.real_time.load(Relaxed) == 0 {
        true => now().0.saturating_sub(halt.asked_at.get().0),
        false => 0,
    };
    ns.saturating_sub(halt.shift.load(Acquire))
        .saturating_sub(halted)
}

/// What is left of the limit of the call that a thread waits in. None: it has none.
fn left(control: &Control, entry: &ThreadEntry) -> Option<u64> {
    let is_in_call = match entry.state.load(Acquire) {
        state::CALL | state::SENDS => true,
        state::STOPPED => entry.stopped_in.load(Relaxed) == protocol::halt::stopped_in::CALL,
        _ => false,
    };
    if !is_in_call {
        return None;
    }
    match entry.limit.load(Relaxed) {
        limit::NONE => None,
        limit::UNTIL => {
            let until = entry.until.load(Relaxed);
            let is_realtime = entry.until_clock.load(Relaxed) == limit::REALTIME;
            Some(until.saturating_sub(clock(control, is_realtime)))
        }
        length => {
            let ticks = ticks(control).wrapping_sub(entry.since.load(Relaxed));
            // What began after the halt was asked for.
            let passed = match ticks as i64 {
                1.. => control.halt.ns_of(ticks),
                _ => 0,
            };
            Some(length.saturating_sub(passed))
        }
    }
}

/// All waits that have a limit.
pub fn list(control: &Control, halter: &Halter<'_>, frozen: &HashMap<u32, Frozen>) -> Vec<Timeout> {
    let waits = halter.entries().filter_map(|entry| {
        let tid = entry.tid.load(Acquire);
        let changed = entry.extended.load(Acquire);
        let left = left(control, entry)?.saturating_add_signed(changed);
        let kept = frozen
            .get(&tid)
            .filter(|kept| kept.since == entry.since.load(Relaxed));
        if kept.is_none() && (left > LONG / 2 || entry.on_limit.load(Relaxed) == on_limit::DROP) {
            return None;
        }
        Some(Timeout {
            pid: entry.pid.load(Relaxed),
            tid,
            process: entry.process.load(Relaxed),
            thread: entry.thread.load(Relaxed),
            call: entry.call.load(Relaxed).checked_sub(1)?,
            left_ns: kept.map_or(left, |kept| kept.left_ns),
            is_frozen: kept.is_some(),
        })
    });
    let mut waits: Vec<Timeout> = waits.collect();
    waits.sort_by_key(|wait| (wait.left_ns, wait.process, wait.thread));
    waits
}

/// Changes the limit of one thread's wait, or of all; how many that were.
pub fn change(
    control: &Control,
    halter: &mut Halter<'_>,
    frozen: &mut HashMap<u32, Frozen>,
    tid: Option<u32>,
    change: Change,
) -> u32 {
    // A limit must not be over while it is changed.
    let was_halted = control.halt.is_on();
    if !was_halted {
        halter.halt(Duration::from_secs(1));
    }
    let entries: Vec<&ThreadEntry> = halter.entries().collect();
    let mut count = 0;
    for entry in entries {
        let own = entry.tid.load(Acquire);
        let Some(left) = left(control, entry).filter(|_| tid.is_none_or(|tid| tid == own)) else {
            continue;
        };
        let left = left.saturating_add_signed(entry.extended.load(Acquire));
        let since = entry.since.load(Relaxed);
        let by = |wanted: u64| i64::try_from(wanted).unwrap_or(i64::MAX) - left as i64;
        match change {
            Change::Extend { ns } => {
                if let Some(kept) = frozen.get_mut(&own).filter(|kept| kept.since == since) {
                    kept.left_ns = kept.left_ns.saturating_add_signed(ns);
                } else {
                    entry.extended.fetch_add(ns, AcqRel);
                }
            }
            Change::Freeze => {
                frozen.insert(
                    own,
                    Frozen {
                        since,
                        left_ns: left,
                    },
                );
                entry.extended.fetch_add(by(LONG), AcqRel);
            }
            Change::Thaw => match frozen.remove(&own).filter(|kept| kept.since == since) {
                Some(kept) => drop(entry.extended.fetch_add(by(kept.left_ns), AcqRel)),
                None => continue,
            },
            Change::Fire => entry.on_limit.store(on_limit::FIRE, Relaxed),
            Change::Drop => entry.on_limit.store(on_limit::DROP, Relaxed),
        }
        if matches!(change, Change::Fire | Change::Drop) {
            frozen.remove(&own);
        }
        entry.flags.fetch_or(flag::LEAVE, AcqRel);
        halter.tell(entry);
        count += 1;
    }
    if !was_halted {
        halter.resume();
    }
    count
}
