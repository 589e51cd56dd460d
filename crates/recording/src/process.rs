//! The processes of a recording: who begat whom, what they ran, what they are
//! called, how they ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use protocol::id::{EventNo, ProcessNo, ThreadNo, Ticks};
use protocol::names::signal_name;
use protocol::record::{begin, kind, tag};

use crate::calls::nr;
use crate::catalog::Beginning;
use crate::event::{Child, Event};
use crate::frame::field;
use crate::log::LogEnd;
use crate::recording::{Image, Recording};

/// A child has its parent's memory.
const CLONE_VM: u64 = 0x100;

/// How a process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// Started by the recorder.
    First,
    /// Forked.
    Fork,
    /// Forked, sharing its parent's memory until it execs or exits.
    Vfork,
    /// The log does not say.
    Unknown,
}

/// A process of the program.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number in the recording.
    pub number: ProcessNo,
    /// Its stable name: program and place among the processes of that program.
    pub name: String,
    /// The first part of the name.
    pub program: String,
    /// What it is called besides, as long as the program is alive: by the kernel's id where
    /// its name is counted, and the other way round. Who debugs it knows both.
    pub other_name: Option<String>,
    /// The kernel's id of it, in the recorder's namespace (0 if unknown).
    pub pid: u32,
    /// The id that it knows itself by, and the pid namespace which that is of
    /// (0: the recorder's).
    pub own_pid: u32,
    /// See `own_pid`.
    pub namespace: u32,
    /// How it began.
    pub began: Began,
    /// Number of its parent, if that is part of the program.
    pub parent: Option<ProcessNo>,
    /// The parent's event that made it.
    pub parent_event: Option<EventNo>,
    /// When it began.
    pub birth: Ticks,
    /// Number of its first event.
    pub first_event: EventNo,
    /// Indexes of its images in [`Recording::images`], in order.
    pub images: Vec<usize>,
    /// Bytes of its log, not compressed.
    pub log_bytes: u64,
    /// Bytes its log takes in the journal.
    pub stored_bytes: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Killed {
        /// Which.
        signal: i32,
        /// It dumped core.
        core: bool,
    },
    /// It was killed or the recording was cut short.
    Unknown,
}

impl Exit {
    /// From a status as `wait4` gives it.
    pub fn from_wait_status(status: i32) -> Exit {
        let signal = status & 0x7f;
        if signal == 0 {
            Exit::Exited(status >> 8 & 0xff)
        } else {
            Exit::Killed {
                signal,
                core: status & 0x80 != 0,
            }
        }
    }

    /// As a shell would say it; `None` if unknown.
    pub fn status(self) -> Option<i32> {
        match self {
            Exit::Exited(status) => Some(status),
            Exit::Killed { signal, .. } => Some(128 + signal),
            Exit::Unknown => None,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Exited(status) => write!(f, "{status}"),
            Exit::Killed { signal, core } => {
                match signal_name(*signal as u64) {
                    Some(name) => f.write_str(name)?,
                    None => write!(f, "signal {signal}")?,
                }
                if *core {
                    f.write_str(" (core)")
                } else {
                    Ok(())
                }
            }
            Exit::Unknown => f.write_str("?"),
        }
    }
}

/// How the life of a process went, as far as its log and others tell.
#[derive(Clone, Debug)]
pub struct Life {
    /// How many events it has.
    pub events: u64,
    /// When it ended, or its last event.
    pub end: Ticks,
    /// How it ended.
    pub exit: Exit,
    /// How its log ends.
    pub log_end: LogEnd,
}

/// Which process had which of the kernel's ids when, by namespace. The kernel
/// uses its ids again.
#[derive(Debug, Default)]
pub(crate) struct Pids(HashMap<(u32, u32), Vec<(Ticks, ProcessNo)>>);

impl Pids {
    /// Of processes in order of birth.
    pub fn new(processes: &[Process]) -> Pids {
        let mut pids: HashMap<(u32, u32), Vec<(Ticks, ProcessNo)>> = HashMap::new();
        let mut add = |namespace: u32, pid: u32, process: &Process| {
            let list = pids.entry((namespace, pid)).or_default();
            list.push((process.birth, process.number));
        };
        for process in processes {
            if process.pid != 0 {
                add(0, process.pid, process);
            }
            if process.namespace != 0 {
                add(process.namespace, process.own_pid, process);
            }
        }
        Pids(pids)
    }

    /// The last process that was born with this id by `time`; or, as a parent
    /// may know its child's id before the child's first event, the first.
    pub fn at(&self, namespace: u32, pid: u32, time: Ticks) -> Option<ProcessNo> {
        let list = self.0.get(&(namespace, pid))?;
        let born = list.iter().rev().find(|(birth, _)| *birth <= time);
        born.or(list.first()).map(|(_, number)| *number)
    }
}

