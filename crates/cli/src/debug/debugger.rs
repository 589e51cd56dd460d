//! The state of a debugging session: all processes at a cut, one of them at
//! hand, and motion through its source.
//!
//! Only the process at hand is moved; the others follow when they are looked
//! at: to where they must have come for the one at hand to be where it is
//! (*causal*), or as far as they can have come without it (*consistent*).

use std::collections::HashMap;

use ::replay::{Arrival, Position, Session};
use causality::{Cut, EventId, History};
use inspect::expr::Expression;
use inspect::frames::{Frame, Stack};
use inspect::scope::Scope;
use inspect::target::ThreadId;
use inspect::{Inspector, Library, Options};
use recording::Recording;

use super::stopped::Stopped;
use crate::failure::Failure;
use crate::verify::explain;

/// How the processes that are not at hand follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Causal,
    Consistent,
}

/// Where a process is to stop.
pub struct Breakpoint {
    pub number: u32,
    /// As the user wrote it.
    pub place: String,
    /// In which program, or in all.
    pub program: Option<String>,
    pub condition: Option<String>,
    pub temporary: bool,
    pub enabled: bool,
    pub hits: u64,
}

/// Why the process at hand stands where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    Breakpoint(u32),
    Step,
    Event,
    Start,
    End,
    Interrupted,
    Diverged(String),
}

pub struct Debugger<'r> {
    pub recording: &'r Recording,
    pub history: History<'r>,
    pub library: Library,
    sessions: HashMap<u32, Session<'r>>,
    /// Number of the process at hand.
    pub process: u32,
    /// The thread that is looked at, if not the one that runs, and the frame.
    pub thread: Option<u32>,
    pub frame: usize,
    pub mode: Mode,
    pub breakpoints: Vec<Breakpoint>,
    next_breakpoint: u32,
    pub named: Vec<(u32, u32, Position)>,
}

/// How a frame was come to.
struct Entered {
    /// Where its function was entered.
    entry: Option<Position>,
    /// Where its first line begins.
    line: Option<Position>,
}

/// Steps in one go; more are not made to find the line before.
const STEPS_MAX: usize = 20_000;

