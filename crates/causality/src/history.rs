//! Asking what happened before what.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use protocol::id::{EventNo, ProcessId, ProcessIx, ThreadNo};
use protocol::syscall::Type;
use recording::descriptors::decides_type;
use recording::{Event, Phase, Process, Recording, Set};

use crate::channel::{Channel, ChannelKind, RoundTrips};
use crate::clock::{self, Graph};
use crate::index::build::{self, NO, RECEIVES};
use crate::index::file::{self, IndexFile, Records};
use crate::index::layout::*;
use crate::interruption::is_broken_off;
use crate::link::{EventId, Kind, Link};
use crate::sweep::Progress;
use crate::world::{End, MemberClock};

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

/// One position per process: how many of its first events are inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut(pub(crate) Vec<u32>);

impl Cut {
    /// With these numbers of events inside, of each process.
    pub fn new(bounds: Vec<u32>) -> Cut {
        Cut(bounds)
    }

    /// The first event of a process that is not inside.
    pub fn bound(&self, process: ProcessIx) -> EventNo {
        let inside = self.0.get(process.index()).copied();
        EventNo(inside.map_or(0, u64::from))
    }

    /// The last event of a process that is inside.
    pub fn last(&self, process: ProcessIx) -> Option<EventNo> {
        self.bound(process).0.checked_sub(1).map(EventNo)
    }

    /// Whether an event is inside.
    pub fn has(&self, event: EventId) -> bool {
        event.number < self.bound(event.process)
    }

    /// The processes that it is about.
    pub fn processes(&self) -> impl Iterator<Item = ProcessIx> + use<> {
        (0..self.0.len() as u32).map(ProcessIx)
    }
}

/// How two events are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// They are one.
    Same,
    /// The first happened before the second.
    Before,
    /// The second happened before the first.
    After,
    /// Neither knew of the other.
    Concurrent,
}

/// Which way an event used a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Number of the channel.
    pub channel: u32,
    /// It received rather than sent.
    pub receives: bool,
}

/// The number of an event as the index has it.
pub(crate) fn number(event: u32) -> EventNo {
    EventNo(event.into())
}

/// As the index has it; of what no index holds, a number that no event has.
fn clamp(event: EventNo) -> u32 {
    u32::try_from(event.0).unwrap_or(u32::MAX)
}

