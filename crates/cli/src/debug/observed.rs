//! Conditions at the prompt on a program that is alive and not recorded: what it does is
//! written down as long as there are any, and looked at as a recording that grows is.
//!
//! When something comes in it the program is halted, and it is decided there. Nobody can
//! be led back to where it held: the answer says how far the program had come past that.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ::session::truth::Was;
use ::session::{Direction, Reason, Stopped, What, locations};
use agent::control::{Answer, Request};
use instants::{Does, Error, Fires, Frontier, Location, Standing, Traced};
use protocol::id::{Addr, ProcessId};
use recording::join::{Joined, MemberEntry};
use recording::{Manifest, Writer};

use super::commands::Prompt;
use super::conditions::failure;
use super::copied;
use super::growing::{Decided, Growing, Looked};
use super::screen::{Part, paint, say};
use crate::attach_on;
use crate::failure::Failure;

/// What the directories are called in which what is written down on other hosts is, before
/// the number of the debugger.
const PLACE: &str = "observed-";

/// A directory for copies of what is written down on other hosts. Those of debuggers that were killed
/// go.
pub(super) fn place() -> Result<PathBuf, Failure> {
    let cache = attach_on::cache()?;
    for entry in std::fs::read_dir(&cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PLACE));
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let dir = own_place()?;
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&cache)
        .and_then(|()| std::fs::DirBuilder::new().mode(0o700).create(&dir))
        .map_err(|error| unwritable(&dir, &error))?;
    Ok(dir)
}

/// That of this debugger.
pub(super) fn own_place() -> Result<PathBuf, Failure> {
    Ok(attach_on::cache()?.join(format!("{PLACE}{}", std::process::id())))
}

pub(super) fn unwritable(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot create {}: {error}", dir.display()))
}

/// Whether there was more than may be stored, on any host.
pub(super) fn is_full(dir: &Path) -> bool {
    let members = std::fs::read_dir(dir).into_iter().flatten().flatten();
    agent::observation_is_full(dir)
        || members
            .map(|entry| entry.path())
            .any(|member| agent::observation_is_full(&member))
}

/// A place that conditions ask about, and the point that halts the program there.
pub struct Watched {
    point: u32,
    /// How often it had when it was looked at last.
    hits: u64,
    place: Location,
}

/// Something held in what was observed.
struct Held {
    fires: Vec<Fires>,
    /// What is to be said of each of them, in the words of the observation.
    words: Vec<String>,
    /// Whom it is about, as it is called while it is alive.
    lead: Option<ProcessId>,
    /// How far the program had come past it.
    far: String,
}

impl Prompt {
    /// Where what a program that is alive does is written down, if it is.
    pub(super) fn observed(&self) -> Option<PathBuf> {
        self.living.as_ref().and_then(|l| l.observed.clone())
    }

    /// Has it written down from now on.
    pub(super) fn observe(&mut self) -> Result<(), Failure> {
        if self.observed().is_some_and(|dir| !is_full(&dir)) {
            return Ok(());
        }
        self.observe_no_more();
        let agents = self.living.iter().flat_map(|living| &living.agents);
        let dir = match agents.filter_map(live::Agent::host).next() {
            Some(_) => self.observe_hosts()?,
            None => match self.ask_agent_of(0, &Request::Observe { on: true }) {
                Ok(Answer::Observed { dir }) => dir,
                _ => return Err(failure(Error::Alive)),
            },
        };
        if let Some(living) = &mut self.living {
            living.observed = Some(dir);
        }
        self.debugger.conditions.observe();
        Ok(())
    }

    /// Has it written down on each of its hosts, and what is there come here, as one
    /// recording of all of them.
    fn observe_hosts(&mut self) -> Result<PathBuf, Failure> {
        let dir = place()?;
        let Some(living) = &mut self.living else {
            return Err(failure(Error::Alive));
        };
        let members = self.debugger.group.members();
        let lives = |member: u16| members.iter().any(|m| m.id.member == member && !m.is_empty);
        let mut entries = Vec::new();
        let mut followed = Vec::new();
        for agent in &living.agents {
            let own = copied::member(&dir, agent.member());
            let directory = own.file_name().unwrap_or_default();
            let directory = directory.to_string_lossy().into_owned();
            std::fs::create_dir(&own).map_err(|error| unwritable(&own, &error))?;
            match lives(agent.member()) {
                true => {
                    let Answer::Observed { dir } = agent.ask(&Request::Observe { on: true })?
                    else {
                        return Err(failure(Error::Alive));
                    };
                    followed.extend(agent.follow(&dir, &own)?);
                }
                // Whose processes have all ended does nothing any more.
                false => {
                    Writer::create(&own, &Manifest::default()).map_err(Failure::new)?;
                }
            }
            let name = agent.host().unwrap_or_default().to_string();
            entries.push(MemberEntry { name, directory });
        }
        let joined = Joined::of(entries, Vec::new());
        joined.write(&dir).map_err(Failure::new)?;
        living.followed = followed;
        Ok(dir)
    }

