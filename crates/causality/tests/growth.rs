//! Cost grows linearly with events, and questions do not wait for long. What it
//! is at 1, 3 and 10 million events the bench `index` tells; here it is only that
//! nothing is far off, on a machine that may be busy with other things.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../benches/servers/mod.rs"]
mod servers;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causality::{EventId, History, Limits, Order};
use protocol::id::{EventNo, ProcessIx};
use recording::Recording;

/// How long it takes to find the causes, at best, and how large the index is.
fn index(dir: &Path) -> (Duration, u64) {
    let recording = Arc::new(Recording::open(dir).unwrap());
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let history = History::build(&recording, &|_| {}).unwrap();
        assert_eq!((history.guesses(), history.dropped()), (0, 0));
        least = least.min(begun.elapsed());
    }
    let size = std::fs::metadata(History::path(&recording)).unwrap().len();
    (least, size)
}

#[test]
fn cost_grows_with_events_and_not_faster() {
    const FEW: u64 = 30_000;
    const TIMES: u64 = 20;
    let home = tempfile::tempdir().unwrap();
    let (few, many) = (home.path().join("few"), home.path().join("many"));
    servers::make(&few, FEW);
    servers::make(&many, FEW * TIMES);
    let (short, small) = index(&few);
    let (long, large) = index(&many);
    // Quadratic would be 400 times as long.
    let ratio = long.as_secs_f64() / short.as_secs_f64();
    assert!(
        ratio < TIMES as f64 * 7.0,
        "{TIMES} times the events took {ratio:.0} times as long"
    );
    assert!(large < small * TIMES * 2, "{small} bytes became {large}");
    questions(&many);
}

/// Ten times as long as they may take is far more than they take.
fn questions(dir: &Path) {
    const LONGEST: Duration = Duration::from_millis(500);
    let begun = Instant::now();
    let recording = Arc::new(Recording::open(dir).unwrap());
    let history = History::open(&recording, &|_| {}).unwrap();
    assert!(!history.was_built());
    let end = |place: u32| history.span(ProcessIx(place)).1.0;
    let late = EventId::new(ProcessIx(42), EventNo(end(42) - 5));
    let early = EventId::new(ProcessIx(17), EventNo(300));
    assert_eq!(history.order(early, late), Order::Before);
    let path = history.path_between(early, late).unwrap();
    // A proof: it begins after the one and ends before the other, and each link
    // begins where the one before it has come to.
    assert_eq!(path.first().unwrap().cause.process, early.process);
    assert!(path.first().unwrap().cause.number >= early.number);
    assert_eq!(path.last().unwrap().effect.process, late.process);
    assert!(path.last().unwrap().effect.number <= late.number);
    for pair in path.windows(2) {
        assert_eq!(pair[0].effect.process, pair[1].cause.process);
        assert!(pair[0].effect.number <= pair[1].cause.number);
    }
    let cut = history.past(late);
    assert!(history.is_consistent(&cut) && cut.has(early));
    assert!(history.is_consistent(&history.latest(early)));
    assert!(!history.explain(late, Limits::default()).is_empty());
    assert!(!history.is_damaged());
    // What was not needed was not looked at: answers are as quick among a
    // hundred times as many events. (`is_consistent` looks at all links.)
    let fresh = History::open(&recording, &|_| {}).unwrap();
    assert_eq!(fresh.order(early, late), Order::Before);
    assert!(fresh.past(late).has(early));
    assert!(!fresh.explain(late, Limits::default()).is_empty());
    let size = std::fs::metadata(History::path(&recording)).unwrap().len();
    let looked = fresh.looked_at();
    assert!(looked * 5 < size, "{looked} of {size} bytes were looked at");
    let took = begun.elapsed();
    assert!(took < LONGEST * 5, "five questions took {took:?}");
}
