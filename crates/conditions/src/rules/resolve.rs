//! From what is written to rules: which name stands for what.
//!
//! This is the part that can find fault with a text that reads well: with names
//! that nobody defined, that are taken, or that go round in circles. What comes out
//! has numbers in place of names, so that nothing that judges looks for one.

mod judged;
mod letters;
mod sequences;
mod states;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Command, Component, Failed, Origin, Part, Rules, SourceSpan, read};
use crate::engine::Atom;
use crate::syntax::ast::{self, Item};
use crate::syntax::{Span, Text, parse};

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
pub(super) struct Resolver {
    pub(super) rules: Rules,
    items: Vec<(usize, Item)>,
    /// By name: place in `items`.
    lets: HashMap<String, usize>,
    states: HashMap<String, usize>,
    /// Letters of lets that have been resolved.
    letters: HashMap<String, u32>,
    /// Letters of patterns that stand in place of a name, by how they are written: rules
    /// that ask for the same events ask for them once.
    written: HashMap<String, u32>,
    resolved_states: HashMap<String, usize>,
    emitted: HashMap<String, u32>,
    rule_names: HashMap<String, usize>,
    /// Lets that are being resolved.
    busy: Vec<String>,
}

type Resolved<T> = Result<T, Failed>;

impl Resolver {
    /// Takes in a text's items, and those of what it includes.
    pub(super) fn add(
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
                let place = SourceSpan {
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
        self.rules.error(SourceSpan { text, span }, expected).into()
    }

    pub(super) fn resolve(&mut self) -> Resolved<()> {
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
