//! The state of a debugging session: all processes at a cut, one of them at
//! hand, and motion through its source.
//!
//! Only the process at hand is moved; the others follow when they are looked
//! at: to where they must have come for the one at hand to be where it is
//! (*causal*), or as far as they can have come without it (*consistent*).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use ::replay::{Arrival, Back, Condition, Ground, Position, Session, Stops, Watch};
use causality::{Cut, EventId, History};
use inspect::expr::Expression;
use inspect::frames::{Frame, Stack};
use inspect::inspector::Layout;
use inspect::print::{PrintOptions, Printer};
use inspect::scope::Scope;
use inspect::target::ThreadId;
use inspect::value::Value;
use inspect::{Inspector, Library, Options};
use protocol::id::{EventNo, ProcessId, ProcessIx};
use query::Names;
use recording::Recording;

use super::points::{Caught, FrameOf, Kind, Point, Watched};
use super::stopped::{CodeFiles, Stopped};
use crate::failure::Failure;
use crate::verify::explain;

/// How the processes that are not at hand follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Causal,
    Consistent,
}

/// Why the process at hand stands where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    Breakpoint(u32),
    /// The value before the change and after it. Going back, it stands before
    /// the change.
    Watch {
        number: u32,
        text: String,
        old: String,
        new: String,
        back: bool,
    },
    /// The frame of a watched variable is left, or not entered yet.
    OutOfScope {
        number: u32,
        text: String,
        back: bool,
    },
    Caught(u32),
    Step,
    Event,
    Start,
    End,
    Interrupted,
    Diverged(String),
}

/// A place that was stopped at: the process, and where in its run.
pub type Place = (u32, Position);

pub struct Debugger {
    pub recording: Arc<Recording>,
    pub history: History,
    /// What its threads are called.
    pub names: Names,
    pub library: Library,
    ground: Arc<Ground>,
    code: CodeFiles,
    sessions: HashMap<u32, Session>,
    /// Number of the process at hand.
    pub process: u32,
    /// The thread that is looked at, if not the one that runs, and the frame.
    pub thread: Option<u32>,
    pub frame: usize,
    pub mode: Mode,
    pub points: Vec<Point>,
    next_point: u32,
    /// Grows when points change.
    points_version: u64,
    pub named: Vec<(u32, u32, Position)>,
    /// Set by Ctrl-C.
    pub interrupt: Arc<AtomicBool>,
    /// What the process at hand has mapped, as long as that stays so.
    layout: Option<(Mapped, Arc<Layout>)>,
    /// Where its breakpoints are.
    addresses: Option<Addresses>,
    /// Conditions whose names were looked up, by point and address.
    conditions: Conditions,
    /// What tracepoints have to say.
    pub traced: Vec<String>,
}

/// A process and the state of its mappings.
type Mapped = (u32, (usize, u64));

/// Addresses of breakpoints, with their numbers: for which mappings and which
/// version of the points.
type Addresses = (Mapped, u64, Vec<(u64, u32)>);

/// See [`Debugger::conditions`].
type Conditions = HashMap<(u32, u64), (Mapped, Asked)>;

/// A condition whose names were looked up.
struct Asked {
    expression: Expression,
    /// For the replaying process, if it is simple enough.
    code: Option<Arc<[u8]>>,
}

/// What the process at hand is to stop at.
struct Plan {
    addresses: Vec<(u64, u32)>,
    /// With the point each piece belongs to.
    watches: Vec<Watch>,
    watched: Vec<u32>,
    /// Breakpoints may be in code that is mapped later.
    mapped: bool,
}

