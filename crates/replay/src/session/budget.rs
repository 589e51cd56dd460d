//! How much memory checkpoints may take, and how many there may be.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::spacing;

/// How much memory checkpoints may take together, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes.
    pub memory: u64,
    /// Processes.
    pub count: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            memory: 2 << 30,
            count: spacing::COPIES,
        }
    }
}

/// What the checkpoints of all sessions that share it may take together.
#[derive(Debug)]
pub struct Pool {
    together: Budget,
    sessions: AtomicUsize,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            together: Budget {
                memory: 4 << 30,
                count: 4096,
            },
            sessions: AtomicUsize::new(0),
        }
    }
}

impl Pool {
    /// What each of the sessions may take.
    fn share(&self) -> Budget {
        const LEAST: Budget = Budget {
            memory: 64 << 20,
            count: 32,
        };
        let one = Budget::default();
        let sessions = self.sessions.load(Relaxed).max(1);
        let memory = self.together.memory / sessions as u64;
        Budget {
            memory: memory.clamp(LEAST.memory, one.memory),
            count: (self.together.count / sessions).clamp(LEAST.count, one.count),
        }
    }
}

/// A session's share in a pool.
pub(super) struct Share {
    pool: Arc<Pool>,
}

impl Share {
    pub fn take(pool: &Arc<Pool>) -> Share {
        pool.sessions.fetch_add(1, Relaxed);
        Share {
            pool: Arc::clone(pool),
        }
    }

    /// How much it is now.
    pub fn budget(&self) -> Budget {
        self.pool.share()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.sessions.fetch_sub(1, Relaxed);
    }
}
