//! The next instant from where a group stands, and the last before.
//!
//! Nothing that holds on the way is passed over. Of conditions over states the first
//! state from here on is known, of rules over events one sequence in causal order: the
//! first of those that is no later than the state comes before it, and so does
//! everything that it needs. Backwards it is the same the other way round.

use std::sync::Arc;

use conditions::engine::solve::lead_back;
use conditions::engine::trace::Edge;
use conditions::history::{At, History as _};
use conditions::recorded::Recorded;
use conditions::timeline::{Fired, Held, StateCondition, Unknown, What, size};
use protocol::id::{ProcessId, ProcessIx};
use session::{Direction, Group, How, Move, Program, Reason, Stopped};
use target::{Cancel, Position};

use crate::steps::{Stand, Steps};
use crate::table::{Conditions, Does, Entry, Error, recorded};

/// What held, where, and what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub process: ProcessId,
    /// The state or the event.
    pub what: String,
    pub value: Option<String>,
}

/// A condition at an instant.
#[derive(Clone, Debug)]
pub struct Fires {
    pub entry: Entry,
    /// Whether everybody stops.
    pub stops: bool,
    pub parts: Vec<Part>,
    /// What names are bound to.
    pub captures: Vec<(String, String)>,
    /// What is to be done.
    pub commands: Vec<String>,
}

/// Where everybody is to go, and what fires there.
#[derive(Clone, Debug)]
pub struct Instant {
    /// The process that is looked at then.
    pub lead: ProcessId,
    /// Of those that have to move.
    pub goals: Vec<(ProcessId, Position)>,
    pub fires: Vec<Fires>,
}

impl Instant {
    /// Says that everybody is there, in what was only observed: who is right behind an event
    /// has not got to places on the way to the next.
    pub fn place(&self, group: &mut Group) -> session::Result<()> {
        for (process, at) in self.goals.iter().copied() {
            let at = match at {
                Position::Event(next) => Position::way_to(next),
                at => at,
            };
            group.place(process, at)?;
        }
        Ok(())
    }
}

/// What comes next.
#[derive(Clone, Debug, Default)]
pub struct Next {
    pub instant: Option<Instant>,
    /// What cannot be told from here: the number of the condition, and why.
    pub unknown: Vec<(u32, String)>,
}

impl Next {
    /// The motion that leads there: the one that was asked for if nothing comes.
    pub fn motion(&self, asked: Move) -> Move {
        match &self.instant {
            None => asked,
            Some(instant) => Move {
                process: instant.lead,
                thread: None,
                how: How::ToCut(instant.goals.clone()),
                ..asked
            },
        }
    }

    /// What holds where a motion there has ended: nothing if something else stopped it.
    pub fn reached(self, stopped: &Stopped) -> Option<Instant> {
        let is_there = matches!(stopped.reason, Reason::Arrived);
        self.instant.filter(|_| is_there)
    }
}

/// What was looked for, before it is known which instructions that means.
struct Found {
    places: Vec<Edge>,
    lead: usize,
    fires: Vec<(usize, Shown)>,
    about: Vec<usize>,
}

enum Shown {
    State(Held),
    Event(Fired),
    Cut,
}

/// What may happen at once.
struct Candidates<'c> {
    states: Vec<(usize, Held)>,
    /// States that are known to be one.
    cuts: Vec<(usize, Vec<Edge>)>,
    events: Vec<(usize, &'c Fired)>,
    /// What cannot be told: entry and why.
    unknown: Vec<(usize, String)>,
}

impl Conditions {
    /// The next instant from where a group stands, or the last before.
    pub fn find(
        &mut self,
        group: &mut Group,
        direction: Direction,
        cancel: &Cancel,
    ) -> Result<Next, Error> {
        let program = Arc::clone(group.program());
        self.build(&program, cancel)?;
        let Some(built) = &self.built else {
            return Ok(Next::default());
        };
        let recorded = recorded(&program)?;
        let here = stands(group, &built.steps);
        let (found, unknown) = match direction {
            Direction::Forwards => self.forwards(&recorded, &here),
            Direction::Backwards => self.backwards(&recorded, &here),
        };
        let number = |at: usize| self.entries.get(at).map_or(0, |entry| entry.number);
        let unknown = unknown.into_iter().map(|(at, why)| (number(at), why));
        let unknown = unknown.collect();
        let instant = found.and_then(|found| self.instant(group, &here, found, cancel));
        Ok(Next { instant, unknown })
    }

