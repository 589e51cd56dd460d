//! Reading records, of bytes that may be anything.

use super::kinds::{clock, kind};
use super::{Memory, VALUES_MAX};
use crate::shared::TICK_SHIFT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The bytes end before the record does.
    Incomplete,
    /// No record begins like this.
    Corrupt,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Error::Incomplete => "the record is cut short",
            Error::Corrupt => "the bytes are not a record",
        })
    }
}

impl core::error::Error for Error {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blob<'a> {
    pub tag: u8,
    pub bytes: &'a [u8],
}

impl<'a> Blob<'a> {
    pub fn as_u64(&self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes.get(..8)?.try_into().ok()?))
    }
}

/// One record, read.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub kind: u8,
    /// In ticks (see [`crate::shared::TICK_SHIFT`]).
    pub time: u64,
    /// For calls.
    pub nr: u64,
    pub args: [u64; 6],
    pub result: i64,
    /// For other kinds.
    pub values: [u64; VALUES_MAX],
    pub value_count: usize,
    blob_count: u8,
    blobs: &'a [u8],
}

impl<'a> Record<'a> {
    pub fn blobs(&self) -> Blobs<'a> {
        Blobs {
            left: self.blob_count,
            bytes: self.blobs,
        }
    }
    pub fn blob(&self, tag: u8) -> Option<Blob<'a>> {
        self.blobs().find(|b| b.tag == tag)
    }
    pub fn is_event(&self) -> bool {
        kind::is_event(self.kind)
    }
    /// Bytes of the record that are data of the program's, not ours.
    pub fn data_len(&self) -> usize {
        self.blobs().map(|b| b.bytes.len()).sum()
    }
}

#[derive(Clone, Debug)]
pub struct Blobs<'a> {
    left: u8,
    bytes: &'a [u8],
}

impl<'a> Iterator for Blobs<'a> {
    type Item = Blob<'a>;
    fn next(&mut self) -> Option<Blob<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let mut input = Input {
            bytes: self.bytes,
            at: 0,
        };
        let blob = input.blob().ok()?;
        self.bytes = self.bytes.get(input.at..)?;
        Some(blob)
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, Error> {
        let byte = *self.bytes.get(self.at).ok_or(Error::Incomplete)?;
        self.at += 1;
        Ok(byte)
    }
    fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(Error::Corrupt);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
            if shift > 63 {
                return Err(Error::Corrupt);
            }
        }
    }
    fn signed(&mut self) -> Result<i64, Error> {
        Ok(unzigzag(self.varint()?))
    }
    fn blob(&mut self) -> Result<Blob<'a>, Error> {
        let tag = self.byte()?;
        let len = usize::try_from(self.varint()?).map_err(|_| Error::Corrupt)?;
        let end = self.at.checked_add(len).ok_or(Error::Corrupt)?;
        let bytes = self.bytes.get(self.at..end).ok_or(Error::Incomplete)?;
        self.at = end;
        Ok(Blob { tag, bytes })
    }
}

#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

impl Memory {
    /// Reads the record at the beginning of `bytes`; returns it and its
    /// length. On an error nothing is remembered of it.
    pub fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<(Record<'a>, usize), Error> {
        let mut input = Input { bytes, at: 0 };
        let first = input.byte()?;
        let mut record = Record {
            kind: first & 15,
            time: 0,
            nr: 0,
            args: [0; 6],
            result: 0,
            values: [0; VALUES_MAX],
            value_count: 0,
            blob_count: first >> 4,
            blobs: &[],
        };
        let mut mask = 0;
        match record.kind {
            kind::CALL | kind::START | kind::END => {
                record.nr = input.varint()?;
                record.time = input.varint()?;
                if record.kind != kind::END {
                    mask = input.byte()?;
                    if mask & 0xc0 != 0 {
                        return Err(Error::Corrupt);
                    }
                    for i in 0..6 {
                        if mask & (1 << i) != 0 {
                            record.args[i] = input.signed()? as u64;
                        }
                    }
                }
                if record.kind != kind::START {
                    record.result = input.signed()?;
                }
            }
            kind::CLOCK => {
                let how = first >> 4;
                if usize::from(how) >= clock::COUNT {
                    return Err(Error::Corrupt);
                }
                record.blob_count = 0;
                record.time = input.varint()?;
                let other = if how == clock::OTHER {
                    input.varint()?
                } else {
                    0
                };
                let value = input.signed()? as u64;
                let (nr, id) = clock::call(how, other);
                record.nr = nr;
                record.values[..3].copy_from_slice(&[u64::from(how), id, value]);
                record.value_count = 3;
            }
            kind::TSC => {
                record.blob_count = 0;
                let delta = input.varint()?;
                record.time = delta >> 1;
                record.values[0] = u64::from(first >> 4);
                record.values[2] = 2;
                if delta & 1 != 0 {
                    record.values[1] = input.varint()?;
                    record.values[2] = 3;
                }
                record.value_count = 3;
            }
            kind::THREAD
            | kind::SIGNAL
            | kind::PREEMPT
            | kind::THREAD_START
            | kind::PATCH
            | kind::TURN
            | kind::BEGIN
            | kind::STUBS
            | kind::ANSWER
            | kind::SITES => {
                record.time = input.varint()?;
                let count = usize::from(input.byte()?);
                if count > VALUES_MAX {
                    return Err(Error::Corrupt);
                }
                for value in record.values.iter_mut().take(count) {
                    *value = input.signed()? as u64;
                }
                record.value_count = count;
            }
            _ => return Err(Error::Corrupt),
        }
        let blobs_at = input.at;
        for _ in 0..record.blob_count {
            input.blob()?;
        }
        record.blobs = bytes.get(blobs_at..input.at).unwrap_or(&[]);

        // All there: now it may be remembered.
        self.time = self.time.wrapping_add(record.time);
        record.time = self.time;
        if record.kind == kind::TSC {
            record.values[0] |= self.time << TICK_SHIFT;
        }
        if record.kind == kind::CLOCK {
            let last = &mut self.clocks[record.values[0] as usize % clock::COUNT];
            *last = last.wrapping_add(record.values[2]);
            record.values[2] = *last;
        }
        if matches!(record.kind, kind::CALL | kind::START) {
            let row = self.row(record.nr);
            for (i, last) in row.iter_mut().enumerate() {
                if mask & (1 << i) != 0 {
                    *last = last.wrapping_add(record.args[i]);
                }
                record.args[i] = *last;
            }
        }
        Ok((record, input.at))
    }
}
