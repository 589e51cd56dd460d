//! A pattern made ready for the events of one process, and for many of them.
//!
//! What is known of the process beforehand is decided beforehand; what is left
//! looks at the event's own bytes without copying them. [`Compiled::may_fit`]
//! tells from the number of a call alone which events need not be looked at.

use std::sync::OnceLock;

use causality::EventId;
use memchr::memmem;
use protocol::id::ProcessIx;
use protocol::syscall::Type;
use recording::render::Renderer;
use recording::{Event, Phase};
use regex::bytes::Regex;

use crate::matcher::{Matcher, Subject, in_order, moved};
use crate::pattern::*;

/// What a pattern captured, in the order of [`Pattern::captures`].
pub type Captured = Vec<Option<Vec<u8>>>;

/// A pattern for the events of one process.
pub struct Compiled {
    /// Whose events.
    place: ProcessIx,
    node: Node,
    names: Vec<String>,
    /// It asks what only the end of a call knows.
    needs_end: bool,
    /// It says itself which part of a call is meant.
    has_phase: bool,
}

enum Node {
    Const(bool),
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Types(u64),
    Contains(Box<memmem::Finder<'static>>),
    /// With groups and where their captures go.
    Fits(Regex, Vec<(usize, usize)>),
    Capture(Field, usize),
    Call(u64),
    /// How many bytes it moved.
    Length(Operator, i64),
    /// What it returned.
    Result(Operator, i64),
    Slow(Condition),
}

impl Node {
    /// How much asking it costs, roughly.
    fn cost(&self) -> u32 {
        match self {
            Node::Const(_) | Node::Types(_) | Node::Call(_) => 0,
            Node::Length(..) | Node::Result(..) => 1,
            Node::Contains(_) => 2,
            // What captures may be among these.
            Node::All(_) | Node::Any(_) | Node::Not(_) => 3,
            Node::Fits(..) | Node::Capture(..) | Node::Slow(_) => 3,
        }
    }
}

fn is_order(operator: Operator) -> bool {
    !matches!(
        operator,
        Operator::Unequal | Operator::Unlike | Operator::Like
    )
}

pub(crate) fn bit(kind: Type) -> u64 {
    1 << (kind as u32 % 64)
}

/// All types that events with this number of a call can have.
fn types_of_call(nr: u64) -> u64 {
    const CLONE: u64 = 56;
    const FUTEX: u64 = 202;
    let own = protocol::table::TABLE
        .iter()
        .filter(|row| u64::from(row.nr) == nr)
        .fold(0, |mask, row| mask | bit(row.kind));
    let own = match own {
        0 => bit(Type::System),
        own => own,
    };
    match nr {
        CLONE => own | bit(Type::Thread),
        FUTEX => own | bit(Type::Lock) | bit(Type::Wake),
        // What leads to a file reads and writes it.
        _ if own & (bit(Type::Send) | bit(Type::Recv)) != 0 => own | bit(Type::File),
        _ => own,
    }
}

/// [`types_of_call`], from a table for the numbers that are: it is asked for every pattern in
/// every process.
pub(crate) fn known_types(nr: u64) -> u64 {
    const CALLS: u64 = 512;
    static KNOWN: OnceLock<Vec<u64>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| (0..CALLS).map(types_of_call).collect());
    let own = usize::try_from(nr).ok().and_then(|nr| known.get(nr));
    own.copied().unwrap_or_else(|| types_of_call(nr))
}

/// What others can see of a call before it returns: such a call has happened
/// when it starts. All others have when they end.
fn acts_at_start(kind: Type) -> bool {
    starting_types() & bit(kind) != 0
}

/// All types of such calls.
pub(crate) fn starting_types() -> u64 {
    bit(Type::Send)
        | bit(Type::Connect)
        | bit(Type::Wake)
        | bit(Type::Fork)
        | bit(Type::Exec)
        | bit(Type::Exit)
}

impl Compiled {
    /// For the events of the process at this place.
    pub fn new(pattern: &Pattern, matcher: &Matcher<'_>, place: ProcessIx) -> Compiled {
        let names = pattern.captures();
        let mut compiled = Compiled {
            place,
            node: Node::Const(false),
            needs_end: false,
            has_phase: false,
            names,
        };
        compiled.node = compiled.compile(pattern, matcher, place);
        compiled
    }

    fn slot(&self, name: &str) -> usize {
        self.names.iter().position(|own| own == name).unwrap_or(0)
    }

