//! Asking what happened before what.

mod channels;
mod cut;
mod events;
mod links;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use protocol::id::{EventNo, ProcessId, ProcessIx, Ticks};
use recording::{Event, Process, Recording, Set};

use crate::index::build;
use crate::index::file::{self, IndexFile};
use crate::index::layout::*;
use crate::link::EventId;
use crate::sweep::Progress;
use crate::world::{End, MemberClock};

pub use channels::Use;
pub use cut::{Cut, Order};

/// Name of the index in a recording.
pub const INDEX: &str = "causes";

/// The causes in a recording could not be found out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// More than the index can count.
    #[error(
        "{process} has {events} events; no more than {} of one process can be indexed",
        u32::MAX
    )]
    TooLong {
        /// Which process.
        process: String,
        /// How many it has.
        events: u64,
    },
    /// A set without members.
    #[error("there is no recording to look at")]
    Nothing,
}

/// The number of an event as the index has it.
pub(crate) fn number(event: u32) -> EventNo {
    EventNo(event.into())
}

/// As the index has it; of what no index holds, a number that no event has.
pub(crate) fn clamp(event: EventNo) -> u32 {
    u32::try_from(event.0).unwrap_or(u32::MAX)
}

/// The causes in a recording.
pub struct History {
    set: Arc<Set>,
    recording: Arc<Recording>,
    pub(crate) index: IndexFile,
    built: bool,
    /// When the earliest of the members began, by the first one's clock and
    /// counted from when the first one began.
    origin: i64,
    /// Times are shown as each member's own clock had them.
    raw_times: bool,
}

/// What the recordings are: an index of others is not believed.
fn fingerprint(set: &Set) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut put = |word: u64| hash.update(&word.to_le_bytes());
    for recording in set.members() {
        put(recording.journal_len());
        put(recording.manifest().started_ns);
        put(recording.is_complete().into());
        for process in recording.processes() {
            put(process.number.0.into());
            put(process.birth.0);
            put(process.first_event.0);
            put(process.log_bytes);
            put(process.stored_bytes);
        }
        if set.is_joined() {
            // Where it stood, and when: clocks and addresses decide, too.
            let clock = recording.clock();
            put(clock.ticks.0);
            put(clock.realtime_ns);
            put(clock.ticks_per_second);
            put(recording.manifest().network.namespace);
        }
    }
    hash.digest()
}

impl History {
    /// Opens the index of a recording, or makes it if there is none that fits.
    /// Where it cannot be kept beside the recording it is kept in memory.
    pub fn open(recording: &Arc<Recording>, progress: Progress<'_>) -> Result<History, Error> {
        History::of(&Arc::new(Set::of(Arc::clone(recording))), progress)
    }

    /// Opens the index of a set of recordings, as [`History::open`] does that of
    /// one.
    pub fn of(set: &Arc<Set>, progress: Progress<'_>) -> Result<History, Error> {
        let key = fingerprint(set);
        let Some(index) = IndexFile::open(&set.dir().join(INDEX), key) else {
            return History::build_of(set, progress);
        };
        tracing::debug!(target: "index", events = index.head().events.get(), "there is one");
        History::with(set, index, false)
    }

    fn with(set: &Arc<Set>, index: IndexFile, built: bool) -> Result<History, Error> {
        let mut history = History {
            recording: Arc::clone(set.member(0).ok_or(Error::Nothing)?),
            set: Arc::clone(set),
            index,
            built,
            origin: 0,
            raw_times: false,
        };
        let began = set.members().zip(0u16..).map(|(own, member)| {
            let clock = own.clock();
            let fit = history.clock_of(member).unwrap_or_default();
            crate::world::since_first(history.recording.clock(), clock, fit, clock.ticks)
        });
        history.origin = began.min().unwrap_or(0);
        Ok(history)
    }

    /// Has times shown as each member's own clock had them. The order of events
    /// and what patterns say of times stay as they are.
    pub fn show_raw_times(&mut self, raw: bool) {
        self.raw_times = raw;
    }

    /// Where the index of a recording is.
    pub fn path(recording: &Recording) -> PathBuf {
        recording.dir().join(INDEX)
    }

    /// Makes the index, whether there is one or not.
    pub fn build(recording: &Arc<Recording>, progress: Progress<'_>) -> Result<History, Error> {
        History::build_of(&Arc::new(Set::of(Arc::clone(recording))), progress)
    }

