//! The two passes: all logs once for what happened, and what was found once more in
//! causal order, through everything that looks at events.
//!
//! Apart from judging, because it costs what a recording is long, and is the same
//! whatever is asked.

use std::collections::VecDeque;

use events::Pattern;

use super::sets::Sets;
use super::{Engine, Lane, Run, Worker};
use crate::engine::{Happening, Match, Sym};
use crate::history::At;
use crate::rules::{Command, Component, Origin, StateBody};
use crate::source::{Events, Seen};
use crate::states::{States, is_member, source_question};
use crate::stream::{Mark, Moment, Stream};
use crate::syntax::ast::Passing;
use crate::truth::{Question, Truth};
use crate::verdict::Emitted;

impl<E: Events + ?Sized> Run<'_, E> {
    /// Says what will be asked about the source.
    pub(super) fn prepare(&self, truth: &mut dyn Truth) {
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
    pub(super) fn read(
        &mut self,
        states: &mut States<'_>,
        truth: &mut dyn Truth,
        sets: &mut Sets,
    ) -> Vec<Lane> {
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
        let kept = self.subscribed.iter().zip(&self.filters);
        let kept: Vec<bool> = kept
            .map(|(parts, filter)| *filter || !parts.is_empty())
            .collect();
        let mut lanes: Vec<Lane> = Vec::new();
        for process in 0..self.events.processes() {
            let mut lane = Lane::default();
            let mut passes = self.passes(process, truth).into_iter().peekable();
            sets.next_process();
            let happened = &mut self.happened;
            let events = self.events;
            let symbols = &self.symbols;
            let mut take = |seen: Seen<'_>| {
                let (mut touches, mut counts) = (false, false);
                for happening in seen.set {
                    let letter = happening.letter as usize;
                    happened[letter] += 1;
                    touches |= of_states[letter];
                    counts |= kept[letter];
                }
                if touches {
                    let place = (process, Some(seen.thread), seen.at, seen.time);
                    states.take(events, place, seen.set, symbols);
                }
                if counts {
                    lane.marks.push(Mark {
                        at: seen.at,
                        time: seen.time,
                    });
                    let own = seen.set.iter();
                    let own = own.filter(|happening| kept[happening.letter as usize]);
                    lane.sets.push(sets.number(own));
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
                        "{}: `{} {}` in {}: {}{near}",
                        self.rules.position(letter.origin_at),
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
    pub(super) fn follow(&mut self, lanes: Vec<Lane>, sets: &Sets, states: &mut States<'_>) {
        let (marks, numbers): (Vec<Vec<Mark>>, Vec<Vec<u32>>) = lanes
            .into_iter()
            .map(|lane| (lane.marks, lane.sets))
            .unzip();
        let of_states: Vec<u32> = states.letters().collect();
        let events = self.events;
        // Sequences are of the order in which events come, and ask for nothing more.
        let mut workers = self.workers.iter();
        let stream = match workers.all(|worker| matches!(worker.engine, Engine::Sequence(_))) {
            true => Stream::in_order(events, &marks),
            false => Stream::new(events, &marks),
        };
        let mut higher: VecDeque<Happening> = VecDeque::new();
        for moment in stream {
            let set = sets.get(numbers[moment.process][moment.index]);
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
        if let [happening] = set {
            let letter = happening.letter as usize;
            self.passed[letter] += u64::from(self.filters[letter]);
            // Nobody subscribes to anything meanwhile.
            let parts = std::mem::take(&mut self.subscribed[letter]);
            for part in &parts {
                self.offer(*part, moment, set, higher);
            }
            self.subscribed[letter] = parts;
            return;
        }
        let mut concerned = std::mem::take(&mut self.concerned);
        for happening in set {
            let letter = happening.letter as usize;
            self.passed[letter] += u64::from(self.filters[letter]);
            concerned.extend_from_slice(&self.subscribed[letter]);
        }
        if set.len() > 1 {
            concerned.sort_unstable();
            concerned.dedup();
        }
        for part in concerned.drain(..) {
            self.offer(part, moment, set, higher);
        }
        self.concerned = concerned;
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
            Engine::Linked(engine) => {
                engine.take(moment, set, &mut |own| matches.push(own));
                *count += engine.counted();
            }
            Engine::Concurrent(engine) => engine.take(moment, set, &mut |own| matches.push(own)),
            Engine::LeadsTo(engine) => engine.take(moment, set),
            Engine::Before(engine) => engine.take(moment, set, &mut |own| matches.push(own)),
            Engine::Sequence(engine) => {
                let passed = engine.filter().map(|filter| self.passed[filter as usize]);
                let passed = passed.unwrap_or(0);
                engine.take(moment, set, passed, &mut |own| matches.push(own.found));
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
                        let kind = &self.rules.letters[*letter as usize];
                        self.emitted.push(Emitted {
                            process: moment.process,
                            at: moment.at,
                            name: kind.name.clone(),
                            values: kind.captures.iter().cloned().zip(texts).collect(),
                            of: own.trail.events(),
                        });
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
        if let (Engine::Linked(engine), Component::Linked(_, None)) = (engine, &part.component)
            && found.len() >= most
        {
            engine.only_count();
        }
        for (rule, on) in switches {
            let parts = self.rules.parts.iter().zip(&mut self.workers);
            for (other, (part, worker)) in parts.enumerate() {
                if part.rule != Some(rule) || worker.enabled == on {
                    continue;
                }
                if let Engine::Sequence(engine) = &mut worker.engine
                    && let Some(filter) = engine.filter()
                {
                    // Who comes after this one in the file has not been given the event.
                    let is_given = other <= number;
                    let is_in = set.iter().any(|happening| happening.letter == filter);
                    let passed = self.passed[filter as usize];
                    engine.switch(on, passed - u64::from(is_in && !is_given));
                }
                worker.enabled = on;
            }
        }
    }
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
