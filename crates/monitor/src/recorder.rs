//! Asking the recorder: for chunks, to capture files, to attach at exec.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::shared::{
    CHUNKS_MAX, Request, TEXT_MAX, chunk_state, file_key, find_captured, mode, request_kind,
    request_lock, request_state,
};

use crate::state::{Thread, control, space};
use crate::sys::{self, nr};

/// Bit the kernel sets in `recorder_alive` when the recorder dies.
const OWNER_DIED: u32 = 0x4000_0000;

/// How long a wait lasts before the recorder is looked after again.
const LOOK_AGAIN: u64 = 200_000_000;

pub fn is_alive() -> bool {
    let word = control().recorder_alive.load(Acquire);
    word != 0 && word & OWNER_DIED == 0
}

/// Tells the recorder that there is something to do.
pub fn ring() {
    control().doorbell.fetch_add(1, AcqRel);
    sys::futex_wake(&control().doorbell, 1);
}

/// Tells the recorder that this thread is about to exec. If somebody stands by for that, it
/// is told at once; if that one has been told by another just now, it sees this before it
/// waits again.
fn ring_for_exec() {
    if control().exec_spare.load(Acquire) == 0 {
        return ring();
    }
    control().exec_bell.fetch_add(1, AcqRel);
    sys::futex_wake(&control().exec_bell, 1);
}

/// The recording is over, whatever the reason: calls pass through from now on.
pub fn give_up() {
    let _ = control()
        .mode
        .compare_exchange(mode::RECORD, mode::PASS, AcqRel, Relaxed);
}

/// Whether logs are written: the program is recorded, or live and observed.
fn is_written() -> bool {
    match control().mode.load(Acquire) {
        mode::RECORD => true,
        mode::LIVE => control().observed.load(Acquire) != 0,
        _ => false,
    }
}

/// Takes this chunk, if it is free.
pub fn take_this_chunk(index: u32) -> bool {
    let control = control();
    let state = &control.chunk_state[index as usize & (CHUNKS_MAX - 1)];
    let is_taken = is_written()
        && state.load(Relaxed) == chunk_state::FREE
        && state
            .compare_exchange(chunk_state::FREE, chunk_state::TAKEN, AcqRel, Relaxed)
            .is_ok();
    if is_taken {
        control.chunks_free.fetch_sub(1, AcqRel);
    }
    is_taken
}

/// Takes a chunk that has disk space behind it; waits for one if need be.
pub fn take_chunk() -> Option<u32> {
    let control = control();
    loop {
        let supply = control.supply.load(Acquire);
        if !is_written() {
            return None;
        }
        let made = (control.chunks_made.load(Acquire) as usize).min(CHUNKS_MAX);
        let hint = control.chunk_hint.load(Relaxed) as usize;
        for step in 0..made {
            let index = ((hint + step) % made) as u32;
            if take_this_chunk(index) {
                control.chunk_hint.store(index + 1, Relaxed);
                return Some(index);
            }
        }
        control.chunk_wanted.store(1, Release);
        ring();
        sys::futex_wait(&control.supply, supply, LOOK_AGAIN);
        if !is_alive() {
            give_up();
            if control.mode.load(Acquire) == mode::LIVE {
                return None;
            }
        }
    }
}

/// Posts a request and waits for its answer. None: there is no recorder.
pub fn ask(thread: &Thread, kind: u32, args: &[u64], text: &[u8]) -> Option<u64> {
    let (index, request) = post(thread, kind, args, text)?;
    let answer = loop {
        let state = request.state.load(Acquire);
        if state == request_state::DONE {
            break Some(request.answer.load(Acquire));
        }
        sys::futex_wait(&request.state, state, LOOK_AGAIN);
        if request.state.load(Acquire) != request_state::DONE && !is_alive() {
            give_up();
            break None;
        }
    };
    lock(index, F_UNLCK);
    request.state.store(request_state::EMPTY, Release);
    answer
}

const F_WRLCK: u16 = 1;
const F_UNLCK: u16 = 2;

