//! Debugging programs of this host for somebody on another one.
//!
//! A warden (`mw warden`) does it, as on the debugger's own host; here its bytes are
//! passed on, and nothing of them is understood. It is a process of its own, in a group
//! of its own: neither a connection that breaks nor the end of the agent harms it. It
//! sees that nobody is at the other end of its socket, and does what it does when a
//! debugger is lost: a program that stood stays halted for as long as it was to be kept.
//!
//! A line that is cut somewhere in the middle closes nothing here. So who debugs says
//! every few seconds that it is still there, and after [`SILENCE`] without a word it is
//! taken for lost.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::frame::DATA;
use wire::{Answer, Desk, Id};

use crate::{Refusal, run};

/// After so long without a word a debugger is taken for lost.
pub const SILENCE: Duration = Duration::from_secs(15);
/// How often it is looked for that.
const GLANCE: Duration = Duration::from_secs(1);

/// The wardens that were started through one connection.
#[derive(Default)]
pub(crate) struct Desks {
    lines: Mutex<HashMap<Id, Line>>,
    heard: Mutex<Option<Instant>>,
}

/// A line to a warden: our end, and its own until it is started.
struct Line {
    ours: Arc<UnixStream>,
    theirs: Option<UnixStream>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desks {
    /// Makes the line to a warden that is about to be started: what is said to it may come
    /// before it is there.
    pub fn open(&self, id: Id) {
        // Without one it cannot be started, which is told then.
        if let Ok((ours, theirs)) = UnixStream::pair() {
            let line = Line {
                ours: Arc::new(ours),
                theirs: Some(theirs),
            };
            locked(&self.lines).entry(id).or_insert(line);
        }
    }

    /// Both ends of such a line.
    fn ends(&self, id: Id) -> Option<(Arc<UnixStream>, UnixStream)> {
        let mut lines = locked(&self.lines);
        let line = lines.get_mut(&id)?;
        Some((Arc::clone(&line.ours), line.theirs.take()?))
    }

    /// Passes bytes on to a warden.
    pub fn tell(&self, id: Id, bytes: &[u8]) {
        let line = locked(&self.lines)
            .get(&id)
            .map(|line| Arc::clone(&line.ours));
        if let Some(line) = line {
            // One that has ended is noticed where it is listened to.
            let _ = (&*line).write_all(bytes);
        }
    }

    /// Nobody debugs through this request any more.
    pub fn close(&self, id: Id) {
        if let Some(line) = locked(&self.lines).get(&id) {
            let _ = line.ours.shutdown(Shutdown::Write);
        }
    }

    /// The connection is over.
    pub fn close_all(&self) {
        for line in locked(&self.lines).values() {
            let _ = line.ours.shutdown(Shutdown::Both);
        }
    }

    /// Something was heard.
    pub fn heard(&self) {
        *locked(&self.heard) = Some(Instant::now());
    }

    fn is_silent(&self) -> bool {
        locked(&self.heard).is_some_and(|heard| heard.elapsed() > SILENCE)
    }
}

/// Starts a warden and passes on what it says, until it has ended.
pub(crate) fn serve(
    home: &Path,
    desks: &Desks,
    id: Id,
    how: &Desk,
    send: impl Fn(Answer) -> io::Result<()> + Sync,
) -> Result<(), Refusal> {
    let (line, theirs) = desks
        .ends(id)
        .ok_or_else(|| Refusal::NoWarden(io::ErrorKind::OutOfMemory.into()))?;
    let served = converse(home, desks, how, (&line, theirs), &send);
    locked(&desks.lines).remove(&id);
    served
}

fn converse(
    home: &Path,
    desks: &Desks,
    how: &Desk,
    (line, theirs): (&UnixStream, UnixStream),
    send: &(impl Fn(Answer) -> io::Result<()> + Sync),
) -> Result<(), Refusal> {
    let reserve = |base: &str| run::reserve(home, base);
    let (name, output) = match (how.starts, &how.records) {
        (true, base) => Some(reserve(base.as_deref().unwrap_or("live"))?).unzip(),
        (false, _) => (None, None),
    };
    let mut warden = start(theirs, how, output.as_deref())?;
    if let Some(name) = name.filter(|_| how.records.is_some()) {
        // Nobody may be left to tell.
        let _ = send(Answer::Started {
            recording: home.join(name).display().to_string(),
            pid: warden.id(),
        });
    }
    std::thread::scope(|scope| {
        if let Some(output) = &output {
            let warden = &mut warden;
            // What programs say that go on afterwards nobody hears.
            let follow = move || run::follow(warden, output, true, || false, send);
            let _ = std::thread::Builder::new().spawn_scoped(scope, follow);
        }
        pass_on(line, desks, send);
    });
    let _ = warden.wait();
    Ok(())
}

/// Its line is its standard input: nobody else who is started meanwhile has it then.
fn start(theirs: UnixStream, how: &Desk, output: Option<&Path>) -> Result<Child, Refusal> {
    let own = std::env::current_exe().map_err(Refusal::NoWarden)?;
    let mut command = Command::new(own);
    command
        .args(["warden", "0"])
        .envs(how.environment.iter().map(|(name, value)| (name, value)))
        .process_group(0);
    run::go_to(&mut command, how.directory.as_deref())?;
    match output {
        Some(output) => run::say_into(&mut command, output)?,
        None => {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    command.spawn().map_err(Refusal::NoWarden)
}

/// Passes on what a warden says, until it has closed its end, or the debugger is lost.
fn pass_on(line: &UnixStream, desks: &Desks, send: &impl Fn(Answer) -> io::Result<()>) {
    let _ = line.set_read_timeout(Some(GLANCE));
    let mut bytes = vec![0; DATA];
    let mut reading = line;
    loop {
        match reading.read(&mut bytes) {
            Ok(0) => return,
            Ok(got) => {
                let piece = bytes.get(..got).unwrap_or_default().to_vec();
                if send(Answer::Data(piece)).is_err() {
                    let _ = line.shutdown(Shutdown::Both);
                    return;
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if desks.is_silent() => {
                    let _ = line.shutdown(Shutdown::Both);
                    return;
                }
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => {}
                _ => return,
            },
        }
    }
}
