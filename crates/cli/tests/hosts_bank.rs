//! The bank of `examples/bank` over three hosts: recorded on each, joined, and
//! then one program for every command.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod harness;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::joined::{debug, mw, objects, record_plan};
use harness::namespaces::Hosts;
use harness::{MW, Scratch, programs};
use serde_json::Value;

/// Two account servers on hosts of their own; the third, the coordinator and the
/// clients on another. Returns the recording, and what the bank said at its end.
fn record(scratch: &Scratch) -> Option<(PathBuf, String)> {
    let hosts = Hosts::new(scratch, &["a", "b", "c"])?;
    let launcher = PathBuf::from(programs::bank_to_debug());
    let server = launcher.with_file_name("bank-account");
    let mut plan = String::new();
    let mut given = Vec::new();
    for (number, host) in ["a", "b"].into_iter().enumerate() {
        let address = format!("{}:7000", hosts.address(host));
        plan.push_str(&format!(
            "[[run]]\nhost = \"{host}\"\ncommand = \"{} {number}\"\n\
             environment = {{ BANK_LISTEN = \"{address}\" }}\n",
            server.display()
        ));
        given.push(address);
    }
    plan.push_str(&format!(
        "[[run]]\nhost = \"c\"\ncommand = \"{} {}\"\n",
        launcher.display(),
        given.join(" ")
    ));
    let (dir, output) = record_plan(&hosts, scratch, &plan, false);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // In one run of ten the total is wrong, which is what the bank is for.
    let ended = [Some(0), Some(1)].contains(&output.status.code());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(ended, "{said}\n{errors}");
    let total = said.lines().find(|line| line.contains("c | total "));
    let total = total.unwrap_or_else(|| panic!("{said}\n{errors}"));
    Some((dir, total.to_string()))
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap()
}

#[test]
fn the_bank_over_three_hosts_is_one_program() {
    let scratch = Scratch::new("hosts-bank");
    let _ = (tool!("sshd"), tool!("ip"));
    let Some((dir, total)) = record(&scratch) else {
        skip!("network namespaces take root");
    };
    every_process_is_called_by_its_host(&dir);
    let verified = mw(&dir, &["verify"]);
    assert!(verified.contains("all equal"), "{verified}");
    for name in ["bank-account-0@a", "bank-account-0@b", "bank-account-0@c"] {
        assert!(verified.contains(name), "{verified}");
    }
    events_are_in_one_order(&dir);
    exports_have_all_hosts(&dir);
    names_are_given_on_their_hosts(&dir);
    all_hosts_stand_at_one_cut(&dir, &total);
    walks_lead_back_across_hosts(&dir);
    conditions_are_about_all_hosts(&dir);
}

fn every_process_is_called_by_its_host(dir: &Path) {
    let rows = objects(dir, &["ps", "--json"]);
    let called: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (text(row, "process"), text(row, "host")))
        .collect();
    for wanted in [
        ("bank-account-0@a", "a"),
        ("bank-account-0@b", "b"),
        ("bank-account-0@c", "c"),
        // There is only one of these.
        ("bank-coordinator-0", "c"),
    ] {
        assert!(called.contains(&wanted), "{called:?}");
    }
    let ambiguous = Command::new(MW)
        .args(["why", "bank-account-0:3", "-r", dir.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ambiguous.stderr).into_owned();
    assert_eq!(ambiguous.status.code(), Some(2), "{said}");
    assert!(
        said.contains("`bank-account-0@a` or `bank-account-0@b`"),
        "{said}"
    );
}

