//! Conditions in the debugger: where a group of processes is led because something
//! holds over several of them.
//!
//! `conditions` knows what rules mean and when they hold; `session` moves processes and
//! finds out by replay what variables were. Neither knows the other. Here they meet:
//!
//! | concept | file |
//! |---|---|
//! | what replay tells of variables and places, kept beside the recording | `replays`, `kept` |
//! | places between events, on both sides | `steps` |
//! | what is stopped at, traced and run on condition | `table` |
//! | the next instant from where a group stands, and the last before | `motion` |
//! | programs that are alive and not recorded: who was seen at places of the source | `passed` |
//! | programs that are alive: what comes in a recording while it grows, and whether what is new in it may matter | `growing`, `tail` |

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod growing;
mod kept;
mod motion;
mod passed;
mod replays;
mod steps;
mod table;
mod tail;

pub use growing::{Frontier, Patience, Untold, Watch};
pub use motion::{Fires, Instant, Next, Part};
pub use passed::{Location, Standing};
pub use replays::Replays;
pub use steps::{Stand, Steps};
pub use table::{Added, Conditions, Does, Entry, Error, Said, Traced};
