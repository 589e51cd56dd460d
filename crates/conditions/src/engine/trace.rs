//! A value over the run of one process, and the stretches at which it is true.

use crate::history::At;

/// What something is at a place, as engines see it: a whole number. What else
/// variables hold has been measured before ([`crate::values`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Val {
    /// The process is not there, or nothing is known of it yet because there
    /// is nothing to know.
    #[default]
    Absent,
    /// This. What is only true or false is 1 or 0.
    Int(i128),
    /// It is something, and cannot be told.
    Unknown,
}

/// From here on it is this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<V = Val> {
    /// Where.
    pub at: At,
    /// When that was recorded, in nanoseconds.
    pub time: u64,
    /// What it is from here on.
    pub value: V,
}

/// A value over the run of one process. It is absent (which is the default of
/// every kind of value) before the first change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace<V = Val> {
    /// The process.
    pub process: usize,
    /// In order, no two at one place.
    pub changes: Vec<Change<V>>,
}

impl<V: Copy + Default + PartialEq> Trace<V> {
    /// Of a process, with nothing in it.
    pub fn new(process: usize) -> Trace<V> {
        Trace {
            process,
            changes: Vec::new(),
        }
    }

    /// The value at a place.
    pub fn at(&self, at: At) -> V {
        let count = self.changes.partition_point(|change| change.at <= at);
        let last = count.checked_sub(1).and_then(|last| self.changes.get(last));
        last.map_or(V::default(), |change| change.value)
    }

    /// Adds a change, if it is one. Later ones come later.
    pub fn push(&mut self, change: Change<V>) {
        match self.changes.last_mut() {
            Some(last) if last.at == change.at => last.value = change.value,
            Some(last) if last.value == change.value => {}
            None if change.value == V::default() => {}
            _ => self.changes.push(change),
        }
    }
}

/// How far back a process is led: to a place, or to right before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The place.
    pub at: At,
    /// It is at it; else right before it.
    pub inclusive: bool,
}

impl Edge {
    /// At a place.
    pub fn at(at: At) -> Edge {
        Edge {
            at,
            inclusive: true,
        }
    }

    /// Right before a place: of one that an event leads to, about to do that.
    pub fn before(at: At) -> Edge {
        Edge {
            at,
            inclusive: false,
        }
    }

    /// How many events of its process are behind it.
    pub fn bound(self) -> u32 {
        match (self.inclusive, self.at.step) {
            (false, 0) => self.at.bound.saturating_sub(1),
            _ => self.at.bound,
        }
    }

    /// Whether a place is not behind it.
    pub fn has(self, at: At) -> bool {
        Edge::at(at) <= self
    }

    /// The value there.
    pub fn value<V: Copy + Default>(self, trace: &Trace<V>) -> V {
        let count = trace.changes.partition_point(|change| self.has(change.at));
        let last = count
            .checked_sub(1)
            .and_then(|last| trace.changes.get(last));
        last.map_or(V::default(), |change| change.value)
    }
}

/// A stretch of a process's run: from a place, to a place that is not part of
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first place.
    pub from: At,
    /// The first behind it; [`At::END`] if it never ends.
    pub to: At,
    /// When it ends.
    pub until: u64,
}

/// The stretches at which a value fits.
pub fn spans(trace: &Trace, fits: impl Fn(Val) -> bool) -> Vec<Span> {
    let mut list = Vec::new();
    let mut open = fits(Val::Absent).then_some(At::default());
    for change in &trace.changes {
        match (open, fits(change.value)) {
            (None, true) => open = Some(change.at),
            (Some(from), false) => {
                // One that begins where it ends is none.
                if from < change.at {
                    list.push(Span {
                        from,
                        to: change.at,
                        until: change.time,
                    });
                }
                open = None;
            }
            _ => {}
        }
    }
    if let Some(from) = open {
        list.push(Span {
            from,
            to: At::END,
            until: u64::MAX,
        });
    }
    list
}

/// The stretches that are in both.
pub fn intersect(a: &[Span], b: &[Span]) -> Vec<Span> {
    let mut list = Vec::new();
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        let from = x.from.max(y.from);
        let (to, until) = match x.to <= y.to {
            true => (x.to, x.until),
            false => (y.to, y.until),
        };
        if from < to {
            list.push(Span { from, to, until });
        }
        match x.to <= y.to {
            true => _ = a.next(),
            false => _ = b.next(),
        }
    }
    list
}
