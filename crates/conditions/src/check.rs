//! Judging rules: one pass over all logs for the events of all rules, one over
//! what was found in causal order, and then a question for each rule.
#![allow(clippy::indexing_slicing)] // Tables with a row for each letter, part and process.

mod follow;
mod formulas;
mod sets;
mod states;

use std::rc::Rc;

use events::{Condition, Field, Operator, Pattern, Value};

use self::sets::Sets;
use crate::engine::linked::{Concurrent, Linked};
use crate::engine::recognizer::Recognizer;
use crate::engine::solve::Modality;
use crate::engine::temporal::{Before, LeadsTo};
use crate::engine::{Match, Sym};
use crate::rules::{Body, Command, Component, Failed, Origin, Rule, Rules};
use crate::source::{Events, Symbols};
use crate::states::{Empty, Instance, States, is_called, is_member};
use crate::stream::Mark;
use crate::syntax::ast::Kind;
use crate::timeline::{Fired, Timeline, Told, What};
use crate::truth::Truth;
use crate::verdict::{Emitted, Outcome, Verdict, Witness};

/// How much is told.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// So many instants for each rule.
    pub witnesses: usize,
}

/// What came of all rules.
#[derive(Debug)]
pub struct Report {
    /// Of each rule.
    pub verdicts: Vec<Verdict>,
    /// Higher events, in causal order.
    pub emitted: Vec<Emitted>,
}

enum Engine {
    Linked(Linked),
    Concurrent(Concurrent),
    LeadsTo(LeadsTo),
    Before(Before),
    Sequence(Recognizer),
}

/// A component at work, and what it found.
struct Worker {
    engine: Engine,
    enabled: bool,
    count: u64,
    found: Vec<Match>,
    commands: Vec<String>,
}

/// Events of one process, as they are put into causal order.
#[derive(Default)]
struct Lane {
    marks: Vec<Mark>,
    /// What happened at each, by its number among all [`sets`].
    sets: Vec<u32>,
}

/// Judges rules.
pub fn check<E: Events + ?Sized>(
    rules: &Rules,
    events: &E,
    truth: &mut dyn Truth,
    options: Options,
) -> Result<Report, Failed> {
    names(rules, events)?;
    Ok(Run::new(rules, events, options).judge(truth))
}

/// Everything that rules tell, to be asked from any place of the run. Those that are
/// switched off (by name) neither find nor emit anything until another switches them on.
/// Of whoever is not there (see [`names`]) nothing is found.
pub fn timeline<E: Events + ?Sized>(
    rules: &Rules,
    events: &E,
    truth: &mut dyn Truth,
    is_off: &dyn Fn(&str) -> bool,
) -> Timeline {
    let all = Options {
        witnesses: usize::MAX,
    };
    let mut run = Run::new(rules, events, all);
    for (part, worker) in rules.parts.iter().zip(&mut run.workers) {
        let rule = part.rule.and_then(|rule| rules.rules.get(rule));
        worker.enabled = !rule.is_some_and(|rule| is_off(&rule.name));
    }
    run.tell(truth)
}

/// Whether everybody is there whom rules name.
pub fn names<E: Events + ?Sized>(rules: &Rules, events: &E) -> Result<(), Failed> {
    for letter in &rules.letters {
        if let Origin::Pattern(pattern) = &letter.origin
            && let Err(no) = events.check(pattern)
        {
            let place = rules.within(letter.origin_at, &no.name);
            let mut error = rules.error(place, "what is in the recording");
            error.found = no.what;
            return Err(error.near(no.near.as_deref()).into());
        }
    }
    for state in &rules.states {
        let Some(selector) = &state.selector else {
            continue;
        };
        let literal = !selector.process.contains(['*', '?']);
        let known = (0..events.processes()).any(|process| is_member(events, selector, process));
        if literal && !known {
            let names = (0..events.processes()).map(|process| events.name(process));
            let near = events::nearest(&selector.process, names);
            let place = crate::rules::SourceSpan {
                span: selector.span,
                ..state.place
            };
            let error = rules.error(place, "the name of a process in the recording");
            return Err(error.near(near).into());
        }
    }
    Ok(())
}

