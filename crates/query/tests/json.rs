//! docs/json.md is what the types say: every key of every value is there, and
//! marked if it may be missing.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use causality::{EventId, Kind, Order, WaitFor, Waiter};
use protocol::id::{EventNo, ProcessId, ProcessIx, ProcessNo, ThreadNo};
use query::link::Link;
use query::shown::Shown;
use query::source::{Call, Line};
use query::why::{Part, Row};
use query::{blocked, channels, cut, events, info, order, ps, syscalls, verify, why};
use recording::Exit;
use recording::render::Details;
use serde::Serialize;
use serde_json::{Map, Value};

/// Keys by command, and whether they are always there.
type Documented = BTreeMap<String, BTreeMap<String, bool>>;

fn documented() -> Documented {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut found = Documented::new();
    let mut commands: Vec<String> = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let names = heading.split(", ").map(|name| name.trim_matches('`'));
            commands = names.map(|name| name.replace("mw ", "")).collect();
        } else if let Some(row) = line.strip_prefix("| `") {
            let (key, rest) = row.split_once("` | ").unwrap();
            let always = !rest.starts_with("*where it applies:*");
            for command in &commands {
                let keys = found.entry(command.clone()).or_default();
                keys.insert(key.to_string(), always);
            }
        }
    }
    found
}

fn keys(value: &impl Serialize) -> BTreeSet<String> {
    let value = serde_json::to_value(value).unwrap();
    value.as_object().unwrap().keys().cloned().collect()
}

