//! Conditions over several processes at the prompt: everybody is led to the first state
//! in which one holds, and to the last; values are traced; rules run their commands.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::Command;

use harness::prompt::{debug, has_in_order};
use harness::{MW, Recorded, Scratch, programs};
use serde_json::Value;

/// Two processes: one takes 10, 20 and 30 from 120, the other raises 5 by 1, 2 and 3, in
/// turns that messages put in order.
fn ledger(scratch: &Scratch) -> Recorded {
    let program = programs::for_debuggers(scratch, "debug/ledger.c", &["-static"]);
    scratch.record(&[program])
}

const BOTH: &str = "value(ledger-0: accounts[0]) < 100 and value(ledger-1: limit) >= 8";

#[test]
fn stop_if_leads_everybody_to_the_first_state_and_back_to_the_last() {
    let scratch = Scratch::new("stop-if");
    let recorded = ledger(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            &format!("stop if {BOTH}"),
            "process ledger-0",
            "print accounts[0]",
            "process ledger-1",
            "print limit",
            "info conditions",
            // It holds until the end: there is no other time.
            "continue",
            "reverse-continue",
            "process ledger-0",
            "print accounts[0]",
            "process ledger-1",
            "print limit",
            // And none before this one.
            "reverse-continue",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Condition 1: value(ledger-0: accounts[0]) < 100",
            "ledger-0: accounts[0] = 90",
            "ledger-1: limit = 8",
            "$1 = 90",
            "$2 = 8",
            "1    stop if value(ledger-0: accounts[0]) < 100",
            ", 1 times",
            "has come to its end.",
            "Condition 1",
            "ledger-0: accounts[0] = 60",
            "ledger-1: limit = 11",
            "$3 = 60",
            "$4 = 11",
            "This is the beginning of",
        ],
    );
}

#[test]
fn the_last_state_before_here_ends_right_before_what_ended_it() {
    let scratch = Scratch::new("rev-stop-if");
    let recorded = ledger(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            "goto end",
            "rev stop if value(ledger-0: accounts[0]) == 110",
            "print accounts[0]",
            "bt 1",
            "stepi",
            "print accounts[0]",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Condition 1",
            "ledger-0: accounts[0] = 110",
            "$1 = 110",
            "#0  ",
            "spend (amount=20)",
            "$2 = 90",
        ],
    );
}

#[test]
fn what_holds_where_it_is_asked_is_said_and_nobody_moves() {
    let scratch = Scratch::new("stop-if-here");
    let recorded = ledger(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            &format!("stop if {BOTH}"),
            "info processes",
            &format!("stop if {BOTH}"),
            "info processes",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(&text, &["Condition 2 holds here already", "limit = 8"]);
    let places = |part: &str| -> Vec<String> {
        let lines = part.lines().filter(|line| line.contains("about to do"));
        let lines = lines.filter(|line| line.starts_with(['*', ' ']));
        lines.map(|line| line[2..].to_string()).collect()
    };
    let (before, after) = text.split_once("holds here already").unwrap();
    assert_eq!(places(before), places(after), "{text}");
}

#[test]
fn breakpoints_on_the_way_come_first() {
    let scratch = Scratch::new("stop-if-break");
    let recorded = ledger(&scratch);
    let (text, status) = debug(
        &recorded,
        &[
            "process ledger-1",
            "break raise_limit",
            &format!("stop if {BOTH}"),
            "info args",
            "continue",
            "info args",
            "continue",
            "continue",
            "info args",
            "goto end",
            "reverse-continue",
            "reverse-continue",
            "info args",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Breakpoint 1",
            "by = 1",
            "Breakpoint 1",
            "by = 2",
            "Condition 2",
            "limit = 8",
            "Breakpoint 1",
            "by = 3",
            // Back from the end it holds at once, until it began to.
            "Condition 2",
            "limit = 11",
            "Breakpoint 1",
            "by = 3",
        ],
    );
}

#[test]
fn values_are_traced_as_they_were() {
    let scratch = Scratch::new("trace-if");
    let recorded = ledger(&scratch);
    let condition = "let raised = change of limit in ledger-1; raised";
    let (text, status) = debug(
        &recorded,
        &[
            &format!("trace ledger-0: accounts[0], ledger-1: limit if {condition}"),
            "continue",
            "reverse-continue",
            "info conditions",
        ],
    );
    assert_eq!(status, 0, "{text}");
    let traced: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("Trace 1, "))
        .map(|line| line.split_once(": ").unwrap().1)
        .collect();
    let was = |account: u32, limit: u32| {
        format!("ledger-0: accounts[0] = {account}, ledger-1: limit = {limit}")
    };
    let forwards = [was(110, 6), was(90, 8), was(60, 11)];
    assert_eq!(traced.get(..3).unwrap(), forwards, "{text}");
    // Going back everybody else stays as far as it can.
    let back: Vec<&str> = traced[3..]
        .iter()
        .map(|line| line.rsplit_once(' ').unwrap().1)
        .collect();
    assert_eq!(back, ["11", "8", "6"], "{text}");
    assert!(text.contains(", 6 times"), "{text}");
}

