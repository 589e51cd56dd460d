//! Why something happened: from an effect back to its causes.

use causality::{Cause, Cut, EventId, History, Kind, Role};
use serde::Serialize;

use crate::link::Link;
use crate::shown::{DATA, Shown, Shows};
use crate::source::{Lines, Site};
use crate::{Names, find};

/// How much is told.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long the story may be.
    pub limits: causality::Limits,
    /// Tell the rest of the causal past, too.
    pub all: bool,
    /// Bytes of data that are shown.
    pub data: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: causality::Limits::default(),
            all: false,
            data: DATA,
        }
    }
}

/// What led to an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The event itself.
    pub head: Shown,
    /// The causes, in the order of a tree: those of one behind it.
    pub rows: Vec<Row>,
    /// The rest of its past, the latest first, where that was asked for.
    pub rest: Vec<Row>,
}

/// What an event is to the story it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// It led to the event itself.
    Direct,
    /// It told the event's thread something before it.
    Input,
    /// It asked for what the story came from.
    Question,
    /// It told another thread of the process something before.
    Background,
    /// It is somewhere in the past.
    Past,
    /// It was brought about.
    Effect,
}

/// A cause, or an effect, in the order of a tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The event.
    #[serde(flatten)]
    pub shown: Shown,
    /// The link by which it is part of the story.
    pub link: Link,
    /// How many links from the event that was asked about.
    pub depth: usize,
    /// What it is to the story.
    pub role: Part,
    /// Its own causes are told elsewhere in the tree.
    pub told_above: bool,
    /// How many more effects it has than are shown.
    #[serde(skip_serializing_if = "is_none")]
    pub left_out: usize,
    /// Its own causes were left out.
    #[serde(skip)]
    pub is_cut: bool,
    /// What kind of link it is.
    #[serde(skip)]
    pub kind: Kind,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Row {
    /// How it is related to what is above it, in words.
    pub fn how(&self) -> String {
        let how = word(self.kind, self.role != Part::Effect);
        let at = &self.link.effect;
        let words = match self.role {
            Part::Direct => String::new(),
            Part::Input | Part::Past => format!("{how} at {at}"),
            Part::Question => format!("the question, {how} at {at}"),
            Part::Background => format!("known before: {how} at {at}"),
            Part::Effect => format!("{how} by {}", self.link.cause),
        };
        let mut parts = vec![words];
        if self.is_cut {
            parts.push("...".to_string());
        }
        parts.retain(|part| !part.is_empty());
        parts.join("; ")
    }

    /// How it is related to what is above it, and whether its own causes are
    /// told there, in words.
    pub fn words(&self) -> String {
        let how = self.how();
        match (self.told_above, how.is_empty()) {
            (false, _) => how,
            (true, true) => "(told above)".to_string(),
            (true, false) => format!("{how} (told above)"),
        }
    }
}

/// What a link is, from the side of the cause or of the effect.
fn word(kind: Kind, cause: bool) -> &'static str {
    match (kind, cause) {
        (Kind::Message, true) => "received",
        (Kind::Message, false) => "received, sent",
        (Kind::Connect, true) => "accepted",
        (Kind::Connect, false) => "accepted, asked for",
        (Kind::Listen, true) => "was let in",
        (Kind::Listen, false) => "let in",
        (Kind::Close, true) => "saw the end",
        (Kind::Close, false) => "saw the end, made",
        (Kind::Fork, true) => "was born",
        (Kind::Fork, false) => "born, forked",
        (Kind::Thread, true) => "began",
        (Kind::Thread, false) => "began, made",
        (Kind::Exec, _) => "went on",
        (Kind::Exit, true) => "learnt of the end",
        (Kind::Exit, false) => "learnt of the end, brought about",
        (Kind::Wake, true) => "was woken",
        (Kind::Wake, false) => "woken",
        (Kind::Signal, true) => "got the signal",
        (Kind::Signal, false) => "got the signal, sent",
        (Kind::Count, true) => "read the count",
        (Kind::Count, false) => "read the count, raised",
        (Kind::Timer, true) => "was due",
        (Kind::Timer, false) => "due, set",
        (Kind::Lock, true) => "got the lock",
        (Kind::Lock, false) => "got the lock, freed",
        (Kind::Ready, true) => "found it ready",
        (Kind::Ready, false) => "found ready, made so",
    }
}

/// Why an event happened.
pub fn report(history: &History, names: &Names, event: EventId, options: &Options) -> Report {
    let tree = history.explain(event, options.limits);
    let mut shows = Shows::new(history, names, options.data);
    let mut needed = vec![event];
    events_of(&tree, &mut needed);
    shows.read(&needed);
    let mut rows = Vec::new();
    flatten(history, &tree, 1, &mut shows, &mut rows);
    let rest = match options.all {
        true => past(history, event, &mut shows),
        false => Vec::new(),
    };
    Report {
        head: shows.get(event),
        rows,
        rest,
    }
}

impl Report {
    /// The calls that are shown, to ask for their source lines.
    pub fn sites(&self) -> Vec<(EventId, Site)> {
        sites(&self.head, self.rows.iter().chain(&self.rest))
    }

