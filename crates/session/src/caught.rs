//! Events that are caught.

use std::collections::HashMap;

use events::Matcher;
use protocol::id::{EventNo, ProcessId};
use recording::Timeline;
use recording::render::{Limits, Renderer};

use crate::program::Program;
use crate::{Error, Result};

/// The events that a pattern fits.
#[derive(Clone, Debug)]
pub struct Caught {
    /// As the user wrote it.
    pub text: String,
    /// Those of each process, in order.
    events: HashMap<ProcessId, Vec<EventNo>>,
}

impl Caught {
    /// Finds the events that a pattern, or gdb's words, stand for.
    pub fn find(text: &str, program: &Program) -> Result<Caught> {
        let (history, names) = (program.history(), program.names());
        let (pattern, calls_only) = pattern_of(text)?;
        let parsed = events::parse(&pattern).map_err(|error| Error::Pattern {
            error,
            text: pattern.clone(),
        })?;
        let matcher = Matcher::new(parsed, history, names);
        let recording = history.recording();
        let numbers = recording.processes().iter().map(|p| p.number);
        let mut timeline = Timeline::new(recording, numbers);
        let mut events: HashMap<ProcessId, Vec<EventNo>> = HashMap::new();
        let mut renderer = Renderer::new(recording, names, Limits::default());
        while timeline.advance() {
            let Some(event) = timeline.event() else { break };
            renderer.before(&event);
            if matcher.fits(&event, &renderer) && (!calls_only || event.is_call()) {
                let process = ProcessId::of_first(event.process);
                events
                    .entry(process)
                    .or_default()
                    .push(EventNo(event.number));
            }
            renderer.after(&event);
        }
        for numbers in events.values_mut() {
            numbers.sort_unstable();
        }
        Ok(Caught {
            text: text.to_string(),
            events,
        })
    }

    /// How many there are in all.
    pub fn count(&self) -> usize {
        self.events.values().map(Vec::len).sum()
    }

    fn of(&self, process: ProcessId) -> &[EventNo] {
        self.events.get(&process).map_or(&[], Vec::as_slice)
    }

    pub fn has(&self, process: ProcessId, event: EventNo) -> bool {
        self.of(process).binary_search(&event).is_ok()
    }

    /// The first of them from `event` on.
    pub fn from(&self, process: ProcessId, event: EventNo) -> Option<EventNo> {
        let all = self.of(process);
        all.get(all.partition_point(|e| *e < event)).copied()
    }

    /// The last of them before `event`.
    pub fn before(&self, process: ProcessId, event: EventNo) -> Option<EventNo> {
        let all = self.of(process);
        let after = all.partition_point(|e| *e < event);
        all.get(after.checked_sub(1)?).copied()
    }
}

/// gdb's words for events, as a pattern; and whether only calls are meant.
fn pattern_of(text: &str) -> Result<(String, bool)> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or("");
    let rest: Vec<&str> = words.collect();
    let any = |field: &str| {
        let all: Vec<String> = rest.iter().map(|w| format!("{field} = {w}")).collect();
        all.join(" or ")
    };
    Ok(match first {
        "syscall" if rest.is_empty() => ("number >= 0".to_string(), true),
        "syscall" => (calls(&rest)?, true),
        "vfork" if rest.is_empty() => ("fork".to_string(), false),
        "signal" if rest.is_empty() || rest == ["all"] => ("call = signal".to_string(), false),
        "signal" if rest.iter().all(|w| w.starts_with("SIG")) => {
            (format!("call = signal and ({})", any("arg.signal")), false)
        }
        "crash" if rest.is_empty() => ("call = signal and at = fault".to_string(), false),
        "throw" | "catch" | "rethrow" | "load" | "unload" | "assert" | "exception" | "handlers" => {
            return Err(Error::NotCaught(first.to_string()));
        }
        _ => (text.to_string(), false),
    })
}

/// The pattern for system calls by name or number.
fn calls(names: &[&str]) -> Result<String> {
    let mut all = Vec::new();
    for name in names {
        let row = match name.parse::<u64>() {
            Ok(number) => protocol::table::syscall(number).map(|row| row.name),
            Err(_) => protocol::table::TABLE
                .iter()
                .find(|row| row.name == *name)
                .map(|row| row.name),
        };
        let Some(known) = row else {
            let names = protocol::table::TABLE.iter().map(|row| row.name);
            return Err(Error::NoSyscall {
                name: name.to_string(),
                near: events::nearest(name, names).map(str::to_string),
            });
        };
        all.push(format!("call = {known}"));
    }
    Ok(all.join(" or "))
}
