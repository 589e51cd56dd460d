//! Hosts on which nothing can be recorded, and what breaks on the way: each is told in
//! a line that says what, where and what to do, and nothing is lost that was recorded.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use harness::joined::{mw, objects, said, text};
use harness::namespaces::Hosts;
use harness::{MW, Scratch, wait_for};
use recording::{Recording, Set};

/// Runs a program where a system call is refused, always or with a first argument: NUMBER,
/// the argument or -1, the error, and the program with its arguments.
const REFUSED: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int count, char **words) {
    int call = atoi(words[1]), first = atoi(words[2]), error = atoi(words[3]);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | (first < 0 ? BPF_JGE : BPF_JEQ) | BPF_K, first < 0 ? 0 : first, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    execv(words[4], words + 4);
    return 1;
}
"#;

/// As on a kernel that is older than Linux 5.11: prctl(PR_SET_SYSCALL_USER_DISPATCH) is
/// unknown.
const OLDER: &str = "157 59 22";

/// As in a container whose profile forbids ptrace.
const NO_PTRACE: &str = "101 -1 1";

/// What it said first of what went wrong.
fn trouble(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", said(output));
    let all = text(&output.stderr);
    all.lines().next().unwrap_or_default().to_string()
}

fn record(hosts: &Hosts, dir: &Path, runs: &[(&str, &str)]) -> Output {
    let mut command = hosts.mw();
    command.args(["record", "-o", dir.to_str().unwrap()]);
    for (host, line) in runs {
        command.args(["--on", host, line]);
    }
    command.output().unwrap()
}

/// Where a host keeps its recordings, and which it has.
fn recordings(hosts: &Hosts, host: &str) -> Vec<PathBuf> {
    let home = hosts.home(host).join("data/meanwhile");
    let names = recording::listing::names(&home);
    names.into_iter().map(|name| home.join(name)).collect()
}

#[test]
fn a_host_that_cannot_be_reached_is_named_and_nothing_is_started() {
    let scratch = Scratch::new("hosts-reach");
    let _ = (tool!("sshd"), tool!("ip"));
    let Some(hosts) = Hosts::new(&scratch, &["a"]) else {
        skip!("network namespaces take root");
    };
    let address = hosts.address("a");
    hosts.configure(&format!(
        "Host closed\n  HostName {address}\n  Port 23\n\
         Host stranger\n  HostName {address}\n  PubkeyAuthentication no\n  BatchMode yes\n\
         Host guest\n  HostName {address}\n  User nobody\n\
         Host 10.77.0.99\n  ConnectTimeout 5\n"
    ));
    for (host, because) in [
        ("nowhere.invalid", "cannot be reached"),
        ("10.77.0.99", "cannot be reached"),
        ("closed", "Connection refused"),
        ("stranger", "Permission denied"),
        ("guest", "no agent of Meanwhile"),
    ] {
        // The one that is there does not run alone.
        let output = record(
            &hosts,
            &scratch.fresh("never"),
            &[("a", "true"), (host, "true")],
        );
        let line = trouble(&output);
        assert!(line.contains(host) && line.contains(because), "{line}");
        let pull = hosts.mw().args(["pull", &format!("{host}:x")]).output();
        let line = trouble(&pull.unwrap());
        assert!(line.contains(host) && line.contains(because), "{line}");
    }
    assert_eq!(recordings(&hosts, "a"), Vec::<PathBuf>::new());
    let check = hosts
        .mw()
        .args(["hosts", "check", "closed", "a"])
        .output()
        .unwrap();
    assert_eq!(check.status.code(), Some(2), "{}", said(&check));
    let shown = text(&check.stdout);
    assert!(shown.contains("closed: "), "{shown}");
    assert!(shown.contains("a: can be recorded on"), "{shown}");
    a_copy_that_was_cut_short_is_sent_again(&hosts, &scratch);
}

