//! Steps back: lines and instructions, and to where a function was called.
//!
//! Where something began is found first, whatever stops on the way; what does is come
//! to instead ([`Member::before_goal`]). Only what they end at is committed.

use inspect::ThreadId;
use inspect::frames::Frame;
use inspect::stepping::Entries;
use protocol::id::{Addr, ThreadNo};
use target::{Arrival, Back, ONE_INSTRUCTION, Position, Stops, Target};

use crate::found::{Came, Found, Leg, Search};
use crate::inlined::SteppedFrame;
use crate::member::{Context, Member};
use crate::stepping::STEPS_MAX;
use crate::view::stack_at;
use crate::watched::FrameKey;
use crate::{Error, Result};

/// So many bytes the longest call is that compilers make: a displacement and an index.
const CALL_MAX: u64 = 8;

/// How a frame was come to.
struct Entered {
    /// Where its function was entered.
    entry: Option<Position>,
    /// Where its first line begins.
    line: Option<Position>,
}

impl Member {
    fn arrived(&self, came: Came) -> Result<Search> {
        Ok(Search::Found(self.found(came)?))
    }

    /// Back by one instruction of whichever thread did the last.
    pub fn step_back(&mut self, context: Context<'_>) -> Result<Search> {
        self.here(context.program)?;
        self.one_back(context)
    }

    /// Back by one instruction; if a call has just returned, over all that it led to.
    /// Says whether it did: something else may have stopped the process on that way.
    pub fn next_instruction_back(&mut self, context: Context<'_>) -> Result<(Search, bool)> {
        self.here(context.program)?;
        let start = self.position()?;
        let (thread, rsp) = (self.thread()?, self.stack_pointer()?);
        let calls = self.look_at_stack(context, 1, |inspector, stack| {
            let next = stack.frames.first()?.pc;
            let is_call = |at: &Addr| {
                let lines = inspector.disassemble(*at, 2);
                let [call, after] = lines.as_slice() else {
                    return false;
                };
                call.text.starts_with("call") && after.address == next
            };
            // The bytes before may be read in several ways: it is the one that was executed.
            let begins = (2..=CALL_MAX).map(|length| next.minus(length));
            Some(begins.filter(is_call).collect::<Vec<Addr>>())
        })?;
        let search = self.one_back(context)?;
        let calls = calls.unwrap_or_default();
        let is_return = self.look_at_stack(context, 1, |inspector, stack| {
            let lines = inspector.disassemble(stack.frames.first()?.pc, 1);
            Some(lines.first()?.text.starts_with("ret"))
        })?;
        if calls.is_empty() || is_return != Some(true) || self.thread()? != thread {
            return Ok((search, false));
        }
        let mut is_call = |target: &dyn Target, _| {
            let own = target.running().filter(|t| t.number == thread);
            own.map(|thread| thread.registers.sp()) == rsp
        };
        let stops = Stops {
            breakpoints: &calls,
            ..Stops::default()
        };
        let returned = self.position()?;
        let floor = Position::Event(self.image_begins(start.event()));
        let past = self.recorded()?;
        match past.last(&stops, floor, context.cancel, Some(&mut is_call))? {
            Back::Breakpoint => Ok((self.arrived(Came::Step)?, true)),
            Back::Interrupted => Ok((Search::Interrupted(start), true)),
            // It returned to where nobody had called it.
            Back::Beginning | Back::Watch(_) => {
                self.seek(returned, &target::Cancel::new())?;
                Ok((search, false))
            }
        }
    }

    fn one_back(&mut self, context: Context<'_>) -> Result<Search> {
        let from = self.position()?;
        // The step itself goes no further than the program that it executes.
        if self.recorded()?.step_back(context.cancel)? {
            return self.arrived(Came::Step);
        }
        if self.image_at(from.event()) > 0 {
            self.seek(
                Position::Event(from.event().previous()),
                &target::Cancel::new(),
            )?;
            return self.arrived(if context.execs {
                Came::Exec
            } else {
                Came::Step
            });
        }
        self.arrived(Came::Start)
    }

    /// Back by one instruction of a thread.
    pub fn step_thread_back(&mut self, context: Context<'_>, thread: ThreadNo) -> Result<Search> {
        // It does not take long.
        let never = target::Cancel::new();
        self.here(context.program)?;
        let start = self.at;
        let first = self.image_begins(start.event());
        let image = self.image_at(start.event());
        loop {
            let event = self.position()?.event();
            let is_own = self.thread()? == thread
                && self.recorded()?.step_back(&never)?
                && self.thread()? == thread;
            if !is_own {
                // What it did last was before others had their turns.
                let last = self.last_turn(context.program, thread, event);
                match last.filter(|last| *last >= first) {
                    Some(last) => {
                        self.seek(Position::Event(last), &never)?;
                    }
                    None if image > 0 => {
                        self.seek(Position::Event(first.previous()), &never)?;
                        return self.arrived(Came::Exec);
                    }
                    None => return Ok(Search::Nothing),
                }
            }
            // Inside of a call it is between instructions.
            let is_event = matches!(self.position()?, Position::Event(_));
            let state = self.target()?.thread_state(thread);
            let in_call = is_event && state.is_some_and(|state| state.call.is_some());
            if !in_call {
                return self.arrived(Came::Step);
            }
            if context.cancel.is_cancelled() {
                return Ok(Search::Interrupted(start));
            }
        }
    }

