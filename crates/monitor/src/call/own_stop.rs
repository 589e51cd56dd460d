//! A process that stops itself (SIGSTOP, or one of the terminal's signals).
//!
//! Who makes a call has the turn, and would have it as long as the process is stopped: nobody
//! of those that it shares memory with could run, and one of them may be who is to have it go
//! on. So it gives the turn away before, and no thread of its own takes it meanwhile.

use core::sync::atomic::Ordering::Release;

use protocol::syscall::Syscall;

use crate::capture::Blobs;
use crate::state::{Thread, space};
use crate::sys;
use crate::time::Span;
use crate::{arch, halt, turn};

use super::blocking::{finish, start};
use super::own_death;

const SIGSTOP: u32 = 19;
const SIGTSTP: u32 = 20;
const SIGTTIN: u32 = 21;
const SIGTTOU: u32 = 22;

/// Makes a call that may stop the process that makes it; None: it is no such call, or there is
/// nobody to wait for it.
pub(super) fn perform(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> Option<i64> {
    let number = u64::from(row.nr);
    let signal = own_death::signal_sent(number, args);
    if space().turns.get() == 0
        || !matches!(signal, SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU)
        || !own_death::may_be_own(number, args)
    {
        return None;
    }
    let process = thread.process();
    start(thread, row, args);
    process.frozen.store(thread.tid.get(), Release);
    turn::give(thread);
    halt::enter(thread, number, Span::begin().since(), u64::MAX);
    // SAFETY: the program's own call; the kernel checks its pointers.
    let result = unsafe { arch::syscall(number, args) };
    halt::back(thread, result);
    turn::take(thread);
    process.frozen.store(0, Release);
    sys::futex_wake(&process.frozen, u32::MAX >> 1);
    finish(thread, row, args, result, &Blobs::new());
    Some(result)
}
