//! The last stop of one process.

use protocol::id::Addr;
use target::{Back, Cancel, Hit, Position, Stops, Target, Watch};

use crate::conditions::Trouble;
use crate::found::{Came, Leg, Search, learnt};
use crate::member::{Context, Member};
use crate::plan::Plan;
use crate::reason::{Change, Seen};
use crate::stops::What;
use crate::view::seen;
use crate::watched::{FrameKey, Watched};
use crate::{Error, Result};

impl Member {
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
        extra: &[Addr],
        floor: Position,
    ) -> Result<Leg> {
        loop {
            // Addresses are of one program: each is searched by itself.
            let plan = self.plan(context)?;
            let from = self.position()?;
            let begins = plan.frames.iter().filter_map(|(_, frame)| frame.begins);
            let others: Vec<Addr> = extra.iter().copied().chain(begins).collect();
            let breakpoints = plan.breakpoints(&others)?;
            let first = Position::Event(self.image_begins(from.event()));
            let caught = self.last_caught(context, from.event());
            let caught = caught.map(Position::Event).unwrap_or(Position::START);
            let within = floor.max(first).max(caught);
            let conditions = self.passable(context, &plan, &others)?;
            let stops = Stops {
                breakpoints: &breakpoints,
                watches: &plan.watches,
                conditions: &conditions,
                ..Stops::default()
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
                    let address = at.address();
                    if let Some((number, _)) = self.frame_begins(&plan, address)? {
                        return Ok(Leg::Found(
                            self.found(Came::OutOfScope { number, back: true })?,
                        ));
                    }
                    if address.is_some_and(|at| extra.contains(&at)) {
                        return Ok(Leg::At);
                    }
                }
                Back::Watch(part) => {
                    if let Some(came) = self.changes(context, &plan, part)? {
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
        extra: &[Addr],
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
    fn frame_begins(&self, plan: &Plan, at: Option<Addr>) -> Result<Option<(u32, FrameKey)>> {
        let target = self.target()?;
        Ok(at.and_then(|address| begins_here(plan, target, address)))
    }

    /// The process is before what changes watched memory: what that is, if it
    /// counts.
    fn changes(&mut self, context: Context<'_>, plan: &Plan, part: usize) -> Result<Option<Came>> {
        let Some(point) = plan.watched_by(part, context.stops) else {
            return Ok(None);
        };
        let number = point.number;
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

    fn value_of(&mut self, context: Context<'_>, watched: &Watched) -> Result<Seen> {
        self.look(context.program.library(), |inspector, _| {
            seen(inspector, &watched.value)
        })
    }

    /// What a watched variable is behind the change that comes next.
    fn value_behind(&mut self, context: Context<'_>, watched: &Watched) -> Result<Seen> {
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

fn begins_here(plan: &Plan, target: &dyn Target, address: Addr) -> Option<(u32, FrameKey)> {
    let could = plan.frames.iter().any(|(_, f)| f.begins == Some(address));
    let running = target.running().filter(|_| could)?;
    let rsp = running.registers.sp();
    let mut frames = plan.frames.iter();
    let found = frames.find(|(_, f)| {
        f.thread == running.number && f.begins == Some(address) && rsp.plus(8) == f.cfa
    });
    found.cloned()
}
