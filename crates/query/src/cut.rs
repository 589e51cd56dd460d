//! The state of all processes that explains an event.

use std::collections::{HashMap, HashSet};

use causality::{Blocked, ChannelKind, Cut, EventId, History};
use protocol::id::ProcessIx;
use serde::Serialize;

use crate::channels::Channel;
use crate::shown::{self, DATA, Shown};
use crate::{Names, blocked, names};

/// The processes at a cut, and what is under way between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The event whose cut it is.
    #[serde(skip)]
    pub event: Shown,
    /// The processes, in order of birth.
    pub processes: Vec<Standing>,
    /// The channels between them that something is in.
    pub in_flight: Vec<Flight>,
}

/// A process at a cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Which process.
    #[serde(skip)]
    pub id: ProcessIx,
    /// Its name.
    pub process: String,
    /// The last of its events that is inside.
    pub position: Option<String>,
    /// What it does.
    pub state: State,
    /// Its threads that stand in a call.
    pub blocked: Vec<Wait>,
    /// How many threads it has in all.
    #[serde(skip)]
    pub threads: u32,
}

/// What a process does at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is not there yet.
    #[serde(rename = "not begun")]
    NotBegun,
    /// It runs.
    Running,
    /// It stands in a call.
    Blocked,
    /// It is no more.
    Ended,
}

impl State {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            State::NotBegun => "not begun",
            State::Running => "running",
            State::Blocked => "blocked",
            State::Ended => "ended",
        }
    }
}

/// A thread that stands in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// Its name.
    pub thread: String,
    /// The event at which the call began.
    pub since: String,
    /// What it waits for, in words.
    pub waits_for: String,
}

/// What is in a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flight {
    /// Name of the channel.
    pub channel: String,
    /// What it is made of.
    pub kind: &'static str,
    /// Its ends in words.
    pub name: String,
    /// How much: bytes, or units of what counts.
    pub in_flight: u64,
    /// What that counts.
    #[serde(skip)]
    pub unit: &'static str,
    /// Who sends and who receives.
    #[serde(skip)]
    pub ends: String,
}

/// The cut that is the causal past of an event; with `latest`, the furthest
/// that the others can have come without seeing past it.
pub fn report(history: &History, names: &Names, event: EventId, latest: bool) -> Report {
    let cut = match latest {
        true => history.latest(event),
        false => history.past(event),
    };
    let waiting = history.waiting(&cut);
    let running: HashSet<ProcessIx> = waiting.running.iter().map(|t| t.process).collect();
    let mut blocked: HashMap<ProcessIx, Vec<&Blocked>> = HashMap::new();
    for own in &waiting.blocked {
        blocked.entry(own.thread.process).or_default().push(own);
    }
    let processes = cut.processes().map(|process| {
        let own = blocked.get(&process).map_or(&[][..], Vec::as_slice);
        let runs = running.contains(&process);
        standing(history, names, &cut, process, own, runs)
    });
    Report {
        event: shown::event(history, names, event, DATA),
        processes: processes.collect(),
        in_flight: (0..history.channel_count())
            .filter_map(|number| flight(history, &cut, number))
            .collect(),
    }
}

fn standing(
    history: &History,
    names: &Names,
    cut: &Cut,
    process: ProcessIx,
    blocked: &[&Blocked],
    runs: bool,
) -> Standing {
    let begun = cut.bound(process) > history.span(process).0;
    let last = cut.last(process).filter(|_| begun);
    Standing {
        id: process,
        process: names::process(history, process),
        position: last.map(|last| names::event(history, EventId::new(process, last))),
        state: match blocked {
            _ if !begun => State::NotBegun,
            [] if runs => State::Running,
            [] => State::Ended,
            _ => State::Blocked,
        },
        blocked: blocked
            .iter()
            .map(|own| Wait {
                thread: names::thread(history, names, own.thread),
                since: names::event(history, EventId::new(process, own.since)),
                waits_for: blocked::what(history, names, own),
            })
            .collect(),
        threads: history.thread_count(process),
    }
}

fn flight(history: &History, cut: &Cut, number: u32) -> Option<Flight> {
    let amount = history.in_flight(number, cut);
    if amount == 0 {
        return None;
    }
    let channel = history.channel(number).filter(|c| !c.is_to_outside())?;
    let unit = match channel.kind {
        ChannelKind::Counter | ChannelKind::Semaphore => "units",
        _ => "bytes",
    };
    let channel = Channel::new(history, &channel);
    Some(Flight {
        ends: channel.ends(),
        channel: channel.channel,
        kind: channel.kind,
        name: channel.name,
        in_flight: amount,
        unit,
    })
}
