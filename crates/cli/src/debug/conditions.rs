//! Conditions at the prompt: what is stopped at, traced and run where something holds
//! over several processes, and the motion that leads there.

use std::path::Path;
use std::sync::Arc;

use ::session::{Direction, How, Stopped};
use ::target::Position;
use instants::{Conditions, Does, Entry, Error, Fires, Instant, Next, Part, Traced};
use protocol::id::{Addr, ProcessId};

use super::commands::Prompt;
use super::debugger::Mode;
use super::growing::Growing;
use super::screen::{Part as Colour, paint, say};
use crate::failure::Failure;

/// Why a condition is not taken, with what to do about it.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Rules(error) => crate::check::failure(error),
        error @ Error::NoSuch(_) => Failure::new(&error).hint("`info conditions` lists them"),
        error @ Error::Alive => Failure::new(&error).hint(
            "`mw run` and `mw attach` without `--observe` bring the monitor in, which does",
        ),
        error @ Error::OfSource(_) => Failure::new(&error).hint(
            "`mw run --record` runs a program such that it can be; patterns, places (`at F in P`) and states from those need nothing more",
        ),
        error @ Error::Stopped => Failure::new(&error).hint("`continue` looks for them anew"),
        error @ Error::OfFile(_) => Failure::new(&error).hint("`disable` it"),
        error @ Error::Nowhere(_) => {
            Failure::new(&error).hint("docs/conditions.md says what a condition can be about")
        }
    }
}

/// What is done where no condition holds any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    GoOn,
    Stay,
}

/// What moving on among conditions has come to.
pub enum Came {
    Stopped(Stopped),
    /// Something holds that stops nobody, and nobody can be moved past it.
    Stuck(Stopped),
    /// A command of a rule has moved the program elsewhere.
    Elsewhere,
    /// Nothing comes.
    Nowhere,
}

/// `EXPR, NAME: EXPR, ...`
fn traced(text: &str) -> Vec<Traced> {
    let parts = text.split(", ").map(str::trim);
    let one = |part: &str| match part.split_once(": ") {
        // `a ? b : c` and `N::f` have no name of a process before a colon.
        Some((process, expression)) if is_selector(process) => Traced {
            process: Some(process.to_string()),
            expression: expression.trim().to_string(),
        },
        _ => Traced {
            process: None,
            expression: part.to_string(),
        },
    };
    parts.map(one).collect()
}

fn is_selector(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-.*?@+%".contains(c);
    !text.is_empty() && text.chars().all(is_part)
}

impl Prompt {
    /// `stop if COND`, in either direction.
    pub(super) fn stop_if(&mut self, text: &str, direction: Direction) -> Result<(), Failure> {
        if let Some(pattern) = text.strip_prefix("before ").map(str::trim) {
            return self.stop_before(pattern, direction);
        }
        let (text, later) = match text.strip_prefix("later") {
            Some(rest) => (rest.trim_start(), true),
            None => (text, false),
        };
        let condition = text.strip_prefix("if").map(str::trim).unwrap_or("");
        if condition.is_empty() {
            return Err(Failure::new("stop if what?")
                .hint("`stop if value(a-0: x) > value(b-0: y)`; see docs/conditions.md"));
        }
        if self.debugger.mode == Mode::Alone {
            return Err(Failure::new(
                "a condition over several processes cannot lead one process alone to where it holds",
            )
            .hint("`mode causal` or `mode consistent` first: then everybody who must come along does"));
        }
        let number = self.add_condition(condition, Does::Stop)?;
        if later {
            return say!("Condition {number}: {condition}");
        }
        if self.debugger.is_alive() {
            return match self.holds_now(number)? {
                true => Ok(()),
                false => self.run_on("", direction),
            };
        }
        let debugger = &mut self.debugger;
        let (group, cancel) = (&debugger.group, &debugger.cancel);
        let held = debugger.conditions.holds_here(group, number, cancel);
        if let Some(held) = held.map_err(failure)? {
            return self.say_holds(number, &held);
        }
        self.run_on("", direction)
    }