/// How a way ended.
enum Leg {
    /// At one of the addresses that were asked for.
    At,
    /// At its limit.
    There,
    Stop(Why),
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

const END: Position = Position::Event(u64::MAX);

impl Debugger {
    pub fn open(
        recording: Arc<Recording>,
        history: History,
        names: Names,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Debugger, Failure> {
        ::replay::check(&recording).map_err(explain)?;
        let first = recording
            .processes()
            .first()
            .ok_or_else(|| Failure::new("the recording has no processes"))?
            .number;
        // Nothing is replayed before it is looked at: the logs may be long.
        Ok(Debugger {
            ground: Arc::new(Ground::new(&recording)),
            recording,
            history,
            names,
            library: Library::new(Options::default()),
            code: CodeFiles::default(),
            sessions: HashMap::new(),
            process: first,
            thread: None,
            frame: 0,
            mode: Mode::Causal,
            points: Vec::new(),
            next_point: 1,
            points_version: 0,
            named: Vec::new(),
            interrupt,
            layout: None,
            addresses: None,
            conditions: HashMap::new(),
            traced: Vec::new(),
        })
    }

    pub fn name(&self, number: u32) -> String {
        self.recording
            .process(number)
            .map_or(String::new(), |p| p.name.clone())
    }

    /// The session of the process at hand.
    pub fn session(&mut self) -> Result<&mut Session, Failure> {
        self.session_of(self.process)
    }

    fn session_of(&mut self, number: u32) -> Result<&mut Session, Failure> {
        match self.sessions.entry(number) {
            std::collections::hash_map::Entry::Occupied(there) => Ok(there.into_mut()),
            std::collections::hash_map::Entry::Vacant(free) => {
                let interrupt = Arc::clone(&self.interrupt);
                let session =
                    Session::open_with(&self.ground, number, interrupt).map_err(explain)?;
                Ok(free.insert(session))
            }
        }
    }

    /// Where the process at hand stands.
    pub fn position(&mut self) -> Result<Position, Failure> {
        Ok(self.session()?.position())
    }

    /// Where the process with this number stands in the history.
    pub fn place_of(&self, number: u32) -> Result<ProcessIx, Failure> {
        let place = self.history.index_of(ProcessId::of_first(number));
        place.ok_or_else(|| query::Error::no_process(&self.recording, &self.name(number)).into())
    }

    /// The cut that belongs to where the process at hand stands.
    pub fn cut(&mut self) -> Result<Cut, Failure> {
        let event = self.position()?.event();
        let place = self.place_of(self.process)?;
        let (first, last) = self.history.span(place);
        let done = event.min(last.0 + 1).saturating_sub(1).max(first.0);
        let event = EventId::new(place, EventNo(done));
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
        let place = self.place_of(number)?;
        let (first, _) = self.history.span(place);
        let event = cut.bound(place).max(first);
        self.session_of(number)?.go_to(event.0).map_err(explain)?;
        self.process = number;
        self.innermost();
        Ok(())
    }

    /// Looks at the frame that runs.
    fn innermost(&mut self) {
        self.thread = None;
        self.frame = 0;
    }

    /// Looks at the process at hand.
    pub fn look<T>(
        &mut self,
        question: impl FnOnce(&Inspector<'_>, &Stopped<'_>, Option<&Stack>) -> T,
    ) -> Result<T, Failure> {
        self.look_deep(10_000, question)
    }

    /// The same, with so many frames of the stack at most.
    fn look_deep<T>(
        &mut self,
        frames: usize,
        question: impl FnOnce(&Inspector<'_>, &Stopped<'_>, Option<&Stack>) -> T,
    ) -> Result<T, Failure> {
        let layout = self.layout()?;
        let Some(session) = self.sessions.get(&self.process) else {
            return Err(Failure::new("the process is gone"));
        };
        let stopped = Stopped::with_code(session, &layout, &self.code);
        let inspector = Inspector::with_layout(&self.library, &stopped, layout);
        let thread = self.thread.unwrap_or(session.thread());
        let stack = inspector.stack(ThreadId(thread), frames).ok();
        Ok(question(&inspector, &stopped, stack.as_ref()))
    }

    /// What the process at hand has mapped now.
    fn layout(&mut self) -> Result<Arc<Layout>, Failure> {
        let number = self.process;
        let mapped = (number, self.session()?.maps_version());
        if let Some((known, layout)) = &self.layout
            && *known == mapped
        {
            return Ok(Arc::clone(layout));
        }
        let Some(session) = self.sessions.get(&number) else {
            return Err(Failure::new("the process is gone"));
        };
        let stopped = Stopped::new(session);
        let layout = Inspector::new(&self.library, &stopped).layout();
        self.layout = Some((mapped, Arc::clone(&layout)));
        Ok(layout)
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

    /// The address that an expression stands for.
    pub fn address(&mut self, expression: &str) -> Result<u64, Failure> {
        // This needs no frame.
        let digits = expression.trim().strip_prefix("0x");
        if let Some(address) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            return Ok(address);
        }
        self.in_frame(|inspector, _, scope| {
            scope.evaluate(expression)?.to_address(inspector.process)
        })
    }

    /// Adds a point; `settle` says more of it. Returns its number.
    pub fn add_point(&mut self, kind: Kind, settle: impl FnOnce(&mut Point)) -> u32 {
        let number = self.next_point;
        self.next_point += 1;
        self.points_changed();
        let mut point = Point {
            number,
            kind,
            program: None,
            condition: None,
            temporary: false,
            enabled: true,
            traces: false,
            hits: 0,
            ignore: 0,
            commands: Vec::new(),
        };
        settle(&mut point);
        self.points.push(point);
        number
    }

    pub fn points_changed(&mut self) {
        self.points_version += 1;
        self.conditions.clear();
    }

    pub fn point(&mut self, number: u32) -> Result<&mut Point, Failure> {
        self.points
            .iter_mut()
            .find(|p| p.number == number)
            .ok_or_else(|| no_point(number))
    }

    /// Events that a pattern stands for.
    pub fn caught(&mut self, text: &str) -> Result<Caught, Failure> {
        Caught::find(text, &self.history, &self.names)
    }

    /// Whether a point is one of the process at hand's.
    fn is_mine(&self, point: &Point) -> bool {
        let process = self.recording.process(self.process);
        let is_named = |name: &String| {
            process.is_some_and(|process| *name == process.program || *name == process.name)
        };
        point.enabled && point.program.as_ref().is_none_or(is_named)
    }

    /// What the process at hand is to stop at.
    fn plan(&mut self) -> Result<Plan, Failure> {
        let maps = self.session()?.maps_version();
        let image = maps.0;
        let mapped = (self.process, maps);
        let version = self.points_version;
        let known = self
            .addresses
            .as_ref()
            .filter(|(m, v, _)| *m == mapped && *v == version)
            .map(|(_, _, addresses)| addresses.clone());
        let places: Vec<(u32, String)> = self
            .points
            .iter()
            .filter(|p| self.is_mine(p))
            .filter_map(|p| match &p.kind {
                Kind::Break(place) => Some((p.number, place.clone())),
                _ => None,
            })
            .collect();
        let addresses = match known {
            Some(addresses) => addresses,
            None => self.look_deep(1, |inspector, _, _| {
                let found = places.iter().flat_map(|(number, place)| {
                    let found = match super::stops::address_in(place) {
                        // Whatever may be there at the time.
                        Some(address) => vec![address],
                        None => super::stops::resolve(inspector, place)
                            .unwrap_or_default()
                            .into_iter()
                            .map(|(address, _)| address)
                            .collect(),
                    };
                    found.into_iter().map(|address| (address, *number))
                });
                found.collect()
            })?,
        };
        self.addresses = Some((mapped, version, addresses.clone()));
        let mut plan = Plan {
            addresses,
            watches: Vec::new(),
            watched: Vec::new(),
            mapped: places.iter().any(|(_, place)| !place.starts_with('*')),
        };
        for point in self.points.iter().filter(|p| self.is_mine(p)) {
            if let Kind::Watch(watched) = &point.kind
                && watched.process == self.process
                && watched.image == image
            {
                for piece in &watched.pieces {
                    plan.watches.push(*piece);
                    plan.watched.push(point.number);
                }
            }
        }
        Ok(plan)
    }

    /// What the replaying process can test by itself: conditions of
    /// breakpoints that were tested here once. An address is left out if
    /// somebody else wants to stop there (`others`), whatever holds.
    fn conditions(&self, plan: &Plan, mapped: Mapped, others: &[u64]) -> Vec<Condition> {
        let code = |address: u64, number: u32| {
            let (for_this, asked) = self.conditions.get(&(number, address))?;
            let code = asked.code.as_ref().filter(|_| *for_this == mapped)?;
            Some(Arc::clone(code))
        };
        let mut all = Vec::new();
        for (address, number) in &plan.addresses {
            let mut same = plan.addresses.iter().filter(|(a, _)| a == address);
            let is_alone = same.all(|(_, number)| code(*address, *number).is_some());
            if let Some(code) = code(*address, *number)
                && is_alone
                && !others.contains(address)
            {
                let address = *address;
                all.push(Condition { address, code });
            }
        }
        all
    }

    /// The innermost frame of the thread that runs.
    fn top(&mut self) -> Result<Option<Frame>, Failure> {
        self.innermost();
        self.look_deep(1, |_, _, stack| {
            stack.and_then(|s| s.frames.first().cloned())
        })
    }

    fn arrived(&self, arrival: Arrival) -> Why {
        match arrival {
            Arrival::There => Why::Event,
            Arrival::Breakpoint | Arrival::Stepped | Arrival::Watch(_) | Arrival::Mapped => {
                Why::Step
            }
            Arrival::End => Why::End,
            Arrival::Interrupted => Why::Interrupted,
            Arrival::Diverged(difference) => Why::Diverged(format!(
                "expected {}, found {}",
                difference.expected, difference.found
            )),
        }
    }

    /// Whether the condition of a point holds where the process stands.
    fn holds(&mut self, number: u32) -> Result<bool, Failure> {
        let condition = self
            .points
            .iter()
            .find(|p| p.number == number)
            .and_then(|p| p.condition.clone());
        let Some(condition) = condition else {
            return Ok(true);
        };
        self.innermost();
        let mapped = (self.process, self.session()?.maps_version());
        let Debugger {
            sessions,
            library,
            layout,
            conditions,
            process,
            ..
        } = self;
        let Some(session) = sessions.get(process) else {
            return Ok(false);
        };
        let held = condition_holds(
            session, library, layout, conditions, mapped, number, &condition,
        );
        held.map_err(|error| {
            Failure::new(format!(
                "the condition of {number} cannot be tested: {error}"
            ))
            .hint(format!(
                "`condition {number}` removes it; it is: {condition}"
            ))
        })
    }

    /// Something was come to: whether it is one to stop at. It counts if its
    /// condition holds.
    fn counts(&mut self, number: u32) -> Result<bool, Failure> {
        if !self.holds(number)? {
            return Ok(false);
        }
        let Ok(point) = self.point(number) else {
            return Ok(false);
        };
        point.hits += 1;
        if point.ignore > 0 {
            point.ignore -= 1;
            return Ok(false);
        }
        if point.traces {
            let line = self.trace_line(number)?;
            self.traced.push(line);
            return Ok(false);
        }
        if point.temporary {
            self.points.retain(|p| p.number != number);
            self.points_changed();
        }
        Ok(true)
    }

    /// What a tracepoint says when it is passed.
    fn trace_line(&mut self, number: u32) -> Result<String, Failure> {
        self.innermost();
        let (name, position) = (self.name(self.process), self.position()?);
        let frame = self.look_deep(3, |inspector, _, stack| {
            let scope = stack.and_then(|stack| Scope::new(inspector, stack, 0));
            scope
                .map(|scope| inspect::print::backtrace::frame_line(scope, &PrintOptions::default()))
        })?;
        let frame = frame.unwrap_or_default();
        let frame = frame.trim_start_matches("#0").trim();
        Ok(format!(
            "Tracepoint {number}, {name} before {name}:{}: {frame}",
            position.event()
        ))
    }

    /// The breakpoint that was come to, if it is one to stop at.
    fn hit(&mut self, plan: &Plan) -> Result<Option<u32>, Failure> {
        let Position::Inside(inside) = self.position()? else {
            return Ok(None);
        };
        let mut found = None;
        for (address, number) in &plan.addresses {
            // Each has its count, though one is enough to stop.
            if *address == inside.address && self.counts(*number)? {
                found = found.or(Some(*number));
            }
        }
        Ok(found)
    }

    /// The event that is caught next, from `event` on.
    fn next_caught(&self, event: u64) -> Option<u64> {
        let caught = self.points.iter().filter(|p| self.is_mine(p));
        let all = caught.filter_map(|p| match &p.kind {
            Kind::Catch(caught) => caught.from(self.process, event),
            _ => None,
        });
        all.min()
    }

    /// The one that was caught last, before `event`.
    fn last_caught(&self, event: u64) -> Option<u64> {
        let caught = self.points.iter().filter(|p| self.is_mine(p));
        let all = caught.filter_map(|p| match &p.kind {
            Kind::Catch(caught) => caught.before(self.process, event),
            _ => None,
        });
        all.max()
    }

    /// The point that catches an event, if it is one to stop at.
    fn catches(&mut self, event: u64) -> Result<Option<u32>, Failure> {
        let numbers: Vec<u32> = self
            .points
            .iter()
            .filter(|p| self.is_mine(p))
            .filter(|p| matches!(&p.kind, Kind::Catch(c) if c.has(self.process, event)))
            .map(|p| p.number)
            .collect();
        let mut found = None;
        for number in numbers {
            if self.counts(number)? {
                found = found.or(Some(number));
            }
        }
        Ok(found)
    }

    /// What a watched variable is now.
    fn show_watched(&mut self, number: u32) -> Result<String, Failure> {
        let Ok(Kind::Watch(watched)) = self.point(number).map(|p| &p.kind) else {
            return Ok(String::new());
        };
        let value = watched.value.clone();
        self.show_value(&value)
    }

    fn show_value(&mut self, value: &Value) -> Result<String, Failure> {
        self.look_deep(1, |inspector, _, _| {
            Printer::new(inspector, PrintOptions::default()).top(value)
        })
    }

    /// Looks at all watched variables of the process at hand.
    fn note_watched(&mut self) -> Result<(), Failure> {
        let mine = self.points.iter().filter(|p| self.is_mine(p));
        let numbers: Vec<u32> = mine
            .filter(|p| matches!(&p.kind, Kind::Watch(w) if w.process == self.process))
            .map(|p| p.number)
            .collect();
        for number in numbers {
            let shown = self.show_watched(number)?;
            if let Ok(point) = self.point(number)
                && let Kind::Watch(watched) = &mut point.kind
            {
                watched.shown = shown;
            }
        }
        Ok(())
    }

    /// The frames of watched variables, with their points.
    fn watched_frames(&self) -> Vec<(u32, FrameOf)> {
        let mine = self.points.iter().filter(|p| self.is_mine(p));
        mine.filter_map(|p| match &p.kind {
            Kind::Watch(w) if w.process == self.process => {
                w.frame.clone().map(|frame| (p.number, frame))
            }
            _ => None,
        })
        .collect()
    }

    /// Whether a frame is there.
    fn is_live(&mut self, frame: &FrameOf) -> Result<bool, Failure> {
        let (thread, chosen) = (self.thread, self.frame);
        self.thread = Some(frame.thread);
        let live = self.look(|_, _, stack| {
            let mut frames = stack.iter().flat_map(|s| &s.frames);
            frames.any(|f| f.cfa == Some(frame.cfa) && f.name == frame.function)
        });
        self.thread = thread;
        self.frame = chosen;
        live
    }

    /// A watched variable changed: what to say, if it is one to stop at.
    fn changed(&mut self, number: u32, back: bool) -> Result<Option<Why>, Failure> {
        let Ok(point) = self.point(number) else {
            return Ok(None);
        };
        let Kind::Watch(watched) = &point.kind else {
            return Ok(None);
        };
        let (text, frame) = (watched.text.clone(), watched.frame.clone());
        let before = watched.shown.clone();
        if let Some(frame) = &frame
            && !self.is_live(frame)?
        {
            // The same memory, of another frame.
            self.note_watched()?;
            return Ok(None);
        }
        let now = self.show_watched(number)?;
        let (old, new) = if back {
            (now, self.value_behind(number)?)
        } else {
            (before, now)
        };
        self.note_watched()?;
        if !back && !self.counts(number)? {
            return Ok(None);
        }
        Ok(Some(Why::Watch {
            number,
            text,
            old,
            new,
            back,
        }))
    }

    /// What a watched variable is behind the change that comes next.
    fn value_behind(&mut self, number: u32) -> Result<String, Failure> {
        let Ok(Kind::Watch(watched)) = self.point(number).map(|p| &p.kind) else {
            return Ok(String::new());
        };
        let pieces = watched.pieces.clone();
        let here = self.position()?;
        let session = self.session()?;
        session.run_watching(&[], &pieces, END).map_err(explain)?;
        let shown = self.show_watched(number);
        self.session()?.go_to_position(here).map_err(explain)?;
        shown
    }

    /// Runs on to one of the addresses, to something to stop at (unless
    /// `alone`), or to the limit.
    fn travel(&mut self, extra: &[u64], limit: Position, alone: bool) -> Result<Leg, Failure> {
        if !alone {
            self.innermost();
            self.note_watched()?;
        }
        loop {
            let plan = if alone {
                Plan {
                    addresses: Vec::new(),
                    watches: Vec::new(),
                    watched: Vec::new(),
                    mapped: false,
                }
            } else {
                self.plan()?
            };
            let frames = if alone {
                Vec::new()
            } else {
                self.watched_frames()
            };
            let mut breakpoints: Vec<u64> = plan.addresses.iter().map(|(a, _)| *a).collect();
            let returns = frames.iter().filter_map(|(_, f)| f.returns.map(|(a, _)| a));
            let others: Vec<u64> = extra.iter().copied().chain(returns).collect();
            breakpoints.extend(&others);
            breakpoints.sort_unstable();
            breakpoints.dedup();
            if breakpoints.len() > protocol::replay::BREAKPOINTS {
                return Err(Failure::new(format!(
                    "there are {} places to stop at, more than {} are not possible",
                    breakpoints.len(),
                    protocol::replay::BREAKPOINTS
                ))
                .hint("`delete` some; a function that is inlined often has many"));
            }
            let next = match self.position()? {
                Position::Event(event) => event + 1,
                Position::Inside(inside) => inside.event,
            };
            let caught = if alone { None } else { self.next_caught(next) };
            let caught = caught.map(Position::Event).filter(|at| *at < limit);
            let to = caught.unwrap_or(limit);
            let mapped = (self.process, self.session()?.maps_version());
            let conditions = self.conditions(&plan, mapped, &others);
            let stops = Stops {
                breakpoints: &breakpoints,
                watches: &plan.watches,
                // Other code may be there then, with other variables.
                mapped: plan.mapped || !conditions.is_empty(),
                conditions: &conditions,
            };
            let is_free = breakpoints.is_empty() && plan.watches.is_empty() && !plan.mapped;
            let arrival = match to {
                Position::Event(event) if is_free => self.session()?.go_to(event),
                _ => self.session()?.run_to(&stops, to),
            };
            let arrival = arrival.map_err(explain)?;
            self.innermost();
            match arrival {
                Arrival::Mapped => {}
                Arrival::There => {
                    if let Some(at) = caught
                        && let Some(number) = self.catches(at.event())?
                    {
                        return Ok(Leg::Stop(Why::Caught(number)));
                    }
                    if caught.is_none() {
                        return Ok(Leg::There);
                    }
                }
                Arrival::Watch(piece) => {
                    let number = plan.watched.get(piece).copied().unwrap_or(0);
                    let stop = self.changed(number, false)?;
                    let also = self.hit(&plan)?;
                    if let Some(why) = stop.or(also.map(Why::Breakpoint)) {
                        return Ok(Leg::Stop(why));
                    }
                }
                Arrival::Breakpoint => {
                    if let Some(number) = self.hit(&plan)? {
                        return Ok(Leg::Stop(Why::Breakpoint(number)));
                    }
                    let Position::Inside(inside) = self.position()? else {
                        continue;
                    };
                    if let Some(why) = self.frame_left(&frames, inside.address)? {
                        return Ok(Leg::Stop(why));
                    }
                    if extra.contains(&inside.address) {
                        return Ok(Leg::At);
                    }
                }
                other => return Ok(Leg::Stop(self.arrived(other))),
            }
            if self.interrupt.load(Relaxed) {
                return Ok(Leg::Stop(Why::Interrupted));
            }
        }
    }

    /// Whether the frame of a watched variable has just returned: then it is
    /// watched no more.
    fn frame_left(
        &mut self,
        frames: &[(u32, FrameOf)],
        address: u64,
    ) -> Result<Option<Why>, Failure> {
        let Some(rsp) = self.stack_pointer()? else {
            return Ok(None);
        };
        let thread = self.session()?.thread();
        let left = frames.iter().find(|(_, f)| {
            f.thread == thread && f.returns.is_some_and(|(a, cfa)| a == address && rsp >= cfa)
        });
        let Some((number, _)) = left else {
            return Ok(None);
        };
        let text = self.point(*number)?.text().to_string();
        self.points.retain(|p| p.number != *number);
        self.points_changed();
        Ok(Some(Why::OutOfScope {
            number: *number,
            text,
            back: false,
        }))
    }

    /// The stack pointer of the thread that runs.
    fn stack_pointer(&mut self) -> Result<Option<u64>, Failure> {
        let running = self.session()?.running();
        Ok(running.map(|thread| thread.by_name().rsp))
    }

    /// Goes on to something to stop at, or to the end.
    pub fn go_on(&mut self) -> Result<Why, Failure> {
        self.go_on_to(END)
    }

    /// The same, or to a place.
    pub fn go_on_to(&mut self, limit: Position) -> Result<Why, Failure> {
        Ok(match self.travel(&[], limit, false)? {
            Leg::Stop(why) => why,
            Leg::At | Leg::There => Why::Event,
        })
    }

    /// Goes on to something to stop at, or to a place in the code.
    pub fn go_on_until(&mut self, addresses: &[u64]) -> Result<Why, Failure> {
        Ok(match self.travel(addresses, END, false)? {
            Leg::Stop(why) => why,
            Leg::At | Leg::There => Why::Step,
        })
    }

    /// Goes back to the last thing to stop at, or to the beginning.
    pub fn go_back(&mut self) -> Result<Why, Failure> {
        self.go_back_to(None, &[])
    }

    /// The same, or to a place in the code or an event.
    pub fn go_back_to(&mut self, event: Option<u64>, extra: &[u64]) -> Result<Why, Failure> {
        self.innermost();
        self.note_watched()?;
        let plan = self.plan()?;
        let frames = self.watched_frames();
        let here = self.position()?;
        let mut from = here;
        loop {
            let mut breakpoints: Vec<u64> = plan.addresses.iter().map(|(a, _)| *a).collect();
            let begins = frames.iter().filter_map(|(_, f)| f.begins);
            let others: Vec<u64> = extra.iter().copied().chain(begins).collect();
            breakpoints.extend(&others);
            let mapped = (self.process, self.session()?.maps_version());
            let conditions = self.conditions(&plan, mapped, &others);
            let floor = self.last_caught(from.event()).max(event);
            let floor_at = Position::Event(floor.unwrap_or(0));
            let stops = Stops {
                breakpoints: &breakpoints,
                watches: &plan.watches,
                mapped: false,
                conditions: &conditions,
            };
            let back = if breakpoints.is_empty() && plan.watches.is_empty() {
                Back::Beginning
            } else {
                self.search_back(&stops, floor_at, &plan, &frames, extra)?
            };
            self.innermost();
            match back {
                Back::Interrupted => return Ok(Why::Interrupted),
                Back::Beginning => {
                    let Some(floor) = floor else {
                        break;
                    };
                    self.session()?.go_to(floor).map_err(explain)?;
                    if let Some(number) = self.catches(floor)? {
                        return Ok(Why::Caught(number));
                    }
                    if event == Some(floor) {
                        return Ok(Why::Event);
                    }
                }
                Back::Watch(piece) => {
                    let number = plan.watched.get(piece).copied().unwrap_or(0);
                    if let Ok(point) = self.point(number) {
                        point.hits += 1;
                    }
                    if let Some(why) = self.changed(number, true)? {
                        return Ok(why);
                    }
                }
                Back::Breakpoint => {
                    let Position::Inside(inside) = self.position()? else {
                        continue;
                    };
                    if let Some(number) = self.hit(&plan)? {
                        return Ok(Why::Breakpoint(number));
                    }
                    if let Some(&(number, _)) = self.frame_begins(&frames, inside.address)? {
                        let text = self.point(number)?.text().to_string();
                        return Ok(Why::OutOfScope {
                            number,
                            text,
                            back: true,
                        });
                    }
                    if extra.contains(&inside.address) {
                        return Ok(Why::Step);
                    }
                }
            }
            from = self.position()?;
            if self.interrupt.load(Relaxed) {
                return Ok(Why::Interrupted);
            }
        }
        let first = self.first_event();
        let arrival = self.session()?.go_to(first).map_err(explain)?;
        self.innermost();
        Ok(match arrival {
            Arrival::There => Why::Start,
            other => self.arrived(other),
        })
    }

    /// The frame of a watched variable that begins here.
    fn frame_begins<'f>(
        &mut self,
        frames: &'f [(u32, FrameOf)],
        address: u64,
    ) -> Result<Option<&'f (u32, FrameOf)>, Failure> {
        let Some(rsp) = self.stack_pointer()? else {
            return Ok(None);
        };
        let thread = self.session()?.thread();
        Ok(frames.iter().find(|(_, f)| {
            f.thread == thread && f.begins == Some(address) && rsp.wrapping_add(8) == f.cfa
        }))
    }

