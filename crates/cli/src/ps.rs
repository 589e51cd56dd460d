//! `mw ps`: the processes of a recording, as a tree.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;

use recording::process::Began;
use recording::{Exit, Life, Process, Recording};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Output, Style, bytes, command_line, cut, seconds};
use crate::select::Positional;

/// Show the processes of a recording: names, command lines, life times, exit
/// statuses, events, bytes.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: Positional,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recording = self.recording.open()?;
        let mut out = Output::new();
        if self.json {
            for process in recording.processes() {
                let life = recording.life(process);
                out.line(&object(&recording, process, &life).to_string())?;
            }
        } else {
            table(&recording, &mut out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn command(recording: &Recording, process: &Process) -> Vec<String> {
    let Some(image) = recording.command_of(process) else {
        return Vec::new();
    };
    let args = image.argv.iter();
    args.map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect()
}

fn object(recording: &Recording, process: &Process, life: &Life) -> serde_json::Value {
    let clock = recording.clock();
    let start = clock.since_start_ns(process.birth);
    let parent = process.parent.and_then(|number| recording.process(number));
    json!({
        "process": process.name,
        "number": process.number,
        "pid": Some(process.pid).filter(|pid| *pid != 0),
        "parent": parent.map(|parent| &parent.name),
        "parent_event": match (parent, process.parent_event) {
            (Some(parent), Some(event)) => Some(format!("{}:{event}", parent.name)),
            _ => None,
        },
        "began": match process.began {
            Began::First => "first",
            Began::Fork => "fork",
            Began::Vfork => "vfork",
            Began::Unknown => "unknown",
        },
        "command": command(recording, process),
        "images": process.images.len(),
        "start_ns": start,
        "duration_ns": clock.since_start_ns(life.end).saturating_sub(start),
        "exit": match life.exit {
            Exit::Exited(status) => Some(status),
            _ => None,
        },
        "signal": match life.exit {
            Exit::Killed { .. } => Some(life.exit.to_string()),
            _ => None,
        },
        "status": life.exit.status(),
        "events": life.events,
        "log_bytes": process.log_bytes,
    })
}

/// The processes in the order of a tree, each with what is drawn before it.
fn tree(recording: &Recording) -> Vec<(String, &Process)> {
    let mut children: HashMap<u32, Vec<&Process>> = HashMap::new();
    let mut roots = Vec::new();
    for process in recording.processes() {
        match process
            .parent
            .filter(|parent| recording.process(*parent).is_some())
        {
            Some(parent) => children.entry(parent).or_default().push(process),
            None => roots.push(process),
        }
    }
    let mut lines = Vec::new();
    let mut seen = HashSet::new();
    let mut stack: Vec<(String, String, &Process)> = Vec::new();
    // A damaged log may make a process its own ancestor: what no root leads
    // to is shown as a root as well.
    for root in roots.into_iter().chain(recording.processes()) {
        stack.push((String::new(), String::new(), root));
        while let Some((branch, below, process)) = stack.pop() {
            if !seen.insert(process.number) {
                continue;
            }
            lines.push((branch, process));
            let own = children.get(&process.number).map_or(&[][..], Vec::as_slice);
            for (i, child) in own.iter().enumerate().rev() {
                let (branch, indent) = match i + 1 == own.len() {
                    true => ("└ ", "  "),
                    false => ("├ ", "│ "),
                };
                stack.push((
                    format!("{below}{branch}"),
                    format!("{below}{indent}"),
                    child,
                ));
            }
        }
    }
    lines
}

fn table(recording: &Recording, out: &mut Output) -> Result<(), Failure> {
    let header = [
        "PROCESS", "PID", "START", "LIFE", "EXIT", "EVENTS", "LOG", "COMMAND",
    ];
    let mut rows = vec![header.map(str::to_string)];
    let mut styles = vec![Style::Bold];
    let clock = recording.clock();
    for (branch, process) in tree(recording) {
        let life = recording.life(process);
        let start = clock.since_start_ns(process.birth);
        let argv = command(recording, process);
        rows.push([
            format!("{branch}{}", process.name),
            match process.pid {
                0 => "-".to_string(),
                pid => pid.to_string(),
            },
            seconds(start),
            seconds(clock.since_start_ns(life.end).saturating_sub(start)),
            life.exit.to_string(),
            life.events.to_string(),
            bytes(process.log_bytes),
            command_line(argv.iter().map(String::as_bytes)),
        ]);
        styles.push(match life.exit {
            Exit::Exited(0) => Style::Plain,
            Exit::Unknown => Style::Yellow,
            _ => Style::Red,
        });
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    for (row, style) in rows.iter().zip(styles) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.push_str(&match column {
                0 => format!("{cell:<width$}"),
                7 => format!("  {cell}"),
                _ => format!("  {cell:>width$}"),
            });
        }
        if let Some(width) = out.width() {
            line = cut(&line, width);
        }
        out.line(&out.paint(style, line.trim_end()))?;
    }
    Ok(())
}
