//! Reads all logs, in order of time, into a [`World`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use protocol::id::{EventNo, Ticks};
use protocol::record::{begin, kind};
use recording::{Log, Recording, Set};

use crate::files::{FileSpan, Files};
use crate::world::{World, calls};

/// Tells how far the work has come: events read, and how many there are about.
pub type Progress<'a> = &'a (dyn Fn(u64) + Sync);

struct Cursor<'r> {
    log: Log<'r>,
    /// Time of the record before the current one.
    before: u64,
    time: u64,
    number: u64,
    open: bool,
    /// Its current event waits for others.
    held: bool,
}

/// Merges the logs of a member. Its processes' places, counted from its first,
/// are indexes here.
struct Sweep<'r, 'w> {
    recording: &'r Recording,
    /// The place of its first process among all.
    first: u32,
    world: &'w mut World<'r>,
    cursors: Vec<Option<Cursor<'r>>>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Processes whose log is at its end, and when they died.
    deaths: BinaryHeap<Reverse<(u64, u32)>>,
    files: Files<'r>,
    read: u64,
}

/// In place of when a process died, if nobody knows.
const UNKNOWN: u64 = u64::MAX - 1;

/// What is told at once, in events.
const STEP: u64 = 100_000;

/// Reads everything. Returns how many events there were, and which descriptors
/// led to files when.
///
/// A host's clock tells nothing about another's, so members are read one after
/// the other; where they met is found out when all are known.
pub(crate) fn sweep<'r>(
    set: &'r Set,
    world: &mut World<'r>,
    progress: Progress<'_>,
) -> (u64, Vec<FileSpan>) {
    let mut read = 0;
    let mut files = Vec::new();
    for (recording, number) in set.members().zip(0u16..) {
        world.enter(number);
        let first = set.places_of(number).start;
        let told = |events: u64| progress(read + events);
        let (events, spans) = sweep_one(recording, first, world, &told);
        files.extend(spans.into_iter().map(|span| FileSpan {
            process: first + span.process,
            ..span
        }));
        read += events;
        world.leave();
    }
    world.join();
    world.finish();
    (read, files)
}

fn sweep_one<'r>(
    recording: &'r Recording,
    first: u32,
    world: &mut World<'r>,
    progress: &dyn Fn(u64),
) -> (u64, Vec<FileSpan>) {
    let processes = recording.processes();
    let mut sweep = Sweep {
        recording,
        first,
        world,
        cursors: Vec::new(),
        heap: BinaryHeap::new(),
        deaths: BinaryHeap::new(),
        files: Files::new(recording),
        read: 0,
    };
    sweep.cursors.resize_with(processes.len(), || None);
    let mut births: Vec<(u64, u32)> = processes
        .iter()
        .zip(0u32..)
        .map(|(process, place)| (process.birth.0, place))
        .collect();
    births.sort_by_key(|entry| Reverse(*entry));
    let mut told = 0;
    loop {
        let next = sweep
            .heap
            .peek()
            .map_or(u64::MAX, |Reverse((time, _))| *time);
        if let Some((birth, place)) = births.last().copied()
            && birth <= next
        {
            births.pop();
            sweep.open(place);
            continue;
        }
        if let Some(Reverse((time, place))) = sweep.deaths.peek().copied()
            && time < next
        {
            sweep.deaths.pop();
            sweep.world.log_ends(first + place, Some(time));
            continue;
        }
        let Some(Reverse((time, place))) = sweep.heap.pop() else {
            break;
        };
        if !sweep.is_at(place, time) {
            continue;
        }
        sweep.step(place);
        if sweep.read - told >= STEP {
            told = sweep.read;
            progress(told);
        }
    }
    // What is left is known to have ended if the recording came to its end.
    let end = recording.summary().map_or(0, |summary| summary.time.0);
    let over = recording.is_complete().then_some(end);
    while let Some(Reverse((time, place))) = sweep.deaths.pop() {
        let time = if time == UNKNOWN { over } else { Some(time) };
        sweep.world.log_ends(first + place, time);
    }
    (sweep.read, sweep.files.finish())
}

