//! The language: what is wrong with a text is said with its place, and no text
//! makes it panic.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod story;

use conditions::rules::{Failed, Rules};
use conditions::syntax::Error;
use conditions::verdict::Outcome;
use story::Story;

const EXAMPLE: &str = r#"
# events: a pattern, with captures; or a thread getting to a place in the source
let transfer = send and process = bank-client-* and bytes ~ /^transfer (?<from>\d+) (?<to>\d+) (?<amount>\d+)/
let answer   = send and process = bank-coordinator-* and bytes ~ "ok"
let changed  = at Worker::change in bank-coordinator-* if account.0 == 0
let raised   = change of limit in server-*            # assignment to a variable
let set = send and bytes ~ /^set (?<a>\d+)/
let get = send and bytes ~ /^get (?<a>\d+)/
let retry = send and bytes ~ "retry"
let stop = send and bytes ~ "stop"
let start = send and bytes ~ "start"
let hello = send and bytes ~ /^hello (?<c>\d+)/
let ask = send and bytes ~ /^ask (?<c>\d+)/
let reply = send and bytes ~ /^answer (?<c>\d+)/
let bye = send and bytes ~ /^bye (?<c>\d+)/
let ack = send and bytes ~ /^ack (?<c>\d+)/
let taken = lock and uaddr as m
let freed = wake and uaddr as m

state low    = server-0: accounts[0] < 100                                      # every change counts
state hot    = server-* at Books::handle: self.balances.len > 3                 # taken there
state holds  = worker-*: from (recv and bytes ~ "granted") until (send and bytes ~ "release")

never  overdrawn: low and hot                        # in no consistent global state
never  two_owners: count(holds) >= 2
never  stale: value(leader-0: committed) < value(follower-*: committed)
always money: sum(server-*: total) == 2800
find   overtaken: set(a) -> get(a)
find   burst: transfer^3 -> answer
find   some: transfer{2,5} -> answer | retry
find   clean: set(a) -> get(a) without set(a)
expect answered: transfer leads to answer within 50ms
expect quiet: no retry between stop and start
expect first: hello before ask
expect kept: not low until stop
recognizer session over message: hello(c) (ask(c) reply(c))* [bye(c) ack(c)]  do { emit session(c); print c }    # [..]: any order
verifier   locking over sync: taken(m) freed(m)  else { stop; print "held twice" }
find   sessions: session(c) -> hello(c)
always flight: in_flight(transfer) <= 3 + count(holds)
"#;

#[test]
fn the_language_is_read() {
    let rules = Rules::parse("example.mw", EXAMPLE, None).unwrap();
    let names: Vec<&str> = rules.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names.len(), 16);
    assert_eq!(&names[..3], ["overdrawn", "two_owners", "stale"]);
    let low = rules
        .states
        .iter()
        .find(|state| state.name == "low")
        .unwrap();
    let conditions::rules::StateBody::Source(source, None) = &low.body else {
        panic!("{low:?}");
    };
    assert_eq!(source.text, "accounts[0] < 100");
    let hot = rules
        .states
        .iter()
        .find(|state| state.name == "hot")
        .unwrap();
    let conditions::rules::StateBody::Source(source, Some(place)) = &hot.body else {
        panic!("{hot:?}");
    };
    assert_eq!(
        (source.text.as_str(), place.text.as_str()),
        ("self.balances.len > 3", "Books::handle")
    );
}

