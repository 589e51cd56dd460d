//! What the commands about causes share: opening the index, finding the event
//! that is meant, and showing events in a few words.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causality::{EventId, History};
use events::{Condition, Field, Matcher, Operator, Pattern, Value, nearest};
use protocol::syscall::Type;
use recording::render::{Limits, Renderer};
use recording::{Event, Phase, Recording, Timeline};

use crate::failure::Failure;
use crate::source::{self, Site};

/// The causes in a recording. Tells how far it is, on a terminal, where that
/// takes long.
pub fn open(recording: &Arc<Recording>) -> Result<History, Failure> {
    let history = with_progress(|progress| History::open(recording, progress))?;
    recording.keep_catalog();
    let own = history.thread_names();
    let own: Vec<(u32, u32, String)> = own
        .into_iter()
        .filter_map(|(place, thread, name)| Some((history.process(place)?.number, thread, name)))
        .collect();
    let functions = source::thread_functions(&history);
    let taken: HashSet<(u32, String)> = own
        .iter()
        .map(|(process, _, name)| (*process, name.clone()))
        .collect();
    let named = numbered(functions, &taken);
    recording.learn_thread_names(own.into_iter().chain(named));
    Ok(history)
}

/// Names after the functions that threads run, numbered: `worker-3` is the
/// fourth of its process that runs `worker`.
fn numbered(
    functions: BTreeMap<(u32, u32), String>,
    taken: &HashSet<(u32, String)>,
) -> Vec<(u32, u32, String)> {
    let mut counts: HashMap<(u32, String), u32> = HashMap::new();
    let mut names = Vec::new();
    for ((process, thread), function) in functions {
        // The first thread is main-0.
        let first = u32::from(function == "main");
        let count = counts.entry((process, function.clone())).or_insert(first);
        let mut name = format!("{function}-{count}");
        while taken.contains(&(process, name.clone())) {
            *count += 1;
            name = format!("{function}-{count}");
        }
        *count += 1;
        names.push((process, thread, name));
    }
    names
}

/// Runs something that tells how many events it has read.
fn with_progress<T>(
    work: impl FnOnce(causality::Progress<'_>) -> Result<T, causality::Error>,
) -> Result<T, Failure> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let begun = Instant::now();
    let shown = Mutex::new(false);
    let terminal = std::io::stderr().is_terminal();
    let progress = |events: u64| {
        if terminal && begun.elapsed() > PATIENCE {
            let _ = write!(std::io::stderr(), "\rreading the logs: {events} events ");
            *shown.lock().unwrap_or_else(|e| e.into_inner()) = true;
        }
    };
    let done = work(&progress);
    if *shown.lock().unwrap_or_else(|e| e.into_inner()) {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    done.map_err(Failure::new)
}

/// Asks the causes something. An index that turns out to be damaged is made
/// again, and asked again.
pub fn ask<T>(history: &mut History, question: impl Fn(&History) -> T) -> Result<T, Failure> {
    with_progress(|progress| history.ask(progress, &question))
}

/// Reads a pattern.
pub fn pattern(text: &str) -> Result<Pattern, Failure> {
    events::parse(text).map_err(|error| {
        let failure = Failure::new(&error);
        match &error.near {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint(format!("the pattern was: {text}")),
        }
    })
}

/// Whether everything that a pattern names is there: who asks for what is not
/// would get no answer, and believe it.
pub fn check(history: &History, pattern: &Pattern) -> Result<(), Failure> {
    let condition = match pattern {
        Pattern::And(a, b) | Pattern::Or(a, b) => {
            check(history, a)?;
            return check(history, b);
        }
        Pattern::Not(inner) => return check(history, inner),
        Pattern::Is(condition) => condition,
    };
    let Condition::Field(field, Operator::Equal | Operator::Unequal, Value::Text(text)) = condition
    else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(text);
    let recording = history.recording();
    let processes = recording.processes();
    let literal = !text.contains(['*', '?']);
    match field {
        Field::Process | Field::Peer if literal => {
            let known = recording.process_named(&text).is_some()
                || processes.iter().any(|process| process.program == text);
            if !known {
                return Err(unknown_process(recording, &text));
            }
        }
        Field::Thread if literal => {
            let mut names = BTreeSet::new();
            for (process, place) in processes.iter().zip(0u32..) {
                let threads = 0..history.thread_count(place);
                names.extend(threads.map(|t| recording.thread_name(process.number, t)));
            }
            if !names.contains(&*text) {
                let failure = Failure::new(format!("no process has a thread `{text}`"));
                return Err(match nearest(&text, names.iter().map(String::as_str)) {
                    Some(near) => failure.hint(format!("did you mean `{near}`?")),
                    None => failure.hint("`mw events` shows their names"),
                });
            }
        }
        Field::Channel => {
            let number = text.strip_prefix('c').and_then(|n| n.parse::<u32>().ok());
            let count = history.channel_count();
            if number.is_some_and(|number| number >= count) {
                let failure = Failure::new(format!("the recording has no channel `{text}`"));
                return Err(match count.checked_sub(1) {
                    Some(last) => failure.hint(format!("its channels are c0 to c{last}")),
                    None => failure.hint("it has no channels at all"),
                });
            }
        }
        _ => {}
    }
    Ok(())
}

/// There is no process of that name: what there is instead.
pub fn unknown_process(recording: &Recording, name: &str) -> Failure {
    let names = || {
        recording
            .processes()
            .iter()
            .map(|process| process.name.as_str())
    };
    let failure = Failure::new(format!("the recording has no process `{name}`"));
    match nearest(name, names()) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None if names().count() <= 8 => {
            let names: Vec<_> = names().collect();
            failure.hint(format!("its processes are {}", names.join(", ")))
        }
        None => failure.hint("`mw ps` lists them"),
    }
}

