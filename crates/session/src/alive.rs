//! Motion of a program that is alive.
//!
//! It has no history: nobody's way is known before it is gone, and no one can go
//! back. So the search is the motion. One process leads, the others that may move
//! run along, and the first that comes to something stops all of them. What stops
//! the others is what stops the leader: points that count, with their conditions.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use protocol::id::{Addr, ProcessId};
use target::{Alive, Arrival, Calls, Cancel, Catches, Happening, Position, Stops};

use crate::commit::Crew;
use crate::found::{Came, Found, Leg, Passed, Search};
use crate::group::Group;
use crate::member::{Company, Context, Member};
use crate::motion::{Direction, How, Move};
use crate::program::Program;
use crate::reason::{Reason, Seen, Stopped, Traced};
use crate::stops::{StopTable, What};
use crate::{Error, Result};

impl Member {
    /// What is caught in it.
    pub fn catches(&self, context: Context<'_>) -> Option<Catches> {
        let mut all = Catches {
            ends: context.execs,
            ..Catches::default()
        };
        let mut any = context.execs;
        for point in context.stops.of(self) {
            let What::Catch(caught) = &point.what else {
                continue;
            };
            let Some(one) = caught.alive() else {
                continue;
            };
            any = true;
            all.forks |= one.forks;
            all.execs |= one.execs;
            all.signals |= one.signals;
            all.calls = match (std::mem::take(&mut all.calls), one.calls.clone()) {
                (Calls::All, _) | (_, Calls::All) => Calls::All,
                (Calls::None, other) | (other, Calls::None) => other,
                (Calls::These(mut a), Calls::These(b)) => {
                    a.extend(b);
                    Calls::These(a)
                }
            };
        }
        any.then_some(all)
    }

    /// The points that catch what happened.
    fn catching_alive(&self, context: Context<'_>, happening: Happening) -> Vec<u32> {
        let is_caught = |catches: &Catches| match happening {
            Happening::Call(number) => catches.calls.has(number),
            Happening::Forked(_) => catches.forks,
            Happening::Exec => catches.execs,
            Happening::Signal(number) => catches.signals >> (number.clamp(1, 64) - 1) & 1 != 0,
            Happening::Exited(_) | Happening::Killed(_) => false,
        };
        let all = context.stops.of(self).filter(|point| match &point.what {
            What::Catch(caught) if caught.alive().is_some_and(is_caught) => {
                match (caught.attempted(), happening) {
                    (Some(pattern), Happening::Call(nr)) => self.is_about_to(pattern, nr),
                    _ => true,
                }
            }
            _ => false,
        });
        all.map(|point| point.number).collect()
    }

    /// Something happened to the process: what that is, if it stops it.
    pub fn happened(
        &mut self,
        context: Context<'_>,
        happening: Happening,
    ) -> Result<Option<Found>> {
        let numbers = self.catching_alive(context, happening);
        let is_asked = match happening {
            Happening::Call(_) | Happening::Forked(_) => false,
            Happening::Exec => context.execs,
            Happening::Signal(_) | Happening::Exited(_) | Happening::Killed(_) => true,
        };
        if numbers.is_empty() && !is_asked {
            return Ok(None);
        }
        Ok(Some(self.found(Came::Happened(happening, numbers))?))
    }

    /// Says what stops it while another one leads.
    fn arm(&mut self, context: Context<'_>) -> Result<()> {
        let plan = self.plan(context)?;
        let returns = plan.frames.iter();
        let returns = returns.filter_map(|(_, frame)| frame.returns.map(|(at, _)| at));
        let others: Vec<Addr> = returns.collect();
        let breakpoints = plan.breakpoints(&others)?;
        let conditions = self.passable(context, &plan, &others)?;
        let catches = self.catches(context);
        let stops = Stops {
            breakpoints: &breakpoints,
            watches: &plan.watches,
            mapped: plan.mapped,
            conditions: &conditions,
            catches: catches.as_ref(),
        };
        Ok(self.living()?.arm(&stops)?)
    }

    /// The process came to something while another one led: what that is, if it
    /// counts.
    fn came_along(
        &mut self,
        context: Context<'_>,
        arrival: Arrival,
        values: &mut Vec<(u32, Seen)>,
    ) -> Result<Option<Found>> {
        let plan = self.plan(context)?;
        Ok(match arrival {
            Arrival::Breakpoint => match self.points_here(context, &plan)? {
                Err(trouble) => Some(self.trouble(trouble)?),
                Ok(points) => match self.at_points(points)? {
                    Some(found) => Some(found),
                    None => {
                        let left = self.frame_left(&plan, self.position()?)?;
                        left.map(|came| self.found(came)).transpose()?
                    }
                },
            },
            Arrival::Watch(part) => {
                let came = self.changed(context, &plan, part, values)?;
                came.map(|came| self.found(came)).transpose()?
            }
            Arrival::Happened(happening) => self.happened(context, happening)?,
            _ => None,
        })
    }
}

