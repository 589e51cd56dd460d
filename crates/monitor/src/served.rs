//! Files that the program serves to itself: by a file system that one of its processes is
//! (FUSE, autofs), or by being asked who may open and read some (fanotify).
//!
//! Calls on files return at once as a rule, and are made with the turn kept. Here nearly
//! every one may wait for a thread that needs the turn to answer. So from the moment on at
//! which somebody could serve, they are made as all calls that wait are, by everybody who takes
//! turns; and what the monitor itself wants to know of a file it asks without the turn, or such
//! that nobody is asked.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::state::{Thread, control, space};
use crate::sys::{self, nr};
use crate::{capture, descriptors, mem, memory, needs, turn};

/// Whether somebody may serve files.
#[inline]
pub fn is_on() -> bool {
    control().serves_files.load(Relaxed) != 0
}

/// Whether a call that never waits elsewhere may wait here for somebody who needs the
/// turn.
#[inline]
pub fn makes_wait(number: u64) -> bool {
    is_on() && space().turns.get() != 0 && needs::of(number) & needs::FILES != 0
}

fn begin() {
    space().serves.set(1);
    if control().serves_files.swap(1, AcqRel) == 0 {
        descriptors::forget_everywhere();
    }
}

/// A device was opened, or came in a message.
pub fn look_at_device(stat: &sys::Stat) {
    if is_device(stat) {
        begin();
    }
}

/// Whether it is one by which file systems, or devices, are served.
pub fn is_device(stat: &sys::Stat) -> bool {
    const CHARACTER_DEVICE: u32 = 0x2000;
    const FUSE: u64 = 10 << 8 | 229;
    const CUSE: u64 = 10 << 8 | 203;
    stat.mode & 0xf000 == CHARACTER_DEVICE && matches!(stat.special, FUSE | CUSE)
}

/// Descriptors may have come with a message: `fusermount` hands on what it has opened.
pub fn received(message: u64) {
    capture::each_right(message, |fd| {
        if let Some(stat) = sys::fstat(fd.into()) {
            look_at_device(&stat);
        }
        false
    });
}

/// A call was made by which one begins to serve.
pub fn made(number: u64, args: &[u64; 6]) {
    // FAN_CLASS_CONTENT, FAN_CLASS_PRE_CONTENT
    const ASKS: u64 = 4 | 8;
    let is_autofs = |name: u64| mem::read::<[u8; 7]>(name) == Some(*b"autofs\0");
    let serves = match number {
        nr::FANOTIFY_INIT => args[0] & ASKS != 0,
        nr::MOUNT => is_autofs(args[2]),
        nr::FSOPEN => is_autofs(args[0]),
        _ => false,
    };
    if serves {
        begin();
    }
}

/// Whether a file that is about to be executed may be one that threads of the same process
/// serve: they would have to stand still for it. Others than the one that asks run meanwhile.
pub fn may_be_own(thread: &Thread, number: u64, args: &[u64; 6]) -> bool {
    let may_serve = is_on() && space().serves.get() != 0 && thread.process().threads.get() > 1;
    may_serve && turn::without(thread, || is_in_fuse(number, args))
}

fn is_in_fuse(number: u64, args: &[u64; 6]) -> bool {
    const AT_FDCWD: u64 = -100i64 as u64;
    const O_PATH_CLOEXEC: u64 = 0o1200_0000;
    const FUSE: u64 = 0x6573_5546;
    let (dir, path) = match number {
        nr::EXECVEAT => (args[0], args[1]),
        _ => (AT_FDCWD, args[0]),
    };
    if mem::read::<u8>(path) == Some(0) {
        return memory::kind_of(dir) == Some(FUSE);
    }
    let fd = sys::call(nr::OPENAT, dir, path, O_PATH_CLOEXEC, 0, 0, 0);
    if fd < 0 {
        return false;
    }
    let kind = memory::kind_of(fd as u64);
    sys::call(nr::CLOSE, fd as u64, 0, 0, 0, 0, 0);
    kind == Some(FUSE)
}

/// Whether a thread is in the kernel because it touched a page of a file that is not there:
/// no signal gets it out of that.
pub fn is_faulting(tid: u32) -> bool {
    const NAMES: [&[u8]; 2] = [b"folio_wait_bit_common", b"request_wait_answer"];
    let place = sys::waits_in(tid);
    NAMES.iter().any(|known| place.starts_with(known))
}

/// Whether the kernel itself makes files of this kind up, when they are looked at: nobody is
/// asked for them, and some of them cannot be copied.
pub fn is_made_up(kind: u64) -> bool {
    const PROC: u64 = 0x9fa0;
    const SYSFS: u64 = 0x6265_6572;
    const MQUEUE: u64 = 0x1980_0202;
    matches!(kind, PROC | SYSFS | MQUEUE)
}
