//! The `monitor` commands: what the protocol has no packets for.

use ::gdb_remote::StopReason;
use ::session::Follow;
use ::target::Position;
use protocol::id::ThreadNo;

use super::program::{Program, Told, stop};
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
    (
        "mode",
        "[causal|consistent]",
        "how far other processes follow: as they must, or as they can",
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
        "mode" => mode(program, rest),
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
    };
    let recording = program.group.recording();
    let time = program
        .group
        .history()
        .index_of(served.id)
        .and_then(|ix| {
            let event = causality::EventId::new(ix, event.min(served.last));
            let history = program.group.history();
            history.look(event, |event| recording.clock().since_start_ns(event.time))
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

/// Moves everybody.
fn goto(program: &mut Program, text: &str) -> Result<(), Failure> {
    match text {
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
            let history = program.group.history();
            let event = query::find::event(history, program.group.program().names(), text)?;
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
    Ok(())
}

/// Moves everybody, and has gdb told of it: of the programs and libraries that
/// are others now, then of the stop.
fn arrange(program: &mut Program, text: &str) -> Result<String, Failure> {
    program.queue.clear();
    program.introduce();
    let before: Vec<Position> = (0..program.served.len())
        .map(|i| program.position(i))
        .collect();
    if text != "here"
        && let Err(failure) = goto(program, text)
    {
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
        let states = program.states(i);
        let number = states.first().map_or(ThreadNo(0), |state| state.number);
        let id = program.thread_id(i, number);
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
    Ok(String::new())
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
