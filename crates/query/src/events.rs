//! The events of a recording, one by one.

use causality::{EventId, History, Kind};
use events::{Matcher, Pattern, nearest};
use protocol::id::{EventNo, ProcessId, ProcessIx};
use protocol::syscall::Type;
use recording::process::thread_number;
use recording::render::{Details, Limits, Renderer};
use recording::{Event, Phase, Recording, Set};
use serde::Serialize;

use crate::link::Link;
use crate::walk::{Step, Walk};
use crate::{Error, Names, find, names};

/// An event with all that is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Full {
    /// What the log says.
    #[serde(flatten)]
    pub details: Details,
    /// How it is linked to others, where that was asked for.
    #[serde(flatten)]
    pub links: Option<Links>,
}

/// How an event is linked to others.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Links {
    /// The channel that it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// It came from or went to somebody outside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// Links that lead to it.
    pub causes: Vec<Link>,
    /// Links from it to others.
    pub effects: Vec<Link>,
    /// What it received came from outside, and is no message of the program.
    #[serde(skip)]
    pub came_from_outside: bool,
    /// What it sent went outside.
    #[serde(skip)]
    pub went_outside: bool,
}

impl Links {
    /// The links of an event.
    pub fn of(history: &History, id: EventId, event: &Event<'_>) -> Links {
        let uses = history.uses(id);
        let (mut from, mut to) = (false, false);
        for used in &uses {
            if let Some(channel) = history.channel(used.channel) {
                from |= used.receives && channel.is_from_outside();
                to |= !used.receives && channel.is_to_outside();
            }
        }
        let causes = history.causes(id);
        let effects = history.effects(id);
        let received = causes.iter().any(|link| link.kind == Kind::Message);
        let named = |links: Vec<causality::Link>| -> Vec<Link> {
            links.iter().map(|link| Link::new(history, link)).collect()
        };
        Links {
            channel: uses.first().map(|used| names::channel(used.channel)),
            outside: from || to,
            causes: named(causes),
            effects: named(effects),
            came_from_outside: from && event.result.is_some() && !received,
            went_outside: to && event.phase != Phase::End,
        }
    }

    /// `<- cause`, `-> effect`, a few of them.
    pub fn words(&self) -> String {
        const SHOWN: usize = 3;
        let mut words = Vec::new();
        let causes = self.causes.iter().take(SHOWN);
        words.extend(causes.map(|link| format!("<- {}", link.cause)));
        if self.causes.len() > SHOWN {
            words.push(format!("<- {} more", self.causes.len() - SHOWN));
        }
        if self.came_from_outside {
            words.push("<- outside".to_string());
        }
        let effects = self.effects.iter().take(SHOWN);
        words.extend(effects.map(|link| format!("-> {}", link.effect)));
        if self.effects.len() > SHOWN {
            words.push(format!("-> {} more", self.effects.len() - SHOWN));
        }
        if self.went_outside {
            words.push("-> outside".to_string());
        }
        words.join(" ")
    }
}

/// An event in one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its name.
    pub event: String,
    /// What its process is told from others by: the same for all of its events.
    pub colour: u32,
    /// Name of its thread.
    pub thread: String,
    /// When, since the recording began.
    pub time_ns: u64,
    /// When, since 1970.
    pub realtime_ns: u64,
    /// What it is, in the manner of strace.
    pub text: String,
    /// What kind of line it is.
    pub kind: LineKind,
    /// How it is linked to others, where that was asked for.
    pub links: Option<Links>,
}

/// What kind of event a line is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    /// A call that did not fail.
    Call,
    /// A call that failed.
    Failed,
    /// A signal, or an interruption.
    Signal,
    /// A process or thread begins.
    Begin,
    /// A higher event, which rules make of others.
    Emitted,
}

impl Line {
    /// An event in one line, with the times of its member's clock. The renderer
    /// must have been shown the events before it; `names` are its member's.
    pub fn new(
        recording: &Recording,
        names: &Names,
        renderer: &Renderer<'_>,
        event: &Event<'_>,
    ) -> Line {
        use protocol::record::kind;
        let clock = recording.clock();
        Line {
            event: renderer.event_name(event.process, event.number),
            colour: event.process.0,
            thread: names.thread(event.process, event.thread),
            time_ns: clock.since_start_ns(event.time),
            realtime_ns: clock.realtime_ns(event.time),
            text: renderer.text(event),
            kind: match event.kind {
                kind::SIGNAL | kind::PREEMPT => LineKind::Signal,
                kind::THREAD_START | kind::BEGIN => LineKind::Begin,
                _ if event.failed() => LineKind::Failed,
                _ => LineKind::Call,
            },
            links: None,
        }
    }
}

