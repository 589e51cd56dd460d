//! How both sides begin: with bytes that nothing else begins with, and the
//! version of what they speak. These ten bytes are the same in every version.

use std::io::{Read, Write};

use crate::frame::Error;

/// What is spoken here. Others are refused.
pub const VERSION: u16 = 5;

/// What an opening begins with. No text has a zero byte.
pub const MAGIC: [u8; 8] = *b"\0mw-wire";

/// Sends the opening.
pub fn write(to: &mut impl Write) -> Result<(), Error> {
    to.write_all(&MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    to.flush()?;
    Ok(())
}

/// Receives the opening; returns the version that the other side speaks.
pub fn read(from: &mut impl Read) -> Result<u16, Error> {
    let mut magic = [0; MAGIC.len()];
    exactly(from, &mut magic)?;
    if magic != MAGIC {
        return Err(Error::Foreign);
    }
    version(from)
}

/// What of it follows the magic bytes.
pub fn version(from: &mut impl Read) -> Result<u16, Error> {
    let mut version = [0; 2];
    exactly(from, &mut version)?;
    Ok(u16::from_le_bytes(version))
}

fn exactly(from: &mut impl Read, bytes: &mut [u8]) -> Result<(), Error> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::Torn,
        _ => Error::Io(error),
    })
}
