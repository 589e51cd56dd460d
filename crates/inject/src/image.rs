//! The monitor's image, as it lies in memory.

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
use protocol::layout::{IMAGE_BASE, IMAGE_MAX};

use crate::Error;

static ELF: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("MONITOR_IMAGE")));

#[repr(align(16))]
struct Aligned<T: ?Sized>(T);

/// What is mapped into every process, and where things are in it.
pub struct Image {
    /// The bytes from `IMAGE_BASE` on, a whole number of pages.
    pub bytes: Vec<u8>,
    /// Where a fresh process begins.
    pub entry: u64,
    /// The vdso that programs are shown, and how long it is.
    pub vdso: u64,
    pub vdso_len: u64,
}

impl Image {
    /// Lays the embedded ELF file out as the kernel would.
    pub fn load() -> Result<Image, Error> {
        let broken = |what: &'static str| Error::Image(what);
        let elf = ElfFile64::<Endianness>::parse(&ELF.0).map_err(|_| broken("not an ELF file"))?;
        let endian = elf.endian();
        let mut bytes = Vec::new();
        for header in elf.elf_program_headers() {
            if header.p_type(endian) != object::elf::PT_LOAD {
                continue;
            }
            let data = header
                .data(endian, &ELF.0)
                .map_err(|()| broken("segment out of file"))?;
            let start = header
                .p_vaddr(endian)
                .checked_sub(IMAGE_BASE)
                .filter(|start| start + header.p_memsz(endian) <= IMAGE_MAX)
                .ok_or(broken("segment out of place"))? as usize;
            let end = start + header.p_memsz(endian) as usize;
            if bytes.len() < end {
                bytes.resize(end.next_multiple_of(4096), 0);
            }
            bytes
                .get_mut(start..start + data.len())
                .ok_or(broken("segment larger than its memory"))?
                .copy_from_slice(data);
        }
        let (vdso, vdso_len) = elf
            .symbol_by_name("MW_VDSO")
            .map(|symbol| (symbol.address(), symbol.size()))
            .ok_or(broken("no vdso in it"))?;
        Ok(Image {
            bytes,
            entry: elf.entry(),
            vdso,
            vdso_len,
        })
    }
}

/// The offset of `clock_gettime` in the kernel's vdso, the same in every
/// process. None: there is no vdso, and clock reads are system calls.
pub fn kernel_clock_offset() -> Option<u64> {
    // SAFETY: getauxval only reads.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    if base == 0 {
        return None;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let end = line.split_once('-')?.1.split_once(' ')?.0;
    let len = usize::try_from(u64::from_str_radix(end, 16).ok()?.checked_sub(base)?).ok()?;
    // SAFETY: the kernel maps the vdso readable for the process's whole life.
    let bytes = unsafe { std::slice::from_raw_parts(base as *const u8, len) };
    let elf = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let symbol = elf
        .dynamic_symbols()
        .find(|s| s.name() == Ok("__vdso_clock_gettime"))?;
    Some(symbol.address())
}
