//! Makes an index of what was found in the logs.

use std::collections::HashMap;

use protocol::id::{ProcessIx, ThreadNo};
use recording::Set;
use zerocopy::little_endian::{I64, U16, U32, U64};

use super::file::Builder;
use super::layout::*;
use crate::channel::RoundTrips;
use crate::clock::{self, Graph, SPACING};
use crate::files::FileSpan;
use crate::link::Link;
use crate::sweep::{self, Progress};
use crate::world::objects::{Chan, Flow, Op, What};
use crate::world::{LONG, Wait, WaitFor, World};
use crate::{matching, names};

/// In a record: none.
pub(crate) const NO: u32 = u32::MAX;
/// In [`UseRec::channel`]: it received.
pub(crate) const RECEIVES: u32 = 1 << 31;

/// Reads all members of a set and makes the index of it.
pub(crate) fn build(set: &Set, key: u64, progress: Progress<'_>) -> Vec<u8> {
    let mut world = World::new(set);
    let (events, files) = sweep::sweep(set, &mut world, progress);
    let (links, guesses) = matching::run(set, &mut world);
    let mut processes = vec![ProcessRec::default(); set.len()];
    for (place, record) in set.places().zip(&mut processes) {
        let first = set.process(place).map_or(0, |process| process.first_event);
        record.first = U32::new(first as u32);
        record.last = U32::new(world.last_event(place.0).unwrap_or(0));
        record.threads = U32::new(world.thread_count(place.0) as u32);
        record.ended = U32::new(world.end_of(place.0) as u32);
    }
    let mut builder = Builder::new();
    let mut text = Vec::new();
    let dropped = put_links(&mut builder, &mut processes, links);
    put_channels(&mut builder, &mut processes, &mut world, &mut text);
    put_waits(&mut builder, &mut processes, &world);
    put_calls(&mut builder, &mut processes, &mut world);
    put_threads(&mut builder, &mut processes, &world, &mut text);
    put_locks(&mut builder, &world, &mut text);
    put_files(&mut builder, &mut processes, &files);
    builder.section(Section::Members, &members(&world));
    builder.section(Section::Processes, &processes);
    builder.section(Section::Text, &text);
    builder.finish(key, [events, guesses, dropped])
}

/// The clocks of the members.
fn members(world: &World<'_>) -> Vec<MemberRec> {
    let fits = world.clocks.iter().map(|fit| MemberRec {
        ahead: I64::new(fit.ahead_ns),
        drift: I64::new(fit.drift_ppb),
        least: I64::new(fit.least_ns.unwrap_or(i64::MIN)),
        most: I64::new(fit.most_ns.unwrap_or(i64::MAX)),
    });
    fits.collect()
}

fn put_text(text: &mut Vec<u8>, word: &str) -> Range {
    let from = text.len();
    text.extend_from_slice(word.as_bytes());
    Range::new(from, word.len())
}

/// Ranges of records of each process, in a list that is sorted by process.
fn ranges<T>(
    list: &[T],
    count: usize,
    process: impl Fn(&T) -> u32,
    mut put: impl FnMut(usize, Range),
) {
    let mut at = 0;
    for place in 0..count {
        let rest = list.get(at..).unwrap_or(&[]);
        let len = rest.partition_point(|record| process(record) <= place as u32);
        put(place, Range::new(at, len));
        at += len;
    }
}

struct Links<'a> {
    records: &'a [InRec],
    ranges: Vec<(usize, usize)>,
    snaps: Vec<Vec<(u32, usize, usize)>>,
    bounds: Vec<BoundRec>,
}

impl Graph for Links<'_> {
    fn processes(&self) -> usize {
        self.ranges.len()
    }

    fn links(&self, process: u32, from: u32, to: u32) -> &[InRec] {
        let own = self.ranges.get(process as usize);
        let own = own.and_then(|(from, to)| self.records.get(*from..*to));
        within(own.unwrap_or(&[]), from, to)
    }

    fn clock(&self, process: u32, from: u32, to: u32) -> Option<(u32, &[BoundRec])> {
        let list = self.snaps.get(process as usize)?;
        let at = list.partition_point(|snap| snap.0 < to).checked_sub(1)?;
        let (event, begin, end) = *list.get(at)?;
        if event < from {
            return None;
        }
        Some((event, self.bounds.get(begin..end)?))
    }
}