    /// Takes in where the calls are in the source.
    pub fn learn(&mut self, lines: &Lines) {
        learn(&mut self.head, lines);
        for row in self.rows.iter_mut().chain(&mut self.rest) {
            learn(&mut row.shown, lines);
        }
    }
}

pub(crate) fn sites<'r>(head: &Shown, rows: impl Iterator<Item = &'r Row>) -> Vec<(EventId, Site)> {
    let all = rows.map(|row| &row.shown).chain([head]);
    all.filter_map(|shown| Some((shown.id, shown.site?)))
        .collect()
}

pub(crate) fn learn(shown: &mut Shown, lines: &Lines) {
    shown.source = lines.of(shown.id).cloned();
}

/// All events of a tree of causes.
fn events_of(causes: &[Cause], events: &mut Vec<EventId>) {
    for cause in causes {
        events.push(cause.link.cause);
        events_of(&cause.causes, events);
    }
}

fn flatten(
    history: &History,
    causes: &[Cause],
    depth: usize,
    shows: &mut Shows<'_>,
    rows: &mut Vec<Row>,
) {
    for cause in causes {
        rows.push(Row {
            shown: shows.get(cause.link.cause),
            link: Link::new(history, &cause.link),
            depth,
            role: match cause.role {
                Role::Direct => Part::Direct,
                Role::Input => Part::Input,
                Role::Question => Part::Question,
                Role::Background => Part::Background,
            },
            told_above: cause.told && cause.role != Role::Question,
            left_out: 0,
            is_cut: cause.cut,
            kind: cause.link.kind,
        });
        flatten(history, &cause.causes, depth + 1, shows, rows);
    }
}

/// All links between processes in the past of an event, the latest first.
fn past(history: &History, event: EventId, shows: &mut Shows<'_>) -> Vec<Row> {
    let cut = history.past(event);
    let first = protocol::id::EventNo(0);
    let mut links: Vec<causality::Link> = cut
        .processes()
        .flat_map(|process| history.causes_between(process, first, cut.bound(process)))
        .filter(|link| link.cause.process != link.effect.process)
        .collect();
    links.sort_by_key(|link| std::cmp::Reverse((link.effect.number, link.effect.process)));
    let needed: Vec<EventId> = links.iter().map(|link| link.cause).collect();
    shows.read(&needed);
    let mut rows: Vec<Row> = links
        .into_iter()
        .map(|link| Row {
            shown: shows.get(link.cause),
            link: Link::new(history, &link),
            depth: 0,
            role: Part::Past,
            told_above: false,
            left_out: 0,
            is_cut: false,
            kind: link.kind,
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.shown.time_ns));
    rows
}

/// A message in the past of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// What it carried.
    pub message: String,
    /// When it was sent.
    pub time_ns: u64,
    /// Who sent it.
    pub from: String,
    /// The event that did.
    pub sent: String,
    /// Who received it, if somebody did.
    pub to: Option<String>,
    /// The event that did.
    pub received: Option<String>,
    /// Both events.
    #[serde(skip)]
    pub ends: (EventId, Option<EventId>),
}

/// The messages in the past of an event that fit a pattern, at either end, in
/// the order in which they were sent.
pub fn messages(
    history: &History,
    names: &Names,
    pattern: events::Pattern,
    event: EventId,
    data: usize,
) -> Vec<Message> {
    let past = history.past(event);
    let ends = message_ends(history, names, pattern, &past);
    let mut shows = Shows::new(history, names, data);
    let needed: Vec<EventId> = ends
        .iter()
        .flat_map(|(from, to)| [Some(*from), *to])
        .flatten()
        .collect();
    shows.read(&needed);
    let mut messages: Vec<Message> = ends
        .into_iter()
        .map(|(from, to)| {
            let sent = shows.get(from);
            let received = to.map(|to| shows.get(to));
            let who = |shown: &Shown| match history.thread_count(shown.id.process) {
                0 | 1 => shown.process.clone(),
                _ => format!("{}/{}", shown.process, shown.thread),
            };
            Message {
                time_ns: sent.time_ns,
                from: who(&sent),
                to: received.as_ref().map(who),
                received: received.map(|received| received.name),
                message: sent.data.unwrap_or(sent.text),
                sent: sent.name,
                ends: (from, to),
            }
        })
        .collect();
    messages.sort_by_key(|message| (message.time_ns, message.ends.0));
    messages
}

/// Sending and receiving events of messages inside a cut.
fn message_ends(
    history: &History,
    names: &Names,
    pattern: events::Pattern,
    past: &Cut,
) -> Vec<(EventId, Option<EventId>)> {
    let mut found: Vec<(EventId, Option<EventId>)> = Vec::new();
    find::each_match(history, names, pattern, |id, _| {
        if !past.has(id) {
            return true;
        }
        let is_message = |link: &causality::Link| matches!(link.kind, Kind::Message | Kind::Count);
        let sent = history.effects(id);
        let got = history.causes(id);
        for link in sent.iter().chain(&got).filter(|link| is_message(link)) {
            if past.has(link.cause) {
                let arrived = past.has(link.effect).then_some(link.effect);
                found.push((link.cause, arrived));
            }
        }
        true
    });
    found.sort_unstable();
    found.dedup();
    found
}
