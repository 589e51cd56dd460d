//! Trace-event JSON. Flows bind to the slice that encloses their time, so
//! every event is a slice: a call that waited as long as it did, others of no
//! length.

use std::collections::HashSet;
use std::io::{self, Write};

use causality::EventId;
use recording::Phase;
use serde::Serialize;

use super::{Export, Item};

/// One event of a trace, of whatever kind.
#[derive(Default, Serialize)]
struct Trace<'e> {
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    name: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args<'e>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'e> {
    Name { name: &'e str },
    Order { sort_index: u32 },
    Event { event: String, text: &'e str },
}

struct Writer<'w> {
    out: &'w mut dyn Write,
    separator: &'static str,
}

impl Writer<'_> {
    fn put(&mut self, trace: &Trace<'_>) -> io::Result<()> {
        write!(self.out, "{}", self.separator)?;
        self.separator = ",\n";
        Ok(serde_json::to_writer(&mut *self.out, trace)?)
    }
}

/// Writes it.
pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut writer = Writer {
        out,
        separator: "\n",
    };
    for (place, process) in history.processes() {
        let about = |name, args| Trace {
            ph: "M",
            name,
            pid: place.0 + 1,
            args: Some(args),
            ..Trace::default()
        };
        let name = Args::Name {
            name: &process.name,
        };
        let order = Args::Order {
            sort_index: place.0,
        };
        writer.put(&about("process_name", name))?;
        writer.put(&about("process_sort_index", order))?;
    }
    let micros = |ns: u64| ns as f64 / 1000.0;
    let mut threads = HashSet::new();
    for item in &export.items {
        let place = item.event.process;
        let (pid, tid) = (place.0 + 1, Some(item.thread.0 + 1));
        if threads.insert((place, item.thread))
            && let Some(process) = history.process(place)
        {
            let name = export.names.thread(process.number, item.thread.0);
            writer.put(&Trace {
                ph: "M",
                name: "thread_name",
                pid,
                tid,
                args: Some(Args::Name { name: &name }),
                ..Trace::default()
            })?;
        }
        // A call that returned is drawn at its end, from its start.
        let start = match (item.phase, item.started) {
            (Phase::End, Some(started)) => export
                .item(EventId::new(place, started))
                .map_or(item.time_ns, |start| start.time_ns),
            _ => item.time_ns,
        };
        writer.put(&Trace {
            ph: "X",
            name: &item.name,
            cat: Some("event"),
            pid,
            tid,
            ts: Some(micros(start)),
            dur: Some(micros(item.time_ns - start.min(item.time_ns))),
            args: Some(Args::Event {
                event: export.name(item.event),
                text: &item.text,
            }),
            ..Trace::default()
        })?;
    }
    for (id, link) in export.links.iter().enumerate() {
        let (Some(cause), Some(effect)) = (export.item(link.cause), export.item(link.effect))
        else {
            continue;
        };
        let flow = |item: &Item, ph, bp| Trace {
            ph,
            bp,
            id: Some(id),
            name: link.kind.name(),
            cat: Some("link"),
            pid: item.event.process.0 + 1,
            tid: Some(item.thread.0 + 1),
            ts: Some(micros(item.time_ns)),
            ..Trace::default()
        };
        writer.put(&flow(cause, "s", None))?;
        writer.put(&flow(effect, "f", Some("e")))?;
    }
    writeln!(writer.out, "\n]}}")
}
