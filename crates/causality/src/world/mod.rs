//! Follows all processes through their logs, so that it is known which kernel
//! object each call was about.
//!
//! A descriptor is a number that means something only in its process at its
//! moment. Tables of descriptors are followed through everything that makes,
//! copies, passes, inherits and closes them; what a descriptor leads to is an
//! open file, which several processes may share; and open files lead to
//! channels, timers, locks. The logs are read in order of time, which is only
//! nearly the order in which things happened: a call is logged after it was
//! made. So nothing here relies on the order of two processes' events closer
//! than the interval in which each must have been done.

mod across;
mod addresses;
pub(crate) mod calls;
mod clocks;
mod descriptors;
mod events;
mod futexes;
mod joined;
mod locks;
pub(crate) mod objects;
mod pairs;
mod polls;
mod processes;
mod queues;
mod rights;
mod signals;
mod sockets;
mod tables;
mod terminals;
mod transfers;
mod translated;
mod waits;

use std::collections::{HashMap, HashSet};

use protocol::id::{EventNo, ProcessIx, ProcessNo, ThreadNo};
use recording::Set;

use crate::channel::ChannelKind;
use crate::link::{EventId, Kind, Link};
pub(crate) use addresses::{plain, reached};
pub use clocks::MemberClock;
pub(crate) use clocks::since_first;
use objects::*;
use tables::{Files, Table};
pub use waits::WaitFor;
pub(crate) use waits::{LONG, SENDS, Wait, lock_number};

/// A call that has begun and not returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    nr: u64,
    first: u32,
    lo: u64,
    /// The open file of its (first) descriptor when it began.
    file: u32,
    /// That of its second, for calls that move bytes between two.
    second: u32,
    /// The semaphore that it may have to wait for.
    semaphore: Option<u16>,
    args: [u64; 6],
}

/// A process, as far as it has been followed.
#[derive(Debug, Default)]
struct Proc {
    table: usize,
    cwd: Vec<u8>,
    threads: Vec<ThreadState>,
    last: u32,
    last_time: u64,
    ended: bool,
    /// It did not end itself.
    killed: bool,
    /// Shared memory that is mapped: from, to, which, offset.
    shared: Vec<(u64, u64, u32, u64)>,
    /// The event that began an exec that has not succeeded yet.
    exec: Option<Op>,
    /// The vfork of another process that waits for this one to exec or exit.
    frees: Option<(u32, u32)>,
    /// The event at which it had been on its own, if another waited for that.
    freed: Option<(u32, u32)>,
    terminal: Option<u32>,
}

#[derive(Debug, Default)]
struct ThreadState {
    pending: Vec<Pending>,
    /// The files that a wait for several is for, and how.
    watching: Vec<(u32, u32)>,
    /// Woken when it ends.
    clear_tid: u64,
    /// The event that made it, until its first one is seen.
    made_by: Option<u32>,
    comm: Option<String>,
    /// Its first event, and the one at which it ended.
    born: Option<u32>,
    died: Option<u32>,
    /// Its first call that is not about the thread itself.
    used: Option<u32>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum End {
    /// It did not, as far as is known.
    Unknown = 0,
    /// With its last event.
    Exited = 1,
    /// Some time after its last event.
    Killed = 2,
}

/// A call that was two events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub process: u32,
    pub thread: u32,
    pub first: u32,
    pub last: u32,
    pub nr: u32,
}

/// Bytes that went from one channel to another inside the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward {
    /// Channel, and place among its receives (or its peeks).
    pub from: (u32, usize),
    pub peek: bool,
    /// Channel, and place among its sends.
    pub to: (u32, usize),
}

