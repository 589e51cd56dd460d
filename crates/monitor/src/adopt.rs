//! A process that ran already when the monitor came: how it becomes ours, and how
//! the monitor leaves it.
//!
//! The injector does both, while all threads are stopped (`protocol::adoption`). It
//! lets one thread run `mw_adopt`, which takes over what belongs to the process; then
//! each thread goes through `mw_adopted`, which takes over what is its own, and goes
//! on where it was. When the monitor leaves, each thread runs `mw_depart` and one
//! `mw_depart_process`; after that nothing of what the kernel knows of the process is
//! ours, and the injector gives the threads their registers.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::adoption::{ADOPTION_BASE, Adopted, Adoption, result};
use protocol::halt::{Called, flag};
use protocol::layout::{ARENA_BASE, IMAGE_BASE, SPACE_BASE};
use protocol::record::at;
use protocol::shared::CONTROL_SIZE;

use crate::arch::{self, Regs};
use crate::mode::Mode;
use crate::state::{AltStack, Space, Thread, control, space, thread_in_slot};
use crate::sys::{self, nr};
use crate::time::{Limit, Span};
use crate::{call, counter, log, mem, mode, pads, patcher, process, signal, timers};

const PR_GET_TID_ADDRESS: u64 = 40;

/// The injector knows the registers by the protocol's name for them.
const _: () = assert!(core::mem::size_of::<Called>() == core::mem::size_of::<Regs>());

/// What belongs to the process. One thread runs, on the first slot's stack, and
/// everything is blocked.
pub extern "C" fn adopt() {
    // SAFETY: the injector has put it there, and nobody else touches it meanwhile.
    let what = unsafe { &mut *(ADOPTION_BASE as *mut Adoption) };
    what.result = take_over(what);
}

fn take_over(what: &Adoption) -> u64 {
    if tid_address().is_none() {
        return result::NO_TID_ADDRESS;
    }
    if !sys::map_anonymous(SPACE_BASE, core::mem::size_of::<Space>() as u64 + 4096)
        || !sys::map_for_writing(ARENA_BASE, CONTROL_SIZE, what.arena_fd, 0)
    {
        return result::NO_ROOM;
    }
    mode::choose(Mode::Live);
    let space = space();
    space.is_adopted.set(1);
    let (first, process) = process::first_thread();
    space.vdso_clock.set(what.clock);
    space.kernel_start.set(what.kernel_start);
    space.kernel_end.set(what.kernel_end);
    space.arena_fd.set(what.arena_fd as i32);
    space.image_end.set(IMAGE_BASE + what.image_len);
    process
        .number
        .set(control().next_process.fetch_add(1, AcqRel));
    process.pid.set(sys::getpid());
    log::reset(process, 0, 0);
    let count = what.threads as u32;
    space.threads.set(count);
    space.slots_used.set(count);
    process.threads.set(count);
    process.next_thread.set(count);
    let told = what.timers.get(..what.timer_count as usize);
    let flags = match timers::adopt(first, told.unwrap_or(&[])) {
        true => flag::PULL,
        false => 0,
    };
    let threads = (ADOPTION_BASE + core::mem::size_of::<Adoption>() as u64) as *const Adopted;
    for slot in 0..count {
        // SAFETY: the injector has put as many there as it says.
        let of = unsafe { &*threads.add(slot as usize) };
        let thread = thread_in_slot(slot);
        process::prepare(thread, process, slot, slot);
        thread.tid_word.store(of.tid as u32, Relaxed);
        thread.tid.set(of.tid as u32);
        thread.mask.set(of.mask);
        thread.entry_flags.set(flags);
        let waited = control().halt.ticks_of(of.waited);
        thread.began.set(match of.waited {
            0 => 0,
            _ => of.stopped_at.saturating_sub(waited).max(1),
        });
        thread.done.set(of.done);
        let is_in_call = of.is_in_call != 0;
        thread
            .again_at
            .set(if is_in_call { of.called.rip } else { 0 });
        let place = process::regs_place(thread.this.get());
        // SAFETY: the top of the thread's own stack, which nobody uses yet; both are
        // the same registers in the same order (asserted to be as many).
        unsafe { core::ptr::write(place.cast::<Called>(), of.called) };
        thread.regs_at.set(place as u64);
    }
    patcher::adopt(what.detours);
    signal::adopt();
    result::DONE
}

/// What belongs to a thread: it becomes ours, and goes on.
pub extern "C" fn adopted(thread: &'static Thread) -> *mut Regs {
    let mut alt = AltStack {
        sp: 0,
        flags: 0,
        size: 0,
    };
    sys::call(nr::SIGALTSTACK, 0, (&raw mut alt) as u64, 0, 0, 0, 0);
    thread.alt.set(signal::as_kept(&alt));
    thread.child_tid.set(tid_address().unwrap_or(0));
    let (mut list, mut len) = (0u64, 0u64);
    let (list_at, len_at) = ((&raw mut list) as u64, (&raw mut len) as u64);
    sys::call(nr::GET_ROBUST_LIST, 0, list_at, len_at, 0, 0, 0);
    thread.robust_list.set(list);
    process::settle(thread);
    process::be_registered(thread);
    sys::signal_mask(signal::kernel_mask(thread.mask.get()));
    let place = process::regs_place(thread.this.get());
    // SAFETY: written by `adopt`; nobody else uses it.
    let regs = unsafe { &mut *place };
    if thread.pending.load(Acquire) != 0 {
        end_call(thread, regs);
    }
    // Others run already, and may have had the site patched that it comes back to.
    regs.rip = patcher::to_stub(regs.rip);
    signal::deliver(thread, regs, at::CALL_EXIT);
    call::leave(thread, regs);
    place
}

