//! In which order events are listed: whatever their times say, none before its
//! causes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::convert::Infallible;
use std::sync::Arc;

use causality::{EventId, History};
use protocol::id::{EventNo, ProcessIx, Ticks};
use protocol::record::{begin, kind, tag};
use query::events::{Filter, Source, each};
use query::{Names, walk::Walk};
use recording::render::Limits;
use recording::synthetic::{LogBuilder, image, manifest};
use recording::{Recording, Set, Summary, Writer};

const READ: u64 = 0;
const WRITE: u64 = 1;
const PIPE: u64 = 22;
const FORK: u64 = 57;

/// Three processes and two pipes. The second writes, which wakes the third
/// before the second has noted that it wrote; so it goes on from the third to the
/// first. By their times all of it happened the other way round.
fn write(dir: &std::path::Path) {
    let mut logs = vec![LogBuilder::new(0, 4096)];
    logs[0]
        .at(2000)
        .other(kind::BEGIN, &[begin::FIRST, 0, 0, 100, 0, 0], &[]);
    for pipe in 0..2i32 {
        let fds = [3 + 2 * pipe, 4 + 2 * pipe].map(i32::to_le_bytes).concat();
        logs[0].call(PIPE, &[0x7000], 0, &[(0, &fds)]);
    }
    for process in 1..3u64 {
        let by = logs[0].number();
        let (child, now) = (process.to_le_bytes(), 2000 + 1000 * process);
        let blobs = [(tag::CHILD, child.as_slice())];
        logs[0]
            .at(now)
            .call(FORK, &[], 100 + process as i64, &blobs);
        let mut log = LogBuilder::new(process as u32, 4096);
        let values = [begin::FORK, 0, by, 100 + process, 0, 0];
        log.at(now + 500).other(kind::BEGIN, &values, &[]);
        logs.push(log);
    }
    logs[1]
        .at(9000)
        .call(WRITE, &[4, 0x7000, 1], 1, &[(1, b"x")]);
    logs[2]
        .at(8000)
        .call(READ, &[3, 0x7000, 1], 1, &[(1, b"x")]);
    logs[2]
        .at(8600)
        .call(WRITE, &[6, 0x7000, 1], 1, &[(1, b"y")]);
    logs[0]
        .at(8300)
        .call(READ, &[5, 0x7000, 1], 1, &[(1, b"y")]);
    let writer = Writer::create(dir, &manifest(&["pipes"])).unwrap();
    writer.start(&image(0, 0, 100, &["pipes"])).unwrap();
    for log in logs {
        for chunk in log.chunks() {
            writer.chunk(&chunk).unwrap();
        }
    }
    let summary = Summary {
        time: Ticks(10_000),
        complete: false,
        ..Summary::default()
    };
    writer.finish(&summary).unwrap();
}

fn walked(history: &History, places: &[u32]) -> Vec<EventId> {
    let set = history.set();
    let names = Names::of_members(set.members().map(|own| Names::given(own)));
    let places: Vec<ProcessIx> = places.iter().map(|place| ProcessIx(*place)).collect();
    let walk = Walk::new(set, Some(history), &names, &places, Limits::default());
    let mut found = Vec::new();
    let all = walk.each(|step| {
        found.push(history.event_of(step.member, step.event).unwrap());
        Ok::<bool, Infallible>(true)
    });
    assert_eq!(all, Ok(()));
    found
}

#[test]
fn nothing_is_listed_before_what_led_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("recording");
    write(&dir);
    let set = Arc::new(Set::of(Arc::new(Recording::open(&dir).unwrap())));
    let history = History::build_of(&set, &|_| {}).unwrap();
    assert_eq!(history.dropped(), 0);
    for places in [&[0u32, 1, 2][..], &[0, 1], &[1, 2], &[0, 2]] {
        let found = walked(&history, places);
        let events: u64 = places
            .iter()
            .map(|place| {
                let (first, last) = history.span(ProcessIx(*place));
                last.0 + 1 - first.0
            })
            .sum();
        assert_eq!(found.len() as u64, events, "{places:?}");
        for (at, event) in found.iter().enumerate() {
            let past = history.past(*event);
            for later in &found[at + 1..] {
                assert!(!past.has(*later), "{later:?} led to {event:?}: {found:?}");
            }
        }
    }
    // The four in question, in their order.
    let id = |process, number| EventId::new(ProcessIx(process), EventNo(number));
    let found = walked(&history, &[0, 1, 2]);
    assert_eq!(
        found[found.len() - 4..],
        [id(1, 1), id(2, 1), id(2, 2), id(0, 5)]
    );
}

/// An end that is given by a time leaves out what was later, and nothing else.
#[test]
fn an_end_by_time_leaves_out_what_was_later() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("recording");
    write(&dir);
    let set = Arc::new(Set::of(Arc::new(Recording::open(&dir).unwrap())));
    let history = History::build_of(&set, &|_| {}).unwrap();
    let names = Names::of_members(set.members().map(|own| Names::given(own)));
    let source = Source {
        set: &set,
        names: &names,
        history: Some(&history),
        links: true,
    };
    let clock = set.member(0).unwrap().clock();
    let filter = Filter {
        to: Some(query::events::Moment::Time(
            clock.since_start_ns(Ticks(8610)),
        )),
        ..Filter::default()
    };
    let mut found = Vec::new();
    each(source, &filter, Limits::default(), |listed| {
        found.push(listed.event.time.0);
        Ok::<bool, query::Error>(true)
    })
    .unwrap();
    found.sort_unstable();
    // An event is noted ten ticks after what its log was told.
    assert!(found.ends_with(&[8010, 8310, 8610]), "{found:?}");
}
