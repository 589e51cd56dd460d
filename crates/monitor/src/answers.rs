//! What the processor answers to instructions other than the time-stamp
//! counter's: recorded as it answers, given again in replay.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::instruction::{Form, Instruction};
use protocol::record::{answer, kind};
use protocol::shared::{CPUID_ANSWERS, CPUID_GROUPS, CpuidAnswer};

use crate::arch::{self, Regs};
use crate::state::{Thread, control};
use crate::{log, mem, mode, replay};

/// The flag that says whether there is a random number, and the one that says
/// whether a segment's limit could be had.
const CARRY: u64 = 1;
const ZERO: u64 = 1 << 6;
/// All that `rdrand` sets: the others become zero.
const ARITHMETIC: u64 = 0x8d5;

const OPERAND_SIZE: u8 = 0x66;

/// The operands of one instruction.
struct Operands {
    /// In bytes: 2, 4 or 8.
    size: u64,
    /// Numbers of registers.
    reg: usize,
    rm: usize,
}

impl Operands {
    /// As the program's code has them, around the opcode that was replaced.
    fn read(address: u64, form: Form) -> Operands {
        let (mut rex, mut size) = (0, 4);
        for at in 0..form.opcode_at() {
            match mem::read::<u8>(address + at) {
                Some(OPERAND_SIZE) => size = 2,
                Some(byte @ 0x40..=0x4f) => rex = byte,
                _ => {}
            }
        }
        if rex & 8 != 0 {
            size = 8;
        }
        let modrm = mem::read::<u8>(address + u64::from(form.len) - 1).unwrap_or(0);
        Operands {
            size,
            reg: usize::from(modrm >> 3 & 7 | (rex & 4) << 1),
            rm: usize::from(modrm & 7 | (rex & 1) << 3),
        }
    }
}

/// A general register by its number in instructions.
fn register(regs: &mut Regs, number: usize) -> &mut u64 {
    match number {
        0 => &mut regs.rax,
        1 => &mut regs.rcx,
        2 => &mut regs.rdx,
        3 => &mut regs.rbx,
        4 => &mut regs.rsp,
        5 => &mut regs.rbp,
        6 => &mut regs.rsi,
        7 => &mut regs.rdi,
        8 => &mut regs.r8,
        9 => &mut regs.r9,
        10 => &mut regs.r10,
        11 => &mut regs.r11,
        12 => &mut regs.r12,
        13 => &mut regs.r13,
        14 => &mut regs.r14,
        _ => &mut regs.r15,
    }
}

/// Writes a register as an instruction with operands of this size does.
fn write(place: &mut u64, size: u64, value: u64) {
    *place = match size {
        2 => *place & !0xffff | value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    };
}

/// The thread is at an instruction of this form (`regs.rip`): its registers
/// become what they are behind it.
pub fn give(thread: &Thread, regs: &mut Regs, form: Form) {
    let operands = Operands::read(regs.rip, form);
    let asked = match form.what {
        Instruction::Cpuid => [regs.rax & 0xffff_ffff, regs.rcx & 0xffff_ffff],
        Instruction::Lsl => [*register(regs, operands.rm) & 0xffff, 0],
        _ => [0; 2],
    };
    let answered = mode::answer(
        || record(thread, form.what, asked, operands.size),
        || replay::answer(thread, form.what, asked),
    );
    let [value, is_there, ..] = answered;
    match form.what {
        Instruction::Cpuid => [regs.rax, regs.rbx, regs.rcx, regs.rdx] = answered,
        Instruction::Rdrand | Instruction::Rdseed => {
            write(register(regs, operands.rm), operands.size, value);
            regs.flags = regs.flags & !ARITHMETIC | (is_there * CARRY);
        }
        // Always all of it, whatever the prefixes say.
        Instruction::Rdpid => *register(regs, operands.rm) = value,
        Instruction::Lsl => {
            if is_there != 0 {
                write(register(regs, operands.reg), operands.size, value);
            }
            regs.flags = regs.flags & !ZERO | (is_there * ZERO);
        }
        Instruction::Counter | Instruction::Wrgsbase => {}
    }
}

/// Asks the processor.
fn record(thread: &Thread, what: Instruction, asked: [u64; 2], size: u64) -> [u64; 4] {
    let answered = match what {
        Instruction::Cpuid => cpuid(asked[0], asked[1]).map(u64::from),
        Instruction::Rdrand => with_flag(arch::random(size)),
        Instruction::Rdseed => with_flag(arch::seed(size)),
        Instruction::Rdpid => [arch::processor(), 1, 0, 0],
        Instruction::Lsl => with_flag(arch::segment_limit(asked[0])),
        Instruction::Counter | Instruction::Wrgsbase => [0; 4],
    };
    let mut values = [0; answer::VALUES];
    values[0] = what as u64;
    values[answer::ASKED..answer::ANSWERED].copy_from_slice(&asked);
    values[answer::ANSWERED..].copy_from_slice(&answered);
    log::done(log::other(thread, kind::ANSWER, &values, 0));
    answered
}

/// What this processor says of itself: by itself, or to somebody of this program before.
pub fn cpuid(leaf: u64, subleaf: u64) -> [u32; 4] {
    // (Not every processor has `rdpid`.)
    let here = || arch::segment_limit(PROCESSOR_SEGMENT);
    let ask = || arch::cpuid(leaf as u32, subleaf as u32);
    let processor = here();
    let number = processor.unwrap_or(u64::MAX) & PROCESSOR_NUMBER;
    let key = CpuidAnswer::key(number, leaf, subleaf).filter(|_| processor.is_some());
    let Some(key) = key else {
        return ask();
    };
    let group = &control().cpuid[number as usize & (CPUID_GROUPS - 1)];
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) as usize;
    for step in 0..PROBES {
        let entry = &group[(first + step) & (CPUID_ANSWERS - 1)];
        let found = entry.key.load(Acquire);
        if found == key {
            return core::array::from_fn(|i| entry.values[i].load(Relaxed));
        }
        if found != 0 {
            continue;
        }
        let answered = ask();
        // It may have been another processor.
        if here() == processor
            && entry
                .key
                .compare_exchange(0, CpuidAnswer::TAKEN, AcqRel, Relaxed)
                .is_ok()
        {
            for (place, value) in entry.values.iter().zip(answered) {
                place.store(value, Relaxed);
            }
            entry.key.store(key, Release);
        }
        return answered;
    }
    ask()
}

/// How far from its place an answer may be.
const PROBES: usize = 16;

/// The segment in whose limit the kernel keeps the number of the processor, and where in
/// it that is.
const PROCESSOR_SEGMENT: u64 = 0x7b;
const PROCESSOR_NUMBER: u64 = 0xfff;

fn with_flag(value: Option<u64>) -> [u64; 4] {
    [value.unwrap_or(0), u64::from(value.is_some()), 0, 0]
}
