//! The file that a replaying process maps: control block, monitor, logs, and
//! the memory it begins with.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::Ordering::{Relaxed, Release};

use inject::Image;
use protocol::layout::{MONITOR_BASE, MONITOR_END};
use protocol::replay::{DATA_OFFSET, MAPS_MAX, PATH_STREAMS, REPLAY_OFFSET, Replay, STREAMS_MAX};
use protocol::shared::{ARENA_MAGIC, Control, IMAGE_OFFSET, mode};
use recording::{ImageStart, Mapping, Recording};

use crate::Error;
use crate::stream::Stream;

/// Most that processes that share memory may write in all.
const JOURNAL_MAX: u64 = 8 << 30;

/// The file, mapped.
pub struct ReplayFile {
    file: File,
    /// The directory of the captured files.
    captured: File,
    base: *mut u8,
    len: usize,
    /// Where data of one run goes (behind the logs).
    free: u64,
}

impl ReplayFile {
    pub fn create(
        image: &Image,
        streams: &[Stream],
        recording: &Recording,
    ) -> Result<ReplayFile, Error> {
        if streams.len() > STREAMS_MAX {
            return Err(Error::TooMany(streams.len()));
        }
        let files = recording.dir().join(recording::FILES);
        let captured = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(&files)
            .map_err(|source| Error::Captured {
                path: files,
                source,
            })?;
        let dir = std::env::temp_dir();
        let fail = |source| Error::File {
            path: dir.display().to_string(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .mode(0o600)
            .open(&dir)
            .map_err(fail)?;
        let logs: usize = streams
            .iter()
            .map(|s| s.bytes.len() + s.marks.len() * 32 + 4096)
            .sum();
        // Room for the memory of the largest image (stacks and such), and for
        // what processes that share memory write: it costs nothing until it
        // is used.
        let journal = (DATA_OFFSET + logs as u64 + (64 << 20)).next_multiple_of(4096);
        let len = journal + JOURNAL_MAX;
        file.set_len(len).map_err(fail)?;
        file.write_all_at(image.bytes, IMAGE_OFFSET).map_err(fail)?;
        // SAFETY: a fresh shared mapping of our own file.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(fail(std::io::Error::last_os_error()));
        }
        let mut it = ReplayFile {
            file,
            captured,
            base: base.cast(),
            len: len as usize,
            free: DATA_OFFSET,
        };
        // SAFETY: mapped, large enough, made of atomics.
        let control = unsafe { &*it.base.cast::<Control>() };
        control.version.store(protocol::FORMAT_VERSION, Relaxed);
        control.mode.store(mode::REPLAY, Relaxed);
        control.magic.store(ARENA_MAGIC, Release);
        it.header().leader.store(std::process::id(), Relaxed);
        it.header().journal.offset.store(journal, Relaxed);
        it.header().journal.capacity.store(JOURNAL_MAX, Relaxed);
        for (index, stream) in streams.iter().enumerate() {
            it.put_stream(index, stream).map_err(fail)?;
        }
        it.header().streams.store(streams.len() as u32, Relaxed);
        it.header()
            .image_len
            .store(image.bytes.len() as u64, Relaxed);
        Ok(it)
    }

    /// Says in which domains processes share memory.
    pub fn set_shared(&self, domains: &HashSet<u64>) {
        let words = &self.header().shared;
        for domain in domains {
            if let Some(word) = words.get(*domain as usize / 64) {
                word.fetch_or(1 << (domain % 64), Relaxed);
            }
        }
    }

    /// All that was written into the journal.
    pub fn journal(&self) -> Vec<u8> {
        let journal = &self.header().journal;
        let len = journal.len.load(Relaxed).min(JOURNAL_MAX) as usize;
        let mut bytes = vec![0; len];
        let offset = journal.offset.load(Relaxed);
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    /// Has processes replayed alone: what others wrote is in `journal`.
    pub fn set_journal(&self, journal: &[u8]) -> std::io::Result<()> {
        let place = &self.header().journal;
        self.file
            .write_all_at(journal, place.offset.load(Relaxed))?;
        place.len.store(journal.len() as u64, Relaxed);
        place.is_complete.store(1, Release);
        Ok(())
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// The directory that holds the captured files.
    pub fn captured(&self) -> &File {
        &self.captured
    }

    pub fn header(&self) -> &Replay {
        // SAFETY: inside the mapping, aligned, made of atomics.
        unsafe { &*self.base.add(REPLAY_OFFSET as usize).cast::<Replay>() }
    }

    /// Has the process that begins here led, through the forks of `path` to
    /// the last of its streams.
    pub fn set_path(&self, path: &[usize], player: usize) -> Result<(), Error> {
        if path.len() > PATH_STREAMS {
            return Err(Error::TooMany(path.len()));
        }
        let header = self.header();
        for (place, index) in header.path.iter().zip(path) {
            place.store(*index as u32, Relaxed);
        }
        header.path_len.store(path.len() as u32, Relaxed);
        header.player.store(player as u32 + 1, Release);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<u64> {
        let offset = self.free;
        if offset + bytes.len() as u64 > self.len as u64 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.file.write_all_at(bytes, offset)?;
        self.free = (offset + bytes.len() as u64 + 63) & !63;
        Ok(offset)
    }

    fn put_stream(&mut self, index: usize, stream: &Stream) -> std::io::Result<()> {
        let offset = self.put(&stream.bytes)?;
        let marks: Vec<u8> = stream
            .marks
            .iter()
            .flatten()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let marks_offset = self.put(&marks)?;
        let Some(entry) = self.header().table.get(index) else {
            return Ok(());
        };
        entry.process.store(stream.process.0, Relaxed);
        entry.image.store(stream.image.0, Relaxed);
        entry.parent.store(stream.parent.0, Relaxed);
        entry.how.store(stream.how as u32, Relaxed);
        entry.parent_event.store(stream.parent_event.0, Relaxed);
        entry.offset.store(offset, Relaxed);
        entry.len.store(stream.bytes.len() as u64, Relaxed);
        entry.marks_offset.store(marks_offset, Relaxed);
        entry.marks.store(stream.marks.len() as u64, Relaxed);
        entry.first_event.store(stream.first_event.0, Release);
        Ok(())
    }

    /// Sets the beginning of a run: the stream and the image's memory.
    pub fn set_start(&mut self, index: usize, start: &ImageStart, vdso: u64) -> Result<(), Error> {
        let damaged = Error::BadImage {
            process: start.process,
        };
        if start.maps.len() > MAPS_MAX || !start.maps.iter().all(is_possible) {
            return Err(damaged);
        }
        let kept = self.free;
        let rsp = start.regs.get(19).copied().unwrap_or(0);
        let mut count = 0;
        for map in &start.maps {
            if map.name.starts_with(b"[v") {
                continue;
            }
            let is_stack = (map.start..map.end).contains(&rsp);
            let mut contents = map.contents.clone().unwrap_or_default();
            let mut at = map.start;
            if is_stack {
                at = map.end - contents.len() as u64;
                show_vdso(&mut contents, rsp.wrapping_sub(at) as usize, vdso);
            }
            let contents_offset = self.put(&contents).map_err(|source| Error::File {
                path: std::env::temp_dir().display().to_string(),
                source,
            })?;
            let Some(entry) = self.header().map.get(count) else {
                return Err(damaged);
            };
            entry.start.store(map.start, Relaxed);
            entry.end.store(map.end, Relaxed);
            entry.prot.store(u64::from(map.prot), Relaxed);
            entry.file.store(map.file.map_or(0, |id| id + 1), Relaxed);
            entry.file_offset.store(map.offset, Relaxed);
            entry.contents.store(contents_offset, Relaxed);
            entry.contents_len.store(contents.len() as u64, Relaxed);
            entry.contents_at.store(at, Relaxed);
            count += 1;
        }
        // The next run may use the room again.
        self.free = kept;
        let header = self.header();
        header.maps.store(count as u32, Relaxed);
        header.stream.store(index as u32, Relaxed);
        header
            .entry
            .store(start.regs.get(16).copied().unwrap_or(0), Relaxed);
        header.stack.store(rsp, Relaxed);
        header.sigmask.store(start.sigmask, Relaxed);
        header.ignored.store(start.ignored, Release);
        Ok(())
    }
}

impl Drop for ReplayFile {
    fn drop(&mut self) {
        // SAFETY: our own mapping, not used any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Whether a mapping could have been one of a program's: a recording that was
/// tampered with may say anything.
fn is_possible(map: &Mapping) -> bool {
    const USER_END: u64 = 0x7fff_ffff_f000;
    // What the kernel itself put there is left out.
    if map.name.starts_with(b"[v") {
        return true;
    }
    let len = map.contents.as_ref().map_or(0, Vec::len) as u64;
    let apart = map.end <= MONITOR_BASE || map.start >= MONITOR_END;
    map.start >= 4096
        && map.start < map.end
        && map.end <= USER_END
        && (map.start | map.end | map.offset) & 4095 == 0
        && map.end - map.start >= len
        && map.prot & !7 == 0
        && apart
}

/// The auxiliary vector on the stack shows the program our vdso, as it did in
/// the recording (the stack was captured just before).
fn show_vdso(stack: &mut [u8], at: usize, vdso: u64) {
    let word = |stack: &[u8], i: usize| {
        let at = at + 8 * i;
        stack
            .get(at..at + 8)
            .and_then(|b| b.try_into().ok())
            .map(u64::from_le_bytes)
    };
    let mut i = 2 + word(stack, 0).unwrap_or(0) as usize;
    while word(stack, i).is_some_and(|w| w != 0) {
        i += 1;
    }
    i += 1;
    while let Some(key) = word(stack, i) {
        if key == libc::AT_SYSINFO_EHDR
            && let Some(place) = stack.get_mut(at + 8 * i + 8..at + 8 * i + 16)
        {
            place.copy_from_slice(&vdso.to_le_bytes());
        }
        if key == libc::AT_NULL {
            return;
        }
        i += 2;
    }
}
