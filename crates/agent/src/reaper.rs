//! The reaper: the program's parent, and the heir of every orphan of its.
//!
//! It is a process of its own, made before the recorder has any threads. It
//! reports each end through a pipe and stays until the last process is gone,
//! even if the recorder is killed. If it is killed itself, the recorder
//! inherits what it had, and waits for them.

use std::ffi::{CString, OsString, c_void};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use crate::signals::{self, Inherited};
use crate::{Error, raw, slice};

/// One line of the report pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The first process, before its exec.
    First { pid: i32 },
    /// Its exec failed with this errno.
    Failed { errno: i32 },
    /// A child ended.
    Ended { pid: i32, status: i32 },
}

/// The recorder's end.
pub struct Reaper {
    reports: std::fs::File,
    go: Option<OwnedFd>,
    pid: i32,
    state: State,
}

/// Who waits for the program's processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Reaper,
    /// The reaper is dead: we do.
    Ourselves,
    /// None is left.
    Nobody,
}

impl Reaper {
    /// Makes the reaper, which makes the program's first process. That waits
    /// for [`Reaper::go`] before it execs. `arena` becomes descriptor
    /// `arena_fd` in it.
    pub fn start(
        command: &[OsString],
        path: &std::path::Path,
        inherited: Inherited,
        arena: RawFd,
        arena_fd: i32,
    ) -> Result<Reaper, Error> {
        let argv = strings(command.iter().map(|arg| arg.as_bytes().to_vec()))?;
        let environment = std::env::vars_os()
            .map(|(key, value)| [key.as_bytes(), b"=", value.as_bytes()].concat());
        let envp = strings(environment)?;
        let path = strings(std::iter::once(path.as_os_str().as_bytes().to_vec()))?;
        let (report_read, report_write) = pipe()?;
        let (go_read, go_write) = pipe()?;
        // SAFETY: a plain system call about this process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let stacks = Stacks::make()?;
        // The reaper may outlive this thread: what it uses is never freed.
        let start: &'static Start = Box::leak(Box::new(Start {
            path: path.first().map_or(std::ptr::null(), |p| p.as_ptr()),
            argv: pointers(&argv).leak().as_ptr(),
            envp: pointers(&envp).leak().as_ptr(),
            reports: report_write.as_raw_fd(),
            go: go_read.as_raw_fd(),
            recorders: [report_read.as_raw_fd(), go_write.as_raw_fd()],
            arena,
            arena_fd,
            inherited,
            first_stack: stacks.first,
        }));
        for strings in [argv, envp, path] {
            strings.leak();
        }
        // SAFETY: it gets a stack of its own, and what it does it does by plain
        // system calls, without touching what is the recorder's.
        let pid = unsafe {
            libc::clone(
                be_reaper,
                stacks.reaper,
                libc::CLONE_VM | libc::SIGCHLD,
                (&raw const *start).cast_mut().cast(),
            )
        };
        if pid < 0 {
            return Err(Error::System(
                "cannot fork",
                std::io::Error::last_os_error(),
            ));
        }
        drop(report_write);
        drop(go_read);
        let reports = std::fs::File::from(report_read);
        Ok(Reaper {
            reports,
            go: Some(go_write),
            pid,
            state: State::Reaper,
        })
    }

    /// The reaper's own process id: the root of the program's processes.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the first process exec.
    pub fn go(&mut self) {
        if let Some(go) = self.go.take() {
            let _ = std::fs::File::from(go).write_all(b"g");
        }
    }

    /// The next report; None when the last process is gone. For the thread
    /// that the process began with: orphans become that one's children.
    pub fn next(&mut self) -> Option<Report> {
        if self.state == State::Reaper {
            let report = self.read_report();
            if report.is_some() {
                return report;
            }
            let status = self.wait();
            self.state = if libc::WIFSIGNALED(status) {
                State::Ourselves
            } else {
                State::Nobody
            };
        }
        if self.state == State::Ourselves {
            // Only what is this thread's: other threads trace.
            if let Some((pid, status)) = wait_for(-1, libc::__WNOTHREAD) {
                return Some(Report::Ended { pid, status });
            }
            self.state = State::Nobody;
        }
        None
    }

    fn wait(&self) -> i32 {
        wait_for(self.pid, 0).map_or(0, |(_, status)| status)
    }

    fn read_report(&mut self) -> Option<Report> {
        let mut bytes = [0; 12];
        self.reports.read_exact(&mut bytes).ok()?;
        let word = |i: usize| {
            bytes
                .get(i..i + 4)
                .and_then(|b| b.try_into().ok())
                .map_or(0, i32::from_le_bytes)
        };
        Some(match word(0) {
            0 => Report::First { pid: word(4) },
            1 => Report::Failed { errno: word(8) },
            _ => Report::Ended {
                pid: word(4),
                status: word(8),
            },
        })
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // A first process that still waits for this is not to begin any more.
        self.go = None;
        if self.state == State::Reaper {
            self.wait();
        }
    }
}

