//! A debugging information entry that knows where it is.

use gimli::{AttributeValue, DebuggingInformationEntry, DwAt, DwTag, UnitOffset, constants as c};

use super::info::DebugInfo;
use super::unit::Unit;
use super::{Language, Slice};

/// Where an entry is; cheap to keep.
#[derive(Clone, Copy)]
pub struct Die {
    /// The debug information.
    pub info: &'static DebugInfo,
    /// The unit.
    pub unit: &'static Unit,
    /// The offset in the unit.
    pub offset: UnitOffset,
}

impl std::fmt::Debug for Die {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Die({:#x})", self.global())
    }
}

impl PartialEq for Die {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.info, other.info)
            && std::ptr::eq(self.unit, other.unit)
            && self.offset == other.offset
    }
}
impl Eq for Die {}

impl Die {
    /// Reads the entry.
    pub fn read(self) -> Option<Entry> {
        let parsed = self.unit.parsed(self.info)?;
        let raw = parsed.entry(self.offset).ok()?;
        Some(Entry { die: self, raw })
    }

    /// A number that no other entry of the same debug information has.
    pub fn global(self) -> usize {
        self.unit.key() + self.offset.0
    }

    /// The children.
    pub fn children(self) -> Vec<Entry> {
        let mut found = Vec::new();
        let _ = self.each_child(|child| found.push(child));
        found
    }

    fn each_child(self, mut visit: impl FnMut(Entry)) -> Option<()> {
        let parsed = self.unit.parsed(self.info)?;
        let mut tree = parsed.entries_tree(Some(self.offset)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Ok(Some(child)) = children.next() {
            let raw = child.entry().clone();
            visit(Entry {
                die: Die {
                    offset: raw.offset(),
                    ..self
                },
                raw,
            });
        }
        Some(())
    }

    /// The language of its unit.
    pub fn language(self) -> Language {
        self.unit.language(self.info)
    }
}

/// An entry with its attributes.
#[derive(Clone)]
pub struct Entry {
    /// Where it is.
    pub die: Die,
    /// The attributes.
    pub raw: DebuggingInformationEntry<Slice>,
}

/// How many references in a row are followed: real ones are at most three.
const MAX_CHAIN: usize = 8;

impl Entry {
    /// Its kind.
    pub fn tag(&self) -> DwTag {
        self.raw.tag()
    }

    /// An attribute of its own.
    pub fn value(&self, at: DwAt) -> Option<AttributeValue<Slice>> {
        self.raw.attr_value(at)
    }

    /// Whether it has an attribute.
    pub fn has(&self, at: DwAt) -> bool {
        self.raw.has_attr(at)
    }

    /// A flag of its own.
    pub fn flag(&self, at: DwAt) -> bool {
        matches!(self.value(at), Some(AttributeValue::Flag(true)))
    }

    /// A string of its own.
    pub fn string(&self, at: DwAt) -> Option<&'static str> {
        let value = self.value(at)?;
        self.die.unit.string(self.die.info, value)
    }

    /// An unsigned number of its own.
    pub fn number(&self, at: DwAt) -> Option<u64> {
        match self.value(at)? {
            AttributeValue::FileIndex(index) => Some(index),
            AttributeValue::Sdata(value) => u64::try_from(value).ok(),
            value => value.udata_value(),
        }
    }

    /// A signed number of its own.
    pub fn signed(&self, at: DwAt) -> Option<i64> {
        let value = self.value(at)?;
        value
            .sdata_value()
            .or_else(|| value.udata_value().map(|v| v as i64))
    }

    /// The entry that an attribute refers to.
    pub fn reference(&self, at: DwAt) -> Option<Die> {
        self.resolve(self.value(at)?)
    }

    /// The entry that a value refers to.
    pub fn resolve(&self, value: AttributeValue<Slice>) -> Option<Die> {
        match value {
            AttributeValue::UnitRef(offset) => offset
                .is_in_bounds(&self.die.unit.header)
                .then_some(Die { offset, ..self.die }),
            AttributeValue::DebugInfoRef(offset) => self.die.info.die_at(offset),
            AttributeValue::DebugInfoRefSup(offset) => self.die.info.supplementary?.die_at(offset),
            AttributeValue::DebugTypesRef(signature) => self.die.info.type_unit(signature.0),
            _ => None,
        }
    }

    /// The entry that this one completes: its abstract origin or its
    /// specification.
    pub fn origin(&self) -> Option<Entry> {
        self.reference(c::DW_AT_abstract_origin)
            .or_else(|| self.reference(c::DW_AT_specification))?
            .read()
    }

    /// The first of this entry and those it completes for which `pick` finds
    /// something.
    pub fn inherited<T>(&self, pick: impl Fn(&Entry) -> Option<T>) -> Option<T> {
        if let Some(found) = pick(self) {
            return Some(found);
        }
        let mut at = self.origin()?;
        for _ in 0..MAX_CHAIN {
            if let Some(found) = pick(&at) {
                return Some(found);
            }
            at = at.origin()?;
        }
        None
    }

    /// The name, perhaps from the entry that this one completes.
    pub fn name(&self) -> Option<&'static str> {
        self.inherited(|e| e.string(c::DW_AT_name))
    }

    /// The symbol's name.
    pub fn linkage_name(&self) -> Option<&'static str> {
        self.inherited(|e| {
            e.string(c::DW_AT_linkage_name)
                .or_else(|| e.string(c::DW_AT_MIPS_linkage_name))
        })
    }

    /// The type, perhaps from the entry that this one completes.
    pub fn type_die(&self) -> Option<Die> {
        self.inherited(|e| e.reference(c::DW_AT_type))
    }

    /// Where it was declared: file index (of the unit of the entry that says
    /// so) and line.
    pub fn declared(&self) -> Option<(Die, u64, u64)> {
        self.inherited(|e| {
            Some((
                e.die,
                e.number(c::DW_AT_decl_file)?,
                e.number(c::DW_AT_decl_line)?,
            ))
        })
    }

    /// The code it covers, without what the linker dropped.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let Some(parsed) = self.die.unit.parsed(self.die.info) else {
            return found;
        };
        if let Ok(mut ranges) = self.die.info.dwarf.die_ranges(parsed, &self.raw) {
            while let Ok(Some(range)) = ranges.next() {
                if range.begin != 0 && range.begin < range.end {
                    found.push((range.begin, range.end));
                }
                if found.len() > MAX_RANGES {
                    break;
                }
            }
        }
        found
    }

    /// The address at which it is entered, if it says one.
    pub fn low_pc(&self) -> Option<u64> {
        let parsed = self.die.unit.parsed(self.die.info)?;
        let value = self.value(c::DW_AT_low_pc)?;
        self.die.info.dwarf.attr_address(parsed, value).ok()?
    }

    /// The children.
    pub fn children(&self) -> Vec<Entry> {
        if self.raw.has_children() {
            self.die.children()
        } else {
            Vec::new()
        }
    }
}

/// No block has more pieces.
const MAX_RANGES: usize = 1 << 20;
