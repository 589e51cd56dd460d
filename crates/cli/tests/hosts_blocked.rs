//! A program that hangs on three hosts: `mw blocked` says who waits for whom across them,
//! and whether it is a deadlock, however the program was ended then.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod harness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use harness::joined::{mw, objects, said};
use harness::namespaces::Hosts;
use harness::{Scratch, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Is connected to the next, and the one before to it; each tells the next whom it waits for, and
/// then waits for that. Its arguments: who it is, where it listens, who the next is and where that
/// listens, whom it waits for (`next`, or `time`), and whether it leaves Ctrl-C to the system.
const PROGRAM: &str = r#"
import signal, socket, sys, time
name, own, next_name, next_address, waits_for, ending = sys.argv[1:]
if ending == "default":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
listener = socket.create_server((own, 7000))
while True:
    try:
        there = socket.create_connection((next_address, 7000))
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
before, _ = listener.accept()
target = next_name if waits_for == "next" else waits_for
there.sendall(f"{name} {target}\n".encode())
print("heard", before.recv(100).decode().strip(), flush=True)
if waits_for == "next":
    there.recv(100)
time.sleep(1000)
"#;

/// How a program that hangs is ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    /// All at once, by somebody who does not ask.
    Killed,
    /// Ctrl-C, which the program leaves to the system, or does something about.
    Default,
    Handled,
}

/// Those of a host that are of the program.
fn processes(hosts: &Hosts, host: &str) -> Vec<Pid> {
    let is_it = |pid: &i32| {
        let own = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        own.is_ok_and(|own| own.starts_with("python3"))
    };
    let pids = hosts.pids(host).into_iter().filter(is_it);
    pids.map(|pid| Pid::from_raw(pid).unwrap()).collect()
}

/// It is in the call that it stays in: `recvfrom` or `clock_nanosleep`.
fn waits(pid: &Pid) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{}/syscall", pid.as_raw_pid()));
    call.is_ok_and(|call| {
        ["45 ", "230 "]
            .iter()
            .any(|number| call.starts_with(number))
    })
}

/// Records until all stand, and ends them. Where that is, and who said to wait for whom,
/// by hosts.
fn hang(
    hosts: &Hosts,
    scratch: &Scratch,
    last: &str,
    ending: Ending,
) -> (PathBuf, BTreeMap<String, String>) {
    let names = ["a", "b", "c"];
    let dir = scratch.fresh("joined");
    let mut command = hosts.mw();
    command.args(["record", "-q", "-o", dir.to_str().unwrap()]);
    let program = hosts.dir().join("ring.py");
    std::fs::write(&program, PROGRAM).unwrap();
    let known = names.map(|host| outputs(hosts, host));
    for (at, name) in names.iter().enumerate() {
        let next = names[(at + 1) % names.len()];
        let waits_for = if *name == "c" { last } else { "next" };
        let how = match ending {
            Ending::Handled => "handled",
            _ => "default",
        };
        let (own, there) = (hosts.address(name), hosts.address(next));
        command.args(["--on", name]).arg(format!(
            "python3 {} {name} {own} {next} {there} {waits_for} {how}",
            program.display()
        ));
    }
    let child: Child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let heard = wait_for("all to have spoken", || {
        let each = names.iter().zip(&known).map(|(host, known)| {
            let mut new = outputs(hosts, host);
            new.retain(|path| !known.contains(path));
            let said = std::fs::read_to_string(new.pop()?.join("stdout")).ok()?;
            let mut words = said.strip_suffix('\n')?.split(' ').skip(1);
            Some((words.next()?.to_string(), words.next()?.to_string()))
        });
        each.collect::<Option<BTreeMap<_, _>>>()
    });
    wait_for("all to stand", || {
        let all = names.map(|host| processes(hosts, host));
        let stand = all
            .iter()
            .all(|own| own.len() == 1 && own.iter().all(waits));
        stand.then_some(())
    });
    match ending {
        Ending::Killed => {
            let all: Vec<Pid> = names.iter().flat_map(|h| processes(hosts, h)).collect();
            // Nobody shall see another go.
            for signal in [Signal::STOP, Signal::KILL] {
                all.iter()
                    .for_each(|pid| kill_process(*pid, signal).unwrap());
            }
        }
        _ => kill_process(Pid::from_child(&child), Signal::INT).unwrap(),
    }
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
    (dir, heard)
}

