//! OpenTelemetry spans: a request and its answer on a channel are a span of
//! who asked and, inside it, one of who answered.

use std::collections::HashMap;
use std::io::{self, Write};

use causality::{Channel, EventId, History, Kind};
use serde_json::{Value, json};

use super::Export;
use crate::causes;

struct Span {
    place: u32,
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
    let key = [channel.number.into(), from.process.into(), from.number];
    let own = id(key);
    let trace = id([own, 1, 2]);
    let name = history
        .look(from, |event| causes::data(event, 24))
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

pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    let recording = history.recording();
    let start = recording.clock().realtime_ns;
    let mut by_process: HashMap<u32, Vec<Value>> = HashMap::new();
    for span in spans(export) {
        let time = |event: EventId| {
            let since = export.item(event).map_or(0, |item| item.time_ns);
            (start + since).to_string()
        };
        let text = |key: &str, value: String| json!({"key": key, "value": {"stringValue": value}});
        let mut object = json!({
            "traceId": format!("{:016x}{:016x}", span.trace, span.id | 1),
            "spanId": format!("{:016x}", span.id),
            "name": span.name,
            "kind": if span.client { 3 } else { 2 },
            "startTimeUnixNano": time(span.from),
            "endTimeUnixNano": time(span.to),
            "attributes": [
                text("mw.channel", span.channel),
                text("mw.begin", causes::name(history, span.from)),
                text("mw.end", causes::name(history, span.to)),
            ],
        });
        if let (Some(parent), Some(map)) = (span.parent, object.as_object_mut()) {
            map.insert("parentSpanId".to_string(), format!("{parent:016x}").into());
            map.insert(
                "traceId".to_string(),
                format!("{:016x}{:016x}", span.trace, parent | 1).into(),
            );
        }
        by_process.entry(span.place).or_default().push(object);
    }
    let mut places: Vec<u32> = by_process.keys().copied().collect();
    places.sort_unstable();
    let resources: Vec<Value> = places
        .into_iter()
        .filter_map(|place| {
            let spans = by_process.remove(&place)?;
            Some(json!({
                "resource": {"attributes": [
                    {"key": "service.name",
                     "value": {"stringValue": causes::process_name(history, place)}},
                    {"key": "host.name",
                     "value": {"stringValue": recording.manifest().host}},
                ]},
                "scopeSpans": [{"scope": {"name": "meanwhile"}, "spans": spans}],
            }))
        })
        .collect();
    writeln!(out, "{}", json!({"resourceSpans": resources}))
}
