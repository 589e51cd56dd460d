//! Rules whose names have been found: patterns have numbers, expressions have
//! become chains and automata.

mod resolve;

use std::path::Path;

use events::Pattern;

use crate::engine::Atom;
use crate::engine::automaton::Automaton;
use crate::engine::linked::Step;
use crate::engine::recognizer::Purpose;
use crate::engine::relation::Rel;
use crate::engine::solve::Modality;
use crate::syntax::ast::{self, Deed, Item, Kind, Selector, Source};
use crate::syntax::{Error, Span, Text, parse, parse_condition};
use crate::values::Literal;

use resolve::Resolver;

/// Where events of a kind come from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The log: those that fit a pattern.
    Pattern(Pattern),
    /// A place in the source.
    Passing(ast::Passing),
    /// Other events, which make them up.
    Derived,
}

/// A kind of event.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Its name, or what is written in its place.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// What it captures.
    pub captures: Vec<String>,
    /// Where it is written.
    pub origin_at: SourceSpan,
}

/// A place in one of the texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceSpan {
    /// Which text.
    pub text: usize,
    /// Where in it.
    pub span: Span,
}

/// What a state is.
#[derive(Clone, Debug)]
pub enum StateBody {
    /// An expression of the source; with a place, taken there.
    Source(Source, Option<Source>),
    /// From events until events.
    Between(Vec<Atom>, Vec<Atom>),
    /// The number that an event captured last, at this position.
    Last(Vec<Atom>, usize),
    /// The process is there.
    Running,
    /// Such an event has happened; processes are all.
    Happened(Vec<Atom>),
    /// Messages on their way that were sent by such an event.
    InFlight(u32),
}

/// A state.
#[derive(Clone, Debug)]
pub struct State {
    /// Its name, or what is written in its place.
    pub name: String,
    /// Names for what there is one of it of each.
    pub parameters: usize,
    /// Of which processes; of all where there is none.
    pub selector: Option<Selector>,
    /// What.
    pub body: StateBody,
    /// Where it is written.
    pub place: SourceSpan,
}

/// A state in a condition: which, and the names of what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Which state.
    pub state: usize,
    /// The names, by number.
    pub names: Vec<Option<usize>>,
}

/// A number in a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// This.
    Literal(Literal),
    /// Over all processes.
    Sum(Use),
    /// Of how many processes it is true.
    Count(Use),
    /// Of one process.
    Value(Use),
    /// So many times that.
    Times(i64, Box<Number>),
    /// All together.
    Plus(Vec<Number>),
}

/// A condition over states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Some process is in it.
    Is(Use),
    /// Not that.
    Not(Box<Condition>),
    /// All.
    All(Vec<Condition>),
    /// One of them.
    Any(Vec<Condition>),
    /// Two numbers.
    Compare(Number, Rel, Number),
}

/// What is done when a sequence is complete, or broken.
#[derive(Clone, Debug)]
pub enum Command {
    /// A higher event of this kind, with these names' values.
    Emit(u32, Vec<Option<usize>>),
    /// A rule is switched on or off.
    Switch(usize, bool),
    /// A command of the debugger.
    Other(String),
}

/// What looks at the sequence of events.
#[derive(Clone, Debug)]
pub enum Component {
    /// Events in causal order; a kind of event that is made of them.
    Linked(Vec<Step>, Option<u32>),
    /// Events of which neither is before the other.
    Concurrent(Vec<Atom>, Vec<Atom>, Option<u32>),
    /// Each of these leads to one of those.
    LeadsTo(Vec<Atom>, Vec<Atom>, Option<u64>),
    /// Each of those has one of these before it.
    Before(Vec<Atom>, Vec<Atom>),
    /// A sequence.
    Sequence {
        /// What for.
        purpose: Purpose,
        /// Compiled.
        automaton: Automaton,
        /// Its alphabet.
        alphabet: Vec<Atom>,
        /// Events that are its input.
        filter: Option<u32>,
        /// What is done.
        commands: Vec<Command>,
    },
}

/// A component, and whose it is.
#[derive(Clone, Debug)]
pub struct Part {
    /// What.
    pub component: Component,
    /// The names in it.
    pub names: Vec<String>,
    /// The rule whose answer it gives, if it does.
    pub rule: Option<usize>,
}

