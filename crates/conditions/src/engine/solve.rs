//! Conditions over the states of several processes: in which consistent states
//! they hold.
//!
//! A condition is brought into disjunctive form. What then is a conjunction of
//! statements about one process each has a unique first state, found in time
//! linear in events ([`cut`](super::cut)); a comparison of two processes is a
//! matter of pairs of stretches ([`relation`](super::relation)); a sum over many
//! is bounded by flow ([`flow`](super::flow)). Anything else is looked for among
//! all consistent states, up to a number of them ([`enumerate`](super::enumerate)).
#![allow(clippy::indexing_slicing)] // Tables with a row for each track or process.

use super::cut::{self, Search};
use super::enumerate::{self, Looked};
use super::flow;
use super::poset::Poset;
use super::relation::{Rel, pair};
use super::track::{Change, Span, Track, Val, intersect, spans};
use crate::history::{At, History, within};
use crate::stream::closure;

/// A sum of values, compared with zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Factor and track. What is absent counts nothing.
    pub terms: Vec<(i64, usize)>,
    /// What is added.
    pub constant: i64,
    /// How the sum compares with zero.
    pub rel: Rel,
    /// Tracks that must not be absent.
    pub present: Vec<usize>,
    /// What holds if one of them is.
    pub absent: bool,
}

/// A condition over tracks, in which only statements about values are negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formula {
    /// Always, or never.
    Const(bool),
    /// A track is true (not absent, and not 0), or is not.
    Is(usize, bool),
    /// A comparison.
    Compare(Linear),
    /// All of these.
    All(Vec<Formula>),
    /// At least one.
    Any(Vec<Formula>),
}

impl Formula {
    /// What holds where this does not.
    pub fn negated(self) -> Formula {
        match self {
            Formula::Const(value) => Formula::Const(!value),
            Formula::Is(track, value) => Formula::Is(track, !value),
            Formula::Compare(linear) => Formula::Compare(Linear {
                rel: linear.rel.negated(),
                absent: !linear.absent,
                ..linear
            }),
            Formula::All(list) => Formula::Any(list.into_iter().map(Formula::negated).collect()),
            Formula::Any(list) => Formula::All(list.into_iter().map(Formula::negated).collect()),
        }
    }

    /// Whether it holds with these values, what is unknown being taken for
    /// `unknown`.
    pub fn holds(&self, value: &dyn Fn(usize) -> Val, unknown: bool) -> bool {
        match self {
            Formula::Const(value) => *value,
            Formula::Is(track, wanted) => match value(*track) {
                Val::Unknown => unknown,
                Val::Absent => !wanted,
                Val::Int(number) => (number != 0) == *wanted,
            },
            Formula::Compare(linear) => linear.holds(value, unknown),
            Formula::All(list) => list.iter().all(|part| part.holds(value, unknown)),
            Formula::Any(list) => list.iter().any(|part| part.holds(value, unknown)),
        }
    }

    /// The tracks it looks at.
    pub fn tracks(&self, into: &mut Vec<usize>) {
        match self {
            Formula::Const(_) => {}
            Formula::Is(track, _) => into.push(*track),
            Formula::Compare(linear) => {
                into.extend(linear.terms.iter().map(|(_, track)| *track));
                into.extend(&linear.present);
            }
            Formula::All(list) | Formula::Any(list) => {
                list.iter().for_each(|part| part.tracks(into));
            }
        }
    }
}

impl Linear {
    fn holds(&self, value: &dyn Fn(usize) -> Val, unknown: bool) -> bool {
        if self
            .present
            .iter()
            .any(|track| value(*track) == Val::Absent)
        {
            return self.absent;
        }
        let mut sum = i128::from(self.constant);
        for (factor, track) in &self.terms {
            match value(*track) {
                Val::Absent => {}
                Val::Unknown => return unknown,
                Val::Int(number) => sum += i128::from(*factor) * i128::from(number),
            }
        }
        self.rel.holds(sum, 0)
    }
}

