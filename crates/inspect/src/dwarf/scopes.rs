//! What one pass over a unit finds out: where its functions are, and what
//! encloses what, which entries themselves do not say.

use std::sync::OnceLock;

use gimli::{DebuggingInformationEntry, UnitOffset, constants as c};

use super::blocks::Function;
use super::die::{Die, Entry};
use super::info::DebugInfo;
use super::unit::Unit;
use crate::elf::demangle::cpp_function;

/// The outline of a unit.
#[derive(Default)]
pub struct Skeleton {
    functions: Vec<Slot>,
    /// Code ranges with the index of their function, by start.
    code: Vec<(u64, u64, u32)>,
    /// (entry, enclosing scope), by entry.
    parents: Vec<(u32, u32)>,
}

struct Slot {
    offset: UnitOffset,
    function: OnceLock<Option<Function>>,
}

/// Entries that enclose named things.
fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        c::DW_TAG_namespace
            | c::DW_TAG_module
            | c::DW_TAG_structure_type
            | c::DW_TAG_class_type
            | c::DW_TAG_union_type
            | c::DW_TAG_interface_type
            | c::DW_TAG_enumeration_type
            | c::DW_TAG_subprogram
            | c::DW_TAG_variant_part
            | c::DW_TAG_variant
    )
}

fn has_name_of_its_own(tag: gimli::DwTag) -> bool {
    is_scope(tag)
        || matches!(
            tag,
            c::DW_TAG_typedef | c::DW_TAG_variable | c::DW_TAG_member
        )
}

impl Skeleton {
    pub(crate) fn read(info: &'static DebugInfo, unit: &'static Unit) -> Self {
        let mut skeleton = Self::default();
        let _ = skeleton.fill(info, unit);
        skeleton.code.sort_unstable();
        skeleton
    }

    fn fill(&mut self, info: &'static DebugInfo, unit: &'static Unit) -> Option<()> {
        let parsed = unit.parsed(info)?;
        let mut entries = parsed.entries_raw(None).ok()?;
        let mut raw = DebuggingInformationEntry::null();
        // Offsets of the scopes we are in, by depth; 0 is the unit.
        let mut scopes: Vec<(isize, u32)> = Vec::new();
        while !entries.is_empty() {
            let depth = entries.next_depth();
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation().ok()? else {
                continue;
            };
            while scopes.last().is_some_and(|&(d, _)| d >= depth) {
                scopes.pop();
            }
            let tag = abbreviation.tag();
            if has_name_of_its_own(tag) {
                let parent = scopes.last().map_or(0, |&(_, offset)| offset);
                self.parents.push((offset.0 as u32, parent));
            }
            if is_scope(tag) && abbreviation.has_children() {
                scopes.push((depth, offset.0 as u32));
            }
            let code = tag == c::DW_TAG_subprogram
                && abbreviation.attributes().iter().any(|a| {
                    matches!(
                        a.name(),
                        c::DW_AT_low_pc | c::DW_AT_ranges | c::DW_AT_high_pc
                    )
                });
            if !code {
                entries.skip_attributes(abbreviation.attributes()).ok()?;
                continue;
            }
            entries
                .read_attributes(abbreviation.attributes(), &mut raw.attrs)
                .ok()?;
            raw.tag = tag;
            raw.offset = offset;
            let entry = Entry {
                die: Die { info, unit, offset },
                raw: raw.clone(),
            };
            let index = self.functions.len() as u32;
            for (start, end) in entry.ranges() {
                self.code.push((start, end, index));
            }
            self.functions.push(Slot {
                offset,
                function: OnceLock::new(),
            });
        }
        Some(())
    }

    /// The ranges of code of its functions.
    pub fn code(&self) -> impl Iterator<Item = (u64, u64)> {
        self.code.iter().map(|&(start, end, _)| (start, end))
    }

