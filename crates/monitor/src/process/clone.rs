//! `fork`, `vfork` and `clone`: how threads and processes begin that another one
//! makes. The kernel makes them; each gets a record, a stack and, if it is a
//! process, a log of its own before it runs.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::halt::state;
use protocol::layout::{SLOT_SIZE, SLOTS_BASE, SLOTS_MAX};
use protocol::record::{at, begin, kind, tag};
use protocol::syscall::Syscall;

use crate::arch::{self, Regs};
use crate::capture::Blobs;
use crate::state::{Process, Thread, control, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{
    call, descriptors, halt, live, log, mem, mode, observe, patcher, replay, signal, timers, turn,
    words,
};

use super::{ARCH_GET_FS, be_registered, begin_log, prepare, regs_place, settle, watch_calls};

const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const CLONE_NEWPID: u64 = 0x2000_0000;

/// A slot whose thread is gone, or a new one.
fn take_slot() -> Option<u32> {
    let space = space();
    for slot in 1..space.slots_used.get() {
        let thread = thread_in_slot(slot);
        // Of one that was killed, the word is still to be cleared.
        if thread.tid_word.load(Acquire) == 0 && thread.is_child.get() == 0 {
            return Some(slot);
        }
    }
    let slot = space.slots_used.get();
    if u64::from(slot) >= SLOTS_MAX
        || !sys::map_anonymous(SLOTS_BASE + u64::from(slot) * SLOT_SIZE, SLOT_SIZE)
    {
        return None;
    }
    space.slots_used.set(slot + 1);
    Some(slot)
}

/// `clone`, `fork` and `vfork`.
pub fn clone(
    thread: &Thread,
    regs: &mut Regs,
    row: &'static Syscall,
    args: [u64; 6],
) -> Option<i64> {
    let [flags, stack, parent_tid, child_tid, tls] = match u64::from(row.nr) {
        nr::FORK => [17, 0, 0, 0, 0],
        nr::VFORK => [CLONE_VM | CLONE_VFORK | 17, 0, 0, 0, 0],
        _ => [args[0], args[1], args[2], args[3], args[4]],
    };
    descriptors::note_clone(flags);
    let what = Clone {
        row,
        args,
        flags,
        stack,
        parent_tid,
        child_tid,
        tls,
    };
    if flags & CLONE_VM == 0 && mode::is_replay() {
        Some(replay::fork(thread, row, &args, regs))
    } else if flags & CLONE_VM == 0 {
        fork(thread, regs, &what)
    } else {
        spawn(thread, regs, &what)
    }
}

struct Clone {
    row: &'static Syscall,
    args: [u64; 6],
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
}

/// A child with a copy of this memory.
fn fork(thread: &Thread, regs: &mut Regs, what: &Clone) -> Option<i64> {
    let process = thread.process();
    let number = control().next_process.fetch_add(1, AcqRel);
    let parent = process.number.get();
    // Live, others may write something before this call is written down.
    let is_two = mode::is_live() && observe::is_on() && space().threads.get() > 1;
    let parent_event = match is_two {
        true => call::start(thread, what.row, &what.args),
        false => {
            if mode::is_live() {
                observe::enter(thread);
            }
            process.log.next_event.get()
        }
    };
    let namespace = namespace_of_child(process, what.flags);
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    let flags = what.flags & !(CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID);
    if space().shared.get() != 0 {
        crate::state::domain().members.fetch_add(1, AcqRel);
    }
    let lock = live::lock(thread);
    let result = sys::call(nr::CLONE, flags, 0, what.parent_tid, 0, what.tls, 0);
    if result == 0 {
        live::forked();
        process.namespace.set(namespace);
        process.next_namespace.set(namespace);
        be_forked(thread, number, parent, parent_event);
        forked_child_tid(thread, what.flags, what.child_tid);
        if what.stack != 0 {
            regs.rsp = what.stack;
        }
        return Some(0);
    }
    drop(lock);
    if result < 0 && space().shared.get() != 0 {
        crate::state::domain().members.fetch_sub(1, AcqRel);
    }
    let mut more = Blobs::new();
    if result > 0 {
        more.words(tag::CHILD, &[u64::from(number)]);
        if what.flags & (CLONE_PARENT_SETTID | CLONE_PIDFD) != 0 {
            more.memory(2, what.parent_tid, 4);
        }
    }
    match is_two {
        true => call::finish(thread, what.row, &what.args, result, &more),
        false => call::finish_call(thread, what.row, &what.args, result, &more),
    }
    restore_mask(thread);
    Some(result)
}

/// Children are in the namespace that was chosen for them, or in one of their
/// own.
fn namespace_of_child(process: &Process, flags: u64) -> u32 {
    if flags & CLONE_NEWPID != 0 {
        fresh_namespace()
    } else {
        process.next_namespace.get()
    }
}

fn fresh_namespace() -> u32 {
    control().next_domain.fetch_add(1, AcqRel)
}

/// `unshare` or `setns` was done: children may be in another pid namespace.
pub fn enter_namespaces(process: &Process, number: u64, args: &[u64; 6]) {
    let enters = match number {
        nr::UNSHARE => args[0] & CLONE_NEWPID != 0,
        // Whatever the descriptor is of.
        _ => args[1] == 0 || args[1] & CLONE_NEWPID != 0,
    };
    if enters {
        process.next_namespace.set(fresh_namespace());
    }
}

/// Back to the program's mask, unless a signal waits: then all stays blocked
/// until it has been delivered.
pub(super) fn restore_mask(thread: &Thread) {
    if thread.pending.load(Acquire) == 0 {
        sys::signal_mask(signal::kernel_mask(thread.mask.get()));
    }
}

/// We are the child: this thread is all there is.
fn be_forked(thread: &Thread, number: u32, parent: u32, parent_event: u64) {
    let process = thread.process();
    alone(thread);
    process.number.set(number);
    process.image.set(0);
    process.pid.set(sys::getpid());
    log::reset(process, 0, 0);
    thread.tid.set(sys::gettid());
    if space().shared.get() == 0 {
        space().turns.set(0);
        space().domain.store(0, Relaxed);
    }
    watch_calls();
    thread.entry_flags.set(halt::flags(thread));
    be_registered(thread);
    turn::take(thread);
    begin_log(thread, begin::FORK, parent, parent_event);
    sys::signal_mask(signal::kernel_mask(thread.mask.get()));
}

/// What a forked child's `clone` asked for.
pub fn forked_child_tid(thread: &Thread, flags: u64, child_tid: u64) {
    if flags & CLONE_CHILD_SETTID != 0 {
        mem::write(child_tid, &thread.tid.get());
    }
    if flags & CLONE_CHILD_CLEARTID != 0 {
        thread.child_tid.set(child_tid);
    }
}

/// Of a forked process, this thread is all there is.
pub fn alone(thread: &Thread) {
    let space = space();
    let process = thread.process();
    for slot in 0..space.slots_used.get() {
        if slot != thread.slot.get() {
            thread_in_slot(slot).tid_word.store(0, Relaxed);
            thread_in_slot(slot).is_child.set(0);
        }
    }
    for other in &space.processes {
        if !core::ptr::eq(other, process) {
            other.taken.set(0);
            other.log.lives.set(0);
            log::forget_chunk(other);
        }
    }
    space.threads.set(1);
    space.children.set(0);
    thread.is_child.set(0);
    space.breakpoint.set(0);
    // Locks on memory are not inherited.
    space.locks.set(0);
    process.threads.set(1);
    process.next_thread.set(thread.number.get() + 1);
    process.frozen.store(0, Relaxed);
    thread.tid_word.store(1, Relaxed);
    thread.has_timer.set(0);
    timers::forked(process);
    thread.pending.store(0, Relaxed);
    thread.held.set(0);
    thread.holds_turn.set(0);
    thread.robust_list.set(0);
    if mode::is_replay() {
        watch_calls();
    }
}

/// A thread, or a child that shares this memory until it execs.
fn spawn(thread: &Thread, regs: &mut Regs, what: &Clone) -> Option<i64> {
    let is_thread = what.flags & CLONE_THREAD != 0;
    let fail = |errno: i64| {
        call::finish_call(thread, what.row, &what.args, -errno, &Blobs::new());
        Some(-errno)
    };
    let lock = live::lock(thread);
    let Some(slot) = take_slot() else {
        return fail(sys::EAGAIN);
    };
    let process = thread.process();
    let home = if is_thread {
        Some(process)
    } else {
        take_process(process, what.flags)
    };
    let Some(home) = home else {
        return fail(sys::EAGAIN);
    };

    turn::begin(thread);
    let child = thread_in_slot(slot);
    child.tid_word.store(1, Release);
    let number = if is_thread {
        let number = process.next_thread.get();
        process.next_thread.set(number + 1);
        number
    } else {
        0
    };
    prepare(child, home, slot, number);
    child.mask.set(thread.mask.get());
    child.entry_flags.set(halt::flags(thread));
    child.filter.set(thread.filter.get());
    child.counter_faults.set(thread.counter_faults.get());
    child.maker.set(thread.number.get());
    child.start.set(regs.rip);
    if what.flags & CLONE_CHILD_CLEARTID != 0 {
        child.child_tid.set(what.child_tid);
        if !is_thread && what.child_tid != 0 {
            words::begin(child);
        }
    }
    if !is_thread {
        child.alt.set(thread.alt.get());
        child.begins.set(1);
        child.parent_process.set(process.number.get());
        child.parent_event.set(process.log.next_event.get());
    }
    let mut child_regs = *regs;
    child_regs.rax = 0;
    if what.stack != 0 {
        child_regs.rsp = what.stack;
    }
    let place = regs_place(child.this.get());
    // SAFETY: the new thread's own stack, which nobody uses yet.
    unsafe { core::ptr::write(place, child_regs) };
    child.regs_at.set(place as u64);
    child.call.set(0);
    child.waits.set(0);
    let word = place as u64 - 64;
    // A thread's record begins with its own address.
    mem::copy(word, child.this.as_ptr() as u64, 8);

    if mode::is_replay() {
        return Some(spawn_again(thread, what, child, word));
    }
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    let dropped = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
    let mut flags = (what.flags & !dropped) | CLONE_CHILD_CLEARTID;
    if what.flags & CLONE_SETTLS == 0 {
        flags &= !CLONE_SETTLS;
    }
    space().threads.set(space().threads.get() + 1);
    if is_thread {
        process.threads.set(process.threads.get() + 1);
    }
    if mode::is_live() && what.flags & CLONE_CHILD_SETTID != 0 && is_thread {
        child.set_tid.set(what.child_tid);
    }
    drop(lock);
    let waits = what.flags & CLONE_VFORK != 0;
    if waits {
        let event = call::start(thread, what.row, &what.args);
        if mode::is_live() {
            child.parent_event.set(event);
        }
        turn::give(thread);
    }
    // SAFETY: the word at `word` is the child's record, the stack below it is
    // the child's.
    let make = || unsafe {
        arch::clone_on_stack(
            flags,
            word,
            what.parent_tid,
            child.tid_word.as_ptr() as u64,
            what.tls,
        )
    };
    let result = match waits {
        true => halt::away(thread, state::AWAY, make),
        false => make(),
    };
    if waits {
        if result > 0 {
            // Killed in the middle of its turn, it could not give it back.
            turn::reclaim_from(result as u32);
        }
        turn::take(thread);
    }
    let _lock = live::lock(thread);
    if result < 0 {
        words::forget(child);
        child.tid_word.store(0, Release);
        space().threads.set(space().threads.get() - 1);
        if is_thread {
            process.threads.set(process.threads.get() - 1);
        }
    } else if what.flags & CLONE_CHILD_SETTID != 0 && is_thread && !mode::is_live() {
        // Nobody else runs before this thread gives up its turn.
        mem::write(what.child_tid, &(result as u32));
    }
    let mut more = Blobs::new();
    if result > 0 {
        let made = if is_thread {
            u64::from(number)
        } else {
            u64::from(home.number.get())
        };
        more.words(tag::CHILD, &[made]);
        if what.flags & (CLONE_PARENT_SETTID | CLONE_PIDFD) != 0 {
            more.memory(2, what.parent_tid, 4);
        }
    }
    if waits {
        call::finish(thread, what.row, &what.args, result, &more);
        // It has exec'd or ended: its place is free again.
        home.taken.set(0);
        if result > 0 {
            space().threads.set(space().threads.get() - 1);
        }
        turn::end(thread);
    } else {
        call::finish_call(thread, what.row, &what.args, result, &more);
        if !is_thread && result < 0 {
            home.taken.set(0);
        }
    }
    restore_mask(thread);
    Some(result)
}

fn fs_base() -> u64 {
    let mut fs = 0u64;
    let place = (&raw mut fs) as u64;
    sys::call(nr::ARCH_PRCTL, ARCH_GET_FS, place, 0, 0, 0, 0);
    fs
}

/// [`spawn`] in replay: no kernel thread is made.
fn spawn_again(thread: &Thread, what: &Clone, child: &'static Thread, word: u64) -> i64 {
    let is_thread = what.flags & CLONE_THREAD != 0;
    // Unless told otherwise, it begins with its maker's.
    let tls = if what.flags & CLONE_SETTLS != 0 {
        what.tls
    } else {
        fs_base()
    };
    if what.flags & CLONE_VFORK != 0 {
        replay::settle(thread);
        let event = thread.process().log.next_event.get();
        replay::start(thread, what.row, &what.args);
        replay::begin_thread(child, 0, tls, word);
        if replay::begin_beside(thread, child, event) {
            replay::run_beside(thread, child);
        }
        return replay::finish(thread, what.row, &what.args);
    }
    replay::settle(thread);
    let event = thread.process().log.next_event.get();
    let result = replay::clone_result(thread, what.row, &what.args);
    if result < 0 {
        words::forget(child);
        child.tid_word.store(0, Release);
        if !is_thread {
            child.process().taken.set(0);
        }
        return result;
    }
    replay::begin_thread(child, result as u32, tls, word);
    if !is_thread && !replay::begin_beside(thread, child, event) {
        return result;
    }
    space().threads.set(space().threads.get() + 1);
    if is_thread {
        thread
            .process()
            .threads
            .set(thread.process().threads.get() + 1);
        if what.flags & CLONE_CHILD_SETTID != 0 {
            mem::write(what.child_tid, &(result as u32));
        }
    }
    result
}

/// A place for a process that shares this memory.
fn take_process(parent: &Process, flags: u64) -> Option<&'static Process> {
    let place = space().processes.iter().find(|p| p.taken.get() == 0)?;
    place.taken.set(1);
    place.log.lives.set(0);
    place
        .number
        .set(control().next_process.fetch_add(1, AcqRel));
    place.image.set(0);
    place.pid.set(0);
    let namespace = namespace_of_child(parent, flags);
    place.namespace.set(namespace);
    place.next_namespace.set(namespace);
    place.threads.set(1);
    place.next_thread.set(1);
    place.frozen.store(0, Relaxed);
    for (to, from) in place.actions.iter().zip(&parent.actions) {
        to.set(from.get());
    }
    descriptors::forget_all(place);
    timers::begin(place);
    log::reset(place, 0, 0);
    Some(place)
}

