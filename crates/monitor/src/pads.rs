//! Breakpoints whose conditions are judged here, while the program is alive: a jump leads from
//! the breakpoint's place to a pad, and from there into the monitor (see `protocol::pad`). One
//! whose conditions are false costs neither a signal nor a stop; who is to stop runs into a
//! trap, which is for the debugger.
//!
//! Nothing is logged, so a program can be recorded meanwhile.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::compiler_fence;

use protocol::condition;
use protocol::halt::stopped_in;
use protocol::pad::{Desk, HEAD_WORDS, PAD_ROOM, condition_room};

use crate::arch::{self, Regs};
use crate::motion::Asked;
use crate::state::{Thread, space};
use crate::{halt, mem, signal, sys};

/// Tells what those have to know who make pads.
pub fn open_desk() {
    space().desk.set(Desk {
        table: space().pads.as_ptr() as u64,
        entry: arch::mw_entry_judged as *const () as u64,
        rcx_at: arch::OFF_RCX as u64,
        gate: arch::gate as *const () as u64,
    });
}

/// The pads: where each is, and its head.
fn all() -> impl Iterator<Item = (u64, u64)> {
    let pads = space().pads.iter();
    let pads = pads.map(|pad| (pad.entry.load(Acquire), pad.head.load(Relaxed)));
    pads.take_while(|(entry, _)| *entry != 0)
}

/// Whether an address is in the code of one.
pub fn has(address: u64) -> bool {
    all().any(|(entry, head)| (entry..head).contains(&address))
}

/// Where who has run into the trap at this address goes on if there is no debugger any
/// more: the breakpoint is nobody's.
pub fn behind_hit(address: u64) -> Option<u64> {
    let (_, head) = all().find(|(entry, head)| (*entry..*head).contains(&address))?;
    let [_, hit, resume, _] = mem::read::<[u64; HEAD_WORDS]>(head)?;
    (hit == address).then_some(resume)
}

/// The monitor leaves: nobody is in a pad, nor will be.
pub fn unmap_all() {
    for (entry, _) in all() {
        let page = entry & !4095;
        let len = (entry + PAD_ROOM - page).next_multiple_of(4096);
        sys::call(sys::nr::MUNMAP, page, len, 0, 0, 0, 0);
    }
    for pad in &space().pads {
        pad.entry.store(0, Release);
    }
}

/// The thread has come to a breakpoint. It goes on as `regs` say: past it, into its trap, or,
/// if the program was halted meanwhile, wherever it is to go on then.
pub fn judge(thread: &Thread, regs: &mut Regs) {
    // A pad keeps the address of its head in the word before the place to go on.
    let head = mem::read_word(regs.rip - 8).unwrap_or(0);
    let Some([address, hit, resume, count]) = mem::read::<[u64; HEAD_WORDS]>(head) else {
        sys::die_number(b"a breakpoint has lost its conditions: at", regs.rip);
    };
    let waited = thread.pending.load(Acquire);
    let was_wanted = thread.wants_preempt.swap(0, Relaxed);
    regs.rip = address;
    thread.regs_at.set(core::ptr::from_ref(regs) as u64);
    let is_passed = are_false(head + 8 * HEAD_WORDS as u64, count, regs);
    regs.rip = if is_passed { resume } else { hit };
    loop {
        thread.busy.store(0, Release);
        compiler_fence(SeqCst);
        if thread.asked.load(Relaxed) == 0 {
            break;
        }
        thread.busy.store(1, Release);
        // It has not passed: it is judged again when the program goes on.
        if regs.rip == resume || regs.rip == hit {
            regs.rip = address;
        }
        halt::at_edge(thread, regs, stopped_in::EXIT);
    }
    let is_wanted = thread.wants_preempt.load(Relaxed);
    if thread.pending.load(Acquire) != 0 && (waited == 0 || is_wanted != 0) {
        // A signal that came here, or was to be taken here, reaches the program elsewhere.
        signal::soon(thread);
    }
    if was_wanted != 0 {
        thread.wants_preempt.store(1, Relaxed);
    }
}

/// Whether none of so many conditions, from `at` on, holds.
fn are_false(mut at: u64, count: u64, regs: &Regs) -> bool {
    for _ in 0..count {
        let Some(len) = mem::read::<u64>(at) else {
            return false;
        };
        let begin = at + 8;
        let code = |offset: usize| {
            let is_in = (offset as u64) < len;
            is_in.then(|| mem::read::<u8>(begin + offset as u64))?
        };
        if !condition::is_false(&Asked { code, regs }) {
            return false;
        }
        at += condition_room(len);
    }
    true
}
