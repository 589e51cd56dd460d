//! Processes we start: run to the end within a time limit, found in /proc, ended by their ids.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, io, process};

use anyhow::{Context, Result, bail};

use crate::scratch::Scratch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pid(i32);

impl std::fmt::Display for Pid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Pid {
    pub fn of(child: &Child) -> Pid {
        Pid(child.id().cast_signed())
    }

    fn own() -> Pid {
        Pid(process::id().cast_signed())
    }

    pub fn terminate(self) {
        self.signal(libc::SIGTERM);
    }

    /// As Ctrl-C does.
    pub fn interrupt(self) {
        self.signal(libc::SIGINT);
    }

    fn kill(self) {
        self.signal(libc::SIGKILL);
    }

    fn signal(self, signal: i32) {
        // SAFETY: kill touches no memory. A process that has gone already is no error.
        unsafe { libc::kill(self.0, signal) };
    }

    pub fn executable(self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.0)).ok()
    }

    /// Resident memory in KiB.
    pub fn resident(self) -> Option<u64> {
        self.status("VmRSS:")
    }

    /// The most that it ever was.
    pub fn most_resident(self) -> Option<u64> {
        self.status("VmHWM:")
    }

    fn status(self, name: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }

    fn is_zombie(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        matches!(stat.rsplit_once(')'), Some((_, rest)) if rest.trim_start().starts_with('Z'))
    }

    /// This process and all below it, parents before children.
    pub fn tree(self) -> Vec<Pid> {
        let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some(pid) = pid.map(Pid) else { continue };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            if let Some(parent) = parent_in(&stat) {
                children.entry(parent).or_default().push(pid);
            }
        }
        let mut tree = vec![self];
        let mut next = 0;
        while let Some(pid) = tree.get(next) {
            tree.extend(children.remove(pid).unwrap_or_default());
            next += 1;
        }
        tree
    }
}

/// The parent in a line of /proc/PID/stat; the name before it may hold blanks and brackets.
fn parent_in(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok().map(Pid)
}

/// A command without what `cargo run` put into our environment, with no input.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let from_cargo = name.to_str().is_some_and(|name| name.starts_with("CARGO"));
        if from_cargo || name == "LD_LIBRARY_PATH" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

pub struct Finished {
    pub elapsed: Duration,
    pub stdout: String,
}

/// Runs `command` to its end. Anything but success within `limit` is an error that says what the
/// command said.
pub fn run(command: &mut Command, scratch: &Scratch, limit: Duration) -> Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (stdout, stderr) = (scratch.fresh("stdout"), scratch.fresh("stderr"));
    command.stdout(File::create(stdout.path())?);
    command.stderr(File::create(stderr.path())?);
    let start = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let status = wait(&mut child, limit)?;
    let elapsed = start.elapsed();
    let Some(status) = status else {
        kill_tree(&mut child);
        bail!("{name} did not end within {} s", limit.as_secs());
    };
    if !status.success() {
        bail!("{name} failed ({status}), it{}", last_words(stderr.path()));
    }
    let stdout = fs::read(stdout.path())?;
    Ok(Finished {
        elapsed,
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
    })
}

/// Waits for the end of `child`; None if that takes longer than `limit`.
///
/// It sleeps on a pidfd: polling would blur the milliseconds of a start-up.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    // SAFETY: pidfd_open takes a pid and flags, and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one pollfd, alive during the call.
        match unsafe { libc::poll(&mut poll, 1, milliseconds) } {
            1 => return child.wait().map(Some),
            0 => return Ok(None),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Ends a child of ours and everything below it, the hard way.
pub fn kill_tree(child: &mut Child) {
    for pid in Pid::of(child).tree() {
        pid.kill();
    }
    // It cannot fail for a child that was not waited for, and a second wait is harmless.
    let _ = child.wait();
}

/// Makes whatever loses its parent below us our own child, so that [`sweep`] finds it.
pub fn adopt_orphans() {
    // SAFETY: prctl with these arguments touches no memory.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Ends all processes below us, for use when none should be left, and says how many still ran.
pub fn sweep() -> usize {
    let leftovers = Pid::own().tree().split_off(1);
    let running = leftovers.iter().filter(|pid| !pid.is_zombie()).count();
    for pid in &leftovers {
        pid.kill();
    }
    // SAFETY: waitpid may be given no place for the status.
    while !leftovers.is_empty() && unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
    running
}

/// The child is asked to end should we die first.
pub fn end_with_us(command: &mut Command) -> &mut Command {
    // SAFETY: prctl may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0);
            Ok(())
        })
    }
}

/// The last lines of a log, as the end of a sentence whose subject wrote them.
pub fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(4)..];
    match last.is_empty() {
        true => " said nothing".into(),
        false => format!(" said: {}", last.join(" / ")),
    }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The first Ctrl-C reaches our children, too, and ends what runs; a second one ends us.
pub fn watch_for_interrupt() {
    extern "C" fn note(_: i32) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    // SAFETY: all zero is a valid sigaction, and the handler only stores to an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESETHAND;
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
    }
}

pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_an_odd_name() {
        assert_eq!(parent_in("12 (a) b) (c) S 7 1 1"), Some(Pid(7)));
        assert_eq!(parent_in(""), None);
    }

    #[test]
    fn a_run_gives_output_and_failures_say_why() -> Result<()> {
        let scratch = Scratch::new(None)?;
        let shell = |script: &str| {
            let mut command = command(Path::new("/bin/sh"));
            command.args(["-c", script]);
            command
        };
        let limit = Duration::from_secs(10);
        assert_eq!(
            run(&mut shell("echo hello"), &scratch, limit)?.stdout,
            "hello\n"
        );
        let failed = run(&mut shell("echo oh no >&2; exit 3"), &scratch, limit);
        let message = failed.err().map(|error| error.to_string());
        assert_eq!(
            message.as_deref(),
            Some("/bin/sh failed (exit status: 3), it said: oh no")
        );
        let start = Instant::now();
        let late = run(
            &mut shell("sleep 60; :"),
            &scratch,
            Duration::from_millis(50),
        );
        assert!(late.is_err() && start.elapsed() < limit);
        Ok(())
    }
}
