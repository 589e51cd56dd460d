//! Recordings as things that lie in a directory: what each is of, told without
//! opening it, whether it is still being written, and how one is removed.
//!
//! Whoever writes a recording holds a lock (`flock`) on its journal, from
//! before the directory becomes a recording until the last byte is written. The
//! kernel lets go of it when the recorder ends, in whatever way. So neither a
//! process id that was given to somebody else nor a time stamp has to be
//! believed.

use std::collections::HashSet;
use std::fs::{DirEntry, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::OpenError;
use crate::join::{JOINED, Joined, MemberEntry};
use crate::journal::Journal;
use crate::model::{Manifest, Summary};
use crate::recording::{read_manifest, refined};

/// What a recording may hold, besides `files`. While one of them is written
/// anew there may be one of that name with a dot and more behind it.
const PARTS: [&str; 8] = [
    crate::MANIFEST,
    crate::JOURNAL,
    crate::ARENA,
    crate::names::NAMES,
    crate::CATALOG,
    // What other crates keep beside it, to save time.
    "causes",
    "source.json",
    "truth.json",
];

/// How far a recording has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All of it is there.
    Complete,
    /// It says itself that it ended before the program did.
    EndedEarly,
    /// Its recorder is at it.
    BeingRecorded,
    /// Its recorder ended without a word.
    CutShort,
}

impl State {
    /// How much is wanting to a whole recording, to compare.
    fn lacks(self) -> u8 {
        match self {
            State::Complete => 0,
            State::EndedEarly => 1,
            State::CutShort => 2,
            State::BeingRecorded => 3,
        }
    }
}

/// A recording, as it is listed.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The directory's name.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What was run, where and when; of a joined one, what its first member
    /// says, and when the earliest began.
    pub manifest: Manifest,
    /// The members of a joined one: what each is called, and what was run there.
    pub members: Vec<(String, Manifest)>,
    /// How it ended, if it says so.
    pub end: Option<Summary>,
    /// How far it has come.
    pub state: State,
    /// What it takes on the disk, in bytes.
    pub size: u64,
    /// How long it lasted: of one without an end, up to the last thing that
    /// was written.
    pub duration_ns: u64,
    /// Its files: device, inode, bytes.
    files: Vec<(u64, u64, u64)>,
}

impl Listed {
    /// Looks at the recording in `dir`, of one host or of several.
    pub fn read(dir: &Path) -> Result<Listed, OpenError> {
        match Joined::read(dir)? {
            Some(joined) => Listed::read_joined(dir, &joined),
            None => Listed::read_one(dir),
        }
    }

    fn read_joined(dir: &Path, joined: &Joined) -> Result<Listed, OpenError> {
        let mut members = Vec::new();
        for entry in &joined.members {
            members.push((&entry.name, Listed::read_one(&dir.join(&entry.directory))?));
        }
        let own = members.iter().map(|(_, listed)| listed);
        let first = own.clone().min_by_key(|listed| listed.manifest.started_ns);
        let Some(first) = first else {
            return Err(OpenError::Missing {
                path: dir.to_path_buf(),
                missing: "its members",
            });
        };
        let mut files: Vec<(u64, u64, u64)> = own
            .clone()
            .flat_map(|listed| listed.files.clone())
            .collect();
        for entry in entries(dir).filter_map(|entry| entry.metadata().ok()) {
            if entry.is_file() {
                files.push((entry.dev(), entry.ino(), taken(&entry)));
            }
        }
        let name = dir.file_name().unwrap_or(dir.as_os_str());
        let mut listed = Listed {
            name: name.to_string_lossy().into_owned(),
            path: dir.to_path_buf(),
            state: own
                .clone()
                .map(|listed| listed.state)
                .max_by_key(|s| s.lacks())
                .unwrap_or(State::Complete),
            // As `mw record --on` has it: that of one that failed, if any did.
            end: own
                .clone()
                .filter_map(|listed| listed.end.clone())
                .max_by_key(|end| end.exit_status != 0),
            duration_ns: own
                .clone()
                .map(|listed| listed.duration_ns)
                .max()
                .unwrap_or(0),
            manifest: first.manifest.clone(),
            members: members
                .iter()
                .map(|(name, listed)| (name.to_string(), listed.manifest.clone()))
                .collect(),
            size: 0,
            files,
        };
        listed.size = size_together([&listed]);
        Ok(listed)
    }

