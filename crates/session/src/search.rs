//! The next stop of one process.
//!
//! Searching leads the process about, but does not say that it is elsewhere:
//! only what is committed does (`motion`). What was found out about a way is
//! kept, so that it need not be gone again when somebody else stopped first.

use std::sync::Arc;

use inspect::lookup::Location;
use protocol::id::{Addr, EventNo};
use target::{Arrival, Cancel, Position, Stops, Target};

use crate::Result;
use crate::conditions::{Judge, Trouble};
use crate::found::{Came, Found, Leg, Passed, Search, learnt};
use crate::member::{Context, Member};
use crate::plan::Plan;
use crate::reason::{Change, Seen};
use crate::stops::What;
use crate::view::seen;
use crate::watched::FrameKey;

impl Member {
    /// The first thing that stops the process from where it is said to be, up to
    /// `limit`.
    pub fn next_stop(&mut self, context: Context<'_>, limit: Position) -> Result<Search> {
        let start = self.at;
        let key = context.stops.key(self);
        if let Some(known) = &self.ahead
            && known.key == key
            && known.from <= start
        {
            match &known.found {
                Some(found) if start < found.at && found.at <= limit => {
                    return Ok(Search::Found(found.clone()));
                }
                Some(found) if start < found.at => return Ok(Search::Nothing),
                None if limit <= known.to => return Ok(Search::Nothing),
                _ => {}
            }
        }
        if start >= limit || !self.may_stop(context, |next| Position::Event(next) <= limit) {
            return Ok(Search::Nothing);
        }
        self.here(context.program)?;
        // It may have got less far than was said.
        let start = self.at;
        let search = match self.leg(context, &[], limit, None)? {
            Leg::Found(found) => Search::Found(found),
            Leg::At | Leg::There | Leg::End => Search::Nothing,
            Leg::Interrupted(at) => Search::Interrupted(at),
        };
        self.ahead = learnt(&search, key, start, limit).or(self.ahead.take());
        Ok(search)
    }

    /// Whether anything can stop the process on its way: if it is only for events
    /// that are caught, one of them must be `near`.
    pub fn may_stop(&self, context: Context<'_>, near: impl Fn(EventNo) -> bool) -> bool {
        let from = self.at.event();
        context.execs
            || context.stops.of(self).any(|point| match &point.what {
                What::Catch(caught) => caught.from(self.id, from).is_some_and(&near),
                _ => true,
            })
    }