    /// Goes back to the last stop whose condition holds.
    fn search_back(
        &mut self,
        stops: &Stops<'_>,
        floor: Position,
        plan: &Plan,
        frames: &[(u32, FrameOf)],
        extra: &[u64],
    ) -> Result<Back, Failure> {
        let conditions_of = |debugger: &Debugger| {
            let points = debugger.points.iter();
            points
                .filter_map(|p| Some((p.number, p.condition.clone()?)))
                .collect::<HashMap<u32, String>>()
        };
        let texts = conditions_of(self);
        let matters = |number: &u32| texts.contains_key(number);
        let plain =
            !plan.addresses.iter().any(|(_, n)| matters(n)) && !plan.watched.iter().any(matters);
        if plain {
            return self
                .session()?
                .run_back_to(stops, floor, None)
                .map_err(explain);
        }
        let mapped = (self.process, self.session()?.maps_version());
        self.layout()?;
        let Debugger {
            sessions,
            library,
            layout,
            conditions,
            process,
            ..
        } = self;
        let Some(session) = sessions.get_mut(process) else {
            return Ok(Back::Beginning);
        };
        let mut trouble = None;
        let mut wanted = |session: &Session| {
            let mut holds = |number: u32| {
                let Some(text) = texts.get(&number) else {
                    return true;
                };
                let held =
                    condition_holds(session, library, layout, conditions, mapped, number, text);
                match held {
                    Ok(holds) => {
                        // What is come to later is what counts.
                        if holds {
                            trouble = None;
                        }
                        holds
                    }
                    Err(error) => {
                        trouble = Some(Failure::new(format!(
                            "the condition of {number} cannot be tested: {error}"
                        )));
                        true
                    }
                }
            };
            if let Some(piece) = session.watch_hit() {
                return plan.watched.get(piece).copied().is_some_and(&mut holds);
            }
            let Position::Inside(inside) = session.position() else {
                return true;
            };
            let running = session.thread();
            let rsp = session.running().map(|thread| thread.by_name().rsp);
            let begins = frames.iter().any(|(_, f)| {
                f.thread == running
                    && f.begins == Some(inside.address)
                    && rsp.map(|rsp| rsp.wrapping_add(8)) == Some(f.cfa)
            });
            let mut here = plan
                .addresses
                .iter()
                .filter(|(address, _)| *address == inside.address);
            begins || extra.contains(&inside.address) || here.any(|(_, number)| holds(*number))
        };
        let back = session
            .run_back_to(stops, floor, Some(&mut wanted))
            .map_err(explain)?;
        match trouble {
            // Unless that was before the floor.
            Some(failure) if matches!(back, Back::Breakpoint | Back::Watch(_)) => Err(failure),
            _ => Ok(back),
        }
    }

