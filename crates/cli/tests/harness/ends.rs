//! Programs that run on hosts of their own, to be debugged from another one.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::namespaces::Hosts;
use super::wait_for;

/// A program on one of the hosts, which says its id first.
pub struct End {
    child: Child,
    out: Box<dyn BufRead>,
    pub pid: i32,
}

impl End {
    pub fn start(hosts: &Hosts, host: &str, program: &Path, words: &[&str]) -> End {
        let mut child = hosts
            .on(host, program)
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = Box::new(BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let pid = line.trim().parse().unwrap();
        End { child, out, pid }
    }

    /// Of a program that says nothing.
    pub fn of(child: Child) -> End {
        let pid = wait_for("the program", || {
            let path = format!("/proc/{}/comm", child.id());
            let name = std::fs::read_to_string(path).unwrap();
            (name.trim() != "ip").then_some(child.id() as i32)
        });
        let out = Box::new(std::io::empty());
        End { child, out, pid }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid).unwrap(), signal).unwrap();
    }

    /// Waits for the end of `debug/parted.c`, which is a good one: the longest that it did
    /// not get to look at its clock, in ms.
    pub fn end(mut self) -> u64 {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        longest(&text)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The longest gap that one of `debug/parted.c` tells of.
pub fn longest(text: &str) -> u64 {
    let (_, rest) = text.split_once("longest gap ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// `mw WORDS --batch -e COMMAND ...`
pub fn at_prompt(hosts: &Hosts, words: &[&str], commands: &[&str]) -> Output {
    let mut command = hosts.mw();
    command.args(words).arg("--batch");
    for line in commands {
        command.args(["-e", line]);
    }
    command.output().unwrap()
}

/// The values that were printed, in order.
pub fn values(text: &str) -> Vec<i64> {
    let lines = text.lines().filter(|line| line.starts_with('$'));
    let values = lines.filter_map(|line| line.split_once(" = "));
    values
        .map(|(_, value)| value.trim().parse().unwrap())
        .collect()
}
