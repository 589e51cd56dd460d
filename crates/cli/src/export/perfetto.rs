//! Trace-event JSON. Flows bind to the slice that encloses their time, so
//! every event is a slice: a call that waited as long as it did, others of no
//! length.

use std::collections::HashMap;
use std::io::{self, Write};

use recording::Phase;
use serde_json::json;

use super::Export;
use crate::causes;

pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    let recording = history.recording();
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut first = true;
    let mut put = |value: serde_json::Value| -> io::Result<()> {
        let comma = if std::mem::take(&mut first) {
            "\n"
        } else {
            ",\n"
        };
        write!(out, "{comma}{value}")
    };
    let mut threads: HashMap<(u32, u32), ()> = HashMap::new();
    for (process, place) in recording.processes().iter().zip(0u32..) {
        put(json!({"ph": "M", "name": "process_name", "pid": place + 1,
            "args": {"name": process.name}}))?;
        put(
            json!({"ph": "M", "name": "process_sort_index", "pid": place + 1,
            "args": {"sort_index": place}}),
        )?;
    }
    let micros = |ns: u64| ns as f64 / 1000.0;
    for item in &export.items {
        let (place, thread) = (item.event.process, item.thread);
        if threads.insert((place, thread), ()).is_none()
            && let Some(process) = history.process(place)
        {
            let name = recording.thread_name(process.number, thread);
            put(
                json!({"ph": "M", "name": "thread_name", "pid": place + 1, "tid": thread + 1,
                "args": {"name": name}}),
            )?;
        }
        // A call that returned is drawn at its end, from its start.
        let start = match (item.phase, item.started) {
            (Phase::End, Some(started)) => export
                .item(causality::EventId::new(place, started))
                .map_or(item.time_ns, |start| start.time_ns),
            _ => item.time_ns,
        };
        put(
            json!({"ph": "X", "name": item.name, "cat": "event", "pid": place + 1,
            "tid": thread + 1, "ts": micros(start), "dur": micros(item.time_ns - start.min(item.time_ns)),
            "args": {"event": causes::name(history, item.event), "text": item.text}}),
        )?;
    }
    for (id, link) in export.links.iter().enumerate() {
        let (Some(cause), Some(effect)) = (export.item(link.cause), export.item(link.effect))
        else {
            continue;
        };
        let at = |item: &super::Item| {
            (
                item.event.process + 1,
                item.thread + 1,
                micros(item.time_ns),
            )
        };
        let (pid, tid, ts) = at(cause);
        put(
            json!({"ph": "s", "id": id, "name": link.kind.name(), "cat": "link",
            "pid": pid, "tid": tid, "ts": ts}),
        )?;
        let (pid, tid, ts) = at(effect);
        put(
            json!({"ph": "f", "bp": "e", "id": id, "name": link.kind.name(), "cat": "link",
            "pid": pid, "tid": tid, "ts": ts}),
        )?;
    }
    writeln!(out, "\n]}}")
}
