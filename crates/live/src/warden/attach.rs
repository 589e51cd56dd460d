//! Joining processes, starting them, and leaving them.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::events::Outcome;
use super::governed::{Farewell, Governor};
use super::process::{Process, Space, State, Task};
use super::raw::{self, Status};
use super::task::Running;
use super::{News, Warden};
use crate::Error;
use crate::proc;
use crate::start::READY;
use crate::talk::What;

/// So long a program may take to begin.
const BEGINNING: Duration = Duration::from_secs(10);
/// So long another debugger may take to let go of what is taken over.
const LETTING_GO: Duration = Duration::from_secs(3);

/// The hidden command that starts an agent. The descriptor at which it can say why it
/// cannot begin comes next.
pub const GOVERN: &str = "govern-alive";
/// The hidden command that starts one for processes that run: the descriptor, and they.
pub const RUNNING: &str = "govern-running";

impl Warden {
    /// Joins processes: all of them, or none. Of a program that runs under an agent, all
    /// that it has.
    pub fn attach(
        &mut self,
        pids: &[i32],
        keep_ms: Option<u64>,
        overrides: bool,
        is_governed: bool,
    ) -> Result<Option<String>, Error> {
        let mut governed = None;
        for pid in pids {
            if proc::maps_at(*pid, protocol::layout::IMAGE_BASE) {
                let found = agent_of(*pid)?;
                if governed.as_ref().is_some_and(
                    |(_, other): &(PathBuf, agent::control::Status)| other.pid != found.1.pid,
                ) {
                    return Err(Error::TwoPrograms);
                }
                governed = Some(found);
            }
        }
        let Some((socket, status)) = governed else {
            for pid in pids {
                self.check(*pid)?;
            }
            let mut why = None;
            if is_governed && self.governor.is_none() {
                match self.govern(pids, keep_ms) {
                    Ok(()) => return Ok(None),
                    Err(error) => why = Some(error.to_string()),
                }
            }
            return self.join_all(pids).map(|()| why);
        };
        match &self.governor {
            Some(governor) if governor.agent == status.pid as i32 => {}
            Some(_) => return Err(Error::TwoPrograms),
            None => {
                let governor = Governor::join(&socket, &status, keep_ms, overrides)?;
                self.governor = Some(governor);
            }
        }
        let done = self.join_governed(status.pid as i32, pids);
        if done.is_err() && self.processes.is_empty() {
            self.part(Farewell::GoOn);
        }
        done.map(|()| None)
    }

    /// Starts an agent for processes that run: the monitor comes into them. They are
    /// joined then.
    fn govern(&mut self, pids: &[i32], keep_ms: Option<u64>) -> Result<(), Error> {
        let words = pids.iter().map(i32::to_string);
        let words: Vec<OsString> = std::iter::once(RUNNING.into())
            .chain(words.map(OsString::from))
            .collect();
        let first = pids.first().copied().unwrap_or(0);
        let number = self.begin_agent(&words, 0, keep_ms, &proc::name(first), answers)?;
        let done = self.join_governed(number as i32, pids);
        if done.is_err() {
            for pid in self.processes.keys().copied().collect::<Vec<_>>() {
                let _ = self.detach(pid);
            }
            self.part(Farewell::GoOn);
        }
        done
    }

