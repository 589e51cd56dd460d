//! `mw export`: the recording in forms that people have viewers for.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use query::export::{Export, dot, json, otlp, perfetto, shiviz};
use query::find;

use crate::causes;
use crate::failure::Failure;
use crate::higher;
use crate::select::{Positional, Times};

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
    recording: Positional,

    /// Only events that fit this pattern
    #[arg(long = "where", short = 'w', value_name = "PATTERN")]
    pattern: Option<String>,

    /// With the higher events that the recognizers and verifiers in this file emit;
    /// --where may name them then, and all else that the file defines
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    times: Times,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        // With rules, what is asked for is in their language.
        let pattern = self.pattern.as_deref().filter(|_| self.rules.is_none());
        let pattern = pattern.map(find::pattern).transpose()?;
        let set = self.recording.open()?;
        let mut history = causes::open(&set)?;
        history.show_raw_times(self.times.raw_time);
        let names = causes::names(&history);
        if let Some(pattern) = &pattern {
            find::check(&history, &names, pattern)?;
        }
        let mut export = Export::new(&history, &names, pattern);
        if let Some(file) = &self.rules {
            let higher = higher::All::find(&history, &names, file, self.pattern.as_deref())?;
            export.retain(|event| higher.takes(event));
            export.mark(&higher.marks());
        }
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
