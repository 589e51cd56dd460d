//! One process of a recording, to be moved to any of its events and looked
//! into there.
//!
//! A session replays the process, and, if it was forked, its ancestors up to
//! the fork. Copies of the replaying process are left behind on the way
//! (checkpoints: plain forks), so that going back is to go on from the nearest
//! one before.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use inject::Image;
use protocol::layout::{MONITOR_BASE, MONITOR_END};
use protocol::record::begin;
use protocol::replay::PLAYERS;
use recording::Recording;
use recording::process::Began;

use crate::Error;
use crate::file::ReplayFile;
use crate::group::{self, Shared, image_start};
use crate::player::{Player, Stop, ThreadState};
use crate::stream::{Stream, streams_of};
use crate::verdict::{Difference, difference_of};
use crate::watch::Headway;

/// How long a replay runs before it leaves a copy behind.
const STRIDE: Duration = Duration::from_millis(200);

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
            count: 64,
        }
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

/// Where a process came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Before the event it was to go to.
    There,
    /// Its log ends before.
    End,
    /// Somebody asked for it to stop (see [`Session::interrupter`]).
    Interrupted,
    /// It came to something else than the recording.
    Diverged(Difference),
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
}

struct Checkpoint {
    id: CheckpointId,
    player: Player,
    event: u64,
    /// How long it takes to come here from the beginning.
    cost: Duration,
    kept: bool,
}

/// One image of a process, led.
struct Track {
    file: ReplayFile,
    current: Player,
    cost: Duration,
    /// In order of their events; the first stands before the first event.
    checkpoints: Vec<Checkpoint>,
    free: Vec<usize>,
    /// The stream that is watched, in the file's table.
    watched: usize,
}

/// See the module.
pub struct Session<'r> {
    recording: &'r Recording,
    process: u32,
    image: Image,
    streams: Vec<Stream>,
    shared: Option<Shared>,
    tracks: BTreeMap<usize, Track>,
    /// Which of the streams it is in.
    at: usize,
    next_id: u32,
    budget: Budget,
    interrupt: Arc<AtomicBool>,
}

