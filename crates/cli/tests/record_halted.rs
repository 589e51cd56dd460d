//! Programs that are halted again and again while they are recorded: they print
//! what they do without, and the recording is one of a program that never was.
//!
//! `MW_SEED` says when they are halted.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::time::Duration;

use agent::control::{Answer, Client, Request};
use harness::programs::{self, program};
use harness::{Scratch, verified, wait_for};

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

/// Records a program that is halted for up to `longest` each time, `most` times;
/// how often it was.
fn halted(name: &str, args: &[&str], longest: Duration, most: u32) -> u32 {
    let mut dice = Dice(seed::seed(name, 3));
    let scratch = Scratch::new(&format!("halted-{name}"));
    let file = program(name);
    let command: Vec<&str> = [file.as_str()]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    // A place for the socket that is this test's own.
    let dir = scratch.fresh("runtime");
    std::fs::create_dir(&dir).unwrap();
    let mut running = scratch.setup(&command).env("XDG_RUNTIME_DIR", &dir).start();
    let pid = running.mw().as_raw_nonzero();
    let socket = dir.join(format!("meanwhile/{pid}.sock"));
    let mut client = wait_for("the agent", || {
        let client = Client::connect(&socket).ok().map(Some);
        client.or_else(|| running.is_over().then_some(None))
    });
    let mut count = 0;
    while let Some(client) = client.as_mut()
        && count < most
        && !running.is_over()
    {
        std::thread::sleep(Duration::from_micros(dice.roll(3000)));
        let request = Request::Halt {
            limit_ms: Some(20_000),
            keep_ms: None,
            overrides: false,
        };
        let Ok(Answer::Halted(halted)) = client.ask(&request) else {
            break;
        };
        assert!(!halted.is_partial, "{:?}", halted.stops);
        let longest = u64::try_from(longest.as_micros()).unwrap();
        std::thread::sleep(Duration::from_micros(dice.roll(longest)));
        if client.ask(&Request::Resume).is_err() {
            break;
        }
        count += 1;
    }
    let recorded = running.finish();
    let expected = programs::sources().join(format!("expected/{name}.txt"));
    let expected = std::fs::read_to_string(expected).unwrap();
    let outcome = &recorded.outcome;
    assert_eq!(
        (outcome.code(), outcome.stdout.as_str()),
        (0, expected.as_str()),
        "{}",
        outcome.stderr
    );
    verified::verify(&recorded.dir, &[]).is_equal();
    count
}

#[test]
fn programs_that_are_halted_replay() {
    let names = [
        "threads_mutex",
        "pipes",
        "sockets_inet",
        "signals_basic",
        "fork_exec_wait",
        "shared_memory",
        "interrupted",
        "rdtsc",
    ];
    let counts = names.map(|name| halted(name, &[], Duration::from_millis(2), u32::MAX));
    assert!(counts.iter().sum::<u32>() > 20, "{counts:?}");
}

#[test]
fn time_of_a_recorded_program_stands_still() {
    assert!(halted("time_limits", &["4"], Duration::from_millis(1500), 4) > 1);
}
