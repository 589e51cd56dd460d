//! Which of two events came first, and the proof.

use causality::{EventId, History, Order};
use serde::Serialize;

use crate::link::Link;
use crate::shown::{DATA, Shown, Shows};
use crate::{Names, names};

/// How two events are ordered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The first event.
    pub a: String,
    /// The second.
    pub b: String,
    /// `before`, `after`, `concurrent` or `same`.
    #[serde(serialize_with = "as_word")]
    pub order: Order,
    /// The links that prove it.
    pub path: Option<Vec<Link>>,
    /// The events on the way, from the earlier to the later; of concurrent
    /// ones, both.
    #[serde(skip)]
    pub steps: Vec<Step>,
}

/// An event on the way from one to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The event.
    pub shown: Shown,
    /// How the way leads to it from the one before.
    pub how: Option<&'static str>,
}

fn as_word<S: serde::Serializer>(order: &Order, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(word(*order))
}

/// An order in one word.
pub fn word(order: Order) -> &'static str {
    match order {
        Order::Same => "same",
        Order::Before => "before",
        Order::After => "after",
        Order::Concurrent => "concurrent",
    }
}

/// How two events are ordered.
pub fn report(history: &History, names: &Names, a: EventId, b: EventId) -> Report {
    let order = history.order(a, b);
    let (first, last) = match order {
        Order::After => (b, a),
        _ => (a, b),
    };
    let path = match order {
        Order::Before | Order::After => history.path_between(first, last),
        Order::Same | Order::Concurrent => None,
    };
    let mut steps: Vec<(EventId, Option<&'static str>)> = Vec::new();
    if let Some(path) = &path {
        let later = Some("later in the process");
        let mut push = |event: EventId, how: Option<&'static str>| {
            if steps.last().map(|step| step.0) != Some(event) {
                steps.push((event, how));
            }
        };
        push(first, None);
        for link in path {
            push(link.cause, later);
            push(link.effect, Some(link.kind.name()));
        }
        push(last, later);
    } else if order == Order::Concurrent {
        steps = vec![(a, None), (b, None)];
    }
    let mut shows = Shows::new(history, names, DATA);
    shows.read(&steps.iter().map(|step| step.0).collect::<Vec<_>>());
    Report {
        a: names::event(history, a),
        b: names::event(history, b),
        order,
        path: path.map(|path| path.iter().map(|link| Link::new(history, link)).collect()),
        steps: steps
            .into_iter()
            .map(|(event, how)| Step {
                shown: shows.get(event),
                how,
            })
            .collect(),
    }
}
