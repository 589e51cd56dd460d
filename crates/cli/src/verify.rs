//! `mw verify`: replays a recording and says whether all came as recorded.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ::replay::{Course, Difference, Ending, Interrupts, Outcome, Settings, Verdict};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use protocol::record::tag;
use recording::calls::nr;
use recording::process::Exit;
use recording::render::{Limits, Renderer};
use recording::{Event, Process, Recording};
use serde_json::json;

use crate::causes::unknown_process;
use crate::events::Columns;
use crate::failure::Failure;
use crate::output::{Output, Style, bytes};
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
        let recording = self.recording.open()?;
        warn_of_another_cpu(&recording);
        let process = match &self.process {
            None => None,
            Some(name) => Some(
                recording
                    .process_named(name)
                    .ok_or_else(|| unknown_process(&recording, name))?
                    .number,
            ),
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
            let verdicts = match with_progress(&recording, settings, &interrupts) {
                Err(::replay::Error::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
                other => other.map_err(explain)?,
            };
            let processes = by_process(&recording, verdicts, process);
            equal = processes.iter().all(Replayed::is_equal);
            if self.json {
                for replayed in &processes {
                    out.line(&replayed.json(&recording, round).to_string())?;
                }
            } else if round == self.repeat || !equal {
                show(&mut out, &recording, &processes, round, begun.elapsed())?;
            }
            if !equal {
                break;
            }
        }
        out.finish()?;
        // What is missing explains what differs.
        match damage(&recording) {
            Some(failure) => Err(failure),
            None => Ok(ExitCode::from(u8::from(!equal))),
        }
    }
}

/// What of the recording could not be read, and so not be replayed.
fn damage(recording: &Recording) -> Option<Failure> {
    if let Some(damage) = recording.damage().first() {
        let (from, to) = (damage.at, damage.at.saturating_add(damage.len));
        return Some(
            Failure::new(format!(
                "the recording is damaged: bytes {from} to {to} of its journal cannot be read"
            ))
            .hint("what can be read was replayed; copy the recording again from where it was made"),
        );
    }
    for process in recording.processes() {
        let end = recording.life(process).log_end;
        if end.is_damage() {
            return Some(
                Failure::new(format!("the recording is damaged: {}: {end}", process.name)).hint(
                    "what can be read was replayed; copy the recording again from where it was made",
                ),
            );
        }
    }
    if recording.processes().is_empty() {
        return Some(Failure::new("the recording holds no process"));
    }
    None
}

