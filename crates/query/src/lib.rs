//! Every answer about a recording, as a value.
//!
//! A face (the command line, a page, an editor) asks a question here, gets a
//! value that serializes, and only shows it: so all of them say the same. What
//! `--json` prints is these values, one a line; docs/json.md lists their keys.
//!
//! | module | question |
//! |---|---|
//! | [`ps`] | which processes there were |
//! | [`info`] | what a recording is of, and what it lacks |
//! | [`events`] | the events, one by one |
//! | [`why`], [`effects`] | what led to an event, and what it led to |
//! | [`order`] | which of two events came first, and the proof |
//! | [`cut`] | the state of all processes that explains an event |
//! | [`blocked`] | who waits for whom |
//! | [`channels`] | the conversations |
//! | [`verify`] | what came of replaying everything |
//! | [`output`] | what the program wrote to where it was started |
//! | [`syscalls`] | how each system call is treated |
//! | [`export`] | all of it in forms that others have viewers for |
//!
//! [`find`] finds the events and processes that a person means; [`names`] says
//! what threads are called; [`source`] what only replay can tell, which is
//! asked for explicitly: but for it and [`output`] nothing here replays, and nothing changes the
//! recording that it is asked about.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Whatever a recording holds and a person types, an answer or an error comes of it.
#![deny(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable
)]

pub mod blocked;
pub mod channels;
pub mod cut;
pub mod effects;
mod error;
pub mod events;
pub mod export;
pub mod find;
pub mod info;
pub mod link;
pub mod names;
pub mod order;
pub mod output;
pub mod ps;
pub mod shown;
pub mod source;
pub mod syscalls;
pub mod unseen;
pub mod verify;
pub mod walk;
pub mod why;

pub use error::Error;
pub use names::Names;
