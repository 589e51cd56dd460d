//! Halting the program, from outside: the word is set, those that run are told,
//! and it is waited until nobody does.
//!
//! What the threads do with it is the monitor's `halt.rs`; what both agree on is
//! `protocol::halt`.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use protocol::halt::{self, THREADS_MAX, ThreadEntry, flag, state};
use protocol::layout::PREEMPT_SIGNAL;
use protocol::shared::Control;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};

use crate::arena;

/// Who does not stop is told again after so long.
const AGAIN: Duration = Duration::from_micros(500);
/// Who is in a call that others see is likely to be through with it by then; if
/// not, it waits for somebody who has stopped.
const SENDS_NO_MORE: Duration = Duration::from_millis(2);
/// Who has not stopped by then may have been stopped by somebody else.
const IS_SUSPENDED: Duration = Duration::from_millis(5);

/// Who does not come, and waits for what nobody can cut short, is not waited for any longer than this.
const IS_STUCK: Duration = Duration::from_secs(1);

/// Threads that stand where the monitor can leave them.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// The process of each, and how it stands.
    pub come: Vec<(u32, inject::Departing)>,
    /// One that cannot come: its process, and those that share memory with that, are not among them.
    pub stuck: Option<Stop>,
}

/// Halts one program, again and again.
pub struct Halter<'a> {
    control: &'a Control,
    /// Processes that are known to be the program's: no other is ever signalled.
    known: HashMap<u32, OwnedFd>,
    /// Both clocks at some time past, for the rate of the one by the other.
    since: halt::Instant,
}

/// How a thread was stopped.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stop {
    pub pid: u32,
    pub tid: u32,
    /// Numbers as in a recording.
    pub process: u32,
    pub thread: u32,
    pub state: State,
    /// When it stopped, in ns after the halt was asked for. None: it was in the
    /// kernel already, or waited for its turn.
    pub after_ns: Option<u64>,
    /// The call that it is in, by its number.
    pub call: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It does not answer.
    Runs,
    /// In the program, where it computed.
    Computed,
    /// Before a call, or behind one.
    Edge,
    /// In a call that waits.
    Call,
    /// In a call that waits, and that others may see a part of.
    Sends,
    /// Waits for its turn (recordings).
    Turn,
    /// Waits for a child that has its memory, or for its new image.
    Away,
    /// Somebody else has stopped it (SIGSTOP, a tracer): it will halt before it
    /// goes on.
    Suspended,
}

/// How a halt went.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Halted {
    pub number: u32,
    /// All threads but those that are exempt, in the order in which they stopped.
    pub stops: Vec<Stop>,
    /// From the first that stopped to the last.
    pub skew_ns: u64,
    /// From the first that stopped to when all had been told: later than that no
    /// instruction of the program has run.
    pub told_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// Somebody did not stop in time: among those whose state is `runs`. (Others of
    /// them have just begun, and stop before their first instruction.)
    pub is_partial: bool,
}

