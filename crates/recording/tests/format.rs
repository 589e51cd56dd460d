//! The format on disk: what is written is read, and whatever the bytes are,
//! reading them neither panics nor lies.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../../../tests/seed.rs"]
mod seed;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use protocol::id::{EventNo, ProcessNo, ThreadNo, Ticks};
use protocol::record::{begin, kind, tag};
use recording::calls::nr;
use recording::process::Began;
use recording::render::{Limits, Renderer};
use recording::synthetic::{FULL, LogBuilder, TAKEN, image, manifest, write_arena};
use recording::{
    Exit, FileInfo, LogEnd, Note, Phase, Recording, Status, Summary, ThreadNames, Timeline, Writer,
    frame,
};

/// A small generator of numbers, the same in every run.
struct Random(u64);

impl Random {
    fn seeded(usual: u64) -> Self {
        Self(seed::seed("logs", usual))
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// How often a test tries: `MW_TEST_ROUNDS=100` makes it a hundred times that.
fn rounds(usual: u64) -> u64 {
    let times = std::env::var("MW_TEST_ROUNDS")
        .ok()
        .and_then(|n| n.parse::<u64>().ok());
    usual * times.unwrap_or(1)
}

/// What an event should be read as.
#[derive(Debug, PartialEq, Clone)]
struct Seen {
    process: u32,
    number: u64,
    thread: u32,
    kind: u8,
    nr: u64,
    args: [u64; 6],
    result: Option<i64>,
    blobs: Vec<(u8, Vec<u8>)>,
}

fn seen(event: &recording::Event<'_>) -> Seen {
    Seen {
        process: event.process.0,
        number: event.number.0,
        thread: event.thread.0,
        kind: event.kind,
        nr: event.nr,
        args: event.args,
        result: event.result,
        blobs: event.blobs().map(|b| (b.tag, b.bytes.to_vec())).collect(),
    }
}

/// A log of random events, and what should be read of it.
fn random_log(
    random: &mut Random,
    process: u32,
    capacity: usize,
    events: u64,
) -> (Vec<Vec<u8>>, Vec<Seen>) {
    let mut log = LogBuilder::new(process, capacity);
    let mut expected = Vec::new();
    let mut thread = 0;
    let mut blocked: Vec<Option<(u64, [u64; 6])>> = vec![None; 4];
    let (how, pid) = if process == 1 {
        (begin::FIRST, 100)
    } else {
        (begin::FORK, 100 + process)
    };
    let values = [how, 1, 0, u64::from(pid), 0, 0];
    log.other(kind::BEGIN, &values, &[]);
    expected.push(Seen {
        process,
        number: 0,
        thread: 0,
        kind: kind::BEGIN,
        nr: 0,
        args: [0; 6],
        result: None,
        blobs: vec![],
    });
    while (expected.len() as u64) < events {
        if random.below(5) == 0 {
            thread = random.below(4) as u32;
            log.thread(thread);
            continue;
        }
        let mut event = Seen {
            process,
            number: log.number(),
            thread,
            kind: kind::CALL,
            nr: random.below(400),
            args: [0; 6],
            result: Some(random.below(1000) as i64 - 500),
            blobs: (0..random.below(3))
                .map(|i| {
                    let len = match random.below(20) {
                        0 => random.below(2000),
                        _ => random.below(30),
                    };
                    // Mostly of arguments, now and then of any kind.
                    let tag = if random.below(4) == 0 {
                        random.below(0x80)
                    } else {
                        i
                    };
                    (tag as u8, random.bytes(len as usize))
                })
                .collect(),
        };
        for arg in event.args.iter_mut().take(random.below(7) as usize) {
            *arg = random.next() >> random.below(64);
        }
        let blobs = event.blobs.clone();
        let blobs: Vec<(u8, &[u8])> = blobs.iter().map(|(t, b)| (*t, b.as_slice())).collect();
        let slot = &mut blocked[thread as usize];
        match (slot.take(), random.below(3)) {
            (Some((nr, args)), _) => {
                log.end(nr, event.result.unwrap(), &blobs);
                event = Seen {
                    kind: kind::END,
                    nr,
                    args,
                    ..event
                };
            }
            (None, 0) => {
                log.start(event.nr, &event.args, &blobs);
                *slot = Some((event.nr, event.args));
                event = Seen {
                    kind: kind::START,
                    result: None,
                    ..event
                };
            }
            (None, _) => {
                log.call(event.nr, &event.args, event.result.unwrap(), &blobs);
            }
        }
        expected.push(event);
    }
    (log.chunks(), expected)
}

fn read_all(recording: &Recording, process: u32) -> (Vec<Seen>, LogEnd) {
    let mut log = recording.log(ProcessNo(process));
    let mut all = Vec::new();
    while log.advance() {
        all.push(seen(&log.event().unwrap()));
    }
    (all, log.end().unwrap().clone())
}

fn touch_everything(dir: &Path) {
    let Ok(recording) = Recording::open(dir) else {
        return;
    };
    for process in recording.processes() {
        recording.life(process);
        for image in recording.images_of(process) {
            let _ = recording.image_start(image);
        }
    }
    recording.survey();
    let mut timeline = Timeline::new(&recording, recording.processes().iter().map(|p| p.number));
    let mut renderer = Renderer::new(
        &recording,
        &ThreadNames::given(&recording),
        Limits::default(),
    );
    let mut count = 0;
    while timeline.advance() {
        let event = timeline.event().unwrap();
        seen(&event);
        renderer.before(&event);
        renderer.text(&event);
        renderer.details(&event, 100);
        renderer.after(&event);
        count += 1;
        assert!(count < 1_000_000);
    }
}

#[test]
fn what_is_written_is_read() {
    let mut random = Random::seeded(1);
    for round in 0..rounds(8) {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::create(dir.path(), &manifest(&["prog"])).unwrap();
        let mut logs = Vec::new();
        for process in 1..4 {
            // From chunks that hold a byte each to chunks of full size.
            let capacity = match round % 4 {
                0 => 49 + random.below(3) as usize,
                1 => 60 + random.below(100) as usize,
                2 => 4096,
                _ => 1 << 18,
            };
            logs.push(random_log(&mut random, process, capacity, 300));
        }
        writer.start(&image(1, 0, 101, &["prog", "-x"])).unwrap();
        let longest = logs.iter().map(|(chunks, _)| chunks.len()).max().unwrap();
        for i in 0..longest {
            for (chunks, _) in &logs {
                if let Some(chunk) = chunks.get(i) {
                    match random.below(2) {
                        0 => writer.chunk(chunk).unwrap(),
                        _ => writer.last_chunk(chunk).unwrap(),
                    }
                }
            }
        }
        let file = FileInfo {
            id: 7,
            path: b"/lib/x".to_vec(),
            size: 3,
            ..FileInfo::default()
        };
        let note = Note {
            process: ProcessNo(1),
            kind: "refused".into(),
            text: "io_uring".into(),
        };
        let status = Status {
            process: Some(ProcessNo(2)),
            pid: 102,
            wait_status: 9,
            time: Ticks(99),
        };
        let summary = Summary {
            time: Ticks(1 << 30),
            complete: true,
            ..Summary::default()
        };
        writer.file(&file).unwrap();
        writer.note(&note).unwrap();
        writer.status(&status).unwrap();
        writer.finish(&summary).unwrap();
        // It takes no more room than it needs.
        let journal = dir.path().join("journal").metadata().unwrap();
        assert!(journal.blocks() * 512 <= journal.len().next_multiple_of(4096) + 4096);

        let recording = Recording::open(dir.path()).unwrap();
        assert!(recording.is_complete() && recording.damage().is_empty());
        assert_eq!(recording.files(), [file]);
        assert_eq!(recording.notes(), [note]);
        assert_eq!(recording.statuses(), [status]);
        assert_eq!(recording.summary(), Some(&summary));
        let first = recording.images().first().unwrap();
        assert_eq!(
            recording.image_start(first).unwrap(),
            image(1, 0, 101, &["prog", "-x"])
        );
        let names: Vec<_> = recording
            .processes()
            .iter()
            .map(|p| p.name.as_str())
            .collect();
        assert_eq!(names, ["prog-0", "prog-1", "prog-2"]);
        for (process, (_, expected)) in (1..4).zip(&logs) {
            let (read, end) = read_all(&recording, process);
            assert_eq!(&read, expected);
            assert_eq!(end, LogEnd::Whole);
            let life = recording.life(recording.process(ProcessNo(process)).unwrap());
            assert_eq!(life.events, expected.len() as u64);
            // From any event on.
            for number in [0, 1, 57, 299] {
                let log = recording
                    .log_at(ProcessNo(process), EventNo(number))
                    .unwrap();
                let event = log.event().unwrap();
                assert_eq!(
                    (event.number, event.nr),
                    (EventNo(number), expected[number as usize].nr)
                );
            }
            assert!(recording.log_at(ProcessNo(process), EventNo(300)).is_none());
        }
        let mut timeline = Timeline::new(&recording, [1, 2, 3].map(ProcessNo));
        let (mut count, mut last) = (0, Ticks(0));
        while timeline.advance() {
            let event = timeline.event().unwrap();
            assert!(event.time >= last);
            last = event.time;
            count += 1;
        }
        assert_eq!(count, 900);
    }
}

#[test]
fn an_end_knows_the_arguments_of_its_start() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), &manifest(&["prog"])).unwrap();
    let mut log = LogBuilder::new(1, 60);
    log.other(kind::BEGIN, &[begin::FIRST, 0, 0, 10, 0, 0], &[]);
    log.start(0, &[5, 0x1000, 64], &[]);
    log.thread(1).start(1, &[6, 0x2000, 2], &[(1, b"hi")]);
    log.thread(0).end(0, 3, &[(1, b"abc")]);
    log.thread(1).end(1, 2, &[]);
    log.end(7, 0, &[]);
    for chunk in log.chunks() {
        writer.chunk(&chunk).unwrap();
    }
    let recording = Recording::open(dir.path()).unwrap();
    let mut log = recording.log_at(ProcessNo(1), EventNo(3)).unwrap();
    let event = log.event().unwrap();
    // It is looked for in the chunks before.
    assert_eq!(
        (event.phase, event.args_known, event.started),
        (Phase::End, true, Some(EventNo(1)))
    );
    log = recording.log(ProcessNo(1));
    assert!(log.advance_to(EventNo(3)));
    let event = log.event().unwrap();
    assert_eq!(
        (event.args[0], event.args[2], event.started),
        (5, 64, Some(EventNo(1)))
    );
    assert_eq!(event.argument(1).unwrap().bytes, b"abc");
    assert!(log.advance());
    let event = log.event().unwrap();
    assert_eq!(
        (event.thread, event.args[0], event.started),
        (ThreadNo(1), 6, Some(EventNo(2)))
    );
    assert_eq!(event.argument(1).unwrap().bytes, b"hi");
    assert!(log.advance());
    assert!(!log.event().unwrap().args_known);
}

