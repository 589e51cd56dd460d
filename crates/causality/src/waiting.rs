//! Who waits for whom, and who waits for ever.
//!
//! A thread that waits goes on as soon as *one* of those it waits for does
//! something: any holder of the other end may send, any child may end. So a set
//! of threads is deadlocked if each waits only for threads of the set; one that
//! runs, sleeps or waits for somebody outside could still free the others.

use std::collections::{HashMap, HashSet};

use protocol::id::{EventNo, ProcessIx, ThreadNo};

use crate::channel::ChannelKind;
use crate::history::{Cut, History, number};
use crate::index::build::NO;
use crate::index::layout::*;
use crate::index::waits::decode;
use crate::link::{EventId, Kind};
use crate::world::{End, LONG, SENDS, WaitFor, calls};

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter {
    /// Its process.
    pub process: ProcessIx,
    /// Which of the process's threads it is.
    pub thread: ThreadNo,
}

/// A thread that stands in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Which thread.
    pub thread: Waiter,
    /// The event at which the call began.
    pub since: EventNo,
    /// Number of the call.
    pub nr: u64,
    /// What it waits for.
    pub what: WaitFor,
    /// It would go on by itself after a time.
    pub limited: bool,
    /// Threads of which any could let it go on; empty with `outside`: nobody
    /// in the program.
    pub by: Vec<Waiter>,
    /// Somebody outside the program, or time, could let it go on.
    pub outside: bool,
    /// The event that did, later in the recording.
    pub freed_by: Option<EventId>,
}

/// Threads that wait for each other and for nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knot {
    /// All of them.
    pub threads: Vec<Waiter>,
    /// Some of them, each of which waits for the next, and the last for the
    /// first.
    pub circle: Vec<Waiter>,
}

/// All threads that wait at a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Those that stand in a call.
    pub blocked: Vec<Blocked>,
    /// Those that run.
    pub running: Vec<Waiter>,
    /// Those that will never go on.
    pub knots: Vec<Knot>,
}

impl Waiting {
    /// Takes in who of a process holds what others wait for in its memory, which
    /// the recording does not tell: by who waits, who holds.
    pub fn learn(&mut self, holders: &HashMap<Waiter, Waiter>) {
        for blocked in &mut self.blocked {
            if let Some(holder) = holders.get(&blocked.thread)
                && matches!(blocked.what, WaitFor::Wake(_))
            {
                blocked.by = vec![*holder];
            }
        }
        self.knots = knots(self);
    }
}

impl History {
    /// Who waits for whom at a cut.
    pub fn waiting(&self, cut: &Cut) -> Waiting {
        let mut waiting = Waiting::default();
        let mut alive: HashMap<ProcessIx, Vec<ThreadNo>> = HashMap::new();
        for place in cut.processes() {
            let threads = self.threads_at(place, cut, &mut waiting.blocked);
            let standing: HashSet<ThreadNo> = waiting
                .blocked
                .iter()
                .filter(|b| b.thread.process == place)
                .map(|b| b.thread.thread)
                .collect();
            waiting.running.extend(
                threads
                    .iter()
                    .filter(|thread| !standing.contains(thread))
                    .map(|thread| Waiter {
                        process: place,
                        thread: *thread,
                    }),
            );
            alive.insert(place, threads);
        }
        let all = |process: ProcessIx| {
            let threads = alive.get(&process).map_or(&[][..], Vec::as_slice);
            threads.iter().map(move |thread| Waiter {
                process,
                thread: *thread,
            })
        };
        let held: Vec<(Waiter, WaitFor)> = waiting
            .blocked
            .iter()
            .map(|blocked| (blocked.thread, blocked.what))
            .collect();
        for blocked in &mut waiting.blocked {
            self.resolve(blocked, cut, &all, &held);
        }
        waiting.knots = knots(&waiting);
        waiting
    }

