//! `mw gdb` and `mw serve-gdb`: the real gdb, or whoever speaks its protocol,
//! on a replay or on a program that is alive.
//!
//! `mw gdb` starts `mw serve-gdb` and becomes gdb. They talk through a socket
//! in a directory that nobody else can enter, so nothing listens on the
//! network; the server ends when gdb does. (gdb could start it by itself, at
//! the end of a pipe, but then it makes a system call for each byte it reads.)

mod files;
mod living;
mod monitor;
mod program;
mod subjects;
mod target;

use std::io::{BufRead, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use ::gdb_remote::Interrupt;
use recording::{Recording, Set};

use crate::causes;
use crate::failure::Failure;
use crate::select;
use program::{Beginning, Program};

/// Where to begin, as both commands have it.
#[derive(clap::Args)]
struct Start {
    /// The process to look at first; without `--at`, where its program begins
    #[arg(long, value_name = "NAME")]
    process: Option<String>,

    /// Begin at the earliest cut that explains this event: NAME:NUMBER, or a
    /// pattern for the last one that fits
    #[arg(long, value_name = "EVENT")]
    at: Option<String>,

    /// That process only: for clients that know one (lldb), or if there are
    /// very many
    #[arg(long, requires = "process")]
    alone: bool,
}

impl Start {
    fn resolve(
        &self,
        history: &causality::History,
        names: &query::Names,
    ) -> Result<Beginning, Failure> {
        let process = match &self.process {
            None => None,
            Some(name) => Some(query::find::process(history.set(), name)?),
        };
        let at = match &self.at {
            None => None,
            Some(text) => {
                let event = query::find::event(history, names, text)?;
                let of = history.id_of(event.process);
                of.map(|process| (process, event.number))
            }
        };
        Ok(Beginning {
            process,
            at,
            alone: self.alone,
        })
    }
}

/// Debug a recording, or a program that is alive, with gdb.
///
/// All processes are there, as inferiors of one target, with the programs and
/// libraries of then. Breakpoints, threads, watchpoints and motion work as
/// ever, and so do `reverse-step`, `reverse-continue` and the like.
/// `goto EVENT` moves the whole program, `when` says where it is, `monitor
/// help` lists more. What follows `--` is for gdb.
///
/// With `--live` it is on processes that run, or on a program that it starts
/// (`--live -- CMD`), also on other hosts (`--live a:PID`, `--live --on HOST CMD`).
/// They can be changed and get signals, but not go back.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: select::Positional,

    #[command(flatten)]
    start: Start,

    #[command(flatten)]
    subjects: subjects::Subjects,

    /// An argument for gdb, also where what follows `--` is a program
    #[arg(long = "gdb-argument", value_name = "ARG", allow_hyphen_values = true)]
    extra: Vec<std::ffi::OsString>,

    /// The gdb to use
    #[arg(long, value_name = "PATH", default_value = "gdb")]
    gdb: PathBuf,

    /// Arguments for gdb, or with `--live` alone the program to start
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<std::ffi::OsString>,
}

/// Serve a recording, or a program that is alive, to debuggers that speak gdb's
/// remote protocol.
///
/// Prints where it listens, one line, and serves one client after the other
/// until it is interrupted. In gdb: `target extended-remote HOST:PORT`.
#[derive(clap::Args)]
pub struct Serve {
    #[command(flatten)]
    recording: select::Positional,

    #[command(flatten)]
    start: Start,

    /// Listen there; port 0 is any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,

    /// Serve one client, then end
    #[arg(long)]
    once: bool,

    /// Listen at a unix socket of this path instead
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    unix: Option<PathBuf>,

    /// Serve whoever is at standard input and output
    #[arg(long, conflicts_with_all = ["listen", "unix", "once"])]
    stdio: bool,

    #[command(flatten)]
    subjects: subjects::Subjects,

    /// End when the process that started it does
    #[arg(long, hide = true)]
    with_parent: bool,

    /// Say at this descriptor that it listens
    #[arg(long, hide = true)]
    announce: Option<i32>,

