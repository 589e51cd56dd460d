//! Answers what conditions ask about the source, by replay.
//!
//! Each answer is found once and kept beside the recording: what is asked again
//! replays nothing. All that a file of rules asks about a process is found together;
//! processes are asked at once, each on a thread of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use conditions::history::{At, History as _};
use conditions::recorded::Recorded;
use conditions::source::Events as _;
use conditions::syntax::ast::Deed;
use conditions::truth::{self, Changed, Pass, Question, Trouble, Truth};
use protocol::id::{ProcessId, ProcessIx, ThreadNo};
use session::Program;
use session::truth::{Moment, Passing, Was, changes, passes};
use target::Cancel;

use crate::kept::{Kept, Key};
use crate::passed::Passes;
use crate::steps::{Steps, rank};

/// One moment of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub moment: Moment,
    /// The thread whose variable it is, where each has one of its own.
    pub owner: Option<ThreadNo>,
    /// What was, where that was asked for.
    pub was: Option<Was>,
}

/// An answer: moments in order.
pub type Answer = Vec<Seen>;

/// See the module.
pub struct Replays<'r> {
    program: &'r Arc<Program>,
    recorded: &'r Recorded<'r>,
    kept: Kept,
    failed: BTreeMap<Key, Trouble>,
    steps: Steps,
    refused: Box<Refused<'r>>,
    /// There is nothing to replay: all that is known was seen while the program ran.
    seen: Option<&'r Passes>,
    cancel: Cancel,
}

/// Why nothing can be replayed here, if nothing can.
type Refused<'r> = dyn Fn() -> Option<String> + 'r;

