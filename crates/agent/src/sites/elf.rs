//! What an ELF file says of itself: what is mapped where, what of it is code, and the
//! functions that its symbols name.
//!
//! Nothing here is believed: an offset or a length that does not fit is as if it were
//! not there.

use std::fs::File;

use super::search::read_up_to;

const TABLE_MAX: u64 = 256 << 20;

/// A stretch of the file that is mapped, or would be, at an address.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) len: u64,
}

impl Range {
    pub(super) fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.len
    }
}

struct Section {
    kind: u32,
    flags: u64,
    range: Range,
}

/// What of an ELF file matters here.
pub(super) struct Elf<'a> {
    file: &'a File,
    loads: Vec<Range>,
    executable: Vec<Range>,
    pub(super) unwinding: Option<Range>,
    sections: Vec<Section>,
}

impl<'a> Elf<'a> {
    pub(super) fn read(file: &'a File) -> Option<Elf<'a>> {
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
    pub(super) fn bytes_at(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let load = self.loads.iter().find(|load| load.has(address))?;
        let into = address - load.address;
        self.bytes(
            load.offset.checked_add(into)?,
            len.min(load.len - into).min(TABLE_MAX),
        )
    }

    /// Where there is code: the sections that hold it, or else all that is
    /// mapped executable.
    pub(super) fn code(&self) -> Vec<Range> {
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

/// The functions among the symbols, by address.
pub(super) fn symbols(elf: &Elf<'_>) -> Vec<Range> {
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

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    array_at(bytes, at).map(i32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}
