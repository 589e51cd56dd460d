//! Answers what conditions ask about the source, by replay.
//!
//! Each answer is found once and kept beside the recording: what is asked again
//! replays nothing. Processes are asked at once, each on a thread of its own.

mod kept;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conditions::engine::track::{Change, Val};
use conditions::history::{At, History as _};
use conditions::recorded::Recorded;
use conditions::source::Events as _;
use conditions::syntax::ast::Deed;
use conditions::truth::{Pass, Question, Trouble, Truth};
use protocol::id::ProcessId;
use session::Program;
use session::truth::{Moment, Passing, Was, changes, passes};
use target::{Cancel, Position};

use kept::{Kept, Key};

/// An answer: moments in order, with values where values were asked for.
pub type Answer = Vec<(Moment, Option<Was>)>;

/// See the module.
pub struct Replays<'r> {
    program: &'r Arc<Program>,
    recorded: &'r Recorded<'r>,
    kept: Kept,
    failed: BTreeMap<Key, Trouble>,
    /// All positions of a process that answers have, by the event that comes
    /// next: their order is what a step between events is.
    order: BTreeMap<usize, Vec<Place>>,
}

/// A position as it is ordered.
type Place = (u64, u64, u64);

fn place(moment: &Moment) -> Place {
    match moment.at {
        Position::Event(event) => (event.0, 0, 0),
        Position::Inside(inside) if moment.by_event => (inside.event.0, 0, 0),
        Position::Inside(inside) => (inside.event.0, inside.transfers, inside.address),
    }
}

fn key(question: &Question<'_>, number: u32) -> Key {
    Key {
        process: number,
        deed: question.place.map(|(deed, _)| deed.words().to_string()),
        place: question.place.map(|(_, place)| place.to_string()),
        expression: question.expression.map(str::to_string),
        value: false,
    }
}

fn trouble(error: &session::truth::Trouble) -> Trouble {
    Trouble {
        why: error.to_string(),
        near: error.near().map(str::to_string),
    }
}

/// Finds an answer.
fn found(program: &Program, key: &Key, cancel: &Cancel) -> Result<Answer, Trouble> {
    let process = ProcessId::of_first(key.process);
    let expression = key.expression.as_deref();
    let of_changes = |text: &str| -> Result<Answer, Trouble> {
        let all = changes(program, process, text, cancel).map_err(|error| trouble(&error))?;
        Ok(all
            .into_iter()
            .map(|change| (change.moment, Some(change.was)))
            .collect())
    };
    let Some(place) = key.place.as_deref() else {
        return of_changes(expression.unwrap_or_default());
    };
    let is = |deed: Deed| key.deed.as_deref() == Some(deed.words());
    if is(Deed::Change) {
        if expression.is_some() {
            return Err(Trouble {
                why: "a change of a variable cannot have a condition".to_string(),
                near: None,
            });
        }
        return of_changes(place);
    }
    let passing = Passing {
        deed: match is(Deed::Return) {
            true => session::truth::Deed::Return,
            false => session::truth::Deed::At,
        },
        place,
        condition: expression.filter(|_| !key.value),
        value: expression.filter(|_| key.value),
    };
    let all = passes(program, process, &passing, cancel).map_err(|error| trouble(&error))?;
    Ok(all
        .into_iter()
        .map(|pass| (pass.moment, pass.was))
        .collect())
}

