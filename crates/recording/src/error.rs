//! What can go wrong, said so that a person knows what to do.

use std::io;
use std::path::{Path, PathBuf};

/// A recording could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk, or the user's share of it, is full, or files may not become
    /// that long.
    #[error("no space left for the recording: {}", path.display())]
    Full {
        /// The file that could not grow.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something else the kernel refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// A verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The directory is in use.
    #[error("{} already holds a recording; choose another directory", .0.display())]
    Exists(PathBuf),
    /// The bytes handed over are not a chunk of a log.
    #[error("not a chunk of a log ({0})")]
    NotAChunk(&'static str),
    /// A payload cannot be encoded or is too long for a frame.
    #[error("cannot encode a {what} for the journal: {why}")]
    Encode {
        /// Kind of frame.
        what: &'static str,
        /// Why.
        why: String,
    },
}

impl WriteError {
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> WriteError {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => WriteError::Full { path, source },
            _ => WriteError::Io { what, path, source },
        }
    }

    /// Whether the disk (or quota) is full.
    pub fn is_full(&self) -> bool {
        matches!(self, WriteError::Full { .. })
    }

    /// The kind of the underlying I/O error ([`io::ErrorKind::Other`] if none).
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            WriteError::Full { source, .. } | WriteError::Io { source, .. } => source.kind(),
            WriteError::Exists(_) => io::ErrorKind::AlreadyExists,
            _ => io::ErrorKind::Other,
        }
    }
}

/// A recording could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing is there.
    #[error("there is no recording at {}", .0.display())]
    NotFound(PathBuf),
    /// Something else is there.
    #[error("{} is not a recording: {why}", path.display())]
    NotARecording {
        /// What was given.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// The manifest does not say what it must.
    #[error("the manifest {} is damaged: {why}", path.display())]
    BadManifest {
        /// The manifest.
        path: PathBuf,
        /// Where and what.
        why: String,
    },
    /// The names that people gave cannot be read.
    #[error("the names in {} are damaged: {why}", path.display())]
    BadNames {
        /// The file.
        path: PathBuf,
        /// Where and what.
        why: String,
    },
    /// Written by a later Meanwhile.
    #[error(
        "{} was recorded in format {format}; this mw reads formats up to {}",
        path.display(),
        protocol::FORMAT_VERSION
    )]
    Newer {
        /// The recording.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Part of the recording is missing.
    #[error("{} is incomplete: {missing} is missing", path.display())]
    Missing {
        /// The recording.
        path: PathBuf,
        /// What is missing of it.
        missing: &'static str,
    },
    /// The kernel would not let us.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(path: &Path, source: io::Error) -> OpenError {
        OpenError::Io {
            path: path.to_path_buf(),
            source,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            OpenError::NotFound(_) | OpenError::NotARecording { .. } => {
                "a recording is the directory that `mw record` made"
            }
            OpenError::BadManifest { .. } => "copy the recording again from where it was made",
            OpenError::BadNames { .. } => "mend the file, or remove it and name things again",
            OpenError::Newer { .. } => "read it with the mw that recorded it, or a later one",
            OpenError::Missing { .. } => "copy the whole directory, not only some of its files",
            OpenError::Io { .. } => return None,
        })
    }
}
