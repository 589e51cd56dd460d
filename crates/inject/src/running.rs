//! A process that runs: all of its threads are stopped at once, by ptrace, looked at,
//! and made to do things in their own name.
//!
//! What was stopped and is dropped runs on as it was. ptrace belongs to a thread: all
//! of this is done by one, which ends afterwards, so that whatever it could not let go
//! of is let go of by the kernel.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use protocol::layout::{MONITOR_BASE, MONITOR_END, PREEMPT_SIGNAL};

use crate::refusal::{Refusal, name_of};
use crate::regs::{self, Regs};
use crate::slept::{Clocks, Slept, now_ns};
use crate::trace::{self, Became, Resume};
use crate::{Map, read_maps, read_proc};

/// How long it is waited for a thread that does not stop: in a call that cannot be
/// interrupted, or for a child that has its memory.
const STOP: Duration = Duration::from_secs(2);
/// And for one that could, and does not come: the machine has more to do than it can.
const LONG: Duration = Duration::from_secs(20);
/// How often it is looked.
const LOOK: Duration = Duration::from_micros(20);

/// A thread that is stopped.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) tid: i32,
    pub(crate) regs: Regs,
    /// Its signal mask.
    pub(crate) mask: u64,
    /// How long it had waited when it was stopped (ns), if that can be known.
    pub(crate) waited: Option<u64>,
    /// When that was (the time-stamp counter; CLOCK_MONOTONIC in ns).
    pub(crate) stopped_at: u64,
    pub(crate) stopped_ns: u64,
}

/// A process whose threads are all stopped.
pub struct Running {
    pub(crate) pid: i32,
    pub(crate) name: String,
    pub(crate) tasks: Vec<Task>,
    memory: File,
    /// A `syscall` instruction in it.
    gate: u64,
    begin: Instant,
    /// Somebody has sent it SIGSTOP meanwhile: it stops when it is let go.
    suspended: Cell<bool>,
    /// It has been let go.
    released: bool,
}

impl Running {
    /// Stops a process. Nothing of it has changed then, and nothing is changed if it
    /// is refused.
    pub fn stop(pid: i32) -> Result<Running, Refusal> {
        let name = name_of(pid).ok_or(Refusal::NoProcess(pid))?;
        let fail = |what: &'static str| Refusal::failed(pid, &name, what);
        let open = || {
            let options = OpenOptions::new().read(true).write(true).to_owned();
            let memory = options.open(format!("/proc/{pid}/mem"));
            memory.map_err(|error| Refusal::of_error(pid, &name, &error))
        };
        let mut running = Running {
            pid,
            name: name.clone(),
            tasks: Vec::new(),
            memory: open()?,
            gate: 0,
            begin: Instant::now(),
            suspended: Cell::new(false),
            released: false,
        };
        let mut asked = BTreeSet::new();
        running.seize_all(&mut asked)?;
        let asleep = asked.iter();
        let asleep = asleep.filter_map(|tid| Some((*tid, Slept::of(pid, *tid)?)));
        let slept: BTreeMap<i32, Slept> = asleep.collect();
        let clocks = Clocks::of(slept.values().copied());
        running.begin = Instant::now();
        for tid in &asked {
            interrupt(*tid);
        }
        let mut stopped = BTreeSet::new();
        // Threads are born until those who make them have stopped.
        loop {
            while let Some(tid) = asked.pop_first() {
                if !stopped.contains(&tid) && running.await_stop(tid, &mut asked)? {
                    stopped.insert(tid);
                }
            }
            running.seize_all(&mut asked)?;
            asked.retain(|tid| !stopped.contains(tid));
            for tid in &asked {
                interrupt(*tid);
            }
            if asked.is_empty() {
                break;
            }
        }
        // It may have become another program since: its memory is another one then.
        running.memory = open()?;
        // SAFETY: it reads a counter of the processor's.
        let stopped_at = unsafe { core::arch::x86_64::_rdtsc() };
        let stopped_ns = now_ns();
        // The process's own first.
        let mut tids: Vec<i32> = stopped.into_iter().collect();
        tids.sort_by_key(|tid| (*tid != pid, *tid));
        for tid in tids {
            let regs = regs::get(tid).ok_or_else(|| fail("read the registers of"))?;
            let mask = regs::mask(tid).ok_or_else(|| fail("read the signal mask of"))?;
            let slept = slept.get(&tid).filter(|_| is_broken_off(&regs));
            running.tasks.push(Task {
                tid,
                regs,
                mask,
                waited: slept.and_then(|slept| slept.until(&clocks, pid, tid)),
                stopped_at,
                stopped_ns,
            });
        }
        if running.tasks.is_empty() {
            return Err(Refusal::NoProcess(pid));
        }
        Ok(running)
    }

