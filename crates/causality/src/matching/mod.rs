//! Which operation caused which, now that all operations on every object are
//! known.

mod counter;
mod datagrams;
mod futexes;
mod locks;
mod mailbox;
mod order;
pub(crate) mod ready;
mod signals;
pub(crate) mod stream;
mod streams;
mod terminal;

use std::collections::{HashMap, HashSet};

use protocol::id::{EventNo, ProcessIx, ThreadNo};
use recording::Set;

use crate::link::{EventId, Kind, Link};
use crate::world::World;
use crate::world::objects::{Chan, Flow, Key, Op};
use ready::Origins;

fn link(kind: Kind, cause: &Op, effect: &Op, channel: Option<u32>, amount: u64) -> Link {
    Link {
        cause: EventId::new(ProcessIx(cause.process), EventNo(cause.first.into())),
        effect: EventId::new(ProcessIx(effect.process), EventNo(effect.last.into())),
        thread: ThreadNo(effect.thread),
        cause_thread: Some(ThreadNo(cause.thread)),
        kind,
        channel,
        amount,
    }
}

/// Links as they are found, and what is needed to find more.
#[derive(Default)]
struct Found {
    links: Vec<Link>,
    /// What each receive took came from.
    origins: Origins,
    /// Of each channel, the first send of which something was left when all was
    /// over.
    rests: HashMap<u32, Op>,
}

impl Found {
    fn add(&mut self, kind: Kind, cause: &Op, effect: &Op, channel: Option<u32>, amount: u64) {
        self.links.push(link(kind, cause, effect, channel, amount));
    }
}

/// Finds all links. Returns them with the number of times that the order of
/// racing operations had to be guessed.
pub(crate) fn run(set: &Set, world: &mut World<'_>) -> (Vec<Link>, u64) {
    let mut found = Found {
        links: std::mem::take(&mut world.links),
        ..Found::default()
    };
    datagrams::pair(world, &mut found.links);
    let (orders, guesses) = order::orders(set, world);
    let guesses = guesses + world.guessed_pairs;
    streams::link_all(
        world,
        &orders,
        &mut found.links,
        &mut found.origins,
        &mut found.rests,
    );
    for (number, channel) in (0u32..).zip(&world.channels) {
        match channel.flow {
            Flow::Count(single) => counts(number, channel, single, &mut found),
            Flow::Packets => packets(number, channel, &mut found),
            _ => {}
        }
        ends(set, number, channel, &mut found);
    }
    for pty in &world.terminals {
        terminal::link_all(world, pty, &mut found.links, &mut found.origins);
    }
    waits(world, &mut found);
    timers(world, &mut found);
    for (wait, process) in &world.ends_seen {
        if let Some(last) = world.last_op(*process).filter(|last| last.lo <= wait.hi) {
            found.add(Kind::Ready, &last, wait, None, 0);
        }
    }
    futexes::pair(std::mem::take(&mut world.futexes), |wake, wait| {
        found.add(Kind::Wake, wake, wait, None, 0);
    });
    locks::pair(std::mem::take(&mut world.locks), |release, lock| {
        found.add(Kind::Lock, release, lock, None, 0);
    });
    signalled(world, &mut found);
    merge(&mut found.links);
    (found.links, guesses)
}

/// Units of counters.
fn counts(number: u32, channel: &Chan, single: bool, found: &mut Found) {
    let waited = !channel.ready.is_empty();
    let mut left = 0u64;
    counter::pair(
        &channel.sends,
        &channel.recvs,
        &channel.resets,
        single,
        |w, r, units| {
            if let (Some(w), Some(r)) = (channel.sends.get(w), channel.recvs.get(r)) {
                found.add(Kind::Count, w, r, Some(number), units);
                if waited {
                    ready::note(&mut found.origins, r, w);
                    left = left.max(w.lo);
                }
            }
        },
    );
    let rest = channel.sends.iter().filter(|send| send.lo > left);
    if let Some(rest) = rest.min_by_key(|send| send.lo).filter(|_| waited) {
        found.rests.insert(number, *rest);
    }
}

/// Messages that are taken whole.
fn packets(number: u32, channel: &Chan, found: &mut Found) {
    let waited = !channel.ready.is_empty();
    let list = |ops: &[Op], keys: &[Key]| -> Vec<(Op, Key)> {
        ops.iter().copied().zip(keys.iter().copied()).collect()
    };
    let sends = list(&channel.sends, &channel.sent_keys);
    let recvs = list(&channel.recvs, &channel.received_keys);
    let mut taken = HashSet::new();
    let mut got = HashSet::new();
    mailbox::pair(
        &sends,
        &recvs,
        |_, _| true,
        |s, r| {
            taken.insert(s);
            got.insert(r);
            if let (Some((s, _)), Some((r, _))) = (sends.get(s), recvs.get(r)) {
                found.add(Kind::Message, s, r, Some(number), r.amount);
                if waited {
                    ready::note(&mut found.origins, r, s);
                }
            }
        },
    );
    // Nothing at all is the end, unless somebody sent nothing.
    let ends = recvs.iter().enumerate();
    let ends = ends.filter(|(r, (op, _))| op.amount == 0 && !got.contains(r));
    let ends: Vec<Op> = ends.map(|(_, (op, _))| *op).collect();
    last_before(&channel.ended, &ends, |cause, effect| {
        found.add(Kind::Close, cause, effect, Some(number), 0);
        if waited {
            ready::note(&mut found.origins, effect, cause);
        }
    });
    if waited {
        let left = (0..sends.len()).filter(|s| !taken.contains(s));
        let left = left.filter_map(|s| sends.get(s).map(|(op, _)| *op));
        let rest = left.min_by_key(|op| op.lo);
        found.rests.extend(rest.map(|op| (number, op)));
    }
}

