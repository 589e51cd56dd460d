//! Who moves with whom: what was found is made true of everybody.

use causality::EventId;
use protocol::id::EventNo;
use target::{Cancel, Position};

use crate::Result;
use crate::found::{Found, Search};
use crate::group::Group;
use crate::motion::Follow;
use crate::reason::Reason;

/// What is decided.
pub(crate) enum Settled {
    /// This process stands where this was found.
    At(usize, Found),
    /// The request was cancelled: this process stands somewhere on its way.
    Interrupted(usize),
}

/// Who moves, and how they are led.
#[derive(Clone)]
pub(crate) struct Crew {
    pub lead: usize,
    /// The leader first.
    pub all: Vec<usize>,
    pub follow: Follow,
}

impl Crew {
    pub fn others(&self, than: usize) -> Vec<usize> {
        let all = self.all.iter().copied();
        all.filter(|i| *i != than).collect()
    }
}

impl Group {
    /// A process was on its way when somebody had enough. What the others would
    /// have stopped at on theirs is not looked for.
    pub(crate) fn interrupted(
        &mut self,
        i: usize,
        at: Position,
        crew: &Crew,
    ) -> Result<(usize, Reason)> {
        self.follow(i, at, &crew.others(i))?;
        self.put(i, at);
        Ok((i, Reason::Interrupted))
    }

    /// How far the others must have come for a process to be at a position: only
    /// those that have not.
    pub(crate) fn needed(
        &self,
        i: usize,
        at: Position,
        others: &[usize],
    ) -> Result<Vec<(usize, EventNo)>> {
        let Some(cut) = self.program.past(self.member(i)?.ix, at.event()) else {
            return Ok(Vec::new());
        };
        let mut all = Vec::new();
        for j in others {
            let member = self.member(*j)?;
            let bound = cut.bound(member.ix).min(member.last.next());
            if bound > member.at.event() {
                all.push((*j, bound));
            }
        }
        Ok(all)
    }

    /// Others come to where a process must have seen them at a position.
    pub(crate) fn follow(&mut self, i: usize, at: Position, others: &[usize]) -> Result<()> {
        for (j, bound) in self.needed(i, at, others)? {
            self.put(j, Position::Event(bound));
        }
        Ok(())
    }

    /// Others go as far as they can when a process is at a position: not past what
    /// stops them, nor past what needs somebody to go past that.
    pub(crate) fn follow_far(
        &mut self,
        i: usize,
        at: Position,
        others: &[usize],
        cancel: &Cancel,
    ) -> Result<()> {
        let cut = self.program.latest(self.member(i)?.ix, at.event())?;
        let mut bounds = Vec::new();
        let mut halted = Vec::new();
        for j in others {
            let member = self.member(*j)?;
            let (ix, now) = (member.ix, member.at.event());
            let bound = cut.bound(ix).min(member.last.next());
            if bound <= now {
                continue;
            }
            let bound = match self.next_stop(*j, Position::Event(bound), cancel)? {
                Search::Nothing => bound,
                Search::Found(found) => {
                    let before = found.at.event().previous();
                    halted.push(EventId::new(ix, before));
                    before
                }
                Search::Interrupted(_) => {
                    halted.push(EventId::new(ix, now));
                    now
                }
            };
            bounds.push((*j, ix, bound));
        }
        for event in halted {
            let saw = self.program.history()?.future(event);
            for (_, ix, bound) in &mut bounds {
                if *ix != event.process
                    && let Some(saw) = saw.get(ix.index()).copied().flatten()
                {
                    *bound = (*bound).min(saw);
                }
            }
        }
        for (j, _, bound) in bounds {
            if bound > self.member(j)?.at.event() {
                self.put(j, Position::Event(bound));
            }
        }
        Ok(())
    }

    /// Others come along as far as what was found needs them. If one of them
    /// has to stop on the way, that was first.
    pub(crate) fn commit(
        &mut self,
        i: usize,
        found: Found,
        crew: &Crew,
        cancel: &Cancel,
    ) -> Result<Settled> {
        let (mut i, mut found) = (i, found);
        'again: loop {
            let others = crew.others(i);
            for (j, bound) in self.needed(i, found.at, &others)? {
                match self.next_stop(j, Position::Event(bound), cancel)? {
                    Search::Found(earlier) => {
                        (i, found) = (j, earlier);
                        continue 'again;
                    }
                    Search::Nothing => {}
                    Search::Interrupted(_) => {
                        let (i, _) = self.interrupted(i, found.at, crew)?;
                        return Ok(Settled::Interrupted(i));
                    }
                }
            }
            self.follow(i, found.at, &others)?;
            self.put(i, found.at);
            if crew.follow == Follow::Consistent {
                self.follow_far(i, found.at, &others, cancel)?;
            }
            return Ok(Settled::At(i, found));
        }
    }

    /// Going back, others leave what they have seen of what is undone. If one of
    /// them has to stop on the way, that comes first.
    pub(crate) fn commit_back(
        &mut self,
        i: usize,
        found: Found,
        crew: &Crew,
        cancel: &Cancel,
    ) -> Result<Settled> {
        let (mut i, mut found) = (i, found);
        'again: loop {
            let event = found.at.event();
            let member = self.member(i)?;
            let undone = match event <= member.last {
                true => {
                    let event = EventId::new(member.ix, event);
                    self.program.history()?.future(event)
                }
                false => Vec::new(),
            };
            let mut leave = Vec::new();
            for j in crew.others(i) {
                let member = self.member(j)?;
                let saw = undone.get(member.ix.index()).copied().flatten();
                let Some(saw) = saw.filter(|saw| *saw < member.at.event()) else {
                    continue;
                };
                let floor = Position::Event(saw.max(member.first));
                match self.last_stop(j, floor, cancel)? {
                    Search::Found(later) => {
                        (i, found) = (j, later);
                        continue 'again;
                    }
                    Search::Nothing => leave.push((j, floor)),
                    Search::Interrupted(_) => return Ok(Settled::Interrupted(j)),
                }
            }
            for (j, floor) in leave {
                self.put(j, floor);
            }
            self.put(i, found.at);
            return Ok(Settled::At(i, found));
        }
    }
}
