//! Whether a client wants what it asked for to stop.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether the client wants what it asked for to stop.
///
/// A client may send the interruption right behind the packet that sets
/// something moving, or just when that has stopped by itself. So it is told
/// by how many packets came before it, and counts for the last of them only.
#[derive(Debug, Default)]
pub struct Interrupt {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Packets that had come when it did; 0: none.
    after: u64,
    /// Number of the packet that is answered.
    now: u64,
    /// Of what is being done.
    flag: Arc<AtomicBool>,
}

impl State {
    fn came(&self) -> bool {
        self.after != 0 && self.after >= self.now
    }
}

impl Interrupt {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one came for what is being done.
    pub fn came(&self) -> bool {
        self.state().came()
    }

    /// A flag for what is done from now on: true when the client wants that to
    /// stop. It is this request's: the next one has another.
    pub fn request(&self) -> Arc<AtomicBool> {
        let mut state = self.state();
        state.flag = Arc::new(AtomicBool::new(state.came()));
        Arc::clone(&state.flag)
    }

    /// So many packets had come when it did.
    pub(super) fn comes(&self, after: u64) {
        let mut state = self.state();
        state.after = after;
        if state.came() {
            state.flag.store(true, SeqCst);
        }
    }

    pub(super) fn answers(&self, packet: u64) {
        self.state().now = packet;
    }
}
