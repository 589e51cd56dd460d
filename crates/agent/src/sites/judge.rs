//! Which finds are instructions: what compilers write around them, and decoding from
//! where a function begins.
//!
//! A find is an instruction only if that is proved. What cannot be is left as it is.

use patch::decode::{INST_MAX, decode};
use protocol::instruction::{Form, Instruction};

use super::elf::{Elf, Range, symbols};
use super::search::{Find, with_prefixes};
use super::unwind::Unwinding;

/// How far before a find decoding starts to see whether it is part of another
/// instruction: from a wrong start it falls into step after a few. At most 127.
const RUN_UP: usize = 48;

/// Longest function that is decoded, longest table that is read.
const FUNCTION_MAX: u64 = 4 << 20;

pub(super) enum Verdict {
    /// With its prefixes.
    Instruction(Form),
    PartOfAnother,
    Unknown,
}

/// Where functions begin, as far as the file says. Read when first needed.
pub(super) struct Functions<'a> {
    elf: &'a Elf<'a>,
    unwinding: Option<Unwinding>,
    symbols: Option<Vec<Range>>,
}

impl<'a> Functions<'a> {
    pub(super) fn new(elf: &'a Elf<'a>) -> Functions<'a> {
        Functions {
            elf,
            unwinding: None,
            symbols: None,
        }
    }

    pub(super) fn judge(&mut self, find: Find, address: u64) -> Verdict {
        let is_counter = find.form.what == Instruction::Counter;
        if is_counter && self.joins_halves(address + u64::from(find.form.len)) {
            return Verdict::Instruction(find.form);
        }
        // Most finds end here, without a look at any table.
        let before = address.checked_sub(RUN_UP as u64);
        let around =
            before.and_then(|from| self.elf.bytes_at(from, (RUN_UP + 8 * INST_MAX) as u64));
        let around = around.unwrap_or_default();
        let run_up = run_up(&around);
        if let RunUp::PassedOver = run_up {
            return Verdict::PartOfAnother;
        }
        if find.form.what == Instruction::Cpuid && is_exchanged(&around) {
            return Verdict::Instruction(find.form);
        }
        if let Some(function) = self.containing(address) {
            return self.decode_to(function, address, find.form);
        }
        // Where functions are known, what lies between them is data.
        if self.knows_most_functions() {
            return Verdict::Unknown;
        }
        let behind = around.get(RUN_UP + usize::from(find.form.len)..);
        match run_up {
            RunUp::InStep(prefixes, last)
                if is_meant(
                    around.get(last..RUN_UP).unwrap_or(&[]),
                    behind.unwrap_or(&[]),
                    find.form.what,
                ) =>
            {
                let prefixes = around.get(RUN_UP - prefixes..RUN_UP).unwrap_or(&[]);
                with_prefixes(find.form, prefixes).map_or(Verdict::Unknown, Verdict::Instruction)
            }
            _ => Verdict::Unknown,
        }
    }

    /// Whether the code from `address` on joins the halves of the counter, or
    /// jumps to where it does: Go's assembly shares that between two reads.
    fn joins_halves(&self, address: u64) -> bool {
        const JUMP: u8 = 0xeb;
        let after = |address| self.elf.bytes_at(address, 4 * INST_MAX as u64);
        let Some(bytes) = after(address) else {
            return false;
        };
        let shared = match bytes.first_chunk() {
            Some(&[JUMP, distance]) => {
                let behind = address.wrapping_add(2);
                after(behind.wrapping_add_signed(distance.cast_signed().into()))
            }
            _ => None,
        };
        joins_halves(&bytes) || shared.is_some_and(|bytes| joins_halves(&bytes))
    }

    /// Whether the file says of most of its code which function it is in. (Large
    /// programs are built without tables for unwinding but for those of a few
    /// libraries, and have symbols only of what others may call.)
    fn knows_most_functions(&self) -> bool {
        /// Few programs have functions that are longer on average.
        const LONG: u64 = 4096;
        let unwinding = self.unwinding.as_ref();
        let unwinding = unwinding.map_or(0, |unwinding| unwinding.table.len() as u64 / 8);
        let symbols = self.symbols.as_ref().map_or(0, Vec::len) as u64;
        let code: u64 = self.elf.code().iter().map(|range| range.len).sum();
        unwinding.max(symbols).saturating_mul(LONG) >= code.max(1)
    }

    /// The function that an address is in.
    fn containing(&mut self, address: u64) -> Option<Range> {
        let elf = self.elf;
        let unwinding = self
            .unwinding
            .get_or_insert_with(|| Unwinding::read(elf).unwrap_or_default());
        if let Some(function) = unwinding.containing(elf, address) {
            return Some(function);
        }
        let symbols = self.symbols.get_or_insert_with(|| symbols(elf));
        let after = symbols.partition_point(|s| s.address <= address);
        let before = symbols.get(..after).unwrap_or(&[]);
        // Symbols may overlap, but not by many.
        let near = before.iter().rev().take(16);
        near.copied().find(|s| s.has(address))
    }

    /// Decodes a function from its beginning to where the opcode is.
    fn decode_to(&self, function: Range, address: u64, form: Form) -> Verdict {
        let distance = address - function.address;
        if distance > FUNCTION_MAX {
            return Verdict::Unknown;
        }
        let want = distance + INST_MAX as u64;
        let Some(bytes) = self.elf.bytes_at(function.address, want) else {
            return Verdict::Unknown;
        };
        let distance = distance as usize;
        let mut at = 0;
        while at < distance {
            match bytes.get(at..).and_then(decode) {
                Some(inst) if at + inst.len <= distance => at += inst.len,
                Some(_) => break,
                None => return Verdict::Unknown,
            }
        }
        let prefixes = bytes.get(at..distance).unwrap_or(&[]);
        if !prefixes.iter().copied().all(is_prefix) {
            return Verdict::PartOfAnother;
        }
        match with_prefixes(form, prefixes) {
            Some(form) => Verdict::Instruction(form),
            None => Verdict::Unknown,
        }
    }
}

