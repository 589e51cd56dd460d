//! What the prompt remembers, and how it runs the lines that are typed.

use std::collections::VecDeque;
use std::sync::Arc;

use ::session::Direction;
use inspect::examine::Format;
use instants::Conditions;

use super::Living;
use super::console::TimeLimit;
use super::debugger::{Debugger, Instant};
use super::job::Job;
use super::limits::OnTimeout;
use super::observed::Watched;
use super::past::Front;
use super::screen::say;
use super::table::{Call, commands, find};
use crate::failure::Failure;

/// Whether the prompt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    More,
    Quit,
}

/// What it waits for a command with.
pub const PROMPT: &str = "(mw) ";

/// Nobody is there who could do what is asked.
pub fn not_here() -> Failure {
    Failure::new("the debugger has come to its end")
}

pub struct Prompt {
    pub(super) debugger: Debugger,
    /// The line that is being done.
    pub(super) job: Option<Arc<Job>>,
    /// How long a line may take.
    pub(super) limit: Arc<TimeLimit>,
    /// It looks beside another one, which may move the program meanwhile.
    pub(super) is_beside: bool,
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
    /// The user has enough.
    pub(super) quits: bool,
    /// What belongs to a program that is alive.
    pub(super) living: Option<Living>,
    /// What becomes of time limits that are over in a step.
    pub(super) on_timeout: OnTimeout,
    /// The program as it is now, while its past is looked at.
    pub(super) front: Option<Front>,
    /// Places at which the program is halted because conditions ask about them.
    pub(super) places: Vec<Watched>,
}

impl Prompt {
    pub fn new(debugger: Debugger) -> Prompt {
        Prompt {
            debugger,
            job: None,
            limit: Arc::default(),
            is_beside: false,
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
            quits: false,
            living: None,
            places: Vec::new(),
            on_timeout: OnTimeout::default(),
            front: None,
        }
    }

    pub fn process_names(&self) -> Vec<String> {
        let members = self.debugger.group.members();
        members.into_iter().map(|member| member.name).collect()
    }

    pub fn greeting(&self) -> String {
        let count = self.debugger.group.members().len();
        let name = self.debugger.name(self.debugger.process);
        let place = match self.debugger.is_alive() {
            true => "halted",
            false => "at its beginning",
        };
        let processes = if count == 1 { "process" } else { "processes" };
        format!("{count} {processes}; {name} is at hand, {place}. `help` lists the commands.")
    }

    /// Runs a line, and what breakpoints have to be done for it.
    pub fn execute(&mut self, job: &Arc<Job>) -> Result<Next, Failure> {
        self.debugger.cancel = job.cancel();
        self.job = Some(Arc::clone(job));
        let mut done = self.one(&job.line);
        // What a breakpoint has to do may lead to the next.
        while let Some(line) = self.queue.pop_front() {
            if done.is_err() || self.quits || self.debugger.cancel.is_cancelled() {
                self.queue.clear();
                break;
            }
            done = self.one(&line);
        }
        done.map(|()| match self.quits {
            true => Next::Quit,
            false => Next::More,
        })
    }

