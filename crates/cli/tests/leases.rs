//! A server that is fair to clients that are halted (`examples/leases`), and one that is not.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use agent::control::{Answer, Client, Request};
use harness::{MW, Scratch, programs, wait_for};

/// Built once for all tests.
fn leases() -> PathBuf {
    programs::example("leases")
}

/// What a process says, line by line.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client under the debugger with a lease of two seconds is halted for five: what
/// its server says of leases lost, and whether the client kept its own.
fn halted(is_fair: bool) -> (Vec<String>, bool) {
    let scratch = Scratch::new("leases");
    let runtime = scratch.path().join("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let socket = scratch.path().join("socket");
    let mut server = Command::new(leases());
    server.arg("serve");
    if !is_fair {
        server.arg("--plain");
    }
    let server = server
        .arg(&socket)
        .arg("2000")
        .env("XDG_RUNTIME_DIR", &runtime)
        .stdout(Stdio::piped());
    let mut server = Running(server.spawn().unwrap());
    let served = lines(&mut server.0);
    assert_eq!(served.recv().unwrap(), "serving");
    let client = Command::new(MW)
        .args(["record", "-o"])
        .arg(scratch.path().join("rec"))
        .arg("--")
        .arg(leases())
        .arg("hold")
        .arg(&socket)
        .args(["20", "100"])
        .env("XDG_RUNTIME_DIR", &runtime)
        .stdout(Stdio::piped())
        .spawn();
    let mut client = Running(client.unwrap());
    let held = lines(&mut client.0);
    assert_eq!(held.recv().unwrap(), "holding");
    let path = runtime
        .join("meanwhile")
        .join(format!("{}.sock", client.0.id()));
    let mut debugger = wait_for("the agent", || Client::connect(&path).ok());
    let halt = Request::Halt {
        limit_ms: None,
        keep_ms: None,
        overrides: false,
    };
    let answer = debugger.ask(&halt).unwrap();
    assert!(matches!(answer, Answer::Halted(_)), "{answer:?}");
    std::thread::sleep(Duration::from_secs(5));
    let answer = debugger.ask(&Request::Resume).unwrap();
    let Answer::Resumed { length_ns } = answer else {
        panic!("{answer:?}");
    };
    assert!(length_ns >= 4_900_000_000);
    let Answer::Halts { halts } = debugger.ask(&Request::Halts { after: 0 }).unwrap() else {
        panic!("no log of halts");
    };
    assert_eq!(halts.len(), 1);
    assert_eq!(halts[0].to_ns - halts[0].from_ns, length_ns);
    drop(debugger);
    let kept = client.0.wait().unwrap().success();
    assert_eq!(kept, held.try_iter().any(|line| line == "kept"));
    let _ = server.0.kill();
    let _ = server.0.wait();
    (served.iter().collect(), kept)
}

#[test]
fn a_fair_server_waits_for_a_halted_client() {
    assert_eq!(halted(true), (Vec::new(), true));
}

/// Without asking, the same server takes the lease: so the test above can fail.
#[test]
fn a_plain_server_does_not() {
    assert_eq!(halted(false), (vec!["lost".to_string()], false));
}