/// Whether it can stand before an opcode, and belong to it.
fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65
    ) || matches!(byte, 0x40..=0x4f)
}

/// What decoding from before a find says of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunUp {
    /// An instruction begins before it and ends behind its beginning, wherever
    /// decoding starts. One of any fifteen neighbouring places is where an
    /// instruction begins, if this is code; and if it is data, it stays as it is
    /// anyway.
    PassedOver,
    /// Wherever it starts, it comes to it, with so many prefixes; and where the
    /// instruction before it begins.
    InStep(usize, usize),
    /// Now so, now so.
    Mixed,
}

/// Decodes up to the opcode at [`RUN_UP`], from each of the first places.
fn run_up(bytes: &[u8]) -> RunUp {
    let (mut passed, mut met) = (false, None);
    let mut is_mixed = false;
    let mut last = 0;
    // Bit i: what begins at i has been followed already.
    let mut followed = 0u128;
    for start in 0..INST_MAX {
        let (mut before, mut at) = (start, start);
        while at < RUN_UP && followed & 1 << at == 0 {
            followed |= 1 << at;
            match bytes.get(at..).and_then(decode) {
                Some(inst) if at + inst.len > RUN_UP => {
                    let prefixes = bytes.get(at..RUN_UP).unwrap_or(&[]);
                    if prefixes.iter().copied().all(is_prefix) {
                        is_mixed |= met.replace(prefixes.len()).is_some();
                        last = last.max(before);
                    } else {
                        passed = true;
                    }
                    break;
                }
                Some(inst) => {
                    before = at;
                    at += inst.len;
                }
                // No instruction: so none began at `start`.
                None => break,
            }
        }
        if at == RUN_UP {
            is_mixed |= met.replace(0).is_some_and(|before| before != 0);
            last = last.max(before);
        }
    }
    match (met, passed) {
        (Some(prefixes), false) if !is_mixed => RunUp::InStep(prefixes, last),
        (None, true) => RunUp::PassedOver,
        _ => RunUp::Mixed,
    }
}

/// Whether the code around an instruction is that of one: `before` is the
/// instruction before it.
fn is_meant(before: &[u8], behind: &[u8], what: Instruction) -> bool {
    // lfence, mfence: then one half of the counter is enough.
    let is_fenced = matches!(before, [0x0f, 0xae, 0xe8 | 0xf0]);
    if what == Instruction::Counter && is_fenced {
        return reads_soon(behind, RAX) || reads_soon(behind, RDX);
    }
    uses(behind, what) && is_asked(before, what)
}

const RAX: u8 = 0;
const RDX: u8 = 2;

