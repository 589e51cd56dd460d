//! The pattern language: which events are meant.
//!
//! ```text
//! send and process = bank-client-* and bytes ~ /^transfer 0 /
//! ```
//!
//! A pattern is read into a [`Pattern`] ([`parse`]) without looking at any
//! recording; a [`Matcher`] then tells which events of a recording it fits.
//! Everything that chooses events takes such patterns. The language is
//! described in docs/patterns.md.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Patterns are typed by people: no text makes it panic.
#![deny(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable
)]

mod compiled;
mod glance;
mod lexer;
mod matcher;
mod nearest;
mod parser;
mod pattern;

pub use compiled::{Captured, Compiled};
pub use glance::{Attempt, calls_of, may_become, may_fit};
pub use matcher::{Matcher, glob};
pub use nearest::nearest;
pub use parser::{duration, parse};
pub use pattern::{CLASSES, Condition, FIELDS, Field, Operator, Pattern, Value};

/// A pattern that is none: what is wrong with it, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern is wrong at column {column}: expected {expected}, found {found}")]
pub struct PatternError {
    /// The column, counted from 1.
    pub column: usize,
    /// What could stand there.
    pub expected: String,
    /// What stands there.
    pub found: String,
    /// The word that was perhaps meant.
    pub near: Option<String>,
}