/// `least` has nothing that may be missing, `most` has all of it, perhaps in
/// several values.
fn agree(command: &str, least: &impl Serialize, most: &[Value]) {
    let page = &documented()[command];
    let always = page.iter().filter(|(_, always)| **always);
    let always: BTreeSet<String> = always.map(|(key, _)| key.clone()).collect();
    assert_eq!(keys(least), always, "mw {command}: what is always there");
    let all: BTreeSet<String> = most.iter().flat_map(keys).collect();
    let page: BTreeSet<String> = page.keys().cloned().collect();
    assert_eq!(all, page, "mw {command}: all there may be");
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

fn text() -> Option<String> {
    Some("text".to_string())
}

fn id() -> EventId {
    EventId::new(ProcessIx(0), EventNo(7))
}

fn link() -> Link {
    Link {
        kind: "message",
        cause: "a-0:1".to_string(),
        effect: "b-0:2".to_string(),
        channel: None,
        amount: 3,
    }
}

fn shown() -> Shown {
    Shown {
        id: id(),
        site: None,
        name: "a-0:7".to_string(),
        process: "a-0".to_string(),
        thread: "main-0".to_string(),
        time_ns: 0,
        kind: "send",
        call: "write".to_string(),
        phase: "call",
        text: "write \"x\"".to_string(),
        data: None,
        source: None,
    }
}

fn row(left_out: usize) -> Row {
    Row {
        shown: shown(),
        link: link(),
        depth: 1,
        role: Part::Direct,
        told_above: false,
        left_out,
        is_cut: false,
        kind: Kind::Message,
    }
}

fn replayed(outcome: verify::Outcome) -> verify::Replayed {
    verify::Replayed {
        process: String::new(),
        round: 1,
        events: 0,
        recorded_events: 0,
        word: "equal",
        output_bytes: 0,
        output_equal: true,
        exit: String::new(),
        exit_equal: true,
        event: None,
        thread: None,
        expected: None,
        found: None,
        address: None,
        file: None,
        unseen: Vec::new(),
        why: None,
        id: ProcessId::of_first(0),
        outcome,
        recorded_exit: Exit::Exited(0),
        ending: None,
    }
}

#[test]
fn events_and_processes() {
    let process = ps::Row {
        host: None,
        process: String::new(),
        number: ProcessNo(0),
        pid: None,
        parent: None,
        parent_event: None,
        began: "first",
        command: Vec::new(),
        images: 1,
        start_ns: 0,
        duration_ns: 0,
        exit: None,
        signal: None,
        status: None,
        events: 0,
        log_bytes: 0,
        end: Exit::Unknown,
        parent_at: None,
    };
    let on_a_host = ps::Row {
        host: text(),
        ..process.clone()
    };
    agree("ps", &process, &[json(&on_a_host)]);
    let details = Details {
        event: String::new(),
        process: String::new(),
        thread: String::new(),
        time_ns: 0,
        kind: "send",
        call: String::new(),
        args: Map::new(),
        result: None,
        phase: "call",
        error: None,
        child: None,
        child_thread: None,
        started: None,
        preempted: false,
        files: Map::new(),
    };
    let least = events::Full {
        details: details.clone(),
        links: Some(events::Links::default()),
    };
    let most = events::Full {
        details: Details {
            error: Some(None),
            child: text(),
            child_thread: text(),
            started: text(),
            preempted: true,
            files: Map::from_iter([("fd".to_string(), Value::Null)]),
            ..details
        },
        links: Some(events::Links {
            channel: text(),
            outside: true,
            causes: vec![link()],
            ..events::Links::default()
        }),
    };
    agree("events", &least, &[json(&most)]);
}

#[test]
fn causes() {
    let source = Call {
        at: Line {
            function: "main".to_string(),
            file: "a.c".to_string(),
            line: 1,
        },
        callers: Vec::new(),
    };
    let expected = ["callers", "file", "function", "line"];
    assert_eq!(keys(&source).into_iter().collect::<Vec<_>>(), expected);
    agree("why", &shown(), &[json(&row(1))]);
    agree("effects", &shown(), &[json(&row(1))]);
    assert!(!keys(&row(0)).contains("left_out"));
    let report = order::Report {
        a: String::new(),
        b: String::new(),
        order: Order::Before,
        path: None,
        steps: Vec::new(),
    };
    agree("order", &report, &[json(&report)]);
    let message = why::Message {
        message: String::new(),
        time_ns: 0,
        from: String::new(),
        sent: String::new(),
        to: None,
        received: None,
        ends: (id(), None),
    };
    let page = std::fs::read_to_string("../../docs/json.md").unwrap();
    for key in keys(&message) {
        assert!(page.contains(&format!("`{key}`")), "{key} of a message");
    }
}

#[test]
fn states() {
    let standing = cut::Standing {
        id: ProcessIx(0),
        process: String::new(),
        position: None,
        state: cut::State::NotBegun,
        blocked: Vec::new(),
        threads: 1,
    };
    assert_eq!(json(&standing)["state"], "not begun");
    agree("cut", &standing, &[json(&standing)]);
    let blocked = blocked::Blocked {
        thread: String::new(),
        process: String::new(),
        since: String::new(),
        call: String::new(),
        waits_for: String::new(),
        by: Vec::new(),
        outside: false,
        freed_by: None,
        before: None,
        id: Waiter {
            process: ProcessIx(0),
            thread: ThreadNo(0),
        },
        what: WaitFor::Time,
        limited: false,
        is_held: false,
    };
    agree("blocked", &blocked, &[json(&blocked)]);
    let channel = channels::Channel {
        channel: String::new(),
        kind: "tcp",
        name: String::new(),
        reverse: None,
        from: Vec::new(),
        to: Vec::new(),
        sends: 0,
        receives: 0,
        sent_bytes: 0,
        received_bytes: 0,
        round_trips: 0,
        round_trip_ns: None,
        numbers: (0, None),
        forward: true,
        processes: Vec::new(),
    };
    agree("channels", &channel, &[json(&channel)]);
}

#[test]
fn recordings_and_calls() {
    let facts = info::Facts {
        recording: String::new(),
        format: 1,
        command: Vec::new(),
        cwd: String::new(),
        host: String::new(),
        kernel: String::new(),
        cpu: String::new(),
        user: String::new(),
        started_ns: 0,
        duration_ns: 0,
        complete: true,
        state: "complete",
        exit: None,
        processes: 0,
        threads: 0,
        events: 0,
        preemptions: 0,
        patched_sites: 0,
        log_bytes: 0,
        log_data_bytes: 0,
        log_compressed_bytes: 0,
        journal_bytes: 0,
        files: 0,
        file_bytes: 0,
        notes: Vec::new(),
        not_seen: info::NOT_SEEN,
        problems: vec![info::Problem::Torn { bytes: 2048 }],
    };
    let problem = "the last 2.0 KiB of the journal are torn";
    assert_eq!(json(&facts)["problems"][0], problem);
    agree("info", &facts, &[json(&facts)]);
    let least = replayed(verify::Outcome::Equal);
    let most = verify::Replayed {
        event: text(),
        thread: text(),
        expected: text(),
        found: text(),
        address: text(),
        file: text(),
        unseen: vec![String::new()],
        why: text(),
        ..least.clone()
    };
    agree("verify", &least, &[json(&most)]);
    let calls = syscalls::list(&["read".to_string()], false).unwrap();
    agree("syscalls", &calls[0], &[json(&calls[0])]);
}
