//! `mw cut`: the state of all processes that explains an event.

use std::process::ExitCode;

use query::cut::{self, Flight, Report, Standing, State};
use query::find;

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style};
use crate::select::{Positional, Times};

/// Show the consistent cut that is the causal past of an event: for each
/// process how far it must have come, and what was under way between them.
#[derive(clap::Args)]
pub struct Cmd {
    /// The event: NAME:NUMBER, or a pattern for the last event that fits it
    #[arg(value_name = "EVENT")]
    event: String,

    #[command(flatten)]
    recording: Positional,

    #[command(flatten)]
    times: Times,

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
        let set = self.recording.open()?;
        let mut history = causes::open(&set)?;
        history.show_raw_times(self.times.raw_time);
        let names = causes::names(&history);
        let event = find::event(&history, &names, &self.event)?;
        let report = causes::ask(&mut history, |history| {
            cut::report(history, &names, event, self.latest)
        })?;
        let mut out = Output::new();
        if self.json {
            for standing in &report.processes {
                out.json(standing)?;
            }
            for flight in &report.in_flight {
                out.json(flight)?;
            }
        } else {
            self.print(&mut out, &report)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, out: &mut Output, report: &Report) -> Result<(), Failure> {
        let kind = match self.latest {
            false => "the earliest state that explains",
            true => "the furthest the others can have come without seeing past",
        };
        let head = format!("{kind} {}  {}", report.event.name, report.event.text);
        out.line(&out.paint(Style::Bold, &head))?;
        let position = |standing: &Standing| match &standing.position {
            Some(position) => position.clone(),
            None => standing.process.clone(),
        };
        let widths = report.processes.iter().map(|s| position(s).chars().count());
        let width = widths.max().unwrap_or(0);
        for standing in &report.processes {
            let mark = match standing.id == report.event.id.process {
                true => "*",
                false => " ",
            };
            let own = Style::Numbered(standing.id.0);
            let text = format!(
                "{mark} {}  {:<9}  {}",
                out.paint(own, &format!("{:<width$}", position(standing))),
                standing.state.word(),
                more(standing)
            );
            out.line(text.trim_end())?;
        }
        print_flights(out, &report.in_flight)
    }
}

/// What a process waits for.
fn more(standing: &Standing) -> String {
    let Some(first) = standing.blocked.first() else {
        return String::new();
    };
    if standing.state != State::Blocked {
        return String::new();
    }
    let rest = match standing.blocked.len() {
        1 => String::new(),
        count => format!("; {} more threads blocked", count - 1),
    };
    format!("waits for {}{rest}", first.waits_for)
}

fn print_flights(out: &mut Output, flights: &[Flight]) -> Result<(), Failure> {
    if flights.is_empty() {
        out.line("nothing is in flight")?;
        return Ok(());
    }
    out.line("in flight:")?;
    for flight in flights {
        out.line(&format!(
            "  {:<6} {:>8} {}  {}",
            flight.channel, flight.in_flight, flight.unit, flight.ends
        ))?;
    }
    Ok(())
}
