//! Motion of the whole program, as gdb asks for it.
//!
//! If gdb moves one process, only that one moves. If it moves all, the one at
//! hand leads and the others follow no further than they must for the whole to
//! stay consistent: forwards, to what the leader has seen of them; back, to
//! before they saw what is undone. A stop of theirs on that way comes first,
//! so that none is missed and stops come in the order of cause and effect.

use ::gdb_remote::{Direction, Interrupt, Motion, Stop, StopKind, StopReason};
use ::replay::{Arrival, Inside, Position};
use causality::EventId;

use super::program::{Program, stop};

/// Something that stops a process on its way.
struct Found {
    seat: usize,
    at: Position,
    thread: u32,
    reason: StopReason,
}

/// Where a search for one ended.
enum Search {
    Found(Found),
    /// It may go no further, or there is no further.
    Nothing,
    Interrupted,
    /// The replay came to something else than the recording: what to say.
    Diverged(String),
}

impl<'r> Program<'r> {
    pub fn move_by(&mut self, motion: &Motion, interrupt: &Interrupt) -> Result<Stop, String> {
        if let Some(stop) = self.next_queued() {
            return Ok(stop);
        }
        let Some((lead, thread)) = self.thread_number(motion.thread) else {
            return Err("there is no such thread".to_string());
        };
        self.lead = lead;
        let all = motion.process.is_none();
        match (motion.direction, &motion.step) {
            (Direction::Forwards, None) => self.forwards(lead, all, interrupt),
            (Direction::Backwards, None) => self.backwards(lead, all, interrupt),
            (Direction::Forwards, Some(range)) => {
                let before = self.seats.get(lead).map(|seat| seat.at);
                let search = self.step(lead, thread, range.clone(), interrupt)?;
                self.conclude(lead, before, search, all, Direction::Forwards, interrupt)
            }
            (Direction::Backwards, Some(_)) => {
                let before = self.seats.get(lead).map(|seat| seat.at);
                let search = self.step_back(lead, thread, interrupt)?;
                self.conclude(lead, before, search, all, Direction::Backwards, interrupt)
            }
        }
    }

    /// Those that may move, the leader first.
    fn crew(&self, lead: usize, all: bool) -> Vec<usize> {
        let others = (0..self.seats.len()).filter(|i| all && *i != lead);
        std::iter::once(lead)
            .chain(others)
            .filter(|i| self.seats.get(*i).is_some_and(|seat| !seat.is_gone))
            .collect()
    }

    fn forwards(&mut self, lead: usize, all: bool, interrupt: &Interrupt) -> Result<Stop, String> {
        let crew = self.crew(lead, all);
        let before: Vec<Position> = self.seats.iter().map(|seat| seat.at).collect();
        for i in &crew {
            match self.next_stop(*i, Position::Event(u64::MAX), interrupt)? {
                Search::Nothing => {}
                Search::Found(found) => return self.commit(found, &crew, &before, interrupt),
                other => return self.broken_off(*i, other, &before),
            }
            // It has nothing more: so far it stays where it was.
            if let (Some(seat), Some(at)) = (self.seats.get_mut(*i), before.get(*i)) {
                seat.at = *at;
                seat.moved();
            }
        }
        for i in crew {
            if let Some(seat) = self.seats.get_mut(i) {
                seat.at = Position::Event(seat.last + 1);
                seat.moved();
            }
        }
        self.at_hand(lead, StopReason::End)
    }

    fn backwards(&mut self, lead: usize, all: bool, interrupt: &Interrupt) -> Result<Stop, String> {
        let crew = self.crew(lead, all);
        let before: Vec<Position> = self.seats.iter().map(|seat| seat.at).collect();
        for i in &crew {
            let first = self.seats.get(*i).map_or(0, |seat| seat.first);
            match self.last_stop(*i, Position::Event(first), interrupt)? {
                Search::Nothing => {}
                Search::Found(found) => return self.commit_back(found, &crew, &before, interrupt),
                other => return self.broken_off(*i, other, &before),
            }
            if let (Some(seat), Some(at)) = (self.seats.get_mut(*i), before.get(*i)) {
                seat.at = *at;
                seat.moved();
            }
        }
        for i in crew {
            if let Some(seat) = self.seats.get_mut(i) {
                seat.at = Position::Event(seat.first);
                seat.moved();
            }
        }
        self.at_hand(lead, StopReason::Beginning)
    }

