//! Where a process is in its run.

use protocol::id::{Addr, EventNo};

/// A place between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inside {
    /// The event that comes next.
    pub event: EventNo,
    /// How many control transfers were taken since the one before.
    pub transfers: u64,
    /// Of the instruction. As a goal, [`Addr::NULL`] is the first one after those
    /// transfers.
    pub address: Addr,
}

/// Where a process that is alive stands: it has no log that could be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Halted {
    /// How often it was halted before.
    pub halt: u64,
    /// Of the instruction that comes next.
    pub address: Addr,
}

/// A place in the run of a process. Places are in the order in which the
/// process comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// About to do this event.
    Event(EventNo),
    /// Between two events.
    Inside(Inside),
    /// Wherever it was halted, of a process that is alive.
    Halted(Halted),
}

impl Position {
    /// Before everything.
    pub const START: Position = Position::Event(EventNo(0));

    /// Behind everything.
    pub const END: Position = Position::Event(EventNo::MAX);

    /// The event that comes next. Of a process that is alive, the number of the
    /// halt stands for it.
    pub fn event(&self) -> EventNo {
        match self {
            Position::Event(event) => *event,
            Position::Inside(inside) => inside.event,
            Position::Halted(halted) => EventNo(halted.halt),
        }
    }

    /// The instruction it stands before, if it stands between events.
    pub fn address(&self) -> Option<Addr> {
        match self {
            Position::Event(_) => None,
            Position::Inside(inside) => Some(inside.address),
            Position::Halted(halted) => Some(halted.address),
        }
    }

    /// The first instruction on the way to an event.
    pub fn way_to(event: EventNo) -> Position {
        Position::Inside(Inside {
            event,
            transfers: 0,
            address: Addr::NULL,
        })
    }

    fn key(&self) -> (EventNo, u64, Addr) {
        match self {
            Position::Event(event) => (*event, u64::MAX, Addr::NULL),
            // Without control transfers, addresses only rise.
            Position::Inside(inside) => (inside.event, inside.transfers, inside.address),
            Position::Halted(halted) => (EventNo(halted.halt), 0, halted.address),
        }
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Position) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Position) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_behind_the_way_to_it() {
        let inside = |event, transfers, address| {
            Position::Inside(Inside {
                event: EventNo(event),
                transfers,
                address: Addr(address),
            })
        };
        let event = |event| Position::Event(EventNo(event));
        let order = [
            Position::START,
            Position::way_to(EventNo(1)),
            inside(1, 0, 7),
            inside(1, 2, 3),
            event(1),
            inside(2, 0, 1),
            event(2),
            Position::END,
        ];
        assert!(order.is_sorted());
    }
}
