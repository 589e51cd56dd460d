//! What left the arena after a recording was opened.
//!
//! A recording that goes on is read while it is written: a chunk that was in the arena when the
//! recording was opened is in the journal once it is full, and its slot is another one's. Nothing
//! is lost by that, but the journal has to be looked at again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use protocol::id::ProcessNo;

use crate::chunk::ChunkHead;
use crate::frame::Kind;
use crate::journal::{Frame, Journal};

/// The journal as it is by the time that something has left the arena.
pub struct Later {
    path: PathBuf,
    last_read: Mutex<Option<Read>>,
}

/// The journal as it was when it was read last: which chunks it has, and where.
struct Read {
    journal: Journal,
    chunks: HashMap<(ProcessNo, u32), Frame>,
}

impl Later {
    pub fn new(journal: &Path) -> Later {
        Later {
            path: journal.to_owned(),
            last_read: Mutex::new(None),
        }
    }

    /// Reads what a chunk had when it was `used` bytes long. On failure says why.
    pub fn load(
        &self,
        key: (ProcessNo, u32),
        used: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let gone = "the recording goes on, and its place was taken";
        let mut last_read = self.last_read.lock().map_err(|_| gone)?;
        if !last_read
            .as_ref()
            .is_some_and(|r| r.chunks.contains_key(&key))
        {
            *last_read = Some(Read::new(&self.path)?);
        }
        let read = last_read.as_ref().ok_or(gone)?;
        let frame = read.chunks.get(&key).ok_or(gone)?;
        let payload = read.journal.payload(frame, out);
        payload.map_err(|error| error.to_string())?;
        let head = ChunkHead::parse(out).map_err(str::to_string)?;
        if head.process != key.0.0 || head.seq != key.1 || head.used < used || out.len() < used {
            return Err("its head does not agree with the journal".to_string());
        }
        out.truncate(used);
        Ok(())
    }
}

impl Read {
    fn new(path: &Path) -> Result<Read, String> {
        let journal = Journal::open(path).map_err(|error| error.to_string())?;
        let (frames, _) = journal.walk().map_err(|error| error.to_string())?;
        let is_chunk = |frame: &Frame| Kind::from_number(frame.head.kind) == Some(Kind::Chunk);
        let chunks = frames.into_iter().filter(is_chunk);
        let chunks = chunks.map(|f| ((ProcessNo(f.head.process), f.head.seq), f));
        Ok(Read {
            chunks: chunks.collect(),
            journal,
        })
    }
}
