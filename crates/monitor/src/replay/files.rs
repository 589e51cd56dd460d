//! Captured files in memory: each mapped from its copy in the recording, never
//! shared, so that the copy stays as it is.

use protocol::captured;
use protocol::replay::FILES_FD;

use crate::sys::{self, nr};
use crate::{confine, mem};

/// Maps a captured file. One of which only parts were copied is that with the
/// rest, and over it the parts.
pub fn map_file(name: u64, start: u64, len: u64, prot: u64, offset: u64) -> bool {
    let Some(base) = captured::base(name) else {
        return map_copy(name, start, len, prot, offset);
    };
    let id = captured::id(name);
    map_copy(base, start, len, prot, offset)
        && each_part(name, |from, to| {
            let (from, to) = (from.max(offset), to.min(offset.saturating_add(len)));
            from >= to || map_copy(id, start + (from - offset), to - from, prot, from)
        })
}

fn map_copy(id: u64, start: u64, len: u64, prot: u64, offset: u64) -> bool {
    let fd = open(id);
    if fd < 0 {
        return false;
    }
    let flags = sys::MAP_PRIVATE | sys::MAP_FIXED | sys::MAP_NORESERVE;
    let got = sys::call(nr::MMAP, start, len, prot, flags, fd as u64, offset);
    sys::call(nr::CLOSE, fd as u64, 0, 0, 0, 0, 0);
    got == start as i64
}

fn open(id: u64) -> i64 {
    let mut path = [0u8; 21];
    let mut at = path.len() - 1;
    let mut rest = id;
    loop {
        at -= 1;
        path[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let (dir, path) = (FILES_FD as u64, path[at..].as_ptr() as u64);
    sys::call(nr::OPENAT, dir, path, confine::OPEN_FLAGS, 0, 0, 0)
}

/// Where the list of parts is while it is read.
const LIST_BASE: u64 = protocol::layout::MONITOR_BASE + 0x3_3e00_0000;
const LIST_LEN: u64 = 8 + 16 * captured::PARTS_MAX as u64;

/// Calls `each` with the beginning and the end of each part, until it says false.
/// False: it did, or the list cannot be read.
fn each_part(name: u64, mut each: impl FnMut(u64, u64) -> bool) -> bool {
    if !map_copy(captured::list(name), LIST_BASE, LIST_LEN, 1, 0) {
        return false;
    }
    let count = mem::read_at(LIST_BASE, 0).min(captured::PARTS_MAX as u64);
    let done = (0..count).all(|i| {
        let part = LIST_BASE + 8 + 16 * i;
        let (from, len) = (mem::read_at(part, 0), mem::read_at(part, 8));
        each(from, from.saturating_add(len))
    });
    sys::call(nr::MUNMAP, LIST_BASE, LIST_LEN, 0, 0, 0, 0);
    done
}
