//! One process of a recording, to be moved to any of its events and looked
//! into there.
//!
//! A session replays the process, and, if it was forked, its ancestors up to
//! the fork. Copies of the replaying process are left behind on the way
//! (checkpoints: plain forks), so that going back is to go on from the nearest
//! one before.
//!
//! `image` replays one of the programs that the process executes; what is here
//! leads from one to the next. `budget` says how many copies there may be,
//! `search` finds the last of something, `steps` goes back by an instruction,
//! `memory` is what can be seen where it stands, and `target` is all this as
//! debuggers see it.

mod budget;
mod image;
mod memory;
mod search;
mod steps;
mod target;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::target::{
    Arrival, Cancel, CheckpointId, CheckpointInfo, ImageSpan, MapsVersion, Position, Region, Stops,
    Watch,
};
use inject::Image;
use protocol::id::{EventNo, ProcessNo, ThreadNo};
use recording::Recording;

pub use budget::{Budget, Pool};
pub use search::Wanted;
pub use target::Replayer;

use protocol::id::Addr;

use crate::Error;
use crate::group::SharedReplay;
use crate::player::{Motion, Stop};
use crate::stream::{Stream, streams_of};
use budget::Share;
use image::{ImageReplay, Terms};

/// How much processor time it may use without coming to an event.
const PATIENCE: Duration = Duration::from_secs(600);

/// About to do an event.
fn before(event: EventNo) -> Position {
    Position::Event(event)
}

/// Says which watch it was, not which piece of it.
fn named(arrival: Arrival, watches: &[Watch]) -> Arrival {
    let Arrival::Watch(mut piece) = arrival else {
        return arrival;
    };
    for (number, watch) in watches.iter().enumerate() {
        let count = watch.pieces().count();
        if piece < count {
            return Arrival::Watch(number);
        }
        piece -= count;
    }
    arrival
}

/// See the module.
pub struct Session {
    shared: Arc<SharedReplay>,
    process: ProcessNo,
    image: Image,
    streams: Vec<Stream>,
    images: BTreeMap<usize, ImageReplay>,
    /// Which of the streams it is in.
    at: usize,
    next_id: u32,
    /// Nothing: its share.
    budget: Option<Budget>,
    share: Share,
    patience: Duration,
    /// Of what is being done.
    cancel: Cancel,
    watch_hit: Option<usize>,
    /// What was mapped when code was last looked at.
    mapped: RefCell<Option<(MapsVersion, Arc<[Region]>)>>,
}

impl Session {
    /// Opens a process; it stands before its first event.
    pub fn open(recording: &Arc<Recording>, process: ProcessNo) -> Result<Session, Error> {
        Session::open_on(&Arc::new(SharedReplay::new(recording)), process)
    }

    /// Opens one of several of one recording.
    pub fn open_on(shared: &Arc<SharedReplay>, process: ProcessNo) -> Result<Session, Error> {
        Session::open_with(shared, process, Cancel::new())
    }

    /// Opens one for a request that may be cancelled: opening can take a replay
    /// of others. It goes for whatever the session does then, until it is told
    /// of another request ([`Session::set_cancel`]).
    pub fn open_with(
        shared: &Arc<SharedReplay>,
        process: ProcessNo,
        cancel: Cancel,
    ) -> Result<Session, Error> {
        let streams = streams_of(shared.recording(), process);
        if streams.is_empty() {
            return Err(shared.no_log(process));
        }
        let image = Image::embedded();
        let mut session = Session {
            shared: Arc::clone(shared),
            process,
            image,
            streams,
            images: BTreeMap::new(),
            at: 0,
            next_id: 1,
            budget: None,
            share: Share::take(shared.pool()),
            patience: PATIENCE,
            cancel,
            watch_hit: None,
            mapped: RefCell::new(None),
        };
        session.open_image(0)?;
        Ok(session)
    }

