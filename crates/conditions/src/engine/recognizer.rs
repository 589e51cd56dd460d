//! Recognizers and verifiers: sequences of events, each sequence for itself.
//!
//! The input are the events that pass the filter, in causal order. Names tell
//! sequences apart: an event goes to those sequences whose values agree with
//! its own, so that sessions that overlap are recognized each by itself.
//!
//! A recognizer that an event does not fit starts again, silently, and the
//! event may be the first of a new sequence. A verifier tells, and stays where
//! it is; it starts again where the sequence is complete.
#![allow(clippy::indexing_slicing)] // Tables with a row for each letter.

use std::rc::Rc;

use super::automaton::{Automaton, DEAD, START};
use super::{Atom, Happening, Match, Sym, Table, Trail, merge};
use crate::stream::Moment;

/// What an automaton is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Tells when the sequence is complete.
    Recognize,
    /// Tells when it is broken.
    Verify,
}

/// A sequence that has begun.
#[derive(Default)]
struct Instance {
    state: usize,
    binding: Vec<Sym>,
    trail: Option<Rc<Trail>>,
}

/// Something a recognizer or verifier tells.
#[derive(Clone, Debug)]
pub struct Told {
    /// The events of the sequence; of a verifier, the last is the one that
    /// did not fit.
    pub found: Match,
}

/// An automaton, and the sequences in it.
pub struct Recognizer {
    purpose: Purpose,
    automaton: Automaton,
    /// The alphabet: kinds of events, and what they bind.
    alphabet: Vec<Atom>,
    /// Events of this kind are its input; without one, those of its alphabet.
    filter: Option<u32>,
    names: usize,
    /// Each event binds all names: sequences are found by these.
    keyed: bool,
    by_key: Table<Box<[Sym]>, Instance>,
    others: Vec<Instance>,
    /// What an event is of the alphabet, filled for each.
    own: Vec<(usize, Vec<Sym>)>,
    /// How many events had passed the filter when it was given one last.
    passed: u64,
}

impl Recognizer {
    /// With an automaton over this alphabet.
    pub fn new(
        purpose: Purpose,
        automaton: Automaton,
        alphabet: Vec<Atom>,
        filter: Option<u32>,
        names: usize,
    ) -> Recognizer {
        let all = |atom: &Atom| (0..names).all(|name| atom.bound().any(|own| own == name));
        Recognizer {
            keyed: alphabet.iter().all(all),
            purpose,
            automaton,
            alphabet,
            filter,
            names,
            by_key: Table::default(),
            others: Vec::new(),
            own: Vec::new(),
            passed: 0,
        }
    }

    /// The kinds of events it is to be given. What passes the filter and is nothing of
    /// the sequence's breaks it, of which a recognizer tells nothing: how many passed is
    /// enough. A verifier tells, and so is given these as well.
    pub fn letters(&self) -> Vec<u32> {
        let own = self.alphabet.iter().map(|atom| atom.letter);
        let filter = self.filter.filter(|_| self.purpose == Purpose::Verify);
        own.chain(filter).collect()
    }

    /// The kind of events that are its input.
    pub fn filter(&self) -> Option<u32> {
        self.filter
    }

    /// It is switched on or off where so many events have passed the filter. Those that
    /// pass while it is off are none of its input.
    pub fn switch(&mut self, on: bool, passed: u64) {
        if !on && self.purpose == Purpose::Recognize && passed != self.passed {
            self.begin_again();
        }
        self.passed = passed;
    }

    /// Forgets all sequences that have begun.
    fn begin_again(&mut self) {
        if !self.by_key.is_empty() {
            self.by_key.clear();
        }
        self.others.clear();
    }

    /// How many sequences have begun and are not over.
    pub fn open(&self) -> usize {
        self.by_key.len() + self.others.len()
    }

