//! Which descriptors never make a call wait: those in non-blocking mode, and
//! files on disk. A call on one of them is one event, made with the turn kept.
//! And which are no files at all.
//!
//! What the kernel answers is remembered until the descriptor is closed,
//! replaced or set otherwise; all of it, everywhere, when any process of the
//! program takes any descriptor out of non-blocking mode, because others may lead
//! to the same open file. (A process that is not recorded can do so behind our
//! back; then a call is made with the turn kept though it waits, and the other
//! threads wait with it.)
//!
//! Whether it is a file matters more: so that is not believed where a table of
//! descriptors is not that of one process.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use protocol::syscall::Syscall;

use crate::state::{DESCRIPTORS, Process, Thread, control, space};
use crate::sys::{self, nr};
use crate::{mem, served};

const UNKNOWN: u8 = 0;
/// Bits of what is known.
const KNOWN: u8 = 1;
const NEVER_WAITS: u8 = 2;
const NO_FILE: u8 = 4;

const CLONE_FILES: u64 = 0x400;
const CLONE_THREAD: u64 = 0x1_0000;

const O_NONBLOCK: i64 = 0o4000;
const MSG_DONTWAIT: u64 = 0x40;

/// Whether a call that may block cannot do so here.
pub fn never_waits(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> bool {
    match u64::from(row.nr) {
        // read, write, readv, writev, accept, accept4
        0 | 1 | 19 | 20 | 43 | 288 => is_instant(thread.process(), args[0]),
        // pwrite64, pwritev: what is written at a place takes it. (It may be this memory.)
        18 | 296 if !served::is_on() => true,
        // pread64, preadv: some files of the kernel's wait there, too
        17 | 18 | 295 | 296 => is_instant(thread.process(), args[0]),
        // sendfile: what it reads from can seek, so it never waits for it
        40 if !served::is_on() => is_instant(thread.process(), args[0]),
        // sendto, recvfrom
        44 | 45 => args[3] & MSG_DONTWAIT != 0 || is_instant(thread.process(), args[0]),
        // sendmsg, recvmsg
        46 | 47 => args[2] & MSG_DONTWAIT != 0 || is_instant(thread.process(), args[0]),
        // sendmmsg, recvmmsg
        299 | 307 => args[3] & MSG_DONTWAIT != 0 || is_instant(thread.process(), args[0]),
        // Whose file it is, who serves it is asked for.
        2 | 7 | 232 | 257 | 281 if served::is_on() => false,
        // open and openat: of a pipe, only if it shall wait for the other end
        2 => args[1] & O_NONBLOCK as u64 != 0,
        257 => args[2] & O_NONBLOCK as u64 != 0,
        // poll, epoll_wait, epoll_pwait that do not wait
        7 => args[2] as i32 == 0,
        232 | 281 => args[3] as i32 == 0,
        _ => false,
    }
}

fn is_instant(process: &Process, fd: u64) -> bool {
    known(process, fd) & NEVER_WAITS != 0
}

/// Whether a descriptor is certainly not that of a regular file.
pub fn is_no_file(process: &Process, fd: u64) -> bool {
    space().odd_tables.get() == 0 && known(process, fd) & NO_FILE != 0
}

/// What is known of a descriptor; the kernel is asked if need be.
fn known(process: &Process, fd: u64) -> u8 {
    let Some(place) = process.descriptors.get(fd as u32 as usize) else {
        return UNKNOWN;
    };
    let modes = control().modes_changed.load(Acquire);
    if process.descriptors_of.get() != modes {
        forget_all(process);
        process.descriptors_of.set(modes);
    }
    if place.get() == UNKNOWN {
        let flags = sys::call(nr::FCNTL, fd, 3, 0, 0, 0, 0); // F_GETFL
        if flags < 0 {
            return UNKNOWN;
        }
        let stat = sys::fstat(fd);
        let is_file = stat.as_ref().map(|s| sys::is_regular(s.mode));
        let mut bits = KNOWN;
        let on_disk = || stat.as_ref().is_some_and(|s| s.size != 0) || !is_made_by_kernel(fd);
        let is_instant = match served::is_on() {
            false => flags & O_NONBLOCK != 0 || is_file == Some(true) && on_disk(),
            true => flags & O_NONBLOCK != 0 && stat.as_ref().is_some_and(is_channel),
        };
        if is_instant {
            bits |= NEVER_WAITS;
        }
        if is_file == Some(false) {
            bits |= NO_FILE;
        }
        place.set(bits);
    }
    place.get()
}

/// Whether it is a pipe, a socket, or one of what has no kind (counters, timers).
fn is_channel(stat: &sys::Stat) -> bool {
    matches!(stat.mode & 0xf000, 0x1000 | 0xc000 | 0)
}

/// Whether a file is one of those that the kernel makes up when they are read,
/// some of which wait for news (`/proc/kmsg`, `trace_pipe`). They have no size.
fn is_made_by_kernel(fd: u64) -> bool {
    const PROC: u64 = 0x9fa0;
    const TRACEFS: u64 = 0x7472_6163;
    const DEBUGFS: u64 = 0x6462_6720;
    let mut words = [0u64; 16];
    let asked = sys::call(nr::FSTATFS, fd, words.as_mut_ptr() as u64, 0, 0, 0, 0);
    asked != 0 || matches!(words[0], PROC | TRACEFS | DEBUGFS)
}

/// A thread or process is made: if it shares descriptors though it is another
/// process, or does not though it is none, others may change them unseen.
pub fn note_clone(flags: u64) {
    if (flags & CLONE_FILES != 0) != (flags & CLONE_THREAD != 0) {
        space().odd_tables.set(1);
    }
}

/// Forgets what a call may have changed. (Which calls those are, `needs` must
/// know.)
#[inline]
pub fn note(thread: &Thread, number: u64, args: &[u64; 6]) {
    let descriptors = &thread.process().descriptors;
    let forget = |fd: u64| {
        if let Some(place) = descriptors.get(fd as u32 as usize) {
            place.set(UNKNOWN);
        }
    };
    match number {
        nr::CLOSE => forget(args[0]),
        nr::IOCTL => {
            forget(args[0]);
            if args[1] as u32 == FIONBIO && mem::read::<u32>(args[2]) == Some(0) {
                forget_everywhere();
            }
        }
        nr::FCNTL if args[1] as u32 == F_SETFL => {
            forget(args[0]);
            if args[2] & O_NONBLOCK as u64 == 0 {
                forget_everywhere();
            }
        }
        nr::DUP2 | nr::DUP3 => forget(args[1]),
        nr::CLOSE_RANGE => {
            const CLOSE_RANGE_UNSHARE: u64 = 2;
            forget_all(thread.process());
            if args[2] & CLOSE_RANGE_UNSHARE != 0 {
                space().odd_tables.set(1);
            }
        }
        nr::UNSHARE if args[0] & CLONE_FILES != 0 => space().odd_tables.set(1),
        _ => {}
    }
}

const F_SETFL: u32 = 4;
const FIONBIO: u32 = 0x5421;

/// A descriptor may wait from now on, whoever has it.
pub fn forget_everywhere() {
    control().modes_changed.fetch_add(1, AcqRel);
}

pub fn forget_all(process: &Process) {
    for place in &process.descriptors {
        if place.get() != UNKNOWN {
            place.set(UNKNOWN);
        }
    }
}

const _: () = assert!(DESCRIPTORS >= 1024);