    /// A condition holds where everybody stands.
    pub(super) fn say_holds(&self, number: u32, held: &Fires) -> Result<(), Failure> {
        let why = format!("Condition {number} holds here already");
        say!("{}", paint(Colour::Why, &why))?;
        say_all(self.part_lines(&held.parts, &held.captures))
    }

    fn add_condition(&mut self, text: &str, does: Does) -> Result<u32, Failure> {
        self.check_recorded()?;
        let debugger = &mut self.debugger;
        let program = Arc::clone(debugger.group.program());
        let number = debugger.group.stops().number();
        let added = debugger.conditions.add(&program, number, text, does);
        added.map_err(failure)?;
        Ok(number)
    }

    /// `trace EXPR if COND`. False: it is a place that is to be traced.
    pub(super) fn trace_if(&mut self, text: &str) -> Result<bool, Failure> {
        let Some((shown, condition)) = text.split_once(" if ") else {
            return Ok(false);
        };
        let place = shown.split(" in ").next().unwrap_or(shown).trim();
        let is_line = place
            .rsplit_once(':')
            .is_some_and(|(_, line)| line.parse::<u32>().is_ok());
        if place.starts_with('*') || is_line || place.parse::<u32>().is_ok() {
            return Ok(false);
        }
        let is_place = self
            .debugger
            .look(|inspector, _, _| ::session::locations(inspector, place).is_ok())?;
        if is_place {
            return Ok(false);
        }
        let shown = traced(shown);
        let number = self.add_condition(condition.trim(), Does::Trace(shown))?;
        say!("Trace {number}: {text}")?;
        Ok(true)
    }

    /// Rules and names in the language of rules.
    pub(super) fn define(&mut self, text: &str) -> Result<(), Failure> {
        self.check_recorded()?;
        let debugger = &mut self.debugger;
        let program = Arc::clone(debugger.group.program());
        let stops = debugger.group.stops();
        let added = debugger
            .conditions
            .define(&program, text, &mut || stops.number());
        self.say_added(added)
    }

    /// A file of rules.
    pub(super) fn read_rules(&mut self, path: &str) -> Result<(), Failure> {
        self.check_recorded()?;
        let debugger = &mut self.debugger;
        let program = Arc::clone(debugger.group.program());
        let stops = debugger.group.stops();
        let added = debugger
            .conditions
            .read(&program, Path::new(path), &mut || stops.number());
        self.say_added(added)
    }

    fn say_added(&self, added: Result<instants::Added, Error>) -> Result<(), Failure> {
        let added = added.map_err(failure)?;
        for number in &added.numbers {
            let Some(entry) = self.debugger.conditions.get(&number.to_string()) else {
                continue;
            };
            let nowhere = added.nowhere.iter().find(|(own, _)| own == number);
            let nowhere =
                nowhere.map_or(String::new(), |(_, why)| format!(" (nowhere here: {why})"));
            say!(
                "Condition {number}: {} {}{nowhere}",
                entry.kind.name(),
                entry.rule
            )?;
        }
        Ok(())
    }

    /// Whether conditions are looked at when the program moves.
    pub(super) fn has_conditions(&self, only: bool) -> bool {
        !only && self.debugger.mode != Mode::Alone && self.debugger.conditions.any()
    }

    /// On, or back, to what stops the program first: a condition, or anything else.
    pub(super) fn run_conditions(&mut self, direction: Direction) -> Result<(), Failure> {
        if self.debugger.is_alive()
            && let Some(dir) = self.recording()
        {
            return self.run_growing(&dir, Growing::Recorded);
        }
        if self.debugger.is_alive() {
            self.observe()?;
            return match self.observed() {
                Some(dir) => self.run_observed(&dir),
                None => Err(failure(Error::Alive)),
            };
        }
        let from = self.debugger.instant();
        let came = self.come(direction, Otherwise::GoOn, &mut Vec::new());
        self.moved(from, None)?;
        match came? {
            Came::Stopped(stopped) | Came::Stuck(stopped) => self.say_where(&stopped),
            Came::Elsewhere | Came::Nowhere => Ok(()),
        }
    }

