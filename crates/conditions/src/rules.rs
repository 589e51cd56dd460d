//! Rules whose names have been found: patterns have numbers, expressions have
//! become chains and automata.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use events::{Pattern, nearest};

use crate::engine::Atom;
use crate::engine::automaton::{Automaton, Expr as Regular, PERMUTATION_MAX};
use crate::engine::linked::Step;
use crate::engine::recognizer::Purpose;
use crate::engine::relation::Rel;
use crate::engine::solve::Modality;
use crate::syntax::ast::{self, Expr, ExprKind, Item, Kind, Name, Selector, Sequence, Source};
use crate::syntax::{Error, Span, Text, parse, parse_condition};

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
    pub origin_at: Place,
}

/// A place in one of the texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
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
    pub place: Place,
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
    Literal(i64),
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
    pub place: Place,
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

    /// Of a text. What it includes is looked for in `dir`.
    pub fn parse(name: &str, text: &str, dir: Option<&Path>) -> Result<Rules, Failed> {
        let mut resolver = Resolver::default();
        let text = Text::new(name, text);
        let items = parse(&text)?;
        resolver.add(text, items, dir, &mut Vec::new())?;
        resolver.resolve()?;
        Ok(resolver.rules)
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
    pub fn error(&self, place: Place, expected: impl Into<String>) -> Error {
        match self.texts.get(place.text) {
            Some(text) => text.error(place.span, expected),
            None => Text::new("", "").error(place.span, expected),
        }
    }

    /// File and line of a place.
    pub fn line(&self, place: Place) -> (&str, usize) {
        match self.texts.get(place.text) {
            Some(text) => (&text.name, text.place(place.span.from).0),
            None => ("", 0),
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
        why: error.kind().to_string(),
    })?;
    String::from_utf8(bytes).map_err(|_| Failed::Unreadable {
        path: path.display().to_string(),
        why: "it is not a text in UTF-8".to_string(),
    })
}

/// Names in a rule.
#[derive(Default)]
struct Scope {
    names: Vec<String>,
}

impl Scope {
    fn number(&mut self, name: &str) -> Option<usize> {
        if name == "_" {
            return None;
        }
        let known = self.names.iter().position(|own| own == name);
        Some(known.unwrap_or_else(|| {
            self.names.push(name.to_string());
            self.names.len() - 1
        }))
    }
}

#[derive(Default)]
struct Resolver {
    rules: Rules,
    items: Vec<(usize, Item)>,
    /// By name: place in `items`.
    lets: HashMap<String, usize>,
    states: HashMap<String, usize>,
    /// Letters of lets that have been resolved.
    letters: HashMap<String, u32>,
    resolved_states: HashMap<String, usize>,
    emitted: HashMap<String, u32>,
    rule_names: HashMap<String, usize>,
    /// Lets that are being resolved.
    busy: Vec<String>,
}

type Resolved<T> = Result<T, Failed>;

impl Resolver {
    /// Takes in a text's items, and those of what it includes.
    fn add(
        &mut self,
        text: Text,
        items: Vec<Item>,
        dir: Option<&Path>,
        open: &mut Vec<PathBuf>,
    ) -> Resolved<()> {
        let at = self.rules.texts.len();
        self.rules.texts.push(text);
        for item in items {
            if let Item::Include(name) = &item {
                let path = dir.unwrap_or(Path::new("")).join(&name.text);
                let place = Place {
                    text: at,
                    span: name.span,
                };
                if open.contains(&path) || open.len() > 20 {
                    return Err(self
                        .rules
                        .error(place, "a file that does not include itself")
                        .into());
                }
                let source = read(&path)?;
                let text = Text::new(path.display().to_string(), &source);
                let items = parse(&text)?;
                open.push(path.clone());
                self.add(text, items, path.parent(), open)?;
                open.pop();
                continue;
            }
            self.items.push((at, item));
        }
        Ok(())
    }

    fn error(&self, text: usize, span: Span, expected: impl Into<String>) -> Failed {
        self.rules.error(Place { text, span }, expected).into()
    }

    fn resolve(&mut self) -> Resolved<()> {
        self.collect()?;
        let items = self.items.clone();
        // Higher events first: others may be made of them.
        for (text, item) in &items {
            if let Item::Rule(rule) = item
                && let ast::RuleBody::Sequence(_, _, commands) = &rule.body
            {
                self.emits(*text, commands)?;
            }
        }
        for (text, item) in &items {
            match item {
                Item::Let(name, _) | Item::Passing(name, _) => {
                    self.letter_of(*text, name)?;
                }
                Item::State(name, ..) => {
                    self.state_of(*text, name)?;
                }
                Item::Rule(rule) => self.rule(*text, rule)?,
                Item::Include(_) => {}
            }
        }
        self.no_circles()
    }

