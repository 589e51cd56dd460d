//! Conditions at the prompt on a program that is alive and recorded: `instants` says when
//! it is to be halted because something comes; in what was recorded then they are decided,
//! and everybody is led back to the exact state. If there is none after all the program
//! goes on, and sees nothing of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ::session::{Direction, How, Reason, Stopped};
use ::target::Cancel;
use instants::{Frontier, Patience, Untold, Watch};

use super::commands::Prompt;
use super::conditions::{Came, Otherwise, failure};
use super::screen::{Part, paint, say};
use super::{observed, past};
use crate::failure::Failure;

/// What is looked at while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growing {
    Recorded,
    Observed,
}

/// What a halt was found to be good for.
pub enum Decided {
    /// Everybody stays; what is to be said of where.
    Stops(Stopped),
    /// It was needed to know who got to a place, and no more.
    Passes(Looked),
    /// Nothing.
    Nothing(Looked),
}

/// How far a program that is alive was looked at.
#[derive(Clone, Default)]
pub struct Looked {
    /// What is looked for comes after this: what was found last, not where the program was
    /// halted. A state that is complete now may be one in which somebody is behind where it
    /// stood then.
    pub decided: Frontier,
    /// How far everybody had come.
    pub halted: Frontier,
}

impl Prompt {
    /// Sees to it that what a program that is alive does is written down, for conditions.
    pub(super) fn check_recorded(&mut self) -> Result<(), Failure> {
        match self.debugger.is_alive() && self.recording().is_none() {
            true => self.observe(),
            false => Ok(()),
        }
    }

    /// Whether a condition holds already where the program that is alive is halted: says
    /// so. What cannot be told of it yet is said, too.
    pub(super) fn holds_now(&mut self, number: u32) -> Result<bool, Failure> {
        let Some(dir) = self.recording().or_else(|| self.observed()) else {
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
    /// else. What is recorded is gone back in; what is only observed is told.
    pub(super) fn run_growing(&mut self, dir: &Path, how: Growing) -> Result<(), Failure> {
        let from = self.debugger.instant();
        let mut told = Vec::new();
        let mut patience = Patience::default();
        // At its very beginning nothing was recorded.
        let frontier = match self.enter_past(dir) {
            Ok(()) => Frontier::of(&self.debugger.group),
            Err(_) => Frontier::default(),
        };
        self.leave_past();
        let mut looked = Looked {
            decided: frontier.clone(),
            halted: frontier,
        };
        loop {
            let run = self.run_watched(dir, &looked, patience);
            let halted_at = Instant::now();
            if how == Growing::Observed {
                self.moved(from.clone(), None)?;
            }
            let decided = run.and_then(|(stopped, is_called)| {
                self.say_traced(&stopped)?;
                let decided = match how {
                    Growing::Recorded => self.decide_recorded(dir, &looked, &mut told),
                    Growing::Observed => self.decide_observed(dir, &looked, &mut told, &stopped),
                };
                Ok((stopped, is_called, decided?))
            });
            if how == Growing::Recorded && !matches!(decided, Ok((.., Decided::Stops(_)))) {
                self.moved(from.clone(), None)?;
            }
            let (stopped, is_called, decided) = decided?;
            let is_in_vain = is_called && matches!(stopped.reason, Reason::Interrupted);
            looked = match decided {
                Decided::Stops(there) => return self.say_where(&there),
                Decided::Passes(looked) => looked,
                Decided::Nothing(_) if !is_in_vain => return self.say_where(&stopped),
                Decided::Nothing(looked) => {
                    patience.was_in_vain(halted_at.elapsed());
                    looked
                }
            };
        }
    }

    /// What came in what was recorded, from a frontier on. Where it stops everybody they
    /// are where it held first, in the past.
    fn decide_recorded(
        &mut self,
        dir: &Path,
        from: &Looked,
        told: &mut Vec<u32>,
    ) -> Result<Decided, Failure> {
        self.enter_past(dir)?;
        let halted = Frontier::of(&self.debugger.group);
        match self.decide(&from.decided, told) {
            Ok(Some(there)) => {
                self.share_points();
                self.say_past(&halted)?;
                Ok(Decided::Stops(there))
            }
            Ok(None) => {
                let decided = Frontier::at(&self.debugger.group);
                self.leave_past();
                Ok(Decided::Nothing(Looked { decided, halted }))
            }
            Err(failure) => {
                self.leave_past();
                Err(failure)
            }
        }
    }

    /// Runs the program until something stops it, or something comes in its recording:
    /// whether it was halted because of that.
    pub(super) fn run_watched(
        &mut self,
        dir: &Path,
        looked: &Looked,
        patience: Patience,
    ) -> Result<(Stopped, bool), Failure> {
        let said = self.debugger.conditions.said();
        let from = (looked.decided.clone(), looked.halted.clone());
        let own = dir;
        let dir = dir.to_path_buf();
        let open = move || match observed::is_full(&dir) {
            true => Ok(None),
            false => past::open(&dir)
                .map(Some)
                .map_err(|failure| Untold::NotOpened(failure.message().into())),
        };
        let watch = Watch::start(own, open, said, from, patience);
        let asked = self.debugger.cancel.clone();
        self.debugger.cancel = asked.or(Arc::clone(watch.found()));
        self.follow_hosts();
        let stopped = self.debugger.go(How::Continue, Direction::Forwards, false);
        let is_called = watch.found().load(Relaxed) && !asked.is_cancelled();
        // Who has interrupted the program has not interrupted what comes now.
        self.debugger.cancel = match asked.is_cancelled() {
            true => self.asked_anew(),
            false => asked,
        };
        let stopped = stopped?;
        self.settle_hosts()?;
        Ok((stopped, is_called))
    }

    /// How what comes now can be stopped, after something was stopped.
    fn asked_anew(&self) -> Cancel {
        self.job
            .as_ref()
            .map_or_else(Cancel::new, |job| job.go_on())
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

    /// By how many events everybody had come further than the group stands.
    pub(super) fn how_far(&self, halted: &Frontier) -> String {
        let further = halted.beyond(&self.debugger.group).into_iter();
        let further =
            further.map(|(id, events)| (events, format!("{} {events}", self.debugger.name(id))));
        let (counts, words): (Vec<u64>, Vec<String>) = further.unzip();
        let total: u64 = counts.iter().sum();
        match total {
            0 => "no event".to_string(),
            1 => format!("1 event ({})", words.join(", ")),
            _ => format!("{total} events ({})", words.join(", ")),
        }
    }

    /// How much further the program had come when it was halted.
    fn say_past(&mut self, halted: &Frontier) -> Result<(), Failure> {
        let far = self.how_far(halted);
        let what = paint(Part::Why, "the exact state, by going back");
        say!("  {what}: the program itself was halted {far} past it; `live` returns there")
    }
}
