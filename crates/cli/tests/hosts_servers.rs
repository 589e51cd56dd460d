//! Servers that people run on several hosts: recorded on network namespaces,
//! driven from outside, and asked for what their messages say of themselves.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod harness;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use causality::{EventId, History, Kind, Order};
use harness::joined::{Recorder, mw};
use harness::namespaces::Hosts;
use harness::{Scratch, wait_for};
use protocol::id::EventNo;
use recording::Set;
use serde_json::Value;

/// Runs something between the hosts. What it said, if it went well.
fn outside(hosts: &Hosts, program: &str, arguments: &[&str]) -> Option<String> {
    let output = hosts
        .between()
        .arg(program)
        .args(arguments)
        .env("ETCDCTL_API", "3")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(said)
}

/// A recording with its causes.
struct Told {
    dir: PathBuf,
    set: Arc<Set>,
    history: History,
}

impl Told {
    fn open(dir: PathBuf) -> Told {
        let set = Arc::new(Set::open(&dir).unwrap());
        let history = History::of(&set, &|_| {}).unwrap();
        assert_eq!(history.dropped(), 0);
        Told { dir, set, history }
    }

    /// The events that fit, in order.
    fn events(&self, pattern: &str) -> Vec<EventId> {
        let said = mw(
            &self.dir,
            &[
                "events",
                "--json",
                "-s",
                "0",
                "--no-links",
                "--where",
                pattern,
            ],
        );
        let id = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            let name = event["event"].as_str().unwrap();
            let (process, number) = name.rsplit_once(':').unwrap();
            let place = self.set.process_named(process).unwrap();
            EventId::new(place, EventNo(number.parse().unwrap()))
        };
        said.lines().map(id).collect()
    }

    fn host(&self, event: EventId) -> &str {
        let member = self.set.member_of(event.process).unwrap();
        self.set.name(member).unwrap()
    }

    fn is_before(&self, cause: EventId, effect: EventId) -> bool {
        self.history.order(cause, effect) == Order::Before
    }

    /// The hosts that a way from one event to another goes through.
    fn way(&self, cause: EventId, effect: EventId) -> BTreeSet<&str> {
        let links = self.history.path_between(cause, effect).unwrap();
        links
            .iter()
            .flat_map(|link| [self.host(link.cause), self.host(link.effect)])
            .collect()
    }

    /// Messages from one host to another.
    fn messages(&self, from: &str, to: &str) -> usize {
        let links = self.history.links();
        links
            .filter(|link| {
                link.kind == Kind::Message
                    && self.host(link.cause) == from
                    && self.host(link.effect) == to
            })
            .count()
    }
}

#[test]
fn what_a_replica_of_redis_says_its_master_was_told() {
    let scratch = Scratch::new("hosts-redis");
    let (server, client) = (tool!("redis-server"), tool!("redis-cli"));
    let _ = (tool!("sshd"), tool!("ip"));
    let Some(hosts) = Hosts::new(&scratch, &["a", "b"]) else {
        skip!("network namespaces take root");
    };
    let line = |host: &str, more: &str| {
        format!(
            "{} --port 6379 --bind {} --protected-mode no --appendonly no --save '' {more}",
            server,
            hosts.address(host)
        )
    };
    let (a, b) = (
        hosts.address("a").to_string(),
        hosts.address("b").to_string(),
    );
    let runs = [
        ("a", line("a", "")),
        ("b", line("b", &format!("--replicaof {a} 6379"))),
    ];
    let recorder = Recorder::start(&hosts, &scratch, &runs);
    let redis = |host: &str, words: &[&str]| {
        let all = [&["-h", host], words].concat();
        outside(&hosts, &client, &all)
    };
    wait_for("the replica", || {
        let said = redis(&b, &["info", "replication"])?;
        said.contains("master_link_status:up").then_some(())
    });
    for number in 0..5 {
        let value = format!("value-{number}-of-redis");
        assert_eq!(redis(&a, &["set", "key", &value]).unwrap().trim(), "OK");
        wait_for("the value", || {
            (redis(&b, &["get", "key"])?.trim() == value).then_some(())
        });
    }
    let told = Told::open(recorder.stop());
    for number in 0..5 {
        let value = format!("value-{number}-of-redis");
        let written = told.events(&format!("host = a and recv and bytes ~ \"{value}\""));
        let read = told.events(&format!("host = b and send and bytes ~ \"{value}\""));
        let (first, last) = (written[0], *read.last().unwrap());
        assert!(told.is_before(first, last), "{value}");
        assert_eq!(told.way(first, last), BTreeSet::from(["a", "b"]));
        // What the reader must have seen holds the write, and no later one.
        let past = told.history.past(last);
        assert!(past.has(first));
        let later = format!(
            "host = a and recv and bytes ~ \"value-{}-of-redis\"",
            number + 1
        );
        for event in told.events(&later).into_iter().take(1) {
            assert!(!past.has(event), "{value}");
        }
    }
    assert!(told.messages("a", "b") >= 5);
    let verified = mw(&told.dir, &["verify"]);
    assert!(verified.contains("all equal"), "{verified}");
}

