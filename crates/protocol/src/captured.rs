//! How a captured file is named in a log.
//!
//! A captured file has an id, which is also the name of its copy in the recording. A
//! file that is mapped again after parts of it were changed is not copied again: its
//! copy has only those parts, each at its own offset, and the rest is that of an
//! earlier copy, its *base*. Such a file is named by both. Which parts those are is
//! in a file of their own, whose id is the next one: their number, then offset and
//! length of each, in order, as words of eight bytes.

const ID_BITS: u32 = 32;

/// The most parts that a copy may have: each is a mapping of its own in replay.
pub const PARTS_MAX: usize = 4000;

/// The name of a copy that has only what is not as in `base`.
pub const fn parts_of(copy: u64, base: u64) -> u64 {
    base << ID_BITS | id(copy)
}

/// The copy's own id.
pub const fn id(name: u64) -> u64 {
    name & ((1 << ID_BITS) - 1)
}

/// The copy that has the rest, if this one has only parts.
pub const fn base(name: u64) -> Option<u64> {
    match name >> ID_BITS {
        0 => None,
        base => Some(base),
    }
}

/// The file that says which parts.
pub const fn list(name: u64) -> u64 {
    id(name) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!((id(7), base(7)), (7, None));
        let name = parts_of(9, 7);
        assert_eq!((id(name), base(name), list(name)), (9, Some(7), 10));
    }
}
