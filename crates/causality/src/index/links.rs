//! Links in the index, both ways, and the clocks that are kept now and then.

use zerocopy::little_endian::{U32, U64};

use super::build::{NO, ranges};
use super::file::Builder;
use super::layout::*;
use crate::clock::{self, Graph, SPACING};
use crate::link::Link;

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
    // Mostly there are few: what is near is looked at first, all of which is in the
    // processor's cache then.
    let mut near = 8;
    while rest.get(near).is_some_and(|link| link.effect.get() < to) {
        near *= 2;
    }
    let rest = rest.get(..near).unwrap_or(rest);
    let len = rest.partition_point(|link| link.effect.get() < to);
    rest.get(..len).unwrap_or(&[])
}

/// Circles that are undone one by one.
const PATIENCE: u64 = 64;

/// Links, both ways, and clocks. Returns how many links were left out.
pub(super) fn put_links(
    builder: &mut Builder,
    processes: &mut [ProcessRec],
    links: Vec<Link>,
) -> u64 {
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

pub(super) fn record(link: &Link) -> InRec {
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