/// The name of the thread with this number.
pub fn thread_name(thread: ThreadNo) -> String {
    match thread {
        ThreadNo::FIRST => "main-0".to_string(),
        _ => format!("thread-{thread}"),
    }
}

/// The number of the thread of this name.
pub fn thread_number(name: &str) -> Option<ThreadNo> {
    if name == "main-0" {
        return Some(ThreadNo::FIRST);
    }
    let digits = name.strip_prefix("thread-").unwrap_or(name);
    digits.parse().ok().map(ThreadNo)
}

/// Finds the processes, from the beginnings of their logs and their images.
pub(crate) fn find(recording: &Recording, known: Option<Vec<Beginning>>) -> Vec<Process> {
    let numbers = recording.process_numbers();
    let mut images: HashMap<ProcessNo, Vec<usize>> = HashMap::new();
    for (i, image) in recording.images().iter().enumerate() {
        images.entry(image.process).or_default().push(i);
    }
    let wanted: Vec<(ProcessNo, Vec<usize>)> = numbers
        .into_iter()
        .map(|number| {
            let mut own = images.remove(&number).unwrap_or_default();
            own.sort_by_key(|i| recording.images().get(*i).map(|image| image.image));
            (number, own)
        })
        .collect();
    if let Some(known) = known {
        let known: HashMap<ProcessNo, Beginning> =
            known.into_iter().map(|b| (b.number(), b)).collect();
        let found = wanted.into_iter().filter_map(|(number, own)| {
            let mut process = unread(recording, number, own);
            known.get(&number)?.put(&mut process);
            Some(process)
        });
        let mut processes: Vec<Process> = found.collect();
        processes.sort_by_key(|process| (process.birth, process.number));
        give_names(recording, &mut processes);
        return processes;
    }
    // Each takes decompressing a chunk: with many it is worth sharing.
    let workers = match wanted.len() {
        0..16 => 1,
        _ => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let share = wanted.len().div_ceil(workers).max(1);
    let read = |part: &[(ProcessNo, Vec<usize>)]| {
        let found = part.iter().cloned();
        found
            .filter_map(|(number, own)| beginning(recording, number, own))
            .collect::<Vec<_>>()
    };
    let read = &read;
    let mut processes: Vec<Process> = std::thread::scope(|scope| {
        let (own, others) = wanted.split_at(share.min(wanted.len()));
        // Where no thread can be had, this one reads that share, too.
        let running = others.chunks(share).map(|part| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || read(part));
            (part, thread.ok())
        });
        let running: Vec<_> = running.collect();
        let mut done = read(own);
        for (part, thread) in running {
            let found = thread.and_then(|thread| thread.join().ok());
            done.extend(found.unwrap_or_else(|| read(part)));
        }
        done
    });
    ask_parents(recording, &mut processes);
    processes.sort_by_key(|process| (process.birth, process.number));
    give_names(recording, &mut processes);
    processes
}

/// Of those who were killed before they had written down that they began, who made them knows
/// the rest. (There is hardly ever one: then all that others have written is read.)
fn ask_parents(recording: &Recording, processes: &mut [Process]) {
    let is_silent = |process: &&mut Process| {
        process.began == Began::Unknown && process.birth == Ticks(0) && process.images.is_empty()
    };
    let numbers: Vec<ProcessNo> = processes.iter().map(|process| process.number).collect();
    for process in processes.iter_mut().filter(is_silent) {
        let others = numbers.iter().filter(|number| **number != process.number);
        let _ = others.copied().any(|parent| {
            let mut log = recording.log(parent);
            while log.advance() {
                let Some(event) = log.event() else { break };
                if let Some(Child::Process(child)) = event.child()
                    && child == process.number
                {
                    process.parent = Some(parent);
                    process.parent_event = Some(event.started.unwrap_or(event.number));
                    process.birth = event.time;
                    process.own_pid = event.result.unwrap_or(0) as u32;
                    process.pid = process.own_pid;
                    let shares = event.nr == nr::CLONE && event.args[0] & CLONE_VM != 0;
                    process.began = match shares || event.nr == nr::VFORK {
                        true => Began::Vfork,
                        false => Began::Fork,
                    };
                    return true;
                }
            }
            false
        });
    }
}

/// A process of whose log nothing was read.
fn unread(recording: &Recording, number: ProcessNo, images: Vec<usize>) -> Process {
    let chunks = recording.chunks(number);
    Process {
        number,
        name: String::new(),
        program: String::new(),
        other_name: None,
        pid: 0,
        own_pid: 0,
        namespace: 0,
        began: Began::Unknown,
        parent: None,
        parent_event: None,
        birth: Ticks(0),
        first_event: EventNo(0),
        images,
        log_bytes: chunks.iter().map(|c| u64::from(c.raw_len)).sum(),
        stored_bytes: chunks.iter().map(|c| u64::from(c.stored_len)).sum(),
    }
}

