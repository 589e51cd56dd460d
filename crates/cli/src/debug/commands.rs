//! What the commands of the prompt do.

use std::collections::VecDeque;

use ::replay::Interrupts;
use ::session::How;
use inspect::examine::Format;

use super::debugger::{Debugger, Instant};
use super::moves::{only, way};
use super::screen::say;
use super::table::{COMMANDS, find};
use crate::failure::Failure;

/// Whether the prompt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    More,
    Quit,
}

pub struct Prompt {
    pub(super) debugger: Debugger,
    pub(super) interrupts: Interrupts,
    pub(super) values: u32,
    pub(super) format: Format,
    /// The line that `list` goes on from.
    pub(super) listed: Option<u32>,
    pub(super) checkpoints: u32,
    /// Where it was before each motion, and what was undone.
    pub(super) behind: Vec<Instant>,
    pub(super) ahead: Vec<Instant>,
    /// What is to be done before the next line is read.
    pub(super) queue: VecDeque<String>,
    /// Lines for the commands of a point are being read.
    pub(super) collecting: Option<(u32, Vec<String>)>,
    /// What is shown at each stop: number, expression, format.
    pub(super) displays: Vec<(u32, String, Option<char>)>,
    pub(super) next_display: u32,
    /// The point that was stopped at last.
    pub(super) last_hit: Option<u32>,
}

impl Prompt {
    pub fn new(debugger: Debugger, interrupts: Interrupts) -> Prompt {
        Prompt {
            debugger,
            interrupts,
            values: 0,
            format: Format::default(),
            listed: None,
            checkpoints: 0,
            behind: Vec::new(),
            ahead: Vec::new(),
            queue: VecDeque::new(),
            collecting: None,
            displays: Vec::new(),
            next_display: 1,
            last_hit: None,
        }
    }

    pub fn process_names(&self) -> Vec<String> {
        let recording = self.debugger.recording();
        let processes = recording.processes().iter();
        processes.map(|p| p.name.clone()).collect()
    }

    pub fn greeting(&self) -> String {
        let count = self.debugger.recording().processes().len();
        let name = self.debugger.name(self.debugger.process);
        format!(
            "{count} processes; {name} is at hand, at its beginning. `help` lists the commands."
        )
    }

    /// Runs a line, and what breakpoints have to be done for it.
    pub fn execute(&mut self, line: &str) -> Result<Next, Failure> {
        self.debugger.cancel = self.interrupts.request();
        let mut next = self.one(line);
        // What a breakpoint has to do may lead to the next.
        while let Some(line) = self.queue.pop_front() {
            if !matches!(next, Ok(Next::More)) || self.debugger.cancel.is_cancelled() {
                self.queue.clear();
                break;
            }
            next = self.one(&line);
        }
        next
    }

