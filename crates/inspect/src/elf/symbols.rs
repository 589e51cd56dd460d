//! The symbols of a file: `.symtab`, `.dynsym`, the compressed symbol table of
//! `.gnu_debugdata`, and names for the entries of the procedure linkage table.
//!
//! Which of several symbols an address belongs to follows gdb: the last one at
//! or before it, where a symbol with a size ends where it says, and among
//! those at one address one of the file itself before those of its debug file,
//! and the one whose name comes last by its bytes.

use std::collections::HashMap;
use std::sync::OnceLock;

use object::elf;

use super::demangle::demangle;
use super::image::Image;

/// What a symbol names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    /// Code.
    Function,
    /// Data, or nothing that is said.
    Data,
    /// A thread-local variable; its address is an offset in the module's
    /// block.
    ThreadLocal,
    /// A function whose address is decided by the code at the symbol.
    IndirectFunction,
}

/// A symbol, at its link-time address.
#[derive(Debug, Clone)]
pub struct Symbol {
    /// Link-time address.
    pub address: u64,
    /// Size in bytes; 0 if it is not known.
    pub size: u64,
    /// Name as in the file.
    pub name: &'static str,
    /// What it names.
    pub kind: SymbolKind,
    /// Whether other files can see it.
    pub global: bool,
    /// Whether it lies in a section that is executed.
    pub code: bool,
}

impl Symbol {
    /// The name as the source wrote it.
    pub fn demangled(&self) -> String {
        demangle(self.name).into_owned()
    }
}

/// The symbols of one file and its debug file, by address.
#[derive(Debug, Default)]
pub struct Symbols {
    sorted: Vec<Symbol>,
    by_name: OnceLock<HashMap<&'static str, Vec<u32>>>,
    by_demangled: OnceLock<HashMap<String, Vec<u32>>>,
}

impl Symbols {
    /// Collects the symbols of `image` and its debug file.
    pub fn load(image: &Image, debug: Option<&Image>) -> Self {
        let mut apart = Vec::new();
        if let Some(debug) = debug {
            read_table(debug, ".symtab", &mut apart);
        }
        if let Some(mini) = mini_debug_info(image) {
            read_table(&mini, ".symtab", &mut apart);
        }
        let mut own = Vec::new();
        read_table(image, ".symtab", &mut own);
        read_table(image, ".dynsym", &mut own);
        read_plt(image, &mut own);
        Self {
            sorted: in_order(own, apart),
            ..Self::default()
        }
    }

    /// All symbols in order of address.
    pub fn all(&self) -> &[Symbol] {
        &self.sorted
    }

    /// The symbol that the code at `address` belongs to.
    pub fn at_code(&self, address: u64) -> Option<&Symbol> {
        self.covering(address, true)
    }

    /// The symbol that the byte at `address` belongs to, code or data.
    pub fn at(&self, address: u64) -> Option<&Symbol> {
        self.covering(address, false)
    }

    fn covering(&self, address: u64, code: bool) -> Option<&Symbol> {
        let end = self.sorted.partition_point(|s| s.address <= address);
        let mut sizeless: Option<&Symbol> = None;
        // Symbols overlap rarely and little; a bound keeps a table of a
        // million labels from making each lookup walk it.
        for symbol in self.sorted.get(..end)?.iter().rev().take(4096) {
            if symbol.kind == SymbolKind::ThreadLocal || (code && !symbol.code) {
                continue;
            }
            if symbol.size == 0 {
                sizeless.get_or_insert(symbol);
                continue;
            }
            if address - symbol.address < symbol.size {
                return Some(symbol);
            }
            return sizeless;
        }
        sizeless
    }

    /// The first symbol behind `address`.
    pub fn after(&self, address: u64) -> Option<&Symbol> {
        let at = self.sorted.partition_point(|s| s.address <= address);
        self.sorted
            .get(at..)?
            .iter()
            .find(|s| s.kind != SymbolKind::ThreadLocal)
    }

    /// The symbols of this name, as it stands in the file.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Symbol> {
        let index = self.by_name.get_or_init(|| {
            let mut index: HashMap<&'static str, Vec<u32>> = HashMap::new();
            for (at, symbol) in self.sorted.iter().enumerate() {
                index.entry(symbol.name).or_default().push(at as u32);
            }
            index
        });
        self.pick(index.get(name))
    }

    /// The functions of this name as the source wrote it, without parameters.
    pub fn demangled(&self, name: &str) -> impl Iterator<Item = &Symbol> {
        self.pick(self.demangled_index().get(name))
    }

    /// All names as the source wrote them, functions only.
    pub fn demangled_names(&self) -> impl Iterator<Item = &str> {
        self.demangled_index().keys().map(String::as_str)
    }

    fn demangled_index(&self) -> &HashMap<String, Vec<u32>> {
        self.by_demangled.get_or_init(|| {
            let mut index: HashMap<String, Vec<u32>> = HashMap::new();
            for (at, symbol) in self.sorted.iter().enumerate() {
                if symbol.kind == SymbolKind::Function {
                    let name = demangle(symbol.name);
                    let name = without_parameters(&name).to_string();
                    index.entry(name).or_default().push(at as u32);
                }
            }
            index
        })
    }

    fn pick<'a>(&'a self, which: Option<&'a Vec<u32>>) -> impl Iterator<Item = &'a Symbol> {
        which
            .into_iter()
            .flatten()
            .filter_map(|&at| self.sorted.get(at as usize))
    }
}