/// What the beginning of a process's log says of it. `None` if nothing of
/// the process can be read.
fn beginning(recording: &Recording, number: ProcessNo, images: Vec<usize>) -> Option<Process> {
    let mut process = unread(recording, number, images);
    let first_image = process
        .images
        .first()
        .and_then(|i| recording.images().get(*i));
    let mut log = recording.log(number);
    if log.advance()
        && let Some(event) = log.event()
    {
        process.birth = event.time;
        process.first_event = event.number;
        if event.kind == kind::BEGIN {
            process.own_pid = event.value(3) as u32;
            process.namespace = (event.value(3) >> 32) as u32;
            if process.namespace == 0 {
                process.pid = process.own_pid;
            }
            process.began = match event.value(0) {
                begin::FIRST | begin::JOINED => Began::First,
                begin::FORK => Began::Fork,
                begin::VFORK => Began::Vfork,
                _ => Began::Unknown,
            };
            if matches!(process.began, Began::Fork | Began::Vfork) {
                process.parent = Some(event.process_in(1));
                process.parent_event = Some(event.event_in(2));
            }
        }
    } else if first_image.is_none() && log.end() != Some(&LogEnd::Whole) {
        return None;
    }
    if let Some(image) = first_image {
        // Who ran already is as old as what was told of it, whatever it does first.
        let is_joined = log
            .event()
            .is_some_and(|event| event.kind == kind::BEGIN && event.value(0) == begin::JOINED);
        if process.birth == Ticks(0) || is_joined {
            process.birth = image.time;
        }
        if process.pid == 0 {
            process.pid = image.pid;
        }
    }
    Some(process)
}

/// Names processes after the last image that was exec'd in them, what came before
/// being mostly a shell that led there; or, if they only forked, after the one
/// that their parent had then. They are counted in order of birth.
fn give_names(recording: &Recording, processes: &mut [Process]) {
    // What a process was when another was born.
    let programs: HashMap<ProcessNo, Vec<(Ticks, String)>> = processes
        .iter()
        .map(|process| {
            let images = recording.images_of(process);
            let named = images.map(|image| (image.time, image.program()));
            let named = named.filter(|(_, program)| !program.is_empty());
            (process.number, named.collect())
        })
        .collect();
    let parents: HashMap<ProcessNo, (Option<ProcessNo>, Ticks)> = processes
        .iter()
        .map(|p| (p.number, (p.parent, p.birth)))
        .collect();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for process in processes.iter_mut() {
        // Up the tree to the first that exec'd; a circle (a damaged log) ends
        // it as well.
        let mut seen = BTreeSet::new();
        let mut number = process.number;
        let mut time = Ticks::MAX;
        let program = loop {
            let own = programs.get(&number);
            let then = own.and_then(|all| all.iter().rfind(|(since, _)| *since <= time));
            if let Some((_, program)) = then {
                break program.clone();
            }
            match parents.get(&number) {
                Some((Some(parent), birth)) if seen.insert(number) => {
                    time = *birth;
                    number = *parent;
                }
                _ => break "process".to_string(),
            }
        };
        let count = counts.entry(program.clone()).or_default();
        process.name = format!("{program}-{count}");
        process.program = program;
        *count += 1;
    }
    let is_observed = recording.manifest().observed.is_some();
    if is_observed || recording.has_arena() {
        give_other_names(is_observed, processes);
    }
}

/// While a program is alive its processes are called by the kernel's ids at the prompt. What
/// is only observed is read there and nowhere else, and has those names itself; a recording
/// stays, and keeps its own.
fn give_other_names(is_observed: bool, processes: &mut [Process]) {
    let counted: BTreeSet<String> = processes.iter().map(|own| own.name.clone()).collect();
    for process in processes.iter_mut().filter(|process| process.pid != 0) {
        let by_id = format!("{}-{}", process.program, process.pid);
        // In a namespace of processes ids are as small as counts.
        if !counted.contains(&by_id) {
            process.other_name = Some(match is_observed {
                true => std::mem::replace(&mut process.name, by_id),
                false => by_id,
            });
        }
    }
}

/// What ends a process's own account of itself.
fn own_exit(event: &Event<'_>) -> Option<Exit> {
    if event.nr == nr::EXIT_GROUP && event.is_call() {
        return Some(Exit::Exited(event.args[0] as i32 & 0xff));
    }
    None
}

