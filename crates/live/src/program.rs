//! A program that is alive: on one host, or on several, with a warden on each.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use protocol::id::{ProcessId, ProcessNo};
use target::{Cancel, Living, Opener, Target};

use crate::Error;
use crate::client::{Client, unexpected};
use crate::far::{Followed, Site};
use crate::proc::{self, Candidate};
use crate::process::Process;
use crate::talk::{Answer, Request};
use crate::word::Secret;

/// A program that is alive: its processes, behind wardens of its own. When this is
/// gone they are let go.
pub struct Program(pub(crate) Arc<Wardens>);

/// The wardens of a program. Where one stands among them is the member that its
/// processes are of.
pub(crate) struct Wardens {
    clients: Vec<Client>,
    /// How many motions there were.
    motions: AtomicU64,
    /// Each has been told of the others.
    have_met: OnceLock<()>,
}

impl Wardens {
    fn new(clients: Vec<Client>) -> Wardens {
        Wardens {
            clients,
            motions: AtomicU64::new(0),
            have_met: OnceLock::new(),
        }
    }

    pub fn all(&self) -> &[Client] {
        &self.clients
    }

    /// The number of a motion that begins.
    pub fn next_motion(&self) -> u64 {
        self.motions.fetch_add(1, Relaxed) + 1
    }

    pub fn of(&self, member: u16) -> Result<&Client, Error> {
        let found = self.clients.get(usize::from(member));
        found.ok_or_else(|| Error::Gone(format!("there is no host {member}")))
    }
}

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

/// Asks the agent of a program on one of its hosts, as its debugger.
#[derive(Clone)]
pub struct Agent {
    wardens: Arc<Wardens>,
    member: u16,
}

impl Agent {
    /// The member that the processes of its host are of.
    pub fn member(&self) -> u16 {
        self.member
    }

    /// Its host, if that is another one than the debugger's.
    pub fn host(&self) -> Option<&str> {
        self.wardens.of(self.member).ok()?.host()
    }

    /// Has a recording that grows on its host in a directory here as well; none: it is this
    /// host.
    pub fn follow(&self, dir: &Path, to: &Path) -> Result<Option<Box<dyn Followed>>, Error> {
        let client = self.wardens.of(self.member)?;
        let Some(files) = client.files() else {
            return Ok(None);
        };
        let followed = files.host.follow(dir, to);
        followed.map(Some).map_err(|error| {
            client.explain(Error::NotFollowed {
                why: error.to_string(),
                hint: error.hint(),
            })
        })
    }

    pub fn ask(&self, request: &agent::control::Request) -> Result<agent::control::Answer, Error> {
        use agent::control::Answer as Said;
        let client = self.wardens.of(self.member)?;
        let wrong = |error: serde_json::Error| Error::Agent(error.to_string());
        let question = serde_json::to_string(request).map_err(wrong)?;
        if matches!(request, agent::control::Request::Exempt { .. }) {
            client.changed();
        }
        match client.ask(&Request::Agent(question))? {
            Answer::Agent(answer) => match serde_json::from_str(&answer).map_err(wrong)? {
                Said::Refused { why } => Err(client.explain(Error::Agent(why))),
                answer => Ok(answer),
            },
            other => Err(unexpected(&other)),
        }
    }

    /// Asks it while the program runs, too: what only looks.
    pub fn ask_aside(
        &self,
        request: &agent::control::Request,
    ) -> Result<agent::control::Answer, Error> {
        use agent::control::Answer as Said;
        let client = self.wardens.of(self.member)?;
        let wrong = |error: serde_json::Error| Error::Agent(error.to_string());
        let question = serde_json::to_string(request).map_err(wrong)?;
        let answer = client.ask_aside(&question)?;
        match serde_json::from_str(&answer).map_err(wrong)? {
            Said::Refused { why } => Err(client.explain(Error::Agent(why))),
            answer => Ok(answer),
        }
    }
}

impl Program {
    /// A program on this host. Starts a warden: `executable WORDS DESCRIPTOR` is to call
    /// [`crate::warden::serve`].
    pub fn new(executable: &Path, words: &[&str]) -> Result<Program, Error> {
        let client = Client::here(executable, words)?;
        Ok(Program(Arc::new(Wardens::new(vec![client]))))
    }

    /// A program on other hosts: one of its parts for each line to a warden.
    pub fn over(sites: Vec<Site>) -> Result<Program, Error> {
        let clients: Result<Vec<Client>, Error> = sites.into_iter().map(Client::there).collect();
        Ok(Program(Arc::new(Wardens::new(clients?))))
    }

