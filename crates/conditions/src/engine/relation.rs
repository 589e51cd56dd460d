//! A relation between the values of two processes: pairs of stretches that can
//! be at the same time.
//!
//! For a stretch of one process those of the other that can be at the same
//! time are neighbours, and as one goes on so does the other: a window that
//! slides, of which the smallest and the largest value and how often each is
//! in it are known.
#![allow(clippy::indexing_slicing)] // Tables with a row for each change.

use std::collections::{HashMap, VecDeque};

use super::poset::Poset;
use super::trace::Val;

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rel {
    /// `==`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

impl Rel {
    /// Whether two numbers compare so.
    pub fn holds(self, a: i128, b: i128) -> bool {
        match self {
            Rel::Equal => a == b,
            Rel::Unequal => a != b,
            Rel::Less => a < b,
            Rel::AtMost => a <= b,
            Rel::More => a > b,
            Rel::AtLeast => a >= b,
        }
    }

    /// What holds where this does not.
    pub fn negated(self) -> Rel {
        match self {
            Rel::Equal => Rel::Unequal,
            Rel::Unequal => Rel::Equal,
            Rel::Less => Rel::AtLeast,
            Rel::AtMost => Rel::More,
            Rel::More => Rel::AtMost,
            Rel::AtLeast => Rel::Less,
        }
    }

    /// As it is written.
    pub fn sign(self) -> &'static str {
        match self {
            Rel::Equal => "==",
            Rel::Unequal => "!=",
            Rel::Less => "<",
            Rel::AtMost => "<=",
            Rel::More => ">",
            Rel::AtLeast => ">=",
        }
    }
}

/// Values in a window.
#[derive(Default)]
struct Window {
    from: usize,
    to: usize,
    least: VecDeque<usize>,
    most: VecDeque<usize>,
    counts: HashMap<i128, usize>,
    absent: usize,
}

impl Window {
    fn slide(&mut self, values: &[Val], from: usize, to: usize) {
        while self.to < to {
            match values[self.to] {
                Val::Int(value) => {
                    let number = |i: &usize| match values[*i] {
                        Val::Int(value) => value,
                        _ => 0,
                    };
                    while self.least.back().is_some_and(|i| number(i) >= value) {
                        self.least.pop_back();
                    }
                    self.least.push_back(self.to);
                    while self.most.back().is_some_and(|i| number(i) <= value) {
                        self.most.pop_back();
                    }
                    self.most.push_back(self.to);
                    *self.counts.entry(value).or_insert(0) += 1;
                }
                _ => self.absent += 1,
            }
            self.to += 1;
        }
        while self.from < from {
            match values[self.from] {
                Val::Int(value) => {
                    if let Some(count) = self.counts.get_mut(&value) {
                        *count -= 1;
                        if *count == 0 {
                            self.counts.remove(&value);
                        }
                    }
                    for list in [&mut self.least, &mut self.most] {
                        if list.front() == Some(&self.from) {
                            list.pop_front();
                        }
                    }
                }
                _ => self.absent -= 1,
            }
            self.from += 1;
        }
    }
}

/// The first stretch of lane `a`, with the first of lane `b` that it can be at
/// the same time as, such that `a + b + constant rel 0`; where one is absent,
/// `absent` says what holds. Values are by number of changes.
pub fn pair(
    poset: &Poset,
    (a, first): (usize, &[Val]),
    (b, second): (usize, &[Val]),
    constant: i128,
    rel: Rel,
    absent: bool,
) -> Option<(u32, u32)> {
    let mut window = Window::default();
    let mut to = 0;
    for (i, own) in first.iter().enumerate() {
        let from = match i.checked_sub(1) {
            Some(entry) => poset.nodes[a][entry].needs[b] as usize,
            None => 0,
        };
        while to < second.len() {
            let needs = match to.checked_sub(1) {
                Some(entry) => poset.nodes[b][entry].needs[a] as usize,
                None => 0,
            };
            if needs > i {
                break;
            }
            to += 1;
        }
        window.slide(second, from, to);
        let holds = |x: i128, y: i128| rel.holds(x.saturating_add(y).saturating_add(constant), 0);
        let Val::Int(own) = *own else {
            if absent && from < to {
                return Some((i as u32, from as u32));
            }
            continue;
        };
        let end = |list: &VecDeque<usize>| match list.front().map(|i| second[*i]) {
            Some(Val::Int(value)) => Some(value),
            _ => None,
        };
        let (least, most) = (end(&window.least), end(&window.most));
        let some = match rel {
            Rel::Equal => {
                let wanted = own.saturating_add(constant).saturating_neg();
                window.counts.contains_key(&wanted)
            }
            _ => [least, most]
                .into_iter()
                .flatten()
                .any(|value| holds(own, value)),
        };
        if some || absent && window.absent > 0 {
            let fits = |j: &usize| match second[*j] {
                Val::Int(value) => holds(own, value),
                _ => absent,
            };
            let j = (from..to).find(fits)?;
            return Some((i as u32, j as u32));
        }
    }
    None
}
