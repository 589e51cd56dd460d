//! What happened, in causal order, with clocks.
//!
//! Moments of all processes become one sequence: no effect stands before its
//! cause, and where causes leave it open, what was recorded earlier stands
//! earlier. With each comes the clock of its process, so that any two moments
//! of the sequence can be ordered without looking at the history again.
//!
//! A clock only changes where a process is told something new. It is kept
//! behind an [`Rc`] that is shared until then; what a process knew when it sent
//! is kept until all that was sent has arrived.
#![allow(clippy::indexing_slicing)] // Tables with a row for each process.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use crate::history::{At, Cursor, History};

/// What a process knew of the others: of each, how many events.
pub type Clock = Rc<[u32]>;

/// A moment that somebody is interested in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where in its process.
    pub at: At,
    /// When it was recorded, in nanoseconds.
    pub time: u64,
}

/// A moment in the sequence.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Its process.
    pub process: usize,
    /// Its place among the marks of its process.
    pub index: usize,
    /// Its place in the sequence.
    pub order: usize,
    /// Where in its process.
    pub at: At,
    /// When it was recorded.
    pub time: u64,
    /// What its process knew of the others.
    pub clock: Clock,
}

impl Moment {
    /// Whether something in a process happened before this.
    pub fn is_after(&self, process: usize, at: At) -> bool {
        if process == self.process {
            at < self.at
        } else {
            self.clock
                .get(process)
                .is_some_and(|known| *known >= at.needs())
        }
    }
}

struct Sent {
    cause: u32,
    clock: Clock,
    left: u32,
}

struct Lane {
    clock: Clock,
    /// Events before this have been passed.
    reached: u32,
    incoming: Cursor,
    outgoing: Cursor,
    sent: VecDeque<Sent>,
    next: usize,
}

/// Whose mark comes when, and which of its marks it is: as one number, by time and then by
/// process, because the heap compares them all the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn(u128);

impl Turn {
    fn new(mark: &Mark, process: usize, index: usize) -> Turn {
        let whose = (process as u64) << 32 | index as u64;
        Turn(u128::from(mark.time) << 64 | u128::from(whose))
    }

    fn whose(self) -> (usize, usize) {
        let whose = self.0 as u64;
        ((whose >> 32) as usize, (whose & 0xffff_ffff) as usize)
    }
}

/// The sequence.
pub struct Stream<'h, H: ?Sized> {
    history: &'h H,
    /// Whether moments come with clocks.
    has_clocks: bool,
    marks: &'h [Vec<Mark>],
    lanes: Vec<Lane>,
    /// How far each must come for the last mark to have its clock.
    needed: Vec<u32>,
    heap: BinaryHeap<Reverse<Turn>>,
    emitted: usize,
    /// Who has to get where before what is below can go on.
    stack: Vec<(usize, At)>,
}

