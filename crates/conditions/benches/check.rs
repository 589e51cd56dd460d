//! How fast rules are judged.
//!
//! `cargo bench -p conditions --bench check [-- --write FILE]`
//!
//! Patterns, recognizers and linked predicates over a recording of 10 million
//! events of 100 processes, one rule and ten; and the first state of a
//! conjunction over all 100. Each step runs in a process of its own, so that
//! memory is its own and nothing is warm but the page cache. With `--write` the
//! table is put into that page.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic
)]

#[path = "../../causality/benches/servers/mod.rs"]
mod servers;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use causality::History;
use conditions::check::{Options, check};
use conditions::recorded::Recorded;
use conditions::rules::Rules;
use conditions::truth::Nobody;
use recording::{Recording, ThreadNames};
use servers::{PROCESSES, make};

const MILLIONS: u64 = 10;

/// What is measured: name, rules, what must be reached.
fn cases() -> Vec<(&'static str, String)> {
    let lets = "let s = send and length > 0\nlet r = recv and length > 0\n";
    let pattern =
        |n: usize| format!("find p{n}: send and process = server-{n}* and length > {n}\n");
    let pattern = |n: usize| match n {
        0 => "find p0: send and length > 100000\n".to_string(),
        n => pattern(n),
    };
    let ten = |one: &dyn Fn(usize) -> String| (0..10).map(one).collect::<String>();
    let linked = |n: usize| format!("find l{n}: s -> r without connect -> s^{}\n", n + 2);
    let sequence = |n: usize| format!("recognizer r{n} over message: s (r | s){{{}}} r\n", n + 1);
    vec![
        ("one pattern", pattern(0)),
        ("ten patterns", ten(&pattern)),
        ("one linked predicate", format!("{lets}{}", linked(0))),
        ("ten linked predicates", format!("{lets}{}", ten(&linked))),
        ("one recognizer", format!("{lets}{}", sequence(0))),
        ("ten recognizers", format!("{lets}{}", ten(&sequence))),
        ("conjunction of 100", conjunction()),
    ]
}

/// Every process has just received and not yet sent.
fn conjunction() -> String {
    let mut rules = String::from("let s = send\nlet r = recv\n");
    let mut parts = Vec::new();
    for n in 0..PROCESSES {
        rules.push_str(&format!("state busy{n} = {}: from r until s\n", name(n)));
        parts.push(format!("busy{n}"));
    }
    rules.push_str(&format!("never all: {}\n", parts.join(" and ")));
    rules
}

fn name(n: usize) -> String {
    format!("server-{n}")
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["--make", dir] => make(Path::new(dir), MILLIONS * 1_000_000),
        ["--index", dir] => {
            let recording = Arc::new(Recording::open(Path::new(dir)).unwrap());
            History::build(&recording, &|_| {}).unwrap();
        }
        ["--case", dir, case] => run_case(Path::new(dir), case),
        ref rest => {
            let dir = tempfile::tempdir().unwrap();
            let dir = dir.path().join("recording");
            let dir = dir.to_str().unwrap();
            step(&["--make", dir]);
            step(&["--index", dir]);
            let mut rows = Vec::new();
            for (case, _) in cases() {
                rows.push(step(&["--case", dir, case]));
            }
            let table = table(&rows);
            println!("{table}");
            if let ["--write", page] = rest {
                write(Path::new(page), &table);
            }
        }
    }
}

fn step(args: &[&str]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// How long this thread, which does everything, had a core: others on the machine do
/// not count.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let ns: f64 = stat.split_whitespace().next().unwrap().parse().unwrap();
    ns / 1e9
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

fn run_case(dir: &Path, case: &str) {
    let recording = Arc::new(Recording::open(dir).unwrap());
    let history = History::open(&recording, &|_| {}).unwrap();
    assert!(!history.was_built());
    let names = ThreadNames::given(&recording);
    let recorded = Recorded::new(&history, names);
    // Processes of the recording are called after what they run.
    let (_, rules) = cases().into_iter().find(|(name, _)| *name == case).unwrap();
    let own = recording
        .processes()
        .iter()
        .map(|process| process.name.clone());
    let program = own.into_iter().next().unwrap();
    let program = program.rsplit_once('-').unwrap().0.to_string();
    let rules = rules.replace("server-", &format!("{program}-"));
    let rules = Rules::parse("bench", &rules, None).unwrap();
    let begun = cpu_seconds();
    let report = check(&rules, &recorded, &mut Nobody, Options { witnesses: 1 }).unwrap();
    let seconds = cpu_seconds() - begun;
    let last = report.verdicts.last().unwrap();
    println!(
        "{} {} {} {} {}",
        seconds,
        history.events(),
        peak(),
        last.outcome.name(),
        last.count
    );
}

fn table(rows: &[String]) -> String {
    let parsed: Vec<(f64, f64, u64)> = rows
        .iter()
        .map(|row| {
            let words: Vec<&str> = row.split_whitespace().collect();
            (
                words[0].parse().unwrap(),
                words[1].parse().unwrap(),
                words[2].parse().unwrap(),
            )
        })
        .collect();
    let mut out =
        String::from("| what | measured | goal | reached |\n| --- | ---: | ---: | --- |\n");
    let yes = |reached: bool| if reached { "yes" } else { "no" };
    let speed = |i: usize| parsed[i].1 / parsed[i].0 / 1e6;
    for (i, (case, _)) in cases().iter().enumerate() {
        if i == 6 {
            let (seconds, _, memory) = parsed[i];
            out.push_str(&format!(
                "| first state of a conjunction over 100 processes | {seconds:.2} s | <= 5 s | {} |\n",
                yes(seconds <= 5.0)
            ));
            out.push_str(&format!(
                "| its memory | {memory} MiB | <= 500 MiB | {} |\n",
                yes(memory <= 500)
            ));
        } else if i % 2 == 0 {
            out.push_str(&format!(
                "| {case} | {:.1} M events/s | >= 3 | {} |\n",
                speed(i),
                yes(speed(i) >= 3.0)
            ));
        } else {
            let ratio = parsed[i].0 / parsed[i - 1].0;
            out.push_str(&format!(
                "| {case}: time of one | {ratio:.2} | <= 1.5 | {} |\n",
                yes(ratio <= 1.5)
            ));
        }
    }
    out
}

/// Puts the table into a page, in place of the one that is there.
fn write(page: &Path, table: &str) {
    const HEAD: &str = "# What judging rules costs\n";
    let text = std::fs::read_to_string(page).unwrap();
    let (before, rest) = text.split_once(HEAD).unwrap_or((&text, ""));
    let (before, after) = (before.trim_end(), rest.find("\n# ").map(|at| &rest[at..]));
    let after = after.unwrap_or("");
    let cpu = recording::cpu_model().unwrap_or_default();
    let own = format!(
        "{before}\n\n{HEAD}\nWritten by the benchmark itself:\n\n    cargo bench -p conditions --bench check -- --write docs/benchmarks.md\n\n\
         - CPU: {cpu}, one core of it\n- {MILLIONS} million events over {PROCESSES} processes, indexed; time is that of the core\n\n{table}{after}"
    );
    std::fs::write(page, own).unwrap();
}
