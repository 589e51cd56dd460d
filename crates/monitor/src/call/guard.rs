//! What the program must not reach: the descriptor of the memory that it shares
//! with the recorder, and options that would break recording.

use crate::capture;
use crate::recorder::{self, topic};
use crate::state::{Thread, space};
use crate::sys::{self, nr};
use crate::{mem, needs};

use super::write_decimal;

/// What would turn the monitor's own ways against it, or could not be
/// replayed: the layout of memory, syscall user dispatch, the auxiliary vector.
const REFUSED_PRCTLS: [(u32, &[u8]); 3] = [
    (35, b"prctl(PR_SET_MM) of the heap"),
    (59, b"prctl(PR_SET_SYSCALL_USER_DISPATCH)"),
    (0x4155_5856, b"prctl(PR_GET_AUXV)"),
];

pub(super) fn is_refused_prctl(thread: &Thread, args: &[u64; 6]) -> bool {
    const PR_SET_MM: u32 = 35;
    // What concerns the heap, and all of it at once; and what writes a size.
    let harms = |option: u32| option != PR_SET_MM || matches!(args[1], 6 | 7 | 14 | 15);
    for (topic, (refused, name)) in (topic::PRCTL..).zip(REFUSED_PRCTLS) {
        if args[0] as u32 == refused && harms(refused) {
            recorder::note(thread, topic, 0, name);
            return true;
        }
    }
    false
}

/// Options of sockets whose answer is not as long as it says.
pub(super) fn is_refused_option(thread: &Thread, level: u64, option: u64) -> bool {
    const SOL_SOCKET: u32 = 1;
    const SO_GET_FILTER: u32 = 26;
    const IPPROTO_TCP: u32 = 6;
    const TCP_ZEROCOPY_RECEIVE: u32 = 35;
    let (topic, name): (u64, &[u8]) = match (level as u32, option as u32) {
        (SOL_SOCKET, SO_GET_FILTER) => (topic::FILTER, b"getsockopt(SO_GET_FILTER)"),
        (IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE) => {
            (topic::ZEROCOPY, b"getsockopt(TCP_ZEROCOPY_RECEIVE)")
        }
        _ => return false,
    };
    recorder::note(thread, topic, 0, name);
    true
}

/// Whether a call names the descriptor that leads to the arena, which the program
/// does not have: it must not close, replace, change, hand on or write to it.
#[inline(always)]
pub(super) fn names_arena(thread: &Thread, number: u64, args: &[u64; 6]) -> bool {
    let fds = needs::descriptors(number);
    let ours = space().arena_fd.get() as u32;
    fds & 1 != 0 && args[0] as u32 == ours
        || fds > 1 && also_names_arena(thread, number, args, fds, ours)
}

#[cold]
#[inline(never)]
fn also_names_arena(_: &Thread, number: u64, args: &[u64; 6], fds: u8, ours: u32) -> bool {
    let is_named = |(i, arg): (usize, &u64)| fds & 1 << i != 0 && *arg as u32 == ours;
    match number {
        nr::MMAP => args[3] & sys::MAP_ANONYMOUS == 0 && args[4] as u32 == ours,
        nr::SENDMSG => capture::each_right(args[1], |fd| fd == ours),
        nr::SENDMMSG => {
            const MESSAGE: u64 = 64;
            (0..(args[2] & 0xffff_ffff).min(1024))
                .any(|k| capture::each_right(args[1] + MESSAGE * k, |fd| fd == ours))
        }
        nr::OPEN | nr::TRUNCATE => leads_to_arena(AT_FDCWD, args[0], ours),
        nr::OPENAT | nr::OPENAT2 => leads_to_arena(args[0], args[1], ours),
        _ => args.iter().enumerate().any(is_named),
    }
}

const AT_FDCWD: u64 = -100i64 as u64;

/// Whether a path is a name of the descriptor's (`/proc/self/fd/N`).
fn leads_to_arena(dir: u64, path: u64, ours: u32) -> bool {
    let mut text = [0u8; 64];
    // At once, unless it ends where memory does.
    if !mem::copy(text.as_mut_ptr() as u64, path, text.len() as u64) {
        mem::copy_string(&mut text, path);
    }
    let len = text.iter().take_while(|byte| **byte != 0).count();
    let mut name = *b"fd/0000000000";
    write_decimal(&mut name[3..], ours.into());
    let digits = 3 + name[3..12]
        .iter()
        .take_while(|digit| **digit == b'0')
        .count();
    let (number, text) = (&name[digits..], &text[..len]);
    if !text.ends_with(number) || !text[..len - number.len()].ends_with(&name[..3]) {
        return false;
    }
    // The arena itself, and not a file that is called so.
    let mut words = [0u64; 18];
    let there = sys::call(
        nr::NEWFSTATAT,
        dir,
        path,
        words.as_mut_ptr() as u64,
        0,
        0,
        0,
    ) == 0;
    let arena = sys::fstat(ours.into());
    there && arena.is_some_and(|arena| (arena.device, arena.inode) == (words[0], words[1]))
}

/// What concerns the descriptor that leads to the arena.
pub(super) fn guard_descriptor(number: u64, args: &[u64; 6]) -> Option<i64> {
    let ours = space().arena_fd.get() as u64;
    let low = |arg: u64| arg & 0xffff_ffff;
    match number {
        nr::CLOSE_RANGE if low(args[0]) <= ours && ours <= low(args[1]) => {
            let (first, last, flags) = (low(args[0]), low(args[1]), args[2]);
            let mut result = 0;
            if first < ours {
                result = sys::call(nr::CLOSE_RANGE, first, ours - 1, flags, 0, 0, 0);
            }
            if result == 0 && ours < last {
                result = sys::call(nr::CLOSE_RANGE, ours + 1, last, flags, 0, 0, 0);
            }
            Some(result)
        }
        _ => None,
    }
}
