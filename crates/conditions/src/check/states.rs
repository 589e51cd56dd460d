//! Rules over states: a condition becomes a formula over traces, for each way to give
//! values to its names, and the solver is asked.

use super::Run;
use super::formulas::{Builder, Owner};
use crate::engine::Sym;
use crate::engine::early::Seen;
use crate::engine::solve::{Answer, Formula, Modality, Solver};
use crate::rules::{Body, Condition, Number, Rule, Use};
use crate::source::Events;
use crate::states::{Empty, Instance};
use crate::syntax::ast::Kind;
use crate::timeline::StateCondition;
use crate::verdict::{Outcome, Verdict, Witness};

impl<E: Events + ?Sized> Run<'_, E> {
    /// Which states rules look at.
    pub(super) fn used_states(&self) -> Vec<bool> {
        let mut used = vec![false; self.rules.states.len()];
        for rule in &self.rules.rules {
            if let Body::States { condition, .. } = &rule.body {
                uses(condition, &mut |own| used[own.state] = true);
            }
        }
        used
    }

    pub(super) fn by_states(
        &self,
        rule: &Rule,
        modality: Modality,
        condition: &Condition,
        names: &[String],
        instances: &[Vec<Instance>],
        empty: &[Option<Empty>],
    ) -> Verdict {
        let (mut builder, assignments) = match self.ways(condition, names, instances, empty) {
            Ok(ways) => ways,
            Err((outcome, why)) => {
                let mut verdict = self.verdict(rule, outcome);
                verdict.reason = Some(why);
                return verdict;
            }
        };
        // What was observed is a matter of times, and those of events are when they were over.
        let seen = (modality == Modality::Observed)
            .then(|| Seen::new(self.events, |events| self.events.times(events)));
        let mut unknown = None;
        let mut yes: Vec<(Vec<Sym>, Witness)> = Vec::new();
        let mut count = 0;
        for values in assignments {
            let known = builder.traces.len();
            let formula = builder.formula(condition, &values);
            if let Some(seen) = &seen {
                seen.set(builder.traces.get_mut(known..).unwrap_or_default());
            }
            let solver = Solver {
                history: self.events,
                traces: &builder.traces,
                floor: None,
            };
            match solver.ask(&formula, modality) {
                Answer::Yes(state) => {
                    let listed = match (rule.kind, modality) {
                        (Kind::Find, Modality::Possibly) => {
                            solver.occurrences(&formula, OCCURRENCES_MAX)
                        }
                        _ => None,
                    };
                    let all = listed.unwrap_or_else(|| vec![state]);
                    count += all.len() as u64;
                    for state in all.into_iter().take(self.options.witnesses) {
                        yes.push((
                            values.clone(),
                            self.state_witness(state, &builder, &formula),
                        ));
                    }
                }
                Answer::No => {}
                Answer::Unknown(why) => unknown = Some(builder.why(why)),
            }
        }
        let wanted = rule.kind == Kind::Find;
        let outcome = match (yes.is_empty(), &unknown) {
            (false, _) if wanted => Outcome::Matched,
            (false, _) => Outcome::Violated,
            (true, Some(_)) => Outcome::Unknown,
            (true, None) => Outcome::Holds,
        };
        yes.sort_by_key(|(_, witness)| witness.cut.iter().map(|b| u64::from(*b)).sum::<u64>());
        let mut verdict = self.verdict(rule, outcome);
        verdict.count = count;
        verdict.reason = unknown.filter(|_| outcome == Outcome::Unknown);
        verdict.witnesses = yes
            .into_iter()
            .take(self.options.witnesses)
            .map(|(values, mut witness)| {
                witness.captures = self.named(names, &values);
                witness
            })
            .collect();
        verdict
    }

    /// What makes formulas of a condition, and all ways to give values to its names; or
    /// why there is nothing to ask.
    fn ways<'i>(
        &'i self,
        condition: &Condition,
        names: &[String],
        instances: &'i [Vec<Instance>],
        empty: &[Option<Empty>],
    ) -> Result<Ways<'i>, (Outcome, String)> {
        let mut trouble = None;
        uses(condition, &mut |own| {
            if let Some(Empty::Trouble(why)) = &empty[own.state] {
                trouble.get_or_insert(why.clone());
            }
        });
        if let Some(why) = trouble {
            return Err((Outcome::Unknown, why));
        }
        let is_empty = |own: &Use| empty[own.state].is_some();
        if vacuous(condition, &is_empty) {
            let mut reason = None;
            uses(condition, &mut |own| {
                let state = &self.rules.states[own.state];
                let why = match &empty[own.state] {
                    Some(Empty::Nobody(name)) => super::nobody(self.events, name),
                    Some(_) => format!("nothing of `{}` ever happened", state.name),
                    None => return,
                };
                reason.get_or_insert(why);
            });
            return Err((Outcome::Vacuous, reason.unwrap_or_default()));
        }
        let Some(assignments) = assignments(condition, names.len(), instances) else {
            let why = format!("its names can have more than {ASSIGNMENTS_MAX} values together");
            return Err((Outcome::Unknown, why));
        };
        Ok((
            Builder::new(self.rules, instances, &self.symbols),
            assignments,
        ))
    }

    /// What a condition is over the whole run, to be asked from any place in it.
    pub(super) fn stretches(
        &self,
        condition: &Condition,
        names: &[String],
        instances: &[Vec<Instance>],
        empty: &[Option<Empty>],
    ) -> Result<StateCondition, (Outcome, String)> {
        let (mut builder, assignments) = self.ways(condition, names, instances, empty)?;
        let mut ways = Vec::new();
        for values in assignments {
            let formula = builder.formula(condition, &values);
            ways.push((self.named(names, &values), formula));
        }
        let owners = builder.owners.iter();
        let name = |own: &Owner| {
            let process = instances[own.state][own.instance].trace.process;
            let name = &self.rules.states[own.state].name;
            of_member(name, self.events.name(process))
        };
        let origin = |own: &Owner| instances[own.state][own.instance].trace.clone();
        Ok(StateCondition {
            names: owners.clone().map(name).collect(),
            origins: owners.map(origin).collect(),
            symbols: self.symbols.clone(),
            traces: builder.traces,
            ways,
        })
    }

    /// What names are bound to, in words.
    fn named(&self, names: &[String], values: &[Sym]) -> Vec<(String, String)> {
        let bound = names
            .iter()
            .zip(values)
            .filter(|(_, sym)| **sym != Sym::NONE);
        bound
            .map(|(name, sym)| (name.clone(), self.symbols.text(*sym)))
            .collect()
    }

    fn state_witness(
        &self,
        state: crate::engine::solve::State,
        builder: &Builder<'_>,
        formula: &Formula,
    ) -> Witness {
        let mut used = Vec::new();
        formula.traces(&mut used);
        used.sort_unstable();
        used.dedup();
        let values = used.into_iter().filter_map(|trace| {
            let own = &builder.traces[trace];
            let place = state
                .places
                .iter()
                .find(|(process, _)| *process == own.process)?;
            let owner = builder.owners[trace];
            let name = &self.rules.states[owner.state].name;
            let name = of_member(name, self.events.name(own.process));
            let value = builder.origin(trace).at(place.1).words(&self.symbols)?;
            Some((own.process, name, value))
        });
        Witness {
            values: values.collect(),
            first: state.unique,
            is_state: true,
            cut: state.cut,
            events: state.places,
            ..Witness::default()
        }
    }
}