    /// Attaches to all threads that are not traced yet; none is stopped by that. The first
    /// one comes last, as it is let go first: signals that are ignored are not of a process whose
    /// first thread is traced. They would take another thread out of its call, which nobody
    /// hides from it if it is not traced.
    fn seize_all(&self, asked: &mut BTreeSet<i32>) -> Result<(), Refusal> {
        let mut tids = threads_of(self.pid);
        tids.sort_by_key(|tid| (*tid == self.pid, *tid));
        for tid in tids {
            let flags = Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACESYSGOOD;
            match ptrace::seize(Pid::from_raw(tid), flags) {
                Ok(()) => {
                    asked.insert(tid);
                }
                Err(nix::Error::ESRCH) => {}
                Err(_) if has_ended(self.pid, tid) => {}
                // Those that it has made since are ours from their beginning.
                Err(nix::Error::EPERM) if is_ours(self.pid, tid) => {
                    asked.insert(tid);
                }
                Err(_) => return Err(Refusal::not_allowed(self.pid, &self.name)),
            }
        }
        Ok(())
    }

    /// Waits until a thread has stopped. False: it is gone.
    fn await_stop(&self, tid: i32, born: &mut BTreeSet<i32>) -> Result<bool, Refusal> {
        let begin = Instant::now();
        loop {
            match trace::look(tid) {
                Became::Stopped(libc::SIGTRAP) => return Ok(true),
                Became::Stopped(_) => {
                    return Err(Refusal::Suspended {
                        pid: self.pid,
                        name: self.name.clone(),
                    });
                }
                Became::Event(event) => {
                    if event == libc::PTRACE_EVENT_CLONE
                        && let Ok(new) = ptrace::getevent(Pid::from_raw(tid))
                    {
                        born.insert(new as i32);
                    }
                    go_on(tid, 0);
                }
                // A signal on its way to the program gets there first.
                Became::Signal(signal) => go_on(tid, signal),
                Became::Gone => return Ok(false),
                // The first thread of a process is not told of while others are left.
                Became::Nothing if has_ended(self.pid, tid) => return Ok(false),
                // One that has not had a processor yet comes.
                Became::Call | Became::Nothing
                    if begin.elapsed() >= STOP
                        && (state_of(self.pid, tid) == Some('D') || begin.elapsed() >= LONG) =>
                {
                    return Err(Refusal::Uninterruptible {
                        pid: self.pid,
                        name: self.name.clone(),
                    });
                }
                Became::Call | Became::Nothing => {
                    trace::bury_threads(self.pid);
                    std::thread::sleep(LOOK);
                }
            }
        }
    }

    pub(crate) fn maps(&self) -> Result<Vec<Map>, Refusal> {
        read_maps(self.pid).map_err(|_| Refusal::failed(self.pid, &self.name, "look at"))
    }

    pub(crate) fn fail(&self, what: &'static str) -> Refusal {
        Refusal::failed(self.pid, &self.name, what)
    }

    pub(crate) fn read(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        self.memory.write_all_at(bytes, address).ok()
    }

    /// Says where there is a `syscall` instruction: in code of the kernel's own.
    pub(crate) fn find_gate(&mut self, vdso: &Map) -> Option<()> {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let code = self.read(vdso.start, (vdso.end - vdso.start) as usize)?;
        let at = code.windows(2).position(|bytes| bytes == SYSCALL)?;
        self.gate = vdso.start + at as u64;
        Some(())
    }

    /// A `syscall` instruction of the monitor's, for those whose calls elsewhere are told
    /// to it.
    pub(crate) fn use_gate(&mut self, gate: u64) {
        self.gate = gate;
    }

    /// Makes one system call in the name of a thread that is stopped. None: it did not
    /// come to it.
    pub(crate) fn call(&self, tid: i32, nr: i64, args: [u64; 6]) -> Option<i64> {
        let mut regs = regs::get(tid)?;
        regs.rip = self.gate;
        regs.rax = nr as u64;
        regs.orig_rax = u64::MAX;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        regs::set(tid, &regs)?;
        // Into it, and out of it.
        for _ in 0..2 {
            trace::resume(tid, Resume::Syscall, 0)?;
            self.await_status(tid, Resume::Syscall, |became| became == Became::Call)?;
        }
        Some(regs::get(tid)?.rax as i64)
    }

    /// Makes a call that must not fail.
    pub(crate) fn must(&self, tid: i32, nr: i64, args: [u64; 6]) -> Result<u64, Refusal> {
        match self.call(tid, nr, args) {
            Some(result) if !(-4095..0).contains(&result) => Ok(result as u64),
            Some(errno) => Err(Refusal::Call {
                pid: self.pid,
                name: self.name.clone(),
                errno: -errno as i32,
            }),
            None => Err(self.fail("make a call in")),
        }
    }

