//! One ELF file: headers at once, sections when they are asked for.
//!
//! Reading is by `pread`, not by mapping: a file that is truncated under a
//! mapping kills the reader, and sections are read whole anyway.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use object::elf;
use object::endian::LittleEndian;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::{CompressedData, CompressedFileRange, CompressionFormat, ReadCache, ReadRef};

use crate::error::{Error, Result};

/// A part of the file that is mapped when the program is loaded.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// Kind, as `PT_LOAD`.
    pub kind: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Address it was linked for.
    pub address: u64,
    /// Bytes from the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// `PF_X` and its like.
    pub flags: u32,
    /// Alignment.
    pub align: u64,
}

/// A section.
#[derive(Debug)]
pub struct Section {
    /// Name.
    pub name: String,
    /// Address it was linked for, or 0.
    pub address: u64,
    /// Size in memory.
    pub size: u64,
    /// Kind, as `SHT_PROGBITS`.
    pub kind: u32,
    /// `SHF_ALLOC` and its like.
    pub flags: u64,
    /// Index of the linked section.
    pub link: u32,
    /// Size of one entry.
    pub entry_size: u64,
    range: Option<CompressedFileRange>,
    bytes: OnceLock<&'static [u8]>,
}

impl Section {
    /// Whether a link-time address is in it.
    pub fn contains(&self, address: u64) -> bool {
        self.address <= address && address - self.address < self.size
    }
}

#[derive(Debug)]
enum Source {
    File(File, u64),
    Bytes(&'static [u8]),
}

impl Source {
    fn len(&self) -> u64 {
        match self {
            Self::File(_, len) => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    fn read(&self, offset: u64, size: u64) -> Option<&'static [u8]> {
        // A size is never believed before it fits into the file.
        let end = offset.checked_add(size)?;
        if end > self.len() {
            return None;
        }
        let (from, len) = (usize::try_from(offset).ok()?, usize::try_from(size).ok()?);
        match self {
            Self::Bytes(bytes) => bytes.get(from..from.checked_add(len)?),
            Self::File(file, _) => {
                let mut buffer = vec![0; len];
                file.read_exact_at(&mut buffer, offset).ok()?;
                Some(Box::leak(buffer.into_boxed_slice()))
            }
        }
    }
}

/// An ELF file.
#[derive(Debug)]
pub struct Image {
    /// What it is called, for messages.
    pub name: String,
    /// `ET_EXEC`, `ET_DYN`, `ET_CORE`.
    pub kind: u16,
    /// The entry point.
    pub entry: u64,
    /// Segments.
    pub segments: Vec<Segment>,
    /// Sections.
    pub sections: Vec<Section>,
    source: Source,
}

impl Image {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::File {
            path: path.to_path_buf(),
            reason: e.to_string(),
        };
        let file = File::open(path).map_err(failed)?;
        let data = file.metadata().map_err(failed)?;
        if !data.is_file() {
            return Err(failed(std::io::Error::other("not a regular file")));
        }
        let cache = ReadCache::new(file.try_clone().map_err(failed)?);
        Self::parse(
            path.display().to_string(),
            &cache,
            Source::File(file, data.len()),
        )
    }

    /// Takes bytes that are an ELF file.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self> {
        let bytes: &'static [u8] = Box::leak(bytes.into_boxed_slice());
        Self::parse(name.to_string(), bytes, Source::Bytes(bytes))
    }

