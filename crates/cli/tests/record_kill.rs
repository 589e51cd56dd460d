//! Kills the program, or `mw`, at any moment, and reads what is left.
//!
//! `MW_KILL_ROUNDS` says how often (24), `MW_SEED` when and whom. A round
//! that fails names its seed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::time::Duration;

use harness::programs::{self, program, script};
use harness::recorded::Recorded;
use harness::{Running, Scratch};
use rustix::process::Signal;

/// Numbers that look random and come again with the seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => default,
    }
}

/// Rounds with one program: in every other round `mw` is killed, else one of
/// the program's processes.
fn rounds(name: &str, command: &[String], lasts: Duration) {
    let seed = number("MW_SEED", 1);
    let rounds = number("MW_KILL_ROUNDS", 24).div_ceil(3);
    for round in seed..seed + rounds {
        eprintln!("MW_SEED={round} MW_KILL_ROUNDS=1: {name}");
        let mut dice = Dice(round);
        let scratch = Scratch::new(&format!("kill-{name}"));
        let running = scratch.start(command);
        let delay = dice.roll(u64::try_from(lasts.as_micros()).unwrap());
        std::thread::sleep(Duration::from_micros(delay));
        if round % 2 == 0 {
            kill_recorder(running);
        } else {
            kill_program(running, &mut dice);
        }
    }
}

