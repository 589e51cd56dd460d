//! Reading clocks. Programs do it so often that it has a way of its own: the
//! kernel's vdso is asked, and a few bytes go into the log.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::record::clock;

use crate::state::{Thread, domain, space, thread};
use crate::sys::nr;
use crate::{log, mem, motion, replay, signal, stretch, turn};

/// What `fast` returns when the call has to go the long way.
pub const NOT_HERE: i64 = i64::MIN;

/// Of so many clock reads, the log's own clock is read at one; the others
/// count as having happened at the same time.
const STAMPS: u32 = 8;

/// Called from the vdso as a function: it may change what functions may
/// change. (The assembly around it is `arch::mw_fast`.)
pub extern "C" fn fast(first: u64, second: u64, number: u64) -> i64 {
    let thread = thread();
    thread.busy.store(1, Relaxed);
    let turns = space().turns.get() != 0;
    let is_long = thread.pending.load(Acquire) != 0
        || (turns && turn::is_wanted(domain()))
        || (replay::is_on() && motion::is_wanted(thread));
    let result = if is_long {
        None
    } else {
        read(thread, number, first, second)
            .filter(|result| !replay::is_on() || !replay::signal_follows(thread, *result))
    };
    if replay::is_on() && result.is_some() {
        let resume = thread.saved_rip.get();
        thread.saved_rip.set(stretch::begin(thread, resume));
    }
    thread.busy.store(0, Release);
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    if result.is_some() && thread.pending.load(Acquire) != 0 {
        signal::soon(thread);
    }
    result.unwrap_or(NOT_HERE)
}

/// Reads a clock for the program and logs it. None: it takes a system call.
pub fn read(thread: &Thread, number: u64, first: u64, second: u64) -> Option<i64> {
    if replay::is_on() {
        return replay::read_clock(thread, number, first, second);
    }
    let function = space().vdso_clock.get();
    if function == 0 {
        return None;
    }
    // SAFETY: the address of __vdso_clock_gettime, found by the recorder in
    // this very vdso; it has this signature.
    let read: extern "C" fn(u64, *mut [u64; 2]) -> i32 =
        unsafe { core::mem::transmute::<u64, extern "C" fn(u64, *mut [u64; 2]) -> i32>(function) };
    let mut now = [0u64; 2];
    let (how, id) = match (number, first as u32) {
        (nr::CLOCK_GETTIME, 1) => (clock::MONOTONIC, 1),
        (nr::CLOCK_GETTIME, 0) => (clock::REALTIME, 0),
        (nr::CLOCK_GETTIME, id @ (4 | 5 | 6 | 7 | 11)) => (clock::OTHER, u64::from(id)),
        (nr::GETTIMEOFDAY, _) if first != 0 && second == 0 => (clock::GETTIMEOFDAY, 0),
        // CLOCK_REALTIME_COARSE
        (nr::TIME, _) => (clock::TIME, 5),
        _ => return None,
    };
    if read(id, &mut now) != 0 {
        return None;
    }
    let mut result = 0;
    let written = match how {
        clock::GETTIMEOFDAY => {
            now[1] = now[1] / 1000 * 1000;
            mem::write(first, &[now[0], now[1] / 1000])
        }
        clock::TIME => {
            now[1] = 0;
            result = now[0] as i64;
            first == 0 || mem::write(first, &now[0])
        }
        _ => mem::write(second, &now),
    };
    if !written {
        // The kernel says what is wrong with the address.
        return None;
    }
    let value = now[0].wrapping_mul(1_000_000_000).wrapping_add(now[1]);
    let count = thread.clock_reads.get().wrapping_add(1);
    thread.clock_reads.set(count);
    log::clock(thread, how, id, value, count.is_multiple_of(STAMPS));
    Some(result)
}
