//! A program as gdb sees it: the whole of it as one target, each process of a
//! recording an inferior that is always there. (What is alive: `living`.)
//!
//! What moves and what stops is the library's affair (`session`); here gdb's ids,
//! packets and files are turned into its questions. Processes are opened when gdb
//! looks at them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use ::gdb_remote::{Stop, StopKind, StopReason, ThreadId};
use ::session::{Follow, Group, Reason, Stopped, Whom};
use ::target::{Position, Region, ThreadState};
use inspect::Inspector;
use protocol::id::{EventNo, ImageNo, ProcessId, ProcessNo, ThreadNo};
use recording::{ImageStart, Recording, Set};

use crate::failure::Failure;

pub struct Program {
    pub group: Group,
    pub served: Vec<Served>,
    /// The process at hand: the one that stopped last.
    pub lead: usize,
    /// The one that was at hand first.
    pub(super) eldest: usize,
    /// What gdb is still to be told before anything moves.
    pub queue: VecDeque<Told>,
    /// How the others follow the one that leads.
    pub follow: Follow,
    /// What gdb has processes stop at: by process, kind, address and length.
    pub(super) stops: HashMap<(ProcessId, StopKind, u64, u64), u32>,
    /// Of a program that is alive.
    pub(super) alive: Option<super::living::Alive>,
}

/// A process that gdb knows.
pub struct Served {
    pub id: ProcessId,
    pub name: String,
    pub pid: u32,
    pub first: EventNo,
    pub last: EventNo,
    /// Which of its images gdb knows, once it was told of one.
    pub told: Option<usize>,
    /// gdb let go of it.
    pub is_gone: bool,
    /// gdb knows where its program and libraries are. It finds that out by
    /// itself for the process that it sees first; of the others it has to be
    /// told that they execute a program, and forgets all threads but one then.
    pub is_introduced: bool,
    /// What was read at a position.
    threads: Option<(Position, Vec<ThreadState>)>,
    regions: Option<(Position, Vec<Region>)>,
}

impl Served {
    pub fn new(member: ::session::MemberInfo, pid: u32) -> Served {
        Served {
            id: member.id,
            name: member.name,
            pid,
            first: member.first,
            last: member.last,
            told: None,
            is_gone: false,
            is_introduced: false,
            threads: None,
            regions: None,
        }
    }
}

/// What gdb is told without anything moving.
pub enum Told {
    /// Which program a process executes: the process's index.
    Program(usize),
    Stop(Stop),
}

/// Where to begin.
pub struct Beginning {
    pub process: Option<ProcessId>,
    /// A process and its event.
    pub at: Option<(ProcessId, EventNo)>,
    /// Other processes are not served.
    pub alone: bool,
}

/// So many processes are served at once: each is replayed by several, and gdb
/// reads the symbols of each.
const MOST: usize = 200;

/// Whether a recording can be served so.
pub fn check(set: &Set, beginning: &Beginning) -> Result<(), Failure> {
    let count = set.len();
    if count > MOST && !beginning.alone {
        return Err(Failure::new(format!(
            "the recording has {count} processes, too many to serve them all to gdb"
        ))
        .hint("choose one with `--process NAME --alone`"));
    }
    Ok(())
}

pub(super) fn words(error: ::session::Error) -> String {
    Failure::from(error).words()
}

impl Program {
    pub fn open(
        program: &Arc<::session::Program>,
        beginning: &Beginning,
    ) -> Result<Program, Failure> {
        let mut group = Group::new(program)?;
        group.stop_at_execs(true);
        let wanted = beginning
            .process
            .or(beginning.at.map(|(process, _)| process));
        let mut served: Vec<Served> = Vec::new();
        let mut pids = HashSet::new();
        for member in group.members() {
            let is_left_out = beginning.alone && wanted.is_some_and(|w| w != member.id);
            // Some did nothing that was recorded.
            if is_left_out || member.is_empty {
                group.let_go(member.id, true)?;
                continue;
            }
            let process = group.set()?.process(member.ix);
            let pid = process.map_or(0, |process| process.pid);
            let pid = free_id(pid, |pid| pids.contains(&pid));
            pids.insert(pid);
            served.push(Served::new(member, pid));
        }
        if served.is_empty() {
            return Err(::session::Error::NoProcesses.into());
        }
        let mut program = Program {
            group,
            served,
            lead: 0,
            eldest: 0,
            queue: VecDeque::new(),
            follow: Follow::Causal,
            stops: HashMap::new(),
            alive: None,
        };
        program.begin(beginning)?;
        program.settle();
        Ok(program)
    }

