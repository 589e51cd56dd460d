//! Commands about the prompt itself.

use super::{Command, Section, Takes};
use crate::debug::alive::shell;
use crate::debug::commands::{help, of_console};
use crate::debug::screen::say;
use crate::failure::Failure;

/// Prints a text.
pub fn echo(text: &str) -> Result<(), Failure> {
    let text = text.replace("\\n", "\n");
    say!("{}", text.trim_end_matches('\n'))
}

pub const PROMPT: Section = Section {
    title: "The prompt",
    commands: &[
        Command::new(
            "shell",
            "run a command of the shell, or a shell",
            |_, call| shell(call.rest),
        )
        .aliases(&["!"])
        .takes(Takes::Nothing, "[COMMAND]")
        .example("shell date")
        .of_console(),
        Command::new("echo", "print a text", |_, call| echo(call.rest))
            .takes(Takes::Nothing, "TEXT")
            .example("echo here\\n")
            .of_console(),
        Command::new(
            "jobs",
            "list what is done in the background: number, since when, command, what it waits for",
            |_, call| of_console(call.name),
        )
        .more("A command that takes longer than 30 s at the prompt goes on there (`set time-limit TIME|none`), as does one with `&` behind it. What moves nobody can be asked meanwhile; of a program that is alive, what its agent knows. What comes of a job is told when it does")
        .of_console(),
        Command::new(
            "join",
            "wait for what is done in the background: a job, or all",
            |_, call| of_console(call.name),
        )
        .takes(Takes::Nothing, "[NUMBER]")
        .more("Ctrl-C ends the waiting, not the job")
        .example("join 1")
        .of_console(),
        Command::new(
            "interrupt",
            "stop what is done in the background: a job, or all. Ctrl-C at the prompt does, too",
            |_, call| of_console(call.name),
        )
        .takes(Takes::Nothing, "[NUMBER]")
        .more("What moves is halted. `kill %1` is the same for job 1")
        .example("interrupt 1")
        .of_console(),
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
            |_, call| help(call.rest),
        )
        .aliases(&["h"])
        .takes(Takes::Command, "[COMMAND]")
        .example("help break")
        .of_console(),
        Command::new("quit", "leave", |prompt, _| {
            prompt.quits = true;
            Ok(())
        })
        .aliases(&["q", "exit"])
        .of_console(),
    ],
};
