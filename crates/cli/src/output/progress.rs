//! How far something is that takes long.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::can_move_about;

/// Events that were done so far: on standard error, where that is a terminal,
/// once somebody has waited for a while. It is gone when it is dropped.
pub struct Progress {
    what: &'static str,
    /// How many there are, if that is known.
    total: Option<u64>,
    /// What is counted are bytes.
    bytes: bool,
    begun: Instant,
    bar: OnceLock<ProgressBar>,
}

impl Progress {
    /// So long nobody wonders.
    const PATIENCE: Duration = Duration::from_millis(500);

    /// Of something of which nobody knows how much it is.
    pub fn counting(what: &'static str) -> Progress {
        Progress::new(None, what)
    }

    /// Of so many events.
    pub fn of(total: u64, what: &'static str) -> Progress {
        Progress::new(Some(total), what)
    }

    fn new(total: Option<u64>, what: &'static str) -> Progress {
        Progress {
            what,
            total,
            bytes: false,
            begun: Instant::now(),
            bar: OnceLock::new(),
        }
    }

    /// Of bytes that come from elsewhere.
    pub fn bytes(what: &'static str) -> Progress {
        let mut progress = Progress::new(None, what);
        progress.bytes = true;
        progress
    }

    /// So many of all are done.
    pub fn set_of(&self, done: u64, all: u64) {
        self.set(done);
        if let Some(bar) = self.bar.get() {
            bar.set_length(all);
        }
    }

    /// So many are done.
    pub fn set(&self, events: u64) {
        if self.begun.elapsed() > Progress::PATIENCE {
            self.bar.get_or_init(|| self.draw()).set_position(events);
        }
    }

    fn draw(&self) -> ProgressBar {
        if !can_move_about(&std::io::stderr()) {
            return ProgressBar::hidden();
        }
        let (bar, style) = match self.total {
            _ if self.bytes => (
                ProgressBar::no_length(),
                "{msg}: {wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}",
            ),
            Some(total) => (
                ProgressBar::new(total),
                "{msg}: {wide_bar} {human_pos} of {human_len} events, {eta} left",
            ),
            None => (ProgressBar::no_length(), "{msg}: {human_pos} events"),
        };
        let bar = bar.with_elapsed(self.begun.elapsed());
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.with_message(self.what)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
