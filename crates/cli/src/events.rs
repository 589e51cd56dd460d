//! `mw events`: the events of a recording, one line each.

use std::collections::HashMap;
use std::process::ExitCode;

use protocol::syscall::Type;
use recording::process::thread_number;
use recording::render::{Limits, Renderer};
use recording::{Event, Phase, Process, Recording, Timeline};

use crate::causes;
use crate::failure::Failure;
use crate::output::{Output, Style, date, seconds};
use crate::select::Positional;
use crate::why::link_object;
use ::events::{Matcher, nearest};
use causality::{EventId, History, Kind};

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
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let pattern = self.pattern.as_deref().map(causes::pattern).transpose()?;
        let recording = self.recording.open()?;
        // Names of threads and links are in the index.
        let indexed = !self.no_links || pattern.is_some() || !self.thread.is_empty();
        let history = indexed.then(|| causes::open(&recording)).transpose()?;
        let matcher = match (pattern, &history) {
            (Some(pattern), Some(history)) => {
                causes::check(history, &pattern)?;
                Some(Matcher::new(pattern, history))
            }
            _ => None,
        };
        let links = history.as_ref().filter(|_| !self.no_links).map(Links::new);
        let processes = select_processes(&recording, &self.process)?;
        let filter = Filter {
            threads: threads(&recording, history.as_ref(), &self.thread)?,
            types: types(&self.types)?,
            from: bound(self.from.as_deref(), "--from", &recording, &processes)?,
            to: bound(self.to.as_deref(), "--to", &recording, &processes)?,
        };
        let limits = Limits {
            text: self.strings.unwrap_or(Limits::default().text),
            ..Limits::default()
        };
        let mut renderer = Renderer::new(&recording, limits);
        let mut timeline = Timeline::new(&recording, processes.iter().map(|p| p.number));
        let mut out = Output::new();
        let names = processes.iter().map(|process| process.name.chars().count());
        let columns = Columns {
            event: names.max().unwrap_or(0) + 6,
            wall: self.wall,
        };
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0 && timeline.advance() {
            let Some(event) = timeline.event() else { break };
            if filter.is_over(&event) {
                break;
            }
            renderer.before(&event);
            if filter.takes(&recording, &event, &renderer)
                && matcher
                    .as_ref()
                    .is_none_or(|matcher| matcher.fits(&event, &renderer))
            {
                if self.json {
                    let limit = self.strings.unwrap_or(usize::MAX);
                    let mut object = renderer.json(&event, limit);
                    if let Some(links) = &links {
                        links.add_to(&event, &mut object);
                    }
                    out.line(&object.to_string())?;
                } else {
                    let mut line = columns.line(&recording, &renderer, &event, &out);
                    if let Some(links) = &links {
                        let text = links.text(&event);
                        if !text.is_empty() {
                            line.push_str("  ");
                            line.push_str(&out.paint(Style::Dim, &text));
                        }
                    }
                    out.line(&line)?;
                }
                left -= 1;
            }
            renderer.after(&event);
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
    pub fn line(
        &self,
        recording: &Recording,
        renderer: &Renderer<'_>,
        event: &Event<'_>,
        out: &Output,
    ) -> String {
        let clock = recording.clock();
        let time = if self.wall {
            date(clock.realtime_ns(event.time)).1
        } else {
            format!("{:>11}", seconds(clock.since_start_ns(event.time)))
        };
        let name = renderer.event_name(event.process, event.number);
        let text = renderer.text(event);
        let style = match () {
            _ if text.starts_with("---") => Style::Yellow,
            _ if text.starts_with("+++") => Style::Cyan,
            _ if event.failed() => Style::Red,
            _ => Style::Plain,
        };
        format!(
            "{} {} {:<9} {}",
            out.paint(Style::Dim, &time),
            out.paint(
                Style::Numbered(event.process),
                &format!("{name:<0$}", self.event)
            ),
            recording.thread_name(event.process, event.thread),
            out.paint(style, &text)
        )
    }
}

/// Where a listing begins or ends.
enum Bound {
    /// A time, in ticks.
    Time(u64),
    /// An event, and its time.
    Event {
        process: u32,
        number: u64,
        time: u64,
    },
}

struct Filter {
    threads: Vec<String>,
    types: Vec<Type>,
    from: Option<Bound>,
    to: Option<Bound>,
}

