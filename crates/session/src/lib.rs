//! The debugger, as a library.
//!
//! A [`Group`] is the processes of a program at a cut. It is moved
//! ([`Group::go`]) all at once or one process at a time, forwards and back, and
//! looked into: every question names the process it is about ([`Group::at`]),
//! or process, thread and frame ([`FrameRef`]), and moves nobody. What it stops
//! at is kept as the user said it ([`StopTable`]) and looked up in each process,
//! and in each program that a process executes, when it gets there.
//!
//! Nothing here prints, and nothing knows how processes are moved: that is behind
//! the traits of the `target` crate. Which process, thread or frame is "at hand"
//! is the affair of who shows all this.
//!
//! | concept | file |
//! |---|---|
//! | what groups on one program share | `program` |
//! | a process of a group: where it is said to be, what is known of its way | `member` |
//! | what to stop at, as the user said it | `stops`, `watched`, `caught` |
//! | the same for one process as it stands | `plan`, `conditions`, `bytecode` |
//! | the next stop of one process, and the last | `search`, `search_back`, `found` |
//! | steps: lines, instructions, out of functions, and their reverse | `stepping`, `stepping_back` |
//! | motion of the whole: search, then commit | `motion`, `commit`, `decide` |
//! | the stops that were come to, in their order | `trail` |
//! | motion of a program that is alive, and what only that can | `alive` |
//! | variables that are set, functions that are called | `change` |
//! | who of a program that is alive is who in its recording | `counterparts` |
//! | everybody to places of their own | `cut` |
//! | questions | `view` |
//! | what was true over the run of a process | `truth` |
//! | a group on a thread of its own | `handle` |
//! | a group that looks while another one moves | `aside` |

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)]

mod alive;
mod aside;
mod before;
mod bytecode;
mod caught;
mod change;
mod commit;
mod conditions;
mod counterparts;
mod cut;
mod decide;
mod error;
mod found;
mod group;
mod handle;
mod inlined;
mod member;
mod motion;
mod plan;
mod program;
mod reason;
mod search;
mod search_back;
mod stepping;
mod stepping_back;
mod stops;
mod trail;
pub mod truth;
mod view;
mod watched;

pub use aside::Aside;
pub use caught::Caught;
pub use change::Called;
pub use counterparts::{Counterparts, Side};
pub use error::{Error, Result};
pub use group::{Group, MemberInfo, Positions};
pub use handle::{Answer, Handle};
pub use motion::{Direction, Follow, How, Move, Who};
pub use program::Program;
pub use reason::{Change, Reason, Seen, Stopped, Traced};
pub use stops::{CodeLocation, Point, StopTable, What, Whom, address_in, locations};
pub use view::{FrameInfo, FrameRef, ThreadRef, Variable, Variables, View};
pub use watched::{FrameKey, Watched};
