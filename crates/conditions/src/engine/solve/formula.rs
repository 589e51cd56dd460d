//! What is asked: conditions over traces, and their disjunctive form.
//!
//! They know nothing of order and time, only of values.

use super::CONJUNCTIONS_MAX;
use crate::engine::relation::Rel;
use crate::engine::trace::Val;

/// A sum of values, compared with zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Factor and trace. What is absent counts nothing.
    pub terms: Vec<(i64, usize)>,
    /// What is added.
    pub constant: i128,
    /// How the sum compares with zero.
    pub rel: Rel,
    /// Traces that must not be absent.
    pub present: Vec<usize>,
    /// What holds if one of them is.
    pub absent: bool,
    /// It is about all of them together: if one is absent neither it nor its opposite
    /// holds.
    pub is_whole: bool,
}

/// A condition over traces, in which only statements about values are negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formula {
    /// Always, or never.
    Const(bool),
    /// A trace is true (not absent, and not 0), or is not.
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
            Formula::Is(trace, value) => Formula::Is(trace, !value),
            Formula::Compare(linear) => Formula::Compare(Linear {
                rel: linear.rel.negated(),
                absent: !linear.absent && !linear.is_whole,
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
            Formula::Is(trace, wanted) => match value(*trace) {
                Val::Unknown => unknown,
                Val::Absent => !wanted,
                Val::Int(number) => (number != 0) == *wanted,
            },
            Formula::Compare(linear) => linear.holds(value, unknown),
            Formula::All(list) => list.iter().all(|part| part.holds(value, unknown)),
            Formula::Any(list) => list.iter().any(|part| part.holds(value, unknown)),
        }
    }

    /// The traces it looks at.
    pub fn traces(&self, into: &mut Vec<usize>) {
        match self {
            Formula::Const(_) => {}
            Formula::Is(trace, _) => into.push(*trace),
            Formula::Compare(linear) => {
                into.extend(linear.terms.iter().map(|(_, trace)| *trace));
                into.extend(&linear.present);
            }
            Formula::All(list) | Formula::Any(list) => {
                list.iter().for_each(|part| part.traces(into));
            }
        }
    }
}

impl Linear {
    pub(super) fn holds(&self, value: &dyn Fn(usize) -> Val, unknown: bool) -> bool {
        if self
            .present
            .iter()
            .any(|trace| value(*trace) == Val::Absent)
        {
            return self.absent;
        }
        let mut sum = self.constant;
        for (factor, trace) in &self.terms {
            match value(*trace) {
                Val::Absent => {}
                Val::Unknown => return unknown,
                Val::Int(number) => sum = added(sum, *factor, number),
            }
        }
        self.rel.holds(sum, 0)
    }
}

/// A sum with one more term in it. What is measured leaves room enough that
/// nothing overflows; what a file of rules may say beyond that does not wrap.
pub(super) fn added(sum: i128, factor: i64, number: i128) -> i128 {
    sum.saturating_add(number.saturating_mul(factor.into()))
}

/// The conjunctions of which at least one must hold. False if there are too
/// many.
pub(super) fn disjuncts<'f>(formula: &'f Formula, into: &mut Vec<Vec<&'f Formula>>) -> bool {
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
