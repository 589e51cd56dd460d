//! A recording under way.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::processes::Marker;
use super::recorded::{Outcome, Recorded};
use super::scratch::Scratch;
use super::{LIMIT, MW};

/// What is to be recorded, and how.
pub struct Setup<'s> {
    scratch: &'s Scratch,
    options: Vec<OsString>,
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    dir: PathBuf,
    stdin: Stdio,
}

impl<'s> Setup<'s> {
    pub fn new<S: AsRef<OsStr>>(scratch: &'s Scratch, command: &[S]) -> Setup<'s> {
        Setup {
            scratch,
            options: Vec::new(),
            command: command.iter().map(|arg| arg.as_ref().into()).collect(),
            environment: Vec::new(),
            dir: scratch.fresh("recording"),
            stdin: Stdio::null(),
        }
    }

    /// An option of `mw record`.
    pub fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// The directory for the recording.
    pub fn into(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = dir.into();
        self
    }

    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    pub fn start(self) -> Running<'s> {
        let marker = Marker::unique();
        let out = self.scratch.fresh("stdout");
        let err = self.scratch.fresh("stderr");
        let mut words: Vec<OsString> = vec!["record".into()];
        words.extend(self.options);
        words.extend(["-o".into(), self.dir.clone().into(), "--".into()]);
        words.extend(self.command);
        let mut line = String::new();
        for (key, value) in &self.environment {
            line += &format!("{}={} ", key.display(), quoted(value));
        }
        line += MW;
        for word in &words {
            line += " ";
            line += &quoted(word);
        }
        self.scratch.note(line.clone());
        let child = super::with_default_signals(MW)
            .args(&words)
            .envs(self.environment)
            .env(super::processes::VARIABLE, marker.value())
            // Where the dumps of programs that crash shall go.
            .current_dir(self.scratch.path())
            .stdin(self.stdin)
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .spawn()
            .unwrap();
        Running {
            scratch: self.scratch,
            child,
            marker,
            dir: self.dir,
            out,
            err,
            line,
            start: Instant::now(),
        }
    }
}

/// A word as a shell would take it.
fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// An `mw record` that was started. Nothing of it survives this value.
pub struct Running<'s> {
    scratch: &'s Scratch,
    child: Child,
    marker: Marker,
    dir: PathBuf,
    out: PathBuf,
    err: PathBuf,
    line: String,
    start: Instant,
}

impl Running<'_> {
    pub fn scratch(&self) -> &Scratch {
        self.scratch
    }

    /// The directory of the recording.
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// The process id of `mw` itself.
    pub fn mw(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// All processes: of the program, and of `mw` (itself and the one that
    /// waits for the program's).
    pub fn processes(&self) -> Vec<Pid> {
        self.marker.processes()
    }

    /// The processes of the program, and no others.
    pub fn program(&self) -> Vec<Pid> {
        let ours = std::fs::canonicalize(MW).unwrap();
        let is_ours = |pid: &Pid| {
            let exe = std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_pid()));
            exe.is_ok_and(|exe| exe == ours)
        };
        let mut found = self.processes();
        found.retain(|pid| !is_ours(pid));
        found
    }

    /// What it has written so far.
    pub fn stdout(&self) -> String {
        text(&self.out)
    }

    /// What it and `mw` have complained of so far.
    pub fn stderr(&self) -> String {
        text(&self.err)
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Sends a signal to `mw`.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.mw(), signal).unwrap();
    }

    /// Waits for the end, and that nothing is left behind.
    pub fn finish(mut self) -> Recorded {
        let outcome = self.wait(LIMIT);
        let left = self.marker.processes();
        assert!(
            left.is_empty(),
            "processes were left behind by {}:\n{}",
            self.line,
            super::processes::describe(&left)
        );
        Recorded::new(self.dir.clone(), outcome)
    }

    /// Waits for the end of `mw`, whatever is left.
    pub fn wait(&mut self, limit: Duration) -> Outcome {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.start.elapsed() > limit {
                let processes = super::processes::describe(&self.processes());
                panic!(
                    "not over after {limit:?}: {}\nstdout:\n{}\nstderr:\n{}\nprocesses:\n{processes}",
                    self.line,
                    text(&self.out),
                    text(&self.err),
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Outcome {
            status,
            stdout: text(&self.out),
            stderr: text(&self.err),
            took: self.start.elapsed(),
            line: self.line.clone(),
        }
    }

    /// Waits until everything of it has gone.
    pub fn wait_for_all(&self) {
        super::wait_for("the last process to go", || {
            self.marker.processes().is_empty().then_some(())
        });
    }
}

fn text(path: &std::path::Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // `mw` first: it waits for the others.
        let _ = self.child.kill();
        self.marker.kill_all();
        let _ = self.child.wait();
    }
}
