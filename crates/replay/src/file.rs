//! The file that a replaying process maps: control block, monitor, logs, and
//! the memory it begins with.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::Ordering::{Relaxed, Release};

use inject::Image;
use protocol::record::{Memory, begin, kind};
use protocol::replay::{DATA_OFFSET, MAPS_MAX, PATH_MAX, REPLAY_OFFSET, Replay, STREAMS_MAX};
use protocol::shared::{ARENA_MAGIC, Control, IMAGE_OFFSET, mode};
use recording::{ImageStart, Recording};

use crate::Error;

/// One image's log.
#[derive(Clone, Debug)]
pub struct Stream {
    pub process: u32,
    pub image: u32,
    how: u64,
    parent: u32,
    parent_event: u64,
    first_event: u64,
    bytes: Vec<u8>,
    /// Position, time, event, thread of each chunk's first record.
    marks: Vec<[u64; 4]>,
}

/// Cuts the logs of all processes into streams.
pub fn streams(recording: &Recording) -> Vec<Stream> {
    let mut all: Vec<Stream> = Vec::new();
    for process in recording.processes() {
        let mut current: Option<Stream> = None;
        recording.each_chunk(process.number, |head, bytes| {
            // An image's log begins with a chunk of its own.
            let first = head.first_record.and_then(|at| {
                let mut memory = Memory::new();
                memory.forget(head.first_time);
                let at = at.checked_sub(protocol::shared::CHUNK_HEAD)?;
                // Which thread it is, and whose turn it was, come first.
                let mut next = at;
                loop {
                    let (record, used) = memory.read(bytes.get(next..)?).ok()?;
                    if !matches!(record.kind, kind::THREAD | kind::TURN) {
                        return (record.kind == kind::BEGIN && at == 0).then_some(record.values);
                    }
                    next += used;
                }
            });
            if let Some(values) = first {
                all.extend(current.take());
                current = Some(Stream {
                    process: process.number,
                    image: values[4] as u32,
                    how: values[0],
                    parent: values[1] as u32,
                    parent_event: values[2],
                    first_event: head.first_event,
                    bytes: Vec::new(),
                    marks: Vec::new(),
                });
            }
            if let Some(stream) = &mut current {
                if let Some(at) = head.first_record {
                    let at = stream.bytes.len() + at - protocol::shared::CHUNK_HEAD;
                    let thread = u64::from(head.first_thread);
                    stream
                        .marks
                        .push([at as u64, head.first_time, head.first_event, thread]);
                }
                stream.bytes.extend_from_slice(bytes);
            }
        });
        all.extend(current);
    }
    all
}

impl Stream {
    /// Whether it begins from an image alone, not in a parent's memory.
    pub fn is_start(&self) -> bool {
        matches!(self.how, begin::FIRST | begin::EXEC)
    }

    /// The process it was forked from.
    pub fn parent(&self) -> u32 {
        self.parent
    }
}

/// The file, mapped.
pub struct ReplayFile {
    file: File,
    base: *mut u8,
    len: usize,
    /// Where data of one run goes (behind the logs).
    free: u64,
}

impl ReplayFile {
    pub fn create(image: &Image, streams: &[Stream], files: &str) -> Result<ReplayFile, Error> {
        if streams.len() > STREAMS_MAX {
            return Err(Error::TooMany(streams.len()));
        }
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
        // Room for the memory of the largest image: stacks and such.
        let len = DATA_OFFSET + logs as u64 + (64 << 20);
        file.set_len(len).map_err(fail)?;
        file.write_all_at(&image.bytes, IMAGE_OFFSET)
            .map_err(fail)?;
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
            base: base.cast(),
            len: len as usize,
            free: DATA_OFFSET,
        };
        // SAFETY: mapped, large enough, made of atomics.
        let control = unsafe { &*it.base.cast::<Control>() };
        control.version.store(protocol::FORMAT_VERSION, Relaxed);
        control.mode.store(mode::REPLAY, Relaxed);
        control.magic.store(ARENA_MAGIC, Release);
        it.put_path(files);
        for (index, stream) in streams.iter().enumerate() {
            it.put_stream(index, stream).map_err(fail)?;
        }
        it.header().streams.store(streams.len() as u32, Relaxed);
        it.header()
            .image_len
            .store(image.bytes.len() as u64, Relaxed);
        Ok(it)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn header(&self) -> &Replay {
        // SAFETY: inside the mapping, aligned, made of atomics.
        unsafe { &*self.base.add(REPLAY_OFFSET as usize).cast::<Replay>() }
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

    fn put_path(&self, files: &str) {
        let mut bytes = files.as_bytes().to_vec();
        bytes.truncate(PATH_MAX - 1);
        bytes.resize(PATH_MAX, 0);
        for (word, chunk) in self.header().files.iter().zip(bytes.chunks_exact(8)) {
            word.store(
                u64::from_le_bytes(chunk.try_into().unwrap_or([0; 8])),
                Relaxed,
            );
        }
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
        entry.process.store(stream.process, Relaxed);
        entry.image.store(stream.image, Relaxed);
        entry.parent.store(stream.parent, Relaxed);
        entry.how.store(stream.how as u32, Relaxed);
        entry.parent_event.store(stream.parent_event, Relaxed);
        entry.offset.store(offset, Relaxed);
        entry.len.store(stream.bytes.len() as u64, Relaxed);
        entry.marks_offset.store(marks_offset, Relaxed);
        entry.marks.store(stream.marks.len() as u64, Relaxed);
        entry.first_event.store(stream.first_event, Release);
        Ok(())
    }

    /// Sets the beginning of a run: the stream and the image's memory.
    pub fn set_start(
        &mut self,
        index: usize,
        start: &ImageStart,
        vdso: u64,
    ) -> std::io::Result<()> {
        const STACK: u64 = 8 << 20;
        let kept = self.free;
        let rsp = start.regs.get(19).copied().unwrap_or(0);
        let mut count = 0;
        let mut below = 0;
        for map in &start.maps {
            if map.name.starts_with(b"[v") {
                continue;
            }
            let is_stack = (map.start..map.end).contains(&rsp);
            let mut contents = map.contents.clone().unwrap_or_default();
            let mut at = map.start;
            let mut from = map.start;
            if is_stack {
                at = map.end - contents.len() as u64;
                from = map.end.saturating_sub(STACK).max(below).min(map.start);
                show_vdso(&mut contents, rsp.wrapping_sub(at) as usize, vdso);
            }
            below = map.end;
            let contents_offset = self.put(&contents)?;
            let Some(entry) = self.header().map.get(count).filter(|_| count < MAPS_MAX) else {
                break;
            };
            entry.start.store(from, Relaxed);
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
