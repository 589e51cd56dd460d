//! A recording is whole: it replays without the original files, without a
//! network, for another user, from another directory and environment.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Instant;

use harness::programs::program;
use harness::verified::{Verified, echo};
use harness::{MW, Scratch, is_root};

fn verified(output: &Output) -> Verified {
    Verified::new(output, "mw verify, elsewhere".to_string())
}

#[test]
fn without_the_original_files() {
    let scratch = Scratch::new("replay-alone");
    let own = scratch.path().join("program");
    std::fs::copy(program("rust-std"), &own).unwrap();
    let recorded = scratch.record(&[&own]);
    // First another program in its place, then none.
    std::fs::copy(program("exit_42"), scratch.path().join("other")).unwrap();
    std::fs::rename(scratch.path().join("other"), &own).unwrap();
    recorded.replays();
    std::fs::remove_file(&own).unwrap();
    recorded.replays();
    recorded.echoes();
    // And from where the recording was moved to.
    let moved = scratch.path().join("moved");
    std::fs::rename(&recorded.dir, &moved).unwrap();
    harness::verified::verify(&moved, &[]).is_equal();
}

#[test]
fn without_a_network() {
    let unshare = tool!("unshare");
    let scratch = Scratch::new("replay-offline");
    let recorded = scratch.record(&[program("tcp_pingpong")]);
    let mut command = Command::new(unshare);
    if !is_root() {
        command.arg("--map-root-user");
    }
    let output = command
        .args(["--net", MW, "verify", "--json"])
        .arg(&recorded.dir)
        .output()
        .unwrap();
    verified(&output).is_equal();
}

/// Everybody may read what is below `dir`.
/// Containers mostly forbid `userfaultfd`: what processes write to memory that they
/// share is found otherwise then.
#[test]
fn where_pages_cannot_be_guarded() {
    const USERFAULTFD: &str = "323";
    let scratch = Scratch::new("replay-unguarded");
    for name in ["shared_memory", "shared_bulk", "robust_locks"] {
        let recorded = scratch.record(&[program(name)]);
        let mut command = Command::new(program("without_call"));
        command.args([USERFAULTFD, MW, "verify", "--json"]);
        verified(&command.arg(&recorded.dir).output().unwrap()).is_equal();
    }
}

fn open_to_all(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            open_to_all(&path);
        } else {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        }
    }
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
}

/// As somebody else, if that can be had; in any case with another environment,
/// in another place, and wherever the kernel puts things (the layout of memory
/// is random).
#[test]
fn for_another_user_in_another_place() {
    let random = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").unwrap();
    assert_eq!(random.trim(), "2", "the layout of memory is not random");
    let setpriv = harness::find_tool("setpriv").filter(|_| is_root());
    let scratch = Scratch::for_everyone("replay-nobody");
    let mw = scratch.path().join("mw");
    std::fs::copy(MW, &mw).unwrap();
    for name in ["rust-std", "static_pie", "threads_many", "mmap_growth"] {
        let recorded = scratch.record(&[program(name)]);
        open_to_all(&recorded.dir);
        let mut command = match &setpriv {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args([
                    "--reuid",
                    "65534",
                    "--regid",
                    "65534",
                    "--clear-groups",
                    "--",
                ]);
                command.arg(&mw);
                command
            }
            None => Command::new(&mw),
        };
        let output = command
            .args(["verify", "--json"])
            .arg(&recorded.dir)
            .env_clear()
            .env("SOMETHING", "else".repeat(1000))
            .current_dir("/")
            .output()
            .unwrap();
        verified(&output).is_equal();
    }
}

/// Where the kernel allows few processes, the debugger does without copies or
/// says that it cannot; it never waits for one that does not come.
#[test]
fn with_few_processes() {
    let setpriv = harness::find_tool("setpriv").filter(|_| is_root());
    let (Some(setpriv), prlimit) = (setpriv, tool!("prlimit")) else {
        eprintln!("only root can become a user without other processes");
        return;
    };
    let scratch = Scratch::for_everyone("replay-few");
    let mw = scratch.path().join("mw");
    std::fs::copy(MW, &mw).unwrap();
    let recorded = scratch.record(&[program("pipes")]);
    open_to_all(&recorded.dir);
    let mut refused = 0;
    for most in 1..12 {
        // One that nobody else has, as its processes are what is counted.
        let user = 3_000_000_000 + u64::from(std::process::id());
        let mut command = Command::new("timeout");
        command.arg("60").arg(&prlimit);
        command.arg(format!("--nproc={most}")).arg(&setpriv);
        command.args(["--reuid", &user.to_string(), "--clear-groups", "--"]);
        command.arg(&mw).arg("replay").arg(&recorded.dir);
        command.args(["--batch", "-e", "goto end", "-e", "goto start"]);
        let output = command.current_dir("/").output().unwrap();
        assert_ne!(output.status.code(), Some(124), "with {most}: it hangs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "with {most}: {said}");
        refused += usize::from(said.contains("no copy of the replaying process"));
    }
    assert!(refused > 0);
}

/// A processor's own number is among what `cpuid` says, and C libraries keep it:
/// nothing that a program does depends on it.
#[test]
fn on_another_processor() {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let taskset = tool!("taskset");
    let allowed = sched_getaffinity(None).unwrap();
    let all: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|c| allowed.is_set(*c))
        .collect();
    let [first, .., last] = all[..] else {
        skip!("there is one processor");
    };
    let (first, last) = (first.to_string(), last.to_string());
    let scratch = Scratch::new("replay-processor");
    for name in [
        "rust-std",
        "exceptions",
        "threads_future",
        "static_hello",
        "fork_exec_wait",
    ] {
        let recorded = scratch.record(&[&taskset, "-c", &first, &program(name)]);
        let output = Command::new(&taskset)
            .args(["-c", &last, MW, "verify", "--json"])
            .arg(&recorded.dir)
            .output()
            .unwrap();
        verified(&output).is_equal();
    }
}