    /// The next event. `passed` is how many have passed the filter, this one included.
    pub fn take(
        &mut self,
        moment: &Moment,
        set: &[Happening],
        passed: u64,
        tell: &mut dyn FnMut(Told),
    ) {
        if let Some(filter) = self.filter {
            if !set.iter().any(|happening| happening.letter == filter) {
                return;
            }
            let is_next = passed == self.passed + 1;
            self.passed = passed;
            if !is_next && self.purpose == Purpose::Recognize {
                self.begin_again();
            }
        }
        let mut own = std::mem::take(&mut self.own);
        own.clear();
        for (letter, atom) in self.alphabet.iter().enumerate() {
            let bindings = set
                .iter()
                .filter_map(|happening| atom.bind(happening, self.names));
            own.extend(bindings.map(|binding| (letter, binding)));
        }
        if own.is_empty() {
            // It passed the filter and is nothing of the sequence's.
            if self.filter.is_some() {
                self.break_all(moment, tell);
            }
            self.own = own;
            return;
        }
        if self.keyed {
            while let Some((letter, binding)) = own.pop() {
                let mut letters = 1u64 << letter;
                own.retain(|(other, same)| {
                    let merged = *same == binding;
                    letters |= u64::from(merged) << other;
                    !merged
                });
                // Its place stays, mostly: only what begins or ends moves others.
                match self.by_key.get_mut(binding.as_slice()).map(std::mem::take) {
                    Some(instance) => {
                        let next =
                            self.advance(Some(instance), moment, letters, binding.clone(), tell);
                        match (self.by_key.get_mut(binding.as_slice()), next) {
                            (Some(place), Some(next)) => *place = next,
                            _ => _ = self.by_key.remove(binding.as_slice()),
                        }
                    }
                    None => {
                        let key = binding.clone();
                        if let Some(next) = self.advance(None, moment, letters, binding, tell) {
                            self.by_key.insert(key.into(), next);
                        }
                    }
                }
            }
            self.own = own;
            return;
        }
        let mut kept = Vec::new();
        let mut consumed = false;
        for instance in std::mem::take(&mut self.others) {
            let mut letters = 0u64;
            let mut binding = instance.binding.clone();
            for (letter, own) in &own {
                if let Some(merged) = merge(&binding, own) {
                    letters |= 1 << letter;
                    binding = merged;
                }
            }
            if letters == 0 {
                kept.push(instance);
                continue;
            }
            let next = self.automaton.step(instance.state, letters);
            match (next, self.purpose) {
                (DEAD, Purpose::Recognize) => {}
                (DEAD, Purpose::Verify) => {
                    consumed = true;
                    tell(told(moment, &instance));
                    kept.push(instance);
                }
                _ => {
                    consumed = true;
                    // Only what the event was taken for binds names.
                    let used = self.automaton.letters(next);
                    let mut binding = instance.binding.clone();
                    for (letter, own) in &own {
                        if used & 1 << letter != 0
                            && let Some(merged) = merge(&binding, own)
                        {
                            binding = merged;
                        }
                    }
                    kept.extend(self.arrive(next, binding, instance.trail, moment, tell));
                }
            }
        }
        if !consumed {
            for (letter, binding) in own.drain(..) {
                kept.extend(self.advance(None, moment, 1 << letter, binding, tell));
            }
        }
        self.others = kept;
        self.own = own;
    }

    /// Moves one sequence, or begins one.
    fn advance(
        &mut self,
        instance: Option<Instance>,
        moment: &Moment,
        letters: u64,
        binding: Vec<Sym>,
        tell: &mut dyn FnMut(Told),
    ) -> Option<Instance> {
        if let Some(instance) = instance {
            let next = self.automaton.step(instance.state, letters);
            if next != DEAD {
                return self.arrive(next, binding, instance.trail, moment, tell);
            }
            if self.purpose == Purpose::Verify {
                tell(told(moment, &instance));
                return Some(instance);
            }
        }
        match self.automaton.step(START, letters) {
            DEAD => None,
            next => self.arrive(next, binding, None, moment, tell),
        }
    }

    fn arrive(
        &mut self,
        state: usize,
        binding: Vec<Sym>,
        trail: Option<Rc<Trail>>,
        moment: &Moment,
        tell: &mut dyn FnMut(Told),
    ) -> Option<Instance> {
        let trail = Trail::new(moment, trail);
        let complete = self.automaton.is_final(state);
        if complete && self.purpose == Purpose::Recognize {
            tell(Told {
                found: Match {
                    trail: trail.clone(),
                    binding: binding.clone().into(),
                },
            });
        }
        let over = match self.purpose {
            Purpose::Recognize => self.automaton.is_over(state),
            Purpose::Verify => complete,
        };
        (!over).then_some(Instance {
            state,
            binding,
            trail: Some(trail),
        })
    }

    /// An event that fits no sequence at all.
    fn break_all(&mut self, moment: &Moment, tell: &mut dyn FnMut(Told)) {
        match self.purpose {
            Purpose::Recognize => self.begin_again(),
            Purpose::Verify => {
                let mut all: Vec<&Instance> = self.by_key.values().chain(&self.others).collect();
                all.sort_by(|a, b| a.binding.cmp(&b.binding));
                for instance in all {
                    tell(told(moment, instance));
                }
            }
        }
    }
}

fn told(moment: &Moment, instance: &Instance) -> Told {
    Told {
        found: Match {
            trail: Trail::new(moment, instance.trail.clone()),
            binding: instance.binding.clone().into(),
        },
    }
}
