//! Calls that may wait: the thread gives the turn away while it is in the
//! kernel, unless the call can be seen to return at once.

use core::cell::Cell;
use core::sync::atomic::Ordering::Acquire;

use protocol::syscall::{How, Syscall};
use protocol::table;

use crate::arch;
use crate::capture::{self, Blobs};
use crate::mode::Mode;
use crate::observe::Course;
use crate::scratch::Redirected;
use crate::state::{Thread, space};
use crate::sys::{self, nr};
use crate::time::{self, Limit, Sets, Span};
use crate::words::Slices;
use crate::{
    adopt, deaths, descriptors, halt, live, log, mem, memory, moved, needs, observe, pi, poke,
    replay, served, signal, turn, words,
};

use super::guard::guard_descriptor;
use super::plain::plain;

/// A call that may block: two events.
pub(super) fn blocking(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    match space().mode.get() {
        Mode::Record => make(thread, row, args),
        Mode::Live => make_live(thread, row, args),
        Mode::Replay => blocking_again(thread, row, args),
    }
}

/// Live: the kernel's own ways, for all to see at once.
#[inline(never)]
fn make_live(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    let mut mask = WaitMask::of(number, args);
    let mut made = *args;
    mask.set(number, &mut made);
    let slices = words::slices(number, args);
    if let Some(slices) = &slices {
        slices.arguments(&mut made);
    }
    let course = Course::begin(thread, row, args, true);
    let (began, done) = before(thread);
    made[1] += done;
    made[2] -= done;
    let begun = (Span::begin().begun_at(began), done as i64);
    let result = wait_in_kernel(thread, number, args, made, slices.as_ref(), begun);
    if space().children.get() != 0 {
        let _lock = live::lock(thread);
        words::after_wait(&mut Blobs::new());
    }
    let result = after_signal(thread, number, args, &mask, result);
    match course {
        Some(course) => course.end(thread, row, args, result),
        None if observe::is_on() => Course::joined(thread, row, args, result),
        None => {}
    }
    result
}

/// When the call began that the thread makes (0: now), and how much of it was done: it
/// was taken out of it when the monitor came, or was about to leave.
fn before(thread: &Thread) -> (u64, u64) {
    if thread.again_at.get() == 0 || thread.again_at.get() != thread.call_site.get() {
        return (0, 0);
    }
    thread.again_at.set(0);
    (thread.began.get(), thread.done.get())
}

#[inline(never)]
fn make(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    if number == nr::FUTEX
        && let Some(result) = futex_at_once(thread, row, args)
    {
        return result;
    }
    if number == nr::FCNTL {
        descriptors::note(thread, number, args);
    }
    if let Some(result) = moved::perform(thread, row, args) {
        return result;
    }
    let row = if number == nr::VMSPLICE && is_for_reading(args[0]) {
        &table::VMSPLICE_READS
    } else {
        row
    };
    if descriptors::never_waits(thread, row, args) {
        return plain(thread, row, args);
    }
    in_two(thread, row, args)
}

/// A call that waits, or may do so now: its results go where the program wants them
/// when the turn is back.
pub(super) fn in_two(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    memory::before_write(thread, number, args);
    start(thread, row, args);
    let before = capture::lengths_before(row, args);
    let turns = space().turns.get() != 0;
    if turns
        && !served::is_on()
        && let Some(result) = at_once(number, *args)
    {
        let mut blobs = Blobs::new();
        capture::outputs(row, args, result, &before, &mut blobs);
        finish(thread, row, args, result, &blobs);
        return result;
    }
    let redirected = if turns {
        Redirected::new(thread, row, args)
    } else {
        Redirected::none(*args)
    };
    let mut made = redirected.args();

    let mut mask = WaitMask::of(number, args);
    mask.set(number, &mut made);

    let slices = words::slices(number, args);
    if let Some(slices) = &slices {
        slices.arguments(&mut made);
    }

    let status = Cell::new(0);
    deaths::before_wait(number, &mut made, &status);
    if turns && !redirected.is_direct() {
        turn::give(thread);
    }
    let begun = (Span::begin(), 0);
    let mut result = wait_in_kernel(thread, number, args, made, slices.as_ref(), begun);
    if turns {
        turn::take(thread);
    }
    result = redirected.finish(thread, result);
    if needs::of(number) & needs::EXTRA != 0 {
        result = poke::opened(thread, number, args, result);
    }

    if !matches!(row.how, How::Plain) {
        // The kernel makes none of the others again, whoever serves the file.
        result = after_signal(thread, number, args, &mask, result);
    }
    let mut blobs = Blobs::new();
    capture::outputs(row, args, result, &before, &mut blobs);
    capture::extra(thread, number, args, result, &mut blobs);
    memory::written(thread, number, args, result, &mut blobs);
    if number == nr::FUTEX && space().shared.get() != 0 {
        note_death(args[0], &mut blobs);
    }
    words::after_wait(&mut blobs);
    deaths::after_wait(number, args, result, &status, &mut blobs);
    finish(thread, row, args, result, &blobs);
    if number == nr::SPLICE && space().maps_files.get() != 0 {
        moved::give_back(thread);
    }
    result
}