    fn compile(&mut self, pattern: &Pattern, matcher: &Matcher<'_>, place: ProcessIx) -> Node {
        match pattern {
            Pattern::And(a, b) => {
                let parts = [a, b].map(|part| self.compile(part, matcher, place));
                if parts.iter().any(|part| matches!(part, Node::Const(false))) {
                    return Node::Const(false);
                }
                let mut list = Vec::new();
                for part in parts {
                    match part {
                        Node::Const(_) => {}
                        Node::All(more) => list.extend(more),
                        part => list.push(part),
                    }
                }
                // What costs least is asked first; what captures stays in its order.
                list.sort_by_key(Node::cost);
                match list.len() {
                    0 => Node::Const(true),
                    _ => Node::All(list),
                }
            }
            Pattern::Or(a, b) => {
                let parts = [a, b].map(|part| self.compile(part, matcher, place));
                let mut list = Vec::new();
                for part in parts {
                    match part {
                        Node::Const(false) => {}
                        Node::Any(more) => list.extend(more),
                        part => list.push(part),
                    }
                }
                match list.len() {
                    0 => Node::Const(false),
                    _ => Node::Any(list),
                }
            }
            Pattern::Not(inner) => match self.compile(inner, matcher, place) {
                Node::Const(value) => Node::Const(!value),
                node => Node::Not(Box::new(node)),
            },
            Pattern::Is(condition) => self.condition(condition, matcher, place),
        }
    }

    fn condition(
        &mut self,
        condition: &Condition,
        matcher: &Matcher<'_>,
        place: ProcessIx,
    ) -> Node {
        match condition {
            Condition::Types(types) => {
                Node::Types(types.iter().fold(0, |mask, kind| mask | bit(*kind)))
            }
            Condition::Call(name) => match protocol::table::by_name(name) {
                Some(row) => Node::Call(row.nr.into()),
                None => Node::Slow(condition.clone()),
            },
            Condition::Failed => {
                self.needs_end = true;
                Node::Slow(condition.clone())
            }
            Condition::Field(Field::Process, operator, value) => {
                Node::Const(matcher.process_fits(place, *operator, value))
            }
            Condition::Field(Field::Bytes, Operator::Like, Value::Text(text)) => {
                Node::Contains(Box::new(memmem::Finder::new(text).into_owned()))
            }
            Condition::Field(Field::Bytes, Operator::Like, Value::Regex(regex)) => {
                let names = regex.capture_names().enumerate();
                let groups = names
                    .filter_map(|(group, name)| Some((group, self.slot(name?))))
                    .collect();
                Node::Fits(regex.clone(), groups)
            }
            Condition::Field(Field::Length, operator, Value::Number(number))
                if is_order(*operator) =>
            {
                Node::Length(*operator, *number)
            }
            Condition::Field(Field::Result, operator, Value::Number(number))
                if is_order(*operator) =>
            {
                self.needs_end = true;
                Node::Result(*operator, *number)
            }
            Condition::Field(field, ..) => {
                self.needs_end |= matches!(field, Field::Result | Field::Error);
                self.has_phase |= matches!(field, Field::Phase);
                Node::Slow(condition.clone())
            }
            Condition::Capture(field, name) => {
                self.needs_end |= matches!(field, Field::Result | Field::Error);
                Node::Capture(field.clone(), self.slot(name))
            }
            Condition::Outside | Condition::Linked => Node::Slow(condition.clone()),
        }
    }

    /// Whether no event of the process fits, whatever it is.
    pub fn is_never(&self) -> bool {
        matches!(self.node, Node::Const(false))
    }

    /// Whether some event that is this part of this call may fit and
    /// [happen](Compiled::happens); of what is no call, without a number.
    pub fn may_fit(&self, nr: Option<u64>, phase: Phase) -> bool {
        fn may(node: &Node, nr: Option<u64>, types: u64) -> bool {
            match node {
                Node::Const(value) => *value,
                Node::All(list) => list.iter().all(|node| may(node, nr, types)),
                Node::Any(list) => list.iter().any(|node| may(node, nr, types)),
                Node::Types(own) => own & types != 0,
                Node::Call(own) => nr == Some(*own),
                Node::Contains(_) | Node::Fits(..) | Node::Length(..) => {
                    let data = bit(Type::Send) | bit(Type::Recv) | bit(Type::File);
                    types & data != 0
                }
                Node::Not(_) | Node::Capture(..) | Node::Result(..) | Node::Slow(_) => true,
            }
        }
        let types = nr.map_or(u64::MAX, known_types);
        let types = match phase {
            _ if self.has_phase => types,
            Phase::Start if self.needs_end => 0,
            Phase::Start => types & starting_types(),
            Phase::End if !self.needs_end => types & !starting_types(),
            Phase::End | Phase::Call | Phase::None => types,
        };
        types != 0 && may(&self.node, nr, types)
    }

