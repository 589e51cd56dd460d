//! Calls that waited for long, so that who waits for what is known at any
//! point without reading all that came before it.

use protocol::id::{ProcessIx, ThreadNo};

use super::calls::nr;
use super::objects::*;
use super::{Pending, World};

/// A wait that began more events before its end is remembered.
pub const LONG: u32 = 64;

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Something to receive from a channel.
    Receive(u32),
    /// Room to send to a channel.
    Send(u32),
    /// Somebody to connect.
    Connection,
    /// The other side of a connection.
    Accept,
    /// The end of a child: of this process, or of any.
    Child(Option<ProcessIx>),
    /// A wake at this address.
    Wake(u64),
    /// The end of a thread of the same process.
    Thread(ThreadNo),
    /// A lock on a file (see [`History::lock_name`]).
    ///
    /// [`History::lock_name`]: crate::History::lock_name
    Lock(u32),
    /// Time to pass.
    Time,
    /// A signal.
    Signal,
    /// One of several channels: so many in the list, from there on.
    Any {
        /// Where in the list.
        from: u32,
        /// How many.
        count: u32,
    },
    /// Something else, or something that the recording does not tell.
    Other,
}

/// In the list of channels that a wait is for one of: for room to send.
pub(crate) const SENDS: u32 = 1 << 31;

/// A file's locks of one of the two kinds that do not see each other.
pub(crate) fn lock_number(file: u32, bsd: bool) -> u32 {
    file << 1 | u32::from(bsd)
}

/// A call that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub process: u32,
    pub thread: u32,
    pub first: u32,
    /// `None`: it never returned.
    pub last: Option<u32>,
    pub nr: u32,
    pub what: WaitFor,
    /// It would have gone on by itself.
    pub limited: bool,
}

