//! `mw ps`: the processes of a recording, as a tree.

use std::process::ExitCode;

use query::ps::{List, Node};
use recording::Exit;

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
        let set = self.recording.open()?;
        let list = List::of(&set);
        let mut out = Output::new();
        if self.json {
            for row in &list.processes {
                out.json(row)?;
            }
        } else {
            table(&list, &mut out)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What is drawn before a process.
fn branch(node: &Node<'_>) -> String {
    let Some((own, above)) = node.last.split_last() else {
        return String::new();
    };
    let above = above.iter().map(|last| if *last { "  " } else { "│ " });
    above
        .chain([if *own { "└ " } else { "├ " }])
        .collect::<String>()
}

fn table(list: &List, out: &mut Output) -> Result<(), Failure> {
    let header = [
        "PROCESS", "PID", "START", "LIFE", "EXIT", "EVENTS", "LOG", "COMMAND",
    ];
    let mut rows = vec![header.map(str::to_string)];
    let mut styles = vec![Style::Bold];
    let mut host = None;
    for node in list.tree() {
        let row = node.row;
        if row.host.is_some() && row.host != host {
            host = row.host.clone();
            let mut line: [String; 8] = Default::default();
            if let ([name, ..], Some(host)) = (&mut line, &host) {
                *name = format!("{host}:");
            }
            rows.push(line);
            styles.push(Style::Bold);
        }
        rows.push([
            format!("{}{}", branch(&node), row.process),
            row.pid.map_or("-".to_string(), |pid| pid.to_string()),
            seconds(row.start_ns),
            seconds(row.duration_ns),
            row.end.to_string(),
            row.events.to_string(),
            bytes(row.log_bytes),
            command_line(row.command.iter().map(String::as_bytes)),
        ]);
        styles.push(match row.end {
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
