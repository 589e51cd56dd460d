//! Replay: the log says what happened, the program does it again.
//!
//! All threads of a process run in one kernel thread. Each has its monitor
//! stack, as in recording; where recording would wait for the turn, replay
//! switches to the stack of the thread that the log names next. No call about
//! anything outside of the process is made: results and what the kernel wrote
//! come from the log. Calls about memory are made again, at the recorded
//! addresses. Whatever the program asks for is compared with what it asked
//! for then; the first difference ends the process with a report.

mod apply;
mod calls;
mod code;
mod compare;
mod files;
mod interruption;
mod memory;
mod processes;
mod stream;

use core::sync::atomic::Ordering::{Relaxed, Release};

use protocol::layout::{ARENA_BASE, MONITOR_BASE, MONITOR_END};
use protocol::record::kind;
use protocol::replay::{REPLAY_OFFSET, Replay, difference};
use protocol::shared::mode as state;

use crate::arch::Regs;
use crate::mode::Mode;
use crate::state::{control, space};
use crate::sys::{self, nr};
use crate::{confine, counter, mem, mode, process, stack};

use compare::diverge_call;
use stream::{attach, consume, next_for};

pub use calls::{
    answer, arrived, expect, filtered, finish, is_blocking, plain, read_clock, read_counter,
    settle, start,
};
pub use code::{patched, patches, sites_here, stub_pool};
pub use compare::diverge;
pub use files::map_file;
pub use interruption::{
    came_near, fault_to_come, interrupted, interruption, offer, set_out, signal_follows,
    signal_here,
};
pub use memory::{map_anonymous, memory};
pub use processes::{
    begin_beside, begin_thread, clone_result, exec, fork, is_watched, run_beside, thread_began,
    vfork_child_began,
};
pub use stream::{end_of_log, leave_thread, stream_of};

pub fn header() -> &'static Replay {
    // SAFETY: the replayer's file has it at this offset; made of atomics.
    unsafe { &*((ARENA_BASE + REPLAY_OFFSET) as *const Replay) }
}

/// Begins the replay of an image: the memory it had, then its first record.
pub fn init(image_len: u64) -> ! {
    let header = header();
    mode::choose(Mode::Replay);
    space()
        .image_end
        .set(protocol::layout::IMAGE_BASE + image_len);
    // Everything that is not ours came with the process that was exec'd for
    // this, and goes.
    sys::call(nr::MUNMAP, 0x1000, MONITOR_BASE - 0x1000, 0, 0, 0, 0);
    sys::call(
        nr::MUNMAP,
        MONITOR_END,
        0x7fff_ffff_f000 - MONITOR_END,
        0,
        0,
        0,
        0,
    );
    for map in header.map.iter().take(header.maps.load(Relaxed) as usize) {
        let (start, end) = (map.start.load(Relaxed), map.end.load(Relaxed));
        let prot = map.prot.load(Relaxed);
        let grows = (start..end).contains(&header.stack.load(Relaxed));
        let mapped = match map.file.load(Relaxed) {
            0 => map_anonymous(start, end - start, 3, grows),
            id => map_file(id - 1, start, end - start, 3, map.file_offset.load(Relaxed)),
        };
        if !mapped {
            sys::refuse(
                b"the recording is damaged: it has no such memory as at",
                start,
            );
        }
        let from = ARENA_BASE + map.contents.load(Relaxed);
        mem::copy(
            map.contents_at.load(Relaxed),
            from,
            map.contents_len.load(Relaxed),
        );
        if prot != 3 {
            sys::call(nr::MPROTECT, start, end - start, prot, 0, 0, 0);
        }
    }
    confine::begin();
    stack::begin();
    space().player.set(header.player.load(Relaxed));
    let (thread, process) = process::first_thread();
    attach(process, header.stream.load(Relaxed));
    thread.mask.set(header.sigmask.load(Relaxed));
    process::settle_replay(thread);
    crate::signal::init(header.ignored.load(Relaxed));
    process.log.thread.set(0);
    let mut regs = Regs::ZERO;
    regs.rip = header.entry.load(Relaxed);
    regs.rsp = header.stack.load(Relaxed);
    // From here on the header may be about the next image.
    header.begun.fetch_add(1, Release);
    thread.regs_at.set((&raw const regs) as u64);
    // A recording may say anything; there is no way to such an address.
    const PROGRAM_END: u64 = 0x7fff_ffff_f000;
    if regs.rip >= PROGRAM_END || regs.rsp >= PROGRAM_END {
        diverge(thread, difference::MEMORY, 4, regs.rip, regs.rsp);
    }
    let record = next_for(thread);
    if record.kind != kind::BEGIN {
        diverge_call(thread, &record, 0);
    }
    thread.tid.set(record.values[3] as u32);
    process.pid.set(record.values[3] as u32);
    consume(process);
    counter::replace_again(thread);
    crate::signal::deliver(thread, &mut regs, protocol::record::at::CALL_EXIT);
    process::go(thread, &regs)
}

/// Whether processes with different memory have turns in a domain.
pub fn is_shared(domain: u64) -> bool {
    let words = &header().shared;
    words[domain as usize / 64 % words.len()].load(Relaxed) & 1 << (domain % 64) != 0
}

/// Whether the replayer, not the recorder, made this process.
pub fn is_wanted() -> bool {
    control().mode.load(Relaxed) == state::REPLAY
}
