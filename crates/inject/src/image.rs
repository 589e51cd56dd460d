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
    /// Where threads of a process are sent that runs already.
    pub entries: Entries,
}

/// See the monitor's `adopt.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    pub adopt: u64,
    pub adopted: u64,
    pub depart: u64,
    pub depart_process: u64,
    /// Where they are when they say that they are done.
    pub done: u64,
}

impl Image {
    /// The image that was built with this crate.
    pub fn embedded() -> Image {
        Image {
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/monitor.image")),
            entry: ENTRY,
            vdso: VDSO,
            vdso_len: VDSO_LEN,
            entries: {
                let [adopt, adopted, depart, depart_process, done] = ENTRIES;
                Entries {
                    adopt,
                    adopted,
                    depart,
                    depart_process,
                    done,
                }
            },
        }
    }
}

/// The offset of `clock_gettime` in the kernel's vdso, the same in every
/// process. None: there is no vdso, and clock reads are system calls.
pub fn kernel_clock_offset() -> Option<u64> {
    let elf = kernel_vdso()?;
    let symbol = elf
        .dynamic_symbols()
        .find(|s| s.name() == Ok("__vdso_clock_gettime"))?;
    Some(symbol.address())
}

/// Functions that tell the time, in the kernel's vdso and in ours: name, offset there,
/// address here.
pub fn vdso_functions(image: &Image) -> Vec<(&'static str, u64, u64)> {
    const NAMES: [&str; 3] = ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time"];
    let at = (image.vdso - protocol::layout::IMAGE_BASE) as usize;
    let ours = image.bytes.get(at..at + image.vdso_len as usize);
    let ours = ours.and_then(|bytes| ElfFile64::<Endianness>::parse(bytes).ok());
    let (Some(theirs), Some(ours)) = (kernel_vdso(), ours) else {
        return Vec::new();
    };
    let address = |elf: &ElfFile64<'_, Endianness>, name: &str| {
        let mut symbols = elf.dynamic_symbols();
        Some(symbols.find(|s| s.name() == Ok(name))?.address())
    };
    let both = NAMES.into_iter().filter_map(|name| {
        let ours = address(&ours, name)?;
        Some((name, address(&theirs, name)?, image.vdso + ours))
    });
    both.collect()
}

/// The kernel's vdso, as this process has it.
pub(crate) fn kernel_vdso() -> Option<ElfFile64<'static, Endianness>> {
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
    ElfFile64::<Endianness>::parse(bytes).ok()
}
