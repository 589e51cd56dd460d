//! Programs that really hang: `mw blocked` says who waits for whom, and that it
//! is a deadlock; and it does not say so of those that only wait.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::BTreeSet;
use std::process::Stdio;

use harness::{Recorded, Scratch, programs, recorded, wait_for};
use rustix::process::Signal;
use serde_json::Value;

/// Runs a program until it hangs, and ends it from outside: all its processes at
/// once, or by the signal of a terminal.
fn hang(scratch: &Scratch, which: &str, signal: Signal) -> (std::path::PathBuf, Vec<Value>) {
    let program = programs::program("deadlocks");
    hang_command(scratch, &[&program, which], signal)
}

fn hang_command(
    scratch: &Scratch,
    command: &[&str],
    signal: Signal,
) -> (std::path::PathBuf, Vec<Value>) {
    // Input that does not come, from somebody who is there.
    let setup = scratch.setup(command).stdin(Stdio::piped());
    let mut running = setup.start();
    wait_for("all to come to where they wait", || {
        (running.stdout() == "ready\n").then_some(())
    });
    // They stand when none of them runs any more.
    wait_for("all to wait", || {
        let waits = |pid: &rustix::process::Pid| {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
            let mut states = tasks.into_iter().flatten().flatten().map(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                let rest = stat
                    .rsplit_once(')')
                    .map(|(_, rest)| rest.trim().to_string());
                rest.unwrap_or_default()
            });
            states.all(|state| state.starts_with('S'))
        };
        let all = running.program();
        (!all.is_empty() && all.iter().all(waits)).then_some(())
    });
    // All at one instant: nobody shall see another go.
    let all = running.program();
    if signal == Signal::KILL {
        for pid in &all {
            let _ = rustix::process::kill_process(*pid, Signal::STOP);
        }
    }
    for pid in all {
        let _ = rustix::process::kill_process(pid, signal);
    }
    let dir = running.dir().to_path_buf();
    running.wait(harness::LIMIT);
    running.wait_for_all();
    let told = recorded::ask(&dir, &["blocked", "--json", "-r"]);
    let lines = told.lines().map(|line| serde_json::from_str(line).unwrap());
    (dir, lines.collect())
}

fn words(value: &Value) -> Vec<&str> {
    let list = value.as_array().unwrap().iter();
    list.map(|word| word.as_str().unwrap()).collect()
}

fn row<'l>(lines: &'l [Value], thread: &str) -> &'l Value {
    let mut rows = lines.iter().filter(|line| line["thread"] == thread);
    rows.next()
        .unwrap_or_else(|| panic!("nothing of {thread} in {lines:#?}"))
}

/// The deadlock, of which there must be one, of these threads; its circle goes
/// through some of them, each of which waits for the next.
fn deadlock(lines: &[Value], threads: &[&str], circle: &[&str]) {
    let found: Vec<&Value> = lines
        .iter()
        .filter(|line| line.get("deadlock").is_some())
        .collect();
    assert_eq!(found.len(), 1, "{lines:#?}");
    let set = |list: &[&str]| -> BTreeSet<String> { list.iter().map(|w| w.to_string()).collect() };
    assert_eq!(
        set(&words(&found[0]["deadlock"])),
        set(threads),
        "{lines:#?}"
    );
    let told = words(&found[0]["cycle"]);
    assert_eq!(set(&told), set(circle), "{lines:#?}");
    for (i, thread) in told.iter().enumerate() {
        let next = told[(i + 1) % told.len()];
        let by = words(&row(lines, thread)["by"]);
        assert!(by.contains(&next), "{thread} waits for {by:?}, not {next}");
    }
}

fn waits_for(lines: &[Value], thread: &str, what: &str, by: &[&str]) {
    let row = row(lines, thread);
    let told = row["waits_for"].as_str().unwrap();
    assert!(told.contains(what), "{thread} waits for {told}");
    assert_eq!(words(&row["by"]), by, "{thread}");
}

#[test]
fn two_threads_and_two_mutexes() {
    for signal in [Signal::KILL, Signal::TERM] {
        let scratch = Scratch::new("deadlock-mutexes");
        let (dir, lines) = hang(&scratch, "mutexes", signal);
        let (main, debit, credit) = (
            "deadlocks-0/main-0",
            "deadlocks-0/debit-0",
            "deadlocks-0/credit-0",
        );
        deadlock(&lines, &[main, debit, credit], &[debit, credit]);
        waits_for(&lines, debit, "the mutex journal", &[credit]);
        waits_for(&lines, credit, "the mutex accounts", &[debit]);
        waits_for(&lines, main, "debit-0 to end", &[debit]);
        let text = recorded::ask(&dir, &["blocked", "-r"]);
        let mutex = "the mutex journal, which deadlocks-0/credit-0 has";
        assert!(text.contains(mutex), "{text}");
        assert!(text.contains("DEADLOCK: "), "{text}");
    }
}

