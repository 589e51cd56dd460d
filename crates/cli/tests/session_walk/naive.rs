//! A debugger that only ever takes single steps: it walks each process once, from its
//! beginning to its end, and writes down where everything is. All that a motion comes
//! to is then looked up in lists.

use std::collections::HashMap;
use std::sync::Arc;

use causality::{EventId, History};
use inspect::{Inspector, Library, Options, ThreadId};
use protocol::id::{Addr, EventNo, ProcessId, ProcessIx};
use recording::Recording;
use replay::Replayer;
use session::Follow;
use target::{Arrival, Cancel, ONE_INSTRUCTION, Opener, Position, Target};

pub const FUNCTIONS: [&str; 3] = ["sent", "got", "again"];

/// What stops a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Function(usize),
    /// A change of `total`, in which of its programs.
    Changed(usize),
}

/// Where in the source a position is, and in which frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    cfa: Addr,
    function: String,
    line: u32,
    /// A line begins there: as one stops at, and as tables of lines have it.
    begins: bool,
    is_row: bool,
    /// The function was just called, and where one stops in it.
    is_entry: bool,
    is_body: bool,
}

/// The run of one process.
pub struct Walked {
    pub id: ProcessId,
    pub first: EventNo,
    pub last: EventNo,
    /// Everywhere it was, in order.
    pub positions: Vec<Position>,
    /// Where those are in the source: all that have lines.
    spots: Vec<Option<Spot>>,
    /// Which of its programs it executed at each.
    images: Vec<usize>,
    /// Where it stops going forwards, in order.
    pub stops: Vec<(Position, Kind)>,
    /// Where it stands when it goes back over a change: before it.
    pub before_change: HashMap<Position, Position>,
    /// Where `total` is, in the last of its programs.
    pub total: Option<Addr>,
}

impl Walked {
    /// Where a position is among all.
    fn index(&self, at: Position) -> Option<usize> {
        self.positions.binary_search(&at).ok()
    }

    /// The program that it executes at a position.
    pub fn image(&self, at: Position) -> usize {
        let after = self.positions.partition_point(|p| *p <= at);
        self.images[after.saturating_sub(1)]
    }

    /// Whether lines can be stepped from there.
    pub fn has_line(&self, at: Position) -> bool {
        self.index(at).is_some_and(|i| self.spots[i].is_some())
    }

    /// Where the next line begins; with `into`, in a function that is called, where
    /// one stops in that. None: it does not come to one.
    fn next_line(&self, from: Position, into: bool) -> Option<Position> {
        let now = self.index(from)?;
        let start = self.spots[now].as_ref()?;
        for i in now + 1..self.positions.len() {
            if self.images[i] != self.images[now] {
                // The program that it was in is over.
                return Some(self.positions[i]);
            }
            let Some(spot) = &self.spots[i] else { continue };
            let is_there = if spot.cfa < start.cfa {
                into && spot.is_body
            } else if spot.cfa > start.cfa {
                true
            } else {
                spot.begins && (spot.line, &spot.function) != (start.line, &start.function)
            };
            if is_there {
                return Some(self.positions[i]);
            }
        }
        None
    }

    /// From a call, where the line began that it is in, if it is in one.
    fn calling_line(&self, call: usize) -> Position {
        let at = self.positions[call];
        let in_a_line = self.spots[call].as_ref().is_some_and(|spot| !spot.begins);
        let line = in_a_line.then(|| self.last_line(at)).flatten();
        line.unwrap_or(at)
    }

    /// Where the line before began in the same frame; before the first, the line that
    /// called the function.
    fn last_line(&self, from: Position) -> Option<Position> {
        let now = self.index(from)?;
        let start = self.spots[now].as_ref()?;
        if start.is_entry {
            return now.checked_sub(1).map(|i| self.calling_line(i));
        }
        let mut found: Option<(Position, u32)> = None;
        for i in (0..now).rev() {
            let Some(spot) = &self.spots[i] else { continue };
            if (spot.cfa, &spot.function) != (start.cfa, &start.function) {
                continue;
            }
            if spot.is_entry {
                let call = i.checked_sub(1).map(|i| self.calling_line(i));
                return found.map(|(at, _)| at).or(call);
            }
            if spot.is_row {
                match found {
                    Some((at, line)) if line != spot.line => return Some(at),
                    _ => found = Some((self.positions[i], spot.line)),
                }
            }
        }
        None
    }
}

