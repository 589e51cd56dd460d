//! The debugger's end of the conversation with the warden.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::id::ProcessId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use target::{Cancel, Living, Opener, Target};

use crate::Error;
use crate::proc;
use crate::process::Process;
use crate::talk::{self, Answer, Report, Request};

/// A program that is alive: its processes, behind a warden of its own. When this is
/// gone they are let go.
pub struct Program(Arc<Client>);

/// How a program is joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// For how long it stays halted when its debugger is lost.
    pub keep: Option<std::time::Duration>,
    /// Also if another debugger has it.
    pub overrides: bool,
    /// The monitor comes into processes that run without one, so that their time stands
    /// when they do.
    pub governed: bool,
}

impl How {
    fn keep_ms(&self) -> Option<u64> {
        self.keep
            .map(|keep| u64::try_from(keep.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Asks the agent of a program, as its debugger.
#[derive(Clone)]
pub struct Agent(Arc<Client>);

impl Agent {
    pub fn ask(&self, request: &agent::control::Request) -> Result<agent::control::Answer, Error> {
        use agent::control::Answer as Said;
        let wrong = |error: serde_json::Error| Error::Agent(error.to_string());
        let question = serde_json::to_string(request).map_err(wrong)?;
        if matches!(request, agent::control::Request::Exempt { .. }) {
            self.0.changed();
        }
        match self.0.ask(&Request::Agent(question))? {
            Answer::Agent(answer) => match serde_json::from_str(&answer).map_err(wrong)? {
                Said::Refused { why } => Err(Error::Agent(why)),
                answer => Ok(answer),
            },
            other => Err(unexpected(&other)),
        }
    }
}

/// Asks the warden.
pub struct Client {
    line: Mutex<Line>,
}

struct Line {
    socket: UnixStream,
    warden: Child,
    /// How often the program was halted.
    halts: u64,
    /// The thread that runs, of each process.
    current: HashMap<i32, i32>,
}

impl Program {
    /// Starts a warden: `executable WORDS DESCRIPTOR` is to call
    /// [`crate::warden::serve`].
    pub fn new(executable: &Path, words: &[&str]) -> Result<Program, Error> {
        let gone = |error: std::io::Error| Error::Gone(error.to_string());
        let (socket, theirs) = UnixStream::pair().map_err(gone)?;
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
            .map_err(|error| Error::Gone(error.to_string()))?;
        // In a group of its own: what the terminal sends is not for it.
        let warden = Command::new(executable)
            .args(words)
            .arg(theirs.as_raw_fd().to_string())
            .process_group(0)
            .spawn()
            .map_err(gone)?;
        let line = Mutex::new(Line {
            socket,
            warden,
            halts: 0,
            current: HashMap::new(),
        });
        Ok(Program(Arc::new(Client { line })))
    }

    /// Joins processes that run: all of them, or none. They stand still then. If the
    /// monitor was to come into them and cannot, they are traced all the same: why that is.
    pub fn attach(&self, pids: &[i32], how: &How) -> Result<Option<String>, Error> {
        let request = Request::Attach {
            pids: pids.to_vec(),
            keep_ms: how.keep_ms(),
            overrides: how.overrides,
            governed: how.governed,
        };
        match self.0.ask(&request)? {
            Answer::Joined(why) => Ok(why),
            other => Err(unexpected(&other)),
        }
    }

    /// Starts a program under an agent, which these words start. It stands before its
    /// first instruction then.
    pub fn start_governed(&self, words: &[OsString], how: &How) -> Result<i32, Error> {
        let words = words.iter().map(|word| word.as_bytes().to_vec());
        let request = Request::StartGoverned {
            words: words.collect(),
            group: rustix::process::getpgrp().as_raw_nonzero().get(),
            keep_ms: how.keep_ms(),
        };
        match self.0.ask(&request)? {
            Answer::Started(pid) => Ok(pid),
            other => Err(unexpected(&other)),
        }
    }

    /// Who asks the program's agent.
    pub fn agent(&self) -> Agent {
        Agent(Arc::clone(&self.0))
    }

    /// Starts a program, which then stands before its first instruction.
    pub fn start(&self, arguments: &[OsString]) -> Result<i32, Error> {
        let words = arguments.iter().map(|word| word.as_bytes().to_vec());
        let request = Request::Start {
            arguments: words.collect(),
            group: rustix::process::getpgrp().as_raw_nonzero().get(),
        };
        match self.0.ask(&request)? {
            Answer::Started(pid) => Ok(pid),
            other => Err(unexpected(&other)),
        }
    }

    /// The kernel's id of the warden.
    pub fn warden(&self) -> u32 {
        self.0.line().warden.id()
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::Gone(format!("it answered {answer:?}"))
}

impl Client {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for the answer.
    pub fn ask(&self, request: &Request) -> Result<Answer, Error> {
        let mut line = self.line();
        line.ask(request)
    }

    /// Has processes move, and waits until all stand again. What is cancelled is
    /// halted.
    pub fn go(&self, request: &Request, cancel: &Cancel) -> Result<Report, Error> {
        let mut line = self.line();
        let gone = |error: std::io::Error| Error::Gone(error.to_string());
        talk::send(&mut line.socket, request).map_err(gone)?;
        let mut is_told = false;
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        loop {
            let mut fds = [PollFd::new(&line.socket, PollFlags::IN)];
            let ready = poll(&mut fds, Some(&pause)).unwrap_or(0);
            if ready > 0 {
                break;
            }
            if cancel.is_cancelled() && !is_told {
                is_told = true;
                talk::send(&mut line.socket, &Request::Halt).map_err(gone)?;
            }
        }
        line.halts += 1;
        match line.answer()? {
            Answer::Stopped(report) => {
                line.current.insert(report.process, report.thread);
                Ok(report)
            }
            other => Err(unexpected(&other)),
        }
    }

    pub fn halts(&self) -> u64 {
        self.line().halts
    }

    /// The thread of a process that runs, if one was chosen.
    pub fn current(&self, pid: i32) -> Option<i32> {
        self.line().current.get(&pid).copied()
    }

    pub fn choose(&self, pid: i32, tid: i32) {
        self.line().current.insert(pid, tid);
    }

    /// What was changed is to be looked at again.
    pub fn changed(&self) {
        self.line().halts += 1;
    }

    pub fn processes(&self) -> Result<Vec<talk::Process>, Error> {
        match self.ask(&Request::Processes)? {
            Answer::Processes(all) => Ok(all),
            other => Err(unexpected(&other)),
        }
    }
}

impl Line {
    fn ask(&mut self, request: &Request) -> Result<Answer, Error> {
        let gone = |error: std::io::Error| Error::Gone(error.to_string());
        talk::send(&mut self.socket, request).map_err(gone)?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Answer, Error> {
        match talk::receive(&mut self.socket) {
            Ok(Some(Answer::Failed(error))) => Err(error),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Error::Gone("it has ended".to_string())),
            Err(error) => Err(Error::Gone(error.to_string())),
        }
    }
}

/// The warden lets everybody go when nobody is at the other end, and ends.
impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.ask(&Request::Farewell { goes_on: true });
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.warden.wait();
    }
}

impl Opener for Program {
    fn open(&self, process: ProcessId, _: &Cancel) -> target::Result<Box<dyn Target>> {
        let pid = process.number.0 as i32;
        let all = self.0.processes()?;
        if !all.iter().any(|p| p.pid == pid) {
            return Err(Error::NoProcess(pid).into());
        }
        Ok(Box::new(Process::new(Arc::clone(&self.0), pid)))
    }

    fn living(&self) -> Option<Vec<Living>> {
        let all = self.0.processes().unwrap_or_default().into_iter();
        let alive = all.filter(|process| process.ending.is_none());
        let living = alive.map(|process| {
            let program = proc::name(process.pid);
            Living {
                id: ProcessId::of_first(process.pid as u32),
                name: format!("{program}-{}", process.pid),
                program,
            }
        });
        Some(living.collect())
    }
}