impl Filter {
    fn takes(&self, recording: &Recording, event: &Event<'_>, renderer: &Renderer<'_>) -> bool {
        let after = match self.from {
            None => true,
            Some(Bound::Time(time)) => event.time >= time,
            Some(Bound::Event {
                process, number, ..
            }) if process == event.process => event.number >= number,
            Some(Bound::Event { time, .. }) => event.time >= time,
        };
        let before = match self.to {
            Some(Bound::Event {
                process, number, ..
            }) if process == event.process => event.number <= number,
            _ => true,
        };
        after
            && before
            && self.is_thread(recording, event)
            && (self.types.is_empty() || self.types.contains(&renderer.type_of(event)))
    }

    fn is_thread(&self, recording: &Recording, event: &Event<'_>) -> bool {
        self.threads.is_empty()
            || self
                .threads
                .iter()
                .any(|name| recording.thread_named(event.process, name) == Some(event.thread))
    }

    /// Whether this and all later events are behind the end.
    fn is_over(&self, event: &Event<'_>) -> bool {
        match self.to {
            None => false,
            Some(Bound::Time(time) | Bound::Event { time, .. }) => event.time > time,
        }
    }
}

fn select_processes<'r>(
    recording: &'r Recording,
    wanted: &[String],
) -> Result<Vec<&'r Process>, Failure> {
    let all = recording.processes();
    if wanted.is_empty() {
        return Ok(all.iter().collect());
    }
    for name in wanted {
        if !all.iter().any(|p| p.name == *name || p.program == *name) {
            return Err(causes::unknown_process(recording, name));
        }
    }
    let chosen = all
        .iter()
        .filter(|p| wanted.iter().any(|w| p.name == *w || p.program == *w));
    Ok(chosen.collect())
}

fn threads(
    recording: &Recording,
    history: Option<&History>,
    names: &[String],
) -> Result<Vec<String>, Failure> {
    let own: Vec<String> = history.map_or(Vec::new(), |history| {
        let all = history.thread_names().into_iter();
        all.filter_map(|(place, thread, _)| {
            Some(recording.thread_name(history.process(place)?.number, thread))
        })
        .collect()
    });
    let given = || {
        let all = recording.names().threads.values();
        all.flat_map(|threads| threads.values().cloned())
    };
    for name in names {
        if thread_number(name).is_none() && !own.contains(name) && !given().any(|n| n == *name) {
            let failure = Failure::new(format!("`{name}` is not a thread"));
            return Err(match nearest(name, own.iter().map(String::as_str)) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("threads are called main-0, thread-1, thread-2, ..."),
            });
        }
    }
    Ok(names.to_vec())
}

/// The links of events, for a list of them.
struct Links<'h> {
    history: &'h History,
    places: HashMap<u32, u32>,
}

