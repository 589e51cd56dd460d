//! A core file as a stopped process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf;

use protocol::id::Addr;

use crate::elf::image::{Image, Segment};
use crate::error::{Error, Result};
use crate::target::{Content, Mapping, Process, Registers, ThreadId};

/// A core file.
#[derive(Debug)]
pub struct CoreFile {
    file: File,
    segments: Vec<Segment>,
    threads: Vec<(ThreadId, Registers)>,
    mappings: Vec<Mapping>,
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

/// Positions in `struct user_regs_struct` of the registers in DWARF's order.
const USER_REGS: [usize; 16] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0];
/// Where `struct user_regs_struct` is in `struct elf_prstatus`.
const PRSTATUS_REGS: usize = 112;
/// Where the thread's id is in `struct elf_prstatus`.
const PRSTATUS_PID: usize = 32;

/// Registers from the kernel's `struct user_regs_struct`.
pub fn user_regs(bytes: &[u8]) -> Option<Registers> {
    let word = |at: usize| u64_at(bytes, at * 8);
    let mut registers = Registers {
        rip: word(16)?,
        eflags: word(18)?,
        orig_rax: word(15)?,
        fs_base: word(21)?,
        gs_base: word(22)?,
        segments: [
            word(17)? as u16,
            word(20)? as u16,
            word(23)? as u16,
            word(24)? as u16,
            word(25)? as u16,
            word(26)? as u16,
        ],
        ..Registers::default()
    };
    for (slot, at) in registers.general.iter_mut().zip(USER_REGS) {
        *slot = word(at)?;
    }
    Some(registers)
}

/// Takes vector registers from an XSAVE image, as `NT_X86_XSTATE` and
/// `PTRACE_GETREGSET` have it.
pub fn take_xsave(registers: &mut Registers, image: &[u8]) {
    if let Some(legacy) = image.get(..512).and_then(|b| <[u8; 512]>::try_from(b).ok()) {
        registers.fxsave = Some(Box::new(legacy));
    }
    let present = u64_at(image, 512).unwrap_or(0);
    let mut high = [[0u8; 16]; 16];
    // Bit 2: the upper halves are not all zero.
    if present & 4 != 0 {
        for (at, half) in high.iter_mut().enumerate() {
            let start = 576 + at * 16;
            match image.get(start..start + 16) {
                Some(bytes) => half.copy_from_slice(bytes),
                None => return,
            }
        }
    }
    registers.ymm_high = Some(Box::new(high));
}

impl CoreFile {
    /// Opens a core file.
    pub fn open(path: &Path) -> Result<Self> {
        let image = Image::open(path)?;
        if image.kind != elf::ET_CORE {
            return Err(Error::NotElf {
                name: path.display().to_string(),
                reason: "it is no core file".to_string(),
            });
        }
        let file = File::open(path).map_err(|e| Error::File {
            path: path.to_path_buf(),
            reason: e.to_string(),
        })?;
        let mut threads: Vec<(ThreadId, Registers)> = Vec::new();
        let mut files = Vec::new();
        // Sections of a core repeat its segments.
        let mut notes = Vec::new();
        for segment in &image.segments {
            if segment.kind == elf::PT_NOTE
                && let Some(bytes) = image.segment_bytes(segment)
            {
                crate::elf::image::notes_in(bytes, &mut notes);
            }
        }
        for (owner, kind, bytes) in notes {
            match (owner, kind) {
                (b"CORE", elf::NT_PRSTATUS) => {
                    let pid = bytes
                        .get(PRSTATUS_PID..PRSTATUS_PID + 4)
                        .and_then(|b| b.try_into().ok())
                        .map_or(0, u32::from_le_bytes);
                    if let Some(registers) = bytes.get(PRSTATUS_REGS..).and_then(user_regs) {
                        threads.push((ThreadId(pid), registers));
                    }
                }
                (b"CORE", elf::NT_PRFPREG) => {
                    if let Some((_, registers)) = threads.last_mut()
                        && registers.fxsave.is_none()
                        && let Some(image) =
                            bytes.get(..512).and_then(|b| <[u8; 512]>::try_from(b).ok())
                    {
                        registers.fxsave = Some(Box::new(image));
                    }
                }
                (b"LINUX", elf::NT_X86_XSTATE) => {
                    if let Some((_, registers)) = threads.last_mut() {
                        take_xsave(registers, bytes);
                    }
                }
                (b"CORE", elf::NT_FILE) => files = mapped_files(bytes).unwrap_or_default(),
                _ => {}
            }
        }
        let segments: Vec<Segment> = image
            .segments
            .iter()
            .copied()
            .filter(|s| s.kind == elf::PT_LOAD)
            .collect();
        let vdso = image
            .segments
            .iter()
            .any(|s| s.kind == elf::PT_NOTE)
            .then(|| auxv_vdso(&image))
            .flatten();
        let mappings = mappings(&segments, &files, vdso);
        Ok(Self {
            file,
            segments,
            threads,
            mappings,
        })
    }
}

