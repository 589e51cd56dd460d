//! Files that the program serves to itself: by a file system that one of its processes is
//! (FUSE, autofs), or by being asked who may open and read some (fanotify).
//!
//! Calls on files return at once as a rule, and are made with the turn kept. Here nearly
//! every one may wait for a thread that needs the turn to answer. So from the moment on at
//! which somebody could serve, they are made as all calls that wait are, by everybody who takes
//! turns; and what the monitor itself wants to know of a file it asks without the turn, or such
//! that nobody is asked.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::state::{control, space};
use crate::sys::{self, nr};
use crate::{capture, descriptors, mem, needs};

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

/// Whether the kernel itself makes files of this kind up, when they are looked at: nobody is
/// asked for them, and some of them cannot be copied.
pub fn is_made_up(kind: u64) -> bool {
    const PROC: u64 = 0x9fa0;
    const SYSFS: u64 = 0x6265_6572;
    const MQUEUE: u64 = 0x1980_0202;
    matches!(kind, PROC | SYSFS | MQUEUE)
}
