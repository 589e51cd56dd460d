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

#[test]
fn for_another_user_in_another_place() {
    let setpriv = tool!("setpriv");
    if !is_root() {
        skip!("only root can become somebody else");
    }
    let scratch = Scratch::for_everyone("replay-nobody");
    let mw = scratch.path().join("mw");
    std::fs::copy(MW, &mw).unwrap();
    for name in ["rust-std", "static_pie", "threads_many"] {
        let recorded = scratch.record(&[program(name)]);
        open_to_all(&recorded.dir);
        let output = Command::new(&setpriv)
            .args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--",
            ])
            .arg(&mw)
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
