//! Motion of the whole program.
//!
//! If one process is moved alone, only that one moves. If all are, one of them
//! leads and the others follow: as little as they must for the whole to stay
//! consistent (*causal*), or as far as they can (*consistent*). Forwards, they
//! come to what the leader has seen of them; back, to before they saw what is
//! undone. A stop of theirs on that way comes first, so that none is missed and
//! stops come in the order of cause and effect.
//!
//! Nobody moves until it is decided: searching for stops (`search`) does not say
//! that a process is elsewhere, only what is committed here does.

use std::collections::BTreeSet;
use std::ops::Range;

use protocol::id::{Addr, EventNo, ProcessId, ThreadNo};
use target::{Arrival, Cancel, Position};

use crate::commit::{Crew, Settled};
use crate::found::{Came, Found, Passed, Search};
use crate::group::{Group, Positions};
use crate::member::Context;
use crate::reason::{Reason, Stopped, Traced};
use crate::{Error, Result};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forwards,
    Backwards,
}

/// Who may move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The process that leads, alone.
    One,
    /// All that were not let go.
    All,
    /// These of them, and the one that leads; the others stand meanwhile.
    These(BTreeSet<ProcessId>),
}

/// How far the others follow the one that leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// To where they must have come.
    #[default]
    Causal,
    /// As far as they can have come.
    Consistent,
}

/// How the process that leads is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Until something stops somebody.
    Continue,
    /// To an event, unless something stops somebody before.
    RunTo(EventNo),
    /// By the instructions that begin in a range, at least one.
    Instructions(Range<Addr>),
    /// By one instruction, or a call and all that it leads to; back over one that returned.
    NextInstruction,
    /// To another line; into functions that have lines, or over them.
    Line { into: bool },
    /// Out of the frame of this level. Back: to where it was called.
    Finish { level: usize },
    /// To one of these addresses.
    Until(Vec<Addr>),
    /// To a position, whatever is on the way.
    To(Position),
    /// Each of these to a place of its own, unless something stops somebody on the way.
    ToCut(Vec<(ProcessId, Position)>),
    /// All that may move to where their runs begin.
    ToStart,
    /// All that may move to where their runs end.
    ToEnd,
}

/// A motion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub who: Who,
    /// The process that leads.
    pub process: ProcessId,
    /// The thread that leads; without one, whichever runs.
    pub thread: Option<ThreadNo>,
    pub how: How,
    pub direction: Direction,
    pub follow: Follow,
}
impl Group {
    /// Moves; says where that led. After an error everybody is where they were,
    /// unless it is a condition that cannot be tested: that is stopped at.
    pub fn go(&mut self, motion: &Move, cancel: &Cancel) -> Result<Stopped> {
        let lead = self.index(motion.process)?;
        let mut crew = Crew {
            lead,
            all: self.crew(lead, &motion.who),
            follow: motion.follow,
        };
        let mut traced = Vec::new();
        if self.program.is_alive() {
            return self.go_alive(motion, &crew, cancel);
        }
        if let Some(first) = self.set_out(lead, motion) {
            // In the order of what was seen before.
            crew.all.sort_by_key(|i| *i != first);
        }
        let back = motion.direction == Direction::Backwards;
        let (i, reason) = match &motion.how {
            How::To(at) => self.travel(&crew, *at, cancel)?,
            How::ToCut(goals) => {
                self.lead_to_cut(&crew, goals, motion.direction, &mut traced, cancel)?
            }
            How::ToStart => self.all_to(&crew, false, cancel)?,
            How::ToEnd => self.all_to(&crew, true, cancel)?,
            How::Continue if back => self.backwards(&crew, None, &mut traced, cancel)?,
            How::RunTo(event) if back => {
                self.backwards(&crew, Some(*event), &mut traced, cancel)?
            }
            How::Continue => self.forwards(&crew, None, &mut traced, cancel)?,
            How::RunTo(event) => self.forwards(&crew, Some(*event), &mut traced, cancel)?,
            _ if back => self.step_back(&crew, motion, &mut traced, cancel)?,
            _ => self.step(&crew, motion, &mut traced, cancel)?,
        };
        let is_stop = match &reason {
            Reason::Breakpoint { .. } | Reason::Caught { .. } | Reason::Watch { .. } => true,
            // Who steps onto a breakpoint has come to it as well.
            Reason::Step | Reason::Arrived => self.stepped_onto(i, cancel)?,
            _ => false,
        };
        self.arrived(i, is_stop, motion.direction);
        let member = self.here(i)?;
        Ok(Stopped {
            process: member.id,
            thread: member.thread()?,
            at: member.at,
            reason,
            traced,
        })
    }