    /// The threads of a process that live at a cut; those that stand in a call
    /// are appended to `blocked`.
    fn threads_at(&self, place: ProcessIx, cut: &Cut, blocked: &mut Vec<Blocked>) -> Vec<ThreadNo> {
        let record = self.record(place);
        let bound = cut.bound(place);
        let begun = bound > number(record.first.get());
        let over = bound > number(record.last.get()) && self.has_ended(place, &record, cut);
        if !begun || over {
            return Vec::new();
        }
        let range = |range: Range| (range.from.get() as usize, range.count.get() as usize);
        let (from, count) = range(record.threads_at);
        let threads = self
            .index
            .records::<ThreadRec>(Section::Threads, from, count);
        let alive: Vec<ThreadNo> = threads
            .all()
            .iter()
            .filter(|thread| number(thread.born.get()) < bound)
            .filter(|thread| thread.died.get() == NO || number(thread.died.get()) >= bound)
            .map(|thread| ThreadNo(thread.thread.get()))
            .collect();
        let mut standing: HashMap<ThreadNo, Blocked> = HashMap::new();
        let (from, count) = range(record.waits);
        let waits = self.index.records::<WaitRec>(Section::Waits, from, count);
        for wait in waits.all() {
            let begun = number(wait.first.get()) < bound;
            let over = wait.last.get() != NO && number(wait.last.get()) < bound;
            let what = decode(wait.what, wait.value.get());
            if begun && !over && !(wait.last.get() != NO && self.has_sent(what, cut)) {
                let thread = ThreadNo(wait.thread.get());
                let blocked = Blocked {
                    thread: Waiter {
                        process: place,
                        thread,
                    },
                    since: number(wait.first.get()),
                    nr: wait.nr.get().into(),
                    what,
                    limited: wait.limited != 0,
                    by: Vec::new(),
                    outside: false,
                    freed_by: self.freed(place, wait.last.get()),
                };
                standing.insert(thread, blocked);
            }
        }
        // Those that did not take long: they began shortly before.
        let (from, count) = range(record.calls);
        let calls = self.index.records::<CallRec>(Section::Calls, from, count);
        let end = calls.partition_point(|call| number(call.first.get()) < bound);
        let recent = calls.backward(0, end);
        for call in recent.take_while(|c| number(c.first.get().saturating_add(LONG)) >= bound) {
            let thread = ThreadNo(call.thread.get().into());
            let end = call.first.get().saturating_add(u32::from(call.span));
            let last = number(end);
            if last < bound || standing.contains_key(&thread) {
                continue;
            }
            let nr = call.nr.get().into();
            let used = self.uses(EventId::new(place, last)).first().copied();
            let what = match used.filter(|_| calls::is_transfer(nr)) {
                Some(used) if used.receives => WaitFor::Receive(used.channel),
                Some(used) => WaitFor::Send(used.channel),
                None if nr == calls::nr::FUTEX => WaitFor::Wake(0),
                None if matches!(nr, calls::nr::WAIT4 | calls::nr::WAITID) => WaitFor::Child(None),
                None => WaitFor::Other,
            };
            if self.has_sent(what, cut) {
                continue;
            }
            let blocked = Blocked {
                thread: Waiter {
                    process: place,
                    thread,
                },
                since: number(call.first.get()),
                nr,
                what,
                // It did go on, and soon.
                limited: used.is_none(),
                by: Vec::new(),
                outside: false,
                freed_by: self.freed(place, end),
            };
            standing.insert(thread, blocked);
        }
        let mut found: Vec<Blocked> = standing
            .into_values()
            .filter(|blocked| alive.contains(&blocked.thread.thread))
            .collect();
        found.sort_by_key(|blocked| blocked.thread);
        blocked.extend(found);
        alive
    }

    /// Whether all that was sent has been taken: who is still in a call that sends, and
    /// which comes to its end, waits for no room. Causes lead into the middle of such calls:
    /// what was received was under way since they began.
    fn has_sent(&self, what: WaitFor, cut: &Cut) -> bool {
        matches!(what, WaitFor::Send(channel) if self.in_flight(channel, cut) == 0)
    }

    /// Whether a process that is behind its last event has ended. One that was
    /// killed from outside stands where it stood, until somebody learnt of its
    /// end: so that who stops a program that hangs can ask why it hung.
    fn has_ended(&self, place: ProcessIx, record: &ProcessRec, cut: &Cut) -> bool {
        if record.ended.get() != End::Killed as u32 {
            return record.ended.get() == End::Exited as u32;
        }
        let last = EventId::new(place, number(record.last.get()));
        // What another process of the program did to it belongs to the story;
        // what somebody outside did, to stop it all, does not.
        let killed_by_us = || {
            let mut links = self.causes(last).into_iter();
            links.any(|link| link.kind == Kind::Signal)
        };
        let links = self.effects(last);
        let mut told = links.iter().filter(|link| link.kind == Kind::Exit);
        told.any(|link| cut.has(link.effect)) || killed_by_us()
    }

    fn freed(&self, place: ProcessIx, last: u32) -> Option<EventId> {
        if last == NO {
            return None;
        }
        let links = self.causes(EventId::new(place, number(last)));
        links.first().map(|link| link.cause)
    }

