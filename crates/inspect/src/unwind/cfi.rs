//! Call frame information: `.eh_frame` and `.debug_frame`.

use std::sync::OnceLock;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, FrameDescriptionEntry, UnwindContext,
    UnwindSection,
};

use crate::dwarf::Slice;
use crate::elf::image::Image;

/// The rules of one file.
#[derive(Debug)]
pub struct Cfi {
    eh: Table<EhFrame<Slice>>,
    debug: Table<DebugFrame<Slice>>,
}

#[derive(Debug)]
struct Table<S: UnwindSection<Slice>> {
    section: S,
    bases: BaseAddresses,
    /// (first address, address behind the last, offset), by address.
    index: OnceLock<Vec<(u64, u64, usize)>>,
}

/// The rules at one address.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How the canonical frame address is found.
    pub cfa: gimli::CfaRule<usize>,
    /// How registers of the caller are found.
    pub registers: Vec<(u16, gimli::RegisterRule<usize>)>,
    /// Whether it is the frame of a signal handler's return.
    pub signal: bool,
    /// Where the function begins.
    pub start: u64,
    /// Which register stands for the return address.
    pub return_register: u16,
    /// How expressions are encoded.
    pub encoding: gimli::Encoding,
    eh: bool,
}

/// More entries than this is damage.
const MAX_ENTRIES: usize = 1 << 24;

impl<S: UnwindSection<Slice>> Table<S>
where
    S::Offset: gimli::UnwindOffset<usize>,
{
    fn index(&self) -> &[(u64, u64, usize)] {
        self.index.get_or_init(|| {
            let mut found = Vec::new();
            let mut entries = self.section.entries(&self.bases);
            while let Ok(Some(entry)) = entries.next() {
                let CieOrFde::Fde(partial) = entry else {
                    continue;
                };
                let Ok(fde) = partial.parse(S::cie_from_offset) else {
                    continue;
                };
                let (start, end) = (fde.initial_address(), fde.end_address());
                if start != 0 && start < end {
                    found.push((start, end, partial.offset()));
                }
                if found.len() > MAX_ENTRIES {
                    break;
                }
            }
            found.sort_unstable();
            found
        })
    }

    fn find(&self, address: u64) -> Option<FrameDescriptionEntry<Slice>> {
        let index = self.index();
        let at = index.partition_point(|&(start, _, _)| start <= address);
        let &(_, end, offset) = index.get(at.checked_sub(1)?)?;
        if address >= end {
            return None;
        }
        self.section
            .fde_from_offset(&self.bases, offset.into(), S::cie_from_offset)
            .ok()
    }

    fn rules(&self, address: u64, eh: bool) -> Option<Rules> {
        let fde = self.find(address)?;
        let mut context = UnwindContext::new();
        let row = fde
            .unwind_info_for_address(&self.section, &self.bases, &mut context, address)
            .ok()?;
        Some(Rules {
            cfa: row.cfa().clone(),
            registers: row
                .registers()
                .map(|(register, rule)| (register.0, rule.clone()))
                .collect(),
            signal: fde.is_signal_trampoline(),
            start: fde.initial_address(),
            return_register: fde.cie().return_address_register().0,
            encoding: fde.cie().encoding(),
            eh,
        })
    }
}

impl Cfi {
    pub(crate) fn load<'a>(image: &'a Image, debug: impl FnOnce() -> Option<&'a Image>) -> Self {
        let address = |name: &str| image.find(name).map_or(0, |s| s.address);
        let bases = BaseAddresses::default()
            .set_eh_frame(address(".eh_frame"))
            .set_eh_frame_hdr(address(".eh_frame_hdr"))
            .set_text(address(".text"))
            .set_got(address(".got"));
        let mut eh = EhFrame::new(image.bytes(".eh_frame"), gimli::LittleEndian);
        eh.set_address_size(8);
        let own = image.bytes(".debug_frame");
        let bytes = if own.is_empty() {
            debug().map_or(&[][..], |image| image.bytes(".debug_frame"))
        } else {
            own
        };
        let mut frame = DebugFrame::new(bytes, gimli::LittleEndian);
        frame.set_address_size(8);
        Self {
            eh: Table {
                section: eh,
                bases: bases.clone(),
                index: OnceLock::new(),
            },
            debug: Table {
                section: frame,
                bases,
                index: OnceLock::new(),
            },
        }
    }

    /// The rules at a link-time address.
    pub fn rules(&self, linked: u64) -> Option<Rules> {
        self.eh
            .rules(linked, true)
            .or_else(|| self.debug.rules(linked, false))
    }

    /// The bytes of an expression of `rules`.
    pub fn expression(
        &self,
        rules: &Rules,
        expression: &gimli::UnwindExpression<usize>,
    ) -> Option<gimli::Expression<Slice>> {
        if rules.eh {
            expression.get(&self.eh.section).ok()
        } else {
            expression.get(&self.debug.section).ok()
        }
    }
}
