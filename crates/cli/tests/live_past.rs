//! A program that is alive and recorded, at the prompt: conditions over its processes are
//! decided while it runs, and it is gone back in.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::path::{Path, PathBuf};

use harness::alive::{mw, rounds};
use harness::prompt::has_in_order;
use harness::{Scratch, programs, verified, wait_for};

/// `mw run --record` of so many rounds, and where the recording is.
fn run(scratch: &Scratch, count: &str, commands: &[&str]) -> (String, PathBuf) {
    let program = rounds(scratch);
    let dir = scratch.path().join("recording");
    let word = format!("run --record -o {}", dir.display());
    let (text, status) = mw(&word, &[program.to_str().unwrap(), count], commands);
    assert_eq!(status, 0, "{text}");
    (text, dir)
}

/// The same at the prompt of `mw replay`.
fn replay(dir: &Path, commands: &[&str]) -> String {
    let (text, status) = mw("replay", &[dir], commands);
    assert_eq!(status, 0, "{text}");
    text
}

/// The lines that say where a process stands in its recording.
fn places(text: &str) -> Vec<&str> {
    let is_place = |line: &&str| {
        line.starts_with("rounds-") && (line.contains(", before ") || line.contains(", about to"))
    };
    text.lines().filter(is_place).collect()
}

/// It is true between two messages of one round, and never again.
const STATE: &str = "value(rounds-0: sent) == 60 and value(rounds-1: answered) == 59";

#[test]
fn a_program_is_halted_where_a_condition_holds_and_led_back_to_the_exact_state() {
    let scratch = Scratch::new("live-stop-if");
    let stop = format!("stop if {STATE}");
    let (text, dir) = run(
        &scratch,
        "1000000",
        &[
            &stop,
            "process rounds-1",
            "print answered",
            "live",
            "print sent > 60",
            "info conditions",
        ],
    );
    has_in_order(
        &text,
        &[
            "Condition 1: value(rounds-0: sent) == 60",
            "rounds-0: sent = 60",
            "rounds-1: answered = 59",
            "the exact state, by going back: the program itself was halted",
            "past it; `live` returns there",
            "rounds-0, main-0, ",
            "$1 = 59",
            ", halted",
            "$2 = 1",
            ", 1 times",
        ],
    );
    // What was recorded says the same when it is over.
    let later = replay(&dir, &[&stop, "process rounds-1"]);
    assert_eq!(places(&text), places(&later), "{text}\n{later}");
    verified::verify(&dir, &[]).is_equal();
}

#[test]
fn values_are_traced_and_rules_run_while_the_program_runs() {
    let scratch = Scratch::new("live-trace-if");
    let rules = scratch.path().join("rules.mw");
    std::fs::write(
        &rules,
        "let told  = send and process = rounds-0\n\
         let heard = recv and process = rounds-1\n\
         recognizer turn:\n  told heard\n  do { emit turn }\n\
         never much: value(rounds-1: answered) > 7\n",
    )
    .unwrap();
    let (text, dir) = run(
        &scratch,
        "1000000",
        &[
            "trace rounds-0: sent, rounds-1: answered if let a = change of answered in rounds-1; a",
            &format!("source {}", rules.display()),
            "continue",
            "print answered",
            "live",
            "delete",
            "let again = send and process = rounds-0",
            "stop if again^2",
            "live",
            "delete",
            "resume 100ms",
        ],
    );
    let traced: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("Trace 1, "))
        .map(|line| line.split_once(": ").unwrap().1)
        .collect();
    let all: Vec<String> = (1..=8)
        .map(|n| format!("rounds-0: sent = {n}, rounds-1: answered = {n}"))
        .collect();
    assert_eq!(traced, all, "{text}");
    assert_eq!(
        text.matches("Condition 2: recognizer turn\n  rounds")
            .count(),
        8
    );
    has_in_order(
        &text,
        &[
            "Condition 3: never much\n  rounds-1: answered = 8",
            "by going back",
            "$1 = 8",
            ", halted",
            "Condition 4: again^2\n  rounds-0:",
            ", halted",
            "Interrupted.",
        ],
    );
    verified::verify(&dir, &[]).is_equal();
}

