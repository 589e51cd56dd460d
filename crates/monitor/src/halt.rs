//! Halting: every thread of the program stops, in the program or on its way
//! there, and goes on later without having noticed (see `protocol::halt`).
//!
//! A thread that computes is told by a signal, and stops in its handler. One
//! that is in the monitor notes that it was told, and stops before it goes back
//! to the program. One that waits in the kernel is left there: when it comes
//! back it finds that the program is halted. New threads, children and images
//! look before their first instruction. Nothing of it is written to the log.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use protocol::halt::{Halt, Instant, LOOKS, THREADS_MAX, ThreadEntry, flag, state, stopped_in};

use crate::arch::{self, Regs};
use crate::state::{Thread, control};
use crate::sys::{self, nr};
use crate::{adopt, live, patcher, recorder, signal, timers};

/// How long a stopped thread waits before it looks whether there is still
/// somebody who could let it go.
const LOOK_AGAIN: u64 = 200_000_000;

/// How soon one that waits for the turn looks: nobody tells it that it is to go on before the others.
const SOON: u64 = 10_000_000;

fn halt() -> &'static Halt {
    &control().halt
}

/// Both clocks, now: as close to each other as a few looks allow.
fn now() -> Instant {
    const MONOTONIC: u64 = 1;
    let mut best = (u64::MAX, (0, 0));
    for _ in 0..LOOKS {
        let mut time = [0u64; 2];
        let to = time.as_mut_ptr() as u64;
        let before = arch::counter();
        sys::call(nr::CLOCK_GETTIME, MONOTONIC, to, 0, 0, 0, 0);
        let apart = arch::counter().wrapping_sub(before);
        if apart < best.0 {
            let ns = time[0] * 1_000_000_000 + time[1];
            best = (apart, (ns, before.wrapping_add(apart / 2)));
        }
    }
    best.1
}

pub fn entry(thread: &Thread) -> Option<&'static ThreadEntry> {
    let place = (thread.entry.get() as usize).checked_sub(1)?;
    control().entries.get(place)
}

/// A thread that begins takes an entry; `flags` are those of who made it.
pub fn register(thread: &Thread, flags: u32) {
    let control = control();
    let process = thread.process();
    thread.entry.set(0);
    let mut entries = control.entries.iter();
    let Some(place) = entries.position(|entry| entry.take(thread.tid.get())) else {
        return;
    };
    let entry = &control.entries[place & (THREADS_MAX - 1)];
    entry.flags.store(flags, Relaxed);
    entry.pid.store(process.pid.get(), Relaxed);
    entry.namespace.store(process.namespace.get(), Relaxed);
    entry.process.store(process.number.get(), Relaxed);
    entry.thread.store(thread.number.get(), Relaxed);
    entry.slot.store(thread.slot.get(), Relaxed);
    entry.image.store(process.image.get(), Release);
    control.entries_used.fetch_max(place as u32 + 1, AcqRel);
    thread.entry.set(place as u32 + 1);
}

/// A thread that ends, or whose process becomes another one, leaves its entry.
pub fn rise(thread: &Thread) {
    if let Some(entry) = entry(thread) {
        thread.entry.set(0);
        entry.free(thread.tid.get());
    }
}

/// What is special about a thread, for those that it makes.
pub fn flags(thread: &Thread) -> u32 {
    entry(thread).map_or(0, |entry| entry.flags.load(Relaxed))
}

/// A process has ended, or become another image: its entries are free.
pub fn rise_all(pid: u32, namespace: u32) {
    let control = control();
    let used = (control.entries_used.load(Acquire) as usize).min(THREADS_MAX);
    for entry in &control.entries[..used] {
        entry.free_of(pid, namespace);
    }
}

/// Whether this thread is to stop.
#[inline]
pub fn must_stop(thread: &Thread) -> bool {
    halt().is_on() && entry(thread).is_none_or(|entry| !entry.has(flag::EXEMPT | flag::LED))
}

/// Whether a debugger leads this thread while the program is halted.
fn is_led(thread: &Thread) -> bool {
    halt().is_on() && entry(thread).is_some_and(|entry| entry.has(flag::LED))
}

/// Since when time stands for a thread that a debugger leads while the program is halted (the
/// time-stamp counter), if it does.
pub fn stands_since(thread: &Thread) -> Option<u64> {
    let control = control();
    let halt = &control.halt;
    let number = halt.word.load(Acquire);
    let stands = number != 0 && is_led(thread) && halt.real_time.load(Relaxed) == 0;
    stands.then(|| halt.stood_still(number, &control.entries).1)
}