impl<'r> Replays<'r> {
    /// Of this recording.
    pub fn new(program: &'r Arc<Program>, recorded: &'r Recorded<'r>) -> Replays<'r> {
        Replays {
            kept: Kept::load(program.recording()),
            program,
            recorded,
            failed: BTreeMap::new(),
            order: BTreeMap::new(),
        }
    }

    fn key(&self, question: &Question<'_>, value: bool) -> Key {
        let processes = self.program.recording().processes();
        let number = processes.get(question.process).map_or(0, |own| own.number);
        Key {
            value: value && question.place.is_some(),
            ..key(question, number)
        }
    }

    /// Finds what is not known yet; processes at once.
    fn find(&mut self, wanted: Vec<Key>) {
        let mut by_process: BTreeMap<u32, Vec<Key>> = BTreeMap::new();
        for key in wanted {
            if self.kept.get(&key).is_none() && !self.failed.contains_key(&key) {
                by_process.entry(key.process).or_default().push(key);
            }
        }
        if by_process.is_empty() {
            return;
        }
        if let Err(error) = ::replay::check(self.program.recording()) {
            let why = error.to_string();
            for key in by_process.into_values().flatten() {
                let why = why.clone();
                self.failed.insert(key, Trouble { why, near: None });
            }
            return;
        }
        let work = Mutex::new(by_process.into_values());
        let answers = Mutex::new(Vec::new());
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let program = self.program;
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    let never = Cancel::new();
                    loop {
                        let next = work.lock().map(|mut work| work.next());
                        let Ok(Some(keys)) = next else { break };
                        for key in keys {
                            let answer = found(program, &key, &never);
                            if let Ok(mut answers) = answers.lock() {
                                answers.push((key, answer));
                            }
                        }
                    }
                });
            }
        });
        for (key, answer) in answers.into_inner().unwrap_or_default() {
            match answer {
                Ok(answer) => self.kept.insert(key, answer),
                Err(trouble) => {
                    self.failed.insert(key, trouble);
                }
            }
        }
        self.kept.save(self.program.recording());
    }

    fn answer(&mut self, question: &Question<'_>, value: bool) -> Result<Answer, Trouble> {
        let key = self.key(question, value);
        self.find(vec![key.clone()]);
        if let Some(trouble) = self.failed.get(&key) {
            return Err(trouble.clone());
        }
        let answer = self.kept.get(&key).cloned().unwrap_or_default();
        // Steps are told by order, so all of them must be known before one is.
        let order = self.order.entry(question.process).or_default();
        let places = answer.iter().map(|(moment, _)| place(moment));
        let new: Vec<Place> = places
            .filter(|own| order.binary_search(own).is_err())
            .collect();
        if !new.is_empty() {
            order.extend(new);
            order.sort_unstable();
            order.dedup();
        }
        Ok(answer)
    }

    fn at(&self, process: usize, moment: &Moment) -> At {
        let own = place(moment);
        let bound = u32::try_from(own.0).unwrap_or(u32::MAX);
        let step = match own {
            (_, 0, 0) => 0,
            own => self.order.get(&process).map_or(1, |order| {
                let begins = order.partition_point(|other| *other < (own.0, 0, 1));
                let here = order.partition_point(|other| *other < own);
                1 + (here - begins) as u64
            }),
        };
        At { bound, step }
    }

    /// When the last event before a place was recorded.
    fn times(&self, process: usize, places: &[At]) -> Vec<u64> {
        let before = |at: &At| (process, at.bound.saturating_sub(1));
        let events: Vec<(usize, u32)> = places.iter().map(before).collect();
        self.recorded.times(&events)
    }

    fn is_meant(&self, question: &Question<'_>, moment: &Moment) -> bool {
        let Some(wanted) = question.thread else {
            return true;
        };
        let name = self.recorded.thread_name(question.process, moment.thread.0);
        events::glob(wanted.as_bytes(), name.as_bytes())
    }
}

fn val(was: Option<&Was>) -> Val {
    match was {
        Some(Was::Number(number)) => Val::Int(*number),
        Some(Was::Absent) | None => Val::Absent,
        Some(Was::Text(_) | Was::Unknown(_)) => Val::Unknown,
    }
}

impl Truth for Replays<'_> {
    fn prepare(&mut self, values: &[Question<'_>], passes: &[Question<'_>]) {
        let keys = values.iter().map(|own| self.key(own, true));
        let keys: Vec<Key> = keys
            .chain(passes.iter().map(|own| self.key(own, false)))
            .collect();
        self.find(keys);
        // The measure of steps is of all answers at once.
        for (questions, value) in [(values, true), (passes, false)] {
            for question in questions {
                let _ = self.answer(question, value);
            }
        }
    }

    fn values(&mut self, question: &Question<'_>) -> Result<Vec<Change>, Trouble> {
        let answer = self.answer(question, true)?;
        let own = answer
            .iter()
            .filter(|(moment, _)| question.place.is_none() || self.is_meant(question, moment));
        // Nobody is in a state before anything happened.
        let first = At::after(self.recorded.first(question.process));
        let all: Vec<(At, Val)> = own
            .map(|(moment, was)| {
                (
                    self.at(question.process, moment).max(first),
                    val(was.as_ref()),
                )
            })
            .collect();
        let places: Vec<At> = all.iter().map(|(at, _)| *at).collect();
        let times = self.times(question.process, &places);
        let mut changes: Vec<Change> = Vec::new();
        for ((at, value), time) in all.into_iter().zip(times) {
            match changes.last_mut() {
                Some(last) if last.at == at => last.value = value,
                Some(last) if last.value == value => {}
                _ => changes.push(Change { at, time, value }),
            }
        }
        Ok(changes)
    }

    fn passes(&mut self, question: &Question<'_>) -> Result<Vec<Pass>, Trouble> {
        let answer = self.answer(question, false)?;
        let is_change = matches!(question.place, Some((Deed::Change, _)));
        // What a variable is when the run begins is no change of it, nor is
        // that another program has none or another one.
        let is_new = |i: usize| {
            let before = i.checked_sub(1).and_then(|before| answer.get(before));
            before.is_some_and(|(_, was)| *was != Some(Was::Absent))
                && answer
                    .get(i)
                    .is_some_and(|(_, was)| *was != Some(Was::Absent))
        };
        let own = answer.iter().enumerate().filter(|(i, (moment, _))| {
            (!is_change || is_new(*i)) && self.is_meant(question, moment)
        });
        let all: Vec<(At, u32)> = own
            .map(|(_, (moment, _))| (self.at(question.process, moment), moment.thread.0))
            .collect();
        let places: Vec<At> = all.iter().map(|(at, _)| *at).collect();
        let times = self.times(question.process, &places);
        let passes = all.into_iter().zip(times);
        Ok(passes
            .map(|((at, thread), time)| Pass { at, time, thread })
            .collect())
    }
}