/// The new thread runs: makes itself at home, waits for its turn, and returns
/// the registers it begins with.
pub extern "C" fn child_begin(thread: &'static Thread) -> *mut Regs {
    if mode::is_replay() {
        if thread.begins.get() != 0 {
            replay::vfork_child_began(thread);
        } else {
            replay::thread_began(thread);
        }
        let place = regs_place(thread.this.get());
        // SAFETY: written by the thread that made this one.
        let regs = unsafe { &mut *place };
        signal::deliver(thread, regs, at::CALL_EXIT);
        call::leave(thread, regs);
        return place;
    }
    settle(thread);
    let process = thread.process();
    let vfork = thread.begins.get() != 0;
    if vfork {
        process.pid.set(sys::getpid());
    }
    be_registered(thread);
    if thread.set_tid.get() != 0 {
        mem::write(thread.set_tid.get(), &thread.tid.get());
    }
    turn::take(thread);
    if vfork {
        begin_log(
            thread,
            begin::VFORK,
            thread.parent_process.get(),
            thread.parent_event.get(),
        );
    } else {
        let values = [
            u64::from(thread.number.get()),
            u64::from(thread.tid.get()),
            thread.start.get(),
            u64::from(thread.maker.get()),
        ];
        log::done(log::other(thread, kind::THREAD_START, &values, 0));
    }
    sys::signal_mask(signal::kernel_mask(thread.mask.get()));
    let place = regs_place(thread.this.get());
    // SAFETY: written by the thread that made this one; nobody else uses it.
    let regs = unsafe { &mut *place };
    if mode::is_live() {
        // Its maker's site may have been patched since.
        regs.rip = patcher::to_stub(regs.rip);
    }
    signal::deliver(thread, regs, at::CALL_EXIT);
    call::leave(thread, regs);
    place
}