    /// Runs on from where the process is to something to stop at, to one of the
    /// addresses in `extra`, or to `limit`. With `passed`, points that are passed
    /// over do not stop it, but are noted there.
    pub fn leg(
        &mut self,
        context: Context<'_>,
        extra: &[Addr],
        limit: Position,
        mut passed: Option<&mut Passed>,
    ) -> Result<Leg> {
        let mut values = self.watched_values(context)?;
        loop {
            let plan = self.plan(context)?;
            let returns = plan.frames.iter();
            let returns = returns.filter_map(|(_, frame)| frame.returns.map(|(at, _)| at));
            let others: Vec<Addr> = extra.iter().copied().chain(returns).collect();
            let breakpoints = plan.breakpoints(&others)?;
            let now = self.position()?;
            let next = match now {
                Position::Event(event) => event.next(),
                Position::Inside(inside) => inside.event,
                Position::Halted(_) => now.event(),
            };
            let caught = self.next_caught(context, next);
            let caught = caught.map(Position::Event).filter(|at| *at <= limit);
            // The program ends there that addresses are of. Points are looked up in
            // the next one; what a step goes to is not.
            let stops_there = context.execs || !extra.is_empty();
            let is_border = stops_there
                || plan.watches_later
                || !plan.watches.is_empty()
                || !plan.frames.is_empty();
            let border = self.next_image(now.event()).filter(|_| is_border);
            let border = border.map(Position::Event).filter(|at| *at <= limit);
            let to = [Some(limit), caught, border].into_iter().flatten().min();
            let to = to.unwrap_or(limit);
            let conditions = self.passable(context, &plan, &others)?;
            let catches = self.catches(context);
            let stops = Stops {
                breakpoints: &breakpoints,
                watches: &plan.watches,
                // Other code may be there then, with other variables.
                mapped: plan.mapped || !conditions.is_empty(),
                conditions: &conditions,
                catches: catches.as_ref(),
            };
            let is_free = breakpoints.is_empty() && plan.watches.is_empty() && !plan.mapped;
            let arrival = if let Some(company) = context.company {
                company.arm()?;
                self.target_mut()?.run(&stops, to, context.cancel)?
            } else if is_free && matches!(to, Position::Event(_)) {
                self.recorded()?.seek(to, context.cancel)?
            } else {
                self.target_mut()?.run(&stops, to, context.cancel)?
            };
            let at = self.position()?;
            let found = match arrival {
                Arrival::Mapped | Arrival::Stepped => None,
                Arrival::There | Arrival::End if border.is_some_and(|border| at >= border) => {
                    // From here on it is another program.
                    self.seek(border.unwrap_or(at), &Cancel::new())?;
                    if stops_there {
                        return Ok(Leg::Found(self.found(Came::Exec)?));
                    }
                    None
                }
                Arrival::There if caught.is_some_and(|caught| at >= caught) => {
                    let numbers = self.catching(context, at.event());
                    (!numbers.is_empty())
                        .then(|| self.found(Came::Caught(numbers)))
                        .transpose()?
                }
                Arrival::There => return Ok(Leg::There),
                Arrival::End => return Ok(Leg::End),
                Arrival::Interrupted => return Ok(Leg::Interrupted(at)),
                Arrival::Elsewhere(process, arrival) => {
                    let company = context.company;
                    match company.map_or(Ok(true), |all| all.came(process, *arrival))? {
                        true => return Ok(Leg::Interrupted(at)),
                        false => None,
                    }
                }
                Arrival::Happened(happening) => self.happened(context, happening)?,
                Arrival::Diverged(difference) => {
                    return Ok(Leg::Found(self.found(Came::Diverged(difference))?));
                }
                Arrival::Watch(part) => {
                    let came = self.changed(context, &plan, part, &mut values)?;
                    let points = self.points_here(context, &plan)?;
                    match (came, points) {
                        (Some(came), Ok(points)) => {
                            let mut found = self.found(came)?;
                            found.points = points;
                            Some(found)
                        }
                        (None, Ok(points)) => self.at_points(points)?,
                        (_, Err(trouble)) => Some(self.trouble(trouble)?),
                    }
                }
                Arrival::Breakpoint => match self.points_here(context, &plan)? {
                    Err(trouble) => Some(self.trouble(trouble)?),
                    Ok(points) => match self.at_points(points)? {
                        Some(found) => Some(found),
                        None => {
                            let is_extra = at.address().is_some_and(|at| extra.contains(&at));
                            match self.frame_left(&plan, at)? {
                                Some(came) => Some(self.found(came)?),
                                None if is_extra => return Ok(Leg::At),
                                None => None,
                            }
                        }
                    },
                },
            };
            match (found, passed.as_deref_mut()) {
                (Some(found), Some(passed)) if passed.takes(context, &found) => {
                    passed.found.push(found);
                    // A place that was asked for may be just here.
                    if at.address().is_some_and(|address| extra.contains(&address)) {
                        return Ok(Leg::At);
                    }
                }
                (Some(found), _) => return Ok(Leg::Found(found)),
                (None, _) => {}
            }
            if context.cancel.is_cancelled() {
                return Ok(Leg::Interrupted(at));
            }
        }
    }

    /// The process is where something stops it.
    pub fn found(&self, came: Came) -> Result<Found> {
        Ok(Found {
            at: self.position()?,
            came,
            points: Vec::new(),
        })
    }

    pub fn at_points(&self, points: Vec<u32>) -> Result<Option<Found>> {
        if points.is_empty() {
            return Ok(None);
        }
        let mut found = self.found(Came::Points)?;
        found.points = points;
        Ok(Some(found))
    }

    pub fn trouble(&self, trouble: Trouble) -> Result<Found> {
        self.found(Came::Trouble(Arc::new(trouble)))
    }

    /// The breakpoints at the instruction where the process is that count.
    pub fn points_here(
        &mut self,
        context: Context<'_>,
        plan: &Plan,
    ) -> Result<std::result::Result<Vec<u32>, Trouble>> {
        let Some(address) = self.position()?.address() else {
            return Ok(Ok(Vec::new()));
        };
        let here = plan.addresses.iter().filter(|(at, _)| *at == address);
        let mut found = Vec::new();
        for (_, number) in here {
            let inlined = plan.inlined_at(*number, address);
            match self.holds(context, *number, inlined)? {
                Ok(true) => found.push(*number),
                Ok(false) => {}
                Err(trouble) => return Ok(Err(trouble)),
            }
        }
        Ok(Ok(found))
    }

