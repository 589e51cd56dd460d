//! Replays a recording, several processes at a time, and compares it with
//! itself.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use ::target::{Outcome, Verdict};
use inject::Image;
use protocol::id::{EventNo, ProcessId, ProcessNo};
use recording::{Recording, Set};

use crate::Error;
use crate::file::ReplayFile;
use crate::group;
use crate::plan::{Plan, Unit};
use crate::verdict::judge;
use crate::watch::{self, Limits};

/// How a recording is to be verified.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Only this process (and what has to run before it can begin).
    pub process: Option<ProcessId>,
    /// How many are replayed at the same time; 0 = one for each processor.
    pub workers: usize,
    /// How long one may go on without coming to an event. (More if it did so
    /// when it was recorded.)
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            process: None,
            workers: 0,
            patience: Duration::from_secs(60),
        }
    }
}

/// How far a verification has come; anybody may look, or stop it.
#[derive(Debug, Default)]
pub struct Course {
    /// Set to true, it ends the verification.
    pub stop: AtomicBool,
    /// Events replayed so far.
    pub events: AtomicU64,
    /// Images that were done.
    pub done: AtomicUsize,
}

/// Whether all is there that replaying needs: the captured files.
pub fn check(recording: &Recording) -> Result<(), Error> {
    if recording.manifest().observed.is_some() {
        return Err(Error::Observed);
    }
    for file in recording.files() {
        let path = recording.captured_path(file.id);
        match std::fs::metadata(&path) {
            Ok(found) if found.len() != file.size => {
                return Err(Error::FileLength {
                    path,
                    expected: file.size,
                    found: found.len(),
                });
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::FileMissing { path });
            }
            Err(source) => return Err(Error::Captured { path, source }),
        }
    }
    Ok(())
}

/// Replays every process of a set, or one. The verdicts are in the order of the
/// members, and of the processes' births.
pub fn verify(set: &Set, settings: Settings, course: &Course) -> Result<Vec<Verdict>, Error> {
    let only = settings.process;
    let mut parts = Vec::new();
    for (recording, member) in set.members().zip(0u16..) {
        if only.is_some_and(|only| only.member != member) {
            continue;
        }
        check(recording)?;
        parts.push(Part {
            recording,
            member,
            plan: Plan::new(recording, only.map(|only| only.number)),
        });
    }
    let of = |(part, own): (usize, &Part<'_>)| {
        let units = 0..own.plan.units.len();
        units.map(move |unit| (part, unit)).collect::<Vec<_>>()
    };
    let mut jobs: Vec<(usize, usize)> = parts.iter().enumerate().flat_map(of).collect();
    // The longest of each first: they are what the end has to wait for.
    jobs.sort_by_key(|(_, unit)| *unit);
    let image = Image::embedded();
    let limits = Limits {
        patience: settings.patience,
        ..Limits::default()
    };
    let work = Work {
        parts: &parts,
        jobs: &jobs,
        image: &image,
        limits,
        course,
        next: AtomicUsize::new(0),
        found: Mutex::default(),
        error: Mutex::default(),
    };
    tracing::debug!(
        target: "replay",
        images = parts.iter().map(|part| part.plan.outlines.len()).sum::<usize>(),
        together = jobs.len(),
        "what is to be replayed"
    );
    let workers = match settings.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    };
    // A replaying process ends with the thread that started it: each worker
    // waits for all of its own.
    std::thread::scope(|scope| {
        for _ in 1..workers.min(jobs.len()) {
            // Where no thread can be had, there is less help.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || work.go_on());
        }
        work.go_on();
    });
    if let Some(error) = into_inner(work.error) {
        return Err(error);
    }
    let mut found = into_inner(work.found);
    let mut verdicts = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        for (i, outline) in part.plan.outlines.iter().enumerate() {
            let process = part.id(outline.process);
            if only.is_none_or(|only| only == process) {
                let verdict = found.remove(&(at, i));
                verdicts.push(verdict.unwrap_or(Verdict::none(process, outline.image)));
            }
        }
    }
    Ok(verdicts)
}

/// What is to be replayed of a member.
struct Part<'w> {
    recording: &'w Recording,
    member: u16,
    plan: Plan,
}

impl Part<'_> {
    fn id(&self, number: ProcessNo) -> ProcessId {
        number.of_member(self.member)
    }
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the workers share.
struct Work<'w> {
    parts: &'w [Part<'w>],
    /// Which part, and which of its units.
    jobs: &'w [(usize, usize)],
    image: &'w Image,
    limits: Limits,
    course: &'w Course,
    next: AtomicUsize,
    /// By part, and place in its plan's outlines.
    found: Mutex<BTreeMap<(usize, usize), Verdict>>,
    error: Mutex<Option<Error>>,
}

