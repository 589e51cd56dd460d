//! Questions about processes that stand still. None of them moves anybody.

use std::sync::Arc;

use inspect::frames::{Stack, frame_of, user_frame};
use inspect::inspector::Layout;
use inspect::lookup::Location;
use inspect::print::{PrintOptions, Printer, backtrace};
use inspect::scope::Scope;
use inspect::value::Value;
use inspect::{Inspector, Library, Process, ThreadId};
use protocol::id::{Addr, ProcessId, ThreadNo};
use target::{Cancel, Position, Target, ThreadState, Watch};

use crate::change::RED_ZONE;
use crate::conditions::INLINED_MAX;
use crate::group::Group;
use crate::reason::Seen;
use crate::watched::Watched;
use crate::{Error, Result};

/// Frames of a stack that are looked at, at most.
const DEEPEST: usize = 10_000;

/// A thread of a process; without a number, the one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadRef {
    pub process: ProcessId,
    pub thread: Option<ThreadNo>,
}

/// A frame of a thread; 0 is the innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRef {
    pub thread: ThreadRef,
    pub level: usize,
}

/// What is known of a frame.
#[derive(Clone, Debug)]
pub struct FrameInfo {
    pub level: usize,
    /// The instruction that comes next in it.
    pub pc: Addr,
    /// The name of its function.
    pub function: Option<String>,
    /// Where it is in the source.
    pub line: Option<inspect::frames::SourceLocation>,
    /// Its canonical frame address.
    pub cfa: Option<Addr>,
}

/// A variable of a frame, and its value or why there is none.
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: String,
    pub is_parameter: bool,
    pub value: std::result::Result<Seen, String>,
}

/// Which variables of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variables {
    Arguments,
    Locals,
}

/// A process as it stands, to be asked.
pub struct View<'g> {
    target: &'g dyn Target,
    library: &'g Library,
    layout: Arc<Layout>,
    looked: Box<dyn Process + 'g>,
    /// The inlined function that it is about to enter.
    entered: Option<Location>,
}

/// The stack of a thread, so many frames of it, in the eyes of the user: where an
/// inlined function is about to be entered by the thread that runs, what is inlined
/// into that function at the same address is left out.
pub(crate) fn stack_at(
    inspector: &Inspector<'_>,
    target: &dyn Target,
    thread: ThreadNo,
    most: usize,
    entered: Option<&Location>,
) -> inspect::Result<Stack> {
    let id = ThreadId(thread.0);
    let Some(function) = entered.filter(|_| thread == target.thread()) else {
        return inspector.stack(id, most);
    };
    let whole = inspector.stack(id, most.saturating_add(INLINED_MAX))?;
    let mut stack = whole.entering(function);
    stack.frames.truncate(most);
    Ok(stack)
}

impl View<'_> {
    /// Answers what `inspect` answers.
    pub fn inspector(&self) -> Inspector<'_> {
        Inspector::with_layout(self.library, &*self.looked, Arc::clone(&self.layout))
    }

    pub fn target(&self) -> &dyn Target {
        self.target
    }

    /// Its threads, the one that runs first.
    pub fn threads(&self) -> Vec<ThreadState> {
        let running = self.target.thread();
        let mut threads = self.target.threads();
        threads.sort_by_key(|t| (t.number != running, t.number));
        threads
    }

    /// The stack of a thread, or of the one that runs.
    pub fn stack(&self, inspector: &Inspector<'_>, thread: Option<ThreadNo>) -> Option<Stack> {
        let thread = thread.unwrap_or(self.target.thread());
        self.frames(inspector, thread, DEEPEST).ok()
    }

    /// The innermost frames of a thread.
    pub fn frames(
        &self,
        inspector: &Inspector<'_>,
        thread: ThreadNo,
        most: usize,
    ) -> inspect::Result<Stack> {
        let entered = self.entered.as_ref();
        stack_at(inspector, self.target, thread, most, entered)
    }

    pub(crate) fn in_frame<T>(
        &self,
        thread: Option<ThreadNo>,
        level: usize,
        question: impl FnOnce(Scope<'_>) -> inspect::Result<T>,
    ) -> Result<T> {
        let inspector = self.inspector();
        let stack = self.stack(&inspector, thread).ok_or(Error::NoFrame)?;
        let scope = Scope::new(&inspector, &stack, level).ok_or(Error::NoFrame)?;
        Ok(question(scope)?)
    }
}

/// A value where the process is now.
pub(crate) fn seen(inspector: &Inspector<'_>, value: &Value) -> Seen {
    Seen {
        text: Printer::new(inspector, PrintOptions::default()).top(value),
        value: value.fetched(inspector.process),
    }
}

pub(crate) fn seen_in(scope: Scope<'_>, value: &Value) -> Seen {
    Seen {
        text: Printer::in_scope(scope, PrintOptions::default()).top(value),
        value: value.fetched(scope.inspector.process),
    }
}

