//! `mw events`: the events of a recording, one line each.

use std::path::PathBuf;
use std::process::ExitCode;

use query::events::{Filter, Line, LineKind, Moment, Source, check_threads, each, type_named};
use query::{Names, find};
use recording::render::Limits;

use crate::causes;
use crate::failure::Failure;
use crate::higher;
use crate::output::{Output, Style, date, seconds};
use crate::select::{Positional, Times};

/// Show the events of a recording, in order of time, one line each.
#[derive(clap::Args)]
pub struct Cmd {
    #[command(flatten)]
    recording: Positional,

    /// Only events of these processes: names, or programs for all processes
    /// that run them
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    process: Vec<String>,

    /// Only events of these threads
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    thread: Vec<String>,

    /// Only events of these types (send, recv, connect, accept, open, ...)
    #[arg(long = "type", value_name = "TYPE,...", value_delimiter = ',')]
    types: Vec<String>,

    /// Only events that fit this pattern, like `send and bytes ~ "GET"` (see
    /// docs/patterns.md)
    #[arg(long = "where", short = 'w', value_name = "PATTERN")]
    pattern: Option<String>,

    /// Show the higher events, too, that the recognizers and verifiers in this file
    /// emit; --where may name them then, and all else that the file defines (see
    /// docs/conditions.md)
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// Do not show the events' links (which takes an index of the recording)
    #[arg(long)]
    no_links: bool,

    /// Begin at this event (NAME:NUMBER) or time (1.5s, 20ms)
    #[arg(long, value_name = "WHERE")]
    from: Option<String>,

    /// End with this event (NAME:NUMBER) or time (1.5s, 20ms)
    #[arg(long, value_name = "WHERE")]
    to: Option<String>,

    /// One JSON object a line
    #[arg(long)]
    json: bool,

    /// Show this many bytes of data [default: 32; all with --json]
    #[arg(short = 's', long = "strings", value_name = "N")]
    strings: Option<usize>,

    /// Stop after this many events
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Show the time of day (UTC) instead of the time since the start
    #[arg(long)]
    wall: bool,

    #[command(flatten)]
    times: Times,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        // With rules, what is asked for is in their language.
        let pattern = self.pattern.as_deref().filter(|_| self.rules.is_none());
        let pattern = pattern.map(find::pattern).transpose()?;
        let set = self.recording.open()?;
        // Names of threads, links, and how clocks stand to each other are in the index.
        let indexed = !self.no_links
            || pattern.is_some()
            || self.rules.is_some()
            || !self.thread.is_empty()
            || set.is_joined();
        let mut history = indexed.then(|| causes::open(&set)).transpose()?;
        if let Some(history) = &mut history {
            history.show_raw_times(self.times.raw_time);
        }
        let names = match &history {
            Some(history) => causes::names(history),
            None => Names::of_members(set.members().map(|own| Names::given(own))),
        };
        if let (Some(pattern), Some(history)) = (&pattern, &history) {
            find::check(history, &names, pattern)?;
        }
        let higher = match (&self.rules, &history) {
            (Some(file), Some(history)) => {
                higher::All::find(history, &names, file, self.pattern.as_deref())?
            }
            _ => higher::All::default(),
        };
        let places = find::places(&set, &self.process)?;
        check_threads(&names, &self.thread)?;
        let source = Source {
            set: &set,
            names: &names,
            history: history.as_ref(),
            links: !self.no_links,
        };
        let moment = |text: &Option<String>, option: &'static str| {
            let read = |text: &String| Moment::read(source, &places, text, option);
            text.as_ref().map(read).transpose()
        };
        let filter = Filter {
            types: self
                .types
                .iter()
                .map(|name| type_named(name))
                .collect::<Result<_, _>>()?,
            from: moment(&self.from, "--from")?,
            to: moment(&self.to, "--to")?,
            processes: self.process.clone(),
            threads: self.thread.clone(),
            pattern,
        };
        let limits = Limits {
            text: self.strings.unwrap_or(Limits::default().text),
            ..Limits::default()
        };
        let mut out = Output::new();
        let widths = places.iter().map(|p| set.process_name(*p).chars().count());
        let columns = Columns {
            event: widths.max().unwrap_or(0) + 6,
            wall: self.wall,
        };
        let mut left = self.limit.unwrap_or(u64::MAX);
        if left > 0 {
            each(source, &filter, limits, |listed| {
                let id = listed.id();
                if id.is_some_and(|id| !higher.takes(id)) {
                    return Ok::<bool, Failure>(true);
                }
                if self.json {
                    out.json(&listed.full(self.strings.unwrap_or(usize::MAX)))?;
                } else {
                    out.line(&columns.line(&listed.line(), &out))?;
                }
                for own in id.map_or(&[][..], |id| higher.at(id)) {
                    let line = listed.line();
                    if self.json {
                        let name = line.event.rsplit_once(':').map_or("", |(name, _)| name);
                        out.json(&own.object(&line.event, name, &line.thread, line.time_ns))?;
                    } else {
                        let line = Line {
                            text: own.words(),
                            kind: LineKind::Emitted,
                            links: None,
                            ..line
                        };
                        let text = columns.line(&line, &out);
                        let links = match self.no_links {
                            true => String::new(),
                            false => out.paint(Style::Dim, &own.links()),
                        };
                        out.line(format!("{text}  {links}").trim_end())?;
                    }
                }
                left -= 1;
                Ok(left > 0)
            })?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// How a line of the listing is laid out.
pub struct Columns {
    /// Width of an event's name.
    pub event: usize,
    /// The time of day instead of the time since the start.
    pub wall: bool,
}

impl Columns {
    pub fn line(&self, line: &Line, out: &Output) -> String {
        let time = match self.wall {
            true => date(line.realtime_ns).1,
            false => format!("{:>11}", seconds(line.time_ns)),
        };
        let style = match line.kind {
            LineKind::Signal => Style::Yellow,
            LineKind::Begin => Style::Cyan,
            LineKind::Failed => Style::Red,
            LineKind::Call => Style::Plain,
            LineKind::Emitted => Style::Bold,
        };
        let mut text = format!(
            "{} {} {:<9} {}",
            out.paint(Style::Dim, &time),
            out.paint(
                Style::Numbered(line.colour),
                &format!("{:<1$}", line.event, self.event)
            ),
            line.thread,
            out.paint(style, &line.text)
        );
        let links = line.links.as_ref().map(|links| links.words());
        if let Some(links) = links.filter(|links| !links.is_empty()) {
            text.push_str("  ");
            text.push_str(&out.paint(Style::Dim, &links));
        }
        text
    }
}
