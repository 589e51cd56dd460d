//! `mw info`: what a recording is of, how large it is, and what it lacks.

use std::process::ExitCode;

use recording::survey::Survey;
use recording::{Note, Recording};
use serde_json::json;

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
            out.line(&facts.object().to_string())?;
        } else {
            facts.print(&mut out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What reads the outside without a system call, and is in no log.
const NOT_SEEN: [&str; 4] = ["cpuid", "rdpid", "rdrand", "rdseed"];

struct Facts<'r> {
    recording: &'r Recording,
    survey: Survey,
    duration_ns: u64,
    problems: Vec<String>,
    complete: bool,
}

impl<'r> Facts<'r> {
    fn new(recording: &'r Recording) -> Facts<'r> {
        let survey = recording.survey();
        let end = match recording.summary() {
            Some(summary) => summary.time,
            None => survey.total.last_time,
        };
        let mut problems = Vec::new();
        for damage in recording.damage() {
            problems.push(if damage.is_tail {
                format!("the last {} of the journal are torn", bytes(damage.len))
            } else {
                format!(
                    "{} of the journal are damaged, at offset {}",
                    bytes(damage.len),
                    damage.at
                )
            });
        }
        for (number, end) in &survey.ends {
            problems.push(format!("{}: {end}", name(recording, *number)));
        }
        for file in recording.files() {
            if !recording.captured_path(file.id).exists() {
                problems.push(format!(
                    "captured file {} is missing ({})",
                    file.id,
                    String::from_utf8_lossy(&file.path)
                ));
            }
        }
        let damaged = survey.ends.values().any(|end| end.is_damage());
        Facts {
            recording,
            duration_ns: recording.clock().since_start_ns(end),
            complete: recording.is_complete() && !damaged,
            survey,
            problems,
        }
    }

    fn state(&self) -> &'static str {
        match self.recording.summary() {
            _ if self.complete => "complete",
            Some(summary) if !summary.complete => "ended before the program did",
            Some(_) => "damaged",
            None => "cut short (or still being recorded): it ends without an end",
        }
    }

    fn captured_bytes(&self) -> u64 {
        self.recording.files().iter().map(|file| file.size).sum()
    }

    fn object(&self) -> serde_json::Value {
        let manifest = self.recording.manifest();
        let total = &self.survey.total;
        json!({
            "recording": self.recording.dir().to_string_lossy(),
            "format": manifest.format,
            "command": manifest.command,
            "cwd": manifest.cwd,
            "host": manifest.host,
            "kernel": manifest.kernel,
            "cpu": manifest.cpu,
            "user": manifest.user,
            "started_ns": manifest.started_ns,
            "duration_ns": self.duration_ns,
            "complete": self.complete,
            "state": self.state(),
            "exit": self.recording.summary().map(|summary| summary.exit_status),
            "processes": self.recording.processes().len(),
            "threads": total.threads,
            "events": total.events,
            "preemptions": total.preemptions,
            "patched_sites": total.patched_sites,
            "log_bytes": total.log_bytes,
            "log_data_bytes": total.data_bytes,
            "log_compressed_bytes": total.stored_bytes,
            "journal_bytes": self.recording.journal_len(),
            "files": self.recording.files().len(),
            "file_bytes": self.captured_bytes(),
            "notes": self.recording.notes().iter().map(|note| json!({
                "process": name(self.recording, note.process),
                "kind": note.kind,
                "text": note.text,
            })).collect::<Vec<_>>(),
            "not_seen": NOT_SEEN,
            "problems": self.problems,
        })
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let recording = self.recording;
        let manifest = recording.manifest();
        let total = &self.survey.total;
        let (day, time) = date(manifest.started_ns);
        let overhead = total.log_bytes.saturating_sub(total.data_bytes);
        let per_event = |bytes: u64| bytes as f64 / total.events.max(1) as f64;
        let mut rows = vec![
            ("recording", recording.dir().display().to_string()),
            ("state", self.state().to_string()),
            (
                "command",
                command_line(manifest.command.iter().map(String::as_bytes)),
            ),
            ("in", manifest.cwd.clone()),
            ("host", manifest.host.clone()),
            ("kernel", manifest.kernel.clone()),
            ("cpu", manifest.cpu.clone()),
            ("user", manifest.user.clone()),
            (
                "started",
                format!("{day} {} UTC", time.get(..8).unwrap_or(&time)),
            ),
            ("duration", format!("{} s", seconds(self.duration_ns))),
        ];
        if let Some(summary) = recording.summary() {
            rows.push(("exit", summary.exit_status.to_string()));
        }
        rows.extend([
            (
                "processes",
                format!(
                    "{} ({} threads)",
                    recording.processes().len(),
                    total.threads
                ),
            ),
            ("events", total.events.to_string()),
            (
                "log",
                format!(
                    "{}, {} of it the program's data; {:.1} bytes per event beyond its data",
                    bytes(total.log_bytes),
                    bytes(total.data_bytes),
                    per_event(overhead)
                ),
            ),
            (
                "compressed",
                format!(
                    "{}; {:.1} bytes per event",
                    bytes(total.stored_bytes),
                    per_event(total.stored_bytes)
                ),
            ),
            (
                "files",
                format!(
                    "{} captured, {}",
                    recording.files().len(),
                    bytes(self.captured_bytes())
                ),
            ),
        ]);
        rows.push((
            "not seen",
            format!("{}: instructions that nothing traps", NOT_SEEN.join(", ")),
        ));
        if total.preemptions > 0 {
            rows.push((
                "preempted",
                match total.preemptions {
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
        if !recording.notes().is_empty() {
            out.line("")?;
            out.line(&out.paint(Style::Bold, "not recorded, or otherwise of note"))?;
            for (note, count) in grouped(recording.notes()) {
                let times = match count {
                    1 => String::new(),
                    count => format!(" ({count} times)"),
                };
                let process = name(recording, note.process);
                out.line(&format!("  {}: {process}: {}{times}", note.kind, note.text))?;
            }
        }
        if !self.problems.is_empty() {
            out.line("")?;
            out.line(&out.paint(Style::Red, "damage"))?;
            for problem in &self.problems {
                out.line(&format!("  {problem}"))?;
            }
        }
        Ok(())
    }
}

fn name(recording: &Recording, number: u32) -> String {
    match recording.process(number) {
        Some(process) => process.name.clone(),
        None => format!("process {number}"),
    }
}

/// Equal notes once, with how often, in order of the first.
fn grouped(notes: &[Note]) -> Vec<(&Note, usize)> {
    let mut groups: Vec<(&Note, usize)> = Vec::new();
    for note in notes {
        match groups.iter_mut().find(|(known, _)| *known == note) {
            Some((_, count)) => *count += 1,
            None => groups.push((note, 1)),
        }
    }
    groups
}