/// The links with effects in a range.
pub(crate) fn within(links: &[InRec], from: u32, to: u32) -> &[InRec] {
    let begin = links.partition_point(|link| link.effect.get() < from);
    let rest = links.get(begin..).unwrap_or(&[]);
    let len = rest.partition_point(|link| link.effect.get() < to);
    rest.get(..len).unwrap_or(&[])
}

/// Circles that are undone one by one.
const PATIENCE: u64 = 64;

/// Links, both ways, and clocks. Returns how many links were left out.
fn put_links(builder: &mut Builder, processes: &mut [ProcessRec], links: Vec<Link>) -> u64 {
    let count = processes.len();
    let mut dropped = 0;
    let mut links = links;
    loop {
        let records: Vec<InRec> = links.iter().map(record).collect();
        let mut graph = Links {
            records: &records,
            ranges: Vec::new(),
            snaps: vec![Vec::new(); count],
            bounds: Vec::new(),
        };
        ranges(
            &links,
            count,
            |link| link.effect.process.0,
            |place, range| {
                let (from, len) = (range.from.get() as usize, range.count.get() as usize);
                graph.ranges.push((from, from + len));
                if let Some(process) = processes.get_mut(place) {
                    process.links_in = range;
                }
            },
        );
        let stuck = walk(&mut graph);
        if let Some(first) = stuck.first() {
            // Nothing that really happened makes a circle: one of its links
            // was matched wrongly. The earliest goes; in a recording that has
            // many such, all that hold something up.
            let gone = if dropped < PATIENCE {
                vec![*first]
            } else {
                stuck
            };
            dropped += gone.len() as u64;
            let mut at = 0;
            links.retain(|_| {
                at += 1;
                !gone.contains(&(at - 1))
            });
            continue;
        }
        let mut snaps = Vec::new();
        for (place, list) in graph.snaps.iter().enumerate() {
            if let Some(process) = processes.get_mut(place) {
                process.snaps = Range::new(snaps.len(), list.len());
            }
            snaps.extend(list.iter().map(|(event, begin, end)| SnapRec {
                event: U32::new(*event),
                bounds: U64::new(*begin as u64),
                count: U32::new((end - begin) as u32),
            }));
        }
        builder.section(Section::Snaps, &snaps);
        builder.section(Section::Bounds, &graph.bounds);
        builder.section(Section::In, &records);
        break;
    }
    let mut order: Vec<u32> = (0..links.len() as u32).collect();
    order.sort_by_key(|i| links.get(*i as usize).map(|link| (link.cause, link.effect)));
    let out: Vec<(u32, OutRec)> = order
        .iter()
        .filter_map(|i| {
            let link = links.get(*i as usize)?;
            let record = OutRec {
                cause: U32::new(link.cause.number.0 as u32),
                effect_process: U32::new(link.effect.process.0),
                effect: U32::new(link.effect.number.0 as u32),
                link: U32::new(*i),
            };
            Some((link.cause.process.0, record))
        })
        .collect();
    ranges(
        &out,
        count,
        |entry| entry.0,
        |place, range| {
            if let Some(process) = processes.get_mut(place) {
                process.links_out = range;
            }
        },
    );
    let out: Vec<OutRec> = out.into_iter().map(|entry| entry.1).collect();
    builder.section(Section::Out, &out);
    dropped
}

fn record(link: &Link) -> InRec {
    InRec {
        effect: U32::new(link.effect.number.0 as u32),
        thread: U32::new(link.thread.0),
        cause_process: U32::new(link.cause.process.0),
        cause: U32::new(link.cause.number.0 as u32),
        cause_thread: U32::new(link.cause_thread.map_or(NO, |thread| thread.0)),
        channel: U32::new(link.channel.unwrap_or(NO)),
        amount: U32::new(u32::try_from(link.amount).unwrap_or(u32::MAX)),
        kind: link.kind as u8,
    }
}