    /// Lets a thread run the monitor's code at `entry`, with this argument, until it
    /// says that it is done; the registers that it has then.
    pub(crate) fn run(&self, tid: i32, entry: u64, args: [u64; 2], done: u64) -> Option<Regs> {
        let mut regs = regs::get(tid)?;
        regs.rip = entry;
        regs.orig_rax = u64::MAX;
        regs.eflags = 0x202;
        [regs.rdi, regs.rsi] = args;
        regs::set(tid, &regs)?;
        regs::set_mask(tid, !(1 << (PREEMPT_SIGNAL - 1)))?;
        trace::resume(tid, Resume::Run, 0)?;
        let is_done = |became| {
            became == Became::Signal(PREEMPT_SIGNAL)
                && regs::get(tid).is_some_and(|regs| regs.rip == done)
        };
        self.await_status(tid, Resume::Run, is_done)?;
        regs::set_mask(tid, u64::MAX)?;
        regs::get(tid)
    }

    /// Waits for a stop of a certain kind. Signals that are not for the program (all
    /// of its own are blocked) are dropped; but for the one that cannot be blocked, which
    /// is sent again.
    fn await_status(&self, tid: i32, how: Resume, is_it: impl Fn(Became) -> bool) -> Option<()> {
        loop {
            // It is not waited in vain: nothing that is done there waits for anybody.
            match trace::wait(self.pid, tid) {
                Became::Nothing => {}
                Became::Gone => return None,
                became if is_it(became) => return Some(()),
                became => {
                    if matches!(became, Became::Signal(libc::SIGSTOP)) {
                        self.suspended.set(true);
                    }
                    trace::resume(tid, how, 0)?;
                }
            }
        }
    }

    /// Whether the place that the monitor needs is free.
    pub(crate) fn is_free(maps: &[Map]) -> bool {
        maps.iter()
            .all(|map| map.end <= MONITOR_BASE || map.start >= MONITOR_END)
    }

    /// Lets all threads go, each with its registers and its mask.
    pub fn release(mut self) -> Duration {
        self.let_go();
        self.begin.elapsed()
    }

    fn let_go(&mut self) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        for task in &self.tasks {
            regs::set(task.tid, &unnoticed(&task.regs));
            regs::set_mask(task.tid, task.mask);
        }
        for task in &self.tasks {
            let _ = ptrace::detach(Pid::from_raw(task.tid), None);
        }
        if self.suspended.get() {
            let stop = nix::sys::signal::Signal::SIGSTOP;
            let _ = nix::sys::signal::kill(Pid::from_raw(self.pid), stop);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Whether a thread was taken out of a call that the kernel would begin again by itself,
/// one way or the other.
pub(crate) fn is_broken_off(regs: &Regs) -> bool {
    let is_again = matches!(-(regs.rax as i64), 512..=514 | 516)
        || -(regs.rax as i64) == i64::from(libc::EINTR) && is_never_restarted(regs.orig_rax);
    (regs.orig_rax as i64) >= 0 && is_again
}

/// The registers of a thread that is let go as it was: a call that the kernel ends because the
/// thread was stopped in it is made again.
fn unnoticed(regs: &Regs) -> Regs {
    let is_ended = -(regs.rax as i64) == i64::from(libc::EINTR);
    let mut regs = *regs;
    if is_ended && is_broken_off(&regs) {
        regs.rax = regs.orig_rax;
        regs.orig_rax = u64::MAX;
        regs.rip -= 2;
    }
    regs
}

/// Calls that end with EINTR whenever a thread is stopped in them, and that have had
/// no effect then. (Those on sockets: if the socket has a time limit; `select` and `ppoll`:
/// if what is left of their time cannot be written down.)
fn is_never_restarted(number: u64) -> bool {
    matches!(
        i64::try_from(number).unwrap_or(-1),
        libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_ppoll
            | libc::SYS_semop
            | libc::SYS_semtimedop
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_io_getevents
            | libc::SYS_io_uring_enter
            | libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_connect
    )
}

/// Has a thread go on that has stopped for something else. It is told first to stop again
/// (to the kernel, one stop is as good as another): it may have been taken out of a call by
/// a signal that nobody would have seen without us, such as a child's end, and must not come
/// to see how that call has ended.
fn go_on(tid: i32, signal: i32) {
    interrupt(tid);
    trace::resume(tid, Resume::Run, signal);
}

fn interrupt(tid: i32) {
    let _ = ptrace::interrupt(Pid::from_raw(tid));
}

/// The threads of a process.
pub fn threads_of(pid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// The state of a thread, by the kernel's letter.
pub fn state_of(pid: i32, tid: i32) -> Option<char> {
    let stat = read_proc(&format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a thread has come to its end.
fn has_ended(pid: i32, tid: i32) -> bool {
    state_of(pid, tid).is_none_or(|state| "ZX".contains(state))
}

/// The thread that traces a thread: the kernel names that, not its process. 0 for nobody.
pub fn tracer_of(pid: i32, tid: i32) -> Option<i32> {
    let status = read_proc(&format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let mut lines = status.lines();
    let tracer = lines.find_map(|line| line.strip_prefix("TracerPid:"))?;
    tracer.trim().parse().ok()
}

/// Whether a thread is traced by this very thread.
fn is_ours(pid: i32, tid: i32) -> bool {
    tracer_of(pid, tid) == Some(nix::unistd::gettid().as_raw())
}
