//! One process of a recording, to be moved to any of its events and looked
//! into there.
//!
//! A session replays the process, and, if it was forked, its ancestors up to
//! the fork. Copies of the replaying process are left behind on the way
//! (checkpoints: plain forks), so that going back is to go on from the nearest
//! one before.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use inject::Image;
use protocol::layout::{MONITOR_BASE, MONITOR_END};
use protocol::record::{begin, counter_site};
use protocol::replay::{COUNTER_SITES, COUNTERS_BASE, CounterSite, PLAYERS, site};
use recording::Recording;
use recording::process::Began;

use crate::Error;
use crate::file::ReplayFile;
use crate::group::{Ground, image_start};
use crate::player::{Condition, Handler, Inside, Motion, Player, Stop, ThreadState, Watch};
use crate::spacing;
use crate::stream::{Stream, streams_of};
use crate::verdict::{Difference, difference_of};
use crate::watch::Headway;

/// How often it is seen whether it is to stop, and how long it may take to do
/// so.
const LOOK: Duration = Duration::from_millis(40);
const GRACE: Duration = Duration::from_millis(150);

/// How much processor time it may use without coming to an event.
const PATIENCE: Duration = Duration::from_secs(600);

/// How much memory checkpoints may take together, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes.
    pub memory: u64,
    /// Processes.
    pub count: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            memory: 2 << 30,
            count: spacing::COPIES,
        }
    }
}

impl Budget {
    /// What each of so many sessions may take, unless it is told.
    fn share(sessions: usize) -> Budget {
        const TOGETHER: Budget = Budget {
            memory: 4 << 30,
            count: 4096,
        };
        const LEAST: Budget = Budget {
            memory: 64 << 20,
            count: 32,
        };
        let one = Budget::default();
        let sessions = sessions.max(1);
        let memory = TOGETHER.memory / sessions as u64;
        Budget {
            memory: memory.clamp(LEAST.memory, one.memory),
            count: (TOGETHER.count / sessions).clamp(LEAST.count, one.count),
        }
    }
}

/// One of the sessions that are open in this process, which share what
/// checkpoints may take.
struct Seat;

static SEATS: AtomicUsize = AtomicUsize::new(0);

impl Seat {
    fn take() -> Seat {
        SEATS.fetch_add(1, Relaxed);
        Seat
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        SEATS.fetch_sub(1, Relaxed);
    }
}

/// Names a checkpoint of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(u32);

impl std::fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What is known of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    pub id: CheckpointId,
    /// The event that it stands before.
    pub event: u64,
    /// Taken by [`Session::checkpoint`]: it stays until it is dropped.
    pub kept: bool,
}

/// A place in the run of a process. Places are in the order in which the
/// process comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// About to do this event.
    Event(u64),
    /// Between two events.
    Inside(Inside),
}

impl Position {
    /// The event that comes next.
    pub fn event(&self) -> u64 {
        match self {
            Position::Event(event) => *event,
            Position::Inside(inside) => inside.event,
        }
    }

    fn key(&self) -> (u64, u64, u64) {
        match self {
            Position::Event(event) => (*event, u64::MAX, 0),
            // Without control transfers, addresses only rise.
            Position::Inside(inside) => (inside.event, inside.transfers, inside.address),
        }
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Position) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Position) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Where a process came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At the place it was to go to.
    There,
    /// Before the instruction at a breakpoint.
    Breakpoint,
    /// What was to be stepped over has been executed.
    Stepped,
    /// Behind the instruction, or the event, that changed watched memory: the
    /// place of the [`Watch`] in the list that was given.
    Watch(usize),
    /// Its log ends before.
    End,
    /// Somebody asked for it to stop (see [`Session::interrupter`]).
    Interrupted,
    /// Behind a call that mapped code ([`Stops::mapped`]).
    Mapped,
    /// It came to something else than the recording.
    Diverged(Difference),
}

/// What a motion stops at, besides its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stops<'a> {
    /// Before the instructions at these addresses.
    pub breakpoints: &'a [u64],
    /// Behind what changes this memory.
    pub watches: &'a [Watch],
    /// Behind each call that maps code.
    pub mapped: bool,
    /// Breakpoints that have conditions are passed while it is certain that
    /// none of those holds. What is stopped at has still to be asked.
    pub conditions: &'a [Condition],
}

/// Where going back led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// Before the instruction at a breakpoint.
    Breakpoint,
    /// Before what changed watched memory: the place of the [`Watch`] in the
    /// list that was given.
    Watch(usize),
    /// Nowhere: there is nothing of the kind before, and it stands where it
    /// stood.
    Beginning,
    /// Nowhere: somebody asked for it to stop.
    Interrupted,
}

/// Says whether a stop is one.
pub type Wanted<'w> = dyn FnMut(&Session) -> bool + 'w;

/// The last stop on a way.
enum Last {
    At(Position, Arrival),
    Nowhere,
    Interrupted,
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

/// A piece of a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub range: Range<u64>,
    pub writable: bool,
    pub executable: bool,
    /// Where in the file it begins.
    pub offset: u64,
    /// The captured file that is mapped, and the path it had.
    pub file: Option<(PathBuf, PathBuf)>,
    /// The code that programs are given to read clocks with.
    pub is_vdso: bool,
}

