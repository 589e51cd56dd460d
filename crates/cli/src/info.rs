//! `mw info`: what a recording is of, how large it is, and what it lacks.

use std::process::ExitCode;

use query::info::Facts;

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style, bytes, command_line, date, seconds};
use crate::select::Positional;

/// Show a recording: host, kernel, command, duration, events, sizes, what
/// could not be recorded.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: Positional,

    /// One JSON object
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let set = self.recording.open()?;
        let mut out = Output::new();
        let clocks = match set.is_joined() {
            true => Some(causes::open(&set)?),
            false => None,
        };
        for (recording, number) in set.members().zip(0u16..) {
            let facts = Facts::new(recording);
            if self.json {
                out.json(&facts)?;
                continue;
            }
            if let Some(history) = &clocks {
                let name = set.name(number).unwrap_or_default();
                if number > 0 {
                    out.line("")?;
                }
                out.line(&out.paint(Style::Bold, &format!("{name}:")))?;
                if let Some(clock) = history.clock_of(number).filter(|_| number > 0) {
                    out.line(&format!("{:<10} {}", "clock", told(clock)))?;
                }
            }
            print(&facts, &mut out)?;
        }
        for missing in set.missing() {
            let line = format!("missing: {}: {}", missing.name, missing.why);
            out.line(&out.paint(Style::Red, &line))?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// How a host's clock stood to that of the first.
fn told(clock: causality::MemberClock) -> String {
    // In whole microseconds, of which none is less than none.
    let ms = |ns: i64| format!("{:.3} ms", ((ns as f64 / 1e3).round() + 0.0) / 1e3);
    let bounds = match (clock.least_ns, clock.most_ns) {
        (Some(least), Some(most)) => format!("between {} and {}", ms(least), ms(most)),
        (Some(least), None) => format!("at least {}", ms(least)),
        (None, Some(most)) => format!("at most {}", ms(most)),
        (None, None) => "no message tells: it is believed".to_string(),
    };
    let drift = match clock.drift_ppb {
        0 => String::new(),
        ppb => format!(", {:.3} ppm too fast", ppb as f64 / 1e3),
    };
    format!(
        "{} ahead of the first host's ({bounds}){drift}",
        ms(clock.ahead_ns)
    )
}

fn print(facts: &Facts, out: &mut Output) -> Result<(), Failure> {
    let (day, time) = date(facts.started_ns);
    let overhead = facts.log_bytes.saturating_sub(facts.log_data_bytes);
    let per_event = |bytes: u64| bytes as f64 / facts.events.max(1) as f64;
    let mut rows = vec![
        ("recording", facts.recording.clone()),
        ("state", facts.state.to_string()),
        (
            "command",
            command_line(facts.command.iter().map(String::as_bytes)),
        ),
        ("in", facts.cwd.clone()),
        ("host", facts.host.clone()),
        ("kernel", facts.kernel.clone()),
        ("cpu", facts.cpu.clone()),
        ("user", facts.user.clone()),
        (
            "started",
            format!("{day} {} UTC", time.get(..8).unwrap_or(&time)),
        ),
        ("duration", format!("{} s", seconds(facts.duration_ns))),
    ];
    if let Some(exit) = facts.exit {
        rows.push(("exit", exit.to_string()));
    }
    rows.extend([
        (
            "processes",
            format!("{} ({} threads)", facts.processes, facts.threads),
        ),
        ("events", facts.events.to_string()),
        (
            "log",
            format!(
                "{}, {} of it the program's data; {:.1} bytes per event beyond its data",
                bytes(facts.log_bytes),
                bytes(facts.log_data_bytes),
                per_event(overhead)
            ),
        ),
        (
            "compressed",
            format!(
                "{}; {:.1} bytes per event",
                bytes(facts.log_compressed_bytes),
                per_event(facts.log_compressed_bytes)
            ),
        ),
        (
            "files",
            format!("{} captured, {}", facts.files, bytes(facts.file_bytes)),
        ),
    ]);
    rows.push(("not seen", facts.not_seen.join(", ")));
    if facts.preemptions > 0 {
        rows.push((
            "preempted",
            match facts.preemptions {
                1 => "once".to_string(),
                count => format!("{count} times"),
            },
        ));
    }
    for (label, text) in rows {
        out.line(&format!(
            "{} {text}",
            out.paint(Style::Bold, &format!("{label:<10}"))
        ))?;
    }
    if !facts.notes.is_empty() {
        out.line("")?;
        out.line(&out.paint(Style::Bold, "not recorded, or otherwise of note"))?;
        for (note, count) in facts.grouped_notes() {
            let times = match count {
                1 => String::new(),
                count => format!(" ({count} times)"),
            };
            let process = &note.process;
            out.line(&format!("  {}: {process}: {}{times}", note.kind, note.text))?;
        }
    }
    if !facts.problems.is_empty() {
        out.line("")?;
        out.line(&out.paint(Style::Red, "damage"))?;
        for problem in &facts.problems {
            out.line(&format!("  {problem}"))?;
        }
    }
    Ok(())
}
