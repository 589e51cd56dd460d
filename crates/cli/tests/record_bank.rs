//! Records the bundled example, a program of eight processes, and checks that
//! the processes' stories fit together.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::{HashMap, HashSet};

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
    let ends = ends(events);
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
        let sent = end.sent..=end.sent + end.sending;
        assert!(sent.contains(&other.received), "{name}: {end:?}, {other:?}");
        assert!(other.received > 0, "{name}");
    }
}

/// What one end of a connection did: how it was made, bytes sent, bytes in
/// sends that its process did not live to see the end of, and bytes received.
#[derive(Debug, Default)]
struct End<'e> {
    made: Vec<&'e str>,
    sent: i64,
    sending: i64,
    received: i64,
}

fn ends(events: &[Event]) -> HashMap<&str, End<'_>> {
    let ended: HashSet<&str> = events.iter().filter_map(Event::started).collect();
    let mut ends: HashMap<&str, End> = HashMap::new();
    for event in events {
        let name = match event.kind() {
            "accept" => event.file("result"),
            _ => event.file("fd"),
        };
        if !name.contains("->") {
            continue;
        }
        let end = ends.entry(name).or_default();
        let moved = event.result().filter(|_| event.succeeded());
        match (event.kind(), moved) {
            ("accept" | "connect", Some(_)) => end.made.push(event.kind()),
            ("send", Some(bytes)) => end.sent += bytes,
            ("recv", Some(bytes)) => end.received += bytes,
            ("send", None) if event.phase() == "start" && !ended.contains(event.name()) => {
                end.sending += event.arg("length").as_i64().unwrap();
            }
            _ => {}
        }
    }
    ends
}
