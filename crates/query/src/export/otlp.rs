//! OpenTelemetry spans: a request and its answer on a channel are a span of
//! who asked and, inside it, one of who answered.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use causality::{Channel, EventId, History, Kind};
use protocol::id::ProcessIx;
use serde::Serialize;

use super::Export;
use crate::{names, shown};

struct Span {
    place: ProcessIx,
    trace: u64,
    id: u64,
    parent: Option<u64>,
    client: bool,
    name: String,
    channel: String,
    from: EventId,
    to: EventId,
}

/// An id that is the same in every export of a recording.
fn id(parts: [u64; 3]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for part in parts {
        for byte in part.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash.max(1)
}

/// Uses of channels: sends and receives of each, in order of time.
fn uses(export: &Export<'_>) -> HashMap<(u32, bool), Vec<EventId>> {
    let mut found: HashMap<(u32, bool), Vec<EventId>> = HashMap::new();
    for item in &export.items {
        for used in export.history.uses(item.event) {
            // A send counts when it begins, a receive when it ends.
            let counts = match used.receives {
                true => item.phase != recording::Phase::Start,
                false => item.phase != recording::Phase::End,
            };
            if counts {
                found
                    .entry((used.channel, used.receives))
                    .or_default()
                    .push(item.event);
            }
        }
    }
    found
}

fn spans(export: &Export<'_>) -> Vec<Span> {
    let history = export.history;
    let uses = uses(export);
    let none = Vec::new();
    let mut spans = Vec::new();
    for number in 0..history.channel_count() {
        let Some(channel) = history.channel(number).filter(|channel| channel.forward) else {
            continue;
        };
        let Some(reverse) = channel.reverse else {
            continue;
        };
        let time = |event: &EventId| export.item(*event).map_or(0, |item| item.time_ns);
        let requests = uses.get(&(number, false)).unwrap_or(&none);
        let answers = uses.get(&(reverse, true)).unwrap_or(&none);
        let mut answers = answers.iter().peekable();
        let mut asked: Option<EventId> = None;
        for request in requests {
            while let Some(answer) = answers.next_if(|answer| time(answer) < time(request)) {
                if let Some(from) = asked.take() {
                    pair(history, &channel, from, *answer, &mut spans);
                }
            }
            asked.get_or_insert(*request);
        }
        if let (Some(from), Some(answer)) = (asked, answers.next()) {
            pair(history, &channel, from, *answer, &mut spans);
        }
    }
    spans
}

fn pair(history: &History, channel: &Channel, from: EventId, to: EventId, spans: &mut Vec<Span>) {
    let key = [channel.number.into(), from.process.0.into(), from.number.0];
    let own = id(key);
    let trace = id([own, 1, 2]);
    let name = history
        .look(from, |event| shown::data(event, 24))
        .flatten()
        .unwrap_or_else(|| channel.kind.to_string());
    let words = format!("c{} {}", channel.number, channel.name);
    spans.push(Span {
        place: from.process,
        trace,
        id: own,
        parent: None,
        client: true,
        name: name.clone(),
        channel: words.clone(),
        from,
        to,
    });
    let received = history
        .effects(from)
        .into_iter()
        .find(|l| l.kind == Kind::Message);
    let answered = history
        .causes(to)
        .into_iter()
        .find(|l| l.kind == Kind::Message);
    if let (Some(received), Some(answered)) = (received, answered) {
        let (begin, end) = (received.effect, answered.cause);
        if begin.process == end.process && begin.number <= end.number {
            spans.push(Span {
                place: begin.process,
                trace,
                id: id([own, 3, 4]),
                parent: Some(own),
                client: false,
                name,
                channel: words,
                from: begin,
                to: end,
            });
        }
    }
}

/// A trace as OTLP has it in JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    resource: Resource,
    scope_spans: [ScopeSpans; 1],
}

#[derive(Serialize)]
struct Resource {
    attributes: [Attribute; 2],
}

#[derive(Serialize)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<SpanRecord>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanRecord {
    trace_id: String,
    span_id: String,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: [Attribute; 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
}

#[derive(Serialize)]
struct Attribute {
    key: &'static str,
    value: Text,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    string_value: String,
}

impl Attribute {
    fn new(key: &'static str, string_value: String) -> Attribute {
        Attribute {
            key,
            value: Text { string_value },
        }
    }
}

/// Writes it.
pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    /// What OTLP calls a span of who asks, and of who answers.
    const CLIENT: u8 = 3;
    const SERVER: u8 = 2;
    let history = export.history;
    let host = |place: ProcessIx| {
        let own = history.set().at(place);
        own.map_or(String::new(), |(own, _)| own.manifest().host.clone())
    };
    let mut by_process: BTreeMap<ProcessIx, Vec<SpanRecord>> = BTreeMap::new();
    for span in spans(export) {
        let time = |event: EventId| {
            let date = export.item(event).map_or(0, |item| item.date_ns);
            date.to_string()
        };
        let root = span.parent.unwrap_or(span.id);
        let record = SpanRecord {
            trace_id: format!("{:016x}{:016x}", span.trace, root | 1),
            span_id: format!("{:016x}", span.id),
            name: span.name,
            kind: if span.client { CLIENT } else { SERVER },
            start_time_unix_nano: time(span.from),
            end_time_unix_nano: time(span.to),
            attributes: [
                Attribute::new("mw.channel", span.channel),
                Attribute::new("mw.begin", export.name(span.from)),
                Attribute::new("mw.end", export.name(span.to)),
            ],
            parent_span_id: span.parent.map(|parent| format!("{parent:016x}")),
        };
        by_process.entry(span.place).or_default().push(record);
    }
    let by_process = by_process.into_iter();
    let document = Document {
        resource_spans: by_process
            .map(|(place, spans)| ResourceSpans {
                resource: Resource {
                    attributes: [
                        Attribute::new("service.name", names::process(history, place)),
                        Attribute::new("host.name", host(place)),
                    ],
                },
                scope_spans: [ScopeSpans {
                    scope: Scope { name: "meanwhile" },
                    spans,
                }],
            })
            .collect(),
    };
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}
