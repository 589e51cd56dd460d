//! Judging rules: one pass over all logs for the events of all rules, one over
//! what was found in causal order, and then a question for each rule.
#![allow(clippy::indexing_slicing)] // Tables with a row for each letter, part and process.

use std::collections::VecDeque;

use events::Pattern;

use crate::engine::linked::{Concurrent, Linked};
use crate::engine::recognizer::Recognizer;
use crate::engine::relation::Rel;
use crate::engine::solve::{Answer, Formula, Linear, Modality, Solver};
use crate::engine::temporal::{Before, LeadsTo};
use crate::engine::track::{Track, Val};
use crate::engine::{Happening, Match, Sym};
use crate::history::At;
use crate::rules::{
    Body, Command, Component, Condition, Failed, Number, Origin, Rule, Rules, StateBody, Use,
};
use crate::source::{Events, Seen, Symbols};
use crate::states::{Empty, Instance, States, is_member, source_question};
use crate::stream::{Mark, Moment, Stream};
use crate::syntax::ast::{Kind, Passing};
use crate::truth::{Question, Truth};
use crate::verdict::{Outcome, Verdict, Witness};

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
    /// Higher events, in causal order: process, where, name, values.
    pub emitted: Vec<(usize, At, String, Vec<String>)>,
}

/// Assignments of values to the names of a condition that are tried.
const ASSIGNMENTS_MAX: usize = 10_000;

/// Times that a condition is found that is asked for all of them.
const OCCURRENCES_MAX: usize = 1_000_000;

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
    happenings: Vec<Happening>,
    /// Behind the happenings of each mark.
    ends: Vec<usize>,
}

impl Lane {
    fn set(&self, index: usize) -> &[Happening] {
        let from = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.happenings[from..self.ends[index]]
    }
}

/// Judges rules.
pub fn check<E: Events + ?Sized>(
    rules: &Rules,
    events: &E,
    truth: &mut dyn Truth,
    options: Options,
) -> Result<Report, Failed> {
    for letter in &rules.letters {
        if let Origin::Pattern(pattern) = &letter.origin
            && let Err(no) = events.check(pattern)
        {
            let mut error = rules.error(letter.origin_at, "what is in the recording");
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
            let place = crate::rules::Place {
                span: selector.span,
                ..state.place
            };
            let error = rules.error(place, "the name of a process in the recording");
            return Err(error.near(near).into());
        }
    }
    Run::new(rules, events, options).judge(truth)
}

struct Run<'r, E: ?Sized> {
    rules: &'r Rules,
    events: &'r E,
    options: Options,
    symbols: Symbols,
    /// How often each kind of event happened.
    happened: Vec<u64>,
    workers: Vec<Worker>,
    /// Components by kind of event.
    subscribed: Vec<Vec<usize>>,
    emitted: Vec<(usize, At, String, Vec<String>)>,
    /// Kinds of events that could not be asked for, and why.
    trouble: Vec<Option<String>>,
}