/// Every event once, after its causes, and linked across hosts.
fn events_are_in_one_order(dir: &Path) {
    let rows = objects(dir, &["ps", "--json"]);
    let count: u64 = rows.iter().map(|row| row["events"].as_u64().unwrap()).sum();
    let events = objects(dir, &["events", "--json", "-s", "64"]);
    assert_eq!(events.len() as u64, count);
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (place, event) in events.iter().enumerate() {
        assert!(places.insert(text(event, "event"), place).is_none());
    }
    let mut crossed = BTreeSet::new();
    for (place, event) in events.iter().enumerate() {
        for link in event["causes"].as_array().unwrap() {
            let cause = text(link, "cause");
            let (from, to) = (cause.split(':').next().unwrap(), text(event, "process"));
            // Whatever the clocks said.
            assert!(places[cause] < place, "{event}");
            if from != to && link["kind"] == "message" {
                crossed.insert((from.to_string(), to.to_string()));
            }
        }
    }
    for (from, to) in [
        ("bank-coordinator-0", "bank-account-0@a"),
        ("bank-account-0@a", "bank-coordinator-0"),
        ("bank-account-0@b", "bank-coordinator-0"),
    ] {
        let pair = (from.to_string(), to.to_string());
        assert!(crossed.contains(&pair), "{crossed:?}");
    }
    // What one process is shown alone is what it is among all.
    let own = objects(
        dir,
        &[
            "events",
            "--json",
            "-s",
            "64",
            "--process",
            "bank-account-0@b",
        ],
    );
    let among: Vec<&str> = events
        .iter()
        .filter(|event| event["process"] == "bank-account-0@b")
        .map(|event| text(event, "event"))
        .collect();
    let alone: Vec<&str> = own.iter().map(|event| text(event, "event")).collect();
    assert_eq!(alone, among);
    // Each by its own clock: other times, the same events.
    let raw = objects(
        dir,
        &["events", "--json", "--no-links", "-s", "0", "--raw-time"],
    );
    assert_eq!(raw.len(), events.len());
}

fn exports_have_all_hosts(dir: &Path) {
    let trace: Value = serde_json::from_str(&mw(dir, &["export", "--perfetto"])).unwrap();
    let traces = trace["traceEvents"].as_array().unwrap();
    let order = |name: &str| {
        let named = |t: &&Value| t["name"] == "process_name" && t["args"]["name"] == name;
        let pid = traces
            .iter()
            .find(named)
            .unwrap_or_else(|| panic!("no {name}"));
        let sorted = |t: &&Value| t["name"] == "process_sort_index" && t["pid"] == pid["pid"];
        let sorted = traces.iter().find(sorted).unwrap();
        sorted["args"]["sort_index"].as_u64().unwrap()
    };
    // A row for each host, its processes below it.
    let rows = [
        "host a",
        "bank-account-0@a",
        "host b",
        "bank-account-0@b",
        "host c",
        "bank-coordinator-0@c",
    ];
    let places: Vec<u64> = rows.iter().map(|name| order(name)).collect();
    assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
    for form in ["--shiviz", "--dot", "--json", "--otlp"] {
        let exported = mw(dir, &["export", form]);
        for name in ["bank-account-0@a", "bank-account-0@b"] {
            assert!(exported.contains(name), "{form}");
        }
    }
}

fn names_are_given_on_their_hosts(dir: &Path) {
    mw(dir, &["rename", "bank-account-0@a", "vault"]);
    let shown = mw(dir, &["ps"]);
    assert!(shown.contains("vault"), "{shown}");
    assert!(shown.contains("bank-account-0@b"), "{shown}");
    mw(dir, &["rename", "vault"]);
    assert!(!mw(dir, &["ps"]).contains("vault"));
}

/// The numbers in a printed list.
fn sum(printed: &str) -> i64 {
    let (_, list) = printed
        .split_once('[')
        .unwrap_or_else(|| panic!("{printed}"));
    let (list, _) = list.split_once(']').unwrap();
    list.split(',')
        .map(|number| number.trim().parse::<i64>().unwrap())
        .sum()
}