/// Looks a position up in the source.
fn spot(inspector: &Inspector<'_>, target: &dyn Target) -> Option<Spot> {
    let stack = inspector.stack(ThreadId(target.thread().0), 1).ok()?;
    let frame = stack.frames.first()?;
    let line = frame.place.as_ref()?.line;
    let (function, begins) = inspector.function_name(frame.pc)?;
    let module = inspector.module_at(frame.pc)?;
    Some(Spot {
        cfa: frame.cfa?,
        function,
        line,
        begins: !frame.inside_line,
        is_row: inspector.line_starts(frame.pc).contains(&frame.pc),
        is_entry: frame.pc == begins,
        is_body: frame.pc == inspector.body_of(&module, module.to_link(begins)),
    })
}

/// Walks a process from its beginning to its end by single steps. What is where is
/// looked up whenever other code is mapped.
fn walk(opener: &dyn Opener, id: ProcessId, span: (EventNo, EventNo)) -> Walked {
    let never = Cancel::new();
    let mut target = opener.open(id, &never).unwrap();
    let library = Library::new(Options::default());
    let mut walked = Walked {
        id,
        first: span.0,
        last: span.1,
        positions: vec![target.position()],
        spots: vec![None],
        images: vec![target.maps_version().image],
        stops: Vec::new(),
        before_change: HashMap::new(),
        total: None,
    };
    let mut known = None;
    let (mut entries, mut total) = (Vec::new(), None);
    let mut value = None;
    // Whether code has lines, by its address, in one program.
    let mut lined: HashMap<(usize, Addr), bool> = HashMap::new();
    loop {
        let maps = target.maps_version();
        if known != Some(maps) {
            let image = known.map(|known: target::MapsVersion| known.image);
            known = Some(maps);
            let looked = target.look();
            let inspector = Inspector::new(&library, &*looked);
            entries = FUNCTIONS
                .iter()
                .enumerate()
                .filter_map(|(i, name)| {
                    let found = inspector.resolve(name, None).ok()?;
                    Some((found.first()?.address, i))
                })
                .collect::<Vec<_>>();
            let globals = inspector.globals("total", None);
            total = globals.first().and_then(|(_, module)| {
                let symbols = module.module.symbols().all();
                let symbol = symbols.iter().find(|s| s.demangled() == "total")?;
                Some(module.to_process(symbol.address))
            });
            if image != Some(maps.image) {
                value = None;
            }
        }
        let read = |target: &dyn Target, address: Addr| {
            let mut word = [0; 8];
            (target.read(address, &mut word) == 8).then(|| u64::from_le_bytes(word))
        };
        if value.is_none() {
            value = total.and_then(|address| read(&*target, address));
        }
        let arrival = target.step(ONE_INSTRUCTION, &[], &never).unwrap();
        let at = target.position();
        let before = *walked.positions.last().unwrap();
        let maps_now = target.maps_version();
        if at != before {
            walked.positions.push(at);
            walked.images.push(maps_now.image);
            let pc = target
                .running()
                .map_or(Addr::NULL, |thread| thread.registers.pc());
            let has_line = *lined.entry((maps_now.image, pc)).or_insert_with(|| {
                let looked = target.look();
                let inspector = Inspector::new(&library, &*looked);
                inspector.line_at(pc).is_some()
            });
            walked.spots.push(if has_line {
                let looked = target.look();
                spot(&Inspector::new(&library, &*looked), &*target)
            } else {
                None
            });
        }
        let now = total.and_then(|address| read(&*target, address));
        if maps_now.image == maps.image && now.is_some() && value.is_some() && now != value {
            walked.stops.push((at, Kind::Changed(maps.image)));
            walked.before_change.insert(at, before);
        }
        value = now;
        if let Some(address) = at.address()
            && let Some((_, i)) = entries.iter().find(|(entry, _)| *entry == address)
            && maps_now == maps
        {
            walked.stops.push((at, Kind::Function(*i)));
        }
        match arrival {
            Arrival::Stepped => {}
            Arrival::End => break,
            other => panic!("{other:?} at {at:?}"),
        }
    }
    walked.total = total;
    walked
}

/// On which side of the stop that a process stands at the program is. It stood there when
/// the program moved on, and its position does not say whether that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Going forwards, the program comes to it again.
    Before,
    /// Going back, it does.
    Behind,
}

/// Who stopped, in the order in which a user saw it. Causes do not order stops of
/// processes that know nothing of each other: who goes back is to see them in the reverse
/// order, and then in the same one again.
#[derive(Debug, Default)]
struct Seen {
    stops: Vec<usize>,
    /// Those before this are behind, the others ahead.
    now: usize,
}

