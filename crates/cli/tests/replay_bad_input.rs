//! What cannot be replayed is said in one clear message, and no replay goes on
//! for ever or is left behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::programs::program;
use harness::recorded::shell_status;
use harness::rewrite::{self, Parts};
use harness::verified::verify;
use harness::{MW, Scratch, wait_for};
use protocol::record::{at, kind};
use rustix::process::{Pid, Signal};

/// What `mw verify` and `mw replay --echo` say of a recording that they refuse
/// with status 2: one message, the same.
fn refused(dir: &Path) -> String {
    let run = |args: &[&str]| {
        let output = Command::new(MW).args(args).arg(dir).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        let messages = said.lines().filter(|line| line.starts_with("mw: "));
        assert_eq!(messages.count(), 1, "{args:?}: {said}");
        said
    };
    let said = run(&["verify"]);
    assert_eq!(run(&["replay", "--echo"]), said);
    said
}

/// A recording of a small program, to be copied and damaged.
fn recorded(scratch: &Scratch) -> PathBuf {
    scratch.record(&[program("exit_42")]).dir
}

#[test]
fn what_is_not_a_recording() {
    let scratch = Scratch::new("verify-foreign");
    let path = |name: &str| scratch.path().join(name);
    assert!(refused(&path("nothing")).contains("there is no recording at"));
    std::fs::write(path("file"), "text").unwrap();
    assert!(refused(&path("file")).contains("is not a recording"));
    std::fs::create_dir(path("dir")).unwrap();
    assert!(refused(&path("dir")).contains("it has no manifest.json"));
    std::fs::write(path("dir").join("manifest.json"), "{}").unwrap();
    assert!(refused(&path("dir")).contains("is damaged"));
}

#[test]
fn a_recording_by_a_newer_version() {
    let scratch = Scratch::new("verify-newer");
    let newer = scratch.path().join("newer");
    let from = recorded(&scratch);
    let mut parts = Parts::read(&from);
    parts.manifest.format += 1;
    parts.write(&from, &newer);
    let said = refused(&newer);
    assert!(said.contains("this mw reads formats up to"), "{said}");
}

#[test]
fn a_part_that_is_missing() {
    let scratch = Scratch::new("verify-missing");
    let from = recorded(&scratch);
    let copy = |name: &str| {
        let to = scratch.path().join(name);
        rewrite::copy(&from, &to);
        to
    };
    let dir = copy("journal");
    std::fs::remove_file(dir.join("journal")).unwrap();
    assert!(refused(&dir).contains("its journal is missing"));

    let dir = copy("file");
    let id = Parts::read(&dir).files[0].id.to_string();
    std::fs::remove_file(dir.join("files").join(&id)).unwrap();
    let said = refused(&dir);
    assert!(said.contains(&format!("files/{id} is missing")), "{said}");
    std::fs::write(dir.join("files").join(&id), "short").unwrap();
    let said = refused(&dir);
    assert!(said.contains("is 5 bytes long, not"), "{said}");

    let dir = copy("files");
    std::fs::remove_dir_all(dir.join("files")).unwrap();
    assert!(refused(&dir).contains("is missing"));
}

/// Whatever was lost, `mw verify` says so; what is left is replayed.
#[test]
fn a_journal_that_is_damaged() {
    let scratch = Scratch::new("verify-damaged");
    let from = recorded(&scratch);
    let journal = std::fs::read(from.join("journal")).unwrap();
    let damaged = |name: &str, bytes: &[u8]| {
        let dir = scratch.path().join(name);
        rewrite::copy(&from, &dir);
        std::fs::write(dir.join("journal"), bytes).unwrap();
        let verified = verify(&dir, &[]);
        assert_eq!(verified.status, 2, "{name}: {}", verified.stderr);
        let messages = verified.stderr.lines().filter(|l| l.starts_with("mw: "));
        assert_eq!(messages.count(), 1, "{name}: {}", verified.stderr);
        verified.stderr
    };
    // Whatever is hit: a frame's head, or its contents.
    for part in 1..10 {
        let mut bytes = journal.clone();
        let at = bytes.len() / 10 * part;
        bytes[at] ^= 0x10;
        let said = damaged(&format!("flipped-{part}"), &bytes);
        assert!(said.contains("damaged") || said.contains("start"), "{said}");
        damaged(&format!("cut-{part}"), &journal[..at - 1]);
    }
    // Behind a whole frame, too: nothing that is left looks wrong.
    let is_frame = |at: &usize| journal[*at..].starts_with(&recording::frame::MAGIC);
    let frames = (1..journal.len()).filter(is_frame);
    for at in frames {
        let said = damaged(&format!("before-{at}"), &journal[..at]);
        assert!(
            said.contains("damaged") || said.contains("no process"),
            "{said}"
        );
    }
    damaged("empty", &[]);
    damaged("foreign", &[0x5a; 100_000]);
}

