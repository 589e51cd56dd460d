//! Where a debugger reaches a program that runs: a socket of the agent's, one
//! question and one answer a line, in JSON.
//!
//! It lies in a directory that only its user can enter. Who connects must be that
//! user, and no process of the program.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::shared::{Control, mode};

use crate::arena::Arena;
use crate::channels;
use crate::halting::{self, Halter};
use crate::peers;
use crate::reaper;
use crate::timeouts;

pub use crate::messages::{Answer, Inject, Pause, Request, Status, Time, Who};

/// How long a halt waits for those who do not stop, if it is not said.
const LIMIT: Duration = Duration::from_secs(1);
/// How long a program stays halted whose debugger has gone, if it is not said.
const KEEP: Duration = Duration::from_secs(60);
/// How many halts are remembered.
const PAUSES: usize = 1000;
/// How often it is looked who there is.
const PREPARE: Duration = Duration::from_millis(500);

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

/// What the next agent of this process is called that counts here: by the process's
/// number, and if it is not the first, which one it is. None disturbs another.
pub(crate) fn own_name(count: &AtomicU32) -> String {
    let pid = std::process::id();
    match count.fetch_add(1, Relaxed) {
        0 => pid.to_string(),
        number => format!("{pid}-{number}"),
    }
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

impl std::os::fd::AsFd for Client {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
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
    listener: UnixListener,
    shared: Arc<Shared>,
}

struct Shared {
    arena: Arc<Arena>,
    command: Vec<String>,
    reaper: i32,
    halter: Mutex<Mover>,
    /// Who puts the monitor into new images, once there is somebody.
    recorder: std::sync::OnceLock<Arc<crate::service::Shared>>,
    /// Somebody has asked that the program be left alone.
    is_over: AtomicBool,
    /// Nobody is served any more.
    is_closed: AtomicBool,
}

impl Shared {
    /// Nobody debugs the program any more: one that ran before the agent came is left
    /// alone.
    fn leave(&self) {
        if self.reaper == 0 {
            self.is_over.store(true, Release);
        }
    }
}

/// Who holds the program.
#[derive(Default)]
struct Mover {
    /// The connection that halted it; 0 = none.
    holder: u64,
    /// Who is at its other end.
    pid: u32,
    /// The one that is gone and that it is kept halted for; 0 = none.
    kept: u64,
    keep: Duration,
    /// The process that traces it for a debugger, 0 if there is none; and its connection,
    /// which is closed when another takes the program over.
    tracer: u32,
    connection: Option<UnixStream>,
    /// The halts that are over.
    pauses: VecDeque<Pause>,
    /// What was left of a limit when it was frozen.
    frozen: HashMap<u32, timeouts::Frozen>,
}

impl Mover {
    /// Lets the program go on; how long it was halted.
    fn resume(&mut self, control: &Control, halter: &mut Halter<'_>) -> Duration {
        let number = control.halt.word.load(Acquire);
        let Some(length) = halter.resume() else {
            return Duration::ZERO;
        };
        if self.pauses.len() == PAUSES {
            self.pauses.pop_front();
        }
        self.pauses.push_back(Pause {
            number,
            ended_ns: realtime_ns(),
            length_ns: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
            is_hidden: control.halt.real_time.load(Relaxed) == 0,
        });
        length
    }
}

impl Server {
    /// Serves until the program has ended. None: there is no place for a socket.
    pub fn start(arena: &Arc<Arena>, command: &[String], reaper: i32) -> Option<Server> {
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        let path = directory()?.join(format!("{}.sock", own_name(&SERVERS)));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).ok()?;
        let accepting = listener.try_clone().ok()?;
        let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
        let shared = Arc::new(Shared {
            arena: Arc::clone(arena),
            command: command.to_vec(),
            reaper,
            halter: Mutex::new(Mover {
                keep: KEEP,
                ..Mover::default()
            }),
            recorder: std::sync::OnceLock::new(),
            is_over: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let serve = move || accept(&accepting, &its);
        std::thread::Builder::new().spawn(serve).ok()?;
        Some(Server {
            path,
            listener,
            shared,
        })
    }

    /// Whether somebody has asked that the program be left alone.
    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Acquire)
    }

    /// Whether a debugger holds the program.
    pub fn is_held(&self) -> bool {
        lock(&self.shared).holder != 0
    }

    /// Says who puts the monitor into new images.
    pub fn serves_for(&self, recorder: &Arc<crate::service::Shared>) {
        let _ = self.shared.recorder.set(Arc::clone(recorder));
    }

    /// The program begins halted, for a debugger that is about to come. If it does not,
    /// or goes away again, the program is let go.
    pub fn await_debugger(&self) {
        let shared = Arc::clone(&self.shared);
        let wait = move || {
            std::thread::sleep(KEEP);
            let mut mover = lock(&shared);
            if mover.holder == 0 {
                let control = shared.arena.control();
                mover.resume(control, &mut Halter::new(control));
                shared.leave();
            }
        };
        let _ = std::thread::Builder::new().spawn(wait);
    }

    /// Whether a debugger traces the program: that one puts the monitor into new
    /// images, as it is told.
    pub fn tracing(&self) -> Tracing {
        Tracing(Arc::clone(&self.shared))
    }
}