impl Seen {
    /// Who stops next, as far as it has been seen.
    fn next(&self, back: bool) -> Option<usize> {
        let at = match back {
            true => self.now.checked_sub(1)?,
            false => self.now,
        };
        self.stops.get(at).copied()
    }

    /// The program leaves a stop.
    fn leave(&mut self, i: usize, back: bool) {
        self.stops.insert(self.now, i);
        self.now += usize::from(!back);
    }

    /// The program comes to a stop: as before, or another way, on which nothing was seen.
    fn come(&mut self, i: usize, back: bool) {
        let is_known = self.next(back) == Some(i);
        match (back, is_known) {
            (true, true) => {
                self.now -= 1;
                self.stops.remove(self.now);
            }
            (false, true) => _ = self.stops.remove(self.now),
            (true, false) => _ = self.stops.drain(..std::mem::take(&mut self.now)),
            (false, false) => self.stops.truncate(self.now),
        }
    }
}

/// Lists of stops, and the order of cause and effect.
pub struct Naive {
    pub history: History,
    pub runs: Vec<Walked>,
    pub at: Vec<Position>,
    /// Which functions have a breakpoint.
    pub broken: [bool; 3],
    /// In which program of which process `total` is watched.
    pub watched: Vec<(usize, usize)>,
    seen: Seen,
    /// Of each process, if it stands at a stop.
    sides: Vec<Option<Side>>,
    /// Who moved last, and whether it stopped at something.
    last: Option<(usize, bool)>,
}

impl Naive {
    pub fn new(recording: &Arc<Recording>) -> Naive {
        let history = History::open(recording, &|_| {}).unwrap();
        let opener = Replayer::new(history.set());
        let runs: Vec<Walked> = recording
            .processes()
            .iter()
            .zip(0u32..)
            .map(|(process, place)| {
                let id = process.number.of_member(0);
                walk(&opener, id, history.span(ProcessIx(place)))
            })
            .collect();
        let at = runs.iter().map(|run| Position::Event(run.first)).collect();
        Naive {
            history,
            runs,
            at,
            broken: [false; 3],
            watched: Vec::new(),
            seen: Seen::default(),
            sides: Vec::new(),
            last: None,
        }
    }

    /// Everything from the beginning: where everybody is, and nothing to stop at.
    pub fn begin(&mut self, at: Vec<Position>) {
        (self.broken, self.watched) = ([false; 3], Vec::new());
        (self.seen, self.last) = (Seen::default(), None);
        self.sides = vec![None; at.len()];
        self.at = at;
    }

    /// A motion begins.
    pub fn set_out(&mut self, lead: usize, back: bool) {
        if let Some((i, true)) = self.last {
            self.seen.leave(i, back);
            if !self.functions(i).is_empty() {
                self.sides[i] = Some(if back { Side::Before } else { Side::Behind });
            }
        }
        if self.last.is_none_or(|(i, _)| i != lead) {
            // Who is chosen goes on from where it is, whatever was seen before.
            self.seen = Seen::default();
            self.sides[lead] = None;
        }
    }

    /// A motion has ended, at something that is stopped at or elsewhere.
    pub fn arrive(&mut self, i: usize, is_stop: bool, back: bool) {
        if is_stop {
            self.seen.come(i, back);
        }
        self.sides[i] = None;
        self.last = Some((i, is_stop));
    }

    /// The functions with a breakpoint that a process has just come to.
    pub fn functions(&self, i: usize) -> Vec<Kind> {
        let mut kinds = self.kinds(i, self.at[i], false);
        kinds.retain(|kind| matches!(kind, Kind::Function(_)));
        kinds
    }

    /// Whether a process stands at a stop that whoever goes one way comes to.
    fn stands(&self, i: usize, back: bool) -> bool {
        let side = if back { Side::Behind } else { Side::Before };
        self.sides[i] == Some(side) && !self.functions(i).is_empty()
    }

    fn put(&mut self, i: usize, at: Position) {
        if self.at[i] != at {
            self.at[i] = at;
            self.sides[i] = None;
        }
    }

    /// Everybody is where the library says: at an end of the run.
    pub fn put_all(&mut self, at: &[Position]) {
        for (i, at) in at.iter().enumerate() {
            self.put(i, *at);
        }
    }

    pub fn end(&self, i: usize) -> Position {
        Position::Event(self.runs[i].last.next())
    }

    fn is_on(&self, i: usize, kind: Kind) -> bool {
        match kind {
            Kind::Function(function) => self.broken[function],
            Kind::Changed(image) => self.watched.contains(&(i, image)),
        }
    }