    fn first_event(&self) -> u64 {
        let process = self.recording.process(self.process);
        process.map_or(0, |process| process.first_event)
    }

    pub fn go_to(&mut self, number: u32, event: u64) -> Result<Why, Failure> {
        if number != self.process {
            self.session_of(number)?;
            self.process = number;
        }
        self.innermost();
        let arrival = self.session()?.go_to(event).map_err(explain)?;
        Ok(self.arrived(arrival))
    }

    /// To a place that was stopped at before.
    pub fn go_to_place(&mut self, (number, position): Place) -> Result<Why, Failure> {
        self.session_of(number)?;
        self.process = number;
        self.innermost();
        let arrival = self.session()?.go_to_position(position).map_err(explain)?;
        Ok(self.arrived(arrival))
    }

    pub fn step_instruction(&mut self) -> Result<Why, Failure> {
        self.innermost();
        self.note_watched()?;
        let plan = self.plan()?;
        let arrival = self.session()?.step_watching(0..0, &plan.watches);
        let arrival = arrival.map_err(explain)?;
        self.innermost();
        if let Arrival::Watch(piece) = arrival {
            let number = plan.watched.get(piece).copied().unwrap_or(0);
            if let Some(why) = self.changed(number, false)? {
                return Ok(why);
            }
        }
        Ok(self.arrived(arrival))
    }

