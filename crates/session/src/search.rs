//! The next stop of one process, and the last.
//!
//! Searching leads the process about, but does not say that it is elsewhere:
//! only what is committed does (`motion`). What was found out about a way is
//! kept, so that it need not be gone again when somebody else stopped first.

use inspect::lookup::Location;
use protocol::id::EventNo;
use target::{Arrival, Back, Cancel, Difference, Hit, Position, Stops, Target, Watch};

use crate::conditions::{Judge, Trouble};
use crate::member::{Context, Member};
use crate::plan::Plan;
use crate::reason::{Change, Seen};
use crate::stops::{Key, What};
use crate::view::seen;
use crate::watched::FrameKey;
use crate::{Error, Result};

/// What a process came to.
#[derive(Clone, Debug)]
pub(crate) enum Came {
    /// Points at this instruction; see [`Found::points`].
    Points,
    Watch {
        number: u32,
        values: Option<Box<Change>>,
        back: bool,
    },
    OutOfScope {
        number: u32,
        back: bool,
    },
    Caught(Vec<u32>),
    Exec,
    /// Where a step ends.
    Step,
    /// Where it was to go.
    Arrived,
    /// Where its run begins, and where it ends.
    Start,
    End,
    Diverged(Difference),
    /// A condition that cannot be tested.
    Trouble(std::sync::Arc<Trouble>),
}

/// Something that stops a process on its way.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub at: Position,
    pub came: Came,
    /// The breakpoints here that count.
    pub points: Vec<u32>,
}

/// What was found out about a way: from a position on, nothing stops the process
/// before another one, where perhaps something does.
pub(crate) struct Known {
    /// What it was to stop at.
    key: Key,
    from: Position,
    to: Position,
    found: Option<Found>,
}

/// Where a search for something that stops ended.
pub(crate) enum Search {
    Found(Found),
    /// It may go no further, or there is no further.
    Nothing,
    /// The request was cancelled: how far it came.
    Interrupted(Position),
}

/// How a way ended.
pub(crate) enum Leg {
    /// At one of the addresses that were asked for.
    At,
    /// At its limit.
    There,
    /// At the end of the run.
    End,
    Found(Found),
    Interrupted(Position),
}

/// Points that were come to during a step and do not end it, in order: they are
/// passed over, or only say that they were passed.
#[derive(Default)]
pub(crate) struct Passed {
    pub found: Vec<Found>,
}

impl Passed {
    /// Whether none of the points ends the step, given what was passed before.
    pub fn takes(&self, context: Context<'_>, found: &Found) -> bool {
        matches!(
            found.came,
            Came::Points | Came::Caught(_) | Came::Watch { .. }
        ) && found.numbers().iter().all(|number| {
            let before = self.found.iter().flat_map(Found::numbers);
            let before = before.filter(|n| n == number).count() as u64;
            let point = context.stops.get(*number);
            point.is_some_and(|p| p.ignore > before || p.traces)
        })
    }
}

