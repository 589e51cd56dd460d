//! Processes that share memory, replayed side by side: each waits for its
//! turn, and what it writes is put into a journal (see the monitor's
//! `sharing`). With the journal each of them can be replayed alone.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use inject::Image;
use recording::Recording;

use crate::Error;
use crate::file::ReplayFile;
use crate::player;
use crate::stream::{Stream, all_streams};
use crate::turns::{Turns, parent_of};

/// The beginnings, by index, of all streams that share memory.
pub fn starts(streams: &[Stream], turns: &Turns) -> BTreeSet<usize> {
    turns
        .streams
        .iter()
        .map(|index| start_of(streams, *index))
        .collect()
}

/// The stream whose image leads, by forks, to this one.
fn start_of(streams: &[Stream], index: usize) -> usize {
    let mut at = index;
    for _ in 0..streams.len() {
        let Some(stream) = streams.get(at).filter(|s| !s.is_start()) else {
            break;
        };
        match parent_of(streams, stream) {
            Some(parent) => at = parent,
            None => break,
        }
    }
    at
}

/// Has the process of `file` that begins next begin with stream `index`.
pub fn set_start(
    recording: &Recording,
    file: &mut ReplayFile,
    image: &Image,
    streams: &[Stream],
    index: usize,
) -> Result<(), Error> {
    let stream = streams.get(index).ok_or(Error::NoLog { process: 0 })?;
    let number = stream.process;
    let found = recording
        .images()
        .iter()
        .rfind(|i| i.process == number && i.image == stream.image)
        .ok_or(Error::NoImage { process: number })?;
    let start = recording.image_start(found)?;
    file.set_start(index, &start, image.vdso)
        .map_err(|source| Error::File {
            path: std::env::temp_dir().display().to_string(),
            source,
        })
}

/// Replays all that begin with these streams, side by side, to their ends.
pub fn run(
    recording: &Recording,
    file: &mut ReplayFile,
    image: &Image,
    streams: &[Stream],
    starts: &BTreeSet<usize>,
) -> Result<(), Error> {
    const LOOK: Duration = Duration::from_millis(2);
    let mut ended = 0;
    for (count, index) in starts.iter().enumerate() {
        let begun = file.header().begun.load(Acquire);
        set_start(recording, file, image, streams, *index)?;
        player::start(file, image)?;
        // It has what it begins from before the next is told.
        while file.header().begun.load(Acquire) == begun {
            std::thread::sleep(LOOK / 4);
            ended += player::reap();
            if ended > count as u32 + begun {
                return Err(Error::Died { pid: 0 });
            }
        }
    }
    // If all wait, they wait for ever.
    let mut all_waited = 0;
    loop {
        ended += player::reap();
        let header = file.header();
        let alive = header.begun.load(Acquire).saturating_sub(ended);
        if alive == 0 {
            break;
        }
        let waiting = header.journal.waiting.load(Acquire);
        all_waited = if waiting >= alive { all_waited + 1 } else { 0 };
        if all_waited > 250 {
            header.journal.is_hopeless.store(1, Release);
        }
        std::thread::sleep(LOOK);
    }
    file.header().journal.is_complete.store(1, Release);
    Ok(())
}

/// What the processes of a recording that share memory wrote, if any do.
pub fn journal(recording: &Recording, image: &Image) -> Result<Option<Shared>, Error> {
    let streams = all_streams(recording);
    let turns = Turns::of(&streams);
    if turns.domains.is_empty() {
        return Ok(None);
    }
    let files = ReplayFile::files_of(recording);
    let mut file = ReplayFile::create(image, &streams, &files)?;
    file.set_shared(&turns.domains);
    let starts = starts(&streams, &turns);
    run(recording, &mut file, image, &streams, &starts)?;
    let journal = &file.header().journal;
    if journal.is_full.load(Relaxed) != 0 {
        return Err(Error::JournalFull);
    }
    Ok(Some(Shared {
        journal: file.journal(),
        turns,
    }))
}

/// What it takes to replay a process that shares memory alone.
pub struct Shared {
    pub journal: Vec<u8>,
    pub turns: Turns,
}
