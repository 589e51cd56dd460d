//! How a command fails: one line that says what, where and why, perhaps one
//! that says what to do, and an exit status.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit status for bad input and for what cannot be done.
pub const TROUBLE: u8 = 2;

/// Says on standard error what is worth knowing and is no failure. Whoever does not hear
/// it misses nothing.
pub fn remark(what: impl Display) {
    let _ = writeln!(io::stderr(), "mw: {what}");
}

/// A command could not do what it was asked to.
#[derive(Debug)]
pub struct Failure {
    message: String,
    hint: Option<String>,
    status: u8,
    /// Whoever read our output went away. That is their right.
    quiet: bool,
}

impl Failure {
    pub fn new(message: impl Display) -> Failure {
        Failure {
            message: message.to_string(),
            hint: None,
            status: TROUBLE,
            quiet: false,
        }
    }

    pub fn hint(mut self, hint: impl Display) -> Failure {
        self.hint = Some(hint.to_string());
        self
    }

    /// Says on which other host it is.
    pub fn on(mut self, host: &str) -> Failure {
        self.message = format!("{host}: {}", self.message);
        self
    }

    /// What, where and why.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// An exit status other than [`TROUBLE`].
    pub fn status(mut self, status: u8) -> Failure {
        self.status = status;
        self
    }

    /// The command line was not understood, or asked for help.
    pub fn usage(error: &clap::Error) -> Failure {
        if !error.use_stderr() {
            // Help and version: on standard output, and a success. If nobody
            // reads it, so be it.
            let _ = error.print();
            return Failure {
                quiet: true,
                ..Failure::new("")
            };
        }
        if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Failure::new("a command is missing").hint("see `mw --help`");
        }
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        // The message is the first paragraph; what to do is among the rest.
        let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
        let message: Vec<&str> = message.lines().map(str::trim).collect();
        let failure = Failure::new(message.join(" "));
        match rest
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with("tip: ") && line.contains("similar"))
        {
            Some(tip) => failure.hint(tip.trim_start_matches("tip: ")),
            None => failure.hint("see `mw --help`"),
        }
    }

    /// What failed, without what to do about it.
    pub fn what(&self) -> String {
        without_numbers(&self.message)
    }

    /// As text, for who is told in another way.
    pub fn words(&self) -> String {
        let message = self.what();
        match &self.hint {
            Some(hint) => format!("{message}\n    {hint}"),
            None => message,
        }
    }

    /// Tells the user; for who goes on afterwards.
    pub fn show(self) {
        let _ = self.report();
    }

    /// Tells the user and gives the exit status.
    pub fn report(self) -> ExitCode {
        if self.quiet {
            return ExitCode::SUCCESS;
        }
        let mut stderr = io::stderr().lock();
        // If stderr is gone too there is nobody left to tell.
        let _ = writeln!(stderr, "mw: {}", without_numbers(&self.message));
        if let Some(hint) = self.hint {
            let _ = writeln!(stderr, "    {hint}");
        }
        ExitCode::from(self.status)
    }
}

/// Rust adds the number of an error to its words: these are enough.
fn without_numbers(message: &str) -> String {
    let mut words = String::new();
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        words.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    words.push_str(rest);
    words
}

impl From<query::Error> for Failure {
    fn from(error: query::Error) -> Failure {
        let failure = Failure::new(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<hosts::Error> for Failure {
    fn from(error: hosts::Error) -> Failure {
        let failure = Failure::new(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<recording::OpenError> for Failure {
    fn from(error: recording::OpenError) -> Failure {
        let failure = Failure::new(&error);
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<io::Error> for Failure {
    /// Of writing to standard output, that is: other I/O errors say more.
    fn from(error: io::Error) -> Failure {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        Failure {
            quiet,
            ..Failure::new(format!("cannot write output: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parser has one sentence for one that is near, and another for several.
    #[test]
    fn commands_that_are_near_are_told() {
        let command = clap::Command::new("mw")
            .subcommand(clap::Command::new("record"))
            .subcommand(clap::Command::new("replay"))
            .subcommand_required(true);
        for typed in ["recrod", "reply"] {
            let error = command.clone().try_get_matches_from(["mw", typed]).err();
            let told = error.map(|error| Failure::usage(&error).words());
            let near =
                told.is_some_and(|text| text.contains("'record'") || text.contains("'replay'"));
            assert!(near, "{typed}");
        }
    }
}
