//! Random histories small enough to try everything: processes that are forked
//! on the way, channels, and things that happen between events.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use conditions::engine::trace::{Change, Trace, Val};
use conditions::history::{Arrow, At, History};

/// Numbers that look random and are the same every time.
pub struct Random(pub u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 16) % limit.max(1) as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// An event: of which process, and its number.
pub type Event = (usize, u32);

#[derive(Clone, Debug)]
pub struct Toy {
    names: Vec<String>,
    /// Of each process, of each event: when.
    pub times: Vec<Vec<u64>>,
    /// Cause and effect: process, number.
    pub links: Vec<((usize, u32), (usize, u32))>,
    /// Of each process, of each event: how many events of every process are in
    /// its past, itself included.
    pub clocks: Vec<Vec<Vec<u32>>>,
    pub ended: Vec<bool>,
}

impl Toy {
    /// So many processes and events at most.
    pub fn random(random: &mut Random, processes: usize, events: usize) -> Toy {
        let mut toy = Toy {
            names: vec!["p-0".to_string()],
            times: vec![Vec::new()],
            links: Vec::new(),
            clocks: Vec::new(),
            ended: Vec::new(),
        };
        // Messages on their way: from whom, which event, to whom.
        let mut flying: Vec<((usize, u32), usize)> = Vec::new();
        let mut now = 10u64;
        // Some are there from the beginning.
        for i in 1..=random.below(processes) {
            if toy.names.len() < processes {
                toy.names.push(format!("p-{i}"));
                toy.times.push(Vec::new());
            }
        }
        for _ in 0..events {
            let process = random.below(toy.names.len());
            now += 1 + random.below(4) as u64;
            let number = toy.times[process].len() as u32;
            toy.times[process].push(now);
            match random.below(10) {
                0 if toy.names.len() < processes => {
                    let child = toy.names.len();
                    toy.names.push(format!("p-{child}"));
                    now += 1;
                    toy.times.push(vec![now]);
                    toy.links.push(((process, number), (child, 0)));
                }
                1..=3 => {
                    let to = random.below(toy.names.len());
                    flying.push(((process, number), to));
                    if random.chance(20) {
                        // Several may get it.
                        flying.push(((process, number), random.below(toy.names.len())));
                    }
                }
                4..=6 => {
                    // The first that is on its way here; of one channel in order.
                    if let Some(at) = flying.iter().position(|(_, to)| *to == process) {
                        let (cause, _) = flying.remove(at);
                        if cause.0 != process {
                            toy.links.push((cause, (process, number)));
                        }
                    }
                }
                _ => {}
            }
        }
        toy.ended = toy.times.iter().map(|_| random.chance(30)).collect();
        toy.finish()
    }

    /// One that is written down: events per process, and links.
    pub fn given(events: &[u32], links: &[(Event, Event)]) -> Toy {
        let count = events.len();
        let toy = Toy {
            names: (0..count).map(|i| format!("p-{i}")).collect(),
            times: events
                .iter()
                .map(|n| (0..*n).map(|i| 10 + 10 * u64::from(i)).collect())
                .collect(),
            links: links.to_vec(),
            clocks: Vec::new(),
            ended: vec![false; count],
        };
        toy.finish()
    }

    fn finish(mut self) -> Toy {
        self.links
            .sort_unstable_by_key(|(cause, effect)| (*effect, *cause));
        self.links.dedup();
        let count = self.names.len();
        // To a fixed point: small enough.
        let mut clocks: Vec<Vec<Vec<u32>>> = self
            .times
            .iter()
            .enumerate()
            .map(|(p, list)| {
                (0..list.len() as u32)
                    .map(|n| {
                        let mut clock = vec![0; count];
                        clock[p] = n + 1;
                        clock
                    })
                    .collect()
            })
            .collect();
        loop {
            let before = clocks.clone();
            for own in &mut clocks {
                for n in 1..own.len() {
                    let last = own[n - 1].clone();
                    for (own, last) in own[n].iter_mut().zip(last) {
                        *own = (*own).max(last);
                    }
                }
            }
            for (cause, effect) in &self.links {
                let told = clocks[cause.0][cause.1 as usize].clone();
                for (own, told) in clocks[effect.0][effect.1 as usize].iter_mut().zip(told) {
                    *own = (*own).max(told);
                }
            }
            if clocks == before {
                break;
            }
        }
        self.clocks = clocks;
        self
    }

