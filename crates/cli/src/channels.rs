//! `mw channels`: the conversations in a recording.

use std::process::ExitCode;

use query::channels::{self, Channel};

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style, bytes};
use crate::select::Positional;

/// Show the conversations: their ends, messages, bytes and round-trip times.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: Positional,

    /// Only conversations in which one of these processes has a part
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    process: Vec<String>,

    /// One JSON object a line, for each direction
    #[arg(long)]
    json: bool,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let set = self.recording.open()?;
        let mut history = causes::open(&set)?;
        let parties = channels::parties(&history, &self.process)?;
        let all = causes::ask(&mut history, channels::list)?;
        let has_part = |channel: &&Channel| {
            let mut processes = channel.processes.iter();
            self.process.is_empty() || processes.any(|process| parties.contains(process))
        };
        let chosen = all.iter().filter(has_part);
        let mut out = Output::new();
        if self.json {
            for channel in chosen {
                out.json(channel)?;
            }
        } else {
            let chosen: Vec<&Channel> = chosen
                .filter(|channel| channel.forward || channel.reverse.is_none())
                .collect();
            table(&mut out, &all, &chosen)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A number of nanoseconds for people.
fn short(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", ns / 1000),
        10_000_000..10_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

fn table(out: &mut Output, all: &[Channel], chosen: &[&Channel]) -> Result<(), Failure> {
    let mut rows = vec![
        [
            "CHANNEL",
            "KIND",
            "FROM",
            "TO",
            "SENT",
            "BACK",
            "ROUND TRIP",
            "NAME",
        ]
        .map(str::to_string),
    ];
    for channel in chosen {
        let reverse = channel.numbers.1;
        let back = reverse.and_then(|number| all.iter().find(|c| c.numbers.0 == number));
        if !channel.is_used() && back.is_none_or(|back| !back.is_used()) {
            continue;
        }
        let amount = |channel: &Channel| {
            let (count, size) = match channel.sends {
                0 => (channel.receives, channel.received_bytes),
                sends => (sends, channel.sent_bytes),
            };
            format!("{count} / {}", bytes(size))
        };
        rows.push([
            match back {
                Some(back) => format!("{},{}", channel.channel, back.channel),
                None => channel.channel.clone(),
            },
            channel.kind.to_string(),
            channel.senders(),
            channel.receivers(),
            amount(channel),
            back.map(&amount).unwrap_or_default(),
            match channel.round_trip_ns {
                None => String::new(),
                Some(trip) => format!(
                    "{} ({}..{})",
                    short(trip.mean),
                    short(trip.least),
                    short(trip.most)
                ),
            },
            channel.name.clone(),
        ]);
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..8).map(width).collect();
    for (i, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.push_str(&match column {
                4 | 5 => format!("{cell:>width$}  "),
                _ => format!("{cell:<width$}  "),
            });
        }
        let style = if i == 0 { Style::Bold } else { Style::Plain };
        out.line(&out.paint(style, line.trim_end()))?;
    }
    Ok(())
}