const AT_SYSINFO_EHDR: u64 = 33;

fn auxv_vdso(image: &Image) -> Option<Addr> {
    let notes = image.notes();
    let (_, _, auxv) = notes
        .iter()
        .find(|(owner, kind, _)| *owner == b"CORE" && *kind == elf::NT_AUXV)?;
    auxv.chunks_exact(16)
        .find(|pair| u64_at(pair, 0) == Some(AT_SYSINFO_EHDR))
        .and_then(|pair| u64_at(pair, 8).map(Addr))
}

struct MappedFile {
    start: Addr,
    end: Addr,
    offset: u64,
    path: String,
}

fn mapped_files(bytes: &[u8]) -> Option<Vec<MappedFile>> {
    let count = usize::try_from(u64_at(bytes, 0)?).ok()?;
    let page = u64_at(bytes, 8)?;
    let names_at = count.checked_mul(24)?.checked_add(16)?;
    let names = bytes.get(names_at..)?;
    let mut found = Vec::new();
    for (index, name) in names.split(|&b| b == 0).take(count).enumerate() {
        let at = 16 + index * 24;
        found.push(MappedFile {
            start: Addr(u64_at(bytes, at)?),
            end: Addr(u64_at(bytes, at + 8)?),
            offset: u64_at(bytes, at + 16)?.checked_mul(page)?,
            path: String::from_utf8_lossy(name).into_owned(),
        });
    }
    Some(found)
}

fn mappings(segments: &[Segment], files: &[MappedFile], vdso: Option<Addr>) -> Vec<Mapping> {
    // What a core file has of memory was linked to be where it was.
    let starts = |segment: &Segment| Addr(segment.address);
    let ends = |segment: &Segment| starts(segment).saturating_plus(segment.memory_size);
    let mut found: Vec<Mapping> = files
        .iter()
        .map(|file| {
            let segment = segments
                .iter()
                .find(|s| starts(s) <= file.start && file.start < ends(s));
            Mapping {
                start: file.start,
                end: file.end,
                offset: file.offset,
                name: file.path.clone(),
                // gdb leaves out pages that are in the file: they are code.
                executable: segment.is_none_or(|s| s.flags & elf::PF_X != 0),
                writable: segment.is_some_and(|s| s.flags & elf::PF_W != 0),
                content: Content::File(file.path.clone().into()),
            }
        })
        .collect();
    for segment in segments {
        if found.iter().any(|m| m.start == starts(segment)) || segment.memory_size == 0 {
            continue;
        }
        let is_vdso = vdso == Some(starts(segment));
        found.push(Mapping {
            start: starts(segment),
            end: ends(segment),
            offset: 0,
            name: if is_vdso { "[vdso]" } else { "" }.to_string(),
            executable: segment.flags & elf::PF_X != 0,
            writable: segment.flags & elf::PF_W != 0,
            content: Content::Memory,
        });
    }
    found.sort_by_key(|m| m.start);
    found
}

impl Process for CoreFile {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.plus(done as u64);
            let Some(rest) = buffer.get_mut(done..) else {
                break;
            };
            let read = self.read_some(at, rest);
            if read == 0 {
                break;
            }
            done += read;
        }
        done
    }

    fn threads(&self) -> Vec<ThreadId> {
        self.threads.iter().map(|(id, _)| *id).collect()
    }

    fn registers(&self, thread: ThreadId) -> Result<Registers> {
        self.threads
            .iter()
            .find(|(id, _)| *id == thread)
            .map(|(_, registers)| registers.clone())
            .ok_or(Error::NoThread(thread.0))
    }

    fn mappings(&self) -> Vec<Mapping> {
        self.mappings.clone()
    }
}

impl CoreFile {
    fn read_some(&self, address: Addr, buffer: &mut [u8]) -> usize {
        for segment in &self.segments {
            let Some(within) = address.checked_since(Addr(segment.address)) else {
                continue;
            };
            if within < segment.file_size {
                let len = (segment.file_size - within).min(buffer.len() as u64) as usize;
                let Some(part) = buffer.get_mut(..len) else {
                    return 0;
                };
                let offset = segment.offset.saturating_add(within);
                return self.file.read_at(part, offset).unwrap_or(0);
            }
        }
        // What the file has need not be in the core.
        for mapping in &self.mappings {
            if let Content::File(path) = &mapping.content
                && mapping.start <= address
                && address < mapping.end
            {
                let within = address.since(mapping.start);
                let len = mapping.end.since(address).min(buffer.len() as u64) as usize;
                let (Some(part), Ok(file)) = (buffer.get_mut(..len), File::open(path)) else {
                    return 0;
                };
                return file.read_at(part, mapping.offset + within).unwrap_or(0);
            }
        }
        0
    }
}
