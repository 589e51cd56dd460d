//! Turns: of the threads that share memory, one runs program code.
//!
//! The turn is a futex lock in the arena, so that processes that share memory
//! can share it. It passes where a thread may block, at a call when the slice
//! is used up, or when the holder is preempted. Handing over is fair: the
//! kernel wakes waiters in the order they came, and a thread that gave up its
//! turn because its slice was over lets another take it first.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::halt::state;
use protocol::layout::PREEMPT_SIGNAL;
use protocol::record::kind;
use protocol::shared::Domain;

use crate::recorder::{self, topic};
use crate::state::{Thread, control, domain, space};
use crate::{arch, halt, log, mode, replay, served, sys};

/// How long a thread may keep the turn while others wait (ns).
pub const SLICE: u64 = 3_000_000;
/// [`SLICE`] in ticks, roughly (the counter runs at 1 to 5 GHz).
const SLICE_TICKS: u64 = (SLICE * 2) >> protocol::shared::TICK_SHIFT;

/// How long one has the turn at least that only yields: about 5 us.
const YIELD_TICKS: u64 = (5_000 * 2) >> protocol::shared::TICK_SHIFT;

/// In [`Domain::last_process`]: none has had the turn.
const NOBODY: u32 = u32::MAX;
/// In [`Domain::last_process`]: a process that has had another image since.
const EARLIER_IMAGE: u32 = u32::MAX - 1;

const FREE: u32 = 0;
const HELD: u32 = 1;
const WANTED: u32 = 2;

/// Says who has the turn, for those who want it.
fn set_holder(thread: &Thread, domain: &Domain) {
    let process = thread.process();
    let namespace = process.namespace.get();
    domain.holder_namespace.store(namespace, Relaxed);
    let holder = holder_word(process.pid.get(), thread.tid.get());
    domain.holder.store(holder, Release);
}

/// What [`Domain::holder`] says of a thread.
fn holder_word(process: u32, thread: u32) -> u64 {
    u64::from(process) << 32 | u64::from(thread)
}

fn took(thread: &Thread, domain: &Domain) {
    set_holder(thread, domain);
    domain.since.store(arch::ticks(), Relaxed);
    domain.takes.fetch_add(1, Release);
    thread.holds_turn.set(1);
    let number = thread.process().number.get();
    let before = domain.last_process.load(Relaxed);
    if before != number {
        domain.last_process.store(number, Relaxed);
        let sequence = domain.sequence.fetch_add(1, AcqRel) + 1;
        let index = (core::ptr::from_ref(domain) as u64
            - core::ptr::from_ref(&control().domains[0]) as u64)
            / core::mem::size_of::<Domain>() as u64;
        log::done(log::other(
            thread,
            kind::TURN,
            &[index, sequence, u64::from(before)],
            0,
        ));
    }
}

/// Waits for the turn.
pub fn take(thread: &Thread) {
    if space().turns.get() != 0 && thread.holds_turn.get() == 0 {
        take_behind(thread, None);
    }
}

/// Waits for the turn; not before somebody else has had it, if so many had before this one
/// gave it away.
fn take_behind(thread: &Thread, mut before: Option<u32>) {
    loop {
        let domain = domain();
        let is_behind = before.is_some();
        if is_behind
            || domain
                .word
                .compare_exchange(FREE, HELD, Acquire, Relaxed)
                .is_err()
        {
            let before = before.take();
            halt::away(thread, state::TURN, || wait(thread, domain, before));
        }
        // It may have been merged into another while we waited.
        if domain.forward.load(Acquire) != 0 {
            domain.word.store(FREE, Release);
            sys::futex_wake(&domain.word, u32::MAX >> 1);
            continue;
        }
        set_holder(thread, domain);
        let frozen = thread.process().frozen.load(Acquire);
        if frozen != 0 && frozen != thread.tid.get() {
            // The process is ending, or another thread of it execs: this one
            // has nothing more to say, and the log may be the next image's.
            release(domain);
            let frozen = &thread.process().frozen;
            halt::away(thread, state::TURN, || {
                while frozen.load(Acquire) != 0 {
                    sys::futex_wait(frozen, frozen.load(Acquire), 50_000_000);
                }
            });
            continue;
        }
        took(thread, domain);
        return;
    }
}