/// Whether the thread is to leave its call.
pub fn is_pulled(thread: &Thread) -> bool {
    entry(thread).is_some_and(|entry| entry.has(flag::PULL | flag::OUT))
}

/// Whether who is halted in the middle of a call goes back to before it.
pub fn leaves_call(thread: &Thread) -> bool {
    halt().leaving.load(Acquire) != 0 || entry(thread).is_some_and(|entry| entry.has(flag::OUT))
}

/// Whether it is to leave it this once, halted or not.
pub fn is_to_leave(thread: &Thread) -> bool {
    entry(thread)
        .is_some_and(|entry| entry.flags.fetch_and(!flag::LEAVE, AcqRel) & flag::LEAVE != 0)
}

/// The thread is where it goes on as `regs` say: if the program is halted, it
/// stops. It may have been given other registers meanwhile.
#[cold]
#[inline(never)]
pub fn at_edge(thread: &Thread, regs: &mut Regs, place: u32) {
    thread.asked.store(0, Relaxed);
    if live::is_paused() {
        live::wait(thread);
    }
    if !must_stop(thread) {
        regs.rip = patcher::to_stub(patcher::to_program(regs.rip));
        return;
    }
    adopt::return_from_vdso(regs);
    let rip = patcher::to_program(regs.rip);
    if let Some(entry) = entry(thread) {
        show(entry, &signal::general_of(regs, rip), 0);
    }
    stay(thread, place, || {
        adopt::leave_before(thread, rip, regs.rax, &regs.args());
    });
    if let Some(general) = entry(thread).and_then(changed) {
        signal::put_general(regs, &general);
        (regs.rip, regs.flags) = (general[16], general[17]);
    }
    // What it was about to run may have been patched since.
    regs.rip = patcher::to_stub(patcher::to_program(regs.rip));
}

/// The thread was interrupted in the program, with these registers.
pub fn in_program(thread: &Thread, general: &mut [u64; 18], xstate: u64) {
    let ran_on = thread.asked.swap(0, Relaxed);
    let rip = general[16];
    if let Some(entry) = entry(thread) {
        entry.ran_on.store(ran_on, Relaxed);
        show(entry, general, xstate);
    }
    thread.interrupted_at.store(rip, Release);
    let g = *general;
    stay(thread, stopped_in::PROGRAM, || {
        adopt::leave_before(thread, rip, g[13], &[g[8], g[9], g[12], g[2], g[0], g[1]]);
    });
    if let Some(changed) = entry(thread).and_then(changed) {
        *general = changed;
    }
    thread.interrupted_at.store(0, Release);
    general[16] = patcher::to_stub(general[16]);
}

/// The thread is about to wait in the kernel, in this call, which began then (the
/// program's time-stamp counter) and has a time limit (ns).
#[inline]
pub fn enter(thread: &Thread, number: u64, since: u64, limit: u64) {
    if let Some(entry) = entry(thread) {
        entry.call.store(number + 1, Relaxed);
        entry.since.store(since, Relaxed);
        entry.limit.store(limit, Relaxed);
        let state = if sends(number) {
            state::SENDS
        } else {
            state::CALL
        };
        entry.state.store(state, Release);
    }
}

/// It has come back with this.
#[inline]
pub fn back(thread: &Thread, result: i64) {
    if let Some(entry) = entry(thread) {
        entry.state.swap(state::RUNS, SeqCst);
        if halt().is_on() || live::is_paused() {
            came_back(thread, entry, result);
        }
    }
}

#[cold]
#[inline(never)]
fn came_back(thread: &Thread, entry: &ThreadEntry, result: i64) {
    if live::is_paused() {
        live::wait(thread);
    }
    if !must_stop(thread) {
        return;
    }
    if leaves_call(thread) {
        // Who is to leave its call for good stops behind it.
        thread.asked.store(1, Relaxed);
        return;
    }
    entry.result.store(result, Relaxed);
    // SAFETY: the registers that the thread came with lie on its monitor stack
    // until it leaves; only it touches them.
    let regs = unsafe { &*(thread.regs_at.get() as *const Regs) };
    let rip = patcher::to_program(regs.rip);
    show(entry, &signal::general_of(regs, rip), 0);
    stay(thread, stopped_in::CALL, || ());
    entry.set_registers.store(0, Relaxed);
}