/// Goes through all links so that causes come before their effects, and keeps
/// a clock now and then. Returns the links that make that impossible, the
/// earliest first.
fn walk(graph: &mut Links<'_>) -> Vec<usize> {
    let count = graph.ranges.len();
    let mut next: Vec<usize> = graph.ranges.iter().map(|range| range.0).collect();
    let mut waiting: Vec<Vec<u32>> = vec![Vec::new(); count];
    let mut work: Vec<u32> = (0..count as u32).rev().collect();
    while let Some(process) = work.pop() {
        let at = process as usize;
        let (Some(mut i), Some((first, end))) =
            (next.get(at).copied(), graph.ranges.get(at).copied())
        else {
            continue;
        };
        let begin = i;
        while i < end {
            let Some(link) = graph.records.get(i) else {
                break;
            };
            let (cause_process, cause) = (link.cause_process.get(), link.cause.get());
            let ready = if cause_process == process {
                cause < link.effect.get()
            } else {
                passed(graph, &next, cause_process, cause)
            };
            if !ready {
                if cause_process == process {
                    return vec![i];
                }
                if let Some(list) = waiting.get_mut(cause_process as usize) {
                    list.push(process);
                }
                break;
            }
            i += 1;
            if let Some(place) = next.get_mut(at) {
                *place = i;
            }
            let last_of_event = graph
                .records
                .get(i)
                .filter(|_| i < end)
                .is_none_or(|other| {
                    graph
                        .records
                        .get(i - 1)
                        .is_none_or(|own| other.effect != own.effect)
                });
            if last_of_event && (i - first) / SPACING > snapped(graph, at) {
                keep(graph, process, i - 1);
            }
        }
        if i > begin
            && let Some(list) = waiting.get_mut(at)
        {
            work.append(list);
        }
    }
    // Whoever is stuck waits for somebody who is stuck.
    let heads = next.iter().zip(&graph.ranges);
    let mut stuck: Vec<usize> = heads
        .filter(|(next, range)| **next < range.1)
        .map(|(next, _)| *next)
        .collect();
    stuck.sort_by_key(|i| graph.records.get(*i).map(|link| link.effect.get()));
    stuck
}

fn snapped(graph: &Links<'_>, process: usize) -> usize {
    graph.snaps.get(process).map_or(0, Vec::len)
}

/// Whether a process has come past this event.
fn passed(graph: &Links<'_>, next: &[usize], process: u32, event: u32) -> bool {
    let at = process as usize;
    let (Some(next), Some((_, end))) = (next.get(at), graph.ranges.get(at)) else {
        return true;
    };
    if next >= end {
        return true;
    }
    graph
        .records
        .get(*next)
        .is_none_or(|link| link.effect.get() > event)
}

fn keep(graph: &mut Links<'_>, process: u32, link: usize) {
    let Some(event) = graph.records.get(link).map(|link| link.effect.get()) else {
        return;
    };
    let past = clock::past(&*graph, &[(process, event)]);
    let begin = graph.bounds.len();
    let own = past.iter().zip(0u32..).filter(|(bound, _)| **bound > 0);
    graph.bounds.extend(own.map(|(bound, process)| BoundRec {
        process: U32::new(process),
        bound: U32::new(*bound),
    }));
    let end = graph.bounds.len();
    if let Some(list) = graph.snaps.get_mut(process as usize) {
        list.push((event, begin, end));
    }
}

