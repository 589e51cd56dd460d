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

/// What a program has seen of each time that it stood, in microseconds.
fn perceived(text: &str) -> Vec<u64> {
    let found = text.lines().find_map(|line| line.split_once("perceived "));
    let (_, rest) = found.unwrap_or_else(|| panic!("it has not said it: {text}"));
    let words = rest.split(' ').map_while(|word| word.parse().ok());
    words.collect()
}

/// A thread that waits in a call when the program is halted is taken out of it in the middle of
/// the halt: it stops there for the first time, and is not for that the last to stop.
#[test]
fn a_call_in_a_waiting_thread_shows_nothing_of_the_halt() {
    let scratch = Scratch::new("live-time-perceived");
    let file = programs::for_debuggers(&scratch, "debug/perceives.c", &[]);
    let mut commands = vec!["break stand", "continue"];
    for _ in 0..5 {
        let lines = ["shell sleep 0.5", "thread waiter", "call square(12)"];
        commands.extend(lines.into_iter().chain(["shell sleep 0.1", "continue"]));
    }
    // (Who is made to run along with the function need not come to the next turn, and stops
    // where it stood.)
    commands.extend(["delete", "continue"]);
    let (text, status) = mw("run", &[file.to_str().unwrap(), "7"], &commands);
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.matches("= 144").count(), 5, "{text}");
    let seen = perceived(&text);
    assert_eq!(seen.len(), 7, "{text}");
    // Each halt lasts 600 ms. (Who shares a processor with others may see them once.)
    assert!(seen.iter().all(|us| *us < 100_000), "{seen:?}");
    let quick = seen.iter().filter(|us| **us <= 1000);
    assert!(quick.count() >= 4, "{seen:?}");
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

