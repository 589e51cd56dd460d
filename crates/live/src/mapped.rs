//! What a process has mapped, as the kernel of its host tells it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use inspect::target::{Content, Mapping};
use protocol::id::Addr;
use serde::{Deserialize, Serialize};
use target::Region;

/// All that a process has mapped, in order of address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mappings {
    /// Changes when code does.
    pub version: u64,
    pub all: Vec<Mapped>,
}

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub writable: bool,
    pub executable: bool,
    pub is_vdso: bool,
    pub file: Option<MappedFile>,
}

/// A file of the process's host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MappedFile {
    /// Where it can be read there.
    pub place: PathBuf,
    /// Its path for the process.
    pub path: PathBuf,
    pub identity: FileIdentity,
}

/// What tells the files of a host apart, and whether one has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    length: u64,
    modified_ns: i64,
}

/// What a process of this host has mapped.
pub fn of(pid: i32) -> Mappings {
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut hash = DefaultHasher::new();
    for line in text.lines().filter(|line| line.contains("x")) {
        line.hash(&mut hash);
    }
    Mappings {
        version: hash.finish(),
        all: text.lines().filter_map(|line| mapped(pid, line)).collect(),
    }
}

/// A line of `/proc/PID/maps`.
fn mapped(pid: i32, line: &str) -> Option<Mapped> {
    let mut rest = line;
    let mut word = || {
        let (word, more) = rest.trim_start().split_once(' ')?;
        rest = more;
        Some(word)
    };
    let (start, end) = word()?.split_once('-')?;
    let rights = word()?;
    let offset = u64::from_str_radix(word()?, 16).ok()?;
    let (_, inode) = (word()?, word().unwrap_or("0"));
    let name = rest.trim();
    Some(Mapped {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        writable: rights.contains('w'),
        executable: rights.contains('x'),
        offset,
        file: file(pid, name, inode.parse().unwrap_or(0)),
        is_vdso: name == "[vdso]",
    })
}

/// Where a mapped file can be read: in the process's own view of the files, unless
/// what is there is another one by now.
fn file(pid: i32, name: &str, inode: u64) -> Option<MappedFile> {
    let plain = name.strip_suffix(" (deleted)").unwrap_or(name);
    let relative = plain.strip_prefix('/')?;
    let seen = Path::new("/proc")
        .join(pid.to_string())
        .join("root")
        .join(relative);
    let identity = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        (data.ino() == inode).then(|| FileIdentity {
            device: data.dev(),
            inode,
            length: data.len(),
            modified_ns: data.mtime() * 1_000_000_000 + data.mtime_nsec(),
        })
    };
    let executable = PathBuf::from(format!("/proc/{pid}/exe"));
    let (place, identity) = [seen, PathBuf::from(plain), executable]
        .into_iter()
        .find_map(|path| identity(&path).map(|found| (path, found)))?;
    Some(MappedFile {
        place,
        path: PathBuf::from(plain),
        identity,
    })
}

/// A range as the debugger has it; `here` says where its file can be read on the
/// debugger's host.
pub fn region(mapped: &Mapped, here: impl FnOnce(&MappedFile) -> Option<PathBuf>) -> Region {
    Region {
        range: Addr(mapped.start)..Addr(mapped.end),
        writable: mapped.writable,
        executable: mapped.executable,
        offset: mapped.offset,
        file: mapped
            .file
            .as_ref()
            .and_then(|file| Some((here(file)?, file.path.clone()))),
        is_vdso: mapped.is_vdso,
    }
}

/// A range of addresses, to be looked into.
pub fn mapping(region: &Region) -> Mapping {
    Mapping {
        start: region.range.start,
        end: region.range.end,
        offset: region.offset,
        name: match &region.file {
            Some((_, path)) => path.display().to_string(),
            None if region.is_vdso => "[vdso]".to_string(),
            None => String::new(),
        },
        executable: region.executable,
        writable: region.writable,
        content: match &region.file {
            Some((place, _)) => Content::File(place.clone()),
            None => Content::Memory,
        },
    }
}

/// What a process of this host has mapped, without stopping it.
pub fn mappings(pid: i32) -> Vec<Mapping> {
    let all = of(pid).all;
    let here = |file: &MappedFile| Some(file.place.clone());
    all.iter()
        .map(|mapped| mapping(&region(mapped, here)))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f00-7f10 rw-p 00001000 00:00 0 ";
        let read = mapped(1, line).unwrap();
        assert_eq!((read.start, read.end), (0x7f00, 0x7f10));
        assert_eq!(read.offset, 0x1000);
        assert!(read.writable && !read.executable && read.file.is_none());
        assert!(
            mapped(1, "7f00-7f10 r-xp 0 00:00 0   [vdso]")
                .unwrap()
                .is_vdso
        );
        let all = of(std::process::id() as i32).all;
        let code = all.iter().filter(|r| r.executable && r.file.is_some());
        assert!(code.count() >= 2);
    }
}
