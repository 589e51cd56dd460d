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

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::id::{EventNo, ProcessId, ProcessIx};

use crate::error::OpenError;
use crate::join::{Joined, Missing};
use crate::log::Log;
use crate::process::Process;
use crate::recording::Recording;

/// See the module.
pub struct Set {
    dir: PathBuf,
    members: Vec<Member>,
    missing: Vec<Missing>,
    /// What each process is called among all.
    names: Vec<String>,
}

struct Member {
    /// What its processes' names end in.
    name: String,
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
    /// the members; they are called after their hosts.
    pub fn of_all(recordings: Vec<Arc<Recording>>) -> Set {
        let hosts = recordings.iter().map(|r| r.manifest().host.as_str());
        let names = crate::join::member_names(hosts);
        let dir = recordings.first().map(|first| first.dir().to_path_buf());
        let named = names.into_iter().zip(recordings).collect();
        Set::made(dir.unwrap_or_default(), named, Vec::new())
    }

    fn made(dir: PathBuf, named: Vec<(String, Arc<Recording>)>, missing: Vec<Missing>) -> Set {
        let mut next = 0;
        let members = named.into_iter().map(|(name, recording)| {
            let count = recording.processes().len() as u32;
            let places = next..next + count;
            next = places.end;
            Member {
                name,
                recording,
                places,
            }
        });
        let members: Vec<Member> = members.collect();
        Set {
            dir,
            names: names_among(&members),
            members,
            missing,
        }
    }

    /// Opens what is in `dir`: a recording, or several that were joined.
    pub fn open(dir: &Path) -> Result<Set, OpenError> {
        let Some(joined) = Joined::read(dir)? else {
            return Ok(Set::of(Arc::new(Recording::open(dir)?)));
        };
        let mut named = Vec::new();
        for member in joined.members {
            let recording = Recording::open(&dir.join(&member.directory))?;
            named.push((member.name, Arc::new(recording)));
        }
        Ok(Set::made(dir.to_path_buf(), named, joined.missing))
    }

    /// Where it is: the directory that was opened, or that of its first member.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether it is of more than one host, so that names need one.
    pub fn is_joined(&self) -> bool {
        self.members.len() > 1
    }

    /// What a member is called.
    pub fn name(&self, number: u16) -> Option<&str> {
        let member = self.members.get(usize::from(number))?;
        Some(&member.name)
    }

    /// The member with this name.
    pub fn named(&self, name: &str) -> Option<u16> {
        let at = self.members.iter().position(|member| member.name == name)?;
        u16::try_from(at).ok()
    }

    /// Which member holds the process at a place.
    pub fn member_of(&self, place: ProcessIx) -> Option<u16> {
        self.member_at(place).map(|(number, _)| number)
    }

    /// Where the processes of a member stand.
    pub fn places_of(&self, number: u16) -> Range<u32> {
        let member = self.members.get(usize::from(number));
        member.map_or(0..0, |member| member.places.clone())
    }

    /// Members that should be there and are not.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// What the process at a place is called among all: with its member's name
    /// behind `@` where another member has one of the same name.
    pub fn process_name(&self, place: ProcessIx) -> String {
        let name = self.names.get(place.index());
        name.cloned().unwrap_or_default()
    }

    /// All that the process at a place answers to: its name, what it is called besides, each
    /// with its host if there are several, and its program's.
    pub fn names_of(&self, place: ProcessIx) -> Vec<String> {
        let Some((_, process)) = self.at(place) else {
            return Vec::new();
        };
        let own = [Some(&process.name), process.other_name.as_ref()];
        let mut names: Vec<String> = own.into_iter().flatten().cloned().collect();
        let host = self.member_of(place).and_then(|number| self.name(number));
        if let Some(host) = host.filter(|_| self.is_joined()) {
            let full: Vec<String> = names.iter().map(|name| format!("{name}@{host}")).collect();
            names.extend(full);
        }
        names.push(process.program.clone());
        names
    }

    /// The members that have a process of this name, by their names.
    pub fn hosts_with(&self, process: &str) -> Vec<&str> {
        let members = self.members.iter();
        let with = members.filter(|member| member.recording.process_named(process).is_some());
        with.map(|member| member.name.as_str()).collect()
    }

    /// The process that is called so: `name@member`, or `name` where only one
    /// member has it.
    pub fn process_named(&self, name: &str) -> Option<ProcessIx> {
        if let Some((own, member)) = name.rsplit_once('@')
            && let Some(number) = self.named(member)
            && let Some(process) = self.member(number).and_then(|r| r.process_named(own))
        {
            let number = ProcessId {
                member: number,
                number: process.number,
            };
            return self.place(number);
        }
        let mut found = self.members.iter().zip(0u16..).filter_map(|(member, at)| {
            let process = member.recording.process_named(name)?;
            self.place(ProcessId {
                member: at,
                number: process.number,
            })
        });
        let first = found.next()?;
        found.next().is_none().then_some(first)
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
    pub fn log_near(&self, place: ProcessIx, number: EventNo) -> Option<Log<'_>> {
        let (recording, process) = self.at(place)?;
        Some(recording.log_near(process.number, number))
    }

    /// The log of the process at a place, at event `number`.
    pub fn log_at(&self, place: ProcessIx, number: EventNo) -> Option<Log<'_>> {
        let (recording, process) = self.at(place)?;
        recording.log_at(process.number, number)
    }
}

/// What the processes of all members are called: with the member's name behind
/// `@` where another has one of the same name, and where they are only observed: they are
/// called so at the prompt.
fn names_among(members: &[Member]) -> Vec<String> {
    let is_joined = members.len() > 1;
    let mut holders: HashMap<&str, HashSet<usize>> = HashMap::new();
    for (number, member) in members.iter().enumerate() {
        for process in member.recording.processes() {
            holders.entry(&process.name).or_default().insert(number);
        }
    }
    let all = members.iter().flat_map(|member| {
        let processes = member.recording.processes().iter();
        let is_observed = is_joined && member.recording.manifest().observed.is_some();
        processes.map(move |process| (&process.name, &member.name, is_observed))
    });
    all.map(|(name, member, is_observed)| {
        let holders = holders.get(name.as_str()).map_or(0, HashSet::len);
        match is_observed || holders > 1 {
            true => format!("{name}@{member}"),
            false => name.clone(),
        }
    })
    .collect()
}
