//! What the beginnings of all logs say, kept beside the recording.
//!
//! To know its processes, whoever opens a recording must read the beginning of
//! each one's log, which is unpacking a chunk for each. With a hundred of them
//! that takes longer than most questions. So what was found is kept in a file,
//! with what it was found in: the journal's length and when it was last changed.
//! A file that is damaged, or of another journal, is as none. Nothing depends on
//! it but time, so that it need not be written, nor be there.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use protocol::id::{EventNo, ProcessNo, Ticks};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::process::{Began, Process};
use crate::recording::Recording;

/// Name of the file in a recording.
pub const CATALOG: &str = "catalog";

const MAGIC: [u8; 8] = *b"mwcatlog";
/// Raised whenever what is kept changes.
const VERSION: u32 = 1;

/// The beginning of one process's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beginning {
    number: ProcessNo,
    pid: u32,
    own_pid: u32,
    namespace: u32,
    began: u8,
    parent: Option<ProcessNo>,
    parent_event: Option<EventNo>,
    birth: Ticks,
    first_event: EventNo,
}

impl Beginning {
    fn of(process: &Process) -> Beginning {
        Beginning {
            number: process.number,
            pid: process.pid,
            own_pid: process.own_pid,
            namespace: process.namespace,
            began: match process.began {
                Began::First => 0,
                Began::Fork => 1,
                Began::Vfork => 2,
                Began::Unknown => 3,
            },
            parent: process.parent,
            parent_event: process.parent_event,
            birth: process.birth,
            first_event: process.first_event,
        }
    }

    pub fn number(&self) -> ProcessNo {
        self.number
    }

    /// Puts it into a process of which the rest is known.
    pub fn put(&self, process: &mut Process) {
        process.pid = self.pid;
        process.own_pid = self.own_pid;
        process.namespace = self.namespace;
        process.began = match self.began {
            0 => Began::First,
            1 => Began::Fork,
            2 => Began::Vfork,
            _ => Began::Unknown,
        };
        process.parent = self.parent;
        process.parent_event = self.parent_event;
        process.birth = self.birth;
        process.first_event = self.first_event;
    }
}

#[derive(Serialize, Deserialize)]
struct Catalog {
    version: u32,
    /// Length of the journal, and when it was changed: seconds, nanoseconds.
    journal: (u64, i64, i64),
    /// How many processes have logs or images.
    processes: u64,
    beginnings: Vec<Beginning>,
}

fn journal(dir: &Path) -> io::Result<(u64, i64, i64)> {
    let meta = std::fs::metadata(dir.join(crate::JOURNAL))?;
    Ok((meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// What is kept in `dir`, if it is of the journal there, and of so many
/// processes.
pub(crate) fn load(dir: &Path, processes: usize) -> Option<Vec<Beginning>> {
    let bytes = std::fs::read(dir.join(CATALOG)).ok()?;
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*sum) != xxh3_64(rest) {
        return None;
    }
    let catalog: Catalog = postcard::from_bytes(rest).ok()?;
    let fits = catalog.version == VERSION
        && catalog.processes == processes as u64
        && journal(dir).ok() == Some(catalog.journal);
    fits.then_some(catalog.beginnings)
}

impl Recording {
    /// Keeps what the beginnings of the logs say, so that the recording opens
    /// faster the next time. Does nothing where that is known already, where the
    /// recording is not over, and where it cannot be written.
    pub fn keep_catalog(&self) {
        if self.has_arena() || !self.damage().is_empty() || self.is_catalogued() {
            return;
        }
        let Ok(journal) = journal(self.dir()) else {
            return;
        };
        let catalog = Catalog {
            version: VERSION,
            journal,
            processes: self.process_numbers().len() as u64,
            beginnings: self.processes().iter().map(Beginning::of).collect(),
        };
        let Ok(body) = postcard::to_allocvec(&catalog) else {
            return;
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(xxh3_64(&body).to_le_bytes());
        bytes.extend(body);
        // Whole or not at all.
        let path = self.dir().join(CATALOG);
        let temporary = self.dir().join(format!("{CATALOG}.{}", std::process::id()));
        if std::fs::write(&temporary, bytes)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .is_err()
        {
            // A directory that is not ours to write: it opens as slowly again.
            let _ = std::fs::remove_file(&temporary);
        }
    }
}
