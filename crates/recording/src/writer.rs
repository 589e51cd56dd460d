//! Writing a recording.
//!
//! Frames are appended to the journal whole: space for a chunk is taken from
//! the disk before the chunk is written, and a little more than that
//! ([`RESERVE`]), so that when the disk is full the journal is not torn and
//! the notes that say so still find a place. Most journals stay so short
//! ([`SHORT`]) that to take space, and to give back what is left of it, would
//! take longer than to write them: there whoever records must see to it that
//! there is room for the notes.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use zstd::bulk::Compressor;

use crate::chunk::ChunkHead;
use crate::error::WriteError;
use crate::frame::{self, Kind};
use crate::model::{FileInfo, ImageStart, Manifest, Note, Status, Summary};

/// Space kept for frames other than chunks.
const RESERVE: u64 = 256 * 1024;
/// Up to this length no space is taken in advance.
const SHORT: u64 = 1024 * 1024;
/// Space is taken from the disk in steps of this.
const STEP: u64 = 4 * 1024 * 1024;
/// Payloads shorter than this are stored as they are.
const COMPRESS_MIN: usize = 256;
/// While the journal is shorter than [`BEGINNING`], payloads shorter than this are
/// stored as they are: to start compressing takes longer than to write all that,
/// and a program waits for it.
const COMPRESS_FIRST_MIN: usize = 32 * 1024;
const BEGINNING: u64 = 64 * 1024;
/// Chunks that are left at the end are stored as they are if they are shorter
/// than this: somebody waits.
const COMPRESS_LAST_MIN: usize = 128 * 1024;
/// How hard zstd tries: while it does, the program has one core less. Of logs
/// this makes as much as level 1, to a few hundredths, in four fifths of the
/// time.
const LEVEL: i32 = -1;

/// Writes a recording. Every method may be called from any thread.
pub struct Writer {
    path: PathBuf,
    state: Mutex<State>,
    packers: Mutex<Vec<Packer>>,
}

/// Makes frames. Kept for the next one, with the memory that it has: a log is
/// made of thousands of them.
struct Packer {
    compressor: Option<Compressor<'static>>,
    frame: Vec<u8>,
}

impl Packer {
    fn new() -> Packer {
        Packer {
            compressor: None,
            frame: Vec::new(),
        }
    }

    /// The frame of `raw`, with what `head` becomes once it is known how it is
    /// stored.
    fn pack(&mut self, mut head: frame::Head, raw: &[u8], compress_min: usize) -> &[u8] {
        let compressed = match raw.len() >= compress_min {
            true => self.compress(raw).filter(|len| *len < raw.len()),
            false => None,
        };
        let len = compressed.unwrap_or(raw.len());
        self.frame.resize(frame::HEAD.max(self.frame.len()), 0);
        if compressed.is_none() {
            self.frame.truncate(frame::HEAD);
            self.frame.extend_from_slice(raw);
        }
        head.flags = if compressed.is_some() { frame::ZSTD } else { 0 };
        head.stored_len = len as u32;
        if let Some((place, stored)) = self.frame.split_at_mut_checked(frame::HEAD) {
            place.copy_from_slice(&head.encode(stored.get(..len).unwrap_or(&[])));
        }
        self.frame.get(..frame::HEAD + len).unwrap_or(&[])
    }

    /// Leaves room for the head, and how long it became behind that.
    fn compress(&mut self, raw: &[u8]) -> Option<usize> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL).ok()?),
        };
        let most = frame::HEAD + zstd::zstd_safe::compress_bound(raw.len());
        if self.frame.len() < most {
            self.frame.resize(most, 0);
        }
        let room = self.frame.get_mut(frame::HEAD..)?;
        compressor.compress_to_buffer(raw, room).ok()
    }
}

struct State {
    journal: File,
    /// End of the last whole frame.
    end: u64,
    /// The disk has room for the journal up to here.
    backed: u64,
    /// The file system cannot promise room.
    no_promise: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that could panic runs under these locks; and half a frame is
    // overwritten by the next one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    /// Begins a recording in `dir`, which exists and holds nothing but,
    /// perhaps, `arena` and `files`.
    pub fn create(dir: &Path, manifest: &Manifest) -> Result<Writer, WriteError> {
        let path = dir.join(crate::JOURNAL);
        let manifest_path = dir.join(crate::MANIFEST);
        if manifest_path.exists() || path.exists() {
            return Err(WriteError::Exists(dir.to_path_buf()));
        }
        let files = dir.join(crate::FILES);
        std::fs::create_dir_all(&files).map_err(|e| WriteError::io("create", &files, e))?;
        let journal = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| WriteError::io("create", &path, e))?;
        // Nobody removes a recording while this is held (see [`crate::listing`]).
        // There may be no locks where it is: then its end says when it ended.
        let _ = rustix::fs::flock(&journal, rustix::fs::FlockOperation::LockExclusive);

        // The manifest comes last and in one step: a directory with a
        // manifest is a recording.
        let mut text = serde_json::to_vec_pretty(manifest).map_err(|e| WriteError::Encode {
            what: "manifest",
            why: e.to_string(),
        })?;
        text.push(b'\n');
        let fresh = dir.join("manifest.json.new");
        let write = || -> std::io::Result<()> {
            File::create(&fresh)?.write_all(&text)?;
            std::fs::rename(&fresh, &manifest_path)
        };
        write().map_err(|e| WriteError::io("write", &manifest_path, e))?;

