//! What `info` can be asked about: a row each, as commands have.

use super::super::commands::Prompt;
use crate::failure::Failure;

/// Something that `info` knows about.
pub struct Topic {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// What may stand behind it; empty for nothing.
    pub arguments: &'static str,
    /// What it shows, in a line.
    pub summary: &'static str,
    pub handler: fn(&mut Prompt, &str) -> Result<(), Failure>,
}

impl Topic {
    const fn new(
        name: &'static str,
        summary: &'static str,
        handler: fn(&mut Prompt, &str) -> Result<(), Failure>,
    ) -> Topic {
        Topic {
            name,
            aliases: &[],
            arguments: "",
            summary,
            handler,
        }
    }

    const fn aliases(mut self, aliases: &'static [&'static str]) -> Topic {
        self.aliases = aliases;
        self
    }

    const fn takes(mut self, arguments: &'static str) -> Topic {
        self.arguments = arguments;
        self
    }

    /// Its name and the shorter ones.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// All of them, by name: of two that begin alike the first is meant.
pub const TOPICS: &[Topic] = &[
    Topic::new("args", "the arguments of the frame", |prompt, _| {
        prompt.variables(true)
    }),
    Topic::new("breakpoints", "what is stopped at", |prompt, _| {
        prompt.list_points(false)
    })
    .aliases(&["b"]),
    Topic::new(
        "checkpoints",
        "the positions that have a number",
        |prompt, _| prompt.list_checkpoints(),
    ),
    Topic::new(
        "conditions",
        "what is stopped at, traced and run on condition",
        |prompt, _| prompt.list_conditions(),
    ),
    Topic::new("display", "what is shown at each stop", |prompt, _| {
        prompt.list_displays()
    }),
    Topic::new("frame", "the frame that is looked at", |prompt, _| {
        prompt.frame_facts()
    })
    .aliases(&["f"]),
    Topic::new("line", "the code of a source line", |prompt, rest| {
        prompt.line(rest)
    })
    .takes("[PLACE]"),
    Topic::new("locals", "the variables of the frame", |prompt, _| {
        prompt.variables(false)
    }),
    Topic::new("mappings", "what is mapped where", |prompt, _| {
        prompt.mappings()
    }),
    Topic::new(
        "processes",
        "the processes and where each stands in the cut",
        |prompt, rest| match rest {
            // gdb's words for it.
            "mappings" => prompt.mappings(),
            _ => prompt.show_cut(false),
        },
    )
    .aliases(&["inferiors", "proc"])
    .takes("[mappings]"),
    Topic::new(
        "program",
        "where the process at hand stands in its run",
        |prompt, _| prompt.when(),
    )
    .aliases(&["record"]),
    Topic::new("registers", "the registers of the frame", |prompt, rest| {
        prompt.registers(rest)
    })
    .aliases(&["all-registers"])
    .takes("[NAME ...]"),
    Topic::new(
        "sharedlibrary",
        "the program and its libraries, and what is known of each",
        |prompt, _| prompt.libraries(),
    )
    .aliases(&["dll", "files", "target"]),
    Topic::new(
        "signals",
        "what the program does with signals, where it stands",
        |prompt, rest| prompt.signals(rest),
    )
    .aliases(&["handle", "signal"])
    .takes("[SIGNAL]"),
    Topic::new("source", "the source file of the frame", |prompt, _| {
        prompt.source_file()
    }),
    Topic::new("stack", "the stack", |prompt, _| prompt.backtrace("")).aliases(&["s"]),
    Topic::new("symbol", "the symbol of an address", |prompt, rest| {
        prompt.symbol(rest)
    })
    .takes("ADDRESS"),
    Topic::new(
        "threads",
        "the threads of the process at hand",
        |prompt, _| prompt.threads(),
    ),
    Topic::new(
        "watchpoints",
        "the variables that are watched",
        |prompt, _| prompt.list_points(true),
    )
    .aliases(&["wat"]),
];

/// The topic that a word, or the beginning of one, stands for.
pub fn topic(word: &str) -> Option<&'static Topic> {
    let exactly = || TOPICS.iter().find(|t| t.names().any(|name| name == word));
    let begun = || TOPICS.iter().find(|t| t.name.starts_with(word));
    exactly().or_else(|| begun().filter(|_| !word.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{TOPICS, topic};

    #[test]
    fn a_word_stands_for_one_topic() {
        let mut seen = BTreeSet::new();
        for row in TOPICS {
            for name in row.names() {
                assert!(seen.insert(name), "`{name}` stands for two topics");
                assert_eq!(topic(name).map(|t| t.name), Some(row.name), "`{name}`");
            }
        }
        assert!(TOPICS.is_sorted_by_key(|row| row.name));
        assert!(topic("").is_none() && topic("nothing").is_none());
        assert_eq!(topic("reg").map(|t| t.name), Some("registers"));
    }
}