/// Where what programs say goes, on a host.
fn outputs(hosts: &Hosts, host: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(hosts.home(host).join("data/meanwhile/.output"));
    let all = all.into_iter().flatten().flatten();
    all.map(|entry| entry.path()).collect()
}

/// Rows of `mw blocked` by the host of who waits.
fn rows(lines: &[Value]) -> BTreeMap<String, &Value> {
    let host = |name: &str| name.rsplit_once('@').unwrap().1.to_string();
    let rows = lines.iter().filter(|line| line.get("thread").is_some());
    rows.map(|row| (host(row["thread"].as_str().unwrap()), row))
        .collect()
}

/// Everybody waits for whom it said it would.
fn as_they_said(lines: &[Value], heard: &BTreeMap<String, String>) {
    let rows = rows(lines);
    assert_eq!(rows.len(), 3, "{lines:#?}");
    for (host, whom) in heard {
        let row = rows[host];
        let what = row["waits_for"].as_str().unwrap();
        let by: Vec<&str> = row["by"]
            .as_array()
            .unwrap()
            .iter()
            .map(|by| by.as_str().unwrap())
            .collect();
        if whom == "time" {
            assert_eq!((what, by.len()), ("time to pass", 0), "{row:#}");
        } else {
            assert!(what.starts_with("something to receive from c"), "{row:#}");
            assert_eq!(by, [rows[whom]["thread"].as_str().unwrap()], "{row:#}");
            assert_eq!(row["outside"], false, "{row:#}");
        }
    }
}

fn deadlocks(lines: &[Value]) -> Vec<&Value> {
    let all = lines.iter();
    all.filter(|line| line.get("deadlock").is_some()).collect()
}

/// Where one began to wait, the others may have come to wait as well; what it knew of them
/// then was only that they were on their way.
fn at_cuts_as_well(dir: &Path, lines: &[Value], heard: &BTreeMap<String, String>) {
    for row in rows(lines).values() {
        let since = row["since"].as_str().unwrap();
        let then = objects(dir, &["blocked", "--json", "--at", since, "--latest"]);
        as_they_said(&then, heard);
        let past = objects(dir, &["blocked", "--json", "--at", since]);
        assert!(rows(&past).values().any(|own| own["since"] == since));
        assert!(deadlocks(&past).is_empty(), "{past:#?}");
    }
}

#[test]
fn who_waits_for_whom_on_three_hosts_is_as_they_told_each_other() {
    let scratch = Scratch::new("hosts-blocked");
    let _ = (tool!("sshd"), tool!("ip"), tool!("python3"));
    let Some(hosts) = Hosts::new(&scratch, &["a", "b", "c"]) else {
        skip!("network namespaces take root");
    };
    for ending in [Ending::Killed, Ending::Default, Ending::Handled] {
        println!("{ending:?}");
        let (dir, heard) = hang(&hosts, &scratch, "next", ending);
        let lines = objects(&dir, &["blocked", "--json"]);
        as_they_said(&lines, &heard);
        let found = deadlocks(&lines);
        assert_eq!(found.len(), 1, "{lines:#?}");
        assert_eq!(found[0]["deadlock"].as_array().unwrap().len(), 3);
        assert_eq!(found[0]["cycle"].as_array().unwrap().len(), 3);
        let text = mw(&dir, &["blocked"]);
        assert!(text.contains("DEADLOCK: "), "{text}");
        if ending == Ending::Handled {
            assert!(text.starts_with("before SIGINT reached"), "{text}");
        }
        if ending == Ending::Killed {
            at_cuts_as_well(&dir, &lines, &heard);
        }
        assert!(mw(&dir, &["verify"]).contains("all equal"));
    }
    // One waits for nobody: no deadlock.
    let (dir, heard) = hang(&hosts, &scratch, "time", Ending::Handled);
    let lines = objects(&dir, &["blocked", "--json"]);
    as_they_said(&lines, &heard);
    assert!(deadlocks(&lines).is_empty(), "{lines:#?}");
    let text = mw(&dir, &["blocked"]);
    assert!(text.contains("no deadlock"), "{text}");
}
