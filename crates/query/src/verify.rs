//! What came of replaying everything and comparing it with the recording.
//!
//! Replaying is done elsewhere; here is what its verdicts, one for each image
//! of each process, say of the processes.

use std::collections::HashMap;

use protocol::id::{Addr, ProcessId};
use protocol::record::{begin, kind, tag};
use recording::calls::nr;
use recording::process::Exit;
use recording::{Event, Process, Recording, Set};
use serde::Serialize;

pub use target::{Difference, Ending, Outcome, Verdict};

use crate::unseen;

/// What came of a process: of all its images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Its name.
    pub process: String,
    /// Which time it was replayed.
    pub round: u32,
    /// Events that were replayed.
    pub events: u64,
    /// Events that it has.
    pub recorded_events: u64,
    /// What came of it, in a word.
    #[serde(rename = "outcome")]
    pub word: &'static str,
    /// Bytes that it wrote.
    pub output_bytes: u64,
    /// Whether they were as recorded.
    pub output_equal: bool,
    /// How it ended.
    pub exit: String,
    /// Whether that was as recorded.
    pub exit_equal: bool,
    /// The event of the first difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// What the recording has there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What replay came to instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// Where in the process that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The file that is mapped there, and where in it.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Instructions that nothing traps, from which the difference may come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// Why it was not replayed to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Which process.
    #[serde(skip)]
    pub id: ProcessId,
    /// What came of it.
    #[serde(skip)]
    pub outcome: Outcome,
    /// How it ended when it was recorded.
    #[serde(skip)]
    pub recorded_exit: Exit,
    /// How it ended in replay, if it ended by itself.
    #[serde(skip)]
    pub ending: Option<Ending>,
}

/// What came of each process, from the verdicts on its images.
pub fn report(
    set: &Set,
    verdicts: Vec<Verdict>,
    only: Option<ProcessId>,
    round: u32,
) -> Vec<Replayed> {
    let ids = set.places().filter_map(|place| set.id(place));
    let chosen = ids.filter(|id| only.is_none_or(|only| only == *id));
    let mut sums: Vec<Sum<'_>> = chosen.filter_map(|id| Sum::new(set, id)).collect();
    let at: HashMap<ProcessId, usize> = sums.iter().map(|sum| sum.id).zip(0..).collect();
    for verdict in verdicts {
        let sum = at.get(&verdict.process).and_then(|at| sums.get_mut(*at));
        if let Some(sum) = sum {
            sum.add(verdict);
        }
    }
    sums.into_iter().map(|sum| sum.finish(round)).collect()
}

/// What came of a process so far.
struct Sum<'r> {
    recording: &'r Recording,
    process: &'r Process,
    id: ProcessId,
    name: String,
    recorded: u64,
    exit: Exit,
    events: u64,
    output: u64,
    outcome: Outcome,
    ending: Option<Ending>,
}