/// Channels, who used and held them, and how much was in them when.
fn put_channels(
    builder: &mut Builder,
    processes: &mut [ProcessRec],
    world: &mut World<'_>,
    text: &mut Vec<u8>,
) {
    let holders = holders(world);
    let mut channels = Vec::new();
    let mut groups = Vec::new();
    let mut sums: Vec<SumRec> = Vec::new();
    let mut held = Vec::new();
    let mut uses: Vec<(u32, UseRec)> = Vec::new();
    let used = |op: &Op, event: u32, channel: u32| {
        let used = UseRec {
            event: U32::new(event),
            channel: U32::new(channel),
        };
        (op.process, used)
    };
    for (number, channel) in world.channels.iter().enumerate() {
        let number = number as u32;
        let first_group = groups.len();
        for (sends, ops) in [(true, &channel.sends), (false, &channel.recvs)] {
            put_groups(ops, sends, &mut groups, &mut sums);
            uses.extend(ops.iter().flat_map(|op| {
                let channel = number | if sends { 0 } else { RECEIVES };
                let both = (op.first != op.last).then(|| used(op, op.first, channel));
                both.into_iter().chain([used(op, op.last, channel)])
            }));
        }
        // A send that never returned used it all the same, and may have sent.
        let unsure = channel.unsure.iter();
        uses.extend(unsure.map(|op| used(op, op.first, number)));
        for ops in [&channel.peeks, &channel.eofs] {
            let ops = ops.iter();
            uses.extend(ops.map(|op| used(op, op.last, number | RECEIVES)));
        }
        let first_holder = held.len();
        held.extend(holders.get(&number).into_iter().flatten().copied());
        let trips = match channel.reverse.and_then(|r| world.channels.get(r as usize)) {
            Some(back) => round_trips(channel, back),
            None => RoundTrips::default(),
        };
        let sum = |ops: &[Op]| ops.iter().map(|op| op.amount).sum::<u64>();
        let counted = !matches!(channel.flow, Flow::Count(_));
        channels.push(ChannelRec {
            kind: if channel.merged {
                MERGED
            } else {
                channel.kind as u8
            },
            forward: channel.forward.into(),
            reverse: U32::new(channel.reverse.unwrap_or(NO)),
            name: put_text(text, &channel.name),
            groups: Range::new(first_group, groups.len() - first_group),
            holders: Range::new(first_holder, held.len() - first_holder),
            sends: U64::new(channel.sends.len() as u64),
            receives: U64::new(channel.recvs.len() as u64),
            sent: U64::new(if counted { sum(&channel.sends) } else { 0 }),
            received: U64::new(if counted { sum(&channel.recvs) } else { 0 }),
            trips: [trips.count, trips.least, trips.most, trips.sum].map(U64::new),
        });
    }
    uses.sort_unstable_by_key(|(process, used)| (*process, used.event, used.channel));
    uses.dedup_by_key(|(process, used)| (*process, used.event, used.channel));
    let count = processes.len();
    ranges(
        &uses,
        count,
        |entry| entry.0,
        |place, range| {
            if let Some(process) = processes.get_mut(place) {
                process.uses = range;
            }
        },
    );
    let uses: Vec<UseRec> = uses.into_iter().map(|entry| entry.1).collect();
    builder.section(Section::Uses, &uses);
    builder.section(Section::Channels, &channels);
    builder.section(Section::Groups, &groups);
    builder.section(Section::Sums, &sums);
    builder.section(Section::Holders, &held);
}

/// What each process put in or took out, summed up in its order.
fn put_groups(ops: &[Op], sends: bool, groups: &mut Vec<GroupRec>, sums: &mut Vec<SumRec>) {
    // A send counts from its beginning, a receive from its end.
    let event = |op: &Op| if sends { op.first } else { op.last };
    let mut order: Vec<&Op> = ops.iter().collect();
    order.sort_by_key(|op| (op.process, event(op)));
    for group in order.chunk_by(|a, b| a.process == b.process) {
        let from = sums.len();
        let mut sum = 0u64;
        for op in group {
            sum = sum.saturating_add(op.amount);
            sums.push(SumRec {
                event: U32::new(event(op)),
                sum: U64::new(sum),
            });
        }
        groups.push(GroupRec {
            process: U32::new(group.first().map_or(0, |op| op.process)),
            sends: U32::new(sends.into()),
            sums: Range::new(from, sums.len() - from),
        });
    }
}

