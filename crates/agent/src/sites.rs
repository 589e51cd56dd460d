//! Finds the instructions of a program file that ask the processor what is
//! different each time or on each core, `rdtsc`, `cpuid`, `rdrand` and their
//! kin, so that the monitor can replace them.
//!
//! Their bytes also occur inside other instructions and in data, and to
//! replace those would break the program. So each find is *confirmed*: by what
//! compilers write right behind it, or by decoding from where
//! a function is known to begin, as unwinding tables and symbols say. What
//! turns out to be part of something else is dropped; what can be neither
//! confirmed nor dropped is *doubtful*, and stays as it is.
//!
//! The file may hold anything: no offset or length in it is believed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use patch::decode::{INST_MAX, decode};
use protocol::instruction::{ESCAPE, Form, Instruction};

/// The longest of the instructions from its opcode on, less one.
const OVERLAP: usize = 2;
/// How much is searched at a time: it stays in the cache.
const BLOCK: usize = 64 * 1024;
/// How far before a find decoding starts to see whether it is part of another
/// instruction: from a wrong start it falls into step after a few. At most 127.
const RUN_UP: usize = 48;
/// Longest function that is decoded, longest table that is read.
const FUNCTION_MAX: u64 = 4 << 20;
const TABLE_MAX: u64 = 256 << 20;

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Where it is in the file.
    pub offset: u64,
    pub form: Form,
}

/// Bytes that may be one, from the opcode on.
#[derive(Clone, Copy, Debug)]
struct Find {
    /// Where the opcode is in the file.
    offset: u64,
    /// As long as it is without prefixes. Of [`Instruction::Rdseed`] only they
    /// tell whether it is an [`Instruction::Rdpid`].
    form: Form,
}

/// What a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// By offset.
    pub confirmed: Vec<Site>,
    /// Offsets of bytes that may be such an instruction, or not.
    pub doubtful: Vec<u64>,
}

/// Looks through a file. One that is no x86-64 ELF file has none.
pub fn find(file: &File) -> io::Result<Sites> {
    let Some(elf) = Elf::read(file) else {
        return Ok(Sites::default());
    };
    let mut sites = Sites::default();
    let mut functions = Functions::new(&elf);
    for range in elf.code() {
        for find in search(file, range.offset, range.len)? {
            let address = range.address + (find.offset - range.offset);
            match functions.judge(find, address) {
                Verdict::Instruction(form) => sites.confirmed.push(Site {
                    offset: find.offset - form.opcode_at(),
                    form,
                }),
                Verdict::PartOfAnother => {}
                Verdict::Unknown => sites.doubtful.push(find.offset),
            }
        }
    }
    sites.confirmed.sort_unstable();
    sites.confirmed.dedup();
    Ok(sites)
}

/// Where the bytes occur in a stretch of the file.
fn search(file: &File, offset: u64, len: u64) -> io::Result<Vec<Find>> {
    let mut block = vec![0; BLOCK.min(usize::try_from(len).unwrap_or(BLOCK))];
    let mut found = Vec::new();
    let mut at = 0;
    while at < len {
        let want = usize::try_from(len - at).unwrap_or(BLOCK).min(block.len());
        let got = read_up_to(file, block.get_mut(..want).unwrap_or(&mut []), offset + at)?;
        let bytes = block.get(..got).unwrap_or(&[]);
        let is_last = got < want || got <= OVERLAP || at + got as u64 == len;
        // What begins at the end of a block is found whole in the next one.
        let starts = if is_last { got } else { got - OVERLAP };
        search_block(bytes, starts, |place, form| {
            found.push(Find {
                offset: offset + at + place as u64,
                form,
            });
        });
        if is_last {
            break;
        }
        at += starts as u64;
    }
    Ok(found)
}

/// How many places are looked at in one go: the compiler makes a few vector
/// instructions of it.
const STRIDE: usize = 64;

