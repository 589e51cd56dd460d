//! One of the programs that a process executes, replayed: the process that is
//! led, and the copies of it that are left behind.

use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ::target::{Arrival, Cancel, CheckpointId, Difference, Position};
use inject::Image;
use protocol::id::{EventNo, ImageNo, ProcessNo};
use protocol::record::begin;
use protocol::replay::PLAYERS;
use recording::process::Began;

use super::before;
use super::budget::Budget;
use crate::Error;
use crate::file::ReplayFile;
use crate::group::{SharedReplay, image_start};
use crate::player::{Motion, Player, Stop};
use crate::spacing;
use crate::stream::{Stream, streams_of};
use crate::verdict::difference_of;
use crate::watch::Headway;

/// How often it is seen whether it is to stop, and how long it may take to do
/// so.
const LOOK: Duration = Duration::from_millis(40);
const GRACE: Duration = Duration::from_millis(150);

pub(super) struct Checkpoint {
    pub id: CheckpointId,
    player: Player,
    pub event: EventNo,
    /// How long it takes to come here from the beginning.
    cost: Duration,
    /// What it took when it, or one beside it, was last looked at.
    memory: u64,
    pub kept: bool,
}

/// One image of a process, led.
pub(super) struct ImageReplay {
    pub file: ReplayFile,
    /// What its players say before they end of themselves.
    words: File,
    pub current: Player,
    cost: Duration,
    /// In order of their events; the first stands before the first event.
    pub checkpoints: Vec<Checkpoint>,
    free: Vec<usize>,
    /// The stream that is watched, in the file's table.
    watched: usize,
    pub first_event: EventNo,
}

/// What goes for all motions within an image.
pub(super) struct Terms<'s> {
    pub budget: Budget,
    pub patience: Duration,
    pub cancel: &'s Cancel,
}

impl ImageReplay {
    pub fn open(
        shared: &SharedReplay,
        image: &Image,
        stream: &Stream,
        cancel: &Cancel,
        next_id: &mut u32,
    ) -> Result<ImageReplay, Error> {
        let recording = shared.recording();
        let (streams, path) = path_to(shared, stream)?;
        let memory = shared.shared(image, &streams, cancel)?;
        let mut file = ReplayFile::create(image, &streams, recording)?;
        let no_log = || shared.no_log(stream.process);
        let (Some(&first), Some(&watched)) = (path.first(), path.last()) else {
            return Err(no_log());
        };
        let stream = streams.get(first).ok_or_else(no_log)?;
        let start = image_start(recording, stream.process, stream.image)?;
        file.set_start(first, &start, image.vdso)?;
        if let Some(memory) = memory {
            file.set_shared(&memory.domains);
            file.set_journal(&memory.journal)
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
        let mut replay = ImageReplay {
            file,
            words,
            current,
            cost: Duration::ZERO,
            checkpoints: Vec::new(),
            free: (1..PLAYERS).rev().collect(),
            watched,
            first_event: stream.first_event,
        };
        replay.leave_copy(false, next_id)?;
        Ok(replay)
    }

    pub fn event(&self) -> EventNo {
        EventNo(self.current.event(&self.file))
    }

    pub fn position(&self) -> Position {
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
    fn next_event(&self) -> EventNo {
        let table = &self.file.header().table;
        EventNo(table[self.watched % table.len()].event.load(Relaxed))
    }

    fn take_place(&mut self) -> Result<usize, Error> {
        self.free.pop().ok_or(Error::TooMany(PLAYERS))
    }

    pub fn leave_copy(&mut self, kept: bool, next_id: &mut u32) -> Result<CheckpointId, Error> {
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

    pub fn forget(&mut self, id: CheckpointId) -> bool {
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
        self.free.push(checkpoint.player.slot);
        drop(checkpoint);
        self.measure(at);
    }

    pub fn memory_used(&self) -> u64 {
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
    pub fn go_to(
        &mut self,
        event: EventNo,
        terms: &Terms<'_>,
        next_id: &mut u32,
    ) -> Result<Arrival, Error> {
        let now = self.event();
        let nearest = self.checkpoints.partition_point(|c| c.event <= event);
        if let Some(at) = nearest.checked_sub(1)
            && let Some(from) = self.checkpoints.get(at)
            && (now > event || from.event > now)
        {
            self.take_copy(at)?;
        }
        let limit = before(event);
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
        self.free.push(old.slot);
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
    pub fn advance(
        &mut self,
        motion: &Motion,
        limit: Position,
        terms: &Terms<'_>,
        next_id: &mut u32,
    ) -> Result<Arrival, Error> {
        let asked = || terms.cancel.is_cancelled();
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
            self.current.run(&self.file, limit.event().0)?;
            let stride = spacing::stride(self.cost);
            let mut next = begun + stride;
            let mut headway = Headway::new(self.next_event().0);
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
                if headway.is_lost(self.next_event().0, pid, terms.patience) {
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
fn path_to(shared: &SharedReplay, target: &Stream) -> Result<(Vec<Stream>, Vec<usize>), Error> {
    let recording = shared.recording();
    let mut chain = vec![target.clone()];
    while let Some(last) = chain.last()
        && !last.is_start()
    {
        let (parent, event) = (last.parent, last.parent_event);
        let found = streams_of(recording, parent)
            .into_iter()
            .rfind(|stream| stream.first_event <= event)
            .filter(|_| chain.len() < protocol::replay::PATH_STREAMS)
            .ok_or_else(|| shared.no_log(parent))?;
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
            .filter(|s| s.image == ImageNo(0) && s.how == begin::VFORK)
            .collect();
        let known: Vec<ProcessNo> = streams.iter().map(|s| s.process).collect();
        streams.extend(children.into_iter().filter(|s| !known.contains(&s.process)));
        at += 1;
    }
    Ok((streams, path))
}
