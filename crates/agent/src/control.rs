//! Where a debugger reaches a program that runs: a socket of the agent's, one
//! question and one answer a line, in JSON.
//!
//! It lies in a directory that only its user can enter. Who connects must be that
//! user, and no process of the program.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::shared::{Control, mode};
use serde::{Deserialize, Serialize};

use crate::arena::Arena;
use crate::channels::{self, Channel};
use crate::halting::{Halted, Halter, Stop};
use crate::reaper;

/// How long a halt waits for those who do not stop, if it is not said.
const LIMIT: Duration = Duration::from_secs(1);
/// How long a program stays halted whose debugger has gone, if it is not said.
const KEEP: Duration = Duration::from_secs(60);
/// How often it is looked who there is.
const PREPARE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    Status,
    /// Halts the program. If the connection ends it stays so for `keep_ms`.
    Halt {
        #[serde(default)]
        limit_ms: Option<u64>,
        #[serde(default)]
        keep_ms: Option<u64>,
        /// Also if another debugger holds it.
        #[serde(default, rename = "override")]
        overrides: bool,
    },
    Resume,
    /// What the pipes and sockets of the program hold.
    Channels,
    /// A process runs on when the others are halted.
    Exempt {
        process: u32,
        on: bool,
    },
    /// The agent leaves the program alone, if that ran before the agent came.
    Detach,
    /// The program sees the time that it is halted from now on, or not.
    RealTime {
        on: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    Status(Status),
    Halted(Halted),
    Resumed { length_ns: u64 },
    Channels { channels: Vec<Channel> },
    Done,
    Refused { why: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The command as it was typed.
    pub command: Vec<String>,
    /// The agent, and where the memory is that it shares with the program.
    pub pid: u32,
    pub arena: PathBuf,
    pub is_recording: bool,
    pub is_halted: bool,
    /// How many halts there have been, and by how much the program's clocks are
    /// behind.
    pub halts: u32,
    pub shift_ns: u64,
    pub threads: Vec<Stop>,
}

/// Where agents have their sockets. None: there is no place of this user's own.
pub fn directory() -> Option<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let dir = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("meanwhile"),
        _ => std::env::temp_dir().join(format!("meanwhile-{user}")),
    };
    let _ = std::fs::DirBuilder::new().mode(0o700).create(&dir);
    let meta = std::fs::symlink_metadata(&dir).ok()?;
    (meta.is_dir() && meta.uid() == user && meta.mode() & 0o077 == 0).then_some(dir)
}

/// The socket of an agent.
pub fn socket_of(pid: u32) -> Option<PathBuf> {
    Some(directory()?.join(format!("{pid}.sock")))
}

/// The agents of this user that answer. What has been left behind by those that
/// were killed is removed.
pub fn list() -> Vec<(PathBuf, Status)> {
    let Some(dir) = directory() else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path());
    let sockets = sockets.filter(|path| path.extension().is_some_and(|ext| ext == "sock"));
    sockets
        .filter_map(|path| {
            let Ok(mut client) = Client::connect(&path) else {
                let _ = std::fs::remove_file(&path);
                return None;
            };
            match client.ask(&Request::Status) {
                Ok(Answer::Status(status)) => Some((path, status)),
                _ => None,
            }
        })
        .collect()
}

/// One who asks.
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(path: &Path) -> std::io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        Ok(Client {
            stream: BufReader::new(stream),
        })
    }

    pub fn ask(&mut self, request: &Request) -> std::io::Result<Answer> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut answer = String::new();
        if self.stream.read_line(&mut answer)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }
}

/// The socket of this agent. Removed when it is dropped.
pub struct Server {
    path: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    arena: Arc<Arena>,
    command: Vec<String>,
    reaper: i32,
    halter: Mutex<Mover>,
    /// Somebody has asked that the program be left alone.
    is_over: AtomicBool,
}

/// Who holds the program.
#[derive(Default)]
struct Mover {
    /// The connection that halted it; 0 = none.
    holder: u64,
    keep: Duration,
}

impl Server {
    /// Serves until the program has ended. None: there is no place for a socket.
    pub fn start(arena: &Arc<Arena>, command: &[String], reaper: i32) -> Option<Server> {
        let path = socket_of(std::process::id())?;
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).ok()?;
        let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
        let shared = Arc::new(Shared {
            arena: Arc::clone(arena),
            command: command.to_vec(),
            reaper,
            halter: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let serve = move || accept(&listener, &its);
        std::thread::Builder::new().spawn(serve).ok()?;
        Some(Server { path, shared })
    }

    /// Whether somebody has asked that the program be left alone.
    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Acquire)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        // Nobody is left who could be halted, or the agent gives up: in either
        // case nobody is to wait.
        Halter::new(self.shared.arena.control()).resume();
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for (number, stream) in (1u64..).zip(listener.incoming()) {
        let Ok(stream) = stream else { continue };
        let its = Arc::clone(shared);
        let serve = move || {
            if is_welcome(&stream, &its) {
                serve(stream, &its, number);
            }
        };
        let _ = std::thread::Builder::new().spawn(serve);
    }
}

