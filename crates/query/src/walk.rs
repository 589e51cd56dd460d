//! The events of all members, in order of time.
//!
//! A member's events are in order of its own clock; of several members, the one
//! is next that is the earliest by the clocks that were fitted, so that no effect
//! comes before its cause.

use causality::History;
use protocol::id::{ProcessId, ProcessIx};
use recording::render::{Limits, Renderer};
use recording::{Event, Set, Timeline};

use crate::Names;

/// Goes through the events of a set. Of one member nothing has to be known but
/// what it recorded; several take a history, for their clocks.
pub struct Walk<'w> {
    set: &'w Set,
    history: Option<&'w History>,
    members: Vec<Member<'w>>,
}

/// How far one of them has come.
struct Member<'w> {
    timeline: Timeline<'w>,
    renderer: Renderer<'w>,
    /// When its next event was; nothing at its end.
    next: Option<i64>,
}

/// An event that a walk has come to.
pub struct Step<'s> {
    /// Which member it is of.
    pub member: u16,
    /// The event.
    pub event: &'s Event<'s>,
    /// What shows it, having seen the events before.
    pub renderer: &'s Renderer<'s>,
}

impl<'w> Walk<'w> {
    /// Through the events of the processes at these places.
    pub fn new(
        set: &'w Set,
        history: Option<&'w History>,
        names: &Names,
        places: &[ProcessIx],
        limits: Limits,
    ) -> Walk<'w> {
        let ids: Vec<ProcessId> = places.iter().filter_map(|place| set.id(*place)).collect();
        let members = set.members().zip(0u16..).filter_map(|(recording, member)| {
            let own = ids.iter().filter(|id| id.member == member);
            let mut timeline = Timeline::new(recording, own.map(|id| id.number));
            timeline.advance();
            Some(Member {
                timeline,
                renderer: Renderer::of_member(set, member, names, limits)?,
                next: None,
            })
        });
        let mut walk = Walk {
            set,
            history,
            members: members.collect(),
        };
        for member in 0..walk.members.len() {
            walk.look_ahead(member);
        }
        walk
    }

    /// Notes when the next event of a member was.
    fn look_ahead(&mut self, at: usize) {
        let (set, history) = (self.set, self.history);
        let Some(own) = self.members.get_mut(at) else {
            return;
        };
        own.next = own.timeline.event().map(|event| {
            let member = u16::try_from(at).unwrap_or(u16::MAX);
            let place = set.place(event.process.of_member(member));
            match (history, place) {
                (Some(history), Some(place)) if set.is_joined() => {
                    history.time_ns(place, event.time)
                }
                _ => i64::try_from(event.time.0).unwrap_or(i64::MAX),
            }
        });
    }

    /// Calls `found` with one event after the other until it says no or fails.
    pub fn each<E>(mut self, mut found: impl FnMut(&Step<'_>) -> Result<bool, E>) -> Result<(), E> {
        loop {
            let standing = self.members.iter().enumerate();
            let standing = standing.filter_map(|(at, member)| Some((member.next?, at)));
            let Some((_, at)) = standing.min() else {
                return Ok(());
            };
            if let Some(member) = self.members.get_mut(at) {
                if let Some(event) = member.timeline.event() {
                    member.renderer.before(&event);
                    let step = Step {
                        member: u16::try_from(at).unwrap_or(u16::MAX),
                        event: &event,
                        renderer: &member.renderer,
                    };
                    if !found(&step)? {
                        return Ok(());
                    }
                    member.renderer.after(&event);
                }
                member.timeline.advance();
            }
            self.look_ahead(at);
        }
    }
}