    /// What it waits for: the lines of `commands`, or a command.
    pub fn prompt(&self) -> &'static str {
        match self.collecting {
            Some(_) => "> ",
            None => "(mw) ",
        }
    }

    fn one(&mut self, line: &str) -> Result<Next, Failure> {
        let line = line.trim();
        if self.collect(line)? || line.is_empty() || line.starts_with('#') {
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
            "when" => self.when()?,
            "bt" => self.backtrace(rest)?,
            "up" => self.move_frame(1)?,
            "down" => self.move_frame(-1)?,
            "frame" => self.frame(rest)?,
            "list" => self.list()?,
            "locals" => self.variables(false)?,
            "args" => self.variables(true)?,
            "info" => self.info(rest)?,
            "print" => self.print(rest, format)?,
            "display" => self.display(rest, format)?,
            "undisplay" => self.undisplay(rest)?,
            "ptype" => self.ptype(rest)?,
            "whatis" => self.whatis(rest)?,
            "x" => self.examine(rest, format)?,
            "disassemble" => self.disassemble()?,
            "break" | "tbreak" | "trace" => self.add_breakpoint(name, rest)?,
            "watch" => self.watch(rest)?,
            "rwatch" | "awatch" => {
                return Err(
                    Failure::new("reads of memory cannot be watched, only changes")
                        .hint("`watch EXPR` stops at what changes it, forwards and back"),
                );
            }
            "handle" => {
                return Err(Failure::new(
                    "signals cannot be kept from the program: it gets those it got",
                )
                .hint("`catch signal SIGINT` stops before one; `info signals` shows handlers"));
            }
            "catch" => self.catch(rest)?,
            "condition" => self.condition(rest)?,
            "ignore" => self.ignore(rest)?,
            "commands" => self.commands(rest)?,
            "delete" | "disable" | "enable" => self.change_points(name, rest)?,
            "continue" | "reverse-continue" => {
                let (only, rest) = only(rest);
                self.pass_over(rest)?;
                self.go(How::Continue, way(name), only)?;
            }
            "step" if rest == "--message" => self.step_message(false)?,
            "reverse-step" if rest == "--message" => self.step_message(true)?,
            "step" | "reverse-step" => self.repeat(rest, How::Line { into: true }, way(name))?,
            "next" | "reverse-next" => self.repeat(rest, How::Line { into: false }, way(name))?,
            "stepi" | "reverse-stepi" | "reverse-nexti" => {
                self.repeat(rest, How::Instructions(0..0), way(name))?;
            }
            "nexti" => self.repeat(rest, How::NextInstruction, way(name))?,
            "finish" | "reverse-finish" => {
                let level = self.debugger.frame;
                self.go(How::Finish { level }, way(name), only(rest).0)?;
            }
            "until" | "reverse-until" => {
                let (only, rest) = only(rest);
                let addresses = self.addresses_of(name, rest)?;
                self.go(How::Until(addresses), way(name), only)?;
            }
            "reverse" => return self.reverse(rest),
            "goto" => self.goto(rest)?,
            "run-to" => self.run_to(rest, false)?,
            "back" | "forward" => self.travel_history(name == "back")?,
            "why" => self.why()?,
            "mode" => self.mode(rest)?,
            "checkpoint" => self.checkpoint()?,
            "restart" => self.restart(number(rest)?)?,
            "set" => {
                return Err(
                    Failure::new("a recording cannot be changed: it says what happened")
                        .hint("to try what would happen, change the program and record again"),
                );
            }
            "echo" => {
                let text = rest.replace("\\n", "\n");
                say!("{}", text.trim_end_matches('\n'))?;
            }
            "source" => self.source(rest)?,
            _ => {}
        }
        Ok(Next::More)
    }

    /// The command that follows, backwards.
    fn reverse(&mut self, line: &str) -> Result<Next, Failure> {
        let (word, rest) = match line.split_once(char::is_whitespace) {
            Some((word, rest)) => (word, rest.trim()),
            None => (line, ""),
        };
        if word.is_empty() {
            return Err(Failure::new("what is to be done backwards?")
                .hint("`rev step`, `rev next`, `rev continue` ..."));
        }
        let name = find(word)?.name;
        if name == "run-to" {
            self.run_to(rest, true)?;
            return Ok(Next::More);
        }
        let back = format!("reverse-{name}");
        if !COMMANDS.iter().any(|c| c.name == back) {
            return Err(Failure::new(format!("`{name}` cannot be done backwards"))
                .hint("step, next, stepi, nexti, finish, until, run-to and continue can"));
        }
        self.one(&format!("{back} {rest}"))
    }

    /// Lines from a file.
    fn source(&mut self, path: &str) -> Result<(), Failure> {
        if path.is_empty() {
            return Err(Failure::new("which file?").hint("`source setup.mw`"));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {path}: {error}")))?;
        // One that reads itself never ends.
        const LINES_MAX: usize = 100_000;
        if self.queue.len() > LINES_MAX {
            return Err(Failure::new(format!(
                "{path}: too many lines wait to be run"
            )));
        }
        for line in text.lines().rev() {
            self.queue.push_front(line.to_string());
        }
        Ok(())
    }

    fn help(&self, about: &str) -> Result<(), Failure> {
        if about.is_empty() {
            for command in COMMANDS {
                let names = std::iter::once(command.name).chain(command.short.iter().copied());
                let names: Vec<&str> = names.collect();
                say!("{:<28} {}", names.join(", "), command.help)?;
            }
            return Ok(());
        }
        let command = find(about)?;
        say!("{}: {}", command.name, command.help)?;
        say!("    (mw) {}", command.example)?;
        Ok(())
    }
}

pub(super) fn number(text: &str) -> Result<u32, Failure> {
    text.parse()
        .map_err(|_| Failure::new(format!("`{text}` is not a number")))
}
