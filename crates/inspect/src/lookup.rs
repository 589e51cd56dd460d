//! From names and lines to addresses, variables and types.

use std::collections::{HashMap, HashSet};

use protocol::id::Addr;

use crate::dwarf::Language;
use crate::dwarf::blocks::Function;
use crate::dwarf::die::Die;
use crate::dwarf::lines::normalized;
use crate::dwarf::names::{NameKind, base};
use crate::dwarf::scopes;
use crate::error::{Error, Result};
use crate::frames::SourceLocation;
use crate::inspector::{Inspector, Loaded};
use crate::target::Registers;
use crate::types::{Kind, Ty};
use crate::unwind::{FrameRegisters, after_prologue};

/// Functions are inlined into each other less deeply.
const MAX_INLINED: usize = 100;

/// A place in the code that a name or line stands for.
#[derive(Debug, Clone)]
pub struct Location {
    /// Where to stop: behind the prologue.
    pub address: Addr,
    /// The function the code belongs to, inlined ones included.
    pub function: Option<String>,
    /// The place in the source.
    pub place: Option<SourceLocation>,
    /// The module.
    pub module: String,
    /// Whether the function is inlined there.
    pub inlined: bool,
    /// The inlined instance that was meant, if it is one. The code there may
    /// be of a function inside of it: see [`crate::frames::Stack::entering`].
    pub instance: Option<Die>,
}

/// The last component of a path.
fn last(path: &str) -> &str {
    // `a::b<c::d>` ends in `b<c::d>`.
    let mut depth = 0usize;
    let mut start = 0;
    let mut previous = ' ';
    for (at, c) in path.char_indices() {
        match c {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && previous == ':' => start = at + 1,
            _ => {}
        }
        previous = c;
    }
    path.get(start..).unwrap_or(path)
}

/// A path without template arguments.
fn without_arguments(path: &str) -> String {
    let mut out = String::new();
    let mut depth = 0usize;
    for c in path.chars() {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// Whether `full` is `wanted`, or ends in it after a `::`; template arguments
/// may be left out.
fn fits(full: &str, wanted: &str) -> bool {
    let ends = |full: &str| {
        full == wanted
            || full
                .strip_suffix(wanted)
                .is_some_and(|rest| rest.ends_with("::"))
    };
    // What is in a namespace without a name is in the one around it.
    let named = full.replace("(anonymous namespace)::", "");
    ends(full)
        || (named != full && ends(&named))
        || (!wanted.contains('<') && ends(&without_arguments(&named)))
}

/// How far two names are apart, up to a limit.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(limit);
            let left = next.last().copied().unwrap_or(limit);
            next.push(
                (diagonal + usize::from(x != *y))
                    .min(above + 1)
                    .min(left + 1),
            );
            diagonal = above;
        }
        if next.iter().min().is_some_and(|m| *m > limit) {
            return limit + 1;
        }
        row = next;
    }
    row.last().copied().unwrap_or(limit)
}

/// A sentence with the nearest of `names`, or nothing.
pub(crate) fn nearest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> String {
    let wanted = last(wanted);
    let limit = (wanted.len() / 3).clamp(1, 3);
    let mut found: Vec<(usize, &str)> = names
        .filter(|n| n.len().abs_diff(wanted.len()) <= limit)
        .map(|n| (distance(wanted, n, limit), n))
        .filter(|(d, _)| *d <= limit)
        .collect();
    found.sort();
    found.dedup();
    let names: Vec<String> = found
        .iter()
        .take(3)
        .map(|(_, n)| format!("\"{n}\""))
        .collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(" Did you mean {}?", names.join(" or ")),
    }
}

