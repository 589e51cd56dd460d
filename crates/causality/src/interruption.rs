//! When a program that was over had stood still: who hangs is often ended by a
//! signal that it handles (Ctrl-C), and then does a lot before it ends.

use std::collections::HashMap;

use protocol::id::{EventNo, ProcessIx, Ticks};
use protocol::record::kind;
use recording::{Event, Phase};

use crate::history::{Cut, History, clamp};
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
pub(crate) const TOGETHER_NS: i64 = 2_000_000_000;

/// A signal that nobody in the recording sent.
struct Sent {
    event: EventId,
    signal: u64,
    /// By the clock of its own host.
    ticks: Ticks,
    /// In nanoseconds, by the clock of the first host.
    time: i64,
    /// The first event that belongs to it: the end of the call that it broke off.
    from: EventNo,
}

impl History {
    /// The last time that somebody outside told the program to end, and it had
    /// its own answer to that.
    pub fn interruption(&self) -> Option<Interruption> {
        let mut sent = self.sent_from_outside();
        sent.sort_unstable_by_key(|sent| sent.time);
        let mut first = sent.len().checked_sub(1)?;
        while let Some(before) = first.checked_sub(1)
            && let (Some(earlier), Some(later)) = (sent.get(before), sent.get(first))
            && later.time.saturating_sub(earlier.time) <= TOGETHER_NS
        {
            first = before;
        }
        let group = sent.get(first..)?;
        let (event, signal, time) = group.first().map(|s| (s.event, s.signal, s.time))?;
        // What came before on a host its own clock says, if a signal came there.
        let mut own: HashMap<u16, Ticks> = HashMap::new();
        for sent in group {
            if let Some(member) = self.set().member_of(sent.event.process) {
                let earliest = own.entry(member).or_insert(sent.ticks);
                *earliest = (*earliest).min(sent.ticks);
            }
        }
        let before = |place: ProcessIx| {
            let member = self.set().member_of(place)?;
            Some(match own.get(&member) {
                Some(earliest) => self.events_until(place, |ticks| ticks < *earliest),
                None => self.events_until(place, |ticks| self.time_ns(place, ticks) < time),
            })
        };
        let bounds = self.places().map(|place| before(place).unwrap_or(0));
        let mut bounds: Vec<u32> = bounds.collect();
        // Who was told is no further, nor who knows of what one did who was told.
        let told: Vec<EventId> = group
            .iter()
            .map(|sent| EventId::new(sent.event.process, sent.from))
            .collect();
        for (bound, knows) in bounds.iter_mut().zip(self.future_of(&told)) {
            if let Some(knows) = knows {
                *bound = (*bound).min(clamp(knows));
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
                        ticks: event.time,
                        time: self.time_ns(place, event.time),
                        from: broken_off.unwrap_or(event.number),
                    });
                }
                broken_off = is_broken_off(&event).then_some(event.number);
            }
        }
        found
    }

    /// How many events of a process were at times that fit; later ones do not.
    fn events_until(&self, place: ProcessIx, is_before: impl Fn(Ticks) -> bool) -> u32 {
        let mut bound = EventNo(0);
        if let Some(mut log) = self.set().log_near(place, EventNo(0)) {
            while log.advance() {
                match log.event() {
                    Some(event) if is_before(event.time) => bound = event.number.next(),
                    _ => break,
                }
            }
        }
        clamp(bound)
    }
}

/// Whether a call ended because a signal came.
pub(crate) fn is_broken_off(event: &Event<'_>) -> bool {
    let result = event.result.unwrap_or(0);
    event.phase == Phase::End && matches!(result, -516..=-512 | -4)
}