    /// With `--live` alone: the program to start
    #[arg(last = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

/// Whether all captured files are still where they were, as they were: then
/// gdb may read those, which is faster, and its scripts for libraries fit.
fn are_files_unchanged(recording: &Recording) -> bool {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    recording.files().iter().all(|file| {
        let path = Path::new(std::ffi::OsStr::from_bytes(&file.path));
        std::fs::metadata(path).is_ok_and(|now| {
            let mtime = now.mtime() * 1_000_000_000 + now.mtime_nsec();
            (now.dev(), now.ino(), now.size(), mtime)
                == (file.dev, file.ino, file.size, file.mtime_ns)
        })
    })
}

/// What gdb executes first.
fn script(socket: &str, sysroot: &str, processes: usize) -> String {
    // gdb looks for the libraries of one process by itself. It is to be told
    // of the others' before the user sets breakpoints.
    let introduce = match processes {
        0 | 1 => "",
        _ => "monitor arrange here\ncontinue\n",
    };
    format!(
        "set remotetimeout 600\n\
         set sysroot {sysroot}\n\
         set exec-file-mismatch off\n\
         set schedule-multiple on\n\
         set breakpoint pending on\n\
         set breakpoint always-inserted on\n\
         define goto\n\
         if $argc != 1\n\
         echo goto EVENT|start|end\\n\n\
         else\n\
         monitor arrange $arg0\n\
         continue\n\
         end\n\
         end\n\
         document goto\n\
         Move the whole program to an event: goto NAME:NUMBER, goto start, goto end.\n\
         end\n\
         define when\n\
         eval \"monitor when %d\", $_inferior\n\
         end\n\
         document when\n\
         Where the process at hand is, and when.\n\
         end\n\
         target extended-remote {socket}\n\
         {introduce}"
    )
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if let Some(processes) = &self.subjects.live {
            return self.run_living(processes);
        }
        let set = self.recording.clone().open()?;
        let history = causes::open(&set)?;
        let names = causes::names(&history);
        // What is wrong is said now, not by gdb.
        let beginning = self.start.resolve(&history, &names)?;
        program::check(&set, &beginning)?;
        drop(history);
        for recording in set.members() {
            ::replay::check(recording).map_err(crate::verify::explain)?;
        }
        let room = Room::new()?;
        let socket = room.0.join("socket");
        let mut server = self.start_server(&set, &socket)?;
        let sysroot = match set.members().all(|own| are_files_unchanged(own)) {
            true => "/",
            false => "target:",
        };
        let processes = match self.start.alone {
            true => 1,
            false => set.len(),
        };
        let script = script(&socket.to_string_lossy(), sysroot, processes);
        let error = self.become_gdb(&script, &self.arguments);
        let _ = server.kill();
        let _ = server.wait();
        drop(room);
        Err(error)
    }

    /// Starts the server, and waits until it listens.
    fn start_server(&self, set: &Set, socket: &Path) -> Result<Child, Failure> {
        let cannot = |error: std::io::Error| Failure::new(format!("cannot start mw: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command
            .args(["serve-gdb", "--once", "--with-parent", "--unix"])
            .arg(socket);
        for (option, value) in [("process", &self.start.process), ("at", &self.start.at)] {
            if let Some(value) = value {
                command.arg(format!("--{option}={value}"));
            }
        }
        if self.start.alone {
            command.arg("--alone");
        }
        let mut server = command
            .arg("--recording")
            .arg(set.dir())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C is for gdb.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let mut line = String::new();
        if let Some(out) = server.stdout.take() {
            std::io::BufReader::new(out)
                .read_line(&mut line)
                .map_err(cannot)?;
        }
        if line.is_empty() {
            // It has said why.
            let _ = server.wait();
            return Err(Failure::new("the recording cannot be served to gdb"));
        }
        Ok(server)
    }

    /// Does not come back, unless that is not possible.
    fn become_gdb(&self, script: &str, arguments: &[std::ffi::OsString]) -> Failure {
        // gdb reads its first commands from memory: nothing is left behind.
        let memory = rustix::fs::memfd_create("mw-gdb", rustix::fs::MemfdFlags::empty())
            .map_err(std::io::Error::from)
            .map(std::fs::File::from)
            .and_then(|mut memory| memory.write_all(script.as_bytes()).map(|()| memory));
        let memory = match memory {
            Ok(memory) => memory,
            Err(error) => return Failure::new(format!("cannot make a script for gdb: {error}")),
        };
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&memory);
        let error = Command::new(&self.gdb)
            .arg("-q")
            .arg("-x")
            .arg(format!("/proc/self/fd/{descriptor}"))
            .args(&self.extra)
            .args(arguments)
            .exec();
        let name = self.gdb.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => Failure::new(format!("there is no program `{name}`"))
                .hint("install gdb (on Debian: apt install gdb), or name one with `--gdb PATH`"),
            _ => Failure::new(format!("cannot run `{name}`: {error}")),
        }
    }
}

/// A directory of our own. It goes with the server, or with this, if there is
/// none.
struct Room(PathBuf);

impl Room {
    fn new() -> Result<Room, Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let parent = std::env::temp_dir();
        for attempt in 0.. {
            let path = parent.join(format!("mw-gdb-{}-{attempt}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Room(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Failure::new(format!(
                        "cannot make a directory in {}: {error}",
                        parent.display()
                    )));
                }
            }
        }
        Err(Failure::new("cannot make a directory"))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where clients come from.
enum Door {
    Network(TcpListener),
    File(UnixListener, PathBuf),
}

/// A client.
enum Line {
    Network(TcpStream),
    File(UnixStream),
}

impl Door {
    fn open(serve: &Serve) -> Result<Door, Failure> {
        if let Some(path) = &serve.unix {
            let cannot = |error: std::io::Error| {
                Failure::new(format!("cannot listen at {}: {error}", path.display()))
                    .hint("name a file that does not exist yet, with a short path")
            };
            let listener = UnixListener::bind(path).map_err(cannot)?;
            listener.set_nonblocking(true).map_err(cannot)?;
            return Ok(Door::File(listener, path.clone()));
        }
        let cannot = |error: std::io::Error| {
            Failure::new(format!("cannot listen at {}: {error}", serve.listen))
                .hint("give another address with `--listen HOST:PORT`; port 0 is any that is free")
        };
        let listener = TcpListener::bind(&serve.listen).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        Ok(Door::Network(listener))
    }

