//! What a pattern says.

use causality::Kind;
use protocol::syscall::Type;
use regex::bytes::Regex;

/// Which events are meant.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Both.
    And(Box<Pattern>, Box<Pattern>),
    /// At least one.
    Or(Box<Pattern>, Box<Pattern>),
    /// Not that.
    Not(Box<Pattern>),
    /// One condition.
    Is(Condition),
}

/// Something that an event is or is not.
#[derive(Clone, Debug)]
pub enum Condition {
    /// Of one of these types.
    Types(Vec<Type>),
    /// A call (or other event) of this name.
    Call(String),
    /// The call failed.
    Failed,
    /// It sent to or received from somebody outside the program.
    Outside,
    /// It has a link to another process, either way.
    Linked,
    /// A field compares like this.
    Field(Field, Operator, Value),
    /// The field has a value, which is captured under this name.
    Capture(Field, String),
}

impl Pattern {
    /// The names under which it captures something, in the order in which
    /// they stand in it.
    pub fn captures(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.add_captures(&mut names);
        names
    }

    fn add_captures(&self, names: &mut Vec<String>) {
        let mut add = |name: &str| {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_string());
            }
        };
        match self {
            Pattern::And(a, b) | Pattern::Or(a, b) => {
                a.add_captures(names);
                b.add_captures(names);
            }
            // What is not there has nothing to capture.
            Pattern::Not(_) => {}
            Pattern::Is(Condition::Field(_, Operator::Like, Value::Regex(regex))) => {
                regex.capture_names().flatten().for_each(add);
            }
            Pattern::Is(Condition::Capture(_, name)) => add(name),
            Pattern::Is(_) => {}
        }
    }
}

/// What a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Its type.
    Type,
    /// Name of the call.
    Call,
    /// Name of the process, or of its program.
    Process,
    /// Name of the host it was recorded on.
    Host,
    /// Name of the thread.
    Thread,
    /// The channel it used: number (`c12`), kind, or an endpoint.
    Channel,
    /// The process at the other end of a link.
    Peer,
    /// Kind of a link that leads to it or from it.
    Link,
    /// The data that it carried.
    Bytes,
    /// How long that was.
    Length,
    /// The call's result.
    Result,
    /// The error's name.
    Error,
    /// Number in its process.
    Number,
    /// Time since the start of the recording.
    Time,
    /// Which part of a call it is: `call`, `start`, `end` or `none`.
    Phase,
    /// An argument, by its name.
    Argument(String),
}

/// The fields by name, and what they are.
pub const FIELDS: &[(&str, &str)] = &[
    ("type", "type of the event: send, recv, connect, ..."),
    ("call", "name of the system call"),
    (
        "process",
        "name of the process, or of the program it runs; * and ? stand for anything",
    ),
    (
        "host",
        "name of the host, in a recording of several; * and ? stand for anything",
    ),
    ("thread", "name of the thread"),
    ("channel", "channel it used: c12, tcp, pipe, 127.0.0.1:80"),
    ("peer", "process that a link leads to or comes from"),
    ("link", "kind of a link: message, connect, fork, wake, ..."),
    ("bytes", "the data it carried"),
    ("length", "how long that was"),
    ("result", "what the call returned"),
    ("error", "the error it returned: EAGAIN, ..."),
    ("number", "its number in its process"),
    ("time", "when, since the start: 1.5s, 20ms"),
    (
        "phase",
        "part of a call: call (all of it), start, end; none of what is no call",
    ),
];

/// Words that stand for several types, or for something else that an event is.
pub const CLASSES: &[(&str, &str)] = &[
    ("message", "send, recv"),
    ("connection", "connect, accept"),
    ("process-life", "fork, exec, exit, wait"),
    ("sync", "lock, wake"),
    ("failed", "calls that returned an error"),
    (
        "outside",
        "what came from or went to somebody outside the program",
    ),
    ("linked", "events with a link to another process"),
];

pub(crate) fn class(name: &str) -> Option<Vec<Type>> {
    Some(match name {
        "message" => vec![Type::Send, Type::Recv],
        "connection" => vec![Type::Connect, Type::Accept],
        "process-life" => vec![Type::Fork, Type::Exec, Type::Exit, Type::Wait],
        "sync" => vec![Type::Lock, Type::Wake],
        _ => return None,
    })
}

pub(crate) fn link_kind(name: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`.
    Equal,
    /// `!=`.
    Unequal,
    /// `~`: contains, or fits a regular expression.
    Like,
    /// `!~`.
    Unlike,
    /// `<`.
    Less,
    /// `<=`.
    AtMost,
    /// `>`.
    More,
    /// `>=`.
    AtLeast,
}

impl Operator {
    pub(crate) fn parse(sign: &str) -> Option<Operator> {
        Some(match sign {
            "=" => Operator::Equal,
            "!=" => Operator::Unequal,
            "~" => Operator::Like,
            "!~" => Operator::Unlike,
            "<" => Operator::Less,
            "<=" => Operator::AtMost,
            ">" => Operator::More,
            ">=" => Operator::AtLeast,
            _ => return None,
        })
    }

    /// Whether it needs something that has an order.
    pub fn is_order(self) -> bool {
        matches!(
            self,
            Operator::Less | Operator::AtMost | Operator::More | Operator::AtLeast
        )
    }
}

/// What a field is compared with.
#[derive(Clone, Debug)]
pub enum Value {
    /// A word or a text.
    Text(Vec<u8>),
    /// A number (of a time: nanoseconds).
    Number(i64),
    /// A regular expression.
    Regex(Regex),
}
