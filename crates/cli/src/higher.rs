//! Higher events: what the recognizers and verifiers of a file of rules make of the
//! events of a recording, where lists and exports show it among them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use causality::{EventId, History};
use conditions::check::{Options, check};
use conditions::history::At;
use conditions::recorded::Recorded;
use conditions::rules::Rules;
use conditions::truth::Nobody;
use conditions::verdict::Emitted;
use protocol::id::{EventNo, ProcessIx};
use query::Names;
use serde_json::{Value, json};

use crate::check::failure;
use crate::failure::Failure;

/// A higher event of a list.
pub struct Higher {
    emitted: Emitted,
    /// The events that it is made of, by name.
    of: Vec<String>,
    /// The first of them.
    pub began: EventId,
}

/// What rules make of a recording.
#[derive(Default)]
pub struct All {
    by_event: HashMap<EventId, Vec<Higher>>,
    /// Only at these events, if that was asked for.
    chosen: Option<HashSet<EventId>>,
}

fn id((process, at): (usize, At)) -> Option<EventId> {
    let number = at.bound.checked_sub(1)?;
    Some(EventId::new(
        ProcessIx(process as u32),
        EventNo(number.into()),
    ))
}

impl All {
    /// What the rules in a file make of it; and, with a condition in their language,
    /// where that is complete.
    pub fn find(
        history: &History,
        names: &Names,
        file: &Path,
        condition: Option<&str>,
    ) -> Result<All, Failure> {
        let rules = match condition {
            Some(condition) => Rules::question(condition, Some(file)),
            None => Rules::read(file),
        };
        let rules = rules.map_err(failure)?;
        let recorded = Recorded::new(history, names.clone());
        let witnesses = match condition {
            Some(_) => usize::MAX,
            None => 0,
        };
        let report = check(&rules, &recorded, &mut Nobody, Options { witnesses });
        let report = report.map_err(failure)?;
        let mut by_event: HashMap<EventId, Vec<Higher>> = HashMap::new();
        for emitted in report.emitted {
            let (Some(at), Some(began)) = (
                id((emitted.process, emitted.at)),
                emitted.of.first().and_then(|first| id(*first)),
            ) else {
                continue;
            };
            let of = emitted.of.iter();
            let of = of.map(|(process, at)| recorded.event_name(*process, *at));
            by_event.entry(at).or_default().push(Higher {
                of: of.collect(),
                emitted,
                began,
            });
        }
        let found = report.verdicts.last().filter(|_| condition.is_some());
        let chosen = found.map(|verdict| {
            let ends = verdict.witnesses.iter().filter_map(|own| own.events.last());
            ends.filter_map(|last| id(*last)).collect()
        });
        Ok(All { by_event, chosen })
    }

    /// Whether an event is one of those that were asked for.
    pub fn takes(&self, event: EventId) -> bool {
        let chosen = self.chosen.as_ref();
        chosen.is_none_or(|chosen| chosen.contains(&event))
    }

    /// The higher events at an event.
    pub fn at(&self, event: EventId) -> &[Higher] {
        self.by_event.get(&event).map_or(&[], Vec::as_slice)
    }

    /// Of each event that has some: in words, and the first event of each.
    pub fn marks(&self) -> query::export::Marks {
        let each = self.by_event.iter().map(|(event, list)| {
            let words = list.iter().map(|own| (own.words(), own.began));
            (*event, words.collect())
        });
        each.collect()
    }
}

impl Higher {
    /// `turn(l=x)`
    pub fn words(&self) -> String {
        self.emitted.words()
    }

    /// The events that it is made of, a few of them.
    pub fn links(&self) -> String {
        const SHOWN: usize = 3;
        let before = self.of.len().saturating_sub(1);
        let shown = self.of.iter().take(before.min(SHOWN));
        let mut words: Vec<String> = shown.map(|event| format!("<- {event}")).collect();
        if before > SHOWN {
            words.push(format!("<- {} more", before - SHOWN));
        }
        words.join(" ")
    }

    /// As one of the objects of `mw events --json`, with the keys of any other.
    pub fn object(&self, event: &str, process: &str, thread: &str, time_ns: u64) -> Value {
        let values = self.emitted.values.iter();
        let args: serde_json::Map<String, Value> = values
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let of = self.of.iter().take(self.of.len().saturating_sub(1));
        let causes: Vec<Value> = of
            .map(|cause| json!({"kind": "part", "cause": cause, "effect": event, "channel": null, "amount": null}))
            .collect();
        json!({
            "event": event,
            "process": process,
            "thread": thread,
            "time_ns": time_ns,
            "type": "emitted",
            "call": self.emitted.name,
            "args": args,
            "result": null,
            "phase": "none",
            "causes": causes,
            "effects": [],
        })
    }
}
