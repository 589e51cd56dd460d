//! Several recordings as one directory.
//!
//! A joined recording is a directory with [`JOINED`], which names its members,
//! and a directory for each. A member is a recording as it was made: nothing
//! of it is written anew. Where that is possible it is linked rather than
//! copied, and a file that several members captured is kept once.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{OpenError, WriteError};

/// Name of the file that makes a directory a joined recording.
pub const JOINED: &str = "joined.json";

/// Version of what it says.
const FORMAT: u32 = 1;

/// What `joined.json` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Version of the format.
    pub format: u32,
    /// The members, in the order of their numbers.
    pub members: Vec<MemberEntry>,
    /// Hosts whose recordings could not be had, and why.
    #[serde(default)]
    pub missing: Vec<Missing>,
}

/// A member of a joined recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEntry {
    /// What its processes' names end in, behind `@`.
    pub name: String,
    /// Its directory, beside the file.
    pub directory: String,
}

/// A recording that should have been a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What it would be called.
    pub name: String,
    /// Why it is not there.
    pub why: String,
}

impl Joined {
    /// Reads it; `None` if the directory is not a joined recording.
    pub(crate) fn read(dir: &Path) -> Result<Option<Joined>, OpenError> {
        let path = dir.join(JOINED);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                    _ => Err(OpenError::io(&path, error)),
                };
            }
        };
        let bad = |why: String| OpenError::BadManifest {
            path: path.clone(),
            why,
        };
        let joined: Joined =
            serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if joined.format > FORMAT {
            return Err(OpenError::Newer {
                path: dir.to_path_buf(),
                format: joined.format,
            });
        }
        if joined.members.is_empty() {
            return Err(bad("it names no members".to_string()));
        }
        for member in &joined.members {
            let plain = !member.directory.contains('/') && !member.directory.starts_with('.');
            if !plain || member.directory.is_empty() {
                return Err(bad(format!(
                    "`{}` is not a directory beside it",
                    member.directory
                )));
            }
        }
        Ok(Some(joined))
    }

    /// Writes it into a directory, all at once.
    pub fn write(&self, dir: &Path) -> Result<(), WriteError> {
        let path = dir.join(JOINED);
        let fresh = dir.join(format!(".{JOINED}-{}", std::process::id()));
        let text = serde_json::to_string_pretty(self).map_err(|error| WriteError::Encode {
            what: "list of members",
            why: error.to_string(),
        })?;
        let written = std::fs::write(&fresh, text + "\n");
        written
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|error| WriteError::io("write", &path, error))
    }

    /// With these members, whose directories are there already.
    pub fn of(members: Vec<MemberEntry>, missing: Vec<Missing>) -> Joined {
        Joined {
            format: FORMAT,
            members,
            missing,
        }
    }
}

/// Names for members, each of its own: one that is taken gets a number.
pub fn member_names<'a>(wanted: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for wanted in wanted {
        // It ends the names of processes, and is the name of a directory.
        let clean: String = wanted
            .chars()
            .map(|c| {
                if c.is_alphanumeric() || "-_.".contains(c) {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let clean = clean.trim_start_matches(['.', '-']);
        let base = if clean.is_empty() { "host" } else { clean };
        let mut name = base.to_string();
        let mut number = 2;
        while names.contains(&name) {
            name = format!("{base}-{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

/// Puts the recording in `from` into the directory `to`, which is made: by
/// links where that is possible.
pub fn put_member(from: &Path, to: &Path) -> Result<(), WriteError> {
    let make = |dir: &Path| {
        std::fs::create_dir_all(dir).map_err(|error| WriteError::io("create", dir, error))
    };
    make(to)?;
    make(&to.join(crate::FILES))?;
    // One that is not over may still change.
    let is_over = !from.join(crate::ARENA).exists();
    for name in [
        crate::MANIFEST,
        crate::JOURNAL,
        crate::ARENA,
        crate::names::NAMES,
        crate::CATALOG,
    ] {
        let source = from.join(name);
        if source.is_file() {
            put(&source, &to.join(name), is_over && name == crate::JOURNAL)?;
        }
    }
    for entry in std::fs::read_dir(from.join(crate::FILES))
        .into_iter()
        .flatten()
        .flatten()
    {
        put(
            &entry.path(),
            &to.join(crate::FILES).join(entry.file_name()),
            true,
        )?;
    }
    Ok(())
}

fn put(from: &Path, to: &Path, link: bool) -> Result<(), WriteError> {
    let linked = link && std::fs::hard_link(from, to).is_ok();
    if !linked {
        let copied = std::fs::copy(from, to);
        copied.map_err(|error| WriteError::io("copy", from, error))?;
    }
    Ok(())
}

/// Keeps files once that several members captured. What cannot be linked stays
/// as it is.
pub fn keep_once(members: &[PathBuf]) {
    let mut seen: HashMap<(u64, u128), PathBuf> = HashMap::new();
    for member in members {
        for entry in std::fs::read_dir(member.join(crate::FILES))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            let Ok(key) = contents(&path) else { continue };
            match seen.get(&key) {
                None => {
                    seen.insert(key, path);
                }
                Some(first) => {
                    use std::os::unix::fs::MetadataExt;
                    let inode =
                        |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
                    if inode(first) == inode(&path) {
                        continue;
                    }
                    let fresh = member.join(crate::FILES).join(".link");
                    let _ = std::fs::remove_file(&fresh);
                    if std::fs::hard_link(first, &fresh).is_ok() {
                        let _ = std::fs::rename(&fresh, &path);
                    }
                }
            }
        }
    }
}

fn contents(path: &Path) -> io::Result<(u64, u128)> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut buffer = vec![0; 1 << 18];
    let mut length = 0;
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            return Ok((length, hash.digest128()));
        }
        length += got as u64;
        hash.update(buffer.get(..got).unwrap_or_default());
    }
}
