//! The commands of the prompt: a row each, with what it is called, what it takes,
//! what is said about it and what does it. The names are gdb's where gdb has them.
//!
//! Dispatch, `help`, completion and docs/commands.md all read these rows, so a new
//! command is a row in the section that it belongs to, and a method that does it. So
//! is a new topic of `info`.

mod alive;
mod info;
mod look;
mod moves;
mod page;
mod prompt;
mod stops;

pub use info::{TOPICS, topic};
pub use page::page;
pub use prompt::echo;

use super::commands::Prompt;
use crate::failure::Failure;

/// A command.
#[derive(Clone, Copy)]
pub struct Command {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// What may stand behind it, as usage lines have it; empty for nothing.
    pub arguments: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// What else there is to know; empty for nothing.
    pub more: &'static str,
    pub example: &'static str,
    /// What completion offers behind it.
    pub takes: Takes,
    pub when: When,
    pub meanwhile: Meanwhile,
    /// What it is waited for if it takes long.
    pub waits_for: &'static str,
    pub handler: Handler,
}

/// Does what a line says.
pub type Handler = fn(&mut Prompt, &Call<'_>) -> Result<(), Failure>;

/// A line that was typed: the command that its first word stands for, and the rest.
pub struct Call<'a> {
    pub name: &'static str,
    /// What is behind the slash, in `x/4xg`.
    pub format: Option<&'a str>,
    pub rest: &'a str,
    /// The line that a `list` right before this would go on from.
    pub listed: Option<u32>,
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Command,
    Process,
    Function,
    Variable,
    Topic,
    Event,
}

/// Which time of a program that is alive and recorded a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Whichever is at hand.
    Any,
    Past,
    Now,
}

/// Whether a command can be given while another one is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// It has to wait.
    Waits,
    /// It moves nobody and changes nothing: it is asked of a prompt beside the busy one.
    Looks,
    /// The console does it by itself.
    Console,
}

/// Commands that belong together.
pub struct Section {
    pub title: &'static str,
    pub commands: &'static [Command],
}

/// All commands, as `help` lists them.
pub const SECTIONS: &[Section] = &[
    look::PROCESSES,
    look::VALUES,
    stops::STOPS,
    moves::FORWARDS,
    moves::BACKWARDS,
    moves::ANYWHERE,
    alive::ALIVE,
    alive::HALTING,
    prompt::PROMPT,
];

impl Command {
    /// A command that is called so, and what does it.
    const fn new(name: &'static str, summary: &'static str, handler: Handler) -> Command {
        Command {
            name,
            aliases: &[],
            arguments: "",
            summary,
            more: "",
            example: name,
            takes: Takes::Nothing,
            when: When::Any,
            meanwhile: Meanwhile::Waits,
            waits_for: "its answer",
            handler,
        }
    }

    /// It can be asked while another one is under way.
    const fn looks(mut self) -> Command {
        self.meanwhile = Meanwhile::Looks;
        self
    }

    /// It is about the lines that are typed, and done by who takes them.
    const fn of_console(mut self) -> Command {
        self.meanwhile = Meanwhile::Console;
        self
    }

    /// It moves the program.
    const fn moves(mut self) -> Command {
        self.waits_for = "something that stops the program";
        self
    }

    /// It is about what has been: of a program that is alive, what was recorded so far.
    const fn of_past(mut self) -> Command {
        self.when = When::Past;
        self
    }

    /// It is about the program as it is now.
    const fn of_now(mut self) -> Command {
        self.when = When::Now;
        self
    }

    const fn aliases(mut self, aliases: &'static [&'static str]) -> Command {
        self.aliases = aliases;
        self
    }

    const fn takes(mut self, takes: Takes, arguments: &'static str) -> Command {
        self.takes = takes;
        self.arguments = arguments;
        self
    }

    const fn more(mut self, more: &'static str) -> Command {
        self.more = more;
        self
    }

    const fn example(mut self, example: &'static str) -> Command {
        self.example = example;
        self
    }

    /// Its name and the shorter ones.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// How it is written.
    pub fn usage(&self) -> String {
        format!("{} {}", self.name, self.arguments)
            .trim_end()
            .to_string()
    }
}

pub fn commands() -> impl Iterator<Item = &'static Command> {
    SECTIONS.iter().flat_map(|section| section.commands)
}

/// The command that a word, or the beginning of one, stands for.
pub fn find(word: &str) -> Result<&'static Command, Failure> {
    if let Some(found) = commands().find(|c| c.names().any(|name| name == word)) {
        return Ok(found);
    }
    let begun: Vec<&Command> = commands().filter(|c| c.name.starts_with(word)).collect();
    match begun.as_slice() {
        [one] => Ok(one),
        [] => {
            let failure = Failure::new(format!("there is no command `{word}`"));
            Err(match events::nearest(word, commands().map(|c| c.name)) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("`help` lists them"),
            })
        }
        many => {
            let names: Vec<&str> = many.iter().map(|c| c.name).collect();
            Err(Failure::new(format!(
                "`{word}` is the beginning of {}",
                names.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{commands, find};

    #[test]
    fn a_word_stands_for_one_command() {
        let mut seen = BTreeSet::new();
        for command in commands() {
            for name in command.names() {
                assert!(seen.insert(name), "`{name}` stands for two commands");
                let found = find(name).map(|c| c.name);
                assert_eq!(found.ok(), Some(command.name), "`{name}`");
            }
        }
    }

    #[test]
    fn examples_are_of_commands() {
        for command in commands() {
            let word = command.example.split([' ', '/']).next().unwrap_or("");
            assert!(find(word).is_ok(), "the example `{}`", command.example);
        }
    }
}
