//! Back by one instruction.

use ::target::{Arrival, Inside, ONE_INSTRUCTION, Position};
use protocol::id::{Addr, EventNo};

use super::{Session, before};
use crate::Error;
use crate::player::Motion;

impl Session {
    /// Goes back by one instruction. False: this is the beginning.
    pub fn step_back(&mut self) -> Result<bool, Error> {
        let here = self.position();
        let event = here.event();
        let first = self
            .streams
            .get(self.image_at(here.event()))
            .map_or(EventNo(0), |s| s.first_event);
        if event <= first {
            return Ok(false);
        }
        // The stretch that ends here, from its beginning or from the last
        // control transfer on.
        let transfers = match here {
            Position::Inside(inside) => Some(inside.transfers),
            Position::Event(_) | Position::Halted(_) => None,
        };
        let last = match transfers {
            // The first instruction of the stretch: the event is before it.
            Some(count) => self.last_before(here, event, count)?,
            None => self.last_of(event)?,
        };
        match last {
            Some(position) => self.go_to_position(position)?,
            None => self.go_to(here.event().previous())?,
        };
        Ok(true)
    }

    /// Goes back by one instruction as a person counts: an event that befell the instruction that was to
    /// be done, a fault or an interruption, has a place of its own, and the one
    /// before it is no instruction earlier.
    pub fn step_instruction_back(&mut self) -> Result<bool, Error> {
        let (here, address) = (self.position(), self.address());
        let moved = self.step_back()?;
        let is_same = matches!((here, self.position()), (Position::Event(event), Position::Inside(at))
            if at.event == event && Some(at.address) == address);
        Ok(if is_same { self.step_back()? } else { moved })
    }

    /// The instruction where the thread is that stopped.
    fn address(&self) -> Option<Addr> {
        let image = self.here()?;
        Some(image.current.inside(&image.file).address)
    }

    /// The last place before `here` that has `count` control transfers, or one
    /// less.
    fn last_before(
        &mut self,
        here: Position,
        event: EventNo,
        count: u64,
    ) -> Result<Option<Position>, Error> {
        for count in [Some(count), count.checked_sub(1)].into_iter().flatten() {
            let start = Inside {
                event,
                transfers: count,
                address: Addr::NULL,
            };
            self.go_to_position(Position::Inside(start))?;
            let mut last = None;
            while self.position() < here {
                last = Some(self.position());
                if self.step(ONE_INSTRUCTION)? != Arrival::Stepped
                    || self.position().event() != event
                {
                    break;
                }
            }
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }

    /// The last place in the stretch before an event.
    fn last_of(&mut self, event: EventNo) -> Result<Option<Position>, Error> {
        let far = Inside {
            event,
            transfers: u64::MAX - 1,
            address: Addr::MAX,
        };
        self.go_to_position(Position::Inside(Inside {
            transfers: 0,
            address: Addr::NULL,
            ..far
        }))?;
        if self.position() == before(event) {
            return Ok(None);
        }
        // How many control transfers there are is known at its end.
        let motion = Motion {
            goal: Some(far),
            ..Motion::default()
        };
        self.advance(&motion, before(event))?;
        let count = self
            .here()
            .map_or(0, |image| image.current.inside(&image.file).transfers);
        self.last_before(before(event), event, count)
    }
}
