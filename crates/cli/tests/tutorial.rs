//! docs/tutorial.md, done as it says: a bug found by going backwards from a
//! wrong answer.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use harness::{Recorded, Scratch, programs};

/// What the page has one type at the prompt, in order.
fn commands() -> Vec<String> {
    let page = harness::repository().join("docs/tutorial.md");
    let page = std::fs::read_to_string(page).unwrap();
    page.lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter_map(|line| line.strip_prefix("(mw) ").or(line.strip_prefix("> ")))
        .map(str::to_string)
        .collect()
}

/// The page builds the bank and then records it, where cargo puts it.
#[test]
fn what_the_page_builds_is_what_it_records() {
    let page = harness::repository().join("docs/tutorial.md");
    let page = std::fs::read_to_string(page).unwrap();
    let typed = |begin: &str| {
        let mut lines = page.lines().filter_map(|line| line.strip_prefix("    $ "));
        let found = lines.find_map(|line| line.strip_prefix(begin));
        found.unwrap_or_else(|| panic!("no `{begin}` on the page"))
    };
    let package = typed("cargo build -p ");
    let recorded = typed("while mw record ").split(';').next().unwrap();
    let told = std::process::Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(harness::repository())
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let packages = told["packages"].as_array().unwrap();
    let built = packages.iter().find(|own| own["name"] == package).unwrap();
    let programs = built["targets"].as_array().unwrap();
    let target = std::path::Path::new(told["target_directory"].as_str().unwrap());
    let places = programs
        .iter()
        .map(|program| target.join("debug").join(program["name"].as_str().unwrap()));
    let place = harness::repository().join(recorded);
    assert!(places.into_iter().any(|built| built == place), "{place:?}");
}

fn debug(recorded: &Recorded, commands: &[String]) -> String {
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let (text, status) = harness::prompt::debug(recorded, &commands);
    assert_eq!(status, 0, "{text}");
    text
}

/// What `print` showed, by number.
fn values(text: &str) -> Vec<i64> {
    text.lines()
        .filter_map(|line| line.strip_prefix('$')?.split_once(" = "))
        .map(|(_, value)| value.parse().unwrap())
        .collect()
}

/// Lines that say who stands where.
fn places<'t>(text: &'t str, process: &str) -> Vec<&'t str> {
    let begin = format!("{process}, ");
    text.lines()
        .filter(|line| line.starts_with(&begin))
        .collect()
}

fn thread_of(place: &str) -> &str {
    place.split(", ").nth(1).unwrap()
}

/// The numbers of the run that the page tells of: the balance that two changes
/// began from, and what the earlier one made of it.
const FROM: &str = "110";
const TO: &str = "130";

/// A recording of a run that went wrong in the way that the page tells of, the
/// total, and what the walk back over the changes printed.
fn wrong_run(scratch: &Scratch, walk: &[String]) -> (Recorded, i64, Vec<(i64, i64)>) {
    let bank = programs::bank_to_debug();
    for _ in 0..200 {
        let recorded = scratch.record(&[&bank]);
        if recorded.outcome.status.success() {
            std::fs::remove_dir_all(&recorded.dir).unwrap();
            continue;
        }
        let said = &recorded.outcome.stdout;
        assert!(said.contains("WRONG"), "{said}");
        let total = said.split("total ").nth(1).unwrap();
        let total = total.split(',').next().unwrap().parse().unwrap();
        // The last change first: from which balance, to which.
        let numbers = values(&debug(&recorded, walk));
        let changes: Vec<(i64, i64)> = numbers[1..].chunks(2).map(|p| (p[0], p[1])).collect();
        // Seldom a third change is in it, too, or a balance comes twice; the
        // page tells of two.
        let count = |is: &dyn Fn(&(i64, i64)) -> bool| changes.iter().filter(|c| is(c)).count();
        let mut pairs = changes.windows(2).filter(|two| two[0].0 == two[1].0);
        if let (Some([later, earlier]), None) = (pairs.next(), pairs.next())
            && count(&|c| c.0 == later.0) == 2
            && count(&|c| c.1 == earlier.1) == 1
        {
            return (recorded, total, changes);
        }
        std::fs::remove_dir_all(&recorded.dir).unwrap();
    }
    panic!("the bank does not go wrong any more");
}

#[test]
fn the_bug_is_found() {
    let scratch = Scratch::new("tutorial");
    let commands = commands();
    assert!(commands.len() > 35, "{commands:?}");
    let walk = 2 + commands.iter().position(|line| line == "end").unwrap();
    let (recorded, total, changes) = wrong_run(&scratch, &commands[..walk]);

    // What is lost is what changes did not begin where others ended.
    let lost: i64 = changes.windows(2).map(|two| two[1].1 - two[0].0).sum();
    assert_eq!(total, 2800 - lost, "{changes:?}");
    assert_ne!(lost, 0);
    let at = changes
        .windows(2)
        .position(|two| two[0].0 == two[1].0)
        .unwrap();
    let (later, earlier) = (changes[at], changes[at + 1]);

    // The numbers of this run instead of the page's, each in its own line.
    let commands: Vec<String> = commands
        .iter()
        .map(|line| match line.strip_suffix(&format!("== {FROM}")) {
            Some(line) => format!("{line}== {}", later.0),
            None => match line.strip_suffix(&format!("== {TO}")) {
                Some(line) => format!("{line}== {}", earlier.1),
                None => line.clone(),
            },
        })
        .collect();
    let text = debug(&recorded, &commands);

    // The wrong answer was written by the launcher, who had it from the
    // coordinator.
    let launcher = places(&text, "bank-0");
    assert_eq!(launcher.len(), 3, "{text}");
    assert!(
        text.contains("write.c") && text.contains("recv.c"),
        "{text}"
    );
    assert!(text.contains("<- bank-coordinator-0:"), "{text}");
    // The line, and its arguments.
    assert!(text.contains("worker.rs:63\n"), "{text}");
    assert!(
        text.contains("63->\t        self.posters[account.server()].set"),
        "{text}"
    );
    assert!(text.contains("account = "), "{text}");

    // The two workers: the later first, then the earlier, in two threads.
    let shown = values(&text);
    let two = &shown[1 + 2 * changes.len()..];
    assert_eq!(
        two,
        [later.1 - later.0, earlier.1 - earlier.0, earlier.1],
        "{text}"
    );
    let (_, after) = text
        .split_once("This is the beginning of bank-coordinator-0")
        .unwrap();
    let workers: Vec<&str> = places(after, "bank-coordinator-0")
        .into_iter()
        .filter(|place| place.contains("serve-"))
        .collect();
    assert_eq!(workers.len(), 2, "{text}");
    assert_ne!(thread_of(workers[0]), thread_of(workers[1]), "{text}");
    assert!(after.contains("Worker::change"), "{text}");

    // The account server: before the new balance comes, the old one is asked
    // for, over another connection.
    let (_, after) = after.split_once("about to change").unwrap();
    let change = format!("Old value = {}\nNew value = {}\n", earlier.0, earlier.1);
    assert!(after.contains(&change), "{text}");
    assert!(after.contains("self.balances[slot] = balance"), "{text}");
    let server = places(after, "bank-account-0");
    assert_eq!(server.len(), 3, "{text}");
    assert_ne!(thread_of(server[0]), thread_of(server[1]), "{text}");
    assert_eq!(server[1], server[2], "`when` says it again");
    assert!(server[1].contains("about to do bank-account-0:"), "{text}");
    assert!(after.contains("recv.c"), "{text}");
}
