//! A halt of a program on several hosts, which the hosts tell each other themselves: it is
//! there sooner than by way of a debugger that is far away, and nobody else can ask for it.
//!
//! Each program keeps what the counter of the processor said last, which all of them share
//! here: so when each stopped is told by what it did itself.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::process::{Child, Stdio};

use harness::ends::{End, at_prompt, values};
use harness::joined::said;
use harness::namespaces::Hosts;
use harness::{Scratch, programs};

/// How far away the debugger is, in milliseconds.
const AWAY: u32 = 20;

macro_rules! hosts {
    ($scratch:expr, $names:expr) => {{
        let _ = (tool!("sshd"), tool!("ip"), tool!("cc"));
        match Hosts::new($scratch, $names) {
            Some(hosts) => hosts,
            None => skip!("network namespaces take root"),
        }
    }};
}

/// How often a test halts. `MW_HALTS` says otherwise.
fn halts() -> usize {
    std::env::var("MW_HALTS").map_or(5, |text| text.parse().unwrap())
}

/// Stops a program on all of these hosts by a breakpoint on the first, again and again: how
/// long after the first the last of them stopped, in us, each time, in order of length.
fn behind(hosts: &Hosts, scratch: &Scratch, names: &[&str]) -> Vec<i64> {
    let program = programs::for_debuggers(scratch, "debug/ticking.c", &[]);
    let ends = names.iter();
    let ends = ends.map(|host| End::start(hosts, host, &program, &[]));
    let ends: Vec<End> = ends.collect();
    let each = || names.iter().zip(&ends);
    let called: Vec<String> = each()
        .map(|(host, end)| format!("ticking-{}@{host}", end.pid))
        .collect();
    let mut words = vec!["attach".to_string()];
    words.extend(each().map(|(host, end)| format!("{host}:{}", end.pid)));
    let mut commands = vec![
        "print per_ms".to_string(),
        format!("break look in {} if looks == until", called[0]),
    ];
    for _ in 0..halts() {
        // Far enough from the halt before for all to be under way.
        commands.push(format!("process {}", called[0]));
        commands.extend(["set var until = looks + 500", "continue"].map(String::from));
        for name in &called {
            commands.extend([format!("process {name}"), "print last".to_string()]);
        }
    }
    commands.push("detach".to_string());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let done = at_prompt(hosts, &words, &commands);
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    let mut shown = values(&text);
    let per_ms = shown.remove(0);
    assert_eq!(shown.len(), halts() * names.len(), "{text}");
    // It looks 100 us after it looked last, and stops there.
    let behind = shown.chunks(names.len()).map(|all| {
        let last = all.iter().max().unwrap() - all[0];
        last * 1000 / per_ms
    });
    let mut behind: Vec<i64> = behind.collect();
    behind.sort_unstable();
    eprintln!(
        "the last of {} hosts, us after the first one's last look: {behind:?}, median {}",
        names.len(),
        behind[behind.len() / 2]
    );
    behind
}

/// There are as many hosts to share the cores, so what is asked of it is little; the figures
/// are printed.
#[test]
fn a_stop_reaches_ten_hosts() {
    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let scratch = Scratch::new("live-direct-ten");
    let hosts = hosts!(&scratch, &NAMES);
    let behind = behind(&hosts, &scratch, &NAMES);
    assert!(behind[behind.len() / 2] < 500_000, "{behind:?}");
}

/// By way of the debugger it cannot take less than the way to it and back.
#[test]
fn a_stop_reaches_the_other_hosts_sooner_than_the_debugger() {
    let scratch = Scratch::new("live-direct-away");
    let names = ["a", "b", "c"];
    let mut hosts = hosts!(&scratch, &names);
    let late = programs::for_debuggers(&scratch, "debug/late.c", &[]);
    hosts.move_away(&late, AWAY);
    for (at, name) in names.iter().enumerate() {
        // An address that all have, as of a bridge for containers, and one that leads nowhere
        // from the others.
        hosts.add_address(name, "172.17.0.1/32");
        hosts.add_address(name, &format!("10.99.0.{}/32", at + 1));
    }
    let behind = behind(&hosts, &scratch, &names);
    let there_and_back = i64::from(2 * AWAY * 1000);
    assert!(behind[behind.len() / 2] < there_and_back, "{behind:?}");
}

#[test]
fn hosts_that_cannot_reach_each_other_are_told_by_the_debugger() {
    let scratch = Scratch::new("live-direct-parted");
    let names = ["a", "b", "c"];
    let mut hosts = hosts!(&scratch, &names);
    let late = programs::for_debuggers(&scratch, "debug/late.c", &[]);
    hosts.move_away(&late, AWAY);
    hosts.part();
    let behind = behind(&hosts, &scratch, &names);
    // (The last look was a little before the stop.)
    let there_and_back = i64::from(2 * AWAY * 1000);
    assert!(behind[0] > there_and_back * 9 / 10, "{behind:?}");
}