    fn read_one(dir: &Path) -> Result<Listed, OpenError> {
        let manifest = read_manifest(dir)?;
        let path = dir.join(crate::JOURNAL);
        let journal = match Journal::open(&path) {
            Ok(journal) => journal,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::Missing {
                    path: dir.to_path_buf(),
                    missing: "its journal",
                });
            }
            Err(error) => return Err(OpenError::io(&path, error)),
        };
        let end = journal.end();
        let state = match (&end, is_locked(&path)) {
            (_, Ok(true)) | (None, Err(_)) => State::BeingRecorded,
            (None, Ok(false)) => State::CutShort,
            (Some(end), _) if end.complete => State::Complete,
            (Some(_), _) => State::EndedEarly,
        };
        let duration_ns = match &end {
            Some(end) => refined(&manifest, Some(end)).since_start_ns(end.time),
            None => journal.changed_ns().saturating_sub(manifest.started_ns),
        };
        let mut files = Vec::new();
        let mut size = 0;
        // What goes away meanwhile takes nothing.
        for meta in parts(dir)
            .iter()
            .filter_map(|path| path.symlink_metadata().ok())
        {
            files.push((meta.dev(), meta.ino(), taken(&meta)));
            size += taken(&meta);
        }
        let name = dir.file_name().unwrap_or(dir.as_os_str());
        Ok(Listed {
            name: name.to_string_lossy().into_owned(),
            path: dir.to_path_buf(),
            manifest,
            members: Vec::new(),
            end,
            state,
            size,
            duration_ns,
            files,
        })
    }
}

/// What a file takes on the disk.
fn taken(meta: &Metadata) -> u64 {
    meta.blocks() * 512
}

/// The recordings in a directory, the oldest first. What is none, or cannot be
/// read, is not among them; neither is what a link leads to.
pub fn list(dir: &Path) -> io::Result<Vec<Listed>> {
    let mut found = Vec::new();
    for path in candidates(dir)? {
        found.extend(Listed::read(&path).ok());
    }
    found.sort_by(|a, b| (a.manifest.started_ns, &a.name).cmp(&(b.manifest.started_ns, &b.name)));
    Ok(found)
}

/// The names of the recordings in a directory: for who has to be quick, so
/// only by what they look like.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = candidates(dir)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_string()))
        .collect();
    names.sort();
    names
}

/// Directories, not links to some, that have a manifest or a list of members.
fn candidates(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let found = std::fs::read_dir(dir)?
        .flatten()
        .filter(is_directory)
        .map(|entry| entry.path())
        .filter(|path| path.join(crate::MANIFEST).is_file() || path.join(JOINED).is_file())
        .collect();
    Ok(found)
}

/// What recordings take together. They share files that did not change between
/// them: those count once.
pub fn size_together<'l>(recordings: impl IntoIterator<Item = &'l Listed>) -> u64 {
    let mut seen = HashSet::new();
    let files = recordings.into_iter().flat_map(|listed| &listed.files);
    files
        .filter(|(dev, ino, _)| seen.insert((*dev, *ino)))
        .map(|(_, _, bytes)| bytes)
        .sum()
}

/// Whether somebody holds the lock on a journal.
fn is_locked(journal: &Path) -> io::Result<bool> {
    let file = File::open(journal)?;
    // Let go when the file is closed, which is here.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// A recording was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// It cannot be told to be one.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its recorder is at it.
    #[error("{} is being recorded", .0.display())]
    BeingRecorded(PathBuf),
    /// It holds something that no recording does.
    #[error("{} is not removed: {} is no part of a recording", dir.display(), part.display())]
    Foreign {
        /// The recording.
        dir: PathBuf,
        /// What is in it.
        part: PathBuf,
    },
    /// The kernel would not let us.
    #[error("cannot remove {}: {source}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl RemoveError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RemoveError::Open(error) => error.hint(),
            RemoveError::BeingRecorded(_) => Some("end the program first, or wait for its end"),
            RemoveError::Foreign { .. } => Some("move that elsewhere first"),
            RemoveError::Io { .. } => None,
        }
    }
}

