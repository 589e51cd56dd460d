//! What can be typed at the prompt. The names are gdb's where gdb has them.

use ::replay::Position;
use inspect::examine::Format;
use inspect::frames::Frame;
use inspect::print::{PrintOptions, Printer, backtrace};
use inspect::{Inspector, types};

use super::debugger::{Debugger, Mode, Why};
use crate::causes;
use crate::failure::Failure;

/// Whether the prompt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    More,
    Quit,
}

/// A command: its name, shorter ones, what it does, and an example.
pub struct Command {
    pub name: &'static str,
    short: &'static [&'static str],
    help: &'static str,
    example: &'static str,
}

const fn command(
    name: &'static str,
    short: &'static [&'static str],
    help: &'static str,
    example: &'static str,
) -> Command {
    Command {
        name,
        short,
        help,
        example,
    }
}

/// All commands.
pub const COMMANDS: &[Command] = &[
    command(
        "processes",
        &["ps"],
        "list the processes and where each stands in the cut",
        "processes",
    ),
    command(
        "process",
        &[],
        "take a process at hand",
        "process bank-coordinator-0",
    ),
    command(
        "threads",
        &[],
        "list the threads of the process at hand",
        "threads",
    ),
    command(
        "thread",
        &["t"],
        "look at a thread of the process at hand",
        "thread 2",
    ),
    command(
        "where",
        &[],
        "show the cut: each process, its position and line",
        "where",
    ),
    command(
        "bt",
        &["backtrace"],
        "show the stack; `bt all` of all threads",
        "bt",
    ),
    command("up", &[], "look at the caller's frame", "up"),
    command("down", &[], "look at the called frame", "down"),
    command("frame", &["f"], "look at a frame by number", "frame 2"),
    command(
        "list",
        &["l"],
        "show the source around the current line",
        "list",
    ),
    command(
        "info",
        &["i"],
        "show locals, args, registers, breakpoints or checkpoints",
        "info locals",
    ),
    command("locals", &[], "show the variables of the frame", "locals"),
    command("args", &[], "show the arguments of the frame", "args"),
    command(
        "print",
        &["p"],
        "show the value of an expression",
        "print balance + 1",
    ),
    command(
        "ptype",
        &[],
        "show the type of an expression",
        "ptype account",
    ),
    command("x", &[], "show memory", "x/4xg $rsp"),
    command(
        "disassemble",
        &[],
        "show the instructions from here on",
        "disassemble",
    ),
    command(
        "break",
        &["b"],
        "stop at function, file:line or *address; `in NAME`, `if EXPR`",
        "break main.rs:42 in bank-client-1 if amount > 10",
    ),
    command("tbreak", &["tb"], "the same, once", "tbreak main"),
    command("delete", &["d"], "delete a breakpoint, or all", "delete 1"),
    command("disable", &[], "do not stop at a breakpoint", "disable 1"),
    command("enable", &[], "stop at it again", "enable 1"),
    command(
        "continue",
        &["c"],
        "run to the next breakpoint or to the end",
        "continue",
    ),
    command(
        "reverse-continue",
        &["rc"],
        "run back to the last breakpoint or to the beginning",
        "reverse-continue",
    ),
    command(
        "step",
        &["s"],
        "to the next line, into functions; `--message` to the next send or receive",
        "step",
    ),
    command("next", &["n"], "to the next line, over functions", "next"),
    command("stepi", &["si"], "one instruction", "stepi"),
    command("finish", &["fin"], "until the frame returns", "finish"),
    command(
        "until",
        &["u", "advance"],
        "run to a place",
        "until main.rs:50",
    ),
    command(
        "reverse-step",
        &["rs"],
        "back to the line before, into functions",
        "reverse-step",
    ),
    command(
        "reverse-next",
        &["rn"],
        "back to the line before, over functions",
        "reverse-next",
    ),
    command(
        "reverse-stepi",
        &["rsi"],
        "back by one instruction",
        "reverse-stepi",
    ),
    command(
        "goto",
        &["run-to"],
        "to an event (NAME:NUMBER, a number, or a pattern), `start` or `end`",
        "goto bank-client-1:196",
    ),
    command("why", &[], "explain the event at hand", "why"),
    command(
        "mode",
        &[],
        "how other processes follow: causal or consistent",
        "mode consistent",
    ),
    command(
        "checkpoint",
        &[],
        "name this place, to come back to",
        "checkpoint",
    ),
    command("restart", &[], "come back to a checkpoint", "restart 1"),
    command(
        "set",
        &[],
        "refused: what happened cannot be changed",
        "set x = 1",
    ),
    command(
        "help",
        &["h"],
        "this list, or what one command does",
        "help break",
    ),
    command("quit", &["q", "exit"], "leave", "quit"),
];

