//! A log for ShiViz: two lines for each event, its text, then its host and its
//! vector clock, which counts the exported events of each host.

use std::io::{self, Write};

use protocol::id::{EventNo, ProcessIx};
use serde_json::{Map, Value};

use super::Export;
use crate::names;

/// Writes it.
pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    let items = export.linked();
    let mut numbers: Vec<Vec<EventNo>> = vec![Vec::new(); history.process_count() as usize];
    for item in &items {
        if let Some(list) = numbers.get_mut(item.event.process.index()) {
            list.push(item.event.number);
        }
    }
    for list in &mut numbers {
        list.sort_unstable();
    }
    for item in items {
        let past = history.past(item.event);
        let mut clock = Map::new();
        for (list, place) in numbers.iter().zip((0..).map(ProcessIx)) {
            let known = list.partition_point(|number| *number < past.bound(place));
            if known > 0 {
                clock.insert(names::process(history, place), known.into());
            }
        }
        let text = item.text.replace('\n', " ");
        writeln!(out, "{text} ({})", export.name(item.event))?;
        writeln!(
            out,
            "{} {}",
            names::process(history, item.event.process),
            Value::Object(clock)
        )?;
    }
    Ok(())
}
