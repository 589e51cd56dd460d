//! How one who asked for something has it stopped.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Says when what was asked for is to be given up: when somebody says so, or
/// when its time is over.
///
/// There is one for each request, and it is never taken back: who asks again
/// makes another. Clones are of the same request.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Cancel {
    /// Nobody has cancelled it, and it has all the time there is.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// For a request that may take so long at most.
    pub fn after(time: Duration) -> Cancel {
        Cancel {
            deadline: Instant::now().checked_add(time),
            ..Cancel::default()
        }
    }

    /// For a request that may take until then.
    pub fn until(deadline: Instant) -> Cancel {
        Cancel {
            deadline: Some(deadline),
            ..Cancel::default()
        }
    }

    /// For a request that whoever has the flag can stop by setting it.
    pub fn by(flag: Arc<AtomicBool>) -> Cancel {
        Cancel {
            flag,
            deadline: None,
        }
    }

    /// This request, which may take so long from now at most.
    pub fn within(&self, time: Duration) -> Cancel {
        Cancel {
            flag: Arc::clone(&self.flag),
            deadline: Instant::now().checked_add(time),
        }
    }

    /// Has it stopped, soon.
    pub fn cancel(&self) {
        self.flag.store(true, Relaxed);
    }

    /// Whether it is to stop.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Relaxed) || self.deadline.is_some_and(|end| Instant::now() >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_of_one_request() {
        let cancel = Cancel::new();
        let other = cancel.clone();
        assert!(!other.is_cancelled());
        cancel.cancel();
        assert!(other.is_cancelled() && !Cancel::new().is_cancelled());
    }

    #[test]
    fn time_runs_out() {
        assert!(Cancel::after(Duration::ZERO).is_cancelled());
        assert!(!Cancel::after(Duration::from_secs(3600)).is_cancelled());
        assert!(!Cancel::after(Duration::MAX).is_cancelled());
    }
}
