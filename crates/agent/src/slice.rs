//! How long a thread of the recorder has a processor at a time, which also says how soon it
//! gets one.
//!
//! A program that executes another waits for threads of the recorder, each of which works for some
//! hundred microseconds. On a loaded machine a thread that is woken waits until
//! somebody's slice is over, 3 ms and more, unless its own is shorter than that one's: who asks for little is let
//! in at once (Linux 6.12 and later; to others a slice means nothing). It gets no more of the processor for it.

use crate::raw;

/// The shortest there is.
const SHORT_NS: u64 = 100_000;
/// As the kernel has it for everybody.
const USUAL: u64 = 0;

/// This thread is waited for: a short slice, for it and those that it makes.
pub fn shorten() {
    set(SHORT_NS);
}

/// This thread is waited for by nobody.
pub fn reset() {
    set(USUAL);
}

/// By plain system calls: the reaper does it, too. Where it cannot be done all is as it was.
fn set(slice_ns: u64) {
    let Some(mut now) = attributes() else { return };
    if now.sched_policy == libc::SCHED_OTHER as u32 {
        now.sched_runtime = slice_ns;
        let now = &raw const now;
        // SAFETY: changes this thread's own attributes, and reads them from here.
        unsafe { raw::call(libc::SYS_sched_setattr, [0, now as usize, 0, 0]) };
    }
}

/// What this thread has.
fn attributes() -> Option<libc::sched_attr> {
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    let mut found = libc::sched_attr {
        size: SIZE,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let place = &raw mut found;
    // SAFETY: writes so many bytes there.
    let result = unsafe {
        raw::call(
            libc::SYS_sched_getattr,
            [0, place as usize, SIZE as usize, 0],
        )
    };
    (result == 0).then_some(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Only the slice changes, and only while it is to. (An older kernel says none, before and after.)
    #[test]
    fn a_slice_is_short_until_it_is_as_before() {
        let test = || {
            let slice = || attributes().unwrap().sched_runtime;
            let nice = || attributes().unwrap().sched_nice;
            let (before, nice_before) = (slice(), nice());
            shorten();
            let has_slices = before != 0;
            assert_eq!(slice(), if has_slices { SHORT_NS } else { 0 });
            let inherited = std::thread::spawn(|| attributes().unwrap().sched_runtime);
            assert_eq!(inherited.join().unwrap(), slice());
            reset();
            assert_eq!((slice(), nice()), (before, nice_before));
        };
        // In a thread of its own: the attributes are each thread's.
        std::thread::spawn(test).join().unwrap();
    }
}