/// Verifies, with a bar on a terminal.
fn with_progress(
    recording: &Recording,
    settings: Settings,
    interrupts: &Interrupts,
) -> Result<Vec<Verdict>, ::replay::Error> {
    let course = Course::default();
    let over = std::sync::atomic::AtomicBool::new(false);
    let watch = || {
        let bar = bar(recording, settings.process);
        while !over.load(Relaxed) {
            bar.set_position(course.events.load(Relaxed));
            if interrupts.came() {
                course.stop.store(true, Relaxed);
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        bar.finish_and_clear();
    };
    std::thread::scope(|scope| {
        // Where no thread can be had, nobody draws.
        let watcher = std::thread::Builder::new().spawn_scoped(scope, watch);
        let result = ::replay::verify(recording, settings, &course);
        over.store(true, Relaxed);
        if let Ok(watcher) = watcher {
            watcher.thread().unpark();
        }
        result
    })
}

/// Drawn on standard error if that is a terminal, and hidden otherwise.
fn bar(recording: &Recording, only: Option<u32>) -> ProgressBar {
    use std::io::IsTerminal;
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let wanted = |process: &&Process| only.is_none_or(|only| only == process.number);
    let processes = recording.processes().iter().filter(wanted);
    let events = processes
        .map(|process| recording.life(process).events)
        .sum();
    let bar = ProgressBar::new(events);
    let style = "{wide_bar} {human_pos} of {human_len} events, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// What came of a process: of all its images.
struct Replayed<'r> {
    process: &'r Process,
    /// Events it has, and how many of them were replayed.
    recorded: u64,
    events: u64,
    output: u64,
    outcome: Outcome,
    /// How it ended then, and now.
    exit: Exit,
    ending: Option<Ending>,
}

fn by_process(
    recording: &Recording,
    verdicts: Vec<Verdict>,
    only: Option<u32>,
) -> Vec<Replayed<'_>> {
    let mut processes: Vec<Replayed> = recording
        .processes()
        .iter()
        .filter(|process| only.is_none_or(|only| only == process.number))
        .map(|process| {
            let life = recording.life(process);
            Replayed {
                process,
                recorded: life.events,
                events: 0,
                output: 0,
                // One that was killed before it wrote anything has no log.
                outcome: match life.events {
                    0 => Outcome::Equal,
                    _ => Outcome::NotReached,
                },
                exit: life.exit,
                ending: None,
            }
        })
        .collect();
    for verdict in verdicts {
        let of_it = processes
            .iter_mut()
            .find(|replayed| replayed.process.number == verdict.process);
        let Some(replayed) = of_it else { continue };
        replayed.output += verdict.output;
        // The first image that was not equal is what there is to tell.
        let first = replayed.events == 0 && replayed.outcome == Outcome::NotReached;
        replayed.events += verdict.events;
        if first || replayed.outcome == Outcome::Equal {
            replayed.outcome = verdict.outcome;
            replayed.ending = verdict.ending;
        }
    }
    processes
}

impl Replayed<'_> {
    fn is_equal(&self) -> bool {
        self.outcome == Outcome::Equal && self.exit_is_equal()
    }

    /// One that was killed in the middle of things did not end by itself, and
    /// its log leads to where it was killed.
    fn exit_is_equal(&self) -> bool {
        match (self.ending, self.exit) {
            (None, Exit::Killed { .. }) | (_, Exit::Unknown) => true,
            // How a program ended that was not recorded is not replayed.
            (Some(Ending::Executed), _) => true,
            (None, Exit::Exited(_)) => self.recorded == 0,
            (Some(Ending::Exited(now)), Exit::Exited(then)) => now == then,
            // A signal came while it ended.
            (Some(Ending::Exited(_)), Exit::Killed { .. }) => true,
            (Some(Ending::Signal(now)), Exit::Killed { signal, .. }) => now == signal,
            // The last signal that reached it was not its end.
            (Some(Ending::Signal(_)), Exit::Exited(_)) => false,
        }
    }

    fn json(&self, recording: &Recording, round: u32) -> serde_json::Value {
        let name = &self.process.name;
        let mut object = json!({
            "process": name,
            "round": round,
            "events": self.events,
            "recorded_events": self.recorded,
            "outcome": self.word(),
            "output_bytes": self.output,
            "output_equal": self.outcome == Outcome::Equal,
            "exit": self.exit.to_string(),
            "exit_equal": self.is_equal(),
        });
        if let Some(object) = object.as_object_mut() {
            let mut put = |key: &str, value: String| object.insert(key.to_string(), json!(value));
            match &self.outcome {
                Outcome::Diverged(difference) => {
                    put("event", format!("{name}:{}", difference.event));
                    put("thread", recording::thread_name(difference.thread));
                    put("expected", difference.expected.clone());
                    put("found", difference.found.clone());
                    put("address", format!("{:#x}", difference.address));
                    if let Some(place) = place_of(recording, self.process, difference) {
                        put("in", place);
                    }
                }
                Outcome::Failed(why) => {
                    put("event", format!("{name}:{}", self.next_event()));
                    put("why", why.clone());
                }
                Outcome::Unsupported(why) | Outcome::HeldUp(why) => drop(put("why", why.clone())),
                Outcome::Equal | Outcome::NotReached => {}
            }
        }
        object
    }

    fn next_event(&self) -> u64 {
        self.process.first_event + self.events
    }

    fn word(&self) -> &'static str {
        match &self.outcome {
            Outcome::Equal if !self.exit_is_equal() => "exit differs",
            Outcome::Equal => "equal",
            Outcome::Diverged(_) => "diverged",
            Outcome::Failed(_) => "failed",
            Outcome::Unsupported(_) => "unsupported",
            Outcome::HeldUp(_) => "held up",
            Outcome::NotReached => "not reached",
        }
    }
}

