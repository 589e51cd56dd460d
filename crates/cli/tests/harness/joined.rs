//! Recordings of programs on several hosts, and what `mw` says about them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::namespaces::Hosts;
use super::{MW, Scratch};

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command said, on both of its streams.
pub fn said(output: &Output) -> String {
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

/// Asks about a recording, which must succeed.
pub fn mw(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new(MW)
        .args(arguments)
        .args(["-r", dir.to_str().unwrap()])
        .output()
        .unwrap();
    let all = said(&output);
    assert!(output.status.success(), "mw {arguments:?}: {all}");
    text(&output.stdout)
}

/// The same, of answers that are an object a line.
pub fn objects(dir: &Path, arguments: &[&str]) -> Vec<Value> {
    let said = mw(dir, arguments);
    let lines = said.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs commands of the debugger. What each said, in the order of the commands.
pub fn debug<S: AsRef<str>>(dir: &Path, commands: &[S]) -> Vec<String> {
    const MARK: &str = "=====";
    let mut command = Command::new(MW);
    command.args(["replay", "-r", dir.to_str().unwrap(), "--batch"]);
    for line in commands {
        command.args(["-e", line.as_ref(), "-e", &format!("echo {MARK}")]);
    }
    let output = command.output().unwrap();
    let all = said(&output);
    assert!(output.status.success(), "{all}");
    text(&output.stdout)
        .split(&format!("{MARK}\n"))
        .map(str::to_string)
        .collect()
}

/// A program that is being recorded on several hosts.
pub struct Recorder {
    child: Child,
    dir: PathBuf,
}

impl Recorder {
    /// Host and command of each.
    pub fn start(hosts: &Hosts, scratch: &Scratch, runs: &[(&str, String)]) -> Recorder {
        let dir = scratch.fresh("joined");
        let mut command = hosts.mw();
        command.args(["record", "-q", "-o", dir.to_str().unwrap()]);
        for (host, line) in runs {
            command.args(["--on", host, line]);
        }
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        Recorder { child, dir }
    }

    /// Ctrl-C, and all ends.
    pub fn stop(mut self) -> PathBuf {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.child.wait().unwrap();
        self.dir
    }
}

/// Records what a plan says, to its end. Where the recording is, and what was said.
pub fn record_plan(hosts: &Hosts, scratch: &Scratch, plan: &str, quiet: bool) -> (PathBuf, Output) {
    let file = scratch.fresh("plan.toml");
    std::fs::write(&file, plan).unwrap();
    let dir = scratch.fresh("joined");
    let mut command = hosts.mw();
    command.args(["record", "-o", dir.to_str().unwrap()]);
    if quiet {
        command.arg("-q");
    }
    let output = command.arg("--plan").arg(&file).output().unwrap();
    (dir, output)
}
