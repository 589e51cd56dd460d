//! Processes on other hosts, from the debugger's side: how their hosts are reached is
//! somebody else's matter.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use inspect::elf::image::Image;

use crate::error::HostError;
use crate::mapped::{FileIdentity, Mapped, MappedFile};

/// Another host.
pub trait Host: Send + Sync {
    /// Where copies are, on the debugger's host, of files of that one; none of those
    /// that cannot be had.
    fn files(&self, paths: &[String]) -> Vec<Option<PathBuf>>;

    /// Has a recording there that grows in a directory here as well, which is made already.
    fn follow(&self, dir: &Path, to: &Path) -> Result<Box<dyn Followed>, HostError>;

    /// Why the line to the warden there has ended, if it is not the warden's own end.
    fn why(&self) -> Option<String>;
}

/// A recording that grows on another host, in a copy.
pub trait Followed: Send {
    /// Has what is new come while the program runs.
    fn go(&mut self);

    /// Has all come that there is, and nothing any more behind it.
    fn settle(&mut self) -> Result<(), HostError>;

    /// What is there is not needed any more.
    fn forget(&mut self);
}

/// A host with processes of a program: its name, a line to a warden there, and the way
/// to its files.
pub struct Site {
    pub name: String,
    pub socket: UnixStream,
    pub host: Arc<dyn Host>,
    /// Where debug files of hosts are put, as `.build-id/xx/rest.debug`.
    pub debug_files: PathBuf,
}

/// The files of a host that are here.
pub(crate) struct Files {
    pub host: Arc<dyn Host>,
    debug_files: PathBuf,
    known: Mutex<HashMap<FileIdentity, Option<PathBuf>>>,
}

/// Where debug information is that was split from its program.
const DEBUG: &str = "/usr/lib/debug/.build-id";

impl Files {
    pub fn new(host: Arc<dyn Host>, debug_files: PathBuf) -> Files {
        Files {
            host,
            debug_files,
            known: Mutex::default(),
        }
    }

    /// Where files are here, by what tells them apart there. Only files with code are
    /// fetched: what else is mapped may be large, and tells nothing.
    pub fn fetch(&self, all: &[Mapped]) -> HashMap<FileIdentity, Option<PathBuf>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted: Vec<&MappedFile> = Vec::new();
        for file in all.iter().filter(|mapped| mapped.executable) {
            let Some(file) = &file.file else { continue };
            let is_wanted = wanted.iter().any(|other| other.identity == file.identity);
            if !known.contains_key(&file.identity) && !is_wanted {
                wanted.push(file);
            }
        }
        if !wanted.is_empty() {
            let paths = wanted.iter().map(|file| file.place.display().to_string());
            let copies = self.host.files(&paths.collect::<Vec<_>>());
            self.fetch_debug_files(copies.iter().flatten());
            for (file, copy) in wanted.iter().zip(copies) {
                known.insert(file.identity, copy);
            }
        }
        known.clone()
    }

    /// Puts the debug files of programs where they are looked for.
    fn fetch_debug_files<'a>(&self, copies: impl Iterator<Item = &'a PathBuf>) {
        let ids = copies.filter_map(|copy| debug_name(copy));
        let here = |name: &String| self.debug_files.join(".build-id").join(name);
        let names: Vec<String> = ids.filter(|name| !here(name).exists()).collect();
        let paths = names.iter().map(|name| format!("{DEBUG}/{name}"));
        let paths: Vec<String> = paths.collect();
        for (name, copy) in names.iter().zip(self.host.files(&paths)) {
            let place = here(name);
            let (Some(copy), Some(parent)) = (copy, place.parent()) else {
                continue;
            };
            // Without it the program has no lines; that is told where they are asked for.
            let _ = std::fs::create_dir_all(parent);
            let _ = std::os::unix::fs::symlink(copy, &place);
        }
    }
}

/// What the debug file of a program is called, if it has none of its own in it.
fn debug_name(program: &Path) -> Option<String> {
    let image = Image::open(program).ok()?;
    if image.has(".debug_info") || image.has(".zdebug_info") {
        return None;
    }
    let (first, rest) = image.build_id()?.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{first:02x}/{rest}.debug"))
}
