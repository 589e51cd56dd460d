//! Commands about what to stop at.

use ::session::Direction;

use super::{Command, Section, Takes};
use crate::failure::Failure;

pub const STOPS: Section = Section {
    title: "What to stop at",
    commands: &[
        Command::new(
            "break",
            "stop at function, file:line or *address; `in NAME`, `if EXPR`",
            |prompt, call| prompt.add_breakpoint(call.name, call.rest),
        )
        .aliases(&["b", "br"])
        .takes(Takes::Function, "PLACE [in NAME] [if EXPR]")
        .example("break main.rs:42 in bank-client-1 if amount > 10"),
        Command::new("tbreak", "the same, once", |prompt, call| {
            prompt.add_breakpoint(call.name, call.rest)
        })
        .aliases(&["tb"])
        .takes(Takes::Function, "PLACE [in NAME] [if EXPR]")
        .example("tbreak main"),
        Command::new(
            "trace",
            "say when a place is passed, without stopping",
            |prompt, call| prompt.add_breakpoint(call.name, call.rest),
        )
        .aliases(&["tp"])
        .takes(Takes::Function, "PLACE|EXPR [in NAME] [if COND]")
        .more("With an expression in place of a function, and a condition over several processes behind `if` (docs/conditions.md): say what it is where that holds")
        .example("trace transfer"),
        Command::new(
            "stop",
            "on to the first state of all processes in which a condition holds; `rev stop if` back to the last",
            |prompt, call| prompt.stop_if(call.rest, Direction::Forwards),
        )
        .takes(Takes::Nothing, "[later] if COND|before PATTERN")
        .more("`continue` and `reverse-continue` then stop there, too; `stop later if` moves nobody now. docs/conditions.md has the language. `before PATTERN`: where somebody is about to do what the pattern fits, and has not done it; `continue` lets it be done")
        .example("stop if value(bank-account-0: total) < 0")
        .moves(),
        Command::new(
            "rule",
            "add a rule, or a name for rules; the word `rule` may be left out",
            |prompt, call| prompt.define(call.rest),
        )
        .takes(Takes::Nothing, "let|state|never|always|find|expect|recognizer|verifier ...")
        .more("docs/conditions.md has the language; `source FILE` reads a file of rules")
        .example("rule never both: value(a-0: x) == 1 and value(b-0: x) == 1"),
        Command::new(
            "switch",
            "of all conditions stop at one only, and tell of the others; without one, at all again",
            |prompt, call| prompt.switch(call.rest),
        )
        .takes(Takes::Nothing, "[NUMBER|RULE]")
        .example("switch 2"),
        Command::new(
            "save",
            "write all conditions and rules to a file, for `source`",
            |prompt, call| prompt.save(call.rest),
        )
        .takes(Takes::Nothing, "FILE")
        .example("save rules.mw"),
        Command::new(
            "watch",
            "stop when a variable changes, and before it going back; `if EXPR`",
            |prompt, call| prompt.watch(call.rest),
        )
        .aliases(&["wa"])
        .takes(Takes::Variable, "EXPR [if EXPR]")
        .example("watch account.balance"),
        Command::new(
            "rwatch",
            "refused: reads leave nothing behind that could be watched",
            |_, _| Err(reads()),
        )
        .takes(Takes::Variable, "EXPR")
        .example("watch balance"),
        Command::new("awatch", "refused, as rwatch", |_, _| Err(reads()))
            .takes(Takes::Variable, "EXPR")
            .example("watch balance"),
        Command::new(
            "handle",
            "refused: signals come as they came; `info signals` shows what the program does with them",
            |_, _| {
                Err(Failure::new(
                    "signals cannot be kept from the program: it gets those it got",
                )
                .hint("`catch signal SIGINT` stops before one; `info signals` shows handlers"))
            },
        )
        .takes(Takes::Nothing, "SIGNAL ...")
        .example("info signals"),
        Command::new(
            "catch",
            "stop before events: a pattern, or syscall, fork, exec, signal, crash ...",
            |prompt, call| prompt.catch(call.rest),
        )
        .takes(Takes::Event, "PATTERN|KIND [NAME]")
        .example("catch send and peer = bank-account-0"),
        Command::new(
            "condition",
            "give a breakpoint another condition, or none",
            |prompt, call| prompt.condition(call.rest),
        )
        .takes(Takes::Nothing, "NUMBER [EXPR]")
        .example("condition 1 amount > 100"),
        Command::new(
            "ignore",
            "pass over a breakpoint so many times",
            |prompt, call| prompt.ignore(call.rest),
        )
        .takes(Takes::Nothing, "NUMBER COUNT")
        .example("ignore 1 10"),
        Command::new(
            "commands",
            "what to do at a breakpoint: the lines that follow, up to `end`",
            |prompt, call| prompt.commands(call.rest),
        )
        .takes(Takes::Nothing, "[NUMBER]")
        .more("Without a number, at the last one made. If the first line is `silent`, the stop itself is not shown")
        .example("commands 1"),
        Command::new("delete", "delete breakpoints, or all", |prompt, call| {
            prompt.change_points(call.name, call.rest)
        })
        .aliases(&["d"])
        .takes(Takes::Nothing, "[NUMBER|FROM-TO ...]")
        .example("delete 1 3-5"),
        Command::new("disable", "do not stop at breakpoints", |prompt, call| {
            prompt.change_points(call.name, call.rest)
        })
        .aliases(&["dis"])
        .takes(Takes::Nothing, "[NUMBER|FROM-TO ...]")
        .example("disable 1"),
        Command::new("enable", "stop at them again", |prompt, call| {
            prompt.change_points(call.name, call.rest)
        })
        .aliases(&["en"])
        .takes(Takes::Nothing, "[NUMBER|FROM-TO ...]")
        .example("enable 1"),
    ],
};

fn reads() -> Failure {
    Failure::new("reads of memory cannot be watched, only changes")
        .hint("`watch EXPR` stops at what changes it, forwards and back")
}
