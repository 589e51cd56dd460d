//! `mw order`: which of two events came first, and the proof.

use std::process::ExitCode;

use causality::Order;
use query::find;
use query::order::{self, Step};

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style};
use crate::select::Positional;

/// Tell whether one event happened before another, after it, or concurrently,
/// and show the path that proves it.
///
/// Times of day say nothing about that: one event happened before another if
/// it could have caused it.
#[derive(clap::Args)]
pub struct Cmd {
    /// An event: NAME:NUMBER, or a pattern for the last event that fits it
    #[arg(value_name = "A")]
    a: String,

    /// Another
    #[arg(value_name = "B")]
    b: String,

    #[command(flatten)]
    recording: Positional,

    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let set = self.recording.open()?;
        let mut history = causes::open(&set)?;
        let names = causes::names(&history);
        let a = find::event(&history, &names, &self.a)?;
        let b = find::event(&history, &names, &self.b)?;
        let report = causes::ask(&mut history, |history| order::report(history, &names, a, b))?;
        let mut out = Output::new();
        if self.json {
            out.json(&report)?;
            out.finish()?;
            return Ok(ExitCode::SUCCESS);
        }
        let (a, b) = (&report.a, &report.b);
        let verdict = match report.order {
            Order::Same => format!("{a} is {b}"),
            Order::Before => format!("{a} happened before {b}"),
            Order::After => format!("{a} happened after {b}"),
            Order::Concurrent => {
                format!("{a} and {b} are concurrent: neither could have caused the other")
            }
        };
        out.line(&out.paint(Style::Bold, &verdict))?;
        for step in &report.steps {
            out.line(&line(&out, step))?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn line(out: &Output, step: &Step) -> String {
    let arrow = match step.how {
        None => "   ".to_string(),
        Some(how) => format!("-> {} ", out.paint(Style::Dim, how)),
    };
    let shown = &step.shown;
    format!(
        "  {arrow}{}  {}  {}",
        out.paint(Style::Numbered(shown.id.process.0), &shown.name),
        shown.thread,
        shown.text
    )
}
