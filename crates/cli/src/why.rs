//! `mw why` and `mw effects`: from an effect back to its causes, and forward.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;

use causality::{Cause, Cut, EventId, History, Kind, Limits, Link, Role};
use recording::Phase;
use serde_json::json;

use crate::causes::{self, Shown};
use crate::failure::Failure;
use crate::output::{Output, Style, cut};
use crate::select::Chosen;
use crate::source::{Lines, Site, Wish};

/// Tell why something happened: the chain of causes across processes.
///
/// The shortest explanation comes first: a receive is explained by what was
/// sent, an answer by the question and by what its thread was told in between,
/// anything else by the last thing its thread was told.
#[derive(clap::Args)]
pub struct Cmd {
    /// The event: NAME:NUMBER, or a pattern for the last event that fits it
    #[arg(value_name = "EVENT")]
    event: String,

    #[command(flatten)]
    recording: Chosen,

    /// Show the messages in the event's past that fit this pattern, too, in
    /// the order in which they happened
    #[arg(long = "where", short = 'w', value_name = "PATTERN")]
    pattern: Option<String>,

    /// Tell all of the causal past, not only the shortest explanation
    #[arg(long)]
    all: bool,

    /// Go this many links back
    #[arg(long, value_name = "N", default_value_t = 3)]
    depth: usize,

    /// Show no more messages than this, the last ones
    #[arg(long, value_name = "N", default_value_t = 40)]
    limit: usize,

    /// One JSON object a line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Wish,

    /// Show this many bytes of data
    #[arg(short = 's', long = "strings", value_name = "N", default_value_t = causes::DATA)]
    strings: usize,
}