impl<'r, E: Events + ?Sized> Run<'r, E> {
    fn new(rules: &'r Rules, events: &'r E, options: Options) -> Run<'r, E> {
        let mut subscribed = vec![Vec::new(); rules.letters.len()];
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
            rules,
            events,
            options,
            symbols: Symbols::default(),
            workers,
            subscribed,
            emitted: Vec::new(),
        }
    }

    fn judge(mut self, truth: &mut dyn Truth) -> Result<Report, Failed> {
        let mut states = States::new(self.rules, self.events);
        self.prepare(truth);
        let lanes = self.read(&mut states, truth);
        self.follow(lanes, &mut states);
        let used = self.used_states();
        let (instances, empty) = states.finish(self.events, truth, &used);
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
        Ok(Report {
            verdicts,
            emitted: self.emitted,
        })
    }

    /// Says what will be asked about the source.
    fn prepare(&self, truth: &mut dyn Truth) {
        let processes = 0..self.events.processes();
        let mut passes = Vec::new();
        for letter in &self.rules.letters {
            if let Origin::Passing(passing) = &letter.origin {
                let own = processes.clone();
                let own = own.filter(|own| is_member(self.events, &passing.selector, *own));
                passes.extend(own.map(|process| passing_question(passing, process)));
            }
        }
        let mut values = Vec::new();
        let used = self.used_states();
        for (state, used) in self.rules.states.iter().zip(used) {
            let (StateBody::Source(source, place), true) = (&state.body, used) else {
                continue;
            };
            let selector = state.selector.as_ref();
            let own = processes.clone().filter(|own| {
                selector.is_none_or(|selector| is_member(self.events, selector, *own))
            });
            values.extend(own.map(|process| source_question(state, source, place, process)));
        }
        if !values.is_empty() || !passes.is_empty() {
            truth.prepare(&values, &passes);
        }
    }

    /// Reads all logs, once.
    fn read(&mut self, states: &mut States<'_>, truth: &mut dyn Truth) -> Vec<Lane> {
        let wanted: Vec<(u32, &Pattern)> = self
            .rules
            .letters
            .iter()
            .zip(0u32..)
            .filter_map(|(letter, number)| match &letter.origin {
                Origin::Pattern(pattern) => Some((number, pattern)),
                _ => None,
            })
            .collect();
        let of_states: Vec<bool> = {
            let mut table = vec![false; self.rules.letters.len()];
            states
                .letters()
                .for_each(|letter| table[letter as usize] = true);
            table
        };
        let mut lanes: Vec<Lane> = Vec::new();
        for process in 0..self.events.processes() {
            let mut lane = Lane::default();
            let mut passes = self.passes(process, truth).into_iter().peekable();
            let happened = &mut self.happened;
            let subscribed = &self.subscribed;
            let events = self.events;
            let symbols = &self.symbols;
            let mut take = |seen: Seen<'_>| {
                let before = lane.happenings.len();
                let mut touches = false;
                for happening in seen.set {
                    let letter = happening.letter as usize;
                    happened[letter] += 1;
                    touches |= of_states[letter];
                    if !subscribed[letter].is_empty() {
                        lane.happenings.push(happening.clone());
                    }
                }
                if touches {
                    let place = (process, Some(seen.thread), seen.at, seen.time);
                    states.take(events, place, seen.set, symbols);
                }
                if lane.happenings.len() > before {
                    lane.marks.push(Mark {
                        at: seen.at,
                        time: seen.time,
                    });
                    lane.ends.push(lane.happenings.len());
                }
            };
            // What happens between events is put where it belongs.
            let mut pass = |until: At, take: &mut dyn FnMut(Seen<'_>)| {
                while passes.peek().is_some_and(|(at, ..)| *at < until)
                    && let Some((at, time, thread, set)) = passes.next()
                {
                    let set = &set;
                    take(Seen {
                        at,
                        time,
                        thread,
                        set,
                    });
                }
            };
            if !wanted.is_empty() {
                events.scan(process, &wanted, symbols, &mut |seen| {
                    pass(seen.at, &mut take);
                    take(seen);
                });
            }
            pass(At::END, &mut take);
            lanes.push(lane);
        }
        lanes
    }

    /// Where threads of a process got to places that are asked for, in order.
    fn passes(
        &mut self,
        process: usize,
        truth: &mut dyn Truth,
    ) -> Vec<(At, u64, u32, Vec<Happening>)> {
        let mut all = Vec::new();
        for (letter, number) in self.rules.letters.iter().zip(0u32..) {
            let Origin::Passing(passing) = &letter.origin else {
                continue;
            };
            if !is_member(self.events, &passing.selector, process) {
                continue;
            }
            let question = passing_question(passing, process);
            match truth.passes(&question) {
                Ok(found) => all.extend(found.into_iter().map(|pass| {
                    let happening = Happening {
                        letter: number,
                        values: [].into(),
                    };
                    (pass.at, pass.time, pass.thread, vec![happening])
                })),
                Err(trouble) => {
                    let near = match trouble.near {
                        Some(near) => format!(" (did you mean `{near}`?)"),
                        None => String::new(),
                    };
                    self.trouble[number as usize] = Some(format!(
                        "`{} {}` in {}: {}{near}",
                        passing.deed.words(),
                        passing.place.text,
                        self.events.name(process),
                        trouble.why
                    ));
                }
            }
        }
        all.sort_by_key(|(at, ..)| *at);
        all
    }

    /// Gives all components what happened, in causal order.
    fn follow(&mut self, lanes: Vec<Lane>, states: &mut States<'_>) {
        let mut lanes = lanes;
        let marks: Vec<Vec<Mark>> = lanes
            .iter_mut()
            .map(|lane| std::mem::take(&mut lane.marks))
            .collect();
        let of_states: Vec<u32> = states.letters().collect();
        let events = self.events;
        for moment in Stream::new(events, &marks) {
            let set = lanes[moment.process].set(moment.index);
            let mut higher: VecDeque<Happening> = VecDeque::new();
            self.give(&moment, set, &mut higher);
            while let Some(happening) = higher.pop_front() {
                self.happened[happening.letter as usize] += 1;
                if of_states.contains(&happening.letter) {
                    let place = (moment.process, None, moment.at, moment.time);
                    states.take(
                        events,
                        place,
                        std::slice::from_ref(&happening),
                        &self.symbols,
                    );
                }
                self.give(&moment, std::slice::from_ref(&happening), &mut higher);
            }
        }
    }

    /// One event, to whom it may concern, in the order of the file.
    fn give(&mut self, moment: &Moment, set: &[Happening], higher: &mut VecDeque<Happening>) {
        let first = match set {
            [one] => self.subscribed[one.letter as usize].len(),
            _ => 0,
        };
        if set.len() == 1 {
            for i in 0..first {
                let part = self.subscribed[set[0].letter as usize][i];
                self.offer(part, moment, set, higher);
            }
            return;
        }
        let mut parts: Vec<usize> = set
            .iter()
            .flat_map(|happening| &self.subscribed[happening.letter as usize])
            .copied()
            .collect();
        parts.sort_unstable();
        parts.dedup();
        for part in parts {
            self.offer(part, moment, set, higher);
        }
    }

    fn offer(
        &mut self,
        number: usize,
        moment: &Moment,
        set: &[Happening],
        higher: &mut VecDeque<Happening>,
    ) {
        let most = self.options.witnesses;
        let part = &self.rules.parts[number];
        let worker = &mut self.workers[number];
        if !worker.enabled {
            return;
        }
        let Worker {
            engine,
            count,
            found,
            commands: told,
            ..
        } = worker;
        let mut matches: Vec<Match> = Vec::new();
        match engine {
            Engine::Linked(engine) => engine.take(moment, set, &mut |own| matches.push(own)),
            Engine::Concurrent(engine) => engine.take(moment, set, &mut |own| matches.push(own)),
            Engine::LeadsTo(engine) => engine.take(moment, set),
            Engine::Before(engine) => engine.take(moment, set, &mut |own| matches.push(own)),
            Engine::Sequence(engine) => {
                engine.take(moment, set, &mut |own| matches.push(own.found));
            }
        }
        let mut switches = Vec::new();
        for own in matches {
            let (out, commands) = match &part.component {
                Component::Linked(_, out) | Component::Concurrent(_, _, out) => (*out, &[][..]),
                Component::Sequence { commands, .. } => (None, commands.as_slice()),
                _ => (None, &[][..]),
            };
            if let Some(letter) = out {
                higher.push_back(Happening {
                    letter,
                    values: own.binding.clone(),
                });
            }
            for command in commands {
                match command {
                    Command::Emit(letter, names) => {
                        let values: Vec<Sym> = names
                            .iter()
                            .map(|name| {
                                let value = name.and_then(|name| own.binding.get(name));
                                value.copied().unwrap_or(Sym::NONE)
                            })
                            .collect();
                        let texts = values.iter().map(|sym| self.symbols.text(*sym));
                        let name = self.rules.letters[*letter as usize].name.clone();
                        self.emitted
                            .push((moment.process, moment.at, name, texts.collect()));
                        higher.push_back(Happening {
                            letter: *letter,
                            values: values.into(),
                        });
                    }
                    Command::Switch(rule, on) => switches.push((*rule, *on)),
                    Command::Other(text) => {
                        if told.len() < most {
                            told.push(text.clone());
                        }
                    }
                }
            }
            *count += 1;
            if part.rule.is_some() && found.len() < most {
                found.push(own);
            }
        }
        for (rule, on) in switches {
            for (part, worker) in self.rules.parts.iter().zip(&mut self.workers) {
                if part.rule == Some(rule) {
                    worker.enabled = on;
                }
            }
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

    fn witness(&self, own: &Match, names: &[String]) -> Witness {
        let events = own.trail.events();
        let captures = names.iter().zip(own.binding.iter());
        let captures = captures
            .filter(|(_, sym)| **sym != Sym::NONE)
            .map(|(name, sym)| (name.clone(), self.symbols.text(*sym)));
        let mut cut = vec![0; self.events.processes()];
        // All of it has happened; of a chain its end's past has it all.
        for (process, at) in events.iter().rev().take(2) {
            for (bound, own) in cut.iter_mut().zip(self.events.past(*process, at.bound)) {
                *bound = (*bound).max(own);
            }
        }
        Witness {
            cut,
            captures: captures.collect(),
            events,
            ..Witness::default()
        }
    }

    fn by_events(&mut self, rule: &Rule, part: usize, needs: &[Vec<u32>]) -> Verdict {
        let names = self.rules.parts[part].names.clone();
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
        if let Some(why) = asked
            .iter()
            .find_map(|letter| self.trouble[*letter as usize].clone())
        {
            let mut verdict = self.verdict(rule, Outcome::Unknown);
            verdict.reason = Some(why);
            return verdict;
        }
        let missing = needs.iter().find(|list| {
            list.iter()
                .all(|letter| self.happened[*letter as usize] == 0)
        });
        let last = self.events.last_time();
        let worker = &mut self.workers[part];
        let mut count = worker.count;
        let mut found = std::mem::take(&mut worker.found);
        let commands = std::mem::take(&mut worker.commands);
        let mut note = None;
        let mut pending = false;
        if let Engine::LeadsTo(engine) = &mut worker.engine {
            let within = match &self.rules.parts[part].component {
                Component::LeadsTo(_, _, within) => *within,
                _ => None,
            };
            let empty = LeadsTo::new(Vec::new(), Vec::new(), 0, None);
            let all = std::mem::replace(engine, empty).unanswered();
            // Whether it would have been in time, the recording does not say.
            let (open, missed): (Vec<_>, Vec<_>) = all.into_iter().partition(|own| {
                !own.late
                    && within
                        .is_some_and(|within| own.found.trail.time.saturating_add(within) > last)
            });
            count = missed.len() as u64;
            note = missed.first().map(|own| match own.late {
                true => "the answer came too late".to_string(),
                false => "no answer came".to_string(),
            });
            pending = missed.is_empty() && !open.is_empty();
            let list = if missed.is_empty() { open } else { missed };
            found = list
                .into_iter()
                .take(self.options.witnesses)
                .map(|own| own.found)
                .collect();
        }
        let wanted = matches!(rule.kind, Kind::Find | Kind::Recognizer);
        let outcome = match (count, missing) {
            (0, Some(_)) => Outcome::Vacuous,
            (0, None) if pending => Outcome::Unknown,
            (0, None) => Outcome::Holds,
            _ if wanted => Outcome::Matched,
            _ => Outcome::Violated,
        };
        let mut verdict = self.verdict(rule, outcome);
        verdict.count = count;
        verdict.reason = match outcome {
            Outcome::Vacuous => missing.map(|list| {
                let names = list.iter().map(|letter| {
                    let letter = &self.rules.letters[*letter as usize];
                    format!("`{}`", letter.name)
                });
                format!("{} never happened", names.collect::<Vec<_>>().join(" and "))
            }),
            Outcome::Unknown => {
                Some("the recording ends before the time for an answer was over".to_string())
            }
            _ => note,
        };
        verdict.witnesses = found.iter().map(|own| self.witness(own, &names)).collect();
        verdict.commands = commands;
        verdict
    }

    /// Which states rules look at.
    fn used_states(&self) -> Vec<bool> {
        let mut used = vec![false; self.rules.states.len()];
        for rule in &self.rules.rules {
            if let Body::States { condition, .. } = &rule.body {
                uses(condition, &mut |own| used[own.state] = true);
            }
        }
        used
    }

    fn by_states(
        &self,
        rule: &Rule,
        modality: Modality,
        condition: &Condition,
        names: &[String],
        instances: &[Vec<Instance>],
        empty: &[Option<Empty>],
    ) -> Verdict {
        let mut trouble = None;
        uses(condition, &mut |own| {
            if let Some(Empty::Trouble(why)) = &empty[own.state] {
                trouble.get_or_insert(why.clone());
            }
        });
        if let Some(why) = trouble {
            let mut verdict = self.verdict(rule, Outcome::Unknown);
            verdict.reason = Some(why);
            return verdict;
        }
        let mut builder = Builder {
            instances,
            tracks: Vec::new(),
            owners: Vec::new(),
            index: vec![None; instances.len()],
            counted: vec![None; instances.len()],
        };
        let is_empty = |own: &Use| empty[own.state].is_some();
        if vacuous(condition, &is_empty) {
            let mut verdict = self.verdict(rule, Outcome::Vacuous);
            uses(condition, &mut |own| {
                let state = &self.rules.states[own.state];
                let why = match &empty[own.state] {
                    Some(Empty::Nobody(name)) => format!("no process is called `{name}`"),
                    Some(_) => format!("nothing of `{}` ever happened", state.name),
                    None => return,
                };
                verdict.reason.get_or_insert(why);
            });
            return verdict;
        }
        let Some(assignments) = assignments(condition, names.len(), instances) else {
            let mut verdict = self.verdict(rule, Outcome::Unknown);
            verdict.reason = Some(format!(
                "its names can have more than {ASSIGNMENTS_MAX} values together"
            ));
            return verdict;
        };
        let mut unknown = None;
        let mut yes: Vec<(Vec<Sym>, Witness)> = Vec::new();
        let mut count = 0;
        for values in assignments {
            let formula = builder.formula(condition, &values);
            let solver = Solver {
                history: self.events,
                tracks: &builder.tracks,
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
                Answer::Unknown(why) => unknown = Some(why),
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
                let bound = names
                    .iter()
                    .zip(values)
                    .filter(|(_, sym)| *sym != Sym::NONE);
                witness.captures = bound
                    .map(|(name, sym)| (name.clone(), self.symbols.text(sym)))
                    .collect();
                witness
            })
            .collect();
        verdict
    }

    fn state_witness(
        &self,
        state: crate::engine::solve::State,
        builder: &Builder<'_>,
        formula: &Formula,
    ) -> Witness {
        let mut used = Vec::new();
        formula.tracks(&mut used);
        used.sort_unstable();
        used.dedup();
        let values = used.into_iter().filter_map(|track| {
            let own = &builder.tracks[track];
            let place = state
                .places
                .iter()
                .find(|(process, _)| *process == own.process)?;
            let name = self.rules.states[builder.owners[track]].name.clone();
            let value = match own.at(place.1) {
                Val::Absent => return None,
                Val::Int(number) => number.to_string(),
                Val::Unknown => "unknown".to_string(),
            };
            Some((own.process, name, value))
        });
        Witness {
            values: values.collect(),
            first: state.unique,
            cut: state.cut,
            events: state.places,
            ..Witness::default()
        }
    }
}

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

/// Makes formulas over tracks of conditions over states.
struct Builder<'i> {
    instances: &'i [Vec<Instance>],
    tracks: Vec<Track>,
    /// Of each track, the state.
    owners: Vec<usize>,
    /// Of each state, where its tracks begin.
    index: Vec<Option<usize>>,
    counted: Vec<Option<usize>>,
}

