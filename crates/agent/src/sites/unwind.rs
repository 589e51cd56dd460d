//! Where functions begin, from the tables for unwinding: nearly every file has them,
//! stripped of symbols or not.

use super::elf::{Elf, Range, i32_at, u32_at, u64_at};

/// The search table of the unwinding information (`.eh_frame_hdr`).
#[derive(Default)]
pub(super) struct Unwinding {
    base: u64,
    /// Pairs of 32-bit distances from `base`: a function's beginning, and its
    /// entry in `.eh_frame`.
    pub(super) table: Vec<u8>,
}

impl Unwinding {
    pub(super) fn read(elf: &Elf<'_>) -> Option<Unwinding> {
        const UDATA4: u8 = 0x03;
        const DATAREL_SDATA4: u8 = 0x3b;
        let base = elf.unwinding?;
        let head = elf.bytes_at(base.address, 16)?;
        let &[1, pointer, UDATA4, DATAREL_SDATA4] = head.first_chunk()? else {
            return None;
        };
        let at = 4 + pointer_len(pointer)?;
        let count = u64::from(u32_at(&head, at)?);
        let from = base.address.checked_add(at as u64 + 4)?;
        let table = elf.bytes_at(from, count * 8)?;
        Some(Unwinding {
            base: base.address,
            table,
        })
    }

    pub(super) fn containing(&self, elf: &Elf<'_>, address: u64) -> Option<Range> {
        let (mut low, mut high) = (0, self.table.len() / 8);
        let entry = |index: usize| -> Option<(u64, u64)> {
            let word = |at| i32_at(&self.table, at);
            let begin = self.base.wrapping_add_signed(word(8 * index)?.into());
            let fde = self.base.wrapping_add_signed(word(8 * index + 4)?.into());
            Some((begin, fde))
        };
        while low < high {
            let middle = low.midpoint(high);
            if entry(middle)?.0 <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let (begin, fde) = entry(low.checked_sub(1)?)?;
        let function = Range {
            offset: 0,
            address: begin,
            len: length_of(elf, fde)?,
        };
        function.has(address).then_some(function)
    }
}

/// The length of the function that an entry of `.eh_frame` describes.
fn length_of(elf: &Elf<'_>, fde: u64) -> Option<u64> {
    let entry = elf.bytes_at(fde, 32)?;
    if u32_at(&entry, 0)? == u32::MAX {
        return None;
    }
    let cie = fde.wrapping_add(4).wrapping_sub(u32_at(&entry, 4)?.into());
    let size = pointer_len(encoding(&elf.bytes_at(cie, 64)?)?)?;
    match size {
        4 => u32_at(&entry, 12).map(u64::from),
        _ => u64_at(&entry, 16),
    }
}

/// How a common entry says that addresses are encoded.
fn encoding(cie: &[u8]) -> Option<u8> {
    let version = *cie.get(8)?;
    let mut rest = cie.get(9..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    let augmentation = rest.get(..end)?;
    rest = rest.get(end + 1..)?;
    rest = skip_leb(skip_leb(rest)?)?;
    rest = if version == 1 {
        rest.get(1..)?
    } else {
        skip_leb(rest)?
    };
    let Some((b'z', letters)) = augmentation.split_first() else {
        return augmentation.is_empty().then_some(0);
    };
    rest = skip_leb(rest)?;
    for letter in letters {
        match letter {
            b'R' => return rest.first().copied(),
            b'L' => rest = rest.get(1..)?,
            b'P' => rest = rest.get(1 + pointer_len(*rest.first()?)?..)?,
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some(0)
}

fn skip_leb(bytes: &[u8]) -> Option<&[u8]> {
    let last = bytes.iter().position(|b| b & 0x80 == 0)?;
    bytes.get(last + 1..)
}

/// How long a pointer in this encoding is; none if that varies.
fn pointer_len(encoding: u8) -> Option<usize> {
    match encoding & 15 {
        0x00 | 0x04 | 0x0c => Some(8),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}
