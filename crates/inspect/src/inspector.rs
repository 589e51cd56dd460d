//! A stopped process with its symbols.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use protocol::id::Addr;

use crate::dwarf::blocks::Function;
use crate::dwarf::info::DebugInfo;
use crate::dwarf::lines::{LineSpan, SourceFile};
use crate::dwarf::unit::Unit;
use crate::elf::symbols::Symbol;
use crate::module::{Library, Module};
use crate::target::{Content, Mapping, Process, read_exact};
use crate::tls::LinkMapEntry;

/// A module at the place where the process has it.
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    /// The module.
    pub module: &'static Module,
    /// What to add to a link-time address to get an address in the process.
    pub bias: u64,
    /// First address.
    pub start: Addr,
    /// Address behind the last.
    pub end: Addr,
}

impl Loaded {
    /// The link-time address of an address in the process.
    pub fn to_link(&self, address: Addr) -> u64 {
        address.linked(self.bias)
    }

    /// The address in the process of a link-time address.
    pub fn to_process(&self, linked: u64) -> Addr {
        Addr::of_linked(linked, self.bias)
    }

    fn covers(&self, address: Addr) -> bool {
        self.start <= address && address < self.end
    }
}

/// A place in the source, and the code around an address that was made from
/// it.
#[derive(Debug, Clone)]
pub struct SourceLine {
    /// The file.
    pub file: SourceFile,
    /// The line.
    pub line: u32,
    /// First address of the code, in the process.
    pub start: Addr,
    /// Address behind it.
    pub end: Addr,
    /// Whether the code begins a statement.
    pub is_stmt: bool,
}

/// Debug information around an address.
pub(crate) struct CodeContext {
    pub loaded: Loaded,
    pub info: &'static DebugInfo,
    pub unit: &'static Unit,
    pub function: Option<&'static Function>,
}

/// What a process has mapped, and the modules in it. It takes longer to learn
/// than most questions take to answer, and seldom changes.
#[derive(Debug, Default)]
pub struct Layout {
    modules: Vec<Loaded>,
    mappings: Vec<Mapping>,
}

/// A stopped process with its symbols: where every question starts.
pub struct Inspector<'p> {
    /// The process.
    pub process: &'p dyn Process,
    /// The files.
    pub library: &'p Library,
    layout: Arc<Layout>,
    pub(crate) link_map: RefCell<Option<HashMap<u64, LinkMapEntry>>>,
}

/// A file in memory is at most so long; the vdso is two pages.
const MEMORY_IMAGE_LIMIT: u64 = 1 << 20;

const PAGE: u64 = 0x1000;

impl Layout {
    /// The mappings.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

impl<'p> Inspector<'p> {
    /// Looks at a process. Files are opened, nothing of them is read yet.
    pub fn new(library: &'p Library, process: &'p dyn Process) -> Self {
        let mut inspector = Self {
            process,
            library,
            layout: Arc::default(),
            link_map: RefCell::new(None),
        };
        inspector.refresh();
        inspector
    }

    /// Looks at a process that has the same mapped as when this was learnt.
    pub fn with_layout(
        library: &'p Library,
        process: &'p dyn Process,
        layout: Arc<Layout>,
    ) -> Self {
        Self {
            process,
            library,
            layout,
            link_map: RefCell::new(None),
        }
    }