impl Inspector<'_> {
    /// The variables outside of functions with this name, `file::name` or a
    /// path; those of the unit of `near` first.
    pub fn globals(&self, name: &str, near: Option<Die>) -> Vec<(Die, Loaded)> {
        let (file, wanted) = match name.split_once("::") {
            Some((file, rest)) if file.contains('.') || file.starts_with('\'') => {
                (Some(file.trim_matches('\'')), rest)
            }
            _ => (None, name),
        };
        let mut found = Vec::new();
        for module in self.modules() {
            let Some(info) = module.module.info() else {
                continue;
            };
            for kind in [NameKind::Variable, NameKind::LocalStatic] {
                for die in info.names().find(info, last(wanted), kind) {
                    let Some(entry) = die.read() else { continue };
                    let full = scopes::full_name(&entry).unwrap_or_default();
                    if !fits(&full, wanted)
                        || (kind == NameKind::LocalStatic
                            && full == wanted
                            && file.is_none()
                            && !wanted.contains("::"))
                    {
                        continue;
                    }
                    let here = die.unit.parsed(info).and_then(|u| u.name);
                    let in_file =
                        file.is_none_or(|f| here.is_some_and(|n| n.to_string_lossy().ends_with(f)));
                    if in_file {
                        found.push((die, *module));
                    }
                }
            }
        }
        found.sort_by_key(|(die, _)| !near.is_some_and(|n| std::ptr::eq(n.unit, die.unit)));
        found
    }

    /// The type of this name.
    pub fn find_type(&self, name: &str, near: Option<Die>) -> Option<Ty> {
        let word = name
            .strip_prefix("struct ")
            .or_else(|| name.strip_prefix("union "))
            .or_else(|| name.strip_prefix("enum "))
            .or_else(|| name.strip_prefix("class "));
        let wanted = word.unwrap_or(name).trim();
        let mut found: Vec<(u8, Ty)> = Vec::new();
        for module in self.modules() {
            let Some(info) = module.module.info() else {
                continue;
            };
            for die in info.names().find(info, last(wanted), NameKind::Type) {
                let ty = Ty::from_die(die);
                let full = ty.name.as_deref().unwrap_or("");
                let typedef = matches!(ty.kind, Kind::Typedef(_) | Kind::Base(_));
                if !fits(full, wanted) || (word.is_some() && typedef) {
                    continue;
                }
                // In C a tag is no name of a type without its word.
                if word.is_none() && ty.language == Language::C && !typedef {
                    found.push((8, ty));
                    continue;
                }
                let mut rank = 4;
                rank -= u8::from(full == wanted) * 2;
                rank -= u8::from(near.is_some_and(|n| std::ptr::eq(n.unit, die.unit)));
                if rank == 1 {
                    return Some(ty);
                }
                found.push((rank, ty));
            }
            if !found.is_empty() {
                break;
            }
        }
        found.sort_by_key(|(rank, _)| *rank);
        found.into_iter().next().map(|(_, ty)| ty)
    }

    /// The constant of an enumeration with this name.
    pub(crate) fn enumerator(&self, name: &str) -> Option<(Ty, i128)> {
        for module in self.modules() {
            let Some(info) = module.module.info() else {
                continue;
            };
            for die in info.names().find(info, last(name), NameKind::Enumerator) {
                let parent = die.unit.skeleton(info).parent(die);
                // Enumerators are not in the table of scopes; their
                // enumeration is the last one that begins before them.
                let parent = parent.or_else(|| die.unit.skeleton(info).enclosing(die))?;
                let ty = Ty::from_die(parent);
                if let Kind::Enum(e) = &ty.kind
                    && let Some((_, value)) = e.constants.iter().find(|(n, _)| *n == last(name))
                {
                    let full = format!("{}::{}", ty.name.as_deref().unwrap_or(""), last(name));
                    let beside = match ty.name.as_deref().and_then(|n| n.rsplit_once("::")) {
                        Some((scope, _)) => format!("{scope}::{}", last(name)),
                        None => last(name).to_string(),
                    };
                    if fits(&full, name) || fits(&beside, name) {
                        return Some((ty.clone(), *value));
                    }
                }
            }
        }
        None
    }

    /// The functions of this name: those with code of their own, and every
    /// place where one is inlined.
    pub fn find_functions(&self, name: &str) -> Result<Vec<Location>> {
        let mut found: Vec<Location> = Vec::new();
        let mut seen = HashSet::new();
        for module in self.modules() {
            if let Some(info) = module.module.info() {
                let mut flows = HashMap::new();
                let mut dies: Vec<Die> = info
                    .names()
                    .find(info, last(name), NameKind::Function)
                    .collect();
                dies.retain(|die| {
                    die.read().is_some_and(|entry| {
                        scopes::full_name(&entry).is_some_and(|full| fits(&full, name))
                            || scopes::function_name(&entry).is_some_and(|full| fits(&full, name))
                    })
                });
                for die in dies {
                    let places = info.names().inlined(info, die).map(|d| (d, true));
                    for (die, inlined) in std::iter::once((die, false)).chain(places) {
                        let Some(entry) = die.read() else { continue };
                        let Some(&(start, _)) = entry.ranges().first() else {
                            continue;
                        };
                        if inlined {
                            for address in self.inlined_bodies(module, die, &mut flows) {
                                if seen.insert(address) {
                                    found.push(self.instance(address, module, die));
                                }
                            }
                            continue;
                        }
                        let start = entry.low_pc().filter(|pc| *pc != 0).unwrap_or(start);
                        let address = self.body_of(module, start);
                        if seen.insert(address) {
                            found.push(self.location(address, module));
                        }
                    }
                }
            }
        }
        if found.is_empty() {
            for module in self.modules() {
                let symbols = module.module.symbols();
                for symbol in symbols.named(name).chain(symbols.demangled(name)) {
                    let stub = symbol.name.ends_with("@plt");
                    let address = module.to_process(symbol.address);
                    if symbol.code && !stub && seen.insert(address) {
                        let address = after_prologue(self.process, address);
                        found.push(self.location(address, module));
                    }
                }
            }
        }
        if found.is_empty() {
            let mut names: Vec<&str> = Vec::new();
            for module in self.modules() {
                if let Some(info) = module.module.info() {
                    names.extend(info.names().all(NameKind::Function));
                }
                names.extend(module.module.symbols().demangled_names().map(base));
            }
            return Err(Error::NoFunction {
                name: name.to_string(),
                hint: nearest(name, names.into_iter()),
            });
        }
        found.sort_by_key(|l| l.address);
        Ok(found)
    }

    fn location(&self, address: Addr, module: &Loaded) -> Location {
        let place = self.line_at(address).map(|l| SourceLocation {
            file: l.file,
            line: l.line,
        });
        Location {
            address,
            function: self.function_name(address).map(|(name, _)| name),
            place,
            module: module.module.name.clone(),
            inlined: false,
            instance: None,
        }
    }

    /// The place of an instance of an inlined function, in its own frame.
    fn instance(&self, address: Addr, module: &Loaded, die: Die) -> Location {
        let mut location = Location {
            inlined: true,
            instance: Some(die),
            ..self.location(address, module)
        };
        let registers = Registers {
            rip: address.0,
            ..Registers::default()
        };
        let here = self.stack_from(FrameRegisters::new(registers), 1 + MAX_INLINED);
        if let Some(frame) = here.entering(&location).frames.into_iter().next() {
            location.function = frame.name;
            location.place = frame.place;
        }
        location
    }

    /// Where a function's own code begins, as gdb decides where to stop in
    /// it. `start` is its link-time address.
    pub fn body_of(&self, module: &Loaded, start: u64) -> Addr {
        let entry = module.to_process(start);
        let Some(place) = self.code_at(entry) else {
            return after_prologue(self.process, entry);
        };
        let lines = place.unit.lines(place.info);
        let Some(function) = place.function.filter(|f| f.entry == start) else {
            return after_prologue(self.process, entry);
        };
        let producer = place.unit.producer(place.info);
        // LLVM marks the end of the prologue by the second line.
        if producer.starts_with("clang")
            && let Some(after) = second_line(lines, function)
        {
            return module.to_process(after);
        }
        // Optimized code of gcc has locations that hold from the start.
        let exact = function.blocks.iter().flat_map(|b| &b.variables).any(|v| {
            v.die.read().is_some_and(|e| {
                matches!(
                    e.value(gimli::constants::DW_AT_location),
                    Some(gimli::AttributeValue::LocationListsRef(_))
                )
            })
        });
        if exact {
            return entry;
        }
        let mut address = after_prologue(self.process, entry);
        if let Some(line) = lines.at(module.to_link(address))
            && line.start != module.to_link(address)
            && function.contains(line.end)
        {
            address = module.to_process(line.end);
        }
        address
    }

    /// The places that a line of a source file has code at; the next line
    /// with code if it has none.
    pub fn find_line(&self, file: &str, line: u32) -> Result<Vec<Location>> {
        let wanted = normalized(file);
        let matches = |path: &str| {
            let path = normalized(path);
            path == wanted
                || path
                    .strip_suffix(&wanted)
                    .is_some_and(|rest| rest.ends_with('/'))
        };
        let mut known = false;
        let mut names: Vec<String> = Vec::new();
        let mut best: Option<u32> = None;
        let mut hits: Vec<(u32, u64, Loaded)> = Vec::new();
        for module in self.modules() {
            let Some(info) = module.module.info() else {
                continue;
            };
            for unit in &info.units {
                if unit.is_partial(info) {
                    continue;
                }
                let table = unit.lines(info);
                for (source, rows) in table.files.iter().zip(&table.rows) {
                    if !matches(&source.path) {
                        names.push(source.name.clone());
                        continue;
                    }
                    known = true;
                    for row in rows.iter().filter(|r| r.is_stmt && r.line >= line) {
                        if best.is_none_or(|b| row.line <= b) {
                            best = Some(row.line);
                            hits.push((row.line, row.address, *module));
                        }
                    }
                }
            }
        }
        let Some(best) = best else {
            if known {
                return Err(Error::NoLine {
                    file: file.to_string(),
                    line: u64::from(line),
                });
            }
            let short: Vec<&str> = names
                .iter()
                .map(|n| n.rsplit('/').next().unwrap_or(n))
                .collect();
            return Err(Error::NoFile {
                name: file.to_string(),
                hint: nearest(file, short.into_iter()),
            });
        };
        hits.retain(|(line, _, _)| *line == best);
        hits.sort_by_key(|(_, address, module)| module.to_process(*address));
        let mut blocks = HashSet::new();
        let mut found = Vec::new();
        for (_, address, module) in hits {
            let process = module.to_process(address);
            let place = self.code_at(process);
            let function = place.as_ref().and_then(|p| p.function);
            // One stop for each block: a line is often in several pieces.
            let block = function.map(|f| (f.die.global(), f.block_at(address)));
            if !blocks.insert((block, block.is_none().then_some(process))) {
                continue;
            }
            let process = match function {
                Some(f) if f.entry == address => self.body_of(&module, address),
                _ => process,
            };
            found.push(self.location(process, &module));
        }
        found.dedup_by_key(|l| l.address);
        Ok(found)
    }

    /// What a user names as a place: `function`, `file:line`, `line` (of
    /// `current`), `*address`.
    pub fn resolve(&self, text: &str, current: Option<&SourceLocation>) -> Result<Vec<Location>> {
        let text = text.trim();
        if let Some(address) = text.strip_prefix('*') {
            let digits = address.trim().trim_start_matches("0x");
            let address = u64::from_str_radix(digits, 16)
                .map(Addr)
                .map_err(|_| Error::other(format!("`{address}` is not an address")))?;
            let module = self.module_at(address).ok_or(Error::Memory { address })?;
            return Ok(vec![self.location(address, &module)]);
        }
        if let Ok(line) = text.parse::<u32>() {
            let place = current.ok_or_else(|| {
                Error::other("No symbol table is loaded, or no file is current; say FILE:LINE.")
            })?;
            return self.find_line(&place.file.path, line);
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && let Ok(line) = line.parse::<u32>()
        {
            return self.find_line(file, line);
        }
        self.find_functions(text)
    }
}