    /// A stop of a process where it stands, by the thread that runs there.
    fn at_hand(&mut self, i: usize, reason: StopReason) -> Result<Stop, String> {
        let number = self.here(i)?.session.thread();
        Ok(stop(self.thread_id(i, number), reason))
    }

    /// Nothing was found because something came in between.
    fn broken_off(
        &mut self,
        i: usize,
        search: Search,
        before: &[Position],
    ) -> Result<Stop, String> {
        // What was searched for others' sake goes back.
        for (j, at) in before.iter().enumerate().filter(|(j, _)| *j != i) {
            if let Some(seat) = self.seats.get_mut(j) {
                seat.at = *at;
                seat.moved();
            }
        }
        match search {
            Search::Diverged(words) => Err(words),
            _ => self.at_hand(i, StopReason::Interrupted),
        }
    }

    /// After a step of the leader.
    fn conclude(
        &mut self,
        lead: usize,
        before: Option<Position>,
        search: Search,
        all: bool,
        direction: Direction,
        interrupt: &Interrupt,
    ) -> Result<Stop, String> {
        let mut origin: Vec<Position> = self.seats.iter().map(|seat| seat.at).collect();
        if let (Some(place), Some(before)) = (origin.get_mut(lead), before) {
            *place = before;
        }
        match search {
            Search::Found(found) => {
                let same_stretch = before.is_some_and(|b| b.event() == found.at.event());
                if !all || same_stretch {
                    // Nobody else has seen anything of it.
                    return self.settle(found);
                }
                let crew = self.crew(lead, all);
                match direction {
                    Direction::Forwards => self.commit(found, &crew, &origin, interrupt),
                    Direction::Backwards => self.commit_back(found, &crew, &origin, interrupt),
                }
            }
            Search::Nothing => self.at_hand(
                lead,
                match direction {
                    Direction::Forwards => StopReason::End,
                    Direction::Backwards => StopReason::Beginning,
                },
            ),
            other => self.broken_off(lead, other, &origin),
        }
    }

    /// Somebody stands where it was found.
    fn settle(&mut self, found: Found) -> Result<Stop, String> {
        if let Some(seat) = self.seats.get_mut(found.seat) {
            seat.at = found.at;
            seat.moved();
            let image = seat.image_at(found.at.event());
            if image != seat.told {
                seat.told = image;
                // Breakpoints are gone with the memory they were in.
                seat.stops.clear();
            }
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
        before: &[Position],
        interrupt: &Interrupt,
    ) -> Result<Stop, String> {
        'again: loop {
            let seat = self.seats.get(found.seat);
            let cut = seat.and_then(|seat| self.needed(seat, found.at.event()));
            let mut follow = Vec::new();
            for i in crew.iter().filter(|i| **i != found.seat) {
                let (Some(seat), Some(at)) = (self.seats.get_mut(*i), before.get(*i)) else {
                    continue;
                };
                seat.at = *at;
                let bound = cut.as_ref().map_or(0, |cut| cut.bound(seat.place));
                let bound = bound.min(seat.last + 1);
                if bound <= at.event() {
                    continue;
                }
                match self.next_stop(*i, Position::Event(bound), interrupt)? {
                    Search::Found(earlier) => {
                        if let (Some(seat), Some(at)) =
                            (self.seats.get_mut(found.seat), before.get(found.seat))
                        {
                            seat.at = *at;
                            seat.moved();
                        }
                        found = earlier;
                        continue 'again;
                    }
                    Search::Nothing => follow.push((*i, bound)),
                    other => return self.broken_off(*i, other, before),
                }
            }
            for (i, bound) in follow {
                if let Some(seat) = self.seats.get_mut(i) {
                    seat.at = Position::Event(bound);
                    seat.moved();
                }
            }
            return self.settle(found);
        }
    }

