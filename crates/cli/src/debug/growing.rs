//! Conditions on a program that is alive and recorded.
//!
//! While it runs its recording grows, and is looked at again and again: whether anything
//! comes in it. What is read then was written at different moments, so the answer is only
//! a reason to halt the program. What is recorded of a halted program is whole; there the
//! conditions are decided, as those of any recording are, and everybody is led back to
//! the exact state. If there is none after all the program goes on, and sees nothing of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ::session::{Direction, Group, How, Reason, Stopped};
use ::target::Position;
use instants::{Error, Next, Said};
use protocol::id::{EventNo, ProcessId};

use super::commands::Prompt;
use super::conditions::failure;
use super::past;
use super::screen::{Part, paint, say};
use crate::failure::Failure;

/// How often it is looked at least, and how long that is put off at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(10);
/// Looking takes its time, and the program is to have more.
const SHARE: u32 = 2;
/// How soon it is noticed that nobody needs it any more.
const TICK: Duration = Duration::from_millis(5);

/// How far everybody had come when the program was halted: the number of the event that
/// comes next. What is looked for comes after that.
#[derive(Clone, Default)]
struct Floor(HashMap<ProcessId, EventNo>);

impl Floor {
    /// All that a group knows of.
    fn of(group: &Group) -> Floor {
        let members = group.members().into_iter();
        let begun = members.filter(|member| !member.is_empty);
        Floor(
            begun
                .map(|member| (member.id, member.last.next()))
                .collect(),
        )
    }

    /// Says that everybody is there; who has begun since is at the beginning.
    fn put(&self, group: &mut Group) -> Result<(), Failure> {
        for member in group.members() {
            let at = match self.0.get(&member.id) {
                Some(next) => Position::way_to(*next),
                None => Position::START,
            };
            group.place(member.id, at)?;
        }
        Ok(())
    }
}

/// Somebody who looks at a recording that grows, on a thread of their own.
struct Watch {
    is_over: Arc<AtomicBool>,
    /// Something comes: the program is to be halted.
    found: Arc<AtomicBool>,
}

impl Watch {
    fn start(dir: &Path, said: Said, floor: Floor) -> Watch {
        let watch = Watch {
            is_over: Arc::default(),
            found: Arc::default(),
        };
        let (is_over, found) = (Arc::clone(&watch.is_over), Arc::clone(&watch.found));
        let dir = dir.to_path_buf();
        let look = move || {
            let mut pause = PAUSE;
            loop {
                let begun = Instant::now();
                while begun.elapsed() < pause {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    std::thread::sleep(TICK);
                }
                let begun = Instant::now();
                match comes(&dir, &said, &floor) {
                    Ok(true) => return found.store(true, Relaxed),
                    Ok(false) => {}
                    // Where it is decided they are told.
                    Err(why) => tracing::debug!(target: "growing", why = why.message(), "?"),
                }
                pause = (begun.elapsed() * SHARE).clamp(PAUSE, PAUSE_MOST);
            }
        };
        // Without it they are decided when something else stops the program.
        let _ = std::thread::Builder::new()
            .name("conditions".to_string())
            .spawn(look);
        watch
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

/// Whether anything comes in what was recorded so far.
fn comes(dir: &Path, said: &Said, floor: &Floor) -> Result<bool, Failure> {
    let program = past::open(dir)?;
    let mut group = Group::new(&program)?;
    floor.put(&mut group)?;
    said.growing().comes(&group).map_err(failure)
}

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
        let mut floor = match self.enter_past(dir) {
            Ok(()) => Floor::of(&self.debugger.group),
            Err(_) => Floor::default(),
        };
        self.leave_past();
        loop {
            let said = self.debugger.conditions.said();
            let watch = Watch::start(dir, said, floor.clone());
            let asked = self.debugger.cancel.clone();
            self.debugger.cancel = asked.or(Arc::clone(&watch.found));
            let stopped = self.debugger.go(How::Continue, Direction::Forwards, false);
            let is_called = watch.found.load(Relaxed) && !asked.is_cancelled();
            drop(watch);
            // Who has interrupted the program has not interrupted what comes now.
            self.debugger.cancel = match asked.is_cancelled() {
                true => self.interrupts.request(),
                false => asked,
            };
            let stopped = match stopped {
                Ok(stopped) => stopped,
                Err(failure) => {
                    self.moved(from, None)?;
                    return Err(failure);
                }
            };
            self.say_traced(&stopped)?;
            self.enter_past(dir)?;
            let halted = Floor::of(&self.debugger.group);
            floor.put(&mut self.debugger.group)?;
            let there = self.decide(&mut told);
            if let Ok(Some(there)) = &there {
                self.share_points();
                self.say_past(&halted)?;
                return self.say_where(there);
            }
            self.leave_past();
            self.moved(from.clone(), None)?;
            there?;
            if !is_called || !matches!(stopped.reason, Reason::Interrupted) {
                return self.say_where(&stopped);
            }
            floor = halted;
        }
    }

    /// What comes in the past that is at hand: where it stops everybody, if it does.
    fn decide(&mut self, told: &mut Vec<u32>) -> Result<Option<Stopped>, Failure> {
        loop {
            let before = self.debugger.group.positions();
            let Next { instant, unknown } = self.find_next(Direction::Forwards)?;
            self.say_unknown(unknown, told)?;
            let Some(instant) = instant else {
                return Ok(None);
            };
            let stopped =
                self.debugger
                    .go_to_cut(instant.lead, &instant.goals, Direction::Forwards)?;
            if !matches!(stopped.reason, Reason::Arrived) {
                return Ok(Some(stopped));
            }
            let is_stuck = self.debugger.group.positions() == before;
            let (stops, is_taken) = self.fire(&instant)?;
            if is_taken {
                return self.debugger.stands().map(Some);
            }
            if stops {
                return Ok(Some(stopped));
            }
            if is_stuck {
                return Ok(None);
            }
        }
    }

    /// How much further the program had come when it was halted.
    fn say_past(&mut self, halted: &Floor) -> Result<(), Failure> {
        let members = self.debugger.group.members();
        let further = members.iter().filter_map(|member| {
            let next = halted.0.get(&member.id)?;
            let events = next.0.saturating_sub(member.at.event().0);
            (events > 0).then(|| (events, format!("{} {events}", member.name)))
        });
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
