//! Everything about causes as one JSON document.

use std::io::{self, Write};

use serde::Serialize;

use super::Export;
use crate::link::Link;
use crate::{channels, names};

#[derive(Serialize)]
struct Process<'e> {
    process: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'e str>,
    pid: u32,
    program: &'e str,
    first_event: u64,
    last_event: u64,
}

#[derive(Serialize)]
struct Event<'e> {
    event: String,
    time_ns: u64,
    call: &'e str,
    phase: &'static str,
    text: &'e str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    emits: Vec<&'e str>,
}

/// Writes the elements of a list, one a line.
fn list<T: Serialize>(out: &mut dyn Write, all: impl Iterator<Item = T>) -> io::Result<()> {
    let mut comma = "";
    for one in all {
        write!(out, "{comma}")?;
        serde_json::to_writer(&mut *out, &one)?;
        writeln!(out)?;
        comma = ",";
    }
    Ok(())
}

/// Writes it.
pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    writeln!(out, "{{\"processes\":[")?;
    let processes = history.processes().map(|(place, process)| {
        let (first, last) = history.span(place);
        Process {
            process: names::process(history, place),
            host: export.host(place),
            pid: process.pid,
            program: &process.program,
            first_event: first.0,
            last_event: last.0,
        }
    });
    list(out, processes)?;
    writeln!(out, "],\"channels\":[")?;
    list(out, channels::list(history).into_iter())?;
    writeln!(out, "],\"events\":[")?;
    let events = export.items.iter().map(|item| Event {
        event: export.name(item.event),
        time_ns: item.time_ns,
        call: &item.name,
        phase: item.phase.name(),
        text: &item.text,
        emits: item.emits.iter().map(|(words, _)| words.as_str()).collect(),
    });
    list(out, events)?;
    writeln!(out, "],\"links\":[")?;
    list(
        out,
        export.links.iter().map(|link| Link::new(history, link)),
    )?;
    writeln!(out, "]}}")
}
