//! Everything that a rule can say, in one file, judged by a recording of a program that
//! does a little of each; and what somebody sees who mistypes one.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::{Command, Output};

use harness::{MW, Recorded, Scratch, programs};
use serde_json::Value;

/// With what comes of each behind `# =>`.
const RULES: &str = r#"
include "common.mw"
# events: a pattern, with captures; or a thread getting to a place in the source
let transfer = send and process = bank-client-* and bytes ~ /^transfer (?<from>\d+) (?<to>\d+) (?<amount>\d+)/
let answer   = send and process = bank-coordinator-* and bytes ~ "ok"
let changed  = at Worker::change in bank-coordinator-* if account == 0
let raised   = change of limit in server-*
let called   = call of Books::handle in server-*
let returned = return of Books::handle in server-*
let retry    = send and bytes ~ "retry"
let stop     = send and bytes ~ "stop"
let start    = send and bytes ~ "start"

# states: true over stretches of one process's run
state low    = server-0: accounts[0] < 100
state hot    = server-* at Books::handle: size > 3
state holds  = worker-*: from (recv and bytes ~ "granted") until (send and bytes ~ "release")
state lead   = leader-*: running

never  overdrawn: low and hot                                              # => violated
never  either: (low or hot) and not lead                                   # => violated
never  two_owners: count(holds) >= 2                                       # => violated
never  three_owners: count(holds) >= 3                                     # => holds
never  surely: definitely count(holds) >= 2                                # => violated
never  seen: observed count(holds) >= 2                                    # => violated
never  stale: value(leader-0: committed) < value(follower-*: committed)    # => violated
always money: sum(server-*: total) == 2800                                 # => violated
never  too_much: sum(server-*: total) > 2800                               # => holds
always flight: in_flight(transfer) <= 1                                    # => holds
find   overtaken: set(a) -> get(a)                                         # => matched
find   clean: set(a) -> get(a) without set(a)                              # => matched
find   burst: transfer^3 -> answer                                         # => matched
find   four: transfer^4                                                    # => holds
find   some: transfer{2,5} -> answer | retry                               # => matched
find   apart: raised || transfer                                           # => matched
find   places: changed -> answer                                           # => matched
find   back: called -> returned                                            # => matched
expect answered: transfer leads to answer within 600s                      # => holds
expect quiet: no retry between stop and start                              # => holds
expect locks: no lock(m) between lock(m) and unlock(m)                     # => violated
expect first: hello before ask                                             # => holds
expect kept: not low until stop                                            # => violated
recognizer session: hello(c) (ask(c) reply(c))* [bye(c) ack(c)]  do { emit session(c); print c }  # => matched
verifier   locking over send and (bytes ~ "lock"): lock(m) unlock(m)  else { stop; print "held twice" }   # => violated
find   sessions: session(c)                                                # => matched
"#;

const COMMON: &str = r#"
let set    = send and bytes ~ /^set (?<a>\d+)/
let get    = send and bytes ~ /^get (?<a>\d+)/
let hello  = send and bytes ~ /^hello (?<c>\d+)/
let ask    = send and bytes ~ /^ask (?<c>\d+)/
let reply  = send and bytes ~ /^answer (?<c>\d+)/
let bye    = send and bytes ~ /^bye (?<c>\d+)/
let ack    = send and bytes ~ /^ack (?<c>\d+)/
let lock   = send and bytes ~ /^lock (?<m>\d+)/
let unlock = send and bytes ~ /^unlock (?<m>\d+)/
"#;

fn recorded(scratch: &Scratch, compiler: &str) -> Recorded {
    let program = scratch.path().join("example");
    let made = Command::new(compiler)
        .args(["-g", "-O0", "-o"])
        .arg(&program)
        .arg(programs::sources().join("debug/example.cpp"))
        .status()
        .unwrap();
    assert!(made.success());
    for name in [
        "bank-client",
        "bank-coordinator",
        "server",
        "worker",
        "leader",
        "follower",
    ] {
        std::fs::copy(&program, scratch.path().join(name)).unwrap();
    }
    scratch.record(&[program])
}

fn check(scratch: &Scratch, recorded: &Recorded, rules: &str, options: &[&str]) -> Output {
    let file = scratch.path().join("rules.mw");
    std::fs::write(&file, rules).unwrap();
    let mut command = Command::new(MW);
    command.arg("check").args(options).arg(&file);
    command.arg(&recorded.dir).output().unwrap()
}

