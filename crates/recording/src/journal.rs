//! Reading the journal.
//!
//! Opening walks from head to head without reading chunks; a chunk's check is
//! made when the chunk is read. Only the last frame is checked at once: it is
//! the one that may be torn. Damage in the middle is stepped over by looking
//! for the next whole frame.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use protocol::shared::CHUNK_SIZE;
use zstd::bulk::Decompressor;

use crate::frame::{self, Head, Kind};
use crate::model::Summary;

/// How many places that look like a frame are tried behind damage.
const CANDIDATES_MAX: usize = 4096;

/// A stretch of the journal that is not whole frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the journal.
    pub at: u64,
    /// Length.
    pub len: u64,
    /// Nothing follows it: the recording was cut short there.
    pub is_tail: bool,
}

impl Damage {
    /// A frame whose check is wrong.
    pub(crate) fn of(frame: &Frame) -> Damage {
        Damage {
            at: frame.at,
            len: frame::HEAD as u64 + u64::from(frame.head.stored_len),
            is_tail: false,
        }
    }
}

/// Where a frame is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub at: u64,
    pub head: Head,
}

/// Why a frame cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the journal cannot be read at offset {at}: {source}")]
    Io { at: u64, source: io::Error },
    #[error("the journal is damaged at offset {at}")]
    Damaged { at: u64 },
}

pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    pub len: u64,
    decompressors: Mutex<Vec<Decompressor<'static>>>,
}

