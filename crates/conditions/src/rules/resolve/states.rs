//! States, and conditions over them.
//!
//! Apart from events, because a state lasts: a condition is asked in all consistent
//! states and not of a sequence.

use events::nearest;

use super::letters::is_pattern;
use super::{Resolved, Resolver, Scope};
use crate::engine::Atom;
use crate::rules::{Condition, Number, SourceSpan, State, StateBody, Use};
use crate::syntax::Span;
use crate::syntax::ast::{self, Expr, ExprKind, Item, Name};

impl Resolver {
    pub(super) fn state_of(&mut self, text: usize, name: &Name) -> Resolved<Option<usize>> {
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
                        let place = SourceSpan {
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
            place: SourceSpan { text, span },
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
            let place = SourceSpan {
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
                        format!("{}: {}", state.selector.words(), source.text)
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
            ast::Number::Literal(value) => Number::Literal(value.clone()),
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
                    place: SourceSpan {
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
    pub(super) fn is_condition(&self, expr: &Expr) -> bool {
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

    pub(super) fn condition(
        &mut self,
        text: usize,
        expr: &Expr,
        scope: &mut Scope,
    ) -> Resolved<Condition> {
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
    pub(super) fn happened(&mut self, text: usize, event: &Expr) -> Resolved<Use> {
        let atoms = self.atoms(text, event, &mut Scope::default())?;
        let name = format!("happened({})", self.written(text, event.span));
        let state = self.add_state(State {
            name,
            parameters: 0,
            selector: None,
            body: StateBody::Happened(atoms),
            place: SourceSpan {
                text,
                span: event.span,
            },
        });
        Ok(Use {
            state,
            names: Vec::new(),
        })
    }
}