/// So many of those who wait look after the holder, each once a slice; that one of them
/// is killed matters little then. Hundreds would do nothing else.
const WATCHERS: u32 = 4;
/// How often the others look, in case that all of those were killed (ns).
const FALLBACK: u64 = 250_000_000;
/// How long nobody needs to have looked for that to be so (ticks, see [`SLICE_TICKS`]).
const FORSAKEN_TICKS: u64 = 20 * SLICE_TICKS;

/// For how long one that has given the turn away lets it lie for the one that was woken (ns). On a
/// busy machine that one comes late, and is not to find it taken again each time.
const LIES: u64 = 50_000_000;

fn wait(thread: &Thread, domain: &Domain, before: Option<u32>) {
    domain.waiting.fetch_add(1, Relaxed);
    let mut watches = false;
    let mut seen = domain.takes.load(Acquire);
    if before == Some(seen) {
        // Who was woken comes first, and this one is behind those that wait already: it sleeps
        // among them until then. But not for ever: the one that was woken may have gone.
        sys::futex_wait(&domain.word, FREE, LIES);
    }
    loop {
        // Who is halted would stand with the turn, and one that is led out of the halt may need it.
        if halt::must_sit_out(thread) {
            // This one may have been woken to take it.
            sys::futex_wake(&domain.word, 1);
            halt::sit_out(thread);
        }
        if domain.word.swap(WANTED, Acquire) == FREE {
            break;
        }
        watches = watches || begin_to_watch(domain);
        let limit = if watches { SLICE } else { FALLBACK };
        let timed_out = sys::futex_wait(&domain.word, WANTED, limit) == -sys::ETIMEDOUT;
        if domain.forward.load(Acquire) != 0 {
            // Whatever the word says: nobody runs under this domain any more.
            break;
        }
        let now = domain.takes.load(Acquire);
        if now == seen && timed_out && !halt::must_stop(thread) {
            let held = arch::ticks().wrapping_sub(domain.since.load(Relaxed));
            if !watches && held > FORSAKEN_TICKS {
                domain.watching.store(0, Relaxed);
            }
            hurry(thread, domain);
        }
        seen = now;
    }
    decrease(&domain.waiting);
    // One of those who sleep for long is to look from now on.
    if watches && decrease(&domain.watching) == 0 && domain.waiting.load(Relaxed) != 0 {
        sys::futex_wake(&domain.word, 1);
    }
}

fn begin_to_watch(domain: &Domain) -> bool {
    let more = |count: u32| (count < WATCHERS).then_some(count + 1);
    domain.watching.fetch_update(Relaxed, Relaxed, more).is_ok()
}

/// One less, but never less than none. How many are left.
fn decrease(count: &AtomicU32) -> u32 {
    let less = |count: u32| Some(count.saturating_sub(1));
    count
        .fetch_update(Relaxed, Relaxed, less)
        .map_or(0, |before| before.saturating_sub(1))
}

/// Asks the holder to give up the turn; takes it from a holder that is dead.
/// One in another pid namespace cannot be asked: its ids are not its ids here.
fn hurry(thread: &Thread, domain: &Domain) {
    let holder = domain.holder.load(Acquire);
    let namespace = domain.holder_namespace.load(Acquire);
    // The same holder behind it: that is its namespace.
    if holder == 0
        || namespace != thread.process().namespace.get()
        || domain.holder.load(Acquire) != holder
    {
        return;
    }
    let signal = PREEMPT_SIGNAL as u64;
    let (pid, tid) = (holder >> 32, holder & u64::from(u32::MAX));
    let answer = sys::call(sys::nr::TGKILL, pid, tid, signal, 0, 0, 0);
    if answer == -sys::ESRCH || sys::has_ended(pid as u32) {
        reclaim(domain, holder);
        return;
    }
    let held = arch::ticks().wrapping_sub(domain.since.load(Relaxed));
    if held <= STUCK_TICKS {
        return;
    }
    if sys::waits_in(tid as u32).starts_with(b"do_signal_stop") {
        let text = b"a process was stopped (SIGSTOP, SIGTSTP) while it computed: those that share \
                     memory with it wait until it goes on (SIGCONT)";
        recorder::note(thread, topic::STOPPED, 1, text);
    } else if served::is_on() && served::is_faulting(tid as u32) {
        let text = b"a process waits for a page of a file that the program serves itself, and who \
                     would serve it waits for that process: the recording ends here, and the \
                     program runs on unrecorded";
        recorder::note(thread, topic::SERVED, 1, text);
        recorder::give_up();
        reclaim(domain, holder);
    }
}