    /// Sets how much checkpoints may take. Untold, all sessions share what is
    /// reasonable.
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = Some(budget);
    }

    fn budget(&self) -> Budget {
        self.budget.unwrap_or_else(|| self.share.budget())
    }

    /// What follows is of another request.
    pub fn set_cancel(&mut self, cancel: &Cancel) {
        self.cancel = cancel.clone();
    }

    /// How much processor time it may use without coming to an event.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Changes when what is mapped does: the same at the same place, whichever
    /// way led there.
    pub fn maps_version(&self) -> MapsVersion {
        let version = self
            .here()
            .map_or(0, |image| image.current.maps_version(&image.file));
        MapsVersion {
            image: self.at,
            version,
        }
    }

    /// Number of the process.
    pub fn process(&self) -> ProcessNo {
        self.process
    }

    /// The event the process is about to do.
    pub fn event(&self) -> EventNo {
        self.here().map_or(EventNo(0), ImageReplay::event)
    }

    /// The thread that is about to do it.
    pub fn thread(&self) -> ThreadNo {
        let running = |image: &ImageReplay| image.current.thread(&image.file);
        ThreadNo(self.here().map_or(0, running))
    }

    /// Whether the log of the process ends here.
    pub fn is_at_end(&self) -> bool {
        self.at + 1 == self.streams.len()
            && self
                .here()
                .is_some_and(|image| image.current.stop(&image.file) == Stop::End)
    }

    fn here(&self) -> Option<&ImageReplay> {
        self.images.get(&self.at)
    }

    /// The image of the process that does event `event`.
    fn image_at(&self, event: EventNo) -> usize {
        let after = self.streams.partition_point(|s| s.first_event <= event);
        after.saturating_sub(1)
    }

    /// The images of the process.
    pub fn images(&self) -> Vec<ImageSpan> {
        let streams = self.streams.iter();
        streams
            .map(|s| ImageSpan {
                number: s.image,
                first: s.first_event,
            })
            .collect()
    }

    /// Goes to the place before `event`, forwards or back.
    pub fn go_to(&mut self, event: EventNo) -> Result<Arrival, Error> {
        let at = self.image_at(event);
        self.open_image(at)?;
        self.at = at;
        let terms = Terms {
            budget: self.budget(),
            patience: self.patience,
            cancel: &self.cancel,
        };
        let next_id = &mut self.next_id;
        match self.images.get_mut(&at) {
            Some(image) => image.go_to(event, &terms, next_id),
            None => Err(self.shared.no_log(self.process)),
        }
    }

    /// The place the process stands at.
    pub fn position(&self) -> Position {
        self.here().map_or(Position::START, ImageReplay::position)
    }

    /// Goes to a place, forwards or back.
    pub fn go_to_position(&mut self, position: Position) -> Result<Arrival, Error> {
        let goal = match position {
            Position::Event(event) => return self.go_to(event),
            Position::Inside(goal) => goal,
            // That is of a process that lives.
            Position::Halted(_) => return Ok(Arrival::End),
        };
        if self.position() == position {
            return Ok(Arrival::There);
        }
        // The stretch is run from its beginning, so that all is counted; the
        // event before it may be the end of another image.
        let is_before = matches!(self.position(), Position::Inside(now)
            if now.event == goal.event && self.position() < position);
        let first = self
            .streams
            .get(self.image_at(goal.event))
            .map_or(EventNo(0), |s| s.first_event);
        if !is_before && goal.event > first {
            match self.go_to(goal.event.previous())? {
                Arrival::There => {}
                other => return Ok(other),
            }
        }
        let motion = Motion {
            goal: Some(goal),
            ..Motion::default()
        };
        self.advance(&motion, Position::Event(goal.event))
    }

    /// Runs on until it comes to one of the addresses, or to `limit`.
    pub fn run(&mut self, breakpoints: &[Addr], limit: Position) -> Result<Arrival, Error> {
        self.run_watching(breakpoints, &[], limit)
    }

    /// Runs on; it also stops when one of the pieces of memory no longer
    /// holds what it holds now: behind the instruction that changed it, or
    /// behind the event that did, whichever thread that was.
    pub fn run_watching(
        &mut self,
        breakpoints: &[Addr],
        watches: &[Watch],
        limit: Position,
    ) -> Result<Arrival, Error> {
        let stops = Stops {
            breakpoints,
            watches,
            ..Stops::default()
        };
        self.run_to(&stops, limit)
    }

    /// Runs on until something says to stop, or to `limit`.
    pub fn run_to(&mut self, stops: &Stops<'_>, limit: Position) -> Result<Arrival, Error> {
        let motion = Motion {
            mapped: stops.mapped,
            conditions: stops.conditions.to_vec(),
            ..self.motion(stops.breakpoints, stops.watches, limit)?
        };
        let arrival = named(self.advance(&motion, limit)?, stops.watches);
        self.watch_hit = match arrival {
            Arrival::Watch(number) => Some(number),
            _ => None,
        };
        Ok(arrival)
    }

    /// Which of the pieces of memory the last motion stopped for.
    pub fn watch_hit(&self) -> Option<usize> {
        self.watch_hit
    }

    fn motion(
        &self,
        breakpoints: &[Addr],
        watches: &[Watch],
        limit: Position,
    ) -> Result<Motion, Error> {
        let watches = self.pieces(watches);
        if watches.len() > protocol::replay::WATCHES {
            return Err(Error::TooMuchWatched(watches.len()));
        }
        Ok(Motion {
            breakpoints: breakpoints.to_vec(),
            goal: match limit {
                Position::Inside(goal) => Some(goal),
                Position::Event(_) | Position::Halted(_) => None,
            },
            watches,
            ..Motion::default()
        })
    }

    /// Pieces of memory, and what each holds.
    fn pieces(&self, watches: &[Watch]) -> Vec<(Watch, Option<u64>)> {
        let held = |piece: Watch| {
            let mut bytes = [0; 8];
            let length = usize::from(piece.length);
            let got = bytes
                .get_mut(..length)
                .map(|out| self.read(piece.address, out));
            (got == Some(length)).then(|| u64::from_le_bytes(bytes))
        };
        let pieces = watches.iter().flat_map(|watch| watch.pieces());
        pieces.map(|piece| (piece, held(piece))).collect()
    }

    /// Executes one instruction, or as many as begin in `range`. An event may
    /// be part of it.
    pub fn step(&mut self, range: std::ops::Range<Addr>) -> Result<Arrival, Error> {
        self.step_watching(range, &[])
    }

    /// Executes instructions; it stops earlier if watched memory changes.
    pub fn step_watching(
        &mut self,
        range: std::ops::Range<Addr>,
        watches: &[Watch],
    ) -> Result<Arrival, Error> {
        let end = Position::END;
        let motion = Motion {
            step: Some(range),
            ..self.motion(&[], watches, end)?
        };
        let arrival = self.advance(&motion, end)?;
        Ok(named(arrival, watches))
    }

    fn advance(&mut self, motion: &Motion, limit: Position) -> Result<Arrival, Error> {
        let cancel = self.cancel.clone();
        let terms = Terms {
            budget: self.budget(),
            patience: self.patience,
            cancel: &cancel,
        };
        let mut motion = motion.clone();
        loop {
            let next_id = &mut self.next_id;
            let Some(image) = self.images.get_mut(&self.at) else {
                return Err(self.shared.no_log(self.process));
            };
            let arrival = image.advance(&motion, limit, &terms, next_id)?;
            // An exec leads to the next image.
            let more = self.at + 1 < self.streams.len();
            let event = image.event();
            if arrival != Arrival::End || !more || event >= limit.event() {
                return Ok(arrival);
            }
            motion.skip = motion.skip.saturating_sub(self.hits());
            self.open_image(self.at + 1)?;
            self.at += 1;
            let next_id = &mut self.next_id;
            if let Some(image) = self.images.get_mut(&self.at) {
                let first = image.first_event;
                image.go_to(first, &terms, next_id)?;
            }
            if motion.step.is_some() {
                return Ok(Arrival::Stepped);
            }
            if motion.mapped {
                return Ok(Arrival::Mapped);
            }
            // Nothing of the memory is left: what is there now is not a change.
            for (_, value) in &mut motion.watches {
                *value = None;
            }
            // Conditions are about variables of the image before.
            motion.conditions.clear();
        }
    }

    /// How many stops the last motion came to, those that were passed too.
    fn hits(&self) -> u64 {
        self.here()
            .map_or(0, |image| image.current.hits(&image.file))
    }

    fn first_event(&self) -> EventNo {
        let first = self.streams.first();
        first.map_or(EventNo(0), |stream| stream.first_event)
    }

    /// Goes to the end of the process's log.
    pub fn go_to_end(&mut self) -> Result<Arrival, Error> {
        self.go_to(EventNo::MAX)
    }

    /// Makes sure that image `at` is there.
    fn open_image(&mut self, at: usize) -> Result<(), Error> {
        if self.images.contains_key(&at) {
            return Ok(());
        }
        let Some(stream) = self.streams.get(at) else {
            return Err(self.shared.no_log(self.process));
        };
        let image = ImageReplay::open(
            &self.shared,
            &self.image,
            stream,
            &self.cancel,
            &mut self.next_id,
        )?;
        self.images.insert(at, image);
        Ok(())
    }

    /// Leaves a copy of the process here, to come back to by
    /// [`Session::restart`]; it stays until it is dropped.
    pub fn checkpoint(&mut self) -> Result<CheckpointId, Error> {
        let next_id = &mut self.next_id;
        match self.images.get_mut(&self.at) {
            Some(image) => image.leave_copy(true, next_id),
            None => Err(self.shared.no_log(self.process)),
        }
    }

    /// All checkpoints, in order of their events.
    pub fn checkpoints(&self) -> Vec<CheckpointInfo> {
        self.images
            .values()
            .flat_map(|image| &image.checkpoints)
            .map(|checkpoint| CheckpointInfo {
                id: checkpoint.id,
                event: checkpoint.event,
                kept: checkpoint.kept,
            })
            .collect()
    }

    /// How much memory all checkpoints take together, in bytes.
    pub fn memory_used(&self) -> u64 {
        self.images.values().map(ImageReplay::memory_used).sum()
    }

    /// Drops a checkpoint. (The one before the first event stays.)
    pub fn drop_checkpoint(&mut self, id: CheckpointId) -> bool {
        self.images.values_mut().any(|image| image.forget(id))
    }

    /// Goes back to a checkpoint.
    pub fn restart(&mut self, id: CheckpointId) -> Result<Arrival, Error> {
        let found = self.checkpoints().into_iter().find(|c| c.id == id);
        match found {
            Some(checkpoint) => self.go_to(checkpoint.event),
            None => Err(Error::NoCheckpoint(id)),
        }
    }
}