    /// Back to where a frame was called.
    pub fn finish_back(
        &mut self,
        context: Context<'_>,
        thread: Option<ThreadNo>,
        level: usize,
    ) -> Result<Search> {
        self.here(context.program)?;
        let start = self.at;
        let thread = match thread {
            Some(thread) => thread,
            None => self.thread()?,
        };
        let Some(frame) = self.frame_key(context, thread, level)? else {
            return Err(Error::NoFrame);
        };
        let entered = self.entered().cloned();
        let entries = self.look(context.program.library(), |inspector, target| {
            let stack = stack_at(inspector, target, thread, 10_000, entered.as_ref()).ok()?;
            inspector.entries(&stack, level)
        })?;
        if let Some(entries) = entries {
            return self.leave_back(context, &frame, &entries);
        }
        let Some(begins) = frame.begins else {
            return Err(Error::NoBeginning);
        };
        let rsp = frame.cfa.minus(8);
        let is_called = |target: &dyn Target| {
            let own = target.running().filter(|t| t.number == frame.thread);
            own.is_some_and(|thread| thread.registers.sp() == rsp)
        };
        // It may stand where it was just called.
        let here = self.target()?;
        let pc = here.running().map(|thread| thread.registers.pc());
        if pc == Some(begins) && is_called(here) {
            return self.one_back(context);
        }
        let mut is_entry = |target: &dyn Target, _| is_called(target);
        let stops = Stops {
            breakpoints: &[begins],
            ..Stops::default()
        };
        let floor = Position::Event(self.image_begins(start.event()));
        let past = self.recorded()?;
        match past.last(&stops, floor, context.cancel, Some(&mut is_entry))? {
            Back::Breakpoint => self.one_back(context),
            Back::Interrupted => Ok(Search::Interrupted(start)),
            Back::Beginning | Back::Watch(_) => Err(Error::NotCalled),
        }
    }

    /// Back out of an inlined function: to the instruction of the function that it is
    /// part of that led to it.
    fn leave_back(
        &mut self,
        context: Context<'_>,
        frame: &FrameKey,
        entries: &Entries,
    ) -> Result<Search> {
        let start = self.at;
        let mut breakpoints = entries.addresses.clone();
        // It may be what that function begins with.
        breakpoints.extend(frame.begins);
        if breakpoints.len() > protocol::replay::BREAKPOINTS {
            return Err(Error::TooManyPlaces(breakpoints.len()));
        }
        let stops = Stops {
            breakpoints: &breakpoints,
            ..Stops::default()
        };
        let floor = Position::Event(self.image_begins(start.event()));
        loop {
            match self.recorded()?.last(&stops, floor, context.cancel, None)? {
                Back::Breakpoint => {}
                Back::Interrupted => return Ok(Search::Interrupted(start)),
                Back::Beginning | Back::Watch(_) => return Err(Error::NotCalled),
            }
            if self.thread()? != frame.thread {
                continue;
            }
            let (Some(now), Some(rsp)) = (self.top(context)?, self.stack_pointer()?) else {
                continue;
            };
            if Some(now.pc) == frame.begins && rsp.plus(8) == entries.cfa {
                // So it is called where that is.
                return self.one_back(context);
            }
            if now.cfa != Some(entries.cfa) || !entries.addresses.contains(&now.pc) {
                continue;
            }
            // A jump may not have been taken.
            let at = self.position()?;
            let never = target::Cancel::new();
            self.target_mut()?.step(ONE_INSTRUCTION, &[], &never)?;
            let led = self
                .top(context)?
                .is_some_and(|next| entries.is_inside(next.pc) && next.cfa == Some(entries.cfa));
            self.seek(at, &never)?;
            if led {
                return self.arrived(Came::Step);
            }
        }
    }

    /// What stops the process last on its way back to a goal, if anything does.
    pub fn before_goal(&mut self, context: Context<'_>, goal: &Found) -> Result<Search> {
        self.here(context.program)?;
        Ok(match self.leg_back(context, &[], goal.at)? {
            Leg::Found(found) => Search::Found(found),
            Leg::Interrupted(at) => Search::Interrupted(at),
            Leg::At | Leg::There | Leg::End => Search::Found(goal.clone()),
        })
    }

