//! What conditions are judged against: processes, how far each came, and which
//! event caused which.
//!
//! Engines know no recording. They see a [`History`], and so can be tried on
//! histories small enough for every consistent state to be looked at.

/// A place in the run of one process.
///
/// `bound` is how many of its first events are behind it (so that the next is
/// number `bound`); `step` orders what happens between two events: 0 is right
/// after the last one. An event is said to be *at* the place it leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The number of the next event.
    pub bound: u32,
    /// How far behind the last event, in a measure that only grows until the
    /// next one.
    pub step: u64,
}

impl At {
    /// Behind everything.
    pub const END: At = At {
        bound: u32::MAX,
        step: u64::MAX,
    };

    /// Right after `bound` events.
    pub const fn bound(bound: u32) -> At {
        At { bound, step: 0 }
    }

    /// Where event `number` leads to.
    pub const fn after(number: u32) -> At {
        At::bound(number.saturating_add(1))
    }

    /// How many events of its process another must know of to know that this
    /// place was reached.
    pub const fn needs(self) -> u32 {
        match self.step {
            0 => self.bound,
            _ => self.bound.saturating_add(1),
        }
    }

    /// The event that led here, if one did.
    pub const fn event(self) -> Option<u32> {
        match self.step {
            0 => self.bound.checked_sub(1),
            _ => None,
        }
    }
}

/// A link, seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    /// Number of the event at this end.
    pub own: u32,
    /// The process at the other end.
    pub other: u32,
    /// Number of the event at the other end.
    pub number: u32,
}

/// Processes and the links between their events.
pub trait History {
    /// How many processes there are.
    fn processes(&self) -> usize;
    /// The name of one.
    fn name(&self, process: usize) -> &str;
    /// What it runs.
    fn program(&self, process: usize) -> &str;
    /// What it answers to besides.
    fn other_names(&self, _process: usize) -> &[String] {
        &[]
    }
    /// The bound at which nothing of it has happened yet.
    fn first(&self, process: usize) -> u32;
    /// The bound behind its last event.
    fn end(&self, process: usize) -> u32;
    /// Whether its last event ended it, so that it is nowhere afterwards.
    fn ended(&self, process: usize) -> bool;
    /// Adds the links to events `from..to` of a process, in order of these.
    fn causes(&self, process: usize, from: u32, to: u32, found: &mut Vec<Arrow>);
    /// Adds the links from events `from..to` of a process, in order of these.
    fn effects(&self, process: usize, from: u32, to: u32, found: &mut Vec<Arrow>);
    /// Of every process, the bound that the first `bound` events of this one
    /// depend on.
    fn past(&self, process: usize, bound: u32) -> Vec<u32>;
}

/// Whether one cut has all that another has, and more of nobody.
pub fn within(small: &[u32], large: &[u32]) -> bool {
    small.iter().zip(large).all(|(a, b)| a <= b)
}

/// Goes along the links of a process, a stretch of its events at a time.
pub(crate) struct Cursor {
    process: usize,
    incoming: bool,
    next: u32,
    buffer: Vec<Arrow>,
    at: usize,
}

impl Cursor {
    /// Events that are asked for at once: few enough for what is asked of a hundred
    /// processes to stay in the cache.
    const WINDOW: u32 = 1024;

    pub fn incoming(history: &(impl History + ?Sized), process: usize) -> Cursor {
        Cursor::new(history, process, true)
    }

    pub fn outgoing(history: &(impl History + ?Sized), process: usize) -> Cursor {
        Cursor::new(history, process, false)
    }

    fn new(history: &(impl History + ?Sized), process: usize, incoming: bool) -> Cursor {
        Cursor {
            process,
            incoming,
            next: history.first(process),
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// Links at events before this one are behind it.
    pub fn from(mut self, bound: u32) -> Cursor {
        self.next = self.next.max(bound);
        self
    }

    /// The next link to (or from) another process, at an event before `bound`.
    pub fn peek(&mut self, history: &(impl History + ?Sized), bound: u32) -> Option<Arrow> {
        loop {
            if let Some(arrow) = self.buffer.get(self.at).copied() {
                if arrow.other as usize == self.process {
                    self.at += 1;
                    continue;
                }
                return (arrow.own < bound).then_some(arrow);
            }
            let end = history.end(self.process);
            if self.next >= end.min(bound) {
                return None;
            }
            let to = self.next.saturating_add(Cursor::WINDOW).min(end);
            self.buffer.clear();
            self.at = 0;
            match self.incoming {
                true => history.causes(self.process, self.next, to, &mut self.buffer),
                false => history.effects(self.process, self.next, to, &mut self.buffer),
            }
            self.next = to;
        }
    }

    /// Goes behind the link that [`Cursor::peek`] gave.
    pub fn pop(&mut self) {
        self.at += 1;
    }
}
