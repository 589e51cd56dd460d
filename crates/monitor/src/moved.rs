//! Bytes that the kernel moves into a file by itself: `sendfile`, `splice` and
//! `copy_file_range`, and `fallocate` that shifts what a file has. They pass through
//! nobody's memory, but where the file is mapped they show. So what is there
//! afterwards is read back and goes with the event.

use core::sync::atomic::Ordering::Relaxed;

use protocol::layout::{LARGE_BASE, LARGE_SIZE};
use protocol::record::tag;
use protocol::syscall::Syscall;

use crate::arch;
use crate::capture::{self, Blobs};
use crate::state::{Thread, control, space};
use crate::sys::{self, nr};
use crate::{call, memory};

const PAGE: u64 = 4096;
const COLLAPSE_RANGE: u64 = 8;
const INSERT_RANGE: u64 = 32;

/// Which argument is the file that a call moves bytes into, and which is the length that
/// may be cut. Other calls move none.
fn target(number: u64) -> Option<(usize, usize)> {
    match number {
        nr::SENDFILE => Some((0, 3)),
        nr::SPLICE | nr::COPY_FILE_RANGE => Some((2, 4)),
        _ => None,
    }
}

/// Whether `fallocate` shifts what is behind a place.
pub fn shifts(mode: u64) -> bool {
    mode & (COLLAPSE_RANGE | INSERT_RANGE) != 0
}

/// A call that moves bytes into a file that somebody has mapped is made here, in one go
/// and in this thread's turn, if it does not wait for what it moves. None: it is
/// another, or waits.
#[inline]
pub fn perform(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> Option<i64> {
    let maps = space().maps_files.get() | control().has_shared_files.load(Relaxed);
    let number = u64::from(row.nr);
    match target(number) {
        Some(target) if maps != 0 => move_here(thread, row, args, target),
        None if maps != 0 && number == nr::FALLOCATE && shifts(args[1]) => {
            memory::join_for_write(thread, args[0]).then(|| make(thread, row, args, args))
        }
        None if maps != 0 && number == nr::FTRUNCATE => {
            let is_noted = memory::join_for_write(thread, args[0]);
            let before = sys::fstat(args[0]).filter(|before| is_noted && before.size < args[1])?;
            (before.size % PAGE != 0).then(|| grow(thread, row, args, &before))
        }
        _ => None,
    }
}

#[inline(never)]
fn move_here(
    thread: &Thread,
    row: &'static Syscall,
    args: &[u64; 6],
    (file, len): (usize, usize),
) -> Option<i64> {
    let is_noted = memory::join_for_write(thread, args[file % 6]);
    let waits = u64::from(row.nr) == nr::SPLICE && !sys::is_readable(args[0]);
    if !is_noted || waits && space().turns.get() != 0 {
        return None;
    }
    // To move less is in their nature.
    let mut made = *args;
    let len = &mut made[len % 6];
    *len = (*len).min(LARGE_SIZE);
    Some(make(thread, row, args, &made))
}

fn make(thread: &Thread, row: &'static Syscall, args: &[u64; 6], made: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    // SAFETY: the program's own call; the kernel checks its pointers, and those that
    // would touch the monitor's memory were refused.
    let result = unsafe { arch::syscall(number, made) };
    let mut blobs = Blobs::new();
    capture::outputs(row, args, result, &[0; 6], &mut blobs);
    memory::written(thread, number, args, result, &mut blobs);
    call::finish_call(thread, row, args, result, &blobs);
    give_back(thread);
    result
}

/// A file grows whose last page is mapped in full: what was written there behind its end
/// comes into the file, or is cleared, as the kernel likes.
fn grow(thread: &Thread, row: &'static Syscall, args: &[u64; 6], before: &sys::Stat) -> i64 {
    // SAFETY: the program's own call, which has no pointers.
    let result = unsafe { arch::syscall(nr::FTRUNCATE, args) };
    let mut blobs = Blobs::new();
    if result == 0 {
        let key = memory::key_of(before.device, before.inode);
        let in_page = PAGE - before.size % PAGE;
        blobs.words(tag::OBJECT, &[key, before.size, args[1]]);
        let len = in_page.min(args[1] - before.size);
        read_back(thread, args[0], before.size, len, &mut blobs);
    }
    call::finish_call(thread, row, args, result, &blobs);
    give_back(thread);
    result
}

/// Whether the bytes that a call moved are to be read back.
pub fn is_read_back(number: u64, args: &[u64; 6]) -> bool {
    target(number).is_some()
        || number == nr::FTRUNCATE
        || number == nr::FALLOCATE && shifts(args[1])
}

/// Reads back what a file has at a place now; it goes with the event, and is there until
/// [`give_back`].
pub fn read_back(thread: &Thread, fd: u64, offset: u64, len: u64, blobs: &mut Blobs) {
    let room = room(thread);
    if !sys::map_anonymous(room, LARGE_SIZE) {
        return;
    }
    let again = open_again(fd);
    let from = again.unwrap_or(fd);
    let len = len.min(LARGE_SIZE);
    let mut done = 0;
    while done < len {
        let to = room + done;
        match sys::call(nr::PREAD64, from, to, len - done, offset + done, 0, 0) {
            read @ 1.. => done += read as u64,
            _ => break,
        }
    }
    if let Some(again) = again {
        sys::call(nr::CLOSE, again, 0, 0, 0, 0, 0);
    }
    blobs.memory(tag::PIECE, room, done);
}

/// Opens a file once more: who writes to it need not be able to read it.
fn open_again(fd: u64) -> Option<u64> {
    const AT_FDCWD: u64 = (-100i64) as u64;
    const O_CLOEXEC: u64 = 0o2000000;
    let path = call::path_of(fd);
    let path = path.as_ptr() as u64;
    let again = sys::call(nr::OPENAT, AT_FDCWD, path, O_CLOEXEC, 0, 0, 0);
    u64::try_from(again).ok()
}

/// The event is written.
pub fn give_back(thread: &Thread) {
    sys::call(nr::MUNMAP, room(thread), LARGE_SIZE, 0, 0, 0, 0);
}

fn room(thread: &Thread) -> u64 {
    LARGE_BASE + u64::from(thread.slot.get()) * LARGE_SIZE
}
