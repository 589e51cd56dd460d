//! Finding what a person means: events, processes, threads.

use std::collections::BTreeSet;

use causality::{EventId, History};
use events::{Condition, Field, Matcher, Operator, Pattern, Value, nearest};
use protocol::id::{EventNo, ProcessId, ProcessIx};
use recording::{Event, Process, Recording, Timeline};

use crate::{Error, Names, shown};

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
    let set = history.set();
    let literal = !text.contains(['*', '?']);
    match field {
        Field::Process | Field::Peer if literal => {
            let known = set.process_named(&text).is_some()
                || history
                    .processes()
                    .any(|(_, process)| process.program == text || process.name == text);
            if !known {
                return Err(Error::no_process_in(history, &text));
            }
        }
        Field::Host if literal && set.named(&text).is_none() => {
            let hosts = (0..).map_while(|number| set.name(number));
            return Err(Error::NoHost {
                name: text.into_owned(),
                known: hosts.map(str::to_string).collect(),
            });
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
        let names = names.member(history.set().member_of(place).unwrap_or(0));
        all.extend(threads.map(|thread| names.thread(process.number, thread)));
    }
    all
}

/// The event that is meant: NAME:NUMBER, or the last one that fits a pattern.
pub fn event(history: &History, names: &Names, text: &str) -> Result<EventId, Error> {
    let set = history.set();
    if let Some((name, number)) = text.rsplit_once(':')
        && !name.contains(char::is_whitespace)
        && !name.contains(['=', '~', '"', '/'])
    {
        let place = set.process_named(name);
        let place = place.ok_or_else(|| Error::no_process_in(history, name))?;
        let number: u64 = number.parse().map_err(|_| Error::NotANumber {
            text: text.to_string(),
            number: number.to_string(),
        })?;
        return event_at(history, place, EventNo(number));
    }
    if set.process_named(text).is_some() {
        return Err(Error::Process {
            name: text.to_string(),
        });
    }
    if let Some(near) = looks_like_a_name(text)
        .then(|| nearest(text, history.processes().map(|(_, p)| p.name.as_str())))
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
    match history.index_of(ProcessId::of_first(process.number)) {
        Some(place) => event_at(history, place, number),
        None => Err(Error::NoEvent {
            process: process.name.clone(),
            number: number.0,
            span: None,
        }),
    }
}

/// Event `number` of the process at a place, if there is one.
fn event_at(history: &History, place: ProcessIx, number: EventNo) -> Result<EventId, Error> {
    let span = (history.thread_count(place) > 0).then(|| history.span(place));
    match span {
        Some((first, last)) if (first..=last).contains(&number) => Ok(EventId::new(place, number)),
        _ => Err(Error::NoEvent {
            process: crate::names::process(history, place),
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

/// The places of the processes of these names, or that run programs of these
/// names; all, if there are no names.
pub fn places(history: &History, wanted: &[String]) -> Result<Vec<ProcessIx>, Error> {
    let set = history.set();
    let is = |(place, process): &(ProcessIx, &Process), name: &String| {
        process.name == *name || process.program == *name || set.process_named(name) == Some(*place)
    };
    for name in wanted {
        if !history.processes().any(|found| is(&found, name)) {
            return Err(Error::no_process_in(history, name));
        }
    }
    let chosen = history
        .processes()
        .filter(|found| wanted.is_empty() || wanted.iter().any(|name| is(found, name)));
    Ok(chosen.map(|(place, _)| place).collect())
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
    let matcher = Matcher::new(pattern, history, names);
    let mut renderers = shown::renderers(history, names);
    // Each member's events are in order of its own clock; of several, the one
    // is next that is the earliest by the clocks that were fitted.
    let set = history.set();
    let mut timelines: Vec<Timeline<'_>> = set.members().map(|own| begun(own)).collect();
    loop {
        let member = match timelines.as_slice() {
            [_] => 0,
            all => {
                let standing = all.iter().zip(0u16..).filter_map(|(timeline, member)| {
                    let event = timeline.event()?;
                    let id = history.event_of(member, &event)?;
                    Some((history.time_ns(id.process, event.time), member))
                });
                match standing.min() {
                    Some((_, member)) => member,
                    None => break,
                }
            }
        };
        let at = usize::from(member);
        let (Some(timeline), Some(renderer)) = (timelines.get_mut(at), renderers.get_mut(at))
        else {
            break;
        };
        let Some(event) = timeline.event() else { break };
        renderer.before(&event);
        if let Some(id) = history.event_of(member, &event)
            && matcher.fits_as(id, &event, renderer)
            && !found(id, &event)
        {
            break;
        }
        renderer.after(&event);
        timeline.advance();
    }
}

/// The events of a member, at the first.
fn begun(recording: &Recording) -> Timeline<'_> {
    let all = recording.processes().iter().map(|process| process.number);
    let mut timeline = Timeline::new(recording, all);
    timeline.advance();
    timeline
}
