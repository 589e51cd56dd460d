//! What came of a rule.

use crate::history::At;
use crate::syntax::ast::Kind;

/// What a rule came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It holds; of what is looked for: it is nowhere.
    Holds,
    /// It does not.
    Violated,
    /// What was looked for is there.
    Matched,
    /// Nothing that it is about ever happened.
    Vacuous,
    /// It cannot be told.
    Unknown,
}

impl Outcome {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Holds => "holds",
            Outcome::Violated => "violated",
            Outcome::Matched => "matched",
            Outcome::Vacuous => "vacuous",
            Outcome::Unknown => "unknown",
        }
    }
}

/// An instant that shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// The consistent state: of every process, how many of its first events
    /// are behind it.
    pub cut: Vec<u32>,
    /// The events, or where the processes are that it is about.
    pub events: Vec<(usize, At)>,
    /// What states were there: whose, which, what.
    pub values: Vec<(usize, String, String)>,
    /// What names were bound to.
    pub captures: Vec<(String, String)>,
    /// It is the one first state of all in which this is so.
    pub first: bool,
    /// It is a state of several processes, and not events one after the other.
    pub is_state: bool,
}

/// A higher event: what a recognizer or verifier emitted, at the event that made it so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The process.
    pub process: usize,
    /// Where.
    pub at: At,
    /// Its name.
    pub name: String,
    /// What it is about: names and values.
    pub values: Vec<(String, String)>,
    /// The events that it is made of, the last being that at which it is.
    pub of: Vec<(usize, At)>,
}

impl Emitted {
    /// As it is written: `session(c=7)`.
    pub fn words(&self) -> String {
        let values = self.values.iter();
        let values: Vec<String> = values
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        match values.is_empty() {
            true => self.name.clone(),
            false => format!("{}({})", self.name, values.join(", ")),
        }
    }
}

/// What came of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The rule's name.
    pub rule: String,
    /// What kind of rule it is.
    pub kind: Kind,
    /// What it came to.
    pub outcome: Outcome,
    /// How often it was found, where that was counted.
    pub count: u64,
    /// Why, where that is not plain.
    pub reason: Option<String>,
    /// The first instants that show it.
    pub witnesses: Vec<Witness>,
    /// What the debugger would have been told to do.
    pub commands: Vec<String>,
    /// The file it is in.
    pub file: String,
    /// The line it is in.
    pub line: usize,
}