pub struct Prompt<'r> {
    debugger: Debugger<'r>,
    values: u32,
    format: Format,
    /// The line that `list` goes on from.
    listed: Option<u32>,
    checkpoints: u32,
}

fn find(word: &str) -> Result<&'static Command, Failure> {
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

impl<'r> Prompt<'r> {
    pub fn new(debugger: Debugger<'r>) -> Prompt<'r> {
        Prompt {
            debugger,
            values: 0,
            format: Format::default(),
            listed: None,
            checkpoints: 0,
        }
    }

    pub fn process_names(&self) -> Vec<String> {
        let processes = self.debugger.recording.processes().iter();
        processes.map(|p| p.name.clone()).collect()
    }

    pub fn greeting(&self) -> String {
        let count = self.debugger.recording.processes().len();
        let name = self.debugger.name(self.debugger.process);
        format!(
            "{count} processes; {name} is at hand, at its beginning. `help` lists the commands."
        )
    }

    pub fn execute(&mut self, line: &str) -> Result<Next, Failure> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(Next::More);
        }
        let (word, rest) = match line.split_once(char::is_whitespace) {
            Some((word, rest)) => (word, rest.trim()),
            None => (line, ""),
        };
        // p/x and x/4g
        let (word, format) = match word.split_once('/') {
            Some((word, format)) => (word, Some(format)),
            None => (word, None),
        };
        let name = find(word)?.name;
        if !matches!(name, "list") {
            self.listed = None;
        }
        match name {
            "quit" => return Ok(Next::Quit),
            "help" => self.help(rest)?,
            "processes" | "where" => self.show_cut(name == "where")?,
            "process" => self.process(rest)?,
            "threads" => self.threads()?,
            "thread" => self.thread(rest)?,
            "bt" => self.backtrace(rest)?,
            "up" => self.move_frame(1)?,
            "down" => self.move_frame(-1)?,
            "frame" => self.frame(rest)?,
            "list" => self.list()?,
            "locals" => self.variables(false)?,
            "args" => self.variables(true)?,
            "info" => self.info(rest)?,
            "print" => self.print(rest, format)?,
            "ptype" => self.ptype(rest)?,
            "x" => self.examine(rest, format)?,
            "disassemble" => self.disassemble()?,
            "break" => self.add_breakpoint(rest, false)?,
            "tbreak" => self.add_breakpoint(rest, true)?,
            "delete" | "disable" | "enable" => self.change_breakpoints(name, rest)?,
            "continue" => self.go(|d| d.go_on())?,
            "reverse-continue" => self.go(|d| d.go_back())?,
            "step" if rest == "--message" => self.step_message()?,
            "step" => self.repeat(rest, |d| d.step_line(true))?,
            "next" => self.repeat(rest, |d| d.step_line(false))?,
            "stepi" => self.repeat(rest, |d| d.step_instruction())?,
            "finish" => self.go(|d| d.finish())?,
            "until" => {
                if rest.is_empty() {
                    return Err(Failure::new("until where?").hint("`until main.rs:50`"));
                }
                self.debugger.add_breakpoint(rest, None, None, true);
                self.go(|d| d.go_on())?;
            }
            "reverse-step" => self.repeat(rest, |d| d.step_line_back(true))?,
            "reverse-next" => self.repeat(rest, |d| d.step_line_back(false))?,
            "reverse-stepi" => self.repeat(rest, |d| d.step_instruction_back())?,
            "goto" => self.goto(rest)?,
            "why" => self.why()?,
            "mode" => self.mode(rest)?,
            "checkpoint" => self.checkpoint()?,
            "restart" => {
                let number = number(rest)?;
                self.go(|d| d.restart(number))?;
            }
            "set" => {
                return Err(
                    Failure::new("a recording cannot be changed: it says what happened")
                        .hint("to try what would happen, change the program and record again"),
                );
            }
            _ => {}
        }
        Ok(Next::More)
    }

    fn help(&self, about: &str) -> Result<(), Failure> {
        if about.is_empty() {
            for command in COMMANDS {
                let names = std::iter::once(command.name).chain(command.short.iter().copied());
                let names: Vec<&str> = names.collect();
                println!("{:<28} {}", names.join(", "), command.help);
            }
            return Ok(());
        }
        let command = find(about)?;
        println!("{}: {}", command.name, command.help);
        println!("    (mw) {}", command.example);
        Ok(())
    }

    /// Moves, and says where that led.
    fn go(
        &mut self,
        motion: impl FnOnce(&mut Debugger<'r>) -> Result<Why, Failure>,
    ) -> Result<(), Failure> {
        let why = motion(&mut self.debugger)?;
        self.say_where(&why)
    }

    fn repeat(
        &mut self,
        count: &str,
        motion: impl Fn(&mut Debugger<'r>) -> Result<Why, Failure>,
    ) -> Result<(), Failure> {
        let count = if count.is_empty() { 1 } else { number(count)? };
        let mut why = Why::Step;
        for _ in 0..count {
            why = motion(&mut self.debugger)?;
            if why != Why::Step {
                break;
            }
        }
        self.say_where(&why)
    }

    /// Who, why, where and when.
    fn say_where(&mut self, why: &Why) -> Result<(), Failure> {
        let name = self.debugger.name(self.debugger.process);
        let position = self.debugger.position()?;
        match why {
            Why::Breakpoint(number) => println!("Breakpoint {number}"),
            Why::End => println!("{name} has come to its end."),
            Why::Start => println!("This is the beginning of {name}."),
            Why::Interrupted => println!("Interrupted."),
            Why::Diverged(how) => println!("{name} does not do what it did: {how}."),
            Why::Step | Why::Event => {}
        }
        let thread = self.debugger.session()?.thread();
        let recording = self.debugger.recording;
        let thread = recording.thread_name(self.debugger.process, thread);
        let when = match position {
            Position::Event(event) => format!("about to do {name}:{event}"),
            Position::Inside(inside) => format!("before {name}:{}", inside.event),
        };
        println!("{name}, {thread}, {when}");
        self.show_line()
    }

    /// The chosen frame's place and line.
    fn show_line(&mut self) -> Result<(), Failure> {
        let frame = self.debugger.frame;
        let text = self.debugger.look(|inspector, _, stack| {
            let frame = stack?.frames.get(frame)?;
            Some(line_of(inspector, frame))
        })?;
        println!("{}", text.unwrap_or_else(|| "no frame".to_string()));
        Ok(())
    }

    fn show_cut(&mut self, with_lines: bool) -> Result<(), Failure> {
        let cut = self.debugger.cut()?;
        let at_hand = self.debugger.process;
        let all: Vec<(u32, String)> = self
            .debugger
            .recording
            .processes()
            .iter()
            .map(|p| (p.number, p.name.clone()))
            .collect();
        let position = self.debugger.position()?;
        for (place, (number, name)) in (0u32..).zip(&all) {
            let mark = if *number == at_hand { '*' } else { ' ' };
            let (first, last) = self.debugger.history.span(place);
            let event = if *number == at_hand {
                position.event()
            } else {
                cut.bound(place)
            };
            let state = if event <= first {
                "not begun".to_string()
            } else if event > last {
                "ended".to_string()
            } else {
                format!("about to do {name}:{event}")
            };
            println!("{mark} {name:<24} {state}");
            if with_lines && event > first && event <= last {
                let line = self.line_in(*number)?;
                println!("      {line}");
            }
        }
        Ok(())
    }

    /// The innermost line of a process at the cut.
    fn line_in(&mut self, number: u32) -> Result<String, Failure> {
        let (process, thread, frame) = (
            self.debugger.process,
            self.debugger.thread,
            self.debugger.frame,
        );
        let position = self.debugger.position()?;
        self.debugger.choose(number)?;
        let line = self.debugger.look(|inspector, _, stack| {
            let stack = stack?;
            // The innermost frame that has a line: most wait in a library.
            let frame = stack.frames.iter().find(|f| f.place.is_some());
            frame
                .or(stack.frames.first())
                .map(|f| line_of(inspector, f))
        })?;
        self.debugger.process = process;
        self.debugger.session()?;
        self.debugger.thread = thread;
        self.debugger.frame = frame;
        debug_assert_eq!(self.debugger.position()?, position);
        Ok(line
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or("")
            .to_string())
    }

    fn process(&mut self, name: &str) -> Result<(), Failure> {
        let recording = self.debugger.recording;
        let found = recording
            .process_named(name)
            .ok_or_else(|| causes::unknown_process(recording, name))?;
        self.debugger.choose(found.number)?;
        self.say_where(&Why::Event)
    }

    fn threads(&mut self) -> Result<(), Failure> {
        let process = self.debugger.process;
        let recording = self.debugger.recording;
        let chosen = self.debugger.thread;
        let running = self.debugger.session()?.thread();
        let rows = self.debugger.look(|inspector, stopped, _| {
            let states = stopped.states().iter();
            let rows = states.map(|state| {
                let stack = inspector.stack(inspect::ThreadId(state.number), 1).ok();
                let top = stack.and_then(|s| s.frames.first().map(|f| line_of(inspector, f)));
                let call = state.call.and_then(protocol::table::syscall);
                let doing = match call {
                    Some(row) if state.waits => format!("waits in {}", row.name),
                    Some(row) => format!("about to call {}", row.name),
                    None => "runs".to_string(),
                };
                (state.number, doing, top.unwrap_or_default())
            });
            rows.collect::<Vec<_>>()
        })?;
        for (number, doing, top) in rows {
            let mark = if chosen.unwrap_or(running) == number {
                '*'
            } else {
                ' '
            };
            let name = recording.thread_name(process, number);
            let top = top.lines().next().unwrap_or("").to_string();
            println!("{mark} {number:<4} {name:<16} {doing:<28} {top}");
        }
        Ok(())
    }

    fn thread(&mut self, name: &str) -> Result<(), Failure> {
        let process = self.debugger.process;
        let recording = self.debugger.recording;
        let threads = self.debugger.session()?.threads();
        let found = threads.iter().find(|t| {
            name == t.number.to_string() || name == recording.thread_name(process, t.number)
        });
        let Some(found) = found else {
            return Err(Failure::new(format!("there is no thread `{name}` here"))
                .hint("`threads` lists them"));
        };
        self.debugger.thread = Some(found.number);
        self.debugger.frame = 0;
        self.show_line()
    }

    fn backtrace(&mut self, which: &str) -> Result<(), Failure> {
        let process = self.debugger.process;
        let recording = self.debugger.recording;
        let all = which == "all";
        let text = self.debugger.look(|inspector, stopped, stack| {
            let options = PrintOptions::default();
            if !all {
                return stack.map_or(String::new(), |stack| {
                    backtrace::backtrace(inspector, stack, &options)
                });
            }
            let mut text = String::new();
            for state in stopped.states() {
                let name = recording.thread_name(process, state.number);
                text.push_str(&format!("\nThread {} ({name}):\n", state.number));
                if let Ok(stack) = inspector.stack(inspect::ThreadId(state.number), 10_000) {
                    text.push_str(&backtrace::backtrace(inspector, &stack, &options));
                }
            }
            text
        })?;
        println!("{}", text.trim_end());
        Ok(())
    }

    fn move_frame(&mut self, by: isize) -> Result<(), Failure> {
        let depth = self
            .debugger
            .look(|_, _, stack| stack.map_or(0, |s| s.frames.len()))?;
        let Some(frame) = self.debugger.frame.checked_add_signed(by) else {
            return Err(Failure::new(
                "this is the innermost frame; there is none below",
            ));
        };
        if frame >= depth {
            return Err(Failure::new(
                "this is the outermost frame; there is none above",
            ));
        }
        self.debugger.frame = frame;
        self.show_frame()
    }

    fn frame(&mut self, which: &str) -> Result<(), Failure> {
        if !which.is_empty() {
            let frame = number(which)? as usize;
            let depth = self
                .debugger
                .look(|_, _, stack| stack.map_or(0, |s| s.frames.len()))?;
            if frame >= depth {
                return Err(
                    Failure::new(format!("there is no frame {frame}")).hint("`bt` lists them")
                );
            }
            self.debugger.frame = frame;
        }
        self.show_frame()
    }

    fn show_frame(&mut self) -> Result<(), Failure> {
        let line = self
            .debugger
            .in_frame(|_, _, scope| Ok(backtrace::frame_line(scope, &PrintOptions::default())))?;
        println!("{}", line.trim_end());
        self.show_line()
    }

    fn list(&mut self) -> Result<(), Failure> {
        const LINES: u32 = 10;
        let frame = self.debugger.frame;
        let from = self.listed;
        let text = self.debugger.look(|inspector, _, stack| {
            let Some(place) = stack
                .and_then(|s| s.frames.get(frame))
                .and_then(|f| f.place.as_ref())
            else {
                return Err(Failure::new("no source line is known here")
                    .hint("the code has no debug information; `up` may lead to some that has"));
            };
            let source = inspector
                .library
                .sources
                .read(&place.file)
                .map_err(Failure::new)?;
            let first = from.unwrap_or(place.line.saturating_sub(LINES / 2).max(1));
            let lines: Vec<String> = (first..first + LINES)
                .filter_map(|line| {
                    let text = source.line(u64::from(line))?;
                    let mark = if line == place.line { "->" } else { "" };
                    Some(format!("{line}{mark}\t{text}"))
                })
                .collect();
            Ok((first + LINES, lines.join("\n")))
        })??;
        self.listed = Some(text.0);
        println!("{}", text.1);
        Ok(())
    }

    fn variables(&mut self, arguments: bool) -> Result<(), Failure> {
        let lines = self.debugger.in_frame(|_, _, scope| {
            let variables = if arguments {
                scope.arguments()
            } else {
                scope.locals()
            };
            Ok(backtrace::variables(
                scope,
                &variables,
                &PrintOptions::default(),
            ))
        })?;
        if lines.is_empty() {
            println!("No {}.", if arguments { "arguments" } else { "locals" });
        }
        for line in lines {
            println!("{line}");
        }
        Ok(())
    }

    fn info(&mut self, about: &str) -> Result<(), Failure> {
        const TOPICS: [&str; 7] = [
            "locals",
            "args",
            "registers",
            "breakpoints",
            "checkpoints",
            "threads",
            "processes",
        ];
        let found = TOPICS
            .iter()
            .find(|topic| !about.is_empty() && topic.starts_with(about));
        match found.copied() {
            Some("locals") => self.variables(false),
            Some("args") => self.variables(true),
            Some("threads") => self.threads(),
            Some("processes") => self.show_cut(false),
            Some("registers") => {
                let frame = self.debugger.frame;
                let lines = self.debugger.look(|inspector, _, stack| {
                    stack
                        .and_then(|s| s.frames.get(frame))
                        .map(|f| inspector.register_lines(f))
                })?;
                for line in lines.unwrap_or_default() {
                    println!("{line}");
                }
                Ok(())
            }
            Some("breakpoints") => {
                if self.debugger.breakpoints.is_empty() {
                    println!("No breakpoints.");
                }
                for b in &self.debugger.breakpoints {
                    let state = if b.enabled { "" } else { " (disabled)" };
                    let program = b
                        .program
                        .as_ref()
                        .map_or(String::new(), |p| format!(" in {p}"));
                    let condition = b
                        .condition
                        .as_ref()
                        .map_or(String::new(), |c| format!(" if {c}"));
                    println!(
                        "{:<4} {}{program}{condition}{state}, hit {} times",
                        b.number, b.place, b.hits
                    );
                }
                Ok(())
            }
            Some("checkpoints") => {
                if self.debugger.named.is_empty() {
                    println!("No checkpoints.");
                }
                for (number, process, position) in &self.debugger.named {
                    println!(
                        "{number:<4} {}:{}",
                        self.debugger.name(*process),
                        position.event()
                    );
                }
                Ok(())
            }
            _ => Err(Failure::new(format!("info about what? (`{about}`)"))
                .hint(format!("one of {}", TOPICS.join(", ")))),
        }
    }

    fn print(&mut self, expression: &str, format: Option<&str>) -> Result<(), Failure> {
        if expression.is_empty() {
            return Err(Failure::new("print what?").hint("`print balance`"));
        }
        let letter = format.and_then(|format| format.chars().last());
        let shown = self.debugger.in_frame(|_, _, scope| {
            let value = scope.evaluate(expression)?;
            let options = PrintOptions {
                format: letter,
                ..PrintOptions::default()
            };
            Ok(Printer::in_scope(scope, options).top(&value))
        })?;
        self.values += 1;
        println!("${} = {shown}", self.values);
        Ok(())
    }

    fn ptype(&mut self, expression: &str) -> Result<(), Failure> {
        let text = self.debugger.in_frame(|_, _, scope| {
            let value = inspect::expr::Expression::parse(&scope, expression)?;
            Ok(types::describe(&value.type_of(&scope)?))
        })?;
        println!("type = {text}");
        Ok(())
    }

    fn examine(&mut self, expression: &str, format: Option<&str>) -> Result<(), Failure> {
        let format = match format {
            Some(text) => Format::parse(text, self.format).map_err(Failure::new)?,
            None => self.format,
        };
        let expression = if expression.is_empty() {
            "$rip"
        } else {
            expression
        };
        let lines = self.debugger.in_frame(|inspector, _, scope| {
            let value = scope.evaluate(expression)?;
            let address = value.integer(inspector.process)? as u64;
            Ok(inspector.examine(address, format)?.0)
        })?;
        self.format = format;
        for line in lines {
            println!("{line}");
        }
        Ok(())
    }

    fn disassemble(&mut self) -> Result<(), Failure> {
        let frame = self.debugger.frame;
        let lines = self.debugger.look(|inspector, _, stack| {
            let Some(frame) = stack.and_then(|s| s.frames.get(frame)) else {
                return Vec::new();
            };
            let lines = inspector.disassemble(frame.pc, 12).into_iter();
            lines
                .map(|line| {
                    let mark = if line.address == frame.pc { "=>" } else { "  " };
                    let name = inspector.symbolize(line.address);
                    let name = name.map_or(String::new(), |n| format!(" <{n}>"));
                    format!("{mark} {:#x}{name}:\t{}", line.address, line.text)
                })
                .collect()
        })?;
        for line in lines {
            println!("{line}");
        }
        Ok(())
    }

    fn add_breakpoint(&mut self, text: &str, temporary: bool) -> Result<(), Failure> {
        if text.is_empty() {
            return Err(Failure::new("break where?")
                .hint("at a function, FILE:LINE or *ADDRESS: `break main.rs:42`"));
        }
        let (text, condition) = match text.split_once(" if ") {
            Some((text, condition)) => (text.trim(), Some(condition.trim().to_string())),
            None => (text, None),
        };
        let (place, program) = match text.split_once(" in ") {
            Some((place, program)) => (place.trim(), Some(program.trim().to_string())),
            None => (text, None),
        };
        // Known now, or in code that is mapped later.
        let found = self.debugger.look(|inspector, _, _| {
            inspector
                .resolve(place, None)
                .map(|all| all.first().map(|l| (l.address, l.place.clone())))
                .map_err(|error| error.to_string())
        })?;
        let elsewhere = match &found {
            Ok(Some(_)) => None,
            Ok(None) => Some(String::new()),
            Err(why) => Some(format!(" ({why})")),
        };
        let number = self
            .debugger
            .add_breakpoint(place, program, condition, temporary);
        match (found, elsewhere) {
            (Ok(Some((address, place))), _) => {
                let line = place.map_or(String::new(), |p| {
                    format!(": {}, line {}", p.file.name, p.line)
                });
                println!("Breakpoint {number} at {address:#x}{line}");
            }
            (_, why) => println!(
                "Breakpoint {number}: not in the code that {} has mapped yet{}",
                self.debugger.name(self.debugger.process),
                why.unwrap_or_default()
            ),
        }
        Ok(())
    }

    fn change_breakpoints(&mut self, how: &str, which: &str) -> Result<(), Failure> {
        let wanted = if which.is_empty() {
            None
        } else {
            Some(number(which)?)
        };
        let matches = |n: u32| wanted.is_none_or(|wanted| wanted == n);
        if let Some(number) = wanted
            && !self.debugger.breakpoints.iter().any(|b| b.number == number)
        {
            return Err(Failure::new(format!("there is no breakpoint {number}"))
                .hint("`info breakpoints` lists them"));
        }
        match how {
            "delete" => self.debugger.breakpoints.retain(|b| !matches(b.number)),
            _ => {
                for b in self
                    .debugger
                    .breakpoints
                    .iter_mut()
                    .filter(|b| matches(b.number))
                {
                    b.enabled = how == "enable";
                }
            }
        }
        Ok(())
    }

    fn goto(&mut self, text: &str) -> Result<(), Failure> {
        let process = self.debugger.process;
        if text == "start" {
            return self.go(|d| d.go_to(process, 0));
        }
        if text == "end" {
            return self.go(|d| d.go_to(process, u64::MAX));
        }
        if let Ok(event) = text.parse::<u64>() {
            return self.go(|d| d.go_to(process, event));
        }
        let event = causes::event(&self.debugger.history, text)?;
        let number = self
            .debugger
            .history
            .process(event.process)
            .map_or(process, |p| p.number);
        self.go(|d| d.go_to(number, event.number))
    }

    /// To the next event that sends or receives.
    fn step_message(&mut self) -> Result<(), Failure> {
        use protocol::syscall::Type;
        let process = self.debugger.process;
        let now = self.debugger.position()?.event();
        let recording = self.debugger.recording;
        let place = self.debugger.history.place_of(process).unwrap_or(0);
        let (_, last) = self.debugger.history.span(place);
        let history = &self.debugger.history;
        let next = (now + 1..=last).find(|event| {
            let used = history.uses(causality::EventId::new(place, *event));
            !used.is_empty()
                || recording.log_at(process, *event).is_some_and(|log| {
                    log.event()
                        .is_some_and(|e| matches!(e.type_(), Type::Send | Type::Recv))
                })
        });
        match next {
            Some(event) => self.go(|d| d.go_to(process, event)),
            None => Err(Failure::new("there is no further message")),
        }
    }

    /// Which events this one follows from.
    fn why(&mut self) -> Result<(), Failure> {
        let event = self.debugger.position()?.event();
        let place = self
            .debugger
            .history
            .place_of(self.debugger.process)
            .unwrap_or(0);
        let history = &self.debugger.history;
        let mut found = false;
        for link in history.causes_before(place, event).take(5) {
            found = true;
            println!(
                "{} <- {}",
                causes::name(history, link.effect),
                causes::name(history, link.cause)
            );
        }
        if !found {
            println!("Nothing from other processes or threads came before this.");
        }
        Ok(())
    }

    fn mode(&mut self, mode: &str) -> Result<(), Failure> {
        match mode {
            "causal" => self.debugger.mode = Mode::Causal,
            "consistent" => self.debugger.mode = Mode::Consistent,
            "" => {}
            other => {
                return Err(Failure::new(format!("there is no mode `{other}`"))
                    .hint("`causal` or `consistent`"));
            }
        }
        println!(
            "others are shown {}",
            match self.debugger.mode {
                Mode::Causal => "where they must have come (causal)",
                Mode::Consistent => "as far as they can have come (consistent)",
            }
        );
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), Failure> {
        let position = self.debugger.position()?;
        let process = self.debugger.process;
        self.checkpoints += 1;
        if let Position::Event(_) = position {
            self.debugger
                .session()?
                .checkpoint()
                .map_err(crate::verify::explain)?;
        }
        self.debugger
            .named
            .push((self.checkpoints, process, position));
        println!(
            "Checkpoint {} at {}:{}",
            self.checkpoints,
            self.debugger.name(process),
            position.event()
        );
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, Failure> {
    text.parse()
        .map_err(|_| Failure::new(format!("`{text}` is not a number")))
}

/// A frame in two lines: function and place, and the source line.
fn line_of(inspector: &Inspector<'_>, frame: &Frame) -> String {
    let function = frame.name.clone().or_else(|| inspector.symbolize(frame.pc));
    let function = function.unwrap_or_else(|| format!("{:#x}", frame.pc));
    let Some(place) = &frame.place else {
        return format!("{:#x} in {function}", frame.pc);
    };
    let head = format!("{function} at {}:{}", place.file.name, place.line);
    let source = inspector.library.sources.read(&place.file).ok();
    let text = source.and_then(|s| s.line(u64::from(place.line)).map(str::to_string));
    match text {
        Some(text) => format!("{head}\n{}\t{text}", place.line),
        None => head,
    }
}
