//! The warden: it traces processes for a debugger, and outlives it.
//!
//! One thread does everything: the kernel lets nobody else ask about what it
//! traces. It waits for two things at once, a word from the debugger and news of a
//! traced thread. While nobody runs there is nothing of it in any process; when
//! the debugger is gone it takes back what there is and lets everybody go.

mod attach;
mod events;
mod governed;
mod neighbours;
mod pads;
mod parking;
mod process;
pub(crate) mod raw;
mod refuse;
mod registers;
mod run;
mod sight;
mod step;
mod task;

pub use attach::{GOVERN, RUNNING, has_process};

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Error;
use crate::talk::{self, Answer, Request, Thread};
use governed::{Farewell, Governor};
use neighbours::Neighbours;
use process::{Process, Space, State, Task};
use raw::Status;

/// See the module.
pub struct Warden {
    socket: UnixStream,
    /// Readable when there is news.
    children: OwnedFd,
    /// How a program is begun: `MW HIDDEN-COMMAND`.
    starter: (PathBuf, String),
    tasks: BTreeMap<i32, Task>,
    processes: BTreeMap<i32, Process>,
    spaces: BTreeMap<i32, Space>,
    /// Threads that stand, and of whose beginning nobody has told yet.
    early: BTreeSet<i32>,
    /// The debugger is gone.
    alone: bool,
    /// The debugger has asked for a halt of what runs now.
    is_to_halt: bool,
    /// What was asked of the agent meanwhile.
    asides: Vec<String>,
    /// The agent of the program, if it has one.
    governor: Option<Governor>,
    /// That agent, if it was started here.
    agent: Option<std::process::Child>,
    /// What is to be done when the debugger has gone.
    farewell: Farewell,
    /// The program was taken over by another debugger, or its agent is gone.
    lost: Option<Error>,
    /// Its agent has ended with the last process of the program.
    is_over: bool,
    /// What a debugger on another host was told, if it is on one.
    far: Option<sight::Told>,
    /// The program's other hosts.
    neighbours: Neighbours,
}

/// What was waited for.
enum News {
    Of(i32, Status),
    Asked(Box<Request>),
    /// The time is over.
    Nothing,
    /// The debugger is gone.
    Alone,
    /// The agent is gone, or has another debugger.
    Lost,
}

/// Serves the debugger at the other end of an inherited descriptor until that is
/// gone. Programs are started by executing `starter` with a descriptor's number and
/// the program's words behind it.
pub fn serve(socket: i32, starter: (PathBuf, String)) -> std::io::Result<()> {
    let socket = match socket {
        0 => sight::standard_input().ok(),
        socket => raw::inherited(socket),
    };
    let socket = socket.ok_or_else(|| std::io::Error::other("there is no debugger to serve"))?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    let mut warden = Warden {
        socket: UnixStream::from(socket),
        children: raw::children()?,
        starter,
        tasks: BTreeMap::new(),
        processes: BTreeMap::new(),
        spaces: BTreeMap::new(),
        early: BTreeSet::new(),
        alone: false,
        is_to_halt: false,
        asides: Vec::new(),
        governor: None,
        agent: None,
        farewell: Farewell::Keep,
        lost: None,
        is_over: false,
        far: None,
        neighbours: Neighbours::default(),
    };
    warden.serve();
    warden.leave_all();
    Ok(())
}

impl Warden {
    fn serve(&mut self) {
        loop {
            let request = match self.next(None) {
                News::Asked(request) => *request,
                News::Of(tid, status) => {
                    // Somebody was killed where it stood, or begins to stand now.
                    self.note_aside(tid, status);
                    self.let_exempt_go_on(tid);
                    continue;
                }
                News::Nothing => continue,
                News::Lost => {
                    if self.lost.is_some() {
                        self.leave_lost();
                    }
                    continue;
                }
                News::Alone => return,
            };
            if matches!(request, Request::Halt) {
                // What it was to cut short is over.
                continue;
            }
            let answer = match self.answer(request) {
                Some(Ok(answer)) => answer,
                Some(Err(error)) => Answer::Failed(error),
                None => return,
            };
            if talk::send(&mut self.socket, &answer).is_err() {
                return;
            }
            // What was asked while all were being stopped.
            self.answer_asides();
        }
    }

