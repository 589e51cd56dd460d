//! How threads and processes end: what the kernel would do for those who wait
//! (robust locks, the word that is cleared) is done while the turn is theirs.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use protocol::layout::SIGSYS;
use protocol::syscall::Syscall;

use crate::arch::{self, Regs};
use crate::state::{Thread, control, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::{call, halt, live, log, mem, mode, observe, replay, signal, turn, words};

/// The end of a thread.
pub fn exit(thread: &Thread, row: &'static Syscall, args: [u64; 6]) -> ! {
    let process = thread.process();
    call::start(thread, row, &args);
    let lock = live::lock(thread);
    let last = process.threads.get() <= 1;
    release_robust(thread);
    // Live, the kernel clears it when the thread is gone, as it does without us: the memory
    // that the kernel writes to until then (`rseq`) is freed by who sees that.
    let is_kernels = mode::is_live() && thread.is_child.get() == 0;
    if !is_kernels {
        words::clear(thread);
    }
    if last && mode::is_replay() {
        replay::end_of_log(thread);
    }
    if last {
        end_of_process(thread);
    }
    process.threads.set(process.threads.get().saturating_sub(1));
    if process.taken.get() != 0 {
        space().threads.set(space().threads.get().saturating_sub(1));
    }
    drop(lock);
    if mode::is_replay() {
        replay::leave_thread(thread);
    }
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    if mode::is_live() {
        // Timers are the process's, and a program lives long.
        signal::drop_timer(thread);
    }
    if is_kernels {
        let word = thread.child_tid.get();
        sys::call(nr::SET_TID_ADDRESS, word, 0, 0, 0, 0, 0);
        halt::rise(thread);
        // Its place is another's as soon as it says so: nothing may lead back to it.
        sys::signal_mask(u64::MAX);
        // SAFETY: the word is the thread's own, and nobody comes back.
        unsafe { arch::exit(args[0], thread.tid_word.as_ptr()) }
    }
    sys::call(
        nr::SET_TID_ADDRESS,
        thread.tid_word.as_ptr() as u64,
        0,
        0,
        0,
        0,
        0,
    );
    halt::rise(thread);
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
            if word & WAITERS != 0 && !mode::is_replay() {
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
    observe::stop(thread.process());
    release_all_robust(thread);
    clear_word_for_others(thread);
    if mode::is_replay() {
        replay::end_of_log(thread);
    }
    thread.process().frozen.store(thread.tid.get(), Release);
    end_of_process(thread);
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    let process = thread.process();
    halt::rise_all(process.pid.get(), process.namespace.get());
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
    match mode::is_live() {
        true => observe::stop(process),
        false => {
            log::close(process);
            process.log.off.set(1);
        }
    }
    if space().shared.get() == 0 && core::ptr::eq(process, &space().processes[0]) {
        control().domains[space().domain.load(Relaxed) as usize & (protocol::shared::DOMAINS - 1)]
            .members
            .store(0, Release);
    }
}
