//! `info`: what there is to know about the place, and about the session.

use super::commands::{Prompt, word_and_rest};
use super::screen::say;
use super::table::{TOPICS, topic};
use crate::failure::Failure;
use ::target::Handler;
use protocol::names::{signal_name, signal_number};

impl Prompt {
    pub(super) fn info(&mut self, about: &str) -> Result<(), Failure> {
        let (word, rest) = word_and_rest(about);
        match topic(word) {
            Some(topic) => (topic.handler)(self, rest),
            None => {
                let all: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
                let failure = match about {
                    "" => Failure::new("info about what?"),
                    about => Failure::new(format!("info about what? (`{about}`)")),
                };
                Err(failure.hint(format!("one of {}", all.join(", "))))
            }
        }
    }

    pub(super) fn registers(&mut self, which: &str) -> Result<(), Failure> {
        let frame = self.debugger.frame;
        let wanted: Vec<&str> = which
            .split_whitespace()
            .map(|name| name.trim_start_matches('$'))
            .collect();
        let lines = self.debugger.look(|inspector, _, stack| {
            stack
                .and_then(|s| s.frames.get(frame))
                .map(|f| inspector.register_lines(f))
        })?;
        let lines = lines.unwrap_or_default();
        let name_of = |line: &String| line.split_whitespace().next().unwrap_or("").to_string();
        for name in &wanted {
            if !lines.iter().any(|line| name_of(line) == *name) {
                return Err(Failure::new(format!("there is no register `{name}`"))
                    .hint("`info registers` lists them"));
            }
        }
        for line in &lines {
            if wanted.is_empty() || wanted.contains(&name_of(line).as_str()) {
                say!("{line}")?;
            }
        }
        Ok(())
    }

    pub(super) fn list_checkpoints(&mut self) -> Result<(), Failure> {
        if self.debugger.named.is_empty() {
            say!("No checkpoints.")?;
        }
        for named in &self.debugger.named {
            say!(
                "{:<4} {}:{}",
                named.number,
                self.debugger.name(named.instant.process),
                named.at.event()
            )?;
        }
        Ok(())
    }

    pub(super) fn frame_facts(&mut self) -> Result<(), Failure> {
        let frame = self.debugger.frame;
        let text = self.debugger.look(|inspector, _, stack| {
            let frame = stack?.frames.get(frame)?;
            let name = frame.name.clone().unwrap_or_else(|| "??".to_string());
            let mut lines = vec![format!(
                "Frame {}: {:#x} in {name}, {:?}",
                frame.level,
                frame.pc,
                frame.language()
            )];
            if let Some(place) = &frame.place {
                lines.push(format!("at {}:{}", place.file.path, place.line));
            }
            if let Some(cfa) = frame.cfa {
                lines.push(format!("frame address {cfa:#x}"));
            }
            if let Some((returns, _)) = inspector.return_place(stack?, frame.level) {
                lines.push(format!("returns to {returns:#x}"));
            }
            Some(lines.join("\n"))
        })?;
        say!("{}", text.unwrap_or_else(|| "no frame".to_string()))
    }

    /// The code of a line, or of the current one.
    pub(super) fn line(&mut self, place: &str) -> Result<(), Failure> {
        let address = match place {
            "" => None,
            place => self.addresses_of("info line", place)?.first().copied(),
        };
        let frame = self.debugger.frame;
        let text = self.debugger.look(|inspector, _, stack| {
            let here = stack.and_then(|s| s.frames.get(frame)).map(|f| f.pc);
            let line = inspector.line_at(address.or(here)?)?;
            Some(format!(
                "Line {} of \"{}\" starts at {:#x}{} and ends at {:#x}.",
                line.line,
                line.file.name,
                line.start,
                inspector
                    .symbolize(line.start)
                    .map_or(String::new(), |name| format!(" <{name}>")),
                line.end
            ))
        })?;
        match text {
            Some(text) => say!("{text}"),
            None => Err(no_lines()),
        }
    }

    pub(super) fn source_file(&mut self) -> Result<(), Failure> {
        let frame = self.debugger.frame;
        let text = self.debugger.look(|inspector, _, stack| {
            let frame = stack.and_then(|s| s.frames.get(frame))?;
            let place = frame.place.as_ref()?;
            let found = match inspector.library.sources.read(&place.file) {
                Ok(_) => "its text is at hand".to_string(),
                Err(error) => format!("its text is not at hand: {error}"),
            };
            Some(format!(
                "{} ({:?}); {found}",
                place.file.path,
                frame.language()
            ))
        })?;
        match text {
            Some(text) => say!("{text}"),
            None => Err(no_lines()),
        }
    }