    /// To the line before.
    pub fn step_line_back(&mut self, context: Context<'_>, into: bool) -> Result<Search> {
        self.here(context.program)?;
        let here = self.at;
        let depth = self.stepped_frame(context, into)?.and_then(|own| own.depth);
        let search = self.line_back(context, into, here)?;
        let search = self.outside(context, depth, search)?;
        if context.cancel.is_cancelled() {
            return Ok(Search::Interrupted(here));
        }
        Ok(search)
    }

    /// To where the line before `here`, where it stands, began.
    fn line_back(&mut self, context: Context<'_>, into: bool, here: Position) -> Result<Search> {
        if let Some(search) = self.last_line_start(context, into, here)? {
            return Ok(search);
        }
        self.seek(here, &target::Cancel::new())?;
        self.find_line_back(context, into, here)
    }

    /// From where a function was entered to where the line began that called it.
    fn calling_line(&mut self, context: Context<'_>, into: bool) -> Result<Search> {
        let search = self.one_back(context)?;
        let in_a_line = self
            .top(context)?
            .is_some_and(|frame| frame.place.is_some() && frame.inside_line);
        match &search {
            Search::Found(found) if matches!(found.came, Came::Step) && in_a_line => {
                self.line_back(context, into, self.position()?)
            }
            _ => Ok(search),
        }
    }

    /// The short way to the line before: to the last place where a line of the
    /// function begins, in the same frame, and from there to where the pieces
    /// of that line that were executed without a break begin. None if it is not
    /// found so: a frame of many recursions, a function of very many lines, or
    /// a call that is to be gone into.
    fn last_line_start(
        &mut self,
        context: Context<'_>,
        into: bool,
        here: Position,
    ) -> Result<Option<Search>> {
        const TRIES: usize = 12;
        let thread = self.thread()?;
        let Some(SteppedFrame { frame, depth }) = self.stepped_frame(context, into)? else {
            return Ok(None);
        };
        let Some(cfa) = frame.cfa else {
            return Ok(None);
        };
        let starts = self.look_at_stack(context, 1, |inspector, _| {
            let (_, begins) = inspector.function_name(frame.pc)?;
            Some((inspector.line_starts(frame.pc), begins))
        })?;
        let Some((starts, begins)) = starts else {
            return Ok(None);
        };
        let breakpoints: Vec<Addr> = starts.iter().copied().chain([begins]).collect();
        if starts.is_empty() || breakpoints.len() > protocol::replay::BREAKPOINTS {
            return Ok(None);
        }
        let rsp = self.stack_pointer()?;
        if frame.pc == begins && rsp.map(|rsp| rsp.plus(8)) == Some(cfa) {
            // It was just called.
            return self.calling_line(context, into).map(Some);
        }
        let floor = Position::Event(self.image_begins(here.event()));
        if into {
            // If a call has just returned here, the line before is in there.
            self.recorded()?.step_back(context.cancel)?;
            let deeper = self.top(context)?.is_some_and(|f| f.cfa < Some(cfa));
            self.seek(here, &target::Cancel::new())?;
            if deeper {
                return Ok(None);
            }
        }
        let start_line = frame.place.as_ref().map(|p| p.line);
        let mut found: Option<(Position, Option<u32>)> = None;
        for _ in 0..TRIES {
            let stops = Stops {
                breakpoints: &breakpoints,
                ..Stops::default()
            };
            let back = self.recorded()?.last(&stops, floor, context.cancel, None)?;
            if back != Back::Breakpoint {
                return Ok(None);
            }
            let Some(now) = self.frame_at(context, depth)? else {
                return Ok(None);
            };
            let rsp = self.stack_pointer()?;
            let is_entry = now.pc == begins && rsp.map(|rsp| rsp.plus(8)) == Some(cfa);
            let is_same = self.thread()? == thread
                && (is_entry || now.cfa == Some(cfa) && now.name == frame.name);
            if !is_same {
                if into {
                    return Ok(None);
                }
                continue;
            }
            let line = now.place.as_ref().map(|p| p.line);
            match found {
                // The line began there.
                Some((position, of)) if is_entry || line != of => {
                    self.seek(position, &target::Cancel::new())?;
                    return self.arrived(Came::Step).map(Some);
                }
                None if is_entry => return self.calling_line(context, into).map(Some),
                // Going on in the same line from its middle.
                None if line == start_line && !frame.inside_line => {}
                _ => {}
            }
            found = Some((self.position()?, line));
        }
        Ok(None)
    }