    /// Whether anything comes from where a group stands, without asking what exactly.
    pub fn comes(&mut self, group: &Group, cancel: &Cancel) -> Result<bool, Error> {
        let program = Arc::clone(group.program());
        self.build(&program, cancel)?;
        let Some(built) = &self.built else {
            return Ok(false);
        };
        let recorded = recorded(&program)?;
        let here = stands(group, &built.steps);
        Ok(self.forwards(&recorded, &here).0.is_some())
    }

    /// Whether a condition over states holds where a group stands.
    pub fn holds_here(
        &mut self,
        group: &Group,
        number: u32,
        cancel: &Cancel,
    ) -> Result<Option<Fires>, Error> {
        let program = Arc::clone(group.program());
        self.build(&program, cancel)?;
        let Some(built) = &self.built else {
            return Ok(None);
        };
        let here: Vec<Edge> = stands(group, &built.steps)
            .into_iter()
            .map(Edge::at)
            .collect();
        let told = self.entries.iter().zip(&built.timeline.told);
        for (entry, told) in told.filter(|(entry, _)| entry.number == number) {
            if let What::States(stretches) = &told.what
                && let Some(held) = stretches.here(&here)
            {
                return Ok(Some(Fires {
                    entry: entry.clone(),
                    stops: true,
                    parts: parts(&program, &held),
                    captures: held.captures,
                    commands: Vec::new(),
                }));
            }
        }
        Ok(None)
    }

    /// Counts that something was come to.
    pub fn count(&mut self, number: u32) {
        let entries = self.entries.iter_mut();
        for entry in entries.filter(|entry| entry.number == number) {
            entry.hits += 1;
        }
    }

    fn told(&self) -> impl Iterator<Item = (usize, &What)> {
        let told = self.built.iter().flat_map(|built| &built.timeline.told);
        let each = self.entries.iter().zip(told).enumerate();
        each.filter(|(_, (entry, _))| entry.enabled)
            .map(|(at, (_, told))| (at, &told.what))
    }

