//! Commands that look: at processes, threads and frames; at values and memory.

use super::{Command, Section, Takes};

pub const PROCESSES: Section = Section {
    title: "Processes, threads and frames",
    commands: &[
        Command::new(
            "processes",
            "list the processes and where each stands in the cut",
            |prompt, _| prompt.show_cut(false),
        )
        .aliases(&["ps"])
        .looks(),
        Command::new("process", "take a process at hand", |prompt, call| {
            prompt.process(call.rest)
        })
        .aliases(&["inferior"])
        .takes(Takes::Process, "[NAME]")
        .example("process bank-coordinator-0")
        .looks(),
        Command::new(
            "threads",
            "list the threads of the process at hand",
            |prompt, _| prompt.threads(),
        )
        .looks(),
        Command::new(
            "thread",
            "look at a thread of the process at hand",
            |prompt, call| prompt.thread(call.rest),
        )
        .aliases(&["t"])
        .takes(Takes::Nothing, "[NUMBER|NAME]")
        .example("thread 2")
        .looks(),
        Command::new(
            "where",
            "show the cut: each process, its position and line",
            |prompt, _| prompt.show_cut(true),
        )
        .looks(),
        Command::new(
            "when",
            "say where the process at hand stands in its run",
            |prompt, _| prompt.when(),
        )
        .looks(),
        Command::new(
            "bt",
            "show the stack; `bt 3` its innermost frames, `bt -3` its outermost, `bt full` with variables, `bt all` of all threads",
            |prompt, call| prompt.backtrace(call.rest),
        )
        .aliases(&["backtrace"])
        .takes(Takes::Nothing, "[all] [full] [N|-N]")
        .looks(),
        Command::new("up", "look at the caller's frame, N up", |prompt, call| {
            prompt.move_frame(call.rest, true)
        })
        .takes(Takes::Nothing, "[N]")
        .looks(),
        Command::new("down", "look at the called frame, N down", |prompt, call| {
            prompt.move_frame(call.rest, false)
        })
        .takes(Takes::Nothing, "[N]")
        .looks(),
        Command::new("frame", "look at a frame by number", |prompt, call| {
            prompt.frame(call.rest)
        })
        .aliases(&["f"])
        .takes(Takes::Nothing, "[N]")
        .example("frame 2")
        .looks(),
        Command::new(
            "list",
            "show the source around the current line, then on",
            |prompt, call| prompt.list(call.listed),
        )
        .aliases(&["l"])
        .looks(),
    ],
};

pub const VALUES: Section = Section {
    title: "Values, memory and code",
    commands: &[
        Command::new(
            "info",
            "show locals, args, registers, breakpoints, line ...; `info` alone lists all",
            |prompt, call| prompt.info(call.rest),
        )
        .aliases(&["i"])
        .takes(Takes::Topic, "TOPIC [...]")
        .example("info locals")
        .looks(),
        Command::new("locals", "show the variables of the frame", |prompt, _| {
            prompt.variables(false)
        })
        .looks(),
        Command::new("args", "show the arguments of the frame", |prompt, _| {
            prompt.variables(true)
        })
        .looks(),
        Command::new(
            "print",
            "show the value of an expression; `p/x` in another form",
            |prompt, call| prompt.print(call.rest, call.format),
        )
        .aliases(&["p", "inspect"])
        .takes(Takes::Variable, "EXPR")
        .example("print balance + 1")
        .looks(),
        Command::new(
            "display",
            "show the value of an expression now and at each stop",
            |prompt, call| prompt.display(call.rest, call.format),
        )
        .takes(Takes::Variable, "[EXPR]")
        .more("Alone it shows all that are displayed")
        .example("display balance"),
        Command::new(
            "undisplay",
            "show it no longer: by number, or all",
            |prompt, call| prompt.undisplay(call.rest),
        )
        .takes(Takes::Nothing, "[NUMBER ...]")
        .example("undisplay 1"),
        Command::new(
            "ptype",
            "show the type of an expression, with its members",
            |prompt, call| prompt.ptype(call.rest),
        )
        .takes(Takes::Variable, "EXPR")
        .example("ptype account")
        .looks(),
        Command::new(
            "whatis",
            "show the name of the type of an expression",
            |prompt, call| prompt.whatis(call.rest),
        )
        .takes(Takes::Variable, "EXPR")
        .example("whatis account")
        .looks(),
        Command::new("x", "show memory", |prompt, call| {
            prompt.examine(call.rest, call.format)
        })
        .takes(Takes::Variable, "[ADDRESS]")
        .more("Behind the slash: how many, in which form, of which size, as in gdb. Without an address: from the frame's instruction on")
        .example("x/4xg $rsp")
        .looks(),
        Command::new(
            "disassemble",
            "show the instructions from here on",
            |prompt, _| prompt.disassemble(),
        )
        .aliases(&["disas"])
        .looks(),
    ],
};
