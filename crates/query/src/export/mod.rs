//! A recording in forms that people have viewers for. Each form is a writer
//! over the same values.

pub mod dot;
pub mod json;
pub mod otlp;
pub mod perfetto;
pub mod shiviz;

use std::collections::{HashMap, HashSet};

use causality::{EventId, History, Link};
use events::{Matcher, Pattern};
use protocol::id::{EventNo, ThreadNo};
use recording::render::{Limits, Renderer};
use recording::{Phase, Timeline};

use crate::{Names, names, shown};

/// What is exported of an event.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which event.
    pub event: EventId,
    /// Its thread.
    pub thread: ThreadNo,
    /// When.
    pub time_ns: u64,
    /// Of a call that may block: its start.
    pub started: Option<EventNo>,
    /// Which part of a call it is.
    pub phase: Phase,
    /// The call.
    pub name: String,
    /// The call in words.
    pub text: String,
}

/// Everything that is exported.
pub struct Export<'h> {
    history: &'h History,
    names: Names,
    /// In order of time.
    items: Vec<Item>,
    /// Links of which both ends are among the items.
    links: Vec<Link>,
    /// Indexes of items.
    at: HashMap<EventId, usize>,
}

impl<'h> Export<'h> {
    /// The events that fit a pattern, or all, and the links between them.
    pub fn new(history: &'h History, names: &Names, pattern: Option<Pattern>) -> Export<'h> {
        let recording = history.recording();
        let matcher = pattern.map(|pattern| Matcher::new(pattern, history, names));
        let mut renderer = Renderer::new(recording, names, Limits::default());
        let all = recording.processes().iter().map(|process| process.number);
        let mut timeline = Timeline::new(recording, all);
        let mut items = Vec::new();
        let mut at = HashMap::new();
        while timeline.advance() {
            let Some(event) = timeline.event() else { break };
            renderer.before(&event);
            let fits = || matcher.as_ref().is_none_or(|m| m.fits(&event, &renderer));
            if let Some(id) = history.event_id(&event)
                && fits()
            {
                at.insert(id, items.len());
                items.push(Item {
                    event: id,
                    thread: ThreadNo(event.thread),
                    time_ns: recording.clock().since_start_ns(event.time),
                    started: event.started.map(EventNo),
                    phase: event.phase,
                    name: event.name(),
                    text: match shown::data(&event, 32) {
                        Some(data) => format!("{} {data}", event.name()),
                        None => renderer.text(&event),
                    },
                });
            }
            renderer.after(&event);
        }
        let links = history
            .links()
            .filter(|link| at.contains_key(&link.cause) && at.contains_key(&link.effect))
            .collect();
        Export {
            history,
            names: names.clone(),
            items,
            links,
            at,
        }
    }

    fn item(&self, event: EventId) -> Option<&Item> {
        self.items.get(*self.at.get(&event)?)
    }

    fn name(&self, event: EventId) -> String {
        names::event(self.history, event)
    }

    /// The events that have a link to another process, in order of time.
    fn linked(&self) -> Vec<&Item> {
        let ends = |link: &Link| [link.cause, link.effect];
        let crossing = self
            .links
            .iter()
            .filter(|l| l.cause.process != l.effect.process);
        let set: HashSet<EventId> = crossing.flat_map(ends).collect();
        self.items
            .iter()
            .filter(|item| set.contains(&item.event))
            .collect()
    }
}
