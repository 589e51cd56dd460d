//! Finding what a person means: events, processes, threads.

use std::collections::BTreeSet;

use causality::{EventId, History};
use events::{Condition, Field, Matcher, Operator, Pattern, Value, nearest};
use protocol::id::{EventNo, ProcessId};
use recording::render::{Limits, Renderer};
use recording::{Event, Process, Recording, Timeline};

use crate::{Error, Names};

/// Reads a pattern.
pub fn pattern(text: &str) -> Result<Pattern, Error> {
    events::parse(text).map_err(|error| Error::Pattern {
        text: text.to_string(),
        error,
    })
}

/// Whether everything that a pattern names is there: who asks for what is not
/// would get no answer, and believe it.
pub fn check(history: &History, names: &Names, pattern: &Pattern) -> Result<(), Error> {
    let condition = match pattern {
        Pattern::And(a, b) | Pattern::Or(a, b) => {
            check(history, names, a)?;
            return check(history, names, b);
        }
        Pattern::Not(inner) => return check(history, names, inner),
        Pattern::Is(condition) => condition,
    };
    let Condition::Field(field, Operator::Equal | Operator::Unequal, Value::Text(text)) = condition
    else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(text);
    let recording = history.recording();
    let literal = !text.contains(['*', '?']);
    match field {
        Field::Process | Field::Peer if literal => {
            let mut processes = recording.processes().iter();
            let known = recording.process_named(&text).is_some()
                || processes.any(|process| process.program == text);
            if !known {
                return Err(Error::no_process(recording, &text));
            }
        }
        Field::Thread if literal => {
            let all = all_threads(history, names);
            if !all.contains(&*text) {
                let near = nearest(&text, all.iter().map(String::as_str));
                return Err(Error::NoThread {
                    name: text.into_owned(),
                    near: near.map(str::to_string),
                });
            }
        }
        Field::Channel => {
            let number = text.strip_prefix('c').and_then(|n| n.parse::<u32>().ok());
            let count = history.channel_count();
            if number.is_some_and(|number| number >= count) {
                return Err(Error::NoChannel {
                    name: text.into_owned(),
                    count,
                });
            }
        }
        _ => {}
    }
    Ok(())
}

fn all_threads(history: &History, names: &Names) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (place, process) in history.processes() {
        let threads = 0..history.thread_count(place);
        all.extend(threads.map(|thread| names.thread(process.number, thread)));
    }
    all
}

/// The event that is meant: NAME:NUMBER, or the last one that fits a pattern.
pub fn event(history: &History, names: &Names, text: &str) -> Result<EventId, Error> {
    let recording = history.recording();
    if let Some((name, number)) = text.rsplit_once(':')
        && !name.contains(char::is_whitespace)
        && !name.contains(['=', '~', '"', '/'])
    {
        let process = process(recording, name)?;
        let number: u64 = number.parse().map_err(|_| Error::NotANumber {
            text: text.to_string(),
            number: number.to_string(),
        })?;
        return event_of(history, process, EventNo(number));
    }
    if recording.process_named(text).is_some() {
        return Err(Error::Process {
            name: text.to_string(),
        });
    }
    if let Some(near) = looks_like_a_name(text)
        .then(|| nearest(text, recording.processes().iter().map(|p| p.name.as_str())))
        .flatten()
    {
        return Err(Error::Neither {
            text: text.to_string(),
            near: near.to_string(),
        });
    }
    let pattern = pattern(text)?;
    check(history, names, &pattern)?;
    last_match(history, names, pattern).ok_or_else(|| Error::NothingFits {
        text: text.to_string(),
    })
}

/// Event `number` of a process, if there is one.
pub fn event_of(history: &History, process: &Process, number: EventNo) -> Result<EventId, Error> {
    let place = history.index_of(ProcessId::of_first(process.number));
    let place = place.filter(|place| history.thread_count(*place) > 0);
    let span = place.map(|place| history.span(place));
    match (place, span) {
        (Some(place), Some((first, last))) if (first..=last).contains(&number) => {
            Ok(EventId::new(place, number))
        }
        _ => Err(Error::NoEvent {
            process: process.name.clone(),
            number: number.0,
            span: span.map(|(first, last)| (first.0, last.0)),
        }),
    }
}

/// Whether a word is more like the name of a process than like a pattern.
fn looks_like_a_name(text: &str) -> bool {
    recording::names::is_name(text) && events::parse(text).is_err()
}

/// The process of this name.
pub fn process<'r>(recording: &'r Recording, name: &str) -> Result<&'r Process, Error> {
    recording
        .process_named(name)
        .ok_or_else(|| Error::no_process(recording, name))
}

/// The processes of these names, or that run programs of these names; all, if
/// there are no names.
pub fn processes<'r>(
    recording: &'r Recording,
    wanted: &[String],
) -> Result<Vec<&'r Process>, Error> {
    let all = recording.processes();
    let is = |process: &Process, name: &String| process.name == *name || process.program == *name;
    for name in wanted {
        if !all.iter().any(|process| is(process, name)) {
            return Err(Error::no_process(recording, name));
        }
    }
    let chosen = all
        .iter()
        .filter(|process| wanted.is_empty() || wanted.iter().any(|name| is(process, name)));
    Ok(chosen.collect())
}

/// The last event that fits a pattern.
fn last_match(history: &History, names: &Names, pattern: Pattern) -> Option<EventId> {
    let mut last = None;
    each_match(history, names, pattern, |id, _| {
        last = Some(id);
        true
    });
    last
}

/// Calls `found` with each event that fits a pattern, in order of time, until
/// it says no.
pub fn each_match(
    history: &History,
    names: &Names,
    pattern: Pattern,
    mut found: impl FnMut(EventId, &Event<'_>) -> bool,
) {
    let recording = history.recording();
    let matcher = Matcher::new(pattern, history, names);
    let mut renderer = Renderer::new(recording, names, Limits::default());
    let mut timeline = Timeline::new(recording, recording.processes().iter().map(|p| p.number));
    while timeline.advance() {
        let Some(event) = timeline.event() else { break };
        renderer.before(&event);
        if let Some(id) = history.event_id(&event)
            && matcher.fits(&event, &renderer)
            && !found(id, &event)
        {
            break;
        }
        renderer.after(&event);
    }
}
