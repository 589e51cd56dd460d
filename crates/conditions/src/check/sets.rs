//! What happened at each event that rules look at.
//!
//! Where nothing is captured, the same few sets of letters come again and again: each is
//! kept once, so that an event costs a number, and following millions of them stays in
//! the cache.

use crate::engine::{Happening, Table};

/// All sets, by number.
#[derive(Default)]
pub(super) struct Sets {
    happenings: Vec<Happening>,
    /// Behind the happenings of each.
    ends: Vec<usize>,
    /// Those without captures, by their letters.
    plain: Table<Box<[u32]>, u32>,
    /// Those of them that the process at hand has had.
    recent: Vec<u32>,
}

impl Sets {
    /// From here on it is about another process, which has other sets.
    pub fn next_process(&mut self) {
        self.recent.clear();
    }

    /// The number of what happened at an event.
    pub fn number<'h>(&mut self, set: impl Iterator<Item = &'h Happening> + Clone) -> u32 {
        if set.clone().any(|happening| !happening.values.is_empty()) {
            return self.add(set);
        }
        let letters = set.clone().map(|happening| happening.letter);
        let known = self.recent.iter().find(|number| {
            let own = self.get(**number).iter();
            own.map(|happening| happening.letter).eq(letters.clone())
        });
        if let Some(known) = known {
            return *known;
        }
        let key: Box<[u32]> = letters.collect();
        let number = match self.plain.get(&key) {
            Some(known) => *known,
            None => {
                let number = self.add(set);
                self.plain.insert(key, number);
                number
            }
        };
        self.recent.push(number);
        number
    }

    fn add<'h>(&mut self, set: impl Iterator<Item = &'h Happening>) -> u32 {
        self.happenings.extend(set.cloned());
        self.ends.push(self.happenings.len());
        self.ends.len() as u32 - 1
    }

    /// What a number stands for.
    pub fn get(&self, number: u32) -> &[Happening] {
        let number = number as usize;
        let from = number
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        let to = self.ends.get(number).copied().unwrap_or(0);
        let range = from.copied().unwrap_or(0)..to;
        self.happenings.get(range).unwrap_or_default()
    }
}