    /// What may come, asked of each condition by itself.
    fn candidates(
        &self,
        ask: impl Fn(&StateCondition) -> Result<Option<Held>, Unknown>,
        is_event: impl Fn(&Fired) -> bool,
        cut: impl Fn(&[u32]) -> Option<Vec<Edge>>,
    ) -> Candidates<'_> {
        let mut all = Candidates {
            states: Vec::new(),
            cuts: Vec::new(),
            events: Vec::new(),
            unknown: Vec::new(),
        };
        for (at, what) in self.told() {
            match what {
                What::States(stretches) => match ask(stretches) {
                    Ok(Some(held)) => all.states.push((at, held)),
                    Ok(None) => {}
                    Err(Unknown(why)) => all.unknown.push((at, why)),
                },
                What::State(witness) => {
                    all.cuts.extend(cut(&witness.cut).map(|cut| (at, cut)));
                }
                What::Events(fired, _) => {
                    let own = fired.iter().filter(|fired| is_event(fired));
                    all.events.extend(own.map(|fired| (at, fired)));
                }
                What::Nothing(_) => {}
            }
        }
        all
    }

    fn forwards(
        &self,
        recorded: &Recorded<'_>,
        here: &[At],
    ) -> (Option<Found>, Vec<(usize, String)>) {
        // Whoever was moved alone may have seen what others have not done yet.
        let mut known = here.to_vec();
        for (process, at) in here.iter().enumerate() {
            let past = recorded.past(process, at.bound);
            for (own, bound) in known.iter_mut().zip(past) {
                *own = (*own).max(At::bound(bound));
            }
        }
        let here = known.as_slice();
        let floor = |process: usize| here.get(process).copied().unwrap_or_default();
        let mut all = self.candidates(
            |stretches| stretches.next(recorded, here),
            |fired| fired.at > floor(fired.process),
            |cut| {
                let ahead = cut.iter().zip(here).any(|(bound, at)| *bound > at.bound);
                let edges = cut.iter().zip(here);
                ahead.then(|| {
                    edges
                        .map(|(bound, at)| Edge::at((*at).max(At::bound(*bound))))
                        .collect()
                })
            },
        );
        let unknown = std::mem::take(&mut all.unknown);
        let places = |all: &Candidates<'_>| -> Option<Vec<Edge>> {
            let states = all.states.iter().map(|(_, held)| &held.places);
            let each = states.chain(all.cuts.iter().map(|(_, cut)| cut));
            each.min_by_key(|places| size(places)).cloned()
        };
        let state = places(&all);
        // The first event that is not behind it: all that it needs is before it, too.
        let inside = |fired: &Fired| {
            let limit = state.as_ref().map(|state| state.get(fired.process));
            limit.is_none_or(|limit| limit.is_some_and(|limit| limit.has(fired.at)))
        };
        let events = all.events.iter().filter(|(_, fired)| inside(fired));
        let first = events.min_by_key(|(_, fired)| fired.order).copied();
        let target: Vec<Edge> = match (first, state) {
            (Some((_, fired)), _) => {
                let past = recorded.past(fired.process, fired.at.bound);
                let mut places: Vec<At> = here.to_vec();
                for (own, bound) in places.iter_mut().zip(past) {
                    *own = (*own).max(At::bound(bound));
                }
                if let Some(own) = places.get_mut(fired.process) {
                    *own = (*own).max(fired.at);
                }
                places.into_iter().map(Edge::at).collect()
            }
            (None, Some(state)) => state,
            (None, None) => return (None, unknown),
        };
        (found_at(&all, target, first), unknown)
    }

    fn backwards(
        &self,
        recorded: &Recorded<'_>,
        here: &[At],
    ) -> (Option<Found>, Vec<(usize, String)>) {
        let edges: Vec<Edge> = here.iter().map(|at| Edge::at(*at)).collect();
        let floor = |process: usize| here.get(process).copied().unwrap_or_default();
        let mut all = self.candidates(
            |stretches| stretches.last(recorded, &edges),
            |fired| fired.at < floor(fired.process),
            |cut| {
                let behind = cut.iter().zip(here).all(|(bound, at)| *bound <= at.bound);
                let now: Vec<Edge> = cut.iter().map(|b| Edge::at(At::bound(*b))).collect();
                (behind && now != edges).then_some(now)
            },
        );
        let unknown = std::mem::take(&mut all.unknown);
        let states = all.states.iter().map(|(_, held)| &held.places);
        let each = states.chain(all.cuts.iter().map(|(_, cut)| cut));
        let state = each.max_by_key(|places| size(places)).cloned();
        // The last event that is not in it: whatever has seen it goes back, too.
        let outside = |fired: &Fired| {
            let limit = state.as_ref().map(|state| state.get(fired.process));
            limit.is_none_or(|limit| limit.is_none_or(|limit| !limit.has(fired.at)))
        };
        let events = all.events.iter().filter(|(_, fired)| outside(fired));
        let last = events.max_by_key(|(_, fired)| fired.order).copied();
        let target = match (last, state) {
            (Some((_, fired)), _) => {
                let mut places = edges;
                let to = Edge::at(fired.at);
                lead_back(recorded, &mut places, fired.process, to, &mut Vec::new());
                places
            }
            (None, Some(state)) => state,
            (None, None) => return (None, unknown),
        };
        (found_at(&all, target, last), unknown)
    }

    /// What was found, as places of processes and words.
    fn instant(
        &self,
        group: &mut Group,
        here: &[At],
        found: Found,
        cancel: &Cancel,
    ) -> Option<Instant> {
        let program = Arc::clone(group.program());
        let steps = self.built.as_ref().map(|built| &built.steps);
        let id = |process: usize| program.history().ok()?.id_of(ProcessIx(process as u32));
        let mut goals = Vec::new();
        for (process, (edge, at)) in found.places.iter().zip(here).enumerate() {
            let (Some(own), Some(steps)) = (id(process), steps) else {
                continue;
            };
            if *edge == Edge::at(*at) {
                continue;
            }
            let is_about = found.about.contains(&process);
            let stand = match steps.stand(process, *edge) {
                // Who only comes along comes as others do.
                Some(Stand::After(event)) if !is_about => {
                    Some(Stand::At(Position::Event(event.next())))
                }
                stand => stand,
            };
            let position = match stand {
                Some(Stand::At(position)) => Some(position),
                Some(Stand::After(event)) => Some(
                    group
                        .right_after(own, event, cancel)
                        .unwrap_or(Position::Event(event.next())),
                ),
                Some(Stand::Before(position)) => Some(
                    group
                        .right_before(own, position, cancel)
                        .unwrap_or(position),
                ),
                None => None,
            };
            goals.extend(position.map(|position| (own, position)));
        }
        let fires = found.fires.into_iter().filter_map(|(at, shown)| {
            let entry = self.entries.get(at)?;
            let commands = match self.told().find(|(own, _)| *own == at) {
                Some((_, What::Events(_, commands))) => commands.clone(),
                _ => Vec::new(),
            };
            let (parts, captures) = match shown {
                Shown::State(held) => (parts(&program, &held), held.captures),
                Shown::Event(fired) => {
                    let events = fired.trail.events();
                    let events = events.iter().filter_map(|(process, at)| {
                        let own = id(*process)?;
                        let history = program.history().ok()?;
                        let name = history.set().process_name(ProcessIx(*process as u32));
                        let what = match at.event() {
                            Some(event) => format!("{name}:{event}"),
                            None => format!("before {name}:{}", at.bound),
                        };
                        Some(Part {
                            process: own,
                            what,
                            value: None,
                        })
                    });
                    (events.collect(), fired.captures)
                }
                Shown::Cut => (Vec::new(), Vec::new()),
            };
            let chosen = self.primary.is_none_or(|primary| primary == entry.number);
            let is_question = !matches!(entry.does, Does::Trace(_));
            Some(Fires {
                stops: entry.stops(&commands) && (chosen || !is_question),
                entry: entry.clone(),
                parts,
                captures,
                commands,
            })
        });
        Some(Instant {
            fires: fires.collect(),
            lead: id(found.lead)?,
            goals,
        })
    }
}

