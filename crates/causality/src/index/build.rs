//! Makes an index of what was found in the logs.

use std::collections::HashMap;

use recording::Set;
use zerocopy::little_endian::{I64, U16, U32};

use super::channels::put_channels;
use super::file::Builder;
use super::layout::*;
use super::links::put_links;
use super::waits::put_waits;
use crate::files::FileSpan;
use crate::sweep::{self, Progress};
use crate::world::{LONG, World};
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
        let first = set
            .process(place)
            .map_or(0, |process| process.first_event.0 as u32);
        record.first = U32::new(first);
        record.last = U32::new(world.last_event(place.0).unwrap_or(first));
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

pub(super) fn put_text(text: &mut Vec<u8>, word: &str) -> Range {
    let from = text.len();
    text.extend_from_slice(word.as_bytes());
    Range::new(from, word.len())
}

/// Ranges of records of each process, in a list that is sorted by process.
pub(super) fn ranges<T>(
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
