//! The bytes that will go with an event, noted as addresses while a call is
//! made and copied once, when its record is written.

use core::mem::MaybeUninit;

use protocol::record::{BLOBS_MAX, digest, tag};

use crate::{log, mem, mode, sys};

use super::SENT_MAX;

pub(super) const IOV_MAX: u64 = 1024;

#[derive(Clone, Copy)]
pub(super) enum Piece {
    /// Program memory.
    Memory {
        address: u64,
        len: u64,
    },
    /// The first bytes of program memory, its length and digest.
    Partial {
        address: u64,
        len: u64,
    },
    /// What an iovec array describes, at most `len` bytes.
    Vector {
        iov: u64,
        count: u64,
        len: u64,
    },
    PartialVector {
        iov: u64,
        count: u64,
        len: u64,
    },
    /// Words of our own.
    Words {
        words: [u64; 3],
        len: u64,
    },
    /// Messages received by recvmmsg.
    Messages {
        vector: u64,
        count: u64,
        len: u64,
    },
}

/// The blobs of one record, collected before it is begun. Made for every call:
/// nothing is initialized that is not used.
pub struct Blobs {
    pieces: [MaybeUninit<(u8, Piece)>; PIECES],
    count: usize,
}

const PIECES: usize = 12;

impl Blobs {
    #[inline]
    pub fn new() -> Blobs {
        Blobs {
            pieces: [const { MaybeUninit::uninit() }; PIECES],
            count: 0,
        }
    }
    pub fn count(&self) -> u8 {
        self.count as u8
    }
    pub(super) fn push(&mut self, tag: u8, piece: Piece) {
        const { assert!(PIECES <= BLOBS_MAX as usize) };
        if let Some(place) = self.pieces.get_mut(self.count) {
            place.write((tag, piece));
            self.count += 1;
        }
    }
    pub fn memory(&mut self, tag: u8, address: u64, len: u64) {
        self.push(tag, Piece::Memory { address, len });
    }
    pub fn words(&mut self, tag: u8, words: &[u64]) {
        let mut own = [0; 3];
        for (to, from) in own.iter_mut().zip(words) {
            *to = *from;
        }
        self.push(
            tag,
            Piece::Words {
                words: own,
                len: 8 * words.len().min(3) as u64,
            },
        );
    }
    /// Of what lies in memory only so much is kept.
    pub fn shorten(&mut self, most: u64) {
        for place in self.pieces.iter_mut().take(self.count) {
            // SAFETY: the first `count` have been written.
            let (_, piece) = unsafe { place.assume_init_mut() };
            if let Piece::Memory { len, .. } | Piece::Vector { len, .. } = piece {
                *len = (*len).min(most);
            }
        }
    }
    pub(super) fn sent(&mut self, tag: u8, address: u64, len: u64) {
        if len <= SENT_MAX {
            self.memory(tag, address, len);
        } else {
            self.push(tag | tag::PARTIAL, Piece::Partial { address, len });
        }
    }

    /// Writes all of them to a record that was begun with their count.
    pub fn write<'a>(&self, mut entry: log::Entry<'a>) -> log::Entry<'a> {
        for place in self.pieces.iter().take(self.count) {
            // SAFETY: the first `count` have been written.
            let (tag, piece) = unsafe { place.assume_init_ref() };
            entry = match *piece {
                Piece::Memory { address, len } => entry.blob(*tag, address, len),
                Piece::Words { ref words, len } => entry.blob(*tag, words.as_ptr() as u64, len),
                Piece::Partial { address, len } => {
                    let marks = [len, digest_of(address, len)];
                    entry
                        .blob_begin(*tag, SENT_MAX + 16)
                        .piece(address, SENT_MAX)
                        .piece(marks.as_ptr() as u64, 16)
                }
                Piece::Vector { iov, count, len } => {
                    write_vector(entry.blob_begin(*tag, len), iov, count, len)
                }
                Piece::PartialVector { iov, count, len } => {
                    let marks = [len, digest_of_vector(iov, count)];
                    write_vector(entry.blob_begin(*tag, SENT_MAX + 16), iov, count, SENT_MAX)
                        .piece(marks.as_ptr() as u64, 16)
                }
                Piece::Messages { vector, count, len } => {
                    write_messages(entry.blob_begin(*tag, len), vector, count)
                }
            };
        }
        entry
    }
}

