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
pub(crate) mod calls;
mod clocks;
pub(crate) mod objects;
mod pairs;
mod polls;
mod processes;
mod queues;
mod sockets;
mod tables;
mod terminals;
mod transfers;
mod waits;

use std::collections::{HashMap, HashSet};

use protocol::id::{EventNo, ProcessIx, ThreadNo};
use protocol::record::{begin, kind, tag};
use recording::sockaddr::Address;
use recording::{Event, Phase, Set};

use crate::channel::ChannelKind;
use crate::link::{EventId, Kind, Link};
use calls::nr;
pub use clocks::MemberClock;
pub(crate) use clocks::since_first;
use objects::*;
use tables::{Files, Slot, Table};
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
    places: HashMap<u32, u32>,
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
                list.push((process.birth, place));
            }
        }
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
    pub fn place_of(&self, number: u32) -> Option<u32> {
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

    /// The channels an open file receives from and sends to.
    pub fn channels_of(&mut self, file: u32) -> (Option<u32>, Option<u32>) {
        let some = |channel: u32| (channel != NONE).then_some(channel);
        match self.files.what(file) {
            What::Outside { input, output } => (some(input), some(output)),
            What::Pipe {
                channel,
                read,
                write,
            }
            | What::Queue {
                channel,
                read,
                write,
            } => (read.then_some(channel), write.then_some(channel)),
            What::Socket(socket) => {
                let connected = self.sockets.get(socket as usize).and_then(|s| s.connection);
                match connected
                    .and_then(|(c, side)| Some((self.connections.get(c as usize)?.channels, side)))
                {
                    Some(([out, back], 0)) => (Some(back), Some(out)),
                    Some(([out, back], _)) => (Some(out), Some(back)),
                    None => (None, None),
                }
            }
            What::Terminal { pty, master } => {
                match self.terminals.get(pty as usize).map(|pty| pty.channels) {
                    Some([down, up]) if master => (Some(up), Some(down)),
                    Some([down, up]) => (Some(down), Some(up)),
                    None => (None, None),
                }
            }
            What::Counter(channel) => (Some(channel), Some(channel)),
            _ => (None, None),
        }
    }

    // Descriptors.

    fn table(&mut self, place: u32) -> Option<&mut Table> {
        let at = self.processes.get(place as usize)?.table;
        if at == usize::MAX {
            self.tables.push(Table::default());
            let new = self.tables.len() - 1;
            self.processes.get_mut(place as usize)?.table = new;
            return self.tables.get_mut(new);
        }
        self.tables.get_mut(at)
    }

    /// What a descriptor leads to. One that nobody has seen made came from
    /// outside.
    fn file_of(&mut self, place: u32, fd: u64) -> u32 {
        let fd = fd as u32 as i32;
        if let Some(slot) = self.table(place).and_then(|table| table.get(fd)) {
            return slot.file;
        }
        if fd < 0 {
            return NONE;
        }
        let file = self.files.make(What::Outside {
            input: NONE,
            output: NONE,
        });
        let number = self.proc(place).map_or(0, |process| process.last);
        let op = Op {
            process: place,
            last: number,
            ..Op::default()
        };
        self.put(op, i64::from(fd), file, false);
        file
    }

    /// A descriptor of the operation's process leads to `file` from now on.
    fn put(&mut self, op: Op, fd: i64, file: u32, cloexec: bool) {
        let Ok(fd) = i32::try_from(fd) else { return };
        if fd < 0 {
            return;
        }
        self.files.hold(file, op.process, op.last);
        let slot = Slot { file, cloexec };
        let old = self.table(op.process).and_then(|table| table.put(fd, slot));
        if let Some(old) = old {
            self.let_go(op, old.file);
        }
    }

    fn let_go(&mut self, op: Op, file: u32) {
        if self.files.release(file, op.process, op.last) {
            self.closed(op, file);
        }
        self.posix_unlock(op, file);
    }

    /// The last descriptor of an open file is gone.
    fn closed(&mut self, op: Op, file: u32) {
        let what = self.files.what(file);
        let (input, output) = self.channels_of(file);
        if let Some(channel) = output.and_then(|channel| self.channel(channel)) {
            channel.writers = channel.writers.saturating_sub(1);
            if channel.writers == 0 && !channel.shut_out {
                channel.ended.push(op);
            }
        }
        if let Some(channel) = input.and_then(|channel| self.channel(channel)) {
            channel.readers = channel.readers.saturating_sub(1);
            if channel.readers == 0 && !channel.shut_in {
                channel.abandoned.push(op);
            }
        }
        match what {
            What::Pipe { channel, .. } => {
                let unused = self
                    .channel(channel)
                    .is_some_and(|c| c.readers == 0 && c.writers == 0);
                let fifo = self.fifos.values_mut().find(|fifo| fifo.0 == channel);
                if let Some(fifo) = fifo.filter(|_| unused) {
                    fifo.1 = Some(op.hi);
                }
            }
            What::Socket(socket) => self.socket_closed(op, socket),
            What::File(path) => self.unlock_all(op, path, LockOwner::File(file)),
            _ => {}
        }
    }

    fn make_pipe(&mut self, name: &str) -> u32 {
        self.make_channel(ChannelKind::Pipe, Flow::Stream, name.to_string())
    }

    /// An open file for a pipe's end or ends.
    fn open_pipe(&mut self, channel: u32, read: bool, write: bool) -> u32 {
        if let Some(channel) = self.channel(channel) {
            channel.readers += u32::from(read);
            channel.writers += u32::from(write);
        }
        self.files.make(What::Pipe {
            channel,
            read,
            write,
        })
    }

    fn path(&mut self, path: Vec<u8>) -> u32 {
        if let Some(known) = self.paths.get(&path) {
            return *known;
        }
        let number = self.path_names.len() as u32;
        self.path_names.push(path.clone());
        self.paths.insert(path, number);
        number
    }

    fn absolute(&mut self, place: u32, dir: Option<u64>, path: &[u8]) -> Vec<u8> {
        const AT_FDCWD: i32 = -100;
        if path.starts_with(b"/") {
            return tidy(path);
        }
        let base = match dir.map(|fd| fd as u32 as i32) {
            None | Some(AT_FDCWD) => self.proc(place).map(|p| p.cwd.clone()),
            Some(fd) => {
                let slot = self.table(place).and_then(|table| table.get(fd));
                match slot.map(|slot| self.files.what(slot.file)) {
                    Some(What::File(path)) => self.path_names.get(path as usize).cloned(),
                    _ => None,
                }
            }
        };
        let mut whole = base.unwrap_or_default();
        whole.push(b'/');
        whole.extend_from_slice(path);
        tidy(&whole)
    }

    // Events.

    /// Takes in an event. `before`: the time of the record before it.
    pub fn take(&mut self, place: u32, event: &Event<'_>, before: u64) {
        let number = u32::try_from(event.number).unwrap_or(u32::MAX);
        if let Some(process) = self.proc_mut(place) {
            process.last = number;
            process.last_time = event.time;
        }
        if let Some(thread) = self.thread_mut(place, event.thread) {
            thread.born.get_or_insert(number);
            let begins = matches!(event.phase, Phase::Start | Phase::Call);
            if begins && !calls::is_housekeeping(event.nr) {
                thread.used.get_or_insert(number);
            }
        }
        let mut op = Op {
            process: place,
            thread: event.thread,
            first: number,
            last: number,
            lo: before,
            hi: event.time,
            amount: 0,
        };
        match event.kind {
            kind::BEGIN => return self.begin(op, event),
            kind::THREAD_START => {
                if let Ok(tid) = u32::try_from(event.value(1)) {
                    let entry = (event.time, place, event.value(0) as u32);
                    self.tids.entry(tid).or_default().push(entry);
                }
                return self.thread_begins(op);
            }
            kind::SIGNAL => return self.signal(op, event),
            _ => {}
        }
        match event.phase {
            Phase::Start => {
                let pending = self.pending(op, event);
                if let Some(thread) = self.thread_mut(place, event.thread) {
                    thread.pending.push(pending);
                }
                self.started(op, event, pending);
            }
            Phase::End => {
                let pending = self.returned(place, event);
                if let Some(pending) = pending {
                    op.first = pending.first;
                    op.lo = pending.lo;
                    self.calls.push(Call {
                        process: place,
                        thread: event.thread,
                        first: pending.first,
                        last: number,
                        nr: event.nr as u32,
                    });
                    // Who stopped it may want to know what it waited for.
                    let interrupted = matches!(event.result, Some(-516..=-512 | -4));
                    self.note_wait(op, &pending, Some(number), interrupted);
                }
                self.done(op, event, pending);
            }
            Phase::Call => self.done(op, event, None),
            Phase::None => {}
        }
    }

    fn pending(&mut self, op: Op, event: &Event<'_>) -> Pending {
        let (first, second) = calls::descriptors(event.nr, &event.args);
        let file = first.map_or(NONE, |fd| self.file_of(op.process, fd));
        let second = second.map_or(NONE, |fd| self.file_of(op.process, fd));
        Pending {
            nr: event.nr,
            first: op.last,
            lo: event.time,
            file,
            second,
            semaphore: queues::waits_for_semaphore(event),
            args: event.args,
        }
    }

    fn returned(&mut self, place: u32, event: &Event<'_>) -> Option<Pending> {
        let thread = self.thread_mut(place, event.thread)?;
        let at = thread.pending.iter().rposition(|p| p.nr == event.nr)?;
        thread.pending.truncate(at + 1);
        thread.pending.pop()
    }

    /// A call that may block begins.
    fn started(&mut self, op: Op, event: &Event<'_>, pending: Pending) {
        match event.nr {
            nr::CONNECT => self.connecting(op, event, pending.file),
            nr::SENDMSG => self.pass_rights(op, event, pending.file),
            nr::EXECVE | nr::EXECVEAT => {
                if let Some(process) = self.proc_mut(op.process) {
                    process.exec = Some(op);
                }
            }
            nr::CLONE | nr::FORK | nr::VFORK => self.about_to_fork(op, event.args[0], event.nr),
            nr::EXIT => self.thread_ends(op),
            nr::EXIT_GROUP => self.process_ends(op),
            number if polls::names_descriptors(number) => self.begins_to_watch(op, event),
            _ => {}
        }
    }

    /// A call is over.
    fn done(&mut self, op: Op, event: &Event<'_>, pending: Option<Pending>) {
        let result = event.result.unwrap_or(-1);
        if !event.args_known {
            return;
        }
        let args = &event.args;
        let file = match pending {
            Some(pending) => pending.file,
            None => match calls::descriptors(event.nr, args).0 {
                Some(fd) => self.file_of(op.process, fd),
                None => NONE,
            },
        };
        if calls::is_transfer(event.nr) {
            let second = match pending {
                Some(pending) => pending.second,
                None => match calls::descriptors(event.nr, args).1 {
                    Some(fd) => self.file_of(op.process, fd),
                    None => NONE,
                },
            };
            return self.transfer(op, event, file, second);
        }
        match event.nr {
            nr::FUTEX => return self.futex(op, event),
            nr::CONNECT => return self.connected(op, event, file),
            nr::CLOSE if result != -9 => return self.close(op, args[0]),
            nr::FLOCK if result == 0 => return self.flock(op, event, file),
            nr::FCNTL => return self.fcntl(op, event, file),
            _ if result < 0 => return,
            _ => {}
        }
        const CLOEXEC: u64 = 0x80000;
        match event.nr {
            nr::OPEN => self.opened(op, event, None, 0, args[1]),
            nr::CREAT => self.opened(op, event, None, 0, 0o1101),
            nr::OPENAT => self.opened(op, event, Some(args[0]), 1, args[2]),
            nr::OPENAT2 => {
                let how = event.argument(2).and_then(|how| calls::word(how.bytes, 0));
                self.opened(op, event, Some(args[0]), 1, how.unwrap_or(0));
            }
            nr::PIPE | nr::PIPE2 => {
                let cloexec = event.nr == nr::PIPE2 && args[1] & CLOEXEC != 0;
                if let Some((read, write)) = calls::pair(event, 0) {
                    let channel = self.make_pipe("pipe");
                    let file = self.open_pipe(channel, true, false);
                    self.put(op, read, file, cloexec);
                    let file = self.open_pipe(channel, false, true);
                    self.put(op, write, file, cloexec);
                }
            }
            nr::SOCKET => self.make_socket(op, result, args[0], args[1]),
            nr::SOCKETPAIR => self.make_pair(op, event),
            nr::BIND | nr::GETSOCKNAME => self.bound(op, event, file),
            nr::LISTEN => self.listens(op, event, file),
            nr::ACCEPT => self.accepted(op, event, file, 0),
            nr::ACCEPT4 => self.accepted(op, event, file, args[3]),
            nr::SHUTDOWN => self.shut_down(op, file, args[1]),
            nr::DUP => self.duplicate(op, file, result, false),
            nr::DUP2 if args[0] as u32 != args[1] as u32 => {
                self.duplicate(op, file, result, false);
            }
            nr::DUP3 => self.duplicate(op, file, result, args[2] & CLOEXEC != 0),
            nr::CLOSE_RANGE => self.close_range(op, args),
            nr::IOCTL => self.ioctl(op, event, file),
            nr::EVENTFD => self.make_counter(op, result, args[0], 0),
            nr::EVENTFD2 => self.make_counter(op, result, args[0], args[1]),
            nr::TIMERFD_CREATE => {
                self.timers.push(Timer::default());
                let what = What::Timer((self.timers.len() - 1) as u32);
                self.make(op, result, what, args[1] & CLOEXEC != 0);
            }
            nr::TIMERFD_SETTIME => {
                if let What::Timer(timer) = self.files.what(file)
                    && let Some(timer) = self.timers.get_mut(timer as usize)
                {
                    timer.sets.push(op);
                }
            }
            nr::SIGNALFD | nr::SIGNALFD4 if args[0] as u32 as i32 == -1 => {
                let flags = if event.nr == nr::SIGNALFD4 {
                    args[3]
                } else {
                    0
                };
                self.make(op, result, What::Signals, flags & CLOEXEC != 0);
            }
            nr::EPOLL_CREATE | nr::EPOLL_CREATE1 => {
                self.epolls.push(polls::Epoll::default());
                let what = What::Epoll((self.epolls.len() - 1) as u32);
                let cloexec = event.nr == nr::EPOLL_CREATE1 && args[0] & CLOEXEC != 0;
                self.make(op, result, what, cloexec);
            }
            nr::EPOLL_CTL => self.epoll_ctl(op, event, file),
            nr::PIDFD_OPEN => {
                let process = self.process_with(args[0] as u32, op.hi);
                let what = process.map_or(What::Other, What::Process);
                self.make(op, result, what, true);
            }
            nr::MEMFD_CREATE => {
                // No two are the same, whatever they are called.
                let name = format!("memfd:{}:{}", op.process, op.last).into_bytes();
                let path = self.path(name);
                self.make(op, result, What::File(path), args[1] & 1 != 0);
            }
            nr::POLL
            | nr::PPOLL
            | nr::SELECT
            | nr::PSELECT6
            | nr::EPOLL_WAIT
            | nr::EPOLL_PWAIT
            | nr::EPOLL_PWAIT2 => self.watched(op, event, file),
            nr::MSGSND => self.queue_sent(op, event),
            nr::MSGRCV => self.queue_received(op, event),
            nr::MSGCTL => self.queue_control(event),
            nr::SEMOP | nr::SEMTIMEDOP => self.semaphore_done(op, event),
            nr::SEMCTL => self.semaphore_control(op, event),
            nr::MQ_OPEN => self.posix_queue_opened(op, event),
            nr::MQ_UNLINK => self.posix_queue_unlinked(event),
            nr::MQ_TIMEDSEND | nr::MQ_TIMEDRECEIVE => self.posix_queue_used(op, event, file),
            nr::INOTIFY_INIT | nr::INOTIFY_INIT1 => {
                self.make(op, result, What::Other, args[0] & CLOEXEC != 0);
            }
            nr::CHDIR => {
                if let Some(path) = event.argument(0) {
                    let path = self.absolute(op.process, None, calls::text(path.bytes));
                    if let Some(process) = self.proc_mut(op.process) {
                        process.cwd = path;
                    }
                }
            }
            nr::SETSID => {
                if let Some(process) = self.proc_mut(op.process) {
                    process.terminal = None;
                }
            }
            nr::FCHDIR => {
                if let What::File(path) = self.files.what(file)
                    && let Some(path) = self.path_names.get(path as usize).cloned()
                    && let Some(process) = self.proc_mut(op.process)
                {
                    process.cwd = path;
                }
            }
            nr::MMAP => self.mapped(op, event, file),
            nr::MUNMAP => self.unmapped(op.process, args[0], args[1]),
            nr::CLONE | nr::FORK | nr::VFORK => self.forked(op, event),
            nr::SET_TID_ADDRESS => {
                if let Some(thread) = self.thread_mut(op.process, op.thread) {
                    thread.clear_tid = args[0];
                }
            }
            nr::PRCTL if args[0] == 15 => {
                let name = event
                    .argument(1)
                    .map(|name| String::from_utf8_lossy(calls::text(name.bytes)).into_owned());
                if let Some(thread) = self.thread_mut(op.process, op.thread) {
                    thread.comm = name;
                }
            }
            nr::WAIT4 | nr::WAITID => self.waited_for(op, event),
            nr::KILL
            | nr::TKILL
            | nr::TGKILL
            | nr::RT_SIGQUEUEINFO
            | nr::RT_TGSIGQUEUEINFO
            | nr::PIDFD_SEND_SIGNAL => self.killed(op, event, file),
            nr::RT_SIGTIMEDWAIT => self.signal_taken(op, event),
            nr::ALARM | nr::SETITIMER | nr::TIMER_SETTIME => self.alarms.push(op),
            _ => {}
        }
    }

    fn make(&mut self, op: Op, fd: i64, what: What, cloexec: bool) {
        let file = self.files.make(what);
        self.put(op, fd, file, cloexec);
    }

    fn make_counter(&mut self, op: Op, fd: i64, count: u64, flags: u64) {
        const SEMAPHORE: u64 = 1;
        let flow = Flow::Count(flags & SEMAPHORE != 0);
        let channel = self.make_channel(ChannelKind::Counter, flow, "eventfd".to_string());
        let count = u64::from(count as u32);
        if let Some(channel) = self.channel(channel) {
            channel.readers = 1;
            channel.writers = 1;
            if count != 0 {
                channel.sends.push(Op {
                    amount: count,
                    ..op
                });
            }
        }
        self.make(op, fd, What::Counter(channel), flags & 0x80000 != 0);
    }

    fn duplicate(&mut self, op: Op, file: u32, to: i64, cloexec: bool) {
        if file != NONE {
            self.put(op, to, file, cloexec);
        }
    }

    fn close(&mut self, op: Op, fd: u64) {
        let fd = fd as u32 as i32;
        let old = self.table(op.process).and_then(|table| table.take(fd));
        if let Some(old) = old {
            self.let_go(op, old.file);
        }
    }

    fn close_range(&mut self, op: Op, args: &[u64; 6]) {
        const MARK: u64 = 4;
        let range = args[0] as u32..=args[1] as u32;
        let Some(table) = self.table(op.process) else {
            return;
        };
        let inside: Vec<i32> = table
            .used()
            .map(|(fd, _)| fd)
            .filter(|fd| range.contains(&(*fd as u32)))
            .collect();
        for fd in inside {
            if args[2] & MARK == 0 {
                self.close(op, fd as u64);
            } else if let Some(slot) = self.table(op.process).and_then(|t| t.slot_mut(fd)) {
                slot.cloexec = true;
            }
        }
    }

    fn fcntl(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let (args, result) = (&event.args, event.result.unwrap_or(-1));
        match args[1] as u32 {
            0 if result >= 0 => self.duplicate(op, file, result, false),
            1030 if result >= 0 => self.duplicate(op, file, result, true),
            2 if result >= 0 => self.mark(op.process, args[0], args[2] & 1 != 0),
            6 | 7 | 37 | 38 if result >= 0 => self.fcntl_lock(op, event, file),
            _ => {}
        }
    }

    fn mark(&mut self, place: u32, fd: u64, cloexec: bool) {
        let slot = self
            .table(place)
            .and_then(|table| table.slot_mut(fd as u32 as i32));
        if let Some(slot) = slot {
            slot.cloexec = cloexec;
        }
    }

    fn opened(&mut self, op: Op, event: &Event<'_>, dir: Option<u64>, arg: usize, flags: u64) {
        const FIFO: u64 = 0o010000;
        const CHAR: u64 = 0o020000;
        let cloexec = flags & 0x80000 != 0;
        let result = event.result.unwrap_or(-1);
        let path = match (event.blob(tag::PATH), event.argument(arg)) {
            (Some(path), _) => calls::text(path.bytes).to_vec(),
            (None, Some(path)) => self.absolute(op.process, dir, calls::text(path.bytes)),
            (None, None) => Vec::new(),
        };
        let identity = event.blob(tag::IDENTITY).map(|blob| blob.bytes);
        let word = |at| {
            identity
                .and_then(|bytes| calls::word(bytes, at))
                .unwrap_or(0)
        };
        let (read, write) = match flags & 3 {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        if let Some(fd) = own_descriptor(&path) {
            let again = self.file_of(op.process, fd);
            let what = self.files.what(again);
            let file = match what {
                What::Pipe { channel, .. } => self.open_pipe(channel, read, write),
                What::Terminal { pty, master: false } => self.open_terminal(pty),
                _ => return self.put(op, result, again, cloexec),
            };
            return self.put(op, result, file, cloexec);
        }
        let file = match word(16) & 0o170000 {
            FIFO => {
                let key = (word(0), word(8));
                // One that nobody has open begins anew; but whoever is about
                // to open it when the last one closes it finds what is in it.
                let known = self.fifos.get(&key).copied();
                let channel = match known {
                    Some((channel, closed)) if closed.is_none_or(|at| op.lo <= at) => channel,
                    _ => {
                        let name = String::from_utf8_lossy(&path).into_owned();
                        self.make_pipe(&name)
                    }
                };
                self.fifos.insert(key, (channel, None));
                self.open_pipe(channel, read, write)
            }
            CHAR => match self.opened_terminal(op, &path, flags) {
                Some(file) => file,
                None => self.files.make(What::Other),
            },
            _ => {
                let path = self.path(path);
                self.files.make(What::File(path))
            }
        };
        self.put(op, result, file, cloexec);
    }

    /// A process begins, or another image of it.
    fn begin(&mut self, op: Op, event: &Event<'_>) {
        match event.value(0) {
            begin::EXEC => self.new_image(op),
            begin::FORK | begin::VFORK => self.born(op, event),
            _ => {
                // Standard input, output and error of the first process.
                for fd in 0..3 {
                    self.file_of(op.process, fd);
                }
            }
        }
        self.thread_mut(op.process, op.thread);
    }
}

/// The descriptor that a path stands for.
fn own_descriptor(path: &[u8]) -> Option<u64> {
    match path {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    let digits = path
        .strip_prefix(b"/dev/fd/")
        .or_else(|| path.strip_prefix(b"/proc/self/fd/"))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Without `.` and doubled slashes. (`..` stays: it may lead through a link.)
fn tidy(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for part in path.split(|b| *b == b'/') {
        if !part.is_empty() && part != b"." {
            out.push(b'/');
            out.extend_from_slice(part);
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// The address a peer is reached at: an unspecified one is this machine's.
pub(crate) fn reached(address: Address) -> Address {
    use std::net::{Ipv4Addr, Ipv6Addr};
    match plain(address) {
        Address::V4(ip, port) if ip.is_unspecified() => Address::V4(Ipv4Addr::LOCALHOST, port),
        Address::V6(ip, port, _) if ip.is_unspecified() => {
            Address::V6(Ipv6Addr::LOCALHOST, port, 0)
        }
        other => other,
    }
}

/// One way to write an address that can be written in two.
pub(crate) fn plain(address: Address) -> Address {
    match address {
        Address::V6(ip, port, scope) => match ip.to_ipv4_mapped() {
            Some(v4) => Address::V4(v4, port),
            None => Address::V6(ip, port, scope),
        },
        other => other,
    }
}
