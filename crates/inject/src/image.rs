//! The monitor's image, as it lies in memory. The build script has laid it out.

use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSymbol};

include!(concat!(env!("OUT_DIR"), "/places.rs"));

/// What is mapped into every process, and where things are in it.
pub struct Image {
    /// The bytes from `IMAGE_BASE` on, a whole number of pages.
    pub bytes: &'static [u8],
    /// Where a fresh process begins.
    pub entry: u64,
    /// The vdso that programs are shown, and how long it is.
    pub vdso: u64,
    pub vdso_len: u64,
}

impl Image {
    /// The image that was built with this crate.
    pub fn embedded() -> Image {
        Image {
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/monitor.image")),
            entry: ENTRY,
            vdso: VDSO,
            vdso_len: VDSO_LEN,
        }
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
    // SAFETY: the kernel maps the vdso readable for the process's whole life.
    // It begins with an ELF header, and ends with the table of sections.
    let bytes = unsafe {
        let header = &*(base as *const FileHeader64<Endianness>);
        let endian = header.endian().ok()?;
        let table = usize::from(header.e_shnum(endian)) * usize::from(header.e_shentsize(endian));
        let len = usize::try_from(header.e_shoff(endian)).ok()? + table;
        std::slice::from_raw_parts(base as *const u8, len)
    };
    let elf = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let symbol = elf
        .dynamic_symbols()
        .find(|s| s.name() == Ok("__vdso_clock_gettime"))?;
    Some(symbol.address())
}