pub fn digest_of(address: u64, len: u64) -> u64 {
    // Only replay compares them; and live, others may unmap it meanwhile.
    if mode::is_live() || !mem::is_readable(address, len) {
        return 0;
    }
    // SAFETY: just seen to be readable; the caller has the turn.
    digest(unsafe { core::slice::from_raw_parts(address as *const u8, len as usize) })
}

pub fn digest_of_vector(iov: u64, count: u64) -> u64 {
    let mut sum = 0u64;
    each_piece(iov, count, u64::MAX, |address, len| {
        sum = sum.rotate_left(7) ^ digest_of(address, len);
    });
    sum
}

/// Calls `f` for each piece of an iovec array, up to `limit` bytes in all;
/// returns how many there were.
pub fn each_piece(iov: u64, count: u64, limit: u64, mut f: impl FnMut(u64, u64)) -> u64 {
    let mut total = 0;
    for i in 0..count.min(IOV_MAX) {
        let at = iov + 16 * i;
        let (Some(address), Some(len)) = (mem::read_word(at), mem::read_word(at + 8)) else {
            break;
        };
        let len = len.min(limit - total);
        if len > 0 {
            f(address, len);
        }
        total += len;
        if total == limit {
            break;
        }
    }
    total
}

/// Writes exactly `len` bytes, zeroes if the vector has fewer.
fn write_vector(entry: log::Entry<'_>, iov: u64, count: u64, len: u64) -> log::Entry<'_> {
    let mut slot = Some(entry);
    let mut total = each_piece(iov, count, len, |address, len| {
        slot = slot.take().map(|entry| entry.piece(address, len));
    });
    let zeroes = [0u8; 64];
    while total < len {
        let step = (len - total).min(64);
        slot = slot
            .take()
            .map(|entry| entry.piece(zeroes.as_ptr() as u64, step));
        total += step;
    }
    match slot {
        Some(entry) => entry,
        None => sys::die(b"a record was lost"),
    }
}

/// A message header: name, name length, iovec, count, control, its length,
/// flags.
pub struct Message {
    pub name: u64,
    pub name_len: u64,
    pub iov: u64,
    pub iov_count: u64,
    pub control: u64,
    pub control_len: u64,
    pub flags: u32,
}

impl Message {
    pub fn read(address: u64) -> Option<Message> {
        let words = mem::read::<[u64; 7]>(address)?;
        Some(Message {
            name: words[0],
            name_len: words[1] & 0xffff_ffff,
            iov: words[2],
            iov_count: words[3],
            control: words[4],
            control_len: words[5],
            flags: words[6] as u32,
        })
    }
    fn received_len(&self, len: u64) -> u64 {
        16 + self.name_stored() + self.control_stored() + len
    }
    pub(super) fn name_stored(&self) -> u64 {
        if self.name == 0 {
            0
        } else {
            self.name_len.min(128)
        }
    }
    pub(super) fn control_stored(&self) -> u64 {
        if self.control == 0 {
            0
        } else {
            self.control_len.min(65536)
        }
    }
}

pub(super) const MESSAGE: u64 = 64;

pub(super) fn messages_len(vector: u64, count: u64) -> u64 {
    let mut total = 0;
    for i in 0..count.min(IOV_MAX) {
        let at = vector + MESSAGE * i;
        if let (Some(m), Some(len)) = (Message::read(at), mem::read::<u32>(at + 56)) {
            let data = each_piece(m.iov, m.iov_count, u64::from(len), |_, _| {});
            total += m.received_len(data);
        }
    }
    total
}

/// Each message: data length, name length, control length, flags (u32 each),
/// then name, control, data.
fn write_messages(mut entry: log::Entry<'_>, vector: u64, count: u64) -> log::Entry<'_> {
    for i in 0..count.min(IOV_MAX) {
        let at = vector + MESSAGE * i;
        let (Some(m), Some(len)) = (Message::read(at), mem::read::<u32>(at + 56)) else {
            continue;
        };
        let data = each_piece(m.iov, m.iov_count, u64::from(len), |_, _| {});
        let head = [
            data as u32,
            m.name_stored() as u32,
            m.control_stored() as u32,
            m.flags,
        ];
        entry = entry
            .piece(head.as_ptr() as u64, 16)
            .piece(m.name, m.name_stored())
            .piece(m.control, m.control_stored());
        entry = write_vector(entry, m.iov, m.iov_count, data);
    }
    entry
}
