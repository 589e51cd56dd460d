//! Laws of cuts, on histories small enough to try everything.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use causality::{Cut, EventId, History, Order};
use proptest::prelude::*;
use protocol::id::{EventNo, ProcessIx, Ticks};
use protocol::record::{begin, kind, tag};
use recording::synthetic::{LogBuilder, image, manifest};
use recording::{Recording, Summary, Writer};

const PROCESSES: usize = 3;
/// Pipes, each of which anybody may write to and read from.
const PIPES: usize = 2;

/// What a process does: into which pipe or out of which, how many bytes.
#[derive(Clone, Copy, Debug)]
struct Step {
    process: usize,
    pipe: usize,
    sends: bool,
    bytes: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let parts = (0..PROCESSES, 0..PIPES, any::<bool>(), 1..6u64);
    parts.prop_map(|(process, pipe, sends, bytes)| Step {
        process,
        pipe,
        sends,
        bytes,
    })
}

/// Writes the recording of a program that makes pipes, forks and does the
/// steps that can be done. Returns the links that there must be.
fn write(dir: &Path, steps: &[Step]) -> Vec<(EventId, EventId)> {
    let mut links = Vec::new();
    let mut logs: Vec<LogBuilder> = Vec::new();
    let mut now = 2000;
    let mut first = LogBuilder::new(0, 4096);
    first
        .at(now)
        .other(kind::BEGIN, &[begin::FIRST, 0, 0, 100, 0, 0], &[]);
    for pipe in 0..PIPES as i32 {
        let fds = [3 + 2 * pipe, 4 + 2 * pipe].map(i32::to_le_bytes).concat();
        first.call(22, &[0x7000], 0, &[(0, &fds)]);
    }
    logs.push(first);
    for process in 1..PROCESSES {
        now += 1000;
        let by = logs[0].number();
        let child = (process as u64).to_le_bytes();
        logs[0]
            .at(now)
            .call(57, &[], 100 + process as i64, &[(tag::CHILD, &child)]);
        let mut log = LogBuilder::new(process as u32, 4096);
        now += 1000;
        let pid = 100 + process as u64;
        log.at(now)
            .other(kind::BEGIN, &[begin::FORK, 0, by, pid, 0, 0], &[]);
        links.push((event(0, by), event(process, 0)));
        logs.push(log);
    }
    let mut queues = vec![std::collections::VecDeque::<EventId>::new(); PIPES];
    for step in steps {
        // What is done next is done later, beyond doubt.
        now += 1000;
        logs[step.process].at(now).call(39, &[], 100, &[]);
        now += 1000;
        let log = logs[step.process].at(now);
        let own = event(step.process, log.number());
        let queue = &mut queues[step.pipe];
        let data = vec![b'x'; step.bytes as usize];
        let fd = (3 + 2 * step.pipe + usize::from(step.sends)) as u64;
        if step.sends {
            log.call(
                1,
                &[fd, 0x7000, step.bytes],
                step.bytes as i64,
                &[(1, &data)],
            );
            queue.extend(std::iter::repeat_n(own, step.bytes as usize));
        } else if !queue.is_empty() {
            let count = queue.len().min(step.bytes as usize);
            log.call(
                0,
                &[fd, 0x7000, step.bytes],
                count as i64,
                &[(1, &data[..count])],
            );
            links.extend(queue.drain(..count).map(|cause| (cause, own)));
        } else {
            // Something that concerns nobody else.
            log.call(39, &[], 100, &[]);
        }
    }
    let writer = Writer::create(dir, &manifest(&["pipes"])).unwrap();
    writer.start(&image(0, 0, 100, &["pipes"])).unwrap();
    for log in logs {
        for chunk in log.chunks() {
            writer.chunk(&chunk).unwrap();
        }
    }
    // Not complete: nobody has ended, so that no end is seen.
    let summary = Summary {
        time: Ticks(now + 1000),
        complete: false,
        ..Summary::default()
    };
    writer.finish(&summary).unwrap();
    links.sort_unstable();
    links.dedup();
    links
}

/// All consistent cuts, by trying all cuts.
fn consistent(ends: &[u32], links: &[(EventId, EventId)]) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = vec![Vec::new()];
    for end in ends {
        all = all
            .iter()
            .flat_map(|cut| (0..=*end).map(move |bound| [cut.as_slice(), &[bound]].concat()))
            .collect();
    }
    all.retain(|cut| {
        let has = |event: &EventId| event.number.0 < u64::from(cut[event.process.index()]);
        links
            .iter()
            .all(|(cause, effect)| !has(effect) || has(cause))
    });
    all
}

fn event(process: usize, number: u64) -> EventId {
    EventId::new(ProcessIx(process as u32), EventNo(number))
}