/// The event that is meant: NAME:NUMBER, or the last one that fits a pattern.
pub fn event(history: &History, text: &str) -> Result<EventId, Failure> {
    let recording = history.recording();
    if let Some((name, number)) = text.rsplit_once(':')
        && !name.contains(char::is_whitespace)
        && !name.contains(['=', '~', '"', '/'])
    {
        let process = recording
            .process_named(name)
            .ok_or_else(|| unknown_process(recording, name))?;
        let number: u64 = number.parse().map_err(|_| {
            Failure::new(format!(
                "`{text}` is not an event: `{number}` is not a number"
            ))
            .hint("write an event as NAME:NUMBER (redis-server-0:1042)")
        })?;
        let place = history.place(process);
        let (first, last) = history.span(place);
        let empty = history.thread_count(place) == 0;
        if empty || !(first..=last).contains(&number) {
            let failure = Failure::new(format!("{} has no event {number}", process.name));
            return Err(match empty {
                true => failure.hint("it has no events at all"),
                false => failure.hint(format!("its events are {first} to {last}")),
            });
        }
        return Ok(EventId::new(place, number));
    }
    if recording.process_named(text).is_some() {
        return Err(
            Failure::new(format!("`{text}` is a process, not an event")).hint(format!(
                "write NAME:NUMBER, like {text}:0; `mw events` lists them"
            )),
        );
    }
    if let Some(near) = looks_like_a_name(text)
        .then(|| nearest(text, recording.processes().iter().map(|p| p.name.as_str())))
        .flatten()
    {
        return Err(
            Failure::new(format!("`{text}` is neither an event nor a pattern"))
                .hint(format!("did you mean an event of `{near}`, like {near}:0?")),
        );
    }
    let pattern = pattern(text)?;
    check(history, &pattern)?;
    let found = last_match(history, pattern);
    found.ok_or_else(|| {
        Failure::new(format!("no event fits `{text}`"))
            .hint("`mw events --where PATTERN` tries patterns out")
    })
}

/// Whether a word is more like the name of a process than like a pattern.
fn looks_like_a_name(text: &str) -> bool {
    recording::names::is_name(text) && events::parse(text).is_err()
}

/// The last event that fits a pattern.
fn last_match(history: &History, pattern: Pattern) -> Option<EventId> {
    let mut last = None;
    each_match(history, pattern, |place, event, _| {
        last = Some(EventId::new(place, event.number));
        true
    });
    last
}

