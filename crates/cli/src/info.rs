//! `mw info`: what a recording is of, how large it is, and what it lacks.

use std::process::ExitCode;

use query::info::Facts;

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
        let recording = self.recording.open()?;
        let facts = Facts::new(&recording);
        let mut out = Output::new();
        if self.json {
            out.json(&facts)?;
        } else {
            print(&facts, &mut out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
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
