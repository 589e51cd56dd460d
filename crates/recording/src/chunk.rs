//! The head of a chunk, read from bytes that may be anything.

use std::mem::offset_of;

use protocol::shared::{self, CHUNK_HEAD, CHUNK_MAGIC, CHUNK_SIZE};

use crate::frame::field;

/// A chunk's head, checked: `used` lies within a chunk and `first_record`
/// within `used`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// Process the chunk belongs to.
    pub process: u32,
    /// Position among the process's chunks.
    pub seq: u32,
    /// Bytes of the chunk that are whole, the head included.
    pub used: usize,
    /// Where the first record begins that begins in this chunk.
    pub first_record: Option<usize>,
    /// Number of that record's event.
    pub first_event: u64,
    /// Time from which that record counts, in ticks.
    pub first_time: u64,
    /// Thread that runs there.
    pub first_thread: u32,
}

impl ChunkHead {
    /// Reads the head at the beginning of `bytes`, which may be longer or
    /// shorter than the chunk. Says what is wrong if it is not one.
    pub fn parse(bytes: &[u8]) -> Result<ChunkHead, &'static str> {
        const SHORT: &str = "it is shorter than a head";
        if bytes.len() < CHUNK_HEAD {
            return Err(SHORT);
        }
        let u32_at = |at| field(bytes, at).map(u32::from_le_bytes).ok_or(SHORT);
        let u64_at = |at| field(bytes, at).map(u64::from_le_bytes).ok_or(SHORT);
        if u32_at(offset_of!(shared::ChunkHead, magic))? != CHUNK_MAGIC {
            return Err("its magic number is wrong");
        }
        let used = u32_at(offset_of!(shared::ChunkHead, used))? as usize;
        if !(CHUNK_HEAD..=CHUNK_SIZE).contains(&used) {
            return Err("its length is impossible");
        }
        let first_record = match u32_at(offset_of!(shared::ChunkHead, first_record))? as usize {
            0 => None,
            // The place is noted before the record is whole.
            at if at >= CHUNK_HEAD && at <= used => Some(at),
            at if at > used && at < CHUNK_SIZE => None,
            _ => return Err("its first record is outside of it"),
        };
        Ok(ChunkHead {
            process: u32_at(offset_of!(shared::ChunkHead, process))?,
            seq: u32_at(offset_of!(shared::ChunkHead, seq))?,
            used,
            first_record,
            first_event: u64_at(offset_of!(shared::ChunkHead, first_event))?,
            first_time: u64_at(offset_of!(shared::ChunkHead, first_time))?,
            first_thread: u32_at(offset_of!(shared::ChunkHead, first_thread))?,
        })
    }

    /// The head as a monitor would have left it.
    pub fn to_bytes(&self) -> [u8; CHUNK_HEAD] {
        let mut bytes = [0; CHUNK_HEAD];
        let mut put = |at: usize, value: &[u8]| {
            for (place, byte) in bytes.iter_mut().skip(at).zip(value) {
                *place = *byte;
            }
        };
        put(
            offset_of!(shared::ChunkHead, magic),
            &CHUNK_MAGIC.to_le_bytes(),
        );
        put(
            offset_of!(shared::ChunkHead, process),
            &self.process.to_le_bytes(),
        );
        put(offset_of!(shared::ChunkHead, seq), &self.seq.to_le_bytes());
        put(
            offset_of!(shared::ChunkHead, used),
            &(self.used as u32).to_le_bytes(),
        );
        let first_record = self.first_record.unwrap_or(0) as u32;
        put(
            offset_of!(shared::ChunkHead, first_record),
            &first_record.to_le_bytes(),
        );
        put(
            offset_of!(shared::ChunkHead, version),
            &protocol::FORMAT_VERSION.to_le_bytes(),
        );
        put(
            offset_of!(shared::ChunkHead, first_event),
            &self.first_event.to_le_bytes(),
        );
        put(
            offset_of!(shared::ChunkHead, first_time),
            &self.first_time.to_le_bytes(),
        );
        put(
            offset_of!(shared::ChunkHead, first_thread),
            &self.first_thread.to_le_bytes(),
        );
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_written() {
        let head = ChunkHead {
            process: 3,
            seq: 5,
            used: 1000,
            first_record: Some(60),
            first_event: 1 << 40,
            first_time: 99,
            first_thread: 2,
        };
        assert_eq!(ChunkHead::parse(&head.to_bytes()), Ok(head));
    }

    #[test]
    fn impossible_heads_are_refused() {
        let good = ChunkHead {
            process: 0,
            seq: 0,
            used: CHUNK_HEAD,
            first_record: None,
            first_event: 0,
            first_time: 0,
            first_thread: 0,
        };
        assert!(ChunkHead::parse(&[]).is_err());
        assert!(ChunkHead::parse(&good.to_bytes()[..47]).is_err());
        for used in [0, CHUNK_HEAD - 1, CHUNK_SIZE + 1] {
            assert!(ChunkHead::parse(&ChunkHead { used, ..good }.to_bytes()).is_err());
        }
        for at in [1, CHUNK_HEAD - 1, CHUNK_SIZE] {
            let first_record = Some(at);
            assert!(
                ChunkHead::parse(
                    &ChunkHead {
                        first_record,
                        ..good
                    }
                    .to_bytes()
                )
                .is_err()
            );
        }
    }
}