/// Knows who traces the program.
#[derive(Clone)]
pub struct Tracing(Arc<Shared>);

impl Tracing {
    /// The process that does; None: nobody does.
    pub fn tracer(&self) -> Option<u32> {
        Some(lock(&self.0).tracer).filter(|tracer| *tracer != 0)
    }
}

fn lock(shared: &Shared) -> std::sync::MutexGuard<'_, Mover> {
    shared.halter.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        // Who waits there for somebody to come is to wait no more.
        self.shared.is_closed.store(true, Release);
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        // Nobody is left who could be halted, or the agent gives up: in either
        // case nobody is to wait.
        Halter::new(self.shared.arena.control()).resume();
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for (number, stream) in (1u64..).zip(listener.incoming()) {
        if shared.is_closed.load(Acquire) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let its = Arc::clone(shared);
        let serve = move || {
            if let Some(asker) = welcome(&stream, &its, number) {
                serve(stream, &its, &asker);
            }
        };
        let _ = std::thread::Builder::new().spawn(serve);
    }
}

/// Who is at the other end of a connection.
struct Asker {
    /// Of the connection.
    number: u64,
    pid: u32,
    /// It is root, and the program another user's: it may look.
    only_looks: bool,
}

/// Only this user, or root to look; and nobody of the program.
fn welcome(stream: &UnixStream, shared: &Shared, number: u64) -> Option<Asker> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    let pid = peer.pid.as_raw_nonzero().get();
    let is_same = peer.uid == rustix::process::geteuid();
    let is_adopted = Halter::new(shared.arena.control())
        .pids()
        .contains(&pid.unsigned_abs());
    let is_welcome = (is_same || peer.uid.is_root()) && !is_adopted;
    (is_welcome && !reaper::program(shared.reaper).contains(&pid)).then_some(Asker {
        number,
        pid: pid as u32,
        only_looks: !is_same,
    })
}

fn serve(stream: UnixStream, shared: &Shared, asker: &Asker) {
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
            Ok(request) => {
                let answer = answer(shared, &mut halter, asker, &request);
                let is_held = matches!(request, Request::Hold { .. }) && answer == Answer::Done;
                if is_held {
                    // Whoever had it is told by that.
                    let before = match writing.try_clone() {
                        Ok(ours) => lock(shared).connection.replace(ours),
                        Err(_) => lock(shared).connection.take(),
                    };
                    if let Some(before) = before {
                        let _ = before.shutdown(std::net::Shutdown::Both);
                    }
                }
                answer
            }
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
    let_go(shared, &mut halter, asker.number);
}

