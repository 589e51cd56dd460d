//! How fast rules are judged.
//!
//! `cargo bench -p conditions --bench check -- [--quick] [--write FILE]`
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

/// What a case is held against.
enum Goal {
    /// So many million events a second.
    Speed(f64),
    /// Against the case so far before it: at most so many times that.
    Times(usize, f64),
    /// Against the case so far before it, with nothing to reach.
    Told(usize),
    /// Half the events, against the case so far before it: that takes at most so many
    /// times as long.
    Linear(usize, f64),
    /// Seconds and MiB.
    State(f64, u64),
}

/// What is measured: name, rules, which recording (0: the whole, 1: half of it), and what
/// must be reached. Rules that are compared are alike: ten of them are ten times the
/// first, about processes of their own (whose names end with another digit) or all about
/// the same events.
fn cases() -> Vec<(&'static str, String, usize, Goal)> {
    let lets = |own: &str| {
        format!(
            "let s{own} = send and process = server-*{own} and length > 0\n\
             let r{own} = recv and process = server-*{own} and length > 0\n"
        )
    };
    let pattern = |n: usize| format!("find p{n}: send and length > {}\n", 100_000 + n);
    let linked =
        |n: usize, own: &str| format!("find l{n}: s{own} -> r{own} without connect -> s{own}^2\n");
    let sequence = |n: usize, own: &str| {
        format!("recognizer r{n} over message: s{own} (r{own} | s{own}){{2}} r{own}\n")
    };
    type Rule<'r> = &'r dyn Fn(usize, &str) -> String;
    let all = |rule: Rule<'_>| format!("{}{}", lets(""), rule(0, ""));
    let apart = |rule: Rule<'_>, count: usize| {
        let own = |n: usize| lets(&n.to_string()) + &rule(n, &n.to_string());
        (0..count).map(own).collect::<String>()
    };
    let same = |rule: Rule<'_>| {
        let each = (0..10).map(|n| rule(n, ""));
        lets("") + &each.collect::<String>()
    };
    let ten = (0..10).map(pattern).collect::<String>();
    vec![
        ("one pattern", pattern(0), 0, Goal::Speed(3.0)),
        (
            "ten patterns of the same events",
            ten,
            0,
            Goal::Times(1, 1.5),
        ),
        ("one linked predicate", all(&linked), 0, Goal::Speed(3.0)),
        (
            "it, over half the events",
            all(&linked),
            1,
            Goal::Linear(1, 2.2),
        ),
        (
            "a linked predicate of a tenth of the processes",
            apart(&linked, 1),
            0,
            Goal::Speed(3.0),
        ),
        ("ten of these", apart(&linked, 10), 0, Goal::Times(1, 1.5)),
        ("ten of all processes", same(&linked), 0, Goal::Told(4)),
        ("one recognizer", all(&sequence), 0, Goal::Speed(3.0)),
        (
            "it, over half the events",
            all(&sequence),
            1,
            Goal::Linear(1, 2.2),
        ),
        (
            "a recognizer of a tenth of the processes",
            apart(&sequence, 1),
            0,
            Goal::Speed(3.0),
        ),
        ("ten of these", apart(&sequence, 10), 0, Goal::Times(1, 1.5)),
        ("ten of all processes", same(&sequence), 0, Goal::Told(4)),
        (
            "first state of a conjunction over 100 processes",
            conjunction(),
            0,
            Goal::State(5.0, 500),
        ),
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
        ["--make", dir, thousands] => {
            make(Path::new(dir), thousands.parse::<u64>().unwrap() * 1000);
        }
        ["--index", dir] => {
            let recording = Arc::new(Recording::open(Path::new(dir)).unwrap());
            History::build(&recording, &|_| {}).unwrap();
        }
        ["--case", dir, case] => run_case(Path::new(dir), case.parse().unwrap()),
        ref rest => {
            let (quick, rest) = match rest {
                ["--quick", rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            let scratch = tempfile::tempdir().unwrap();
            let thousands = if quick { 500 } else { MILLIONS * 1000 };
            let dirs = [("whole", thousands), ("half", thousands / 2)].map(|(name, thousands)| {
                let dir = scratch.path().join(name).to_str().unwrap().to_string();
                step(&["--make", &dir, &thousands.to_string()]);
                step(&["--index", &dir]);
                dir
            });
            let mut rows = Vec::new();
            for (case, (.., of, _)) in cases().iter().enumerate() {
                rows.push(step(&["--case", &dirs[*of], &case.to_string()]));
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

fn run_case(dir: &Path, case: usize) {
    let recording = Arc::new(Recording::open(dir).unwrap());
    let history = History::open(&recording, &|_| {}).unwrap();
    assert!(!history.was_built());
    let names = ThreadNames::given(&recording);
    let recorded = Recorded::new(&history, names);
    // Processes of the recording are called after what they run.
    let (_, rules, ..) = cases().swap_remove(case);
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
    let mut row = |what: &str, measured: String, goal: String, reached: Option<bool>| {
        let reached = reached.map_or("", yes);
        out.push_str(&format!("| {what} | {measured} | {goal} | {reached} |\n"));
    };
    for (i, (case, _, _, goal)) in cases().iter().enumerate() {
        let (seconds, events, memory) = parsed[i];
        match goal {
            Goal::Speed(least) => {
                let speed = events / seconds / 1e6;
                let measured = format!("{speed:.1} M events/s, {memory} MiB");
                row(case, measured, format!(">= {least}"), Some(speed >= *least));
            }
            Goal::Times(back, most) => {
                let ratio = seconds / parsed[i - back].0;
                let measured = format!("{ratio:.2} times one");
                row(case, measured, format!("<= {most}"), Some(ratio <= *most));
            }
            Goal::Told(back) => {
                let ratio = seconds / parsed[i - back].0;
                row(case, format!("{ratio:.2} times one"), String::new(), None);
            }
            Goal::Linear(back, most) => {
                let ratio = parsed[i - back].0 / seconds;
                let measured = format!("all take {ratio:.2} times as long");
                row(case, measured, format!("<= {most}"), Some(ratio <= *most));
            }
            Goal::State(most, room) => {
                let reached = Some(seconds <= *most);
                row(
                    case,
                    format!("{seconds:.2} s"),
                    format!("<= {most} s"),
                    reached,
                );
                let reached = Some(memory <= *room);
                row(
                    "its memory",
                    format!("{memory} MiB"),
                    format!("<= {room} MiB"),
                    reached,
                );
            }
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
