//! An event in a few words.

use std::collections::HashMap;

use causality::{EventId, History};
use protocol::syscall::Type;
use recording::render::{Limits, Renderer};
use recording::{Event, Phase};
use serde::Serialize;

use crate::source::{Call, Site};
use crate::{Names, names};

/// How much of the data is shown where nobody says how much.
pub const DATA: usize = 48;

/// An event in a few words.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Which event it is.
    #[serde(skip)]
    pub id: EventId,
    /// The call, if it is one: what its source line is found by.
    #[serde(skip)]
    pub site: Option<Site>,
    /// Its name.
    #[serde(rename = "event")]
    pub name: String,
    /// Name of its process.
    pub process: String,
    /// Name of its thread.
    pub thread: String,
    /// When, since the recording began.
    pub time_ns: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Name of the call, or of what else it is.
    pub call: String,
    /// Which part of a call it is.
    pub phase: &'static str,
    /// The call and what it carried.
    pub text: String,
    /// What it carried, alone.
    pub data: Option<String>,
    /// Where the call is in the source, once that was asked for.
    pub source: Option<Call>,
}

impl Shown {
    /// One of which nothing can be read.
    fn unreadable(history: &History, id: EventId) -> Shown {
        Shown {
            id,
            site: None,
            name: names::event(history, id),
            process: names::process(history, id.process),
            thread: String::new(),
            time_ns: 0,
            kind: "",
            call: String::new(),
            phase: Phase::None.name(),
            text: String::new(),
            data: None,
            source: None,
        }
    }
}

/// Shows events; each is read once.
pub struct Shows<'h> {
    history: &'h History,
    names: Names,
    /// One for each member.
    renderers: Vec<Renderer<'h>>,
    /// Bytes of data that are shown.
    limit: usize,
    known: HashMap<EventId, Shown>,
}

impl<'h> Shows<'h> {
    /// Shows events with so many bytes of their data.
    pub fn new(history: &'h History, names: &Names, limit: usize) -> Shows<'h> {
        Shows {
            history,
            names: names.clone(),
            renderers: renderers(history, names),
            limit,
            known: HashMap::new(),
        }
    }

    /// Reads events that will be shown. Those that lie near each other are
    /// read together, so this is to be called with all that are known.
    pub fn read(&mut self, events: &[EventId]) {
        let (history, names) = (self.history, &self.names);
        let (renderers, known) = (&self.renderers, &mut self.known);
        let limit = self.limit;
        history.look_all(events, |id, event| {
            let data = data(event, limit);
            let own = history.id_of(id.process);
            let renderer = own.and_then(|own| renderers.get(usize::from(own.member)));
            let (Some(own), Some(renderer)) = (own, renderer) else {
                return;
            };
            let shown = Shown {
                id,
                site: event.is_call().then(|| Site::of(event)),
                name: names::event(history, id),
                process: names::process(history, id.process),
                thread: names.of(own, event.thread),
                time_ns: time_ns(history, id, event),
                kind: event.type_().name(),
                call: event.name(),
                phase: event.phase.name(),
                text: words(renderer, event, data.as_deref()),
                data,
                source: None,
            };
            known.insert(id, shown);
        });
    }

    /// An event.
    pub fn get(&mut self, event: EventId) -> Shown {
        if !self.known.contains_key(&event) {
            self.read(&[event]);
        }
        match self.known.get(&event) {
            Some(shown) => shown.clone(),
            None => Shown::unreadable(self.history, event),
        }
    }
}

/// A renderer for the events of each member.
pub(crate) fn renderers<'h>(history: &'h History, names: &Names) -> Vec<Renderer<'h>> {
    let set = history.set();
    let members = (0u16..).take(set.members().len());
    members
        .filter_map(|member| Renderer::of_member(set, member, names, Limits::default()))
        .collect()
}

/// When an event was, as it is to be shown.
pub(crate) fn time_ns(history: &History, id: EventId, event: &Event<'_>) -> u64 {
    history.shown_ns(id.process, event.time)
}

/// Shows one event.
pub fn event(history: &History, names: &Names, event: EventId, limit: usize) -> Shown {
    Shows::new(history, names, limit).get(event)
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
fn words(renderer: &Renderer<'_>, event: &Event<'_>, data: Option<&str>) -> String {
    if let Some(data) = data {
        return format!("{} {data}", event.name());
    }
    let text = renderer.text(event);
    let text = text.strip_prefix("<... resumed> ").unwrap_or(&text);
    let text = match event.phase {
        Phase::Start => text.strip_suffix(" <unfinished ...>").unwrap_or(text),
        _ => text,
    };
    text.to_string()
}