fn key(question: &Question<'_>, process: ProcessId) -> Key {
    Key {
        member: process.member,
        process: process.number,
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

fn is(key: &Key, deed: Deed) -> bool {
    key.deed.as_deref() == Some(deed.words())
}

/// What is followed: an expression, or a variable whose changes are events.
fn followed(key: &Key) -> Option<&str> {
    match &key.place {
        None => Some(key.expression.as_deref().unwrap_or_default()),
        Some(place) => is(key, Deed::Change).then_some(place.as_str()),
    }
}

/// Finds all answers about a process: what is followed in one run of it, and places in
/// another.
fn found(
    program: &Program,
    process: ProcessId,
    keys: Vec<Key>,
    cancel: &Cancel,
) -> Vec<(Key, Result<Answer, Trouble>)> {
    let refused = |key: &Key| is(key, Deed::Change) && key.expression.is_some();
    let (refused, keys): (Vec<Key>, Vec<Key>) = keys.into_iter().partition(refused);
    let why = "a change of a variable cannot have a condition".to_string();
    let none = Trouble { why, near: None };
    let mut all: Vec<(Key, Result<Answer, Trouble>)> = refused
        .into_iter()
        .map(|key| (key, Err(none.clone())))
        .collect();
    let (values, places): (Vec<Key>, Vec<Key>) =
        keys.into_iter().partition(|key| followed(key).is_some());
    if !values.is_empty() {
        let texts: Vec<&str> = values.iter().filter_map(followed).collect();
        let answers = changes(program, process, &texts, cancel).map(|answers| {
            let each = answers.into_iter();
            each.map(|answer| {
                let each = answer.map(|list| list.into_iter());
                each.map(|list| {
                    list.map(|own| Seen {
                        moment: own.moment,
                        owner: own.owner,
                        was: Some(own.was),
                    })
                    .collect()
                })
            })
            .collect()
        });
        all.extend(given(values, answers));
    }
    if !places.is_empty() {
        let asked: Vec<Passing<'_>> = places.iter().map(passing).collect();
        let answers = passes(program, process, &asked, cancel).map(|answers| {
            let each = answers.into_iter();
            each.map(|answer| {
                let each = answer.map(|list| list.into_iter());
                each.map(|list| {
                    list.map(|own| Seen {
                        moment: own.moment,
                        owner: None,
                        was: own.was,
                    })
                    .collect()
                })
            })
            .collect()
        });
        all.extend(given(places, answers));
    }
    all
}

fn passing(key: &Key) -> Passing<'_> {
    let expression = key.expression.as_deref();
    Passing {
        deed: match is(key, Deed::Return) {
            true => session::truth::Deed::Return,
            false => session::truth::Deed::At,
        },
        place: key.place.as_deref().unwrap_or_default(),
        condition: expression.filter(|_| !key.value),
        value: expression.filter(|_| key.value),
    }
}

type Answers = Result<Vec<Result<Answer, session::truth::Trouble>>, session::truth::Trouble>;

/// To each question its answer.
fn given(keys: Vec<Key>, answers: Answers) -> Vec<(Key, Result<Answer, Trouble>)> {
    match answers {
        Ok(answers) => {
            let answers = answers.into_iter();
            let answers = answers.map(|own| own.map_err(|error| trouble(&error)));
            keys.into_iter().zip(answers).collect()
        }
        Err(error) => {
            let none = trouble(&error);
            let each = keys.into_iter();
            each.map(|key| (key, Err(none.clone()))).collect()
        }
    }
}

impl<'r> Replays<'r> {
    /// Of this recording.
    pub fn new(program: &'r Arc<Program>, recorded: &'r Recorded<'r>) -> Replays<'r> {
        Replays {
            kept: Kept::load(recorded.history().set()),
            program,
            recorded,
            failed: BTreeMap::new(),
            steps: Steps::default(),
            refused: Box::new(|| None),
            seen: None,
            cancel: Cancel::new(),
        }
    }

    /// Of what is only observed: passes that were seen are all that can be told.
    pub(crate) fn of_passes(
        program: &'r Arc<Program>,
        recorded: &'r Recorded<'r>,
        passes: &'r Passes,
    ) -> Replays<'r> {
        Replays {
            kept: Kept::default(),
            program,
            recorded,
            failed: BTreeMap::new(),
            steps: Steps::default(),
            refused: Box::new(|| None),
            seen: Some(passes),
            cancel: Cancel::new(),
        }
    }

    /// With who says whether anything can be replayed here; asked before it is.
    pub fn unless(mut self, refused: impl Fn() -> Option<String> + 'r) -> Replays<'r> {
        self.refused = Box::new(refused);
        self
    }

    /// With what can stop it. What was not found then has failed, and nothing else is
    /// to be taken from it.
    pub fn until(mut self, cancel: &Cancel) -> Replays<'r> {
        self.cancel = cancel.clone();
        self
    }

    /// The measure of steps of all answers that were given.
    pub fn into_steps(self) -> Steps {
        self.steps
    }

    /// See [`Replays::into_steps`].
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    fn key(&self, question: &Question<'_>, value: bool) -> Option<Key> {
        let place = ProcessIx(question.process as u32);
        let id = self.recorded.history().set().id(place)?;
        Some(Key {
            value: value && question.place.is_some(),
            ..key(question, id)
        })
    }

    /// Finds what is not known yet; processes at once.
    fn find(&mut self, wanted: Vec<Key>) {
        let mut by_process: BTreeMap<ProcessId, Vec<Key>> = BTreeMap::new();
        for key in wanted {
            if self.kept.get(&key).is_none() && !self.failed.contains_key(&key) {
                by_process.entry(key.id()).or_default().push(key);
            }
        }
        if by_process.is_empty() {
            return;
        }
        if let Some(why) = (self.refused)() {
            for key in by_process.into_values().flatten() {
                let why = why.clone();
                self.failed.insert(key, Trouble { why, near: None });
            }
            return;
        }
        let work = Mutex::new(by_process.into_values());
        let answers = Mutex::new(Vec::new());
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let (program, cancel) = (self.program, &self.cancel);
        let find = || {
            loop {
                let next = work.lock().map(|mut work| work.next());
                let Ok(Some(keys)) = next else { break };
                let Some(process) = keys.first().map(Key::id) else {
                    continue;
                };
                let found = found(program, process, keys, cancel);
                if let Ok(mut answers) = answers.lock() {
                    answers.extend(found);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..workers {
                // Where no thread can be had fewer do the work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, find);
            }
            find();
        });
        for (key, answer) in answers.into_inner().unwrap_or_default() {
            match answer {
                Ok(answer) => self.kept.insert(key, answer),
                Err(trouble) => {
                    self.failed.insert(key, trouble);
                }
            }
        }
        self.kept.save(self.recorded.history().set());
    }

    fn answer(&mut self, question: &Question<'_>, value: bool) -> Result<Answer, Trouble> {
        let Some(key) = self.key(question, value) else {
            return Ok(Answer::default());
        };
        let answer = match self.seen {
            Some(passes) => passes.get(&key).cloned().unwrap_or_default(),
            None => self.found_by_replay(key)?,
        };
        // Steps are told by order, so all of them must be known before one is.
        let places = answer.iter().map(|own| rank(&own.moment));
        self.steps.add(question.process, places);
        Ok(answer)
    }

    fn found_by_replay(&mut self, key: Key) -> Result<Answer, Trouble> {
        self.find(vec![key.clone()]);
        if let Some(trouble) = self.failed.get(&key) {
            return Err(trouble.clone());
        }
        Ok(self.kept.get(&key).cloned().unwrap_or_default())
    }

    fn at(&self, process: usize, moment: &Moment) -> At {
        self.steps.at(process, rank(moment))
    }

    /// When the last event before a place was recorded.
    fn times(&self, process: usize, places: &[At]) -> Vec<u64> {
        let before = |at: &At| (process, at.bound.saturating_sub(1));
        let events: Vec<(usize, u32)> = places.iter().map(before).collect();
        self.recorded.times(&events)
    }

    /// Whether a thread is one of those that are asked about.
    fn is_meant(&self, question: &Question<'_>, thread: ThreadNo) -> bool {
        let Some(wanted) = question.thread else {
            return true;
        };
        let name = self.recorded.thread_name(question.process, thread.0);
        events::glob(wanted.as_bytes(), name.as_bytes())
    }
}

fn told(was: Option<Was>) -> truth::Was {
    match was {
        Some(Was::Number(number)) => truth::Was::Number(number),
        Some(Was::Real(number)) => truth::Was::Real(number),
        Some(Was::Text(text)) => truth::Was::Text(text),
        Some(Was::Absent) | None => truth::Was::Absent,
        // What is neither number nor text has been refused.
        Some(Was::Other(_) | Was::Unknown(_)) => truth::Was::Unknown,
    }
}

impl Truth for Replays<'_> {
    fn prepare(&mut self, values: &[Question<'_>], passes: &[Question<'_>]) {
        let keys = values.iter().filter_map(|own| self.key(own, true));
        let keys: Vec<Key> = keys
            .chain(passes.iter().filter_map(|own| self.key(own, false)))
            .collect();
        if self.seen.is_none() {
            self.find(keys);
        }
        // The measure of steps is of all answers at once.
        for (questions, value) in [(values, true), (passes, false)] {
            for question in questions {
                let _ = self.answer(question, value);
            }
        }
    }

    fn values(&mut self, question: &Question<'_>) -> Result<Vec<Vec<Changed>>, Trouble> {
        let answer = self.answer(question, true)?;
        let other = answer.iter().find_map(|own| match &own.was {
            Some(Was::Other(text)) => Some(text),
            _ => None,
        });
        if let Some(text) = other {
            let shown: String = text.chars().take(40).collect();
            return Err(Trouble {
                why: format!(
                    "it is neither a number nor a text but `{shown}`: ask for a part of it"
                ),
                near: None,
            });
        }
        // Nobody is in a state before anything happened.
        let first = At::after(self.recorded.first(question.process));
        let mut all: BTreeMap<Option<ThreadNo>, Vec<(At, truth::Was)>> = BTreeMap::new();
        for Seen { moment, owner, was } in answer {
            let thread = owner.or(question.place.map(|_| moment.thread));
            if thread.is_none_or(|thread| self.is_meant(question, thread)) {
                let at = self.at(question.process, &moment).max(first);
                all.entry(owner).or_default().push((at, told(was)));
            }
        }
        let lists = all.into_values().map(|list| {
            let places: Vec<At> = list.iter().map(|(at, _)| *at).collect();
            let times = self.times(question.process, &places);
            let mut changes: Vec<Changed> = Vec::new();
            for ((at, was), time) in list.into_iter().zip(times) {
                match changes.last_mut() {
                    Some(last) if last.at == at => last.was = was,
                    Some(last) if last.was == was => {}
                    _ => changes.push(Changed { at, time, was }),
                }
            }
            changes
        });
        Ok(lists.collect())
    }

    fn passes(&mut self, question: &Question<'_>) -> Result<Vec<Pass>, Trouble> {
        let answer = self.answer(question, false)?;
        let is_change = matches!(question.place, Some((Deed::Change, _)));
        // What a variable is when the run begins is no change of it, nor is
        // that another program has none or another one.
        let mut before: BTreeMap<Option<ThreadNo>, Option<Was>> = BTreeMap::new();
        let mut all: Vec<(At, u32)> = Vec::new();
        for Seen { moment, owner, was } in answer {
            let is_there = |was: &Option<Was>| *was != Some(Was::Absent);
            let is_new = is_there(&was);
            let known = before.insert(owner, was);
            let is_new = is_new && known.as_ref().is_some_and(is_there);
            let thread = owner.unwrap_or(moment.thread);
            if (!is_change || is_new) && self.is_meant(question, thread) {
                all.push((self.at(question.process, &moment), moment.thread.0));
            }
        }
        let places: Vec<At> = all.iter().map(|(at, _)| *at).collect();
        let times = self.times(question.process, &places);
        let passes = all.into_iter().zip(times);
        Ok(passes
            .map(|((at, thread), time)| Pass { at, time, thread })
            .collect())
    }
}
