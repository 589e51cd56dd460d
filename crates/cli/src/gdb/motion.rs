//! Motion of the whole program, as gdb asks for it.
//!
//! If gdb moves one process, only that one moves. If it moves all, the one at
//! hand leads and the others follow no further than they must for the whole to
//! stay consistent: forwards, to what the leader has seen of them; back, to
//! before they saw what is undone. A stop of theirs on that way comes first,
//! so that none is missed and stops come in the order of cause and effect.
//!
//! Searching for stops does not say that a process is elsewhere: only what is
//! committed does.

use ::gdb_remote::{Direction, Interrupt, Motion, Stop, StopPoint, StopReason};
use ::replay::{Arrival, Back, Inside, Position, Stops, Wanted};
use causality::EventId;
use protocol::id::EventNo;

use super::program::{Program, stop};
use super::seat::{Found, Known, Seat, breakpoint_here};

/// Where a search for something that stops ended.
enum Search {
    Found(Found),
    /// It may go no further, or there is no further.
    Nothing,
    /// The client asked for it: how far it came.
    Interrupted(Position),
}

fn words(error: ::replay::Error) -> String {
    crate::verify::explain(error).words()
}

impl Program {
    pub fn move_by(&mut self, motion: &Motion, interrupt: &Interrupt) -> Result<Stop, String> {
        if let Some(stop) = self.next_queued() {
            return Ok(stop);
        }
        let Some((lead, thread)) = self.thread_number(motion.thread) else {
            return Err("there is no such thread".to_string());
        };
        self.lead = lead;
        let crew = self.crew(lead, motion.process.is_none());
        let Some(range) = &motion.step else {
            return match motion.direction {
                Direction::Forwards => self.forwards(&crew, interrupt),
                Direction::Backwards => self.backwards(&crew, interrupt),
            };
        };
        let before = self.seat(lead)?.at;
        let search = match motion.direction {
            Direction::Forwards => self.step(lead, thread, range.clone(), interrupt)?,
            Direction::Backwards => self.step_back(lead, thread, interrupt)?,
        };
        match (search, motion.direction) {
            // Nobody else has seen anything of it.
            (Search::Found(found), _) if found.at.event() == before.event() => self.settle(found),
            (Search::Found(found), Direction::Forwards) => self.commit(found, &crew, interrupt),
            (Search::Found(found), Direction::Backwards) => {
                self.commit_back(found, &crew, interrupt)
            }
            (Search::Nothing, direction) => {
                let (at, reason) = match direction {
                    Direction::Forwards => (self.seat(lead)?.end(), StopReason::End),
                    Direction::Backwards => (self.seat(lead)?.beginning(), StopReason::Beginning),
                };
                let others: Vec<usize> = crew.iter().copied().filter(|i| *i != lead).collect();
                self.seat(lead)?.put(at);
                if direction == Direction::Forwards {
                    self.follow(lead, at, &others)?;
                }
                self.at_hand(lead, reason)
            }
            (Search::Interrupted(at), _) => self.interrupted(lead, at, &crew),
        }
    }

    pub fn seat(&mut self, i: usize) -> Result<&mut Seat, String> {
        let seat = self.seats.get_mut(i);
        seat.ok_or_else(|| "there is no such process".to_string())
    }

    /// Those that may move, the leader first.
    fn crew(&self, lead: usize, all: bool) -> Vec<usize> {
        let others = (0..self.seats.len()).filter(|i| all && *i != lead);
        std::iter::once(lead)
            .chain(others)
            .filter(|i| self.seats.get(*i).is_some_and(|seat| !seat.is_gone))
            .collect()
    }

    fn forwards(&mut self, crew: &[usize], interrupt: &Interrupt) -> Result<Stop, String> {
        for i in crew {
            match self.next_stop(*i, Position::Event(u64::MAX), interrupt)? {
                Search::Nothing => {}
                Search::Found(found) => return self.commit(found, crew, interrupt),
                Search::Interrupted(at) => return self.interrupted(*i, at, crew),
            }
        }
        for i in crew {
            let seat = self.seat(*i)?;
            seat.put(seat.end());
        }
        self.at_hand(self.lead, StopReason::End)
    }

