//! What was true of a process over its run: found once, by one run of it from
//! its beginning to its end, and told as moments in order.
//!
//! An expression over globals and statics ([`changes`]) is evaluated where the
//! run begins, and again whenever memory that it was computed from has changed:
//! what it reads is noted as it is read, so that pointers and containers are
//! followed. Places in the code ([`passes`]) are breakpoints like any other.
//! Nobody who debugs is moved: the process is one of its own.

mod changes;
mod passes;
mod threads;

use inspect::expr::Expression;
use inspect::plain::Plain;
use inspect::print::{PrintOptions, Printer};
use inspect::scope::Scope;
use protocol::id::{ProcessId, ThreadNo};
use target::{Difference, Position};

pub use changes::{Followed, changes};
pub use passes::{Deed, Passing, passes};

/// A place in the run of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at: Position,
    /// The thread that got there.
    pub thread: ThreadNo,
    /// The event before it led here, and nothing else that the program did.
    pub by_event: bool,
}

/// What an expression was.
#[derive(Clone, Debug, PartialEq)]
pub enum Was {
    Number(i128),
    /// A number with a fraction.
    Real(f64),
    Text(Vec<u8>),
    /// What is neither a number nor a text, as it is printed.
    Other(String),
    /// The program that the process executed has nothing of that name.
    Absent,
    /// It could not be computed there, and why.
    Unknown(String),
}

/// From a moment on an expression was this.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    pub moment: Moment,
    /// The thread whose variable it is, where each has one of its own.
    pub owner: Option<ThreadNo>,
    pub was: Was,
}

/// A thread got to a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Passed {
    pub moment: Moment,
    /// The expression there, if one was asked for.
    pub was: Option<Was>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("there is nothing called `{name}`")]
    NoName { name: String, near: Option<String> },
    #[error("the compiler did not keep it")]
    OptimizedOut,
    #[error("the program was built without debug information")]
    NoDebugInformation,
    #[error("it is computed from {0} pieces of memory, more than {most} cannot be watched", most = protocol::replay::WATCHES)]
    TooMuch(usize),
    #[error("the replay differs from the recording at event {}", .0.event)]
    Diverged(Difference),
    #[error("stopped")]
    Cancelled,
    #[error("{0}")]
    Other(crate::Error),
}

impl Trouble {
    /// What was perhaps meant.
    pub fn near(&self) -> Option<&str> {
        match self {
            Trouble::NoName { near, .. } => near.as_deref(),
            _ => None,
        }
    }
}

impl From<crate::Error> for Trouble {
    fn from(error: crate::Error) -> Trouble {
        match error {
            crate::Error::Inspect(error) => error.into(),
            crate::Error::Target(target::Error::Cancelled) => Trouble::Cancelled,
            crate::Error::Target(target::Error::TooMuchWatched(pieces)) => Trouble::TooMuch(pieces),
            error => Trouble::Other(error),
        }
    }
}

impl From<target::Error> for Trouble {
    fn from(error: target::Error) -> Trouble {
        crate::Error::from(error).into()
    }
}

impl From<inspect::Error> for Trouble {
    fn from(error: inspect::Error) -> Trouble {
        // The hint is a sentence with names in quotes.
        let near = |hint: &str| hint.split('"').nth(1).map(str::to_string);
        match error {
            inspect::Error::NoSymbol { name, hint }
            | inspect::Error::NoFunction { name, hint }
            | inspect::Error::NoFile { name, hint } => Trouble::NoName {
                near: near(&hint),
                name,
            },
            inspect::Error::OptimizedOut => Trouble::OptimizedOut,
            error => Trouble::Other(error.into()),
        }
    }
}

/// Which process, and its place among all.
fn index(program: &crate::Program, id: ProcessId) -> Result<protocol::id::ProcessIx, Trouble> {
    let found = program.history()?.index_of(id);
    found.ok_or(Trouble::Other(crate::Error::NoProcess(id)))
}

/// The longest text that is followed.
pub const TEXT_MAX: u64 = 256;

impl crate::Group {
    /// What an expression is in a frame of somebody as it stands.
    pub fn was(&mut self, frame: crate::FrameRef, expression: &str) -> Was {
        let view = self.at(frame.thread.process);
        let told = view.and_then(|view| {
            view.in_frame(frame.thread.thread, frame.level, |scope| {
                was(&scope, &Expression::parse(&scope, expression)?)
            })
        });
        told.unwrap_or_else(|error| Was::Unknown(error.to_string()))
    }
}

/// What an expression is in a frame.
fn was(scope: &Scope<'_>, expression: &inspect::expr::Expression) -> inspect::Result<Was> {
    let process = scope.inspector.process;
    let value = expression.evaluate(scope)?;
    if value.is_optimized_out() {
        return Err(inspect::Error::OptimizedOut);
    }
    Ok(match scope.plain(&value, TEXT_MAX)? {
        Plain::Number(number) => Was::Number(number),
        Plain::Real(number) if number.is_nan() => Was::Unknown("it is not a number".to_string()),
        Plain::Real(number) => Was::Real(number),
        Plain::Text(text) => Was::Text(text),
        Plain::LongText => Was::Unknown(format!("it is a text of more than {TEXT_MAX} bytes")),
        Plain::Other => {
            // What cannot be read says so, and is nothing to be printed.
            value.bytes(process)?;
            Was::Other(Printer::in_scope(*scope, PrintOptions::default()).top(&value))
        }
    })
}
