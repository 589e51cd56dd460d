//! Fetching recordings from other hosts.
//!
//! A recording that is not complete yet lies in `NAME.part`: what is there is
//! not fetched again. What is complete is compared with the digest that the
//! agent made of it, and only then gets its name.
//!
//! Hosts of one program run the same files. Each is fetched from one of them,
//! and linked for the others.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use wire::{Answer, Request};
use xxhash_rust::xxh3::Xxh3;

use crate::client::Client;
use crate::{Error, stored};

/// How it is told why a recording cannot be fetched yet.
pub const GOES_ON: &str = "is still being recorded there";

/// A recording to fetch.
pub struct Pull<'a> {
    /// From whom.
    pub client: &'a Client,
    /// Its name there.
    pub recording: String,
    /// The directory to make.
    pub to: PathBuf,
}

/// So many files of one host are on their way at once: who waits for the answer
/// to one has another that comes meanwhile.
const LANES: usize = 4;

/// How far it is: bytes of this many in all.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

fn failing(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::File {
        what,
        path: path.to_path_buf(),
        source,
    }
}

/// Where it lies until it is complete.
fn part_of(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    to.with_file_name(name)
}

/// Begins a recording with a copy of a part of it: what is in that is not fetched again.
/// It is taken away for that; if that cannot be it is of no use.
pub fn begin_with(copied: &Path, to: &Path) {
    // It does not say how much of it is there, and may be gone where it comes from.
    let _ = std::fs::remove_file(copied.join(recording::ARENA));
    let _ = std::fs::rename(copied, part_of(to));
}

/// What was fetched of a recording is of no use.
pub fn forget(to: &Path) {
    let _ = std::fs::remove_dir_all(part_of(to));
}

type Digest = (u64, (u64, u64));

/// What a file is known by; nothing, if it may still change.
fn digest_of(file: &wire::File) -> Option<Digest> {
    Some((file.length, file.digest?))
}

struct Counter<'a> {
    done: AtomicU64,
    all: u64,
    progress: Progress<'a>,
}

impl Counter<'_> {
    fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Relaxed) + bytes;
        (self.progress)(done.min(self.all), self.all);
    }
}

