//! Copies of what the program runs and maps, so that the recording stands
//! alone.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::record::counter_site;
use protocol::shared::{CAPTURED_MAX, CAPTURED_PROBES, Control, file_key, find_captured};
use recording::{FileInfo, Note, Writer};

use crate::sites::{self, Sites};

/// The captured files of one recording.
pub struct Captures {
    dir: PathBuf,
    next: AtomicU64,
    /// One at a time: the same library is asked for by many at once. Holds how
    /// many of the arena's counter sites are in use.
    lock: Mutex<usize>,
}

/// A file that has been captured.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    pub id: u64,
    /// Its place in the arena's table; none if there was no room.
    pub place: Option<usize>,
}

impl Captures {
    pub fn new(dir: &Path) -> Captures {
        Captures {
            dir: dir.to_path_buf(),
            next: AtomicU64::new(1),
            lock: Mutex::new(0),
        }
    }

    /// The copy of an open file, made now if there is none. None: it is not a
    /// regular file.
    pub fn capture(
        &self,
        control: &Control,
        writer: &Writer,
        file: &File,
        name: &Path,
    ) -> io::Result<Option<Captured>> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(None);
        }
        let times = [
            meta.mtime() as u64,
            meta.mtime_nsec() as u64,
            meta.ctime() as u64,
            meta.ctime_nsec() as u64,
        ];
        let key = file_key(meta.dev(), meta.ino(), meta.size(), times);
        let mut sites_used = self
            .lock
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(place) = find_captured(&control.captured, key) {
            let id = control.captured.get(place).map(|c| c.id.load(Acquire));
            return Ok(id.map(|id| Captured {
                id,
                place: Some(place),
            }));
        }
        let id = self.next.fetch_add(1, AcqRel);
        let mut copy = File::create_new(recording::captured_path(&self.dir, id))?;
        // Both read all of a large file: at the same time.
        let (copied, sites) = std::thread::scope(|scope| {
            let find = || sites::find(file);
            let sites = std::thread::Builder::new().spawn_scoped(scope, find).ok();
            let copied = copy_contents(file, &mut copy);
            let sites = sites.and_then(|thread| thread.join().ok());
            (copied, sites.unwrap_or_else(find))
        });
        copied?;
        let sites = sites?;
        let info = FileInfo {
            id,
            path: name.as_os_str().as_encoded_bytes().to_vec(),
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            mtime_ns: meta
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(meta.mtime_nsec()),
            mode: meta.mode(),
        };
        writer.file(&info).map_err(io::Error::other)?;
        let place = free_place(control, key);
        let kept = keep_sites(control, place, &sites, &mut sites_used);
        if !kept || !sites.doubtful.is_empty() {
            let left = if kept {
                sites.doubtful.len()
            } else {
                sites.doubtful.len() + sites.confirmed.len()
            };
            let note = Note {
                process: 0,
                kind: "counter".to_string(),
                text: format!(
                    "{}: {left} instructions that may read the time-stamp counter stay as they are",
                    name.display()
                ),
            };
            writer.note(&note).map_err(io::Error::other)?;
        }
        if let Some(entry) = place.and_then(|place| control.captured.get(place)) {
            entry.id.store(id, Release);
            entry.key.store(key, Release);
        }
        Ok(Some(Captured { id, place }))
    }
}

/// Where a file goes in the table. None: the table is full around there, and
/// the file is captured again next time.
fn free_place(control: &Control, key: u64) -> Option<usize> {
    (0..CAPTURED_PROBES)
        .map(|step| (key as usize).wrapping_add(step) & (CAPTURED_MAX - 1))
        .find(|at| {
            let entry = control.captured.get(*at);
            entry.is_some_and(|entry| entry.key.load(Acquire) == 0)
        })
}

/// Tells the monitors where in a file the counter is read. False: there is no
/// room for that.
fn keep_sites(control: &Control, place: Option<usize>, sites: &Sites, used: &mut usize) -> bool {
    let count = sites.confirmed.len();
    if count == 0 {
        return true;
    }
    let end = used.saturating_add(count);
    let (Some(place), Some(room)) = (place, control.counter_sites.get(*used..end)) else {
        return false;
    };
    for (word, site) in room.iter().zip(&sites.confirmed) {
        word.store(counter_site::word(site.offset, site.len), Relaxed);
    }
    control.set_counter_sites_of(place, *used, count);
    *used = end;
    true
}

/// Shares the blocks if the file system can, else copies.
fn copy_contents(from: &File, to: &mut File) -> io::Result<()> {
    const FICLONE: libc::Ioctl = 0x4004_9409_u32 as libc::Ioctl;
    // SAFETY: FICLONE takes a descriptor, and touches no memory.
    if unsafe { libc::ioctl(to.as_raw_fd(), FICLONE, from.as_raw_fd()) } == 0 {
        return Ok(());
    }
    let mut source = from;
    io::copy(&mut source, to)?;
    Ok(())
}
