//! The `monitor` commands: what the protocol has no packets for.

use std::sync::Arc;

use ::gdb_remote::StopReason;
use ::session::{Direction, Follow};
use ::target::{Cancel, Position};
use instants::{Conditions, Does, Next};

use super::program::{Program, Told, stop};
use crate::failure::Failure;

/// A command of `monitor`.
struct Row {
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    /// It goes back, or asks for what was recorded.
    needs_past: bool,
    /// Does what stands behind it; what is to be shown.
    handler: fn(&mut Program, &str) -> Result<String, Failure>,
}

/// All of them, as `monitor help` lists them.
const COMMANDS: &[Row] = &[
    Row {
        name: "when",
        arguments: "[INFERIOR]",
        summary: "where a process is, and when; by default the one that stopped last",
        needs_past: false,
        handler: when,
    },
    Row {
        name: "where",
        arguments: "",
        summary: "the cut: where each process is",
        needs_past: false,
        handler: |program, _| Ok(places(program)),
    },
    Row {
        name: "goto",
        arguments: "EVENT|start|end|stop if COND",
        summary: "moves all processes to the earliest cut that explains an event",
        needs_past: true,
        handler: |program, text| goto(program, text).map(|said| moved(program, &said)),
    },
    Row {
        name: "arrange",
        arguments: "EVENT|start|end|here|stop if COND",
        summary: "the same, when gdb resumes next, so that it sees that they moved",
        needs_past: false,
        handler: arrange,
    },
    Row {
        name: "stop",
        arguments: "if COND",
        summary: "moves all to the first state from here in which a condition holds (docs/conditions.md)",
        needs_past: true,
        handler: |program, text| stop_if(program, text, false).map(|said| moved(program, &said)),
    },
    Row {
        name: "rstop",
        arguments: "if COND",
        summary: "moves all back to the last state before here in which a condition holds",
        needs_past: true,
        handler: |program, text| stop_if(program, text, true).map(|said| moved(program, &said)),
    },
    Row {
        name: "mode",
        arguments: "[causal|consistent]",
        summary: "how far other processes follow: as they must, or as they can",
        needs_past: true,
        handler: mode,
    },
    Row {
        name: "help",
        arguments: "",
        summary: "this list",
        needs_past: false,
        handler: |_, _| Ok(help()),
    },
];

/// Executes a line; what is to be shown.
pub fn execute(program: &mut Program, line: &str) -> String {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    one(program, word, rest.trim()).unwrap_or_else(|failure| failure.words())
}

fn one(program: &mut Program, word: &str, rest: &str) -> Result<String, Failure> {
    let word = if word.is_empty() { "help" } else { word };
    let Some(row) = COMMANDS.iter().find(|row| row.name == word) else {
        let failure = Failure::new(format!("there is no monitor command `{word}`"));
        let names = COMMANDS.iter().map(|row| row.name);
        return Err(match events::nearest(word, names) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint("`monitor help` lists them"),
        });
    };
    check_time(program, row.needs_past)?;
    (row.handler)(program, rest)
}

/// What is alive has no past.
fn check_time(program: &Program, needs_past: bool) -> Result<(), Failure> {
    match program.alive.is_some() && needs_past {
        true => Err(::session::Error::from(::target::Error::NoPast).into()),
        false => Ok(()),
    }
}

/// What is said when everybody is elsewhere.
fn moved(program: &Program, said: &str) -> String {
    format!(
        "{said}{}\ngdb does not know that anything moved: \
         `maintenance flush register-cache` tells it",
        describe(program, program.lead)
    )
}

fn help() -> String {
    let width = COMMANDS
        .iter()
        .map(|row| row.name.len() + row.arguments.len() + 1)
        .max();
    let mut text = String::new();
    for row in COMMANDS {
        let usage = format!("{} {}", row.name, row.arguments);
        text.push_str(&format!(
            "{usage:<0$} {1}\n",
            width.unwrap_or(0),
            row.summary
        ));
    }
    text
}

fn describe(program: &Program, i: usize) -> String {
    let Some(served) = program.served.get(i) else {
        return String::new();
    };
    let at = program.position(i);
    let event = at.event();
    let place = match at {
        _ if event > served.last => "is at its end".to_string(),
        Position::Event(_) if event <= served.first => "is at its beginning".to_string(),
        Position::Event(_) => format!("is about to do event {event}"),
        Position::Inside(_) => format!("is before event {event}"),
        Position::Halted(_) => "is halted".to_string(),
    };
    let time = program
        .group
        .history()
        .ok()
        .and_then(|history| {
            let ix = history.index_of(served.id)?;
            let event = causality::EventId::new(ix, event.min(served.last));
            history.look(event, |event| history.shown_ns(ix, event.time))
        })
        .map(|ns| format!(", {}.{:06} s", ns / 1_000_000_000, ns / 1000 % 1_000_000));
    format!("{} {place}{}", served.name, time.unwrap_or_default())
}

fn when(program: &mut Program, inferior: &str) -> Result<String, Failure> {
    let i = match inferior {
        "" => program.lead,
        number => {
            // gdb's numbers begin with 1.
            let number: usize = number.parse().map_err(|_| {
                Failure::new(format!("`{number}` is not the number of an inferior"))
            })?;
            let pids = ::gdb_remote::Target::processes(program);
            let pid = number.checked_sub(1).and_then(|n| pids.get(n));
            pid.and_then(|pid| program.index(*pid)).ok_or_else(|| {
                Failure::new(format!("there is no inferior {number} in the recording"))
            })?
        }
    };
    Ok(describe(program, i))
}

fn places(program: &mut Program) -> String {
    let mut text = String::new();
    for i in 0..program.served.len() {
        let mark = if i == program.lead { '*' } else { ' ' };
        text.push_str(&format!("{mark} {}\n", describe(program, i)));
    }
    text
}

