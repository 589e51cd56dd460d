//! Sequences of events as automata.
//!
//! An expression becomes an automaton whose states are its atoms (Glushkov's
//! construction), and that is made deterministic while it runs: a state is the
//! set of atoms that the last event may have been, and where an event leads
//! from there is worked out once.
#![allow(clippy::indexing_slicing)] // Tables with a row for each state.

use std::collections::{BTreeSet, HashMap};

use super::Table;

/// A sequence of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// One event: a number of the alphabet.
    One(usize),
    /// One after the other.
    Sequence(Vec<Expr>),
    /// One of these.
    Either(Vec<Expr>),
    /// All of these, in any order.
    Permutation(Vec<Expr>),
    /// So many of it, or more without an upper bound.
    Repeat(Box<Expr>, u32, Option<u32>),
}

/// How large an automaton may be.
pub const ATOMS_MAX: usize = 4096;
/// How many parts a permutation may have: they can come in any order.
pub const PERMUTATION_MAX: usize = 6;

/// The expression is larger than can be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// No event can lead anywhere from here.
pub const DEAD: usize = usize::MAX;

/// Where every automaton starts.
pub const START: usize = 0;

/// A deterministic automaton, made as it is used.
#[derive(Clone, Debug)]
pub struct Automaton {
    /// Of each atom, the number in the alphabet.
    atoms: Vec<usize>,
    /// Atoms that can follow each; those that can come first are at the end.
    follow: Vec<BTreeSet<usize>>,
    last: BTreeSet<usize>,
    states: Vec<Vec<usize>>,
    finals: Vec<bool>,
    by_set: HashMap<Vec<usize>, usize>,
    moves: Table<(usize, u64), usize>,
}

struct Parts {
    nullable: bool,
    first: BTreeSet<usize>,
    last: BTreeSet<usize>,
}

impl Automaton {
    /// For an expression over an alphabet of at most 64.
    pub fn new(expr: &Expr) -> Result<Automaton, TooLarge> {
        let mut automaton = Automaton {
            atoms: Vec::new(),
            follow: Vec::new(),
            last: BTreeSet::new(),
            states: vec![Vec::new()],
            finals: vec![false],
            by_set: HashMap::new(),
            moves: Table::default(),
        };
        let parts = automaton.build(expr)?;
        automaton.follow.push(parts.first);
        automaton.last = parts.last;
        Ok(automaton)
    }

    fn build(&mut self, expr: &Expr) -> Result<Parts, TooLarge> {
        Ok(match expr {
            Expr::One(letter) => {
                if self.atoms.len() >= ATOMS_MAX {
                    return Err(TooLarge);
                }
                let atom = self.atoms.len();
                self.atoms.push(*letter);
                self.follow.push(BTreeSet::new());
                Parts {
                    nullable: false,
                    first: [atom].into(),
                    last: [atom].into(),
                }
            }
            Expr::Sequence(list) => {
                let mut whole = Parts {
                    nullable: true,
                    first: BTreeSet::new(),
                    last: BTreeSet::new(),
                };
                for expr in list {
                    let part = self.build(expr)?;
                    whole = self.join(whole, part);
                }
                whole
            }
            Expr::Either(list) => {
                let mut whole = Parts {
                    nullable: false,
                    first: BTreeSet::new(),
                    last: BTreeSet::new(),
                };
                for expr in list {
                    let part = self.build(expr)?;
                    whole.nullable |= part.nullable;
                    whole.first.extend(part.first);
                    whole.last.extend(part.last);
                }
                whole
            }
            Expr::Permutation(list) => {
                if list.len() > PERMUTATION_MAX {
                    return Err(TooLarge);
                }
                let orders = orders(list);
                let orders = orders.into_iter().map(Expr::Sequence).collect();
                self.build(&Expr::Either(orders))?
            }
            Expr::Repeat(inner, least, most) => self.repeat(inner, *least, *most)?,
        })
    }

    fn join(&mut self, mut a: Parts, b: Parts) -> Parts {
        for last in &a.last {
            self.follow[*last].extend(&b.first);
        }
        if a.nullable {
            a.first.extend(&b.first);
        }
        let mut last = b.last;
        if b.nullable {
            last.extend(&a.last);
        }
        Parts {
            nullable: a.nullable && b.nullable,
            first: a.first,
            last,
        }
    }

    fn repeat(&mut self, inner: &Expr, least: u32, most: Option<u32>) -> Result<Parts, TooLarge> {
        let mut whole = Parts {
            nullable: true,
            first: BTreeSet::new(),
            last: BTreeSet::new(),
        };
        for _ in 0..least {
            let part = self.build(inner)?;
            whole = self.join(whole, part);
        }
        match most {
            None => {
                let mut part = self.build(inner)?;
                for last in part.last.clone() {
                    self.follow[last].extend(&part.first);
                }
                part.nullable = true;
                Ok(self.join(whole, part))
            }
            Some(most) => {
                // From the inside: each is there only if those before are.
                let mut rest: Option<Parts> = None;
                for _ in least..most {
                    let mut part = self.build(inner)?;
                    if let Some(rest) = rest {
                        part = self.join(part, rest);
                    }
                    part.nullable = true;
                    rest = Some(part);
                }
                Ok(match rest {
                    Some(rest) => self.join(whole, rest),
                    None => whole,
                })
            }
        }
    }

    /// Where an event leads that is of these of the alphabet (a bit each).
    pub fn step(&mut self, state: usize, letters: u64) -> usize {
        if let Some(next) = self.moves.get(&(state, letters)) {
            return *next;
        }
        let mut set = BTreeSet::new();
        let start = [self.atoms.len()];
        let here: &[usize] = match state {
            START => &start,
            state => &self.states[state],
        };
        for atom in here {
            let next = self.follow[*atom].iter();
            set.extend(next.filter(|next| letters & (1 << self.atoms[**next]) != 0));
        }
        let set: Vec<usize> = set.into_iter().collect();
        let next = if set.is_empty() {
            DEAD
        } else if let Some(known) = self.by_set.get(&set) {
            *known
        } else {
            let state = self.states.len();
            self.finals
                .push(set.iter().any(|atom| self.last.contains(atom)));
            self.by_set.insert(set.clone(), state);
            self.states.push(set);
            state
        };
        self.moves.insert((state, letters), next);
        next
    }

    /// Of the alphabet, what the last event may have been as (a bit each).
    pub fn letters(&self, state: usize) -> u64 {
        match self.states.get(state) {
            Some(set) => set
                .iter()
                .fold(0, |mask, atom| mask | 1 << self.atoms[*atom]),
            None => 0,
        }
    }

    /// Whether the expression is complete here.
    pub fn is_final(&self, state: usize) -> bool {
        self.finals.get(state).copied().unwrap_or(false)
    }

    /// Whether no event can lead on from here.
    pub fn is_over(&self, state: usize) -> bool {
        match self.states.get(state) {
            Some(set) => state != START && set.iter().all(|atom| self.follow[*atom].is_empty()),
            None => true,
        }
    }
}

/// All orders of some things.
fn orders<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    if list.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, first) in list.iter().enumerate() {
        let mut rest = list.to_vec();
        rest.remove(i);
        for mut order in orders(&rest) {
            order.insert(0, first.clone());
            all.push(order);
        }
    }
    all
}
