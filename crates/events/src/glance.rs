//! Whether an event may fit a pattern, as far as the event tells by itself: nothing is known
//! of what its descriptors lead to or of what it caused.
//!
//! Who watches a log that grows asks this of what is new in it, to see whether it is worth
//! looking at the whole again; and who stands before a call asks it of what is about to
//! happen.

use protocol::syscall::Type;
use recording::{Event, Phase};

use crate::compiled::{bit, known_types, starting_types};
use crate::matcher::glob;
use crate::pattern::*;

/// What can be told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fits {
    No,
    Perhaps,
    Yes,
}

impl Fits {
    fn of(truth: bool) -> Fits {
        match truth {
            true => Fits::Yes,
            false => Fits::No,
        }
    }

    fn not(self) -> Fits {
        match self {
            Fits::No => Fits::Yes,
            Fits::Perhaps => Fits::Perhaps,
            Fits::Yes => Fits::No,
        }
    }
}

/// The bytes that an event carries.
#[derive(Clone, Copy)]
enum Carried<'e> {
    Unknown,
    Nothing,
    Bytes(&'e [u8]),
}

/// What is known of an event by itself.
struct Glimpse<'e> {
    /// All that its process answers to.
    names: &'e [&'e str],
    /// The call, if it is one.
    nr: Option<u64>,
    /// All types that it may have.
    types: u64,
    carried: Carried<'e>,
}

/// Whether an event of a process that answers to these names (`Set::names_of`) may fit a
/// pattern. If it is said that it does not, it does not.
pub fn may_fit(pattern: &Pattern, names: &[&str], event: &Event<'_>) -> bool {
    let all = match event.is_call() {
        true => known_types(event.nr),
        false => bit(event.type_()),
    };
    // Of a call that is two events one is meant, unless the pattern says which.
    let types = match event.phase {
        Phase::Start if is_plain(pattern) => all & starting_types(),
        Phase::End if is_plain(pattern) => all & !starting_types(),
        _ => all,
    };
    let carried = match event.argument(1) {
        _ if event.is_call() && !event.args_known => Carried::Unknown,
        Some(data) if event.is_call() => Carried::Bytes(data.bytes),
        _ => Carried::Nothing,
    };
    let glimpse = Glimpse {
        names,
        nr: event.is_call().then_some(event.nr),
        types,
        carried,
    };
    types != 0 && glimpse.judge(pattern) != Fits::No
}

/// A call that is about to be made.
pub struct Attempt<'e> {
    /// Of the process, and of its program.
    pub names: [&'e str; 2],
    /// The call.
    pub nr: u64,
    /// What it is about to send, if it is.
    pub bytes: Option<&'e [u8]>,
    /// Its descriptor leads to a file.
    pub is_file: bool,
}

/// Whether a call that is about to be made may become an event that fits a pattern, as far
/// as that can be told before.
pub fn may_become(pattern: &Pattern, attempt: &Attempt<'_>) -> bool {
    let file = bit(Type::File);
    let types = known_types(attempt.nr);
    let types = match attempt.is_file {
        true if types & file != 0 => file,
        true => types,
        false => types & !file,
    };
    let glimpse = Glimpse {
        names: &attempt.names,
        nr: Some(attempt.nr),
        types,
        carried: match attempt.bytes {
            Some(bytes) => Carried::Bytes(bytes),
            None => Carried::Unknown,
        },
    };
    types != 0 && glimpse.judge(pattern) != Fits::No
}

