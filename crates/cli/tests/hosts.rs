//! A program on several hosts: reached by ssh, recorded, joined, and one
//! program again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod harness;

use std::path::Path;
use std::sync::Arc;

use causality::{History, Kind};
use harness::joined::{objects, record_plan, said, text};
use harness::namespaces::Hosts;
use harness::{Scratch, wait_for};
use recording::Set;
use serde_json::Value;

/// Answers every line with the line and who answered; ends when nobody is
/// left. Its argument: where to listen.
const SERVER: &str = r#"
import socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print("listening", flush=True)
for number in range(int(sys.argv[2])):
    connection, _ = listener.accept()
    for line in connection.makefile("rb"):
        connection.sendall(b"echo " + line)
    connection.close()
"#;

/// Asks, and says what it was told.
const CLIENT: &str = r#"
import socket, sys
connection = socket.create_connection((sys.argv[1], 7000))
lines = connection.makefile("rb")
for number in range(5):
    connection.sendall(b"%s %d\n" % (sys.argv[2].encode(), number))
    print(lines.readline().decode().strip(), flush=True)
"#;

fn hosts(scratch: &Scratch, names: &[&str]) -> Option<Hosts> {
    let hosts = Hosts::new(scratch, names)?;
    std::fs::write(hosts.dir().join("server.py"), SERVER).unwrap();
    std::fs::write(hosts.dir().join("client.py"), CLIENT).unwrap();
    Some(hosts)
}

fn plan(hosts: &Hosts, clients: &[&str]) -> String {
    let dir = hosts.dir().display();
    let address = hosts.address("a");
    let count = clients.len();
    let mut plan = format!(
        "directory = \"{dir}\"\n[[run]]\nhost = \"a\"\ncommand = \"python3 server.py {address} {count}\"\n"
    );
    for client in clients {
        plan.push_str(&format!(
            "[[run]]\nhost = \"{client}\"\ncommand = \"python3 client.py {address} {client}\"\n\
             after = {{ host = \"a\", says = \"^listening\" }}\n"
        ));
    }
    plan
}