    /// Halts the program of an agent and joins its processes, and others that were
    /// named besides.
    fn join_governed(&mut self, agent: i32, besides: &[i32]) -> Result<(), Error> {
        if let Some(governor) = &mut self.governor {
            governor.halter.halt(Duration::from_secs(1));
        }
        // Nobody makes another now, but for those that are exempt.
        let mut pids = agent::program_of(agent);
        if let Some(governor) = &self.governor {
            pids.extend(governor.halter.pids().into_iter().map(|pid| pid as i32));
        }
        pids.extend(besides);
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| {
            let is_alive = proc::Status::of(*pid, *pid).is_some_and(|s| !s.is_zombie());
            is_alive && !self.processes.contains_key(pid)
        });
        for pid in &pids {
            // Another debugger that it was taken from needs a moment.
            let deadline = Instant::now() + LETTING_GO;
            while matches!(self.check(*pid), Err(Error::Traced { .. })) && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            self.check(*pid)?;
        }
        self.join_all(&pids)
    }

    /// The agent is left.
    pub fn part(&mut self, how: Farewell) {
        if let Some(governor) = self.governor.take() {
            governor.leave(how);
        }
        if how == Farewell::GoOn {
            self.await_agent();
        }
    }

    /// An agent that has nothing more to do ends: what was recorded is stored then, and
    /// the monitor is out of what ran before.
    fn await_agent(&mut self) {
        if let Some(agent) = &mut self.agent {
            let deadline = Instant::now() + BEGINNING;
            // (Whose end it has not taken note of yet is there still.)
            let has_ended =
                |pid: &i32| proc::Status::of(*pid, *pid).is_none_or(|status| status.is_zombie());
            while agent::program_of(agent.id() as i32).iter().all(has_ended)
                && matches!(agent.try_wait(), Ok(None))
                && Instant::now() < deadline
            {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    fn join_all(&mut self, pids: &[i32]) -> Result<(), Error> {
        let mut joined = Vec::new();
        let done = pids.iter().try_for_each(|pid| {
            joined.push(*pid);
            self.seize(*pid)
        });
        let is_exempt = |tid: &i32| self.governor.as_ref().is_some_and(|g| g.is_exempt(*tid));
        let all = self.tasks.keys().copied();
        let all: Vec<i32> = all.filter(|tid| !is_exempt(tid)).collect();
        self.quiesce(&all);
        let stuck = joined.iter().find(|pid| {
            let tids = self.tids(**pid);
            let mut tasks = tids.iter().filter_map(|tid| self.tasks.get(tid));
            tasks.all(|task| task.is_running() && !task.vforks) && !tids.is_empty()
        });
        let done = done.and(match stuck {
            Some(pid) => Err(Error::Uninterruptible {
                pid: *pid,
                name: proc::name(*pid),
            }),
            None => Ok(()),
        });
        let ended = joined.iter().find(|pid| self.tids(**pid).is_empty());
        let done = done.and(match ended {
            Some(pid) => Err(Error::Ended(*pid)),
            None => Ok(()),
        });
        if done.is_err() {
            for pid in joined {
                let _ = self.detach(pid);
            }
        }
        done
    }

    /// Whether a process can be joined.
    fn check(&self, pid: i32) -> Result<(), Error> {
        let status = proc::Status::of(pid, pid).ok_or(Error::NoProcess(pid))?;
        let name = status.name.clone();
        let own = [
            rustix::process::getpid().as_raw_nonzero().get(),
            rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()),
        ];
        if own.contains(&pid) {
            return Err(Error::Ourselves { pid, name });
        }
        if status.is_kernel() {
            return Err(Error::Kernel { pid });
        }
        if status.is_zombie() {
            return Err(Error::Zombie { pid, name });
        }
        if status.tracer != 0 {
            let by = format!("{} ({})", status.tracer, proc::name(status.tracer));
            return Err(Error::Traced { pid, name, by });
        }
        if proc::is_64_bit(pid) == Some(false) {
            return Err(Error::NotSixtyFour { pid, name });
        }
        Ok(())
    }

    /// Traces all threads of a process, those that come meanwhile included.
    fn seize(&mut self, pid: i32) -> Result<(), Error> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut number = 0;
        loop {
            let mut is_new = false;
            // The first thread is number 0, whatever the ids of the others are.
            let mut tids = proc::threads(pid);
            tids.sort_by_key(|tid| (*tid != pid, *tid));
            for tid in tids {
                if self.tasks.contains_key(&tid) {
                    continue;
                }
                match raw::seize(tid) {
                    Ok(()) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    // A thread of ours has made it, and so it is ours.
                    Err(_) if proc::Status::of(pid, tid).is_some_and(|s| s.tracer == own) => {}
                    Err(_) => return Err(refused(pid)),
                }
                is_new = true;
                let state = match self.early.remove(&tid) {
                    true => State::Stopped(Running::new(tid).into_stopped(0, false)),
                    false => State::Running(Running::new(tid)),
                };
                if let State::Running(running) = &state {
                    running.interrupt();
                }
                self.tasks.insert(tid, Task::new(pid, number, state));
                number += 1;
            }
            if !is_new {
                break;
            }
        }
        if self.tids(pid).is_empty() {
            return Err(Error::Ended(pid));
        }
        let mut process = Process::new(pid, pid).map_err(|_| refused(pid))?;
        process.next_number = number;
        self.processes.insert(pid, process);
        self.spaces.insert(pid, Space::default());
        Ok(())
    }

    /// Starts a program, and stops it before its first instruction.
    pub fn start(&mut self, arguments: &[Vec<u8>], group: i32) -> Result<i32, Error> {
        let program = arguments.first().map_or(String::new(), |first| {
            String::from_utf8_lossy(first).into_owned()
        });
        let failed = |why: String| Error::Start {
            program: program.clone(),
            why,
        };
        let io = |error: std::io::Error| failed(error.to_string());
        let (mut gate, theirs) = UnixStream::pair().map_err(io)?;
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
            .map_err(|error| failed(error.to_string()))?;
        let (executable, word) = &self.starter;
        let child = Command::new(executable)
            .arg(word)
            .arg(theirs.as_raw_fd().to_string())
            .arg("--")
            .args(arguments.iter().map(|word| OsStr::from_bytes(word)))
            .process_group(group)
            .stdin(self.input())
            .spawn()
            .map_err(io)?;
        drop(theirs);
        let pid = child.id() as i32;
        let mut ready = *READY;
        gate.read_exact(&mut ready).map_err(io)?;
        raw::seize(pid).map_err(io)?;
        let task = Task::new(pid, 0, State::Running(Running::new(pid)));
        self.tasks.insert(pid, task);
        gate.write_all(b"!").map_err(io)?;
        let deadline = Instant::now() + BEGINNING;
        loop {
            match self.next(Some(deadline)) {
                News::Of(
                    tid,
                    Status::Stopped {
                        event: libc::PTRACE_EVENT_EXEC,
                        ..
                    },
                ) if tid == pid => break,
                News::Of(tid, Status::Exited(_) | Status::Killed(_)) if tid == pid => {
                    self.tasks.remove(&pid);
                    let mut why = String::new();
                    let _ = gate.read_to_string(&mut why);
                    return Err(failed(why));
                }
                News::Of(tid, status) if tid == pid => {
                    let _ = self.event(tid, status);
                    if let Some(task) = self.tasks.get_mut(&tid) {
                        task.resume(super::task::Resume::On);
                    }
                }
                News::Of(tid, status) => self.note_aside(tid, status),
                News::Asked(_) => {}
                News::Nothing | News::Alone | News::Lost => {
                    let _ = kill(pid);
                    return Err(failed("it does not begin".to_string()));
                }
            }
        }
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.stop(pid, 0, false);
        }
        let mut process = Process::new(pid, pid).map_err(io)?;
        process.next_number = 1;
        process.is_ours = true;
        if proc::is_64_bit(pid) == Some(false) {
            let _ = kill(pid);
            return Err(Error::NotSixtyFour { pid, name: program });
        }
        self.processes.insert(pid, process);
        self.spaces.insert(pid, Space::default());
        Ok(pid)
    }

    /// Starts an agent, and joins the program that it starts: its first process.
    pub fn start_governed(
        &mut self,
        words: &[Vec<u8>],
        group: i32,
        keep_ms: Option<u64>,
    ) -> Result<i32, Error> {
        let name = words.last().map_or(String::new(), |word| {
            String::from_utf8_lossy(word).into_owned()
        });
        let words: Vec<OsString> = words.iter().map(|word| as_word(word)).collect();
        let words: Vec<OsString> = std::iter::once(GOVERN.into()).chain(words).collect();
        let number = self.begin_agent(&words, group, keep_ms, &name, begun)?;
        let failed = |why: String| Error::Start { program: name, why };
        self.join_governed(number as i32, &[])?;
        for process in self.processes.values_mut() {
            process.is_ours = true;
        }
        self.processes
            .keys()
            .next()
            .copied()
            .ok_or_else(|| failed("it has ended".to_string()))
    }

    /// Starts an agent: its number, once it has said that it is ready.
    fn begin_agent(
        &mut self,
        words: &[OsString],
        group: i32,
        keep_ms: Option<u64>,
        program: &str,
        is_ready: fn(&Path) -> Option<(PathBuf, agent::control::Status)>,
    ) -> Result<u32, Error> {
        let failed = |why: String| Error::Start {
            program: program.to_string(),
            why,
        };
        let io = |error: std::io::Error| failed(error.to_string());
        let (mut gate, theirs) = UnixStream::pair().map_err(io)?;
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
            .map_err(|error| failed(error.to_string()))?;
        let (command, rest) = words.split_first().unzip();
        let agent = Command::new(&self.starter.0)
            .args(command)
            .arg(theirs.as_raw_fd().to_string())
            .args(rest.unwrap_or_default())
            .process_group(group)
            .stdin(self.input())
            .spawn()
            .map_err(io)?;
        drop(theirs);
        let number = agent.id();
        self.agent = Some(agent);
        let deadline = Instant::now() + BEGINNING;
        gate.set_nonblocking(true).map_err(io)?;
        loop {
            // What it says there is why it cannot; that it is closed says nothing.
            let mut why = String::new();
            let ended = gate.read_to_string(&mut why);
            if !why.is_empty() {
                return Err(Error::NotStarted(why));
            }
            let socket = agent::control::socket_of(number);
            if let Some((socket, status)) = socket.and_then(|socket| is_ready(&socket)) {
                let governor = Governor::join(&socket, &status, keep_ms, false)?;
                self.governor = Some(governor);
                break;
            }
            let agent = rustix::process::Pid::from_raw(number as i32);
            let is_gone = agent.is_none_or(|pid| rustix::process::test_kill_process(pid).is_err());
            if ended.is_ok() && is_gone || Instant::now() > deadline {
                return Err(failed("it does not begin".to_string()));
            }
            let soon = Instant::now() + Duration::from_millis(1);
            if let News::Of(tid, status) = self.next(Some(soon)) {
                self.note_aside(tid, status);
            }
        }
        Ok(number)
    }

    /// Ends a process.
    pub fn kill(&mut self, pid: i32) -> Result<(), Error> {
        self.processes.get(&pid).ok_or(Error::NoProcess(pid))?;
        kill(pid).map_err(|error| Error::Failed {
            what: "end".to_string(),
            pid,
            why: error.to_string(),
        })?;
        let deadline = Instant::now() + Duration::from_secs(2);
        while !self.tids(pid).is_empty() {
            match self.next(Some(deadline)) {
                News::Of(tid, status) => self.note_aside(tid, status),
                News::Asked(_) => {}
                News::Nothing | News::Alone | News::Lost => break,
            }
        }
        Ok(())
    }

    /// Lets a process go, as it was.
    pub fn detach(&mut self, pid: i32) -> Result<(), Error> {
        if self.governor.is_some() && self.tids(pid).iter().any(|tid| !self.is_inside(*tid)) {
            // Who was led out of the halt goes on with the others, not before.
            self.park();
            self.quiesce(&self.tids(pid));
        }
        for tid in self.tids(pid) {
            if let Some(task) = self.tasks.remove(&tid) {
                task.detach();
            }
        }
        self.processes.remove(&pid);
        self.spaces.remove(&pid);
        let is_last = self.processes.values().all(|p| p.ending.is_some());
        if is_last && !self.alone {
            self.part(Farewell::GoOn);
        }
        Ok(())
    }

    /// Lets everybody go.
    pub fn leave_all(&mut self) {
        // Who did not stand when the debugger was lost is not kept from going on.
        let has_run = self.tasks.values().any(|task| task.is_running());
        self.halt();
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            let _ = self.detach(pid);
        }
        let is_over = self.tasks.is_empty() && self.processes.is_empty();
        self.part(match has_run {
            true => Farewell::GoOn,
            false => self.farewell,
        });
        if is_over {
            self.await_agent();
        }
    }

    /// Something became of somebody while nobody runs.
    pub fn note_aside(&mut self, tid: i32, status: Status) {
        if let Outcome::Told(what) = self.event(tid, status) {
            self.put_off(tid, what);
        }
    }

    /// What became of a thread is told later.
    pub fn put_off(&mut self, tid: i32, what: What) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && !matches!(what, What::Exited(_) | What::Killed(_) | What::Halted)
        {
            task.deferred = Some(what);
        }
    }
}