/// The calls of which some may become events that fit a pattern.
pub fn calls_of(pattern: &Pattern) -> Vec<u64> {
    let may = |nr: &u64| {
        let glimpse = Glimpse {
            names: &[],
            nr: Some(*nr),
            types: known_types(*nr),
            carried: Carried::Unknown,
        };
        glimpse.judge(&anywhere(pattern)) != Fits::No
    };
    let rows = protocol::table::TABLE.iter();
    let mut all: Vec<u64> = rows.map(|row| u64::from(row.nr)).filter(may).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A pattern without what it says of processes: any may come yet.
fn anywhere(pattern: &Pattern) -> Pattern {
    match pattern {
        Pattern::And(a, b) => Pattern::And(Box::new(anywhere(a)), Box::new(anywhere(b))),
        Pattern::Or(a, b) => Pattern::Or(Box::new(anywhere(a)), Box::new(anywhere(b))),
        Pattern::Not(inner) => Pattern::Not(Box::new(anywhere(inner))),
        // What it leads to is not known, so it may be anything.
        Pattern::Is(Condition::Field(Field::Process, ..)) => Pattern::Is(Condition::Linked),
        own => own.clone(),
    }
}

/// Whether it depends on the type alone which of two events is meant.
fn is_plain(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::And(a, b) | Pattern::Or(a, b) => is_plain(a) && is_plain(b),
        Pattern::Not(inner) => is_plain(inner),
        Pattern::Is(Condition::Types(_) | Condition::Call(_)) => true,
        Pattern::Is(Condition::Field(field, ..) | Condition::Capture(field, _)) => {
            matches!(
                field,
                Field::Process | Field::Thread | Field::Bytes | Field::Type | Field::Call
            )
        }
        Pattern::Is(_) => false,
    }
}

impl Glimpse<'_> {
    fn judge(&self, pattern: &Pattern) -> Fits {
        match pattern {
            Pattern::And(a, b) => self.judge(a).min(self.judge(b)),
            Pattern::Or(a, b) => self.judge(a).max(self.judge(b)),
            Pattern::Not(inner) => self.judge(inner).not(),
            Pattern::Is(condition) => self.is(condition),
        }
    }

    fn is(&self, condition: &Condition) -> Fits {
        match condition {
            Condition::Types(wanted) => {
                let wanted = wanted.iter().fold(0, |mask, kind| mask | bit(*kind));
                match (self.types & wanted != 0, self.types & !wanted != 0) {
                    (true, false) => Fits::Yes,
                    (true, true) => Fits::Perhaps,
                    (false, _) => Fits::No,
                }
            }
            Condition::Call(name) => {
                let row = self.nr.and_then(protocol::table::syscall);
                row.map_or(Fits::Perhaps, |row| Fits::of(row.name == *name))
            }
            Condition::Field(Field::Process, operator, Value::Text(text)) => {
                let equals = |own: &&str| glob(text, own.as_bytes());
                let contains = |own: &&str| memchr::memmem::find(own.as_bytes(), text).is_some();
                match operator {
                    Operator::Equal => Fits::of(self.names.iter().any(equals)),
                    Operator::Unequal => Fits::of(!self.names.iter().any(equals)),
                    Operator::Like => Fits::of(self.names.iter().any(contains)),
                    Operator::Unlike => Fits::of(!self.names.iter().any(contains)),
                    _ => Fits::Perhaps,
                }
            }
            Condition::Field(Field::Bytes, operator, value) => self.bytes_fit(*operator, value),
            _ => Fits::Perhaps,
        }
    }

    fn bytes_fit(&self, operator: Operator, value: &Value) -> Fits {
        let data = bit(Type::Send) | bit(Type::Recv) | bit(Type::File);
        let has = match (self.carried, value) {
            _ if self.types & data == 0 => Fits::No,
            (Carried::Unknown, _) => Fits::Perhaps,
            (Carried::Nothing, _) => Fits::No,
            (Carried::Bytes(own), Value::Text(text)) => {
                Fits::of(memchr::memmem::find(own, text).is_some())
            }
            (Carried::Bytes(own), Value::Regex(regex)) => Fits::of(regex.is_match(own)),
            _ => Fits::Perhaps,
        };
        match operator {
            Operator::Like => has,
            Operator::Unlike => has.not(),
            _ => Fits::Perhaps,
        }
    }
}
