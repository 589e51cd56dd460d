//! The commands of the prompt. The names are gdb's where gdb has them.

use crate::failure::Failure;

/// A command: its name, shorter ones, what it does, and an example.
pub struct Command {
    pub name: &'static str,
    pub short: &'static [&'static str],
    pub help: &'static str,
    pub example: &'static str,
    /// What may come behind it, for completion.
    pub takes: Takes,
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    Command,
    Process,
    Function,
    Variable,
    Topic,
    Event,
}

macro_rules! commands {
    ($($name:literal $short:tt $takes:ident $help:literal $example:literal)*) => {
        /// All commands.
        pub const COMMANDS: &[Command] = &[$(Command {
            name: $name,
            short: &$short,
            help: $help,
            example: $example,
            takes: Takes::$takes,
        }),*];
    };
}

commands! {
    "processes" ["ps"] Nothing
        "list the processes and where each stands in the cut" "processes"
    "process" ["inferior"] Process
        "take a process at hand" "process bank-coordinator-0"
    "threads" [] Nothing
        "list the threads of the process at hand" "threads"
    "thread" ["t"] Nothing
        "look at a thread of the process at hand" "thread 2"
    "where" [] Nothing
        "show the cut: each process, its position and line" "where"
    "when" [] Nothing
        "say where the process at hand stands in its run" "when"
    "bt" ["backtrace"] Nothing
        "show the stack; `bt 3` its innermost frames, `bt -3` its outermost, `bt full` with variables, `bt all` of all threads" "bt"
    "up" [] Nothing
        "look at the caller's frame" "up"
    "down" [] Nothing
        "look at the called frame" "down"
    "frame" ["f"] Nothing
        "look at a frame by number" "frame 2"
    "list" ["l"] Nothing
        "show the source around the current line, then on" "list"
    "info" ["i"] Topic
        "show locals, args, registers, breakpoints, line ...; `info` alone lists all" "info locals"
    "locals" [] Nothing
        "show the variables of the frame" "locals"
    "args" [] Nothing
        "show the arguments of the frame" "args"
    "print" ["p", "inspect"] Variable
        "show the value of an expression; `p/x` in another form" "print balance + 1"
    "display" [] Variable
        "show the value of an expression now and at each stop" "display balance"
    "undisplay" [] Nothing
        "show it no longer: by number, or all" "undisplay 1"
    "ptype" [] Variable
        "show the type of an expression, with its members" "ptype account"
    "whatis" [] Variable
        "show the name of the type of an expression" "whatis account"
    "x" [] Variable
        "show memory" "x/4xg $rsp"
    "disassemble" ["disas"] Nothing
        "show the instructions from here on" "disassemble"
    "break" ["b", "br"] Function
        "stop at function, file:line or *address; `in NAME`, `if EXPR`"
        "break main.rs:42 in bank-client-1 if amount > 10"
    "tbreak" ["tb"] Function
        "the same, once" "tbreak main"
    "trace" ["tp"] Function
        "say when a place is passed, without stopping" "trace transfer"
    "watch" ["wa"] Variable
        "stop when a variable changes, and before it going back; `if EXPR`" "watch account.balance"
    "rwatch" [] Variable
        "refused: reads leave nothing behind that could be watched" "watch balance"
    "awatch" [] Variable
        "refused, as rwatch" "watch balance"
    "handle" [] Nothing
        "refused: signals come as they came; `info signals` shows what the program does with them"
        "info signals"
    "catch" [] Event
        "stop before events: a pattern, or syscall, fork, exec, signal, crash ..."
        "catch send and peer = bank-account-0"
    "condition" [] Nothing
        "give a breakpoint another condition, or none" "condition 1 amount > 100"
    "ignore" [] Nothing
        "pass over a breakpoint so many times" "ignore 1 10"
    "commands" [] Nothing
        "what to do at a breakpoint: the lines that follow, up to `end`" "commands 1"
    "delete" ["d"] Nothing
        "delete breakpoints, or all" "delete 1 3-5"
    "disable" ["dis"] Nothing
        "do not stop at breakpoints" "disable 1"
    "enable" ["en"] Nothing
        "stop at them again" "enable 1"
    "continue" ["c", "fg"] Nothing
        "run on until something stops the program; `continue N` passes over it N - 1 times, `-only` moves this process alone"
        "continue"
    "reverse-continue" ["rc", "rewind", "rw"] Nothing
        "run back to what stopped the program last, or to the beginning" "reverse-continue"
    "step" ["s"] Nothing
        "to the next line, into functions; `--message` to the next send or receive" "step"
    "next" ["n"] Nothing
        "to the next line, over functions" "next"
    "stepi" ["si"] Nothing
        "one instruction" "stepi"
    "nexti" ["ni"] Nothing
        "one instruction, over calls" "nexti"
    "finish" ["fin", "stepout"] Nothing
        "until the frame returns" "finish"
    "until" ["u", "advance"] Function
        "run to a place" "until main.rs:50"
    "reverse-step" ["rs"] Nothing
        "back to the line before, into functions; `--message` as for step" "reverse-step"
    "reverse-next" ["rn"] Nothing
        "back to the line before, over functions" "reverse-next"
    "reverse-stepi" ["rsi"] Nothing
        "back by one instruction" "reverse-stepi"
    "reverse-nexti" ["rni"] Nothing
        "back by one instruction, over calls" "reverse-nexti"
    "reverse-finish" [] Nothing
        "back to where the frame was called" "reverse-finish"
    "reverse-until" [] Function
        "run back to a place" "reverse-until transfer"
    "reverse" ["rev"] Command
        "the command that follows, backwards" "rev step"
    "goto" [] Event
        "to an event (NAME:NUMBER, a number, or the last that fits a pattern), `start` or `end`"
        "goto bank-client-1:196"
    "run-to" [] Event
        "on to an event of the process at hand: a number, or the next that fits a pattern"
        "run-to send and length > 100"
    "back" [] Nothing
        "to where you were before the last motion" "back"
    "forward" [] Nothing
        "undoes `back`" "forward"
    "why" [] Nothing
        "say what came before this in other processes and threads" "why"
    "mode" [] Nothing
        "how other processes follow: causal, consistent, or not at all (alone)" "mode consistent"
    "checkpoint" [] Nothing
        "name this place, to come back to" "checkpoint"
    "restart" [] Nothing
        "come back to a checkpoint" "restart 1"
    "set" [] Nothing
        "refused: what happened cannot be changed" "set x = 1"
    "echo" [] Nothing
        "print a text" "echo here\\n"
    "source" [] Nothing
        "read commands from a file" "source setup.mw"
    "help" ["h"] Command
        "this list, or what one command does" "help break"
    "quit" ["q", "exit"] Nothing
        "leave" "quit"
}

/// The command that a word, or the beginning of one, stands for.
pub fn find(word: &str) -> Result<&'static Command, Failure> {
    let exact = COMMANDS
        .iter()
        .find(|c| c.name == word || c.short.contains(&word));
    if let Some(found) = exact {
        return Ok(found);
    }
    let begun: Vec<&Command> = COMMANDS
        .iter()
        .filter(|c| c.name.starts_with(word))
        .collect();
    match begun.as_slice() {
        [one] => Ok(one),
        [] => {
            let failure = Failure::new(format!("there is no command `{word}`"));
            Err(
                match events::nearest(word, COMMANDS.iter().map(|c| c.name)) {
                    Some(near) => failure.hint(format!("did you mean `{near}`?")),
                    None => failure.hint("`help` lists them"),
                },
            )
        }
        many => {
            let names: Vec<&str> = many.iter().map(|c| c.name).collect();
            Err(Failure::new(format!(
                "`{word}` is the beginning of {}",
                names.join(", ")
            )))
        }
    }
}