/// What a `wait` in another process says of the end of process `pid`.
fn waited_for(event: &Event<'_>, pid: u32) -> Option<Exit> {
    if event.is_done(nr::WAIT4) && event.result == Some(i64::from(pid)) {
        let told = event.argument(1).map(|data| data.bytes);
        let status = told.or_else(|| event.blob(tag::ENDED).map(|blob| blob.bytes))?;
        let status = i32::from_le_bytes(field(status, 0)?);
        // Stopped or continued is not ended.
        if status & 0xff != 0x7f && status != 0xffff {
            return Some(Exit::from_wait_status(status));
        }
    }
    if event.is_done(nr::WAITID) && event.result == Some(0) {
        let info = event.argument(2)?.bytes;
        let at = |at| field(info, at).map(i32::from_le_bytes);
        let (code, status) = (at(8)?, at(24)?);
        if at(16)? as u32 == pid {
            return match code {
                1 => Some(Exit::Exited(status)),
                2 | 3 => Some(Exit::Killed {
                    signal: status,
                    core: code == 3,
                }),
                _ => None,
            };
        }
    }
    None
}

/// Follows the log of one process for what [`Life`] says.
struct Account {
    last_number: Option<EventNo>,
    last_time: Ticks,
    exit: Option<Exit>,
    last_exit: Option<Exit>,
    log_end: LogEnd,
}

fn account(mut log: crate::log::Log<'_>) -> Account {
    let mut account = Account {
        last_number: None,
        last_time: Ticks(0),
        exit: None,
        last_exit: None,
        log_end: LogEnd::Whole,
    };
    while log.advance() {
        let Some(event) = log.event() else { break };
        account.last_number = Some(event.number);
        account.last_time = event.time;
        // The end of a thread may be the end of the process, if nothing
        // follows and it is the first one: others come and go.
        account.last_exit = None;
        if let Some(exit) = own_exit(&event) {
            account.exit = Some(exit);
        } else if event.nr == nr::EXIT && event.is_call() && event.thread == ThreadNo::FIRST {
            account.last_exit = Some(Exit::Exited(event.args[0] as i32 & 0xff));
        }
    }
    account.log_end = log.end().cloned().unwrap_or(LogEnd::Whole);
    account
}

impl Recording {
    /// How the life of a process went. Reads the last chunk of its log, and
    /// more only where that does not tell.
    pub fn life(&self, process: &Process) -> Life {
        let mut account = account(self.log_near(process.number, EventNo::MAX.previous()));
        if account.last_number.is_none() || account.log_end.is_damage() {
            account = self::account(self.log(process.number));
        }
        let status = self.status_of(process);
        let exit = status
            .map(|status| Exit::from_wait_status(status.wait_status))
            .or(account.exit)
            .or_else(|| self.seen_by_parent(process))
            .or(account.last_exit)
            .unwrap_or(Exit::Unknown);
        let end = status.map_or(Ticks(0), |status| status.time);
        Life {
            events: account
                .last_number
                .map_or(0, |last| last.since(process.first_event).saturating_add(1)),
            end: end.max(account.last_time).max(process.birth),
            exit,
            log_end: account.log_end,
        }
    }

    fn seen_by_parent(&self, process: &Process) -> Option<Exit> {
        let parent = process.parent?;
        let by = process.parent_event?;
        let mut log = self.log_near(parent, by);
        let mut pid = process.own_pid;
        while log.advance() {
            let Some(event) = log.event() else { break };
            // The id by which the parent knows it: its own may be another.
            let makes = matches!(event.nr, nr::CLONE | nr::FORK | nr::VFORK) && event.is_call();
            if makes
                && (event.number == by || event.started == Some(by))
                && let Some(result) = event.result.filter(|result| *result > 0)
            {
                pid = result as u32;
            }
            if event.time >= process.birth
                && let Some(exit) = waited_for(&event, pid)
            {
                return Some(exit);
            }
        }
        None
    }

    /// The images of a process, in order.
    pub fn images_of<'a>(
        &'a self,
        process: &'a Process,
    ) -> impl DoubleEndedIterator<Item = &'a Image> {
        process.images.iter().filter_map(|i| self.images().get(*i))
    }

    /// What a process ran last: its own last image, or what the process that it was
    /// forked from ran then (that one may have executed another program since).
    pub fn command_of<'a>(&'a self, process: &'a Process) -> Option<&'a Image> {
        let mut seen = BTreeSet::new();
        let mut process = process;
        let mut until = None;
        loop {
            let mut images = self.images_of(process);
            let last = match until {
                None => images.next_back(),
                Some(birth) => images.rfind(|image| image.time <= birth),
            };
            if last.is_some() {
                return last;
            }
            if !seen.insert(process.number) {
                return None;
            }
            until = Some(process.birth);
            process = self.process(process.parent?)?;
        }
    }
}
