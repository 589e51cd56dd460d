//! Agents that listen, on hosts that no ssh leads to: recorded on by who has a
//! certificate, one session at a time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod harness;

use std::path::Path;
use std::process::{Command, Stdio};

use harness::joined::{mw, objects, said, text};
use harness::listening::{Agent, trusted};
use harness::namespaces::Hosts;
use harness::{MW, Scratch};

const SERVER: &str = r#"
import socket, sys
connection, _ = socket.create_server((sys.argv[1], 7000)).accept()
print(connection.recv(99).decode())
"#;

const CLIENT: &str = r#"
import socket, sys, time
while True:
    try:
        connection = socket.create_connection((sys.argv[1], 7000))
        break
    except OSError:
        time.sleep(0.05)
connection.sendall(b"spoken")
"#;

#[test]
fn agents_that_listen_record_for_who_has_a_certificate() {
    let scratch = Scratch::new("hosts-tls");
    let _ = (tool!("sshd"), tool!("ip"), tool!("python3"));
    let Some(hosts) = Hosts::new(&scratch, &["a", "b"]) else {
        skip!("network namespaces take root");
    };
    let (a, b) = (
        hosts.address("a").to_string(),
        hosts.address("b").to_string(),
    );
    let trust = scratch.path().join("trust");
    // Ann's, for both hosts; Bob's, of another authority.
    for (dir, person) in [(&trust, "ann"), (&scratch.path().join("other"), "bob")] {
        trusted(dir, person, &[&a, &b]);
    }
    let agents = ["a", "b"].map(|host| Agent::start(&hosts, host, &trust));
    let asks = |identity: &Path| {
        let mut command = hosts.between();
        command
            .arg(MW)
            .env("MW_IDENTITY", identity)
            .env("XDG_DATA_HOME", hosts.dir().join("data"))
            .stdin(Stdio::null());
        command
    };
    let ann = trust.join("ann@.pem");
    let (on_a, on_b) = (format!("tls:{a}"), format!("tls:{b}"));
    let checked = asks(&ann).args(["hosts", "check", &on_a, &on_b]).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", said(&checked));

    let bob = scratch.path().join("other/bob@.pem");
    let refused = asks(&bob).args(["record", "--on", &on_a, "true"]).output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(text(&refused.stderr).contains("another authority"));
    agents[0].has_said("refused:");

    // One speaks, the other listens.
    let script = |name: &str, text: &str| {
        let path = hosts.dir().join(name);
        std::fs::write(&path, text).unwrap();
        format!("python3 {} {a}", path.display())
    };
    let (server, client) = (script("server.py", SERVER), script("client.py", CLIENT));
    let dir = scratch.fresh("joined");
    let output = asks(&ann)
        .args(["record", "-o", dir.to_str().unwrap()])
        .args(["--on", &on_a, &server, "--on", &on_b, &client])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        text(&output.stdout).contains("| spoken"),
        "{}",
        said(&output)
    );
    agents[0].has_said("ann from ");
    agents[0].has_said("records python3-0");
    agents[1].has_said("fetches python3-0");
    let heard = format!("host = {a} and recv and bytes ~ \"spoken\"");
    let heard = objects(&dir, &["events", "--json", "-w", &heard]);
    let causes = heard.last().unwrap()["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 1, "{heard:?}");
    let cause = causes[0]["cause"].as_str().unwrap();
    assert!(cause.starts_with(&format!("python3-0@{b}:")), "{heard:?}");
    assert!(mw(&dir, &["verify"]).contains("all equal"));

    one_session_at_a_time(&asks, &ann, &on_a, &agents[0], &scratch);
}

/// While somebody records a program nobody else does, unless they say so.
fn one_session_at_a_time(
    asks: &dyn Fn(&Path) -> Command,
    ann: &Path,
    host: &str,
    agent: &Agent,
    scratch: &Scratch,
) {
    let marker = scratch.fresh("go");
    let line = format!(
        "sh -c 'while ! [ -e {} ]; do sleep 0.02; done'",
        marker.display()
    );
    let first = asks(ann)
        .args(["record", "-q", "-o"])
        .arg(scratch.fresh("first"))
        .args(["--on", host, &line])
        .spawn()
        .unwrap();
    agent.has_said("records sh-0");
    let again = |options: &[&str]| {
        asks(ann)
            .args(["record", "-q", "-o"])
            .arg(scratch.fresh("second"))
            .args(options)
            .args(["--on", host, "sh -c true"])
            .output()
            .unwrap()
    };
    let refused = again(&[]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    let told = text(&refused.stderr);
    assert!(told.contains("is being recorded there by ann"), "{told}");
    assert!(told.contains("--override"), "{told}");
    let taken = again(&["--override"]);
    assert!(taken.status.success(), "{}", said(&taken));
    agent.has_said("takes sh over from ann");
    // The program of the first goes on, and so does its recording.
    std::fs::write(&marker, "").unwrap();
    assert!(first.wait_with_output().unwrap().status.success());
}
