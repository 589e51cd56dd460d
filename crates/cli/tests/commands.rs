//! The commands, as a user types them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::Path;
use std::process::{Command, Output};

use recording::synthetic::story;
use serde_json::Value;

fn mw(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mw"))
        .args(args)
        .env("XDG_DATA_HOME", home)
        .output()
        .unwrap()
}

/// Runs a command that must succeed and say nothing on standard error.
fn good(home: &Path, args: &[&str]) -> String {
    let output = mw(home, args);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), errors.as_str()),
        (Some(0), ""),
        "{args:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail, with a message and a hint.
fn bad(home: &Path, args: &[&str]) -> String {
    let output = mw(home, args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn causes_are_told() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("story");
    story::write(&dir).unwrap();
    let rec = dir.to_str().unwrap();
    let ask = |args: &[&str]| good(home.path(), &[args, &["-r", rec]].concat());
    assert!(ask(&["order", "client-0:6", "server-0:19"]).contains("happened before"));
    assert!(ask(&["order", "server-0:19", "client-0:6"]).contains("happened after"));
    assert!(ask(&["order", "client-0:3", "server-0:15"]).contains("concurrent"));
    let why = ask(&["why", "recv and bytes ~ PING"]);
    assert!(
        why.starts_with("server-0:19") && why.contains("client-0:6"),
        "{why}"
    );
    let why = ask(&["why", "server-0:19", "--where", "bytes = \"PING\\r\\n\""]);
    assert!(
        why.contains("1 messages") || why.contains("messages in its past"),
        "{why}"
    );
    assert!(ask(&["effects", "client-0:6"]).contains("server-0:19"));
    let cut = lines(&ask(&["cut", "server-0:19", "--json"]));
    let client = cut.iter().find(|row| row["process"] == "client-0").unwrap();
    assert_eq!(client["position"], "client-0:6");
    let channels = lines(&good(home.path(), &["channels", "--json", rec]));
    let tcp = channels
        .iter()
        .find(|c| c["kind"] == "tcp" && c["from"][0] == "client-0")
        .unwrap();
    assert_eq!(
        (&tcp["sent_bytes"], &tcp["to"][0]),
        (&6.into(), &"server-0".into())
    );
    let events = lines(&ask(&["events", "--json", "--where", "accept and linked"]));
    assert_eq!(events[0]["causes"][0]["cause"], "client-0:4");
    for form in ["--perfetto", "--json", "--otlp"] {
        let text = ask(&["export", form]);
        serde_json::from_str::<Value>(&text).unwrap();
    }
    assert!(ask(&["export", "--shiviz"]).contains("server-0 {"));
    assert!(ask(&["export", "--dot"]).starts_with("digraph"));
    ask(&["rename", "server-0", "primary"]);
    assert!(ask(&["order", "client-0:6", "primary:19"]).contains("happened before primary:19"));
    for (args, message) in [
        (&["why", "primry:3"][..], "did you mean `primary`?"),
        (&["why", "primary:999"], "its events are 0 to"),
        (&["why", "sned"], "did you mean `send`?"),
        (
            &["events", "--where", "send and"],
            "column 9: expected a type",
        ),
        (
            &["events", "--where", "send)"],
            "column 5: expected `and`, `or`",
        ),
        (
            &["events", "--where", "time < 5"],
            "column 8: expected a time",
        ),
        (
            &["events", "--where", "bytes < 5"],
            "column 7: expected `=`",
        ),
        (&["why", "error = EAGIAN"], "did you mean `EAGAIN`?"),
        (&["why", "process = clint-0"], "did you mean `client-0`?"),
        (&["why", "thread = man-0"], "did you mean `main-0`?"),
        (
            &["why", "peer = nobody-at-all"],
            "has no process `nobody-at-all`",
        ),
        (
            &["events", "--where", "channel = c999"],
            "its channels are c0 to c",
        ),
        (
            &["export", "--dot", "--where", "channel = c999"],
            "no channel `c999`",
        ),
        (
            &["why", "primary:3", "--where", "process = cient-0"],
            "`client-0`?",
        ),
        (&["why", "primary"], "is a process, not an event"),
        (&["why", "primary:x"], "`x` is not a number"),
        (
            &["order", "client-0:6", "primry:3"],
            "did you mean `primary`?",
        ),
        (&["cut", "client-0:999"], "its events are 0 to"),
        (&["effects", "clinet-0:3"], "did you mean `client-0`?"),
        (&["blocked", "--at", "client-0:999"], "its events are 0 to"),
        (&["rename", "nobdy", "x"], "has no process `nobdy`"),
        (&["rename", "primary", "a b"], "`a b` cannot be a name"),
        (&["rename", "primary", "client-0"], "already"),
        (&["rename", "primary/nobody", "x"], "has no thread"),
    ] {
        let errors = bad(home.path(), &[args, &["-r", rec]].concat());
        assert!(errors.contains(message), "{args:?}: {errors}");
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A data directory whose latest recording is the story.
fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("meanwhile/sh-1");
    std::fs::create_dir_all(&dir).unwrap();
    story::write(&dir).unwrap();
    std::os::unix::fs::symlink("sh-1", home.path().join("meanwhile/latest")).unwrap();
    home
}

#[test]
fn ps_draws_the_tree() {
    let home = home();
    let text = good(home.path(), &["ps"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "PROCESS     PID     START      LIFE     EXIT  EVENTS    LOG  COMMAND",
            "sh-0        100  0.000001  0.000947        0      12  244 B  sh 'run it'",
            "├ server-0  101  0.000011  0.000947  SIGKILL      26  807 B  server --port 6379",
            "└ client-0  102  0.000021  0.000777        3       9  193 B  client",
        ]
    );
    let latest = home.path().join("meanwhile/sh-1");
    let named = latest.to_str().unwrap();
    assert_eq!(good(home.path(), &["ps", named]), text);
    assert_eq!(good(home.path(), &["ps", "-r", named]), text);
}

/// What was recorded stays as it is, byte for byte, whatever is asked; what is found
/// out on the way lies beside it, in files that are made again when they are gone. And
/// nothing of it need be replayed: the story never ran, so that it could not be.
#[test]
fn no_question_changes_the_recording_or_needs_a_replay() {
    let home = home();
    let dir = home.path().join("meanwhile/sh-1");
    let found = ["causes", "catalog", "source.json"];
    let held = || {
        let mut held = std::collections::BTreeMap::new();
        let mut left = vec![dir.clone()];
        while let Some(next) = left.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else if !found.contains(&path.file_name().unwrap().to_str().unwrap()) {
                    let bytes = std::fs::read(&path).unwrap();
                    held.insert(path, bytes);
                }
            }
        }
        held
    };
    let before = held();
    assert!(before.len() >= 2);
    for args in [
        &["ps"][..],
        &["info"],
        &["events"],
        &["events", "--json"],
        &["why", "server-0:19"],
        &["effects", "client-0:6"],
        &["order", "client-0:6", "server-0:19"],
        &["cut", "server-0:19"],
        &["blocked"],
        &["channels"],
        &["export", "--dot"],
    ] {
        let output = mw(home.path(), args);
        assert_eq!(output.status.code(), Some(0), "{args:?} {output:?}");
        assert!(held() == before, "{args:?} changed the recording");
    }
}

