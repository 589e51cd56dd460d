//! Formulas over traces, made of conditions over states.
//!
//! Here values become the whole numbers that engines compare: each comparison has its
//! own measure, and the traces in its formula are in that.
#![allow(clippy::indexing_slicing)] // Tables with a row for each state and trace.

use std::collections::HashMap;
use std::rc::Rc;

use crate::engine::Sym;
use crate::engine::relation::Rel;
use crate::engine::solve::{Formula, Linear};
use crate::engine::trace::{Change, Trace, Val};
use crate::history::At;
use crate::rules::{Condition, Number, Rules, State, StateBody, Use};
use crate::source::Symbols;
use crate::states::Instance;
use crate::values::{Compared, Measure, Value, mapped};

/// Ways in which messages that several received a part of can have arrived.
const WAYS_MAX: usize = 256;

/// Numbers and texts have no order among them.
const UNORDERED: &str = "a number and a text are neither before nor behind each other";

/// Whose a trace is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub state: usize,
    pub instance: usize,
}

/// As what the traces of a state are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Taken {
    /// True or false.
    Truth,
    /// Counted: one or none, as so many of a power of two to be divided by.
    Counted(u32),
    /// Whole numbers.
    Whole,
    /// By the measure of a comparison.
    Measured(usize),
}

/// Makes formulas.
pub(super) struct Builder<'i> {
    instances: &'i [Vec<Instance>],
    symbols: &'i Symbols,
    /// Of each state, whether it is a value that each process has.
    is_family: Vec<bool>,
    pub traces: Vec<Trace>,
    pub owners: Vec<Owner>,
    /// Where the traces of a state begin.
    begins: HashMap<(usize, Taken), usize>,
    /// Of comparisons, by where they are.
    measures: HashMap<*const Number, (usize, Rc<Measure>)>,
    /// Why something is unknown, other than by what replay found.
    trouble: Option<&'static str>,
}

/// A comparison, sorted out.
#[derive(Default)]
struct Sum {
    terms: Vec<(i64, usize)>,
    /// Of the terms, values of a family.
    family: Vec<usize>,
    constant: i128,
    values: Vec<(i64, Vec<usize>)>,
    /// Messages that several received a part of: each is one less where the last of
    /// them has.
    parted: Vec<(i64, Vec<usize>)>,
}

/// What a number is made of, with factors.
fn walk<'n>(number: &'n Number, factor: i64, found: &mut dyn FnMut(i64, &'n Number)) {
    match number {
        Number::Times(times, inner) => walk(inner, factor.saturating_mul(*times), found),
        Number::Plus(list) => list.iter().for_each(|part| walk(part, factor, found)),
        leaf => found(factor, leaf),
    }
}

