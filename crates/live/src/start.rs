//! The beginning of a program that is started to be debugged: a process that waits
//! until it is traced, and then becomes the program.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;

use crate::warden::raw;

/// What is said at the gate by a process that can be traced.
pub(crate) const READY: &[u8; 1] = b"r";

/// Waits for a word at the gate, and becomes the program. Comes back only if that
/// cannot be; why is told there.
pub fn start(gate: i32, arguments: &[std::ffi::OsString]) {
    let Some(gate) = raw::inherited(gate) else {
        return;
    };
    become_program(gate, arguments);
}

/// Says at the gate why an agent cannot start its program.
pub fn refuse(gate: i32, why: &str) {
    if let Some(gate) = raw::inherited(gate) {
        let _ = UnixStream::from(gate).write_all(why.as_bytes());
    }
}

/// The program that an agent starts does not get the gate, nor the signals that the
/// warden has blocked for itself.
pub fn leave_nothing_behind(gate: i32) {
    raw::unblock_signals();
    raw::close_on_exec(gate);
}

fn become_program(gate: OwnedFd, arguments: &[std::ffi::OsString]) {
    raw::unblock_signals();
    // The program does not get it.
    let _ = rustix::io::fcntl_setfd(&gate, rustix::io::FdFlags::CLOEXEC);
    let mut gate = UnixStream::from(gate);
    // Whoever traces it begins only now: the exec that led here is over, and the
    // next is that of the program.
    if gate.write_all(READY).is_err() {
        return;
    }
    let mut word = [0];
    // Without a word, nobody is there to debug it any more.
    if !matches!(gate.read(&mut word), Ok(1)) {
        return;
    }
    if let Some((program, rest)) = arguments.split_first() {
        let error = std::process::Command::new(program).args(rest).exec();
        let _ = gate.write_all(error.to_string().as_bytes());
    }
}
