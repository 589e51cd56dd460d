//! What a recording is of, how large it is, and what it lacks.

use protocol::id::ProcessNo;
use recording::{Note, Recording};
use serde::Serialize;

/// What reads the outside without a system call, and is in no log.
pub const NOT_SEEN: [&str; 1] = [crate::unseen::WHERE];

/// What there is to know of a recording as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Its directory.
    pub recording: String,
    /// Version of the format.
    pub format: u32,
    /// What was run.
    pub command: Vec<String>,
    /// Where.
    pub cwd: String,
    /// On which host.
    pub host: String,
    /// Which kernel.
    pub kernel: String,
    /// Which processor.
    pub cpu: String,
    /// As whom.
    pub user: String,
    /// When, since 1970.
    pub started_ns: u64,
    /// For how long.
    pub duration_ns: u64,
    /// Whether it holds the whole run.
    pub complete: bool,
    /// Whether it holds the whole run, in words.
    pub state: &'static str,
    /// Exit status of the command.
    pub exit: Option<i32>,
    /// How many processes.
    pub processes: usize,
    /// How many threads.
    pub threads: u64,
    /// How many events.
    pub events: u64,
    /// How often threads were interrupted in the middle of computation.
    pub preemptions: u64,
    /// Places that make system calls which were patched.
    pub patched_sites: u64,
    /// Length of all logs.
    pub log_bytes: u64,
    /// Of that, the program's data.
    pub log_data_bytes: u64,
    /// Length of all logs in the journal.
    pub log_compressed_bytes: u64,
    /// Length of the journal.
    pub journal_bytes: u64,
    /// How many files were captured.
    pub files: usize,
    /// How long they are.
    pub file_bytes: u64,
    /// What was refused or could not be recorded.
    pub notes: Vec<Noted>,
    /// What the recorder did not see.
    pub not_seen: [&'static str; 1],
    /// What is wrong with the recording.
    pub problems: Vec<Problem>,
}

/// Something that was not recorded, or is otherwise of note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Noted {
    /// Name of the process it is about.
    pub process: String,
    /// In one word.
    pub kind: String,
    /// In a sentence.
    pub text: String,
}

/// What is wrong with a recording; serialized in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The end of the journal is torn.
    Torn {
        /// How many bytes.
        bytes: u64,
    },
    /// Bytes in the middle of the journal are damaged.
    Damaged {
        /// How many.
        bytes: u64,
        /// Where.
        at: u64,
    },
    /// The log of a process does not end as it should.
    Log {
        /// Name of the process.
        process: String,
        /// How it ends.
        end: String,
    },
    /// A captured file is not there.
    Missing {
        /// Its number.
        file: u64,
        /// Where it was.
        path: String,
    },
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Torn { bytes } => {
                write!(f, "the last {} of the journal are torn", size(*bytes))
            }
            Problem::Damaged { bytes, at } => {
                let bytes = size(*bytes);
                write!(f, "{bytes} of the journal are damaged, at offset {at}")
            }
            Problem::Log { process, end } => write!(f, "{process}: {end}"),
            Problem::Missing { file, path } => {
                write!(f, "captured file {file} is missing ({path})")
            }
        }
    }
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A number of bytes for people.
pub fn size(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

impl Facts {
    /// Looks at all of a recording.
    pub fn new(recording: &Recording) -> Facts {
        let survey = recording.survey();
        let summary = recording.summary();
        let end = summary.map_or(survey.total.last_time, |summary| summary.time);
        let mut problems = Vec::new();
        for damage in recording.damage() {
            let bytes = damage.len;
            problems.push(match damage.is_tail {
                true => Problem::Torn { bytes },
                false => Problem::Damaged {
                    bytes,
                    at: damage.at,
                },
            });
        }
        for (number, end) in &survey.ends {
            problems.push(Problem::Log {
                process: name(recording, *number),
                end: end.to_string(),
            });
        }
        for file in recording.files() {
            if !recording.captured_path(file.id).exists() {
                problems.push(Problem::Missing {
                    file: file.id,
                    path: String::from_utf8_lossy(&file.path).into_owned(),
                });
            }
        }
        let damaged = survey.ends.values().any(|end| end.is_damage());
        let complete = recording.is_complete() && !damaged;
        let manifest = recording.manifest();
        let total = survey.total;
        let note = |note: &Note| Noted {
            process: name(recording, note.process),
            kind: note.kind.clone(),
            text: note.text.clone(),
        };
        Facts {
            recording: recording.dir().to_string_lossy().into_owned(),
            format: manifest.format,
            command: manifest.command.clone(),
            cwd: manifest.cwd.clone(),
            host: manifest.host.clone(),
            kernel: manifest.kernel.clone(),
            cpu: manifest.cpu.clone(),
            user: manifest.user.clone(),
            started_ns: manifest.started_ns,
            duration_ns: recording.clock().since_start_ns(end),
            complete,
            state: match summary {
                _ if complete => "complete",
                Some(summary) if !summary.complete => "ended before the program did",
                Some(_) => "damaged",
                None => "cut short (or still being recorded): it ends without an end",
            },
            exit: summary.map(|summary| summary.exit_status),
            processes: recording.processes().len(),
            threads: total.threads,
            events: total.events,
            preemptions: total.preemptions,
            patched_sites: total.patched_sites,
            log_bytes: total.log_bytes,
            log_data_bytes: total.data_bytes,
            log_compressed_bytes: total.stored_bytes,
            journal_bytes: recording.journal_len(),
            files: recording.files().len(),
            file_bytes: recording.files().iter().map(|file| file.size).sum(),
            notes: recording.notes().iter().map(note).collect(),
            not_seen: NOT_SEEN,
            problems,
        }
    }

    /// Equal notes once, with how often, in order of the first.
    pub fn grouped_notes(&self) -> Vec<(&Noted, usize)> {
        let mut groups: Vec<(&Noted, usize)> = Vec::new();
        for note in &self.notes {
            match groups.iter_mut().find(|(known, _)| *known == note) {
                Some((_, count)) => *count += 1,
                None => groups.push((note, 1)),
            }
        }
        groups
    }
}

fn name(recording: &Recording, number: ProcessNo) -> String {
    match recording.process(number) {
        Some(process) => process.name.clone(),
        None => format!("process {number}"),
    }
}
