//! Rules themselves: of each kind, what answers it and what must have happened for
//! there to be an answer.

use super::{Resolved, Resolver, Scope};
use crate::engine::Atom;
use crate::engine::solve::Modality;
use crate::rules::{Body, Component, Condition, Part, Rule, SourceSpan};
use crate::syntax::ast::{self, Kind};

impl Resolver {
    pub(super) fn rule(&mut self, text: usize, rule: &ast::Rule) -> Resolved<()> {
        let mut scope = Scope::default();
        let number = self.rules.rules.len();
        let place = SourceSpan {
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

    pub(super) fn by_part(&mut self, component: Component, scope: Scope, rule: usize) -> Body {
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
}