impl<'a> Halter<'a> {
    pub fn new(control: &'a Control) -> Halter<'a> {
        Halter {
            control,
            known: HashMap::new(),
            since: now(),
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &'a ThreadEntry> + use<'a> {
        let used = (self.control.entries_used.load(Acquire) as usize).min(THREADS_MAX);
        self.control
            .entries
            .iter()
            .take(used)
            .filter(|entry| entry.is_taken())
    }

    /// Looks who there is, so that a halt need not.
    pub fn prepare(&mut self) {
        let pids: Vec<u32> = self.entries().map(pid_of).collect();
        for pid in pids {
            self.know(pid);
        }
        self.forget_the_dead();
    }

    /// Whether a process is one of the program's: it has the monitor's handler.
    fn know(&mut self, pid: u32) -> bool {
        if self.known.contains_key(&pid) {
            return true;
        }
        let Some(id) = Pid::from_raw(pid as i32) else {
            return false;
        };
        let Ok(fd) = rustix::process::pidfd_open(id, PidfdFlags::empty()) else {
            self.bury(pid);
            return false;
        };
        if has_ended(&fd) {
            self.bury(pid);
            return false;
        }
        let catches = catches_signal(pid);
        if catches {
            self.known.insert(pid, fd);
        }
        catches
    }

    /// Of a process that has ended, be it that nobody has waited for it yet, the
    /// entries are free.
    fn bury(&mut self, pid: u32) {
        self.known.remove(&pid);
        self.entries().for_each(|entry| entry.free_of(pid, 0));
    }

    /// Entries of processes that have been killed are free.
    fn forget_the_dead(&mut self) {
        let entries: Vec<(u32, BorrowedFd<'_>)> = self
            .known
            .iter()
            .map(|(pid, fd)| (*pid, fd.as_fd()))
            .collect();
        let mut polls: Vec<PollFd<'_>> = entries
            .iter()
            .map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        let none = rustix::event::Timespec::default();
        if rustix::event::poll(&mut polls, Some(&none)).unwrap_or(0) == 0 {
            return;
        }
        let dead: Vec<u32> = entries
            .iter()
            .zip(&polls)
            .filter(|(_, poll)| !poll.revents().is_empty())
            .map(|((pid, _), _)| *pid)
            .collect();
        for pid in dead {
            self.bury(pid);
        }
    }

    /// Halts the program. Waits at most so long for those who do not stop.
    pub fn halt(&mut self, limit: Duration) -> Halted {
        let begin = Instant::now();
        let number = self.begin();
        let halt = &self.control.halt;
        let mut told = begin.checked_sub(AGAIN).unwrap_or(begin);
        let is_partial = loop {
            let arrivals = halt.arrivals.load(Acquire);
            let age = begin.elapsed();
            let missing = self.missing(age);
            if missing.is_empty() || age >= limit {
                break !missing.is_empty();
            }
            if told.elapsed() >= AGAIN {
                self.tell_all(&missing);
                told = Instant::now();
                continue;
            }
            wait_briefly(&halt.arrivals, arrivals);
        };
        if !is_partial {
            self.mark_complete();
        }
        self.describe(number, begin, is_partial)
    }

    /// Everybody who is to stop has: who stops later in this halt does not count.
    pub fn mark_complete(&self) {
        let halt = &self.control.halt;
        halt.mark_complete(halt.word.load(Acquire), &self.control.entries);
    }

    /// Asks for a halt, if none is on; its number. Nobody is told yet.
    pub fn begin(&mut self) -> u32 {
        let halt = &self.control.halt;
        match halt.is_on() {
            false => halt.begin(now()),
            true => halt.word.load(Acquire),
        }
    }

    /// Who has not stopped, of those that are to, so long after it was asked for.
    pub fn missing(&self, age: Duration) -> Vec<&'a ThreadEntry> {
        self.missing_but(age, |entry| age >= IS_SUSPENDED && is_suspended(entry))
    }

    /// Who has not stopped, for one who knows by himself who cannot come because somebody
    /// has stopped it: to the kernel, whoever he traces is stopped again and again.
    pub fn missing_but(
        &self,
        age: Duration,
        cannot: impl Fn(&ThreadEntry) -> bool,
    ) -> Vec<&'a ThreadEntry> {
        let is_halted = |entry: &&ThreadEntry| {
            entry.has(flag::EXEMPT)
                || entry.is_still()
                || is_stuck_sending(entry, age)
                || cannot(entry)
        };
        self.entries().filter(|entry| !is_halted(entry)).collect()
    }

    /// Tells threads to stop. From then on nobody runs another instruction of the
    /// program.
    pub fn tell_all(&mut self, missing: &[&ThreadEntry]) {
        self.forget_the_dead();
        for entry in missing {
            self.tell(entry);
        }
        let told = &self.control.halt.told_at;
        if told.get().0 == 0 {
            told.set(now());
        }
    }

    /// The entry of a thread, if it has one.
    pub fn entry_of(&self, tid: u32) -> Option<&'a ThreadEntry> {
        self.entries()
            .find(|entry| entry.tid.load(Acquire) == tid && entry.namespace.load(Relaxed) == 0)
    }

    /// Tells a thread to stop; not one that is in the kernel, unless it must come.
    pub(crate) fn tell(&mut self, entry: &ThreadEntry) {
        let state = entry.state.load(Acquire);
        let is_pulled = entry.has(flag::PULL | flag::LEAVE);
        if state == state::RUNS || state == state::CALL && is_pulled {
            self.tell_to_come(entry);
        }
    }

    /// Sends a thread the signal.
    fn tell_to_come(&mut self, entry: &ThreadEntry) {
        // In this order: if another thread takes the entry in between, it is that one which keeps it
        // when the other is not found.
        let tid = entry.tid.load(Acquire);
        let pid = entry.pid.load(Relaxed);
        if tid == 0 || pid == 0 || entry.namespace.load(Relaxed) != 0 || !self.know(pid) {
            return;
        }
        // SAFETY: a plain system call, about a thread of a process that was seen
        // to be the program's.
        let answer =
            unsafe { libc::syscall(libc::SYS_tgkill, pid as i32, tid as i32, PREEMPT_SIGNAL) };
        if answer != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
            // It was killed. If the entry is another's by now, it stays so.
            entry.free(tid);
        }
    }

