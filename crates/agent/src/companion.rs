//! Work that must be brought to its end though the agent is killed in the middle of it: a
//! thread that is being changed by ptrace runs on with whatever registers it has when its
//! tracer dies.
//!
//! The work is done by a process of its own that has the agent's memory. Who asks for it is
//! suspended meanwhile, so the companion may use all that belongs to that thread. A signal that
//! ends the agent does not end the companion, and all that could be blocked are.

use std::ffi::c_void;
use std::panic::AssertUnwindSafe;

use rustix::process::{Pid, getpid, getppid};

use crate::Error;

/// Room for what it calls: files of /proc are read, and a page or two are put together.
const STACK: usize = 1 << 20;
const GUARD: usize = 4096;

/// Whether those that work for an agent still do so for somebody.
#[derive(Clone, Copy, Debug)]
pub struct Wanted(Pid);

impl Wanted {
    /// By this process, which is about to ask for it.
    pub fn here() -> Wanted {
        Wanted(getpid())
    }

    /// Asked by the companion: whoever has it as a child lives.
    pub fn is_so(self) -> bool {
        getppid() == Some(self.0)
    }
}

/// Does something in a process of its own, to its end. None: it has panicked.
pub fn complete<T>(work: impl FnOnce() -> T) -> Result<Option<T>, Error> {
    struct Task<W, T> {
        work: Option<W>,
        result: Option<T>,
    }
    extern "C" fn be<W: FnOnce() -> T, T>(task: *mut c_void) -> libc::c_int {
        // SAFETY: what is given to `clone` below, by who is suspended until this has ended.
        let task = unsafe { &mut *task.cast::<Task<W, T>>() };
        if let Some(work) = task.work.take() {
            // (Nothing of it is looked at if it has panicked.)
            task.result = std::panic::catch_unwind(AssertUnwindSafe(work)).ok();
        }
        0
    }
    fn entry<W: FnOnce() -> T, T>(_: &Task<W, T>) -> extern "C" fn(*mut c_void) -> libc::c_int {
        be::<W, T>
    }
    let mut task = Task {
        work: Some(work),
        result: None,
    };
    let failed = || Error::System("cannot fork", std::io::Error::last_os_error());
    let stack = Stack::make().ok_or_else(failed)?;
    let run = entry(&task);
    // SAFETY: it gets a stack of its own. It has this thread's own data of the C library's and
    // all else, and this thread is suspended (CLONE_VFORK) until it has ended; both have all
    // signals blocked. What it is given lives on this stack.
    let pid = unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let argument = (&raw mut task).cast();
        let pid = libc::clone(
            run,
            stack.top(),
            libc::CLONE_VM | libc::CLONE_VFORK,
            argument,
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        pid
    };
    if pid < 0 {
        return Err(failed());
    }
    // SAFETY: a plain system call about a child of this process.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    Ok(task.result)
}

struct Stack(*mut c_void);

impl Stack {
    fn make() -> Option<Stack> {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
        );
        // SAFETY: fresh memory; then its lowest page.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), STACK, prot, flags, -1, 0);
            let is_made = base != libc::MAP_FAILED;
            (is_made && libc::mprotect(base, GUARD, libc::PROT_NONE) == 0).then_some(Stack(base))
        }
    }

    fn top(&self) -> *mut c_void {
        self.0.wrapping_byte_add(STACK)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: its own memory, and who ran on it has ended.
        unsafe { libc::munmap(self.0, STACK) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_seen_and_was_done_elsewhere() {
        let wanted = Wanted::here();
        let mut seen = Vec::new();
        let own = getpid();
        let done = complete(|| {
            seen.push(std::fs::read_to_string("/proc/self/comm").is_ok());
            (getpid() != own, wanted.is_so(), format!("{own:?}"))
        });
        assert_eq!(done.ok().flatten(), Some((true, true, format!("{own:?}"))));
        assert_eq!(seen, [true]);
        assert!(!wanted.is_so());
    }

    #[test]
    fn a_panic_is_told() {
        assert!(matches!(complete(|| panic!("it fails")), Ok(None::<()>)));
    }
}
