//! The debug information of one file: its units, and which unit an address
//! belongs to.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use gimli::{DebugInfoOffset, SectionId, UnitOffset};

use super::Slice;
use super::die::Die;
use super::names::Names;
use super::unit::Unit;
use crate::elf::image::Image;
use crate::types::Type;

/// A type in the cache, by the offset of its DIE.
type Types = HashMap<usize, &'static Type>;

/// The debug information of one file.
pub struct DebugInfo {
    /// The sections.
    pub dwarf: gimli::Dwarf<Slice>,
    /// The units in order of offset.
    pub units: Vec<Unit>,
    /// The file that `dwz` moved common parts to.
    pub supplementary: Option<&'static DebugInfo>,
    type_units: HashMap<u64, (usize, UnitOffset)>,
    ranges: OnceLock<Vec<UnitRange>>,
    names: OnceLock<Names>,
    pub(crate) types: Mutex<Types>,
}

impl std::fmt::Debug for DebugInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DebugInfo({} units)", self.units.len())
    }
}

#[derive(Debug, Clone, Copy)]
struct UnitRange {
    start: u64,
    end: u64,
    /// The greatest end of all ranges up to here, to know when to stop.
    reach: u64,
    unit: u32,
}

/// More units than this are not looked at: no program has them, damage may.
const MAX_UNITS: usize = 4_000_000;

impl DebugInfo {
    /// Reads the sections and the headers of the units. `None` if there is no
    /// debug information.
    pub fn load(
        image: &Image,
        supplementary: Option<&'static DebugInfo>,
    ) -> Option<&'static DebugInfo> {
        let load = |id: SectionId| -> Result<Slice, gimli::Error> {
            let bytes = match id {
                // Not used here, and big.
                SectionId::DebugMacro | SectionId::DebugMacinfo | SectionId::DebugNames => &[],
                _ => image.bytes(id.name()),
            };
            Ok(Slice::new(bytes, gimli::LittleEndian))
        };
        let mut dwarf = gimli::Dwarf::load(load).ok()?;
        if let Some(other) = supplementary {
            dwarf.set_sup(gimli::Dwarf {
                debug_str: other.dwarf.debug_str,
                ..gimli::Dwarf::default()
            });
        }
        let mut units = Vec::new();
        let mut type_units = HashMap::new();
        let mut headers = dwarf.units();
        let mut types = dwarf.type_units();
        let next = || match headers.next() {
            Ok(Some(header)) => Some(header),
            _ => types.next().ok().flatten(),
        };
        for header in std::iter::from_fn(next) {
            if let gimli::UnitType::Type {
                type_signature,
                type_offset,
            } = header.type_()
            {
                type_units.insert(type_signature.0, (units.len(), type_offset));
            }
            units.push(Unit::new(header, units.len() as u32));
            if units.len() > MAX_UNITS {
                return None;
            }
        }
        if units.is_empty() {
            return None;
        }
        Some(Box::leak(Box::new(Self {
            dwarf,
            units,
            supplementary,
            type_units,
            ranges: OnceLock::new(),
            names: OnceLock::new(),
            types: Mutex::default(),
        })))
    }

    /// The units whose code includes `address`, innermost range first.
    pub fn units_at(&'static self, address: u64) -> Vec<&'static Unit> {
        let ranges = self.ranges.get_or_init(|| self.collect_ranges());
        let end = ranges.partition_point(|r| r.start <= address);
        let mut found: Vec<&'static Unit> = Vec::new();
        for range in ranges.get(..end).unwrap_or(&[]).iter().rev() {
            if range.reach <= address {
                break;
            }
            if address < range.end
                && let Some(unit) = self.units.get(range.unit as usize)
                && !found.iter().any(|other| std::ptr::eq(*other, unit))
            {
                found.push(unit);
            }
        }
        found
    }

    /// The unit whose code includes `address`.
    pub fn unit_at(&'static self, address: u64) -> Option<&'static Unit> {
        self.units_at(address).into_iter().next()
    }

    fn collect_ranges(&'static self) -> Vec<UnitRange> {
        let mut ranges = Vec::new();
        let mut covered = vec![false; self.units.len()];
        let mut push = |start: u64, end: u64, unit: usize| {
            // 0 is where linkers leave code they dropped.
            if start != 0 && start < end {
                ranges.push(UnitRange {
                    start,
                    end,
                    reach: 0,
                    unit: unit as u32,
                });
                true
            } else {
                false
            }
        };
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let Some(unit) = self.unit_index(header.debug_info_offset()) else {
                continue;
            };
            let mut entries = header.entries();
            while let Ok(Some(entry)) = entries.next() {
                if push(entry.address(), entry.range().end, unit)
                    && let Some(flag) = covered.get_mut(unit)
                {
                    *flag = true;
                }
            }
        }
        for (index, unit) in self.units.iter().enumerate() {
            if covered.get(index).copied().unwrap_or(false) {
                continue;
            }
            let Some(parsed) = unit.parsed(self) else {
                continue;
            };
            let Ok(mut iter) = self.dwarf.unit_ranges(parsed) else {
                continue;
            };
            let mut any = false;
            while let Ok(Some(range)) = iter.next() {
                any |= push(range.begin, range.end, index);
            }
            if !any {
                for range in unit.skeleton(self).code() {
                    push(range.0, range.1, index);
                }
            }
        }
        ranges.sort_by_key(|r| (r.start, std::cmp::Reverse(r.end)));
        let mut reach = 0;
        for range in &mut ranges {
            reach = range.end.max(reach);
            range.reach = reach;
        }
        ranges
    }

    fn unit_index(&self, offset: DebugInfoOffset) -> Option<usize> {
        let at = self
            .units
            .partition_point(|u| u.info_offset().is_some_and(|o| o <= offset.0));
        at.checked_sub(1)
    }

    /// The DIE at an offset of `.debug_info`.
    pub fn die_at(&'static self, offset: DebugInfoOffset) -> Option<Die> {
        let unit = self.units.get(self.unit_index(offset)?)?;
        let offset = offset.to_unit_offset(&unit.header)?;
        Some(Die {
            info: self,
            unit,
            offset,
        })
    }

    /// The type DIE of a type unit.
    pub fn type_unit(&'static self, signature: u64) -> Option<Die> {
        let (unit, offset) = self.type_units.get(&signature)?;
        Some(Die {
            info: self,
            unit: self.units.get(*unit)?,
            offset: *offset,
        })
    }

    /// The index of names, made at the first call.
    pub fn names(&'static self) -> &'static Names {
        self.names.get_or_init(|| Names::collect(self))
    }
}