/// Who held which end of which channel, from which event to which.
fn holders(world: &mut World<'_>) -> HashMap<u32, Vec<HolderRec>> {
    let mut found: HashMap<u32, Vec<HolderRec>> = HashMap::new();
    let flows: HashMap<u32, Vec<(u32, bool)>> = {
        let mut flows: HashMap<u32, Vec<(u32, bool)>> = HashMap::new();
        for (channel, from, to) in &world.flows {
            flows.entry(*from).or_default().push((*channel, true));
            if let Some(to) = to {
                flows.entry(*to).or_default().push((*channel, false));
            }
        }
        flows
    };
    for file in 0..world.files.iter().count() as u32 {
        let (input, output) = world.channels_of(file);
        let mut ends: Vec<(u32, bool)> = Vec::new();
        ends.extend(input.map(|channel| (channel, false)));
        ends.extend(output.map(|channel| (channel, true)));
        let what = world.files.what(file);
        if let What::Socket(socket) = what {
            ends.extend(flows.get(&socket).into_iter().flatten());
        }
        for (channel, sends) in ends {
            // Of what came from outside only this end is known.
            let list = found.entry(channel).or_default();
            list.extend(world.files.holders(file).iter().map(|holder| HolderRec {
                process: U32::new(holder.process),
                from: U32::new(holder.from),
                to: U32::new(holder.to),
                sends: U32::new(sends.into()),
            }));
        }
    }
    found
}

/// From the first send after an answer to the next answer: round trips as who
/// asked saw them.
fn round_trips(there: &Chan, back: &Chan) -> RoundTrips {
    let mut trips = RoundTrips::default();
    let sends = there.sends.iter().map(|op| (op.lo, true, op.process));
    let answers = back.recvs.iter().map(|op| (op.hi, false, op.process));
    let mut both: Vec<(u64, bool, u32)> = sends.chain(answers).collect();
    both.sort_unstable();
    let mut asked: Option<u64> = None;
    for (time, sends, _) in both {
        if sends {
            asked.get_or_insert(time);
        } else if let Some(from) = asked.take() {
            trips.add(time - from);
        }
    }
    trips
}

fn put_waits(builder: &mut Builder, processes: &mut [ProcessRec], world: &World<'_>) {
    let mut waits: Vec<&Wait> = world.waits.iter().collect();
    waits.sort_by_key(|wait| (wait.process, wait.first));
    ranges(
        &waits,
        processes.len(),
        |wait| wait.process,
        |place, range| {
            if let Some(process) = processes.get_mut(place) {
                process.waits = range;
            }
        },
    );
    let records: Vec<WaitRec> = waits
        .iter()
        .map(|wait| {
            let (what, value) = encode(wait.what);
            WaitRec {
                thread: U32::new(wait.thread),
                first: U32::new(wait.first),
                last: U32::new(wait.last.unwrap_or(NO)),
                nr: U32::new(wait.nr),
                what,
                limited: wait.limited.into(),
                value: U64::new(value),
            }
        })
        .collect();
    builder.section(Section::Waits, &records);
    let polls: Vec<U32> = world
        .polls
        .iter()
        .map(|channel| U32::new(*channel))
        .collect();
    builder.section(Section::Polls, &polls);
}

fn encode(what: WaitFor) -> (u8, u64) {
    match what {
        WaitFor::Receive(channel) => (0, channel.into()),
        WaitFor::Send(channel) => (1, channel.into()),
        WaitFor::Connection => (2, 0),
        WaitFor::Accept => (3, 0),
        WaitFor::Child(child) => (4, child.map_or(0, |place| u64::from(place.0) + 1)),
        WaitFor::Wake(address) => (5, address),
        WaitFor::Lock(file) => (6, file.into()),
        WaitFor::Time => (7, 0),
        WaitFor::Signal => (8, 0),
        WaitFor::Any { from, count } => (9, u64::from(from) | u64::from(count) << 32),
        WaitFor::Other => (10, 0),
        WaitFor::Thread(thread) => (11, thread.0.into()),
    }
}