impl Found {
    /// All points that are come to here.
    pub fn numbers(&self) -> Vec<u32> {
        let mut all = match &self.came {
            Came::Watch { number, .. } => vec![*number],
            Came::Caught(numbers) => numbers.clone(),
            _ => Vec::new(),
        };
        all.extend(&self.points);
        all
    }
}

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
    fn may_stop(&self, context: Context<'_>, near: impl Fn(EventNo) -> bool) -> bool {
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
        extra: &[u64],
        limit: Position,
        mut passed: Option<&mut Passed>,
    ) -> Result<Leg> {
        let mut values = self.watched_values(context)?;
        loop {
            let plan = self.plan(context)?;
            let returns = plan.frames.iter();
            let returns = returns.filter_map(|(_, frame)| frame.returns.map(|(at, _)| at));
            let others: Vec<u64> = extra.iter().copied().chain(returns).collect();
            let breakpoints = plan.breakpoints(&others)?;
            let now = self.position()?;
            let next = match now {
                Position::Event(event) => event.next(),
                Position::Inside(inside) => inside.event,
            };
            let caught = self.next_caught(context, next);
            let caught = caught.map(Position::Event).filter(|at| *at <= limit);
            // The program ends there that addresses are of.
            let border = self.next_image(now.event()).filter(|_| context.execs);
            let border = border.map(Position::Event).filter(|at| *at <= limit);
            let to = [Some(limit), caught, border].into_iter().flatten().min();
            let to = to.unwrap_or(limit);
            let conditions = self.passable(context, &plan, &others)?;
            let stops = Stops {
                breakpoints: &breakpoints,
                watches: &plan.watches,
                // Other code may be there then, with other variables.
                mapped: plan.mapped || !conditions.is_empty(),
                conditions: &conditions,
            };
            let is_free = breakpoints.is_empty() && plan.watches.is_empty() && !plan.mapped;
            let arrival = if is_free && matches!(to, Position::Event(_)) {
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
                    return Ok(Leg::Found(self.found(Came::Exec)?));
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
                Arrival::Diverged(difference) => {
                    return Ok(Leg::Found(self.found(Came::Diverged(difference))?));
                }
                Arrival::Watch(part) => {
                    let number = plan.watched.get(part).copied().unwrap_or(0);
                    let came = self.changed(context, number, &mut values)?;
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
                            let address = at.address().unwrap_or(0);
                            match self.frame_left(&plan, address)? {
                                Some(came) => Some(self.found(came)?),
                                None if extra.contains(&address) => return Ok(Leg::At),
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

    fn at_points(&self, points: Vec<u32>) -> Result<Option<Found>> {
        if points.is_empty() {
            return Ok(None);
        }
        let mut found = self.found(Came::Points)?;
        found.points = points;
        Ok(Some(found))
    }

    fn trouble(&self, trouble: Trouble) -> Result<Found> {
        self.found(Came::Trouble(std::sync::Arc::new(trouble)))
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
    fn holds(
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
    fn next_caught(&self, context: Context<'_>, event: EventNo) -> Option<EventNo> {
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
    fn last_caught(&self, context: Context<'_>, event: EventNo) -> Option<EventNo> {
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
    fn catching(&self, context: Context<'_>, event: EventNo) -> Vec<u32> {
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
    fn is_live(&mut self, context: Context<'_>, frame: &FrameKey) -> Result<bool> {
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
        number: u32,
        values: &mut Vec<(u32, Seen)>,
    ) -> Result<Option<Came>> {
        let Some(point) = context.stops.get(number) else {
            return Ok(None);
        };
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
            Err(trouble) => Ok(Some(Came::Trouble(std::sync::Arc::new(trouble)))),
        }
    }

    /// Whether the frame of a watched variable has just returned.
    fn frame_left(&self, plan: &Plan, address: u64) -> Result<Option<Came>> {
        let Some(rsp) = self.stack_pointer()? else {
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

    /// The last thing that stops the process on its way back from where it is said
    /// to be, down to `floor`.
    pub fn last_stop(&mut self, context: Context<'_>, floor: Position) -> Result<Search> {
        let start = self.at;
        let key = context.stops.key(self);
        if let Some(known) = &self.behind
            && known.key == key
            && start <= known.from
        {
            match &known.found {
                Some(found) if found.at < start && floor <= found.at => {
                    return Ok(Search::Found(found.clone()));
                }
                Some(found) if found.at < start => return Ok(Search::Nothing),
                None if known.to <= floor => return Ok(Search::Nothing),
                _ => {}
            }
        }
        if start <= floor || !self.may_have_stopped(context, floor) {
            return Ok(Search::Nothing);
        }
        self.here(context.program)?;
        let start = self.at;
        let search = self.leg_back(context, &[], floor)?;
        let search = match search {
            Leg::Found(found) => Search::Found(found),
            Leg::At | Leg::There | Leg::End => Search::Nothing,
            Leg::Interrupted(_) => Search::Interrupted(start),
        };
        self.behind = learnt(&search, key, start, floor).or(self.behind.take());
        Ok(search)
    }

    fn may_have_stopped(&self, context: Context<'_>, floor: Position) -> bool {
        let to = self.at.event().next();
        context.execs
            || context.stops.of(self).any(|point| match &point.what {
                What::Catch(caught) => caught
                    .before(self.id, to)
                    .is_some_and(|event| Position::Event(event) >= floor),
                _ => true,
            })
    }

    /// Goes back from where the process is to something to stop at, or to one of
    /// the addresses in `extra`, but not to before `floor`.
    pub fn leg_back(
        &mut self,
        context: Context<'_>,
        extra: &[u64],
        floor: Position,
    ) -> Result<Leg> {
        loop {
            // Addresses are of one program: each is searched by itself.
            let plan = self.plan(context)?;
            let from = self.position()?;
            let begins = plan.frames.iter().filter_map(|(_, frame)| frame.begins);
            let others: Vec<u64> = extra.iter().copied().chain(begins).collect();
            let breakpoints = plan.breakpoints(&others)?;
            let first = Position::Event(self.image_begins(from.event()));
            let caught = self.last_caught(context, from.event());
            let caught = caught.map(Position::Event).unwrap_or(Position::START);
            let within = floor.max(first).max(caught);
            let conditions = self.passable(context, &plan, &others)?;
            let stops = Stops {
                breakpoints: &breakpoints,
                watches: &plan.watches,
                mapped: false,
                conditions: &conditions,
            };
            let is_free = breakpoints.is_empty() && plan.watches.is_empty();
            let back = if is_free || from <= within {
                Back::Beginning
            } else {
                match self.last(context, &stops, within, &plan, extra)? {
                    Ok(back) => back,
                    Err(trouble) => return Ok(Leg::Found(self.trouble(trouble)?)),
                }
            };
            let at = self.position()?;
            match back {
                Back::Interrupted => return Ok(Leg::Interrupted(from)),
                Back::Breakpoint => {
                    let points = match self.points_here(context, &plan)? {
                        Ok(points) => points,
                        Err(trouble) => return Ok(Leg::Found(self.trouble(trouble)?)),
                    };
                    if let Some(found) = self.at_points(points)? {
                        return Ok(Leg::Found(found));
                    }
                    let address = at.address().unwrap_or(0);
                    if let Some((number, _)) = self.frame_begins(&plan, address)? {
                        return Ok(Leg::Found(
                            self.found(Came::OutOfScope { number, back: true })?,
                        ));
                    }
                    if extra.contains(&address) {
                        return Ok(Leg::At);
                    }
                }
                Back::Watch(part) => {
                    let number = plan.watched.get(part).copied().unwrap_or(0);
                    if let Some(came) = self.changes(context, number)? {
                        return Ok(Leg::Found(self.found(came)?));
                    }
                }
                Back::Beginning if caught >= floor && caught >= first && caught < from => {
                    self.seek(caught, &Cancel::new())?;
                    let numbers = self.catching(context, caught.event());
                    if !numbers.is_empty() {
                        return Ok(Leg::Found(self.found(Came::Caught(numbers))?));
                    }
                }
                Back::Beginning if floor < first && self.image_at(from.event()) > 0 => {
                    // The program that it executed before, at its last event.
                    let last = first.event().previous();
                    self.seek(Position::Event(last), &Cancel::new())?;
                    if context.execs {
                        return Ok(Leg::Found(self.found(Came::Exec)?));
                    }
                    let numbers = self.catching(context, last);
                    if !numbers.is_empty() && Position::Event(last) >= floor {
                        return Ok(Leg::Found(self.found(Came::Caught(numbers))?));
                    }
                }
                Back::Beginning => return Ok(Leg::There),
            }
            if context.cancel.is_cancelled() {
                return Ok(Leg::Interrupted(from));
            }
        }
    }

    /// Goes back to the last stop whose condition holds.
    fn last(
        &mut self,
        context: Context<'_>,
        stops: &Stops<'_>,
        floor: Position,
        plan: &Plan,
        extra: &[u64],
    ) -> Result<std::result::Result<Back, Trouble>> {
        let matters = |number: &u32| {
            let point = context.stops.get(*number);
            point.is_some_and(|point| {
                let coded =
                    matches!(&point.what, What::Code { conditions, .. } if !conditions.is_empty());
                point.condition.is_some() || point.thread.is_some() || coded
            })
        };
        let numbers = plan.addresses.iter().map(|(_, number)| number);
        let is_plain = !numbers.chain(&plan.watched).any(matters);
        if is_plain {
            let past = self.recorded()?;
            return Ok(Ok(past.last(stops, floor, context.cancel, None)?));
        }
        self.layout(context.program.library())?;
        let (target, mut judge) = self.judge_mut(context)?;
        let mut trouble = None;
        let mut ask = |target: &dyn Target, hit: Hit| {
            let address = target.position().address();
            let mut holds = |number: u32| {
                let inlined = address.and_then(|address| plan.inlined_at(number, address));
                let Some(point) = context.stops.get(number) else {
                    return false;
                };
                match judge.holds(target, point, inlined) {
                    Ok(holds) => {
                        // What is come to later is what counts.
                        if holds {
                            trouble = None;
                        }
                        holds
                    }
                    Err(error) => {
                        trouble = Some(error);
                        true
                    }
                }
            };
            if let Hit::Watch(part) = hit {
                return plan.watched.get(part).copied().is_some_and(&mut holds);
            }
            let Some(address) = address else {
                return true;
            };
            let begins = begins_here(plan, target, address).is_some();
            let mut here = plan.addresses.iter().filter(|(at, _)| *at == address);
            begins || extra.contains(&address) || here.any(|(_, number)| holds(*number))
        };
        let past = target
            .history()
            .ok_or(Error::Target(target::Error::NoPast))?;
        let back = past.last(stops, floor, context.cancel, Some(&mut ask))?;
        Ok(match trouble {
            // Unless that was before the floor.
            Some(trouble) if matches!(back, Back::Breakpoint | Back::Watch(_)) => Err(trouble),
            _ => Ok(back),
        })
    }

    /// The frame of a watched variable that begins here.
    fn frame_begins(&self, plan: &Plan, address: u64) -> Result<Option<(u32, FrameKey)>> {
        Ok(begins_here(plan, self.target()?, address))
    }

    /// The process is before what changes watched memory: what that is, if it
    /// counts.
    fn changes(&mut self, context: Context<'_>, number: u32) -> Result<Option<Came>> {
        let Some(point) = context.stops.get(number) else {
            return Ok(None);
        };
        let mut values = None;
        if let What::Watch(watched) = &point.what {
            if let Some(frame) = &watched.frame
                && !self.is_live(context, frame)?
            {
                return Ok(None);
            }
            let old = self.value_of(context, watched)?;
            let new = self.value_behind(context, watched)?;
            let text = watched.text.clone();
            values = Some(Box::new(Change { text, old, new }));
        }
        Ok(Some(Came::Watch {
            number,
            values,
            back: true,
        }))
    }

    fn value_of(&mut self, context: Context<'_>, watched: &crate::Watched) -> Result<Seen> {
        self.look(context.program.library(), |inspector, _| {
            seen(inspector, &watched.value)
        })
    }

    /// What a watched variable is behind the change that comes next.
    fn value_behind(&mut self, context: Context<'_>, watched: &crate::Watched) -> Result<Seen> {
        let never = Cancel::new();
        let here = self.position()?;
        let watches: &[Watch] = &watched.parts;
        let stops = Stops {
            watches,
            ..Stops::default()
        };
        self.target_mut()?.run(&stops, Position::END, &never)?;
        let seen = self.value_of(context, watched);
        self.seek(here, &never)?;
        seen
    }
}

fn begins_here(plan: &Plan, target: &dyn Target, address: u64) -> Option<(u32, FrameKey)> {
    let could = plan.frames.iter().any(|(_, f)| f.begins == Some(address));
    let running = target.running().filter(|_| could)?;
    let rsp = running.registers.rsp;
    let mut frames = plan.frames.iter();
    let found = frames.find(|(_, f)| {
        f.thread == running.number && f.begins == Some(address) && rsp.wrapping_add(8) == f.cfa
    });
    found.cloned()
}

/// What a search from one position to another leaves known, if it came to an end.
fn learnt(search: &Search, key: Key, from: Position, to: Position) -> Option<Known> {
    let (to, found) = match search {
        Search::Found(found) => (found.at, Some(found.clone())),
        Search::Nothing => (to, None),
        Search::Interrupted(_) => return None,
    };
    Some(Known {
        key,
        from,
        to,
        found,
    })
}

impl Member {
    fn judge<'m>(&'m mut self, context: Context<'m>) -> Result<(&'m dyn Target, Judge<'m>)> {
        let (target, judge) = self.judge_mut(context)?;
        Ok((target, judge))
    }
}