    /// The same backwards: others leave what they have seen of what is undone.
    fn commit_back(
        &mut self,
        mut found: Found,
        crew: &[usize],
        before: &[Position],
        interrupt: &Interrupt,
    ) -> Result<Stop, String> {
        'again: loop {
            let undone = self.seats.get(found.seat).map(|seat| {
                let event = found.at.event();
                (event <= seat.last).then(|| self.history.future(EventId::new(seat.place, event)))
            });
            let undone = undone.flatten();
            let mut follow = Vec::new();
            for i in crew.iter().filter(|i| **i != found.seat) {
                let (Some(seat), Some(at)) = (self.seats.get_mut(*i), before.get(*i)) else {
                    continue;
                };
                seat.at = *at;
                let saw = undone.as_ref().and_then(|undone| {
                    let first = undone.get(seat.place as usize)?;
                    first.filter(|first| *first < at.event())
                });
                let Some(saw) = saw else { continue };
                let saw = saw.max(seat.first);
                match self.last_stop(*i, Position::Event(saw), interrupt)? {
                    Search::Found(later) => {
                        if let (Some(seat), Some(at)) =
                            (self.seats.get_mut(found.seat), before.get(found.seat))
                        {
                            seat.at = *at;
                            seat.moved();
                        }
                        found = later;
                        continue 'again;
                    }
                    Search::Nothing => follow.push((*i, saw)),
                    other => return self.broken_off(*i, other, before),
                }
            }
            for (i, saw) in follow {
                if let Some(seat) = self.seats.get_mut(i) {
                    seat.at = Position::Event(saw);
                    seat.moved();
                }
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
        loop {
            let seat = self.here(i)?;
            seat.moved();
            let addresses = seat.breakpoints();
            let next_image = seat.images.get(seat.image_at(seat.at.event()) + 1);
            let next_image = next_image.map(|image| image.first);
            let within = next_image.map_or(limit, |first| limit.min(Position::Event(first)));
            let flag = seat.session.interrupter();
            self.poker.aim(flag);
            let seat = self.here(i)?;
            let arrival = seat
                .session
                .run(&addresses, within)
                .map_err(|error| error.to_string())?;
            seat.at = seat.session.position();
            let arrived = seat.at;
            match arrival {
                Arrival::Breakpoint => {
                    if let Some(kind) = self.holds(i) {
                        return Ok(self.found(i, StopReason::Breakpoint(kind)));
                    }
                }
                Arrival::There | Arrival::End => {
                    if let Some(first) = next_image.filter(|first| arrived.event() >= *first) {
                        return self.enter_image(i, first);
                    }
                    return Ok(Search::Nothing);
                }
                Arrival::Interrupted => return Ok(Search::Interrupted),
                Arrival::Stepped => {}
                Arrival::Diverged(difference) => return Ok(self.diverged(i, &difference)),
            }
            if interrupt.came() {
                return Ok(Search::Interrupted);
            }
        }
    }

    /// The process begins another program.
    fn enter_image(&mut self, i: usize, event: u64) -> Result<Search, String> {
        let Some(seat) = self.seats.get_mut(i) else {
            return Ok(Search::Nothing);
        };
        seat.session
            .go_to(event)
            .map_err(|error| error.to_string())?;
        seat.at = seat.session.position();
        seat.moved();
        let path = self.path_of(i).unwrap_or_default();
        Ok(self.found(i, StopReason::Executed(path)))
    }

    /// The last thing that stops a process on its way back to `floor`.
    fn last_stop(
        &mut self,
        i: usize,
        floor: Position,
        interrupt: &Interrupt,
    ) -> Result<Search, String> {
        let seat = self.here(i)?;
        let here = seat.at;
        let addresses = seat.breakpoints();
        let image = seat.image_at(here.event());
        let first = seat.images.get(image).map_or(seat.first, |i| i.first);
        let within = floor.max(Position::Event(first));
        let flag = seat.session.interrupter();
        self.poker.aim(flag);
        let mut limit = here;
        while !addresses.is_empty() && within < limit {
            // From the last checkpoint before the limit to the limit.
            let seat = self.here(i)?;
            let before = seat
                .session
                .checkpoints()
                .into_iter()
                .map(|checkpoint| checkpoint.event)
                .filter(|event| Position::Event(*event) < limit)
                .max();
            let from = before.unwrap_or(first).max(within.event());
            seat.session
                .go_to(from)
                .map_err(|error| error.to_string())?;
            let start = seat.session.position();
            let mut last = None;
            loop {
                let seat = match self.seats.get_mut(i) {
                    Some(seat) => seat,
                    None => return Ok(Search::Nothing),
                };
                let arrival = seat
                    .session
                    .run(&addresses, limit)
                    .map_err(|error| error.to_string())?;
                seat.at = seat.session.position();
                seat.moved();
                let at = seat.at;
                match arrival {
                    Arrival::Breakpoint if at < limit => {
                        if let Some(kind) = self.holds(i)
                            && let Search::Found(found) =
                                self.found(i, StopReason::Breakpoint(kind))
                        {
                            last = Some(found);
                        }
                    }
                    Arrival::Interrupted => {
                        self.put(i, here);
                        return Ok(Search::Interrupted);
                    }
                    Arrival::Diverged(difference) => return Ok(self.diverged(i, &difference)),
                    _ => break,
                }
                if interrupt.came() {
                    self.put(i, here);
                    return Ok(Search::Interrupted);
                }
            }
            if let Some(found) = last {
                self.put(i, found.at);
                return Ok(Search::Found(found));
            }
            if start >= limit || start <= within {
                break;
            }
            limit = start;
        }
        self.put(i, here);
        if floor < Position::Event(first) && image > 0 {
            // Back into the program that it ran before.
            let before = first.saturating_sub(1);
            self.put(i, Position::Event(before));
            self.here(i)?;
            let path = self.path_of(i).unwrap_or_default();
            return Ok(self.found(i, StopReason::Executed(path)));
        }
        Ok(Search::Nothing)
    }

    /// Says where a process is.
    fn put(&mut self, i: usize, at: Position) {
        if let Some(seat) = self.seats.get_mut(i) {
            seat.at = at;
            seat.moved();
        }
    }

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

    fn diverged(&self, i: usize, difference: &::replay::Difference) -> Search {
        let name = self.seats.get(i).map_or("", |seat| seat.name.as_str());
        Search::Diverged(format!(
            "the replay of {name} came to something else than the recording: expected {}, found {}",
            difference.expected, difference.found
        ))
    }

    /// Whether the breakpoint at hand is one to stop at, and of which kind.
    fn holds(&mut self, i: usize) -> Option<StopKind> {
        let seat = self.seats.get(i)?;
        let Position::Inside(inside) = seat.session.position() else {
            return None;
        };
        let stop = seat.stops.iter().find(|stop| {
            stop.address == inside.address
                && matches!(stop.kind, StopKind::Software | StopKind::Hardware)
        })?;
        Some(stop.kind)
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
        let addresses = seat.breakpoints();
        let inside = addresses.iter().any(|address| range.contains(address));
        let range = if inside { 0..0 } else { range };
        let image = seat.image_at(seat.at.event());
        let flag = seat.session.interrupter();
        self.poker.aim(flag);
        loop {
            let Some(seat) = self.seats.get_mut(i) else {
                return Ok(Search::Nothing);
            };
            let arrival = if seat.session.thread() == thread {
                seat.session.step(range.clone())
            } else {
                let next = self.next_turn(i, thread);
                let Some(seat) = self.seats.get_mut(i) else {
                    return Ok(Search::Nothing);
                };
                let before = seat.session.position();
                let limit = match next {
                    // The first instruction that it executes then.
                    Some(event) => Position::Inside(Inside {
                        event,
                        transfers: 0,
                        address: 0,
                    }),
                    None => Position::Event(u64::MAX),
                };
                match seat.session.run(&addresses, limit) {
                    Ok(Arrival::There) if seat.session.position() == before => {
                        seat.session.step(0..0)
                    }
                    other => other,
                }
            };
            let arrival = arrival.map_err(|error| error.to_string())?;
            let Some(seat) = self.seats.get_mut(i) else {
                return Ok(Search::Nothing);
            };
            seat.at = seat.session.position();
            seat.moved();
            let event = seat.at.event();
            let entered = seat.image_at(event);
            if entered != image {
                let first = seat.images.get(entered).map_or(event, |image| image.first);
                return self.enter_image(i, first);
            }
            let is_there = seat.session.thread() == thread;
            match arrival {
                Arrival::Breakpoint => {
                    if let Some(kind) = self.holds(i) {
                        return Ok(self.found(i, StopReason::Breakpoint(kind)));
                    }
                }
                Arrival::Stepped if is_there => return Ok(self.found(i, StopReason::Arrived)),
                Arrival::Stepped | Arrival::There => {}
                Arrival::End => return Ok(Search::Nothing),
                Arrival::Interrupted => return Ok(Search::Interrupted),
                Arrival::Diverged(difference) => return Ok(self.diverged(i, &difference)),
            }
            if interrupt.came() {
                return Ok(Search::Interrupted);
            }
        }
    }

    /// The next event of a thread, from where its process stands.
    fn next_turn(&mut self, i: usize, thread: u32) -> Option<u64> {
        let now = self.seats.get(i)?.at.event();
        let turns = self.turns(i);
        let from = turns.partition_point(|(first, _)| *first <= now);
        let mut rest = turns.get(from.saturating_sub(1)..)?.iter();
        rest.find(|(_, whose)| *whose == thread)
            .map(|(first, _)| (*first).max(now))
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
        let seat = self.here(i)?;
        let here = seat.at;
        let flag = seat.session.interrupter();
        self.poker.aim(flag);
        loop {
            let seat = self.here(i)?;
            let at = seat.at;
            let image = seat.image_at(at.event());
            let first = seat.images.get(image).map_or(seat.first, |i| i.first);
            let moved = if seat.session.thread() == thread {
                seat.session
                    .step_back()
                    .map_err(|error| error.to_string())?
            } else {
                false
            };
            let seat = self.here_again(i)?;
            if seat.at.event() <= first && seat.at == at && image > 0 {
                self.put(i, Position::Event(first.saturating_sub(1)));
                self.here(i)?;
                let path = self.path_of(i).unwrap_or_default();
                return Ok(self.found(i, StopReason::Executed(path)));
            }
            let is_own = seat.session.thread() == thread;
            if !moved || !is_own {
                // What it did last was before others had their turns.
                let event = at.event();
                let Some(last) = self.last_turn(i, thread, event).filter(|e| *e >= first) else {
                    self.put(i, Position::Event(first));
                    return match at == Position::Event(first) || here == at {
                        true => Ok(Search::Nothing),
                        false => {
                            self.here(i)?;
                            Ok(self.found(i, StopReason::Arrived))
                        }
                    };
                };
                self.put(i, Position::Event(last));
                self.here(i)?;
            }
            // Inside of a call it is between instructions.
            let in_call = self
                .states(i)
                .iter()
                .any(|state| state.number == thread && state.call.is_some());
            let at = self.here(i)?.at;
            if !in_call || !matches!(at, Position::Event(_)) {
                return Ok(self.found(i, StopReason::Arrived));
            }
            if interrupt.came() {
                self.put(i, here);
                return Ok(Search::Interrupted);
            }
        }
    }

    /// A process that was moved is said to be where it is.
    fn here_again(&mut self, i: usize) -> Result<&mut super::program::Seat<'r>, String> {
        match self.seats.get_mut(i) {
            Some(seat) => {
                seat.at = seat.session.position();
                seat.moved();
                Ok(seat)
            }
            None => Err("there is no such process".to_string()),
        }
    }
}
