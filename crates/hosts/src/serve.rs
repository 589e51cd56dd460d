//! The agent: does what it is asked on one connection.
//!
//! A thread of its own for each request that takes time; not more than
//! [`MOST`] at once. It ends with the connection; what it started does not.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wire::frame::DATA;
use wire::{Answer, Facts, FromAgent, Id, Request, ToAgent, frame, opening};

use crate::desk::{self, Desks};
use crate::followed;
use crate::refusal::{Refusal, without_number};
use crate::run::{self, Run};
use crate::session::Session;
use crate::stored;

/// So many requests may be under way.
pub const MOST: usize = 64;

struct Agent<W> {
    home: PathBuf,
    session: Arc<Session>,
    out: Mutex<W>,
    /// Requests under way, and whether anybody waits for them.
    open: Mutex<HashMap<Id, Arc<AtomicBool>>>,
    /// The recorders that were started, by request.
    runs: Mutex<HashMap<Id, u32>>,
    /// Whom programs are debugged for.
    desks: Desks,
}

/// Serves whoever is at the other end until that is gone.
pub fn serve<W: Write + Send + 'static>(
    mut input: impl Read,
    output: W,
    home: &Path,
    session: &Arc<Session>,
) -> Result<(), wire::Error> {
    let agent = Arc::new(Agent {
        home: home.to_path_buf(),
        session: Arc::clone(session),
        out: Mutex::new(output),
        open: Mutex::new(HashMap::new()),
        runs: Mutex::new(HashMap::new()),
        desks: Desks::default(),
    });
    let served = converse(&agent, &mut input);
    // Nobody debugs through this connection any more.
    agent.desks.close_all();
    served
}