    fn find_line_back(
        &mut self,
        context: Context<'_>,
        into: bool,
        here: Position,
    ) -> Result<Search> {
        let never = target::Cancel::new();
        let thread = self.thread()?;
        let Some(SteppedFrame { frame, depth }) = self.stepped_frame(context, into)? else {
            return self.one_back(context);
        };
        // A frame is its address and its function: others were there before.
        let Some(cfa) = frame.cfa else {
            return self.one_back(context);
        };
        let is_same = |other: &Frame| other.cfa == Some(cfa) && other.name == frame.name;
        let begins = self.look_at_stack(context, 1, |inspector, _| {
            let (_, begins) = inspector.function_name(frame.pc)?;
            let module = inspector.module_at(frame.pc)?;
            let body = inspector.body_of(&module, module.to_link(begins));
            Some((begins, body))
        })?;
        let first = self.image_begins(here.event());
        let mut event = here.event();
        // From one event before after the other: the last line of this frame
        // that begins between there and here.
        while event > first && !context.cancel.is_cancelled() {
            event = event.previous();
            self.seek(Position::Event(event), &never)?;
            let Some(start) = self.enter_frame(context, thread, &frame, begins, here)? else {
                continue;
            };
            let mut last = start.line;
            for _ in 0..STEPS_MAX {
                match self.run_to_line(context, into, here, None)? {
                    Leg::At => {}
                    _ => break,
                }
                let now = self.position()?;
                if now >= here {
                    break;
                }
                let same = self.frame_at(context, depth)?.is_some_and(|f| is_same(&f));
                if self.thread()? == thread && (into || same) {
                    last = Some(now);
                }
            }
            if last.is_none()
                && let Some(entry) = start.entry
            {
                // The first line: before it is the call.
                self.seek(entry, &never)?;
                return self.calling_line(context, into);
            }
            if let Some(last) = last {
                self.seek(last, &never)?;
                return self.arrived(Came::Step);
            }
        }
        self.seek(Position::Event(first), &never)?;
        let is_first = self.image_at(first) == 0;
        self.arrived(if is_first { Came::Start } else { Came::Step })
    }

    /// From an event on, goes to where a thread first is in a frame, but not
    /// past `limit`. None if it does not come there.
    fn enter_frame(
        &mut self,
        context: Context<'_>,
        thread: ThreadNo,
        frame: &Frame,
        begins: Option<(Addr, Addr)>,
        limit: Position,
    ) -> Result<Option<Entered>> {
        let Some(cfa) = frame.cfa else {
            return Ok(None);
        };
        let is_same = |other: &Frame| other.cfa == Some(cfa) && other.name == frame.name;
        let inner = self.look(context.program.library(), |inspector, _| {
            let stack = inspector.stack(ThreadId(thread.0), 10_000).ok()?;
            let at = stack.frames.iter().position(is_same)?;
            // What the frame waits for returns to it.
            let inner = stack.frames.get(..at)?.iter().rfind(|f| f.cfa != Some(cfa));
            Some(inner.map(|f| inspector.return_place(&stack, f.level)))
        })?;
        let nothing = Entered {
            entry: None,
            line: None,
        };
        match inner {
            // It is there already.
            Some(None) => return Ok(Some(nothing)),
            Some(Some(Some((address, inner_cfa)))) => {
                let leg = self.run_out(context, thread, address, inner_cfa, limit, None)?;
                return Ok(matches!(leg, Leg::At).then_some(nothing));
            }
            Some(Some(None)) => return Ok(None),
            None => {}
        }
        // It is called later: the last time before the limit.
        let Some((begins, body)) = begins else {
            return Ok(None);
        };
        let run = |member: &mut Member, address: Addr| -> Result<bool> {
            let stops = Stops {
                breakpoints: &[address],
                ..Stops::default()
            };
            let target = member.target_mut()?;
            Ok(target.run(&stops, limit, context.cancel)? == Arrival::Breakpoint)
        };
        let mut entry = None;
        while run(self, begins)? {
            let is_entry = self.stack_pointer()?.is_some_and(|rsp| rsp.plus(8) == cfa);
            if self.thread()? == thread && is_entry {
                entry = Some(self.position()?);
            }
        }
        let Some(found) = entry else {
            return Ok(None);
        };
        self.seek(found, context.cancel)?;
        let mut line = None;
        if body != begins && run(self, body)? && self.position()? < limit {
            line = Some(self.position()?);
        }
        Ok(Some(Entered { entry, line }))
    }
}

impl Member {
    /// Back to a place in the code, or to what stopped the process last.
    pub fn until_back(&mut self, context: Context<'_>, addresses: &[Addr]) -> Result<Search> {
        self.here(context.program)?;
        let floor = self.beginning();
        Ok(match self.leg_back(context, addresses, floor)? {
            Leg::At => Search::Found(self.found(Came::Step)?),
            Leg::There | Leg::End => Search::Nothing,
            Leg::Found(found) => Search::Found(found),
            Leg::Interrupted(at) => Search::Interrupted(at),
        })
    }
}
