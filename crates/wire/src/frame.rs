//! Frames: a length in four bytes, little-endian, and as many bytes of one
//! message in postcard's encoding.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message, in bytes.
pub const MAX: usize = 1 << 20;

/// How much data one answer carries at most: a frame has room for more than
/// that.
pub const DATA: usize = 256 << 10;

/// A message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The other side ended the connection between two messages.
    #[error("the connection was closed")]
    Closed,
    /// It ended in the middle of one.
    #[error("the connection broke in the middle of a message")]
    Torn,
    /// Longer than any message is.
    #[error("a message of {0} bytes is longer than any that is sent")]
    TooLong(usize),
    /// The bytes are none of the messages.
    #[error("a message of {0} bytes cannot be understood")]
    Garbled(usize),
    /// Something else began to speak.
    #[error("the other side does not speak as an agent of Meanwhile does")]
    Foreign,
    /// The kernel said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Sends one message. What is sent is not held back.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> Result<(), Error> {
    // Room for the length first, so that it goes out in one piece.
    let bytes = postcard::to_extend(message, vec![0; 4]).map_err(|_| Error::Garbled(0))?;
    let mut bytes = bytes;
    let length = bytes.len().saturating_sub(4);
    if length > MAX {
        return Err(Error::TooLong(length));
    }
    if let Some((head, _)) = bytes.split_first_chunk_mut::<4>() {
        *head = (length as u32).to_le_bytes();
    }
    to.write_all(&bytes)?;
    to.flush()?;
    Ok(())
}

/// Receives one message. `buffer` is used again.
pub fn read<T: DeserializeOwned>(from: &mut impl Read, buffer: &mut Vec<u8>) -> Result<T, Error> {
    let mut head = [0; 4];
    read_head(from, &mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX {
        return Err(Error::TooLong(length));
    }
    buffer.clear();
    // Grows with what comes, not with what was announced.
    let got = from.take(length as u64).read_to_end(buffer)?;
    if got < length {
        return Err(Error::Torn);
    }
    match postcard::take_from_bytes(buffer) {
        Ok((message, [])) => Ok(message),
        _ => Err(Error::Garbled(length)),
    }
}

fn read_head(from: &mut impl Read, head: &mut [u8; 4]) -> Result<(), Error> {
    let mut got = 0;
    while let Some(rest) = head.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) if got == 0 => return Err(Error::Closed),
            Ok(0) => return Err(Error::Torn),
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
