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

mod elf;
mod judge;
mod room;
mod search;
mod unwind;

use std::fs::File;
use std::io;

use protocol::instruction::Site;

use elf::Elf;
use judge::{Functions, Verdict};
use search::search;

/// What a file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// By offset.
    pub confirmed: Vec<Site>,
    /// Offsets of bytes that may be such an instruction, or not.
    pub doubtful: Vec<u64>,
}

/// Which rules finds are judged by. Raised when they change, so that no list is used
/// that was made by others.
pub const RULES: u64 = 3;

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
                    place: find.offset - form.opcode_at(),
                    form,
                    neighbours: None,
                }),
                Verdict::PartOfAnother => {}
                Verdict::Unknown => sites.doubtful.push(find.offset),
            }
        }
    }
    sites.confirmed.sort_unstable();
    sites.confirmed.dedup();
    room::find(file, &mut sites.confirmed);
    Ok(sites)
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
    use protocol::instruction::{Form, Instruction};

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
                    place: inst.ip(),
                    form: Form { what, len },
                    neighbours: None,
                });
            }
        }
        sites
    }

    /// Compares; returns how many there are.
    fn agree(path: &str) -> usize {
        let sites = find(&File::open(path).unwrap()).unwrap();
        let confirmed: BTreeSet<Site> = sites
            .confirmed
            .iter()
            .map(|site| Site {
                neighbours: None,
                ..*site
            })
            .collect();
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
                    .contains(&(site.place + site.form.opcode_at()))
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

    /// What moves with an instruction that becomes a jump at once is whole instructions, and
    /// nobody else's.
    #[test]
    fn most_of_the_loader_becomes_jumps() {
        let path = "/lib64/ld-linux-x86-64.so.2";
        let sites = find(&File::open(path).unwrap()).unwrap().confirmed;
        let data = std::fs::read(path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        let mut starts = BTreeSet::new();
        for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
            let (offset, _) = section.file_range().unwrap();
            let bytes = section.data().unwrap();
            for inst in Decoder::with_ip(64, bytes, offset, DecoderOptions::NONE) {
                starts.insert(inst.ip());
            }
        }
        let mut last = 0;
        let moved = sites
            .iter()
            .filter_map(|site| Some((site, site.neighbours?)));
        for (site, neighbours) in moved.clone() {
            let from = site.place - neighbours.before() as u64;
            let to = site.place + u64::from(site.form.len) + neighbours.after() as u64;
            assert!(to - from >= patch::JUMP_LEN as u64);
            assert!(starts.contains(&from) && starts.contains(&to), "{site:x?}");
            assert!(from >= last, "{site:x?} overlaps the one before it");
            last = to;
        }
        let plain =
            |site: &&Site| matches!(site.form.what, Instruction::Cpuid | Instruction::Counter);
        let (few, all) = (moved.count(), sites.iter().filter(plain).count());
        println!("{few} of {all}");
        assert!(all > 5 && few * 4 >= all * 3, "{few} of {all}");
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

    /// As large programs are that were built by Clang: few of their functions are in
    /// a table.
    #[test]
    fn a_disassembler_finds_the_same_where_few_functions_are_known() {
        const SOURCE: &str = "
            .text
            .globl known
            .type known, @function
            known: .cfi_startproc
                ret
            .cfi_endproc
            .size known, .-known
            .macro around what:vararg
                .rept 3000
                push %rbp
                mov %rsp, %rbp
                xor %eax, %eax
                pop %rbp
                ret
                .endr
                \\what
            .endm
            around xchg %rsi, %rbx; cpuid; xchg %rsi, %rbx
            around rdtsc; mov %rax, %r13; mov %rdx, %r12; xorps %xmm0, %xmm0
            around lfence; rdtsc; xor %eax, known(%rip)
            around rdrand %eax; jae known
            ret
        ";
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("code.s"), dir.path().join("code.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-nostdlib", "-s", "-Wl,-Bsymbolic", "-o"]);
        assert!(cc.arg(&library).arg(&source).status().unwrap().success());
        assert_eq!(agree_on_all(library.to_str().unwrap()), 4);
    }

    /// The first process of a recording that maps a file waits for this; the loader and libc
    /// are those that every one maps. It takes less than a look at each byte of them, one after
    /// the other (about 1 ms, where that takes 2): both are measured here, on a machine that may
    /// be slow for a while.
    #[test]
    #[cfg(not(debug_assertions))]
    fn a_start_is_not_held_up() {
        let dirs = ["/lib/x86_64-linux-gnu", "/lib64"];
        let path = |name: &str| {
            let paths = dirs.iter().map(|dir| format!("{dir}/{name}"));
            paths
                .into_iter()
                .find(|path| File::open(path).is_ok())
                .unwrap()
        };
        let paths = [path("ld-linux-x86-64.so.2"), path("libc.so.6")];
        let files = paths.each_ref().map(|path| File::open(path).unwrap());
        let bytes = paths.each_ref().map(|path| std::fs::read(path).unwrap());
        let take = |work: &dyn Fn()| {
            let begun = std::time::Instant::now();
            work();
            begun.elapsed()
        };
        let look = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let rounds = (0..200).map(|_| {
            let found = take(&|| files.iter().for_each(|file| drop(find(file).unwrap())));
            let looked = take(&|| {
                std::hint::black_box(bytes.iter().flatten().fold(0, look));
            });
            (found, looked)
        });
        let (found, looked): (Vec<_>, Vec<_>) = rounds.unzip();
        let (found, looked) = (found.iter().min(), looked.iter().min());
        assert!(
            found < looked,
            "{found:?}, and a look at each byte {looked:?}"
        );
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