    /// The function whose code includes `address`.
    pub fn function_at(
        &'static self,
        info: &'static DebugInfo,
        unit: &'static Unit,
        address: u64,
    ) -> Option<&'static Function> {
        let end = self.code.partition_point(|&(start, _, _)| start <= address);
        // Functions do not overlap but for nested ones, which are few.
        let (_, _, index) = self
            .code
            .get(..end)?
            .iter()
            .rev()
            .take(64)
            .find(|&&(_, end, _)| address < end)?;
        let slot = self.functions.get(*index as usize)?;
        slot.function
            .get_or_init(|| {
                Function::read(Die {
                    info,
                    unit,
                    offset: slot.offset,
                })
            })
            .as_ref()
    }

    /// The scope that begins last before an entry.
    pub fn enclosing(&self, die: Die) -> Option<Die> {
        let at = u32::try_from(die.offset.0).ok()?;
        let end = self.parents.partition_point(|&(entry, _)| entry < at);
        let (scope, _) = self.parents.get(end.checked_sub(1)?)?;
        Some(Die {
            offset: UnitOffset(*scope as usize),
            ..die
        })
    }

    /// The scope that encloses an entry.
    pub fn parent(&self, die: Die) -> Option<Die> {
        let at = u32::try_from(die.offset.0).ok()?;
        let found = self
            .parents
            .binary_search_by_key(&at, |&(entry, _)| entry)
            .ok()?;
        let (_, parent) = self.parents.get(found)?;
        (*parent != 0).then_some(Die {
            offset: UnitOffset(*parent as usize),
            ..die
        })
    }
}

/// Scopes nest less deeply than this.
const MAX_DEPTH: usize = 64;

/// The path of the scopes that enclose an entry, with `::` at its end, or
/// nothing.
pub fn prefix(entry: &Entry) -> String {
    // A definition outside of its class is where its declaration is.
    let mut die = entry.die;
    let mut at = entry.clone();
    for _ in 0..MAX_DEPTH {
        let Some(origin) = at.origin() else { break };
        die = origin.die;
        at = origin;
    }
    let language = die.language();
    if !language.has_paths() {
        return String::new();
    }
    let mut names = Vec::new();
    for _ in 0..MAX_DEPTH {
        let Some(parent) = die.unit.skeleton(die.info).parent(die) else {
            break;
        };
        let Some(scope) = parent.read() else { break };
        match scope.tag() {
            c::DW_TAG_namespace | c::DW_TAG_module => {
                names.push(scope.name().unwrap_or("(anonymous namespace)").to_string());
            }
            c::DW_TAG_structure_type
            | c::DW_TAG_class_type
            | c::DW_TAG_union_type
            | c::DW_TAG_interface_type => names.extend(scope.name().map(str::to_string)),
            c::DW_TAG_enumeration_type if scope.flag(c::DW_AT_enum_class) => {
                names.extend(scope.name().map(str::to_string));
            }
            // Types inside of a function have the path of that function's
            // scope, as gdb has it.
            c::DW_TAG_subprogram => {
                let rest = prefix(&scope);
                names.reverse();
                let inner: String = names.iter().map(|n| format!("{n}::")).collect();
                return rest + &inner;
            }
            _ => {}
        }
        die = parent;
    }
    names.reverse();
    let path: String = names.iter().map(|n| format!("{n}::")).collect();
    if language == super::Language::Cpp {
        canonical(&path)
    } else {
        path
    }
}

/// The full name of an entry: path and name.
pub fn full_name(entry: &Entry) -> Option<String> {
    let name = entry.name()?;
    let language = entry.die.language();
    let name = if language == super::Language::Cpp {
        canonical(name)
    } else {
        name.to_string()
    };
    Some(prefix(entry) + &name)
}

/// The full name of a function. C has no other paths than what a function is
/// renamed to for the linker.
pub fn function_name(entry: &Entry) -> Option<String> {
    if entry.die.language() == super::Language::C
        && let Some(name) = entry.linkage_name()
    {
        return Some(name.to_string());
    }
    if entry.die.language() == super::Language::Cpp
        && let Some(name) = entry.linkage_name().and_then(cpp_function)
    {
        return Some(name);
    }
    full_name(entry)
}

/// Names of C++'s integers as compilers write them, and as people do.
const SPELLINGS: &[(&str, &str)] = &[
    ("long long unsigned int", "unsigned long long"),
    ("long long int", "long long"),
    ("long unsigned int", "unsigned long"),
    ("short unsigned int", "unsigned short"),
    ("long int", "long"),
    ("short int", "short"),
];

/// A C++ name with the integers in template arguments spelled as gdb does.
pub fn canonical(name: &str) -> String {
    if !name.contains('<') {
        return name.to_string();
    }
    let mut text = name.to_string();
    for (from, to) in SPELLINGS {
        if text.contains(from) {
            text = replace_word(&text, from, to);
        }
    }
    text
}

fn replace_word(text: &str, from: &str, to: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let (before, after) = rest.split_at(at);
        let after = after.get(from.len()..).unwrap_or("");
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let whole = !before.ends_with(word) && !after.starts_with(word);
        out.push_str(before);
        out.push_str(if whole { to } else { from });
        rest = after;
    }
    out.push_str(rest);
    out
}