    /// The process at hand is the one that gdb sees first.
    pub(super) fn settle(&mut self) {
        let lead = self.lead;
        self.eldest = lead;
        let image = self.image_now(lead);
        if let Some(served) = self.served.get_mut(lead) {
            served.is_introduced = true;
            served.told = image;
        }
        self.introduce();
    }

    /// Goes to where it is to begin.
    pub(super) fn begin(&mut self, beginning: &Beginning) -> Result<(), Failure> {
        if let Some((process, event)) = beginning.at {
            self.go(process, event)?;
        }
        let Some(process) = beginning.process else {
            return Ok(());
        };
        let Some(lead) = self.index_of(process) else {
            return Err(Failure::new(
                "the process has no events that could be replayed",
            ));
        };
        if beginning.at.is_none() {
            // Where the program that it is named after begins.
            let images = self.group.images(process)?;
            if let Some(image) = images.last() {
                self.go(process, image.first)?;
            }
        }
        self.lead = lead;
        Ok(())
    }

    /// Has gdb told of the programs of those that it only knows by number.
    pub fn introduce(&mut self) {
        let new = (0..).zip(&self.served).filter(|(_, s)| !s.is_introduced);
        self.queue.extend(new.map(|(i, _)| Told::Program(i)));
    }

    /// The next stop that gdb is to be told of without anything moving.
    pub(super) fn next_told(&mut self) -> Option<Stop> {
        match self.queue.pop_front()? {
            Told::Stop(stop) => Some(stop),
            Told::Program(i) => {
                let path = self.path_of(i).unwrap_or_default();
                let thread = self.thread_id(i, None);
                let image = self.image_now(i);
                if let Some(served) = self.served.get_mut(i) {
                    served.is_introduced = true;
                    served.told = image;
                }
                // It takes them to be gone with the old program.
                self.forget_stops(i);
                Some(stop(thread, StopReason::Executed(path)))
            }
        }
    }

    pub fn index_of(&self, process: ProcessId) -> Option<usize> {
        self.served.iter().position(|served| served.id == process)
    }

    pub fn index(&self, pid: u32) -> Option<usize> {
        let found = self.served.iter().position(|served| served.pid == pid);
        found.filter(|i| self.served.get(*i).is_some_and(|served| !served.is_gone))
    }

    /// Where a process is.
    pub fn position(&self, i: usize) -> Position {
        let served = self.served.get(i);
        let at = served.and_then(|served| self.group.position(served.id).ok());
        at.unwrap_or(Position::START)
    }

    /// Says that everybody is where they belong if a process is about to do an
    /// event.
    pub fn go(&mut self, process: ProcessId, event: EventNo) -> Result<(), Failure> {
        self.group.place(process, Position::Event(event))?;
        self.group.regroup(process, self.follow)?;
        if let Some(lead) = self.index_of(process) {
            self.lead = lead;
        }
        Ok(())
    }

    /// Which of its images a process is in.
    pub fn image_now(&mut self, i: usize) -> Option<usize> {
        let id = self.served.get(i)?.id;
        if self.alive.is_some() {
            return Some(self.group.at(id).ok()?.target().maps_version().image);
        }
        let event = self.position(i).event();
        let images = self.group.images(id).ok()?;
        let after = images.partition_point(|image| image.first <= event);
        Some(after.saturating_sub(1))
    }

