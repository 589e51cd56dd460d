//! The debugger's prompt, in scripts.

use std::process::Command;

use super::{MW, Recorded};

/// What the debugger prints for some commands, and its exit status.
pub fn debug(recorded: &Recorded, commands: &[&str]) -> (String, i32) {
    let mut command = Command::new(MW);
    command.arg("replay").arg(&recorded.dir).arg("--batch");
    for line in commands {
        command.args(["-e", line]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().unwrap())
}

/// Checks that the text has these pieces, in this order.
pub fn has_in_order(text: &str, pieces: &[&str]) {
    let mut rest = text;
    for piece in pieces {
        let Some(at) = rest.find(piece) else {
            panic!("no `{piece}` in what is left of:\n{text}");
        };
        rest = &rest[at + piece.len()..];
    }
}