    /// Moves until something stops the program, and does at each instant of a condition on
    /// the way what is to be done there.
    pub(super) fn come(
        &mut self,
        direction: Direction,
        otherwise: Otherwise,
        told: &mut Vec<u32>,
    ) -> Result<Came, Failure> {
        loop {
            let debugger = &mut self.debugger;
            let before = debugger.group.positions();
            let cancel = debugger.cancel.clone();
            let found = debugger
                .conditions
                .find(&mut debugger.group, direction, &cancel);
            let next = found.map_err(failure)?;
            self.say_unknown(&next, told)?;
            if next.instant.is_none() && otherwise == Otherwise::Stay {
                return Ok(Came::Nowhere);
            }
            let asked = self.debugger.motion(How::Continue, direction, false);
            let stopped = self.debugger.follow_motion(&next.motion(asked))?;
            self.say_traced(&stopped)?;
            let Some(instant) = next.reached(&stopped) else {
                return Ok(Came::Stopped(stopped));
            };
            // Whoever stands still would stand still for ever.
            let is_stuck = self.debugger.group.positions() == before;
            let (stops, is_elsewhere) = self.fire(&instant)?;
            if is_elsewhere {
                return Ok(Came::Elsewhere);
            }
            if stops || self.debugger.cancel.is_cancelled() {
                return Ok(Came::Stopped(stopped));
            }
            if is_stuck {
                return Ok(Came::Stuck(stopped));
            }
        }
    }

    /// What cannot be told is told once.
    pub(super) fn say_unknown(&self, next: &Next, told: &mut Vec<u32>) -> Result<(), Failure> {
        for (number, why) in &next.unknown {
            if !told.contains(number) {
                say!("Condition {number} cannot be told from here: {why}")?;
                told.push(*number);
            }
        }
        Ok(())
    }

    /// What is done where conditions hold: whether everybody stops, and whether a
    /// command has moved somebody.
    fn fire(&mut self, instant: &Instant) -> Result<(bool, bool), Failure> {
        let there = self.debugger.group.positions();
        let mut stops = false;
        for fires in &instant.fires {
            self.debugger.conditions.count(fires.entry.number);
            match &fires.entry.does {
                Does::Trace(shown) => self.say_values(fires, instant, &shown.clone())?,
                _ if fires.commands.is_empty() || fires.entry.does == Does::Stop => {
                    self.say_fires(fires)?;
                }
                _ => {
                    for line in &fires.commands {
                        if let Err(failure) = self.command_of(line, fires) {
                            super::screen::show(failure);
                        }
                        if self.debugger.group.positions() != there {
                            return Ok((true, true));
                        }
                    }
                    if fires.stops {
                        self.say_fires(fires)?;
                    }
                }
            }
            stops |= fires.stops;
        }
        Ok((stops, false))
    }

