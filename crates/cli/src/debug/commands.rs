//! What the commands of the prompt do.

use std::collections::VecDeque;

use ::replay::Interrupts;
use ::session::{Caught, Direction, How, Reason, Stopped};
use ::target::Position;
use causality::EventId;
use inspect::examine::Format;
use inspect::frames::Frame;
use inspect::print::{PrintOptions, Printer, backtrace};
use inspect::{Inspector, types};
use protocol::id::{EventNo, ProcessId};

use super::debugger::{Debugger, Instant, Mode, Named};
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
    interrupts: Interrupts,
    values: u32,
    format: Format,
    /// The line that `list` goes on from.
    listed: Option<u32>,
    checkpoints: u32,
    /// Where it was before each motion, and what was undone.
    behind: Vec<Instant>,
    ahead: Vec<Instant>,
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

    /// Moves, and says where that led.
    fn go(&mut self, how: How, direction: Direction, only: bool) -> Result<(), Failure> {
        let from = self.debugger.instant();
        let stopped = self.debugger.go(how, direction, only);
        self.moved(from, stopped.as_ref().ok())?;
        self.say_where(&stopped?)
    }

    /// Moves so many times, as long as nothing else stops it.
    fn repeat(&mut self, text: &str, how: How, direction: Direction) -> Result<(), Failure> {
        let (only, text) = only(text);
        let count = if text.is_empty() { 1 } else { number(text)? };
        let from = self.debugger.instant();
        let mut stopped = self.debugger.stands();
        for _ in 0..count {
            let last = self.debugger.go(how.clone(), direction, only);
            if let Ok(last) = &last {
                self.say_traced(last)?;
            }
            let is_step = matches!(&last, Ok(last) if matches!(last.reason, Reason::Step));
            stopped = last;
            if !is_step {
                break;
            }
        }
        self.moved(from, None)?;
        self.say_where(&stopped?)
    }

    /// What was passed on the way.
    fn say_traced(&self, stopped: &Stopped) -> Result<(), Failure> {
        for traced in &stopped.traced {
            let name = self.debugger.name(traced.process);
            say!(
                "Tracepoint {}, {name} before {name}:{}: {}",
                traced.number,
                traced.at.event(),
                traced.frame
            )?;
        }
        Ok(())
    }

    /// Remembers where it was.
    fn moved(&mut self, from: Instant, stopped: Option<&Stopped>) -> Result<(), Failure> {
        if let Some(stopped) = stopped {
            self.say_traced(stopped)?;
        }
        if self.debugger.instant() != from {
            self.behind.push(from);
            self.ahead.clear();
        }
        Ok(())
    }

    /// To where it was before the last motion, or undoes that.
    fn travel_history(&mut self, back: bool) -> Result<(), Failure> {
        let now = self.debugger.instant();
        let (from, to) = match back {
            true => (&mut self.behind, &mut self.ahead),
            false => (&mut self.ahead, &mut self.behind),
        };
        let Some(instant) = from.pop() else {
            return Err(Failure::new(match back {
                true => "there was no motion before",
                false => "nothing was undone",
            }));
        };
        to.push(now);
        let stopped = self.debugger.restore(&instant)?;
        self.say_where(&stopped)
    }

    /// Who, why, where and when; then what breakpoints have to be done.
    fn say_where(&mut self, stopped: &Stopped) -> Result<(), Failure> {
        let name = self.debugger.name(stopped.process);
        let hit = match &stopped.reason {
            Reason::Breakpoint { number }
            | Reason::Caught { number }
            | Reason::Watch { number, .. } => Some(*number),
            _ => None,
        };
        let point = hit.and_then(|number| self.debugger.group.points().get(number));
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
        self.say_why(&stopped.reason, &name)?;
        self.when()?;
        self.show_line()?;
        self.show_displays()
    }

    fn say_why(&mut self, reason: &Reason, name: &str) -> Result<(), Failure> {
        let bold = |text: String| paint(Part::Why, &text);
        match reason {
            Reason::Breakpoint { number } => say!("{}", bold(format!("Breakpoint {number}"))),
            Reason::Caught { number } => {
                say!("{}", bold(format!("Catchpoint {number}")))?;
                self.say_event()
            }
            Reason::Watch {
                number,
                values,
                back,
            } => {
                let about = if *back { ", about to change" } else { "" };
                let text = values.as_ref().map_or("", |change| change.text.as_str());
                say!("{}", bold(format!("Watchpoint {number}: {text}{about}")))?;
                if let Some(change) = values {
                    say!("Old value = {}", change.old.text)?;
                    say!("New value = {}", change.new.text)?;
                }
                Ok(())
            }
            Reason::OutOfScope { number, text, back } => match back {
                false => say!(
                    "{}: its frame has returned, it is deleted.",
                    bold(format!("Watchpoint {number}: {text}"))
                ),
                true => say!(
                    "{}: its frame begins here, there is nothing of it before.",
                    bold(format!("Watchpoint {number}: {text}"))
                ),
            },
            Reason::End => say!("{name} has come to its end."),
            Reason::Start => say!("This is the beginning of {name}."),
            Reason::Interrupted => say!("Interrupted."),
            Reason::Diverged(difference) => say!(
                "{name} does not do what it did: expected {}, found {}.",
                difference.expected,
                difference.found
            ),
            Reason::Step | Reason::Arrived | Reason::Exec => Ok(()),
        }
    }

    /// Who and when.
    pub(super) fn when(&mut self) -> Result<(), Failure> {
        let process = self.debugger.process;
        let name = self.debugger.name(process);
        let thread = self.debugger.view()?.target().thread();
        let position = self.debugger.position()?;
        let thread = self.debugger.names().thread(process.number, thread.0);
        let when = match position {
            Position::Event(event) => format!("about to do {name}:{event}"),
            Position::Inside(inside) => format!("before {name}:{}", inside.event),
        };
        say!("{}, {thread}, {when}", paint(Part::Process, &name))
    }

    /// The event that comes next, in words.
    fn say_event(&mut self) -> Result<(), Failure> {
        let event = self.debugger.position()?.event();
        let event = EventId::new(self.debugger.index()?, event);
        let (history, names) = (self.debugger.group.history(), self.debugger.names());
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
        for member in self.debugger.group.members() {
            let name = &member.name;
            let mark = if member.id == self.debugger.process {
                '*'
            } else {
                ' '
            };
            let event = member.at.event();
            let state = if event <= member.first {
                "not begun".to_string()
            } else if event > member.last {
                "ended".to_string()
            } else {
                format!("about to do {name}:{event}")
            };
            say!("{mark} {name:<24} {state}")?;
            if with_lines && event > member.first && event <= member.last {
                let line = self.line_in(member.id)?;
                say!("      {line}")?;
            }
        }
        Ok(())
    }

    /// The innermost line of a process.
    fn line_in(&mut self, process: ProcessId) -> Result<String, Failure> {
        let view = self.debugger.group.at(process)?;
        let inspector = view.inspector();
        let line = view.stack(&inspector, None).and_then(|stack| {
            // The innermost frame that has a line: most wait in a library.
            let frame = stack.frames.iter().find(|f| f.place.is_some());
            let frame = frame.or(stack.frames.first())?;
            line_of(&inspector, frame)
                .lines()
                .next()
                .map(str::to_string)
        });
        Ok(line.unwrap_or_default())
    }

    fn process(&mut self, name: &str) -> Result<(), Failure> {
        let recording = self.debugger.recording();
        let found = query::find::process(&recording, name)?;
        let before = self.debugger.process;
        self.debugger.choose(ProcessId::of_first(found.number));
        match self.debugger.stands() {
            Ok(stopped) => self.say_where(&stopped),
            Err(failure) => {
                // It cannot be looked at.
                self.debugger.choose(before);
                Err(failure)
            }
        }
    }

    pub(super) fn threads(&mut self) -> Result<(), Failure> {
        let process = self.debugger.process;
        let names = self.debugger.names().clone();
        let chosen = self.debugger.thread;
        let rows = self.debugger.look(|inspector, view, _| {
            let running = view.target().thread();
            let rows = view.threads().into_iter().map(|state| {
                let stack = inspector.stack(inspect::ThreadId(state.number.0), 1).ok();
                let top = stack.and_then(|s| s.frames.first().map(|f| line_of(inspector, f)));
                let call = state.call.and_then(protocol::table::syscall);
                let doing = match call {
                    Some(row) if state.waits => format!("waits in {}", row.name),
                    Some(row) => format!("about to call {}", row.name),
                    None => "runs".to_string(),
                };
                let is_chosen = chosen.unwrap_or(running) == state.number;
                (state.number, is_chosen, doing, top.unwrap_or_default())
            });
            rows.collect::<Vec<_>>()
        })?;
        for (number, is_chosen, doing, top) in rows {
            let mark = if is_chosen { '*' } else { ' ' };
            let name = names.thread(process.number, number.0);
            let top = top.lines().next().unwrap_or("").to_string();
            say!("{mark} {number:<4} {name:<16} {doing:<28} {top}")?;
        }
        Ok(())
    }

    fn thread(&mut self, name: &str) -> Result<(), Failure> {
        let process = self.debugger.process;
        let threads = self.debugger.view()?.target().threads();
        let names = self.debugger.names();
        let found = threads.iter().find(|t| {
            name == t.number.to_string() || name == names.thread(process.number, t.number.0)
        });
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
        let names = self.debugger.names().clone();
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
        let text = self.debugger.look(|inspector, view, stack| {
            if !all {
                return stack.map_or(String::new(), |stack| show(inspector, stack));
            }
            let mut text = String::new();
            for state in view.threads() {
                let name = names.thread(process.number, state.number.0);
                text.push_str(&format!("\nThread {} ({name}):\n", state.number));
                if let Ok(stack) = inspector.stack(inspect::ThreadId(state.number.0), 10_000) {
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
            .in_frame(|_, scope| Ok(backtrace::frame_line(scope, &PrintOptions::default())))?;
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
        let lines = self.debugger.in_frame(|_, scope| {
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
        self.debugger.in_frame(|_, scope| {
            let value = scope.evaluate(expression)?;
            let options = PrintOptions {
                format,
                ..PrintOptions::default()
            };
            Ok(Printer::in_scope(scope, options).top(&value))
        })
    }

    fn whatis(&mut self, expression: &str) -> Result<(), Failure> {
        let text = self.debugger.in_frame(|_, scope| {
            let value = inspect::expr::Expression::parse(&scope, expression)?;
            Ok(types::name_of(&value.type_of(&scope)?))
        })?;
        say!("type = {text}")
    }

    fn ptype(&mut self, expression: &str) -> Result<(), Failure> {
        let text = self.debugger.in_frame(|_, scope| {
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
        let lines = self.debugger.in_frame(|inspector, scope| {
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

    /// To an event, and everybody to what belongs to it.
    fn goto(&mut self, text: &str) -> Result<(), Failure> {
        let (only, text) = only(text);
        let way = Direction::Forwards;
        match text {
            "start" => return self.go_quietly(How::ToStart, only),
            "end" => return self.go(How::ToEnd, way, only),
            _ => {}
        }
        if let Ok(event) = text.parse::<u64>() {
            return self.go(How::To(Position::Event(EventNo(event))), way, only);
        }
        let history = self.debugger.group.history();
        let event = query::find::event(history, self.debugger.names(), text)?;
        let process = history.id_of(event.process);
        let before = self.debugger.process;
        if let Some(process) = process {
            self.debugger.choose(process);
        }
        let from = Instant {
            process: before,
            ..self.debugger.instant()
        };
        let at = Position::Event(event.number);
        let stopped = self.debugger.go(How::To(at), way, only);
        if stopped.is_err() {
            self.debugger.choose(before);
        }
        self.moved(from, None)?;
        self.say_where(&stopped?)
    }

    /// Moves to where nothing is to be said of.
    fn go_quietly(&mut self, how: How, only: bool) -> Result<(), Failure> {
        let from = self.debugger.instant();
        self.debugger.go(how, Direction::Forwards, only)?;
        self.moved(from, None)?;
        let stopped = self.debugger.stands()?;
        self.say_where(&stopped)
    }

    /// On to an event of the process at hand, or back to one.
    fn run_to(&mut self, text: &str, back: bool) -> Result<(), Failure> {
        let (only, text) = only(text);
        let process = self.debugger.process;
        let name = self.debugger.name(process);
        let now = self.debugger.position()?;
        let own = text.strip_prefix(&format!("{name}:")).unwrap_or(text);
        let is_inside = matches!(now, Position::Inside(_));
        let event = match own.parse::<u64>() {
            Ok(event) => Some(EventNo(event)),
            Err(_) if text.is_empty() => {
                return Err(Failure::new("run to which event?")
                    .hint("a number, or a pattern: `run-to send and length > 100`"));
            }
            Err(_) => {
                let found = Caught::find(text, self.debugger.group.program())?;
                match (back, is_inside) {
                    (true, _) => found.before(process, now.event()),
                    (false, true) => found.from(process, now.event()),
                    (false, false) => found.from(process, now.event().next()),
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
        let direction = match back {
            true => Direction::Backwards,
            false => Direction::Forwards,
        };
        self.go(How::RunTo(event), direction, only)
    }

    /// To the next event that sends or receives, or the last.
    fn step_message(&mut self, back: bool) -> Result<(), Failure> {
        use protocol::syscall::Type;
        let process = self.debugger.process;
        let position = self.debugger.position()?;
        let now = position.event().0;
        let recording = self.debugger.recording();
        let place = self.debugger.index()?;
        let history = self.debugger.group.history();
        let (first, last) = history.span(place);
        let (first, last) = (first.0, last.0);
        let is_message = |event: &u64| {
            let used = history.uses(EventId::new(place, EventNo(*event)));
            !used.is_empty()
                || recording.log_at(process.number, *event).is_some_and(|log| {
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
            Some(event) => {
                let at = Position::Event(EventNo(event));
                self.go(How::To(at), Direction::Forwards, false)
            }
            None if back => Err(Failure::new("there is no message before")),
            None => Err(Failure::new("there is no further message")),
        }
    }

    /// Which events this one follows from.
    fn why(&mut self) -> Result<(), Failure> {
        let event = self.debugger.position()?.event();
        let place = self.debugger.index()?;
        let history = self.debugger.group.history();
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
        let mode = match mode {
            "causal" => Mode::Causal,
            "consistent" => Mode::Consistent,
            "alone" => Mode::Alone,
            "" => self.debugger.mode,
            other => {
                return Err(Failure::new(format!("there is no mode `{other}`"))
                    .hint("`causal`, `consistent` or `alone`"));
            }
        };
        if mode != self.debugger.mode && mode != Mode::Alone {
            self.debugger.mode = mode;
            let (process, follow) = (self.debugger.process, self.debugger.follow());
            self.debugger.group.regroup(process, follow)?;
        }
        self.debugger.mode = mode;
        say!(
            "{}",
            match mode {
                Mode::Causal => "others are shown where they must have come (causal)",
                Mode::Consistent => "others are shown as far as they can have come (consistent)",
                Mode::Alone => "others stay where they are (alone)",
            }
        )
    }

    fn checkpoint(&mut self) -> Result<(), Failure> {
        let process = self.debugger.process;
        self.debugger.group.checkpoint(process)?;
        let at = self.debugger.position()?;
        self.checkpoints += 1;
        let instant = self.debugger.instant();
        self.debugger.named.push(Named {
            number: self.checkpoints,
            at,
            instant,
        });
        say!(
            "Checkpoint {} at {}:{}",
            self.checkpoints,
            self.debugger.name(process),
            at.event()
        )
    }

    fn restart(&mut self, number: u32) -> Result<(), Failure> {
        let named = self.debugger.named.iter().find(|n| n.number == number);
        let Some(instant) = named.map(|named| named.instant.clone()) else {
            return Err(Failure::new(format!("there is no checkpoint {number}"))
                .hint("`info checkpoints` lists them"));
        };
        let from = self.debugger.instant();
        let stopped = self.debugger.restore(&instant)?;
        self.moved(from, None)?;
        self.say_where(&stopped)
    }
}

/// Which way a command leads.
fn way(name: &str) -> Direction {
    match name.starts_with("reverse-") {
        true => Direction::Backwards,
        false => Direction::Forwards,
    }
}

/// Whether only the process at hand is to move, and what else is said.
fn only(text: &str) -> (bool, &str) {
    match text.strip_prefix("-only") {
        Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => {
            (true, rest.trim_start())
        }
        _ => (false, text),
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
