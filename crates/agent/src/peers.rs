//! What others may know of the program: a server outside of it that wants to be
//! fair to a client that is halted asks whether it is, and when it was.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use protocol::halt::LOGGED;
use protocol::shared::Control;
use serde::{Deserialize, Serialize};

use crate::halting::{self, Halter};

/// The program that a process belongs to. All times are of CLOCK_MONOTONIC, in ns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub pid: u32,
    /// The agent, and the debugger that holds the program halted.
    pub agent: u32,
    pub debugger: Option<u32>,
    /// When this was said.
    pub now_ns: u64,
    /// From when on it has stood still, if it does.
    pub halted_ns: Option<u64>,
    /// Halts are not taken out of its time now.
    pub is_real_time: bool,
    /// By how much its clocks are behind, the halt that is on left out.
    pub shift_ns: u64,
    /// How many halts there have been.
    pub halts: u32,
}

/// A halt that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    pub number: u32,
    pub from_ns: u64,
    pub to_ns: u64,
    /// It was not taken out of the program's time.
    pub is_seen: bool,
}

/// What is known of the program, if a process is one of its.
pub fn peer(control: &Control, pid: u32, debugger: Option<u32>) -> Peer {
    loop {
        let halt = &control.halt;
        let (number, ended) = (halt.word.load(Acquire), halt.ended.load(Acquire));
        let peer = Peer {
            pid,
            agent: std::process::id(),
            debugger: debugger.filter(|_| number != 0),
            shift_ns: halt.shift.load(Acquire),
            now_ns: halting::now().0,
            halted_ns: (number != 0).then(|| halt.stood_still(number, &control.entries).0),
            is_real_time: halt.real_time.load(Relaxed) != 0,
            halts: halt.count.load(Acquire),
        };
        // Neither began nor ended one meanwhile.
        if (halt.word.load(Acquire), halt.ended.load(Acquire)) == (number, ended) {
            return peer;
        }
    }
}

/// The halts after a number that are over and remembered, in their order.
pub fn past(control: &Control, after: u32) -> Vec<Past> {
    let halt = &control.halt;
    let last = halt.ended.load(Acquire);
    let first = last
        .saturating_sub(LOGGED as u32 - 1)
        .max(after.saturating_add(1));
    let spans = (first..=last).filter_map(|number| halt.log.get(number));
    spans
        .map(|span| Past {
            number: span.number,
            from_ns: span.from,
            to_ns: span.to,
            is_seen: span.is_seen,
        })
        .collect()
}

/// Whether a process is one of the program's.
pub fn is_ours(halter: &Halter<'_>, reaper: i32, pid: u32) -> bool {
    halter.pids().contains(&pid) || crate::reaper::program(reaper).contains(&(pid as i32))
}
