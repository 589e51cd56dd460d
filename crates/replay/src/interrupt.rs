//! Ctrl-C, and the other polite ways to ask for the end.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Signals that ask for the end are noted here instead of ending the process
/// in the middle of things.
#[derive(Clone)]
pub struct Interrupts {
    came: Arc<AtomicBool>,
}

impl Interrupts {
    /// From here on. To be called while the process has one thread: those
    /// that follow inherit that the signals are for one of them only.
    pub fn catch() -> Interrupts {
        Interrupts::catch_these(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])
    }

    /// The same for Ctrl-C alone.
    pub fn catch_ctrl_c() -> Interrupts {
        Interrupts::catch_these(&[libc::SIGINT])
    }

    fn catch_these(signals: &[i32]) -> Interrupts {
        let came = Arc::new(AtomicBool::new(false));
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is made before it is used; plain calls otherwise.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            set
        };
        let flag = Arc::clone(&came);
        let waiter = move || {
            let mut signal = 0;
            // SAFETY: both are valid for the call.
            while unsafe { libc::sigwait(&raw const set, &raw mut signal) } == 0 {
                flag.store(true, Relaxed);
            }
        };
        // Without the thread the signals would be lost: then they end the
        // process at once, as ever.
        if std::thread::Builder::new().spawn(waiter).is_err() {
            // SAFETY: undoes what was done above.
            unsafe {
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            }
        }
        Interrupts { came }
    }

    /// Whether one came.
    pub fn came(&self) -> bool {
        self.came.load(Relaxed)
    }

    /// The flag itself.
    pub fn flag(&self) -> &AtomicBool {
        &self.came
    }

    /// The flag, to keep: whoever has seen it may set it back.
    pub fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.came)
    }
}
