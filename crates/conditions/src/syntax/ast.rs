//! What is written in a file of rules, before names are looked up.
#![allow(
    clippy::large_enum_variant,
    reason = "the tree of a file of rules is small and made once"
)]

use events::Pattern;

use super::Span;
use crate::engine::relation::Rel;
use crate::engine::solve::Modality;
use crate::values::Literal;

/// A name, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// Which processes, or threads of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Names of processes or programs; `*` and `?` stand for anything.
    pub process: String,
    /// Names of threads.
    pub thread: Option<String>,
    /// Where it stands.
    pub span: Span,
}

impl Selector {
    /// As it is written.
    pub fn words(&self) -> String {
        match &self.thread {
            Some(thread) => format!("{}/{thread}", self.process),
            None => self.process.clone(),
        }
    }
}

/// An expression in the words of the source language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// As it is written.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// What a thread does at a place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    /// It gets there: a function, a line, a label.
    At,
    /// It calls a function.
    Call,
    /// It returns from a function.
    Return,
    /// It assigns to a variable.
    Change,
}

impl Deed {
    /// As it is written.
    pub fn words(self) -> &'static str {
        match self {
            Deed::At => "at",
            Deed::Call => "call of",
            Deed::Return => "return of",
            Deed::Change => "change of",
        }
    }
}

/// An event that is not in the log: a thread gets to a place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passing {
    /// What it does there.
    pub deed: Deed,
    /// The function, line, label or variable.
    pub place: Source,
    /// Whose.
    pub selector: Selector,
    /// Only where this holds.
    pub condition: Option<Source>,
}

/// What is true over stretches of a process's run.
#[derive(Clone, Debug)]
pub enum Body {
    /// An expression; with a place, taken whenever a thread gets there.
    Source(Source, Option<Source>),
    /// From an event until another.
    Between(Box<Expr>, Option<Box<Expr>>),
    /// The number that an event captured last under this name.
    Last(Name, Box<Expr>),
    /// As long as the process is there.
    Running,
}

/// A state: whose, and what.
#[derive(Clone, Debug)]
pub struct State {
    /// Of which processes.
    pub selector: Selector,
    /// What.
    pub body: Body,
}

/// A state by its name, or one that is written where it is used.
#[derive(Clone, Debug)]
pub enum Quantity {
    /// By its name, perhaps with names for what it is about.
    Named(Name, Vec<Name>),
    /// In place.
    Inline(State),
}

/// A number.
#[derive(Clone, Debug)]
pub enum Number {
    /// This number, or text.
    Literal(Literal),
    /// The sum of a state over all processes.
    Sum(Quantity),
    /// How many processes are in a state.
    Count(Quantity),
    /// The value of one process.
    Value(Quantity),
    /// Messages that were sent by such an event, and not received.
    InFlight(Box<Expr>),
    /// So many times that.
    Times(i64, Box<Number>),
    /// All of these together.
    Plus(Vec<Number>),
}

/// What is written where a condition or an event can stand.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
}

/// See [`Expr`].
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A name, perhaps with names for its captures; or a word of patterns.
    Name(Name, Option<Vec<Name>>),
    /// A condition of a pattern.
    Leaf(Pattern),
    /// All of them.
    And(Vec<Expr>),
    /// One of them.
    Or(Vec<Expr>),
    /// Not that.
    Not(Box<Expr>),
    /// One after the other, causally; without something between.
    Chain(Vec<(Expr, Option<Expr>)>),
    /// One of these events.
    Alternatives(Vec<Expr>),
    /// Neither before the other.
    Concurrent(Box<Expr>, Box<Expr>),
    /// So many, one after the other.
    Count(Box<Expr>, u32, Option<u32>),
    /// Two numbers compare so.
    Compare(Number, Rel, Number),
    /// Such an event has happened.
    Happened(Box<Expr>),
}

/// What kind of rule something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// In no consistent state; at no event.
    Never,
    /// In every consistent state.
    Always,
    /// Where is that?
    Find,
    /// An order of events.
    Expect,
    /// A sequence that is looked for.
    Recognizer,
    /// A sequence that is relied on.
    Verifier,
}

impl Kind {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Never => "never",
            Kind::Always => "always",
            Kind::Find => "find",
            Kind::Expect => "expect",
            Kind::Recognizer => "recognizer",
            Kind::Verifier => "verifier",
        }
    }
}

/// What is expected of events.
#[derive(Clone, Debug)]
pub enum Expectation {
    /// After each of these there is one of those, within so many nanoseconds.
    LeadsTo(Expr, Expr, Option<u64>),
    /// Each of those has one of these before it.
    Before(Expr, Expr),
    /// None of the first after the second, and before the third.
    NoBetween(Expr, Expr, Expr),
    /// None of the first after the second, until the third.
    NoAfter(Expr, Expr, Option<Expr>),
    /// None of the first before the second.
    NoBefore(Expr, Expr),
    /// A condition holds until such an event.
    Until(Expr, Expr),
    /// A condition always holds.
    Always(Expr),
}

/// A sequence of events.
#[derive(Clone, Debug)]
pub enum Sequence {
    /// One event, with names for its captures.
    One(Name, Vec<Name>),
    /// One after the other.
    All(Vec<Sequence>),
    /// One of these.
    Either(Vec<Sequence>),
    /// All of these in any order.
    AnyOrder(Vec<Sequence>),
    /// So many of it.
    Repeat(Box<Sequence>, u32, Option<u32>),
}

/// What is done when a recognizer or verifier tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Put a higher event into the sequence of events.
    Emit(Name, Vec<Name>),
    /// Switch a rule on.
    Enable(Name),
    /// Switch a rule off.
    Disable(Name),
    /// A command of the debugger.
    Other(Source),
}

/// Something to be judged.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What kind.
    pub kind: Kind,
    /// Its name.
    pub name: Name,
    /// What it says.
    pub body: RuleBody,
    /// Where it stands.
    pub span: Span,
}

/// See [`Rule`].
#[derive(Clone, Debug)]
pub enum RuleBody {
    /// A condition or event.
    Condition(Modality, Expr),
    /// An order of events.
    Expectation(Expectation),
    /// A sequence, over some events, with what is done.
    Sequence(Option<Expr>, Sequence, Vec<Command>),
}

/// One thing in a file.
#[derive(Clone, Debug)]
pub enum Item {
    /// A name for events.
    Let(Name, Expr),
    /// A name for events at a place in the source.
    Passing(Name, Passing),
    /// A name for a state, perhaps of each of several things.
    State(Name, Vec<Name>, State),
    /// A rule.
    Rule(Rule),
    /// Another file.
    Include(Name),
}
