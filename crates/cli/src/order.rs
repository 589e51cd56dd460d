//! `mw order`: which of two events came first, and the proof.

use std::process::ExitCode;

use causality::{EventId, History, Link, Order};
use serde_json::json;

use crate::causes::{self, Shown};
use crate::failure::Failure;
use crate::output::{Output, Style};
use crate::select::Chosen;
use crate::why::link_object;

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
    recording: Chosen,

    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recording = self.recording.open()?;
        let mut history = causes::open(&recording)?;
        let a = causes::event(&history, &self.a)?;
        let b = causes::event(&history, &self.b)?;
        let (order, path) = causes::ask(&mut history, |history| {
            let order = history.order(a, b);
            let path = match order {
                Order::Before => history.path_between(a, b),
                Order::After => history.path_between(b, a),
                Order::Same | Order::Concurrent => None,
            };
            (order, path)
        })?;
        let word = match order {
            Order::Same => "same",
            Order::Before => "before",
            Order::After => "after",
            Order::Concurrent => "concurrent",
        };
        let (name_a, name_b) = (causes::name(&history, a), causes::name(&history, b));
        let mut out = Output::new();
        if self.json {
            let path = path.as_ref().map(|path| {
                let links = path.iter().map(|link| link_object(&history, link));
                links.collect::<Vec<_>>()
            });
            let object = json!({ "a": name_a, "b": name_b, "order": word, "path": path });
            out.line(&object.to_string())?;
            out.finish()?;
            return Ok(ExitCode::SUCCESS);
        }
        let verdict = match order {
            Order::Same => format!("{name_a} is {name_b}"),
            Order::Before => format!("{name_a} happened before {name_b}"),
            Order::After => format!("{name_a} happened after {name_b}"),
            Order::Concurrent => {
                format!("{name_a} and {name_b} are concurrent: neither could have caused the other")
            }
        };
        out.line(&out.paint(Style::Bold, &verdict))?;
        if let Some(path) = path {
            let (first, last) = match order {
                Order::After => (b, a),
                _ => (a, b),
            };
            print_path(&mut out, &history, first, last, &path)?;
        } else if order == Order::Concurrent {
            for event in [a, b] {
                let shown = causes::show(&history, event, causes::DATA);
                out.line(&line(&out, &shown, ""))?;
            }
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The events of a path, in order.
fn print_path(
    out: &mut Output,
    history: &History,
    first: EventId,
    last: EventId,
    path: &[Link],
) -> Result<(), Failure> {
    let mut steps = vec![(first, String::new())];
    let mut push = |event: EventId, how: String| {
        if steps.last().map(|step| step.0) != Some(event) {
            steps.push((event, how));
        }
    };
    for link in path {
        push(link.cause, "later in the process".to_string());
        push(link.effect, link.kind.name().to_string());
    }
    push(last, "later in the process".to_string());
    let events: Vec<EventId> = steps.iter().map(|step| step.0).collect();
    let shown = causes::show_all(history, &events, causes::DATA);
    for (event, how) in &steps {
        if let Some(shown) = shown.get(event) {
            out.line(&line(out, shown, how))?;
        }
    }
    Ok(())
}

fn line(out: &Output, shown: &Shown, how: &str) -> String {
    let arrow = match how {
        "" => "   ".to_string(),
        how => format!("-> {} ", out.paint(Style::Dim, how)),
    };
    format!(
        "  {arrow}{}  {}  {}",
        out.paint(Style::Numbered(shown.event.process), &shown.name),
        shown.thread,
        shown.text
    )
}