/// Waits for a child of ours; None if there is none.
fn wait_for(pid: i32, flags: i32) -> Option<(i32, i32)> {
    loop {
        let mut status = 0;
        // SAFETY: writes `status` only.
        let found = unsafe { libc::waitpid(pid, &raw mut status, flags) };
        if found > 0 {
            return Some((found, status));
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

fn strings(items: impl Iterator<Item = Vec<u8>>) -> Result<Vec<CString>, Error> {
    items
        .map(|item| {
            CString::new(item).map_err(|error| {
                Error::System(
                    "an argument has a zero byte in it",
                    std::io::Error::other(error),
                )
            })
        })
        .collect()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain(std::iter::once(std::ptr::null()))
        .collect()
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(Error::System(
            "cannot make a pipe",
            std::io::Error::last_os_error(),
        ));
    }
    // SAFETY: both were just made and belong to nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

struct Start {
    path: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    reports: RawFd,
    go: RawFd,
    /// The recorder's ends of both.
    recorders: [RawFd; 2],
    arena: RawFd,
    arena_fd: i32,
    inherited: Inherited,
    first_stack: *mut c_void,
}

/// The upper ends of the stacks of the reaper and of the program's first
/// process. They are never given back.
struct Stacks {
    reaper: *mut c_void,
    first: *mut c_void,
}

impl Stacks {
    fn make() -> Result<Stacks, Error> {
        const LEN: usize = 64 * 1024;
        const GUARD: usize = 4096;
        // SAFETY: fresh memory; then, of it, the lowest page below each stack.
        unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                2 * LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            );
            let second = base.wrapping_byte_add(LEN);
            if base == libc::MAP_FAILED
                || libc::mprotect(base, GUARD, libc::PROT_NONE) != 0
                || libc::mprotect(second, GUARD, libc::PROT_NONE) != 0
            {
                let error = std::io::Error::last_os_error();
                return Err(Error::System("cannot fork", error));
            }
            Ok(Stacks {
                reaper: second,
                first: second.wrapping_byte_add(LEN),
            })
        }
    }
}

/// The reaper. It shares the recorder's memory, which saves the time to copy
/// it, once for the reaper and once for the first process; so nothing here may
/// allocate, take a lock, or use what the C library keeps for each thread.
extern "C" fn be_reaper(start: *mut c_void) -> libc::c_int {
    // SAFETY: what was given to `clone` above.
    let start = unsafe { &*start.cast::<Start>() };
    // SAFETY: plain system calls about this process and descriptors of its own.
    unsafe {
        for fd in start.recorders {
            raw::call(libc::SYS_close, [fd as usize, 0, 0, 0]);
        }
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_NAME, c"mw-reaper".as_ptr());
        signals::ignore_all();
        // It waits here until the first process has its own image.
        let child = libc::clone(
            be_first,
            start.first_stack,
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw const *start).cast_mut().cast(),
        );
        if child < 0 {
            report(start.reports, [0, child, 0]);
        }
        raw::call(libc::SYS_close, [start.go as usize, 0, 0, 0]);
        raw::call(libc::SYS_close, [start.arena as usize, 0, 0, 0]);
        slice::shorten();
        loop {
            let mut status = 0i32;
            let pid = raw::call(
                libc::SYS_wait4,
                [usize::MAX, (&raw mut status) as usize, 0, 0],
            );
            if pid > 0 {
                report(start.reports, [2, pid as i32, status]);
            } else if pid != -(libc::EINTR as isize) {
                raw::call(libc::SYS_exit_group, [0; 4]);
            }
        }
    }
}

