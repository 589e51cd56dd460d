//! Where a process is to stop, as the user said it: breakpoints, watched
//! variables, events that are caught.

use std::collections::HashMap;

use ::replay::Watch;
use causality::History;
use inspect::value::Value;
use query::{Names, find};

use crate::failure::Failure;

/// Something to stop at. All have one row of numbers.
pub struct Point {
    pub number: u32,
    pub kind: Kind,
    /// In which process, by name, or in all of which program.
    pub program: Option<String>,
    pub condition: Option<String>,
    pub temporary: bool,
    pub enabled: bool,
    /// Says that it was passed, and does not stop.
    pub traces: bool,
    pub hits: u64,
    /// So many times it is passed over yet.
    pub ignore: u64,
    /// What is done when it is come to.
    pub commands: Vec<String>,
}

pub enum Kind {
    /// A place in the code, as the user wrote it.
    Break(String),
    Watch(Watched),
    Catch(Caught),
}

/// A variable, or whatever else is in memory, that is watched.
pub struct Watched {
    /// As the user wrote it.
    pub text: String,
    /// Only there it means something: the process, and its image.
    pub process: u32,
    pub image: usize,
    pub value: Value,
    pub pieces: Vec<Watch>,
    /// The frame that it is a variable of.
    pub frame: Option<FrameOf>,
    /// What it was when it was last looked at.
    pub shown: String,
}

/// A frame, known by what does not change as long as it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameOf {
    pub thread: u32,
    pub cfa: u64,
    pub function: Option<String>,
    /// Where its function begins, and where it returns to.
    pub begins: Option<u64>,
    pub returns: Option<(u64, u64)>,
}

/// Events that are caught.
pub struct Caught {
    /// As the user wrote it.
    pub text: String,
    /// Those of each process, by its number, in order.
    events: HashMap<u32, Vec<u64>>,
}

impl Point {
    pub fn text(&self) -> &str {
        match &self.kind {
            Kind::Break(text) => text,
            Kind::Watch(watched) => &watched.text,
            Kind::Catch(caught) => &caught.text,
        }
    }

    /// As `info breakpoints` has it.
    pub fn lines(&self) -> Vec<String> {
        let what = match self.kind {
            Kind::Break(_) if self.traces => "trace ",
            Kind::Break(_) => "",
            Kind::Watch(_) => "watch ",
            Kind::Catch(_) => "catch ",
        };
        let mut line = format!("{:<4} {what}{}", self.number, self.text());
        if let Some(program) = &self.program {
            line.push_str(&format!(" in {program}"));
        }
        if let Some(condition) = &self.condition {
            line.push_str(&format!(" if {condition}"));
        }
        for (is_so, word) in [(self.temporary, "once"), (!self.enabled, "disabled")] {
            if is_so {
                line.push_str(&format!(" ({word})"));
            }
        }
        line.push_str(&format!(", hit {} times", self.hits));
        if self.ignore > 0 {
            line.push_str(&format!(", the next {} ignored", self.ignore));
        }
        let commands = self.commands.iter().map(|c| format!("        {c}"));
        std::iter::once(line).chain(commands).collect()
    }
}

impl Caught {
    /// Finds the events that a pattern, or gdb's words, stand for.
    pub fn find(text: &str, history: &History, names: &Names) -> Result<Caught, Failure> {
        let (pattern, calls_only) = pattern_of(text)?;
        let mut events: HashMap<u32, Vec<u64>> = HashMap::new();
        let pattern = find::pattern(&pattern)?;
        find::each_match(history, names, pattern, |_, event| {
            if !calls_only || event.is_call() {
                events.entry(event.process).or_default().push(event.number);
            }
            true
        });
        for numbers in events.values_mut() {
            numbers.sort_unstable();
        }
        Ok(Caught {
            text: text.to_string(),
            events,
        })
    }

    pub fn count(&self) -> usize {
        self.events.values().map(Vec::len).sum()
    }

    pub fn has(&self, process: u32, event: u64) -> bool {
        let all = self.events.get(&process);
        all.is_some_and(|all| all.binary_search(&event).is_ok())
    }

    /// The first of them from `event` on.
    pub fn from(&self, process: u32, event: u64) -> Option<u64> {
        let all = self.events.get(&process)?;
        all.get(all.partition_point(|e| *e < event)).copied()
    }

    /// The last of them before `event`.
    pub fn before(&self, process: u32, event: u64) -> Option<u64> {
        let all = self.events.get(&process)?;
        let after = all.partition_point(|e| *e < event);
        all.get(after.checked_sub(1)?).copied()
    }
}

/// gdb's words for events, as a pattern; and whether only calls are meant.
fn pattern_of(text: &str) -> Result<(String, bool), Failure> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or("");
    let rest: Vec<&str> = words.collect();
    let any = |field: &str| {
        let all: Vec<String> = rest.iter().map(|w| format!("{field} = {w}")).collect();
        all.join(" or ")
    };
    Ok(match first {
        "syscall" if rest.is_empty() => ("number >= 0".to_string(), true),
        "syscall" => {
            for name in &rest {
                let number = name.parse::<u64>();
                let known = match number {
                    Ok(number) => protocol::table::syscall(number).is_some(),
                    Err(_) => protocol::table::TABLE.iter().any(|s| s.name == *name),
                };
                if !known {
                    let names = protocol::table::TABLE.iter().map(|s| s.name);
                    let failure = Failure::new(format!("there is no system call `{name}`"));
                    return Err(match events::nearest(name, names) {
                        Some(near) => failure.hint(format!("did you mean `{near}`?")),
                        None => failure.hint("`mw syscalls` lists them"),
                    });
                }
            }
            let names: Vec<String> = rest
                .iter()
                .map(|name| {
                    let row = name.parse().ok().and_then(protocol::table::syscall);
                    format!("call = {}", row.map_or(*name, |row| row.name))
                })
                .collect();
            (names.join(" or "), true)
        }
        "vfork" if rest.is_empty() => ("fork".to_string(), false),
        "signal" if rest.is_empty() || rest == ["all"] => ("call = signal".to_string(), false),
        "signal" if rest.iter().all(|w| w.starts_with("SIG")) => {
            (format!("call = signal and ({})", any("arg.signal")), false)
        }
        "crash" if rest.is_empty() => ("call = signal and at = fault".to_string(), false),
        "throw" | "catch" | "rethrow" | "load" | "unload" | "assert" | "exception" | "handlers" => {
            return Err(Failure::new(format!("`{first}` cannot be caught"))
                .hint("`break __cxa_throw` stops where C++ throws; `catch send` at events"));
        }
        _ => (text.to_string(), false),
    })
}