    /// All names, none twice.
    fn collect(&mut self) -> Resolved<()> {
        let items = self.items.clone();
        let mut rules = 0;
        for (at, (text, item)) in items.iter().enumerate() {
            let (name, table) = match item {
                Item::Let(name, _) | Item::Passing(name, _) => (name, &mut self.lets),
                Item::State(name, ..) => (name, &mut self.states),
                Item::Rule(rule) => (&rule.name, &mut self.rule_names),
                Item::Include(_) => continue,
            };
            let value = match item {
                Item::Rule(_) => {
                    rules += 1;
                    rules - 1
                }
                _ => at,
            };
            if table.insert(name.text.clone(), value).is_some() {
                return Err(self.error(*text, name.span, "a name that is not taken yet"));
            }
            let both = self.lets.contains_key(&name.text) && self.states.contains_key(&name.text);
            if both {
                return Err(self.error(*text, name.span, "a name that is not taken yet"));
            }
        }
        Ok(())
    }

    fn emits(&mut self, text: usize, commands: &[ast::Command]) -> Resolved<()> {
        for command in commands {
            let ast::Command::Emit(name, names) = command else {
                continue;
            };
            if self.lets.contains_key(&name.text) || self.states.contains_key(&name.text) {
                return Err(self.error(text, name.span, "a name that is not taken yet"));
            }
            match self.emitted.get(&name.text).copied() {
                Some(letter) => {
                    let known = self.rules.letters.get(letter as usize);
                    if known.is_some_and(|known| known.captures.len() != names.len()) {
                        let expected = "as many names as where it is emitted elsewhere";
                        return Err(self.error(text, name.span, expected));
                    }
                }
                None => {
                    let captures = names.iter().map(|name| name.text.clone()).collect();
                    let letter =
                        self.letter(text, &name.text, name.span, Origin::Derived, captures);
                    self.emitted.insert(name.text.clone(), letter);
                }
            }
        }
        Ok(())
    }

    fn letter(
        &mut self,
        text: usize,
        name: &str,
        span: Span,
        origin: Origin,
        captures: Vec<String>,
    ) -> u32 {
        self.rules.letters.push(Letter {
            name: name.to_string(),
            origin,
            captures,
            origin_at: Place { text, span },
        });
        self.rules.letters.len() as u32 - 1
    }

    /// The letter of a name for events.
    fn letter_of(&mut self, text: usize, name: &Name) -> Resolved<Option<u32>> {
        if let Some(letter) = self.letters.get(&name.text) {
            return Ok(Some(*letter));
        }
        if let Some(letter) = self.emitted.get(&name.text) {
            return Ok(Some(*letter));
        }
        if self.busy.contains(&name.text) {
            return Ok(None);
        }
        let Some((own, item)) = self
            .lets
            .get(&name.text)
            .and_then(|at| self.items.get(*at))
            .cloned()
        else {
            return Ok(None);
        };
        let letter = match item {
            Item::Passing(_, passing) => {
                let span = name.span;
                self.letter(own, &name.text, span, Origin::Passing(passing), Vec::new())
            }
            Item::Let(_, expr) => {
                if self.busy.len() > 100 {
                    return Err(self.error(text, name.span, "a name that is not made of itself"));
                }
                self.busy.push(name.text.clone());
                let letter = self.letter_of_expr(own, &expr, Some(&name.text));
                self.busy.pop();
                letter?
            }
            _ => return Ok(None),
        };
        self.letters.insert(name.text.clone(), letter);
        Ok(Some(letter))
    }

    /// A letter for an expression that stands for itself.
    fn letter_of_expr(&mut self, text: usize, expr: &Expr, name: Option<&str>) -> Resolved<u32> {
        let written = self.written(text, expr.span);
        let name = name.unwrap_or(&written).to_string();
        if is_pattern(expr) && !self.is_linked(expr) {
            let pattern = self.pattern(text, expr)?;
            let captures = pattern.captures();
            return Ok(self.letter(text, &name, expr.span, Origin::Pattern(pattern), captures));
        }
        let mut scope = Scope::default();
        self.derived(text, expr, &mut scope, &name)
    }

