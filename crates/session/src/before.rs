//! Calls that are caught before they are made, by a pattern: a live program stands then as it
//! is about to do what the pattern fits, and nothing of it has been done.
//!
//! Of a pattern, what can be told at that moment counts: the call, whose it is, what it is about
//! to send, whether its descriptor leads to a file. What only the answer tells may be so.

use events::{Attempt, Pattern};
use protocol::id::Addr;
use target::Registers;

use crate::member::Member;

/// Calls of the kernel's that send what lies in one piece, and in several.
const WRITE: u64 = 1;
const PWRITE: u64 = 18;
const WRITEV: u64 = 20;
const SENDTO: u64 = 44;
const SENDMSG: u64 = 46;
/// So much of what is sent is looked at.
const MOST: usize = 4096;
/// And of so many pieces.
const PIECES: u64 = 64;

impl Member {
    /// Whether the call that the thread at hand is about to make may become an event that
    /// fits a pattern.
    pub(crate) fn is_about_to(&self, pattern: &Pattern, nr: u64) -> bool {
        let Ok(target) = self.target() else {
            return false;
        };
        let Some(thread) = target.running() else {
            return false;
        };
        let registers = &thread.registers;
        let bytes = self.about_to_send(nr, registers);
        let fd = registers.rdi as u32 as i32;
        let attempt = Attempt {
            names: [&self.name, &self.program],
            nr,
            bytes: bytes.as_deref(),
            is_file: target.is_file(fd),
        };
        events::may_become(pattern, &attempt)
    }

    fn about_to_send(&self, nr: u64, registers: &Registers) -> Option<Vec<u8>> {
        match nr {
            WRITE | PWRITE | SENDTO => Some(self.bytes_at(registers.rsi, registers.rdx)),
            WRITEV => Some(self.pieces_at(registers.rsi, registers.rdx)),
            SENDMSG => {
                // A message's head: name, its length, pieces, how many.
                let word = |at: u64| self.word_at(registers.rsi.wrapping_add(at));
                Some(self.pieces_at(word(16)?, word(24)?))
            }
            _ => None,
        }
    }

    fn bytes_at(&self, address: u64, len: u64) -> Vec<u8> {
        let len = usize::try_from(len).unwrap_or(MOST).min(MOST);
        let mut bytes = vec![0; len];
        let got = self
            .target()
            .map_or(0, |target| target.read(Addr(address), &mut bytes));
        bytes.truncate(got);
        bytes
    }

    fn word_at(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes_at(address, 8);
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn pieces_at(&self, vector: u64, count: u64) -> Vec<u8> {
        let mut found = Vec::new();
        for piece in 0..count.min(PIECES) {
            let at = vector.wrapping_add(16 * piece);
            let (Some(address), Some(len)) = (self.word_at(at), self.word_at(at.wrapping_add(8)))
            else {
                break;
            };
            found.extend(self.bytes_at(address, len));
            if found.len() >= MOST {
                found.truncate(MOST);
                break;
            }
        }
        found
    }
}