/// `ns::f<int>(char)` without `(char)`.
pub fn without_parameters(name: &str) -> &str {
    let mut depth = 0i32;
    for (at, c) in name.char_indices() {
        match c {
            '<' | '[' => depth += 1,
            '>' | ']' => depth -= 1,
            '(' if depth == 0 && at > 0 => {
                let rest = name.get(at..).unwrap_or("");
                if rest.starts_with("(anonymous namespace)") || name.ends_with("operator") {
                    continue;
                }
                return name.get(..at).unwrap_or(name);
            }
            _ => {}
        }
    }
    name
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

fn text_at(strings: &'static [u8], at: usize) -> Option<&'static str> {
    let rest = strings.get(at..)?;
    let end = rest.iter().position(|&b| b == 0)?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

const SYMBOL_SIZE: usize = 24;

/// Symbols by address; those at one address so that the one that counts comes last.
fn in_order(own: Vec<Symbol>, apart: Vec<Symbol>) -> Vec<Symbol> {
    // The file's own first, so that they are kept of those that are in both.
    let own = own.into_iter().map(|symbol| (true, symbol));
    let apart = apart.into_iter().map(|symbol| (false, symbol));
    let mut found: Vec<(bool, Symbol)> = own.chain(apart).collect();
    found.sort_by_key(|(_, symbol)| (symbol.address, symbol.name));
    found.dedup_by(|(_, a), (_, b)| a.address == b.address && a.name == b.name && a.kind == b.kind);
    found.sort_by_key(|(is_own, symbol)| (symbol.address, *is_own));
    found.into_iter().map(|(_, symbol)| symbol).collect()
}

fn read_table(image: &Image, table: &str, found: &mut Vec<Symbol>) {
    let Some(section) = image.find(table) else {
        return;
    };
    let Some(linked) = image.sections.get(section.link as usize) else {
        return;
    };
    let strings = image.section_bytes(linked);
    for entry in image.section_bytes(section).chunks_exact(SYMBOL_SIZE) {
        let (Some(name_at), Some(&info), Some(address), Some(size)) = (
            u32_at(entry, 0),
            entry.get(4),
            u64_at(entry, 8),
            u64_at(entry, 16),
        ) else {
            continue;
        };
        let shndx = entry
            .get(6..8)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u16::from_le_bytes);
        if shndx == elf::SHN_UNDEF || shndx == elf::SHN_ABS {
            continue;
        }
        let kind = match info & 0xf {
            elf::STT_FUNC => SymbolKind::Function,
            elf::STT_GNU_IFUNC => SymbolKind::IndirectFunction,
            elf::STT_TLS => SymbolKind::ThreadLocal,
            elf::STT_NOTYPE | elf::STT_OBJECT => SymbolKind::Data,
            _ => continue,
        };
        let Some(name) = text_at(strings, name_at as usize).filter(|n| !n.is_empty()) else {
            continue;
        };
        let code = kind == SymbolKind::Function
            || kind == SymbolKind::IndirectFunction
            || image
                .sections
                .get(usize::from(shndx))
                .is_some_and(|s| s.flags & u64::from(elf::SHF_EXECINSTR) != 0);
        let kind = if kind == SymbolKind::Data && code {
            SymbolKind::Function
        } else {
            kind
        };
        let symbol = Symbol {
            address,
            size,
            name,
            kind,
            global: info >> 4 != elf::STB_LOCAL,
            code,
        };
        found.push(symbol);
    }
}

/// No symbol table of a real program is longer; a bomb is.
const MINI_LIMIT: usize = 256 << 20;

struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MINI_LIMIT {
            return Err(std::io::Error::other("too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn mini_debug_info(image: &Image) -> Option<Image> {
    let mut packed = image.bytes(".gnu_debugdata");
    if packed.is_empty() {
        return None;
    }
    let mut out = Bounded(Vec::new());
    lzma_rs::xz_decompress(&mut packed, &mut out).ok()?;
    Image::from_bytes(&image.name, out.0).ok()
}

const RELA_SIZE: usize = 24;

/// gdb's name for the slot of a function; it writes those of C in its own way.
fn slot_name(name: &str) -> String {
    match demangle(name) {
        std::borrow::Cow::Owned(name) => format!("{name}@got.plt"),
        std::borrow::Cow::Borrowed(name) if name.starts_with('_') => format!("{name}@got.plt"),
        std::borrow::Cow::Borrowed(name) => format!("{name}@got[plt]"),
    }
}

/// Names the stubs that calls to other files go through `NAME@plt`.
fn read_plt(image: &Image, found: &mut Vec<Symbol>) {
    let Some(dynsym) = image.find(".dynsym") else {
        return;
    };
    let Some(linked) = image.sections.get(dynsym.link as usize) else {
        return;
    };
    let (symbols, strings) = (image.section_bytes(dynsym), image.section_bytes(linked));
    let mut slots: HashMap<u64, String> = HashMap::new();
    for entry in image.bytes(".rela.plt").chunks_exact(RELA_SIZE) {
        let (Some(slot), Some(info)) = (u64_at(entry, 0), u64_at(entry, 8)) else {
            continue;
        };
        let name = u32_at(symbols, ((info >> 32) as usize).saturating_mul(SYMBOL_SIZE))
            .and_then(|at| text_at(strings, at as usize));
        if let Some(name) = name.filter(|n| !n.is_empty()) {
            let symbol = Symbol {
                address: slot,
                size: 8,
                name: Box::leak(slot_name(name).into_boxed_str()),
                kind: SymbolKind::Data,
                global: false,
                code: false,
            };
            found.push(symbol);
        }
    }
    for table in [".rela.plt", ".rela.dyn"] {
        for entry in image.bytes(table).chunks_exact(RELA_SIZE) {
            let (Some(slot), Some(info)) = (u64_at(entry, 0), u64_at(entry, 8)) else {
                continue;
            };
            let symbol = (info >> 32) as usize;
            let name = u32_at(symbols, symbol.saturating_mul(SYMBOL_SIZE))
                .and_then(|at| text_at(strings, at as usize));
            let chosen_at_start = info as u32 == elf::R_X86_64_IRELATIVE;
            match (name.filter(|n| !n.is_empty()), u64_at(entry, 16)) {
                (Some(name), _) => {
                    slots.insert(slot, demangle(name).into_owned());
                }
                // The function of this address says which one is meant.
                (None, Some(chooser)) if chosen_at_start => {
                    slots.insert(slot, format!("*ABS*+{chooser:#x}"));
                }
                _ => {}
            }
        }
    }
    if slots.is_empty() {
        return;
    }
    for section in &image.sections {
        let stride = match section.name.as_str() {
            ".plt" | ".plt.sec" | ".plt.bnd" => 16,
            ".plt.got" => 8,
            _ => continue,
        };
        let code = image.section_bytes(section);
        // With a second table (.plt.sec) the first only leads to the resolver.
        let stride = if section.entry_size == 16 { 16 } else { stride };
        for (at, stub) in code.chunks_exact(stride).enumerate() {
            let address = section.address + (at * stride) as u64;
            // `jmp *slot(%rip)`, perhaps behind an endbr64 and a bnd prefix.
            let Some(jump) = stub.windows(2).position(|w| w == [0xff, 0x25]) else {
                continue;
            };
            let Some(displacement) = u32_at(stub, jump + 2) else {
                continue;
            };
            let slot = address
                .wrapping_add(jump as u64 + 6)
                .wrapping_add_signed(i64::from(displacement as i32));
            if let Some(name) = slots.get(&slot) {
                let symbol = Symbol {
                    address,
                    size: stride as u64,
                    name: Box::leak(format!("{name}@plt").into_boxed_str()),
                    kind: SymbolKind::Function,
                    global: false,
                    code: true,
                };
                found.push(symbol);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Symbol, SymbolKind, Symbols, in_order, without_parameters};

    fn function(address: u64, name: &'static str) -> Symbol {
        Symbol {
            address,
            size: 8,
            name,
            kind: SymbolKind::Function,
            global: true,
            code: true,
        }
    }

    /// As gdb does (`maint print msymbols` shows its order).
    #[test]
    fn of_several_at_one_address_the_last_by_name_counts_and_the_files_own() {
        let own = vec![function(16, "_B"), function(16, "_a"), function(16, "_N")];
        let apart = vec![function(16, "_z"), function(16, "_a"), function(32, "_z")];
        let symbols = Symbols {
            sorted: in_order(own, apart),
            ..Symbols::default()
        };
        assert_eq!(symbols.all().len(), 5);
        assert_eq!(symbols.at_code(20).map(|s| s.name), Some("_a"));
        assert_eq!(symbols.at_code(32).map(|s| s.name), Some("_z"));
    }

    #[test]
    fn parameters_go_and_templates_stay() {
        assert_eq!(without_parameters("a::b<c(int)>(char)"), "a::b<c(int)>");
        assert_eq!(
            without_parameters("(anonymous namespace)::f(int)"),
            "(anonymous namespace)::f"
        );
        assert_eq!(without_parameters("plain"), "plain");
    }
}