impl Cmd {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let pattern = self.pattern.as_deref().map(causes::pattern).transpose()?;
        let recording = self.recording.open()?;
        let mut history = causes::open(&recording)?;
        if let Some(pattern) = &pattern {
            causes::check(&history, pattern)?;
        }
        let event = causes::event(&history, &self.event)?;
        let limits = if self.all {
            Limits {
                depth: usize::MAX,
                width: usize::MAX,
            }
        } else {
            Limits {
                depth: self.depth.max(1),
                ..Limits::default()
            }
        };
        let (lines, all) = causes::ask(&mut history, |history| {
            let tree = history.explain(event, limits);
            let mut lines = Vec::new();
            let mut shown = Shows::new(history, self.strings);
            let mut needed = vec![event];
            events_of(&tree, &mut needed);
            shown.read(&needed);
            flatten(&tree, "", 0, &mut shown, &mut lines);
            let all = self.all.then(|| past(history, event, &mut shown));
            (lines, all)
        })?;
        let mut out = Output::new();
        let head = causes::show(&history, event, self.strings);
        let shown = lines.iter().chain(all.iter().flatten());
        let sites = calls(&head, shown);
        let draw = |out: &mut Output, source: &Lines| {
            print(out, &head, &lines, source)?;
            if let Some(all) = all.as_ref().filter(|all| !all.is_empty()) {
                out.line("")?;
                out.line("and the rest of its past, the latest first:")?;
                print_lines(out, all, source)?;
            }
            Ok(())
        };
        let source = match self.json {
            true => self.source.lines(&history, &sites),
            false => lines_meanwhile(&mut out, &self.source, &history, &sites, draw)?,
        };
        if self.json {
            out.line(&object(&head, None, &source).to_string())?;
            for line in lines.iter().chain(all.iter().flatten()) {
                out.line(&line.json(&history, &source).to_string())?;
            }
        } else {
            draw(&mut out, &source)?;
            print_note(&mut out, &source)?;
        }
        if let Some(pattern) = pattern {
            let past = history.past(event);
            let messages = messages(&history, pattern, &past, self.strings);
            print_messages(&mut out, &history, &messages, self.limit, self.json)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Tell what an event led to, across processes.
#[derive(clap::Args)]
pub struct Effects {
    /// The event: NAME:NUMBER, or a pattern for the last event that fits it
    #[arg(value_name = "EVENT")]
    event: String,

    #[command(flatten)]
    recording: Chosen,

    /// Go this many links on
    #[arg(long, value_name = "N", default_value_t = 4)]
    depth: usize,

    /// Show no more effects of one event than this
    #[arg(long, value_name = "N", default_value_t = 8)]
    width: usize,

    /// One JSON object a line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    source: Wish,

    /// Show this many bytes of data
    #[arg(short = 's', long = "strings", value_name = "N", default_value_t = causes::DATA)]
    strings: usize,
}

impl Effects {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let recording = self.recording.open()?;
        let mut history = causes::open(&recording)?;
        let event = causes::event(&history, &self.event)?;
        let lines = causes::ask(&mut history, |history| {
            let mut lines = Vec::new();
            let mut seen = HashSet::from([event]);
            let mut shown = Shows::new(history, self.strings);
            self.forward(history, event, "", 0, &mut seen, &mut shown, &mut lines);
            lines
        })?;
        let mut out = Output::new();
        let head = causes::show(&history, event, self.strings);
        let sites = calls(&head, lines.iter());
        let draw = |out: &mut Output, source: &Lines| {
            print(out, &head, &lines, source)?;
            match lines.is_empty() {
                true => Ok(out.line("no other event of the recording is an effect of it")?),
                false => Ok(()),
            }
        };
        let source = match self.json {
            true => self.source.lines(&history, &sites),
            false => lines_meanwhile(&mut out, &self.source, &history, &sites, draw)?,
        };
        if self.json {
            out.line(&object(&head, None, &source).to_string())?;
            for line in lines.iter().filter(|line| line.role != "note") {
                out.line(&line.json(&history, &source).to_string())?;
            }
        } else {
            draw(&mut out, &source)?;
            print_note(&mut out, &source)?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }

    /// What an event led to: its own effects, or else the next of its thread.
    #[allow(clippy::too_many_arguments, reason = "the state of a walk")]
    fn forward(
        &self,
        history: &History,
        event: EventId,
        below: &str,
        depth: usize,
        seen: &mut HashSet<EventId>,
        shown: &mut Shows<'_>,
        lines: &mut Vec<Line>,
    ) {
        if depth >= self.depth {
            return;
        }
        let mut links = history.effects(event);
        without_echoes(&mut links);
        if links.is_empty() {
            links = history.next_effects(event);
        }
        let more = links.len().saturating_sub(self.width);
        links.truncate(self.width);
        let count = links.len();
        for (i, link) in links.into_iter().enumerate() {
            let last = i + 1 == count && more == 0;
            let (branch, indent) = branches(last);
            let new = seen.insert(link.effect);
            lines.push(Line {
                branch: format!("{below}{branch}"),
                depth: depth + 1,
                shown: shown.get(link.effect),
                words: format!(
                    "{} by {}",
                    word(link.kind, false),
                    causes::name(history, link.cause)
                ),
                link: Some(link),
                role: "effect",
                told: !new,
            });
            if new {
                let below = format!("{below}{indent}");
                self.forward(history, link.effect, &below, depth + 1, seen, shown, lines);
            }
        }
        if more > 0 {
            lines.push(Line::note(format!("{below}└─ and {more} more")));
        }
    }
}

/// That a wait found something ready is not told where the same process then
/// took it.
fn without_echoes(links: &mut Vec<Link>) {
    let took: HashSet<u32> = links
        .iter()
        .filter(|link| link.kind != Kind::Ready)
        .map(|link| link.effect.process)
        .collect();
    links.retain(|link| link.kind != Kind::Ready || !took.contains(&link.effect.process));
}

/// Events that were shown before are not read again.
struct Shows<'h> {
    history: &'h History,
    strings: usize,
    known: HashMap<EventId, Shown>,
}

impl<'h> Shows<'h> {
    fn new(history: &'h History, strings: usize) -> Shows<'h> {
        Shows {
            history,
            strings,
            known: HashMap::new(),
        }
    }

    /// Reads events that will be shown, together.
    fn read(&mut self, events: &[EventId]) {
        let found = causes::show_all(self.history, events, self.strings);
        self.known.extend(found);
    }

    fn get(&mut self, event: EventId) -> Shown {
        let show = || causes::show(self.history, event, self.strings);
        self.known.entry(event).or_insert_with(show).clone()
    }
}

/// One line of a tree.
struct Line {
    branch: String,
    depth: usize,
    shown: Shown,
    /// How it is related to the line above.
    words: String,
    link: Option<Link>,
    role: &'static str,
    told: bool,
}

impl Line {
    fn note(text: String) -> Line {
        Line {
            branch: text,
            depth: 0,
            shown: Shown {
                event: EventId::new(u32::MAX, 0),
                name: String::new(),
                thread: String::new(),
                site: None,
                time_ns: 0,
                kind: "",
                call: String::new(),
                phase: Phase::None,
                text: String::new(),
                data: None,
            },
            words: String::new(),
            link: None,
            role: "note",
            told: false,
        }
    }