/// Who is killed in its first instants has a log with nothing in it. Its parent knows it.
#[test]
fn who_has_written_nothing_is_known_by_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), &manifest(&["prog"])).unwrap();
    let mut log = LogBuilder::new(1, 4096);
    log.other(kind::BEGIN, &[begin::FIRST, 0, 0, 10, 0, 0], &[]);
    log.call(nr::FORK, &[], 11, &[(tag::CHILD, &2u64.to_le_bytes())]);
    log.call(
        nr::WAIT4,
        &[11, 0x1000, 0, 0],
        11,
        &[(1, &9i32.to_le_bytes())],
    );
    let silent = LogBuilder::new(2, 4096).chunks();
    assert_eq!(silent.len(), 1);
    for chunk in log.chunks().iter().chain(&silent) {
        writer.chunk(chunk).unwrap();
    }
    let recording = Recording::open(dir.path()).unwrap();
    let process = recording.process(ProcessNo(2)).unwrap();
    assert_eq!(
        (process.pid, process.parent, process.parent_event),
        (11, Some(ProcessNo(1)), Some(EventNo(1)))
    );
    assert_eq!(process.began, Began::Fork);
    let killed = Exit::Killed {
        signal: 9,
        core: false,
    };
    assert_eq!(recording.life(process).exit, killed);
}

