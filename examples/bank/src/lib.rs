//! A bank in five kinds of process: what its binaries share.
//!
//! See README.md for who talks to whom. The binaries are in `src/bin`, one per kind of process.

pub mod bank;
pub mod failure;
pub mod line;
pub mod protocol;
pub mod service;
pub mod workload;

pub use failure::{Failure, Result};