/// That a channel has ended, as its other side learns.
fn ends(set: &Set, number: u32, channel: &Chan, found: &mut Found) {
    let waited = !channel.ready.is_empty();
    let news = [
        (&channel.eofs, &channel.ended, Kind::Close),
        (&channel.refused, &channel.abandoned, Kind::Close),
        (&channel.broken, &channel.abandoned, Kind::Ready),
    ];
    for (effects, causes, kind) in news {
        ends_before(set, causes, effects, |cause, effect| {
            found.add(kind, cause, effect, Some(number), 0);
            if waited {
                ready::note(&mut found.origins, effect, cause);
            }
        });
    }
}

/// Waits that found a channel or a listener ready.
fn waits(world: &World<'_>, found: &mut Found) {
    let Found {
        links,
        origins,
        rests,
    } = found;
    for (number, channel) in (0u32..).zip(&world.channels) {
        let mut rest: Vec<&Op> = rests.get(&number).into_iter().collect();
        rest.extend(channel.ended.last());
        let takes = channel.recvs.iter().chain(&channel.eofs);
        ready::pair(&channel.ready, takes, origins, &rest, |cause, wait| {
            links.push(link(Kind::Ready, cause, wait, Some(number), 0));
        });
    }
    for listener in &world.listeners {
        let accepts = &listener.accepts;
        let left: Vec<&Op> = listener.waiting.iter().map(|half| &half.op).collect();
        ready::pair(
            &listener.ready,
            accepts,
            &world.connects,
            &left,
            |cause, wait| {
                links.push(link(Kind::Ready, cause, wait, None, 0));
            },
        );
    }
}

fn timers(world: &World<'_>, found: &mut Found) {
    for timer in &world.timers {
        for (effects, kind) in [(&timer.reads, Kind::Timer), (&timer.ready, Kind::Ready)] {
            last_before(&timer.sets, effects, |set, effect| {
                found.add(kind, set, effect, None, 0);
            });
        }
    }
}

/// Signals, and the waits that found one to read.
fn signalled(world: &World<'_>, found: &mut Found) {
    let mut told = Origins::new();
    signals::pair(world, |kind, cause, effect| {
        let mut made = link(kind, cause, effect, None, 0);
        made.cause_thread = None;
        found.links.push(made);
        if !world.signals_ready.is_empty() {
            ready::note(&mut told, effect, cause);
        }
    });
    let read = world.arrivals.iter().filter(|arrival| !arrival.handled);
    let read: Vec<Op> = read.map(|arrival| arrival.op).collect();
    let mut waits: HashMap<u32, Vec<Op>> = HashMap::new();
    for wait in &world.signals_ready {
        waits.entry(wait.process).or_default().push(*wait);
    }
    for (process, waits) in waits {
        let own = read.iter().filter(|op| op.process == process);
        ready::pair(&waits, own, &told, &[], |cause, wait| {
            let mut made = link(Kind::Ready, cause, wait, None, 0);
            made.cause_thread = None;
            found.links.push(made);
        });
    }
}

/// Pairs each effect with the last cause that had begun by then. By how clocks are fitted
/// to each other, what ended on another host may seem to have done so later: it comes first
/// all the same, for there is no end without one.
fn ends_before(set: &Set, causes: &[Op], effects: &[Op], mut emit: impl FnMut(&Op, &Op)) {
    last_before(causes, effects, &mut emit);
    let host = |op: &Op| set.member_of(ProcessIx(op.process));
    let Some(first) = causes.iter().min_by_key(|cause| cause.lo) else {
        return;
    };
    for effect in effects.iter().filter(|effect| effect.hi < first.lo) {
        if host(first) != host(effect) {
            emit(first, effect);
        }
    }
}

/// Pairs each effect with the last cause that had begun by then.
fn last_before(causes: &[Op], effects: &[Op], mut emit: impl FnMut(&Op, &Op)) {
    if causes.is_empty() || effects.is_empty() {
        return;
    }
    let mut order: Vec<&Op> = causes.iter().collect();
    order.sort_by_key(|cause| cause.lo);
    for effect in effects {
        let after = order.partition_point(|cause| cause.lo <= effect.hi);
        if let Some(cause) = after.checked_sub(1).and_then(|at| order.get(at)) {
            emit(cause, effect);
        }
    }
}

/// One link for each cause, effect and channel; no event causes itself.
fn merge(links: &mut Vec<Link>) {
    links.retain(|link| link.cause != link.effect);
    links.sort_unstable_by_key(|link| (link.effect, link.cause, link.kind, link.channel));
    links.dedup_by(|next, kept| {
        let same = (next.effect, next.cause, next.kind, next.channel)
            == (kept.effect, kept.cause, kept.kind, kept.channel);
        if same {
            kept.amount += next.amount;
        }
        same
    });
}