/// The agent whose program a process is of.
fn agent_of(pid: i32) -> Result<(PathBuf, agent::control::Status), Error> {
    let mut all = agent::control::list().into_iter();
    let found = all.find(|(_, status)| has_process(status, pid));
    found.ok_or_else(|| Error::Unanswered {
        pid,
        name: proc::name(pid),
    })
}

/// Whether an agent has a process.
pub fn has_process(status: &agent::control::Status, pid: i32) -> bool {
    let mut its = status.threads.iter();
    its.any(|thread| thread.pid as i32 == pid)
        || agent::program_of(status.pid as i32).contains(&pid)
}

/// What an agent says.
fn answers(socket: &Path) -> Option<(PathBuf, agent::control::Status)> {
    use agent::control::{Answer, Client, Request};
    let mut client = Client::connect(socket).ok()?;
    match client.ask(&Request::Status).ok()? {
        Answer::Status(status) => Some((socket.to_path_buf(), status)),
        _ => None,
    }
}

fn as_word(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_os_string()
}

/// What an agent says whose program stands before its first instruction.
fn begun(socket: &Path) -> Option<(PathBuf, agent::control::Status)> {
    use agent::halting::State;
    let (socket, status) = answers(socket)?;
    let has_begun = status.threads.iter().any(|stop| stop.state == State::Edge);
    has_begun.then_some((socket, status))
}

fn kill(pid: i32) -> Result<(), rustix::io::Errno> {
    match Pid::from_raw(pid) {
        Some(pid) => kill_process(pid, Signal::KILL),
        None => Err(rustix::io::Errno::SRCH),
    }
}

fn refused(pid: i32) -> Error {
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    Error::NotAllowed {
        pid,
        name: proc::name(pid),
        yama: yama.map_or(0, |text| text.trim().parse().unwrap_or(0)),
    }
}