/// How long somebody has to have the turn, and not to hear that it is wanted, before it
/// is asked whether that is for ever (ticks, see [`SLICE_TICKS`]).
const STUCK_TICKS: u64 = 1000 * SLICE_TICKS;

/// The process that a vfork made is gone, perhaps without having given the turn back.
pub fn reclaim_from(child: u32) {
    reclaim(domain(), holder_word(child, child));
}

/// A thread that had the turn is gone without having given it back.
fn reclaim(domain: &Domain, holder: u64) {
    if domain
        .holder
        .compare_exchange(holder, 0, AcqRel, Relaxed)
        .is_ok()
    {
        domain.word.store(FREE, Release);
        sys::futex_wake(&domain.word, 1);
    }
}

/// Gives up the turn. True: somebody was woken to take it.
pub fn give(thread: &Thread) -> bool {
    if thread.holds_turn.get() == 0 {
        return false;
    }
    thread.holds_turn.set(0);
    release(domain())
}

fn release(domain: &Domain) -> bool {
    domain.holder.store(0, Relaxed);
    domain.word.swap(FREE, Release) == WANTED && sys::futex_wake(&domain.word, 1) > 0
}

/// The process that has the turn is about to become another image. What it
/// takes then is another turn: its memory begins anew.
pub fn leave_image(thread: &Thread) {
    if thread.holds_turn.get() != 0 {
        domain().last_process.store(EARLIER_IMAGE, Relaxed);
    }
}

/// Whether others wait.
#[inline]
pub fn is_wanted(domain: &Domain) -> bool {
    domain.word.load(Relaxed) == WANTED
}

/// The thread is at a call: others get a chance, if the log says so, or if they
/// wait and the slice is used up; `yields`: if they wait.
#[inline(always)]
pub fn at_call(thread: &Thread, yields: bool) {
    if mode::is_replay() {
        replay::offer(thread);
    } else if space().turns.get() != 0 {
        if yields {
            yield_now(thread);
        } else {
            offer(thread);
        }
    }
}

/// Gives others a chance, if any wait and the slice is used up.
#[inline]
fn offer(thread: &Thread) {
    let wanted = {
        let domain = domain();
        is_wanted(domain)
            && (thread.wants_preempt.load(Relaxed) != 0
                || arch::ticks().wrapping_sub(domain.since.load(Relaxed)) > SLICE_TICKS)
    };
    if wanted {
        pass_before_call(thread);
    }
}

/// Gives others the turn, if any wait, and this thread has had it for longer than it
/// takes to give it away. (Threads that do nothing but yield would else wake each
/// other for each time.)
fn yield_now(thread: &Thread) {
    let domain = domain();
    let had = arch::ticks().wrapping_sub(domain.since.load(Relaxed));
    if is_wanted(domain) && (had > YIELD_TICKS || thread.wants_preempt.load(Relaxed) != 0) {
        pass_before_call(thread);
    }
}

fn pass_before_call(thread: &Thread) {
    // What the thread did up to here came before what others do now.
    log::done(log::other(thread, kind::PREEMPT, &[], 0));
    pass(thread);
}