/// Whether the code behind an instruction makes use of what it answers, as any
/// does that means it: the counter's two halves are read, the flag that says
/// whether there is a random number is looked at.
fn uses(code: &[u8], what: Instruction) -> bool {
    match what {
        Instruction::Counter => reads_soon(code, RAX) && reads_soon(code, RDX),
        Instruction::Rdrand | Instruction::Rdseed => matches!(
            code,
            [0x72 | 0x73, ..] | [0x0f, 0x82 | 0x83 | 0x92 | 0x93 | 0x42 | 0x43, ..]
        ),
        Instruction::Cpuid => (0..4).any(|register| reads_soon(code, register)),
        _ => false,
    }
}

/// Whether the instruction before one says what it is asked: of `cpuid`, which
/// question.
fn is_asked(before: &[u8], what: Instruction) -> bool {
    what != Instruction::Cpuid
        || matches!(
            before,
            // mov eax or ecx, number; xor of them with themselves
            [0xb8 | 0xb9, _, _, _, _] | [0x31 | 0x33, 0xc0 | 0xc9]
            // mov of a register or of memory to them
            | [0x8b, 0x40..=0x4f | 0xc0..=0xcf | 0x80..=0x8f, ..]
            | [0x89, 0xc0 | 0xc1 | 0xc8 | 0xc9 | 0xd0 | 0xd1 | 0xd8 | 0xd9 | 0xf0 | 0xf1 | 0xf8 | 0xf9]
        )
}

/// Whether rbx is exchanged with another register around the `cpuid` at
/// [`RUN_UP`], as Clang writes it: no data has the same three bytes on both sides of
/// it by chance.
fn is_exchanged(around: &[u8]) -> bool {
    let (before, behind) = (around.get(..RUN_UP), around.get(RUN_UP + 2..));
    let before = before.and_then(|bytes| bytes.last_chunk::<3>());
    let behind = behind.and_then(|bytes| bytes.first_chunk::<3>());
    // xchg REGISTER, rbx
    let is_exchange = |bytes: &&[u8; 3]| matches!(bytes, [0x48 | 0x4c, 0x87, modrm] if modrm >> 6 == 3 && modrm & 7 == 3);
    before.filter(is_exchange).is_some() && before == behind
}

/// Whether one of the next instructions reads a register (0 to 7) that none
/// before it has written, and all of them are known.
fn reads_soon(code: &[u8], register: u8) -> bool {
    let mut at = 0;
    for _ in 0..6 {
        let rest = code.get(at..).unwrap_or(&[]);
        let Some(inst) = decode(rest).filter(|inst| inst.movable) else {
            return false;
        };
        let rex = rest.first().copied().filter(|b| matches!(*b, 0x40..=0x4f));
        let rex = rex.unwrap_or(0);
        let opcode = rest.get(usize::from(rex != 0)).copied().unwrap_or(0);
        let modrm = inst.modrm.and_then(|at| rest.get(at)).copied().unwrap_or(0);
        let reg = (modrm >> 3 & 7) | (rex & 4) << 1;
        let is_register = modrm >> 6 == 3;
        let rm = (modrm & 7) | (rex & 1) << 3;
        match opcode {
            // From `reg`: add, or, and, sub, xor, mov.
            0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x89 if reg == register => return true,
            0x01 | 0x09 | 0x21 | 0x29 | 0x31 if is_register && rm == register => return true,
            // Into `reg`, of a register.
            0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x8b if is_register && rm == register => {
                return true;
            }
            // A shift, a test, a comparison.
            0xc1 | 0x81 | 0x83 | 0x85 | 0x39 | 0x3b if is_register && rm == register => {
                return true;
            }
            // What writes it makes an end of it.
            0x8b | 0x8d if reg == register => return false,
            0x89 if is_register && rm == register => return false,
            0x50..=0x57 if opcode & 7 == register && rex & 1 == 0 => return true,
            _ => {}
        }
        at += inst.len;
    }
    false
}

/// Whether the code joins the halves of the counter as compilers do: `shl rdx,
/// 32` soon follows. No data has these bytes there by chance.
fn joins_halves(after: &[u8]) -> bool {
    const SHIFT: [u8; 4] = [0x48, 0xc1, 0xe2, 0x20];
    let mut at = 0;
    for _ in 0..3 {
        let rest = after.get(at..).unwrap_or(&[]);
        if rest.starts_with(&SHIFT) {
            return true;
        }
        match decode(rest) {
            Some(inst) if inst.movable => at += inst.len,
            _ => return false,
        }
    }
    false
}
