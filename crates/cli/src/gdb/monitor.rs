//! The `monitor` commands: what the protocol has no packets for.

use ::gdb_remote::StopReason;
use ::replay::Position;
use causality::EventId;
use protocol::id::EventNo;

use super::program::{Program, stop};
use crate::failure::Failure;

/// Name, arguments, and what it does.
const COMMANDS: &[(&str, &str, &str)] = &[
    (
        "when",
        "[INFERIOR]",
        "where a process is, and when; by default the one that stopped last",
    ),
    ("where", "", "the cut: where each process is"),
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
pub fn execute(program: &mut Program, line: &str) -> String {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let done = match word {
        "when" => when(program, rest),
        "where" => Ok(places(program)),
        "goto" => goto(program, rest).map(|()| {
            format!(
                "{}\ngdb does not know that anything moved: \
                 `maintenance flush register-cache` tells it",
                describe(program, program.lead)
            )
        }),
        "arrange" => arrange(program, rest),
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

fn describe(program: &Program, i: usize) -> String {
    let Some(seat) = program.seats.get(i) else {
        return String::new();
    };
    let event = seat.at.event();
    let place = match seat.at {
        _ if event > seat.last => "is at its end".to_string(),
        Position::Event(_) if event <= seat.first => "is at its beginning".to_string(),
        Position::Event(_) => format!("is about to do event {event}"),
        Position::Inside(_) => format!("is before event {event}"),
    };
    let time = program
        .history
        .look(
            EventId::new(seat.place, EventNo(event.min(seat.last))),
            |event| program.recording.clock().since_start_ns(event.time),
        )
        .map(|ns| format!(", {}.{:06} s", ns / 1_000_000_000, ns / 1000 % 1_000_000));
    format!("{} {place}{}", seat.name, time.unwrap_or_default())
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
    for i in 0..program.seats.len() {
        let mark = if i == program.lead { '*' } else { ' ' };
        text.push_str(&format!("{mark} {}\n", describe(program, i)));
    }
    text
}

/// Moves everybody.
fn goto(program: &mut Program, text: &str) -> Result<(), Failure> {
    match text {
        "" => {
            return Err(Failure::new("an event is missing")
                .hint("write NAME:NUMBER, a pattern, start or end"));
        }
        "start" => {
            for seat in &mut program.seats {
                seat.put(seat.beginning());
            }
        }
        "end" => {
            for seat in &mut program.seats {
                seat.put(seat.end());
            }
        }
        text => {
            let event = query::find::event(&program.history, &program.names, text)?;
            let process = program.history.process(event.process);
            let number = process.map(|process| process.number);
            let Some(number) = number.filter(|number| program.index_of(*number).is_some()) else {
                return Err(Failure::new(format!(
                    "the process of `{text}` is not served"
                )));
            };
            program.go(number, event.number.0);
        }
    }
    Ok(())
}

/// Moves everybody, and has gdb told of it: of the programs and libraries that
/// are others now, then of the stop.
fn arrange(program: &mut Program, text: &str) -> Result<String, Failure> {
    program.queue.clear();
    program.introduce();
    let before: Vec<Position> = program.seats.iter().map(|seat| seat.at).collect();
    if text != "here"
        && let Err(failure) = goto(program, text)
    {
        // gdb resumes all the same.
        let here = ::gdb_remote::Target::current(program);
        program.queue.push_back(stop(here, StopReason::Signal(0)));
        return Err(failure);
    }
    for i in 0..program.seats.len() {
        let Ok(seat) = program.here(i) else { continue };
        let moved = before.get(i).is_none_or(|at| *at != seat.at);
        if !moved || seat.is_gone {
            continue;
        }
        let image = seat.image_at(seat.at.event());
        // At the beginning of an image there is no list of libraries yet: gdb
        // is to look for the dynamic linker as it does then.
        let afresh = seat.at.event() == seat.image_begins(seat.at.event());
        let changed = std::mem::replace(&mut seat.told, image) != image || afresh;
        let changed = changed && seat.is_introduced;
        // The first thread: it is the one that stays when others go.
        let number = program.states(i).first().map_or(0, |state| state.number);
        let id = program.thread_id(i, number);
        if changed {
            let path = program.path_of(i).unwrap_or_default();
            let reason = StopReason::Executed(path);
            program.queue.push_back(stop(id, reason));
        }
        program.queue.push_back(stop(id, StopReason::Libraries));
    }
    let id = ::gdb_remote::Target::current(program);
    program.queue.push_back(stop(id, StopReason::Signal(0)));
    Ok(String::new())
}
