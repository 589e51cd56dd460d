//! What can go wrong while looking at a stopped process.
//!
//! A message is complete in itself: it names what was asked for and why it
//! cannot be had. Nothing here is fatal to a session; the caller shows the
//! message and goes on.

use std::path::PathBuf;

use protocol::id::Addr;

/// Why a question about a stopped process has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        reason: String,
    },
    /// The bytes are not an x86-64 ELF file.
    #[error("{name} is not a readable x86-64 ELF file: {reason}")]
    NotElf {
        /// What the bytes are called.
        name: String,
        /// What is wrong with them.
        reason: String,
    },
    /// Debug information contradicts itself.
    #[error("damaged debug information: {0}")]
    Dwarf(#[from] gimli::Error),
    /// Nothing is mapped there, or the memory was not kept.
    #[error("Cannot access memory at address {address:#x}")]
    Memory {
        /// The first address that could not be read.
        address: Addr,
    },
    /// The compiler did not keep the value.
    #[error("value has been optimized out")]
    OptimizedOut,
    /// A name that nothing has.
    #[error("No symbol \"{name}\" in current context.{hint}")]
    NoSymbol {
        /// The name.
        name: String,
        /// A sentence with the nearest names, or nothing.
        hint: String,
    },
    /// A function name that nothing has.
    #[error("Function \"{name}\" not defined.{hint}")]
    NoFunction {
        /// The name.
        name: String,
        /// A sentence with the nearest names, or nothing.
        hint: String,
    },
    /// A source file that no unit was compiled from.
    #[error("No source file named {name}.{hint}")]
    NoFile {
        /// The name.
        name: String,
        /// A sentence with the nearest names, or nothing.
        hint: String,
    },
    /// No code was made from the line or any after it.
    #[error("No line {line} in file \"{file}\".")]
    NoLine {
        /// The file.
        file: String,
        /// The line.
        line: u64,
    },
    /// The thread is not one of the process.
    #[error("there is no thread {0} in this process")]
    NoThread(u32),
    /// The expression cannot be understood or computed.
    #[error("{message} (column {column})")]
    Expression {
        /// What is wrong.
        message: String,
        /// Where, counted in characters from 1.
        column: usize,
    },
    /// The expression would change the process.
    #[error("{what} would change the process, and what is shown is read-only; {advice}")]
    ReadOnly {
        /// What was asked for, as "calling a function".
        what: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// Any other reason, in one sentence.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// An error that is one sentence.
    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::Other(message.into())
    }
}

/// The result of a question about a stopped process.
pub type Result<T, E = Error> = std::result::Result<T, E>;