/// The events of a process up to this one, the last so many.
pub fn lines_before(set: &Set, process: ProcessId, event: EventNo, count: usize) -> Vec<Line> {
    let Some(recording) = set.member(process.member) else {
        return Vec::new();
    };
    let names = Names::given(recording);
    let mut renderer =
        Renderer::new(recording, &names, Limits::default()).among(set, process.member);
    let mut lines = std::collections::VecDeque::new();
    let mut log = recording.log(process.number);
    while log.advance() {
        let Some(now) = log.event().filter(|now| now.number <= event) else {
            break;
        };
        renderer.before(&now);
        lines.push_back(Line::new(recording, &names, &renderer, &now));
        if lines.len() > count {
            lines.pop_front();
        }
        renderer.after(&now);
    }
    lines.into()
}

/// Which events are listed.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of these processes: names, or programs; all, if empty.
    pub processes: Vec<String>,
    /// Of these threads; all, if empty.
    pub threads: Vec<String>,
    /// Of these types; all, if empty.
    pub types: Vec<Type>,
    /// That fit this pattern.
    pub pattern: Option<Pattern>,
    /// From there on.
    pub from: Option<Moment>,
    /// Up to there.
    pub to: Option<Moment>,
}

/// Where a list begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A time, since the recording began.
    Time(u64),
    /// An event.
    Event {
        /// Its process.
        process: ProcessId,
        /// Its number there.
        number: EventNo,
        /// When it was, since the recording began.
        time_ns: u64,
    },
}

impl Moment {
    /// Reads NAME:NUMBER, NUMBER if only one process is listed, or a time
    /// since the start. `option` is what it is given for, for who is told that
    /// it is wrong.
    pub fn read(
        source: Source<'_>,
        places: &[ProcessIx],
        text: &str,
        option: &'static str,
    ) -> Result<Moment, Error> {
        let malformed = || Error::NotAMoment {
            option,
            text: text.to_string(),
        };
        if let Some((name, number)) = text.rsplit_once(':') {
            let number = number.parse().map_err(|_| malformed())?;
            let number = EventNo(number);
            return Moment::event(source, find::process(source.set, name)?, number);
        }
        if let Ok(number) = text.parse::<u64>() {
            let only = match places {
                [place] => source.set.id(*place),
                _ => None,
            };
            let Some(process) = only else {
                return Err(Error::WhoseEvent {
                    option,
                    text: text.to_string(),
                });
            };
            return Moment::event(source, process, EventNo(number));
        }
        duration(text).map(Moment::Time).ok_or_else(malformed)
    }

    fn event(source: Source<'_>, process: ProcessId, number: EventNo) -> Result<Moment, Error> {
        let place = source.set.place(process);
        let log = place.and_then(|place| source.set.log_at(place, number));
        match log.as_ref().and_then(|log| log.event()) {
            Some(event) => Ok(Moment::Event {
                process,
                number,
                time_ns: source.time_ns(process, &event),
            }),
            None => {
                let found = place.and_then(|place| source.set.at(place));
                let span = found.and_then(|(recording, own)| {
                    let more = recording.life(own).events.checked_sub(1)?;
                    Some((own.first_event, own.first_event.plus(more)))
                });
                Err(Error::NoEvent {
                    process: place.map_or(String::new(), |p| source.set.process_name(p)),
                    number,
                    span,
                })
            }
        }
    }
}

/// The type of this name.
pub fn type_named(name: &str) -> Result<Type, Error> {
    Type::from_name(name).ok_or_else(|| Error::NoType {
        name: name.to_string(),
    })
}

/// Whether these can be names of threads.
pub fn check_threads(names: &Names, wanted: &[String]) -> Result<(), Error> {
    for name in wanted {
        if thread_number(name).is_none() && !names.has(name) {
            return Err(Error::NotAThread {
                name: name.clone(),
                near: nearest(name, names.all()).map(str::to_string),
            });
        }
    }
    Ok(())
}

impl Filter {
    fn takes(&self, names: &Names, at: &At, step: &Step<'_>) -> bool {
        let event = step.event;
        let after = match self.from {
            None => true,
            Some(Moment::Event {
                process, number, ..
            }) if process == at.process => event.number >= number,
            Some(Moment::Time(time_ns) | Moment::Event { time_ns, .. }) => at.time_ns >= time_ns,
        };
        let before = match self.to {
            Some(Moment::Event {
                process, number, ..
            }) if process == at.process => event.number <= number,
            _ => true,
        };
        let is_thread =
            |name: &String| names.thread_named(event.process, name) == Some(event.thread);
        after
            && before
            && (self.threads.is_empty() || self.threads.iter().any(is_thread))
            && (self.types.is_empty() || self.types.contains(&step.renderer.type_of(event)))
    }