    /// Who could let a thread go on.
    fn resolve<'a, I: Iterator<Item = Waiter> + 'a>(
        &self,
        blocked: &mut Blocked,
        cut: &Cut,
        all: &impl Fn(ProcessIx) -> I,
        held: &[(Waiter, WaitFor)],
    ) {
        let own = blocked.thread;
        let mut by: Vec<Waiter> = Vec::new();
        let mut outside = blocked.limited;
        let mut ends = |channel: u32, sends: bool| {
            let mut holders = self.holders_at(channel, sends, cut);
            if holders.is_empty() {
                holders = self.users(channel);
            }
            if holders.is_empty() && self.is_outside(channel, sends) {
                outside = true;
            }
            if holders.is_empty() {
                // It is on its way to somebody: who accepts the connection, say. That one
                // may be still to come.
                holders = self.holders_after(channel, sends, cut);
                outside |= holders.iter().any(|later| all(*later).next().is_none());
            }
            by.extend(holders.into_iter().flat_map(all));
        };
        match blocked.what {
            WaitFor::Receive(channel) => ends(channel, true),
            WaitFor::Send(channel) => ends(channel, false),
            WaitFor::Any { from, count } => {
                let list = self.index.records::<zerocopy::little_endian::U32>(
                    Section::Polls,
                    from as usize,
                    count as usize,
                );
                for channel in list.all() {
                    let (channel, sends) = (channel.get() & !SENDS, channel.get() & SENDS != 0);
                    ends(channel, !sends);
                }
            }
            WaitFor::Child(Some(child)) => {
                by.extend(all(child));
                outside |= by.is_empty();
            }
            WaitFor::Child(None) => {
                let parent = self.process(own.process).map(|process| process.number);
                for place in cut.processes() {
                    if self.process(place).and_then(|process| process.parent) == parent {
                        by.extend(all(place));
                    }
                }
                // A child that has ended already will be reported.
                outside |= by.is_empty();
            }
            WaitFor::Wake(_) => by.extend(all(own.process)),
            WaitFor::Thread(thread) => {
                by.extend(all(own.process).filter(|other| other.thread == thread));
            }
            WaitFor::Lock(lock) => {
                let holders = self.lock_holders(lock, cut);
                let others = holders.into_iter().filter(|p| *p != own.process);
                by.extend(others.flat_map(all));
                if by.is_empty() {
                    // Whoever is not waiting for the same lock may have it.
                    let wants = |other: &Waiter| {
                        held.iter()
                            .any(|(waiter, what)| waiter == other && *what == WaitFor::Lock(lock))
                    };
                    let others = cut.processes().filter(|place| *place != own.process);
                    by.extend(others.flat_map(all).filter(|other| !wants(other)));
                }
            }
            WaitFor::Accept
            | WaitFor::Connection
            | WaitFor::Time
            | WaitFor::Signal
            | WaitFor::Other => outside = true,
        }
        by.retain(|other| *other != own);
        by.sort_unstable();
        by.dedup();
        blocked.by = by;
        blocked.outside = outside;
    }

    /// Of what is not held by descriptors, whoever uses it: a System V queue or
    /// semaphore.
    fn users(&self, channel: u32) -> Vec<ProcessIx> {
        let Some(channel) = self.channel(channel) else {
            return Vec::new();
        };
        match channel.kind {
            ChannelKind::Queue | ChannelKind::Semaphore => {
                let mut users = channel.senders;
                users.extend(channel.receivers);
                users
            }
            _ => Vec::new(),
        }
    }

    /// Whether nobody in the program ever held this end.
    fn is_outside(&self, channel: u32, sends: bool) -> bool {
        let Some(channel) = self.channel(channel) else {
            return true;
        };
        if sends {
            channel.is_from_outside()
        } else {
            channel.is_to_outside()
        }
    }
}

/// Threads that nobody who is free can free.
fn knots(waiting: &Waiting) -> Vec<Knot> {
    let mut free: HashSet<Waiter> = waiting.running.iter().copied().collect();
    loop {
        let before = free.len();
        for blocked in &waiting.blocked {
            if blocked.outside || blocked.by.iter().any(|other| free.contains(other)) {
                free.insert(blocked.thread);
            }
        }
        if free.len() == before {
            break;
        }
    }
    let stuck: HashMap<Waiter, &Blocked> = waiting
        .blocked
        .iter()
        .filter(|blocked| !free.contains(&blocked.thread))
        .map(|blocked| (blocked.thread, blocked))
        .collect();
    let mut knots = Vec::new();
    let mut told: HashSet<Waiter> = HashSet::new();
    let mut order: Vec<Waiter> = stuck.keys().copied().collect();
    order.sort_unstable();
    for start in order {
        if told.contains(&start) {
            continue;
        }
        // From each to the first that it waits for, until one comes again.
        let mut walk = vec![start];
        let mut at = start;
        let circle = loop {
            let next = stuck
                .get(&at)
                .and_then(|blocked| blocked.by.iter().find(|other| stuck.contains_key(other)));
            let Some(next) = next.copied() else {
                break Vec::new();
            };
            if let Some(i) = walk.iter().position(|other| *other == next) {
                break walk.split_off(i);
            }
            walk.push(next);
            at = next;
        };
        if circle.iter().any(|waiter| told.contains(waiter)) {
            continue;
        }
        let mut threads: Vec<Waiter> = vec![start];
        let mut i = 0;
        while let Some(waiter) = threads.get(i).copied() {
            let next = stuck.get(&waiter).map_or(&[][..], |blocked| &blocked.by);
            for other in next {
                if stuck.contains_key(other) && !threads.contains(other) {
                    threads.push(*other);
                }
            }
            i += 1;
        }
        told.extend(threads.iter().copied());
        threads.sort_unstable();
        knots.push(Knot { threads, circle });
    }
    knots
}