/// Calls whose effect others of the program may see while they wait.
fn sends(number: u64) -> bool {
    matches!(
        number,
        nr::WRITE
            | nr::WRITEV
            | nr::PWRITE64
            | nr::PWRITEV
            | nr::PWRITEV2
            | nr::SENDTO
            | nr::SENDMSG
            | nr::SENDMMSG
            | nr::CONNECT
            | nr::VMSPLICE
            | nr::CLOSE
            | nr::IOCTL
            | 40 // sendfile
            | 65 // semop
            | 69 // msgsnd
            | 220 // semtimedop
            | 242 // mq_timedsend
            | 275 // splice
            | 276 // tee
    )
}

/// The thread waits for something that is none of the program's calls, and looks
/// whether it is halted before it goes on there.
pub fn away<T>(thread: &Thread, state: u32, wait: impl FnOnce() -> T) -> T {
    let set = |state| {
        if let Some(entry) = entry(thread) {
            entry.state.swap(state, SeqCst);
        }
    };
    set(state);
    let result = wait();
    set(state::RUNS);
    if (halt().is_on() || live::is_paused())
        && let Some(entry) = entry(thread)
    {
        came_back(thread, entry, 0);
    }
    result
}

/// Whether a thread that waits for the turn is to have none while the program is halted. (Who is
/// to leave its call needs one for that.)
pub fn must_sit_out(thread: &Thread) -> bool {
    must_stop(thread) && !is_pulled(thread) && !leaves_call(thread)
}

/// A thread that waits for the turn stands already: it waits on until the halt is over.
pub fn sit_out(thread: &Thread) {
    let word = &halt().word;
    loop {
        let number = word.load(Acquire);
        if number == 0 || !must_sit_out(thread) {
            return;
        }
        sys::futex_wait(word, number, SOON);
        if word.load(Acquire) == number {
            end_if_forsaken(number);
        }
    }
}

/// Ends a halt if who has halted the program is gone: it goes on by itself.
fn end_if_forsaken(number: u32) {
    if !recorder::is_alive() {
        let control = control();
        control.halt.end(number, &control.entries, now());
        sys::futex_wake(&halt().word, u32::MAX >> 1);
    }
}

fn show(entry: &ThreadEntry, general: &[u64; 18], xstate: u64) {
    for (place, value) in entry.registers.iter().zip(general) {
        place.store(*value, Relaxed);
    }
    entry.xstate_at.store(xstate, Relaxed);
}

/// The registers that a debugger has given to a thread that was stopped.
fn changed(entry: &ThreadEntry) -> Option<[u64; 18]> {
    if entry.set_registers.swap(0, AcqRel) == 0 {
        return None;
    }
    let mut general = [0; 18];
    for (value, place) in general.iter_mut().zip(&entry.registers) {
        *value = place.load(Relaxed);
    }
    Some(general)
}

/// Waits until the halt is over. It may be over and another one on before the thread has seen
/// that: each is told (`tell`) what it is to know.
fn stay(thread: &Thread, place: u32, tell: impl Fn()) {
    let halt = halt();
    loop {
        let number = halt.word.load(Acquire);
        if number == 0 || !must_stop(thread) {
            return;
        }
        if place == stopped_in::CALL && leaves_call(thread) {
            thread.asked.store(1, Relaxed);
            return;
        }
        tell();
        if let Some(entry) = entry(thread) {
            entry.called_at.store(thread.regs_at.get(), Relaxed);
            entry.stop(number, halt.asked_at.get(), place, now());
        }
        halt.arrivals.fetch_add(1, AcqRel);
        sys::futex_wake(&halt.arrivals, 1);
        timers::stop(thread, number);
        wait_for_end(thread, place, number);
        // Who leaves its call in the middle of the halt is no sign that this is over.
        let is_out = place == stopped_in::CALL && leaves_call(thread);
        let is_over = halt.word.load(Acquire) != number;
        if (is_over || !is_out) && !is_led(thread) {
            timers::go_on(thread, number);
        }
        if let Some(entry) = entry(thread) {
            entry.state.swap(state::RUNS, SeqCst);
        }
    }
}

fn wait_for_end(thread: &Thread, place: u32, number: u32) {
    let word: &AtomicU32 = &halt().word;
    let is_out = || place == stopped_in::CALL && leaves_call(thread);
    while word.load(Acquire) == number && must_stop(thread) && !is_out() {
        sys::futex_wait(word, number, LOOK_AGAIN);
        if word.load(Acquire) == number {
            end_if_forsaken(number);
        }
    }
}