/// Those that run along.
struct Others<'g> {
    members: RefCell<Vec<&'g mut Member>>,
    program: &'g Program,
    stops: &'g StopTable,
    execs: bool,
    cancel: &'g Cancel,
    /// The leader is not in the middle of a step: what only says that it was passed
    /// is looked at where it is.
    is_free: bool,
    /// Everybody knows what stops them.
    is_armed: Cell<bool>,
    /// What is watched was this when they began to run.
    values: RefCell<HashMap<ProcessId, Vec<(u32, Seen)>>>,
    came: RefCell<Elsewhere>,
}

/// What others came to.
#[derive(Default)]
struct Elsewhere {
    /// Points that only say that they were passed.
    passed: Vec<(ProcessId, Found)>,
    /// What stopped everybody.
    found: Option<(ProcessId, Found)>,
    /// Somebody who is not known yet came to this.
    strange: Option<(ProcessId, Arrival)>,
}

impl Others<'_> {
    fn context(&self) -> Context<'_> {
        Context {
            program: self.program,
            stops: self.stops,
            execs: self.execs,
            cancel: self.cancel,
            company: None,
        }
    }
}

impl Company for Others<'_> {
    fn arm(&self) -> Result<()> {
        if self.is_armed.replace(true) {
            return Ok(());
        }
        for member in self.members.borrow_mut().iter_mut() {
            member.here(self.program)?;
            member.arm(self.context())?;
            let values = member.watched_values(self.context())?;
            self.values.borrow_mut().insert(member.id, values);
        }
        Ok(())
    }

    fn came(&self, process: ProcessId, arrival: Arrival) -> Result<bool> {
        self.is_armed.set(false);
        if arrival == Arrival::Interrupted {
            return Ok(true);
        }
        let mut members = self.members.borrow_mut();
        let Some(member) = members.iter_mut().find(|member| member.id == process) else {
            self.came.borrow_mut().strange = Some((process, arrival));
            return Ok(true);
        };
        let context = self.context();
        let mut values = self.values.borrow_mut();
        let values = values.entry(process).or_default();
        let Some(found) = member.came_along(context, arrival, values)? else {
            return Ok(false);
        };
        let mut came = self.came.borrow_mut();
        let own = came.passed.iter().filter(|(id, _)| *id == process);
        let before = Passed {
            found: own.map(|(_, found)| found.clone()).collect(),
        };
        if !self.is_free && before.takes(context, &found) {
            came.passed.push((process, found));
            return Ok(false);
        }
        came.found = Some((process, found));
        Ok(true)
    }
}

impl Group {
    /// Moves a program that is alive.
    pub(crate) fn go_alive(
        &mut self,
        motion: &Move,
        crew: &Crew,
        cancel: &Cancel,
    ) -> Result<Stopped> {
        let is_back = motion.direction == Direction::Backwards;
        let is_there = matches!(
            motion.how,
            How::To(_) | How::ToStart | How::ToEnd | How::RunTo(_) | How::ToCut(_)
        );
        if is_back || is_there {
            return Err(target::Error::NoPast.into());
        }
        let lead = crew.lead;
        self.here(lead)?;
        if let (Some(thread), Some(member)) = (motion.thread, self.members.get_mut(lead)) {
            member.living()?.choose(thread)?;
        }
        // Who comes while others move is made by one of them, and moves, too.
        let stays = |(i, member): (usize, &Member)| (!crew.all.contains(&i)).then_some(member.id);
        let staying: Vec<ProcessId> = self.members.iter().enumerate().filter_map(stays).collect();
        let mut traced = Vec::new();
        loop {
            let moves = |i: &usize| {
                let member = self.members.get(*i);
                *i == lead || member.is_some_and(|m| !m.is_empty() && !staying.contains(&m.id))
            };
            let crew = Crew {
                all: (0..self.members.len()).filter(moves).collect(),
                ..crew.clone()
            };
            let mut passed = Passed::default();
            let (search, elsewhere) = self.search_alive(&crew, motion, &mut passed, cancel)?;
            self.take_in();
            for found in passed.found {
                self.decide(lead, found, &mut traced)?;
            }
            let (i, reason) = self.settle(lead, search, elsewhere, &mut traced)?;
            let reason = match (reason, &motion.how) {
                (None, How::Continue) if !cancel.is_cancelled() => continue,
                (None, _) if cancel.is_cancelled() => Reason::Interrupted,
                (None, _) => Reason::Step,
                (Some(reason), _) => reason,
            };
            let member = self.here(i)?;
            return Ok(Stopped {
                process: member.id,
                thread: member.thread()?,
                at: member.at,
                reason,
                traced,
            });
        }
    }

