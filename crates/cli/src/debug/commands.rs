//! What the commands of the prompt do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ::replay::Position;
use causality::EventId;
use inspect::examine::Format;
use inspect::frames::Frame;
use inspect::print::{PrintOptions, Printer, backtrace};
use inspect::{Inspector, types};
use protocol::id::EventNo;

use super::debugger::{Debugger, Mode, Place, Why};
use super::screen::{Part, paint, say};
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
    values: u32,
    format: Format,
    /// The line that `list` goes on from.
    listed: Option<u32>,
    checkpoints: u32,
    /// Where it was before each motion, and what was undone.
    behind: Vec<Place>,
    ahead: Vec<Place>,
    /// What is to be done before the next line is read.
    queue: VecDeque<String>,
    /// Lines for the commands of a point are being read.
    pub(super) collecting: Option<(u32, Vec<String>)>,
    /// What is shown at each stop: number, expression, format.
    pub(super) displays: Vec<(u32, String, Option<char>)>,
    pub(super) next_display: u32,
    /// The point that was stopped at last.
    pub(super) last_hit: Option<u32>,
}

impl Prompt {
    pub fn new(debugger: Debugger) -> Prompt {
        Prompt {
            debugger,
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

    /// Runs a line, and what breakpoints have to be done for it.
    pub fn execute(&mut self, line: &str) -> Result<Next, Failure> {
        self.debugger.interrupt.store(false, Relaxed);
        let mut next = self.one(line);
        // What a breakpoint has to do may lead to the next.
        while let Some(line) = self.queue.pop_front() {
            if !matches!(next, Ok(Next::More)) || self.debugger.interrupt.load(Relaxed) {
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
            "continue" => {
                self.pass_over(rest)?;
                self.go(|d| d.go_on())?;
            }
            "reverse-continue" => {
                self.pass_over(rest)?;
                self.go(|d| d.go_back())?;
            }
            "step" if rest == "--message" => self.step_message(false)?,
            "reverse-step" if rest == "--message" => self.step_message(true)?,
            "step" => self.repeat(rest, |d| d.step_line(true))?,
            "next" => self.repeat(rest, |d| d.step_line(false))?,
            "stepi" => self.repeat(rest, |d| d.step_instruction())?,
            "nexti" => self.repeat(rest, |d| d.next_instruction())?,
            "finish" => self.go(|d| d.finish())?,
            "until" | "reverse-until" => {
                let addresses = self.addresses_of(name, rest)?;
                if name == "until" {
                    self.go(|d| d.go_on_until(&addresses))?;
                } else {
                    self.go(|d| d.go_back_to(None, &addresses))?;
                }
            }
            "reverse-step" => self.repeat(rest, |d| d.step_line_back(true))?,
            "reverse-next" => self.repeat(rest, |d| d.step_line_back(false))?,
            "reverse-stepi" | "reverse-nexti" => {
                self.repeat(rest, |d| d.step_instruction_back())?;
            }
            "reverse-finish" => self.go(|d| d.finish_back())?,
            "reverse" => return self.reverse(rest),
            "goto" => self.goto(rest)?,
            "run-to" => self.run_to(rest, false)?,
            "back" | "forward" => self.travel_history(name == "back")?,
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

    /// Moves, and says where that led.
    fn go(
        &mut self,
        motion: impl FnOnce(&mut Debugger) -> Result<Why, Failure>,
    ) -> Result<(), Failure> {
        let from = (self.debugger.process, self.debugger.position()?);
        let why = motion(&mut self.debugger);
        self.moved(from)?;
        self.say_where(&why?)
    }

    fn repeat(
        &mut self,
        count: &str,
        motion: impl Fn(&mut Debugger) -> Result<Why, Failure>,
    ) -> Result<(), Failure> {
        let count = if count.is_empty() { 1 } else { number(count)? };
        let from = (self.debugger.process, self.debugger.position()?);
        let mut why = Ok(Why::Step);
        for _ in 0..count {
            why = motion(&mut self.debugger);
            if !matches!(why, Ok(Why::Step)) {
                break;
            }
        }
        self.moved(from)?;
        self.say_where(&why?)
    }

    /// Remembers where it was.
    fn moved(&mut self, from: Place) -> Result<(), Failure> {
        for line in std::mem::take(&mut self.debugger.traced) {
            say!("{line}")?;
        }
        let now = (self.debugger.process, self.debugger.position()?);
        if now != from {
            self.behind.push(from);
            self.ahead.clear();
        }
        Ok(())
    }

    /// To where it was before the last motion, or undoes that.
    fn travel_history(&mut self, back: bool) -> Result<(), Failure> {
        let (from, to) = match back {
            true => (&mut self.behind, &mut self.ahead),
            false => (&mut self.ahead, &mut self.behind),
        };
        let Some(place) = from.pop() else {
            return Err(Failure::new(match back {
                true => "there was no motion before",
                false => "nothing was undone",
            }));
        };
        to.push((self.debugger.process, self.debugger.position()?));
        let why = self.debugger.go_to_place(place)?;
        self.say_where(&why)
    }

    /// Who, why, where and when; then what breakpoints have to be done.
    fn say_where(&mut self, why: &Why) -> Result<(), Failure> {
        let name = self.debugger.name(self.debugger.process);
        let point = match why {
            Why::Breakpoint(number) | Why::Caught(number) | Why::Watch { number, .. } => {
                self.debugger.points.iter().find(|p| p.number == *number)
            }
            _ => None,
        };
        self.last_hit = point.map(|p| p.number);
        let commands = point.map_or(Vec::new(), |p| p.commands.clone());
        let silent = commands.first().is_some_and(|c| c == "silent");
        let rest = commands.into_iter().filter(|c| c != "silent");
        if !self.queue.is_empty() && point.is_some() {
            self.queue.clear();
        }
        self.queue.extend(rest);
        if silent {
            return Ok(());
        }
        let bold = |text: String| paint(Part::Why, &text);
        match why {
            Why::Breakpoint(number) => say!("{}", bold(format!("Breakpoint {number}")))?,
            Why::Caught(number) => {
                say!("{}", bold(format!("Catchpoint {number}")))?;
                self.say_event()?;
            }
            Why::Watch {
                number,
                text,
                old,
                new,
                back,
            } => {
                let about = if *back { ", about to change" } else { "" };
                say!("{}", bold(format!("Watchpoint {number}: {text}{about}")))?;
                say!("Old value = {old}")?;
                say!("New value = {new}")?;
            }
            Why::OutOfScope { number, text, back } => match back {
                false => say!(
                    "{}: its frame has returned, it is deleted.",
                    bold(format!("Watchpoint {number}: {text}"))
                )?,
                true => say!(
                    "{}: its frame begins here, there is nothing of it before.",
                    bold(format!("Watchpoint {number}: {text}"))
                )?,
            },
            Why::End => say!("{name} has come to its end.")?,
            Why::Start => say!("This is the beginning of {name}.")?,
            Why::Interrupted => say!("Interrupted.")?,
            Why::Diverged(how) => say!("{name} does not do what it did: {how}.")?,
            Why::Step | Why::Event => {}
        }
        self.when()?;
        self.show_line()?;
        self.show_displays()
    }

    /// Who and when.
    pub(super) fn when(&mut self) -> Result<(), Failure> {
        let name = self.debugger.name(self.debugger.process);
        let position = self.debugger.position()?;
        let thread = self.debugger.session()?.thread();
        let names = &self.debugger.names;
        let thread = names.thread(self.debugger.process, thread);
        let when = match position {
            Position::Event(event) => format!("about to do {name}:{event}"),
            Position::Inside(inside) => format!("before {name}:{}", inside.event),
        };
        say!("{}, {thread}, {when}", paint(Part::Process, &name))
    }

    /// The event that comes next, in words.
    fn say_event(&mut self) -> Result<(), Failure> {
        let event = self.debugger.position()?.event();
        let place = self.debugger.place_of(self.debugger.process)?;
        let event = EventId::new(place, EventNo(event));
        let (history, names) = (&self.debugger.history, &self.debugger.names);
        let shown = query::shown::event(history, names, event, query::shown::DATA);
        say!("{}  {}", shown.name, shown.text)
    }

    /// The chosen frame's place and line.
    fn show_line(&mut self) -> Result<(), Failure> {
        let frame = self.debugger.frame;
        let text = self.debugger.look(|inspector, _, stack| {
            let frame = stack?.frames.get(frame)?;
            Some(line_of(inspector, frame))
        })?;
        say!("{}", text.unwrap_or_else(|| "no frame".to_string()))
    }

    pub(super) fn show_cut(&mut self, with_lines: bool) -> Result<(), Failure> {
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
        for (number, name) in &all {
            let mark = if *number == at_hand { '*' } else { ' ' };
            let place = self.debugger.place_of(*number)?;
            let (first, last) = self.debugger.history.span(place);
            let (first, last) = (first.0, last.0);
            let event = if *number == at_hand {
                position.event()
            } else {
                cut.bound(place).0
            };
            let state = if event <= first {
                "not begun".to_string()
            } else if event > last {
                "ended".to_string()
            } else {
                format!("about to do {name}:{event}")
            };
            say!("{mark} {name:<24} {state}")?;
            if with_lines && event > first && event <= last {
                let line = self.line_in(*number)?;
                say!("      {line}")?;
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
        let recording = Arc::clone(&self.debugger.recording);
        let found = query::find::process(&recording, name)?;
        self.debugger.choose(found.number)?;
        self.say_where(&Why::Event)
    }

    pub(super) fn threads(&mut self) -> Result<(), Failure> {
        let process = self.debugger.process;
        let names = self.debugger.names.clone();
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
            let name = names.thread(process, number);
            let top = top.lines().next().unwrap_or("").to_string();
            say!("{mark} {number:<4} {name:<16} {doing:<28} {top}")?;
        }
        Ok(())
    }

    fn thread(&mut self, name: &str) -> Result<(), Failure> {
        let process = self.debugger.process;
        let threads = self.debugger.session()?.threads();
        let names = &self.debugger.names;
        let found = threads
            .iter()
            .find(|t| name == t.number.to_string() || name == names.thread(process, t.number));
        let Some(found) = found else {
            return Err(Failure::new(format!("there is no thread `{name}` here"))
                .hint("`threads` lists them"));
        };
        self.debugger.thread = Some(found.number);
        self.debugger.frame = 0;
        self.show_line()
    }

    /// `bt [all] [full] [N|-N]`: so many of the innermost frames, or of the
    /// outermost ones.
    pub(super) fn backtrace(&mut self, words: &str) -> Result<(), Failure> {
        let process = self.debugger.process;
        let names = self.debugger.names.clone();
        let (mut all, mut full, mut count) = (false, false, None);
        for word in words.split_whitespace() {
            match word {
                "all" => all = true,
                "full" | "-full" => full = true,
                _ => {
                    let number = word.parse::<isize>();
                    let number = number.map_err(|_| {
                        Failure::new(format!("`bt` does not know {word}"))
                            .hint("`bt 3`, `bt -3` for the outermost, `bt full`, `bt all`")
                    })?;
                    count = Some(number);
                }
            }
        }
        let options = PrintOptions::default();
        let show = |inspector: &inspect::Inspector<'_>, stack: &inspect::frames::Stack| {
            let depth = stack.frames.len();
            let levels = match count {
                Some(count) if count < 0 => depth.saturating_sub(count.unsigned_abs())..depth,
                Some(count) => 0..count.unsigned_abs().min(depth),
                None => 0..depth,
            };
            backtrace::frames(inspector, stack, &options, levels, full)
        };
        let text = self.debugger.look(|inspector, stopped, stack| {
            if !all {
                return stack.map_or(String::new(), |stack| show(inspector, stack));
            }
            let mut text = String::new();
            for state in stopped.states() {
                let name = names.thread(process, state.number);
                text.push_str(&format!("\nThread {} ({name}):\n", state.number));
                if let Ok(stack) = inspector.stack(inspect::ThreadId(state.number), 10_000) {
                    text.push_str(&show(inspector, &stack));
                }
            }
            text
        })?;
        say!("{}", text.trim_end())?;
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
        say!("{}", line.trim_end())?;
        // Where it is stands in the frame already: the line itself.
        let frame = self.debugger.frame;
        let text = self.debugger.look(|inspector, _, stack| {
            let frame = stack?.frames.get(frame)?;
            let text = line_of(inspector, frame);
            text.split_once('\n').map(|(_, line)| line.to_string())
        })?;
        match text {
            Some(line) => say!("{line}"),
            None => Ok(()),
        }
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
        say!("{}", text.1)?;
        Ok(())
    }

    pub(super) fn variables(&mut self, arguments: bool) -> Result<(), Failure> {
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
            say!("No {}.", if arguments { "arguments" } else { "locals" })?;
        }
        for line in lines {
            say!("{line}")?;
        }
        Ok(())
    }

    fn print(&mut self, expression: &str, format: Option<&str>) -> Result<(), Failure> {
        if expression.is_empty() {
            return Err(Failure::new("print what?").hint("`print balance`"));
        }
        let letter = format.and_then(|format| format.chars().last());
        let shown = self.value_of(expression, letter)?;
        self.values += 1;
        say!("${} = {shown}", self.values)
    }

    /// The value of an expression in the chosen frame.
    pub(super) fn value_of(
        &mut self,
        expression: &str,
        format: Option<char>,
    ) -> Result<String, Failure> {
        self.debugger.in_frame(|_, _, scope| {
            let value = scope.evaluate(expression)?;
            let options = PrintOptions {
                format,
                ..PrintOptions::default()
            };
            Ok(Printer::in_scope(scope, options).top(&value))
        })
    }

    fn whatis(&mut self, expression: &str) -> Result<(), Failure> {
        let text = self.debugger.in_frame(|_, _, scope| {
            let value = inspect::expr::Expression::parse(&scope, expression)?;
            Ok(types::name_of(&value.type_of(&scope)?))
        })?;
        say!("type = {text}")
    }

    fn ptype(&mut self, expression: &str) -> Result<(), Failure> {
        let text = self.debugger.in_frame(|_, _, scope| {
            let value = inspect::expr::Expression::parse(&scope, expression)?;
            Ok(types::describe(&value.type_of(&scope)?))
        })?;
        say!("type = {text}")?;
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
            let address = scope.evaluate(expression)?.to_address(inspector.process)?;
            let lines = inspector.examine(address, format)?.0;
            // An instruction that the frame is at has a mark.
            let here = scope.frame().map(|frame| format!("   {:#x}", frame.pc));
            let marked = |line: String| {
                let rest = here.as_deref().and_then(|here| line.strip_prefix(here));
                match rest {
                    Some(rest) if rest.starts_with([' ', ':']) => {
                        format!("=> {}{rest}", here.as_deref().unwrap_or_default().trim())
                    }
                    _ => line,
                }
            };
            Ok(lines.into_iter().map(marked).collect::<Vec<_>>())
        })?;
        self.format = format;
        for line in lines {
            say!("{line}")?;
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
            say!("{line}")?;
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
        let event = query::find::event(&self.debugger.history, &self.debugger.names, text)?;
        let number = self
            .debugger
            .history
            .process(event.process)
            .map_or(process, |p| p.number);
        self.go(|d| d.go_to(number, event.number.0))
    }

    /// On to an event of the process at hand, or back to one.
    fn run_to(&mut self, text: &str, back: bool) -> Result<(), Failure> {
        let process = self.debugger.process;
        let name = self.debugger.name(process);
        let now = self.debugger.position()?;
        let own = text.strip_prefix(&format!("{name}:")).unwrap_or(text);
        let is_inside = matches!(now, Position::Inside(_));
        let event = match own.parse::<u64>() {
            Ok(event) => Some(event),
            Err(_) if text.is_empty() => {
                return Err(Failure::new("run to which event?")
                    .hint("a number, or a pattern: `run-to send and length > 100`"));
            }
            Err(_) => {
                let found = self.debugger.caught(text)?;
                match back {
                    true => found.before(process, now.event()),
                    false => found.from(process, now.event() + u64::from(!is_inside)),
                }
            }
        };
        let way = if back { "before" } else { "after" };
        let Some(event) = event else {
            return Err(Failure::new(format!(
                "{name} has no event {way} this that fits `{text}`"
            )));
        };
        let behind = event < now.event() || event == now.event() && is_inside && back;
        if behind != back {
            return Err(Failure::new(format!("{name}:{event} is not {way} this"))
                .hint("`goto` goes either way"));
        }
        match back {
            true => self.go(|d| d.go_back_to(Some(event), &[])),
            false => self.go(|d| d.go_on_to(Position::Event(event))),
        }
    }

    /// To the next event that sends or receives, or the last.
    fn step_message(&mut self, back: bool) -> Result<(), Failure> {
        use protocol::syscall::Type;
        let process = self.debugger.process;
        let position = self.debugger.position()?;
        let now = position.event();
        let recording = Arc::clone(&self.debugger.recording);
        let place = self.debugger.place_of(process)?;
        let (first, last) = self.debugger.history.span(place);
        let (first, last) = (first.0, last.0);
        let history = &self.debugger.history;
        let is_message = |event: &u64| {
            let used = history.uses(EventId::new(place, EventNo(*event)));
            !used.is_empty()
                || recording.log_at(process, *event).is_some_and(|log| {
                    log.event()
                        .is_some_and(|e| matches!(e.type_(), Type::Send | Type::Recv))
                })
        };
        let from = now + u64::from(matches!(position, Position::Event(_)));
        let found = match back {
            true => (first..now).rev().find(is_message),
            false => (from..=last).find(is_message),
        };
        match found {
            Some(event) => self.go(|d| d.go_to(process, event)),
            None if back => Err(Failure::new("there is no message before")),
            None => Err(Failure::new("there is no further message")),
        }
    }

    /// Which events this one follows from.
    fn why(&mut self) -> Result<(), Failure> {
        let event = self.debugger.position()?.event();
        let place = self.debugger.place_of(self.debugger.process)?;
        let event = EventNo(event);
        let history = &self.debugger.history;
        let mut found = false;
        for link in history.causes_before(place, event).take(5) {
            found = true;
            say!(
                "{} <- {}",
                query::names::event(history, link.effect),
                query::names::event(history, link.cause)
            )?;
        }
        if !found {
            say!("Nothing from other processes or threads came before this.")?;
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
        say!(
            "others are shown {}",
            match self.debugger.mode {
                Mode::Causal => "where they must have come (causal)",
                Mode::Consistent => "as far as they can have come (consistent)",
            }
        )?;
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
        say!(
            "Checkpoint {} at {}:{}",
            self.checkpoints,
            self.debugger.name(process),
            position.event()
        )?;
        Ok(())
    }
}

pub(super) fn number(text: &str) -> Result<u32, Failure> {
    text.parse()
        .map_err(|_| Failure::new(format!("`{text}` is not a number")))
}

/// A frame in two lines: function and place, and the source line.
fn line_of(inspector: &Inspector<'_>, frame: &Frame) -> String {
    let function = frame.name.clone().or_else(|| inspector.symbolize(frame.pc));
    let function = function.unwrap_or_else(|| "??".to_string());
    let Some(place) = &frame.place else {
        return format!("{:#x} in {function}", frame.pc);
    };
    let head = format!(
        "{} at {}:{}",
        paint(Part::Function, &function),
        paint(Part::File, &place.file.name),
        place.line
    );
    let source = inspector.library.sources.read(&place.file).ok();
    let text = source.and_then(|s| s.line(u64::from(place.line)).map(str::to_string));
    match text {
        Some(text) => {
            let line = paint(Part::Line, &place.line.to_string());
            format!("{head}\n{line}\t{text}")
        }
        None => head,
    }
}