    /// Makes the index of a set of recordings, whether there is one or not.
    pub fn build_of(set: &Arc<Set>, progress: Progress<'_>) -> Result<History, Error> {
        let (key, bytes) = History::made(set, progress)?;
        let path = set.dir().join(INDEX);
        let written = file::write(&path, &bytes);
        tracing::debug!(target: "index", written = ?written, "it is kept");
        let stored = written
            .is_ok()
            .then(|| IndexFile::open(Path::new(&path), key))
            .flatten();
        match stored {
            Some(index) => History::with(set, index, true),
            None => History::owned(set, key, bytes),
        }
    }

    /// Makes the index of recordings that are under way, of what there is now, and
    /// keeps it in memory: the next moment there is more.
    pub fn in_memory(set: &Arc<Set>) -> Result<History, Error> {
        let (key, bytes) = History::made(set, &|_| {})?;
        History::owned(set, key, bytes)
    }

    /// The index, and what it is of.
    fn made(set: &Arc<Set>, progress: Progress<'_>) -> Result<(u64, Vec<u8>), Error> {
        for place in set.places() {
            let Some((recording, process)) = set.at(place) else {
                continue;
            };
            let events = recording.life(process).events;
            let last = process.first_event.plus(events);
            if last >= EventNo(u32::MAX.into()) {
                return Err(Error::TooLong {
                    process: set.process_name(place),
                    events,
                });
            }
        }
        let key = fingerprint(set);
        let begun = Instant::now();
        let bytes = build::build(set, key, progress);
        tracing::info!(
            target: "index",
            bytes = bytes.len(),
            took = ?begun.elapsed(),
            "it was built"
        );
        Ok((key, bytes))
    }

    fn owned(set: &Arc<Set>, key: u64, bytes: Vec<u8>) -> Result<History, Error> {
        match IndexFile::owned(bytes, key) {
            Some(index) => History::with(set, index, true),
            // An index in memory is always one of this recording.
            None => Err(Error::TooLong {
                process: "the recording".to_string(),
                events: 0,
            }),
        }
    }

    /// How the clock of a member stood to that of the first. In a set of one
    /// there is nothing to compare with.
    pub fn clock_of(&self, member: u16) -> Option<MemberClock> {
        // The index of a single recording says nothing about clocks.
        if usize::from(member) >= self.index.len(Section::Members) {
            return None;
        }
        let found = self
            .index
            .records::<MemberRec>(Section::Members, usize::from(member), 1);
        let found = found.all().first()?;
        Some(MemberClock {
            ahead_ns: found.ahead.get(),
            drift_ppb: found.drift.get(),
            least_ns: Some(found.least.get()).filter(|least| *least != i64::MIN),
            most_ns: Some(found.most.get()).filter(|most| *most != i64::MAX),
        })
    }

    /// Nanoseconds from when the earliest of the members began to be recorded to
    /// when this was, by the first member's clock.
    pub fn time_ns(&self, place: ProcessIx, ticks: Ticks) -> i64 {
        let Some((member, own)) = self
            .set
            .member_of(place)
            .and_then(|number| Some((number, self.set.member(number)?)))
        else {
            return 0;
        };
        let fit = self.clock_of(member).unwrap_or_default();
        crate::world::since_first(self.recording.clock(), own.clock(), fit, ticks)
            .saturating_sub(self.origin)
    }

    /// Nanoseconds from when the earliest of the members began to be recorded to when
    /// this was, as it is to be shown ([`History::show_raw_times`]).
    pub fn shown_ns(&self, place: ProcessIx, ticks: Ticks) -> u64 {
        let own = self.set.at(place).filter(|_| self.raw_times);
        match own {
            Some((own, _)) => {
                let began = self.set.members().map(|m| m.clock().realtime_ns).min();
                let now = own.clock().realtime_ns(ticks);
                now.saturating_sub(began.unwrap_or(now))
            }
            None => u64::try_from(self.time_ns(place, ticks)).unwrap_or(0),
        }
    }

