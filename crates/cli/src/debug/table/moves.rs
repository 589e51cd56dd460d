//! Commands that move: forwards, backwards, to any place.

use ::session::{Direction, How};
use ::target::ONE_INSTRUCTION;

use super::super::commands::number;
use super::{Command, Section, Takes};

use Direction::{Backwards, Forwards};

pub const FORWARDS: Section = Section {
    title: "Forwards",
    commands: &[
        Command::new(
            "continue",
            "run on until something stops the program; `continue N` passes over it N - 1 times, `-only` moves this process alone, `-only server-*` those of that name",
            |prompt, call| prompt.run_on(call.rest, Forwards),
        )
        .aliases(&["c", "fg"])
        .takes(Takes::Nothing, "[-only [NAME]] [N]")
        .moves(),
        Command::new(
            "step",
            "to the next line, into functions; `--message` to the next send or receive",
            |prompt, call| prompt.step(call.rest, Forwards),
        )
        .aliases(&["s"])
        .takes(Takes::Nothing, "[-only] [N] | --message")
        .moves(),
        Command::new("next", "to the next line, over functions", |prompt, call| {
            prompt.repeat(call.rest, How::Line { into: false }, Forwards)
        })
        .aliases(&["n"])
        .takes(Takes::Nothing, "[-only] [N]")
        .moves(),
        Command::new("stepi", "one instruction", |prompt, call| {
            prompt.repeat(call.rest, How::Instructions(ONE_INSTRUCTION), Forwards)
        })
        .aliases(&["si"])
        .takes(Takes::Nothing, "[-only] [N]")
        .moves(),
        Command::new("nexti", "one instruction, over calls", |prompt, call| {
            prompt.repeat(call.rest, How::NextInstruction, Forwards)
        })
        .aliases(&["ni"])
        .takes(Takes::Nothing, "[-only] [N]")
        .moves(),
        Command::new("finish", "until the frame returns", |prompt, call| {
            prompt.finish(call.rest, Forwards)
        })
        .aliases(&["fin", "stepout"])
        .takes(Takes::Nothing, "[-only]")
        .moves(),
        Command::new("until", "run to a place", |prompt, call| {
            prompt.until(call.name, call.rest, Forwards)
        })
        .aliases(&["u", "advance"])
        .takes(Takes::Function, "[-only] PLACE")
        .example("until main.rs:50")
        .moves(),
        Command::new(
            "run-to",
            "on to an event of the process at hand: a number, or the next that fits a pattern",
            |prompt, call| prompt.run_to(call.rest, false),
        )
        .takes(Takes::Event, "[-only] NUMBER|PATTERN")
        .example("run-to send and length > 100")
        .of_past()
        .moves(),
    ],
};

pub const BACKWARDS: Section = Section {
    title: "Backwards",
    commands: &[
        Command::new(
            "reverse-continue",
            "run back to what stopped the program last, or to the beginning",
            |prompt, call| prompt.run_on(call.rest, Backwards),
        )
        .aliases(&["rc", "rewind", "rw"])
        .takes(Takes::Nothing, "[-only] [N]")
        .of_past()
        .moves(),
        Command::new(
            "reverse-step",
            "back to the line before, into functions; `--message` as for step",
            |prompt, call| prompt.step(call.rest, Backwards),
        )
        .aliases(&["rs"])
        .takes(Takes::Nothing, "[-only] [N] | --message")
        .of_past()
        .moves(),
        Command::new(
            "reverse-next",
            "back to the line before, over functions",
            |prompt, call| prompt.repeat(call.rest, How::Line { into: false }, Backwards),
        )
        .aliases(&["rn"])
        .takes(Takes::Nothing, "[-only] [N]")
        .of_past()
        .moves(),
        Command::new(
            "reverse-stepi",
            "back by one instruction",
            |prompt, call| prompt.repeat(call.rest, How::Instructions(ONE_INSTRUCTION), Backwards),
        )
        .aliases(&["rsi"])
        .takes(Takes::Nothing, "[-only] [N]")
        .of_past()
        .moves(),
        Command::new(
            "reverse-nexti",
            "back by one instruction, over calls",
            |prompt, call| prompt.repeat(call.rest, How::NextInstruction, Backwards),
        )
        .aliases(&["rni"])
        .takes(Takes::Nothing, "[-only] [N]")
        .of_past()
        .moves(),
        Command::new(
            "reverse-finish",
            "back to where the frame was called",
            |prompt, call| prompt.finish(call.rest, Backwards),
        )
        .takes(Takes::Nothing, "[-only]")
        .of_past()
        .moves(),
        Command::new("reverse-until", "run back to a place", |prompt, call| {
            prompt.until(call.name, call.rest, Backwards)
        })
        .takes(Takes::Function, "[-only] PLACE")
        .example("reverse-until transfer")
        .of_past()
        .moves(),
        Command::new(
            "reverse",
            "the command that follows, backwards",
            |prompt, call| prompt.reverse(call.rest),
        )
        .aliases(&["rev"])
        .takes(Takes::Command, "COMMAND [...]")
        .more("One of step, next, stepi, nexti, finish, until, run-to, stop and continue")
        .example("rev step")
        .of_past()
        .moves(),
    ],
};

pub const ANYWHERE: Section = Section {
    title: "To any place",
    commands: &[
        Command::new(
            "goto",
            "to an event (NAME:NUMBER, a number, or the last that fits a pattern), `start` or `end`; to a cut of several",
            |prompt, call| prompt.goto(call.rest),
        )
        .takes(Takes::Event, "[-only] EVENT|PATTERN|start|end | cut NAME:NUMBER ...")
        .more("`goto cut` takes everybody right behind the events that are named, and the others only as far as that needs them")
        .example("goto bank-client-1:196")
        .of_past()
        .moves(),
        Command::new(
            "live",
            "back to the program as it is now, from its past",
            |prompt, _| prompt.live(),
        )
        .more("A program that is alive and recorded has a past: what goes back leads there, into what was recorded so far"),
        Command::new(
            "back",
            "to where you were before the last motion",
            |prompt, _| prompt.travel_history(true),
        ),
        Command::new("forward", "undoes `back`", |prompt, _| {
            prompt.travel_history(false)
        }),
        Command::new(
            "why",
            "say what came before this in other processes and threads",
            |prompt, _| prompt.why(),
        )
        .of_past()
        .looks(),
        Command::new(
            "mode",
            "how other processes follow: causal, consistent, or not at all (alone)",
            |prompt, call| prompt.mode(call.rest),
        )
        .takes(Takes::Nothing, "[causal|consistent|alone]")
        .example("mode consistent"),
        Command::new(
            "checkpoint",
            "name this place, to come back to",
            |prompt, _| prompt.checkpoint(),
        ),
        Command::new("restart", "come back to a checkpoint", |prompt, call| {
            prompt.restart(number(call.rest)?)
        })
        .takes(Takes::Nothing, "NUMBER")
        .example("restart 1"),
    ],
};