#[test]
fn ps_as_json() {
    let home = home();
    let processes = lines(&good(home.path(), &["ps", "--json"]));
    let server = &processes[1];
    assert_eq!(server["process"], "server-0");
    assert_eq!(
        (&server["parent"], &server["parent_event"]),
        (&"sh-0".into(), &"sh-0:3".into())
    );
    assert_eq!(
        (&server["signal"], &server["status"]),
        (&"SIGKILL".into(), &137.into())
    );
    assert_eq!(
        server["command"],
        serde_json::json!(["server", "--port", "6379"])
    );
    assert_eq!(processes[2]["exit"], 3);
}

#[test]
fn events_are_merged_by_time_and_filtered() {
    let home = home();
    let all = good(home.path(), &["events"]);
    assert_eq!(all.lines().count(), 47);
    let first = all.lines().next().unwrap();
    assert_eq!(
        first,
        "   0.000001 sh-0:0         main-0    +++ began: /usr/bin/sh run it +++"
    );
    let count = |args: &[&str]| good(home.path(), args).lines().count();
    assert_eq!(count(&["events", "--process", "server-0"]), 26);
    assert_eq!(count(&["events", "--process", "server,client-0"]), 35);
    assert_eq!(count(&["events", "--thread", "thread-1"]), 5);
    assert_eq!(count(&["events", "--limit", "3"]), 3);
    let types = |args: &[&str]| -> Vec<String> {
        let events = lines(&good(home.path(), args));
        events
            .iter()
            .map(|e| e["type"].as_str().unwrap().to_string())
            .collect()
    };
    let sent = types(&["events", "--json", "--type", "send,recv"]);
    assert_eq!(
        sent,
        ["send", "send", "recv", "recv", "send", "send", "recv"]
    );
    let names = |args: &[&str]| -> Vec<String> {
        let events = lines(&good(home.path(), args));
        events
            .iter()
            .map(|e| e["event"].as_str().unwrap().to_string())
            .collect()
    };
    let from = [
        "events",
        "--json",
        "--from",
        "server-0:24",
        "--to",
        "client-0:8",
    ];
    assert_eq!(names(&from), ["server-0:24", "server-0:25", "client-0:8"]);
    let times = ["events", "--json", "--from", "798us", "--to", "0.9ms"];
    assert_eq!(
        names(&times),
        ["client-0:8", "sh-0:7", "sh-0:8", "sh-0:9", "sh-0:10"]
    );
    let one = ["events", "--json", "--process", "sh-0", "--from", "10"];
    assert_eq!(names(&one), ["sh-0:10", "sh-0:11"]);
    let long = good(home.path(), &["events", "-s", "4", "--type", "recv"]);
    assert!(long.contains(r#""PING"..., 16384) = 6"#), "{long}");
    let wall = good(home.path(), &["events", "--wall", "--limit", "1"]);
    assert!(wall.starts_with("22:13:20.000001 sh-0:0"), "{wall}");
}

#[test]
fn info_says_what_there_is_and_what_lacks() {
    let home = home();
    let info = &lines(&good(home.path(), &["info", "--json"]))[0];
    assert_eq!(
        (&info["events"], &info["processes"]),
        (&47.into(), &3.into())
    );
    assert_eq!(
        (&info["complete"], &info["duration_ns"]),
        (&true.into(), &1_000_000.into())
    );
    assert_eq!(info["log_bytes"], 244 + 807 + 193);
    assert!(info["log_data_bytes"].as_u64().unwrap() > 300);
    assert!(info["log_compressed_bytes"].as_u64().unwrap() > 0);
    assert_eq!(info["notes"][0]["kind"], "refused");
    assert_eq!(
        info["problems"][0],
        "captured file 1 is missing (/usr/bin/server)"
    );
    let text = good(home.path(), &["info"]);
    assert!(text.contains("state      complete\n"), "{text}");
    assert!(
        text.contains("refused: server-0: io_uring_setup (2 times)"),
        "{text}"
    );

    // Torn in the middle.
    let journal = home.path().join("meanwhile/latest/journal");
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &bytes[..bytes.len() / 2]).unwrap();
    let info = &lines(&good(home.path(), &["info", "--json"]))[0];
    assert_eq!(info["complete"], false);
    let text = good(home.path(), &["info"]);
    assert!(text.contains("cut short"), "{text}");
    assert!(text.contains("of the journal are torn"), "{text}");
    good(home.path(), &["ps"]);
    good(home.path(), &["events"]);
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_what_to_do() {
    let home = home();
    let say = |args: &[&str]| bad(home.path(), args);
    assert_eq!(
        say(&["events", "--process", "sevrer-0"]),
        "mw: the recording has no process `sevrer-0`\n    did you mean `server-0`?\n"
    );
    assert_eq!(
        say(&["events", "--type", "sned"]),
        "mw: there is no type of event `sned`\n    did you mean `send`?\n"
    );
    assert_eq!(
        say(&["events", "--from", "server-0:26"]),
        "mw: server-0 has no event 26\n    its events are 0 to 25\n"
    );
    assert!(say(&["events", "--to", "soon"]).starts_with("mw: `--to soon` is neither"));
    assert!(say(&["events", "--from", "3"]).starts_with("mw: `--from 3` does not say which"));
    assert!(say(&["events", "--thread", "x"]).starts_with("mw: `x` is not a thread"));
    assert!(
        say(&["ps", "/nonexistent"]).starts_with("mw: there is no recording at /nonexistent\n")
    );
    assert!(say(&["evnts"]).starts_with("mw: unrecognized subcommand 'evnts'\n"));
    assert!(say(&["ps", "--colour"]).starts_with("mw: unexpected argument '--colour' found\n"));
    assert!(say(&[]).starts_with("mw: a command is missing\n"));
    let empty = tempfile::tempdir().unwrap();
    let none = bad(empty.path(), &["info"]);
    assert!(
        none.starts_with("mw: no recording given, and there is no latest one at "),
        "{none}"
    );
    std::fs::remove_dir_all(home.path().join("meanwhile/sh-1")).unwrap();
    assert!(say(&["ps"]).starts_with("mw: the latest recording is gone: sh-1\n"));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    use std::process::Stdio;
    let home = home();
    let mut child = Command::new(env!("CARGO_BIN_EXE_mw"))
        .args(["events", "--json"])
        .env("XDG_DATA_HOME", home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
