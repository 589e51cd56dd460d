//! Expressions over events: which kinds of events they are, and what finds them.
//!
//! A kind of event is a letter, whether it comes from the log or is made of others; so
//! is whatever is written in place of a name.

use events::{Pattern, nearest};

use super::{Resolved, Resolver, Scope};
use crate::engine::Atom;
use crate::engine::linked::Step;
use crate::rules::{Component, Letter, Origin, Part, SourceSpan};
use crate::syntax::Span;
use crate::syntax::ast::{Expr, ExprKind, Item, Name};

impl Resolver {
    pub(super) fn letter(
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
            origin_at: SourceSpan { text, span },
        });
        self.rules.letters.len() as u32 - 1
    }

    /// The letter of a name for events.
    pub(super) fn letter_of(&mut self, text: usize, name: &Name) -> Resolved<Option<u32>> {
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
                let span = passing.place.span;
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
    pub(super) fn letter_of_expr(
        &mut self,
        text: usize,
        expr: &Expr,
        name: Option<&str>,
    ) -> Resolved<u32> {
        let written = self.written(text, expr.span);
        let name = name.unwrap_or(&written).to_string();
        if is_pattern(expr) && !self.is_linked(expr) {
            // While a name is being defined it means something else than afterwards.
            let is_shared = name == written && self.busy.is_empty();
            if let Some(known) = self.written.get(&written).filter(|_| is_shared) {
                return Ok(*known);
            }
            let pattern = self.pattern(text, expr)?;
            let captures = pattern.captures();
            let letter = self.letter(text, &name, expr.span, Origin::Pattern(pattern), captures);
            if is_shared {
                self.written.insert(written, letter);
            }
            return Ok(letter);
        }
        let mut scope = Scope::default();
        self.derived(text, expr, &mut scope, &name)
    }

    /// Whether a name in it stands for something that is no pattern.
    pub(super) fn is_linked(&self, expr: &Expr) -> bool {
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

    pub(super) fn written(&self, text: usize, span: Span) -> String {
        let text = self.rules.texts.get(text).map(|text| text.slice(span));
        text.unwrap_or_default().trim().to_string()
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
            let place = SourceSpan {
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
    pub(super) fn atoms(
        &mut self,
        text: usize,
        expr: &Expr,
        scope: &mut Scope,
    ) -> Resolved<Vec<Atom>> {
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
                    None => match self.written.get(&name.text) {
                        Some(known) => *known,
                        None => {
                            let pattern = self.word(text, name)?;
                            let origin = Origin::Pattern(pattern);
                            let letter =
                                self.letter(text, &name.text, name.span, origin, Vec::new());
                            self.written.insert(name.text.clone(), letter);
                            letter
                        }
                    },
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
    pub(super) fn component(
        &mut self,
        text: usize,
        expr: &Expr,
        scope: &mut Scope,
    ) -> Resolved<Component> {
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

    pub(super) fn step(&mut self, text: usize, expr: &Expr, scope: &mut Scope) -> Resolved<Step> {
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
}

/// Whether an expression is written like a pattern.
pub(super) fn is_pattern(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Leaf(_) | ExprKind::Name(_, None) => true,
        ExprKind::And(list) | ExprKind::Or(list) => list.iter().all(is_pattern),
        ExprKind::Not(inner) => is_pattern(inner),
        _ => false,
    }
}
