//! The program's code as the translator reads it: without what was patched into
//! it, and ending where the thread is to stop.

use translate::Source;

use crate::interruption_search::{Code, PAGES};
use crate::patcher;

/// The program's code, but for addresses where it is to stop.
pub(super) struct Guarded<'a> {
    pub(super) code: Code<'a>,
    pub(super) refused: &'a [u64],
    /// This one may be passed nevertheless.
    pub(super) passes: u64,
    /// And this one not.
    pub(super) also: u64,
    /// Pages that were asked about: the address, + 1 if something was patched
    /// there.
    pub(super) patched: &'a mut [u64; PAGES],
}

impl Guarded<'_> {
    /// Whether something was patched on the page of an address.
    fn is_patched(&mut self, address: u64) -> bool {
        let page = address & !4095;
        let place = &mut self.patched[(page >> 12) as usize % PAGES];
        if *place & !1 != page {
            *place = page | u64::from(patcher::is_on_page(page));
        }
        *place & 1 != 0
    }
}

impl Source for Guarded<'_> {
    fn fetch(&mut self, address: u64, into: &mut [u8; 15]) -> usize {
        let is_refused = self.refused.contains(&address) || address == self.also && address != 0;
        if is_refused && address != self.passes {
            return 0;
        }
        let len = self.code.fetch(address, into);
        let last = address + len as u64;
        if len != 0 && (self.is_patched(address) || self.is_patched(last)) {
            patcher::show_original(address, &mut into[..len]);
        }
        len
    }

    fn changing(&mut self, address: u64) -> Option<u64> {
        self.code.changing(address)
    }
}