impl<'h> Links<'h> {
    fn new(history: &'h History) -> Links<'h> {
        let processes = history.recording().processes().iter();
        let places = processes.zip(0u32..).map(|(p, place)| (p.number, place));
        Links {
            history,
            places: places.collect(),
        }
    }

    fn id(&self, event: &Event<'_>) -> EventId {
        let place = self.places.get(&event.process).copied();
        EventId::new(place.unwrap_or(u32::MAX), event.number)
    }

    /// Whether what an event received came from outside the program, or what
    /// it sent went there.
    fn outside(&self, id: EventId) -> (bool, bool) {
        let mut found = (false, false);
        for used in self.history.uses(id) {
            let Some(channel) = self.history.channel(used.channel) else {
                continue;
            };
            found.0 |= used.receives && channel.is_from_outside();
            found.1 |= !used.receives && channel.is_to_outside();
        }
        found
    }

    /// `<- cause`, `-> effect`, a few of them.
    fn text(&self, event: &Event<'_>) -> String {
        const SHOWN: usize = 3;
        let id = self.id(event);
        let mut words = Vec::new();
        let causes = self.history.causes(id);
        let effects = self.history.effects(id);
        let name = |event| causes::name(self.history, event);
        words.extend(
            causes
                .iter()
                .take(SHOWN)
                .map(|link| format!("<- {}", name(link.cause))),
        );
        if causes.len() > SHOWN {
            words.push(format!("<- {} more", causes.len() - SHOWN));
        }
        let (from, to) = self.outside(id);
        if from && event.result.is_some() && !causes.iter().any(|l| l.kind == Kind::Message) {
            words.push("<- outside".to_string());
        }
        words.extend(
            effects
                .iter()
                .take(SHOWN)
                .map(|link| format!("-> {}", name(link.effect))),
        );
        if effects.len() > SHOWN {
            words.push(format!("-> {} more", effects.len() - SHOWN));
        }
        if to && event.phase != Phase::End {
            words.push("-> outside".to_string());
        }
        words.join(" ")
    }

    fn add_to(&self, event: &Event<'_>, object: &mut serde_json::Value) {
        let Some(object) = object.as_object_mut() else {
            return;
        };
        let id = self.id(event);
        let list = |links: Vec<causality::Link>| -> serde_json::Value {
            let links = links.iter().map(|link| link_object(self.history, link));
            links.collect()
        };
        let uses = self.history.uses(id);
        if let Some(used) = uses.first() {
            object.insert("channel".to_string(), format!("c{}", used.channel).into());
        }
        let (from, to) = self.outside(id);
        if from || to {
            object.insert("outside".to_string(), true.into());
        }
        object.insert("causes".to_string(), list(self.history.causes(id)));
        object.insert("effects".to_string(), list(self.history.effects(id)));
    }
}

fn types(names: &[String]) -> Result<Vec<Type>, Failure> {
    let known = || Type::ALL.iter().map(|kind| kind.name());
    let parse = |name: &String| {
        Type::from_name(name).ok_or_else(|| {
            let failure = Failure::new(format!("there is no type of event `{name}`"));
            match nearest(name, known()) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => {
                    let known: Vec<_> = known().collect();
                    failure.hint(format!("types are {}", known.join(", ")))
                }
            }
        })
    };
    names.iter().map(parse).collect()
}

/// Reads a place to begin or end at: NAME:NUMBER, NUMBER if only one process
/// is shown, or a time since the start.
fn bound(
    text: Option<&str>,
    flag: &str,
    recording: &Recording,
    processes: &[&Process],
) -> Result<Option<Bound>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    let malformed = || {
        Failure::new(format!("`{flag} {text}` is neither an event nor a time")).hint(
            "write an event as NAME:NUMBER (redis-server-0:1042), a time as 1.5s, 20ms or 30us",
        )
    };
    if let Some((name, number)) = text.rsplit_once(':') {
        let number = number.parse().map_err(|_| malformed())?;
        let process = recording
            .process_named(name)
            .ok_or_else(|| causes::unknown_process(recording, name))?;
        return event_bound(recording, process, number).map(Some);
    }
    if let Ok(number) = text.parse::<u64>() {
        let [process] = processes else {
            return Err(Failure::new(format!(
                "`{flag} {text}` does not say which process it counts the events of"
            ))
            .hint("write NAME:NUMBER, or choose one process with --process"));
        };
        return event_bound(recording, process, number).map(Some);
    }
    let ns = duration(text).ok_or_else(malformed)?;
    let clock = recording.clock();
    let ticks = u128::from(ns) * u128::from(clock.ticks_per_second) / 1_000_000_000;
    let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
    Ok(Some(Bound::Time(clock.ticks.saturating_add(ticks))))
}

fn event_bound(recording: &Recording, process: &Process, number: u64) -> Result<Bound, Failure> {
    let log = recording.log_at(process.number, number);
    match log.as_ref().and_then(|log| log.event()) {
        Some(event) => Ok(Bound::Event {
            process: process.number,
            number,
            time: event.time,
        }),
        None => {
            let life = recording.life(process);
            let failure = Failure::new(format!("{} has no event {number}", process.name));
            Err(match life.events {
                0 => failure.hint("it has no events at all"),
                events => failure.hint(format!(
                    "its events are {} to {}",
                    process.first_event,
                    process.first_event.saturating_add(events - 1)
                )),
            })
        }
    }
}

/// `1.5s`, `20ms`, `30us`, `7ns`, `2m`, in nanoseconds.
fn duration(text: &str) -> Option<u64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        _ => return None,
    };
    let value: f64 = number.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value * scale).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(duration("1.5s"), Some(1_500_000_000));
        assert_eq!(duration("20ms"), Some(20_000_000));
        assert_eq!(duration("0.5us"), Some(500));
        assert_eq!(duration("2m"), Some(120_000_000_000));
        for bad in ["", "s", "1", "1x", "-1s", "1.2.3s", "infs", "nans"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
