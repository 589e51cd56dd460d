//! Ctrl-C, and the other polite ways to ask for the end.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use ::target::Cancel;

/// Signals that ask for the end are noted here instead of ending the process
/// in the middle of things.
#[derive(Clone)]
pub struct Interrupts {
    came: Arc<AtomicBool>,
    /// Of what is being done.
    request: Arc<Mutex<Cancel>>,
    /// Who is told of each.
    listener: Arc<Mutex<Option<Listener>>>,
}

type Listener = Box<dyn Fn() + Send>;

impl Interrupts {
    /// From here on. To be called while the process has one thread: those
    /// that follow inherit that the signals are for one of them only.
    pub fn catch() -> Interrupts {
        Interrupts::catch_these(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])
    }

    /// Catches Ctrl-C from here on, and no other signal; to be called as [`Interrupts::catch`] is.
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
        let request: Arc<Mutex<Cancel>> = Arc::default();
        let asked = Arc::clone(&request);
        let listener: Arc<Mutex<Option<Listener>>> = Arc::default();
        let listens = Arc::clone(&listener);
        let waiter = move || {
            let mut signal = 0;
            // SAFETY: both are valid for the call.
            while unsafe { libc::sigwait(&raw const set, &raw mut signal) } == 0 {
                flag.store(true, Relaxed);
                asked
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .cancel();
                let listens = listens.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(tell) = &*listens {
                    tell();
                }
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
        Interrupts {
            came,
            request,
            listener,
        }
    }

    /// Whether one came.
    pub fn came(&self) -> bool {
        self.came.load(Relaxed)
    }

    /// The flag itself.
    pub fn flag(&self) -> &AtomicBool {
        &self.came
    }

    /// Has somebody told of each that comes.
    pub fn tell(&self, listener: impl Fn() + Send + 'static) {
        let mut listens = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        *listens = Some(Box::new(listener));
    }

    /// For what is done from now on: cancelled by the next signal, unless
    /// something else is done by then.
    pub fn request(&self) -> Cancel {
        let fresh = Cancel::new();
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        *request = fresh.clone();
        fresh
    }
}
