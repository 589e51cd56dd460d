//! Conditions over several processes: what must never be, what must always be,
//! what leads to what; and the first instant at which something was.
//!
//! Rules are read ([`syntax`]), their names are found and their parts checked
//! ([`rules`]), and they are judged against a history ([`check`]). Everything that
//! decides ([`engine`]) works on moments and their causal order alone: a
//! recording is one kind of [`history::History`], a random one in a test
//! another. What variables hold is asked of a [`truth::Truth`], once; after that
//! it is a matter of order, too.
//!
//! The language is described in docs/conditions.md.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Rules are typed by people, and recordings may say anything: nothing makes it
// panic. What indexes tables that it made itself says so at the head of its file.
#![deny(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable
)]

pub mod check;
pub mod engine;
pub mod history;
pub mod learn;
pub mod recorded;
pub mod rules;
pub mod source;
pub mod states;
pub mod stream;
pub mod syntax;
pub mod timeline;
pub mod truth;
pub mod values;
pub mod verdict;
