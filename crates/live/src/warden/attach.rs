//! Joining processes, starting them, and leaving them.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::events::Outcome;
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

impl Warden {
    /// Joins processes: all of them, or none.
    pub fn attach(&mut self, pids: &[i32]) -> Result<(), Error> {
        for pid in pids {
            self.check(*pid)?;
        }
        let mut joined = Vec::new();
        let done = pids.iter().try_for_each(|pid| {
            joined.push(*pid);
            self.seize(*pid)
        });
        let all: Vec<i32> = self.tasks.keys().copied().collect();
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
        // Who records it has to trace it when it executes another program.
        if proc::maps_at(pid, protocol::layout::IMAGE_BASE) {
            return Err(Error::Recorded { pid, name });
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
                News::Nothing | News::Alone => {
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
                News::Nothing | News::Alone => break,
            }
        }
        Ok(())
    }

    /// Lets a process go, as it was.
    pub fn detach(&mut self, pid: i32) -> Result<(), Error> {
        for tid in self.tids(pid) {
            if let Some(task) = self.tasks.remove(&tid) {
                task.detach();
            }
        }
        self.processes.remove(&pid);
        self.spaces.remove(&pid);
        Ok(())
    }

    /// Lets everybody go.
    pub fn leave_all(&mut self) {
        self.halt();
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            let _ = self.detach(pid);
        }
    }

    /// Something became of somebody while nobody runs.
    pub fn note_aside(&mut self, tid: i32, status: Status) {
        let what = match self.event(tid, status) {
            Outcome::Told(what) => what,
            _ => return,
        };
        if let Some(task) = self.tasks.get_mut(&tid)
            && !matches!(what, What::Exited(_) | What::Killed(_) | What::Halted)
        {
            task.deferred = Some(what);
        }
    }
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
