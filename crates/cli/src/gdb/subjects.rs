//! What is alive and is to be served to gdb: joined or started, here or on other hosts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::BufRead;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use super::{Cmd, Room};
use crate::failure::Failure;
use crate::{attach, attach_on, record_on};

/// Processes that were joined or started to be served.
pub struct Living {
    pub program: Arc<::session::Program>,
    pub live: Arc<live::Program>,
    /// How one that comes later is joined.
    pub how: live::How,
    /// They were started.
    pub is_ours: bool,
}

/// What is to be served.
#[derive(clap::Args)]
pub struct Subjects {
    /// Processes that run: by id, or all that have a name; of another host after its name and
    /// a colon. Without any, what follows `--` is a program to start
    #[arg(long, value_name = "[HOST:]PID|NAME", num_args = 0..,
          conflicts_with_all = ["argument", "option", "process", "at", "alone"])]
    pub live: Option<Vec<String>>,

    /// With `--live`: start CMD on HOST, which is what ssh understands, or `tls:HOST` where
    /// an agent listens; again for each
    #[arg(long, num_args = 2, value_names = ["HOST", "CMD"], requires = "live", conflicts_with = "observe")]
    pub on: Vec<String>,

    /// With `--live`, by ptrace alone: nothing of the debugger is in the program, and its
    /// time goes on while it stands
    #[arg(long, requires = "live")]
    pub observe: bool,
}

impl Living {
    /// Joins processes, or starts a program: under an agent, unless they are only to be
    /// observed.
    pub fn begin(subjects: &Subjects, command: &[OsString]) -> Result<Living, Failure> {
        let processes = subjects.live.as_deref().unwrap_or_default();
        let how = live::How {
            governed: !subjects.observe,
            ..live::How::default()
        };
        let is_ours = processes.is_empty();
        if is_ours && command.is_empty() && subjects.on.is_empty() {
            return Err(which());
        }
        if !is_ours && !subjects.on.is_empty() {
            return Err(
                Failure::new("processes that run, and programs to start: one of both")
                    .hint("`mw gdb --live a:PID b:PID`, or `mw gdb --live --on a CMD --on b CMD`"),
            );
        }
        let by_host = attach_on::by_host(processes)?;
        let is_far = by_host.is_some() || !subjects.on.is_empty();
        let program = match by_host {
            _ if !subjects.on.is_empty() => {
                attach_on::started(&record_on::from_words(&subjects.on)?, &how)?
            }
            Some(by_host) if by_host.values().flatten().any(String::is_empty) => {
                return Err(which());
            }
            Some(by_host) => {
                attach_on::join(&by_host, &BTreeMap::new(), &how)?.ok_or_else(which)?
            }
            None => here(processes, command, &how)?,
        };
        let library = match is_far {
            true => attach_on::library()?,
            false => inspect::Library::new(inspect::Options::default()),
        };
        let live = Arc::new(program);
        let opener: Arc<dyn ::target::Opener> = Arc::clone(&live) as _;
        Ok(Living {
            program: ::session::Program::alive(opener, library),
            live,
            how,
            is_ours,
        })
    }
}

fn which() -> Failure {
    Failure::new("which processes?").hint(
        "`mw gdb --live PID`, or a program to start: `mw gdb --live -- CMD`; \
         `mw attach` lists what runs",
    )
}

/// Processes of this host, or a program that is started here.
fn here(
    processes: &[String],
    command: &[OsString],
    how: &live::How,
) -> Result<live::Program, Failure> {
    let pids = attach::named(processes, &live::candidates())?;
    let program = attach::program()?;
    match (processes.is_empty(), how.governed) {
        (true, false) => program.start(command).map(drop)?,
        (true, true) => {
            let words = std::iter::once("--".into()).chain(command.iter().cloned());
            let words: Vec<OsString> = words.collect();
            program.start_governed(&words, how).map(drop)?;
        }
        (false, _) => attach::tell(program.attach(&pids, how)?),
    }
    Ok(program)
}