impl<'r> Sum<'r> {
    fn new(set: &'r Set, id: ProcessId) -> Option<Sum<'r>> {
        let place = set.place(id)?;
        let (recording, process) = set.at(place)?;
        let life = recording.life(process);
        Some(Sum {
            recording,
            process,
            id,
            name: set.process_name(place),
            recorded: life.events,
            exit: life.exit,
            events: 0,
            output: 0,
            // One that was killed before it wrote anything has no log.
            outcome: match life.events {
                0 => Outcome::Equal,
                _ => Outcome::NotReached,
            },
            ending: None,
        })
    }

    fn add(&mut self, verdict: Verdict) {
        self.output += verdict.output;
        // The first image that was not equal is what there is to tell.
        let first = self.events == 0 && self.outcome == Outcome::NotReached;
        self.events += verdict.events;
        if first || self.outcome == Outcome::Equal {
            self.outcome = verdict.outcome;
            self.ending = verdict.ending;
        }
    }

    fn finish(self, round: u32) -> Replayed {
        let (recording, name) = (self.recording, &self.name);
        let exit_is_equal = exit_is_equal(self.ending, self.exit, self.recorded);
        let mut replayed = Replayed {
            process: name.clone(),
            round,
            events: self.events,
            recorded_events: self.recorded,
            word: match &self.outcome {
                Outcome::Equal if !exit_is_equal => "exit differs",
                Outcome::Equal => "equal",
                Outcome::Diverged(_) => "diverged",
                Outcome::Failed(_) => "failed",
                Outcome::Unsupported(_) => "unsupported",
                Outcome::HeldUp(_) => "held up",
                Outcome::NotReached => "not reached",
            },
            output_bytes: self.output,
            output_equal: self.outcome == Outcome::Equal,
            exit: self.exit.to_string(),
            exit_equal: self.outcome == Outcome::Equal && exit_is_equal,
            event: None,
            thread: None,
            expected: None,
            found: None,
            address: None,
            file: None,
            unseen: Vec::new(),
            why: None,
            id: self.id,
            recorded_exit: self.exit,
            ending: self.ending,
            outcome: self.outcome,
        };
        match &replayed.outcome {
            Outcome::Diverged(difference) => {
                replayed.event = Some(format!("{name}:{}", difference.event));
                replayed.thread = Some(recording::thread_name(difference.thread));
                replayed.expected = Some(difference.expected.clone());
                replayed.found = Some(difference.found.clone());
                replayed.address = Some(format!("{:#x}", difference.address));
                replayed.file = mapped_at(recording, self.process, difference);
                replayed.unseen = unseen::before(recording, self.process, difference.event);
            }
            Outcome::Failed(why) => {
                let next = self.process.first_event.plus(self.events);
                replayed.event = Some(format!("{name}:{next}"));
                replayed.why = Some(why.clone());
            }
            Outcome::Unsupported(why) | Outcome::HeldUp(why) => replayed.why = Some(why.clone()),
            Outcome::Equal | Outcome::NotReached => {}
        }
        replayed
    }
}

const SIGKILL: i32 = 9;

/// One that was killed in the middle of things did not end by itself, and its
/// log leads to where it was killed.
fn exit_is_equal(ending: Option<Ending>, exit: Exit, recorded: u64) -> bool {
    match (ending, exit) {
        (None, Exit::Killed { .. }) | (_, Exit::Unknown) => true,
        // How a program ended that was not recorded is not replayed.
        (Some(Ending::Executed), _) => true,
        (None, Exit::Exited(_)) => recorded == 0,
        (Some(Ending::Exited(now)), Exit::Exited(then)) => now == then,
        // A signal came while it ended.
        (Some(Ending::Exited(_)), Exit::Killed { .. }) => true,
        // SIGKILL reaches nobody's log: it came while another one ended it.
        (Some(Ending::Signal(now)), Exit::Killed { signal, .. }) => {
            now == signal || signal == SIGKILL
        }
        // The last signal that reached it was not its end.
        (Some(Ending::Signal(_)), Exit::Exited(_)) => false,
    }
}

impl Replayed {
    /// Whether all came as recorded.
    pub fn is_equal(&self) -> bool {
        self.exit_equal
    }

