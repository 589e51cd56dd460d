//! The processes of a recording.

use std::collections::{HashMap, HashSet};

use protocol::id::{ProcessIx, ProcessNo};
use recording::process::Began;
use recording::{Exit, Process, Recording, Set};
use serde::Serialize;

/// The processes, in order of birth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct List {
    /// Each of them.
    pub processes: Vec<Row>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its name.
    pub process: String,
    /// The host it ran on, in a recording of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its number in the recording.
    pub number: ProcessNo,
    /// The kernel's id of it.
    pub pid: Option<u32>,
    /// Name of its parent.
    pub parent: Option<String>,
    /// The parent's event that made it.
    pub parent_event: Option<String>,
    /// How it began.
    pub began: &'static str,
    /// Arguments of what it ran last.
    pub command: Vec<String>,
    /// How many programs it ran.
    pub images: usize,
    /// When it began.
    pub start_ns: u64,
    /// How long it lived.
    pub duration_ns: u64,
    /// The status that it exited with.
    pub exit: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// The status as a shell tells it.
    pub status: Option<i32>,
    /// How many events it has.
    pub events: u64,
    /// Length of its log.
    pub log_bytes: u64,
    /// How it ended.
    #[serde(skip)]
    pub end: Exit,
    /// Its parent, in this list.
    #[serde(skip)]
    pub parent_at: Option<ProcessIx>,
}

impl Row {
    fn new(recording: &Recording, process: &Process) -> Row {
        let life = recording.life(process);
        let clock = recording.clock();
        let start_ns = clock.since_start_ns(process.birth);
        let parent = process.parent.and_then(|number| recording.process(number));
        let image = recording.command_of(process);
        let args = image.map_or(&[][..], |image| image.argv.as_slice()).iter();
        Row {
            process: process.name.clone(),
            host: None,
            number: process.number,
            pid: Some(process.pid).filter(|pid| *pid != 0),
            parent: parent.map(|parent| parent.name.clone()),
            parent_event: parent
                .zip(process.parent_event)
                .map(|(parent, event)| format!("{}:{event}", parent.name)),
            began: match process.began {
                Began::First => "first",
                Began::Fork => "fork",
                Began::Vfork => "vfork",
                Began::Unknown => "unknown",
            },
            command: args
                .map(|arg| String::from_utf8_lossy(arg).into_owned())
                .collect(),
            images: process.images.len(),
            start_ns,
            duration_ns: clock.since_start_ns(life.end).saturating_sub(start_ns),
            exit: match life.exit {
                Exit::Exited(status) => Some(status),
                _ => None,
            },
            signal: match life.exit {
                Exit::Killed { .. } => Some(life.exit.to_string()),
                _ => None,
            },
            status: life.exit.status(),
            events: life.events,
            log_bytes: process.log_bytes,
            end: life.exit,
            parent_at: process
                .parent
                .and_then(|parent| recording.index_of(parent))
                .map(ProcessIx),
        }
    }
}

/// Where a process stands in the tree.
#[derive(Clone, Debug)]
pub struct Node<'l> {
    /// The process.
    pub row: &'l Row,
    /// Of each of its ancestors but the first, then of itself: whether it is
    /// the last child.
    pub last: Vec<bool>,
}

impl List {
    /// The processes of a recording.
    pub fn new(recording: &Recording) -> List {
        let all = recording.processes().iter();
        List {
            processes: all.map(|process| Row::new(recording, process)).collect(),
        }
    }

    /// The processes of a set of recordings, those of each host together.
    pub fn of(set: &Set) -> List {
        let mut processes = Vec::new();
        for (recording, number) in set.members().zip(0u16..) {
            let first = set.places_of(number).start;
            for (process, place) in recording.processes().iter().zip(first..) {
                let mut row = Row::new(recording, process);
                if set.is_joined() {
                    row.host = set.name(number).map(str::to_string);
                    row.process = set.process_name(ProcessIx(place));
                    row.parent_at = row.parent_at.map(|at| ProcessIx(first + at.0));
                    let parent = row.parent_at.map(|at| set.process_name(at));
                    row.parent_event = parent
                        .as_ref()
                        .zip(process.parent_event)
                        .map(|(parent, event)| format!("{parent}:{event}"));
                    row.parent = parent;
                }
                processes.push(row);
            }
        }
        List { processes }
    }

    /// The processes in the order of a tree: children behind their parents.
    pub fn tree(&self) -> Vec<Node<'_>> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let mut roots = Vec::new();
        let all = || (0u32..).zip(&self.processes);
        for (at, row) in all() {
            match row.parent_at {
                Some(parent) => children.entry(parent.0).or_default().push(at),
                None => roots.push(at),
            }
        }
        let mut nodes = Vec::new();
        let mut seen = HashSet::new();
        let mut stack: Vec<(u32, Vec<bool>)> = Vec::new();
        // A damaged log may make a process its own ancestor: what no root leads
        // to is shown as a root as well.
        for root in roots.into_iter().chain(all().map(|(at, _)| at)) {
            stack.push((root, Vec::new()));
            while let Some((at, last)) = stack.pop() {
                let row = self.processes.get(at as usize);
                let Some(row) = row.filter(|_| seen.insert(at)) else {
                    continue;
                };
                let own = children.get(&at).map_or(&[][..], Vec::as_slice);
                for (i, child) in own.iter().enumerate().rev() {
                    let mut below = last.clone();
                    below.push(i + 1 == own.len());
                    stack.push((*child, below));
                }
                nodes.push(Node { row, last });
            }
        }
        nodes
    }
}
