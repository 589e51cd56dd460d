//! Random changes to texts that are right, for tests that hand bad input to a
//! reader: what is nearly right goes deeper into it than noise does.

#![allow(dead_code, reason = "a file that tests share")]

use std::time::{Duration, Instant};

/// A generator that gives the same numbers for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // Near seeds begin far apart; 0 would stay 0.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }

    /// Once in so many times.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// One of `right`, changed a few times; now and then not at all. `words` are
/// what readers look for: they are put in where they do not belong.
pub fn changed(random: &mut Random, right: &[&[u8]], words: &[&[u8]]) -> Vec<u8> {
    let mut text = random.pick(right).to_vec();
    for _ in 0..random.below(5) {
        let at = random.below(text.len() + 1);
        let end = (at + random.below(9)).min(text.len());
        match random.below(8) {
            0 => drop(text.drain(at..end)),
            1 => text.insert(at, random.next() as u8),
            2 => drop(text.splice(at..at, random.pick(words).iter().copied())),
            3 => drop(text.splice(at..end, random.pick(words).iter().copied())),
            4 => {
                let piece = text[at..end].to_vec();
                let most = if random.once_in(20) { 5000 } else { 4 };
                let times = 1 + random.below(most);
                drop(text.splice(at..at, piece.repeat(times)));
            }
            5 if at < text.len() => text[at] ^= 1 << random.below(8),
            6 => text.truncate(at),
            _ => {
                let other = random.pick(right);
                let from = random.below(other.len() + 1);
                drop(text.splice(at..end, other[from..].iter().copied()));
            }
        }
    }
    text
}

/// How long to go on: `rounds` times, `MW_FUZZ_ROUNDS` times, or for `MW_FUZZ_MINUTES`.
pub fn goes_on(begun: Instant, round: u64, rounds: u64) -> bool {
    if let Ok(rounds) = std::env::var("MW_FUZZ_ROUNDS") {
        return round < rounds.parse::<u64>().unwrap();
    }
    match std::env::var("MW_FUZZ_MINUTES") {
        Ok(minutes) => {
            let minutes: f64 = minutes.parse().unwrap();
            begun.elapsed() < Duration::from_secs_f64(minutes * 60.0)
        }
        Err(_) => round < rounds,
    }
}
