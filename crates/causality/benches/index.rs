//! How long it takes to find the causes in a recording, how much memory, and
//! how long questions take thereafter, at 1, 3 and 10 million events over 100
//! processes.
//!
//! `cargo bench -p causality --bench index [-- MILLIONS...]`
//!
//! Each step runs in a process of its own, so that memory is its own and
//! nothing is warm but the page cache.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic
)]

mod servers;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use causality::{EventId, History, Limits};
use protocol::id::{EventNo, ProcessIx};
use recording::Recording;
use servers::{PROCESSES, make};

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--make", dir, events] => make(Path::new(dir), events.parse().unwrap()),
        ["--index", dir] => index(Path::new(dir)),
        ["--ask", dir] => ask(Path::new(dir)),
        ref sizes => {
            let sizes: Vec<u64> = sizes.iter().map(|size| size.parse().unwrap()).collect();
            let sizes = if sizes.is_empty() {
                vec![1, 3, 10]
            } else {
                sizes
            };
            println!("events over {PROCESSES} processes; questions in ms, each by a new process");
            for millions in sizes {
                let dir = tempfile::tempdir().unwrap();
                let dir = dir.path().join("recording");
                let dir = dir.to_str().unwrap();
                run(&["--make", dir, &(millions * 1_000_000).to_string()]);
                run(&["--index", dir]);
                run(&["--ask", dir]);
            }
        }
    }
}

fn run(args: &[&str]) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(args)
        .status();
    assert!(status.unwrap().success());
}

/// The most memory this process ever had, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

fn index(dir: &Path) {
    let begun = Instant::now();
    let recording = Arc::new(Recording::open(dir).unwrap());
    let history = History::build(&recording, &|_| {}).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    let size = std::fs::metadata(History::path(&recording)).unwrap().len() >> 20;
    println!(
        "{:>9} events, {:>8} links: indexed in {seconds:.2} s ({:.2} us an event), {} MiB at most, index {size} MiB, {} guesses, {} dropped",
        history.events(),
        history.link_count(),
        seconds * 1e6 / history.events() as f64,
        peak(),
        history.guesses(),
        history.dropped(),
    );
}

fn ask(dir: &Path) {
    let begun = Instant::now();
    let recording = Arc::new(Recording::open(dir).unwrap());
    let opened = begun.elapsed();
    let history = History::open(&recording, &|_| {}).unwrap();
    assert!(!history.was_built());
    let history_opened = begun.elapsed() - opened;
    let end = |place: u32| history.span(ProcessIx(place)).1.0;
    let mut times: Vec<(&str, f64)> = Vec::new();
    let mut time = |what: &'static str, question: &mut dyn FnMut()| {
        let begun = Instant::now();
        question();
        times.push((what, begun.elapsed().as_secs_f64() * 1000.0));
    };
    let late = EventId::new(ProcessIx(42), EventNo(end(42) - 5));
    let early = EventId::new(ProcessIx(17), EventNo(300));
    let middle = EventId::new(ProcessIx(63), EventNo(end(63) / 2));
    time("order", &mut || {
        history.order(middle, late);
    });
    time("order and path, far", &mut || {
        assert!(history.path_between(early, late).is_some());
    });
    time("cut", &mut || {
        history.past(late);
    });
    time("cut --latest, early", &mut || {
        history.latest(early);
    });
    time("in flight", &mut || {
        let cut = history.past(middle);
        for channel in 0..history.channel_count() {
            history.in_flight(channel, &cut);
        }
    });
    time("why", &mut || {
        assert!(!history.explain(late, Limits::default()).is_empty());
    });
    assert!(!history.is_damaged());
    print!(
        "  open the recording {:.1}, the index {:.1}",
        opened.as_secs_f64() * 1000.0,
        history_opened.as_secs_f64() * 1000.0
    );
    for (what, ms) in times {
        print!("; {what} {ms:.1}");
    }
    println!("; {} MiB at most", peak());
}