/// Something else at the other end than what is to be there.
#[test]
fn what_answers_otherwise_than_an_agent_is_told() {
    let answers = |script: &str| {
        let output = Command::new(MW)
            .args(["hosts", "check", "a"])
            .env("MW_SSH", format!("sh -c '{script}'"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        text(&output.stdout).lines().next().unwrap().to_string()
    };
    let ours = wire::opening::VERSION;
    let line = answers("printf \"\\\\000mw-wire\\\\143\\\\000\"; cat");
    let told = format!("speaks version 99 of the protocol; this mw speaks {ours}");
    assert!(line.contains(&told), "{line}");
    let line = answers("echo Welcome to a");
    assert!(
        line.contains("no agent of Meanwhile: `Welcome to a`"),
        "{line}"
    );
    let line = answers("exit 3");
    assert!(line.contains("no agent of Meanwhile: nothing"), "{line}");
    // Who says something else and stays is not waited for.
    let line = answers("echo Login:; exec cat");
    assert!(line.contains("no agent of Meanwhile: `Login:`"), "{line}");
}

/// What a host that lost its power has kept of `mw`.
fn a_copy_that_was_cut_short_is_sent_again(hosts: &Hosts, scratch: &Scratch) {
    let bin = hosts.home("a").join("cache/meanwhile/bin");
    let mut copies: Vec<PathBuf> = std::fs::read_dir(&bin)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let copy = copies.pop().unwrap();
    assert!(copies.is_empty(), "{copies:?}");
    let whole = std::fs::read(&copy).unwrap();
    for length in [0, 100_000] {
        // Put in its place, not written over: the agent that was asked last may still be
        // on its way out, and what runs cannot be written to.
        let cut = bin.join("cut");
        std::fs::write(&cut, &whole[..length]).unwrap();
        let mode = std::fs::metadata(&copy).unwrap().permissions();
        std::fs::set_permissions(&cut, mode).unwrap();
        std::fs::rename(&cut, &copy).unwrap();
        let dir = scratch.fresh("again");
        let output = record(hosts, &dir, &[("a", "true")]);
        assert!(output.status.success(), "{}", said(&output));
    }
}

/// A kernel that is too old, no ptrace, another processor, no room for recordings, none for
/// `mw`.
#[test]
fn hosts_that_do_not_fit_are_told_apart() {
    let scratch = Scratch::new("hosts-unfit");
    let _ = (tool!("sshd"), tool!("ip"), tool!("cc"));
    let refused = scratch.path().join("refused");
    let source = scratch.path().join("refused.c");
    std::fs::write(&source, REFUSED).unwrap();
    let made = Command::new("cc")
        .arg("-o")
        .args([&refused, &source])
        .status();
    assert!(made.unwrap().success());
    let cpu = scratch.path().join("cpuinfo");
    std::fs::write(&cpu, "processor\t: 0\nmodel name\t: Another Kind\n\n").unwrap();
    let homes = scratch.path().join("hosts");
    let before = |host: &str| match host {
        "old" => format!("UNDER='{} {OLDER}'", refused.display()),
        "strict" => format!("UNDER='{} {NO_PTRACE}'", refused.display()),
        "other" => format!("mount --bind {} /proc/cpuinfo", cpu.display()),
        "full" => mounted(&homes.join("full/data"), "20m"),
        "small" => mounted(&homes.join("small/data"), "60m"),
        _ => mounted(&homes.join("none/cache"), "1m"),
    };
    let names = ["old", "strict", "other", "full", "small", "none"];
    let Some(hosts) = Hosts::made(&scratch, &names, &before) else {
        skip!("network namespaces take root");
    };
    let check = |host: &str| {
        let output = hosts.mw().args(["hosts", "check", host]).output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout))
    };
    let too_old = "this kernel has no syscall user dispatch";
    let no_room = "No space left on device";
    let no_ptrace = "cannot attach to the program (is ptrace allowed here?)";
    for (host, because) in [
        ("old", too_old),
        ("strict", no_ptrace),
        ("full", no_room),
        ("none", no_room),
    ] {
        let (status, shown) = check(host);
        assert_eq!(status, 2, "{shown}");
        let first = shown.lines().next().unwrap();
        assert!(first.contains(because), "{shown}");
        let dir = scratch.fresh("never");
        let output = record(&hosts, &dir, &[(host, "true")]);
        assert!(!output.status.success(), "{}", said(&output));
        assert!(text(&output.stderr).contains(because), "{}", said(&output));
        assert!(!dir.exists());
    }
    let (status, shown) = check("other");
    assert_eq!(status, 0, "{shown}");
    assert!(
        shown.contains("Another Kind: not that of this host"),
        "{shown}"
    );
    let dir = scratch.fresh("other");
    let output = record(&hosts, &dir, &[("other", "true")]);
    assert!(output.status.success(), "{}", said(&output));
    let verified = Command::new(MW).arg("verify").arg(&dir).output().unwrap();
    assert!(
        text(&verified.stderr).contains("recorded on another kind of CPU (Another Kind"),
        "{}",
        said(&verified)
    );
    // A disk that becomes full: what was recorded until then is there, and joins.
    let dir = scratch.fresh("until");
    let noise = "dd if=/dev/urandom of=/dev/null bs=64k count=20000";
    let output = record(&hosts, &dir, &[("other", "echo hi"), ("small", noise)]);
    assert!(!output.status.success(), "{}", said(&output));
    assert!(
        text(&output.stderr).contains("no room for the recording in "),
        "{}",
        said(&output)
    );
    let rows = objects(&dir, &["ps", "--json"]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows.iter().all(|row| row["events"].as_u64().unwrap() > 50));
    assert!(mw(&dir, &["verify"]).contains("all equal"));
}