    fn parse<'a, R: ReadRef<'a>>(name: String, data: R, source: Source) -> Result<Self> {
        let broken = |e: object::read::Error| Error::NotElf {
            name: name.clone(),
            reason: e.to_string(),
        };
        let header = elf::FileHeader64::<LittleEndian>::parse(data).map_err(broken)?;
        let endian = header.endian().map_err(broken)?;
        if header.e_machine(endian) != elf::EM_X86_64 {
            return Err(Error::NotElf {
                name: name.clone(),
                reason: "it is for another processor".to_string(),
            });
        }
        let segments = header
            .program_headers(endian, data)
            .map_err(broken)?
            .iter()
            .map(|p| Segment {
                kind: p.p_type(endian),
                offset: p.p_offset(endian),
                address: p.p_vaddr(endian),
                file_size: p.p_filesz(endian),
                memory_size: p.p_memsz(endian),
                flags: p.p_flags(endian),
                align: p.p_align(endian),
            })
            .collect();
        // A file without usable section headers still has segments.
        let mut sections = Vec::new();
        if let Ok(table) = header.sections(endian, data) {
            for section in table.iter() {
                let title = table.section_name(endian, section).unwrap_or(b"");
                let range = section.file_range(endian).map(|(offset, size)| {
                    section
                        .compression(endian, data)
                        .ok()
                        .flatten()
                        .and_then(|(chdr, data_offset, data_size)| {
                            use object::read::elf::CompressionHeader;
                            let format = match chdr.ch_type(endian) {
                                elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
                                elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
                                _ => return None,
                            };
                            Some(CompressedFileRange {
                                format,
                                offset: data_offset,
                                compressed_size: data_size,
                                uncompressed_size: chdr.ch_size(endian),
                            })
                        })
                        .unwrap_or(CompressedFileRange {
                            format: CompressionFormat::None,
                            offset,
                            compressed_size: size,
                            uncompressed_size: size,
                        })
                });
                sections.push(Section {
                    name: String::from_utf8_lossy(title).into_owned(),
                    address: section.sh_addr(endian),
                    size: section.sh_size(endian),
                    kind: section.sh_type(endian),
                    flags: section.sh_flags(endian),
                    link: section.sh_link(endian),
                    entry_size: section.sh_entsize(endian),
                    range,
                    bytes: OnceLock::new(),
                });
            }
        }
        Ok(Self {
            kind: header.e_type(endian),
            entry: header.e_entry(endian),
            name,
            segments,
            sections,
            source,
        })
    }

    /// The section that is loaded at a link-time address.
    pub fn section_at(&self, address: u64) -> Option<&Section> {
        self.sections.iter().find(|s| {
            s.flags & u64::from(elf::SHF_ALLOC) != 0
                && s.flags & u64::from(elf::SHF_TLS) == 0
                && s.contains(address)
        })
    }

    /// The section of this name.
    pub fn find(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// Whether it has a section of this name with bytes in the file.
    pub fn has(&self, name: &str) -> bool {
        self.find(name)
            .is_some_and(|s| s.kind != elf::SHT_NOBITS && s.size > 0)
    }

    /// The bytes of a section, decompressed; none if it is not there or
    /// damaged.
    pub fn bytes(&self, name: &str) -> &'static [u8] {
        match self.find(name) {
            Some(section) => self.section_bytes(section),
            // The older form: ".zdebug_info" with a header of its own.
            None => name
                .strip_prefix(".debug_")
                .and_then(|rest| self.find(&format!(".zdebug_{rest}")))
                .map_or(&[], |section| {
                    section
                        .bytes
                        .get_or_init(|| self.old_compressed(section).unwrap_or(&[]))
                }),
        }
    }

