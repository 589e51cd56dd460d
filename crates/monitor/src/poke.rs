//! Memory that is written by calls: through `/proc/PID/mem`, and by
//! `process_vm_writev`.
//!
//! A process may write to its own: the log says where, and replay writes there
//! what the program has at hand again. Of another process's memory nobody could
//! say at which moment it changed, as that one does not stand still for it: so
//! that is refused.

use protocol::record::{object, tag};

use crate::capture::{self, Blobs};
use crate::recorder::{self, topic};
use crate::state::{Thread, space};
use crate::sys::{self, nr};
use crate::{call, descriptors, mem};

const PAGE: u64 = 4096;
const O_ACCMODE: u64 = 3;
const O_WRONLY: u64 = 1;

/// A file was opened: its descriptor, or why the program does not get it.
pub fn opened(thread: &Thread, number: u64, args: &[u64; 6], result: i64) -> i64 {
    let (path, flags) = match number {
        nr::OPEN => (args[0], args[1]),
        nr::OPENAT => (args[1], args[2]),
        nr::OPENAT2 => (args[1], mem::read::<u64>(args[2]).unwrap_or(0)),
        nr::CREAT => (args[0], O_WRONLY),
        _ => return result,
    };
    if result < 0 || flags & O_ACCMODE == 0 || !ends_with_mem(path) {
        return result;
    }
    match owner_of(result as u64) {
        None => result,
        Some(pid) if pid == u64::from(thread.process().pid.get()) => {
            space().pokes.set(1);
            result
        }
        Some(_) => {
            sys::call(nr::CLOSE, result as u64, 0, 0, 0, 0, 0);
            let text = b"writing to another process's memory (/proc/PID/mem)";
            recorder::note(thread, topic::MEMORY, 0, text);
            -sys::EACCES
        }
    }
}

/// Few names do: all others need no look at what they are of.
fn ends_with_mem(path: u64) -> bool {
    let len = capture::string_len(path).unwrap_or(0);
    len >= 3 && mem::read::<[u8; 3]>(path + len - 3) == Some(*b"mem")
}

/// Whose memory a descriptor is of, if it is of one's.
fn owner_of(fd: u64) -> Option<u64> {
    const FSTATFS: u64 = 138;
    const READLINK: u64 = 89;
    const PROC: u64 = 0x9fa0;
    let path = call::path_of(fd);
    let mut name = [0u8; 64];
    let (from, to) = (path.as_ptr() as u64, name.as_mut_ptr() as u64);
    let len = sys::call(READLINK, from, to, name.len() as u64, 0, 0, 0);
    let name = name.get(..usize::try_from(len).ok()?)?;
    let rest = name.strip_prefix(b"/proc/")?;
    if !name.ends_with(b"/mem") {
        return None;
    }
    // Last: elsewhere somebody may have to be asked.
    let mut words = [0u64; 16];
    if sys::call(FSTATFS, fd, words.as_mut_ptr() as u64, 0, 0, 0, 0) != 0 || words[0] != PROC {
        return None;
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Something was written to a file by a process that has its own memory open:
/// was it that?
#[cold]
pub fn written(
    thread: &Thread,
    number: u64,
    args: &[u64; 6],
    result: i64,
    more: &mut Blobs,
) -> bool {
    let offset = match number {
        nr::WRITE | nr::WRITEV => None,
        nr::PWRITE64 | nr::PWRITEV => Some(args[3]),
        nr::PWRITEV2 => Some(args[3]).filter(|at| *at != u64::MAX),
        _ => return false,
    };
    let fd = args[0];
    if result <= 0 || descriptors::is_no_file(thread.process(), fd) || owner_of(fd).is_none() {
        return false;
    }
    let address = offset.unwrap_or_else(|| sys::offset(fd).saturating_sub(result) as u64);
    more.words(tag::OBJECT, &[object::MEMORY, address, 0]);
    true
}

/// In replay, writes what a process wrote to its own memory through a file. As by
/// the kernel, what must not be written is written as well, and is as it was
/// afterwards.
pub fn write_again(address: u64, from: u64, len: u64) {
    let mut done = 0;
    while done < len {
        let at = address.wrapping_add(done);
        let step = (PAGE - (at & (PAGE - 1))).min(len - done);
        if !mem::is_ours(at, step) && !mem::copy(at, from + done, step) {
            // Whether it can be executed nobody will ask.
            let before = if mem::is_readable(at, 1) { 5 } else { 0 };
            let page = at & !(PAGE - 1);
            sys::call(nr::MPROTECT, page, PAGE, 3, 0, 0, 0);
            mem::copy(at, from + done, step);
            sys::call(nr::MPROTECT, page, PAGE, before, 0, 0, 0);
        }
        done += step;
    }
}

/// `process_vm_writev`: whether it is refused.
pub fn is_refused(thread: &Thread, pid: u64) -> bool {
    let refused = pid as u32 != thread.process().pid.get();
    if refused {
        recorder::note(
            thread,
            topic::MEMORY,
            0,
            b"process_vm_writev to another process",
        );
    }
    refused
}

/// `process_vm_writev` in replay: so many bytes go from one vector to the other.
pub fn copy_again(args: &[u64; 6], len: u64) {
    let [_, local, local_count, remote, remote_count, _] = *args;
    let mut begin = 0;
    capture::each_piece(local, local_count, len, |from, from_len| {
        // Where these bytes go: the parts of the other vector that they meet.
        let end = begin + from_len;
        let mut at = 0;
        capture::each_piece(remote, remote_count, len, |to, to_len| {
            let (first, last) = (begin.max(at), end.min(at + to_len));
            if first < last {
                mem::copy(to + (first - at), from + (first - begin), last - first);
            }
            at += to_len;
        });
        begin = end;
    });
}