    /// The exit of a process that otherwise is equal, where it is not.
    pub fn exit_difference(&self) -> Option<String> {
        if self.outcome != Outcome::Equal || self.exit_equal {
            return None;
        }
        let now = match self.ending {
            None => "no end".to_string(),
            Some(Ending::Exited(status)) => status.to_string(),
            Some(Ending::Signal(signal)) => format!("signal {signal}"),
            Some(Ending::Executed) => "another program".to_string(),
        };
        Some(format!("differs: expected {}, found {now}", self.exit))
    }
}

/// Where in which file the program was: found from what was mapped by then.
pub fn mapped_at(
    recording: &Recording,
    process: &Process,
    difference: &Difference,
) -> Option<String> {
    // The log has addresses as plain numbers.
    let Addr(address) = difference.address;
    let mut found = None;
    let mut image = process.images.iter();
    let mut note_image = |found: &mut Option<(u64, u64)>| {
        let next = image.next().and_then(|i| recording.images().get(*i));
        let start = next.and_then(|image| recording.image_start(image).ok());
        let maps = start.map_or(Vec::new(), |start| start.maps);
        *found = maps
            .into_iter()
            .find(|map| (map.start..map.end).contains(&address))
            .and_then(|map| Some((map.file?, address - map.start + map.offset)));
    };
    let mut log = recording.log(process.number);
    while log.advance() {
        let Some(event) = log.event().filter(|now| now.number <= difference.event) else {
            break;
        };
        if event.kind == kind::BEGIN && !is_fork(&event) {
            note_image(&mut found);
        }
        if event.is_done(nr::MMAP)
            && let Some(start) = event.result.and_then(|start| u64::try_from(start).ok())
            && (start..start.saturating_add(event.args[1])).contains(&address)
        {
            let file = event.number_in(tag::FILE).map(protocol::captured::id);
            found = file.map(|file| (file, address - start + event.args[5]));
        }
    }
    let (file, offset) = found?;
    let info = recording.files().iter().find(|info| info.id == file)?;
    let path = recording::render::escape_path(&info.path);
    Some(format!("{path}+{offset:#x}"))
}

fn is_fork(event: &Event<'_>) -> bool {
    matches!(event.value(0), begin::FORK | begin::VFORK)
}

/// What of a recording could not be read, and so not be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// A part of the journal.
    #[error("the recording is damaged: bytes {from} to {to} of its journal cannot be read")]
    Journal {
        /// From here.
        from: u64,
        /// To here.
        to: u64,
    },
    /// The end of a log.
    #[error("the recording is damaged: {process}: {end}")]
    Log {
        /// Name of the process.
        process: String,
        /// How its log ends.
        end: String,
    },
    /// Its journal has no end, and there is no arena that could hold one.
    #[error("the recording is damaged: its journal breaks off at byte {at}, without an end")]
    BrokenOff {
        /// Length of the journal.
        at: u64,
    },
    /// There is nothing in it.
    #[error("the recording holds no process")]
    Empty,
}

impl Unread {
    /// What of any member cannot be read.
    pub fn of(set: &Set) -> Option<Unread> {
        set.members().find_map(|member| Unread::of_member(member))
    }

    fn of_member(recording: &Recording) -> Option<Unread> {
        if let Some(damage) = recording.damage().first() {
            return Some(Unread::Journal {
                from: damage.at,
                to: damage.at.saturating_add(damage.len),
            });
        }
        for process in recording.processes() {
            let end = recording.life(process).log_end;
            if end.is_damage() {
                return Some(Unread::Log {
                    process: process.name.clone(),
                    end: end.to_string(),
                });
            }
        }
        if recording.processes().is_empty() {
            return Some(Unread::Empty);
        }
        // A recorder that was killed leaves its arena; without one, what came behind
        // was lost later, however whole the last frame is.
        let is_broken_off = recording.summary().is_none() && !recording.has_arena();
        is_broken_off.then(|| Unread::BrokenOff {
            at: recording.journal_len(),
        })
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        const AGAIN: &str =
            "what can be read was replayed; copy the recording again from where it was made";
        match self {
            Unread::Journal { .. } | Unread::Log { .. } | Unread::BrokenOff { .. } => Some(AGAIN),
            Unread::Empty => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ctrl-C twice: the second one kills who dies of the first.
    #[test]
    fn who_is_killed_while_it_dies_has_ended_as_recorded() {
        let killed = |signal| Exit::Killed {
            signal,
            core: false,
        };
        let is_equal = |now, exit| exit_is_equal(Some(Ending::Signal(now)), exit, 5);
        assert!(is_equal(2, killed(2)) && is_equal(2, killed(SIGKILL)));
        assert!(!is_equal(2, killed(15)) && !is_equal(2, Exit::Exited(0)));
        assert!(!is_equal(15, killed(2)));
    }
}
