//! Code that is made at run time: blocks of it compare themselves with memory whenever
//! they are entered.

use core::ops::Range;

use super::Source;
use crate::cache::{kind, restore, save, write_exit};
use crate::writer::{RAX, RCX, Writer};

/// How many instructions a block has that compares itself with memory, and how
/// many words that are at most.
pub(super) const GUARDED_INSTS: usize = 24;

const GUARD_WORDS: usize = GUARDED_INSTS * 15 / 8 + 1;

pub(super) const GUARD_ROOM: usize = GUARD_WORDS * 32 + 128;

/// Whether an instruction may be written to.
pub(super) fn may_change(source: &mut impl Source, at: u64, len: usize) -> bool {
    let last = at.wrapping_add(len as u64).wrapping_sub(1);
    source.changing(at).is_some() || source.changing(last).is_some()
}

/// Goes to `body` if the code that a block was made of is still there.
pub(super) fn write_guard(
    w: &mut Writer<'_>,
    code: Range<u64>,
    body: usize,
    source: &mut impl Source,
) {
    let len = code.end.wrapping_sub(code.start);
    // The last word ends where the code ends. If there is less than one: it
    // must not reach into a page that the code does not.
    let page_end = code.start | 4095;
    let last = match len {
        8.. => code.end.wrapping_sub(8),
        _ if code.end.wrapping_sub(1) > page_end => code.start,
        _ => code.start.min(page_end.wrapping_sub(7)),
    };
    save(w);
    w.value(RAX, code.start);
    let mut fails = [0; GUARD_WORDS];
    let mut used = 0;
    for (i, fail) in (0u64..len.div_ceil(8)).zip(&mut fails) {
        let address = code.start.wrapping_add(8 * i).min(last);
        let word = source.changing(address).unwrap_or(0);
        w.value(RCX, word.wrapping_neg());
        w.bytes(&[0x48, 0x8b, 0x90]); // mov rdx, [rax + displacement]
        w.u32(address.wrapping_sub(code.start) as u32);
        w.bytes(&[0x48, 0x8d, 0x0c, 0x11]); // lea rcx, [rcx + rdx]
        w.bytes(&[0xe3, 0x05]); // jrcxz, past the jump
        *fail = w.jump_later(&[0xe9]);
        used += 1;
    }
    restore(w);
    w.jump(body);
    let stale = w.at;
    for fail in fails.iter().take(used) {
        w.settle(*fail, stale);
    }
    restore(w);
    write_exit(w, code.start, 0, kind::STALE);
}
