//! Who of a program that is alive is who in what was recorded of it.
//!
//! A process is called by its id while it is alive, and by its number in a recording.

use protocol::id::ProcessId;

use crate::{Group, Whom};

/// A process in one of the two, as it is called there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Called {
    id: ProcessId,
    name: String,
}

/// The processes that are in both, alive and recorded.
#[derive(Debug, Default)]
pub struct Counterparts(Vec<(Called, Called)>);

/// Which of the two somebody is to be found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Alive,
    Recorded,
}

impl Counterparts {
    pub fn new(alive: &Group, past: &Group) -> Counterparts {
        let recorded = past.members().into_iter();
        let recorded = recorded.filter_map(|member| {
            let recording = past.recording_of(member.id)?;
            let process = recording.process(member.id.number)?;
            let called = Called {
                id: member.id,
                name: member.name,
            };
            Some((process.pid, process.birth, called))
        });
        let recorded: Vec<_> = recorded.collect();
        let living = alive.members().into_iter();
        let both = living.filter_map(|member| {
            let is_same = |(pid, called): (u32, &Called)| {
                pid == member.id.number.0 && called.id.member == member.id.member
            };
            let same = recorded.iter().filter(|r| is_same((r.0, &r.2)));
            // Ids come again: the last that had it is the one that is alive.
            let (_, _, past) = same.max_by_key(|(_, birth, _)| *birth)?;
            let alive = Called {
                id: member.id,
                name: member.name,
            };
            Some((alive, past.clone()))
        });
        Counterparts(both.collect())
    }

    /// Who somebody that is alive is in the recording.
    pub fn recorded(&self, alive: ProcessId) -> Option<ProcessId> {
        let mut all = self.0.iter();
        let (_, past) = all.find(|(own, _)| own.id == alive)?;
        Some(past.id)
    }

    /// Who somebody of the recording is while it is alive.
    pub fn alive(&self, recorded: ProcessId) -> Option<ProcessId> {
        let mut all = self.0.iter();
        let (alive, _) = all.find(|(_, past)| past.id == recorded)?;
        Some(alive.id)
    }

    /// Whom a stop point is for, in the words of the other side.
    pub fn whom(&self, whom: &Whom, to: Side) -> Whom {
        let mut all = self.0.iter().map(|(alive, past)| match to {
            Side::Recorded => (alive, past),
            Side::Alive => (past, alive),
        });
        match whom {
            Whom::All => Whom::All,
            Whom::Named(name) => match all.find(|(own, _)| own.name == *name) {
                Some((_, other)) => Whom::Named(other.name.clone()),
                // The name of a program.
                None => Whom::Named(name.clone()),
            },
            Whom::Process(id) => match all.find(|(own, _)| own.id == *id) {
                Some((_, other)) => Whom::Process(other.id),
                None => Whom::Process(*id),
            },
        }
    }
}