struct Run<'r, E: ?Sized> {
    rules: &'r Rules,
    events: &'r E,
    options: Options,
    symbols: Rc<Symbols>,
    /// How often each kind of event happened.
    happened: Vec<u64>,
    workers: Vec<Worker>,
    /// Components by kind of event.
    subscribed: Vec<Vec<usize>>,
    /// Of each kind of event, whether it is the filter of a recognizer, and how many such
    /// events have been followed so far. What passes a filter and is nothing of the
    /// sequence's only breaks that: it is counted, and no recognizer is asked.
    filters: Vec<bool>,
    passed: Vec<u64>,
    /// Room for the components that an event is given to.
    concerned: Vec<usize>,
    emitted: Vec<Emitted>,
    /// Kinds of events that could not be asked for, and why.
    trouble: Vec<Option<String>>,
}

impl<'r, E: Events + ?Sized> Run<'r, E> {
    fn new(rules: &'r Rules, events: &'r E, options: Options) -> Run<'r, E> {
        let mut subscribed = vec![Vec::new(); rules.letters.len()];
        let mut filters = vec![false; rules.letters.len()];
        let mut workers = Vec::new();
        for (number, part) in rules.parts.iter().enumerate() {
            let names = part.names.len();
            let (engine, letters) = match &part.component {
                Component::Linked(steps, _) => {
                    let engine = Linked::new(steps.clone(), names);
                    let letters = engine.letters();
                    (Engine::Linked(engine), letters)
                }
                Component::Concurrent(left, right, _) => {
                    let engine = Concurrent::new(left.clone(), right.clone(), names);
                    let letters = engine.letters();
                    (Engine::Concurrent(engine), letters)
                }
                Component::LeadsTo(first, then, within) => {
                    let engine = LeadsTo::new(first.clone(), then.clone(), names, *within);
                    let letters = engine.letters();
                    (Engine::LeadsTo(engine), letters)
                }
                Component::Before(first, then) => {
                    let engine = Before::new(first.clone(), then.clone(), names);
                    let letters = engine.letters();
                    (Engine::Before(engine), letters)
                }
                Component::Sequence {
                    purpose,
                    automaton,
                    alphabet,
                    filter,
                    ..
                } => {
                    let engine = Recognizer::new(
                        *purpose,
                        automaton.clone(),
                        alphabet.clone(),
                        *filter,
                        names,
                    );
                    let letters = engine.letters();
                    if let Some(filter) = filter {
                        filters[*filter as usize] = true;
                    }
                    (Engine::Sequence(engine), letters)
                }
            };
            for letter in letters {
                let list: &mut Vec<usize> = &mut subscribed[letter as usize];
                if list.last() != Some(&number) {
                    list.push(number);
                }
            }
            workers.push(Worker {
                engine,
                enabled: true,
                count: 0,
                found: Vec::new(),
                commands: Vec::new(),
            });
        }
        Run {
            happened: vec![0; rules.letters.len()],
            trouble: vec![None; rules.letters.len()],
            passed: vec![0; rules.letters.len()],
            filters,
            concerned: Vec::new(),
            rules,
            events,
            options,
            symbols: Rc::default(),
            workers,
            subscribed,
            emitted: Vec::new(),
        }
    }

    /// Both passes: what states are over the run, and why nothing is known of some.
    fn pass(&mut self, truth: &mut dyn Truth) -> (Vec<Vec<Instance>>, Vec<Option<Empty>>) {
        let mut states = States::new(self.rules, self.events);
        self.prepare(truth);
        let mut sets = Sets::default();
        let lanes = self.read(&mut states, truth, &mut sets);
        self.follow(lanes, &sets, &mut states);
        let used = self.used_states();
        states.finish(self.events, truth, &self.symbols, &used)
    }

    fn tell(mut self, truth: &mut dyn Truth) -> Timeline {
        let (instances, empty) = self.pass(truth);
        let mut told = Vec::new();
        for rule in &self.rules.rules {
            let what = match &rule.body {
                Body::Events { part, needs } => self.fired(*part, needs),
                Body::States {
                    modality: Modality::Possibly,
                    condition,
                    names,
                } => match self.stretches(condition, names, &instances, &empty) {
                    Ok(stretches) => What::States(stretches),
                    Err((_, why)) => What::Nothing(why),
                },
                Body::States {
                    modality,
                    condition,
                    names,
                } => {
                    let verdict =
                        self.by_states(rule, *modality, condition, names, &instances, &empty);
                    What::of_states(verdict)
                }
            };
            told.push(Told {
                rule: rule.name.clone(),
                kind: rule.kind,
                what,
            });
        }
        Timeline {
            told,
            emitted: self.emitted,
        }
    }

    /// The events at which a rule tells something.
    fn fired(&mut self, part: usize, needs: &[Vec<u32>]) -> What {
        if let Some(why) = self.trouble_of(needs) {
            return What::Nothing(why);
        }
        let rules = self.rules;
        let own = &rules.parts[part];
        let commands = match &own.component {
            Component::Sequence { commands, .. } => commands.as_slice(),
            _ => &[],
        };
        let commands = commands.iter().filter_map(|command| match command {
            Command::Other(text) => Some(text.clone()),
            Command::Emit(..) | Command::Switch(..) => None,
        });
        let commands: Vec<String> = commands.collect();
        let found = self.found(part);
        let mut fired: Vec<Fired> = found
            .matches
            .iter()
            .map(|one| Fired {
                order: one.trail.order,
                process: one.trail.process,
                at: one.trail.at,
                captures: self.captured(one, &own.names),
                trail: one.trail.clone(),
            })
            .collect();
        fired.sort_by_key(|own| own.order);
        What::Events(fired, commands)
    }

    fn judge(mut self, truth: &mut dyn Truth) -> Report {
        let (instances, empty) = self.pass(truth);
        let mut verdicts = Vec::new();
        for rule in &self.rules.rules {
            let verdict = match &rule.body {
                Body::Events { part, needs } => self.by_events(rule, *part, needs),
                Body::States {
                    modality,
                    condition,
                    names,
                } => self.by_states(rule, *modality, condition, names, &instances, &empty),
            };
            verdicts.push(verdict);
        }
        Report {
            verdicts,
            emitted: self.emitted,
        }
    }

    fn verdict(&self, rule: &Rule, outcome: Outcome) -> Verdict {
        let (file, line) = self.rules.line(rule.place);
        Verdict {
            rule: rule.name.clone(),
            kind: rule.kind,
            outcome,
            count: 0,
            reason: None,
            witnesses: Vec::new(),
            commands: Vec::new(),
            file: file.to_string(),
            line,
        }
    }

    /// What names were bound to, in words.
    fn captured(&self, own: &Match, names: &[String]) -> Vec<(String, String)> {
        let captures = names.iter().zip(own.binding.iter());
        captures
            .filter(|(_, sym)| **sym != Sym::NONE)
            .map(|(name, sym)| (name.clone(), self.symbols.text(*sym)))
            .collect()
    }

    fn witness(&self, own: &Match, names: &[String]) -> Witness {
        let events = own.trail.events();
        let mut cut = vec![0; self.events.processes()];
        // All of it has happened; of a chain its end's past has it all.
        for (process, at) in events.iter().rev().take(2) {
            for (bound, own) in cut.iter_mut().zip(self.events.past(*process, at.bound)) {
                *bound = (*bound).max(own);
            }
        }
        Witness {
            cut,
            captures: self.captured(own, names),
            events,
            ..Witness::default()
        }
    }

    /// Why kinds of events, or what they are made of, could not be asked for.
    fn trouble_of(&self, needs: &[Vec<u32>]) -> Option<String> {
        let mut asked: Vec<u32> = needs.concat();
        let mut seen = 0;
        // What is derived has its troubles from what it is made of.
        while let Some(letter) = asked.get(seen).copied() {
            seen += 1;
            for own in &self.rules.parts {
                if let Component::Linked(steps, Some(out)) = &own.component
                    && *out == letter
                {
                    let atoms = steps
                        .iter()
                        .flat_map(|step| step.atoms.iter().chain(&step.without));
                    for atom in atoms {
                        if !asked.contains(&atom.letter) {
                            asked.push(atom.letter);
                        }
                    }
                }
            }
        }
        asked
            .iter()
            .find_map(|letter| self.trouble[*letter as usize].clone())
    }

    /// What a component found.
    fn found(&mut self, part: usize) -> Found {
        let worker = &mut self.workers[part];
        let mut found = Found {
            count: worker.count,
            matches: std::mem::take(&mut worker.found),
            commands: std::mem::take(&mut worker.commands),
            note: None,
            pending: false,
        };
        if let Engine::LeadsTo(engine) = &mut worker.engine {
            let within = match &self.rules.parts[part].component {
                Component::LeadsTo(_, _, within) => *within,
                _ => None,
            };
            let empty = LeadsTo::new(Vec::new(), Vec::new(), 0, None);
            let all = std::mem::replace(engine, empty).unanswered();
            // Whether it would have been in time, the recording does not say. (When it
            // ends takes looking into all logs.)
            let last = match within {
                Some(_) if !all.is_empty() => self.events.last_time(),
                _ => 0,
            };
            let (open, missed): (Vec<_>, Vec<_>) = all.into_iter().partition(|own| {
                !own.late
                    && within
                        .is_some_and(|within| own.found.trail.time.saturating_add(within) > last)
            });
            found.count = missed.len() as u64;
            found.note = missed.first().map(|own| match own.late {
                true => "the answer came too late".to_string(),
                false => "no answer came".to_string(),
            });
            found.pending = missed.is_empty() && !open.is_empty();
            let list = if missed.is_empty() { open } else { missed };
            found.matches = list
                .into_iter()
                .take(self.options.witnesses)
                .map(|own| own.found)
                .collect();
        }
        found
    }

    fn by_events(&mut self, rule: &Rule, part: usize, needs: &[Vec<u32>]) -> Verdict {
        if let Some(why) = self.trouble_of(needs) {
            let mut verdict = self.verdict(rule, Outcome::Unknown);
            verdict.reason = Some(why);
            return verdict;
        }
        let names = &self.rules.parts[part].names;
        let missing = needs.iter().find(|list| {
            list.iter()
                .all(|letter| self.happened[*letter as usize] == 0)
        });
        let found = self.found(part);
        let wanted = matches!(rule.kind, Kind::Find | Kind::Recognizer);
        let outcome = match (found.count, missing) {
            (0, Some(_)) => Outcome::Vacuous,
            (0, None) if found.pending => Outcome::Unknown,
            (0, None) => Outcome::Holds,
            _ if wanted => Outcome::Matched,
            _ => Outcome::Violated,
        };
        let mut verdict = self.verdict(rule, outcome);
        verdict.count = found.count;
        verdict.reason = match outcome {
            Outcome::Vacuous => missing.map(|list| {
                let mut letters = list
                    .iter()
                    .map(|letter| &self.rules.letters[*letter as usize]);
                let whose = letters.find_map(|letter| match &letter.origin {
                    Origin::Pattern(pattern) => of_nobody(self.events, pattern),
                    _ => None,
                });
                if let Some(why) = whose {
                    return why;
                }
                let names = list.iter().map(|letter| {
                    let letter = &self.rules.letters[*letter as usize];
                    format!("`{}`", letter.name)
                });
                format!("{} never happened", names.collect::<Vec<_>>().join(" and "))
            }),
            Outcome::Unknown => {
                Some("the recording ends before the time for an answer was over".to_string())
            }
            _ => found.note,
        };
        let matches = found.matches.iter();
        verdict.witnesses = matches.map(|own| self.witness(own, names)).collect();
        verdict.commands = found.commands;
        verdict
    }
}

