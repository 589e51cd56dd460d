//! Builds the monitor (a freestanding image with flags and a profile of its
//! own, see crates/monitor) and lays it out as the kernel would, so that it can
//! be embedded and nothing is left to do when a recording starts.
#![allow(
    clippy::expect_used,
    reason = "a build that cannot go on says so and stops"
)]

use std::path::Path;
use std::process::Command;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
use protocol::layout::{IMAGE_BASE, IMAGE_MAX};

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let cargo = std::env::var("CARGO").expect("cargo sets CARGO");
    let manifest = Path::new("../monitor/Cargo.toml");
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(Path::new(&out).join("monitor-target"))
        // The host's flags (coverage, sanitizers, linkers) are not for it.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the monitor does not build");
    let elf = std::fs::read(Path::new(&out).join("monitor-target/release/monitor"))
        .expect("the monitor was built");
    let image = lay_out(&elf);
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(Path::new(&out).join(name), bytes).expect("OUT_DIR can be written to");
    };
    write("monitor.image", &image.bytes);
    let places = format!(
        "const ENTRY: u64 = {:#x};\nconst VDSO: u64 = {:#x};\nconst VDSO_LEN: u64 = {:#x};\n\
         const ENTRIES: [u64; 5] = {:#x?};\n",
        image.entry, image.vdso, image.vdso_len, image.entries
    );
    write("places.rs", places.as_bytes());
    for dir in [
        "../monitor",
        "../patch/src",
        "../translate/src",
        "../protocol/src",
    ] {
        println!("cargo:rerun-if-changed={dir}");
    }
}

/// The monitor as it lies in memory.
struct Image {
    /// From `IMAGE_BASE` on, a whole number of pages.
    bytes: Vec<u8>,
    entry: u64,
    vdso: u64,
    vdso_len: u64,
    /// Where threads of a process are sent that runs already.
    entries: [u64; 5],
}

fn lay_out(file: &[u8]) -> Image {
    let elf = ElfFile64::<Endianness>::parse(file).expect("the monitor is an ELF file");
    let endian = elf.endian();
    let mut bytes = Vec::new();
    for header in elf.elf_program_headers() {
        if header.p_type(endian) != object::elf::PT_LOAD {
            continue;
        }
        let data = header.data(endian, file).expect("segments are in the file");
        let start = header
            .p_vaddr(endian)
            .checked_sub(IMAGE_BASE)
            .filter(|start| start + header.p_memsz(endian) <= IMAGE_MAX)
            .expect("segments are where the monitor's place is") as usize;
        let end = start + header.p_memsz(endian) as usize;
        if bytes.len() < end {
            bytes.resize(end.next_multiple_of(4096), 0);
        }
        bytes
            .get_mut(start..start + data.len())
            .expect("segments are no larger than their memory")
            .copy_from_slice(data);
    }
    let vdso = elf
        .symbol_by_name("MW_VDSO")
        .expect("there is a vdso in the monitor");
    let entries = elf
        .symbol_by_name("MW_ENTRIES")
        .expect("there is a table of entries in the monitor");
    let at = (entries.address() - IMAGE_BASE) as usize;
    let entries = std::array::from_fn(|i| {
        let word = bytes.get(at + 8 * i..at + 8 * i + 8);
        let word = word.and_then(|word| word.try_into().ok());
        u64::from_le_bytes(word.expect("the table is in the image"))
    });
    Image {
        bytes,
        entry: elf.entry(),
        entries,
        vdso: vdso.address(),
        vdso_len: vdso.size(),
    }
}