struct Checkpoint {
    id: CheckpointId,
    player: Player,
    event: u64,
    /// How long it takes to come here from the beginning.
    cost: Duration,
    /// What it took when it, or one beside it, was last looked at.
    memory: u64,
    kept: bool,
}

/// One image of a process, led.
struct Track {
    file: ReplayFile,
    /// What its players say before they end of themselves.
    words: File,
    current: Player,
    cost: Duration,
    /// In order of their events; the first stands before the first event.
    checkpoints: Vec<Checkpoint>,
    free: Vec<usize>,
    /// The stream that is watched, in the file's table.
    watched: usize,
    first_event: u64,
}

/// See the module.
pub struct Session {
    ground: Arc<Ground>,
    process: u32,
    image: Image,
    streams: Vec<Stream>,
    tracks: BTreeMap<usize, Track>,
    /// Which of the streams it is in.
    at: usize,
    next_id: u32,
    /// Nothing: its share.
    budget: Option<Budget>,
    _seat: Seat,
    patience: Duration,
    interrupt: Arc<AtomicBool>,
    watch_hit: Option<usize>,
}

/// What goes for all motions of a track.
struct Terms<'s> {
    budget: Budget,
    patience: Duration,
    interrupt: &'s AtomicBool,
}

impl Session {
    /// Opens a process; it stands before its first event.
    pub fn open(recording: &Arc<Recording>, process: u32) -> Result<Session, Error> {
        Session::open_on(&Arc::new(Ground::new(recording)), process)
    }

    /// The same for who opens several of one recording.
    pub fn open_on(ground: &Arc<Ground>, process: u32) -> Result<Session, Error> {
        Session::open_with(ground, process, Arc::default())
    }

    /// The same for who may not have the time: opening one can take a replay of
    /// others. Set to true, the flag stops that, and whatever the session does
    /// then (see [`Session::interrupter`]).
    pub fn open_with(
        ground: &Arc<Ground>,
        process: u32,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Session, Error> {
        let streams = streams_of(ground.recording(), process);
        if streams.is_empty() {
            return Err(Error::NoLog { process });
        }
        let image = Image::embedded();
        let mut session = Session {
            ground: Arc::clone(ground),
            process,
            image,
            streams,
            tracks: BTreeMap::new(),
            at: 0,
            next_id: 1,
            budget: None,
            _seat: Seat::take(),
            patience: PATIENCE,
            interrupt,
            watch_hit: None,
        };
        session.track(0)?;
        Ok(session)
    }

    /// Sets how much checkpoints may take. Untold, all sessions share what is
    /// reasonable.
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = Some(budget);
    }

    fn budget(&self) -> Budget {
        let share = || Budget::share(SEATS.load(Relaxed));
        self.budget.unwrap_or_else(share)
    }

