//! `mw blocked --live`: locks by kind and name, with who has them, and nobody stopped.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::{MW, Scratch, programs, wait_for};

struct Waiting(Child, u32);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &Path) -> Waiting {
    let mut child = Command::new(program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    Waiting(child, line.trim().parse().unwrap())
}

fn blocked(pid: u32) -> String {
    let output = Command::new(MW)
        .args(["blocked", "--live", &pid.to_string()])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Asks until each thread waits for what it is to wait for.
fn are_told(program: &Path, expected: &[(&str, &str)]) -> String {
    let waiting = start(program);
    wait_for("all to wait", || {
        let text = blocked(waiting.1);
        let told = |(thread, what): &(&str, &str)| {
            let mut lines = text.lines();
            lines.any(|line| line.contains(&format!("/{thread} ")) && line.contains(what))
        };
        let is_there = expected.iter().all(told);
        // It says what is missing when time is over.
        println!("{text}");
        is_there.then_some(text)
    })
}

#[test]
fn locks_of_the_c_library() {
    let scratch = Scratch::new("live-locks-c");
    let program = programs::for_debuggers(&scratch, "debug/locks.c", &[]);
    are_told(
        &program,
        &[
            ("for_mutex", "waits for mutex mutex, which locks-"),
            ("for_mutex", "/locks has (for_mutex at"),
            (
                "for_shared",
                "waits for read-write lock shared, which locks-",
            ),
            (
                "for_condition",
                "waits on condition variable condition (for_condition",
            ),
            ("for_barrier", "waits on barrier barrier (for_barrier"),
            ("for_semaphore", "waits for semaphore semaphore"),
            ("locks", "waits in pause"),
        ],
    );
}

#[test]
fn locks_of_rust() {
    let scratch = Scratch::new("live-locks-rust");
    let program = scratch.path().join("locks");
    let made = Command::new("rustc")
        .args(["--edition", "2024", "-g", "-o"])
        .arg(&program)
        .arg(programs::sources().join("debug/locks.rs"))
        .status()
        .unwrap();
    assert!(made.success());
    let text = are_told(
        &program,
        &[
            ("for_mutex", "waits for mutex "),
            ("for_shared", "waits for read-write lock "),
            ("for_condition", "waits on condition variable "),
            ("parked", "waits for `unpark`"),
        ],
    );
    let mutex = text.lines().find(|line| line.contains("/for_mutex "));
    let mutex = mutex.unwrap();
    // Its name, and no owner made up from what it protects.
    assert!(mutex.contains("MUTEX") && !mutex.contains(" has"), "{text}");
}

/// Goroutines are no threads: they are named by their number, and found by where they wait.
#[test]
fn locks_of_go() {
    tool!("go");
    let scratch = Scratch::new("live-locks-go");
    let program = scratch.path().join("locks");
    let made = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(programs::sources().join("debug/locks.go"))
        .env("GOCACHE", scratch.path().join("cache"))
        .status()
        .unwrap();
    assert!(made.success());
    let expected = [
        ("mutex main.mutex", "forMutex"),
        ("read-write lock main.shared", "forReading"),
        ("read-write lock main.written", "forWriting"),
        ("wait group main.group", "forGroup"),
        ("something from channel at 0x", "forReceiving"),
        ("room in channel at 0x", "forSending"),
        ("condition variable", "forCondition"),
        ("one of several channels", "forEither"),
    ];
    let waiting = start(&program);
    wait_for("all to wait", || {
        let text = blocked(waiting.1);
        println!("{text}");
        let told = |(what, place): &(&str, &str)| {
            let mut lines = text.lines().filter(|line| line.contains("/goroutine "));
            lines.any(|line| line.contains(what) && line.contains(&format!("(main.{place} at ")))
        };
        expected.iter().all(told).then_some(())
    });
}

/// What is asked reads memory and /proc: no thread of the program is ever stopped for it.
#[test]
fn nobody_is_stopped() {
    tool!("strace");
    let scratch = Scratch::new("live-locks-unstopped");
    let program = programs::for_debuggers(&scratch, "debug/locks.c", &[]);
    let waiting = start(&program);
    let tracer = scratch.path().join("calls");
    let status = Command::new("strace")
        .args([
            "-f",
            "-e",
            "trace=ptrace,kill,tgkill,tkill,rt_sigqueueinfo",
            "-o",
        ])
        .arg(&tracer)
        .args([MW, "blocked", "--live", &waiting.1.to_string()])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let calls = std::fs::read_to_string(&tracer).unwrap();
    for call in ["ptrace(", "kill("] {
        assert!(!calls.contains(call), "{calls}");
    }
}