    fn json(&self, history: &History, source: &Lines) -> serde_json::Value {
        let mut object = object(&self.shown, self.link.map(|link| (history, link)), source);
        if let Some(object) = object.as_object_mut() {
            object.insert("depth".to_string(), json!(self.depth));
            object.insert("role".to_string(), json!(self.role));
            object.insert("told_above".to_string(), json!(self.told));
        }
        object
    }
}

/// The events among these that are calls.
fn calls<'l>(head: &Shown, lines: impl Iterator<Item = &'l Line>) -> Vec<(EventId, Site)> {
    let all = lines.map(|line| &line.shown).chain([head]);
    all.filter_map(|shown| Some((shown.event, shown.site?)))
        .collect()
}

fn object(shown: &Shown, link: Option<(&History, Link)>, source: &Lines) -> serde_json::Value {
    let process = shown
        .name
        .rsplit_once(':')
        .map_or("", |(process, _)| process);
    let mut object = json!({
        "event": shown.name,
        "process": process,
        "thread": shown.thread,
        "time_ns": shown.time_ns,
        "type": shown.kind,
        "call": shown.call,
        "phase": shown.phase.name(),
        "text": shown.text,
        "data": shown.data,
        "source": source.of(shown.event).map(crate::source::Call::json),
    });
    if let (Some((history, link)), Some(map)) = (link, object.as_object_mut()) {
        map.insert("link".to_string(), link_object(history, &link));
    }
    object
}

/// A link in JSON.
pub fn link_object(history: &History, link: &Link) -> serde_json::Value {
    json!({
        "kind": link.kind.name(),
        "cause": causes::name(history, link.cause),
        "effect": causes::name(history, link.effect),
        "channel": link.channel.map(|channel| format!("c{channel}")),
        "amount": link.amount,
    })
}

fn branches(last: bool) -> (&'static str, &'static str) {
    if last {
        ("└─ ", "   ")
    } else {
        ("├─ ", "│  ")
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

/// All events of a tree of causes.
fn events_of(causes: &[Cause], events: &mut Vec<EventId>) {
    for cause in causes {
        events.push(cause.link.cause);
        events_of(&cause.causes, events);
    }
}

/// The lines of a tree of causes.
fn flatten(
    causes: &[Cause],
    below: &str,
    depth: usize,
    shown: &mut Shows<'_>,
    lines: &mut Vec<Line>,
) {
    for (i, cause) in causes.iter().enumerate() {
        let (branch, indent) = branches(i + 1 == causes.len());
        let at = causes::name(shown.history, cause.link.effect);
        let how = word(cause.link.kind, true);
        let words = match cause.role {
            Role::Direct => String::new(),
            Role::Input => format!("{how} at {at}"),
            Role::Question => format!("the question, {how} at {at}"),
            Role::Background => format!("known before: {how} at {at}"),
        };
        let words = match (cause.cut, words.is_empty()) {
            (true, true) => "...".to_string(),
            (true, false) => format!("{words}; ..."),
            (false, _) => words,
        };
        lines.push(Line {
            branch: format!("{below}{branch}"),
            depth: depth + 1,
            shown: shown.get(cause.link.cause),
            words,
            link: Some(cause.link),
            role: match cause.role {
                Role::Direct => "direct",
                Role::Input => "input",
                Role::Question => "question",
                Role::Background => "background",
            },
            told: cause.told && cause.role != Role::Question,
        });
        let below = format!("{below}{indent}");
        flatten(&cause.causes, &below, depth + 1, shown, lines);
    }
}

/// All links between processes in the past of an event, the latest first.
fn past(history: &History, event: EventId, shown: &mut Shows<'_>) -> Vec<Line> {
    let cut = history.past(event);
    let mut links: Vec<Link> = (0..cut.processes())
        .flat_map(|place| history.causes_between(place, 0, cut.bound(place)))
        .filter(|link| link.cause.process != link.effect.process)
        .collect();
    links.sort_by_key(|link| std::cmp::Reverse((link.effect.number, link.effect.process)));
    let needed: Vec<EventId> = links.iter().map(|link| link.cause).collect();
    shown.read(&needed);
    let mut lines: Vec<Line> = links
        .into_iter()
        .map(|link| Line {
            branch: String::new(),
            depth: 0,
            shown: shown.get(link.cause),
            words: format!(
                "{} at {}",
                word(link.kind, true),
                causes::name(history, link.effect)
            ),
            link: Some(link),
            role: "past",
            told: false,
        })
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.shown.time_ns));
    lines
}

fn print(out: &mut Output, head: &Shown, lines: &[Line], source: &Lines) -> Result<(), Failure> {
    let text = format!("{}  {}  {}", head.name, head.thread, head.text);
    out.line(&out.paint(Style::Bold, &text))?;
    let below = if lines.is_empty() { "" } else { "│" };
    print_source(out, source, head.event, below)?;
    print_lines(out, lines, source)
}

/// Finds source lines. On a terminal, the answer stands there while replay looks
/// for those that are not known yet, and is drawn again with them.
fn lines_meanwhile(
    out: &mut Output,
    wish: &Wish,
    history: &History,
    sites: &[(EventId, Site)],
    draw: impl Fn(&mut Output, &Lines) -> Result<(), Failure>,
) -> Result<Lines, Failure> {
    let known = wish.known(history, sites);
    if !known.is_partial() {
        return Ok(known);
    }
    let draft = out.draft(|out| {
        draw(out, &known)?;
        let note = out.paint(Style::Dim, "(replaying, to find the source lines ...)");
        Ok::<(), Failure>(out.line(&note)?)
    })?;
    let lines = wish.lines(history, sites);
    if let Some(draft) = draft {
        out.take_back(draft)?;
    }
    Ok(lines)
}

/// Where an event's call is in the source, below it.
fn print_source(
    out: &mut Output,
    source: &Lines,
    event: EventId,
    below: &str,
) -> Result<(), Failure> {
    if let Some(call) = source.of(event) {
        let text = format!("{below:<3}  {}", call.text());
        let text = match out.width() {
            Some(width) => cut(&text, width),
            None => text,
        };
        out.line(&out.paint(Style::Dim, &text))?;
    }
    Ok(())
}

fn print_note(out: &mut Output, source: &Lines) -> Result<(), Failure> {
    match source.note() {
        Some(note) => Ok(out.line(&out.paint(Style::Dim, &note))?),
        None => Ok(()),
    }
}

fn print_lines(out: &mut Output, lines: &[Line], source: &Lines) -> Result<(), Failure> {
    let width = |part: fn(&Line) -> usize| lines.iter().map(part).max().unwrap_or(0);
    let name = width(|line| line.branch.chars().count() + line.shown.name.chars().count());
    let thread = width(|line| line.shown.thread.chars().count());
    let text = width(|line| match line.words.is_empty() {
        true => 0,
        false => line.shown.text.chars().count(),
    });
    for line in lines {
        if line.role == "note" {
            out.line(&line.branch)?;
            continue;
        }
        let pad = name - line.branch.chars().count();
        let mut words = line.words.clone();
        if line.told {
            words = match words.is_empty() {
                true => "(told above)".to_string(),
                false => format!("{words} (told above)"),
            };
        }
        let own = Style::Numbered(line.shown.event.process);
        let mut plain = format!(
            "{}{:<pad$}  {:<thread$}  {:<text$}",
            line.branch, line.shown.name, line.shown.thread, line.shown.text
        );
        plain = plain.trim_end().to_string();
        if let Some(width) = out.width() {
            plain = cut(&plain, width);
        }
        let left = out.width().map_or(usize::MAX, |width| {
            width.saturating_sub(plain.chars().count() + 2)
        });
        let words = if words.is_empty() || left < 8 {
            String::new()
        } else {
            let fill = (name + thread + text + 4).saturating_sub(plain.chars().count());
            format!(
                "{:fill$}  {}",
                "",
                out.paint(Style::Dim, &cut(&words, left.saturating_sub(fill).max(8)))
            )
        };
        let painted = plain.replacen(&line.shown.name, &out.paint(own, &line.shown.name), 1);
        out.line(&format!("{painted}{words}"))?;
        let below = line.branch.replace("├─", "│ ").replace("└─", "  ");
        print_source(out, source, line.shown.event, &below)?;
    }
    Ok(())
}

/// A message in the past of an event.
struct Message {
    time_ns: u64,
    from: (EventId, String),
    to: Option<(EventId, String)>,
    data: String,
}

/// The messages inside a cut that fit a pattern, at either end.
fn messages(
    history: &History,
    pattern: events::Pattern,
    past: &Cut,
    strings: usize,
) -> Vec<Message> {
    // By sending and receiving event.
    let mut found: Vec<(EventId, Option<EventId>)> = Vec::new();
    causes::each_match(history, pattern, |place, event, _| {
        let id = EventId::new(place, event.number);
        if !past.has(id) {
            return true;
        }
        let is_message = |link: &Link| matches!(link.kind, Kind::Message | Kind::Count);
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
    let ends: Vec<EventId> = found
        .iter()
        .flat_map(|(from, to)| [Some(*from), *to])
        .flatten()
        .collect();
    let shown = causes::show_all(history, &ends, strings);
    let mut messages: Vec<Message> = found
        .into_iter()
        .map(|(from, to)| {
            let own = |event: EventId| {
                let thread = shown.get(&event).map_or("", |shown| &shown.thread);
                let process = causes::process_name(history, event.process);
                match history.thread_count(event.process) {
                    0 | 1 => process,
                    _ => format!("{process}/{thread}"),
                }
            };
            let shown = match shown.get(&from) {
                Some(shown) => shown.clone(),
                None => causes::show(history, from, strings),
            };
            Message {
                time_ns: shown.time_ns,
                from: (from, own(from)),
                to: to.map(|to| (to, own(to))),
                data: shown.data.unwrap_or(shown.text),
            }
        })
        .collect();
    messages.sort_by_key(|message| (message.time_ns, message.from.0));
    messages
}

fn print_messages(
    out: &mut Output,
    history: &History,
    messages: &[Message],
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let skipped = messages.len().saturating_sub(limit);
    let shown = messages.get(skipped..).unwrap_or(&[]);
    if json {
        for message in shown {
            let to = message.to.as_ref();
            let object = json!({
                "message": message.data,
                "time_ns": message.time_ns,
                "from": message.from.1,
                "sent": causes::name(history, message.from.0),
                "to": to.map(|to| &to.1),
                "received": to.map(|to| causes::name(history, to.0)),
            });
            out.line(&object.to_string())?;
        }
        return Ok(());
    }
    out.line("")?;
    if shown.is_empty() {
        out.line("no message in its past fits the pattern")?;
        return Ok(());
    }
    let count = match skipped {
        0 => format!("{} messages in its past fit the pattern:", messages.len()),
        _ => format!(
            "{} messages in its past fit the pattern; the last {}:",
            messages.len(),
            shown.len()
        ),
    };
    out.line(&count)?;
    let width = |part: fn(&Message) -> usize| shown.iter().map(part).max().unwrap_or(0);
    let from = width(|message| message.from.1.chars().count());
    let data = width(|message| message.data.chars().count());
    let to = width(|message| message.to.as_ref().map_or(0, |to| to.1.chars().count()));
    for message in shown {
        let time = crate::output::seconds(message.time_ns);
        let arrived = match &message.to {
            Some((event, thread)) => {
                let numbers = format!(
                    "{} -> {}",
                    causes::name(history, message.from.0),
                    causes::name(history, *event)
                );
                format!(
                    "{}  {}",
                    out.paint(Style::Numbered(event.process), &format!("{thread:<to$}")),
                    out.paint(Style::Dim, &numbers)
                )
            }
            None => "(under way)".to_string(),
        };
        out.line(&format!(
            "{}  {} ── {:<data$} ─> {arrived}",
            out.paint(Style::Dim, &time),
            out.paint(
                Style::Numbered(message.from.0.process),
                &format!("{:<from$}", message.from.1)
            ),
            message.data,
        ))?;
    }
    Ok(())
}
