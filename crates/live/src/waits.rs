//! Who waits for whom now, without stopping anybody.
//!
//! The kernel says of each thread that waits in which call that is, with its
//! arguments and its stack pointer (`/proc/PID/task/TID/syscall`); the rest is read
//! from memory. A thread that waits does not change its stack, and what it waits
//! for is kept by others only as long as it waits: each is asked again when the
//! answer is known, and what has moved meanwhile is not told.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use inspect::target::{Mapping, RSP, Registers};
use inspect::{Inspector, Library, Process, ThreadId};

use protocol::id::Addr;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::goroutines;
use crate::mapped::mappings;
use crate::proc;

/// So many frames of a thread's stack are looked at.
const DEEP: usize = 12;

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub pid: i32,
    /// 0: it is a goroutine, which is no thread.
    pub tid: i32,
    /// What its process and itself are called.
    pub process: String,
    pub thread: String,
    /// The call that it waits in, by number. None: it runs.
    pub call: Option<u64>,
    pub on: On,
    /// The innermost function with a line, and that line.
    pub place: Option<String>,
}

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum On {
    /// Nothing: it runs.
    Nothing,
    /// A lock that one thread has, or several readers.
    Lock {
        kind: Kind,
        address: Addr,
        name: Option<String>,
        /// The thread that has it, if the lock says.
        holder: Option<i32>,
    },
    /// Another thread's end.
    Thread(i32),
    /// A child's end: one, or any.
    Child(Option<i32>),
    /// What comes through a descriptor, and the processes at the other end.
    Descriptor {
        number: i32,
        what: String,
        from: Vec<i32>,
    },
    Time,
    Other,
}

/// Which kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Mutex,
    ReadWrite,
    Condition,
    Semaphore,
    Barrier,
    /// Rust's: until another thread unparks it.
    Parker,
    /// Go's: until so many others are done.
    WaitGroup,
    /// Go's channels: for something to come, for somebody to take it, or for one of several.
    Receive,
    Send,
    Select,
    /// Something that only the program knows.
    Futex,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::ReadWrite => "read-write lock",
            Kind::Condition => "condition variable",
            Kind::Semaphore => "semaphore",
            Kind::Barrier => "barrier",
            Kind::Parker => "`unpark`",
            Kind::WaitGroup => "wait group",
            Kind::Receive => "something from channel",
            Kind::Send => "room in channel",
            Kind::Select => "one of several channels",
            Kind::Futex => "futex",
        }
    }
}

/// What the kernel says of a thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    number: u64,
    arguments: [u64; 6],
    rsp: u64,
    rip: u64,
}

impl Call {
    /// None: it runs, or is gone.
    fn of(pid: i32, tid: i32) -> Option<Call> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        let mut words = text.split_whitespace();
        let number = words.next()?.parse::<u64>().ok()?;
        let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = hex()?;
        }
        Some(Call {
            number,
            arguments,
            rsp: hex()?,
            rip: hex()?,
        })
    }
}

/// A process that is looked at while it runs: only what waits holds still.
struct Glance {
    memory: File,
    calls: HashMap<u32, Call>,
    mappings: Vec<Mapping>,
}

impl Process for Glance {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> usize {
        let mut got = 0;
        while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.memory.read_at(rest, address.plus(got as u64).0) {
                Ok(0) | Err(_) => break,
                Ok(more) => got += more,
            }
        }
        got
    }

    fn threads(&self) -> Vec<ThreadId> {
        self.calls.keys().map(|tid| ThreadId(*tid)).collect()
    }

    /// Of the registers two are known. The functions that wait keep their frames by
    /// the stack pointer.
    fn registers(&self, thread: ThreadId) -> inspect::Result<Registers> {
        let call = self.calls.get(&thread.0);
        let call = call.ok_or(inspect::Error::NoThread(thread.0))?;
        let mut registers = Registers {
            rip: call.rip,
            ..Registers::default()
        };
        if let Some(rsp) = registers.general.get_mut(usize::from(RSP)) {
            *rsp = call.rsp;
        }
        Ok(registers)
    }

    fn mappings(&self) -> Vec<Mapping> {
        self.mappings.clone()
    }
}

impl Glance {
    fn at(pid: i32, tids: &[i32]) -> std::io::Result<Glance> {
        let calls = tids.iter();
        let calls = calls.filter_map(|tid| Some((*tid as u32, Call::of(pid, *tid)?)));
        Ok(Glance {
            memory: File::open(format!("/proc/{pid}/mem"))?,
            calls: calls.collect(),
            mappings: mappings(pid),
        })
    }
}

/// Reads what is needed to show where processes stand, while they run: who is about to stop them
/// has them stand the shorter. What cannot be read is read later.
pub fn look_ahead(pids: &[i32], library: &Library) {
    for pid in pids {
        let tids = proc::threads(*pid);
        let Ok(glance) = Glance::at(*pid, &tids) else {
            continue;
        };
        let inspector = Inspector::new(library, &glance);
        for tid in &tids {
            let _ = inspector.stack(ThreadId(*tid as u32), DEEP);
        }
    }
}