/// At the end all balances are on the books, on three hosts: they add up to what
/// the launcher was told.
fn all_hosts_stand_at_one_cut(dir: &Path, total: &str) {
    let mut commands = Vec::new();
    let servers = ["a", "b", "c"].map(|host| format!("bank-account-0@{host}"));
    for server in &servers {
        commands.extend([
            // The answer to the audit, and where all others must have come.
            format!("goto process = {server} and recv and bytes ~ \"sum\""),
            format!("break Books::handle in {server}"),
            "continue".to_string(),
            "print self.balances".to_string(),
            "info processes".to_string(),
            "delete".to_string(),
        ]);
    }
    let said = debug(dir, &commands);
    let mut found = 0;
    for (at, server) in servers.iter().enumerate() {
        let own = &said[at * 6..at * 6 + 6];
        found += sum(&own[3]);
        // The others are shown where they must have come: none is lost.
        for other in &servers {
            assert!(own[4].contains(other.as_str()), "{own:?}");
        }
        assert!(own[4].contains(&format!("* {server}")), "{own:?}");
    }
    let told: i64 = total
        .split_once("total ")
        .unwrap()
        .1
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(found, told, "{said:?}");
}

/// The audit asks one server after the other: forward from stop to stop, on
/// whichever host it is, then back to the same ones.
fn walks_lead_back_across_hosts(dir: &Path) {
    let mut commands = vec![
        "goto process = bank-0 and send and bytes ~ \"audit\"".to_string(),
        "break Books::handle".to_string(),
    ];
    let steps = ["continue"; 3].into_iter().chain(["reverse-continue"; 2]);
    for command in steps {
        commands.push(command.to_string());
        commands.push("when".to_string());
    }
    let said = debug(dir, &commands);
    let stops: Vec<&str> = said[3..].iter().step_by(2).map(|s| s.trim()).collect();
    let process = |stop: &str| stop.split(',').next().unwrap().to_string();
    let there: Vec<String> = stops[..3].iter().map(|stop| process(stop)).collect();
    assert_eq!(
        there,
        ["bank-account-0@a", "bank-account-0@b", "bank-account-0@c"],
        "{said:?}"
    );
    assert_eq!(stops[3..5], [stops[1], stops[0]], "{said:?}");
    concurrent_stops_come_back_in_their_order(dir);
}

/// Transfers go to all servers at once, and most stops know nothing of each other:
/// going back leads to each of them once, in the reverse of the order there, and on
/// again in the same.
fn concurrent_stops_come_back_in_their_order(dir: &Path) {
    const STEPS: usize = 25;
    let mut commands = vec!["break Books::handle".to_string()];
    let there = ["continue"; STEPS];
    let back = ["reverse-continue"; STEPS - 1];
    let again = ["continue"; STEPS - 1];
    for command in there.iter().chain(&back).chain(&again) {
        commands.push(command.to_string());
        commands.push("when".to_string());
    }
    let said = debug(dir, &commands);
    let stops: Vec<&str> = said[2..].iter().step_by(2).map(|s| s.trim()).collect();
    let processes: BTreeSet<&str> = stops
        .iter()
        .filter_map(|stop| stop.split(',').next())
        .collect();
    assert!(processes.len() > 1, "{stops:?}");
    let (first, rest) = stops.split_at(STEPS);
    let reversed: Vec<&str> = first[..STEPS - 1].iter().rev().copied().collect();
    assert_eq!(rest[..STEPS - 1], reversed, "{first:?}");
    assert_eq!(rest[STEPS - 1..2 * (STEPS - 1)], first[1..], "{first:?}");
}

/// A condition about processes of several hosts is answered in their names.
fn conditions_are_about_all_hosts(dir: &Path) {
    let found = mw(
        dir,
        &[
            "find",
            "send and process = bank-coordinator-0 and bytes ~ \"sum\" -> \
             recv and process = bank-account-0@b and bytes ~ \"sum\"",
        ],
    );
    assert!(found.contains("bank-account-0@b:"), "{found}");
}
