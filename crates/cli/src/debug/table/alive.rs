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
        .more("Refused for a recording: what happened cannot be changed. `set time real|logical` is about the program's time, `set time-limit TIME|none` about how long a command may take before it goes on in the background (`jobs`)")
        .example("set var balance = 100")
        .of_now(),
        Command::new("call", "call a function of the program", |prompt, call| {
            prompt.call(call.rest)
        })
        .takes(Takes::Function, "FUNCTION(EXPR, ...)")
        .more("Up to six numbers or pointers. The threads of the process run meanwhile")
        .example("call balance_of(3)")
        .of_now()
        .moves(),
        Command::new(
            "signal",
            "run on with a signal; `signal 0` without the one that is about to come",
            |prompt, call| prompt.signal(call.rest),
        )
        .takes(Takes::Nothing, "[-only] SIGNAL|0")
        .example("signal SIGUSR1")
        .of_now()
        .moves(),
        Command::new(
            "refuse",
            "the call that is about to be made fails instead",
            |prompt, call| prompt.refuse(call.rest),
        )
        .takes(Takes::Nothing, "[ERROR]")
        .more("Of the thread at hand, where `stop before` or `catch syscall` stopped it; it is not made, and the program goes on with the error (EPERM)")
        .example("refuse ECONNRESET")
        .of_now(),
        Command::new(
            "delay",
            "hold the process at hand back while all others run for so long",
            |prompt, call| prompt.delay(call.rest),
        )
        .takes(Takes::Nothing, "TIME")
        .more("Where `stop before` stopped it: what it is about to do comes so much later")
        .example("delay 2s")
        .of_now()
        .moves(),
        Command::new("kill", "end a process", |prompt, call| {
            prompt.kill(call.rest)
        })
        .takes(Takes::Process, "[NAME]")
        .of_now(),
        Command::new(
            "detach",
            "let a process go, or all, as if nobody had looked",
            |prompt, call| prompt.detach(call.rest),
        )
        .takes(Takes::Process, "[--real-time] [NAME|all]")
        .more("The program's time stays behind by what it was halted; with `--real-time` its clocks catch up")
        .of_now(),
    ],
};

pub const HALTING: Section = Section {
    title: "Halting and time",
    commands: &[
        Command::new(
            "halt",
            "say that the program is halted, as it is whenever the prompt waits",
            |prompt, _| prompt.halt(),
        )
        .more("While it runs, Ctrl-C halts it. These commands are for programs under `mw run` or `mw record`")
        .of_now()
        .looks(),
        Command::new(
            "halted",
            "show who stopped when, where, and what the channels hold",
            |prompt, _| prompt.halted(),
        )
        .of_now()
        .looks(),
        Command::new(
            "resume",
            "let all of it run on, until something stops it; `resume 2s` for so long",
            |prompt, call| prompt.resume(call.rest),
        )
        .takes(Takes::Nothing, "[TIME]")
        .example("resume 500ms")
        .of_now()
        .moves(),
        Command::new(
            "exempt",
            "let a process or thread run on when the others are halted",
            |prompt, call| prompt.exempt(call.rest),
        )
        .takes(Takes::Process, "[--off] [NAME|--thread NUMBER|--port N]")
        .more("With `--port`, the processes that serve it; `--off` takes it back")
        .example("exempt --port 8080")
        .of_now(),
        Command::new(
            "time",
            "show the program's time, the real time, and what each halt took",
            |prompt, _| prompt.time(),
        )
        .of_now()
        .looks(),
        Command::new(
            "timeouts",
            "list what is waited for with a time limit; change a limit, or all",
            |prompt, call| prompt.timeouts(call.rest),
        )
        .takes(
            Takes::Nothing,
            "[extend N|all TIME | freeze N|all | thaw N|all | fire N|all | drop N|all]",
        )
        .example("timeouts extend 1 5s")
        .of_now()
        .looks(),
        Command::new(
            "on-timeout",
            "what becomes of a time limit that is over while you step: ask, accept or reject",
            |prompt, call| prompt.set_on_timeout(call.rest),
        )
        .takes(Takes::Nothing, "[ask|accept|reject]")
        .more("With `ask` and `reject` no limit that is waited for when a step begins fires in it: those that are not over go on with what is left, the others stay frozen. With `ask` it is said how to accept them")
        .example("on-timeout ask")
        .of_now(),
    ],
};
