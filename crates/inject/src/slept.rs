//! How long a thread had waited when it was stopped.
//!
//! The kernel says when a thread last ran, by the clock of the processor on which that
//! was. Each processor has its own: what interrupts and other guests of the machine took
//! does not count, and so they are seconds apart after some days. So the clock of that
//! very processor is looked at, by a thread that goes there: this one. What passes between
//! the look and the stop is not counted: nobody knows how much of it others had, and a call
//! that is made again may last longer than it was to, but must not be over early.

use std::collections::BTreeMap;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::read_proc;

/// When a thread last ran, on which processor, and how often it had gone to sleep by
/// then.
#[derive(Clone, Copy)]
pub(crate) struct Slept {
    at: u64,
    processor: usize,
    times: u64,
}

impl Slept {
    /// Of a thread that sleeps: of one that runs it is not told when it began to.
    pub(crate) fn of(pid: i32, tid: i32) -> Option<Slept> {
        let (at, times) = sched_of(&format!("/proc/{pid}/task/{tid}/sched"))?;
        let stat = read_proc(&format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        // The state is the third field of the line, the processor the 39th.
        let is_asleep = fields.next() == Some("S");
        let processor = fields.nth(35)?.parse().ok()?;
        is_asleep.then_some(Slept {
            at,
            processor,
            times,
        })
    }

    /// How long ago that was when the clocks were looked at: if the thread has not run
    /// between the look and its stop, which is a sleep itself.
    pub(crate) fn until(self, clocks: &Clocks, pid: i32, tid: i32) -> Option<u64> {
        let clock = clocks.0.get(&self.processor)?;
        let (_, times) = sched_of(&format!("/proc/{pid}/task/{tid}/sched"))?;
        let waited = clock.checked_sub(self.at)?;
        (times == self.times + 1).then_some(waited)
    }
}

/// When who is asked about last ran, and how often it has gone to sleep.
fn sched_of(path: &str) -> Option<(u64, u64)> {
    let text = read_proc(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.rsplit_once(':')?.1.trim())
    };
    let (ms, rest) = value("se.exec_start")?.split_once('.')?;
    let at = ms.parse::<u64>().ok()? * 1_000_000 + rest.parse::<u64>().ok()?;
    Some((at, value("nr_voluntary_switches")?.parse().ok()?))
}

/// The clocks of processors: what each shows (ns), at least.
#[derive(Default)]
pub(crate) struct Clocks(BTreeMap<usize, u64>);

impl Clocks {
    /// Looks at those on which threads went to sleep.
    pub(crate) fn of(slept: impl Iterator<Item = Slept>) -> Clocks {
        let processors: std::collections::BTreeSet<usize> =
            slept.map(|slept| slept.processor).collect();
        let this = Pid::from_raw(0);
        let Ok(before) = sched_getaffinity(this) else {
            return Clocks::default();
        };
        let clock = |processor: usize| {
            let mut only = CpuSet::new();
            only.set(processor).ok()?;
            sched_setaffinity(this, &only).ok()?;
            // What is noted of it is not always the last.
            (0..2).filter_map(|_| look()).max()
        };
        let clocks = processors.into_iter();
        let clocks = clocks.filter_map(|it| Some((it, clock(it)?))).collect();
        let _ = sched_setaffinity(this, &before);
        Clocks(clocks)
    }
}

/// What the clock of the processor that this runs on shows, at least.
fn look() -> Option<u64> {
    // Its time is noted when it gives way.
    std::thread::yield_now();
    let (at, _) = sched_of("/proc/thread-self/sched")?;
    Some(at)
}

/// CLOCK_MONOTONIC.
pub(crate) fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| {
        now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A thread that sleeps is said to have slept for as long as it has, and not longer,
    /// wherever it went to sleep and whoever asks.
    #[test]
    fn how_long_a_thread_has_slept_is_known() {
        let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let pid = std::process::id() as i32;
        for processor in (0..CpuSet::count()).filter(|it| all.is_set(*it).unwrap_or(false)) {
            let (say, said) = std::sync::mpsc::channel();
            let sleeper = std::thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor).unwrap();
                sched_setaffinity(Pid::from_raw(0), &only).unwrap();
                std::thread::yield_now();
                say.send((nix::unistd::gettid().as_raw(), now_ns()))
                    .unwrap();
                // (Not until the end: its joiner wakes it.)
                std::thread::park_timeout(Duration::from_secs(60));
            });
            let (tid, began) = said.recv().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            let Some(mut slept) = Slept::of(pid, tid) else {
                // A kernel that does not tell.
                sleeper.thread().unpark();
                sleeper.join().unwrap();
                continue;
            };
            let clocks = Clocks::of([slept].into_iter());
            let now = now_ns();
            // (As if it had been stopped.)
            slept.times -= 1;
            let waited = slept.until(&clocks, pid, tid).unwrap();
            assert!(waited <= now - began, "{waited} of {}", now - began);
            assert!(waited > 100_000_000, "{waited} of {}", now - began);
            sleeper.thread().unpark();
            sleeper.join().unwrap();
        }
    }
}
