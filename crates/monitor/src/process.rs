//! Threads and processes: how they begin, become something else, and end.
//! Here: how a fresh image begins, and what every thread needs before it runs.

mod clone;
mod exec;
mod exit;

use core::sync::atomic::Ordering::{Relaxed, Release};

use protocol::layout::{ARENA_BASE, IMAGE_BASE, SLOT_SIZE, SLOTS_BASE, SPACE_BASE};
use protocol::record::{at, begin, kind};
use protocol::replay::REPLAY_BIT;
use protocol::shared::{ARENA_SIZE, CONTROL_SIZE, EXEC_SLOTS, mode as state};

use crate::arch::{self, Regs};
use crate::mode::Mode;
use crate::state::{AltStack, Process, Space, Thread, control, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{answers, call, counter, halt, live, log, mem, mode, pads, replay, signal};

pub use clone::{alone, child_begin, clone, enter_namespaces, forked_child_tid};
pub use exec::exec;
pub use exit::{clear_word_for_others, exit, exit_group, release_all_robust, vanish};

pub const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;

pub const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;

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
        sys::die_early(b"the kernel has no syscall user dispatch");
    }
}

/// What a thread needs before it can run program code.
pub fn settle(thread: &Thread) {
    sys::call(nr::ARCH_PRCTL, ARCH_SET_GS, thread.this.get(), 0, 0, 0, 0);
    signal::set_kernel_stack(thread);
    thread.tid.set(sys::gettid());
    watch_calls();
}

/// It takes its entry, once it is known whose it is; and looks whether the program
/// is halted.
pub fn be_registered(thread: &Thread) {
    halt::register(thread, thread.entry_flags.get());
    if live::is_paused() {
        live::wait(thread);
    }
    if halt::must_stop(thread) {
        thread.asked.store(1, Relaxed);
    }
}

const NO_ROOM: &[u8] = b"no room for the monitor (is there a limit on address space?)";

/// A fresh image, set up by the injector: becomes ours, then begins.
pub extern "C" fn init(slot: u64, arena_fd: u64) -> ! {
    if !sys::map_anonymous(SPACE_BASE, core::mem::size_of::<Space>() as u64 + 4096) {
        sys::die_early(NO_ROOM);
    }
    // A replay has its logs in the arena, too.
    let mapped = if slot & REPLAY_BIT != 0 {
        sys::map_shared(ARENA_BASE, ARENA_SIZE, arena_fd, 0)
    } else {
        sys::map_for_writing(ARENA_BASE, CONTROL_SIZE, arena_fd, 0)
    };
    if !mapped {
        sys::die_early(NO_ROOM);
    }
    if slot & REPLAY_BIT != 0 && replay::is_wanted() {
        replay::init(slot & !REPLAY_BIT);
    }
    mode::choose(match control().mode.load(Relaxed) {
        state::LIVE => Mode::Live,
        _ => Mode::Record,
    });
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
    halt::rise_all(process.pid.get(), process.namespace.get());
    let flags = &control().exec_flags[slot as usize & (EXEC_SLOTS - 1)];
    thread.entry_flags.set(flags.load(Relaxed));
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
    thread.regs_at.set((&raw const regs) as u64);
    be_registered(thread);
    signal::deliver(thread, &mut regs, at::CALL_EXIT);
    call::leave(thread, &mut regs);
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
    space.pools_at.set(space.pools.as_ptr() as u64);
    space.pool_count_at.set(space.pool_count.as_ptr() as u64);
    space.traps_at.set(space.traps.as_ptr() as u64);
    pads::open_desk();
    let mask = arch::xstate_mask();
    let [_, size, ..] = xstate(0);
    space.xstate_mask.set(mask);
    space.xstate_size.set(size);
    for (number, part) in (0..).zip(&space.xstate_parts) {
        // Where it is in the image of the register state, and how large; size 0 if there
        // is no such part.
        part.set(match number {
            _ if mask & 1 << number == 0 => (0, 0),
            0 | 1 => (0, 512),
            _ => {
                let [size, start, ..] = xstate(number);
                (start, size)
            }
        });
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

/// What the processor says of its register state.
fn xstate(part: u64) -> [u32; 4] {
    const LEAF: u32 = 0xd;
    match mode::is_replay() {
        // Its shared memory is another.
        true => arch::cpuid(LEAF, part as u32),
        false => answers::cpuid(LEAF.into(), part),
    }
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
    if mode::is_replay() {
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
pub fn regs_place(thread: u64) -> *mut Regs {
    let top = thread + SLOT_SIZE;
    ((top - core::mem::size_of::<Regs>() as u64 - 64) & !63) as *mut Regs
}

/// Fills in a thread's record. What was there belonged to a thread that is
/// gone.
pub fn prepare(thread: &Thread, process: &Process, slot: u32, number: u32) {
    let address = SLOTS_BASE + u64::from(slot) * SLOT_SIZE;
    thread.this.set(address);
    // Below the place for the first registers, aligned for the vector saves.
    thread.stack.set((regs_place(address) as u64 - 64) & !63);
    thread.slot.set(slot);
    thread.number.set(number);
    thread.process.set(core::ptr::from_ref(process) as u64);
    thread.busy.store(1, Relaxed);
    thread.pending.store(0, Relaxed);
    thread.asked.store(0, Relaxed);
    thread.entry.set(0);
    thread.paused.store(0, Relaxed);
    thread.in_lock.store(0, Relaxed);
    thread.set_tid.set(0);
    thread.again_at.set(0);
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

/// What the log of a process begins with that ran already.
pub fn joined(thread: &Thread) -> [u64; 6] {
    let process = thread.process();
    let image = u64::from(process.image.get());
    let number = u64::from(thread.number.get());
    [begin::JOINED, 0, 0, id_of(process), image, number]
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
