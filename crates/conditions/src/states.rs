//! States as they come out of events: stretches of the runs of processes.
#![allow(clippy::indexing_slicing)] // Tables with a row for each state.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::engine::trace::{Change, Trace};
use crate::engine::{Happening, Sym, merge};
use crate::history::{At, History};
use crate::rules::{Rules, State, StateBody};
use crate::source::{Events, Symbols};
use crate::syntax::ast::{Selector, Source};
use crate::truth::{Changed, Question, Truth, Was};
use crate::values::Value;

/// Of one state: which values, which process, and what it is over its run.
#[derive(Clone, Debug)]
pub struct Instance {
    /// What it is about.
    pub key: Box<[Sym]>,
    /// The value over the run.
    pub trace: Rc<Trace<Value>>,
    /// Of a message that several processes received a part of: it has arrived when
    /// all of those with this number have theirs.
    pub part_of: Option<u32>,
}

impl Instance {
    fn new(key: Box<[Sym]>, trace: Trace<Value>) -> Instance {
        Instance {
            key,
            trace: Rc::new(trace),
            part_of: None,
        }
    }
}

/// Why nothing can be said of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Empty {
    /// No process is meant.
    Nobody(String),
    /// Nothing that it is made of ever happened.
    NoEvents,
    /// It could not be found out.
    Trouble(String),
}

/// How a state goes, by process and by the values of its names.
type Traces = BTreeMap<(usize, Box<[Sym]>), Trace<Value>>;

/// All states, as they are filled.
pub struct States<'r> {
    rules: &'r Rules,
    /// Of each state, the processes that are meant.
    members: Vec<Vec<bool>>,
    /// Of each state, by process and key.
    building: Vec<Traces>,
    /// Of each state that counts messages: who sent what when.
    sent: Vec<Vec<(usize, u32, u64)>>,
    /// States by letter.
    by_letter: HashMap<u32, Vec<usize>>,
    touched: Vec<bool>,
    threads: HashMap<(usize, u32), String>,
    /// What could not be found out.
    pub trouble: Vec<Option<Empty>>,
}

/// Whether a process is meant.
pub fn is_member(history: &(impl History + ?Sized), selector: &Selector, process: usize) -> bool {
    is_called(history, selector.process.as_bytes(), process)
}

/// Whether a name, in which `*` and `?` stand for anything, is one of a process.
pub fn is_called(history: &(impl History + ?Sized), wanted: &[u8], process: usize) -> bool {
    let own = [history.name(process), history.program(process)];
    let others = history.other_names(process).iter().map(String::as_str);
    let mut names = own.into_iter().chain(others);
    names.any(|name| events::glob(wanted, name.as_bytes()))
}

