//! Programs that cannot be joined, or not as others can: each is told in one message, and is
//! as it was.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use harness::alive::mw;
use harness::{MW, Scratch, is_root, programs};
use rustix::process::{Pid, Signal, kill_process};

/// A program that is ended when this is.
struct Started(Child);

impl Started {
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It is refused with these words, in one line and a hint.
fn is_refused(pid: i32, what: &str) {
    for word in ["attach", "attach --observe"] {
        let (text, status) = mw(word, &[pid.to_string()], &["bt"]);
        assert_eq!(status, 2, "{word}: {text}");
        assert!(text.contains(what), "{word}: {what}: {text}");
        assert!(text.lines().count() <= 2, "{word}: {text}");
    }
}

#[test]
fn a_32_bit_program() {
    let scratch = Scratch::new("live-32");
    let at = |name: &str| scratch.path().join(name);
    let source = ".globl _start\n_start: mov $29, %eax\nint $0x80\njmp _start\n";
    std::fs::write(at("waits.s"), source).unwrap();
    let run = |command: &mut Command| assert!(command.status().unwrap().success());
    run(Command::new("as")
        .args(["--32", "-o"])
        .args([at("waits.o"), at("waits.s")]));
    run(Command::new("ld")
        .args(["-m", "elf_i386", "-o"])
        .args([at("waits"), at("waits.o")]));
    let mut program = Started(Command::new(at("waits")).spawn().unwrap());
    is_refused(program.pid(), "is a 32-bit program");
    assert!(program.is_running());
}

/// Whom its own program traces nobody else can; who traces can be joined.
#[test]
fn a_program_that_traces_itself() {
    let scratch = Scratch::new("live-traces");
    let built = programs::for_debuggers(&scratch, "debug/traces.c", &[]);
    let mut child = Command::new(built).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let mut program = Started(child);
    let ids: Vec<i32> = line
        .split(' ')
        .map(|id| id.trim().parse().unwrap())
        .collect();
    is_refused(ids[1], "is traced by");
    let (text, status) = mw("attach", &[ids[0].to_string()], &["bt", "detach"]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("main"), "{text}");
    assert!(program.is_running());
    // It has noticed nothing: the end of the child is its own.
    kill_process(Pid::from_raw(ids[1]).unwrap(), Signal::KILL).unwrap();
    assert!(program.0.wait().unwrap().success());
}

#[test]
fn oneself() {
    let script = format!("exec {MW} attach --batch -e bt $$");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("is a part of this debugger"), "{text}");
}

/// The first process of a pid namespace, from inside of it and from outside.
#[test]
fn the_first_process_of_a_namespace() {
    if !is_root() {
        return;
    }
    let script = format!("{MW} attach --batch -e threads -e detach 1 2>&1; echo it runs on");
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("sh-1 runs on."), "{text}");
    assert!(text.ends_with("it runs on\n"), "{text}");
}
