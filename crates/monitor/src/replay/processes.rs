//! How threads and processes begin and exec in replay: threads as stacks to
//! switch to, forked processes as forks that follow their own logs.

use core::sync::atomic::Ordering::{Relaxed, Release};

use protocol::record::{begin, kind};
use protocol::replay::EXECUTED;
use protocol::syscall::Syscall;

use crate::arch::{self, Regs};
use crate::place;
use crate::state::{Process, Thread};
use crate::sys::nr;
use crate::{inherit, mem, player, process, sharing};

use super::apply::apply;
use super::calls::{finish, start};
use super::compare::{compare, diverge_call};
use super::header;
use super::stream::{attach, consume, end_of_log, find_child, next_for, peek, stream_of, switch};

/// Whether a player stops in this process: it is the last of its path.
pub fn is_watched(process: &Process) -> bool {
    let last = header().path_len.load(Relaxed) as usize;
    let path = header().path.iter().take(last);
    path.last()
        .is_some_and(|index| index.load(Relaxed) == process.log.stream.get())
}

fn is_on_path(index: u32) -> bool {
    let count = header().path_len.load(Relaxed) as usize;
    header()
        .path
        .iter()
        .take(count)
        .any(|stream| stream.load(Relaxed) == index)
}

/// `fork` in replay: the child is another process that follows its own log.
pub fn fork(thread: &Thread, row: &Syscall, args: &[u64; 6], regs: &mut Regs) -> i64 {
    let process = thread.process();
    let number = process.number.get();
    // A parent that was killed right after the fork has nothing of it in its
    // log; its child's log knows.
    let is_recorded = peek(process).is_some();
    let mut result = i64::from(u32::MAX);
    // Written in the parent's memory alone, when the child has its own.
    let mut parent_tid = None;
    let mut event = process.log.next_event.get();
    if is_recorded {
        let record = next_for(thread);
        event = process.log.next_event.get();
        compare(thread, &record, kind::CALL, row, args);
        result = record.result;
        let blob = record.blob(2);
        parent_tid = blob.and_then(|blob| <[u8; 4]>::try_from(blob.bytes).ok());
        consume(process);
    }
    // Without a child's log, it was killed before it wrote any.
    let child = find_child(number, event, begin::FORK).filter(|index| {
        result > 0
            && match player::this() {
                Some(_) => is_on_path(*index),
                None => fork_to(*index),
            }
    });
    let Some(index) = child else {
        if !is_recorded {
            end_of_log(thread);
        }
        if let Some(tid) = parent_tid {
            mem::write(args[2], &tid);
        }
        return result;
    };
    process::alone(thread);
    sharing::forked();
    inherit::forked(thread);
    attach(process, index);
    process.log.thread.set(thread.number.get());
    let record = next_for(thread);
    if record.kind != kind::BEGIN {
        diverge_call(thread, &record, nr::FORK);
    }
    let pid = record.values[3] as u32;
    consume(process);
    process.pid.set(pid);
    thread.tid.set(pid);
    let [flags, stack, _, child_tid, _, _] = *args;
    if u64::from(row.nr) == nr::CLONE {
        process::forked_child_tid(thread, flags, child_tid);
        if stack != 0 {
            regs.rsp = stack;
        }
    }
    0
}

/// Forks the process that replays a stream: true in it. Until it has a processor to
/// run on, nobody shall think that it is not there.
fn fork_to(index: u32) -> bool {
    let pid = player::fork();
    if pid > 0 {
        let stream = &header().table[index as usize % header().table.len()];
        stream.pid.store(pid as u32, Release);
    }
    pid == 0
}

/// A thread begins in replay: its stack is set up so that switching to it
/// starts it. As from the kernel, it has the floating-point and vector state of
/// the thread that makes it, which calls this: rounding modes, and what is left
/// in registers. The low halves of the vector registers come from its stack.
pub fn begin_thread(child: &Thread, tid: u32, tls: u64, word: u64) {
    child.tid.set(tid);
    child.fs_base.set(tls);
    // What `arch::switch_stacks` pops: six registers and where to go.
    let frame = [0, 0, 0, 0, 0, 0, arch::thread_start as *const () as u64];
    let sp = word - 64;
    mem::copy(sp, frame.as_ptr() as u64, 56);
    child.switch_sp.set(sp);
    place::store_vectors(child, &[[0; 2]; 16]);
}

/// The result of the `clone` that makes a thread.
pub fn clone_result(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    let record = next_for(thread);
    compare(thread, &record, kind::CALL, row, args);
    apply(row, args, &record);
    let result = record.result;
    consume(thread.process());
    result
}

/// The thread's first record: it runs now.
pub fn thread_began(thread: &Thread) {
    let record = next_for(thread);
    if record.kind != kind::THREAD_START {
        diverge_call(thread, &record, 0);
    }
    consume(thread.process());
}

/// A process that has its parent's memory begins there, with a log of its own:
/// it runs when its turns come, which the log says. A parent that waits for it
/// goes on when it execs or ends. False: it was killed before it did anything.
pub fn begin_beside(thread: &Thread, child: &Thread, event: u64) -> bool {
    let home = child.process();
    let Some(index) = find_child(thread.process().number.get(), event, begin::VFORK) else {
        child.tid_word.store(0, Release);
        home.taken.set(0);
        return false;
    };
    attach(home, index);
    home.log.thread.set(0);
    child.maker_slot.set(thread.slot.get());
    true
}

/// Its parent waits for it: nothing that the parent's log has next comes before
/// it has begun.
pub fn run_beside(thread: &Thread, child: &Thread) {
    switch(thread, child);
}

pub fn vfork_child_began(thread: &Thread) {
    let record = next_for(thread);
    if record.kind != kind::BEGIN {
        diverge_call(thread, &record, 0);
    }
    thread.tid.set(record.values[3] as u32);
    thread.process().pid.set(record.values[3] as u32);
    consume(thread.process());
}

/// `execve`: if it succeeded, this image's log ends here.
pub fn exec(thread: &Thread, row: &Syscall, args: &[u64; 6]) -> i64 {
    start(thread, row, args);
    match peek(thread.process()) {
        Some(record) if record.kind == kind::END || record.kind == kind::SIGNAL => {
            finish(thread, row, args)
        }
        _ => {
            let stream = stream_of(thread.process());
            stream.exit.store(EXECUTED, Relaxed);
            end_of_log(thread)
        }
    }
}
