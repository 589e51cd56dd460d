//! Another group beside one that moves, so that what moves nobody can be asked meanwhile.
//!
//! Who moves a recorded program searches first, and nobody is elsewhere before it is
//! decided where everybody goes. So until then everybody is where the motion began, and a
//! second group on the same program can look there. A program that is alive is nowhere
//! while it runs: who there is can be told, and that is all.

use std::sync::Arc;

use inspect::{Library, Options};
use protocol::id::ProcessId;
use target::{Cancel, Living, Opener, Target};

use crate::Result;
use crate::group::{Group, Positions};
use crate::member::Member;
use crate::program::Program;
use crate::stops::StopTable;

/// Where a group stands, and what it stops at, to be handed to another thread.
pub struct Aside {
    program: Arc<Program>,
    positions: Positions,
    stops: StopTable,
    /// Of a program that is alive: who there is, and whether they have ended.
    living: Vec<(Living, bool)>,
}

/// A program that runs: nobody can look into its processes.
struct Running;

impl Opener for Running {
    fn open(&self, _: ProcessId, _: &Cancel) -> target::Result<Box<dyn Target>> {
        Err(target::Error::Runs)
    }

    fn living(&self) -> Option<Vec<Living>> {
        None
    }
}

impl Group {
    /// What another group needs to look at the same place meanwhile.
    pub fn aside(&self) -> Aside {
        let living = match self.program.is_alive() {
            true => self.members.iter().map(Member::as_living).collect(),
            false => Vec::new(),
        };
        Aside {
            program: Arc::clone(&self.program),
            positions: self.positions(),
            stops: self.stops.clone(),
            living,
        }
    }
}

impl Aside {
    /// The group, which stays on this thread. What it stops at is only to be read: it is
    /// another one's.
    pub fn open(self) -> Result<Group> {
        let mut group = match self.program.is_alive() {
            true => running(self.living),
            false => {
                let mut group = Group::new(&self.program)?;
                group.restore(&self.positions);
                group
            }
        };
        group.stops = self.stops;
        Ok(group)
    }
}

fn running(living: Vec<(Living, bool)>) -> Group {
    let members = living.into_iter().zip(0..).map(|((living, is_over), ix)| {
        let mut member = Member::alive((living, ix));
        if is_over {
            member.end_of_life();
        }
        member
    });
    let library = Library::new(Options::default());
    let program = Program::alive(Arc::new(Running), library);
    Group::of(&program, members.collect())
}