    /// What is answered. None: the debugger is gone.
    fn answer(&mut self, request: Request) -> Option<Result<Answer, Error>> {
        if let Some(error) = &self.lost
            && !matches!(request, Request::Farewell { .. })
        {
            return Some(Err(error.clone()));
        }
        Some(match request {
            Request::Far => {
                self.far = Some(sight::Told::default());
                Ok(Answer::Done)
            }
            Request::Listen => Ok(Answer::Listening(self.neighbours.listen())),
            Request::Meet {
                secret,
                own,
                addresses,
            } => {
                self.neighbours.meet(&secret, own, addresses);
                Ok(Answer::Done)
            }
            Request::Candidates => Ok(Answer::Candidates(crate::proc::candidates())),
            Request::Mapped(pid) => Ok(self.mapped(pid)),
            Request::Masks(pid) => Ok(sight::masks(pid)),
            Request::Told { process, name } => {
                let told = crate::proc::told(process, &name);
                told.map(Answer::Bytes).ok_or(Error::NoProcess(process))
            }
            Request::Attach {
                pids,
                keep_ms,
                overrides,
                governed,
            } => self
                .attach(&pids, keep_ms, overrides, governed)
                .map(Answer::Joined),
            Request::Start { arguments, group } => {
                self.start(&arguments, group).map(Answer::Started)
            }
            Request::StartGoverned {
                words,
                group,
                keep_ms,
            } => self
                .start_governed(&words, group, keep_ms)
                .map(Answer::Started),
            Request::Agent(question) => self.ask_agent(&question),
            Request::Aside(question) => Ok(Answer::Aside(self.ask_aside(&question))),
            Request::Actions(pid) => self.actions(pid),
            Request::Farewell { goes_on } => {
                self.farewell = match goes_on {
                    true => Farewell::GoOn,
                    false => Farewell::Keep,
                };
                Ok(Answer::Done)
            }
            Request::Processes => Ok(self.list()),
            Request::Threads(pid) => self.threads(pid).map(Answer::Threads),
            Request::Read {
                process,
                address,
                length,
            } => self.process(process).map(|process| {
                let mut bytes = vec![0; length.min(1 << 20) as usize];
                let got = process.read(address, &mut bytes);
                bytes.truncate(got);
                Answer::Bytes(bytes)
            }),
            Request::Write {
                process,
                address,
                bytes,
            } => self
                .process(process)
                .map(|process| Answer::Count(process.write(address, &bytes) as u64)),
            Request::SetRegisters {
                thread,
                general,
                xmm,
            } => self
                .set_registers(thread, &general, &xmm)
                .map(|()| Answer::Done),
            Request::Refuse { thread, errno } => self.refuse(thread, errno).map(|()| Answer::Done),
            Request::Arm(pid, armed) => match self.processes.get_mut(&pid) {
                Some(process) => {
                    process.arm(armed);
                    Ok(Answer::Done)
                }
                None => Err(Error::NoProcess(pid)),
            },
            Request::Known => {
                for process in self.processes.values_mut() {
                    process.maker = None;
                }
                Ok(Answer::Done)
            }
            Request::Run {
                motion,
                thread,
                processes,
                part,
            } => {
                let _hurry = Hurry::begin();
                let report = self.go(motion, thread, &processes, None, part)?;
                Ok(self.stopped(report))
            }
            Request::Step {
                motion,
                thread,
                processes,
                range: (from, to),
                part,
            } => {
                let report = self.go(motion, thread, &processes, Some(from..to), part)?;
                Ok(self.stopped(report))
            }
            Request::SetSignal { thread, signal } => self.set_signal(thread, signal),
            Request::Kill(pid) => self.kill(pid).map(|()| Answer::Done),
            Request::Detach(pid) => self.detach(pid).map(|()| Answer::Done),
            Request::Halt => Ok(Answer::Done),
        })
    }

