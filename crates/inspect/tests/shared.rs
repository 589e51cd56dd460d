//! One library of symbols serves several threads, and what was read of a file
//! is kept once, whoever asks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod common;

use std::sync::{Arc, Barrier};

use common::Build;
use inspect::core::CoreFile;
use inspect::print::PrintOptions;
use inspect::print::backtrace::{backtrace, variables};
use inspect::scope::Scope;
use inspect::{Inspector, Library, Options, Process};

/// Everything about one core, as text.
fn describe(library: &Library, core: &std::path::Path) -> String {
    let process = CoreFile::open(core).unwrap();
    let inspector = Inspector::new(library, &process);
    let options = PrintOptions::default();
    let mut out = String::new();
    for thread in process.threads() {
        let stack = inspector.stack(thread, 100).unwrap();
        out += &backtrace(&inspector, &stack, &options);
        for level in 0..stack.frames.len() {
            let scope = Scope::new(&inspector, &stack, level).unwrap();
            out += &variables(scope, &scope.locals(), &options).join("\n");
            out += &variables(scope, &scope.arguments(), &options).join("\n");
        }
    }
    for name in ["main", "largest", "Circle::area"] {
        if let Ok(found) = inspector.resolve(name, None) {
            out += &format!("{name} {:x?}\n", found.iter().map(|l| l.address));
        }
    }
    out
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn four_threads_share_a_library() {
    if !common::has("gdb") {
        return;
    }
    let build = Build {
        source: "shapes.cpp",
        level: 2,
    };
    let cores: Vec<std::path::PathBuf> = build
        .stops(10, 3)
        .iter()
        .map(|answer| answer["core"].as_str().unwrap().into())
        .collect();
    // All four begin at once, with nothing read yet.
    let library = Arc::new(Library::new(Options::default()));
    let begin = Barrier::new(4);
    let answers: Vec<Vec<String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (library, cores, begin) = (Arc::clone(&library), &cores, &begin);
                scope.spawn(move || {
                    begin.wait();
                    let mut order: Vec<usize> = (0..cores.len()).collect();
                    order.rotate_left(number * 2);
                    let mut answers = vec![String::new(); cores.len()];
                    for at in order {
                        answers[at] = describe(&library, &cores[at]);
                    }
                    answers
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let alone: Vec<String> = cores.iter().map(|core| describe(&library, core)).collect();
    assert!(alone.iter().all(|text| text.len() > 200));
    for answer in &answers {
        assert!(*answer == alone);
    }

    // Sessions come and go; what they read stays, but once.
    let before = memory();
    for _ in 0..30 {
        let library = Library::new(Options::default());
        assert!(describe(&library, &cores[0]) == alone[0]);
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 10_000, "{grown} KiB more after 30 sessions");
}