/// Everybody to the first state in which a condition holds, or back to the last; says
/// which part held where.
fn stop_if(program: &mut Program, text: &str, back: bool) -> Result<String, Failure> {
    let condition = text.trim().strip_prefix("if").map(str::trim);
    let Some(condition) = condition.filter(|condition| !condition.is_empty()) else {
        return Err(Failure::new("stop if what?")
            .hint("`monitor stop if value(a-0: x) > value(b-0: y)`; see docs/conditions.md"));
    };
    let shared = Arc::clone(program.group.program());
    let mut conditions = Conditions::default();
    let added = conditions.add(&shared, 1, condition, Does::Stop);
    added.map_err(crate::debug::condition_failure)?;
    let direction = match back {
        true => Direction::Backwards,
        false => Direction::Forwards,
    };
    let never = Cancel::new();
    let found = conditions.find(&mut program.group, direction, &never);
    let Next { instant, unknown } = found.map_err(crate::debug::condition_failure)?;
    let Some(instant) = instant else {
        return Err(match unknown.first() {
            Some((_, why)) => Failure::new(format!("it cannot be told from here: {why}")),
            None => Failure::new("there is no such state in this direction"),
        });
    };
    for (process, at) in &instant.goals {
        program.group.place(*process, *at)?;
    }
    if let Some(lead) = program.index_of(instant.lead) {
        program.lead = lead;
    }
    let mut said = String::new();
    for part in instant.fires.iter().flat_map(|fires| &fires.parts) {
        let value = part.value.as_ref().map(|value| format!(" = {value}"));
        said.push_str(&format!("{}{}\n", part.what, value.unwrap_or_default()));
    }
    Ok(said)
}

/// Moves everybody; says what there is to be said of it.
fn goto(program: &mut Program, text: &str) -> Result<String, Failure> {
    let words = text.split_once(char::is_whitespace);
    match words {
        Some(("stop", condition)) => return stop_if(program, condition, false),
        Some(("rstop", condition)) => return stop_if(program, condition, true),
        _ => {}
    }
    match text {
        "stop" | "rstop" => return stop_if(program, "", false),
        "" => {
            return Err(Failure::new("an event is missing")
                .hint("write NAME:NUMBER, a pattern, start or end"));
        }
        "start" | "end" => {
            for i in 0..program.served.len() {
                if let Some(served) = program.served.get(i) {
                    let event = match text {
                        "start" => served.first,
                        _ => served.last.next(),
                    };
                    program.group.place(served.id, Position::Event(event))?;
                }
            }
        }
        text => {
            let history = program.group.history()?;
            let event = query::find::event(history, program.group.program().names()?, text)?;
            let process = history.id_of(event.process);
            let served = process.filter(|process| program.index_of(*process).is_some());
            let Some(process) = served else {
                return Err(Failure::new(format!(
                    "the process of `{text}` is not served"
                )));
            };
            program.go(process, event.number)?;
        }
    }
    Ok(String::new())
}

/// Moves everybody, and has gdb told of it: of the programs and libraries that
/// are others now, then of the stop.
fn arrange(program: &mut Program, text: &str) -> Result<String, Failure> {
    check_time(program, text != "here")?;
    let mut failed = None;
    program.queue.clear();
    program.introduce();
    let before: Vec<Position> = (0..program.served.len())
        .map(|i| program.position(i))
        .collect();
    let said = match text {
        "here" => Ok(String::new()),
        text => goto(program, text),
    };
    let said = said.unwrap_or_else(|failure| {
        failed = Some(failure);
        String::new()
    });
    if let Some(failure) = failed {
        // gdb resumes all the same.
        let here = ::gdb_remote::Target::current(program);
        let told = stop(here, StopReason::Signal(0));
        program.queue.push_back(Told::Stop(told));
        return Err(failure);
    }
    for (i, before) in before.into_iter().enumerate() {
        let is_gone = program.served.get(i).is_none_or(|served| served.is_gone);
        if before == program.position(i) || is_gone {
            continue;
        }
        let Some(image) = program.image_now(i) else {
            continue;
        };
        let Some(served) = program.served.get_mut(i) else {
            continue;
        };
        let (id, is_introduced) = (served.id, served.is_introduced);
        let told = served.told.replace(image);
        // At the beginning of an image there is no list of libraries yet: gdb
        // is to look for the dynamic linker as it does then.
        let event = program.position(i).event();
        let images = program.group.images(id)?;
        let afresh = images.get(image).is_some_and(|span| span.first == event);
        // The first thread: it is the one that stays when others go.
        let id = program.thread_id(i, None);
        if is_introduced && (told.is_some_and(|told| told != image) || afresh) {
            let path = program.path_of(i).unwrap_or_default();
            let reason = StopReason::Executed(path);
            program.queue.push_back(Told::Stop(stop(id, reason)));
        }
        let libraries = stop(id, StopReason::Libraries);
        program.queue.push_back(Told::Stop(libraries));
    }
    let id = ::gdb_remote::Target::current(program);
    let told = stop(id, StopReason::Signal(0));
    program.queue.push_back(Told::Stop(told));
    Ok(said)
}

/// How the others follow.
fn mode(program: &mut Program, text: &str) -> Result<String, Failure> {
    program.follow = match text {
        "causal" => Follow::Causal,
        "consistent" => Follow::Consistent,
        "" => program.follow,
        other => {
            return Err(Failure::new(format!("there is no mode `{other}`"))
                .hint("`causal` or `consistent`"));
        }
    };
    Ok(match program.follow {
        Follow::Causal => "others follow to where they must have come (causal)",
        Follow::Consistent => "others follow as far as they can have come (consistent)",
    }
    .to_string())
}