fn wrong(text: &str) -> Error {
    match Rules::parse("rules.mw", text, None) {
        Err(Failed::Wrong(error)) => error,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn what_is_wrong_is_said_with_line_and_column() {
    let mut off = Vec::new();
    for (text, line, column, expected, near) in [
        ("nevr x: low", 1, 1, "one of", Some("never")),
        ("let = send", 1, 5, "a name for the event", None),
        ("let a = send\nlet a = recv", 2, 5, "not taken", None),
        ("let a = sned", 1, 9, "an event or state", Some("send")),
        (
            "let reset = send\nfind x: reste -> recv",
            2,
            9,
            "an event or state",
            Some("reset"),
        ),
        (
            "state low = p-0: x < 1\nnever x: lwo and low",
            2,
            10,
            "the name of a state",
            Some("low"),
        ),
        (
            "let a = send\nstate s = p-0: x\nnever x: a and s",
            3,
            10,
            "a state; this is an event",
            None,
        ),
        (
            "state s = p-0: x\nfind x: s -> send",
            2,
            9,
            "an event; this is a state",
            None,
        ),
        (
            "let a = send and bytes ~ /(?<v>x)/\nfind x: a(v, w) -> send",
            2,
            14,
            "captures one thing",
            None,
        ),
        ("let a = send and proces = x", 1, 18, "", Some("process")),
        (
            "expect x: send leads to recv within 5",
            1,
            37,
            "a time like",
            None,
        ),
        ("expect x: send leads recv", 1, 22, "`to`", None),
        ("expect x: no send between recv", 1, 31, "`and`", None),
        ("never x: count(s) >= 2", 1, 16, "the name of a state", None),
        (
            "state s = p-0: x\nnever x: count(s)",
            2,
            18,
            "a comparison",
            None,
        ),
        ("find x: send^0 -> recv", 1, 13, "a count of", None),
        ("recognizer r: send (recv", 1, 25, "`)`", None),
        (
            "recognizer r: send do { emit x(y) }",
            1,
            32,
            "a name that is bound",
            None,
        ),
        (
            "recognizer r: send do { disable q }",
            1,
            33,
            "the name of a rule",
            Some("r"),
        ),
        (
            "recognizer r: x do { emit x() }",
            1,
            27,
            "not made of itself",
            None,
        ),
        ("always x: send", 1, 11, "a condition over states", None),
        ("find definitely x: send", 1, 6, "a name for the rule", None),
        (
            "find x: definitely send",
            1,
            20,
            "a condition over states",
            None,
        ),
        ("find x: (send -> recv", 1, 22, "`)`", None),
        ("state s = : x", 1, 11, "names of processes", None),
        ("state s = p-0:", 1, 15, "an expression", None),
        (
            "state s = p-0: last v of (send and bytes ~ /(?<w>x)/)",
            1,
            21,
            "the name of a capture",
            Some("w"),
        ),
        ("include common", 1, 9, "the name of a file", None),
        ("find x: send recv", 1, 14, "the end of the rule", None),
        (
            "let a = send and bytes ~ /(/",
            1,
            26,
            "a regular expression",
            None,
        ),
        (
            "state s = p-0: x\nnever y: running and s > 3",
            2,
            22,
            "`value(s)`",
            None,
        ),
        ("find y: s > 3", 1, 9, "a field", None),
    ] {
        let error = wrong(text);
        let right = (error.line, error.column) == (line, column)
            && error.expected.contains(expected)
            && error.near.as_deref() == near;
        if !right {
            off.push(format!("{text:?}: {error} (near {:?})", error.near));
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
    let deep = format!("find x: {}send", "(".repeat(5000));
    assert!(wrong(&deep).expected.contains("nested too deeply"));
}

#[test]
fn files_include_each_other_but_not_themselves() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("common.mw"), "let a = send").unwrap();
    let rules = Rules::parse("x.mw", "include \"common.mw\"\nfind x: a", Some(dir.path())).unwrap();
    assert_eq!(rules.rules.len(), 1);
    std::fs::write(dir.path().join("self.mw"), "include \"self.mw\"").unwrap();
    let failed = Rules::read(&dir.path().join("self.mw"));
    assert!(matches!(failed, Err(Failed::Wrong(_))), "{failed:?}");
    let failed = Rules::parse("x.mw", "include \"none.mw\"", Some(dir.path()));
    assert!(
        matches!(failed, Err(Failed::Unreadable { .. })),
        "{failed:?}"
    );
}

const RUN: &str = r#"
    1ms  worker-0 sends a1 "want x"
    2ms  server-0 receives a1
    3ms  server-0 sends a2 "granted x"
    4ms  worker-1 sends b1 "want x"
    5ms  server-0 receives b1
    6ms  server-0 sends b2 "granted x"
    7ms  worker-0 receives a2
    8ms  worker-1 receives b2
    9ms  worker-0 sends a3 "release x"
    10ms worker-1 sends b3 "release x"
    11ms server-0 receives a3
    12ms server-0 receives b3
"#;

#[test]
fn a_lock_that_two_have_is_found() {
    let story = Story::new(RUN);
    let rules = r#"
        let got  = recv and process = worker-* and bytes ~ /^granted (?<l>\w+)/
        let gone = send and process = worker-* and bytes ~ /^release (?<l>\w+)/
        state holds(l) = worker-*: from got(l) until gone(l)
        never two_owners: count(holds(l)) >= 2
    "#;
    let verdict = story.verdict(rules);
    assert_eq!(verdict.outcome, Outcome::Violated);
    assert_eq!(story.places(&verdict), "worker-0:1 worker-1:1");
    assert_eq!(
        verdict.witnesses[0].captures,
        [("l".to_string(), "x".to_string())]
    );
    // It is not definite: the one could have released before the other got it.
    let rules = rules.replace("never two_owners:", "never two_owners: definitely");
    assert_eq!(story.outcome(&rules), Outcome::Holds);
    let rules = rules.replace("definitely", "observed");
    assert_eq!(story.outcome(&rules), Outcome::Violated);
}

/// A call is noted when it is over: who sends may have to wait for a core after that, while
/// somebody else acts on what it has sent.
#[test]
fn what_was_seen_elsewhere_had_happened_by_then() {
    let story = |released: &str, seen: &str| {
        Story::new(&format!(
            r#"
            1ms  server-0 sends a1 "granted x"
            2ms  worker-0 receives a1
            {released} worker-0 sends a2 "release x"
            {seen} server-0 receives a2
            4ms  server-1 sends b1 "granted x"
            5ms  worker-1 receives b1
            9ms  worker-1 sends b2 "release x"
            "#
        ))
    };
    let rules = r#"
        let got  = recv and process = worker-* and bytes ~ /^granted (?<l>\w+)/
        let gone = send and process = worker-* and bytes ~ /^release (?<l>\w+)/
        state holds(l) = worker-*: from got(l) until gone(l)
        never two_owners: observed count(holds(l)) >= 2
    "#;
    // Nothing says that one server knows of the other.
    assert_eq!(story("8ms", "3ms").outcome(rules), Outcome::Holds);
    assert_eq!(story("8ms", "9ms").outcome(rules), Outcome::Violated);
    assert_eq!(story("3ms", "9ms").outcome(rules), Outcome::Holds);
}

#[test]
fn orders_over_time() {
    let story = Story::new(RUN);
    let names = r#"
        let want = send and bytes ~ /^want (?<l>\w+)/
        let grant = send and bytes ~ /^granted (?<l>\w+)/
        let release = send and bytes ~ /^release/
        let never_seen = send and bytes ~ "never"
    "#;
    let outcome = |rule: &str| story.outcome(&format!("{names}\n{rule}"));
    let mut off = Vec::new();
    let mut expect = |rule: &str, expected: Outcome| {
        let own = outcome(rule);
        if own != expected {
            off.push(format!("{rule}: {}", own.name()));
        }
    };
    expect("expect x: want leads to grant within 2ms", Outcome::Holds);
    expect(
        "expect x: want leads to grant within 1ms",
        Outcome::Violated,
    );
    expect("expect x: grant leads to want", Outcome::Violated);
    expect(
        "expect x: release leads to want within 5ms",
        Outcome::Unknown,
    );
    expect("expect x: want(l) before grant(l)", Outcome::Holds);
    expect("expect x: grant before want", Outcome::Violated);
    expect("expect x: never_seen leads to want", Outcome::Vacuous);
    expect(
        "expect x: no grant between want and release",
        Outcome::Violated,
    );
    expect(
        "expect x: no want between grant and release",
        Outcome::Holds,
    );
    expect("expect x: no want after release", Outcome::Holds);
    expect("expect x: no release before grant", Outcome::Holds);
    expect("expect x: no never_seen after want", Outcome::Holds);
    expect("expect x: want leads to (grant -> release)", Outcome::Holds);
    expect("find x: never_seen -> want", Outcome::Vacuous);
    expect(
        "find x: send and bytes ~ \"want\" -> recv and bytes ~ \"gra\" without release",
        Outcome::Matched,
    );
    expect(
        "find x: recv and bytes ~ \"gra\" -> send and bytes ~ \"want\"",
        Outcome::Holds,
    );
    expect("never x: in_flight(want) > 1", Outcome::Violated);
    expect("never x: in_flight(want) > 2", Outcome::Holds);
    expect("always x: in_flight(want) >= 0", Outcome::Holds);
    expect(
        "state up = worker-*: running\nexpect x: not up until want",
        Outcome::Holds,
    );
    expect(
        "state idle = server-0: from recv until never_seen\nexpect x: not idle until want",
        Outcome::Holds,
    );
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn values_of_messages_are_states() {
    let story = Story::new(
        r#"
        1ms leader-0   does "commit 1"
        2ms leader-0   sends m1 "commit 1"
        3ms follower-0 receives m1
        4ms follower-0 sends s1 "commit 2"
        5ms leader-0   does "commit 2"
        6ms leader-0   does "commit 3"
        "#,
    );
    let names = r#"
        state leader_n   = leader-*: last n of (bytes ~ /^commit (?<n>\d+)/)
        state follower_n = follower-*: last n of (bytes ~ /^commit (?<n>\d+)/)
    "#;
    let verdict = story.verdict(&format!(
        "{names} never stale: value(leader_n) < value(follower_n)"
    ));
    assert_eq!(verdict.outcome, Outcome::Violated);
    // The follower has seen the leader send.
    assert_eq!(story.places(&verdict), "leader-0:1 follower-0:1");
    assert_eq!(
        verdict.witnesses[0].values,
        [
            (0, "leader_n".to_string(), "1".to_string()),
            (1, "follower_n".to_string(), "2".to_string())
        ]
    );
    let most = |rule: &str| story.outcome(&format!("{names} {rule}"));
    assert_eq!(
        most("always few: sum(leader_n) + sum(follower_n) <= 5"),
        Outcome::Holds
    );
    assert_eq!(
        most("always few: sum(leader_n) + sum(follower_n) <= 4"),
        Outcome::Violated
    );
}

#[test]
fn places_in_the_source_are_events_between_events() {
    let story = Story::new(
        r#"
        1ms p-0 does "Worker::change"
        2ms p-0 sends m "set"
        3ms p-1 receives m
        4ms p-1 does "Worker::change"
        "#,
    );
    let rules = "let changed = at Worker::change in p-*\n find x: changed -> changed";
    let verdict = story.verdict(rules);
    assert_eq!((verdict.outcome, verdict.count), (Outcome::Matched, 1));
}

#[test]
fn who_is_not_there_is_named() {
    let story = Story::new(RUN);
    let failed = story
        .try_judge("state s = sever-0: x\nnever x: s")
        .unwrap_err();
    let Failed::Wrong(error) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(
        (error.line, error.column, error.near.as_deref()),
        (1, 11, Some("server-0"))
    );
    let verdict = story.verdict("state s = nobody-*: from send until recv\nnever x: s");
    assert_eq!(verdict.outcome, Outcome::Vacuous);
    assert_eq!(
        verdict.reason.as_deref(),
        Some("no process is called `nobody-*`")
    );
    let verdict = story.verdict("state s = server-0: nothing == 1\nnever x: s");
    assert_eq!(verdict.outcome, Outcome::Unknown);
}

#[test]
fn a_word_that_begins_the_next_line_may_be_mistyped() {
    let error = wrong("let a = send\nnevr f: a\n");
    assert_eq!((error.line, error.column), (2, 1), "{error}");
    assert_eq!(error.near.as_deref(), Some("never"), "{error}");
}
