//! Events that are caught.

use std::collections::HashMap;

use events::Matcher;
use protocol::id::{EventNo, ProcessId};
use protocol::names::signal_number;
use recording::Timeline;
use recording::render::{Limits, Renderer};

use target::{Calls, Catches};

use crate::program::Program;
use crate::{Error, Result};

/// The events that a pattern fits.
#[derive(Clone, Debug)]
pub struct Caught {
    /// As the user wrote it.
    pub text: String,
    /// Those of each process, in order.
    events: HashMap<ProcessId, Vec<EventNo>>,
    /// In a program that is alive: what is caught when it happens.
    alive: Option<Catches>,
    /// Of calls, those that may become events that fit this.
    attempted: Option<events::Pattern>,
}

impl Caught {
    /// Finds the events that a pattern, or gdb's words, stand for.
    pub fn find(text: &str, program: &Program) -> Result<Caught> {
        if program.is_alive() {
            return Ok(Caught {
                text: text.to_string(),
                events: HashMap::new(),
                alive: Some(catches(text)?),
                attempted: None,
            });
        }
        let (history, names) = (program.history()?, program.names()?);
        let (pattern, calls_only) = pattern_of(text)?;
        let parsed = events::parse(&pattern).map_err(|error| Error::Pattern {
            error,
            text: pattern.clone(),
        })?;
        let matcher = Matcher::new(parsed, history, names);
        let mut events: HashMap<ProcessId, Vec<EventNo>> = HashMap::new();
        // Each process has its own list: members can be read one after the other.
        for (recording, member) in history.set().members().zip(0u16..) {
            let numbers = recording.processes().iter().map(|p| p.number);
            let mut timeline = Timeline::new(recording, numbers);
            let mut renderer = Renderer::new(recording, &names.member(member), Limits::default());
            while timeline.advance() {
                let Some(event) = timeline.event() else { break };
                renderer.before(&event);
                if let Some(id) = history.event_of(member, &event)
                    && matcher.fits_as(id, &event, &renderer)
                    && (!calls_only || event.is_call())
                {
                    let process = event.process.of_member(member);
                    events.entry(process).or_default().push(id.number);
                }
                renderer.after(&event);
            }
        }
        for numbers in events.values_mut() {
            numbers.sort_unstable();
        }
        Ok(Caught {
            text: text.to_string(),
            events,
            alive: None,
            attempted: None,
        })
    }

    /// Catches what a pattern fits before it is done: in a program that is alive, the calls
    /// that may become such events; of a recording that is where events are caught anyway.
    pub fn attempts(text: &str, program: &Program) -> Result<Caught> {
        if !program.is_alive() {
            return Caught::find(text, program);
        }
        let pattern = events::parse(text).map_err(|error| Error::Pattern {
            error,
            text: text.to_string(),
        })?;
        let calls = Calls::These(events::calls_of(&pattern));
        Ok(Caught {
            text: text.to_string(),
            events: HashMap::new(),
            alive: Some(Catches {
                calls,
                ..Catches::default()
            }),
            attempted: Some(pattern),
        })
    }

    /// See [`Caught::attempts`].
    pub(crate) fn attempted(&self) -> Option<&events::Pattern> {
        self.attempted.as_ref()
    }

    /// How many there are in all.
    pub fn count(&self) -> usize {
        self.events.values().map(Vec::len).sum()
    }

    fn of(&self, process: ProcessId) -> &[EventNo] {
        self.events.get(&process).map_or(&[], Vec::as_slice)
    }

    /// What is caught in a program that is alive.
    pub fn alive(&self) -> Option<&Catches> {
        self.alive.as_ref()
    }

    /// Whether there is any in a process.
    pub fn is_in(&self, process: ProcessId) -> bool {
        self.alive.is_some() || self.from(process, EventNo(0)).is_some()
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

/// What words stand for in a program that is alive: what the kernel tells as it
/// happens.
fn catches(text: &str) -> Result<Catches> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or("");
    let rest: Vec<&str> = words.collect();
    let mut found = Catches::default();
    let signals = |names: &[&str]| {
        names.iter().try_fold(0u64, |mask, name| {
            let upper = name.to_ascii_uppercase();
            let number = signal_number(&upper).or_else(|| upper.parse().ok());
            let number = number.filter(|number| (1..=64).contains(number));
            let number = number.ok_or_else(|| Error::NotCaughtAlive(text.to_string()))?;
            Ok::<u64, Error>(mask | 1 << (number - 1))
        })
    };
    match first {
        "syscall" if rest.is_empty() => found.calls = Calls::All,
        "syscall" => {
            let rows = rest.iter().map(|name| Ok(u64::from(call(name)?.nr)));
            found.calls = Calls::These(rows.collect::<Result<_>>()?);
        }
        "fork" | "vfork" if rest.is_empty() => found.forks = true,
        "exec" if rest.is_empty() => found.execs = true,
        "signal" if rest.is_empty() || rest == ["all"] => found.signals = u64::MAX,
        "signal" => found.signals = signals(&rest)?,
        // Segmentation fault, bus error, illegal instruction, arithmetic, abort.
        "crash" if rest.is_empty() => {
            found.signals = signals(&["SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"])?;
        }
        _ => return Err(Error::NotCaughtAlive(text.to_string())),
    }
    Ok(found)
}

/// The row of a system call, by name or number.
fn call(name: &str) -> Result<&'static protocol::syscall::Syscall> {
    let row = match name.parse::<u64>() {
        Ok(number) => protocol::table::syscall(number),
        Err(_) => protocol::table::TABLE.iter().find(|row| row.name == name),
    };
    row.ok_or_else(|| {
        let names = protocol::table::TABLE.iter().map(|row| row.name);
        Error::NoSyscall {
            name: name.to_string(),
            near: events::nearest(name, names).map(str::to_string),
        }
    })
}

/// The pattern for system calls by name or number.
fn calls(names: &[&str]) -> Result<String> {
    let all = names
        .iter()
        .map(|name| Ok(format!("call = {}", call(name)?.name)));
    Ok(all.collect::<Result<Vec<_>>>()?.join(" or "))
}
