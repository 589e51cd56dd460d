//! Reading what is left in the arena of a recording that was cut short, or
//! is still under way.
//!
//! Monitors may be writing while this reads: a chunk's head is believed only
//! together with the bytes it is read with, and `used` covers whole records
//! only.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

use protocol::shared::{
    self, ARENA_MAGIC, CHUNK_HEAD, CHUNK_SIZE, CHUNKS_MAX, CHUNKS_OFFSET, Control, chunk_state,
};

use crate::chunk::ChunkHead;
use crate::frame::field;

pub(crate) struct Arena {
    file: File,
}

impl Arena {
    /// Opens the arena; `None` if there is none, or it was never set up.
    pub fn open(path: &Path) -> io::Result<Option<Arena>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut magic = [0; 8];
        match file.read_exact_at(&mut magic, offset_of!(Control, magic) as u64) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok((u64::from_le_bytes(magic) == ARENA_MAGIC).then_some(Arena { file }))
    }

    /// The heads of all chunks that hold part of a log, by place: those of a recording,
    /// or of an observation with this number.
    pub fn chunks(&self, observation: u32) -> io::Result<Vec<(u32, ChunkHead)>> {
        let mut states = vec![0; CHUNKS_MAX * 4];
        let got = read_up_to(
            &self.file,
            &mut states,
            offset_of!(Control, chunk_state) as u64,
        )?;
        states.truncate(got);
        let mut found = Vec::new();
        for (place, state) in states.chunks_exact(4).enumerate() {
            let state = field(state, 0).map(u32::from_le_bytes).unwrap_or(0);
            if !matches!(state, chunk_state::TAKEN | chunk_state::FULL) {
                continue;
            }
            let mut head = [0; CHUNK_HEAD];
            let got = read_up_to(&self.file, &mut head, offset(place as u32))?;
            let own = field(&head, offset_of!(shared::ChunkHead, observation));
            if let Some(bytes) = head.get(..got)
                && own.map(u32::from_le_bytes) == Some(observation)
                && let Ok(head) = ChunkHead::parse(bytes)
            {
                found.push((place as u32, head));
            }
        }
        Ok(found)
    }

    /// Reads the chunk at `place`, up to what `head` said when it was found.
    /// False if another chunk has taken its place, or the file is too short.
    pub fn chunk(&self, place: u32, head: &ChunkHead, out: &mut Vec<u8>) -> io::Result<bool> {
        out.resize(head.used, 0);
        let got = read_up_to(&self.file, out, offset(place))?;
        if got < head.used {
            return Ok(false);
        }
        Ok(ChunkHead::parse(out).is_ok_and(|now| {
            now.process == head.process && now.seq == head.seq && now.used >= head.used
        }))
    }
}

fn offset(place: u32) -> u64 {
    CHUNKS_OFFSET + u64::from(place) * CHUNK_SIZE as u64
}

fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..)
        && !rest.is_empty()
    {
        match file.read_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
