//! Finding what a person means: events, processes, threads.

use std::collections::BTreeSet;
use std::convert::Infallible;

use causality::{EventId, History};
use events::{Condition, Field, Matcher, Operator, Pattern, Value, nearest};
use protocol::id::{EventNo, ProcessId, ProcessIx, ThreadNo};
use recording::render::Limits;
use recording::{Event, Set};

use crate::walk::Walk;
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
    let set = history.set();
    let literal = !text.contains(['*', '?']);
    match field {
        Field::Process | Field::Peer if literal => {
            let known = set.process_named(&text).is_some()
                || history
                    .processes()
                    .any(|(_, process)| process.program == text || process.name == text);
            if !known {
                return Err(Error::no_process(set, &text));
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
    for place in history.set().places() {
        let threads = (0..history.thread_count(place)).map(ThreadNo);
        if let Some(id) = history.id_of(place) {
            all.extend(threads.map(|thread| names.of(id, thread)));
        }
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
        let place = place.ok_or_else(|| Error::no_process(set, name))?;
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

/// Event `number` of the process at a place, if there is one.
fn event_at(history: &History, place: ProcessIx, number: EventNo) -> Result<EventId, Error> {
    let span = (history.thread_count(place) > 0).then(|| history.span(place));
    match span {
        Some((first, last)) if (first..=last).contains(&number) => Ok(EventId::new(place, number)),
        _ => Err(Error::NoEvent {
            process: crate::names::process(history, place),
            number,
            span,
        }),
    }
}

/// Whether a word is more like the name of a process than like a pattern.
fn looks_like_a_name(text: &str) -> bool {
    recording::names::is_name(text) && events::parse(text).is_err()
}

/// The process of this name.
pub fn process(set: &Set, name: &str) -> Result<ProcessId, Error> {
    let place = set.process_named(name);
    let id = place.and_then(|place| set.id(place));
    id.ok_or_else(|| Error::no_process(set, name))
}

/// The places of the processes of these names, or that run programs of these
/// names; all, if there are no names.
pub fn places(set: &Set, wanted: &[String]) -> Result<Vec<ProcessIx>, Error> {
    let is = |place: ProcessIx, name: &String| {
        let process = set.process(place);
        process.is_some_and(|process| process.name == *name || process.program == *name)
            || set.process_named(name) == Some(place)
    };
    for name in wanted {
        if !set.places().any(|place| is(place, name)) {
            return Err(Error::no_process(set, name));
        }
    }
    let chosen = set
        .places()
        .filter(|place| wanted.is_empty() || wanted.iter().any(|name| is(*place, name)));
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

/// Calls `found` with each event that fits a pattern, each after its causes and
/// otherwise in order of time, until it says no.
pub fn each_match(
    history: &History,
    names: &Names,
    pattern: Pattern,
    mut found: impl FnMut(EventId, &Event<'_>) -> bool,
) {
    let matcher = Matcher::new(pattern, history, names);
    let set = history.set();
    let places: Vec<ProcessIx> = set.places().collect();
    let walk = Walk::new(set, Some(history), names, &places, Limits::default());
    let walked = walk.each(|step| {
        let id = history.event_of(step.member, step.event);
        let fits = |id: &EventId| matcher.fits_as(*id, step.event, step.renderer);
        Ok::<bool, Infallible>(match id.filter(fits) {
            Some(id) => found(id, step.event),
            None => true,
        })
    });
    match walked {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

/// The next event of a process that sends or receives, from an event on; or the last before.
pub fn message(
    history: &History,
    process: ProcessIx,
    from: EventNo,
    back: bool,
) -> Option<EventNo> {
    // What is known of channels bounds how much of the log has to be read.
    let used = history.uses_of(process).map(|(event, _)| event);
    let (mut used, (first, last)) = (used, history.span(process));
    match back {
        true => {
            let known = used.take_while(|event| *event < from).last();
            let begin = known.map_or(first, EventNo::next);
            let found = messages(history, process, begin, from.previous()).last();
            found.or(known).filter(|found| *found < from)
        }
        false => {
            let known = used.find(|event| *event >= from);
            let end = known.map_or(last, EventNo::previous);
            messages(history, process, from, end).next().or(known)
        }
    }
}

/// Events of a process whose calls send or receive, as their names say.
fn messages(
    history: &History,
    process: ProcessIx,
    first: EventNo,
    last: EventNo,
) -> impl Iterator<Item = EventNo> {
    use protocol::syscall::Type;
    let mut log = history.set().log_near(process, first);
    std::iter::from_fn(move || {
        let log = log.as_mut()?;
        while log.advance() {
            let event = log.event()?;
            if event.number > last {
                return None;
            }
            if event.number >= first && matches!(event.type_(), Type::Send | Type::Recv) {
                return Some(event.number);
            }
        }
        None
    })
}
