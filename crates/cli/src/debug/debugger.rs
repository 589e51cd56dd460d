//! What the prompt has at hand: a process, a thread and a frame of the group that
//! it shows, and how it is to be moved.

use std::sync::Arc;

use ::session::{
    Direction, Error, Follow, FrameRef, Group, How, Move, Positions, Program, Reason, Stopped,
    ThreadRef, View, Who,
};
use ::target::{Cancel, Position};
use inspect::Inspector;
use inspect::frames::Stack;
use inspect::scope::Scope;
use instants::Conditions;
use protocol::id::{Addr, ProcessId, ProcessIx, ThreadNo};
use query::Names;

use crate::failure::Failure;

/// Who is moved with the process at hand, and how far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All, to where they must have come.
    Causal,
    /// All, as far as they can have come.
    Consistent,
    /// Nobody.
    Alone,
}

/// What was at hand, and where everybody was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instant {
    pub process: ProcessId,
    pub positions: Positions,
}

/// A checkpoint that the user made.
#[derive(Clone)]
pub struct Named {
    pub number: u32,
    pub at: Position,
    pub instant: Instant,
}

pub struct Debugger {
    pub group: Group,
    /// The process at hand.
    pub process: ProcessId,
    /// The thread that is looked at, if not the one that runs, and the frame.
    pub thread: Option<ThreadNo>,
    pub frame: usize,
    pub mode: Mode,
    pub named: Vec<Named>,
    /// What is stopped at, traced and run where something holds over several processes.
    pub conditions: Conditions,
    /// Of the line that is executed.
    pub cancel: Cancel,
}

impl Debugger {
    pub fn open(program: &Arc<Program>) -> Result<Debugger, Failure> {
        // Nothing is replayed before it is looked at: the logs may be long.
        let group = Group::new(program)?;
        let first = group.members().first().map(|member| member.id);
        Ok(Debugger::of(group, first.ok_or(Error::NoProcesses)?))
    }

    /// One that has a process of a group at hand.
    pub fn of(group: Group, process: ProcessId) -> Debugger {
        Debugger {
            process,
            group,
            thread: None,
            frame: 0,
            mode: Mode::Causal,
            named: Vec::new(),
            conditions: Conditions::default(),
            cancel: Cancel::new(),
        }
    }

    /// Whether the program is alive.
    pub fn is_alive(&self) -> bool {
        self.group.program().is_alive()
    }

    pub fn name(&self, process: ProcessId) -> String {
        let members = self.group.members().into_iter();
        let mut own = members.filter(|member| member.id == process);
        own.next().map_or(String::new(), |member| member.name)
    }

    /// What the threads of a program that was recorded are called.
    pub fn names(&self) -> Result<&Names, Failure> {
        Ok(self.group.program().names()?)
    }

    /// What a thread is called.
    pub fn thread_name(&mut self, process: ProcessId, thread: ThreadNo) -> Result<String, Failure> {
        if !self.is_alive() {
            return Ok(self.group.program().thread_name(process, thread));
        }
        let view = self.group.at(process)?;
        let name = view.target().thread_name(thread);
        Ok(name.unwrap_or_else(|| format!("thread {thread}")))
    }

    /// Where the process at hand stands in the history.
    pub fn index(&self) -> Result<ProcessIx, Failure> {
        let found = self.group.history()?.index_of(self.process);
        Ok(found.ok_or(Error::NoProcess(self.process))?)
    }

    /// Where the process at hand stands.
    pub fn position(&self) -> Result<Position, Failure> {
        Ok(self.group.position(self.process)?)
    }

    /// Where everything is now.
    pub fn instant(&self) -> Instant {
        Instant {
            process: self.process,
            positions: self.group.positions(),
        }
    }

    /// Takes another process at hand.
    pub fn choose(&mut self, process: ProcessId) {
        self.process = process;
        self.thread = None;
        self.frame = 0;
    }

