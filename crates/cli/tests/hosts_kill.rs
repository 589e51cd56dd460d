//! Whatever is killed while a program is recorded on several hosts, what was
//! recorded is there: every recording can be read, and they can be joined.
//!
//! A few rounds here; `scripts/soak --kills 200` for as many as one likes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use causality::{History, Kind};
use harness::namespaces::Hosts;
use harness::{MW, Scratch, wait_for};
use recording::Set;

#[path = "../../../tests/seed.rs"]
mod seed;

/// Answers lines until nobody is left.
const SERVER: &str = r#"
import socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print("listening", flush=True)
connection, _ = listener.accept()
for line in connection.makefile("rb"):
    connection.sendall(b"echo " + line)
"#;

/// Asks for a while.
const CLIENT: &str = r#"
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7000))
lines = connection.makefile("rb")
for number in range(100):
    connection.sendall(b"line %d\n" % number)
    print(lines.readline().decode().strip(), flush=True)
    time.sleep(0.01)
"#;

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// `mw`, where the user sits.
    Own,
    /// An agent.
    Agent,
    /// What leads to a host.
    Connection,
    /// The recorder on a host.
    Recorder,
    /// Everything on a host but who lets us in.
    Power,
    /// `mw`, while it connects, starts, or collects.
    Early,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn words(pid: i32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0);
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // It may just have ended.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// The children of a process, and theirs.
fn below(pid: u32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let mut found = Vec::new();
    let text = std::fs::read_to_string(path).unwrap_or_default();
    for child in text
        .split_whitespace()
        .filter_map(|word| word.parse::<i32>().ok())
    {
        found.push(child);
        found.extend(below(child as u32));
    }
    found
}

fn recordings(hosts: &Hosts, host: &str) -> Vec<PathBuf> {
    let home = hosts.home(host).join("data/meanwhile");
    let names = recording::listing::names(&home);
    names.into_iter().map(|name| home.join(name)).collect()
}

#[test]
fn what_was_recorded_survives_whoever_is_killed() {
    let scratch = Scratch::new("hosts-kill");
    let _ = (tool!("sshd"), tool!("ip"), tool!("python3"));
    let Some(hosts) = Hosts::new(&scratch, &["a", "b"]) else {
        skip!("network namespaces take root");
    };
    let rounds = std::env::var("MW_ROUNDS").ok();
    let rounds: u64 = rounds.map_or(6, |text| text.parse().unwrap());
    let mut random = Random(seed::seed("who is killed", 15));
    std::fs::write(hosts.dir().join("server.py"), SERVER).unwrap();
    std::fs::write(hosts.dir().join("client.py"), CLIENT).unwrap();
    let address = hosts.address("a");
    let plan = hosts.dir().join("plan.toml");
    let text = format!(
        "directory = \"{}\"\n[[run]]\nhost = \"a\"\ncommand = \"python3 server.py {address}\"\n\
         [[run]]\nhost = \"b\"\ncommand = \"python3 client.py {address}\"\n\
         after = {{ host = \"a\", says = \"^listening\" }}\n",
        hosts.dir().display()
    );
    std::fs::write(&plan, text).unwrap();
    for round in 0..rounds {
        // All of them in turn, at whatever moment.
        let victim = [
            Victim::Own,
            Victim::Agent,
            Victim::Connection,
            Victim::Recorder,
            Victim::Power,
            Victim::Early,
        ][(round % 6) as usize];
        if victim == Victim::Early {
            early(&hosts, &scratch, round, &mut random, &plan);
        } else {
            one_round(&hosts, &scratch, round, victim, &mut random, &plan);
        }
    }
}

/// Kills `mw` after some time, whatever it is doing then. What it has started by then
/// may wait for others for ever: that is killed, too.
fn early(hosts: &Hosts, scratch: &Scratch, round: u64, random: &mut Random, plan: &Path) {
    let known = ["a", "b"].map(|host| recordings(hosts, host));
    let dir = scratch.fresh(&format!("joined-{round}"));
    let mut own = record(hosts, &dir, plan);
    let after = random.below(4000);
    std::thread::sleep(std::time::Duration::from_millis(after));
    let what = format!("round {round}: mw after {after} ms");
    own.kill().unwrap();
    own.wait().unwrap();
    let mut made = Vec::new();
    for (host, known) in ["a", "b"].into_iter().zip(known) {
        // Agents end with the connection, and start nothing any more then.
        wait_for(&format!("{what}: the end of agents"), || {
            let pids = hosts.pids(host).into_iter();
            let mut agents = pids.filter(|pid| words(*pid).iter().any(|own| own == "--stdio"));
            agents.next().is_none().then_some(())
        });
        let is_over = || {
            let programs: Vec<i32> = hosts
                .pids(host)
                .into_iter()
                .filter(|pid| words(*pid).iter().any(|word| word.ends_with(".py")))
                .collect();
            programs.iter().for_each(|pid| kill(*pid));
            programs.is_empty().then_some(())
        };
        wait_for(&format!("{what}: the end of programs"), is_over);
        let mut new = recordings(hosts, host);
        new.retain(|path| !known.contains(path));
        made.extend(new);
    }
    for path in &made {
        // One that never came to its first word is none.
        let opened = recording::Recording::open(path);
        assert!(
            opened.is_ok(),
            "{what}: {}: {:?}",
            path.display(),
            opened.err()
        );
    }
    if made.is_empty() {
        return;
    }
    let joined = join(scratch, round, &made, &what);
    assert_eq!(joined.members().len(), made.len(), "{what}");
}

