//! In replay: a thread was interrupted in the middle of an instruction that
//! repeats itself (`rep movsb` and its kin), between two of its rounds.
//!
//! Neither a breakpoint nor translated code stops there: both come before the
//! first round or after the last. So the instruction is made to take just the
//! rounds up to the place, by a smaller count, and then gets back what is left.
//!
//! In recording, those that write are not left in the middle at all (`finish`):
//! where they come to a page that is not there yet, some processors have
//! written up to 63 bytes more than their registers say.

use translate::{Inst, Repeat, Source};

use crate::arch::{self, Regs, Repeated};
use crate::interruption_search::{Code, PAGES};
use crate::mem;
use crate::place::{self, FLAGS, InterruptionSite, RAX, RCX, RDI, RIP, RSI, Registers};

const DIRECTION: u64 = 1 << 10;

/// The instruction at an address.
fn inst_at(rip: u64, pages: &mut [u64; PAGES]) -> Option<Inst> {
    let mut code = [0; 15];
    let len = Code { pages }.fetch(rip, &mut code);
    translate::inst(&code[..len], rip)
}

/// A thread was interrupted: if that is in an instruction that repeats itself
/// and writes, makes the rounds that are left, as the thread would. False: they
/// cannot all be made, it will fault.
pub fn finish(registers: &mut Registers) -> bool {
    const RESUME: u64 = 1 << 16;
    let Some(inst) = inst_at(registers[RIP], &mut [0; PAGES]) else {
        return true;
    };
    let Some(repeat) = inst.repeat.filter(|repeat| repeat.destination) else {
        return true;
    };
    let backwards = registers[FLAGS] & DIRECTION != 0;
    let len = registers[RCX].saturating_mul(repeat.size);
    let from = match backwards {
        true => registers[RDI].saturating_sub(len),
        false => registers[RDI],
    };
    // Comparisons write nothing.
    if repeat.while_zero.is_some() || inst.segment != 0 || mem::is_ours(from, len.saturating_add(8))
    {
        return true;
    }
    let mut with = Repeated {
        rcx: registers[RCX],
        rsi: registers[RSI],
        rdi: registers[RDI],
        rax: registers[RAX],
    };
    let size = u64::from(repeat.size.trailing_zeros());
    // SAFETY: the program's own instruction, with its own registers; it does
    // not reach into the monitor's memory.
    unsafe { arch::repeat(&raw mut with, size, !repeat.source, backwards) };
    registers[RCX] = with.rcx;
    registers[RSI] = with.rsi;
    registers[RDI] = with.rdi;
    if with.rcx == 0 {
        registers[RIP] += inst.len as u64;
        registers[FLAGS] &= !RESUME;
    }
    with.rcx == 0
}

#[derive(Clone, Copy)]
pub struct Rounds {
    repeat: Repeat,
    /// What is left of the count when the rounds that are under way are made;
    /// 0 if none are.
    left: u64,
    /// The flags before the first round.
    flags: u64,
}

impl Rounds {
    /// If the instruction at a place is of this kind.
    pub fn at(place: &InterruptionSite, pages: &mut [u64; PAGES]) -> Option<Rounds> {
        let repeat = inst_at(place.registers[RIP], pages)?.repeat?;
        Some(Rounds {
            repeat,
            left: 0,
            flags: 0,
        })
    }

    pub fn repeat(&self) -> Repeat {
        self.repeat
    }

    /// A thread is before the instruction. If it was interrupted some rounds
    /// later, sets its count so that these are made.
    pub fn set_out(&mut self, place: &InterruptionSite, regs: &mut Regs) -> bool {
        let Some(rounds) = self.missing(place, regs) else {
            return false;
        };
        self.left = place.registers[RCX];
        self.flags = regs.flags;
        regs.rcx = rounds;
        true
    }

    /// How many rounds lead from these registers to those of the place, if any
    /// do.
    fn missing(&self, place: &InterruptionSite, regs: &Regs) -> Option<u64> {
        let repeat = &self.repeat;
        let wanted = place::by_number(&place.registers);
        let rounds = regs.rcx.checked_sub(wanted[1]).filter(|r| *r != 0)?;
        let mut way = rounds.wrapping_mul(repeat.size);
        if regs.flags & DIRECTION != 0 {
            way = way.wrapping_neg();
        }
        let moved = |from: u64, moves: bool| from.wrapping_add(if moves { way } else { 0 });
        (moved(regs.rsi, repeat.source) == wanted[6]
            && moved(regs.rdi, repeat.destination) == wanted[7]
            && wanted[1] != 0)
            .then_some(rounds)
    }

    pub fn are_under_way(&self) -> bool {
        self.left != 0
    }

    /// The rounds were made, or fewer, if one found what it looked for. Sets the
    /// count right; returns whether there are more to come.
    pub fn made(&mut self, place: &InterruptionSite, regs: &mut Regs) -> bool {
        const ZERO: u64 = 1 << 6;
        let left = core::mem::take(&mut self.left);
        let found = self
            .repeat
            .while_zero
            .is_some_and(|zero| (regs.flags & ZERO != 0) != zero);
        let are_more = left != 0 && regs.rcx == 0 && !found;
        regs.rcx = regs.rcx.wrapping_add(left);
        // In the middle of a comparison some processors show the flags of the
        // last round, others those from before the first. The next round sets
        // them anew, whichever they are.
        if are_more && place::are_same_flags(self.flags, place.registers[FLAGS]) {
            regs.flags = self.flags;
        }
        are_more
    }
}
