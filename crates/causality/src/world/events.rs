//! What each event of a log did.

use protocol::record::{begin, kind};
use recording::{Event, Phase};

use super::calls::{self, nr};
use super::descriptors::CLOEXEC;
use super::objects::*;
use super::{Call, Pending, World, polls, queues};

const PR_SET_NAME: u64 = 15;

impl World<'_> {
    /// Takes in an event. `before`: the time of the record before it.
    pub fn take(&mut self, place: u32, event: &Event<'_>, before: u64) {
        let number = u32::try_from(event.number.0).unwrap_or(u32::MAX);
        if let Some(process) = self.proc_mut(place) {
            process.last = number;
            process.last_time = event.time.0;
        }
        if let Some(thread) = self.thread_mut(place, event.thread.0) {
            thread.born.get_or_insert(number);
            let begins = matches!(event.phase, Phase::Start | Phase::Call);
            if begins && !calls::is_housekeeping(event.nr) {
                thread.used.get_or_insert(number);
            }
        }
        let mut op = Op {
            process: place,
            thread: event.thread.0,
            first: number,
            last: number,
            lo: before,
            hi: event.time.0,
            amount: 0,
        };
        match event.kind {
            kind::BEGIN => return self.begin(op, event),
            kind::THREAD_START => {
                if let Ok(tid) = u32::try_from(event.value(1)) {
                    let entry = (event.time.0, place, event.value(0) as u32);
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
                if let Some(thread) = self.thread_mut(place, event.thread.0) {
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
                        thread: event.thread.0,
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

    pub(super) fn pending(&mut self, op: Op, event: &Event<'_>) -> Pending {
        let (first, second) = calls::descriptors(event.nr, &event.args);
        let file = first.map_or(NONE, |fd| self.file_of(op.process, fd));
        let second = second.map_or(NONE, |fd| self.file_of(op.process, fd));
        Pending {
            nr: event.nr,
            first: op.last,
            lo: event.time.0,
            file,
            second,
            semaphore: queues::waits_for_semaphore(event),
            args: event.args,
        }
    }

    fn returned(&mut self, place: u32, event: &Event<'_>) -> Option<Pending> {
        let thread = self.thread_mut(place, event.thread.0)?;
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
        match event.nr {
            nr::OPEN => self.opened(op, event, None, 0, args[1]),
            nr::CREAT => self.opened(op, event, None, 0, 0o1101),
            nr::OPENAT => self.opened(op, event, Some(args[0]), 1, args[2]),
            nr::OPENAT2 => {
                let how = event.argument(2).and_then(|how| calls::word(how.bytes, 0));
                self.opened(op, event, Some(args[0]), 1, how.unwrap_or(0));
            }
            nr::PIPE => self.pipe_made(op, event, 0),
            nr::PIPE2 => self.pipe_made(op, event, args[1]),
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
            nr::TIMERFD_CREATE => self.make_timer(op, result, args[1]),
            nr::TIMERFD_SETTIME => self.timer_set(op, file),
            nr::SIGNALFD => self.make_signals(op, result, args[0], 0),
            nr::SIGNALFD4 => self.make_signals(op, result, args[0], args[3]),
            nr::EPOLL_CREATE => self.make_epoll(op, result, 0),
            nr::EPOLL_CREATE1 => self.make_epoll(op, result, args[0]),
            nr::EPOLL_CTL => self.epoll_ctl(op, event, file),
            nr::PIDFD_OPEN => self.make_pidfd(op, result, args[0]),
            nr::MEMFD_CREATE => self.make_memfd(op, result, args[1]),
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
            nr::CHDIR => self.directory_named(op, event),
            nr::FCHDIR => self.directory_opened(op, file),
            nr::SETSID => self.leaves_terminal(op),
            nr::MMAP => self.mapped(op, event, file),
            nr::MUNMAP => self.unmapped(op.process, args[0], args[1]),
            nr::CLONE | nr::FORK | nr::VFORK => self.forked(op, event),
            nr::SET_TID_ADDRESS => self.thread_tells(op, args[0]),
            nr::PRCTL if args[0] == PR_SET_NAME => self.thread_named(op, event),
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

    /// A process begins, or another image of it.
    pub(super) fn begin(&mut self, op: Op, event: &Event<'_>) {
        match event.value(0) {
            begin::EXEC => self.new_image(op),
            begin::FORK | begin::VFORK => self.born(op, event),
            // What it has is known already.
            begin::JOINED => {}
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
