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

/// Pairs kills with arrivals, and the ends of children with who learnt of
/// them: calls `emit` with cause and effect.
pub(crate) fn pair(world: &World<'_>, mut emit: impl FnMut(Kind, (u32, u32), &Op)) {
    let mut by_sender: HashMap<(u32, u32), Vec<usize>> = HashMap::new();
    let mut by_signal: HashMap<u32, Vec<usize>> = HashMap::new();
    let mut order: Vec<usize> = (0..world.kills.len()).collect();
    order.sort_by_key(|i| world.kills.get(*i).map(|kill| (kill.op.lo, kill.op.first)));
    for i in order {
        if let Some(kill) = world.kills.get(i) {
            by_sender
                .entry((kill.op.process, kill.signal))
                .or_default()
                .push(i);
            by_signal.entry(kill.signal).or_default().push(i);
        }
    }
    let mut used: HashSet<(usize, u32)> = HashSet::new();
    for arrival in &world.arrivals {
        let effect = &arrival.op;
        match arrival.code {
            SI_USER | SI_TKILL | SI_QUEUE => {
                // Where the sender is not told, any will do.
                let list = if arrival.pid == 0 {
                    by_signal.get(&arrival.signal)
                } else {
                    world
                        .process_with(arrival.pid, arrival.op.hi)
                        .and_then(|sender| by_sender.get(&(sender, arrival.signal)))
                };
                let found = list.into_iter().flatten().find(|i| {
                    !used.contains(&(**i, arrival.op.process))
                        && world
                            .kills
                            .get(**i)
                            .is_some_and(|kill| reaches(kill, arrival))
                });
                if let Some((i, kill)) = found.and_then(|i| Some((i, world.kills.get(*i)?))) {
                    used.insert((*i, arrival.op.process));
                    emit(Kind::Signal, (kill.op.process, kill.op.first), effect);
                }
            }
            1..=3 if arrival.signal == SIGCHLD => {
                if let Some(child) = world.process_with(arrival.pid, arrival.op.hi)
                    && let Some(last) = world.last_event(child)
                {
                    emit(Kind::Exit, (child, last), effect);
                }
            }
            SI_KERNEL | SI_TIMER => {
                let timed = matches!(arrival.signal, 14 | 26 | 27) || arrival.code == SI_TIMER;
                if timed && let Some(set) = latest(&world.alarms, &arrival.op) {
                    emit(Kind::Timer, (set.process, set.first), effect);
                }
            }
            _ => {}
        }
    }
    for waited in &world.waited {
        let effect = &waited.op;
        if let Some(last) = world.last_event(waited.child) {
            emit(Kind::Exit, (waited.child, last), effect);
        }
        // What killed it left no trace in its own log.
        if waited.signal == SIGKILL {
            let kills = by_signal.get(&SIGKILL).into_iter().flatten();
            let found = kills
                .filter_map(|i| world.kills.get(*i))
                .find(|kill| kill.target == Some(waited.child) && kill.op.lo <= waited.op.hi);
            if let Some(kill) = found {
                emit(Kind::Signal, (kill.op.process, kill.op.first), effect);
            }
        }
    }
}

fn reaches(kill: &Kill, arrival: &Arrival) -> bool {
    kill.op.lo <= arrival.op.hi
        && kill
            .target
            .is_none_or(|target| target == arrival.op.process)
        && (!arrival.handled || kill.thread.is_none_or(|thread| thread == arrival.op.thread))
        && match (arrival.code, kill.value) {
            (SI_QUEUE, Some(value)) => value == arrival.value,
            (SI_QUEUE, None) => false,
            (_, Some(_)) => arrival.pid == 0,
            (_, None) => true,
        }
}

/// The last of a process's own that began before `op`.
fn latest<'a>(sets: &'a [Op], op: &Op) -> Option<&'a Op> {
    sets.iter()
        .rev()
        .find(|set| set.process == op.process && set.last < op.last)
}
