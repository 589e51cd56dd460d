//! The README's example: a wrong answer of the bundled program, explained by one
//! command; and the names of threads, whatever language they are of.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::{BTreeSet, HashMap};

use std::time::{Duration, Instant};

use harness::terminal::Terminal;
use harness::{MW, Recorded, Scratch, programs, repository};
use serde_json::Value;

/// The arguments of the command in the README's console that begins so.
fn readme_command(begin: &str) -> Vec<String> {
    let page = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("$ mw ").filter(|l| l.starts_with(begin)))
        .unwrap_or_else(|| panic!("the README has no `mw {begin}`"));
    // Words, some of them in single quotes.
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_string());
        } else {
            words.extend(part.split_whitespace().map(str::to_string));
        }
    }
    words
}

/// A run of the bank whose total is wrong. Its bug is a race, which it loses
/// more often than not.
fn wrong(scratch: &Scratch) -> Recorded {
    const TRIES: usize = 50;
    for _ in 0..TRIES {
        let recorded = scratch.record(&[programs::bank()]);
        if recorded.outcome.code() == 1 {
            return recorded;
        }
    }
    panic!("{TRIES} totals of the bank were right");
}

#[test]
fn one_command_explains_the_wrong_total() {
    let scratch = Scratch::new("bank-why");
    let recorded = wrong(&scratch);
    let command = readme_command("why");
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let text = recorded.ask(&[&command[..], &["--source-time", "60", "-r"]].concat());
    // From the wrong line to the answer, to what it is the sum of.
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("bank-0:") && first.contains("WRONG"),
        "{text}"
    );
    let (tree, messages) = text
        .split_once("messages in its past fit the pattern")
        .unwrap();
    assert!(tree.contains("\"total "), "{text}");
    for account in ["bank-account-0", "bank-account-1", "bank-account-2"] {
        assert!(tree.contains(account), "{text}");
    }
    assert_eq!(tree.matches("\"sum ").count(), 3, "{text}");
    // Where each of these calls is in the source.
    for file in ["bank.rs:", "line.rs:"] {
        assert!(tree.contains(file), "no line of {file}\n{text}");
    }
    // Two were told the same balance before the first had set it.
    let mut told: HashMap<String, usize> = HashMap::new();
    for line in messages.lines() {
        if let Some((_, rest)) = line.split_once("\"balance 0 ") {
            let balance = rest.split("\\n").next().unwrap().to_string();
            *told.entry(balance).or_default() += 1;
        }
    }
    assert!(told.values().any(|count| *count >= 2), "{text}");
    // The second time it is known; and the same without.
    let again = recorded.ask(&[&command[..], &["--source-time", "0", "-r"]].concat());
    assert_eq!(again, text);
    let plain = recorded.ask(&[&command[..], &["--no-source", "-r"]].concat());
    assert!(!plain.contains("line.rs:") && plain.lines().count() < text.lines().count());
}

/// Source lines take a replay. On a terminal the answer does not wait for them.
#[test]
fn on_a_terminal_the_answer_stands_there_while_source_lines_are_looked_for() {
    // A hundred times as long as it may take, on machines that are busy, too.
    const LONGEST: Duration = Duration::from_secs(5);
    const LOOKING: &str = "(replaying, to find the source lines ...)";
    let scratch = Scratch::new("bank-terminal");
    let recorded = scratch.record(&[programs::bank()]);
    let why = ["why", "process = bank-0 and bytes ~ \"total \""];
    let bare = recorded.ask(&[&why[..], &["--no-source", "-r"]].concat());
    let terminal = Terminal::new();
    let command = ["env", "-u", "NO_COLOR", "TERM=xterm", MW];
    let dir = recorded.dir.to_str().unwrap();
    let asked = Instant::now();
    let rest = [
        &why[..],
        &["--depth", "1", "--source-time", "60", "-r", dir],
    ]
    .concat();
    let mut child = terminal.run(&[&command[..], &rest].concat());
    terminal.await_text(LOOKING, 1);
    let took = asked.elapsed();
    assert!(took < LONGEST, "the answer took {took:?}");
    assert_eq!(terminal.wait(&mut child), 0);
    // All of the answer; then the cursor goes back above it, and it comes again.
    let screen = harness::wait_for("the end of the answer", || {
        let screen = terminal.screen();
        (screen.matches("bank-0:").count() >= 2 && screen.contains("bank.rs:")).then_some(screen)
    });
    let (draft, answer) = screen.split_once(LOOKING).unwrap();
    let event = bare.split_whitespace().next().unwrap();
    let rows = draft.lines().count();
    assert!(draft.contains(event) && rows >= 2, "{screen}");
    assert!(!draft.contains("bank.rs:"), "{screen}");
    assert!(
        answer.contains(&format!("\x1b[{rows}A\r\x1b[J")),
        "{screen}"
    );
    assert!(answer.contains(event), "{screen}");
    // The second time there is nothing to look for.
    let again = Terminal::new();
    let mut child = again.run(&[&command[..], &rest].concat());
    assert_eq!(again.wait(&mut child), 0);
    again.await_text("bank.rs:", 1);
    assert!(!again.screen().contains(LOOKING));
}

