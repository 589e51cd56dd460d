//! Patterns that nobody means: whatever is typed is a pattern or is refused
//! with the place where it goes wrong, and what is a pattern can be asked.
//!
//! `scripts/fuzz` goes on for longer; `MW_SEED` begins elsewhere.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../../../tests/mutate.rs"]
mod mutate;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causality::History;
use events::{Matcher, Pattern, parse};
use mutate::{Random, changed, goes_on};
use recording::render::{Limits, Renderer};
use recording::synthetic::story;
use recording::{Recording, ThreadNames, Timeline};

const PATTERNS: &[&[u8]] = &[
    b"send",
    b"send and process = bank-client-* and bytes ~ /^transfer 0 /",
    b"recv and bytes ~ PING",
    b"bytes = \"PING\\r\\n\"",
    b"not (send or recv) and linked",
    b"(accept or connect) and port = 6379",
    b"result < 0 and error = EAGAIN",
    b"size >= 1.5k and time > 0.5s and time < 2m",
    b"call = sendto and thread != main-0",
    b"peer = server-0 and channel = c12",
    b"path ~ /\\.so(\\.[0-9]+)*$/ or path = \"/etc/*\"",
    b"signal and call ~ SIGTERM",
    b"fd = 3 and not outside",
    b"type = fork or type = exec or type = exit",
    b"bytes ~ /(?i)a{2,5}[b-d]+|\\x00\\n\\d/",
];

const WORDS: &[&[u8]] = &[
    b" and ",
    b" or ",
    b" not ",
    b"(",
    b")",
    b"((((",
    b"))))",
    b"not not not ",
    b"=",
    b"!=",
    b"<",
    b">=",
    b"~",
    b"/",
    b"//",
    b"\"",
    b"\\",
    b"\"\\x\"",
    b"/(/",
    b"/a{1000}{1000}{1000}/",
    b"/[/",
    b"*",
    b"?",
    b"-1",
    b"0x",
    b"99999999999999999999",
    b"1e400",
    b"5kk",
    b"0.0.0",
    b"process",
    b"thread",
    b"bytes",
    b"time",
    b"size",
    b"result",
    b"\xff",
    b"\xc3",
    b"\x00",
    b"\xe2\x80\xa8",
    b"\n",
];

/// Far longer than any takes, on a loaded machine too.
const LONG: Duration = Duration::from_secs(20);

/// Reads it, and checks what is said of it.
fn read(text: &str) -> Option<Pattern> {
    let begun = Instant::now();
    let answer = parse(text);
    assert!(begun.elapsed() < LONG, "it took {:?}", begun.elapsed());
    match answer {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            // Columns are of characters, from 1 to just behind the last.
            let columns = text.chars().count() + 1;
            assert!(
                (1..=columns).contains(&error.column),
                "column {} of {columns}",
                error.column
            );
            None
        }
    }
}

/// Asks about every event of a recording, walking through it and by itself: the
/// answer is the same.
fn ask(pattern: Pattern, history: &History) {
    let recording = history.recording();
    let names = ThreadNames::default();
    let matcher = Matcher::new(pattern, history, &names);
    let all = recording.processes().iter().map(|process| process.number);
    let mut timeline = Timeline::new(recording, all);
    let mut renderer = Renderer::new(recording, &names, Limits::default());
    while timeline.advance() {
        let event = timeline.event().unwrap();
        renderer.before(&event);
        let walking = matcher.fits(&event, &renderer);
        renderer.after(&event);
        let id = history.event_id(&event).unwrap();
        assert_eq!(matcher.fits_at(id), Some(walking), "{id:?}");
    }
}

#[test]
fn whatever_is_typed_is_a_pattern_or_refused() {
    let first = seed::seed("patterns", 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("story");
    story::write(&path).unwrap();
    let recording = Arc::new(Recording::open(&path).unwrap());
    let history = History::open(&recording, &|_| {}).unwrap();
    let begun = Instant::now();
    let (mut round, mut patterns) = (0, 0u64);
    while goes_on(begun, round, 20_000) {
        let seed = first.wrapping_add(round);
        let bytes = changed(&mut Random::new(seed), PATTERNS, WORDS);
        let text = String::from_utf8_lossy(&bytes);
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| {
            read(&text).map(|pattern| ask(pattern, &history))
        }));
        match ended {
            Ok(asked) => patterns += u64::from(asked.is_some()),
            Err(_) => panic!("MW_SEED={seed}: {}", text.escape_debug()),
        }
        round += 1;
    }
    eprintln!("{round} texts, {patterns} of them patterns");
    assert!(patterns > round / 50, "the changes leave nothing to ask");
}

/// What is nested without end does not take the stack with it.
#[test]
fn depth_is_limited() {
    for (open, close) in [
        ("(", ")"),
        ("not ", ""),
        ("not (", ")"),
        ("(send and ", ")"),
    ] {
        for depth in [10, 1000, 100_000] {
            let text = format!("{}send{}", open.repeat(depth), close.repeat(depth));
            let small = std::thread::Builder::new().stack_size(512 * 1024);
            let reader = small.spawn(move || drop(read(&text))).unwrap();
            assert!(reader.join().is_ok(), "{depth} times `{open}`");
        }
    }
    for glue in [" and ", " or "] {
        let long = vec!["send"; 20_000].join(glue);
        let reader = std::thread::Builder::new()
            .spawn(move || drop(read(&long)))
            .unwrap();
        assert!(reader.join().is_ok(), "{glue}");
    }
}