    fn first(&self) -> Result<&Client, Error> {
        self.0.of(0)
    }

    /// Joins processes that run: all of them, or none. They stand still then. If the
    /// monitor was to come into them and cannot, they are traced all the same: why that is.
    pub fn attach(&self, pids: &[i32], how: &How) -> Result<Option<String>, Error> {
        let answer = self.first()?.ask(&attach(pids, how))?;
        joined(answer)
    }

    /// Joins processes of several hosts, all hosts at once: all processes, or none. Why
    /// not as they were to be, of each host.
    pub fn attach_on(&self, pids: &[Vec<i32>], how: &How) -> Result<Vec<Option<String>>, Error> {
        self.introduce()?;
        let some = |pids: &Vec<i32>| (!pids.is_empty()).then(|| attach(pids, how));
        let requests: Vec<Option<Request>> = pids.iter().map(some).collect();
        let answers = self.ask_some(&requests)?.into_iter();
        answers
            .map(|answer| answer.map_or(Ok(None), joined))
            .collect()
    }

    /// Asks each warden something, all before the first answer is waited for.
    fn ask_all(&self, requests: &[Request]) -> Result<Vec<Answer>, Error> {
        let requests: Vec<Option<Request>> = requests.iter().cloned().map(Some).collect();
        Ok(self.ask_some(&requests)?.into_iter().flatten().collect())
    }

