//! The recordings of a host, as others see them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use recording::listing::{self, Listed, State};
use wire::frame::DATA;
use wire::{Answer, Stored};

use crate::refusal::Refusal;

/// Where the output of programs goes, below the home of recordings.
pub(crate) const OUTPUT: &str = ".output";

/// What belongs to a recording; the rest only saves time and is made again.
const FILES: [&str; 4] = [
    recording::MANIFEST,
    recording::JOURNAL,
    recording::ARENA,
    "names.json",
];

/// Where a recording is that is named, or given as a path.
pub(crate) fn locate(home: &Path, name: &str) -> Result<PathBuf, Refusal> {
    let dir = match name.strip_prefix("~/") {
        Some(rest) => {
            std::env::var_os("HOME").map_or_else(|| rest.into(), |h| Path::new(&h).join(rest))
        }
        None if name.contains('/') => PathBuf::from(name),
        None if name.is_empty() || name.starts_with('.') => {
            return Err(Refusal::NoName(name.to_string()));
        }
        None => home.join(name),
    };
    let listed = Listed::read(&dir)?;
    if !listed.members.is_empty() {
        return Err(Refusal::Joined(dir));
    }
    if listed.state == State::BeingRecorded {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        return Err(Refusal::GoesOn(name.into_owned()));
    }
    Ok(dir)
}

/// All recordings in the home, the latest first.
pub(crate) fn list(home: &Path) -> Vec<Stored> {
    let mut all = listing::list(home).unwrap_or_default();
    // One that was joined there is of several hosts.
    all.retain(|listed| listed.members.is_empty());
    let told = all.into_iter().rev().map(|listed| Stored {
        name: listed.name,
        command: listed.manifest.command,
        started_ns: listed.manifest.started_ns,
        goes_on: listed.state == State::BeingRecorded,
    });
    told.collect()
}

/// The files of a recording.
pub(crate) fn files(
    dir: &Path,
    is_over: impl Fn() -> bool,
    mut send: impl FnMut(Answer) -> io::Result<()>,
) -> io::Result<()> {
    let captured = std::fs::read_dir(dir.join(recording::FILES));
    let mut names: Vec<String> = captured
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some(format!(
                "{}/{}",
                recording::FILES,
                entry.file_name().to_str()?
            ))
        })
        .collect();
    names.sort();
    names.extend(FILES.map(str::to_string));
    for name in names {
        let path = dir.join(&name);
        if !path.is_file() {
            continue;
        }
        if is_over() {
            return Ok(());
        }
        // Of a recording that was cut short: its program may live on, and still
        // has the arena.
        let (length, digest) = match name.as_str() {
            recording::ARENA => (std::fs::metadata(&path)?.len(), None),
            _ => digest(&path).map(|(length, digest)| (length, Some(digest)))?,
        };
        send(Answer::File(wire::File {
            name,
            length,
            digest,
        }))?;
    }
    Ok(())
}

/// How long a file is and what it holds, as [`wire::File`] tells it.
pub(crate) fn digest(path: &Path) -> io::Result<(u64, (u64, u64))> {
    let mut file = File::open(path)?;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut buffer = vec![0; DATA];
    let mut length = 0;
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            break;
        }
        length += got as u64;
        hash.update(buffer.get(..got).unwrap_or_default());
    }
    Ok((length, halves(hash.digest128())))
}

/// The halves of a digest, the higher first.
pub(crate) fn halves(digest: u128) -> (u64, u64) {
    ((digest >> 64) as u64, digest as u64)
}

/// Sends what a file of a recording holds.
pub(crate) fn fetch(
    dir: &Path,
    name: &str,
    from: u64,
    is_over: impl Fn() -> bool,
    send: impl FnMut(Answer) -> io::Result<()>,
) -> io::Result<()> {
    let captured = name.strip_prefix("files/");
    let known = FILES.contains(&name) || captured.is_some_and(|id| id.parse::<u64>().is_ok());
    if !known {
        return Err(io::Error::other(format!(
            "a recording has no file `{name}`"
        )));
    }
    let mut file = File::open(dir.join(name))?;
    file.seek(SeekFrom::Start(from))?;
    send_rest(file, is_over, send)
}

/// Sends what a file holds from where it is.
pub(crate) fn send_rest(
    mut file: File,
    is_over: impl Fn() -> bool,
    mut send: impl FnMut(Answer) -> io::Result<()>,
) -> io::Result<()> {
    let mut zeroes = 0u64;
    loop {
        let mut data = vec![0; DATA];
        let got = file.read(&mut data)?;
        data.truncate(got);
        // An arena is mostly empty.
        if got > 0 && data.iter().all(|byte| *byte == 0) {
            zeroes += got as u64;
            continue;
        }
        if zeroes > 0 {
            send(Answer::Zeroes(std::mem::take(&mut zeroes)))?;
        }
        if got == 0 || is_over() {
            return Ok(());
        }
        send(Answer::Data(data))?;
    }
}
