//! `mw cut`: the state of all processes that explains an event.

use std::collections::HashMap;
use std::process::ExitCode;

use causality::{Blocked, Cut, EventId, History};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Output, Style};
use crate::select::Chosen;
use crate::{blocked, causes};

/// Show the consistent cut that is the causal past of an event: for each
/// process how far it must have come, and what was under way between them.
#[derive(clap::Args)]
pub struct Cmd {
    /// The event: NAME:NUMBER, or a pattern for the last event that fits it
    #[arg(value_name = "EVENT")]
    event: String,

    #[command(flatten)]
    recording: Chosen,

    /// Show how far the others can have come at most without seeing past the
    /// event, not how far they must have come
    #[arg(long)]
    latest: bool,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recording = self.recording.open()?;
        let mut history = causes::open(&recording)?;
        let event = causes::event(&history, &self.event)?;
        let (cut, waiting, flights) = causes::ask(&mut history, |history| {
            let cut = if self.latest {
                history.latest(event)
            } else {
                history.past(event)
            };
            let waiting = history.waiting(&cut);
            let flights: Vec<(u32, u64)> = (0..history.channel_count())
                .filter_map(|channel| {
                    let bytes = history.in_flight(channel, &cut);
                    (bytes > 0).then_some((channel, bytes))
                })
                .collect();
            (cut, waiting, flights)
        })?;
        let mut out = Output::new();
        let mut standing: HashMap<u32, Vec<&Blocked>> = HashMap::new();
        for blocked in &waiting.blocked {
            standing.entry(blocked.thread.0).or_default().push(blocked);
        }
        let alive = |place: u32| {
            let runs = waiting.running.iter().any(|thread| thread.0 == place);
            runs || standing.contains_key(&place)
        };
        let state = |place: u32| state(&history, &cut, place, &standing, alive(place));
        if self.json {
            for place in 0..cut.processes() {
                let last = cut.last(place).filter(|_| begun(&history, &cut, place));
                let object = json!({
                    "process": causes::process_name(&history, place),
                    "position": last.map(|last| causes::name(&history, EventId::new(place, last))),
                    "state": state(place).0,
                    "blocked": standing.get(&place).into_iter().flatten().map(|own| json!({
                        "thread": causes::thread_name(&history, own.thread),
                        "since": causes::name(&history, EventId::new(place, own.since)),
                        "waits_for": blocked::what(&history, own),
                    })).collect::<Vec<_>>(),
                });
                out.line(&object.to_string())?;
            }
            for (number, bytes) in &flights {
                if let Some(channel) = history.channel(*number).filter(|c| !c.is_to_outside()) {
                    let object = json!({
                        "channel": format!("c{number}"),
                        "kind": channel.kind.name(),
                        "name": channel.name,
                        "in_flight": bytes,
                    });
                    out.line(&object.to_string())?;
                }
            }
        } else {
            let kind = match self.latest {
                false => "the earliest state that explains",
                true => "the furthest the others can have come without seeing past",
            };
            let shown = causes::show(&history, event, causes::DATA);
            let head = format!("{kind} {}  {}", shown.name, shown.text);
            out.line(&out.paint(Style::Bold, &head))?;
            table(&mut out, &history, &cut, event, state)?;
            print_flights(&mut out, &history, &flights)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn begun(history: &History, cut: &Cut, place: u32) -> bool {
    cut.bound(place) > history.span(place).0
}

/// What a process does at a cut: in a word, and in more.
fn state(
    history: &History,
    cut: &Cut,
    place: u32,
    standing: &HashMap<u32, Vec<&Blocked>>,
    alive: bool,
) -> (&'static str, String) {
    if !begun(history, cut, place) {
        return ("not begun", String::new());
    }
    if !alive {
        return ("ended", String::new());
    }
    let own = standing.get(&place).map_or(&[][..], Vec::as_slice);
    let threads = history.thread_count(place);
    match own {
        [] => ("running", String::new()),
        [one] if threads <= 1 => ("blocked", blocked::what(history, one)),
        many => {
            let first = many.first().map(|b| blocked::what(history, b));
            let rest = match many.len() {
                1 => String::new(),
                count => format!("; {} more threads blocked", count - 1),
            };
            let text = format!("{}{rest}", first.unwrap_or_default());
            ("blocked", text)
        }
    }
}

fn table(
    out: &mut Output,
    history: &History,
    cut: &Cut,
    event: EventId,
    state: impl Fn(u32) -> (&'static str, String),
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for place in 0..cut.processes() {
        let (word, more) = state(place);
        let position = match cut.last(place).filter(|_| begun(history, cut, place)) {
            Some(last) => causes::name(history, EventId::new(place, last)),
            None => causes::process_name(history, place),
        };
        rows.push((place, position, word, more));
    }
    let width = rows
        .iter()
        .map(|row| row.1.chars().count())
        .max()
        .unwrap_or(0);
    for (place, position, word, more) in rows {
        let mark = if place == event.process { "*" } else { " " };
        let more = match more.is_empty() {
            true => String::new(),
            false => format!("waits for {more}"),
        };
        let text = format!(
            "{mark} {}  {word:<9}  {more}",
            out.paint(Style::Numbered(place), &format!("{position:<width$}"))
        );
        out.line(text.trim_end())?;
    }
    Ok(())
}

fn print_flights(
    out: &mut Output,
    history: &History,
    flights: &[(u32, u64)],
) -> Result<(), Failure> {
    let shown: Vec<_> = flights
        .iter()
        .filter_map(|(number, bytes)| Some((history.channel(*number)?, *bytes)))
        .filter(|(channel, _)| !channel.is_to_outside())
        .collect();
    if shown.is_empty() {
        out.line("nothing is in flight")?;
        return Ok(());
    }
    out.line("in flight:")?;
    for (channel, bytes) in shown {
        let unit = match channel.kind {
            causality::ChannelKind::Counter | causality::ChannelKind::Semaphore => "units",
            _ => "bytes",
        };
        out.line(&format!(
            "  c{:<5} {bytes:>8} {unit}  {}",
            channel.number,
            crate::channels::ends(history, &channel)
        ))?;
    }
    Ok(())
}
