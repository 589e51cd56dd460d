//! What C programs call: `include/meanwhile.h`.

use std::io::Error;
use std::os::fd::{BorrowedFd, RawFd};

use crate::time::Peer;

/// Hands an answer out: 1, or 0 if there is none, or the negative error number.
///
/// # Safety
/// `to` is where a pointer can be written.
unsafe fn hand_out(answer: std::io::Result<Option<Peer>>, to: *mut *mut Peer) -> i32 {
    const EIO: i32 = 5;
    const EINVAL: i32 = 22;
    if to.is_null() {
        return -EINVAL;
    }
    let (peer, result) = match answer {
        Ok(Some(peer)) => (Box::into_raw(Box::new(peer)), 1),
        Ok(None) => (std::ptr::null_mut(), 0),
        Err(error) => (std::ptr::null_mut(), -error_number(&error).unwrap_or(EIO)),
    };
    // SAFETY: the caller says so.
    unsafe { *to = peer };
    result
}

fn error_number(error: &Error) -> Option<i32> {
    error.raw_os_error()
}

/// # Safety
/// See `meanwhile.h`: `to` is where a pointer can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn meanwhile_peer(pid: u32, to: *mut *mut Peer) -> i32 {
    // SAFETY: the caller says so.
    unsafe { hand_out(crate::peer(pid), to) }
}

/// # Safety
/// See `meanwhile.h`: `socket` is open, and `to` is where a pointer can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn meanwhile_peer_of(socket: RawFd, to: *mut *mut Peer) -> i32 {
    const EBADF: i32 = 9;
    if socket < 0 {
        return -EBADF;
    }
    // SAFETY: the caller says so; it is only looked at, here.
    let answer = crate::peer_of(unsafe { BorrowedFd::borrow_raw(socket) });
    // SAFETY: the caller says so.
    unsafe { hand_out(answer, to) }
}

/// # Safety
/// `peer` is null, or was handed out here and not freed; it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn meanwhile_free(peer: *mut Peer) {
    if !peer.is_null() {
        // SAFETY: the caller says so.
        drop(unsafe { Box::from_raw(peer) });
    }
}

/// What is asked of a peer that was handed out.
///
/// # Safety
/// `peer` is null, or was handed out here and not freed.
unsafe fn of<T>(peer: *const Peer, none: T, question: impl FnOnce(&Peer) -> T) -> T {
    // SAFETY: the caller says so.
    match unsafe { peer.as_ref() } {
        Some(peer) => question(peer),
        None => none,
    }
}

/// # Safety
/// `peer` is null, or was handed out here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn meanwhile_is_halted(peer: *const Peer) -> i32 {
    // SAFETY: the caller says so.
    unsafe { of(peer, 0, |peer| peer.is_halted().into()) }
}

/// # Safety
/// `peer` is null, or was handed out here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn meanwhile_debugger(peer: *const Peer) -> u32 {
    // SAFETY: the caller says so.
    unsafe { of(peer, 0, |peer| peer.debugger().unwrap_or(0)) }
}

/// # Safety
/// `peer` is null, or was handed out here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn meanwhile_logical(peer: *const Peer, real: u64) -> u64 {
    // SAFETY: the caller says so.
    unsafe { of(peer, real, |peer| peer.logical(real)) }
}

/// # Safety
/// `peer` is null, or was handed out here and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn meanwhile_real(peer: *const Peer, logical: u64) -> u64 {
    // SAFETY: the caller says so.
    unsafe { of(peer, logical, |peer| peer.real(logical).unwrap_or(u64::MAX)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn meanwhile_now() -> u64 {
    crate::now()
}
