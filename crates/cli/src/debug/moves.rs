//! The commands that move, and what is said then.

use std::collections::BTreeSet;

use ::session::{Caught, Direction, How, Reason, Stopped, Who};
use ::target::{Happening, Position};
use causality::EventId;
use protocol::id::{EventNo, ProcessId};

use super::commands::{Prompt, number};
use super::debugger::{Instant, Mode, Named};
use super::screen::{Part, paint, say};
use crate::failure::Failure;

impl Prompt {
    /// Moves, and says where that led.
    pub(super) fn go(&mut self, how: How, direction: Direction, only: bool) -> Result<(), Failure> {
        let from = self.debugger.instant();
        let stopped = self.lead(how, direction, only);
        self.moved(from, stopped.as_ref().ok())?;
        self.say_where(&stopped?)
    }

    /// Moves; in a step, what becomes of time limits is the user's choice.
    fn lead(&mut self, how: How, direction: Direction, only: bool) -> Result<Stopped, Failure> {
        if how == How::Continue {
            return self.debugger.go(how, direction, only);
        }
        let held = self.hold_limits()?;
        let stopped = self.debugger.go(how, direction, only);
        self.release_limits(&held)?;
        stopped
    }

    /// Moves so many times, as long as nothing else stops it.
    pub(super) fn repeat(
        &mut self,
        text: &str,
        how: How,
        direction: Direction,
    ) -> Result<(), Failure> {
        let (only, text) = only(text);
        let count = if text.is_empty() { 1 } else { number(text)? };
        let from = self.debugger.instant();
        let mut stopped = self.debugger.stands();
        for _ in 0..count {
            let last = self.lead(how.clone(), direction, only);
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

    /// Until something stops the program; what it stands at is passed over first.
    pub(super) fn run_on(&mut self, text: &str, direction: Direction) -> Result<(), Failure> {
        let (only, count) = only(text);
        if only && count.starts_with(|first: char| first != '-' && !first.is_ascii_digit()) {
            return self.run_family(count, direction);
        }
        self.pass_over(count)?;
        if !self.debugger.conditions.any() {
            self.observe_no_more();
        }
        match self.has_conditions(only) {
            true => self.run_conditions(direction),
            false => self.go(How::Continue, direction, only),
        }
    }

    /// Those of this name run on, until something stops one of them; the others stand.
    fn run_family(&mut self, name: &str, direction: Direction) -> Result<(), Failure> {
        let members = self.debugger.group.members();
        let fits = |text: &str| events::glob(name.as_bytes(), text.as_bytes());
        let is_meant = |member: &&::session::MemberInfo| {
            let own = member.name.rsplit_once('@').map_or("", |(own, _)| own);
            !member.is_empty && [&member.name, own, &member.program].into_iter().any(fits)
        };
        let family = members.iter().filter(is_meant).map(|member| member.id);
        let family: BTreeSet<ProcessId> = family.collect();
        let Some(first) = family.first().copied() else {
            return Err(
                Failure::new(format!("no process that could move is called `{name}`")).hint(
                    "`processes` lists them; `*` stands for anything: `continue -only server-*`",
                ),
            );
        };
        self.pass_over("")?;
        let from = self.debugger.instant();
        if !family.contains(&self.debugger.process) {
            self.debugger.choose(first);
        }
        let mut motion = self.debugger.motion(How::Continue, direction, false);
        motion.who = Who::These(family);
        let stopped = self.debugger.follow_motion(&motion);
        self.moved(from, stopped.as_ref().ok())?;
        self.say_where(&stopped?)
    }

    /// Lines, or to a message.
    pub(super) fn step(&mut self, text: &str, direction: Direction) -> Result<(), Failure> {
        match text {
            "--message" => self.step_message(direction == Direction::Backwards),
            count => self.repeat(count, How::Line { into: true }, direction),
        }
    }

    /// Out of the frame at hand.
    pub(super) fn finish(&mut self, text: &str, direction: Direction) -> Result<(), Failure> {
        let level = self.debugger.frame;
        self.go(How::Finish { level }, direction, only(text).0)
    }

    /// To a place.
    pub(super) fn until(
        &mut self,
        name: &str,
        text: &str,
        direction: Direction,
    ) -> Result<(), Failure> {
        let (only, place) = only(text);
        let addresses = self.addresses_of(name, place)?;
        self.go(How::Until(addresses), direction, only)
    }

    /// What was passed on the way.
    pub(super) fn say_traced(&self, stopped: &Stopped) -> Result<(), Failure> {
        for traced in &stopped.traced {
            let name = self.debugger.name(traced.process);
            let when = match traced.at {
                Position::Halted(_) => String::new(),
                at => format!(" before {name}:{}", at.event()),
            };
            say!(
                "Tracepoint {}, {name}{when}: {}",
                traced.number,
                traced.frame
            )?;
        }
        Ok(())
    }

    /// Remembers where it was.
    pub(super) fn moved(
        &mut self,
        from: Instant,
        stopped: Option<&Stopped>,
    ) -> Result<(), Failure> {
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
    pub(super) fn travel_history(&mut self, back: bool) -> Result<(), Failure> {
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
    pub(super) fn say_where(&mut self, stopped: &Stopped) -> Result<(), Failure> {
        let name = self.debugger.name(stopped.process);
        let hit = match &stopped.reason {
            Reason::Breakpoint { number }
            | Reason::Caught { number }
            | Reason::Watch { number, .. } => Some(*number),
            Reason::Happened { number, .. } => *number,
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
        if let Reason::Happened {
            what: Happening::Exited(_) | Happening::Killed(_),
            ..
        } = stopped.reason
        {
            return Ok(());
        }
        self.when()?;
        self.show_line()?;
        self.show_displays()
    }

    pub(super) fn say_why(&mut self, reason: &Reason, name: &str) -> Result<(), Failure> {
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
            Reason::End if self.front.is_some() => {
                say!("No more of {name} was recorded so far; `live` returns to the front.")
            }
            Reason::End => say!("{name} has come to its end."),
            Reason::Start => say!("This is the beginning of {name}."),
            Reason::Interrupted => say!("Interrupted."),
            Reason::Diverged(difference) => say!(
                "{name} does not do what it did: expected {}, found {}.",
                difference.expected,
                difference.found
            ),
            Reason::Happened { what, number } => self.say_happening(*what, *number, name),
            Reason::Step | Reason::Arrived | Reason::Exec => Ok(()),
        }
    }

    /// What happened to a process that is alive.
    fn say_happening(
        &mut self,
        what: Happening,
        number: Option<u32>,
        name: &str,
    ) -> Result<(), Failure> {
        use protocol::names::signal_name;
        let signal = |number: u32| {
            signal_name(u64::from(number)).map_or(format!("signal {number}"), str::to_string)
        };
        if let Some(number) = number {
            say!("{}", paint(Part::Why, &format!("Catchpoint {number}")))?;
        }
        let why = match what {
            Happening::Call(number) => {
                let row = protocol::table::syscall(number);
                let call = row.map_or(number.to_string(), |row| row.name.to_string());
                format!("{name} is about to call {call}.")
            }
            Happening::Forked(child) => format!("{name} has made process {child}."),
            Happening::Exec => format!("{name} has begun another program."),
            Happening::Signal(number) => format!("{name} is about to get {}.", signal(number)),
            Happening::Exited(0) => format!("{name} has ended."),
            Happening::Exited(status) => format!("{name} has ended with status {status}."),
            Happening::Killed(number) => format!("{name} was ended by {}.", signal(number)),
        };
        say!("{}", paint(Part::Why, &why))
    }

    /// Who and when.
    pub(super) fn when(&mut self) -> Result<(), Failure> {
        let process = self.debugger.process;
        let name = self.debugger.name(process);
        let thread = self.debugger.view()?.target().thread();
        let position = self.debugger.position()?;
        let thread = self.debugger.thread_name(process, thread)?;
        let when = match position {
            Position::Halted(_) => "halted".to_string(),
            Position::Event(event) if self.has_ended(process, event) => "at its end".to_string(),
            Position::Event(event) => format!("about to do {name}:{event}"),
            Position::Inside(inside) => format!("before {name}:{}", inside.event),
        };
        say!("{}, {thread}, {when}", paint(Part::Process, &name))
    }

    /// Whether nothing of a process comes from an event on. (What is being recorded goes on.)
    fn has_ended(&self, process: ProcessId, event: EventNo) -> bool {
        let members = self.debugger.group.members();
        let own = members.iter().find(|member| member.id == process);
        self.front.is_none() && own.is_some_and(|member| event > member.last)
    }

    /// The event that comes next, in words.
    pub(super) fn say_event(&mut self) -> Result<(), Failure> {
        let event = self.debugger.position()?.event();
        let event = EventId::new(self.debugger.index()?, event);
        let (history, names) = (self.debugger.group.history()?, self.debugger.names()?);
        let shown = query::shown::event(history, names, event, query::shown::DATA);
        say!("{}  {}", shown.name, shown.text)
    }

    /// To an event, and everybody to what belongs to it.
    pub(super) fn goto(&mut self, text: &str) -> Result<(), Failure> {
        let (only, text) = only(text);
        let way = Direction::Forwards;
        if let Some(places) = text.strip_prefix("cut")
            && (places.is_empty() || places.starts_with(char::is_whitespace))
        {
            return self.goto_cut(places);
        }
        match text {
            "start" => return self.go_quietly(How::ToStart, only),
            "end" => return self.go(How::ToEnd, way, only),
            _ => {}
        }
        if let Ok(event) = text.parse::<u64>() {
            return self.go(How::To(Position::Event(EventNo(event))), way, only);
        }
        let history = self.debugger.group.history()?;
        let event = query::find::event(history, self.debugger.names()?, text)?;
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
    pub(super) fn go_quietly(&mut self, how: How, only: bool) -> Result<(), Failure> {
        let from = self.debugger.instant();
        self.debugger.go(how, Direction::Forwards, only)?;
        self.moved(from, None)?;
        let stopped = self.debugger.stands()?;
        self.say_where(&stopped)
    }

    /// On to an event of the process at hand, or back to one.
    pub(super) fn run_to(&mut self, text: &str, back: bool) -> Result<(), Failure> {
        let (only, text) = only(text);
        let process = self.debugger.process;
        let name = self.debugger.name(process);
        let now = self.debugger.position()?;
        let own = text.strip_prefix(&format!("{name}:")).unwrap_or(text);
        self.debugger.group.history()?;
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
    pub(super) fn step_message(&mut self, back: bool) -> Result<(), Failure> {
        let position = self.debugger.position()?;
        let place = self.debugger.index()?;
        let from = match (back, position) {
            (false, Position::Event(now)) => now.next(),
            (_, position) => position.event(),
        };
        let found = query::find::message(self.debugger.group.history()?, place, from, back);
        match found {
            Some(event) => {
                let at = Position::Event(event);
                self.go(How::To(at), Direction::Forwards, false)
            }
            None if back => Err(Failure::new("there is no message before")),
            None => Err(Failure::new("there is no further message")),
        }
    }

    /// Which events this one follows from.
    pub(super) fn why(&mut self) -> Result<(), Failure> {
        let event = self.debugger.position()?.event();
        let place = self.debugger.index()?;
        let history = self.debugger.group.history()?;
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

    pub(super) fn mode(&mut self, mode: &str) -> Result<(), Failure> {
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

    pub(super) fn checkpoint(&mut self) -> Result<(), Failure> {
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

    pub(super) fn restart(&mut self, number: u32) -> Result<(), Failure> {
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

/// Whether only the process at hand is to move, and what else is said.
pub(super) fn only(text: &str) -> (bool, &str) {
    match text.strip_prefix("-only") {
        Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => {
            (true, rest.trim_start())
        }
        _ => (false, text),
    }
}