    /// What stops a process at a position, going one way.
    pub fn kinds(&self, i: usize, at: Position, back: bool) -> Vec<Kind> {
        let stops = self.runs[i].stops.iter();
        let here = stops.filter(|(stop, kind)| match kind {
            Kind::Changed(_) if back => self.runs[i].before_change[stop] == at,
            _ => *stop == at,
        });
        let on = here.filter(|(_, kind)| self.is_on(i, *kind));
        on.map(|(_, kind)| *kind).collect()
    }

    fn next(&self, i: usize, limit: Position) -> Option<Position> {
        if self.stands(i, false) && self.at[i] <= limit {
            return Some(self.at[i]);
        }
        let stops = self.runs[i].stops.iter();
        let mut stops = stops.filter(|(_, kind)| self.is_on(i, *kind));
        stops
            .find(|(at, _)| *at > self.at[i] && *at <= limit)
            .map(|(at, _)| *at)
    }

    /// What stops a process last on its way back.
    pub fn last(&self, i: usize, floor: Position) -> Option<Position> {
        if self.stands(i, true) && self.at[i] >= floor {
            return Some(self.at[i]);
        }
        let stops = self.runs[i].stops.iter();
        let stops = stops.filter(|(_, kind)| self.is_on(i, *kind));
        let stops = stops.map(|(at, kind)| match kind {
            Kind::Function(_) => *at,
            Kind::Changed(_) => self.runs[i].before_change[at],
        });
        stops.filter(|at| *at < self.at[i] && *at >= floor).max()
    }

    /// How far the others must have come.
    fn needed(&self, i: usize, at: Position) -> Vec<u64> {
        let cut = self.done(i, at).map(|event| self.history.past(event));
        (0..self.runs.len())
            .map(|j| {
                let bound = cut
                    .as_ref()
                    .map_or(0, |cut| cut.bound(ProcessIx(j as u32)).0);
                bound.min(self.runs[j].last.0 + 1)
            })
            .collect()
    }

    /// The last event that a process has done at a position.
    fn done(&self, i: usize, at: Position) -> Option<EventId> {
        let run = &self.runs[i];
        let done = at.event().0.min(run.last.0 + 1).checked_sub(1);
        done.filter(|done| *done >= run.first.0)
            .map(|done| EventId::new(ProcessIx(i as u32), EventNo(done)))
    }