fn record(hosts: &Hosts, dir: &Path, plan: &Path) -> Child {
    hosts
        .mw()
        .args(["record", "-q", "-o", dir.to_str().unwrap(), "--plan"])
        .arg(plan)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn join(scratch: &Scratch, round: u64, made: &[PathBuf], what: &str) -> Arc<Set> {
    let joined = scratch.fresh(&format!("again-{round}"));
    let output = Command::new(MW)
        .arg("join")
        .args(made)
        .args(["-o", joined.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {said}");
    Arc::new(Set::open(&joined).unwrap())
}

fn one_round(
    hosts: &Hosts,
    scratch: &Scratch,
    round: u64,
    victim: Victim,
    random: &mut Random,
    plan: &Path,
) {
    let host = ["a", "b"][random.below(2) as usize];
    let lines = random.below(80) as usize;
    let what = format!("round {round}: {victim:?} of {host} after {lines} lines");
    let known = ["a", "b"].map(|host| recordings(hosts, host));
    let dir = scratch.fresh(&format!("joined-{round}"));
    let mut own = record(hosts, &dir, plan);
    let fresh = |host: &str, known: &[PathBuf]| -> Option<PathBuf> {
        let mut new = recordings(hosts, host);
        new.retain(|path| !known.contains(path));
        new.pop()
    };
    let made = wait_for("both recordings", || {
        Some([fresh("a", &known[0])?, fresh("b", &known[1])?])
    });
    // What the client said lies on its host while it runs.
    wait_for("the lines", || {
        let name = made[1].file_name()?;
        let said = hosts.home("b").join("data/meanwhile/.output").join(name);
        match std::fs::read_to_string(said.join("stdout")) {
            Ok(text) => (text.lines().count() >= lines).then_some(()),
            // It is over already.
            Err(_) => Some(()),
        }
    });
    let on_host = |word: &str| -> Vec<i32> {
        let pids = hosts.pids(host).into_iter();
        pids.filter(|pid| words(*pid).iter().any(|own| own == word))
            .collect()
    };
    match victim {
        Victim::Own => own.kill().unwrap(),
        Victim::Agent => on_host("--stdio").into_iter().for_each(kill),
        Victim::Connection => {
            let ssh = below(own.id()).into_iter();
            ssh.filter(|pid| words(*pid).iter().any(|own| own == host))
                .for_each(kill);
        }
        Victim::Recorder => on_host("record").into_iter().for_each(kill),
        Victim::Power => {
            let server = |pid: &i32| words(*pid).iter().any(|word| word.contains("[listener]"));
            let all = hosts.pids(host).into_iter();
            all.filter(|pid| !server(pid)).for_each(kill);
        }
        // That is another kind of round.
        Victim::Early => {}
    }
    own.wait().unwrap();
    // The program goes on where it is; without its recorder it may, unrecorded.
    for (path, host) in made.iter().zip(["a", "b"]) {
        wait_for(&format!("{what}: the end of {}", path.display()), || {
            let gone = !path.join(recording::ARENA).exists();
            let listed = recording::listing::Listed::read(path).ok()?;
            let locked = listed.state == recording::listing::State::BeingRecorded;
            let left = hosts
                .pids(host)
                .into_iter()
                .any(|pid| words(pid).iter().any(|word| word.ends_with(".py")));
            (gone || !locked && !left).then_some(())
        });
    }
    let set = join(scratch, round, &made, &what);
    assert_eq!(set.members().len(), 2, "{what}");
    assert!(set.places().count() >= 2, "{what}");
    let history = History::of(&set, &|_| {}).unwrap();
    let crossing = history.links().filter(|link| {
        link.kind == Kind::Message
            && set.member_of(link.cause.process) != set.member_of(link.effect.process)
    });
    // Everything that both saw.
    if ![Victim::Recorder, Victim::Power].contains(&victim) {
        assert!(crossing.count() >= 100, "{what}");
        for member in set.members() {
            assert!(member.is_complete(), "{what}");
        }
    }
}
