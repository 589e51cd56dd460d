//! The real gdb on recordings, in scripts.

use std::path::Path;
use std::process::{Command, Stdio};

use super::processes::{Marker, VARIABLE};
use super::{MW, Scratch, wait_for};

/// Runs gdb on the recording in a directory; what it says. Nothing may be left
/// running.
pub fn run(scratch: &Scratch, dir: &Path, options: &[&str], script: &[&str]) -> String {
    let file = scratch.fresh("script");
    std::fs::write(&file, script.join("\n") + "\n").unwrap();
    let marker = Marker::unique();
    // Both of its streams in one: what it says has an order.
    let mut command = Command::new("sh");
    command
        .args(["-c", "exec \"$@\" 2>&1", "sh", MW, "gdb"])
        .arg(dir)
        .args(options)
        .args(["--", "-nx", "--batch", "-iex", "set auto-load off", "-x"])
        .arg(&file)
        .env(VARIABLE, marker.value())
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    scratch.note(format!("{command:?}"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    wait_for("the end of what gdb started", || {
        let left = marker.processes();
        left.is_empty().then_some(())
    });
    text
}