    /// The process at hand, as it stands.
    pub fn view(&mut self) -> Result<View<'_>, Failure> {
        Ok(self.group.at(self.process)?)
    }

    /// The frame at hand.
    pub fn frame_ref(&self) -> FrameRef {
        FrameRef {
            thread: ThreadRef {
                process: self.process,
                thread: self.thread,
            },
            level: self.frame,
        }
    }

    /// Looks at the process and the thread at hand.
    pub fn look<T>(
        &mut self,
        question: impl FnOnce(&Inspector<'_>, &View<'_>, Option<&Stack>) -> T,
    ) -> Result<T, Failure> {
        let thread = self.thread;
        let view = self.view()?;
        let inspector = view.inspector();
        let stack = view.stack(&inspector, thread);
        Ok(question(&inspector, &view, stack.as_ref()))
    }

    /// Runs a question in the scope of the frame at hand.
    pub fn in_frame<T>(
        &mut self,
        question: impl FnOnce(&Inspector<'_>, Scope<'_>) -> Result<T, inspect::Error>,
    ) -> Result<T, Failure> {
        let frame = self.frame;
        self.look(|inspector, _, stack| {
            let scope = stack.and_then(|stack| Scope::new(inspector, stack, frame));
            match scope {
                Some(scope) => question(inspector, scope).map_err(Failure::new),
                None => Err(Error::NoFrame.into()),
            }
        })?
    }

    /// The address that an expression stands for.
    pub fn address(&mut self, expression: &str) -> Result<Addr, Failure> {
        // This needs no frame.
        let digits = expression.trim().strip_prefix("0x");
        if let Some(address) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            return Ok(Addr(address));
        }
        self.in_frame(|inspector, scope| scope.evaluate(expression)?.to_address(inspector.process))
    }

    /// Moves. What was stopped is at hand then.
    pub fn go(&mut self, how: How, direction: Direction, only: bool) -> Result<Stopped, Failure> {
        self.choose_alive()?;
        let motion = self.motion(how, direction, only);
        self.follow_motion(&motion)
    }

    /// A motion as it is asked for: of the process at hand, in the way that is set.
    pub fn motion(&self, how: How, direction: Direction, only: bool) -> Move {
        Move {
            who: match self.mode == Mode::Alone || only {
                true => Who::One,
                false => Who::All,
            },
            process: self.process,
            // Frames are of the thread that is looked at; others step as they ran. In a
            // program that is alive it is the one to step.
            thread: self
                .thread
                .filter(|_| matches!(how, How::Finish { .. }) || self.is_alive()),
            how,
            direction,
            follow: self.follow(),
        }
    }

    /// Moves so. Who was stopped is at hand then.
    pub fn follow_motion(&mut self, motion: &Move) -> Result<Stopped, Failure> {
        let stopped = self.group.go(motion, &self.cancel);
        self.thread = None;
        self.frame = 0;
        let stopped = stopped?;
        self.process = stopped.process;
        self.frame = self.group.first_frame(stopped.process)?;
        Ok(stopped)
    }

    /// Takes another process at hand if that one is not alive any more.
    fn choose_alive(&mut self) -> Result<(), Failure> {
        let members = self.group.members();
        let is_over = |m: &&::session::MemberInfo| m.id == self.process && m.is_empty;
        if !self.is_alive() || !members.iter().any(|member| is_over(&member)) {
            return Ok(());
        }
        match members.iter().find(|member| !member.is_empty) {
            Some(member) => self.choose(member.id),
            None => {
                return Err(Failure::new("all processes have ended")
                    .hint("`quit` leaves; there is nothing that could run"));
            }
        }
        Ok(())
    }

    pub fn follow(&self) -> Follow {
        match self.mode {
            Mode::Consistent => Follow::Consistent,
            Mode::Causal | Mode::Alone => Follow::Causal,
        }
    }

    /// To where everything was before.
    pub fn restore(&mut self, instant: &Instant) -> Result<Stopped, Failure> {
        self.group.restore(&instant.positions);
        self.choose(instant.process);
        self.stands()
    }

    /// Where the process at hand stands, without a reason; its first frame is at hand
    /// then.
    pub fn stands(&mut self) -> Result<Stopped, Failure> {
        let process = self.process;
        let thread = self.view()?.target().thread();
        let stopped = Stopped {
            process,
            thread,
            at: self.position()?,
            reason: Reason::Arrived,
            traced: Vec::new(),
        };
        self.frame = self.group.first_frame(process)?;
        Ok(stopped)
    }
}