    fn backwards(&mut self, crew: &[usize], interrupt: &Interrupt) -> Result<Stop, String> {
        for i in crew {
            let floor = self.seat(*i)?.beginning();
            match self.last_stop(*i, floor, interrupt)? {
                Search::Nothing => {}
                Search::Found(found) => return self.commit_back(found, crew, interrupt),
                Search::Interrupted(at) => return self.interrupted(*i, at, crew),
            }
        }
        for i in crew {
            let seat = self.seat(*i)?;
            seat.put(seat.beginning());
        }
        self.at_hand(self.lead, StopReason::Beginning)
    }

    /// A stop of a process where it stands, by the thread that runs there.
    fn at_hand(&mut self, i: usize, reason: StopReason) -> Result<Stop, String> {
        self.interrupt.arm(false);
        self.lead = i;
        let number = self.here(i)?.session.thread();
        Ok(stop(self.thread_id(i, number), reason))
    }

    /// A process was on its way when the client had enough. What the others
    /// would have stopped at on theirs is not looked for.
    fn interrupted(&mut self, i: usize, at: Position, crew: &[usize]) -> Result<Stop, String> {
        let others: Vec<usize> = crew.iter().copied().filter(|j| *j != i).collect();
        self.follow(i, at, &others)?;
        self.seat(i)?.put(at);
        self.at_hand(i, StopReason::Interrupted)
    }

    /// Others come to where a process must have seen them at a place.
    fn follow(&mut self, i: usize, at: Position, others: &[usize]) -> Result<(), String> {
        let cut = self
            .seats
            .get(i)
            .and_then(|seat| self.needed(seat, at.event()));
        for j in others {
            let seat = self.seat(*j)?;
            let bound = cut.as_ref().map_or(0, |cut| cut.bound(seat.place).0);
            let bound = bound.min(seat.last + 1);
            if bound > seat.at.event() {
                seat.put(Position::Event(bound));
            }
        }
        Ok(())
    }

    /// Somebody stands where it was found.
    fn settle(&mut self, found: Found) -> Result<Stop, String> {
        self.interrupt.arm(false);
        let seat = self.seat(found.seat)?;
        seat.put(found.at);
        let image = seat.image_at(found.at.event());
        if image != seat.told {
            seat.told = image;
            // Breakpoints are gone with the memory they were in.
            seat.stops.clear();
        }
        self.lead = found.seat;
        let thread = self.thread_id(found.seat, found.thread);
        Ok(stop(thread, found.reason))
    }