    /// Whether a name in it stands for something that is no pattern.
    fn is_linked(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Name(name, arguments) => {
                let item = self.lets.get(&name.text).and_then(|at| self.items.get(*at));
                let known = !self.busy.contains(&name.text);
                arguments.is_some()
                    || self.emitted.contains_key(&name.text)
                    || known
                        && match item {
                            Some((_, Item::Let(_, expr))) => {
                                !is_pattern(expr) || self.is_linked_inside(expr, 0)
                            }
                            Some((_, Item::Passing(..))) => true,
                            _ => false,
                        }
            }
            ExprKind::And(list) | ExprKind::Or(list) => {
                list.iter().any(|part| self.is_linked(part))
            }
            ExprKind::Not(inner) => self.is_linked(inner),
            _ => false,
        }
    }

    fn is_linked_inside(&self, expr: &Expr, depth: usize) -> bool {
        match &expr.kind {
            ExprKind::Name(name, arguments) => {
                let item = self.lets.get(&name.text).and_then(|at| self.items.get(*at));
                arguments.is_some()
                    || self.emitted.contains_key(&name.text)
                    || match item {
                        Some((_, Item::Let(own, expr))) if own.text != name.text || depth < 1 => {
                            !is_pattern(expr)
                                || depth < 20 && self.is_linked_inside(expr, depth + 1)
                        }
                        Some((_, Item::Passing(..))) => true,
                        _ => false,
                    }
            }
            ExprKind::And(list) | ExprKind::Or(list) => {
                list.iter().any(|part| self.is_linked_inside(part, depth))
            }
            ExprKind::Not(inner) => self.is_linked_inside(inner, depth),
            _ => false,
        }
    }

    fn written(&self, text: usize, span: Span) -> String {
        let text = self.rules.texts.get(text).map(|text| text.slice(span));
        text.unwrap_or_default()
    }

    /// An expression as one pattern.
    fn pattern(&mut self, text: usize, expr: &Expr) -> Resolved<Pattern> {
        let both = |list: Vec<Pattern>, make: fn(Box<Pattern>, Box<Pattern>) -> Pattern| {
            let mut list = list.into_iter();
            let first = list.next();
            first.map(|first| list.fold(first, |a, b| make(Box::new(a), Box::new(b))))
        };
        match &expr.kind {
            ExprKind::Leaf(pattern) => Ok(pattern.clone()),
            ExprKind::Not(inner) => Ok(Pattern::Not(Box::new(self.pattern(text, inner)?))),
            ExprKind::And(list) | ExprKind::Or(list) => {
                let parts: Resolved<Vec<Pattern>> =
                    list.iter().map(|part| self.pattern(text, part)).collect();
                let joined = match &expr.kind {
                    ExprKind::And(_) => both(parts?, Pattern::And),
                    _ => both(parts?, Pattern::Or),
                };
                joined.ok_or_else(|| self.error(text, expr.span, "a pattern"))
            }
            ExprKind::Name(name, None) => {
                if self.states.contains_key(&name.text) {
                    return Err(self.error(text, name.span, "an event; this is a state"));
                }
                if !self.busy.contains(&name.text)
                    && let Some(letter) = self.letter_of(text, name)?
                {
                    return match self.rules.letters.get(letter as usize).map(|l| &l.origin) {
                        Some(Origin::Pattern(pattern)) => Ok(pattern.clone()),
                        _ => Err(self.error(
                            text,
                            name.span,
                            "events of the log; `and`, `or` and `not` are for these",
                        )),
                    };
                }
                self.word(text, name)
            }
            ExprKind::Name(name, Some(_)) => Err(self.error(
                text,
                name.span,
                "an event without names for its captures, where it is part of a pattern",
            )),
            _ => Err(self.error(
                text,
                expr.span,
                "a pattern; what is linked by `->` cannot be part of one",
            )),
        }
    }

    /// A word of the language of patterns.
    fn word(&self, text: usize, name: &Name) -> Resolved<Pattern> {
        events::parse(&name.text).map_err(|error| {
            let own: Vec<&str> = self
                .lets
                .keys()
                .chain(self.states.keys())
                .chain(self.emitted.keys())
                .map(String::as_str)
                .collect();
            let near = nearest(&name.text, own).map(str::to_string).or(error.near);
            let place = Place {
                text,
                span: name.span,
            };
            let expected = "an event or state that is defined here, or a type of event";
            self.rules
                .error(place, expected)
                .near(near.as_deref())
                .into()
        })
    }

    /// The numbers of names for captures.
    fn bind(
        &self,
        text: usize,
        name: &Name,
        arguments: &[Name],
        captures: usize,
        scope: &mut Scope,
    ) -> Resolved<Vec<Option<usize>>> {
        if arguments.len() > captures {
            let span = arguments.get(captures).map_or(name.span, |own| own.span);
            return Err(self.error(
                text,
                span,
                match captures {
                    0 => format!("`)`: `{}` captures nothing", name.text),
                    1 => format!("`)`: `{}` captures one thing", name.text),
                    count => format!("`)`: `{}` captures {count} things", name.text),
                },
            ));
        }
        Ok(arguments
            .iter()
            .map(|own| scope.number(&own.text))
            .collect())
    }

    /// The kinds of events that an expression stands for; any of them.
    fn atoms(&mut self, text: usize, expr: &Expr, scope: &mut Scope) -> Resolved<Vec<Atom>> {
        match &expr.kind {
            ExprKind::Alternatives(list) => {
                let mut all = Vec::new();
                for part in list {
                    all.extend(self.atoms(text, part, scope)?);
                }
                Ok(all)
            }
            ExprKind::Name(name, arguments) => {
                if self.states.contains_key(&name.text) {
                    return Err(self.error(text, name.span, "an event; this is a state"));
                }
                let letter = match self.letter_of(text, name)? {
                    Some(letter) => letter,
                    None => {
                        let pattern = self.word(text, name)?;
                        self.letter(
                            text,
                            &name.text,
                            name.span,
                            Origin::Pattern(pattern),
                            Vec::new(),
                        )
                    }
                };
                let captures = self.rules.letters.get(letter as usize);
                let captures = captures.map_or(0, |letter| letter.captures.len());
                let arguments = arguments.as_deref().unwrap_or(&[]);
                let names = self.bind(text, name, arguments, captures, scope)?;
                Ok(vec![Atom { letter, names }])
            }
            ExprKind::Leaf(_) | ExprKind::And(_) | ExprKind::Or(_) | ExprKind::Not(_)
                if is_pattern(expr) && !self.is_linked(expr) =>
            {
                let letter = self.letter_of_expr(text, expr, None)?;
                Ok(vec![Atom {
                    letter,
                    names: Vec::new(),
                }])
            }
            ExprKind::Or(list) => {
                let mut all = Vec::new();
                for part in list {
                    all.extend(self.atoms(text, part, scope)?);
                }
                Ok(all)
            }
            ExprKind::Chain(_) | ExprKind::Concurrent(..) | ExprKind::Count(..) => {
                let name = self.written(text, expr.span);
                let mut inner = Scope::default();
                let letter = self.derived(text, expr, &mut inner, &name)?;
                let names = inner.names.iter().map(|name| scope.number(name)).collect();
                Ok(vec![Atom { letter, names }])
            }
            _ => Err(self.error(text, expr.span, "an event; this is a condition over states")),
        }
    }

    /// A component that finds an expression, and a letter for what it finds.
    fn derived(
        &mut self,
        text: usize,
        expr: &Expr,
        scope: &mut Scope,
        name: &str,
    ) -> Resolved<u32> {
        let component = self.component(text, expr, scope)?;
        let captures = scope.names.clone();
        let letter = self.letter(text, name, expr.span, Origin::Derived, captures.clone());
        let component = match component {
            Component::Linked(steps, _) => Component::Linked(steps, Some(letter)),
            Component::Concurrent(left, right, _) => {
                Component::Concurrent(left, right, Some(letter))
            }
            other => other,
        };
        self.rules.parts.push(Part {
            component,
            names: captures,
            rule: None,
        });
        Ok(letter)
    }

    /// What finds an expression.
    fn component(&mut self, text: usize, expr: &Expr, scope: &mut Scope) -> Resolved<Component> {
        match &expr.kind {
            ExprKind::Chain(list) => {
                let mut steps = Vec::new();
                for (own, without) in list {
                    let mut step = self.step(text, own, scope)?;
                    if let Some(without) = without {
                        step.without = self.atoms(text, without, scope)?;
                    }
                    steps.push(step);
                }
                Ok(Component::Linked(steps, None))
            }
            ExprKind::Concurrent(left, right) => Ok(Component::Concurrent(
                self.atoms(text, left, scope)?,
                self.atoms(text, right, scope)?,
                None,
            )),
            _ => Ok(Component::Linked(vec![self.step(text, expr, scope)?], None)),
        }
    }

    fn step(&mut self, text: usize, expr: &Expr, scope: &mut Scope) -> Resolved<Step> {
        let (inner, least, most) = match &expr.kind {
            ExprKind::Count(inner, least, most) => (&**inner, *least, *most),
            _ => (expr, 1, None),
        };
        let atoms = self.atoms(text, inner, scope)?;
        let names = |atom: &Atom| {
            let mut names: Vec<usize> = atom.bound().collect();
            names.sort_unstable();
            names
        };
        if atoms.windows(2).any(|two| match two {
            [a, b] => names(a) != names(b),
            _ => false,
        }) {
            let expected = "alternatives that bind the same names";
            return Err(self.error(text, inner.span, expected));
        }
        Ok(Step {
            atoms,
            least,
            most,
            without: Vec::new(),
        })
    }

    fn state_of(&mut self, text: usize, name: &Name) -> Resolved<Option<usize>> {
        if let Some(state) = self.resolved_states.get(&name.text) {
            return Ok(Some(*state));
        }
        let found = self
            .states
            .get(&name.text)
            .and_then(|at| self.items.get(*at))
            .cloned();
        let Some((own, Item::State(_, parameters, state))) = found else {
            return Ok(None);
        };
        let _ = text;
        let resolved = self.state(own, &name.text, name.span, &parameters, &state)?;
        self.resolved_states.insert(name.text.clone(), resolved);
        Ok(Some(resolved))
    }

    fn state(
        &mut self,
        text: usize,
        name: &str,
        span: Span,
        parameters: &[Name],
        state: &ast::State,
    ) -> Resolved<usize> {
        let mut scope = Scope::default();
        for parameter in parameters {
            scope.number(&parameter.text);
        }
        let body = match &state.body {
            ast::Body::Source(source, place) => StateBody::Source(source.clone(), place.clone()),
            ast::Body::Running => StateBody::Running,
            ast::Body::Between(from, until) => {
                let begins = self.atoms(text, from, &mut scope)?;
                let ends = match until {
                    Some(until) => self.atoms(text, until, &mut scope)?,
                    None => Vec::new(),
                };
                if scope.names.len() > parameters.len() {
                    let expected = "only names that the state has, like `state NAME(m) = ..`";
                    return Err(self.error(text, from.span, expected));
                }
                let all = |atom: &Atom| (0..parameters.len()).all(|p| atom.bound().any(|n| n == p));
                if let Some(atom) = begins.iter().find(|atom| !all(atom)) {
                    let event = self.rules.letters.get(atom.letter as usize);
                    let event = event.map_or("", |letter| letter.name.as_str());
                    let expected = format!("all names of the state bound by `{event}`");
                    return Err(self.error(text, from.span, expected));
                }
                StateBody::Between(begins, ends)
            }
            ast::Body::Last(capture, event) => {
                let atoms = self.atoms(text, event, &mut scope)?;
                let mut position = None;
                for atom in &atoms {
                    let letter = self.rules.letters.get(atom.letter as usize);
                    let captures = letter.map_or(&[][..], |letter| &letter.captures);
                    let own = captures.iter().position(|name| *name == capture.text);
                    let Some(own) = own else {
                        let near = nearest(&capture.text, captures.iter().map(String::as_str));
                        let place = Place {
                            text,
                            span: capture.span,
                        };
                        let expected = "the name of a capture of the event";
                        return Err(self.rules.error(place, expected).near(near).into());
                    };
                    if position.is_some_and(|known| known != own) {
                        let expected = "events that capture it at the same place";
                        return Err(self.error(text, event.span, expected));
                    }
                    position = Some(own);
                }
                StateBody::Last(atoms, position.unwrap_or(0))
            }
        };
        let takes_parameters = matches!(body, StateBody::Between(..));
        if !parameters.is_empty() && !takes_parameters {
            let expected = "no names: only a state `from .. until ..` can have some";
            return Err(self.error(text, span, expected));
        }
        Ok(self.add_state(State {
            name: name.to_string(),
            parameters: parameters.len(),
            selector: Some(state.selector.clone()),
            body,
            place: Place { text, span },
        }))
    }

    fn add_state(&mut self, state: State) -> usize {
        self.rules.states.push(state);
        self.rules.states.len() - 1
    }

    fn use_of(
        &mut self,
        text: usize,
        name: &Name,
        names: &[Name],
        scope: &mut Scope,
    ) -> Resolved<Use> {
        let Some(state) = self.state_of(text, name)? else {
            if self.lets.contains_key(&name.text) || self.emitted.contains_key(&name.text) {
                return Err(self.error(text, name.span, "a state; this is an event"));
            }
            let known = self.states.keys().map(String::as_str);
            let near = nearest(&name.text, known).map(str::to_string);
            let place = Place {
                text,
                span: name.span,
            };
            let error = self.rules.error(place, "the name of a state");
            return Err(error.near(near.as_deref()).into());
        };
        let parameters = self
            .rules
            .states
            .get(state)
            .map_or(0, |state| state.parameters);
        if names.len() != parameters && !names.is_empty() {
            let expected = format!("{parameters} names, as the state has");
            return Err(self.error(text, name.span, expected));
        }
        let mut names: Vec<Option<usize>> =
            names.iter().map(|own| scope.number(&own.text)).collect();
        names.resize(parameters, None);
        Ok(Use { state, names })
    }

    fn quantity(&mut self, text: usize, own: &ast::Quantity, scope: &mut Scope) -> Resolved<Use> {
        match own {
            ast::Quantity::Named(name, names) => self.use_of(text, name, names, scope),
            ast::Quantity::Inline(state) => {
                let span = state.selector.span;
                let name = match &state.body {
                    ast::Body::Source(source, _) => {
                        format!("{}: {}", state.selector.process, source.text)
                    }
                    _ => self.written(text, span),
                };
                let state = self.state(text, &name, span, &[], state)?;
                Ok(Use {
                    state,
                    names: Vec::new(),
                })
            }
        }
    }

    fn number(&mut self, text: usize, number: &ast::Number, scope: &mut Scope) -> Resolved<Number> {
        Ok(match number {
            ast::Number::Literal(value) => Number::Literal(*value),
            ast::Number::Sum(own) => Number::Sum(self.quantity(text, own, scope)?),
            ast::Number::Count(own) => Number::Count(self.quantity(text, own, scope)?),
            ast::Number::Value(own) => Number::Value(self.quantity(text, own, scope)?),
            ast::Number::InFlight(event) => {
                if !is_pattern(event) || self.is_linked(event) {
                    let expected = "a pattern of events that send";
                    return Err(self.error(text, event.span, expected));
                }
                let letter = self.letter_of_expr(text, event, None)?;
                let name = format!("in_flight({})", self.written(text, event.span));
                let state = self.add_state(State {
                    name,
                    parameters: 0,
                    selector: None,
                    body: StateBody::InFlight(letter),
                    place: Place {
                        text,
                        span: event.span,
                    },
                });
                Number::Sum(Use {
                    state,
                    names: Vec::new(),
                })
            }
            ast::Number::Times(factor, inner) => {
                Number::Times(*factor, Box::new(self.number(text, inner, scope)?))
            }
            ast::Number::Plus(list) => {
                let list: Resolved<Vec<Number>> = list
                    .iter()
                    .map(|part| self.number(text, part, scope))
                    .collect();
                Number::Plus(list?)
            }
        })
    }

    /// Whether an expression is about states rather than events.
    fn is_condition(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Name(name, _) => self.states.contains_key(&name.text),
            ExprKind::Compare(..) | ExprKind::Happened(_) => true,
            ExprKind::And(list) | ExprKind::Or(list) => {
                list.iter().any(|part| self.is_condition(part))
            }
            ExprKind::Not(inner) => self.is_condition(inner),
            _ => false,
        }
    }

    fn condition(&mut self, text: usize, expr: &Expr, scope: &mut Scope) -> Resolved<Condition> {
        Ok(match &expr.kind {
            ExprKind::Name(name, names) => {
                let names = names.as_deref().unwrap_or(&[]);
                Condition::Is(self.use_of(text, name, names, scope)?)
            }
            ExprKind::And(list) | ExprKind::Or(list) => {
                let parts: Resolved<Vec<Condition>> = list
                    .iter()
                    .map(|part| self.condition(text, part, scope))
                    .collect();
                match &expr.kind {
                    ExprKind::And(_) => Condition::All(parts?),
                    _ => Condition::Any(parts?),
                }
            }
            ExprKind::Not(inner) => Condition::Not(Box::new(self.condition(text, inner, scope)?)),
            ExprKind::Compare(left, rel, right) => Condition::Compare(
                self.number(text, left, scope)?,
                *rel,
                self.number(text, right, scope)?,
            ),
            ExprKind::Happened(event) => Condition::Is(self.happened(text, event)?),
            _ => {
                return Err(self.error(
                    text,
                    expr.span,
                    "a condition over states; this is an event",
                ));
            }
        })
    }

    /// The state of such an event having happened.
    fn happened(&mut self, text: usize, event: &Expr) -> Resolved<Use> {
        let atoms = self.atoms(text, event, &mut Scope::default())?;
        let name = format!("happened({})", self.written(text, event.span));
        let state = self.add_state(State {
            name,
            parameters: 0,
            selector: None,
            body: StateBody::Happened(atoms),
            place: Place {
                text,
                span: event.span,
            },
        });
        Ok(Use {
            state,
            names: Vec::new(),
        })
    }

    fn rule(&mut self, text: usize, rule: &ast::Rule) -> Resolved<()> {
        let mut scope = Scope::default();
        let number = self.rules.rules.len();
        let place = Place {
            text,
            span: rule.name.span,
        };
        let body = match &rule.body {
            ast::RuleBody::Condition(modality, expr) if self.is_condition(expr) => {
                let condition = self.condition(text, expr, &mut scope)?;
                let condition = match rule.kind {
                    Kind::Always => Condition::Not(Box::new(condition)),
                    _ => condition,
                };
                Body::States {
                    modality: *modality,
                    condition,
                    names: scope.names,
                }
            }
            ast::RuleBody::Condition(modality, expr) => {
                if rule.kind == Kind::Always {
                    let expected = "a condition over states; events do not last";
                    return Err(self.error(text, expr.span, expected));
                }
                if *modality != Modality::Possibly {
                    let expected = "a condition over states after `definitely` or `observed`";
                    return Err(self.error(text, expr.span, expected));
                }
                let component = self.component(text, expr, &mut scope)?;
                self.by_part(component, scope, number)
            }
            ast::RuleBody::Expectation(expectation) => {
                self.expectation(text, expectation, scope, number)?
            }
            ast::RuleBody::Sequence(over, sequence, commands) => {
                self.sequence_rule(text, rule, over.as_ref(), sequence, commands)?
            }
        };
        self.rules.rules.push(Rule {
            kind: rule.kind,
            name: rule.name.text.clone(),
            body,
            place,
        });
        Ok(())
    }

    fn by_part(&mut self, component: Component, scope: Scope, rule: usize) -> Body {
        let letters =
            |atoms: &[Atom]| -> Vec<u32> { atoms.iter().map(|atom| atom.letter).collect() };
        let needs = match &component {
            Component::Linked(steps, _) => steps.iter().map(|step| letters(&step.atoms)).collect(),
            Component::Concurrent(left, right, _) => vec![letters(left), letters(right)],
            Component::LeadsTo(first, ..) => vec![letters(first)],
            Component::Before(_, then) => vec![letters(then)],
            Component::Sequence { alphabet, .. } => vec![letters(alphabet)],
        };
        self.rules.parts.push(Part {
            component,
            names: scope.names,
            rule: Some(rule),
        });
        Body::Events {
            part: self.rules.parts.len() - 1,
            needs,
        }
    }

    fn expectation(
        &mut self,
        text: usize,
        expectation: &ast::Expectation,
        mut scope: Scope,
        rule: usize,
    ) -> Resolved<Body> {
        use ast::Expectation::*;
        let scope_ref = &mut scope;
        let mut chain = Vec::new();
        let component = match expectation {
            LeadsTo(first, then, within) => Component::LeadsTo(
                self.atoms(text, first, scope_ref)?,
                self.atoms(text, then, scope_ref)?,
                *within,
            ),
            Before(first, then) => Component::Before(
                self.atoms(text, first, scope_ref)?,
                self.atoms(text, then, scope_ref)?,
            ),
            NoBetween(event, after, before) => {
                chain.push(self.step(text, after, scope_ref)?);
                let mut step = self.step(text, event, scope_ref)?;
                step.without = self.atoms(text, before, scope_ref)?;
                chain.push(step);
                chain.push(self.step(text, before, scope_ref)?);
                Component::Linked(chain, None)
            }
            NoAfter(event, after, until) => {
                chain.push(self.step(text, after, scope_ref)?);
                let mut step = self.step(text, event, scope_ref)?;
                if let Some(until) = until {
                    step.without = self.atoms(text, until, scope_ref)?;
                }
                chain.push(step);
                Component::Linked(chain, None)
            }
            NoBefore(event, before) => {
                chain.push(self.step(text, event, scope_ref)?);
                chain.push(self.step(text, before, scope_ref)?);
                Component::Linked(chain, None)
            }
            Until(condition, event) => {
                let condition = self.condition(text, condition, scope_ref)?;
                let happened = Condition::Is(self.happened(text, event)?);
                return Ok(Body::States {
                    modality: Modality::Possibly,
                    condition: Condition::All(vec![
                        Condition::Not(Box::new(condition)),
                        Condition::Not(Box::new(happened)),
                    ]),
                    names: scope.names,
                });
            }
            Always(condition) => {
                if !self.is_condition(condition) {
                    let expected = "`leads to`, `before` or `until` behind an event";
                    return Err(self.error(text, condition.span, expected));
                }
                let condition = self.condition(text, condition, scope_ref)?;
                return Ok(Body::States {
                    modality: Modality::Possibly,
                    condition: Condition::Not(Box::new(condition)),
                    names: scope.names,
                });
            }
        };
        Ok(match (self.by_part(component, scope, rule), expectation) {
            // That the forbidden never happens is no reason not to judge.
            (Body::Events { part, needs }, NoBetween(..) | NoAfter(..)) => Body::Events {
                part,
                needs: needs.into_iter().take(1).collect(),
            },
            (Body::Events { part, needs }, NoBefore(..)) => Body::Events {
                part,
                needs: needs.into_iter().skip(1).collect(),
            },
            (body, _) => body,
        })
    }

    fn sequence_rule(
        &mut self,
        text: usize,
        rule: &ast::Rule,
        over: Option<&Expr>,
        sequence: &Sequence,
        commands: &[ast::Command],
    ) -> Resolved<Body> {
        let mut scope = Scope::default();
        let mut alphabet: Vec<Atom> = Vec::new();
        let regular = self.regular(text, sequence, &mut alphabet, &mut scope)?;
        if alphabet.len() > 64 {
            return Err(self.error(
                text,
                rule.span,
                "no more than 64 kinds of events in a sequence",
            ));
        }
        let automaton = Automaton::new(&regular).map_err(|_| {
            let expected = format!(
                "a smaller sequence: in `[..]` no more than {PERMUTATION_MAX} parts, and fewer repetitions"
            );
            self.error(text, rule.span, expected)
        })?;
        let filter = match over {
            Some(over) => {
                let atoms = self.atoms(text, over, &mut Scope::default())?;
                match atoms.as_slice() {
                    [atom] => Some(atom.letter),
                    _ => return Err(self.error(text, over.span, "one pattern behind `over`")),
                }
            }
            None => None,
        };
        let mut list = Vec::new();
        for command in commands {
            list.push(match command {
                ast::Command::Emit(name, names) => {
                    let letter = self.emitted.get(&name.text).copied().unwrap_or(0);
                    let known = scope.names.len();
                    let mut numbers = Vec::new();
                    for own in names {
                        let number = scope.number(&own.text);
                        if number.is_some_and(|number| number >= known) {
                            let near = nearest(
                                &own.text,
                                scope.names.iter().take(known).map(String::as_str),
                            );
                            let place = Place {
                                text,
                                span: own.span,
                            };
                            let expected = "a name that is bound in the sequence";
                            return Err(self.rules.error(place, expected).near(near).into());
                        }
                        numbers.push(number);
                    }
                    Command::Emit(letter, numbers)
                }
                ast::Command::Enable(name) | ast::Command::Disable(name) => {
                    let Some(rule) = self.rule_names.get(&name.text).copied() else {
                        let known = self.rule_names.keys().map(String::as_str);
                        let near = nearest(&name.text, known).map(str::to_string);
                        let place = Place {
                            text,
                            span: name.span,
                        };
                        let error = self.rules.error(place, "the name of a rule");
                        return Err(error.near(near.as_deref()).into());
                    };
                    Command::Switch(rule, matches!(command, ast::Command::Enable(_)))
                }
                ast::Command::Other(source) => Command::Other(source.text.clone()),
            });
        }
        let purpose = match rule.kind {
            Kind::Recognizer => Purpose::Recognize,
            _ => Purpose::Verify,
        };
        let number = self.rules.rules.len();
        let component = Component::Sequence {
            purpose,
            automaton,
            alphabet,
            filter,
            commands: list,
        };
        Ok(self.by_part(component, scope, number))
    }

    fn regular(
        &mut self,
        text: usize,
        sequence: &Sequence,
        alphabet: &mut Vec<Atom>,
        scope: &mut Scope,
    ) -> Resolved<Regular> {
        let mut all = |resolver: &mut Self, list: &[Sequence]| -> Resolved<Vec<Regular>> {
            list.iter()
                .map(|part| resolver.regular(text, part, alphabet, scope))
                .collect()
        };
        Ok(match sequence {
            Sequence::All(list) => Regular::Sequence(all(self, list)?),
            Sequence::Either(list) => Regular::Either(all(self, list)?),
            Sequence::AnyOrder(list) => Regular::Permutation(all(self, list)?),
            Sequence::Repeat(inner, least, most) => Regular::Repeat(
                Box::new(self.regular(text, inner, alphabet, scope)?),
                *least,
                *most,
            ),
            Sequence::One(name, names) => {
                let expr = Expr {
                    kind: ExprKind::Name(name.clone(), Some(names.clone())),
                    span: name.span,
                };
                let atoms = self.atoms(text, &expr, scope)?;
                let Some(atom) = atoms.into_iter().next() else {
                    return Err(self.error(text, name.span, "an event"));
                };
                // A word of patterns is a letter of its own each time.
                let same_event = |known: &&Atom| {
                    let name_of = |atom: &Atom| {
                        let letter = self.rules.letters.get(atom.letter as usize);
                        letter.map(|letter| letter.name.clone())
                    };
                    known.letter == atom.letter || name_of(known) == name_of(&atom)
                };
                let position = alphabet.iter().position(|known| same_event(&known));
                if let Some(known) = position.and_then(|at| alphabet.get(at)) {
                    if known.names != atom.names {
                        let expected = format!(
                            "the same names for `{}` everywhere in the sequence",
                            name.text
                        );
                        return Err(self.error(text, name.span, expected));
                    }
                }
                Regular::One(position.unwrap_or_else(|| {
                    alphabet.push(atom);
                    alphabet.len() - 1
                }))
            }
        })
    }

    /// No event is made of itself.
    fn no_circles(&self) -> Resolved<()> {
        let makes = |part: &Part| -> (Vec<u32>, Vec<u32>) {
            let letters = |atoms: &[Atom]| atoms.iter().map(|a| a.letter).collect::<Vec<u32>>();
            match &part.component {
                Component::Linked(steps, out) => {
                    let atoms = steps.iter().flat_map(|s| s.atoms.iter().chain(&s.without));
                    (
                        atoms.map(|a| a.letter).collect(),
                        out.iter().copied().collect(),
                    )
                }
                Component::Concurrent(left, right, out) => {
                    let both = [letters(left), letters(right)].concat();
                    (both, out.iter().copied().collect())
                }
                Component::Sequence {
                    alphabet,
                    filter,
                    commands,
                    ..
                } => {
                    let mut of = letters(alphabet);
                    of.extend(filter);
                    let made = commands.iter().filter_map(|command| match command {
                        Command::Emit(letter, _) => Some(*letter),
                        _ => None,
                    });
                    (of, made.collect())
                }
                _ => (Vec::new(), Vec::new()),
            }
        };
        let edges: Vec<(Vec<u32>, Vec<u32>)> = self.rules.parts.iter().map(makes).collect();
        // Take away what is made of nothing that is left, until nothing is.
        let mut left: Vec<&(Vec<u32>, Vec<u32>)> = edges.iter().collect();
        loop {
            let made: Vec<u32> = left.iter().flat_map(|(_, made)| made).copied().collect();
            let before = left.len();
            left.retain(|(of, _)| of.iter().any(|letter| made.contains(letter)));
            if left.len() == before {
                break;
            }
        }
        let first = left.iter().flat_map(|(_, made)| made).next();
        match first.and_then(|letter| self.rules.letters.get(*letter as usize)) {
            Some(letter) => Err(self
                .rules
                .error(letter.origin_at, "an event that is not made of itself")
                .into()),
            None => Ok(()),
        }
    }
}

/// Whether an expression is written like a pattern.
fn is_pattern(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Leaf(_) | ExprKind::Name(_, None) => true,
        ExprKind::And(list) | ExprKind::Or(list) => list.iter().all(is_pattern),
        ExprKind::Not(inner) => is_pattern(inner),
        _ => false,
    }
}