    /// Has what is written down on other hosts come here while the program runs.
    pub(super) fn follow_hosts(&mut self) {
        for followed in self.living.iter_mut().flat_map(|l| &mut l.followed) {
            followed.go();
        }
    }

    /// Has all of it here, now that the program is halted.
    pub(super) fn settle_hosts(&mut self) -> Result<(), Failure> {
        for followed in self.living.iter_mut().flat_map(|l| &mut l.followed) {
            followed.settle()?;
        }
        Ok(())
    }

    /// Nobody wants to know any more.
    pub(super) fn observe_no_more(&mut self) {
        let Some(living) = &mut self.living else {
            return;
        };
        let Some(dir) = living.observed.take() else {
            return;
        };
        for agent in &living.agents {
            // An agent whose program has ended has left it to us.
            let _ = agent.ask(&Request::Observe { on: false });
        }
        for mut followed in living.followed.drain(..) {
            followed.forget();
        }
        let _ = std::fs::remove_dir_all(dir);
    }

    /// Runs on until something stops the program: a condition, or anything else.
    pub(super) fn run_observed(&mut self, dir: &Path) -> Result<(), Failure> {
        self.halt_at_places()?;
        let done = self.run_growing(dir, Growing::Observed);
        // Whatever else moves the program is not to stop there.
        self.pass_places();
        done
    }

    /// Has the program halted where conditions ask about places.
    fn halt_at_places(&mut self) -> Result<(), Failure> {
        for place in self.debugger.conditions.places().map_err(failure)? {
            self.say_unmapped(&place)?;
            let stops = self.debugger.group.stops();
            let what = What::Break(place.text.clone());
            let point = stops.add(what, |point| point.condition = place.condition.clone());
            self.places.push(Watched {
                point,
                hits: 0,
                place,
            });
        }
        Ok(())
    }

    fn pass_places(&mut self) {
        let stops = self.debugger.group.stops();
        for watched in self.places.drain(..) {
            stops.remove(watched.point);
        }
    }

    /// Nobody can get to what there is nothing of yet.
    fn say_unmapped(&mut self, place: &Location) -> Result<(), Failure> {
        let members = self.debugger.group.members();
        let (process, thread, frame) = (
            self.debugger.process,
            self.debugger.thread,
            self.debugger.frame,
        );
        let mut why = None;
        for member in members.iter().filter(|member| !member.is_empty) {
            self.debugger.choose(member.id);
            let found = self
                .debugger
                .look(|inspector, _, _| locations(inspector, &place.text).map(|_| ()))?;
            why = found.err();
            if why.is_none() {
                break;
            }
        }
        self.debugger.process = process;
        self.debugger.thread = thread;
        self.debugger.frame = frame;
        match why {
            Some(why) => say!("`{}` is in no code that is mapped yet ({why})", place.text),
            None => Ok(()),
        }
    }

    /// The places that somebody was halted at, with what is asked there; and whether it was
    /// because of them only.
    fn places_hit(&mut self, stopped: &Stopped) -> (Vec<(Location, Option<Was>)>, bool) {
        let points = self.debugger.group.points();
        let mut hit = Vec::new();
        for watched in &mut self.places {
            let hits = points.get(watched.point).map_or(0, |point| point.hits);
            if std::mem::replace(&mut watched.hits, hits) != hits {
                hit.push(watched.place.clone());
            }
        }
        let is_own = |number: u32| self.places.iter().any(|own| own.point == number);
        let is_only = matches!(stopped.reason, Reason::Breakpoint { number } if is_own(number));
        let frame = self.debugger.frame_ref();
        let group = &mut self.debugger.group;
        let told = hit.into_iter().map(|place| {
            let was = place.value.as_ref().map(|value| group.was(frame, value));
            (place, was)
        });
        (told.collect(), is_only)
    }