fn converse<W: Write + Send + 'static>(
    agent: &Arc<Agent<W>>,
    input: &mut impl Read,
) -> Result<(), wire::Error> {
    {
        let mut out = agent.out.lock().unwrap_or_else(PoisonError::into_inner);
        opening::write(&mut *out)?;
    }
    if opening::read(input)? != opening::VERSION {
        // The other side sees ours and says so.
        return Ok(());
    }
    let mut buffer = Vec::new();
    loop {
        let heard = frame::read(input, &mut buffer);
        agent.desks.heard();
        match heard {
            Ok(ToAgent::Request { id, request }) => {
                if matches!(request, Request::Debug(_)) {
                    agent.desks.open(id);
                }
                Agent::begin(agent, id, request)?;
            }
            Ok(ToAgent::Cancel(id)) => agent.cancel(id),
            Ok(ToAgent::Data { id, bytes }) => agent.desks.tell(id, &bytes),
            Ok(ToAgent::Alive) => {}
            Err(wire::Error::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

impl<W: Write + Send + 'static> Agent<W> {
    fn send(&self, message: &FromAgent) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write(&mut *out, message).map_err(|error| match error {
            wire::Error::Io(error) => error,
            other => io::Error::other(other),
        })
    }

    fn end(&self, id: Id, result: Result<(), Refusal>) -> io::Result<()> {
        self.lock_open().remove(&id);
        self.send(&FromAgent::End {
            id,
            failure: result.err().map(|refusal| refusal.to_string()),
        })
    }

    fn lock_open(&self) -> std::sync::MutexGuard<'_, HashMap<Id, Arc<AtomicBool>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self, id: Id) {
        if let Some(over) = self.lock_open().get(&id) {
            over.store(true, Release);
        }
        self.desks.close(id);
    }

    fn begin(agent: &Arc<Agent<W>>, id: Id, request: Request) -> Result<(), wire::Error> {
        let over = Arc::new(AtomicBool::new(false));
        let refusal = {
            let mut open = agent.lock_open();
            if open.contains_key(&id) {
                Some(Refusal::UnderWay)
            } else if open.len() >= MOST {
                Some(Refusal::TooMany)
            } else {
                open.insert(id, Arc::clone(&over));
                None
            }
        };
        if let Some(refusal) = refusal {
            // Not an end of the one that is under way.
            return Ok(agent.send(&FromAgent::End {
                id,
                failure: Some(refusal.to_string()),
            })?);
        }
        let its = Arc::clone(agent);
        let work = move || {
            let result = its.answer(id, request, &over);
            // Nobody may be left to tell.
            let _ = its.end(id, result);
        };
        if let Err(error) = std::thread::Builder::new().spawn(work) {
            agent.end(id, Err(Refusal::NoThread(error)))?;
        }
        Ok(())
    }

    fn answer(&self, id: Id, request: Request, over: &AtomicBool) -> Result<(), Refusal> {
        let send = |answer| self.send(&FromAgent::Answer { id, answer });
        let is_over = || over.load(Acquire);
        let runs = || self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        match request {
            Request::Facts => {
                send(Answer::Facts(Box::new(facts(&self.home)))).map_err(Refusal::from)
            }
            Request::Time => send(Answer::Time(now())).map_err(Refusal::from),
            Request::Claim {
                program,
                takes_over,
            } => self.session.claim(&program, takes_over),
            Request::List => {
                for stored in stored::list(&self.home) {
                    send(Answer::Recording(stored))?;
                }
                Ok(())
            }
            Request::Files { recording } => {
                self.session.note(&format!("fetches {recording}"));
                let dir = stored::locate(&self.home, &recording)?;
                stored::files(&dir, is_over, send).map_err(Refusal::from)
            }
            Request::Fetch {
                recording,
                file,
                from,
            } => {
                let dir = stored::locate(&self.home, &recording)?;
                stored::fetch(&dir, &file, from, is_over, send).map_err(Refusal::from)
            }
            Request::Record(job) => {
                self.session.check()?;
                let run = Run::start(&self.home, &job)?;
                let command = job.command.join(" ");
                self.session
                    .note(&format!("records {}: {command}", run.name));
                runs().insert(id, run.pid());
                let (recording, pid) = (run.name.clone(), run.pid());
                let followed = send(Answer::Started { recording, pid })
                    .and_then(|()| run.follow(is_over, send));
                runs().remove(&id);
                followed.map_err(Refusal::from)
            }
            Request::Debug(how) => {
                if let Some(program) = &how.records {
                    self.session.check()?;
                    self.session.note(&format!("records {program}"));
                }
                self.session.note("debugs");
                desk::serve(&self.home, &self.desks, id, &how, send)
            }
            Request::Identify { path } => {
                let (length, digest) = stored::digest(Path::new(&path))?;
                send(Answer::File(wire::File {
                    name: path,
                    length,
                    digest: Some(digest),
                }))
                .map_err(Refusal::from)
            }
            Request::Copy { path } => {
                self.session.note(&format!("fetches {path}"));
                let file = File::open(&path)?;
                stored::send_rest(file, is_over, send).map_err(Refusal::from)
            }
            Request::Grown { dir, had, wait_ms } => {
                let wait = Duration::from_millis(wait_ms.into());
                followed::tell(Path::new(&dir), &had, wait, is_over, send)
            }
            Request::Forget { dir } => {
                agent::forget_observation(Path::new(&dir));
                Ok(())
            }
            Request::Blocked { words } => {
                for piece in blocked(&words)?.chunks(DATA) {
                    send(Answer::Data(piece.to_vec()))?;
                }
                Ok(())
            }
            Request::Signal { run, signal, to } => {
                self.session.check()?;
                self.session.note(&format!("sends signal {signal}"));
                let recorder = runs().get(&run).copied();
                recorder.map_or(Ok(()), |recorder| run::signal(recorder, signal, to))
            }
        }
    }
}

/// Who waits for whom in processes of this host, told by `mw` itself.
fn blocked(words: &[String]) -> Result<Vec<u8>, Refusal> {
    let own = std::env::current_exe()?;
    let told = Command::new(own)
        .args(["blocked", "--as-data", "--live"])
        .args(words)
        .stdin(Stdio::null())
        .output()?;
    if told.status.success() {
        return Ok(told.stdout);
    }
    let said = String::from_utf8_lossy(&told.stderr);
    let first = said.lines().next().unwrap_or("it cannot be told");
    Err(Refusal::Said(first.trim_start_matches("mw: ").to_string()))
}

fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        })
}

fn facts(home: &Path) -> Facts {
    let here = recording::Manifest::here(Vec::new());
    let _ = std::fs::create_dir_all(home);
    let free = rustix::fs::statvfs(home).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    Facts {
        host: here.host,
        version: here.writer,
        format: here.format,
        kernel: here.kernel,
        cpu: here.cpu,
        user: here.user,
        obstacle: obstacle(home),
        disk_free: free.unwrap_or(0),
        home: home.display().to_string(),
    }
}

/// Why nothing can be recorded here, found out by trying: `mw` itself is the
/// program.
fn obstacle(home: &Path) -> Option<String> {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return Some(format!("cannot find itself: {error}")),
    };
    let dir = home.join(format!(".check-{}", std::process::id()));
    let tried = Command::new(&own)
        .args(["record", "--scratch", "-o"])
        .arg(&dir)
        .arg("--")
        .arg(&own)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    let _ = std::fs::remove_dir_all(&dir);
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or("the recorder ended at once");
            Some(first.trim_start_matches("mw: ").to_string())
        }
        Err(error) => Some(without_number(&error)),
    }
}
