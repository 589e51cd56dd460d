//! What a log is scanned for, against asking every event.
//!
//! The scan passes over what concerns no pattern and reads no more of it than its kind and
//! call. Histories at random make sure that nothing is passed over that a pattern fits, or
//! that decides later what a descriptor leads to.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../../../tests/mutate.rs"]
mod mutate;
#[path = "../../../tests/seed.rs"]
mod seed;

use std::path::Path;
use std::sync::Arc;

use causality::History;
use conditions::check::{Options, check};
use conditions::recorded::Recorded;
use conditions::rules::{Failed, Rules};
use conditions::source::{Events, Symbols};
use conditions::truth::Nobody;
use events::{Matcher, Pattern, parse};
use mutate::Random;
use protocol::id::{ProcessIx, Ticks};
use protocol::record::{begin, kind, tag};
use protocol::syscall::Type;
use recording::model::{Held, Inherited, Joined, Observed};
use recording::render::{Limits, Renderer};
use recording::synthetic::{BlobList, LogBuilder, image, manifest};
use recording::{Phase, Recording, Summary, ThreadNames, Writer};

/// Patterns; whether each asks what only the end of a call knows, and whether it says itself
/// which part of a call is meant.
const PATTERNS: &[(&str, bool, bool)] = &[
    ("send", false, false),
    ("recv", false, false),
    ("file", false, false),
    ("not send", false, false),
    ("not (recv or lock or wake)", false, false),
    ("send and bytes ~ \"a\"", false, false),
    ("recv and bytes ~ /b(?<x>.)/", false, false),
    ("bytes ~ \"b\"", false, false),
    ("length > 2", false, false),
    ("file and length < 3", false, false),
    ("send and result > 2", true, false),
    ("result < 0 or connect", true, false),
    ("failed", true, false),
    ("send and failed", true, false),
    ("error = EAGAIN", true, false),
    ("phase = start", false, true),
    ("send and phase = end", false, true),
    ("recv and phase = start", false, true),
    ("phase = none", false, true),
    ("call = write", false, false),
    ("read", false, false),
    ("call = futex and not lock", false, false),
    ("lock or wake", false, false),
    ("exec or exit or fork", false, false),
    ("signal", false, false),
    ("thread", false, false),
    ("time", false, false),
    ("system", false, false),
    ("process", false, false),
    ("connect", false, false),
    ("thread = *-1", false, false),
    ("arg.fd = 3", false, false),
    ("send and arg.fd = 4", false, false),
];

const CALLS: &[u64] = &[
    0, 1, 0, 1, 0, 1, 20, 19, 17, 18, 44, 45, 46, 47, 47, 3, 3, 32, 33, 72, 42, 43, 41, 22, 53,
    257, 2, 80, 436, 202, 202, 56, 61, 62, 59, 60, 228, 24, 400, 511, 512, 100_000,
];

const AT_FDCWD: u64 = -100i64 as u64;

/// Rights in a control message.
fn rights(fd: u32) -> Vec<u8> {
    let mut control = 20u64.to_le_bytes().to_vec();
    control.extend(1u32.to_le_bytes());
    control.extend(1u32.to_le_bytes());
    control.extend(fd.to_le_bytes());
    control
}

