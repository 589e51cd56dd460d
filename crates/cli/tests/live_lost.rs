//! Programs whose debugger or agent is killed: they run on, as they were, and nothing that was
//! there for them stays behind.
//!
//! `MW_SEED` says when, `MW_ROUNDS` how often.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::alive::Service;
use harness::processes::{Marker, VARIABLE, describe};
use harness::{MW, Scratch, programs, wait_for};
use rustix::process::{Pid, Signal, kill_process};

/// `mw` at the other end of two pipes.
fn prompt(marker: &Marker, words: &[&str]) -> Child {
    Command::new(MW)
        .args(words)
        .env(VARIABLE, marker.value())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn killed(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What was started under the debugger stands for as long as was said when that is killed, goes
/// on then without having seen anything, and takes its agent with it when it ends.
#[test]
fn a_program_that_was_run_outlives_its_debugger_and_leaves_nobody() {
    let scratch = Scratch::new("lost-run");
    let file = programs::for_debuggers(&scratch, "debug/perceives.c", &[]);
    for keep in ["0", "1"] {
        let marker = Marker::unique();
        let words = ["run", "--keep", keep, "--", file.to_str().unwrap(), "1"];
        let mut debugger = prompt(&marker, &words);
        let mut said = BufReader::new(debugger.stdout.take().unwrap());
        let mut tell = debugger.stdin.take().unwrap();
        writeln!(tell, "break stand\ncontinue").unwrap();
        let mut line = String::new();
        while !line.contains("stand at ") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it has ended");
        }
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        killed(&mut debugger);
        // All of them have this pipe.
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        let kept = Duration::from_secs(keep.parse().unwrap());
        assert!(begun.elapsed() >= kept, "{:?}", begun.elapsed());
        let (_, seen) = text.split_once("perceived ").unwrap();
        let us: u64 = seen.split(' ').next().unwrap().parse().unwrap();
        assert!(us < 200_000, "{text}");
        wait_for("all to be gone", || {
            marker.processes().is_empty().then_some(())
        });
    }
}

/// One that is running when the debugger is killed runs on at once.
#[test]
fn a_program_that_runs_is_not_kept() {
    let scratch = Scratch::new("lost-running");
    let file = harness::alive::program(&scratch);
    let marker = Marker::unique();
    let mut debugger = prompt(&marker, &["run", "--go", "--", file.to_str().unwrap()]);
    let mut said = BufReader::new(debugger.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let pid: i32 = line.trim().parse().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    killed(&mut debugger);
    let begun = Instant::now();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(text.contains("unharmed"), "{text}");
    // (The default is to keep it for a minute.)
    assert!(begun.elapsed() < Duration::from_secs(30));
    wait_for("all to be gone", || {
        let left = marker.processes();
        left.is_empty().then_some(()).or_else(|| {
            eprintln!("{}", describe(&left));
            None
        })
    });
}

/// The agent that brings the monitor into a process.
fn injector(debugger: &Child) -> Option<i32> {
    let all = live::candidates();
    let pids = live::descendants(debugger.id() as i32, &all);
    let agents = all
        .iter()
        .filter(|c| pids.contains(&c.pid) && c.command.contains(" govern-running "));
    // What it has made for the work itself has its words, too.
    agents.map(|c| c.pid).min()
}

/// The agent is killed while it brings the monitor in, or takes it out again: the program is as
/// it was or has joined, and runs on.
#[test]
fn an_agent_that_is_killed_while_it_comes_in_does_no_harm() {
    let scratch = Scratch::new("lost-injector");
    let rounds = std::env::var("MW_ROUNDS").map_or(40, |text| text.parse().unwrap());
    let mut state = seed::seed("when the agent is killed", 0x1a7e);
    let mut below = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let mut in_the_middle = 0;
    for round in 0..rounds {
        let service = Service::start(&scratch, &["fast"]);
        let pid = service.pid.to_string();
        let mut debugger = Command::new(MW)
            .args(["attach", "--keep", "0", "--batch", "-e", "detach", &pid])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let agent = wait_for("the agent", || injector(&debugger));
        // It begins with what can be found out while the program runs.
        let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let begun = Instant::now();
        while status().contains("TracerPid:\t0\n") && begun.elapsed() < Duration::from_millis(500) {
            std::hint::spin_loop();
        }
        let until = Instant::now() + Duration::from_micros(below(12_000));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let tracer = status();
        let tracer = tracer.lines().find(|line| line.starts_with("TracerPid:"));
        let _ = kill_process(Pid::from_raw(agent).unwrap(), Signal::KILL);
        if tracer != Some("TracerPid:\t0") {
            in_the_middle += 1;
        }
        debugger.wait().unwrap();
        wait_for("it to be let go", || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            let status = status.unwrap_or_else(|_| panic!("round {round}: it is gone"));
            status.contains("TracerPid:\t0\n").then_some(())
        });
        std::thread::sleep(Duration::from_millis(20));
        let said = service.end();
        assert!(said.contains("unharmed"), "round {round}: {said}");
    }
    assert!(in_the_middle * 4 >= rounds, "{in_the_middle} of {rounds}");
}