/// Removes the recording in `dir`: nothing that is none, none that is being
/// written, and none that holds anything else. The manifest goes last, so that
/// what is left if this does not come to its end is still a recording, and can
/// be removed again.
pub fn remove(dir: &Path) -> Result<(), RemoveError> {
    let Some(joined) = Joined::read(dir)? else {
        check(dir)?;
        return remove_checked(dir);
    };
    // Nothing goes before all of it may go.
    let member = |entry: &MemberEntry| dir.join(&entry.directory);
    let dirs: Vec<PathBuf> = joined.members.iter().map(member).collect();
    let there = |dir: &&PathBuf| dir.exists();
    for dir in dirs.iter().filter(there) {
        check(dir)?;
    }
    for entry in entries(dir) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let name = name.strip_prefix('.').unwrap_or(&name);
        let ours = dirs.contains(&entry.path())
            || [JOINED]
                .iter()
                .chain(&PARTS)
                .any(|part| is_part(name, part));
        if !ours {
            return Err(RemoveError::Foreign {
                dir: dir.to_path_buf(),
                part: entry.path(),
            });
        }
    }
    for dir in dirs.iter().filter(there) {
        remove_checked(dir)?;
    }
    let list = dir.join(JOINED);
    for entry in entries(dir).map(|entry| entry.path()) {
        if entry != list {
            std::fs::remove_file(&entry)
                .or_else(gone)
                .map_err(failed(&entry))?;
        }
    }
    std::fs::remove_file(&list)
        .or_else(gone)
        .map_err(failed(&list))?;
    std::fs::remove_dir(dir).or_else(gone).map_err(failed(dir))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RemoveError + use<> {
    let path = path.to_path_buf();
    move |source| RemoveError::Io { path, source }
}

/// Whether what is in `dir` is a recording of one host that may be removed.
fn check(dir: &Path) -> Result<(), RemoveError> {
    // One of a later format is a recording all the same.
    match read_manifest(dir) {
        Ok(_) | Err(OpenError::Newer { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let path = dir.join(crate::JOURNAL);
    match Journal::open(&path) {
        Ok(journal) => match is_locked(&path) {
            Ok(false) => {}
            // No locks there: then its end is what there is to believe.
            Err(_) if journal.end().is_some() => {}
            _ => return Err(RemoveError::BeingRecorded(dir.to_path_buf())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(RemoveError::Io { path, source }),
    }
    check_parts(dir)
}

fn remove_checked(dir: &Path) -> Result<(), RemoveError> {
    let manifest = dir.join(crate::MANIFEST);
    let files = dir.join(crate::FILES);
    for part in parts(dir) {
        if part != manifest && part != files {
            std::fs::remove_file(&part)
                .or_else(gone)
                .map_err(failed(&part))?;
        }
    }
    std::fs::remove_dir(&files)
        .or_else(gone)
        .map_err(failed(&files))?;
    std::fs::remove_file(&manifest)
        .or_else(gone)
        .map_err(failed(&manifest))?;
    std::fs::remove_dir(dir).or_else(gone).map_err(failed(dir))
}

/// Somebody else removes it, too.
fn gone(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

/// All that is in a recording, captured files before their directory.
fn parts(dir: &Path) -> Vec<PathBuf> {
    let files = dir.join(crate::FILES);
    let mut found: Vec<PathBuf> = entries(&files).map(|entry| entry.path()).collect();
    found.extend(entries(dir).map(|entry| entry.path()));
    found
}

fn entries(dir: &Path) -> impl Iterator<Item = DirEntry> {
    std::fs::read_dir(dir).into_iter().flatten().flatten()
}

/// Whether all that is in a recording belongs there.
fn check_parts(dir: &Path) -> Result<(), RemoveError> {
    let foreign = |entry: &DirEntry| RemoveError::Foreign {
        dir: dir.to_path_buf(),
        part: entry.path(),
    };
    let is = |entry: &DirEntry, wanted: fn(&std::fs::FileType) -> bool| {
        entry.file_type().is_ok_and(|kind| wanted(&kind))
    };
    for entry in entries(dir) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let ours = if name == crate::FILES {
            is(&entry, std::fs::FileType::is_dir)
        } else {
            is(&entry, std::fs::FileType::is_file) && PARTS.iter().any(|part| is_part(&name, part))
        };
        if !ours {
            return Err(foreign(&entry));
        }
    }
    for entry in entries(&dir.join(crate::FILES)) {
        if !is(&entry, std::fs::FileType::is_file) {
            return Err(foreign(&entry));
        }
    }
    Ok(())
}

/// Whether `name` is `part`, or `part` while it is written anew.
fn is_part(name: &str, part: &str) -> bool {
    let rest = name.strip_prefix(part);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
