//! Attaching to a process, waiting for its exec, and what is done there.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use protocol::layout::{IMAGE_BASE, PREEMPT_SIGNAL};
use protocol::shared::{EXEC_FAILED, IMAGE_OFFSET};

use crate::{Error, landing};

/// A thread that runs, and that the kernel will stop when it has exec'd.
pub struct Attached {
    tid: i32,
    /// What is waited for; None: whatever this thread traces.
    only: Option<Pid>,
}

/// What became of an attached thread.
#[allow(clippy::large_enum_variant, reason = "one at a time, never stored")]
pub enum Outcome {
    /// It has exec'd and stands before its first instruction.
    Exec(ExecStop),
    /// Its exec failed; it has been let go.
    Failed,
    /// It ended.
    Gone,
}

fn failed(what: &'static str, pid: i32) -> impl Fn(nix::Error) -> Error {
    move |source| Error::Trace { what, pid, source }
}

impl Attached {
    /// Attaches to a thread of any process, for a thread of ours that has no
    /// children: the id changes when a thread other than the first execs, so
    /// everything is waited for.
    pub fn to(tid: i32) -> Result<Attached, Error> {
        ptrace::seize(Pid::from_raw(tid), Options::PTRACE_O_TRACEEXEC)
            .map_err(failed("attach to", tid))?;
        Ok(Attached { tid, only: None })
    }

    /// Attaches to a process that has one thread.
    pub fn to_process(pid: i32) -> Result<Attached, Error> {
        let only = Some(Pid::from_raw(pid));
        Ok(Attached {
            only,
            ..Attached::to(pid)?
        })
    }

    /// Waits until it has exec'd, or says that it will not.
    pub fn wait(self) -> Result<Outcome, Error> {
        // Only what this very thread traces.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            let status = match waitpid(self.only, Some(flags)) {
                Err(nix::Error::EINTR) => continue,
                Err(nix::Error::ECHILD) => return Ok(Outcome::Gone),
                other => other.map_err(failed("wait for", self.tid))?,
            };
            match status {
                WaitStatus::PtraceEvent(pid, _, libc::PTRACE_EVENT_EXEC) => {
                    return ExecStop::new(pid.as_raw()).map(Outcome::Exec);
                }
                WaitStatus::PtraceEvent(pid, signal, libc::PTRACE_EVENT_STOP) => {
                    let stops = [
                        Signal::SIGSTOP,
                        Signal::SIGTSTP,
                        Signal::SIGTTIN,
                        Signal::SIGTTOU,
                    ];
                    if stops.contains(&signal) {
                        listen(pid);
                    } else {
                        let _ = ptrace::cont(pid, None);
                    }
                }
                WaitStatus::PtraceEvent(pid, ..) => {
                    let _ = ptrace::cont(pid, None);
                }
                WaitStatus::Stopped(pid, signal) => {
                    if signal as i32 == PREEMPT_SIGNAL && is_failure(pid) {
                        let _ = ptrace::detach(pid, None);
                        return Ok(Outcome::Failed);
                    }
                    let _ = ptrace::cont(pid, signal);
                }
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Ok(Outcome::Gone),
                _ => {}
            }
        }
    }
}

/// Leaves a process stopped by job control stopped.
fn listen(pid: Pid) {
    // SAFETY: a ptrace request without pointers.
    unsafe { libc::ptrace(libc::PTRACE_LISTEN, pid.as_raw(), 0, 0) };
}

fn is_failure(pid: Pid) -> bool {
    ptrace::getsiginfo(pid).is_ok_and(|info| {
        // SAFETY: the value is there for queued signals; for others it is
        // some other bytes of the structure, which is as good.
        info.si_code == libc::SI_QUEUE && unsafe { info.si_value().sival_ptr as u64 } == EXEC_FAILED
    })
}

/// What the monitor is told.
pub struct Injection {
    /// The exec slot that holds the rest.
    pub slot: u64,
    /// The descriptor in the process that leads to the arena.
    pub arena_fd: i32,
    pub image_len: u64,
    pub entry: u64,
    /// The vdso the program shall see.
    pub vdso: u64,
}

impl Injection {
    /// The arguments of the call that maps the monitor.
    fn mapping(&self) -> [u64; 6] {
        [
            IMAGE_BASE,
            self.image_len,
            (libc::PROT_READ | libc::PROT_EXEC) as u64,
            (libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE) as u64,
            self.arena_fd as u64,
            IMAGE_OFFSET,
        ]
    }
}

/// A process at its first instruction. Dropped, it runs on as it is.
pub struct ExecStop {
    pid: i32,
    regs: libc::user_regs_struct,
    memory: File,
    released: bool,
}

