//! `--json`: each command's objects have the keys that docs/json.md says, and no
//! others.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use harness::{MW, Scratch, programs, repository};
use serde_json::Value;

/// Keys by command, and whether they are always there.
type Documented = BTreeMap<String, BTreeMap<String, bool>>;

fn documented() -> Documented {
    let page = std::fs::read_to_string(repository().join("docs/json.md")).unwrap();
    let mut found = Documented::new();
    let mut commands: Vec<String> = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let names = heading.split(", ").map(|name| name.trim_matches('`'));
            commands = names
                .map(|name| name.strip_prefix("mw ").unwrap().to_string())
                .collect();
            for command in &commands {
                assert!(found.insert(command.clone(), BTreeMap::new()).is_none());
            }
        } else if let Some(row) = line.strip_prefix("| `") {
            let (key, rest) = row.split_once("` | ").unwrap();
            let always = !rest.starts_with("*where it applies:*");
            for command in &commands {
                let keys = found.get_mut(command).unwrap();
                assert!(
                    keys.insert(key.to_string(), always).is_none(),
                    "{key} twice"
                );
            }
        }
    }
    found
}

fn objects(args: &[&str]) -> Vec<Value> {
    let output = Command::new(MW).args(args).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{args:?}: {error}: {line}"));
        assert!(value.is_object(), "{args:?}: {line}");
        value
    });
    lines.collect()
}

#[test]
fn objects_have_the_keys_that_are_documented() {
    let scratch = Scratch::new("json");
    let program = programs::program("ground_truth_waits");
    let recorded = scratch.record(&[&program, "1"]);
    let rec = recorded.dir.to_str().unwrap();
    let beside = recorded.dir.parent().unwrap().to_str().unwrap();
    let event = recorded.find("a receive with a cause", |event| {
        event.kind() == "recv" && !event.json()["causes"].as_array().unwrap().is_empty()
    });
    let cause = event.json()["causes"][0]["cause"].as_str().unwrap();
    let event = event.name();
    // Behind the first half of a call that waits, its thread stands in it.
    let wait = recorded.find("a wait", |event| {
        event.kind() == "recv" && event.json()["phase"] == "start"
    });
    let rules = scratch.path().join("rules.mw");
    std::fs::write(&rules, "find heard: send -> recv").unwrap();
    let documented = documented();
    let asked: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
        ("list", vec!["list", beside]),
        ("ps", vec!["ps", rec]),
        ("events", vec!["events", rec]),
        ("why", vec!["why", event, "--all", "-r", rec]),
        ("effects", vec!["effects", cause, "-r", rec]),
        ("order", vec!["order", cause, event, "-r", rec]),
        ("cut", vec!["cut", event, "--latest", "-r", rec]),
        ("blocked", vec!["blocked", "--at", wait.name(), "-r", rec]),
        ("channels", vec!["channels", rec]),
        ("check", vec!["check", rules.to_str().unwrap(), rec]),
        ("find", vec!["find", "send -> recv", rec, "--limit", "3"]),
        ("info", vec!["info", rec]),
        ("verify", vec!["verify", rec]),
        ("syscalls", vec!["syscalls"]),
    ]);
    let names =
        |keys: Vec<&str>| -> BTreeSet<String> { keys.into_iter().map(str::to_string).collect() };
    assert_eq!(
        documented.keys().cloned().collect::<BTreeSet<_>>(),
        names(asked.keys().copied().collect())
    );
    for (command, args) in asked {
        let all = objects(&[&args[..], &["--json"]].concat());
        assert!(!all.is_empty(), "{command} lists nothing");
        let keys = &documented[command];
        for object in all {
            let own: BTreeSet<String> = object.as_object().unwrap().keys().cloned().collect();
            // What is told besides, each with keys of its own.
            let besides = [
                ("cut", names(vec!["channel", "kind", "name", "in_flight"])),
                ("blocked", names(vec!["deadlock", "cycle"])),
            ];
            if besides.contains(&(command, own.clone())) {
                continue;
            }
            for (key, always) in keys {
                assert!(
                    own.contains(key) || !always,
                    "mw {command} --json has no `{key}`: {object}"
                );
            }
            for key in &own {
                assert!(
                    keys.contains_key(key),
                    "mw {command} --json has `{key}`, which docs/json.md does not: {object}"
                );
            }
        }
    }
}

/// What every list of events has in common.
#[test]
fn events_have_what_scripts_rely_on() {
    let keys = &documented()["events"];
    for key in [
        "event", "process", "thread", "time_ns", "type", "call", "args", "result", "phase",
    ] {
        assert_eq!(keys.get(key), Some(&true), "{key}");
    }
}

#[test]
fn every_command_that_lists_is_documented() {
    let help = Command::new(MW).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    let documented = documented();
    let mut seen = 0;
    for command in commands {
        let help = Command::new(MW).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        let lists = help.contains("--json") && help.contains("JSON object");
        assert_eq!(
            lists,
            documented.contains_key(command),
            "mw {command}: --json and docs/json.md"
        );
        seen += 1;
    }
    assert!(seen >= 12, "{help}");
}