/// All processes and objects.
pub(crate) struct World<'r> {
    set: &'r Set,
    /// The network namespace that each member was recorded in.
    nets: Vec<u16>,
    /// The member whose logs are read: numbers, paths and addresses are its
    /// host's.
    member: u16,
    /// The first of its sockets.
    first_socket: usize,
    /// Halves of connections that have no other in their own member.
    apart: Vec<across::Apart>,
    /// How often it had to be guessed which halves belong together.
    pub guessed_pairs: u64,
    /// How the members' clocks stood to each other, where there are several.
    pub clocks: Vec<MemberClock>,
    processes: Vec<Proc>,
    places: HashMap<ProcessNo, u32>,
    pids: HashMap<u32, Vec<(u64, u32)>>,
    tids: HashMap<u32, Vec<(u64, u32, u32)>>,
    tables: Vec<Table>,
    /// What children get whose first event was not seen yet, by the event that
    /// makes them.
    births: HashMap<(u32, u32), processes::Birth>,
    /// Events whose children were seen.
    begun: HashSet<(u32, u32)>,
    pub files: Files,
    pub channels: Vec<Chan>,
    pub sockets: Vec<Socket>,
    pub connections: Vec<Connection>,
    pub listeners: Vec<Listener>,
    /// What was accepted, by the event: who had connected.
    pub connects: HashMap<(u32, u32), Op>,
    tcp: pairs::Tuples,
    pub sent: Vec<Sent>,
    /// Channels of datagrams, with the sockets they go from and to.
    pub flows: Vec<(u32, u32, Option<u32>)>,
    pub terminals: Vec<Pty>,
    /// By device and inode: the channel, and when the last who had it open
    /// closed it.
    fifos: HashMap<(u64, u64), (u32, Option<u64>)>,
    pub timers: Vec<Timer>,
    epolls: Vec<polls::Epoll>,
    /// Waits that found a signal to read.
    pub signals_ready: Vec<Op>,
    /// Waits that found that a process had ended.
    pub ends_seen: Vec<(Op, u32)>,
    ipcs: HashMap<queues::Ipc, u32>,
    /// Sets of semaphores whose values are not known.
    vague_sets: HashSet<u32>,
    posix_queues: HashMap<Vec<u8>, u32>,
    paths: HashMap<Vec<u8>, u32>,
    path_names: Vec<Vec<u8>>,
    pub locks: Vec<LockOp>,
    held: HashMap<(u32, bool, LockOwner), u32>,
    /// Who had which lock, from which event to which, and by which owner.
    pub lock_holds: Vec<LockHold>,
    /// Of `lock_holds`, those that go on.
    open_holds: HashMap<(u32, bool, LockOwner), usize>,
    /// Locks that somebody waited for at length.
    pub wanted_locks: HashSet<u32>,
    pub futexes: HashMap<Futex, FutexOps>,
    memories: u32,
    memory_of: HashMap<Vec<u8>, u32>,
    pub kills: Vec<Kill>,
    pub arrivals: Vec<Arrival>,
    pub alarms: Vec<Op>,
    pub waited: Vec<Waited>,
    /// Vforks that returned before the child was seen to be on its own.
    vforks: Vec<(u32, Op)>,
    pub forwards: Vec<Forward>,
    pub links: Vec<Link>,
    pub calls: Vec<Call>,
    pub waits: Vec<Wait>,
    pub polls: Vec<u32>,
}

