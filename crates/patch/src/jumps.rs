//! The search for jumps into the bytes to be patched.
//!
//! Where instructions begin is not known over a whole window, so every byte is taken for the
//! possible beginning of a jump. A false alarm costs one patch; a jump that is missed would
//! cost the program.
//!
//! The window is large and the search is done for each site, so it first asks what is rare,
//! whether the four bytes here, taken as a displacement, lead to the right place; the compiler
//! makes vector code of that. Only then it asks whether they belong to a jump.

use core::ops::Range;

use crate::plan::Code;

/// How many bytes are asked about at a time.
const BLOCK: usize = 512;

/// How far a jump of two bytes reaches, from its beginning, either way.
const SHORT_REACH: usize = 130;

/// The length of a 32-bit displacement.
const DISP: usize = 4;

/// Finds what may be a direct jump or call to one of the offsets in `targets`; tells the offset
/// of its opcode. Looks up to `reach` bytes away, and not in `known`, where there are none.
pub(crate) fn find_jump_into(
    code: Code<'_>,
    targets: Range<usize>,
    known: Range<usize>,
    reach: usize,
) -> Option<usize> {
    let target = Target {
        first: targets.start as u32,
        count: targets.end.saturating_sub(targets.start) as u32,
    };
    let from = targets.start.saturating_sub(reach);
    let to = targets.end.saturating_add(reach).min(code.bytes.len());
    find_short(code.bytes, &target, targets)
        .find(|opcode| !known.contains(opcode))
        .or_else(|| find_long(code.bytes, from..to, &target, &known))
}

/// A range of offsets in the window. Arithmetic on them is modulo 2^32, like that of the
/// displacements, which is more than any window.
struct Target {
    first: u32,
    count: u32,
}

impl Target {
    #[inline(always)]
    fn hit(&self, offset: u32) -> bool {
        offset.wrapping_sub(self.first) < self.count
    }
}

/// Jumps with a displacement of 8 bits, all close by.
fn find_short(bytes: &[u8], target: &Target, targets: Range<usize>) -> impl Iterator<Item = usize> {
    let from = targets.start.saturating_sub(SHORT_REACH).min(bytes.len());
    let to = targets.end.saturating_add(SHORT_REACH).min(bytes.len());
    let near = bytes.get(from..to).unwrap_or(&[]);
    near.windows(2).enumerate().filter_map(move |(at, pair)| {
        let &[opcode, disp] = pair else { return None };
        let at = from.wrapping_add(at);
        let jumps = matches!(opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xeb);
        let to = (at as u32)
            .wrapping_add(2)
            .wrapping_add(disp.cast_signed() as u32);
        (jumps && target.hit(to)).then_some(at)
    })
}

/// Jumps and calls with a displacement of 32 bits.
fn find_long(
    bytes: &[u8],
    within: Range<usize>,
    target: &Target,
    known: &Range<usize>,
) -> Option<usize> {
    let mut at = within.start;
    while let Some(rest) = bytes.get(at..within.end).filter(|rest| rest.len() >= DISP) {
        // Blocks overlap so that each displacement is whole in one of them.
        let block = rest
            .get(..BLOCK.wrapping_add(DISP).wrapping_sub(1))
            .unwrap_or(rest);
        if any_leads_to(block, at as u32, target) {
            let found = block
                .array_windows()
                .zip(at..)
                .filter(|(disp, at)| leads_to(**disp, *at as u32, target))
                .filter_map(|(_, at)| opcode_before(bytes, at))
                .find(|opcode| !known.contains(opcode));
            if found.is_some() {
                return found;
            }
        }
        at = at.saturating_add(BLOCK);
    }
    None
}

/// Whether any four bytes of the block, which begins at offset `at`, lead to the target. Four
/// passes, each over every fourth offset, because the compiler can do one pass in vectors.
fn any_leads_to(block: &[u8], at: u32, target: &Target) -> bool {
    let mut any = false;
    for phase in 0..DISP {
        let (words, _) = block.get(phase..).unwrap_or(&[]).as_chunks::<DISP>();
        let mut here = at.wrapping_add(phase as u32);
        for word in words {
            any |= leads_to(*word, here, target);
            here = here.wrapping_add(DISP as u32);
        }
    }
    any
}

/// Whether `disp`, at offset `at`, leads to the target. Displacements count from their end.
#[inline(always)]
fn leads_to(disp: [u8; DISP], at: u32, target: &Target) -> bool {
    let next = at.wrapping_add(DISP as u32);
    target.hit(next.wrapping_add(u32::from_le_bytes(disp)))
}

/// The offset of the jump's opcode whose displacement is at offset `disp`, if there is one.
fn opcode_before(bytes: &[u8], disp: usize) -> Option<usize> {
    let one = disp.checked_sub(1)?;
    let two = disp.checked_sub(2);
    let first = two.and_then(|two| bytes.get(two));
    match (first, bytes.get(one)?) {
        // call, jmp
        (_, 0xe8 | 0xe9) => Some(one),
        // jcc, xbegin
        (Some(0x0f), 0x80..=0x8f) | (Some(0xc7), 0xf8) => two,
        _ => None,
    }
}