impl<'r> States<'r> {
    /// None of them filled yet.
    pub fn new(rules: &'r Rules, history: &(impl History + ?Sized)) -> States<'r> {
        let count = rules.states.len();
        let mut by_letter: HashMap<u32, Vec<usize>> = HashMap::new();
        let mut members = Vec::new();
        for (number, state) in rules.states.iter().enumerate() {
            for letter in letters(state) {
                let list = by_letter.entry(letter).or_default();
                if !list.contains(&number) {
                    list.push(number);
                }
            }
            let meant = (0..history.processes()).map(|process| match &state.selector {
                Some(selector) => is_member(history, selector, process),
                None => true,
            });
            members.push(meant.collect());
        }
        let trouble =
            rules
                .states
                .iter()
                .zip(&members)
                .map(|(state, members): (&State, &Vec<bool>)| {
                    let nobody = !members.iter().any(|meant| *meant);
                    let name = state
                        .selector
                        .as_ref()
                        .map_or("", |selector| &selector.process);
                    nobody.then(|| Empty::Nobody(name.to_string()))
                });
        States {
            trouble: trouble.collect(),
            rules,
            members,
            building: vec![BTreeMap::new(); count],
            sent: vec![Vec::new(); count],
            by_letter,
            touched: vec![false; count],
            threads: HashMap::new(),
        }
    }

    /// The kinds of events that states are made of.
    pub fn letters(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_letter.keys().copied()
    }

    /// Something happened in a process.
    pub fn take(
        &mut self,
        events: &(impl Events + ?Sized),
        (process, thread, at, time): (usize, Option<u32>, At, u64),
        set: &[Happening],
        symbols: &Symbols,
    ) {
        for happening in set {
            let Some(states) = self.by_letter.get(&happening.letter) else {
                continue;
            };
            for number in states.clone() {
                let state = &self.rules.states[number];
                if !self.members[number][process] {
                    continue;
                }
                if let (Some(wanted), Some(thread)) = (
                    state
                        .selector
                        .as_ref()
                        .and_then(|selector| selector.thread.as_ref()),
                    thread,
                ) {
                    let name = self
                        .threads
                        .entry((process, thread))
                        .or_insert_with(|| events.thread_name(process, thread));
                    if !events::glob(wanted.as_bytes(), name.as_bytes()) {
                        continue;
                    }
                }
                self.touched[number] = true;
                self.change(number, process, at, time, happening, symbols);
            }
        }
    }

    fn change(
        &mut self,
        number: usize,
        process: usize,
        at: At,
        time: u64,
        happening: &Happening,
        symbols: &Symbols,
    ) {
        let state = &self.rules.states[number];
        let building = &mut self.building[number];
        let mut set = |key: Box<[Sym]>, value: Value| {
            let trace = building.entry((process, key));
            let trace = trace.or_insert_with(|| Trace::new(process));
            trace.push(Change { at, time, value });
        };
        match &state.body {
            StateBody::Between(from, until) => {
                for atom in until {
                    let Some(binding) = atom.bind(happening, state.parameters) else {
                        continue;
                    };
                    let bound = (0..state.parameters).all(|p| atom.bound().any(|n| n == p));
                    if bound {
                        // What never began does not end.
                        let key: Box<[Sym]> = binding.into();
                        if building.contains_key(&(process, key.clone()))
                            && let Some(trace) = building.get_mut(&(process, key))
                        {
                            let value = Value::Int(0);
                            trace.push(Change { at, time, value });
                        }
                        continue;
                    }
                    for ((owner, key), trace) in building.iter_mut() {
                        if *owner == process && merge(key, &binding).is_some() {
                            let value = Value::Int(0);
                            trace.push(Change { at, time, value });
                        }
                    }
                }
                for atom in from {
                    if let Some(binding) = atom.bind(happening, state.parameters) {
                        let trace = building.entry((process, binding.into()));
                        let trace = trace.or_insert_with(|| Trace::new(process));
                        let value = Value::Int(1);
                        trace.push(Change { at, time, value });
                    }
                }
            }
            StateBody::Last(atoms, position) => {
                if atoms.iter().any(|atom| atom.letter == happening.letter) {
                    let value = happening.values.get(*position).copied();
                    let value = value.map_or(Value::Unknown, |sym| symbols.value(sym));
                    set(Box::default(), value);
                }
            }
            StateBody::Happened(_) => set(Box::default(), Value::Int(1)),
            StateBody::InFlight(_) => {
                if let Some(event) = at.event() {
                    self.sent[number].push((process, event, time));
                }
            }
            StateBody::Source(..) | StateBody::Running => {}
        }
    }

    /// Fills what is not made of events, and what is known only at the end.
    pub fn finish(
        mut self,
        events: &(impl Events + ?Sized),
        truth: &mut dyn Truth,
        symbols: &Symbols,
        used: &[bool],
    ) -> (Vec<Vec<Instance>>, Vec<Option<Empty>>) {
        let mut all = Vec::new();
        for (number, state) in self.rules.states.iter().enumerate() {
            let mut instances: Vec<Instance> = Vec::new();
            let members = self.members[number].clone();
            let processes = (0..members.len()).filter(|process| members[*process]);
            match &state.body {
                StateBody::Running => {
                    for process in processes {
                        let first = At::after(events.first(process));
                        if events.end(process) > events.first(process) {
                            let change = Change {
                                at: first,
                                time: 0,
                                value: Value::Int(1),
                            };
                            let mut trace = Trace::new(process);
                            trace.push(change);
                            instances.push(Instance::new(Box::default(), trace));
                        }
                    }
                }
                StateBody::Source(source, place) if used[number] => {
                    for process in processes {
                        let question = source_question(state, source, place, process);
                        match truth.values(&question) {
                            Ok(all) => instances.extend(all.into_iter().map(|changes| {
                                let trace = sourced(process, changes, symbols);
                                Instance::new(Box::default(), trace)
                            })),
                            Err(trouble) => {
                                let name = events.name(process);
                                let near = match trouble.near {
                                    Some(near) => format!(" (did you mean `{near}`?)"),
                                    None => String::new(),
                                };
                                let place = self.rules.position(crate::rules::SourceSpan {
                                    span: source.span,
                                    ..state.place
                                });
                                self.trouble[number] = Some(Empty::Trouble(format!(
                                    "{place}: `{}` in {name}: {}{near}",
                                    source.text, trouble.why
                                )));
                                break;
                            }
                        }
                    }
                }
                StateBody::InFlight(_) => {
                    instances = flights(events, &self.sent[number]);
                }
                _ => {
                    let built = std::mem::take(&mut self.building[number]);
                    for ((_, key), trace) in built {
                        instances.push(Instance::new(key, trace));
                    }
                }
            }
            // That something has not happened is a state like any other.
            let made_of_events = !matches!(
                state.body,
                StateBody::Running | StateBody::Source(..) | StateBody::Happened(_)
            );
            if made_of_events && !self.touched[number] && self.trouble[number].is_none() {
                self.trouble[number] = Some(Empty::NoEvents);
            }
            let lasts = matches!(state.body, StateBody::Happened(_) | StateBody::InFlight(_));
            for instance in &mut instances {
                if !lasts && let Some(trace) = Rc::get_mut(&mut instance.trace) {
                    end(events, trace);
                }
            }
            all.push(instances);
        }
        (all, self.trouble)
    }
}

/// What replay found, with texts by number.
fn sourced(process: usize, changes: Vec<Changed>, symbols: &Symbols) -> Trace<Value> {
    let mut trace = Trace::new(process);
    for Changed { at, time, was } in changes {
        let value = match was {
            Was::Absent => Value::Absent,
            Was::Number(number) => Value::whole(number),
            Was::Real(number) => Value::real(number),
            Was::Text(text) => Value::Text(symbols.number(&text)),
            Was::Unknown => Value::Unknown,
        };
        trace.push(Change { at, time, value });
    }
    trace
}

/// What is asked for a state that is an expression of the source.
pub fn source_question<'q>(
    state: &'q State,
    source: &'q Source,
    place: &'q Option<Source>,
    process: usize,
) -> Question<'q> {
    Question {
        process,
        thread: state.selector.as_ref().and_then(|s| s.thread.as_deref()),
        expression: Some(&source.text),
        place: place
            .as_ref()
            .map(|place| (crate::syntax::ast::Deed::At, place.text.as_str())),
    }
}