/// Makes a call that may wait, `made` in place of `args`: again, if it came back
/// for nothing, or because its time is over while that of the program is not. It has
/// begun then, and has written so much before.
fn wait_in_kernel(
    thread: &Thread,
    number: u64,
    args: &[u64; 6],
    mut made: [u64; 6],
    slices: Option<&Slices>,
    (span, mut written): (Span, i64),
) -> i64 {
    let mut limit = Limit::of(number, args, span);
    let sets = limit.as_ref().and_then(|_| Sets::of(number, &made));
    let first = made;
    if let Some(limit) = &mut limit {
        limit.begin(&mut made);
    }
    let mut result;
    loop {
        let length = match &limit {
            Some(limit) => {
                limit.show(thread, args);
                limit.length()
            }
            None => u64::MAX,
        };
        halt::enter(thread, number, span.since(), length);
        // SAFETY: as in `plain::plain`.
        result = unsafe {
            arch::syscall_interruptible(number, &raw const made, thread.pending.as_ptr())
        };
        halt::back(thread, result);
        if let Some(slices) = slices
            && slices.goes_on(&mut result)
        {
            continue;
        }
        let is_for_nothing = result == -sys::EINTR && thread.pending.load(Acquire) == 0;
        if let Some(limit) = &mut limit {
            if limit.goes_on(thread, &mut made, &mut result, is_for_nothing) {
                if adopt::is_leaving(thread) {
                    match limit.leave(&first) {
                        true => adopt::leave_anew(thread),
                        false => adopt::leave_call(thread, &span, 0),
                    }
                    return -sys::ERESTARTSYS;
                }
                if let Some(sets) = &sets {
                    sets.restore(&made);
                }
                continue;
            }
        } else if time::socket_goes_on(thread, number, args, &mut result, &span) {
            continue;
        }
        if is_cut_short(thread, number, &made, result) {
            written += result;
            made[1] += result as u64;
            made[2] -= result as u64;
            if adopt::is_leaving(thread) {
                adopt::leave_call(thread, &span, written);
                return -sys::ERESTARTSYS;
            }
            continue;
        }
        if result != -sys::EINTR || thread.pending.load(Acquire) != 0 {
            break;
        }
        if adopt::is_leaving(thread) {
            adopt::leave_call(thread, &span, written);
            return -sys::ERESTARTSYS;
        }
    }
    if written != 0 {
        result = written + result.max(0);
    }
    if let Some(limit) = &limit {
        limit.finish(&first, result);
    }
    result
}

/// A signal has ended a call: what that means for it.
fn after_signal(
    thread: &Thread,
    number: u64,
    args: &[u64; 6],
    mask: &WaitMask,
    result: i64,
) -> i64 {
    if result == -sys::EINTR && thread.pending.load(Acquire) != 0 {
        if let Some(mask) = mask.program {
            signal::suspend_masks(thread, mask);
        } else if signal::restarts(thread, number, args) {
            return -sys::ERESTARTSYS;
        }
    }
    result
}

/// A mask that a call sets while it waits: ours must stay open.
struct WaitMask {
    program: Option<u64>,
    kernel: u64,
    pair: [u64; 2],
}

impl WaitMask {
    fn of(number: u64, args: &[u64; 6]) -> WaitMask {
        let program = capture::wait_mask(number, args);
        WaitMask {
            program,
            kernel: program.map_or(0, signal::kernel_mask),
            pair: [0, 8],
        }
    }

    /// Gives it to the kernel. (It must stay where it is.)
    fn set(&mut self, number: u64, made: &mut [u64; 6]) {
        if self.program.is_none() {
            return;
        }
        self.pair[0] = (&raw const self.kernel) as u64;
        match number {
            nr::PSELECT6 => made[5] = self.pair.as_ptr() as u64,
            nr::PPOLL => made[3] = self.pair[0],
            _ => made[4] = self.pair[0],
        }
    }
}