/// Everything that fires at a target.
fn found_at(
    all: &Candidates<'_>,
    target: Vec<Edge>,
    event: Option<(usize, &Fired)>,
) -> Option<Found> {
    let mut fires: Vec<(usize, Shown)> = Vec::new();
    let mut about: Vec<usize> = Vec::new();
    let mut lead = None;
    for (at, held) in all.states.iter().filter(|(_, held)| held.places == target) {
        about.extend(&held.about);
        lead = lead.or(held.about.first().copied());
        fires.push((*at, Shown::State(held.clone())));
    }
    for (at, _) in all.cuts.iter().filter(|(_, cut)| *cut == target) {
        lead = lead.or(Some(0));
        fires.push((*at, Shown::Cut));
    }
    if let Some((_, first)) = event {
        lead = Some(first.process);
        about.push(first.process);
        let same = |fired: &Fired| (fired.process, fired.at) == (first.process, first.at);
        for (at, fired) in all.events.iter().filter(|(_, fired)| same(fired)) {
            fires.push((*at, Shown::Event((*fired).clone())));
        }
    }
    // In the order of the rules.
    fires.sort_by_key(|(at, _)| *at);
    Some(Found {
        places: target,
        lead: lead?,
        fires,
        about,
    })
}

/// Where everybody stands, as conditions see it.
fn stands(group: &Group, steps: &Steps) -> Vec<At> {
    let members = group.members();
    let all = members.iter().enumerate();
    all.map(|(process, member)| steps.seen_from(process, member.at))
        .collect()
}

/// Which part of a condition held where.
fn parts(program: &Program, held: &Held) -> Vec<Part> {
    let id = |process: usize| program.history().ok()?.id_of(ProcessIx(process as u32));
    let values = held.values.iter();
    values
        .filter_map(|(process, state, value)| {
            Some(Part {
                process: id(*process)?,
                what: state.clone(),
                value: Some(value.clone()),
            })
        })
        .collect()
}
