//! A link between two events, by name.

use causality::History;
use serde::Serialize;

use crate::names;

/// One event that caused another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// What kind of cause it is.
    pub kind: &'static str,
    /// The earlier event.
    pub cause: String,
    /// The later one.
    pub effect: String,
    /// The channel, if it went by one.
    pub channel: Option<String>,
    /// How many bytes, or how much of a count.
    pub amount: u64,
}

impl Link {
    /// A link by the names of its ends.
    pub fn new(history: &History, link: &causality::Link) -> Link {
        Link {
            kind: link.kind.name(),
            cause: names::event(history, link.cause),
            effect: names::event(history, link.effect),
            channel: link.channel.map(names::channel),
            amount: link.amount,
        }
    }
}
