//! Sequences of recognizers and verifiers: their alphabet, their automaton, and what
//! is done when one is complete.

use events::nearest;

use super::{Resolved, Resolver, Scope};
use crate::engine::Atom;
use crate::engine::automaton::{Automaton, Expr as Regular, PERMUTATION_MAX};
use crate::engine::recognizer::Purpose;
use crate::rules::{Body, Command, Component, SourceSpan};
use crate::syntax::ast::{self, Expr, ExprKind, Kind, Sequence};

impl Resolver {
    pub(super) fn sequence_rule(
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
                            let place = SourceSpan {
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
                        let place = SourceSpan {
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
                if let Some(known) = position.and_then(|at| alphabet.get(at))
                    && known.names != atom.names
                {
                    let expected = format!(
                        "the same names for `{}` everywhere in the sequence",
                        name.text
                    );
                    return Err(self.error(text, name.span, expected));
                }
                Regular::One(position.unwrap_or_else(|| {
                    alphabet.push(atom);
                    alphabet.len() - 1
                }))
            }
        })
    }
}