    /// Whether a point counts where the process is.
    pub fn holds(
        &mut self,
        context: Context<'_>,
        number: u32,
        inlined: Option<&Location>,
    ) -> Result<std::result::Result<bool, Trouble>> {
        let Some(point) = context.stops.get(number) else {
            return Ok(Ok(false));
        };
        let (target, mut judge) = self.judge(context)?;
        Ok(judge.holds(target, point, inlined))
    }

    /// The event that is caught next, from `event` on.
    pub fn next_caught(&self, context: Context<'_>, event: EventNo) -> Option<EventNo> {
        let all = context
            .stops
            .of(self)
            .filter_map(|point| match &point.what {
                What::Catch(caught) => caught.from(self.id, event),
                _ => None,
            });
        all.min()
    }

    /// The one that was caught last, before `event`.
    pub fn last_caught(&self, context: Context<'_>, event: EventNo) -> Option<EventNo> {
        let all = context
            .stops
            .of(self)
            .filter_map(|point| match &point.what {
                What::Catch(caught) => caught.before(self.id, event),
                _ => None,
            });
        all.max()
    }

    /// The points that catch an event.
    pub fn catching(&self, context: Context<'_>, event: EventNo) -> Vec<u32> {
        let all = context.stops.of(self);
        let all = all.filter(|p| matches!(&p.what, What::Catch(c) if c.has(self.id, event)));
        all.map(|p| p.number).collect()
    }

    /// What the watched variables are where the process is.
    pub fn watched_values(&mut self, context: Context<'_>) -> Result<Vec<(u32, Seen)>> {
        let image = self.target()?.maps_version().image;
        let mine = context
            .stops
            .of(self)
            .filter_map(|point| match &point.what {
                What::Watch(watched) if watched.image == image => {
                    Some((point.number, watched.value.clone()))
                }
                _ => None,
            });
        let mine: Vec<_> = mine.collect();
        if mine.is_empty() {
            return Ok(Vec::new());
        }
        self.look(context.program.library(), |inspector, _| {
            let values = mine.into_iter();
            values
                .map(|(number, value)| (number, seen(inspector, &value)))
                .collect()
        })
    }

    /// Whether a frame is there.
    pub fn is_live(&mut self, context: Context<'_>, frame: &FrameKey) -> Result<bool> {
        self.look(context.program.library(), |inspector, _| {
            let stack = inspector.stack(inspect::ThreadId(frame.thread.0), 10_000);
            let mut frames = stack.iter().flat_map(|s| &s.frames);
            frames.any(|f| f.cfa == Some(frame.cfa) && f.name == frame.function)
        })
    }

    /// Watched memory changed: what that is, if it counts.
    pub fn changed(
        &mut self,
        context: Context<'_>,
        plan: &Plan,
        part: usize,
        values: &mut Vec<(u32, Seen)>,
    ) -> Result<Option<Came>> {
        let Some(point) = plan.watched_by(part, context.stops) else {
            return Ok(None);
        };
        let number = point.number;
        let mut change = None;
        if let What::Watch(watched) = &point.what {
            let is_live = match &watched.frame {
                Some(frame) => self.is_live(context, frame)?,
                None => true,
            };
            let now = self.watched_values(context)?;
            let of = |values: &[(u32, Seen)]| {
                let found = values.iter().find(|(n, _)| *n == number);
                found.map(|(_, seen)| seen.clone())
            };
            if let (Some(old), Some(new)) = (of(values), of(&now)) {
                let text = watched.text.clone();
                change = Some(Box::new(Change { text, old, new }));
            }
            *values = now;
            // The same memory, of another frame.
            if !is_live {
                return Ok(None);
            }
        }
        match self.holds(context, number, None)? {
            Ok(true) => Ok(Some(Came::Watch {
                number,
                values: change,
                back: false,
            })),
            Ok(false) => Ok(None),
            Err(trouble) => Ok(Some(Came::Trouble(Arc::new(trouble)))),
        }
    }

    /// Whether the frame of a watched variable has just returned.
    pub fn frame_left(&self, plan: &Plan, at: Position) -> Result<Option<Came>> {
        let (Some(address), Some(rsp)) = (at.address(), self.stack_pointer()?) else {
            return Ok(None);
        };
        let thread = self.thread()?;
        let left = plan.frames.iter().find(|(_, f)| {
            f.thread == thread && f.returns.is_some_and(|(a, cfa)| a == address && rsp >= cfa)
        });
        Ok(left.map(|(number, _)| Came::OutOfScope {
            number: *number,
            back: false,
        }))
    }

    fn judge<'m>(&'m mut self, context: Context<'m>) -> Result<(&'m dyn Target, Judge<'m>)> {
        let (target, judge) = self.judge_mut(context)?;
        Ok((target, judge))
    }
}