    /// Asks some of the wardens something, each its own.
    fn ask_some(&self, requests: &[Option<Request>]) -> Result<Vec<Option<Answer>>, Error> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = self
                .0
                .all()
                .iter()
                .zip(requests)
                .map(|(client, request)| {
                    let ask = move || request.as_ref().map(|what| client.ask(what)).transpose();
                    let thread = std::thread::Builder::new().spawn_scoped(scope, ask);
                    (ask, thread)
                })
                .collect();
            let answers = asked.into_iter().map(|(ask, thread)| match thread {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // Where no thread can be had one is asked after the other.
                Err(_) => ask(),
            });
            // All have answered before the first failure is told.
            let answers: Vec<Result<Option<Answer>, Error>> = answers.collect();
            answers.into_iter().collect()
        })
    }

    /// Has the hosts know of each other, so that one that halts tells the others itself.
    fn introduce(&self) -> Result<(), Error> {
        let clients = self.0.all();
        if clients.len() < 2 || self.0.have_met.set(()).is_err() {
            return Ok(());
        }
        // (Without one they are told by the debugger alone.)
        let Some(secret) = Secret::new() else {
            return Ok(());
        };
        let listen = vec![Request::Listen; clients.len()];
        let answers = self.ask_all(&listen)?.into_iter();
        let addresses: Result<Vec<_>, Error> = answers
            .map(|answer| match answer {
                Answer::Listening(addresses) => Ok(addresses),
                other => Err(unexpected(&other)),
            })
            .collect();
        let addresses = addresses?;
        for (own, client) in (0u16..).zip(clients) {
            client.post(&Request::Meet {
                secret: secret.clone(),
                own,
                addresses: addresses.clone(),
            })?;
        }
        Ok(())
    }

    /// Who could be joined, on each host.
    pub fn candidates(&self) -> Result<Vec<Vec<Candidate>>, Error> {
        let requests: Vec<Request> = self.0.all().iter().map(|_| Request::Candidates).collect();
        let answers = self.ask_all(&requests)?.into_iter();
        answers
            .map(|answer| match answer {
                Answer::Candidates(all) => Ok(all),
                other => Err(unexpected(&other)),
            })
            .collect()
    }

    /// Starts a program under an agent, which these words start. It stands before its
    /// first instruction then.
    pub fn start_governed(&self, words: &[OsString], how: &How) -> Result<i32, Error> {
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        let words = words.iter().map(|word| word.as_bytes().to_vec());
        started(self.first()?.ask(&start(words.collect(), group, how))?)
    }

    /// Starts programs under agents on their hosts, by words for each.
    pub fn start_on(&self, words: &[Vec<String>], how: &How) -> Result<(), Error> {
        self.introduce()?;
        let requests = words.iter().map(|words| {
            let words = words.iter().map(|word| word.as_bytes().to_vec());
            // In a group of its own.
            start(words.collect(), 0, how)
        });
        let answers = self.ask_all(&requests.collect::<Vec<_>>());
        let begun = answers.and_then(|answers| {
            answers.into_iter().try_for_each(|answer| {
                started(answer)?;
                Ok(())
            })
        });
        if begun.is_err() {
            // Without one of them it is not the program that was meant.
            for client in self.0.all() {
                for process in client.processes().unwrap_or_default() {
                    // One that has ended is what is wanted.
                    let _ = client.ask(&Request::Kill(process.pid));
                }
            }
        }
        begun
    }

    /// Whether its processes are on other hosts than the debugger.
    pub fn is_far(&self) -> bool {
        self.first().is_ok_and(|client| client.host().is_some())
    }

    /// What a file under `/proc/PID` of a process says, or where it leads if it is a link.
    pub fn told_of(&self, process: ProcessId, name: &str) -> Option<Vec<u8>> {
        let pid = process.number.0 as i32;
        let client = self.0.of(process.member).ok()?;
        if client.host().is_none() {
            return proc::told(pid, name);
        }
        let name = name.to_string();
        match client.ask(&Request::Told { process: pid, name }).ok()? {
            Answer::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Where a file can be read here that a process sees at a path.
    pub fn seen_by(&self, process: ProcessId, path: &Path) -> Option<PathBuf> {
        let relative = path.strip_prefix("/").ok()?;
        let place = Path::new("/proc")
            .join(process.number.to_string())
            .join("root")
            .join(relative);
        let client = self.0.of(process.member).ok()?;
        match client.files() {
            None => Some(place).filter(|place| place.exists()),
            Some(files) => {
                let copies = files.host.files(&[place.display().to_string()]);
                copies.into_iter().next().flatten()
            }
        }
    }

    /// Who asks the program's agent, of the first host if there are several.
    pub fn agent(&self) -> Agent {
        Agent {
            wardens: Arc::clone(&self.0),
            member: 0,
        }
    }

    /// Who asks the program's agents, one for each host.
    pub fn agents(&self) -> Vec<Agent> {
        let members = (0u16..).zip(self.0.all()).map(|(member, _)| member);
        let agent = |member| Agent {
            wardens: Arc::clone(&self.0),
            member,
        };
        members.map(agent).collect()
    }

    /// Starts a program, which then stands before its first instruction.
    pub fn start(&self, arguments: &[OsString]) -> Result<i32, Error> {
        let words = arguments.iter().map(|word| word.as_bytes().to_vec());
        let request = Request::Start {
            arguments: words.collect(),
            group: rustix::process::getpgrp().as_raw_nonzero().get(),
        };
        started(self.first()?.ask(&request)?)
    }

    /// The kernel's id of the warden, of a program on this host.
    pub fn warden(&self) -> u32 {
        let first = self.first().ok();
        first.and_then(Client::warden).unwrap_or(0)
    }
}

fn attach(pids: &[i32], how: &How) -> Request {
    Request::Attach {
        pids: pids.to_vec(),
        keep_ms: how.keep_ms(),
        overrides: how.overrides,
        governed: how.governed,
    }
}

fn joined(answer: Answer) -> Result<Option<String>, Error> {
    match answer {
        Answer::Joined(why) => Ok(why),
        other => Err(unexpected(&other)),
    }
}

fn start(words: Vec<Vec<u8>>, group: i32, how: &How) -> Request {
    Request::StartGoverned {
        words,
        group,
        keep_ms: how.keep_ms(),
    }
}

fn started(answer: Answer) -> Result<i32, Error> {
    match answer {
        Answer::Started(pid) => Ok(pid),
        other => Err(unexpected(&other)),
    }
}

impl Opener for Program {
    fn open(&self, process: ProcessId, _: &Cancel) -> target::Result<Box<dyn Target>> {
        let pid = process.number.0 as i32;
        let client = self.0.of(process.member)?;
        let all = client.processes()?;
        if !all.iter().any(|p| p.pid == pid) {
            return Err(client.explain(Error::NoProcess(pid)).into());
        }
        Ok(Box::new(Process::new(
            Arc::clone(&self.0),
            process.member,
            pid,
        )))
    }

    fn living(&self) -> Option<Vec<Living>> {
        let mut living = Vec::new();
        for (member, client) in (0u16..).zip(self.0.all()) {
            let all = client.processes().unwrap_or_default().into_iter();
            let alive = all.filter(|process| process.ending.is_none());
            living.extend(alive.map(|process| Living {
                id: ProcessNo(process.pid as u32).of_member(member),
                name: format!("{}-{}", process.name, process.pid),
                host: client.host().map(str::to_string),
                program: process.name,
            }));
        }
        Some(living)
    }
}