fn identity(mode: u64) -> Vec<u8> {
    [7, 77, mode]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

const MODES: [u64; 4] = [0o100644, 0o010600, 0o140777, 0o020620];

/// A few events of a process, of any kind and in any order.
fn events(random: &mut Random, log: &mut LogBuilder, count: usize) {
    let mut open: Vec<(u32, u64)> = Vec::new();
    let mut thread = 0;
    for _ in 0..count {
        if random.once_in(4) {
            thread = random.below(3) as u32;
            log.thread(thread);
        }
        let (text, other) = (b"abba-bab".repeat(1 + random.below(3)), rights(3));
        let text = &text[..random.below(text.len())];
        let (mode, path) = (identity(*random.pick(&MODES)), b"/etc/notes");
        let mut blobs: Vec<(u8, &[u8])> = Vec::new();
        let nr = *random.pick(CALLS);
        match nr {
            2 => blobs.push((0, path)),
            257 | 59 => blobs.push((1, path)),
            22 | 53 => blobs.push((if nr == 22 { 0 } else { 3 }, &[3, 0, 0, 0, 4, 0, 0, 0])),
            _ if random.once_in(3) => {}
            _ => blobs.push((1, text)),
        }
        if random.once_in(6) {
            blobs.push((tag::IDENTITY, &mode));
        }
        if random.once_in(8) {
            blobs.push((tag::CONTROL, &other));
        }
        let fd = 3 + random.below(3) as u64;
        let args = match nr {
            257 => [AT_FDCWD, 0x5000, 0, 0, 0, 0],
            53 | 41 => [1, 1, 0, 0, 0, 0],
            56 => [[0x1_0000, 0][random.below(2)], 0, 0, 0, 0, 0],
            202 => [0x6000, random.below(10) as u64, 1, 0, 0, 0],
            436 => [4, 5, [0, 4][random.below(2)], 0, 0, 0],
            72 => [fd, [0, 2, 1030][random.below(3)], 1, 0, 0, 0],
            _ => [fd, 3 + random.below(3) as u64, text.len() as u64, 0, 0, 0],
        };
        let result = match random.below(4) {
            0 => -11,
            1 => text.len() as i64,
            _ => 3 + random.below(3) as i64,
        };
        let none: BlobList<'_> = &[];
        match random.below(12) {
            0 => _ = log.other(kind::SIGNAL, &[10, 0], &[]),
            1 if random.once_in(3) => _ = log.other(kind::PREEMPT, &[], &[]),
            1 if random.once_in(2) => {
                log.other(kind::BEGIN, &[begin::EXEC, 0, 0, 100, 1, 0], &[]);
                (open, thread) = (Vec::new(), 0);
            }
            1 => _ = log.other(kind::ANSWER, &[1, 1], &[]),
            2..5 => _ = log.call(nr, &args, result, &blobs),
            5..8 => {
                // What a call begins with, or what it ends with, is known of it.
                let own = if random.once_in(2) { &blobs } else { none };
                log.start(nr, &args, own);
                open.push((thread, nr));
                if random.once_in(2) {
                    log.end(nr, result, &blobs);
                    open.pop();
                }
            }
            8 => _ = log.end(nr, result, &blobs),
            _ => {
                let own = open.iter().rposition(|(by, _)| *by == thread);
                if let Some(own) = own {
                    let (_, nr) = open.remove(own);
                    log.end(nr, result, &blobs);
                }
            }
        }
    }
}

fn held(fd: i32, target: &str, mode: u64) -> Held {
    Held {
        descriptor: Inherited {
            fd,
            target: target.to_string(),
            mode: mode as u32,
        },
        ..Held::default()
    }
}

/// Somebody who was there already, their child, and somebody of whom the beginning is lost.
fn write(dir: &Path, random: &mut Random) {
    let mut logs: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut first = LogBuilder::new(0, 200 + random.below(2000));
    first.other(kind::BEGIN, &[begin::JOINED, 0, 0, 100, 0, 0], &[]);
    events(random, &mut first, 20);
    let by = first.number();
    first.call(57, &[], 101, &[(tag::CHILD, &1u64.to_le_bytes())]);
    events(random, &mut first, 60);
    logs.push(first.chunks());
    let mut second = LogBuilder::new(1, 200 + random.below(2000));
    second.at(2_000_000);
    second.other(kind::BEGIN, &[begin::FORK, 0, by, 101, 0, 0], &[]);
    events(random, &mut second, 60);
    logs.push(second.chunks());
    let mut third = LogBuilder::new(2, 200);
    third.other(kind::BEGIN, &[begin::JOINED, 0, 0, 102, 0, 0], &[]);
    events(random, &mut third, 60);
    let mut late = third.chunks();
    late.drain(..late.len() / 2);
    logs.push(late);

    let mut manifest = manifest(&["any"]);
    manifest.observed = Some(Observed {
        number: 0,
        joined: [0, 2]
            .into_iter()
            .map(|process| Joined {
                process: protocol::id::ProcessNo(process),
                descriptors: vec![
                    held(3, "pipe:[17]", 0o010600),
                    held(4, "/etc/notes", 0o100644),
                    held(5, "socket:[18]", 0o140777),
                ],
            })
            .collect(),
    });
    let writer = Writer::create(dir, &manifest).unwrap();
    for (process, pid) in [(0, 100), (2, 102)] {
        writer.start(&image(process, 0, pid, &["any"])).unwrap();
    }
    for chunk in logs.iter().flatten() {
        writer.chunk(chunk).unwrap();
    }
    let summary = Summary {
        time: Ticks(9_000_000),
        complete: true,
        ..Summary::default()
    };
    writer.finish(&summary).unwrap();
}

/// So many histories.
const ROUNDS: u64 = 60;

/// What others can see before a call is over.
fn acts_at_start(kind: Type) -> bool {
    matches!(
        kind,
        Type::Send | Type::Connect | Type::Wake | Type::Fork | Type::Exec | Type::Exit
    )
}

#[test]
fn nothing_is_passed_over_that_a_pattern_fits() {
    let first = seed::seed("scan", 1);
    let patterns: Vec<Pattern> = PATTERNS
        .iter()
        .map(|(text, ..)| parse(text).unwrap_or_else(|error| panic!("{text}: {error}")))
        .collect();
    let home = tempfile::tempdir().unwrap();
    let mut fitted = vec![0; PATTERNS.len()];
    let mut asked_for = 0;
    for seed in first..first + ROUNDS {
        let mut random = Random::new(seed);
        let dir = home.path().join(seed.to_string());
        write(&dir, &mut random);
        let recording = Arc::new(Recording::open(&dir).unwrap());
        let history = History::open(&recording, &|_| {}).unwrap();
        let names = ThreadNames::given(&recording);
        let recorded = Recorded::new(&history, names.clone());
        for process in 0..recording.processes().len() {
            let number = recording.processes()[process].number;
            // Every event, one after the other, and for each pattern.
            let mut wanted: Vec<(u32, u64)> = Vec::new();
            let mut renderer = Renderer::new(&recording, &names, Limits::default());
            let mut log = recording.log(number);
            while log.advance() {
                let event = log.event().unwrap();
                renderer.before(&event);
                let own = renderer.type_of(&event);
                for (letter, (pattern, (_, needs_end, has_phase))) in
                    patterns.iter().zip(PATTERNS).enumerate()
                {
                    let at_start = acts_at_start(own) && !needs_end;
                    let counts = match event.phase {
                        Phase::Start => at_start,
                        Phase::End => !at_start,
                        Phase::Call | Phase::None => true,
                    };
                    let matcher = Matcher::new(pattern.clone(), &history, &names);
                    if (counts || *has_phase) && matcher.fits(&event, &renderer) {
                        wanted.push((letter as u32, event.number.0));
                        fitted[letter] += 1;
                    }
                }
                renderer.after(&event);
            }
            // All patterns at once read nearly everything; each by itself passes over the
            // most.
            let alone = patterns
                .iter()
                .zip(0u32..)
                .map(|(own, letter)| vec![(letter, own)]);
            let together: Vec<(u32, &Pattern)> = (0u32..).zip(&patterns).collect();
            for list in alone.chain([together]) {
                let mut found: Vec<(u32, u64)> = Vec::new();
                recorded.scan(process, &list, &Symbols::default(), &mut |seen| {
                    let number = u64::from(seen.at.bound) - 1;
                    found.extend(seen.set.iter().map(|own| (own.letter, number)));
                });
                let asked = |letter: &u32| list.iter().any(|(own, _)| own == letter);
                let expected = wanted.iter().filter(|(letter, _)| asked(letter));
                let mut expected: Vec<(u32, u64)> = expected.copied().collect();
                let in_order = |(letter, number): &(u32, u64)| (*number, *letter);
                expected.sort_unstable_by_key(in_order);
                found.sort_unstable_by_key(in_order);
                let words: Vec<&str> = list
                    .iter()
                    .map(|(own, _)| PATTERNS[*own as usize].0)
                    .collect();
                assert_eq!(
                    found,
                    expected,
                    "MW_SEED={seed}: {words:?} in {}",
                    history.set().process_name(ProcessIx(process as u32))
                );
                asked_for += 1;
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert_eq!(asked_for, ROUNDS as usize * 3 * (PATTERNS.len() + 1));
    for (count, (text, ..)) in fitted.iter().zip(PATTERNS) {
        assert!(*count > 0, "no event was ever one of `{text}`");
    }
}

#[test]
fn who_is_not_in_the_recording_is_named_where_it_is_written() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("any");
    write(&dir, &mut Random::new(1));
    let recording = Arc::new(Recording::open(&dir).unwrap());
    let history = History::open(&recording, &|_| {}).unwrap();
    let recorded = Recorded::new(&history, ThreadNames::given(&recording));
    let text =
        "let a = send\nlet b = (recv or send) and process = any-10 and length > 2\nfind x: a -> b";
    let rules = Rules::parse("rules", text, None).unwrap();
    let failed = check(&rules, &recorded, &mut Nobody, Options { witnesses: 1 }).unwrap_err();
    let Failed::Wrong(error) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!((error.line, error.column), (2, 38), "{error}");
    assert_eq!(error.near.as_deref(), Some("any-100"), "{error}");
}
