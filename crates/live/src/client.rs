//! The debugger's end of the conversation with one warden.
//!
//! What has nothing to tell is posted: its answer is taken with the next one that is
//! waited for. So a motion is one question and one answer, whatever was said before it.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Error;
use crate::far::{Files, Site};
use crate::mapped::Mappings;
use crate::talk::{self, Answer, Glimpse, Report, Request, Sight};

/// So long a warden on another host may take to let everybody go: its line may be cut.
const PARTING: Duration = Duration::from_secs(10);

/// So long it takes at most until who moves the program looks for what is to be passed on.
const PASSED_ON: Duration = Duration::from_millis(20);
const UNHEARD: &str = "nobody has passed a question on";

/// Asks one warden.
pub struct Client {
    /// The warden's host, if it is another one.
    far: Option<Far>,
    line: Mutex<Line>,
    /// What is to be asked of the agent while somebody else has the line.
    asides: Mutex<Vec<Aside>>,
}

/// A question to the agent, in its own words, and where the answer goes.
pub(crate) struct Aside {
    pub question: String,
    pub answer: Sender<Result<String, Error>>,
}

struct Far {
    name: String,
    files: Files,
}

pub(crate) struct Line {
    pub socket: UnixStream,
    warden: Option<Child>,
    /// How often its processes were halted.
    pub halts: u64,
    /// The thread that runs, of each process.
    pub current: HashMap<i32, i32>,
    /// Answers that nobody has waited for yet.
    pub owed: u32,
    /// One of those was that something cannot be done.
    pub failed: Option<Error>,
    /// What somebody came to while another one was told of, and the halt that it was at.
    pub deferred: Option<(u64, Report)>,
    /// What was told with a halt.
    pub told: Option<Told>,
    /// What processes of another host have mapped, as it was told last.
    mappings: HashMap<i32, Arc<Mappings>>,
}

/// What a debugger on another host knows of a halt without asking.
pub(crate) struct Told {
    halt: u64,
    sight: Box<Sight>,
}

impl Told {
    fn of(&self, pid: i32) -> Option<&Glimpse> {
        let mut all = self.sight.glimpses.iter();
        all.find(|glimpse| glimpse.process == pid)
    }
}

impl Client {
    /// Starts a warden here: `executable WORDS DESCRIPTOR` is to call
    /// [`crate::warden::serve`].
    pub fn here(executable: &Path, words: &[&str]) -> Result<Client, Error> {
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
        Ok(Client {
            far: None,
            line: Mutex::new(Line::new(socket, Some(warden))),
            asides: Mutex::default(),
        })
    }

    /// Asks a warden on another host.
    pub fn there(site: Site) -> Result<Client, Error> {
        let client = Client {
            far: Some(Far {
                name: site.name,
                files: Files::new(site.host, site.debug_files),
            }),
            line: Mutex::new(Line::new(site.socket, None)),
            asides: Mutex::default(),
        };
        client.post(&Request::Far)?;
        Ok(client)
    }

    /// The name of the warden's host, if it is another one.
    pub fn host(&self) -> Option<&str> {
        self.far.as_ref().map(|far| far.name.as_str())
    }

    /// The files of the warden's host, if it is another one.
    pub(crate) fn files(&self) -> Option<&Files> {
        self.far.as_ref().map(|far| &far.files)
    }

    pub(crate) fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    /// The kernel's id of the warden, if it is here.
    pub fn warden(&self) -> Option<u32> {
        self.line().warden.as_ref().map(Child::id)
    }