impl<'r> Session<'r> {
    /// Opens a process; it stands before its first event.
    pub fn open(recording: &'r Recording, process: u32) -> Result<Session<'r>, Error> {
        let streams = streams_of(recording, process);
        if streams.is_empty() {
            return Err(Error::NoLog { process });
        }
        let image = Image::load()?;
        let mut session = Session {
            recording,
            process,
            shared: group::journal(recording, &image)?,
            image,
            streams,
            tracks: BTreeMap::new(),
            at: 0,
            next_id: 1,
            budget: Budget::default(),
            interrupt: Arc::new(AtomicBool::new(false)),
        };
        session.track(0)?;
        Ok(session)
    }

    /// Sets how much checkpoints may take.
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Set to true, it stops whatever the session does at the next event.
    pub fn interrupter(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupt)
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

    /// Goes to the place before `event`, forwards or back.
    pub fn go_to(&mut self, event: u64) -> Result<Arrival, Error> {
        let at = self.image_at(event);
        self.track(at)?;
        self.at = at;
        let (budget, interrupt) = (self.budget, Arc::clone(&self.interrupt));
        interrupt.store(false, Relaxed);
        let next_id = &mut self.next_id;
        match self.tracks.get_mut(&at) {
            Some(track) => track.go_to(event, budget, &interrupt, next_id),
            None => Err(Error::NoLog {
                process: self.process,
            }),
        }
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
        let shared = self.shared.as_ref();
        let track = Track::open(
            self.recording,
            &self.image,
            stream,
            shared,
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

    /// Reads memory: how many bytes from `address` on could be had.
    pub fn read(&self, address: u64, out: &mut [u8]) -> usize {
        self.here()
            .map_or(0, |track| track.current.read(address, out))
    }

    /// What is mapped, the monitor's own memory left out.
    pub fn regions(&self) -> Result<Vec<Region>, Error> {
        let Some(track) = self.here() else {
            return Ok(Vec::new());
        };
        let maps = track.current.maps()?;
        Ok(maps
            .lines()
            .filter_map(|line| self.region(line))
            .filter(|r| r.range.end <= MONITOR_BASE || r.range.start >= MONITOR_END)
            .collect())
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
        })
    }

    fn captured(&self, id: u64) -> Option<(PathBuf, PathBuf)> {
        use std::os::unix::ffi::OsStrExt;
        let info = self.recording.files().iter().find(|f| f.id == id)?;
        let original = PathBuf::from(std::ffi::OsStr::from_bytes(&info.path));
        Some((self.recording.captured_path(id), original))
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
        recording: &Recording,
        image: &Image,
        stream: &Stream,
        shared: Option<&Shared>,
        next_id: &mut u32,
    ) -> Result<Track, Error> {
        let (streams, path) = path_to(recording, stream)?;
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
        let current = Player::start(&file, image, 0)?;
        let mut track = Track {
            file,
            current,
            cost: Duration::ZERO,
            checkpoints: Vec::new(),
            free: (1..PLAYERS).rev().collect(),
            watched: path.last().copied().unwrap_or(0),
        };
        track.leave_copy(false, next_id)?;
        Ok(track)
    }

    fn event(&self) -> u64 {
        self.current.event(&self.file)
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
        if let Some(there) = self.checkpoints.get_mut(at)
            && there.event == event
        {
            there.kept |= kept;
            return Ok(there.id);
        }
        let place = self.take_place()?;
        let player = self.current.fork(&self.file, place)?;
        let id = CheckpointId(*next_id);
        *next_id += 1;
        let checkpoint = Checkpoint {
            id,
            player,
            event,
            cost: self.cost,
            kept,
        };
        self.checkpoints.insert(at, checkpoint);
        Ok(id)
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
    }

    /// Drops checkpoints, those first that are nearest to their neighbours in
    /// time, until the rest is within the budget.
    fn thin(&mut self, budget: Budget) {
        let used = |track: &Track| -> u64 {
            let players = track.checkpoints.iter().map(|c| &c.player);
            players.map(Player::memory_used).sum()
        };
        while self.checkpoints.len() > budget.count.max(1)
            || self.checkpoints.len() > 1 && used(self) > budget.memory
        {
            let gaps = self.checkpoints.windows(3).enumerate();
            let nearest = gaps
                .filter_map(|(i, three)| match three {
                    [before, this, after] if !this.kept => Some((after.cost - before.cost, i + 1)),
                    _ => None,
                })
                .min();
            match nearest {
                Some((_, at)) => self.remove(at),
                None => return,
            }
        }
    }

    /// Goes on from the best place there is.
    fn go_to(
        &mut self,
        event: u64,
        budget: Budget,
        interrupt: &AtomicBool,
        next_id: &mut u32,
    ) -> Result<Arrival, Error> {
        let now = self.event();
        let nearest = self.checkpoints.partition_point(|c| c.event <= event);
        let nearest = nearest.checked_sub(1);
        let from = nearest.and_then(|at| self.checkpoints.get(at));
        if let Some(from) = from
            && (now > event || from.event > now)
        {
            let cost = from.cost;
            let place = self.free.pop().ok_or(Error::TooMany(PLAYERS))?;
            let fresh = from.player.fork(&self.file, place)?;
            let old = std::mem::replace(&mut self.current, fresh);
            self.free.push(old.place);
            self.cost = cost;
        }
        self.run_to(event, budget, interrupt, next_id)
    }

    fn run_to(
        &mut self,
        event: u64,
        budget: Budget,
        interrupt: &AtomicBool,
        next_id: &mut u32,
    ) -> Result<Arrival, Error> {
        loop {
            match self.current.stop(&self.file) {
                Stop::End => return Ok(Arrival::End),
                Stop::Diverged => return Ok(Arrival::Diverged(self.difference())),
                Stop::Event if self.event() >= event => return Ok(Arrival::There),
                Stop::Event if interrupt.load(Relaxed) => return Ok(Arrival::Interrupted),
                Stop::Event => {}
            }
            let begun = Instant::now();
            self.current.run(&self.file, event)?;
            let mut limit = begun + STRIDE;
            let mut headway = Headway::new(self.next_event());
            while !self.current.wait(&self.file, Some(limit))? {
                // Time for a copy, or to look up: at the next event.
                self.current.halt(&self.file);
                let pid = self.current.pid();
                if headway.is_lost(self.next_event(), pid, PATIENCE) {
                    return Err(Error::Stuck { pid });
                }
                limit = Instant::now() + STRIDE;
            }
            self.cost += begun.elapsed();
            let reached = self.current.stop(&self.file);
            if reached == Stop::Event && self.event() < event && !interrupt.load(Relaxed) {
                self.leave_copy(false, next_id)?;
                self.thin(budget);
            }
        }
    }

    fn difference(&self) -> Difference {
        difference_of(&self.file, self.watched)
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