/// Whether a write has written less than it was to because this thread was told
/// of a halt in the middle of it: nobody may see that.
#[inline]
fn is_cut_short(thread: &Thread, number: u64, args: &[u64; 6], result: i64) -> bool {
    result > 0
        && matches!(number, nr::WRITE | nr::SENDTO)
        && (result as u64) < args[2]
        && thread.asked.load(Acquire) != 0
        && thread.pending.load(Acquire) == 0
}

/// The owner of a lock that was waited for may have been killed: then the kernel
/// has marked it, in nobody's turn, and this thread is likely to be the first to
/// see it.
fn note_death(word: u64, blobs: &mut Blobs) {
    const OWNER_DIED: u32 = 0x4000_0000;
    if mem::read::<u32>(word).is_some_and(|word| word & OWNER_DIED != 0) {
        blobs.memory(0, word, 4);
    }
}

/// A call that does not wait as a rule, but may now: two events. `both` is an
/// argument that the kernel reads and writes, and how much; `keep` says which bytes
/// go with its end.
#[inline(never)]
pub fn waiting(
    thread: &Thread,
    row: &'static Syscall,
    args: &[u64; 6],
    both: Option<(usize, u64)>,
    keep: impl FnOnce(&mut Blobs, i64),
) -> i64 {
    let number = u64::from(row.nr);
    start(thread, row, args);
    let span = Span::begin();
    let redirected = Redirected::argument(thread, args, both);
    let made = redirected.args();
    if !redirected.is_direct() {
        turn::give(thread);
    }
    let mut result;
    loop {
        halt::enter(thread, number, span.since(), u64::MAX);
        // SAFETY: as in `plain::plain`.
        result = unsafe {
            arch::syscall_interruptible(number, &raw const made, thread.pending.as_ptr())
        };
        halt::back(thread, result);
        if result != -sys::EINTR || thread.pending.load(Acquire) != 0 {
            break;
        }
        // The descriptor of a `close` is gone, whatever came of it.
        if adopt::is_leaving(thread) && number != nr::CLOSE {
            return -sys::ERESTARTSYS;
        }
    }
    turn::take(thread);
    result = redirected.finish(thread, result);
    if result == -sys::EINTR
        && thread.pending.load(Acquire) != 0
        // The descriptor is gone, whatever came of it.
        && number != nr::CLOSE
        && signal::restarts(thread, number, args)
    {
        result = -sys::ERESTARTSYS;
    }
    let mut blobs = Blobs::new();
    keep(&mut blobs, result);
    finish(thread, row, args, result, &blobs);
    result
}

/// `close_range` that may wait for each of those it closes. (The descriptor of the arena
/// stays, so it may be two calls.)
pub(super) fn close_range(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    let number = u64::from(row.nr);
    start(thread, row, args);
    turn::give(thread);
    halt::enter(thread, number, Span::begin().since(), u64::MAX);
    let result = guard_descriptor(number, args)
        .unwrap_or_else(|| sys::call(number, args[0], args[1], args[2], 0, 0, 0));
    halt::back(thread, result);
    turn::take(thread);
    finish(thread, row, args, result, &Blobs::new());
    result
}

/// Whether closing a socket waits until what was sent has been taken.
pub(super) fn lingers(fd: u64) -> bool {
    const SOL_SOCKET: u64 = 1;
    let mut linger = [0u32; 2];
    let mut len = 8u32;
    let (to, len_at) = (linger.as_mut_ptr() as u64, (&raw mut len) as u64);
    sys::call(
        nr::GETSOCKOPT,
        fd,
        SOL_SOCKET,
        SO_LINGER.into(),
        to,
        len_at,
        0,
    ) == 0
        && linger[0] != 0
        && linger[1] != 0
}

pub(super) const SO_LINGER: u32 = 13;

/// Whether a descriptor is open for reading only.
fn is_for_reading(fd: u64) -> bool {
    const F_GETFL: u64 = 3;
    const O_ACCMODE: i64 = 3;
    let flags = sys::call(nr::FCNTL, fd, F_GETFL, 0, 0, 0, 0);
    flags >= 0 && flags & O_ACCMODE == 0
}

