//! ptrace and its kin, each request as a function that cannot be called wrongly.
//! Everything unsafe of this crate is here.
//!
//! (The wrappers of other crates know the 31 old signals only. Programs use the
//! others, and a debugger may not lose them.)

use std::io::{Error, Result};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{FromRawFd, OwnedFd};

pub type General = libc::user_regs_struct;

/// What became of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exited(i32),
    Killed(u32),
    /// It stands still: by which signal, and by which of ptrace's events (0: none).
    Stopped {
        signal: i32,
        event: i32,
    },
}

fn check(result: libc::c_long) -> Result<i64> {
    if result == -1 {
        return Err(Error::last_os_error());
    }
    Ok(result)
}

/// A request whose arguments are numbers.
fn plain(request: libc::c_uint, tid: i32, address: u64, data: u64) -> Result<i64> {
    // SAFETY: none of the requests that are made by this has pointers of ours.
    check(unsafe { libc::ptrace(request, tid, address, data) })
}

/// What the kernel is to tell of traced threads.
const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEVFORKDONE
    | libc::PTRACE_O_TRACEEXEC;

pub fn seize(tid: i32) -> Result<()> {
    plain(libc::PTRACE_SEIZE, tid, 0, OPTIONS as u64).map(drop)
}

pub fn interrupt(tid: i32) -> Result<()> {
    plain(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Leaves a thread that job control stopped as it is, but hears of its end.
pub fn listen(tid: i32) -> Result<()> {
    plain(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

pub fn go_on(tid: i32, signal: u32) -> Result<()> {
    plain(libc::PTRACE_CONT, tid, 0, u64::from(signal)).map(drop)
}

pub fn to_call(tid: i32, signal: u32) -> Result<()> {
    plain(libc::PTRACE_SYSCALL, tid, 0, u64::from(signal)).map(drop)
}

pub fn one_instruction(tid: i32, signal: u32) -> Result<()> {
    plain(libc::PTRACE_SINGLESTEP, tid, 0, u64::from(signal)).map(drop)
}

pub fn detach(tid: i32, signal: u32) -> Result<()> {
    plain(libc::PTRACE_DETACH, tid, 0, u64::from(signal)).map(drop)
}

/// Whether two processes have one memory.
pub fn share_memory(one: i32, other: i32) -> bool {
    const KCMP_VM: u64 = 1;
    // SAFETY: only numbers are handed over.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0u64, 0u64) == 0 }
}

pub fn set_debug_register(tid: i32, number: usize, value: u64) -> Result<()> {
    let offset = std::mem::offset_of!(libc::user, u_debugreg) + number * 8;
    plain(libc::PTRACE_POKEUSER, tid, offset as u64, value).map(drop)
}

pub fn debug_register(tid: i32, number: usize) -> Result<u64> {
    let offset = std::mem::offset_of!(libc::user, u_debugreg) + number * 8;
    // SAFETY: the kernel reads a word of the thread's; errno says whether it could.
    let word = unsafe {
        *libc::__errno_location() = 0;
        libc::ptrace(libc::PTRACE_PEEKUSER, tid, offset as u64, 0u64)
    };
    match Error::last_os_error().raw_os_error() {
        Some(0) | None => Ok(word as u64),
        _ if word != -1 => Ok(word as u64),
        _ => Err(Error::last_os_error()),
    }
}

pub fn registers(tid: i32) -> Result<General> {
    let mut into = MaybeUninit::<General>::uninit();
    // SAFETY: the kernel fills the whole structure if it succeeds.
    unsafe {
        check(libc::ptrace(
            libc::PTRACE_GETREGS,
            tid,
            0u64,
            into.as_mut_ptr(),
        ))?;
        Ok(into.assume_init())
    }
}

pub fn set_registers(tid: i32, registers: &General) -> Result<()> {
    let from: *const General = registers;
    // SAFETY: the kernel only reads the structure.
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0u64, from) }).map(drop)
}

/// In the order of the structure, which is that of `target::Registers`.
pub fn words(registers: &General) -> [u64; 27] {
    // SAFETY: 27 words and nothing else, of which each value is one.
    unsafe { std::mem::transmute_copy(registers) }
}

pub fn from_words(words: &[u64; 27]) -> General {
    const { assert!(size_of::<General>() == size_of::<[u64; 27]>()) };
    // SAFETY: the same size, and each value is one.
    unsafe { std::mem::transmute_copy(words) }
}

/// The state of the vector and floating point registers, as XSAVE has it.
pub fn vectors(tid: i32) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; 16 << 10];
    let mut io = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes to the buffer, at most as much as it is long.
    check(unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            tid,
            u64::from(NT_X86_XSTATE),
            &raw mut io,
        )
    })?;
    bytes.truncate(io.iov_len);
    Ok(bytes)
}

pub fn set_vectors(tid: i32, bytes: &mut [u8]) -> Result<()> {
    let mut io = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel reads the buffer, at most as much as it is long.
    check(unsafe {
        libc::ptrace(
            libc::PTRACE_SETREGSET,
            tid,
            u64::from(NT_X86_XSTATE),
            &raw mut io,
        )
    })
    .map(drop)
}

const NT_X86_XSTATE: u32 = 0x202;

