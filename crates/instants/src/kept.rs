//! What replay found out about variables and places, kept beside the recording.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use protocol::id::{Addr, EventNo, ProcessId, ProcessNo, ThreadNo};
use recording::{Recording, Set};
use serde::{Deserialize, Serialize};
use session::truth::{Moment, Was};
use target::{Inside, Position};

use crate::replays::{Answer, Seen};

/// Name of the file.
const KEPT: &str = "truth.json";
/// Raised whenever what is kept, or how it is found, changes.
const VERSION: u64 = 3;

/// What was asked, in a process of the recording.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub member: u16,
    pub process: ProcessNo,
    pub deed: Option<String>,
    pub place: Option<String>,
    pub expression: Option<String>,
    /// The expression is what is asked for at the place, and no condition.
    pub value: bool,
}

impl Key {
    /// The process.
    pub fn id(&self) -> ProcessId {
        self.process.of_member(self.member)
    }
}

/// See the module.
#[derive(Default)]
pub struct Kept {
    answers: BTreeMap<Key, Answer>,
}

/// The event that comes next, transfers and address if it is between events,
/// whether the event before led there, the thread, whose variable it is if each thread
/// has one, and what was.
type Line = (
    u64,
    Option<(u64, u64)>,
    bool,
    u32,
    Option<u32>,
    Option<Value>,
);

#[derive(Serialize, Deserialize)]
enum Value {
    Number(i128),
    /// Its bits.
    Real(u64),
    Text(Vec<u8>),
    Other(String),
    Absent,
    Unknown(String),
}

#[derive(Serialize, Deserialize)]
struct File {
    recordings: Option<Vec<Stamp>>,
    answers: Vec<(Key, Vec<Line>)>,
}

/// What a recording was when something was found in it: our version, length
/// and times of its journal, and how much there is of its logs (of one that is under
/// way most is not in the journal yet).
type Stamp = (u64, u64, i64, i64, u64);

fn stamps(set: &Set) -> Option<Vec<Stamp>> {
    set.members().map(|member| stamp(member)).collect()
}

fn stamp(recording: &Recording) -> Option<Stamp> {
    let meta = std::fs::metadata(recording.dir().join(recording::JOURNAL)).ok()?;
    let logs = recording.processes().iter().map(|own| own.log_bytes).sum();
    Some((VERSION, meta.len(), meta.mtime(), meta.mtime_nsec(), logs))
}

fn written(Seen { moment, owner, was }: &Seen) -> Line {
    let (event, inside) = match moment.at {
        Position::Event(_) | Position::Halted(_) => (moment.at.event().0, None),
        Position::Inside(inside) => (inside.event.0, Some((inside.transfers, inside.address.0))),
    };
    let was = was.as_ref().map(|was| match was {
        Was::Number(number) => Value::Number(*number),
        Was::Real(number) => Value::Real(number.to_bits()),
        Was::Text(text) => Value::Text(text.clone()),
        Was::Other(text) => Value::Other(text.clone()),
        Was::Absent => Value::Absent,
        Was::Unknown(why) => Value::Unknown(why.clone()),
    });
    let owner = owner.map(|thread| thread.0);
    (event, inside, moment.by_event, moment.thread.0, owner, was)
}

fn read((event, inside, by_event, thread, owner, was): Line) -> Seen {
    let event = EventNo(event);
    let at = match inside {
        None => Position::Event(event),
        Some((transfers, address)) => Position::Inside(Inside {
            event,
            transfers,
            address: Addr(address),
        }),
    };
    let was = was.map(|was| match was {
        Value::Number(number) => Was::Number(number),
        Value::Real(bits) => Was::Real(f64::from_bits(bits)),
        Value::Text(text) => Was::Text(text),
        Value::Other(text) => Was::Other(text),
        Value::Absent => Was::Absent,
        Value::Unknown(why) => Was::Unknown(why),
    });
    let thread = ThreadNo(thread);
    let moment = Moment {
        at,
        thread,
        by_event,
    };
    let owner = owner.map(ThreadNo);
    Seen { moment, owner, was }
}

impl Kept {
    /// What was kept; nothing, if that is of another recording.
    pub fn load(set: &Set) -> Kept {
        Kept::read(set).unwrap_or_default()
    }

    fn read(set: &Set) -> Option<Kept> {
        let text = std::fs::read(set.dir().join(KEPT)).ok()?;
        let file: File = serde_json::from_slice(&text).ok()?;
        if file.recordings != stamps(set) {
            return None;
        }
        let answers = file.answers.into_iter();
        Some(Kept {
            answers: answers
                .map(|(key, lines)| (key, lines.into_iter().map(read).collect()))
                .collect(),
        })
    }

    pub fn get(&self, key: &Key) -> Option<&Answer> {
        self.answers.get(key)
    }

    pub fn insert(&mut self, key: Key, answer: Answer) {
        self.answers.insert(key, answer);
    }

    /// Where it cannot be written it is found again the next time.
    pub fn save(&self, set: &Set) {
        let answers = self.answers.iter();
        let file = File {
            recordings: stamps(set),
            answers: answers
                .map(|(key, answer)| (key.clone(), answer.iter().map(written).collect()))
                .collect(),
        };
        let Ok(text) = serde_json::to_vec(&file) else {
            return;
        };
        let path = set.dir().join(KEPT);
        let temporary = set.dir().join(format!("{KEPT}.{}", std::process::id()));
        let written = std::fs::write(&temporary, text);
        if written
            .and_then(|()| std::fs::rename(&temporary, &path))
            .is_err()
        {
            let _ = std::fs::remove_file(&temporary);
        }
    }
}