    /// Has the leader and those with it run until something stops one of them.
    fn search_alive(
        &mut self,
        crew: &Crew,
        motion: &Move,
        passed: &mut Passed,
        cancel: &Cancel,
    ) -> Result<(Search, Elsewhere)> {
        let mut lead = None;
        let mut others = Vec::new();
        for (i, member) in self.members.iter_mut().enumerate() {
            if i == crew.lead {
                lead = Some(member);
            } else if crew.all.contains(&i) {
                others.push(member);
            }
        }
        let lead = lead.ok_or(Error::NoProcesses)?;
        lead.here(&self.program)?;
        let ids: Vec<ProcessId> = others.iter().map(|member| member.id).collect();
        lead.living()?.accompany(&ids);
        let company = Others {
            members: RefCell::new(others),
            program: &self.program,
            stops: &self.stops,
            execs: self.execs,
            cancel,
            is_free: motion.how == How::Continue,
            is_armed: Cell::new(false),
            values: RefCell::default(),
            came: RefCell::default(),
        };
        let context = Context {
            company: Some(&company),
            ..company.context()
        };
        let search = match &motion.how {
            How::Instructions(range) => {
                lead.step_instructions(context, motion.thread, range.clone(), passed)?
            }
            How::NextInstruction => lead.next_instruction(context, passed)?,
            How::Line { into } => lead.step_line(context, *into, passed)?,
            How::Finish { level } => lead.finish(context, motion.thread, *level, passed)?,
            How::Until(addresses) => lead.until(context, addresses, passed)?,
            How::Continue => match lead.leg(context, &[], Position::END, None)? {
                Leg::Found(found) => Search::Found(found),
                Leg::At | Leg::There | Leg::End => Search::Nothing,
                Leg::Interrupted(at) => Search::Interrupted(at),
            },
            // These were refused.
            How::To(_) | How::ToStart | How::ToEnd | How::RunTo(_) | How::ToCut(_) => {
                Search::Nothing
            }
        };
        Ok((search, company.came.into_inner()))
    }

    /// Who was stopped, and by what. None: that was only passed.
    fn settle(
        &mut self,
        lead: usize,
        search: Search,
        elsewhere: Elsewhere,
        traced: &mut Vec<Traced>,
    ) -> Result<(usize, Option<Reason>)> {
        for (process, found) in elsewhere.passed {
            let i = self.index(process)?;
            self.decide(i, found, traced)?;
        }
        if let Some((process, found)) = elsewhere.found {
            let i = self.index(process)?;
            return Ok((i, self.decide(i, found, traced)?));
        }
        if let Some((process, arrival)) = elsewhere.strange {
            let i = self.index(process)?;
            self.here(i)?;
            let never = Cancel::new();
            let (member, context) = self.with(i, &never)?;
            let found = member.came_along(context, arrival, &mut Vec::new())?;
            return Ok(match found {
                Some(found) => (i, self.decide(i, found, traced)?),
                None => (lead, None),
            });
        }
        Ok(match search {
            Search::Found(found) => (lead, self.decide(lead, found, traced)?),
            Search::Nothing => (lead, Some(Reason::End)),
            Search::Interrupted(_) => (lead, Some(Reason::Interrupted)),
        })
    }

    /// Takes those in that have come, and forgets those that have gone; the names of
    /// all may be others now.
    pub fn take_in(&mut self) {
        let living = self.program.opener().living().unwrap_or_default();
        for member in &mut self.members {
            match living.iter().find(|one| one.id == member.id) {
                Some(one) => member.rename(one),
                None => member.end_of_life(),
            }
        }
        for one in living {
            // Ids come again. Everybody keeps their place.
            match self.members.iter().position(|member| member.id == one.id) {
                Some(i) if self.members.get(i).is_some_and(Member::is_empty) => {
                    if let Some(member) = self.members.get_mut(i) {
                        *member = Member::alive((one, i as u32));
                    }
                }
                Some(_) => {}
                None => {
                    let ix = self.members.len() as u32;
                    self.members.push(Member::alive((one, ix)));
                }
            }
        }
    }

    /// What a process can because it is alive.
    pub fn alive(&mut self, process: ProcessId) -> Result<&mut dyn Alive> {
        let i = self.index(process)?;
        self.here(i)?.living()
    }

    /// Lets a process go as it was; it is none of the group's then.
    pub fn leave(&mut self, process: ProcessId) -> Result<()> {
        self.alive(process)?.detach()?;
        self.members.retain(|member| member.id != process);
        Ok(())
    }

    /// Ends a process.
    pub fn kill(&mut self, process: ProcessId) -> Result<()> {
        self.alive(process)?.kill()?;
        self.take_in();
        Ok(())
    }
}