/// Sees what hosts say to each other directly, and says it again and again, as it was and
/// changed, to whom it was said, together with nonsense. Says when it has seen the first.
const REPEATS: &str = r#"
import os, random, select, socket, sys, time
SAID = b"mw-halt\x01"
seen = set()
dice = random.Random(int(sys.argv[1]))
lines = []
for port in sys.argv[2:]:
    line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    line.bind((port, 0))
    lines.append(line)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def say(to, said):
    out.sendto(said, to)
def frames():
    """All that is there: what is not read makes the kernel drop what comes next."""
    wait = 0.001
    while True:
        ready, _, _ = select.select(lines, [], [], wait)
        if not ready:
            return
        for line in ready:
            yield line.recv(4096)
        wait = 0
while True:
    for frame in frames():
        at = frame.find(SAID)
        # IPv4 and UDP in front of it.
        if at < 42:
            continue
        to = (socket.inet_ntoa(frame[at - 12:at - 8]), int.from_bytes(frame[at - 6:at - 4], "big"))
        # What was said here was said before.
        if frame[at - 16:at - 12] == bytes([10, 77, 0, 254]) or (to, frame[at:]) in seen:
            continue
        print(len(seen), *to, flush=True)
        seen.add((to, frame[at:]))
    for to, said in list(seen):
        say(to, said)
        motion = int.from_bytes(said[10:18], "little")
        for other in (motion - 1, motion + 1, motion + 2, 2 ** 64 - 1):
            say(to, said[:10] + (other % 2 ** 64).to_bytes(8, "little") + said[18:])
        for member in (0, 1, 7, 65535):
            say(to, said[:8] + member.to_bytes(2, "little") + said[10:])
        say(to, SAID)
        say(to, os.urandom(dice.randrange(200)))
        say(to, said + b"x")
"#;

struct Repeater(Child);

impl Drop for Repeater {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_repeated_and_forged_halts_nobody() {
    let scratch = Scratch::new("live-direct-forged");
    let _ = tool!("python3");
    let hosts = hosts!(&scratch, &["a", "b"]);
    let script = hosts.dir().join("repeats.py");
    std::fs::write(&script, REPEATS).unwrap();
    let log = hosts.dir().join("repeats.log");
    let repeater = hosts
        .between()
        .arg("python3")
        .arg(&script)
        .args(["16", "port0", "port1"])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&log).unwrap())
        .spawn();
    let repeater = Repeater(repeater.unwrap());
    let program = programs::for_debuggers(&scratch, "debug/ticking.c", &[]);
    let ends = ["a", "b"].map(|host| End::start(&hosts, host, &program, &[]));
    let called = |at: usize| format!("ticking-{}@{}", ends[at].pid, ["a", "b"][at]);
    let stop = |at: usize| {
        let name = called(at);
        [
            format!("process {name}"),
            "set var until = looks + 500".to_string(),
            "continue".to_string(),
        ]
    };
    let mut commands = Vec::new();
    for at in [0, 1] {
        commands.push(format!("break look in {} if looks == until", called(at)));
    }
    // A word of each to the other, which is seen; then the program runs for long, with all that
    // about its ears.
    commands.extend(stop(0));
    commands.extend(stop(1));
    commands.push(format!(
        "shell until [ $(wc -l < {}) -ge 2 ]; do sleep 0.05; done",
        log.display()
    ));
    let looks = |commands: &mut Vec<String>| {
        for at in [0, 1] {
            commands.extend([format!("process {}", called(at)), "print looks".to_string()]);
        }
    };
    looks(&mut commands);
    commands.push("resume 3s".to_string());
    looks(&mut commands);
    // And a stop is one, as before.
    commands.extend(stop(0));
    commands.extend(["print looks == until".to_string(), "detach".to_string()]);
    let words = [format!("a:{}", ends[0].pid), format!("b:{}", ends[1].pid)];
    let words = ["attach", &words[0], &words[1]];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let done = at_prompt(&hosts, &words, &commands);
    let text = said(&done);
    assert!(done.status.success(), "{text}");
    let shown = values(&text);
    let [a_before, b_before, a_after, b_after, is_there] = shown[..] else {
        panic!("{shown:?}: {text}")
    };
    eprintln!(
        "{} and {} looks in three seconds",
        a_after - a_before,
        b_after - b_before
    );
    // A halt that somebody else had asked for would have come in the first milliseconds.
    assert!(
        a_after - a_before > 2000 && b_after - b_before > 2000,
        "{shown:?}: {text}"
    );
    assert_eq!(is_there, 1, "{text}");
    // Its word was said as well.
    harness::wait_for("the third word", || {
        let seen = std::fs::read_to_string(&log).unwrap();
        (seen.lines().count() >= 3).then_some(())
    });
    drop((ends, repeater));
}
