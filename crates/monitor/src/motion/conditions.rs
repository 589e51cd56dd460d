//! Whether a stop that was come to is made: counts, and conditions of
//! breakpoints, which the process asks itself, so that one that is passed a
//! million times costs no switch to the debugger.

use core::sync::atomic::Ordering::Relaxed;

use protocol::condition;
use protocol::replay::Player;

use crate::arch::Regs;
use crate::mem;

/// A stop was come to: whether it is to be made.
pub(super) fn is_hit(player: &Player) -> bool {
    player.hits.store(player.hits.load(Relaxed) + 1, Relaxed);
    let skip = player.skip.load(Relaxed);
    player.skip.store(skip.saturating_sub(1), Relaxed);
    skip == 0
}

/// A condition, by what tells its bytes, where a thread stands.
pub struct Asked<'a, C> {
    pub code: C,
    pub regs: &'a Regs,
}

impl<C: Fn(usize) -> Option<u8>> condition::Machine for Asked<'_, C> {
    fn code(&self, at: usize) -> Option<u8> {
        (self.code)(at)
    }

    fn register(&self, number: u16) -> Option<u64> {
        let r = self.regs;
        Some(match number {
            0 => r.rax,
            1 => r.rbx,
            2 => r.rcx,
            3 => r.rdx,
            4 => r.rsi,
            5 => r.rdi,
            6 => r.rbp,
            7 => r.rsp,
            8 => r.r8,
            9 => r.r9,
            10 => r.r10,
            11 => r.r11,
            12 => r.r12,
            13 => r.r13,
            14 => r.r14,
            15 => r.r15,
            16 => r.rip,
            _ => return None,
        })
    }

    fn memory(&self, address: u64, size: usize) -> Option<u64> {
        match size {
            1 => mem::read::<u8>(address).map(u64::from),
            2 => mem::read::<u16>(address).map(u64::from),
            4 => mem::read::<u32>(address).map(u64::from),
            _ => mem::read::<u64>(address),
        }
    }
}

/// Whether the breakpoint where a thread stands has conditions, none of which
/// holds.
pub(super) fn is_passed(player: &Player, regs: &Regs) -> bool {
    let mut asked = player.conditions_of(regs.rip).peekable();
    asked.peek().is_some()
        && asked.all(|condition| {
            condition::is_false(&Asked {
                code: |at| player.condition_byte(condition, at),
                regs,
            })
        })
}