/// How a rule is answered.
#[derive(Clone, Debug)]
pub enum Body {
    /// By what a component finds.
    Events {
        /// The component.
        part: usize,
        /// Kinds of events without which there is nothing to judge: of each
        /// list, at least one must have happened.
        needs: Vec<Vec<u32>>,
    },
    /// By a condition over states.
    States {
        /// In which states.
        modality: Modality,
        /// The condition whose holding is told of.
        condition: Condition,
        /// Its names.
        names: Vec<String>,
    },
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// How it is answered.
    pub body: Body,
    /// Where it is written.
    pub place: SourceSpan,
}

/// All rules of a file, and of those that it includes.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The texts.
    pub texts: Vec<Text>,
    /// Kinds of events.
    pub letters: Vec<Letter>,
    /// States.
    pub states: Vec<State>,
    /// What looks at events.
    pub parts: Vec<Part>,
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

impl Rules {
    /// Reads a file, and those that it includes.
    pub fn read(path: &Path) -> Result<Rules, Failed> {
        Rules::parse(&path.display().to_string(), &read(path)?, path.parent())
    }

    /// Of a question: names and states, and a condition at the end. It may use
    /// what a file defines.
    pub fn question(text: &str, with: Option<&Path>) -> Result<Rules, Failed> {
        let mut resolver = Resolver::default();
        if let Some(path) = with {
            let text = Text::new(path.display().to_string(), &read(path)?);
            let items = parse(&text)?;
            let items = items.into_iter().filter(|item| !is_judged(item));
            resolver.add(text, items.collect(), path.parent(), &mut Vec::new())?;
        }
        let text = Text::new(QUESTION, text);
        let items = parse_condition(&text)?;
        resolver.add(text, items, None, &mut Vec::new())?;
        resolver.resolve()?;
        Ok(resolver.rules)
    }

    /// Of several texts as one: what one defines the others may use.
    pub fn of(pieces: &[Piece]) -> Result<Rules, Failed> {
        let mut resolver = Resolver::default();
        for piece in pieces {
            let text = Text::new(piece.name.clone(), &piece.text);
            let items = match &piece.rule {
                None => parse(&text)?,
                Some(name) => {
                    let mut items = parse_condition(&text)?;
                    if let Some(Item::Rule(rule)) = items.last_mut() {
                        rule.name.text.clone_from(name);
                    }
                    items
                }
            };
            resolver.add(text, items, piece.dir.as_deref(), &mut Vec::new())?;
        }
        resolver.resolve()?;
        Ok(resolver.rules)
    }

    /// What is written at a place.
    pub fn text(&self, place: SourceSpan) -> String {
        let text = self.texts.get(place.text);
        text.map_or(String::new(), |text| text.slice(place.span))
    }

    /// Of a text. What it includes is looked for in `dir`.
    pub fn parse(name: &str, text: &str, dir: Option<&Path>) -> Result<Rules, Failed> {
        let mut resolver = Resolver::default();
        let text = Text::new(name, text);
        let items = parse(&text)?;
        resolver.add(text, items, dir, &mut Vec::new())?;
        resolver.resolve()?;
        Ok(resolver.rules)
    }

    /// What it asks of the source that only replay can tell, if anything: a variable that is
    /// followed wherever it changes, or a return. Who halts a program at places can tell
    /// the rest.
    pub fn of_replay(&self) -> Option<&str> {
        let mut letters = self.letters.iter();
        let place = letters.find_map(|letter| match &letter.origin {
            Origin::Passing(passing) if !matches!(passing.deed, Deed::At | Deed::Call) => {
                Some(passing.place.text.as_str())
            }
            _ => None,
        });
        let mut states = self.states.iter();
        place.or_else(|| {
            states.find_map(|state| match &state.body {
                StateBody::Source(source, None) => Some(source.text.as_str()),
                _ => None,
            })
        })
    }

    /// The places that threads are asked to have got to: what is done there, where, the
    /// expression that is asked with it, and whether its value is wanted.
    pub fn places(&self) -> Vec<(Deed, &str, Option<&str>, bool)> {
        let letters = self.letters.iter();
        let passed = letters.filter_map(|letter| match &letter.origin {
            Origin::Passing(own) => {
                let condition = own.condition.as_ref().map(|own| own.text.as_str());
                Some((own.deed, own.place.text.as_str(), condition, false))
            }
            _ => None,
        });
        let states = self.states.iter();
        let taken = states.filter_map(|state| match &state.body {
            StateBody::Source(source, Some(place)) => {
                let value = Some(source.text.as_str());
                Some((Deed::At, place.text.as_str(), value, true))
            }
            _ => None,
        });
        passed.chain(taken).collect()
    }