/// A shell's words for a small disk.
fn mounted(at: &Path, size: &str) -> String {
    let at = at.display();
    format!("mkdir -p {at}; mount -t tmpfs -o size={size} tmpfs {at}")
}

/// Says something now and then until it is told to end.
fn waits(marker: &Path) -> String {
    let marker = marker.display();
    format!("while ! [ -e {marker} ]; do echo x; sleep 0.02; done; echo over")
}

/// `mw` that records on two hosts, of which both have begun.
fn started(hosts: &Hosts, dir: &Path, line: &str) -> (Child, [PathBuf; 2]) {
    let known = ["a", "b"].map(|host| recordings(hosts, host));
    let child = hosts
        .mw()
        .args(["record", "-q", "-o", dir.to_str().unwrap()])
        .args(["--on", "a", line, "--on", "b", line])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let fresh = |at: usize, host: &str| {
        let mut new = recordings(hosts, host);
        new.retain(|path| !known[at].contains(path));
        let path = new.pop()?;
        let output = path.with_file_name(".output").join(path.file_name()?);
        let said = std::fs::metadata(output.join("stdout")).ok()?;
        (said.len() > 20).then_some(path)
    };
    let made = wait_for("both to speak", || Some([fresh(0, "a")?, fresh(1, "b")?]));
    (child, made)
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // It may just have ended.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

/// What is given to a program's `mw`, joined again by hand.
fn joins(scratch: &Scratch, members: &[&Path]) -> Set {
    let dir = scratch.fresh("by-hand");
    let output = Command::new(MW)
        .arg("join")
        .args(members)
        .args(["-o", dir.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let set = Set::open(&dir).unwrap();
    assert_eq!(set.members().len(), members.len());
    set
}

#[test]
fn what_breaks_on_the_way_loses_nothing() {
    let scratch = Scratch::new("hosts-breaks");
    let _ = (tool!("sshd"), tool!("ip"), tool!("unshare"));
    let Some(hosts) = Hosts::new(&scratch, &["a", "b"]) else {
        skip!("network namespaces take root");
    };
    a_connection_that_breaks(&hosts, &scratch);
    no_room_for_what_is_fetched(&hosts, &scratch);
    // The last: its server is gone as well.
    a_host_that_loses_its_power(&hosts, &scratch);
}

/// The way to one host is cut. Its program goes on, and is fetched when it is over.
fn a_connection_that_breaks(hosts: &Hosts, scratch: &Scratch) {
    let marker = scratch.fresh("go");
    let dir = scratch.fresh("cut");
    let (child, made) = started(hosts, &dir, &waits(&marker));
    let leads_there = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.first() == Some(&&b"ssh"[..]) && words.contains(&&b"b"[..])
    };
    let mut cut = 0;
    for pid in children(child.id()).iter().filter(|pid| leads_there(pid)) {
        kill(*pid);
        cut += 1;
    }
    assert!(cut > 0);
    std::fs::write(&marker, "").unwrap();
    let output = child.wait_with_output().unwrap();
    let name = made[1].file_name().unwrap().to_str().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("lacks b: the connection to b is lost"),
        "{told}"
    );
    assert!(told.contains(&format!("mw pull b:{name}")), "{told}");
    // One host of it is there, and it is known that the other is not.
    let set = Set::open(&dir).unwrap();
    assert_eq!((set.members().len(), set.missing().len()), (1, 1));
    assert!(mw(&dir, &["info"]).contains("the connection to b is lost"));
    wait_for("its end", || {
        (!made[1].join(recording::ARENA).exists()).then_some(())
    });
    let to = scratch.fresh("pulled");
    let pulled = hosts
        .mw()
        .args(["pull", &format!("b:{name}"), "-o", to.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(pulled.status.success(), "{}", said(&pulled));
    let set = joins(scratch, &[&dir, &to]);
    assert!(set.members().all(|member| member.is_complete()));
}

/// The children of a process, and theirs.
fn children(pid: u32) -> Vec<i32> {
    let mut found = Vec::new();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in text
            .split_whitespace()
            .filter_map(|word| word.parse::<i32>().ok())
        {
            found.push(child);
            found.extend(children(child as u32));
        }
    }
    found
}

/// The disk of who records is too small for what was recorded elsewhere.
fn no_room_for_what_is_fetched(hosts: &Hosts, scratch: &Scratch) {
    let small = scratch.fresh("small");
    std::fs::create_dir_all(&small).unwrap();
    let known = recordings(hosts, "a");
    let line = "dd if=/dev/urandom of=/dev/null bs=64k count=400";
    let plain = hosts.mw();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec"])
        .arg(format!("{}\nexec \"$@\"", mounted(&small, "8m")))
        .args(["sh", MW, "record", "-q", "-o"])
        .arg(small.join("joined"))
        .args(["--on", "a", line])
        .stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap());
    }
    let output = command.output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("No space left on device"), "{told}");
    assert!(told.contains("mw pull a:dd-0"), "{told}");
    let mut made = recordings(hosts, "a");
    made.retain(|path| !known.contains(path));
    assert_eq!(made.len(), 1, "{made:?}");
    let to = scratch.fresh("roomy");
    let pulled = hosts
        .mw()
        .args(["pull", "a:dd-0", "-o", to.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(pulled.status.success(), "{}", said(&pulled));
    assert!(Recording::open(&to).unwrap().is_complete());
}

/// All that runs on a host is gone in an instant. What its disk has can be read, and
/// joins.
fn a_host_that_loses_its_power(hosts: &Hosts, scratch: &Scratch) {
    let marker = scratch.fresh("go");
    let dir = scratch.fresh("power");
    let (child, made) = started(hosts, &dir, &waits(&marker));
    // Whoever is killed may have started another meanwhile.
    loop {
        let left = hosts.pids("b");
        if left.is_empty() {
            break;
        }
        left.into_iter().for_each(kill);
    }
    std::fs::write(&marker, "").unwrap();
    let output = child.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("lacks b: the connection to b is lost"),
        "{told}"
    );
    assert_eq!(Set::open(&dir).unwrap().members().len(), 1);
    let set = joins(scratch, &[&made[0], &made[1]]);
    let complete: Vec<bool> = set.members().map(|own| own.is_complete()).collect();
    assert_eq!(complete, [true, false]);
    for place in set.places() {
        let (recording, process) = set.at(place).unwrap();
        assert!(recording.life(process).events > 50);
    }
}
