//! The real gdb on programs that are alive, in scripts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::{Command, Stdio};

use harness::alive::{Service, program};
use harness::processes::{Marker, VARIABLE};
use harness::prompt::has_in_order;
use harness::{MW, Scratch, programs, wait_for};

/// `mw gdb --live WORDS`, with a script: what gdb says. Nothing of it is left running.
fn gdb(scratch: &Scratch, words: &[String], script: &[&str]) -> String {
    let file = scratch.fresh("script");
    std::fs::write(&file, script.join("\n") + "\n").unwrap();
    let marker = Marker::unique();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>&1", "sh", MW, "gdb"]);
    for argument in ["-nx", "--batch", "-iex", "set auto-load off", "-x"] {
        command.arg(format!("--gdb-argument={argument}"));
    }
    command
        .arg(format!("--gdb-argument={}", file.display()))
        .args(words.iter().filter(|word| *word == "--observe"))
        .arg("--live")
        .args(words.iter().filter(|word| *word != "--observe"))
        .env(VARIABLE, marker.value())
        .env("LC_ALL", "C.UTF-8")
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::null());
    scratch.note(format!("{command:?}"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    wait_for("the end of what gdb started", || {
        marker.processes().is_empty().then_some(())
    });
    text
}

/// The service is joined, a script is run, gdb quits: what it said. The service is
/// unharmed then.
fn joined(scratch: &Scratch, script: &[&str]) -> String {
    let service = Service::start(scratch, &[]);
    let text = gdb(scratch, &[service.pid.to_string()], script);
    let said = service.end();
    assert!(said.contains("unharmed"), "{said}\n{text}");
    text
}

#[test]
fn breakpoints_steps_and_threads() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-live-steps");
    let text = joined(
        &scratch,
        &[
            "info threads",
            "break handle if turn % 50 == 7",
            "continue",
            "print turn % 50",
            "bt 2",
            "next",
            "next",
            "print before == account->balance",
            "finish",
            "stepi",
            "delete",
            "watch accounts[1].balance",
            "continue",
            "delete",
            "thread apply all bt 1",
        ],
    );
    has_in_order(
        &text,
        &[
            "waits in epoll_wait",
            "Breakpoint 1 at",
            "hit Breakpoint 1, handle (turn=",
            "$1 = 7",
            "#0  handle (turn=",
            "in worker (",
            "long before = account->balance",
            "account->balance = before + 1",
            "$2 = 1",
            "Value returned is $3 = 1",
            "Hardware watchpoint 2: accounts[1].balance",
            "Old value",
            "New value",
            "waiter",
        ],
    );
}

#[test]
fn memory_registers_and_calls() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-live-write");
    let text = joined(
        &scratch,
        &[
            "break handle",
            "continue",
            "print square(12)",
            "call square(3) + square(4)",
            "set var accounts[2].id = 4242",
            "print accounts[2].id",
            "set var accounts[2].id = 3",
            "set $r11 = 77",
            "print $r11",
            "print $xmm0 = $xmm0, 1",
            "bt 1",
            "continue",
            "print turn > 0",
        ],
    );
    has_in_order(
        &text,
        &[
            "hit Breakpoint 1, handle (turn=",
            "$1 = 144",
            "$2 = 25",
            "$3 = 4242",
            "$4 = 77",
            "#0  handle (turn=",
            "hit Breakpoint 1, handle (turn=",
            "= 1",
        ],
    );
}

#[test]
fn what_is_alive_has_no_past_in_gdb() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-live-past");
    for command in ["reverse-continue", "reverse-stepi"] {
        let text = joined(&scratch, &["break handle", "continue", command, "bt 1"]);
        has_in_order(&text, &["hit Breakpoint 1", "no past", "#0  handle"]);
    }
    let text = joined(&scratch, &["monitor goto start", "monitor where"]);
    has_in_order(&text, &["no past", "* alive-", "is halted"]);
}

#[test]
fn signals_come_as_gdb_says() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-live-signals");
    let service = Service::start(&scratch, &[]);
    let usr1 = format!("shell kill -USR1 {}", service.pid);
    let text = gdb(
        &scratch,
        &[service.pid.to_string()],
        &[
            "break on_usr1",
            // Told, and given to it.
            &usr1,
            "continue",
            "continue",
            "delete",
            // Told, and dropped.
            &usr1,
            "continue",
            "tbreak handle",
            "signal 0",
            // Not told.
            "handle SIGUSR1 nostop noprint pass",
            &usr1,
            "tbreak handle if usr1 == 2",
            "continue",
            "print usr1",
        ],
    );
    has_in_order(
        &text,
        &[
            "received signal SIGUSR1",
            "hit Breakpoint 1, on_usr1",
            "received signal SIGUSR1",
            "hit Temporary breakpoint 2, handle",
            "hit Temporary breakpoint 3, handle",
            "$1 = 2",
        ],
    );
    let said = service.end();
    assert!(said.contains(", 2 signals"), "{said}\n{text}");
}

