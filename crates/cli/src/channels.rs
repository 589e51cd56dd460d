//! `mw channels`: the conversations in a recording.

use std::process::ExitCode;

use causality::{Channel, History};
use serde_json::json;

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
        let recording = self.recording.open()?;
        let mut history = causes::open(&recording)?;
        let mut wanted = Vec::new();
        for name in &self.process {
            let places: Vec<u32> = recording
                .processes()
                .iter()
                .zip(0u32..)
                .filter(|(p, _)| p.name == *name || p.program == *name)
                .map(|(_, place)| place)
                .collect();
            if places.is_empty() {
                return Err(causes::unknown_process(&recording, name));
            }
            wanted.extend(places);
        }
        let channels: Vec<Channel> = causes::ask(&mut history, |history| {
            let all = 0..history.channel_count();
            all.filter_map(|number| history.channel(number)).collect()
        })?;
        let chosen = channels.iter().filter(|channel| {
            wanted.is_empty()
                || channel
                    .senders
                    .iter()
                    .chain(&channel.receivers)
                    .any(|place| wanted.contains(place))
        });
        let mut out = Output::new();
        if self.json {
            for channel in chosen {
                out.line(&object(&history, channel).to_string())?;
            }
        } else {
            let chosen: Vec<&Channel> = chosen
                .filter(|channel| channel.forward || channel.reverse.is_none())
                .collect();
            table(&mut out, &history, &channels, &chosen)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn names(history: &History, places: &[u32]) -> Vec<String> {
    places
        .iter()
        .map(|place| causes::process_name(history, *place))
        .collect()
}

fn side(history: &History, places: &[u32]) -> String {
    match names(history, places).as_slice() {
        [] => "outside".to_string(),
        [one] => one.clone(),
        [first, rest @ ..] if rest.len() > 2 => format!("{first} and {} others", rest.len()),
        all => all.join("+"),
    }
}

/// Both ends of a channel in words.
pub fn ends(history: &History, channel: &Channel) -> String {
    format!(
        "{} -> {}  {} {}",
        side(history, &channel.senders),
        side(history, &channel.receivers),
        channel.kind,
        channel.name
    )
}

pub fn object(history: &History, channel: &Channel) -> serde_json::Value {
    let clock = history.recording().clock();
    let ns = |ticks: u64| {
        let rate = u128::from(clock.ticks_per_second.max(1));
        u64::try_from(u128::from(ticks) * 1_000_000_000 / rate).unwrap_or(u64::MAX)
    };
    let trips = &channel.round_trips;
    json!({
        "channel": format!("c{}", channel.number),
        "kind": channel.kind.name(),
        "name": channel.name,
        "reverse": channel.reverse.map(|number| format!("c{number}")),
        "from": names(history, &channel.senders),
        "to": names(history, &channel.receivers),
        "sends": channel.sends,
        "receives": channel.receives,
        "sent_bytes": channel.sent,
        "received_bytes": channel.received,
        "round_trips": trips.count,
        "round_trip_ns": {
            "least": ns(trips.least),
            "mean": ns(trips.mean()),
            "most": ns(trips.most),
        },
    })
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

fn table(
    out: &mut Output,
    history: &History,
    channels: &[Channel],
    chosen: &[&Channel],
) -> Result<(), Failure> {
    let clock = history.recording().clock();
    let ns = |ticks: u64| {
        let rate = u128::from(clock.ticks_per_second.max(1));
        u64::try_from(u128::from(ticks) * 1_000_000_000 / rate).unwrap_or(u64::MAX)
    };
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
        if channel.sends == 0 && channel.receives == 0 {
            let back = channel.reverse.and_then(|r| channels.get(r as usize));
            if back.is_none_or(|back| back.sends == 0 && back.receives == 0) {
                continue;
            }
        }
        let back = channel.reverse.and_then(|r| channels.get(r as usize));
        let amount = |channel: &Channel| {
            let (count, size) = match channel.sends {
                0 => (channel.receives, channel.received),
                sends => (sends, channel.sent),
            };
            format!("{count} / {}", bytes(size))
        };
        let trips = &channel.round_trips;
        let number = match back {
            Some(back) => format!("c{},c{}", channel.number, back.number),
            None => format!("c{}", channel.number),
        };
        rows.push([
            number,
            channel.kind.name().to_string(),
            side(history, &channel.senders),
            side(history, &channel.receivers),
            amount(channel),
            back.map(&amount).unwrap_or_default(),
            match trips.count {
                0 => String::new(),
                _ => format!(
                    "{} ({}..{})",
                    short(ns(trips.mean())),
                    short(ns(trips.least)),
                    short(ns(trips.most))
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