/// A debugger that stands at its prompt until it is told something.
fn standing(words: &[&str]) -> Child {
    Command::new(MW)
        .arg("attach")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn is_traced(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    !status.contains("TracerPid:\t0")
}

/// How often the service has turned.
fn turns(pid: i32) -> u64 {
    let (text, status) = mw("attach", &[pid.to_string()], &["print turns"]);
    assert_eq!(status, 0, "{text}");
    let value = text.lines().find_map(|line| line.split_once(" = "));
    value.unwrap().1.parse().unwrap()
}

/// The debugger is killed while it stands: the program is kept for as long as was said,
/// another one may take it meanwhile, and then it goes on.
#[test]
fn who_has_lost_its_debugger_is_kept_and_then_goes_on() {
    let scratch = Scratch::new("live-kept");
    let (running, pid) = recorded(&scratch);
    for keep in ["1", "600"] {
        let mut debugger = standing(&["--keep", keep, &pid.to_string()]);
        wait_for("it to be traced", || is_traced(pid).then_some(()));
        debugger.kill().unwrap();
        debugger.wait().unwrap();
        wait_for("it to be let go", || (!is_traced(pid)).then_some(()));
        if keep == "1" {
            // Nobody else has it go on.
            std::thread::sleep(Duration::from_secs(3));
        }
        let before = turns(pid);
        wait_for("it to go on", || (turns(pid) > before).then_some(()));
    }
    is_unharmed(running, pid);
}

/// One debugger at a time; who takes over has it, and the other one is told.
#[test]
fn one_debugger_at_a_time() {
    let scratch = Scratch::new("live-one");
    let (running, pid) = recorded(&scratch);
    let mut first = Command::new(MW)
        .args(["attach", &pid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("it to be traced", || is_traced(pid).then_some(()));
    let (text, status) = mw("attach", &[pid.to_string()], &["bt"]);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("another debugger has the program"), "{text}");
    let output = Command::new(MW)
        .args([
            "attach",
            "--override",
            "--batch",
            "-e",
            "bt",
            &pid.to_string(),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    {
        use std::io::Write;
        let mut line = first.stdin.take().unwrap();
        line.write_all(b"step\n").unwrap();
    }
    let told = first.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("taken the program over"), "{told}");
    is_unharmed(running, pid);
}

/// What is under way is shown where it is.
#[test]
fn what_the_channels_hold_is_shown() {
    let (text, status) = mw(
        "run",
        &["sh", "-c", "(printf 12345; sleep 1000) | sleep 1000"],
        &[
            "catch syscall write",
            "continue",
            "delete",
            "resume 300ms",
            "halted",
        ],
    );
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("5 B not read"), "{text}");
}

/// A limit that is fired is over, one that is dropped or extended is not.
#[test]
fn limits_are_changed() {
    let sleeps = ["sleep", "1000"];
    let wait = [
        "catch syscall clock_nanosleep",
        "continue",
        "delete",
        "resume 50ms",
    ];
    let run = |rest: &[&str]| {
        let commands: Vec<&str> = wait.iter().chain(rest).copied().collect();
        let (text, status) = mw("run", &sleeps, &commands);
        assert_eq!(status, 0, "{text}");
        text
    };
    let text = run(&["timeouts", "timeouts fire 1", "continue"]);
    has_in_order(
        &text,
        &["s left", "in clock_nanosleep", "over when", "has ended."],
    );
    let text = run(&["timeouts extend all 5000s", "resume 50ms", "timeouts"]);
    has_in_order(&text, &["1 time limit: longer.", "   59", "s left"]);
    let text = run(&["timeouts drop 1", "resume 50ms", "timeouts"]);
    has_in_order(&text, &["dropped", "Nobody waits"]);
    let text = run(&["timeouts freeze 1", "resume 1s", "timeouts"]);
    has_in_order(&text, &["   999", "s left, frozen"]);
}

/// The debugger's own signals are not the program's: it can be ended, as ever.
#[test]
fn no_signal_is_blocked_in_a_program_that_is_run() {
    let blocked = "grep SigBlk /proc/self/status";
    let (text, status) = mw("run", &["sh", "-c", blocked], &["continue"]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
}

/// A thread waits for 700 ms at most while the other one is led over 1.2 s.
#[test]
fn limits_that_are_over_in_a_step_are_accepted_or_rejected() {
    let scratch = Scratch::new("live-on-timeout");
    let file = programs::for_debuggers(&scratch, "debug/patience.c", &[]);
    let run = |lines: &[&str]| {
        let begin = ["tbreak slow", "continue"];
        let commands: Vec<&str> = begin.iter().chain(lines).copied().collect();
        let (text, status) = mw("run", &[file.to_str().unwrap()], &commands);
        assert_eq!(status, 0, "{text}");
        text
    };
    let text = run(&["finish", "continue"]);
    assert!(text.contains("poll: 0"), "{text}");
    let text = run(&["on-timeout accept", "finish", "continue"]);
    assert!(text.contains("poll: 0"), "{text}");
    let text = run(&["on-timeout reject", "finish", "timeouts", "continue"]);
    let rejected = ["in poll is over, and rejected", "s left, frozen", "poll: 1"];
    has_in_order(&text, &rejected);
    let asked = [
        "it is asked what to do",
        "in poll is over: `timeouts fire 1` accepts that",
    ];
    let text = run(&["on-timeout ask", "finish", "timeouts fire 1", "continue"]);
    has_in_order(&text, &asked);
    assert!(text.contains("poll: 0"), "{text}");
    let text = run(&["on-timeout ask", "finish", "continue"]);
    has_in_order(&text, &asked);
    assert!(text.contains("poll: 1"), "{text}");
    // One that is not over goes on, with what is left of it.
    let text = run(&["on-timeout ask", "stepi", "timeouts", "finish", "continue"]);
    has_in_order(&text, &["s left  patience", "accepts that", "poll: 1"]);
    let (text, status) = mw("run", &["true"], &["on-timeout never"]);
    assert_eq!(status, 2, "{text}");
    assert!(
        text.contains("nothing that can be done on a timeout"),
        "{text}"
    );
}

/// Recorded and debugged at once: what was recorded replays, stops and all. (The program
/// sums up its own code before it makes threads: a breakpoint there would be in the sum.)
#[test]
fn what_is_recorded_under_the_debugger_replays() {
    let scratch = Scratch::new("live-run-record");
    let dir = scratch.fresh("recording");
    let service = program(&scratch);
    let output = Command::new(MW)
        .args(["run", "--record", "-o"])
        .arg(&dir)
        .args([
            "--batch",
            "-e",
            "break waiter",
            "-e",
            "continue",
            "-e",
            "delete",
            "-e",
            "break handle",
            "-e",
            "continue",
            "-e",
            "next",
        ])
        .args([
            "-e",
            "continue",
            "-e",
            "delete",
            "-e",
            "resume 200ms",
            "-e",
            "kill",
        ])
        .arg("--")
        .arg(&service)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    has_in_order(
        &text,
        &[
            "Breakpoint 1\n",
            "waiter at",
            "Breakpoint 2\n",
            "handle at",
            "Breakpoint 2\n",
        ],
    );
    assert!(Path::new(&dir).exists());
    verified::verify(&dir, &[]).is_equal();
}

/// A process that is exempt goes on while the prompt stands.
#[test]
fn what_is_exempt_goes_on() {
    let scratch = Scratch::new("live-exempt");
    let file = scratch.path().join("count");
    let line = format!("while :; do echo >>{}; done", file.display());
    let (text, status) = mw(
        "run",
        &["sh", "-c", &line],
        &[
            // It has begun to count.
            "stop if let counts = open and flags ~ O_CREAT; counts",
            "delete",
            &format!(
                "shell stat -c %s {0}; sleep 0.3; stat -c %s {0}",
                file.display()
            ),
            "exempt",
            &format!(
                "shell stat -c %s {0}; sleep 0.3; stat -c %s {0}",
                file.display()
            ),
            "exempt --off",
        ],
    );
    assert_eq!(status, 0, "{text}");
    let sizes: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(sizes.len(), 4, "{text}");
    assert!(sizes[0] == sizes[1] && sizes[3] > sizes[2], "{text}");
}
