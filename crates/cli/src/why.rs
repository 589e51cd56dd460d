//! `mw why` and `mw effects`: from an effect back to its causes, and forward.

use std::process::ExitCode;

use causality::{EventId, History, Limits};
use query::shown::{DATA, Shown};
use query::source::{Lines, Site};
use query::why::{Message, Options, Row};
use query::{effects, find, why};

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style, cut};
use crate::select::{Positional, Times};
use crate::source::Wish;

/// Tell why something happened: the chain of causes across processes.
///
/// The shortest explanation comes first: a receive is explained by what was
/// sent, an answer by the question and by what its thread was told in between,
/// anything else by the last thing its thread was told.
#[derive(clap::Args)]
pub struct Cmd {
    /// The event: NAME:NUMBER, or a pattern for the last event that fits it
    #[arg(value_name = "EVENT")]
    event: String,

    #[command(flatten)]
    recording: Positional,

    #[command(flatten)]
    times: Times,

    /// Show the messages in the event's past that fit this pattern, too, in
    /// the order in which they happened
    #[arg(long = "where", short = 'w', value_name = "PATTERN")]
    pattern: Option<String>,

    /// Tell all of the causal past, not only the shortest explanation
    #[arg(long)]
    all: bool,

    /// Go this many links back
    #[arg(long, value_name = "N", default_value_t = 3)]
    depth: usize,

    /// Show no more messages than this, the last ones
    #[arg(long, value_name = "N", default_value_t = 40)]
    limit: usize,

    /// One JSON object a line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Wish,