impl<'r> World<'r> {
    pub fn new(set: &'r Set) -> World<'r> {
        let processes = set.places().map(|place| {
            let found = set.at(place);
            let image = found.and_then(|(recording, process)| recording.images_of(process).next());
            Proc {
                table: usize::MAX,
                cwd: image.map(|image| image.cwd.clone()).unwrap_or_default(),
                ..Proc::default()
            }
        });
        let processes = processes.collect();
        World {
            set,
            nets: across::nets(set),
            member: 0,
            first_socket: 0,
            apart: Vec::new(),
            guessed_pairs: 0,
            clocks: Vec::new(),
            processes,
            places: HashMap::new(),
            pids: HashMap::new(),
            tids: HashMap::new(),
            tables: Vec::new(),
            births: HashMap::new(),
            begun: HashSet::new(),
            files: Files::default(),
            channels: Vec::new(),
            sockets: Vec::new(),
            connections: Vec::new(),
            listeners: Vec::new(),
            connects: HashMap::new(),
            tcp: pairs::Tuples::default(),
            sent: Vec::new(),
            flows: Vec::new(),
            terminals: Vec::new(),
            fifos: HashMap::new(),
            timers: Vec::new(),
            epolls: Vec::new(),
            signals_ready: Vec::new(),
            ends_seen: Vec::new(),
            ipcs: HashMap::new(),
            vague_sets: HashSet::new(),
            posix_queues: HashMap::new(),
            paths: HashMap::new(),
            path_names: Vec::new(),
            locks: Vec::new(),
            held: HashMap::new(),
            lock_holds: Vec::new(),
            open_holds: HashMap::new(),
            wanted_locks: HashSet::new(),
            futexes: HashMap::new(),
            memories: 0,
            memory_of: HashMap::new(),
            kills: Vec::new(),
            arrivals: Vec::new(),
            alarms: Vec::new(),
            waited: Vec::new(),
            vforks: Vec::new(),
            forwards: Vec::new(),
            links: Vec::new(),
            calls: Vec::new(),
            waits: Vec::new(),
            polls: Vec::new(),
        }
    }

    /// The logs of another member follow: what the numbers, paths and addresses
    /// of the one before meant is forgotten.
    pub fn enter(&mut self, member: u16) {
        self.member = member;
        self.first_socket = self.sockets.len();
        self.places.clear();
        self.pids.clear();
        self.tids.clear();
        self.fifos.clear();
        self.ipcs.clear();
        self.posix_queues.clear();
        self.paths.clear();
        self.memory_of.clear();
        let Some(recording) = self.set.member(member) else {
            return;
        };
        for (process, place) in recording.processes().iter().zip(self.set.places_of(member)) {
            self.places.insert(process.number, place);
            if process.pid != 0 {
                let list = self.pids.entry(process.pid).or_default();
                list.push((process.birth.0, place));
            }
        }
        self.joined(recording);
    }

    /// Number of the last event of a process.
    pub fn last_event(&self, place: u32) -> Option<u32> {
        self.proc(place).map(|process| process.last)
    }

    /// The last event of a process, as what others learn of its end from.
    pub fn last_op(&self, place: u32) -> Option<Op> {
        let process = self.proc(place)?;
        Some(Op {
            process: place,
            first: process.last,
            last: process.last,
            lo: process.last_time,
            hi: process.last_time,
            ..Op::default()
        })
    }

    /// The path of a file that has a number here.
    pub fn path_of(&self, file: u32) -> &[u8] {
        self.path_names
            .get(file as usize)
            .map_or(&[], Vec::as_slice)
    }

    /// The place of the process with this number.
    pub fn place_of(&self, number: ProcessNo) -> Option<u32> {
        self.places.get(&number).copied()
    }

    /// The log of a process ends with this event.
    pub fn saw(&mut self, place: u32, number: u64, time: u64) {
        if let Some(process) = self.proc_mut(place) {
            process.last = process.last.max(u32::try_from(number).unwrap_or(u32::MAX));
            process.last_time = process.last_time.max(time);
        }
    }

    /// The names that threads gave themselves.
    pub fn comms(&self) -> impl Iterator<Item = (u32, u32, &str)> {
        let places = 0u32..;
        self.processes
            .iter()
            .zip(places)
            .flat_map(|(process, place)| {
                let threads = process.threads.iter().zip(0u32..);
                threads.filter_map(move |(thread, number)| {
                    Some((place, number, thread.comm.as_deref()?))
                })
            })
    }

    /// The threads of a process: number, first event, the one at which it
    /// ended, the first call that is not about the thread itself.
    pub fn threads(
        &self,
        place: u32,
    ) -> impl Iterator<Item = (u32, u32, Option<u32>, Option<u32>)> {
        let threads = self.proc(place).map_or(&[][..], |p| p.threads.as_slice());
        threads
            .iter()
            .zip(0u32..)
            .filter_map(|(thread, number)| Some((number, thread.born?, thread.died, thread.used)))
    }

    /// Whether a process is known to have ended, and by its own doing.
    pub fn end_of(&self, place: u32) -> End {
        match self.proc(place) {
            Some(process) if process.killed => End::Killed,
            Some(process) if process.ended => End::Exited,
            _ => End::Unknown,
        }
    }

    /// How many threads a process had.
    pub fn thread_count(&self, place: u32) -> usize {
        self.proc(place).map_or(0, |process| process.threads.len())
    }

    fn proc(&self, place: u32) -> Option<&Proc> {
        self.processes.get(place as usize)
    }

    fn proc_mut(&mut self, place: u32) -> Option<&mut Proc> {
        self.processes.get_mut(place as usize)
    }

    /// The process that had this id of the kernel's at `time`.
    pub fn process_with(&self, pid: u32, time: u64) -> Option<u32> {
        let list = self.pids.get(&pid)?;
        let born = list.iter().rev().find(|(birth, _)| *birth <= time);
        born.or(list.first()).map(|(_, place)| *place)
    }

    fn thread_with(&self, tid: u32, time: u64) -> Option<(u32, u32)> {
        let list = self.tids.get(&tid);
        let found = list.and_then(|list| {
            let born = list.iter().rev().find(|(birth, ..)| *birth <= time);
            born.or(list.first())
                .map(|(_, place, thread)| (*place, *thread))
        });
        found.or_else(|| Some((self.process_with(tid, time)?, 0)))
    }

    fn thread_mut(&mut self, place: u32, thread: u32) -> Option<&mut ThreadState> {
        // Thread numbers count up from 0: one far off is not one.
        if thread > 1 << 20 {
            return None;
        }
        let process = self.processes.get_mut(place as usize)?;
        let at = thread as usize;
        if process.threads.len() <= at {
            process.threads.resize_with(at + 1, ThreadState::default);
        }
        process.threads.get_mut(at)
    }

    fn link(&mut self, kind: Kind, cause: (u32, u32), effect: &Op) {
        self.links.push(Link {
            cause: EventId::new(ProcessIx(cause.0), EventNo(cause.1.into())),
            effect: EventId::new(ProcessIx(effect.process), EventNo(effect.last.into())),
            thread: ThreadNo(effect.thread),
            cause_thread: None,
            kind,
            channel: None,
            amount: 0,
        });
    }

    pub fn make_channel(&mut self, kind: ChannelKind, flow: Flow, name: String) -> u32 {
        self.channels.push(Chan::new(kind, flow, name));
        (self.channels.len() - 1) as u32
    }

    pub fn channel(&mut self, number: u32) -> Option<&mut Chan> {
        self.channels.get_mut(number as usize)
    }
}