impl Work<'_> {
    /// Takes one unit after the other.
    fn go_on(&self) {
        while let Some((at, unit)) = self.jobs.get(self.next.fetch_add(1, Relaxed)) {
            let part = self.parts.get(*at);
            let unit = part.and_then(|part| Some((part, part.plan.units.get(*unit)?)));
            let result = match unit {
                _ if self.course.stop.load(Relaxed) => Err(Error::Interrupted),
                Some((part, unit)) => self.replay(*at, part, unit),
                None => Ok(()),
            };
            if let Err(error) = result {
                // One error is enough: the others stop.
                self.course.stop.store(true, Relaxed);
                let mut first = self.error.lock().unwrap_or_else(|e| e.into_inner());
                match &*first {
                    None | Some(Error::Interrupted) => *first = Some(error),
                    Some(_) => {}
                }
                return;
            }
        }
    }

    fn replay(&self, at: usize, part: &Part<'_>, unit: &Unit) -> Result<(), Error> {
        let begun = Instant::now();
        let verdicts = self.verdicts(part, unit)?;
        for verdict in &verdicts {
            tracing::debug!(
                target: "replay",
                process = ?verdict.process,
                image = verdict.image.0,
                events = verdict.events,
                outcome = ?verdict.outcome,
                took = ?begun.elapsed(),
                "an image was replayed"
            );
        }
        self.course.done.fetch_add(verdicts.len(), Relaxed);
        let mut found = self.found.lock().unwrap_or_else(|e| e.into_inner());
        let places = unit.members.iter().map(|place| (at, *place));
        found.extend(places.zip(verdicts));
        Ok(())
    }

    fn verdicts(&self, part: &Part<'_>, unit: &Unit) -> Result<Vec<Verdict>, Error> {
        let outlines = || {
            let members = unit.members.iter();
            members.filter_map(|i| part.plan.outlines.get(*i))
        };
        let none = |outcome: Outcome| {
            let verdicts = outlines().map(|outline| Verdict {
                outcome: outcome.clone(),
                ..Verdict::none(part.id(outline.process), outline.image)
            });
            Ok(verdicts.collect())
        };
        if unit.members.len() > protocol::replay::STREAMS_MAX {
            let why = "it forked more processes than can be replayed at once";
            return none(Outcome::Unsupported(why.to_string()));
        }
        let starts = match unit.starts(part.recording, &part.plan) {
            Err(Error::NoImage { .. }) => {
                let why = "the recording does not say what it started from";
                return none(Outcome::Failed(why.to_string()));
            }
            other => other?,
        };
        let mut file = group::prepare(part.recording, self.image, &part.plan, unit)?;
        let processes: Vec<ProcessNo> = outlines().map(|outline| outline.process).collect();
        let mut counted = 0;
        let ends = watch::run(
            &mut file,
            self.image,
            &starts,
            self.limits,
            &|| self.course.stop.load(Relaxed),
            |index, event| {
                stretch(
                    part.recording,
                    processes.get(index).copied(),
                    EventNo(event),
                )
            },
            |file| {
                let events = events_of(file);
                self.course.events.fetch_add(events - counted, Relaxed);
                counted = events;
            },
        )?;
        if file.header().journal.is_full.load(Relaxed) != 0 {
            return Err(Error::JournalFull);
        }
        Ok(outlines()
            .enumerate()
            .map(|(place, outline)| {
                let which = (part.id(outline.process), outline.image);
                judge(&file, place, which, |pid| ends.explain(pid))
            })
            .collect())
    }
}

/// How long it took, when it was recorded, from the event before `event`
/// to that one. No longer than the whole run: a recording may say anything
/// about its clock, and nobody waits for that.
fn stretch(recording: &Recording, process: Option<ProcessNo>, event: EventNo) -> Duration {
    let clock = recording.clock();
    let time = |number: EventNo| {
        let log = recording.log_at(process?, number)?;
        Some(clock.since_start_ns(log.event()?.time))
    };
    let after = time(event);
    let before = (event > EventNo(0))
        .then(|| time(event.previous()))
        .flatten();
    let started = recording.manifest().clock.realtime_ns;
    let ended = recording.summary().map(|summary| summary.realtime_ns);
    let most = ended.map_or(u64::MAX, |ended| ended.saturating_sub(started));
    match (before, after) {
        (Some(before), Some(after)) => Duration::from_nanos(after.saturating_sub(before).min(most)),
        _ => Duration::ZERO,
    }
}

/// Events replayed so far by all processes of a file.
fn events_of(file: &ReplayFile) -> u64 {
    let header = file.header();
    let streams = header.streams.load(Relaxed) as usize;
    let begun = |stream: &&protocol::replay::Stream| stream.pid.load(Relaxed) != 0;
    let table = header.table.iter().take(streams).filter(begun);
    table
        .map(|stream| {
            let next = stream.event.load(Relaxed);
            next.saturating_sub(stream.first_event.load(Relaxed))
        })
        .sum()
}
