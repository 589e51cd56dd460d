//! Everybody to places of their own: a cut that somebody else chose.
//!
//! Where events begin and end is known of a recording; which instruction stands right
//! behind an event, or right before one that changed something, only the process
//! itself can say. A second one of it is led there and asked, and nobody is moved.

use protocol::id::{EventNo, ProcessId};
use target::{Arrival, Cancel, ONE_INSTRUCTION, Position};

use crate::commit::{Crew, Settled};
use crate::found::Search;
use crate::group::Group;
use crate::motion::Direction;
use crate::reason::{Reason, Traced};
use crate::{Error, Result};

impl Group {
    /// The place right behind an event: where the thread that did it goes on. If that
    /// cannot be told, the way to the next event has no other place either.
    pub fn right_after(
        &mut self,
        process: ProcessId,
        event: EventNo,
        cancel: &Cancel,
    ) -> Result<Position> {
        let i = self.index(process)?;
        let (member, context) = self.with(i, cancel)?;
        let next = Position::Event(event.next());
        if event < member.first || event >= member.last {
            return Ok(member.within(next));
        }
        let probe = member.probe_mut(context.program, Position::Event(event), cancel)?;
        let arrival = probe.step(ONE_INSTRUCTION, &[], cancel)?;
        let got = probe.position();
        Ok(match (arrival, got) {
            (Arrival::Stepped, Position::Inside(inside)) if inside.event == event.next() => got,
            _ => next,
        })
    }

    /// The place of the instruction that led to a position.
    pub fn right_before(
        &mut self,
        process: ProcessId,
        at: Position,
        cancel: &Cancel,
    ) -> Result<Position> {
        let i = self.index(process)?;
        let (member, context) = self.with(i, cancel)?;
        let probe = member.probe_mut(context.program, at, cancel)?;
        let past = probe.history().ok_or(target::Error::NoPast)?;
        past.step_back(cancel)?;
        Ok(probe.position())
    }

    /// Says that everybody is where they must be if some are at these places, and
    /// nobody further. Fails, and moves nobody, if one of them has seen what another
    /// has not done yet.
    pub fn arrange_at(&mut self, places: &[(ProcessId, Position)]) -> Result<()> {
        let mut at = Vec::new();
        for (process, position) in places {
            let i = self.index(*process)?;
            let member = self.member(i)?;
            at.push((i, member.within(*position)));
        }
        let mut bounds: Vec<EventNo> = self.members.iter().map(|member| member.first).collect();
        for (i, position) in &at {
            let ix = self.member(*i)?.ix;
            let Some(past) = self.program.past(ix, position.event()) else {
                continue;
            };
            for (bound, member) in bounds.iter_mut().zip(&self.members) {
                *bound = (*bound).max(past.bound(member.ix).min(member.last.next()));
            }
        }
        for (i, position) in &at {
            let needed = bounds.get(*i).copied().unwrap_or(EventNo(0));
            if needed > position.event() {
                let member = self.member(*i)?;
                return Err(Error::NoCut {
                    name: member.name.clone(),
                    event: needed.previous(),
                });
            }
        }
        for (i, bound) in bounds.into_iter().enumerate() {
            self.put(i, Position::Event(bound));
        }
        for (i, position) in at {
            self.put(i, position);
        }
        Ok(())
    }

    /// To places, as long as nothing stops somebody on the way there.
    pub(crate) fn lead_to_cut(
        &mut self,
        crew: &Crew,
        goals: &[(ProcessId, Position)],
        direction: Direction,
        traced: &mut Vec<Traced>,
        cancel: &Cancel,
    ) -> Result<(usize, Reason)> {
        let mut led = Vec::new();
        for (process, goal) in goals {
            let i = self.index(*process)?;
            if crew.all.contains(&i) {
                led.push((i, self.member(i)?.within(*goal)));
            }
        }
        let back = direction == Direction::Backwards;
        'again: loop {
            for (i, goal) in &led {
                let search = match back {
                    true => self.last_stop(*i, *goal, cancel)?,
                    false => self.next_stop(*i, *goal, cancel)?,
                };
                let found = match search {
                    Search::Nothing => continue,
                    Search::Found(found) => found,
                    Search::Interrupted(_) if back => return Ok((*i, Reason::Interrupted)),
                    Search::Interrupted(at) => return self.interrupted(*i, at, crew),
                };
                let settled = match back {
                    true => self.commit_back(*i, found, crew, cancel)?,
                    false => self.commit(*i, found, crew, cancel)?,
                };
                match settled {
                    Settled::Interrupted(i) => return Ok((i, Reason::Interrupted)),
                    Settled::At(i, found) => match self.decide(i, found, traced)? {
                        Some(reason) => return Ok((i, reason)),
                        None => continue 'again,
                    },
                }
            }
            break;
        }
        let before = self.positions();
        for (i, goal) in led {
            self.put(i, goal);
        }
        let came = self.lead_there(crew, &before, cancel)?;
        Ok((crew.lead, came.unwrap_or(Reason::Arrived)))
    }
}