/// The recording of a program of which a process was killed is whole.
fn kill_program(mut running: Running<'_>, dice: &mut Dice) {
    let program = running.program();
    let mut killed = None;
    if let Some(sides) = std::num::NonZeroU64::new(program.len() as u64) {
        let victim = program[usize::try_from(dice.roll(sides.get())).unwrap()];
        // It may have ended by now.
        if rustix::process::kill_process(victim, Signal::KILL).is_ok() {
            killed = Some(victim);
        }
    }
    // The others may wait for the dead one for ever.
    for _ in 0..100 {
        if running.is_over() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for pid in running.program() {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    let recorded = running.finish();
    recorded.is_sound();
    // The victim may have been on its way out, or not yet on its way in.
    let victim = killed.and_then(|pid| {
        let pid = u64::try_from(pid.as_raw_pid()).unwrap();
        recorded.processes().iter().find(|p| p.pid() == pid)
    });
    if let Some(victim) = victim {
        let left = recorded.count(|e| e.process() == victim.name() && e.kind() == "exit") > 0;
        assert!(
            victim.signal() == Some("SIGKILL") || left,
            "{}",
            recorded.ask(&["ps"])
        );
    }
}

/// `mw` has a helper that waits for the program's processes.
#[test]
fn the_helper_of_mw() {
    let scratch = Scratch::new("kill-helper");
    let mut running = scratch.start(&["sh", "-c", "echo ready; sleep 1; echo done; exit 5"]);
    harness::wait_for("the program", || {
        running.stdout().contains("ready").then_some(())
    });
    let program = running.program();
    let helpers = running
        .processes()
        .into_iter()
        .filter(|pid| *pid != running.mw() && !program.contains(pid));
    for helper in helpers {
        rustix::process::kill_process(helper, Signal::KILL).unwrap();
    }
    let outcome = running.wait(harness::LIMIT);
    assert!(running.program().is_empty(), "mw waits for the program");
    let recorded = Recorded::new(running.dir().to_path_buf(), outcome);
    assert_eq!(recorded.outcome.stdout, "ready\ndone\n");
    assert_eq!(recorded.outcome.code(), 5);
    recorded.is_sound();
}

/// The recording of an `mw` that was killed is readable up to there, at once
/// and when the program has ended too.
fn kill_recorder(mut running: Running<'_>) {
    let over = running.is_over();
    if !over {
        running.signal(Signal::KILL);
    }
    let outcome = running.wait(harness::LIMIT);
    let dir = running.dir().to_path_buf();
    if !dir.join("manifest.json").exists() {
        // Killed before there was a recording: nothing may have run.
        assert_eq!(outcome.stdout, "");
        running.wait_for_all();
        return;
    }
    read(&dir);
    running.wait_for_all();
    let recorded = Recorded::new(dir, outcome);
    recorded.is_readable();
    let info = recorded.info();
    if recorded.outcome.status.code().is_some() {
        // It was done before it was killed.
        assert_eq!(info["complete"], true, "{info:#}");
    } else if info["complete"] == true {
        // It was killed on its way out, when all was stored: then all is there.
        assert_eq!(info["problems"], serde_json::json!([]), "{info:#}");
        for process in recorded.processes() {
            let ended = process.status().is_some() || process.signal().is_some();
            assert!(ended, "nobody knows how {} ended", process.name());
        }
    } else {
        assert_eq!(info["complete"], false, "{info:#}");
        let text = recorded.ask(&["info"]);
        assert!(text.contains("cut short"), "{text}");
    }
}

/// All commands succeed, while the program may still run.
fn read(dir: &std::path::Path) {
    for args in [&["ps"][..], &["events"], &["events", "--json"], &["info"]] {
        harness::recorded::ask(dir, args);
    }
}

#[test]
fn pipe_pingpong() {
    let command = [program("pipe_pingpong"), "10000".to_string()];
    rounds("pipe_pingpong", &command, Duration::from_millis(300));
}

#[test]
fn python() {
    tool!("python3");
    let script = script("python/threads_subprocess.py");
    let command = ["/usr/bin/python3".to_string(), script];
    rounds("python", &command, Duration::from_millis(1000));
}

#[test]
fn bank() {
    rounds("bank", &[programs::bank()], Duration::from_millis(250));
}

/// Those that share memory run one at a time: who is stopped from outside while it computes holds
/// up the others, and the user is told why nothing goes on.
#[test]
fn who_is_stopped_while_it_computes_is_told_of() {
    let python = tool!("python3");
    let scratch = Scratch::new("kill-stopped");
    let go = scratch.path().join("go");
    let computes = "import mmap, os, sys, time\n\
                    shared = mmap.mmap(-1, 4096)\n\
                    child = os.fork()\n\
                    while child == 0 and shared[0] == 0:\n    shared[1] = (shared[1] + 1) % 256\n\
                    if child == 0: os._exit(0)\n\
                    print(child, flush=True)\n\
                    while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n\
                    shared[0] = 1\n\
                    os.wait()\n\
                    print('done')\n";
    let running = scratch.start(&[python.as_str(), "-c", computes, go.to_str().unwrap()]);
    let child = harness::wait_for("the child", || running.stdout().trim().parse().ok());
    let child = rustix::process::Pid::from_raw(child).unwrap();
    let send = |signal| rustix::process::kill_process(child, signal).unwrap();
    let said = "those that share memory with it wait until it goes on";
    harness::wait_for("a word", || {
        // Who waits for its turn just then holds up nobody.
        send(Signal::STOP);
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_secs(8) && !running.stderr().contains(said) {
            std::thread::sleep(Duration::from_millis(5));
        }
        send(Signal::CONT);
        running.stderr().contains(said).then_some(())
    });
    std::fs::write(&go, "").unwrap();
    let recorded = running.finish();
    assert!(recorded.outcome.stdout.ends_with("done\n"));
    recorded.replays();
}

/// A program that hangs, and does not even die of it, does not keep `mw` from
/// ending when that is asked to.
#[test]
fn a_program_that_hangs_is_ended_by_sigterm() {
    let scratch = Scratch::new("kill-hangs");
    let hangs = "trap '' TERM; echo ready; sleep 1000 & wait; sleep 1000";
    let mut running = scratch.start(&["sh".to_string(), "-c".to_string(), hangs.to_string()]);
    harness::wait_for("it to hang", || {
        (running.stdout() == "ready\n").then_some(())
    });
    std::thread::sleep(Duration::from_millis(300));
    let begun = std::time::Instant::now();
    running.signal(Signal::TERM);
    let dir = running.dir().to_path_buf();
    let outcome = running.wait(harness::LIMIT);
    let took = begun.elapsed();
    // One second, on a machine that has nothing else to do.
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(
        outcome.stderr.contains("it is killed"),
        "{}",
        outcome.stderr
    );
    let text = harness::recorded::ask(&dir, &["ps", "-r"]);
    assert!(text.contains("SIGKILL") || text.contains("137"), "{text}");
    harness::recorded::ask(&dir, &["events", "-r"]);
}

/// One that is silent for a while before it ends, because it gives others time, is
/// not taken for one that hangs.
#[test]
fn a_program_that_drains_is_not_ended_by_sigterm() {
    let scratch = Scratch::new("kill-drains");
    let drains =
        "trap 'sleep 2; echo drained; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = scratch.start(&["sh".to_string(), "-c".to_string(), drains.to_string()]);
    harness::wait_for("it to be ready", || {
        (running.stdout() == "ready\n").then_some(())
    });
    running.signal(Signal::TERM);
    let outcome = running.wait(harness::LIMIT);
    assert_eq!(outcome.stdout, "ready\ndrained\n", "{}", outcome.stderr);
    assert_eq!(outcome.code(), 7);
}