/// What the threads of processes wait for, those that run included.
pub fn waiting(pids: &[i32], library: &Library) -> Result<Vec<Waiting>, Error> {
    let mut all = Vec::new();
    let pipes = Pipes::of_all();
    for pid in pids {
        let name = proc::name(*pid);
        let tids = proc::threads(*pid);
        let glance = Glance::at(*pid, &tids).map_err(|error| {
            match error.kind() == std::io::ErrorKind::NotFound {
                true => Error::NoProcess(*pid),
                false => Error::NotAllowed {
                    pid: *pid,
                    name: name.clone(),
                    yama: 0,
                },
            }
        })?;
        let inspector = Inspector::new(library, &glance);
        for tid in &tids {
            let call = glance.calls.get(&(*tid as u32)).copied();
            let (on, place) = match call {
                Some(call) => on(&inspector, *pid, *tid, &call, &tids, &pipes),
                None => (On::Nothing, None),
            };
            // It may have gone on since.
            let is_same = Call::of(*pid, *tid) == call;
            all.push(Waiting {
                pid: *pid,
                tid: *tid,
                process: format!("{name}-{pid}"),
                thread: proc::thread_name(*pid, *tid),
                call: call.filter(|_| is_same).map(|call| call.number),
                on: if is_same { on } else { On::Nothing },
                place: place.filter(|_| is_same),
            });
        }
        // What a program of Go's does is not done by threads.
        let waiting = goroutines::waiting(&inspector).unwrap_or_default();
        all.extend(waiting.into_iter().map(|one| Waiting {
            pid: *pid,
            tid: 0,
            process: format!("{name}-{pid}"),
            thread: format!("goroutine {}", one.number),
            call: None,
            on: one.on,
            place: one.place,
        }));
    }
    Ok(all)
}

/// Threads that wait for each other in a ring, each for what the next one has.
pub fn rings(all: &[Waiting]) -> Vec<Vec<usize>> {
    let next = |i: usize| {
        let one = all.get(i)?;
        let (pid, tid) = match &one.on {
            On::Lock {
                holder: Some(tid), ..
            } => (one.pid, *tid),
            On::Thread(tid) => (one.pid, *tid),
            _ => return None,
        };
        all.iter()
            .position(|other| other.pid == pid && other.tid == tid)
    };
    let mut rings: Vec<Vec<usize>> = Vec::new();
    for start in 0..all.len() {
        let mut way = vec![start];
        while let Some(i) = way.last().and_then(|last| next(*last)) {
            if i == start {
                // Each ring once: from its first.
                if way.iter().all(|other| *other >= start) {
                    rings.push(way);
                }
                break;
            }
            if way.contains(&i) {
                break;
            }
            way.push(i);
        }
    }
    rings
}

/// What a call waits for, and from where it was made.
fn on(
    inspector: &Inspector<'_>,
    pid: i32,
    tid: i32,
    call: &Call,
    tids: &[i32],
    pipes: &Pipes,
) -> (On, Option<String>) {
    let stack = inspector.stack(ThreadId(tid as u32), DEEP);
    let frames = stack.map_or_else(|_| Vec::new(), |stack| stack.frames);
    let names: Vec<&str> = frames.iter().filter_map(|f| f.name.as_deref()).collect();
    // The innermost line of the program's own: libraries wait for others.
    let in_library = |frame: &&inspect::frames::Frame| {
        let name = frame.module.map(|module| inspector.module_name(&module));
        name.is_some_and(|name| name.contains(".so"))
    };
    let with_line = |frame: &&inspect::frames::Frame| frame.place.is_some();
    let own = frames
        .iter()
        .filter(with_line)
        .find(|frame| !in_library(frame));
    let place = own.or(frames.iter().find(with_line)).and_then(|frame| {
        let place = frame.place.as_ref()?;
        let name = frame.name.as_deref().unwrap_or("??");
        Some(format!("{name} at {}:{}", place.file.name, place.line))
    });
    let row = protocol::table::syscall(call.number).map_or("", |row| row.name);
    let [first, second, ..] = call.arguments;
    let descriptor = |number: i32| {
        let what = std::fs::read_link(format!("/proc/{pid}/fd/{number}"));
        let what = what.map_or(String::new(), |path| path.display().to_string());
        On::Descriptor {
            number,
            from: pipes.writers(&what, pid),
            what,
        }
    };
    let on = match row {
        "futex" => futex(inspector, Addr(first), &names, tids),
        "wait4" | "waitid" => {
            let which = match row {
                "wait4" => first as i32,
                _ => second as i32,
            };
            On::Child(Some(which).filter(|child| *child > 0))
        }
        "read" | "readv" | "pread64" | "recvfrom" | "recvmsg" | "accept" | "accept4" | "flock" => {
            descriptor(first as i32)
        }
        "nanosleep" | "clock_nanosleep" => On::Time,
        _ => On::Other,
    };
    (on, place)
}