    /// Show this many bytes of data
    #[arg(short = 's', long = "strings", value_name = "N", default_value_t = DATA)]
    strings: usize,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let pattern = self.pattern.as_deref().map(find::pattern).transpose()?;
        let set = self.recording.open()?;
        let mut history = causes::open(&set)?;
        history.show_raw_times(self.times.raw_time);
        let names = causes::names(&history);
        if let Some(pattern) = &pattern {
            find::check(&history, &names, pattern)?;
        }
        let event = find::event(&history, &names, &self.event)?;
        let limits = match self.all {
            true => Limits {
                depth: usize::MAX,
                width: usize::MAX,
            },
            false => Limits {
                depth: self.depth.max(1),
                ..Limits::default()
            },
        };
        let options = Options {
            limits,
            all: self.all,
            data: self.strings,
        };
        let mut report = causes::ask(&mut history, |history| {
            why::report(history, &names, event, &options)
        })?;
        let mut out = Output::new();
        let sites = report.sites();
        if self.json {
            report.learn(&self.source.lines(&history, &sites));
            out.json(&report.head)?;
            for row in report.rows.iter().chain(&report.rest) {
                out.json(row)?;
            }
        } else {
            let draw = |out: &mut Output, source: &Lines| {
                let mut report = report.clone();
                report.learn(source);
                print(out, &report.head, &report.rows, 0)?;
                if !report.rest.is_empty() {
                    out.line("")?;
                    out.line("and the rest of its past, the latest first:")?;
                    print_rows(out, &report.rest, 0)?;
                }
                Ok(())
            };
            let source = lines_meanwhile(&mut out, &self.source, &history, &sites, draw)?;
            draw(&mut out, &source)?;
            print_note(&mut out, &source)?;
        }
        if let Some(pattern) = pattern {
            let messages = why::messages(&history, &names, pattern, event, self.strings);
            print_messages(&mut out, &messages, self.limit, self.json)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Tell what an event led to, across processes.
#[derive(clap::Args)]
pub struct Effects {
    /// The event: NAME:NUMBER, or a pattern for the last event that fits it
    #[arg(value_name = "EVENT")]
    event: String,

    #[command(flatten)]
    recording: Positional,

    #[command(flatten)]
    times: Times,

    /// Go this many links on
    #[arg(long, value_name = "N", default_value_t = 4)]
    depth: usize,

    /// Show no more effects of one event than this
    #[arg(long, value_name = "N", default_value_t = 8)]
    width: usize,

    /// One JSON object a line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Wish,

    /// Show this many bytes of data
    #[arg(short = 's', long = "strings", value_name = "N", default_value_t = DATA)]
    strings: usize,
}

impl Effects {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let set = self.recording.open()?;
        let mut history = causes::open(&set)?;
        history.show_raw_times(self.times.raw_time);
        let names = causes::names(&history);
        let event = find::event(&history, &names, &self.event)?;
        let options = effects::Options {
            depth: self.depth,
            width: self.width,
            data: self.strings,
        };
        let mut report = causes::ask(&mut history, |history| {
            effects::report(history, &names, event, &options)
        })?;
        let mut out = Output::new();
        let sites = report.sites();
        if self.json {
            report.learn(&self.source.lines(&history, &sites));
            out.json(&report.head)?;
            for row in &report.rows {
                out.json(row)?;
            }
        } else {
            let draw = |out: &mut Output, source: &Lines| {
                let mut report = report.clone();
                report.learn(source);
                print(out, &report.head, &report.rows, report.left_out)?;
                match report.rows.is_empty() {
                    true => Ok(out.line("no other event of the recording is an effect of it")?),
                    false => Ok(()),
                }
            };
            let source = lines_meanwhile(&mut out, &self.source, &history, &sites, draw)?;
            draw(&mut out, &source)?;
            print_note(&mut out, &source)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print(out: &mut Output, head: &Shown, rows: &[Row], left_out: usize) -> Result<(), Failure> {
    let text = format!("{}  {}  {}", head.name, head.thread, head.text);
    out.line(&out.paint(Style::Bold, &text))?;
    let below = if rows.is_empty() { "" } else { "│" };
    print_source(out, head, below)?;
    print_rows(out, rows, left_out)
}

/// Finds source lines. On a terminal, the answer stands there while replay looks
/// for those that are not known yet, and is drawn again with them.
fn lines_meanwhile(
    out: &mut Output,
    wish: &Wish,
    history: &History,
    sites: &[(EventId, Site)],
    draw: impl Fn(&mut Output, &Lines) -> Result<(), Failure>,
) -> Result<Lines, Failure> {
    let Some(known) = wish.draft(history, sites) else {
        return Ok(wish.lines(history, sites));
    };
    let draft = out.draft(|out| {
        draw(out, &known)?;
        let note = out.paint(Style::Dim, "(replaying, to find the source lines ...)");
        Ok::<(), Failure>(out.line(&note)?)
    })?;
    let lines = wish.lines(history, sites);
    if let Some(draft) = draft {
        out.take_back(draft)?;
    }
    Ok(lines)
}

/// Where an event's call is in the source, below it.
fn print_source(out: &mut Output, shown: &Shown, below: &str) -> Result<(), Failure> {
    if let Some(call) = &shown.source {
        let text = format!("{below:<3}  {}", call.text());
        let text = match out.width() {
            Some(width) => cut(&text, width),
            None => text,
        };
        out.line(&out.paint(Style::Dim, &text))?;
    }
    Ok(())
}

fn print_note(out: &mut Output, source: &Lines) -> Result<(), Failure> {
    match source.note() {
        Some(note) => Ok(out.line(&out.paint(Style::Dim, &note))?),
        None => Ok(()),
    }
}

/// A line of a tree: a row and what is drawn before it, or how many there are
/// that are not shown.
enum Drawn<'r> {
    Row(String, &'r Row),
    LeftOut(String),
}

/// The lines of a tree. `left_out`: how many more there are at its root.
fn draw(rows: &[Row], left_out: usize) -> Vec<Drawn<'_>> {
    let mut lines = Vec::new();
    branches(rows, "", left_out, &mut lines);
    lines
}

/// Draws the rows of one parent, each with what is below it.
fn branches<'r>(rows: &'r [Row], above: &str, left_out: usize, lines: &mut Vec<Drawn<'r>>) {
    let depth = rows.first().map_or(0, |row| row.depth);
    let mut rest = rows;
    while let Some((row, behind)) = rest.split_first() {
        let count = behind.iter().take_while(|row| row.depth > depth).count();
        let (below, next) = behind.split_at(count);
        let is_last = next.is_empty() && left_out == 0;
        let (branch, indent) = match (depth, is_last) {
            // What is no tree.
            (0, _) => ("", ""),
            (_, true) => ("└─ ", "   "),
            (_, false) => ("├─ ", "│  "),
        };
        lines.push(Drawn::Row(format!("{above}{branch}"), row));
        branches(below, &format!("{above}{indent}"), row.left_out, lines);
        rest = next;
    }
    if left_out > 0 {
        lines.push(Drawn::LeftOut(format!("{above}└─ and {left_out} more")));
    }
}

fn print_rows(out: &mut Output, rows: &[Row], left_out: usize) -> Result<(), Failure> {
    let drawn = draw(rows, left_out);
    let name = drawn.iter().map(|line| match line {
        Drawn::Row(branch, row) => branch.chars().count() + row.shown.name.chars().count(),
        Drawn::LeftOut(text) => text.chars().count(),
    });
    let name = name.max().unwrap_or(0);
    let width = |part: fn(&Row) -> usize| rows.iter().map(part).max().unwrap_or(0);
    let thread = width(|row| row.shown.thread.chars().count());
    let text = width(|row| match row.how().is_empty() {
        true => 0,
        false => row.shown.text.chars().count(),
    });
    for line in &drawn {
        let (branch, row) = match line {
            Drawn::Row(branch, row) => (branch, row),
            Drawn::LeftOut(text) => {
                out.line(text)?;
                continue;
            }
        };
        let shown = &row.shown;
        let pad = name - branch.chars().count();
        let mut plain = format!(
            "{branch}{:<pad$}  {:<thread$}  {:<text$}",
            shown.name, shown.thread, shown.text
        );
        plain = plain.trim_end().to_string();
        if let Some(width) = out.width() {
            plain = cut(&plain, width);
        }
        let left = out.width().map_or(usize::MAX, |width| {
            width.saturating_sub(plain.chars().count() + 2)
        });
        let words = row.words();
        let words = if words.is_empty() || left < 8 {
            String::new()
        } else {
            let fill = (name + thread + text + 4).saturating_sub(plain.chars().count());
            format!(
                "{:fill$}  {}",
                "",
                out.paint(Style::Dim, &cut(&words, left.saturating_sub(fill).max(8)))
            )
        };
        let own = Style::Numbered(shown.id.process.0);
        let painted = plain.replacen(&shown.name, &out.paint(own, &shown.name), 1);
        out.line(&format!("{painted}{words}"))?;
        let below = branch.replace("├─", "│ ").replace("└─", "  ");
        print_source(out, shown, &below)?;
    }
    Ok(())
}

fn print_messages(
    out: &mut Output,
    messages: &[Message],
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let skipped = messages.len().saturating_sub(limit);
    let shown = messages.get(skipped..).unwrap_or(&[]);
    if json {
        for message in shown {
            out.json(message)?;
        }
        return Ok(());
    }
    out.line("")?;
    if shown.is_empty() {
        out.line("no message in its past fits the pattern")?;
        return Ok(());
    }
    let count = match skipped {
        0 => format!("{} messages in its past fit the pattern:", messages.len()),
        _ => format!(
            "{} messages in its past fit the pattern; the last {}:",
            messages.len(),
            shown.len()
        ),
    };
    out.line(&count)?;
    let width = |part: fn(&Message) -> usize| shown.iter().map(part).max().unwrap_or(0);
    let from = width(|message| message.from.chars().count());
    let data = width(|message| message.message.chars().count());
    let to = width(|message| message.to.as_ref().map_or(0, |to| to.chars().count()));
    for message in shown {
        let time = crate::output::seconds(message.time_ns);
        let arrived = match (message.ends.1, &message.to, &message.received) {
            (Some(event), Some(thread), Some(received)) => {
                let own = Style::Numbered(event.process.0);
                let numbers = format!("{} -> {received}", message.sent);
                format!(
                    "{}  {}",
                    out.paint(own, &format!("{thread:<to$}")),
                    out.paint(Style::Dim, &numbers)
                )
            }
            _ => "(under way)".to_string(),
        };
        let own = Style::Numbered(message.ends.0.process.0);
        out.line(&format!(
            "{}  {} ── {:<data$} ─> {arrived}",
            out.paint(Style::Dim, &time),
            out.paint(own, &format!("{:<from$}", message.from)),
            message.message,
        ))?;
    }
    Ok(())
}