    /// The threads of a process, in order.
    pub fn states(&mut self, i: usize) -> Vec<ThreadState> {
        let Some(id) = self.served.get(i).map(|served| served.id) else {
            return Vec::new();
        };
        let at = self.position(i);
        let known = self
            .served
            .get(i)
            .and_then(|served| served.threads.as_ref());
        if let Some((_, threads)) = known.filter(|(then, _)| *then == at) {
            return threads.clone();
        }
        let threads = match self.group.at(id) {
            Ok(view) => view.target().threads(),
            Err(_) => return Vec::new(),
        };
        let at = self.position(i);
        if let Some(served) = self.served.get_mut(i) {
            served.threads = Some((at, threads.clone()));
        }
        threads
    }

    /// What was read of a process is to be read again.
    pub(super) fn forget_seen(&mut self, i: usize) {
        if let Some(served) = self.served.get_mut(i) {
            served.threads = None;
            served.regions = None;
        }
    }

    /// The thread of a process that runs.
    pub(super) fn running(&mut self, i: usize) -> Option<ThreadNo> {
        let id = self.served.get(i)?.id;
        Some(self.group.at(id).ok()?.target().thread())
    }

    /// gdb's name for a thread of a process; for its first one if none is meant, or
    /// none that is there.
    pub fn thread_id(&mut self, i: usize, number: Option<ThreadNo>) -> ThreadId {
        let pid = self.served.get(i).map_or(0, |served| served.pid);
        let states = self.states(i);
        let state = states.iter().find(|state| Some(state.number) == number);
        let state = state.or(states.first());
        ThreadId::new(pid, state.map_or(pid, |state| tid(pid, state)))
    }

    /// gdb's name for the thread of a process that runs.
    pub(super) fn running_id(&mut self, i: usize) -> ThreadId {
        let number = self.running(i);
        self.thread_id(i, number)
    }

    /// The number of a thread in its process.
    pub(super) fn thread_number(&mut self, thread: ThreadId) -> Option<(usize, ThreadNo)> {
        let i = self.index(thread.pid)?;
        let states = self.states(i);
        let state = states
            .iter()
            .find(|state| tid(thread.pid, state) == thread.tid)?;
        Some((i, state.number))
    }

    pub(super) fn regions(&mut self, i: usize) -> Vec<Region> {
        let Some(id) = self.served.get(i).map(|served| served.id) else {
            return Vec::new();
        };
        let at = self.position(i);
        let known = self
            .served
            .get(i)
            .and_then(|served| served.regions.as_ref());
        if let Some((_, regions)) = known.filter(|(then, _)| *then == at) {
            return regions.clone();
        }
        let regions = match self.group.at(id) {
            Ok(view) => view.target().regions().unwrap_or_default(),
            Err(_) => return Vec::new(),
        };
        let at = self.position(i);
        if let Some(served) = self.served.get_mut(i) {
            served.regions = Some((at, regions.clone()));
        }
        regions
    }

    /// What the present image of a process started from.
    pub(super) fn image(&mut self, i: usize) -> Option<ImageStart> {
        let id = self.served.get(i)?.id;
        let index = self.image_now(i)?;
        let span = *self.group.images(id).ok()?.get(index)?;
        let recording = self.group.recording_of(id)?;
        let (process, image) = whose(recording, id.number, span.number);
        let image = recording
            .images()
            .iter()
            .rfind(|known| known.process == process && known.image == image)?;
        recording.image_start(image).ok()
    }

    /// The path of what a process runs.
    pub fn path_of(&mut self, i: usize) -> Option<Vec<u8>> {
        if self.alive.is_some() {
            return self.told_of(i, "exe");
        }
        self.image(i).map(|image| image.exe)
    }