    /// Halts the program such that every thread is at the edge of a call, or computed:
    /// in none of the monitor's doing. Processes of which somebody does not come because nobody can
    /// take it out of its call are left out: who that is. If somebody else did not come in time, or
    /// there is nobody else, all go on as they were.
    pub fn gather(&mut self, limit: Duration) -> Result<Gathered, Option<Stop>> {
        let halt = &self.control.halt;
        for entry in self.entries() {
            entry.left_arg.store(0, Relaxed);
            entry.done.store(0, Relaxed);
            entry.elapsed.store(0, Relaxed);
            entry.flags.fetch_and(!flag::EXEMPT, AcqRel);
            entry.flags.fetch_or(flag::PULL, AcqRel);
        }
        // Who is halted in the middle of a call has to look again.
        if halt.is_on() {
            self.resume();
        }
        halt.leaving.store(1, Release);
        let number = halt.begin(now());
        let begin = Instant::now();
        let mut told = begin.checked_sub(AGAIN).unwrap_or(begin);
        loop {
            let arrivals = halt.arrivals.load(Acquire);
            let has_come = |entry: &ThreadEntry| {
                entry.halt.load(Acquire) == number
                    && entry.state.load(Acquire) == state::STOPPED
                    && entry.stopped_in.load(Relaxed) != halt::stopped_in::CALL
            };
            // Looked at once: who registers after that has not come, and what its entry says is
            // still of the one before.
            let (come, missing): (Vec<&ThreadEntry>, Vec<&ThreadEntry>) =
                self.entries().partition(|entry| has_come(entry));
            let is_stuck = begin.elapsed() >= IS_STUCK
                && !missing.is_empty()
                && missing.iter().all(|entry| is_uninterruptible(entry));
            let stays = |entry: &&ThreadEntry| {
                let mut stuck = missing.iter().map(|entry| pid_of(entry));
                stuck.any(|pid| share_memory(pid, pid_of(entry)))
            };
            let leave = match (missing.is_empty(), is_stuck) {
                (true, _) => come,
                (false, true) => come.into_iter().filter(|entry| !stays(entry)).collect(),
                (false, false) => Vec::new(),
            };
            if missing.is_empty() || !leave.is_empty() {
                self.mark_complete();
                let asked = halt.asked_at.get();
                return Ok(Gathered {
                    come: leave.into_iter().map(departing).collect(),
                    stuck: missing.first().map(|entry| stop_of(entry, number, asked)),
                });
            }
            if is_stuck || begin.elapsed() >= limit {
                let asked = halt.asked_at.get();
                let who = missing.first().map(|entry| stop_of(entry, number, asked));
                self.end_gathering();
                return Err(who);
            }
            if told.elapsed() >= AGAIN {
                self.forget_the_dead();
                for entry in missing {
                    // One that has registered since, too.
                    entry.flags.fetch_or(flag::PULL, AcqRel);
                    self.tell_to_come(entry);
                }
                told = Instant::now();
                continue;
            }
            wait_briefly(&halt.arrivals, arrivals);
        }
    }