    /// A command of a rule: names that it binds stand for what they are bound to.
    pub(super) fn command_of(&mut self, line: &str, fires: &Fires) -> Result<(), Failure> {
        if matches!(line, "stop" | "silent") {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["print" | "p", name] = words.as_slice()
            && let Some((name, value)) = fires.captures.iter().find(|(own, _)| own == name)
        {
            return say!("{name} = {value}");
        }
        let mut line = line.to_string();
        for (name, value) in &fires.captures {
            line = line.replace(&format!("${name}"), value);
        }
        self.one(&line)
    }

    fn say_fires(&self, fires: &Fires) -> Result<(), Failure> {
        say_all(self.lines_of(fires))
    }

    /// What held, and which part of it where.
    pub(super) fn lines_of(&self, fires: &Fires) -> Vec<String> {
        let entry = &fires.entry;
        let about = match entry.does {
            Does::Rule => format!("{} {}", entry.kind.name(), entry.rule),
            Does::Stop | Does::Trace(_) => entry.text.clone(),
        };
        let number = format!("Condition {}", entry.number);
        let mut lines = vec![format!("{}: {about}", paint(Colour::Why, &number))];
        lines.extend(self.part_lines(&fires.parts, &fires.captures));
        lines
    }

    /// Which part held where, with values.
    fn part_lines(&self, parts: &[Part], captures: &[(String, String)]) -> Vec<String> {
        // The last events are those that made it complete.
        const SHOWN: usize = 8;
        let mut lines = Vec::new();
        let skipped = parts.len().saturating_sub(SHOWN);
        if skipped > 0 {
            lines.push(format!("  ... {skipped} before"));
        }
        for part in parts.iter().skip(skipped) {
            let name = self.debugger.name(part.process);
            lines.push(match &part.value {
                Some(value) => {
                    let what = part.what.strip_prefix(&format!("{name}:"));
                    let what = what.unwrap_or(&part.what).trim();
                    format!("  {}: {what} = {value}", paint(Colour::Process, &name))
                }
                None => format!("  {}", part.what),
            });
        }
        let captures = captures.iter();
        lines.extend(captures.map(|(name, value)| format!("  {name} = {value}")));
        lines
    }

    /// Values as they are there, of those that are meant.
    fn say_values(
        &mut self,
        fires: &Fires,
        instant: &Instant,
        shown: &[Traced],
    ) -> Result<(), Failure> {
        let words = self.values_of(shown, Some(instant.lead));
        let lead = self.debugger.name(instant.lead);
        let at = self.debugger.group.position(instant.lead)?;
        let number = fires.entry.number;
        say!(
            "Trace {number}, {lead} before {lead}:{}: {}",
            at.event(),
            words.join(", ")
        )
    }

    /// Values as they are where everybody stands, of those that are meant: the one that it
    /// is about where nobody is named.
    pub(super) fn values_of(&mut self, shown: &[Traced], lead: Option<ProcessId>) -> Vec<String> {
        let (process, thread, frame) = (
            self.debugger.process,
            self.debugger.thread,
            self.debugger.frame,
        );
        let mut words = Vec::new();
        for traced in shown {
            let members = self.debugger.group.members();
            let meant: Vec<ProcessId> = match &traced.process {
                None => lead.into_iter().collect(),
                Some(name) => members
                    .iter()
                    .filter(|member| events::glob(name.as_bytes(), member.name.as_bytes()))
                    .map(|member| member.id)
                    .collect(),
            };
            for own in meant {
                self.debugger.choose(own);
                self.debugger.frame = self.debugger.group.first_frame(own).unwrap_or(0);
                let value = self.value_of(&traced.expression, None);
                let value = value.unwrap_or_else(|failure| format!("<{}>", failure.what()));
                let name = self.debugger.name(own);
                words.push(format!("{name}: {} = {value}", traced.expression));
            }
        }
        self.debugger.process = process;
        self.debugger.thread = thread;
        self.debugger.frame = frame;
        words
    }

    /// All conditions.
    pub(super) fn list_conditions(&mut self) -> Result<(), Failure> {
        let conditions = &self.debugger.conditions;
        if conditions.entries().is_empty() {
            return say!("No conditions.");
        }
        for entry in conditions.entries() {
            say!("{}", line(entry, conditions.primary()))?;
        }
        Ok(())
    }

    /// `switch N`: only that one is stopped at.
    pub(super) fn switch(&mut self, which: &str) -> Result<(), Failure> {
        let which = Some(which).filter(|which| !matches!(*which, "" | "all"));
        self.debugger.conditions.switch(which).map_err(failure)?;
        match which {
            Some(which) => {
                say!("Of all conditions only {which} is stopped at; others are told of.")
            }
            None => say!("All conditions are stopped at."),
        }
    }

    /// Conditions and rules, as a file for `source`.
    pub(super) fn save(&mut self, path: &str) -> Result<(), Failure> {
        if path.is_empty() {
            return Err(Failure::new("which file?").hint("`save rules.mw`"));
        }
        let lines = self.debugger.conditions.lines();
        let mut text = lines.join("\n");
        text.push('\n');
        std::fs::write(path, text)
            .map_err(|error| Failure::new(format!("cannot write {path}: {error}")))?;
        let count = self.debugger.conditions.entries().len();
        say!("{count} conditions are in {path}.")
    }

    /// `goto cut P:N Q:M ...`: everybody right after these events, and nobody further
    /// than that needs them.
    pub(super) fn goto_cut(&mut self, text: &str) -> Result<(), Failure> {
        let mut places = Vec::new();
        for word in text.split_whitespace() {
            places.push(self.place_of(word)?);
        }
        let Some((first, _)) = places.first().copied() else {
            return Err(Failure::new("a cut of which events?")
                .hint("`goto cut server-0:12 worker-1:7`; `mw check` and `mw find` print such"));
        };
        let from = self.debugger.instant();
        self.debugger.group.arrange_at(&places)?;
        self.debugger.choose(first);
        let stopped = self.debugger.stands()?;
        self.moved(from, None)?;
        self.say_where(&stopped)
    }

    /// `NAME:NUMBER`, right after that event; `NAME:NUMBER+TRANSFERS@ADDRESS`, on from
    /// there.
    fn place_of(&mut self, word: &str) -> Result<(ProcessId, Position), Failure> {
        let wrong = || {
            Failure::new(format!("`{word}` is not a place of a cut")).hint(
                "NAME:NUMBER, right after that event; what is between events has +N@0xADDRESS",
            )
        };
        let (event, inside) = match word.split_once('+') {
            Some((event, rest)) => (event, Some(rest)),
            None => (word, None),
        };
        let history = self.debugger.group.history()?;
        let event = query::find::event(history, self.debugger.names()?, event)?;
        let process = history.id_of(event.process).ok_or_else(wrong)?;
        let cancel = self.debugger.cancel.clone();
        let group = &mut self.debugger.group;
        let Some(inside) = inside else {
            let at = group.right_after(process, event.number, &cancel)?;
            return Ok((process, at));
        };
        let (transfers, address) = inside.split_once("@0x").ok_or_else(wrong)?;
        let inside = ::target::Inside {
            event: event.number.next(),
            transfers: transfers.parse().map_err(|_| wrong())?,
            address: Addr(u64::from_str_radix(address, 16).map_err(|_| wrong())?),
        };
        Ok((process, Position::Inside(inside)))
    }

    /// Switches conditions on or off that are named, by number or by rule. Gives back
    /// what is left for breakpoints.
    pub(super) fn change_conditions(&mut self, how: &str, which: &str) -> Result<String, Failure> {
        if which.is_empty() {
            match how {
                "delete" => self.debugger.conditions.clear(),
                how => self.debugger.conditions.enable_all(how == "enable"),
            }
            return Ok(String::new());
        }
        let mut left = Vec::new();
        for word in which.split([' ', ',']).filter(|word| !word.is_empty()) {
            let conditions = &mut self.debugger.conditions;
            if conditions.get(word).is_none() {
                left.push(word);
                continue;
            }
            match how {
                "delete" => conditions.remove(word).map_err(failure)?,
                how => conditions.enable(word, how == "enable").map_err(failure)?,
            }
        }
        Ok(left.join(" "))
    }
}

fn say_all(lines: Vec<String>) -> Result<(), Failure> {
    lines.iter().try_for_each(|line| say!("{line}"))
}

/// A condition as `info conditions` has it.
fn line(entry: &Entry, primary: Option<u32>) -> String {
    let does = match &entry.does {
        Does::Stop => format!("stop if {}", entry.text),
        Does::Trace(shown) => {
            let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
            format!("trace {} if {}", shown.join(", "), entry.text)
        }
        Does::Rule => format!("{} {}", entry.kind.name(), entry.text),
    };
    let mut line = format!("{:<4} {does}", entry.number);
    if !entry.enabled {
        line.push_str(" (disabled)");
    }
    if primary == Some(entry.number) {
        line.push_str(" (the only one that is stopped at)");
    }
    line.push_str(&format!(", {} times", entry.hits));
    line
}

impl Prompt {
    /// Whether a line is rules or names, not a command.
    pub(super) fn is_rule(word: &str) -> bool {
        Conditions::is_item(word)
    }
}
