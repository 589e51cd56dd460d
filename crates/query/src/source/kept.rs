//! What replay found, kept beside the recording so that it need not be found
//! again.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use protocol::id::{EventNo, ProcessId, ProcessNo, ThreadNo};
use recording::{Recording, Set};
use serde::{Deserialize, Serialize};

use super::Call;
use crate::names::Functions;

/// Name of the file.
const KEPT: &str = "source.json";
/// Raised whenever what is kept, or how it is found, changes.
const VERSION: u64 = 2;

/// What is kept.
#[derive(Default)]
pub(super) struct Kept {
    /// Calls; `None` for what has no source.
    pub lines: BTreeMap<(ProcessId, EventNo), Option<Call>>,
    /// For how many milliseconds events of a process were looked for in vain.
    pub tried: BTreeMap<ProcessId, u64>,
    /// Functions that threads run, once that was looked for.
    pub threads: Option<Functions>,
}

/// The file. It lies in a recording, so that processes are those of one.
#[derive(Serialize, Deserialize)]
struct File {
    recording: Option<Stamp>,
    lines: Vec<(ProcessNo, EventNo, Option<Call>)>,
    tried: Vec<(ProcessNo, u64)>,
    threads: Option<Vec<(ProcessNo, ThreadNo, String)>>,
}

/// What the recording was when something was found in it: our version, length
/// and times of its journal, and how much there is of its logs (of one that is under
/// way most is not in the journal yet).
type Stamp = (u64, u64, i64, i64, u64);

fn stamp(recording: &Recording) -> Option<Stamp> {
    let meta = std::fs::metadata(recording.dir().join(recording::JOURNAL)).ok()?;
    let logs = recording.processes().iter().map(|own| own.log_bytes).sum();
    Some((VERSION, meta.len(), meta.mtime(), meta.mtime_nsec(), logs))
}

impl Kept {
    /// What was kept; nothing, if that is of another recording.
    pub fn load(set: &Set) -> Kept {
        let mut all = Kept {
            threads: Some(Default::default()),
            ..Kept::default()
        };
        for (recording, member) in set.members().zip(0u16..) {
            let own = Kept::read(recording, member).unwrap_or_default();
            all.lines.extend(own.lines);
            all.tried.extend(own.tried);
            // Known of all, or not known.
            all.threads = all.threads.zip(own.threads).map(|(mut all, own)| {
                all.extend(own);
                all
            });
        }
        all
    }

    fn read(recording: &Recording, member: u16) -> Option<Kept> {
        let text = std::fs::read(recording.dir().join(KEPT)).ok()?;
        let file: File = serde_json::from_slice(&text).ok()?;
        if file.recording != stamp(recording) {
            return None;
        }
        let id = |number: ProcessNo| number.of_member(member);
        let lines = file.lines.into_iter();
        let tried = file.tried.into_iter();
        Some(Kept {
            lines: lines
                .map(|(process, event, call)| ((id(process), event), call))
                .collect(),
            tried: tried.map(|(process, ms)| (id(process), ms)).collect(),
            threads: file.threads.map(|threads| {
                let threads = threads.into_iter();
                threads
                    .map(|(process, thread, name)| ((id(process), thread), name))
                    .collect()
            }),
        })
    }

    /// Where it cannot be written it is found again the next time.
    pub fn save(&self, set: &Set) {
        for (recording, member) in set.members().zip(0u16..) {
            self.save_one(recording, member);
        }
    }

    fn save_one(&self, recording: &Recording, member: u16) {
        let lines = self.lines.iter().filter(|((id, _), _)| id.member == member);
        let tried = self.tried.iter().filter(|(id, _)| id.member == member);
        let file = File {
            recording: stamp(recording),
            lines: lines
                .map(|((process, event), call)| (process.number, *event, call.clone()))
                .collect(),
            tried: tried.map(|(process, ms)| (process.number, *ms)).collect(),
            threads: self.threads.as_ref().map(|threads| {
                let threads = threads.iter().filter(|((id, _), _)| id.member == member);
                threads
                    .map(|((process, thread), name)| (process.number, *thread, name.clone()))
                    .collect()
            }),
        };
        let Ok(text) = serde_json::to_vec(&file) else {
            return;
        };
        let path = recording.dir().join(KEPT);
        let temporary = recording
            .dir()
            .join(format!("{KEPT}.{}", std::process::id()));
        let written = std::fs::write(&temporary, text);
        if written
            .and_then(|()| std::fs::rename(&temporary, &path))
            .is_err()
        {
            let _ = std::fs::remove_file(&temporary);
        }
    }
}
