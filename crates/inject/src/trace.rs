//! What becomes of a thread that is traced, and how it goes on, with signals by their
//! numbers: the real-time ones have no names, and a stop that cannot be named must not be
//! taken for none.

use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

/// What became of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// Nothing yet.
    Nothing,
    /// It is gone.
    Gone,
    /// It has stopped as it was told to (`SIGTRAP`), or because its group is stopped.
    Stopped(i32),
    /// It has made another; or something else of ptrace's.
    Event(i32),
    /// A signal is about to come to it.
    Signal(i32),
    /// It is at the edge of a system call.
    Call,
}

/// How it goes on.
#[derive(Clone, Copy)]
pub(crate) enum Resume {
    /// To the next edge of a system call.
    Syscall,
    Run,
}

/// So often it is looked at once, before it is given time.
const LOOKS: usize = 200;
/// How much.
const PAUSE: Duration = Duration::from_micros(20);

/// Waits until something has become of a thread of this tracer's. The first of a process that is
/// killed has ended only when it was noted that all others have.
pub(crate) fn wait(pid: i32, tid: i32) -> Became {
    let mut looks = 0;
    loop {
        match look(tid) {
            Became::Nothing => {}
            became => return became,
        }
        looks += 1;
        if looks < LOOKS {
            std::thread::yield_now();
        } else {
            bury_threads(pid);
            std::thread::sleep(PAUSE);
        }
    }
}

/// What has become of a thread of this tracer's. That it has ended is looked at and left to be
/// seen: the process may be a child of this one, whose end somebody else here waits for.
pub(crate) fn look(tid: i32) -> Became {
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG;
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel fills the structure, or leaves it zero; both are valid.
    let (answer, pid, code) = unsafe {
        let (id, all) = (tid as libc::id_t, (flags | look).bits());
        let answer = libc::waitid(libc::P_PID, id, info.as_mut_ptr(), all);
        let info = info.assume_init();
        (answer, info.si_pid(), info.si_code)
    };
    match (answer, pid, code) {
        (-1, ..) if nix::Error::last() == nix::Error::EINTR => return Became::Nothing,
        (-1, ..) | (_, _, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) => {
            return Became::Gone;
        }
        (_, 0, _) => return Became::Nothing,
        _ => {}
    }
    let mut status = 0;
    // SAFETY: the kernel writes a number.
    match unsafe { libc::waitpid(tid, &raw mut status, flags.bits()) } {
        0 => Became::Nothing,
        -1 => Became::Gone,
        _ => of_status(status),
    }
}

/// Takes note of the threads of a process that have ended, all but the first: one that becomes
/// another program waits for that, and so does the end of the first; they would wait for ever.
pub(crate) fn bury_threads(pid: i32) {
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG;
    let look = flags | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::Exited(ended, _) | WaitStatus::Signaled(ended, ..)) =
        waitid(Id::All, look)
    {
        if ended == Pid::from_raw(pid) || waitpid(ended, Some(flags)).is_err() {
            break;
        }
    }
}

fn of_status(status: i32) -> Became {
    if !libc::WIFSTOPPED(status) {
        return Became::Gone;
    }
    // Above the signal is the kind of ptrace's own stop.
    match (libc::WSTOPSIG(status), status >> 16) {
        (signal, libc::PTRACE_EVENT_STOP) => Became::Stopped(signal),
        (signal, 0) if signal == libc::SIGTRAP | 0x80 => Became::Call,
        (signal, 0) => Became::Signal(signal),
        (_, event) => Became::Event(event),
    }
}

/// Has a stopped thread go on, with a signal (0: none).
pub(crate) fn resume(tid: i32, how: Resume, signal: i32) -> Option<()> {
    let request = match how {
        Resume::Syscall => libc::PTRACE_SYSCALL,
        Resume::Run => libc::PTRACE_CONT,
    };
    // SAFETY: a request without pointers.
    let answer = unsafe { libc::ptrace(request, tid, 0, i64::from(signal)) };
    (answer == 0).then_some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;

    use super::*;
    use crate::threads_of;
    use nix::sys::ptrace;

    /// In its environment a process of this test has threads, and waits.
    const HAS_THREADS: &str = "MW_TEST_HAS_THREADS";

    /// All of its threads are traced by whoever waits for the first, whose end the kernel
    /// tells when that of all others was taken note of.
    #[test]
    fn who_is_killed_has_ended_for_who_waits_for_its_first_thread() {
        if std::env::var_os(HAS_THREADS).is_some() {
            for _ in 0..3 {
                std::thread::spawn(|| std::thread::sleep(Duration::from_secs(600)));
            }
            std::thread::sleep(Duration::from_secs(600));
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads", "1"])
            .arg("trace::tests::who_is_killed_has_ended_for_who_waits_for_its_first_thread")
            .env(HAS_THREADS, "1")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        while threads_of(pid).len() < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (to, became) = channel();
        let trace = move || {
            // (They make no more.)
            for tid in threads_of(pid) {
                ptrace::seize(Pid::from_raw(tid), ptrace::Options::empty()).unwrap();
                ptrace::interrupt(Pid::from_raw(tid)).unwrap();
                assert_eq!(wait(pid, tid), Became::Stopped(libc::SIGTRAP));
            }
            nix::sys::signal::kill(Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
            to.send(wait(pid, pid)).unwrap();
        };
        // (Who waits in vain is left behind.)
        std::thread::spawn(trace);
        let became = became.recv_timeout(Duration::from_secs(20));
        child.kill().unwrap();
        assert_eq!(became, Ok(Became::Gone));
        child.wait().unwrap();
    }

    #[test]
    fn every_signal_is_told_apart() {
        let stopped = |signal: i32| of_status(signal << 8 | 0x7f);
        for signal in 1..=64 {
            assert_eq!(stopped(signal), Became::Signal(signal));
        }
        assert_eq!(stopped(libc::SIGTRAP | 0x80), Became::Call);
        let event = |event: i32, signal: i32| of_status(event << 16 | signal << 8 | 0x7f);
        assert_eq!(
            event(libc::PTRACE_EVENT_STOP, libc::SIGSTOP),
            Became::Stopped(libc::SIGSTOP)
        );
        let clone = libc::PTRACE_EVENT_CLONE;
        assert_eq!(event(clone, libc::SIGTRAP), Became::Event(clone));
        assert_eq!(of_status(0), Became::Gone);
        assert_eq!(of_status(libc::SIGKILL), Became::Gone);
    }
}
