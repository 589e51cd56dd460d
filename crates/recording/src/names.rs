//! Names that people gave to processes and threads, kept with the recording.
//!
//! They are in a file of their own, because nothing that reads a recording
//! changes what was recorded.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use protocol::id::{ProcessId, ProcessNo, ThreadNo};
use serde::{Deserialize, Serialize};

use crate::error::{OpenError, WriteError};
use crate::process;
use crate::recording::Recording;

/// Name of the file in a recording.
pub const NAMES: &str = "names.json";

/// The names, by number of the process and of the thread in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Of processes.
    #[serde(default)]
    pub processes: BTreeMap<ProcessNo, String>,
    /// Of threads.
    #[serde(default)]
    pub threads: BTreeMap<ProcessNo, BTreeMap<ThreadNo, String>>,
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

/// What the threads of a recording are called, as far as whoever made this
/// knows: the names that people gave them, and those that they gave themselves
/// or that were found out otherwise. Cheap to copy.
///
/// Numbers of processes are unique within a member of a [set](crate::Set) only:
/// the names are those of one member, and [`ThreadNames::member`] leads to the
/// others.
#[derive(Clone, Debug, Default)]
pub struct ThreadNames {
    members: Arc<Vec<Known>>,
    /// The member that is asked about.
    at: u16,
}

#[derive(Clone, Debug, Default)]
struct Known {
    given: BTreeMap<ProcessNo, BTreeMap<ThreadNo, String>>,
    found: HashMap<(ProcessNo, ThreadNo), String>,
}

impl ThreadNames {
    /// The names that people gave.
    pub fn given(recording: &Recording) -> ThreadNames {
        ThreadNames::found(recording, [])
    }

    /// The names that people gave, and these: number of the process, of the
    /// thread, name. (They are spread over the logs, or come from elsewhere.)
    pub fn found(
        recording: &Recording,
        names: impl IntoIterator<Item = (ProcessNo, ThreadNo, String)>,
    ) -> ThreadNames {
        let found = names.into_iter();
        let known = Known {
            given: recording.names().threads.clone(),
            found: found
                .map(|(process, thread, name)| ((process, thread), name))
                .collect(),
        };
        ThreadNames {
            members: Arc::new(vec![known]),
            at: 0,
        }
    }

    /// The names in all members of a set, each given by itself.
    pub fn of_members(members: impl IntoIterator<Item = ThreadNames>) -> ThreadNames {
        let known = members.into_iter().map(|names| names.known().clone());
        ThreadNames {
            members: Arc::new(known.collect()),
            at: 0,
        }
    }

    /// The names in another member of the set.
    pub fn member(&self, number: u16) -> ThreadNames {
        ThreadNames {
            members: Arc::clone(&self.members),
            at: number,
        }
    }

    fn known(&self) -> &Known {
        static NONE: std::sync::LazyLock<Known> = std::sync::LazyLock::new(Known::default);
        self.members.get(usize::from(self.at)).unwrap_or(&NONE)
    }

    /// The name of a thread: the one that people gave it, the one that was
    /// found, or its place among the threads of its process.
    pub fn thread(&self, process: ProcessNo, thread: ThreadNo) -> String {
        let given = self
            .known()
            .given
            .get(&process)
            .and_then(|t| t.get(&thread));
        match given.or_else(|| self.known().found.get(&(process, thread))) {
            Some(name) => name.clone(),
            None => process::thread_name(thread),
        }
    }

    /// The name of a thread of a process of any member.
    pub fn of(&self, process: ProcessId, thread: ThreadNo) -> String {
        self.member(process.member).thread(process.number, thread)
    }

    /// The thread of a process with this name.
    pub fn thread_named(&self, process: ProcessNo, name: &str) -> Option<ThreadNo> {
        let given = self.known().given.get(&process);
        let given = given.and_then(|t| t.iter().find(|(_, n)| *n == name).map(|(i, _)| *i));
        let found = || {
            let all = self.known().found.iter();
            all.filter(|((p, _), own)| *p == process && *own == name)
                .map(|((_, thread), _)| *thread)
                .min()
        };
        given
            .or_else(found)
            .or_else(|| process::thread_number(name))
    }

    /// Whether a thread of any process of any member was given or found to have this name.
    pub fn has(&self, name: &str) -> bool {
        self.all().any(|own| own == name)
    }

    /// Names that are not only numbers, in all members.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.members.iter().flat_map(|known| {
            let given = known.given.values().flat_map(|threads| threads.values());
            given.chain(known.found.values()).map(String::as_str)
        })
    }
}

/// Whether a word can be a name: one that `NAME:NUMBER` and lists of names
/// can be told apart with.
pub fn is_name(word: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_.@+".contains(c);
    !word.is_empty() && word.chars().all(plain) && word.len() <= 64
}