/// How many messages went from one host to another, by hosts.
fn messages(dir: &Path) -> Vec<(String, String)> {
    let set = Arc::new(Set::open(dir).unwrap());
    let history = History::of(&set, &|_| {}).unwrap();
    assert_eq!(history.guesses(), 0);
    assert_eq!(history.dropped(), 0);
    let mut found = Vec::new();
    for place in set.places() {
        let (first, last) = history.span(place);
        for number in first.0..=last.0 {
            let id = causality::EventId::new(place, protocol::id::EventNo(number));
            for link in history.causes(id) {
                let member = |place| {
                    let number = set.member_of(place).unwrap();
                    set.name(number).unwrap().to_string()
                };
                let (from, to) = (member(link.cause.process), member(link.effect.process));
                if link.kind == Kind::Message && from != to {
                    found.push((from, to));
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_program_on_three_hosts_is_one_recording() {
    let scratch = Scratch::new("hosts");
    let _ = (tool!("sshd"), tool!("ip"), tool!("python3"));
    let Some(hosts) = hosts(&scratch, &["a", "b", "c"]) else {
        skip!("network namespaces take root");
    };
    let checked = hosts
        .mw()
        .args(["hosts", "check", "a", "b", "c"])
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
    assert_eq!(
        text(&checked.stdout).matches("can be recorded on").count(),
        3
    );

    what_is_told_of_hosts(&hosts, &checked);

    let (dir, output) = record_plan(&hosts, &scratch, &plan(&hosts, &["b", "c"]), false);
    assert!(output.status.success(), "{}", said(&output));
    let shown = text(&output.stdout);
    for line in ["a | listening", "b | echo b 4", "c | echo c 0"] {
        assert!(shown.contains(line), "{}", said(&output));
    }
    for member in ["a", "b", "c"] {
        let set = Set::open(&dir.join(member)).unwrap();
        assert!(set.member(0).unwrap().is_complete());
        // Nothing is left of what it said.
        let left = hosts.home(member).join("data/meanwhile/.output");
        assert_eq!(std::fs::read_dir(left).unwrap().count(), 0);
    }
    let found = messages(&dir);
    let count = |from: &str, to: &str| {
        let wanted = (from.to_string(), to.to_string());
        found.iter().filter(|pair| **pair == wanted).count()
    };
    // Each line is a message there and one back, received in one piece or more.
    for client in ["b", "c"] {
        assert!(count("a", client) >= 5, "{found:?}");
        assert!(count(client, "a") >= 5, "{found:?}");
    }
    assert_eq!(count("b", "c") + count("c", "b"), 0, "{found:?}");
    // What several hosts captured is there once.
    use std::os::unix::fs::MetadataExt;
    let inodes = |member: &str| -> Vec<u64> {
        let files = std::fs::read_dir(dir.join(member).join("files")).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().ino())
            .collect()
    };
    let (b, c) = (inodes("b"), inodes("c"));
    assert!(
        b.iter().filter(|inode| c.contains(inode)).count() > 3,
        "{b:?} {c:?}"
    );
}

/// All that `mw hosts check` is asked for, to people and to programs.
fn what_is_told_of_hosts(hosts: &Hosts, shown: &std::process::Output) {
    let shown = text(&shown.stdout);
    for label in ["kernel", "user", "cpu", "disk", "clock"] {
        let lines = shown.lines().filter(|line| line.trim().starts_with(label));
        assert_eq!(lines.count(), 3, "{label}: {shown}");
    }
    let told = hosts.mw().args(["hosts", "check", "--json", "a"]).output();
    let told: Value = serde_json::from_slice(&told.unwrap().stdout).unwrap();
    assert_eq!((&told["host"], &told["ok"]), (&"a".into(), &true.into()));
    let here = recording::Manifest::here(Vec::new());
    assert_eq!(told["kernel"], here.kernel);
    assert_eq!(told["cpu"], here.cpu);
    assert_eq!(told["user"], here.user);
    assert!(told["disk_free_bytes"].as_u64().unwrap() > 0, "{told}");
    // Both look at one clock.
    let ahead = told["clock_ahead_ns"].as_i64().unwrap();
    let within = told["clock_within_ns"].as_u64().unwrap();
    assert!(ahead.unsigned_abs() <= within, "{told}");
}

/// What commands say of causes is of all hosts: for messages between them, `why` and
/// `effects` have both ends, `order` knows which came first, and `cut` takes the other
/// host to where it sent.
#[test]
fn causes_by_command_are_those_of_all_hosts() {
    let scratch = Scratch::new("hosts-causes");
    let _ = (tool!("sshd"), tool!("ip"), tool!("python3"));
    let Some(hosts) = hosts(&scratch, &["a", "b"]) else {
        skip!("network namespaces take root");
    };
    let (dir, output) = record_plan(&hosts, &scratch, &plan(&hosts, &["b"]), true);
    assert!(output.status.success(), "{}", said(&output));
    // Both are Python's: their names have the host.
    let parts = |event: &str| {
        let (process, number) = event.rsplit_once(':').unwrap();
        (process.to_string(), number.parse::<u64>().unwrap())
    };
    let host = |event: &str| parts(event).0.rsplit_once('@').unwrap().1.to_string();
    let events = objects(&dir, &["events", "--json"]);
    let links = events
        .iter()
        .flat_map(|event| event["causes"].as_array().unwrap());
    let links: Vec<(String, String)> = links
        .filter(|link| link["kind"] == "message")
        .map(|link| {
            let end = |key: &str| link[key].as_str().unwrap().to_string();
            (end("cause"), end("effect"))
        })
        .filter(|(cause, effect)| host(cause) != host(effect))
        .collect();
    for from in ["a", "b"] {
        let own = links.iter().filter(|(cause, _)| host(cause) == from);
        assert!(own.count() >= 5, "{links:?}");
    }
    let ends = [&links[0], &links[1], links.last().unwrap()];
    for (cause, effect) in ends {
        let ask = |words: &[&str]| objects(&dir, &[words, &["--json"]].concat());
        let has = |told: &[Value], wanted: &str| {
            let link =
                |row: &&Value| row["link"]["cause"] == **cause && row["link"]["effect"] == **effect;
            let row = told
                .iter()
                .find(link)
                .unwrap_or_else(|| panic!("{told:#?}"));
            assert_eq!((&row["event"], &row["depth"]), (&wanted.into(), &1.into()));
        };
        has(&ask(&["why", effect, "--no-source"]), cause);
        has(&ask(&["effects", cause, "--no-source"]), effect);
        let order = |a: &str, b: &str| ask(&["order", a, b])[0]["order"].clone();
        assert_eq!(order(cause, effect), "before");
        assert_eq!(order(effect, cause), "after");
        // Who sent has come to where it sent.
        let (process, number) = parts(cause);
        let cut = ask(&["cut", effect]);
        let row = cut.iter().find(|row| row["process"] == process);
        let last = row.and_then(|row| row["position"].as_str());
        let last = last.unwrap_or_else(|| panic!("{cut:#?}"));
        let (of, come_to) = parts(last);
        assert!(of == process && come_to >= number, "{cause} {cut:#?}");
    }
    // Before any message nobody knows of the other.
    let first = |from: &str| {
        let mut own = events.iter().filter_map(|event| event["event"].as_str());
        own.find(|event| host(event) == from).unwrap().to_string()
    };
    let (a, b) = (first("a"), first("b"));
    let told = objects(&dir, &["order", &a, &b, "--json"]);
    assert_eq!(told[0]["order"], "concurrent", "{told:#?}");
    assert!(told[0]["path"].is_null(), "{told:#?}");
}

#[test]
fn clocks_that_are_hours_apart_do_not_matter() {
    let scratch = Scratch::new("hosts-clocks");
    let _ = (tool!("sshd"), tool!("ip"), tool!("python3"));
    let Some(hosts) = hosts(&scratch, &["a", "b"]) else {
        skip!("network namespaces take root");
    };
    let (dir, output) = record_plan(&hosts, &scratch, &plan(&hosts, &["b"]), true);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(text(&output.stdout), "");
    let found = messages(&dir);
    // The second host's clock, as if it had been two hours ahead.
    const AHEAD: u64 = 7_200_000_000_000;
    let manifest = dir.join("b").join(recording::MANIFEST);
    let mut known: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    for pointer in ["/clock/realtime_ns", "/started_ns"] {
        let value = known.pointer_mut(pointer).unwrap();
        *value = (value.as_u64().unwrap() + AHEAD).into();
    }
    std::fs::write(&manifest, serde_json::to_vec(&known).unwrap()).unwrap();
    assert_eq!(messages(&dir), found);
    let set = Arc::new(Set::open(&dir).unwrap());
    let history = History::of(&set, &|_| {}).unwrap();
    let clock = history.clock_of(1).unwrap();
    // Both run on one clock, so that all that is more is what was added.
    let wrong = clock.ahead_ns.abs_diff(AHEAD as i64);
    assert!(wrong < 100_000_000, "{clock:?}");
    assert!(clock.least_ns.unwrap() <= clock.ahead_ns && clock.ahead_ns <= clock.most_ns.unwrap());
}

#[test]
fn a_connection_that_breaks_costs_nothing_that_was_recorded() {
    let scratch = Scratch::new("hosts-broken");
    let _ = (tool!("sshd"), tool!("ip"));
    let Some(hosts) = hosts(&scratch, &["a"]) else {
        skip!("network namespaces take root");
    };
    let marker = scratch.path().join("go");
    let command = format!(
        "echo begun; while ! [ -e {} ]; do sleep 0.05; done; echo over",
        marker.display()
    );
    let dir = scratch.fresh("joined");
    let mut recorder = hosts
        .mw()
        .args(["record", "-o", dir.to_str().unwrap(), "--on", "a", &command])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let home = hosts.home("a").join("data/meanwhile");
    wait_for("the recording", || {
        home.join("sh-0/manifest.json").exists().then_some(())
    });
    // Not asked to end: gone.
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let refused = hosts.mw().args(["pull", "a:sh-0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(
        text(&refused.stderr).contains("still being recorded"),
        "{}",
        said(&refused)
    );
    std::fs::write(&marker, "").unwrap();
    wait_for("its end", || {
        (!home.join("sh-0/arena").exists()).then_some(())
    });
    let listed = hosts.mw().args(["pull", "a:"]).output().unwrap();
    assert!(text(&listed.stdout).contains("a:sh-0"), "{}", said(&listed));
    let to = scratch.fresh("pulled");
    let pulled = hosts
        .mw()
        .args(["pull", "a:sh-0", "-o", to.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(pulled.status.success(), "{}", said(&pulled));
    let set = Set::open(&to).unwrap();
    assert!(set.member(0).unwrap().is_complete());
    let said = std::fs::read_to_string(home.join(".output/sh-0/stdout")).unwrap();
    assert_eq!(said, "begun\nover\n");
}

#[test]
fn bad_input_is_answered_in_one_line() {
    let scratch = Scratch::new("hosts-bad");
    let _ = (tool!("sshd"), tool!("ip"));
    let Some(hosts) = hosts(&scratch, &["a"]) else {
        skip!("network namespaces take root");
    };
    let first_line = |arguments: &[&str]| {
        let output = hosts.mw().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        text(&output.stderr)
            .lines()
            .next()
            .unwrap_or_default()
            .to_string()
    };
    let line = first_line(&["record", "--on", "nowhere.invalid", "true"]);
    assert!(line.contains("nowhere.invalid cannot be reached"), "{line}");
    let line = first_line(&["pull", "a:nothing"]);
    assert!(line.contains("there is no recording"), "{line}");
    let line = first_line(&["pull", "nothing"]);
    assert!(line.contains("names no host"), "{line}");
    let line = first_line(&["record", "--on", "a", "echo 'x"]);
    assert!(line.contains("a quotation is not closed"), "{line}");
    let line = first_line(&["record", "--plan", "/nonexistent"]);
    assert!(line.contains("cannot read /nonexistent"), "{line}");
    // The status is the command's own.
    let dir = scratch.fresh("status");
    let output = hosts
        .mw()
        .args([
            "record",
            "-o",
            dir.to_str().unwrap(),
            "--on",
            "a",
            "sh -c 'exit 7'",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let twice = first_line(&["join", dir.to_str().unwrap(), dir.to_str().unwrap()]);
    assert!(twice.contains("are the same recording"), "{twice}");
    let dir = scratch.fresh("unknown");
    let output = hosts
        .mw()
        .args([
            "record",
            "-o",
            dir.to_str().unwrap(),
            "--on",
            "a",
            "no-such-command",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", said(&output));
    assert!(
        text(&output.stderr).contains("command not found"),
        "{}",
        said(&output)
    );
    assert!(!dir.exists());
}

/// The recorder is killed, and its program lives on: what there is of the
/// recording can be fetched while the program still has the arena.
#[test]
fn what_a_killed_recorder_left_is_fetched() {
    let scratch = Scratch::new("hosts-killed");
    let _ = (tool!("sshd"), tool!("ip"));
    let Some(hosts) = hosts(&scratch, &["a"]) else {
        skip!("network namespaces take root");
    };
    let dir = scratch.fresh("joined");
    let mut recorder = hosts
        .mw()
        .args(["record", "-q", "-o", dir.to_str().unwrap(), "--on", "a"])
        .arg("while :; do echo x; sleep 0.01; done")
        .spawn()
        .unwrap();
    let home = hosts.home("a").join("data/meanwhile");
    wait_for("its output", || {
        let said = std::fs::metadata(home.join(".output/sh-0/stdout")).ok()?;
        (said.len() > 100).then_some(())
    });
    for pid in hosts.pids("a") {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if command
            .split(|byte| *byte == 0)
            .any(|word| word == b"record")
        {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
    // The agent tells how the recorder ended; what there is was fetched.
    let status = recorder.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 9));
    let set = Set::open(&dir).unwrap();
    assert!(!set.member(0).unwrap().is_complete());
    assert!(!set.is_empty());
}

/// Passes on what comes, both ways: from the port 7000 of its own to that of an
/// address. To who looks from either end, the other has an address of its own.
const TRANSLATOR: &str = r#"
import socket, sys, threading
def pass_on(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
listener = socket.create_server((sys.argv[1], 7000))
print("listening", flush=True)
while True:
    inner, _ = listener.accept()
    outer = socket.create_connection((sys.argv[2], 7000))
    threading.Thread(target=pass_on, args=(inner, outer), daemon=True).start()
    threading.Thread(target=pass_on, args=(outer, inner), daemon=True).start()
"#;

/// Both ends of a connection see other addresses, as behind NAT or the address of
/// a service: what was sent tells which they are, and where it does not, what is
/// said is said to be a guess.
#[test]
fn translated_addresses_are_found_by_what_was_sent() {
    use std::io::{BufRead, BufReader};
    let scratch = Scratch::new("hosts-translated");
    let python = tool!("python3");
    let _ = (tool!("sshd"), tool!("ip"));
    let Some(hosts) = hosts(&scratch, &["a", "b", "c"]) else {
        skip!("network namespaces take root");
    };
    let between = "10.77.0.254";
    let mut translator = hosts
        .between()
        .arg(python)
        .args(["-c", TRANSLATOR, between])
        .arg(hosts.address("a").to_string())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said_there = BufReader::new(translator.stdout.take().unwrap());
    said_there.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "listening");
    let record = |clients: [&str; 2]| {
        let directory = hosts.dir().display();
        let address = hosts.address("a");
        let mut plan = format!(
            "directory = \"{directory}\"\n[[run]]\nhost = \"a\"\n\
             command = \"python3 server.py {address} 2\"\n"
        );
        for (host, says) in ["b", "c"].into_iter().zip(clients) {
            plan.push_str(&format!(
                "[[run]]\nhost = \"{host}\"\ncommand = \"python3 client.py {between} {says}\"\n\
                 after = {{ host = \"a\", says = \"^listening\" }}\n"
            ));
        }
        let (dir, output) = record_plan(&hosts, &scratch, &plan, true);
        assert!(output.status.success(), "{}", said(&output));
        dir
    };
    let told = record(["bertha", "carl"]);
    let found = messages(&told);
    for client in ["b", "c"] {
        let there = (client.to_string(), "a".to_string());
        let back = ("a".to_string(), client.to_string());
        assert!(
            found.iter().filter(|pair| **pair == there).count() >= 5,
            "{found:?}"
        );
        assert!(
            found.iter().filter(|pair| **pair == back).count() >= 5,
            "{found:?}"
        );
    }
    let channels = hosts
        .mw()
        .args(["channels", "-r", told.to_str().unwrap()])
        .output()
        .unwrap();
    let shown = text(&channels.stdout);
    assert!(shown.contains("translated to"), "{shown}");
    assert!(!shown.contains("perhaps"), "{shown}");
    // Two who say the same.
    let open = record(["anyone", "anyone"]);
    let set = Arc::new(Set::open(&open).unwrap());
    let history = History::of(&set, &|_| {}).unwrap();
    assert_eq!(history.guesses(), 2);
    let channels = hosts
        .mw()
        .args(["channels", "-r", open.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        text(&channels.stdout).contains("perhaps"),
        "{}",
        said(&channels)
    );
    translator.kill().unwrap();
    translator.wait().unwrap();
}

/// Recordings that never met are joined, with a warning; what was joined is
/// listed, and goes, as one.
#[test]
fn what_was_joined_is_listed_and_removed_as_one() {
    let scratch = Scratch::new("joined-list");
    let home = scratch.fresh("home");
    let mw = |arguments: &[&str]| {
        let output = std::process::Command::new(harness::MW)
            .args(arguments)
            .env("XDG_DATA_HOME", &home)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        output
    };
    mw(&["record", "echo", "one"]);
    mw(&["record", "echo", "two"]);
    let joined = mw(&["join", "echo-0", "echo-1"]);
    let warned = text(&joined.stderr);
    assert_eq!(
        warned.matches("has no channel in common").count(),
        2,
        "{warned}"
    );
    let listed = text(&mw(&["list", "--json"]).stdout);
    let rows: Vec<serde_json::Value> = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["recording"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"joined-0"), "{names:?}");
    let own = rows
        .iter()
        .find(|row| row["recording"] == "joined-0")
        .unwrap();
    // Both were made on one host: their names are told apart.
    let hosts = own["hosts"].as_array().unwrap();
    let [first, second] = [0, 1].map(|at| hosts[at].as_str().unwrap());
    assert_eq!((hosts.len(), second), (2, format!("{first}-2").as_str()));
    assert_eq!(own["state"], "complete");
    assert!(own["bytes"].as_u64().unwrap() > 0);
    assert!(text(&mw(&["list"]).stdout).contains("echo two"));
    // It is the latest, and every process has its host's name where it must.
    let shown = text(&mw(&["ps"]).stdout);
    for host in [first, second] {
        assert!(shown.contains(&format!("echo-0@{host} ")), "{shown}");
    }
    // What is a member already is not joined once more.
    let again = std::process::Command::new(harness::MW)
        .args(["join", "joined-0", "echo-1"])
        .env("XDG_DATA_HOME", &home)
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    assert!(
        text(&again.stderr).contains("are the same recording"),
        "{}",
        said(&again)
    );
    assert!(!home.join("meanwhile/joined-1").exists());
    mw(&["verify"]);
    mw(&["rm", "joined-0"]);
    assert!(!home.join("meanwhile/joined-0").exists());
    // The members are there as they were.
    mw(&["verify", "echo-0"]);
    mw(&["join", "echo-0", "echo-1"]);
    mw(&["prune", "--keep", "0"]);
    assert_eq!(text(&mw(&["list", "--json"]).stdout), "");
}

/// Says what a plan would do; ends with the status of the first that failed; a second
/// Ctrl-C ends what does not end by the first.
#[test]
fn plans_statuses_and_interrupts() {
    let scratch = Scratch::new("hosts-plans");
    let _ = (tool!("sshd"), tool!("ip"), tool!("python3"));
    let Some(hosts) = hosts(&scratch, &["a", "b"]) else {
        skip!("network namespaces take root");
    };
    let file = scratch.path().join("plan.toml");
    let plan =
        plan(&hosts, &["b"]).replacen("[[run]]", "environment = { COLOUR = \"blue\" }\n[[run]]", 1);
    std::fs::write(&file, plan).unwrap();
    let shown = hosts
        .mw()
        .args(["record", "--check", "--plan"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(shown.status.success(), "{}", said(&shown));
    for line in [
        "a: python3 server.py",
        "with   COLOUR=blue",
        "after  a says `^listening`",
    ] {
        assert!(text(&shown.stdout).contains(line), "{}", said(&shown));
    }
    assert!(!hosts.home("a").join("data/meanwhile").exists());

    let dir = scratch.fresh("statuses");
    let output = hosts
        .mw()
        .args(["record", "-q", "-o", dir.to_str().unwrap()])
        .args([
            "--on",
            "a",
            "sleep 1; exit 3",
            "--on",
            "b",
            "sh -c 'exit 4'",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));

    let dir = scratch.fresh("stubborn");
    let mut child = hosts
        .mw()
        .args(["record", "-o", dir.to_str().unwrap()])
        .args([
            "--on",
            "a",
            "trap 'echo no' INT; echo begun; while :; do sleep 0.05; done",
        ])
        .args(["--on", "b", "echo begun; sleep 1000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut until = |what: &str| {
        let found = lines.find(|line| line.as_ref().unwrap().contains(what));
        assert!(found.is_some(), "nobody said {what}");
    };
    until("begun");
    until("begun");
    let interrupt = || {
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    };
    interrupt();
    until("no");
    interrupt();
    let status = child.wait().unwrap();
    assert!(!status.success());
    let set = Set::open(&dir).unwrap();
    assert_eq!(set.members().len(), 2);
}
