//! `mw blocked`: who waits for whom.

use std::process::ExitCode;
use std::time::Duration;

use causality::WaitFor;
use query::blocked::{self, Blocked, Deadlock, Locks, Report};
use query::find;
use query::source::Replays;

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style};
use crate::select::Positional;
use crate::source::within;

/// Tell who waits for whom, at the end of the recording or at a cut, and
/// whether it is a deadlock.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: Positional,

    /// At the cut that is the causal past of this event: NAME:NUMBER, or a
    /// pattern for the last event that fits it
    #[arg(long, value_name = "EVENT")]
    at: Option<String>,

    /// Of processes that run, now: by id, or all that have a name; of another host after
    /// its name and a colon. Nobody is stopped
    #[arg(long, value_name = "[HOST:]PID|NAME", num_args = 1.., conflicts_with_all = ["at", "latest", "no_replay", "json"])]
    live: Vec<String>,

    /// With --live: for an `mw` on another host
    #[arg(long, requires = "live", hide = true)]
    as_data: bool,

    /// With --at: the furthest that the other processes can have come
    #[arg(long, requires = "at")]
    latest: bool,

    /// Do not replay to find out which thread holds the lock that others wait
    /// for
    #[arg(long)]
    no_replay: bool,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// How long is replayed to find out who holds locks.
const LOOKING: Duration = Duration::from_secs(5);

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        if !self.live.is_empty() {
            return crate::blocked_now::run(&self.live, self.as_data);
        }
        let set = self.recording.open()?;
        let mut history = causes::open(&set)?;
        let names = causes::names(&history);
        let at = match &self.at {
            Some(text) => Some(find::event(&history, &names, text)?),
            None => None,
        };
        let (cut, mut waiting, told) = causes::ask(&mut history, |history| {
            blocked::moment(history, at, self.latest)
        })?;
        let locks = match self.no_replay {
            true => Locks::new(),
            false => {
                let learn =
                    |replays: Replays<'_>| blocked::learn(&history, &cut, &mut waiting, replays);
                within(&set, LOOKING, learn)
            }
        };
        let report = blocked::report(&history, &names, &waiting, &locks, told.as_ref());
        let mut out = Output::new();
        if self.json {
            for blocked in &report.threads {
                out.json(blocked)?;
            }
            for deadlock in &report.deadlocks {
                out.json(deadlock)?;
            }
        } else {
            print(&mut out, &report)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Those who could let it go on, a few of them by name.
fn by(blocked: &Blocked) -> String {
    const NAMED: usize = 4;
    let mut names: Vec<String> = blocked.by.iter().take(NAMED).cloned().collect();
    if blocked.by.len() > NAMED {
        names.push(format!("{} others", blocked.by.len() - NAMED));
    }
    if blocked.outside && !blocked.limited {
        names.push("somebody outside".to_string());
    }
    match names.is_empty() {
        true => "nobody".to_string(),
        false => names.join(", "),
    }
}

/// Where what it waits for could come from.
fn source(blocked: &Blocked) -> String {
    match blocked.what {
        WaitFor::Thread(_) | WaitFor::Child(Some(_)) => String::new(),
        _ if blocked.is_held => format!(", which {} has", by(blocked)),
        // Nobody is known who could bring it.
        WaitFor::Other | WaitFor::Time if blocked.by.is_empty() => String::new(),
        _ if blocked.by.is_empty() && blocked.limited => String::new(),
        _ => format!(" from {}", by(blocked)),
    }
}

fn print(out: &mut Output, report: &Report) -> Result<(), Failure> {
    if let Some((signal, event)) = &report.before {
        out.line(&format!(
            "before {signal} reached the program from outside, at {event}:"
        ))?;
    }
    if report.threads.is_empty() {
        let text = match report.running {
            0 => "no process is alive here; `--at EVENT` asks about an earlier moment".to_string(),
            1 => "nobody waits; 1 thread runs".to_string(),
            count => format!("nobody waits; {count} threads run"),
        };
        out.line(&text)?;
        return Ok(());
    }
    let widths = report.threads.iter().map(|b| b.thread.chars().count());
    let width = widths.max().unwrap_or(0);
    for blocked in &report.threads {
        let freed = match &blocked.freed_by {
            Some(event) => format!("; let go by {event}"),
            None => String::new(),
        };
        let limit = match (blocked.what, blocked.limited) {
            (WaitFor::Time, _) | (_, false) => "",
            _ => ", or its time to be over",
        };
        let own = Style::Numbered(blocked.id.process.0);
        out.line(&format!(
            "{}  {} since {}: {}{}{limit}{}",
            out.paint(own, &format!("{:<width$}", blocked.thread)),
            blocked.call,
            blocked.since,
            blocked.waits_for,
            source(blocked),
            out.paint(Style::Dim, &freed)
        ))?;
    }
    for deadlock in &report.deadlocks {
        out.line("")?;
        out.line(&out.paint(Style::Red, &words(deadlock)))?;
    }
    if report.deadlocks.is_empty() {
        out.line("")?;
        out.line("no deadlock: everybody waits for somebody who can go on")?;
    }
    Ok(())
}

fn words(deadlock: &Deadlock) -> String {
    let Some(first) = deadlock.cycle.first() else {
        let them = match deadlock.threads.len() {
            1 => "it",
            _ => "them",
        };
        return format!(
            "DEADLOCK: {} will wait for ever: nobody is left to let {them} go on",
            deadlock.threads.join(", ")
        );
    };
    let circle = deadlock.cycle.join(" waits for ");
    format!("DEADLOCK: {circle} waits for {first}")
}
