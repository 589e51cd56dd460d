//! Everything about causes as one JSON document.

use std::io::{self, Write};

use serde_json::json;

use super::Export;
use crate::causes;
use crate::why::link_object;

pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    let recording = history.recording();
    writeln!(out, "{{\"processes\":[")?;
    let mut comma = "";
    for (process, place) in recording.processes().iter().zip(0u32..) {
        let (first, last) = history.span(place);
        let object = json!({"process": process.name, "pid": process.pid, "program": process.program,
            "first_event": first, "last_event": last});
        writeln!(out, "{comma}{object}")?;
        comma = ",";
    }
    writeln!(out, "],\"channels\":[")?;
    comma = "";
    for number in 0..history.channel_count() {
        if let Some(channel) = history.channel(number) {
            writeln!(out, "{comma}{}", crate::channels::object(history, &channel))?;
            comma = ",";
        }
    }
    writeln!(out, "],\"events\":[")?;
    comma = "";
    for item in &export.items {
        let object = json!({"event": causes::name(history, item.event), "time_ns": item.time_ns,
            "call": item.name, "phase": item.phase.name(), "text": item.text});
        writeln!(out, "{comma}{object}")?;
        comma = ",";
    }
    writeln!(out, "],\"links\":[")?;
    comma = "";
    for link in &export.links {
        writeln!(out, "{comma}{}", link_object(history, link))?;
        comma = ",";
    }
    writeln!(out, "]}}")
}