#[test]
fn a_process_that_is_not_there() {
    let scratch = Scratch::new("verify-process");
    let verified = verify(&recorded(&scratch), &["--process", "exit_42-1"]);
    assert_eq!(verified.status, 2);
    assert!(
        verified
            .stderr
            .contains("the recording has no process `exit_42-1`"),
        "{}",
        verified.stderr
    );
    assert!(verified.stderr.contains("did you mean `exit_42-0`?"));
}

/// A recording of a program that will wait in vain for a signal: it is not in
/// the log any more.
fn endless(scratch: &Scratch) -> PathBuf {
    let from = scratch.record(&[program("signals_async")]).dir;
    let mut parts = Parts::read(&from);
    let preempted =
        |place: &rewrite::RecordAt| place.kind == kind::SIGNAL && place.values[1] == at::PREEMPTED;
    let found = parts.chunks.iter_mut().find_map(|chunk| {
        let place = chunk.records().into_iter().find(preempted)?;
        Some((chunk, place))
    });
    let (chunk, place) = found.unwrap();
    chunk.cut(place.start..place.end);
    let to = scratch.path().join("endless");
    parts.write(&from, &to);
    to
}

#[test]
fn a_replay_that_gets_nowhere_is_given_up() {
    let scratch = Scratch::new("verify-endless");
    let verified = verify(&endless(&scratch), &["--patience", "2"]);
    assert_eq!(verified.status, 1, "{}", verified.stderr);
    let failed = verified.first_difference();
    assert_eq!(failed["outcome"], "failed", "{failed:#}");
    let why = failed["why"].as_str().unwrap();
    assert!(why.contains("it came to no further event in 2 s"), "{why}");
}

/// A replay under way: `mw` and the processes that replay.
struct Replaying {
    mw: Child,
    players: Vec<i32>,
}

impl Replaying {
    fn start(dir: &Path) -> Replaying {
        let mut mw = harness::with_default_signals(MW)
            .args(["verify", "--patience", "600"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = mw.id();
        let players = wait_for("a replaying process", || {
            assert!(mw.try_wait().unwrap().is_none(), "it is over");
            let children = players_of(pid);
            (!children.is_empty()).then_some(children)
        });
        Replaying { mw, players }
    }

    fn is_gone(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    }

    fn end(&mut self, signal: Signal) -> i32 {
        let mw = Pid::from_child(&self.mw);
        rustix::process::kill_process(mw, signal).unwrap();
        let status = wait_for("the end of mw", || self.mw.try_wait().unwrap());
        for player in &self.players {
            wait_for("the end of a replaying process", || {
                Replaying::is_gone(*player).then_some(())
            });
        }
        shell_status(status)
    }
}

impl Drop for Replaying {
    fn drop(&mut self) {
        let _ = self.mw.kill();
        let _ = self.mw.wait();
    }
}

/// The children of all threads of a process that are confined already.
fn players_of(pid: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let children = tasks.into_iter().flatten().flatten().flat_map(|task| {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let pids: Vec<i32> = text
            .split_whitespace()
            .map(|p| p.parse().unwrap())
            .collect();
        pids
    });
    children
        .filter(|pid| status_of(*pid, "Seccomp") == "2")
        .collect()
}

fn status_of(pid: i32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{key}:")));
    line.unwrap_or("").trim().to_string()
}

#[test]
fn ctrl_c_ends_it_and_leaves_nothing_behind() {
    let scratch = Scratch::new("verify-interrupted");
    let dir = endless(&scratch);
    for signal in [Signal::INT, Signal::TERM] {
        assert_eq!(Replaying::start(&dir).end(signal), 130);
    }
    // And if it has no time to say goodbye.
    assert_eq!(Replaying::start(&dir).end(Signal::KILL), 128 + 9);
}

/// The kernel lets a replaying process do nothing outside of itself, and it
/// has nothing open but what it reads its log from, and the captured files.
#[test]
fn a_replaying_process_is_confined() {
    let scratch = Scratch::new("verify-confined");
    let dir = endless(&scratch);
    let replaying = Replaying::start(&dir);
    let captured = std::fs::canonicalize(dir.join("files")).unwrap();
    for player in &replaying.players {
        assert_eq!(status_of(*player, "Seccomp"), "2");
        assert_eq!(status_of(*player, "NoNewPrivs"), "1");
        for entry in std::fs::read_dir(format!("/proc/{player}/fd")).unwrap() {
            let path = entry.unwrap().path();
            let target = std::fs::read_link(&path).unwrap();
            let text = target.display().to_string();
            let own = text == "/dev/null"
                || text.starts_with("pipe:")
                || text.ends_with("(deleted)")
                || text.starts_with("anon_inode:[perf_event]")
                || target == captured;
            assert!(own, "{} -> {text}", path.display());
        }
    }
}
