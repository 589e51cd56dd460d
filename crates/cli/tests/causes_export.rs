//! What is exported is what viewers read: each form is checked against the rules
//! of those who read it, on a recording of a real program.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::process::{Command, Stdio};

use harness::{Recorded, Scratch, programs};
use serde_json::Value;

fn recorded(scratch: &Scratch) -> Recorded {
    let program = programs::program("sockets_inet");
    scratch.record(&[&program])
}

/// The rules of the Trace Event Format: who reads it drops what breaks them.
#[test]
fn perfetto_reads_it() {
    let scratch = Scratch::new("export-perfetto");
    let recorded = recorded(&scratch);
    let text = recorded.ask(&["export", "--perfetto", "-r"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    let events = all["traceEvents"].as_array().unwrap();
    let place = |event: &Value| (event["pid"].as_u64(), event["tid"].as_u64());
    // Microseconds are told to the nanosecond.
    let ns = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
    let mut slices: HashMap<_, Vec<(i64, i64)>> = HashMap::new();
    let mut flows: HashMap<u64, Vec<&Value>> = HashMap::new();
    let mut named = BTreeSet::new();
    for event in events {
        match event["ph"].as_str().unwrap() {
            "M" => {
                assert!(event["args"]["name"].is_string() || event["args"]["sort_index"].is_u64());
                named.insert(event["pid"].as_u64().unwrap());
            }
            "X" => {
                let (ts, dur) = (ns(&event["ts"]), ns(&event["dur"]));
                assert!(ts >= 0 && dur >= 0, "{event}");
                assert!(event["name"].is_string() && event["args"]["event"].is_string());
                slices.entry(place(event)).or_default().push((ts, ts + dur));
            }
            "s" | "f" => flows
                .entry(event["id"].as_u64().unwrap())
                .or_default()
                .push(event),
            other => panic!("{other}"),
        }
    }
    assert_eq!(named.len(), recorded.processes().len());
    // Slices of one thread lie inside each other or apart.
    for (thread, list) in &mut slices {
        list.sort_by_key(|(from, to)| (*from, -to));
        let mut open: Vec<i64> = Vec::new();
        for (from, to) in list.iter() {
            while open.last().is_some_and(|end| *end <= *from) {
                open.pop();
            }
            if let Some(end) = open.last() {
                assert!(
                    to <= end,
                    "{thread:?}: {from}..{to} sticks out of one to {end}"
                );
            }
            open.push(*to);
        }
    }
    // A flow begins once and ends once, each time where a slice is.
    assert!(!flows.is_empty());
    for ends in flows.values() {
        let phases: Vec<&str> = ends.iter().map(|e| e["ph"].as_str().unwrap()).collect();
        assert_eq!(phases, ["s", "f"]);
        assert_eq!(ends[1]["bp"], "e");
        for end in ends {
            let ts = ns(&end["ts"]);
            let inside = slices[&place(end)]
                .iter()
                .any(|(from, to)| *from <= ts && ts <= *to);
            assert!(inside, "{end}");
        }
    }
}

/// ShiViz reads two lines at a time: `(?<event>.*)\n(?<host>\S*) (?<clock>{.*})`.
#[test]
fn shiviz_reads_it() {
    let scratch = Scratch::new("export-shiviz");
    let recorded = recorded(&scratch);
    let text = recorded.ask(&["export", "--shiviz", "-r"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() >= 4 && lines.len().is_multiple_of(2));
    let mut own: HashMap<String, u64> = HashMap::new();
    let mut clocks: Vec<(String, HashMap<String, u64>)> = Vec::new();
    for pair in lines.chunks(2) {
        assert!(!pair[0].is_empty());
        let (host, clock) = pair[1].split_once(' ').unwrap();
        assert!(!host.is_empty() && clock.starts_with('{') && clock.ends_with('}'));
        let clock: HashMap<String, u64> = serde_json::from_str(clock).unwrap();
        // Its own count goes up by one with each of its events.
        let next = own.entry(host.to_string()).or_default();
        *next += 1;
        assert_eq!(clock[host], *next, "{}", pair[1]);
        clocks.push((host.to_string(), clock));
    }
    // No clock counts events of a host that it has not, and what one knows of
    // another is never less than before.
    for (host, clock) in &clocks {
        for (other, count) in clock {
            assert!(own[other] >= *count, "{host} knows {count} of {other}");
        }
    }
    for host in own.keys() {
        let list: Vec<_> = clocks.iter().filter(|(h, _)| h == host).collect();
        for pair in list.windows(2) {
            for (other, count) in &pair[0].1 {
                assert!(pair[1].1[other] >= *count);
            }
        }
    }
}

#[test]
fn graphviz_draws_it() {
    let scratch = Scratch::new("export-dot");
    let recorded = recorded(&scratch);
    let text = recorded.ask(&["export", "--dot", "-r"]);
    // One recording in ten cannot be drawn without.
    assert!(text.contains("newrank=true"), "{text}");
    let mut dot = Command::new(tool!("dot"))
        .arg("-Tplain")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = dot.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = dot.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let drawn = String::from_utf8(output.stdout).unwrap();
    let count = |word: &str| drawn.lines().filter(|l| l.starts_with(word)).count();
    assert!(count("node ") >= 2 && count("edge ") >= 1, "{drawn}");
}

/// The names of opentelemetry/proto/trace/v1/trace.proto, as JSON has them.
#[test]
fn collectors_read_it() {
    const SPAN: [&str; 16] = [
        "traceId",
        "spanId",
        "traceState",
        "parentSpanId",
        "flags",
        "name",
        "kind",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "attributes",
        "droppedAttributesCount",
        "events",
        "droppedEventsCount",
        "links",
        "droppedLinksCount",
        "status",
    ];
    let scratch = Scratch::new("export-otlp");
    let recorded = recorded(&scratch);
    let text = recorded.ask(&["export", "--otlp", "-r"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&all), ["resourceSpans"]);
    let mut spans: HashMap<String, Value> = HashMap::new();
    for resource in all["resourceSpans"].as_array().unwrap() {
        assert_eq!(keys(resource), ["resource", "scopeSpans"]);
        attributes(&resource["resource"]["attributes"]);
        for scope in resource["scopeSpans"].as_array().unwrap() {
            assert_eq!(keys(scope), ["scope", "spans"]);
            for span in scope["spans"].as_array().unwrap() {
                for key in keys(span) {
                    assert!(SPAN.contains(&key.as_str()), "{key}");
                }
                attributes(&span["attributes"]);
                let hex = |key: &str, len: usize| {
                    let id = span[key].as_str().unwrap();
                    assert!(
                        id.len() == len && id.bytes().all(|b| b.is_ascii_hexdigit()),
                        "{id}"
                    );
                    assert!(id.bytes().any(|b| b != b'0'));
                };
                hex("traceId", 32);
                hex("spanId", 16);
                // 64-bit numbers are texts in JSON.
                let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
                assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
                assert!(matches!(span["kind"].as_u64(), Some(2 | 3)));
                let id = span["spanId"].as_str().unwrap().to_string();
                assert!(spans.insert(id, span.clone()).is_none(), "an id twice");
            }
        }
    }
    // Who answers is inside of who asks.
    let mut answers = 0;
    for span in spans.values() {
        if let Some(parent) = span.get("parentSpanId") {
            let parent = &spans[parent.as_str().unwrap()];
            assert_eq!(parent["traceId"], span["traceId"]);
            assert_eq!(
                (parent["kind"].as_u64(), span["kind"].as_u64()),
                (Some(3), Some(2))
            );
            answers += 1;
        }
    }
    assert!(answers > 0, "{text}");
}

fn attributes(list: &Value) {
    for attribute in list.as_array().unwrap() {
        assert!(attribute["key"].is_string() && attribute["value"]["stringValue"].is_string());
    }
}

#[test]
fn json_is_one_document() {
    let scratch = Scratch::new("export-json");
    let recorded = recorded(&scratch);
    let text = recorded.ask(&["export", "--json", "-r"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    let names: BTreeSet<&str> = all["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), recorded.events().len());
    let links = all["links"].as_array().unwrap();
    assert!(!links.is_empty());
    for link in links {
        assert!(names.contains(link["cause"].as_str().unwrap()));
        assert!(names.contains(link["effect"].as_str().unwrap()));
    }
    assert_eq!(
        all["processes"].as_array().unwrap().len(),
        recorded.processes().len()
    );
    assert!(
        all["channels"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
    );
}
