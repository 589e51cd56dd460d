//! The journal's frames.
//!
//! A frame is a fixed head and a payload. The head's check covers both, so
//! that a reader can tell a whole frame from a torn or damaged one, and find
//! the next frame behind damage by looking for [`MAGIC`].
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `MWJF` |
//! | 4 | 2 | kind |
//! | 6 | 2 | flags: bit 0 = payload is compressed with zstd |
//! | 8 | 4 | process number (chunks and images) |
//! | 12 | 4 | chunk's sequence number, or image number |
//! | 16 | 4 | length of the payload, not compressed |
//! | 20 | 4 | length of the payload as stored |
//! | 24 | 8 | of a chunk: number of the first event that begins in it, all ones if none does; else zero |
//! | 32 | 8 | check: XXH3-64 of bytes 0..32 and the stored payload |
//!
//! All integers are little-endian.

use xxhash_rust::xxh3::Xxh3;

/// First bytes of each frame.
pub const MAGIC: [u8; 4] = *b"MWJF";
/// Length of a frame's head.
pub const HEAD: usize = 40;
/// Flag: the payload is compressed with zstd.
pub const ZSTD: u16 = 1;
/// No payload is longer than this, compressed or not.
pub const PAYLOAD_MAX: usize = 1 << 28;
/// [`Head::first_event`] of a chunk in which no event begins.
pub const NO_EVENT: u64 = u64::MAX;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// One chunk of a process's log, its head included, cut at `used`.
    Chunk = 1,
    /// [`crate::ImageStart`].
    Start = 2,
    /// [`crate::FileInfo`].
    File = 3,
    /// [`crate::Note`].
    Note = 4,
    /// [`crate::Status`].
    Status = 5,
    /// [`crate::Summary`].
    End = 6,
}

impl Kind {
    /// The kind with this number, if there is one.
    pub fn from_number(number: u16) -> Option<Kind> {
        Some(match number {
            1 => Kind::Chunk,
            2 => Kind::Start,
            3 => Kind::File,
            4 => Kind::Note,
            5 => Kind::Status,
            6 => Kind::End,
            _ => return None,
        })
    }

    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Chunk => "chunk",
            Kind::Start => "image",
            Kind::File => "file",
            Kind::Note => "note",
            Kind::Status => "status",
            Kind::End => "end",
        }
    }
}

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the kind: kept as a number so that frames of later versions
    /// can be skipped.
    pub kind: u16,
    /// See [`ZSTD`].
    pub flags: u16,
    /// Process number.
    pub process: u32,
    /// Chunk's or image's number.
    pub seq: u32,
    /// Length of the payload, not compressed.
    pub raw_len: u32,
    /// Length of the payload as stored.
    pub stored_len: u32,
    /// Of chunks: the first event that begins in it, or [`NO_EVENT`].
    pub first_event: u64,
    /// See the module's table.
    pub check: u64,
}

pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

impl Head {
    /// The head as stored, with the check made for `stored`.
    pub fn encode(&self, stored: &[u8]) -> [u8; HEAD] {
        let mut bytes = [0u8; HEAD];
        let (checked, check) = bytes.split_at_mut(32);
        let fields = MAGIC
            .into_iter()
            .chain(self.kind.to_le_bytes())
            .chain(self.flags.to_le_bytes())
            .chain(self.process.to_le_bytes())
            .chain(self.seq.to_le_bytes())
            .chain(self.raw_len.to_le_bytes())
            .chain(self.stored_len.to_le_bytes())
            .chain(self.first_event.to_le_bytes());
        for (place, byte) in checked.iter_mut().zip(fields) {
            *place = byte;
        }
        check.copy_from_slice(&check_of(checked, stored).to_le_bytes());
        bytes
    }

    /// Reads a head; `None` if `bytes` do not begin with one.
    pub fn decode(bytes: &[u8]) -> Option<Head> {
        if field::<4>(bytes, 0)? != MAGIC {
            return None;
        }
        Some(Head {
            kind: u16::from_le_bytes(field(bytes, 4)?),
            flags: u16::from_le_bytes(field(bytes, 6)?),
            process: u32::from_le_bytes(field(bytes, 8)?),
            seq: u32::from_le_bytes(field(bytes, 12)?),
            raw_len: u32::from_le_bytes(field(bytes, 16)?),
            stored_len: u32::from_le_bytes(field(bytes, 20)?),
            first_event: u64::from_le_bytes(field(bytes, 24)?),
            check: u64::from_le_bytes(field(bytes, 32)?),
        })
    }

    /// Whether the check agrees with the head as read and its payload.
    pub fn is_whole(&self, head: &[u8], stored: &[u8]) -> bool {
        head.get(..32)
            .is_some_and(|checked| check_of(checked, stored) == self.check)
    }
}

fn check_of(head: &[u8], stored: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(head);
    hash.update(stored);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_written_and_any_changed_bit_shows() {
        let head = Head {
            kind: Kind::Chunk as u16,
            flags: ZSTD,
            process: 7,
            seq: 9,
            raw_len: 100,
            stored_len: 5,
            first_event: 77,
            check: 0,
        };
        let bytes = head.encode(b"hello");
        let read = Head::decode(&bytes).unwrap();
        assert_eq!(Head { check: 0, ..read }, head);
        assert!(read.is_whole(&bytes, b"hello"));
        for bit in 0..HEAD * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Some(read) = Head::decode(&bytes) {
                assert!(!read.is_whole(&bytes, b"hello"), "bit {bit}");
            }
        }
        assert!(!read.is_whole(&bytes, b"hellp"));
    }
}
