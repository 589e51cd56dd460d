//! The real gdb on programs that are alive on several hosts, in scripts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::namespaces::Hosts;
use harness::processes::{Marker, VARIABLE};
use harness::prompt::has_in_order;
use harness::{MW, Scratch, programs, wait_for};

const MANY: &str = "100000000";

/// `mw gdb --live WORDS`, with a script: what gdb says. Nothing of it is left running here.
fn gdb(scratch: &Scratch, hosts: &Hosts, words: &[&str], script: &[&str]) -> String {
    let file = scratch.fresh("script");
    std::fs::write(&file, script.join("\n") + "\n").unwrap();
    let marker = Marker::unique();
    let mut command = hosts.mw();
    let program = command.get_program().to_os_string();
    assert_eq!(program, MW);
    for argument in ["-nx", "--batch", "-iex", "set auto-load off", "-x"] {
        command.arg(format!("--gdb-argument={argument}"));
    }
    let mut both = Command::new("sh");
    both.args(["-c", "exec \"$@\" 2>&1", "sh", MW, "gdb"])
        .args(command.get_args())
        .arg(format!("--gdb-argument={}", file.display()))
        .args(["--live"])
        .args(words)
        .env(VARIABLE, marker.value())
        .env("LC_ALL", "C.UTF-8")
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        both.env(name, value.unwrap());
    }
    scratch.note(format!("{both:?}"));
    let output = both.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    wait_for("the end of what gdb started", || {
        marker.processes().is_empty().then_some(())
    });
    text
}

macro_rules! hosts {
    ($scratch:expr, $before:expr) => {{
        let _ = (tool!("sshd"), tool!("ip"), tool!("cc"), tool!("gdb"));
        match Hosts::made($scratch, &["a", "b"], $before) {
            Some(hosts) => hosts,
            None => skip!("network namespaces take root"),
        }
    }};
}

/// One end of the conversation, started by somebody else.
struct End(Child);

impl End {
    fn start(hosts: &Hosts, host: &str, program: &Path, what: &str) -> End {
        let address = hosts.address("a").to_string();
        let mut command = hosts.on(host, program);
        command.args([what, &address, MANY]).stdout(Stdio::null());
        End(command.spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        wait_for("the program", || {
            let path = format!("/proc/{}/comm", self.0.id());
            let name = std::fs::read_to_string(path).unwrap();
            (name.trim() == "parted").then_some(self.0.id() as i32)
        })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn processes_of_all_hosts_are_inferiors_and_stand_together() {
    let scratch = Scratch::new("gdb-live-hosts");
    let hosts = hosts!(&scratch, &|_| String::new());
    let program = programs::for_debuggers(&scratch, "debug/parted.c", &[]);
    let server = End::start(&hosts, "a", &program, "serve");
    let asker = End::start(&hosts, "b", &program, "ask");
    let (a, b) = (server.pid(), asker.pid());
    let text = gdb(
        &scratch,
        &hosts,
        &[&format!("a:{a}"), &format!("b:{b}")],
        &[
            "info inferiors",
            "info threads",
            "break took if message->number % 10 == 3",
            "continue",
            "print message->number % 10",
            "bt",
            "next",
            "print received % 10",
            "continue",
            "delete",
            "inferior 1",
            "watch received",
            "continue",
            "delete",
            "set var longest_ms = 77",
            "print longest_ms",
            "inferior 2",
            "print longest_ms == 77",
            "thread apply all bt 1",
            "info sharedlibrary",
            "detach inferiors 1",
            "detach inferiors 2",
        ],
    );
    has_in_order(
        &text,
        &[
            &format!("parted-{a}@a/parted"),
            &format!("parted-{b}@b/parted"),
            "hit Breakpoint 1",
            "took (message=",
            "$1 = 3",
            "#0  took (message=",
            "parted.c",
            "main (argc=",
            "$2 = 2",
            "hit Breakpoint 1",
            "Hardware watchpoint 2: received",
            "Old value",
            "New value",
            "$3 = 77",
            "$4 = 0",
            "Inferior 1",
            "Inferior 2",
        ],
    );
    // They run on.
    for pid in [a, b] {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("TracerPid:\t0"), "{status}\n{text}");
    }
}

/// A program that is on its hosts and not where gdb is, from its first instructions on.
#[test]
fn programs_are_started_on_hosts_with_symbols_from_there() {
    let scratch = Scratch::new("gdb-live-hosts-run");
    let program = programs::for_debuggers(&scratch, "debug/parted.c", &[]);
    let only = scratch.path().join("only-there");
    std::fs::create_dir(&only).unwrap();
    let there = |_: &str| {
        let (from, to) = (program.parent().unwrap().display(), only.display());
        format!("mount --bind {from} {to}")
    };
    let hosts = hosts!(&scratch, &there);
    let path = only.join(program.file_name().unwrap());
    assert!(!path.exists());
    let (path, address) = (path.display(), hosts.address("a"));
    let (serve, ask) = (
        format!("{path} serve {address} 200"),
        format!("sh -c '{path} ask {address} 200; exit $?'"),
    );
    let text = gdb(
        &scratch,
        &hosts,
        &["--on", "a", &serve, "--on", "b", &ask],
        &[
            "info inferiors",
            "break took if message->number == 50",
            "continue",
            "bt",
            "print message->number",
            "continue",
            "print message->number",
            "shell sleep 2",
            "delete",
            "continue",
        ],
    );
    has_in_order(
        &text,
        &[
            "hit Breakpoint 1",
            "took (message=",
            "main (argc=",
            "$1 = 50",
            "hit Breakpoint 1",
            "$2 = 50",
        ],
    );
    // It has come to its end, and has seen nothing of all that. (The other one may stand
    // just before its own.)
    let begins = "b | 200 received, longest gap ";
    let line = text.lines().find_map(|line| line.strip_prefix(begins));
    let gap = line.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(gap.is_some_and(|gap| gap < 900), "{text}");
}

#[test]
fn what_cannot_be_served_is_told_in_one_line() {
    let scratch = Scratch::new("gdb-live-hosts-bad");
    let hosts = hosts!(&scratch, &|_| String::new());
    for (words, expected) in [
        (&["a:999999"][..], "a: there is no process 999999"),
        (&["a:"], "which processes?"),
        (&["a:1", "1"], "`1` is a process of this host"),
        (&["nowhere.invalid:1"], "nowhere.invalid cannot be reached"),
        (&["--on", "a", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["a:1", "--on", "a", "true"], "one of both"),
    ] {
        let text = gdb(&scratch, &hosts, words, &[]);
        assert!(
            text.starts_with("mw: ") && text.contains(expected),
            "{text}"
        );
    }
}
