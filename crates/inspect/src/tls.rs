//! Thread-local variables: from a module's block to an address.
//!
//! The dynamic linker numbers the modules that have thread-local storage; the
//! thread's vector (`dtv`) has an address for each number. Where glibc keeps
//! these is told by the symbols that it has for debuggers (`_thread_db_*`).
//! Without a dynamic linker there is one block, just below `fs`.

use std::collections::HashMap;

use protocol::id::Addr;

use crate::error::{Error, Result};
use crate::inspector::{Inspector, Loaded};
use crate::target::{read_pointer, read_string, read_u64};

/// The list of loaded modules is not longer.
const MAX_MODULES: usize = 10_000;

/// Offsets in `struct link_map`, of which the first members are public.
const L_NAME: u64 = 8;
const L_NEXT: u64 = 24;
/// Offset of `r_map` in `struct r_debug`.
const R_MAP: u64 = 8;

/// A module in the dynamic linker's list.
#[derive(Debug, Clone)]
pub(crate) struct LinkMapEntry {
    name: String,
    tls_number: Option<u64>,
}

impl Inspector<'_> {
    /// The address of a thread-local variable.
    pub fn thread_local(&self, module: &Loaded, fs_base: Addr, offset: u64) -> Result<Addr> {
        let segment = module
            .module
            .image
            .segments
            .iter()
            .find(|s| s.kind == object::elf::PT_TLS)
            .ok_or_else(|| Error::other("the module has no thread-local storage"))?;
        let main = self.main_module();
        if main.is_some_and(|m| m.bias == module.bias && m.start == module.start) {
            // The program's own block ends at the thread pointer.
            let align = segment.align.max(1);
            let size = segment.memory_size.next_multiple_of(align);
            // The block keeps the alignment of its address in the file.
            return Ok(fs_base.minus(size).plus(offset));
        }
        let number = self.tls_number(module).ok_or_else(|| {
            Error::other(format!(
                "Cannot find thread-local storage of {}: the dynamic linker's list is not readable",
                module.module.name
            ))
        })?;
        let process = self.process;
        // `dtv` is the second word of the thread's control block; each entry
        // has two words, of which the first is the address.
        let dtv = read_pointer(process, fs_base.plus(8))?;
        let slot = read_pointer(process, dtv.plus(number.wrapping_mul(16)))?;
        if slot == Addr::MAX {
            return Err(Error::other(
                "The thread has not yet allocated storage for this variable.",
            ));
        }
        Ok(slot.plus(offset))
    }

    fn tls_number(&self, module: &Loaded) -> Option<u64> {
        self.link_map_entry(module.bias)?.tls_number
    }

    /// What the dynamic linker calls a module; otherwise its path.
    pub fn module_name(&self, module: &Loaded) -> String {
        self.link_map_entry(module.bias)
            .map(|entry| entry.name)
            .filter(|name| !name.is_empty())
            .or_else(|| self.linker_name().filter(|name| is_same_file(name, module)))
            .unwrap_or_else(|| module.module.name.clone())
    }

    /// What the program calls its dynamic linker, which has no list yet when
    /// it begins.
    fn linker_name(&self) -> Option<String> {
        let program = self.main_module()?;
        let segments = &program.module.image.segments;
        let segment = segments.iter().find(|s| s.kind == object::elf::PT_INTERP)?;
        let place = program.to_process(segment.address);
        let name = read_string(self.process, place, 4096).ok()?;
        Some(String::from_utf8_lossy(&name).into_owned())
    }

    fn link_map_entry(&self, bias: u64) -> Option<LinkMapEntry> {
        if let Some(known) = self.link_map.borrow().as_ref() {
            return known.get(&bias).cloned();
        }
        let entries = self.read_link_map().unwrap_or_default();
        let found = entries.get(&bias).cloned();
        self.link_map.replace(Some(entries));
        found
    }

    /// The dynamic linker's list, by load address.
    fn read_link_map(&self) -> Option<HashMap<u64, LinkMapEntry>> {
        let process = self.process;
        let find = |name: &str| {
            self.modules().iter().find_map(|m| {
                let symbol = m.module.symbols().named(name).next()?;
                Some(m.to_process(symbol.address))
            })
        };
        // { size in bits, count, offset }, each 32 bits
        let number_at = find("_thread_db_link_map_l_tls_modid")
            .and_then(|place| read_u64(process, place.plus(8)).ok())
            .map(|word| word & 0xffff_ffff);
        let mut at = read_pointer(process, find("_r_debug")?.plus(R_MAP)).ok()?;
        let mut entries = HashMap::new();
        for _ in 0..MAX_MODULES {
            if at.is_null() {
                break;
            }
            let bias = read_u64(process, at).ok()?;
            let name = read_pointer(process, at.plus(L_NAME))
                .and_then(|place| read_string(process, place, 4096))
                .unwrap_or_default();
            entries.insert(
                bias,
                LinkMapEntry {
                    name: String::from_utf8_lossy(&name).into_owned(),
                    tls_number: number_at
                        .and_then(|offset| read_u64(process, at.plus(offset)).ok()),
                },
            );
            at = read_pointer(process, at.plus(L_NEXT)).ok()?;
        }
        Some(entries)
    }
}

/// Whether a path ends as a module's does: one of them may lead through links.
fn is_same_file(path: &str, module: &Loaded) -> bool {
    let last = |path: &str| path.rsplit('/').next().map(str::to_string);
    last(path) == last(&module.module.name)
}