/// The command that goes to a state works, whatever the state is: also one that nobody has
/// done anything in, or of a family, whose members are named.
#[test]
fn the_command_of_a_witness_goes_there() {
    let scratch = Scratch::new("check-goto");
    let recorded = recorded(&scratch, &tool!("c++"));
    let rules = "always money: sum(server-*: total) == 2800\n\
                 state up = server-*: running\n\
                 never less: count(up) == 2 and sum(server-*: total) < 2800\n";
    let output = check(&scratch, &recorded, rules, &["--json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let verdicts: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(verdicts.len(), 2, "{text}");
    for verdict in &verdicts {
        assert_eq!(verdict["verdict"], "violated", "{text}");
        let goto = verdict["goto"].as_str().unwrap().replacen("mw", MW, 1);
        let went = Command::new("sh").args(["-c", &goto]).output().unwrap();
        assert!(went.status.success(), "{goto}: {went:?}");
    }
    assert_eq!(verdicts[1]["values"]["server-0: total"], "1300", "{text}");
}

#[test]
fn everything_that_a_rule_can_say_is_judged() {
    let scratch = Scratch::new("check-example");
    let recorded = recorded(&scratch, &tool!("c++"));
    std::fs::write(scratch.path().join("common.mw"), COMMON).unwrap();
    let output = check(&scratch, &recorded, RULES, &["--json"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let verdicts: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |name: &str| {
        let found = verdicts.iter().find(|own| own["rule"] == name);
        found.unwrap_or_else(|| panic!("{name}: {said}"))
    };
    for line in RULES.lines() {
        let Some((rule, expected)) = line.split_once("# =>") else {
            continue;
        };
        let mut words = rule.split([' ', ':']).filter(|word| !word.is_empty());
        let name = words.nth(1).unwrap();
        assert_eq!(of(name)["verdict"], expected.trim(), "{line}\n{said}");
    }
    // A witness has the cut, the events, and values; what was captured has its name.
    let stale = of("stale");
    assert!(stale["cut"]["leader-0"].is_u64(), "{stale}");
    assert!(
        stale["events"].as_array().is_some_and(|all| all.len() == 2),
        "{stale}"
    );
    assert!(stale["values"].to_string().contains("committed"), "{stale}");
    assert_eq!(of("overtaken")["captures"]["a"], "5", "{said}");
}

/// Who reads it sees where, what was there, and the command that goes there; and the
/// command does.
#[test]
fn a_witness_is_one_command_away() {
    let scratch = Scratch::new("check-example-witness");
    let recorded = recorded(&scratch, &tool!("c++"));
    let rules = "never stale: value(leader-0: committed) < value(follower-*: committed)\n\
                 find chain: (send and bytes ~ \"give\") -> (recv and process = server-1 and bytes ~ \"take\")\n";
    let output = check(&scratch, &recorded, rules, &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "stale",
        "violated",
        "committed = 2",
        "mw replay",
        "goto cut",
        "->",
    ] {
        assert!(said.contains(part), "no {part}:\n{said}");
    }
    let go = said.lines().find(|line| line.contains("goto cut")).unwrap();
    let go = go.split("-e '").nth(1).unwrap().split('\'').next().unwrap();
    let mut command = Command::new(MW);
    command.arg("replay").args(["--batch", "-e", go]);
    command.args(["-e", "process follower-0", "-e", "print committed"]);
    let output = command.arg(&recorded.dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("= 2"), "{go}\n{said}");
}

/// What is mistyped is said with its place, and with what was perhaps meant.
#[test]
fn what_is_mistyped_is_named() {
    let scratch = Scratch::new("check-example-typos");
    let recorded = recorded(&scratch, &tool!("c++"));
    for (rules, parts) in [
        (
            "let a = sned and bytes ~ \"x\"\nfind f: a\n",
            &["rules.mw:1:9", "did you mean `send`?"][..],
        ),
        ("nevr f: send\n", &["rules.mw:1:1", "did you mean `never`?"]),
        (
            "let give = send\nfind f: giv\n",
            &["rules.mw:2:9", "did you mean `give`?"],
        ),
        (
            "never f: value(servr-0: total) < 3\n",
            &["rules.mw:1:16", "the name of a process", "`server-0`"],
        ),
        (
            "let give = send and process = servr-0\nfind f: give\n",
            &["rules.mw:1:", "`server-0`"],
        ),
        (
            "never f: value(server-0: totl) < 3\n",
            &[
                "unknown",
                "rules.mw:1:26: `totl` in server-0",
                "did you mean `total`?",
            ],
        ),
        (
            "let a = at Worker::change in bank-coordinator-* if acount == 0\nfind f: a\n",
            &["unknown", "rules.mw:1:12: ", "did you mean `account`?"],
        ),
        (
            "find f: send and process = srver-*\n",
            &["vacuous", "no process is called `srver-*`", "`server-0`"],
        ),
        (
            "find f: exit and bytes ~ \"x\"\n",
            &["vacuous", "`exit and bytes ~ \"x\"` never happened"],
        ),
        (
            "never f: value(server-0: accounts) < 3\n",
            &["unknown", "neither a number nor a text"],
        ),
        (
            "never f: value(server-0: total) < \"x\"\n",
            &["unknown", "a number and a text"],
        ),
        (
            "never f: count(nobody-*: total) > 3\n",
            &["vacuous", "no process is called `nobody-*`"],
        ),
        (
            "never f: value(server-0: total) <\n",
            &["rules.mw:", "a number, a text"],
        ),
    ] {
        let output = check(&scratch, &recorded, rules, &[]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!([Some(2), Some(3)].contains(&output.status.code()), "{said}");
        for part in parts {
            assert!(said.contains(part), "{rules}no {part}:\n{said}");
        }
    }
}
