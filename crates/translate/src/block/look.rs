//! Looks at watched memory, behind what may have written to it.
//!
//! A look compares all of it with what it held: some fifteen instructions. Most of what
//! a program writes is elsewhere, and that is seen by the address alone, in six. Only
//! instructions whose operand can be addressed once more behind them are seen so; and
//! only memory that cannot be written to by another address.

use crate::cache::{CHECKED, Cache, SAVED_RCX};
use crate::inst::{Inst, Written};
use crate::writer::{RCX, Writer};

/// The most that one instruction, whose operand is known, writes.
const STORE_MAX: u64 = 64;

/// How watched memory is looked at.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// The code that does it.
    check: usize,
    near: Option<Near>,
}

/// Around watched memory: what is written must begin here to reach into it. More
/// addresses are taken for near, one of 65,536, because only some of their bits are
/// looked at.
#[derive(Clone, Copy)]
struct Near {
    from: u64,
    to: u64,
    /// Addresses are taken times two to the power of this, so that those from `from`
    /// on, up to 64 KiB by that, are the ones with nothing in the third and fourth byte.
    scale: u8,
    /// Only the fourth byte counts: 16 MiB are near.
    is_wide: bool,
}

impl Near {
    fn of(cache: &Cache<'_>) -> Option<Near> {
        let (mut from, mut to) = (u64::MAX, 0);
        for (own, is_alone) in cache.watched() {
            if !is_alone {
                return None;
            }
            from = own.start.min(from);
            to = own.end.max(to);
        }
        let from = from.checked_sub(STORE_MAX.wrapping_sub(1))?;
        let size = to.checked_sub(from)?;
        let scale = (0..=3).rev().find(|scale| size <= 0x1_0000 >> scale);
        (scale.is_some() || size <= 0x100_0000).then_some(Near {
            from,
            to,
            scale: scale.unwrap_or(0),
            is_wide: scale.is_none(),
        })
    }
}

impl Look {
    pub(super) fn of(cache: &Cache<'_>) -> Look {
        Look {
            check: cache.check(),
            near: Near::of(cache),
        }
    }

    /// Behind an instruction that leads to the one at `next`, if it may have written.
    pub(super) fn write(self, w: &mut Writer<'_>, code: &[u8], inst: &Inst, next: u64) {
        if !inst.may_write(code) {
            return;
        }
        match (self.near, inst.written(code)) {
            (Some(near), Written::At(address)) if !(near.from..near.to).contains(&address) => {}
            (Some(near), Written::Operand(lea)) => {
                w.store(SAVED_RCX, RCX);
                lea.write(w, RCX);
                self.if_near(w, near, next);
            }
            (_, Written::Stack) => {
                w.store(SAVED_RCX, RCX);
                self.at_stack(w, next);
            }
            _ => {
                w.store(SAVED_RCX, RCX);
                write_look(w, next, self.check);
            }
        }
    }

    /// Where something was pushed. The program's rcx is in its slot, and comes back from
    /// there.
    pub(super) fn at_stack(self, w: &mut Writer<'_>, next: u64) {
        match self.near {
            Some(near) => {
                w.bytes(&[0x48, 0x89, 0xe1]); // mov rcx, rsp
                self.if_near(w, near, next);
            }
            None => write_look(w, next, self.check),
        }
    }

    /// Looks, if what was written began at an address that is near: rcx, which then
    /// comes back from its slot.
    fn if_near(self, w: &mut Writer<'_>, near: Near, next: u64) {
        // lea ecx, [rcx * 2^scale - from * 2^scale]
        w.bytes(&[0x8d, 0x0c, near.scale << 6 | RCX << 3 | 5]);
        w.u32((near.from << near.scale).wrapping_neg() as u32);
        w.bytes(&[0x0f, 0xc9]); // bswap ecx
        // movzx ecx, cl; movzx ecx, cx
        w.bytes(&[0x0f, if near.is_wide { 0xb6 } else { 0xb7 }, 0xc9]);
        // jrcxz, past the jump
        w.bytes(&[0xe3, 0x02, 0xeb, 0x00]);
        let over = w.at.wrapping_sub(1);
        write_look(w, next, self.check);
        w.settle_short(over);
        w.load(RCX, SAVED_RCX);
    }
}

/// Has watched memory looked at before it goes on at `next`; the program's rcx
/// is in its slot and comes back from there.
fn write_look(w: &mut Writer<'_>, next: u64, check: usize) {
    // Past the store and the jump.
    let data = w.at.wrapping_add(7 + 7 + 5);
    w.address_of(RCX, data);
    w.store(CHECKED, RCX);
    w.jump(check);
    w.u64(next);
}