#[test]
fn three_processes_and_their_pipes_or_sockets() {
    for which in ["pipes", "sockets"] {
        let scratch = Scratch::new(&format!("deadlock-{which}"));
        let (_, lines) = hang(&scratch, which, Signal::KILL);
        let ring = ["deadlocks-1", "deadlocks-2", "deadlocks-3"];
        let all = ["deadlocks-0", "deadlocks-1", "deadlocks-2", "deadlocks-3"];
        deadlock(&lines, &all, &ring);
        // Which of them was born first is another matter.
        for own in ring {
            let row = row(&lines, own);
            assert!(
                row["waits_for"]
                    .as_str()
                    .unwrap()
                    .contains("to receive from")
            );
            assert_eq!(words(&row["by"]).len(), 1, "{row}");
        }
        waits_for(&lines, all[0], "a child to end", &ring);
    }
}

#[test]
fn a_parent_and_its_child() {
    let scratch = Scratch::new("deadlock-family");
    let (_, lines) = hang(&scratch, "family", Signal::KILL);
    let both = ["deadlocks-0", "deadlocks-1"];
    deadlock(&lines, &both, &both);
    waits_for(&lines, both[0], "deadlocks-1 to end", &[both[1]]);
    waits_for(&lines, both[1], "to receive from", &[both[0]]);
}

#[test]
fn two_processes_and_two_locked_files() {
    for which in ["files", "records"] {
        let scratch = Scratch::new(&format!("deadlock-{which}"));
        let (_, lines) = hang(&scratch, which, Signal::KILL);
        let both = ["deadlocks-1", "deadlocks-2"];
        deadlock(&lines, &["deadlocks-0", both[0], both[1]], &both);
        waits_for(&lines, both[0], "the lock on ", &[both[1]]);
        waits_for(&lines, both[1], "the lock on ", &[both[0]]);
        let files: BTreeSet<&str> = both
            .iter()
            .map(|own| row(&lines, own)["waits_for"].as_str().unwrap())
            .collect();
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(
            files.iter().all(|file| file.ends_with(".lock")),
            "{files:?}"
        );
    }
}

#[test]
fn two_processes_and_their_queues() {
    let scratch = Scratch::new("deadlock-queues");
    let (_, lines) = hang(&scratch, "queues", Signal::KILL);
    let both = ["deadlocks-1", "deadlocks-2"];
    deadlock(&lines, &["deadlocks-0", both[0], both[1]], &both);
    waits_for(&lines, both[0], "queue", &[both[1]]);
    waits_for(&lines, both[1], "queue", &[both[0]]);
}

#[test]
fn who_only_waits_is_not_deadlocked() {
    for which in ["patient", "outside"] {
        let scratch = Scratch::new(&format!("deadlock-{which}"));
        let (dir, lines) = hang(&scratch, which, Signal::KILL);
        assert!(
            lines.iter().all(|line| line.get("deadlock").is_none()),
            "{lines:#?}"
        );
        assert!(lines.len() >= 2, "{lines:#?}");
        let text = recorded::ask(&dir, &["blocked", "-r"]);
        assert!(text.contains("no deadlock"), "{text}");
    }
}

/// A program that handles Ctrl-C comes to an end of its own; it is asked about the
/// moment before that.
#[test]
fn who_handles_the_interruption_is_told_why_it_hung() {
    const CODE: &str = "
import threading
a, b, both = threading.Lock(), threading.Lock(), threading.Barrier(3)
def take(first, second):
    with first:
        both.wait()
        second.acquire()
for locks in ((a, b), (b, a)):
    threading.Thread(target=take, args=locks, daemon=True).start()
both.wait()
print('ready', flush=True)
threading.Event().wait()
";
    let python = tool!("python3");
    let scratch = Scratch::new("deadlock-handled");
    let (dir, lines) = hang_command(&scratch, &[&python, "-c", CODE], Signal::INT);
    let rows: Vec<&Value> = lines.iter().filter(|l| l.get("thread").is_some()).collect();
    assert_eq!(rows.len(), 3, "{lines:#?}");
    for row in rows {
        assert!(row["before"].as_str().is_some(), "{row}");
        assert_eq!(row["call"], "futex", "{row}");
    }
    let text = recorded::ask(&dir, &["blocked", "-r"]);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("before SIGINT reached the program"),
        "{text}"
    );
    assert!(text.contains("a wake at "), "{text}");
}

/// A program that came to its end waits for nothing.
#[test]
fn who_has_ended_does_not_wait() {
    let scratch = Scratch::new("deadlock-none");
    let recorded: Recorded = scratch.record(&["true"]);
    let text = recorded.ask(&["blocked", "-r"]);
    assert!(text.contains("no process is alive"), "{text}");
}
