//! Conditions of breakpoints that a program judges itself while it runs (`protocol::pad`): at
//! any instruction, on every thread, in children, while signals come, recorded or not.
//!
//! `MW_SEED` says where the breakpoints are.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::alive::mw;
use harness::{Scratch, programs, verified};
use rustix::process::{Pid, Signal, kill_process};

/// What it says when nothing was noticed.
const UNHARMED: &str = ", 0 wrong, code as it was";

fn built(scratch: &Scratch, options: &[&str]) -> PathBuf {
    programs::for_debuggers(scratch, "debug/judged.c", options)
}

/// Runs it for so many rounds, with commands before.
fn run(word: &str, file: &Path, rounds: u32, commands: &[String]) -> String {
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let rest = [file.to_str().unwrap(), &rounds.to_string()].map(str::to_string);
    let (text, status) = mw(word, &rest, &commands);
    assert_eq!(status, 0, "{commands:?}\n{text}");
    text
}

/// The instructions of a function, by how far they are from its beginning.
fn instructions(file: &Path, function: &str) -> Vec<u64> {
    let symbol = format!("--disassemble={function}");
    let output = Command::new("objdump")
        .arg(symbol)
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| {
        let (address, rest) = line.trim().split_once(":\t")?;
        // (A long instruction has a second line, with bytes alone.)
        let address = u64::from_str_radix(address, 16).ok()?;
        rest.contains('\t').then_some(address)
    });
    let all: Vec<u64> = lines.collect();
    assert!(!all.is_empty(), "{function}: {text}");
    all.iter().map(|address| address - all[0]).collect()
}

/// Breakpoints at instructions taken at random, some of them next to each other.
#[test]
fn a_program_does_not_notice_where_it_is_judged() {
    let mut dice = seed::seed("where", 5);
    let mut roll = move |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice as usize % sides
    };
    for options in [&["-no-pie"][..], &["-O1"], &["-O2", "-fno-inline"]] {
        let scratch = Scratch::new("judged-anywhere");
        let file = built(&scratch, options);
        let functions = ["kinds", "mix", "look", "twice", "worker", "on_tick"];
        for _ in 0..6 {
            let mut commands = Vec::new();
            for function in functions {
                let all = instructions(&file, function);
                for _ in 0..=all.len() / 12 {
                    let at = all[roll(all.len())];
                    commands.push(format!("break *(long)&{function}+{at} if $rsp == 1"));
                }
            }
            commands.push("continue".to_string());
            let text = run("run", &file, 200, &commands);
            assert!(text.contains(UNHARMED), "{options:?} {commands:#?}\n{text}");
        }
    }
}

/// Five times the rounds, each at least once: a trap for each takes some 300 s.
#[test]
fn what_is_false_costs_no_trap() {
    let scratch = Scratch::new("judged-quickly");
    let file = built(&scratch, &[]);
    let commands = ["break kinds if n == 77777777", "continue"].map(String::from);
    let begun = Instant::now();
    let text = run("run", &file, 200_000, &commands);
    let took = begun.elapsed();
    assert!(text.contains(UNHARMED), "{text}");
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// It stops where the warden would have had it stop, with the same to be seen.
#[test]
fn what_is_true_stops_there() {
    let scratch = Scratch::new("judged-stops");
    let file = built(&scratch, &[]);
    let mut commands = vec!["break kinds if k != 7 && n % 256 == 3".to_string()];
    for _ in 0..3 {
        let lines = ["continue", "print k * 1000000 + n", "bt 2", "next"];
        commands.extend(lines.map(String::from));
    }
    commands.extend(["delete".to_string(), "continue".to_string()]);
    let seen = |word: &str| -> Vec<String> {
        let text = run(word, &file, 3000, &commands);
        assert!(text.contains(UNHARMED), "{text}");
        let lines = text.lines().filter(|line| line.starts_with(['$', '#']));
        // Addresses are not the same each time.
        let lines = lines.map(|line| line.split(" in ").last().unwrap().to_string());
        lines.collect()
    };
    let judged = seen("run");
    assert_eq!(judged.len(), 9, "{judged:?}");
    assert_eq!(judged, seen("run --observe"));
}

#[test]
fn what_is_recorded_meanwhile_replays() {
    let scratch = Scratch::new("judged-recorded");
    let file = built(&scratch, &["-O1"]);
    for round in 0..3 {
        let dir = scratch.path().join(format!("recording-{round}"));
        let word = format!("run --record -o {}", dir.display());
        let lines = [
            "break kinds if n == 77777777",
            "break look if at == 1",
            "tbreak mix if rounds == 4000",
            "continue",
            "bt",
            "continue",
        ];
        let text = run(&word, &file, 4000, &lines.map(String::from));
        assert!(text.contains(UNHARMED), "{text}");
        verified::verify(&dir, &[]).is_equal();
    }
}

/// The code is as it was, however often it is stopped, and whoever stands in it then.
#[test]
fn who_is_left_has_its_own_code() {
    let scratch = Scratch::new("judged-left");
    let file = built(&scratch, &["-O1"]);
    let mut child = Command::new(&file)
        .args(["3000", "wait"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let pid: i32 = line.trim().parse().unwrap();
    for _ in 0..3 {
        let halts = ["resume 30ms"; 10];
        let judged = ["break kinds if n == 77777777", "break mix if rounds == 1"];
        let commands: Vec<&str> = judged.into_iter().chain(halts).chain(["detach"]).collect();
        let (text, status) = mw("attach", &[pid.to_string()], &commands);
        assert_eq!(status, 0, "{text}");
    }
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    assert!(
        text.contains(UNHARMED) && status.success(),
        "{status} {text}"
    );
}

/// Who is stepped does not find that in its flags, nor is anybody who takes them up again.
#[test]
fn a_program_does_not_see_that_it_is_stepped() {
    let scratch = Scratch::new("judged-flags");
    let file = programs::for_debuggers(&scratch, "debug/flags.c", &["-O1"]);
    let mut commands = vec!["break flags".to_string(), "continue".to_string()];
    commands.extend((0..8).map(|_| "stepi".to_string()));
    commands.extend(["delete".to_string(), "continue".to_string()]);
    for word in ["run", "run --observe"] {
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let (text, status) = mw(word, &[&file], &commands);
        let is_unseen = text.contains("not stepped") && !text.contains("SIGTRAP");
        assert!(status == 0 && is_unseen, "{word}: {status}\n{text}");
    }
}