/// The program's first process, up to its exec.
extern "C" fn be_first(start: *mut c_void) -> libc::c_int {
    // SAFETY: as in `be_reaper`.
    let start = unsafe { &*start.cast::<Start>() };
    // SAFETY: as in `be_reaper`.
    unsafe {
        let pid = raw::call(libc::SYS_getpid, [0; 4]);
        report(start.reports, [0, pid as i32, 0]);
        start.inherited.restore();
        let mut byte = 0u8;
        let go = [start.go as usize, (&raw mut byte) as usize, 1, 0];
        if raw::call(libc::SYS_read, go) != 1 {
            // The recorder changed its mind.
            raw::call(libc::SYS_exit_group, [127, 0, 0, 0]);
        }
        let (arena, wanted) = (start.arena as usize, start.arena_fd as usize);
        if arena == wanted {
            raw::call(libc::SYS_fcntl, [wanted, libc::F_SETFD as usize, 0, 0]);
        } else {
            raw::call(libc::SYS_dup2, [arena, wanted, 0, 0]);
        }
        let image = [
            start.path as usize,
            start.argv as usize,
            start.envp as usize,
            0,
        ];
        let error = raw::call(libc::SYS_execve, image);
        report(start.reports, [1, 0, -error as i32]);
        // The recorder is attached and waits: say that there is no exec.
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_signo = protocol::layout::PREEMPT_SIGNAL;
        info.si_code = libc::SI_QUEUE;
        let words = (&raw mut info).cast::<u64>();
        words.add(3).write(protocol::shared::EXEC_FAILED);
        let tid = raw::call(libc::SYS_gettid, [0; 4]) as usize;
        let signal = protocol::layout::PREEMPT_SIGNAL as usize;
        raw::call(
            libc::SYS_rt_tgsigqueueinfo,
            [pid as usize, tid, signal, (&raw mut info) as usize],
        );
        raw::call(libc::SYS_exit_group, [127, 0, 0, 0]);
    }
    127
}

/// # Safety
/// `fd` is the reaper's end of the report pipe.
unsafe fn report(fd: RawFd, words: [i32; 3]) {
    // SAFETY: writes less than PIPE_BUF from the stack: all or nothing.
    unsafe {
        raw::call(
            libc::SYS_write,
            [fd as usize, words.as_ptr() as usize, 12, 0],
        )
    };
}

/// The processes of the program, children before grandchildren: all that come
/// from us, the reaper aside.
pub fn program(reaper: i32) -> Vec<i32> {
    descendants(std::process::id() as i32, reaper)
}

/// The processes of the program that a recorder runs, where that is another process.
pub fn program_of(recorder: i32) -> Vec<i32> {
    let path = format!("/proc/{recorder}/task/{recorder}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let reaper = children.split_whitespace().next();
    let reaper = reaper.and_then(|pid| pid.parse().ok()).unwrap_or(0);
    descendants(recorder, reaper)
}

/// All that descend from a process, but for one.
fn descendants(ancestor: i32, but: i32) -> Vec<i32> {
    let mut found = vec![ancestor];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        at += 1;
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            for child in children.unwrap_or_default().split_whitespace() {
                if let Ok(child) = child.parse()
                    && !found.contains(&child)
                {
                    found.push(child);
                }
            }
        }
    }
    found.remove(0);
    found.retain(|pid| *pid != but);
    found
}

/// Whether every thread of the program sleeps, or is stopped.
pub fn is_asleep(reaper: i32) -> bool {
    let sleeps = |pid: &i32| {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            return true;
        };
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The name before it may hold anything.
            let state = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.chars().next());
            matches!(state, None | Some('S' | 'T' | 't' | 'Z' | 'X' | 'I'))
        })
    };
    program(reaper).iter().all(sleeps)
}

/// Sends a signal to every process of the program.
pub fn signal_all(reaper: i32, signal: i32) {
    for pid in program(reaper) {
        // SAFETY: a plain system call.
        unsafe { libc::kill(pid, signal) };
    }
}
