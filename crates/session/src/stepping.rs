//! Steps: lines and instructions, into functions and over them, and out of them.
//!
//! Each is a search in one process, made of several ways (`search`); where it ends
//! is committed like any other stop. Points on the way that do not end the step
//! are noted, in order.

use std::ops::Range;

use inspect::frames::{Frame, Stack};
use inspect::lookup::Location;
use inspect::stepping::Exits;
use inspect::{Inspector, ThreadId};
use protocol::id::{Addr, EventNo, ThreadNo};
use target::{Arrival, ONE_INSTRUCTION, Position, Stops, Target};

use crate::conditions::INLINED_MAX;
use crate::found::{Came, Found, Leg, Passed, Search};
use crate::inlined::SteppedFrame;
use crate::member::{Context, Member};
use crate::view::stack_at;
use crate::watched::FrameKey;
use crate::{Error, Result};

/// Steps in one go; more are not made to find the line before.
pub(crate) const STEPS_MAX: usize = 20_000;

impl Member {
    /// Looks at the stack of the thread that runs, so many frames of it.
    pub fn look_at_stack<T>(
        &mut self,
        context: Context<'_>,
        frames: usize,
        question: impl FnOnce(&Inspector<'_>, &Stack) -> Option<T>,
    ) -> Result<Option<T>> {
        self.look(
            context.program.library(),
            |inspector, target: &dyn Target| {
                let stack = inspector.stack(ThreadId(target.thread().0), frames).ok()?;
                question(inspector, &stack)
            },
        )
    }

    /// The innermost frame of the thread that runs.
    pub fn top(&mut self, context: Context<'_>) -> Result<Option<Frame>> {
        self.look_at_stack(context, 1, |_, stack| stack.frames.first().cloned())
    }

    /// Whether the process has come to an event.
    fn at_or_past(&self, event: EventNo) -> bool {
        self.position().is_ok_and(|at| at.event() >= event)
    }

    /// How a way that was a step ended.
    fn stepped(&self, leg: Leg) -> Result<Search> {
        Ok(match leg {
            Leg::At | Leg::There => Search::Found(self.found(Came::Step)?),
            Leg::End => Search::Nothing,
            Leg::Found(found) => Search::Found(found),
            Leg::Interrupted(at) => Search::Interrupted(at),
        })
    }

    /// One instruction of a thread, or as many as begin in a range. Meanwhile
    /// others do what they did. Without a thread: of whichever runs.
    pub fn step_instructions(
        &mut self,
        context: Context<'_>,
        thread: Option<ThreadNo>,
        range: Range<Addr>,
        passed: &mut Passed,
    ) -> Result<Search> {
        self.here(context.program)?;
        let plan = self.plan(context)?;
        let is_crossed = plan.addresses.iter().any(|(a, _)| range.contains(a));
        let range = if is_crossed { ONE_INSTRUCTION } else { range };
        loop {
            let before = self.position()?;
            let thread = match thread {
                Some(thread) => thread,
                None => self.thread()?,
            };
            let border = self.next_image(before.event()).filter(|_| context.execs);
            let leg = if self.thread()? == thread {
                self.execute(context, range.clone(), passed)?
            } else {
                // The first instruction that it executes then.
                let turn = self.next_turn(context.program, thread, before.event());
                let limit = turn.map_or(Position::END, Position::way_to);
                match self.leg(context, &[], limit, Some(passed))? {
                    Leg::There if self.position()? == before => {
                        self.execute(context, ONE_INSTRUCTION, passed)?
                    }
                    other => other,
                }
            };
            let at = self.position()?;
            if let Some(first) = border.filter(|first| at.event() >= *first) {
                self.seek(Position::Event(first), &target::Cancel::new())?;
                return Ok(Search::Found(self.found(Came::Exec)?));
            }
            match leg {
                Leg::At if self.thread()? == thread => return self.stepped(Leg::At),
                Leg::At | Leg::There => {}
                other => return self.stepped(other),
            }
            if context.cancel.is_cancelled() {
                return Ok(Search::Interrupted(at));
            }
        }
    }

    /// Executes the instructions in a range, or one, of the thread that runs.
    fn execute(
        &mut self,
        context: Context<'_>,
        range: Range<Addr>,
        passed: &mut Passed,
    ) -> Result<Leg> {
        let plan = self.plan(context)?;
        let mut values = self.watched_values(context)?;
        if let Some(company) = context.company {
            company.arm()?;
        }
        let target = self.target_mut()?;
        let arrival = target.step(range, &plan.watches, context.cancel)?;
        Ok(match arrival {
            Arrival::Stepped | Arrival::Breakpoint | Arrival::Mapped => Leg::At,
            Arrival::Watch(part) => match self.changed(context, &plan, part, &mut values)? {
                None => Leg::At,
                Some(came) => {
                    let found = self.found(came)?;
                    match passed.takes(context, &found) {
                        true => {
                            passed.found.push(found);
                            Leg::At
                        }
                        false => Leg::Found(found),
                    }
                }
            },
            Arrival::There => Leg::There,
            Arrival::End => Leg::End,
            Arrival::Interrupted => Leg::Interrupted(self.position()?),
            Arrival::Diverged(difference) => Leg::Found(self.found(Came::Diverged(difference))?),
            Arrival::Elsewhere(process, arrival) => {
                let company = context.company;
                match company.map_or(Ok(true), |all| all.came(process, *arrival))? {
                    true => Leg::Interrupted(self.position()?),
                    // It goes on from where it got.
                    false => Leg::At,
                }
            }
            Arrival::Happened(happening) => match self.happened(context, happening)? {
                Some(found) => Leg::Found(found),
                None => Leg::At,
            },
        })
    }

    /// One instruction; a call is run until it returns.
    pub fn next_instruction(
        &mut self,
        context: Context<'_>,
        passed: &mut Passed,
    ) -> Result<Search> {
        self.here(context.program)?;
        let thread = self.thread()?;
        let call = self.look_at_stack(context, 1, |inspector, stack| {
            let frame = stack.frames.first()?;
            let lines = inspector.disassemble(frame.pc, 2);
            let is_call = lines.first()?.text.starts_with("call");
            is_call.then_some(lines.get(1)?.address)
        })?;
        match (call, self.stack_pointer()?) {
            (Some(next), Some(rsp)) => {
                let leg = self.run_out(context, thread, next, rsp, Position::END, Some(passed))?;
                self.stepped(leg)
            }
            _ => self.step_instructions(context, None, ONE_INSTRUCTION, passed),
        }
    }

    /// Runs on until a thread reaches an address in a frame that is not deeper than
    /// `cfa`; not past `limit`. Without `passed` nothing else stops it.
    pub fn run_out(
        &mut self,
        context: Context<'_>,
        thread: ThreadNo,
        address: Addr,
        cfa: Addr,
        limit: Position,
        mut passed: Option<&mut Passed>,
    ) -> Result<Leg> {
        loop {
            let leg = match &mut passed {
                Some(passed) => self.leg(context, &[address], limit, Some(&mut **passed))?,
                None => self.way(context, &[address], limit)?,
            };
            match leg {
                Leg::At => {}
                other => return Ok(other),
            }
            let is_outer = self.stack_pointer()?.is_some_and(|rsp| rsp >= cfa);
            if self.thread()? == thread && is_outer {
                return Ok(Leg::At);
            }
        }
    }

    /// Runs on to one of the addresses, or to `limit`: nothing else stops it.
    pub fn way(
        &mut self,
        context: Context<'_>,
        addresses: &[Addr],
        limit: Position,
    ) -> Result<Leg> {
        let stops = Stops {
            breakpoints: addresses,
            ..Stops::default()
        };
        let arrival = match limit {
            Position::Event(_) if addresses.is_empty() => {
                self.recorded()?.seek(limit, context.cancel)?
            }
            _ => self.target_mut()?.run(&stops, limit, context.cancel)?,
        };
        Ok(match arrival {
            Arrival::Breakpoint => Leg::At,
            Arrival::Interrupted => Leg::Interrupted(self.position()?),
            Arrival::End => Leg::End,
            Arrival::Diverged(difference) => Leg::Found(self.found(Came::Diverged(difference))?),
            _ => Leg::There,
        })
    }

    /// What is known of a frame.
    pub fn frame_key(
        &mut self,
        context: Context<'_>,
        thread: ThreadNo,
        level: usize,
    ) -> Result<Option<FrameKey>> {
        let entered = self.entered().cloned();
        self.look(context.program.library(), |inspector, target| {
            let stack = stack_at(inspector, target, thread, 10_000, entered.as_ref()).ok()?;
            let frame = stack.frames.get(level)?;
            Some(FrameKey {
                thread,
                cfa: frame.cfa?,
                function: frame.name.clone(),
                begins: inspector.function_name(frame.pc).map(|(_, begins)| begins),
                returns: inspector.return_place(&stack, level),
            })
        })
    }

    /// To the caller of a frame.
    pub fn finish(
        &mut self,
        context: Context<'_>,
        thread: Option<ThreadNo>,
        level: usize,
        passed: &mut Passed,
    ) -> Result<Search> {
        self.here(context.program)?;
        let thread = match thread {
            Some(thread) => thread,
            None => self.thread()?,
        };
        let entered = self.entered().cloned();
        let ways = self.look(context.program.library(), |inspector, target| {
            let stack = stack_at(inspector, target, thread, 10_000, entered.as_ref()).ok()?;
            let exits = inspector.exits(&stack, level);
            Some((exits, inspector.return_place(&stack, level)))
        })?;
        let (address, cfa) = match ways {
            Some((Some(exits), _)) => return self.leave(context, thread, &exits, passed),
            Some((None, Some(place))) => place,
            Some((None, None)) | None => return Err(Error::Outermost),
        };
        let leg = self.run_out(context, thread, address, cfa, Position::END, Some(passed))?;
        self.stepped(leg)
    }

    /// Out of an inlined function: to the first instruction that is not of its
    /// code, in the frame that it is part of.
    fn leave(
        &mut self,
        context: Context<'_>,
        thread: ThreadNo,
        exits: &Exits,
        passed: &mut Passed,
    ) -> Result<Search> {
        let mut addresses = exits.addresses.clone();
        addresses.extend(&exits.jumps);
        addresses.extend(exits.returns.map(|(address, _)| address));
        // It may stand at a jump already.
        let mut leg = Leg::At;
        loop {
            match leg {
                Leg::At => {}
                other => return self.stepped(other),
            }
            if self.thread()? == thread {
                if self.stack_pointer()?.is_some_and(|rsp| rsp >= exits.cfa) {
                    return self.stepped(Leg::At);
                }
                let top = self.top(context)?;
                if let Some(frame) = top.filter(|frame| frame.cfa == Some(exits.cfa)) {
                    if !exits.is_inside(frame.pc) {
                        let caller = Location {
                            address: frame.pc,
                            function: None,
                            place: None,
                            module: String::new(),
                            inlined: false,
                            instance: Some(exits.caller),
                        };
                        return Ok(Search::Found(self.found(Came::Left(caller))?));
                    }
                    if exits.jumps.contains(&frame.pc) {
                        leg = self.execute(context, ONE_INSTRUCTION, passed)?;
                        continue;
                    }
                }
            }
            leg = self.leg(context, &addresses, Position::END, Some(&mut *passed))?;
        }
    }

    /// On to a place in the code.
    pub fn until(
        &mut self,
        context: Context<'_>,
        addresses: &[Addr],
        passed: &mut Passed,
    ) -> Result<Search> {
        self.here(context.program)?;
        let leg = self.leg(context, addresses, Position::END, Some(passed))?;
        self.stepped(leg)
    }

    /// To the next line; into functions that have lines, if `into`.
    pub fn step_line(
        &mut self,
        context: Context<'_>,
        into: bool,
        passed: &mut Passed,
    ) -> Result<Search> {
        self.here(context.program)?;
        if into && self.stands_outside(context)? {
            // It is in what is inlined there as soon as that is looked at.
            self.enter(None);
            return Ok(Search::Found(self.found(Came::Step)?));
        }
        let depth = self.stepped_frame(context, into)?.and_then(|own| own.depth);
        let leg = self.run_to_line(context, into, Position::END, Some(passed))?;
        let search = self.stepped(leg)?;
        let search = self.outside(context, depth, search)?;
        // A breakpoint may be just here.
        let is_passed = |found: &Found| passed.found.last().is_some_and(|p| p.at == found.at);
        match search {
            Search::Found(found)
                if matches!(found.came, Came::Step | Came::Left(_)) && !is_passed(&found) =>
            {
                let plan = self.plan(context)?;
                let points = self.points_here(context, &plan)?.unwrap_or_default();
                Ok(Search::Found(Found { points, ..found }))
            }
            other => Ok(other),
        }
    }

    /// The instructions in a range, or one; without `passed` nothing stops it.
    fn step(
        &mut self,
        context: Context<'_>,
        range: Range<Addr>,
        passed: Option<&mut Passed>,
    ) -> Result<Leg> {
        if let Some(passed) = passed {
            return self.execute(context, range, passed);
        }
        let arrival = self.target_mut()?.step(range, &[], context.cancel)?;
        Ok(match arrival {
            Arrival::Interrupted => Leg::Interrupted(self.position()?),
            Arrival::End => Leg::End,
            Arrival::There => Leg::There,
            Arrival::Diverged(difference) => Leg::Found(self.found(Came::Diverged(difference))?),
            _ => Leg::At,
        })
    }

    /// To where the next line begins, but not past `limit`. Without `passed`
    /// nothing else stops it.
    pub fn run_to_line(
        &mut self,
        context: Context<'_>,
        into: bool,
        limit: Position,
        mut passed: Option<&mut Passed>,
    ) -> Result<Leg> {
        let thread = self.thread()?;
        let Some(SteppedFrame {
            frame: start,
            depth,
        }) = self.stepped_frame(context, into)?
        else {
            return self.step(context, ONE_INSTRUCTION, passed);
        };
        let border = self.next_image(self.position()?.event());
        let start_line = start.place.as_ref().map(|p| p.line);
        for _ in 0..STEPS_MAX {
            // The range of the line, and the way out.
            let (range, out) = self
                .look_at_stack(context, 10_000, |inspector, stack| {
                    let range = stack.frames.first().and_then(|frame| {
                        let step = inspector.step_range(frame)?;
                        let mut ranges = step.ranges.iter();
                        let found = ranges.find(|(s, e)| (*s..*e).contains(&frame.pc));
                        found.map(|(s, e)| *s..*e)
                    });
                    Some((range, inspector.return_place(stack, 0)))
                })?
                .unwrap_or_default();
            let leg = match (range, out) {
                (Some(range), _) => self.step(context, range, passed.as_deref_mut())?,
                // No lines here: out of it.
                (None, Some((address, cfa))) => {
                    let passed = passed.as_deref_mut();
                    self.run_out(context, thread, address, cfa, limit, passed)?
                }
                (None, None) => self.step(context, ONE_INSTRUCTION, passed.as_deref_mut())?,
            };
            match leg {
                Leg::At => {}
                other => return Ok(other),
            }
            if let Some(first) = border.filter(|first| self.at_or_past(*first)) {
                // The program is over whose lines these were.
                self.seek(Position::Event(first), &target::Cancel::new())?;
                return Ok(Leg::Found(self.found(Came::Exec)?));
            }
            if self.position()? >= limit {
                return Ok(Leg::There);
            }
            // Others run while this thread waits.
            while self.thread()? != thread {
                let next = Position::Event(self.position()?.event().next());
                let to = next.min(limit);
                let leg = match &mut passed {
                    Some(passed) => self.leg(context, &[], to, Some(&mut **passed))?,
                    None => self.way(context, &[], to)?,
                };
                match leg {
                    Leg::There if next < limit => {}
                    other => return Ok(other),
                }
            }
            let Some(now) = self.top(context)? else {
                continue;
            };
            let has_line = now.place.is_some();
            // A frame whose address is not known is taken for an inner one.
            if now.cfa < start.cfa {
                // Deeper: a call was made.
                match self.called(context, &now, thread, into, limit, passed.as_deref_mut())? {
                    Call::Stopped(leg) => return Ok(leg),
                    Call::Unknown => continue,
                    Call::Returned => {}
                }
                let Some(back) = self.frame_at(context, depth)? else {
                    continue;
                };
                if back.place.as_ref().map(|p| p.line) != start_line && !back.inside_line {
                    return Ok(Leg::At);
                }
                continue;
            }
            if now.cfa > start.cfa {
                // Returned.
                if has_line {
                    return Ok(Leg::At);
                }
                continue;
            }
            let Some(now) = self.frame_at(context, depth)? else {
                continue;
            };
            let has_line = now.place.is_some();
            let is_same =
                now.place.as_ref().map(|p| p.line) == start_line && now.name == start.name;
            if has_line && !is_same && !now.inside_line {
                return Ok(Leg::At);
            }
        }
        Ok(Leg::At)
    }

    /// A call was made on the way to the next line: into it, or out of it again.
    fn called(
        &mut self,
        context: Context<'_>,
        now: &Frame,
        thread: ThreadNo,
        into: bool,
        limit: Position,
        mut passed: Option<&mut Passed>,
    ) -> Result<Call> {
        let entered = self.look_at_stack(context, 2 + INLINED_MAX, |inspector, stack| {
            let (_, begins) = inspector.function_name(now.pc)?;
            let module = inspector.module_at(now.pc)?;
            let body = inspector.body_of(&module, module.to_link(begins));
            Some((begins, body, inspector.return_place(stack, 0)))
        })?;
        let Some((begins, body, out)) = entered else {
            return Ok(Call::Unknown);
        };
        if into && now.place.is_some() && now.pc == begins {
            if body == now.pc {
                return Ok(Call::Stopped(Leg::At));
            }
            let leg = match &mut passed {
                Some(passed) => self.leg(context, &[body], limit, Some(&mut **passed))?,
                None => self.way(context, &[body], limit)?,
            };
            return Ok(Call::Stopped(leg));
        }
        if let Some((address, cfa)) = out {
            match self.run_out(context, thread, address, cfa, limit, passed)? {
                Leg::At => {}
                other => return Ok(Call::Stopped(other)),
            }
        }
        Ok(Call::Returned)
    }
}

/// What became of a call on the way to the next line.
enum Call {
    /// It ends there.
    Stopped(Leg),
    /// Nothing is known of the function.
    Unknown,
    Returned,
}
