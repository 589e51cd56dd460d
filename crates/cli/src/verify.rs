//! `mw verify`: replays a recording and says whether all came as recorded.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use recording::Recording;
use recording::render::{Limits, Renderer};
use replay::{Difference, Outcome, Verdict};
use serde_json::json;

use crate::failure::Failure;
use crate::select;

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

    /// How many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,

    /// One object a line
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recording = self.recording.open()?;
        warn_of_another_cpu(&recording);
        let only = match &self.process {
            None => None,
            Some(name) => {
                let found = recording.process_named(name).ok_or_else(|| {
                    Failure::new(format!("there is no process {name} in this recording"))
                        .hint("`mw ps` lists them")
                })?;
                Some(found.number)
            }
        };
        let mut equal = true;
        for _ in 0..self.repeat {
            let verdicts = replay::verify(&recording, only, |_| {}).map_err(explain)?;
            let mut out = std::io::stdout().lock();
            for verdict in &verdicts {
                equal &= verdict.outcome == Outcome::Equal;
                if self.json {
                    writeln!(out, "{}", to_json(&recording, verdict))?;
                } else {
                    show(&mut out, &recording, verdict)?;
                }
            }
        }
        Ok(ExitCode::from(u8::from(!equal)))
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

fn name(recording: &Recording, number: u32) -> String {
    recording
        .process(number)
        .map_or(format!("process {number}"), |p| p.name.clone())
}

fn to_json(recording: &Recording, verdict: &Verdict) -> serde_json::Value {
    let mut object = json!({
        "process": name(recording, verdict.process),
        "image": verdict.image,
        "events": verdict.events,
        "outcome": word(&verdict.outcome),
    });
    if let Outcome::Diverged(difference) = &verdict.outcome
        && let Some(object) = object.as_object_mut()
    {
        let name = name(recording, verdict.process);
        let mut put = |key: &str, value: String| object.insert(key.to_string(), json!(value));
        put("event", format!("{name}:{}", difference.event));
        put("thread", recording::thread_name(difference.thread));
        put("expected", difference.expected.clone());
        put("found", difference.found.clone());
    }
    object
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Equal => "equal",
        Outcome::Diverged(_) => "diverged",
        Outcome::Unsupported(_) => "unsupported",
        Outcome::NotReached => "not reached",
    }
}

fn show(out: &mut impl Write, recording: &Recording, verdict: &Verdict) -> std::io::Result<()> {
    let name = name(recording, verdict.process);
    write!(
        out,
        "{name:<24} {:>9} events  {}",
        verdict.events,
        word(&verdict.outcome)
    )?;
    match &verdict.outcome {
        Outcome::Equal => writeln!(out),
        Outcome::NotReached => writeln!(out, ": what it begins from did not get there"),
        Outcome::Unsupported(why) => writeln!(out, ": {why}, which replay cannot do yet"),
        Outcome::Diverged(difference) => {
            writeln!(out)?;
            report(out, recording, verdict.process, &name, difference)
        }
    }
}

fn report(
    out: &mut impl Write,
    recording: &Recording,
    process: u32,
    name: &str,
    difference: &Difference,
) -> std::io::Result<()> {
    let thread = recording::thread_name(difference.thread);
    writeln!(out, "    at {name}:{} in thread {thread}", difference.event)?;
    writeln!(out, "    expected {}", difference.expected)?;
    writeln!(out, "    found    {}", difference.found)?;
    if difference.address != 0 {
        writeln!(out, "    after the call at {:#x}", difference.address)?;
    }
    writeln!(out, "    the last events before it:")?;
    let mut renderer = Renderer::new(recording, Limits::default());
    let mut log = recording.log(process);
    let mut lines = std::collections::VecDeque::new();
    while log.advance() {
        let Some(event) = log.event() else { break };
        if event.number > difference.event {
            break;
        }
        renderer.before(&event);
        lines.push_back(format!(
            "      {name}:{} {}",
            event.number,
            renderer.text(&event)
        ));
        if lines.len() > 11 {
            lines.pop_front();
        }
        renderer.after(&event);
    }
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn explain(error: replay::Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    Failure::new(text)
}