/// The address of the second line of a function, as gdb skips prologues by
/// lines.
fn second_line(lines: &crate::dwarf::lines::LineTable, function: &Function) -> Option<u64> {
    let first = lines.at(function.entry)?;
    let rows = lines.rows.get(first.file)?;
    let at = rows.partition_point(|r| r.address < first.start);
    let here = rows
        .get(at..)?
        .iter()
        .take_while(|r| r.address == function.entry && r.line != 0)
        .count();
    if here > 1 {
        return Some(function.entry);
    }
    let end = function
        .ranges
        .iter()
        .find(|(s, e)| *s <= function.entry && function.entry < *e)
        .map(|(_, e)| *e)?;
    let mut current = first;
    if current.end >= end {
        return None;
    }
    while current.end < end {
        let Some(next) = lines.at(current.end) else {
            break;
        };
        let inlined = function.chain(current.end).iter().any(|b| {
            function
                .blocks
                .get(*b)
                .is_some_and(|b| matches!(b.kind, crate::dwarf::blocks::BlockKind::Inlined { .. }))
        });
        if next.line >= current.line || next.file != current.file || inlined {
            break;
        }
        if next.end <= current.end {
            break;
        }
        current = next;
    }
    Some(current.end.min(end))
}

#[cfg(test)]
mod tests {
    use super::{fits, last, nearest};

    #[test]
    fn paths_fit_from_the_end() {
        assert_eq!(last("a::b<c::d>"), "b<c::d>");
        assert!(fits("geometry::Shape::area", "Shape::area"));
        assert!(fits("Stack<int, 8>::push", "Stack::push"));
        assert!(!fits("reshape::area", "shape::area"));
        assert_eq!(
            nearest("vist", ["visit", "main"].into_iter()),
            " Did you mean \"visit\"?"
        );
    }
}
