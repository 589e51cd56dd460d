//! Waits in the index: who waited for what.

use protocol::id::{ProcessIx, ThreadNo};
use zerocopy::little_endian::{U32, U64};

use super::build::{NO, ranges};
use super::file::Builder;
use super::layout::*;
use crate::world::{Wait, WaitFor, World};

pub(super) fn put_waits(builder: &mut Builder, processes: &mut [ProcessRec], world: &World<'_>) {
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