    /// Nanoseconds since 1970, as it is to be shown.
    pub fn shown_date_ns(&self, place: ProcessIx, ticks: Ticks) -> u64 {
        let own = self.set.at(place).filter(|_| self.raw_times);
        match own {
            Some((own, _)) => own.clock().realtime_ns(ticks),
            None => {
                let since = self.time_ns(place, ticks).saturating_add(self.origin);
                let began = self.recording.clock().realtime_ns;
                began.saturating_add_signed(since)
            }
        }
    }

    /// Asks something. If the index turns out to be damaged, it is made again
    /// and asked again.
    pub fn ask<T>(
        &mut self,
        progress: Progress<'_>,
        question: impl Fn(&History) -> T,
    ) -> Result<T, Error> {
        let answer = question(self);
        if !self.index.is_damaged() {
            return Ok(answer);
        }
        let set = Arc::clone(&self.set);
        tracing::warn!(target: "index", "it is damaged and is built again");
        *self = History::build_of(&set, progress)?;
        Ok(question(self))
    }

    /// How many bytes of the index answers took so far.
    pub fn looked_at(&self) -> u64 {
        self.index.looked_at()
    }

    /// Whether something that was looked at turned out to be damaged, so that
    /// what was answered since is not to be believed.
    pub fn is_damaged(&self) -> bool {
        self.index.is_damaged()
    }

    /// Whether the index was made just now.
    pub fn was_built(&self) -> bool {
        self.built
    }

    /// The recordings it is about.
    pub fn set(&self) -> &Arc<Set> {
        &self.set
    }

    /// The recording it is about.
    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    /// How many events there are.
    pub fn events(&self) -> u64 {
        self.index.head().events.get()
    }

    /// How many links there are.
    pub fn link_count(&self) -> u64 {
        self.index.len(Section::In) as u64
    }

    /// How often the order of operations that raced on one end of a channel
    /// had to be guessed, because what they carried did not tell either.
    pub fn guesses(&self) -> u64 {
        self.index.head().guesses.get()
    }

    /// How many links were left out because they would have made a circle.
    pub fn dropped(&self) -> u64 {
        self.index.head().dropped.get()
    }

    /// All processes, in order of birth.
    pub fn processes(&self) -> impl Iterator<Item = (ProcessIx, &Process)> {
        let places = self.places();
        places.filter_map(|place| Some((place, self.process(place)?)))
    }

    /// How many processes there are.
    pub fn process_count(&self) -> u32 {
        self.set.len() as u32
    }

    /// A process.
    pub fn process(&self, place: ProcessIx) -> Option<&Process> {
        self.set.process(place)
    }

    /// Which process this one is for good.
    pub fn id_of(&self, place: ProcessIx) -> Option<ProcessId> {
        self.set.id(place)
    }

    /// Where a process stands among those of the history.
    pub fn index_of(&self, process: ProcessId) -> Option<ProcessIx> {
        self.set.place(process)
    }

    /// Which event this is that was read from a log of a member.
    pub fn event_of(&self, member: u16, event: &Event<'_>) -> Option<EventId> {
        let process = self.index_of(event.process.of_member(member))?;
        Some(EventId::new(process, event.number))
    }

    /// Which event this is that was read from a log of the first member.
    pub fn event_id(&self, event: &Event<'_>) -> Option<EventId> {
        let process = self.index_of(event.process.of_member(0))?;
        Some(EventId::new(process, event.number))
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = ProcessIx> + use<> {
        self.set.places()
    }

    pub(crate) fn record(&self, place: ProcessIx) -> ProcessRec {
        let found = self
            .index
            .records::<ProcessRec>(Section::Processes, place.index(), 1);
        found.all().first().copied().unwrap_or_default()
    }

    /// First and last event of a process.
    pub fn span(&self, place: ProcessIx) -> (EventNo, EventNo) {
        let record = self.record(place);
        (number(record.first.get()), number(record.last.get()))
    }

    /// Whether a process ended with its last event. (Who was killed stood behind
    /// it for a while.)
    pub fn has_exited(&self, place: ProcessIx) -> bool {
        self.record(place).ended.get() == End::Exited as u32
    }

    /// How many threads a process had.
    pub fn thread_count(&self, place: ProcessIx) -> u32 {
        self.record(place).threads.get()
    }

    pub(crate) fn text(&self, range: Range) -> String {
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        let bytes = self.index.records::<u8>(Section::Text, from, count);
        String::from_utf8_lossy(bytes.all()).into_owned()
    }
}
