//! One unit of debug information, parsed in steps.

use std::sync::OnceLock;

use gimli::{AttributeValue, UnitHeader, constants as c};

use super::blocks::Function;
use super::info::DebugInfo;
use super::lines::LineTable;
use super::scopes::Skeleton;
use super::{Language, Slice};

/// A unit: the header is known, the rest is read when it is needed.
pub struct Unit {
    /// The header.
    pub header: UnitHeader<Slice>,
    /// Its place in [`DebugInfo::units`].
    pub index: u32,
    parsed: OnceLock<Option<gimli::Unit<Slice>>>,
    root: OnceLock<Root>,
    skeleton: OnceLock<Skeleton>,
    lines: OnceLock<LineTable>,
}

#[derive(Debug, Default)]
struct Root {
    language: Option<Language>,
    producer: &'static str,
    partial: bool,
}

impl Unit {
    pub(crate) fn new(header: UnitHeader<Slice>, index: u32) -> Self {
        Self {
            header,
            index,
            parsed: OnceLock::new(),
            root: OnceLock::new(),
            skeleton: OnceLock::new(),
            lines: OnceLock::new(),
        }
    }

    /// Where the unit is in `.debug_info`.
    pub fn info_offset(&self) -> Option<usize> {
        self.header.debug_info_offset().map(|o| o.0)
    }

    /// What to add to an offset in the unit to get a number that is unique in
    /// the file.
    pub fn key(&self) -> usize {
        match self.header.debug_types_offset() {
            // Far above any offset of `.debug_info`.
            Some(offset) => offset.0 + (1 << 48),
            None => self.info_offset().unwrap_or(0),
        }
    }

    /// The unit with its abbreviations.
    pub fn parsed(&self, info: &'static DebugInfo) -> Option<&gimli::Unit<Slice>> {
        self.parsed
            .get_or_init(|| info.dwarf.unit(self.header).ok())
            .as_ref()
    }

    fn root(&self, info: &'static DebugInfo) -> &Root {
        self.root.get_or_init(|| {
            let Some(parsed) = self.parsed(info) else {
                return Root::default();
            };
            let Ok(entry) = parsed.entry(self.header.root_offset()) else {
                return Root::default();
            };
            let language = match entry.attr_value(c::DW_AT_language) {
                Some(AttributeValue::Language(language)) => Some(Language::from_dwarf(language)),
                _ => None,
            };
            let producer = entry
                .attr_value(c::DW_AT_producer)
                .and_then(|value| self.string(info, value))
                .unwrap_or("");
            Root {
                language,
                producer,
                partial: entry.tag() == c::DW_TAG_partial_unit,
            }
        })
    }

    /// The language it was written in.
    pub fn language(&self, info: &'static DebugInfo) -> Language {
        self.root(info).language.unwrap_or(Language::C)
    }

    /// Whether it is a part that others import.
    pub fn is_partial(&self, info: &'static DebugInfo) -> bool {
        self.root(info).partial
    }

    /// What compiled it.
    pub fn producer(&self, info: &'static DebugInfo) -> &'static str {
        self.root(info).producer
    }

    /// The string that an attribute is.
    pub fn string(
        &self,
        info: &'static DebugInfo,
        value: AttributeValue<Slice>,
    ) -> Option<&'static str> {
        let bytes = match value {
            AttributeValue::String(bytes) => bytes,
            AttributeValue::DebugStrRef(offset) => info.dwarf.string(offset).ok()?,
            AttributeValue::DebugLineStrRef(offset) => info.dwarf.line_string(offset).ok()?,
            AttributeValue::DebugStrRefSup(offset) => info.dwarf.sup_string(offset).ok()?,
            value => info.dwarf.attr_string(self.parsed(info)?, value).ok()?,
        };
        // Names that are no UTF-8 do not occur outside of damage.
        std::str::from_utf8(bytes.slice()).ok()
    }

    /// What is in it: functions and scopes.
    pub fn skeleton(&'static self, info: &'static DebugInfo) -> &'static Skeleton {
        self.skeleton.get_or_init(|| Skeleton::read(info, self))
    }

    /// The function whose code includes `address`.
    pub fn function_at(
        &'static self,
        info: &'static DebugInfo,
        address: u64,
    ) -> Option<&'static Function> {
        self.skeleton(info).function_at(info, self, address)
    }

    /// The line table.
    pub fn lines(&'static self, info: &'static DebugInfo) -> &'static LineTable {
        self.lines.get_or_init(|| LineTable::read(info, self))
    }
}
