//! When a program that was over had stood still: who hangs is often ended by a
//! signal that it handles (Ctrl-C), and then does a lot before it ends.

use protocol::id::{EventNo, ProcessIx, Ticks};
use protocol::record::kind;
use recording::{Event, Phase};

use crate::history::{Cut, History};
use crate::link::EventId;

/// Somebody outside told the program to end.
#[derive(Clone, Debug)]
pub struct Interruption {
    /// Where the signal reached the program first.
    pub event: EventId,
    /// Which signal.
    pub signal: u64,
    /// Where all processes stood just before.
    pub cut: Cut,
}

/// Those by which people end programs: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
const ENDING: [u64; 4] = [1, 2, 3, 15];

/// Signals that are not further apart belong to one wish: to the group of a
/// terminal, or pressed twice.
const TOGETHER_SECONDS: u64 = 2;

/// A signal that nobody in the recording sent.
struct Sent {
    event: EventId,
    signal: u64,
    time: Ticks,
    /// The first event that belongs to it: the end of the call that it broke off.
    from: EventNo,
}

impl History {
    /// The last time that somebody outside told the program to end, and it had
    /// its own answer to that.
    pub fn interruption(&self) -> Option<Interruption> {
        let mut sent = self.sent_from_outside();
        sent.sort_unstable_by_key(|sent| sent.time);
        let together = TOGETHER_SECONDS * self.recording().manifest().clock.ticks_per_second;
        let mut first = sent.len().checked_sub(1)?;
        while let Some(before) = first.checked_sub(1)
            && let (Some(earlier), Some(later)) = (sent.get(before), sent.get(first))
            && later.time.since(earlier.time) <= together
        {
            first = before;
        }
        let group = sent.get(first..)?;
        let (event, signal, time) = group.first().map(|s| (s.event, s.signal, s.time))?;
        let mut bounds: Vec<u32> = self
            .places()
            .map(|place| self.events_before(place, time))
            .collect();
        for sent in group {
            if let Some(bound) = bounds.get_mut(sent.event.process.index()) {
                *bound = (*bound).min(u32::try_from(sent.from.0).unwrap_or(u32::MAX));
            }
        }
        Some(Interruption {
            event,
            signal,
            cut: Cut::new(bounds),
        })
    }

    fn sent_from_outside(&self) -> Vec<Sent> {
        let mut found = Vec::new();
        for place in self.places() {
            let Some(mut log) = self.set().log_near(place, EventNo(0)) else {
                continue;
            };
            let mut broken_off = None;
            while log.advance() {
                let Some(event) = log.event() else { break };
                let id = EventId::new(place, event.number);
                if event.kind == kind::SIGNAL
                    && ENDING.contains(&event.value(0))
                    && self.causes(id).is_empty()
                {
                    found.push(Sent {
                        event: id,
                        signal: event.value(0),
                        time: event.time,
                        from: broken_off.unwrap_or(event.number),
                    });
                }
                broken_off = is_broken_off(&event).then_some(event.number);
            }
        }
        found
    }

    /// How many events of a process were before a time.
    fn events_before(&self, place: ProcessIx, time: Ticks) -> u32 {
        let mut bound = EventNo(0);
        if let Some(mut log) = self.set().log_near(place, EventNo(0)) {
            while log.advance() {
                match log.event() {
                    Some(event) if event.time < time => bound = event.number.next(),
                    _ => break,
                }
            }
        }
        u32::try_from(bound.0).unwrap_or(u32::MAX)
    }
}

/// Whether a call ended because a signal came.
pub(crate) fn is_broken_off(event: &Event<'_>) -> bool {
    let result = event.result.unwrap_or(0);
    event.phase == Phase::End && matches!(result, -516..=-512 | -4)
}