impl Journal {
    pub fn open(path: &Path) -> io::Result<Journal> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Journal {
            file,
            path: path.to_path_buf(),
            len,
            decompressors: Mutex::new(Vec::new()),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When it was last written to, in nanoseconds since the epoch; 0 if that
    /// cannot be told.
    pub fn changed_ns(&self) -> u64 {
        let changed = self.file.metadata().and_then(|meta| meta.modified()).ok();
        let since = changed.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        since.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        })
    }

    /// The end frame, if it is the last: found without a walk.
    pub fn end(&self) -> Option<Summary> {
        // Such a frame is a head and a few numbers.
        const LONGEST: u64 = frame::HEAD as u64 + 64;
        let from = self.len.saturating_sub(LONGEST);
        let mut tail = vec![0; (self.len - from) as usize];
        self.read_at(&mut tail, from).ok()?;
        let places = tail.windows(frame::MAGIC.len()).zip(from..);
        for (_, at) in places.filter(|(window, _)| **window == frame::MAGIC) {
            let Ok(Some(head)) = self.head_at(at) else {
                continue;
            };
            let reaches = at + frame::HEAD as u64 + u64::from(head.stored_len) == self.len;
            if reaches && Kind::from_number(head.kind) == Some(Kind::End) {
                return self.value(&Frame { at, head }).ok();
            }
        }
        None
    }

    /// All frames, and what lies between them that is none.
    pub fn walk(&self) -> Result<(Vec<Frame>, Vec<Damage>), FrameError> {
        let mut frames = Vec::new();
        let mut damage = Vec::new();
        let mut at = 0;
        while at < self.len {
            let found = self.head_at(at)?;
            let next = match found {
                Some(head) => at + frame::HEAD as u64 + u64::from(head.stored_len),
                None => 0,
            };
            let frame = found.map(|head| Frame { at, head });
            // The last frame is checked here, and one of no known kind, which
            // nobody reads: a damaged head can look like that. The others
            // are checked when they are read.
            let whole = match frame {
                Some(frame) if next == self.len || Kind::from_number(frame.head.kind).is_none() => {
                    self.is_whole(&frame)?
                }
                Some(_) => true,
                None => false,
            };
            if let Some(frame) = frame
                && whole
            {
                frames.push(frame);
                at = next;
                continue;
            }
            // A frame that lies about its length leads here: then it, not
            // what it leads to, is where the damage begins.
            if let Some(last) = frames.last().copied()
                && !self.is_whole(&last)?
            {
                frames.pop();
                at = last.at;
            }
            let resume = self.find_whole(at + 1)?;
            damage.push(Damage {
                at,
                len: resume.unwrap_or(self.len) - at,
                is_tail: resume.is_none(),
            });
            at = resume.unwrap_or(self.len);
        }
        Ok((frames, damage))
    }

    /// The head at `at`, if one is there and its payload fits in the file.
    fn head_at(&self, at: u64) -> Result<Option<Head>, FrameError> {
        let Some(room) = self.len.saturating_sub(at).checked_sub(frame::HEAD as u64) else {
            return Ok(None);
        };
        let mut bytes = [0; frame::HEAD];
        self.read_at(&mut bytes, at)?;
        Ok(Head::decode(&bytes).filter(|head| {
            let max = match Kind::from_number(head.kind) {
                Some(Kind::Chunk) => CHUNK_SIZE,
                _ => frame::PAYLOAD_MAX,
            };
            u64::from(head.stored_len) <= room
                && head.raw_len as usize <= max
                && head.stored_len as usize <= max
        }))
    }

    fn is_whole(&self, frame: &Frame) -> Result<bool, FrameError> {
        match self.stored(frame) {
            Ok(_) => Ok(true),
            Err(FrameError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Offset of the first whole frame at or behind `from`.
    fn find_whole(&self, from: u64) -> Result<Option<u64>, FrameError> {
        const BLOCK: usize = 1 << 20;
        let overlap = frame::MAGIC.len() - 1;
        let mut tried = 0;
        let mut block_at = from;
        let mut block = Vec::new();
        while block_at < self.len {
            let len = (self.len - block_at).min((BLOCK + overlap) as u64) as usize;
            block.resize(len, 0);
            self.read_at(&mut block, block_at)?;
            for (i, window) in block.windows(frame::MAGIC.len()).enumerate() {
                if window != frame::MAGIC {
                    continue;
                }
                let at = block_at + i as u64;
                if let Some(head) = self.head_at(at)? {
                    tried += 1;
                    if tried > CANDIDATES_MAX {
                        return Ok(None);
                    }
                    if self.is_whole(&Frame { at, head })? {
                        return Ok(Some(at));
                    }
                }
            }
            block_at += BLOCK as u64;
        }
        Ok(None)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), FrameError> {
        self.file
            .read_exact_at(bytes, at)
            .map_err(|source| FrameError::Io { at, source })
    }

    /// The payload as stored, checked.
    fn stored(&self, frame: &Frame) -> Result<Vec<u8>, FrameError> {
        let mut bytes = vec![0; frame::HEAD + frame.head.stored_len as usize];
        self.read_at(&mut bytes, frame.at)?;
        let stored = bytes.split_off(frame::HEAD);
        // The head is read again with its payload and must be the same one.
        if Head::decode(&bytes) == Some(frame.head) && frame.head.is_whole(&bytes, &stored) {
            Ok(stored)
        } else {
            Err(FrameError::Damaged { at: frame.at })
        }
    }

    /// The payload, checked and decompressed, put in place of what `out` held.
    pub fn payload(&self, frame: &Frame, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let damaged = || FrameError::Damaged { at: frame.at };
        let stored = self.stored(frame)?;
        let raw_len = frame.head.raw_len as usize;
        out.clear();
        if frame.head.flags & frame::ZSTD == 0 {
            *out = stored;
        } else {
            let kept = self
                .decompressors
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            let mut decompressor = match kept {
                Some(decompressor) => decompressor,
                None => Decompressor::new().map_err(|source| FrameError::Io {
                    at: frame.at,
                    source,
                })?,
            };
            out.reserve_exact(raw_len);
            let done = decompressor.decompress_to_buffer(&stored, out);
            self.decompressors
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(decompressor);
            done.map_err(|_| damaged())?;
        }
        if out.len() == raw_len {
            Ok(())
        } else {
            Err(damaged())
        }
    }

    /// A payload that is not a chunk.
    pub fn value<T: serde::de::DeserializeOwned>(&self, frame: &Frame) -> Result<T, FrameError> {
        let mut bytes = Vec::new();
        self.payload(frame, &mut bytes)?;
        postcard::from_bytes(&bytes).map_err(|_| FrameError::Damaged { at: frame.at })
    }
}