#[test]
fn nginx_in_front_of_two_hosts_passes_on_what_they_said() {
    let scratch = Scratch::new("hosts-nginx");
    let (nginx, curl) = (tool!("nginx"), tool!("curl"));
    let _ = (tool!("sshd"), tool!("ip"));
    let Some(hosts) = Hosts::new(&scratch, &["a", "b", "c"]) else {
        skip!("network namespaces take root");
    };
    let mut runs = Vec::new();
    for host in ["a", "b", "c"] {
        let dir = hosts.dir().join(format!("nginx-{host}"));
        std::fs::create_dir_all(&dir).unwrap();
        let (own, at) = (hosts.address(host), dir.display().to_string());
        let serves = match host {
            "a" => format!(
                "upstream both {{ server {}:8000; server {}:8000; }}\n\
                 server {{ listen {own}:8000; location / {{ proxy_pass http://both; }} }}",
                hosts.address("b"),
                hosts.address("c")
            ),
            host => format!(
                "server {{ listen {own}:8000; \
                 location / {{ return 200 \"$request_uri answered by {host}\\n\"; }} }}"
            ),
        };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
            .concat();
        let config = format!(
            "daemon off; worker_processes 1; user root; pid {at}/pid; error_log {at}/errors;\n\
             events {{ }}\nhttp {{ access_log off;\n{temporary}{serves}\n}}\n"
        );
        std::fs::write(dir.join("nginx.conf"), config).unwrap();
        let line = format!("{} -p {at} -c {at}/nginx.conf", nginx);
        runs.push((host, line));
    }
    let recorder = Recorder::start(&hosts, &scratch, &runs);
    let front = format!("http://{}:8000", hosts.address("a"));
    wait_for("all three", || {
        let ok = |host: &str| {
            let url = format!("http://{}:8000/ready", hosts.address(host));
            outside(&hosts, &curl, &["-sf", &url])
        };
        ["b", "c", "a"]
            .into_iter()
            .all(|h| ok(h).is_some())
            .then_some(())
    });
    let mut answers = Vec::new();
    for number in 0..8 {
        let url = format!("{front}/page-{number}");
        let said = outside(&hosts, &curl, &["-sf", &url]).unwrap();
        let by = said.trim().rsplit(' ').next().unwrap().to_string();
        answers.push((format!("/page-{number} answered by"), by));
    }
    let told = Told::open(recorder.stop());
    let all: BTreeSet<&str> = answers.iter().map(|(_, by)| by.as_str()).collect();
    assert_eq!(all, BTreeSet::from(["b", "c"]));
    for (number, (text, by)) in answers.iter().enumerate() {
        // Whoever the answer says has answered was asked, and it was their answer.
        let asked = |host: &str| {
            let request = format!("GET /page-{number} ");
            told.events(&format!("host = {host} and recv and bytes ~ \"{request}\""))
        };
        let other = if by == "b" { "c" } else { "b" };
        assert!(asked(other).is_empty(), "{text} {by}");
        let asked = asked(by)[0];
        let heard = told.events(&format!("host = a and recv and bytes ~ \"{text}\""))[0];
        assert!(told.is_before(asked, heard), "{text} {by}");
        assert_eq!(told.way(asked, heard), BTreeSet::from(["a", by.as_str()]));
        let causes = told.history.causes(heard);
        let senders: BTreeSet<&str> = causes.iter().map(|link| told.host(link.cause)).collect();
        assert_eq!(senders, BTreeSet::from([by.as_str()]), "{text}");
    }
    // A server that serves waits for whoever comes, and for nobody it knows.
    let blocked = mw(&told.dir, &["blocked", "--json"]);
    assert!(!blocked.contains("deadlock\":true"), "{blocked}");
    let verified = mw(&told.dir, &["verify"]);
    assert!(verified.contains("all equal"), "{verified}");
}