impl<'h, H: History + ?Sized> Stream<'h, H> {
    /// Of these marks, those of each process in order.
    pub fn new(history: &'h H, marks: &'h [Vec<Mark>]) -> Stream<'h, H> {
        let count = history.processes();
        let nothing: Clock = vec![0; count].into();
        let lanes = (0..count).map(|process| Lane {
            clock: nothing.clone(),
            reached: history.first(process),
            incoming: Cursor::incoming(history, process),
            outgoing: Cursor::outgoing(history, process),
            sent: VecDeque::new(),
            next: 0,
        });
        let heads = marks.iter().enumerate();
        let heap = heads
            .filter_map(|(process, marks)| Some(Reverse(Turn::new(marks.first()?, process, 0))))
            .collect();
        let lasts = marks
            .iter()
            .map(|marks| marks.last().map_or(0, |last| last.at.bound))
            .collect();
        Stream {
            history,
            has_clocks: true,
            marks,
            lanes: lanes.collect(),
            needed: closure(history, lasts),
            heap,
            emitted: 0,
            stack: Vec::new(),
        }
    }

    /// Of these marks, only their order: clocks are empty.
    pub fn in_order(history: &'h H, marks: &'h [Vec<Mark>]) -> Stream<'h, H> {
        let mut stream = Stream::new(history, marks);
        let nothing: Clock = Rc::new([]);
        for lane in &mut stream.lanes {
            lane.clock = nothing.clone();
        }
        stream.has_clocks = false;
        stream
    }

    /// The clock of a process where the sequence has come to.
    pub fn clock(&self, process: usize) -> &Clock {
        &self.lanes[process].clock
    }

    fn emit(&mut self, process: usize) -> Moment {
        let lane = &mut self.lanes[process];
        let index = lane.next;
        lane.next += 1;
        let mark = self.marks[process][index];
        let order = self.emitted;
        self.emitted += 1;
        Moment {
            process,
            index,
            order,
            at: mark.at,
            time: mark.time,
            clock: lane.clock.clone(),
        }
    }

    /// Passes the links at events before `bound`. Says whom to wait for, and
    /// until where, if a cause has not been passed yet.
    fn pass(&mut self, process: usize, bound: u32) -> Option<(usize, At)> {
        loop {
            let lane = &mut self.lanes[process];
            let incoming = lane.incoming.peek(self.history, bound);
            let outgoing = lane.outgoing.peek(self.history, bound);
            match (incoming, outgoing) {
                (None, None) => {
                    lane.reached = lane.reached.max(bound);
                    return None;
                }
                (Some(effect), cause) if cause.is_none_or(|cause| effect.own <= cause.own) => {
                    let other = effect.other as usize;
                    let known = lane.clock.get(other).copied().unwrap_or(0);
                    if known <= effect.number {
                        let there = self.lanes.get(other).map_or(u32::MAX, |lane| lane.reached);
                        if there <= effect.number {
                            return Some((other, At::after(effect.number)));
                        }
                        if self.has_clocks {
                            self.tell(process, other, effect.number);
                        }
                    } else {
                        self.arrive(other, effect.number);
                    }
                    self.lanes[process].incoming.pop();
                }
                (_, Some(cause)) => {
                    let mut left = 0;
                    while let Some(arrow) = lane.outgoing.peek(self.history, bound) {
                        if arrow.own != cause.own {
                            break;
                        }
                        if self.has_clocks {
                            let needed = self.needed.get(arrow.other as usize).copied();
                            left += u32::from(needed.is_some_and(|needed| arrow.number < needed));
                        }
                        lane.outgoing.pop();
                    }
                    lane.reached = lane.reached.max(cause.own + 1);
                    if left > 0 {
                        lane.sent.push_back(Sent {
                            cause: cause.own,
                            clock: lane.clock.clone(),
                            left,
                        });
                    }
                }
                (Some(_), None) => return None,
            }
        }
    }

    /// One of the messages that went out at event `cause` has arrived.
    fn arrive(&mut self, other: usize, cause: u32) -> Option<Clock> {
        let sent = &mut self.lanes.get_mut(other)?.sent;
        let at = sent.binary_search_by_key(&cause, |sent| sent.cause).ok()?;
        let entry = sent.get_mut(at)?;
        entry.left = entry.left.saturating_sub(1);
        let clock = entry.clock.clone();
        while sent.front().is_some_and(|sent| sent.left == 0) {
            sent.pop_front();
        }
        Some(clock)
    }

    /// A process learns what another knew at an event.
    fn tell(&mut self, process: usize, other: usize, cause: u32) {
        let told = match self.arrive(other, cause) {
            Some(clock) => clock,
            // A link that is known at one end only.
            None => self.history.past(other, cause + 1).into(),
        };
        let lane = &mut self.lanes[process];
        // Nobody else knows of this clock: it is changed where it is.
        if let Some(clock) = Rc::get_mut(&mut lane.clock) {
            for (own, told) in clock.iter_mut().zip(told.iter()) {
                *own = (*own).max(*told);
            }
            if let Some(place) = clock.get_mut(other) {
                *place = (*place).max(cause + 1);
            }
            return;
        }
        let own = lane.clock.iter().zip(told.iter());
        let mut merged: Clock = own.map(|(a, b)| *a.max(b)).collect();
        if let Some(place) = Rc::get_mut(&mut merged).and_then(|clock| clock.get_mut(other)) {
            *place = (*place).max(cause + 1);
        }
        lane.clock = merged;
    }
}

/// How far everybody must have come for these bounds to be a consistent cut.
pub(crate) fn closure(history: &(impl History + ?Sized), bounds: Vec<u32>) -> Vec<u32> {
    let nothing = vec![0; bounds.len()];
    closure_from(history, &nothing, bounds)
}

/// The closure, where it is known that everybody has come to a consistent cut.
pub(crate) fn closure_from(
    history: &(impl History + ?Sized),
    known: &[u32],
    mut bounds: Vec<u32>,
) -> Vec<u32> {
    let mut cursors: Vec<Cursor> = known
        .iter()
        .enumerate()
        .map(|(process, bound)| Cursor::incoming(history, process).from(*bound))
        .collect();
    let mut work: Vec<usize> = (0..bounds.len()).collect();
    while let Some(process) = work.pop() {
        let bound = bounds[process];
        let mut raised = Vec::new();
        while let Some(arrow) = cursors[process].peek(history, bound) {
            cursors[process].pop();
            raised.push((arrow.other as usize, arrow.number + 1));
        }
        for (other, bound) in raised {
            if let Some(place) = bounds.get_mut(other)
                && *place < bound
            {
                *place = bound;
                work.push(other);
            }
        }
    }
    bounds
}

impl<H: History + ?Sized> Iterator for Stream<'_, H> {
    type Item = Moment;

    fn next(&mut self) -> Option<Moment> {
        loop {
            let Some((process, target)) = self.stack.last().copied() else {
                // The next of its process takes its place in the heap.
                let mut top = self.heap.peek_mut()?;
                let (process, index) = top.0.whose();
                let next = self.lanes[process].next;
                // It may have been passed for the sake of another.
                let after = match next > index {
                    true => next,
                    false => index + 1,
                };
                match self.marks[process].get(after) {
                    Some(mark) => {
                        *top = Reverse(Turn::new(mark, process, after));
                        drop(top);
                    }
                    None => _ = PeekMut::pop(top),
                }
                if next <= index
                    && let Some(mark) = self.marks[process].get(index)
                {
                    self.stack.push((process, mark.at));
                }
                continue;
            };
            let next = self.lanes[process].next;
            let mark = self.marks[process]
                .get(next)
                .filter(|mark| mark.at <= target);
            let bound = mark.map_or(target.bound, |mark| mark.at.bound);
            if let Some(wait) = self.pass(process, bound) {
                // Links that go in a circle are no history: one of them is
                // left out rather than waited for.
                match self.stack.iter().any(|(on, _)| *on == wait.0) {
                    true => self.lanes[process].incoming.pop(),
                    false => self.stack.push(wait),
                }
                continue;
            }
            if mark.is_some() {
                return Some(self.emit(process));
            }
            self.stack.pop();
        }
    }
}
