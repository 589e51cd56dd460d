//! The commands about what to stop at, and about what to show there.

use ::session::{Caught, Error, Point, What, Whom, address_in, locations};
use protocol::id::{Addr, EventNo};

use super::commands::{Prompt, number};
use super::screen::say;
use crate::failure::Failure;

/// Cuts ` if CONDITION` and ` in NAME` off.
fn parts(text: &str) -> (&str, Option<String>, Option<String>) {
    let (text, condition) = match text.split_once(" if ") {
        Some((text, condition)) => (text.trim(), Some(condition.trim().to_string())),
        None => (text, None),
    };
    match text.split_once(" in ") {
        Some((place, program)) => (place.trim(), Some(program.trim().to_string()), condition),
        None => (text, None, condition),
    }
}

/// Numbers and ranges of them.
fn numbers(text: &str) -> Result<Vec<u32>, Failure> {
    let mut all = Vec::new();
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        match word.split_once('-') {
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to)?);
                if to < from || to - from > 100_000 {
                    return Err(Failure::new(format!("`{word}` is not a range")));
                }
                all.extend(from..=to);
            }
            None => all.push(number(word)?),
        }
    }
    Ok(all)
}

/// A point as `info breakpoints` has it.
fn lines(point: &Point) -> Vec<String> {
    let what = match point.what {
        What::Break(_) if point.traces => "trace ",
        What::Break(_) | What::Code { .. } => "",
        What::Watch(_) | What::Memory { .. } => "watch ",
        What::Catch(_) => "catch ",
    };
    let mut line = format!("{:<4} {what}{}", point.number, point.text());
    if let Whom::Named(name) = &point.whom {
        line.push_str(&format!(" in {name}"));
    }
    if let Some(condition) = &point.condition {
        line.push_str(&format!(" if {condition}"));
    }
    for (is_so, word) in [(point.temporary, "once"), (!point.enabled, "disabled")] {
        if is_so {
            line.push_str(&format!(" ({word})"));
        }
    }
    line.push_str(&format!(", hit {} times", point.hits));
    if point.ignore > 0 {
        line.push_str(&format!(", the next {} ignored", point.ignore));
    }
    let commands = point.commands.iter().map(|c| format!("        {c}"));
    std::iter::once(line).chain(commands).collect()
}

impl Prompt {
    /// The addresses of a place that must be there.
    pub(super) fn addresses_of(&mut self, what: &str, place: &str) -> Result<Vec<Addr>, Failure> {
        if place.is_empty() {
            return Err(Failure::new(format!("{what} where?")).hint(format!("`{what} main.rs:50`")));
        }
        let place = self.with_file(place)?;
        let found = self
            .debugger
            .look(|inspector, _, _| locations(inspector, &place))?;
        Ok(found?.into_iter().map(|place| place.address).collect())
    }

    /// A line number alone is one of the current file; what is behind `*` is an
    /// expression whose value is an address.
    fn with_file(&mut self, place: &str) -> Result<String, Failure> {
        if let Some(expression) = place.strip_prefix('*') {
            return Ok(format!("*{:#x}", self.debugger.address(expression)?));
        }
        if place.parse::<u32>().is_err() {
            return Ok(place.to_string());
        }
        let frame = self.debugger.frame;
        let file = self.debugger.look(|_, _, stack| {
            let place = stack?.frames.get(frame)?.place.as_ref()?;
            Some(place.file.name.clone())
        })?;
        match file {
            Some(file) => Ok(format!("{file}:{place}")),
            None => Err(
                Failure::new(format!("line {place} of which file? None is known here"))
                    .hint("say FILE:LINE"),
            ),
        }
    }

