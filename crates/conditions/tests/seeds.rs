//! The examples of the papers that the language comes from, each under its name.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod story;

use conditions::history::History;
use conditions::verdict::Outcome;
use story::Story;

/// Two clients, a server that forks a process for each of them, and another
/// server: `x` is 1 in the first client and in the process that serves it.
const DDBX: &str = r#"
    1ms  p-1  sends c1 "connect"
    2ms  p-3  receives c1
    3ms  p-3  forks p-4
    4ms  p-1  sends c2 "connect"
    5ms  p-6  receives c2
    6ms  p-6  sends m6 "data"
    7ms  p-2  sends c3 "connect"
    8ms  p-3  receives c3
    9ms  p-3  forks p-5
    10ms p-6  does "more"
    11ms p-4  sends m4 "data"
    12ms p-4  does "x = 1"
    13ms p-1  receives m6
    14ms p-1  receives m4
    15ms p-1  does "x = 1"
    16ms p-4  does "x = 2"
    17ms p-1  does "x = 0"
"#;

/// Only who must go on does: whose own part is false, and whom another waits
/// for. Everybody else stays where the first state has them.
#[test]
fn ddbx_p_inf_of_p_with_the_false_sps_active() {
    let story = Story::new(DDBX);
    let verdict = story.verdict(
        "state one = p-1: x == 1
         state four = p-4: x == 1
         never both: one and four",
    );
    assert_eq!(verdict.outcome, Outcome::Violated);
    let witness = &verdict.witnesses[0];
    assert!(
        witness.first,
        "the first state of a conjunction is the only one"
    );
    let bound = |name: &str| witness.cut[story.number(name)];
    assert_eq!(bound("p-1"), 5, "behind x = 1");
    assert_eq!(bound("p-4"), 3, "behind x = 1, and no further");
    assert_eq!(bound("p-3"), 2, "behind the fork of p-4, and no further");
    assert_eq!(
        bound("p-6"),
        2,
        "behind what it sent to p-1, and no further"
    );
    assert_eq!(bound("p-2"), 0, "not begun");
    assert_eq!(bound("p-5"), 0, "not begun");
}

/// Where a connection comes late, the same program has no such state.
#[test]
fn ddbx_p_another_behaviour_without_the_bug() {
    let story = Story::new(
        r#"
        1ms  p-1  sends c1 "connect"
        2ms  p-3  receives c1
        3ms  p-3  forks p-4
        4ms  p-4  does "x = 1"
        5ms  p-4  does "x = 2"
        6ms  p-4  sends m4 "data"
        7ms  p-1  receives m4
        8ms  p-1  does "x = 1"
        "#,
    );
    let rules = "state one = p-1: x == 1
                 state four = p-4: x == 1
                 never both: one and four";
    assert_eq!(story.outcome(rules), Outcome::Holds);
}

/// No halting algorithm finds where variables of two processes are equal: it
/// cannot know which of them to let go on. Afterwards it is plain.
#[test]
fn ddbx_p_equal_variables_of_two_processes() {
    let story = Story::new(
        r#"
        1ms p-1 does "x = 1"
        1ms p-2 does "x = 2"
        2ms p-1 does "x = 3"
        3ms p-2 does "x = 1"
        4ms p-2 does "x = 5"
        "#,
    );
    let verdict = story.verdict("find equal: value(p-1: x) == value(p-2: x)");
    assert_eq!(verdict.outcome, Outcome::Matched);
    assert_eq!(story.places(&verdict), "p-1:0 p-2:1");
    // A message that makes one of them late takes it away.
    let story = Story::new(
        r#"
        1ms p-1 does "x = 1"
        1ms p-2 does "x = 2"
        2ms p-1 does "x = 3"
        3ms p-1 sends m "go on"
        4ms p-2 receives m
        5ms p-2 does "x = 1"
        "#,
    );
    assert_eq!(
        story.outcome("find equal: value(p-1: x) == value(p-2: x)"),
        Outcome::Holds
    );
}

/// Two processes; the first tells the second something after its first event.
const PAIR: &str = r#"
    1ms p-1 does "sp1"
    2ms p-1 sends m "ordered"
    3ms p-2 does "sp2"
    4ms p-2 receives m
    5ms p-1 does "sp1"
    6ms p-2 does "sp2"
    7ms p-2 does "sp2"
"#;

const SPS: &str = "let sp1 = process = p-1 and bytes ~ /^sp1/
                   let sp2 = process = p-2 and bytes ~ /^sp2/\n";

