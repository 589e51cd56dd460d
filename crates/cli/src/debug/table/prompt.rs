//! Commands about the prompt itself.

use super::{Command, Section, Takes};
use crate::debug::screen::say;
use crate::failure::Failure;

pub const PROMPT: Section = Section {
    title: "The prompt",
    commands: &[
        Command::new("set", "refused: what happened cannot be changed", |_, _| {
            Err(
                Failure::new("a recording cannot be changed: it says what happened")
                    .hint("to try what would happen, change the program and record again"),
            )
        })
        .takes(Takes::Nothing, "...")
        .example("set x = 1"),
        Command::new("echo", "print a text", |_, call| {
            let text = call.rest.replace("\\n", "\n");
            say!("{}", text.trim_end_matches('\n'))
        })
        .takes(Takes::Nothing, "TEXT")
        .example("echo here\\n"),
        Command::new("source", "read commands from a file", |prompt, call| {
            prompt.source(call.rest)
        })
        .takes(Takes::Nothing, "FILE")
        .more("Lines that begin with `#` are comments")
        .example("source setup.mw"),
        Command::new(
            "help",
            "this list, or what one command does",
            |prompt, call| prompt.help(call.rest),
        )
        .aliases(&["h"])
        .takes(Takes::Command, "[COMMAND]")
        .example("help break"),
        Command::new("quit", "leave", |prompt, _| {
            prompt.quits = true;
            Ok(())
        })
        .aliases(&["q", "exit"]),
    ],
};
