//! Waiting for processes that replay, and for no longer than there is hope.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use inject::Image;
use recording::ImageStart;

use crate::Error;
use crate::file::ReplayFile;
use crate::player;

/// How often the processes are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How much of their last words is kept.
const WORDS_MAX: usize = 4096;

/// When a replay that gets nowhere is given up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may compute, or stand still, without coming to an event.
    pub patience: Duration,
    /// Bytes of memory a process may have.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            patience: Duration::from_secs(60),
            memory: memory_limit(),
        }
    }
}

/// Three quarters of the machine's memory: more than that, and something is
/// wrong.
fn memory_limit() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    total.map_or(u64::MAX, |kib| kib * 1024 / 4 * 3)
}

/// Why the processes were ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stuck,
    Memory,
}

/// How the processes of a unit ended.
pub struct Ends {
    /// Wait statuses, by process id.
    statuses: HashMap<u32, i32>,
    end: Option<End>,
    limits: Limits,
    words: String,
}

impl Ends {
    /// Why the process with this id did not come to the end of its log.
    pub fn explain(&self, pid: u32) -> String {
        let status = self.statuses.get(&pid).copied().unwrap_or(0);
        let words = self.words.trim();
        match self.end {
            Some(End::Stuck) => format!(
                "it came to no further event in {} s",
                self.limits.patience.as_secs_f64()
            ),
            Some(End::Memory) => {
                format!(
                    "it took more than {} MiB of memory",
                    self.limits.memory >> 20
                )
            }
            None if !words.is_empty() => format!("the replaying process said: {words}"),
            None if libc::WIFSIGNALED(status) => {
                let signal = libc::WTERMSIG(status);
                let name = protocol::names::signal_name(signal as u64);
                let name = name.map_or(format!("signal {signal}"), str::to_string);
                format!("the replaying process was killed by {name}")
            }
            None => format!(
                "the replaying process ended with status {}",
                libc::WEXITSTATUS(status)
            ),
        }
    }
}

/// Starts processes from `starts` and waits until they and all that they fork
/// have ended. `longest` says how long the process of the stream at a place
/// computed then, behind an event. `look` is called now and then.
pub fn run(
    file: &mut ReplayFile,
    image: &Image,
    starts: &[(usize, ImageStart)],
    limits: Limits,
    stop: &dyn Fn() -> bool,
    longest: impl Fn(usize, u64) -> Duration,
    mut look: impl FnMut(&ReplayFile),
) -> Result<Ends, Error> {
    // The other end is open in all of them, and in nobody else: when it is
    // closed, they are gone.
    let (words, theirs) = std::io::pipe().map_err(Error::Pipe)?;
    let mut group: Option<Group> = None;
    for (place, start) in starts {
        let begun = file.header().begun.load(Acquire);
        file.set_start(*place, start, image.vdso)?;
        let theirs = theirs.try_clone().map_err(Error::Pipe)?;
        let leader = group.as_ref().map_or(0, |group| group.0);
        let pid = player::start(file, image, leader, Stdio::from(OwnedFd::from(theirs)))?;
        group.get_or_insert(Group(pid));
        // It has what it begins from before the next is told.
        let since = Instant::now();
        while starts.len() > 1 && file.header().begun.load(Acquire) == begun {
            std::thread::sleep(Duration::from_micros(200));
            if since.elapsed() > limits.patience || stop() {
                break;
            }
        }
    }
    drop(theirs);
    let mut words = File::from(OwnedFd::from(words));
    let mut ends = Ends {
        statuses: HashMap::new(),
        end: None,
        limits,
        words: String::new(),
    };
    let mut said = Vec::new();
    let mut headway = Headway::new(sum_of_events(file));
    let mut all_waited = 0;
    loop {
        if is_ready(&words) {
            let mut piece = [0; 512];
            match words.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    let room = WORDS_MAX.saturating_sub(said.len()).min(count);
                    said.extend_from_slice(piece.get(..room).unwrap_or(&[]));
                }
            }
            continue;
        }
        look(file);
        if stop() {
            return Err(Error::Interrupted);
        }
        let running = running(file);
        all_waited = if all_wait(file, &running) {
            all_waited + 1
        } else {
            0
        };
        if all_waited > 1 {
            file.header().journal.is_hopeless.store(1, Release);
        }
        if let Some(end) = headway.is_hopeless(sum_of_events(file), &running, limits, &longest) {
            ends.end = Some(end);
            break;
        }
    }
    ends.words = String::from_utf8_lossy(&said).into_owned();
    ends.statuses = group.map_or(HashMap::new(), Group::end);
    file.header().journal.is_complete.store(1, Release);
    look(file);
    Ok(ends)
}

/// Whether all wait for the end of another's turn, and each has read all that is in
/// the journal: then they wait for ever. (How long they have waited says nothing: one
/// that is woken may not have a processor for seconds.)
fn all_wait(file: &ReplayFile, running: &[Running]) -> bool {
    let header = file.header();
    let end = header.journal.len.load(Acquire);
    let streams = header.streams.load(Relaxed) as usize;
    let table = header.table.iter().take(streams);
    let waiting: HashSet<u32> = table
        .filter(|stream| stream.waits_at.load(Acquire) == end + 1)
        .map(|stream| stream.pid.load(Acquire))
        .collect();
    let all = !running.is_empty() && running.iter().all(|r| waiting.contains(&r.pid));
    all && header.journal.len.load(Acquire) == end
}

