//! Running replays and reading what came of them.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use inject::Image;
use protocol::replay::{difference, outcome};
use recording::Recording;

use crate::Error;
use crate::file::ReplayFile;
use crate::stream::{Stream, all_streams};
use crate::turns::Turns;
use crate::{group, player};

/// What came of one image of one process.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub process: u32,
    pub image: u32,
    /// Events of this image that were replayed.
    pub events: u64,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As recorded, to the end.
    Equal,
    Diverged(Difference),
    /// Needs what replay cannot do yet.
    Unsupported(&'static str),
    /// It was not reached: what it begins from did not get there.
    NotReached,
}

/// Where and how the replay differs from the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub event: u64,
    pub thread: u32,
    pub expected: String,
    pub found: String,
    /// Where the program was.
    pub address: u64,
}

/// Replays every process of a recording, or the one image of `only`, and what
/// it forks. `done` is called with each verdict.
pub fn verify(
    recording: &Recording,
    only: Option<u32>,
    mut done: impl FnMut(&Verdict),
) -> Result<Vec<Verdict>, Error> {
    let image = Image::load()?;
    let streams = all_streams(recording);
    let turns = Turns::of(&streams);
    let together = group::starts(&streams, &turns);
    let files = ReplayFile::files_of(recording);
    let mut file = ReplayFile::create(&image, &streams, &files)?;
    // Forked processes outlive their parents here too.
    // SAFETY: a plain system call about this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    file.set_shared(&turns.domains);
    if !together.is_empty() {
        group::run(recording, &mut file, &image, &streams, &together)?;
    }
    for (index, stream) in streams.iter().enumerate() {
        if together.contains(&index) {
            continue;
        }
        let wanted = only.is_none_or(|only| concerns(&streams, stream, only));
        if !stream.is_start() || !wanted {
            continue;
        }
        match group::set_start(recording, &mut file, &image, &streams, index) {
            Err(Error::NoImage { .. }) => continue,
            other => other?,
        }
        run(&file, &image)?;
    }
    let mut verdicts = Vec::new();
    for (index, stream) in streams.iter().enumerate() {
        if only.is_some_and(|only| only != stream.process) {
            continue;
        }
        let verdict = judge(&file, index, stream);
        done(&verdict);
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// Whether replaying `start` leads to process `number`.
fn concerns(streams: &[Stream], start: &Stream, number: u32) -> bool {
    let mut at = number;
    loop {
        if start.process == at {
            return true;
        }
        let parent = streams
            .iter()
            .find(|s| s.process == at && s.image == 0 && !s.is_start());
        match parent {
            Some(stream) if stream.parent != at => at = stream.parent,
            _ => return false,
        }
    }
}

/// One process, from its first instruction to the end of its log, and all that
/// it forks.
fn run(file: &ReplayFile, image: &Image) -> Result<(), Error> {
    player::start(file, image)?;
    loop {
        let mut status = 0;
        // SAFETY: waits for our own children.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if pid < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
            return Ok(());
        }
    }
}

fn judge(file: &ReplayFile, index: usize, stream: &Stream) -> Verdict {
    let mut verdict = Verdict {
        process: stream.process,
        image: stream.image,
        events: 0,
        outcome: Outcome::NotReached,
    };
    let Some(entry) = file.header().table.get(index) else {
        return verdict;
    };
    let event = entry.event.load(Relaxed);
    verdict.events = event.saturating_sub(entry.first_event.load(Relaxed));
    verdict.outcome = match entry.outcome.load(Acquire) {
        outcome::EQUAL => Outcome::Equal,
        outcome::UNSUPPORTED => Outcome::Unsupported(
            "it waits for the turn of another process that shares its memory, which does not come",
        ),
        outcome::DIVERGED => Outcome::Diverged(difference_of(file, index)),
        _ => Outcome::NotReached,
    };
    verdict
}

/// How the replay of a stream differs from it.
pub fn difference_of(file: &ReplayFile, index: usize) -> Difference {
    let table = &file.header().table;
    let entry = &table[index % table.len()];
    let (expected, found) = describe(entry);
    Difference {
        event: entry.event.load(Relaxed),
        thread: entry.thread.load(Relaxed),
        expected,
        found,
        address: entry.rip.load(Relaxed),
    }
}

fn describe(entry: &protocol::replay::Stream) -> (String, String) {
    let (expected, found) = (entry.expected.load(Relaxed), entry.found.load(Relaxed));
    let index = entry.index.load(Relaxed);
    let name = |nr: u64| {
        if nr == protocol::replay::NO_CALL {
            return "a read of the time-stamp counter".to_string();
        }
        protocol::table::syscall(nr).map_or(format!("system call {nr}"), |row| row.name.to_string())
    };
    match entry.difference.load(Relaxed) {
        difference::CALL => {
            let wanted = entry.expected_nr.load(Relaxed);
            let kind = match expected as u8 {
                protocol::record::kind::CALL => name(wanted),
                protocol::record::kind::START => format!("{} begins", name(wanted)),
                protocol::record::kind::END => format!("{} returns", name(wanted)),
                protocol::record::kind::CLOCK => format!("{} (a clock)", name(wanted)),
                protocol::record::kind::TSC => name(protocol::replay::NO_CALL),
                protocol::record::kind::SIGNAL => "a signal".to_string(),
                protocol::record::kind::PREEMPT => "a preemption".to_string(),
                other => format!("a record of kind {other}"),
            };
            (kind, name(entry.found_nr.load(Relaxed)))
        }
        difference::ARGUMENT => (
            format!("argument {index} = {expected:#x}"),
            format!("{found:#x}"),
        ),
        difference::DATA => (
            format!("the recorded data behind argument {index}"),
            "other data".into(),
        ),
        difference::RESULT => (
            format!("result {}", expected as i64),
            format!("{}", found as i64),
        ),
        difference::SIGNAL => (
            "no fault".into(),
            format!("signal {index} at {expected:#x}, address {found:#x}"),
        ),
        difference::MEMORY => (
            format!("memory at {expected:#x}"),
            format!("it could not be had ({found:#x})"),
        ),
        difference::THREAD => (
            format!("thread {expected} to run"),
            "there is no such thread".into(),
        ),
        other => (
            format!("{expected:#x}"),
            format!("{found:#x} (difference {other})"),
        ),
    }
}