/// Takes or gives back the lock by which the recorder knows who asks.
fn lock(index: usize, kind: u16) {
    const F_SETLK: u64 = 6;
    let lock = [u64::from(kind), request_lock(index), 1, 0];
    let fd = space().arena_fd.get() as u64;
    sys::call(nr::FCNTL, fd, F_SETLK, lock.as_ptr() as u64, 0, 0, 0);
}

fn post(
    thread: &Thread,
    kind: u32,
    args: &[u64],
    text: &[u8],
) -> Option<(usize, &'static Request)> {
    let control = control();
    let process = thread.process();
    loop {
        if !is_alive() || !matches!(control.mode.load(Acquire), mode::RECORD | mode::LIVE) {
            return None;
        }
        for (index, request) in control.requests.iter().enumerate() {
            if request
                .state
                .compare_exchange(
                    request_state::EMPTY,
                    request_state::CLAIMED,
                    AcqRel,
                    Relaxed,
                )
                .is_err()
            {
                continue;
            }
            request.kind.store(kind, Relaxed);
            request.process.store(process.number.get(), Relaxed);
            request.pid.store(process.pid.get(), Relaxed);
            request.tid.store(thread.tid.get(), Relaxed);
            for (place, arg) in request.args.iter().zip(args) {
                place.store(*arg, Relaxed);
            }
            for (i, place) in request.text.iter().enumerate() {
                let mut word = [0u8; 8];
                for (j, byte) in word.iter_mut().enumerate() {
                    *byte = text.get(i * 8 + j).copied().unwrap_or(0);
                }
                place.store(u64::from_le_bytes(word), Relaxed);
            }
            lock(index, F_WRLCK);
            request.state.store(request_state::POSTED, Release);
            match kind {
                request_kind::EXEC => ring_for_exec(),
                _ => ring(),
            }
            return Some((index, request));
        }
        // All in use: wait for any.
        sys::futex_wait(&control.requests[0].state, request_state::ACTIVE, 1_000_000);
    }
}

/// What is noted once by itself, beside the numbers of system calls.
pub mod topic {
    pub const INT80: u64 = 481;
    pub const GS_BASE: u64 = 482;
    pub const FUTEX: u64 = 483;
    pub const ZEROCOPY: u64 = 484;
    pub const FILTER: u64 = 485;
    pub const MEMORY: u64 = 486;
    pub const LISTENER: u64 = 487;
    pub const SERVED: u64 = 488;
    pub const SERVED_EXEC: u64 = 489;
    /// For virtual machines, and the four after it for others.
    pub const IOCTL: u64 = 500;
    pub const STOPPED: u64 = 505;
    /// And those after it, one for each option.
    pub const PRCTL: u64 = 490;
}

/// Tells the recorder, once a syscall number or topic, that the program was
/// refused something; `aloud`: the user is told at once.
pub fn note(thread: &Thread, nr: u64, aloud: u64, text: &[u8]) {
    let index = (nr as usize).min(511);
    let bit = 1u64 << (index & 63);
    if control().warned[index / 64].fetch_or(bit, AcqRel) & bit == 0 {
        ask(
            thread,
            request_kind::NOTE,
            &[nr, aloud],
            &text[..text.len().min(TEXT_MAX - 1)],
        );
    }
}

/// The captured copy of what a descriptor refers to: its id (0: there is none)
/// and its place in the table.
pub fn capture(thread: &Thread, fd: u64) -> (u64, Option<usize>) {
    let Some(stat) = sys::fstat(fd) else {
        return (0, None);
    };
    if !sys::is_regular(stat.mode) {
        return (0, None);
    }
    let key = file_key(stat.device, stat.inode, stat.size, stat.times);
    let table = &control().captured;
    // Who serves files need not say when they change.
    let is_dated = stat.times != [0; 4];
    if let Some(place) = find_captured(table, key).filter(|_| is_dated) {
        table[place].needed.store(1, Relaxed);
        return (table[place].id.load(Acquire), Some(place));
    }
    let id = ask(thread, request_kind::CAPTURE, &[fd, key], b"").unwrap_or(0);
    (id, find_captured(table, key))
}