/// The process that this thread started last and that stands still: a session's.
fn player() -> i32 {
    let task = rustix::thread::gettid().as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/self/task/{task}/children")).unwrap();
    let last = children.split_whitespace().next_back().unwrap();
    last.parse().unwrap()
}

/// Has a process make a system call where it waits in one, and go on.
fn make_call(gdb: &str, pid: i32, number: u32, first: i64, then: &[&str]) -> String {
    let mut command = Command::new(gdb);
    command.args(["-nx", "-batch", "-p", &pid.to_string()]);
    let steps = [
        "handle SIGSYS nostop noprint pass".to_string(),
        "set $orig_rax = -1".to_string(),
        "set $rip = $rip - 2".to_string(),
        format!("set $rax = {number}"),
        format!("set $rdi = {first}"),
    ];
    for step in steps.iter().map(String::as_str).chain(then.iter().copied()) {
        command.args(["-ex", step]);
    }
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The filter in which a process replays ends it at any call that would reach
/// outside. None is made in replay; so a debugger puts them in.
#[test]
fn a_forbidden_call_ends_a_replay() {
    let gdb = tool!("gdb");
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !is_root() && yama.trim() != "0" && !yama.is_empty() {
        skip!("only root can attach to what it did not start");
    }
    let scratch = Scratch::new("replay-forbidden");
    let recorded = scratch.record(&[program("exit_42")]);
    let recording = Arc::new(recording::Recording::open(&recorded.dir).unwrap());
    let number = recording.processes()[0].number;
    // One that is allowed, to see that it is not the debugger that ends it.
    let session = replay::Session::open(&recording, number).unwrap();
    let pid = player();
    let said = make_call(&gdb, pid, 39, 0, &["stepi", "print $rax"]);
    assert!(said.contains(&format!("$1 = {pid}\n")), "{said}");
    drop(session);
    let forbidden = [
        ("write", 1, 1),
        ("open", 2, 0),
        ("socket", 41, 2),
        ("connect", 42, 0),
        ("execve", 59, 0),
        ("kill", 62, 0),
        ("unlink", 87, 0),
        ("openat", 257, -100),
        ("memfd_create", 319, 0),
    ];
    for (name, call, first) in forbidden {
        let session = replay::Session::open(&recording, number).unwrap();
        let said = make_call(&gdb, player(), call, first, &["continue"]);
        assert!(said.contains("exited with code 0177"), "{name}: {said}");
        drop(session);
    }
}

/// Both of its streams come back, each where it went, at the times of then.
#[test]
fn the_output_comes_back_at_its_pace() {
    let scratch = Scratch::new("replay-echo");
    // Through copies, a child, and more than the log keeps whole.
    let long = "x".repeat(300);
    let script = format!(
        "exec 5>&1; echo first; echo {long} >&5; (echo child; echo to-error >&2); \
         echo hidden | cat >/dev/null; sleep 0.4; printf %s last >/dev/stderr; echo done"
    );
    let recorded = scratch.record(&["sh", "-c", &script]);
    let begun = Instant::now();
    let full = echo(&recorded.dir, &[]);
    let took = begun.elapsed();
    assert_eq!(full.status, 0);
    let stdout = format!("first\n{long}\nchild\ndone\n");
    assert_eq!(String::from_utf8_lossy(&full.stdout), stdout);
    assert_eq!(recorded.outcome.stdout, stdout);
    assert_eq!(String::from_utf8_lossy(&full.stderr), "to-error\nlast");
    let begun = Instant::now();
    let real = echo(&recorded.dir, &["--pace", "real"]);
    assert_eq!((real.stdout, real.stderr), (full.stdout, full.stderr));
    assert!(begun.elapsed().as_millis() >= 400);
    assert!(took < begun.elapsed(), "{took:?}");
}