/// [`blocking`] in replay: the log says whether it was one event or two.
fn blocking_again(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> i64 {
    if !replay::is_blocking(thread) {
        return replay::plain(thread, row, args);
    }
    // What goes out is there at the start.
    let sends = thread.process().log.next_record().blobs().next().is_some();
    let row = if u64::from(row.nr) == nr::VMSPLICE && !sends {
        &table::VMSPLICE_READS
    } else {
        row
    };
    replay::start(thread, row, args);
    if u64::from(row.nr) == nr::FUTEX && pi::waits(args[1]) {
        pi::begun_again(thread, args);
    }
    let result = replay::finish(thread, row, args);
    if result == -sys::EINTR
        && let Some(mask) = capture::wait_mask(u64::from(row.nr), args)
    {
        signal::suspend_masks(thread, mask);
    }
    result
}

/// A wait for events that are there already: no need to give up the turn for
/// it, nor to redirect its results.
fn at_once(number: u64, args: [u64; 6]) -> Option<i64> {
    let mut now = args;
    match number {
        nr::POLL => now[2] = 0,
        nr::EPOLL_WAIT => now[3] = 0,
        _ => return None,
    }
    // SAFETY: as in `plain::plain`.
    let result = unsafe { arch::syscall(number, &now) };
    (result != 0).then_some(result)
}

/// Futex operations that do not wait are one event; those for which the kernel
/// would write into the word at moments of its own are done by the monitor.
fn futex_at_once(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> Option<i64> {
    const WAIT: u64 = 0;
    const WAIT_BITSET: u64 = 9;
    let result = match args[1] & 0x7f {
        WAIT | WAIT_BITSET => return None,
        _ if pi::waits(args[1]) => return Some(pi::lock(thread, row, args)),
        _ if pi::is_at_once(args[1]) => pi::at_once(thread, args),
        // SAFETY: as in `plain::plain`; wakes never block.
        _ => unsafe { arch::syscall(nr::FUTEX, args) },
    };
    let mut blobs = Blobs::new();
    if args[1] & 0x7f == 5 {
        // FUTEX_WAKE_OP changes the second word.
        blobs.memory(4, args[4], 4);
    } else if pi::is_at_once(args[1]) && result == 0 {
        blobs.memory(0, args[0], 4);
    }
    if let Some(entry) = log::call(
        thread,
        nr::FUTEX,
        args,
        row.args.len(),
        result,
        blobs.count(),
    ) {
        blobs.write(entry).commit();
    }
    Some(result)
}

/// The first half of a call that may block. The number of its event, if it has one.
pub fn start(thread: &Thread, row: &'static Syscall, args: &[u64; 6]) -> u64 {
    let mut blobs = Blobs::new();
    capture::inputs(row, args, &mut blobs);
    capture::awaited(row, args, &mut blobs);
    let number = u64::from(row.nr);
    let Some(entry) = log::start(thread, number, args, row.args.len(), blobs.count()) else {
        return 0;
    };
    let event = thread.process().log.next_event.get().wrapping_sub(1);
    blobs.write(entry).commit();
    event
}

/// The second half.
pub fn finish(thread: &Thread, row: &'static Syscall, args: &[u64; 6], result: i64, blobs: &Blobs) {
    let _ = args;
    if let Some(entry) = log::end(thread, u64::from(row.nr), result, blobs.count()) {
        blobs.write(entry).commit();
    }
}

/// One event for a call that was made by the monitor's own code; `more` goes
/// after what the table says.
pub fn finish_call(
    thread: &Thread,
    row: &'static Syscall,
    args: &[u64; 6],
    result: i64,
    more: &Blobs,
) {
    let before = [0; 6];
    let mut blobs = Blobs::new();
    capture::inputs(row, args, &mut blobs);
    capture::outputs(row, args, result, &before, &mut blobs);
    let count = blobs.count() + more.count();
    let number = u64::from(row.nr);
    if let Some(entry) = log::call(thread, number, args, row.args.len(), result, count) {
        more.write(blobs.write(entry)).commit();
    }
}

/// Whether the kernel itself begins a call of this kind again after a handler
/// that asked for it (SA_RESTART).
pub fn is_restartable(number: u64, args: &[u64; 6]) -> bool {
    match number {
        // Waits with a time limit, and waits for signals, never.
        7 | 23 | 34 | 35 | 65 | 69 | 70 | 128 | 130 | 220 | 230 | 232 | 270 | 271 | 281 | 441 => {
            false
        }
        nr::FUTEX => args[3] == 0,
        _ => true,
    }
}
