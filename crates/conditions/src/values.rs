//! What states can be, and how that becomes the whole numbers that engines compare.
//!
//! A variable may be a whole number, a number with a fraction, or a text. Engines know
//! whole numbers alone: their order, and their sums. So a comparison is *measured*
//! before it is asked. Two values that are compared with each other are ranked: all
//! that either can be, in order, so that ranks compare as the values do. Where numbers
//! are added, each is taken as so many of the smallest fraction that any of them has:
//! numbers of a computer are exact in that, and so is what is said of their sum. What
//! has no such measure is unknown, and says why.

use std::rc::Rc;

use crate::engine::Sym;
use crate::engine::relation::Rel;
use crate::engine::trace::{Change, Trace, Val};
use crate::source::Symbols;

/// A number with a fraction. Not a number is none: that is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Real(u64);

impl Real {
    /// `None` if it is not a number. Both zeros are the same.
    pub fn new(number: f64) -> Option<Real> {
        (!number.is_nan()).then(|| Real((number + 0.0).to_bits()))
    }

    /// The number.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// What a state is at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Value {
    /// The process is not there, or nothing is known of it yet because there
    /// is nothing to know.
    #[default]
    Absent,
    /// This. What is only true or false is 1 or 0.
    Int(i64),
    /// A whole number beyond those.
    Large(u64),
    /// A number with a fraction.
    Real(Real),
    /// A text, by its number in the table of texts.
    Text(Sym),
    /// It is something, and cannot be told.
    Unknown,
}

impl Value {
    /// A whole number.
    pub fn whole(number: i128) -> Value {
        match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => Value::Int(number),
            (_, Ok(number)) => Value::Large(number),
            _ => Value::Unknown,
        }
    }

    /// A number with a fraction.
    pub fn real(number: f64) -> Value {
        Real::new(number).map_or(Value::Unknown, Value::Real)
    }

    /// As it is shown; nothing, where there is nothing.
    pub fn words(self, symbols: &Symbols) -> Option<String> {
        match self {
            Value::Absent => None,
            Value::Int(number) => Some(number.to_string()),
            Value::Large(number) => Some(number.to_string()),
            Value::Real(number) => Some(format!("{:?}", number.get())),
            Value::Text(text) => Some(format!("{:?}", symbols.text(text))),
            Value::Unknown => Some("unknown".to_string()),
        }
    }

    fn number(self) -> Option<i128> {
        match self {
            Value::Int(number) => Some(number.into()),
            Value::Large(number) => Some(number.into()),
            _ => None,
        }
    }

    /// As what is true or false.
    pub fn truth(self) -> Val {
        match self {
            Value::Absent => Val::Absent,
            Value::Real(number) => Val::Int((number.get() != 0.0).into()),
            Value::Text(_) | Value::Unknown => Val::Unknown,
            whole => whole.number().map_or(Val::Unknown, Val::Int),
        }
    }
}

/// A value that is written in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// A whole number.
    Int(i128),
    /// A number with a fraction.
    Real(Real),
    /// A text.
    Text(Rc<str>),
}

/// A number, or a text, as it is ordered: whole part and fraction, exactly. Numbers
/// are before texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The whole part, and the bits of the fraction.
    Number(i128, u64),
    /// The bytes.
    Text(Rc<[u8]>),
}

/// Whole parts of numbers that are ordered exactly end here; what is beyond has no
/// fraction, and is ordered by its bits.
const BEYOND: i128 = 1 << 126;

impl Key {
    fn real(number: Real) -> Key {
        let number = number.get();
        let whole = number.floor();
        // No f64 of less than that is rounded by the conversion.
        if whole.abs() < BEYOND as f64 {
            // The difference is exact, and not negative: its bits are in its order.
            return Key::Number(whole as i128, (number - whole).to_bits());
        }
        let bits = i128::from(number.abs().to_bits());
        match number < 0.0 {
            true => Key::Number(-BEYOND - bits, 0),
            false => Key::Number(BEYOND + bits, 0),
        }
    }