    /// Whether an event fits, as one that happened: of a call that is two
    /// events, the one at which it did. `kind` is what the renderer says it is, which is
    /// asked once for all patterns. What was captured is put into `captured`, which has
    /// room for all names.
    pub fn happens(
        &self,
        matcher: &Matcher<'_>,
        event: &Event<'_>,
        renderer: &Renderer<'_>,
        kind: Type,
        captured: &mut Captured,
    ) -> bool {
        let at_start = acts_at_start(kind) && !self.needs_end;
        let counts = match event.phase {
            Phase::Start => at_start,
            Phase::End => !at_start,
            Phase::Call | Phase::None => true,
        };
        if !counts && !self.has_phase {
            return false;
        }
        captured.clear();
        captured.resize(self.names.len(), None);
        let looked = Looked {
            matcher,
            id: EventId::new(self.place, event.number),
            event,
            renderer,
            kind,
        };
        looked.fits(&self.node, captured)
    }
}

struct Looked<'s, 'h> {
    matcher: &'s Matcher<'h>,
    id: EventId,
    event: &'s Event<'s>,
    renderer: &'s Renderer<'s>,
    kind: Type,
}

impl<'s, 'h> Looked<'s, 'h> {
    /// For what is seldom asked.
    fn subject(&self) -> Subject<'s, 'h> {
        self.matcher.subject(self.id, self.event, self.renderer)
    }

    fn texts(&self, field: &Field) -> Vec<Vec<u8>> {
        self.subject().texts(field)
    }

    fn data(&self) -> Option<&[u8]> {
        let event = self.event;
        let carries = matches!(self.kind, Type::Send | Type::Recv | Type::File);
        (carries && event.is_call() && event.args_known)
            .then(|| event.argument(1).map(|data| data.bytes))?
    }

    fn fits(&self, node: &Node, captured: &mut Captured) -> bool {
        match node {
            Node::Const(value) => *value,
            Node::All(list) => list.iter().all(|node| self.fits(node, captured)),
            Node::Any(list) => list.iter().any(|node| self.fits(node, captured)),
            Node::Not(node) => {
                // What is not there has nothing to capture.
                let mut nothing = vec![None; captured.len()];
                !self.fits(node, &mut nothing)
            }
            Node::Types(types) => types & bit(self.kind) != 0,
            Node::Contains(text) => self.data().is_some_and(|data| text.find(data).is_some()),
            Node::Fits(regex, groups) if groups.is_empty() => {
                self.data().is_some_and(|data| regex.is_match(data))
            }
            Node::Fits(regex, groups) => {
                let Some(found) = self.data().and_then(|data| regex.captures(data)) else {
                    return false;
                };
                for (group, slot) in groups {
                    if let (Some(text), Some(place)) = (found.get(*group), captured.get_mut(*slot))
                    {
                        *place = Some(text.as_bytes().to_vec());
                    }
                }
                true
            }
            Node::Capture(field, slot) => match self.texts(field).into_iter().next() {
                Some(text) => {
                    if let Some(place) = captured.get_mut(*slot) {
                        *place = Some(text);
                    }
                    true
                }
                None => false,
            },
            Node::Call(nr) => self.event.is_call() && self.event.nr == *nr,
            Node::Length(operator, wanted) => {
                let own = moved(self.event, self.kind);
                own.is_some_and(|own| in_order(own, *operator, *wanted))
            }
            Node::Result(operator, wanted) => {
                let own = self.event.result;
                own.is_some_and(|own| in_order(own, *operator, *wanted))
            }
            Node::Slow(Condition::Field(_, Operator::Like, Value::Regex(regex)))
                if regex.capture_names().flatten().next().is_some() =>
            {
                self.slow_groups(node, regex, captured)
            }
            Node::Slow(condition) => self.subject().is(condition),
        }
    }

    /// A regular expression with groups, of a field other than the data.
    fn slow_groups(&self, node: &Node, regex: &Regex, captured: &mut Captured) -> bool {
        let Node::Slow(Condition::Field(field, ..)) = node else {
            return false;
        };
        let texts = self.texts(field);
        let Some(found) = texts.iter().find_map(|text| regex.captures(text)) else {
            return false;
        };
        // Few patterns have them: names are looked up as they come.
        for name in regex.capture_names().flatten() {
            let slot = self.matcher.slot(name);
            if let (Some(text), Some(place)) = (found.name(name), captured.get_mut(slot)) {
                *place = Some(text.as_bytes().to_vec());
            }
        }
        true
    }
}
