//! Which events of a recording a pattern fits.
//!
//! Who walks through a log anyway has a [`Renderer`] follow what descriptors
//! lead to, which is fast; one event can also be asked about by itself, as the
//! index knows that too.

use causality::{EventId, History};
use protocol::id::ProcessIx;
use protocol::names::errno_name;
use protocol::syscall::Type;
use recording::render::{Limits, Renderer};
use recording::{Event, ThreadNames};

use crate::pattern::*;

/// Tells whether events fit a pattern.
pub struct Matcher<'h> {
    pattern: Pattern,
    history: &'h History,
    members: Vec<Member<'h>>,
}

/// What it takes to read the events of one member.
struct Member<'h> {
    names: ThreadNames,
    /// Decodes arguments.
    renderer: Renderer<'h>,
}

impl<'h> Matcher<'h> {
    /// For the events of a history whose threads are called so.
    pub fn new(pattern: Pattern, history: &'h History, names: &ThreadNames) -> Matcher<'h> {
        let members = history.set().members().zip(0u16..);
        let members = members.map(|(recording, number)| {
            let names = names.member(number);
            Member {
                renderer: Renderer::new(recording, &names, Limits::default()),
                names,
            }
        });
        Matcher {
            pattern,
            history,
            members: members.collect(),
        }
    }

    fn member_of(&self, id: EventId) -> Option<&Member<'h>> {
        let number = self.history.set().member_of(id.process)?;
        self.members.get(usize::from(number))
    }

    /// Whether an event fits. The renderer must have been shown the events
    /// before it (see [`Renderer::before`]).
    pub fn fits(&self, event: &Event<'_>, renderer: &Renderer<'_>) -> bool {
        let id = self.history.event_id(event);
        id.is_some_and(|id| self.fits_as(id, event, renderer))
    }

    /// Whether an event of any member fits, as [`Matcher::fits`] says it of one
    /// of the first; the renderer is its member's.
    pub fn fits_as(&self, id: EventId, event: &Event<'_>, renderer: &Renderer<'_>) -> bool {
        self.subject(id, event, renderer).fits(&self.pattern)
    }

    /// Whether an event fits, which is read from its log, and nothing before it;
    /// `None` if there is no such event.
    pub fn fits_at(&self, id: EventId) -> Option<bool> {
        self.history.look(id, |event| {
            let subject = Subject {
                matcher: self,
                event,
                walked: None,
                id,
            };
            subject.fits(&self.pattern)
        })
    }

    pub(crate) fn subject<'s>(
        &'s self,
        id: EventId,
        event: &'s Event<'s>,
        renderer: &'s Renderer<'s>,
    ) -> Subject<'s, 'h> {
        Subject {
            matcher: self,
            event,
            walked: Some(renderer),
            id,
        }
    }

    /// Where the capture of this name stands among the pattern's.
    pub(crate) fn slot(&self, name: &str) -> usize {
        let names = self.pattern.captures();
        names
            .iter()
            .position(|own| own == name)
            .unwrap_or(usize::MAX)
    }

    /// Whether the name of the process at a place, or of its program, compares
    /// like this.
    pub(crate) fn process_fits(&self, place: ProcessIx, operator: Operator, value: &Value) -> bool {
        let names = self.history.set().names_of(place);
        if names.is_empty() {
            return false;
        }
        let fits = |operator| {
            let mut names = names.iter().map(String::as_bytes);
            names.any(|own| match (operator, value) {
                (Operator::Equal, Value::Text(wanted)) => glob(wanted, own),
                (_, Value::Text(wanted)) => memchr::memmem::find(own, wanted).is_some(),
                (_, Value::Regex(regex)) => regex.is_match(own),
                (_, Value::Number(_)) => false,
            })
        };
        match operator {
            Operator::Unequal => !fits(Operator::Equal),
            Operator::Unlike => !fits(Operator::Like),
            operator => fits(operator),
        }
    }
}

pub(crate) struct Subject<'s, 'h> {
    pub(crate) matcher: &'s Matcher<'h>,
    pub(crate) event: &'s Event<'s>,
    /// What has been shown the events before it; without it, the index is asked.
    walked: Option<&'s Renderer<'s>>,
    id: EventId,
}