    /// Set to true, it stops whatever the session does, soon. It stays so
    /// until it is set to false again.
    pub fn interrupter(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupt)
    }

    /// Uses another flag for that: one for several sessions, say.
    pub fn set_interrupter(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = flag;
    }

    /// How much processor time it may use without coming to an event.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Changes when what is mapped does: the same at the same place, whichever
    /// way led there.
    pub fn maps_version(&self) -> (usize, u64) {
        let version = self
            .here()
            .map_or(0, |track| track.current.maps_version(&track.file));
        (self.at, version)
    }

    /// Number of the process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The event the process is about to do.
    pub fn event(&self) -> u64 {
        self.here().map_or(0, Track::event)
    }

    /// The thread that is about to do it.
    pub fn thread(&self) -> u32 {
        self.here()
            .map_or(0, |track| track.current.thread(&track.file))
    }

    /// Whether the log of the process ends here.
    pub fn is_at_end(&self) -> bool {
        self.at + 1 == self.streams.len()
            && self
                .here()
                .is_some_and(|track| track.current.stop(&track.file) == Stop::End)
    }

    fn here(&self) -> Option<&Track> {
        self.tracks.get(&self.at)
    }

    /// The image of the process that does event `event`.
    fn image_at(&self, event: u64) -> usize {
        let after = self.streams.partition_point(|s| s.first_event <= event);
        after.saturating_sub(1)
    }

    /// The images of the process, each by its number and its first event. (One
    /// that was forked begins with an image of its parent's, which has no
    /// number of its own: 0.)
    pub fn images(&self) -> Vec<(u32, u64)> {
        let streams = self.streams.iter();
        streams.map(|s| (s.image, s.first_event)).collect()
    }

    /// Goes to the place before `event`, forwards or back.
    pub fn go_to(&mut self, event: u64) -> Result<Arrival, Error> {
        let at = self.image_at(event);
        self.track(at)?;
        self.at = at;
        let terms = Terms {
            budget: self.budget(),
            patience: self.patience,
            interrupt: &self.interrupt,
        };
        let next_id = &mut self.next_id;
        match self.tracks.get_mut(&at) {
            Some(track) => track.go_to(event, &terms, next_id),
            None => Err(Error::NoLog {
                process: self.process,
            }),
        }
    }

    /// The place the process stands at.
    pub fn position(&self) -> Position {
        self.here().map_or(Position::Event(0), Track::position)
    }

    /// Goes to a place, forwards or back.
    pub fn go_to_position(&mut self, position: Position) -> Result<Arrival, Error> {
        let goal = match position {
            Position::Event(event) => return self.go_to(event),
            Position::Inside(goal) => goal,
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
            .map_or(0, |s| s.first_event);
        if !is_before && goal.event > first {
            match self.go_to(goal.event - 1)? {
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
    pub fn run(&mut self, breakpoints: &[u64], limit: Position) -> Result<Arrival, Error> {
        self.run_watching(breakpoints, &[], limit)
    }

    /// The same; it also stops when one of the pieces of memory no longer
    /// holds what it holds now: behind the instruction that changed it, or
    /// behind the event that did, whichever thread that was.
    pub fn run_watching(
        &mut self,
        breakpoints: &[u64],
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
        breakpoints: &[u64],
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
                Position::Event(_) => None,
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
    pub fn step(&mut self, range: std::ops::Range<u64>) -> Result<Arrival, Error> {
        self.step_watching(range, &[])
    }

    /// The same; it stops earlier if watched memory changes.
    pub fn step_watching(
        &mut self,
        range: std::ops::Range<u64>,
        watches: &[Watch],
    ) -> Result<Arrival, Error> {
        let end = Position::Event(u64::MAX);
        let motion = Motion {
            step: Some(range),
            ..self.motion(&[], watches, end)?
        };
        let arrival = self.advance(&motion, end)?;
        Ok(named(arrival, watches))
    }

    fn advance(&mut self, motion: &Motion, limit: Position) -> Result<Arrival, Error> {
        let interrupt = Arc::clone(&self.interrupt);
        let terms = Terms {
            budget: self.budget(),
            patience: self.patience,
            interrupt: &interrupt,
        };
        let mut motion = motion.clone();
        loop {
            let next_id = &mut self.next_id;
            let Some(track) = self.tracks.get_mut(&self.at) else {
                return Err(Error::NoLog {
                    process: self.process,
                });
            };
            let arrival = track.advance(&motion, limit, &terms, next_id)?;
            // An exec leads to the next image.
            let more = self.at + 1 < self.streams.len();
            let event = track.event();
            if arrival != Arrival::End || !more || event >= limit.event() {
                return Ok(arrival);
            }
            motion.skip = motion.skip.saturating_sub(self.hits());
            self.track(self.at + 1)?;
            self.at += 1;
            let next_id = &mut self.next_id;
            if let Some(track) = self.tracks.get_mut(&self.at) {
                let first = track.first_event;
                track.go_to(first, &terms, next_id)?;
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
            .map_or(0, |track| track.current.hits(&track.file))
    }

    /// Goes back to the last place before here at which the process came to
    /// one of the addresses and `wanted` says so. False: there is none, and it
    /// stands where it stood.
    pub fn run_back(
        &mut self,
        breakpoints: &[u64],
        mut wanted: impl FnMut(&Session) -> bool,
    ) -> Result<bool, Error> {
        let back = self.run_back_watching(breakpoints, &[], Some(&mut wanted))?;
        Ok(back == Back::Breakpoint)
    }

    /// Goes back to the last place before here at which the process came to
    /// one of the addresses, or did something that changed one of the pieces
    /// of memory: it then stands before that instruction or event, and the
    /// memory holds what it held before. If `wanted` is given, it is asked at
    /// each such place (behind the change, for memory), which takes longer.
    pub fn run_back_watching(
        &mut self,
        breakpoints: &[u64],
        watches: &[Watch],
        wanted: Option<&mut Wanted<'_>>,
    ) -> Result<Back, Error> {
        let stops = Stops {
            breakpoints,
            watches,
            ..Stops::default()
        };
        self.run_back_to(&stops, Position::Event(0), wanted)
    }

    /// The same, but not to before `floor`.
    pub fn run_back_to(
        &mut self,
        stops: &Stops<'_>,
        floor: Position,
        wanted: Option<&mut Wanted<'_>>,
    ) -> Result<Back, Error> {
        let here = self.position();
        let back = self.search_back(stops, floor, wanted)?;
        if matches!(back, Back::Beginning | Back::Interrupted) {
            // Also if it is to stop: here is where it stops.
            let asked = self.interrupt.swap(false, Relaxed);
            self.go_to_position(here)?;
            self.interrupt.store(asked, Relaxed);
        }
        Ok(back)
    }

    fn search_back(
        &mut self,
        stops: &Stops<'_>,
        floor: Position,
        mut wanted: Option<&mut Wanted<'_>>,
    ) -> Result<Back, Error> {
        let (breakpoints, watches) = (stops.breakpoints, stops.watches);
        let mut limit = self.position();
        let image = self.at;
        loop {
            // From the last checkpoint before the limit to the limit.
            let before = self
                .checkpoints()
                .into_iter()
                .map(|c| c.event)
                .filter(|event| Position::Event(*event) < limit)
                .max();
            let from = before.unwrap_or(self.first_event());
            if self.go_to(from)? == Arrival::Interrupted {
                return Ok(Back::Interrupted);
            }
            let start = self.position();
            // Conditions are about variables of one image.
            let conditions = if self.at == image {
                stops.conditions
            } else {
                &[]
            };
            let stops = Stops {
                conditions,
                ..*stops
            };
            let last = match &mut wanted {
                Some(wanted) => self.last_wanted(&stops, limit, *wanted)?,
                None => self.last_of_all(breakpoints, watches, from, limit)?,
            };
            match last {
                Last::At(found, Arrival::Watch(number)) if found > floor => {
                    self.before_change(found, watches.get(number))?;
                    return Ok(Back::Watch(number));
                }
                Last::At(found, _) if found > floor => {
                    self.go_to_position(found)?;
                    return Ok(Back::Breakpoint);
                }
                Last::Interrupted => return Ok(Back::Interrupted),
                Last::Nowhere | Last::At(..) => {}
            }
            if from <= self.first_event() || start >= limit || start <= floor {
                return Ok(Back::Beginning);
            }
            limit = start;
        }
    }

    /// From here to `limit`: the last stop that is wanted.
    fn last_wanted(
        &mut self,
        stops: &Stops<'_>,
        limit: Position,
        wanted: &mut Wanted<'_>,
    ) -> Result<Last, Error> {
        let mut last = Last::Nowhere;
        while self.position() < limit {
            let arrival = self.run_to(stops, limit)?;
            let now = self.position();
            match arrival {
                Arrival::Breakpoint if now < limit => {}
                Arrival::Watch(_) if now <= limit => {}
                Arrival::Interrupted => return Ok(Last::Interrupted),
                _ => {
                    self.watch_hit = self.changed_unseen(stops.watches);
                    if let Some(number) = self.watch_hit
                        && wanted(self)
                    {
                        last = Last::At(now, Arrival::Watch(number));
                    }
                    break;
                }
            }
            if wanted(self) {
                last = Last::At(now, arrival);
            }
        }
        Ok(last)
    }

    /// The same if all are: they are counted on the way, and the last one is
    /// gone to.
    fn last_of_all(
        &mut self,
        breakpoints: &[u64],
        watches: &[Watch],
        from: u64,
        limit: Position,
    ) -> Result<Last, Error> {
        let mut motion = self.motion(breakpoints, watches, limit)?;
        motion.skip = u64::MAX;
        if self.advance(&motion, limit)? == Arrival::Interrupted {
            return Ok(Last::Interrupted);
        }
        if let Some(number) = self.changed_unseen(watches) {
            return Ok(Last::At(self.position(), Arrival::Watch(number)));
        }
        let Some(skip) = self.hits().checked_sub(1) else {
            return Ok(Last::Nowhere);
        };
        self.go_to(from)?;
        let mut motion = self.motion(breakpoints, watches, limit)?;
        motion.skip = skip;
        let arrival = self.advance(&motion, limit)?;
        if arrival == Arrival::Interrupted {
            return Ok(Last::Interrupted);
        }
        Ok(match named(arrival, watches) {
            found @ (Arrival::Breakpoint | Arrival::Watch(_)) => Last::At(self.position(), found),
            _ => Last::Nowhere,
        })
    }

    /// After a motion: which of the pieces of memory has changed and no thread
    /// has gone on since, which is where changes are seen.
    fn changed_unseen(&self, watches: &[Watch]) -> Option<usize> {
        let track = self.here()?;
        let known = track.current.watched(&track.file);
        let now = self.pieces(watches);
        let piece = now
            .iter()
            .zip(&known)
            .position(|((_, now), then)| now.is_some() && then.is_some() && now != then)?;
        match named(Arrival::Watch(piece), watches) {
            Arrival::Watch(number) => Some(number),
            _ => None,
        }
    }

    /// Goes to before what changed a piece of memory, which shows at `found`.
    fn before_change(&mut self, found: Position, watch: Option<&Watch>) -> Result<(), Error> {
        self.go_to_position(found)?;
        let watches: Vec<Watch> = watch.copied().into_iter().collect();
        let changed = self.pieces(&watches);
        while self.step_back()? && self.pieces(&watches) == changed {}
        Ok(())
    }

    /// Goes back by one instruction. False: this is the beginning.
    pub fn step_back(&mut self) -> Result<bool, Error> {
        let here = self.position();
        let event = here.event();
        let first = self
            .streams
            .get(self.image_at(event))
            .map_or(0, |s| s.first_event);
        if event <= first {
            return Ok(false);
        }
        // The stretch that ends here, from its beginning or from the last
        // control transfer on.
        let transfers = match here {
            Position::Inside(inside) => Some(inside.transfers),
            Position::Event(_) => None,
        };
        let last = match transfers {
            // The first instruction of the stretch: the event is before it.
            Some(count) => self.last_before(here, event, count)?,
            None => self.last_of(event)?,
        };
        match last {
            Some(position) => self.go_to_position(position)?,
            None => self.go_to(event - 1)?,
        };
        Ok(true)
    }

    /// The same for a person: an event that befell the instruction that was to
    /// be done, a fault or an interruption, has a place of its own, and the one
    /// before it is no instruction earlier.
    pub fn step_instruction_back(&mut self) -> Result<bool, Error> {
        let (here, address) = (self.position(), self.address());
        let moved = self.step_back()?;
        let is_same = matches!((here, self.position()), (Position::Event(event), Position::Inside(at))
            if at.event == event && Some(at.address) == address);
        Ok(if is_same { self.step_back()? } else { moved })
    }

    /// The instruction where the thread is that stopped.
    fn address(&self) -> Option<u64> {
        let track = self.here()?;
        Some(track.current.inside(&track.file).address)
    }

    /// The last place before `here` that has `count` control transfers, or one
    /// less.
    fn last_before(
        &mut self,
        here: Position,
        event: u64,
        count: u64,
    ) -> Result<Option<Position>, Error> {
        for count in [Some(count), count.checked_sub(1)].into_iter().flatten() {
            let start = Inside {
                event,
                transfers: count,
                address: 0,
            };
            self.go_to_position(Position::Inside(start))?;
            let mut last = None;
            while self.position() < here {
                last = Some(self.position());
                if self.step(0..0)? != Arrival::Stepped || self.position().event() != event {
                    break;
                }
            }
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }

    /// The last place in the stretch before an event.
    fn last_of(&mut self, event: u64) -> Result<Option<Position>, Error> {
        let far = Inside {
            event,
            transfers: u64::MAX - 1,
            address: u64::MAX,
        };
        self.go_to_position(Position::Inside(Inside {
            transfers: 0,
            address: 0,
            ..far
        }))?;
        if self.position() == Position::Event(event) {
            return Ok(None);
        }
        // How many control transfers there are is known at its end.
        let motion = Motion {
            goal: Some(far),
            ..Motion::default()
        };
        self.advance(&motion, Position::Event(event))?;
        let count = self
            .here()
            .map_or(0, |track| track.current.inside(&track.file).transfers);
        self.last_before(Position::Event(event), event, count)
    }

    fn first_event(&self) -> u64 {
        self.streams.first().map_or(0, |s| s.first_event)
    }

    /// Goes to the end of the process's log.
    pub fn go_to_end(&mut self) -> Result<Arrival, Error> {
        self.go_to(u64::MAX)
    }

    /// Makes sure that image `at` is there.
    fn track(&mut self, at: usize) -> Result<(), Error> {
        if self.tracks.contains_key(&at) {
            return Ok(());
        }
        let Some(stream) = self.streams.get(at) else {
            return Err(Error::NoLog {
                process: self.process,
            });
        };
        let track = Track::open(
            &self.ground,
            &self.image,
            stream,
            &self.interrupt,
            &mut self.next_id,
        )?;
        self.tracks.insert(at, track);
        Ok(())
    }

    /// The threads of the process, as they stand.
    pub fn threads(&self) -> Vec<ThreadState> {
        self.here()
            .map(|track| track.current.threads(&track.file))
            .unwrap_or_default()
    }

    /// The thread that is about to do its event, as it stands.
    pub fn running(&self) -> Option<ThreadState> {
        let number = self.thread();
        self.threads().into_iter().find(|t| t.number == number)
    }

    /// What the process does with signal 1 and those that follow.
    pub fn handlers(&self) -> Vec<Handler> {
        self.here()
            .map(|track| track.current.handlers(&track.file))
            .unwrap_or_default()
    }

    /// Reads memory: how many bytes from `address` on could be had.
    pub fn read(&self, address: u64, out: &mut [u8]) -> usize {
        self.here()
            .map_or(0, |track| track.current.read(address, out))
    }

    /// The same for code: instructions that the monitor replaced because they
    /// read the time-stamp counter are as the program has them.
    pub fn read_code(&self, address: u64, out: &mut [u8]) -> usize {
        self.read_code_with(&self.counter_sites(), address, out)
    }

    /// The same for who has asked which are replaced: it takes longer than the
    /// rest.
    pub fn read_code_with(&self, sites: &[u64], address: u64, out: &mut [u8]) -> usize {
        let got = self.read(address, out);
        for site in sites.iter().copied() {
            let original: &[u8] = match counter_site::len(site) {
                2 => &[0x0f, 0x31],
                _ => &[0x0f, 0x01, 0xf9],
            };
            for (at, byte) in (counter_site::place(site)..).zip(original) {
                let into = at.wrapping_sub(address) as usize;
                if let Some(place) = out.get_mut(..got).and_then(|out| out.get_mut(into)) {
                    *place = *byte;
                }
            }
        }
        got
    }

    /// The instructions that the monitor has replaced now, each as a
    /// [`counter_site`].
    pub fn counter_sites(&self) -> Vec<u64> {
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let mut count = [0; 8];
        if self.read(COUNTERS_BASE, &mut count) != count.len() {
            return Vec::new();
        }
        let count = (word(&count) as usize).min(COUNTER_SITES);
        let mut table = vec![0; count * size_of::<CounterSite>()];
        let got = self.read(COUNTERS_BASE + 8, &mut table);
        table.truncate(got);
        table
            .chunks_exact(size_of::<CounterSite>())
            .filter_map(|entry| {
                let (address, rest) = entry.split_at_checked(8)?;
                let rest = word(rest);
                let (len, state) = (rest & 0xffff_ffff, (rest >> 32) as u32);
                (state == site::REPLACED).then(|| counter_site::word(word(address), len))
            })
            .collect()
    }

    /// What is mapped, the monitor's own memory left out.
    pub fn regions(&self) -> Result<Vec<Region>, Error> {
        let Some(track) = self.here() else {
            return Ok(Vec::new());
        };
        let maps = track.current.maps()?;
        let mut regions: Vec<Region> = maps
            .lines()
            .filter_map(|line| self.region(line))
            .filter(|r| r.range.end <= MONITOR_BASE || r.range.start >= MONITOR_END)
            .collect();
        // It is in the monitor, but the program's to call.
        let start = self.image.vdso;
        let vdso = Region {
            range: start..start + self.image.vdso_len,
            writable: false,
            executable: true,
            offset: 0,
            file: None,
            is_vdso: true,
        };
        let at = regions.partition_point(|r| r.range.start < start);
        regions.insert(at, vdso);
        Ok(regions)
    }

    fn region(&self, line: &str) -> Option<Region> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let path = words.nth(2).unwrap_or("");
        let id = path
            .rsplit_once('/')
            .filter(|(dir, _)| dir.ends_with(recording::FILES))
            .and_then(|(_, id)| id.parse::<u64>().ok());
        Some(Region {
            range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
            writable: rights.contains('w'),
            executable: rights.contains('x'),
            offset,
            file: id.and_then(|id| self.captured(id)),
            is_vdso: false,
        })
    }

    fn captured(&self, id: u64) -> Option<(PathBuf, PathBuf)> {
        use std::os::unix::ffi::OsStrExt;
        let recording = self.ground.recording();
        let info = recording.files().iter().find(|f| f.id == id)?;
        let original = PathBuf::from(std::ffi::OsStr::from_bytes(&info.path));
        Some((recording.captured_path(id), original))
    }

    /// Leaves a copy of the process here, to come back to by
    /// [`Session::restart`]; it stays until it is dropped.
    pub fn checkpoint(&mut self) -> Result<CheckpointId, Error> {
        let next_id = &mut self.next_id;
        match self.tracks.get_mut(&self.at) {
            Some(track) => track.leave_copy(true, next_id),
            None => Err(Error::NoLog {
                process: self.process,
            }),
        }
    }

    /// All checkpoints, in order of their events.
    pub fn checkpoints(&self) -> Vec<CheckpointInfo> {
        self.tracks
            .values()
            .flat_map(|track| &track.checkpoints)
            .map(|checkpoint| CheckpointInfo {
                id: checkpoint.id,
                event: checkpoint.event,
                kept: checkpoint.kept,
            })
            .collect()
    }

    /// How much memory all checkpoints take together, in bytes.
    pub fn memory_used(&self) -> u64 {
        self.tracks.values().map(Track::memory_used).sum()
    }

    /// Drops a checkpoint. (The one before the first event stays.)
    pub fn drop_checkpoint(&mut self, id: CheckpointId) -> bool {
        self.tracks.values_mut().any(|track| track.forget(id))
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

impl Track {
    fn open(
        ground: &Ground,
        image: &Image,
        stream: &Stream,
        interrupt: &AtomicBool,
        next_id: &mut u32,
    ) -> Result<Track, Error> {
        let recording = ground.recording();
        let (streams, path) = path_to(recording, stream)?;
        let shared = ground.shared(image, &streams, interrupt)?;
        let mut file = ReplayFile::create(image, &streams, recording)?;
        let first = path.first().copied().unwrap_or(0);
        let stream = streams.get(first).ok_or(Error::NoLog { process: 0 })?;
        let start = image_start(recording, stream.process, stream.image)?;
        file.set_start(first, &start, image.vdso)?;
        if let Some(shared) = shared {
            file.set_shared(&shared.domains);
            file.set_journal(&shared.journal)
                .map_err(|source| Error::File {
                    path: std::env::temp_dir().display().to_string(),
                    source,
                })?;
        }
        file.set_path(&path, 0)?;
        let words = place_for_words()?;
        let said = words.try_clone().map_err(Error::Pipe)?;
        let current = Player::start(&file, image, 0, said.into()).map_err(|error| match error {
            Error::Died { pid, .. } => Error::Died {
                pid,
                words: last_words(&words),
            },
            other => other,
        })?;
        let mut track = Track {
            file,
            words,
            current,
            cost: Duration::ZERO,
            checkpoints: Vec::new(),
            free: (1..PLAYERS).rev().collect(),
            watched: path.last().copied().unwrap_or(0),
            first_event: stream.first_event,
        };
        track.leave_copy(false, next_id)?;
        Ok(track)
    }

    fn event(&self) -> u64 {
        self.current.event(&self.file)
    }

    fn position(&self) -> Position {
        let inside = self.current.inside(&self.file);
        match self.current.stop(&self.file) {
            Stop::Breakpoint
            | Stop::Goal
            | Stop::Stepped
            | Stop::Watch(_)
            | Stop::Mapped
            | Stop::Halted => Position::Inside(inside),
            Stop::Event | Stop::End | Stop::Diverged => Position::Event(inside.event),
        }
    }

    /// Waits until it stands still, or the time is over.
    fn wait(&self, limit: Instant) -> Result<bool, Error> {
        self.current
            .wait(&self.file, Some(limit))
            .map_err(|error| match error {
                Error::Died { pid, .. } => Error::Died {
                    pid,
                    words: last_words(&self.words),
                },
                other => other,
            })
    }

    /// The event that comes next, while it runs.
    fn next_event(&self) -> u64 {
        let table = &self.file.header().table;
        table[self.watched % table.len()].event.load(Relaxed)
    }

    fn take_place(&mut self) -> Result<usize, Error> {
        self.free.pop().ok_or(Error::TooMany(PLAYERS))
    }

    fn leave_copy(&mut self, kept: bool, next_id: &mut u32) -> Result<CheckpointId, Error> {
        let event = self.event();
        let at = self.checkpoints.partition_point(|c| c.event < event);
        if let Position::Inside(_) = self.position() {
            // Named places are at events: the one that comes next is behind.
            return Err(Error::NotAtAnEvent);
        }
        if let Some(there) = self.checkpoints.get_mut(at)
            && there.event == event
        {
            there.kept |= kept;
            return Ok(there.id);
        }
        let place = self.take_place()?;
        let player = match self.current.fork(&self.file, place) {
            Ok(player) => player,
            Err(error) => {
                self.free.push(place);
                return Err(error);
            }
        };
        let id = CheckpointId(*next_id);
        *next_id += 1;
        let checkpoint = Checkpoint {
            id,
            player,
            event,
            cost: self.cost,
            memory: 0,
            kept,
        };
        self.checkpoints.insert(at, checkpoint);
        self.measure(at);
        Ok(id)
    }

    /// Measures how much memory the checkpoint at this place takes, and the one
    /// before it, with which it shares most: what the others take is hardly
    /// another for it.
    fn measure(&mut self, at: usize) {
        for place in at.saturating_sub(1)..=at {
            if let Some(checkpoint) = self.checkpoints.get_mut(place) {
                checkpoint.memory = checkpoint.player.memory_used();
            }
        }
    }

    fn forget(&mut self, id: CheckpointId) -> bool {
        let Some(at) = self.checkpoints.iter().position(|c| c.id == id) else {
            return false;
        };
        if at == 0 {
            return true;
        }
        self.remove(at);
        true
    }

    fn remove(&mut self, at: usize) {
        let checkpoint = self.checkpoints.remove(at);
        self.free.push(checkpoint.player.place);
        drop(checkpoint);
        self.measure(at);
    }

    fn memory_used(&self) -> u64 {
        let players = self.checkpoints.iter().map(|c| &c.player);
        players.map(Player::memory_used).sum()
    }

    /// Drops checkpoints until the rest is within the budget.
    fn thin(&mut self, budget: Budget) {
        let memory = |all: &[Checkpoint]| all.iter().map(|c| c.memory).sum::<u64>();
        while self.checkpoints.len() > budget.count.max(1)
            || self.checkpoints.len() > 1 && memory(&self.checkpoints) > budget.memory
        {
            let costs = self.checkpoints.iter().map(|c| (c.cost, c.kept));
            match spacing::least_missed(costs) {
                Some(at) => self.remove(at),
                None => return,
            }
        }
    }

    /// Goes on from the best place there is.
    fn go_to(
        &mut self,
        event: u64,
        terms: &Terms<'_>,
        next_id: &mut u32,
    ) -> Result<Arrival, Error> {
        let now = self.event();
        let nearest = self.checkpoints.partition_point(|c| c.event <= event);
        let nearest = nearest.checked_sub(1);
        let from = nearest.and_then(|at| self.checkpoints.get(at));
        if let Some(from) = from
            && (now > event || from.event > now)
        {
            let at = nearest.unwrap_or(0);
            self.take_copy(at)?;
        }
        let limit = Position::Event(event);
        self.advance(&Motion::default(), limit, terms, next_id)
    }

    /// Goes on from a copy of a checkpoint instead.
    fn take_copy(&mut self, at: usize) -> Result<(), Error> {
        let place = self.free.pop().ok_or(Error::TooMany(PLAYERS))?;
        let Some(from) = self.checkpoints.get(at) else {
            self.free.push(place);
            return Ok(());
        };
        let cost = from.cost;
        let fresh = match from.player.fork(&self.file, place) {
            Ok(player) => player,
            Err(error) => {
                self.free.push(place);
                return Err(error);
            }
        };
        let old = std::mem::replace(&mut self.current, fresh);
        self.free.push(old.place);
        self.cost = cost;
        Ok(())
    }

    /// It is to stop and has not come to an event since it was told: it goes
    /// back to where it can be stopped.
    fn give_up(&mut self) -> Result<Arrival, Error> {
        let event = self.next_event();
        let nearest = self.checkpoints.partition_point(|c| c.event <= event);
        self.take_copy(nearest.saturating_sub(1))?;
        Ok(Arrival::Interrupted)
    }

    /// Runs on to `limit` at most, or until the motion says to stop.
    fn advance(
        &mut self,
        motion: &Motion,
        limit: Position,
        terms: &Terms<'_>,
        next_id: &mut u32,
    ) -> Result<Arrival, Error> {
        let asked = || terms.interrupt.load(Relaxed);
        self.current.set_motion(&self.file, motion);
        loop {
            match self.current.stop(&self.file) {
                Stop::End => return Ok(Arrival::End),
                Stop::Diverged => return Ok(Arrival::Diverged(self.difference())),
                _ if self.position() >= limit => return Ok(Arrival::There),
                _ if asked() => return Ok(Arrival::Interrupted),
                _ => {}
            }
            let begun = Instant::now();
            self.current.run(&self.file, limit.event())?;
            let stride = spacing::stride(self.cost);
            let mut next = begun + stride;
            let mut headway = Headway::new(self.next_event());
            let mut told = None;
            loop {
                let look = next.min(Instant::now() + LOOK);
                if self.wait(look)? {
                    break;
                }
                if asked() {
                    let since = *told.get_or_insert_with(Instant::now);
                    if since.elapsed() > GRACE {
                        return self.give_up();
                    }
                    self.current.interrupt(&self.file);
                }
                if Instant::now() < next {
                    continue;
                }
                // Time for a copy, or to look up: at the next event.
                self.current.halt(&self.file);
                let pid = self.current.pid();
                if headway.is_lost(self.next_event(), pid, terms.patience) {
                    let patience = terms.patience.as_secs();
                    return Err(Error::Stuck { pid, patience });
                }
                next = Instant::now() + stride;
            }
            self.cost += begun.elapsed();
            match self.current.stop(&self.file) {
                Stop::Breakpoint => return Ok(Arrival::Breakpoint),
                Stop::Goal => return Ok(Arrival::There),
                Stop::Stepped => return Ok(Arrival::Stepped),
                Stop::Watch(piece) => return Ok(Arrival::Watch(piece)),
                Stop::Mapped => return Ok(Arrival::Mapped),
                Stop::Halted => return Ok(Arrival::Interrupted),
                Stop::Event if self.event() < limit.event() && !asked() => {
                    match self.leave_copy(false, next_id) {
                        // Then going back takes longer.
                        Ok(_) | Err(Error::NoCopy(_)) => {}
                        Err(error) => return Err(error),
                    }
                    self.thin(terms.budget);
                }
                _ => {}
            }
        }
    }

    fn difference(&self) -> Difference {
        difference_of(&self.file, self.watched)
    }
}

/// A file that nobody sees, for what players say.
fn place_for_words() -> Result<File, Error> {
    use rustix::fs::{MemfdFlags, OFlags};
    let file = rustix::fs::memfd_create("words", MemfdFlags::CLOEXEC)
        .map_err(|error| Error::Pipe(error.into()))?;
    // All of them write to its end.
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND).map_err(|error| Error::Pipe(error.into()))?;
    Ok(file.into())
}

/// The last line that was said, as the end of a sentence.
fn last_words(words: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; 4096];
    let length = words.metadata().map_or(0, |meta| meta.len());
    let from = length.saturating_sub(bytes.len() as u64);
    let got = words.read_at(&mut bytes, from).unwrap_or(0);
    bytes.truncate(got);
    let text = String::from_utf8_lossy(&bytes);
    match text.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => format!(": {}", line.trim().trim_start_matches("mw: ")),
        None => String::new(),
    }
}

/// The streams that lead to `target`, and those that run in the same memory
/// on the way; and the indexes of the former among them.
fn path_to(recording: &Recording, target: &Stream) -> Result<(Vec<Stream>, Vec<usize>), Error> {
    let mut chain = vec![target.clone()];
    while let Some(last) = chain.last()
        && !last.is_start()
    {
        let (parent, event) = (last.parent, last.parent_event);
        let found = streams_of(recording, parent)
            .into_iter()
            .rfind(|stream| stream.first_event <= event)
            .filter(|_| chain.len() < protocol::replay::PATH_STREAMS)
            .ok_or(Error::NoLog { process: parent })?;
        chain.push(found);
    }
    chain.reverse();
    let path = (0..chain.len()).collect();
    let mut streams = chain;
    let mut at = 0;
    while let Some(stream) = streams.get(at) {
        let number = stream.process;
        let children: Vec<Stream> = recording
            .processes()
            .iter()
            .filter(|p| p.began == Began::Vfork && p.parent == Some(number))
            .flat_map(|p| streams_of(recording, p.number))
            .filter(|s| u64::from(s.image) == 0 && s.how == begin::VFORK)
            .collect();
        let known: Vec<u32> = streams.iter().map(|s| s.process).collect();
        streams.extend(children.into_iter().filter(|s| !known.contains(&s.process)));
        at += 1;
    }
    Ok((streams, path))
}
