//! Names that people gave to processes and threads, kept with the recording.
//!
//! They are in a file of their own, because nothing that reads a recording
//! changes what was recorded.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{OpenError, WriteError};

/// Name of the file in a recording.
pub const NAMES: &str = "names.json";

/// The names, by number of the process and of the thread in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Of processes.
    #[serde(default)]
    pub processes: BTreeMap<u32, String>,
    /// Of threads.
    #[serde(default)]
    pub threads: BTreeMap<u32, BTreeMap<u32, String>>,
}

impl Names {
    /// The names in the recording in `dir`; none if nobody gave any.
    pub fn load(dir: &Path) -> Result<Names, OpenError> {
        let path = dir.join(NAMES);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Names::default()),
            Err(error) => return Err(OpenError::io(&path, error)),
        };
        serde_json::from_slice(&text).map_err(|error| OpenError::BadNames {
            path,
            why: error.to_string(),
        })
    }

    /// Keeps the names with the recording in `dir`.
    pub fn save(&self, dir: &Path) -> Result<(), WriteError> {
        let path = dir.join(NAMES);
        let text = serde_json::to_vec_pretty(self).map_err(|error| WriteError::Encode {
            what: "list of names",
            why: error.to_string(),
        })?;
        // Whole or not at all.
        let temporary = dir.join(format!("{NAMES}.{}", std::process::id()));
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|error| WriteError::io("write", &path, error))
    }
}

/// Whether a word can be a name: one that `NAME:NUMBER` and lists of names
/// can be told apart with.
pub fn is_name(word: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_.@+".contains(c);
    !word.is_empty() && word.chars().all(plain) && word.len() <= 64
}
