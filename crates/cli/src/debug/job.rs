//! A line that is being done: in the foreground, where it is waited for, or in the
//! background, where it goes on while others are typed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::target::Cancel;

use super::commands::Next;
use super::meanwhile::Snapshot;
use super::voice::Voice;
use crate::failure::Failure;

/// See the module.
pub struct Job {
    pub line: String,
    pub begun: Instant,
    /// What it is waited for, in words.
    pub waits_for: &'static str,
    voice: Voice,
    inner: Mutex<Inner>,
}

struct Inner {
    cancel: Cancel,
    is_cancelled: bool,
    stage: Stage,
    /// Where everybody was when it began.
    snapshot: Option<Snapshot>,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Foreground,
    Background(u32),
    Over,
}

/// What has come of a line.
pub struct Outcome {
    pub done: Result<Next, Failure>,
    /// What is waited for now: the lines of `commands`, or a command.
    pub prompt: &'static str,
}

impl Job {
    pub fn new(line: &str, waits_for: &'static str, voice: &Voice) -> Arc<Job> {
        Arc::new(Job {
            line: line.to_string(),
            begun: Instant::now(),
            waits_for,
            voice: voice.clone(),
            inner: Mutex::new(Inner {
                cancel: Cancel::new(),
                is_cancelled: false,
                stage: Stage::Foreground,
                snapshot: None,
                outcome: None,
            }),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How who does it is told that it is to stop.
    pub fn cancel(&self) -> Cancel {
        self.inner().cancel.clone()
    }

    /// What was to stop has stopped, and what comes now is for who asked for that: it can be
    /// stopped anew.
    pub fn go_on(&self) -> Cancel {
        let mut inner = self.inner();
        inner.cancel = Cancel::new();
        inner.is_cancelled = false;
        inner.cancel.clone()
    }

    /// Has it stopped, soon.
    pub fn stop(&self) {
        let mut inner = self.inner();
        inner.is_cancelled = true;
        inner.cancel.cancel();
    }

    /// Whether it is to stop, or has stopped for that.
    pub fn is_stopped(&self) -> bool {
        self.inner().is_cancelled
    }

    pub fn is_over(&self) -> bool {
        self.inner().stage == Stage::Over
    }

    /// Its number, if it is in the background.
    pub fn number(&self) -> Option<u32> {
        match self.inner().stage {
            Stage::Background(number) => Some(number),
            Stage::Foreground | Stage::Over => None,
        }
    }

    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// It is not waited for any more. False: it is over.
    pub fn to_background(&self, number: u32) -> bool {
        let mut inner = self.inner();
        let runs = inner.stage == Stage::Foreground;
        if runs {
            inner.stage = Stage::Background(number);
        }
        runs
    }

    /// Who does it says where everybody is when it begins.
    pub fn begins_at(&self, snapshot: Snapshot) {
        self.inner().snapshot = Some(snapshot);
    }

    /// Where everybody was when it began, for one who looks there.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.inner().snapshot.take()
    }

    /// It is over. What came of it is told by who waits for it, or here.
    pub fn ends(&self, outcome: Outcome) {
        let mut inner = self.inner();
        if let Stage::Background(number) = inner.stage {
            let line = &self.line;
            match &outcome.done {
                Ok(_) => self.voice.say(&format!("Job {number} is done: {line}")),
                Err(failure) => self.voice.say(&format!(
                    "mw: {}\nJob {number} has failed: {line}",
                    failure.words()
                )),
            }
        }
        inner.snapshot = None;
        inner.outcome = Some(outcome);
        inner.stage = Stage::Over;
        drop(inner);
        self.voice.flush();
    }

    /// What came of it, once.
    pub fn outcome(&self) -> Option<Outcome> {
        self.inner().outcome.take()
    }

    /// Says a line that belongs to it.
    pub fn say(&self, text: std::fmt::Arguments<'_>) -> std::io::Result<()> {
        // What is said in the foreground has been said when it goes to the background.
        let inner = self.inner();
        match inner.stage {
            Stage::Background(_) => {
                self.voice.say(&text.to_string());
                Ok(())
            }
            Stage::Foreground | Stage::Over => super::screen::print(text),
        }
    }

    /// Says a failure that does not end it.
    pub fn show(&self, failure: Failure) {
        match self.number() {
            Some(_) => self.voice.say(&format!("mw: {}", failure.words())),
            None => failure.show(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Arc<Job> {
        Job::new("continue", "a stop", &Voice::start())
    }

    #[test]
    fn what_is_over_does_not_go_to_the_background() {
        let own = job();
        assert!(own.number().is_none() && own.to_background(1));
        assert_eq!(own.number(), Some(1));
        own.ends(Outcome {
            done: Ok(Next::More),
            prompt: "",
        });
        assert!(own.is_over() && !own.to_background(2));
        assert!(own.outcome().is_some() && own.outcome().is_none());
    }

    #[test]
    fn what_was_stopped_can_be_stopped_anew() {
        let own = job();
        let first = own.cancel();
        own.stop();
        assert!(first.is_cancelled() && own.is_stopped());
        let second = own.go_on();
        assert!(!second.is_cancelled() && !own.is_stopped());
        own.stop();
        assert!(second.is_cancelled());
    }
}
