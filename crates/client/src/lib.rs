//! For servers: whether a peer is halted by a debugger, and what time it is for it.
//!
//! A program under Meanwhile can be halted without noticing: its clocks stand. A server
//! outside of it sees a client that is silent for minutes, and takes its lease away. One
//! that wants to be fair asks here:
//!
//! ```no_run
//! # fn f(stream: &std::os::unix::net::UnixStream, granted: u64, length: u64) -> std::io::Result<()> {
//! let now = meanwhile_client::now();
//! let elapsed = match meanwhile_client::peer_of(stream)? {
//!     // By the client's own clock.
//!     Some(peer) => peer.logical(now) - peer.logical(granted),
//!     // Nobody debugs it.
//!     None => now - granted,
//! };
//! let is_over = elapsed >= length;
//! # Ok(()) }
//! ```
//!
//! The answer comes from the agent of the peer's user, through a socket in a directory of
//! that user's; the kernel says on both sides who is at the other end. Only that user and
//! root get one. Times are of CLOCK_MONOTONIC, in nanoseconds.

mod ask;
mod c;
mod time;

pub use ask::{peer, peer_of};
pub use time::{Peer, now};