    pub(super) fn add_breakpoint(&mut self, how: &str, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Err(Failure::new(format!("{how} where?")).hint(format!(
                "at a function, FILE:LINE or *ADDRESS: `{how} main.rs:42`"
            )));
        }
        if how == "trace" && self.trace_if(text)? {
            return Ok(());
        }
        let (place, program, condition) = parts(text);
        let place = self.with_file(place)?;
        // Known now, or in code that is mapped later.
        let found = self.debugger.look(|inspector, _, _| {
            locations(inspector, &place).map(|found| {
                let changes = found.first().is_some_and(|first| {
                    let mut mapped = inspector.mappings().iter();
                    mapped.any(|m| m.writable && (m.start..m.end).contains(&first.address))
                });
                (found, changes)
            })
        })?;
        // Code that is made at run time may be there later.
        if let (Err(why), Some(address)) = (&found, address_in(&place)) {
            let is_data = self.debugger.look(|inspector, _, _| {
                let mut mapped = inspector.mappings().iter();
                mapped.any(|m| (m.start..m.end).contains(&address) && !m.executable && !m.writable)
            })?;
            if is_data || address < Addr(4096) {
                return Err(Failure::new(why));
            }
        }
        let noun = if how == "trace" {
            "Tracepoint"
        } else {
            "Breakpoint"
        };
        let stops = self.debugger.group.stops();
        let number = stops.add(What::Break(place), |point| {
            point.temporary = how == "tbreak";
            point.whom = program.map_or(Whom::All, Whom::Named);
            point.condition = condition;
            point.traces = how == "trace";
        });
        let first = found.as_ref().ok().and_then(|(found, changes)| {
            let first = found.first()?;
            let line = first.line.as_ref();
            let line = line.map(|line| format!(": {}, line {}", line.file.name, line.line));
            Some((first.address, line, found.len(), *changes))
        });
        match (first, found) {
            (Some((address, line, count, changes)), _) => {
                let more = match count {
                    1 => String::new(),
                    count => format!(" ({count} places)"),
                };
                let line = line.unwrap_or_default();
                say!("{noun} {number} at {address:#x}{line}{more}")?;
                if changes {
                    say!(
                        "(the program can write to this code: the breakpoint stays at the address)"
                    )?;
                }
            }
            (None, found) => {
                let why = found.err().map_or(String::new(), |why| format!(" ({why})"));
                say!(
                    "{noun} {number}: not in the code that {} has mapped yet{why}",
                    self.debugger.name(self.debugger.process),
                )?;
            }
        }
        Ok(())
    }

    pub(super) fn watch(&mut self, text: &str) -> Result<(), Failure> {
        let text = ["-location ", "-l "]
            .iter()
            .find_map(|option| text.strip_prefix(option))
            .unwrap_or(text);
        if text.is_empty() {
            return Err(Failure::new("watch what?").hint("`watch account.balance`"));
        }
        let (text, condition) = match text.split_once(" if ") {
            Some((text, condition)) => (text.trim(), Some(condition.trim().to_string())),
            None => (text, None),
        };
        let frame = self.debugger.frame_ref();
        let watched = self.debugger.group.watched(frame, text)?;
        let (shown, is_local) = (watched.seen.text.clone(), watched.frame.is_some());
        let stops = self.debugger.group.stops();
        let number = stops.add(What::Watch(Box::new(watched)), |point| {
            point.condition = condition;
        });
        let scope = if is_local {
            ", as long as its frame is there"
        } else {
            ""
        };
        say!("Watchpoint {number}: {text}{scope}; now {shown}")
    }

    pub(super) fn catch(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Err(Failure::new("catch what?").hint(
                "events by a pattern (`catch send and length > 100`), or `catch syscall write`",
            ));
        }
        let caught = Caught::find(text, self.debugger.group.program())?;
        if caught.alive().is_some() {
            let number = self.debugger.group.stops().add(What::Catch(caught), |_| {});
            return say!("Catchpoint {number}: {text}");
        }
        let all = caught.count();
        let here = self.debugger.process;
        let own = caught.from(here, EventNo(0)).is_some();
        let stops = self.debugger.group.stops();
        let number = stops.add(What::Catch(caught), |_| {});
        say!("Catchpoint {number}: {text}; {all} events in all")?;
        if !own {
            let name = self.debugger.name(here);
            say!("(none of them is of {name}, the process at hand)")?;
        }
        Ok(())
    }

    /// `stop before PATTERN`: on to where something is about to be done, and is not yet.
    pub(super) fn stop_before(
        &mut self,
        text: &str,
        direction: ::session::Direction,
    ) -> Result<(), Failure> {
        let caught = Caught::attempts(text, self.debugger.group.program())?;
        let number = self.debugger.group.stops().add(What::Catch(caught), |_| {});
        say!("Catchpoint {number}: before {text}")?;
        self.run_on("", direction)
    }

    pub(super) fn condition(&mut self, text: &str) -> Result<(), Failure> {
        let (which, condition) = match text.split_once(char::is_whitespace) {
            Some((which, condition)) => (which, condition.trim()),
            None => (text, ""),
        };
        let point = self.debugger.group.stops().get_mut(number(which)?)?;
        let number = point.number;
        if condition.is_empty() {
            point.condition = None;
            say!("Breakpoint {number} has no condition now.")?;
        } else {
            point.condition = Some(condition.to_string());
        }
        Ok(())
    }

    pub(super) fn ignore(&mut self, text: &str) -> Result<(), Failure> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [which, count] = words.as_slice() else {
            return Err(Failure::new("ignore which breakpoint, and how often?")
                .hint("`ignore 1 10` passes over it ten times"));
        };
        let count = number(count)?;
        let point = self.debugger.group.stops().get_mut(number(which)?)?;
        point.ignore = u64::from(count);
        say!(
            "The next {count} times that {} is come to are passed over.",
            point.number
        )
    }

    /// `continue N`: the breakpoint that it stands at counts N times.
    pub(super) fn pass_over(&mut self, count: &str) -> Result<(), Failure> {
        if count.is_empty() {
            return Ok(());
        }
        let count = number(count)?;
        let Some(last) = self.last_hit else {
            return Err(Failure::new("it does not stand at a breakpoint")
                .hint("`ignore NUMBER COUNT` says which one to pass over"));
        };
        self.debugger.group.stops().get_mut(last)?.ignore = u64::from(count.saturating_sub(1));
        Ok(())
    }

    pub(super) fn change_points(&mut self, how: &str, which: &str) -> Result<(), Failure> {
        let which = which.trim_start_matches("breakpoints").trim();
        let (which, displays) = match which.strip_prefix("display") {
            Some(which) => (which.trim(), true),
            None => (which, false),
        };
        if displays && how == "delete" {
            return self.undisplay(which);
        }
        let left = self.change_conditions(how, which)?;
        if left.is_empty() && !which.is_empty() {
            return Ok(());
        }
        let wanted = numbers(&left)?;
        for number in &wanted {
            if self.debugger.group.points().get(*number).is_none() {
                return Err(Error::NoPoint(*number).into());
            }
        }
        let matches = |n: u32| wanted.is_empty() || wanted.contains(&n);
        let stops = self.debugger.group.stops();
        if how == "delete" {
            stops.retain(|p| !matches(p.number));
            return Ok(());
        }
        let all: Vec<u32> = stops.all().iter().map(|p| p.number).collect();
        for number in all.into_iter().filter(|n| matches(*n)) {
            stops.get_mut(number)?.enabled = how == "enable";
        }
        Ok(())
    }

    pub(super) fn list_points(&mut self, watches: bool) -> Result<(), Failure> {
        let is_shown = |point: &&Point| !watches || matches!(point.what, What::Watch(_));
        let mut none = true;
        let points = self.debugger.group.points().all();
        for point in points.iter().filter(is_shown) {
            none = false;
            for line in lines(point) {
                say!("{line}")?;
            }
        }
        match (none, watches) {
            (true, true) => say!("No watchpoints."),
            (true, false) => say!("No breakpoints."),
            _ => Ok(()),
        }
    }

    /// The lines that follow are for a breakpoint.
    pub(super) fn commands(&mut self, which: &str) -> Result<(), Failure> {
        let number = match which {
            "" => {
                let last = self.debugger.group.points().all().last().map(|p| p.number);
                last.ok_or_else(|| Failure::new("there is no breakpoint yet"))?
            }
            which => number(which)?,
        };
        self.debugger.group.stops().get_mut(number)?;
        self.collecting = Some((number, Vec::new()));
        Ok(())
    }

    /// Whether a line is one of those.
    pub(super) fn collect(&mut self, line: &str) -> Result<bool, Failure> {
        let Some((number, lines)) = &mut self.collecting else {
            return Ok(false);
        };
        if line != "end" {
            if !line.is_empty() {
                lines.push(line.to_string());
            }
            return Ok(true);
        }
        let (number, lines) = (*number, std::mem::take(lines));
        self.collecting = None;
        self.debugger.group.stops().get_mut(number)?.commands = lines;
        Ok(true)
    }

    pub(super) fn display(&mut self, text: &str, format: Option<&str>) -> Result<(), Failure> {
        if text.is_empty() {
            return self.show_displays();
        }
        let letter = format.and_then(|format| format.chars().last());
        let number = self.next_display;
        let shown = self.value_of(text, letter)?;
        self.next_display += 1;
        self.displays.push((number, text.to_string(), letter));
        say!("{number}: {text} = {shown}")
    }

    pub(super) fn undisplay(&mut self, which: &str) -> Result<(), Failure> {
        let wanted = numbers(which)?;
        for number in &wanted {
            if !self.displays.iter().any(|(n, ..)| n == number) {
                return Err(Failure::new(format!("there is no display {number}"))
                    .hint("`info display` lists them"));
            }
        }
        self.displays
            .retain(|(n, ..)| !wanted.is_empty() && !wanted.contains(n));
        Ok(())
    }

    /// What is to be shown at each stop; where its names mean nothing, it is
    /// left out.
    pub(super) fn show_displays(&mut self) -> Result<(), Failure> {
        for (number, text, format) in self.displays.clone() {
            if let Ok(shown) = self.value_of(&text, format) {
                say!("{number}: {text} = {shown}")?;
            }
        }
        Ok(())
    }

    pub(super) fn list_displays(&mut self) -> Result<(), Failure> {
        if self.displays.is_empty() {
            say!("Nothing is displayed.")?;
        }
        for (number, text, _) in &self.displays {
            say!("{number}: {text}")?;
        }
        Ok(())
    }
}