impl Group {
    /// A process as it stands.
    pub fn at(&mut self, process: ProcessId) -> Result<View<'_>> {
        let i = self.index(process)?;
        self.here(i)?;
        let never = Cancel::new();
        let (member, context) = self.with(i, &never)?;
        let layout = member.layout(context.program.library())?;
        let member = self.member(i)?;
        let target = member.target()?;
        Ok(View {
            entered: member.entered().cloned(),
            target,
            library: self.program.library(),
            layout,
            looked: target.look(),
        })
    }

    /// The frames of a thread, innermost first, at most so many.
    pub fn frames(&mut self, thread: ThreadRef, most: usize) -> Result<Vec<FrameInfo>> {
        let view = self.at(thread.process)?;
        let inspector = view.inspector();
        let number = thread.thread.unwrap_or(view.target.thread());
        let stack = view.frames(&inspector, number, most)?;
        let frames = stack.frames.iter();
        Ok(frames
            .map(|frame| FrameInfo {
                level: frame.level,
                pc: frame.pc,
                function: frame.name.clone(),
                line: frame.place.clone(),
                cfa: frame.cfa,
            })
            .collect())
    }

    /// The value of an expression in a frame.
    pub fn evaluate(&mut self, frame: FrameRef, expression: &str) -> Result<Seen> {
        let view = self.at(frame.thread.process)?;
        view.in_frame(frame.thread.thread, frame.level, |scope| {
            let value = scope.evaluate(expression)?;
            Ok(seen_in(scope, &value))
        })
    }

    /// The variables of a frame.
    pub fn variables(&mut self, frame: FrameRef, which: Variables) -> Result<Vec<Variable>> {
        let view = self.at(frame.thread.process)?;
        view.in_frame(frame.thread.thread, frame.level, |scope| {
            let all = match which {
                Variables::Arguments => scope.arguments(),
                Variables::Locals => scope.locals(),
            };
            let variable = |local: &inspect::scope::Local| Variable {
                name: local.name.to_string(),
                is_parameter: local.parameter,
                value: scope
                    .read(local.die)
                    .map(|value| seen_in(scope, &value))
                    .map_err(|error| error.to_string()),
            };
            Ok(all.iter().map(variable).collect())
        })
    }

    /// The value of an expression in the innermost frame of the thread that runs,
    /// with a process at another position: a second one of it is led there.
    pub fn eval_at(
        &mut self,
        process: ProcessId,
        at: Position,
        expression: &str,
        cancel: &Cancel,
    ) -> Result<Seen> {
        let i = self.index(process)?;
        let (member, context) = self.with(i, cancel)?;
        let target = member.probe(context.program, at, cancel)?;
        let looked = target.look();
        let inspector = Inspector::new(context.program.library(), &*looked);
        let stack = inspector.stack(ThreadId(target.thread().0), DEEPEST)?;
        let scope = Scope::new(&inspector, &stack, 0).ok_or(Error::NoFrame)?;
        let value = scope.evaluate(expression)?;
        Ok(seen_in(scope, &value))
    }

    /// The level of the frame to show first where a process stands: in code of a
    /// language's library that is inlined, the user's. Of a breakpoint in an inlined
    /// function it is that function's, which is the innermost there.
    pub fn first_frame(&mut self, process: ProcessId) -> Result<usize> {
        let view = self.at(process)?;
        let inspector = view.inspector();
        let Ok(stack) = view.frames(&inspector, view.target.thread(), 1 + INLINED_MAX) else {
            return Ok(0);
        };
        let own = view.entered.as_ref().and_then(|f| frame_of(&stack, f));
        Ok(own.unwrap_or_else(|| user_frame(&stack)))
    }

    /// The innermost frame of a process with its arguments, in a line.
    pub(crate) fn frame_line(&mut self, i: usize) -> Result<String> {
        let process = self.member(i)?.id;
        let view = self.at(process)?;
        let line = view.in_frame(None, 0, |scope| {
            Ok(backtrace::frame_line(scope, &PrintOptions::default()))
        });
        let line = line.unwrap_or_default();
        Ok(line.trim_start_matches("#0").trim().to_string())
    }

    /// What an expression names in a frame, to be watched.
    pub fn watched(&mut self, frame: FrameRef, text: &str) -> Result<Watched> {
        let process = frame.thread.process;
        let level = frame.level;
        let view = self.at(process)?;
        let running = view.target.thread();
        let thread = frame.thread.thread.unwrap_or(running);
        let image = view.target.maps_version().image;
        let rsp = view.target.running().map(|t| t.registers.sp());
        let (value, seen, inner) = view.in_frame(Some(thread), level, |scope| {
            let value = scope.evaluate(text)?;
            let seen = seen_in(scope, &value);
            let inner = level.checked_sub(1);
            let inner = inner.and_then(|l| scope.stack.frames.get(l)?.cfa);
            Ok((value, seen, inner))
        })?;
        drop(view);
        let size = value.size();
        let Some(address) = value.address().filter(|_| size > 0) else {
            return Err(Error::NotInMemory(text.to_string()));
        };
        if size > Watch::MOST {
            let text = text.to_string();
            return Err(Error::TooLong { text, size });
        }
        let low = inner.or(rsp.map(|rsp| rsp.minus(RED_ZONE)));
        let never = Cancel::new();
        let i = self.index(process)?;
        let (member, context) = self.with(i, &never)?;
        let frame = member.frame_key(context, thread, level)?;
        let is_local = frame
            .as_ref()
            .is_some_and(|f| low.is_some_and(|low| (low..f.cfa).contains(&address)));
        Ok(Watched {
            text: text.to_string(),
            process,
            image,
            parts: Watch::split(address, size).collect(),
            address,
            frame: frame.filter(|_| is_local),
            value,
            seen,
        })
    }
}