impl Cmd {
    /// gdb on processes that are alive. What is wrong with them the server says.
    pub(super) fn run_living(&self, processes: &[String]) -> Result<ExitCode, Failure> {
        let room = Room::new()?;
        let socket = room.0.join("socket");
        let starts = processes.is_empty();
        let command = match starts {
            true => self.arguments.as_slice(),
            false => &[],
        };
        let mut server = serve_living(&self.subjects, command, &socket)?;
        let Some(mut server) = server.take() else {
            // It has said why.
            return Ok(ExitCode::from(2));
        };
        let is_far = !self.subjects.on.is_empty()
            || processes
                .iter()
                .any(|word| attach_on::split(word).is_some());
        let pids = match is_far {
            true => Vec::new(),
            false => attach::named(processes, &live::candidates()).unwrap_or_default(),
        };
        let sysroot = match !is_far && pids.iter().all(|pid| sees_our_files(*pid)) {
            true => "/",
            false => "target:",
        };
        let script = script(&socket.to_string_lossy(), sysroot, is_far || pids.len() > 1);
        // With `--on` nothing else takes what follows `--`.
        let arguments = match starts && self.subjects.on.is_empty() {
            true => &[],
            false => self.arguments.as_slice(),
        };
        let error = self.become_gdb(&script, arguments);
        let _ = server.kill();
        let _ = server.wait();
        drop(room);
        Err(error)
    }
}

/// Starts the server, and waits until it listens. None: it does not.
fn serve_living(
    subjects: &Subjects,
    command: &[OsString],
    socket: &Path,
) -> Result<Option<Child>, Failure> {
    let cannot = |error: std::io::Error| Failure::new(format!("cannot start mw: {error}"));
    let (said, says) = std::io::pipe().map_err(cannot)?;
    rustix::io::fcntl_setfd(&says, rustix::io::FdFlags::empty())
        .map_err(|error| cannot(error.into()))?;
    let mut server = Command::new(std::env::current_exe().map_err(cannot)?);
    server
        .args(["serve-gdb", "--with-parent", "--unix"])
        .arg(socket)
        .arg(format!("--announce={}", says.as_raw_fd()))
        .args(subjects.observe.then_some("--observe"));
    for pair in subjects.on.chunks(2) {
        server.arg("--on").args(pair);
    }
    server.arg("--live").args(subjects.live.iter().flatten());
    if subjects.on.is_empty() {
        server.arg("--").args(command);
    }
    let mut server = server
        .stdin(Stdio::null())
        // Ctrl-C is for gdb.
        .process_group(0)
        .spawn()
        .map_err(cannot)?;
    drop(says);
    let mut line = String::new();
    // (A program that was started has the other end, too: it is not waited for.)
    std::io::BufReader::new(said)
        .read_line(&mut line)
        .map_err(cannot)?;
    if line.is_empty() {
        let _ = server.wait();
        return Ok(None);
    }
    Ok(Some(server))
}

/// What gdb executes first.
fn script(socket: &str, sysroot: &str, are_several: bool) -> String {
    let introduce = match are_several {
        true => "monitor arrange here\ncontinue\n",
        false => "",
    };
    format!(
        "set remotetimeout 600\n\
         set sysroot {sysroot}\n\
         set exec-file-mismatch off\n\
         set schedule-multiple on\n\
         set detach-on-fork off\n\
         set breakpoint pending on\n\
         target extended-remote {socket}\n\
         {introduce}"
    )
}

/// Whether paths mean the same to a process as to us.
fn sees_our_files(pid: i32) -> bool {
    let link = |path: String| std::fs::read_link(path).ok();
    let own = link("/proc/self/ns/mnt".to_string());
    own.is_some()
        && link(format!("/proc/{pid}/ns/mnt")) == own
        && link(format!("/proc/{pid}/root")).is_some_and(|root| root == Path::new("/"))
}