#[test]
fn miller_and_choi_ordered_conjunction() {
    let story = Story::new(PAIR);
    let verdict = story.verdict(&format!("{SPS} find ordered: (sp1 -> sp2) | (sp2 -> sp1)"));
    assert_eq!(verdict.outcome, Outcome::Matched);
    // Both that come after the message; not the one before it.
    assert_eq!(verdict.count, 2);
    let last: Vec<String> = verdict
        .witnesses
        .iter()
        .map(|own| story.name_of(*own.events.last().unwrap()))
        .collect();
    assert_eq!(last, ["p-2:2", "p-2:3"]);
}

#[test]
fn miller_and_choi_unordered_conjunction() {
    let story = Story::new(PAIR);
    let verdict = story.verdict(&format!("{SPS} find unordered: sp1 || sp2"));
    assert_eq!(verdict.outcome, Outcome::Matched);
    assert_eq!(
        story.places(&verdict),
        "p-1:0 p-2:0",
        "before the message came"
    );
    // The second of the one and those of the other after the message.
    assert_eq!(verdict.count, 4);
}

#[test]
fn miller_and_choi_linked_predicate_with_counts() {
    let story = Story::new(PAIR);
    // (SP)^i is SP -> SP -> ...: the second sp2 after sp1.
    let verdict = story.verdict(&format!("{SPS} find twice: sp1 -> sp2^2"));
    assert_eq!(verdict.count, 1);
    assert_eq!(story.places(&verdict), "p-1:0 p-2:2 p-2:3");
    assert_eq!(
        story
            .verdict(&format!("{SPS} find thrice: sp1 -> sp2^3"))
            .count,
        0
    );
    assert_eq!(story.verdict(&format!("{SPS} find all: sp2^3")).count, 1);
    // Disjunctions in a step.
    assert_eq!(
        story
            .verdict(&format!("{SPS} find any: sp1 -> sp1 | sp2"))
            .count,
        3
    );
}

/// A file server: who opens a file and what it is asked for until it is closed.
const FILES: &str = r#"
    1ms  client-0 sends a1 "open 7"
    2ms  server-0 receives a1
    3ms  server-0 sends a2 "opened 7"
    4ms  client-0 receives a2
    5ms  client-1 sends b1 "open 8"
    6ms  server-0 receives b1
    7ms  client-0 sends a3 "read 7"
    8ms  server-0 receives a3
    9ms  server-0 sends b2 "opened 8"
    10ms server-0 does "disk"
    11ms server-0 sends a4 "data 7"
    12ms client-0 receives a4
    13ms client-1 receives b2
    14ms client-0 sends a5 "close 7"
    15ms server-0 receives a5
    16ms client-1 sends b3 "close 8"
    17ms server-0 receives b3
"#;

const REQUESTS: &str = r#"
    let open   = recv and process = server-* and bytes ~ /^open (?<f>\d+)/
    let opened = send and process = server-* and bytes ~ /^opened (?<f>\d+)/
    let read   = recv and process = server-* and bytes ~ /^read (?<f>\d+)/
    let data   = send and process = server-* and bytes ~ /^data (?<f>\d+)/
    let close  = recv and process = server-* and bytes ~ /^close (?<f>\d+)/
"#;

#[test]
fn amoeba_the_file_servers_request_recognizer() {
    let story = Story::new(FILES);
    let report = story.judge(&format!(
        "{REQUESTS}
         recognizer request over message and process = server-*: open(f) opened(f) (read(f) data(f))* close(f)
             do {{ emit request(f); print f }}
         find pairs: request(f) -> request(g)"
    ));
    let [requests, pairs] = &report.verdicts[..] else {
        panic!("two rules");
    };
    assert_eq!((requests.outcome, requests.count), (Outcome::Matched, 2));
    assert_eq!(requests.commands, ["print f", "print f"]);
    assert_eq!(
        story.places(requests),
        "server-0:0 server-0:1 server-0:3 server-0:6 server-0:7"
    );
    let emitted: Vec<String> = report.emitted.iter().map(|own| own.words()).collect();
    assert_eq!(emitted, ["request(f=7)", "request(f=8)"]);
    assert_eq!(report.emitted[0].of.len(), 5);
    // Higher events are events like any other.
    assert_eq!((pairs.outcome, pairs.count), (Outcome::Matched, 1));
}

/// Permutation: two acknowledgements in any order.
#[test]
fn amoeba_any_order() {
    let story = Story::new(
        r#"
        1ms p-0 does "a"
        2ms p-0 does "c"
        3ms p-0 does "b"
        4ms p-0 does "a"
        5ms p-0 does "b"
        6ms p-0 does "c"
        "#,
    );
    let rules = "let a = bytes ~ /^a/  let b = bytes ~ /^b/  let c = bytes ~ /^c/
                 recognizer all: [a b c]";
    assert_eq!(story.verdict(rules).count, 2);
}

