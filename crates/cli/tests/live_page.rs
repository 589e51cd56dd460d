//! docs/live.md, done as it says.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use harness::prompt::has_in_order;
use harness::{MW, Scratch, programs, repository, wait_for};

/// What a command prints.
fn output(words: &[&str]) -> String {
    let output = Command::new(MW)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The lines that are shown to be printed are printed: what varies is `...`.
fn is_printed(shown: &[String], text: &str) {
    let pieces: Vec<&str> = shown
        .iter()
        .flat_map(|line| line.split("..."))
        .map(str::trim)
        .filter(|piece| !piece.is_empty())
        .collect();
    has_in_order(text, &pieces);
}

#[test]
fn the_page_on_live_programs_is_true() {
    let scratch = Scratch::new("live-page");
    let program = programs::for_debuggers(&scratch, "debug/hangs.c", &[]);
    let mut child = Command::new(program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let pid = line.trim().to_string();
    wait_for("it to hang", || {
        output(&["blocked", "--live", &pid])
            .contains("deadlock:")
            .then_some(())
    });
    let page = std::fs::read_to_string(repository().join("docs/live.md")).unwrap();
    let page = page.replace("12345", &pid);
    let blocks = page.split("```console\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
    // Each command of the shell with what it prints; of the prompt, all together.
    let (mut asked, mut shown): (Vec<String>, Vec<String>) = Default::default();
    let mut by_shell: Vec<(String, Vec<String>)> = Vec::new();
    let mut at_prompt = false;
    for line in lines {
        if let Some(command) = line.strip_prefix("$ mw ") {
            at_prompt = command == format!("attach {pid}");
            if !at_prompt {
                by_shell.push((command.to_string(), Vec::new()));
            }
        } else if let Some(command) = line.strip_prefix("(mw) ") {
            asked.push(command.to_string());
        } else if at_prompt {
            shown.push(line.to_string());
        } else {
            by_shell.last_mut().unwrap().1.push(line.to_string());
        }
    }
    assert!(
        by_shell.len() == 2 && asked.len() >= 8,
        "{by_shell:?} {asked:?}"
    );
    for (command, expected) in by_shell {
        let words: Vec<&str> = command
            .split('|')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let text = output(&words);
        match words[0] {
            // The list has others in it, and its command is another path.
            "attach" => assert!(
                text.lines().any(|line| line.trim_start().starts_with(&pid)),
                "{text}"
            ),
            _ => is_printed(&expected, &text),
        }
    }
    let mut words = vec!["attach", "--batch"];
    for command in &asked {
        words.extend(["-e", command]);
    }
    words.extend(["--", &pid]);
    let text = output(&words);
    is_printed(&shown, &text);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "110 and 90\n", "{text}");
    assert!(child.wait().unwrap().success());
}