impl<'r> Debugger<'r> {
    pub fn open(recording: &'r Recording, history: History<'r>) -> Result<Debugger<'r>, Failure> {
        ::replay::check(recording).map_err(explain)?;
        let first = recording
            .processes()
            .first()
            .ok_or_else(|| Failure::new("the recording has no processes"))?
            .number;
        let mut debugger = Debugger {
            recording,
            history,
            library: Library::new(Options::default()),
            sessions: HashMap::new(),
            process: first,
            thread: None,
            frame: 0,
            mode: Mode::Causal,
            breakpoints: Vec::new(),
            next_breakpoint: 1,
            named: Vec::new(),
        };
        debugger.session()?;
        Ok(debugger)
    }

    pub fn name(&self, number: u32) -> String {
        self.recording
            .process(number)
            .map_or(String::new(), |p| p.name.clone())
    }

    /// The session of the process at hand.
    pub fn session(&mut self) -> Result<&mut Session<'r>, Failure> {
        self.session_of(self.process)
    }

    fn session_of(&mut self, number: u32) -> Result<&mut Session<'r>, Failure> {
        match self.sessions.entry(number) {
            std::collections::hash_map::Entry::Occupied(there) => Ok(there.into_mut()),
            std::collections::hash_map::Entry::Vacant(free) => {
                let session = Session::open(self.recording, number).map_err(explain)?;
                Ok(free.insert(session))
            }
        }
    }

    /// Where the process at hand stands.
    pub fn position(&mut self) -> Result<Position, Failure> {
        Ok(self.session()?.position())
    }

    /// The cut that belongs to where the process at hand stands.
    pub fn cut(&mut self) -> Result<Cut, Failure> {
        let event = self.position()?.event();
        let place = self.history.place_of(self.process).unwrap_or(0);
        let (first, last) = self.history.span(place);
        let done = event.min(last + 1).saturating_sub(1).max(first);
        let event = EventId::new(place, done);
        Ok(match self.mode {
            Mode::Causal => self.history.past(event),
            Mode::Consistent => self.history.latest(event),
        })
    }

    /// Takes another process at hand: it is moved to the cut first.
    pub fn choose(&mut self, number: u32) -> Result<(), Failure> {
        if number == self.process {
            return Ok(());
        }
        let cut = self.cut()?;
        let place = self.history.place_of(number).unwrap_or(0);
        let (first, _) = self.history.span(place);
        let event = cut.bound(place).max(first);
        self.session_of(number)?.go_to(event).map_err(explain)?;
        self.process = number;
        self.thread = None;
        self.frame = 0;
        Ok(())
    }

    /// Looks at the process at hand.
    pub fn look<T>(
        &mut self,
        question: impl FnOnce(&Inspector<'_>, &Stopped<'_, 'r>, Option<&Stack>) -> T,
    ) -> Result<T, Failure> {
        let wanted = self.thread;
        let number = self.process;
        self.session()?;
        let Some(session) = self.sessions.get(&number) else {
            return Err(Failure::new("the process is gone"));
        };
        let stopped = Stopped::new(session);
        let inspector = Inspector::new(&self.library, &stopped);
        let thread = wanted.unwrap_or(session.thread());
        let stack = inspector.stack(ThreadId(thread), 10_000).ok();
        Ok(question(&inspector, &stopped, stack.as_ref()))
    }

    /// Runs a question in the scope of the chosen frame.
    pub fn in_frame<T>(
        &mut self,
        question: impl FnOnce(&Inspector<'_>, &Stack, Scope<'_>) -> Result<T, inspect::Error>,
    ) -> Result<T, Failure> {
        let frame = self.frame;
        self.look(|inspector, _, stack| {
            let scope = stack.and_then(|stack| {
                let scope = Scope::new(inspector, stack, frame)?;
                Some((stack, scope))
            });
            match scope {
                Some((stack, scope)) => question(inspector, stack, scope).map_err(Failure::new),
                None => Err(Failure::new("there is no frame here")),
            }
        })?
    }

    pub fn add_breakpoint(
        &mut self,
        place: &str,
        program: Option<String>,
        condition: Option<String>,
        temporary: bool,
    ) -> u32 {
        let number = self.next_breakpoint;
        self.next_breakpoint += 1;
        self.breakpoints.push(Breakpoint {
            number,
            place: place.to_string(),
            program,
            condition,
            temporary,
            enabled: true,
            hits: 0,
        });
        number
    }

    /// The addresses at which the process at hand is to stop, and by which
    /// breakpoint.
    fn addresses(&mut self) -> Result<Vec<(u64, u32)>, Failure> {
        let program = self
            .recording
            .process(self.process)
            .map_or(String::new(), |p| p.program.clone());
        let name = self.name(self.process);
        let wanted: Vec<(u32, String)> = self
            .breakpoints
            .iter()
            .filter(|b| b.enabled)
            .filter(|b| {
                b.program
                    .as_ref()
                    .is_none_or(|p| *p == program || *p == name)
            })
            .map(|b| (b.number, b.place.clone()))
            .collect();
        self.look(|inspector, _, _| {
            let found = wanted.iter().flat_map(|(number, place)| {
                let locations = inspector.resolve(place, None).unwrap_or_default();
                locations.into_iter().map(|l| (l.address, *number))
            });
            found.collect()
        })
    }

    /// The innermost frame of the thread that runs.
    fn top(&mut self) -> Result<Option<Frame>, Failure> {
        self.thread = None;
        self.frame = 0;
        self.look(|_, _, stack| stack.and_then(|s| s.frames.first().cloned()))
    }

    fn arrived(&mut self, arrival: Arrival) -> Why {
        match arrival {
            Arrival::There => Why::Event,
            Arrival::Breakpoint | Arrival::Stepped | Arrival::Watch(_) => Why::Step,
            Arrival::End => Why::End,
            Arrival::Interrupted => Why::Interrupted,
            Arrival::Diverged(difference) => Why::Diverged(format!(
                "expected {}, found {}",
                difference.expected, difference.found
            )),
        }
    }

    /// Whether the breakpoint at hand is one to stop at.
    fn holds(&mut self, number: u32) -> Result<bool, Failure> {
        let condition = self
            .breakpoints
            .iter()
            .find(|b| b.number == number)
            .and_then(|b| b.condition.clone());
        let Some(condition) = condition else {
            return Ok(true);
        };
        self.thread = None;
        self.frame = 0;
        self.in_frame(|_, _, scope| Expression::parse(&scope, &condition)?.holds(&scope))
    }

    /// Goes on to the next breakpoint, or to the end.
    pub fn go_on(&mut self) -> Result<Why, Failure> {
        loop {
            let places = self.addresses()?;
            let addresses: Vec<u64> = places.iter().map(|(address, _)| *address).collect();
            let position = self.position()?;
            let end = Position::Event(u64::MAX);
            let arrival = if addresses.is_empty() {
                self.session()?.go_to_end().map_err(explain)?
            } else {
                // Libraries that are not there yet have no addresses yet: look
                // again when memory has changed.
                let limit = if places.len() < self.breakpoints.len() {
                    Position::Event(position.event() + 200)
                } else {
                    end
                };
                self.session()?.run(&addresses, limit).map_err(explain)?
            };
            self.thread = None;
            self.frame = 0;
            match arrival {
                Arrival::There => {}
                Arrival::Breakpoint => {
                    if let Some(number) = self.hit(&places)? {
                        return Ok(Why::Breakpoint(number));
                    }
                }
                other => return Ok(self.arrived(other)),
            }
        }
    }

    /// The breakpoint that was come to, if it is one to stop at.
    fn hit(&mut self, places: &[(u64, u32)]) -> Result<Option<u32>, Failure> {
        let Position::Inside(inside) = self.position()? else {
            return Ok(None);
        };
        let numbers: Vec<u32> = places
            .iter()
            .filter(|(address, _)| *address == inside.address)
            .map(|(_, number)| *number)
            .collect();
        for number in numbers {
            if self.holds(number)? {
                if let Some(b) = self.breakpoints.iter_mut().find(|b| b.number == number) {
                    b.hits += 1;
                }
                self.breakpoints
                    .retain(|b| b.number != number || !b.temporary);
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Goes back to the last breakpoint, or to the beginning.
    pub fn go_back(&mut self) -> Result<Why, Failure> {
        let places = self.addresses()?;
        let addresses: Vec<u64> = places.iter().map(|(address, _)| *address).collect();
        let mut before = self.position()?;
        while !addresses.is_empty() {
            let found = self
                .session()?
                .run_back(&addresses, |_| true)
                .map_err(explain)?;
            let now = self.position()?;
            if !found || now >= before {
                break;
            }
            if let Some(number) = self.hit(&places)? {
                return Ok(Why::Breakpoint(number));
            }
            before = now;
        }
        self.session()?.go_to(0).map_err(explain)?;
        self.thread = None;
        self.frame = 0;
        Ok(Why::Start)
    }

    pub fn go_to(&mut self, number: u32, event: u64) -> Result<Why, Failure> {
        if number != self.process {
            self.session_of(number)?;
            self.process = number;
        }
        self.thread = None;
        self.frame = 0;
        let arrival = self.session()?.go_to(event).map_err(explain)?;
        Ok(self.arrived(arrival))
    }

    pub fn step_instruction(&mut self) -> Result<Why, Failure> {
        let arrival = self.session()?.step(0..0).map_err(explain)?;
        self.thread = None;
        self.frame = 0;
        Ok(self.arrived(arrival))
    }

    pub fn step_instruction_back(&mut self) -> Result<Why, Failure> {
        let moved = self.session()?.step_back().map_err(explain)?;
        self.thread = None;
        self.frame = 0;
        Ok(if moved { Why::Step } else { Why::Start })
    }

    /// Runs on in thread `thread` until an address is reached in a frame that
    /// is not deeper than `cfa`; not past `limit`.
    fn run_out(
        &mut self,
        thread: u32,
        address: u64,
        cfa: u64,
        limit: Position,
    ) -> Result<Arrival, Failure> {
        loop {
            let arrival = self.session()?.run(&[address], limit).map_err(explain)?;
            if arrival != Arrival::Breakpoint {
                return Ok(arrival);
            }
            let is_outer = self
                .session()?
                .threads()
                .iter()
                .any(|t| t.number == thread && t.regs.get(19).is_some_and(|rsp| *rsp >= cfa));
            if self.session()?.thread() == thread && is_outer {
                return Ok(Arrival::Breakpoint);
            }
        }
    }

    /// To the caller of the chosen frame.
    pub fn finish(&mut self) -> Result<Why, Failure> {
        let frame = self.frame;
        let thread = self.thread;
        let place = self.look(|inspector, _, stack| {
            stack.and_then(|stack| inspector.return_place(stack, frame))
        })?;
        let Some((address, cfa)) = place else {
            return Err(Failure::new("the outermost frame returns to nobody"));
        };
        let thread = match thread {
            Some(thread) => thread,
            None => self.session()?.thread(),
        };
        let end = Position::Event(u64::MAX);
        let arrival = self.run_out(thread, address, cfa, end)?;
        self.thread = None;
        self.frame = 0;
        Ok(self.arrived(arrival))
    }

    /// To the next line; into functions that have lines, if `into`.
    pub fn step_line(&mut self, into: bool) -> Result<Why, Failure> {
        let end = Position::Event(u64::MAX);
        let arrival = self.step_to_line(into, end)?;
        self.thread = None;
        self.frame = 0;
        Ok(self.arrived(arrival))
    }

    fn step_to_line(&mut self, into: bool, limit: Position) -> Result<Arrival, Failure> {
        let thread = self.session()?.thread();
        let Some(start) = self.top()? else {
            return self.session()?.step(0..0).map_err(explain);
        };
        let start_cfa = start.cfa.unwrap_or(0);
        let start_line = start.place.as_ref().map(|p| p.line);
        let start_function = start.name.clone();
        for _ in 0..STEPS_MAX {
            // The range of the line, and the way out.
            let (range, out) = self.look(|inspector, _, stack| {
                let Some(stack) = stack else {
                    return (None, None);
                };
                let frame = stack.frames.first();
                let range = frame.and_then(|frame| {
                    let step = inspector.step_range(frame)?;
                    let found = step
                        .ranges
                        .iter()
                        .find(|(s, e)| (*s..*e).contains(&frame.pc));
                    found.map(|(s, e)| *s..*e)
                });
                (range, inspector.return_place(stack, 0))
            })?;
            let arrival = match (range, out) {
                (Some(range), _) => self.session()?.step(range).map_err(explain)?,
                // No lines here: out of it.
                (None, Some((address, cfa))) => self.run_out(thread, address, cfa, limit)?,
                (None, None) => self.session()?.step(0..0).map_err(explain)?,
            };
            match arrival {
                Arrival::Stepped | Arrival::Breakpoint => {}
                other => return Ok(other),
            }
            if self.position()? >= limit {
                return Ok(Arrival::There);
            }
            // Others run while this thread waits.
            while self.session()?.thread() != thread {
                let next = self.position()?.event() + 1;
                match self.session()?.go_to(next).map_err(explain)? {
                    Arrival::There if Position::Event(next) < limit => {}
                    other => return Ok(other),
                }
            }
            let Some(now) = self.top()? else {
                continue;
            };
            let cfa = now.cfa.unwrap_or(0);
            let has_line = now.place.is_some();
            if cfa < start_cfa {
                // Deeper: a call was made.
                let entered = self.look(|inspector, _, stack| {
                    let (_, begins) = inspector.function_name(now.pc)?;
                    let module = inspector.module_at(now.pc)?;
                    let body = inspector.body_of(&module, module.to_link(begins));
                    let out = inspector.return_place(stack?, 0);
                    Some((begins, body, out))
                })?;
                let Some((begins, body, out)) = entered else {
                    continue;
                };
                if into && has_line && now.pc == begins {
                    if body != now.pc {
                        self.session()?.run(&[body], limit).map_err(explain)?;
                    }
                    return Ok(Arrival::Stepped);
                }
                if let Some((address, cfa)) = out {
                    match self.run_out(thread, address, cfa, limit)? {
                        Arrival::Breakpoint => {}
                        other => return Ok(other),
                    }
                }
                let Some(back) = self.top()? else { continue };
                if back.place.as_ref().map(|p| p.line) != start_line && !back.inside_line {
                    return Ok(Arrival::Stepped);
                }
                continue;
            }
            if cfa > start_cfa {
                // Returned.
                if has_line {
                    return Ok(Arrival::Stepped);
                }
                continue;
            }
            let same =
                now.place.as_ref().map(|p| p.line) == start_line && now.name == start_function;
            if has_line && !same && !now.inside_line {
                return Ok(Arrival::Stepped);
            }
        }
        Ok(Arrival::Stepped)
    }

    /// To the line before.
    pub fn step_line_back(&mut self, into: bool) -> Result<Why, Failure> {
        let here = self.position()?;
        let thread = self.session()?.thread();
        let Some(frame) = self.top()? else {
            return self.step_instruction_back();
        };
        // A frame is its address and its function: others were there before.
        let cfa = frame.cfa.unwrap_or(0);
        let is_same = |other: &Frame| other.cfa == Some(cfa) && other.name == frame.name;
        let begins = self.look(|inspector, _, _| {
            let (_, begins) = inspector.function_name(frame.pc)?;
            let module = inspector.module_at(frame.pc)?;
            let body = inspector.body_of(&module, module.to_link(begins));
            Some((begins, body))
        })?;
        let place = self.history.place_of(self.process).unwrap_or(0);
        let (first, _) = self.history.span(place);
        let mut event = here.event();
        // From one event before after the other: the last line of this frame
        // that begins between there and here.
        while event > first {
            event -= 1;
            self.session()?.go_to(event).map_err(explain)?;
            let Some(start) = self.enter_frame(thread, &frame, begins, here)? else {
                continue;
            };
            let mut last = start.line;
            for _ in 0..STEPS_MAX {
                match self.step_to_line(into, here)? {
                    Arrival::Stepped | Arrival::Breakpoint => {}
                    _ => break,
                }
                let now = self.position()?;
                if now >= here {
                    break;
                }
                let same = self.top()?.is_some_and(|f| is_same(&f));
                if self.session()?.thread() == thread && (into || same) {
                    last = Some(now);
                }
            }
            if last.is_none()
                && let Some(entry) = start.entry
            {
                // The first line: before it is the call.
                self.session()?.go_to_position(entry).map_err(explain)?;
                return self.step_instruction_back();
            }
            if let Some(last) = last {
                self.session()?.go_to_position(last).map_err(explain)?;
                self.thread = None;
                self.frame = 0;
                return Ok(Why::Step);
            }
        }
        self.session()?.go_to(first).map_err(explain)?;
        Ok(Why::Start)
    }

    /// From an event on, goes to where a thread first is in a frame, but not
    /// past `limit`. None if it does not come there.
    fn enter_frame(
        &mut self,
        thread: u32,
        frame: &Frame,
        begins: Option<(u64, u64)>,
        limit: Position,
    ) -> Result<Option<Entered>, Failure> {
        let cfa = frame.cfa.unwrap_or(0);
        let is_same = |other: &Frame| other.cfa == Some(cfa) && other.name == frame.name;
        self.thread = Some(thread);
        let inner = self.look(|inspector, _, stack| {
            let stack = stack?;
            let at = stack.frames.iter().position(is_same)?;
            // What the frame waits for returns to it.
            let inner = stack.frames.get(..at)?.iter().rfind(|f| f.cfa != Some(cfa));
            Some(inner.map(|f| inspector.return_place(stack, f.level)))
        })?;
        self.thread = None;
        let nothing = Entered {
            entry: None,
            line: None,
        };
        match inner {
            // It is there already.
            Some(None) => return Ok(Some(nothing)),
            Some(Some(Some((address, inner_cfa)))) => {
                let arrival = self.run_out(thread, address, inner_cfa, limit)?;
                return Ok((arrival == Arrival::Breakpoint).then_some(nothing));
            }
            Some(Some(None)) => return Ok(None),
            None => {}
        }
        // It is called later: the last time before the limit.
        let Some((begins, body)) = begins else {
            return Ok(None);
        };
        let mut entry = None;
        while self.session()?.run(&[begins], limit).map_err(explain)? == Arrival::Breakpoint {
            let session = self.session()?;
            let rsp = session
                .threads()
                .iter()
                .find(|t| t.number == thread)
                .and_then(|t| t.regs.get(19).copied());
            if session.thread() == thread && rsp.is_some_and(|rsp| rsp + 8 == cfa) {
                entry = Some(session.position());
            }
        }
        let Some(found) = entry else {
            return Ok(None);
        };
        self.session()?.go_to_position(found).map_err(explain)?;
        let mut line = None;
        if body != begins
            && self.session()?.run(&[body], limit).map_err(explain)? == Arrival::Breakpoint
            && self.position()? < limit
        {
            line = Some(self.position()?);
        }
        Ok(Some(Entered { entry, line }))
    }

    pub fn restart(&mut self, number: u32) -> Result<Why, Failure> {
        let Some((_, process, position)) =
            self.named.iter().find(|(n, _, _)| *n == number).copied()
        else {
            return Err(Failure::new(format!("there is no checkpoint {number}"))
                .hint("`info checkpoints` lists them"));
        };
        self.session_of(process)?;
        self.process = process;
        self.thread = None;
        self.frame = 0;
        let arrival = self.session()?.go_to_position(position).map_err(explain)?;
        Ok(self.arrived(arrival))
    }
}