impl<'r> Sweep<'r, '_> {
    fn cursor(&mut self, place: u32) -> Option<&mut Cursor<'r>> {
        self.cursors.get_mut(place as usize)?.as_mut()
    }

    /// Whether the process is at an event of this time: it may have been taken
    /// further meanwhile.
    fn is_at(&mut self, place: u32, time: u64) -> bool {
        self.cursor(place)
            .is_some_and(|cursor| cursor.open && cursor.time == time && !cursor.held)
    }

    fn open(&mut self, place: u32) {
        let Some(process) = self.recording.processes().get(place as usize) else {
            return;
        };
        let cursor = Cursor {
            log: self.recording.log(process.number),
            before: 0,
            time: 0,
            number: 0,
            open: true,
            held: false,
        };
        if let Some(slot) = self.cursors.get_mut(place as usize) {
            *slot = Some(cursor);
        }
        self.advance(place);
    }

    /// Goes to the next event of a process that is of interest.
    fn advance(&mut self, place: u32) {
        let mut read = 0;
        let Some(cursor) = self
            .cursors
            .get_mut(place as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        let mut last = cursor.time;
        let mut last_number = cursor.number;
        let found = loop {
            if !cursor.log.advance() {
                break false;
            }
            let Some((kind, nr, EventNo(number), Ticks(time))) = cursor.log.glance() else {
                break false;
            };
            read += 1;
            self.files.pass(place, &cursor.log);
            let interesting = match kind {
                kind::CALL | kind::START | kind::END => calls::is_followed(nr),
                kind::BEGIN | kind::SIGNAL | kind::THREAD_START => true,
                _ => false,
            };
            if interesting {
                cursor.before = last;
                cursor.time = time;
                cursor.number = number;
                break true;
            }
            last = time;
            last_number = number;
        };
        self.read += read;
        if found {
            let time = cursor.time;
            self.heap.push(Reverse((time, place)));
        } else {
            cursor.open = false;
            self.files.ended(place);
            self.world.saw(self.first + place, last_number, last);
            let death = self
                .recording
                .processes()
                .get(place as usize)
                .and_then(|process| self.recording.status_of(process))
                .map_or(UNKNOWN, |status| status.time.0);
            self.deaths.push(Reverse((death, place)));
        }
    }

    /// Takes the current event of a process into the world.
    fn step(&mut self, place: u32) {
        self.prepare(place);
        if let Some(cursor) = self.cursors.get(place as usize).and_then(Option::as_ref)
            && let Some(event) = cursor.log.event()
        {
            self.world.take(self.first + place, &event, cursor.before);
        }
        self.advance(place);
    }

    /// Sees to it that what the event depends on has been taken in before it.
    fn prepare(&mut self, place: u32) {
        let Some(cursor) = self.cursors.get(place as usize).and_then(Option::as_ref) else {
            return;
        };
        let Some(event) = cursor.log.event() else {
            return;
        };
        let forked = matches!(event.value(0), begin::FORK | begin::VFORK);
        if event.kind == kind::BEGIN && forked {
            let (parent, by) = (event.process_in(1), event.value(2));
            let parent = self
                .world
                .place_of(parent)
                .map(|place| place.saturating_sub(self.first));
            while let Some(parent) = parent
                && let Some(cursor) = self.cursor(parent)
                && cursor.open
                && !cursor.held
                && cursor.number < by
            {
                self.step(parent);
            }
        } else if World::needs_rights(&event) {
            let until = event.time.0;
            if let Some(cursor) = self.cursor(place) {
                cursor.held = true;
            }
            self.settle(until);
            if let Some(cursor) = self.cursor(place) {
                cursor.held = false;
            }
        }
    }

    /// Takes in every event that may have happened by `time`, of processes
    /// that do not wait themselves.
    fn settle(&mut self, time: u64) {
        // A call that is one event was made between the record before it and
        // itself; of one that is two, each half is when it says.
        let due = |cursor: &Cursor<'r>| {
            let single = cursor
                .log
                .glance()
                .is_some_and(|(kind, ..)| kind == kind::CALL);
            let from = if single { cursor.before } else { cursor.time };
            cursor.open && !cursor.held && from <= time
        };
        loop {
            let next = self
                .cursors
                .iter()
                .zip(0u32..)
                .filter_map(|(cursor, place)| Some((cursor.as_ref()?, place)))
                .filter(|(cursor, _)| due(cursor))
                .min_by_key(|(cursor, _)| cursor.time);
            let Some((_, place)) = next else { break };
            self.step(place);
        }
    }
}