#[test]
fn what_comes_first_is_come_to_first() {
    let scratch = Scratch::new("live-first");
    // The breakpoint comes before the state, and then after it.
    let (text, _) = run(
        &scratch,
        "1000000",
        &[
            "break begin_round if sent == 20",
            &format!("stop if {STATE}"),
            "print sent",
            "delete 1",
            "break begin_round if sent == 100",
            "continue",
            "print sent",
            "info breakpoints",
            // It may have come to the breakpoint, and not past it.
            "live",
            "print sent >= 60 && sent <= 100",
            // It was the only time.
            "delete 3",
            "resume 200ms",
        ],
    );
    has_in_order(
        &text,
        &[
            "Breakpoint 1",
            "$1 = 20",
            "Condition 2: value(rounds-0: sent) == 60",
            "$2 = 60",
            "begin_round if sent == 100",
            "$3 = 1",
            "Interrupted.",
        ],
    );
    assert_eq!(text.matches("Condition 2: value").count(), 1, "{text}");
}

#[test]
fn a_condition_is_decided_when_the_program_has_ended() {
    let scratch = Scratch::new("live-ended");
    let (text, _) = run(
        &scratch,
        "3",
        &["stop if value(rounds-0: sent) == 3", "print sent", "live"],
    );
    has_in_order(&text, &["sent = 3", "by going back", "$1 = 3"]);
    let scratch = Scratch::new("live-ended-in-vain");
    let (text, _) = run(&scratch, "3", &["stop if value(rounds-0: sent) == 4"]);
    assert!(text.contains("has ended."), "{text}");
    assert!(!text.contains("by going back"), "{text}");
}

#[test]
fn it_is_gone_back_over_what_was_recorded_so_far() {
    let scratch = Scratch::new("live-back");
    let (text, dir) = run(
        &scratch,
        "1000000",
        &[
            "break begin_round if sent == 50",
            "continue",
            "print sent",
            "tbreak answer in rounds-1",
            "reverse-continue",
            "print answered",
            "why",
            "reverse-continue",
            "print sent",
            "goto rounds-0:40",
            "processes",
            "live",
            "print sent",
            // A second past is longer.
            "delete",
            "resume 100ms",
            "goto end",
            "continue",
            "processes",
            "shell true",
            "live",
            "print sent > 50",
        ],
    );
    has_in_order(
        &text,
        &[
            "Breakpoint 1\n",
            "$1 = 50",
            "Breakpoint 2\nrounds-1, main-0, before rounds-1:",
            "answer at",
            "(in what was recorded so far; `live` returns to the front)",
            "$2 = 49",
            " <- rounds-0:",
            // It stopped once, and was deleted.
            "This is the beginning of rounds-1.",
            "$3 = 0",
            "about to do rounds-0:40",
            "rounds-1                 not begun",
            ", halted\nbegin_round at",
            "$4 = 50",
            "Interrupted.",
            "No more of rounds-0 was recorded so far",
            "where its recording ends so far",
            ", halted\n",
            "$5 = 1",
        ],
    );
    verified::verify(&dir, &[]).is_equal();
}

