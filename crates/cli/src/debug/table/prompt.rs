//! Commands about the prompt itself.

use super::{Command, Section, Takes};
use crate::debug::screen::say;

pub const PROMPT: Section = Section {
    title: "The prompt",
    commands: &[
        Command::new(
            "shell",
            "run a command of the shell, or a shell",
            |prompt, call| prompt.shell(call.rest),
        )
        .aliases(&["!"])
        .takes(Takes::Nothing, "[COMMAND]")
        .example("shell date"),
        Command::new("echo", "print a text", |_, call| {
            let text = call.rest.replace("\\n", "\n");
            say!("{}", text.trim_end_matches('\n'))
        })
        .takes(Takes::Nothing, "TEXT")
        .example("echo here\\n"),
        Command::new(
            "source",
            "read commands, or rules, from a file",
            |prompt, call| prompt.source(call.rest),
        )
        .takes(Takes::Nothing, "FILE")
        .more("Lines that begin with `#` are comments. A file of rules is taken in as that")
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