    /// Looks into a process.
    pub(super) fn look<T>(
        &mut self,
        i: usize,
        question: impl FnOnce(&Inspector<'_>) -> Option<T>,
    ) -> Option<T> {
        let id = self.served.get(i)?.id;
        let view = self.group.at(id).ok()?;
        question(&view.inspector())
    }

    /// gdb takes what it had a process stop at to be gone.
    pub(super) fn forget_stops(&mut self, i: usize) {
        let Some(id) = self.served.get(i).map(|served| served.id) else {
            return;
        };
        self.stops.retain(|(process, ..), _| *process != id);
        self.group
            .stops()
            .retain(|point| point.whom != Whom::Process(id));
    }

    /// What gdb is told of where a motion led.
    pub(super) fn told(&mut self, stopped: Stopped) -> Result<Stop, String> {
        let Some(i) = self.index_of(stopped.process) else {
            return Err("there is no such process".to_string());
        };
        if self.alive.is_some() {
            return Ok(self.told_alive(i, &stopped));
        }
        let image = self.image_now(i);
        let reason = match stopped.reason {
            Reason::Breakpoint { number } => {
                let kind = self.kind_of(number).map(|(kind, _)| kind);
                StopReason::Breakpoint(kind.unwrap_or(StopKind::Software))
            }
            Reason::Watch { number, .. } => match self.kind_of(number) {
                Some((kind, address)) => StopReason::Watch(kind, address),
                None => StopReason::Arrived,
            },
            Reason::Exec => StopReason::Executed(self.path_of(i).unwrap_or_default()),
            Reason::Start => StopReason::Beginning,
            Reason::End => StopReason::End,
            Reason::Interrupted => StopReason::Interrupted,
            Reason::Diverged(difference) => {
                let name = self.served.get(i).map_or("", |s| s.name.as_str());
                return Err(format!(
                    "the replay of {name} came to something else than the recording: expected \
                     {}, found {}",
                    difference.expected, difference.found
                ));
            }
            Reason::Step
            | Reason::Arrived
            | Reason::Caught { .. }
            | Reason::OutOfScope { .. }
            | Reason::Happened { .. } => StopReason::Arrived,
        };
        let known = self.served.get(i).and_then(|served| served.told);
        if known.is_some() && known != image {
            // Breakpoints are gone with the memory they were in.
            self.forget_stops(i);
        }
        if let Some(served) = self.served.get_mut(i) {
            served.told = image;
        }
        self.lead = i;
        Ok(stop(self.thread_id(i, Some(stopped.thread)), reason))
    }

    /// What gdb calls a point.
    pub(super) fn kind_of(&self, number: u32) -> Option<(StopKind, u64)> {
        let mut stops = self.stops.iter();
        let (key, _) = stops.find(|(_, known)| **known == number)?;
        let (_, kind, address, _) = *key;
        Some((kind, address))
    }
}

/// gdb's number for a process: its own, unless another one has it. Ids come again in long
/// runs, and on other hosts.
pub(super) fn free_id(own: u32, is_taken: impl Fn(u32) -> bool) -> u32 {
    let mut pid = own;
    while pid == 0 || is_taken(pid) {
        pid = pid.wrapping_add(1 << 22);
    }
    pid
}

/// A stop of a process at hand.
pub fn stop(thread: ThreadId, reason: StopReason) -> Stop {
    Stop { thread, reason }
}

/// gdb's number for a thread. The first one has its process's, before it has
/// asked for its own, too; of another one that has none in the recording, one
/// that no other has.
pub(super) fn tid(pid: u32, state: &ThreadState) -> u32 {
    match (state.number.0, state.tid) {
        (0, _) => pid,
        (number, 0) => (1 << 23) + number,
        (_, tid) => tid,
    }
}

/// An image of a process, or of the process that it was forked from.
fn whose(recording: &Recording, process: ProcessNo, image: ImageNo) -> (ProcessNo, ImageNo) {
    let (mut process, mut image) = (process, image);
    for _ in 0..protocol::replay::PATH_STREAMS {
        let mut all = recording.images().iter();
        if all.any(|i| i.process == process && i.image == image) {
            break;
        }
        let Some(info) = recording.process(process) else {
            break;
        };
        let Some(parent) = info.parent else {
            break;
        };
        // What the parent ran when it forked.
        let ran = recording
            .images()
            .iter()
            .rfind(|i| i.process == parent && i.time <= info.birth);
        process = parent;
        image = ran.map_or(ImageNo(0), |i| i.image);
    }
    (process, image)
}
