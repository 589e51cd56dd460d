//! The recording on disk.
//!
//! A recording is a directory:
//!
//! | file | holds |
//! |---|---|
//! | `manifest.json` | format version, what was run where and when, how ticks become time ([`Manifest`]) |
//! | `journal` | frames, appended one after the other ([`frame`]): the chunks of the logs, and what the recorder knows besides |
//! | `files/ID` | files the program ran or mapped, captured once each |
//! | `names.json` | names that people gave to processes and threads ([`names`]), if they did |
//! | `arena` | only while recording, or when it was cut short: the chunks that did not reach the journal yet |
//!
//! Recordings of several hosts can be [joined](join) in one directory; what
//! was recorded on one host or on many is a [`Set`].
//!
//! [`Writer`] makes one; [`Recording`] reads one. Reading is streaming: a
//! [`Log`](log::Log) holds one chunk of one process in memory at a time.
//!
//! Whatever bytes the files hold, nothing here panics, and no length read
//! from them is trusted before it is checked.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Whatever bytes a recording holds, reading it must not panic.
#![deny(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unreachable
)]

mod arena;
pub mod calls;
mod catalog;
pub mod chunk;
pub mod descriptors;
pub mod error;
pub mod event;
pub mod frame;
pub mod growth;
pub mod join;
mod journal;
mod later;
pub mod listing;
pub mod log;
pub mod model;
pub mod names;
pub mod process;
mod recording;
pub mod render;
mod set;
pub mod sockaddr;
pub mod survey;
#[cfg(any(test, feature = "synthetic"))]
pub mod synthetic;
pub mod timeline;
pub mod writer;

pub use catalog::CATALOG;
pub use error::{OpenError, WriteError};
pub use event::{Event, Phase};
pub use journal::Damage;
pub use log::{Log, LogEnd};
pub use model::{
    Clock, FileInfo, ImageStart, Manifest, Mapping, Network, Note, Status, Summary, cpu_model,
};
pub use names::ThreadNames;
pub use process::{Exit, Life, Process, thread_name};
pub use recording::{Image, Recording};
pub use set::Set;
pub use timeline::Timeline;
pub use writer::Writer;

use std::path::{Path, PathBuf};

/// Name of the manifest in a recording.
pub const MANIFEST: &str = "manifest.json";
/// Name of the journal in a recording.
pub const JOURNAL: &str = "journal";
/// Name of the directory of captured files.
pub const FILES: &str = "files";
/// Name of the arena, present while recording or when it was cut short.
pub const ARENA: &str = "arena";

/// Where the captured file `id` of the recording in `dir` is kept.
pub fn captured_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(FILES).join(id.to_string())
}