/// That no process is called so, and how one is that was perhaps meant.
fn nobody<E: Events + ?Sized>(events: &E, name: &str) -> String {
    let names = (0..events.processes()).map(|process| events.name(process));
    let near = match events::nearest(name, names) {
        Some(near) => format!(" (did you mean `{near}`?)"),
        None => String::new(),
    };
    format!("no process is called `{name}`{near}")
}

/// Why no event can be of a pattern, if that is because it wants one of a process that is
/// not there.
fn of_nobody<E: Events + ?Sized>(events: &E, pattern: &Pattern) -> Option<String> {
    match pattern {
        Pattern::And(a, b) => of_nobody(events, a).or_else(|| of_nobody(events, b)),
        Pattern::Is(Condition::Field(Field::Process, Operator::Equal, Value::Text(wanted))) => {
            let is_there =
                (0..events.processes()).any(|process| is_called(events, wanted, process));
            (!is_there).then(|| nobody(events, &String::from_utf8_lossy(wanted)))
        }
        Pattern::Or(..) | Pattern::Not(_) | Pattern::Is(_) => None,
    }
}

/// What a component found.
struct Found {
    count: u64,
    matches: Vec<Match>,
    commands: Vec<String>,
    /// Why, where that is not plain.
    note: Option<String>,
    /// It may have gone well after the recording ended.
    pending: bool,
}