/// Fetches several at once. Says of each how that went.
pub fn all(pulls: &[Pull<'_>], progress: Progress<'_>) -> Vec<Result<(), Error>> {
    let listings: Vec<Result<Vec<wire::File>, Error>> = crate::at_once(pulls, |pull| listing(pull));
    // Who fetches what several have.
    let mut first: HashMap<Digest, (usize, String)> = HashMap::new();
    let mut bytes = 0;
    for (at, listing) in listings.iter().enumerate() {
        for file in listing.iter().flatten() {
            let known = digest_of(file).map(|digest| {
                let known = first.entry(digest);
                known.or_insert_with(|| (at, file.name.clone())).0
            });
            if known.is_none_or(|known| known == at) {
                bytes += file.length;
            }
        }
    }
    let counter = Counter {
        done: Default::default(),
        all: bytes,
        progress,
    };
    let numbered: Vec<usize> = (0..pulls.len()).collect();
    let source = |file: &wire::File| first.get(&digest_of(file)?);
    let own = |at: usize, file: &wire::File| source(file).is_none_or(|(first, _)| *first == at);
    let mut outcomes = crate::at_once(&numbered, |at| {
        let (Some(pull), Some(Ok(files))) = (pulls.get(*at), listings.get(*at)) else {
            return Ok(());
        };
        let wanted: Vec<&wire::File> = files.iter().filter(|file| own(*at, file)).collect();
        let next = AtomicUsize::new(0);
        let lanes = crate::at_once(&[(); LANES], |()| {
            while let Some(file) = wanted.get(next.fetch_add(1, Relaxed)) {
                fetch(pull, file, &counter)?;
            }
            Ok(())
        });
        lanes.into_iter().collect::<Result<(), Error>>()
    });
    for (at, listing) in listings.into_iter().enumerate() {
        let (Some(pull), Some(outcome)) = (pulls.get(at), outcomes.get_mut(at)) else {
            continue;
        };
        if outcome.is_ok() {
            *outcome = listing.and_then(|files| {
                for file in files.iter().filter(|file| !own(at, file)) {
                    let linked = source(file).is_some_and(|(at, name)| {
                        pulls
                            .get(*at)
                            .is_some_and(|from| link(from, name, pull, file))
                    });
                    if !linked {
                        fetch(pull, file, &counter)?;
                    }
                }
                finish(pull)
            });
        }
    }
    outcomes
}

fn listing(pull: &Pull<'_>) -> Result<Vec<wire::File>, Error> {
    let mut answers = pull.client.ask(Request::Files {
        recording: pull.recording.clone(),
    })?;
    let mut found = Vec::new();
    while let Some(answer) = answers.receive()? {
        let Answer::File(file) = answer else { continue };
        // Nobody else says where things are written here.
        let captured = file.name.strip_prefix("files/");
        let id = captured.is_some_and(|id| id.parse::<u64>().is_ok());
        if id || (!file.name.contains('/') && !file.name.starts_with('.')) {
            found.push(file);
        }
    }
    // Not before it is known that there is something to put into it.
    let captured = part_of(&pull.to).join(recording::FILES);
    std::fs::create_dir_all(&captured).map_err(failing("create", &captured))?;
    Ok(found)
}

/// Links what another member has fetched.
fn link(from: &Pull<'_>, name: &str, to: &Pull<'_>, file: &wire::File) -> bool {
    let target = part_of(&to.to).join(&file.name);
    // Its directory may have its last name already.
    [part_of(&from.to), from.to.clone()].iter().any(|dir| {
        let source = dir.join(name);
        let found = stored::digest(&source);
        let _ = std::fs::remove_file(&target);
        found.is_ok_and(|found| Some(found) == digest_of(file))
            && std::fs::hard_link(&source, &target).is_ok()
    })
}

fn fetch(pull: &Pull<'_>, file: &wire::File, counter: &Counter<'_>) -> Result<(), Error> {
    let path = part_of(&pull.to).join(&file.name);
    let Some(digest) = digest_of(file) else {
        // It is read as it is found, like one that is being recorded.
        return receive(pull, file, &path, 0, counter).map(drop);
    };
    let have = std::fs::metadata(&path).map_or(0, |meta| meta.len());
    let mut from = have.min(file.length);
    counter.add(from);
    loop {
        let mut seen = None;
        if from < file.length || file.length == 0 {
            seen = receive(pull, file, &path, from, counter)?;
        }
        let found = match seen {
            Some(found) => found,
            None => stored::digest(&path).map_err(failing("read", &path))?,
        };
        if found == digest {
            return Ok(());
        }
        let _ = std::fs::remove_file(&path);
        if from == 0 {
            return Err(Error::Damaged {
                host: pull.client.host().to_string(),
                recording: pull.recording.clone(),
                file: file.name.clone(),
            });
        }
        // What lay here was of something else.
        from = 0;
    }
}

/// Fetches a file from a byte on. Its digest, if it was seen whole.
fn receive(
    pull: &Pull<'_>,
    file: &wire::File,
    path: &Path,
    from: u64,
    counter: &Counter<'_>,
) -> Result<Option<Digest>, Error> {
    let mut target: File = OpenOptions::new()
        .create(true)
        .truncate(from == 0)
        .write(true)
        .open(path)
        .map_err(failing("create", path))?;
    target
        .seek(std::io::SeekFrom::Start(from))
        .map_err(failing("write", path))?;
    let mut at = from;
    let mut hash = (from == 0).then(Xxh3::new);
    let mut answers = pull.client.ask(Request::Fetch {
        recording: pull.recording.clone(),
        file: file.name.clone(),
        from,
    })?;
    while let Some(answer) = answers.receive()? {
        let step = match answer {
            Answer::Data(data) => {
                target.write_all(&data).map_err(failing("write", path))?;
                if let Some(hash) = &mut hash {
                    hash.update(&data);
                }
                data.len() as u64
            }
            Answer::Zeroes(count) => {
                let ahead = i64::try_from(count).unwrap_or(i64::MAX);
                let sought = target.seek_relative(ahead);
                sought.map_err(failing("write", path))?;
                hash = None;
                count
            }
            _ => continue,
        };
        at = at.saturating_add(step);
        counter.add(step);
        if at > file.length {
            // More than was announced: that ends here.
            break;
        }
    }
    target
        .set_len(at.min(file.length))
        .map_err(failing("write", path))?;
    Ok(hash.map(|hash| (at, stored::halves(hash.digest128()))))
}

fn finish(pull: &Pull<'_>) -> Result<(), Error> {
    std::fs::rename(part_of(&pull.to), &pull.to).map_err(failing("create", &pull.to))
}
