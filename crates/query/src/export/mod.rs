//! A recording in forms that people have viewers for. Each form is a writer
//! over the same values.

pub mod dot;
pub mod json;
pub mod otlp;
pub mod perfetto;
pub mod shiviz;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use causality::{EventId, History, Link};
use events::{Matcher, Pattern};
use protocol::id::{EventNo, ProcessIx, ThreadNo};
use recording::Phase;
use recording::render::Limits;

use crate::walk::Walk;
use crate::{Names, names, shown};

/// What is exported of an event.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which event.
    pub event: EventId,
    /// Its thread.
    pub thread: ThreadNo,
    /// When, since the recording began.
    pub time_ns: u64,
    /// When, since 1970.
    pub date_ns: u64,
    /// Of a call that may block: its start.
    pub started: Option<EventNo>,
    /// Which part of a call it is.
    pub phase: Phase,
    /// The call.
    pub name: String,
    /// The call in words.
    pub text: String,
    /// Higher events that are here, in words, and the first event of each.
    pub emits: Vec<(String, EventId)>,
}

/// Of each event that has some, the higher events there: in words, and the first event
/// of each.
pub type Marks = HashMap<EventId, Vec<(String, EventId)>>;

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
        let matcher = pattern.map(|pattern| Matcher::new(pattern, history, names));
        let set = history.set();
        let places: Vec<ProcessIx> = set.places().collect();
        let walk = Walk::new(set, Some(history), names, &places, Limits::default());
        let mut items = Vec::new();
        let mut at = HashMap::new();
        let walked = walk.each(|step| {
            let (event, renderer) = (step.event, step.renderer);
            let fits = |id: EventId| {
                let matcher = matcher.as_ref();
                matcher.is_none_or(|matcher| matcher.fits_as(id, event, renderer))
            };
            if let Some(id) = history.event_of(step.member, event)
                && fits(id)
            {
                at.insert(id, items.len());
                items.push(Item {
                    event: id,
                    thread: event.thread,
                    time_ns: history.shown_ns(id.process, event.time),
                    date_ns: history.shown_date_ns(id.process, event.time),
                    started: event.started,
                    phase: event.phase,
                    name: event.name(),
                    text: match shown::data(event, 32) {
                        Some(data) => format!("{} {data}", event.name()),
                        None => renderer.text(event),
                    },
                    emits: Vec::new(),
                });
            }
            Ok::<bool, Infallible>(true)
        });
        match walked {
            Ok(()) => {}
            Err(never) => match never {},
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

    /// Leaves out other events, and their links.
    pub fn retain(&mut self, takes: impl Fn(EventId) -> bool) {
        self.items.retain(|item| takes(item.event));
        let items = self.items.iter().enumerate();
        self.at = items.map(|(at, item)| (item.event, at)).collect();
        let at = &self.at;
        self.links
            .retain(|link| at.contains_key(&link.cause) && at.contains_key(&link.effect));
    }

    /// Says which higher events are at which events.
    pub fn mark(&mut self, marks: &Marks) {
        for item in &mut self.items {
            let Some(own) = marks.get(&item.event) else {
                continue;
            };
            item.emits.clone_from(own);
            for (words, _) in own {
                item.text.push_str(&format!(" => {words}"));
            }
        }
    }

    fn item(&self, event: EventId) -> Option<&Item> {
        self.items.get(*self.at.get(&event)?)
    }

    /// The name of a thread of a process.
    fn thread_name(&self, place: ProcessIx, thread: ThreadNo) -> String {
        match self.history.id_of(place) {
            Some(id) => self.names.of(id, thread),
            None => String::new(),
        }
    }

    /// What the host of a process is called, in a recording of several.
    fn host(&self, place: ProcessIx) -> Option<&str> {
        let set = self.history.set();
        let member = set.member_of(place).filter(|_| set.is_joined())?;
        set.name(member)
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