/// The causes in a recording.
pub struct History {
    set: Arc<Set>,
    recording: Arc<Recording>,
    pub(crate) index: IndexFile,
    built: bool,
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
            put(process.number.into());
            put(process.birth);
            put(process.first_event);
            put(process.log_bytes);
            put(process.stored_bytes);
        }
        if set.is_joined() {
            // Where it stood, and when: clocks and addresses decide, too.
            let clock = recording.clock();
            put(clock.ticks);
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
        Ok(History {
            recording: Arc::clone(set.member(0).ok_or(Error::Nothing)?),
            set: Arc::clone(set),
            index,
            built,
        })
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
        for place in set.places() {
            let Some((recording, process)) = set.at(place) else {
                continue;
            };
            let events = recording.life(process).events;
            let last = process.first_event.saturating_add(events);
            if last >= u64::from(u32::MAX) {
                return Err(Error::TooLong {
                    process: set.process_name(place),
                    events,
                });
            }
        }
        let key = fingerprint(set);
        let begun = Instant::now();
        let bytes = build::build(set, key, progress);
        let path = set.dir().join(INDEX);
        let written = file::write(&path, &bytes);
        tracing::info!(
            target: "index",
            bytes = bytes.len(),
            took = ?begun.elapsed(),
            written = ?written,
            "it was built"
        );
        let kept = written.is_ok();
        let stored = kept
            .then(|| IndexFile::open(Path::new(&path), key))
            .flatten();
        let index = match stored {
            Some(index) => Some(index),
            None => IndexFile::owned(bytes, key),
        };
        match index {
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

    /// Nanoseconds from the beginning of the first member's recording to when
    /// this was, by the first member's clock.
    pub fn time_ns(&self, place: ProcessIx, ticks: u64) -> i64 {
        let Some((member, own)) = self
            .set
            .member_of(place)
            .and_then(|number| Some((number, self.set.member(number)?)))
        else {
            return 0;
        };
        let fit = self.clock_of(member).unwrap_or_default();
        crate::world::since_first(self.recording.clock(), own.clock(), fit, ticks)
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
        let process = self.index_of(ProcessId {
            member,
            number: event.process,
        })?;
        Some(EventId::new(process, EventNo(event.number)))
    }

    /// Which event this is that was read from a log of the first member.
    pub fn event_id(&self, event: &Event<'_>) -> Option<EventId> {
        let process = self.index_of(ProcessId::of_first(event.process))?;
        Some(EventId::new(process, EventNo(event.number)))
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

    fn incoming(&self, place: ProcessIx) -> Records<'_, InRec> {
        let range = self.record(place).links_in;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        self.index.records(Section::In, from, count)
    }

    /// The links into a process with effects in a range.
    fn links_within(&self, place: ProcessIx, from: u32, to: u32) -> &[InRec] {
        let links = self.incoming(place);
        let before = |number: u32| links.partition_point(|link| link.effect.get() < number);
        links.range(before(from), before(to))
    }

    fn outgoing(&self, place: ProcessIx) -> Records<'_, OutRec> {
        let range = self.record(place).links_out;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        self.index.records(Section::Out, from, count)
    }

    fn link(&self, place: ProcessIx, record: &InRec) -> Link {
        Link {
            cause: EventId::new(
                ProcessIx(record.cause_process.get()),
                number(record.cause.get()),
            ),
            effect: EventId::new(place, number(record.effect.get())),
            thread: ThreadNo(record.thread.get()),
            cause_thread: Some(record.cause_thread.get())
                .filter(|thread| *thread != NO)
                .map(ThreadNo),
            kind: Kind::from_number(record.kind).unwrap_or(Kind::Message),
            channel: Some(record.channel.get()).filter(|channel| *channel != NO),
            amount: record.amount.get().into(),
        }
    }

    /// The links that lead to an event.
    pub fn causes(&self, event: EventId) -> Vec<Link> {
        let number = clamp(event.number);
        let links = self.links_within(event.process, number, number.saturating_add(1));
        links
            .iter()
            .map(|record| self.link(event.process, record))
            .collect()
    }

    /// The links that lead to events of a process in this range, the latest
    /// first.
    pub fn causes_before(&self, place: ProcessIx, to: EventNo) -> impl Iterator<Item = Link> + '_ {
        let to = clamp(to);
        let links = self.incoming(place);
        let end = links.partition_point(|link| link.effect.get() < to);
        links
            .backward(0, end)
            .map(move |record| self.link(place, record))
    }

    /// The links that lead to events of a process in this range, in order.
    pub fn causes_between(
        &self,
        place: ProcessIx,
        from: EventNo,
        to: EventNo,
    ) -> impl Iterator<Item = Link> + '_ {
        let links = self.links_within(place, clamp(from), clamp(to));
        links.iter().map(move |record| self.link(place, record))
    }

    /// The links that an event leads to others by.
    pub fn effects(&self, event: EventId) -> Vec<Link> {
        let number = clamp(event.number);
        let all = self.outgoing(event.process);
        let from = all.partition_point(|record| record.cause.get() < number);
        all.forward(from)
            .take_while(|record| record.cause.get() == number)
            .filter_map(|record| self.outgoing_link(record))
            .collect()
    }

    /// The links from events of a process in this range, in order of cause.
    pub fn effects_between(
        &self,
        place: ProcessIx,
        from: EventNo,
        to: EventNo,
    ) -> impl Iterator<Item = Link> + '_ {
        let all = self.outgoing(place);
        let begin = all.partition_point(|record| number(record.cause.get()) < from);
        all.forward(begin)
            .take_while(move |record| number(record.cause.get()) < to)
            .filter_map(|record| self.outgoing_link(record))
    }

    fn outgoing_link(&self, record: &OutRec) -> Option<Link> {
        let link = self
            .index
            .records::<InRec>(Section::In, record.link.get() as usize, 1);
        link.all()
            .first()
            .map(|link| self.link(ProcessIx(record.effect_process.get()), link))
    }

    /// All links, in order of their effects.
    pub fn links(&self) -> impl Iterator<Item = Link> + '_ {
        self.places().flat_map(move |place| {
            let links = self.incoming(place).forward(0);
            links.map(move |record| self.link(place, record))
        })
    }

    /// The causal past of an event, itself included: the earliest state that
    /// explains it.
    pub fn past(&self, event: EventId) -> Cut {
        Cut(clock::past(self, &[(event.process.0, clamp(event.number))]))
    }

    /// The causal past of several events.
    pub fn past_of(&self, events: &[EventId]) -> Cut {
        let events: Vec<(u32, u32)> = events
            .iter()
            .map(|event| (event.process.0, clamp(event.number)))
            .collect();
        Cut(clock::past(self, &events))
    }

    /// Of each process, the first event that happened after this one (of its
    /// own process, itself); `None` where there is none.
    pub fn future(&self, event: EventId) -> Vec<Option<EventNo>> {
        let mut first = vec![u32::MAX; self.set.len()];
        let own = clamp(event.number);
        let mut work = vec![(event.process, own, u32::MAX)];
        if let Some(place) = first.get_mut(event.process.index()) {
            *place = own;
        }
        while let Some((process, from, to)) = work.pop() {
            let all = self.outgoing(process);
            let begin = all.partition_point(|record| record.cause.get() < from);
            for record in all.forward(begin) {
                if record.cause.get() >= to {
                    break;
                }
                let other = ProcessIx(record.effect_process.get());
                let effect = record.effect.get();
                if let Some(place) = first.get_mut(other.index())
                    && effect < *place
                {
                    work.push((other, effect, *place));
                    *place = effect;
                }
            }
        }
        first
            .into_iter()
            .map(|first| (first != u32::MAX).then_some(number(first)))
            .collect()
    }

    /// The furthest that every other process can have come without seeing past
    /// an event.
    pub fn latest(&self, event: EventId) -> Cut {
        let (_, last) = self.span(event.process);
        let next = EventId::new(event.process, event.number.next());
        let mut bounds: Vec<u32> = if event.number < last {
            let seen = self.future(next);
            seen.into_iter()
                .zip(self.places())
                .map(|(first, place)| first.map_or_else(|| self.end(place), clamp))
                .collect()
        } else {
            self.places().map(|place| self.end(place)).collect()
        };
        if let Some(own) = bounds.get_mut(event.process.index()) {
            *own = clamp(event.number.next());
        }
        Cut(bounds)
    }

    /// The cut behind the last event of every process.
    pub fn end_of_recording(&self) -> Cut {
        Cut(self.places().map(|place| self.end(place)).collect())
    }

    /// The cut at which the program stood when it was over: the last events of
    /// all processes, without what somebody outside did to end it.
    pub fn stopped(&self) -> Cut {
        let mut cut = self.end_of_recording();
        for place in cut.processes() {
            let record = self.record(place);
            let last = EventId::new(place, number(record.last.get()));
            let Some(before) = last.number.0.checked_sub(1).map(EventNo) else {
                continue;
            };
            if record.ended.get() == End::Exited as u32 || !self.causes(last).is_empty() {
                continue;
            }
            let signal = |event: &Event<'_>| event.kind == protocol::record::kind::SIGNAL;
            if self.look(last, signal) != Some(true) {
                continue;
            }
            // The call that it interrupted is what the process stood in.
            let stood = match self.look(EventId::new(place, before), is_broken_off) {
                Some(true) => before,
                _ => last.number,
            };
            if let Some(bound) = cut.0.get_mut(place.index()) {
                *bound = clamp(stood);
            }
        }
        cut
    }

    /// The first number that no event of the process has.
    fn end(&self, place: ProcessIx) -> u32 {
        match self.process(place) {
            Some(_) => self.record(place).last.get().saturating_add(1),
            None => 0,
        }
    }

    /// Whether no effect is inside a cut without its cause.
    pub fn is_consistent(&self, cut: &Cut) -> bool {
        cut.processes().all(|place| {
            self.links_within(place, 0, clamp(cut.bound(place)))
                .iter()
                .all(|link| {
                    let cause = ProcessIx(link.cause_process.get());
                    cut.bound(cause) > number(link.cause.get())
                })
        })
    }

    /// How two events are ordered.
    pub fn order(&self, a: EventId, b: EventId) -> Order {
        if a == b {
            Order::Same
        } else if self.past(b).has(a) {
            Order::Before
        } else if self.past(a).has(b) {
            Order::After
        } else {
            Order::Concurrent
        }
    }

    /// The links, fewest first, by which `from` led to `to`. `None` if it did
    /// not; empty if both are of one process.
    pub fn path_between(&self, from: EventId, to: EventId) -> Option<Vec<Link>> {
        if !self.past(to).has(from) {
            return None;
        }
        if from.process == to.process {
            return Some(Vec::new());
        }
        // Backwards from the effect, a link at a time. What a process was told
        // long ago hardly ever makes a shorter way than what it was told last,
        // so that is looked at only if there is no way without it.
        const PATIENCE: usize = 4096;
        self.search_back(from, to, PATIENCE)
            .or_else(|| self.search_back(from, to, usize::MAX))
    }

    /// See [`History::path_between`]. `patience`: after so many links into a
    /// process that lead to nothing new, earlier ones are not looked at.
    fn search_back(&self, from: EventId, to: EventId, patience: usize) -> Option<Vec<Link>> {
        struct Node {
            event: EventId,
            link: Option<Link>,
            parent: usize,
        }
        let mut nodes = vec![Node {
            event: to,
            link: None,
            parent: 0,
        }];
        // Links into each process up to here have been followed, or are about
        // to be.
        let mut seen: Vec<EventNo> = vec![EventNo(0); self.set.len()];
        let mut at = 0;
        while let Some(event) = nodes.get(at).map(|node| node.event) {
            let begin = match seen.get_mut(event.process.index()) {
                Some(place) => std::mem::replace(place, (*place).max(event.number.next())),
                None => EventNo(0),
            };
            let links = self.incoming(event.process);
            let end = clamp(event.number.next());
            let end = links.partition_point(|link| link.effect.get() < end);
            let begin = clamp(begin.min(event.number));
            let begin = links.partition_point(|link| link.effect.get() < begin);
            let mut idle = 0;
            let mut best: HashMap<ProcessIx, EventNo> = HashMap::new();
            // The latest first: the shorter story.
            for record in links.backward(begin, end) {
                let process = ProcessIx(record.cause_process.get());
                let cause = number(record.cause.get());
                idle += 1;
                if idle > patience {
                    break;
                }
                if process == event.process {
                    continue;
                }
                let known = seen.get(process.index()).copied().unwrap_or(EventNo::MAX);
                let new = cause >= known && best.get(&process).is_none_or(|best| cause > *best);
                if !new {
                    continue;
                }
                idle = 0;
                best.insert(process, cause);
                nodes.push(Node {
                    event: EventId::new(process, cause),
                    link: Some(self.link(event.process, record)),
                    parent: at,
                });
                if process == from.process && cause >= from.number {
                    let mut path = Vec::new();
                    let mut node = nodes.len() - 1;
                    while let Some(Node {
                        link: Some(link),
                        parent,
                        ..
                    }) = nodes.get(node)
                    {
                        path.push(*link);
                        node = *parent;
                    }
                    return Some(path);
                }
            }
            at += 1;
        }
        None
    }

    /// How many channels there are.
    pub fn channel_count(&self) -> u32 {
        self.index.len(Section::Channels) as u32
    }

    fn channel_record(&self, number: u32) -> Option<ChannelRec> {
        if number >= self.channel_count() {
            return None;
        }
        let found = self
            .index
            .records::<ChannelRec>(Section::Channels, number as usize, 1);
        found.all().first().copied()
    }

    pub(crate) fn text(&self, range: Range) -> String {
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        let bytes = self.index.records::<u8>(Section::Text, from, count);
        String::from_utf8_lossy(bytes.all()).into_owned()
    }

    /// A channel.
    pub fn channel(&self, number: u32) -> Option<Channel> {
        let record = self.channel_record(number)?;
        if record.kind == MERGED {
            return None;
        }
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for holder in self.holders(&record) {
            let list = if holder.sends.get() != 0 {
                &mut senders
            } else {
                &mut receivers
            };
            list.push(ProcessIx(holder.process.get()));
        }
        // What was used was held; who only held it and never did anything is
        // named only if nobody did.
        let mut used = [Vec::new(), Vec::new()];
        for group in self.groups(&record) {
            if let Some(list) = used.get_mut(usize::from(group.sends.get() == 0)) {
                list.push(ProcessIx(group.process.get()));
            }
        }
        let [used_out, used_in] = used;
        for (list, used) in [(&mut senders, used_out), (&mut receivers, used_in)] {
            if !used.is_empty() {
                *list = used;
            }
            list.sort_unstable();
            list.dedup();
        }
        let [count, least, most, sum] = record.trips.map(|word| word.get());
        Some(Channel {
            number,
            kind: ChannelKind::from_number(record.kind).unwrap_or(ChannelKind::Outside),
            reverse: Some(record.reverse.get()).filter(|other| *other != NO),
            forward: record.forward != 0,
            name: self.text(record.name),
            sends: record.sends.get(),
            receives: record.receives.get(),
            sent: record.sent.get(),
            received: record.received.get(),
            senders,
            receivers,
            round_trips: RoundTrips {
                count,
                least,
                most,
                sum,
            },
        })
    }

    fn holders(&self, record: &ChannelRec) -> &[HolderRec] {
        let (from, count) = (record.holders.from.get(), record.holders.count.get());
        self.index
            .records::<HolderRec>(Section::Holders, from as usize, count as usize)
            .all()
    }

    fn groups(&self, record: &ChannelRec) -> &[GroupRec] {
        let (from, count) = (record.groups.from.get(), record.groups.count.get());
        self.index
            .records::<GroupRec>(Section::Groups, from as usize, count as usize)
            .all()
    }

    /// Processes that hold the sending (or receiving) end of a channel at a
    /// cut.
    pub fn holders_at(&self, channel: u32, sends: bool, cut: &Cut) -> Vec<ProcessIx> {
        let Some(record) = self.channel_record(channel) else {
            return Vec::new();
        };
        let mut found: Vec<ProcessIx> = self
            .holders(&record)
            .iter()
            .filter(|holder| (holder.sends.get() != 0) == sends)
            .filter(|holder| {
                let bound = cut.bound(ProcessIx(holder.process.get()));
                number(holder.from.get()) < bound && bound <= number(holder.to.get())
            })
            .map(|holder| ProcessIx(holder.process.get()))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Bytes that were put into a channel and not taken out of it yet at a
    /// cut, and how many sends have begun.
    pub fn in_flight(&self, channel: u32, cut: &Cut) -> u64 {
        let Some(record) = self.channel_record(channel) else {
            return 0;
        };
        let mut sums = [0u64; 2];
        for group in self.groups(&record) {
            let (from, count) = (group.sums.from.get(), group.sums.count.get());
            let all = self
                .index
                .records::<SumRec>(Section::Sums, from as usize, count as usize);
            let bound = cut.bound(ProcessIx(group.process.get()));
            let inside = all.partition_point(|sum| number(sum.event.get()) < bound);
            let sum = inside.checked_sub(1).and_then(|i| all.get(i));
            if let Some(place) = sums.get_mut(usize::from(group.sends.get() == 0)) {
                *place = place.saturating_add(sum.map_or(0, |sum| sum.sum.get()));
            }
        }
        let [sent, received] = sums;
        sent.saturating_sub(received)
    }

    /// The path of the file that a lock is on.
    pub fn lock_name(&self, lock: u32) -> Option<String> {
        let count = self.index.len(Section::LockNames);
        let all = self
            .index
            .records::<LockNameRec>(Section::LockNames, 0, count)
            .all();
        let at = all
            .binary_search_by_key(&lock, |name| name.lock.get())
            .ok()?;
        Some(self.text(all.get(at)?.name))
    }

    /// The processes that have a lock at a cut.
    pub(crate) fn lock_holders(&self, lock: u32, cut: &Cut) -> Vec<ProcessIx> {
        let count = self.index.len(Section::Locks);
        let all = self.index.records::<LockRec>(Section::Locks, 0, count);
        let from = all.partition_point(|hold| hold.lock.get() < lock);
        all.forward(from)
            .take_while(|hold| hold.lock.get() == lock)
            .filter(|hold| {
                let bound = cut.bound(ProcessIx(hold.process.get()));
                number(hold.from.get()) < bound && bound <= number(hold.to.get())
            })
            .map(|hold| ProcessIx(hold.process.get()))
            .collect()
    }

    /// The channels that an event used.
    pub fn uses(&self, event: EventId) -> Vec<Use> {
        let range = self.record(event.process).uses;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        let all = self.index.records::<UseRec>(Section::Uses, from, count);
        let begin = all.partition_point(|used| number(used.event.get()) < event.number);
        all.forward(begin)
            .take_while(|used| number(used.event.get()) == event.number)
            .map(|used| Use {
                channel: used.channel.get() & !RECEIVES,
                receives: used.channel.get() & RECEIVES != 0,
            })
            .collect()
    }

    /// The uses that a process made of channels, in order: event, use.
    pub fn uses_of(&self, place: ProcessIx) -> impl Iterator<Item = (EventNo, Use)> + '_ {
        let range = self.record(place).uses;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        let all = self.index.records::<UseRec>(Section::Uses, from, count);
        all.forward(0).map(|used| {
            let own = Use {
                channel: used.channel.get() & !RECEIVES,
                receives: used.channel.get() & RECEIVES != 0,
            };
            (number(used.event.get()), own)
        })
    }

    /// The names of threads that have one of their own.
    pub fn thread_names(&self) -> Vec<(ProcessIx, ThreadNo, String)> {
        let count = self.index.len(Section::Threads);
        let all = self
            .index
            .records::<ThreadRec>(Section::Threads, 0, count)
            .all();
        all.iter()
            .filter(|thread| thread.name.count.get() > 0)
            .map(|thread| {
                let name = self.text(thread.name);
                let process = ProcessIx(thread.process.get());
                (process, ThreadNo(thread.thread.get()), name)
            })
            .collect()
    }

    /// The threads that have no name of their own, but for first ones, and the
    /// first event at which each does what it is there for.
    pub fn unnamed_threads(&self) -> Vec<(ThreadNo, EventId)> {
        let count = self.index.len(Section::Threads);
        let all = self
            .index
            .records::<ThreadRec>(Section::Threads, 0, count)
            .all();
        all.iter()
            .filter(|thread| thread.name.count.get() == 0 && thread.thread.get() != 0)
            .filter(|thread| thread.used.get() != NO)
            .map(|thread| {
                let process = ProcessIx(thread.process.get());
                let used = EventId::new(process, number(thread.used.get()));
                (ThreadNo(thread.thread.get()), used)
            })
            .collect()
    }

    /// The type of an event, which was found by reading its log: reading a file
    /// is not receiving, so that it depends on what its descriptor led to then.
    pub fn type_of(&self, event: EventId, found: &Event<'_>) -> Type {
        match decides_type(found) {
            Some(fd) if self.leads_to_file(event, fd) => Type::File,
            _ => found.type_(),
        }
    }

    /// Whether a descriptor led to a file, as an event sees it.
    fn leads_to_file(&self, event: EventId, fd: i32) -> bool {
        let fd = fd.cast_unsigned();
        let range = self.record(event.process).files;
        let (from, count) = (range.from.get() as usize, range.count.get() as usize);
        let all = self.index.records::<FileRec>(Section::Files, from, count);
        let at = clamp(event.number);
        // Those of a descriptor do not overlap: the last that has begun.
        let end = all.partition_point(|span| (span.fd.get(), span.from.get()) <= (fd, at));
        let last = end.checked_sub(1).and_then(|i| all.get(i));
        last.is_some_and(|span| span.fd.get() == fd && at < span.to.get())
    }

    /// Events themselves, each given to `look`, those of one process in order.
    /// Reading one is reading part of a log up to it: those that lie near each
    /// other are read together.
    pub fn look_all(&self, events: &[EventId], mut look: impl FnMut(EventId, &Event<'_>)) {
        const NEAR: u64 = 20_000;
        let mut events = events.to_vec();
        events.sort_unstable();
        events.dedup();
        for group in
            events.chunk_by(|a, b| a.process == b.process && b.number.0 - a.number.0 <= NEAR)
        {
            let Some(first) = group.first() else { continue };
            let Some(mut log) = self.set.log_near(first.process, first.number.0) else {
                continue;
            };
            for event in group {
                if !log.advance_to(event.number.0) {
                    break;
                }
                match log.event() {
                    // It began before what was read here.
                    Some(found) if found.phase == Phase::End && found.started.is_none() => {
                        self.look(*event, |found| look(*event, found));
                    }
                    Some(found) => look(*event, &found),
                    None => {}
                }
            }
        }
    }

    /// The event itself, given to `look`.
    pub fn look<T>(&self, event: EventId, look: impl FnOnce(&Event<'_>) -> T) -> Option<T> {
        let log = self.set.log_at(event.process, event.number.0)?;
        log.event().map(|event| look(&event))
    }
}

impl Graph for History {
    fn processes(&self) -> usize {
        self.set.len()
    }

    fn links(&self, process: u32, from: u32, to: u32) -> &[InRec] {
        self.links_within(ProcessIx(process), from, to)
    }

    fn clock(&self, process: u32, from: u32, to: u32) -> Option<(u32, &[BoundRec])> {
        let range = self.record(ProcessIx(process)).snaps;
        let (at, count) = (range.from.get() as usize, range.count.get() as usize);
        let all = self.index.records::<SnapRec>(Section::Snaps, at, count);
        let at = all
            .partition_point(|snap| snap.event.get() < to)
            .checked_sub(1)?;
        let snap = all.get(at)?;
        if snap.event.get() < from {
            return None;
        }
        let (begin, count) = (snap.bounds.get() as usize, snap.count.get() as usize);
        let bounds = self
            .index
            .records::<BoundRec>(Section::Bounds, begin, count);
        Some((snap.event.get(), bounds.all()))
    }
}
