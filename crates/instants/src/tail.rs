//! What is new in a recording that grows, looked at by itself.
//!
//! Most of what a program does concerns no condition. Whether something new may, its events
//! tell without what came before them: so a look costs as much as there is new, however
//! long the program has run. Only what may concern a condition is worth looking at the whole,
//! or halting the program for.

use std::collections::HashMap;

use conditions::rules::{Component, Origin, Rules, StateBody};
use events::Pattern;
use protocol::id::{EventNo, ProcessId};
use recording::Set;
use recording::log::Parked;

use crate::growing::Frontier;

/// How far each process has been looked at, and what is looked for.
pub struct Tail {
    seen: HashMap<ProcessId, EventNo>,
    /// Where their logs ended then.
    parked: HashMap<ProcessId, Parked>,
    wanted: Vec<Pattern>,
}

impl Tail {
    /// Of what comes after a frontier. None: something is looked for that may come without
    /// an event that tells of it, as by time that passes. Who gets to a place of the source
    /// is halted there where the program is only observed.
    pub fn new(rules: &Rules, from: &Frontier, is_observed: bool) -> Option<Tail> {
        let mut wanted = Vec::new();
        for letter in &rules.letters {
            match &letter.origin {
                Origin::Pattern(pattern) => wanted.push(pattern.clone()),
                Origin::Derived => {}
                Origin::Passing(_) if is_observed => {}
                Origin::Passing(_) => return None,
            }
        }
        let is_told = |body: &StateBody| match body {
            StateBody::Between(..) | StateBody::Last(..) | StateBody::Happened(_) => true,
            StateBody::Source(_, Some(_)) if is_observed => true,
            StateBody::Source(..) | StateBody::Running | StateBody::InFlight(_) => false,
        };
        let comes_by_itself = |component: &Component| matches!(component, Component::LeadsTo(..));
        let states = rules.states.iter().all(|state| is_told(&state.body));
        let parts = rules.parts.iter();
        let parts = parts.map(|part| &part.component).any(comes_by_itself);
        (states && !parts).then(|| Tail {
            seen: from.events(),
            parked: HashMap::new(),
            wanted,
        })
    }

    /// How many events are new that may concern anything.
    pub fn look(&mut self, set: &Set) -> u64 {
        let mut found = 0;
        for place in set.places() {
            let (Some(id), Some((recording, process))) = (set.id(place), set.at(place)) else {
                continue;
            };
            let names = set.names_of(place);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let next = self.seen.entry(id).or_insert(EventNo(0));
            let parked = self.parked.remove(&id);
            let parked = parked.and_then(|at| recording.log_behind(process.number, at));
            let mut log = parked.unwrap_or_else(|| recording.log_near(process.number, *next));
            while log.advance() {
                let Some(event) = log.event() else { break };
                if event.number < *next {
                    continue;
                }
                *next = event.number.next();
                let mut wanted = self.wanted.iter();
                if wanted.any(|pattern| events::may_fit(pattern, &names, &event)) {
                    found += 1;
                }
            }
            if let Some(parked) = log.park() {
                self.parked.insert(id, parked);
            }
        }
        found
    }
}
