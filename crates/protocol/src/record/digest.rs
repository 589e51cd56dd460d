//! Digests of what a program sends: the log has them in place of the bytes.

/// A digest of sent data, cheap enough to make of every message: what replay
/// sends is compared with it. Of long data only both ends are looked at.
pub fn digest(data: &[u8]) -> u64 {
    const EDGE: usize = 2048;
    let mut hash = 0x9e37_79b9_7f4a_7c15u64 ^ data.len() as u64;
    if data.len() <= 2 * EDGE {
        mix_all(&mut hash, data);
    } else {
        mix_all(&mut hash, data.get(..EDGE).unwrap_or(&[]));
        mix_all(&mut hash, data.get(data.len() - EDGE..).unwrap_or(&[]));
    }
    hash ^ hash >> 29
}

fn mix_all(hash: &mut u64, data: &[u8]) {
    // Four at a time: each step waits for the one before it, not for those
    // beside it.
    let mut quads = data.chunks_exact(32);
    let mut lanes = [*hash, 1, 2, 3];
    for quad in &mut quads {
        for (lane, word) in lanes.iter_mut().zip(quad.chunks_exact(8)) {
            mix(lane, word_of(word));
        }
    }
    for lane in lanes {
        mix(hash, lane);
    }
    let mut words = quads.remainder().chunks_exact(8);
    for word in &mut words {
        mix(hash, word_of(word));
    }
    let rest = words.remainder();
    mix(
        hash,
        rest.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    );
}

#[inline(always)]
fn mix(hash: &mut u64, word: u64) {
    *hash = (*hash ^ word)
        .wrapping_mul(0xff51_afd7_ed55_8ccd)
        .rotate_left(31);
}

#[inline(always)]
fn word_of(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk::<8>()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