pub(crate) fn decode(what: u8, value: u64) -> WaitFor {
    match what {
        0 => WaitFor::Receive(value as u32),
        1 => WaitFor::Send(value as u32),
        2 => WaitFor::Connection,
        3 => WaitFor::Accept,
        4 => WaitFor::Child(value.checked_sub(1).map(|place| ProcessIx(place as u32))),
        11 => WaitFor::Thread(ThreadNo(value as u32)),
        5 => WaitFor::Wake(value),
        6 => WaitFor::Lock(value as u32),
        7 => WaitFor::Time,
        8 => WaitFor::Signal,
        9 => WaitFor::Any {
            from: value as u32,
            count: (value >> 32) as u32,
        },
        _ => WaitFor::Other,
    }
}

fn put_files(builder: &mut Builder, processes: &mut [ProcessRec], files: &[FileSpan]) {
    ranges(
        files,
        processes.len(),
        |span| span.process,
        |place, range| {
            if let Some(process) = processes.get_mut(place) {
                process.files = range;
            }
        },
    );
    let records: Vec<FileRec> = files
        .iter()
        .map(|span| FileRec {
            fd: U32::new(span.fd.cast_unsigned()),
            from: U32::new(span.from),
            to: U32::new(span.to),
        })
        .collect();
    builder.section(Section::Files, &records);
}

fn put_calls(builder: &mut Builder, processes: &mut [ProcessRec], world: &mut World<'_>) {
    let mut calls = std::mem::take(&mut world.calls);
    calls.retain(|call| call.last - call.first.min(call.last) <= LONG);
    calls.sort_unstable_by_key(|call| (call.process, call.first));
    ranges(
        &calls,
        processes.len(),
        |call| call.process,
        |place, range| {
            if let Some(process) = processes.get_mut(place) {
                process.calls = range;
            }
        },
    );
    let records: Vec<CallRec> = calls
        .iter()
        .map(|call| CallRec {
            first: U32::new(call.first),
            span: (call.last - call.first.min(call.last)) as u8,
            thread: U16::new(u16::try_from(call.thread).unwrap_or(u16::MAX)),
            nr: U16::new(call.nr as u16),
        })
        .collect();
    builder.section(Section::Calls, &records);
}

/// The locks on files that somebody waited for, and who had them.
fn put_locks(builder: &mut Builder, world: &World<'_>, text: &mut Vec<u8>) {
    let wanted = &world.wanted_locks;
    let mut holds: Vec<LockRec> = world
        .lock_holds
        .iter()
        .filter(|hold| wanted.contains(&hold.lock))
        .map(|hold| LockRec {
            lock: U32::new(hold.lock),
            process: U32::new(hold.process),
            from: U32::new(hold.from),
            to: U32::new(hold.to),
        })
        .collect();
    holds.sort_by_key(|hold| (hold.lock.get(), hold.process.get(), hold.from.get()));
    builder.section(Section::Locks, &holds);
    let mut wanted: Vec<u32> = wanted.iter().copied().collect();
    wanted.sort_unstable();
    let names: Vec<LockNameRec> = wanted
        .into_iter()
        .map(|lock| LockNameRec {
            lock: U32::new(lock),
            name: put_text(text, &String::from_utf8_lossy(world.path_of(lock >> 1))),
        })
        .collect();
    builder.section(Section::LockNames, &names);
}

fn put_threads(
    builder: &mut Builder,
    processes: &mut [ProcessRec],
    world: &World<'_>,
    text: &mut Vec<u8>,
) {
    let names: HashMap<(u32, u32), String> = names::threads(world.comms())
        .into_iter()
        .map(|(process, thread, name)| ((process, thread), name))
        .collect();
    let mut records = Vec::new();
    for (place, process) in processes.iter_mut().enumerate() {
        let from = records.len();
        for (thread, born, died, used) in world.threads(place as u32) {
            let name = names
                .get(&(place as u32, thread))
                .map_or("", String::as_str);
            records.push(ThreadRec {
                process: U32::new(place as u32),
                thread: U32::new(thread),
                born: U32::new(born),
                died: U32::new(died.unwrap_or(NO)),
                used: U32::new(used.unwrap_or(NO)),
                name: put_text(text, name),
            });
        }
        process.threads_at = Range::new(from, records.len() - from);
    }
    builder.section(Section::Threads, &records);
}