    /// What is mapped, to be used again.
    pub fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout)
    }

    /// Learns the mappings again, after the process has moved.
    pub fn refresh(&mut self) {
        let mappings = self.process.mappings();
        let mut modules: Vec<Loaded> = Vec::new();
        self.link_map.replace(None);
        for mapping in &mappings {
            // Code is what makes a mapped file a module.
            if !mapping.executable || modules.iter().any(|m| m.covers(mapping.start)) {
                continue;
            }
            if matches!(mapping.content, Content::Memory) && !mapping.name.starts_with('[') {
                continue;
            }
            let memory = || {
                let size = mapping.end.since(mapping.start).min(MEMORY_IMAGE_LIMIT);
                let mut bytes = vec![0; usize::try_from(size).ok()?];
                read_exact(self.process, mapping.start, &mut bytes).ok()?;
                bytes.starts_with(b"\x7fELF").then_some(bytes)
            };
            let Ok(module) = self.library.module(&mapping.name, &mapping.content, memory) else {
                continue;
            };
            if let Some(loaded) = place(module, mapping) {
                modules.push(loaded);
            }
        }
        self.layout = Arc::new(Layout { modules, mappings });
    }

    /// The modules in order of address.
    pub fn modules(&self) -> &[Loaded] {
        &self.layout.modules
    }

    /// The mappings.
    pub fn mappings(&self) -> &[Mapping] {
        &self.layout.mappings
    }

    /// The module of an address.
    pub fn module_at(&self, address: Addr) -> Option<Loaded> {
        self.modules().iter().copied().find(|m| m.covers(address))
    }

    /// The program itself: the first module that has an entry point and is no
    /// library of the loader's.
    pub fn main_module(&self) -> Option<Loaded> {
        self.modules()
            .iter()
            .copied()
            .find(|m| {
                m.module
                    .image
                    .segments
                    .iter()
                    .any(|s| s.kind == object::elf::PT_INTERP)
                    && !m.module.name.contains(".so")
            })
            .or_else(|| self.modules().first().copied())
    }

    pub(crate) fn code_at(&self, address: Addr) -> Option<CodeContext> {
        let loaded = self.module_at(address)?;
        let info = loaded.module.info()?;
        let at = loaded.to_link(address);
        let units = info.units_at(at);
        let with = units
            .iter()
            .find_map(|unit| unit.function_at(info, at).map(|f| (*unit, Some(f))));
        let (unit, function) = match with {
            Some(found) => found,
            None => (*units.first()?, None),
        };
        Some(CodeContext {
            loaded,
            info,
            unit,
            function,
        })
    }

    /// The line that the code at an address was made from.
    pub fn line_at(&self, address: Addr) -> Option<SourceLine> {
        let place = self.code_at(address)?;
        let table = place.unit.lines(place.info);
        let span = table.at(place.loaded.to_link(address))?;
        self.source_line(&place, &span)
    }

    fn source_line(&self, place: &CodeContext, span: &LineSpan) -> Option<SourceLine> {
        let table = place.unit.lines(place.info);
        Some(SourceLine {
            file: table.files.get(span.file)?.clone(),
            line: span.line,
            start: place.loaded.to_process(span.start),
            end: place.loaded.to_process(span.end),
            is_stmt: span.is_stmt,
        })
    }

    /// The symbol that an address belongs to.
    pub fn symbol_at(&self, address: Addr) -> Option<(&'static Symbol, Loaded)> {
        let loaded = self.module_at(address)?;
        let symbol = loaded.module.symbols().at(loaded.to_link(address))?;
        Some((symbol, loaded))
    }

    /// The function that the code at an address belongs to, and where it
    /// begins: from debug information or from symbols.
    pub fn function_name(&self, address: Addr) -> Option<(String, Addr)> {
        if let Some(place) = self.code_at(address)
            && let Some(function) = place.function
            && !function.name.is_empty()
        {
            let entry = place.loaded.to_process(function.entry);
            return Some((function.name.clone(), entry));
        }
        let loaded = self.module_at(address)?;
        let at = loaded.to_link(address);
        // A symbol says nothing about other sections than its own.
        let section = loaded.module.image.section_at(at);
        let symbol = loaded
            .module
            .symbols()
            .at_code(at)
            .filter(|s| section.as_ref().is_none_or(|own| own.contains(s.address)))?;
        Some((symbol.demangled(), loaded.to_process(symbol.address)))
    }

    /// The name for an address as gdb shows it in `<...>`: `main+4`.
    pub fn symbolize(&self, address: Addr) -> Option<String> {
        let loaded = self.module_at(address)?;
        let at = loaded.to_link(address);
        // A symbol says nothing about other sections than its own.
        let section = loaded.module.image.section_at(at)?;
        let symbol = loaded
            .module
            .symbols()
            .at(at)
            .filter(|s| section.contains(s.address))
            // Data without a size is a mark, not a thing.
            .filter(|s| s.code || s.size != 0);
        let function = self.code_at(address).and_then(|p| p.function);
        let (name, start) = match (function, symbol) {
            // The function, unless only the symbol begins just here.
            (Some(f), Some(s)) if s.address == at && f.entry != at && s.code => {
                (s.demangled(), s.address)
            }
            (Some(f), _) => (f.symbol_name(), f.entry),
            (None, Some(s)) => (s.demangled(), s.address),
            (None, None) => return None,
        };
        let offset = at.wrapping_sub(start);
        Some(if offset == 0 {
            // A static variable of a function is numbered for the linker.
            match name.rsplit_once('.') {
                Some((plain, number))
                    if function.is_none() && number.bytes().all(|b| b.is_ascii_digit()) =>
                {
                    plain.to_string()
                }
                _ => name,
            }
        } else {
            format!("{name}+{offset}")
        })
    }
}

/// Where a module must be for one of its mappings to be where it is.
fn place(module: &'static Module, mapping: &Mapping) -> Option<Loaded> {
    let segments = || {
        module
            .image
            .segments
            .iter()
            .filter(|s| s.kind == object::elf::PT_LOAD)
    };
    let segment = segments().find(|s| {
        let start = s.offset & !(PAGE - 1);
        let end = s.offset.saturating_add(s.file_size);
        s.flags & object::elf::PF_X != 0 && start <= mapping.offset && mapping.offset < end
    })?;
    let link = segment
        .address
        .wrapping_add(mapping.offset)
        .wrapping_sub(segment.offset);
    let bias = mapping.start.bias(link);
    let first = segments().map(|s| s.address).min()? & !(PAGE - 1);
    let last = segments()
        .map(|s| s.address.saturating_add(s.memory_size))
        .max()?;
    Some(Loaded {
        module,
        bias,
        start: Addr::of_linked(first, bias),
        end: Addr::of_linked(last, bias).max(mapping.end),
    })
}