/// Only this user, and nobody of the program.
fn is_welcome(stream: &UnixStream, shared: &Shared) -> bool {
    let Ok(peer) = rustix::net::sockopt::socket_peercred(stream) else {
        return false;
    };
    let peer_id = peer.pid.as_raw_nonzero().get();
    let is_adopted = Halter::new(shared.arena.control())
        .pids()
        .contains(&peer_id.unsigned_abs());
    peer.uid == rustix::process::geteuid()
        && !is_adopted
        && !reaper::program(shared.reaper).contains(&peer_id)
}

fn serve(stream: UnixStream, shared: &Shared, number: u64) {
    let Ok(reading) = stream.try_clone() else {
        return;
    };
    let mut writing = stream;
    let mut halter = Halter::new(shared.arena.control());
    let _ = reading.set_read_timeout(Some(PREPARE));
    let mut lines = BufReader::new(reading);
    let mut line = String::new();
    loop {
        match lines.read_line(&mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if is_pause(&error) => {
                halter.prepare();
                continue;
            }
            Err(_) => break,
        }
        let answer = match serde_json::from_str(&line) {
            Ok(request) => answer(shared, &mut halter, number, &request),
            Err(error) => Answer::Refused {
                why: error.to_string(),
            },
        };
        line.clear();
        let Ok(mut bytes) = serde_json::to_vec(&answer) else {
            break;
        };
        bytes.push(b'\n');
        if writing.write_all(&bytes).is_err() {
            break;
        }
    }
    let_go(shared, &mut halter, number);
}

fn is_pause(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// A debugger has gone: what it holds goes on after a while.
fn let_go(shared: &Shared, halter: &mut Halter<'_>, number: u64) {
    let lock = || shared.halter.lock().unwrap_or_else(PoisonError::into_inner);
    let holds = |mover: &Mover| mover.holder == number;
    let keep = Some(lock()).filter(|mover| holds(mover)).map(|m| m.keep);
    let Some(keep) = keep else { return };
    std::thread::sleep(keep);
    // Somebody else may have taken it over.
    let mut mover = lock();
    if holds(&mover) {
        mover.holder = 0;
        halter.resume();
    }
}

fn answer(shared: &Shared, halter: &mut Halter<'_>, number: u64, request: &Request) -> Answer {
    let control = shared.arena.control();
    let mut mover = shared.halter.lock().unwrap_or_else(PoisonError::into_inner);
    let is_others = mover.holder != 0 && mover.holder != number;
    let refused = || Answer::Refused {
        why: "another debugger holds the program".to_string(),
    };
    match *request {
        Request::Status => Answer::Status(status(shared, control, halter)),
        Request::Halt { overrides, .. } if is_others && !overrides => refused(),
        Request::Halt {
            limit_ms, keep_ms, ..
        } => {
            mover.holder = number;
            mover.keep = keep_ms.map_or(KEEP, Duration::from_millis);
            Answer::Halted(halter.halt(limit_ms.map_or(LIMIT, Duration::from_millis)))
        }
        Request::Resume if is_others => refused(),
        Request::Resume => {
            mover.holder = 0;
            let length = halter.resume().unwrap_or_default();
            Answer::Resumed {
                length_ns: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
            }
        }
        Request::Channels => Answer::Channels {
            channels: channels::contents(halter.pids()),
        },
        Request::Exempt { process, on } => match halter.exempt(process, on) {
            true => Answer::Done,
            false => Answer::Refused {
                why: format!("there is no process {process}"),
            },
        },
        Request::Detach if is_others => refused(),
        Request::Detach if shared.reaper != 0 => Answer::Refused {
            why: "the agent started this program, and stays with it".to_string(),
        },
        Request::Detach => {
            mover.holder = 0;
            shared.is_over.store(true, Release);
            Answer::Done
        }
        Request::RealTime { on } => {
            control.halt.real_time.store(on.into(), Release);
            Answer::Done
        }
    }
}

fn status(shared: &Shared, control: &Control, halter: &Halter<'_>) -> Status {
    Status {
        command: shared.command.clone(),
        pid: std::process::id(),
        arena: shared.arena.path().to_path_buf(),
        is_recording: control.mode.load(Relaxed) == mode::RECORD,
        is_halted: control.halt.is_on(),
        halts: control.halt.count.load(Acquire),
        shift_ns: control.halt.shift.load(Acquire),
        threads: halter.look(),
    }
}