/// Finds what begins in the first `starts` bytes.
fn search_block(bytes: &[u8], starts: usize, mut found: impl FnMut(usize, Form)) {
    let mut look = |place: usize| {
        let rest = bytes.get(place..).unwrap_or(&[]);
        if let Some(form) = form_of(rest) {
            found(place, form);
        }
    };
    let mut at = 0;
    while at < starts {
        let here = bytes.get(at..).and_then(|b| b.first_chunk::<STRIDE>());
        let next = bytes.get(at + 1..).and_then(|b| b.first_chunk::<STRIDE>());
        let is_worth_it = match (here, next) {
            (Some(here), Some(next)) => {
                let mut any = 0;
                for (first, second) in here.iter().zip(next) {
                    let is_one = (*second == 0x31)
                        | (*second == 0x01)
                        | (*second == 0xa2)
                        | (*second == 0xc7)
                        | (*second == 0xae)
                        | (*second == 0x03);
                    any |= u8::from(*first == ESCAPE) & u8::from(is_one);
                }
                any != 0
            }
            _ => true,
        };
        if is_worth_it {
            (at..starts.min(at + STRIDE)).for_each(&mut look);
        }
        at += STRIDE;
    }
}

/// The instruction whose opcode is at the beginning of the bytes.
fn form_of(bytes: &[u8]) -> Option<Form> {
    let operand = bytes.get(2).copied();
    let (what, len) = match (bytes.first_chunk()?, operand) {
        ([ESCAPE, 0x31], _) => (Instruction::Counter, 2),
        ([ESCAPE, 0x01], Some(0xf9)) => (Instruction::Counter, 3),
        ([ESCAPE, 0xa2], _) => (Instruction::Cpuid, 2),
        ([ESCAPE, 0xc7], Some(0xf0..=0xf7)) => (Instruction::Rdrand, 3),
        ([ESCAPE, 0xc7], Some(0xf8..)) => (Instruction::Rdseed, 3),
        ([ESCAPE, 0x03], Some(0xc0..)) => (Instruction::Lsl, 3),
        ([ESCAPE, 0xae], Some(0xd8..=0xdf)) => (Instruction::Wrgsbase, 3),
        _ => return None,
    };
    Some(Form { what, len })
}

/// The instruction with these prefixes. None: the counter and `cpuid` need
/// none, and whoever writes some means something else.
fn with_prefixes(form: Form, prefixes: &[u8]) -> Option<Form> {
    const OPERAND_SIZE: u8 = 0x66;
    const REP: u8 = 0xf3;
    let len = form.len + u8::try_from(prefixes.len()).ok()?;
    let is_rep = prefixes.contains(&REP);
    let is_known = |byte: &u8| matches!(*byte, OPERAND_SIZE | REP | 0x40..=0x4f);
    let what = match form.what {
        Instruction::Counter | Instruction::Cpuid if !prefixes.is_empty() => return None,
        Instruction::Rdseed if is_rep => Instruction::Rdpid,
        Instruction::Wrgsbase if is_rep => Instruction::Wrgsbase,
        // Without the prefix it is none.
        Instruction::Wrgsbase => return None,
        _ if is_rep || !prefixes.iter().all(is_known) => return None,
        what => what,
    };
    Some(Form { what, len })
}

fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..)
        && !rest.is_empty()
    {
        match file.read_at(rest, at.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

enum Verdict {
    /// With its prefixes.
    Instruction(Form),
    PartOfAnother,
    Unknown,
}

/// A stretch of the file that is mapped, or would be, at an address.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    address: u64,
    len: u64,
}

impl Range {
    fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.len
    }
}

struct Section {
    kind: u32,
    flags: u64,
    range: Range,
}

/// What of an ELF file matters here.
struct Elf<'a> {
    file: &'a File,
    loads: Vec<Range>,
    executable: Vec<Range>,
    unwinding: Option<Range>,
    sections: Vec<Section>,
}