        let writer = Writer {
            path,
            state: Mutex::new(State {
                journal,
                end: 0,
                backed: 0,
                no_promise: false,
            }),
            packers: Mutex::new(Vec::new()),
        };
        Ok(writer)
    }

    /// Bytes of the journal so far.
    pub fn journal_len(&self) -> u64 {
        lock(&self.state).end
    }

    /// One chunk of a log, its head included. It is cut at its `used`.
    pub fn chunk(&self, bytes: &[u8]) -> Result<(), WriteError> {
        self.chunk_with(bytes, COMPRESS_MIN)
    }

    /// One chunk of those that are left when the program has ended, its head
    /// included and cut at its `used`. Somebody waits for it, so it is compressed
    /// only if that is worth the time.
    pub fn last_chunk(&self, bytes: &[u8]) -> Result<(), WriteError> {
        self.chunk_with(bytes, COMPRESS_LAST_MIN)
    }

    fn chunk_with(&self, bytes: &[u8], compress_min: usize) -> Result<(), WriteError> {
        let head = ChunkHead::parse(bytes).map_err(WriteError::NotAChunk)?;
        let Some(bytes) = bytes.get(..head.used) else {
            return Err(WriteError::NotAChunk("it is shorter than it says"));
        };
        let first_event = match head.first_record {
            Some(_) => head.first_event,
            None => frame::NO_EVENT,
        };
        let head = (Kind::Chunk, head.process, head.seq, first_event);
        self.frame(head, bytes, compress_min)
    }

    /// A process has a new image.
    pub fn start(&self, start: &ImageStart) -> Result<(), WriteError> {
        self.payload(Kind::Start, start.process.0, start.image.0, start)
    }

    /// A file was captured.
    pub fn file(&self, file: &FileInfo) -> Result<(), WriteError> {
        self.payload(Kind::File, 0, 0, file)
    }

    /// Something a reader should know.
    pub fn note(&self, note: &Note) -> Result<(), WriteError> {
        self.payload(Kind::Note, note.process.0, 0, note)
    }

    /// A process has ended.
    pub fn status(&self, status: &Status) -> Result<(), WriteError> {
        // The frame's own number is for who searches the journal by hand; the status says
        // itself whether its process is known.
        let process = status.process.map_or(0, |process| process.0);
        self.payload(Kind::Status, process, 0, status)
    }

    /// The recording ends. Space that was kept for more is given back.
    pub fn finish(&self, summary: &Summary) -> Result<(), WriteError> {
        self.payload(Kind::End, 0, 0, summary)?;
        let state = lock(&self.state);
        if state.backed <= state.end {
            return Ok(());
        }
        state
            .journal
            .set_len(state.end)
            .map_err(|e| WriteError::io("truncate", &self.path, e))
    }

    fn payload<T: Serialize>(
        &self,
        kind: Kind,
        process: u32,
        seq: u32,
        value: &T,
    ) -> Result<(), WriteError> {
        let bytes = postcard::to_stdvec(value).map_err(|e| WriteError::Encode {
            what: kind.name(),
            why: e.to_string(),
        })?;
        let is_beginning = lock(&self.state).end < BEGINNING;
        let compress_min = match is_beginning {
            true => COMPRESS_FIRST_MIN,
            false => COMPRESS_MIN,
        };
        self.frame((kind, process, seq, 0), &bytes, compress_min)
    }

    fn frame(
        &self,
        (kind, process, seq, first_event): (Kind, u32, u32, u64),
        raw: &[u8],
        compress_min: usize,
    ) -> Result<(), WriteError> {
        if raw.len() > frame::PAYLOAD_MAX {
            return Err(WriteError::Encode {
                what: kind.name(),
                why: format!("{} bytes are too long", raw.len()),
            });
        }
        let head = frame::Head {
            kind: kind as u16,
            flags: 0,
            process,
            seq,
            raw_len: raw.len() as u32,
            stored_len: 0,
            first_event,
            check: 0,
        };
        let kept = lock(&self.packers).pop();
        let mut packer = kept.unwrap_or_else(Packer::new);
        // Compressed outside the lock: several threads may be at it.
        let frame = packer.pack(head, raw, compress_min);
        let reserve = if kind == Kind::Chunk { RESERVE } else { 0 };
        let appended = lock(&self.state).append(frame, reserve);
        lock(&self.packers).push(packer);
        appended.map_err(|e| WriteError::io("write", &self.path, e))
    }
}

impl State {
    fn append(&mut self, bytes: &[u8], reserve: u64) -> std::io::Result<()> {
        let end = self.end + bytes.len() as u64;
        self.back(end + reserve)?;
        if let Err(error) = self.journal.write_all_at(bytes, self.end) {
            // Leave no half frame. (The file is not longer than `end` of the
            // last frame otherwise: room is taken beyond its length.)
            let _ = self.journal.set_len(self.end);
            self.backed = self.end;
            return Err(error);
        }
        self.end = end;
        Ok(())
    }

    /// Makes sure that the disk has room for the journal up to `end`.
    fn back(&mut self, end: u64) -> std::io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        if self.no_promise || end <= self.backed.max(SHORT) {
            return Ok(());
        }
        let missing = end - self.backed;
        for len in [missing.max(STEP), missing] {
            match fallocate(&self.journal, FallocateFlags::KEEP_SIZE, self.backed, len) {
                Ok(()) => {
                    self.backed += len;
                    return Ok(());
                }
                Err(Errno::NOSPC | Errno::DQUOT | Errno::INTR) if len > missing => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => return Err(error.into()),
                Err(_) => {
                    self.no_promise = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
