//! `mw verify`: replays a recording and says whether all came as recorded.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ::replay::{Course, Interrupts, Settings};
use clap::Args;
use protocol::id::{EventNo, ProcessId, ProcessIx};
use query::unseen;
use query::verify::{Difference, Outcome, Replayed, Unread, Verdict, mapped_at, report};
use query::{events, find};
use recording::Set;

use crate::events::Columns;
use crate::failure::{Failure, remark};
use crate::output::{Output, Progress, Style, bytes};
use crate::select;

/// How many events are shown before a difference.
const EVENTS_BEFORE: usize = 10;

/// As a shell says it of one that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// Replay every process and compare it with the recording.
///
/// Exit status 0 if all came as recorded; 1 if something differed.
#[derive(Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: select::Positional,

    /// Only this process
    #[arg(long, value_name = "NAME")]
    process: Option<String>,

    /// How many times; stops at the first difference
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,

    /// How many processes at the same time [default: one for each processor]
    #[arg(
        short = 'j',
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    jobs: usize,

    /// Give up on a process that comes to no event for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,

    /// One JSON object for each process
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let interrupts = Interrupts::catch();
        let set = self.recording.open()?;
        warn_of_another_cpu(&set);
        let process = match &self.process {
            None => None,
            Some(name) => Some(find::process(&set, name)?),
        };
        let settings = Settings {
            process,
            workers: self.jobs,
            patience: Duration::from_secs(self.patience),
        };
        let mut out = Output::new();
        let mut equal = true;
        for round in 1..=self.repeat {
            let begun = Instant::now();
            let verdicts = match with_progress(&set, settings, &interrupts) {
                Err(::replay::Error::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
                other => other.map_err(explain)?,
            };
            let processes = report(&set, verdicts, process, round);
            equal = processes.iter().all(Replayed::is_equal);
            if self.json {
                for replayed in &processes {
                    out.json(replayed)?;
                }
            } else if round == self.repeat || !equal {
                show(&mut out, &set, &processes, round, begun.elapsed())?;
            }
            if !equal {
                break;
            }
        }
        out.finish()?;
        // What is missing explains what differs.
        match Unread::of(&set) {
            Some(unread) => {
                let failure = Failure::new(&unread);
                Err(match unread.hint() {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                })
            }
            None => Ok(ExitCode::from(u8::from(!equal))),
        }
    }
}