impl World<'_> {
    pub(super) fn note_wait(
        &mut self,
        op: Op,
        pending: &Pending,
        last: Option<u32>,
        interrupted: bool,
    ) {
        let short = last.is_some_and(|last| last - pending.first.min(last) <= LONG);
        if short && !interrupted {
            return;
        }
        if matches!(pending.nr, nr::EXIT | nr::EXIT_GROUP) {
            return;
        }
        let (what, limited) = self.waits_for(op, pending);
        self.waits.push(Wait {
            process: op.process,
            thread: op.thread,
            first: pending.first,
            last,
            nr: pending.nr as u32,
            what,
            limited,
        });
    }

    /// What a call waits for, and whether it would go on by itself.
    fn waits_for(&mut self, op: Op, pending: &Pending) -> (WaitFor, bool) {
        let (input, output) = match pending.file {
            NONE => (None, None),
            file => self.channels_of(file),
        };
        let args = &pending.args;
        match pending.nr {
            nr::READ
            | nr::READV
            | nr::RECVFROM
            | nr::RECVMSG
            | nr::RECVMMSG
            | nr::PREADV2
            | nr::SPLICE
            | nr::TEE => match self.files.what(pending.file) {
                What::Timer(_) => (WaitFor::Time, true),
                What::Signals => (WaitFor::Signal, false),
                _ => (input.map_or(WaitFor::Other, WaitFor::Receive), false),
            },
            nr::WRITE
            | nr::WRITEV
            | nr::SENDTO
            | nr::SENDMSG
            | nr::SENDMMSG
            | nr::PWRITEV2
            | nr::VMSPLICE
            | nr::SENDFILE => (output.map_or(WaitFor::Other, WaitFor::Send), false),
            nr::ACCEPT | nr::ACCEPT4 => (WaitFor::Connection, false),
            nr::CONNECT => (WaitFor::Accept, false),
            nr::WAIT4 | nr::WAITID => (WaitFor::Child(self.awaited_child(pending)), false),
            nr::FUTEX => {
                // The kernel clears this word when the thread ends.
                let process = self.proc(op.process);
                let threads = process.map_or(&[][..], |process| process.threads.as_slice());
                let joined = threads.iter().position(|thread| {
                    thread.clear_tid == args[0] && args[0] != 0 && thread.died.is_none()
                });
                let what = match joined.map(|thread| thread as u32) {
                    Some(thread) if thread != op.thread => WaitFor::Thread(ThreadNo(thread)),
                    _ => WaitFor::Wake(args[0]),
                };
                (what, args[3] != 0)
            }
            nr::FLOCK | nr::FCNTL => match self.files.what(pending.file) {
                What::File(file) => {
                    let lock = lock_number(file, pending.nr == nr::FLOCK);
                    self.wanted_locks.insert(lock);
                    (WaitFor::Lock(lock), false)
                }
                _ => (WaitFor::Other, false),
            },
            nr::NANOSLEEP | nr::CLOCK_NANOSLEEP => (WaitFor::Time, true),
            nr::PAUSE | nr::RT_SIGSUSPEND => (WaitFor::Signal, false),
            nr::RT_SIGTIMEDWAIT => (WaitFor::Signal, args[2] != 0),
            nr::EPOLL_WAIT | nr::EPOLL_PWAIT => self.waits_for_any(pending, args[3] as i32 != -1),
            nr::EPOLL_PWAIT2 => self.waits_for_any(pending, args[3] != 0),
            nr::POLL => self.waits_for_listed(op, args[2] as i32 >= 0),
            nr::PPOLL => self.waits_for_listed(op, args[2] != 0),
            nr::SELECT | nr::PSELECT6 => self.waits_for_listed(op, args[4] != 0),
            nr::MSGRCV | nr::SEMOP | nr::SEMTIMEDOP => {
                let channel = self.ipc_of(pending);
                let limited = pending.nr == nr::SEMTIMEDOP && args[3] != 0;
                (channel.map_or(WaitFor::Other, WaitFor::Receive), limited)
            }
            nr::MSGSND => {
                let channel = self.ipc_of(pending);
                (channel.map_or(WaitFor::Other, WaitFor::Send), false)
            }
            nr::MQ_TIMEDRECEIVE => (input.map_or(WaitFor::Other, WaitFor::Receive), args[4] != 0),
            nr::MQ_TIMEDSEND => (output.map_or(WaitFor::Other, WaitFor::Send), args[4] != 0),
            _ => (WaitFor::Other, false),
        }
    }

    /// The child that a wait is for, if it is for one.
    fn awaited_child(&self, pending: &Pending) -> Option<ProcessIx> {
        const P_PID: u64 = 1;
        const P_PIDFD: u64 = 3;
        let pid = match (pending.nr, pending.args[0]) {
            (nr::WAIT4, pid) => pid as i32,
            (_, P_PID) => pending.args[1] as i32,
            (_, P_PIDFD) => match self.files.what(pending.file) {
                What::Process(place) => return Some(ProcessIx(place)),
                _ => return None,
            },
            _ => return None,
        };
        let pid = u32::try_from(pid).ok().filter(|pid| *pid != 0)?;
        self.process_with(pid, pending.lo).map(ProcessIx)
    }

    fn waits_for_listed(&mut self, op: Op, limited: bool) -> (WaitFor, bool) {
        let watched = self
            .thread_mut(op.process, op.thread)
            .map(|thread| std::mem::take(&mut thread.watching))
            .unwrap_or_default();
        self.waits_for_one_of(watched, limited)
    }

    fn waits_for_any(&mut self, pending: &Pending, limited: bool) -> (WaitFor, bool) {
        let What::Epoll(epoll) = self.files.what(pending.file) else {
            return (WaitFor::Other, limited);
        };
        let watched: Vec<(u32, u32)> = self
            .epolls
            .get(epoll as usize)
            .map(|epoll| {
                epoll
                    .watched()
                    .map(|watch| (watch.file, watch.bits))
                    .collect()
            })
            .unwrap_or_default();
        self.waits_for_one_of(watched, limited)
    }

    /// Any of these files, each in the way that its bits say.
    fn waits_for_one_of(&mut self, watched: Vec<(u32, u32)>, limited: bool) -> (WaitFor, bool) {
        const OUT: u32 = 0x4;
        let from = self.polls.len();
        for (file, bits) in watched {
            let (input, output) = self.channels_of(file);
            let wants_out = bits & OUT != 0;
            let wants_in = bits & !OUT != 0;
            let known = (!wants_in || input.is_some()) && (!wants_out || output.is_some());
            if !known {
                // A listener, a timer, something from outside: anything may
                // come from there.
                self.polls.truncate(from);
                return (WaitFor::Other, limited);
            }
            self.polls.extend(input.filter(|_| wants_in));
            self.polls
                .extend(output.filter(|_| wants_out).map(|channel| channel | SENDS));
        }
        let count = self.polls.len() - from;
        let what = WaitFor::Any {
            from: from as u32,
            count: count as u32,
        };
        (what, limited)
    }
}
