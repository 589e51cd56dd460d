//! The functions of the kernel's vdso, led to the monitor's: the C library of a
//! process that runs knows where they are.
//!
//! Each begins with a jump then, to a page beside the vdso. There the jump goes on to
//! the monitor, which is too far away for it; and there lie the instructions whose
//! place it took, since the monitor still asks the kernel's function. The page begins
//! with a list, so that all can be put back: a child of a fork has a copy of it.

pub(crate) const PAGE: u64 = 4096;

/// Where the code begins on the page.
pub const CODE_AT: u64 = 0x200;

/// How many words of the page tell of one function.
const WORDS: usize = 6;
/// The most bytes that are kept of one.
const ORIGINAL: usize = 24;

/// One function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Where the jump is.
    pub at: u64,
    /// What was there, whole instructions, and what is there then.
    pub original: Vec<u8>,
    pub new: Vec<u8>,
    /// Where what was there is now.
    pub moved: u64,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detours {
    pub patches: Vec<Patch>,
    /// What the page holds from [`CODE_AT`] on.
    pub code: Vec<u8>,
    /// Where the kernel's `clock_gettime` can still be called.
    pub clock: u64,
}

impl Detours {
    /// The page as it is in memory.
    pub(crate) fn page(&self) -> Vec<u8> {
        let mut words = vec![self.patches.len() as u64];
        for patch in &self.patches {
            let mut original = [0u8; ORIGINAL];
            for (to, from) in original.iter_mut().zip(&patch.original) {
                *to = *from;
            }
            words.extend([patch.at, patch.original.len() as u64, patch.moved]);
            words.extend(
                original
                    .chunks_exact(8)
                    .map(|eight| eight.try_into().map_or(0, u64::from_le_bytes)),
            );
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(CODE_AT as usize, 0);
        bytes.extend(&self.code);
        bytes
    }

    /// Reads the list of a page.
    pub(crate) fn of_page(bytes: &[u8]) -> Detours {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|eight| eight.try_into().map_or(0, u64::from_le_bytes))
            .collect();
        let count = words.first().map_or(0, |count| *count as usize);
        let rest = words.get(1..).unwrap_or_default();
        let patches = rest.chunks_exact(WORDS).take(count);
        let patches = patches.filter_map(|words| {
            let [at, len, moved, original @ ..] = words else {
                return None;
            };
            let original = original.iter().flat_map(|word| word.to_le_bytes());
            Some(Patch {
                at: *at,
                original: original.take(*len as usize).collect(),
                new: Vec::new(),
                moved: *moved,
            })
        });
        Detours {
            patches: patches.collect(),
            ..Detours::default()
        }
    }

    /// Where a thread goes on that is where a jump will be.
    pub(crate) fn moved(&self, rip: u64) -> u64 {
        let inside =
            |patch: &&Patch| patch.at < rip && rip < patch.at + patch.original.len() as u64;
        let patch = self.patches.iter().find(inside);
        patch.map_or(rip, |patch| patch.moved + (rip - patch.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_says_can_be_read_back() {
        let patch = |at: u64| Patch {
            at,
            original: vec![1, 2, 3, 4, 5, 6, 7, 8],
            new: Vec::new(),
            moved: 0x9210 + at,
        };
        let detours = Detours {
            patches: vec![patch(0x100), patch(0x300)],
            code: vec![0xcc; 64],
            clock: 7,
        };
        let read = Detours::of_page(&detours.page());
        assert_eq!(read.patches, detours.patches);
        assert_eq!(read.moved(0x100), 0x100);
        assert_eq!(read.moved(0x103), 0x9313);
    }
}