    fn name(&self) -> String {
        match self {
            Door::Network(listener) => listener
                .local_addr()
                .map_or(String::new(), |address| address.to_string()),
            Door::File(_, path) => path.display().to_string(),
        }
    }

    /// The next client, if there is one.
    fn accept(&self) -> std::io::Result<Option<Line>> {
        let line = match self {
            Door::Network(listener) => listener.accept().map(|(line, _)| Line::Network(line)),
            Door::File(listener, _) => listener.accept().map(|(line, _)| Line::File(line)),
        };
        match line {
            Ok(line) => Ok(Some(line)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Its name goes with it.
impl Drop for Door {
    fn drop(&mut self) {
        if let Door::File(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Line {
    fn serve(
        &self,
        program: &mut Program,
        interrupt: &Arc<Interrupt>,
        is_over: &dyn Fn() -> bool,
    ) -> std::io::Result<()> {
        match self {
            Line::Network(line) => {
                line.set_nonblocking(false)?;
                line.set_nodelay(true)?;
                let from = line.try_clone()?;
                let served = ::gdb_remote::serve(from, line, program, interrupt, is_over);
                line.shutdown(std::net::Shutdown::Both)?;
                served
            }
            Line::File(line) => {
                line.set_nonblocking(false)?;
                let from = line.try_clone()?;
                let served = ::gdb_remote::serve(from, line, program, interrupt, is_over);
                line.shutdown(std::net::Shutdown::Both)?;
                served
            }
        }
    }
}

/// What is served.
enum Subject {
    Recorded(Arc<::session::Program>, Beginning),
    Living(subjects::Living),
}

impl Subject {
    fn open(&self) -> Result<Program, Failure> {
        match self {
            Subject::Recorded(shared, beginning) => Program::open(shared, beginning),
            Subject::Living(living) => Program::open_living(living),
        }
    }
}

impl Serve {
    fn served(&self) -> Result<Subject, Failure> {
        if self.subjects.live.is_some() {
            let living = subjects::Living::begin(&self.subjects, &self.command)?;
            return Ok(Subject::Living(living));
        }
        let set = self.recording.clone().open()?;
        let history = causes::open(&set)?;
        let names = causes::names(&history);
        let beginning = self.start.resolve(&history, &names)?;
        program::check(&set, &beginning)?;
        let shared = crate::debug::program(history, names)?;
        Ok(Subject::Recorded(shared, beginning))
    }

    fn say_where(&self, door: &Door) -> Result<(), Failure> {
        let line = format!("listening at {}\n", door.name());
        match self.announce {
            Some(descriptor) => {
                let path = format!("/proc/self/fd/{descriptor}");
                let mut pipe = std::fs::OpenOptions::new().write(true).open(path)?;
                pipe.write_all(line.as_bytes())?;
            }
            None => {
                let mut out = std::io::stdout().lock();
                out.write_all(line.as_bytes())?;
                out.flush()?;
            }
        }
        Ok(())
    }

    pub fn run(self) -> Result<ExitCode, Failure> {
        let parent = std::os::unix::process::parent_id();
        let interrupts = ::replay::Interrupts::catch();
        let is_over = || {
            interrupts.came() || self.with_parent && std::os::unix::process::parent_id() != parent
        };
        let served = self.served()?;
        if self.stdio {
            let interrupt = Arc::new(Interrupt::default());
            let mut program = served.open()?;
            // Whoever is there goes away, or says so.
            let (from, to) = (std::io::stdin(), std::io::stdout());
            let _ = ::gdb_remote::serve(from, to, &mut program, &interrupt, &is_over);
            program.end();
            return Ok(ExitCode::SUCCESS);
        }
        let door = Door::open(&self)?;
        self.say_where(&door)?;
        let is_once = self.once || self.subjects.live.is_some();
        let mut room = self
            .with_parent
            .then(|| self.unix.as_ref()?.parent())
            .flatten()
            .map(|path| Room(path.to_path_buf()));
        while !is_over() {
            let line = door.accept().map_err(|error| {
                Failure::new(format!("no client can connect any more: {error}"))
            })?;
            let Some(line) = line else {
                std::thread::sleep(std::time::Duration::from_millis(20));
                continue;
            };
            // Nobody else is to come.
            if is_once {
                room = None;
            }
            // Each client begins where the first one began.
            let interrupt = Arc::new(Interrupt::default());
            let mut program = served.open()?;
            // A connection that breaks is the client's affair.
            let _ = line.serve(&mut program, &interrupt, &is_over);
            program.end();
            if is_once {
                break;
            }
        }
        drop(room);
        Ok(ExitCode::SUCCESS)
    }
}