impl<'a> Elf<'a> {
    fn read(file: &'a File) -> Option<Elf<'a>> {
        const X86_64: u16 = 62;
        const PT_LOAD: u32 = 1;
        const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
        const PF_X: u32 = 1;
        let mut elf = Elf {
            file,
            loads: Vec::new(),
            executable: Vec::new(),
            unwinding: None,
            sections: Vec::new(),
        };
        let header = elf.bytes(0, 64)?;
        // Class 64, little-endian.
        if !header.starts_with(b"\x7fELF\x02\x01") || u16_at(&header, 18)? != X86_64 {
            return None;
        }
        let (table, size, count) = (
            u64_at(&header, 32)?,
            u16_at(&header, 54)?,
            u16_at(&header, 56)?,
        );
        let segments = elf.bytes(table, u64::from(size) * u64::from(count))?;
        for segment in segments.chunks_exact(usize::from(size).max(56)) {
            let range = Range {
                offset: u64_at(segment, 8)?,
                address: u64_at(segment, 16)?,
                len: u64_at(segment, 32)?,
            };
            match u32_at(segment, 0)? {
                PT_LOAD => {
                    elf.loads.push(range);
                    if u32_at(segment, 4)? & PF_X != 0 {
                        elf.executable.push(range);
                    }
                }
                PT_GNU_EH_FRAME => elf.unwinding = Some(range),
                _ => {}
            }
        }
        // A file need not have sections.
        elf.sections = elf.read_sections(&header).unwrap_or_default();
        Some(elf)
    }

    fn read_sections(&self, header: &[u8]) -> Option<Vec<Section>> {
        let (table, size, count) = (
            u64_at(header, 40)?,
            u16_at(header, 58)?,
            u16_at(header, 60)?,
        );
        let bytes = self.bytes(table, u64::from(size) * u64::from(count))?;
        bytes
            .chunks_exact(usize::from(size).max(64))
            .map(|section| {
                Some(Section {
                    kind: u32_at(section, 4)?,
                    flags: u64_at(section, 8)?,
                    range: Range {
                        address: u64_at(section, 16)?,
                        offset: u64_at(section, 24)?,
                        len: u64_at(section, 32)?,
                    },
                })
            })
            .collect()
    }

    /// `len` bytes at an offset, if the file has them.
    fn bytes(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        if len > TABLE_MAX {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        let got = read_up_to(self.file, &mut bytes, offset).ok()?;
        (got == bytes.len()).then_some(bytes)
    }

    /// Bytes at an address, at most `len` of them.
    fn bytes_at(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let load = self.loads.iter().find(|load| load.has(address))?;
        let into = address - load.address;
        self.bytes(
            load.offset.checked_add(into)?,
            len.min(load.len - into).min(TABLE_MAX),
        )
    }

    /// Where there is code: the sections that hold it, or else all that is
    /// mapped executable.
    fn code(&self) -> Vec<Range> {
        const SHF_EXECINSTR: u64 = 4;
        const SHT_PROGBITS: u32 = 1;
        let sections: Vec<Range> = self
            .sections
            .iter()
            .filter(|s| s.flags & SHF_EXECINSTR != 0 && s.kind == SHT_PROGBITS)
            .map(|s| s.range)
            .filter(|range| self.executable.iter().any(|load| load.has(range.address)))
            .collect();
        if sections.is_empty() {
            self.executable.clone()
        } else {
            sections
        }
    }
}

/// Where functions begin, as far as the file says. Read when first needed.
struct Functions<'a> {
    elf: &'a Elf<'a>,
    unwinding: Option<Unwinding>,
    symbols: Option<Vec<Range>>,
}

impl<'a> Functions<'a> {
    fn new(elf: &'a Elf<'a>) -> Functions<'a> {
        Functions {
            elf,
            unwinding: None,
            symbols: None,
        }
    }

