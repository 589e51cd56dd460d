//! Which descriptors never make a call wait: those in non-blocking mode, and
//! files on disk. A call on one of them is one event, made with the turn kept.
//!
//! What the kernel answers is remembered until the descriptor is closed,
//! replaced or set otherwise. (Another process that shares the open file can
//! change its mode behind our back; then a call is made with the turn kept
//! though it waits, and the other threads wait with it.)

use protocol::syscall::Syscall;

use crate::state::{DESCRIPTORS, Process, Thread};
use crate::sys::{self, nr};

const UNKNOWN: u8 = 0;
const WAITS: u8 = 1;
const NEVER_WAITS: u8 = 2;

const O_NONBLOCK: i64 = 0o4000;
const MSG_DONTWAIT: u64 = 0x40;

/// Whether a call that may block cannot do so here.
pub fn never_waits(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> bool {
    match u64::from(row.nr) {
        // read, write, readv, writev, accept, accept4
        0 | 1 | 19 | 20 | 43 | 288 => is_instant(thread.process(), args[0]),
        // sendto, recvfrom
        44 | 45 => args[3] & MSG_DONTWAIT != 0 || is_instant(thread.process(), args[0]),
        // sendmsg, recvmsg
        46 | 47 => args[2] & MSG_DONTWAIT != 0 || is_instant(thread.process(), args[0]),
        // sendmmsg, recvmmsg
        299 | 307 => args[3] & MSG_DONTWAIT != 0 || is_instant(thread.process(), args[0]),
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
    let Some(place) = process.descriptors.get(fd as u32 as usize) else {
        return false;
    };
    if place.get() == UNKNOWN {
        let flags = sys::call(nr::FCNTL, fd, 3, 0, 0, 0, 0); // F_GETFL
        if flags < 0 {
            return false;
        }
        let on_disk = sys::fstat(fd).is_some_and(|s| sys::is_regular(s.mode));
        place.set(if flags & O_NONBLOCK != 0 || on_disk {
            NEVER_WAITS
        } else {
            WAITS
        });
    }
    place.get() == NEVER_WAITS
}

/// Forgets what a call may have changed.
#[inline]
pub fn note(thread: &Thread, number: u64, args: &[u64; 6]) {
    let descriptors = &thread.process().descriptors;
    let forget = |fd: u64| {
        if let Some(place) = descriptors.get(fd as u32 as usize) {
            place.set(UNKNOWN);
        }
    };
    match number {
        nr::CLOSE | nr::IOCTL => forget(args[0]),
        nr::FCNTL if args[1] == 4 => forget(args[0]), // F_SETFL
        nr::DUP2 | nr::DUP3 => forget(args[1]),
        nr::CLOSE_RANGE => forget_all(thread.process()),
        _ => {}
    }
}

pub fn forget_all(process: &Process) {
    for place in &process.descriptors {
        if place.get() != UNKNOWN {
            place.set(UNKNOWN);
        }
    }
}

const _: () = assert!(DESCRIPTORS >= 1024);
