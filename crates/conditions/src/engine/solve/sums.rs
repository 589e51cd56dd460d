//! Comparisons of values of several processes: pairs of stretches where there are two,
//! bounds by flow where there are more.

use super::formula::{Formula, Linear, added};
use super::{Answer, Modality, Solver};
use crate::engine::flow;
use crate::engine::poset::Poset;
use crate::engine::relation::{Rel, pair};
use crate::engine::trace::{Change, Trace, Val};
use crate::history::{At, History};

impl<H: History + ?Sized> Solver<'_, H> {
    /// The sum of a comparison by process: of each one trace, and whether it
    /// may be absent. (What need not be present is 0 then, and never absent.)
    pub(super) fn combine(&self, linear: &Linear) -> Vec<(Trace, bool)> {
        let mut used: Vec<usize> = linear.terms.iter().map(|(_, trace)| *trace).collect();
        used.extend(&linear.present);
        let mut processes: Vec<usize> = used.iter().map(|t| self.traces[*t].process).collect();
        processes.sort_unstable();
        processes.dedup();
        let one = |process: usize| {
            let own = |trace: usize| self.traces[trace].process == process;
            let mut places: Vec<(At, u64)> = Vec::new();
            for trace in used.iter().filter(|trace| own(**trace)) {
                let changes = self.traces[*trace].changes.iter();
                places.extend(changes.map(|change| (change.at, change.time)));
            }
            places.sort_unstable();
            places.dedup_by_key(|(at, _)| *at);
            let must = linear.present.iter().any(|trace| own(*trace));
            let value = |at: At| {
                let mut sum = 0;
                let mut present = linear.present.iter().filter(|trace| own(**trace));
                if present.any(|trace| self.traces[*trace].at(at) == Val::Absent) {
                    return Val::Absent;
                }
                for (factor, trace) in linear.terms.iter().filter(|(_, trace)| own(*trace)) {
                    match self.traces[*trace].at(at) {
                        Val::Absent => {}
                        Val::Unknown => return Val::Unknown,
                        Val::Int(number) => sum = added(sum, *factor, number),
                    }
                }
                Val::Int(sum)
            };
            let mut trace = Trace {
                process,
                changes: Vec::new(),
            };
            if !must {
                trace.push(Change {
                    at: At::default(),
                    time: 0,
                    value: Val::Int(0),
                });
            }
            for (at, time) in places {
                let value = value(at);
                trace.push(Change { at, time, value });
            }
            (trace, must)
        };
        processes.into_iter().map(one).collect()
    }

    /// One comparison of several processes.
    pub(super) fn compare(&self, linear: &Linear, parts: &[&Formula], unknown: bool) -> Answer {
        let combined = self.combine(linear);
        let unclear = |(trace, _): &(Trace, bool)| {
            trace
                .changes
                .iter()
                .any(|change| change.value == Val::Unknown)
        };
        if combined.iter().any(unclear) {
            return self.enumerate_all(parts, Modality::Possibly, unknown);
        }
        let traces: Vec<&Trace> = combined.iter().map(|(trace, _)| trace).collect();
        let poset = match Poset::between(self.history, &traces, self.floor, None) {
            Ok(poset) => poset,
            Err(_) => return self.observed_or(parts, linear, &combined, unknown),
        };
        let values: Vec<Vec<Val>> = combined
            .iter()
            .map(|(trace, must)| {
                let mut values = poset.values(trace);
                for value in values.iter_mut().filter(|value| **value == Val::Absent) {
                    // What need not be there counts nothing where it is not.
                    if !must {
                        *value = Val::Int(0);
                    }
                }
                values
            })
            .collect();
        if let [a, b] = traces.as_slice() {
            let lane = |trace: &Trace| {
                let own = poset
                    .lanes
                    .iter()
                    .position(|process| *process == trace.process);
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
        let must = combined.iter().any(|(_, must)| *must);
        if must && (linear.absent || linear.rel == Rel::Equal) {
            return self.enumerate_all(parts, Modality::Possibly, unknown);
        }
        self.sum(linear, &poset, &values, parts, unknown)
    }

    /// A sum over many processes. Who has to be there and is not counts for so much, against
    /// what is looked for, that all others together do not make up for it.
    pub(super) fn sum(
        &self,
        linear: &Linear,
        poset: &Poset,
        values: &[Vec<Val>],
        parts: &[&Formula],
        unknown: bool,
    ) -> Answer {
        let largest = |list: &Vec<Val>| {
            let numbers = list.iter().map(|value| match value {
                Val::Int(number) => number.saturating_abs(),
                _ => 0,
            });
            numbers.max().unwrap_or(0)
        };
        let all_else = values.iter().map(largest);
        let missing = all_else
            .fold(linear.constant.saturating_abs(), i128::saturating_add)
            .saturating_add(1);
        // Of all processes, where who is absent counts for this much.
        let weighed = |absent: i128| -> (i128, Vec<Vec<i128>>) {
            let number = |value: Val| match value {
                Val::Int(number) => number,
                _ => absent,
            };
            let base = values.iter().map(|list| number(list[0]));
            let base = base.fold(linear.constant, i128::saturating_add);
            let weights = values.iter().map(|list| {
                let pairs = list.windows(2);
                pairs
                    .map(|two| number(two[1]).saturating_sub(number(two[0])))
                    .collect()
            });
            (base, weights.collect())
        };
        let (base, weights) = weighed(-missing);
        let (low_base, low_weights) = weighed(missing);
        let negative: Vec<Vec<i128>> = low_weights
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
            (low_base.saturating_sub(found.sum), found.state)
        };
        let reached = |prefix: usize| -> Option<Vec<u32>> {
            let side =
                |(sum, state): (i128, Vec<u32>), rel: Rel| rel.holds(sum, 0).then_some(state);
            match linear.rel {
                rel @ (Rel::More | Rel::AtLeast) => side(most(prefix), rel),
                rel @ (Rel::Less | Rel::AtMost) => side(least(prefix), rel),
                Rel::Unequal => {
                    let more = side(most(prefix), Rel::More);
                    more.or_else(|| side(least(prefix), Rel::Less))
                }
                Rel::Equal => None,
            }
        };
        let all = poset.sequence.len();
        if linear.rel == Rel::Equal {
            let ((low, from), (high, to)) = (least(all), most(all));
            if low > 0 || high < 0 {
                return Answer::No;
            }
            // Where all go up and down by the same, that is what is counted in.
            let step = weights.iter().flatten().fold(0, |step, weight| {
                let (mut a, mut b) = (step, weight.unsigned_abs());
                while b != 0 {
                    (a, b) = (b, a % b);
                }
                a
            });
            if step != 0 && !base.unsigned_abs().is_multiple_of(step) {
                return Answer::No;
            }
            let small = |weight: &i128| [0, step].contains(&weight.unsigned_abs());
            if !weights.iter().flatten().all(small) {
                return self.enumerate_all(parts, Modality::Possibly, unknown);
            }
            // Changes of one step at a time miss no number on the way.
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
        weights: &[Vec<i128>],
        base: i128,
        from: &[u32],
        to: &[u32],
    ) -> Vec<u32> {
        let sum = |state: &[u32]| -> i128 {
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
        combined: &[(Trace, bool)],
        unknown: bool,
    ) -> Answer {
        let all = Formula::All(parts.iter().map(|part| (*part).clone()).collect());
        if let yes @ Answer::Yes(_) = self.observed(&all, unknown) {
            return yes;
        }
        let mut range = (linear.constant, linear.constant);
        for (trace, must) in combined {
            let values = trace
                .changes
                .iter()
                .filter_map(|change| match change.value {
                    Val::Int(number) => Some(number),
                    _ => None,
                });
            let zero = (!must).then_some(0);
            let (mut low, mut high) = (i128::MAX, i128::MIN);
            for value in values.chain(zero) {
                low = low.min(value);
                high = high.max(value);
            }
            if low <= high {
                range = (range.0.saturating_add(low), range.1.saturating_add(high));
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
}