    /// Others come along as far as what was found needs them. If one of them
    /// has to stop on the way, that was first.
    fn commit(
        &mut self,
        mut found: Found,
        crew: &[usize],
        interrupt: &Interrupt,
    ) -> Result<Stop, String> {
        'again: loop {
            let seat = self.seats.get(found.seat);
            let cut = seat.and_then(|seat| self.needed(seat, found.at.event()));
            let others: Vec<usize> = crew.iter().copied().filter(|i| *i != found.seat).collect();
            for i in &others {
                let seat = self.seat(*i)?;
                let bound = cut.as_ref().map_or(0, |cut| cut.bound(seat.place).0);
                let bound = bound.min(seat.last + 1);
                if bound <= seat.at.event() {
                    continue;
                }
                match self.next_stop(*i, Position::Event(bound), interrupt)? {
                    Search::Found(earlier) => {
                        found = earlier;
                        continue 'again;
                    }
                    Search::Nothing => {}
                    Search::Interrupted(_) => {
                        return self.interrupted(found.seat, found.at, crew);
                    }
                }
            }
            self.follow(found.seat, found.at, &others)?;
            return self.settle(found);
        }
    }

    /// The same backwards: others leave what they have seen of what is undone.
    fn commit_back(
        &mut self,
        mut found: Found,
        crew: &[usize],
        interrupt: &Interrupt,
    ) -> Result<Stop, String> {
        'again: loop {
            let event = found.at.event();
            let undone = self
                .seats
                .get(found.seat)
                .filter(|seat| event <= seat.last)
                .map(|seat| {
                    self.history
                        .future(EventId::new(seat.place, EventNo(event)))
                })
                .unwrap_or_default();
            let mut leave = Vec::new();
            for i in crew.iter().filter(|i| **i != found.seat) {
                let seat = self.seat(*i)?;
                let saw = undone.get(seat.place.index()).copied().flatten();
                let saw = saw.map(|saw| saw.0);
                let Some(saw) = saw.filter(|saw| *saw < seat.at.event()) else {
                    continue;
                };
                let floor = Position::Event(saw.max(seat.first));
                match self.last_stop(*i, floor, interrupt)? {
                    Search::Found(later) => {
                        found = later;
                        continue 'again;
                    }
                    Search::Nothing => leave.push((*i, floor)),
                    Search::Interrupted(at) => return self.interrupted(*i, at, &[]),
                }
            }
            for (i, floor) in leave {
                self.seat(i)?.put(floor);
            }
            return self.settle(found);
        }
    }

    /// The first thing that stops a process from here to `limit`.
    fn next_stop(
        &mut self,
        i: usize,
        limit: Position,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let seat = self.seat(i)?;
        let start = seat.at;
        if let Some(known) = &seat.ahead
            && known.stops == seat.stops
            && known.from <= start
        {
            match &known.found {
                Some(found) if start < found.at && found.at <= limit => {
                    return Ok(Search::Found(found.clone()));
                }
                Some(found) if start < found.at => return Ok(Search::Nothing),
                None if limit <= known.to => return Ok(Search::Nothing),
                _ => {}
            }
        }
        let search = self.search(i, limit, interrupt);
        let seat = self.seat(i)?;
        seat.put(start);
        if let Some(known) = learnt(&search, &seat.stops, start, limit) {
            seat.ahead = Some(known);
        }
        search
    }

    fn search(
        &mut self,
        i: usize,
        limit: Position,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let seat = self.here(i)?;
        let (breakpoints, watches) = (seat.breakpoints(), seat.watches());
        let stops = Stops {
            breakpoints: &breakpoints,
            watches: &watches,
            mapped: false,
            conditions: &seat.passable(),
        };
        let next_image = seat.next_image(seat.at.event());
        let within = next_image.map_or(limit, |first| limit.min(Position::Event(first)));
        loop {
            let seat = self.seat(i)?;
            let arrival = seat.session.run_to(&stops, within).map_err(words)?;
            let at = seat.session.position();
            match arrival {
                Arrival::Breakpoint => {
                    if let Some(kind) = breakpoint_here(&seat.session, &seat.stops) {
                        return Ok(self.found(i, StopReason::Breakpoint(kind)));
                    }
                }
                Arrival::Watch(number) => {
                    let reason = seat.watch_reason(number);
                    return Ok(self.found(i, reason));
                }
                Arrival::There | Arrival::End => {
                    return match next_image.filter(|first| at.event() >= *first) {
                        Some(first) => self.enter_image(i, first),
                        None => Ok(Search::Nothing),
                    };
                }
                Arrival::Interrupted => return Ok(Search::Interrupted(at)),
                Arrival::Stepped | Arrival::Mapped => {}
                Arrival::Diverged(difference) => return Err(self.diverged(i, &difference)),
            }
            if interrupt.came() {
                return Ok(Search::Interrupted(at));
            }
        }
    }

    /// The process begins another program, or comes back to the one before.
    fn enter_image(&mut self, i: usize, event: u64) -> Result<Search, String> {
        let was = self.interrupt.arm(false);
        let seat = self.seat(i)?;
        seat.session.go_to(event).map_err(words)?;
        self.interrupt.arm(was);
        let seat = self.seat(i)?;
        let (at, thread) = (seat.session.position(), seat.session.thread());
        let path = self.path_at(i, event).unwrap_or_default();
        Ok(Search::Found(Found {
            seat: i,
            at,
            thread,
            reason: StopReason::Executed(path),
        }))
    }

    /// The last thing that stops a process on its way back to `floor`.
    fn last_stop(
        &mut self,
        i: usize,
        floor: Position,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let seat = self.seat(i)?;
        let start = seat.at;
        if let Some(known) = &seat.behind
            && known.stops == seat.stops
            && start <= known.from
        {
            match &known.found {
                Some(found) if found.at < start && floor <= found.at => {
                    return Ok(Search::Found(found.clone()));
                }
                Some(found) if found.at < start => return Ok(Search::Nothing),
                None if known.to <= floor => return Ok(Search::Nothing),
                _ => {}
            }
        }
        let search = self.search_back(i, floor, interrupt);
        let seat = self.seat(i)?;
        seat.put(start);
        if let Some(known) = learnt(&search, &seat.stops, start, floor) {
            seat.behind = Some(known);
        }
        search
    }

    fn search_back(
        &mut self,
        i: usize,
        floor: Position,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let seat = self.here(i)?;
        let start = seat.at;
        let first = seat.image_begins(start.event());
        let within = floor.max(Position::Event(first));
        let (breakpoints, watches) = (seat.breakpoints(), seat.watches());
        let conditions = seat.has_conditions();
        let passable = seat.passable();
        if within < start && !(breakpoints.is_empty() && watches.is_empty()) {
            let seat = self.seat(i)?;
            let stops = seat.stops.clone();
            let mut wanted = |session: &::replay::Session| {
                let Position::Inside(inside) = session.position() else {
                    return true;
                };
                interrupt.came()
                    || !stops.iter().any(|stop| stop.address == inside.address)
                    || breakpoint_here(session, &stops).is_some()
            };
            let back = seat
                .session
                .run_back_to(
                    &Stops {
                        breakpoints: &breakpoints,
                        watches: &watches,
                        mapped: false,
                        conditions: &passable,
                    },
                    within,
                    conditions.then_some(&mut wanted as &mut Wanted<'_>),
                )
                .map_err(words)?;
            let at = seat.session.position();
            if interrupt.came() {
                return Ok(Search::Interrupted(start));
            }
            match back {
                Back::Breakpoint | Back::Watch(_) if at < within => {}
                Back::Breakpoint => {
                    let kind = breakpoint_here(&seat.session, &seat.stops);
                    let kind = kind.unwrap_or(::gdb_remote::StopKind::Software);
                    return Ok(self.found(i, StopReason::Breakpoint(kind)));
                }
                Back::Watch(number) => {
                    let reason = seat.watch_reason(number);
                    return Ok(self.found(i, reason));
                }
                Back::Interrupted => return Ok(Search::Interrupted(start)),
                Back::Beginning => {}
            }
        }
        let image = self.seat(i)?.image_at(start.event());
        if floor < Position::Event(first) && image > 0 {
            return self.enter_image(i, first.saturating_sub(1));
        }
        Ok(Search::Nothing)
    }

    /// The process stands where something stops it.
    fn found(&mut self, i: usize, reason: StopReason) -> Search {
        match self.seats.get(i) {
            Some(seat) => Search::Found(Found {
                seat: i,
                at: seat.session.position(),
                thread: seat.session.thread(),
                reason,
            }),
            None => Search::Nothing,
        }
    }

    fn diverged(&self, i: usize, difference: &::replay::Difference) -> String {
        let name = self.seats.get(i).map_or("", |seat| seat.name.as_str());
        format!(
            "the replay of {name} came to something else than the recording: expected {}, found {}",
            difference.expected, difference.found
        )
    }

    /// One instruction of a thread, or as many as begin in a range. Meanwhile
    /// others do what they did.
    fn step(
        &mut self,
        i: usize,
        thread: u32,
        range: std::ops::Range<u64>,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let seat = self.here(i)?;
        let start = seat.at;
        let search = self.step_from_here(i, thread, range, interrupt);
        self.seat(i)?.put(start);
        search
    }

    fn step_from_here(
        &mut self,
        i: usize,
        thread: u32,
        range: std::ops::Range<u64>,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let seat = self.seat(i)?;
        let (breakpoints, watches) = (seat.breakpoints(), seat.watches());
        let inside = breakpoints.iter().any(|address| range.contains(address));
        let range = if inside { 0..0 } else { range };
        let next_image = seat.next_image(seat.at.event());
        loop {
            let seat = self.seat(i)?;
            let arrival = if seat.session.thread() == thread {
                seat.session.step_watching(range.clone(), &watches)
            } else {
                let before = seat.session.position();
                let limit = match self.next_turn(i, thread, before.event()) {
                    // The first instruction that it executes then.
                    Some(event) => Position::Inside(Inside {
                        event,
                        transfers: 0,
                        address: 0,
                    }),
                    None => Position::Event(u64::MAX),
                };
                let seat = self.seat(i)?;
                match seat.session.run_watching(&breakpoints, &watches, limit) {
                    Ok(Arrival::There) if seat.session.position() == before => {
                        seat.session.step_watching(0..0, &watches)
                    }
                    other => other,
                }
            };
            let arrival = arrival.map_err(words)?;
            let seat = self.seat(i)?;
            let at = seat.session.position();
            if let Some(first) = next_image.filter(|first| at.event() >= *first) {
                return self.enter_image(i, first);
            }
            match arrival {
                Arrival::Breakpoint => {
                    if let Some(kind) = breakpoint_here(&seat.session, &seat.stops) {
                        return Ok(self.found(i, StopReason::Breakpoint(kind)));
                    }
                }
                Arrival::Watch(number) => {
                    let reason = seat.watch_reason(number);
                    return Ok(self.found(i, reason));
                }
                Arrival::Stepped if seat.session.thread() == thread => {
                    return Ok(self.found(i, StopReason::Arrived));
                }
                Arrival::Stepped | Arrival::There | Arrival::Mapped => {}
                Arrival::End => return Ok(Search::Nothing),
                Arrival::Interrupted => return Ok(Search::Interrupted(at)),
                Arrival::Diverged(difference) => return Err(self.diverged(i, &difference)),
            }
            if interrupt.came() {
                return Ok(Search::Interrupted(at));
            }
        }
    }

    /// The next event of a thread, from one on.
    fn next_turn(&mut self, i: usize, thread: u32, from: u64) -> Option<u64> {
        let turns = self.turns(i);
        let at = turns.partition_point(|(first, _)| *first <= from);
        let mut rest = turns.get(at.saturating_sub(1)..)?.iter();
        rest.find(|(_, whose)| *whose == thread)
            .map(|(first, _)| (*first).max(from))
    }

    /// The last event of a thread before one.
    fn last_turn(&mut self, i: usize, thread: u32, before: u64) -> Option<u64> {
        let turns = self.turns(i);
        let to = turns.partition_point(|(first, _)| *first < before);
        let mut next = before;
        for (first, whose) in turns.get(..to)?.iter().rev() {
            if *whose == thread {
                return Some(next - 1);
            }
            next = *first;
        }
        None
    }

    /// Back by one instruction of a thread.
    fn step_back(
        &mut self,
        i: usize,
        thread: u32,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let start = self.here(i)?.at;
        // It does not take long.
        self.interrupt.arm(false);
        let search = self.step_back_from_here(i, thread, interrupt);
        self.seat(i)?.put(start);
        search
    }

    fn step_back_from_here(
        &mut self,
        i: usize,
        thread: u32,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let seat = self.seat(i)?;
        let start = seat.at;
        let first = seat.image_begins(start.event());
        let image = seat.image_at(start.event());
        loop {
            let seat = self.seat(i)?;
            let event = seat.session.position().event();
            let is_own = seat.session.thread() == thread
                && seat.session.step_instruction_back().map_err(words)?
                && seat.session.thread() == thread;
            if !is_own {
                // What it did last was before others had their turns.
                match self.last_turn(i, thread, event).filter(|e| *e >= first) {
                    Some(last) => {
                        let seat = self.seat(i)?;
                        seat.session.go_to(last).map_err(words)?;
                    }
                    None if image > 0 => return self.enter_image(i, first.saturating_sub(1)),
                    None => return Ok(Search::Nothing),
                }
            }
            // Inside of a call it is between instructions.
            let seat = self.seat(i)?;
            let at = seat.session.position();
            let in_call = matches!(at, Position::Event(_))
                && seat
                    .session
                    .threads()
                    .iter()
                    .any(|state| state.number == thread && state.call.is_some());
            if !in_call {
                return Ok(self.found(i, StopReason::Arrived));
            }
            if interrupt.came() {
                return Ok(Search::Interrupted(start));
            }
        }
    }
}

/// What a search from one place to another leaves known, if it came to an end.
fn learnt(
    search: &Result<Search, String>,
    stops: &[StopPoint],
    from: Position,
    to: Position,
) -> Option<Known> {
    let (to, found) = match search {
        Ok(Search::Found(found)) => (found.at, Some(found.clone())),
        Ok(Search::Nothing) => (to, None),
        Ok(Search::Interrupted(_)) | Err(_) => return None,
    };
    Some(Known {
        stops: stops.to_vec(),
        from,
        to,
        found,
    })
}