    /// Who is left of those that were gathered goes on.
    pub fn end_gathering(&mut self) {
        self.control.halt.leaving.store(0, Release);
        self.resume();
    }

    /// A process is none of the program's any more.
    pub fn forget(&mut self, pid: u32) {
        self.bury(pid);
    }

    /// How a halt went that was asked for then.
    pub fn describe(&self, number: u32, begin: Instant, is_partial: bool) -> Halted {
        let asked = self.control.halt.asked_at.get();
        let mut stops: Vec<Stop> = self
            .entries()
            .filter(|entry| !entry.has(flag::EXEMPT))
            .map(|entry| stop_of(entry, number, asked))
            .collect();
        stops.sort_by_key(|stop| (stop.after_ns, stop.process, stop.thread));
        let times = || stops.iter().filter_map(|stop| stop.after_ns);
        let skew_ns = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        Halted {
            number,
            skew_ns,
            told_ns: match self.control.halt.told_at.get().0 {
                0 => 0,
                told => told.saturating_sub(asked.0 + times().min().unwrap_or(0)),
            },
            took_ns: u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX),
            is_partial,
            stops,
        }
    }

    /// Lets the program go on; how long it was halted, if it was.
    pub fn resume(&mut self) -> Option<Duration> {
        let halt = &self.control.halt;
        let number = halt.word.load(Acquire);
        let now = now();
        self.measure(now);
        let length = halt.end(number, &self.control.entries, now);
        arena::wake(&halt.word, i32::MAX);
        length.map(Duration::from_nanos)
    }

    /// Those who have stopped look again whether they are to.
    pub fn wake(&self) {
        arena::wake(&self.control.halt.word, i32::MAX);
    }

    /// How fast the one clock goes by the other: the longer they are looked at,
    /// the better it is known.
    pub fn measure(&self, now: halt::Instant) {
        let ticks = now.1.saturating_sub(self.since.1);
        let ns = now.0.saturating_sub(self.since.0);
        if ns > 1_000_000 && ticks != 0 {
            let rate = (u128::from(ns) << 32) / u128::from(ticks);
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.control.halt.rate.store(rate, Relaxed);
        }
    }

    /// Lets threads run on when the others are halted, or not any more; how many.
    pub fn exempt(&self, on: bool, who: impl Fn(&ThreadEntry) -> bool) -> u32 {
        let mut count = 0;
        for entry in self.entries().filter(|entry| who(entry)) {
            count += 1;
            match on {
                true => entry.flags.fetch_or(flag::EXEMPT, AcqRel),
                false => entry.flags.fetch_and(!flag::EXEMPT, AcqRel),
            };
        }
        self.wake();
        count
    }

    /// The processes of the program.
    pub fn pids(&self) -> std::collections::BTreeSet<u32> {
        self.entries().map(pid_of).collect()
    }

    /// What each thread does now.
    pub fn look(&self) -> Vec<Stop> {
        let halt = &self.control.halt;
        let number = halt.word.load(Acquire);
        let asked = halt.asked_at.get();
        let entries = self.entries();
        entries.map(|entry| stop_of(entry, number, asked)).collect()
    }
}

fn pid_of(entry: &ThreadEntry) -> u32 {
    entry.pid.load(Relaxed)
}

/// Whether the thread waits in a call that others see, for somebody who has
/// stopped.
fn is_stuck_sending(entry: &ThreadEntry, age: Duration) -> bool {
    age >= SENDS_NO_MORE && entry.state.load(Acquire) == state::SENDS
}

/// Whether somebody else has stopped the thread.
fn is_suspended(entry: &ThreadEntry) -> bool {
    matches!(kernels_state(entry), Some('T' | 't'))
}

