//! Finds the instructions of a program file that read the time-stamp counter,
//! `rdtsc` and `rdtscp`, so that the monitor can replace them.
//!
//! Their bytes also occur inside other instructions and in data, and to
//! replace those would break the program. So each find is *confirmed*: by what
//! compilers make of the two halves right behind it, or by decoding from where
//! a function is known to begin, as unwinding tables and symbols say. What
//! turns out to be part of something else is dropped; what can be neither
//! confirmed nor dropped is *doubtful*, and stays as it is.
//!
//! The file may hold anything: no offset or length in it is believed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::memmem::Finder;
use patch::decode::{INST_MAX, decode};

/// The two instructions.
const READS: [&[u8]; 2] = [&[0x0f, 0x31], &[0x0f, 0x01, 0xf9]];
/// The longest of them, less one.
const OVERLAP: usize = 2;
/// How much is searched at a time: it stays in the cache.
const BLOCK: usize = 64 * 1024;
/// How far before a find decoding starts to see whether it is part of another
/// instruction: from a wrong start it falls into step after a few. At most 127.
const RUN_UP: usize = 48;
/// Longest function that is decoded, longest table that is read.
const FUNCTION_MAX: u64 = 4 << 20;
const TABLE_MAX: u64 = 256 << 20;

/// One instruction that reads the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Where it is in the file.
    pub offset: u64,
    /// 2 (`rdtsc`) or 3 (`rdtscp`).
    pub len: u64,
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
        for site in search(file, range.offset, range.len)? {
            let address = range.address + (site.offset - range.offset);
            match functions.judge(site, address) {
                Verdict::Instruction => sites.confirmed.push(site),
                Verdict::PartOfAnother => {}
                Verdict::Unknown => sites.doubtful.push(site.offset),
            }
        }
    }
    sites.confirmed.sort_unstable();
    sites.confirmed.dedup();
    Ok(sites)
}

/// Where the bytes occur in a stretch of the file.
fn search(file: &File, offset: u64, len: u64) -> io::Result<Vec<Site>> {
    let finders = READS.map(Finder::new);
    let mut block = vec![0; BLOCK.min(usize::try_from(len).unwrap_or(BLOCK))];
    let mut found = Vec::new();
    let mut at = 0;
    while at < len {
        let want = usize::try_from(len - at).unwrap_or(BLOCK).min(block.len());
        let got = read_up_to(file, block.get_mut(..want).unwrap_or(&mut []), offset + at)?;
        let bytes = block.get(..got).unwrap_or(&[]);
        for (finder, needle) in finders.iter().zip(READS) {
            found.extend(finder.find_iter(bytes).map(|place| Site {
                offset: offset + at + place as u64,
                len: needle.len() as u64,
            }));
        }
        if got < want || got <= OVERLAP || at + got as u64 == len {
            break;
        }
        // What begins at the end of a block is found whole in the next one.
        at += (got - OVERLAP) as u64;
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
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
    Instruction,
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

    fn judge(&mut self, site: Site, address: u64) -> Verdict {
        if self.joins_halves(address + site.len) {
            return Verdict::Instruction;
        }
        // Most finds end here, without a look at any table.
        let before = address.checked_sub(RUN_UP as u64);
        let before = before.and_then(|from| self.elf.bytes_at(from, (RUN_UP + INST_MAX) as u64));
        if before.is_some_and(|bytes| is_passed_over(&bytes)) {
            return Verdict::PartOfAnother;
        }
        match self.containing(address) {
            Some(function) => self.decode_to(function, address),
            None => Verdict::Unknown,
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

    /// Decodes a function from its beginning.
    fn decode_to(&self, function: Range, address: u64) -> Verdict {
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
                Some(inst) => at += inst.len,
                None => return Verdict::Unknown,
            }
        }
        if at == distance {
            Verdict::Instruction
        } else {
            Verdict::PartOfAnother
        }
    }
}

/// Whether an instruction begins before the one at [`RUN_UP`] and ends behind
/// its beginning, wherever decoding starts. One of any fifteen neighbouring
/// places is where an instruction begins, if this is code; and if it is data,
/// it stays as it is anyway.
fn is_passed_over(bytes: &[u8]) -> bool {
    let mut passed = false;
    // Bit i: what begins at i has been followed already.
    let mut followed = 0u128;
    for start in 0..INST_MAX {
        let mut at = start;
        while at < RUN_UP && followed & 1 << at == 0 {
            followed |= 1 << at;
            match bytes.get(at..).and_then(decode) {
                Some(inst) => at += inst.len,
                // No instruction: so none began at `start`.
                None => break,
            }
        }
        if at == RUN_UP {
            return false;
        }
        passed |= at > RUN_UP;
    }
    passed
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

    use iced_x86::{Decoder, DecoderOptions, Mnemonic};
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
                if matches!(inst.mnemonic(), Mnemonic::Rdtsc | Mnemonic::Rdtscp) {
                    sites.insert(Site {
                        offset: inst.ip(),
                        len: inst.len() as u64,
                    });
                }
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
            .filter(|site| !sites.doubtful.contains(&site.offset))
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
            assert!(
                agree_on_all(out.to_str().unwrap()) == 2,
                "its runtime has cputicks"
            );
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