/// What was saved can be read from anywhere, whatever numbers are taken: who is off is off
/// again, who was switched to is the only one, and nobody moves.
#[test]
fn what_is_saved_is_so_again_and_moves_nobody() {
    let scratch = Scratch::new("saved-conditions");
    let recorded = ledger(&scratch);
    let [own, other] = ["own", "other"].map(|name| scratch.path().join(name));
    for dir in [&own, &other] {
        std::fs::create_dir(dir).unwrap();
    }
    std::fs::write(own.join("common.mw"), "state high = ledger-1: limit > 10\n").unwrap();
    let rules = own.join("rules.mw");
    std::fs::write(&rules, "include \"common.mw\"\nnever much: high\n").unwrap();
    let saved = other.join("saved.mw");
    let (text, status) = debug(
        &recorded,
        &[
            &format!("source {}", rules.display()),
            "switch much",
            "stop later if value(ledger-1: limit) > 7",
            "stop later if value(ledger-1: limit) > 5",
            "disable 2",
            "when",
            &format!("save {}", saved.display()),
        ],
    );
    assert_eq!(status, 0, "{text}");
    let at = text
        .lines()
        .find(|line| line.contains(", main-0, "))
        .unwrap();
    let (text, status) = debug(
        &recorded,
        &[
            "break main",
            &format!("source {}", saved.display()),
            "when",
            "info conditions",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            at,
            "2    never much (the only one that is stopped at), 0 times",
            "3    stop if value(ledger-1: limit) > 7 (disabled), 0 times",
            "4    stop if value(ledger-1: limit) > 5, 0 times",
        ],
    );
}

