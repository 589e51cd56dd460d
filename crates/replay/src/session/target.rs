//! A session as debuggers see it.

use std::ops::Range;
use std::sync::Arc;

use ::target::{
    Arrival, Ask, Back, Cancel, CheckpointId, CheckpointInfo, Error, Handler, Hit, ImageSpan,
    MapsVersion, Opener, Position, Recorded, Region, Result, Stops, Target, ThreadState, Watch,
};
use inspect::Process;
use protocol::id::{ProcessId, ThreadNo};
use recording::Set;

use protocol::id::Addr;

use super::{Budget, Pool, Session};
use crate::group::SharedReplay;
use crate::stopped::Stopped;

impl Target for Session {
    fn id(&self) -> ProcessId {
        self.process.of_member(self.shared.member())
    }

    fn position(&self) -> Position {
        Session::position(self)
    }

    fn thread(&self) -> ThreadNo {
        Session::thread(self)
    }

    fn threads(&self) -> Vec<ThreadState> {
        let mut threads = Session::threads(self);
        threads.sort_by_key(|thread| thread.number);
        threads
    }

    fn handlers(&self) -> Vec<Handler> {
        Session::handlers(self)
    }

    fn read(&self, address: Addr, out: &mut [u8]) -> usize {
        Session::read(self, address, out)
    }

    fn maps_version(&self) -> MapsVersion {
        Session::maps_version(self)
    }

    fn regions(&self) -> Result<Vec<Region>> {
        Ok(Session::regions(self)?)
    }

    fn images(&self) -> Vec<ImageSpan> {
        Session::images(self)
    }

    fn look(&self) -> Box<dyn Process + '_> {
        Box::new(Stopped::new(self))
    }

    fn run(&mut self, stops: &Stops<'_>, until: Position, cancel: &Cancel) -> Result<Arrival> {
        self.set_cancel(cancel);
        Ok(self.run_to(stops, until)?)
    }

    fn step(&mut self, range: Range<Addr>, watches: &[Watch], cancel: &Cancel) -> Result<Arrival> {
        self.set_cancel(cancel);
        Ok(self.step_watching(range, watches)?)
    }

    fn history(&mut self) -> Option<&mut dyn Recorded> {
        Some(self)
    }
}

impl Recorded for Session {
    fn seek(&mut self, to: Position, cancel: &Cancel) -> Result<Arrival> {
        self.set_cancel(cancel);
        Ok(self.go_to_position(to)?)
    }

    fn last(
        &mut self,
        stops: &Stops<'_>,
        floor: Position,
        cancel: &Cancel,
        ask: Option<&mut Ask<'_>>,
    ) -> Result<Back> {
        self.set_cancel(cancel);
        let Some(ask) = ask else {
            return Ok(self.run_back_to(stops, floor, None)?);
        };
        let mut wanted = |session: &Session| {
            let hit = session.watch_hit().map_or(Hit::Breakpoint, Hit::Watch);
            ask(session, hit)
        };
        Ok(self.run_back_to(stops, floor, Some(&mut wanted))?)
    }

    fn step_back(&mut self, cancel: &Cancel) -> Result<bool> {
        self.set_cancel(cancel);
        Ok(self.step_instruction_back()?)
    }

    fn checkpoint(&mut self) -> Result<CheckpointId> {
        Ok(Session::checkpoint(self)?)
    }

    fn checkpoints(&self) -> Vec<CheckpointInfo> {
        Session::checkpoints(self)
    }

    fn only_forwards(&mut self) {
        self.set_budget(Budget {
            memory: u64::MAX,
            count: 1,
        });
    }

    fn drop_checkpoint(&mut self, id: CheckpointId) -> bool {
        Session::drop_checkpoint(self, id)
    }
}

/// Opens processes of the members of a set. What they share is kept: what
/// those of a member wrote into each other's memory, and what the checkpoints
/// of all may take.
pub struct Replayer {
    members: Vec<Arc<SharedReplay>>,
}

impl Replayer {
    /// Of all members.
    pub fn new(set: &Set) -> Replayer {
        let pool: Arc<Pool> = Arc::default();
        let members = set.members().zip(0u16..).map(|(recording, number)| {
            let shared = SharedReplay::of_member(recording, number, Arc::clone(&pool));
            Arc::new(shared)
        });
        Replayer {
            members: members.collect(),
        }
    }

    /// Whether all is there that replaying a process's member needs.
    pub fn check(&self, process: ProcessId) -> Result<()> {
        Ok(crate::check(self.member(process)?.recording())?)
    }

    fn member(&self, process: ProcessId) -> Result<&Arc<SharedReplay>> {
        let member = self.members.get(usize::from(process.member));
        member.ok_or(Error::NothingRecorded(process))
    }
}

impl Opener for Replayer {
    fn open(&self, process: ProcessId, cancel: &Cancel) -> Result<Box<dyn Target>> {
        let shared = self.member(process)?;
        if shared.recording().manifest().observed.is_some() {
            return Err(crate::Error::Observed.into());
        }
        match Session::open_with(shared, process.number, cancel.clone()) {
            Ok(session) => Ok(Box::new(session)),
            Err(crate::Error::NoLog { .. }) => Err(Error::NothingRecorded(process)),
            Err(other) => Err(other.into()),
        }
    }
}
