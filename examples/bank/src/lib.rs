//! What the four programs of the bank share.
//!
//! See README.md for who talks to whom. The programs are in `src/bin`.

pub mod address;
pub mod bank;
pub mod failure;
pub mod line;
pub mod protocol;
pub mod service;
pub mod workload;

pub use failure::{Failure, Result};