/// A signal came while the thread was stopped in a call that it is about to make again:
/// that ends it, if it would have.
fn end_call(thread: &Thread, regs: &mut Regs) {
    let is_in_call = thread.again_at.get() == regs.rip && regs.rip != 0;
    if is_in_call && !signal::restarts(thread, regs.rax, &regs.args()) {
        thread.again_at.set(0);
        regs.rax = -sys::EINTR as u64;
        regs.rip += 2;
    }
}

/// The monitor leaves a thread: what the kernel knows of it is as the program
/// believes. All signals are blocked. Returns the mask that it is to have.
pub extern "C" fn depart(thread: &Thread) -> u64 {
    signal::send_again(thread);
    signal::drop_timer(thread);
    signal::set_program_stack(thread);
    let word = thread.child_tid.get();
    sys::call(nr::SET_TID_ADDRESS, word, 0, 0, 0, 0, 0);
    let off = process::PR_SET_SYSCALL_USER_DISPATCH;
    sys::call(nr::PRCTL, off, 0, 0, 0, 0, 0);
    sys::call(nr::ARCH_PRCTL, process::ARCH_SET_GS, 0, 0, 0, 0, 0);
    thread.mask.get()
}

/// The monitor leaves a process, whose threads it has left.
pub extern "C" fn depart_process(thread: &Thread) -> u64 {
    patcher::undo_all();
    pads::unmap_all();
    counter::undo_all();
    timers::go_on_for_good(thread);
    signal::restore_actions(thread);
    // A program that was started with the monitor's vdso keeps it: from now on its
    // functions are plain calls.
    let space = space();
    space.entry.set(arch::mw_departed as *const () as u64);
    space.fast_entry.set(arch::mw_departed as *const () as u64);
    space.is_adopted.get().into()
}

/// Whether the monitor is about to leave, so that who is taken out of a call goes
/// back to before it.
#[inline]
pub fn is_leaving(thread: &Thread) -> bool {
    crate::halt::leaves_call(thread) && thread.pending.load(Acquire) == 0
}

/// A thread was taken out of a call that it is to make again, whether the monitor has
/// left by then or stays after all: when that began, and how much of it is done.
pub fn leave_call(thread: &Thread, span: &Span, done: i64) {
    thread.again_at.set(thread.call_site.get());
    thread.began.set(span.began());
    thread.done.set(done.max(0) as u64);
}

/// A thread was taken out of a call that it is to make again, and that begins with what
/// is left of its time.
pub fn leave_anew(thread: &Thread) {
    thread.again_at.set(thread.call_site.get());
    thread.began.set(0);
    thread.done.set(0);
}

/// The thread stops here. If it is before a call that it was taken out of, and the
/// monitor is leaving: what the program does not know of that call.
pub fn leave_before(thread: &Thread, rip: u64, number: u64, args: &[u64; 6]) {
    let Some(entry) =
        crate::halt::entry(thread).filter(|_| control().halt.leaving.load(Acquire) != 0)
    else {
        return;
    };
    let (mut left, mut elapsed) = (None, 0);
    let is_before = rip != 0 && thread.again_at.get() == rip;
    if is_before && thread.began.get() != 0 {
        let span = Span::begin().begun_at(thread.began.get());
        let mut made = *args;
        left = Limit::of(number, args, span).and_then(|mut limit| {
            elapsed = span.elapsed().max(1);
            limit.begin(&mut made);
            limit.told(&made)
        });
    }
    let (arg, words) = left.unwrap_or((0, [0; 2]));
    entry.left[0].store(words[0], Relaxed);
    entry.left[1].store(words[1], Relaxed);
    let done = if is_before { thread.done.get() } else { 0 };
    entry.done.store(done, Relaxed);
    entry.elapsed.store(elapsed, Relaxed);
    entry.left_arg.store(arg, Release);
}

/// The thread's word that the kernel clears when it ends. None: the kernel does not
/// say.
pub fn tid_address() -> Option<u64> {
    let mut word = 0u64;
    let to = (&raw mut word) as u64;
    (sys::call(nr::PRCTL, PR_GET_TID_ADDRESS, to, 0, 0, 0, 0) == 0).then_some(word)
}

/// A thread that is about to return from the monitor's vdso, in a process whose own is
/// another: it returns now. What is kept of it (a frame, a debugger's registers) must
/// not lead to code that goes when the monitor does.
pub fn return_from_vdso(regs: &mut Regs) {
    let image = IMAGE_BASE..space().image_end.get();
    if space().is_adopted.get() != 0
        && image.contains(&regs.rip)
        && let Some(to) = mem::read::<u64>(regs.rsp)
    {
        regs.rip = to;
        regs.rsp += 8;
    }
}
