//! A session as debuggers see it.

use std::ops::Range;
use std::sync::Arc;

use ::target::{
    Arrival, Ask, Back, Cancel, CheckpointId, CheckpointInfo, Handler, Hit, ImageSpan, MapsVersion,
    Opener, Position, Recorded, Region, Result, Stops, Target, ThreadState, Watch,
};
use inspect::Process;
use protocol::id::{ProcessId, ThreadNo};

use super::Session;
use crate::group::SharedReplay;
use crate::stopped::Stopped;

impl Target for Session {
    fn id(&self) -> ProcessId {
        ProcessId::of_first(self.process)
    }

    fn position(&self) -> Position {
        Session::position(self)
    }

    fn thread(&self) -> ThreadNo {
        ThreadNo(Session::thread(self))
    }

    fn threads(&self) -> Vec<ThreadState> {
        let mut threads = Session::threads(self);
        threads.sort_by_key(|thread| thread.number);
        threads
    }

    fn handlers(&self) -> Vec<Handler> {
        Session::handlers(self)
    }

    fn read(&self, address: u64, out: &mut [u8]) -> usize {
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

    fn step(&mut self, range: Range<u64>, watches: &[Watch], cancel: &Cancel) -> Result<Arrival> {
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

    fn drop_checkpoint(&mut self, id: CheckpointId) -> bool {
        Session::drop_checkpoint(self, id)
    }
}

/// Opens processes of one recording. What they share is kept: what they wrote
/// into each other's memory, and what their checkpoints may take.
pub struct Replayer(pub Arc<SharedReplay>);

impl Opener for Replayer {
    fn open(&self, process: ProcessId, cancel: &Cancel) -> Result<Box<dyn Target>> {
        let session = Session::open_with(&self.0, process.number, cancel.clone())?;
        Ok(Box::new(session))
    }
}