/// A program from its first instruction: processes it makes are inferiors, it crashes,
/// and ends with gdb.
#[test]
fn a_program_is_started_and_followed() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-live-run");
    let service = program(&scratch);
    let text = gdb(
        &scratch,
        &["--".to_string(), service.display().to_string()],
        &[
            "break main",
            "continue",
            "break answer",
            "continue",
            "info inferiors",
            "bt 1",
            "delete",
            "break handle",
            "continue",
            "set var limit = 5",
            "delete",
            "continue",
            "bt",
            // It would end, too, by the end of what it reads from.
            "detach inferiors 2",
            "continue",
            "info inferiors",
        ],
    );
    has_in_order(
        &text,
        &[
            "Breakpoint 1, main",
            "\"answers\" hit Breakpoint 2",
            "process ",
            "process ",
            "#0  answer (",
            "\"worker\" hit Breakpoint 3",
            "received signal SIGABRT",
            "in worker",
            "detached]",
            "terminated with signal SIGABRT",
        ],
    );
}

/// How much a program that gdb started has seen of four times that gdb let it stand, in
/// microseconds. gdb is told of every signal, and of none that is the debugger's own.
fn perceived(observe: &[&str]) -> Vec<u64> {
    let scratch = Scratch::new("gdb-live-time");
    let file = programs::for_debuggers(&scratch, "debug/perceives.c", &[]);
    let mut words: Vec<String> = observe.iter().map(|word| word.to_string()).collect();
    words.extend([
        "--".to_string(),
        file.display().to_string(),
        "4".to_string(),
    ]);
    let mut script = vec!["handle all stop print", "break stand", "continue"];
    script.extend(["shell sleep 0.4", "continue"].repeat(4));
    let text = gdb(&scratch, &words, &script);
    assert!(!text.contains("received signal"), "{text}");
    assert!(text.contains("exited normally"), "{text}");
    let (_, seen) = text.split_once("perceived ").unwrap();
    let seen = seen.split(' ').map_while(|word| word.parse().ok());
    seen.collect()
}

/// A program that gdb starts runs under an agent.
#[test]
fn time_stands_while_gdb_waits() {
    tool!("gdb");
    let seen = perceived(&[]);
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|us| *us < 200_000), "{seen:?}");
    // By ptrace alone it sees all of it.
    let seen = perceived(&["--observe"]);
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|us| *us > 400_000), "{seen:?}");
}

#[test]
fn processes_that_come_stop_at_breakpoints_in_gdb() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-live-exec");
    let service = program(&scratch);
    let line = format!("{} & exec sleep 1000", service.display());
    let words = ["--", "/bin/sh", "-c", &line].map(str::to_string);
    let text = gdb(
        &scratch,
        &words,
        &[
            "break handle",
            "continue",
            "bt 1",
            "info inferiors",
            "kill inferiors 1 2",
        ],
    );
    has_in_order(
        &text,
        &[
            "is executing new program",
            "\"worker\" hit Breakpoint 1",
            "#0  handle (turn=",
        ],
    );
}

#[test]
fn several_are_joined_and_one_is_left() {
    tool!("gdb");
    let scratch = Scratch::new("gdb-live-two");
    let (one, two) = (Service::start(&scratch, &[]), Service::start(&scratch, &[]));
    let leave = format!("detach inferiors {}", 2);
    let text = gdb(
        &scratch,
        &[one.pid.to_string(), two.pid.to_string()],
        &[
            "info inferiors",
            "break handle",
            "continue",
            &leave,
            "inferior 1",
            "continue",
            "bt 1",
            "kill",
        ],
    );
    has_in_order(
        &text,
        &[
            "process ",
            "process ",
            "hit Breakpoint 1",
            "detached]",
            "hit Breakpoint 1",
            "#0  handle (",
            "killed]",
        ],
    );
    let said = two.end();
    assert!(said.contains("unharmed"), "{said}\n{text}");
    drop(one);
}

#[test]
fn what_cannot_be_joined_is_said_before_gdb_begins() {
    let scratch = Scratch::new("gdb-live-refused");
    for (words, what) in [
        (vec!["999999999".to_string()], "there is no process"),
        (vec!["no-such-name".to_string()], "no process is called"),
        (Vec::new(), "which processes?"),
        (
            vec!["--".to_string(), "/no/such/program".to_string()],
            "/no/such/program: No such file or directory",
        ),
    ] {
        let text = gdb(&scratch, &words, &["bt"]);
        assert!(text.contains(what), "{words:?}: {text}");
    }
}