    fn of(value: Value, symbols: &Symbols) -> Option<Key> {
        match value {
            Value::Absent | Value::Unknown => None,
            Value::Real(number) => Some(Key::real(number)),
            Value::Text(text) => Some(Key::Text(symbols.bytes(text))),
            whole => whole.number().map(|number| Key::Number(number, 0)),
        }
    }

    fn literal(literal: &Literal) -> Key {
        match literal {
            Literal::Int(number) => Key::Number(*number, 0),
            Literal::Real(number) => Key::real(*number),
            Literal::Text(text) => Key::Text(text.as_bytes().into()),
        }
    }
}

/// How the values of one comparison become whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// They are.
    Whole,
    /// As so many of this power of two, to be divided by.
    Fractions(u32),
    /// By their place among all of them. Where texts are asked to be before or behind
    /// others, numbers are not.
    Ranked {
        /// All, in order.
        keys: Rc<[Key]>,
        /// Numbers are unknown among texts.
        only_texts: bool,
    },
    /// Not at all, and why.
    None(&'static str),
}

/// Texts cannot be added.
const NO_SUM: &str = "texts can be compared with each other, and neither counted in nor added";
/// What is added is too far apart.
const TOO_WIDE: &str = "the numbers are too far apart to be added exactly";

/// What is compared: values over runs and literals, each with what it is multiplied by.
#[derive(Debug, Default)]
pub struct Compared<'c> {
    /// Values over runs.
    pub traces: Vec<(i64, &'c Trace<Value>)>,
    /// Literals.
    pub literals: Vec<(i64, &'c Literal)>,
    /// The most that each count in it comes to.
    pub counted: Vec<i64>,
    /// There is one value or literal on either side, and nothing else.
    pub is_pair: bool,
}

/// The exponent of the last bit of a number, and of the first; 0 has none.
fn extent(number: f64) -> Option<(i32, i32)> {
    if number == 0.0 {
        return None;
    }
    let bits = number.abs().to_bits();
    let (exponent, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    let (mantissa, lowest) = match exponent {
        0 => (fraction, -1074),
        _ => (fraction | 1 << 52, exponent - 1075),
    };
    let last = lowest + mantissa.trailing_zeros() as i32;
    Some((last, lowest + 64 - mantissa.leading_zeros() as i32))
}

impl Compared<'_> {
    fn values(&self) -> impl Iterator<Item = Value> + '_ {
        let traces = self.traces.iter();
        traces.flat_map(|(_, trace)| trace.changes.iter().map(|change| change.value))
    }

    /// How this is measured.
    pub fn measure(&self, rel: Rel, symbols: &Symbols) -> Measure {
        let (mut texts, mut reals) = (false, false);
        let mut numbers = false;
        for value in self.values() {
            texts |= matches!(value, Value::Text(_));
            reals |= matches!(value, Value::Real(_));
            numbers |= matches!(value, Value::Int(_) | Value::Large(_) | Value::Real(_));
        }
        for (_, literal) in &self.literals {
            texts |= matches!(literal, Literal::Text(_));
            reals |= matches!(literal, Literal::Real(_));
            numbers |= !matches!(literal, Literal::Text(_));
        }
        if !texts && !reals {
            return Measure::Whole;
        }
        if self.is_pair {
            let of_values = self.values().filter_map(|value| Key::of(value, symbols));
            let literals = self.literals.iter();
            let literals = literals.map(|(_, literal)| Key::literal(literal));
            let mut keys: Vec<Key> = of_values.chain(literals).collect();
            keys.sort_unstable();
            keys.dedup();
            let equality = matches!(rel, Rel::Equal | Rel::Unequal);
            return Measure::Ranked {
                keys: keys.into(),
                only_texts: texts && numbers && !equality,
            };
        }
        if texts {
            return Measure::None(NO_SUM);
        }
        self.fractions()
    }

    /// The smallest fraction that any of the numbers has, if all of them and their sum
    /// are so many of it.
    fn fractions(&self) -> Measure {
        let (mut last, mut first) = (0, 0);
        let mut take = |factor: i64, number: f64| {
            if let Some((from, to)) = extent(number) {
                last = last.min(from);
                first = first.max(to + 64 - factor.unsigned_abs().leading_zeros() as i32);
            }
        };
        for (factor, trace) in &self.traces {
            for change in &trace.changes {
                match change.value {
                    Value::Real(number) if number.get().is_infinite() => {
                        return Measure::None(TOO_WIDE);
                    }
                    Value::Real(number) => take(*factor, number.get()),
                    whole => {
                        whole
                            .number()
                            .inspect(|number| take(*factor, *number as f64));
                    }
                }
            }
        }
        for (factor, literal) in &self.literals {
            match literal {
                Literal::Real(number) => take(*factor, number.get()),
                Literal::Int(number) => take(*factor, *number as f64),
                Literal::Text(_) => {}
            }
        }
        for most in &self.counted {
            take(*most, 1.0);
        }
        let terms = self.traces.len() + self.literals.len() + self.counted.len();
        let carry = usize::BITS as i32 - terms.leading_zeros() as i32;
        match first - last + carry < 126 {
            true => Measure::Fractions(last.unsigned_abs()),
            false => Measure::None(TOO_WIDE),
        }
    }
}