    /// A member, and what a search in it goes by.
    pub(crate) fn with<'c>(
        &'c mut self,
        i: usize,
        cancel: &'c Cancel,
    ) -> Result<(&'c mut crate::member::Member, Context<'c>)> {
        let context = Context {
            program: &self.program,
            stops: &self.stops,
            execs: self.execs,
            cancel,
            company: None,
        };
        let member = self.members.get_mut(i);
        member
            .map(|member| (member, context))
            .ok_or(Error::NoProcesses)
    }

    /// Those that may move, the leader first.
    pub(crate) fn crew(&self, lead: usize, who: &Who) -> Vec<usize> {
        let is_meant = |i: &usize| match who {
            Who::One => false,
            Who::All => true,
            Who::These(all) => self
                .members
                .get(*i)
                .is_some_and(|member| all.contains(&member.id)),
        };
        let others = (0..self.members.len()).filter(|i| is_meant(i) && *i != lead);
        std::iter::once(lead)
            .chain(others)
            .filter(|i| {
                let member = self.members.get(*i);
                *i == lead || member.is_some_and(|m| !m.is_let_go && !m.is_empty())
            })
            .collect()
    }

    pub(crate) fn put(&mut self, i: usize, at: Position) {
        if let Some(member) = self.members.get_mut(i) {
            member.put(at);
        }
    }

    pub(crate) fn next_stop(
        &mut self,
        i: usize,
        limit: Position,
        cancel: &Cancel,
    ) -> Result<Search> {
        let stands = self.stands_at(i, Direction::Forwards, cancel)?;
        if let Some(found) = stands.filter(|found| found.at <= limit) {
            return Ok(Search::Found(found));
        }
        let (member, context) = self.with(i, cancel)?;
        member.next_stop(context, limit)
    }

    pub(crate) fn last_stop(
        &mut self,
        i: usize,
        floor: Position,
        cancel: &Cancel,
    ) -> Result<Search> {
        let stands = self.stands_at(i, Direction::Backwards, cancel)?;
        if let Some(found) = stands.filter(|found| floor <= found.at) {
            return Ok(Search::Found(found));
        }
        let (member, context) = self.with(i, cancel)?;
        member.last_stop(context, floor)
    }

    /// On to what stops somebody first. The leader goes to `event` at most.
    pub(crate) fn forwards(
        &mut self,
        crew: &Crew,
        event: Option<EventNo>,
        traced: &mut Vec<Traced>,
        cancel: &Cancel,
    ) -> Result<(usize, Reason)> {
        'again: loop {
            for i in &crew.all {
                let limit = event.filter(|_| *i == crew.lead);
                let limit = limit.map_or(Position::END, Position::Event);
                let (i, found) = match self.next_stop(*i, limit, cancel)? {
                    Search::Nothing => match event {
                        Some(event) if *i == crew.lead => (*i, self.goal(*i, event)?),
                        _ => continue,
                    },
                    Search::Found(found) => (*i, found),
                    Search::Interrupted(at) => return self.interrupted(*i, at, crew),
                };
                match self.commit(i, found, crew, cancel)? {
                    Settled::Interrupted(i) => return Ok((i, Reason::Interrupted)),
                    Settled::At(i, found) => match self.decide(i, found, traced)? {
                        Some(reason) => return Ok((i, reason)),
                        None => continue 'again,
                    },
                }
            }
            return self.all_to(crew, true, cancel);
        }
    }

    /// Back to what stopped somebody last. The leader goes to `event` at most.
    pub(crate) fn backwards(
        &mut self,
        crew: &Crew,
        event: Option<EventNo>,
        traced: &mut Vec<Traced>,
        cancel: &Cancel,
    ) -> Result<(usize, Reason)> {
        'again: loop {
            for i in &crew.all {
                let beginning = self.member(*i)?.beginning();
                let floor = event.filter(|_| *i == crew.lead);
                let floor = floor.map_or(beginning, Position::Event);
                let (i, found) = match self.last_stop(*i, floor, cancel)? {
                    Search::Nothing => match event {
                        Some(event) if *i == crew.lead => (*i, self.goal(*i, event)?),
                        _ => continue,
                    },
                    Search::Found(found) => (*i, found),
                    Search::Interrupted(_) => return Ok((*i, Reason::Interrupted)),
                };
                match self.commit_back(i, found, crew, cancel)? {
                    Settled::Interrupted(i) => return Ok((i, Reason::Interrupted)),
                    Settled::At(i, found) => match self.decide(i, found, traced)? {
                        Some(reason) => return Ok((i, reason)),
                        None => continue 'again,
                    },
                }
            }
            return self.all_to(crew, false, cancel);
        }
    }

    /// An event of a process as something that stops it.
    pub(crate) fn goal(&self, i: usize, event: EventNo) -> Result<Found> {
        let member = self.member(i)?;
        let at = member.within(Position::Event(event));
        Ok(Found {
            at,
            came: if at >= member.end() {
                Came::End
            } else {
                Came::Arrived
            },
            points: Vec::new(),
        })
    }

    /// Everybody to where their runs end, or begin.
    pub(crate) fn all_to(
        &mut self,
        crew: &Crew,
        end: bool,
        cancel: &Cancel,
    ) -> Result<(usize, Reason)> {
        let before = self.positions();
        for i in &crew.all {
            let member = self.member(*i)?;
            let at = if end {
                member.end()
            } else {
                member.beginning()
            };
            self.put(*i, at);
        }
        let reason = if end { Reason::End } else { Reason::Start };
        Ok((
            crew.lead,
            self.lead_there(crew, &before, cancel)?.unwrap_or(reason),
        ))
    }

    /// Leads the leader to where it is said to be, which may take long. If that is
    /// cancelled, it is where it got and the others are where they were, or where
    /// that needs them. Says what it came to instead.
    pub(crate) fn lead_there(
        &mut self,
        crew: &Crew,
        before: &Positions,
        cancel: &Cancel,
    ) -> Result<Option<Reason>> {
        let lead = crew.lead;
        let (member, context) = self.with(lead, cancel)?;
        let at = member.at;
        member.open(context.program, cancel)?;
        if member.position()? == at {
            return Ok(None);
        }
        let arrival = member.recorded()?.seek(at, cancel)?;
        let got = member.position()?;
        member.put(got);
        Ok(match arrival {
            Arrival::Diverged(difference) => Some(Reason::Diverged(difference)),
            Arrival::Interrupted => {
                self.restore(before);
                self.put(lead, got);
                self.follow(lead, got, &crew.others(lead))?;
                Some(Reason::Interrupted)
            }
            _ => None,
        })
    }

    /// The leader to a position, the others to what belongs to that.
    pub(crate) fn travel(
        &mut self,
        crew: &Crew,
        at: Position,
        cancel: &Cancel,
    ) -> Result<(usize, Reason)> {
        let before = self.positions();
        let lead = crew.lead;
        let at = self.member(lead)?.within(at);
        self.arrange(crew, at)?;
        self.put(lead, at);
        let came = self.lead_there(crew, &before, cancel)?;
        let member = self.member(lead)?;
        let reason = came.unwrap_or(match member.at >= member.end() {
            true => Reason::End,
            false => Reason::Arrived,
        });
        Ok((lead, reason))
    }

    /// The others to where they belong if the leader is at a position, forwards or
    /// back.
    pub(crate) fn arrange(&mut self, crew: &Crew, at: Position) -> Result<()> {
        let lead = self.member(crew.lead)?.ix;
        let cut = match crew.follow {
            Follow::Causal => self.program.past(lead, at.event()),
            Follow::Consistent => Some(self.program.latest(lead, at.event())?),
        };
        for i in crew.others(crew.lead) {
            let member = self.member(i)?;
            let bound = cut.as_ref().map_or(EventNo(0), |cut| cut.bound(member.ix));
            let at = member.within(Position::Event(bound));
            self.put(i, at);
        }
        Ok(())
    }

    /// Says where the others belong, as they are to follow from now on.
    pub fn regroup(&mut self, lead: ProcessId, follow: Follow) -> Result<()> {
        let lead = self.index(lead)?;
        let at = self.member(lead)?.at;
        let crew = Crew {
            lead,
            all: self.crew(lead, &Who::All),
            follow,
        };
        self.arrange(&crew, at)
    }

    /// A step of the leader.
    pub(crate) fn step(
        &mut self,
        crew: &Crew,
        motion: &Move,
        traced: &mut Vec<Traced>,
        cancel: &Cancel,
    ) -> Result<(usize, Reason)> {
        let lead = crew.lead;
        let mut passed = Passed::default();
        let (member, context) = self.with(lead, cancel)?;
        let search = match &motion.how {
            How::Instructions(range) => {
                let range = range.clone();
                member.step_instructions(context, motion.thread, range, &mut passed)?
            }
            How::NextInstruction => member.next_instruction(context, &mut passed)?,
            How::Line { into } => member.step_line(context, *into, &mut passed)?,
            How::Finish { level } => member.finish(context, motion.thread, *level, &mut passed)?,
            How::Until(addresses) => member.until(context, addresses, &mut passed)?,
            // These are no steps.
            How::Continue
            | How::RunTo(_)
            | How::To(_)
            | How::ToCut(_)
            | How::ToStart
            | How::ToEnd => Search::Nothing,
        };
        let last = match search {
            Search::Found(found) => found,
            Search::Nothing => Found {
                at: self.member(lead)?.end(),
                came: Came::End,
                points: Vec::new(),
            },
            Search::Interrupted(at) => return self.interrupted(lead, at, crew),
        };
        for goal in passed.found.into_iter().chain([last]) {
            loop {
                let is_near = goal.at.event() == self.member(lead)?.at.event();
                let settled = if is_near {
                    // Nobody else has seen anything of it.
                    self.put(lead, goal.at);
                    Settled::At(lead, goal.clone())
                } else {
                    self.commit(lead, goal.clone(), crew, cancel)?
                };
                let Settled::At(i, found) = settled else {
                    return Ok((lead, Reason::Interrupted));
                };
                let is_goal = i == lead && found.at == goal.at;
                if let Some(reason) = self.decide(i, found, traced)? {
                    return Ok((i, reason));
                }
                if is_goal {
                    break;
                }
            }
        }
        Ok((lead, Reason::Step))
    }

    /// A step of the leader, backwards.
    pub(crate) fn step_back(
        &mut self,
        crew: &Crew,
        motion: &Move,
        traced: &mut Vec<Traced>,
        cancel: &Cancel,
    ) -> Result<(usize, Reason)> {
        let lead = crew.lead;
        let (member, context) = self.with(lead, cancel)?;
        // One instruction has nothing on its way; the others stop there by themselves.
        let mut passes = matches!(motion.how, How::Line { .. } | How::Finish { .. });
        let search = match &motion.how {
            How::NextInstruction => {
                let (search, over) = member.next_instruction_back(context)?;
                passes = over;
                search
            }
            How::Instructions(_) => match motion.thread {
                Some(thread) => member.step_thread_back(context, thread)?,
                None => member.step_back(context)?,
            },
            How::Line { into } => member.step_line_back(context, *into)?,
            How::Finish { level } => member.finish_back(context, motion.thread, *level)?,
            How::Until(addresses) => member.until_back(context, addresses)?,
            // These are no steps.
            How::Continue
            | How::RunTo(_)
            | How::To(_)
            | How::ToCut(_)
            | How::ToStart
            | How::ToEnd => Search::Nothing,
        };
        let goal = match search {
            Search::Found(found) => found,
            Search::Nothing => Found {
                at: self.member(lead)?.beginning(),
                came: Came::Start,
                points: Vec::new(),
            },
            Search::Interrupted(_) => return Ok((lead, Reason::Interrupted)),
        };
        loop {
            let mut next = goal.clone();
            if passes {
                let (member, context) = self.with(lead, cancel)?;
                match member.before_goal(context, &goal)? {
                    Search::Found(found) => next = found,
                    Search::Nothing => {}
                    Search::Interrupted(_) => return Ok((lead, Reason::Interrupted)),
                }
            }
            let settled = if next.at.event() == self.member(lead)?.at.event() {
                self.put(lead, next.at);
                Settled::At(lead, next)
            } else {
                self.commit_back(lead, next, crew, cancel)?
            };
            let Settled::At(i, found) = settled else {
                return Ok((lead, Reason::Interrupted));
            };
            let is_goal = i == lead && found.at == goal.at;
            match self.decide(i, found, traced)? {
                Some(reason) => return Ok((i, reason)),
                None if is_goal => return Ok((lead, Reason::Step)),
                None => {}
            }
        }
    }
}
