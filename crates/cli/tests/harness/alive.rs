//! Programs that are alive while they are looked at.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{MW, Scratch, programs};

/// The service `debug/alive.c`: it notices what is done to it.
pub struct Service {
    pub child: Child,
    out: BufReader<ChildStdout>,
    pub pid: i32,
}

/// Where it is built.
pub fn program(scratch: &Scratch) -> PathBuf {
    let built = scratch.path().join("alive");
    match built.exists() {
        true => built,
        false => programs::for_debuggers(scratch, "debug/alive.c", &[]),
    }
}

/// Two processes that count rounds of messages.
pub fn rounds(scratch: &Scratch) -> PathBuf {
    programs::for_debuggers(scratch, "debug/rounds.c", &["-static"])
}

impl Service {
    /// It serves when this is done.
    pub fn start(scratch: &Scratch, words: &[&str]) -> Service {
        let mut child = Command::new(program(scratch))
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let pid = line.trim().parse().unwrap();
        Service { child, out, pid }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid).unwrap(), signal).unwrap();
    }

    /// Ends it; what it says of itself.
    pub fn end(mut self) -> String {
        self.signal(Signal::TERM);
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        text
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mw WORDS --batch -e COMMAND ... -- REST`: what it prints, and its exit status.
pub fn mw<S: AsRef<OsStr>>(word: &str, rest: &[S], commands: &[&str]) -> (String, i32) {
    let mut command = Command::new(MW);
    command.args(word.split(' ')).arg("--batch");
    for line in commands {
        command.args(["-e", line]);
    }
    let output = command
        .arg("--")
        .args(rest)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().unwrap())
}