/// A consistent state in which a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The bound of every process.
    pub cut: Vec<u32>,
    /// Where those are that the condition is about.
    pub places: Vec<(usize, At)>,
    /// Whether it is the one first state there is.
    pub unique: bool,
}

/// Whether a condition holds somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// In this state.
    Yes(State),
    /// Nowhere.
    No,
    /// That cannot be told, and why.
    Unknown(String),
}

/// In which states a condition must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modality {
    /// In some consistent state.
    Possibly,
    /// In some state whichever way the run went.
    Definitely,
    /// In some state that was passed in the order of recorded times.
    Observed,
}

/// Conjunctions that a condition may have in disjunctive form.
const CONJUNCTIONS_MAX: usize = 20_000;

/// Answers conditions over some tracks.
pub struct Solver<'h, H: ?Sized> {
    /// The history.
    pub history: &'h H,
    /// The tracks that formulas name.
    pub tracks: &'h [Track],
}

/// One conjunction, sorted out.
struct Conjunction<'f> {
    local: Vec<(usize, Vec<Span>)>,
    compared: Vec<&'f Linear>,
}

impl<H: History + ?Sized> Solver<'_, H> {
    /// Whether, and where, a condition holds.
    pub fn ask(&self, formula: &Formula, modality: Modality) -> Answer {
        let sure = self.ask_with(formula, modality, false);
        if matches!(sure, Answer::Yes(_)) || !self.has_unknown(formula) {
            return sure;
        }
        match self.ask_with(formula, modality, true) {
            Answer::Yes(state) => Answer::Unknown(format!(
                "it would hold at {} if what is unknown there made it so",
                self.words(&state)
            )),
            other => match sure {
                Answer::No => other,
                sure => sure,
            },
        }
    }

    fn words(&self, state: &State) -> String {
        let places = state.places.iter().map(|(process, at)| {
            let name = self.history.name(*process);
            match at.bound.checked_sub(1) {
                Some(last) => format!("{name}:{last}"),
                None => name.to_string(),
            }
        });
        places.collect::<Vec<_>>().join(", ")
    }

    fn has_unknown(&self, formula: &Formula) -> bool {
        let mut used = Vec::new();
        formula.tracks(&mut used);
        used.iter().any(|track| {
            let changes = self.tracks[*track].changes.iter();
            changes
                .into_iter()
                .any(|change| change.value == Val::Unknown)
        })
    }

    fn ask_with(&self, formula: &Formula, modality: Modality, unknown: bool) -> Answer {
        if modality == Modality::Observed {
            return self.observed(formula, unknown);
        }
        let mut conjunctions = Vec::new();
        let complete = disjuncts(formula, &mut conjunctions);
        if !complete {
            return self.enumerate(formula, modality, unknown);
        }
        let definitely = modality == Modality::Definitely;
        let mut best: Option<State> = None;
        let mut open: Option<Answer> = None;
        let single = conjunctions.len() == 1;
        for conjunction in &conjunctions {
            let Some(sorted) = self.sort_out(conjunction, unknown) else {
                continue;
            };
            let answer = match definitely {
                false => self.possibly(&sorted, conjunction, unknown),
                true if sorted.compared.is_empty() => self.surely(&sorted),
                true => self.enumerate_all(conjunction, modality, unknown),
            };
            match answer {
                Answer::Yes(state) => {
                    let earlier = match &best {
                        Some(best) => self.is_earlier(&state, best),
                        None => true,
                    };
                    if earlier {
                        best = Some(state);
                    }
                }
                Answer::No => {}
                unknown => open = Some(unknown),
            }
            if definitely && best.is_some() {
                break;
            }
        }
        match (best, open) {
            (Some(mut state), _) => {
                state.unique &= single;
                Answer::Yes(state)
            }
            (None, Some(open)) => open,
            // None of several holds on every way; one of them may on each.
            (None, None) if definitely && conjunctions.len() > 1 => {
                self.enumerate(formula, modality, unknown)
            }
            (None, None) => Answer::No,
        }
    }

    /// Which of two states to name: the one inside the other, else the one
    /// with less behind it.
    fn is_earlier(&self, a: &State, b: &State) -> bool {
        if within(&a.cut, &b.cut) || within(&b.cut, &a.cut) {
            return a.cut != b.cut && within(&a.cut, &b.cut);
        }
        let size = |state: &State| -> u64 { state.cut.iter().map(|bound| u64::from(*bound)).sum() };
        (size(a), &a.cut) < (size(b), &b.cut)
    }

    /// What a conjunction asks of each process by itself; `None` if that is
    /// more than it can ever do.
    fn sort_out<'f>(&self, parts: &[&'f Formula], unknown: bool) -> Option<Conjunction<'f>> {
        let mut local: Vec<(usize, Vec<Span>)> = Vec::new();
        let mut compared = Vec::new();
        let mut add = |process: usize, own: Vec<Span>| match local
            .iter_mut()
            .find(|(known, _)| *known == process)
        {
            Some((_, list)) => *list = intersect(list, &own),
            None => local.push((process, own)),
        };
        for part in parts {
            match part {
                Formula::Const(true) => {}
                Formula::Is(track, wanted) => {
                    let track = &self.tracks[*track];
                    let fits = |value| match value {
                        Val::Unknown => unknown,
                        Val::Absent => !wanted,
                        Val::Int(number) => (number != 0) == *wanted,
                    };
                    add(track.process, spans(track, fits));
                }
                Formula::Compare(linear) => {
                    let by_process = self.combine(linear);
                    match by_process.as_slice() {
                        [] => {
                            if !linear.holds(&|_| Val::Absent, unknown) {
                                return None;
                            }
                        }
                        [(track, _)] => {
                            let fits = |value| match value {
                                Val::Unknown => unknown,
                                Val::Absent => linear.absent,
                                Val::Int(number) => linear
                                    .rel
                                    .holds(i128::from(number) + i128::from(linear.constant), 0),
                            };
                            add(track.process, spans(track, fits));
                        }
                        _ => compared.push(linear),
                    }
                }
                _ => return None,
            }
        }
        let possible = local.iter().all(|(_, list)| !list.is_empty());
        possible.then_some(Conjunction { local, compared })
    }

    /// The sum of a comparison by process: of each one track, and whether it
    /// may be absent. (What need not be present is 0 then, and never absent.)
    fn combine(&self, linear: &Linear) -> Vec<(Track, bool)> {
        let mut used: Vec<usize> = linear.terms.iter().map(|(_, track)| *track).collect();
        used.extend(&linear.present);
        let mut processes: Vec<usize> = used.iter().map(|t| self.tracks[*t].process).collect();
        processes.sort_unstable();
        processes.dedup();
        let one = |process: usize| {
            let own = |track: usize| self.tracks[track].process == process;
            let mut places: Vec<(At, u64)> = Vec::new();
            for track in used.iter().filter(|track| own(**track)) {
                let changes = self.tracks[*track].changes.iter();
                places.extend(changes.map(|change| (change.at, change.time)));
            }
            places.sort_unstable();
            places.dedup_by_key(|(at, _)| *at);
            let must = linear.present.iter().any(|track| own(*track));
            let value = |at: At| {
                let mut sum = 0i128;
                let mut present = linear.present.iter().filter(|track| own(**track));
                if present.any(|track| self.tracks[*track].at(at) == Val::Absent) {
                    return Val::Absent;
                }
                for (factor, track) in linear.terms.iter().filter(|(_, track)| own(*track)) {
                    match self.tracks[*track].at(at) {
                        Val::Absent => {}
                        Val::Unknown => return Val::Unknown,
                        Val::Int(number) => sum += i128::from(*factor) * i128::from(number),
                    }
                }
                i64::try_from(sum).map_or(Val::Unknown, Val::Int)
            };
            let mut track = Track {
                process,
                changes: Vec::new(),
            };
            if !must {
                track.push(Change {
                    at: At::default(),
                    time: 0,
                    value: Val::Int(0),
                });
            }
            for (at, time) in places {
                let value = value(at);
                track.push(Change { at, time, value });
            }
            (track, must)
        };
        processes.into_iter().map(one).collect()
    }

    fn possibly(&self, sorted: &Conjunction<'_>, parts: &[&Formula], unknown: bool) -> Answer {
        match sorted.compared.as_slice() {
            [] => match Search::new(self.history, &sorted.local).next() {
                Some(found) => {
                    let places = sorted.local.iter().map(|(process, _)| *process);
                    Answer::Yes(State {
                        places: places.zip(found.places).collect(),
                        cut: found.cut,
                        unique: true,
                    })
                }
                None => Answer::No,
            },
            [linear] if sorted.local.is_empty() => self.compare(linear, parts, unknown),
            _ => self.enumerate_all(parts, Modality::Possibly, unknown),
        }
    }

    fn surely(&self, sorted: &Conjunction<'_>) -> Answer {
        match cut::definitely(self.history, &sorted.local) {
            Some(found) => {
                let places = sorted.local.iter().zip(found);
                let places = places
                    .filter_map(|((process, list), at)| Some((*process, list.get(at)?.from)))
                    .collect();
                Answer::Yes(self.state(places))
            }
            None => Answer::No,
        }
    }

    /// The first consistent state in which processes have come to these places.
    fn state(&self, places: Vec<(usize, At)>) -> State {
        let mut bounds: Vec<u32> = (0..self.history.processes())
            .map(|process| self.history.first(process))
            .collect();
        for (process, at) in &places {
            bounds[*process] = bounds[*process].max(at.bound);
        }
        State {
            cut: closure(self.history, bounds),
            places,
            unique: false,
        }
    }

    fn state_at(&self, poset: &Poset, counts: &[u32]) -> State {
        let lanes = poset.lanes.iter().zip(counts).enumerate();
        let places = lanes.map(|(lane, (process, count))| (*process, poset.place(lane, *count)));
        self.state(places.collect())
    }

    /// One comparison of several processes.
    fn compare(&self, linear: &Linear, parts: &[&Formula], unknown: bool) -> Answer {
        let combined = self.combine(linear);
        let unclear = |(track, _): &(Track, bool)| {
            track
                .changes
                .iter()
                .any(|change| change.value == Val::Unknown)
        };
        if combined.iter().any(unclear) {
            return self.enumerate_all(parts, Modality::Possibly, unknown);
        }
        let tracks: Vec<&Track> = combined.iter().map(|(track, _)| track).collect();
        let poset = match Poset::new(self.history, &tracks) {
            Ok(poset) => poset,
            Err(_) => return self.observed_or(parts, linear, &combined, unknown),
        };
        let values: Vec<Vec<Val>> = combined
            .iter()
            .map(|(track, must)| {
                let mut values = poset.values(track);
                for value in values.iter_mut().filter(|value| **value == Val::Absent) {
                    // What need not be there counts nothing where it is not.
                    if !must {
                        *value = Val::Int(0);
                    }
                }
                values
            })
            .collect();
        if let [a, b] = tracks.as_slice() {
            let lane = |track: &Track| {
                let own = poset
                    .lanes
                    .iter()
                    .position(|process| *process == track.process);
                own.unwrap_or(0)
            };
            let found = pair(
                &poset,
                (lane(a), &values[0]),
                (lane(b), &values[1]),
                linear.constant,
                linear.rel,
                linear.absent,
            );
            return match found {
                Some((first, second)) => {
                    let mut counts = vec![0; 2];
                    counts[lane(a)] = first;
                    counts[lane(b)] = second;
                    Answer::Yes(self.state_at(&poset, &counts))
                }
                None => Answer::No,
            };
        }
        if combined.iter().any(|(_, must)| *must) {
            return self.enumerate_all(parts, Modality::Possibly, unknown);
        }
        self.sum(linear, &poset, &values, parts, unknown)
    }

    /// A sum over many processes, none of which has to be there.
    fn sum(
        &self,
        linear: &Linear,
        poset: &Poset,
        values: &[Vec<Val>],
        parts: &[&Formula],
        unknown: bool,
    ) -> Answer {
        let number = |value: Val| match value {
            Val::Int(number) => number,
            _ => 0,
        };
        let base: i64 = values
            .iter()
            .map(|list| number(list[0]))
            .fold(linear.constant, i64::saturating_add);
        let weights: Vec<Vec<i64>> = values
            .iter()
            .map(|list| {
                let pairs = list.windows(2);
                pairs
                    .map(|two| number(two[1]).saturating_sub(number(two[0])))
                    .collect()
            })
            .collect();
        let negative: Vec<Vec<i64>> = weights
            .iter()
            .map(|list| list.iter().map(|weight| -weight).collect())
            .collect();
        // The sum at its largest, or its smallest, among the first changes.
        let most = |prefix: usize| {
            let found = flow::largest(poset, &weights, prefix);
            (base.saturating_add(found.sum), found.state)
        };
        let least = |prefix: usize| {
            let found = flow::largest(poset, &negative, prefix);
            (base.saturating_sub(found.sum), found.state)
        };
        let fits = |sum: i64| linear.rel.holds(sum.into(), 0);
        let reached = |prefix: usize| -> Option<Vec<u32>> {
            let sides = match linear.rel {
                Rel::More | Rel::AtLeast => vec![most(prefix)],
                Rel::Less | Rel::AtMost => vec![least(prefix)],
                Rel::Unequal => vec![most(prefix), least(prefix)],
                Rel::Equal => Vec::new(),
            };
            sides
                .into_iter()
                .find(|(sum, _)| fits(*sum))
                .map(|(_, state)| state)
        };
        let all = poset.sequence.len();
        if linear.rel == Rel::Equal {
            let ((low, from), (high, to)) = (least(all), most(all));
            if low > 0 || high < 0 {
                return Answer::No;
            }
            let small = weights.iter().flatten().all(|weight| weight.abs() <= 1);
            if !small {
                return self.enumerate_all(parts, Modality::Possibly, unknown);
            }
            // Changes of one at a time miss no number on the way.
            let state = self.walk(poset, &weights, base, &from, &to);
            return Answer::Yes(self.state_at(poset, &state));
        }
        if reached(all).is_none() {
            return Answer::No;
        }
        // As few changes as possible, in causal order.
        let (mut low, mut high) = (0, all);
        while low < high {
            let middle = low + (high - low) / 2;
            match reached(middle) {
                Some(_) => high = middle,
                None => low = middle + 1,
            }
        }
        match reached(low) {
            Some(state) => Answer::Yes(self.state_at(poset, &state)),
            None => Answer::No,
        }
    }

    /// From one state to another by way of what is in either: a state on it at
    /// which the sum is zero.
    fn walk(
        &self,
        poset: &Poset,
        weights: &[Vec<i64>],
        base: i64,
        from: &[u32],
        to: &[u32],
    ) -> Vec<u32> {
        let sum = |state: &[u32]| -> i64 {
            let lanes = weights.iter().zip(state);
            let inside = lanes.flat_map(|(list, count)| &list[..*count as usize]);
            inside.fold(base, |sum, weight| sum.saturating_add(*weight))
        };
        for (start, goal) in [(from, to), (to, from)] {
            let mut state = start.to_vec();
            let mut now = sum(&state);
            for (lane, number) in &poset.sequence {
                if now == 0 {
                    return state;
                }
                let number = *number as u32;
                if state[*lane] == number && number < goal[*lane] {
                    state[*lane] += 1;
                    now = now.saturating_add(weights[*lane][number as usize]);
                }
            }
            if now == 0 {
                return state;
            }
        }
        from.to_vec()
    }

    /// Too much for flow: what was observed, or bounds that nothing can pass.
    fn observed_or(
        &self,
        parts: &[&Formula],
        linear: &Linear,
        combined: &[(Track, bool)],
        unknown: bool,
    ) -> Answer {
        let all = Formula::All(parts.iter().map(|part| (*part).clone()).collect());
        if let yes @ Answer::Yes(_) = self.observed(&all, unknown) {
            return yes;
        }
        let mut range = (i128::from(linear.constant), i128::from(linear.constant));
        for (track, must) in combined {
            let values = track
                .changes
                .iter()
                .filter_map(|change| match change.value {
                    Val::Int(number) => Some(i128::from(number)),
                    _ => None,
                });
            let zero = (!must).then_some(0);
            let (mut low, mut high) = (i128::MAX, i128::MIN);
            for value in values.chain(zero) {
                low = low.min(value);
                high = high.max(value);
            }
            if low <= high {
                range = (range.0 + low, range.1 + high);
            }
        }
        let impossible = match linear.rel {
            Rel::More => range.1 <= 0,
            Rel::AtLeast => range.1 < 0,
            Rel::Less => range.0 >= 0,
            Rel::AtMost => range.0 > 0,
            Rel::Equal => range.0 > 0 || range.1 < 0,
            Rel::Unequal => range == (0, 0),
        };
        match impossible && !linear.absent {
            true => Answer::No,
            false => Answer::Unknown(
                "it changes too often for every consistent state to be weighed".to_string(),
            ),
        }
    }

    fn enumerate_all(&self, parts: &[&Formula], modality: Modality, unknown: bool) -> Answer {
        let all = Formula::All(parts.iter().map(|part| (*part).clone()).collect());
        self.enumerate(&all, modality, unknown)
    }

    /// By looking at states one after the other.
    fn enumerate(&self, formula: &Formula, modality: Modality, unknown: bool) -> Answer {
        let mut used = Vec::new();
        formula.tracks(&mut used);
        used.sort_unstable();
        used.dedup();
        let tracks: Vec<&Track> = used.iter().map(|track| &self.tracks[*track]).collect();
        let Ok(poset) = Poset::new(self.history, &tracks) else {
            return Answer::Unknown(
                "there are too many changes for all consistent states to be looked at".to_string(),
            );
        };
        let values: Vec<Vec<Val>> = tracks.iter().map(|track| poset.values(track)).collect();
        let lanes: Vec<usize> = tracks
            .iter()
            .map(|track| {
                let own = poset
                    .lanes
                    .iter()
                    .position(|process| *process == track.process);
                own.unwrap_or(0)
            })
            .collect();
        let fits = |state: &[u32]| {
            let value = |track: usize| match used.binary_search(&track) {
                Ok(at) => values[at][state[lanes[at]] as usize],
                Err(_) => Val::Absent,
            };
            formula.holds(&value, unknown)
        };
        let looked = match modality {
            Modality::Definitely => enumerate::definitely(&poset, fits),
            _ => enumerate::possibly(&poset, fits),
        };
        match looked {
            Looked::Found(state) => Answer::Yes(self.state_at(&poset, &state)),
            Looked::Nowhere => Answer::No,
            Looked::TooMany => Answer::Unknown(format!(
                "it takes looking at more than {} consistent states",
                enumerate::STATES_MAX
            )),
        }
    }

    /// The first state in the order of recorded times.
    fn observed(&self, formula: &Formula, unknown: bool) -> Answer {
        let mut used = Vec::new();
        formula.tracks(&mut used);
        used.sort_unstable();
        used.dedup();
        let mut marks: Vec<Vec<crate::stream::Mark>> = vec![Vec::new(); self.history.processes()];
        for track in &used {
            let track = &self.tracks[*track];
            marks[track.process].extend(track.changes.iter().map(|change| crate::stream::Mark {
                at: change.at,
                time: change.time,
            }));
        }
        for list in &mut marks {
            list.sort_by_key(|mark| mark.at);
            list.dedup_by_key(|mark| mark.at);
        }
        let mut now: Vec<(usize, Val)> = used.iter().map(|_| (0, Val::Absent)).collect();
        let mut places: Vec<(usize, At)> = Vec::new();
        let value = |now: &[(usize, Val)], track: usize| match used.binary_search(&track) {
            Ok(at) => now[at].1,
            Err(_) => Val::Absent,
        };
        if formula.holds(&|track| value(&now, track), unknown) {
            return Answer::Yes(self.state(Vec::new()));
        }
        for moment in crate::stream::Stream::new(self.history, &marks) {
            for (at, track) in used.iter().enumerate() {
                let track = &self.tracks[*track];
                if track.process != moment.process {
                    continue;
                }
                while let Some(change) = track.changes.get(now[at].0) {
                    if change.at > moment.at {
                        break;
                    }
                    now[at] = (now[at].0 + 1, change.value);
                }
            }
            match places
                .iter_mut()
                .find(|(process, _)| *process == moment.process)
            {
                Some(place) => place.1 = moment.at,
                None => places.push((moment.process, moment.at)),
            }
            if formula.holds(&|track| value(&now, track), unknown) {
                places.sort_unstable();
                return Answer::Yes(self.state(places));
            }
        }
        Answer::No
    }

    /// How often a condition holds that is a conjunction of statements about
    /// one process each, with each time: one ends where the first of its parts
    /// does. `None` if it is not such a condition; then only the first is known.
    pub fn occurrences(&self, formula: &Formula, most: usize) -> Option<Vec<State>> {
        let mut conjunctions = Vec::new();
        if !disjuncts(formula, &mut conjunctions) || conjunctions.len() != 1 {
            return None;
        }
        let parts = conjunctions.first()?;
        let Some(sorted) = self.sort_out(parts, false) else {
            return Some(Vec::new());
        };
        if !sorted.compared.is_empty() || sorted.local.is_empty() {
            return None;
        }
        let mut search = Search::new(self.history, &sorted.local);
        let mut all = Vec::new();
        while all.len() < most {
            let Some(found) = search.next() else { break };
            let places = sorted.local.iter().map(|(process, _)| *process);
            all.push(State {
                unique: all.is_empty(),
                places: places.zip(found.places).collect(),
                cut: found.cut,
            });
        }
        Some(all)
    }
}

/// The conjunctions of which at least one must hold. False if there are too
/// many.
fn disjuncts<'f>(formula: &'f Formula, into: &mut Vec<Vec<&'f Formula>>) -> bool {
    match formula {
        Formula::Const(false) => true,
        Formula::Const(true) => {
            into.push(Vec::new());
            true
        }
        Formula::Is(..) | Formula::Compare(_) => {
            into.push(vec![formula]);
            true
        }
        Formula::Any(list) => {
            list.iter().all(|part| disjuncts(part, into)) && into.len() <= CONJUNCTIONS_MAX
        }
        Formula::All(list) => {
            let mut product: Vec<Vec<&Formula>> = vec![Vec::new()];
            for part in list {
                let mut own = Vec::new();
                if !disjuncts(part, &mut own)
                    || product.len().saturating_mul(own.len()) > CONJUNCTIONS_MAX
                {
                    return false;
                }
                product = product
                    .iter()
                    .flat_map(|left| {
                        own.iter().map(|right| {
                            let mut both = left.clone();
                            both.extend(right);
                            both
                        })
                    })
                    .collect();
            }
            into.extend(product);
            true
        }
    }
}
