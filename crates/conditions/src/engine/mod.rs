//! What decides conditions. All of it sees moments and their order, and neither
//! recordings nor names.

pub mod automaton;
mod between;
pub mod concurrent;
pub mod cut;
pub mod early;
pub mod enumerate;
pub mod flow;
pub mod linked;
pub mod poset;
pub mod recognizer;
pub mod relation;
pub mod solve;
pub mod temporal;
pub mod trace;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use crate::history::At;
use crate::stream::Moment;

/// A table that is looked into for every event. Its keys are small numbers that
/// nobody chose, so that a quick hash will do.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;

/// See [`Table`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        self.0 ^= self.0 >> 29;
    }
}

/// A value that was captured, by its number in a table of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sym(pub u32);

impl Sym {
    /// Nothing was captured.
    pub const NONE: Sym = Sym(u32::MAX);
}

/// Values that names are bound to; [`Sym::NONE`] where none is.
pub type Binding = Rc<[Sym]>;

/// An event of one kind happened, and this is what it captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Which kind: a number for each pattern that has a name.
    pub letter: u32,
    /// Its captures, in the order of the pattern.
    pub values: Rc<[Sym]>,
}

/// A kind of event in an expression, and the names its captures are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Atom {
    /// Which kind of event.
    pub letter: u32,
    /// For each capture the number of the name it is bound to.
    pub names: Vec<Option<usize>>,
}

impl Atom {
    /// What an event binds, if it is of this kind and agrees with itself.
    #[inline]
    pub fn bind(&self, happening: &Happening, count: usize) -> Option<Vec<Sym>> {
        if happening.letter != self.letter {
            return None;
        }
        if count == 0 {
            return Some(Vec::new());
        }
        self.values(happening, count)
    }

    fn values(&self, happening: &Happening, count: usize) -> Option<Vec<Sym>> {
        let mut binding = vec![Sym::NONE; count];
        for (name, value) in self.names.iter().zip(happening.values.iter()) {
            let Some(place) = name.and_then(|name| binding.get_mut(name)) else {
                continue;
            };
            if *place != Sym::NONE && *place != *value {
                return None;
            }
            *place = *value;
        }
        Some(binding)
    }

    /// The names it binds.
    pub fn bound(&self) -> impl Iterator<Item = usize> + '_ {
        self.names.iter().flatten().copied()
    }
}

/// The values of some names.
pub(crate) fn project(binding: &[Sym], names: &[usize]) -> Box<[Sym]> {
    names
        .iter()
        .map(|name| binding.get(*name).copied().unwrap_or(Sym::NONE))
        .collect()
}

/// Something for each list of values that names can have.
pub(crate) type ByValues<T> = Table<Box<[Sym]>, T>;

/// Two bindings as one, if they agree.
pub(crate) fn merge(a: &[Sym], b: &[Sym]) -> Option<Vec<Sym>> {
    a.iter()
        .zip(b)
        .map(|(a, b)| match (*a, *b) {
            (Sym::NONE, b) => Some(b),
            (a, Sym::NONE) => Some(a),
            (a, b) => (a == b).then_some(a),
        })
        .collect()
}

/// One of the events that make up a match, and those before it.
#[derive(Debug)]
pub struct Trail {
    /// Its process.
    pub process: usize,
    /// Where in its process.
    pub at: At,
    /// When it was recorded.
    pub time: u64,
    /// Its place in the sequence of all events that were looked at.
    pub order: usize,
    /// The one before.
    pub before: Option<Rc<Trail>>,
}

impl Trail {
    pub(crate) fn new(moment: &Moment, before: Option<Rc<Trail>>) -> Rc<Trail> {
        Rc::new(Trail {
            process: moment.process,
            at: moment.at,
            time: moment.time,
            order: moment.order,
            before,
        })
    }

    /// All of them, the first first: process and place.
    pub fn events(self: &Rc<Trail>) -> Vec<(usize, At)> {
        let mut list = Vec::new();
        let mut next = Some(self);
        while let Some(trail) = next {
            list.push((trail.process, trail.at));
            next = trail.before.as_ref();
        }
        list.reverse();
        list
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        // A long one must not be dropped by recursion.
        let mut next = self.before.take();
        while let Some(trail) = next {
            next = match Rc::try_unwrap(trail) {
                Ok(mut own) => own.before.take(),
                Err(_) => None,
            };
        }
    }
}

/// Something was found.
#[derive(Clone, Debug)]
pub struct Match {
    /// The events that make it up, the last being the one at which it was
    /// found.
    pub trail: Rc<Trail>,
    /// What names were bound to.
    pub binding: Binding,
}