    /// What came in what was observed, from a frontier on, and what is done about it.
    pub(super) fn decide_observed(
        &mut self,
        dir: &Path,
        from: &Looked,
        told: &mut Vec<u32>,
        stopped: &Stopped,
    ) -> Result<Decided, Failure> {
        let (hit, is_only) = self.places_hit(stopped);
        let (looked, held) = match self.enter_past(dir) {
            // Nothing was done yet.
            Err(_) => (from.clone(), Vec::new()),
            Ok(()) => {
                let halted = Frontier::of(&self.debugger.group);
                self.note_passes(&halted, stopped, hit);
                let held = self.all_held(&from.decided, &halted, told);
                let decided = Frontier::at(&self.debugger.group);
                self.leave_past();
                (Looked { decided, halted }, held?)
            }
        };
        if !held.is_empty() {
            // What is done there is done by who debugs, and sees its own stops only.
            self.pass_places();
        }
        if self.fire_observed(&held)? {
            // Whatever stopped it: this is why it stands.
            let is_there = matches!(stopped.reason, Reason::Interrupted) || is_only;
            let stopped = match is_there {
                true => self.debugger.stands()?,
                false => stopped.clone(),
            };
            return Ok(Decided::Stops(stopped));
        }
        if is_full(dir) {
            self.observe_no_more();
            say!(
                "{}",
                paint(
                    Part::Why,
                    "What the program does takes more room than it may (MW_OBSERVE_LIMIT):"
                )
            )?;
            say!(
                "conditions are not looked at any more; `enable` has them looked at anew, from here on."
            )?;
            self.debugger.conditions.enable_all(false);
            return Ok(Decided::Stops(stopped.clone()));
        }
        if !held.is_empty() {
            self.halt_at_places()?;
        }
        Ok(match is_only {
            true => Decided::Passes(looked),
            false => Decided::Nothing(looked),
        })
    }

    /// Somebody who is halted has got to places: notes where that is in its run.
    fn note_passes(
        &mut self,
        halted: &Frontier,
        stopped: &Stopped,
        hit: Vec<(Location, Option<Was>)>,
    ) {
        let front = self.front.as_ref();
        let Some(process) = front.and_then(|front| front.recorded_of(stopped.process)) else {
            return;
        };
        for (place, was) in hit {
            let standing = Standing {
                process,
                thread: stopped.thread,
                next: halted.next(process),
                address: stopped.at.address().unwrap_or(Addr::NULL),
                was,
            };
            self.debugger.conditions.passed(&place, standing);
        }
    }

    fn all_held(
        &mut self,
        from: &Frontier,
        halted: &Frontier,
        told: &mut Vec<u32>,
    ) -> Result<Vec<Held>, Failure> {
        from.place(&mut self.debugger.group)?;
        let mut all = Vec::new();
        loop {
            let before = self.debugger.group.positions();
            let debugger = &mut self.debugger;
            let cancel = debugger.cancel.clone();
            let conditions = &mut debugger.conditions;
            let next = conditions.find(&mut debugger.group, Direction::Forwards, &cancel);
            let next = next.map_err(failure)?;
            self.say_unknown(&next, told)?;
            let Some(instant) = next.instant else {
                return Ok(all);
            };
            instant.place(&mut self.debugger.group)?;
            let is_stuck = self.debugger.group.positions() == before;
            for fires in &instant.fires {
                self.debugger.conditions.count(fires.entry.number);
            }
            let words = instant
                .fires
                .iter()
                .map(|fires| self.lines_of(fires).join("\n"));
            let held = Held {
                words: words.collect(),
                lead: self.alive_of(instant.lead),
                far: self.how_far(halted),
                fires: instant.fires,
            };
            let stops = held.fires.iter().any(|fires| fires.stops);
            all.push(held);
            if stops || is_stuck || self.debugger.cancel.is_cancelled() {
                return Ok(all);
            }
        }
    }

    /// Does what is to be done where conditions held: whether the program stays halted.
    fn fire_observed(&mut self, all: &[Held]) -> Result<bool, Failure> {
        let there = self.debugger.group.positions();
        let mut stops = false;
        for held in all {
            for (fires, words) in held.fires.iter().zip(&held.words) {
                match &fires.entry.does {
                    Does::Trace(shown) => self.say_values_now(fires.entry.number, held, shown)?,
                    _ if fires.commands.is_empty() || fires.entry.does == Does::Stop => {
                        say!("{words}")?;
                    }
                    _ => {
                        for line in &fires.commands {
                            if let Err(failure) = self.command_of(line, fires) {
                                super::screen::show(failure);
                            }
                            if self.debugger.group.positions() != there {
                                return Ok(true);
                            }
                        }
                        if fires.stops {
                            say!("{words}")?;
                        }
                    }
                }
                stops |= fires.stops;
            }
            if held.fires.iter().any(|fires| fires.stops) {
                say!(
                    "  {}: the program was halted {} past it",
                    paint(Part::Why, "the first state it could be halted in"),
                    held.far
                )?;
                if let Some(lead) = held.lead {
                    self.debugger.choose(lead);
                }
            }
        }
        Ok(stops)
    }

    /// Values as they are now, which is behind where the condition held.
    fn say_values_now(
        &mut self,
        number: u32,
        held: &Held,
        shown: &[Traced],
    ) -> Result<(), Failure> {
        let words = self.values_of(shown, held.lead).join(", ");
        say!("Trace {number}, halted {} past it: {words}", held.far)
    }

    /// Who somebody of what was observed is while it is alive.
    fn alive_of(&self, process: ProcessId) -> Option<ProcessId> {
        self.front.as_ref()?.alive_of(process)
    }
}
