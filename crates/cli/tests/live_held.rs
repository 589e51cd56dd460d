//! Programs that live by time limits and leases of their own are halted for longer than
//! any of those: none is lost. `MW_HALT` says for how many seconds.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use harness::servers::free_port;
use harness::{MW, Scratch, programs};
use rustix::process::{Pid, Signal, kill_process};

/// Runs a script at the prompt until it says that it is ready, halts it for a while, and
/// lets it go on, until it has ended: all that was said. While it is halted a file
/// `go` comes into being.
fn halted(scratch: &Scratch, kind: &str, seconds: u64, script: &str) -> String {
    let seconds = std::env::var("MW_HALT").map_or(seconds, |text| text.parse().unwrap());
    let go = scratch.path().join("go");
    let mut debugger = Command::new(MW)
        .arg("run")
        .args(["-e", &format!("set time {kind}"), "-e", "continue", "-e"])
        .arg(format!("shell sleep {seconds}; touch {}", go.display()))
        .args(["-e", "continue", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&debugger);
    let mut text = String::new();
    for line in BufReader::new(debugger.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.ends_with("ready") {
            // As Ctrl-C does.
            kill_process(pid, Signal::INT).unwrap();
        }
        text += &format!("{line}\n");
    }
    assert!(debugger.wait().unwrap().success(), "{text}");
    assert!(text.contains("Interrupted."), "{text}");
    text
}

/// Three members, and one who has a lease of five seconds and keeps it.
fn etcd(scratch: &Scratch, server: &str, client: &str) -> String {
    let dir = scratch.path().display();
    let url = |port: &u16| format!("http://127.0.0.1:{port}");
    let ports: Vec<[u16; 2]> = (0..3).map(|_| [free_port(), free_port()]).collect();
    let members = ports.iter().enumerate();
    let cluster: Vec<String> = members
        .clone()
        .map(|(i, [peer, _])| format!("m{i}={}", url(peer)))
        .collect();
    let cluster = cluster.join(",");
    let mut script = String::new();
    for (i, [peer, own]) in members {
        let (peer, own) = (url(peer), url(own));
        script += &format!(
            "{server} --name m{i} --data-dir {dir}/m{i} --initial-cluster {cluster} \
               --initial-cluster-token t --initial-cluster-state new \
               --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} \
               --listen-client-urls {own} --advertise-client-urls {own} \
               >{dir}/log-{i} 2>&1 & all=\"$all $!\"\n"
        );
    }
    let ends: Vec<String> = ports.iter().map(|[_, own]| url(own)).collect();
    script
        + &format!(
            "export ETCDCTL_API=3
             ask() {{ {client} --command-timeout 60s --dial-timeout 30s --endpoints {} \"$@\"; }}
             leader() {{ ask endpoint status -w fields | grep -E '\"(Leader|RaftTerm)\"' | sort -u | tr '\\n' ' '; }}
             until ask endpoint health >/dev/null 2>&1; do sleep 0.2; done
             lease=$(ask lease grant 5 | sed 's/^lease \\([0-9a-f]*\\) .*/\\1/')
             ask put held value --lease $lease
             ask lease keep-alive $lease >{dir}/kept 2>&1 & all=\"$all $!\"
             echo $(leader) ready
             until [ -e {dir}/go ]; do sleep 0.05; done
             ask get held --print-value-only
             echo $(leader) over
             kill $all; wait",
            ends.join(",")
        )
}

/// Who leads, at the beginning and at the end, and whether the lease was kept.
fn outcome(text: &str) -> (Vec<&str>, bool) {
    let led = text
        .lines()
        .filter(|line| line.contains("Leader"))
        .map(|line| line.rsplit_once(' ').unwrap().0);
    (led.collect(), text.lines().any(|line| line == "value"))
}

#[test]
fn etcd_elects_nobody_and_keeps_its_leases() {
    let (server, client) = (tool!("etcd"), tool!("etcdctl"));
    let scratch = Scratch::new("held-etcd");
    let text = halted(&scratch, "logical", 8, &etcd(&scratch, &server, &client));
    let (led, kept) = outcome(&text);
    assert_eq!(led.len(), 2, "{text}");
    assert_eq!(led[0], led[1], "{text}");
    assert!(kept, "{text}");
}

/// The test before can fail.
#[test]
fn with_real_time_etcd_takes_the_lease() {
    let (server, client) = (tool!("etcd"), tool!("etcdctl"));
    let scratch = Scratch::new("real-etcd");
    let text = halted(&scratch, "real", 8, &etcd(&scratch, &server, &client));
    assert!(!outcome(&text).1, "{text}");
    let kept = std::fs::read_to_string(scratch.path().join("kept")).unwrap();
    assert!(kept.contains("expired or revoked"), "{kept}");
}

/// The bank, whose processes give up whoever is silent for two seconds: what it says in the end.
fn bank(kind: &str) -> String {
    let scratch = Scratch::new(&format!("held-bank-{kind}"));
    let script = format!(
        "(sleep 1; echo ready) & BANK_PATIENCE=2000 BANK_PAUSE=40 {} 2>&1; echo status $?; wait",
        programs::bank()
    );
    halted(&scratch, kind, 5, &script)
}

#[test]
fn nobody_in_the_bank_is_given_up() {
    let text = bank("logical");
    assert!(
        !text.contains("cannot receive") && !text.contains("lost"),
        "{text}"
    );
    assert_eq!(text.matches("transfers made").count(), 3, "{text}");
    // (Now and then its total is wrong: that is what it is there for.)
    assert!(
        text.contains("total 2") && !text.contains("status 2"),
        "{text}"
    );
}

/// The test before can fail.
#[test]
fn with_real_time_the_bank_gives_its_clients_up() {
    let text = bank("real");
    let is_lost = ["cannot receive from", "the lease is lost"];
    assert!(is_lost.iter().any(|why| text.contains(why)), "{text}");
    assert!(text.contains("status 2"), "{text}");
}