/// The names of threads of a program.
fn threads(recorded: &Recorded, process: &str) -> BTreeSet<String> {
    let events = recorded.all(|event| event.process() == process);
    events.map(|event| event.thread().to_string()).collect()
}

fn has(names: &BTreeSet<String>, wanted: &[&str]) {
    for name in wanted {
        assert!(names.contains(*name), "no {name} in {names:?}");
    }
}

#[test]
fn threads_of_c_are_named_after_their_functions() {
    let scratch = Scratch::new("names-c");
    let recorded = scratch.record(&[programs::program("threads_mutex")]);
    let names = threads(&recorded, "threads_mutex-0");
    // One that never waits for another makes no call there, and is not named;
    // but all four meet.
    let four: Vec<String> = (0..4).map(|i| format!("meet-{i}")).collect();
    let four: Vec<&str> = four.iter().map(String::as_str).collect();
    has(
        &names,
        &[&["main-0", "produce_or_consume-0"][..], &four].concat(),
    );
    // They are the same whoever asks, and those that people give go first.
    let of = |recorded: &Recorded, thread: &str| {
        let found = recorded.find(thread, |event| event.thread() == thread);
        found.name().to_string()
    };
    let event = of(&recorded, "meet-1");
    recorded.ask(&["rename", "threads_mutex-0/meet-1", "consumer", "-r"]);
    let told = recorded.ask(&["why", &event, "--json", "--no-source", "-r"]);
    let told: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(told["thread"], "consumer");
    let listed = recorded.ask(&["events", "--thread", "consumer", "--json"]);
    assert!(listed.lines().count() > 1);
}

#[test]
fn threads_of_rust_are_named_after_their_functions_or_by_themselves() {
    let scratch = Scratch::new("names-rust");
    let recorded = scratch.record(&[programs::program("rust-std")]);
    let names = threads(&recorded, "rust-std-0");
    has(&names, &["main-0", "channels-0", "tcp-0"]);
    let recorded = scratch.record(&[programs::program("rust-tokio")]);
    let names = threads(&recorded, "rust-tokio-0");
    has(&names, &["main-0", "tokio-rt-worker-0"]);
}

/// Their runtimes' threads run whatever comes next, and say nothing.
#[test]
fn threads_of_go_and_python_are_numbered() {
    let scratch = Scratch::new("names-go");
    tool!("go");
    let recorded = scratch.record(&[programs::program("goroutines")]);
    has(&threads(&recorded, "goroutines-0"), &["main-0", "thread-1"]);
    let python = tool!("/usr/bin/python3");
    let script = "import threading\nfor _ in range(2):\n t = threading.Thread(target=print)\n \
                  t.start()\n t.join()\n";
    let recorded = scratch.record(&[python.as_str(), "-c", script]);
    let process = recorded.processes()[0].name().to_string();
    let names = threads(&recorded, &process);
    // Newer ones name their threads.
    let named = |name: &String| name.starts_with("thread-") || name.starts_with("Thread-");
    assert!(names.contains("main-0") && names.iter().filter(|n| named(n)).count() == 2);
}
