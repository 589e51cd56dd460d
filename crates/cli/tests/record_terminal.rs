//! A recorded program in a terminal behaves as it does without `mw`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::time::{Duration, Instant};

use harness::recorded::Recorded;
use harness::terminal::Terminal;
use harness::{MW, Scratch};

/// Runs a command to its end in a terminal: the screen and the exit status.
fn run(command: &[&str], typed: &str) -> (String, i32) {
    let terminal = Terminal::new();
    let mut child = terminal.run(command);
    if !typed.is_empty() {
        terminal.await_text("ready", 1);
        terminal.type_in(typed);
    }
    let status = terminal.wait(&mut child);
    // What the program wrote last may be on its way still.
    std::thread::sleep(Duration::from_millis(50));
    (terminal.screen(), status)
}

/// Runs a shell script in a terminal, recorded and not: the same comes out.
fn same(name: &str, script: &str, typed: &str) -> String {
    let scratch = Scratch::new(name);
    let dir = scratch.path().join("recording");
    let dir = dir.to_str().unwrap();
    scratch.note(format!("{MW} record -o {dir} -- sh -c '{script}'"));
    let native = run(&["sh", "-c", script], typed);
    let recorded = run(
        &[MW, "record", "-q", "-o", dir, "--", "sh", "-c", script],
        typed,
    );
    assert_eq!(recorded, native);
    harness::recorded::ask(std::path::Path::new(dir), &["info"]);
    recorded.0
}

#[test]
fn standard_streams_are_the_terminal() {
    let screen = same(
        "tty",
        "test -t 0 && test -t 1 && test -t 2 && echo all; stty size; stty -a | grep -o icanon",
        "",
    );
    assert_eq!(screen, "all\n33 99\nicanon\n");
}

#[test]
fn the_program_reads_what_is_typed() {
    let screen = same(
        "typed",
        "echo ready; read line; echo \"got $line\"; exit 7",
        "hello\n",
    );
    assert!(screen.ends_with("got hello\n"), "{screen}");
}

#[test]
fn the_program_is_in_the_foreground() {
    // What is not is stopped when it changes the terminal.
    same(
        "foreground",
        "stty -echo; echo ready; read line; stty echo; echo \"<$line>\"",
        "x\n",
    );
}

#[test]
fn control_c_goes_to_the_program() {
    let screen = same(
        "interrupt",
        "trap 'echo caught; exit 9' INT; echo ready; while :; do :; done",
        "\x03",
    );
    assert!(screen.contains("caught"), "{screen}");
}

#[test]
fn control_c_ends_what_does_not_handle_it() {
    same("interrupted", "echo ready; exec sleep 60", "\x03");
}

#[test]
fn control_backslash_goes_to_the_program() {
    same(
        "quit",
        "trap 'echo quit; exit 3' QUIT; echo ready; while :; do :; done",
        "\x1c",
    );
}

#[test]
fn a_second_control_c_ends_a_program_that_ignores_it() {
    let scratch = Scratch::new("twice");
    let dir = scratch.path().join("recording");
    let script = "trap 'echo caught' INT; echo ready; while :; do sleep 0.05; done";
    let terminal = Terminal::new();
    let dir_text = dir.to_str().unwrap();
    let mut child = terminal.run(&[MW, "record", "-o", dir_text, "--", "sh", "-c", script]);
    terminal.await_text("ready", 1);
    terminal.type_in("\x03");
    terminal.await_text("caught", 1);
    assert!(child.try_wait().unwrap().is_none(), "one does not end it");
    terminal.type_in("\x03");
    let status = terminal.wait(&mut child);
    assert_eq!(status, 137, "{}", terminal.screen());
    assert!(terminal.is_empty(), "nothing is left");
    let outcome = harness::Outcome {
        status: std::os::unix::process::ExitStatusExt::from_raw(status << 8),
        stdout: terminal.screen(),
        stderr: String::new(),
        took: Duration::ZERO,
        line: String::new(),
    };
    let recorded = Recorded::new(dir, outcome);
    recorded.is_sound();
    recorded.has("the first", |e| {
        e.process() == "sh-0" && e.delivers("SIGINT")
    });
    assert_eq!(recorded.process("sh-0").signal(), Some("SIGKILL"));
}

#[test]
fn control_z_stops_the_program_and_it_continues() {
    // An interactive shell, as people have, has job control.
    let scratch = Scratch::new("stop");
    let dir = scratch.path().join("recording");
    let terminal = Terminal::new();
    let mut shell = terminal.run(&["bash", "--norc", "--noprofile", "-i"]);
    let record = format!("{MW} record -o {} -- ", dir.display());
    let script = "echo rea\"\"dy; while ! test -e done; do sleep 0.05; done; echo f\"\"inished";
    terminal.type_in(&format!(
        "cd {}; {record} sh -c '{script}'\n",
        scratch.path().display()
    ));
    terminal.await_text("ready", 1);
    terminal.type_in("\x1a");
    terminal.await_text("Stopped", 1);
    std::fs::write(scratch.path().join("done"), "").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(!terminal.screen().contains("finished"), "it was stopped");
    terminal.type_in("fg\n");
    terminal.await_text("finished", 1);
    terminal.type_in("exit\n");
    terminal.wait(&mut shell);
}

#[test]
fn a_daemon_that_detaches_is_waited_for() {
    let scratch = Scratch::new("daemon");
    let begin = Instant::now();
    let script = "(setsid sh -c 'sleep 1; echo late' &) ; echo early";
    let recorded = scratch.record(&["sh", "-c", script]);
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(recorded.outcome.stdout, "early\nlate\n");
    assert_eq!(recorded.outcome.code(), 0);
    recorded.is_sound();
    recorded.has("the daemon's end", |e| {
        e.call() == "write" && e.word("buf") == "late\n"
    });
}

#[test]
fn hang_up_and_termination_are_passed_on() {
    for signal in [
        rustix::process::Signal::TERM,
        rustix::process::Signal::HUP,
        rustix::process::Signal::INT,
    ] {
        let scratch = Scratch::new("passed-on");
        let script = "trap 'echo terminated; exit 5' TERM HUP INT; echo ready; \
                      while :; do sleep 0.05; done";
        let running = scratch.start(&["sh", "-c", script]);
        harness::wait_for("the program", || {
            running.stdout().contains("ready").then_some(())
        });
        running.signal(signal);
        let recorded = running.finish();
        assert_eq!(recorded.outcome.stdout, "ready\nterminated\n");
        assert_eq!(recorded.outcome.code(), 5);
        recorded.is_sound();
    }
}