/// Verifies, with a bar on a terminal.
fn with_progress(
    set: &Set,
    settings: Settings,
    interrupts: &Interrupts,
) -> Result<Vec<Verdict>, ::replay::Error> {
    let course = Course::default();
    let over = std::sync::atomic::AtomicBool::new(false);
    let watch = || {
        let total = events_of(set, settings.process);
        let progress = Progress::of(total, "replaying");
        while !over.load(Relaxed) {
            progress.set(course.events.load(Relaxed));
            if interrupts.came() {
                course.stop.store(true, Relaxed);
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    };
    std::thread::scope(|scope| {
        // Where no thread can be had, nobody draws.
        let watcher = std::thread::Builder::new().spawn_scoped(scope, watch);
        let result = ::replay::verify(set, settings, &course);
        over.store(true, Relaxed);
        if let Ok(watcher) = watcher {
            watcher.thread().unpark();
        }
        result
    })
}

/// How many events are to be replayed.
fn events_of(set: &Set, only: Option<ProcessId>) -> u64 {
    let wanted = |place: &ProcessIx| only.is_none() || only == set.id(*place);
    let processes = set
        .places()
        .filter(wanted)
        .filter_map(|place| set.at(place));
    processes
        .map(|(recording, process)| recording.life(process).events)
        .sum()
}

fn show(
    out: &mut Output,
    set: &Set,
    processes: &[Replayed],
    rounds: u32,
    took: Duration,
) -> Result<(), Failure> {
    let names = processes.iter().map(|p| p.process.chars().count());
    let width = names.max().unwrap_or(0).max(7);
    out.line(&out.paint(
        Style::Bold,
        &format!(
            "{:<width$} {:>10}  {:<20} EXIT",
            "PROCESS", "EVENTS", "OUTPUT"
        ),
    ))?;
    for replayed in processes {
        let name = &replayed.process;
        let what = match &replayed.outcome {
            Outcome::Equal => {
                let exit = match replayed.exit_difference() {
                    None => format!("equal ({})", replayed.exit),
                    Some(differs) => out.paint(Style::Red, &differs),
                };
                let output = format!("equal ({})", bytes(replayed.output_bytes));
                format!("{output:<20} {exit}")
            }
            Outcome::NotReached => out.paint(
                Style::Yellow,
                "not reached: what it begins from did not get there",
            ),
            Outcome::Unsupported(why) => out.paint(
                Style::Yellow,
                &format!("unsupported: {why}, which replay cannot do yet"),
            ),
            Outcome::HeldUp(why) => out.paint(Style::Yellow, &format!("held up: {why}")),
            Outcome::Failed(why) => {
                let at = format!("failed behind {} events: {why}", replayed.events);
                out.paint(Style::Red, &at)
            }
            Outcome::Diverged(_) => out.paint(
                Style::Red,
                &format!("diverged, of {} events", replayed.recorded_events),
            ),
        };
        out.line(&format!("{name:<width$} {:>10}  {what}", replayed.events))?;
        match &replayed.outcome {
            Outcome::Diverged(difference) => told(out, set, replayed.id, difference)?,
            Outcome::Failed(_) => {
                let place = set.place(replayed.id);
                let first = place.and_then(|place| set.process(place));
                let next = first
                    .map_or(EventNo(0), |process| process.first_event)
                    .plus(replayed.events);
                last_events(out, set, replayed.id, next)?;
            }
            _ => {}
        }
    }
    let events: u64 = processes.iter().map(|replayed| replayed.events).sum();
    let equal = processes.iter().filter(|p| p.is_equal()).count();
    let verdict = match processes.len() - equal {
        0 if rounds > 1 => format!("all equal, {rounds} times"),
        0 => "all equal".to_string(),
        differ => out.paint(Style::Red, &format!("{differ} not equal")),
    };
    let count = match processes.len() {
        1 => "1 process".to_string(),
        count => format!("{count} processes"),
    };
    out.line(&format!(
        "{count}, {events} events in {:.2} s: {verdict}",
        took.as_secs_f64()
    ))?;
    Ok(())
}

/// What differs, where, and what led to it.
pub fn told(
    out: &mut Output,
    set: &Set,
    process: ProcessId,
    difference: &Difference,
) -> Result<(), Failure> {
    let place = set.place(process);
    let Some((place, (recording, own))) = place.and_then(|at| Some((at, set.at(at)?))) else {
        return Ok(());
    };
    let name = set.process_name(place);
    let thread = recording::thread_name(difference.thread);
    out.line(&format!(
        "    at {name}:{} in thread {thread}",
        difference.event
    ))?;
    out.line(&format!("    expected {}", difference.expected))?;
    out.line(&format!("    found    {}", difference.found))?;
    if !difference.address.is_null() {
        let place = mapped_at(recording, own, difference);
        let place = place.map_or(String::new(), |place| format!(", {place}"));
        out.line(&format!("    at address {:#x}{place}", difference.address))?;
    }
    for what in unseen::before(recording, own, difference.event) {
        out.line(&format!(
            "    it may come from an instruction that nothing traps (rdtsc, cpuid, rdrand): {what}"
        ))?;
    }
    last_events(out, set, process, difference.event)
}

/// The events that led to `event`, and that one, as `mw events` shows them.
fn last_events(
    out: &mut Output,
    set: &Set,
    process: ProcessId,
    event: EventNo,
) -> Result<(), Failure> {
    let lines = events::lines_before(set, process, event, EVENTS_BEFORE + 1);
    let name = set.place(process).map(|place| set.process_name(place));
    let columns = Columns {
        event: name.map_or(0, |name| name.chars().count()) + 6,
        wall: false,
    };
    out.line("    the last events:")?;
    for line in &lines {
        out.line(&format!("    {}", columns.line(line, out)))?;
    }
    Ok(())
}

/// One message of an error and its causes.
pub fn explain(error: ::replay::Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    let failure = Failure::new(text);
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Programs choose their ways by what the processor says it can do (`cpuid`),
/// which replay cannot change.
fn warn_of_another_cpu(set: &Set) {
    let Some(now) = recording::cpu_model() else {
        return;
    };
    let all: BTreeSet<&String> = set.members().map(|own| &own.manifest().cpu).collect();
    for then in all.into_iter().filter(|then| **then != now) {
        remark(format_args!(
            "recorded on another kind of CPU ({then}; this is {now}): it may differ"
        ));
    }
}
