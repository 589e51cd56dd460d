//! Asking the agent of a peer's user.

use std::io::{BufRead, BufReader, Error, ErrorKind, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};

use crate::time::{Halt, Peer};

/// So long an agent may take. (One that halts just now answers when that is done.)
const LIMIT: Duration = Duration::from_secs(5);

/// Halts may begin and end while it is asked: then it is asked again.
const ATTEMPTS: usize = 10;

/// What is known of a process. None: no agent of its user has it.
pub fn peer(pid: u32) -> Result<Option<Peer>> {
    let user = std::fs::metadata(format!("/proc/{pid}"))?.uid();
    ask_all(pid, user)
}

/// What is known of who is at the other end of a unix socket.
pub fn peer_of(socket: impl AsFd) -> Result<Option<Peer>> {
    let peer = socket_peercred(socket)?;
    let pid = peer.pid.as_raw_nonzero().get() as u32;
    ask_all(pid, peer.uid.as_raw())
}

/// Where a user's agents may have their sockets.
fn directories(user: u32) -> Vec<PathBuf> {
    let name = format!("meanwhile-{user}");
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let own = own.filter(|_| user == rustix::process::geteuid().as_raw());
    let mut all: Vec<PathBuf> = own
        .map(|dir| PathBuf::from(dir).join("meanwhile"))
        .into_iter()
        .collect();
    all.push(std::env::temp_dir().join(&name));
    all.push(PathBuf::from(format!("/run/user/{user}/meanwhile")));
    all.push(Path::new("/tmp").join(&name));
    all.dedup();
    // Nobody else can have put anything there.
    all.retain(|dir| {
        std::fs::symlink_metadata(dir)
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == user && meta.mode() & 0o077 == 0)
    });
    all
}

fn ask_all(pid: u32, user: u32) -> Result<Option<Peer>> {
    for dir in directories(user) {
        // Another user's directory cannot be read: there is no answer for us.
        let Ok(entries) = std::fs::read_dir(dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|ext| ext != "sock") {
                continue;
            }
            // What an agent that was killed left behind does not answer.
            let Ok(mut line) = Line::connect(&path, user) else {
                continue;
            };
            if let Some(peer) = line.peer(pid)? {
                return Ok(Some(peer));
            }
        }
    }
    Ok(None)
}

/// A connection to an agent.
struct Line(BufReader<UnixStream>);

impl Line {
    fn connect(path: &Path, user: u32) -> Result<Line> {
        let stream = UnixStream::connect(path)?;
        if socket_peercred(&stream)?.uid.as_raw() != user {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                "another user answers",
            ));
        }
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Line(BufReader::new(stream)))
    }

    /// None: there is no answer.
    fn ask(&mut self, question: &Value) -> Result<Option<Value>> {
        let mut line = question.to_string();
        line.push('\n');
        if self.0.get_mut().write_all(line.as_bytes()).is_err() {
            // It does not want to talk to us.
            return Ok(None);
        }
        let mut answer = String::new();
        match self.0.read_line(&mut answer) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(serde_json::from_str(&answer)?)),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn peer(&mut self, pid: u32) -> Result<Option<Peer>> {
        for _ in 0..ATTEMPTS {
            let log = self.ask(&json!({"do": "halts"}))?;
            let (Some(log), Some(peer)) = (log, self.ask(&json!({"do": "peer", "pid": pid}))?)
            else {
                return Ok(None);
            };
            if peer.get("is").and_then(Value::as_str) != Some("peer") {
                return Ok(None);
            }
            if let Some(peer) = understand(&peer, &log) {
                return Ok(Some(peer));
            }
        }
        Err(Error::new(
            ErrorKind::TimedOut,
            "it is halted again and again",
        ))
    }
}

/// None: the two are not of one moment.
fn understand(peer: &Value, log: &Value) -> Option<Peer> {
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64);
    let halts = log.get("halts")?.as_array()?;
    let halted = number(peer, "halted_ns");
    let over = number(peer, "halts")? - u64::from(halted.is_some());
    let last = halts.last().and_then(|halt| number(halt, "number"));
    if last.unwrap_or(0) != over {
        return None;
    }
    let is_seen =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_bool) == Some(true);
    let unseen = halts.iter().filter(|halt| !is_seen(halt, "is_seen"));
    let unseen = unseen.map(|halt| {
        Some(Halt {
            from: number(halt, "from_ns")?,
            to: number(halt, "to_ns")?,
        })
    });
    Some(Peer {
        pid: number(peer, "pid")? as u32,
        agent: number(peer, "agent")? as u32,
        debugger: number(peer, "debugger").map(|pid| pid as u32),
        asked: number(peer, "now_ns")?,
        // Its clocks go on, then.
        halted: halted.filter(|_| !is_seen(peer, "is_real_time")),
        shift: number(peer, "shift_ns")?,
        halts: unseen.collect::<Option<_>>()?,
    })
}
