//! Programs under `mw run` and `mw record` at the prompt: all of it stands in one
//! state, and its time stands with it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::alive::{mw, program};
use harness::prompt::has_in_order;
use harness::{MW, Running, Scratch, programs, verified, wait_for};

/// Every kind of clock and limit, with the prompt standing for far longer than any of
/// them: at a breakpoint, and where it happened to be.
fn time_limits(kind: &str) -> (String, i32) {
    let scratch = Scratch::new(&format!("live-time-{kind}"));
    let file = programs::for_debuggers(&scratch, "c/time_limits.c", &["-lrt"]);
    mw(
        "run",
        &[file.to_str().unwrap(), "4"],
        &[
            &format!("set time {kind}"),
            "tbreak read_clock",
            "continue",
            "shell sleep 3",
            "resume 100ms",
            "shell sleep 3",
            "time",
            "continue",
        ],
    )
}

#[test]
fn no_clock_and_no_limit_shows_that_the_prompt_stands() {
    let (text, status) = time_limits("logical");
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "read_clock",
            "logical",
            "behind",
            "halt 1",
            "halt 2",
            " has ended.",
        ],
    );
}

/// The test before can fail.
#[test]
fn with_real_time_they_show_it() {
    let (text, _) = time_limits("real");
    assert!(text.contains("has ended with status 1"), "{text}");
    assert!(text.contains("seen by the program"), "{text}");
}

/// The service, recorded; it serves when this is done.
fn recorded(scratch: &Scratch) -> (Running<'_>, i32) {
    let file = program(scratch);
    let running = scratch.start(&[file.to_str().unwrap()]);
    let pid = wait_for("the service", || {
        let output = running.stdout();
        output.lines().next().and_then(|line| line.parse().ok())
    });
    (running, pid)
}

/// Ends it, and replays what was recorded.
fn is_unharmed(running: Running<'_>, pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let recorded = running.finish();
    assert!(
        recorded.outcome.stdout.contains("unharmed"),
        "{}",
        recorded.outcome.stdout
    );
    verified::verify(&recorded.dir, &[]).is_equal();
}

#[test]
fn a_recorded_service_is_debugged_and_replays() {
    let scratch = Scratch::new("live-recorded");
    let (running, pid) = recorded(&scratch);
    let (text, status) = mw(
        "attach",
        &[pid.to_string()],
        &[
            "processes",
            "threads",
            "thread waiter",
            "bt",
            "print accounts[0]",
            "break handle if turn % 20 == 7",
            "continue",
            "print turn % 20",
            "next",
            "next",
            "print before",
            "finish",
            "stepi",
            "halted",
            "timeouts",
            "info signals SIGTERM",
            "detach",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "alive-",
            "answers-",
            "waits in epoll_wait",
            "waiter (",
            "{id = 1, balance = ",
            "Breakpoint 1\n",
            "handle at",
            " = 7",
            "halt ",
            "SIGTERM",
            "runs on.",
        ],
    );
    is_unharmed(running, pid);
}
