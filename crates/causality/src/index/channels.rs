//! Channels in the index: who used and held them, and how much was in them when.

use std::collections::HashMap;

use zerocopy::little_endian::{U32, U64};

use super::build::{NO, RECEIVES, put_text, ranges};
use super::file::Builder;
use super::layout::*;
use crate::channel::RoundTrips;
use crate::world::World;
use crate::world::objects::{Chan, Flow, Op, What};

/// Channels, who used and held them, and how much was in them when.
pub(super) fn put_channels(
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