    /// The symbol of an address.
    pub(super) fn symbol(&mut self, expression: &str) -> Result<(), Failure> {
        if expression.is_empty() {
            return Err(Failure::new("the symbol of which address?").hint("`info symbol $pc`"));
        }
        let address = self.debugger.address(expression)?;
        let text = self.debugger.look(|inspector, _, _| {
            let module = inspector.module_at(address);
            let of = module.map_or(String::new(), |m| {
                format!(" of {}", inspector.module_name(&m))
            });
            match inspector.symbolize(address) {
                Some(name) => format!("{}{of}", name.replace('+', " + ")),
                None => format!("No symbol matches {expression}."),
            }
        })?;
        say!("{text}")
    }

    /// What the program does with signals, where it stands.
    pub(super) fn signals(&mut self, which: &str) -> Result<(), Failure> {
        let wanted = match which {
            "" | "all" => None,
            name => Some(signal_of(name)?),
        };
        let process = self.debugger.process;
        let (handlers, threads) = {
            let view = self.debugger.view()?;
            (view.target().handlers(), view.target().threads())
        };
        let mut none = true;
        for (number, handler) in (1u64..).zip(&handlers) {
            let blocked = threads
                .iter()
                .filter(|thread| thread.blocked >> (number - 1) & 1 != 0)
                .map(|thread| self.debugger.thread_name(process, thread.number));
            let blocked = blocked.collect::<Result<Vec<String>, _>>()?;
            let is_shown = match wanted {
                Some(wanted) => wanted == number,
                None => *handler != Handler::System || !blocked.is_empty(),
            };
            if !is_shown {
                continue;
            }
            none = false;
            let does = match handler {
                Handler::System => "default".to_string(),
                Handler::Ignored => "ignored".to_string(),
                Handler::Function(None) => "handled".to_string(),
                Handler::Function(Some(address)) => self.debugger.look(|inspector, _, _| {
                    let name = inspector.symbolize(*address);
                    format!("{address:#x} {}", name.unwrap_or_default())
                })?,
            };
            let blocks = match blocked.len() {
                0 => String::new(),
                count if count == threads.len() && count > 1 => {
                    ", blocked by all threads".to_string()
                }
                _ => format!(", blocked by {}", blocked.join(", ")),
            };
            let name = signal_name(number).map_or(number.to_string(), str::to_string);
            say!("{name:<12} {}{blocks}", does.trim_end())?;
        }
        if none {
            say!("No signal is handled, ignored or blocked here.")?;
        }
        if wanted.is_none() && !self.debugger.is_alive() {
            say!("(signals come when they came: `catch signal` stops before them)")?;
        }
        Ok(())
    }

    pub(super) fn mappings(&mut self) -> Result<(), Failure> {
        let regions = self.debugger.view()?.target().regions();
        for region in regions.map_err(::session::Error::from)? {
            let right = |yes: bool, letter: char| if yes { letter } else { '-' };
            let name = match region.file {
                Some((_, path)) => path.display().to_string(),
                None if region.is_vdso => "[vdso]".to_string(),
                None => String::new(),
            };
            let line = format!(
                "{:#018x}  {:#018x}  {}{} {:#10x}  {name}",
                region.range.start,
                region.range.end,
                right(region.writable, 'w'),
                right(region.executable, 'x'),
                region.offset,
            );
            say!("{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Says which debug files are of another build than what they are for.
    pub(super) fn mismatched(&mut self) -> Result<(), Failure> {
        let lines = self.debugger.look(|inspector, _, _| {
            let modules = inspector.modules().iter();
            let all = modules.flat_map(|m| {
                let files = m.module.mismatched().into_iter();
                files.map(|file| (inspector.module_name(m), file))
            });
            all.collect::<Vec<_>>()
        })?;
        for (name, file) in lines {
            let file = file.display();
            say!("note: {file} is of another build than {name} (build id), and is not used")?;
        }
        Ok(())
    }

    pub(super) fn libraries(&mut self) -> Result<(), Failure> {
        let lines = self.debugger.look(|inspector, _, _| {
            let modules = inspector.modules().iter();
            modules
                .map(|m| {
                    let symbols = match m.module.info() {
                        Some(_) => "lines and variables",
                        None => "symbols only",
                    };
                    format!(
                        "{:#018x}  {:#018x}  {symbols:<20} {}",
                        m.start,
                        m.end,
                        inspector.module_name(m)
                    )
                })
                .collect::<Vec<_>>()
        })?;
        for line in lines {
            say!("{line}")?;
        }
        self.mismatched()
    }
}

/// A signal by its name, with or without `SIG`, or by its number.
pub(super) fn signal_of(name: &str) -> Result<u64, Failure> {
    let upper = name.to_ascii_uppercase();
    let numbered = || {
        upper
            .parse()
            .ok()
            .filter(|number| (1..=64).contains(number))
    };
    signal_number(&upper).or_else(numbered).ok_or_else(|| {
        Failure::new(format!("there is no signal `{name}`"))
            .hint("`info signals` lists those that the program has to do with")
    })
}

fn no_lines() -> Failure {
    Failure::new("no source line is known here")
        .hint("the code has no debug information; `up` may lead to some that has")
}
