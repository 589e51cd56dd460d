//! The commands that look: processes, threads, frames, variables, memory.

use ::target::{Stuck, ThreadState};
use inspect::examine::Format;
use inspect::frames::Frame;
use inspect::print::{PrintOptions, Printer, backtrace};
use inspect::{Inspector, types};
use protocol::id::{ProcessId, ThreadNo};

use super::commands::{Prompt, number};
use super::screen::{Part, paint, say};
use crate::failure::Failure;

/// What a thread does, in a few words.
pub fn does(state: &ThreadState) -> String {
    let call = state.call.and_then(protocol::table::syscall);
    match (state.stuck, call) {
        (Some(Stuck::Stopped), _) => "stopped by a signal, until SIGCONT".to_string(),
        (Some(Stuck::Uninterruptible), Some(row)) => format!("does not answer, in {}", row.name),
        (Some(Stuck::Uninterruptible), None) => "does not answer".to_string(),
        (None, Some(row)) if state.waits => format!("waits in {}", row.name),
        (None, Some(row)) => format!("about to call {}", row.name),
        (None, None) => "runs".to_string(),
    }
}

impl Prompt {
    /// The chosen frame's place and line.
    pub(super) fn show_line(&mut self) -> Result<(), Failure> {
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
            let is_alive = self.debugger.is_alive();
            let mark = if member.id == self.debugger.process {
                '*'
            } else {
                ' '
            };
            let event = member.at.event();
            let state = if is_alive {
                self.state_alive(member.id, member.is_empty)?
            } else if event <= member.first {
                "not begun".to_string()
            } else if event > member.last && self.front.is_some() {
                "where its recording ends so far".to_string()
            } else if event > member.last {
                "ended".to_string()
            } else {
                format!("about to do {name}:{event}")
            };
            say!("{mark} {name:<24} {state}")?;
            let is_there = match is_alive {
                true => !member.is_empty,
                false => event > member.first && event <= member.last,
            };
            if with_lines && is_there {
                let line = self.line_in(member.id)?;
                say!("      {line}")?;
            }
        }
        Ok(())
    }

    /// The innermost line of a process.
    pub(super) fn line_in(&mut self, process: ProcessId) -> Result<String, Failure> {
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

    /// Takes a process at hand; without a name, shows the one that is.
    pub(super) fn process(&mut self, name: &str) -> Result<(), Failure> {
        if name.is_empty() {
            self.when()?;
            return self.show_line();
        }
        let found = match self.debugger.is_alive() {
            true => self.living_process(name)?,
            false => query::find::process(self.debugger.group.set()?, name)?,
        };
        let before = self.debugger.process;
        self.debugger.choose(found);
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
        let chosen = self.debugger.thread;
        let rows = self.debugger.look(|inspector, view, _| {
            let running = view.target().thread();
            let rows = view.threads().into_iter().map(|state| {
                let stack = view.frames(inspector, state.number, 1).ok();
                let top = stack.and_then(|s| s.frames.first().map(|f| line_of(inspector, f)));
                let doing = does(&state);
                let is_chosen = chosen.unwrap_or(running) == state.number;
                (state.number, is_chosen, doing, top.unwrap_or_default())
            });
            rows.collect::<Vec<_>>()
        })?;
        for (number, is_chosen, doing, top) in rows {
            let mark = if is_chosen { '*' } else { ' ' };
            let name = self.debugger.thread_name(process, number)?;
            let top = top.lines().next().unwrap_or("").to_string();
            say!("{mark} {number:<4} {name:<16} {doing:<28} {top}")?;
        }
        Ok(())
    }

    /// Looks at a thread; without a name, shows which is looked at.
    pub(super) fn thread(&mut self, name: &str) -> Result<(), Failure> {
        if name.is_empty() {
            let process = self.debugger.process;
            let thread = match self.debugger.thread {
                Some(thread) => thread,
                None => self.debugger.view()?.target().thread(),
            };
            let name = self.debugger.thread_name(process, thread)?;
            say!("{thread}  {}", paint(Part::Process, &name))?;
            return self.show_line();
        }
        self.debugger.thread = Some(self.thread_named(name)?);
        self.debugger.frame = 0;
        self.show_line()
    }

    /// A thread of the process at hand, by its number or name.
    pub(super) fn thread_named(&mut self, name: &str) -> Result<ThreadNo, Failure> {
        let threads = self.debugger.view()?.target().threads();
        let process = self.debugger.process;
        let mut found = None;
        for state in threads {
            let is_it = name == state.number.to_string()
                || name == self.debugger.thread_name(process, state.number)?;
            found = found.or(is_it.then_some(state));
        }
        let Some(found) = found else {
            return Err(Failure::new(format!("there is no thread `{name}` here"))
                .hint("`threads` lists them"));
        };
        Ok(found.number)
    }

    /// Where a thread of a process stands, by the kernel's id of it.
    pub(super) fn line_of_thread(&mut self, process: ProcessId, tid: u32) -> Option<String> {
        let view = self.debugger.group.at(process).ok()?;
        let state = view.threads().into_iter().find(|state| state.tid == tid)?;
        let inspector = view.inspector();
        let stack = view.frames(&inspector, state.number, 1).ok()?;
        let line = line_of(&inspector, stack.frames.first()?);
        line.lines().next().map(str::to_string)
    }

    /// `bt [all] [full] [N|-N]`: so many of the innermost frames, or of the
    /// outermost ones.
    pub(super) fn backtrace(&mut self, words: &str) -> Result<(), Failure> {
        let process = self.debugger.process;
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
        let threads = self.debugger.view()?.threads();
        let named = threads.into_iter().map(|state| {
            let name = self.debugger.thread_name(process, state.number)?;
            Ok((state, name))
        });
        let named = named.collect::<Result<Vec<_>, Failure>>()?;
        let text = self.debugger.look(|inspector, view, stack| {
            if !all {
                return stack.map_or(String::new(), |stack| show(inspector, stack));
            }
            let mut text = String::new();
            for (state, name) in &named {
                text.push_str(&format!("\nThread {} ({name}):\n", state.number));
                if let Some(stack) = view.stack(inspector, Some(state.number)) {
                    text.push_str(&show(inspector, &stack));
                }
            }
            text
        })?;
        say!("{}", text.trim_end())?;
        Ok(())
    }

    /// So many frames up or down, or as far as there are some: one, if it is not said.
    pub(super) fn move_frame(&mut self, count: &str, up: bool) -> Result<(), Failure> {
        let count = match count {
            "" => 1,
            count => number(count)? as usize,
        };
        let depth = self
            .debugger
            .look(|_, _, stack| stack.map_or(0, |s| s.frames.len()))?;
        let (here, outermost) = (self.debugger.frame, depth.saturating_sub(1));
        let frame = match up {
            true => here.saturating_add(count).min(outermost),
            false => here.saturating_sub(count),
        };
        if frame == here && count > 0 {
            return Err(match up {
                true => Failure::new("this is the outermost frame; there is none above"),
                false => Failure::new("this is the innermost frame; there is none below"),
            });
        }
        self.debugger.frame = frame;
        self.show_frame()
    }

    pub(super) fn frame(&mut self, which: &str) -> Result<(), Failure> {
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

    pub(super) fn show_frame(&mut self) -> Result<(), Failure> {
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

    /// The source from a line on, or around the frame's.
    pub(super) fn list(&mut self, from: Option<u32>) -> Result<(), Failure> {
        const LINES: u32 = 10;
        let frame = self.debugger.frame;
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

    pub(super) fn print(&mut self, expression: &str, format: Option<&str>) -> Result<(), Failure> {
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

    pub(super) fn whatis(&mut self, expression: &str) -> Result<(), Failure> {
        let text = self.debugger.in_frame(|_, scope| {
            let value = inspect::expr::Expression::parse(&scope, expression)?;
            Ok(types::name_of(&value.type_of(&scope)?))
        })?;
        say!("type = {text}")
    }

    pub(super) fn ptype(&mut self, expression: &str) -> Result<(), Failure> {
        let text = self.debugger.in_frame(|_, scope| {
            let value = inspect::expr::Expression::parse(&scope, expression)?;
            Ok(types::describe(&value.type_of(&scope)?))
        })?;
        say!("type = {text}")?;
        Ok(())
    }

    pub(super) fn examine(
        &mut self,
        expression: &str,
        format: Option<&str>,
    ) -> Result<(), Failure> {
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

    pub(super) fn disassemble(&mut self) -> Result<(), Failure> {
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