#[test]
fn a_program_that_somebody_records_is_gone_back_in() {
    let scratch = Scratch::new("live-attached-past");
    let running = scratch.start(&[rounds(&scratch).to_str().unwrap()]);
    let pids = wait_for("both processes", || {
        Some(running.program()).filter(|pids| pids.len() == 2)
    });
    let words: Vec<String> = pids
        .iter()
        .map(|pid| pid.as_raw_nonzero().to_string())
        .collect();
    let (text, status) = mw(
        "attach",
        &words,
        &[
            "stop if value(rounds-0: sent) > 3 and value(rounds-1: answered) > 3",
            "delete",
            "stop if let a = change of answered in rounds-1; a",
            "reverse-continue",
            "live",
            "delete",
            "goto rounds-0:40",
            "live",
            "detach",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "holds here already",
            "Condition 2: a\n  before rounds-1:",
            "by going back",
            // The one before that.
            "Condition 2: a\n  before rounds-1:",
            ", halted",
            "about to do rounds-0:40",
            "(in what was recorded so far; `live` returns to the front)",
            ", halted",
            "runs on.",
            "runs on.",
        ],
    );
    for pid in pids {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let recorded = running.finish();
    verified::verify(&recorded.dir, &[]).is_equal();
}

/// So often threads that compute are stopped at a function, and led past that; what was recorded
/// of it is replayed.
fn led_past(scratch: &Scratch, function: &str) {
    const STOPS: usize = 20;
    let program = programs::for_debuggers(scratch, "debug/turns.c", &["-pthread"]);
    let dir = scratch.path().join("recording");
    let word = format!("run --record -o {}", dir.display());
    let stop = format!("break {function}");
    let mut commands = vec![stop.as_str()];
    commands.extend(["continue"; STOPS]);
    commands.extend(["delete", "continue"]);
    let (text, status) = mw(&word, &[program.to_str().unwrap(), "100"], &commands);
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.matches("\nBreakpoint 1\n").count(), STOPS, "{text}");
    has_in_order(&text, &["4 threads went round", "has ended"]);
    verified::verify(&dir, &[]).is_equal();
}

/// A thread that is led past an instruction which the monitor answers gives the turn away there, and
/// needs it again while all others are halted, some of them where they wait for it. What it reads
/// is the time that stands.
#[test]
fn a_thread_is_led_past_a_counter_while_others_wait_for_the_turn() {
    led_past(&Scratch::new("live-led-counter"), "reads_counter");
}

/// It loses the turn right before the call.
#[test]
fn a_thread_is_led_past_a_call_while_others_wait_for_the_turn() {
    led_past(&Scratch::new("live-led-call"), "calls");
}

#[test]
fn what_is_about_the_program_as_it_is_now_is_not_done_to_its_past() {
    let scratch = Scratch::new("live-now");
    let program = rounds(&scratch);
    let dir = scratch.path().join("recording");
    for command in [
        "kill",
        "halted",
        "resume 1s",
        "set var sent = 1",
        "timeouts",
    ] {
        let _ = std::fs::remove_dir_all(&dir);
        let word = format!("run --record -o {}", dir.display());
        let lines = ["tbreak begin_round", "continue", "goto rounds-0:9", command];
        let (text, status) = mw(&word, &[program.to_str().unwrap()], &lines);
        assert_eq!(status, 2, "{command}: {text}");
        has_in_order(
            &text,
            &[
                "is about the program as it is now",
                "`live` returns to the front",
            ],
        );
    }
    let lines = ["live"];
    let (text, status) = mw("replay", &[&dir], &lines);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("a recording has no front"), "{text}");
}

#[test]
fn what_is_not_there_yet_is_told_and_waited_for() {
    let scratch = Scratch::new("live-not-yet");
    let (text, _) = run(
        &scratch,
        "1000000",
        &["stop if value(rounds-1: answered) == 10", "print answered"],
    );
    has_in_order(
        &text,
        &[
            "so far: no process is called `rounds-1`",
            "answered = 10",
            "$1 = 10",
        ],
    );
    // What is mistyped stays where it is, and is told.
    let program = rounds(&scratch);
    let (text, status) = mw(
        "run --record",
        &[program.to_str().unwrap(), "3"],
        &["stop if value(rounds-0: sent) = = 3"],
    );
    assert_eq!(status, 2, "{text}");
}