/// Waits a moment for words, or for the end.
fn is_ready(words: &File) -> bool {
    let mut poll = libc::pollfd {
        fd: words.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure, which outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, LOOK.as_millis() as i32) > 0 }
}

/// A process group that this thread started.
struct Group(i32);

impl Group {
    /// Ends what is left of it. Returns the wait status of each.
    fn end(self) -> HashMap<u32, i32> {
        let statuses = self.reap();
        std::mem::forget(self);
        statuses
    }

    fn reap(&self) -> HashMap<u32, i32> {
        let mut statuses = HashMap::new();
        // SAFETY: our own group: its first process has not been waited for,
        // so nobody else can have its number.
        unsafe { libc::kill(-self.0, libc::SIGKILL) };
        loop {
            let mut status = 0;
            // SAFETY: waits for children of this thread: all are of the group.
            let pid = unsafe { libc::waitpid(-self.0, &raw mut status, libc::__WNOTHREAD) };
            if pid > 0 {
                statuses.insert(pid as u32, status);
            } else if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return statuses;
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Whether a replay gets anywhere.
pub struct Headway {
    /// What grows with each event.
    events: u64,
    since: Instant,
    /// Processor time that had been used then.
    used: Duration,
}

impl Headway {
    pub fn new(events: u64) -> Headway {
        Headway {
            events,
            since: Instant::now(),
            used: Duration::ZERO,
        }
    }

    /// Whether the one process `pid`, which will come to event `next`, has
    /// used more than its share of time for it.
    pub fn is_lost(&mut self, next: u64, pid: i32, patience: Duration) -> bool {
        let running = look_at(pid as u32, 0, next);
        let used = running.map_or(Duration::ZERO, |process| process.used);
        if next != self.events {
            *self = Headway {
                used,
                ..Headway::new(next)
            };
        }
        used.saturating_sub(self.used) >= patience
    }

    /// Whether there is no hope for the processes of a file.
    fn is_hopeless(
        &mut self,
        events: u64,
        running: &[Running],
        limits: Limits,
        longest: impl Fn(usize, u64) -> Duration,
    ) -> Option<End> {
        if running.iter().any(|process| process.memory > limits.memory) {
            return Some(End::Memory);
        }
        let used = running.iter().map(|process| process.used).sum();
        let stopped = running.iter().any(|process| process.is_stopped);
        if events != self.events || stopped {
            *self = Headway {
                used,
                ..Headway::new(events)
            };
            return None;
        }
        let waited = self.since.elapsed();
        if waited < limits.patience {
            return None;
        }
        // On a busy machine it may not have had the time to get anywhere. One
        // that uses none at all waits for something, and there is nothing in
        // replay to wait for.
        let used = used.saturating_sub(self.used);
        let stands_still = used <= waited / 100;
        if stands_still {
            return Some(End::Stuck);
        }
        // It may have computed for long then, too.
        let then = running
            .iter()
            .map(|process| longest(process.index, process.event));
        let then = then.max().unwrap_or_default();
        (used >= limits.patience / 2 + 4 * then).then_some(End::Stuck)
    }
}

fn sum_of_events(file: &ReplayFile) -> u64 {
    let header = file.header();
    let streams = header.streams.load(Relaxed) as usize;
    let table = header.table.iter().take(streams);
    table.fold(0u64, |sum, stream| {
        sum.wrapping_add(stream.event.load(Relaxed))
            .wrapping_add(u64::from(stream.pid.load(Relaxed)))
    })
}

/// A process that replays, as the kernel sees it.
struct Running {
    pid: u32,
    /// Its stream.
    index: usize,
    event: u64,
    used: Duration,
    memory: u64,
    is_stopped: bool,
}

fn running(file: &ReplayFile) -> Vec<Running> {
    let header = file.header();
    let streams = header.streams.load(Relaxed) as usize;
    let table = header.table.iter().take(streams).enumerate();
    // A child that shares its parent's memory is the same process here.
    let mut pids = HashSet::new();
    table
        .filter(|(_, stream)| stream.outcome.load(Acquire) == protocol::replay::outcome::NONE)
        .filter_map(|(index, stream)| {
            let pid = stream.pid.load(Acquire);
            let event = stream.event.load(Relaxed);
            (pid != 0 && pids.insert(pid)).then(|| look_at(pid, index, event))?
        })
        .collect()
}

fn look_at(pid: u32, index: usize, event: u64) -> Option<Running> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may hold anything, is in parentheses.
    let (_, rest) = text.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    // One that is dead, but for being waited for, runs no more.
    if matches!(words.first(), Some(&"Z" | &"X")) {
        return None;
    }
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (user, system, resident) = (number(11)?, number(12)?, number(21)?);
    Some(Running {
        pid,
        index,
        event,
        // The kernel's unit here is always a hundredth of a second.
        used: Duration::from_millis((user + system) * 10),
        memory: resident * 4096,
        is_stopped: matches!(words.first(), Some(&"T" | &"t")),
    })
}
