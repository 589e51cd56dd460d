//! Replays a recording, several processes at a time, and compares it with
//! itself.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use inject::Image;
use recording::Recording;

use crate::Error;
use crate::file::ReplayFile;
use crate::group;
use crate::plan::{Plan, Unit};
use crate::verdict::{Outcome, Verdict, judge};
use crate::watch::{self, Limits};

/// How a recording is to be verified.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Only this process (and what has to run before it can begin).
    pub process: Option<u32>,
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

/// Replays every process of a recording, or one. The verdicts are in the order
/// of the processes' births.
pub fn verify(
    recording: &Recording,
    settings: Settings,
    course: &Course,
) -> Result<Vec<Verdict>, Error> {
    check(recording)?;
    let image = Image::embedded();
    let plan = Plan::new(recording, settings.process);
    let limits = Limits {
        patience: settings.patience,
        ..Limits::default()
    };
    let work = Work {
        recording,
        image: &image,
        plan: &plan,
        limits,
        course,
        next: AtomicUsize::new(0),
        found: Mutex::default(),
        error: Mutex::default(),
    };
    tracing::debug!(
        target: "replay",
        images = plan.outlines.len(),
        together = plan.units.len(),
        "what is to be replayed"
    );
    let workers = match settings.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    };
    // A replaying process ends with the thread that started it: each worker
    // waits for all of its own.
    std::thread::scope(|scope| {
        for _ in 1..workers.min(plan.units.len()) {
            // Where no thread can be had, there is less help.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || work.go_on());
        }
        work.go_on();
    });
    if let Some(error) = into_inner(work.error) {
        return Err(error);
    }
    let mut found = into_inner(work.found);
    let wanted = |process: u32| settings.process.is_none_or(|only| only == process);
    let verdicts = plan.outlines.iter().enumerate();
    Ok(verdicts
        .filter(|(_, outline)| wanted(outline.process))
        .map(|(i, outline)| {
            found
                .remove(&i)
                .unwrap_or(Verdict::none(outline.process, outline.image))
        })
        .collect())
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the workers share.
struct Work<'w> {
    recording: &'w Recording,
    image: &'w Image,
    plan: &'w Plan,
    limits: Limits,
    course: &'w Course,
    next: AtomicUsize,
    /// By place in the plan's outlines.
    found: Mutex<BTreeMap<usize, Verdict>>,
    error: Mutex<Option<Error>>,
}

impl Work<'_> {
    /// Takes one unit after the other.
    fn go_on(&self) {
        while let Some(unit) = self.plan.units.get(self.next.fetch_add(1, Relaxed)) {
            let result = match self.course.stop.load(Relaxed) {
                true => Err(Error::Interrupted),
                false => self.replay(unit),
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

    fn replay(&self, unit: &Unit) -> Result<(), Error> {
        let begun = Instant::now();
        let verdicts = self.verdicts(unit)?;
        for verdict in &verdicts {
            tracing::debug!(
                target: "replay",
                process = verdict.process,
                image = verdict.image,
                events = verdict.events,
                outcome = ?verdict.outcome,
                took = ?begun.elapsed(),
                "an image was replayed"
            );
        }
        self.course.done.fetch_add(verdicts.len(), Relaxed);
        let mut found = self.found.lock().unwrap_or_else(|e| e.into_inner());
        found.extend(unit.members.iter().copied().zip(verdicts));
        Ok(())
    }

    fn verdicts(&self, unit: &Unit) -> Result<Vec<Verdict>, Error> {
        let outlines = || {
            unit.members
                .iter()
                .filter_map(|i| self.plan.outlines.get(*i))
        };
        let none = |outcome: Outcome| {
            let verdicts = outlines().map(|outline| Verdict {
                outcome: outcome.clone(),
                ..Verdict::none(outline.process, outline.image)
            });
            Ok(verdicts.collect())
        };
        if unit.members.len() > protocol::replay::STREAMS_MAX {
            let why = "it forked more processes than can be replayed at once";
            return none(Outcome::Unsupported(why.to_string()));
        }
        let starts = match unit.starts(self.recording, self.plan) {
            Err(Error::NoImage { .. }) => {
                let why = "the recording does not say what it started from";
                return none(Outcome::Failed(why.to_string()));
            }
            other => other?,
        };
        let mut file = group::prepare(self.recording, self.image, self.plan, unit)?;
        let processes: Vec<u32> = outlines().map(|outline| outline.process).collect();
        let mut counted = 0;
        let ends = watch::run(
            &mut file,
            self.image,
            &starts,
            self.limits,
            &|| self.course.stop.load(Relaxed),
            |index, event| self.stretch(processes.get(index).copied(), event),
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
                judge(&file, place, (outline.process, outline.image), |pid| {
                    ends.explain(pid)
                })
            })
            .collect())
    }

    /// How long it took, when it was recorded, from the event before `event`
    /// to that one. No longer than the whole run: a recording may say anything
    /// about its clock, and nobody waits for that.
    fn stretch(&self, process: Option<u32>, event: u64) -> Duration {
        let clock = self.recording.clock();
        let time = |number: u64| {
            let log = self.recording.log_at(process?, number)?;
            Some(clock.since_start_ns(log.event()?.time))
        };
        let after = time(event);
        let before = event.checked_sub(1).and_then(time);
        let started = self.recording.manifest().clock.realtime_ns;
        let ended = self.recording.summary().map(|summary| summary.realtime_ns);
        let most = ended.map_or(u64::MAX, |ended| ended.saturating_sub(started));
        match (before, after) {
            (Some(before), Some(after)) => {
                Duration::from_nanos(after.saturating_sub(before).min(most))
            }
            _ => Duration::ZERO,
        }
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