/// A small recording with everything in it; returns its journal.
fn sample(dir: &Path, random: &mut Random) -> Vec<u8> {
    let writer = Writer::create(dir, &manifest(&["prog"])).unwrap();
    writer.start(&image(1, 0, 101, &["prog"])).unwrap();
    for process in 1..3 {
        for chunk in random_log(random, process, 300, 40).0 {
            writer.chunk(&chunk).unwrap();
        }
    }
    writer
        .note(&Note {
            process: ProcessNo(1),
            kind: "refused".into(),
            text: "x".into(),
        })
        .unwrap();
    writer
        .status(&Status {
            process: None,
            pid: 102,
            wait_status: 0,
            time: Ticks(5000),
        })
        .unwrap();
    writer
        .finish(&Summary {
            complete: true,
            ..Summary::default()
        })
        .unwrap();
    fs::read(dir.join("journal")).unwrap()
}

#[test]
fn a_journal_torn_at_any_byte_is_read_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let journal = sample(dir.path(), &mut Random::seeded(2));
    let whole = Recording::open(dir.path()).unwrap();
    let expected: Vec<_> = (1..3).map(|p| read_all(&whole, p).0).collect();
    let mut most = 0;
    for len in (0..journal.len()).rev() {
        fs::write(dir.path().join("journal"), &journal[..len]).unwrap();
        let recording = Recording::open(dir.path()).unwrap();
        assert!(!recording.is_complete());
        let mut events = 0;
        for (process, expected) in (1..3).zip(&expected) {
            let (read, end) = read_all(&recording, process);
            assert_eq!(read[..], expected[..read.len()]);
            assert!(!end.is_damage(), "{end:?}");
            events += read.len();
        }
        // Each damage is the tail, and all of what was lost.
        if let Some(damage) = recording.damage().first() {
            assert!(damage.is_tail && damage.at + damage.len == len as u64);
        }
        most = most.max(events);
    }
    assert_eq!(most, 80);
}

