//! Connections over a network: which connect and which accept are the two
//! halves of one.
//!
//! The kernel tells both addresses to both sides. A port may be used again, so
//! the same two addresses may stand for several connections, one after the
//! other: halves pair up in order, and only where the accept was not over
//! before the connect began.

use std::collections::{HashMap, VecDeque};

use recording::sockaddr::Address;

use super::objects::Half;

/// Who connected, and to whom.
pub(crate) type Tuple = (Address, Address);

/// Halves of connections, by their addresses.
#[derive(Debug, Default)]
pub(crate) struct Tuples(HashMap<Tuple, Halves>);

#[derive(Debug, Default)]
struct Halves {
    connected: VecDeque<(Half, Option<u32>)>,
    accepted: VecDeque<Half>,
}

impl Tuples {
    /// A connection was begun: its other half, if that was seen before.
    pub fn connected(&mut self, tuple: Tuple, half: Half, listener: Option<u32>) -> Option<Half> {
        let halves = self.0.entry(tuple).or_default();
        let at = halves
            .accepted
            .iter()
            .position(|accepted| accepted.op.hi >= half.op.lo);
        if let Some(accepted) = at.and_then(|at| halves.accepted.remove(at)) {
            return Some(accepted);
        }
        halves.connected.push_back((half, listener));
        None
    }

    /// A connection was accepted: its other half, if that was seen before.
    pub fn accepted(&mut self, tuple: &Tuple, op_hi: u64) -> Option<Half> {
        let halves = self.0.get_mut(tuple)?;
        let at = halves
            .connected
            .iter()
            .position(|(half, _)| half.op.lo <= op_hi)?;
        halves.connected.remove(at).map(|(half, _)| half)
    }

    /// One was accepted whose other half was not seen yet.
    pub fn accepted_early(&mut self, tuple: Tuple, half: Half) {
        self.0.entry(tuple).or_default().accepted.push_back(half);
    }

    /// A listener was closed: nobody will accept what waits for it.
    pub fn drop_waiting(&mut self, listener: u32) -> Vec<Half> {
        let mut dropped = Vec::new();
        for halves in self.0.values_mut() {
            halves.connected.retain(|(half, at)| {
                let goes = *at == Some(listener);
                if goes {
                    dropped.push(half.clone());
                }
                !goes
            });
        }
        dropped
    }

    /// Halves whose others were not seen, each with its addresses and whether
    /// it is a connect. They are forgotten here.
    pub fn take_rest(&mut self) -> Vec<(Tuple, bool, Half)> {
        let mut rest = Vec::new();
        for (tuple, halves) in self.0.drain() {
            let connected = halves.connected.into_iter();
            rest.extend(connected.map(|(half, _)| (tuple.clone(), true, half)));
            let accepted = halves.accepted.into_iter();
            rest.extend(accepted.map(|half| (tuple.clone(), false, half)));
        }
        // Whatever order the table had.
        rest.sort_by_key(|(_, connects, half)| (half.op.process, half.op.first, *connects));
        rest
    }
}