/// What is behind a futex: the functions that wait say which kind of lock it is, and
/// the C library keeps in its locks who has them.
fn futex(inspector: &Inspector<'_>, address: Addr, names: &[&str], tids: &[i32]) -> On {
    const OWNER: u64 = 8;
    /// Of a read-write lock: the words that are waited on, and the writer.
    const PHASE: u64 = 8;
    const WRITERS: u64 = 12;
    const WRITER: u64 = 24;
    /// Of a condition variable and of a barrier: the words that are waited on.
    const SIGNALS: u64 = 40;
    const ROUND: u64 = 4;
    let word = |address: Addr| {
        let mut bytes = [0; 4];
        let got = inspector.process.read(address, &mut bytes);
        (got == bytes.len()).then(|| i32::from_le_bytes(bytes))
    };
    let among = |tid: Option<i32>| tid.filter(|tid| tids.contains(tid));
    let has = |words: &[&str]| {
        names
            .iter()
            .any(|name| words.iter().any(|w| name.contains(w)))
    };
    if has(&["pthread_join", "pthread_clockjoin", "pthread_timedjoin"])
        && let Some(tid) = among(word(address))
    {
        return On::Thread(tid);
    }
    let (kind, base, holder) = if has(&["pthread_rwlock"]) {
        let base = match address.0.is_multiple_of(8) {
            true => address.minus(PHASE),
            false => address.minus(WRITERS),
        };
        let writer = among(word(base.plus(WRITER)));
        (Kind::ReadWrite, base, writer)
    } else if has(&["pthread_cond_"]) {
        // One of two words, for two groups of waiters.
        let base = match address.minus(SIGNALS).0.is_multiple_of(8) {
            true => address.minus(SIGNALS),
            false => address.minus(SIGNALS + 4),
        };
        (Kind::Condition, base, None)
    } else if has(&["Condvar::wait", "condvar::"]) {
        (Kind::Condition, address, None)
    } else if has(&["sem_wait", "sem_timedwait", "sem_clockwait", "new_sem_"]) {
        (Kind::Semaphore, address, None)
    } else if has(&["pthread_barrier"]) {
        (Kind::Barrier, address.minus(ROUND), None)
    } else if has(&["read_contended", "write_contended"]) {
        (Kind::ReadWrite, address, None)
    } else if has(&["lock_contended"]) {
        // Rust's: who has it is not said anywhere, and behind its word is the data.
        (Kind::Mutex, address, None)
    } else if has(&["Parker::park", "thread::park"]) {
        (Kind::Parker, address, None)
    } else if has(&["pthread_mutex", "lll_lock_wait"]) {
        let owner = word(address).filter(|word| *word != 0);
        let owner = owner.and_then(|_| among(word(address.plus(OWNER))));
        (Kind::Mutex, address, owner)
    } else {
        (Kind::Futex, address, None)
    };
    let name = inspector.symbolize(base);
    On::Lock {
        kind,
        address: base,
        name: name.map(|name| name.trim_matches(['<', '>']).to_string()),
        holder,
    }
}

/// Who has which pipes open to write.
struct Pipes(HashMap<String, Vec<i32>>);

impl Pipes {
    fn of_all() -> Pipes {
        let mut writers: HashMap<String, Vec<i32>> = HashMap::new();
        for candidate in proc::candidates() {
            let pid = candidate.pid;
            let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
                continue;
            };
            for entry in entries.flatten() {
                let Ok(target) = std::fs::read_link(entry.path()) else {
                    continue;
                };
                let target = target.display().to_string();
                if !target.starts_with("pipe:") {
                    continue;
                }
                let info = entry
                    .path()
                    .display()
                    .to_string()
                    .replace("/fd/", "/fdinfo/");
                let info = std::fs::read_to_string(info).unwrap_or_default();
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
                let flags = flags.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
                if flags.is_some_and(|flags| flags & 3 != 0) {
                    writers.entry(target).or_default().push(pid);
                }
            }
        }
        Pipes(writers)
    }

    fn writers(&self, what: &str, but: i32) -> Vec<i32> {
        let all = self.0.get(what).into_iter().flatten().copied();
        let mut all: Vec<i32> = all.filter(|pid| *pid != but).collect();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: i32, on: On) -> Waiting {
        Waiting {
            pid: 1,
            tid,
            process: String::new(),
            thread: String::new(),
            call: None,
            on,
            place: None,
        }
    }

    fn lock(holder: Option<i32>) -> On {
        On::Lock {
            kind: Kind::Mutex,
            address: Addr::NULL,
            name: None,
            holder,
        }
    }

    #[test]
    fn rings_are_found_once() {
        let all = [
            thread(1, On::Thread(2)),
            thread(2, lock(Some(3))),
            thread(3, lock(Some(2))),
            thread(4, lock(Some(5))),
            thread(5, lock(None)),
            thread(6, lock(Some(6))),
        ];
        assert_eq!(rings(&all), [vec![1, 2], vec![5]]);
    }
}