    fn process(&self, pid: i32) -> Result<&Process, Error> {
        self.processes.get(&pid).ok_or(Error::NoProcess(pid))
    }

    fn list(&self) -> Answer {
        Answer::Processes(self.who())
    }

    /// Who is there.
    fn who(&self) -> Vec<talk::Process> {
        let all = self.processes.values().map(|process| talk::Process {
            pid: process.pid,
            name: crate::proc::name(process.pid),
            image: process.image,
            ending: process.ending,
        });
        all.collect()
    }

    fn tids(&self, pid: i32) -> Vec<i32> {
        let own = self.tasks.iter().filter(|(_, task)| task.process == pid);
        own.map(|(tid, _)| *tid).collect()
    }

    fn threads(&self, pid: i32) -> Result<Vec<Thread>, Error> {
        self.process(pid)?;
        let own = self.tasks.iter().filter(|(_, task)| task.process == pid);
        let threads = own.map(|(tid, task)| Thread {
            tid: *tid,
            number: task.number,
            registers: task.stopped().and_then(|stopped| {
                let general = stopped.registers().ok()?;
                if let Some(seen) = self.inside(*tid, task, &general) {
                    return Some(seen);
                }
                let vectors = stopped.vectors().unwrap_or_default();
                Some(registers::of(&general, &vectors))
            }),
            signal: task.stopped().map_or(0, |stopped| stopped.signal),
            at_call: task.at_call,
            by_job_control: task.stopped().is_some_and(|stopped| stopped.by_job_control),
            seen: self.seen(pid, *tid, task),
        });
        Ok(threads.collect())
    }

    /// What the program does with each signal, if the kernel does not know it.
    fn actions(&self, pid: i32) -> Result<Answer, Error> {
        let process = self.process(pid)?;
        let tids = self.tids(pid);
        let own = tids
            .iter()
            .find_map(|tid| self.tasks.get(tid)?.stopped()?.registers().ok());
        let action = |signal| {
            let governor = self.governor.as_ref()?;
            governor.action(process, &own?, signal)
        };
        Ok(Answer::Actions((1..=64).map_while(action).collect()))
    }

    /// Asks the agent, for the debugger.
    fn ask_agent(&mut self, question: &str) -> Result<Answer, Error> {
        let none = self.no_agent();
        let governor = self.governor.as_mut().ok_or(none)?;
        let wrong = |error: serde_json::Error| Error::Agent(error.to_string());
        let request = serde_json::from_str(question).map_err(wrong)?;
        let answer = governor.ask(&request)?;
        let is_exempt = matches!(request, agent::control::Request::Exempt { .. });
        let answer = serde_json::to_string(&answer).map_err(wrong)?;
        if is_exempt {
            for tid in self.tasks.keys().copied().collect::<Vec<_>>() {
                self.let_exempt_go_on(tid);
            }
        }
        Ok(Answer::Agent(answer))
    }

    /// Why there is none.
    pub fn no_agent(&self) -> Error {
        match self.is_over {
            true => Error::Over,
            false => Error::NoAgent,
        }
    }