    /// The bytes of a section.
    pub fn section_bytes(&self, section: &Section) -> &'static [u8] {
        section
            .bytes
            .get_or_init(|| self.load(section).unwrap_or(&[]))
    }

    fn load(&self, section: &Section) -> Option<&'static [u8]> {
        let range = section.range.as_ref()?;
        let raw = self.source.read(range.offset, range.compressed_size)?;
        decompress(range.format, raw, range.uncompressed_size)
    }

    fn old_compressed(&self, section: &Section) -> Option<&'static [u8]> {
        let range = section.range.as_ref()?;
        let raw = self.source.read(range.offset, range.compressed_size)?;
        let size = raw.strip_prefix(b"ZLIB")?.get(..8)?;
        let size = u64::from_be_bytes(size.try_into().ok()?);
        decompress(CompressionFormat::Zlib, raw.get(12..)?, size)
    }

    /// Bytes of the file that a segment holds.
    pub fn segment_bytes(&self, segment: &Segment) -> Option<&'static [u8]> {
        self.source.read(segment.offset, segment.file_size)
    }

    /// Reads `buffer.len()` bytes at a link-time address, if the file has them.
    pub fn read_at(&self, address: u64, buffer: &mut [u8]) -> usize {
        for segment in &self.segments {
            let Some(within) = address.checked_sub(segment.address) else {
                continue;
            };
            if segment.kind != elf::PT_LOAD || within >= segment.file_size {
                continue;
            }
            let len = (segment.file_size - within).min(buffer.len() as u64) as usize;
            let Some(part) = buffer.get_mut(..len) else {
                return 0;
            };
            let offset = segment.offset.saturating_add(within);
            return match &self.source {
                Source::File(file, _) => match file.read_exact_at(part, offset) {
                    Ok(()) => len,
                    Err(_) => 0,
                },
                Source::Bytes(bytes) => {
                    let from = usize::try_from(offset).unwrap_or(usize::MAX);
                    match bytes.get(from..from.saturating_add(len)) {
                        Some(found) => {
                            part.copy_from_slice(found);
                            len
                        }
                        None => 0,
                    }
                }
            };
        }
        0
    }

    /// The notes of the file, as (owner, kind, description).
    pub fn notes(&self) -> Vec<(&'static [u8], u32, &'static [u8])> {
        let mut found = Vec::new();
        let from_sections = self
            .sections
            .iter()
            .filter(|s| s.kind == elf::SHT_NOTE)
            .map(|s| self.section_bytes(s));
        let from_segments = self
            .segments
            .iter()
            .filter(|s| s.kind == elf::PT_NOTE)
            .filter_map(|s| self.segment_bytes(s));
        for bytes in from_sections.chain(from_segments) {
            notes_in(bytes, &mut found);
        }
        found
    }

    /// The id the linker gave this build, in bytes.
    pub fn build_id(&self) -> Option<&'static [u8]> {
        self.notes()
            .into_iter()
            .find(|(owner, kind, _)| *owner == b"GNU" && *kind == elf::NT_GNU_BUILD_ID)
            .map(|(_, _, id)| id)
            .filter(|id| id.len() >= 2)
    }
}

pub(crate) fn notes_in(bytes: &'static [u8], found: &mut Vec<(&'static [u8], u32, &'static [u8])>) {
    let word = |at: usize| -> Option<usize> {
        let raw = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(raw.try_into().ok()?) as usize)
    };
    let mut at = 0usize;
    while let (Some(name), Some(desc), Some(kind)) = (word(at), word(at + 4), word(at + 8)) {
        let name_at = at + 12;
        let desc_at = name_at.saturating_add(name.next_multiple_of(4));
        let (Some(owner), Some(text)) = (
            bytes.get(name_at..name_at.saturating_add(name)),
            bytes.get(desc_at..desc_at.saturating_add(desc)),
        ) else {
            break;
        };
        found.push((owner.strip_suffix(&[0]).unwrap_or(owner), kind as u32, text));
        at = desc_at.saturating_add(desc.next_multiple_of(4));
    }
}

/// How many times longer than its compressed form data may claim to be:
/// deflate cannot do better than 1032, and zstandard rarely does.
const MAX_RATIO: u64 = 4096;

fn decompress(format: CompressionFormat, raw: &'static [u8], size: u64) -> Option<&'static [u8]> {
    if format == CompressionFormat::None {
        return Some(raw);
    }
    if size > (raw.len() as u64).saturating_mul(MAX_RATIO) {
        return None;
    }
    let data = CompressedData {
        format,
        data: raw,
        uncompressed_size: size,
    };
    let bytes = data.decompress().ok()?.into_owned();
    Some(Box::leak(bytes.into_boxed_slice()))
}