    fn judge(&mut self, find: Find, address: u64) -> Verdict {
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
        if let Some(function) = self.containing(address) {
            return self.decode_to(function, address, find.form);
        }
        // Where functions are known, what lies between them is data.
        if self.knows_functions() {
            return Verdict::Unknown;
        }
        let behind = around.get(RUN_UP + usize::from(find.form.len)..);
        match run_up {
            RunUp::InStep(prefixes, last)
                if behind.is_some_and(|code| uses(code, find.form.what))
                    && is_asked(around.get(last..RUN_UP).unwrap_or(&[]), find.form.what) =>
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

    fn knows_functions(&self) -> bool {
        let unwinding = self.unwinding.as_ref();
        unwinding.is_some_and(|unwinding| !unwinding.table.is_empty())
            || self.symbols.as_ref().is_some_and(|all| !all.is_empty())
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

/// Whether the code behind an instruction makes use of what it answers, as any
/// does that means it: the counter's two halves are read, the flag that says
/// whether there is a random number is looked at.
fn uses(code: &[u8], what: Instruction) -> bool {
    match what {
        Instruction::Counter => {
            const RAX: u8 = 0;
            const RDX: u8 = 2;
            reads_soon(code, RAX) && reads_soon(code, RDX)
        }
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

/// The functions among the symbols, by address.
fn symbols(elf: &Elf<'_>) -> Vec<Range> {
    const SHT_SYMTAB: u32 = 2;
    const SHT_DYNSYM: u32 = 11;
    const STT_FUNC: u8 = 2;
    let mut found = Vec::new();
    for table in &elf.sections {
        if !matches!(table.kind, SHT_SYMTAB | SHT_DYNSYM) {
            continue;
        }
        let bytes = elf.bytes(table.range.offset, table.range.len);
        for symbol in bytes.unwrap_or_default().chunks_exact(24) {
            let is_function = symbol.get(4).is_some_and(|info| info & 15 == STT_FUNC);
            if let (true, Some(address), Some(len)) =
                (is_function, u64_at(symbol, 8), u64_at(symbol, 16))
                && address != 0
                && len != 0
            {
                found.push(Range {
                    offset: 0,
                    address,
                    len,
                });
            }
        }
    }
    found.sort_unstable_by_key(|s| s.address);
    found
}

/// The search table of the unwinding information (`.eh_frame_hdr`).
#[derive(Default)]
struct Unwinding {
    base: u64,
    /// Pairs of 32-bit distances from `base`: a function's beginning, and its
    /// entry in `.eh_frame`.
    table: Vec<u8>,
}

impl Unwinding {
    fn read(elf: &Elf<'_>) -> Option<Unwinding> {
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

    fn containing(&self, elf: &Elf<'_>, address: u64) -> Option<Range> {
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

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    array_at(bytes, at).map(i32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that fails panics"
)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
    use object::{Object, ObjectSection, SectionKind};

    use super::*;

    /// The instructions that a full disassembler finds which reads all code from
    /// the beginning of each section.
    fn disassembled(path: &str) -> BTreeSet<Site> {
        let data = std::fs::read(path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let mut sites = BTreeSet::new();
        for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
            let (offset, _) = section.file_range().unwrap();
            let bytes = section.data().unwrap();
            for inst in Decoder::with_ip(64, bytes, offset, DecoderOptions::NONE) {
                let what = match inst.mnemonic() {
                    Mnemonic::Rdtsc | Mnemonic::Rdtscp => Instruction::Counter,
                    Mnemonic::Cpuid => Instruction::Cpuid,
                    Mnemonic::Rdrand => Instruction::Rdrand,
                    Mnemonic::Rdseed => Instruction::Rdseed,
                    Mnemonic::Rdpid => Instruction::Rdpid,
                    Mnemonic::Wrgsbase => Instruction::Wrgsbase,
                    Mnemonic::Lsl if inst.op1_kind() == OpKind::Register => Instruction::Lsl,
                    _ => continue,
                };
                let len = inst.len() as u8;
                sites.insert(Site {
                    offset: inst.ip(),
                    form: Form { what, len },
                });
            }
        }
        sites
    }

    /// Compares; returns how many there are.
    fn agree(path: &str) -> usize {
        let sites = find(&File::open(path).unwrap()).unwrap();
        let confirmed: BTreeSet<Site> = sites.confirmed.iter().copied().collect();
        let expected = disassembled(path);
        println!(
            "{path}: {} confirmed, {} doubtful",
            confirmed.len(),
            sites.doubtful.len()
        );
        let wrong: Vec<_> = confirmed.difference(&expected).collect();
        assert!(wrong.is_empty(), "{path}: no instructions: {wrong:x?}");
        let missed: Vec<_> = expected
            .difference(&confirmed)
            .filter(|site| {
                !sites
                    .doubtful
                    .contains(&(site.offset + site.form.opcode_at()))
            })
            .collect();
        assert!(missed.is_empty(), "{path}: missed: {missed:x?}");
        confirmed.len()
    }

    /// Of a file without data among its code nothing is in doubt.
    fn agree_on_all(path: &str) -> usize {
        let count = agree(path);
        assert_eq!(count, disassembled(path).len(), "{path}");
        count
    }

    #[test]
    fn a_disassembler_finds_the_same_in_libraries() {
        let dirs = ["/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64"];
        let path = |name: &str| {
            let mut paths = dirs.iter().map(|dir| format!("{dir}/{name}"));
            paths.find(|path| std::path::Path::new(path).exists())
        };
        let loader = path("ld-linux-x86-64.so.2").unwrap();
        assert!(agree_on_all(&loader) > 5, "the loader measures itself");
        agree_on_all(&path("libc.so.6").unwrap());
        for name in ["libstdc++.so.6", "libcrypto.so.3", "libm.so.6"] {
            path(name).map(|path| agree(&path));
        }
    }

    #[test]
    fn a_disassembler_finds_the_same_in_a_go_program() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("main.go");
        std::fs::write(&source, "package main\nfunc main() { println(1) }\n").unwrap();
        for (name, flags) in [("whole", ""), ("stripped", "-ldflags=-s -w")] {
            let out = dir.path().join(name);
            let mut go = Command::new("go");
            go.arg("build").arg("-o").arg(&out);
            if !flags.is_empty() {
                go.arg(flags);
            }
            let built = go.arg(&source).env("GOCACHE", dir.path().join("cache"));
            match built.status() {
                Ok(status) => assert!(status.success()),
                Err(_) if std::env::var_os("MW_TOOLS_ARE_INSTALLED").is_none() => return,
                Err(error) => panic!("go: {error}"),
            }
            agree_on_all(out.to_str().unwrap());
            let sites = find(&File::open(&out).unwrap()).unwrap();
            let counters = sites.confirmed.iter();
            let counters = counters.filter(|site| site.form.what == Instruction::Counter);
            assert_eq!(counters.count(), 2, "its runtime has cputicks");
        }
    }

    /// The first process of a recording that maps a file waits for this; the
    /// loader and libc are those that every one maps.
    #[test]
    #[cfg(not(debug_assertions))]
    fn a_start_is_not_held_up() {
        let dirs = ["/lib/x86_64-linux-gnu", "/lib64"];
        let open = |name: &str| {
            let files = dirs.iter().map(|dir| File::open(format!("{dir}/{name}")));
            files.flatten().next().unwrap()
        };
        let files = [open("ld-linux-x86-64.so.2"), open("libc.so.6")];
        let best = (0..200)
            .map(|_| {
                let begun = std::time::Instant::now();
                for file in &files {
                    find(file).unwrap();
                }
                begun.elapsed()
            })
            .min();
        assert!(best < Some(std::time::Duration::from_millis(1)), "{best:?}");
    }

    /// No file, whatever is in it, makes this fail.
    #[test]
    fn damaged_files_do_not_panic() {
        let whole = std::fs::read("/lib64/ld-linux-x86-64.so.2").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut seed = 7u64;
        for round in 0..200 {
            let mut bytes = whole.clone();
            for _ in 0..20 {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                // Mostly the headers.
                let range = if round % 2 == 0 { 1024 } else { bytes.len() };
                let at = (seed >> 33) as usize % range;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = (seed >> 20) as u8;
                }
            }
            if round % 5 == 0 {
                bytes.truncate((seed >> 33) as usize % whole.len());
            }
            std::fs::write(&path, &bytes).unwrap();
            let _ = find(&File::open(&path).unwrap());
        }
    }
}
