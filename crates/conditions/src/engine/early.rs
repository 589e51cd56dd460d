//! How early something must have been done, by what others are known to have seen of it.
//!
//! A call is noted when it is over, and that may be long after it took effect: whoever
//! sends may have to wait for a core before it can say so, while the message has been
//! received, answered and acted on. What was recorded of the receiver tells then that it had been
//! sent by that time. In the order of recorded times an event counts from the earliest such
//! moment on, or effects would be passed before their causes.
#![allow(clippy::indexing_slicing)] // Tables with a row for each process.

use super::trace::Trace;
use crate::history::{Arrow, At, Cursor, History};

/// For each process, by when its events were seen elsewhere.
pub struct Seen {
    /// Numbers of events, in order, and by when those up to there had happened.
    by_process: Vec<Vec<(u32, u64)>>,
}

impl Seen {
    /// What a history tells, given when events were recorded.
    pub fn new<H: History + ?Sized>(
        history: &H,
        times: impl Fn(&[(usize, u32)]) -> Vec<u64>,
    ) -> Seen {
        let mut inward: Vec<Vec<Arrow>> = Vec::with_capacity(history.processes());
        for process in 0..history.processes() {
            let mut cursor = Cursor::incoming(history, process);
            let mut own = Vec::new();
            while let Some(arrow) = cursor.peek(history, u32::MAX) {
                cursor.pop();
                own.push(arrow);
            }
            inward.push(own);
        }
        let effects: Vec<(usize, u32)> = inward
            .iter()
            .enumerate()
            .flat_map(|(process, arrows)| arrows.iter().map(move |arrow| (process, arrow.own)))
            .collect();
        let mut recorded = times(&effects).into_iter();
        drop(effects);
        let mut order: Vec<(u64, u32, u32)> = Vec::new();
        for (process, arrows) in (0u32..).zip(&inward) {
            let indexes = 0..u32::try_from(arrows.len()).unwrap_or(u32::MAX);
            let times = indexes.zip(&mut recorded);
            order.extend(times.map(|(index, time)| (time, process, index)));
        }
        order.sort_unstable();

        // From the earliest on: an effect that was recorded then tells that its cause had
        // happened, and with that all that its process had been told before.
        let mut told = vec![0; inward.len()];
        let mut by_process: Vec<Vec<(u32, u64)>> = vec![Vec::new(); inward.len()];
        let mut work = Vec::new();
        for (time, process, index) in order {
            work.push((process as usize, index as usize));
            while let Some((process, last)) = work.pop() {
                let from = told[process];
                told[process] = from.max(last + 1);
                for arrow in inward[process].get(from..=last).unwrap_or_default() {
                    let other = arrow.other as usize;
                    let Some(own) = by_process.get_mut(other) else {
                        continue;
                    };
                    if own
                        .last()
                        .is_some_and(|(number, _)| *number >= arrow.number)
                    {
                        continue;
                    }
                    own.push((arrow.number, time));
                    let before = inward[other].partition_point(|own| own.own <= arrow.number);
                    if before > told[other] {
                        work.push((other, before - 1));
                    }
                }
            }
        }
        Seen { by_process }
    }

    /// When something had happened at the latest that was recorded then.
    pub fn by(&self, process: usize, at: At, recorded: u64) -> u64 {
        let Some(event) = at.needs().checked_sub(1) else {
            return recorded;
        };
        let seen = &self.by_process[process];
        let next = seen.partition_point(|(number, _)| *number < event);
        seen.get(next)
            .map_or(recorded, |(_, time)| recorded.min(*time))
    }

    /// Has changes count from when they had happened at the latest.
    pub fn set(&self, traces: &mut [Trace]) {
        for trace in traces {
            for change in &mut trace.changes {
                change.time = self.by(trace.process, change.at, change.time);
            }
        }
    }
}