    /// What is wrong, with the host where it is.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let Some(far) = &self.far else { return error };
        let host = far.name.clone();
        match (error, far.files.host.why()) {
            (Error::Gone(_), Some(said)) => Error::Lost { host, said },
            (error @ Error::On { .. }, _) => error,
            (error, _) => Error::On {
                host,
                error: Box::new(error),
            },
        }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&self, request: &Request) -> Result<Answer, Error> {
        if let Some(host) = self.host() {
            tracing::debug!(host, ?request, "a round trip");
        }
        let mut line = self.line();
        line.ask(request).map_err(|error| self.explain(error))
    }

    /// Asks the agent, though others have the line: who moves the program passes it on.
    pub fn ask_aside(&self, question: &str) -> Result<String, Error> {
        let (to, answer) = channel();
        lock(&self.asides).push(Aside {
            question: question.to_string(),
            answer: to,
        });
        loop {
            match answer.recv_timeout(PASSED_ON) {
                Ok(answer) => return answer.map_err(|error| self.explain(error)),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Gone(UNHEARD.into())),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // Nobody moves it: it can be asked like anything else.
            let Ok(mut line) = self.line.try_lock() else {
                continue;
            };
            let Some(aside) = lock(&self.asides).pop() else {
                // Somebody has taken it, and answers.
                continue;
            };
            let answered = line.ask(&Request::Aside(aside.question));
            let _ = aside.answer.send(match answered {
                Ok(Answer::Aside(answer)) => answer,
                Ok(other) => Err(unexpected(&other)),
                Err(error) => Err(error),
            });
        }
    }

    /// What is to be asked of the agent by who has the line.
    pub(crate) fn take_asides(&self) -> Vec<Aside> {
        std::mem::take(&mut *lock(&self.asides))
    }

    /// Says something that has nothing to tell.
    pub fn post(&self, request: &Request) -> Result<(), Error> {
        let mut line = self.line();
        let said = line.say(request);
        line.owed += 1;
        said.map_err(|error| self.explain(error))
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

    /// Who is there.
    pub fn processes(&self) -> Result<Vec<talk::Process>, Error> {
        {
            let line = self.line();
            if let Some(told) = line.told.as_ref().filter(|told| told.halt == line.halts) {
                return Ok(told.sight.processes.clone());
            }
        }
        match self.ask(&Request::Processes)? {
            Answer::Processes(all) => Ok(all),
            other => Err(unexpected(&other)),
        }
    }

    /// What was told of a process with the halt at which it stands.
    pub(crate) fn glimpse(&self, pid: i32) -> Option<Glimpse> {
        let line = self.line();
        let told = line.told.as_ref().filter(|told| told.halt == line.halts)?;
        told.of(pid).cloned()
    }

    /// What a process of another host has mapped.
    pub(crate) fn mapped_there(&self, pid: i32) -> Arc<Mappings> {
        {
            let line = self.line();
            let told = line.told.as_ref().filter(|told| told.halt == line.halts);
            let is_told = told.is_some_and(|told| told.of(pid).is_some());
            if let Some(known) = line.mappings.get(&pid).filter(|_| is_told) {
                return Arc::clone(known);
            }
        }
        let all = match self.ask(&Request::Mapped(pid)) {
            Ok(Answer::Mapped(all)) => Arc::new(all),
            _ => Arc::default(),
        };
        self.line().mappings.insert(pid, Arc::clone(&all));
        all
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn unexpected(answer: &Answer) -> Error {
    Error::Gone(format!("it answered {answer:?}"))
}

fn gone(error: std::io::Error) -> Error {
    Error::Gone(error.to_string())
}

impl Line {
    fn new(socket: UnixStream, warden: Option<Child>) -> Line {
        Line {
            socket,
            warden,
            halts: 0,
            current: HashMap::new(),
            owed: 0,
            failed: None,
            deferred: None,
            told: None,
            mappings: HashMap::new(),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Error> {
        self.say(request)?;
        loop {
            if let Some(answer) = self.next()? {
                return match self.failed.take() {
                    Some(error) => Err(error),
                    None => Ok(answer),
                };
            }
        }
    }

    pub fn say(&mut self, request: &Request) -> Result<(), Error> {
        talk::send(&mut self.socket, request).map_err(gone)
    }

    /// The next message. None: it was the answer to something that was posted.
    pub fn next(&mut self) -> Result<Option<Answer>, Error> {
        let answer = match talk::receive(&mut self.socket) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(Error::Gone("it has ended".to_string())),
            Err(error) => return Err(gone(error)),
        };
        if self.owed > 0 {
            self.owed -= 1;
            if let Answer::Failed(error) = answer {
                self.failed.get_or_insert(error);
            }
            return Ok(None);
        }
        match answer {
            Answer::Failed(error) => Err(error),
            answer => Ok(Some(answer)),
        }
    }

    /// All stand again, and this was told with it.
    pub fn stand(&mut self, report: &Report, sight: Option<Box<Sight>>) {
        self.halts += 1;
        if report.process != 0 {
            self.current.insert(report.process, report.thread);
        }
        self.told = sight.map(|mut sight| {
            for glimpse in &mut sight.glimpses {
                if let Some(mappings) = glimpse.mappings.take() {
                    self.mappings.insert(glimpse.process, Arc::new(mappings));
                }
            }
            Told {
                halt: self.halts,
                sight,
            }
        });
    }
}

/// The warden lets everybody go when nobody is at the other end, and ends.
impl Drop for Line {
    fn drop(&mut self) {
        if self.warden.is_none() {
            let _ = self.socket.set_read_timeout(Some(PARTING));
        }
        let _ = self.ask(&Request::Farewell { goes_on: true });
        match &mut self.warden {
            Some(warden) => {
                let _ = self.socket.shutdown(std::net::Shutdown::Both);
                let _ = warden.wait();
            }
            None => {
                // When it has ended its end is closed.
                let _ = self.socket.shutdown(std::net::Shutdown::Write);
                while matches!(talk::receive::<Answer>(&mut self.socket), Ok(Some(_))) {}
            }
        }
    }
}