    /// A process is to stop at a position: who does, where, is made so.
    fn commit(&mut self, i: usize, at: Position, crew: &[usize], follow: Follow) -> usize {
        let (mut i, mut at) = (i, at);
        'again: loop {
            let needed = self.needed(i, at);
            for j in crew.iter().copied().filter(|j| *j != i) {
                let bound = Position::Event(EventNo(needed[j]));
                if needed[j] > self.at[j].event().0
                    && let Some(earlier) = self.next(j, bound)
                {
                    (i, at) = (j, earlier);
                    continue 'again;
                }
            }
            for j in crew.iter().copied().filter(|j| *j != i) {
                if needed[j] > self.at[j].event().0 {
                    self.put(j, Position::Event(EventNo(needed[j])));
                }
            }
            self.put(i, at);
            if follow == Follow::Consistent {
                self.follow_far(i, at, crew);
            }
            return i;
        }
    }

    /// The others go as far as they can: not past what stops them, nor past what has
    /// seen somebody beyond that.
    fn follow_far(&mut self, i: usize, at: Position, crew: &[usize]) {
        let none = EventId::new(ProcessIx(i as u32), self.runs[i].first);
        let cut = self.history.latest(self.done(i, at).unwrap_or(none));
        let mut bounds: HashMap<usize, u64> = HashMap::new();
        let mut halted = Vec::new();
        for j in crew.iter().copied().filter(|j| *j != i) {
            let bound = cut
                .bound(ProcessIx(j as u32))
                .0
                .min(self.runs[j].last.0 + 1);
            if bound <= self.at[j].event().0 {
                continue;
            }
            let stop = self.next(j, Position::Event(EventNo(bound)));
            let bound = stop.map_or(bound, |stop| stop.event().0.saturating_sub(1));
            if stop.is_some() {
                halted.push((j, bound));
            }
            bounds.insert(j, bound);
        }
        for (halted, event) in halted {
            let event = EventId::new(ProcessIx(halted as u32), EventNo(event));
            let saw = self.history.future(event);
            for (j, bound) in &mut bounds {
                if *j != halted
                    && let Some(saw) = saw[*j]
                {
                    *bound = (*bound).min(saw.0);
                }
            }
        }
        for (j, bound) in bounds {
            if bound > self.at[j].event().0 {
                self.put(j, Position::Event(EventNo(bound)));
            }
        }
    }

    /// The process that stops, if one does.
    pub fn forwards(&mut self, lead: usize, all: bool, follow: Follow) -> Option<usize> {
        let crew = self.crew(lead, all, false);
        let found = crew
            .iter()
            .find_map(|i| Some((*i, self.next(*i, Position::END)?)));
        let Some((i, at)) = found else {
            for i in crew {
                self.put(i, self.end(i));
            }
            return None;
        };
        Some(self.commit(i, at, &crew, follow))
    }

    pub fn backwards(&mut self, lead: usize, all: bool) -> Option<usize> {
        let crew = self.crew(lead, all, true);
        let found = crew
            .iter()
            .find_map(|i| Some((*i, self.last(*i, Position::START)?)));
        let Some((i, at)) = found else {
            for i in crew {
                self.put(i, Position::Event(self.runs[i].first));
            }
            return None;
        };
        Some(self.commit_back(i, at, &crew))
    }

    fn commit_back(&mut self, i: usize, at: Position, crew: &[usize]) -> usize {
        let (mut i, mut at) = (i, at);
        'again: loop {
            let event = at.event().0;
            let undone = match event <= self.runs[i].last.0 {
                true => self
                    .history
                    .future(EventId::new(ProcessIx(i as u32), EventNo(event))),
                false => Vec::new(),
            };
            let mut leave = Vec::new();
            for j in crew.iter().copied().filter(|j| *j != i) {
                let saw = undone.get(j).copied().flatten().map(|saw| saw.0);
                let Some(saw) = saw.filter(|saw| *saw < self.at[j].event().0) else {
                    continue;
                };
                let floor = Position::Event(EventNo(saw.max(self.runs[j].first.0)));
                if let Some(later) = self.last(j, floor) {
                    (i, at) = (j, later);
                    continue 'again;
                }
                leave.push((j, floor));
            }
            for (j, floor) in leave {
                self.put(j, floor);
            }
            self.put(i, at);
            return i;
        }
    }

    /// Who may move, in the order in which they are asked: who stopped there when it was
    /// seen before, then the leader.
    fn crew(&self, lead: usize, all: bool, back: bool) -> Vec<usize> {
        let others = (0..self.runs.len()).filter(|i| all && *i != lead);
        let mut crew: Vec<usize> = std::iter::once(lead).chain(others).collect();
        if let Some(first) = self.seen.next(back) {
            crew.sort_by_key(|i| *i != first);
        }
        crew
    }

    /// A step of the leader to a position, unless somebody stops before it.
    pub fn step_to(
        &mut self,
        lead: usize,
        goal: Position,
        all: bool,
        follow: Follow,
        back: bool,
    ) -> usize {
        let crew = self.crew(lead, all, back);
        let at = match back {
            true => goal,
            false => self.next(lead, goal).unwrap_or(goal),
        };
        if at.event() == self.at[lead].event() {
            // Nobody has seen anything of it.
            self.put(lead, at);
            return lead;
        }
        match back {
            true => self.commit_back(lead, at, &crew),
            false => self.commit(lead, at, &crew, follow),
        }
    }

    /// Where a process may be after a line: forwards, into functions or over them, or
    /// back over them.
    pub fn line(&self, i: usize, into: bool, back: bool) -> Option<Position> {
        let (run, at) = (&self.runs[i], self.at[i]);
        match back {
            true => run.last_line(at),
            false => run.next_line(at, into).or(Some(self.end(i))),
        }
    }

    /// Where a process may be after one instruction; nowhere: it is at its end, or
    /// at its beginning.
    pub fn step(&self, i: usize, back: bool) -> Vec<Position> {
        let (positions, now) = (&self.runs[i].positions, self.at[i]);
        if !back {
            let next = positions.iter().find(|p| **p > now);
            return next.copied().into_iter().collect();
        }
        let before = positions.partition_point(|p| *p < now);
        let mut found: Vec<Position> = positions[..before].iter().rev().copied().collect();
        match now {
            // The instruction that the event befell, or the one before that, if it
            // was not executed: both are one back.
            Position::Event(_) => found.truncate(2),
            Position::Inside(_) | Position::Halted(_) => found.truncate(1),
        }
        // Going back, an event has a place of its own, behind the way to it.
        let event = now
            .event()
            .0
            .checked_sub(1)
            .map(|e| Position::Event(EventNo(e)));
        let event = event.filter(|event| *event < now && event.event() >= self.runs[i].first);
        if let Some(event) = event
            && found.first().is_none_or(|found| *found <= event)
        {
            found = vec![event];
        }
        found
    }
}