    /// Whether this and all later events are behind the end.
    fn is_over(&self, at: &At) -> bool {
        match self.to {
            None => false,
            Some(Moment::Time(time_ns) | Moment::Event { time_ns, .. }) => at.time_ns > time_ns,
        }
    }
}

/// Whose event it is, and when it was.
struct At {
    process: ProcessId,
    time_ns: u64,
}

/// An event of a list, where the list has come to it.
pub struct Listed<'l> {
    source: Source<'l>,
    recording: &'l Recording,
    /// Of its member.
    names: &'l Names,
    process: ProcessId,
    /// The event as it was logged.
    pub event: &'l Event<'l>,
    /// What shows it.
    pub renderer: &'l Renderer<'l>,
}

impl Listed<'_> {
    /// In one line.
    pub fn line(&self) -> Line {
        let own = Line::new(self.recording, self.names, self.renderer, self.event);
        let place = self.source.set.place(self.process);
        match (self.source.history, place) {
            (Some(history), Some(place)) if self.source.set.is_joined() => Line {
                links: self.links(),
                colour: place.0,
                time_ns: history.shown_ns(place, self.event.time),
                realtime_ns: history.shown_date_ns(place, self.event.time),
                ..own
            },
            _ => Line {
                links: self.links(),
                ..own
            },
        }
    }

    /// With all that is known of it, and so many bytes of data.
    pub fn full(&self, limit: usize) -> Full {
        let mut details = self.renderer.details(self.event, limit);
        let place = self.source.set.place(self.process);
        if let (Some(history), Some(place)) = (self.source.history, place)
            && self.source.set.is_joined()
        {
            details.time_ns = history.shown_ns(place, self.event.time);
        }
        Full {
            details,
            links: self.links(),
        }
    }

    /// Which event it is.
    pub fn id(&self) -> Option<EventId> {
        let place = self.source.set.place(self.process)?;
        Some(EventId::new(place, self.event.number))
    }

    fn links(&self) -> Option<Links> {
        let history = self.source.history.filter(|_| self.source.links)?;
        let id = self.id()?;
        Some(Links::of(history, id, self.event))
    }
}

/// What a list is made from.
#[derive(Clone, Copy)]
pub struct Source<'l> {
    /// The recordings.
    pub set: &'l Set,
    /// What their threads are called.
    pub names: &'l Names,
    /// Their causes, which patterns need, and several members.
    pub history: Option<&'l History>,
    /// Whether links are wanted.
    pub links: bool,
}

impl Source<'_> {
    /// When an event was, since the recording began.
    fn time_ns(&self, process: ProcessId, event: &Event<'_>) -> u64 {
        match (self.history, self.set.place(process)) {
            (Some(history), Some(place)) if self.set.is_joined() => {
                u64::try_from(history.time_ns(place, event.time)).unwrap_or(0)
            }
            _ => {
                let own = self.set.member(process.member);
                own.map_or(0, |own| own.clock().since_start_ns(event.time))
            }
        }
    }
}

/// Calls `found` with each event that is listed, in order of time, until it
/// says no or fails.
pub fn each<E: From<Error>>(
    source: Source<'_>,
    filter: &Filter,
    limits: Limits,
    mut found: impl FnMut(&Listed<'_>) -> Result<bool, E>,
) -> Result<(), E> {
    let Source {
        set,
        names,
        history,
        ..
    } = source;
    let places = find::places(set, &filter.processes)?;
    let matcher = match (&filter.pattern, history) {
        (Some(pattern), Some(history)) => Some(Matcher::new(pattern.clone(), history, names)),
        _ => None,
    };
    let own: Vec<Names> = (0u16..)
        .take(set.members().len())
        .map(|member| names.member(member))
        .collect();
    let walk = Walk::new(set, history, names, &places, limits);
    walk.each(|step| {
        let (member, event) = (step.member, step.event);
        let process = event.process.of_member(member);
        let at = At {
            process,
            time_ns: match (filter.from, filter.to) {
                // Nobody asks.
                (None, None) => 0,
                _ => source.time_ns(process, event),
            },
        };
        if filter.is_over(&at) {
            return Ok(false);
        }
        let (Some(recording), Some(names)) = (set.member(member), own.get(usize::from(member)))
        else {
            return Ok(true);
        };
        let fits = || {
            matcher.as_ref().is_none_or(|matcher| {
                let id = history.and_then(|history| history.event_of(member, event));
                id.is_some_and(|id| matcher.fits_as(id, event, step.renderer))
            })
        };
        if !filter.takes(names, &at, step) || !fits() {
            return Ok(true);
        }
        found(&Listed {
            source,
            recording,
            names,
            process,
            event,
            renderer: step.renderer,
        })
    })
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
