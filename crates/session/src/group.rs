//! The processes of a program at a cut.

use std::sync::Arc;

use causality::History;
use protocol::id::{EventNo, ProcessId, ProcessIx};
use recording::{Recording, Set};
use target::{Cancel, ImageSpan, Position};

use crate::member::Member;
use crate::program::Program;
use crate::stops::StopTable;
use crate::trail::{Stand, Trail};
use crate::{Error, Result};

/// The processes of a program at a cut: each has a position of its own. Moved by
/// [`Group::go`], looked into by [`Group::at`] and what builds on it.
///
/// A process that has not begun yet stands at its beginning, one that has ended
/// at its end. Processes are opened when somebody looks at them, and stay on the
/// thread that this is used on.
pub struct Group {
    pub(crate) program: Arc<Program>,
    /// In the order of the history.
    pub(crate) members: Vec<Member>,
    pub(crate) stops: StopTable,
    pub(crate) execs: bool,
    pub(crate) trail: Trail,
}

/// What is known of a process of a group without looking into it.
#[derive(Clone, Debug)]
pub struct MemberInfo {
    pub id: ProcessId,
    pub ix: ProcessIx,
    pub name: String,
    /// The program that it executes, or did at first.
    pub program: String,
    /// Its first event, and its last.
    pub first: EventNo,
    pub last: EventNo,
    pub at: Position,
    pub is_let_go: bool,
    /// It did nothing that was recorded.
    pub is_empty: bool,
}

/// Where everybody is, and what was seen on the way there. Two are equal if everybody is at
/// the same place.
#[derive(Clone, Debug)]
pub struct Positions {
    at: Vec<Position>,
    trail: Trail,
    stands: Vec<Option<Stand>>,
}

impl PartialEq for Positions {
    fn eq(&self, other: &Positions) -> bool {
        self.at == other.at
    }
}

impl Eq for Positions {}

impl Group {
    /// All processes of a program: at their beginnings if it was recorded, where
    /// they stand if it is alive.
    pub fn new(program: &Arc<Program>) -> Result<Group> {
        let members: Vec<Member> = match program.history() {
            Ok(history) => history
                .processes()
                .filter_map(|(ix, _)| Some(Member::new(history, history.id_of(ix)?, ix)))
                .collect(),
            Err(_) => {
                let living = program.opener().living().unwrap_or_default();
                living.into_iter().zip(0..).map(Member::alive).collect()
            }
        };
        match members.is_empty() {
            true => Err(Error::NoProcesses),
            false => Ok(Group::of(program, members)),
        }
    }

    /// These processes.
    pub(crate) fn of(program: &Arc<Program>, members: Vec<Member>) -> Group {
        Group {
            program: Arc::clone(program),
            members,
            stops: StopTable::default(),
            execs: false,
            trail: Trail::default(),
        }
    }

    /// Has each process stop when it begins another program, for who has to look
    /// everything up again then.
    pub fn stop_at_execs(&mut self, stop: bool) {
        self.execs = stop;
    }

    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What was recorded, on one host or on several, if it was.
    pub fn set(&self) -> Result<&Arc<Set>> {
        self.program.set()
    }

    /// The recording that holds a process.
    pub fn recording_of(&self, process: ProcessId) -> Option<&Arc<Recording>> {
        self.program.recording_of(process)
    }

    /// What happened before what, if the program was recorded.
    pub fn history(&self) -> Result<&History> {
        self.program.history()
    }

    /// What to stop at.
    pub fn stops(&mut self) -> &mut StopTable {
        &mut self.stops
    }

    /// What to stop at, to be read.
    pub fn points(&self) -> &StopTable {
        &self.stops
    }

    pub(crate) fn index(&self, process: ProcessId) -> Result<usize> {
        let found = self.members.iter().position(|m| m.id == process);
        found.ok_or(Error::NoProcess(process))
    }

    pub(crate) fn member(&self, i: usize) -> Result<&Member> {
        self.members.get(i).ok_or(Error::NoProcesses)
    }

    /// A member, brought to where it is said to be.
    pub(crate) fn here(&mut self, i: usize) -> Result<&mut Member> {
        let never = Cancel::new();
        let (member, context) = self.with(i, &never)?;
        member.here(context.program)?;
        self.members.get_mut(i).ok_or(Error::NoProcesses)
    }

    /// All processes, in the order of the recording.
    pub fn members(&self) -> Vec<MemberInfo> {
        let members = self.members.iter();
        members
            .map(|member| MemberInfo {
                id: member.id,
                ix: member.ix,
                name: member.name.clone(),
                program: member.program.clone(),
                first: member.first,
                last: member.last,
                at: member.at,
                is_let_go: member.is_let_go,
                is_empty: member.is_empty(),
            })
            .collect()
    }

    /// Where a process is.
    pub fn position(&self, process: ProcessId) -> Result<Position> {
        Ok(self.member(self.index(process)?)?.at)
    }

    /// Says where a process is, and that no other moves with it. What was stopped at
    /// before is forgotten: nobody was led here.
    pub fn place(&mut self, process: ProcessId, at: Position) -> Result<()> {
        let i = self.index(process)?;
        self.trail = Trail::default();
        if let Some(member) = self.members.get_mut(i) {
            member.put(member.within(at));
        }
        Ok(())
    }

    /// Where everybody is.
    pub fn positions(&self) -> Positions {
        Positions {
            at: self.members.iter().map(|m| m.at).collect(),
            trail: self.trail.clone(),
            stands: self.members.iter().map(|m| m.stand.clone()).collect(),
        }
    }

    /// Says that everybody is where they were, with the same stops behind and ahead.
    pub fn restore(&mut self, positions: &Positions) {
        let all = positions.at.iter().zip(&positions.stands);
        for (member, (at, stand)) in self.members.iter_mut().zip(all) {
            member.put(*at);
            member.stand = stand.clone();
        }
        self.trail = positions.trail.clone();
    }

    /// The programs that a process executes one after the other.
    pub fn images(&mut self, process: ProcessId) -> Result<Vec<ImageSpan>> {
        let i = self.index(process)?;
        let never = Cancel::new();
        let (member, context) = self.with(i, &never)?;
        Ok(member.open(context.program, &never)?.images())
    }

    /// Keeps what it takes to come back to where a process is at once, if it is
    /// about to do an event.
    pub fn checkpoint(&mut self, process: ProcessId) -> Result<()> {
        let i = self.index(process)?;
        let member = self.here(i)?;
        if let Position::Event(_) = member.at {
            member.recorded()?.checkpoint()?;
        }
        Ok(())
    }

    /// Has a process stay where it is when others move, or not any more.
    pub fn let_go(&mut self, process: ProcessId, is_let_go: bool) -> Result<()> {
        let i = self.index(process)?;
        if let Some(member) = self.members.get_mut(i) {
            member.is_let_go = is_let_go;
        }
        Ok(())
    }
}
