//! The stops that were come to, in their order.
//!
//! Of stops that know nothing of each other either may be come to first. Whoever goes
//! back is to come to them in the reverse of the order in which they were seen, and on
//! again in the same; and none may be passed over because its process stands there
//! already, since it stopped and others went on.

use target::{Cancel, Position};

use crate::Result;
use crate::found::{Came, Found};
use crate::group::Group;
use crate::motion::{Direction, How, Move};
use crate::reason::{Reason, Traced};
use crate::stops::Key;

/// The stops behind and ahead, each by who stopped, the nearest last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail {
    behind: Vec<usize>,
    ahead: Vec<usize>,
    /// Who was at hand when the last motion ended, and whether at a stop.
    last: Option<(usize, bool)>,
}

/// So many stops are kept in mind, each way.
const MOST: usize = 1000;

/// A stop that a process stands at, while others move on.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    found: Found,
    /// What it was to stop at.
    key: Key,
    /// On which side of the stop everybody else is now; at it, before anybody moves.
    side: Option<Direction>,
}

impl Group {
    /// A motion begins. Says who is to be asked first, where several could stop.
    pub(crate) fn set_out(&mut self, lead: usize, motion: &Move) -> Option<usize> {
        let is_jump = matches!(motion.how, How::To(_) | How::ToStart | How::ToEnd);
        let back = motion.direction == Direction::Backwards;
        let last = self.trail.last;
        if let Some((i, true)) = last {
            if let Some(stand) = self.members.get_mut(i).and_then(|m| m.stand.as_mut()) {
                stand.side = Some(motion.direction);
            }
            let list = match back {
                true => &mut self.trail.ahead,
                false => &mut self.trail.behind,
            };
            if list.len() >= MOST {
                list.remove(0);
            }
            list.push(i);
        }
        if is_jump || last.is_none_or(|(i, _)| i != lead) {
            // Somebody chose where to go on from.
            self.trail = Trail::default();
            if let Some(member) = self.members.get_mut(lead) {
                member.stand = None;
            }
            return None;
        }
        let list = match back {
            true => &self.trail.behind,
            false => &self.trail.ahead,
        };
        list.last().copied()
    }

    /// A motion has ended, at something that is stopped at or elsewhere.
    pub(crate) fn arrived(&mut self, i: usize, is_stop: bool, direction: Direction) {
        let list = match direction {
            Direction::Backwards => &mut self.trail.behind,
            Direction::Forwards => &mut self.trail.ahead,
        };
        if is_stop && list.pop().is_some_and(|known| known != i) {
            // Another way than before.
            list.clear();
        }
        self.trail.last = Some((i, is_stop));
    }

    /// The stop that a process stands at, if whoever moves in a direction comes to it.
    pub(crate) fn stands_at(
        &mut self,
        i: usize,
        direction: Direction,
        cancel: &Cancel,
    ) -> Result<Option<Found>> {
        let member = self.member(i)?;
        let Some(stand) = member.stand.as_ref() else {
            return Ok(None);
        };
        // Everybody else is on the other side of it.
        let is_ahead = stand.side.is_some_and(|side| side != direction);
        if !is_ahead || stand.found.at != member.at {
            return Ok(None);
        }
        let key = self.stops.key(member);
        if stand.key == key {
            return Ok(Some(stand.found.clone()));
        }
        // Something else is to be stopped at by now: whether this still is.
        let found = self.stop_here(i, cancel)?;
        if let Some(member) = self.members.get_mut(i)
            && let Some(stand) = member.stand.as_mut()
            && let Some(found) = &found
        {
            (stand.found, stand.key) = (found.clone(), key);
        }
        Ok(found)
    }

    /// What stops somebody right where it stands: breakpoints, or an event that is caught.
    fn stop_here(&mut self, i: usize, cancel: &Cancel) -> Result<Option<Found>> {
        self.here(i)?;
        let (member, context) = self.with(i, cancel)?;
        let plan = member.plan(context)?;
        match member.points_here(context, &plan)? {
            Err(trouble) => return Ok(Some(member.trouble(trouble)?)),
            Ok(points) if points.is_empty() => {}
            Ok(points) => return member.at_points(points),
        }
        let numbers = match member.at {
            Position::Event(event) => member.catching(context, event),
            Position::Inside(_) | Position::Halted(_) => Vec::new(),
        };
        let is_caught = !numbers.is_empty();
        let found = is_caught.then(|| member.found(Came::Caught(numbers)));
        found.transpose()
    }

    /// Who has come to a breakpoint stands at it, though it was a step that led there.
    /// Says whether it does.
    pub(crate) fn stepped_onto(&mut self, i: usize, cancel: &Cancel) -> Result<bool> {
        let found = self.stop_here(i, cancel)?;
        let found = found.filter(|found| matches!(found.came, Came::Points));
        let Some(member) = self.members.get_mut(i) else {
            return Ok(false);
        };
        let key = self.stops.key(member);
        member.stand = found.map(|found| Stand {
            found,
            key,
            side: None,
        });
        Ok(member.stand.is_some())
    }

    /// Whether what somebody came to stops it; see [`Group::judge`].
    pub(crate) fn decide(
        &mut self,
        i: usize,
        found: Found,
        traced: &mut Vec<Traced>,
    ) -> Result<Option<Reason>> {
        // What is watched lies before the place where it is noticed, either way.
        let kept = match &found.came {
            Came::Points | Came::Caught(_) => Some(found.clone()),
            // A step may end at a breakpoint.
            Came::Step | Came::Left(_) if !found.points.is_empty() => Some(Found {
                came: Came::Points,
                ..found.clone()
            }),
            _ => None,
        };
        if let Some(member) = self.members.get_mut(i) {
            member.stand = None;
        }
        let reason = self.judge(i, found, traced)?;
        let stops = matches!(
            reason,
            Some(Reason::Breakpoint { .. } | Reason::Caught { .. })
        );
        if let Some(found) = kept.filter(|_| stops)
            && let Some(member) = self.members.get_mut(i)
        {
            let key = self.stops.key(member);
            member.stand = Some(Stand {
                found,
                key,
                side: None,
            });
        }
        Ok(reason)
    }
}
