//! Records the bundled example, a program of eight processes, and checks that
//! the processes' stories fit together.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::HashMap;

use harness::{Event, Scratch, programs};

#[test]
fn bank() {
    let scratch = Scratch::new("bank");
    let r = scratch.record(&[programs::bank()]);
    let verdict = r.outcome.stdout.lines().last().unwrap();
    match r.outcome.code() {
        0 => assert!(verdict.ends_with(": ok"), "{verdict}"),
        // Its bug, which it is there for.
        1 => assert!(verdict.ends_with(": WRONG"), "{verdict}"),
        other => panic!("status {other}: {}", r.outcome.stderr),
    }
    r.is_sound();

    let mut names: Vec<&str> = r.processes().iter().map(|p| p.name()).collect();
    names.sort_unstable();
    let expected = [
        "bank-0",
        "bank-account-0",
        "bank-account-1",
        "bank-account-2",
        "bank-client-0",
        "bank-client-1",
        "bank-client-2",
        "bank-coordinator-0",
    ];
    assert_eq!(names, expected);
    for process in r.processes().iter().skip(1) {
        assert_eq!(process.parent(), Some("bank-0"));
        assert_eq!(process.status(), Some(0));
    }
    let waits = r.count(|e| e.process() == "bank-0" && e.kind() == "wait" && e.succeeded());
    assert_eq!(waits, 7, "one for each child");
    every_connection_has_two_ends(r.events());
}

/// Each connection was made by a connect and an accept, and what went in at
/// one end came out at the other.
fn every_connection_has_two_ends(events: &[Event]) {
    /// What an end did: how it was made, and bytes out and in.
    #[derive(Debug, Default)]
    struct End {
        made: Vec<String>,
        sent: i64,
        received: i64,
    }
    let mut ends: HashMap<&str, End> = HashMap::new();
    for event in events.iter().filter(|event| event.succeeded()) {
        let made = match event.kind() {
            "accept" => event.file("result"),
            _ => event.file("fd"),
        };
        if !made.contains("->") {
            continue;
        }
        let end = ends.entry(made).or_default();
        match event.kind() {
            "accept" | "connect" => end.made.push(event.kind().to_string()),
            "send" => end.sent += event.result().unwrap(),
            "recv" => end.received += event.result().unwrap(),
            _ => {}
        }
    }
    let connections = ends.values().filter(|end| end.made == ["connect"]).count();
    assert!(connections >= 4, "{ends:#?}");
    assert_eq!(ends.len(), 2 * connections);
    for (name, end) in &ends {
        let (here, there) = name.split_once("->").unwrap();
        let other = ends
            .get(format!("{there}->{here}").as_str())
            .unwrap_or_else(|| panic!("{name} has no other end"));
        let made = [end.made.join(" "), other.made.join(" ")];
        assert!(
            made == ["accept", "connect"] || made == ["connect", "accept"],
            "{name}: {made:?}"
        );
        assert_eq!(end.sent, other.received, "{name}");
        assert!(end.sent > 0, "{name}");
    }
}
