//! Conditions at the prompt on a program that is alive and recorded: `instants` says when
//! it is to be halted because something comes; in what was recorded then they are decided,
//! and everybody is led back to the exact state. If there is none after all the program
//! goes on, and sees nothing of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ::session::{Direction, How, Reason, Stopped};
use instants::{Error, Frontier, Watch};

use super::commands::Prompt;
use super::conditions::{Came, Otherwise, failure};
use super::past;
use super::screen::{Part, paint, say};
use crate::failure::Failure;

impl Prompt {
    /// Refuses conditions on a program that is alive and not recorded.
    pub(super) fn check_recorded(&self) -> Result<(), Failure> {
        match self.debugger.is_alive() && self.recording().is_none() {
            true => Err(failure(Error::Alive)),
            false => Ok(()),
        }
    }

    /// Whether a condition holds already where the program that is alive is halted: says
    /// so. What cannot be told of it yet is said, too.
    pub(super) fn holds_now(&mut self, number: u32) -> Result<bool, Failure> {
        let Some(dir) = self.recording() else {
            return Ok(false);
        };
        if self.enter_past(&dir).is_err() {
            // Nothing was recorded yet.
            return Ok(false);
        }
        let done = self.is_held(number);
        self.leave_past();
        done
    }

    fn is_held(&mut self, number: u32) -> Result<bool, Failure> {
        let debugger = &mut self.debugger;
        let program = Arc::clone(debugger.group.program());
        let none = debugger.conditions.meaningless(&program, number);
        if let Some(why) = none.map_err(failure)? {
            say!("Condition {number} means nothing so far: {why}")?;
        }
        let debugger = &mut self.debugger;
        let held = debugger.conditions.holds_here(&debugger.group, number);
        let Some(held) = held.map_err(failure)? else {
            return Ok(false);
        };
        self.say_holds(number, &held)?;
        Ok(true)
    }

    /// Runs on until something stops the program that is alive: a condition, or anything
    /// else. At a condition everybody is where it held first, in what was recorded.
    pub(super) fn run_growing(&mut self, dir: &Path) -> Result<(), Failure> {
        let from = self.debugger.instant();
        let mut told = Vec::new();
        // At its very beginning nothing was recorded.
        let mut frontier = match self.enter_past(dir) {
            Ok(()) => Frontier::of(&self.debugger.group),
            Err(_) => Frontier::default(),
        };
        self.leave_past();
        loop {
            let stopped = self.run_watched(dir, &frontier);
            let (stopped, is_called) = match stopped {
                Ok(stopped) => stopped,
                Err(failure) => {
                    self.moved(from, None)?;
                    return Err(failure);
                }
            };
            self.say_traced(&stopped)?;
            self.enter_past(dir)?;
            let halted = Frontier::of(&self.debugger.group);
            match self.decide(&frontier, &mut told) {
                Ok(Some(there)) => {
                    self.share_points();
                    self.say_past(&halted)?;
                    return self.say_where(&there);
                }
                Ok(None) => self.leave_past(),
                Err(failure) => {
                    self.leave_past();
                    self.moved(from, None)?;
                    return Err(failure);
                }
            }
            self.moved(from.clone(), None)?;
            if !is_called || !matches!(stopped.reason, Reason::Interrupted) {
                return self.say_where(&stopped);
            }
            frontier = halted;
        }
    }

    /// Runs the program until something stops it, or something comes in its recording:
    /// whether it was halted because of that.
    fn run_watched(&mut self, dir: &Path, frontier: &Frontier) -> Result<(Stopped, bool), Failure> {
        let said = self.debugger.conditions.said();
        let dir = dir.to_path_buf();
        let open = move || past::open(&dir).map_err(|failure| failure.message().to_string());
        let watch = Watch::start(open, said, frontier.clone());
        let asked = self.debugger.cancel.clone();
        self.debugger.cancel = asked.or(Arc::clone(watch.found()));
        let stopped = self.debugger.go(How::Continue, Direction::Forwards, false);
        let is_called = watch.found().load(Relaxed) && !asked.is_cancelled();
        // Who has interrupted the program has not interrupted what comes now.
        self.debugger.cancel = match asked.is_cancelled() {
            true => self.interrupts.request(),
            false => asked,
        };
        Ok((stopped?, is_called))
    }

    /// What comes in the past that is at hand, from a frontier on: where it stops
    /// everybody, if it does.
    fn decide(&mut self, from: &Frontier, told: &mut Vec<u32>) -> Result<Option<Stopped>, Failure> {
        from.place(&mut self.debugger.group)?;
        match self.come(Direction::Forwards, Otherwise::Stay, told)? {
            Came::Stopped(stopped) => Ok(Some(stopped)),
            Came::Elsewhere => self.debugger.stands().map(Some),
            Came::Stuck(_) | Came::Nowhere => Ok(None),
        }
    }

    /// How much further the program had come when it was halted.
    fn say_past(&mut self, halted: &Frontier) -> Result<(), Failure> {
        let further = halted.beyond(&self.debugger.group).into_iter();
        let further =
            further.map(|(id, events)| (events, format!("{} {events}", self.debugger.name(id))));
        let (counts, words): (Vec<u64>, Vec<String>) = further.unzip();
        let total: u64 = counts.iter().sum();
        let far = match total {
            0 => "no event".to_string(),
            1 => format!("1 event ({})", words.join(", ")),
            _ => format!("{total} events ({})", words.join(", ")),
        };
        let what = paint(Part::Why, "the exact state, by going back");
        say!("  {what}: the program itself was halted {far} past it; `live` returns there")
    }
}