/// How a state is called of one process: `server-*: total` of a family is `server-0: total`
/// of one of it. What has a name of its own keeps it.
fn of_member(state: &str, process: &str) -> String {
    let end = state.find([' ', '/', ':']).unwrap_or(state.len());
    match state.split_at_checked(end) {
        Some((family, rest))
            if !rest.is_empty() && events::glob(family.as_bytes(), process.as_bytes()) =>
        {
            format!("{process}{rest}")
        }
        _ => state.to_string(),
    }
}

/// What makes formulas of a condition, and all values that its names can have together.
type Ways<'i> = (Builder<'i>, Vec<Vec<Sym>>);

/// Assignments of values to the names of a condition that are tried.
const ASSIGNMENTS_MAX: usize = 10_000;

/// Times that a condition is found that is asked for all of them.
const OCCURRENCES_MAX: usize = 1_000_000;

/// All states in a condition.
fn uses(condition: &Condition, found: &mut dyn FnMut(&Use)) {
    fn number(own: &Number, found: &mut dyn FnMut(&Use)) {
        match own {
            Number::Literal(_) => {}
            Number::Sum(own) | Number::Count(own) | Number::Value(own) => found(own),
            Number::Times(_, inner) => number(inner, found),
            Number::Plus(list) => list.iter().for_each(|part| number(part, found)),
        }
    }
    match condition {
        Condition::Is(own) => found(own),
        Condition::Not(inner) => uses(inner, found),
        Condition::All(list) | Condition::Any(list) => {
            list.iter().for_each(|part| uses(part, found));
        }
        Condition::Compare(left, _, right) => {
            number(left, found);
            number(right, found);
        }
    }
}

/// Whether there is nothing to judge a condition by.
fn vacuous(condition: &Condition, is_empty: &dyn Fn(&Use) -> bool) -> bool {
    match condition {
        // That nothing has happened yet is what is asked.
        Condition::Is(own) => is_empty(own),
        Condition::Not(inner) => vacuous(inner, is_empty),
        Condition::All(list) => {
            // `not happened(..)` judges by what has not.
            list.iter().any(|part| vacuous(part, is_empty))
        }
        Condition::Any(list) => list.iter().all(|part| vacuous(part, is_empty)),
        Condition::Compare(..) => {
            let mut any = false;
            let mut all = true;
            uses(condition, &mut |own| {
                any = true;
                all &= is_empty(own);
            });
            any && all
        }
    }
}

/// All ways to give values to the names of a condition.
fn assignments(
    condition: &Condition,
    names: usize,
    instances: &[Vec<Instance>],
) -> Option<Vec<Vec<Sym>>> {
    let mut domains: Vec<Vec<Sym>> = vec![Vec::new(); names];
    uses(condition, &mut |own| {
        for (position, name) in own.names.iter().enumerate() {
            if let Some(domain) = name.and_then(|name| domains.get_mut(name)) {
                let keys = instances[own.state].iter();
                domain.extend(keys.filter_map(|instance| instance.key.get(position)));
            }
        }
    });
    let mut all: Vec<Vec<Sym>> = vec![Vec::new()];
    for mut domain in domains {
        domain.sort_unstable();
        domain.dedup();
        if domain.is_empty() {
            domain.push(Sym::NONE);
        }
        if all.len().saturating_mul(domain.len()) > ASSIGNMENTS_MAX {
            return None;
        }
        all = all
            .iter()
            .flat_map(|own| {
                domain
                    .iter()
                    .map(move |sym| [own.as_slice(), &[*sym]].concat())
            })
            .collect();
    }
    Some(all)
}
