//! `execve`: the recorder is told first, so that it can put the monitor into the
//! new image; and if the call fails, that nothing came of it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use protocol::halt::state;
use protocol::layout::PREEMPT_SIGNAL;
use protocol::shared::{EXEC_FAILED, ExecSlot, TEXT_MAX, request_kind};
use protocol::syscall::Syscall;

use crate::capture::Blobs;
use crate::recorder::topic;
use crate::state::{Thread, control, space};
use crate::sys::{self, nr};
use crate::{call, halt, log, mem, mode, observe, recorder, served, signal, turn};

use super::clone::restore_mask;

const EIO: i64 = 5;

/// `execve` and `execveat`. Returns only if it failed.
pub fn exec(thread: &Thread, row: &'static Syscall, args: [u64; 6]) -> i64 {
    let process = thread.process();
    let number = u64::from(row.nr);
    if served::may_be_own(thread, number, &args) {
        let text = b"a process executes a file that threads of its own may serve, and these must \
                     stand still for it: it gets EIO";
        recorder::note(thread, topic::SERVED_EXEC, 1, text);
        call::start(thread, row, &args);
        call::finish(thread, row, &args, -EIO, &Blobs::new());
        return -EIO;
    }
    sys::signal_mask(signal::kernel_mask(u64::MAX));
    if thread.pending.load(Acquire) != 0 {
        // The signal first; then the call is made again.
        return -sys::ERESTARTSYS;
    }
    call::start(thread, row, &args);
    process.frozen.store(thread.tid.get(), Release);
    observe::stop(process);
    let slot = if process.log.off.get() == 0 || mode::is_live() {
        take_exec_slot(thread)
    } else {
        None
    };
    let mut followed = false;
    if let Some((index, _)) = slot {
        // Who serves the file may need the turn.
        let is_served = served::is_on();
        if is_served {
            turn::give(thread);
        }
        let privileged = u64::from(is_privileged(number, &args));
        if is_served {
            turn::take(thread);
        }
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
    if !mode::is_live() {
        log::close(process);
    }
    turn::leave_image(thread);
    turn::give(thread);
    // Until the exec is done or has failed the others of this process stand
    // still (`frozen`); a parent that waits for its vfork child goes on.
    let result = halt::away(thread, state::AWAY, || {
        // The new image has no handler until its monitor has begun: a signal of
        // ours that comes meanwhile waits for that.
        if followed {
            sys::signal_mask(signal::with_ours());
        }
        let result = sys::call(number, args[0], args[1], args[2], args[3], args[4], args[5]);
        sys::signal_mask(signal::kernel_mask(u64::MAX));
        result
    });
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
    observe::go_on(process);
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
            control().exec_flags[index].store(halt::flags(thread), Relaxed);
            slot.namespace.store(process.namespace.get(), Relaxed);
            let next = process.next_namespace.get();
            slot.next_namespace.store(next, Relaxed);
            slot.arena_fd.store(space().arena_fd.get() as u32, Release);
            return Some((index as u64, slot));
        }
    }
    None
}