impl<'i> Builder<'i> {
    pub fn new(rules: &Rules, instances: &'i [Vec<Instance>], symbols: &'i Symbols) -> Builder<'i> {
        let is_value =
            |state: &State| matches!(state.body, StateBody::Source(..) | StateBody::Last(..));
        Builder {
            is_family: rules.states.iter().map(is_value).collect(),
            instances,
            symbols,
            traces: Vec::new(),
            owners: Vec::new(),
            begins: HashMap::new(),
            measures: HashMap::new(),
            trouble: None,
        }
    }

    /// Why something cannot be told.
    pub fn why(&self, why: String) -> String {
        match self.trouble {
            Some(trouble) => trouble.to_string(),
            None => why,
        }
    }

    /// What a trace was before it was measured.
    pub fn origin(&self, trace: usize) -> &Trace<Value> {
        let own = self.owners[trace];
        &self.instances[own.state][own.instance].trace
    }

    /// The traces of a state that are about these values, with the numbers of their
    /// instances.
    fn traces_of(
        &mut self,
        own: &Use,
        values: &[Sym],
        taken: Taken,
        measure: &Measure,
    ) -> Vec<(usize, &'i Instance)> {
        let begin = match self.begins.get(&(own.state, taken)) {
            Some(begin) => *begin,
            None => {
                let begin = self.traces.len();
                for (number, instance) in self.instances[own.state].iter().enumerate() {
                    let is_text = |value: Value| matches!(value, Value::Text(_));
                    let mut changes = instance.trace.changes.iter();
                    let measured = matches!(taken, Taken::Measured(_) | Taken::Whole);
                    if !measured && changes.any(|change| is_text(change.value)) {
                        self.trouble = Some("it is a text, which is neither true nor false");
                    }
                    let trace = match taken {
                        Taken::Truth => mapped(&instance.trace, Value::truth),
                        Taken::Counted(by) => {
                            mapped(&instance.trace, |value| match value.truth() {
                                Val::Int(number) => Val::Int(i128::from(number != 0) << by),
                                other => other,
                            })
                        }
                        _ => measure.trace(&instance.trace, self.symbols),
                    };
                    self.traces.push(trace);
                    self.owners.push(Owner {
                        state: own.state,
                        instance: number,
                    });
                }
                self.begins.insert((own.state, taken), begin);
                begin
            }
        };
        let fits = |instance: &Instance| {
            own.names
                .iter()
                .zip(instance.key.iter())
                .all(|(name, sym)| {
                    name.is_none_or(|name| values.get(name).is_none_or(|value| value == sym))
                })
        };
        let list = self.instances[own.state].iter().enumerate();
        list.filter(|(_, instance)| fits(instance))
            .map(|(i, instance)| (begin + i, instance))
            .collect()
    }

    pub fn formula(&mut self, condition: &Condition, values: &[Sym]) -> Formula {
        match condition {
            Condition::Is(own) => {
                let traces = self.traces_of(own, values, Taken::Truth, &Measure::Whole);
                match traces.as_slice() {
                    [(one, _)] => Formula::Is(*one, true),
                    many => {
                        let each = many.iter().map(|(trace, _)| Formula::Is(*trace, true));
                        Formula::Any(each.collect())
                    }
                }
            }
            Condition::Not(inner) => self.formula(inner, values).negated(),
            Condition::All(list) => {
                Formula::All(list.iter().map(|part| self.formula(part, values)).collect())
            }
            Condition::Any(list) => {
                Formula::Any(list.iter().map(|part| self.formula(part, values)).collect())
            }
            Condition::Compare(left, rel, right) => self.compare(left, *rel, right, values),
        }
    }

    /// How a comparison is measured: over all that its states ever are.
    fn measure(&mut self, left: &Number, rel: Rel, right: &Number) -> (usize, Rc<Measure>) {
        if let Some(known) = self.measures.get(&std::ptr::from_ref(left)) {
            return known.clone();
        }
        let single = |number: &Number| matches!(number, Number::Value(_) | Number::Literal(_));
        let mut compared = Compared {
            is_pair: single(left) && single(right),
            ..Compared::default()
        };
        for (side, factor) in [(left, 1), (right, -1)] {
            walk(side, factor, &mut |factor, number| match number {
                Number::Literal(literal) => compared.literals.push((factor, literal)),
                Number::Sum(own) | Number::Value(own) => {
                    let traces = self.instances[own.state].iter();
                    let traces = traces.map(|instance| (factor, &*instance.trace));
                    compared.traces.extend(traces);
                }
                Number::Count(own) => {
                    let most = i64::try_from(self.instances[own.state].len());
                    let most = most.unwrap_or(i64::MAX);
                    compared.counted.push(factor.saturating_mul(most));
                }
                _ => {}
            });
        }
        let measure = compared.measure(rel, self.symbols);
        if let Some(why) = measure.trouble() {
            self.trouble = Some(why);
        }
        if matches!(
            measure,
            Measure::Ranked {
                only_texts: true,
                ..
            }
        ) {
            self.trouble = Some(UNORDERED);
        }
        let own = (self.measures.len(), Rc::new(measure));
        self.measures.insert(std::ptr::from_ref(left), own.clone());
        own
    }

    fn compare(&mut self, left: &Number, rel: Rel, right: &Number, values: &[Sym]) -> Formula {
        let (number, measure) = self.measure(left, rel, right);
        let taken = match *measure {
            Measure::Whole => Taken::Whole,
            _ => Taken::Measured(number),
        };
        let mut sum = Sum::default();
        let mut known = true;
        for (side, factor) in [(left, 1), (right, -1)] {
            walk(side, factor, &mut |factor, number| {
                known &= self.add(number, factor, values, (taken, &measure), &mut sum);
            });
        }
        if !known {
            return self.unknown(UNORDERED);
        }
        // What a family has together is known where all of it is there.
        let is_whole = matches!(rel, Rel::Equal | Rel::Unequal) && !sum.family.is_empty();
        let whole = match is_whole {
            true => sum.family,
            false => Vec::new(),
        };
        // Each value is that of one process: of any that there is.
        let mut ways = vec![(sum.terms, whole)];
        for (factor, choices) in sum.values {
            ways = ways
                .iter()
                .flat_map(|(terms, present)| {
                    choices.iter().map(move |trace| {
                        let mut terms = terms.clone();
                        terms.push((factor, *trace));
                        let mut present = present.clone();
                        present.push(*trace);
                        (terms, present)
                    })
                })
                .collect();
        }
        let list = ways.into_iter().map(|(terms, present)| {
            let linear = Linear {
                terms,
                constant: sum.constant,
                rel,
                present,
                absent: false,
                is_whole,
            };
            self.arrived(linear, &sum.parted)
        });
        let mut list: Vec<Formula> = list.collect();
        match list.len() {
            1 => list.remove(0),
            _ => Formula::Any(list),
        }
    }

    /// Adds a part of a comparison. False if it has no measure.
    fn add(
        &mut self,
        number: &Number,
        factor: i64,
        values: &[Sym],
        (taken, measure): (Taken, &Measure),
        sum: &mut Sum,
    ) -> bool {
        match number {
            Number::Literal(literal) => {
                let Some(own) = measure.literal(literal) else {
                    return false;
                };
                let own = own.saturating_mul(factor.into());
                sum.constant = sum.constant.saturating_add(own);
            }
            Number::Sum(own) => {
                let mut parted: HashMap<u32, Vec<usize>> = HashMap::new();
                let is_family = self.is_family[own.state];
                for (trace, instance) in self.traces_of(own, values, taken, measure) {
                    let mut changes = instance.trace.changes.iter();
                    if is_family && changes.any(|change| change.value != Value::Absent) {
                        sum.family.push(trace);
                    }
                    match instance.part_of {
                        None => sum.terms.push((factor, trace)),
                        Some(message) => parted.entry(message).or_default().push(trace),
                    }
                }
                let mut parted: Vec<Vec<usize>> = parted.into_values().collect();
                parted.sort_unstable();
                let parted = parted.into_iter().map(|own| (factor, own));
                sum.parted.extend(parted);
            }
            Number::Count(own) => {
                let by = match measure {
                    Measure::Fractions(by) => *by,
                    _ => 0,
                };
                let traces = self.traces_of(own, values, Taken::Counted(by), measure);
                let traces = traces.into_iter();
                sum.terms.extend(traces.map(|(trace, _)| (factor, trace)));
            }
            Number::Value(own) => {
                let traces = self.traces_of(own, values, taken, measure);
                let traces = traces.into_iter().map(|(trace, _)| trace);
                sum.values.push((factor, traces.collect()));
            }
            Number::Times(..) | Number::Plus(_) => {}
        }
        true
    }

    /// A comparison with messages in it that several received a part of. Each has
    /// arrived where the last of them has its part, so that what is on its way is the
    /// most that any choice of one receipt for each leaves.
    fn arrived(&mut self, linear: Linear, parted: &[(i64, Vec<usize>)]) -> Formula {
        if parted.is_empty() {
            return Formula::Compare(linear);
        }
        let ways = parted
            .iter()
            .fold(1usize, |ways, (_, parts)| ways.saturating_mul(parts.len()));
        if ways > WAYS_MAX {
            return self.unknown("too many of the messages were received in parts by several");
        }
        let (more, less): (Vec<_>, Vec<_>) = parted.iter().partition(|(factor, _)| *factor > 0);
        let with = |linear: &Linear, chosen: Vec<(i64, usize)>, rel: Rel| {
            let mut own = linear.clone();
            own.terms.extend(chosen);
            own.rel = rel;
            own
        };
        // At least: some choice of those that add, whichever of those that take away.
        let side = |rel: Rel, at_least: bool| {
            let outer = choices(&more).into_iter().map(|outer| {
                let inner = choices(&less).into_iter().map(|inner| {
                    let chosen = [outer.clone(), inner].concat();
                    Formula::Compare(with(&linear, chosen, rel))
                });
                match at_least {
                    true => Formula::All(inner.collect()),
                    false => Formula::Any(inner.collect()),
                }
            });
            match at_least {
                true => Formula::Any(outer.collect()),
                false => Formula::All(outer.collect()),
            }
        };
        match linear.rel {
            rel @ (Rel::More | Rel::AtLeast) => side(rel, true),
            rel @ (Rel::Less | Rel::AtMost) => side(rel, false),
            Rel::Equal => Formula::All(vec![side(Rel::AtLeast, true), side(Rel::AtMost, false)]),
            Rel::Unequal => Formula::Any(vec![side(Rel::More, true), side(Rel::Less, false)]),
        }
    }

    /// What may be so and may be not, and why that cannot be told.
    fn unknown(&mut self, why: &'static str) -> Formula {
        self.trouble.get_or_insert(why);
        let Some(owner) = self.owners.first().copied() else {
            return Formula::Const(false);
        };
        let mut trace = Trace::new(self.traces[0].process);
        trace.push(Change {
            at: At::default(),
            time: 0,
            value: Val::Unknown,
        });
        self.traces.push(trace);
        self.owners.push(owner);
        Formula::Is(self.traces.len() - 1, true)
    }
}

/// All ways to take one of each.
fn choices(lists: &[&(i64, Vec<usize>)]) -> Vec<Vec<(i64, usize)>> {
    let mut all: Vec<Vec<(i64, usize)>> = vec![Vec::new()];
    for (factor, list) in lists {
        all = all
            .iter()
            .flat_map(|own| {
                let each = list.iter();
                each.map(move |trace| [own.as_slice(), &[(*factor, *trace)]].concat())
            })
            .collect();
    }
    all
}