/// What has ended is in no state.
fn end(history: &(impl History + ?Sized), trace: &mut Trace<Value>) {
    if !history.ended(trace.process) {
        return;
    }
    let at = At::bound(history.end(trace.process));
    trace.changes.retain(|change| change.at < at);
    let time = trace.changes.last().map_or(0, |last| last.time);
    let value = Value::Absent;
    trace.push(Change { at, time, value });
}

/// Messages on their way, by process: one more where it was sent, one less
/// where it was received. Of one that several received a part of, the receipts stand
/// apart: it has arrived where all of them have happened, whichever was last.
fn flights(events: &(impl Events + ?Sized), sent: &[(usize, u32, u64)]) -> Vec<Instance> {
    let mut deltas: BTreeMap<usize, Vec<(u32, u64, i64)>> = BTreeMap::new();
    let mut received: Vec<((usize, u32), Option<u32>)> = Vec::new();
    let mut parted = 0;
    for (process, number, time) in sent {
        deltas
            .entry(*process)
            .or_default()
            .push((*number, *time, 1));
        let own = events.received(*process, *number);
        match own.as_slice() {
            [one] => received.push((*one, None)),
            many => received.extend(many.iter().map(|part| (*part, Some(parted)))),
        }
        parted += u32::from(own.len() > 1);
    }
    let places: Vec<(usize, u32)> = received.iter().map(|(place, _)| *place).collect();
    let times = events.times(&places);
    let mut instances = Vec::new();
    for (((process, number), part_of), time) in received.into_iter().zip(times) {
        if part_of.is_none() {
            deltas.entry(process).or_default().push((number, time, -1));
            continue;
        }
        let mut trace = Trace::new(process);
        trace.push(Change {
            at: At::after(number),
            time,
            value: Value::Int(-1),
        });
        instances.push(Instance {
            part_of,
            ..Instance::new(Box::default(), trace)
        });
    }
    for (process, mut list) in deltas {
        list.sort_unstable();
        let mut trace = Trace::new(process);
        let mut sum = 0;
        for (number, time, delta) in list {
            sum += delta;
            trace.push(Change {
                at: At::after(number),
                time,
                value: Value::Int(sum),
            });
        }
        instances.push(Instance::new(Box::default(), trace));
    }
    instances
}

/// The kinds of events that a state is made of.
fn letters(state: &State) -> Vec<u32> {
    match &state.body {
        StateBody::Between(from, until) => from.iter().chain(until).map(|a| a.letter).collect(),
        StateBody::Last(atoms, _) | StateBody::Happened(atoms) => {
            atoms.iter().map(|atom| atom.letter).collect()
        }
        StateBody::InFlight(letter) => vec![*letter],
        StateBody::Source(..) | StateBody::Running => Vec::new(),
    }
}