impl Subject<'_, '_> {
    fn fits(&self, pattern: &Pattern) -> bool {
        match pattern {
            Pattern::And(a, b) => self.fits(a) && self.fits(b),
            Pattern::Or(a, b) => self.fits(a) || self.fits(b),
            Pattern::Not(a) => !self.fits(a),
            Pattern::Is(condition) => self.is(condition),
        }
    }

    fn kind(&self) -> Type {
        match self.walked {
            Some(renderer) => renderer.type_of(self.event),
            None => self.matcher.history.type_of(self.id, self.event),
        }
    }

    pub(crate) fn is(&self, condition: &Condition) -> bool {
        let history = self.matcher.history;
        match condition {
            Condition::Types(types) => types.contains(&self.kind()),
            Condition::Call(name) => self.event.name() == *name,
            Condition::Failed => self.event.failed(),
            Condition::Outside => history.uses(self.id).iter().any(|used| {
                history.channel(used.channel).is_some_and(|channel| {
                    if used.receives {
                        channel.is_from_outside()
                    } else {
                        channel.is_to_outside()
                    }
                })
            }),
            Condition::Linked => self.peers().iter().any(|peer| *peer != self.id.process),
            Condition::Field(field, operator, value) => self.compare(field, *operator, value),
            Condition::Capture(field, _) => !self.texts(field).is_empty(),
        }
    }

    /// The processes that links lead to or come from.
    fn peers(&self) -> Vec<ProcessIx> {
        let history = self.matcher.history;
        let causes = history.causes(self.id).into_iter().map(|l| l.cause.process);
        let effects = history
            .effects(self.id)
            .into_iter()
            .map(|l| l.effect.process);
        causes.chain(effects).collect()
    }

    fn process_words(&self, process: ProcessIx) -> Vec<Vec<u8>> {
        let names = self.matcher.history.set().names_of(process);
        names.into_iter().map(String::into_bytes).collect()
    }

    /// Some value of the field compares so; for `!=` and `!~`, none does not.
    fn compare(&self, field: &Field, operator: Operator, value: &Value) -> bool {
        let negated = match operator {
            Operator::Unequal => Some(Operator::Equal),
            Operator::Unlike => Some(Operator::Like),
            _ => None,
        };
        if let Some(positive) = negated {
            return !self.compare(field, positive, value);
        }
        if let Value::Number(wanted) = value {
            return self
                .numbers(field)
                .into_iter()
                .any(|own| in_order(own, operator, *wanted));
        }
        let names = matches!(
            field,
            Field::Process
                | Field::Host
                | Field::Thread
                | Field::Peer
                | Field::Call
                | Field::Channel
        );
        self.texts(field).iter().any(|own| match (operator, value) {
            (Operator::Equal, Value::Text(wanted)) if names => glob(wanted, own),
            (Operator::Equal, Value::Text(wanted)) => own == wanted,
            (Operator::Like, Value::Text(wanted)) => {
                wanted.is_empty() || own.windows(wanted.len()).any(|part| part == wanted)
            }
            (Operator::Like, Value::Regex(regex)) => regex.is_match(own),
            _ => false,
        })
    }

    fn numbers(&self, field: &Field) -> Vec<i64> {
        let event = self.event;
        match field {
            Field::Number => vec![event.number.0 as i64],
            Field::Time => {
                let history = self.matcher.history;
                vec![history.time_ns(self.id.process, event.time).max(0)]
            }
            Field::Result => event.result.into_iter().collect(),
            Field::Length => self.lengths(),
            Field::Argument(name) => {
                let member = self.matcher.member_of(self.id);
                let value = member.and_then(|own| own.renderer.argument(event, name, 64));
                value.and_then(|value| value.as_i64()).into_iter().collect()
            }
            _ => self
                .texts(field)
                .iter()
                .filter_map(|text| std::str::from_utf8(text).ok()?.parse().ok())
                .collect(),
        }
    }

    /// Data that the event carries: what the kernel read and wrote, as far as
    /// it is a message's or a file's.
    fn data(&self) -> Vec<Vec<u8>> {
        if !self.event.is_call() || !self.event.args_known {
            return Vec::new();
        }
        (0..6)
            .filter(|i| matches!(self.kind(), Type::Send | Type::Recv | Type::File) && *i == 1)
            .filter_map(|i| self.event.argument(i))
            .map(|data| data.bytes.to_vec())
            .collect()
    }