fn is_pause(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// A debugger has gone: what it holds goes on after a while.
fn let_go(shared: &Shared, halter: &mut Halter<'_>, number: u64) {
    let control = shared.arena.control();
    let keep = {
        let mut mover = lock(shared);
        if mover.holder != number {
            return;
        }
        // The next one may have it from now on.
        mover.holder = 0;
        mover.tracer = 0;
        mover.connection = None;
        mover.kept = number;
        mover.keep
    };
    // Whoever comes next says anew what it wants to know.
    let recorder = shared.recorder.get();
    if let Some(own) = recorder.and_then(|recorder| recorder.observations.as_ref()) {
        own.end(&shared.arena);
    }
    if control.halt.is_on() {
        // Who was led by the debugger stands with the others.
        halter.halt(LIMIT);
        std::thread::sleep(keep);
    }
    let mut mover = lock(shared);
    if mover.kept == number {
        mover.kept = 0;
        mover.resume(control, halter);
        shared.leave();
    }
}

fn refused(why: impl Into<String>) -> Answer {
    Answer::Refused { why: why.into() }
}

fn answer(shared: &Shared, halter: &mut Halter<'_>, asker: &Asker, request: &Request) -> Answer {
    let control = shared.arena.control();
    let number = asker.number;
    if asker.only_looks && !request.only_asks() {
        return refused("the program is another user's");
    }
    if let Request::Execed {
        process,
        thread,
        registers,
    } = request
    {
        let Some(recorder) = shared.recorder.get() else {
            return refused("the program has not begun");
        };
        return match crate::exec::adopted(recorder, *process, *thread, registers) {
            Ok(inject) => Answer::Inject(inject),
            Err(error) => refused(error.to_string()),
        };
    }
    let mut mover = lock(shared);
    let is_others = mover.holder != 0 && mover.holder != number;
    let overrides = matches!(
        request,
        Request::Halt {
            overrides: true,
            ..
        } | Request::Hold {
            overrides: true,
            ..
        }
    );
    if is_others && !request.only_looks() && !overrides {
        return refused("another debugger holds the program");
    }
    match *request {
        Request::Status => Answer::Status(status(shared, control, halter, &mover)),
        Request::Halt {
            limit_ms, keep_ms, ..
        } => {
            mover.holder = number;
            mover.pid = asker.pid;
            mover.kept = 0;
            mover.keep = keep_ms.map_or(KEEP, Duration::from_millis);
            Answer::Halted(halter.halt(limit_ms.map_or(LIMIT, Duration::from_millis)))
        }
        Request::Hold {
            keep_ms, tracer, ..
        } => {
            mover.holder = number;
            mover.kept = 0;
            mover.tracer = tracer;
            mover.keep = keep_ms.map_or(KEEP, Duration::from_millis);
            Answer::Done
        }
        Request::Release => {
            mover.holder = 0;
            mover.tracer = 0;
            mover.connection = None;
            observe(shared, halter, false);
            mover.resume(control, halter);
            shared.leave();
            Answer::Done
        }
        Request::Resume => {
            // A debugger that traces it holds it on.
            if mover.tracer == 0 {
                mover.holder = 0;
            }
            let length = mover.resume(control, halter);
            Answer::Resumed {
                length_ns: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
            }
        }
        Request::Channels => Answer::Channels {
            channels: channels::contents(halter.pids()),
        },
        Request::Exempt { who, on } => match exempt(halter, who, on) {
            0 => refused(match who {
                Who::Process(process) => format!("there is no process {process}"),
                Who::Thread(tid) => format!("there is no thread {tid}"),
                Who::Port(port) => format!("no process of the program has port {port} open"),
            }),
            count => Answer::Changed { count },
        },
        Request::Detach if shared.reaper != 0 => {
            refused("the agent started this program, and stays with it")
        }
        Request::Detach => {
            mover.holder = 0;
            shared.is_over.store(true, Release);
            Answer::Done
        }
        Request::RealTime { on } => {
            control.halt.real_time.store(on.into(), Release);
            Answer::Done
        }
        Request::Peer { pid } if !peers::is_ours(halter, shared.reaper, pid) => {
            refused(format!("process {pid} is not one of the program's"))
        }
        Request::Peer { pid } => {
            let debugger = Some(mover.pid).filter(|_| mover.holder != 0);
            Answer::Peer(peers::peer(control, pid, debugger))
        }
        Request::Halts { after } => Answer::Halts {
            halts: peers::past(control, after),
        },
        Request::CatchUp => {
            control.halt.real_time.store(1, Release);
            control.halt.shift.store(0, Release);
            control.halt.shift_ticks.store(0, Release);
            Answer::Done
        }
        Request::Time => Answer::Time(time(control, &mover)),
        Request::Timeouts => Answer::Timeouts {
            timeouts: timeouts::list(control, halter, &mover.frozen),
        },
        Request::Timeout { tid, change } => {
            let count = timeouts::change(control, halter, &mut mover.frozen, tid, change);
            Answer::Changed { count }
        }
        Request::Observe { on } => observe(shared, halter, on),
        Request::Execed { .. } => refused("nobody executes anything"),
    }
}

/// Has what the program does written down, or no more.
fn observe(shared: &Shared, halter: &Halter<'_>, on: bool) -> Answer {
    let recorder = shared.recorder.get();
    let Some(own) = recorder.and_then(|recorder| recorder.observations.as_ref()) else {
        return refused("the program is recorded: what it does is written down anyway");
    };
    if !on {
        own.end(&shared.arena);
        return Answer::Done;
    }
    match own.begin(&shared.arena, halter) {
        Ok(dir) => Answer::Observed { dir },
        Err(error) => refused(error.to_string()),
    }
}

fn exempt(halter: &Halter<'_>, who: Who, on: bool) -> u32 {
    match who {
        Who::Process(process) => halter.exempt(on, |entry| entry.process.load(Relaxed) == process),
        Who::Thread(tid) => halter.exempt(on, |entry| entry.tid.load(Relaxed) == tid),
        Who::Port(port) => {
            let serving = channels::serving(halter.pids(), port);
            halter.exempt(on, |entry| serving.contains(&entry.pid.load(Relaxed)))
        }
    }
}

fn time(control: &Control, mover: &Mover) -> Time {
    let real_ns = realtime_ns();
    let halt = &control.halt;
    let current_ns = halt
        .is_on()
        .then(|| halting::now().0.saturating_sub(halt.asked_at.get().0));
    let is_real = halt.real_time.load(Relaxed) != 0;
    let hidden = current_ns.filter(|_| !is_real).unwrap_or(0);
    Time {
        real_ns,
        logical_ns: real_ns
            .saturating_sub(halt.shift.load(Acquire))
            .saturating_sub(hidden),
        is_real,
        halts: mover.pauses.iter().copied().collect(),
        current_ns,
    }
}

fn realtime_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn status(shared: &Shared, control: &Control, halter: &Halter<'_>, mover: &Mover) -> Status {
    Status {
        command: shared.command.clone(),
        pid: std::process::id(),
        arena: shared.arena.path().to_path_buf(),
        is_recording: control.mode.load(Relaxed) == mode::RECORD,
        is_halted: control.halt.is_on(),
        halts: control.halt.count.load(Acquire),
        shift_ns: control.halt.shift.load(Acquire),
        debugger: Some(mover.tracer).filter(|tracer| *tracer != 0),
        threads: halter.look(),
    }
}