#[test]
fn what_is_left_in_the_arena_is_read() {
    let mut random = Random::seeded(3);
    let (chunks, expected) = random_log(&mut random, 1, 300, 60);
    let count = chunks.len();
    assert!(count > 6);
    // Everything only there, in any order; then some in the journal; then
    // some in both, one of them damaged in the journal.
    for journalled in [0, 3, count] {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::create(dir.path(), &manifest(&["prog"])).unwrap();
        for chunk in &chunks[..journalled] {
            writer.chunk(chunk).unwrap();
        }
        let mut left: Vec<(u32, &[u8])> = chunks[journalled.saturating_sub(2)..]
            .iter()
            .map(|chunk| (FULL, chunk.as_slice()))
            .collect();
        left.reverse();
        left[0].0 = TAKEN;
        // A free place that still looks like a chunk, and a taken one that
        // holds nothing yet.
        left.push((1, &chunks[0]));
        left.push((TAKEN, &[]));
        write_arena(&dir.path().join("arena"), &left).unwrap();
        let recording = Recording::open(dir.path()).unwrap();
        assert!(recording.has_arena() && !recording.is_complete());
        assert_eq!(read_all(&recording, 1), (expected.clone(), LogEnd::Whole));

        if journalled > 1 {
            // Damage the last chunk in the journal: the arena has it as well.
            let path = dir.path().join("journal");
            let mut journal = fs::read(&path).unwrap();
            let mut heads: Vec<usize> = (0..journal.len() - 4)
                .filter(|i| &journal[*i..i + 4] == b"MWJF")
                .collect();
            let last = heads.pop().unwrap();
            journal[last + 40] ^= 1;
            fs::write(&path, &journal).unwrap();
            let recording = Recording::open(dir.path()).unwrap();
            assert_eq!(read_all(&recording, 1), (expected.clone(), LogEnd::Whole));
        }
    }
}

/// A recording that is read while it ends: what has left the arena since it was opened is in the
/// journal.
#[test]
fn what_leaves_the_arena_meanwhile_is_read() {
    let mut random = Random::seeded(5);
    let (chunks, expected) = random_log(&mut random, 1, 300, 60);
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), &manifest(&["prog"])).unwrap();
    let arena = dir.path().join("arena");
    let left: Vec<(u32, &[u8])> = chunks.iter().map(|chunk| (FULL, &chunk[..])).collect();
    write_arena(&arena, &left).unwrap();
    let recording = Recording::open(dir.path()).unwrap();
    for chunk in &chunks {
        writer.chunk(chunk).unwrap();
    }
    // The places of some are others' now, those of the rest are gone.
    let others = LogBuilder::new(7, 60).chunks();
    write_arena(&arena, &[(TAKEN, &others[0][..])]).unwrap();
    let (read, end) = read_all(&recording, 1);
    assert_eq!(end, LogEnd::Whole);
    assert_eq!(read, expected);
}

