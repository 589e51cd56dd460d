//! Single pages that are guarded against writing, without a mapping of their own.
//!
//! `mprotect` of one page cuts a mapping into three and, when it is taken back,
//! makes one of them again: ten microseconds for both, and with thousands of
//! pages that come and go at each turn that is what a replay does. A mapping that
//! is registered with `userfaultfd` stays whole, and a page's guard is a bit in
//! its page table: two microseconds. A write to a guarded page is SIGBUS.
//!
//! Not every machine lets a process have it, and it is for anonymous memory
//! only: then [`watch`] is false, and pages are protected by `mprotect`.

use crate::sys::{self, nr};

use super::journal::is_written;
use super::table::{PAGE, Region};
use super::{NO_FILE, SHARED, UNNAMED, sharing};

/// A guard takes an entry of a page table for each page, also for those that were
/// never touched. Larger regions are better protected as they are.
const LEN_MAX: u64 = 4 << 30;

/// [`super::Sharing::faults`] before it was tried, and where there is none.
const NOT_TRIED: u32 = 0;
const NONE: u32 = 1;
/// Before the descriptor's number.
const THERE: u32 = 2;

const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const WRITE_PROTECT: u64 = 0xc018_aa06;

/// Whether writes to the pages of a region are found this way.
pub(super) fn is_watched(region: &Region) -> bool {
    let is_shared = region.kind == SHARED || region.kind == UNNAMED;
    is_shared
        && region.file == NO_FILE
        && region.prot & 3 == 3
        && region.len() <= LEN_MAX
        && is_written()
        && descriptor().is_some()
}

fn descriptor() -> Option<u64> {
    let known = &sharing().faults;
    if known.get() == NOT_TRIED {
        known.set(open().map_or(NONE, |fd| THERE + fd as u32));
    }
    known.get().checked_sub(THERE).map(u64::from)
}

fn open() -> Option<u64> {
    const CLOEXEC_USER_MODE_ONLY: u64 = 0o2000000 | 1;
    /// Guards against writing, SIGBUS, and also of pages that are not there yet.
    const FEATURES: u64 = 1 | 1 << 7 | 1 << 13;
    let fd = sys::call(nr::USERFAULTFD, CLOEXEC_USER_MODE_ONLY, 0, 0, 0, 0, 0);
    let fd = u64::try_from(fd).ok()?;
    // Version, features, and which requests there are.
    let mut api = [0xaa, FEATURES, 0];
    if request(fd, API, &mut api) {
        return Some(fd);
    }
    sys::call(nr::CLOSE, fd, 0, 0, 0, 0, 0);
    None
}

fn request<const N: usize>(fd: u64, number: u64, argument: &mut [u64; N]) -> bool {
    sys::call(nr::IOCTL, fd, number, argument.as_mut_ptr() as u64, 0, 0, 0) == 0
}

/// Registers a region. False: its pages have to be protected otherwise.
pub(super) fn watch(region: &Region) -> bool {
    const MODE_WRITE_PROTECT: u64 = 2;
    let Some(fd) = descriptor().filter(|_| is_watched(region)) else {
        return false;
    };
    let mut register = [region.start, region.len(), MODE_WRITE_PROTECT, 0];
    request(fd, REGISTER, &mut register)
}

/// Guards pages of a region that is registered, or lets them be written. False:
/// they are not registered.
pub(super) fn set(start: u64, len: u64, is_guarded: bool) -> bool {
    let Some(fd) = descriptor() else {
        return false;
    };
    request(fd, WRITE_PROTECT, &mut [start, len, u64::from(is_guarded)])
}

/// [`set`] for one page.
pub(super) fn set_page(page: u64, is_guarded: bool) -> bool {
    set(page, PAGE, is_guarded)
}

/// In a forked child: the descriptor is about its parent's memory.
pub(super) fn forked() {
    if let Some(fd) = sharing().faults.replace(NOT_TRIED).checked_sub(THERE) {
        sys::call(nr::CLOSE, u64::from(fd), 0, 0, 0, 0, 0);
    }
}
