//! Symbols, lines, stacks, variables and expressions of a stopped process.

pub mod core;
pub mod dwarf;
pub mod elf;
pub mod containers;
pub mod error;
pub mod expr;
pub mod examine;
pub mod frames;
pub mod inspector;
pub mod location;
pub mod lookup;
pub mod module;
pub mod print;
pub mod scope;
pub mod source;
pub mod target;
mod tailcalls;
pub(crate) mod tls;
pub mod types;
pub mod unwind;
pub mod value;

pub use error::{Error, Result};
pub use inspector::Inspector;
pub use module::{Library, Options};
pub use target::{Content, Mapping, Process, Registers, ThreadId};