    pub fn step_instruction_back(&mut self) -> Result<Why, Failure> {
        let moved = self.session()?.step_instruction_back().map_err(explain)?;
        self.innermost();
        Ok(if moved { Why::Step } else { Why::Start })
    }

    /// One instruction; a call is run until it returns.
    pub fn next_instruction(&mut self) -> Result<Why, Failure> {
        self.innermost();
        let thread = self.session()?.thread();
        let call = self.look_deep(1, |inspector, _, stack| {
            let frame = stack?.frames.first()?;
            let lines = inspector.disassemble(frame.pc, 2);
            let is_call = lines.first()?.text.starts_with("call");
            is_call.then_some(lines.get(1)?.address)
        })?;
        let rsp = self.stack_pointer()?;
        match (call, rsp) {
            (Some(next), Some(rsp)) => Ok(match self.run_out(thread, next, rsp, END, false)? {
                Leg::Stop(why) => why,
                Leg::At | Leg::There => Why::Step,
            }),
            _ => self.step_instruction(),
        }
    }

    /// Runs on in thread `thread` until an address is reached in a frame that
    /// is not deeper than `cfa`; not past `limit`.
    fn run_out(
        &mut self,
        thread: u32,
        address: u64,
        cfa: u64,
        limit: Position,
        alone: bool,
    ) -> Result<Leg, Failure> {
        loop {
            match self.travel(&[address], limit, alone)? {
                Leg::At => {}
                other => return Ok(other),
            }
            let is_outer = self.stack_pointer()?.is_some_and(|rsp| rsp >= cfa);
            if self.session()?.thread() == thread && is_outer {
                return Ok(Leg::At);
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
        let leg = self.run_out(thread, address, cfa, END, false)?;
        self.innermost();
        Ok(match leg {
            Leg::Stop(why) => why,
            Leg::At | Leg::There => Why::Step,
        })
    }

    /// Back to where the chosen frame was called.
    pub fn finish_back(&mut self) -> Result<Why, Failure> {
        let Some(frame) = self.frame_of(self.frame)? else {
            return Err(Failure::new("there is no frame here"));
        };
        let Some(begins) = frame.begins else {
            return Err(Failure::new(
                "where this frame's function begins is not known",
            ));
        };
        let rsp = frame.cfa.wrapping_sub(8);
        let is_entry = |session: &Session| {
            let own = session.running().filter(|t| t.number == frame.thread);
            own.is_some_and(|thread| thread.by_name().rsp == rsp)
        };
        let found = self.session()?.run_back(&[begins], is_entry);
        let found = found.map_err(explain)?;
        self.innermost();
        if !found {
            return Err(Failure::new("this frame was not called: it is the first"));
        }
        self.step_instruction_back()
    }

    /// What is known of a frame.
    pub fn frame_of(&mut self, level: usize) -> Result<Option<FrameOf>, Failure> {
        let running = self.session()?.thread();
        let thread = self.thread.unwrap_or(running);
        self.look(|inspector, _, stack| {
            let frame = stack?.frames.get(level)?;
            Some(FrameOf {
                thread,
                cfa: frame.cfa?,
                function: frame.name.clone(),
                begins: inspector.function_name(frame.pc).map(|(_, begins)| begins),
                returns: inspector.return_place(stack?, level),
            })
        })
    }

    /// Watches what an expression names.
    pub fn watch(&mut self, text: &str) -> Result<Watched, Failure> {
        let level = self.frame;
        let (value, sp) = self.in_frame(|_, stack, scope| {
            let value = scope.evaluate(text)?;
            let inner = level.checked_sub(1).and_then(|l| stack.frames.get(l));
            Ok((value, inner.and_then(|f| f.cfa)))
        })?;
        let size = value.size();
        let Some(address) = value.address().filter(|_| size > 0) else {
            return Err(Failure::new(format!("`{text}` is not in memory here")).hint(
                "a variable, member, element or `*pointer` can be watched; what is computed, or \
                 kept in a register, cannot",
            ));
        };
        const PIECE: u64 = 248;
        const SIZE_MAX: u64 = 512;
        if size > SIZE_MAX {
            return Err(Failure::new(format!(
                "`{text}` is {size} bytes long: at most {SIZE_MAX} can be watched"
            ))
            .hint("watch a member or an element of it"));
        }
        let pieces = (0..size.div_ceil(PIECE)).map(|i| Watch {
            address: address + i * PIECE,
            length: (size - i * PIECE).min(PIECE) as u8,
        });
        let low = match sp {
            Some(cfa) => Some(cfa),
            None => self.stack_pointer()?.map(|rsp| rsp.saturating_sub(128)),
        };
        let frame = self.frame_of(level)?;
        let is_local = frame
            .as_ref()
            .is_some_and(|f| low.is_some_and(|low| (low..f.cfa).contains(&address)));
        let shown = self.show_value(&value)?;
        Ok(Watched {
            text: text.to_string(),
            process: self.process,
            image: self.session()?.maps_version().0,
            pieces: pieces.collect(),
            frame: frame.filter(|_| is_local),
            value,
            shown,
        })
    }

    /// To the next line; into functions that have lines, if `into`.
    pub fn step_line(&mut self, into: bool) -> Result<Why, Failure> {
        let leg = self.step_to_line(into, END, false)?;
        self.innermost();
        Ok(match leg {
            Leg::Stop(why) => why,
            // A breakpoint may be just here.
            Leg::At => {
                let plan = self.plan()?;
                self.hit(&plan)?.map_or(Why::Step, Why::Breakpoint)
            }
            Leg::There => Why::Event,
        })
    }

    /// The instructions in a range, or one.
    fn step(&mut self, range: std::ops::Range<u64>, alone: bool) -> Result<Leg, Failure> {
        if !alone {
            self.note_watched()?;
        }
        let plan = self.plan()?;
        let watches = if alone { &[] } else { plan.watches.as_slice() };
        let arrival = self.session()?.step_watching(range, watches);
        let arrival = arrival.map_err(explain)?;
        self.innermost();
        Ok(match arrival {
            Arrival::Stepped | Arrival::Breakpoint => Leg::At,
            Arrival::Watch(piece) => {
                let number = plan.watched.get(piece).copied().unwrap_or(0);
                match self.changed(number, false)? {
                    Some(why) => Leg::Stop(why),
                    None => Leg::At,
                }
            }
            other => Leg::Stop(self.arrived(other)),
        })
    }

    fn step_to_line(&mut self, into: bool, limit: Position, alone: bool) -> Result<Leg, Failure> {
        let thread = self.session()?.thread();
        let Some(start) = self.top()? else {
            return self.step(0..0, alone);
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
            let leg = match (range, out) {
                (Some(range), _) => self.step(range, alone)?,
                // No lines here: out of it.
                (None, Some((address, cfa))) => self.run_out(thread, address, cfa, limit, alone)?,
                (None, None) => self.step(0..0, alone)?,
            };
            match leg {
                Leg::At => {}
                other => return Ok(other),
            }
            if self.position()? >= limit {
                return Ok(Leg::There);
            }
            // Others run while this thread waits.
            while self.session()?.thread() != thread {
                let next = Position::Event(self.position()?.event() + 1);
                match self.travel(&[], next.min(limit), alone)? {
                    Leg::There if next < limit => {}
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
                let entered = self.look_deep(3, |inspector, _, stack| {
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
                        return self.travel(&[body], limit, alone);
                    }
                    return Ok(Leg::At);
                }
                if let Some((address, cfa)) = out {
                    match self.run_out(thread, address, cfa, limit, alone)? {
                        Leg::At => {}
                        other => return Ok(other),
                    }
                }
                let Some(back) = self.top()? else { continue };
                if back.place.as_ref().map(|p| p.line) != start_line && !back.inside_line {
                    return Ok(Leg::At);
                }
                continue;
            }
            if cfa > start_cfa {
                // Returned.
                if has_line {
                    return Ok(Leg::At);
                }
                continue;
            }
            let same =
                now.place.as_ref().map(|p| p.line) == start_line && now.name == start_function;
            if has_line && !same && !now.inside_line {
                return Ok(Leg::At);
            }
        }
        Ok(Leg::At)
    }

    /// To the line before.
    pub fn step_line_back(&mut self, into: bool) -> Result<Why, Failure> {
        let here = self.position()?;
        let why = match self.last_line_start(into, here)? {
            Some(why) => why,
            None => {
                self.session()?.go_to_position(here).map_err(explain)?;
                self.find_line_back(into, here)?
            }
        };
        if self.interrupt.swap(false, Relaxed) {
            self.session()?.go_to_position(here).map_err(explain)?;
            return Ok(Why::Interrupted);
        }
        Ok(why)
    }

    /// The short way to the line before: to the last place where a line of the
    /// function begins, in the same frame, and from there to where the pieces
    /// of that line that were executed without a break begin. None if it is not
    /// found so: a frame of many recursions, a function of very many lines, or
    /// a call that is to be gone into.
    fn last_line_start(&mut self, into: bool, here: Position) -> Result<Option<Why>, Failure> {
        const TRIES: usize = 12;
        let thread = self.session()?.thread();
        let Some(frame) = self.top()? else {
            return Ok(None);
        };
        let Some(cfa) = frame.cfa else {
            return Ok(None);
        };
        let (starts, begins) = self.look_deep(1, |inspector, _, _| {
            let begins = inspector.function_name(frame.pc).map(|(_, begins)| begins);
            (inspector.line_starts(frame.pc), begins)
        })?;
        let Some(begins) = begins else {
            return Ok(None);
        };
        let breakpoints: Vec<u64> = starts.iter().copied().chain([begins]).collect();
        if starts.is_empty() || breakpoints.len() > protocol::replay::BREAKPOINTS {
            return Ok(None);
        }
        if into {
            // If a call has just returned here, the line before is in there.
            self.session()?.step_back().map_err(explain)?;
            let deeper = self.top()?.is_some_and(|f| f.cfa < Some(cfa));
            self.session()?.go_to_position(here).map_err(explain)?;
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
            let back = self
                .session()?
                .run_back_to(&stops, Position::Event(0), None);
            if back.map_err(explain)? != Back::Breakpoint {
                return Ok(None);
            }
            let Some(now) = self.top()? else {
                return Ok(None);
            };
            let rsp = self.stack_pointer()?;
            let is_entry = now.pc == begins && rsp.map(|rsp| rsp.wrapping_add(8)) == Some(cfa);
            let same = self.session()?.thread() == thread
                && (is_entry || now.cfa == Some(cfa) && now.name == frame.name);
            if !same {
                if into {
                    return Ok(None);
                }
                continue;
            }
            let line = now.place.as_ref().map(|p| p.line);
            match found {
                // The line began there.
                Some((position, of)) if is_entry || line != of => {
                    self.session()?.go_to_position(position).map_err(explain)?;
                    self.innermost();
                    return Ok(Some(Why::Step));
                }
                None if is_entry => return self.step_instruction_back().map(Some),
                // Going on in the same line from its middle.
                None if line == start_line && !frame.inside_line => {}
                _ => {}
            }
            found = Some((self.position()?, line));
        }
        Ok(None)
    }

    fn find_line_back(&mut self, into: bool, here: Position) -> Result<Why, Failure> {
        let thread = self.session()?.thread();
        let Some(frame) = self.top()? else {
            return self.step_instruction_back();
        };
        // A frame is its address and its function: others were there before.
        let cfa = frame.cfa.unwrap_or(0);
        let is_same = |other: &Frame| other.cfa == Some(cfa) && other.name == frame.name;
        let begins = self.look_deep(1, |inspector, _, _| {
            let (_, begins) = inspector.function_name(frame.pc)?;
            let module = inspector.module_at(frame.pc)?;
            let body = inspector.body_of(&module, module.to_link(begins));
            Some((begins, body))
        })?;
        let first = self.first_event();
        let mut event = here.event();
        // From one event before after the other: the last line of this frame
        // that begins between there and here.
        while event > first && !self.interrupt.load(Relaxed) {
            event -= 1;
            self.session()?.go_to(event).map_err(explain)?;
            let Some(start) = self.enter_frame(thread, &frame, begins, here)? else {
                continue;
            };
            let mut last = start.line;
            for _ in 0..STEPS_MAX {
                match self.step_to_line(into, here, true)? {
                    Leg::At => {}
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
                self.innermost();
                return Ok(Why::Step);
            }
        }
        self.session()?.go_to(first).map_err(explain)?;
        self.innermost();
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
                let leg = self.run_out(thread, address, inner_cfa, limit, true)?;
                return Ok(matches!(leg, Leg::At).then_some(nothing));
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
            let rsp = self.stack_pointer()?;
            let session = self.session()?;
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
        self.go_to_place((process, position))
    }
}

/// There is no point of that number.
pub fn no_point(number: u32) -> Failure {
    Failure::new(format!("there is no breakpoint {number}")).hint("`info breakpoints` lists them")
}

/// Whether a condition holds where a session stands. The names in it are
/// looked up once for each address.
fn condition_holds(
    session: &Session,
    library: &Library,
    layout: &mut Option<(Mapped, Arc<Layout>)>,
    known: &mut Conditions,
    mapped: Mapped,
    number: u32,
    text: &str,
) -> Result<bool, inspect::Error> {
    let stopped = Stopped::new(session);
    let mapped = (mapped.0, session.maps_version());
    let inspector = match layout {
        Some((for_this, layout)) if *for_this == mapped => {
            Inspector::with_layout(library, &stopped, Arc::clone(layout))
        }
        _ => {
            let inspector = Inspector::new(library, &stopped);
            *layout = Some((mapped, inspector.layout()));
            inspector
        }
    };
    // One frame is enough for most; what the caller passed needs more.
    let mut held = Ok(false);
    for frames in [1, 10] {
        let stack = inspector.stack(ThreadId(session.thread()), frames)?;
        let Some(scope) = Scope::new(&inspector, &stack, 0) else {
            return Ok(false);
        };
        held = holds_in(&scope, known, mapped, number, text);
        if held.is_ok() {
            break;
        }
    }
    held
}

fn holds_in(
    scope: &Scope<'_>,
    known: &mut Conditions,
    mapped: Mapped,
    number: u32,
    text: &str,
) -> Result<bool, inspect::Error> {
    let pc = scope.frame().map_or(0, |frame| frame.pc);
    if let Some((for_this, asked)) = known.get(&(number, pc))
        && *for_this == mapped
    {
        return asked.expression.holds(scope);
    }
    let expression = Expression::parse(scope, text)?;
    let held = expression.holds(scope)?;
    let code = expression
        .compile(scope)
        .and_then(|steps| super::condition::encode(&steps));
    known.insert((number, pc), (mapped, Asked { expression, code }));
    Ok(held)
}
