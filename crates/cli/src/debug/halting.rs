//! Halting and the program's time, of a program that runs under an agent.

use std::collections::BTreeMap;

use ::session::Direction;
use agent::channels::{Channel, Kind};
use agent::control::{Answer, Request, Who};
use agent::halting::{State, Stop};
use agent::timeouts::{Change, Timeout};
use protocol::id::ProcessId;

use super::commands::{Prompt, number, word_and_rest};
use super::screen::say;
use crate::failure::Failure;

/// What becomes of a time limit that is over while somebody steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// It fires.
    #[default]
    Accept,
    /// It does not: it is frozen with what was left of it.
    Reject,
    /// It does not either, and it is asked what to do.
    Ask,
}

/// Limits that stand still during a step, and the program's time when it began.
#[derive(Default)]
pub struct Held {
    limits: Vec<Timeout>,
    begun_ns: u64,
}

impl Prompt {
    /// Asks the agent of the program.
    fn ask_agent(&self, request: &Request) -> Result<Answer, Failure> {
        match &self.living {
            Some(living) => Ok(living.agent.ask(request)?),
            None => Err(
                Failure::new("a recording is not halted: it says what happened")
                    .hint("`mw run CMD` or `mw attach` debug a program that is alive"),
            ),
        }
    }

    fn status(&self) -> Result<agent::control::Status, Failure> {
        match self.ask_agent(&Request::Status)? {
            Answer::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Everything stands whenever the prompt does: says so.
    pub(super) fn halt(&mut self) -> Result<(), Failure> {
        let status = self.status()?;
        say!(
            "halted: {}; `halted` shows where, `resume` lets it go on.",
            counted(status.threads.len(), "thread")
        )
    }

    /// Who stands where, in the order in which they stopped, and what is under way.
    pub(super) fn halted(&mut self) -> Result<(), Failure> {
        let status = self.status()?;
        let mut stops = status.threads;
        stops.sort_by_key(|stop| (stop.after_ns, stop.process, stop.thread));
        let times = || stops.iter().filter_map(|stop| stop.after_ns);
        let skew = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        let waiting = stops.iter().filter(|stop| stop.after_ns.is_none()).count();
        say!(
            "halt {}: {}, {waiting} of them in calls before it; from the first to the last {} us",
            status.halts,
            counted(stops.len(), "thread"),
            skew / 1000
        )?;
        for stop in &stops {
            let when = match stop.after_ns {
                Some(after) => format!("{:>8} us", after / 1000),
                None => format!("{:>11}", "before"),
            };
            let name = self.thread_of(stop);
            let place = self.line_of(stop);
            say!("{when}  {name:<28} {}{place}", does(stop))?;
        }
        let Answer::Channels { channels } = self.ask_agent(&Request::Channels)? else {
            return Ok(());
        };
        let filled = channels.iter().filter(|c| c.unread != 0 || c.unsent != 0);
        let filled: Vec<&Channel> = filled.collect();
        say!(
            "{}, {} of them not empty",
            counted(channels.len(), "channel"),
            filled.len()
        )?;
        for channel in filled {
            let kind = match channel.kind {
                Kind::Pipe => "pipe",
                Kind::Socket => "socket",
            };
            let holders: Vec<String> = channel
                .holders
                .iter()
                .map(|(pid, fd)| format!("{} fd {fd}", self.process_of(*pid)))
                .collect();
            let unsent = match channel.unsent {
                0 => String::new(),
                bytes => format!(", {} not sent", crate::output::bytes(bytes)),
            };
            say!(
                "  {kind} {}: {} not read{unsent} ({})",
                channel.inode,
                crate::output::bytes(channel.unread),
                holders.join(", ")
            )?;
        }
        Ok(())
    }

    fn process_of(&self, pid: u32) -> String {
        let name = self.debugger.name(ProcessId::of_first(pid));
        match name.is_empty() {
            true => pid.to_string(),
            false => name,
        }
    }

    fn thread_of(&self, stop: &Stop) -> String {
        let process = self.process_of(stop.pid);
        match stop.pid == stop.tid {
            true => process,
            false => format!("{process}/{}", stop.tid),
        }
    }

    /// Where in the source a thread stands, as far as that is known.
    fn line_of(&mut self, stop: &Stop) -> String {
        let found = self.line_of_thread(ProcessId::of_first(stop.pid), stop.tid);
        found.map_or(String::new(), |place| format!(" ({place})"))
    }

    /// Runs on, all of it; for so long if that is said.
    pub(super) fn resume(&mut self, text: &str) -> Result<(), Failure> {
        self.status()?;
        if text.is_empty() {
            return self.run_on("", Direction::Forwards);
        }
        let length = std::time::Duration::from_nanos(duration(text)?);
        let cancel = self.debugger.cancel.clone();
        self.debugger.cancel = cancel.within(length);
        let done = self.run_on("", Direction::Forwards);
        self.debugger.cancel = cancel;
        done
    }

    /// Who runs on when the others are halted.
    pub(super) fn exempt(&mut self, text: &str) -> Result<(), Failure> {
        let (on, text) = match text.strip_prefix("--off") {
            Some(rest) => (false, rest.trim()),
            None => (true, text),
        };
        let who = if let Some(port) = text.strip_prefix("--port") {
            let port = port.trim().parse();
            Who::Port(port.map_err(|_| {
                Failure::new("which port?").hint("`exempt --port 8080`: a number up to 65535")
            })?)
        } else if let Some(thread) = text.strip_prefix("--thread") {
            let process = self.debugger.process;
            let thread = self.thread_named(thread.trim())?;
            let state = self
                .debugger
                .group
                .at(process)?
                .target()
                .thread_state(thread);
            Who::Thread(state.map_or(0, |state| state.tid))
        } else {
            let process = match text {
                "" => self.debugger.process,
                name => self.living_process(name)?,
            };
            let status = self.status()?;
            let own = status.threads.iter().find(|t| t.pid == process.number.0);
            Who::Process(own.map_or(0, |stop| stop.process))
        };
        match self.ask_agent(&Request::Exempt { who, on })? {
            Answer::Changed { count } => {
                let run = if on {
                    "run on"
                } else {
                    "stand with the others"
                };
                say!(
                    "{} {run} when the program is halted.",
                    counted(count as usize, "thread")
                )
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The program's time and the real one.
    pub(super) fn time(&mut self) -> Result<(), Failure> {
        let Answer::Time(time) = self.ask_agent(&Request::Time)? else {
            return Ok(());
        };
        say!("real     {}", moment(time.real_ns))?;
        say!(
            "logical  {}  ({} s behind)",
            moment(time.logical_ns),
            precise(time.real_ns.saturating_sub(time.logical_ns))
        )?;
        let kind = match time.is_real {
            true => "the program sees the time of its halts (set time logical)",
            false => "halts are taken out of the program's time (set time real)",
        };
        say!("{kind}")?;
        for halt in &time.halts {
            let seen = match halt.is_hidden {
                true => "",
                false => ", seen by the program",
            };
            say!(
                "  halt {:<4} {:>12} s{seen}",
                halt.number,
                precise(halt.length_ns)
            )?;
        }
        match time.current_ns {
            Some(current) => say!("  now       {:>12} s so far", precise(current)),
            None => Ok(()),
        }
    }

    /// `set time real|logical`.
    pub(super) fn set_time(&mut self, text: &str) -> Result<(), Failure> {
        let on = match text {
            "real" => true,
            "logical" => false,
            _ => {
                return Err(Failure::new("set time to what?")
                    .hint("`set time logical` takes halts out of it, `set time real` does not"));
            }
        };
        self.ask_agent(&Request::RealTime { on })?;
        match on {
            true => say!("The program sees the time that it is halted, from this halt on."),
            false => {
                say!("The program does not see the time that it is halted, this halt included.")
            }
        }
    }

    /// The program is left in real time: what was taken out of its time comes back.
    pub(super) fn catch_up(&mut self) -> Result<(), Failure> {
        self.ask_agent(&Request::CatchUp).map(drop)
    }

    /// Lists what is waited for with a time limit, or changes it.
    pub(super) fn timeouts(&mut self, text: &str) -> Result<(), Failure> {
        let timeouts = self.limits()?;
        if text.is_empty() {
            return self.list_timeouts(&timeouts);
        }
        let (word, rest) = word_and_rest(text);
        let (which, rest) = word_and_rest(rest);
        let change = match word {
            "extend" => Change::Extend {
                ns: i64::try_from(duration(rest)?).unwrap_or(i64::MAX),
            },
            "freeze" => Change::Freeze,
            "thaw" => Change::Thaw,
            "fire" => Change::Fire,
            "drop" => Change::Drop,
            _ => {
                return Err(
                    Failure::new(format!("`{word}` cannot be done to a time limit"))
                        .hint("extend, freeze, thaw, fire or drop one by its number, or `all`"),
                );
            }
        };
        let tid = match which {
            "all" => None,
            "" => return Err(Failure::new("which one?").hint("`timeouts fire 2`, or `all`")),
            which => {
                let place = (number(which)? as usize).checked_sub(1);
                let one = place.and_then(|place| timeouts.get(place));
                let one = one.ok_or_else(|| {
                    Failure::new(format!("there is no time limit {which}"))
                        .hint("`timeouts` lists them")
                })?;
                Some(one.tid)
            }
        };
        match self.ask_agent(&Request::Timeout { tid, change })? {
            Answer::Changed { count } => {
                let what = match change {
                    Change::Extend { .. } => "longer",
                    Change::Freeze => "frozen",
                    Change::Thaw => "no longer frozen",
                    Change::Fire => "over when the program goes on",
                    Change::Drop => "dropped",
                };
                say!("{}: {what}.", counted(count as usize, "time limit"))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// `on-timeout ask|accept|reject`.
    pub(super) fn set_on_timeout(&mut self, text: &str) -> Result<(), Failure> {
        // It takes an agent that can hold limits back.
        self.status()?;
        self.on_timeout = match text {
            "" => self.on_timeout,
            "ask" => OnTimeout::Ask,
            "accept" => OnTimeout::Accept,
            "reject" => OnTimeout::Reject,
            other => {
                return Err(Failure::new(format!(
                    "`{other}` is nothing that can be done on a timeout"
                ))
                .hint("`ask`, `accept` or `reject`"));
            }
        };
        match self.on_timeout {
            OnTimeout::Ask => say!(
                "A time limit that is over in a step is held back, and it is asked what to do."
            ),
            OnTimeout::Accept => say!("A time limit that is over in a step fires."),
            OnTimeout::Reject => say!("A time limit that is over in a step is held back."),
        }
    }

    fn change_limit(&self, tid: u32, change: Change) -> Result<(), Failure> {
        let request = Request::Timeout {
            tid: Some(tid),
            change,
        };
        self.ask_agent(&request).map(drop)
    }

    fn limits(&self) -> Result<Vec<Timeout>, Failure> {
        match self.ask_agent(&Request::Timeouts)? {
            Answer::Timeouts { timeouts } => Ok(timeouts),
            other => Err(unexpected(&other)),
        }
    }

    fn program_time(&self) -> Result<u64, Failure> {
        match self.ask_agent(&Request::Time)? {
            Answer::Time(time) => Ok(time.logical_ns),
            other => Err(unexpected(&other)),
        }
    }

    /// Before a step: no limit that is waited for gets less, if that is wished.
    pub(super) fn hold_limits(&mut self) -> Result<Held, Failure> {
        if self.on_timeout == OnTimeout::Accept || !self.debugger.is_alive() {
            return Ok(Held::default());
        }
        let mut limits = self.limits()?;
        limits.retain(|limit| !limit.is_frozen);
        for limit in &limits {
            self.change_limit(limit.tid, Change::Freeze)?;
        }
        Ok(Held {
            limits,
            begun_ns: self.program_time()?,
        })
    }

    /// After a step: limits that are not over go on with what is left of them now; the
    /// others stay as they are, and are told of.
    pub(super) fn release_limits(&mut self, held: &Held) -> Result<(), Failure> {
        if held.limits.is_empty() {
            return Ok(());
        }
        let passed = self.program_time()?.saturating_sub(held.begun_ns);
        let now = self.limits()?;
        // Whoever is in another call by now has another limit, or none.
        let same = |limit: &&Timeout| now.iter().any(|n| n.tid == limit.tid && n.is_frozen);
        let mut over = Vec::new();
        for limit in held.limits.iter().filter(same) {
            if limit.left_ns <= passed {
                over.push(limit);
                continue;
            }
            let ns = i64::try_from(passed).unwrap_or(i64::MAX);
            self.change_limit(limit.tid, Change::Thaw)?;
            self.change_limit(limit.tid, Change::Extend { ns: -ns })?;
        }
        if over.is_empty() {
            return Ok(());
        }
        let now = self.limits()?;
        for limit in over {
            let place = now.iter().position(|n| n.tid == limit.tid);
            let who = self.waiter(limit);
            let call = call_name(limit.call);
            let number = place.map_or(0, |place| place + 1);
            match self.on_timeout {
                OnTimeout::Ask => say!(
                    "The time limit of {who} in {call} is over: `timeouts fire {number}` accepts that, `timeouts drop {number}` rejects it for good; it is frozen."
                )?,
                _ => {
                    say!("The time limit of {who} in {call} is over, and rejected: it is frozen.")?
                }
            }
        }
        Ok(())
    }

    fn waiter(&self, wait: &Timeout) -> String {
        let process = self.process_of(wait.pid);
        match wait.pid == wait.tid {
            true => process,
            false => format!("{process}/{}", wait.tid),
        }
    }

    fn list_timeouts(&self, timeouts: &[Timeout]) -> Result<(), Failure> {
        if timeouts.is_empty() {
            return say!("Nobody waits with a time limit.");
        }
        for (wait, place) in timeouts.iter().zip(1..) {
            let name = self.waiter(wait);
            let call = call_name(wait.call);
            let frozen = if wait.is_frozen { ", frozen" } else { "" };
            let left = precise(wait.left_ns);
            say!("{place:>3}  {left:>12} s left{frozen}  {name} in {call}")?;
        }
        Ok(())
    }
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::new(format!("the program's agent answered {answer:?}"))
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

fn call_name(number: u64) -> String {
    protocol::table::syscall(number).map_or_else(|| number.to_string(), |row| row.name.to_string())
}

fn does(stop: &Stop) -> String {
    let call = stop.call.map(call_name).unwrap_or_default();
    match stop.state {
        State::Runs => "does not answer".to_string(),
        State::Computed => "computed".to_string(),
        State::Edge => "between the program and a call".to_string(),
        State::Call => format!("waits in {call}"),
        State::Sends => format!("waits in {call}, perhaps half done"),
        State::Turn => "waits for its turn".to_string(),
        State::Away => "waits for a child, or for its new image".to_string(),
        State::Suspended => "is held by the debugger".to_string(),
    }
}

/// A length of time: `5s`, `200ms`, `2m`, or seconds.
fn duration(text: &str) -> Result<u64, Failure> {
    let units: BTreeMap<&str, f64> = [
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("", 1e9),
        ("m", 60e9),
        ("h", 3600e9),
    ]
    .into();
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let value = digits
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|v| v.is_finite() && *v >= 0.0);
    match (value, units.get(unit.trim())) {
        (Some(value), Some(unit)) => Ok((value * unit) as u64),
        _ => {
            Err(Failure::new(format!("`{text}` is not a length of time"))
                .hint("`5s`, `200ms`, `1.5m`"))
        }
    }
}

/// Seconds, to the microsecond.
fn precise(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// A moment of a day, in UTC.
fn moment(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{:06} UTC",
        seconds % 60,
        ns % 1_000_000_000 / 1000
    )
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn lengths_of_time() {
        for (text, ns) in [
            ("5s", 5_000_000_000),
            ("200ms", 200_000_000),
            ("1.5", 1_500_000_000),
            ("2 m", 120_000_000_000),
            ("7us", 7000),
        ] {
            assert_eq!(duration(text).ok(), Some(ns), "{text}");
        }
        for bad in ["", "s", "5 parsecs", "-1s", "1e999", "nan"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
