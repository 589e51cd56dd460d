//! What `mw` and its agents on other hosts say to each other.
//!
//! Over ssh's pipe, a unix socket or TLS alike: bytes in order, both ways.
//! Each side begins with an [`opening`]; then come frames ([`frame`]), each
//! with one [`ToAgent`] or one [`FromAgent`].
//!
//! Every request has an id that its sender chose. Its answers carry the id;
//! there may be many, and several requests may be under way at once. One
//! [`FromAgent::End`] says that no more will come. Whoever asked may
//! [cancel](ToAgent::Cancel) at any time, and then waits for that end.
//!
//! The other side may be anybody: no length is believed before it is checked,
//! nothing is kept that is longer than [`frame::MAX`], and no bytes make this
//! crate panic.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![deny(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable
)]

pub mod frame;
mod message;
pub mod opening;

pub use frame::Error;
pub use message::*;
