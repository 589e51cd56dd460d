//! Symbols, lines, stacks, variables and expressions of a stopped process.
//!
//! This crate knows nothing of recordings, replay or ptrace: a process is
//! whatever implements [`Process`], which reads memory and registers and lists
//! mappings. Nothing here writes to a process, prints, or keeps state between
//! questions but what it learned from files ([`Library`]), which all processes
//! share. Whatever bytes a file or a process holds, nothing here panics.
//!
//! | question | where |
//! |---|---|
//! | which code is at an address, which line, which symbol | [`Inspector::line_at`], [`Inspector::function_name`], [`Inspector::symbolize`] |
//! | where are `main`, `file.c:12`, `*0x401000` | [`Inspector::resolve`], [`Inspector::find_functions`], [`Inspector::find_line`] |
//! | the source text | [`Library::sources`] |
//! | the stack of a thread | [`Inspector::stack`], as text [`print::backtrace`] |
//! | which of its frames to show first | [`frames::user_frame`], [`frames::frame_of`] |
//! | the variables of a frame | [`scope::Scope`] |
//! | a value as text | [`print::Printer`] |
//! | what a value says: a number, a text | [`plain::Plain`] |
//! | what a value is made of, a page at a time | [`tree::Tree`] |
//! | whether a value has changed | [`value::Value::snapshot`] |
//! | an expression, once or as a condition many times | [`scope::Scope::evaluate`], [`expr::Expression`] |
//! | `ptype` | [`types::describe`] |
//! | `x/FMT`, `disassemble`, `info registers` | [`Inspector::examine`], [`Inspector::disassemble`], [`Inspector::register_lines`] |
//! | stepping | [`stepping`] |
//!
//! ```no_run
//! use inspect::{Inspector, Library, Options, Process};
//! use inspect::core::CoreFile;
//! use inspect::print::{PrintOptions, Printer, backtrace};
//! use inspect::scope::Scope;
//!
//! # fn main() -> inspect::Result<()> {
//! let library = Library::new(Options::default()); // once, for all processes
//! let process = CoreFile::open("core".as_ref())?; // or any other `Process`
//! let inspector = Inspector::new(&library, &process); // once for each stop
//! let thread = process.threads()[0];
//! let stack = inspector.stack(thread, 1000)?;
//! let text = backtrace::backtrace(&inspector, &stack, &PrintOptions::default());
//! if let Some(scope) = Scope::new(&inspector, &stack, 0) {
//!     let value = scope.evaluate("head->next->name")?;
//!     let shown = Printer::in_scope(scope, PrintOptions::default()).top(&value);
//!     for line in backtrace::variables(scope, &scope.locals(), &PrintOptions::default()) {
//!         // name = value
//!     }
//! }
//! for place in inspector.resolve("server.c:120", None)? {
//!     // place.address is where a breakpoint goes
//! }
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Whatever bytes an executable or a stopped process holds, looking must not panic.
#![deny(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable
)]

pub(crate) mod containers;
pub mod core;
pub mod disassemble;
pub mod dwarf;
pub mod elf;
pub mod error;
pub mod examine;
pub mod expr;
mod flow;
pub mod frames;
mod inlined;
pub mod inspector;
pub mod location;
pub mod lookup;
pub mod module;
pub mod plain;
pub mod print;
pub mod registers;
pub mod scope;
pub mod snapshot;
pub mod source;
pub mod stepping;
mod tailcalls;
pub mod target;
pub(crate) mod tls;
pub mod tree;
pub mod types;
pub mod unwind;
pub mod value;

pub use error::{Error, Result};
pub use inspector::Inspector;
pub use module::{Library, Options};
pub use target::{Content, Mapping, Process, Registers, ThreadId};
