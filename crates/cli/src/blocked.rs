//! `mw blocked`: who waits for whom.

use std::process::ExitCode;

use causality::{Blocked, Cut, History, WaitFor, Waiter, Waiting};
use serde_json::json;

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style};
use crate::select::Chosen;

/// Tell who waits for whom, at the end of the recording or at a cut, and
/// whether it is a deadlock.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: Chosen,

    /// At the cut that is the causal past of this event: NAME:NUMBER, or a
    /// pattern for the last event that fits it
    #[arg(long, value_name = "EVENT")]
    at: Option<String>,

    /// With --at: the furthest that the other processes can have come
    #[arg(long, requires = "at")]
    latest: bool,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recording = self.recording.open()?;
        let mut history = causes::open(&recording)?;
        let at = match &self.at {
            Some(text) => Some(causes::event(&history, text)?),
            None => None,
        };
        let (cut, waiting) = causes::ask(&mut history, |history| {
            let cut = match at {
                Some(event) if self.latest => history.latest(event),
                Some(event) => history.past(event),
                None => history.end_of_recording(),
            };
            let waiting = history.waiting(&cut);
            (cut, waiting)
        })?;
        let mut out = Output::new();
        if self.json {
            json_lines(&mut out, &history, &waiting)?;
        } else {
            print(&mut out, &history, &cut, &waiting)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What a thread waits for, in words.
pub fn what(history: &History<'_>, blocked: &Blocked) -> String {
    let channel = |number: u32| match history.channel(number) {
        Some(channel) => format!("c{number} ({} {})", channel.kind, channel.name),
        None => format!("c{number}"),
    };
    match blocked.what {
        WaitFor::Receive(number) => format!("something to receive from {}", channel(number)),
        WaitFor::Send(number) => format!("room to send to {}", channel(number)),
        WaitFor::Connection => "somebody to connect".to_string(),
        WaitFor::Accept => "a connection to be made".to_string(),
        WaitFor::Child => "a child to end".to_string(),
        WaitFor::Wake(address) => format!("a wake at {address:#x}"),
        WaitFor::Lock(_) => "a lock on a file".to_string(),
        WaitFor::Time => "time to pass".to_string(),
        WaitFor::Signal => "a signal".to_string(),
        WaitFor::Any { count, .. } => format!("something to receive from one of {count} channels"),
        WaitFor::Other => "something that the recording does not tell".to_string(),
    }
}

fn call(blocked: &Blocked) -> String {
    match recording::calls::row(blocked.nr) {
        Some(row) => row.name.to_string(),
        None => format!("syscall_{}", blocked.nr),
    }
}

/// Those who could let it go on, a few of them by name.
fn by(history: &History<'_>, blocked: &Blocked) -> String {
    const NAMED: usize = 4;
    let mut names: Vec<String> = blocked
        .by
        .iter()
        .take(NAMED)
        .map(|thread| causes::thread_name(history, *thread))
        .collect();
    if blocked.by.len() > NAMED {
        names.push(format!("{} others", blocked.by.len() - NAMED));
    }
    if blocked.outside {
        names.push(
            if blocked.limited {
                "time"
            } else {
                "somebody outside"
            }
            .to_string(),
        );
    }
    match names.is_empty() {
        true => "nobody".to_string(),
        false => names.join(", "),
    }
}

fn json_lines(out: &mut Output, history: &History<'_>, waiting: &Waiting) -> Result<(), Failure> {
    let name = |thread: &Waiter| causes::thread_name(history, *thread);
    for blocked in &waiting.blocked {
        let object = json!({
            "thread": name(&blocked.thread),
            "process": causes::process_name(history, blocked.thread.0),
            "since": format!("{}:{}", causes::process_name(history, blocked.thread.0), blocked.since),
            "call": call(blocked),
            "waits_for": what(history, blocked),
            "by": blocked.by.iter().map(name).collect::<Vec<_>>(),
            "outside": blocked.outside,
            "freed_by": blocked.freed_by.map(|event| causes::name(history, event)),
        });
        out.line(&object.to_string())?;
    }
    for knot in &waiting.knots {
        let object = json!({
            "deadlock": knot.threads.iter().map(name).collect::<Vec<_>>(),
            "cycle": knot.circle.iter().map(name).collect::<Vec<_>>(),
        });
        out.line(&object.to_string())?;
    }
    Ok(())
}

fn print(
    out: &mut Output,
    history: &History<'_>,
    cut: &Cut,
    waiting: &Waiting,
) -> Result<(), Failure> {
    let _ = cut;
    if waiting.blocked.is_empty() {
        let text = match waiting.running.len() {
            0 => "no process is alive here; `--at EVENT` asks about an earlier moment".to_string(),
            count => format!("nobody waits; {count} threads run"),
        };
        out.line(&text)?;
        return Ok(());
    }
    let names: Vec<String> = waiting
        .blocked
        .iter()
        .map(|blocked| causes::thread_name(history, blocked.thread))
        .collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    for (blocked, name) in waiting.blocked.iter().zip(&names) {
        let since = causes::name(
            history,
            causality::EventId::new(blocked.thread.0, blocked.since),
        );
        let freed = match blocked.freed_by {
            Some(event) => format!("; let go by {}", causes::name(history, event)),
            None => String::new(),
        };
        out.line(&format!(
            "{}  {} since {since}: {} from {}{}",
            out.paint(
                Style::Numbered(blocked.thread.0),
                &format!("{name:<width$}")
            ),
            call(blocked),
            what(history, blocked),
            by(history, blocked),
            out.paint(Style::Dim, &freed)
        ))?;
    }
    for knot in &waiting.knots {
        out.line("")?;
        let text = match knot.circle.is_empty() {
            true => format!(
                "DEADLOCK: {} will wait for ever: nobody is left to let {} go on",
                knot.threads
                    .iter()
                    .map(|thread| causes::thread_name(history, *thread))
                    .collect::<Vec<_>>()
                    .join(", "),
                if knot.threads.len() == 1 {
                    "it"
                } else {
                    "them"
                }
            ),
            false => {
                let mut circle: Vec<String> = knot
                    .circle
                    .iter()
                    .map(|thread| causes::thread_name(history, *thread))
                    .collect();
                circle.extend(circle.first().cloned());
                format!("DEADLOCK: {}", circle.join(" waits for "))
            }
        };
        out.line(&out.paint(Style::Red, &text))?;
    }
    if waiting.knots.is_empty() {
        out.line("")?;
        out.line("no deadlock: everybody waits for somebody who can go on")?;
    }
    Ok(())
}
