//! Commands that only a program that is alive understands.

use super::{Command, Section, Takes};

pub const ALIVE: Section = Section {
    title: "Programs that are alive",
    commands: &[
        Command::new(
            "set",
            "give a variable or a register another value",
            |prompt, call| prompt.set(call.rest),
        )
        .takes(Takes::Variable, "[var] PLACE = EXPR")
        .more("Refused for a recording: what happened cannot be changed")
        .example("set var balance = 100"),
        Command::new("call", "call a function of the program", |prompt, call| {
            prompt.call(call.rest)
        })
        .takes(Takes::Function, "FUNCTION(EXPR, ...)")
        .more("Up to six numbers or pointers. The threads of the process run meanwhile")
        .example("call balance_of(3)"),
        Command::new(
            "signal",
            "run on with a signal; `signal 0` without the one that is about to come",
            |prompt, call| prompt.signal(call.rest),
        )
        .takes(Takes::Nothing, "[-only] SIGNAL|0")
        .example("signal SIGUSR1"),
        Command::new("kill", "end a process", |prompt, call| {
            prompt.kill(call.rest)
        })
        .takes(Takes::Process, "[NAME]"),
        Command::new(
            "detach",
            "let a process go, or all, as if nobody had looked",
            |prompt, call| prompt.detach(call.rest),
        )
        .takes(Takes::Process, "[NAME|all]"),
    ],
};
