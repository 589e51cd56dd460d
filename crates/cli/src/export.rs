//! `mw export`: the recording in forms that people have viewers for.

mod dot;
mod json;
mod otlp;
mod perfetto;
mod shiviz;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use causality::{EventId, History, Link};
use events::Matcher;
use recording::render::{Limits, Renderer};
use recording::{Phase, Timeline};

use crate::causes;
use crate::failure::Failure;
use crate::select::Chosen;

/// Write the recording in a form that other viewers read.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("form").required(true))]
pub struct Cmd {
    /// Trace-event JSON, for ui.perfetto.dev and chrome://tracing: calls as
    /// slices, links as arrows
    #[arg(long, group = "form")]
    perfetto: bool,

    /// A log with vector clocks, for ShiViz: events with links between
    /// processes
    #[arg(long, group = "form")]
    shiviz: bool,

    /// A graph for Graphviz: events with links between processes
    #[arg(long, group = "form")]
    dot: bool,

    /// Processes, channels and links as one JSON document
    #[arg(long, group = "form")]
    json: bool,

    /// OpenTelemetry spans in OTLP JSON, for Jaeger and others: one for each
    /// request and answer on a channel, on both sides
    #[arg(long, group = "form")]
    otlp: bool,

    #[command(flatten)]
    recording: Chosen,

    /// Only events that fit this pattern
    #[arg(long = "where", short = 'w', value_name = "PATTERN")]
    pattern: Option<String>,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What is exported of an event.
pub struct Item {
    pub event: EventId,
    pub thread: u32,
    pub time_ns: u64,
    /// Of a call that may block: its start.
    pub started: Option<u64>,
    pub phase: Phase,
    pub name: String,
    pub text: String,
}

/// Everything that is exported.
pub struct Export<'h> {
    pub history: &'h History,
    /// In order of time.
    pub items: Vec<Item>,
    /// Links of which both ends are among the items.
    pub links: Vec<Link>,
    /// Places of items.
    pub at: HashMap<EventId, usize>,
}

impl Export<'_> {
    pub fn item(&self, event: EventId) -> Option<&Item> {
        self.items.get(*self.at.get(&event)?)
    }

    /// The events that have a link to another process, in order of time.
    pub fn linked(&self) -> Vec<&Item> {
        let ends = |link: &Link| [link.cause, link.effect];
        let crossing = self
            .links
            .iter()
            .filter(|l| l.cause.process != l.effect.process);
        let set: std::collections::HashSet<EventId> = crossing.flat_map(ends).collect();
        self.items
            .iter()
            .filter(|item| set.contains(&item.event))
            .collect()
    }
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let pattern = self.pattern.as_deref().map(causes::pattern).transpose()?;
        let recording = self.recording.open()?;
        let history = causes::open(&recording)?;
        if let Some(pattern) = &pattern {
            causes::check(&history, pattern)?;
        }
        let export = collect(&history, pattern);
        let mut out: Box<dyn Write> = match &self.output {
            Some(path) => Box::new(BufWriter::new(File::create(path).map_err(|error| {
                Failure::new(format!("cannot create {}: {error}", path.display()))
            })?)),
            None => Box::new(BufWriter::new(std::io::stdout().lock())),
        };
        if self.perfetto {
            perfetto::write(&export, &mut out)?;
        } else if self.shiviz {
            shiviz::write(&export, &mut out)?;
        } else if self.dot {
            dot::write(&export, &mut out)?;
        } else if self.otlp {
            otlp::write(&export, &mut out)?;
        } else {
            json::write(&export, &mut out)?;
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn collect<'h>(history: &'h History, pattern: Option<events::Pattern>) -> Export<'h> {
    let recording = history.recording();
    let matcher = pattern.map(|pattern| Matcher::new(pattern, history));
    let mut renderer = Renderer::new(recording, Limits::default());
    let mut timeline = Timeline::new(recording, recording.processes().iter().map(|p| p.number));
    let mut items = Vec::new();
    let mut at = HashMap::new();
    let places: HashMap<u32, u32> = recording
        .processes()
        .iter()
        .zip(0u32..)
        .map(|(process, place)| (process.number, place))
        .collect();
    while timeline.advance() {
        let Some(event) = timeline.event() else { break };
        renderer.before(&event);
        if matcher
            .as_ref()
            .is_none_or(|matcher| matcher.fits(&event, &renderer))
        {
            let place = places.get(&event.process).copied().unwrap_or(u32::MAX);
            let id = EventId::new(place, event.number);
            at.insert(id, items.len());
            items.push(Item {
                event: id,
                thread: event.thread,
                time_ns: recording.clock().since_start_ns(event.time),
                started: event.started,
                phase: event.phase,
                name: event.name(),
                text: match causes::data(&event, 32) {
                    Some(data) => format!("{} {data}", event.name()),
                    None => renderer.text(&event),
                },
            });
        }
        renderer.after(&event);
    }
    let links = history
        .links()
        .filter(|link| at.contains_key(&link.cause) && at.contains_key(&link.effect))
        .collect();
    Export {
        history,
        items,
        links,
        at,
    }
}
