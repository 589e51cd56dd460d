//! `mw gdb` and `mw serve-gdb`: the real gdb, or whoever speaks its protocol,
//! on a replay.
//!
//! `mw gdb` becomes gdb, which starts `mw serve-gdb --stdio` and talks to it
//! through a pair of sockets: nothing listens on the network, and whichever of
//! the two ends, the other one does, too.

mod monitor;
mod motion;
mod poke;
mod program;

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use ::gdb_remote::Interrupt;
use recording::Recording;

use crate::causes;
use crate::failure::Failure;
use crate::select;
use program::{Beginning, Program};

/// Where to begin, as both commands have it.
#[derive(clap::Args)]
struct Place {
    /// The process to look at first; without `--at`, where its program begins
    #[arg(long, value_name = "NAME")]
    process: Option<String>,

    /// Begin at the earliest cut that explains this event: NAME:NUMBER, or a
    /// pattern for the last one that fits
    #[arg(long, value_name = "EVENT")]
    at: Option<String>,
}

impl Place {
    fn resolve(
        &self,
        recording: &Recording,
        history: &causality::History<'_>,
    ) -> Result<Beginning, Failure> {
        let process = match &self.process {
            None => None,
            Some(name) => Some(
                recording
                    .process_named(name)
                    .ok_or_else(|| causes::unknown_process(recording, name))?
                    .number,
            ),
        };
        let at = match &self.at {
            None => None,
            Some(text) => {
                let event = causes::event(history, text)?;
                let of = history.process(event.process);
                of.map(|process| (process.number, event.number))
            }
        };
        Ok(Beginning {
            process,
            at,
            alone: false,
        })
    }
}

/// Debug a recording with gdb.
///
/// All processes are there, as inferiors of one target, with the programs and
/// libraries of then. Breakpoints, threads, watchpoints and motion work as
/// ever, and so do `reverse-step`, `reverse-continue` and the like.
/// `goto EVENT` moves the whole program, `when` says where it is, `monitor
/// help` lists more. What follows `--` is for gdb.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: select::Positional,

    #[command(flatten)]
    place: Place,

    /// The gdb to use
    #[arg(long, value_name = "PATH", default_value = "gdb")]
    gdb: std::path::PathBuf,

    /// Arguments for gdb
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<std::ffi::OsString>,
}

/// Serve a recording to debuggers that speak gdb's remote protocol.
///
/// Prints where it listens, one line, and serves one client after the other
/// until it is interrupted. In gdb: `target extended-remote HOST:PORT`.
#[derive(clap::Args)]
pub struct Serve {
    #[command(flatten)]
    recording: select::Positional,

    #[command(flatten)]
    place: Place,

    /// Listen there; port 0 is any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,

    /// Serve that process only, for clients that know one (lldb)
    #[arg(long, requires = "process")]
    alone: bool,

    /// Serve one client, then end
    #[arg(long)]
    once: bool,

    /// Serve whoever is at standard input and output
    #[arg(long, conflicts_with_all = ["listen", "once"])]
    stdio: bool,
}

/// The variable that tells gdb's shell how the server is started: gdb shows
/// the command for each process, and it is long.
const SERVER: &str = "MW_SERVE_GDB";