    pub fn is_consistent(&self, cut: &[u32]) -> bool {
        let has = |(process, number): (usize, u32)| number < cut[process];
        self.links
            .iter()
            .all(|(cause, effect)| !has(*effect) || has(*cause))
    }

    /// Whether one moment happened before another.
    pub fn before(&self, a: (usize, At), b: (usize, At)) -> bool {
        if a.0 == b.0 {
            return a.1 < b.1;
        }
        self.past(b.0, b.1.bound)[a.0] >= a.1.needs()
    }

    /// When a place was reached.
    pub fn time(&self, process: usize, at: At) -> u64 {
        match at.bound.checked_sub(1) {
            Some(last) => self.times[process][last as usize],
            None => 0,
        }
    }

    /// A value that changes now and then, also between events.
    pub fn trace(&self, random: &mut Random, process: usize, values: &[i64]) -> Trace {
        let mut trace = Trace {
            process,
            changes: Vec::new(),
        };
        let last = self.times[process].len() as u32;
        for bound in 1..=last {
            if self.ended[process] && bound == last {
                break;
            }
            for step in [0, 1 + random.below(3) as u64] {
                let first = trace.changes.is_empty();
                if first || random.chance(if step == 0 { 40 } else { 12 }) {
                    let value = Val::Int(values[random.below(values.len())].into());
                    let at = At { bound, step };
                    let time = self.time(process, at);
                    trace.push(Change { at, time, value });
                }
            }
        }
        if self.ended[process] && !trace.changes.is_empty() {
            let at = At::bound(last);
            let time = self.time(process, at);
            let value = Val::Absent;
            trace.push(Change { at, time, value });
        }
        trace
    }

    /// All places of a process at which something of these traces changes, and
    /// right after each event.
    pub fn places(&self, process: usize, traces: &[Trace]) -> Vec<At> {
        let mut places: Vec<At> = (0..=self.times[process].len() as u32)
            .map(At::bound)
            .collect();
        for trace in traces.iter().filter(|trace| trace.process == process) {
            places.extend(trace.changes.iter().map(|change| change.at));
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    /// All consistent states: of each process, which of its places.
    pub fn states(&self, places: &[Vec<At>]) -> Vec<Vec<usize>> {
        let mut all: Vec<Vec<usize>> = vec![Vec::new()];
        for list in places {
            all = all
                .iter()
                .flat_map(|state| (0..list.len()).map(move |i| [state.as_slice(), &[i]].concat()))
                .collect();
        }
        all.retain(|state| {
            let cut: Vec<u32> = state
                .iter()
                .zip(places)
                .map(|(i, list)| list[*i].bound)
                .collect();
            self.is_consistent(&cut)
        });
        all
    }
}

impl History for Toy {
    fn processes(&self) -> usize {
        self.names.len()
    }
    fn name(&self, process: usize) -> &str {
        &self.names[process]
    }
    fn program(&self, process: usize) -> &str {
        &self.names[process]
    }
    fn first(&self, _: usize) -> u32 {
        0
    }
    fn end(&self, process: usize) -> u32 {
        self.times[process].len() as u32
    }
    fn ended(&self, process: usize) -> bool {
        self.ended[process]
    }
    fn causes(&self, process: usize, from: u32, to: u32, found: &mut Vec<Arrow>) {
        let own = self.links.iter().filter(|(_, effect)| effect.0 == process);
        let own = own.filter(|(_, effect)| (from..to).contains(&effect.1));
        let mut own: Vec<Arrow> = own
            .map(|(cause, effect)| Arrow {
                own: effect.1,
                other: cause.0 as u32,
                number: cause.1,
            })
            .collect();
        own.sort_unstable();
        found.extend(own);
    }
    fn effects(&self, process: usize, from: u32, to: u32, found: &mut Vec<Arrow>) {
        let own = self.links.iter().filter(|(cause, _)| cause.0 == process);
        let own = own.filter(|(cause, _)| (from..to).contains(&cause.1));
        let mut own: Vec<Arrow> = own
            .map(|(cause, effect)| Arrow {
                own: cause.1,
                other: effect.0 as u32,
                number: effect.1,
            })
            .collect();
        own.sort_unstable();
        found.extend(own);
    }
    fn past(&self, process: usize, bound: u32) -> Vec<u32> {
        match bound.checked_sub(1) {
            Some(last) => self.clocks[process][last as usize].clone(),
            None => vec![0; self.names.len()],
        }
    }
}
