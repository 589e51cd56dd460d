//! Where events come from: a recording, or whatever stands for one.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use events::Pattern;

use crate::engine::{Happening, Sym};
use crate::history::{At, History};
use crate::values::Value;

/// Texts that were captured, each once.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    by_text: RefCell<HashMap<Rc<[u8]>, Sym>>,
    texts: RefCell<Vec<Rc<[u8]>>>,
}

impl Symbols {
    /// The number of a text.
    pub fn number(&self, text: &[u8]) -> Sym {
        let mut by_text = self.by_text.borrow_mut();
        if let Some(known) = by_text.get(text) {
            return *known;
        }
        let mut texts = self.texts.borrow_mut();
        let sym = Sym(texts.len() as u32);
        let text: Rc<[u8]> = text.into();
        texts.push(text.clone());
        by_text.insert(text, sym);
        sym
    }

    /// The text of a number, as people read it.
    pub fn text(&self, sym: Sym) -> String {
        match self.texts.borrow().get(sym.0 as usize) {
            Some(text) => String::from_utf8_lossy(text).into_owned(),
            None => String::new(),
        }
    }

    /// The text of a number, as it was.
    pub fn bytes(&self, sym: Sym) -> Rc<[u8]> {
        let texts = self.texts.borrow();
        texts.get(sym.0 as usize).cloned().unwrap_or_default()
    }

    /// The number that a text says, else the text.
    pub fn value(&self, sym: Sym) -> Value {
        let texts = self.texts.borrow();
        let Some(text) = texts.get(sym.0 as usize) else {
            return Value::Unknown;
        };
        let text = std::str::from_utf8(text).unwrap_or("").trim();
        let real = || {
            // `inf` and `nan` are words of texts.
            let begins = text.trim_start_matches(['-', '+', '.']);
            let is_number = begins.starts_with(|c: char| c.is_ascii_digit());
            text.parse().ok().filter(|_| is_number).map(Value::real)
        };
        let whole = text.parse::<i128>().ok().map(Value::whole);
        whole.or_else(real).unwrap_or(Value::Text(sym))
    }
}

/// An event at which something happened that is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'s> {
    /// Where.
    pub at: At,
    /// When, in nanoseconds since the recording began.
    pub time: u64,
    /// Number of the thread.
    pub thread: u32,
    /// What.
    pub set: &'s [Happening],
}

/// A name in a rule that nothing here has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuch {
    /// What there is none of.
    pub what: String,
    /// The name, as it stands in the pattern.
    pub name: String,
    /// What was perhaps meant.
    pub near: Option<String>,
}

/// Of events, those that happened before none of the others: when these have
/// happened, all have.
pub fn latest(history: &(impl History + ?Sized), events: &[(usize, u32)]) -> Vec<(usize, u32)> {
    let mut last: BTreeMap<usize, u32> = BTreeMap::new();
    for (process, number) in events {
        let own = last.entry(*process).or_default();
        *own = (*own).max(*number);
    }
    let is_last = |(process, number): &(usize, u32)| {
        let mut others = last.iter().filter(|(other, _)| **other != *process);
        !others.any(|(other, known)| {
            let past = history.past(*other, known.saturating_add(1));
            past.get(*process).is_some_and(|bound| bound > number)
        })
    };
    match last.len() {
        0 | 1 => last.into_iter().collect(),
        _ => {
            let all = last.iter().map(|(process, number)| (*process, *number));
            all.filter(is_last).collect()
        }
    }
}

/// A history with events in it.
pub trait Events: History {
    /// Goes over the events of a process, in order, and calls `take` for each
    /// that fits at least one of these patterns; each is given with the number
    /// of its kind.
    fn scan(
        &self,
        process: usize,
        wanted: &[(u32, &Pattern)],
        symbols: &Symbols,
        take: &mut dyn FnMut(Seen<'_>),
    );

    /// The name of a thread.
    fn thread_name(&self, process: usize, thread: u32) -> String;

    /// The events at which what an event sent was received: when all of them have
    /// happened it has arrived. None of them happened before another.
    fn received(&self, process: usize, number: u32) -> Vec<(usize, u32)>;

    /// When these events happened.
    fn times(&self, events: &[(usize, u32)]) -> Vec<u64>;

    /// When the last event happened.
    fn last_time(&self) -> u64;

    /// Whether all that a pattern names is there.
    fn check(&self, pattern: &Pattern) -> Result<(), NoSuch>;
}
