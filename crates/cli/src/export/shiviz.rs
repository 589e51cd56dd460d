//! A log for ShiViz: two lines for each event, its text, then its host and its
//! vector clock, which counts the exported events of each host.

use std::io::{self, Write};

use serde_json::Map;

use super::Export;
use crate::causes;

pub fn write(export: &Export<'_>, out: &mut dyn Write) -> io::Result<()> {
    let history = export.history;
    let items = export.linked();
    let count = history.recording().processes().len();
    let mut numbers: Vec<Vec<u64>> = vec![Vec::new(); count];
    for item in &items {
        if let Some(list) = numbers.get_mut(item.event.process as usize) {
            list.push(item.event.number);
        }
    }
    for list in &mut numbers {
        list.sort_unstable();
    }
    for item in items {
        let past = history.past(item.event);
        let mut clock = Map::new();
        for (list, place) in numbers.iter().zip(0u32..) {
            let known = list.partition_point(|number| *number < past.bound(place));
            if known > 0 {
                clock.insert(causes::process_name(history, place), known.into());
            }
        }
        let text = item.text.replace('\n', " ");
        writeln!(out, "{text} ({})", causes::name(history, item.event))?;
        writeln!(
            out,
            "{} {}",
            causes::process_name(history, item.event.process),
            serde_json::Value::Object(clock)
        )?;
    }
    Ok(())
}