/// Calls `found` with each event that fits a pattern, in order of time, until
/// it says no.
pub fn each_match(
    history: &History,
    pattern: Pattern,
    mut found: impl FnMut(u32, &Event<'_>, &Renderer<'_>) -> bool,
) {
    let recording = history.recording();
    let matcher = Matcher::new(pattern, history);
    let mut renderer = Renderer::new(recording, Limits::default());
    let mut timeline = Timeline::new(recording, recording.processes().iter().map(|p| p.number));
    while timeline.advance() {
        let Some(event) = timeline.event() else { break };
        renderer.before(&event);
        if matcher.fits(&event, &renderer)
            && !found(
                history.place_of(event.process).unwrap_or(u32::MAX),
                &event,
                &renderer,
            )
        {
            break;
        }
        renderer.after(&event);
    }
}

/// The name of an event.
pub fn name(history: &History, event: EventId) -> String {
    format!("{}:{}", process_name(history, event.process), event.number)
}

/// The name of a process.
pub fn process_name(history: &History, place: u32) -> String {
    match history.process(place) {
        Some(process) => process.name.clone(),
        None => format!("process {place}"),
    }
}

/// Process and thread.
pub fn thread_name(history: &History, (place, thread): (u32, u32)) -> String {
    let recording = history.recording();
    match history.process(place) {
        Some(process) if history.thread_count(place) > 1 => {
            format!(
                "{}/{}",
                process.name,
                recording.thread_name(process.number, thread)
            )
        }
        Some(process) => process.name.clone(),
        None => format!("process {place}"),
    }
}

/// An event in a few words.
#[derive(Clone, Debug)]
pub struct Shown {
    pub event: EventId,
    pub name: String,
    pub thread: String,
    /// The call, if it is one.
    pub site: Option<Site>,
    pub time_ns: u64,
    pub kind: &'static str,
    /// Name of the call, or of what else it is.
    pub call: String,
    /// Which part of a call it is.
    pub phase: Phase,
    /// The call and what it carried.
    pub text: String,
    /// What it carried, alone.
    pub data: Option<String>,
}

/// How much of the data is shown.
pub const DATA: usize = 48;

/// Shows an event.
pub fn show(history: &History, event: EventId, limit: usize) -> Shown {
    let mut shown = show_all(history, &[event], limit);
    shown.remove(&event).unwrap_or_else(|| Shown {
        event,
        name: name(history, event),
        thread: String::new(),
        site: None,
        time_ns: 0,
        kind: "",
        call: String::new(),
        phase: Phase::None,
        text: String::new(),
        data: None,
    })
}

/// Shows events.
pub fn show_all(history: &History, events: &[EventId], limit: usize) -> HashMap<EventId, Shown> {
    let recording = history.recording();
    let mut found = HashMap::new();
    history.look_all(events, |id, event| {
        let data = data(event, limit);
        let shown = Shown {
            event: id,
            name: name(history, id),
            thread: recording.thread_name(event.process, event.thread),
            site: event.is_call().then(|| Site::of(event)),
            time_ns: recording.clock().since_start_ns(event.time),
            kind: event.type_().name(),
            call: event.name(),
            phase: event.phase,
            text: words(recording, event, data.as_deref()),
            data,
        };
        found.insert(id, shown);
    });
    found
}

/// What a call carried, in quotes.
pub fn data(event: &Event<'_>, limit: usize) -> Option<String> {
    if !matches!(event.type_(), Type::Send | Type::Recv) {
        return None;
    }
    let data = event.argument(1).filter(|data| !data.bytes.is_empty())?;
    let len = match event.result {
        Some(result @ 0..) => data.len.min(result as u64),
        _ => data.len,
    };
    let kept = data
        .bytes
        .get(..(len as usize).min(limit))
        .unwrap_or(data.bytes);
    let mut text = String::from("\"");
    for part in kept.utf8_chunks() {
        for c in part.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => text.push_str(&format!("\\x{:02x}", c as u32)),
                c => text.push(c),
            }
        }
        for byte in part.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text.push('"');
    if kept.len() < len as usize {
        text.push_str("...");
    }
    Some(text)
}

/// The call without what only matters in a list of calls.
fn words(recording: &Recording, event: &Event<'_>, data: Option<&str>) -> String {
    if let Some(data) = data {
        return format!("{} {data}", event.name());
    }
    let renderer = Renderer::new(recording, Limits::default());
    let text = renderer.text(event);
    let text = text.strip_prefix("<... resumed> ").unwrap_or(&text);
    let text = match event.phase {
        Phase::Start => text.strip_suffix(" <unfinished ...>").unwrap_or(text),
        _ => text,
    };
    text.to_string()
}
