//! Trace-event JSON. Flows bind to the slice that encloses their time, so
//! every event is a slice: a call that waited as long as it did, others of no
//! length. Of several hosts, each has a row of its own above its processes, with
//! a slice for as long as anything happened there.

use std::collections::HashSet;
use std::io::{self, Write};

use causality::EventId;
use recording::Phase;
use serde::Serialize;

use super::{Export, Item};
use crate::names;

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

/// Says what a process is called and where it stands.
fn named(writer: &mut Writer<'_>, pid: u32, name: &str, order: u32) -> io::Result<()> {
    let about = |key, args| Trace {
        ph: "M",
        name: key,
        pid,
        args: Some(args),
        ..Trace::default()
    };
    writer.put(&about("process_name", Args::Name { name }))?;
    let order = Args::Order { sort_index: order };
    writer.put(&about("process_sort_index", order))
}

/// The row of a host, where there are several.
fn host(export: &Export<'_>, writer: &mut Writer<'_>, member: u16) -> io::Result<()> {
    let set = export.history.set();
    let places = set.places_of(member);
    let Some(name) = set.name(member).filter(|_| set.is_joined()) else {
        return Ok(());
    };
    // Behind the numbers of all processes.
    let pid = set.len() as u32 + 1 + u32::from(member);
    let name = format!("host {name}");
    named(writer, pid, &name, places.start + u32::from(member))?;
    let own = |item: &&Item| places.contains(&item.event.process.0);
    let times = || export.items.iter().filter(own).map(|item| item.time_ns);
    let (Some(first), Some(last)) = (times().min(), times().max()) else {
        return Ok(());
    };
    writer.put(&Trace {
        ph: "X",
        name: &name,
        cat: Some("host"),
        pid,
        tid: Some(0),
        ts: Some(first as f64 / 1000.0),
        dur: Some((last - first) as f64 / 1000.0),
        ..Trace::default()
    })
}

/// Writes it.
pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut writer = Writer {
        out,
        separator: "\n",
    };
    let micros = |ns: u64| ns as f64 / 1000.0;
    for member in (0u16..).take(history.set().members().len()) {
        host(export, &mut writer, member)?;
    }
    for (place, _) in history.processes() {
        let Some(member) = history.set().member_of(place) else {
            continue;
        };
        let name = names::process(history, place);
        let name = match export.host(place) {
            Some(host) if !name.ends_with(&format!("@{host}")) => format!("{name}@{host}"),
            _ => name,
        };
        // Behind the row of its host.
        let order = place.0 + u32::from(member) + 1;
        named(&mut writer, place.0 + 1, &name, order)?;
    }
    let mut threads = HashSet::new();
    for item in &export.items {
        let place = item.event.process;
        let (pid, tid) = (place.0 + 1, Some(item.thread.0 + 1));
        if threads.insert((place, item.thread)) {
            let name = export.thread_name(place, item.thread);
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
    // A higher event lasts from the first event that it is made of to its own.
    for item in &export.items {
        for (words, began) in &item.emits {
            let start = export
                .item(*began)
                .map_or(item.time_ns, |first| first.time_ns);
            writer.put(&Trace {
                ph: "X",
                name: words,
                cat: Some("emitted"),
                pid: item.event.process.0 + 1,
                tid: Some(item.thread.0 + 1),
                ts: Some(micros(start)),
                dur: Some(micros(item.time_ns.saturating_sub(start))),
                args: Some(Args::Event {
                    event: export.name(item.event),
                    text: words,
                }),
                ..Trace::default()
            })?;
        }
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
