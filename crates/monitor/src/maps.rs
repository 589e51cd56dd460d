//! What is mapped, as `/proc/self/maps` says: its lines, byte by byte, so that no
//! memory is needed for them.

use crate::sys::{self, nr};

/// A mapping of this process, the monitor's own among them.
#[derive(Clone, Copy, Default)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub is_readable: bool,
    pub is_shared: bool,
}

/// Calls `each` for every mapping, until it says false. False: they cannot be
/// read.
pub fn each(mut each: impl FnMut(Mapping) -> bool) -> bool {
    let path = c"/proc/self/maps".as_ptr() as u64;
    let fd = sys::call(nr::OPEN, path, 0o2000000, 0, 0, 0, 0); // O_CLOEXEC
    if fd < 0 {
        return false;
    }
    let mut lines = Lines::default();
    let mut bytes = [0u8; 2048];
    let mut goes_on = true;
    while goes_on {
        let to = bytes.as_mut_ptr() as u64;
        let got = sys::call(nr::READ, fd as u64, to, 2048, 0, 0, 0);
        if got <= 0 {
            break;
        }
        for byte in bytes.iter().take(got as usize) {
            if let Some(mapping) = lines.next(*byte).filter(|_| goes_on) {
                goes_on = each(mapping);
            }
        }
    }
    sys::call(nr::CLOSE, fd as u64, 0, 0, 0, 0, 0);
    true
}

/// The beginnings of the lines: `start-end rwxs `.
#[derive(Default)]
struct Lines {
    mapping: Mapping,
    number: u64,
    /// How many letters of its rights were seen; none before its addresses were.
    rights: Option<u32>,
    /// The rest of the line does not matter.
    done: bool,
}

impl Lines {
    fn next(&mut self, byte: u8) -> Option<Mapping> {
        match (byte, self.rights) {
            (b'\n', _) => *self = Lines::default(),
            _ if self.done => {}
            (b' ', Some(_)) => {
                self.done = true;
                return Some(self.mapping);
            }
            (_, Some(seen)) => {
                self.mapping.is_readable |= seen == 0 && byte == b'r';
                self.mapping.is_shared |= seen == 3 && byte == b's';
                self.rights = Some(seen + 1);
            }
            (b'-', None) => self.mapping.start = core::mem::take(&mut self.number),
            (b' ', None) => {
                self.mapping.end = self.number;
                self.rights = Some(0);
            }
            (_, None) => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.number = self.number << 4 | u64::from(digit);
            }
        }
        None
    }
}
