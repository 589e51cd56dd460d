//! The `monitor` commands: what the protocol has no packets for.

use ::gdb_remote::{StopReason, ThreadId};
use ::replay::Position;

use super::program::{Program, stop};
use crate::causes;
use crate::failure::Failure;

/// Name, arguments, and what it does.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("when", "", "where the process at hand is, and when"),
    (
        "where",
        "",
        "the cut: where each process is, with gdb's number for it",
    ),
    (
        "goto",
        "EVENT|start|end",
        "moves all processes to the earliest cut that explains an event",
    ),
    (
        "arrange",
        "EVENT|start|end|here",
        "the same, when gdb resumes next, so that it sees that they moved",
    ),
    ("help", "", "this list"),
];

/// Executes a line; what is to be shown.
pub fn execute(program: &mut Program<'_>, line: &str, thread: ThreadId) -> String {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let done = match word {
        "when" => Ok(when(program, thread)),
        "where" => Ok(places(program)),
        "goto" => goto(program, rest, thread).map(|()| {
            format!(
                "{}\ngdb does not know that anything moved: \
                 `maintenance flush register-cache` tells it",
                when(program, thread)
            )
        }),
        "arrange" => arrange(program, rest, thread),
        "help" | "" => Ok(help()),
        _ => Err(match events::nearest(word, COMMANDS.iter().map(|c| c.0)) {
            Some(near) => Failure::new(format!("there is no monitor command `{word}`"))
                .hint(format!("did you mean `{near}`?")),
            None => Failure::new(format!("there is no monitor command `{word}`"))
                .hint("`monitor help` lists them"),
        }),
    };
    done.unwrap_or_else(|failure| failure.words())
}

fn help() -> String {
    let width = COMMANDS
        .iter()
        .map(|(name, arguments, _)| name.len() + arguments.len() + 1)
        .max();
    let mut text = String::new();
    for (name, arguments, about) in COMMANDS {
        let usage = format!("{name} {arguments}");
        text.push_str(&format!("{usage:<0$} {about}\n", width.unwrap_or(0)));
    }
    text
}

fn describe(program: &Program<'_>, i: usize) -> String {
    let Some(seat) = program.seats.get(i) else {
        return String::new();
    };
    let event = seat.at.event();
    let place = match seat.at {
        _ if event > seat.last => "at its end".to_string(),
        Position::Event(_) if event <= seat.first => "at its beginning".to_string(),
        Position::Event(_) => format!("about to do {}:{event}", seat.name),
        Position::Inside(_) => format!("before {}:{event}", seat.name),
    };
    let time = program
        .history
        .look(
            causality::EventId::new(seat.place, event.min(seat.last)),
            |event| program.recording.clock().since_start_ns(event.time),
        )
        .map(|ns| format!(", {}.{:06} s", ns / 1_000_000_000, ns / 1000 % 1_000_000));
    format!("{place}{}", time.unwrap_or_default())
}

fn when(program: &mut Program<'_>, thread: ThreadId) -> String {
    let Some(i) = program.index(thread.pid) else {
        return "there is no such process".to_string();
    };
    let name = program.seats.get(i).map_or("", |seat| seat.name.as_str());
    format!("{name} {}", describe(program, i))
}

fn places(program: &mut Program<'_>) -> String {
    let mut text = String::new();
    let width = program.seats.iter().map(|seat| seat.name.len()).max();
    for i in 0..program.seats.len() {
        let place = describe(program, i);
        let Some(seat) = program.seats.get(i) else {
            continue;
        };
        text.push_str(&format!(
            "{:<width$}  process {:<8} {place}\n",
            seat.name,
            seat.pid,
            width = width.unwrap_or(0),
        ));
    }
    text
}

/// Moves everybody.
fn goto(program: &mut Program<'_>, text: &str, thread: ThreadId) -> Result<(), Failure> {
    match text {
        "" => {
            return Err(Failure::new("an event is missing")
                .hint("write NAME:NUMBER, a pattern, start or end"));
        }
        "start" => {
            for seat in &mut program.seats {
                seat.at = Position::Event(seat.first);
                seat.moved();
            }
        }
        "end" => {
            for seat in &mut program.seats {
                seat.at = Position::Event(seat.last + 1);
                seat.moved();
            }
        }
        text => {
            let event = causes::event(&program.history, text)?;
            let process = program.history.process(event.process);
            let number = process.map_or(0, |process| process.number);
            if program.index_of(number).is_none() {
                return Err(Failure::new(format!(
                    "the process of `{text}` is not served"
                )));
            }
            program.go(number, event.number);
            return Ok(());
        }
    }
    program.lead = program.index(thread.pid).unwrap_or(program.lead);
    Ok(())
}

/// Moves everybody, and has gdb told of it: of the programs and libraries that
/// are others now, then of the stop.
fn arrange(program: &mut Program<'_>, text: &str, thread: ThreadId) -> Result<String, Failure> {
    program.queue.clear();
    program.introduce();
    let before: Vec<Position> = program.seats.iter().map(|seat| seat.at).collect();
    if text != "here"
        && let Err(failure) = goto(program, text, thread)
    {
        // gdb resumes all the same.
        program.queue.push_back(stop(thread, StopReason::Signal(0)));
        return Err(failure);
    }
    for i in 0..program.seats.len() {
        let Ok(seat) = program.here(i) else { continue };
        let moved = before.get(i).is_none_or(|at| *at != seat.at);
        if !moved || seat.is_gone {
            continue;
        }
        let image = seat.image_at(seat.at.event());
        let number = seat.session.thread();
        let changed = std::mem::replace(&mut seat.told, image) != image && seat.is_introduced;
        let id = program.thread_id(i, number);
        if changed {
            let path = program.path_of(i).unwrap_or_default();
            let reason = StopReason::Executed(path);
            program.queue.push_back(stop(id, reason));
        }
        program.queue.push_back(stop(id, StopReason::Libraries));
    }
    let lead = program.lead;
    let number = program.here(lead).map_err(Failure::new)?.session.thread();
    let id = program.thread_id(lead, number);
    program.queue.push_back(stop(id, StopReason::Signal(0)));
    Ok(String::new())
}