/// Does something for the call that the thread is at, without the turn, as if it had passed
/// that before. It touches nothing of the program's.
pub fn without<T>(thread: &Thread, act: impl FnOnce() -> T) -> T {
    log::done(log::other(thread, kind::PREEMPT, &[], 0));
    give(thread);
    let result = halt::away(thread, state::TURN, act);
    take(thread);
    result
}

/// Lets somebody else have the turn, then waits for it again.
pub fn pass(thread: &Thread) {
    thread.wants_preempt.store(0, Relaxed);
    let before = domain().takes.load(Acquire);
    if give(thread) {
        take_behind(thread, Some(before));
    } else {
        take(thread);
    }
}

/// Whether a thread that yields has done so when the turn is seen to: it would else wait for
/// programs that have nothing to do with it, at every yield, and those that have wait for the turn.
#[inline]
pub fn has_yielded() -> bool {
    space().turns.get() != 0 && is_wanted(domain())
}

/// From now on turns matter in this address space; the caller has the turn.
pub fn begin(thread: &Thread) {
    if space().turns.get() != 0 || mode::is_replay() || mode::is_live() {
        return;
    }
    if space().domain.load(Acquire) == 0 {
        space().domain.store(fresh_domain(), Release);
    }
    space().turns.set(1);
    let domain = domain();
    domain.word.store(HELD, Release);
    domain.last_process.store(NOBODY, Relaxed);
    took(thread, domain);
}

/// A domain that nobody uses. Domain 0 stands for "none yet": most processes
/// never need one.
pub fn fresh_domain() -> u32 {
    let control = control();
    let start = control.next_domain.fetch_add(1, AcqRel);
    for step in 0..protocol::shared::DOMAINS as u32 {
        let index = start.wrapping_add(step) as usize & (protocol::shared::DOMAINS - 1);
        let domain = &control.domains[index];
        if index != 0
            && domain
                .members
                .compare_exchange(0, 1, AcqRel, Relaxed)
                .is_ok()
        {
            domain.word.store(FREE, Relaxed);
            domain.forward.store(0, Relaxed);
            domain.waiting.store(0, Relaxed);
            domain.watching.store(0, Relaxed);
            // The sequence goes on: no number comes twice.
            domain.last_process.store(NOBODY, Release);
            return index as u32;
        }
    }
    // All in use: share the last. Correct, only slower.
    protocol::shared::DOMAINS as u32 - 1
}

/// This address space ends, or leaves its domain: give the domain back if
/// nobody else is in it.
pub fn leave_domain() {
    if space().domain.load(Acquire) != 0 {
        domain().members.fetch_sub(1, AcqRel);
        space().domain.store(0, Release);
    }
}

/// Joins this address space's order of turns to another's. The caller has the
/// turn of the one and gets the turn of both.
pub fn merge(thread: &Thread, other: u32) {
    let control = control();
    while control
        .merge_lock
        .compare_exchange(0, 1, Acquire, Relaxed)
        .is_err()
    {
        sys::futex_wait(&control.merge_lock, 1, 1_000_000);
    }
    let mine = domain();
    let own = space().domain.load(Acquire);
    let mut target = other as usize & (protocol::shared::DOMAINS - 1);
    while control.domains[target].forward.load(Acquire) != 0 {
        target = control.domains[target].forward.load(Acquire) as usize - 1;
    }
    let merged = target as u32 != own;
    if merged {
        let members = mine.members.load(Relaxed);
        control.domains[target].members.fetch_add(members, AcqRel);
        mine.forward.store(target as u32 + 1, Release);
    }
    control.merge_lock.store(0, Release);
    sys::futex_wake(&control.merge_lock, 1);
    if merged {
        // Whoever waits for the old turn finds the way to the new one.
        thread.holds_turn.set(0);
        mine.word.store(FREE, Release);
        sys::futex_wake(&mine.word, u32::MAX >> 1);
        take(thread);
    }
}

/// Turns do not matter any more: one thread is left and nothing is shared.
pub fn end(thread: &Thread) {
    if space().threads.get() == 1 && space().shared.get() == 0 && space().turns.get() != 0 {
        give(thread);
        space().turns.set(0);
        leave_domain();
    }
}
