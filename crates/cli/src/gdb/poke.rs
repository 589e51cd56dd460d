//! Passes an interruption by the client on to what runs.
//!
//! A session forgets, when it begins to move, that it was asked to stop; a
//! request that comes just before would be lost. So a thread repeats it until
//! what was asked to stop has stopped.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ::gdb_remote::Interrupt;

const OFTEN: Duration = Duration::from_millis(10);

struct Shared {
    /// Something moves.
    moves: AtomicBool,
    is_over: AtomicBool,
    /// What stops it.
    flag: Mutex<Option<Arc<AtomicBool>>>,
}

pub struct Poker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Poker {
    pub fn new(interrupt: Arc<Interrupt>) -> std::io::Result<Poker> {
        let shared = Arc::new(Shared {
            moves: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            flag: Mutex::new(None),
        });
        let theirs = Arc::clone(&shared);
        let work = move || {
            while !theirs.is_over.load(SeqCst) {
                if !theirs.moves.load(SeqCst) {
                    std::thread::park();
                    continue;
                }
                if interrupt.came()
                    && let Some(flag) = &*theirs.flag.lock().unwrap_or_else(PoisonError::into_inner)
                {
                    flag.store(true, SeqCst);
                }
                std::thread::park_timeout(OFTEN);
            }
        };
        let thread = std::thread::Builder::new().spawn(work)?;
        Ok(Poker {
            shared,
            thread: Some(thread),
        })
    }

    /// Something begins to move, or has stopped.
    pub fn watch(&self, moves: bool) {
        self.shared.moves.store(moves, SeqCst);
        if moves && let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// What moves is stopped by this.
    pub fn aim(&self, flag: Arc<AtomicBool>) {
        *self
            .shared
            .flag
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(flag);
    }
}

impl Drop for Poker {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