fn show(
    out: &mut Output,
    recording: &Recording,
    processes: &[Replayed<'_>],
    rounds: u32,
    took: Duration,
) -> Result<(), Failure> {
    let names = processes.iter().map(|p| p.process.name.chars().count());
    let width = names.max().unwrap_or(0).max(7);
    out.line(&out.paint(
        Style::Bold,
        &format!(
            "{:<width$} {:>10}  {:<20} EXIT",
            "PROCESS", "EVENTS", "OUTPUT"
        ),
    ))?;
    for replayed in processes {
        let name = &replayed.process.name;
        let what = match &replayed.outcome {
            Outcome::Equal => {
                let exit = match replayed.exit_is_equal() {
                    true => format!("equal ({})", replayed.exit),
                    false => out.paint(Style::Red, &exit_difference(replayed)),
                };
                let output = format!("equal ({})", bytes(replayed.output));
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
                &format!("diverged, of {} events", replayed.recorded),
            ),
        };
        out.line(&format!("{name:<width$} {:>10}  {what}", replayed.events))?;
        match &replayed.outcome {
            Outcome::Diverged(difference) => report(out, recording, replayed.process, difference)?,
            Outcome::Failed(_) => {
                last_events(out, recording, replayed.process, replayed.next_event())?;
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

fn exit_difference(replayed: &Replayed<'_>) -> String {
    let now = match replayed.ending {
        None => "no end".to_string(),
        Some(Ending::Exited(status)) => status.to_string(),
        Some(Ending::Signal(signal)) => format!("signal {signal}"),
        Some(Ending::Executed) => "another program".to_string(),
    };
    format!("differs: expected {}, found {now}", replayed.exit)
}

/// What differs, where, and what led to it.
pub fn report(
    out: &mut Output,
    recording: &Recording,
    process: &Process,
    difference: &Difference,
) -> Result<(), Failure> {
    let name = &process.name;
    let thread = recording::thread_name(difference.thread);
    out.line(&format!(
        "    at {name}:{} in thread {thread}",
        difference.event
    ))?;
    out.line(&format!("    expected {}", difference.expected))?;
    out.line(&format!("    found    {}", difference.found))?;
    if difference.address != 0 {
        let place = place_of(recording, process, difference);
        let place = place.map_or(String::new(), |place| format!(", {place}"));
        out.line(&format!("    at address {:#x}{place}", difference.address))?;
    }
    last_events(out, recording, process, difference.event)
}

/// The events that led to `event`, and that one, as `mw events` shows them.
fn last_events(
    out: &mut Output,
    recording: &Recording,
    process: &Process,
    event: u64,
) -> Result<(), Failure> {
    let mut renderer = Renderer::new(recording, Limits::default());
    let columns = Columns {
        event: process.name.chars().count() + 6,
        wall: false,
    };
    let mut lines = VecDeque::new();
    let mut log = recording.log(process.number);
    while log.advance() {
        let Some(now) = log.event().filter(|now| now.number <= event) else {
            break;
        };
        renderer.before(&now);
        lines.push_back(columns.line(recording, &renderer, &now, out));
        if lines.len() > EVENTS_BEFORE + 1 {
            lines.pop_front();
        }
        renderer.after(&now);
    }
    out.line("    the last events:")?;
    for line in lines {
        out.line(&format!("    {line}"))?;
    }
    Ok(())
}

/// Where in which file the program was: found from what was mapped by then.
fn place_of(recording: &Recording, process: &Process, difference: &Difference) -> Option<String> {
    let address = difference.address;
    let mut found = None;
    let mut image = process.images.iter();
    let mut note_image = |found: &mut Option<(u64, u64)>| {
        let next = image.next().and_then(|i| recording.images().get(*i));
        let start = next.and_then(|image| recording.image_start(image).ok());
        let maps = start.map_or(Vec::new(), |start| start.maps);
        *found = maps
            .into_iter()
            .find(|map| (map.start..map.end).contains(&address))
            .and_then(|map| Some((map.file?, address - map.start + map.offset)));
    };
    let mut log = recording.log(process.number);
    while log.advance() {
        let Some(event) = log.event().filter(|now| now.number <= difference.event) else {
            break;
        };
        if event.kind == protocol::record::kind::BEGIN && !is_fork(&event) {
            note_image(&mut found);
        }
        if event.is_done(nr::MMAP)
            && let Some(start) = event.result.and_then(|start| u64::try_from(start).ok())
            && (start..start.saturating_add(event.args[1])).contains(&address)
        {
            let file = event.number_in(tag::FILE);
            found = file.map(|file| (file, address - start + event.args[5]));
        }
    }
    let (file, offset) = found?;
    let info = recording.files().iter().find(|info| info.id == file)?;
    let path = recording::render::escape_path(&info.path);
    Some(format!("{path}+{offset:#x}"))
}

fn is_fork(event: &Event<'_>) -> bool {
    use protocol::record::begin;
    matches!(event.value(0), begin::FORK | begin::VFORK)
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
    match error {
        ::replay::Error::FileMissing { .. }
        | ::replay::Error::FileLength { .. }
        | ::replay::Error::Captured { .. } => failure.hint("copy the whole recording again"),
        ::replay::Error::Open(error) => match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        },
        _ => failure,
    }
}

/// Programs choose their ways by what the processor says it can do (`cpuid`),
/// which replay cannot change.
fn warn_of_another_cpu(recording: &Recording) {
    let then = &recording.manifest().cpu;
    if let Some(now) = recording::cpu_model().filter(|now| now != then) {
        eprintln!("mw: recorded on another kind of CPU ({then}; this is {now}): it may differ");
    }
}
