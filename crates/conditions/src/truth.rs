//! What variables hold, and where threads pass: asked of whoever can replay.
//!
//! The answers are stretches and moments of one process's run; what follows
//! from them over several processes needs no replay.

use crate::history::At;
use crate::syntax::ast::Deed;

/// A thread got to a place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Where in the run of its process.
    pub at: At,
    /// When, in nanoseconds since the recording began: the time of the last
    /// event before it.
    pub time: u64,
    /// Number of the thread.
    pub thread: u32,
}

/// What an expression of the source was.
#[derive(Clone, Debug, PartialEq)]
pub enum Was {
    /// The program has nothing of that name, or nothing is known of it yet.
    Absent,
    /// A whole number; what is only true or false is 1 or 0.
    Number(i128),
    /// A number with a fraction.
    Real(f64),
    /// A text.
    Text(Vec<u8>),
    /// It could not be computed there.
    Unknown,
}

/// From a place on an expression was this.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Where.
    pub at: At,
    /// When that was recorded, in nanoseconds.
    pub time: u64,
    /// What it was from there on.
    pub was: Was,
}

/// A question that could not be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Why: no such variable, optimized away, no debug information.
    pub why: String,
    /// What was perhaps meant.
    pub near: Option<String>,
}

/// What is asked for, in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'q> {
    /// The process, by its place in the list of the history.
    pub process: usize,
    /// Only in threads of these names; `*` and `?` stand for anything.
    pub thread: Option<&'q str>,
    /// The expression, or what a place is passed on condition of.
    pub expression: Option<&'q str>,
    /// The function, line, label or variable, and what is done there.
    pub place: Option<(Deed, &'q str)>,
}

/// Answers questions about the source. The steps of all answers about one
/// process are in one measure: of two moments between the same events the one
/// with the smaller step was first.
pub trait Truth {
    /// Says what will be asked, before anything is: for values, and for passes.
    fn prepare(&mut self, _values: &[Question<'_>], _passes: &[Question<'_>]) {}

    /// The value of an expression over the run of a process, changes only. With
    /// a place: its value whenever a thread got there, until the next time. Where
    /// each thread has one of its own, there is one list for each of them.
    fn values(&mut self, question: &Question<'_>) -> Result<Vec<Vec<Changed>>, Trouble>;

    /// The moments at which threads got to a place, in order.
    fn passes(&mut self, question: &Question<'_>) -> Result<Vec<Pass>, Trouble>;
}

/// Nobody who could answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Nobody {
    fn trouble() -> Trouble {
        Trouble {
            why: "expressions over variables and places in the source cannot be asked here"
                .to_string(),
            near: None,
        }
    }
}

impl Truth for Nobody {
    fn values(&mut self, _: &Question<'_>) -> Result<Vec<Vec<Changed>>, Trouble> {
        Err(Nobody::trouble())
    }

    fn passes(&mut self, _: &Question<'_>) -> Result<Vec<Pass>, Trouble> {
        Err(Nobody::trouble())
    }
}
