//! Threads that are interrupted in the middle of computation, by each other or
//! by signals, are interrupted at the same instant in replay: with hardware
//! breakpoints, and where the kernel grants none.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::Command;

use harness::programs::{self, program, script};
use harness::verified::{Verified, verify};
use harness::{MW, Recorded, Scratch};

/// Records a program that tells when it was interrupted: what it prints is
/// compared in replay.
fn record(scratch: &Scratch, name: &str) -> Recorded {
    let recorded = scratch.record(&[&program(name), "order"]);
    assert_eq!(recorded.outcome.code(), 0, "{}", recorded.outcome.stderr);
    let told = ["order", "came at"];
    assert!(
        told.iter()
            .any(|word| recorded.outcome.stdout.contains(word))
    );
    recorded
}

fn interruptions(recorded: &Recorded) -> usize {
    let events = recorded.ask(&["events"]);
    events.matches("preempted").count()
}

/// Refuses every `perf_event_open` to a command, as a container does.
const WITHOUT_PERF: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 298), (6, 0, 0, 0x50000 | 13), (6, 0, 0, 0x7fff0000)]
code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
code = ctypes.create_string_buffer(code, len(code))
program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code))
program = ctypes.create_string_buffer(program, len(program))
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

fn replays_without_perf(recorded: &Recorded) {
    let python = tool!("python3");
    let mut command = Command::new(python);
    command.args(["-c", WITHOUT_PERF, MW, "verify", "--json"]);
    let output = command.arg(&recorded.dir).output().unwrap();
    Verified::new(&output, format!("{MW} verify without perf_event_open")).is_equal();
}

/// Progress in a global variable, behind pointers, in vector registers, in the
/// middle of one instruction, on the stack, nowhere.
#[test]
fn computation_of_all_shapes() {
    let scratch = Scratch::new("preempt-shapes");
    let recorded = record(&scratch, "interrupted");
    assert!(interruptions(&recorded) > 20);
    verify(&recorded.dir, &["--repeat", "2"]).is_equal();
}

#[test]
fn computation_of_all_shapes_without_perf() {
    let scratch = Scratch::new("preempt-shapes-bare");
    let recorded = record(&scratch, "interrupted");
    replays_without_perf(&recorded);
}

#[test]
fn threads_that_spin() {
    let scratch = Scratch::new("preempt-spin");
    let recorded = record(&scratch, "spinlock");
    assert!(interruptions(&recorded) > 5);
    recorded.replays();
    replays_without_perf(&recorded);
}

#[test]
fn signals_in_computation() {
    let scratch = Scratch::new("preempt-signals");
    let recorded = record(&scratch, "signals_async");
    assert!(interruptions(&recorded) > 5);
    recorded.replays();
    replays_without_perf(&recorded);
}

/// Who yields gives its turn away. If it gave the processor away as well it would wait, each time,
/// for whatever else runs on the machine.
#[test]
fn who_yields_gives_its_turn_and_no_more() {
    let scratch = Scratch::new("yields");
    let recorded = scratch.record(&[&program("threads_yield"), "order"]);
    let told = recorded.outcome.stdout.lines().last().unwrap();
    let mut numbers = told.split(' ').filter_map(|word| word.parse::<u64>().ok());
    let (taken, yields) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert!(taken < yields / 2, "{told}");
    recorded.replays();
}

/// In code that may be written to while it runs.
#[test]
fn code_made_at_run_time() {
    let scratch = Scratch::new("preempt-made");
    let node = tool!("node");
    let recorded = scratch.record(&[&node, &script("node/compute.js")]);
    assert_eq!(recorded.outcome.code(), 0, "{}", recorded.outcome.stderr);
    assert_eq!(recorded.outcome.stdout.lines().count(), 6);
    assert!(interruptions(&recorded) > 20);
    recorded.replays();
    replays_without_perf(&recorded);
}

/// Where the progress of a loop is some pointers away from all registers.
#[test]
fn an_interpreters_threads() {
    let scratch = Scratch::new("preempt-interpreter");
    tool!("python3");
    for _ in 0..5 {
        let recorded = scratch.record(&["/usr/bin/python3", &script("python/compute.py")]);
        assert_eq!(recorded.outcome.code(), 0, "{}", recorded.outcome.stderr);
        assert_eq!(recorded.outcome.stdout.lines().count(), 1);
        assert!(interruptions(&recorded) > 5);
        recorded.replays();
    }
}

/// Short ones, often: each run is interrupted elsewhere.
#[test]
fn again_and_again() {
    let scratch = Scratch::new("preempt-again");
    for name in [
        "spam_alloc",
        "threads_mutex",
        "sigchld",
        "sigkill",
        "thread_exit_group",
    ] {
        for _ in 0..5 {
            programs::record(&scratch, name, &[&program(name)]).replays();
        }
    }
}