    fn lengths(&self) -> Vec<i64> {
        moved(self.event, self.kind()).into_iter().collect()
    }

    pub(crate) fn texts(&self, field: &Field) -> Vec<Vec<u8>> {
        let event = self.event;
        let history = self.matcher.history;
        match field {
            Field::Type => {
                let own = self.kind();
                let classes = CLASSES.iter().map(|(name, _)| *name);
                classes
                    .filter(|name| class(name).is_some_and(|types| types.contains(&own)))
                    .chain([own.name()])
                    .map(|name| name.as_bytes().to_vec())
                    .collect()
            }
            Field::Call => vec![event.name().into_bytes()],
            Field::Process => self.process_words(self.id.process),
            Field::Host => {
                let set = history.set();
                let host = set.member_of(self.id.process).and_then(|m| set.name(m));
                host.map(|host| host.as_bytes().to_vec())
                    .into_iter()
                    .collect()
            }
            Field::Thread => {
                let member = self.matcher.member_of(self.id);
                let name = member.map_or_else(String::new, |member| {
                    member.names.thread(event.process, event.thread)
                });
                vec![name.into_bytes()]
            }
            Field::Channel => history
                .uses(self.id)
                .iter()
                .filter_map(|used| history.channel(used.channel))
                .flat_map(|channel| {
                    let ends = channel.name.split("->").map(|end| end.as_bytes().to_vec());
                    let mut words: Vec<Vec<u8>> = ends.collect();
                    words.push(format!("c{}", channel.number).into_bytes());
                    words.push(channel.kind.name().as_bytes().to_vec());
                    words.push(channel.name.clone().into_bytes());
                    words
                })
                .collect(),
            Field::Peer => self
                .peers()
                .into_iter()
                .flat_map(|place| self.process_words(place))
                .collect(),
            Field::Link => {
                let causes = history.causes(self.id).into_iter();
                let links = causes.chain(history.effects(self.id));
                links
                    .map(|link| link.kind.name().as_bytes().to_vec())
                    .collect()
            }
            Field::Bytes => self.data(),
            Field::Phase => vec![event.phase.name().as_bytes().to_vec()],
            Field::Error => {
                let name = event.errno().and_then(errno_name);
                name.map(|name| name.as_bytes().to_vec())
                    .into_iter()
                    .collect()
            }
            Field::Argument(name) => {
                let member = self.matcher.member_of(self.id);
                match member.and_then(|own| own.renderer.argument(event, name, usize::MAX)) {
                    Some(serde_json::Value::String(text)) => vec![text.into_bytes()],
                    Some(other) => vec![other.to_string().into_bytes()],
                    None => Vec::new(),
                }
            }
            Field::Number | Field::Time | Field::Result | Field::Length => self
                .numbers(field)
                .into_iter()
                .map(|number| number.to_string().into_bytes())
                .collect(),
        }
    }
}

/// How many bytes an event of a type moved, or is about to.
pub(crate) fn moved(event: &Event<'_>, kind: Type) -> Option<i64> {
    if !matches!(kind, Type::Send | Type::Recv | Type::File) {
        return None;
    }
    match event.result {
        Some(result) => (result >= 0).then_some(result),
        None => event.argument(1).map(|data| data.len as i64),
    }
}

pub(crate) fn in_order(own: i64, operator: Operator, wanted: i64) -> bool {
    match operator {
        Operator::Equal => own == wanted,
        Operator::Less => own < wanted,
        Operator::AtMost => own <= wanted,
        Operator::More => own > wanted,
        Operator::AtLeast => own >= wanted,
        _ => false,
    }
}

/// Whether a text fits a name in which `*` stands for anything and `?` for one
/// letter.
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || Some(c) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    t = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or(&[]).iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, fits) in [
            ("redis-*", "redis-server-0", true),
            ("*-0", "redis-server-0", true),
            ("r*s*0", "redis-server-0", true),
            ("redis", "redis-server-0", false),
            ("?ank-0", "bank-0", true),
            ("*", "", true),
            ("a*b", "acd", false),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
    }
}
