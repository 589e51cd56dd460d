//! Which functions, variables and types have a name.
//!
//! Made in one pass over all units, on all processors, at the first search by
//! name. Keys are last components without template arguments (`push` for
//! `alloc::vec::{impl#1}::push<u8>`); whether the rest fits is decided by
//! whoever asks, with [`super::scopes::full_name`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use gimli::{DebuggingInformationEntry, UnitOffset, constants as c};

use super::die::{Die, Entry};
use super::info::DebugInfo;
use super::unit::Unit;

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A function, with code or inlined everywhere.
    Function,
    /// A variable outside of functions.
    Variable,
    /// A static variable inside of a function.
    LocalStatic,
    /// A type.
    Type,
    /// A constant of an enumeration.
    Enumerator,
}

#[derive(Debug, Clone, Copy)]
struct Named {
    unit: u32,
    offset: u32,
    kind: NameKind,
}

/// The index of names of one file.
#[derive(Debug, Default)]
pub struct Names {
    named: HashMap<&'static str, Vec<Named>>,
    /// Where each function was inlined, by the entry of its abstract form.
    inlined: HashMap<usize, Vec<(u32, u32)>>,
}

/// The last component of a name, without template arguments.
pub fn base(name: &str) -> &str {
    if name.starts_with("operator") || name.starts_with('{') {
        return name;
    }
    match name.find('<') {
        Some(0) | None => name,
        Some(at) => name.get(..at).unwrap_or(name),
    }
}

#[derive(Default)]
struct Found {
    named: Vec<(&'static str, Named)>,
    inlined: Vec<(usize, (u32, u32))>,
}

impl Names {
    pub(crate) fn collect(info: &'static DebugInfo) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let next = AtomicUsize::new(0);
        let work = || {
            let mut found = Found::default();
            while let Some(unit) = info.units.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _ = scan(info, unit, &mut found);
            }
            found
        };
        let parts: Vec<Found> = if threads > 1 && info.units.len() > 16 {
            std::thread::scope(|scope| {
                // Where no thread can be had, there is less help.
                let help = || std::thread::Builder::new().spawn_scoped(scope, work);
                let helpers: Vec<_> = (1..threads.min(8)).filter_map(|_| help().ok()).collect();
                let own = work();
                let others = helpers.into_iter().filter_map(|helper| helper.join().ok());
                others.chain([own]).collect()
            })
        } else {
            vec![work()]
        };
        let mut names = Self::default();
        for part in parts {
            for (name, place) in part.named {
                names.named.entry(name).or_default().push(place);
            }
            for (origin, place) in part.inlined {
                names.inlined.entry(origin).or_default().push(place);
            }
        }
        // The threads took units in any order.
        for named in names.named.values_mut() {
            named.sort_by_key(|p| (p.unit, p.offset));
        }
        for places in names.inlined.values_mut() {
            places.sort_unstable();
        }
        names
    }

    /// The entries of a kind with this last component.
    pub fn find(
        &self,
        info: &'static DebugInfo,
        name: &str,
        kind: NameKind,
    ) -> impl Iterator<Item = Die> {
        self.named
            .get(base(name))
            .into_iter()
            .flatten()
            .filter(move |place| place.kind == kind)
            .filter_map(move |place| die(info, place.unit, place.offset))
    }

    /// All names that something of this kind has.
    pub fn all(&self, kind: NameKind) -> impl Iterator<Item = &'static str> {
        self.named
            .iter()
            .filter(move |(_, named)| named.iter().any(|p| p.kind == kind))
            .map(|(name, _)| *name)
    }

    /// Where a function was inlined.
    pub fn inlined(&self, info: &'static DebugInfo, origin: Die) -> impl Iterator<Item = Die> {
        self.inlined
            .get(&origin.global())
            .into_iter()
            .flatten()
            .filter_map(move |&(unit, offset)| die(info, unit, offset))
    }
}

fn die(info: &'static DebugInfo, unit: u32, offset: u32) -> Option<Die> {
    Some(Die {
        info,
        unit: info.units.get(unit as usize)?,
        offset: UnitOffset(offset as usize),
    })
}

fn scan(info: &'static DebugInfo, unit: &'static Unit, found: &mut Found) -> Option<()> {
    let parsed = unit.parsed(info)?;
    let mut entries = parsed.entries_raw(None).ok()?;
    let mut entry = Entry {
        die: Die {
            info,
            unit,
            offset: unit.header.root_offset(),
        },
        raw: DebuggingInformationEntry::null(),
    };
    // Depth of the outermost function we are in.
    let mut function: Option<isize> = None;
    while !entries.is_empty() {
        let depth = entries.next_depth();
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation().ok()? else {
            continue;
        };
        if function.is_some_and(|d| depth <= d) {
            function = None;
        }
        let tag = abbreviation.tag();
        let wanted = match tag {
            c::DW_TAG_subprogram | c::DW_TAG_variable | c::DW_TAG_inlined_subroutine => true,
            c::DW_TAG_structure_type
            | c::DW_TAG_class_type
            | c::DW_TAG_union_type
            | c::DW_TAG_enumeration_type
            | c::DW_TAG_typedef
            | c::DW_TAG_base_type
            | c::DW_TAG_unspecified_type
            | c::DW_TAG_enumerator => true,
            // A static member that is defined elsewhere.
            c::DW_TAG_member => abbreviation
                .attributes()
                .iter()
                .any(|a| a.name() == c::DW_AT_external),
            _ => false,
        };
        if !wanted {
            entries.skip_attributes(abbreviation.attributes()).ok()?;
            continue;
        }
        entries
            .read_attributes(abbreviation.attributes(), &mut entry.raw.attrs)
            .ok()?;
        entry.raw.tag = tag;
        entry.raw.offset = offset;
        entry.die.offset = offset;
        let place = (unit.index, u32::try_from(offset.0).ok()?);
        let inside = function.is_some();
        if tag == c::DW_TAG_subprogram && function.is_none() && abbreviation.has_children() {
            function = Some(depth);
        }
        if tag == c::DW_TAG_inlined_subroutine {
            if let Some(origin) = entry.reference(c::DW_AT_abstract_origin) {
                found.inlined.push((origin.global(), place));
            }
            continue;
        }
        if entry.flag(c::DW_AT_declaration) {
            continue;
        }
        let kind = match tag {
            c::DW_TAG_subprogram => {
                let code = entry.has(c::DW_AT_low_pc)
                    || entry.has(c::DW_AT_ranges)
                    || entry.number(c::DW_AT_inline).is_some_and(|i| i != 0)
                    || entry.has(c::DW_AT_inline);
                if !code {
                    continue;
                }
                NameKind::Function
            }
            c::DW_TAG_variable | c::DW_TAG_member => {
                if inside {
                    // Only what lives outside of any frame.
                    let fixed = matches!(
                        entry.value(c::DW_AT_location),
                        Some(gimli::AttributeValue::Exprloc(expression))
                            if matches!(expression.0.slice().first(), Some(0x03 | 0xa1))
                    );
                    if !fixed {
                        continue;
                    }
                    NameKind::LocalStatic
                } else {
                    NameKind::Variable
                }
            }
            c::DW_TAG_enumerator => NameKind::Enumerator,
            _ => NameKind::Type,
        };
        if let Some(name) = entry.name() {
            found.named.push((
                base(name),
                Named {
                    unit: place.0,
                    offset: place.1,
                    kind,
                },
            ));
        }
    }
    Some(())
}