/// Starts a command that stops before its first instruction.
pub fn start_stopped(command: &mut std::process::Command) -> Result<ExecStop, Error> {
    use std::os::unix::process::CommandExt;
    // SAFETY: ptrace(PTRACE_TRACEME) is a plain system call.
    unsafe {
        command.pre_exec(|| Ok(ptrace::traceme()?));
    }
    let child = command.spawn().map_err(|source| Error::Proc {
        path: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    let pid = Pid::from_raw(child.id() as i32);
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    match waitpid(pid, Some(flags)) {
        Ok(WaitStatus::Stopped(..)) => ExecStop::new(pid.as_raw()),
        Ok(_) => Err(failed("stop", pid.as_raw())(nix::Error::ESRCH)),
        Err(error) => Err(failed("wait for", pid.as_raw())(error)),
    }
}

impl ExecStop {
    fn new(pid: i32) -> Result<ExecStop, Error> {
        let regs =
            ptrace::getregs(Pid::from_raw(pid)).map_err(failed("read the registers of", pid))?;
        ExecStop::with(pid, regs, false)
    }

    /// One that this thread traces and means to keep on tracing.
    pub fn kept(pid: i32) -> Result<ExecStop, Error> {
        let mut stop = ExecStop::new(pid)?;
        stop.released = true;
        Ok(stop)
    }

    /// One that somebody else traces: to be looked at.
    pub fn of_other(pid: i32, regs: libc::user_regs_struct) -> Result<ExecStop, Error> {
        ExecStop::with(pid, regs, true)
    }

    fn with(pid: i32, regs: libc::user_regs_struct, released: bool) -> Result<ExecStop, Error> {
        let path = format!("/proc/{pid}/mem");
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| Error::Proc { path, source })?;
        Ok(ExecStop {
            pid,
            regs,
            memory,
            released,
        })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn regs(&self) -> &libc::user_regs_struct {
        &self.regs
    }

    /// Whether the new image is 64-bit code.
    pub fn is_64_bit(&self) -> bool {
        self.regs.cs == 0x33
    }

    /// Whether any page of a range of anonymous memory has been touched. If the
    /// kernel does not say, they all may have been.
    pub fn is_touched(&self, range: std::ops::Range<u64>) -> bool {
        const PAGE: u64 = 4096;
        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        let pages = (range.end.saturating_sub(range.start) / PAGE) as usize;
        let mut entries = vec![0; pages * 8];
        let read = File::open(format!("/proc/{}/pagemap", self.pid))
            .and_then(|file| file.read_exact_at(&mut entries, range.start / PAGE * 8));
        let is_touched = |entry: &[u8]| {
            let entry = entry.try_into().map_or(u64::MAX, u64::from_le_bytes);
            entry & PRESENT_OR_SWAPPED != 0
        };
        read.is_err() || entries.chunks(8).any(is_touched)
    }

    pub fn read(&self, address: u64, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len];
        self.memory
            .read_exact_at(&mut bytes, address)
            .map_err(|source| Error::Proc {
                path: format!("/proc/{}/mem", self.pid),
                source,
            })?;
        Ok(bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.memory
            .write_all_at(bytes, address)
            .map_err(|source| Error::Proc {
                path: format!("/proc/{}/mem", self.pid),
                source,
            })
    }

    /// Makes one system call in the process.
    fn call(&self, nr: u64, args: [u64; 6]) -> Result<i64, Error> {
        let pid = Pid::from_raw(self.pid);
        let at = self.regs.rip;
        // The process is still inside execve, whose return sets rax: so the
        // number is set by code. mov eax, nr; syscall; int3
        let number = nr.to_le_bytes();
        let code = [
            0xb8, number[0], number[1], number[2], number[3], 0x0f, 0x05, 0xcc,
        ];
        let saved = self.read(at, code.len())?;
        self.write(at, &code)?;
        let mut regs = self.regs;
        regs.orig_rax = u64::MAX;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        let result = ptrace::setregs(pid, regs)
            .and_then(|()| ptrace::cont(pid, None))
            .and_then(|()| self.wait_trap())
            .and_then(|()| ptrace::getregs(pid))
            .map_err(failed("make a call in", self.pid));
        self.write(at, &saved)?;
        Ok(result?.rax as i64)
    }

    fn wait_trap(&self) -> nix::Result<()> {
        let pid = Pid::from_raw(self.pid);
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        // Signals and stops that come meanwhile are sent again when the call
        // has been made: sooner, they would keep coming before it.
        let mut held = Vec::new();
        loop {
            match waitpid(pid, Some(flags)) {
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error),
                Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => break,
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => {
                    return Err(nix::Error::ESRCH);
                }
                Ok(WaitStatus::Stopped(_, signal)) => {
                    held.push(signal);
                    ptrace::cont(pid, None)?;
                }
                Ok(_) => ptrace::cont(pid, None)?,
            }
        }
        for signal in held {
            let _ = nix::sys::signal::kill(pid, signal);
        }
        Ok(())
    }

    /// The auxiliary vector: its address on the stack, and its pairs.
    pub fn auxv(&self, stack: &[u8]) -> (u64, Vec<(u64, u64)>) {
        let word = |i: usize| {
            let bytes = stack.get(i * 8..i * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let mut at = 1 + word(0).unwrap_or(0) as usize + 1;
        while word(at).is_some_and(|w| w != 0) {
            at += 1;
        }
        at += 1;
        let start = at;
        let mut pairs = Vec::new();
        while let (Some(key), Some(value)) = (word(at), word(at + 1)) {
            pairs.push((key, value));
            if key == libc::AT_NULL {
                break;
            }
            at += 2;
        }
        (self.regs.rsp + 8 * start as u64, pairs)
    }

    /// Maps the monitor, shows the program our vdso, and lets the process go
    /// at the monitor's entry.
    pub fn inject(mut self, what: &Injection, auxv: (u64, &[(u64, u64)])) -> Result<(), Error> {
        self.put(what, vdso_at(auxv.0, auxv.1))?;
        self.let_go()
    }

    /// As [`ExecStop::inject`], but without waiting for the process meanwhile, where that is
    /// possible. If it cannot map the monitor it runs on as it is, and says so at `failure_at`
    /// in the arena: as the error that the call returned.
    pub fn land(
        mut self,
        what: &Injection,
        auxv: (u64, &[(u64, u64)]),
        failure_at: u64,
    ) -> Result<(), Error> {
        let at = vdso_at(auxv.0, auxv.1);
        let kernels = auxv.1.iter().find(|(key, _)| *key == libc::AT_SYSINFO_EHDR);
        match landing::place().zip(kernels) {
            Some((place, (_, vdso))) => {
                self.write(vdso + place, &landing::code(*vdso, self.regs.rip))?;
                self.enter_by(what, at, vdso + place, failure_at)?;
            }
            None => self.put(what, at)?,
        }
        self.let_go()
    }

    fn let_go(&mut self) -> Result<(), Error> {
        self.released = true;
        let pid = Pid::from_raw(self.pid);
        ptrace::detach(pid, None).map_err(failed("let go of", self.pid))
    }

    /// Shows the program our vdso, and has it map the monitor when it goes on, by the
    /// instructions at `place`.
    fn enter_by(
        &self,
        what: &Injection,
        vdso_at: Option<u64>,
        place: u64,
        failure_at: u64,
    ) -> Result<(), Error> {
        if let Some(at) = vdso_at {
            self.write(at, &what.vdso.to_le_bytes())?;
        }
        let mut regs = self.regs;
        regs.rip = place;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = what.mapping();
        regs.rbx = IMAGE_BASE;
        regs.rbp = what.entry;
        regs.r12 = what.slot;
        regs.r13 = what.arena_fd as u64;
        regs.r14 = vdso_at.unwrap_or(0);
        regs.r15 = failure_at;
        regs.orig_rax = u64::MAX;
        let pid = Pid::from_raw(self.pid);
        ptrace::setregs(pid, regs).map_err(failed("set the registers of", self.pid))
    }

    /// Maps the monitor and shows the program our vdso, by the word at `vdso_at`. The
    /// process stands at the monitor's entry then.
    pub fn put(&self, what: &Injection, vdso_at: Option<u64>) -> Result<(), Error> {
        let mapped = self.call(libc::SYS_mmap as u64, what.mapping())?;
        if mapped != IMAGE_BASE as i64 {
            return Err(Error::Remote {
                pid: self.pid,
                errno: -mapped,
            });
        }
        if let Some(at) = vdso_at {
            self.write(at, &what.vdso.to_le_bytes())?;
        }
        let mut regs = self.regs;
        regs.rip = what.entry;
        regs.rdi = what.slot;
        regs.rsi = what.arena_fd as u64;
        regs.orig_rax = u64::MAX;
        let pid = Pid::from_raw(self.pid);
        ptrace::setregs(pid, regs).map_err(failed("set the registers of", self.pid))
    }
}

/// Where in an auxiliary vector the address of the vdso is.
pub fn vdso_at(auxv_at: u64, auxv: &[(u64, u64)]) -> Option<u64> {
    let place = auxv
        .iter()
        .position(|(key, _)| *key == libc::AT_SYSINFO_EHDR)?;
    Some(auxv_at + 16 * place as u64 + 8)
}

impl Drop for ExecStop {
    fn drop(&mut self) {
        if !self.released {
            let pid = Pid::from_raw(self.pid);
            let _ = ptrace::setregs(pid, self.regs);
            let _ = ptrace::detach(pid, None);
        }
    }
}