/// Whether it waits for what nobody can cut short.
fn is_uninterruptible(entry: &ThreadEntry) -> bool {
    kernels_state(entry) == Some('D')
}

/// Whether two processes have one memory, as a child of `vfork` has its parent's. Where the kernel
/// does not say so they may.
fn share_memory(a: u32, b: u32) -> bool {
    const KCMP_VM: i32 = 1;
    // SAFETY: a plain system call that looks at two processes.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, a as i32, b as i32, KCMP_VM, 0, 0) };
    a == b || order <= 0
}

/// What a thread does, by the kernel's letter.
fn kernels_state(entry: &ThreadEntry) -> Option<char> {
    inject::state_of(pid_of(entry) as i32, entry.tid.load(Relaxed) as i32)
}

/// What a thread that has come is left with.
fn departing(entry: &ThreadEntry) -> (u32, inject::Departing) {
    let load = |word: &std::sync::atomic::AtomicU64| word.load(Acquire);
    let mut registers = [0; halt::REGISTERS];
    for (to, from) in registers.iter_mut().zip(&entry.registers) {
        *to = load(from);
    }
    let departing = inject::Departing {
        tid: entry.tid.load(Acquire) as i32,
        slot: entry.slot.load(Relaxed),
        registers,
        xstate_at: load(&entry.xstate_at),
        called_at: load(&entry.called_at),
        left_arg: entry.left_arg.load(Acquire),
        left: [load(&entry.left[0]), load(&entry.left[1])],
        done: load(&entry.done),
        elapsed: load(&entry.elapsed),
        stopped_ns: entry.stopped_at.get().0,
    };
    (pid_of(entry), departing)
}

fn stop_of(entry: &ThreadEntry, number: u32, asked: halt::Instant) -> Stop {
    let state = entry.state.load(Acquire);
    let has_stopped = state == state::STOPPED && entry.halt.load(Acquire) == number;
    let place = entry.stopped_in.load(Relaxed);
    let call = entry.call.load(Relaxed).checked_sub(1);
    let state = match state {
        state::STOPPED if place == halt::stopped_in::PROGRAM => State::Computed,
        state::STOPPED if place == halt::stopped_in::CALL => State::Call,
        state::STOPPED => State::Edge,
        state::CALL => State::Call,
        state::SENDS => State::Sends,
        state::TURN => State::Turn,
        state::AWAY => State::Away,
        _ if is_suspended(entry) => State::Suspended,
        _ => State::Runs,
    };
    Stop {
        pid: pid_of(entry),
        tid: entry.tid.load(Relaxed),
        process: entry.process.load(Relaxed),
        thread: entry.thread.load(Relaxed),
        state,
        after_ns: has_stopped.then(|| entry.stopped_at.get().0.saturating_sub(asked.0)),
        call: call.filter(|_| matches!(state, State::Call | State::Sends)),
    }
}

/// Whether a process has a handler for the signal that halts: without one it
/// would kill.
fn catches_signal(pid: u32) -> bool {
    let status = inject::read_proc(&format!("/proc/{pid}/status")).unwrap_or_default();
    String::from_utf8_lossy(&status)
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << (PREEMPT_SIGNAL - 1) != 0)
}

/// Whether a process is dead.
fn has_ended(fd: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(fd, PollFlags::IN)];
    let none = rustix::event::Timespec::default();
    rustix::event::poll(&mut poll, Some(&none)).unwrap_or(0) != 0
}

/// Both clocks, now: looked at again if they were read so far apart that something
/// else ran in between.
pub fn now() -> halt::Instant {
    let look = || {
        let before = arena::counter();
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let after = arena::counter();
        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        (after.wrapping_sub(before), (ns, before.midpoint(after)))
    };
    let tries = (0..halt::LOOKS).map(|_| look());
    let best = tries.min_by_key(|(apart, _)| *apart);
    best.map_or((0, 0), |(_, now)| now)
}

fn wait_briefly(word: &AtomicU32, value: u32) {
    let limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    // SAFETY: both pointers are valid for the time of the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const limit,
        );
    }
}
