//! The recordings of one program, as one.
//!
//! A program that runs on several hosts is recorded on each of them apart; what
//! those recordings (the *members*) have in common is that somebody looks at
//! them together. A recording that was made on one host is a set of one member.
//!
//! Numbers of processes are unique within a member only, so that a process is
//! named by member and number ([`ProcessId`]). Tables are made for the list of
//! all processes, in which those of a member stand together, in order of birth
//! ([`ProcessIx`]).

use std::ops::Range;
use std::sync::Arc;

use protocol::id::{ProcessId, ProcessIx};

use crate::log::Log;
use crate::process::Process;
use crate::recording::Recording;

/// See the module.
pub struct Set {
    members: Vec<Member>,
}

struct Member {
    recording: Arc<Recording>,
    /// Where its processes stand in the list of all.
    places: Range<u32>,
}

impl Set {
    /// The set of one recording.
    pub fn of(recording: Arc<Recording>) -> Set {
        Set::of_all(vec![recording])
    }

    /// The set of several recordings. The order in which they are given numbers
    /// the members.
    pub fn of_all(recordings: Vec<Arc<Recording>>) -> Set {
        let mut next = 0;
        let members = recordings.into_iter().map(|recording| {
            let count = recording.processes().len() as u32;
            let places = next..next + count;
            next = places.end;
            Member { recording, places }
        });
        Set {
            members: members.collect(),
        }
    }

    /// The recordings, in the order of their numbers.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Arc<Recording>> {
        self.members.iter().map(|member| &member.recording)
    }

    /// The recording with this number.
    pub fn member(&self, number: u16) -> Option<&Arc<Recording>> {
        let member = self.members.get(usize::from(number))?;
        Some(&member.recording)
    }

    /// How many processes there are in all members.
    pub fn len(&self) -> usize {
        let last = self.members.last();
        last.map_or(0, |member| member.places.end as usize)
    }

    /// Whether there is no process in any member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All places in the list of processes.
    pub fn places(&self) -> impl Iterator<Item = ProcessIx> + use<> {
        (0..self.len() as u32).map(ProcessIx)
    }

    fn member_at(&self, place: ProcessIx) -> Option<(u16, &Member)> {
        let number = self.members.partition_point(|m| m.places.end <= place.0);
        let member = self.members.get(number)?;
        Some((u16::try_from(number).ok()?, member))
    }

    /// The recording that holds the process at a place, and the process.
    pub fn at(&self, place: ProcessIx) -> Option<(&Arc<Recording>, &Process)> {
        let (_, member) = self.member_at(place)?;
        let index = place.0.checked_sub(member.places.start)?;
        let process = member.recording.processes().get(index as usize)?;
        Some((&member.recording, process))
    }

    /// The process at a place.
    pub fn process(&self, place: ProcessIx) -> Option<&Process> {
        self.at(place).map(|(_, process)| process)
    }

    /// Which process stands at a place.
    pub fn id(&self, place: ProcessIx) -> Option<ProcessId> {
        let (member, _) = self.member_at(place)?;
        let number = self.process(place)?.number;
        Some(ProcessId { member, number })
    }

    /// Where a process stands.
    pub fn place(&self, id: ProcessId) -> Option<ProcessIx> {
        let member = self.members.get(usize::from(id.member))?;
        let index = member.recording.index_of(id.number)?;
        Some(ProcessIx(member.places.start + index))
    }

    /// The log of the process at a place, so that the next events lead to event
    /// `number` soon.
    pub fn log_near(&self, place: ProcessIx, number: u64) -> Option<Log<'_>> {
        let (recording, process) = self.at(place)?;
        Some(recording.log_near(process.number, number))
    }

    /// The log of the process at a place, at event `number`.
    pub fn log_at(&self, place: ProcessIx, number: u64) -> Option<Log<'_>> {
        let (recording, process) = self.at(place)?;
        recording.log_at(process.number, number)
    }
}
