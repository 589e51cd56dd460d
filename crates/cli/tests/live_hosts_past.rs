//! A program that runs on several hosts and is recorded there, at one prompt: it is gone
//! back in while it is alive, and what was recorded is joined when it is over.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use harness::joined::{Recorder, debug, said};
use harness::namespaces::Hosts;
use harness::prompt::has_in_order;
use harness::{MW, Scratch, programs, verified, wait_for};
use recording::Set;

/// Many more messages than any test takes.
const MANY: &str = "100000000";

macro_rules! hosts {
    ($scratch:expr, $before:expr) => {{
        let _ = (tool!("sshd"), tool!("ip"), tool!("cc"));
        match Hosts::made($scratch, &["a", "b"], $before) {
            Some(hosts) => hosts,
            None => skip!("network namespaces take root"),
        }
    }};
    ($scratch:expr) => {
        hosts!($scratch, &|_| String::new())
    };
}

fn parted(scratch: &Scratch) -> PathBuf {
    programs::for_debuggers(scratch, "debug/parted.c", &[])
}

/// The commands of both ends of a conversation of so many messages.
fn both(hosts: &Hosts, program: &Path, count: &str) -> [(&'static str, String); 2] {
    let (path, address) = (program.display(), hosts.address("a"));
    [
        ("a", format!("{path} serve {address} {count}")),
        ("b", format!("{path} ask {address} {count}")),
    ]
}

/// `mw WORDS --batch -e COMMAND ...`
fn mw(hosts: &Hosts, words: &[&str], commands: &[&str]) -> Output {
    let mut command = hosts.mw();
    command.args(words).arg("--batch");
    for line in commands {
        command.args(["-e", line]);
    }
    command.output().unwrap()
}

/// `mw run --record` of commands on hosts, in a directory.
fn run(hosts: &Hosts, dir: &Path, runs: &[(&str, String)], commands: &[&str]) -> Output {
    let mut words = vec!["run", "--record", "-o", dir.to_str().unwrap()];
    for (host, line) in runs {
        words.extend(["--on", host, line]);
    }
    mw(hosts, &words, commands)
}

/// The values that were printed, in order.
fn values(text: &str) -> Vec<i64> {
    let lines = text.lines().filter(|line| line.starts_with('$'));
    let values = lines.filter_map(|line| line.split_once(" = "));
    values
        .map(|(_, value)| value.trim().parse().unwrap())
        .collect()
}

/// The lines that say where a process stands in its recording.
fn places(text: &str) -> Vec<&str> {
    let is_place = |line: &&str| {
        line.starts_with("parted-0@") && (line.contains(", before ") || line.contains(", about to"))
    };
    text.lines().filter(is_place).collect()
}

/// The program of a test on a host: its id.
fn process(hosts: &Hosts, host: &str, name: &str) -> Option<i32> {
    let is_it = |pid: &i32| {
        let own = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        own.is_ok_and(|own| own.trim() == name)
    };
    hosts.pids(host).into_iter().find(is_it)
}

/// What is joined has a member for each host, and replays as it was recorded.
fn is_whole(dir: &Path) {
    let set = Set::open(dir).unwrap();
    let names: Vec<&str> = (0..2).filter_map(|number| set.name(number)).collect();
    assert_eq!(names, ["a", "b"]);
    verified::verify(dir, &[]).is_equal();
}

#[test]
fn it_is_gone_back_in_on_all_hosts_and_joined_when_it_is_over() {
    let scratch = Scratch::new("live-hosts-back");
    let hosts = hosts!(&scratch);
    let program = parted(&scratch);
    let dir = scratch.path().join("joined");
    let done = run(
        &hosts,
        &dir,
        &both(&hosts, &program, MANY),
        &[
            "tbreak took if received == 20",
            "continue",
            "print received > 0",
            "shell sleep 2",
            // In what was recorded so far.
            "goto end",
            "process parted-0@b",
            "print sending > 0",
            "tbreak give in parted-0@b",
            "reverse-continue",
            "print sending > 0",
            "why",
            "tbreak took in parted-0@a",
            "reverse-continue",
            "print message->number > 0",
            "live",
            "print received > 0",
            // More of a past the second time.
            "resume 300ms",
            "goto end",
            "process parted-0@a",
            "print received > 0",
            "goto parted-0@a:60",
            "processes",
            "live",
            "time",
        ],
    );
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    has_in_order(
        &text,
        &[
            "took at ",
            "$1 = 1",
            "(in what was recorded so far; `live` returns to the front)",
            "$2 = 1",
            "parted-0@b, main-0, before parted-0@b:",
            "give at ",
            "$3 = 1",
            " <- parted-0@",
            "parted-0@a, main-0, before parted-0@a:",
            "took at ",
            "$4 = 1",
            ", halted",
            "$5 = 1",
            "Interrupted.",
            "$6 = 1",
            "parted-0@a",
            "parted-0@b",
            ", halted",
            "\na:\nreal",
            "\nb:\nreal",
            "recorded as",
        ],
    );
    is_whole(&dir);
    // It stood for two seconds and more, and did not see it.
    let told = debug(
        &dir,
        &[
            "goto end",
            "process parted-0@a",
            "print longest_ms < 900",
            "process parted-0@b",
            "print longest_ms < 900",
        ],
    );
    assert_eq!(values(&told.concat()), [1, 1], "{told:?}");
    // No copies are left.
    let cache = std::fs::read_dir(hosts.dir().join("cache/meanwhile/hosts")).unwrap();
    let names = cache.flatten().map(|entry| entry.file_name());
    let mut names = names.map(|name| name.to_string_lossy().into_owned());
    assert!(!names.any(|name| name.starts_with("observed-")));
}

#[test]
fn conditions_lead_back_to_the_exact_first_state_of_all_hosts() {
    let scratch = Scratch::new("live-hosts-exact");
    let hosts = hosts!(&scratch);
    let program = parted(&scratch);
    let dir = scratch.path().join("joined");
    // Some are ahead of the answers.
    let state = "stop if value(parted-0@a: received) == 30 and value(parted-0@b: received) == 27";
    let events = [
        r"let told = send and process = parted-0@b and bytes ~ /(?s-u)^\x40/",
        r"let heard = recv and process = parted-0@a and bytes ~ /(?s-u)^\x40/",
        r"let back = send and process = parted-0@a and bytes ~ /(?s-u)^\x40/",
        "stop if told -> heard -> back",
    ];
    let mut commands = vec![
        state,
        "process parted-0@a",
        "process parted-0@b",
        "live",
        "print received >= 27",
        "delete",
    ];
    commands.extend(events);
    commands.extend(["process parted-0@b", "live", "info conditions"]);
    let done = run(&hosts, &dir, &both(&hosts, &program, MANY), &commands);
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    has_in_order(
        &text,
        &[
            "Condition 1: value(parted-0@a: received) == 30",
            "  parted-0@a: received = 30",
            "  parted-0@b: received = 27",
            "the exact state, by going back: the program itself was halted",
            "past it; `live` returns there",
            ", halted",
            "$1 = 1",
            "Condition 2: told -> heard -> back",
            "the exact state, by going back",
            ", halted",
        ],
    );
    is_whole(&dir);
    // What was recorded says the same when it is over.
    let later = debug(&dir, &[state, "process parted-0@a", "process parted-0@b"]);
    let later = later.concat();
    let (first, same) = (places(&text), places(&later));
    assert_eq!(first[..3], same[..3], "{text}\n{later}");
}

#[test]
fn a_program_that_somebody_records_on_hosts_is_gone_back_in() {
    let scratch = Scratch::new("live-hosts-recorded");
    let hosts = hosts!(&scratch);
    let program = parted(&scratch);
    let recorder = Recorder::start(&hosts, &scratch, &both(&hosts, &program, MANY));
    let pids = ["a", "b"].map(|host| wait_for("the program", || process(&hosts, host, "parted")));
    let words = [format!("a:{}", pids[0]), format!("b:{}", pids[1])];
    let done = mw(
        &hosts,
        &["attach", &words[0], &words[1]],
        &[
            &format!("tbreak took in parted-{}@a", pids[0]),
            "continue",
            "print received > 0",
            "goto end",
            "tbreak give in parted-0@b",
            "reverse-continue",
            "why",
            "live",
            "delete",
            "stop if let answer = send and process = parted-0@a; answer^5",
            "live",
            "detach",
        ],
    );
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    has_in_order(
        &text,
        &[
            "$1 = 1",
            "(in what was recorded so far; `live` returns to the front)",
            "before parted-0@b:",
            "give at ",
            " <- parted-0@",
            ", halted",
            "Condition ",
            "by going back",
            ", halted",
            "runs on.",
            "runs on.",
        ],
    );
    is_whole(&recorder.stop());
}

/// Of what one host does not record nobody knows the past.
#[test]
fn a_program_of_which_a_part_is_not_recorded_has_no_past() {
    let scratch = Scratch::new("live-hosts-half");
    let hosts = hosts!(&scratch);
    let program = parted(&scratch);
    let [server, asker] = both(&hosts, &program, MANY);
    let recorder = Recorder::start(&hosts, &scratch, &[server]);
    let words: Vec<&str> = asker.1.split(' ').skip(1).collect();
    let mut other = hosts.on("b", &program);
    let mut other = other.args(words).stdout(Stdio::null()).spawn().unwrap();
    let pids = ["a", "b"].map(|host| wait_for("the program", || process(&hosts, host, "parted")));
    let words = [format!("a:{}", pids[0]), format!("b:{}", pids[1])];
    let done = mw(&hosts, &["attach", &words[0], &words[1]], &["goto end"]);
    let text = said(&done);
    assert_eq!(done.status.code(), Some(2), "{text}");
    has_in_order(&text, &["what runs on b is not recorded"]);
    let _ = recorder.stop();
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_part_that_ends_first_has_a_past_still() {
    let scratch = Scratch::new("live-hosts-first");
    let hosts = hosts!(&scratch);
    let program = parted(&scratch);
    let dir = scratch.path().join("joined");
    let mut runs = both(&hosts, &program, "30");
    runs[0].1 = format!("sh -c '{}; sleep 1000'", runs[0].1);
    let done = run(
        &hosts,
        &dir,
        &runs,
        &[
            "stop if let last = exit and process = parted-0@b; last",
            "live",
            "delete",
            "goto end",
            "process parted-0@b",
            "tbreak took in parted-0@b",
            "reverse-continue",
            "print received",
            "live",
            "processes",
            // What is left goes on, and can be asked.
            "resume 200ms",
            "time",
            "halted",
            "resume 200ms",
        ],
    );
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    has_in_order(
        &text,
        &[
            "Condition 1: last",
            "by going back",
            "took at ",
            "$1 = 29",
            "Interrupted.",
            "\na:\nreal",
            "\na:\nhalt",
            "Interrupted.",
        ],
    );
    is_whole(&dir);
}

#[test]
fn what_is_let_go_is_recorded_on_and_can_be_fetched() {
    let scratch = Scratch::new("live-hosts-detached");
    let hosts = hosts!(&scratch);
    let program = parted(&scratch);
    let dir = scratch.path().join("joined");
    let runs = both(&hosts, &program, "3000");
    let commands = ["tbreak took", "continue", "goto end", "live", "detach"];
    let done = run(&hosts, &dir, &runs, &commands);
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    has_in_order(&text, &["runs on.", "runs on."]);
    for host in ["a", "b"] {
        let how = format!("fetch it with `mw pull {host}:parted-0`");
        assert!(text.contains(&how), "{how}: {text}");
    }
    assert!(!dir.exists());
    fetched(&scratch, &hosts);
}

/// Both parts are fetched when they are over, and joined: all of it is there.
fn fetched(scratch: &Scratch, hosts: &Hosts) {
    let mut members = Vec::new();
    for host in ["a", "b"] {
        let to = scratch.fresh(host);
        wait_for("the end of the recording", || {
            let done = hosts
                .mw()
                .args([
                    "pull",
                    &format!("{host}:parted-0"),
                    "-o",
                    to.to_str().unwrap(),
                ])
                .output()
                .unwrap();
            done.status.success().then_some(())
        });
        members.push(to);
    }
    let dir = scratch.fresh("by-hand");
    let done = std::process::Command::new(MW)
        .arg("join")
        .args(&members)
        .args(["-o", dir.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", said(&done));
    verified::verify(&dir, &[]).is_equal();
}

#[test]
fn a_debugger_that_is_killed_leaves_recordings_that_can_be_fetched() {
    let scratch = Scratch::new("live-hosts-killed");
    let hosts = hosts!(&scratch);
    let program = parted(&scratch);
    let dir = scratch.path().join("joined");
    let runs = both(&hosts, &program, "300");
    let mut words = vec![
        "run",
        "--keep",
        "1",
        "--record",
        "-o",
        dir.to_str().unwrap(),
    ];
    for (host, line) in &runs {
        words.extend(["--on", host, line]);
    }
    let done = mw(
        &hosts,
        &words,
        &["tbreak took", "continue", "goto end", "shell kill -9 $PPID"],
    );
    assert!(!done.status.success(), "{}", said(&done));
    fetched(&scratch, &hosts);
}

#[test]
fn a_host_that_cannot_record_keeps_all_from_being_started() {
    let scratch = Scratch::new("live-hosts-unfit");
    let homes = scratch.path().join("hosts");
    let no_room = |host: &str| match host {
        "b" => small(&homes, host, "1m"),
        _ => String::new(),
    };
    let hosts = hosts!(&scratch, &no_room);
    let program = parted(&scratch);
    let dir = scratch.path().join("joined");
    let done = run(&hosts, &dir, &both(&hosts, &program, MANY), &["continue"]);
    let text = said(&done);
    assert_eq!(done.status.code(), Some(2), "{text}");
    let line = text.lines().find(|line| line.starts_with("mw: ")).unwrap();
    assert!(
        line.contains("b: ") && line.contains("No space left"),
        "{text}"
    );
    assert!(!dir.exists());
    wait_for("the end of what was started", || {
        process(&hosts, "a", "parted").is_none().then_some(())
    });
    // A command that is not there is told the same way.
    let mut runs = both(&hosts, &program, MANY);
    runs[1] = ("a", "/nowhere/at/all".to_string());
    let done = run(&hosts, &dir, &runs, &["continue"]);
    let text = said(&done);
    assert_eq!(done.status.code(), Some(2), "{text}");
    assert!(text.contains("/nowhere/at/all"), "{text}");
    assert!(!dir.exists());
    assert!(process(&hosts, "a", "parted").is_none());
}

/// A shell's words for a small disk where a host keeps its recordings.
fn small(homes: &Path, host: &str, size: &str) -> String {
    let at = homes.join(host).join("data");
    let at = at.display();
    format!("mkdir -p {at}; mount -t tmpfs -o size={size} tmpfs {at}")
}

/// What was recorded until then is there, and is gone back in.
#[test]
fn a_disk_that_becomes_full_ends_the_past_there_and_not_the_program() {
    let scratch = Scratch::new("live-hosts-full");
    let homes = scratch.path().join("hosts");
    let little_room = |host: &str| match host {
        "b" => small(&homes, host, "60m"),
        _ => String::new(),
    };
    let hosts = hosts!(&scratch, &little_room);
    let program = parted(&scratch);
    let dir = scratch.path().join("joined");
    let [server, _] = both(&hosts, &program, MANY);
    // Twenty times as much as there is room for: when it ends, the disk is full.
    let reader = "dd if=/dev/urandom of=/dev/null bs=64k count=20000".to_string();
    let done = run(
        &hosts,
        &dir,
        &[("b", reader), server],
        &["continue", "goto end", "processes", "live"],
    );
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    has_in_order(&text, &["has ended", "about to do dd-0:", "ended"]);
    assert!(text.contains("no room for the recording in "), "{text}");
    let set = Set::open(&dir).unwrap();
    assert_eq!(set.members().len(), 2, "{text}");
    // All of it comes as it was; how the reader ended was not recorded any more.
    let verified = std::process::Command::new(MW)
        .arg("verify")
        .arg(&dir)
        .output();
    let told = said(&verified.unwrap());
    assert!(told.contains("found no end"), "{told}");
    assert!(!told.contains("diverged"), "{told}");
}
