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
    /// Of somebody else who may stop it.
    other: Option<Arc<AtomicBool>>,
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
            ..Cancel::default()
        }
    }

    /// This request, which may take so long from now at most.
    pub fn within(&self, time: Duration) -> Cancel {
        Cancel {
            deadline: Instant::now().checked_add(time),
            ..self.clone()
        }
    }

    /// This request, which whoever has the flag can stop as well.
    pub fn or(&self, flag: Arc<AtomicBool>) -> Cancel {
        Cancel {
            other: Some(flag),
            ..self.clone()
        }
    }

    /// Has it stopped, soon.
    pub fn cancel(&self) {
        self.flag.store(true, Relaxed);
    }

    /// Whether it is to stop.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Relaxed)
            || self.other.as_ref().is_some_and(|flag| flag.load(Relaxed))
            || self.deadline.is_some_and(|end| Instant::now() >= end)
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
    fn another_can_stop_it_without_stopping_what_it_is_of() {
        let (cancel, flag) = (Cancel::new(), Arc::new(AtomicBool::new(false)));
        let both = cancel.or(Arc::clone(&flag));
        assert!(!both.is_cancelled());
        flag.store(true, Relaxed);
        assert!(both.is_cancelled() && !cancel.is_cancelled());
        cancel.cancel();
        assert!(cancel.or(Arc::default()).is_cancelled());
    }

    #[test]
    fn time_runs_out() {
        assert!(Cancel::after(Duration::ZERO).is_cancelled());
        assert!(!Cancel::after(Duration::from_secs(3600)).is_cancelled());
        assert!(!Cancel::after(Duration::MAX).is_cancelled());
    }
}