#[test]
fn amoeba_the_file_servers_verifier() {
    let rules = format!(
        "{REQUESTS}
         verifier order over message and process = server-*: open(f) opened(f) (read(f) data(f))* close(f)
             else {{ stop; print \"out of order\" }}"
    );
    let good = Story::new(FILES).verdict(&rules);
    assert_eq!(good.outcome, Outcome::Holds);
    // A file that is closed twice is nothing to a verifier that is at its
    // beginning; one that is read before it is open is.
    let story = Story::new(
        r#"
        1ms  client-0 sends a1 "open 7"
        2ms  server-0 receives a1
        3ms  client-0 sends a3 "read 7"
        4ms  server-0 receives a3
        5ms  server-0 sends a2 "opened 7"
        6ms  client-0 sends a5 "close 7"
        7ms  server-0 receives a5
        8ms  client-0 sends a6 "close 7"
        9ms  server-0 receives a6
        "#,
    );
    let verdict = story.verdict(&rules);
    assert_eq!((verdict.outcome, verdict.count), (Outcome::Violated, 1));
    assert_eq!(story.places(&verdict), "server-0:0 server-0:1");
    assert_eq!(verdict.commands, ["stop", "print \"out of order\""]);
}

/// A recognizer switches another on; the order of a file is the order in which
/// an event is given to them.
#[test]
fn amoeba_recognizers_switch_each_other() {
    let story = Story::new(
        r#"
        1ms p-0 does "x"
        2ms p-0 does "stop"
        3ms p-0 does "x"
        4ms p-0 does "start"
        5ms p-0 does "x"
        "#,
    );
    let report = story.judge(
        "let x = bytes ~ /^x/  let stop = bytes ~ /^stop/  let start = bytes ~ /^start/
         recognizer xs: x
         recognizer off: stop do { disable xs }
         recognizer on: start do { enable xs }",
    );
    assert_eq!(report.verdicts[0].count, 2);
}

#[test]
fn stories_have_the_processes_that_they_name() {
    assert_eq!(Story::new(DDBX).processes(), 6);
}

/// What passes the filter and is nothing of the sequence's breaks it, wherever it comes from;
/// but not while the recognizer is switched off, also where the event that switches it
/// passes the filter itself, before it in the file or behind it.
#[test]
fn what_only_passes_the_filter_breaks_a_sequence_unless_it_is_off() {
    let rules = |order: &str| {
        let parts = [
            "recognizer xy over message: x y\n",
            "recognizer off: stop do { disable xy }\nrecognizer on: start do { enable xy }\n",
        ];
        let parts = match order {
            "first" => parts.concat(),
            _ => [parts[1], parts[0]].concat(),
        };
        let lets = ["x", "y", "stop", "start"];
        let lets = lets.map(|name| format!("let {name} = bytes ~ /^{name}/\n"));
        lets.concat() + &parts
    };
    let count = |order: &str, words: &[&str]| {
        let line = |(i, word): (usize, &&str)| {
            let (ms, process) = (i + 1, i % 2);
            match word.strip_prefix('!') {
                // No message.
                Some(word) => format!("{ms}ms p-{process} does \"{word}\"\n"),
                None => format!("{ms}ms p-{process} sends m{i} \"{word}\"\n"),
            }
        };
        let run: String = words.iter().enumerate().map(line).collect();
        let report = Story::new(&run).judge(&rules(order));
        let own = report.verdicts.iter().find(|own| own.rule == "xy");
        own.unwrap().count
    };
    for order in ["first", "behind"] {
        assert_eq!(count(order, &["x", "y", "x", "y"]), 2, "{order}");
        assert_eq!(count(order, &["x", "other", "y", "x", "y"]), 1, "{order}");
        // Noise while it is off is none of its input.
        let off = ["x", "!stop", "other", "other", "!start", "y"];
        assert_eq!(count(order, &off), 1, "{order}");
        let off = ["x", "other", "!stop", "other", "!start", "y"];
        assert_eq!(count(order, &off), 0, "{order}");
        let off = ["x", "stop", "other", "other", "start", "y"];
        // The event that switches it off is given to who is before in the file, and the one
        // that switches it on to who is behind: either breaks the sequence.
        assert_eq!(count(order, &off), 0, "{order}");
        let off = ["stop", "x", "start", "x", "y"];
        assert_eq!(count(order, &off), 1, "{order}");
        let off = ["stop", "other", "start", "x", "y", "stop", "x", "y"];
        assert_eq!(count(order, &off), 1, "{order}");
    }
}