    /// What can be asked of the agent at any time.
    fn ask_aside(&mut self, question: &str) -> Result<String, Error> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        let none = self.no_agent();
        let governor = self.governor.as_mut().ok_or(none)?;
        let wrong = |error: serde_json::Error| Error::Agent(error.to_string());
        let request: agent::control::Request = serde_json::from_str(question).map_err(wrong)?;
        if !request.only_looks() {
            return Err(Error::Moves);
        }
        serde_json::to_string(&governor.ask(&request)?).map_err(wrong)
    }

    /// Answers what was asked aside.
    fn answer_asides(&mut self) {
        for question in std::mem::take(&mut self.asides) {
            let answer = Answer::Aside(self.ask_aside(&question));
            // If nobody is there any more that is seen elsewhere.
            let _ = talk::send(&mut self.socket, &answer);
        }
    }

    /// Who runs on when the others are halted is not kept by ptrace either.
    fn let_exempt_go_on(&mut self, tid: i32) {
        let is_exempt = self.governor.as_ref().is_some_and(|g| g.is_exempt(tid));
        if let Some(task) = self.tasks.get_mut(&tid).filter(|_| is_exempt)
            && task.deferred.is_none()
            && task.stopped().is_some()
        {
            let is_parked = self.governor.as_ref().is_some_and(|g| g.is_parked(tid));
            if let Some(stopped) = task.stopped().filter(|_| is_parked) {
                stopped.leave_call();
            }
            task.resume(task::Resume::On);
        }
    }

    fn set_signal(&mut self, tid: i32, signal: u32) -> Result<Answer, Error> {
        let task = self.tasks.get_mut(&tid).ok_or(Error::NoThread(tid))?;
        match &mut task.state {
            State::Stopped(stopped) => {
                stopped.signal = signal;
                Ok(Answer::Done)
            }
            _ => Err(Error::NoThread(tid)),
        }
    }

    /// Waits for news or a word, for so long at most.
    fn next(&mut self, until: Option<Instant>) -> News {
        let mut is_last = false;
        loop {
            if let Ok(Some((tid, status))) = raw::wait(-1, true) {
                return News::Of(tid, status);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return News::Nothing;
            }
            let shut = self.neighbours.opens_at();
            let shut = shut.map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.into_iter().chain(shut).min();
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            // An end that is closed is always readable.
            let lines = [
                (!self.alone).then_some(self.socket.as_fd()),
                self.governor.as_ref().map(Governor::line),
            ];
            let mut fds: Vec<PollFd<'_>> = std::iter::once(self.children.as_fd())
                .chain(lines.iter().flatten().copied())
                .chain(self.neighbours.lines())
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            if poll(&mut fds, left.as_ref()).is_err() {
                continue;
            }
            let heard = |place: usize| fds.get(place).is_some_and(|fd| !fd.revents().is_empty());
            let is_asked = !self.alone && heard(1);
            let is_lost = self.governor.is_some() && heard(if self.alone { 1 } else { 2 });
            let first = 1 + lines.iter().flatten().count();
            let is_told = (first..fds.len()).any(heard);
            drop(fds);
            // What is told there says only that there is news.
            let mut told = [0; 1024];
            while rustix::io::read(&self.children, &mut told).is_ok_and(|got| got == told.len()) {}
            // An agent ends with the last process of its program: how that has ended comes first.
            if is_lost && !std::mem::replace(&mut is_last, true) {
                continue;
            }
            if is_lost {
                self.lose_agent();
                return News::Lost;
            }
            if is_asked {
                return match talk::receive(&mut self.socket) {
                    Ok(Some(request)) => News::Asked(Box::new(request)),
                    Ok(None) | Err(_) => {
                        self.alone = true;
                        News::Alone
                    }
                };
            }
            // What another host says is what the debugger is about to say.
            if is_told && self.neighbours.hear() {
                return News::Asked(Box::new(Request::Halt));
            }
        }
    }
}

/// As long as it lives this thread runs before others, if it may: who stops a program that
/// computes on all processors must not wait for one of those behind it.
struct Hurry {
    before: Option<i32>,
}

impl Hurry {
    fn begin() -> Hurry {
        const FIRST: i32 = -20;
        let before = rustix::process::getpriority_process(None).ok();
        let is_first = rustix::process::setpriority_process(None, FIRST).is_ok();
        Hurry {
            before: before.filter(|_| is_first),
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = rustix::process::setpriority_process(None, before);
        }
    }
}
