//! Who asks: the ids of a process that may be in a pid namespace of its own.
//!
//! A monitor knows the ids that its own namespace gives it, which mean nothing
//! here, or another process. But it holds a lock on the arena file while it
//! waits, and the kernel says who holds a lock in the words of whoever asks.

use std::fs::File;
use std::os::fd::AsRawFd;

use protocol::shared::{Request, request_lock};
use std::sync::atomic::Ordering::Relaxed;

/// The ids of a process and of the thread of it that asks, in our namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub pid: i32,
    pub tid: i32,
}

impl Asker {
    /// None: the asking process cannot be seen from here.
    pub fn of(arena: &File, index: usize, request: &Request) -> Option<Asker> {
        let claimed = Asker {
            pid: request.pid.load(Relaxed) as i32,
            tid: request.tid.load(Relaxed) as i32,
        };
        let pid = match holder(arena, request_lock(index)) {
            // A file system without locks.
            None => return Some(claimed),
            Some(pid) if pid <= 0 => return None,
            Some(pid) => pid,
        };
        if pid == claimed.pid {
            return Some(claimed);
        }
        let tid = if claimed.tid == claimed.pid {
            pid
        } else {
            thread(pid, claimed.tid)?
        };
        Some(Asker { pid, tid })
    }
}

/// The process that holds a lock on a byte of the file.
fn holder(file: &File, at: u64) -> Option<i32> {
    // SAFETY: all zeroes is a valid flock; the call reads and writes only it.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = at as i64;
        lock.l_len = 1;
        let answer = libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock);
        (answer == 0 && lock.l_type != libc::F_UNLCK as i16).then_some(lock.l_pid)
    }
}

/// The thread of a process that has the id `inner` in its own namespace.
fn thread(pid: i32, inner: i32) -> Option<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let ids = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
        let own: i32 = ids.split_whitespace().last()?.parse().ok()?;
        (own == inner).then(|| task.file_name().to_str()?.parse().ok())?
    })
}