    /// What it waits for: the lines of `commands`, or a command.
    pub fn prompt(&self) -> &'static str {
        match self.collecting {
            Some(_) => "> ",
            None => PROMPT,
        }
    }

    pub(super) fn one(&mut self, line: &str) -> Result<(), Failure> {
        let line = line.trim();
        if self.collect(line)? || line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let (word, rest) = word_and_rest(line);
        if Prompt::is_rule(word) {
            return self.define(line);
        }
        // p/x and x/4g
        let (word, format) = match word.split_once('/') {
            Some((word, format)) => (word, Some(format)),
            None => (word, None),
        };
        let command = find(word)?;
        let call = Call {
            name: command.name,
            format,
            rest,
            listed: self.listed.take(),
        };
        self.in_its_time(command, &call)
    }

    /// The command that follows, backwards.
    pub(super) fn reverse(&mut self, line: &str) -> Result<(), Failure> {
        let (word, rest) = word_and_rest(line);
        if word.is_empty() {
            return Err(Failure::new("what is to be done backwards?")
                .hint("`rev step`, `rev next`, `rev continue` ..."));
        }
        let name = find(word)?.name;
        match name {
            "run-to" => return self.run_to(rest, true),
            "stop" => return self.stop_if(rest, Direction::Backwards),
            _ => {}
        }
        let back = format!("reverse-{name}");
        if !commands().any(|c| c.name == back) {
            return Err(Failure::new(format!("`{name}` cannot be done backwards"))
                .hint("step, next, stepi, nexti, finish, until, run-to, stop and continue can"));
        }
        self.one(&format!("{back} {rest}"))
    }

    /// Lines from a file.
    pub(super) fn source(&mut self, path: &str) -> Result<(), Failure> {
        if path.is_empty() {
            return Err(Failure::new("which file?").hint("`source setup.mw`"));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {path}: {error}")))?;
        if Conditions::is_rules(&text) {
            return self.read_rules(path);
        }
        // One that reads itself never ends.
        const LINES_MAX: usize = 100_000;
        if self.queue.len() > LINES_MAX {
            return Err(Failure::new(format!(
                "{path}: too many lines wait to be run"
            )));
        }
        for entry in entries(&text).into_iter().rev() {
            self.queue.push_front(entry);
        }
        Ok(())
    }
}

/// What commands there are, or what one does.
pub(super) fn help(about: &str) -> Result<(), Failure> {
    if about.is_empty() {
        for command in commands() {
            let names: Vec<&str> = command.names().collect();
            say!("{:<28} {}", names.join(", "), command.summary)?;
        }
        return Ok(());
    }
    let command = find(about)?;
    say!("{}: {}", command.name, command.summary)?;
    if !command.arguments.is_empty() {
        say!("usage: {}", command.usage())?;
    }
    if !command.more.is_empty() {
        say!("{}.", command.more)?;
    }
    say!("    (mw) {}", command.example)
}

/// A command about lines that are typed, where none is: at a breakpoint, in a file.
pub(super) fn of_console(name: &str) -> Result<(), Failure> {
    Err(Failure::new(format!(
        "`{name}` is about what was typed: it means nothing among the commands of a breakpoint or a file"
    )))
}

/// A script, a command each; rules go on up to the next command.
fn entries(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut in_rules = false;
    for line in text.lines() {
        let (word, _) = word_and_rest(line.trim());
        let begins = line.starts_with(|c: char| !c.is_whitespace() && c != '#');
        let is_rule = Prompt::is_rule(word);
        let is_command = commands().any(|c| c.names().any(|name| name == word));
        in_rules = is_rule || in_rules && !(begins && is_command);
        match all.last_mut() {
            Some(last) if in_rules && !is_rule => {
                last.push('\n');
                last.push_str(line);
            }
            _ => all.push(line.to_string()),
        }
    }
    all
}

/// The first word of a line, and what follows it.
pub(super) fn word_and_rest(line: &str) -> (&str, &str) {
    match line.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim()),
        None => (line, ""),
    }
}

pub(super) fn number(text: &str) -> Result<u32, Failure> {
    if text.is_empty() {
        return Err(Failure::new("a number is missing").hint("`help COMMAND` says of what"));
    }
    text.parse()
        .map_err(|_| Failure::new(format!("`{text}` is not a number")))
}

#[cfg(test)]
mod tests {
    use super::entries;

    #[test]
    fn rules_in_a_script_are_whole() {
        let text =
            "break main\nlet a = send\nrecognizer r:\n  a a\n# twice\ndo { stop }\n\nstop if a\n";
        let expected = [
            "break main",
            "let a = send",
            "recognizer r:\n  a a\n# twice\ndo { stop }\n",
            "stop if a",
        ];
        assert_eq!(entries(text), expected);
    }
}