#[test]
fn a_missing_chunk_ends_the_log_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), &manifest(&["prog"])).unwrap();
    let (chunks, expected) = random_log(&mut Random::seeded(4), 1, 300, 60);
    for (i, chunk) in chunks.iter().enumerate() {
        if i != 3 {
            writer.chunk(chunk).unwrap();
        }
    }
    let recording = Recording::open(dir.path()).unwrap();
    let (read, end) = read_all(&recording, 1);
    assert_eq!(end, LogEnd::Gap { missing: 3 });
    assert!(!read.is_empty() && read.len() < expected.len());
    assert_eq!(read[..], expected[..read.len()]);
    assert_eq!(recording.survey().ends.get(&ProcessNo(1)), Some(&end));
    assert_eq!(
        recording
            .life(recording.process(ProcessNo(1)).unwrap())
            .log_end,
        end
    );
}

#[test]
fn damage_in_the_middle_is_stepped_over_and_never_believed() {
    let dir = tempfile::tempdir().unwrap();
    let journal = sample(dir.path(), &mut Random::seeded(5));
    let whole = Recording::open(dir.path()).unwrap();
    let expected: Vec<_> = (1..3).map(|p| read_all(&whole, p).0).collect();
    let mut random = Random::seeded(6);
    let path = dir.path().join("journal");
    for _ in 0..rounds(400) {
        let mut bytes = journal.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                2 => drop(
                    bytes.drain(
                        at..(at + random.below(100) as usize)
                            .min(journal.len() - 400)
                            .max(at),
                    ),
                ),
                _ => {
                    let insert = random.bytes(random.0 as usize % 50);
                    bytes.splice(at..at, insert);
                }
            }
        }
        fs::write(&path, &bytes).unwrap();
        let recording = Recording::open(dir.path()).unwrap();
        for (process, expected) in (1..3).zip(&expected) {
            // A log whose beginning is lost begins later, but every event that
            // is read is one that was written.
            let (read, _) = read_all(&recording, process);
            for event in read {
                let written = &expected[event.number as usize];
                assert_eq!(
                    (event.nr, event.result, event.blobs),
                    (written.nr, written.result, written.blobs.clone())
                );
            }
        }
        touch_everything(dir.path());
    }
}

/// Wherever a bit is wrong, in a head or behind it, a reader is told.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let journal = sample(dir.path(), &mut Random::seeded(7));
    let path = dir.path().join("journal");
    let magic = frame::MAGIC.as_slice();
    let heads = journal.windows(magic.len()).enumerate();
    let heads = heads.filter_map(|(at, window)| (window == magic).then_some(at));
    let in_heads = heads.flat_map(|at| at * 8..(at + frame::HEAD) * 8);
    let elsewhere = (0..journal.len()).map(|at| at * 8 + at % 8);
    // (Not written anew each time: some file systems wait for the disk then.)
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for bit in in_heads.chain(elsewhere) {
        let (at, bit) = (bit / 8, bit % 8);
        let write = |byte: u8| file.write_all_at(&[byte], at as u64).unwrap();
        write(journal[at] ^ 1 << bit);
        let recording = Recording::open(dir.path()).unwrap();
        let survey = recording.survey();
        let told = !recording.damage().is_empty() || survey.ends.values().any(LogEnd::is_damage);
        let head = journal[..=at].windows(4).rposition(|w| w == magic);
        assert!(told, "bit {bit} of byte {at}, in the frame at {head:?}");
        drop(recording);
        write(journal[at]);
    }
}

