//! The beginning of a function becomes a jump, and runs elsewhere.

use crate::decode::decode;
use crate::plan::Code;
use crate::stub::{JUMP_LEN, Writer, jump};

/// A mark for the processor, which stays where it is.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// What was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    /// Where the jump goes: the function's first instruction, or the second if the
    /// first is a mark.
    pub start: u64,
    /// How many bytes of whole instructions were moved.
    pub moved: usize,
    /// How much was written: they, and the jump back.
    pub len: usize,
}

/// Writes to `out` what the function at `function` begins with, as it has to be at
/// `address`, and a jump to where it goes on. `None` if it cannot run there. (Jumps
/// back to the function's beginning from within it are not looked for.)
#[must_use]
pub fn detour(code: Code<'_>, function: u64, address: u64, out: &mut [u8]) -> Option<Detour> {
    let at = usize::try_from(function.checked_sub(code.base)?).ok()?;
    let bytes = code.bytes.get(at..)?;
    let mark = match bytes.starts_with(&ENDBR64) {
        true => ENDBR64.len(),
        false => 0,
    };
    let bytes = bytes.get(mark..)?;
    let start = function.checked_add(mark as u64)?;
    let mut moved = 0_usize;
    while moved < JUMP_LEN {
        let inst = decode(bytes.get(moved..)?)?;
        if !inst.movable {
            return None;
        }
        moved = moved.checked_add(inst.len)?;
    }
    let mut out = Writer {
        out,
        len: 0,
        base: address,
    };
    out.moved(bytes.get(..moved)?, start)?;
    let back = jump(out.here(), start.checked_add(moved as u64)?)?;
    out.put(&back)?;
    Some(Detour {
        start,
        moved,
        len: out.len,
    })
}

/// The jump from one address to another. `None` if it is more than 2 GiB away.
#[must_use]
pub fn jump_to(from: u64, to: u64) -> Option<[u8; JUMP_LEN]> {
    jump(from, to)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]
mod tests {
    use super::*;

    #[test]
    fn whole_instructions_move_and_addresses_follow() {
        // endbr64; push rbp; lea r10, [rip - 0x6818]; mov rbp, rsp
        let bytes = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x4c, 0x8d, 0x15, 0xe8, 0x97, 0xff, 0xff, 0x48, 0x89,
            0xe5,
        ];
        let code = Code {
            base: 0x10_0000,
            bytes: &bytes,
        };
        let mut out = [0; 32];
        let made = detour(code, 0x10_0000, 0x20_0000, &mut out).unwrap();
        assert_eq!((made.start, made.moved, made.len), (0x10_0004, 8, 13));
        assert_eq!(out[..4], [0x55, 0x4c, 0x8d, 0x15]);
        // What it addressed is where it was.
        let disp = i32::from_le_bytes(out[4..8].try_into().unwrap());
        assert_eq!(
            0x20_0008_i64 + i64::from(disp),
            0x10_000c_i64 - i64::from(0x6818)
        );
        assert_eq!(out[8..13], jump_to(0x20_0008, 0x10_000c).unwrap());
        // A jump is not moved.
        let code = Code {
            base: 0,
            bytes: &[0x90, 0xeb, 0x10, 0x90, 0x90, 0x90],
        };
        assert_eq!(detour(code, 0, 0x1000, &mut out), None);
    }
}