fn pointwise(cuts: &[&Vec<u32>], choose: fn(u32, u32) -> u32) -> Vec<u32> {
    let mut cuts = cuts.iter();
    let first = cuts.next().unwrap().to_vec();
    cuts.fold(first, |a, b| {
        a.iter()
            .zip(b.iter())
            .map(|(a, b)| choose(*a, *b))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn cuts_are_consistent_minimal_and_maximal(steps in prop::collection::vec(step(), 0..14)) {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("recording");
        let links = write(&dir, &steps);
        let recording = Arc::new(Recording::open(&dir).unwrap());
        let history = History::build(&recording, &|_| {}).unwrap();
        let mut found: Vec<(EventId, EventId)> =
            history.links().map(|link| (link.cause, link.effect)).collect();
        found.sort_unstable();
        found.dedup();
        prop_assert_eq!(&found, &links);

        let end = |place: usize| history.span(ProcessIx(place as u32)).1.0 as u32 + 1;
        let ends: Vec<u32> = (0..PROCESSES).map(end).collect();
        let all = consistent(&ends, &links);
        let to_cut = |bounds: &[u32]| Cut::new(bounds.to_vec());
        for bounds in &all {
            prop_assert!(history.is_consistent(&to_cut(bounds)));
        }
        let events: Vec<EventId> = (0..PROCESSES)
            .flat_map(|place| (0..ends[place]).map(move |n| event(place, n.into())))
            .collect();
        for event in &events {
            let place = event.process.index();
            // The least consistent cut with the event in it.
            let with: Vec<_> = all.iter().filter(|c| u64::from(c[place]) > event.number.0).collect();
            let past = history.past(*event);
            prop_assert_eq!(&past, &to_cut(&pointwise(&with, u32::min)), "past of {:?}", event);
            prop_assert!(history.is_consistent(&past));
            // The greatest with nothing of its process behind it.
            let until: Vec<_> = with
                .into_iter()
                .filter(|c| u64::from(c[place]) == event.number.next().0)
                .collect();
            let latest = history.latest(*event);
            prop_assert_eq!(&latest, &to_cut(&pointwise(&until, u32::max)), "latest of {:?}", event);
            prop_assert!(history.is_consistent(&latest));
        }
        for a in &events {
            for b in &events {
                let order = history.order(*a, *b);
                let place = |event: &EventId| event.process.index();
                let before = |a: &EventId, b: &EventId| {
                    // No consistent cut has the later one without the earlier.
                    all.iter().all(|c| {
                        u64::from(c[place(b)]) <= b.number.0
                            || u64::from(c[place(a)]) > a.number.0
                    })
                };
                let expected = match (before(a, b), before(b, a)) {
                    _ if a == b => Order::Same,
                    (true, _) => Order::Before,
                    (_, true) => Order::After,
                    _ => Order::Concurrent,
                };
                prop_assert_eq!(order, expected);
                // A path is a proof: each link leads on from the one before.
                if order == Order::Before {
                    let path = history.path_between(*a, *b).unwrap();
                    let mut at = *a;
                    for link in &path {
                        prop_assert_eq!(at.process, link.cause.process);
                        prop_assert!(at.number <= link.cause.number);
                        prop_assert!(links.contains(&(link.cause, link.effect)));
                        at = link.effect;
                    }
                    prop_assert!(at.process == b.process && at.number <= b.number);
                }
            }
        }
    }
}

#[test]
fn a_damaged_or_foreign_index_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("recording");
    let steps: Vec<Step> = (0..40)
        .map(|i| Step {
            process: i % 3,
            pipe: i % 2,
            sends: i % 4 < 2,
            bytes: 3,
        })
        .collect();
    write(&dir, &steps);
    let recording = Arc::new(Recording::open(&dir).unwrap());
    let path = History::path(&recording);
    let event = event(2, 20);
    let past = History::open(&recording, &|_| {}).unwrap().past(event);
    assert!(!History::open(&recording, &|_| {}).unwrap().was_built());
    let whole = std::fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(13) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&path, &bytes).unwrap();
        let mut history = History::open(&recording, &|_| {}).unwrap();
        let answer = history.ask(&|_| {}, |history| history.past(event)).unwrap();
        assert_eq!(answer, past, "byte {at}");
    }
    for len in [0, 10, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let history = History::open(&recording, &|_| {}).unwrap();
        assert!(history.was_built());
        assert_eq!(history.past(event), past);
    }
    // An index of another recording is not believed.
    let other = dir.with_file_name("other");
    write(&other, &steps[..20]);
    let other = Arc::new(Recording::open(&other).unwrap());
    std::fs::write(History::path(&other), &whole).unwrap();
    assert!(History::open(&other, &|_| {}).unwrap().was_built());
}
