//! A program that an agent started: its recorder, and what it says.
//!
//! The recorder is a process of its own, `mw record`, and its output goes into
//! files: it needs nobody. The agent only looks.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, Signal};
use wire::frame::DATA;
use wire::{Answer, Job, Whom};

use crate::Refusal;
use crate::stored::OUTPUT;

/// How long nothing may happen before it is looked whether anybody listens.
const GLANCE: Duration = Duration::from_millis(200);

pub(crate) struct Run {
    child: Child,
    /// Name of the recording.
    pub name: String,
    output: PathBuf,
}

impl Run {
    /// Starts a recorder. On failure says why.
    pub fn start(home: &Path, job: &Job) -> Result<Run, Refusal> {
        let Some(program) = job.command.first() else {
            return Err(Refusal::NoCommand);
        };
        let base = Path::new(program).file_name().unwrap_or_default();
        let base = base.to_string_lossy().into_owned();
        let (name, output) = reserve(home, &base)?;
        let own = std::env::current_exe().map_err(Refusal::NotFound)?;
        let mut command = Command::new(own);
        command
            .args(["record", "--quiet", "-o"])
            .arg(home.join(&name));
        if job.outlives_full_disk {
            command.args(["--on-full", "continue"]);
        }
        command.arg("--").args(&job.command);
        command.envs(job.environment.iter().map(|(name, value)| (name, value)));
        go_to(&mut command, job.directory.as_deref())?;
        // What reaches the agent's group is not meant for the program.
        command.process_group(0);
        say_into(&mut command, &output)?;
        let child = command.spawn().map_err(Refusal::NoRecorder)?;
        Ok(Run {
            child,
            name,
            output,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends what the program says, until it has ended or nobody listens.
    pub fn follow(
        mut self,
        is_over: impl Fn() -> bool,
        mut send: impl FnMut(Answer) -> io::Result<()>,
    ) -> io::Result<()> {
        let ended = follow(&mut self.child, &self.output, false, is_over, &mut send)?;
        match ended {
            Some(status) => send(Answer::Ended { status }),
            None => Ok(()),
        }
    }
}

/// Sends what a child and its own say into files of a directory, until the child has
/// ended or nobody listens: how it has ended then. What was told is removed, unless others
/// may outlive the child and have more to say.
pub(crate) fn follow(
    child: &mut Child,
    output: &Path,
    may_outlive: bool,
    is_over: impl Fn() -> bool,
    mut send: impl FnMut(Answer) -> io::Result<()>,
) -> io::Result<Option<i32>> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watch, output, inotify::WatchFlags::MODIFY)?;
    let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let end = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let mut streams = [
        (false, File::open(output.join("stdout"))?),
        (true, File::open(output.join("stderr"))?),
    ];
    loop {
        // The end first: what was said before it is there then.
        let ended = child.try_wait()?;
        for (is_error, file) in &mut streams {
            pass_on(file, *is_error, &is_over, &mut send)?;
        }
        if let Some(status) = ended {
            use std::os::unix::process::ExitStatusExt;
            let status = status.code().or(status.signal().map(|signal| 128 + signal));
            if !(may_outlive && is_open(output)) {
                tidy_up(output, &streams);
            }
            return Ok(Some(status.unwrap_or(128)));
        }
        if is_over() {
            return Ok(None);
        }
        let mut waits = [
            PollFd::new(&watch, PollFlags::IN),
            PollFd::new(&end, PollFlags::IN),
        ];
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: GLANCE.as_nanos() as i64,
        };
        match rustix::event::poll(&mut waits, Some(&patience)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut news = inotify::Reader::new(&watch, &mut space);
        while news.next().is_ok() {}
    }
}

/// What was said has reached whoever asked.
fn tidy_up(output: &Path, streams: &[(bool, File)]) {
    let all_read = streams.iter().all(|(_, file)| {
        let length = file.metadata().map(|meta| meta.len());
        let at = (&*file).stream_position();
        matches!((length, at), (Ok(length), Ok(at)) if at >= length)
    });
    if all_read {
        let _ = std::fs::remove_dir_all(output);
    }
}

/// Whether a process goes on that says something into these files: one that is debugged
/// outlives its debugger.
fn is_open(output: &Path) -> bool {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = processes.filter(|entry| entry.file_name().to_str() != Some(own.as_str()));
    let mut descriptors = others
        .filter_map(|entry| std::fs::read_dir(entry.path().join("fd")).ok())
        .flat_map(|all| all.flatten());
    descriptors.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(output)))
}

/// Has a command begin in a directory, or at home.
pub(crate) fn go_to(command: &mut Command, directory: Option<&str>) -> Result<(), Refusal> {
    let directory = directory
        .map(str::to_string)
        .or_else(|| std::env::var("HOME").ok());
    if let Some(directory) = &directory {
        if !Path::new(directory).is_dir() {
            return Err(Refusal::NoDirectory(directory.clone()));
        }
        command.current_dir(directory);
    }
    Ok(())
}

/// Has a command say what it says into files of a directory.
pub(crate) fn say_into(command: &mut Command, output: &Path) -> Result<(), Refusal> {
    let file = |name: &str| {
        let path = output.join(name);
        let made = OpenOptions::new().create(true).append(true).open(&path);
        made.map_err(|source| Refusal::NotCreated { path, source })
    };
    command.stdin(Stdio::null());
    command.stdout(file("stdout")?).stderr(file("stderr")?);
    Ok(())
}

fn pass_on(
    file: &mut File,
    is_error: bool,
    is_over: &impl Fn() -> bool,
    send: &mut impl FnMut(Answer) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let mut bytes = vec![0; DATA];
        let got = file.read(&mut bytes)?;
        if got == 0 || is_over() {
            return Ok(());
        }
        bytes.truncate(got);
        send(Answer::Output { is_error, bytes })?;
    }
}

/// A name that no recording has, and the directory for what is said.
pub(crate) fn reserve(home: &Path, base: &str) -> Result<(String, PathBuf), Refusal> {
    find_name(home, base).map_err(|source| Refusal::NotWritten {
        home: home.to_path_buf(),
        source,
    })
}

fn find_name(home: &Path, base: &str) -> io::Result<(String, PathBuf)> {
    let outputs = home.join(OUTPUT);
    std::fs::create_dir_all(&outputs)?;
    let base = base.trim_start_matches('.');
    let base = if base.is_empty() { "program" } else { base };
    for number in 0u32.. {
        let name = format!("{base}-{number}");
        if std::fs::symlink_metadata(home.join(&name)).is_ok() {
            continue;
        }
        let output = outputs.join(&name);
        match std::fs::create_dir(&output) {
            Ok(()) => return Ok((name, output)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Sends a signal to the program of a recorder.
pub(crate) fn signal(recorder: u32, signal: i32, to: Whom) -> Result<(), Refusal> {
    let Some(signal) = Signal::from_named_raw(signal) else {
        return Err(Refusal::NoSignal(signal));
    };
    let Some(recorder) = Pid::from_raw(recorder as i32) else {
        return Ok(());
    };
    for pid in agent::program_of(recorder.as_raw_nonzero().get()) {
        let Some(pid) = Pid::from_raw(pid) else {
            continue;
        };
        let own = rustix::process::getpgid(Some(pid)).is_ok_and(|group| group == recorder);
        if own || to == Whom::All {
            // It may just have ended.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
    Ok(())
}