#[test]
fn rules_run_their_commands_and_are_switched_saved_and_read_again() {
    let scratch = Scratch::new("rules-at-the-prompt");
    let recorded = ledger(&scratch);
    let rules = scratch.path().join("rules.mw");
    let saved = scratch.path().join("saved.mw");
    std::fs::write(
        &rules,
        "let told  = send and process = ledger-0 and length as n\n\
         let heard = recv and process = ledger-1\n\
         recognizer turn:\n  told(n) heard\n  do { print n; print limit; emit turn(n) }\n\
         never much: value(ledger-1: limit) > 10\n\
         verifier one: told heard else { stop; print \"told twice\" }\n",
    )
    .unwrap();
    let source = format!("source {}", rules.display());
    let (text, status) = debug(
        &recorded,
        &[
            &source,
            "stop if turn^2",
            "disable turn",
            "info conditions",
            "continue",
            "enable turn",
            &format!("save {}", saved.display()),
            "delete",
            "info conditions",
            &format!("source {}", saved.display()),
            "goto start",
            "switch much",
            "continue",
            "print limit",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(
        &text,
        &[
            "Condition 1: recognizer turn",
            "Condition 2: never much",
            "Condition 3: verifier one",
            "n = 4",
            "$1 = 5",
            "n = 4",
            "$2 = 6",
            "Condition 4: turn^2",
            "(disabled)",
            "Condition 2: never much",
            "ledger-1: limit = 11",
            "4 conditions are in",
            "No conditions.",
            "recognizer turn",
            "only much is stopped at",
            "n = 4",
            "turn^2",
            "n = 4",
            "never much",
            "limit = 11",
            "= 11",
        ],
    );
    let text = std::fs::read_to_string(saved).unwrap();
    assert!(text.contains("stop later if turn^2"), "{text}");
}

fn check(scratch: &Scratch, recorded: &Recorded, rules: &str) -> Vec<Value> {
    let file = scratch.path().join("rules.mw");
    std::fs::write(&file, rules).unwrap();
    let mut command = Command::new(MW);
    command.args(["check", "--json"]).arg(&file);
    let output = command.arg(&recorded.dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_command_of_a_witness_takes_everybody_there() {
    let scratch = Scratch::new("goto-cut");
    let recorded = ledger(&scratch);
    let rules = format!(
        "never both: {BOTH}\n\
         never low: value(ledger-0: accounts[0]) < 100\n\
         never told: send and process = ledger-0 -> recv and process = ledger-1\n"
    );
    let verdicts = check(&scratch, &recorded, &rules);
    let goto = |rule: &str| -> String {
        let own = verdicts.iter().find(|own| own["rule"] == rule).unwrap();
        assert_eq!(own["verdict"], "violated", "{own}");
        let words = own["goto"].as_str().unwrap();
        let (_, command) = words.split_once("-e '").unwrap();
        command.trim_end_matches('\'').to_string()
    };
    let both = goto("both");
    assert!(both.starts_with("goto cut ledger-0:"), "{both}");
    let look = [
        "process ledger-0",
        "print accounts[0]",
        "process ledger-1",
        "print limit",
    ];
    let (text, status) = debug(&recorded, &[&[both.as_str()][..], &look].concat());
    assert_eq!(status, 0, "{text}");
    has_in_order(&text, &["$1 = 90", "$2 = 8"]);
    // Between two events: the instruction that made it so is the one before.
    let low = goto("low");
    assert!(low.contains("@0x"), "{low}");
    let (text, status) = debug(
        &recorded,
        &[
            &low,
            "print accounts[0]",
            "bt 1",
            "rsi",
            "print accounts[0]",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(&text, &["$1 = 90", "spend (amount=20)", "$2 = 110"]);
    // Of events it is the last of them.
    let told = goto("told");
    assert!(told.starts_with("goto ledger-1:"), "{told}");
    // What one has seen another has done.
    let number = |word: &str| -> u64 { word.rsplit_once(':').unwrap().1.parse().unwrap() };
    let seen = number(&told);
    let (text, status) = debug(
        &recorded,
        &[&format!("goto cut ledger-1:{seen} ledger-0:3")],
    );
    assert_ne!(status, 0, "{text}");
    has_in_order(
        &text,
        &["this is no consistent cut: another has seen ledger-0:"],
    );
    let (text, status) = debug(
        &recorded,
        &[&format!("goto cut ledger-1:{seen}"), "info processes"],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(&text, &[&format!("before ledger-1:{}", seen + 1)]);
}

#[test]
fn what_is_wrong_with_a_condition_is_said() {
    let scratch = Scratch::new("stop-if-wrong");
    let recorded = ledger(&scratch);
    for (line, said) in [
        ("stop", "stop if what?"),
        ("stop if", "stop if what?"),
        ("stop if sned", "did you mean `send`?"),
        (
            "stop if value(ledger-7: limit) > 1",
            "the name of a process in the recording",
        ),
        (
            "stop if value(ledger-0: limti) > 1",
            "there is nothing called `limti`",
        ),
        (
            "stop if value(ledger-0: limt) > 1",
            "(did you mean `limit`?)",
        ),
        (
            "stop if value(ledger-0: accounts) > 1",
            "it is neither a number nor a text but",
        ),
        (
            "stop if value(nobody-*: limit) > 1",
            "no process is called `nobody-*`",
        ),
        (
            "stop if value(ledger-1: limit) > 11",
            "there is no consistent state in which it holds",
        ),
        (
            "stop if send and bytes ~ nonsense",
            "no event of the recording completes it",
        ),
        ("disable nobody", "is not a number"),
        ("switch nobody", "there is no condition `nobody`"),
        ("goto cut", "a cut of which events?"),
        ("goto cut ledger-0:1+2", "is not a place of a cut"),
        ("never two", "expected `:`"),
    ] {
        let (text, status) = debug(&recorded, &[line]);
        assert_ne!(status, 0, "{line}: {text}");
        assert!(text.contains(said), "{line}: {text}");
    }
}

/// One process alone is not led to a state of several: `stop if` says so, and a condition
/// that is there already is passed by who is moved alone.
#[test]
fn who_is_moved_alone_is_not_led_by_conditions() {
    let scratch = Scratch::new("stop-if-alone");
    let recorded = ledger(&scratch);
    let (text, status) = debug(&recorded, &["mode alone", &format!("stop if {BOTH}")]);
    assert_ne!(status, 0, "{text}");
    assert!(
        text.contains("cannot lead one process alone to where it holds"),
        "{text}"
    );
    assert!(
        text.contains("`mode causal` or `mode consistent`"),
        "{text}"
    );
    let (text, status) = debug(
        &recorded,
        &[
            &format!("stop if {BOTH}"),
            "goto start",
            "mode alone",
            "process ledger-0",
            "continue",
            "info conditions",
        ],
    );
    assert_eq!(status, 0, "{text}");
    has_in_order(&text, &["ledger-0 has come to its end.", ", 1 times"]);
}
