//! Signals, and the ends of children.

use std::collections::{HashMap, HashSet};

use crate::link::Kind;
use crate::world::World;
use crate::world::objects::{Arrival, Kill, Op};

const SI_QUEUE: i32 = -1;
const SI_TIMER: i32 = -2;
const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;
const SI_KERNEL: i32 = 128;
const SIGCHLD: u32 = 17;
const SIGKILL: u32 = 9;

/// Kills that one arrival may be of, in order of time, and how far those that
/// are left begin.
#[derive(Default)]
struct Line {
    kills: Vec<usize>,
    first: usize,
}

/// Who sent which signal to whom: process, signal, target (none: a group of
/// processes), thread.
type From = (Option<u32>, u32, Option<u32>, Option<u32>);

/// Signals below are not queued: one that is pending already is lost.
const QUEUED: u32 = 32;

struct Lines<'w> {
    kills: &'w [Kill],
    lines: HashMap<From, Line>,
    /// Kills of groups reach each process of it once.
    used: HashSet<(usize, u32)>,
}

impl<'w> Lines<'w> {
    fn new(kills: &'w [Kill]) -> Lines<'w> {
        let mut order: Vec<(usize, &Kill)> = kills.iter().enumerate().collect();
        order.sort_by_key(|(_, kill)| (kill.op.lo, kill.op.first));
        let mut lines: HashMap<From, Line> = HashMap::new();
        for (i, kill) in order {
            // Where the sender is not told, any will do.
            for sender in [Some(kill.op.process), None] {
                let from = (sender, kill.signal, kill.target, kill.thread);
                lines.entry(from).or_default().kills.push(i);
            }
        }
        Lines {
            kills,
            lines,
            used: HashSet::new(),
        }
    }

    /// The first kill that may have made a signal arrive, and was not the
    /// cause of another arrival.
    fn take(&mut self, sender: Option<u32>, arrival: &Arrival) -> Option<&'w Kill> {
        let process = arrival.op.process;
        let mut best: Option<usize> = None;
        for target in [Some(process), None] {
            for thread in [None, Some(arrival.op.thread)] {
                let from = (sender, arrival.signal, target, thread);
                let Some(line) = self.lines.get_mut(&from) else {
                    continue;
                };
                if target.is_some() {
                    while let Some(i) = line.kills.get(line.first)
                        && self.used.contains(&(*i, process))
                    {
                        line.first += 1;
                    }
                }
                let rest = line.kills.get(line.first..).unwrap_or(&[]);
                let time = |i: &usize| self.kills.get(*i).map_or(u64::MAX, |kill| kill.op.lo);
                let found = rest
                    .iter()
                    .take_while(|i| time(i) <= arrival.op.hi)
                    .filter(|i| !self.used.contains(&(**i, process)))
                    .find(|i| self.kills.get(**i).is_some_and(|kill| fits(kill, arrival)));
                if let Some(found) = found
                    && best.is_none_or(|best| time(found) < time(&best))
                {
                    best = Some(*found);
                }
            }
        }
        let best = best?;
        self.used.insert((best, process));
        let kill = self.kills.get(best)?;
        if arrival.signal < QUEUED && kill.target.is_some() {
            // Others that were sent before this one arrived went with it.
            let from = (sender, kill.signal, kill.target, kill.thread);
            if let Some(line) = self.lines.get_mut(&from) {
                while let Some(i) = line.kills.get(line.first)
                    && let Some(other) = self.kills.get(*i)
                    && other.op.hi < arrival.op.lo
                {
                    self.used.insert((*i, process));
                    line.first += 1;
                }
            }
        }
        Some(kill)
    }
}

/// Pairs kills with arrivals, and the ends of children with who learnt of
/// them: calls `emit` with cause and effect.
pub(crate) fn pair(world: &World<'_>, mut emit: impl FnMut(Kind, &Op, &Op)) {
    let mut lines = Lines::new(&world.kills);
    let mut alarms: HashMap<u32, Vec<&Op>> = HashMap::new();
    for set in &world.alarms {
        alarms.entry(set.process).or_default().push(set);
    }
    for sets in alarms.values_mut() {
        sets.sort_by_key(|set| set.last);
    }
    for arrival in &world.arrivals {
        let effect = &arrival.op;
        match arrival.code {
            SI_USER | SI_TKILL | SI_QUEUE => {
                let sender = match arrival.pid {
                    0 => Some(None),
                    _ => arrival.sender.map(Some),
                };
                let kill = sender.and_then(|sender| lines.take(sender, arrival));
                if let Some(kill) = kill {
                    emit(Kind::Signal, &kill.op, effect);
                }
            }
            1..=3 if arrival.signal == SIGCHLD => {
                if let Some(child) = arrival.sender
                    && let Some(last) = world.last_op(child)
                {
                    emit(Kind::Exit, &last, effect);
                }
            }
            SI_KERNEL | SI_TIMER => {
                let timed = matches!(arrival.signal, 14 | 26 | 27) || arrival.code == SI_TIMER;
                if timed && let Some(sets) = alarms.get(&arrival.op.process) {
                    // The last that was set before.
                    let after = sets.partition_point(|set| set.last < arrival.op.last);
                    if let Some(set) = after.checked_sub(1).and_then(|at| sets.get(at)) {
                        emit(Kind::Timer, set, effect);
                    }
                }
            }
            _ => {}
        }
    }
    let mut fatal: HashMap<u32, Vec<&Kill>> = HashMap::new();
    for kill in world.kills.iter().filter(|kill| kill.signal == SIGKILL) {
        if let Some(target) = kill.target {
            fatal.entry(target).or_default().push(kill);
        }
    }
    for waited in &world.waited {
        let effect = &waited.op;
        if let Some(last) = world.last_op(waited.child) {
            emit(Kind::Exit, &last, effect);
        }
        // What killed it left no trace in its own log.
        if waited.signal == SIGKILL {
            let kills = fatal.get(&waited.child).into_iter().flatten();
            let first = kills
                .filter(|kill| kill.op.lo <= waited.op.hi)
                .min_by_key(|kill| (kill.op.lo, kill.op.first));
            if let Some(kill) = first {
                emit(Kind::Signal, &kill.op, effect);
            }
        }
    }
}

fn fits(kill: &Kill, arrival: &Arrival) -> bool {
    match (arrival.code, kill.value) {
        (SI_QUEUE, Some(value)) => value == arrival.value,
        (SI_QUEUE, None) => false,
        (_, Some(_)) => arrival.pid == 0,
        (_, None) => true,
    }
}
