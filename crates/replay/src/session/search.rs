//! The last of something: where a process came to a breakpoint last, or what
//! changed watched memory last.

use ::target::{Arrival, Back, Position, Stops, Watch};

use protocol::id::EventNo;

use protocol::id::Addr;

use super::{Session, before, named};
use crate::Error;

/// Says whether a stop is one.
pub type Wanted<'w> = dyn FnMut(&Session) -> bool + 'w;

/// The last stop on a way.
enum Last {
    At(Position, Arrival),
    Nowhere,
    Interrupted,
}

impl Session {
    /// Goes back to the last place before here at which the process came to
    /// one of the addresses and `wanted` says so. False: there is none, and it
    /// stands where it stood.
    pub fn run_back(
        &mut self,
        breakpoints: &[Addr],
        mut wanted: impl FnMut(&Session) -> bool,
    ) -> Result<bool, Error> {
        let back = self.run_back_watching(breakpoints, &[], Some(&mut wanted))?;
        Ok(back == Back::Breakpoint)
    }

    /// Goes back to the last place before here at which the process came to
    /// one of the addresses, or did something that changed one of the pieces
    /// of memory: it then stands before that instruction or event, and the
    /// memory holds what it held before. If `wanted` is given, it is asked at
    /// each such place (behind the change, for memory), which takes longer.
    pub fn run_back_watching(
        &mut self,
        breakpoints: &[Addr],
        watches: &[Watch],
        wanted: Option<&mut Wanted<'_>>,
    ) -> Result<Back, Error> {
        let stops = Stops {
            breakpoints,
            watches,
            ..Stops::default()
        };
        self.run_back_to(&stops, Position::START, wanted)
    }

    /// Goes back to the last of the stops, but not to before `floor`.
    pub fn run_back_to(
        &mut self,
        stops: &Stops<'_>,
        floor: Position,
        wanted: Option<&mut Wanted<'_>>,
    ) -> Result<Back, Error> {
        let here = self.position();
        let back = self.search_back(stops, floor, wanted)?;
        if matches!(back, Back::Beginning | Back::Interrupted) {
            // Also if it is to stop: here is where it stops.
            let asked = std::mem::take(&mut self.cancel);
            let home = self.go_to_position(here);
            self.cancel = asked;
            home?;
        }
        Ok(back)
    }

    fn search_back(
        &mut self,
        stops: &Stops<'_>,
        floor: Position,
        mut wanted: Option<&mut Wanted<'_>>,
    ) -> Result<Back, Error> {
        let (breakpoints, watches) = (stops.breakpoints, stops.watches);
        let mut limit = self.position();
        let image = self.at;
        loop {
            // From the last checkpoint before the limit to the limit.
            let before = self
                .checkpoints()
                .into_iter()
                .map(|c| c.event)
                .filter(|event| before(*event) < limit)
                .max();
            let from = before.unwrap_or(self.first_event());
            if self.go_to(from)? == Arrival::Interrupted {
                return Ok(Back::Interrupted);
            }
            let start = self.position();
            // Conditions are about variables of one image.
            let conditions = if self.at == image {
                stops.conditions
            } else {
                &[]
            };
            let stops = Stops {
                conditions,
                ..*stops
            };
            let last = match &mut wanted {
                Some(wanted) => self.last_wanted(&stops, limit, *wanted)?,
                None => self.last_of_all(breakpoints, watches, from, limit)?,
            };
            match last {
                Last::At(found, Arrival::Watch(number)) if found > floor => {
                    self.before_change(found, watches.get(number))?;
                    return Ok(Back::Watch(number));
                }
                Last::At(found, _) if found > floor => {
                    self.go_to_position(found)?;
                    return Ok(Back::Breakpoint);
                }
                Last::Interrupted => return Ok(Back::Interrupted),
                Last::Nowhere | Last::At(..) => {}
            }
            if from <= self.first_event() || start >= limit || start <= floor {
                return Ok(Back::Beginning);
            }
            limit = start;
        }
    }

    /// From here to `limit`: the last stop that is wanted.
    fn last_wanted(
        &mut self,
        stops: &Stops<'_>,
        limit: Position,
        wanted: &mut Wanted<'_>,
    ) -> Result<Last, Error> {
        let mut last = Last::Nowhere;
        while self.position() < limit {
            let arrival = self.run_to(stops, limit)?;
            let now = self.position();
            match arrival {
                Arrival::Breakpoint if now < limit => {}
                Arrival::Watch(_) if now <= limit => {}
                Arrival::Interrupted => return Ok(Last::Interrupted),
                _ => {
                    self.watch_hit = self.changed_unseen(stops.watches);
                    if let Some(number) = self.watch_hit
                        && wanted(self)
                    {
                        last = Last::At(now, Arrival::Watch(number));
                    }
                    break;
                }
            }
            if wanted(self) {
                last = Last::At(now, arrival);
            }
        }
        Ok(last)
    }

    /// The last stop if all are wanted: they are counted on the way, and the last one is
    /// gone to.
    fn last_of_all(
        &mut self,
        breakpoints: &[Addr],
        watches: &[Watch],
        from: EventNo,
        limit: Position,
    ) -> Result<Last, Error> {
        let mut motion = self.motion(breakpoints, watches, limit)?;
        motion.skip = u64::MAX;
        if self.advance(&motion, limit)? == Arrival::Interrupted {
            return Ok(Last::Interrupted);
        }
        if let Some(number) = self.changed_unseen(watches) {
            return Ok(Last::At(self.position(), Arrival::Watch(number)));
        }
        let Some(skip) = self.hits().checked_sub(1) else {
            return Ok(Last::Nowhere);
        };
        self.go_to(from)?;
        let mut motion = self.motion(breakpoints, watches, limit)?;
        motion.skip = skip;
        let arrival = self.advance(&motion, limit)?;
        if arrival == Arrival::Interrupted {
            return Ok(Last::Interrupted);
        }
        Ok(match named(arrival, watches) {
            found @ (Arrival::Breakpoint | Arrival::Watch(_)) => Last::At(self.position(), found),
            _ => Last::Nowhere,
        })
    }

    /// After a motion: which of the pieces of memory has changed and no thread
    /// has gone on since, which is where changes are seen.
    fn changed_unseen(&self, watches: &[Watch]) -> Option<usize> {
        let image = self.here()?;
        let known = image.current.watched(&image.file);
        let now = self.pieces(watches);
        let piece = now
            .iter()
            .zip(&known)
            .position(|((_, now), then)| now.is_some() && then.is_some() && now != then)?;
        match named(Arrival::Watch(piece), watches) {
            Arrival::Watch(number) => Some(number),
            _ => None,
        }
    }

    /// Goes to before what changed a piece of memory, which shows at `found`.
    fn before_change(&mut self, found: Position, watch: Option<&Watch>) -> Result<(), Error> {
        self.go_to_position(found)?;
        let watches: Vec<Watch> = watch.copied().into_iter().collect();
        let changed = self.pieces(&watches);
        while self.step_back()? && self.pieces(&watches) == changed {}
        Ok(())
    }
}
