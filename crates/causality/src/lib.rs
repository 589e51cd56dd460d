//! What happened before what, across all processes of a recording.
//!
//! ```text
//! logs --sweep--> World: kernel objects and all operations on them
//!                   |
//!                matching: which operation caused which
//!                   |
//!                index: links, clocks, channels, waits; a file beside the recording
//!                   |
//!                History: order, past, future, cuts, paths, who waits for whom
//! ```
//!
//! Nothing was added to the program's messages while it ran. A stream is
//! reliable and in order, so what a receive took follows from what was sent;
//! the rest follows from addresses, bytes and the intervals of time in which
//! the kernel must have done things. [`world`] says how objects are found,
//! [`matching`] how operations are paired, [`clock`] how the past of an event is
//! found fast.
//!
//! Whatever bytes a recording or an index holds, nothing here panics.

#![deny(unsafe_code)]
#![warn(missing_docs)]
// Whatever bytes a recording or an index holds, reading it must not panic.
#![deny(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable
)]

mod channel;
mod clock;
mod explain;
mod files;
mod history;
mod index;
mod interruption;
mod link;
mod matching;
mod names;
mod sweep;
mod waiting;
mod world;

pub use channel::{Channel, ChannelKind, RoundTrips};
pub use explain::{Cause, Limits, Role};
pub use history::{Cut, Error, History, INDEX, Order, Use};
pub use interruption::Interruption;
pub use link::{EventId, Kind, Link};
pub use sweep::Progress;
pub use waiting::{Blocked, Knot, Waiter, Waiting};
pub use world::{MemberClock, WaitFor};