    /// Whether it asks what threads are called.
    pub fn names_threads(&self) -> bool {
        fn in_pattern(pattern: &Pattern) -> bool {
            match pattern {
                Pattern::And(a, b) | Pattern::Or(a, b) => in_pattern(a) || in_pattern(b),
                Pattern::Not(inner) => in_pattern(inner),
                Pattern::Is(
                    events::Condition::Field(events::Field::Thread, ..)
                    | events::Condition::Capture(events::Field::Thread, _),
                ) => true,
                Pattern::Is(_) => false,
            }
        }
        let threads = |selector: &Selector| selector.thread.is_some();
        self.states
            .iter()
            .any(|state| state.selector.as_ref().is_some_and(threads))
            || self.letters.iter().any(|letter| match &letter.origin {
                Origin::Pattern(pattern) => in_pattern(pattern),
                Origin::Passing(passing) => threads(&passing.selector),
                Origin::Derived => false,
            })
    }

    /// Something is wrong at a place.
    pub fn error(&self, place: SourceSpan, expected: impl Into<String>) -> Error {
        match self.texts.get(place.text) {
            Some(text) => text.error(place.span, expected),
            None => Text::new("", "").error(place.span, expected),
        }
    }

    /// Where a word stands inside a place; the whole of it, if it is written otherwise there.
    pub fn within(&self, place: SourceSpan, word: &str) -> SourceSpan {
        let Some(text) = self.texts.get(place.text) else {
            return place;
        };
        let all = text.slice(place.span);
        let is_part = |c: char| c.is_alphanumeric() || "_-.@*?".contains(c);
        let is_whole = |at: &usize| {
            let (before, rest) = all.split_at(*at);
            let behind = rest.strip_prefix(word).and_then(|rest| rest.chars().next());
            !before.chars().next_back().is_some_and(is_part) && !behind.is_some_and(is_part)
        };
        let mut found = all.match_indices(word).map(|(at, _)| at);
        let Some(before) = found.find(is_whole).and_then(|at| all.get(..at)) else {
            return place;
        };
        let from = place.span.from + before.chars().count();
        let to = from + word.chars().count();
        SourceSpan {
            span: crate::syntax::Span { from, to },
            ..place
        }
    }

    /// A place, as messages name it: file, line and column.
    pub fn position(&self, place: SourceSpan) -> String {
        match self.texts.get(place.text) {
            Some(text) => {
                let (line, column) = text.place(place.span.from);
                format!("{}:{line}:{column}", text.name)
            }
            None => String::new(),
        }
    }

    /// File and line of a place.
    pub fn line(&self, place: SourceSpan) -> (&str, usize) {
        match self.texts.get(place.text) {
            Some(text) => (&text.name, text.place(place.span.from).0),
            None => ("", 0),
        }
    }
}

/// One of several texts: a file of rules, or a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is called where something is wrong with it.
    pub name: String,
    /// The text.
    pub text: String,
    /// Of a question: the name of the rule that it becomes.
    pub rule: Option<String>,
    /// Where what it includes is looked for.
    pub dir: Option<std::path::PathBuf>,
}

impl Piece {
    /// A file.
    pub fn read(path: &Path) -> Result<Piece, Failed> {
        Ok(Piece {
            name: path.display().to_string(),
            text: read(path)?,
            rule: None,
            dir: path.parent().map(Path::to_path_buf),
        })
    }

    /// What was typed: rules and names.
    pub fn typed(text: &str) -> Piece {
        Piece {
            name: QUESTION.to_string(),
            text: text.to_string(),
            rule: None,
            dir: None,
        }
    }

    /// A condition, which becomes a rule of this name.
    pub fn question(text: &str, rule: &str) -> Piece {
        Piece {
            rule: Some(rule.to_string()),
            ..Piece::typed(text)
        }
    }
}

/// Rules could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// They are wrong.
    #[error(transparent)]
    Wrong(#[from] Error),
    /// A file could not be read.
    #[error("cannot read the rules in {path}: {why}")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why.
        why: String,
    },
}

/// What a question that was typed is called.
pub const QUESTION: &str = "condition";

/// Whether something in a file is judged, and tells nothing to others.
fn is_judged(item: &Item) -> bool {
    matches!(item, Item::Rule(rule) if rule.kind != Kind::Recognizer && rule.kind != Kind::Verifier)
}

fn read(path: &Path) -> Result<String, Failed> {
    let bytes = std::fs::read(path).map_err(|error| Failed::Unreadable {
        path: path.display().to_string(),
        why: error.to_string(),
    })?;
    String::from_utf8(bytes).map_err(|_| Failed::Unreadable {
        path: path.display().to_string(),
        why: "it is not a text in UTF-8".to_string(),
    })
}