/// Why a thread got the signal that stopped it (`si_code`).
pub fn signal_code(tid: i32) -> Result<i32> {
    let mut into = MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: the kernel fills the whole structure if it succeeds.
    unsafe {
        check(libc::ptrace(
            libc::PTRACE_GETSIGINFO,
            tid,
            0u64,
            into.as_mut_ptr(),
        ))?;
        Ok(into.assume_init().si_code)
    }
}

/// Whether a thread stands before the signal by which the monitor says that an exec has
/// failed.
pub fn says_exec_failed(tid: i32) -> bool {
    let mut into = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel fills the whole structure if it succeeds; what comes with a
    // signal is some bytes of it, whatever it is.
    unsafe {
        let asked = libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0u64, into.as_mut_ptr());
        let info = into.assume_init();
        asked == 0
            && info.si_code == libc::SI_QUEUE
            && info.si_value().sival_ptr as u64 == protocol::shared::EXEC_FAILED
    }
}

/// Whether a trap waits to come to a thread that stands: it was told to stop between
/// the instruction that trapped and the trap.
pub fn has_trap(tid: i32) -> bool {
    const MOST: usize = 16;
    let from = libc::ptrace_peeksiginfo_args {
        off: 0,
        flags: 0,
        nr: MOST as i32,
    };
    let mut into = [const { MaybeUninit::<libc::siginfo_t>::uninit() }; MOST];
    // SAFETY: the kernel reads the one and writes to the other, at most as many as it
    // was told; it returns how many those are, and only those are read.
    unsafe {
        let to = into.as_mut_ptr();
        let got = libc::ptrace(libc::PTRACE_PEEKSIGINFO, tid, &raw const from, to);
        let got = usize::try_from(got).unwrap_or(0).min(MOST);
        let mut waiting = into.iter().take(got);
        waiting.any(|info| info.assume_init_ref().si_signo == libc::SIGTRAP)
    }
}

/// What an event has to tell: of a fork, who.
pub fn event_message(tid: i32) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes a word.
    check(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0u64, &raw mut message) })?;
    Ok(message)
}

/// The call that a thread is about to make, if it stands at the entry of one.
pub fn entered_call(tid: i32) -> Option<u64> {
    let mut into = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    // SAFETY: the kernel writes at most as much as it is told; what it leaves out
    // is zero, which is a value. The call is read only where it is one.
    unsafe {
        let size = size_of::<libc::ptrace_syscall_info>() as u64;
        let request = libc::PTRACE_GET_SYSCALL_INFO;
        check(libc::ptrace(request, tid, size, into.as_mut_ptr())).ok()?;
        let info = into.assume_init();
        let is_entry = info.op == libc::PTRACE_SYSCALL_INFO_ENTRY;
        is_entry.then_some(info.u.entry.nr)
    }
}

/// What became of a thread, or of any (-1). None: nothing yet, if `now`.
pub fn wait(tid: i32, now: bool) -> Result<Option<(i32, Status)>> {
    let mut status = 0;
    let flags = libc::__WALL | if now { libc::WNOHANG } else { 0 };
    let got = loop {
        // SAFETY: the kernel writes a number.
        match unsafe { libc::waitpid(tid, &raw mut status, flags) } {
            -1 if Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            -1 => return Err(Error::last_os_error()),
            0 => return Ok(None),
            got => break got,
        }
    };
    let what = if libc::WIFEXITED(status) {
        Status::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Status::Killed(libc::WTERMSIG(status) as u32)
    } else {
        Status::Stopped {
            signal: libc::WSTOPSIG(status) & 0xff,
            event: status >> 16,
        }
    };
    Ok(Some((got, what)))
}

/// Sends a signal to one thread, which is traced and so is what it was.
pub fn signal_thread(tid: i32, signal: u32) -> Result<()> {
    // SAFETY: a plain call.
    check(unsafe { libc::syscall(libc::SYS_tkill, tid, signal) }).map(drop)
}

/// Becomes readable when something becomes of a child or a traced thread. From here
/// on nothing that asks for the end is heard: who asks is answered by the debugger's
/// going away.
pub fn children() -> Result<OwnedFd> {
    let signals = [
        libc::SIGCHLD,
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGTTOU,
        libc::SIGPIPE,
    ];
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut child = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the sets are made before they are used; plain calls otherwise. What
    // signalfd returns is nobody else's.
    unsafe {
        libc::sigemptyset(all.as_mut_ptr());
        libc::sigemptyset(child.as_mut_ptr());
        let (mut all, mut child) = (all.assume_init(), child.assume_init());
        for signal in signals {
            libc::sigaddset(&raw mut all, signal);
        }
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let fd = libc::signalfd(-1, &raw const child, flags);
        check(fd.into())?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// For a program that begins: no signal is blocked.
pub fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is made before it is used.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// A descriptor that programs that are executed do not get.
pub fn close_on_exec(number: i32) {
    // SAFETY: says so; if it is not open, nothing comes of it.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// A descriptor that this process was started with, by number. None: it is not open,
/// or one of the standard ones.
pub fn inherited(number: i32) -> Option<OwnedFd> {
    // SAFETY: asks whether it is open.
    if number <= 2 || unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
        return None;
    }
    // SAFETY: it is open, and was given to this process for this use alone.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