#[test]
fn no_bytes_in_an_arena_make_the_reader_panic() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), &manifest(&["prog"])).unwrap();
    writer.start(&image(1, 0, 101, &["prog"])).unwrap();
    let mut random = Random::seeded(7);
    let (chunks, _) = random_log(&mut random, 1, 300, 40);
    for _ in 0..rounds(200) {
        let mut chunks = chunks.clone();
        for _ in 0..=random.below(4) {
            let i = random.below(chunks.len() as u64) as usize;
            let at = random.below(chunks[i].len() as u64) as usize;
            chunks[i][at] = random.next() as u8;
        }
        let left: Vec<_> = chunks
            .iter()
            .map(|chunk| (FULL, chunk.as_slice()))
            .collect();
        write_arena(&dir.path().join("arena"), &left).unwrap();
        touch_everything(dir.path());
    }
}

#[test]
fn what_is_not_a_recording_is_called_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let message = |path: &Path| Recording::open(path).err().unwrap().to_string();
    assert!(message(&dir.path().join("nothing")).starts_with("there is no recording at "));
    assert!(message(dir.path()).ends_with("is not a recording: it has no manifest.json"));
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(message(&dir.path().join("file")).ends_with("it is not a directory"));
    let manifest_path = dir.path().join("manifest.json");
    fs::write(&manifest_path, "{}").unwrap();
    assert!(message(dir.path()).contains("is damaged: missing field `format`"));
    fs::write(&manifest_path, r#"{"format": 1000, "new": true}"#).unwrap();
    assert!(message(dir.path()).contains("recorded in format 1000; this mw reads formats up to"));
    fs::write(
        &manifest_path,
        serde_json::to_vec(&manifest(&["x"])).unwrap(),
    )
    .unwrap();
    assert!(message(dir.path()).ends_with("is incomplete: its journal is missing"));
    for len in 0..40 {
        fs::write(dir.path().join("journal"), vec![0; len]).unwrap();
        touch_everything(dir.path());
    }
}

#[test]
fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _writer = Writer::create(dir.path(), &manifest(&["x"])).unwrap();
    let error = Writer::create(dir.path(), &manifest(&["x"])).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
}

/// Runs on a file system of one megabyte (see the test below).
#[test]
#[ignore = "run by a_full_disk_leaves_a_whole_journal_and_room_to_say_so"]
fn inside_a_small_disk() {
    let dir = std::env::var_os("MW_TEST_SMALL_DISK").unwrap();
    let dir = Path::new(&dir);
    let writer = Writer::create(dir, &manifest(&["prog"])).unwrap();
    let mut random = Random::seeded(8);
    let (mut seq, mut data) = (0, Vec::new());
    let error = loop {
        // Nothing that zstd could make smaller.
        let mut log = LogBuilder::new(1, 1 << 16);
        data.clear();
        data.extend(random.bytes(60_000));
        log.call(0, &[0, 0, 60_000], 60_000, &[(1, &data)]);
        let mut chunk = log.chunks().remove(0);
        chunk[8..12].copy_from_slice(&u32::to_le_bytes(seq));
        chunk[24..32].copy_from_slice(&u64::from(seq).to_le_bytes());
        match writer.chunk(&chunk) {
            Ok(()) => seq += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    // Others take what is left of the disk: there is still room to say so.
    let _ = fs::write(dir.join("other"), vec![0; 1 << 20]);
    let note = Note {
        process: ProcessNo(0),
        kind: "disk-full".into(),
        text: "the disk is full".into(),
    };
    writer.note(&note).unwrap();
    writer.finish(&Summary::default()).unwrap();
    let recording = Recording::open(dir).unwrap();
    assert!(recording.damage().is_empty() && seq > 2);
    assert_eq!(recording.notes(), [note]);
    let (read, end) = read_all(&recording, 1);
    assert_eq!((read.len() as u32, end), (seq, LogEnd::Whole));
}

#[test]
fn a_full_disk_leaves_a_whole_journal_and_room_to_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m none \"$0\" || exit 99
        exec \"$1\" --exact inside_a_small_disk --ignored";
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .env("MW_TEST_SMALL_DISK", dir.path())
        .output();
    let Ok(output) = output else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) || errors.starts_with("unshare:") {
        // This machine gives nobody a file system of their own.
        return;
    }
    assert!(
        output.status.success(),
        "{}{errors}",
        String::from_utf8_lossy(&output.stdout)
    );
}