impl Builder<'_> {
    /// The tracks of a state that are about these values.
    fn tracks_of(&mut self, own: &Use, values: &[Sym], counted: bool) -> Vec<usize> {
        let table = if counted { &self.counted } else { &self.index };
        let begin = match table[own.state] {
            Some(begin) => begin,
            None => {
                let begin = self.tracks.len();
                for instance in &self.instances[own.state] {
                    let mut track = instance.track.clone();
                    if counted {
                        for change in &mut track.changes {
                            if let Val::Int(number) = change.value {
                                change.value = Val::Int(i64::from(number != 0));
                            }
                        }
                    }
                    self.tracks.push(track);
                    self.owners.push(own.state);
                }
                match counted {
                    true => self.counted[own.state] = Some(begin),
                    false => self.index[own.state] = Some(begin),
                }
                begin
            }
        };
        let fits = |instance: &Instance| {
            own.names
                .iter()
                .zip(instance.key.iter())
                .all(|(name, sym)| {
                    name.is_none_or(|name| values.get(name).is_none_or(|value| value == sym))
                })
        };
        let list = self.instances[own.state].iter().enumerate();
        list.filter(|(_, instance)| fits(instance))
            .map(|(i, _)| begin + i)
            .collect()
    }

    fn formula(&mut self, condition: &Condition, values: &[Sym]) -> Formula {
        match condition {
            Condition::Is(own) => {
                let tracks = self.tracks_of(own, values, false);
                match tracks.as_slice() {
                    [one] => Formula::Is(*one, true),
                    many => {
                        Formula::Any(many.iter().map(|track| Formula::Is(*track, true)).collect())
                    }
                }
            }
            Condition::Not(inner) => self.formula(inner, values).negated(),
            Condition::All(list) => {
                Formula::All(list.iter().map(|part| self.formula(part, values)).collect())
            }
            Condition::Any(list) => {
                Formula::Any(list.iter().map(|part| self.formula(part, values)).collect())
            }
            Condition::Compare(left, rel, right) => self.compare(left, *rel, right, values),
        }
    }

    fn compare(&mut self, left: &Number, rel: Rel, right: &Number, values: &[Sym]) -> Formula {
        let mut sum = Sum::default();
        self.add(left, 1, values, &mut sum);
        self.add(right, -1, values, &mut sum);
        // Each value is that of one process: of any that there is.
        let mut ways: Vec<(Vec<(i64, usize)>, Vec<usize>)> = vec![(sum.terms, Vec::new())];
        for (factor, choices) in sum.values {
            ways = ways
                .iter()
                .flat_map(|(terms, present)| {
                    choices.iter().map(move |track| {
                        let mut terms = terms.clone();
                        terms.push((factor, *track));
                        let mut present = present.clone();
                        present.push(*track);
                        (terms, present)
                    })
                })
                .collect();
        }
        let mut list: Vec<Formula> = ways
            .into_iter()
            .map(|(terms, present)| {
                Formula::Compare(Linear {
                    terms,
                    constant: sum.constant,
                    rel,
                    present,
                    absent: false,
                })
            })
            .collect();
        match list.len() {
            1 => list.remove(0),
            _ => Formula::Any(list),
        }
    }

    fn add(&mut self, number: &Number, factor: i64, values: &[Sym], sum: &mut Sum) {
        match number {
            Number::Literal(value) => {
                sum.constant = sum.constant.saturating_add(factor.saturating_mul(*value));
            }
            Number::Sum(own) => {
                let tracks = self.tracks_of(own, values, false);
                sum.terms
                    .extend(tracks.into_iter().map(|track| (factor, track)));
            }
            Number::Count(own) => {
                let tracks = self.tracks_of(own, values, true);
                sum.terms
                    .extend(tracks.into_iter().map(|track| (factor, track)));
            }
            Number::Value(own) => {
                let tracks = self.tracks_of(own, values, false);
                sum.values.push((factor, tracks));
            }
            Number::Times(times, inner) => {
                self.add(inner, factor.saturating_mul(*times), values, sum);
            }
            Number::Plus(list) => {
                for part in list {
                    self.add(part, factor, values, sum);
                }
            }
        }
    }
}

#[derive(Default)]
struct Sum {
    terms: Vec<(i64, usize)>,
    constant: i64,
    values: Vec<(i64, Vec<usize>)>,
}

/// What is asked for events that are places in the source.
fn passing_question(passing: &Passing, process: usize) -> Question<'_> {
    Question {
        process,
        thread: passing.selector.thread.as_deref(),
        expression: passing.condition.as_ref().map(|own| own.text.as_str()),
        place: Some((passing.deed, &passing.place.text)),
    }
}
