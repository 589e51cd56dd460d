//! Threads and processes: how they begin, become something else, and end.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::layout::{
    ARENA_BASE, IMAGE_BASE, PREEMPT_SIGNAL, SIGSYS, SLOT_SIZE, SLOTS_BASE, SLOTS_MAX, SPACE_BASE,
};
use protocol::record::{at, begin, kind, tag};
use protocol::replay::REPLAY_BIT;
use protocol::shared::{
    ARENA_SIZE, CONTROL_SIZE, EXEC_FAILED, EXEC_SLOTS, ExecSlot, TEXT_MAX, request_kind,
};
use protocol::syscall::Syscall;

use crate::arch::{self, Regs};
use crate::capture::Blobs;
use crate::state::{AltStack, Process, Space, Thread, control, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{call, counter, descriptors, log, mem, recorder, replay, signal, turn, words};

const CLONE_VM: u64 = 0x100;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
const CLONE_NEWPID: u64 = 0x2000_0000;

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;

const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;

/// From now on every call made outside of the monitor's text comes to us.
pub fn watch_calls() {
    let len = space().image_end.get() - IMAGE_BASE;
    if sys::call(
        nr::PRCTL,
        PR_SET_SYSCALL_USER_DISPATCH,
        1,
        IMAGE_BASE,
        len,
        0,
        0,
    ) != 0
    {
        sys::die(b"the kernel has no syscall user dispatch");
    }
}

/// What a thread needs before it can run program code.
fn settle(thread: &Thread) {
    sys::call(nr::ARCH_PRCTL, ARCH_SET_GS, thread.this.get(), 0, 0, 0, 0);
    signal::set_kernel_stack(thread);
    thread.tid.set(sys::gettid());
    watch_calls();
}

const NO_ROOM: &[u8] = b"no room for the monitor (is there a limit on address space?)";

/// A fresh image, set up by the injector: becomes ours, then begins.
pub extern "C" fn init(slot: u64, arena_fd: u64) -> ! {
    if !sys::map_anonymous(SPACE_BASE, core::mem::size_of::<Space>() as u64 + 4096) {
        sys::die(NO_ROOM);
    }
    // A replay has its logs in the arena, too.
    let mapped = if slot & REPLAY_BIT != 0 {
        sys::map_shared(ARENA_BASE, ARENA_SIZE, arena_fd, 0)
    } else {
        sys::map_for_writing(ARENA_BASE, CONTROL_SIZE, arena_fd, 0)
    };
    if !mapped {
        sys::die(NO_ROOM);
    }
    if slot & REPLAY_BIT != 0 && replay::is_wanted() {
        replay::init(slot & !REPLAY_BIT);
    }
    let exec = &control().execs[slot as usize & (EXEC_SLOTS - 1)];
    let space = space();
    let (thread, process) = first_thread();
    space.vdso_clock.set(exec.vdso.load(Relaxed));
    space.kernel_start.set(exec.kernel_start.load(Relaxed));
    space.kernel_end.set(exec.kernel_end.load(Relaxed));
    space.arena_fd.set(arena_fd as i32);
    space
        .image_end
        .set(IMAGE_BASE + exec.image_len.load(Relaxed));
    process.number.set(exec.process.load(Relaxed));
    process.image.set(exec.image.load(Relaxed));
    process.pid.set(sys::getpid());
    process.namespace.set(exec.namespace.load(Relaxed));
    process
        .next_namespace
        .set(exec.next_namespace.load(Relaxed));
    log::reset(
        process,
        exec.chunk_seq.load(Relaxed),
        exec.next_event.load(Relaxed),
    );
    thread.mask.set(exec.sigmask.load(Relaxed));
    thread.filter.set(exec.filter.load(Relaxed));
    settle(thread);
    signal::init(exec.ignored.load(Relaxed));

    let image = process.image.get();
    let how = if image == 0 {
        begin::FIRST
    } else {
        begin::EXEC
    };
    log::done(log::other(
        thread,
        kind::BEGIN,
        &[how, 0, 0, id_of(process), u64::from(image), 0],
        0,
    ));
    counter::begin(thread, exec);
    let mut regs = Regs::ZERO;
    regs.rip = exec.entry.load(Relaxed);
    regs.rsp = exec.stack.load(Relaxed);
    exec.taken.store(0, Release);
    sys::signal_mask(signal::kernel_mask(thread.mask.get()));
    signal::deliver(thread, &mut regs, at::CALL_EXIT);
    go(thread, &regs)
}

/// A process's id, with the namespace it is of.
fn id_of(process: &Process) -> u64 {
    u64::from(process.namespace.get()) << 32 | u64::from(process.pid.get())
}

/// The first thread of a fresh image, and its process.
pub fn first_thread() -> (&'static Thread, &'static Process) {
    let space = space();
    space.entry.set(arch::mw_entry as *const () as u64);
    space.fast_entry.set(arch::mw_fast as *const () as u64);
    space.xstate_mask.set(arch::xstate_mask());
    space.xstate_size.set(arch::xstate_size());
    for (number, part) in (0..).zip(&space.xstate_parts) {
        part.set(arch::xstate_part(number));
    }
    // MXCSR as a fresh thread has it; all else is initial when zero.
    space.initial_xstate.0[3].set(0x1f80);
    space.threads.set(1);
    space.slots_used.set(1);
    let (thread, process) = (thread_in_slot(0), &space.processes[0]);
    process.taken.set(1);
    process.threads.set(1);
    process.next_thread.set(1);
    prepare(thread, process, 0, 0);
    thread.tid_word.store(1, Relaxed);
    (thread, process)
}

/// What the one kernel thread of a replay needs.
pub fn settle_replay(thread: &Thread) {
    sys::call(nr::ARCH_PRCTL, ARCH_SET_GS, thread.this.get(), 0, 0, 0, 0);
    signal::set_kernel_stack(thread);
    watch_calls();
}

/// Leaves for the program from a place that is not the end of a call.
pub fn go(thread: &Thread, regs: &Regs) -> ! {
    let place = regs_place(thread.this.get());
    let mut regs = *regs;
    if replay::is_on() {
        replay::set_out(thread, &mut regs);
    }
    thread.busy.store(0, Release);
    thread.regs_at.set(place as u64);
    // SAFETY: the top of this thread's monitor stack is for the registers;
    // what we use of the stack now lies below it.
    unsafe {
        core::ptr::write(place, regs);
        arch::leave_with(place)
    }
}

/// Where a thread that begins keeps the registers it begins with.
fn regs_place(thread: u64) -> *mut Regs {
    let top = thread + SLOT_SIZE;
    ((top - core::mem::size_of::<Regs>() as u64 - 64) & !63) as *mut Regs
}

/// Fills in a thread's record. What was there belonged to a thread that is
/// gone.
fn prepare(thread: &Thread, process: &Process, slot: u32, number: u32) {
    let address = SLOTS_BASE + u64::from(slot) * SLOT_SIZE;
    thread.this.set(address);
    // Below the place for the first registers, aligned for the vector saves.
    thread.stack.set((regs_place(address) as u64 - 64) & !63);
    thread.slot.set(slot);
    thread.number.set(number);
    thread.process.set(core::ptr::from_ref(process) as u64);
    thread.busy.store(1, Relaxed);
    thread.pending.store(0, Relaxed);
    thread.held.set(0);
    thread.has_saved_mask.set(0);
    thread.has_timer.set(0);
    thread.alt.set(AltStack {
        sp: 0,
        flags: 0,
        size: 0,
    });
    thread.child_tid.set(0);
    thread.is_child.set(0);
    thread.robust_list.set(0);
    thread.wants_preempt.store(0, Relaxed);
    thread.holds_turn.set(0);
    thread.interrupted_at.store(0, Relaxed);
    thread.begins.set(0);
    thread.reads_counter.set(0);
}

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
    if flags & CLONE_VM == 0 && replay::is_on() {
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
    let parent_event = process.log.next_event.get();
    let namespace = namespace_of_child(process, what.flags);
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    let flags = what.flags & !(CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID);
    if space().shared.get() != 0 {
        crate::state::domain().members.fetch_add(1, AcqRel);
    }
    let result = sys::call(nr::CLONE, flags, 0, what.parent_tid, 0, what.tls, 0);
    if result == 0 {
        process.namespace.set(namespace);
        process.next_namespace.set(namespace);
        be_forked(thread, number, parent, parent_event);
        forked_child_tid(thread, what.flags, what.child_tid);
        if what.stack != 0 {
            regs.rsp = what.stack;
        }
        return Some(0);
    }
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
    call::finish_call(thread, what.row, &what.args, result, &more);
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
fn restore_mask(thread: &Thread) {
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
    thread.pending.store(0, Relaxed);
    thread.held.set(0);
    thread.holds_turn.set(0);
    thread.robust_list.set(0);
    if replay::is_on() {
        watch_calls();
    }
}

fn begin_log(thread: &Thread, how: u64, parent: u32, parent_event: u64) {
    let process = thread.process();
    let values = [
        how,
        u64::from(parent),
        parent_event,
        id_of(process),
        0,
        u64::from(thread.number.get()),
    ];
    log::done(log::other(thread, kind::BEGIN, &values, 0));
}

/// A thread, or a child that shares this memory until it execs.
fn spawn(thread: &Thread, regs: &mut Regs, what: &Clone) -> Option<i64> {
    let is_thread = what.flags & CLONE_THREAD != 0;
    let fail = |errno: i64| {
        call::finish_call(thread, what.row, &what.args, -errno, &Blobs::new());
        Some(-errno)
    };
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

    if replay::is_on() {
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
    let waits = what.flags & CLONE_VFORK != 0;
    if waits {
        call::start(thread, what.row, &what.args);
        turn::give(thread);
    }
    // SAFETY: the word at `word` is the child's record, the stack below it is
    // the child's.
    let result = unsafe {
        arch::clone_on_stack(
            flags,
            word,
            what.parent_tid,
            child.tid_word.as_ptr() as u64,
            what.tls,
        )
    };
    if waits {
        if result > 0 {
            // Killed in the middle of its turn, it could not give it back.
            turn::reclaim(result as u32);
        }
        turn::take(thread);
    }
    if result < 0 {
        words::forget(child);
        child.tid_word.store(0, Release);
        space().threads.set(space().threads.get() - 1);
        if is_thread {
            process.threads.set(process.threads.get() - 1);
        }
    } else if what.flags & CLONE_CHILD_SETTID != 0 && is_thread {
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
    log::reset(place, 0, 0);
    Some(place)
}

/// The new thread runs: makes itself at home, waits for its turn, and returns
/// the registers it begins with.
pub extern "C" fn child_begin(thread: &'static Thread) -> *mut Regs {
    if replay::is_on() {
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
    signal::deliver(thread, unsafe { &mut *place }, at::CALL_EXIT);
    thread.busy.store(0, Release);
    place
}

/// `execve` and `execveat`. Returns only if it failed.
pub fn exec(thread: &Thread, row: &'static Syscall, args: [u64; 6]) -> i64 {
    let process = thread.process();
    let number = u64::from(row.nr);
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    if thread.pending.load(Acquire) != 0 {
        // The signal first; then the call is made again.
        return -sys::ERESTARTSYS;
    }
    call::start(thread, row, &args);
    process.frozen.store(thread.tid.get(), Release);
    let slot = if process.log.off.get() == 0 {
        take_exec_slot(thread)
    } else {
        None
    };
    let mut followed = false;
    if let Some((index, _)) = slot {
        let privileged = u64::from(is_privileged(number, &args));
        let mut name = [0u8; TEXT_MAX - 1];
        if privileged != 0 {
            let path = args[usize::from(number == nr::EXECVEAT)];
            mem::copy_string(&mut name, path);
        }
        let what = [index, privileged];
        let answer = recorder::ask(thread, request_kind::EXEC, &what, &name).unwrap_or(1);
        followed = answer == 0;
    }
    set_arena_cloexec(!followed);
    log::close(process);
    turn::leave_image(thread);
    turn::give(thread);
    // Until the exec is done or has failed the others of this process stand
    // still (`frozen`); a parent that waits for its vfork child goes on.
    let result = sys::call(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    turn::take(thread);
    if !followed {
        set_arena_cloexec(false);
    }
    if followed {
        tell_failed(thread);
    }
    if let Some((_, slot)) = slot {
        slot.taken.store(0, Release);
    }
    process.frozen.store(0, Release);
    sys::futex_wake(&process.frozen, u32::MAX >> 1);
    call::finish(thread, row, &args, result, &Blobs::new());
    restore_mask(thread);
    result
}

/// The recorder is attached and waits for the exec: a signal only it will see
/// says that there is none.
fn tell_failed(thread: &Thread) {
    let mut info = [0u64; 16];
    info[0] = PREEMPT_SIGNAL as u64;
    info[1] = u64::from(u32::MAX); // SI_QUEUE
    info[3] = EXEC_FAILED;
    let pid = u64::from(thread.process().pid.get());
    let tid = u64::from(thread.tid.get());
    let signal = PREEMPT_SIGNAL as u64;
    sys::call(
        nr::RT_TGSIGQUEUEINFO,
        pid,
        tid,
        signal,
        info.as_ptr() as u64,
        0,
        0,
    );
}

fn set_arena_cloexec(on: bool) {
    sys::call(
        nr::FCNTL,
        space().arena_fd.get() as u64,
        2,
        u64::from(on),
        0,
        0,
        0,
    );
}

/// Whether the file gives its user other rights: then it must not be traced
/// while it starts, or it would not get them.
fn is_privileged(number: u64, args: &[u64; 6]) -> bool {
    const AT_FDCWD: u64 = -100i64 as u64;
    const AT_EMPTY_PATH: u64 = 0x1000;
    let (dir, path, flags) = if number == nr::EXECVE {
        (AT_FDCWD, args[0], 0)
    } else {
        (
            args[0],
            args[1],
            args[4] & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW),
        )
    };
    let mut stat = [0u64; 18];
    // newfstatat, geteuid, getegid
    if sys::call(262, dir, path, stat.as_mut_ptr() as u64, flags, 0, 0) != 0 {
        return false;
    }
    let mode = stat[3] as u32;
    let (uid, gid) = ((stat[3] >> 32) as u32, stat[4] as u32);
    let euid = sys::call(107, 0, 0, 0, 0, 0, 0) as u32;
    let egid = sys::call(108, 0, 0, 0, 0, 0, 0) as u32;
    euid != 0
        && ((mode & 0o4000 != 0 && uid != euid)
            || (mode & 0o2010 == 0o2010 && gid != egid)
            || has_capabilities(number, dir, path, flags))
}

const AT_SYMLINK_NOFOLLOW: u64 = 0x100;

/// Whether the file has capabilities of its own (`setcap`).
fn has_capabilities(number: u64, dir: u64, path: u64, flags: u64) -> bool {
    let asks = |path: u64| {
        let name = c"security.capability".as_ptr() as u64;
        sys::call(nr::GETXATTR, path, name, 0, 0, 0, 0) > 0
    };
    if number == nr::EXECVE {
        return asks(path);
    }
    // By the name of a descriptor, which all that execveat takes comes down to.
    const O_PATH: u64 = 0o1000_0000;
    const O_CLOEXEC: u64 = 0o200_0000;
    const O_NOFOLLOW: u64 = 0o40_0000;
    let empty = mem::read::<u8>(path) == Some(0);
    let nofollow = if flags & AT_SYMLINK_NOFOLLOW != 0 {
        O_NOFOLLOW
    } else {
        0
    };
    let fd = if empty {
        dir as i64
    } else {
        sys::call(
            nr::OPENAT,
            dir,
            path,
            O_PATH | O_CLOEXEC | nofollow,
            0,
            0,
            0,
        )
    };
    if fd < 0 {
        return false;
    }
    let text = call::path_of(fd as u64);
    let found = asks(text.as_ptr() as u64);
    if !empty {
        sys::call(nr::CLOSE, fd as u64, 0, 0, 0, 0, 0);
    }
    found
}

fn take_exec_slot(thread: &Thread) -> Option<(u64, &'static ExecSlot)> {
    let process = thread.process();
    let mark = process.number.get() + 1;
    for (index, slot) in control().execs.iter().enumerate() {
        if slot
            .taken
            .compare_exchange(0, mark, AcqRel, Relaxed)
            .is_ok()
        {
            slot.process.store(process.number.get(), Relaxed);
            slot.image.store(process.image.get() + 1, Relaxed);
            slot.chunk_seq.store(process.log.seq.get(), Relaxed);
            slot.next_event.store(process.log.next_event.get(), Relaxed);
            slot.sigmask.store(thread.mask.get(), Relaxed);
            slot.filter.store(thread.filter.get(), Relaxed);
            slot.namespace.store(process.namespace.get(), Relaxed);
            let next = process.next_namespace.get();
            slot.next_namespace.store(next, Relaxed);
            slot.arena_fd.store(space().arena_fd.get() as u32, Release);
            return Some((index as u64, slot));
        }
    }
    None
}

/// The end of a thread.
pub fn exit(thread: &Thread, row: &'static Syscall, args: [u64; 6]) -> ! {
    let process = thread.process();
    call::start(thread, row, &args);
    let last = process.threads.get() <= 1;
    release_robust(thread);
    words::clear(thread);
    if last && replay::is_on() {
        replay::end_of_log(thread);
    }
    if last {
        end_of_process(thread);
    }
    process.threads.set(process.threads.get().saturating_sub(1));
    if process.taken.get() != 0 {
        space().threads.set(space().threads.get().saturating_sub(1));
    }
    if replay::is_on() {
        replay::leave_thread(thread);
    }
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    sys::call(
        nr::SET_TID_ADDRESS,
        thread.tid_word.as_ptr() as u64,
        0,
        0,
        0,
        0,
        0,
    );
    turn::give(thread);
    loop {
        sys::call(nr::EXIT, args[0], 0, 0, 0, 0, 0);
    }
}

/// The thread ends without having asked for it: as if it had.
pub fn vanish(thread: &Thread, regs: &mut Regs) -> ! {
    (regs.rax, regs.rdi) = (nr::EXIT, SIGSYS as u64);
    thread.call.set(nr::EXIT + 1);
    match protocol::table::syscall(nr::EXIT) {
        Some(row) => exit(thread, row, regs.args()),
        None => sys::die(b"there is no exit"),
    }
}

/// Marks the locks that the threads of a process that ends still hold, in the turn
/// of the one that ends it. (If it is killed the kernel does it.)
pub fn release_all_robust(thread: &Thread) {
    let process = thread.process();
    for slot in 0..space().slots_used.get() {
        let other = thread_in_slot(slot);
        if other.tid_word.load(Acquire) != 0 && core::ptr::eq(other.process(), process) {
            release_robust(other);
        }
    }
}

/// Locks that a thread still holds when it ends are marked, as the kernel does,
/// but in the thread's turn.
fn release_robust(thread: &Thread) {
    const OWNER_DIED: u32 = 0x4000_0000;
    const WAITERS: u32 = 0x8000_0000;
    const TID_MASK: u32 = 0x3fff_ffff;
    const MOST: usize = 2048;
    let head = thread.robust_list.replace(0);
    let Some([first, offset, pending]) = mem::read::<[u64; 3]>(head) else {
        return;
    };
    let mark = |entry: u64| {
        let address = (entry & !1).wrapping_add(offset);
        let Some(word) = mem::read::<u32>(address) else {
            return;
        };
        if word & TID_MASK == thread.tid.get() {
            mem::write(address, &(word & WAITERS | OWNER_DIED));
            if word & WAITERS != 0 && !replay::is_on() {
                sys::call(nr::FUTEX, address, 1, 1, 0, 0, 0);
            }
        }
    };
    let mut entry = first;
    for _ in 0..MOST {
        if entry & !1 == head || entry == 0 {
            break;
        }
        let next = mem::read::<u64>(entry & !1).unwrap_or(0);
        if entry != pending {
            mark(entry);
        }
        entry = next;
    }
    if pending != 0 {
        mark(pending);
    }
    // It has been done; of other threads' locks the kernel finds that they are
    // not theirs any more.
    if core::ptr::eq(thread, crate::state::thread()) {
        sys::call(nr::SET_ROBUST_LIST, 0, 24, 0, 0, 0, 0);
    }
}

/// The end of a process.
pub fn exit_group(thread: &Thread, row: &'static Syscall, args: [u64; 6]) -> ! {
    call::start(thread, row, &args);
    release_all_robust(thread);
    clear_word_for_others(thread);
    if replay::is_on() {
        replay::end_of_log(thread);
    }
    thread.process().frozen.store(thread.tid.get(), Release);
    end_of_process(thread);
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    turn::give(thread);
    loop {
        sys::call(nr::EXIT_GROUP, args[0], 0, 0, 0, 0, 0);
    }
}

/// A process ends that shares its memory: the word of the thread that ends it is
/// for the others.
pub fn clear_word_for_others(thread: &Thread) {
    if space().threads.get() > thread.process().threads.get() {
        words::clear(thread);
    }
}

fn end_of_process(thread: &Thread) {
    let process = thread.process();
    log::close(process);
    process.log.off.set(1);
    if space().shared.get() == 0 && core::ptr::eq(process, &space().processes[0]) {
        control().domains[space().domain.load(Relaxed) as usize & (protocol::shared::DOMAINS - 1)]
            .members
            .store(0, Release);
    }
}

/// `arch_prctl`: fs is the program's, gs is ours.
pub fn arch_prctl(args: &[u64; 6]) -> i64 {
    match args[0] {
        ARCH_SET_FS | ARCH_GET_FS => sys::call(nr::ARCH_PRCTL, args[0], args[1], 0, 0, 0, 0),
        ARCH_GET_GS if mem::write(args[1], &0u64) => 0,
        ARCH_GET_GS => -sys::EFAULT,
        ARCH_SET_GS => -sys::EPERM,
        _ => -sys::EINVAL,
    }
}
