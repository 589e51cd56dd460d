//! Time limits of a program that is alive: what is waited for, and what becomes of it.

use std::collections::BTreeMap;

use agent::control::{Answer, Request};
use agent::timeouts::{Change, Timeout};

use super::commands::{Prompt, number, word_and_rest};
use super::halting::{call_name, counted, precise, unexpected};
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

/// Limits that stand still during a step, and the program's time on each host when it began.
#[derive(Default)]
pub struct Held {
    limits: Vec<Limit>,
    begun_ns: BTreeMap<u16, u64>,
}

/// A time limit on one of the program's hosts: the member that the host's processes are
/// of, and the limit.
type Limit = (u16, Timeout);

impl Prompt {
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
        let one = match which {
            "all" => None,
            "" => return Err(Failure::new("which one?").hint("`timeouts fire 2`, or `all`")),
            which => {
                let place = (number(which)? as usize).checked_sub(1);
                let one = place.and_then(|place| timeouts.get(place));
                let one = one.ok_or_else(|| {
                    Failure::new(format!("there is no time limit {which}"))
                        .hint("`timeouts` lists them")
                })?;
                Some((one.0, one.1.tid))
            }
        };
        let answer = match one {
            Some((member, tid)) => self.ask_agent_of(
                member,
                &Request::Timeout {
                    tid: Some(tid),
                    change,
                },
            )?,
            None => self.ask_any(&Request::Timeout { tid: None, change })?,
        };
        match answer {
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

    fn change_limit(&self, (member, limit): &Limit, change: Change) -> Result<(), Failure> {
        let request = Request::Timeout {
            tid: Some(limit.tid),
            change,
        };
        self.ask_agent_of(*member, &request).map(drop)
    }

    fn limits(&self) -> Result<Vec<Limit>, Failure> {
        let mut all = Vec::new();
        for (member, answer) in self.ask_agents(&Request::Timeouts)? {
            match answer {
                Answer::Timeouts { timeouts } => {
                    all.extend(timeouts.into_iter().map(|limit| (member, limit)));
                }
                other => return Err(unexpected(&other)),
            }
        }
        Ok(all)
    }

    /// The program's time on each of its hosts.
    fn program_times(&self) -> Result<BTreeMap<u16, u64>, Failure> {
        let answers = self.ask_agents(&Request::Time)?.into_iter();
        answers
            .map(|(member, answer)| match answer {
                Answer::Time(time) => Ok((member, time.logical_ns)),
                other => Err(unexpected(&other)),
            })
            .collect()
    }

    /// Before a step: no limit that is waited for gets less, if that is wished.
    pub(super) fn hold_limits(&mut self) -> Result<Held, Failure> {
        if self.on_timeout == OnTimeout::Accept || !self.debugger.is_alive() {
            return Ok(Held::default());
        }
        let mut limits = self.limits()?;
        limits.retain(|(_, limit)| !limit.is_frozen);
        for limit in &limits {
            self.change_limit(limit, Change::Freeze)?;
        }
        Ok(Held {
            limits,
            begun_ns: self.program_times()?,
        })
    }

    /// After a step: limits that are not over go on with what is left of them now; the
    /// others stay as they are, and are told of.
    pub(super) fn release_limits(&mut self, held: &Held) -> Result<(), Failure> {
        if held.limits.is_empty() {
            return Ok(());
        }
        let times = self.program_times()?;
        let at = |times: &BTreeMap<u16, u64>, member| times.get(&member).copied().unwrap_or(0);
        let now = self.limits()?;
        let is_it = |a: &Limit, b: &Limit| a.0 == b.0 && a.1.tid == b.1.tid;
        // Whoever is in another call by now has another limit, or none.
        let same = |limit: &&Limit| now.iter().any(|n| is_it(n, limit) && n.1.is_frozen);
        let mut over = Vec::new();
        for limit in held.limits.iter().filter(same) {
            let (member, own) = limit;
            let passed = at(&times, *member).saturating_sub(at(&held.begun_ns, *member));
            if own.left_ns <= passed {
                over.push(limit);
                continue;
            }
            let ns = i64::try_from(passed).unwrap_or(i64::MAX);
            self.change_limit(limit, Change::Thaw)?;
            self.change_limit(limit, Change::Extend { ns: -ns })?;
        }
        if over.is_empty() {
            return Ok(());
        }
        let now = self.limits()?;
        for limit in over {
            let place = now.iter().position(|n| is_it(n, limit));
            let who = self.waiter(limit);
            let call = call_name(limit.1.call);
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

    fn waiter(&self, (member, wait): &Limit) -> String {
        let process = self.process_of(*member, wait.pid);
        match wait.pid == wait.tid {
            true => process,
            false => format!("{process}/{}", wait.tid),
        }
    }

    fn list_timeouts(&self, timeouts: &[Limit]) -> Result<(), Failure> {
        if timeouts.is_empty() {
            return say!("Nobody waits with a time limit.");
        }
        for (limit, place) in timeouts.iter().zip(1..) {
            let name = self.waiter(limit);
            let (_, wait) = limit;
            let call = call_name(wait.call);
            let frozen = if wait.is_frozen { ", frozen" } else { "" };
            let left = precise(wait.left_ns);
            say!("{place:>3}  {left:>12} s left{frozen}  {name} in {call}")?;
        }
        Ok(())
    }
}

/// A length of time: `5s`, `200ms`, `2m`, or seconds.
pub(super) fn duration(text: &str) -> Result<u64, Failure> {
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
