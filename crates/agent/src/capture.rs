//! Copies of what the program runs and maps, so that the recording stands
//! alone.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use protocol::shared::{CAPTURED_MAX, CAPTURED_PROBES, Control, file_key, find_captured};
use recording::{FileInfo, Writer};

/// The captured files of one recording.
pub struct Captures {
    dir: PathBuf,
    next: AtomicU64,
    /// One at a time: the same library is asked for by many at once.
    lock: Mutex<()>,
}

impl Captures {
    pub fn new(dir: &Path) -> Captures {
        Captures {
            dir: dir.to_path_buf(),
            next: AtomicU64::new(1),
            lock: Mutex::new(()),
        }
    }

    /// The id of the copy of an open file, made now if there is none. None: it
    /// is not a regular file.
    pub fn capture(
        &self,
        control: &Control,
        writer: &Writer,
        file: &File,
        name: &Path,
    ) -> io::Result<Option<u64>> {
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
        let _guard = self
            .lock
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(id) = find_captured(&control.captured, key) {
            return Ok(Some(id));
        }
        let id = self.next.fetch_add(1, AcqRel);
        let mut copy = File::create_new(recording::captured_path(&self.dir, id))?;
        copy_contents(file, &mut copy)?;
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
        remember(control, key, id);
        Ok(Some(id))
    }
}

fn remember(control: &Control, key: u64, id: u64) {
    for step in 0..CAPTURED_PROBES {
        let at = (key as usize).wrapping_add(step) & (CAPTURED_MAX - 1);
        if let Some(place) = control.captured.get(at)
            && place.key.load(Acquire) == 0
        {
            place.id.store(id, Release);
            place.key.store(key, Release);
            return;
        }
    }
    // The table is full around here: the file is captured again next time.
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