/// A word for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
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
fn script(sysroot: &str, processes: usize) -> String {
    // gdb looks for the libraries of one process by itself. It is to be told
    // of the others' before the user sets breakpoints.
    let introduce = match processes {
        0 | 1 => "",
        _ => "monitor arrange here\ncontinue\n",
    };
    format!(
        "set remotetimeout 600\n\
         set sysroot {sysroot}\n\
         set schedule-multiple on\n\
         set breakpoint pending on\n\
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
         monitor when\n\
         end\n\
         document when\n\
         Where the process at hand is, and when.\n\
         end\n\
         target extended-remote | eval \"${SERVER}\"\n\
         {introduce}"
    )
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recording = self.recording.open()?;
        let history = causes::open(&recording)?;
        // What is wrong is said now, not by gdb.
        self.place.resolve(&recording, &history)?;
        ::replay::check(&recording).map_err(crate::verify::explain)?;
        let own = std::env::current_exe()
            .map_err(|error| Failure::new(format!("cannot find the path of mw: {error}")))?;
        let dir = std::fs::canonicalize(recording.dir()).unwrap_or(recording.dir().to_path_buf());
        let path = |path: &Path| quoted(&path.to_string_lossy());
        let mut server = format!("exec {} serve-gdb --stdio", path(&own));
        for (option, value) in [("process", &self.place.process), ("at", &self.place.at)] {
            if let Some(value) = value {
                server.push_str(&format!(" --{option} {}", quoted(value)));
            }
        }
        server.push_str(&format!(" -- {}", path(&dir)));
        let sysroot = match are_files_unchanged(&recording) {
            true => "/",
            false => "target:",
        };
        // gdb reads its first commands from memory: nothing is left behind.
        let trouble =
            |error: std::io::Error| Failure::new(format!("cannot make a script for gdb: {error}"));
        let memory = rustix::fs::memfd_create("mw-gdb", rustix::fs::MemfdFlags::empty())
            .map_err(|error| trouble(error.into()))?;
        let mut memory = std::fs::File::from(memory);
        memory
            .write_all(script(sysroot, recording.processes().len()).as_bytes())
            .map_err(trouble)?;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&memory);
        let error = Command::new(&self.gdb)
            .arg("-q")
            .arg("-x")
            .arg(format!("/proc/self/fd/{descriptor}"))
            .args(&self.arguments)
            .env(SERVER, server)
            .exec();
        let name = self.gdb.display();
        Err(match error.kind() {
            std::io::ErrorKind::NotFound => Failure::new(format!("there is no program `{name}`"))
                .hint("install gdb (on Debian: apt install gdb), or name one with `--gdb PATH`"),
            _ => Failure::new(format!("cannot run `{name}`: {error}")),
        })
    }
}

impl Serve {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let interrupts = ::replay::Interrupts::catch();
        let recording = self.recording.open()?;
        let history = causes::open(&recording)?;
        let mut beginning = self.place.resolve(&recording, &history)?;
        beginning.alone = self.alone;
        if self.stdio {
            let interrupt = Arc::new(Interrupt::default());
            let mut program =
                Program::open(&recording, history, &beginning, Arc::clone(&interrupt))?;
            // Whoever is there goes away, or says so.
            let _ = ::gdb_remote::serve(
                std::io::stdin(),
                std::io::stdout(),
                &mut program,
                &interrupt,
                &|| interrupts.came(),
            );
            return Ok(ExitCode::SUCCESS);
        }
        drop(history);
        let cannot = |error: std::io::Error| {
            Failure::new(format!("cannot listen at {}: {error}", self.listen))
                .hint("give another address with `--listen HOST:PORT`; port 0 is any that is free")
        };
        let listener = TcpListener::bind(&self.listen).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "listening at {address}")?;
        out.flush()?;
        while !interrupts.came() {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    continue;
                }
                Err(error) => return Err(cannot(error)),
            };
            // Each client begins where the first one began.
            let interrupt = Arc::new(Interrupt::default());
            let history = causes::open(&recording)?;
            let mut program =
                Program::open(&recording, history, &beginning, Arc::clone(&interrupt))?;
            let served = stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_nodelay(true))
                .and_then(|()| stream.try_clone())
                .and_then(|from| {
                    ::gdb_remote::serve(from, &stream, &mut program, &interrupt, &|| {
                        interrupts.came()
                    })
                });
            let _ = stream.shutdown(std::net::Shutdown::Both);
            drop(program);
            if self.once {
                break;
            }
            // A connection that broke is the client's affair.
            drop(served);
        }
        Ok(ExitCode::SUCCESS)
    }
}