/// So many of a fraction; the number has no smaller one.
fn scaled(number: f64, fraction: u32) -> i128 {
    // The mantissa first: a number that is multiplied by the whole may overflow.
    let Some((last, _)) = extent(number) else {
        return 0;
    };
    let mantissa = number * 2f64.powi(-last / 2) * 2f64.powi(-last - -last / 2);
    (mantissa as i128) << (last + fraction as i32).clamp(0, 126)
}

impl Measure {
    /// Why nothing can be said, if that is so.
    pub fn trouble(&self) -> Option<&'static str> {
        match self {
            Measure::None(why) => Some(why),
            _ => None,
        }
    }

    fn rank(keys: &[Key], only_texts: bool, key: &Key) -> Val {
        if only_texts && matches!(key, Key::Number(..)) {
            return Val::Unknown;
        }
        keys.binary_search(key)
            .map_or(Val::Unknown, |rank| Val::Int(rank as i128))
    }

    /// A value, measured.
    pub fn value(&self, value: Value, symbols: &Symbols) -> Val {
        match (self, value) {
            (_, Value::Absent) => Val::Absent,
            (_, Value::Unknown) | (Measure::None(_), _) => Val::Unknown,
            (Measure::Whole, value) => value.number().map_or(Val::Unknown, Val::Int),
            (Measure::Fractions(_), Value::Text(_)) => Val::Unknown,
            (Measure::Fractions(by), Value::Real(number)) => Val::Int(scaled(number.get(), *by)),
            (Measure::Fractions(by), value) => match value.number() {
                Some(number) => Val::Int(number << by),
                None => Val::Unknown,
            },
            (Measure::Ranked { keys, only_texts }, value) => match Key::of(value, symbols) {
                Some(key) => Measure::rank(keys, *only_texts, &key),
                None => Val::Unknown,
            },
        }
    }

    /// A literal, measured; nothing, if it has no measure.
    pub fn literal(&self, literal: &Literal) -> Option<i128> {
        match (self, literal) {
            (Measure::None(_), _) => None,
            (Measure::Ranked { keys, only_texts }, literal) => {
                match Measure::rank(keys, *only_texts, &Key::literal(literal)) {
                    Val::Int(rank) => Some(rank),
                    _ => None,
                }
            }
            (Measure::Whole, Literal::Int(number)) => Some(*number),
            (Measure::Fractions(by), Literal::Int(number)) => Some(number << by),
            (Measure::Fractions(by), Literal::Real(number)) => Some(scaled(number.get(), *by)),
            _ => None,
        }
    }

    /// A value over a run, measured.
    pub fn trace(&self, trace: &Trace<Value>, symbols: &Symbols) -> Trace {
        mapped(trace, |value| self.value(value, symbols))
    }
}

/// A value over a run, as another.
pub fn mapped(trace: &Trace<Value>, into: impl Fn(Value) -> Val) -> Trace {
    let changes = trace.changes.iter().map(|change| Change {
        at: change.at,
        time: change.time,
        value: into(change.value),
    });
    Trace {
        process: trace.process,
        changes: changes.collect(),
    }
}