/// The leader of three is killed. What is read afterwards, from one that
/// remains, follows from what was written before at the other.
#[test]
fn etcd_remembers_what_was_written_before_its_leader_was_killed() {
    let scratch = Scratch::new("hosts-etcd");
    let (server, control) = (tool!("etcd"), tool!("etcdctl"));
    let _ = (tool!("sshd"), tool!("ip"));
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let Some(hosts) = Hosts::new(&scratch, &NAMES) else {
        skip!("network namespaces take root");
    };
    let client = |host: &str| format!("http://{}:2379", hosts.address(host));
    let peer = |host: &str| format!("http://{}:2380", hosts.address(host));
    let cluster = NAMES.map(|host| format!("{host}={}", peer(host))).join(",");
    let runs = NAMES.map(|host| {
        let line = format!(
            "{} --name {host} --data-dir {} --listen-client-urls {} --advertise-client-urls {} \
             --listen-peer-urls {} --initial-advertise-peer-urls {} --initial-cluster {cluster} \
             --heartbeat-interval 500 --election-timeout 5000",
            server,
            hosts.dir().join(format!("etcd-{host}")).display(),
            client(host),
            client(host),
            peer(host),
            peer(host),
        );
        (host, line)
    });
    let recorder = Recorder::start(&hosts, &scratch, &runs);
    let etcdctl = |host: &str, words: &[&str]| {
        let endpoint = format!("--endpoints={}", client(host));
        let all = [&[endpoint.as_str(), "--command-timeout=30s"], words].concat();
        outside(&hosts, &control, &all)
    };
    let status = |host: &str| -> Option<Value> {
        let said = etcdctl(host, &["endpoint", "status", "-w", "json"])?;
        let all: Value = serde_json::from_str(&said).ok()?;
        Some(all[0]["Status"].clone())
    };
    let leader = wait_for("a leader", || {
        let leads = |host: &&str| {
            let status = status(host)?;
            let (own, leader) = (&status["header"]["member_id"], &status["leader"]);
            (own == leader && own.as_u64()? != 0).then_some(())
        };
        let all_are_there = NAMES.iter().all(|host| status(host).is_some());
        let found = NAMES.into_iter().find(|host| leads(host).is_some());
        found.filter(|_| all_are_there)
    });
    let rest: Vec<&str> = NAMES.into_iter().filter(|host| *host != leader).collect();
    let [writer, reader] = rest[..] else {
        panic!("{rest:?}");
    };
    let (key, value) = ("key-of-etcd", "written-while-the-first-leader-led");
    assert!(etcdctl(writer, &["put", key, value]).is_some());
    for pid in hosts.pids(leader) {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
        if first.ends_with(b"/etcd") {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
    wait_for("another leader", || {
        let said = etcdctl(reader, &["get", key])?;
        said.contains(value).then_some(())
    });
    let told = Told::open(recorder.stop());
    let written = told.events(&format!("host = {writer} and recv and bytes ~ \"{value}\""))[0];
    // The last that asked for it: of what is sent, the log has only the beginning.
    let read = told.events(&format!("host = {reader} and recv and bytes ~ \"{key}\""));
    let read = *read.last().unwrap();
    assert!(told.is_before(written, read));
    let way = told.way(written, read);
    assert!(way.contains(writer) && way.contains(reader), "{way:?}");
    // The leader was killed, and is where it was then.
    let shown = mw(&told.dir, &["ps", "--json"]);
    let own = |line: &&str| line.contains(&format!("\"host\":\"{leader}\""));
    assert!(
        shown.lines().find(own).unwrap().contains("SIGKILL"),
        "{shown}"
    );
    // The election: one asks for the other's vote, after it has heard the last of
    // the leader, and before the value is read.
    let past = told.history.past(read);
    let last_word = |host: &str| {
        let links = told.history.links();
        let heard = links.filter(|link| {
            link.kind == Kind::Message
                && told.host(link.cause) == leader
                && told.host(link.effect) == host
        });
        heard
            .map(|link| link.effect)
            .max_by_key(|event| event.number)
            .unwrap()
    };
    let (one, two) = (last_word(writer), last_word(reader));
    let votes = told.history.links().filter(|link| {
        let hosts = (told.host(link.cause), told.host(link.effect));
        link.kind == Kind::Message
            && past.has(link.effect)
            && match hosts {
                (from, to) if from == writer && to == reader => told.is_before(one, link.cause),
                (from, to) if from == reader && to == writer => told.is_before(two, link.cause),
                _ => false,
            }
    });
    assert!(votes.count() >= 2);
    let verified = mw(&told.dir, &["verify"]);
    assert!(verified.contains("all equal"), "{verified}");
}
